//! The documents that hold the model against the published rows: shares, intervals, every row, the constants.

use std::fmt::Write;

use super::confidence::{Confidence, Trusted};
use super::discrepancy::{Discrepancy, Measured};
use super::fit::{
    Compared, PROFILES, Parameter, Row, TESTS, all_rows, by_kind, compare, counts, measured, tally, tolerance,
};
use super::kinds::{self, Kind};
use super::machine::Machine;
use crate::config::Error;

/// The constants of a profile as Markdown: the value, the range of the search, the source of its start, and the change
/// of each kind's throughput when the constant grows by a tenth.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn constants(profile: &str, machine: &Machine, parameters: &[&Parameter], threads: usize) -> Result<String, Error> {
    let rows: Vec<Row> = all_rows().into_iter().filter(|row| row.profile() == profile).collect();
    let mut sets = by_kind(&rows, &kinds::KINDS)?;
    sets.iter_mut().for_each(|(_, rows)| *rows = rows.iter().step_by(2).copied().collect());
    let mut picked: Vec<Row> = sets.iter().flat_map(|(_, rows)| rows).map(|row| (*row).clone()).collect();
    picked.iter_mut().for_each(|row| row.scenario.seconds /= 4.0);
    let mut all = machine.clone();
    let base = compare(&all, &picked, threads, &|_| {})?;
    let mut text = format!(
        "\n## {profile}\n\n| constant | value | range | start | moves, when it grows by a tenth |\n\
         | --- | --- | --- | --- | --- |\n"
    );
    for parameter in parameters {
        let value = *(parameter.get)(&mut all);
        let mut next = all.clone();
        *(parameter.get)(&mut next) = value * 1.1;
        let moved = if next.cache.curve.windows(2).all(|w| w[1].0 > w[0].0) {
            compare(&next, &picked, threads, &|_| {})?
        } else {
            base.clone()
        };
        let (mut at, mut kinds_moved) = (0, Vec::new());
        for (kind, rows) in sets.iter().filter(|(_, rows)| !rows.is_empty()) {
            let pairs = base[at..at + rows.len()].iter().zip(&moved[at..at + rows.len()]);
            let change = pairs.map(|(a, b)| b.gbps / a.gbps - 1.0).sum::<f64>() / rows.len() as f64;
            at += rows.len();
            if change.abs() >= 0.005 {
                kinds_moved.push(format!("{kind} {:+.1} %", 100.0 * change));
            }
        }
        let moves = if kinds_moved.is_empty() { "no kind by 0.5 %".to_string() } else { kinds_moved.join("; ") };
        let _ = writeln!(
            text,
            "| `{}` | {value} | {} to {} | {} | {moves} |",
            parameter.name, parameter.low, parameter.high, parameter.source
        );
    }
    Ok(text)
}

/// The errors of a kind's rows: simulated over measured throughput, minus one.
pub struct Errors {
    /// The kind.
    pub kind: &'static str,
    /// The errors of the model alone.
    pub alone: Vec<f64>,
    /// The errors of the model that all other rows correct.
    pub corrected: Vec<f64>,
}

impl Errors {
    /// Of errors: the part that is at most `bar`.
    pub fn share(of: &[f64], bar: f64) -> f64 {
        of.iter().filter(|error| error.abs() <= bar).count() as f64 / of.len().max(1) as f64
    }
}

/// The errors by kind, over all machines: of the rows that the fit looked at (`fitted`), or of the others.
pub fn errors(measured: &[Measured], fitted: bool) -> Vec<Errors> {
    let of_kind = |kind| {
        let discrepancy = Discrepancy::of(measured.iter().filter(|row| row.kind == kind).collect());
        let of = discrepancy.left_out().filter(|(row, ..)| row.fitted == fitted);
        let error = |log: f64| (-log).exp() - 1.0;
        let (alone, corrected) = of.map(|(_, expected, rest)| (error(expected.log + rest), error(rest))).unzip();
        Errors { kind, alone, corrected }
    };
    kinds::KINDS.into_iter().map(of_kind).collect()
}

/// The shares of rows within 8 % and within 15 % as Markdown, by kind: see [`errors`].
pub fn shares(measured: &[Measured], fitted: bool) -> String {
    let mut text = String::from(
        "| kind | rows | model alone: within 8 % | within 15 % | corrected: within 8 % | within 15 % | mean error |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let mut kinds = errors(measured, fitted);
    let all = |of: fn(&Errors) -> &[f64]| kinds.iter().flat_map(of).copied().collect();
    let (alone, corrected) = (all(|e| &e.alone), all(|e| &e.corrected));
    kinds.push(Errors { kind: "all", alone, corrected });
    for Errors { kind, alone, corrected } in &kinds {
        let rows = alone.len();
        let [near, far, own_near, own_far] = [(alone, 0.08), (alone, 0.15), (corrected, 0.08), (corrected, 0.15)]
            .map(|(of, bar)| format!("{:.0} %", 100.0 * Errors::share(of, bar)));
        let mean = 100.0 * corrected.iter().sum::<f64>() / rows.max(1) as f64;
        let _ = writeln!(text, "| {kind} | {rows} | {near} | {far} | {own_near} | {own_far} | {mean:+.1} % |");
    }
    text
}

/// The comparison as Markdown: a summary by test, one by kind, then every row.
///
/// # Errors
/// A machine that is not valid.
pub fn markdown(compared: &[Compared]) -> Result<String, Error> {
    let mut text = String::from(
        "# The model against every published row\n\n\
         Written by `plimsoll sim --published`; docs/sim.md explains kinds and intervals,\n\
         docs/pacing.md which rows count and what is off.\n\n\
         | test | tolerance | calibrating: within | held out: within | held out: mean, worst error | unstable rows within |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for test in TESTS {
        let half = tally(compared, test, |r| counts(r) && r.first);
        let held = tally(compared, test, |r| counts(r) && !r.first);
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
    let measured = measured(compared)?;
    let _ = write!(
        text,
        "\nHeld out, all machines: the model alone, and each row predicted by the model and all other rows:\n\n{}",
        shares(&measured, false)
    );
    text.push_str("\n| kind | held out: rows | in their intervals | half of the intervals are narrower than |\n");
    text.push_str("| --- | --- | --- | --- |\n");
    for kind in kinds::KINDS {
        text.push_str(&intervals_line(kind, &measured));
    }
    let mut section = |title: &str, which: &dyn Fn(&Row) -> bool| {
        let _ = write!(
            text,
            "\n### {title}\n\n| row | published Gb/s | simulated | error | |\n| --- | --- | --- | --- | --- |\n"
        );
        for c in compared.iter().filter(|c| which(&c.row)) {
            let row = &c.row;
            let half = match (counts(row), row.first) {
                (false, _) => "unstable",
                (true, true) => "calibrating",
                (true, false) => "held out",
            };
            let miss = if counts(row) && c.error().abs() > tolerance(row.test) { ", **outside**" } else { "" };
            let (what, published, error) = (&row.what, row.gbps, 100.0 * c.error());
            let _ = writeln!(text, "| {what} | {published:.1} | {:.1} | {error:+.1} % | {half}{miss} |", c.gbps);
        }
    };
    for test in TESTS {
        section(&format!("Test {test}"), &|row| row.test == test);
    }
    for profile in PROFILES {
        section(&format!("{profile}, further rows"), &|row| row.test == 0 && row.profile() == profile);
    }
    Ok(text)
}

/// The intervals of a kind's rows, each by all other rows.
fn intervals_line(kind: &'static str, measured: &[Measured]) -> String {
    let of_kind: Vec<&Measured> = measured.iter().filter(|row| row.kind == kind).collect();
    let (mut inside, mut widths) = (0, Vec::new());
    for (n, row) in of_kind.iter().enumerate().filter(|(_, row)| !row.fitted) {
        let others = Discrepancy::of([&of_kind[..n], &of_kind[n + 1..]].concat());
        let of = Kind { profile: row.load.profile.clone(), name: kind };
        let trusted = Trusted::by(&others, &of, &row.load, row.simulated_gbps);
        if let Confidence::Interval { low_gbps, high_gbps, .. } = trusted.confidence {
            inside += u32::from((low_gbps..=high_gbps).contains(&row.gbps));
            widths.push(high_gbps / trusted.gbps - 1.0);
        }
    }
    widths.sort_by(f64::total_cmp);
    match widths.get(widths.len() / 2) {
        Some(width) => format!("| {kind} | {} | {inside} | ±{:.1} % |\n", widths.len(), 100.0 * width),
        None => format!("| {kind} | 0 | none | - |\n"),
    }
}
