//! Why something stays on the lane that the program opened: recorded, counted, shown.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a file, or one request of it, stays on the lane that the program opened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// In words, as they are shown.
            pub const fn text(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// The page cache of each lane would be another one.
    Buffered = "buffered I/O: opened without O_DIRECT",
    /// Where the end is, only one lane may say.
    Append = "opened with O_APPEND",
    /// O_SYNC writes and the like are fine; what is not a plain way of opening is not.
    Way = "opened in a way that is not spread (O_PATH, O_TMPFILE)",
    /// It grows the file.
    Extends = "a write beyond the known size",
    /// It may lie beyond the end.
    BeyondSize = "a read beyond the known size",
    /// Caches of this lane would keep the old data.
    Cached = "written while it is open without O_DIRECT elsewhere in the program",
    /// There may be newer data in this lane's cache.
    Writer = "somebody in the program writes it through the page cache",
    /// Page caches of other lanes may hold what it was before.
    Written = "a buffered read of a file that the program has opened for writing",
    /// Sticky.
    Held = "written through FUSE, whose client may acknowledge what the server does not have (see strict-o-direct)",
    /// Clients of Gluster keep small files whole, and answer reads by O_DIRECT from there (quick-read).
    Small = "on FUSE and of 1 MiB at most: a client may have cached all of it",
    /// Sticky.
    Locked = "locked: a locked file stays on its own lane",
    /// Sticky.
    Mapped = "mapped into memory",
    /// Sticky.
    Stdio = "handed to stdio",
    /// Sticky.
    Flags = "its flags were changed by fcntl",
    /// The proof of [`crate::proof`] failed.
    Stale = "a descriptor number that was closed and opened again by calls that cannot be seen",
    /// Found when the file was to be spread, or received.
    Unseen = "a descriptor that the program was not seen to open (inherited, received, of libc or of io_uring)",
    /// A pool of one, or nothing else that works.
    Alone = "no other lane can be used",
    /// An error of open on the other lanes.
    NotOpened = "it cannot be opened on the other lanes",
    /// The proof failed.
    NotSame = "the other lanes have another file of that name, or nothing proves that it is the same",
    /// It is opened there when the lane answers.
    Silent = "a lane is out of service, or has not answered since the file was opened",
    /// EMFILE, ENFILE.
    Limit = "no file descriptors left for the lanes",
    /// Static tables are finite.
    Tables = "more files at a time than the tables hold",
    /// POLL and what else there is.
    Opcode = "a libaio request that is neither read nor write",
    /// The program might see a descriptor that is not its own.
    Ring = "a completion ring that is, or may be, read without io_getevents while other threads submit",
    /// More batches at a time than windows.
    Busy = "more requests in flight than the tables hold",
    /// Linked, drained, with fixed files, or not to be told from another one.
    Uring = "an io_uring request that is not a plain read or write of its own",
    /// fio's engine and the like.
    RawUring = "an io_uring that is driven by system calls: nothing of it is seen",
    /// Somebody else's request of the same address.
    Flagged = "request flags that only the opened lane understands",
    /// For statistics of a pool whose lanes are all too busy.
    Window = "every lane's window was full",
}

/// In a forked child nothing has been met yet.
pub fn forget_all() {
    COUNTS.iter().for_each(|count| count.store(0, Relaxed));
}

static COUNTS: [AtomicU64; Reason::ALL.len()] = [const { AtomicU64::new(0) }; Reason::ALL.len()];

impl Reason {
    /// Counts it; true if it was the first time in this process.
    #[inline]
    pub fn count(self) -> bool {
        let first = COUNTS.get(self as usize).is_some_and(|count| count.fetch_add(1, Relaxed) == 0);
        crate::stats::count_reason(self);
        first
    }

    /// How often, so far.
    pub fn counted(self) -> u64 {
        COUNTS.get(self as usize).map_or(0, |count| count.load(Relaxed))
    }

    /// Of its number plus one; 0 is none.
    pub fn of_mark(mark: u8) -> Option<Reason> {
        Reason::ALL.get(usize::from(mark).checked_sub(1)?).copied()
    }

    /// Its number plus one.
    pub fn mark(self) -> u8 {
        self as u8 + 1
    }
}
