//! gfapi_perf_tool, as its users type it: environment variables in, its lines out.
//!
//! What is ours to differ in, because it is wrong there: errors end with a status that is not 0; a file rate is printed
//! for deletions and for few files too; files that were not there to be deleted are counted apart; a directory that
//! another thread has just made is no error; the starting gun is looked for every millisecond.

pub mod output;
pub mod variables;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::schema::FilesResult;

use super::run::{self, Control};
pub use variables::Variables;

use crate::Error;

/// The run that the variables ask for. `say` is told what goes on, a line each.
///
/// # Errors
/// As [`run::run`]; and a starting gun that does not fire.
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
