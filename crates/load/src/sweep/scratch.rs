//! The scratch file of a sweep: made by the generator itself, written for real, gone when it is dropped.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;

/// Files that must not outlive the program: whoever ends it early removes them first.
pub type Doomed = Arc<Mutex<Vec<PathBuf>>>;

/// The size that is aimed at: beyond what the caches of drives and controllers of the common kind hold.
const WANTED_BYTES: u64 = 1 << 30;
/// Part of the free space that a scratch file may take.
const FREE_SHARE: u64 = 4;
/// Below this nothing meaningful can be swept.
const SMALLEST_BYTES: u64 = 4 << 20;

/// A file that is removed when this value is dropped, unwinding included.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    doomed: Doomed,
}

impl Scratch {
    /// An empty scratch file in `directory`, and the bytes that it should be laid out to: those that are wanted,
    /// or else 1 GiB, or a quarter of the space that is free.
    ///
    /// # Errors
    /// What creating a file there says; too little space.
    pub fn create(directory: &Path, wanted: Option<u64>, doomed: &Doomed) -> Result<(Scratch, u64), Error> {
        // Others may sweep in the same directory, from other hosts.
        let host = sys::process::host().name.replace('/', "_");
        let path = directory.join(format!("plimsoll-scratch.{host}.{}", std::process::id()));
        let hint = "a scratch file is laid out there; give another TARGET: a directory, a file or a device";
        let system = |what: &str, error| Error::system(what, path.display().to_string(), error).hint(hint);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&path).map_err(|e| system("cannot create", e))?;
        doomed.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        let scratch = Scratch { path: path.clone(), doomed: doomed.clone() };
        let free = sys::file::space(directory).map_err(|e| system("cannot tell the free space at", e))?.available;
        let bytes = wanted.unwrap_or(WANTED_BYTES.min(free / FREE_SHARE) >> 20 << 20);
        if bytes < SMALLEST_BYTES.min(wanted.unwrap_or(u64::MAX)) || bytes > free {
            let what = format!("not enough space for a scratch file, {} MiB are free, in", free >> 20);
            return Err(Error::usage(
                what,
                directory.display().to_string(),
                "give a smaller --size, or another directory, file or device as TARGET",
            ));
        }
        Ok((scratch, bytes))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts it to what was really written.
    ///
    /// # Errors
    /// What ftruncate(2) says.
    pub fn truncate(&self, bytes: u64) -> Result<(), Error> {
        let cut = || File::options().write(true).open(&self.path)?.set_len(bytes);
        cut().map_err(|error| Error::system("cannot truncate", self.path.display().to_string(), error))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // a second signal may have removed it
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.path);
    }
}

/// Whether O_DIRECT can be used on `path`.
pub fn takes_direct(path: &Path) -> bool {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_away_when_dropped_and_on_panic() {
        let directory = tempfile::tempdir().unwrap();
        let doomed = Doomed::default();
        let (scratch, bytes) = Scratch::create(directory.path(), None, &doomed).unwrap();
        let path = scratch.path().to_path_buf();
        assert!(path.exists() && (SMALLEST_BYTES..=WANTED_BYTES).contains(&bytes));
        assert_eq!(*doomed.lock().unwrap(), *std::slice::from_ref(&path));
        drop(scratch);
        assert!(!path.exists() && doomed.lock().unwrap().is_empty());

        let unwound = std::panic::catch_unwind(|| {
            let (_scratch, _) = Scratch::create(directory.path(), None, &doomed).unwrap();
            std::panic::resume_unwind(Box::new("in the middle of a sweep"));
        });
        assert!(unwound.is_err() && !path.exists());
    }

    #[test]
    fn direct_io_is_tried_not_assumed() {
        assert!(!takes_direct(Path::new("/proc/self/stat")));
        assert!(!takes_direct(Path::new("/nonexistent")));
    }

    #[test]
    fn a_directory_that_is_not_there_is_one_line() {
        let error = Scratch::create(Path::new("/nonexistent"), None, &Doomed::default()).unwrap_err().to_string();
        assert!(error.starts_with("cannot create /nonexistent/plimsoll-scratch.") && !error.contains('\n'), "{error}");
    }
}
