//! The ops that are under way on the lanes of a pool, and the choice of the lane for the next op.
//!
//! The default policy picks the lane that will be the first to have carried out its ops and the new op. The policy
//! learns the speed of a lane from every op that ends. By Little's law a lane serves `ahead / latency` bytes per
//! second: `ahead` bytes were on the lane when the op began, the op's own among them, and the op took `latency`. So a
//! lane of a tenth of the speed gets a tenth of the bytes, and a stuck lane gets no op beyond those that it has.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use live::{Counters, Gauge, State};

use crate::LANES_MAX;
use crate::health::{Health, Outcome};
use crate::pool::{Policy, Pool};

/// A set of lanes of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes(u32);

impl Lanes {
    /// The set without any lane.
    pub const NONE: Lanes = Lanes(0);

    /// The set of the first `count` lanes.
    pub const fn first(count: usize) -> Lanes {
        Lanes(if count >= 32 { u32::MAX } else { (1 << count) - 1 })
    }

    /// The set of the lanes whose bits are set.
    pub const fn of_bits(bits: u32) -> Lanes {
        Lanes(bits & Lanes::first(LANES_MAX).0)
    }

    /// The set of one lane.
    pub const fn only(lane: usize) -> Lanes {
        Lanes(if lane < LANES_MAX { 1 << lane } else { 0 })
    }

    /// This set and one more lane.
    #[must_use]
    pub const fn with(self, lane: usize) -> Lanes {
        Lanes(self.0 | Lanes::only(lane).0)
    }

    /// This set without one lane.
    #[must_use]
    pub const fn without(self, lane: usize) -> Lanes {
        Lanes(self.0 & !Lanes::only(lane).0)
    }

    /// True if the lane is in the set.
    pub const fn has(self, lane: usize) -> bool {
        self.0 & Lanes::only(lane).0 != 0
    }

    /// The number of lanes in the set.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// An op that is under way. Its holder gives it back to [`Traffic::end`], once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The lane that the op goes to.
    pub lane: usize,
    /// The bytes of the op.
    pub bytes: u64,
    /// The time in nanoseconds at which the op began.
    pub began_ns: u64,
    /// The bytes that the lane had outstanding when the op began, the op's own bytes included.
    ahead_bytes: u64,
}

/// The reason why an op gets no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// None of the lanes asked for is in service: the op goes where it would have gone without the pool.
    NoneInService,
    /// The lanes in service have as much outstanding as their window lets through.
    Full,
}

/// The state and the load of a lane at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The state of the lane's health: it tells if the lane is in service.
    pub state: State,
    /// Ops in flight on the lane now.
    pub ops: u64,
    /// Bytes of the outstanding ops.
    pub bytes: u64,
    /// The measured service rate in bytes per second; 0 before the first op has ended.
    pub rate_bytes_per_s: u64,
    /// The number of times that the lane was taken out of service.
    pub losses: u64,
}

/// The traffic of one pool.
#[derive(Debug)]
pub struct Traffic {
    policy: Policy,
    lanes: Box<[Lane]>,
    depth: u64,
    window_bytes: u64,
    /// For round-robin: the lane of each turn, as often as the weights say.
    turns: Box<[u8]>,
    turn: AtomicU32,
}

/// A lane fills two cache lines, so that lanes do not share one.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    /// One divided by the lane's weight.
    share: f64,
    /// The lane's [`Outstanding`] ops and bytes.
    outstanding: AtomicU64,
    /// Bytes per second, as an f64; 0 before the first op has ended.
    rate: AtomicU64,
    /// Nanoseconds per byte, as an f64. With it, one division at the end of an op replaces one for each lane at the
    /// beginning of an op.
    cost: AtomicU64,
    sampled_ns: AtomicU64,
    health: Health,
}

/// Ops and bytes that are outstanding, in one word so that one instruction counts both: ops in the upper 16 bits, bytes
/// in the lower 48 (256 TiB).
#[derive(Clone, Copy)]
struct Outstanding(u64);

impl Outstanding {
    const BYTES: u32 = 48;
    const MASK: u64 = (1 << Outstanding::BYTES) - 1;

    /// The word that counts one op of `bytes` bytes.
    const fn one(bytes: u64) -> u64 {
        (1 << Outstanding::BYTES) | (bytes & Outstanding::MASK)
    }

    const fn ops(self) -> u64 {
        self.0 >> Outstanding::BYTES
    }

    const fn bytes(self) -> u64 {
        self.0 & Outstanding::MASK
    }
}

/// The cost of an op to a lane beyond its bytes, in bytes: many small ops are a load too.
const OP_BYTES: u64 = 4096;
/// A lane that was not measured for this long is believed to be a little faster than it was, so that it is tried again.
const FRESH_NS: u64 = 1_000_000_000;

impl Traffic {
    /// Traffic on the lanes of this pool, with no op yet. This is the only function here that allocates.
    pub fn new(pool: &Pool) -> Traffic {
        let lane = |config: &crate::pool::LaneConfig| Lane {
            share: 1.0 / f64::from(config.weight.max(1)),
            outstanding: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            cost: AtomicU64::new(0),
            sampled_ns: AtomicU64::new(0),
            health: Health::new(pool.patience),
        };
        Traffic {
            policy: pool.policy,
            lanes: pool.lanes.iter().take(LANES_MAX).map(lane).collect(),
            depth: pool.depth.map_or(u64::MAX, u64::from),
            window_bytes: pool.window_bytes.unwrap_or(u64::MAX),
            turns: turns(pool).into(),
            turn: AtomicU32::new(0),
        }
    }

    /// Chooses one of `among` for an op and counts it there.
    ///
    /// # Errors
    /// A [`Refusal`] when the op gets no lane.
    #[inline]
    pub fn admit(&self, bytes: u64, among: Lanes, now_ns: u64) -> Result<Ticket, Refusal> {
        self.admit_looking(bytes, among, now_ns, || {})
    }

    /// Chooses and counts as [`Traffic::admit`]. Calls `look` before a lane becomes suspect because none of its
    /// outstanding ops has ended for too long: a caller that may have missed the ends of ops counts them there.
    ///
    /// # Errors
    /// A [`Refusal`] when the op gets no lane.
    #[inline]
    pub fn admit_looking(&self, bytes: u64, among: Lanes, now_ns: u64, look: impl Fn()) -> Result<Ticket, Refusal> {
        // The nanoseconds that the fastest of the open lanes takes for a byte.
        let (mut open, mut full, mut least_cost) = (Lanes::NONE, false, f64::INFINITY);
        for (index, lane) in self.open(among) {
            if !lane.is_open(now_ns, &look) {
                continue;
            }
            let outstanding = lane.outstanding();
            // A window lets at least one op through, however large.
            let fits = outstanding.bytes().saturating_add(bytes) <= self.window_bytes;
            if outstanding.ops() == 0 || (outstanding.ops() < self.depth && fits) {
                open = open.with(index);
                let cost = lane.cost();
                least_cost = if cost > 0.0 { least_cost.min(cost) } else { least_cost };
            } else {
                full = true;
            }
        }
        let chosen = match self.policy {
            Policy::LeastLoaded => self.least_loaded(bytes, open, least_cost, now_ns),
            Policy::RoundRobin => self.next_turn(open),
        };
        match chosen {
            Some(lane) => Ok(self.begin(lane, bytes, now_ns)),
            None if full => Err(Refusal::Full),
            None => Err(Refusal::NoneInService),
        }
    }

    /// Counts an op on the lane that it has to go to, whatever state that lane is in.
    #[inline]
    pub fn begin(&self, lane: usize, bytes: u64, now_ns: u64) -> Ticket {
        let ahead_bytes = self.lanes.get(lane).map_or(bytes, |lane| {
            // Before the op counts: a thread that finds it must not take the idle time before it for silence.
            if lane.outstanding().ops() == 0 {
                lane.health.became_busy(now_ns);
            }
            let before = Outstanding(lane.outstanding.fetch_add(Outstanding::one(bytes), Release));
            before.bytes().saturating_add(bytes)
        });
        Ticket { lane, bytes, began_ns: now_ns, ahead_bytes }
    }

    /// Counts the end of an op and returns its latency in nanoseconds.
    #[inline]
    pub fn end(&self, ticket: Ticket, outcome: Outcome, now_ns: u64) -> u64 {
        let latency_ns = now_ns.saturating_sub(ticket.began_ns);
        let Some(lane) = self.lanes.get(ticket.lane) else { return latency_ns };
        lane.outstanding.fetch_sub(Outstanding::one(ticket.bytes), Relaxed);
        lane.health.ended(outcome, latency_ns, now_ns);
        if outcome == Outcome::Done {
            let served = ticket.ahead_bytes.saturating_add(OP_BYTES) as f64;
            lane.measured(served * 1e9 / latency_ns.max(1) as f64, now_ns);
        }
        latency_ns
    }

    /// True if a lane is about to become suspect, because none of its outstanding ops has ended for too long. A caller
    /// that may have missed the ends of ops looks for them first.
    #[inline]
    pub fn looks_silent(&self, lane: usize, now_ns: u64) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.looks_silent(now_ns))
    }

    /// A lane that has failed and whose next try is due. One caller gets it: see [`Health::claim_probe`].
    pub fn probe_due(&self, now_ns: u64) -> Option<usize> {
        self.lanes.iter().position(|lane| {
            lane.health.state_at(lane.outstanding().ops(), now_ns) == State::Failed && lane.health.claim_probe(now_ns)
        })
    }

    /// Records how the try of a lane ended.
    pub fn probed(&self, lane: usize, answered: bool, now_ns: u64) {
        if let Some(lane) = self.lanes.get(lane) {
            lane.health.probed(answered, now_ns);
        }
    }

    /// Takes a lane out of service that cannot be used for a reason other than an op's: its mount no longer exists.
    pub fn lost(&self, lane: usize, now_ns: u64) {
        if let Some(lane) = self.lanes.get(lane) {
            lane.health.ended(Outcome::LaneFault, 0, now_ns);
        }
    }

    /// Forgets all outstanding ops and every fault of a lane: for a forked child, where the ops under way are the
    /// parent's. The measured rates stay.
    pub fn forget(&self) {
        for lane in &self.lanes {
            lane.outstanding.store(0, Relaxed);
            lane.health.forget();
        }
    }

    /// A change of a lane's health that was not told before, one lane a call: for the one line that a user is to see.
    #[inline]
    pub fn news(&self) -> Option<(usize, State)> {
        self.lanes.iter().enumerate().find_map(|(index, lane)| Some((index, lane.health.news()?)))
    }

    /// The state and the load of a lane at this moment; None if there is no such lane.
    pub fn load(&self, lane: usize, now_ns: u64) -> Option<Load> {
        let lane = self.lanes.get(lane)?;
        let outstanding = lane.outstanding();
        Some(Load {
            state: lane.health.state_at(outstanding.ops(), now_ns),
            ops: outstanding.ops(),
            bytes: outstanding.bytes(),
            rate_bytes_per_s: lane.rate() as u64,
            losses: lane.health.losses(),
        })
    }

    /// Puts the state and the load of a lane on a board, with plain stores.
    #[inline]
    pub fn publish(&self, lane: usize, counters: Counters<'_>) {
        let Some(lane) = self.lanes.get(lane) else { return };
        counters.set_state(lane.health.state());
        let outstanding = lane.outstanding();
        counters.set(Gauge::OutstandingOps, outstanding.ops());
        counters.set(Gauge::OutstandingBytes, outstanding.bytes());
        counters.set(Gauge::RateBytesPerSecond, lane.rate() as u64);
        counters.set(Gauge::Losses, lane.health.losses());
        counters.set(Gauge::WindowOps, if self.depth == u64::MAX { 0 } else { self.depth });
        counters.set(Gauge::WindowBytes, if self.window_bytes == u64::MAX { 0 } else { self.window_bytes });
    }

    /// The number of lanes in the pool.
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    fn least_loaded(&self, bytes: u64, open: Lanes, least_cost: f64, now_ns: u64) -> Option<usize> {
        // A lane without a measured cost is taken for as fast as the fastest.
        let least_cost = if least_cost.is_finite() { least_cost } else { 1.0 };
        // Equal lanes take turns: the lane after the last chosen one is preferred. Two threads may take the same turn.
        let last = self.turn.load(Relaxed) as usize;
        let mut best: Option<(f64, bool, usize)> = None;
        for (index, lane) in self.open(open) {
            let load = lane.outstanding().bytes().saturating_add(bytes).saturating_add(OP_BYTES) as f64;
            let time = load * lane.believed_cost(least_cost, now_ns) * lane.share;
            let passed = index <= last;
            if best.is_none_or(|(least, least_passed, _)| time < least || (time == least && least_passed && !passed)) {
                best = Some((time, passed, index));
            }
        }
        let (_, _, chosen) = best?;
        self.turn.store(chosen as u32, Relaxed);
        Some(chosen)
    }

    fn next_turn(&self, open: Lanes) -> Option<usize> {
        if open == Lanes::NONE || self.turns.is_empty() {
            return None;
        }
        let from = self.turn.fetch_add(1, Relaxed) as usize;
        let turns = self.turns.len();
        (0..turns)
            .filter_map(|ahead| self.turns.get((from + ahead) % turns))
            .map(|lane| usize::from(*lane))
            .find(|lane| open.has(*lane))
    }

    fn open(&self, open: Lanes) -> impl Iterator<Item = (usize, &Lane)> {
        let mut left = open.0;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros() as usize; // 32 behind the last one, and no pool has that lane
            left &= left.wrapping_sub(1);
            Some((index, self.lanes.get(index)?))
        })
    }
}

impl Lane {
    #[inline]
    fn outstanding(&self) -> Outstanding {
        Outstanding(self.outstanding.load(Acquire))
    }

    #[inline]
    fn looks_silent(&self, now_ns: u64) -> bool {
        self.health.looks_silent(self.outstanding().ops(), now_ns)
    }

    /// True if the lane may get a new op. Calls `look` if the lane looks silent.
    #[inline]
    fn is_open(&self, now_ns: u64, look: &impl Fn()) -> bool {
        self.health.is_well(self.outstanding().ops(), now_ns) || self.is_open_after_a_look(now_ns, look)
    }

    #[cold]
    fn is_open_after_a_look(&self, now_ns: u64, look: &impl Fn()) -> bool {
        if self.looks_silent(now_ns) {
            look();
        }
        self.health.state_at(self.outstanding().ops(), now_ns) == State::Healthy
    }

    #[inline]
    fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Relaxed))
    }

    /// Nanoseconds per byte; 0 if unknown.
    #[inline]
    fn cost(&self) -> f64 {
        f64::from_bits(self.cost.load(Relaxed))
    }

    /// Adds a rate to an exponential average over about eight ops. The average is of rates and not of costs, so that
    /// one op that was held up does not make the lane look dead. Two threads that end ops at the same time may lose one
    /// of the two rates.
    #[inline]
    fn measured(&self, rate: f64, now_ns: u64) {
        let before = self.rate();
        let next = if before == 0.0 { rate } else { before + (rate - before) * 0.125 };
        self.rate.store(next.to_bits(), Relaxed);
        self.cost.store((1e9 / next).to_bits(), Relaxed);
        self.sampled_ns.store(now_ns, Relaxed);
    }

    /// The cost that the choice of a lane goes by: the measured one, halved for every second in which an idle lane was
    /// not measured, down to the least cost of all lanes.
    #[inline]
    fn believed_cost(&self, least: f64, now_ns: u64) -> f64 {
        let cost = self.cost();
        if cost == 0.0 {
            return least;
        }
        let unmeasured_ns = now_ns.saturating_sub(self.sampled_ns.load(Relaxed));
        if unmeasured_ns < FRESH_NS || self.outstanding().ops() > 0 {
            return cost;
        }
        (cost / (1u64 << (unmeasured_ns / FRESH_NS).min(40)) as f64).max(least.min(cost))
    }
}

/// The order of a round: each lane as often as its weight says, and as evenly as possible.
fn turns(pool: &Pool) -> Vec<u8> {
    let weights: Vec<i64> = pool.lanes.iter().take(LANES_MAX).map(|lane| i64::from(lane.weight)).collect();
    let total: i64 = weights.iter().sum();
    let mut credit = vec![0; weights.len()];
    let mut order = Vec::new();
    for _ in 0..total {
        credit.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
        let Some(next) = (0..credit.len()).max_by_key(|&lane| (credit[lane], std::cmp::Reverse(lane))) else { break };
        credit[next] -= total;
        order.push(next as u8);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    fn pool(lanes: usize) -> Pool {
        Pool::new("p", (0..lanes).map(|lane| format!("/lane/{lane}").into()))
    }

    #[test]
    fn unknown_lanes_get_equal_shares() {
        let traffic = Traffic::new(&pool(4));
        for _ in 0..32 {
            traffic.admit(65536, Lanes::first(4), 0).unwrap();
        }
        let ops: Vec<u64> = (0..4).map(|lane| traffic.load(lane, 0).unwrap().ops).collect();
        assert_eq!(ops, [8; 4]);
    }

    #[test]
    fn only_lanes_that_the_file_has_are_chosen() {
        for policy in Policy::ALL {
            let traffic = Traffic::new(&Pool { policy, ..pool(4) });
            let among = Lanes::NONE.with(1).with(3);
            for _ in 0..100 {
                assert!(among.has(traffic.admit(1, among, 0).unwrap().lane));
            }
            assert_eq!(traffic.admit(1, Lanes::NONE, 0), Err(Refusal::NoneInService));
            assert_eq!(traffic.admit(1, Lanes::only(9), 0), Err(Refusal::NoneInService), "no such lane");
        }
    }

    #[test]
    fn round_robin_goes_on_where_it_was_and_knows_weights() {
        let mut config = Pool { policy: Policy::RoundRobin, ..pool(3) };
        config.lanes[1].weight = 2;
        let traffic = Traffic::new(&config);
        let order: Vec<usize> = (0..8).map(|_| traffic.admit(1, Lanes::first(3), 0).unwrap().lane).collect();
        assert_eq!(order, [1, 0, 2, 1, 1, 0, 2, 1]);
    }

    #[test]
    fn a_window_lets_through_what_it_says() {
        let traffic = Traffic::new(&Pool { depth: Some(2), window_bytes: Some(10_000), ..pool(2) });
        let all = Lanes::first(2);
        let first: Vec<Ticket> = (0..4).map(|_| traffic.admit(4096, all, 0).unwrap()).collect();
        assert_eq!(traffic.admit(1, all, 0), Err(Refusal::Full), "two on each");
        first.into_iter().for_each(|ticket| assert_eq!(traffic.end(ticket, Outcome::Done, 1), 1));
        for _ in 0..2 {
            traffic.admit(1_000_000, all, 1).unwrap(); // one op always fits
        }
        assert_eq!(traffic.admit(1, all, 1), Err(Refusal::Full), "no bytes left");
    }

    #[test]
    fn a_silent_lane_gets_no_new_ops_and_no_op_of_it_goes_elsewhere() {
        let traffic = Traffic::new(&pool(2));
        let stuck = traffic.begin(0, 4096, 0);
        let second = 1_000_000_000;
        for tick in 0..100 {
            let ticket = traffic.admit(4096, Lanes::first(2), second + tick).unwrap();
            assert_eq!(ticket.lane, 1);
            traffic.end(ticket, Outcome::Done, second + tick);
        }
        assert_eq!(traffic.news(), Some((0, State::Suspect)));
        assert_eq!(traffic.load(0, 2 * second).unwrap().ops, 1);
        assert_eq!(traffic.admit(1, Lanes::only(0), 2 * second), Err(Refusal::NoneInService));
        traffic.end(stuck, Outcome::Done, 2 * second);
        assert_eq!(traffic.news(), Some((0, State::Healthy)));
        assert!(traffic.admit(1, Lanes::only(0), 2 * second).is_ok());
    }

    /// The lane has had nothing to do for a long time when one thread gives it an op, and another one looks at it.
    #[test]
    fn an_idle_lane_that_gets_an_op_is_never_silent() {
        let (traffic, now, over) = (Traffic::new(&pool(1)), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    traffic.load(0, now.load(Relaxed));
                }
            });
            let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
            while std::time::Instant::now() < until {
                for _ in 0..1000 {
                    let now_ns = now.load(Relaxed) + 10_000_000_000;
                    now.store(now_ns, Relaxed);
                    let ticket = traffic.begin(0, 1, now_ns);
                    traffic.end(ticket, Outcome::Done, now_ns);
                }
            }
            over.store(true, Relaxed);
        });
        assert_eq!(traffic.lanes[0].health.losses(), 0);
    }

    #[test]
    fn a_forked_child_begins_with_nothing_outstanding() {
        let traffic = Traffic::new(&Pool { depth: Some(1), ..pool(2) });
        traffic.begin(0, 4096, 0);
        assert_eq!(traffic.load(0, 1_000_000_000).unwrap().state, State::Suspect);
        traffic.forget();
        let load = traffic.load(0, 2_000_000_000).unwrap();
        assert_eq!((load.ops, load.bytes, load.state, traffic.news()), (0, 0, State::Healthy, None));
        assert!(traffic.admit(4096, Lanes::only(0), 2_000_000_000).is_ok());
    }

    #[test]
    fn a_lane_that_has_become_fast_again_is_found_out() {
        let traffic = Traffic::new(&pool(2));
        let (slow, fast) = (traffic.begin(0, 4096, 0), traffic.begin(1, 4096, 0));
        traffic.end(fast, Outcome::Done, 1_000_000);
        traffic.end(slow, Outcome::Done, 100_000_000);
        let mut now = 100_000_000;
        let found = (0..100_000).find(|_| {
            now += 1_000_000;
            let ticket = traffic.admit(4096, Lanes::first(2), now).unwrap();
            traffic.end(ticket, Outcome::Done, now + 500_000);
            ticket.lane == 0
        });
        assert!(found.is_some_and(|ops| (1000..20_000).contains(&ops)), "{found:?}");
    }

    /// Runs a closed loop of `depth` ops in virtual time, over lanes that serve one op after the other. Returns the
    /// bytes of each lane in the second half of the time.
    fn simulate(
        traffic: &Traffic,
        rates: &[f64],
        depth: usize,
        block: u64,
        seconds: u64,
        dies: Option<(usize, u64)>,
    ) -> Vec<u64> {
        let all = Lanes::first(rates.len());
        let (mut now, end) = (0u64, seconds * 1_000_000_000);
        let mut free_at = vec![0u64; rates.len()];
        let mut moved = vec![0u64; rates.len()];
        // Ends of ops that are under way, by time.
        let mut under_way = std::collections::BTreeMap::new();
        let mut number = 0;
        let mut waiting = depth;
        loop {
            while waiting > 0 {
                let ticket = match traffic.admit(block, all, now) {
                    Ok(ticket) => ticket,
                    Err(Refusal::Full) => break,
                    Err(Refusal::NoneInService) => traffic.begin(0, block, now),
                };
                let begins = free_at[ticket.lane].max(now);
                let done = begins + (block as f64 / rates[ticket.lane] * 1e9) as u64;
                let dead = dies.is_some_and(|(lane, at)| lane == ticket.lane && done > at);
                free_at[ticket.lane] = if dead { u64::MAX / 2 } else { done };
                under_way.insert((free_at[ticket.lane], number), ticket);
                number += 1;
                waiting -= 1;
            }
            let Some(((at, _), ticket)) = under_way.pop_first() else { break };
            if at > end {
                break;
            }
            now = at;
            traffic.end(ticket, Outcome::Done, now);
            if now > end / 2 {
                moved[ticket.lane] += block;
            }
            waiting += 1;
        }
        moved
    }

    const RATE: f64 = 10e6;

    fn share_of_the_sum(moved: &[u64], rates: &[f64], seconds: u64) -> f64 {
        moved.iter().sum::<u64>() as f64 / (rates.iter().sum::<f64>() * seconds as f64 / 2.0)
    }

    #[test]
    fn a_lane_of_a_tenth_does_not_drag_the_others_down() {
        let rates = [RATE, RATE, RATE, RATE / 10.0];
        for (depth, block) in [(32, 65536), (16, 65536), (64, 4096), (128, 1 << 20)] {
            let moved = simulate(&Traffic::new(&pool(4)), &rates, depth, block, 60, None);
            let share = share_of_the_sum(&moved, &rates, 60);
            assert!(share >= 0.9, "depth {depth}, {block} bytes: {share:.3} of the sum, {moved:?}");
        }
        let robin = Traffic::new(&Pool { policy: Policy::RoundRobin, ..pool(4) });
        let share = share_of_the_sum(&simulate(&robin, &rates, 32, 65536, 60, None), &rates, 60);
        assert!(share < 0.5, "what this is for: in turn, {share:.3} of the sum");
    }

    #[test]
    fn equal_lanes_are_all_busy() {
        for policy in Policy::ALL {
            let traffic = Traffic::new(&Pool { policy, ..pool(4) });
            let moved = simulate(&traffic, &[RATE; 4], 32, 65536, 20, None);
            assert!(share_of_the_sum(&moved, &[RATE; 4], 20) > 0.98, "{policy:?} {moved:?}");
        }
    }

    #[test]
    fn when_a_lane_dies_the_others_go_on() {
        // The lane dies at 10 s of 20: the second half is without it.
        let moved = simulate(&Traffic::new(&pool(4)), &[RATE; 4], 32, 65536, 20, Some((2, 10_000_000_000)));
        assert!(share_of_the_sum(&moved, &[RATE; 3], 20) > 0.98, "{moved:?}");
    }

    #[test]
    fn weights_shift_the_load() {
        // Lanes without a limit of their own would share equally: only the weights decide.
        let mut config = pool(2);
        config.lanes[0].weight = 3;
        let traffic = Traffic::new(&config);
        for _ in 0..400 {
            traffic.admit(65536, Lanes::first(2), 0).unwrap();
        }
        let ops = traffic.load(0, 0).unwrap().ops;
        assert!((290..=310).contains(&ops), "{ops}");
    }

    proptest! {
        #[test]
        fn outstanding_counts_return_to_nothing(
            steps in prop::collection::vec((0u8..4, 1u64..1_000_000, any::<bool>()), 1..300),
            lanes in 1usize..6,
            robin in any::<bool>(),
        ) {
            let policy = if robin { Policy::RoundRobin } else { Policy::LeastLoaded };
            let traffic = Traffic::new(&Pool { policy, depth: Some(8), ..pool(lanes) });
            let (mut tickets, mut now) = (Vec::new(), 0);
            for (what, amount, fault) in steps {
                now += amount * 1000;
                match what {
                    0 | 1 => match traffic.admit(amount, Lanes::first(lanes), now) {
                        Ok(ticket) => {
                            let load = traffic.load(ticket.lane, now).unwrap();
                            prop_assert!(ticket.lane < lanes && load.ops <= 8);
                            tickets.push(ticket);
                        }
                        Err(Refusal::Full) => prop_assert!(tickets.len() >= 8),
                        Err(Refusal::NoneInService) => {}
                    },
                    2 => if let Some(ticket) = tickets.pop() {
                        traffic.end(ticket, if fault { Outcome::LaneFault } else { Outcome::Done }, now);
                    },
                    _ => if let Some(lane) = traffic.probe_due(now) {
                        traffic.probed(lane, !fault, now);
                    },
                }
            }
            for ticket in tickets.drain(..) {
                traffic.end(ticket, Outcome::Done, now);
            }
            for lane in 0..lanes {
                let load = traffic.load(lane, now).unwrap();
                prop_assert_eq!((load.ops, load.bytes), (0, 0));
            }
            // With time every lane is in service again, after any history.
            for _ in 0..100 {
                now += 31_000_000_000;
                if let Some(lane) = traffic.probe_due(now) {
                    traffic.probed(lane, true, now);
                }
            }
            for lane in 0..lanes {
                prop_assert_eq!(traffic.load(lane, now).unwrap().state, State::Healthy);
            }
        }

        #[test]
        fn any_lanes_are_used_in_proportion(rates in prop::collection::vec(1.0f64..20.0, 2..6), depth in 24usize..96) {
            let rates: Vec<f64> = rates.iter().map(|rate| rate * 1e6).collect();
            let moved = simulate(&Traffic::new(&pool(rates.len())), &rates, depth, 65536, 60, None);
            let share = share_of_the_sum(&moved, &rates, 60);
            prop_assert!(share >= 0.9, "{:.3} of the sum: {:?} of {:?}", share, moved, rates);
        }
    }
}
