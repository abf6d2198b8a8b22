//! The time from which a job is measured, and the time at which it ends.

use super::Draft;
use crate::error::Error;
use crate::lint;

impl Draft {
    pub(super) fn time(&mut self) -> Result<(), Error> {
        if self.job.time.time_based && self.job.time.runtime_ns.is_none() {
            self.job.time.time_based = false;
            self.warn_at("time_based", lint::NO_RUNTIME);
        }
        if self.job.time.ramp_bytes > 0 && self.job.time.ramp_ns > 0 {
            return self.fail(
                "ramp_size",
                "ramp_size and ramp_time both say when measuring begins",
                "keep one of them",
            );
        }
        self.steady_state()
    }
}
