//! A sweep for a terminal: table, chart, the line, advice.

use std::fmt::Write;

use measure::axis::AxisKind;
use measure::figures::{axis_value, bytes_per_second, count, nanoseconds, percent, plain, precise_count};
use measure::schema::{Answer, Curve, DirectionResult, Ended, Estimate, LoadLine, Point, SweepResult};
use measure::stats::relative_half_width;
use measure::verdict::Verdict;
use measure::{Direction, Histogram};

use super::Table;
use super::plot::{self, Line};
use super::{Style, Tone, machine, measured_on, verdicts, wrap};
use crate::limits::{Said, conditions, is_at, said};
use crate::slices::measured_in;

/// A sweep: table, chart, plateau, load line, overload, ceiling, verdicts, advice.
pub fn sweep(sweep: &SweepResult, style: Style) -> String {
    sweep_rows(sweep, style) + &sweep_findings(sweep, style)
}

/// The rows of a sweep: a table a curve. A sweep that is not over has its rows so far.
pub fn sweep_rows(sweep: &SweepResult, style: Style) -> String {
    let mut out = String::new();
    for (index, curve) in sweep.curves.iter().enumerate() {
        if !curve.label.is_empty() {
            let label = style.paint(Tone::Curve(index), &curve.label);
            let room = style.width.saturating_sub(curve.label.chars().count());
            let _ = writeln!(out, "{label}  {}", wrap(&described(sweep, curve), room, 2));
        }
        out.push_str(&table(sweep, curve, style));
        out.push('\n');
    }
    out
}

/// The findings of a sweep, which stand below its rows: chart, plateau, load line, overload, ceiling, verdicts, advice.
pub fn sweep_findings(sweep: &SweepResult, style: Style) -> String {
    let mut out = charts(sweep, style);
    if let Some(preconditioning) = &sweep.preconditioning {
        let said = crate::preconditioning::said(preconditioning);
        let _ = writeln!(out, "prepared   {}", wrap(&said, style.width, 11));
    }
    match sweep.curves.as_slice() {
        [only] => out.push_str(&line(sweep, only, style)),
        several if several.iter().any(|curve| curve.line.is_some()) => out.push_str(&summary(sweep, several, style)),
        _ => {}
    }
    out.push_str(&map(sweep, style));
    out.push_str(&limits(sweep, style));
    if let Some(ceiling) = sweep.ceiling_iops {
        let lines = sweep.curves.iter().filter_map(|curve| curve.line.as_ref());
        let plateau = lines.filter_map(|line| line.plateau()).map(|plateau| plateau.mean);
        let part = plateau.fold(0.0, f64::max) / ceiling.mean;
        let mut said = format!("{} IOPS without storage (null engine, same job)", count(ceiling.mean));
        if part > 0.0 && part.is_finite() {
            let is_known = |line: &LoadLine| line.load_line.is_some() && !line.still_rising;
            let verdict = match sweep.curves.iter().all(|curve| curve.line.as_ref().is_some_and(is_known)) {
                _ if part > 0.8 => ", so the generator may be the limit",
                // Threads without pauses may be the limit.
                true if AxisKind::of(axis_name(sweep)) == AxisKind::Speed => ", so the generator is not the limit",
                true => ", so the storage is the limit",
                // A machine that changed, or a depth that was too small, may have been the limit.
                false => "",
            };
            said += &format!(": the plateau is {} of that{verdict}", percent(part));
        }
        let _ = writeln!(out, "generator  {}", wrap(&said, style.width, 11));
    }
    let mut all = sweep.verdicts.clone();
    all.extend(of_points(sweep));
    all.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
    let judged = verdicts(&all, style, 0);
    if !judged.is_empty() {
        let _ = write!(out, "\n{judged}");
    }
    if sweep.ended == Ended::Interrupted {
        let said = match sweep.curves.is_empty() {
            true => "Interrupted before anything was measured.\n",
            false => "Interrupted: the figures are of the points that were measured.\n",
        };
        out.push_str(&style.paint(Tone::Warning, said));
    }
    if !sweep.advice.is_empty() {
        let _ = writeln!(out, "\n{}", style.paint(Tone::Bold, &wrap(&sweep.advice, style.width, 0)));
    }
    let mut on = machine(&sweep.provenance.machine);
    on.extend(crate::parts::said(sweep).map(|said| format!("; {said}")));
    out + &measured_on(&on, &sweep.storage, style)
}

fn described(sweep: &SweepResult, curve: &Curve) -> String {
    format!("{} on {}", workload(sweep, curve), sweep.target)
}

/// The workload of a curve without the options that differ from point to point: the pattern, the block size, the mix,
/// the caching.
pub(crate) fn workload(sweep: &SweepResult, curve: &Curve) -> String {
    let Some(point) = curve.points.first() else { return String::new() };
    let facts = &point.job.facts;
    let blocks = blocks(point, &sweep.axis);
    let caching = Some(facts.caching()).filter(|caching| !caching.is_empty());
    format!("{}{blocks}{}", facts.rw, caching.map(|caching| format!(", {caching}")).unwrap_or_default())
}

/// The block size, of each direction where they differ, and the mix of a workload that goes both ways; not the one of
/// the two that differs over the axis.
fn blocks(point: &Point, axis: &str) -> String {
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
        _ if axis == "bs" => String::new(),
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
        _ if axis == "rwmixread" => sizes,
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

/// A column of the table: its title, the cell of a point, and true if cells start at the left.
struct Column<'a> {
    title: &'a str,
    cell: Box<dyn Fn(&Point) -> String + 'a>,
    left: bool,
}

/// The rows of a curve. If the rows are wider than the style permits, the columns that say least are left out.
fn table(sweep: &SweepResult, curve: &Curve, style: Style) -> String {
    const LEAST: [&str; 5] = ["p50", "CPU", "bw", "p99.9", "lat mean"];
    let columns = columns(sweep, curve);
    let header: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let left = columns.iter().enumerate().filter(|(_, column)| column.left).map(|(index, _)| index);
    let mut table = left.fold(Table::of(&header), Table::left);
    curve.points.iter().for_each(|point| table.row(columns.iter().map(|column| (column.cell)(point)).collect()));
    let width = style.width.saturating_sub(2);
    table.without(&LEAST, width).cut(style, 2).render(style, 2)
}

fn columns<'a>(sweep: &'a SweepResult, curve: &'a Curve) -> Vec<Column<'a>> {
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let right = |title: &'a str, cell: fn(&Point) -> String| Column { title, cell: Box::new(cell), left: false };
    let of = |title: &'a str, direction: Direction, tell: fn(&DirectionResult) -> String| {
        let cell = move |point: &Point| tell(&point.job.directions[direction]);
        Column { title, cell: Box::new(cell) as _, left: false }
    };
    fn quantile(lat: &Histogram, q: f64) -> String {
        if lat.is_empty() { "-".into() } else { nanoseconds(lat.quantile(q) as f64) }
    }
    let mut out = vec![
        Column { title: axis, cell: Box::new(move |point: &Point| axis_value(axis, point.x)), left: false },
        right("IOPS", |point| count(point.iops.mean)),
        right("+-", spread),
        right("bw", |point| bytes_per_second(point.bytes_per_second.mean)),
    ];
    if is_mixed(curve) {
        fn rate(result: &DirectionResult) -> String {
            count(result.ops as f64 / (result.runtime_ns as f64 / 1e9).max(1e-9))
        }
        fn p99(result: &DirectionResult) -> String {
            quantile(result.waited_ns(), 0.99)
        }
        fn mean(result: &DirectionResult) -> String {
            if result.waited_ns().is_empty() { "-".into() } else { nanoseconds(result.waited_ns().mean()) }
        }
        out.extend([
            of("reads", Direction::Read, rate),
            of("lat mean", Direction::Read, mean),
            of("p99", Direction::Read, p99),
            of("writes", Direction::Write, rate),
            of("lat mean", Direction::Write, mean),
            of("p99", Direction::Write, p99),
        ]);
    } else {
        out.extend([
            right("lat mean", |point| {
                let lat = point.lat_ns();
                if lat.is_empty() { "-".into() } else { nanoseconds(lat.mean()) }
            }),
            right("p50", |point| quantile(&point.lat_ns(), 0.5)),
            right("p99", |point| quantile(&point.lat_ns(), 0.99)),
        ]);
        if curve.saturation.is_some() || curve.kept.is_some() {
            out.push(right("p99.9", |point| quantile(&point.lat_ns(), 0.999)));
        }
    }
    out.push(right("CPU", |point| percent(cpus(point))));
    let left = |title: &'a str, cell: Box<dyn Fn(&Point) -> String + 'a>| Column { title, cell, left: true };
    let place = |point: &Point| match place(curve, point) {
        "" => String::new(),
        place => format!("<- {place}"),
    };
    out.push(left("", Box::new(place)));
    out.push(left("verdicts", Box::new(codes)));
    // An empty column is not drawn.
    out.retain(|column| !column.left || curve.points.iter().any(|point| !(column.cell)(point).is_empty()));
    out
}

/// True if the curve's ops go both ways, so that reads and writes have figures of their own.
fn is_mixed(curve: &Curve) -> bool {
    let of = |direction| curve.points.iter().any(|point| point.job.directions[direction].ops > 0);
    of(Direction::Read) && of(Direction::Write)
}

/// Half the 95 % interval of a point's throughput, as a part of the mean: `not known` where it is wider than the mean
/// itself, `?` for a single sample.
pub(crate) fn spread(point: &Point) -> String {
    match (point.samples.len(), relative_half_width(&point.iops)) {
        (0 | 1, _) => "?".into(),
        (_, part) if part > 1.0 => "not known".into(),
        (_, part) => percent(part),
    }
}

/// The name of a point's place on its curve: at the load line, at an objective, at overload; empty for any other point.
pub(crate) fn place(curve: &Curve, point: &Point) -> &'static str {
    let is = |other: Option<&Point>| other.is_some_and(|other| other.x == point.x);
    let (kept, keeps_up) = [&curve.kept, &curve.saturation].map(|limit| is_at(limit.as_ref(), point.x)).into();
    match (is(curve.at_load_line()), is(curve.at_overload())) {
        (true, _) if kept => "load line, objective",
        (true, _) => "load line",
        _ if kept => "objective",
        (false, true) => "overload",
        _ if keeps_up => "keeps up",
        (false, false) => "",
    }
}

/// Two charts side by side (or one below the other): IOPS and mean latency over the depth.
fn charts(sweep: &SweepResult, style: Style) -> String {
    const HEIGHT: usize = 9;
    let side_by_side = style.width >= 92;
    let width = if side_by_side { (style.width - 28) / 2 } else { style.width.saturating_sub(14) }.clamp(20, 60);
    let marks = |curve: &Curve| {
        let limit = [&curve.kept, &curve.saturation].into_iter().flatten().find_map(|limit| limit.at);
        let limit = curve.points.iter().find(|point| Some(point.x) == limit);
        let at = [curve.at_load_line().or(limit), curve.at_overload()];
        at.iter().any(Option::is_some).then(|| at.map(|point| point.map(|point| point.x)))
    };
    let iops = chart(sweep, "IOPS", width, HEIGHT, style, &|point| point.iops.mean, count, &marks);
    let latency =
        chart(sweep, "mean latency", width, HEIGHT, style, &|point| point.lat_ns().mean(), nanoseconds, &marks);
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
    out.push_str(&legend(sweep, sweep.curves.iter().any(|curve| marks(curve).is_some()), style));
    out + "\n"
}

/// The names of the curves and the meaning of the vertical lines; empty for one curve without such lines.
fn legend(sweep: &SweepResult, marked: bool, style: Style) -> String {
    let curves = sweep.curves.len();
    let letters = plot::letters(curves, style);
    let mut parts = Vec::new();
    if curves > 1 {
        parts.extend(sweep.curves.iter().enumerate().map(|(index, curve)| match letters {
            true => format!("{}: {}", plot::letter(index, curves), curve.label),
            false => style.paint(Tone::Curve(index), &format!("{} {}", "\u{2501}".repeat(2), curve.label)),
        }));
    }
    if marked {
        let dots = if letters { "':'" } else { "dotted" };
        let what = match sweep.curves.iter().any(|curve| curve.line.is_some()) {
            true => "load line, and overload if there is one",
            false => "the limit",
        };
        parts.push(style.paint(Tone::Soft, &format!("{dots}: {what}")));
    }
    if parts.is_empty() { String::new() } else { parts.join("   ") + "\n" }
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
    let [upright, corner, flat] = plot::axes(style);
    let mut out = vec![(format!("{:>9} {}", "", style.paint(Tone::Bold, title)), 10 + title.len())];
    for (index, row) in plot::rows(&lines, &marked, width, height, style).into_iter().enumerate() {
        let label = match index {
            0 => write(top),
            _ if index + 1 == height => "0".to_string(),
            _ if index == height / 2 => write(top / 2.0),
            _ => String::new(),
        };
        out.push((format!("{label:>9}{upright}{row}"), 10 + width));
    }
    let (left, right) = (axis_value(axis_name(sweep), low), axis_value(axis_name(sweep), high));
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let axis = format!("{axis} (log)");
    let middle = width.saturating_sub(left.len() + right.len());
    out.push((format!("{:>9}{corner}{}", "", flat.to_string().repeat(width)), 10 + width));
    out.push((
        format!("{:>10}{left}{axis:^middle$}{right}", ""),
        10 + left.len() + right.len() + middle.max(axis.len()),
    ));
    Some(out)
}

fn interval(estimate: &Estimate, write: fn(f64) -> String) -> String {
    format!("{}, 95 % interval {} to {}", write(estimate.mean), write(estimate.low), write(estimate.high))
}

/// Plateau, load line and overload of the only curve.
fn line(sweep: &SweepResult, curve: &Curve, style: Style) -> String {
    let Some(line) = &curve.line else { return String::new() };
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let mut out = String::new();
    let plateau = match line.plateau() {
        Some(plateau) => interval(&plateau, precise_count).replacen(',', " IOPS,", 1),
        None => "cannot be told".into(),
    };
    let _ = writeln!(out, "plateau    {plateau}");
    let deepest = curve.points.last().map_or(0.0, |point| point.x);
    let said = match line.answer() {
        Answer::At(line) => format!("{axis} {} (97 % of the plateau)", interval(&line, plain)),
        Answer::Between(low, high) => {
            let reason = line.scatter.as_ref().map(|scatter| format!(": {scatter}")).unwrap_or_default();
            format!("between {axis} {} and {} (97 % of the plateau){reason}", plain(low), plain(high))
        }
        Answer::Beyond => format!("beyond {axis} {}: throughput still rises", plain(deepest)),
        // The verdict no-load-line, some lines below, gives the reason.
        Answer::Unnamed(_) => "cannot be named; see no-load-line".into(),
    };
    let _ = writeln!(out, "{}  {}", style.paint(Tone::Good, "load line"), wrap(&said, style.width, 11));
    match &line.overload {
        None if line.unnamed.is_some() => {}
        None if line.hides_overload() => {
            let why = line.doubt().map(|doubt| format!(": {doubt}")).unwrap_or_default();
            let _ = writeln!(out, "overload   cannot be told{why}");
        }
        Some(overload) => {
            let _ = writeln!(out, "overload   {axis} {} (5 % below the plateau)", interval(overload, plain));
        }
        None => {
            let _ = writeln!(out, "overload   none up to {axis} {}", plain(deepest));
        }
    }
    if let Some(burst) = line.burst.filter(|_| line.plateau().is_some()) {
        let text = format!(
            "visits begin with up to {} ops beyond what the storage sustains, as limits with token buckets give them; \
             rows show what the visits gave, plateau and load line allow for the burst",
            count(burst.ops)
        );
        let _ = writeln!(out, "burst      {}", wrap(&text, style.width, 11));
    }
    if let Some(how) = measured_in(curve) {
        let _ = writeln!(out, "measured   {}", wrap(&how, style.width, 11));
    }
    out
}

/// The limits of each curve: the rate that it keeps up with, and the depth or rate that keeps the objectives.
fn limits(sweep: &SweepResult, style: Style) -> String {
    let mut out = String::new();
    for curve in &sweep.curves {
        let of = if sweep.curves.len() > 1 { format!("{}: ", curve.label) } else { String::new() };
        for (name, limit) in [("keeps up", &curve.saturation), ("objective", &curve.kept)] {
            let Some(limit) = limit else { continue };
            let Said { short, more } = said(limit, curve, axis_name(sweep));
            let conditions = Some(conditions(limit)).filter(|conditions| !conditions.is_empty());
            let conditions = conditions.map(|conditions| format!("{conditions}: ")).unwrap_or_default();
            let text = wrap(&format!("{of}{conditions}{short}; {more}"), style.width, 11);
            let _ = writeln!(out, "{}  {text}", style.paint(Tone::Good, &format!("{name:9}")));
        }
    }
    out
}

fn axis_name(sweep: &SweepResult) -> &str {
    if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis }
}

/// The throughput of a map as a table: a row a curve, a column for each value that all curves have; turned where it is
/// too wide otherwise. Empty without a second axis.
fn map(sweep: &SweepResult, style: Style) -> String {
    let Some(first) = sweep.curves.first().filter(|_| !sweep.across.is_empty()) else { return String::new() };
    let axis = axis_name(sweep);
    let has = |curve: &Curve, x: f64| curve.points.iter().any(|point| point.x == x);
    let shared: Vec<f64> =
        first.points.iter().map(|point| point.x).filter(|x| sweep.curves.iter().all(|curve| has(curve, *x))).collect();
    let by_bytes = has_different_blocks(sweep);
    let titles: Vec<String> = shared.iter().map(|x| axis_value(axis, *x)).collect();
    let rows = sweep.curves.iter().map(|curve| {
        let line = curve.at_load_line().map(|point| point.x);
        // The load line may lie between two columns: the first column at or beyond it has the mark.
        let marked = line.and_then(|line| shared.iter().position(|x| *x >= line));
        let cell = |(column, x): (usize, &f64)| {
            let point = curve.points.iter().find(|point| point.x == *x);
            let value = point.map_or("-".into(), |point| match by_bytes {
                true => bytes_per_second(point.bytes_per_second.mean),
                false => count(point.iops.mean),
            });
            if marked == Some(column) { format!("{value} |") } else { value }
        };
        shared.iter().enumerate().map(cell).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let header: Vec<&str> = std::iter::once("").chain(titles.iter().map(String::as_str)).collect();
    let mut table = Table::of(&header).left(0);
    for (curve, cells) in sweep.curves.iter().zip(&rows) {
        table.row(std::iter::once(&curve.label).chain(cells).cloned().collect());
    }
    if table.width() > style.width {
        // A row a value and a column a curve: there are more values than curves, as a rule.
        let labels = sweep.curves.iter().map(|curve| curve.label.as_str());
        let mut turned = Table::of(&std::iter::once(axis).chain(labels).collect::<Vec<_>>()).left(0);
        for (index, title) in titles.iter().enumerate() {
            turned.row(std::iter::once(title).chain(rows.iter().map(|cells| &cells[index])).cloned().collect());
        }
        table = if turned.width() < table.width() { turned } else { table };
    }
    let figure = if by_bytes { "bytes per second" } else { "IOPS" };
    let mark = match sweep.curves.iter().any(|curve| curve.at_load_line().is_some()) {
        true => format!("; \"|\": from here on, {} (load line)", AxisKind::of(axis).only_adds_latency()),
        false => String::new(),
    };
    let note = format!("{figure} over {axis}{mark}");
    table.render(style, 0) + &style.paint(Tone::Soft, &wrap(&note, style.width, 0)) + "\n\n"
}

/// True if the curves or the points move blocks of different sizes, so that their IOPS do not compare.
pub(crate) fn has_different_blocks(sweep: &SweepResult) -> bool {
    ["bs", "bssplit", "bsrange"].iter().any(|option| [axis_name(sweep), &sweep.across].contains(option))
}

/// Plateau, load line and overload of several curves, a row each.
fn summary(sweep: &SweepResult, curves: &[Curve], style: Style) -> String {
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let mut table = Table::new(["", "plateau", "interval", "load line", "interval", "lat mean", "overload"]);
    let range = |low: f64, high: f64, write: fn(f64) -> String| format!("{} to {}", write(low), write(high));
    for curve in curves {
        let Some(line) = &curve.line else { continue };
        let (plateau, plateau_within) = match line.plateau() {
            Some(plateau) => (precise_count(plateau.mean), range(plateau.low, plateau.high, precise_count)),
            None => ("?".into(), "cannot tell".into()),
        };
        let deepest = curve.points.last().map_or(0.0, |point| point.x);
        let (at, within) = match line.answer() {
            Answer::At(line) => (plain(line.mean), range(line.low, line.high, plain)),
            Answer::Between(low, high) => ("?".into(), range(low, high, plain)),
            Answer::Beyond => (format!("> {}", plain(deepest)), "-".into()),
            Answer::Unnamed(_) => ("?".into(), "cannot tell".into()),
        };
        let latency = curve.at_load_line().map(|point| nanoseconds(point.lat_ns().mean()));
        let overload = match &line.overload {
            Some(overload) => plain(overload.mean),
            None if line.hides_overload() => "?".into(),
            None => format!("> {}", plain(deepest)),
        };
        table.row(vec![
            curve.label.clone(),
            plateau,
            plateau_within,
            at,
            within,
            latency.unwrap_or_else(|| "-".into()),
            overload,
        ]);
    }
    let note =
        format!("plateau in IOPS; load line (97 % of it) and overload (5 % below it) as {axis}; intervals: 95 %");
    table.render(style, 0) + &style.paint(Tone::Soft, &wrap(&note, style.width, 0)) + "\n\n"
}

/// Verdicts of the points, each finding with the depths it concerns.
fn of_points(sweep: &SweepResult) -> Vec<Verdict> {
    let mut seen = Vec::new();
    let many = sweep.curves.len() > 1;
    for curve in &sweep.curves {
        for point in &curve.points {
            for verdict in point.job.verdicts.iter().filter(|verdict| verdict.code != "interval-too-short") {
                let x = axis_value(axis_name(sweep), point.x);
                let at = if many { format!("{} {x}", curve.label) } else { x };
                measure::verdict::gather(&mut seen, verdict, &verdict.what, &at);
            }
        }
    }
    let all: usize = sweep.curves.iter().map(|curve| curve.points.len()).sum();
    let located = |depths: &[String]| match depths.len() {
        count if count == all => " (all points)".to_string(),
        _ => format!(" (at {})", depths.join(", ")),
    };
    seen.into_iter().map(|one| one.joined(located)).collect()
}
