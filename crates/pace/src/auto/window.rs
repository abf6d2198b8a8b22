//! The global window: the smallest one on the plateau, found from the delivered rate alone.
//!
//! Device latency does not show a cache that spills: the drives answer as fast as ever while the path from memory to
//! the network slows down. The delivered rate shows it. So: measure the rate for an epoch; while the
//! window is what limits, try a larger and a smaller one in turn; keep the larger if more is delivered, and the smaller if
//! nothing is lost. What is compared is always fresh: the last epoch at the present window, and the last larger
//! probe, which says what the plateau is worth now. That is what keeps a row of small losses from adding up.

use super::Tuning;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Base,
    Up,
    Down,
}

/// What one epoch has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowInput {
    pub rate_bytes_per_s: f64,
    /// Whether ops waited for the window during the epoch.
    pub limited: bool,
    pub largest_op_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Window {
    /// The window in force, a probe's during a probe.
    bytes: f64,
    /// The window to go back to.
    base_bytes: f64,
    /// The rate of the last epoch at `base_bytes`; 0 before the first.
    base_rate: f64,
    /// The rate of the last larger probe, while nothing has changed since.
    upper_rate: f64,
    phase: Phase,
    next: Phase,
    step: f64,
    /// Epochs until the next probe, and how many there are between probes at present.
    wait: u32,
    patience: u32,
    /// Mean relative change between epochs at the same window: a probe must beat it.
    noise: f64,
    measuring_since_ns: u64,
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
            noise: 0.0,
            measuring_since_ns: 0,
            budget_bytes,
            bytes_now: bytes as u64,
        }
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes_now
    }

    pub fn measuring_since_ns(&self) -> u64 {
        self.measuring_since_ns
    }

    pub fn start_measuring(&mut self, at_ns: u64) {
        self.measuring_since_ns = at_ns;
    }

    /// The next window, given what the epoch at the present one has shown.
    pub fn epoch(&mut self, tuning: &Tuning, seen: WindowInput) {
        let floor = (tuning.floor_bytes.max(2 * seen.largest_op_bytes) as f64).min(self.budget_bytes);
        match self.phase {
            Phase::Base => self.base_epoch(tuning, seen),
            Phase::Up => self.up_epoch(tuning, seen),
            Phase::Down => self.down_epoch(tuning, seen),
        }
        if self.phase == Phase::Base && self.wait == 0 && seen.limited {
            self.probe(floor);
        }
        self.base_bytes = self.base_bytes.clamp(floor, self.budget_bytes);
        self.bytes = self.bytes.clamp(floor, self.budget_bytes);
        self.bytes_now = self.bytes as u64;
    }

    fn base_epoch(&mut self, tuning: &Tuning, seen: WindowInput) {
        let rate = seen.rate_bytes_per_s;
        let change = if self.base_rate > 0.0 { (rate / self.base_rate - 1.0).abs() } else { 0.0 };
        if change > tuning.news {
            // The workload or the machine is another one: what was learnt about the plateau is void.
            self.patience = 1;
            self.wait = self.wait.min(1);
            self.upper_rate = 0.0;
        } else {
            self.noise = 0.8 * self.noise + 0.2 * change;
        }
        self.base_rate = rate;
        if seen.limited {
            self.wait = self.wait.saturating_sub(1);
        }
    }

    fn up_epoch(&mut self, tuning: &Tuning, seen: WindowInput) {
        let rate = seen.rate_bytes_per_s;
        self.upper_rate = rate;
        if rate > self.base_rate * (1.0 + tuning.keep_up.max(2.0 * self.noise)) {
            self.keep(tuning, rate);
        } else {
            self.give_up(tuning, Phase::Down);
        }
    }

    fn down_epoch(&mut self, tuning: &Tuning, seen: WindowInput) {
        let rate = seen.rate_bytes_per_s;
        let plateau = self.base_rate.max(self.upper_rate);
        if rate >= plateau * (1.0 - tuning.keep_down.max(self.noise.min(0.02))) {
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
