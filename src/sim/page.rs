//! Results of simulations as one HTML page: the table, the sweep's curve, throughput and window over time.

use std::fmt::Write;

use pace::sim::{Outcome, Run};
use report::html::{Frame, card, cards};
use report::svg::{self, Axis, Chart, Series};

use super::table;

/// Runs that get charts over time of their own; more would make a page that nobody reads.
const TIMELINES_MAX: usize = 24;

/// The page: no script, nothing from the network.
pub fn page(results: &[(Run, Outcome)]) -> String {
    let mut body = card(&table::text(results));
    if let Some(chart) = sweep_chart(results) {
        let _ = write!(body, "<h2>Throughput over the sweep</h2>{}", cards([chart]));
    }
    body.push_str("<h2>Over time</h2>");
    for (run, outcome) in results.iter().take(TIMELINES_MAX) {
        let _ = write!(body, "<h3>{}</h3>{}", svg::escape(&table::label(run)), cards(timelines(outcome)));
    }
    if results.len() > TIMELINES_MAX {
        let _ = write!(body, "<p>{} more runs are in the JSON result.</p>", results.len() - TIMELINES_MAX);
    }
    let mut abouts: Vec<String> =
        results.iter().map(|(run, _)| format!("{}: {}", run.scenario.name, run.scenario.about)).collect();
    abouts.dedup();
    let about = "Simulated time, one seed a run: the same result to the byte on every machine.";
    Frame { title: "simulation", kind: "simulation", headline: &abouts.join("; "), about }.around(&body)
}

/// Throughput over the last numeric parameter, a line for each combination of the others.
fn sweep_chart(results: &[(Run, Outcome)]) -> Option<Chart> {
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|n| n as f64));
    let is_axis = |param: &str| {
        param != "seed" && results.iter().all(|(run, _)| run.set.iter().any(|(p, v)| p == param && number(v).is_some()))
    };
    let axis = results.first()?.0.set.iter().rev().map(|(param, _)| param.clone()).find(|param| is_axis(param))?;
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for (run, outcome) in results {
        let x = run.set.iter().find(|(param, _)| *param == axis).and_then(|(_, value)| number(value))?;
        let mut rest = run.clone();
        rest.set.retain(|(param, _)| *param != axis);
        let name = table::label(&rest);
        match lines.iter_mut().find(|(n, _)| *n == name) {
            Some((_, points)) => points.push((x, outcome.gbps)),
            None => lines.push((name, vec![(x, outcome.gbps)])),
        }
    }
    let x = if lines.iter().flat_map(|l| &l.1).all(|p| p.0 > 0.0) { Axis::log2(axis) } else { Axis::linear(axis) };
    let chart = Chart::new("Throughput").x(x).y(Axis::linear("Gb/s"));
    Some(lines.into_iter().fold(chart, |chart, (name, points)| chart.series(Series::line(name, points))))
}

/// Throughput and bytes in flight of one run.
fn timelines(outcome: &Outcome) -> [Chart; 2] {
    let points = |of: &dyn Fn(&pace::sim::Point) -> f64| -> Vec<(f64, f64)> {
        let step = outcome.curve.len().div_ceil(500).max(1);
        outcome.curve.iter().step_by(step).map(|p| (p.t_s, of(p))).collect()
    };
    let mut rate = Chart::new("Throughput, Gb/s")
        .x(Axis::linear("simulated seconds"))
        .y(Axis::linear("Gb/s"))
        .series(Series::line("all", points(&|p| p.gbps)));
    let tenants = outcome.tenant_gbps.len();
    if (2..=6).contains(&tenants) {
        for tenant in 0..tenants {
            rate = rate.series(Series::line(format!("tenant {tenant}"), points(&|p| p.tenant_gbps[tenant])));
        }
    }
    let mut memory = Chart::new("Bytes in flight, MiB")
        .x(Axis::linear("simulated seconds"))
        .y(Axis::linear("MiB"))
        .series(Series::line("in flight", points(&|p| p.in_flight_mib)));
    if outcome.window_mib.is_some() {
        memory = memory.series(Series::line("window", points(&|p| p.window_mib)));
    }
    if outcome.period_us > 0.0 {
        memory = memory.series(Series::line("period, us", points(&|p| p.period_us)));
    }
    [rate, memory]
}
