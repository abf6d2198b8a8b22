//! A sweep for a terminal: table, chart, the line, advice.

use std::fmt::Write;

use measure::Direction;
use measure::figures::{bytes_per_second, count, nanoseconds, percent, plain, precise_count};
use measure::schema::{Answer, Curve, Ended, Estimate, Point, SweepResult};
use measure::stats::relative_half_width;
use measure::verdict::Verdict;

use super::plot::{self, Line};
use super::table::Table;
use super::{Style, Tone, machine, verdicts, wrap};

/// A sweep: table, chart, plateau, load line, overload, ceiling, verdicts, advice.
pub fn sweep(sweep: &SweepResult, style: Style) -> String {
    let mut out = String::new();
    for (index, curve) in sweep.curves.iter().enumerate() {
        if !curve.label.is_empty() {
            let _ = writeln!(out, "{}  {}", style.paint(Tone::Curve(index), &curve.label), described(sweep, curve));
        }
        out.push_str(&table(sweep, curve, style));
        out.push('\n');
    }
    out.push_str(&charts(sweep, style));
    for curve in &sweep.curves {
        out.push_str(&line(sweep, curve, style));
    }
    if let Some(ceiling) = sweep.ceiling_iops {
        let plateau = sweep.curves.iter().filter_map(|curve| curve.line.as_ref()).map(|line| line.plateau_iops.mean);
        let part = plateau.fold(0.0, f64::max) / ceiling.mean;
        let _ = write!(out, "generator  {} IOPS without storage (null engine, same job)", count(ceiling.mean));
        if part > 0.0 && part.is_finite() {
            let verdict = if part > 0.8 { "the generator may be the limit" } else { "the storage is the limit" };
            let _ = write!(out, ": the plateau is {} of that, so {verdict}", percent(part));
        }
        out.push('\n');
    }
    let mut all = sweep.verdicts.clone();
    all.extend(of_points(sweep));
    all.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
    let judged = verdicts(&all, style, 0);
    if !judged.is_empty() {
        let _ = write!(out, "\n{judged}");
    }
    if sweep.ended == Ended::Interrupted {
        out.push_str(&style.paint(Tone::Warning, "Interrupted: the figures are of the depths that were measured.\n"));
    }
    if !sweep.advice.is_empty() {
        let _ = writeln!(out, "\n{}", style.paint(Tone::Bold, &wrap(&sweep.advice, style.width, 0)));
    }
    let on = machine(&sweep.provenance.machine);
    if !on.is_empty() {
        let _ = writeln!(out, "{}", style.paint(Tone::Soft, &format!("on {on}")));
    }
    out
}

fn described(sweep: &SweepResult, curve: &Curve) -> String {
    let what = curve.points.first().map(|point| {
        let facts = &point.job.facts;
        let caching = Some(facts.caching()).filter(|caching| !caching.is_empty());
        format!("{}{}{}", facts.rw, blocks(point), caching.map(|caching| format!(", {caching}")).unwrap_or_default())
    });
    format!("{} on {}", what.unwrap_or_default(), sweep.target)
}

/// The block size, of each direction where they differ, and the mix of a workload that goes both ways.
fn blocks(point: &Point) -> String {
    let bytes = |bytes: u64| measure::figures::bytes(bytes as f64);
    let size = |(smallest, largest): (u64, u64)| match smallest == largest || smallest == 0 {
        true => bytes(largest),
        false => format!("{} to {}", bytes(smallest), bytes(largest)),
    };
    let directions = &point.job.directions;
    let used: Vec<Direction> = Direction::ALL.into_iter().filter(|&way| directions[way].ops > 0).collect();
    let ranges = point.job.facts.block_bytes;
    let known: Vec<Direction> = used.iter().copied().filter(|&way| ranges[way].1 > 0).collect();
    let sizes = match known.as_slice() {
        [] => String::new(),
        [first, rest @ ..] if rest.iter().all(|&way| ranges[way] == ranges[*first]) => {
            format!(" {}", size(ranges[*first]))
        }
        several => {
            let each: Vec<String> =
                several.iter().map(|&way| format!("{} {}", way.name(), size(ranges[way]))).collect();
            format!(" {}", each.join(", "))
        }
    };
    let all: u64 = used.iter().map(|&way| directions[way].ops).sum();
    match used.len() {
        0 | 1 => sizes,
        _ => format!("{sizes}, {} reads", percent((directions.read.ops as f64 / all as f64 * 100.0).round() / 100.0)),
    }
}

/// The codes of a point's verdicts that concern the point (all points of a short sweep are short).
fn codes(point: &Point) -> String {
    let codes = point.job.verdicts.iter().map(|verdict| verdict.code.as_str());
    codes.filter(|code| *code != "interval-too-short").collect::<Vec<_>>().join(", ")
}

/// CPU use of a point, in CPUs: 1 is one CPU busy all the time.
pub(crate) fn cpus(point: &Point) -> f64 {
    let cpu = &point.job.cpu;
    if point.job.runtime_ns == 0 { 0.0 } else { (cpu.user_ns + cpu.system_ns) as f64 / point.job.runtime_ns as f64 }
}

fn table(sweep: &SweepResult, curve: &Curve, style: Style) -> String {
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let mut table =
        Table::new([axis, "IOPS", "+-", "bw", "lat mean", "p50", "p99", "CPU", "", "verdicts"]).left(8).left(9);
    for point in &curve.points {
        let lat = point.job.lat_ns();
        let quantile = |q: f64| if lat.is_empty() { "-".into() } else { nanoseconds(lat.quantile(q) as f64) };
        table.row(vec![
            plain(point.x),
            count(point.iops.mean),
            if point.samples.len() < 2 { "?".into() } else { percent(relative_half_width(&point.iops)) },
            bytes_per_second(point.bytes_per_second.mean),
            if lat.is_empty() { "-".into() } else { nanoseconds(lat.mean()) },
            quantile(0.5),
            quantile(0.99),
            percent(cpus(point)),
            place(curve, point).to_string(),
            codes(point),
        ]);
    }
    table.render(style, 2)
}

/// A mark for the point at the load line or at overload; empty for any other point.
fn place(curve: &Curve, point: &Point) -> &'static str {
    let is = |other: Option<&Point>| other.is_some_and(|other| other.x == point.x);
    match (is(curve.at_load_line()), is(curve.at_overload())) {
        (true, _) => "<- load line",
        (false, true) => "<- overload",
        (false, false) => "",
    }
}

/// Two charts side by side (or one below the other): IOPS and mean latency over the depth.
fn charts(sweep: &SweepResult, style: Style) -> String {
    const HEIGHT: usize = 9;
    let side_by_side = style.width >= 92;
    let width = if side_by_side { (style.width - 28) / 2 } else { style.width.saturating_sub(14) }.clamp(20, 60);
    let marks = |curve: &Curve| {
        let at = [curve.at_load_line(), curve.at_overload()];
        at.iter().any(Option::is_some).then(|| at.map(|point| point.map(|point| point.x)))
    };
    let iops = chart(sweep, "IOPS", width, HEIGHT, style, &|point| point.iops.mean, count, &marks);
    let latency =
        chart(sweep, "mean latency", width, HEIGHT, style, &|point| point.job.lat_ns().mean(), nanoseconds, &marks);
    let (Some(iops), Some(latency)) = (iops, latency) else { return String::new() };
    let mut out = String::new();
    if side_by_side {
        for ((left, plain_width), (right, _)) in iops.iter().zip(&latency) {
            let _ = writeln!(
                out,
                "{}",
                format!("{left}{}   {right}", " ".repeat((width + 10).saturating_sub(*plain_width))).trim_end()
            );
        }
    } else {
        iops.iter().chain(&latency).for_each(|(line, _)| {
            let _ = writeln!(out, "{}", line.trim_end());
        });
    }
    let marked = sweep.curves.iter().any(|curve| marks(curve).is_some());
    if marked {
        let _ = writeln!(out, "{}", style.paint(Tone::Soft, "dotted: load line, and overload if there is one"));
    }
    out + "\n"
}

/// The lines of one chart, each with its width in columns; None with fewer than two points.
#[allow(clippy::too_many_arguments, reason = "one caller draws two charts; the arguments are what differs")]
fn chart(
    sweep: &SweepResult,
    title: &str,
    width: usize,
    height: usize,
    style: Style,
    of: &dyn Fn(&Point) -> f64,
    write: fn(f64) -> String,
    marks: &dyn Fn(&Curve) -> Option<[Option<f64>; 2]>,
) -> Option<Vec<(String, usize)>> {
    let points = || sweep.curves.iter().flat_map(|curve| &curve.points).filter(|point| point.x > 0.0);
    let (low, high) =
        points().fold((f64::INFINITY, 0.0f64), |(low, high), point| (low.min(point.x), high.max(point.x)));
    let top = points().map(of).fold(0.0, f64::max);
    if low >= high || top <= 0.0 {
        return None;
    }
    let across = |x: f64| (x / low).ln() / (high / low).ln();
    let lines: Vec<Line> = sweep
        .curves
        .iter()
        .enumerate()
        .map(|(colour, curve)| Line {
            points: curve
                .points
                .iter()
                .filter(|point| point.x > 0.0)
                .map(|point| (across(point.x), of(point) / top))
                .collect(),
            colour,
        })
        .collect();
    let marked: Vec<f64> = sweep
        .curves
        .iter()
        .filter_map(marks)
        .flatten()
        .flatten()
        .map(across)
        .filter(|at| (0.0..=1.0).contains(at))
        .collect();
    let mut out = vec![(format!("{:>9} {}", "", style.paint(Tone::Bold, title)), 10 + title.len())];
    for (index, row) in plot::rows(&lines, &marked, width, height, style).into_iter().enumerate() {
        let label = match index {
            0 => write(top),
            _ if index + 1 == height => "0".to_string(),
            _ if index == height / 2 => write(top / 2.0),
            _ => String::new(),
        };
        out.push((format!("{label:>9}\u{2502}{row}"), 10 + width));
    }
    let (left, right) = (plain(low), plain(high));
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let axis = format!("{axis} (log)");
    let middle = width.saturating_sub(left.len() + right.len());
    out.push((format!("{:>9}\u{2514}{}", "", "\u{2500}".repeat(width)), 10 + width));
    out.push((
        format!("{:>10}{left}{axis:^middle$}{right}", ""),
        10 + left.len() + right.len() + middle.max(axis.len()),
    ));
    Some(out)
}

fn interval(estimate: &Estimate, write: fn(f64) -> String) -> String {
    format!("{}, 95 % interval {} to {}", write(estimate.mean), write(estimate.low), write(estimate.high))
}

fn line(sweep: &SweepResult, curve: &Curve, style: Style) -> String {
    let Some(line) = &curve.line else { return String::new() };
    let name = if sweep.curves.len() > 1 { format!("{}: ", curve.label) } else { String::new() };
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let mut out = String::new();
    let _ =
        writeln!(out, "{name}plateau    {}", interval(&line.plateau_iops, precise_count).replacen(',', " IOPS,", 1));
    let deepest = curve.points.last().map_or(0.0, |point| point.x);
    let said = match line.answer() {
        Answer::At(line) => format!("{axis} {} (97 % of the plateau)", interval(&line, plain)),
        Answer::Between(low, high) => {
            format!("between {axis} {} and {} (97 % of the plateau)", plain(low), plain(high))
        }
        Answer::Beyond => format!("beyond {axis} {}: throughput still rises", plain(deepest)),
        Answer::Unnamed(reason) => format!("cannot be named: {reason}"),
    };
    let _ = writeln!(out, "{name}{}  {said}", style.paint(Tone::Good, "load line"));
    match &line.overload {
        None if line.unnamed.is_some() => {}
        Some(overload) => {
            let _ = writeln!(out, "{name}overload   {axis} {} (5 % below the plateau)", interval(overload, plain));
        }
        None => {
            let _ = writeln!(out, "{name}overload   none up to {axis} {}", plain(deepest));
        }
    }
    out
}

/// Verdicts of the points, each code once with the depths it concerns.
fn of_points(sweep: &SweepResult) -> Vec<Verdict> {
    let mut seen: Vec<(Verdict, Vec<String>)> = Vec::new();
    let many = sweep.curves.len() > 1;
    for curve in &sweep.curves {
        for point in &curve.points {
            for verdict in point.job.verdicts.iter().filter(|verdict| verdict.code != "interval-too-short") {
                let at = if many { format!("{} {}", curve.label, plain(point.x)) } else { plain(point.x) };
                match seen.iter_mut().find(|(known, _)| known.code == verdict.code) {
                    Some((known, depths)) => {
                        known.severity = known.severity.max(verdict.severity);
                        depths.push(at);
                    }
                    None => seen.push((verdict.clone(), vec![at])),
                }
            }
        }
    }
    let all: usize = sweep.curves.iter().map(|curve| curve.points.len()).sum();
    let located = |(mut verdict, depths): (Verdict, Vec<String>)| {
        // The figures are those of the first of them.
        let place = match depths.as_slice() {
            depths if depths.len() == all => "all points".to_string(),
            [only] => format!("at {only}"),
            [first, rest @ ..] => format!("at {first}; also {}", rest.join(", ")),
            [] => String::new(),
        };
        verdict.what = format!("{} ({place})", verdict.what);
        verdict
    };
    seen.into_iter().map(located).collect()
}
