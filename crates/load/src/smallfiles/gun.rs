//! The starting gun: many processes on many machines that begin together, because a file appears.
//!
//! Each thread says that it is ready by a file `HOST.PID.THREAD.ready` beside the gun; the person or script that
//! started the processes counts these files and makes the gun. gfapi_perf_tool looks for the gun once a second and
//! then waits three more. This module looks every millisecond: processes begin together to within a millisecond, not
//! to within a second.

use std::ffi::CString;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::fs::FileSystem;
use crate::Error;

/// A file by which many processes begin together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gun {
    /// The file whose appearance begins the run; it is on the file system that is measured.
    pub file: String,
    /// The longest wait for the gun.
    pub timeout: Duration,
}

const POLL: Duration = Duration::from_millis(1);

impl Gun {
    /// The file by which a thread says that it is ready.
    pub fn ready_file(&self, host: &str, process: u32, thread: u32) -> String {
        let directory = match self.file.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((directory, _)) => directory,
            None => ".",
        };
        let host = host.split('.').next().unwrap_or_default();
        format!("{}/{host}.{process}.{thread}.ready", directory.trim_end_matches('/'))
    }

    /// Says that threads 0.. are ready and waits for the gun; false if `stop` was set on the way.
    ///
    /// # Errors
    /// A ready file that cannot be made; a gun that does not fire within the timeout (its source is `TimedOut`).
    pub fn wait(&self, fs: &dyn FileSystem, host: &str, threads: u32, stop: &AtomicBool) -> Result<bool, Error> {
        let c_string = |text: &str| {
            CString::new(text)
                .map_err(|_| Error::usage("starting gun", text.escape_default().to_string(), "it holds a NUL byte"))
        };
        for thread in 0..threads {
            let ready = self.ready_file(host, std::process::id(), thread);
            let made = fs
                .open(&c_string(&ready)?, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o666)
                .and_then(|handle| handle.close());
            made.map_err(|error| {
                let hint = match error.raw_os_error() {
                    Some(libc::ENOENT) => {
                        "the directory of the starting gun must exist, on the file system that is measured"
                    }
                    _ => "",
                };
                Error::system("cannot make ready file", ready, error).hint(hint)
            })?;
        }
        let gun = c_string(&self.file)?;
        let until = Instant::now() + self.timeout;
        loop {
            match fs.stat(&gun) {
                Ok(_) => return Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(Error::system("cannot look for starting gun", self.file.clone(), error)),
            }
            if stop.load(Relaxed) {
                return Ok(false);
            }
            if Instant::now() >= until {
                let what = format!("timed out after {} sec waiting for starting gun file", self.timeout.as_secs());
                let hint =
                    "the program that counts the ready files must make it; GFAPI_STARTING_GUN_TIMEOUT sets the time";
                return Err(Error::system(what, self.file.clone(), ErrorKind::TimedOut.into()).hint(hint));
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::posix::Posix;
    use super::*;

    #[test]
    fn ready_files_lie_beside_the_gun() {
        let gun = |file: &str| Gun { file: file.into(), timeout: Duration::ZERO }.ready_file("h.example.org", 12, 3);
        assert_eq!(gun("/mnt/v/gun"), "/mnt/v/h.12.3.ready");
        assert_eq!(gun("/gun"), "/h.12.3.ready");
        assert_eq!(gun("gun"), "./h.12.3.ready");
    }

    #[test]
    fn a_gun_that_is_there_fires_at_once_and_one_that_never_comes_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("gun").display().to_string();
        let gun = Gun { file: file.clone(), timeout: Duration::ZERO };
        let stop = AtomicBool::new(false);
        let error = gun.wait(&Posix, "a", 2, &stop).unwrap_err().to_string();
        assert!(error.contains("timed out after 0 sec") && error.contains(&file), "{error}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "two threads are ready");
        std::fs::write(&file, "").unwrap();
        assert!(gun.wait(&Posix, "b", 1, &stop).unwrap());
        let again = gun.wait(&Posix, "b", 1, &stop).unwrap_err().to_string();
        assert!(again.contains("ready file"), "{again}");
        let endless = Gun { file: format!("{file}.no"), timeout: Duration::from_secs(1000) };
        stop.store(true, Relaxed);
        assert!(!endless.wait(&Posix, "c", 1, &stop).unwrap());
    }
}
