//! The part of the time in which requests are traced, so that tracing costs no more on a busy host.
//!
//! A request that is traced costs some time of a processor: its events are written, read and paired. Up to a rate all
//! requests are traced. Above it they are traced in slices: all requests that begin in a slice are followed to their
//! end, and then nothing is traced until there is room for another slice. So slow requests have the same chance as fast
//! ones, which they would not have if each event were kept or dropped by itself.

/// The events that are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All of them.
    All,
    /// Only the ends of requests that began before.
    Ends,
    /// None.
    Nothing,
}

/// Events a second that may be traced in the long run: two for each request.
pub const EVENTS_PER_SECOND: f64 = 40_000.0;
/// Events of a slice.
const SLICE: f64 = 8_000.0;
/// The ends of a slice's requests may take this many events, among them those of other requests, and this long.
const ENDS: f64 = 2.0 * SLICE;
const LONGEST_NS: u64 = 1_000_000_000;

/// Decides on the phase. The caller passes the time and a random number in.
#[derive(Debug)]
pub struct Budget {
    phase: Phase,
    /// The beginning of the phase.
    since_ns: u64,
    /// Events that may still be traced; negative while more were traced than planned.
    room: f64,
    at_ns: u64,
    /// The next slice begins with this much room: not always the same, or slices would beat with the load.
    enough: f64,
}

impl Budget {
    /// A budget that begins with a slice at `now_ns`.
    pub fn new(now_ns: u64) -> Budget {
        Budget { phase: Phase::All, since_ns: now_ns, room: SLICE, at_ns: now_ns, enough: SLICE }
    }

    /// The phase from now on, after `events` more events; `open` requests have not ended. `chance` is uniform in 0..1.
    pub fn next(&mut self, now_ns: u64, events: usize, open: usize, chance: f64) -> Phase {
        let gained = now_ns.saturating_sub(self.at_ns) as f64 / 1e9 * EVENTS_PER_SECOND;
        self.room = (self.room + gained).min(SLICE) - events as f64;
        self.at_ns = now_ns;
        let is_long = now_ns.saturating_sub(self.since_ns) >= LONGEST_NS;
        let next = match self.phase {
            Phase::All if self.room <= 0.0 => Phase::Ends,
            Phase::Ends if open == 0 || self.room <= -ENDS || is_long => Phase::Nothing,
            Phase::Nothing if self.room >= self.enough => Phase::All,
            same => same,
        };
        if next != self.phase {
            (self.phase, self.since_ns) = (next, now_ns);
            self.enough = SLICE * (0.5 + 0.5 * chance);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Events that are traced in ten seconds of a load of `requests` a second, each of which takes `ms`, if somebody
    /// looks every millisecond; with the phases that there were.
    fn traced(requests: usize, ms: usize) -> (usize, Vec<Phase>) {
        let mut budget = Budget::new(0);
        let (mut phase, mut all, mut seen, mut open) =
            (Phase::All, 0, vec![Phase::All], std::collections::VecDeque::new());
        for at in 1..=10_000 {
            let begun = if phase == Phase::All { requests / 1000 } else { 0 };
            open.push_back(begun);
            let ended = if open.len() > ms { open.pop_front().unwrap_or(0) } else { 0 };
            // The ends of requests that nobody follows are events too.
            let ends = if phase == Phase::Nothing { 0 } else { (requests / 1000).max(ended) };
            all += begun + ends;
            phase = budget.next(at * MS, begun + ends, open.iter().sum(), 0.5);
            if phase == Phase::Nothing {
                open.clear();
            }
            if seen.last() != Some(&phase) {
                seen.push(phase);
            }
        }
        (all, seen)
    }

    #[test]
    fn a_load_below_the_rate_is_traced_all_the_time() {
        assert_eq!(traced(19_000, 5), (380_000, vec![Phase::All]));
    }

    #[test]
    fn a_load_above_it_is_traced_in_slices_that_keep_to_the_rate() {
        for (requests, ms) in [(50_000, 1), (1_000_000, 2), (1_000_000, 5000), (5_000_000, 1)] {
            let (all, phases) = traced(requests, ms);
            assert!(all as f64 <= 10.0 * EVENTS_PER_SECOND + SLICE + ENDS, "{requests}: {all}");
            assert!(all as f64 >= 8.0 * EVENTS_PER_SECOND, "{requests}: {all}");
            assert_eq!(phases[..4], [Phase::All, Phase::Ends, Phase::Nothing, Phase::All], "{requests}");
        }
    }
}
