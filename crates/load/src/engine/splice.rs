//! The engine `splice`: data go through a pipe, by splice(2) between file and pipe.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use job::workload::OpKind;
use measure::Direction;
use sys::interrupted::repeated_c;

use super::blocking::{self, Flags};
use super::descriptors::Descriptors;
use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    let pipe = Pipe::new(setup.slots.slot_bytes()).map_err(|error| Error::system("cannot make a pipe", "", error))?;
    Ok(Box::new(Splice {
        slots: Arc::clone(&setup.slots),
        fds: Descriptors::new(setup.files),
        pipe,
        flags: Flags::of(setup.job),
    }))
}

struct Splice {
    slots: Arc<Slots>,
    fds: Descriptors,
    /// Empty between two ops.
    pipe: Pipe,
    flags: Flags,
}

struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
}

impl Pipe {
    /// A pipe with room for `bytes` if the system allows that much (/proc/sys/fs/pipe-max-size).
    fn new(bytes: usize) -> io::Result<Pipe> {
        let mut fds = [-1; 2];
        // SAFETY: fds has room for two descriptors.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pipe2 has just made the descriptor, and nobody else owns it.
        let output = unsafe { OwnedFd::from_raw_fd(fds[0]) };
        // SAFETY: pipe2 has just made the descriptor, and nobody else owns it.
        let input = unsafe { OwnedFd::from_raw_fd(fds[1]) };
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: F_SETPIPE_SZ takes no memory. Where it is refused, an op takes more turns.
        unsafe { libc::fcntl(input.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
        Ok(Pipe { output, input })
    }
}

impl Splice {
    /// Moves up to `len` bytes between the file and `memory`.
    ///
    /// # Safety
    /// `memory` is valid for `len` bytes, and nobody else touches them during the call.
    unsafe fn transfer(&mut self, fd: RawFd, reads: bool, memory: *mut u8, len: usize, offset: u64) -> i64 {
        let mut done = 0;
        while done < len {
            // SAFETY: done lies within the len bytes of memory.
            let rest = unsafe { memory.add(done) };
            let at = offset as i64 + done as i64;
            // SAFETY: rest is valid for the len - done bytes that are left of memory.
            let moved = unsafe { self.move_once(fd, reads, rest, len - done, at) };
            match moved {
                bytes if bytes > 0 => done += bytes as usize,
                result if done == 0 => return result,
                _ => break,
            }
        }
        done as i64
    }

    /// Fills the pipe once and empties it.
    ///
    /// # Safety
    /// As [`Splice::transfer`].
    unsafe fn move_once(&mut self, fd: RawFd, reads: bool, memory: *mut u8, len: usize, mut at: i64) -> i64 {
        let (output, input) = (self.pipe.output.as_raw_fd(), self.pipe.input.as_raw_fd());
        let vector = libc::iovec { iov_base: memory.cast(), iov_len: len };
        let filled = if reads {
            // SAFETY: at lives until the call returns.
            repeated_c(|| unsafe { libc::splice(fd, &raw mut at, input, std::ptr::null_mut(), len, 0) })
        } else {
            // SAFETY: vector names len bytes that are valid. They stay so until the pipe is empty again.
            repeated_c(|| unsafe { libc::vmsplice(input, &raw const vector, 1, 0) })
        };
        let mut emptied = 0;
        while emptied < filled {
            let left = (filled - emptied) as usize;
            let moved = if reads {
                // SAFETY: emptied lies within the len bytes for which memory is valid.
                let rest = unsafe { memory.add(emptied as usize) };
                // SAFETY: emptied + left bytes are at most len, for which memory is valid.
                repeated_c(|| unsafe { libc::read(output, rest.cast(), left) })
            } else {
                let mut to = at + emptied;
                // SAFETY: to lives until the call returns.
                repeated_c(|| unsafe { libc::splice(output, std::ptr::null_mut(), fd, &raw mut to, left, 0) })
            };
            if moved <= 0 {
                // The next op would take the rest in the pipe for its own data.
                let error = Pipe::new(self.slots.slot_bytes()).map(|pipe| self.pipe = pipe).err();
                let errno = error.and_then(|error| error.raw_os_error());
                return errno.map_or(if emptied > 0 { emptied } else { moved }, |errno| -i64::from(errno));
            }
            emptied += moved;
        }
        filled
    }
}

impl Engine for Splice {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.fds.open(file, fd);
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.fds.close(file);
    }

    fn queue(&mut self, request: Request) -> Queued {
        let fd = self.fds.of(request.file);
        let result = match request.kind {
            OpKind::Io(direction @ (Direction::Read | Direction::Write)) => {
                let len = request.len as usize;
                let memory = self.slots.place(&request);
                // SAFETY: memory is valid for len bytes, by Slots::place, and the slot's token is in this call.
                unsafe { self.transfer(fd, direction == Direction::Read, memory, len, request.offset) }
            }
            kind => blocking::carry_out(fd, kind, request.offset, request.len, self.flags),
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
