//! A file that several processes serve in turn, each while it has the lock of the file (flock(2)).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The turn of this process to serve a file. A process that is killed has the file until the kernel has ended its last
/// write: the lock belongs to the open file, which a ring holds for as long as it works for it.
pub struct FileLock {
    path: PathBuf,
    file: Arc<File>,
}

impl FileLock {
    pub(super) fn new(path: PathBuf, file: Arc<File>) -> FileLock {
        FileLock { path, file }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that has the file; `None` if nobody is known to have it.
    pub fn holder(&self) -> Option<u32> {
        sys::file::lock_holder(&self.file)
    }

    /// Takes the file if no other process has it. Returns true if this process has it now.
    ///
    /// # Errors
    /// ENOLCK on file systems without locks.
    pub fn try_take(&self) -> io::Result<bool> {
        sys::file::try_lock(&self.file, true)
    }

    /// Waits until no other process has the file, and takes it.
    ///
    /// # Errors
    /// As [`FileLock::try_take`].
    pub fn take(&self) -> io::Result<()> {
        loop {
            match sys::file::lock(&self.file) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                taken => return taken,
            }
        }
    }

    /// Leaves the file to others. No op of this process is in the file any more.
    pub fn leave(&self) {
        sys::file::unlock(&self.file);
    }
}
