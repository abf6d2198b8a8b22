//! The history as one HTML page: for each series a chart of plateau and load line, the changes, and the table.

use measure::figures::{plain, precise_count};
use report::html::{Frame, Table, cards};
use report::svg::{Axis, Chart, Format, Series as Line, escape};

use super::series::{Figure, Series};
use super::table::{cells_of, remarks, sentences};

/// The page: no script, nothing from the network.
pub fn page(history: &[Series]) -> String {
    let changed = history
        .iter()
        .filter(|series| [Figure::Plateau, Figure::LoadLine].iter().any(|figure| !series.changes(*figure).is_empty()));
    // Where nothing can be told, nothing is said to be unchanged.
    let told = history.iter().filter(|series| series.figure(Figure::Plateau).len() >= series.fewest).count();
    let headline = match (changed.count(), history.len()) {
        (0, _) if told == 0 => "Too few results to tell a change".to_string(),
        (0, all) if told < all => {
            format!("No significant change in {told} of {all} targets, too few results of others")
        }
        (0, _) => "No significant change".to_string(),
        (1, 1) => "The results changed".to_string(),
        (changed, all) => format!("{changed} of {all} targets changed"),
    };
    let body: String = history.iter().map(part).collect();
    let about = "Changes are significant at 5 % over the whole page: ranks on both sides (Pettitt, 1979), permutations, \
                 Bonferroni.";
    Frame { title: "history", kind: "history", headline: &headline, about }.around(&body)
}

fn part(series: &Series) -> String {
    let said: String = sentences(series)
        .iter()
        .chain(&remarks(series))
        .map(|text| format!("<p class=\"about\">{}</p>", escape(text)))
        .collect();
    let iops = Axis::linear("IOPS").format(Format::Count);
    let charts = [
        (Figure::Plateau, chart(series, Figure::Plateau, "Plateau", iops)),
        (Figure::LoadLine, chart(series, Figure::LoadLine, "Load line", Axis::linear("iodepth"))),
    ];
    let charts = charts.into_iter().filter(|(figure, _)| !series.figure(*figure).is_empty()).map(|(_, chart)| chart);
    let mut table =
        Table::new("Results", &["", "started", "plateau", "95 % interval", "load line", "interval", "result"]);
    for (index, entry) in series.entries.iter().enumerate() {
        let mut cells = vec![(index + 1).to_string(), report::utc(entry.started_unix_ms / 1000)];
        cells.extend(cells_of(entry.figure(Figure::Plateau), precise_count));
        cells.extend(cells_of(entry.figure(Figure::LoadLine), plain));
        cells.push(entry.file.clone());
        table.row("", &cells.into_iter().map(|cell| ("", cell)).collect::<Vec<_>>());
    }
    format!("<h2>{}</h2>{said}{}{}", escape(&series.name), cards(charts), table.end())
}

/// A figure over the results, numbered by time, with its intervals and its changes.
fn chart(series: &Series, figure: Figure, title: &str, y: Axis) -> Chart {
    let values = series.figure(figure);
    let x = |index: usize| (index + 1) as f64;
    let line = Line::line(title, values.iter().map(|(index, one)| (x(*index), one.mean)).collect())
        .band(values.iter().map(|(index, one)| (x(*index), one.low, one.high)).collect());
    let last = x(series.entries.len().saturating_sub(1)).max(2.0);
    let axis = Axis::linear("result, by time").whole().range(1.0, last);
    let mut chart = Chart::new(title).x(axis).y(y).series(line);
    for change in series.changes(figure) {
        chart = chart.mark_x(x(change.at) - 0.5, None, "change", None);
    }
    chart
}
