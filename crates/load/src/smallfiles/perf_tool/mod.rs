//! gfapi_perf_tool, as its users type it: environment variables in, its lines out.
//!
//! This implementation differs from the original where the original is wrong. Errors end with a status that is not 0.
//! It prints a file rate for deletions and for few files too. It counts files that were not there to be deleted apart.
//! A directory that another thread has just made is not an error. It looks for the starting gun every millisecond.

pub mod output;
pub mod variables;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::schema::FilesResult;

use super::run::{self, Control};
pub use variables::Variables;

use crate::Error;

/// Carries out the run that the variables ask for. Calls `say` with a line for each event.
///
/// # Errors
/// As [`run::run`]; also a starting gun that does not fire.
pub fn run(of: &Variables, stop: Arc<AtomicBool>, say: &mut dyn FnMut(&str)) -> Result<FilesResult, Error> {
    let plan = of.plan()?;
    let host = sys::process::host().name;
    let stopped = Arc::clone(&stop);
    let mut gate = |fs: &dyn super::fs::FileSystem| match &of.gun {
        None => Ok(true),
        Some(gun) => {
            for thread in 0..of.threads {
                say(&format!("signaling ready with file {}", gun.ready_file(&host, std::process::id(), thread)));
            }
            say(&format!("awaiting starting gun file {}", gun.file));
            gun.wait(fs, &host, of.threads, &stopped)
        }
    };
    run::run(&plan, &mut Control { stop, gate: Some(&mut gate), ..Control::default() })
}
