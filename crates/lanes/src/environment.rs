//! The variables by which a program under the interposer is told what to do, beside those of its pools.

/// `1`: a line on standard error for each call that is taken over.
pub const TRACE_VARIABLE: &str = "IOTRAP_TRACE";
/// A file that gets the program's I/O as a fio iolog, version 3.
pub const IOLOG_VARIABLE: &str = "IOTRAP_IOLOG";
/// `1`: libaio requests that would block are carried out asynchronously.
pub const ASYNC_VARIABLE: &str = "IOTRAP_ASYNC";
/// `1`: a summary on standard error when the program ends.
pub const STATS_VARIABLE: &str = "IOTRAP_STATS";
