//! The global window: the smallest one on the plateau, found from the delivered rate alone.
//!
//! Device latency does not show a cache that spills: the drives answer as fast as ever while the path from memory to
//! the network slows down. The delivered rate shows it. So: measure the rate until it is precise; while the
//! window is what limits, try a larger and a smaller one in turn; keep the larger if more is delivered, and the smaller
//! if nothing is lost. The measurements compared are always fresh: the last measurement at the present window, and the
//! last larger probe, which says what the plateau is worth now. That is what keeps a row of small losses from adding
//! up.

use super::Tuning;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Base,
    Up,
    Down,
}

/// The result of one part of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub rate_bytes_per_s: f64,
    /// True if ops waited for the window.
    pub limited: bool,
    pub largest_op_bytes: u64,
}

/// The rate so far: Welford's mean and variance over the parts of a measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    parts: u32,
    mean: f64,
    squares: f64,
    limited: u32,
}

impl Meter {
    fn add(&mut self, seen: Seen) {
        self.parts += 1;
        self.limited += u32::from(seen.limited);
        let off = seen.rate_bytes_per_s - self.mean;
        self.mean += off / f64::from(self.parts);
        self.squares += off * (seen.rate_bytes_per_s - self.mean);
    }

    /// The standard error of the mean as a fraction of it.
    fn error(&self) -> f64 {
        let n = f64::from(self.parts);
        if self.parts < 2 || self.mean <= 0.0 { 1.0 } else { (self.squares / (n - 1.0) / n).sqrt() / self.mean }
    }
}

#[derive(Debug)]
pub(crate) struct Window {
    /// The window in force, a probe's during a probe.
    bytes: f64,
    /// The window to go back to.
    base_bytes: f64,
    /// The rate last measured at `base_bytes`; 0 before the first.
    base_rate: f64,
    /// The rate of the last larger probe, while nothing has changed since.
    upper_rate: f64,
    phase: Phase,
    next: Phase,
    step: f64,
    /// Measurements until the next probe, and how many there are between probes at present.
    wait: u32,
    patience: u32,
    meter: Meter,
    budget_bytes: f64,
    bytes_now: u64,
}

impl Window {
    pub fn new(tuning: &Tuning, budget_bytes: Option<u64>) -> Window {
        let budget_bytes = budget_bytes.unwrap_or(1 << 50) as f64;
        let bytes = (tuning.start_bytes as f64).min(budget_bytes);
        Window {
            bytes,
            base_bytes: bytes,
            base_rate: 0.0,
            upper_rate: 0.0,
            phase: Phase::Base,
            next: Phase::Up,
            step: tuning.step,
            wait: 1,
            patience: 1,
            meter: Meter::default(),
            budget_bytes,
            bytes_now: bytes as u64,
        }
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes_now
    }

    /// True when this part ended a measurement, so that the window may be another one from now on.
    pub fn add_part(&mut self, tuning: &Tuning, seen: Seen) -> bool {
        self.meter.add(seen);
        let Meter { parts, mean, .. } = self.meter;
        let lost = mean < self.base_rate * (1.0 - tuning.bail_out) && (self.phase != Phase::Base || parts >= 2);
        let enough = parts >= tuning.parts_min && (self.meter.error() <= tuning.precise || parts >= tuning.parts_max);
        if !lost && !enough {
            return false;
        }
        let limited = 2 * self.meter.limited > parts;
        self.meter = Meter::default();
        let floor = (tuning.floor_bytes.max(2 * seen.largest_op_bytes) as f64).min(self.budget_bytes);
        match self.phase {
            Phase::Base => self.base_measured(tuning, mean, limited),
            Phase::Up => self.up_measured(tuning, mean),
            Phase::Down => self.down_measured(tuning, mean),
        }
        if self.phase == Phase::Base && self.wait == 0 && limited {
            self.probe(floor);
        }
        self.base_bytes = self.base_bytes.clamp(floor, self.budget_bytes);
        self.bytes = self.bytes.clamp(floor, self.budget_bytes);
        self.bytes_now = self.bytes as u64;
        true
    }

    fn base_measured(&mut self, tuning: &Tuning, rate: f64, limited: bool) {
        let change = if self.base_rate > 0.0 { (rate / self.base_rate - 1.0).abs() } else { 0.0 };
        if change > tuning.news {
            // The workload or the machine is another one: what was learnt about the plateau is void.
            self.patience = 1;
            self.wait = self.wait.min(1);
            self.upper_rate = 0.0;
        }
        if rate < self.base_rate * (1.0 - tuning.bail_out) {
            // Less is delivered through the same window: if it has become too small, that costs until it is larger.
            (self.next, self.step, self.wait) = (Phase::Up, tuning.step, 0);
        }
        self.base_rate = rate;
        if limited {
            self.wait = self.wait.saturating_sub(1);
        }
    }

    fn up_measured(&mut self, tuning: &Tuning, rate: f64) {
        self.upper_rate = rate;
        if rate > self.base_rate * (1.0 + tuning.keep_up) {
            self.keep(tuning, rate);
        } else {
            self.give_up(tuning, Phase::Down);
        }
    }

    fn down_measured(&mut self, tuning: &Tuning, rate: f64) {
        let plateau = self.base_rate.max(self.upper_rate);
        if rate >= plateau * (1.0 - tuning.keep_down) {
            self.keep(tuning, rate);
        } else {
            self.give_up(tuning, Phase::Up);
        }
    }

    /// The probe is the new base; go on in its direction, faster.
    fn keep(&mut self, tuning: &Tuning, rate: f64) {
        self.base_bytes = self.bytes;
        self.base_rate = rate;
        self.next = self.phase;
        self.phase = Phase::Base;
        self.step = (self.step * self.step).min(tuning.step_max);
        self.patience = 1;
        self.wait = 0;
    }

    fn give_up(&mut self, tuning: &Tuning, next: Phase) {
        self.bytes = self.base_bytes;
        self.phase = Phase::Base;
        // A large step that failed says nothing about a small one in the same direction.
        if self.step > tuning.step {
            self.next = if next == Phase::Up { Phase::Down } else { Phase::Up };
            self.step = tuning.step;
            self.wait = 1;
            return;
        }
        self.next = next;
        self.wait = self.patience;
        self.patience = (self.patience * 2).min(tuning.patience_max);
    }

    fn probe(&mut self, floor: f64) {
        // At an end of the range only the other direction is left.
        if self.next == Phase::Up && self.base_bytes >= self.budget_bytes {
            self.next = Phase::Down;
        }
        if self.next == Phase::Down && self.base_bytes <= floor {
            self.next = Phase::Up;
        }
        self.phase = self.next;
        self.bytes = match self.phase {
            Phase::Up => self.base_bytes * self.step,
            _ => self.base_bytes / self.step,
        };
    }
}
