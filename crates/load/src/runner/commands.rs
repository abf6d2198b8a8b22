//! `exec_prerun` and `exec_postrun`: shell commands before and after the work of a clone.

use std::fs::File;
use std::io;
use std::process::Command;

use crate::Error;

/// Runs a command by `sh -c`, as system(3) does, and waits for it. Its output goes to `JOB.WHEN.txt` in the current
/// directory, as in fio.
///
/// # Errors
/// The file cannot be made, the shell cannot be started, or the command does not end with status 0.
pub(super) fn run(command: &str, job: &str, when: &str) -> Result<(), Error> {
    let name = format!("{job}.{when}.txt");
    let failed = |error: io::Error| Error::system(format!("the command of exec_{when} failed in job"), job, error);
    let output = File::create(&name).map_err(|error| failed(error).hint(format!("its output goes to {name}")))?;
    let copy = output.try_clone().map_err(failed)?;
    let mut shell = Command::new("sh");
    sys::child::usual_signals(&mut shell, false);
    let status = shell.args(["-c", command]).stdout(output).stderr(copy).status().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(failed(io::Error::other(status.to_string())).hint(format!("its output is in {name}")))
}
