//! A connection to a volume, and the operations by path.

use std::ffi::{CStr, c_int};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::connect::{Handle, connect, last_error};
use crate::file::File;
use crate::library::{CREATE, Glfs, GlfsFd, Library, library};
use crate::{Address, Error};

/// Kept for the next user in this process by the last of its [`Volume`] and [`File`]s.
///
/// glfs_fini takes up to ten seconds (it waits for a separate timer) and would be the larger part of a short run:
/// a connection ends with its process, which servers take as well.
pub(crate) struct Connection {
    pub library: &'static Library,
    handle: Handle,
    address: Address,
}

/// A connection that nobody uses.
struct Idle {
    /// The id of the process that made the connection: in a forked child the connection is dead.
    process: u32,
    address: Address,
    handle: Handle,
}

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

impl Connection {
    fn kept(address: &Address) -> Option<Handle> {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        let index = idle.iter().position(|kept| kept.process == process && kept.address == *address)?;
        Some(idle.swap_remove(index).handle)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (process, address) = (std::process::id(), self.address.clone());
        let idle = Idle { process, address, handle: Handle(self.handle.0) };
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
    }
}

/// A connection to a volume, for all threads of the process that made it. Paths are those of the volume, from its
/// root; errors are error numbers ([`io::Error::raw_os_error`] is Some).
#[derive(Clone)]
pub struct Volume {
    connection: Arc<Connection>,
}

/// The free space of a volume, in bytes and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that an unprivileged process may still use.
    pub available_bytes: u64,
    /// Files that may still be made; None where there is no such limit.
    pub available_files: Option<u64>,
}

/// Ok if the call returned 0 (or more), the error number otherwise.
fn check(returned: c_int) -> io::Result<()> {
    if returned >= 0 { Ok(()) } else { Err(last_error()) }
}

/// Bytes, or the error number.
fn count(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| last_error())
}

impl Volume {
    /// A separate connection, made within `timeout` or not at all; setting `stop` ends the attempt earlier.
    ///
    /// # Errors
    /// Everything that [`Error`] knows, each in one line. After [`Error::TimedOut`] and [`Error::Stopped`] a thread
    /// of the library may be left behind: the process should end soon.
    pub fn connect(address: &Address, timeout: Duration, stop: &AtomicBool) -> Result<Volume, Error> {
        let library = library()?;
        let handle = match Connection::kept(address) {
            Some(handle) => handle,
            None => connect(library, address, timeout, stop)?,
        };
        Ok(Volume { connection: Arc::new(Connection { library, handle, address: address.clone() }) })
    }

    fn library(&self) -> &'static Library {
        self.connection.library
    }

    fn fs(&self) -> *mut Glfs {
        self.connection.handle.0
    }

    /// An open file; `flags` and `mode` as in open(2).
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: &CStr, flags: c_int, mode: u32) -> io::Result<File> {
        let fd = if flags & CREATE != 0 {
            // SAFETY: `self` keeps the connection alive, and the CStr ends with a NUL.
            unsafe { (self.library().creat)(self.fs(), path.as_ptr(), flags, mode) }
        } else {
            // SAFETY: `self` keeps the connection alive, and the CStr ends with a NUL.
            unsafe { (self.library().open)(self.fs(), path.as_ptr(), flags) }
        };
        if fd.is_null() { Err(last_error()) } else { Ok(File::new(Arc::clone(&self.connection), fd)) }
    }

    /// The attributes of the file at the path.
    ///
    /// # Errors
    /// As stat(2).
    pub fn stat(&self, path: &CStr) -> io::Result<libc::stat64> {
        // SAFETY: zero is a valid stat.
        let mut stat = unsafe { std::mem::zeroed() };
        // SAFETY: the connection is alive, the path NUL-terminated, the result a local variable.
        check(unsafe { (self.library().stat)(self.fs(), path.as_ptr(), &mut stat) }).map(|()| stat)
    }

    /// The attributes of the file of that name; of a symbolic link, those of the link itself.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn lstat(&self, path: &CStr) -> io::Result<libc::stat64> {
        // SAFETY: zero is a valid stat.
        let mut stat = unsafe { std::mem::zeroed() };
        // SAFETY: the connection is alive, the path NUL-terminated, the result a local variable.
        check(unsafe { (self.library().lstat)(self.fs(), path.as_ptr(), &mut stat) }).map(|()| stat)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn unlink(&self, path: &CStr) -> io::Result<()> {
        // SAFETY: `self` keeps the connection alive, and the CStr ends with a NUL.
        check(unsafe { (self.library().unlink)(self.fs(), path.as_ptr()) })
    }

    /// Gives a file another name, and replaces a file that has this name.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        // SAFETY: `self` keeps the connection alive, and each CStr ends with a NUL.
        check(unsafe { (self.library().rename)(self.fs(), from.as_ptr(), to.as_ptr()) })
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, existing: &CStr, new: &CStr) -> io::Result<()> {
        // SAFETY: `self` keeps the connection alive, and each CStr ends with a NUL.
        check(unsafe { (self.library().link)(self.fs(), existing.as_ptr(), new.as_ptr()) })
    }

    /// Makes a symbolic link `new` that holds `content`.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, content: &CStr, new: &CStr) -> io::Result<()> {
        // SAFETY: `self` keeps the connection alive, and each CStr ends with a NUL.
        check(unsafe { (self.library().symlink)(self.fs(), content.as_ptr(), new.as_ptr()) })
    }

    /// Reads the target of a symbolic link into `content`, and returns its length in bytes.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn readlink(&self, path: &CStr, content: &mut [u8]) -> io::Result<usize> {
        let (at, len) = (content.as_mut_ptr().cast(), content.len());
        // SAFETY: the connection is alive, the path NUL-terminated; at most len bytes of content are written.
        count(unsafe { (self.library().readlink)(self.fs(), path.as_ptr(), at, len) } as isize)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn chmod(&self, path: &CStr, mode: u32) -> io::Result<()> {
        // SAFETY: `self` keeps the connection alive, and the CStr ends with a NUL.
        check(unsafe { (self.library().chmod)(self.fs(), path.as_ptr(), mode) })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, path: &CStr, mode: u32) -> io::Result<()> {
        // SAFETY: `self` keeps the connection alive, and the CStr ends with a NUL.
        check(unsafe { (self.library().mkdir)(self.fs(), path.as_ptr(), mode) })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, path: &CStr) -> io::Result<()> {
        // SAFETY: `self` keeps the connection alive, and the CStr ends with a NUL.
        check(unsafe { (self.library().rmdir)(self.fs(), path.as_ptr()) })
    }

    /// Tells `entry` the names in a directory with their d_type, `.` and `..` included, in the volume's order.
    ///
    /// # Errors
    /// As opendir(3) and readdir(3).
    pub fn read_directory(&self, path: &CStr, mut entry: impl FnMut(&CStr, u8)) -> io::Result<()> {
        let directory = Directory::open(self, path)?;
        // SAFETY: zero is a valid dirent.
        let mut room: libc::dirent64 = unsafe { std::mem::zeroed() };
        loop {
            let mut found = std::ptr::null_mut();
            // SAFETY: the directory is open; room and found are local variables, and large enough for any entry.
            check(unsafe { (self.library().readdir_r)(directory.fd, &mut room, &mut found) })?;
            if found.is_null() {
                return Ok(());
            }
            // SAFETY: readdir_r filled the entry in, which lives in room.
            let found = unsafe { &*found };
            // SAFETY: the name of the entry is NUL-terminated.
            entry(unsafe { CStr::from_ptr(found.d_name.as_ptr()) }, found.d_type);
        }
    }

    /// Tells `entry` the names in a directory with their attributes, which come with the names in the same replies.
    ///
    /// # Errors
    /// As opendir(3) and readdir(3).
    pub fn read_directory_plus(&self, path: &CStr, mut entry: impl FnMut(&CStr, &libc::stat64)) -> io::Result<()> {
        let directory = Directory::open(self, path)?;
        // SAFETY: zero is a valid dirent.
        let mut room: libc::dirent64 = unsafe { std::mem::zeroed() };
        // SAFETY: zero is a valid stat.
        let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
        loop {
            let mut found = std::ptr::null_mut();
            // SAFETY: the directory is open; stat, room and found are local variables, and large enough for any entry.
            check(unsafe { (self.library().readdirplus_r)(directory.fd, &mut stat, &mut room, &mut found) })?;
            if found.is_null() {
                return Ok(());
            }
            // SAFETY: readdirplus_r filled the entry in, which lives in room.
            let found = unsafe { &*found };
            // SAFETY: the name of the entry is NUL-terminated.
            entry(unsafe { CStr::from_ptr(found.d_name.as_ptr()) }, &stat);
        }
    }

    /// Reads an extended attribute into `value`, and returns its length in bytes.
    ///
    /// # Errors
    /// As getxattr(2).
    pub fn getxattr(&self, path: &CStr, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
        let (at, len) = (value.as_mut_ptr().cast(), value.len());
        // SAFETY: the connection is alive, the texts NUL-terminated; at most len bytes of value are written.
        count(unsafe { (self.library().getxattr)(self.fs(), path.as_ptr(), name.as_ptr(), at, len) })
    }

    /// Sets an extended attribute, new or not.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn setxattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
        let (at, len) = (value.as_ptr().cast(), value.len());
        // SAFETY: the connection is alive, the texts NUL-terminated, value len bytes long.
        check(unsafe { (self.library().setxattr)(self.fs(), path.as_ptr(), name.as_ptr(), at, len, 0) })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn removexattr(&self, path: &CStr, name: &CStr) -> io::Result<()> {
        // SAFETY: the connection is alive, the texts NUL-terminated.
        check(unsafe { (self.library().removexattr)(self.fs(), path.as_ptr(), name.as_ptr()) })
    }

    /// Room that is left.
    ///
    /// # Errors
    /// As statvfs(3).
    pub fn room(&self, path: &CStr) -> io::Result<Room> {
        // SAFETY: zero is a valid statvfs.
        let mut found: libc::statvfs64 = unsafe { std::mem::zeroed() };
        // SAFETY: the connection is alive, the path NUL-terminated, the result a local variable.
        check(unsafe { (self.library().statvfs)(self.fs(), path.as_ptr(), &mut found) })?;
        Ok(Room {
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            available_files: (found.f_files != 0).then_some(found.f_favail),
        })
    }
}

/// An open directory.
struct Directory<'a> {
    volume: &'a Volume,
    fd: *mut GlfsFd,
}

impl Directory<'_> {
    fn open<'a>(volume: &'a Volume, path: &CStr) -> io::Result<Directory<'a>> {
        // SAFETY: `self` keeps the connection alive, and the CStr ends with a NUL.
        let fd = unsafe { (volume.library().opendir)(volume.fs(), path.as_ptr()) };
        if fd.is_null() { Err(last_error()) } else { Ok(Directory { volume, fd }) }
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        // SAFETY: this module has opened the directory, and only drop closes it.
        unsafe { (self.volume.library().closedir)(self.fd) };
    }
}
