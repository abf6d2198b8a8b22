//! A comparison for a terminal: effects with their intervals and a plain sentence.

use std::fmt::Write;

use measure::effect::Outcome;
use measure::figures::{bytes_per_second, change, count, nanoseconds};
use measure::schema::{CannotTell, ComparisonResult, Difference, Effect, Ended};

use super::Table;
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
    let in_words;
    let (name, write): (&str, fn(f64) -> String) = match effect.figure.as_str() {
        "iops" => ("IOPS", count),
        "bw" => ("bandwidth", bytes_per_second),
        "lat_mean" => ("latency, mean", nanoseconds),
        "lat_p99" => ("latency, p99", nanoseconds),
        "cpu_per_op" => ("CPU an op", nanoseconds),
        other => {
            in_words = measure::effect::in_words(other);
            (&in_words, count)
        }
    };
    (name.to_owned(), write)
}

/// The change of an effect and its interval as written, as far as they mean anything.
pub(crate) fn changed(effect: &Effect) -> (String, String) {
    let range = || format!("{} to {}", change(effect.change.low), change(effect.change.high));
    match effect.cannot_tell {
        None => (change(effect.change.mean), range()),
        Some(CannotTell::NoInterval) => (change(effect.change.mean), "-".into()),
        Some(_) => ("-".into(), "-".into()),
    }
}

/// The value of a side as written; that of a curve that still rises is a lower bound.
pub(crate) fn value(effect: &Effect, mean: f64) -> String {
    let (_, write) = named(effect);
    match effect.cannot_tell {
        Some(CannotTell::Unnamed) => "?".into(),
        Some(CannotTell::NotKept) if mean == 0.0 => "?".into(),
        Some(CannotTell::LowerBound | CannotTell::NotBroken) => format!(">= {}", write(mean)),
        _ => write(mean),
    }
}

/// `better`, `worse`, `undecided` or `cannot tell`, for a load line `deeper` or `shallower`: side B against side A.
pub(crate) fn word(effect: &Effect) -> &'static str {
    match (effect.cannot_tell, effect.outcome()) {
        (Some(_), _) => "cannot tell",
        (None, Outcome::Better) => "better",
        (None, Outcome::Worse) => "worse",
        (None, Outcome::Larger) => "deeper",
        (None, Outcome::Smaller) => "shallower",
        (None, Outcome::Undecided) => "undecided",
    }
}

/// A differing option in one line: `iodepth: A 4, B 32`.
fn difference(difference: &Difference) -> String {
    let given = |value: &Option<String>| match value.as_deref() {
        None => "not given".to_string(),
        Some("") => "given".to_string(),
        Some(value) => value.to_string(),
    };
    format!("{}: A {}, B {}", difference.option, given(&difference.a), given(&difference.b))
}

/// The events that distort the runs of a side, for each side that has any.
pub(crate) fn disturbed_sides(comparison: &ComparisonResult) -> impl Iterator<Item = (char, String)> {
    let (a, b) = comparison.disturbances();
    [('A', a.listed()), ('B', b.listed())].into_iter().filter(|(_, events)| !events.is_empty())
}

/// A comparison: effects with their intervals and a plain sentence.
pub fn comparison(comparison: &ComparisonResult, style: Style) -> String {
    let (a, b) = &comparison.sides;
    let mut out = String::new();
    let _ = writeln!(out, "A  {a}\nB  {b}\n");
    let mut table = Table::new(["", "A", "B", "change", "95 % interval", "B is"]).left(5);
    for effect in &comparison.effects {
        let (name, _) = named(effect);
        let (change, interval) = changed(effect);
        table.row(vec![
            name,
            value(effect, effect.a.mean),
            value(effect, effect.b.mean),
            change,
            interval,
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
    if !comparison.estimator.is_empty() {
        let _ = writeln!(out, "{}", style.paint(Tone::Soft, &wrap(&comparison.estimator, style.width, 0)));
    }
    let jobs = comparison.runs.first().map_or(1, |(a, b)| a.jobs.len().max(b.jobs.len()));
    for (index, one) in comparison.differences.iter().enumerate() {
        let head = if index == 0 { "differ" } else { "" };
        let job = if jobs > 1 { format!("{}, ", one.job) } else { String::new() };
        let _ = writeln!(out, "{head:<7}{}", wrap(&format!("{job}{}", difference(one)), style.width, 7));
    }
    for (side, events) in disturbed_sides(comparison) {
        let _ = writeln!(out, "disturbed {side}: {events}");
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
