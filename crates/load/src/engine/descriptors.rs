//! The descriptors of an engine that needs nothing else of a file.

use std::os::fd::RawFd;

/// The descriptor of each file, by the file's number; -1 while the file is closed.
pub(super) struct Descriptors(Box<[RawFd]>);

impl Descriptors {
    /// The descriptors of `files` files, all closed.
    pub fn new(files: u32) -> Descriptors {
        Descriptors(vec![-1; files as usize].into())
    }

    /// Makes `fd` the descriptor of a file.
    pub fn open(&mut self, file: u32, fd: RawFd) {
        self.0[file as usize] = fd;
    }

    /// Forgets the descriptor of a file.
    pub fn close(&mut self, file: u32) {
        self.0[file as usize] = -1;
    }

    /// The descriptor of a file.
    #[inline]
    pub fn of(&self, file: u32) -> RawFd {
        self.0[file as usize]
    }
}
