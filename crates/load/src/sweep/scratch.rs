//! The scratch file of a sweep: made by the generator itself, written for real, gone when it is dropped.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;

/// Files that must not outlive the program: whoever ends it early removes them first.
pub type Doomed = Arc<Mutex<Vec<PathBuf>>>;

/// The wanted size: larger than the caches of common drives and controllers.
const WANTED_BYTES: u64 = 1 << 30;
/// Part of the free space that a scratch file may take.
const FREE_SHARE: u64 = 4;
/// The smallest scratch file: nothing meaningful can be swept below this size.
const SMALLEST_BYTES: u64 = 4 << 20;

/// The beginning of the name of every scratch file; the host and the process follow.
const PREFIX: &str = "plimsoll-scratch";

/// A file that is removed when this value is dropped, unwinding included.
///
/// A lock file stands beside it, under its name and `.lock`, and its process holds the lock (flock(2)) for as long as
/// it lives. A scratch file whose lock nobody holds was left behind by a process that was killed, and
/// [`Scratch::create`] removes both. The lock is not that of the scratch file itself, which layout takes.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    doomed: Doomed,
    /// Scratch files of killed processes that were removed from the same directory, with their sizes in bytes.
    pub removed: Vec<(PathBuf, u64)>,
    /// The path of the lock file.
    lock: PathBuf,
    /// The open lock file, which keeps the lock.
    _held: File,
}

impl Scratch {
    /// An empty scratch file in `directory`, and the bytes that it should be laid out to: those that are wanted,
    /// or else 1 GiB, or a quarter of the space that is free.
    ///
    /// # Errors
    /// The error of creating a file there; too little space.
    pub fn create(directory: &Path, wanted: Option<u64>, doomed: &Doomed) -> Result<(Scratch, u64), Error> {
        // Others may sweep in the same directory, from other hosts.
        let host = sys::process::host().name.replace('/', "_");
        let removed = remove_abandoned(directory, &host);
        let path = directory.join(format!("{PREFIX}.{host}.{}", std::process::id()));
        let hint = "a scratch file is laid out there; give another TARGET: a directory, a file or a device";
        let system = |what: &str, error| Error::system(what, path.display().to_string(), error).hint(hint);
        let lock = lock_of(&path);
        let held = held(&lock).map_err(|error| system("cannot create", error))?;
        doomed.lock().unwrap_or_else(PoisonError::into_inner).extend([path.clone(), lock.clone()]);
        let scratch = Scratch { path: path.clone(), doomed: doomed.clone(), removed, lock, _held: held };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&path).map_err(|e| system("cannot create", e))?;
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

    /// The path of the scratch file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts the scratch file to the bytes that were really written.
    ///
    /// # Errors
    /// The error of ftruncate(2).
    pub fn truncate(&self, bytes: u64) -> Result<(), Error> {
        let cut = || File::options().write(true).open(&self.path)?.set_len(bytes);
        cut().map_err(|error| Error::system("cannot truncate", self.path.display().to_string(), error))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A second signal may have removed them. The lock goes last: it stands for the scratch file.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.lock);
        let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        doomed.retain(|path| *path != self.path && *path != self.lock);
    }
}

/// The lock file of a scratch file.
fn lock_of(scratch: &Path) -> PathBuf {
    let mut name = scratch.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// A new file that this process holds the lock of, and that is still there under its name.
///
/// Another process may find the file before its lock is taken, and removes the file then. The owner waits until that
/// process lets go and never removes the file: whoever holds the lock may be about to remove the name, and that name
/// would be the next file's.
fn held(path: &Path) -> std::io::Result<File> {
    loop {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let locked = sys::interrupted::repeated(|| sys::file::lock(&file));
        // On a filesystem without locks nobody can prove that the file is abandoned, so nobody removes it.
        if locked.is_err() || is_at(&file, path) {
            return Ok(file);
        }
    }
}

/// True if `path` leads to this open file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
    let opened = file.metadata().map(identity).ok();
    opened.is_some() && opened == std::fs::symlink_metadata(path).map(identity).ok()
}

/// Removes the scratch files in `directory` that processes of this host left behind when they were killed. The lock
/// proves that no process lives: a living one holds it. Locks of other hosts may not be seen here, so their files stay.
fn remove_abandoned(directory: &Path, host: &str) -> Vec<(PathBuf, u64)> {
    let ours = format!("{PREFIX}.{host}.");
    let scratch_of = |lock: &Path| {
        let name = lock.file_name()?.to_str()?.strip_suffix(".lock")?;
        let pid = name.strip_prefix(&ours)?;
        (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then(|| lock.with_file_name(name))
    };
    let remove = |entry: std::fs::DirEntry| {
        let lock = entry.path();
        let scratch = scratch_of(&lock)?;
        let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&lock);
        let file = file.ok()?; // it may belong to another user
        if !sys::file::try_lock(&file, true).ok()? || !is_at(&file, &lock) {
            return None;
        }
        let bytes = std::fs::symlink_metadata(&scratch).map_or(0, |data| data.blocks() * 512);
        let gone = std::fs::remove_file(&scratch).is_ok();
        let _ = std::fs::remove_file(&lock); // without its scratch file it stands for nothing
        gone.then_some((scratch, bytes))
    };
    std::fs::read_dir(directory).into_iter().flatten().flatten().filter_map(remove).collect()
}

/// True if O_DIRECT can be used on `path`.
pub fn takes_direct(path: &Path) -> bool {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn it_goes_away_when_dropped_and_on_panic() {
        let directory = tempfile::tempdir().unwrap();
        let doomed = Doomed::default();
        let (scratch, bytes) = Scratch::create(directory.path(), None, &doomed).unwrap();
        let path = scratch.path().to_path_buf();
        assert!(path.exists() && (SMALLEST_BYTES..=WANTED_BYTES).contains(&bytes));
        assert_eq!(*doomed.lock().unwrap(), [path.clone(), lock_of(&path)]);
        drop(scratch);
        assert!(!path.exists() && !lock_of(&path).exists() && doomed.lock().unwrap().is_empty());

        let unwound = std::panic::catch_unwind(|| {
            let (_scratch, _) = Scratch::create(directory.path(), None, &doomed).unwrap();
            std::panic::resume_unwind(Box::new("in the middle of a sweep"));
        });
        assert!(unwound.is_err() && !path.exists());
    }

    #[test]
    fn a_file_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let host = sys::process::host().name.replace('/', "_");
        let place = |name: String| directory.path().join(name);
        let (dead, living) = (place(format!("{PREFIX}.{host}.1")), place(format!("{PREFIX}.{host}.2")));
        let (stranger, other) = (place(format!("{PREFIX}.other.3")), place(format!("{PREFIX}.{host}.4.copy")));
        for path in [&dead, &living, &stranger, &other] {
            std::fs::write(path, vec![1; 10_000]).unwrap();
        }
        for path in [&dead, &stranger] {
            std::fs::write(lock_of(path), "").unwrap();
        }
        let lives = held(&lock_of(&living)).unwrap();
        let (scratch, _) = Scratch::create(directory.path(), None, &Doomed::default()).unwrap();
        assert_eq!(scratch.removed.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&dead]);
        assert!(!dead.exists() && !lock_of(&dead).exists());
        assert!(living.exists() && stranger.exists() && other.exists());
        // The end of the process is the end of the lock.
        drop(lives);
        assert_eq!(remove_abandoned(directory.path(), &host).len(), 1);
        assert!(!living.exists() && scratch.path().exists(), "its own file is held");
    }

    #[test]
    fn a_file_that_is_removed_before_it_is_locked_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scratch");
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    if let Ok(file) = OpenOptions::new().write(true).open(&path)
                        && sys::file::try_lock(&file, true).unwrap()
                        && is_at(&file, &path)
                    {
                        std::fs::remove_file(&path).expect("only the holder of the lock removes the file");
                    }
                }
            });
            let _end = Ends(&end);
            for _ in 0..500 {
                let file = held(&path).unwrap();
                assert!(is_at(&file, &path), "a file that is held is there");
                std::fs::remove_file(&path).unwrap();
            }
        });
    }

    /// Raises the flag when it is dropped: a failed assertion must not leave the other thread running.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn direct_io_is_tried_not_assumed() {
        assert!(!takes_direct(Path::new("/proc/self/stat")));
        assert!(!takes_direct(Path::new("/nonexistent")));
    }

    #[test]
    fn a_directory_that_is_not_there_is_one_line() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing");
        let error = Scratch::create(&missing, None, &Doomed::default()).unwrap_err().to_string();
        let begin = format!("cannot create {}/plimsoll-scratch.", missing.display());
        assert!(error.starts_with(&begin) && !error.contains('\n'), "{error}");
    }
}
