//! The variables that tell a program under the interposer what to do, beside the variables of its pools.

/// `1`: the interposer writes a line to standard error for each call that it takes over.
pub const TRACE_VARIABLE: &str = "IOTRAP_TRACE";
/// A file that the interposer writes the program's I/O to, as a fio iolog, version 3.
pub const IOLOG_VARIABLE: &str = "IOTRAP_IOLOG";
/// `1`: the interposer carries out libaio requests that would block asynchronously.
pub const ASYNC_VARIABLE: &str = "IOTRAP_ASYNC";
/// `1`: the interposer sees system calls that do not pass through libc, too.
pub const RAW_VARIABLE: &str = "IOTRAP_RAW";
/// `1`: the interposer writes a summary to standard error when the program ends. Another value is a file that it adds
/// the summary to.
pub const STATS_VARIABLE: &str = "IOTRAP_STATS";
/// `1`: the interposer spreads nothing, and counts the requests that it would have spread ([`WOULD_LEAVE`]).
pub const DRY_RUN_VARIABLE: &str = "IOTRAP_DRY_RUN";
/// The number of filters of system calls (seccomp) that were found to permit all calls of the interposer: it trusts a
/// process that has begun with no more of them. [`PROBE`] has it make all calls and end.
pub const FILTERS_VARIABLE: &str = "IOTRAP_SECCOMP_FILTERS";
/// The value of [`FILTERS_VARIABLE`] in a process that finds out if filters kill it.
pub const PROBE: &str = "probe";
/// The exit status of such a process, if nothing has killed it.
pub const SURVIVED: i32 = 86;

/// Under this name the interposer counts the system calls that `--raw` has caught, beside the reasons why requests stay
/// on their lane.
pub const CAUGHT: &str = "a system call outside libc, which --raw has caught";

/// Under this name the interposer counts, in a dry run, the requests that it would have spread.
pub const WOULD_LEAVE: &str = "would go over all lanes (a dry run)";

/// Under this name the interposer counts the times that all lanes of a pool were too busy for a request.
pub const WINDOW: &str = "every lane's window was full";

/// True if a name of the interposer's counts is the reason why requests stayed on their lane.
pub fn is_reason(name: &str) -> bool {
    ![CAUGHT, WOULD_LEAVE, WINDOW].contains(&name)
}
