//! The distance of the model from the published tables, and the calibration that makes it small.

use std::collections::HashMap;
use std::fmt::Write;

use super::machine::Machine;
pub use super::more::more;
pub use super::published::{Row, rows};
use super::confidence::{Confidence, Errors};
use super::kinds::{self, Kind, *};
use super::scenario::merge;
use super::sweep::{Run, run_all};
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
    Ok(rows.iter().zip(outcomes).map(|(row, o)| Compared { row: row.clone(), gbps: o.gbps }).collect())
}

/// All published rows, of all machines.
pub fn all_rows() -> Vec<Row> {
    rows().into_iter().chain(more()).collect()
}

/// A half of the rows that count, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All rows.
    All,
    /// The rows with `first`.
    First,
    /// The others.
    Second,
}

/// The parts of the rows on which each profile is fitted.
pub const PARTS: [Part; 3] = [Part::All, Part::First, Part::Second];

impl Part {
    /// The folder of the profiles that are fitted on it, in the folder profiles/ of this crate.
    pub fn folder(self) -> &'static str {
        match self {
            Part::All => "",
            Part::First => "first",
            Part::Second => "second",
        }
    }

    fn has(self, row: &Row) -> bool {
        match self {
            Part::All => true,
            Part::First => row.first,
            Part::Second => !row.first,
        }
    }
}

/// A parameter to be fitted: its name, where it is, its bounds, and the kinds of rows that know something about it.
pub struct Parameter {
    /// The path of its field in a profile.
    pub name: &'static str,
    /// Its place.
    pub get: fn(&mut Machine) -> &mut f64,
    /// The least value that makes sense.
    pub low: f64,
    /// The largest value that makes sense.
    pub high: f64,
    /// The kinds of rows by which it is judged.
    pub kinds: &'static [&'static str],
}

macro_rules! parameters {
    ($($name:literal, |$m:ident| $get:expr, $low:literal..$high:literal, $kinds:expr;)*) => {
        &[$(Parameter { name: $name, get: |$m| &mut $get, low: $low, high: $high, kinds: &$kinds }),*]
    };
}

/// The parameters of the fabric, the cores and the initiator, which all drives share.
pub const OF_MACHINE: &[Parameter] = parameters! {
    "turnaround_us", |m| m.turnaround_us, 0.0..30.0, [ONE];
    "fetch_us", |m| m.fetch_us, 0.0..30.0, [ONE, SMALL_WRITES];
    "initiator_op_us", |m| m.initiator_op_us, 0.5..8.0, [NULL, SMALL];
    "wire_op_bytes", |m| m.wire_op_bytes, 60.0..600.0, [NULL];
    "op_us", |m| m.op_us, 0.5..8.0, [NULL, SMALL, SMALL_WRITES];
    "drives.core_us", |m| m.drives.core_us, 0.0..8.0, [SMALL, CORES];
    "deep_us", |m| m.deep_us, 0.0..8.0, [SMALL, CORES];
    "deep_ops", |m| m.deep_ops, 100.0..10000.0, [SMALL, CORES];
};

/// The parameters of drives and of the memory path.
pub const OF_DRIVES: &[Parameter] = parameters! {
    "drives.read_us", |m| m.drives.read_us, 10.0..150.0, [ONE, LARGE_BUFFERS, SMALL];
    "drives.bus_gbytes", |m| m.drives.bus_gbytes, 0.8..8.0, [ONE, LARGE_BUFFERS];
    "drives.jitter", |m| m.drives.jitter, 0.0..0.9, [LARGE_BUFFERS, SMALL];
    "drives.bus_op_us", |m| m.drives.bus_op_us, 0.0..5.0, [SMALL];
    "drives.write_us", |m| m.drives.write_us, 1.0..100.0, [ONE, SMALL_WRITES];
    "drives.write_gbytes", |m| *m.drives.write_gbytes.get_or_insert(m.drives.bus_gbytes), 0.5..8.0, [LARGE_WRITES, ONE];
    "drives.write_op_us", |m| *m.drives.write_op_us.get_or_insert(1.0), 0.5..20.0, [SMALL_WRITES];
    "cache.curve[0] MiB", |m| m.cache.curve[0].0, 6.0..14.0, [LARGE, LARGE_BUFFERS];
    "cache.curve[1] Gb/s", |m| m.cache.curve[1].1, 90.0..184.0, [LARGE];
    "cache.curve[2] Gb/s", |m| m.cache.curve[2].1, 90.0..184.0, [LARGE];
    "cache.curve[3] Gb/s", |m| m.cache.curve[3].1, 80.0..184.0, [LARGE];
    "cache.spread", |m| m.cache.spread, 1.0..1.6, [LARGE, LARGE_BUFFERS];
    "cache.many_cores_factor", |m| m.cache.many_cores_factor, 0.3..1.0, [MIXED, SMALL, LARGE];
    "cache.many_cores_spread", |m| m.cache.many_cores_spread, 1.0..2.0, [MIXED, SMALL, LARGE];
    "cache.onset", |m| m.cache.onset, 1.02..3.0, [MIXED, SMALL, LARGE];
};

/// At most so many rows of a kind judge a parameter: a kind with many rows would only take longer.
const ROWS_OF_KIND: usize = 8;

/// These rows that count, thinned out to [`ROWS_OF_KIND`] of each kind, by kind.
fn by_kind<'a>(rows: &'a [Row], kinds: &[&str]) -> Result<Vec<(&'static str, Vec<&'a Row>)>, Error> {
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

/// The mean over the kinds of the mean absolute error, each row's capped at 25 %: a row that lands in another state says
/// only that it did. Errors count in units of the row's tolerance.
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

/// `machine` with these parameters moved, one after the other in shrinking steps, to where those `rows` agree best that
/// are in `part`. The other rows are not looked at. The same arguments give the same result to the byte. `say` is told
/// what improves.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn calibrate(
    machine: &Machine,
    rows: &[Row],
    part: Part,
    parameters: &[&Parameter],
    rounds: u32,
    threads: usize,
    say: &mut dyn FnMut(String),
) -> Result<Machine, Error> {
    let known: Vec<Row> = rows.iter().filter(|row| counts(row) && part.has(row)).cloned().collect();
    let mut best = machine.clone();
    // What was judged once is not simulated again.
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

/// These rows, each against the shipped profile of its machine.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn compare_shipped(rows: &[Row], threads: usize, progress: &(dyn Fn(f64) + Sync)) -> Result<Vec<Compared>, Error> {
    compare_with(rows, threads, progress, &|row| Machine::shipped(row.profile()))
}

/// These rows, each against the profile of its machine that was fitted on the half to which it does not belong.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn compare_crossed(rows: &[Row], threads: usize, progress: &(dyn Fn(f64) + Sync)) -> Result<Vec<Compared>, Error> {
    compare_with(rows, threads, progress, &|row| {
        Machine::fitted(row.profile(), if row.first { Part::Second } else { Part::First })
    })
}

/// Measured over simulated throughput of the rows that count, by profile and kind: see data/errors.json.
///
/// # Errors
/// A machine that is not valid.
pub fn errors(crossed: &[Compared]) -> Result<Errors, Error> {
    let mut errors = Errors::new();
    for c in crossed.iter().filter(|c| counts(&c.row)) {
        if let Ok(kind) = kinds::of(&c.row.scenario)? {
            let of = errors.entry(kind.profile).or_default().entry(kind.name.into()).or_default();
            of.push((c.row.gbps / c.gbps * 1e4).round() / 1e4);
        }
    }
    errors.values_mut().flat_map(|kinds| kinds.values_mut()).for_each(|of| of.sort_by(f64::total_cmp));
    Ok(errors)
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

/// The tests, in order.
pub const TESTS: [u32; 11] = [2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 18];

/// The comparison as Markdown: a summary by test, one by kind, then every row. `shipped` are the rows against the
/// profiles that were fitted on all of them, `crossed` against those that were fitted on the other half.
///
/// # Errors
/// A machine that is not valid.
pub fn markdown(shipped: &[Compared], crossed: &[Compared]) -> Result<String, Error> {
    let mut text = String::from(
        "# The model against every published row\n\n\
         Written by `plimsoll sim --published`; docs/sim.md explains the columns, docs/pacing.md which rows count and what \
         is off.\n\n\
         | test | tolerance | rows that count | shipped: within | crossed: within | crossed: mean, worst error | unstable rows within |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for test in TESTS {
        let (all, half) = (tally(shipped, test, counts), tally(crossed, test, counts));
        let other = tally(crossed, test, |row| !counts(row));
        let _ = writeln!(
            text,
            "| {test} | {:.1} % | {} | {} | {} | {:.1} %, {:.1} % | {} of {} |",
            100.0 * tolerance(test),
            all.rows,
            all.within,
            half.within,
            100.0 * half.mean,
            100.0 * half.worst,
            other.within,
            other.rows
        );
    }
    text.push_str(
        "\n| machine | kind | rows | shipped: within 8 % | crossed: within 8 % | within 15 % | interval |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let errors = errors(crossed)?;
    let shipped_errors = self::errors(shipped)?;
    let off = |ratio: &f64| (1.0 / ratio - 1.0).abs();
    for (profile, kinds) in &errors {
        for kind in kinds::KINDS.into_iter().filter(|kind| kinds.contains_key(*kind)) {
            let of = &kinds[kind];
            let within = |of: &[f64], bar: f64| of.iter().filter(|ratio| off(ratio) <= bar).count();
            let kind_of = Kind { profile: profile.clone(), name: kind };
            let interval = match Confidence::of_kind(&kind_of, 1.0, &errors) {
                Confidence::Interval { high_gbps, low_gbps, .. } => {
                    format!("-{:.1} % to +{:.1} %", 100.0 * (1.0 - low_gbps), 100.0 * (high_gbps - 1.0))
                }
                Confidence::Outside(_) => "none".into(),
            };
            let _ = writeln!(
                text,
                "| {profile} | {kind} | {} | {} | {} | {} | {interval} |",
                of.len(),
                within(&shipped_errors[profile][kind], 0.08),
                within(of, 0.08),
                within(of, 0.15)
            );
        }
    }
    let mut section = |title: &str, which: &dyn Fn(&Row) -> bool| {
        let _ = write!(
            text,
            "\n### {title}\n\n| row | published Gb/s | shipped | crossed | error | |\n| --- | --- | --- | --- | --- | --- |\n"
        );
        for (all, half) in shipped.iter().zip(crossed).filter(|(c, _)| which(&c.row)) {
            let row = &half.row;
            let remark = match (counts(row), half.error().abs() > tolerance(row.test)) {
                (false, _) => "unstable",
                (true, true) => "**outside**",
                (true, false) => "",
            };
            let (what, published, error) = (&row.what, row.gbps, 100.0 * half.error());
            let _ = writeln!(
                text,
                "| {what} | {published:.1} | {:.1} | {:.1} | {error:+.1} % | {remark} |",
                all.gbps, half.gbps
            );
        }
    };
    for test in TESTS {
        section(&format!("Test {test}"), &|row| row.test == test);
    }
    for profile in errors.keys() {
        section(&format!("{profile}, further rows"), &|row| row.test == 0 && row.profile() == profile);
    }
    Ok(text)
}
