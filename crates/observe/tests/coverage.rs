//! The promise of the passive estimator, on synthetic truth: its bounds hold the true load line and its interval the
//! true plateau, or it says that it cannot tell.
//!
//! Each system is a birth-death process with the service curve of a known machine, driven by traffic that nobody
//! controls: clients that come and go, open arrivals, bursts, shifting mixes, caches, neighbours. Seeds are fixed;
//! `COVERAGE_RUNS` takes another number of them for each kind of traffic (`make coverage` takes 11,000 records in all),
//! `COVERAGE_FROM=200000` others.

#[path = "../../measure/tests/random/mod.rs"]
mod random;

use measure::load_line::LOAD_LINE_FRACTION;
use observe::passive::{self, Reason, Window};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use random::Random;

const WINDOWS: usize = 900;
/// Requests that can be in flight at all.
const DEEPEST: usize = 2048;

/// Throughput over depth, concave up to its plateau; beyond it may fall.
#[derive(Clone, Copy, Debug)]
struct Machine {
    top: f64,
    knee: f64,
    sharp: f64,
    falls: Option<(f64, f64)>,
}

impl Machine {
    fn any(random: &mut Random) -> Machine {
        let knee = random.between(1.0f64.ln(), 40f64.ln()).exp();
        let sharp = [2.0, 4.0, 40.0][(random.uniform() * 3.0) as usize];
        let falls = (random.uniform() < 0.3).then(|| (knee * random.between(3.0, 8.0), random.between(0.05, 0.25)));
        Machine { top: random.between(200.0, 2000.0), knee, sharp, falls }
    }

    fn throughput(&self, depth: f64) -> f64 {
        if depth <= 0.0 {
            return 0.0;
        }
        let rise = self.top * (1.0 + (self.knee / depth).powf(self.sharp)).powf(-1.0 / self.sharp);
        match self.falls {
            Some((from, loss)) => rise * (1.0 - loss).powf((depth / from).log2().max(0.0)),
            None => rise,
        }
    }

    fn curve(&self) -> Vec<f64> {
        (0..=DEEPEST).map(|depth| self.throughput(depth as f64)).collect()
    }
}

/// Plateau and load line of a curve over whole depths.
fn truth(curve: &[f64]) -> (f64, f64) {
    let plateau = curve.iter().copied().fold(0.0, f64::max);
    let line = curve.iter().position(|&iops| iops >= LOAD_LINE_FRACTION * plateau).expect("the plateau itself");
    (plateau, line as f64)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A number of clients that wander between 1 and several times the knee, each with one request always in flight.
    Closed,
    /// As closed, but the clients think between their requests.
    Thinking,
    /// Open arrivals, whose rate goes up and down to beyond the capacity.
    Open,
    /// Open arrivals up to 60 % of the capacity.
    Light,
    /// Open arrivals to 90 to 98 % of the capacity: near saturation, never in it.
    Near,
    /// Batches of requests at random times within the windows, from few to more than the device takes.
    Bursts,
    /// As closed, but the traffic alternates between two sizes of requests with different curves.
    Mix,
    /// As thinking, with a hit ratio that wanders between 0 and one half: hits take no place in the device.
    Cache,
    /// A constant demand below capacity, while a neighbour makes each request slower or faster.
    Demand,
    /// A demand that rises and stays at a limit outside the device, while a neighbour changes the latencies.
    Clipped,
    /// As closed, on a machine with two states, the lower with 60 to 90 %.
    TwoStates,
}

const KINDS: [Kind; 11] = [
    Kind::Closed,
    Kind::Thinking,
    Kind::Open,
    Kind::Light,
    Kind::Near,
    Kind::Bursts,
    Kind::Mix,
    Kind::Cache,
    Kind::Demand,
    Kind::Clipped,
    Kind::TwoStates,
];

/// A record of a synthetic system, with the curve that is true for the mix of its windows of 4096 bytes.
fn record(kind: Kind, random: &mut Random) -> (Vec<Window>, Vec<f64>) {
    let machine = Machine::any(random);
    let mut curve = machine.curve();
    let mut other = Machine { top: machine.top * 0.4, knee: machine.knee * 0.5, ..machine }.curve();
    let true_curve = curve.clone();
    let reach = random.between(1.0, 8.0) * machine.knee;
    let period = random.between(60.0, 400.0);
    let phase = random.between(0.0, 6.3);
    let peak = match kind {
        Kind::Light => random.between(0.3, 0.6),
        Kind::Near => random.between(0.9, 0.98),
        Kind::Demand | Kind::Clipped => random.between(0.4, 0.8),
        _ => random.between(0.9, 1.15),
    };
    let think = if matches!(kind, Kind::Thinking | Kind::Cache) { random.between(0.5, 4.0) } else { 0.0 };
    let low_state = random.between(0.6, 0.9);
    let (mut walk, mut slow, mut demand, mut hits) = (random.uniform(), 0.0f64, 0.0f64, random.uniform());
    let (mut state, mut large, mut n) = (1.0, false, 0usize);
    let mut windows = Vec::new();
    for second in 0..WINDOWS {
        if random.uniform() < 0.05 {
            walk = (walk + 0.25 * random.normal()).clamp(0.0, 1.0);
        }
        if random.uniform() < 0.02 {
            state = if state == 1.0 { low_state } else { 1.0 };
            large = !large;
        }
        slow = 0.9 * slow + 0.19f64.sqrt() * 0.5 * random.normal();
        demand = 0.8 * demand + 0.1 * random.normal();
        hits = (hits + 0.02 * random.normal()).clamp(0.0, 1.0);
        if matches!(kind, Kind::Demand | Kind::Clipped) {
            // The neighbour lengthens the way to the plateau and leaves the plateau as it is.
            curve = Machine { knee: machine.knee * slow.abs().exp(), ..machine }.curve();
        }
        let clients = reach.powf(walk).max(1.0).round();
        let clients = if think > 0.0 { clients * (1.0 + think) } else { clients };
        let wave = 0.55 + 0.45 * (std::f64::consts::TAU * second as f64 / period + phase).sin();
        let offered = match kind {
            Kind::Demand => peak * machine.top * (1.0 + 0.02 * random.normal()),
            Kind::Clipped => peak * machine.top * (1.6 * wave).min(1.0),
            Kind::Light | Kind::Near => machine.top * (peak * (wave + 0.05 * demand)).min(peak).max(0.02),
            _ => machine.top * (peak * wave + 0.2 * demand).max(0.02),
        };
        let hit_ratio = if kind == Kind::Cache { 0.5 * hits } else { 0.0 };
        let factor = if kind == Kind::TwoStates { state } else { 1.0 } * (1.0 + 0.01 * random.normal());
        let served: &[f64] = if kind == Kind::Mix && large { &other } else { &curve };
        let z = think * machine.knee / machine.top;
        let (mut at, mut area, mut busy, mut ops) = (0.0, 0.0, 0.0, 0u64);
        while at < 1.0 {
            let in_use = n as f64;
            let arrivals = match kind {
                Kind::Closed | Kind::Mix | Kind::TwoStates => {
                    if in_use < clients {
                        1e9
                    } else {
                        0.0
                    }
                }
                Kind::Thinking | Kind::Cache => (clients - in_use).max(0.0) / z,
                Kind::Bursts => offered / 20.0,
                _ => offered,
            };
            let service = served[n] * factor / (1.0 - hit_ratio);
            let rate = arrivals + service;
            let step = random.exponential(1.0 / rate).min(1.0 - at);
            area += in_use * step;
            busy += if n > 0 { step } else { 0.0 };
            at += step;
            if at >= 1.0 {
                break;
            }
            if random.uniform() * rate < arrivals {
                let batch = if kind == Kind::Bursts { 1 + (random.uniform() * 40.0) as usize } else { 1 };
                n = (n + batch).min(DEEPEST);
            } else if n > 0 {
                n -= 1;
                ops += 1;
            }
        }
        windows.push(Window {
            end_ns: (second as u64 + 1) * 1_000_000_000,
            seconds: 1.0,
            depth: area as f32,
            // The kernel counts busy time in ticks, and too much of it.
            busy: (busy + 0.004).min(1.0) as f32,
            iops: ops as f32,
            bytes_per_op: if kind == Kind::Mix && large { 65536.0 } else { 4096.0 },
            read_share: 1.0,
        });
    }
    // The mix that most windows have decides which curve is judged.
    let large = windows.iter().filter(|window| window.bytes_per_op > 4096.0).count();
    let judged = if large * 2 > WINDOWS { std::mem::take(&mut other) } else { true_curve };
    (windows, judged)
}

#[derive(Default)]
struct Tally {
    runs: u64,
    told: u64,
    line: u64,
    plateau: u64,
    widths: Vec<f64>,
    reasons: std::collections::BTreeMap<String, u64>,
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a whole number"))
}

fn tally(kind: Kind, from: u64, runs: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in from..from + runs {
        let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed * 31 + kind as u64));
        let (windows, curve) = record(kind, &mut random);
        let (plateau, line) = truth(&curve);
        tally.runs += 1;
        match passive::judge(&windows).line {
            Ok(found) => {
                tally.told += 1;
                let holds = (found.low..=found.high).contains(&line);
                let has = found.plateau_at_least_iops <= plateau;
                if std::env::var_os("COVERAGE_SHOW").is_some() && !(holds && has) {
                    println!("{kind:?} {seed}: line {line} plateau {plateau:.0}: {found:?}");
                }
                tally.line += u64::from(holds);
                tally.plateau += u64::from(has);
                tally.widths.push(found.high / found.low);
            }
            Err(reason) => {
                let name = match reason {
                    Reason::TooFew { .. } => "too few",
                    Reason::DemandConstant => "demand",
                    Reason::Scatter(_) => "scatter",
                    Reason::NeverAbove(_) => "never above",
                    Reason::Unresolved => "unresolved",
                };
                *tally.reasons.entry(name.into()).or_default() += 1;
            }
        }
    }
    tally.widths.sort_by(f64::total_cmp);
    tally
}

#[test]
fn the_bounds_hold_the_truth_or_the_estimator_cannot_tell() {
    let (from, runs) = (environment("COVERAGE_FROM", 0), environment("COVERAGE_RUNS", 20));
    let threads: Vec<_> =
        KINDS.into_iter().map(|kind| (kind, std::thread::spawn(move || tally(kind, from, runs)))).collect();
    let found: Vec<(Kind, Tally)> =
        threads.into_iter().map(|(kind, thread)| (kind, thread.join().expect("no panic"))).collect();
    for (kind, tally) in &found {
        let width = tally.widths.get(tally.widths.len() / 2).copied().unwrap_or(f64::NAN);
        println!(
            "{kind:?}: {} of {} told; line held {}, plateau held {}; median width x{width:.2}; {:?}",
            tally.told, tally.runs, tally.line, tally.plateau, tally.reasons
        );
    }
    let sum = |of: fn(&Tally) -> u64| found.iter().map(|(_, tally)| of(tally)).sum::<u64>();
    let told = sum(|tally| tally.told);
    // The promise: bounds are right in 95 of 100 records that have any.
    assert!(sum(|tally| tally.line) * 100 >= told * 95, "{told} told, {} lines held", sum(|tally| tally.line));
    assert!(sum(|tally| tally.plateau) * 100 >= told * 95, "{told} told, {} plateaus held", sum(|tally| tally.plateau));
    for (kind, tally) in &found {
        match kind {
            // Traffic that goes beyond the line again and again gives an answer now and then.
            Kind::Closed | Kind::Thinking => assert!(tally.told * 20 >= tally.runs, "{kind:?}: {} told", tally.told),
            // Nothing in this traffic shows the limit of the device.
            Kind::Light | Kind::Demand | Kind::Clipped | Kind::Cache => {
                assert!(tally.told * 20 <= tally.runs, "{kind:?}: {} told", tally.told);
            }
            _ => {}
        }
    }
}
