//! The rules of `dedupe_mode=working_set`.

use super::Draft;
use crate::error::Error;
use crate::job::{Amount, Job, WorkingSet};

/// `dedupe_mode` and its companions.
#[derive(Clone, Copy)]
pub(crate) struct Dedupe {
    pub from_set: bool,
    pub percent: u64,
    pub global: bool,
}

impl Draft {
    /// The set of blocks that `dedupe_mode=working_set` repeats.
    pub(super) fn working_set(&mut self) -> Result<(), Error> {
        if !self.dedupe.from_set || self.job.buffers.dedupe_percent == 0 {
            for name in ["dedupe_working_set_percentage", "dedupe_global"] {
                let is_given = self.setting(name).is_some_and(|setting| setting.value.as_deref() != Some("0"));
                if is_given && !self.dedupe.from_set {
                    self.warn_at(name, format!("{name} has no effect without dedupe_mode=working_set"));
                }
            }
            return Ok(());
        }
        let extent = &self.job.extent;
        let bytes = match (extent.size, extent.file_size) {
            (Some(Amount::Bytes(bytes)), _) => bytes,
            (_, Some((_, largest))) => largest.saturating_mul(self.job.files.count.into()),
            _ => {
                let hint = "write size in bytes, for example size=1g";
                return self.fail(
                    "dedupe_mode",
                    "dedupe_mode=working_set needs size, of which the set is a part",
                    hint,
                );
            }
        };
        let part = (u128::from(bytes) * u128::from(self.dedupe.percent) / 100) as u64;
        let blocks = (part / self.job.blocks.range.write.0).max(1);
        self.job.buffers.working_set =
            Some(WorkingSet { blocks, global: self.dedupe.global, writers: 1, first_writer: 0 });
        Ok(())
    }
}

/// Divides the blocks that all jobs share among the clones of these jobs.
pub(super) fn divide(jobs: &mut [Job]) {
    let shares = |job: &Job| job.buffers.working_set.is_some_and(|set| set.global);
    let all = jobs.iter().filter(|job| shares(job)).map(|job| u64::from(job.process.clones)).sum();
    let mut first = 0;
    for job in jobs.iter_mut().filter(|job| shares(job)) {
        let clones = u64::from(job.process.clones);
        if let Some(set) = &mut job.buffers.working_set {
            (set.writers, set.first_writer) = (all, first);
        }
        first += clones;
    }
}
