//! The history as text and as JSON.

use measure::change::ChangePoint;
use measure::figures::{change, percent, plain, precise_count};
use measure::schema::Estimate;
use report::text::{Style, Table};
use serde_json::{Value, json};

use super::series::{Entry, Figure, Series};

/// A part for each series: a line for each result, and a sentence for each change.
pub fn text(history: &[Series], style: Style) -> String {
    history.iter().map(|series| part(series, style)).collect::<Vec<_>>().join("\n")
}

fn part(series: &Series, style: Style) -> String {
    let mut table = Table::of(&["result", "started", "plateau IOPS", "95 % interval", "load line", "interval"]);
    for entry in &series.entries {
        let (plateau, load_line) = (entry.figure(Figure::Plateau), entry.figure(Figure::LoadLine));
        let mut cells = vec![entry.file.clone(), report::utc(entry.started_unix_ms / 1000)];
        cells.extend(cells_of(plateau, precise_count));
        cells.extend(cells_of(load_line, plain));
        table.row(cells);
    }
    let mut out = format!("{}\n{}", series.name, table.cut(style, 2).render(style, 2));
    for sentence in remarks(series).iter().chain(&sentences(series)) {
        out += &format!("  {sentence}\n");
    }
    out
}

/// A sentence for each result without a plateau.
fn nameless(series: &Series) -> Vec<String> {
    let without = series.entries.iter().filter(|entry| entry.figure(Figure::Plateau).is_none());
    without.map(|entry| format!("{} names no plateau: {}", entry.file, entry.reason())).collect()
}

/// The sentences on single results: parts of the system that changed before them, results that were disturbed, and
/// those without a plateau.
pub fn remarks(series: &Series) -> Vec<String> {
    let renewed = series.renewals().into_iter().map(|(at, part, before, now)| {
        format!("{part} changed at {}: {before} -> {now}", report::utc(series.entries[at].started_unix_ms / 1000))
    });
    let disturbed = series.entries.iter().filter_map(|entry| match entry.disturbances.listed() {
        none if none.is_empty() => None,
        events => Some(format!("{} was disturbed: {events}", entry.file)),
    });
    renewed.chain(disturbed).chain(nameless(series)).collect()
}

/// A value and its interval in two cells.
pub fn cells_of(estimate: Option<Estimate>, write: fn(f64) -> String) -> [String; 2] {
    estimate.map_or(["-".into(), "-".into()], |estimate| {
        [write(estimate.mean), format!("{} to {}", write(estimate.low), write(estimate.high))]
    })
}

/// A sentence for each change, and one if there are none.
pub fn sentences(series: &Series) -> Vec<String> {
    let mut out = Vec::new();
    for (figure, name, write) in
        [(Figure::Plateau, "plateau", precise_count as fn(f64) -> String), (Figure::LoadLine, "load line", plain)]
    {
        out.extend(series.changes(figure).iter().map(|point| sentence(name, &series.entries[point.at], point, write)));
    }
    if out.is_empty() {
        let results = series.figure(Figure::Plateau).len();
        let fewest = series.fewest;
        out.push(match (results < fewest, series.visible) {
            (true, _) => {
                format!("{results} results with a plateau: a change can be told from {fewest} on")
            }
            (false, Some(part)) => format!(
                "no significant change over {results} results; they would show a loss of {} (in four of five cases)",
                percent(part)
            ),
            (false, None) => {
                format!("no significant change over {results} results, which scatter too much to show a loss by half")
            }
        });
    }
    out
}

fn sentence(name: &str, entry: &Entry, point: &ChangePoint, write: fn(f64) -> String) -> String {
    let size = point.change.map_or(String::new(), |size| {
        format!(" ({}, 95 % interval {} to {})", change(size.mean), change(size.low), change(size.high))
    });
    format!(
        "{name} changed at {}: {} -> {}{size}, p {}",
        report::utc(entry.started_unix_ms / 1000),
        write(point.before),
        write(point.after),
        // The permutations give 0.0002 at least: a change is never certain.
        if point.p < 0.001 { "< 0.001".into() } else { format!("= {}", plain(point.p)) }
    )
}

/// All series as a JSON array.
pub fn json(history: &[Series]) -> Value {
    let entry = |entry: &Entry| {
        json!({
            "started_unix_ms": entry.started_unix_ms, "result": entry.file, "version": entry.version,
            "kernel": entry.kernel, "firmware": entry.firmware,
            "plateau_iops": entry.figure(Figure::Plateau), "load_line": entry.figure(Figure::LoadLine),
            "disturbances": entry.disturbances,
        })
    };
    let changes = |series: &Series, figure: Figure| -> Value {
        let one = |point: &ChangePoint| {
            json!({
                "at_unix_ms": series.entries[point.at].started_unix_ms, "index": point.at, "p": point.p,
                "before": point.before, "after": point.after, "change": point.change,
            })
        };
        series.changes(figure).iter().map(one).collect()
    };
    let one = |series: &Series| {
        json!({
            "name": series.name, "visible_loss": series.visible, "results": series.entries.iter().map(entry).collect::<Value>(),
            "changes": { "plateau_iops": changes(series, Figure::Plateau), "load_line": changes(series, Figure::LoadLine) },
        })
    };
    history.iter().map(one).collect()
}
