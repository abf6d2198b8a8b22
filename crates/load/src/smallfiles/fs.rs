//! What a file system must be able to do to be measured: the calls of POSIX, behind one object-safe trait, so that the
//! very same workload runs on a local file system, through FUSE and through libgfapi.
//!
//! Every method is one call of the file system below and nothing else: latencies are measured around it. A method
//! that the file system does not offer fails with EOPNOTSUPP. Paths are NUL-terminated, as both system calls and
//! libgfapi want them; names are composed into buffers that are reused, so that no call here needs an allocation for
//! its path. Errors carry the error number of the call (`io::Error::raw_os_error` is Some).

use std::ffi::CStr;
use std::io;

/// A mounted file system or a connection to a volume, shared by all threads of one process.
///
/// It is opened anew in every process (connections do not survive fork(2)) and let go by dropping it, after all of
/// its handles.
pub trait FileSystem: Send + Sync {
    /// The name of the way of access as results show it: `posix`, `gfapi`.
    fn name(&self) -> &'static str;

    /// An open file. `flags` are those of open(2) (O_RDONLY, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECT, O_SYNC,
    /// ...); `mode` is used with O_CREAT only. Close-on-exec is set anyway.
    ///
    /// # Errors
    /// As open(2).
    fn open(&self, path: &CStr, flags: i32, mode: u32) -> io::Result<Box<dyn Handle>>;

    /// Removes a file. unlink(2).
    ///
    /// # Errors
    /// As unlink(2).
    fn unlink(&self, path: &CStr) -> io::Result<()>;

    /// Renames, replacing what has the new name. rename(2).
    ///
    /// # Errors
    /// As rename(2).
    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()>;

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

    /// How many bytes of `content` a symbolic link's target fills. readlink(2): no NUL, cut off silently.
    ///
    /// # Errors
    /// As readlink(2).
    fn readlink(&self, path: &CStr, content: &mut [u8]) -> io::Result<usize>;

    /// The attributes of what a path leads to, links followed. stat(2).
    ///
    /// # Errors
    /// As stat(2).
    fn stat(&self, path: &CStr) -> io::Result<Stat>;

    /// The attributes of what has this name, a link itself. lstat(2).
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

    /// Tells `entry` the names and kinds in a directory, without `.` and `..`, in the file system's order. Opening,
    /// reading to the end and closing. opendir(3), readdir(3), closedir(3).
    ///
    /// # Errors
    /// As those.
    fn readdir(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, Kind)) -> io::Result<()>;

    /// As [`FileSystem::readdir`], with attributes: in one call where the protocol has one (glfs_xreaddirplus_r), else
    /// by a stat of every name.
    ///
    /// # Errors
    /// As those.
    fn readdir_stat(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, &Stat)) -> io::Result<()>;

    /// How many bytes of `value` an extended attribute fills. getxattr(2).
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

    /// Room that is left. statvfs(3).
    ///
    /// # Errors
    /// As statvfs(3).
    fn space(&self, path: &CStr) -> io::Result<Space>;
}

/// An open file, used by one thread at a time. Short reads and writes are results, not errors; a call that was
/// interrupted (EINTR) is made again by the implementation.
pub trait Handle: Send {
    /// Bytes read at the file position, which advances; 0 at the end. read(2).
    ///
    /// # Errors
    /// As read(2).
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Bytes written at the file position, which advances. write(2).
    ///
    /// # Errors
    /// As write(2).
    fn write(&mut self, from: &[u8]) -> io::Result<usize>;

    /// Bytes read at `offset`. pread(2).
    ///
    /// # Errors
    /// As pread(2).
    fn pread(&mut self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Bytes written at `offset`. pwrite(2).
    ///
    /// # Errors
    /// As pwrite(2).
    fn pwrite(&mut self, from: &[u8], offset: u64) -> io::Result<usize>;

    /// Has all written data and attributes on stable storage. fsync(2).
    ///
    /// # Errors
    /// As fsync(2).
    fn fsync(&mut self) -> io::Result<()>;

    /// Has all written data on stable storage. fdatasync(2).
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

    /// Closes the file and says what close(2) said: on network file systems, errors of earlier writes. The handle is
    /// gone in any case. Dropping a handle closes it too, without a word.
    ///
    /// # Errors
    /// As close(2).
    fn close(self: Box<Self>) -> io::Result<()>;
}

/// Attributes of a file: the part of stat(2) that workloads check and report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Length in bytes.
    pub len: u64,
    /// Names it has.
    pub links: u64,
    /// Its number.
    pub inode: u64,
}

impl Stat {
    /// From the fields of a struct stat: `mode` is st_mode with its type bits.
    pub fn new(mode: u32, len: u64, links: u64, inode: u64) -> Stat {
        Stat { kind: Kind::of_mode(mode), mode: mode & 0o7777, len, links, inode }
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    /// From the type bits of st_mode.
    pub fn of_mode(mode: u32) -> Kind {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Directory,
            libc::S_IFLNK => Kind::Symlink,
            _ => Kind::Other,
        }
    }

    /// From d_type of a directory entry.
    pub fn of_entry(d_type: u8) -> Kind {
        match d_type {
            libc::DT_REG => Kind::File,
            libc::DT_DIR => Kind::Directory,
            libc::DT_LNK => Kind::Symlink,
            libc::DT_UNKNOWN => Kind::Unknown,
            _ => Kind::Other,
        }
    }
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that an unprivileged process may still use.
    pub available_bytes: u64,
    /// Files that may still be made; u64::MAX where there is no limit (or none that is told).
    pub available_files: u64,
}
