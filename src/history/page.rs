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
    let header =
        ["", "started", "plateau", "95 % interval", "load line", "interval", "version", "kernel", "firmware", "result"];
    let mut table = Table::new("Results", &header);
    for (index, entry) in series.entries.iter().enumerate() {
        let mut cells = vec![(index + 1).to_string(), report::utc(entry.started_unix_ms / 1000)];
        cells.extend(cells_of(entry.figure(Figure::Plateau), precise_count));
        cells.extend(cells_of(entry.figure(Figure::LoadLine), plain));
        let known = |part: &str| if part.is_empty() { "-".to_string() } else { part.to_string() };
        cells.extend([&entry.version, &entry.kernel, &entry.firmware].map(|part| known(part)));
        cells.push(entry.file.clone());
        table.row("", &cells.into_iter().map(|cell| ("", cell)).collect::<Vec<_>>());
    }
    format!("<h2>{}</h2>{said}{}{}", escape(&series.name), cards(charts), table.end())
}

/// A figure over the date, with its intervals, its changes, and the parts of the system that changed.
fn chart(series: &Series, figure: Figure, title: &str, y: Axis) -> Chart {
    let values = series.figure(figure);
    let at = |index: usize| series.entries[index].started_unix_ms as f64 / 1000.0;
    let line = Line::line(title, values.iter().map(|(index, one)| (at(*index), one.mean)).collect())
        .band(values.iter().map(|(index, one)| (at(*index), one.low, one.high)).collect());
    let last = series.entries.len().saturating_sub(1);
    let mut chart = Chart::new(title).x(dates(at(0), at(last))).y(y).series(line);
    // A mark lies between the results before and after: when a change happened, nobody measured.
    let before = |index: usize| (at(index.saturating_sub(1)) + at(index)) / 2.0;
    for change in series.changes(figure) {
        chart = chart.mark_x(before(change.at), None, "change", Some(CHANGED));
    }
    let renewals = series.renewals();
    for same in renewals.chunk_by(|one, other| one.0 == other.0) {
        let parts: Vec<&str> = same.iter().map(|(_, part, _, _)| *part).collect();
        chart = chart.mark_x(before(same[0].0), None, parts.join(", "), None);
    }
    chart
}

/// The colour of a change of the figure, which is not that of the figure.
const CHANGED: usize = 1;

/// An axis of dates from the first result to the last, in seconds since the Unix epoch.
fn dates(first: f64, last: f64) -> Axis {
    const HOUR: f64 = 3600.0;
    const DAY: f64 = 24.0 * HOUR;
    const MOST: f64 = 6.0;
    let steps = [60.0, 300.0, 900.0, HOUR, 3.0 * HOUR, 6.0 * HOUR, 12.0 * HOUR]
        .into_iter()
        .chain([1.0, 2.0, 3.0, 4.0, 7.0, 14.0, 28.0, 56.0, 91.0, 182.0, 364.0].map(|days| days * DAY));
    // One result has a day of its own.
    let (first, last) = if last > first { (first, last) } else { (first - DAY / 2.0, first + DAY / 2.0) };
    let years = 364.0 * DAY * ((last - first) / (364.0 * DAY * MOST)).ceil();
    let step = steps.into_iter().find(|step| last - first <= step * MOST).unwrap_or(years);
    let begin = (first / step).ceil();
    let ticks = (0..=MOST as u32).map(|index| (begin + f64::from(index)) * step).take_while(|tick| *tick <= last);
    let format = if step < DAY { Format::Minute } else { Format::Day };
    Axis::linear("date (UTC)").not_from_zero().format(format).range(first, last).ticks(ticks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of the axis of these two moments.
    fn labels(first: f64, last: f64) -> Vec<String> {
        let svg = Chart::new("t").x(dates(first, last)).series(Line::line("a", vec![(first, 1.0), (last, 2.0)])).svg();
        let texts = svg.split("class=\"tick\"").skip(1).filter_map(|part| part.split('>').nth(1)?.split('<').next());
        texts.filter(|text| text.contains('-')).map(String::from).collect()
    }

    #[test]
    fn an_axis_of_dates_has_round_steps_of_hours_and_days() {
        const MORNING: f64 = 1_795_132_800.0 + 6.5 * 3600.0; // 2026-11-20, half past six
        assert_eq!(labels(MORNING, MORNING + 4.0 * 86_400.0), ["2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24"]);
        assert_eq!(
            labels(MORNING, MORNING + 4.0 * 3600.0),
            ["11-20 07:00", "11-20 08:00", "11-20 09:00", "11-20 10:00"]
        );
        assert_eq!(labels(MORNING, MORNING), ["11-20 00:00", "11-20 06:00", "11-20 12:00", "11-20 18:00"]);
        for days in [0.001, 0.3, 20.0, 400.0, 5000.0, 20_000.0] {
            assert!((1..=7).contains(&labels(MORNING, MORNING + days * 86_400.0).len()), "{days}");
        }
    }
}
