//! `steadystate` with its window and the time between two looks at the figure.

use super::Draft;
use crate::error::Error;
use crate::job::SteadyState;
use crate::options::values::{STEADY_DEFAULT, STEADY_INTERVAL_NS};

impl Draft {
    /// Sets the criterion of the job, if it has one.
    ///
    /// # Errors
    /// Looks that come too often, or fewer than two of them in the window.
    pub(super) fn steady_state(&mut self) -> Result<(), Error> {
        let (window_ns, interval_ns) = (self.steady_window_ns, self.steady_interval_ns);
        // As in fio, the duration alone asks for the default of the criterion.
        let Some(steady) = self.steady.or((window_ns > 0).then_some(STEADY_DEFAULT)) else { return Ok(()) };
        if window_ns == 0 {
            self.warn_at(
                "steadystate",
                "steadystate has no effect without steadystate_duration: add steadystate_duration=30s",
            );
            return Ok(());
        }
        let name = "steadystate_check_interval";
        if interval_ns < STEADY_INTERVAL_NS {
            let what = format!("{} is too short: shorter times have more noise than signal", self.written(name));
            return self.fail(name, what, "give at least a second");
        }
        if self.is_set(name) && interval_ns.saturating_mul(2) > window_ns {
            let what = format!("{}: fewer than two looks fit into steadystate_duration", self.written(name));
            return self.fail(name, what, "lower it, or raise steadystate_duration");
        }
        self.job.time.steady_state =
            Some(SteadyState { window_ns, ramp_ns: self.steady_ramp_ns, interval_ns, ..steady });
        Ok(())
    }
}
