//! The reasons why a file or a request stays on the lane that the program opened. They are recorded, counted and shown.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use lanes::{advice, environment};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:expr,)*) => {
        /// The reason why a file, or one request of it, stays on the lane that the program opened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// The reason in the words that are shown.
            pub const fn text(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// Each lane would have a separate page cache.
    Buffered = advice::BUFFERED,
    /// Only one lane can tell where the file ends.
    Append = advice::APPEND,
    /// Files opened with O_SYNC and the like are spread; files opened in any but a plain way are not.
    Way = "opened in a way that is not spread (O_PATH, O_TMPFILE)",
    /// The write may grow the file.
    Extends = advice::EXTENDS,
    /// The position belongs to every process that has the open file (docs/decisions/position-stays.md).
    Position = advice::POSITION,
    /// The kernel moves the data, on the opened lane.
    Copied = advice::COPIED,
    /// The read may lie beyond the end of the file.
    BeyondSize = "a read beyond the known size",
    /// The page cache of the opened lane would keep the old data.
    Cached = advice::CACHED,
    /// The page cache of the opened lane may hold newer data.
    Writer = "somebody in the program writes it through the page cache",
    /// Page caches of other lanes may hold the data from before the write.
    Written = "a buffered read of a file that the program has opened for writing",
    /// Nothing of the file is spread any more, until the program has closed the file altogether.
    Held = advice::HELD,
    /// Clients of Gluster keep small files whole, and answer O_DIRECT reads from there (quick-read).
    Small = "on FUSE and of 1 MiB at most: a client may have cached all of it",
    /// Nothing of the file is spread any more, until the program has closed the file altogether.
    Locked = advice::LOCKED,
    /// Nothing of the file is spread any more, until the program has closed the file altogether.
    Mapped = advice::MAPPED,
    /// The kernel tells the events of one client. Nothing of the file is spread any more, until the program has closed
    /// the file altogether.
    Watched = "the program watches the file by inotify, which tells nothing of requests on other lanes",
    /// Nothing of the file is spread any more, until the program has closed the file altogether. If stdio has opened
    /// the file only for reading, this holds for the stream alone.
    Stdio = advice::STDIO,
    /// Nothing of the file is spread any more, until the program has closed the file altogether.
    Flags = "its flags were changed by fcntl",
    /// The proof of [`crate::state::proof`] failed: the number does not mean the tracked file.
    Stale = "a descriptor number that was closed and opened again by calls that cannot be seen",
    /// The library found the descriptor when the file was to be spread, or when the program received it.
    Unseen = "a descriptor that the program was not seen to open (inherited, received, of libc or of io_uring)",
    /// The pool has one lane, or none of its other lanes works.
    Alone = advice::ALONE,
    /// Opening the file on the other lanes failed.
    NotOpened = advice::NOT_OPENED,
    /// The comparison of the file on a lane with the program's file did not prove that they are one.
    NotSame = advice::NOT_SAME,
    /// The library keeps one table of descriptors for the process. Nothing of the process is spread from then on.
    Divided = "threads with separate tables of descriptors (unshare)",
    /// The library opens the file on that lane once the lane answers.
    Silent = "a lane is out of service, or has not answered since the file was opened",
    /// From then on the library makes no system calls of its own in the process.
    Filtered = "the program installs a filter of system calls (seccomp), which knows its own calls only",
    /// The limit on open files is reached (EMFILE, ENFILE).
    Limit = "no file descriptors left for the lanes",
    /// The library's tables are static, and full.
    Tables = "more files at a time than the tables hold",
    /// A successor of this process could not wait for writes that a kill leaves in flight ([`crate::state::writes`]).
    Unrecorded = "writes in flight cannot be recorded for other processes: no memory to share, or too many files",
    /// The request has another operation: POLL, for example.
    Opcode = "a libaio request that is neither read nor write",
    /// The program might see a changed iocb, with a descriptor that is not its own.
    Ring = "a completion ring that is, or may be, read without io_getevents while other threads submit",
    /// The table of requests is full, or as many errands to lanes are under way as there may be.
    Busy = "more requests in flight than the tables hold",
    /// The request has another operation, flags, a priority, a personality, or uses the position of the file.
    Uring = "an io_uring request that is not a plain read or write at an offset",
    /// The kernel decides when such a request begins, by requests beside it.
    RingLinked = "an io_uring request that is linked to others, or drained",
    /// The kernel chooses the buffer.
    RingBuffers = "an io_uring request with provided buffers",
    /// The completion of the request cannot be told from another one.
    RingTwins = "an io_uring request whose user_data another request in flight has",
    /// A sync does not cover requests that are submitted beside it.
    RingSyncs = "an io_uring write that is submitted beside a sync",
    /// Without `--raw` the table may have changed where no hook sees it.
    RingFixed = "an io_uring request on a registered file, without --raw or registered out of sight",
    /// Another thread could see the request while it names another file.
    RingThreads = "an io_uring request on a registered file, in a program of several threads",
    /// The kernel's thread takes requests as soon as they are written.
    RingPolled = "an io_uring with SQPOLL: the kernel takes its requests before the library can see them",
    /// Nobody sees the completion before the program asks for it.
    RingIopoll = "an io_uring with IOPOLL: its completions come when the program asks for them",
    /// A thread that waits for lanes cannot ask for the completions of another thread's ring.
    RingDeferred = "an io_uring with DEFER_TASKRUN, in a program of several threads",
    /// SQE128, CQE32 and mixed sizes, NO_MMAP, and what later kernels may add.
    RingKind = "an io_uring with entries of other sizes, memory of the program, or unknown flags",
    /// Completions were lost to the library; it does not know which requests have ended.
    RingOverflow = "an io_uring whose completion queue has overflowed",
    /// A request that succeeds has no completion.
    RingSilent = "an io_uring with requests that have no completion (CQE_SKIP_SUCCESS), or messages of other rings",
    /// Somebody submits requests, or has submitted requests, past the library.
    RingDrivers = advice::RING_DRIVERS,
    /// The library has to see a ring from its first request on.
    RingUnknown = "an io_uring that the library has not seen being made, or by a registered or duplicated number",
    /// Only the opened lane can tell how such flags act on the file (RWF_APPEND, for example).
    Flagged = "request flags that only the opened lane understands",
    /// The kernel refuses the request.
    Forbidden = "a request that the mode of the descriptor forbids",
    /// The client of such a mount gives a write up that its server may carry out later, over newer data.
    Soft = advice::SOFT,
    /// `--raw` has caught a call. The call may be spread: this reason exists for the statistics.
    Caught = environment::CAUGHT,
    /// All lanes of the pool are too busy for another request: this reason exists for the statistics.
    Window = environment::WINDOW,
    /// A dry run: the request would have left. This reason exists for the statistics.
    WouldLeave = environment::WOULD_LEAVE,
}

/// Sets all counts to zero in a forked child: it has met no reason yet.
pub fn forget_all() {
    COUNTS.iter().for_each(|count| count.store(0, Relaxed));
}

static COUNTS: [AtomicU64; Reason::ALL.len()] = [const { AtomicU64::new(0) }; Reason::ALL.len()];

impl Reason {
    /// Counts the reason once more. True if it is the first time in this process.
    #[inline]
    pub fn count(self) -> bool {
        let first = COUNTS.get(self as usize).is_some_and(|count| count.fetch_add(1, Relaxed) == 0);
        crate::state::stats::count_reason(self);
        first
    }

    /// Counts the reason once more, with one locked instruction: for requests that the page cache answers.
    #[inline]
    pub fn count_lightly(self) {
        if !crate::state::stats::count_reason(self) {
            self.count();
        }
    }

    /// The number of times that this process has counted the reason.
    pub fn counted(self) -> u64 {
        COUNTS.get(self as usize).map_or(0, |count| count.load(Relaxed))
    }

    /// The reason with the number `mark` - 1; None for 0, which marks that there is no reason.
    pub fn of_mark(mark: u8) -> Option<Reason> {
        Reason::ALL.get(usize::from(mark).checked_sub(1)?).copied()
    }

    /// The mark of the reason for an atomic: the reason's number plus one.
    pub fn mark(self) -> u8 {
        self as u8 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_advice_is_on_a_reason_that_a_board_holds_whole() {
        for (reason, _) in advice::ALL {
            assert!(Reason::ALL.iter().any(|known| known.text() == *reason), "{reason}");
        }
        assert!(Reason::ALL.len() <= 64 && Reason::ALL.iter().all(|known| known.text().len() <= 104));
    }
}
