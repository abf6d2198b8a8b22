//! The one rule for a system call that a signal interrupts: it is made again, and after many times it has failed.
//!
//! NFS, FUSE and Lustre give EINTR for calls on names as well. An interrupted call says nothing about the wish of a
//! user to stop: callers ask their own flag for that.

use std::io;

/// The number of times that an interrupted call is made again. A file system that interrupts each of them would
/// otherwise hold the thread for ever.
const MOST: u32 = 100;

/// The outcome of `call`, which is made again while a signal interrupts it.
///
/// # Errors
/// Those of `call`; EINTR if a signal has interrupted the call a hundred times in a row.
#[inline]
pub fn repeated<T, E: Into<io::Error> + Interruption>(mut call: impl FnMut() -> Result<T, E>) -> io::Result<T> {
    for _ in 0..MOST {
        match call() {
            Err(error) if error.is_interruption() => {}
            outcome => return outcome.map_err(Into::into),
        }
    }
    call().map_err(Into::into)
}

/// The result of a call of C: a value of at least 0, or a negative errno. The call is made again while a signal
/// interrupts it.
#[inline]
pub fn repeated_c<T: TryInto<i64>>(mut call: impl FnMut() -> T) -> i64 {
    for _ in 0..MOST {
        let returned = call().try_into().unwrap_or(i64::MAX);
        if returned >= 0 {
            return returned;
        }
        match errno() {
            libc::EINTR => {}
            errno => return -i64::from(errno),
        }
    }
    -i64::from(libc::EINTR)
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// An error that can be EINTR.
pub trait Interruption {
    /// True if a signal has interrupted the call.
    fn is_interruption(&self) -> bool;
}

impl Interruption for io::Error {
    #[inline]
    fn is_interruption(&self) -> bool {
        self.raw_os_error() == Some(libc::EINTR)
    }
}

impl Interruption for rustix::io::Errno {
    #[inline]
    fn is_interruption(&self) -> bool {
        *self == rustix::io::Errno::INTR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupted(times: u32) -> (io::Result<u32>, u32) {
        let mut calls = 0;
        let outcome = repeated(|| {
            calls += 1;
            if calls <= times { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(7) }
        });
        (outcome, calls)
    }

    #[test]
    fn an_interrupted_call_is_made_again_and_fails_in_the_end() {
        let (outcome, calls) = interrupted(3);
        assert_eq!((outcome.unwrap(), calls), (7, 4));
        assert_eq!(interrupted(u32::MAX).0.unwrap_err().raw_os_error(), Some(libc::EINTR));
        let mut calls = 0;
        let other: io::Result<()> = repeated(|| {
            calls += 1;
            Err(io::Error::from_raw_os_error(libc::EIO))
        });
        assert_eq!((other.unwrap_err().raw_os_error(), calls), (Some(libc::EIO), 1));
    }
}
