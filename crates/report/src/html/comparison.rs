//! A comparison on the page: effects with their intervals, and the runs they come from.

use std::fmt::Write;

use measure::effect::Outcome;
use measure::figures::{count, plain};
use measure::schema::{CannotTell, ComparisonResult, Effect, Estimate, JobResult, RunResult};

use super::frame::wide_and_narrow;
use super::{Table, drawn, grid, percentile_chart};
use crate::svg::rows::{Mark, Row, Rows};
use crate::svg::{Axis, Chart, Format, Picture, Series, Shape, escape};
use crate::text::{changed, disturbed_sides, named, value, word};

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
    let mut drawings = Vec::new();
    if comparison.effects.iter().any(shown) {
        let forest = forest(&comparison.effects);
        drawings.push(wide_and_narrow(|width| forest.svg(width)));
    }
    if comparison.runs.len() > 1 {
        drawings.extend(charts(comparison).into_iter().map(drawn));
    }
    out.push_str(&grid(drawings));
    if !comparison.effects.is_empty() {
        let mut table = Table::new("Change of each figure", &["figure", "A", "B", "change", "95 % interval", "B is"]);
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
    for (side, events) in disturbed_sides(comparison) {
        let _ = write!(out, "<p class=\"about\">Disturbed {side}: {}</p>", escape(&events));
    }
    if !comparison.differences.is_empty() {
        out.push_str("<h3>Options in which A and B differ</h3>");
        let mut table = Table::new("Options in which A and B differ", &["job", "option", "A has", "B has"]);
        for one in &comparison.differences {
            let given = |value: &Option<String>| match value.as_deref() {
                None => "not given".to_string(),
                Some("") => "given".to_string(),
                Some(value) => value.to_string(),
            };
            table.row(
                "",
                &[
                    ("", one.job.clone()),
                    ("left", one.option.clone()),
                    ("left", given(&one.a)),
                    ("left", given(&one.b)),
                ],
            );
        }
        out.push_str(&table.end());
    }
    out
}

/// The charts of a comparison that stand alone.
pub(super) fn pictures(comparison: &ComparisonResult) -> Vec<Picture> {
    let changes = comparison.effects.iter().any(shown).then(|| Picture::from(&forest(&comparison.effects)));
    let charts = if comparison.runs.len() > 1 { charts(comparison) } else { Vec::new() };
    changes.into_iter().chain(charts.iter().map(Picture::from)).collect()
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
        Outcome::Undecided | Outcome::Larger | Outcome::Smaller => "undecided",
    }
}

/// True if the change of the effect has a place on an axis.
fn shown(effect: &Effect) -> bool {
    effect.cannot_tell.is_none_or(|why| why == CannotTell::NoInterval)
}

/// Each effect's change and interval, coloured by whether B is better or worse.
fn forest(effects: &[Effect]) -> Rows {
    let rows = effects.iter().map(|effect| {
        let (change, _) = changed(effect);
        let Estimate { mean, low, high } = effect.change;
        // The colours of series 2 (green) and 7 (red); all other words have the colour of text.
        let colour = match (effect.cannot_tell, effect.outcome()) {
            (None, Outcome::Better) => "s2",
            (None, Outcome::Worse) => "s7",
            (None, Outcome::Undecided | Outcome::Larger | Outcome::Smaller) | (Some(_), _) => "plain",
        };
        Row {
            name: named(effect).0,
            mark: if shown(effect) { Mark::Span(low, mean, high) } else { Mark::Nothing },
            said: if shown(effect) { format!("{change} {}", word(effect)) } else { word(effect).to_string() },
            colour,
        }
    });
    let rows: Vec<Row> = rows.collect();
    let ends = ends(effects.iter().filter(|effect| shown(effect)));
    let in_words = rows.iter().map(|row| format!("{} {}", row.name, row.said)).collect::<Vec<_>>().join("; ");
    let chart = Rows {
        title: "Change from A to B".into(),
        description: format!("The change of each figure from A to B with its 95 % interval: {in_words}."),
        ends_low: false,
        whole: false,
        range: ends,
        rows,
        write: |value| format!("{} %", plain((value * 100.0 * 1e6).round() / 1e6)),
        axis: String::new(),
    };
    if ends.0 > -RATIOS && ends.1 < 1.0 { with_room(chart) } else { as_ratios(chart) }
}

/// A loss from which on changes lie on an axis of ratios: half of the value, as far from zero as its double.
const RATIOS: f64 = 0.5;
/// The powers of two at which an axis of ratios ends: beyond, an arrow says enough.
const MOST_DOUBLINGS: f64 = 20.0;

/// The smallest and the largest change to be shown, zero among them.
fn ends<'a>(effects: impl Iterator<Item = &'a Effect>) -> (f64, f64) {
    let ends = effects.flat_map(|effect| [effect.change.low, effect.change.mean, effect.change.high]);
    ends.filter(|end| end.is_finite()).fold((-0.01f64, 0.01f64), |(low, high), end| (low.min(end), high.max(end)))
}

/// The chart with some room beyond its ends.
fn with_room(chart: Rows) -> Rows {
    let (low, high) = chart.range;
    let room = (high - low) * 0.06;
    Rows { range: (low - room, high + room), ..chart }
}

/// The chart on an axis of ratios: a value that doubles is as far from zero as one that halves.
fn as_ratios(chart: Rows) -> Rows {
    // A loss of everything is infinitely far away: its arrow leaves the chart.
    let doublings = |change: f64| (1.0 + change).max(0.0).log2();
    let placed = |row: Row| match row.mark {
        Mark::Span(low, middle, high) => {
            Row { mark: Mark::Span(doublings(low), doublings(middle), doublings(high)), ..row }
        }
        Mark::Bar(_) | Mark::Nothing => row,
    };
    let rows: Vec<Row> = chart.rows.into_iter().map(placed).collect();
    let finite = |end: f64| end.clamp(-MOST_DOUBLINGS, MOST_DOUBLINGS);
    // Means set the scale, and intervals as far as they are not much wider than the means are far.
    let means = rows.iter().filter_map(|row| match row.mark {
        Mark::Span(_, middle, _) => Some(finite(middle)),
        Mark::Bar(_) | Mark::Nothing => None,
    });
    let (least, most) = means.fold((-1.0f64, 1.0f64), |(low, high), mean| (low.min(mean), high.max(mean)));
    let (low, high) = (doublings(chart.range.0), doublings(chart.range.1));
    let beyond = (most - least).max(2.0);
    let range = (finite(low.max(least - beyond)), finite(high.min(most + beyond)));
    let write = |power: f64| match power {
        0.0 => "same".to_string(),
        fewer if fewer < 0.0 => format!("/{}", count(2f64.powf(-fewer))),
        more => format!("x{}", count(2f64.powf(more))),
    };
    let axis = "B as a multiple of A".into();
    with_room(Rows { rows, range, whole: true, write, axis, ..chart })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(low: f64, mean: f64, high: f64) -> Effect {
        let near = |mean| Estimate { mean, low: mean, high: mean };
        Effect {
            figure: "iops".into(),
            larger_is_better: Some(true),
            a: near(100.0),
            b: near(100.0 * (1.0 + mean)),
            change: Estimate { mean, low, high },
            ..Effect::default()
        }
    }

    /// The ticks of the chart that begin with one of these characters.
    fn ticks(svg: &str, begin: [char; 2]) -> Vec<&str> {
        let texts = svg.split("class=\"tick\"").skip(1).filter_map(|part| part.split('>').nth(1)?.split('<').next());
        texts.filter(|text| text.starts_with(begin)).collect()
    }

    #[test]
    fn large_changes_lie_on_an_axis_of_ratios_and_small_ones_of_percent() {
        let svg = forest(&[effect(-0.76, -0.75, -0.74), effect(2.5, 3.0, 3.5)]).svg(640.0);
        assert_eq!(ticks(&svg, ['/', 'x']), ["/4", "/2", "x2", "x4"], "{svg}");
        assert!(svg.contains(">same</text>") && svg.contains(">B as a multiple of A</text>"), "{svg}");
        let (low, high) = forest(&[effect(-0.02, 0.01, 0.03)]).range;
        assert!((-0.03..-0.02).contains(&low) && (0.03..0.04).contains(&high), "{low} {high}");
        let svg = forest(&[effect(-0.02, 0.01, 0.03)]).svg(640.0);
        assert!(ticks(&svg, ['/', 'x']).is_empty() && svg.contains(">-2 %</text>"), "{svg}");
    }

    #[test]
    fn a_half_is_as_far_from_the_same_as_a_double() {
        let chart = forest(&[effect(-0.5, -0.5, -0.5), effect(1.0, 1.0, 1.0)]);
        let marks: Vec<Mark> = chart.rows.iter().map(|row| row.mark).collect();
        assert_eq!(marks, [Mark::Span(-1.0, -1.0, -1.0), Mark::Span(1.0, 1.0, 1.0)]);
        assert_eq!(chart.range.0, -chart.range.1);
    }

    #[test]
    fn changes_beyond_all_measure_leave_an_axis_that_can_be_read() {
        for effects in [
            vec![effect(-1.0, -0.95, 3.0), effect(5.0, 906.4, 2500.0)],
            vec![effect(-1.0, -1.0, -1.0)],
            vec![effect(-3.0, 0.1, 1e12), effect(-0.01, 0.02, 0.03)],
        ] {
            for width in [360.0, 640.0] {
                let svg = forest(&effects).svg(width);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!((2..=14).contains(&svg.matches("class=\"tick\"").count()), "{svg}");
            }
        }
        assert!(forest(&[effect(5.0, 906.4, 2500.0)]).svg(640.0).contains("x 907"));
    }
}
