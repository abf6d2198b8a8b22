//! Sentences on how far the figures of simulations can be trusted.

use pace::sim::{Confidence, Outcome, Run};

use super::table::label;

/// The pairs of methods that are listed one by one.
const PAIRS_MAX: usize = 12;

/// The sources of the intervals, the runs that have none, and the differences between pacing methods.
pub fn remarks(results: &[(Run, Outcome)]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (_, outcome) in results {
        let remark = match &outcome.confidence {
            Confidence::Interval { coverage, kind, rows, .. } => format!(
                "interval: {:.0} of 100 measured rows of the kind \"{kind}\" lie in it, by the errors on {rows} rows",
                100.0 * coverage
            ),
            Confidence::Outside(why) => format!("outside what was measured, so without an interval: {why}"),
        };
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
    remarks.extend(differences(results));
    remarks
}

/// Of each scenario that was run with several methods: the first method against each of the others.
fn differences(results: &[(Run, Outcome)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, (run, outcome)) in results.iter().enumerate() {
        let Some(method) = method_of(run) else { continue };
        let first = results[..at].iter().find(|(other, _)| method_of(other).is_some() && same_but_pacing(run, other));
        let Some((other_run, other)) = first.filter(|(other, _)| method_of(other) != Some(method)) else { continue };
        let verdict = match outcome.confidence.differs(&other.confidence) {
            Some(true) => "differ by more than the model's error",
            Some(false) => "do not differ by more than the model's error",
            None => "differ by an amount whose error nobody has measured",
        };
        lines.push(format!(
            "{} and {}: {:.1} and {:.1} Gb/s {verdict}",
            label(other_run),
            label(run),
            other.gbps,
            outcome.gbps
        ));
    }
    let more = lines.len().saturating_sub(PAIRS_MAX);
    lines.truncate(PAIRS_MAX);
    if more > 0 {
        lines.push(format!("{more} more pairs of methods: see the intervals"));
    }
    lines
}

fn method_of(run: &Run) -> Option<&toml::Value> {
    run.set.iter().find(|(param, _)| param.starts_with("pacing")).map(|(_, value)| value)
}

fn same_but_pacing(a: &Run, b: &Run) -> bool {
    fn others(run: &Run) -> Vec<&(String, toml::Value)> {
        run.set.iter().filter(|(param, _)| !param.starts_with("pacing")).collect()
    }
    a.scenario.name == b.scenario.name && others(a) == others(b)
}
