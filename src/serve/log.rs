//! The log of `plimsoll serve` on standard error: a thread of its own writes it, so that a reader that stops holds up
//! nobody.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nvme_target::journal::{Entry, Journal, Level};

/// The time that a reader of standard error has for the last lines.
const PATIENCE: Duration = Duration::from_secs(1);

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// The log; dropped, it writes the lines that are left.
pub struct Log {
    journal: Arc<Journal>,
    ended: mpsc::Receiver<()>,
}

impl Log {
    /// Writes the lines of the log from now on.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(journal: &Arc<Journal>, format: Format) -> io::Result<Log> {
        let (done, ended) = mpsc::channel();
        let lines = Arc::clone(journal);
        let priority = format == Format::Text && is_the_journal();
        let write = move || {
            while let Some(entry) = lines.next() {
                let line = match format {
                    Format::Text => entry.text(priority),
                    Format::Json => entry.json(),
                };
                let _ = io::stderr().write_all((line + "\n").as_bytes()); // nobody is left to be told
            }
            drop(done);
        };
        std::thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(Log { journal: Arc::clone(journal), ended })
    }

    /// Adds a line about the target itself.
    pub fn say(&self, level: Level, event: &'static str, message: impl Into<String>) {
        self.journal.add(level, || Entry::new(event, message));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.journal.close();
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// True if standard error leads to journald, which says so by the device and inode of its socket (systemd.exec(5)).
fn is_the_journal() -> bool {
    let Ok(said) = std::env::var("JOURNAL_STREAM") else { return false };
    let here = io::stderr().as_fd().try_clone_to_owned().and_then(|stderr| File::from(stderr).metadata());
    here.is_ok_and(|here| said == format!("{}:{}", here.dev(), here.ino()))
}
