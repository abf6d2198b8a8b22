//! The locks and atomics of the queues and of the workers' phases: those of std, or those of loom when their
//! interleavings are explored (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::thread::yield_now as pause;
#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop as pause;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

use std::time::Duration;

/// The guard of a lock. A poisoned lock is taken as it is: no panic can leave a critical section of this library half
/// done, and a foreign callback's panic never happens inside one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Waits for a notification, at most as long as given. Under loom there is no time: a wait ends by notification only.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, limit: Option<Duration>) -> MutexGuard<'a, T> {
    #[cfg(not(loom))]
    if let Some(limit) = limit {
        return condvar.wait_timeout(guard, limit).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
    }
    #[cfg(loom)]
    let _ = limit;
    condvar.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
}
