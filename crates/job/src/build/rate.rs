//! Rates, pauses, and the latency that a job keeps.

use measure::{Direction, PerDirection};

use super::Draft;
use crate::error::Error;
use crate::job::LatencyGoal;

impl Draft {
    pub(super) fn rate(&mut self) -> Result<(), Error> {
        let rate = &self.job.rate;
        let any = |each: &PerDirection<Option<u64>>| each.iter().any(|(_, value)| value.is_some());
        if (any(&rate.bytes) && any(&rate.iops)) || (any(&rate.min_bytes) && any(&rate.min_iops)) {
            return self.fail("rate_iops", "rate and rate_iops exclude each other", "leave one of them out");
        }
        for direction in Direction::ALL {
            let exceeds = |least: Option<u64>, rate: Option<u64>| matches!((least, rate), (Some(least), Some(rate)) if least > rate);
            if exceeds(rate.min_bytes[direction], rate.bytes[direction])
                || exceeds(rate.min_iops[direction], rate.iops[direction])
            {
                let name = if self.is_set("rate_min") { "rate_min" } else { "rate_iops_min" };
                return self.fail(
                    name,
                    format!("{} is more than the rate itself", self.written(name)),
                    "the least rate lies below the rate",
                );
            }
        }
        let rate = &mut self.job.rate;
        rate.think_spin_ns = rate.think_spin_ns.min(rate.think_ns);
        rate.flow = Some(self.flow).filter(|flow| flow.weight > 0);
        self.latency_goal();
        Ok(())
    }

    fn latency_goal(&mut self) {
        if self.latency.target_ns == 0 {
            return;
        }
        let window_ns = if self.latency.window_ns == 0 { 1_000_000_000 } else { self.latency.window_ns };
        self.job.rate.latency_target = Some(LatencyGoal { window_ns, ..self.latency });
        if self.latency.window_ns == 0 {
            self.warn_at(
                "latency_target",
                "latency_target without latency_window: each depth is tried for a second; add latency_window=5s",
            );
        }
    }
}
