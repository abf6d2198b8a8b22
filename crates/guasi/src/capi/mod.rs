//! The C ABI: include/guasi.h, include/guasi_syscalls.h, guasi(3).
//!
//! A `guasi_t` is an `Arc<Core>` that has been turned into a pointer, a `guasi_req_t` a `Request`. A panic in here ends
//! the process (`extern "C"`): nothing unwinds into C.

mod calls;
mod context;
