//! A limit on what one drive does: token buckets for ops and for bytes, of reads, of writes and of both.
//!
//! Each bucket fills at its rate, up to [`BURST_NS`] worth of it. An op goes when no bucket that it draws from is in
//! debt; it may overdraw them by itself, so that an op larger than the burst still goes, and the debt is paid before
//! the next. The rate over a long time is exact.

/// The time whose worth a bucket holds at the most: idle time is not saved up.
const BURST_NS: u64 = 10_000_000;
const NS_PER_S: f64 = 1e9;

/// Limits per second; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Reads and writes together, in ops.
    pub ops_per_s: u64,
    /// Reads and writes together, in bytes.
    pub bytes_per_s: u64,
    /// Bytes of reads per second; 0 for no limit.
    pub read_bytes_per_s: u64,
    /// Bytes of writes per second; 0 for no limit.
    pub write_bytes_per_s: u64,
}

impl Rates {
    /// True if nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Rates::default()
    }
}

/// Tokens of one limit; a limit of 0 has as many as are asked for.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_s: f64,
    level: f64,
}

impl Bucket {
    fn full(per_s: u64) -> Bucket {
        let per_s = per_s as f64;
        Bucket { per_s, level: per_s * BURST_NS as f64 / NS_PER_S }
    }

    fn fill(&mut self, elapsed_ns: u64) {
        let most = self.per_s * BURST_NS as f64 / NS_PER_S;
        self.level = (self.level + elapsed_ns as f64 * self.per_s / NS_PER_S).min(most);
    }

    fn take(&mut self, tokens: u64) {
        if self.per_s > 0.0 {
            self.level -= tokens as f64;
        }
    }

    /// Nanoseconds until the debt is paid, rounded up.
    fn debt_ns(&self) -> u64 {
        if self.level < 0.0 { (-self.level * NS_PER_S / self.per_s).ceil() as u64 } else { 0 }
    }
}

/// The buckets of one drive. Pure: callers pass the time in, and keep the ops that must wait.
#[derive(Clone, Debug)]
pub struct Throttle {
    rates: Rates,
    ops: Bucket,
    bytes: Bucket,
    /// Bytes of reads, of writes.
    directions: [Bucket; 2],
    filled_ns: u64,
}

impl Throttle {
    /// Full buckets of these rates.
    pub fn new(rates: Rates, now_ns: u64) -> Throttle {
        Throttle {
            rates,
            ops: Bucket::full(rates.ops_per_s),
            bytes: Bucket::full(rates.bytes_per_s),
            directions: [Bucket::full(rates.read_bytes_per_s), Bucket::full(rates.write_bytes_per_s)],
            filled_ns: now_ns,
        }
    }

    /// The rates that the throttle was made with.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// Nanoseconds until an op of that direction may go; 0 if one may go at once.
    pub fn wait_ns(&mut self, now_ns: u64, is_write: bool) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = now_ns.max(self.filled_ns);
        let [reads, writes] = &mut self.directions;
        for bucket in [&mut self.ops, &mut self.bytes, reads, writes] {
            bucket.fill(elapsed_ns);
        }
        let own = self.directions[usize::from(is_write)];
        self.ops.debt_ns().max(self.bytes.debt_ns()).max(own.debt_ns())
    }

    /// True if an op of `bytes` may go now: the buckets have paid for it then.
    pub fn take(&mut self, now_ns: u64, bytes: u64, is_write: bool) -> bool {
        if self.wait_ns(now_ns, is_write) > 0 {
            return false;
        }
        self.ops.take(1);
        self.bytes.take(bytes);
        self.directions[usize::from(is_write)].take(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ops and bytes that go within a second of reads and writes in turn, each tried when the throttle lets it.
    fn in_a_second(rates: Rates, bytes: u64, is_write: impl Fn(u64) -> bool) -> (u64, u64) {
        let (mut throttle, mut now_ns, mut ops) = (Throttle::new(rates, 0), 0, 0);
        while now_ns < 1_000_000_000 {
            if throttle.take(now_ns, bytes, is_write(ops)) {
                ops += 1;
                now_ns += 1_000; // the drive takes a microsecond
            } else {
                now_ns += throttle.wait_ns(now_ns, is_write(ops)).max(1);
            }
        }
        (ops, ops * bytes)
    }

    fn is_near(value: u64, expected: u64) -> bool {
        value.abs_diff(expected) * 50 <= expected
    }

    #[test]
    fn each_limit_holds_and_the_tightest_decides() {
        let (ops, _) = in_a_second(Rates { ops_per_s: 5_000, ..Rates::default() }, 4096, |op| op % 2 == 0);
        assert!(is_near(ops, 5_000), "{ops}");
        let (_, bytes) = in_a_second(Rates { bytes_per_s: 50 << 20, ..Rates::default() }, 65_536, |op| op % 2 == 0);
        assert!(is_near(bytes, 50 << 20), "{bytes}");
        let both = Rates { ops_per_s: 100, bytes_per_s: 50 << 20, ..Rates::default() };
        assert!(is_near(in_a_second(both, 4096, |_| false).0, 100));
        // One op is larger than the burst.
        let (_, bytes) = in_a_second(Rates { bytes_per_s: 8 << 20, ..Rates::default() }, 1 << 20, |_| true);
        assert!(bytes.abs_diff(8 << 20) <= 1 << 20, "{bytes}");
    }

    #[test]
    fn a_limit_of_one_direction_leaves_the_other_alone() {
        let writes = Rates { write_bytes_per_s: 1 << 20, ..Rates::default() };
        assert!(is_near(in_a_second(writes, 4096, |_| true).1, 1 << 20));
        assert_eq!(in_a_second(writes, 4096, |_| false).0, 1_000_000);
        assert_eq!(in_a_second(Rates::default(), 4096, |_| true).0, 1_000_000);
        let reads = Rates { read_bytes_per_s: 1 << 20, ..Rates::default() };
        assert!(is_near(in_a_second(reads, 4096, |_| false).1, 1 << 20));
    }

    #[test]
    fn idle_time_is_not_saved_up_and_no_rate_is_too_large() {
        let mut throttle = Throttle::new(Rates { ops_per_s: 1_000, ..Rates::default() }, 0);
        let burst = (0..100).filter(|_| throttle.take(1 << 50, 1, false)).count();
        assert!((10..=11).contains(&burst), "{burst}");
        let wild =
            Rates { ops_per_s: u64::MAX, bytes_per_s: u64::MAX, read_bytes_per_s: 1, write_bytes_per_s: u64::MAX };
        let mut throttle = Throttle::new(wild, 0);
        assert!(throttle.take(0, u64::MAX, false) && !throttle.take(1, 1, false) && throttle.wait_ns(2, false) > 0);
    }
}
