//! The distance of the model from the published tables, and the calibration that makes it small.

use std::fmt::Write;

use super::machine::Machine;
pub use super::published::{BLIND, Row, blind, rows};
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
    let runs: Vec<Run> = rows.iter().map(|row| on(machine, row)).collect::<Result<_, _>>()?;
    let outcomes = run_all(&runs, threads, progress)?;
    Ok(rows.iter().zip(outcomes).map(|(row, o)| Compared { row: row.clone(), gbps: o.gbps }).collect())
}

/// The rows that two profiles are compared on: those that count of the eight tests, and of the blind ones.
pub fn counting() -> Vec<Row> {
    rows().into_iter().chain(blind()).filter(counts).collect()
}

/// A parameter to be calibrated: a name, where it is, its bounds, and the rows that know something about it.
struct Parameter {
    name: &'static str,
    get: fn(&mut Machine) -> &mut f64,
    low: f64,
    high: f64,
    rows: fn(&Row) -> bool,
}

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "drives.read_us", get: |m| &mut m.drives.read_us, low: 10.0, high: 100.0, rows: paced_128k },
    Parameter { name: "drives.bus_gbytes", get: |m| &mut m.drives.bus_gbytes, low: 1.5, high: 8.0, rows: paced_128k },
    Parameter { name: "drives.jitter", get: |m| &mut m.drives.jitter, low: 0.0, high: 0.9, rows: paced_128k },
    Parameter { name: "turnaround_us", get: |m| &mut m.turnaround_us, low: 2.0, high: 30.0, rows: shallow },
    Parameter { name: "cache.curve[0] MiB", get: |m| &mut m.cache.curve[0].0, low: 8.0, high: 13.0, rows: spilling },
    Parameter {
        name: "cache.curve[1] Gb/s",
        get: |m| &mut m.cache.curve[1].1,
        low: 100.0,
        high: 184.0,
        rows: spilling,
    },
    Parameter {
        name: "cache.curve[2] Gb/s",
        get: |m| &mut m.cache.curve[2].1,
        low: 100.0,
        high: 184.0,
        rows: spilling,
    },
    Parameter { name: "cache.curve[3] Gb/s", get: |m| &mut m.cache.curve[3].1, low: 90.0, high: 184.0, rows: spilling },
    Parameter { name: "cache.spread", get: |m| &mut m.cache.spread, low: 1.0, high: 1.4, rows: spilling },
    Parameter { name: "initiator_op_us", get: |m| &mut m.initiator_op_us, low: 0.5, high: 8.0, rows: mixed },
    Parameter { name: "op_us", get: |m| &mut m.op_us, low: 1.0, high: 8.0, rows: mixed },
    Parameter { name: "drives.bus_op_us", get: |m| &mut m.drives.bus_op_us, low: 0.0, high: 5.0, rows: mixed },
    Parameter {
        name: "cache.many_cores_factor",
        get: |m| &mut m.cache.many_cores_factor,
        low: 0.3,
        high: 1.0,
        rows: many_cores,
    },
    Parameter {
        name: "cache.many_cores_spread",
        get: |m| &mut m.cache.many_cores_spread,
        low: 1.0,
        high: 2.0,
        rows: many_cores,
    },
    Parameter { name: "cache.onset", get: |m| &mut m.cache.onset, low: 1.02, high: 3.0, rows: many_cores },
];

fn paced_128k(row: &Row) -> bool {
    matches!(row.test, 10..=12)
}

fn spilling(row: &Row) -> bool {
    matches!(row.test, 3 | 5) || row.test == 10 && row.what.starts_with("128")
}

/// Rows bound by latency or by the work per op.
fn mixed(row: &Row) -> bool {
    row.test == 18 && row.scenario.jobs[0].depth <= 64 && (row.what.contains("3:") || !row.what.contains("128k"))
}

fn shallow(row: &Row) -> bool {
    matches!(row.test, 3 | 5) || row.test == 10 || row.test == 18 && row.scenario.jobs[0].depth <= 16
}

fn many_cores(row: &Row) -> bool {
    row.test == 18 && (row.what.contains("unpaced") || row.what.contains("bypass"))
        || matches!(row.test, 3 | 5) && row.what.starts_with("kernel")
}

/// Mean absolute error, each row's capped at 25 %: a row that lands in another state says only that it did.
fn cost(compared: &[Compared]) -> f64 {
    compared.iter().map(|c| c.error().abs().min(0.25) / tolerance(c.row.test)).sum::<f64>()
        / compared.len().max(1) as f64
}

/// The parameters of a shipped profile that documents or latencies give: calibration leaves them alone.
pub fn derived(profile: &str) -> &'static [&'static str] {
    match profile {
        "intel-16-rdma" => &["initiator_op_us", "op_us", "turnaround_us"],
        _ => &[],
    }
}

/// `machine` with its parameters but those that are `derived` moved, one after the other in shrinking steps, to where
/// the calibrating half of the rows agrees best. The other half is not looked at. `say` is told what improves.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn calibrate(
    machine: &Machine,
    derived: &[&str],
    rounds: u32,
    threads: usize,
    say: &mut dyn FnMut(String),
) -> Result<Machine, Error> {
    let known: Vec<Row> = rows().into_iter().filter(|row| row.calibrates).collect();
    let mut best = machine.clone();
    for round in 0..rounds {
        let step = 0.08 * 0.5f64.powi(round as i32);
        // Channels are whole: every likely number is tried.
        let whole: Vec<Row> = known.iter().filter(|row| mixed(row)).cloned().collect();
        let mut least = cost(&compare(&best, &whole, threads, &|_| {})?);
        for channels in [7, 8, 9, 10, 12, 16] {
            let mut next = best.clone();
            next.drives.channels = channels;
            let cost = cost(&compare(&next, &whole, threads, &|_| {})?);
            if cost < least {
                say(format!("round {round}: drives.channels = {channels}: cost {least:.4} -> {cost:.4}"));
                (best, least) = (next, cost);
            }
        }
        for parameter in PARAMETERS.iter().filter(|parameter| !derived.contains(&parameter.name)) {
            let rows: Vec<Row> = known.iter().filter(|row| (parameter.rows)(row)).cloned().collect();
            let judge = |m: &Machine| Ok::<f64, Error>(cost(&compare(m, &rows, threads, &|_| {})?));
            let mut least = judge(&best)?;
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                let mut moved = false;
                for _ in 0..4 {
                    let mut next = best.clone();
                    let value = (parameter.get)(&mut next);
                    // Parameters that may be 0 or near 1 still move: a relative step with a small absolute part.
                    *value = (*value * factor + 0.02 * (factor - 1.0)).clamp(parameter.low, parameter.high);
                    let value = *value;
                    if !next.cache.curve.windows(2).all(|w| w[1].0 > w[0].0) {
                        break;
                    }
                    let cost = judge(&next)?;
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
    for parameter in PARAMETERS {
        let value = (parameter.get)(&mut best);
        *value = (*value * 1e4).round() / 1e4;
    }
    Ok(best)
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
pub const TESTS: [u32; 8] = [3, 5, 10, 11, 12, 14, 15, 18];

/// The comparison as Markdown: a summary per test, then every row.
pub fn markdown(compared: &[Compared]) -> String {
    let mut text = String::from(
        "# The model against every published row\n\n\
         Written by `plimsoll sim --published`; docs/pacing.md explains which rows count and what is off.\n\n\
         | test | tolerance | calibrating: within | held out: within | held out: mean, worst error | unstable rows within |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for test in TESTS {
        let half = tally(compared, test, |r| counts(r) && r.calibrates);
        let held = tally(compared, test, |r| counts(r) && !r.calibrates);
        let other = tally(compared, test, |r| !counts(r));
        let _ = writeln!(
            text,
            "| {test} | {:.1} % | {} of {} | {} of {} | {:.1} %, {:.1} % | {} of {} |",
            100.0 * tolerance(test),
            half.within,
            half.rows,
            held.within,
            held.rows,
            100.0 * held.mean,
            100.0 * held.worst,
            other.within,
            other.rows
        );
    }
    for test in TESTS {
        let _ = write!(
            text,
            "\n### Test {test}\n\n| row | published Gb/s | simulated | error | |\n| --- | --- | --- | --- | --- |\n"
        );
        for c in compared.iter().filter(|c| c.row.test == test) {
            let kind = match (counts(&c.row), c.row.calibrates) {
                (false, _) => "unstable",
                (true, true) => "calibrating",
                (true, false) => "held out",
            };
            let miss = if counts(&c.row) && c.error().abs() > tolerance(test) { ", **outside**" } else { "" };
            let _ = writeln!(
                text,
                "| {} | {:.1} | {:.1} | {:+.1} % | {kind}{miss} |",
                c.row.what,
                c.row.gbps,
                c.gbps,
                100.0 * c.error()
            );
        }
    }
    text
}

/// Two profiles side by side, by the name of each, over the rows of [`counting`], as Markdown: a summary, then
/// every row that neither was fitted on.
pub fn side_by_side(profiles: [(&str, &[Compared]); 2]) -> String {
    let [(first, of_first), (second, of_second)] = profiles;
    let mut text = format!(
        "| test | rows | {first}: within | mean, worst error | {second}: within | mean, worst error |\n\
         | --- | --- | --- | --- | --- | --- |\n"
    );
    let mut line = |test: u32, kind: &str, which: &dyn Fn(&Row) -> bool| {
        let _ = write!(text, "| {test} | {kind} |");
        for compared in [of_first, of_second] {
            let t = tally(compared, test, which);
            let (mean, worst) = (100.0 * t.mean, 100.0 * t.worst);
            let _ = write!(text, " {} of {} | {mean:.1} %, {worst:.1} % |", t.within, t.rows);
        }
        text.push('\n');
    };
    for test in TESTS {
        line(test, "calibrating", &|row| row.calibrates);
        line(test, "held out", &|row| !row.calibrates);
    }
    let is_small = |row: &Row| row.scenario.jobs.iter().flat_map(|job| &job.sizes).all(|size| size.bytes <= 16 << 10);
    line(18, "4, 8 and 16 KiB alone, calibrating", &|row| row.calibrates && is_small(row));
    line(18, "4, 8 and 16 KiB alone, held out", &|row| !row.calibrates && is_small(row));
    for test in BLIND {
        line(test, "blind", &|_| true);
    }
    for test in TESTS.into_iter().chain(BLIND) {
        let kind = if BLIND.contains(&test) { "blind" } else { "held out" };
        let _ = write!(
            text,
            "\n### Test {test}, {kind}\n\n| row | published Gb/s | {first} | error | {second} | error |\n\
             | --- | --- | --- | --- | --- | --- |\n"
        );
        for (a, b) in of_first.iter().zip(of_second).filter(|(a, _)| a.row.test == test && !a.row.calibrates) {
            let (row, published) = (&a.row.what, a.row.gbps);
            let (of_a, of_b) = (100.0 * a.error(), 100.0 * b.error());
            let _ = writeln!(
                text,
                "| {row} | {published:.1} | {:.1} | {of_a:+.1} % | {:.1} | {of_b:+.1} % |",
                a.gbps, b.gbps
            );
        }
    }
    text
}
