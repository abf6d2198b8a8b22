//! Results of simulations as a table for the terminal.

use std::fmt::Write;

use pace::sim::{Outcome, Run};

/// One line per run; for scenarios that were run with several seeds, mean and deviation at the end.
pub fn text(results: &[(Run, Outcome)]) -> String {
    let header = [
        "scenario",
        "Gb/s",
        "kIOPS",
        "lat us",
        "p99 us",
        "small us",
        "in flight MiB",
        "window MiB",
        "held %",
        "cores %",
    ];
    let mut rows: Vec<Vec<String>> = vec![header.map(String::from).to_vec()];
    for (run, o) in results {
        rows.push(vec![
            label(run),
            format!("{:.1}", o.gbps),
            format!("{:.1}", o.iops / 1e3),
            format!("{:.0}", o.all.lat_us),
            format!("{:.0}", o.all.p99_us),
            if o.small.ops > 0 { format!("{:.0}", o.small.lat_us) } else { "-".into() },
            format!("{:.1}", o.in_flight_mib),
            o.window_mib.map_or("-".into(), |w| format!("{w:.1}")),
            format!("{:.0}", 100.0 * o.held_fraction),
            format!("{:.0}", 100.0 * o.core_busy),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let _ = write!(text, "{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    let refused: u64 = results.iter().map(|(_, o)| o.refused).sum();
    if refused > 0 {
        let _ = writeln!(text, "{refused} commands were refused and sent again: the pacer remembers only so many.");
    }
    let gbps: Vec<f64> = results.iter().map(|(_, o)| o.gbps).collect();
    let one_point = results.windows(2).all(|pair| without_seed(&pair[0].0) == without_seed(&pair[1].0));
    if gbps.len() > 1 && one_point {
        let mean = gbps.iter().sum::<f64>() / gbps.len() as f64;
        let deviation = (gbps.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (gbps.len() - 1) as f64).sqrt();
        let _ = writeln!(
            text,
            "{} seeds: {mean:.1} Gb/s, standard deviation {:.2} %",
            gbps.len(),
            100.0 * deviation / mean
        );
    }
    text
}

fn without_seed(run: &Run) -> (&str, Vec<&(String, toml::Value)>) {
    (&run.scenario.name, run.set.iter().filter(|(param, _)| param != "seed").collect())
}

/// The scenario's name and what was varied.
pub fn label(run: &Run) -> String {
    let set = run.set.iter().map(|(param, value)| format!(" {}={}", param, short(value))).collect::<String>();
    format!("{}{set}", run.scenario.name)
}

/// A value in few words: a size mix as 128k:80/4k:20, a method by its name.
fn short(value: &toml::Value) -> String {
    match value {
        toml::Value::Array(items) => items.iter().map(short).collect::<Vec<_>>().join("/"),
        toml::Value::Table(table) => {
            let text = |key: &str| table.get(key).map(short);
            match (text("bytes"), text("percent"), text("method")) {
                (Some(bytes), Some(percent), _) => format!("{bytes}:{percent}"),
                (Some(bytes), None, _) => bytes,
                (.., Some(method)) => method,
                _ => table.to_string().replace('\n', " "),
            }
        }
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
