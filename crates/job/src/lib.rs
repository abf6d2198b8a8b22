//! fio job files and flags into a validated job, and the job's seeded stream of ops.
#![forbid(unsafe_code)]
