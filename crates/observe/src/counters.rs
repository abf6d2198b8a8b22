//! Counters of one target as the kernel keeps them, and their growth between two looks.

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Completed requests.
    pub ops: u64,
    /// Bytes of the completed requests.
    pub bytes: u64,
    /// The sum of the latencies of the completed requests in nanoseconds; 0 where the source has no times.
    pub time_ns: u64,
}

/// The counters of one target since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads.
    pub read: Flow,
    /// Writes.
    pub write: Flow,
    /// Discards and flushes of a disk; the requests of an NFS mount that move no data.
    pub other: Flow,
    /// Nanoseconds with a request in flight; None where the source does not tell.
    pub busy_ns: Option<u64>,
    /// Requests in flight at this moment; None where the source does not tell.
    pub in_flight: Option<u64>,
    /// Nanoseconds that requests waited in the client's queue before they were sent (NFS).
    pub queue_ns: Option<u64>,
    /// Nanoseconds from the sending of requests to their answers (NFS).
    pub round_trip_ns: Option<u64>,
    /// Requests sent once more (NFS).
    pub sent_again: u64,
    /// True if the source has latencies.
    pub has_times: bool,
}

/// The growth between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The growth of each counter; `in_flight` is the later moment's.
    By(Counters),
    /// The counters began anew between the looks: the device went and came back, or its statistics were reset.
    Reset,
}

/// The kernel prints times of block devices as 32-bit milliseconds (`unsigned int` in block/genhd.c): they wrap after
/// 49.7 days of summed latency.
const WRAP_NS: u64 = (1 << 32) * 1_000_000;

/// The growth of a counter that wraps at [`WRAP_NS`]; None if it can only have begun anew.
fn time_growth(now: u64, then: u64) -> Option<u64> {
    match now.checked_sub(then) {
        Some(growth) => Some(growth),
        // A wrap leads from the upper half of the range to the lower half.
        None if (WRAP_NS / 2..WRAP_NS).contains(&then) && now < WRAP_NS / 2 => Some(now + WRAP_NS - then),
        None => None,
    }
}

/// The growth of a count of requests or sectors: 64 bits, or 32 on 32-bit kernels.
fn count_growth(now: u64, then: u64) -> Option<u64> {
    const WRAP: u64 = 1 << 32;
    match now.checked_sub(then) {
        Some(growth) => Some(growth),
        None if (WRAP / 4 * 3..WRAP).contains(&then) && now < WRAP / 4 => Some(now + WRAP - then),
        None => None,
    }
}

impl Flow {
    fn since(&self, then: &Flow) -> Option<Flow> {
        Some(Flow {
            ops: count_growth(self.ops, then.ops)?,
            bytes: self.bytes.checked_sub(then.bytes)?,
            time_ns: time_growth(self.time_ns, then.time_ns)?,
        })
    }
}

impl Counters {
    /// The growth since an earlier look at the same target.
    pub fn since(&self, then: &Counters) -> Growth {
        self.grown(then).map_or(Growth::Reset, Growth::By)
    }

    fn grown(&self, then: &Counters) -> Option<Counters> {
        let both = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => time_growth(now, then).map(Some),
            _ => Some(None),
        };
        Some(Counters {
            read: self.read.since(&then.read)?,
            write: self.write.since(&then.write)?,
            other: self.other.since(&then.other)?,
            busy_ns: both(self.busy_ns, then.busy_ns)?,
            in_flight: self.in_flight,
            queue_ns: both(self.queue_ns, then.queue_ns)?,
            round_trip_ns: both(self.round_trip_ns, then.round_trip_ns)?,
            sent_again: self.sent_again.checked_sub(then.sent_again)?,
            has_times: self.has_times,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(ops: u64, time_ms: u64) -> Counters {
        let read = Flow { ops, bytes: ops * 4096, time_ns: time_ms * 1_000_000 };
        Counters { read, has_times: true, ..Counters::default() }
    }

    #[test]
    fn growth_is_the_difference() {
        let Growth::By(growth) = counters(30, 50).since(&counters(10, 20)) else { panic!("no reset") };
        assert_eq!(growth.read, Flow { ops: 20, bytes: 81920, time_ns: 30_000_000 });
    }

    #[test]
    fn times_wrap_at_32_bits_of_milliseconds() {
        let Growth::By(growth) = counters(30, 5).since(&counters(10, u64::from(u32::MAX) - 4)) else {
            panic!("a wrap")
        };
        assert_eq!(growth.read.time_ns, 10_000_000);
    }

    #[test]
    fn a_device_that_came_back_began_anew() {
        assert_eq!(counters(3, 1).since(&counters(10, 20)), Growth::Reset);
        // More requests than before, and less time: no wrap explains it.
        assert_eq!(counters(11, 1).since(&counters(10, 20)), Growth::Reset);
    }

    #[test]
    fn counts_of_32_bit_kernels_wrap() {
        let near = u64::from(u32::MAX) - 4;
        assert_eq!(count_growth(5, near), Some(10));
        assert_eq!(count_growth(5, 1 << 33), None, "a 64-bit count does not wrap");
        assert_eq!(count_growth(5, 10), None);
    }
}
