//! Results of simulations as a table for the terminal.

use std::fmt::Write;

use pace::sim::{Confidence, Outcome, Run};
use report::text::{Style, Table, wrap};

use super::trust;

/// The names of the figures of a run, as [`figures`] gives them.
pub const FIGURES: [&str; 10] =
    ["Gb/s", "interval", "kIOPS", "lat us", "p99 us", "small us", "in flight MiB", "window MiB", "held %", "cores %"];

/// The figures of a run as written.
pub fn figures(outcome: &Outcome) -> [String; 10] {
    let o = outcome;
    [
        format!("{:.1}", o.gbps),
        match &o.confidence {
            Confidence::Interval { low_gbps, high_gbps, .. } => {
                // A slow machine needs the digits that a fast one has before the point.
                let digits = if *high_gbps < 10.0 { 3 } else { 0 };
                format!("{low_gbps:.digits$} to {high_gbps:.digits$}")
            }
            Confidence::Outside(_) => "-".into(),
        },
        format!("{:.1}", o.iops / 1e3),
        format!("{:.0}", o.all.lat_us),
        format!("{:.0}", o.all.p99_us),
        if o.small.ops > 0 { format!("{:.0}", o.small.lat_us) } else { "-".into() },
        format!("{:.1}", o.in_flight_mib),
        o.window_mib.map_or("-".into(), |w| format!("{w:.1}")),
        format!("{:.0}", 100.0 * o.held_fraction),
        format!("{:.0}", 100.0 * o.core_busy),
    ]
}

/// Columns that give way, the first of them first, where the table is wider than the terminal.
const LEAST: [&str; 3] = ["window MiB", "cores %", "held %"];

/// One line per run, and the remarks. A column in which no run has a value is left out.
pub fn text(results: &[(Run, Outcome)], style: Style) -> String {
    let header: Vec<&str> = ["scenario"].into_iter().chain(FIGURES).collect();
    let rows: Vec<[String; 10]> = results.iter().map(|(_, outcome)| figures(outcome)).collect();
    let empty: Vec<&str> =
        (0..FIGURES.len()).filter(|&at| rows.iter().all(|row| row[at] == "-")).map(|at| FIGURES[at]).collect();
    let mut table = Table::of(&header);
    for ((run, _), figures) in results.iter().zip(rows) {
        table.row([label(run)].into_iter().chain(figures).collect());
    }
    let mut text = table.without(&empty, 0).without(&LEAST, style.width).cut(style, 0).render(style, 0);
    for remark in remarks(results) {
        let _ = writeln!(text, "{}", wrap(&remark, style.width, 0));
    }
    text
}

/// The runs as comma-separated values, a line a run; a value that a run does not have is empty.
pub fn csv(results: &[(Run, Outcome)]) -> String {
    const NAMES: [&str; 11] = [
        "gbit_per_s",
        "gbit_per_s_low",
        "gbit_per_s_high",
        "kiops",
        "lat_us_mean",
        "lat_us_p99",
        "small_lat_us_mean",
        "in_flight_mib",
        "window_mib",
        "held_percent",
        "cores_percent",
    ];
    let header: Vec<&str> = ["scenario"].into_iter().chain(NAMES).collect();
    let known = |figure: String| if figure == "-" { String::new() } else { figure };
    let ends = |outcome: &Outcome| match outcome.confidence {
        Confidence::Interval { low_gbps, high_gbps, .. } => [low_gbps, high_gbps].map(|end| format!("{end:.1}")),
        Confidence::Outside(_) => Default::default(),
    };
    let rows = results.iter().map(|(run, outcome)| {
        let [gbps, _, others @ ..] = figures(outcome).map(known);
        [label(run), gbps].into_iter().chain(ends(outcome)).chain(others).collect()
    });
    report::csv::table(&header, rows)
}

/// Sentences on all runs: the sources of the intervals, and what has none; the methods that differ; commands that were
/// refused; of a scenario that was run with several seeds, mean and deviation.
pub fn remarks(results: &[(Run, Outcome)]) -> Vec<String> {
    let mut remarks = trust::remarks(results);
    let refused: u64 = results.iter().map(|(_, o)| o.refused).sum();
    if refused > 0 {
        remarks.push(format!(
            "The pacer refused {refused} commands because its table was full; the hosts sent them again."
        ));
    }
    let gbps: Vec<f64> = results.iter().map(|(_, o)| o.gbps).collect();
    let one_point = results.windows(2).all(|pair| without_seed(&pair[0].0) == without_seed(&pair[1].0));
    if gbps.len() > 1 && one_point {
        let mean = gbps.iter().sum::<f64>() / gbps.len() as f64;
        let deviation = (gbps.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (gbps.len() - 1) as f64).sqrt();
        let part = 100.0 * deviation / mean;
        remarks.push(format!("{} seeds: {mean:.1} Gb/s, standard deviation {part:.2} %", gbps.len()));
    }
    remarks
}

fn without_seed(run: &Run) -> (&str, Vec<&(String, toml::Value)>) {
    (&run.scenario.name, run.set.iter().filter(|(param, _)| param != "seed").collect())
}

/// The scenario's name and the parameters that vary.
pub fn label(run: &Run) -> String {
    let set = run.set.iter().map(|(param, value)| format!(" {}={}", param, short(value))).collect::<String>();
    format!("{}{set}", run.scenario.name)
}

/// The parameters whose values differ between the runs, in the order in which they were set.
pub fn varied(results: &[(Run, Outcome)]) -> Vec<String> {
    let mut params: Vec<String> = Vec::new();
    for (param, _) in results.iter().flat_map(|(run, _)| &run.set) {
        if !params.contains(param) {
            params.push(param.clone());
        }
    }
    let value = |run: &Run, param: &str| run.set.iter().find(|(name, _)| name == param).map(|(_, value)| value.clone());
    params.retain(|param| results.windows(2).any(|pair| value(&pair[0].0, param) != value(&pair[1].0, param)));
    params
}

/// True if the runs are of more than one scenario.
pub fn several_scenarios(results: &[(Run, Outcome)]) -> bool {
    results.windows(2).any(|pair| pair[0].0.scenario.name != pair[1].0.scenario.name)
}

/// The run's values of these parameters, after the scenario's name where that is wanted.
pub fn label_of(run: &Run, params: &[String], with_scenario: bool) -> String {
    let name = with_scenario.then(|| run.scenario.name.clone());
    let set = |param: &String| Some(format!("{param}={}", value_of(run, param)?));
    name.into_iter().chain(params.iter().filter_map(set)).collect::<Vec<_>>().join(" ")
}

/// The run's value of a parameter as written; None if the run does not set it.
pub fn value_of(run: &Run, param: &str) -> Option<String> {
    run.set.iter().find(|(name, _)| name == param).map(|(_, value)| short(value))
}

/// A value in few words: a size mix as 128k:80/4k:20, a method as the command line names it.
fn short(value: &toml::Value) -> String {
    match value {
        toml::Value::Array(items) => items.iter().map(short).collect::<Vec<_>>().join("/"),
        toml::Value::Table(table) if table.contains_key("method") => method(table),
        toml::Value::Table(table) => {
            let text = |key: &str| table.get(key).map(short);
            match (text("bytes"), text("percent")) {
                (Some(bytes), Some(percent)) => format!("{bytes}:{percent}"),
                (Some(bytes), None) => bytes,
                _ => table.to_string().replace('\n', " "),
            }
        }
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A pacing method with all that sets it apart: `buffers:64`, `auto`, and parameters that the command line cannot name
/// behind it.
fn method(table: &toml::Table) -> String {
    let name = table.get("method").map(short).unwrap_or_default();
    let main = match name.as_str() {
        "buffers" => Some("count"),
        "rate" => Some("period_us"),
        "auto" => Some("budget_bytes"),
        _ => None,
    };
    let main = main.filter(|key| table.contains_key(*key));
    let mut out = main.map_or(name.clone(), |key| format!("{name}:{}", short(&table[key])));
    // Of the others, those that differ from what the method has by itself.
    let usual = pace::Config::parse(&out, 1024).ok().and_then(|config| toml::Table::try_from(config).ok());
    for (key, value) in table.iter().filter(|(key, _)| *key != "method" && Some(key.as_str()) != main) {
        if usual.as_ref().and_then(|usual| usual.get(key)) != Some(value) {
            let _ = write!(out, " {key}={}", short(value));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_one_name_are_told_apart() {
        let shown = |text: &str| {
            let config = pace::Config::parse(text, 1024).unwrap();
            short(&toml::Value::try_from(config).unwrap())
        };
        for text in ["auto", "none", "buffers:64", "buffers:256", "rate:5.7"] {
            assert_eq!(shown(text), text);
        }
        assert_ne!(shown("auto:6m"), shown("auto:8m"));
        assert_ne!(shown("iops:100"), shown("bw:100"), "{}", shown("bw:100"));
        let table: toml::Value =
            toml::from_str::<toml::Table>("method = 'buffers'\ncount = 8\ncores = 4").unwrap().into();
        assert_eq!(short(&table), "buffers:8 cores=4");
    }
}
