//! The file systems of this machine, by system calls.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, XattrFlags};
use sys::interrupted::repeated;

use super::fs::{EntryKind, FileSystem, Handle, Space, Stat};

/// The file systems that are mounted on this host. It has no state: nothing is to be opened or closed.
#[derive(Clone, Copy, Debug)]
pub struct Posix;

impl FileSystem for Posix {
    fn name(&self) -> &'static str {
        "posix"
    }

    fn open(&self, path: &CStr, flags: i32, mode: u32) -> io::Result<Box<dyn Handle>> {
        let flags = OFlags::from_bits_retain(flags.cast_unsigned()) | OFlags::CLOEXEC;
        let fd = repeated(|| fs::open(path, flags, Mode::from_raw_mode(mode)))?;
        Ok(Box::new(File(fd)))
    }

    fn mknod(&self, path: &CStr, mode: u32) -> io::Result<()> {
        repeated(|| fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(mode), 0))
    }

    fn unlink(&self, path: &CStr) -> io::Result<()> {
        repeated(|| fs::unlink(path))
    }

    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        repeated(|| fs::rename(from, to))
    }

    fn rename_new(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        repeated(|| fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE))
    }

    fn link(&self, existing: &CStr, new: &CStr) -> io::Result<()> {
        repeated(|| fs::link(existing, new))
    }

    fn symlink(&self, content: &CStr, new: &CStr) -> io::Result<()> {
        repeated(|| fs::symlink(content, new))
    }

    fn readlink(&self, path: &CStr, content: &mut [u8]) -> io::Result<usize> {
        repeated(|| fs::readlinkat_raw(CWD, path, &mut *content))
    }

    fn stat(&self, path: &CStr) -> io::Result<Stat> {
        repeated(|| fs::stat(path)).map(|found| stat(&found))
    }

    fn lstat(&self, path: &CStr) -> io::Result<Stat> {
        repeated(|| fs::lstat(path)).map(|found| stat(&found))
    }

    fn chmod(&self, path: &CStr, mode: u32) -> io::Result<()> {
        repeated(|| fs::chmod(path, Mode::from_raw_mode(mode)))
    }

    fn truncate(&self, path: &CStr, len: u64) -> io::Result<()> {
        // rustix has no truncate(2): open and ftruncate do the same.
        let fd = repeated(|| fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()))?;
        repeated(|| fs::ftruncate(&fd, len))?;
        sys::file::close(fd)
    }

    fn mkdir(&self, path: &CStr, mode: u32) -> io::Result<()> {
        repeated(|| fs::mkdir(path, Mode::from_raw_mode(mode)))
    }

    fn rmdir(&self, path: &CStr) -> io::Result<()> {
        repeated(|| fs::rmdir(path))
    }

    fn readdir(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, EntryKind)) -> io::Result<()> {
        each_entry(path, |_, name, kind| {
            entry(name, kind);
            Ok(())
        })
    }

    fn readdir_stat(&self, path: &CStr, entry: &mut dyn FnMut(&CStr, &Stat)) -> io::Result<()> {
        each_entry(path, |directory, name, _| {
            match repeated(|| fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
                Ok(found) => entry(name, &stat(&found)),
                // Gone between the two calls, as ls(1) has it.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        })
    }

    fn getxattr(&self, path: &CStr, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
        repeated(|| fs::getxattr(path, name, &mut *value))
    }

    fn setxattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
        repeated(|| fs::setxattr(path, name, value, XattrFlags::empty()))
    }

    fn removexattr(&self, path: &CStr, name: &CStr) -> io::Result<()> {
        repeated(|| fs::removexattr(path, name))
    }

    fn space(&self, path: &CStr) -> io::Result<Space> {
        let found = repeated(|| fs::statvfs(path))?;
        Ok(Space {
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            // File systems that make inodes as they need them say 0 of 0.
            available_files: if found.f_files == 0 { u64::MAX } else { found.f_favail },
        })
    }
}

/// Calls `entry` with the directory, and the name and kind of each entry in it, then closes the directory: errors of
/// close(2) count.
fn each_entry(path: &CStr, mut entry: impl FnMut(BorrowedFd, &CStr, EntryKind) -> io::Result<()>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = repeated(|| fs::open(path, flags, Mode::empty()))?;
    let mut room = Vec::with_capacity(ENTRIES_BYTES);
    let mut entries = RawDir::new(&directory, room.spare_capacity_mut());
    let mut next = || {
        repeated(|| {
            let found = entries.next().transpose()?;
            Ok::<_, rustix::io::Errno>(found.map(|found| (found.file_name().to_owned(), kind(found.file_type()))))
        })
    };
    while let Some((name, kind)) = next()? {
        if !is_dots(&name) {
            entry(directory.as_fd(), &name, kind)?;
        }
    }
    sys::file::close(directory)
}

/// Bytes of entries that one getdents64(2) takes, as those of opendir(3).
const ENTRIES_BYTES: usize = 32 << 10;

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn kind(of: FileType) -> EntryKind {
    match of {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        FileType::Unknown => EntryKind::Unknown,
        _ => EntryKind::Other,
    }
}

#[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
fn stat(found: &fs::Stat) -> Stat {
    Stat::new(found.st_mode, found.st_size as u64, found.st_nlink as u64, found.st_ino)
}

struct File(OwnedFd);

impl Handle for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        repeated(|| rustix::io::read(&self.0, &mut *into))
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        repeated(|| rustix::io::write(&self.0, from))
    }

    fn pread(&mut self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        repeated(|| rustix::io::pread(&self.0, &mut *into, offset))
    }

    fn pwrite(&mut self, from: &[u8], offset: u64) -> io::Result<usize> {
        repeated(|| rustix::io::pwrite(&self.0, from, offset))
    }

    fn fsync(&mut self) -> io::Result<()> {
        repeated(|| fs::fsync(&self.0))
    }

    fn fdatasync(&mut self) -> io::Result<()> {
        repeated(|| fs::fdatasync(&self.0))
    }

    fn ftruncate(&mut self, len: u64) -> io::Result<()> {
        repeated(|| fs::ftruncate(&self.0, len))
    }

    fn fstat(&mut self) -> io::Result<Stat> {
        repeated(|| fs::fstat(&self.0)).map(|found| stat(&found))
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        sys::file::close(self.0)
    }
}
