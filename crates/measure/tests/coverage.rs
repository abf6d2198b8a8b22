//! The promise of a sweep, on synthetic truth: the 95 % intervals hold the true plateau and the true load line, or the
//! sweep says that it cannot tell.
//!
//! Every sweep runs through the code that ships (`refine::next`, `load_line::find`) on a machine with a known curve and
//! a disturbance that goes on while the sweep moves from depth to depth. Seeds are fixed; `COVERAGE_FROM=200000` takes
//! others, at which nobody looked while the thresholds were chosen (the bars of plateau and load line hold for them,
//! too), and `COVERAGE_RUNS` more or fewer of them.

mod random;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use measure::load_line::{self, LOAD_LINE_FRACTION, OVERLOAD_FRACTION};
use measure::refine::{self, Goal, Limits, Step};
use measure::schema::{Interval, JobResult, LoadLine, Point, Ramp};
use measure::slices::{self, SETTLE_NS, Slice};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use random::Random;

const MS: u64 = 1_000_000;
/// The length of a sample, as in a real sweep.
const SAMPLE_NS: u64 = 50 * MS;
/// Ramp and start of a run, which are not measured.
const OVERHEAD_NS: u64 = 300 * MS;
/// The time between two runs in which nobody asks: the rest of the overhead is that of the last requests of a run.
const IDLE_NS: u64 = 25 * MS;
/// The start and the end of a run in slices.
const START_NS: u64 = 100 * MS;
/// The steps of a slice.
const SLICE_STEP_NS: u64 = 25 * MS;
/// The ramp alone.
const RAMP_NS: u64 = 200 * MS;
/// A sweep of 40 s less 3 s of layout and 2 s for the ceiling.
const CURVE_NS: u64 = 35_000 * MS;
const DEPTHS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// The disturbances of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Independent samples, 1 %.
    Quiet,
    /// Independent samples, 6 %.
    White,
    /// A first-order autoregressive process of 3 % with a correlation time of half a second.
    Autoregressive,
    /// A first-order autoregressive process of 3 % with a correlation time of three seconds: whole visits move
    /// together.
    Slow,
    /// Throughput rises or falls by up to a fifth from start to end.
    Drift,
    /// Short dips to between 40 and 80 %, every two seconds or so.
    Bursts,
    /// Two states, each lasting seconds; the lower one has 60 to 90 %.
    TwoStates,
    /// A neighbour that comes once or twice, for three to ten seconds, and takes 15 to 50 % while it is there.
    Neighbour,
    /// A neighbour that comes and goes as [`Kind::Neighbour`] does, and takes from the most that the machine can do:
    /// shallow depths do not notice.
    Cap,
    /// Samples with Student's t of two degrees of freedom.
    HeavyTails,
    /// Every visit is off by 2 %, and one in twenty gives up to half as much again: the lucky second.
    LuckyVisits,
    /// A disk that many machines share: a visit is off by 8 to 12 %, at depths up to 4 by 25 %; samples by 5 %.
    Shared,
    /// A processor that other programs keep busy: a visit is off by 20 to 50 %, samples by 30 %.
    Starved,
    /// A token bucket limits what the machine does; it holds what the limit gives in 3 to 100 ms, and fills while
    /// nobody asks. Samples by 1 %.
    Bucket,
    /// A token bucket as that of [`Kind::Bucket`], of up to half a second: not all of it fills between two visits.
    LargeBucket,
    /// A token bucket as that of [`Kind::Bucket`], under the replay of an application: a visit replays whole passes.
    Passes,
    /// The same with a bucket as that of [`Kind::LargeBucket`].
    LargePasses,
    /// A device of 500 to 4,000 ops a second from the first depths on, whose speed differs by 2 % from one third of a
    /// second to the next.
    Flat,
    /// A device as the one before, whose speed differs by 10 %.
    NoisyFlat,
    /// A device as that of [`Kind::Flat`] that gives half from some depth on.
    Cliff,
    /// A device as the one before, whose speed differs by 10 %.
    NoisyCliff,
    /// A device of 500 to 8,000 ops a second whose 4 to 64 servers take random times: its ops are counts of chance
    /// (Poisson), and a deep queue takes a part of a second to drain.
    Counting,
}

impl Kind {
    /// The part by which the speed of a device differs from one third of a second to the next.
    fn held_noise(self) -> Option<f64> {
        match self {
            Kind::Flat | Kind::Cliff => Some(0.02),
            Kind::NoisyFlat | Kind::NoisyCliff => Some(0.1),
            _ => None,
        }
    }

    fn has_bucket(self) -> bool {
        matches!(self, Kind::Bucket | Kind::LargeBucket | Kind::Passes | Kind::LargePasses)
    }
}

/// The throughput over depth of a machine that nothing disturbs.
#[derive(Clone, Copy, Debug)]
struct Machine {
    top: f64,
    /// The depth at which the asymptotes meet.
    knee: f64,
    /// The sharpness of the knee.
    sharp: f64,
    /// The first depth of overload, and the part that every doubling beyond it loses.
    falls: Option<(f64, f64)>,
    /// A limit with a token bucket: ops per second, and the ops that the bucket holds.
    limit: Option<(f64, f64)>,
    /// The first depth at which the machine gives half.
    cliff: Option<f64>,
}

impl Machine {
    fn any(kind: Kind, random: &mut Random) -> Machine {
        if kind == Kind::Counting {
            let servers = random.between(4f64.ln(), 64f64.ln()).exp().round();
            let top = random.between(500f64.ln(), 8000f64.ln()).exp();
            return Machine { top, knee: servers, sharp: 200.0, falls: None, limit: None, cliff: None };
        }
        if kind.held_noise().is_some() {
            return Machine::slow(kind, random);
        }
        let knee = random.between(1.5f64.ln(), 300f64.ln()).exp();
        let sharp = [2.0, 4.0, 40.0][(random.uniform() * 3.0) as usize];
        let falls = (random.uniform() < 0.5).then(|| (knee * random.between(3.0, 8.0), random.between(0.05, 0.25)));
        let top = random.between(1e6, 1e9);
        let machine =
            Machine { top, knee, sharp, falls: falls.filter(|(from, _)| *from < 600.0), limit: None, cliff: None };
        // A large bucket shows only at depths that ask for clearly more than the limit.
        let (seconds, highest) = match kind {
            Kind::Bucket | Kind::Passes => ((0.003f64, 0.1f64), 0.95),
            Kind::LargeBucket | Kind::LargePasses => ((0.1, 0.5), 0.75),
            _ => return machine,
        };
        // Depth 1 is below the limit, or just above it.
        let least = machine.throughput(1.0) / machine.top * 0.9;
        let rate = top * random.between(least.clamp(0.05, highest - 0.05), highest);
        let seconds = random.between(seconds.0.ln(), seconds.1.ln()).exp();
        Machine { limit: Some((rate, rate * seconds)), ..machine }
    }

    /// A device with a few servers: each depth up to their number gives its part.
    fn slow(kind: Kind, random: &mut Random) -> Machine {
        let servers = f64::from(1 << (random.uniform() * 5.0) as u32);
        let cliff = matches!(kind, Kind::Cliff | Kind::NoisyCliff)
            .then(|| servers * [4.0, 8.0, 16.0][(random.uniform() * 3.0) as usize]);
        Machine { top: random.between(500.0, 4000.0), knee: servers, sharp: 200.0, falls: None, limit: None, cliff }
    }

    /// The throughput that the machine sustains.
    fn sustained(&self, depth: f64) -> f64 {
        self.throughput(depth).min(self.limit.map_or(f64::MAX, |(rate, _)| rate))
    }

    /// The throughput of a step that asks for `throughput`; takes its tokens.
    fn given(&self, throughput: f64, tokens: &mut f64, step_ns: u64) -> f64 {
        let Some((rate, most)) = self.limit else { return throughput };
        let step_s = step_ns as f64 / 1e9;
        let ops = (throughput * step_s).min(*tokens + rate * step_s);
        *tokens = (*tokens + rate * step_s - ops).min(most);
        ops / step_s
    }

    /// The seconds in which `ops` are done that ask for `throughput`; takes their tokens.
    fn takes(&self, throughput: f64, ops: f64, tokens: &mut f64) -> f64 {
        let Some((rate, most)) = self.limit else { return ops / throughput };
        let on_tokens = if throughput > rate { throughput * *tokens / (throughput - rate) } else { f64::INFINITY };
        if on_tokens < ops {
            *tokens = 0.0;
            return on_tokens / throughput + (ops - on_tokens) / rate;
        }
        *tokens = (*tokens + ops / throughput * (rate - throughput)).min(most);
        ops / throughput
    }

    fn throughput(&self, depth: f64) -> f64 {
        let part = if self.cliff.is_some_and(|cliff| depth >= cliff) { 0.5 } else { 1.0 };
        let rise = part * self.top * (1.0 + (self.knee / depth).powf(self.sharp)).powf(-1.0 / self.sharp);
        match self.falls {
            Some((from, loss)) => rise * (1.0 - loss).powf((depth / from).log2().max(0.0)),
            None => rise,
        }
    }

    /// The truth over whole depths 1..=1024.
    fn truth(&self) -> Truth {
        let depths = || (1..=1024).map(f64::from);
        let top = depths().max_by(|a, b| self.sustained(*a).total_cmp(&self.sustained(*b))).expect("1024 depths");
        let plateau = self.sustained(top);
        let load_line = depths().find(|&depth| self.sustained(depth) >= LOAD_LINE_FRACTION * plateau);
        let overload = depths().find(|&depth| depth > top && self.sustained(depth) <= OVERLOAD_FRACTION * plateau);
        Truth { plateau, load_line: load_line.expect("the plateau itself"), overload, collapsed: self.cliff }
    }
}

/// The truth that a sweep should find.
struct Truth {
    plateau: f64,
    load_line: f64,
    overload: Option<f64>,
    /// The first depth of those that give half.
    collapsed: Option<f64>,
}

/// The disturbance as a factor over time, one value a sample.
fn disturbance(kind: Kind, random: &mut Random) -> Vec<f64> {
    let steps = (2 * CURVE_NS / SAMPLE_NS) as usize;
    let second = 1e9 / SAMPLE_NS as f64;
    let autoregressive = |random: &mut Random, deviation: f64, seconds: f64| -> Vec<f64> {
        let keep = (-1.0 / (seconds * second)).exp();
        let mut value = random.normal();
        (0..steps)
            .map(|_| {
                value = keep * value + (1.0 - keep * keep).sqrt() * random.normal();
                (1.0 + deviation * value).max(0.05)
            })
            .collect()
    };
    // Alternates between 1 and lower levels.
    let alternating = |random: &mut Random, above: f64, below: f64, level: (f64, f64), starts_below: bool| {
        let mut out = Vec::with_capacity(steps);
        let mut lower = starts_below;
        while out.len() < steps {
            let length = random.exponential(if lower { below } else { above }) * second;
            let factor = if lower { random.between(level.0, level.1) } else { 1.0 };
            out.extend(std::iter::repeat_n(factor, length.round() as usize));
            lower = !lower;
        }
        out
    };
    match kind {
        Kind::Autoregressive => autoregressive(random, 0.03, 0.5),
        Kind::Slow => autoregressive(random, 0.03, 3.0),
        Kind::Drift => {
            let part = random.between(-0.2, 0.2);
            let sweep = CURVE_NS as f64 / SAMPLE_NS as f64;
            (0..steps).map(|step| 1.0 + part * (step as f64 / sweep - 0.5).min(0.5)).collect()
        }
        Kind::Bursts => alternating(random, 2.0, 0.2, (0.4, 0.8), false),
        Kind::TwoStates => {
            let level = random.between(0.6, 0.9);
            let (above, below) = (random.between(2.0, 5.0), random.between(1.0, 4.0));
            let starts_below = random.uniform() < below / (above + below);
            alternating(random, above, below, (level, level), starts_below)
        }
        Kind::Neighbour | Kind::Cap => {
            let mut out = vec![1.0; steps];
            for _ in 0..1 + (random.uniform() * 2.0) as usize {
                let from = (random.between(0.0, 32.0) * second) as usize;
                let level = random.between(0.5, 0.85);
                out.iter_mut().skip(from).take((random.between(3.0, 10.0) * second) as usize).for_each(|f| *f *= level);
            }
            out
        }
        Kind::Quiet
        | Kind::White
        | Kind::HeavyTails
        | Kind::LuckyVisits
        | Kind::Shared
        | Kind::Starved
        | Kind::Bucket
        | Kind::LargeBucket
        | Kind::Passes
        | Kind::LargePasses
        | Kind::Counting => vec![1.0; steps],
        Kind::Flat | Kind::NoisyFlat | Kind::Cliff | Kind::NoisyCliff => {
            let noise = kind.held_noise().unwrap_or_default();
            let mut held = || (noise * random.normal()).exp();
            (0..steps / HELD_STEPS).flat_map(|_| std::iter::repeat_n(held(), HELD_STEPS)).collect()
        }
    }
}

/// Samples for which a device keeps its speed.
const HELD_STEPS: usize = 6;

/// The length of a pass at the recorded speed, which is that of `x` 1.
const PASS_NS: u64 = 1_000 * MS;

/// A visit that replays whole passes: one sample, because the requests of a pass differ.
fn passes(machine: &Machine, x: f64, least_ns: u64, tokens: &mut f64, random: &mut Random) -> JobResult {
    let ops = (machine.sustained(1.0) * PASS_NS as f64 / 1e9).round();
    machine.given(0.0, tokens, IDLE_NS);
    let mut pass = || {
        let asked = machine.throughput(x) * (1.0 + 0.01 * random.normal());
        (machine.takes(asked, ops, tokens) * (1.0 + 0.003 * random.normal()) * 1e9) as u64
    };
    let mut ramp = Ramp::default();
    while ramp.ns < RAMP_NS {
        ramp = Ramp { ops: ramp.ops + ops as u64, ns: ramp.ns + pass() };
    }
    let ramp = Some(ramp);
    let (mut length_ns, mut done) = (0, 0);
    while length_ns < least_ns || done == 0 {
        (length_ns, done) = (length_ns + pass(), done + ops as u64);
    }
    let mut interval = Interval { end_ns: length_ns, length_ns, ..Interval::default() };
    interval.ops.read = done;
    let mut job = JobResult { runtime_ns: length_ns, interval_ns: length_ns, ramp, ..JobResult::default() };
    job.directions.read.ops = done;
    job.intervals.push(interval);
    job
}

/// A machine with its disturbance.
struct Storage<'a> {
    kind: Kind,
    machine: &'a Machine,
    disturbance: &'a [f64],
    of_visits: f64,
    /// Of [`Kind::LuckyVisits`]: the factor of each lucky or usual second.
    seconds: &'a [f64],
}

/// The length of a lucky second: that of a visit.
const LUCKY_NS: u64 = 600 * MS;

/// The factor of [`Kind::LuckyVisits`].
fn lucky_second(random: &mut Random) -> f64 {
    if random.uniform() < 0.05 { 1.0 + random.between(0.1, 0.5) } else { 1.0 + 0.02 * random.normal() }
}

impl Storage<'_> {
    /// The factor by which a visit, or a slice, is off as a whole.
    fn lucky(&mut self, x: f64, random: &mut Random) -> f64 {
        match self.kind {
            Kind::LuckyVisits => lucky_second(random),
            Kind::Shared if x <= 4.0 => (0.25 * random.normal()).exp(),
            Kind::Shared | Kind::Starved => (self.of_visits * random.normal()).exp(),
            _ => 1.0,
        }
    }

    /// The ops of a step that ends at `now_ns`. The noise of a step is independent of that of the others: it is the
    /// larger the shorter the step.
    fn sample(&mut self, x: f64, now_ns: u64, step_ns: u64, lucky: f64, tokens: &mut f64, random: &mut Random) -> u64 {
        let noise = match self.kind {
            Kind::White => 0.06 * random.normal(),
            Kind::Shared => 0.05 * random.normal(),
            Kind::Starved => 0.3 * random.normal(),
            Kind::Flat | Kind::NoisyFlat | Kind::Cliff | Kind::NoisyCliff => 0.002 * random.normal(),
            Kind::HeavyTails => 0.01 * random.normal() / random.exponential(1.0).sqrt(),
            Kind::Counting => random.normal() / (self.machine.throughput(x) * SAMPLE_NS as f64 / 1e9).sqrt(),
            _ => 0.01 * random.normal(),
        } * (SAMPLE_NS as f64 / step_ns as f64).sqrt();
        let level = self.disturbance[((now_ns / SAMPLE_NS) as usize).min(self.disturbance.len() - 1)];
        let given = match self.kind {
            Kind::Cap => self.machine.throughput(x).min(self.machine.top * level),
            _ => self.machine.throughput(x) * level,
        };
        let factor = (1.0 + noise).clamp(0.02, 50.0) * lucky;
        (self.machine.given(given, tokens, step_ns) * factor * step_ns as f64 / 1e9).round() as u64
    }

    /// A slice that begins at `from_ns`.
    fn slice(
        &mut self,
        x: f64,
        settle_ns: u64,
        measured_ns: u64,
        from_ns: u64,
        tokens: &mut f64,
        random: &mut Random,
    ) -> JobResult {
        // A lucky second is longer than a slice.
        let lucky = match self.kind {
            Kind::LuckyVisits => self.seconds[((from_ns / LUCKY_NS) as usize).min(self.seconds.len() - 1)],
            _ => self.lucky(x, random),
        };
        let (settling, part_ns) = (settle_ns.div_ceil(SLICE_STEP_NS), SLICE_STEP_NS);
        for step in 1..=settling {
            self.sample(x, from_ns + step * part_ns, settle_ns / settling, lucky, tokens, random);
        }
        let steps = (measured_ns / SLICE_STEP_NS).max(2);
        let part_ns = measured_ns / steps;
        let mut job =
            JobResult { runtime_ns: part_ns * steps, interval_ns: part_ns, is_window: true, ..JobResult::default() };
        for step in 1..=steps {
            let now_ns = from_ns + settle_ns + step * part_ns;
            let mut interval = Interval { end_ns: step * part_ns, length_ns: part_ns, ..Interval::default() };
            interval.ops.read = self.sample(x, now_ns, part_ns, lucky, tokens, random);
            interval.lat_sum_ns.read = (x * part_ns as f64) as u64;
            job.directions.read.ops += interval.ops.read;
            job.intervals.push(interval);
        }
        job
    }
}

/// The line that one sweep found, the largest plateau that its visits support, and the nanoseconds that the sweep took.
fn sweep(kind: Kind, machine: &Machine, random: &mut Random) -> (LoadLine, f64, u64) {
    let disturbance = disturbance(kind, random);
    let of_visits = match kind {
        Kind::Shared => random.between(0.08, 0.12),
        Kind::Starved => random.between(0.2, 0.5),
        _ => 0.0,
    };
    let seconds: Vec<f64> = match kind {
        Kind::LuckyVisits => (0..2 * CURVE_NS / LUCKY_NS).map(|_| lucky_second(random)).collect(),
        _ => Vec::new(),
    };
    let mut limits = limits();
    let (mut points, mut spent_ns): (Vec<Point>, u64) = (Vec::new(), 0);
    let (mut steps, mut longest_ns) = (0, 0);
    let mut tokens = machine.limit.map_or(0.0, |(_, most)| most);
    // The points without slices, as long as slices are believed.
    let mut whole = Some(Vec::new()).filter(|_| !matches!(kind, Kind::Passes | Kind::LargePasses));
    loop {
        limits.in_place = whole.is_some();
        steps += 1;
        assert!(steps < 300);
        let at_ns = spent_ns;
        let (x, runtime_ns, round) = match refine::next(&Goal::load_line(), &DEPTHS, &points, spent_ns, &limits) {
            Step::Done(_) => break,
            Step::Measure { x, runtime_ns, round, .. } => (x, runtime_ns, round),
            Step::Slices { slices, round, .. } => {
                spent_ns += START_NS;
                let mut storage = Storage { kind, machine, disturbance: &disturbance, of_visits, seconds: &seconds };
                let mut before = 0.0f64;
                let mut of_depths: Vec<(f64, u64, Vec<JobResult>)> = Vec::new();
                for Slice { x, measured_ns, nominal_ns, .. } in slices {
                    let settle_ns = SETTLE_NS + (before.max(x) / machine.sustained(x) * 1e9) as u64;
                    before = x;
                    let job = storage.slice(x, settle_ns, measured_ns, spent_ns, &mut tokens, random);
                    spent_ns += settle_ns + measured_ns;
                    match of_depths.iter_mut().find(|(of, ..)| *of == x) {
                        Some((.., jobs)) => jobs.push(job),
                        None => of_depths.push((x, nominal_ns, vec![job])),
                    }
                }
                longest_ns = longest_ns.max(spent_ns - at_ns);
                for (x, ns, jobs) in of_depths {
                    let point = Point::of_slices(x, jobs, ns).expect("a slice at least");
                    enter(&mut points, point, at_ns, round);
                }
                if slices::memory(&points, "iodepth", spent_ns, &limits).is_some() {
                    points = whole.take().expect("slices were believed");
                }
                continue;
            }
        };
        assert!(runtime_ns > 0);
        if let Kind::Passes | Kind::LargePasses = kind {
            let job = passes(machine, x, runtime_ns, &mut tokens, random);
            spent_ns += OVERHEAD_NS - RAMP_NS + job.ramp.map_or(0, |ramp| ramp.ns) + job.runtime_ns;
            longest_ns = longest_ns.max(spent_ns - at_ns);
            enter(&mut points, Point::of(x, job), at_ns, round);
            continue;
        }
        spent_ns += OVERHEAD_NS;
        let mut storage = Storage { kind, machine, disturbance: &disturbance, of_visits, seconds: &seconds };
        let lucky = storage.lucky(x, random);
        let mut job = JobResult { runtime_ns, interval_ns: SAMPLE_NS, ..JobResult::default() };
        machine.given(0.0, &mut tokens, IDLE_NS);
        let mut ramp = Ramp { ops: 0, ns: RAMP_NS };
        let of_ramp = RAMP_NS / SAMPLE_NS;
        for step in 1..=of_ramp + runtime_ns / SAMPLE_NS {
            let now_ns = spent_ns + step * SAMPLE_NS - RAMP_NS;
            let ops = storage.sample(x, now_ns, SAMPLE_NS, lucky, &mut tokens, random);
            let Some(index) = step.checked_sub(of_ramp).filter(|index| *index > 0) else {
                ramp.ops += ops;
                continue;
            };
            let end_ns = index * SAMPLE_NS;
            let mut interval = Interval { end_ns, length_ns: SAMPLE_NS, ..Interval::default() };
            interval.ops.read = ops;
            job.intervals.push(interval);
        }
        job.ramp = Some(ramp);
        spent_ns += runtime_ns;
        let point = Point::of(x, job);
        if let Some(whole) = &mut whole {
            enter(whole, point.clone(), at_ns, round);
        }
        enter(&mut points, point, at_ns, round);
    }
    assert!(spent_ns <= CURVE_NS + longest_ns.max(1_000 * MS), "the sweep took {spent_ns} ns");
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let highest = points.iter().flat_map(Point::visit_means).fold(0.0, f64::max);
    (load_line::find(&points).expect("eleven depths give an answer"), SUPPORTED * highest, spent_ns)
}

/// A plateau is not higher than the fastest visit times this.
const SUPPORTED: f64 = 1.25;

/// The limits of `plimsoll sweep`.
fn limits() -> Limits {
    Limits {
        bound: 0.005,
        first_ns: 400 * MS,
        point_cap_ns: 4_000 * MS,
        curve_cap_ns: CURVE_NS,
        finest: 1.2,
        finest_limit: 1.1,
        in_place: false,
        until: None,
        closed: 0,
    }
}

fn enter(points: &mut Vec<Point>, mut point: Point, at_ns: u64, round: u32) {
    point.visits.iter_mut().for_each(|visit| (visit.at_ns, visit.round) = (at_ns, round));
    match points.iter_mut().find(|known| known.x == point.x) {
        Some(known) => known.extend(point),
        None => points.push(point),
    }
}

fn claimed(line: &LoadLine) -> Option<(f64, f64)> {
    line.load_line.map(|line| (line.low, line.high))
}

/// The sums over many sweeps of one kind.
#[derive(Default)]
struct Tally {
    runs: u64,
    cannot_tell: u64,
    plateau: u64,
    load_line: u64,
    rising: u64,
    bursts: u64,
    /// Sweeps with a statement that their own visits refute.
    refuted: u64,
    /// Sweeps that name an overload, those of them whose interval holds the true one, and those that miss one.
    overloads: u64,
    overload: u64,
    missed: u64,
    /// Width of the plateau's interval as a part of the plateau, and of the load line's as a factor.
    widths: Vec<(f64, f64)>,
    spent_ns: u64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Tally {
    fn add(&mut self, (line, highest, spent_ns): (LoadLine, f64, u64), truth: &Truth) {
        self.runs += 1;
        self.spent_ns += spent_ns;
        let Some((low, high)) = claimed(&line) else {
            self.cannot_tell += 1;
            return;
        };
        let p = &line.plateau_iops;
        self.plateau +=
            u64::from((p.low..=p.high).contains(&truth.plateau) || line.still_rising && truth.plateau >= p.low);
        let at = truth.load_line;
        self.load_line += u64::from((low..=high).contains(&at) || line.still_rising && at >= low);
        if let Some(found) = line.overload {
            self.overloads += 1;
            self.overload += u64::from(truth.overload.is_some_and(|at| (found.low..=found.high).contains(&at)));
        } else {
            self.missed += u64::from(truth.overload.is_some());
        }
        self.rising += u64::from(line.still_rising);
        self.bursts += u64::from(line.burst.is_some());
        self.refuted += u64::from(p.high > highest || truth.collapsed.is_some_and(|at| high >= at));
        self.widths.push(((p.high - p.low) / p.mean, high / low));
    }

    fn merge(&mut self, other: Tally) {
        self.runs += other.runs;
        self.cannot_tell += other.cannot_tell;
        self.plateau += other.plateau;
        self.load_line += other.load_line;
        self.rising += other.rising;
        self.bursts += other.bursts;
        self.refuted += other.refuted;
        self.overloads += other.overloads;
        self.overload += other.overload;
        self.missed += other.missed;
        self.widths.extend(other.widths);
        self.spent_ns += other.spent_ns;
    }

    fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / (self.runs - self.cannot_tell).max(1) as f64
    }
}

fn tally(kind: Kind, from: u64, runs: u64) -> Tally {
    let next = AtomicU64::new(0);
    let all = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut mine = Tally::default();
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= runs {
                        break;
                    }
                    let seed = (from + run) * 1000 + kind as u64;
                    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
                    let machine = Machine::any(kind, &mut random);
                    mine.add(sweep(kind, &machine, &mut random), &machine.truth());
                }
                all.lock().unwrap().merge(mine);
            });
        }
    });
    all.into_inner().unwrap()
}

/// The promise for a kind of disturbance, in percent.
struct Promise {
    kind: Kind,
    /// Sweeps that may say that they cannot tell.
    cannot_tell: f64,
    /// Of the sweeps that name a line: intervals that hold the true plateau and load line.
    covered: f64,
    /// Named overloads whose interval holds the true one.
    overload: f64,
}

const fn promise(kind: Kind, cannot_tell: f64, covered: f64, overload: f64) -> Promise {
    Promise { kind, cannot_tell, covered, overload }
}

/// Where a disturbance lasts as long as a round, a named overload may be that of the neighbour; a sweep cannot know.
const PROMISES: [Promise; 22] = [
    promise(Kind::Quiet, 1.0, 95.0, 95.0),
    promise(Kind::White, 3.0, 95.0, 95.0),
    promise(Kind::Autoregressive, 3.0, 95.0, 95.0),
    promise(Kind::Slow, 3.0, 93.0, 93.0),
    promise(Kind::Drift, 3.0, 95.0, 93.0),
    promise(Kind::Bursts, 20.0, 93.0, 85.0),
    promise(Kind::TwoStates, 8.0, 93.0, 75.0),
    promise(Kind::Neighbour, 20.0, 93.0, 75.0),
    promise(Kind::Cap, 20.0, 93.0, 75.0),
    promise(Kind::HeavyTails, 3.0, 95.0, 93.0),
    promise(Kind::LuckyVisits, 3.0, 95.0, 93.0),
    promise(Kind::Shared, 8.0, 93.0, 75.0),
    promise(Kind::Starved, 15.0, 93.0, 75.0),
    promise(Kind::Bucket, 3.0, 95.0, 93.0),
    promise(Kind::LargeBucket, 20.0, 93.0, 75.0),
    promise(Kind::Passes, 15.0, 93.0, 90.0),
    promise(Kind::LargePasses, 20.0, 93.0, 75.0),
    promise(Kind::Flat, 4.0, 95.0, 95.0),
    promise(Kind::NoisyFlat, 4.0, 95.0, 95.0),
    promise(Kind::Cliff, 4.0, 95.0, 95.0),
    promise(Kind::NoisyCliff, 4.0, 95.0, 95.0),
    promise(Kind::Counting, 4.0, 95.0, 95.0),
];

/// 22 kinds of this many sweeps are 20,240.
const RUNS: u64 = 920;
/// The part, in percent, of all sweeps of a kind that hold the truth or say that they cannot tell.
const HONEST: f64 = 93.0;
/// Sweeps, in percent, with a burst where there is none: a thousandth by the estimator's own claim.
const FALSE_BURSTS: f64 = 0.5;
/// Sweeps of a device without overload, in percent, that name one.
const FALSE_OVERLOADS: f64 = 0.5;
/// Sweeps, in percent, with a statement that their own visits refute.
const REFUTED: f64 = 0.5;
/// Sweeps of a device, in percent, that do not see the cliff, or see a rise that is not there.
const MISSED: f64 = 2.0;
/// Median widths on a quiet machine when a sweep visited every depth at one time only, and so covered 80 %: that of the
/// plateau as a part of it, that of the load line as a factor. They may grow by a quarter.
const QUIET_BEFORE: (f64, f64) = (0.0103, 1.213);

/// True if `seen` of `all` sweeps refute the promise that a part of `percent` has something: a binomial count as large
/// as `seen` has a probability below one in a hundred. Counts of a few sweeps differ from their promise by chance.
fn refute(seen: u64, all: u64, percent: f64) -> bool {
    let part = percent / 100.0;
    let mut probability = (1.0 - part).powf(all as f64);
    let mut below = 0.0;
    for count in 0..seen {
        below += probability;
        probability *= (all - count) as f64 / (count + 1) as f64 * part / (1.0 - part);
    }
    1.0 - below < 0.01
}

#[test]
fn a_promise_is_refuted_by_more_than_chance() {
    assert!(!refute(6, 920, 0.5) && !refute(9, 920, 0.5) && refute(12, 920, 0.5), "4.6 are expected");
    assert!(!refute(14, 139, 10.0) && refute(26, 139, 10.0), "13.9 are expected");
    assert!(!refute(0, 0, 5.0) && !refute(0, 920, 0.5));
}

#[test]
fn intervals_hold_the_truth_or_the_sweep_says_that_it_cannot_tell() {
    let set = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"));
    let only = std::env::var("COVERAGE_KIND").ok();
    let (from, runs) = (set("COVERAGE_FROM", 0), set("COVERAGE_RUNS", RUNS));
    let mut broken = Vec::new();
    for Promise { kind, cannot_tell, covered, overload } in PROMISES {
        if only.as_ref().is_some_and(|only| *only != format!("{kind:?}")) {
            continue;
        }
        let tally = tally(kind, from, runs);
        let (plateau, line) = (tally.percent(tally.plateau), tally.percent(tally.load_line));
        let silent = 100.0 * tally.cannot_tell as f64 / tally.runs as f64;
        let over = if tally.overloads == 0 { 100.0 } else { 100.0 * tally.overload as f64 / tally.overloads as f64 };
        let width = median(tally.widths.iter().map(|(plateau, _)| *plateau).collect());
        let factor = median(tally.widths.iter().map(|(_, line)| *line).collect());
        let row = format!(
            "{kind:?}: covers the plateau in {plateau:.1} %, the load line in {line:.1} %, the overload in {over:.1} % of \
             {} ({} missed); cannot tell in {silent:.1} %; rises in {:.1} %, \
             burst in {:.1} %, refuted {:.1} %; median widths {:.2} % and x{factor:.3}; {:.1} s",
            tally.overloads,
            tally.missed,
            tally.percent(tally.rising),
            tally.percent(tally.bursts),
            tally.percent(tally.refuted),
            width * 100.0,
            tally.spent_ns as f64 / tally.runs as f64 / 1e9,
        );
        println!("{row}");
        let quiet =
            kind != Kind::Quiet || width <= 1.25 * QUIET_BEFORE.0 && factor - 1.0 <= 1.25 * (QUIET_BEFORE.1 - 1.0);
        let worst = plateau.min(line);
        let honest = silent + worst * (100.0 - silent) / 100.0;
        let named = tally.runs - tally.cannot_tell;
        let told = (kind.has_bucket() || !refute(tally.bursts, named, FALSE_BURSTS))
            && (kind.held_noise().is_none() || !refute(tally.refuted, named, REFUTED));
        let wrong_overload = match kind {
            Kind::Flat | Kind::NoisyFlat | Kind::Counting => refute(tally.overloads, named, FALSE_OVERLOADS),
            _ => refute(tally.overloads - tally.overload, tally.overloads, 100.0 - overload),
        };
        let device = kind.held_noise().is_none() || tally.percent(tally.rising + tally.missed) <= MISSED;
        if !told || !device || worst < covered || honest < HONEST || silent > cannot_tell || wrong_overload || !quiet {
            broken.push(row);
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
