//! `--trigger`: the run ends when a file appears or a time is over, saves what it has written, and a command follows.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use job::args::RunOptions;

/// The trigger of a run. It acts once.
pub struct Trigger {
    command: Option<String>,
    file: Option<PathBuf>,
    timeout_ns: Option<u64>,
    stop: Arc<AtomicBool>,
    acted: bool,
}

impl Trigger {
    /// The trigger that the flags ask for, which ends the run by `stop`.
    ///
    /// # Errors
    /// A command that nothing lets act.
    pub fn new(run: &RunOptions, stop: &Arc<AtomicBool>) -> anyhow::Result<Trigger> {
        if run.trigger.is_some() && run.trigger_file.is_none() && run.trigger_timeout_ns.is_none() {
            bail!("--trigger never acts: add --trigger-timeout=TIME or --trigger-file=FILE");
        }
        Ok(Trigger {
            command: run.trigger.clone(),
            file: run.trigger_file.clone(),
            timeout_ns: run.trigger_timeout_ns,
            stop: Arc::clone(stop),
            acted: false,
        })
    }

    /// Looks at this time of the run, in nanoseconds, if the trigger must act; then asks the run to end.
    pub fn look(&mut self, elapsed_ns: u64) {
        let appeared = |file: &PathBuf| file.exists() && std::fs::remove_file(file).is_ok();
        let due = self.timeout_ns.is_some_and(|timeout_ns| elapsed_ns >= timeout_ns);
        if !self.acted && (due || self.file.as_ref().is_some_and(appeared)) {
            self.acted = true;
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// True if the trigger ended the run; its command has run then. False if the run ended otherwise.
    ///
    /// # Errors
    /// The command could not be started, or failed.
    pub fn conclude(self) -> anyhow::Result<bool> {
        let Some(command) = self.command.filter(|_| self.acted) else { return Ok(self.acted) };
        let status =
            Command::new("sh").args(["-c", &command]).status().context("cannot run the command of --trigger")?;
        if !status.success() {
            bail!("the command of --trigger failed: {command}: {status}");
        }
        Ok(true)
    }
}
