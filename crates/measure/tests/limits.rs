//! The promise of a limit, on synthetic truth: the interval of the highest rate or depth that keeps the conditions
//! holds the true one, or the sweep says that it cannot tell.
//!
//! Every sweep runs through the code that ships (`refine::next`, `limit::find`) on a queue that is simulated op by op,
//! or on a machine with a known distribution of latencies. Seeds are fixed; `COVERAGE_FROM=200000` takes others, and
//! `COVERAGE_RUNS` another number of them (`make coverage` takes 14,000 sweeps in all).

mod random;

use std::collections::BinaryHeap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use measure::limit::{Condition, MAY_GROW};
use measure::refine::{self, Goal, Limits, Step};
use measure::schema::{Backlog, Curve, Interval, JobResult, Limit, Point, Ramp};
use measure::{Histogram, Objective};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use random::Random;

const MS: u64 = 1_000_000;
const RAMP_S: f64 = 0.2;
const CURVE_NS: u64 = 35_000 * MS;
/// Requests in flight at most, as in a real open loop.
const DEPTH: usize = 256;

/// The systems whose limit is known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// M/M/1: the highest rate that it keeps up with.
    OneServer,
    /// M/M/8.
    EightServers,
    /// M/D/4: equal service times, as of a limiter; arrivals at random.
    Cap,
    /// D/D/1: a limiter under paced arrivals, which stand exactly at its edge or do not.
    Paced,
    /// M/M/4 whose speed differs by 3 % from one visit to the next.
    Uneven,
    /// M/M/1: the highest rate with p99 below a limit, by the formula of its sojourn time.
    QueueObjective,
    /// A closed loop: lognormal latencies that grow with the depth, p99 below a limit.
    Depth,
    /// A closed loop with an objective for p99.9.
    DepthTail,
    /// A closed loop with an objective for the mean.
    DepthMean,
    /// A closed loop whose latencies differ by 5 % from one visit to the next.
    DepthUneven,
    /// A closed loop with bursts of 40 ms, in which every op takes ten times as long.
    DepthBursts,
    /// A limit with a token bucket, which fills while nobody asks and holds what the limit gives in 3 to 100 ms.
    /// Arrivals at random; the highest rate that it keeps up with for good.
    RateBucket,
    /// A token bucket of up to half a second: not all of it fills between two visits.
    RateLargeBucket,
    /// A closed loop on a limit with a token bucket, p99 below what requests wait for tokens.
    DepthBucket,
}

const KINDS: [Kind; 14] = [
    Kind::OneServer,
    Kind::EightServers,
    Kind::Cap,
    Kind::Paced,
    Kind::Uneven,
    Kind::QueueObjective,
    Kind::Depth,
    Kind::DepthTail,
    Kind::DepthMean,
    Kind::DepthUneven,
    Kind::DepthBursts,
    Kind::RateBucket,
    Kind::RateLargeBucket,
    Kind::DepthBucket,
];

/// A system with the range in which its limit lies: one value, or two where the definition leaves room.
struct System {
    kind: Kind,
    /// Ops per second that all servers carry out.
    capacity: f64,
    objective: Option<Objective>,
    /// Of a closed loop: the median latency at depth 1 in seconds, the depth of its knee, and the width.
    closed: (f64, f64, f64),
    /// Of a token bucket: the ops that it holds. The limit is `capacity`.
    bucket: f64,
    truth: (f64, f64),
}

/// The tokens of a bucket as the visits of a sweep leave it.
struct Tokens {
    /// Ops a second, and the ops that the bucket holds.
    limit: f64,
    most: f64,
    now: f64,
}

impl Tokens {
    /// Time passes without requests.
    fn rest(&mut self, seconds: f64) {
        self.now = (self.now + self.limit * seconds).min(self.most);
    }

    /// Takes a token at `moment`, `since` seconds after the last call; returns the moment at which there is one.
    fn take(&mut self, moment: f64, since: f64) -> f64 {
        self.rest(since);
        let waits = ((1.0 - self.now) / self.limit).max(0.0);
        self.rest(waits);
        self.now -= 1.0;
        moment + waits
    }
}

/// The part of a standard normal distribution above `z`: Abramowitz and Stegun, "Handbook of Mathematical Functions",
/// 26.2.17, error below 7.5e-8.
fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let sum = [0.319_381_53, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let polynomial = sum.iter().rev().fold(0.0, |rest, factor| t * (factor + rest));
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * polynomial
}

const SLOW_VISITS: f64 = 0.05;
const BURST_S: f64 = 0.04;
const BURSTS_PER_S: f64 = 0.5;
const BURST_FACTOR: f64 = 10.0;

impl System {
    fn any(kind: Kind, random: &mut Random) -> System {
        let capacity = random.between(2000f64.ln(), 12_000f64.ln()).exp();
        let closed = (random.between(50e-6, 200e-6), random.between(4.0, 40.0), random.between(0.1, 0.5));
        let mut system = System {
            kind,
            capacity,
            objective: None,
            closed,
            bucket: 0.0,
            truth: (capacity, capacity / (1.0 - MAY_GROW)),
        };
        let objective = |text: &str| Some(text.parse::<Objective>().unwrap());
        match kind {
            Kind::OneServer | Kind::EightServers | Kind::Cap | Kind::Paced | Kind::Uneven => {}
            Kind::RateBucket | Kind::RateLargeBucket => {
                let (least, most) = if kind == Kind::RateBucket { (0.003f64, 0.1f64) } else { (0.1, 0.5) };
                system.bucket = (capacity * random.between(least.ln(), most.ln()).exp()).max(1.0);
            }
            Kind::DepthBucket => {
                // Depth 1 asks for less than the limit; the objective lies where requests begin to wait for tokens.
                let depth = random.between(1.5, 40.0);
                system.closed = (depth / capacity, 0.0, random.between(0.01, 0.1));
                system.bucket = (capacity * random.between(0.02f64.ln(), 0.5f64.ln()).exp()).max(1.0);
                let tail = (2.326 * system.closed.2).exp();
                let limit_us = (system.closed.0 * random.between(1.02, 1.5) * tail * 1e6).round();
                system.objective = objective(&format!("p99<{limit_us}us"));
                let (mut keeps, mut breaks) = (0.0, 1024.0);
                while breaks - keeps > 1.0 {
                    let middle = f64::from(((keeps + breaks) / 2.0) as u32);
                    let mut empty = Tokens { limit: capacity, most: system.bucket, now: 0.0 };
                    let job = system.limited(middle, 20.0, &mut empty, random);
                    let p99 = job.directions.read.lat_ns.quantile(0.99) as f64;
                    *(if p99 < limit_us * 1e3 { &mut keeps } else { &mut breaks }) = middle;
                }
                system.truth = (keeps, keeps);
            }
            Kind::QueueObjective => {
                // The sojourn time of M/M/1 is exponential with the rate capacity - arrivals.
                let part = random.between(0.4, 0.85);
                let limit_us = (100f64.ln() / (capacity * (1.0 - part)) * 1e6).round();
                system.objective = objective(&format!("p99<{limit_us}us"));
                let at = capacity - 100f64.ln() / (limit_us * 1e-6);
                system.truth = (at, at);
            }
            Kind::Depth | Kind::DepthTail | Kind::DepthMean | Kind::DepthUneven | Kind::DepthBursts => {
                let knee = closed.1;
                let (figure, z) = match kind {
                    Kind::DepthTail => ("p99.9", 3.09),
                    Kind::DepthMean => ("mean", closed.2 / 2.0),
                    _ => ("p99", 2.326),
                };
                // Between the knee and four times the knee.
                let factor = random.between(1.2, 4.0);
                let bursts = if kind == Kind::DepthBursts { random.between(1.0, 12.0) } else { 1.0 };
                let limit_us = (closed.0 * factor * bursts * (z * closed.2).exp() * 1e6).round();
                system.objective = objective(&format!("{figure}<{limit_us}us"));
                let keeps = |depth: f64| system.keeps(depth);
                let highest = (1..=1024).map(f64::from).take_while(|depth| keeps(*depth)).last().unwrap_or(0.0);
                let _ = knee;
                system.truth = (highest, highest);
            }
        }
        system
    }

    /// The median latency of a closed loop at a depth, in seconds.
    fn median(&self, depth: f64) -> f64 {
        self.closed.0 * (1.0 + (depth / self.closed.1).powi(4)).powf(0.25)
    }

    /// True if the closed loop keeps its objective at a depth, by formula.
    fn keeps(&self, depth: f64) -> bool {
        let objective = self.objective.expect("a closed loop has one");
        let limit = objective.limit_ns as f64 / 1e9;
        let (median, width) = (self.median(depth), self.closed.2);
        let beyond = |factor: f64, width: f64| above((limit / (median * factor)).ln() / width);
        let part = match self.kind {
            Kind::DepthMean => return median * (width * width / 2.0).exp() <= limit,
            Kind::DepthTail => return beyond(1.0, width) <= 0.001,
            Kind::DepthUneven => beyond(1.0, (width * width + SLOW_VISITS * SLOW_VISITS).sqrt()),
            Kind::DepthBursts => {
                // The throughput of a closed loop falls by the factor in a burst, and so do the ops that meet it.
                let time = BURSTS_PER_S * BURST_S / (1.0 + BURSTS_PER_S * BURST_S);
                let ops = time / BURST_FACTOR / (time / BURST_FACTOR + 1.0 - time);
                (1.0 - ops) * beyond(1.0, width) + ops * beyond(BURST_FACTOR, width)
            }
            _ => beyond(1.0, width),
        };
        part <= 0.01
    }

    /// One visit for `seconds`.
    fn visit(&self, x: f64, seconds: f64, tokens: &mut Tokens, random: &mut Random) -> JobResult {
        match self.kind {
            Kind::RateBucket | Kind::RateLargeBucket => self.open_limited(x, seconds, tokens, random),
            Kind::DepthBucket => self.limited(x, seconds, tokens, random),
            Kind::OneServer | Kind::QueueObjective => self.open(x, seconds, 1, random),
            Kind::EightServers => self.open(x, seconds, 8, random),
            Kind::Cap | Kind::Uneven => self.open(x, seconds, 4, random),
            Kind::Paced => self.open(x, seconds, 1, random),
            _ => self.closed(x, seconds, random),
        }
    }

    fn open(&self, rate: f64, seconds: f64, servers: usize, random: &mut Random) -> JobResult {
        let speed = if self.kind == Kind::Uneven { (0.03 * random.normal()).exp() } else { 1.0 };
        let service = servers as f64 / (self.capacity * speed);
        let end = RAMP_S + seconds;
        // The times at which servers are free, and at which requests in flight end: the earliest first.
        let time = |t: f64| std::cmp::Reverse((t * 1e12) as u64);
        let mut free: BinaryHeap<_> = (0..servers).map(|_| time(0.0)).collect();
        let mut in_flight: BinaryHeap<std::cmp::Reverse<u64>> = BinaryHeap::new();
        let (mut arrival, mut issued_at) = (0.0f64, 0.0f64);
        let mut counted = Counted::new(seconds);
        loop {
            arrival += if self.kind == Kind::Paced { 1.0 / rate } else { random.exponential(1.0 / rate) };
            if arrival >= end {
                break;
            }
            // The generator issues the op when it is due and there is room.
            issued_at = issued_at.max(arrival);
            while let Some(&std::cmp::Reverse(done)) = in_flight.peek()
                && (in_flight.len() >= DEPTH || done as f64 / 1e12 <= issued_at)
            {
                in_flight.pop();
                issued_at = issued_at.max(done as f64 / 1e12);
            }
            let at = free.pop().expect("a server").0 as f64 / 1e12;
            let takes = match self.kind {
                Kind::Cap | Kind::Paced => service,
                _ => random.exponential(service),
            };
            let done = at.max(issued_at) + takes;
            free.push(time(done));
            in_flight.push(time(done));
            counted.waits(arrival, done);
            counted.op(done, done - arrival);
        }
        counted.open()
    }

    /// An open loop on a limit with a bucket, in front of storage that takes 50 us for an op.
    fn open_limited(&self, rate: f64, seconds: f64, tokens: &mut Tokens, random: &mut Random) -> JobResult {
        let end = RAMP_S + seconds;
        let mut counted = Counted::new(seconds);
        let mut in_flight: std::collections::VecDeque<f64> = std::collections::VecDeque::new();
        let (mut arrival, mut last) = (0.0f64, 0.0f64);
        loop {
            arrival += random.exponential(1.0 / rate);
            if arrival >= end {
                break;
            }
            // Requests go through the limit in order. The generator waits for room.
            let mut issued = arrival;
            if in_flight.len() >= DEPTH {
                issued = issued.max(in_flight.pop_front().expect("requests in flight"));
            }
            let at = issued.max(last);
            let given = tokens.take(at, at - last);
            last = given;
            let done = given + 50e-6;
            in_flight.push_back(done);
            counted.waits(arrival, done);
            counted.op(done, done - arrival);
        }
        tokens.rest((end - last).max(0.0));
        counted.open()
    }

    /// A closed loop on a limit with a bucket.
    fn limited(&self, depth: f64, seconds: f64, tokens: &mut Tokens, random: &mut Random) -> JobResult {
        let mut counted = Counted::new(seconds);
        let moment = |t: f64| std::cmp::Reverse((t * 1e12) as u64);
        let mut issues: BinaryHeap<_> = (0..depth as u64).map(|_| moment(0.0)).collect();
        let mut last = 0.0f64;
        while let Some(std::cmp::Reverse(at)) = issues.pop() {
            let issued = at as f64 / 1e12;
            if issued >= RAMP_S + seconds {
                break;
            }
            let at = issued.max(last);
            let given = tokens.take(at, at - last);
            last = given;
            let done = given + self.closed.0 * (self.closed.2 * random.normal()).exp();
            counted.op(done, done - issued);
            issues.push(moment(done));
        }
        tokens.rest((RAMP_S + seconds - last).max(0.0));
        counted.job()
    }

    fn closed(&self, depth: f64, seconds: f64, random: &mut Random) -> JobResult {
        let uneven = if self.kind == Kind::DepthUneven { (SLOW_VISITS * random.normal()).exp() } else { 1.0 };
        let median = self.median(depth) * uneven;
        let mut lat = Histogram::new();
        // Eight requests stand for all: the others say the same, and take the time of the test.
        let stand = depth.min(8.0);
        let (mut now, mut burst_ends, mut next) = (0.0, 0.0, random.exponential(1.0 / BURSTS_PER_S));
        if random.uniform() < BURSTS_PER_S * BURST_S / (1.0 + BURSTS_PER_S * BURST_S) {
            burst_ends = random.uniform() * BURST_S;
            next += burst_ends;
        }
        while now < seconds {
            let mut takes = median * (self.closed.2 * random.normal()).exp();
            if self.kind == Kind::DepthBursts {
                if now >= next {
                    burst_ends = next + BURST_S;
                    next = burst_ends + random.exponential(1.0 / BURSTS_PER_S);
                }
                takes *= if now < burst_ends { BURST_FACTOR } else { 1.0 };
            }
            now += takes / stand;
            lat.record((takes * 1e9) as u64);
        }
        let mut job = JobResult { runtime_ns: (seconds * 1e9) as u64, ..JobResult::default() };
        job.directions.read.ops = lat.count();
        job.directions.read.lat_ns = lat;
        job
    }
}

/// The counts of a visit.
struct Counted {
    seconds: f64,
    ramp_ops: u64,
    /// Ops of each sample.
    steps: Vec<u64>,
    lat: Histogram,
    backlog: Backlog,
}

/// The samples of a visit in seconds.
const SAMPLE_S: f64 = 0.05;

impl Counted {
    fn new(seconds: f64) -> Counted {
        let steps = vec![0; (seconds / SAMPLE_S).round() as usize];
        Counted { seconds, ramp_ops: 0, steps, lat: Histogram::new(), backlog: Backlog::default() }
    }

    /// An op that was done at a moment, after a latency.
    fn op(&mut self, done: f64, latency: f64) {
        if done < RAMP_S {
            self.ramp_ops += 1;
        } else if let Some(step) = self.steps.get_mut(((done - RAMP_S) / SAMPLE_S) as usize) {
            *step += 1;
            self.lat.record((latency * 1e9) as u64);
        }
    }

    /// Counts an op that waits for a while at the start and at the end of the measured part.
    fn waits(&mut self, arrival: f64, done: f64) {
        let end = RAMP_S + self.seconds;
        let waits_at = |moment: f64| f64::from(u8::from(arrival < moment && done >= moment));
        self.backlog.start += waits_at(RAMP_S);
        self.backlog.end += waits_at(end);
        self.backlog.arrived += f64::from(u8::from(arrival >= RAMP_S));
    }

    /// The job of an open loop.
    fn open(self) -> JobResult {
        let backlog = Some(self.backlog);
        let mut job = JobResult { backlog, ..self.job() };
        job.directions.read.lat_intended_ns = Some(std::mem::take(&mut job.directions.read.lat_ns));
        job
    }

    fn job(self) -> JobResult {
        let step_ns = (SAMPLE_S * 1e9) as u64;
        let mut job = JobResult {
            runtime_ns: (self.seconds * 1e9) as u64,
            interval_ns: step_ns,
            ramp: Some(Ramp { ops: self.ramp_ops, ns: (RAMP_S * 1e9) as u64 }),
            ..JobResult::default()
        };
        for (index, &ops) in self.steps.iter().enumerate() {
            let end_ns = (index as u64 + 1) * step_ns;
            let mut interval = Interval { end_ns, length_ns: step_ns, ..Interval::default() };
            interval.ops.read = ops;
            job.intervals.push(interval);
        }
        job.directions.read.ops = self.lat.count();
        job.directions.read.lat_ns = self.lat;
        job
    }
}

/// The time between two visits in which nobody asks.
const IDLE_S: f64 = 0.025;

/// The limit that one sweep finds.
fn sweep(system: &System, random: &mut Random) -> Limit {
    let open = matches!(
        system.kind,
        Kind::OneServer
            | Kind::EightServers
            | Kind::Cap
            | Kind::Paced
            | Kind::Uneven
            | Kind::QueueObjective
            | Kind::RateBucket
            | Kind::RateLargeBucket
    );
    let mut tokens = Tokens { limit: system.capacity, most: system.bucket, now: system.bucket };
    let mut conditions = Vec::new();
    if open {
        conditions.push(Condition::KeepsUp);
    }
    conditions.extend(system.objective.map(Condition::Objective));
    let asked: Vec<f64> = match open {
        // As `plimsoll sweep` asks, from a first look at the throughput at full depth.
        true => {
            let looked = (system.capacity + system.bucket / 0.6) * (0.05 * random.normal()).exp();
            [0.125, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 2.0].iter().map(|part| (looked * part).round()).collect()
        }
        false => (0..=10).map(|power| f64::from(1 << power)).collect(),
    };
    let goal = Goal { line: false, limits: vec![conditions.clone()] };
    let finest_limit = if open { 1.05 } else { 1.1 };
    let limits = Limits {
        bound: 0.005,
        first_ns: 400 * MS,
        point_cap_ns: 6_000 * MS,
        curve_cap_ns: CURVE_NS,
        finest: 1.2,
        finest_limit,
        in_place: false,
        until: None,
        closed: 0,
    };
    let (mut curve, mut spent_ns, mut steps) = (Curve::default(), 0, 0);
    while let Step::Measure { x, runtime_ns, round, .. } = refine::next(&goal, &asked, &curve.points, spent_ns, &limits)
    {
        steps += 1;
        assert!(steps < 300 && runtime_ns > 0, "{:?}", system.kind);
        tokens.rest(IDLE_S);
        let mut point = Point::of(x, system.visit(x, runtime_ns as f64 / 1e9, &mut tokens, random));
        point.visits.iter_mut().for_each(|visit| (visit.at_ns, visit.round) = (spent_ns, round));
        match curve.points.iter_mut().find(|known| known.x == x) {
            Some(known) => known.extend(point),
            None => curve.points.push(point),
        }
        spent_ns += runtime_ns + 300 * MS;
    }
    assert!(spent_ns <= CURVE_NS + 1_000 * MS, "the sweep took {spent_ns} ns");
    curve.conclude(&goal);
    let limit = curve.saturation.or(curve.kept).expect("the goal asks for one");
    Limit { unnamed: limit.unnamed.map(|why| format!("{why} ({steps} visits)")), ..limit }
}

/// True if the interval from `low` to `high` holds the truth.
fn holds(system: &System, limit: &Limit) -> bool {
    let (least, most) = system.truth;
    let is_depth = system.objective.is_some() && system.kind != Kind::QueueObjective;
    let low_is_right = limit.low.is_none_or(|low| low <= most);
    // A depth that breaks is above the highest depth that keeps.
    let high_is_right = limit.high.is_none_or(|high| if is_depth { high > least } else { high >= least });
    low_is_right && high_is_right
}

#[derive(Default)]
struct Tally {
    runs: u64,
    right: u64,
    silent: u64,
    /// The quotient of the ends of each interval that has both.
    widths: Vec<f64>,
    wrong: Vec<String>,
}

fn tally(kind: Kind, from: u64, runs: u64) -> Tally {
    let next = AtomicU64::new(0);
    let all = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= runs {
                        break;
                    }
                    let seed = (from + run) * 1000 + kind as u64;
                    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
                    let system = System::any(kind, &mut random);
                    let limit = sweep(&system, &mut random);
                    let right = holds(&system, &limit);
                    let mut all = all.lock().unwrap();
                    all.runs += 1;
                    all.right += u64::from(right);
                    all.silent += u64::from(limit.low.is_none() && system.truth.1 >= 1.0);
                    all.widths.extend(limit.low.zip(limit.high).map(|(low, high)| high / low));
                    if !right {
                        all.wrong
                            .push(format!("seed {seed}: {:?} in {:?} to {:?}", system.truth, limit.low, limit.high));
                    }
                }
            });
        }
    });
    all.into_inner().unwrap()
}

/// In percent: sweeps that may say that they cannot tell, and the widest median interval as a factor.
fn promise(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::Paced => (5.0, 1.10),
        Kind::Uneven => (15.0, 1.60),
        Kind::QueueObjective => (15.0, 1.80),
        Kind::DepthTail => (25.0, 1.60),
        Kind::DepthBursts => (60.0, 4.0),
        Kind::RateLargeBucket | Kind::DepthBucket => (10.0, 1.80),
        _ => (10.0, 1.45),
    }
}

/// The part of sweeps, in percent, whose interval holds the true limit.
const COVERED: f64 = 95.0;
/// Sweeps of each kind in the continuous integration.
const RUNS: u64 = 24;

#[test]
fn intervals_hold_the_true_limit() {
    let set = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"));
    let (from, runs) = (set("COVERAGE_FROM", 0), set("COVERAGE_RUNS", RUNS));
    let mut broken = Vec::new();
    for kind in KINDS {
        let mut tally = tally(kind, from, runs);
        tally.widths.sort_by(f64::total_cmp);
        let width = tally.widths.get(tally.widths.len() / 2).copied().unwrap_or(f64::NAN);
        let part = |count: u64| 100.0 * count as f64 / tally.runs as f64;
        let row = format!(
            "{kind:?}: holds the truth in {:.1} %, cannot tell in {:.1} %, {} with both ends, median width x{width:.3}; {:?}",
            part(tally.right),
            part(tally.silent),
            tally.widths.len(),
            tally.wrong.iter().take(3).collect::<Vec<_>>(),
        );
        println!("{row}");
        let (silent, widest) = promise(kind);
        // Few runs: one of them is more than 5 %.
        let covered = COVERED.min(100.0 - 200.0 / runs as f64);
        if part(tally.right) < covered || part(tally.silent) > silent || width.is_nan() || width > widest {
            broken.push(row);
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
