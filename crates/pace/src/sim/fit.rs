//! The distance of the model from the published tables, and the calibration that makes it small.

use std::collections::{BTreeMap, HashMap};

use super::discrepancy::Measured;
use super::kinds::{self, *};
use super::load::Load;
use super::machine::Machine;
pub use super::more::more;
pub use super::published::{Row, rows};
use super::scenario::merge;
use super::sweep::{Run, run_all};
pub use super::tables::{Errors, constants, errors, markdown, shares};
use crate::config::Error;

/// A row, measured and simulated.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The published row.
    pub row: Row,
    /// Simulated throughput, Gb/s.
    pub gbps: f64,
}

impl Compared {
    /// Simulated over published, minus one.
    pub fn error(&self) -> f64 {
        self.gbps / self.row.gbps - 1.0
    }
}

/// The largest error that a test's rows may have, as a fraction: the bars of docs/pacing.md.
pub fn tolerance(test: u32) -> f64 {
    match test {
        3 => 0.03,
        5 => 0.015,
        _ => 0.08,
    }
}

fn on(machine: &Machine, row: &Row) -> Result<Run, Error> {
    let mut table: toml::Table = toml::Table::try_from(machine).map_err(|e| Error(format!("machine: {e}")))?;
    let mut own = row.scenario.machine.clone();
    own.remove("profile");
    merge(&mut table, own);
    let mut scenario = row.scenario.clone();
    scenario.machine = table;
    Ok(Run { set: Vec::new(), scenario })
}

/// These rows against `machine`.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn compare(
    machine: &Machine,
    rows: &[Row],
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Vec<Compared>, Error> {
    compare_with(rows, threads, progress, &|_| Ok(machine.clone()))
}

fn compare_with(
    rows: &[Row],
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
    machine_of: &dyn Fn(&Row) -> Result<Machine, Error>,
) -> Result<Vec<Compared>, Error> {
    let runs: Vec<Run> = rows.iter().map(|row| on(&machine_of(row)?, row)).collect::<Result<_, _>>()?;
    let outcomes = run_all(&runs, threads, progress)?;
    Ok(rows.iter().zip(outcomes).map(|(row, o)| Compared { row: row.clone(), gbps: o.simulated_gbps }).collect())
}

/// All published rows, of all machines.
pub fn all_rows() -> Vec<Row> {
    rows().into_iter().chain(more()).collect()
}

/// A parameter to be fitted: its name, where it is, its bounds, and the kinds of rows that know something about it.
pub struct Parameter {
    /// The path of its field in a profile.
    pub name: &'static str,
    /// The place of the parameter in a machine.
    pub get: fn(&mut Machine) -> &mut f64,
    /// The least value that makes sense.
    pub low: f64,
    /// The largest value that makes sense.
    pub high: f64,
    /// The kinds of rows by which it is judged.
    pub kinds: &'static [&'static str],
    /// The source of the value at which the search starts.
    pub source: &'static str,
}

macro_rules! parameters {
    ($($name:literal, |$m:ident| $get:expr, $low:literal..$high:literal, $kinds:expr, $source:expr;)*) => {
        &[$(Parameter { name: $name, get: |$m| &mut $get, low: $low, high: $high, kinds: &$kinds, source: $source }),*]
    };
}

/// The profile of before had this value, from a fit on half of the published tests.
const EARLIER: &str = "the profile before, fitted on half of tests 3 to 18";

/// The parameters of the fabric, the cores and the initiator, which all drives share.
pub const OF_MACHINE: &[Parameter] = parameters! {
    "turnaround_us", |m| m.turnaround_us, 0.0..30.0, [ONE], "latency of one 128k read of a null device, less wire and cores";
    "fetch_us", |m| m.fetch_us, 0.0..30.0, [ONE, SMALL_WRITES], "latency of one 128k write of a null device, less that of a read";
    "fetch_op_us", |m| *m.fetch_op_us.get_or_insert(1.0), 0.0..4.0, [SMALL_WRITES, MIXED_WRITES], "an assumption: less than half of an op";
    "initiator_op_us", |m| m.initiator_op_us, 0.5..8.0, [NULL, SMALL], "16 jobs that read 4k of null devices";
    "wire_op_bytes", |m| m.wire_op_bytes, 60.0..600.0, [NULL], "wire rate of 4k reads of null devices";
    "op_us", |m| m.op_us, 0.5..8.0, [NULL, SMALL, SMALL_WRITES], "an assumption: 16 cores that read 4k of null devices take at most 3 us";
    "drives.core_us", |m| m.drives.core_us, 0.0..8.0, [SMALL, CORES], "an assumption";
    "deep_us", |m| m.deep_us, 0.0..8.0, [SMALL, CORES], "one core that reads 4k, less op_us";
    "deep_ops", |m| m.deep_ops, 100.0..10000.0, [SMALL, CORES], "an assumption";
};

/// The parameters of drives.
pub const OF_DRIVES: &[Parameter] = parameters! {
    "drives.read_us", |m| m.drives.read_us, 10.0..150.0, [ONE, LARGE_BUFFERS, SMALL], "latency of one read by size, less that of null devices";
    "drives.read_fixed_us", |m| m.drives.read_fixed_us, 0.0..60.0, [ONE, SMALL], "latency of one read, less the time of a channel that the reads per second leave";
    "drives.bus_gbytes", |m| m.drives.bus_gbytes, 0.8..8.0, [ONE, LARGE_BUFFERS], "latency of one read by size";
    "drives.jitter", |m| m.drives.jitter, 0.0..0.9, [LARGE_BUFFERS, SMALL], "an assumption";
    "drives.bus_op_us", |m| m.drives.bus_op_us, 0.0..5.0, [SMALL], EARLIER;
    "drives.write_buffer_kib", |m| *m.drives.write_buffer_kib.get_or_insert(512.0), 0.0..4096.0, [LARGE_WRITES, MIXED_WRITES], "an assumption: a few writes of 128k";
    "drives.write_us", |m| m.drives.write_us, 1.0..100.0, [ONE, SMALL_WRITES], "latency of one write of 128k, less that of a null device and of the bus";
    "drives.write_gbytes", |m| *m.drives.write_gbytes.get_or_insert(m.drives.bus_gbytes), 0.5..8.0, [LARGE_WRITES], "writes of 128k, depth 64";
    "drives.write_op_us", |m| *m.drives.write_op_us.get_or_insert(1.0), 0.5..20.0, [SMALL_WRITES], "writes of 4k that carry their data";
};

/// The parameters of the memory path.
pub const OF_CACHE: &[Parameter] = parameters! {
    "cache.curve[0] MiB", |m| m.cache.curve[0].0, 6.0..14.0, [LARGE, LARGE_BUFFERS], EARLIER;
    "cache.curve[1] Gb/s", |m| m.cache.curve[1].1, 90.0..184.0, [LARGE], EARLIER;
    "cache.curve[2] Gb/s", |m| m.cache.curve[2].1, 90.0..184.0, [LARGE], EARLIER;
    "cache.curve[3] Gb/s", |m| m.cache.curve[3].1, 80.0..184.0, [LARGE], EARLIER;
    "cache.spread", |m| m.cache.spread, 1.0..1.6, [LARGE, LARGE_BUFFERS], EARLIER;
};

/// The parameters of the memory path that only rates and many cores show.
pub const OF_MANY_CORES: &[Parameter] = parameters! {
    "cache.many_cores_factor", |m| m.cache.many_cores_factor, 0.3..1.0, [MIXED, SMALL, LARGE], EARLIER;
    "cache.many_cores_spread", |m| m.cache.many_cores_spread, 1.0..2.0, [MIXED, SMALL, MIXED_RATE, MIXED_BYPASS], EARLIER;
    "cache.lag_mib", |m| m.cache.lag_mib, 0.0..100.0, [MIXED_RATE, MIXED_BYPASS, LARGE_RATE], "an assumption: the size of the cache";
    "cache.onset", |m| m.cache.onset, 1.02..3.0, [MIXED, SMALL, MIXED_BYPASS], "small reads out of pools of 12 and 16 MiB";
};

/// The number of rows of a kind that judge a parameter. More of them would only take longer.
const ROWS_OF_KIND: usize = 8;

/// These rows that count, thinned out to [`ROWS_OF_KIND`] of each kind, by kind.
pub(super) fn by_kind<'a>(rows: &'a [Row], kinds: &[&str]) -> Result<Vec<(&'static str, Vec<&'a Row>)>, Error> {
    let mut sets = Vec::new();
    for kind in kinds::KINDS.into_iter().filter(|kind| kinds.contains(kind)) {
        let mut of = Vec::new();
        for row in rows.iter().filter(|row| counts(row)) {
            if kinds::of(&row.scenario)?.is_ok_and(|found| found.name == kind) {
                of.push(row);
            }
        }
        let step = of.len().div_ceil(ROWS_OF_KIND).max(1);
        sets.push((kind, of.into_iter().step_by(step).collect()));
    }
    Ok(sets)
}

/// The mean over the kinds of the mean absolute error, each row's capped at 25 %: a row that lands in another state
/// says only that it did. Errors count in units of the row's tolerance.
fn cost(machine: &Machine, rows: &[Row], kinds: &[&str], threads: usize) -> Result<f64, Error> {
    let sets = by_kind(rows, kinds)?;
    let mut all: Vec<Row> = sets.iter().flat_map(|(_, rows)| rows).map(|row| (*row).clone()).collect();
    // A search compares many machines on the same rows: half of the time is enough to tell the better one. The warm-up
    // stays, because a queue that spills out of the cache needs it to settle.
    all.iter_mut().for_each(|row| row.scenario.seconds /= 2.0);
    let compared = compare(machine, &all, threads, &|_| {})?;
    let (mut sum, mut at, mut count) = (0.0, 0, 0);
    for (_, rows) in sets.iter().filter(|(_, rows)| !rows.is_empty()) {
        let errors = compared[at..at + rows.len()].iter().map(|c| c.error().abs().min(0.25) / tolerance(c.row.test));
        sum += errors.sum::<f64>() / rows.len() as f64;
        (at, count) = (at + rows.len(), count + 1);
    }
    Ok(sum / f64::from(count.max(1)))
}

/// `machine` with these parameters moved, one after the other in shrinking steps, to where the first half of `rows`
/// agrees best. The other half is not looked at. The same arguments give the same result to the byte. `say` is told
/// what improves.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn calibrate(
    machine: &Machine,
    rows: &[Row],
    parameters: &[&Parameter],
    rounds: u32,
    threads: usize,
    say: &mut dyn FnMut(String),
) -> Result<Machine, Error> {
    let known: Vec<Row> = rows.iter().filter(|row| row.first).cloned().collect();
    let mut best = machine.clone();
    // A machine that was judged once is not simulated again.
    let mut judged: HashMap<(String, Vec<&str>), f64> = HashMap::new();
    let mut judge = |machine: &Machine, kinds: &[&'static str]| -> Result<f64, Error> {
        let text = toml::to_string(machine).map_err(|e| Error(format!("machine: {e}")))?;
        let key = (text, kinds.to_vec());
        if let Some(&cost) = judged.get(&key) {
            return Ok(cost);
        }
        let cost = cost(machine, &known, kinds, threads)?;
        judged.insert(key, cost);
        Ok(cost)
    };
    for round in 0..rounds {
        // Channels are whole: every likely number is tried.
        let by = [SMALL, LARGE_BUFFERS];
        let mut least = judge(&best, &by)?;
        for channels in [7, 8, 9, 10, 12, 14, 17, 20, 24] {
            let mut next = best.clone();
            next.drives.channels = channels;
            let cost = judge(&next, &by)?;
            if cost < least {
                say(format!("round {round}: drives.channels = {channels}: cost {least:.4} -> {cost:.4}"));
                (best, least) = (next, cost);
            }
        }
        let step = 0.08 * 0.4f64.powi(round as i32);
        for parameter in parameters {
            let mut least = judge(&best, parameter.kinds)?;
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                let mut moved = false;
                for _ in 0..4 {
                    let mut next = best.clone();
                    let value = (parameter.get)(&mut next);
                    // Parameters that may be 0 or near 1 still move: a relative step with a small absolute part.
                    let target = (*value * factor + 0.1 * (factor - 1.0)).clamp(parameter.low, parameter.high);
                    *value = (target * 1e4).round() / 1e4;
                    let value = *value;
                    if !next.cache.curve.windows(2).all(|w| w[1].0 > w[0].0) {
                        break;
                    }
                    let cost = judge(&next, parameter.kinds)?;
                    if cost >= least - 1e-6 {
                        break;
                    }
                    say(format!("round {round}: {} = {value:.4}: cost {least:.4} -> {cost:.4}", parameter.name));
                    (best, least, moved) = (next, cost, true);
                }
                if moved {
                    break;
                }
            }
        }
    }
    Ok(best)
}

/// These rows, each against that of `machines` whose name is its profile's.
///
/// # Errors
/// A machine that cannot be simulated, or a profile without a machine.
pub fn compare_among(
    machines: &BTreeMap<String, Machine>,
    rows: &[Row],
    threads: usize,
) -> Result<Vec<Compared>, Error> {
    compare_with(rows, threads, &|_| {}, &|row| {
        machines.get(row.profile()).cloned().ok_or_else(|| Error(format!("{}: no such machine", row.profile())))
    })
}

/// These rows, each against the profile of its machine.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn compare_shipped(rows: &[Row], threads: usize, progress: &(dyn Fn(f64) + Sync)) -> Result<Vec<Compared>, Error> {
    compare_with(rows, threads, progress, &|row| Machine::shipped(row.profile()))
}

/// The rows that count and have a kind, measured and simulated.
///
/// # Errors
/// A machine that is not valid.
pub fn measured(compared: &[Compared]) -> Result<Vec<Measured>, Error> {
    let mut measured = Vec::new();
    for Compared { row, gbps } in compared.iter().filter(|c| counts(&c.row)) {
        if let Ok(kind) = kinds::of(&row.scenario)? {
            measured.push(Measured {
                kind: kind.name,
                load: Load::of(&row.scenario, &row.scenario.machine()?)?,
                gbps: row.gbps,
                simulated_gbps: *gbps,
                fitted: row.first,
            });
        }
    }
    Ok(measured)
}

/// The simulated throughput of all rows, Gb/s, in their order and with two digits: data/simulated.json.
pub fn simulated(compared: &[Compared]) -> Vec<f64> {
    compared.iter().map(|c| (c.gbps * 100.0).round() / 100.0).collect()
}

/// The number of a test's rows that are within the tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// The number of rows that count.
    pub rows: usize,
    /// The number of counted rows that are within the tolerance.
    pub within: usize,
    /// The largest error, as a fraction.
    pub worst: f64,
    /// The mean of the absolute errors, as a fraction.
    pub mean: f64,
}

/// The tally of those rows of `test` that `which` picks.
pub fn tally(compared: &[Compared], test: u32, which: impl Fn(&Row) -> bool) -> Tally {
    let picked: Vec<f64> =
        compared.iter().filter(|c| c.row.test == test && which(&c.row)).map(|c| c.error().abs()).collect();
    Tally {
        rows: picked.len(),
        within: picked.iter().filter(|&&e| e <= tolerance(test)).count(),
        worst: picked.iter().copied().fold(0.0, f64::max),
        mean: picked.iter().sum::<f64>() / picked.len().max(1) as f64,
    }
}

/// Rows that count for the bar: the stable ones, and all of test 3.
pub fn counts(row: &Row) -> bool {
    row.stable || row.test == 3
}

/// The machines with measured rows.
pub const PROFILES: [&str; 4] = ["intel-12-samsung-4", "intel-16", "samsung-12-intel-4", "samsung-16"];

/// The tests, in order.
pub const TESTS: [u32; 11] = [2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 18];
