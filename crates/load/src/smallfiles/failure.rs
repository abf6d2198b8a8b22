//! The failures of operations: a call of the file system that failed, or a wrong result of one that succeeded.

use std::io;

use super::tally::Call;

/// The failure of a call, for which the operation around it fails.
#[derive(Debug)]
pub(super) struct Failure {
    pub call: Call,
    pub error: io::Error,
    /// The path that the call failed on; empty: the last composed path.
    pub path: String,
}

/// A wrong result of a call that succeeded.
#[derive(Debug)]
pub(super) enum Bad {
    Short {
        at: u64,
        of: u64,
    },
    Differs {
        offset: u64,
        what: String,
    },
    Listing {
        what: String,
    },
    Absent,
    /// The operation was broken off, because the run is to stop. It is not a failure.
    Stopped,
    /// The name is not one that this run gave.
    Foreign,
}

impl Failure {
    /// A call that succeeded with a wrong result, on the last composed path.
    pub fn wrong(call: Call, bad: Bad) -> Failure {
        Failure { call, error: io::Error::other(bad), path: String::new() }
    }

    /// True if the operation did not fail: the end of the run broke it off.
    pub fn is_stop(&self) -> bool {
        matches!(self.bad(), Some(Bad::Stopped))
    }

    /// True if the call met an object that is not there.
    pub fn is_absence(&self) -> bool {
        self.error.raw_os_error() == Some(libc::ENOENT)
    }

    fn bad(&self) -> Option<&Bad> {
        self.error.get_ref().and_then(|inner| inner.downcast_ref())
    }

    /// The failure of an operation on `path` as one line, and its error number. `direct`: the files are opened with
    /// O_DIRECT.
    pub fn explain(&self, path: &str, direct: bool) -> (i32, String) {
        if let Some(bad) = self.bad() {
            return bad.explain(path);
        }
        let errno = self.error.raw_os_error().unwrap_or(libc::EIO);
        let hint = match errno {
            libc::EEXIST => "left over from an earlier run? `plimsoll files --op cleanup` removes it",
            libc::ENOENT => {
                "were the files made, by as many threads, with as many files a directory and the same prefix?"
            }
            // Also ext4 says this of a value that its one block for attributes cannot take.
            libc::ENOSPC if self.call == Call::Setxattr => {
                "the attributes do not fit, or the file system is full: try a smaller --xattr-size or --xattr-count"
            }
            libc::E2BIG | libc::ERANGE if self.call == Call::Setxattr => {
                "the value is too large for this file system: use a smaller --xattr-size"
            }
            libc::ENOSPC => "the file system is full, of data or of inodes",
            libc::EDQUOT => "the quota is used up",
            libc::EINVAL if direct => "does this file system support O_DIRECT with this --record?",
            libc::EOPNOTSUPP => "this file system does not support it",
            libc::ENOTEMPTY => "it holds something that this run did not make",
            _ => "",
        };
        let hint = if hint.is_empty() { String::new() } else { format!(" ({hint})") };
        (errno, format!("cannot {} {path}: {}{hint}", self.call.name(), self.error))
    }
}

impl Bad {
    fn explain(&self, path: &str) -> (i32, String) {
        match self {
            Bad::Short { at, of } => (
                libc::ENODATA,
                format!(
                    "{path} ends at byte {at} instead of {of} (was it made with another --size, --seed or --threads?)"
                ),
            ),
            Bad::Stopped => (libc::ECANCELED, format!("{path}: the run was stopped")),
            Bad::Foreign => {
                (libc::EEXIST, format!("{path} is left alone: this run could not make it, so it is not its own"))
            }
            Bad::Absent => (libc::ETIMEDOUT, format!("{path} did not appear within --runtime")),
            Bad::Listing { what } => (
                libc::EILSEQ,
                format!("{path}: {what} (files of another --files, --threads or --files-per-dir, or a wrong listing)"),
            ),
            Bad::Differs { offset, what } => (
                libc::EILSEQ,
                format!(
                    "{path} at byte {offset}: {what} (written with another --seed, --size or --threads, or damaged)"
                ),
            ),
        }
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Short { at, of } => write!(f, "the file ends at byte {at} instead of {of}"),
            Bad::Differs { offset, what } => write!(f, "byte {offset}: {what}"),
            Bad::Listing { what } => f.write_str(what),
            Bad::Absent => f.write_str("the file did not appear"),
            Bad::Stopped => f.write_str("the run was stopped"),
            Bad::Foreign => f.write_str("this run did not make it"),
        }
    }
}

impl std::error::Error for Bad {}
