//! Results of simulations as one HTML page: the table, throughput and latency over the sweep, the course of each run.

use pace::sim::{Outcome, Run};
use report::html::{Frame, Table, cards, folded};
use report::svg::{Axis, Chart, Format, Series, escape};

use super::table::{self, FIGURES};

/// Runs that get charts over time of their own; more would make a page that nobody reads.
const TIMELINES_MAX: usize = 24;

/// The page: no script, nothing from the network.
pub fn page(results: &[(Run, Outcome)]) -> String {
    let varied = table::varied(results);
    let several = table::several_scenarios(results);
    let label = |run: &Run, params: &[String]| table::label_of(run, params, several);
    let mut body = format!("<h2>Results</h2>{}", summary(results, &varied));
    for remark in table::remarks(results) {
        body.push_str(&format!("<p class=\"about\">{}</p>", escape(&remark)));
    }
    let over_sweep = sweep_charts(results, &varied);
    if !over_sweep.is_empty() {
        body.push_str("<h2>Over the sweep</h2>");
        body.push_str(&cards(over_sweep));
    }
    body.push_str("<h2>Over time</h2>");
    for (index, (run, outcome)) in results.iter().take(TIMELINES_MAX).enumerate() {
        let label = format!("Run {} {}", index + 1, label(run, &varied));
        body.push_str(&folded(label.trim_end(), index == 0, &cards(timelines(outcome))));
    }
    if results.len() > TIMELINES_MAX {
        body.push_str(&format!("<p>{} more runs are in the JSON result.</p>", results.len() - TIMELINES_MAX));
    }
    let mut abouts: Vec<String> =
        results.iter().map(|(run, _)| format!("{}: {}", run.scenario.name, run.scenario.about)).collect();
    abouts.dedup();
    let about = "Simulated time, one seed a run: the same result to the byte on every machine.";
    Frame { title: "simulation", kind: "simulation", headline: &abouts.join("; "), about }.around(&body)
}

/// A row for each run: its number, the scenario if there are several, the parameters that differ between runs, then the
/// figures.
fn summary(results: &[(Run, Outcome)], varied: &[String]) -> String {
    let several = table::several_scenarios(results);
    let mut header = vec!["run"];
    header.extend(several.then_some("scenario"));
    header.extend(varied.iter().map(String::as_str));
    header.extend(FIGURES);
    let mut summary = Table::new("Results", &header);
    for (index, (run, outcome)) in results.iter().enumerate() {
        let mut cells = vec![("", (index + 1).to_string())];
        cells.extend(several.then(|| ("", run.scenario.name.clone())));
        cells.extend(varied.iter().map(|param| ("", table::value_of(run, param).unwrap_or_else(|| "-".into()))));
        cells.extend(table::figures(outcome).map(|figure| ("", figure)));
        summary.row("", &cells);
    }
    summary.end()
}

/// A line of the sweep: its name, and (parameter, outcome) at each of its points.
type Line<'a> = (String, Vec<(f64, &'a Outcome)>);

/// Throughput and latency over the last numeric parameter that differs between runs, a line for each combination of
/// the others. Empty if no such parameter exists.
fn sweep_charts(results: &[(Run, Outcome)], varied: &[String]) -> Vec<Chart> {
    let number = |run: &Run, param: &str| {
        let (_, value) = run.set.iter().find(|(name, _)| name == param)?;
        value.as_float().or(value.as_integer().map(|n| n as f64))
    };
    let is_axis = |param: &&String| *param != "seed" && results.iter().all(|(run, _)| number(run, param).is_some());
    let Some(axis) = varied.iter().rev().find(is_axis) else { return Vec::new() };
    let others: Vec<String> = varied.iter().filter(|param| *param != axis).cloned().collect();
    let mut lines: Vec<Line> = Vec::new();
    for (run, outcome) in results {
        let Some(x) = number(run, axis) else { continue };
        let name = table::label_of(run, &others, table::several_scenarios(results));
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push((x, outcome)),
            None => lines.push((name, vec![(x, outcome)])),
        }
    }
    let positive = lines.iter().flat_map(|(_, points)| points).all(|(x, _)| *x > 0.0);
    let mut values: Vec<f64> = lines.iter().flat_map(|(_, points)| points).map(|(x, _)| *x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let x = || if positive { Axis::log2(axis) } else { Axis::linear(axis) }.ticks(values.clone());
    let over = |title: &str| Chart::new(title).x(x());
    let of_latency = || Axis::log10("latency").format(Format::Nanoseconds);
    let mut throughput = over("Throughput").y(Axis::linear("Gb/s"));
    let mut mean = over("Mean latency").y(of_latency());
    let mut p99 = over("99th percentile of latency").y(of_latency());
    for (colour, (name, mut points)) in lines.into_iter().enumerate() {
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let of = |value: fn(&Outcome) -> f64| points.iter().map(|(x, outcome)| (*x, value(outcome))).collect();
        throughput = throughput.series(Series::line(&name, of(|outcome| outcome.gbps)).colour(colour));
        mean = mean.series(Series::line(&name, of(|outcome| outcome.all.lat_us * 1e3)).colour(colour));
        p99 = p99.series(Series::line(&name, of(|outcome| outcome.all.p99_us * 1e3)).colour(colour));
    }
    vec![throughput, mean, p99]
}

/// Throughput and bytes in flight of one run; the pacer's period where the method has one.
fn timelines(outcome: &Outcome) -> Vec<Chart> {
    let points = |of: &dyn Fn(&pace::sim::Point) -> f64| -> Vec<(f64, f64)> {
        let step = outcome.curve.len().div_ceil(500).max(1);
        outcome.curve.iter().step_by(step).map(|p| (p.t_s, of(p))).collect()
    };
    let time = || Axis::linear("simulated time").format(Format::Seconds);
    let mut rate =
        Chart::new("Throughput").x(time()).y(Axis::linear("Gb/s")).series(Series::line("all", points(&|p| p.gbps)));
    let tenants = outcome.tenant_gbps.len();
    if (2..=6).contains(&tenants) {
        for tenant in 0..tenants {
            rate = rate.series(Series::line(format!("tenant {tenant}"), points(&|p| p.tenant_gbps[tenant])));
        }
    }
    let mut memory = Chart::new("Bytes in flight")
        .x(time())
        .y(Axis::linear("MiB"))
        .series(Series::line("in flight", points(&|p| p.in_flight_mib)));
    if outcome.window_mib.is_some() {
        memory = memory.series(Series::line("window", points(&|p| p.window_mib)).dashed());
    }
    let mut charts = vec![rate, memory];
    if outcome.period_us > 0.0 {
        let period = Series::line("period", points(&|p| p.period_us * 1e3));
        let axis = Axis::linear("period").format(Format::Nanoseconds);
        charts.push(Chart::new("Period of the pacer").x(time()).y(axis).series(period));
    }
    charts
}
