//! A comparison on the page: effects with their intervals, and the runs they come from.

use std::fmt::Write;

use measure::effect::Outcome;
use measure::figures::plain;
use measure::schema::{CannotTell, ComparisonResult, Effect, JobResult, RunResult};

use super::{Table, cards, percentile_chart, wide_and_narrow};
use crate::svg::{self, Axis, Chart, Format, Series, Shape, escape};
use crate::text::{changed, named, value, word};

/// One comparison; its sentence too, where it is not the page's headline.
pub(super) fn section(comparison: &ComparisonResult, with_sentence: bool) -> String {
    let (a, b) = &comparison.sides;
    let mut out = String::new();
    let _ = write!(
        out,
        "<h2>B against A</h2><p class=\"sides\"><b>A</b> {}</p><p class=\"sides\"><b>B</b> {}</p>",
        escape(a),
        escape(b)
    );
    if with_sentence {
        let _ = write!(out, "<p class=\"sentence\">{}</p>", escape(&comparison.sentence));
    }
    if !comparison.effects.is_empty() {
        let _ =
            write!(out, "<div class=\"card\">{}</div>", wide_and_narrow(|width| forest(&comparison.effects, width)));
        let mut table = Table::new(&["figure", "A", "B", "change", "95 % interval", "B is"]);
        for effect in &comparison.effects {
            let (name, _) = named(effect);
            let (change, interval) = changed(effect);
            table.row(
                "",
                &[
                    ("", name),
                    ("", value(effect, effect.a.mean)),
                    ("", value(effect, effect.b.mean)),
                    ("", change),
                    ("", interval),
                    (class(effect), word(effect).to_string()),
                ],
            );
        }
        out.push_str(&table.end());
    }
    if !comparison.estimator.is_empty() {
        let _ = write!(out, "<p class=\"about\">{}</p>", escape(&comparison.estimator));
    }
    if !comparison.differences.is_empty() {
        out.push_str("<h3>Options in which A and B differ</h3>");
        let mut table = Table::new(&["job", "option", "A", "B"]);
        for one in &comparison.differences {
            let given = |value: &Option<String>| value.clone().unwrap_or_else(|| "not given".into());
            table.row(
                "",
                &[("", one.job.clone()), ("left", one.option.clone()), ("", given(&one.a)), ("", given(&one.b))],
            );
        }
        out.push_str(&table.end());
    }
    if comparison.runs.len() > 1 {
        out.push_str(&cards(charts(comparison)));
    }
    out
}

/// The throughput of each pair of runs, and the latencies of all runs of a side.
fn charts(comparison: &ComparisonResult) -> Vec<Chart> {
    let rate = |run: &RunResult| {
        let one = |job: &JobResult| job.total_ops() as f64 * 1e9 / job.runtime_ns.max(1) as f64;
        run.jobs.iter().map(one).sum::<f64>()
    };
    let rates: Vec<(f64, f64)> = comparison.runs.iter().map(|(a, b)| (rate(a), rate(b))).collect();
    let numbered = |of: &dyn Fn(&(f64, f64)) -> f64| {
        rates.iter().enumerate().map(|(index, pair)| (index as f64 + 1.0, of(pair))).collect::<Vec<_>>()
    };
    let mut pairs = Chart::new("IOPS of each pair of runs")
        .x(Axis::linear("pair").whole().range(0.5, rates.len() as f64 + 0.5))
        .y(Axis::linear("IOPS").format(Format::Count).not_from_zero())
        .series(Series::new("A", Shape::Points, numbered(&|pair| pair.0)))
        .series(Series::new("B", Shape::Points, numbered(&|pair| pair.1)));
    for (index, (a, b)) in rates.iter().enumerate() {
        pairs = pairs.link(index as f64 + 1.0, *a, *b);
    }
    let merged = |of: &dyn Fn(&(RunResult, RunResult)) -> &RunResult| {
        let mut all = measure::Histogram::new();
        comparison.runs.iter().flat_map(|pair| &of(pair).jobs).for_each(|job| all.merge(&job.lat_ns()));
        all
    };
    let latencies = vec![("A".to_string(), merged(&|pair| &pair.0)), ("B".to_string(), merged(&|pair| &pair.1))];
    let mut charts = vec![pairs];
    charts.extend(percentile_chart("Latency percentiles, all runs", latencies));
    charts
}

/// The class of an effect's word in a table.
fn class(effect: &Effect) -> &'static str {
    match effect.outcome() {
        Outcome::Better => "better",
        Outcome::Worse => "worse",
        Outcome::Undecided => "undecided",
    }
}

/// A forest plot: each effect's change and interval on an axis that ends at -100 %, coloured by whether B is better or
/// worse.
fn forest(effects: &[Effect], width: f64) -> String {
    const ROW: f64 = 42.0;
    const TOP: f64 = 30.0;
    const EDGE: f64 = 26.0;
    let shown = |effect: &&Effect| effect.cannot_tell.is_none_or(|why| why == CannotTell::NoInterval);
    let ends = |effect: &Effect| [effect.change.low, effect.change.mean, effect.change.high];
    let all: Vec<f64> = effects.iter().filter(shown).flat_map(ends).map(|value| value.clamp(-1.0, 10.0)).collect();
    // Room on either side of no change, even where there is no change at all; nothing is less than nothing.
    let low = all.iter().copied().fold(-0.01, f64::min);
    let high = all.iter().copied().fold(0.01, f64::max);
    let room = (high - low) * 0.06;
    let (low, high) = ((low - room).max(-1.0), high + room);
    let at = |value: f64| EDGE + (value.clamp(low, high) - low) / (high - low) * (width - 2.0 * EDGE);
    let bottom = TOP + ROW * effects.len() as f64;
    let mut out = format!(
        "<svg class=\"chart forest\" viewBox=\"0 0 {width} {}\" role=\"img\" aria-label=\"Change from A to B\">\
         <title>Change from A to B, with 95 % intervals</title>\
         <text class=\"chart-title\" x=\"8\" y=\"18\">Change from A to B</text>",
        bottom + 24.0
    );
    let step = svg::nice_step((high - low) / if width > 500.0 { 8.0 } else { 4.0 });
    for index in (low / step).ceil() as i64..=(high / step).floor() as i64 {
        let value = index as f64 * step;
        let _ = write!(
            out,
            "<line class=\"{}\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} %</text>",
            if index == 0 { "axis" } else { "grid" },
            bottom + 16.0,
            plain((value * 100.0 * 1e6).round() / 1e6),
            x = at(value),
        );
    }
    for (index, effect) in effects.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.7);
        let (name, _) = named(effect);
        let (change, interval) = changed(effect);
        // The colours of series 2 (green) and 7 (red); undecided is that of text.
        let colour = match effect.outcome() {
            Outcome::Better => "s2",
            Outcome::Worse => "s7",
            Outcome::Undecided => "plain",
        };
        let said = if shown(&effect) { format!("{change} {}", word(effect)) } else { word(effect).to_string() };
        let _ = write!(
            out,
            "<text class=\"legend\" x=\"8\" y=\"{above:.1}\">{}</text>\
             <text class=\"mark {colour}\" x=\"{:.1}\" y=\"{above:.1}\" text-anchor=\"end\">{said}</text>",
            escape(&name),
            width - 8.0,
            above = y - 12.0,
        );
        if shown(&effect) {
            let _ = write!(
                out,
                "<line class=\"line {colour}\" x1=\"{:.1}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\"/>\
                 <circle class=\"dot {colour}\" cx=\"{:.1}\" cy=\"{y}\" r=\"5.5\"><title>{}: {change} ({interval})</title></circle>",
                at(effect.change.low),
                at(effect.change.high),
                at(effect.change.mean),
                escape(&name),
            );
        }
    }
    out + "</svg>"
}
