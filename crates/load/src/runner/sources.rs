//! The sources of traffic: the workload as it is, the workload with verification, and a recorded log.

mod passes;
mod plain;
mod replay;
mod verifying;

use job::Job;
use job::workload::{FileExtent, random};
use measure::Direction;

use crate::Error;
pub(super) use plain::Plain;
pub(super) use replay::{Replay, survey};
pub(super) use verifying::{Verifying, verification_failed};

/// The traffic of one clone.
pub(super) enum Source {
    /// The workload.
    Plain(Box<Plain>),
    /// The workload, and its data checked.
    Verifying(Box<Verifying>),
    /// `read_iolog`.
    Replay(Box<Replay>),
}

impl Source {
    /// The source that `job` asks for.
    ///
    /// # Errors
    /// An extent too small for a block, an iolog that cannot be read.
    pub fn new(job: &Job, clone: u32, extents: &[FileExtent]) -> Result<Source, Error> {
        if job.iolog.read.is_some() {
            Replay::new(job, clone).map(|replay| Source::Replay(Box::new(replay)))
        } else if job.verify.is_some() {
            Verifying::new(job, clone, extents).map(|verifying| Source::Verifying(Box::new(verifying)))
        } else {
            Plain::new(job, clone, extents).map(|plain| Source::Plain(Box::new(plain)))
        }
    }
}

/// The largest block that a clone of this job has in flight, in bytes.
pub(super) fn largest_block(job: &Job) -> u64 {
    let data = [Direction::Read, Direction::Write].map(|d| {
        let split = job.blocks.split[d].iter().map(|&(bytes, _)| bytes).max().unwrap_or(0);
        // With bs_is_seq_rand, both sizes serve every direction.
        let used = job.rw.directions[d] || job.verify.is_some() || job.blocks.is_seq_rand;
        if used { job.blocks.range[d].1.max(split) } else { 0 }
    });
    data.into_iter().max().unwrap_or(0).max(1)
}

/// The seed of one clone.
pub(super) fn clone_seed(job: &Job, clone: u32) -> u64 {
    random::clone_seed(job.pattern.seed, &job.name, clone)
}
