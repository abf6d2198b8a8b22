//! A trial of each job's engine, buffers and processors before any file is made: a part that is forbidden or missing is
//! known at once, not after minutes of layout, and nothing is left behind.

use job::Job;
use job::job::Plan;
use sys::process;

use super::clone;
use crate::Error;
use crate::engine::{Maker, Setup};
use crate::failures::Failures;
use crate::files::seats_of;

/// Tries the engines, buffers and processors that the jobs need, small and once each.
///
/// # Errors
/// The first processor that this machine does not offer; the first engine or buffer, unless its clones fail alone.
pub(super) fn trial(plan: &Plan, makers: &[Maker], failures: &mut Failures) -> Result<(), Error> {
    let mut tried = Vec::new();
    for ((job, maker), seats) in plan.jobs.iter().zip(makers).zip(seats_of(plan)) {
        if job.files.create_only {
            continue;
        }
        let way = (maker.spec.name, &job.ring, job.buffers.memory, &job.process.cpus, &job.process.numa_cpu_nodes);
        if tried.contains(&way) {
            continue;
        }
        // As in fio, a processor that is missing refuses the whole run.
        try_processors(job)?;
        match try_engine(job, *maker) {
            Ok(()) => tried.push(way),
            Err(error) => failures.of_all(seats, error)?,
        }
    }
    Ok(())
}

fn try_processors(job: &Job) -> Result<(), Error> {
    let before = process::affinity();
    let placed = clone::place_on_processors(job, 0);
    // This thread goes back to the processors that it was on, even after a failed trial.
    if let Ok(cpus) = before {
        let _ = process::set_affinity(&cpus);
    }
    placed
}

fn try_engine(job: &Job, maker: Maker) -> Result<(), Error> {
    let (slots, _free) = clone::buffers(job, 1, 4096)?;
    // Engines that open their files themselves would look for them, those without a disk have nothing to try.
    if !maker.spec.opens_files && !maker.spec.diskless {
        maker.make(&Setup { job, slots, depth: 1, files: 1, names: &[String::new()], clone: 0 })?;
    }
    Ok(())
}
