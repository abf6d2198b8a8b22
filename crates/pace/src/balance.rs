//! Decides which connection moves from a busy reactor to another one, and when.
//!
//! A move pays if the other reactor stays clearly below the load that the busy one has now. That rule has no memory and
//! yet no oscillation: the higher of the two loads falls with each move, and the way back would raise it. Two busy
//! reactors say nothing about the load that waits for them: there the number of connections that keep them busy
//! decides, and a move pays if it brings the two numbers closer.
//!
//! Loads are estimates, and hosts change with the service that they get. So the target moves one connection at a time
//! and looks at the effect before the next; and a connection that has moved rests, each time twice as long
//! ([`Rest`]): whatever its host does, the connection moves a few times at most.

/// The time between two reports of a reactor that has work, in nanoseconds.
pub const PERIOD_NS: u64 = 50_000_000;

/// A reactor that is busy for less than this part of its time loses no connection: its commands hardly wait for each
/// other.
const BUSY: f64 = 0.7;
/// A reactor that is busy for this part of its time may have more to do than it can.
const SATURATED: f64 = 0.9;
/// After a move the other reactor is still less busy than the busy one was before, by this part of its time.
const MARGIN: f64 = 0.1;
/// The least distance between the two loads: where it is shorter, both serve their hosts about equally well.
const LEAST_GAP: f64 = 0.2;
/// A connection that takes a smaller part of a reactor's time is not worth a move.
const LEAST_SHARE: f64 = 0.01;
/// The time over which the load of a reactor is averaged, in nanoseconds.
const MEMORY_NS: f64 = 200_000_000.0;
/// The time after a move until the next one: the averages show its effect then.
const SETTLE_NS: u64 = 600_000_000;
/// A reactor that has reported nothing for 1.5 s does not turn, and gets nothing to do.
const STALE_NS: u64 = 1_500_000_000;
/// The rest of a connection after its first move, and the longest.
const REST_NS: u64 = 10_000_000_000;
const LONGEST_REST_NS: u64 = 640_000_000_000;

/// A connection in the report of its reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The recent work of the connection, in any unit that all connections share.
    pub work: u64,
    /// False while the connection rests, or cannot move for another reason.
    pub can_move: bool,
}

/// A move that pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The place of the connection in the report.
    pub worker: usize,
    /// The reactor that the connection goes to.
    pub to: usize,
}

/// The rest of one connection between its moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    until_ns: u64,
    ns: u64,
}

impl Rest {
    /// Begins a rest: the connection has moved at `now_ns`, or could not.
    pub fn begin(&mut self, now_ns: u64) {
        self.ns = (2 * self.ns).clamp(REST_NS, LONGEST_REST_NS);
        self.until_ns = now_ns + self.ns;
    }

    /// True once the connection may move again.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }
}

/// The load of one reactor.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// The recent mean part of its time for which the reactor is busy, 0 to 1.
    busy: f64,
    /// Connections that do at least half as much as its mean connection.
    active: usize,
    reported_ns: Option<u64>,
}

/// The loads of all reactors. The caller passes the time in.
#[derive(Clone, Debug)]
pub struct Balance {
    reactors: Vec<Load>,
    rests_until_ns: u64,
}

impl Balance {
    /// No reactor has reported yet.
    pub fn new(reactors: usize) -> Balance {
        Balance { reactors: vec![Load::default(); reactors], rests_until_ns: 0 }
    }

    /// Takes the report of `reactor` at `now_ns`: the part of the time since its last report for which it was busy, and
    /// its connections with I/O. Returns the move of one of them that pays, which counts as made.
    pub fn report(&mut self, now_ns: u64, reactor: usize, busy: f64, workers: &[Worker]) -> Option<Move> {
        let total: u64 = workers.iter().map(|worker| worker.work).sum();
        let is_active = |worker: &Worker| worker.work > 0 && 2 * worker.work * workers.len() as u64 >= total;
        let load = &mut self.reactors[reactor];
        let since_ns = load.reported_ns.map_or(PERIOD_NS, |before_ns| now_ns.saturating_sub(before_ns));
        load.busy += (busy.clamp(0.0, 1.0) - load.busy) * (1.0 - (-(since_ns as f64) / MEMORY_NS).exp());
        load.active = workers.iter().filter(|worker| is_active(worker)).count();
        load.reported_ns = Some(now_ns);
        let from = *load;
        if from.busy < BUSY || total == 0 || now_ns < self.rests_until_ns {
            return None;
        }
        let turns = |load: &Load| load.reported_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) <= STALE_NS);
        let others = || self.reactors.iter().enumerate().filter(|(index, load)| *index != reactor && turns(load));
        let may_move = || workers.iter().enumerate().filter(|(_, worker)| worker.can_move && worker.work > 0);

        let (to, least) = others().min_by(|(_, a), (_, b)| a.busy.total_cmp(&b.busy))?;
        let gap = from.busy - least.busy;
        let share = |worker: &Worker| from.busy * worker.work as f64 / total as f64;
        let pays = |share: f64| gap >= LEAST_GAP && share >= LEAST_SHARE && share <= gap - MARGIN;
        let gain = |worker: &Worker| share(worker).min(gap - share(worker));
        let paying = may_move().filter(|(_, worker)| pays(share(worker)));
        let best = paying.max_by(|(_, a), (_, b)| gain(a).total_cmp(&gain(b)));
        let mut chosen = best.map(|(worker, _)| Move { worker, to });

        if chosen.is_none() && from.busy >= SATURATED && least.busy >= SATURATED {
            let (to, fewest) = others().min_by_key(|(_, load)| load.active)?;
            if from.active >= fewest.active + 2 {
                let active = may_move().filter(|(_, worker)| is_active(worker));
                chosen = active.min_by_key(|(_, worker)| worker.work).map(|(worker, _)| Move { worker, to });
            }
        }
        if chosen.is_some() {
            self.rests_until_ns = now_ns + SETTLE_NS;
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Numbers from 0 to 1, the same in each run (xorshift64*).
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    #[derive(Clone, Debug)]
    struct Connection {
        /// The part of a reactor's time that the connection takes if it gets it.
        demand: f64,
        reactor: usize,
        work: u64,
        rest: Rest,
        moves: u32,
    }

    fn connections(demands: &[f64], reactor: impl Fn(usize) -> usize) -> Vec<Connection> {
        let new = |(index, &demand): (usize, &f64)| Connection {
            demand,
            reactor: reactor(index),
            work: 0,
            rest: Rest::default(),
            moves: 0,
        };
        demands.iter().enumerate().map(new).collect()
    }

    /// Reactors that divide their time among their connections, to each what it asks for or an equal part.
    struct Machine {
        balance: Balance,
        reactors: usize,
        connections: Vec<Connection>,
        /// Reports are wrong by up to this part.
        noise: f64,
        random: Random,
        now_ns: u64,
        /// The times of the moves.
        moves: Vec<u64>,
    }

    impl Machine {
        fn new(reactors: usize, connections: Vec<Connection>, noise: f64, seed: u64) -> Machine {
            let (balance, random) = (Balance::new(reactors), Random(seed));
            Machine { balance, reactors, connections, noise, random, now_ns: SECOND, moves: Vec::new() }
        }

        /// The time that each connection of a reactor gets.
        fn shares(&self, reactor: usize) -> Vec<(usize, f64)> {
            let mine = self.connections.iter().enumerate().filter(|(_, it)| it.reactor == reactor);
            let mut mine: Vec<(usize, f64)> = mine.map(|(index, it)| (index, it.demand)).collect();
            mine.sort_by(|(_, a), (_, b)| a.total_cmp(b));
            let (mut left, mut count) = (1.0, mine.len() as f64);
            for (_, share) in &mut mine {
                *share = share.min(left / count);
                (left, count) = (left - *share, count - 1.0);
            }
            mine
        }

        fn busy(&self, reactor: usize) -> f64 {
            self.shares(reactor).iter().map(|(_, share)| share).sum()
        }

        fn run(&mut self, seconds: u64) {
            let end_ns = self.now_ns + seconds * SECOND;
            while self.now_ns < end_ns {
                self.now_ns += PERIOD_NS;
                for reactor in 0..self.reactors {
                    self.turn(reactor);
                }
            }
        }

        fn turn(&mut self, reactor: usize) {
            let shares = self.shares(reactor);
            let now_ns = self.now_ns;
            for &(index, share) in &shares {
                let wrong = 1.0 + self.noise * (2.0 * self.random.uniform() - 1.0);
                let connection = &mut self.connections[index];
                connection.work = connection.work / 2 + (share * wrong * 1e6) as u64;
            }
            let wrong = 1.0 + self.noise * (2.0 * self.random.uniform() - 1.0);
            let busy = self.busy(reactor) * wrong;
            let worker = |&(index, _): &(usize, f64)| {
                let connection = &self.connections[index];
                Worker { work: connection.work, can_move: connection.rest.is_over(now_ns) }
            };
            let workers: Vec<Worker> = shares.iter().map(worker).collect();
            if let Some(Move { worker, to }) = self.balance.report(now_ns, reactor, busy, &workers) {
                let connection = &mut self.connections[shares[worker].0];
                assert!(connection.rest.is_over(now_ns) && to != reactor);
                connection.rest.begin(now_ns);
                (connection.reactor, connection.work) = (to, 0);
                connection.moves += 1;
                self.moves.push(now_ns);
            }
        }

        fn counts(&self) -> Vec<usize> {
            (0..self.reactors).map(|reactor| self.shares(reactor).len()).collect()
        }
    }

    #[test]
    fn hungry_hosts_that_begin_on_one_reactor_spread_and_stay() {
        for (hosts, reactors) in [(2, 2), (8, 2), (8, 4), (9, 2), (60, 2), (30, 8)] {
            let mut machine = Machine::new(reactors, connections(&vec![10.0; hosts], |_| 0), 0.1, 5);
            machine.run(60);
            let counts = machine.counts();
            let (most, fewest) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
            assert!(most - fewest <= 1, "{hosts} hosts: {counts:?}");
            let moves = machine.moves.len();
            assert!(moves <= hosts, "{moves} moves of {hosts} hosts");
            machine.run(600);
            assert_eq!(machine.moves.len(), moves, "{hosts} hosts had settled");
        }
        let mut machine = Machine::new(2, connections(&[10.0; 8], |_| 0), 0.1, 5);
        machine.run(4);
        assert_eq!(machine.counts(), [4, 4], "within four seconds");
    }

    /// Any demands on any number of reactors: after a while nothing moves any more, and no reactor has too much while
    /// another could take a connection from it.
    #[test]
    fn every_load_settles_where_no_single_move_would_help() {
        let mut random = Random(11);
        for seed in 1..100 {
            let reactors = 2 + (random.uniform() * 6.0) as usize;
            let count = 1 + (random.uniform() * 40.0) as usize;
            let most = [0.05, 0.3, 1.0, 4.0][seed as usize % 4];
            let demands: Vec<f64> = (0..count).map(|_| most * random.uniform()).collect();
            let places: Vec<usize> = (0..count).map(|_| (random.uniform() * reactors as f64) as usize).collect();
            let mut machine = Machine::new(reactors, connections(&demands, |index| places[index]), 0.05, seed);
            machine.run(100);
            let settled = machine.moves.len();
            assert!(settled <= 2 * count, "seed {seed}: {settled} moves of {count} connections");
            machine.run(300);
            let late = machine.moves.len() - settled;
            assert!(late <= 2, "seed {seed}: {late} moves of {count} connections after all had settled");
            let loads: Vec<f64> = (0..reactors).map(|reactor| machine.busy(reactor)).collect();
            let least = loads.iter().copied().fold(f64::MAX, f64::min);
            for (reactor, &load) in loads.iter().enumerate().filter(|(_, load)| **load >= BUSY + 0.05) {
                let gain = |(_, share): &(usize, f64)| share.min(load - least - share);
                let missed = machine.shares(reactor).iter().map(gain).fold(0.0, f64::max);
                assert!(missed < 0.18 || load - least < LEAST_GAP + 0.05, "seed {seed}: {loads:?} miss {missed}");
            }
        }
    }

    #[test]
    fn nothing_moves_where_nothing_is_gained() {
        for demands in [vec![1.0], vec![0.95, 0.002], vec![0.1; 6], vec![0.3, 0.3]] {
            let mut machine = Machine::new(2, connections(&demands, |_| 0), 0.05, 3);
            machine.run(60);
            assert_eq!(machine.moves.len(), 0, "{demands:?}");
        }
    }

    /// Hosts that become busy wherever they are not wanted: a connection moves a few times in ten minutes, then less.
    #[test]
    fn hosts_that_chase_the_balance_move_seldom() {
        let mut machine = Machine::new(2, connections(&[10.0; 6], |index| index % 2), 0.0, 3);
        for second in 0..1200 {
            // All demand is on one reactor, a second later all is on the other one.
            for connection in &mut machine.connections {
                connection.demand = if connection.reactor == second / 2 % 2 { 10.0 } else { 0.01 };
            }
            machine.run(1);
        }
        let most = machine.connections.iter().map(|connection| connection.moves).max().unwrap();
        assert!((1..=8).contains(&most), "{most} moves of one connection in 20 minutes");
    }

    #[test]
    fn a_reactor_that_does_not_turn_gets_nothing() {
        let mut balance = Balance::new(2);
        let workers = [Worker { work: 1, can_move: true }; 4];
        balance.report(SECOND, 1, 0.0, &[]);
        for now_ns in (4 * SECOND..8 * SECOND).step_by(PERIOD_NS as usize) {
            assert_eq!(balance.report(now_ns, 0, 1.0, &workers), None);
        }
        balance.report(8 * SECOND, 1, 0.0, &[]);
        assert!(balance.report(8 * SECOND, 0, 1.0, &workers).is_some());
    }

    #[test]
    fn one_connection_moves_at_a_time_and_none_that_cannot() {
        let mut balance = Balance::new(3);
        let heavy = Worker { work: 10, can_move: true };
        let bound = Worker { can_move: false, ..heavy };
        let reports = |balance: &mut Balance, now_ns, workers: &[Worker]| {
            balance.report(now_ns, 1, 0.0, &[]);
            balance.report(now_ns, 2, 0.0, &[]);
            balance.report(now_ns, 0, 1.0, workers)
        };
        let mut moves = Vec::new();
        for now_ns in (SECOND..4 * SECOND).step_by(PERIOD_NS as usize) {
            assert_eq!(reports(&mut balance, now_ns, &[bound; 4]), None);
        }
        for now_ns in (4 * SECOND..6 * SECOND).step_by(PERIOD_NS as usize) {
            let found = reports(&mut balance, now_ns, &[bound, bound, heavy, bound]);
            if let Some(found) = found {
                assert_eq!(found.worker, 2);
                moves.push(now_ns);
            }
        }
        assert!(moves.windows(2).all(|pair| pair[1] - pair[0] >= SETTLE_NS) && moves.len() == 4, "{moves:?}");
    }
}
