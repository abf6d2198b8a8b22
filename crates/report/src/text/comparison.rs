//! A comparison for a terminal: effects with their intervals and a plain sentence.

use std::fmt::Write;

use measure::effect::Outcome;
use measure::figures::{bytes_per_second, change, count, nanoseconds};
use measure::schema::{ComparisonResult, Effect, Ended};

use super::table::Table;
use super::{Style, Tone, machine, verdicts, wrap};

/// An effect's figure as people call it, and how its values are written.
pub(crate) fn named(effect: &Effect) -> (String, fn(f64) -> String) {
    // Of runs on files: the phase, what of it.
    if let Some((phase, figure)) = effect.figure.rsplit_once(':') {
        return match figure {
            "lat_p99" => (format!("{phase}: latency, p99"), nanoseconds),
            _ => (format!("{phase}: files/s"), count),
        };
    }
    let (name, write): (&str, fn(f64) -> String) = match effect.figure.as_str() {
        "iops" => ("IOPS", count),
        "bw" => ("bandwidth", bytes_per_second),
        "lat_mean" => ("latency, mean", nanoseconds),
        "lat_p99" => ("latency, p99", nanoseconds),
        "cpu_per_op" => ("CPU an op", nanoseconds),
        other => (other, count),
    };
    (name.to_owned(), write)
}

/// The interval of an effect's change, as far as there is one.
pub(crate) fn interval(effect: &Effect) -> String {
    match effect.no_interval {
        true => "-".into(),
        false => format!("{} to {}", change(effect.change.low), change(effect.change.high)),
    }
}

/// `better`, `worse` or `undecided`.
pub(crate) fn word(effect: &Effect) -> &'static str {
    match effect.outcome() {
        Outcome::Better => "better",
        Outcome::Worse => "worse",
        Outcome::Undecided => "undecided",
    }
}

/// A comparison: effects with their intervals and a plain sentence.
pub fn comparison(comparison: &ComparisonResult, style: Style) -> String {
    let (a, b) = &comparison.sides;
    let mut out = String::new();
    let mut table = Table::new(["", a, b, "change", "95 % interval", "second side"]).left(5);
    for effect in &comparison.effects {
        let (name, write) = named(effect);
        table.row(vec![
            name,
            write(effect.a.mean),
            write(effect.b.mean),
            change(effect.change.mean),
            interval(effect),
            word(effect).to_string(),
        ]);
    }
    if !comparison.effects.is_empty() {
        out.push_str(&table.render(style, 0));
        out.push('\n');
    }
    if !comparison.runs.is_empty() {
        let note = format!("{} runs a side, interleaved", comparison.runs.len());
        let _ = writeln!(out, "{}", style.paint(Tone::Soft, &note));
    }
    let judged = verdicts(&comparison.verdicts, style, 0);
    if !judged.is_empty() {
        let _ = writeln!(out, "{judged}");
    }
    if comparison.ended == Ended::Interrupted {
        out.push_str(&style.paint(Tone::Warning, "Interrupted: only the pairs that ran were compared.\n"));
    }
    let _ = writeln!(out, "{}", style.paint(Tone::Bold, &wrap(&comparison.sentence, style.width, 0)));
    let on = machine(&comparison.provenance.machine);
    if !on.is_empty() {
        let _ = writeln!(out, "{}", style.paint(Tone::Soft, &format!("on {on}")));
    }
    out
}
