//! The distance of two hosts' clocks: the shortest of many round trips tells it best.
//!
//! F. Cristian, "Probabilistic clock synchronization" (1989): a reply that took a round trip of `rtt` was written
//! between its two ends, so the other clock is known to within `rtt / 2`, whatever the two ways took.

use serde::{Deserialize, Serialize};

/// One round trip of a question about the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The time on this clock when the question left, in nanoseconds.
    pub asked_ns: u64,
    /// The time on the other clock when it answered.
    pub there_ns: u64,
    /// The time on this clock when the answer arrived.
    pub answered_ns: u64,
}

/// Clocks move against each other by less than this part of the time: crystals by 1/10,000, clocks that are being set
/// slowly by 1/2,000 (adjtimex(2)).
const MOST_DRIFT: u64 = 1000;

/// The time by which another clock is ahead of this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// The other clock minus this one, in nanoseconds.
    pub ahead_ns: i64,
    /// The true value is at most this far from it.
    pub bound_ns: u64,
}

impl Offset {
    /// The offset that one round trip shows.
    pub fn of(trip: &RoundTrip) -> Offset {
        let rtt_ns = trip.answered_ns.saturating_sub(trip.asked_ns);
        let middle_ns = trip.asked_ns + rtt_ns / 2;
        Offset { ahead_ns: trip.there_ns.wrapping_sub(middle_ns) as i64, bound_ns: rtt_ns.div_ceil(2) }
    }

    /// True if both clocks may be one: the offset is 0 within its bound.
    pub fn may_be_none(self) -> bool {
        self.ahead_ns.unsigned_abs() <= self.bound_ns
    }

    /// The nanoseconds by which the clocks have moved against each other until the comparison `after`; None if they
    /// have not moved farther than clocks do by themselves in `ns` nanoseconds, within the bounds of both comparisons.
    pub fn moved(self, after: Offset, ns: u64) -> Option<u64> {
        let moved_ns = after.ahead_ns.abs_diff(self.ahead_ns);
        (moved_ns > self.bound_ns + after.bound_ns + ns / MOST_DRIFT).then_some(moved_ns)
    }

    /// The one of two offsets that is known better.
    pub fn better(self, other: Offset) -> Offset {
        if other.bound_ns < self.bound_ns { other } else { self }
    }

    /// The offset of a clock beyond the other: bounds add up.
    pub fn then(self, further: Offset) -> Offset {
        Offset { ahead_ns: self.ahead_ns + further.ahead_ns, bound_ns: self.bound_ns + further.bound_ns }
    }

    /// A moment of this clock on the other one.
    pub fn there(&self, here_ns: u64) -> u64 {
        here_ns.wrapping_add_signed(self.ahead_ns)
    }

    /// A moment of the other clock on this one.
    pub fn here(&self, there_ns: u64) -> u64 {
        there_ns.wrapping_add_signed(-self.ahead_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_bound(
            ahead in -1_000_000_000_000i64..1_000_000_000_000,
            trips in proptest::collection::vec((0u64..5_000_000, 0u64..5_000_000, 0u64..1_000_000_000), 1..50),
        ) {
            let mut best: Option<Offset> = None;
            for (there, back, pause) in trips {
                let asked_ns = 2_000_000_000_000 + pause;
                let there_ns = (asked_ns + there).wrapping_add_signed(ahead);
                let offset = Offset::of(&RoundTrip { asked_ns, there_ns, answered_ns: asked_ns + there + back });
                best = Some(best.map_or(offset, |best| best.better(offset)));
            }
            let best = best.unwrap();
            prop_assert!(best.ahead_ns.abs_diff(ahead) <= best.bound_ns + 1, "{best:?} of {ahead}");
            prop_assert_eq!(best.here(best.there(12345)), 12345);
        }
    }

    #[test]
    fn a_clock_that_was_set_has_moved_and_a_slow_one_has_not() {
        let known = |ahead_ns| Offset { ahead_ns, bound_ns: 40 };
        let second = 1_000_000_000;
        assert_eq!(known(0).moved(known(500_000), second), None, "500 millionths");
        assert_eq!(known(0).moved(known(-80), 0), None, "within the bounds");
        assert_eq!(known(-7).moved(known(1_000_000_000), second), Some(1_000_000_007));
        assert_eq!((known(40).may_be_none(), known(-41).may_be_none()), (true, false));
    }

    #[test]
    fn along_a_path_offsets_and_bounds_add_up() {
        let (near, far) = (Offset { ahead_ns: 100, bound_ns: 5 }, Offset { ahead_ns: -300, bound_ns: 7 });
        assert_eq!(near.then(far), Offset { ahead_ns: -200, bound_ns: 12 });
    }
}
