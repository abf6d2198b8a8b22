//! A comparison on the page: effects with their intervals, and the runs they come from.

use std::fmt::Write;

use measure::figures::{change, plain};
use measure::schema::{ComparisonResult, Effect, JobResult, RunResult};

use super::{Table, cards, percentile_chart};
use crate::svg::{Axis, Chart, Format, Kind, Series, escape};
use crate::text::{interval, named, word};

/// One comparison; its sentence too, where it is not the page's headline.
pub(super) fn section(comparison: &ComparisonResult, with_sentence: bool) -> String {
    let (a, b) = &comparison.sides;
    let mut out = String::new();
    let _ = write!(out, "<h2>{} against {}</h2>", escape(b), escape(a));
    if with_sentence {
        let _ = write!(out, "<p class=\"sentence\">{}</p>", escape(&comparison.sentence));
    }
    if !comparison.effects.is_empty() {
        out.push_str(&format!("<div class=\"card\">{}</div>", forest(&comparison.effects, b)));
        let mut table = Table::new(&["figure", a, b, "change", "95 % interval", "second side"]);
        for effect in &comparison.effects {
            let (name, write) = named(effect);
            table.row(
                "",
                &[
                    ("", name),
                    ("", write(effect.a.mean)),
                    ("", write(effect.b.mean)),
                    ("", change(effect.change.mean)),
                    ("", interval(effect)),
                    (word(effect), word(effect).to_string()),
                ],
            );
        }
        out.push_str(&table.end());
    }
    if comparison.runs.len() > 1 {
        let rate = |run: &RunResult| {
            let one = |job: &JobResult| job.total_ops() as f64 * 1e9 / job.runtime_ns.max(1) as f64;
            run.jobs.iter().map(one).sum::<f64>()
        };
        let points = |of: &dyn Fn(&(RunResult, RunResult)) -> f64| {
            comparison.runs.iter().enumerate().map(|(index, pair)| (index as f64 + 1.0, of(pair))).collect::<Vec<_>>()
        };
        let runs = Chart::new("IOPS of each pair of runs")
            .x(Axis::linear("pair").range(0.5, comparison.runs.len() as f64 + 0.5))
            .y(Axis::linear("IOPS").format(Format::Count))
            .series(Series::new(a, Kind::Points, points(&|pair| rate(&pair.0))))
            .series(Series::new(b, Kind::Points, points(&|pair| rate(&pair.1))));
        let merged = |of: &dyn Fn(&(RunResult, RunResult)) -> &RunResult| {
            let mut all = measure::Histogram::new();
            comparison.runs.iter().flat_map(|pair| &of(pair).jobs).for_each(|job| all.merge(&job.lat_ns()));
            all
        };
        let latencies = vec![(a.clone(), merged(&|pair| &pair.0)), (b.clone(), merged(&|pair| &pair.1))];
        let mut charts = vec![runs];
        charts.extend(percentile_chart("Latency percentiles, all runs", latencies));
        out.push_str(&cards(charts));
    }
    out
}

/// A forest plot: each effect's change and interval around zero, coloured by whether it is better or worse.
fn forest(effects: &[Effect], side: &str) -> String {
    // Figures of runs on files have the phase before them.
    let left = if effects.iter().any(|effect| effect.figure.contains(':')) { 300.0 } else { 130.0 };
    const RIGHT: f64 = 150.0;
    const WIDTH: f64 = 1160.0;
    const ROW: f64 = 30.0;
    let finite = |value: f64| if value.is_finite() { value.clamp(-1.0, 10.0) } else { 0.0 };
    let reach = effects
        .iter()
        .flat_map(|effect| [effect.change.low, effect.change.high])
        .map(|value| finite(value).abs())
        .fold(0.01, f64::max)
        * 1.1;
    let at = |value: f64| left + (finite(value) / reach + 1.0) / 2.0 * (WIDTH - left - RIGHT);
    let height = ROW * effects.len() as f64 + 62.0;
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"changes\"><text class=\"chart-title\" x=\"8\" y=\"18\">Change with {}</text>",
        escape(side)
    );
    let bottom = height - 26.0;
    for part in [-1.0, -0.5, 0.0, 0.5, 1.0] {
        let value = part * reach / 1.1;
        let class = if part == 0.0 { "axis" } else { "grid" };
        let _ = write!(
            out,
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"28\" x2=\"{x:.1}\" y2=\"{bottom}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} %</text>",
            bottom + 16.0,
            plain(value * 100.0),
            x = at(value),
        );
    }
    for (index, effect) in effects.iter().enumerate() {
        let y = 28.0 + ROW * (index as f64 + 0.5);
        let (name, _) = named(effect);
        // The colours of series 2 (green) and 7 (red); undecided is that of text.
        let colour = match word(effect) {
            "better" => "s2",
            "worse" => "s7",
            _ => "plain",
        };
        let _ = write!(
            out,
            "<text class=\"legend\" x=\"8\" y=\"{:.1}\">{}</text><line class=\"line {colour}\" x1=\"{:.1}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\"/>\
             <circle class=\"dot {colour}\" cx=\"{:.1}\" cy=\"{y}\" r=\"5.5\"><title>{}: {} ({})</title></circle>\
             <text class=\"mark {colour}\" x=\"{:.1}\" y=\"{:.1}\">{} {}</text>",
            y + 4.0,
            escape(&name),
            at(effect.change.low),
            at(effect.change.high),
            at(effect.change.mean),
            escape(&name),
            change(effect.change.mean),
            interval(effect),
            WIDTH - RIGHT + 18.0,
            y + 4.0,
            change(effect.change.mean),
            word(effect),
        );
    }
    out + "</svg>"
}
