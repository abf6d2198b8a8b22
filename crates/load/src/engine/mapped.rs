//! The engine `mmap`: files in the memory of the process, copied to and from the buffers.
//!
//! Pages of a file without space could end the process at the first write (SIGBUS). So space is reserved before a file
//! is mapped for writing; where there is none, opening it fails.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use job::workload::OpKind;
use measure::Direction;

use super::blocking::{self, Flags, last_errno, option_is_set};
use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Mapped {
        slots: Arc::clone(&setup.slots),
        files: (0..setup.files).map(|_| None).collect(),
        flags: Flags::of(setup.job),
        writes_through: setup.job.files.direct,
        huge_pages: option_is_set(setup.job, "thp"),
    }))
}

struct Mapped {
    slots: Arc<Slots>,
    files: Vec<Option<Map>>,
    flags: Flags,
    /// With `direct=1`, each op writes its pages back and drops them, as in fio.
    writes_through: bool,
    /// With `thp=1`, the mapping asks for huge pages (MADV_HUGEPAGE). It stays shared: fio's is private then, and its
    /// writes never reach the file.
    huge_pages: bool,
}

/// A file in memory, for as long as this value lives.
struct Map {
    fd: RawFd,
    start: NonNull<u8>,
    len: usize,
    /// False if the descriptor was opened for writing only.
    readable: bool,
}

// SAFETY: the mapping belongs to the value alone, and any thread may use or remove it.
unsafe impl Send for Map {}

/// The file of a descriptor, opened again for reading and writing.
fn reopen(fd: RawFd) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/self/fd/{fd}"))
}

impl Map {
    /// The whole of a file, for writing too if the descriptor is; in huge pages, if the kernel has some for it.
    fn new(fd: RawFd, huge_pages: bool) -> io::Result<Map> {
        // SAFETY: F_GETFL takes no memory; a bad descriptor is an error number.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: lseek takes no memory. It works for block devices too; nothing here depends on the position.
        let end = unsafe { libc::lseek64(fd, 0, libc::SEEK_END) };
        let len = usize::try_from(end).map_err(|_| io::Error::last_os_error())?;
        let mode = flags & libc::O_ACCMODE;
        let writes = mode != libc::O_RDONLY;
        // A mapping needs a descriptor that reads, too.
        let both = (mode == libc::O_WRONLY).then(|| reopen(fd)).transpose()?;
        let mapped_fd = both.as_ref().map_or(fd, AsRawFd::as_raw_fd);
        if writes && len > 0 {
            // SAFETY: fallocate takes no memory.
            let reserved = unsafe { libc::fallocate64(fd, libc::FALLOC_FL_KEEP_SIZE, 0, len as i64) };
            if reserved != 0 && last_errno() == libc::ENOSPC {
                return Err(io::Error::last_os_error());
            }
        }
        let protection = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
        // A file without bytes has nothing to map.
        let mapped = match len {
            0 => NonNull::dangling(),
            // SAFETY: a new mapping at a place that the kernel chooses touches no memory that is in use.
            _ => match unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, mapped_fd, 0) } {
                libc::MAP_FAILED => return Err(io::Error::last_os_error()),
                start => NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            },
        };
        let map = Map { fd, start: mapped, len, readable: mode != libc::O_WRONLY };
        if huge_pages && len > 0 {
            // Advice only, as in fio: a kernel or a file system without huge pages refuses it, and the mapping works.
            // SAFETY: the pages are those of the new mapping; the advice changes no memory.
            unsafe { libc::madvise(mapped.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Ok(map)
    }

    /// Writes the pages around a range back, and drops them.
    fn write_back(&self, offset: usize, len: usize) -> i64 {
        const PAGE: usize = 4096;
        let from = offset & !(PAGE - 1);
        // SAFETY: offset and len lie within the mapping: the caller has checked it.
        let start = unsafe { self.start.as_ptr().add(from) }.cast();
        // SAFETY: the pages from `start` on are those of the mapping, which lives as long as self.
        if unsafe { libc::msync(start, offset + len - from, libc::MS_SYNC) } != 0 {
            return -i64::from(last_errno());
        }
        // SAFETY: the pages from `start` on are those of the mapping. They are clean: the file has their content.
        unsafe { libc::madvise(start, offset + len - from, libc::MADV_DONTNEED) };
        0
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping is this value's own, and nothing points into it any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

impl Mapped {
    fn transfer(&mut self, request: &Request, direction: Direction) -> i64 {
        let Some(map) = &self.files[request.file as usize] else { return -i64::from(libc::EBADF) };
        let (skip, len) = (request.skip as usize, request.len as usize);
        assert!(skip + len <= self.slots.slot_bytes(), "a request is larger than its buffer");
        let reads = direction == Direction::Read;
        let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
        let len = len.min(map.len.saturating_sub(offset));
        match len {
            _ if reads && !map.readable => return -i64::from(libc::EBADF),
            0 if reads => return 0,              // the end of the file
            0 => return -i64::from(libc::EFBIG), // a mapping does not grow
            _ => {}
        }
        // SAFETY: skip lies within the slot, by the check above.
        let memory = unsafe { self.slots.pointer(request.slot.index()).add(skip) };
        // SAFETY: offset lies within the mapping: len would be 0 otherwise.
        let mapped = unsafe { map.start.as_ptr().add(offset) };
        let (from, to) = if reads { (mapped, memory) } else { (memory, mapped) };
        // SAFETY: both sides have len bytes, a slot and a mapping never overlap, and the slot's token is in this call.
        // The mapping can be written: the descriptor of a job that writes is open for writing.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        if self.writes_through {
            let written = map.write_back(offset, len);
            if written < 0 {
                return written;
            }
        }
        len as i64
    }
}

impl Engine for Mapped {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.files[file as usize] = Some(Map::new(fd, self.huge_pages)?);
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = None;
    }

    fn queue(&mut self, request: Request) -> Queued {
        let result = match (request.kind, &self.files[request.file as usize]) {
            (OpKind::Io(direction @ (Direction::Read | Direction::Write)), _) => self.transfer(&request, direction),
            (kind, Some(map)) => {
                // fsync(2) finds the pages that the mapping has made dirty.
                blocking::carry_out(map.fd, kind, request.offset, request.len, self.flags)
            }
            (_, None) => -i64::from(libc::EBADF),
        };
        Queued::Done(Completion { slot: request.slot, result })
    }

    fn submit(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn reap(&mut self, _min: usize, _max: usize, _timeout: Option<u64>, _done: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }
}
