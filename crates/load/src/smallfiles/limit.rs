//! A limit of the bytes that one thread moves in a second.

/// Says when each call may begin, so that all of them together keep to a rate. A call never begins before its turn, and
/// a call that comes late leaves no turn for another to catch up on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    bytes_per_second: Option<u64>,
    next_ns: u64,
}

impl Limit {
    /// No limit with None.
    pub fn of(bytes_per_second: Option<u64>) -> Limit {
        Limit { bytes_per_second, next_ns: 0 }
    }

    /// The time at which a call of `bytes` bytes may begin, if it is `now_ns`; None: at once.
    pub fn turn_ns(&mut self, now_ns: impl FnOnce() -> u64, bytes: usize) -> Option<u64> {
        let rate = self.bytes_per_second?;
        let now_ns = now_ns();
        let turn_ns = self.next_ns.max(now_ns);
        let takes_ns = (bytes as u128 * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        self.next_ns = turn_ns.saturating_add(takes_ns);
        (turn_ns > now_ns).then_some(turn_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_take_turns_at_the_rate_and_nothing_is_caught_up() {
        let mut limit = Limit::of(Some(1_000));
        assert_eq!(limit.turn_ns(|| 5, 500), None);
        assert_eq!(limit.turn_ns(|| 6, 250), Some(500_000_005));
        assert_eq!(limit.turn_ns(|| 500_000_005, 1), Some(750_000_005));
        assert_eq!(limit.turn_ns(|| 9_000_000_000, 1_000), None, "late");
        assert_eq!(limit.turn_ns(|| 9_000_000_001, 1), Some(10_000_000_000));
        assert_eq!(Limit::of(None).turn_ns(|| unreachable!("no look at the clock"), 1 << 40), None);
    }
}
