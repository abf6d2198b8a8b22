//! The engines `falloc` and `ftruncate`: ops reserve, free and cut space, and transfer no data.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use job::workload::OpKind;
use measure::Direction;
use sys::interrupted::repeated_c;

use super::blocking::{self, Flags};
use super::{Completion, Engine, Queued, Request, Setup};
use crate::Error;

/// Makes `falloc`: a read reserves space and leaves the file's size, a write reserves space and sets the size, a trim
/// frees space. Each is a fallocate(2).
pub(super) fn falloc(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Space::new(setup, reserve)))
}

/// Makes `ftruncate`: a write sets the file's size to its offset.
pub(super) fn ftruncate(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    if setup.job.rw.directions.read || setup.job.rw.directions.trim {
        let hint = "use rw=write or rw=randwrite";
        return Err(Error::usage("ioengine=ftruncate only writes", format!("in job {}", setup.job.name), hint));
    }
    Ok(Box::new(Space::new(setup, cut)))
}

/// Carries out an op on an open file; 0, or -1 with errno set.
type Act = fn(fd: RawFd, direction: Direction, offset: u64, len: u32) -> libc::c_int;

struct Space {
    act: Act,
    /// The files, opened once more: these calls need a descriptor for writing, whatever the job does.
    files: Vec<Option<File>>,
    flags: Flags,
}

impl Space {
    fn new(setup: &Setup, act: Act) -> Space {
        Space { act, files: (0..setup.files).map(|_| None).collect(), flags: Flags::of(setup.job) }
    }
}

fn reserve(fd: RawFd, direction: Direction, offset: u64, len: u32) -> libc::c_int {
    let mode = match direction {
        Direction::Read => libc::FALLOC_FL_KEEP_SIZE,
        Direction::Write => 0,
        Direction::Trim => blocking::PUNCH,
    };
    // SAFETY: fallocate takes no memory; a bad descriptor is an error number.
    unsafe { libc::fallocate64(fd, mode, offset as i64, i64::from(len)) }
}

fn cut(fd: RawFd, _direction: Direction, offset: u64, _len: u32) -> libc::c_int {
    // SAFETY: ftruncate takes no memory; a bad descriptor is an error number.
    unsafe { libc::ftruncate64(fd, offset as i64) }
}

impl Engine for Space {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        let again = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{fd}"))?;
        self.files[file as usize] = Some(again);
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = None;
    }

    fn queue(&mut self, request: Request) -> Queued {
        let fd = self.files[request.file as usize].as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let result = match request.kind {
            OpKind::Io(direction) => match repeated_c(|| (self.act)(fd, direction, request.offset, request.len)) {
                0 => i64::from(request.len),
                errno => errno,
            },
            sync => blocking::carry_out(fd, sync, request.offset, request.len, self.flags),
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
