//! The shares of drives in the window, by occupancy.
//!
//! A drive's occupancy is bytes x residence, which over time is its bytes in flight. While the window is contended,
//! every drive with waiting ops is entitled to an equal part of the window, its *share*. A share that a drive does not
//! want is lent: the *level* is the max-min fair one (water filling) over recent demands, and a drive may go up to it
//! as long as its own latency says that it makes use of the loan (its *own window*). A share is seldom a whole number
//! of ops, so an op that overshoots needs *credit*: the time integral of what the drive was entitled to and did not
//! hold. Hence the average is kept even where one op is more than the share.

use super::Tuning;
use super::fair::SizeClass;
use crate::Op;

/// {read, write} x {<= 16k, <= 64k, larger}.
const CLASSES: usize = 6;
/// A drive's small ops that its cap never holds up.
const SMALL_FLOOR_BYTES: u64 = 64 << 10;
/// Credit is remembered up to this long at the full cap, debt up to ten times that.
const CREDIT_MEMORY_NS: f64 = 2e6;
/// Measurements for which a latency floor is remembered, twice.
const FLOOR_MEASUREMENTS: u32 = 100;
const OWN_WINDOW_UNIT: f64 = 131_072.0;
const OWN_WINDOW_MIN: f64 = 512.0 * 1024.0;
const OWN_WINDOW_MAX: f64 = (1u64 << 34) as f64;

#[derive(Clone, Copy, Debug)]
struct Class {
    /// A running median: a step of 1/64 towards each sample.
    p50_ns: f32,
    samples: u32,
    /// The lowest median of recent measurements, of the present and of the previous generation.
    floor_ns: [f32; 2],
}

#[derive(Clone, Debug)]
struct Drive {
    in_flight: u64,
    small_in_flight: u64,
    held: u64,
    cap: u64,
    credit_byte_ns: f64,
    credit_at_ns: u64,
    peak: u64,
    peak_before: u64,
    own_window: f64,
    classes: [Class; CLASSES],
}

impl Drive {
    /// The demand of the drive lately.
    fn demand(&self) -> u64 {
        self.peak.max(self.peak_before).max(self.in_flight + self.held)
    }

    #[inline]
    fn accrue(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.credit_at_ns) as f64;
        self.credit_at_ns = now_ns;
        let cap = self.cap as f64;
        self.credit_byte_ns += (cap - self.in_flight as f64) * elapsed;
        let memory = cap.max(OWN_WINDOW_UNIT) * CREDIT_MEMORY_NS;
        self.credit_byte_ns = self.credit_byte_ns.clamp(-10.0 * memory, memory);
    }
}

pub(crate) struct Shares {
    drives: Box<[Drive]>,
    contended: bool,
    due_ns: u64,
    /// The next recomputation was brought forward: not again before a regular one, or it would be done at every op.
    hurried: bool,
    rotate_ns: u64,
    largest_op_bytes: u64,
    measurements: u32,
}

fn class_of(op: &Op) -> usize {
    let size = match op.bytes {
        0..=16_384 => 0,
        16_385..=65_536 => 1,
        _ => 2,
    };
    size + if op.write { 3 } else { 0 }
}

impl Shares {
    pub fn new(drives: u32) -> Shares {
        let class = Class { p50_ns: 0.0, samples: 0, floor_ns: [f32::INFINITY; 2] };
        let drive = Drive {
            in_flight: 0,
            small_in_flight: 0,
            held: 0,
            cap: u64::MAX,
            credit_byte_ns: 0.0,
            credit_at_ns: 0,
            peak: 0,
            peak_before: 0,
            own_window: 4.0 * 1024.0 * 1024.0,
            classes: [class; CLASSES],
        };
        Shares {
            drives: vec![drive; drives as usize].into(),
            contended: false,
            due_ns: 0,
            hurried: false,
            rotate_ns: 0,
            largest_op_bytes: 0,
            measurements: 0,
        }
    }

    pub fn largest_op_bytes(&self) -> u64 {
        self.largest_op_bytes
    }

    #[inline]
    pub fn due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    pub fn next_due_ns(&self) -> u64 {
        self.due_ns
    }

    #[inline]
    pub fn admit(&mut self, now_ns: u64, op: &Op, class: SizeClass) {
        let bytes = u64::from(op.bytes);
        let drive = &mut self.drives[op.drive as usize];
        if self.contended {
            drive.accrue(now_ns);
        }
        drive.in_flight += bytes;
        if class == SizeClass::Small {
            drive.small_in_flight += bytes;
        }
        drive.peak = drive.peak.max(drive.in_flight + drive.held);
        self.largest_op_bytes = self.largest_op_bytes.max(bytes);
    }

    pub fn hold(&mut self, op: &Op) {
        let bytes = u64::from(op.bytes);
        let drive = &mut self.drives[op.drive as usize];
        drive.held += bytes;
        drive.peak = drive.peak.max(drive.in_flight + drive.held);
        self.largest_op_bytes = self.largest_op_bytes.max(bytes);
        if !self.contended && !self.hurried {
            // The first op to wait: divide the window now, before one drive has taken it all.
            (self.due_ns, self.hurried) = (0, true);
        }
    }

    pub fn unhold(&mut self, op: &Op) {
        self.drives[op.drive as usize].held -= u64::from(op.bytes);
    }

    #[inline]
    pub fn leave(&mut self, now_ns: u64, op: &Op, class: SizeClass) {
        let bytes = u64::from(op.bytes);
        let drive = &mut self.drives[op.drive as usize];
        if self.contended {
            drive.accrue(now_ns);
        }
        drive.in_flight -= bytes;
        if class == SizeClass::Small {
            drive.small_in_flight -= bytes;
        }
    }

    /// Learns from the latency of an op of the drive.
    #[inline]
    pub fn learn(&mut self, op: &Op, latency_ns: u64) {
        let class = &mut self.drives[op.drive as usize].classes[class_of(op)];
        let latency = latency_ns as f32;
        if class.samples == 0 && class.p50_ns == 0.0 {
            class.p50_ns = latency.max(64.0);
        } else {
            let step = class.p50_ns * (1.0 / 64.0);
            class.p50_ns += if latency > class.p50_ns { step } else { -step };
        }
        class.samples += 1;
    }

    /// True if the op keeps its drive within the drive's share.
    #[inline]
    pub fn eligible(&mut self, now_ns: u64, op: &Op, class: SizeClass) -> bool {
        if !self.contended {
            return true;
        }
        let bytes = u64::from(op.bytes);
        let drive = &mut self.drives[op.drive as usize];
        if class == SizeClass::Small && drive.small_in_flight + bytes <= SMALL_FLOOR_BYTES.max(drive.cap / 4) {
            return true;
        }
        if drive.in_flight + bytes <= drive.cap {
            return true;
        }
        if drive.in_flight >= drive.cap {
            return false;
        }
        drive.accrue(now_ns);
        drive.credit_byte_ns >= 0.0
    }

    /// True if the drive holds less than its cap, so that one op more is a loan and not a grab.
    pub fn below_cap(&self, op: &Op, _lane: SizeClass) -> bool {
        let drive = &self.drives[op.drive as usize];
        !self.contended || drive.in_flight == 0 || drive.in_flight < drive.cap
    }

    /// Divides `window` again.
    pub fn recompute(&mut self, now_ns: u64, window: u64, tuning: &Tuning) {
        self.hurried = self.due_ns == 0;
        self.due_ns = now_ns + tuning.share_us * 1000;
        let (mut active, mut wanted) = (0u64, 0u64);
        for drive in &self.drives {
            let demand = drive.demand();
            active += u64::from(demand > 0);
            wanted = wanted.saturating_add(demand);
        }
        let contended = wanted > window && active > 1;
        if contended {
            let share = window / active;
            let level = self.level(window, active);
            for drive in &mut self.drives {
                if self.contended {
                    drive.accrue(now_ns);
                } else {
                    (drive.credit_byte_ns, drive.credit_at_ns) = (0.0, now_ns);
                }
                drive.cap = share.max(level.min(drive.own_window as u64)).max(1);
            }
        }
        self.contended = contended;
        if now_ns >= self.rotate_ns {
            self.rotate_ns = now_ns + tuning.demand_ms * 1_000_000;
            for drive in &mut self.drives {
                drive.peak_before = drive.peak;
                drive.peak = drive.in_flight + drive.held;
            }
        }
    }

    /// The level at which min(demand, level) over all drives fills the window: a few passes, no sorting.
    fn level(&self, window: u64, active: u64) -> u64 {
        let mut level = window / active;
        for _ in 0..8 {
            let (mut satisfied, mut hungry) = (0u64, 0u64);
            for drive in &self.drives {
                let demand = drive.demand();
                if demand <= level {
                    satisfied += demand;
                } else {
                    hungry += 1;
                }
            }
            if hungry == 0 {
                return u64::MAX;
            }
            let next = window.saturating_sub(satisfied) / hungry;
            if next <= level {
                break;
            }
            level = next;
        }
        level
    }

    /// Each drive's own window follows its latency against its floor: w <- 0.8 w + 0.2 (g w + sqrt(w x 128 KiB)).
    pub fn end_measurement(&mut self, tuning: &Tuning) {
        self.measurements += 1;
        let new_generation = self.measurements.is_multiple_of(FLOOR_MEASUREMENTS);
        for drive in &mut self.drives {
            let mut ratio = 0.0f64;
            for class in &mut drive.classes {
                if class.samples >= 8 {
                    class.floor_ns[0] = class.floor_ns[0].min(class.p50_ns);
                    let floor = class.floor_ns[0].min(class.floor_ns[1]);
                    ratio = ratio.max(f64::from(class.p50_ns / floor));
                }
                class.samples = 0;
                if new_generation {
                    class.floor_ns = [class.p50_ns.max(64.0), class.floor_ns[0]];
                }
            }
            if ratio > 0.0 {
                let gradient = (tuning.latency_tolerance / ratio).clamp(0.5, 1.0);
                let w = drive.own_window;
                drive.own_window = (0.8 * w + 0.2 * (gradient * w + (w * OWN_WINDOW_UNIT).sqrt()))
                    .clamp(OWN_WINDOW_MIN, OWN_WINDOW_MAX);
            }
        }
    }
}
