//! The answer to a user whose program is not spread: a change that would spread its requests, for each common reason.

/// Buffered reads and writes.
pub const BUFFERED: &str = "buffered I/O: opened without O_DIRECT";
/// Requests that use the position of the descriptor.
pub const POSITION: &str = "a request at the file's position (read, write, readv, writev)";
/// Transfers from descriptor to descriptor.
pub const COPIED: &str = "copied inside the kernel (sendfile, copy_file_range, splice, a clone)";
/// Writes behind the end of the file.
pub const EXTENDS: &str = "a write beyond the known size";
/// Appends.
pub const APPEND: &str = "opened with O_APPEND";
/// Files that are open without O_DIRECT, too.
pub const CACHED: &str = "written while it is open without O_DIRECT elsewhere in the program";
/// Files on FUSE that are written.
pub const HELD: &str =
    "written through FUSE, whose client may acknowledge what the server does not have (see strict-o-direct)";
/// Locked files.
pub const LOCKED: &str = "locked: a locked file stays on its own lane";
/// Mapped files.
pub const MAPPED: &str = "mapped into memory";
/// Files of stdio.
pub const STDIO: &str = "handed to stdio";
/// Pools with one lane that works.
pub const ALONE: &str = "no other lane can be used";
/// Files that the other lanes do not have.
pub const NOT_OPENED: &str = "it cannot be opened on the other lanes";
/// Lanes that lead elsewhere.
pub const NOT_SAME: &str = "the other lanes have another file of that name, or nothing proves that it is the same";
/// Writes that a client may give up.
pub const SOFT: &str = "a write on soft mounts (mount option hard makes writes spread)";
/// Rings that are entered by inline calls.
pub const RING_DRIVERS: &str = "an io_uring that was entered where no hook sees it (see --raw)";

/// Each of these reasons, and the change that would spread the requests.
pub const ALL: &[(&str, &str)] = &[
    (BUFFERED, "O_DIRECT (dd iflag=direct, fio --direct=1), or buffered-reads = true for files that nobody writes"),
    (POSITION, "requests that name their offset: pread(2), pwrite(2), libaio, io_uring"),
    (COPIED, "a copy by pread(2) and pwrite(2) with O_DIRECT"),
    (EXTENDS, "a file that has its full size (not only its space) before the program writes it"),
    (APPEND, "writes with an offset, within the size of the file"),
    (CACHED, "O_DIRECT for all descriptors of the file"),
    (HELD, "strict-o-direct = true in the pool file, for a volume with that option"),
    (LOCKED, "a program without locks on the file, where only one process uses it"),
    (MAPPED, "reads and writes in place of mmap(2)"),
    (STDIO, "reads and writes by descriptor, in place of stdio"),
    (ALONE, "lanes that work: `plimsoll lanes` tests them"),
    (NOT_OPENED, "lanes that show the same files: `plimsoll lanes` tests them"),
    (NOT_SAME, "lanes of one volume: `plimsoll lanes` tests them"),
    (SOFT, "the mount option hard"),
    (RING_DRIVERS, "trap --raw"),
];

/// The change that would spread the requests which stay for this reason; None if the reason is rare or nothing helps.
pub fn on(reason: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == reason).map(|(_, change)| *change)
}
