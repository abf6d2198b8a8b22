//! The ground floor: the kernel's and libc's binary interface. System calls without libc, the functions that the
//! program would have called, errno, the clock, threads without libc, stacks of the library's own, the structures of
//! libaio and liburing, and calls that a signal handler cannot leave.

pub mod clock;
pub mod dispatch;
pub mod errno;
pub mod filters;
pub mod libaio;
pub mod liburing;
pub mod own_stack;
pub mod probe;
pub mod raw;
pub mod raw_thread;
pub mod readable;
pub mod real;
pub mod said;
pub mod sealed;
pub mod undisturbed;
