//! A Gluster volume as a [`FileSystem`], through libgfapi: every method is one call of the library.

use std::ffi::CStr;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gfapi::{Address, Transport};

use super::fs::{EntryKind, FileSystem, Handle, Space, Stat};
use super::target::Volume;
use crate::{Error, ErrorKind};

/// The longest time for connecting: a volume of many bricks that is under load needs seconds.
pub(crate) const CONNECT: Duration = Duration::from_secs(20);

/// Connects to the volume.
///
/// # Errors
/// libgfapi is not installed, the server does not answer, or it does not have the volume: within 20 seconds.
pub fn open(volume: &Volume) -> Result<Box<dyn FileSystem>, Error> {
    let address = address(volume)?;
    let connected = gfapi::Volume::connect(&address, CONNECT, &AtomicBool::new(false)).map_err(refused)?;
    Ok(Box::new(Gluster(connected)))
}

fn address(volume: &Volume) -> Result<Address, Error> {
    let transport: Transport = volume.transport.parse().map_err(refused)?;
    let log_level = u8::try_from(volume.log_level.clamp(0, 9)).unwrap_or(0);
    let (port, log_file) = (volume.port, volume.log_file.clone());
    Ok(Address { port, transport, log_level, log_file, ..Address::new(&volume.host, &volume.volume) })
}

/// The error for a failure to connect, whose text is one line already.
pub(crate) fn refused(error: gfapi::Error) -> Error {
    let kind = if matches!(error, gfapi::Error::Stopped { .. }) { ErrorKind::System } else { ErrorKind::Usage };
    Error { kind, what: error.to_string(), place: String::new(), hint: String::new(), source: None }
}

struct Gluster(gfapi::Volume);

impl FileSystem for Gluster {
    fn name(&self) -> &'static str {
        "gfapi"
    }

    fn open(&self, path: &CStr, flags: i32, mode: u32) -> io::Result<Box<dyn Handle>> {
        Ok(Box::new(File(self.0.open(path, flags, mode)?)))
    }

    fn unlink(&self, path: &CStr) -> io::Result<()> {
        self.0.unlink(path)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn link(&self, existing: &CStr, new: &CStr) -> io::Result<()> {
        self.0.link(existing, new)
    }

    fn symlink(&self, content: &CStr, new: &CStr) -> io::Result<()> {
        self.0.symlink(content, new)
    }

    fn readlink(&self, path: &CStr, content: &mut [u8]) -> io::Result<usize> {
        self.0.readlink(path, content)
    }

    fn stat(&self, path: &CStr) -> io::Result<Stat> {
        self.0.stat(path).map(|found| stat(&found))
    }

    fn lstat(&self, path: &CStr) -> io::Result<Stat> {
        self.0.lstat(path).map(|found| stat(&found))
    }

    fn chmod(&self, path: &CStr, mode: u32) -> io::Result<()> {
        self.0.chmod(path, mode)
    }

    fn truncate(&self, path: &CStr, len: u64) -> io::Result<()> {
        // Only release 3.7.15 and later have a glfs_truncate that sets the length of a file by its path. The calls
        // that it stands for work everywhere, and report errors in between.
        let file = self.0.open(path, libc::O_WRONLY, 0)?;
        file.set_len(len)?;
        file.close()
    }

    fn mkdir(&self, path: &CStr, mode: u32) -> io::Result<()> {
        self.0.mkdir(path, mode)
    }

    fn rmdir(&self, path: &CStr) -> io::Result<()> {
        self.0.rmdir(path)
    }

    fn readdir(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, EntryKind)) -> io::Result<()> {
        self.0.read_directory(path, |name, d_type| {
            if !is_dots(name) {
                entry(name, EntryKind::of_entry(d_type));
            }
        })
    }

    fn readdir_stat(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, &Stat)) -> io::Result<()> {
        self.0.read_directory_plus(path, |name, found| {
            if !is_dots(name) {
                entry(name, &stat(found));
            }
        })
    }

    fn getxattr(&self, path: &CStr, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
        self.0.getxattr(path, name, value)
    }

    fn setxattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
        self.0.setxattr(path, name, value)
    }

    fn removexattr(&self, path: &CStr, name: &CStr) -> io::Result<()> {
        self.0.removexattr(path, name)
    }

    fn space(&self, path: &CStr) -> io::Result<Space> {
        let room = self.0.room(path)?;
        let available_files = room.available_files.unwrap_or(u64::MAX);
        Ok(Space { available_bytes: room.available_bytes, available_files })
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
fn stat(found: &libc::stat64) -> Stat {
    Stat::new(found.st_mode, found.st_size as u64, found.st_nlink as u64, found.st_ino)
}

struct File(gfapi::File);

impl Handle for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    fn pread(&mut self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }

    fn pwrite(&mut self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(from, offset)
    }

    fn fsync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn fdatasync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn ftruncate(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn fstat(&mut self) -> io::Result<Stat> {
        self.0.stat().map(|found| stat(&found))
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.0.close()
    }
}
