//! The requests in flight, as a mean over time, and Little's law on it.
//!
//! The integral of the requests in flight over the measured part, divided by its length, is the depth that the storage
//! saw. The mean at submissions is another figure: submissions crowd where the queue is short.
//!
//! By Little's law (Little, "A Proof for the Queuing Formula L = lambda W", 1961) the rate times the mean latency is
//! that depth, as long as requests that began before the measured part, or ended after it, hardly count.

use crate::Histogram;
use crate::schema::JobResult;

/// Part of the depth in flight from which on the queue was kept full.
const KEPT_FULL: f64 = 0.97;

impl JobResult {
    /// Requests in flight, the mean over the measured part, those of all clones together; 0 where it is not known.
    pub fn in_flight(&self) -> f64 {
        let ns = self.runtime_ns as f64;
        match self.depth.in_flight_ns {
            _ if self.runtime_ns == 0 => 0.0,
            // Results without the integral: the latencies of all requests are the same time.
            0 => self.latencies_ns() / ns,
            in_flight_ns => in_flight_ns as f64 / ns,
        }
    }

    /// Requests in flight while the job issued ops, those of all clones together: draining does not count.
    pub fn in_flight_while_issuing(&self) -> f64 {
        match self.depth.issuing_ns {
            0 => self.in_flight(),
            ns => self.depth.issuing_in_flight_ns as f64 / ns as f64,
        }
    }

    /// The depth that the job asked for, that of all clones together.
    pub fn asked_depth(&self) -> f64 {
        let depth = if self.facts.synchronous { 1 } else { self.facts.iodepth.max(1) };
        f64::from(depth) * f64::from(self.clones.max(1))
    }

    /// The rate times the mean latency, as a part of the depth, where the queue was kept full: 1 by Little's law. None
    /// where the queue was not kept full, or the result does not record enough to tell.
    pub fn little_ratio(&self) -> Option<f64> {
        let asked = self.asked_depth();
        let full = self.depth.issuing_ns > 0 && self.in_flight_while_issuing() >= KEPT_FULL * asked;
        let latencies_ns = self.latencies_ns();
        (full && latencies_ns > 0.0).then(|| latencies_ns / (self.runtime_ns as f64 * asked))
    }

    /// The sum of the latencies of all ops.
    fn latencies_ns(&self) -> f64 {
        let sum = |latency: &Histogram| latency.sum() as f64;
        let of_direction = self.directions.iter().map(|(_, one)| match one.lat_ns.is_empty() {
            false => sum(&one.lat_ns),
            true => sum(&one.slat_ns) + sum(&one.clat_ns),
        });
        of_direction.sum::<f64>() + sum(&self.sync.lat_ns)
    }
}
