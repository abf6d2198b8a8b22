//! The calls that a file system must offer to be measured: the calls of POSIX, behind one object-safe trait, so that
//! the very same workload runs on a local file system, through FUSE and through libgfapi.
//!
//! Every method is one call of the file system below and nothing else: latencies are measured around it. A method
//! that the file system does not offer fails with EOPNOTSUPP. Paths are NUL-terminated, as both system calls and
//! libgfapi want them; names are composed into buffers that are reused, so that no call here needs an allocation for
//! its path. Errors carry the error number of the call (`io::Error::raw_os_error` is Some).

use std::ffi::CStr;
use std::io;

/// A mounted file system or a connection to a volume, shared by all threads of one process.
///
/// Every process opens it again (connections do not survive fork(2)) and lets it go by dropping it, after all of its
/// handles.
pub trait FileSystem: Send + Sync {
    /// The name of the way of access, as results show it: `posix`, `gfapi`.
    fn name(&self) -> &'static str;

    /// Opens a file. `flags` are those of open(2) (O_RDONLY, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECT, O_SYNC,
    /// ...); `mode` is used with O_CREAT only. The implementation sets close-on-exec in any case.
    ///
    /// # Errors
    /// As open(2).
    fn open(&self, path: &CStr, flags: i32, mode: u32) -> io::Result<Box<dyn Handle>>;

    /// Makes an empty file without opening it. mknod(2) with S_IFREG.
    ///
    /// # Errors
    /// As mknod(2).
    fn mknod(&self, path: &CStr, mode: u32) -> io::Result<()> {
        let _ = (path, mode);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Removes a file. unlink(2).
    ///
    /// # Errors
    /// As unlink(2).
    fn unlink(&self, path: &CStr) -> io::Result<()>;

    /// Renames an object, replacing one that has the new name. rename(2).
    ///
    /// # Errors
    /// As rename(2).
    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()>;

    /// Renames an object, unless there is one with the new name. renameat2(2) with RENAME_NOREPLACE.
    ///
    /// # Errors
    /// As renameat2(2): EEXIST if the new name is taken; EINVAL or EOPNOTSUPP where the file system has no such call.
    fn rename_new(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        let _ = (from, to);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Gives a file a second name. link(2).
    ///
    /// # Errors
    /// As link(2).
    fn link(&self, existing: &CStr, new: &CStr) -> io::Result<()>;

    /// Makes a symbolic link `new` that holds `content`. symlink(2).
    ///
    /// # Errors
    /// As symlink(2).
    fn symlink(&self, content: &CStr, new: &CStr) -> io::Result<()>;

    /// Reads a symbolic link's target into `content` and returns its bytes. readlink(2): it adds no NUL, and cuts a
    /// longer target off silently.
    ///
    /// # Errors
    /// As readlink(2).
    fn readlink(&self, path: &CStr, content: &mut [u8]) -> io::Result<usize>;

    /// The attributes of the object that a path leads to; links are followed. stat(2).
    ///
    /// # Errors
    /// As stat(2).
    fn stat(&self, path: &CStr) -> io::Result<Stat>;

    /// The attributes of the object with this name; a link is not followed. lstat(2).
    ///
    /// # Errors
    /// As lstat(2).
    fn lstat(&self, path: &CStr) -> io::Result<Stat>;

    /// Sets the permission bits. chmod(2).
    ///
    /// # Errors
    /// As chmod(2).
    fn chmod(&self, path: &CStr, mode: u32) -> io::Result<()>;

    /// Sets a file's length. truncate(2).
    ///
    /// # Errors
    /// As truncate(2).
    fn truncate(&self, path: &CStr, len: u64) -> io::Result<()>;

    /// Makes a directory. mkdir(2).
    ///
    /// # Errors
    /// As mkdir(2).
    fn mkdir(&self, path: &CStr, mode: u32) -> io::Result<()>;

    /// Removes an empty directory. rmdir(2).
    ///
    /// # Errors
    /// As rmdir(2).
    fn rmdir(&self, path: &CStr) -> io::Result<()>;

    /// Calls `entry` with the names and kinds in a directory, without `.` and `..`, in the file system's order. It
    /// opens the directory, reads it to the end and closes it. opendir(3), readdir(3), closedir(3).
    ///
    /// # Errors
    /// As opendir(3), readdir(3) and closedir(3).
    fn readdir(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, EntryKind)) -> io::Result<()>;

    /// As [`FileSystem::readdir`], with attributes: in one call where the protocol has one (glfs_xreaddirplus_r), else
    /// by a stat of every name.
    ///
    /// # Errors
    /// As [`FileSystem::readdir`] and stat(2).
    fn readdir_stat(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, &Stat)) -> io::Result<()>;

    /// Reads an extended attribute into `value` and returns its bytes. getxattr(2).
    ///
    /// # Errors
    /// As getxattr(2): ENODATA where it is not set, ERANGE where `value` is too small.
    fn getxattr(&self, path: &CStr, name: &CStr, value: &mut [u8]) -> io::Result<usize>;

    /// Sets an extended attribute, new or not. setxattr(2) with flags 0.
    ///
    /// # Errors
    /// As setxattr(2): EOPNOTSUPP where the file system has none.
    fn setxattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()>;

    /// Removes an extended attribute. removexattr(2).
    ///
    /// # Errors
    /// As removexattr(2).
    fn removexattr(&self, path: &CStr, name: &CStr) -> io::Result<()>;

    /// The room that is left on the file system. statvfs(3).
    ///
    /// # Errors
    /// As statvfs(3).
    fn space(&self, path: &CStr) -> io::Result<Space>;
}

/// An open file, used by one thread at a time. Short reads and writes are results, not errors; a call that was
/// interrupted (EINTR) is made again by the implementation.
pub trait Handle: Send {
    /// Reads at the file position, which advances, and returns the number of bytes; 0 at the end. read(2).
    ///
    /// # Errors
    /// As read(2).
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Writes at the file position, which advances, and returns the number of bytes. write(2).
    ///
    /// # Errors
    /// As write(2).
    fn write(&mut self, from: &[u8]) -> io::Result<usize>;

    /// Reads at `offset` and returns the number of bytes. pread(2).
    ///
    /// # Errors
    /// As pread(2).
    fn pread(&mut self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at `offset` and returns the number of bytes. pwrite(2).
    ///
    /// # Errors
    /// As pwrite(2).
    fn pwrite(&mut self, from: &[u8], offset: u64) -> io::Result<usize>;

    /// Brings all written data and attributes onto stable storage. fsync(2).
    ///
    /// # Errors
    /// As fsync(2).
    fn fsync(&mut self) -> io::Result<()>;

    /// Brings all written data onto stable storage. fdatasync(2).
    ///
    /// # Errors
    /// As fdatasync(2).
    fn fdatasync(&mut self) -> io::Result<()>;

    /// Sets the file's length. ftruncate(2).
    ///
    /// # Errors
    /// As ftruncate(2).
    fn ftruncate(&mut self, len: u64) -> io::Result<()>;

    /// The file's attributes. fstat(2).
    ///
    /// # Errors
    /// As fstat(2).
    fn fstat(&mut self) -> io::Result<Stat>;

    /// Closes the file and returns the result of close(2): on network file systems, errors of earlier writes. The
    /// handle is closed in any case. Dropping a handle closes it too, but reports no error.
    ///
    /// # Errors
    /// As close(2).
    fn close(self: Box<Self>) -> io::Result<()>;
}

/// Attributes of a file: the part of stat(2) that workloads check and report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The kind of object: file, directory, link or other.
    pub kind: EntryKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Length in bytes.
    pub len: u64,
    /// Number of names (hard links) of the object.
    pub links: u64,
    /// The inode number; two names with one number are one file.
    pub inode: u64,
}

impl Stat {
    /// Attributes from the fields of a struct stat: `mode` is st_mode with its type bits.
    pub fn new(mode: u32, len: u64, links: u64, inode: u64) -> Stat {
        Stat { kind: EntryKind::of_mode(mode), mode: mode & 0o7777, len, links, inode }
    }
}

/// The kind of object that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a socket, a pipe.
    Other,
    /// The directory does not say (DT_UNKNOWN): ask stat.
    Unknown,
}

impl EntryKind {
    /// The kind that the type bits of st_mode give.
    pub fn of_mode(mode: u32) -> EntryKind {
        match mode & libc::S_IFMT {
            libc::S_IFREG => EntryKind::File,
            libc::S_IFDIR => EntryKind::Directory,
            libc::S_IFLNK => EntryKind::Symlink,
            _ => EntryKind::Other,
        }
    }

    /// The kind that d_type of a directory entry gives.
    pub fn of_entry(d_type: u8) -> EntryKind {
        match d_type {
            libc::DT_REG => EntryKind::File,
            libc::DT_DIR => EntryKind::Directory,
            libc::DT_LNK => EntryKind::Symlink,
            libc::DT_UNKNOWN => EntryKind::Unknown,
            _ => EntryKind::Other,
        }
    }
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that an unprivileged process may still use.
    pub available_bytes: u64,
    /// Number of files that may still be made; u64::MAX where the file system has no limit or does not tell it.
    pub available_files: u64,
}
