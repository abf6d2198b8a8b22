//! The health of a lane, which decides if the lane gets new I/O: a state machine that any thread moves, without locks,
//! by the ends of ops that it has seen.
//!
//! ```text
//!             no progress             a lane fault
//!   Healthy ──────────────► Suspect ──────────────► Draining ──► Failed ──► Probing
//!      ▲  ◄────────────────    │ (from Healthy too)    all back     when due    │ │
//!      │     an answer         ▼                                      ▲  failed │ │
//!      └───────────────────────────────────────────────────────────── └─────────┘ │ answered
//!      ▲──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A request that is outstanding on a lane never goes to another lane: the kernel may still carry it out, later, over
//! newer data. Health decides only where new I/O goes.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use live::State;

/// The times after which a lane is given up and tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A lane with outstanding ops gets no new ones when it has answered none for this long; or for [`SLOW`] times its
    /// mean latency so far, if that is longer.
    pub suspect_after_ns: u64,
    /// A lane that has failed is tried again after this long.
    pub probe_after_ns: u64,
    /// The wait doubles with every try that fails, up to this length.
    pub probe_at_most_every_ns: u64,
}

impl Default for Patience {
    /// The patience of half a second: the throughput is to be back within two. Linux retransmits NFS over TCP after 60
    /// s (nfs(5), timeo), long after any other lane would have answered.
    fn default() -> Self {
        Patience {
            suspect_after_ns: 500_000_000,
            probe_after_ns: 1_000_000_000,
            probe_at_most_every_ns: 30_000_000_000,
        }
    }
}

/// A lane is suspect after this many times its mean latency: a lane that has always been slow is not suspect for being
/// slow.
pub const SLOW: u64 = 8;

/// The end of an op, as far as it concerns the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The op was carried out, in full or in part.
    Done,
    /// The lane has answered and moved nothing: an error that any lane would have given (ENOSPC, EINVAL), or the
    /// opening of a file.
    Refused,
    /// The op failed because of the lane: ESTALE, ENOTCONN, ETIMEDOUT, or EIO where another lane succeeds.
    LaneFault,
    /// The lane has carried the op out some time ago: that is an answer, and no measurement.
    Answered,
    /// The op was cancelled: it tells nothing about the lane.
    Cancelled,
}

/// The health of one lane.
#[derive(Debug)]
pub struct Health {
    patience: Patience,
    state: AtomicU32,
    /// The time at which the lane last answered, or became busy.
    progress_ns: AtomicU64,
    /// The mean latency: an exponential average over about eight ops.
    latency_ns: AtomicU64,
    probe_at_ns: AtomicU64,
    probe_wait_ns: AtomicU64,
    losses: AtomicU64,
    announced: AtomicU32,
}

impl Health {
    /// The health of a lane of which nothing bad is known.
    pub fn new(patience: Patience) -> Health {
        Health {
            patience,
            state: AtomicU32::new(State::Healthy as u32),
            progress_ns: AtomicU64::new(0),
            latency_ns: AtomicU64::new(0),
            probe_at_ns: AtomicU64::new(0),
            probe_wait_ns: AtomicU64::new(patience.probe_after_ns),
            losses: AtomicU64::new(0),
            announced: AtomicU32::new(State::Healthy as u32),
        }
    }

    /// The state of the lane, by the observations so far. Unlike [`Health::state_at`], it does not take the time into
    /// account.
    pub fn state(&self) -> State {
        state(self.state.load(Acquire))
    }

    /// The number of times that the lane was taken out of service.
    pub fn losses(&self) -> u64 {
        self.losses.load(Relaxed)
    }

    /// Tells that the lane has been given an op while it had none.
    #[inline]
    pub fn became_busy(&self, now_ns: u64) {
        self.progressed(now_ns);
    }

    /// Tells that an op of the lane has ended, and how.
    #[inline]
    pub fn ended(&self, outcome: Outcome, latency_ns: u64, now_ns: u64) {
        match outcome {
            Outcome::LaneFault => self.fault(now_ns),
            Outcome::Cancelled => {}
            Outcome::Done | Outcome::Refused | Outcome::Answered => {
                if outcome != Outcome::Answered {
                    let mean = self.latency_ns.load(Relaxed);
                    let next = if mean == 0 { latency_ns } else { mean - mean / 8 + latency_ns / 8 };
                    self.latency_ns.store(next, Relaxed);
                }
                self.progressed(now_ns);
                // A look before the locked instruction: nearly always there is nothing to change.
                if self.state.load(Acquire) == State::Suspect as u32 {
                    self.change(State::Suspect, State::Healthy);
                }
            }
        }
    }

    /// True if the lane is in good health and not silent while `outstanding_ops` are in flight: a look for every op.
    /// Where it says false, [`Health::state_at`] decides.
    #[inline]
    pub fn is_well(&self, outstanding_ops: u64, now_ns: u64) -> bool {
        self.state.load(Acquire) == State::Healthy as u32
            && (outstanding_ops == 0 || self.silent_ns(now_ns) <= self.limit_ns())
    }

    /// True if a lane in good health has been silent for so long that [`Health::state_at`] would make it suspect.
    #[inline]
    pub fn looks_silent(&self, outstanding_ops: u64, now_ns: u64) -> bool {
        outstanding_ops > 0
            && self.silent_ns(now_ns) > self.limit_ns()
            && self.state.load(Acquire) == State::Healthy as u32
    }

    /// The state of the lane at this moment, with `outstanding_ops` in flight; time alone may have changed the state.
    pub fn state_at(&self, outstanding_ops: u64, now_ns: u64) -> State {
        match self.state() {
            State::Healthy if outstanding_ops > 0 && self.silent_ns(now_ns) > self.limit_ns() => {
                if self.change(State::Healthy, State::Suspect) {
                    self.losses.fetch_add(1, Relaxed);
                }
                self.state()
            }
            // The last answer came while another thread was about to find the lane silent. None is left that could heal
            // the lane.
            State::Suspect if outstanding_ops == 0 => {
                self.change(State::Suspect, State::Healthy);
                self.state()
            }
            State::Draining if outstanding_ops == 0 => {
                self.probe_at_ns.store(now_ns.saturating_add(self.probe_wait_ns.load(Relaxed)), Relaxed);
                self.change(State::Draining, State::Failed);
                self.state()
            }
            state => state,
        }
    }

    /// True if the caller is to try the lane now: one caller gets true each time that a try is due. The caller then
    /// makes a read that can be repeated elsewhere, or looks at attributes, and reports the end to [`Health::probed`].
    pub fn claim_probe(&self, now_ns: u64) -> bool {
        self.state() == State::Failed
            && now_ns >= self.probe_at_ns.load(Relaxed)
            && self.change(State::Failed, State::Probing)
    }

    /// Tells how a try ended.
    pub fn probed(&self, answered: bool, now_ns: u64) {
        if answered {
            self.probe_wait_ns.store(self.patience.probe_after_ns, Relaxed);
            self.progressed(now_ns);
            self.change(State::Probing, State::Healthy);
        } else {
            let wait = self.probe_wait_ns.load(Relaxed).saturating_mul(2).min(self.patience.probe_at_most_every_ns);
            self.probe_wait_ns.store(wait, Relaxed);
            self.probe_at_ns.store(now_ns.saturating_add(wait), Relaxed);
            self.change(State::Probing, State::Failed);
        }
    }

    /// The state, if it is another one than at the last call: each change is told once. The function makes two loads
    /// where there is no news, so that every op may ask.
    #[inline]
    pub fn news(&self) -> Option<State> {
        let now = self.state.load(Acquire);
        if self.announced.load(Relaxed) == now {
            return None;
        }
        (self.announced.swap(now, AcqRel) != now).then(|| state(now))
    }

    /// Forgets everything bad about the lane: for a forked child, to which no op of its parent will answer.
    pub fn forget(&self) {
        self.state.store(State::Healthy as u32, Relaxed);
        self.announced.store(State::Healthy as u32, Relaxed);
    }

    fn fault(&self, now_ns: u64) {
        for from in [State::Healthy, State::Suspect] {
            if self.change(from, State::Draining) {
                // A suspect lane has been counted already.
                self.losses.fetch_add(u64::from(from == State::Healthy), Relaxed);
            }
        }
        self.progressed(now_ns);
    }

    /// Notes the time of an answer. A plain store will do: two threads may put the time back by the time between their
    /// looks at the clock, which does no harm.
    #[inline]
    fn progressed(&self, now_ns: u64) {
        self.progress_ns.store(now_ns, Relaxed);
    }

    #[inline]
    fn silent_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.progress_ns.load(Relaxed))
    }

    #[inline]
    fn limit_ns(&self) -> u64 {
        self.patience.suspect_after_ns.max(self.latency_ns.load(Relaxed).saturating_mul(SLOW))
    }

    fn change(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u32, to as u32, Release, Relaxed).is_ok()
    }
}

fn state(number: u32) -> State {
    State::ALL.into_iter().find(|state| *state as u32 == number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    fn health() -> Health {
        Health::new(Patience::default())
    }

    #[test]
    fn silence_makes_suspect_and_an_answer_heals() {
        let health = health();
        health.became_busy(SECOND);
        assert_eq!(health.state_at(3, SECOND + 500 * MS), State::Healthy);
        assert_eq!(health.state_at(3, SECOND + 501 * MS), State::Suspect);
        assert_eq!((health.news(), health.news(), health.losses()), (Some(State::Suspect), None, 1));
        health.ended(Outcome::Done, 600 * MS, SECOND + 600 * MS);
        assert_eq!(health.state_at(2, SECOND + 601 * MS), State::Healthy);
        assert_eq!(health.news(), Some(State::Healthy));
    }

    #[test]
    fn an_idle_lane_is_silent_in_good_health() {
        let health = health();
        assert_eq!(health.state_at(0, 100 * SECOND), State::Healthy);
        health.became_busy(100 * SECOND);
        assert_eq!(health.state_at(1, 100 * SECOND + MS), State::Healthy, "silence counts from the op on");
    }

    /// A thread finds the lane silent, the last op ends, and only then the thread changes the state.
    #[test]
    fn a_lane_without_ops_does_not_stay_suspect() {
        let health = health();
        health.became_busy(SECOND);
        assert_eq!(health.state_at(1, SECOND + 501 * MS), State::Suspect);
        assert_eq!(health.state_at(1, SECOND + 502 * MS), State::Suspect);
        assert_eq!(health.state_at(0, SECOND + 503 * MS), State::Healthy);
    }

    #[test]
    fn a_lane_that_was_always_slow_is_given_time() {
        let health = health();
        health.became_busy(0);
        health.ended(Outcome::Done, 400 * MS, 400 * MS);
        assert_eq!(health.state_at(1, 3 * SECOND), State::Healthy);
        assert_eq!(health.state_at(1, 4 * SECOND), State::Suspect);
    }

    #[test]
    fn a_fault_drains_fails_is_probed_and_taken_back() {
        let health = health();
        health.became_busy(0);
        health.ended(Outcome::LaneFault, MS, MS);
        assert_eq!(health.state_at(2, 2 * MS), State::Draining, "two are still outstanding");
        health.ended(Outcome::Done, MS, 3 * MS);
        assert_eq!(health.state_at(1, 3 * MS), State::Draining, "an answer to something older heals nothing");
        assert_eq!(health.state_at(0, 4 * MS), State::Failed);
        assert!(!health.claim_probe(4 * MS + SECOND - 1));
        assert!(health.claim_probe(4 * MS + SECOND));
        assert!(!health.claim_probe(4 * MS + SECOND), "one caller");
        assert_eq!(health.state(), State::Probing);
        health.probed(false, 2 * SECOND);
        assert!(!health.claim_probe(4 * SECOND - 1), "twice as long");
        assert!(health.claim_probe(4 * SECOND));
        health.probed(true, 4 * SECOND);
        assert_eq!((health.state(), health.losses()), (State::Healthy, 1));
    }

    #[test]
    fn tries_become_rare_but_never_end() {
        let health = health();
        health.ended(Outcome::LaneFault, 0, 0);
        health.state_at(0, 0);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..8 {
            let due = (0..).map(|step| now + step * SECOND).find(|&at| health.claim_probe(at)).unwrap();
            waits.push((due - now) / SECOND);
            health.probed(false, due);
            now = due;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn what_is_the_volumes_fault_is_not_the_lanes() {
        let health = health();
        health.ended(Outcome::Refused, MS, MS);
        assert_eq!(health.state_at(0, MS), State::Healthy);
        health.ended(Outcome::Cancelled, 0, MS);
        assert_eq!(health.state_at(0, MS), State::Healthy);
    }

    #[test]
    fn an_answer_that_was_noticed_late_heals_and_measures_nothing() {
        let health = health();
        health.became_busy(0);
        assert!(
            !health.looks_silent(1, 500 * MS) && health.looks_silent(1, 501 * MS) && !health.looks_silent(0, SECOND)
        );
        health.ended(Outcome::Answered, SECOND, SECOND);
        assert_eq!(health.state_at(1, SECOND + 500 * MS), State::Healthy);
        assert_eq!(health.state_at(1, SECOND + 501 * MS), State::Suspect, "patience has not grown");
        health.ended(Outcome::Answered, SECOND, 2 * SECOND);
        assert_eq!(health.state(), State::Healthy);
    }
}
