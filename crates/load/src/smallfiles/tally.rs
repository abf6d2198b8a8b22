//! The counts of one thread: calls with their latencies, records, bytes, failures.

use std::io;

use measure::Histogram;
use measure::schema::{CallErrors, CallResult, Disturbances, Work};
use sys::clock::Clock;

use super::failure::Failure;

/// The calls of a file system, as results name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "said by their names")]
pub enum Call {
    Open,
    Create,
    Mknod,
    Read,
    Write,
    Fsync,
    Close,
    Unlink,
    Rename,
    Link,
    Symlink,
    Readlink,
    Stat,
    Fstat,
    Chmod,
    Truncate,
    Mkdir,
    Rmdir,
    Readdir,
    ReaddirStat,
    Setxattr,
    Getxattr,
}

const CALLS: usize = Call::Getxattr as usize + 1;

impl Call {
    /// The call's name in results. Opens that make a file are `create`.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; CALLS] = [
            "open",
            "create",
            "mknod",
            "read",
            "write",
            "fsync",
            "close",
            "unlink",
            "rename",
            "link",
            "symlink",
            "readlink",
            "stat",
            "fstat",
            "chmod",
            "truncate",
            "mkdir",
            "rmdir",
            "readdir",
            "readdir+stat",
            "setxattr",
            "getxattr",
        ];
        NAMES[self as usize]
    }
}

/// The counts of one phase.
pub(super) struct Tally {
    clock: Clock,
    /// True if latencies are recorded.
    pub timed: bool,
    calls: [Histogram; CALLS],
    /// Nanoseconds spent in calls of the present operation.
    pub operation_ns: u64,
    pub work: Work,
    /// Number of files that were not there to be removed, where that does not count as a failure.
    pub missing: u64,
    pub blocks: u64,
    /// Number of directory entries that were looked for and found.
    pub entries: u64,
    pub mismatches: u64,
    pub disturbances: Disturbances,
    pub errors: Vec<CallErrors>,
}

impl Tally {
    pub fn new(clock: Clock, timed: bool) -> Tally {
        Tally {
            clock,
            timed,
            calls: std::array::from_fn(|_| Histogram::new()),
            operation_ns: 0,
            work: Work::default(),
            missing: 0,
            blocks: 0,
            entries: 0,
            mismatches: 0,
            disturbances: Disturbances::default(),
            errors: Vec::new(),
        }
    }

    /// Makes a call and records how long it took.
    #[inline]
    pub fn time<T>(&mut self, call: Call, make: impl FnOnce() -> io::Result<T>) -> Result<T, Failure> {
        let outcome = if self.timed {
            let before = self.clock.now_ns();
            let outcome = make();
            let took = self.clock.now_ns().saturating_sub(before);
            self.calls[call as usize].record(took);
            self.operation_ns += took;
            outcome
        } else {
            make()
        };
        outcome.map_err(|error| Failure { call, error, path: String::new() })
    }

    /// Counts a read or write of `bytes`, which leaves `rest` bytes of its record for the next one.
    pub fn moved(&mut self, bytes: usize, rest: usize) {
        self.work.records += 1;
        self.work.bytes += bytes as u64;
        self.disturbances.short_transfers += u64::from(rest > 0);
    }

    /// Counts a failed operation under its call and error number.
    pub fn fail(&mut self, call: Call, errno: i32, message: String) {
        self.work.failed += 1;
        match self.errors.iter_mut().find(|known| known.call == call.name() && known.errno == errno) {
            Some(known) => known.count += 1,
            None => self.errors.push(CallErrors { call: call.name().into(), errno, count: 1, first: message }),
        }
    }

    /// Adds the missing files to the errors, without counting failures.
    pub fn note_missing(&mut self) {
        let first = "some files were not there to be removed".to_string();
        let call = Call::Unlink.name().to_string();
        self.errors.push(CallErrors { call, errno: libc::ENOENT, count: self.missing, first });
    }

    /// The calls that were made, with their latencies. Their histograms are empty afterwards.
    pub fn take_calls(&mut self) -> Vec<CallResult> {
        const ORDER: [Call; CALLS] = [
            Call::Open,
            Call::Create,
            Call::Mknod,
            Call::Read,
            Call::Write,
            Call::Fsync,
            Call::Close,
            Call::Unlink,
            Call::Rename,
            Call::Link,
            Call::Symlink,
            Call::Readlink,
            Call::Stat,
            Call::Fstat,
            Call::Chmod,
            Call::Truncate,
            Call::Mkdir,
            Call::Rmdir,
            Call::Readdir,
            Call::ReaddirStat,
            Call::Setxattr,
            Call::Getxattr,
        ];
        let made = ORDER.into_iter().filter(|&call| !self.calls[call as usize].is_empty()).collect::<Vec<_>>();
        made.into_iter()
            .map(|call| CallResult { call: call.name().into(), lat_ns: std::mem::take(&mut self.calls[call as usize]) })
            .collect()
    }
}
