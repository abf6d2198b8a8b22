//! The search for clones that would write the blocks that another clone verifies.
//!
//! A clone knows the data that it wrote, and nothing about the writes of other clones. Where two of them write the same
//! bytes at the same time, no data that it reads back proves that the storage is wrong.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use job::Job;
use job::job::{Plan, VerifyKind};
use job::workload::FileExtent;

use crate::Error;

/// One file of one clone.
struct Use<'a> {
    job: usize,
    clone: u32,
    name: &'a str,
    extent: FileExtent,
}

/// The identity that two names of one file have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    File { device: u64, inode: u64 },
    Device { number: u64 },
    Name(String),
}

impl Identity {
    pub fn of(name: &str) -> Identity {
        match fs::metadata(name) {
            Ok(found) if found.file_type().is_block_device() => Identity::Device { number: found.rdev() },
            Ok(found) => Identity::File { device: found.dev(), inode: found.ino() },
            Err(_) => Identity::Name(name.to_owned()),
        }
    }
}

/// Refuses plans in which a clone verifies blocks that another writes meanwhile. `clones` are the job's index, the
/// clone's number, and the names and extents of its files.
///
/// # Errors
/// Two clones of one stage share bytes: one clone writes them and reads them back, and the other clone writes them too.
pub(super) fn refuse_shared_writes<'a>(
    plan: &Plan,
    clones: impl Iterator<Item = (usize, u32, Vec<(&'a str, FileExtent)>)>,
) -> Result<(), Error> {
    if !plan.jobs.iter().any(reads_back) {
        return Ok(());
    }
    let mut stage: HashMap<Identity, Vec<Use>> = HashMap::new();
    for (job, clone, files) in clones {
        if plan.jobs[job].time.stonewall && clone == 0 {
            stage.clear();
        }
        if !plan.jobs[job].changes_data() {
            continue;
        }
        for (name, extent) in files {
            let added = Use { job, clone, name, extent };
            let uses = stage.entry(Identity::of(name)).or_default();
            if let Some(other) = uses.iter().find(|other| clash(plan, other, &added)) {
                return Err(refusal(plan, other, &added));
            }
            uses.push(added);
        }
    }
    Ok(())
}

fn reads_back(job: &Job) -> bool {
    let verify = job.verify.as_ref().filter(|verify| verify.enabled && verify.kind != VerifyKind::Null);
    verify.is_some() && job.changes_data()
}

/// True if two uses of one file must not run at the same time.
fn clash(plan: &Plan, one: &Use, other: &Use) -> bool {
    let (a, b) = (&plan.jobs[one.job], &plan.jobs[other.job]);
    // Jobs that wait for something may run one after the other.
    let together = [a, b].iter().all(|job| job.time.wait_for.is_none() && job.time.start_delay_ns == (0, 0));
    // Clones of one job write the same pattern into the same block.
    let kind = a.verify.as_ref().map(|verify| verify.kind);
    let trims = a.rw.directions.trim || a.verify.as_ref().is_some_and(|verify| verify.trims.percent > 0);
    let alike = one.job == other.job && kind == Some(VerifyKind::PatternOnly) && !trims;
    let (from, to) = (one.extent.offset, one.extent.offset.saturating_add(one.extent.size));
    let overlap = from < other.extent.offset.saturating_add(other.extent.size) && other.extent.offset < to;
    (reads_back(a) || reads_back(b)) && together && !alike && overlap
}

fn refusal(plan: &Plan, one: &Use, other: &Use) -> Error {
    let (a, b) = (&plan.jobs[one.job].name, &plan.jobs[other.job].name);
    let who = if one.job != other.job {
        format!("jobs {a} and {b} write")
    } else if one.clone != other.clone {
        format!("clones of job {a} write")
    } else {
        format!("job {a} names a file twice and writes")
    };
    Error::usage(
        format!("{who} the same blocks at the same time, and verify= cannot tell whose data must be there:"),
        other.name,
        "give each clone a separate file or offset (offset_increment=), separate jobs by stonewall, or set do_verify=0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::job::Verify;
    use measure::PerDirection;

    fn writer(name: &str) -> Job {
        let mut job = Job { name: name.into(), ..Job::default() };
        job.rw.directions = PerDirection { read: false, write: true, trim: false };
        job.verify = Some(Verify { kind: VerifyKind::Crc32c, ..Verify::default() });
        job
    }

    fn refused(jobs: Vec<Job>, uses: &[(usize, u32, &'static str, u64)]) -> bool {
        let plan = Plan { jobs, ..Plan::default() };
        let clones = uses
            .iter()
            .map(|&(job, clone, name, offset)| (job, clone, vec![(name, FileExtent { offset, size: 8192 })]));
        refuse_shared_writes(&plan, clones).is_err()
    }

    #[test]
    fn blocks_that_are_verified_have_one_writer() {
        let clones = |second| [(0, 0, "/nowhere/a", 0), (0, 1, "/nowhere/a", second)];
        assert!(refused(vec![writer("w")], &clones(4096)));
        assert!(!refused(vec![writer("w")], &clones(8192)), "they lie apart");
        let edited = |edit: fn(&mut Job)| {
            let mut job = writer("w");
            edit(&mut job);
            vec![job]
        };
        assert!(!refused(edited(|job| job.verify.as_mut().unwrap().enabled = false), &clones(0)));
        assert!(!refused(edited(|job| job.verify.as_mut().unwrap().only = true), &clones(0)));
        assert!(!refused(edited(|job| job.verify.as_mut().unwrap().kind = VerifyKind::PatternOnly), &clones(0)));
        assert!(!refused(edited(|job| job.rw.directions = Job::default().rw.directions), &clones(0)));
    }

    #[test]
    fn jobs_clash_only_while_both_run() {
        let uses = [(0, 0, "/dev/null", 0), (1, 0, "/dev/../dev/null", 0)];
        let two = |edit: fn(&mut Job)| {
            let mut second = Job { verify: None, ..writer("b") };
            edit(&mut second);
            vec![writer("a"), second]
        };
        assert!(refused(two(|_| {}), &uses), "two names of one file");
        assert!(!refused(two(|job| job.time.stonewall = true), &uses));
        assert!(!refused(two(|job| job.time.wait_for = Some("a".into())), &uses));
        assert!(!refused(two(|job| job.rw.directions = Job::default().rw.directions), &uses), "it only reads");
    }
}
