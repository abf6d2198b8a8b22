//! The progress of a peer: bytes that the target awaits from the peer, or that the peer is to take, must move at a
//! least rate.
//!
//! A pause is not held against a peer, nor a slow network: the bytes that have moved in a whole period count. A peer
//! that lets single bytes drip, to hold the memory of its transfer forever, moves less than any network that works.

/// Bytes that move in one direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The time since which bytes have been awaited, counted again after each period; `None` while nothing is awaited.
    since_ns: Option<u64>,
    /// Bytes that have moved since then.
    bytes: u64,
}

impl Progress {
    /// Counts bytes that have moved.
    #[inline]
    pub fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// True if the peer has moved fewer bytes in a period of `period_ns` than `bytes_per_s` demands. The caller asks
    /// several times in a period; `is_awaited` is true if bytes are awaited at that moment.
    pub fn is_too_slow(&mut self, now_ns: u64, is_awaited: bool, period_ns: u64, bytes_per_s: u64) -> bool {
        let since_ns = match (is_awaited, self.since_ns) {
            (true, Some(since_ns)) => since_ns,
            (true, None) => {
                (self.since_ns, self.bytes) = (Some(now_ns), 0);
                return false;
            }
            (false, _) => {
                self.since_ns = None;
                return false;
            }
        };
        let ns = now_ns.saturating_sub(since_ns);
        if ns < period_ns {
            return false;
        }
        let least = u128::from(ns) * u128::from(bytes_per_s) / 1_000_000_000;
        let moved = u128::from(std::mem::take(&mut self.bytes));
        self.since_ns = Some(now_ns);
        moved < least.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Asks every half second while `bytes` move each time; the second at which the peer is too slow.
    fn too_slow_at(bytes: impl Fn(u64) -> u64, awaited: impl Fn(u64) -> bool) -> Option<u64> {
        let mut progress = Progress::default();
        (0..4000u64).find(|&half| {
            progress.moved(bytes(half));
            progress.is_too_slow(half * SECOND / 2, awaited(half), 30 * SECOND, 1024)
        })
    }

    #[test]
    fn silence_and_drops_are_too_slow_and_pauses_are_not() {
        let always = |_| true;
        assert_eq!(too_slow_at(|_| 0, always), Some(60));
        assert_eq!(too_slow_at(|_| 1, always), Some(60));
        assert_eq!(too_slow_at(|_| 500, always), Some(60));
        assert_eq!(too_slow_at(|_| 520, always), None);
        // 64 KiB every 29 seconds.
        assert_eq!(too_slow_at(|half| if half % 58 == 0 { 65_536 } else { 0 }, always), None);
        // A burst is not credited forever.
        assert_eq!(too_slow_at(|half| if half == 3 { 1 << 30 } else { 0 }, always), Some(120));
    }

    #[test]
    fn peers_that_nothing_is_awaited_from_are_left_alone() {
        assert_eq!(too_slow_at(|_| 0, |_| false), None);
        assert_eq!(too_slow_at(|_| 0, |half| half % 50 != 0), None);
    }
}
