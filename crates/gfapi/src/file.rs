//! An open file and its synchronous calls.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;

use crate::connect::last_error;
use crate::library::{GlfsFd, Sync, Truncate};
use crate::volume::Connection;

/// An open file of a volume. Dropping it closes it.
pub struct File {
    connection: Arc<Connection>,
    fd: *mut GlfsFd,
}

// SAFETY: the descriptor is a pointer that libgfapi does not tie to a thread: glfs.h lets any thread call every
// function.
unsafe impl Send for File {}
// SAFETY: several threads may call functions with one descriptor at the same time: libgfapi locks the state that they
// share.
unsafe impl std::marker::Sync for File {}

fn count(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| last_error())
}

fn check(returned: c_int) -> io::Result<()> {
    if returned >= 0 { Ok(()) } else { Err(last_error()) }
}

/// Offsets beyond what the library can be told.
fn signed(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

impl File {
    pub(crate) fn new(connection: Arc<Connection>, fd: *mut GlfsFd) -> File {
        File { connection, fd }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn fd(&self) -> *mut GlfsFd {
        self.fd
    }

    /// Bytes read at the file position, which advances; 0 at the end.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let (at, len) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: the file is open; at most len bytes of into are written.
        count(unsafe { (self.connection.library.read)(self.fd, at, len, 0) })
    }

    /// Bytes written at the file position, which advances.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&self, from: &[u8]) -> io::Result<usize> {
        let (at, len) = (from.as_ptr().cast(), from.len());
        // SAFETY: the file is open; from is len bytes long.
        count(unsafe { (self.connection.library.write)(self.fd, at, len, 0) })
    }

    /// Bytes read at `offset`, possibly fewer than asked; 0 at the end.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let offset = signed(offset)?;
        // SAFETY: the file is open; the vector describes `into`, which the caller lends exclusively for the call.
        count(unsafe { (self.connection.library.preadv)(self.fd, &vector, 1, offset, 0) })
    }

    /// Bytes written at `offset`, possibly fewer than asked.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        let vector = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        let offset = signed(offset)?;
        // SAFETY: the file is open; the vector describes from, which is only read.
        count(unsafe { (self.connection.library.pwritev)(self.fd, &vector, 1, offset, 0) })
    }

    /// Writes all of `from` at `offset`.
    ///
    /// # Errors
    /// As pwrite(2); EIO where nothing is taken any more.
    pub fn write_all_at(&self, mut from: &[u8], mut offset: u64) -> io::Result<()> {
        while !from.is_empty() {
            let written = self.write_at(from, offset)?;
            if written == 0 {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            from = &from[written..];
            offset += written as u64;
        }
        Ok(())
    }

    /// Waits until the written data and the attributes are on stable storage.
    ///
    /// # Errors
    /// As fsync(2): also those of earlier writes that the client had acknowledged already.
    pub fn sync_all(&self) -> io::Result<()> {
        self.sync(self.connection.library.fsync)
    }

    /// Waits until the written data are on stable storage.
    ///
    /// # Errors
    /// As fdatasync(2).
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync(self.connection.library.fdatasync)
    }

    fn sync(&self, function: Sync) -> io::Result<()> {
        let none = std::ptr::null_mut();
        check(match function {
            // SAFETY: `self` keeps the file open until it is dropped.
            Sync::Old(call) => unsafe { call(self.fd) },
            // SAFETY: the file is open; no attributes are wanted.
            Sync::New(call) => unsafe { call(self.fd, none, none) },
        })
    }

    /// Sets the length of the file, in bytes.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let (none, len) = (std::ptr::null_mut(), signed(len)?);
        check(match self.connection.library.ftruncate {
            // SAFETY: `self` keeps the file open until it is dropped.
            Truncate::Old(call) => unsafe { call(self.fd, len) },
            // SAFETY: the file is open; no attributes are wanted.
            Truncate::New(call) => unsafe { call(self.fd, len, none, none) },
        })
    }

    /// Frees a range, which reads as zeros afterwards; the length stays.
    ///
    /// # Errors
    /// As fallocate(2) with FALLOC_FL_PUNCH_HOLE.
    pub fn discard(&self, offset: u64, len: usize) -> io::Result<()> {
        let offset = signed(offset)?;
        // SAFETY: `self` keeps the file open until it is dropped.
        check(unsafe { (self.connection.library.discard)(self.fd, offset, len) })
    }

    /// The attributes of the file.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn stat(&self) -> io::Result<libc::stat64> {
        // SAFETY: zero is a valid stat.
        let mut stat = unsafe { std::mem::zeroed() };
        // SAFETY: the file is open, and the result is a local variable.
        check(unsafe { (self.connection.library.fstat)(self.fd, &mut stat) }).map(|()| stat)
    }

    /// Closes the file and tells what dropping it would not.
    ///
    /// # Errors
    /// As close(2): those of earlier writes that the client had acknowledged already.
    pub fn close(mut self) -> io::Result<()> {
        let fd = std::mem::replace(&mut self.fd, std::ptr::null_mut());
        // SAFETY: the file is open and is not used again: drop finds no descriptor.
        check(unsafe { (self.connection.library.close)(fd) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.fd.is_null() {
            // SAFETY: the file is open, and this is its last use.
            unsafe { (self.connection.library.close)(self.fd) };
        }
    }
}
