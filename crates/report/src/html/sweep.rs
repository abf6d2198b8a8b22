//! A sweep on the page: the line, the curves, the points.

use std::fmt::Write;

use measure::figures::{axis_value, bytes_per_second, count, nanoseconds, percent, plain, precise_count};
use measure::schema::{Answer, Curve, Document, Estimate, LoadLine, Point, SweepResult};
use measure::{Histogram, Part};

use super::frame::wide_and_narrow;
use super::{NamedDocument, Table, cards, folded, grid, percentile_chart, reaches, tile};
use crate::limits::{self, Said, conditions, said};
use crate::slices::measured_in;
use crate::svg::heat::{Heat, HeatRow};
use crate::svg::{Axis, Chart, Format, Picture, Series, Shape, escape};
use crate::text::{cpus, in_flight, place, spread};

fn axis_name(sweep: &SweepResult) -> &str {
    if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis }
}

/// The section of a page on one sweep. Of several engines, the figures are those of the one that the advice names;
/// the others stand beside it in one table and in the same charts.
pub(super) fn section(sweep: &SweepResult) -> String {
    let axis = axis_name(sweep);
    let Some((chosen, curve)) = chosen(sweep) else { return String::new() };
    let title = [curve.label.as_str(), sweep.target.as_str()].into_iter().filter(|part| !part.is_empty());
    let title = title.collect::<Vec<_>>().join(" on ");
    let engine = curve.points.first().map(|point| point.job.facts.engine.as_str()).filter(|name| *name != curve.label);
    let what = [crate::text::workload(sweep, curve).as_str()].into_iter().chain(engine).collect::<Vec<_>>().join(", ");
    let mut out = format!("<h2>{}<small>{}</small></h2>", escape(&title), escape(&what));
    out.push_str(&tiles(sweep, curve, axis));
    let labelled: Vec<(String, &Curve)> = sweep.curves.iter().map(|curve| (curve.label.clone(), curve)).collect();
    let several = labelled.len() > 1;
    if several && labelled.iter().any(|(_, curve)| curve.line.is_some()) {
        let name = if sweep.across.is_empty() { "All engines" } else { "All curves" };
        let _ = write!(out, "<h3>{name}</h3>{}", overview(name, axis, &labelled, Some(chosen)));
    }
    let maps = maps(sweep);
    if !maps.is_empty() {
        let drawn = maps.iter().map(|heat| wide_and_narrow(|width| heat.svg(width)));
        let _ = write!(out, "<h3>Map</h3>{}", grid(drawn));
    }
    if let Some(found) = &sweep.preconditioning {
        let chart = crate::preconditioning::chart(found);
        let said = crate::preconditioning::said(found);
        let _ = write!(out, "<h3>Preconditioning</h3><p>{}</p>{}", escape(&said), cards(chart));
    }
    let ceiling = sweep.ceiling_iops.map(|ceiling| ceiling.mean);
    let mut charts = depth_charts(axis, &labelled, ceiling, &|index| index == chosen);
    charts.splice(1..1, parts_of_plateau(axis, curve));
    let of = if several { format!(" of {}", curve.label) } else { String::new() };
    charts.extend(percentile_chart(&format!("Latency percentiles{of} by {axis}"), notable_latencies(curve, axis)));
    charts.extend(over_time(sweep, axis));
    out.push_str(&cards(charts));
    if !several {
        let name = "All points";
        return format!("{out}<h3>{name}</h3>{}", table(name, curve, axis));
    }
    for (index, curve) in sweep.curves.iter().enumerate() {
        let name = format!("All points of {}", curve.label);
        out.push_str(&folded(&name, index == chosen, &table(&name, curve, axis)));
    }
    out
}

/// The charts of a sweep that stand alone, the one that says most first.
pub(super) fn pictures(sweep: &SweepResult) -> Vec<Picture> {
    let axis = axis_name(sweep);
    let labelled: Vec<(String, &Curve)> = sweep.curves.iter().map(|curve| (curve.label.clone(), curve)).collect();
    let Some((chosen, curve)) = chosen(sweep) else { return Vec::new() };
    // A map has the titles of the charts of its curves.
    let map = |heat: &Heat| Picture::from(heat).titled(&format!("map {}", heat.title));
    let mut out: Vec<Picture> = maps(sweep).iter().map(map).collect();
    let ceiling = sweep.ceiling_iops.map(|ceiling| ceiling.mean);
    out.extend(depth_charts(axis, &labelled, ceiling, &|index| index == chosen).iter().map(Picture::from));
    let percentiles = percentile_chart("Latency percentiles", notable_latencies(curve, axis));
    out.extend(percentiles.iter().chain(&over_time(sweep, axis)).map(Picture::from));
    let preconditioning = sweep.preconditioning.as_ref().and_then(crate::preconditioning::chart);
    out.extend(preconditioning.iter().map(Picture::from));
    out
}

/// The curve whose figures stand for the sweep, with its index.
fn chosen(sweep: &SweepResult) -> Option<(usize, &Curve)> {
    let index = limits::chosen(sweep).or_else(|| crate::advice::chosen(&sweep.curves)).unwrap_or(0);
    Some((index, sweep.curves.get(index)?))
}

/// The maps of a sweep over two axes: throughput and p99. None for a sweep over one.
fn maps(sweep: &SweepResult) -> Vec<Heat> {
    if sweep.across.is_empty() {
        return Vec::new();
    }
    let axis = axis_name(sweep);
    let by_bytes = crate::text::has_different_blocks(sweep);
    let throughput: fn(&Point) -> f64 =
        if by_bytes { |point| point.bytes_per_second.mean } else { |point| point.iops.mean };
    // A cell whose samples do not tell the percentile stays empty, as one that was not measured.
    let p99: fn(&Point) -> f64 = |point| {
        let lat = point.lat_ns();
        if reaches(&lat, 0.99) { lat.quantile(0.99) as f64 } else { 0.0 }
    };
    let rows = |value: fn(&Point) -> f64| {
        let of = |curve: &Curve| HeatRow {
            name: curve.label.clone(),
            cells: positive(curve)
                .map(|point| (point.x, value(point)))
                .filter(|cell| cell.0 > 0.0 && cell.1 > 0.0)
                .collect(),
        };
        sweep.curves.iter().map(of).collect::<Vec<_>>()
    };
    let places = |of: fn(&Curve) -> Option<f64>| sweep.curves.iter().map(of).collect::<Vec<_>>();
    let mut contours = vec![("load line".to_string(), places(|curve| curve.at_load_line().map(|point| point.x)))];
    if !sweep.objectives.is_empty() {
        contours.push((sweep.objectives.join(", "), places(|curve| curve.kept.as_ref()?.low)));
    }
    contours.push(("keeps up".into(), places(|curve| curve.saturation.as_ref()?.low)));
    let heat = |title: &str, value, write, is_log| Heat {
        title: title.into(),
        description: format!("A row for each {}, a cell for each {axis} that was measured.", sweep.across),
        axis: axis.into(),
        rows: rows(value),
        place: axis_value,
        write,
        is_log,
        contours: contours.clone(),
    };
    let throughput = match by_bytes {
        true => heat("Bandwidth", throughput, bytes_per_second, false),
        false => heat("IOPS", throughput, count, false),
    };
    let both = [throughput, heat("p99 latency", p99, nanoseconds, true)];
    both.into_iter().filter(Heat::is_drawn).collect()
}

/// The tiles of the limits of a curve.
fn limit_tiles(curve: &Curve, axis: &str) -> String {
    let mut out = String::new();
    for (name, limit) in [("Keeps up to", &curve.saturation), ("Keeps", &curve.kept)] {
        let Some(limit) = limit else { continue };
        let Said { short, more } = said(limit, curve, axis);
        out.push_str(&tile(format!("{name} {}", conditions(limit)).trim(), &short, &more, curve.line.is_none()));
    }
    out
}

fn tiles(sweep: &SweepResult, curve: &Curve, axis: &str) -> String {
    let mut out = String::from("<div class=\"tiles\">") + &limit_tiles(curve, axis);
    let Some(line) = &curve.line else { return out + "</div>" };
    let deepest = curve.points.last().map_or(0.0, |point| point.x);
    let (said, more) = answered(line, axis, deepest);
    out.push_str(&tile("Load line", &said, &more, true));
    if let Some(plateau) = line.plateau() {
        let more = format!("95 % interval {} to {}", precise_count(plateau.low), precise_count(plateau.high));
        out.push_str(&tile("Plateau", &format!("{} IOPS", count(plateau.mean)), &more, false));
    }
    match &line.overload {
        None if line.unnamed.is_some() => {}
        None if line.hides_overload() => {
            let why = line.scatter.as_deref().or(line.doubt()).unwrap_or_default();
            out.push_str(&tile("Overload", "cannot be told", why, false));
        }
        Some(overload) => {
            let more = format!("95 % interval {} to {}", plain(overload.low), plain(overload.high));
            out.push_str(&tile("Overload from", &format!("{axis} {}", plain(overload.mean)), &more, false));
        }
        None => out.push_str(&tile("Overload", "none", &format!("up to {axis} {}", plain(deepest)), false)),
    }
    if let Some(burst) = line.burst.filter(|_| line.plateau().is_some()) {
        let more = "at the start of a visit, beyond what the storage sustains; plateau and load line allow for it";
        out.push_str(&tile("Burst", &format!("{} ops", count(burst.ops)), more, false));
    }
    if let Some(point) = curve.at_load_line() {
        let lat = point.lat_ns();
        let name = format!("At {axis} {}", plain(point.x));
        let more = format!(
            "mean latency; p99 {}; {}",
            nanoseconds(lat.quantile(0.99) as f64),
            bytes_per_second(point.bytes_per_second.mean)
        );
        out.push_str(&tile(&name, &nanoseconds(lat.mean()), &more, false));
    }
    if let Some(ceiling) = sweep.ceiling_iops {
        let part = line.plateau().map(|plateau| percent(plateau.mean / ceiling.mean));
        let part = part.map(|part| format!("; the plateau is {part} of it")).unwrap_or_default();
        let more = format!("IOPS without storage{part}");
        out.push_str(&tile("Generator's ceiling", &count(ceiling.mean), &more, false));
    }
    if let Some(how) = measured_in(curve) {
        let short = if curve.memory.is_some() { "in visits" } else { "in slices" };
        out.push_str(&tile("Measured", short, &how, false));
    }
    out + "</div>"
}

/// The load line in a few words, and a remark on it.
fn answered(line: &LoadLine, axis: &str, deepest: f64) -> (String, String) {
    let at = |depth: f64| format!("{axis} {}", plain(depth)).trim_start().to_string();
    match line.answer() {
        Answer::At(line) => (at(line.mean), format!("95 % interval {} to {}", plain(line.low), plain(line.high))),
        Answer::Between(low, high) => (
            format!("{} to {}", at(low), plain(high)),
            line.scatter.clone().unwrap_or_else(|| "the sweep cannot say more precisely where the line is".into()),
        ),
        Answer::Beyond => {
            (format!("beyond {}", plain(deepest)), "throughput still rises at the largest value".to_string())
        }
        Answer::Unnamed(_) => ("cannot be named".to_string(), "the verdict no-load-line says why".to_string()),
    }
}

/// The points with a place on a logarithmic axis; where one is at 0, the axis is linear.
fn positive(curve: &Curve) -> impl Iterator<Item = &Point> {
    curve.points.iter().filter(|point| point.x >= 0.0)
}

/// Percent of the plateau from which on the chart of the parts begins: the answers lie at 97 and 95.
const LEAST_PART: f64 = 88.0;
/// Percent of the plateau at which that chart ends; visits beyond lie on its border.
const MOST_PART: f64 = 108.0;

/// The chart that shows what the answer rests on: the throughput of each depth as a part of the plateau, with its
/// bounds, and each visit without the effect of its round.
fn parts_of_plateau(axis: &str, curve: &Curve) -> Option<Chart> {
    let parts = curve.parts();
    let shown = |percent: f64| percent.clamp(LEAST_PART, MOST_PART);
    let first = parts.iter().position(|part| part.of_plateau.mean * 100.0 >= LEAST_PART)?;
    let near = &parts[first..];
    if near.len() < 2 {
        return None;
    }
    let visits = near.iter().flat_map(|part| part.visits.iter().map(|visit| (part.x, shown(visit * 100.0))));
    let means = near.iter().map(|part| (part.x, shown(part.of_plateau.mean * 100.0)));
    let bounds = |part: &Part| (part.x, shown(part.of_plateau.low * 100.0), shown(part.of_plateau.high * 100.0));
    let x = Axis::log2(axis).range(near[0].x, near[near.len() - 1].x);
    let y = Axis::linear("part of the plateau").range(LEAST_PART, MOST_PART).format(Format::Percent);
    let y = y.ticks(vec![90.0, 95.0, 100.0, 105.0]);
    let chart = Chart::new("Basis of the answer").x(x).y(y);
    let chart = chart.series(Series::line("all rounds", means.collect()).band(near.iter().map(bounds).collect()));
    let chart = chart.series(Series::new("a visit", Shape::Points, visits.collect()));
    Some(chart.mark_y(97.0, None, "load line: 97 %", None).mark_y(95.0, None, "overload: 95 %", None))
}

/// IOPS, latency, bandwidth and CPU over the depth, for any number of curves. Curves for which `banded` holds get their
/// confidence bands: more than one or two bands would hide each other.
fn depth_charts(
    axis: &str,
    curves: &[(String, &Curve)],
    ceiling: Option<f64>,
    banded: &dyn Fn(usize) -> bool,
) -> Vec<Chart> {
    let x = || axis_of(axis, curves);
    let mut iops = Chart::new("IOPS").x(x()).y(Axis::linear("IOPS").format(Format::Count));
    let mut bw = Chart::new("Bandwidth").x(x()).y(Axis::linear("bandwidth").format(Format::BytesPerSecond));
    let titled = |title: &str| Chart::new(title).x(x()).y(Axis::log10("latency").format(Format::Nanoseconds));
    let mut cpu = Chart::new("CPU").x(x()).y(Axis::linear("CPU time, one CPU is 100 %").format(Format::Percent));
    let many = curves.len() > 1;
    // A chart of each latency where colours tell several curves apart; else one chart, where they tell latencies apart.
    let mut latencies = match many {
        true => COMPARED.map(|(figure, _)| titled(&format!("Latency, {figure}"))).to_vec(),
        false => vec![titled("Latency")],
    };
    let mut highest: f64 = 0.0;
    for (index, (name, curve)) in curves.iter().enumerate() {
        let of = |value: fn(&Point) -> f64| positive(curve).map(|point| (point.x, value(point))).collect::<Vec<_>>();
        // An interval that is wider than its figure is not known, and must not set the scale of the chart.
        let bands = |of: fn(&Point) -> Estimate| {
            let shown = positive(curve).filter(|_| banded(index)).map(|point| (point.x, of(point)));
            shown.map(|(x, one)| (x, one.low, one.high.min(2.0 * one.mean))).collect::<Vec<_>>()
        };
        let band = bands(|point| point.iops);
        highest = positive(curve).map(|point| point.iops.mean).fold(highest, f64::max);
        iops = iops.series(Series::line(name, of(|point| point.iops.mean)).band(band).colour(index));
        let band = bands(|point| point.bytes_per_second);
        bw = bw.series(Series::line(name, of(|point| point.bytes_per_second.mean)).band(band).colour(index));
        let each = latencies.into_iter();
        latencies = match many {
            true => {
                each.zip(COMPARED).map(|(chart, (_, q))| chart.series(latency(name, curve, q).colour(index))).collect()
            }
            false => each
                .map(|chart| {
                    LATENCIES.iter().fold(chart, |chart, &(figure, q)| chart.series(latency(figure, curve, q)))
                })
                .collect(),
        };
        let prefix = if many { format!("{name}: ") } else { String::new() };
        for (said, limit) in [("keeps up", &curve.saturation), ("objective", &curve.kept)] {
            let Some((limit, low)) = limit.as_ref().and_then(|limit| Some((limit, limit.low?))) else { continue };
            let band = limit.high.filter(|_| banded(index)).map(|high| (low, high));
            let label = format!("{prefix}{said} {}", axis_value(axis, low));
            let colour = many.then_some(index);
            iops = iops.mark_x(low, band, &label, colour);
            latencies = latencies.into_iter().map(|chart| chart.mark_x(low, band, &label, colour)).collect();
        }
        cpu = cpu.series(Series::line(name, of(|point| cpus(point) * 100.0)).colour(index));
        let colour = many.then_some(index);
        if let Some(Answer::Between(low, high)) = curve.line.as_ref().map(LoadLine::answer)
            && banded(index)
        {
            let label = format!("{prefix}load line {} to {}", plain(low), plain(high));
            iops = iops.span_x(low, high, &label, colour);
            latencies = latencies.into_iter().map(|chart| chart.span_x(low, high, &label, colour)).collect();
        }
        if let Some((line, Answer::At(at))) = curve.line.as_ref().map(|line| (line, line.answer())) {
            let interval = banded(index).then_some((at.low, at.high));
            let label = format!("{prefix}load line {}", plain(at.mean));
            iops = iops.mark_x(at.mean, interval, &label, colour);
            latencies = latencies.into_iter().map(|chart| chart.mark_x(at.mean, interval, &label, colour)).collect();
            if let Some(overload) = line.overload.filter(|_| banded(index)) {
                let label = format!("{prefix}overload {}", plain(overload.mean));
                iops = iops.mark_x(overload.mean, Some((overload.low, overload.high)), &label, colour);
            }
        }
    }
    if let Some(ceiling) = ceiling.filter(|ceiling| *ceiling < highest * 2.0) {
        iops = iops.mark_y(ceiling, None, format!("generator alone: {}", count(ceiling)), None);
    }
    [vec![iops], latencies, vec![bw, cpu]].concat()
}

/// The latencies of one curve, with their quantiles; None for the mean.
const LATENCIES: [(&str, Option<f64>); 4] =
    [("mean", None), ("p50", Some(0.5)), ("p99", Some(0.99)), ("p99.9", Some(0.999))];
/// The latencies that several curves are compared by.
const COMPARED: [(&str, Option<f64>); 2] = [LATENCIES[0], LATENCIES[2]];

/// A latency over the depth, a mean or a quantile, as far as the samples tell it.
fn latency(name: &str, curve: &Curve, q: Option<f64>) -> Series {
    let told = positive(curve).map(|point| (point.x, point.lat_ns())).filter(|(_, lat)| match q {
        None => !lat.is_empty(),
        Some(q) => reaches(lat, q),
    });
    Series::line(name, told.map(|(x, lat)| (x, q.map_or_else(|| lat.mean(), |q| lat.quantile(q) as f64))).collect())
}

/// The horizontal axis: logarithmic, unless a percentage lies along it.
fn axis_of(axis: &str, curves: &[(String, &Curve)]) -> Axis {
    let format = match axis {
        "rate_iops" => Format::Count,
        "rate" => Format::BytesPerSecond,
        _ => Format::Plain,
    };
    let any_zero = curves.iter().flat_map(|(_, curve)| &curve.points).any(|point| point.x <= 0.0);
    match axis {
        _ if any_zero => Axis::linear(axis),
        // Counts are written in powers of a thousand: 2k, not 2.05k.
        "rate_iops" => Axis::log10(axis),
        _ => Axis::log2(axis),
    }
    .format(format)
}

/// The latencies of a curve worth comparing: at depth one (or the first), at the load line, at the deepest.
fn notable_latencies(curve: &Curve, axis: &str) -> Vec<(String, Histogram)> {
    let mut notable: Vec<&Point> = Vec::new();
    for point in [curve.points.first(), at_limit(curve), curve.points.last()].into_iter().flatten() {
        if notable.iter().all(|known| known.x != point.x) {
            notable.push(point);
        }
    }
    notable.iter().map(|point| (format!("{axis} {}", axis_value(axis, point.x)), point.lat_ns())).collect()
}

/// The point that a curve advises: at its load line, its objective or the rate that it keeps up with.
fn at_limit(curve: &Curve) -> Option<&Point> {
    let limit = [&curve.kept, &curve.saturation].into_iter().flatten().find_map(|limit| limit.at);
    curve.at_load_line().or_else(|| curve.points.iter().find(|point| Some(point.x) == limit))
}

/// IOPS over time at each curve's load line: was it steady there?
fn over_time(sweep: &SweepResult, axis: &str) -> Option<Chart> {
    let mut chart = Chart::new("IOPS over time, at the load line")
        .x(Axis::linear("time").format(Format::Seconds))
        .y(Axis::linear("IOPS").format(Format::Count));
    let mut any = false;
    for (index, curve) in sweep.curves.iter().enumerate() {
        let Some(point) = curve.at_load_line() else { continue };
        let name = format!("{}, {axis} {}", curve.label, plain(point.x));
        let points = super::run::iops_over_time(&point.job);
        any |= points.len() > 1;
        chart = chart.series(Series::line(name, points).colour(index));
    }
    any.then_some(chart)
}

fn table(name: &str, curve: &Curve, axis: &str) -> String {
    let header = [
        axis,
        "IOPS",
        "\u{b1}",
        "bandwidth",
        "lat mean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "CPU",
        "in flight",
        "verdicts",
    ];
    let mut table = Table::new(name, &header);
    for point in &curve.points {
        let lat = point.lat_ns();
        let time = |ns: f64| if lat.is_empty() { "-".to_string() } else { nanoseconds(ns) };
        let quantile = |q: f64| time(lat.quantile(q) as f64);
        let codes =
            point.job.verdicts.iter().map(|verdict| verdict.code.as_str()).filter(|code| *code != "interval-too-short");
        let (class, at) = match place(curve, point) {
            "" => ("", String::new()),
            "overload" => ("over", "\u{2002}\u{25c0} overload".into()),
            place => ("at", format!("\u{2002}\u{25c0} {place}")),
        };
        table.row(
            class,
            &[
                ("", format!("{}{at}", axis_value(axis, point.x))),
                ("", precise_count(point.iops.mean)),
                ("", spread(point)),
                ("", bytes_per_second(point.bytes_per_second.mean)),
                ("", time(lat.mean())),
                ("", quantile(0.5)),
                ("", quantile(0.9)),
                ("", quantile(0.99)),
                ("", quantile(0.999)),
                ("", time(lat.max() as f64)),
                ("", percent(cpus(point))),
                ("", plain(in_flight(&point.job).0)),
                ("codes", codes.collect::<Vec<_>>().join(", ")),
            ],
        );
    }
    table.end()
}

/// The curves of all sweeps under the names of their files, and their axis; None for fewer than two sweeps.
fn together(documents: &[NamedDocument]) -> Option<(&str, Vec<(String, &Curve)>)> {
    let sweeps = || {
        documents.iter().filter_map(|named| match &named.document {
            Document::Sweep(sweep) => Some((&named.name, sweep)),
            _ => None,
        })
    };
    let (_, first) = sweeps().next().filter(|_| sweeps().count() > 1)?;
    let curves = sweeps()
        .flat_map(|(name, sweep)| sweep.curves.iter().map(move |curve| (format!("{name} {}", curve.label), curve)));
    Some((axis_name(first), curves.collect()))
}

/// The charts of all sweeps together.
pub(super) fn charts_together(documents: &[NamedDocument]) -> Vec<Chart> {
    let Some((axis, curves)) = together(documents) else { return Vec::new() };
    depth_charts(axis, &curves, None, &|_| curves.len() <= 2)
}

/// The curves of all sweeps in the same charts.
pub(super) fn side_by_side(documents: &[NamedDocument]) -> String {
    let Some((axis, curves)) = together(documents) else { return String::new() };
    let heading = "Sweeps side by side";
    let table = overview(heading, axis, &curves, None);
    format!("<h2>{heading}</h2>{table}{}", cards(charts_together(documents)))
}

/// The answers of several curves in one table; a row of its own colour for the one that was chosen.
fn overview(name: &str, axis: &str, curves: &[(String, &Curve)], chosen: Option<usize>) -> String {
    let header = [
        "curve",
        &format!("load line, {axis}"),
        "95 % interval",
        "plateau, IOPS",
        "95 % interval",
        "overload",
        "latency at the line",
        "p99 at the line",
    ];
    let mut table = Table::new(name, &header);
    for (index, (name, curve)) in curves.iter().enumerate() {
        let Some(line) = &curve.line else { continue };
        let lat = curve.at_load_line().map(|point| point.lat_ns());
        let at_line = |of: fn(&Histogram) -> f64| lat.as_ref().map_or("-".into(), |lat| nanoseconds(of(lat)));
        let plateau = line.plateau();
        let overload = match line.overload {
            Some(overload) => plain(overload.mean),
            None if line.hides_overload() => "-".into(),
            None => "none".into(),
        };
        table.row(
            if chosen == Some(index) { "at" } else { "" },
            &[
                ("", name.clone()),
                ("", answered(line, "", curve.points.last().map_or(0.0, |point| point.x)).0),
                (
                    "",
                    match line.answer() {
                        Answer::At(at) => format!("{} to {}", plain(at.low), plain(at.high)),
                        Answer::Between(..) | Answer::Beyond | Answer::Unnamed(_) => "-".into(),
                    },
                ),
                ("", plateau.map_or("-".into(), |plateau| count(plateau.mean))),
                (
                    "",
                    plateau.map_or("-".into(), |plateau| {
                        format!("{} to {}", precise_count(plateau.low), precise_count(plateau.high))
                    }),
                ),
                ("", overload),
                ("", at_line(Histogram::mean)),
                ("", at_line(|lat| lat.quantile(0.99) as f64)),
            ],
        );
    }
    table.end()
}
