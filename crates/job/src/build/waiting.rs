//! The jobs for which a job waits: `wait_for` and `stonewall`.

use crate::error::{Error, Place};
use crate::job::Job;

/// Refuses jobs that wait for each other, because none of them would start. `places` has the place of the `wait_for` of
/// each job.
///
/// # Errors
/// A job that waits for itself, by the name that it waits for or by way of others.
pub(super) fn check(jobs: &[Job], places: &[Option<Place>]) -> Result<(), Error> {
    for (index, (job, place)) in jobs.iter().zip(places).enumerate() {
        let (Some(awaited), Some(place)) = (&job.time.wait_for, place) else { continue };
        if reached(jobs, index)[index] {
            let itself = if *awaited == job.name { "itself" } else { "a job that waits for this one" };
            let what = format!("wait_for={awaited}: job {} would wait for {itself}, and never start", job.name);
            return Err(Error::new(place, what + ": name a job that starts without this one"));
        }
    }
    Ok(())
}

/// Refuses a job that waits for a job that is not there, as fio does.
///
/// # Errors
/// A `wait_for` of a name that no job has.
pub(super) fn all_known(jobs: &[Job], places: &[Option<Place>]) -> Result<(), Error> {
    for (job, place) in jobs.iter().zip(places) {
        let (Some(awaited), Some(place)) = (&job.time.wait_for, place) else { continue };
        if !jobs.iter().any(|other| other.name == *awaited) {
            let what = format!("wait_for={awaited}: job {} waits for a job that is not there", job.name);
            return Err(Error::new(place, what + ": name one of the jobs of this run"));
        }
    }
    Ok(())
}

/// For each job, true if job `from` waits for its end, at once or by way of others.
fn reached(jobs: &[Job], from: usize) -> Vec<bool> {
    // The number of the last stonewall up to each job: all jobs before it end first.
    let wall = |index: usize| (0..=index).rev().find(|&at| jobs[at].time.stonewall).unwrap_or(0);
    let mut reached = vec![false; jobs.len()];
    let mut open = vec![from];
    while let Some(index) = open.pop() {
        let awaited = jobs[index].time.wait_for.as_deref();
        let wall = wall(index);
        for (other, job) in jobs.iter().enumerate() {
            if !reached[other] && (other < wall || awaited == Some(job.name.as_str())) {
                reached[other] = true;
                open.push(other);
            }
        }
    }
    reached
}
