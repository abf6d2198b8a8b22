//! Results as one self-contained HTML page.
//!
//! ```text
//! verdicts of everything ─► all results side by side (if many) ─► each result: key figures, charts, tables
//! ```
//! No script, no font, no image, nothing from the network; light and dark follow the reader's system.

mod comparison;
mod files;
mod frame;
mod hosts;
mod run;
mod sweep;
mod table;

use std::fmt::Write;

use measure::Histogram;
use measure::schema::{Disturbances, Document, Ended, Machine, Provenance, Storage};
use measure::verdict::{Gathered, Verdict};

use crate::believed::Checked;
use crate::svg::{Axis, Chart, Format, Picture, Scale, Series, Shape, escape};
use crate::time;
pub use frame::{Frame, cards, folded};
use frame::{drawn, grid, unbroken};
pub use table::Table;

/// A document and what to call it: the file's name.
#[derive(Clone, Debug)]
pub struct NamedDocument {
    /// The name that pages show where they compare several documents.
    pub name: String,
    /// The results that the page shows.
    pub document: Document,
}

/// One page of one or many results: no script, nothing from the network.
pub fn render(documents: &[NamedDocument]) -> String {
    let mut body = String::new();
    body.push_str("<h2>Can these numbers be believed?</h2>");
    body.push_str(&verdicts(documents));
    if documents.len() > 1 {
        body.push_str(&sweep::side_by_side(documents));
        body.push_str(&run::side_by_side(documents));
        body.push_str(&files::side_by_side(documents));
    }
    for named in documents {
        if documents.len() > 1 {
            let about = about(&named.document);
            let _ = write!(body, "<h2>{}</h2><p class=\"about\">{about}</p>", escape(&named.name));
        }
        match &named.document {
            Document::Run(run) => body.push_str(&run::section(run)),
            Document::Sweep(sweep) => {
                body.push_str(&sweep::section(sweep));
                let said = crate::parts::said(sweep).map(|said| format!("<p class=\"about\">{}</p>", escape(&said)));
                body.push_str(&said.unwrap_or_default());
            }
            Document::Comparison(comparison) => body.push_str(&comparison::section(comparison, documents.len() > 1)),
            Document::Files(files) => body.push_str(&files::section(files)),
        }
        body.push_str(match ended(&named.document) {
            Ended::Complete => "",
            Ended::Interrupted => "<p class=\"about\">Interrupted: the figures are of the part that ran.</p>",
            Ended::Failed => "<p class=\"about\">Failed: at least one job ended with an error.</p>",
        });
    }
    page(documents, &body)
}

/// The charts of one result, or of several side by side, as pictures; the one that says most comes first.
pub fn pictures(documents: &[NamedDocument]) -> Vec<Picture> {
    match documents {
        [one] => match &one.document {
            Document::Run(run) => run::pictures(run),
            Document::Sweep(sweep) => sweep::pictures(sweep),
            Document::Comparison(comparison) => comparison::pictures(comparison),
            Document::Files(files) => files::pictures(files),
        },
        many => {
            let charts = sweep::charts_together(many).into_iter().chain(run::charts_together(many));
            charts.map(|chart| Picture::from(&chart)).collect()
        }
    }
}

fn page(documents: &[NamedDocument], body: &str) -> String {
    let (headline, about) = match documents {
        [one] => {
            let sentence = match &one.document {
                Document::Sweep(sweep) => sweep.advice.clone(),
                Document::Comparison(comparison) => comparison.sentence.clone(),
                Document::Run(run) => run::headline(run),
                Document::Files(files) => files::headline(files),
            };
            (sentence, about(&one.document))
        }
        many => (format!("{} results side by side", many.len()), String::new()),
    };
    let title = match documents {
        [one] => one.name.clone(),
        _ => headline.clone(),
    };
    let kind = match documents {
        [one] => match one.document {
            Document::Run(_) => "run",
            Document::Sweep(_) => "sweep",
            Document::Comparison(_) => "comparison",
            Document::Files(_) => "files",
        },
        _ => "report",
    };
    let about = &about;
    Frame { title: &title, kind, headline: &headline, about }.around(body)
}

fn provenance(document: &Document) -> &Provenance {
    match document {
        Document::Run(run) => &run.provenance,
        Document::Sweep(sweep) => &sweep.provenance,
        Document::Comparison(comparison) => &comparison.provenance,
        Document::Files(files) => &files.provenance,
    }
}

/// The storage of a document; None for a comparison, whose runs may have several.
fn storage(document: &Document) -> Option<&Storage> {
    match document {
        Document::Run(run) => Some(&run.storage),
        Document::Sweep(sweep) => Some(&sweep.storage),
        Document::Comparison(_) => None,
        Document::Files(files) => Some(&files.storage),
    }
}

fn ended(document: &Document) -> Ended {
    match document {
        Document::Run(run) => run.ended,
        Document::Sweep(sweep) => sweep.ended,
        Document::Comparison(comparison) => comparison.ended,
        Document::Files(files) => files.ended,
    }
}

/// Command, machine, storage, time and version, as far as known; escaped.
fn about(document: &Document) -> String {
    let provenance = provenance(document);
    let mut parts = Vec::new();
    if !provenance.command.is_empty() {
        parts.push(format!("<code>{}</code>", unbroken(&provenance.command.join(" "))));
    }
    let Machine { hostname, kernel, cpu, cpus, memory_bytes, clock } = &provenance.machine;
    let mut add = |text: String| {
        if !text.is_empty() {
            parts.push(escape(&text));
        }
    };
    add(hostname.clone());
    add(kernel.clone());
    add(if *cpus > 0 { format!("{cpus} x {cpu}") } else { cpu.clone() });
    add(if *memory_bytes > 0 { measure::figures::bytes(*memory_bytes as f64) } else { String::new() });
    add(storage(document).map(Storage::described).unwrap_or_default());
    add(if clock.is_empty() { String::new() } else { format!("clock {clock}") });
    add(if provenance.started_unix_ms > 0 { time::utc(provenance.started_unix_ms / 1000) } else { String::new() });
    add(if provenance.version.is_empty() { String::new() } else { format!("version {}", provenance.version) });
    parts.join(" &middot; ")
}

/// All verdicts of all documents, worst first; the same finding on several points or jobs once.
fn placed(documents: &[NamedDocument]) -> Vec<Gathered> {
    let mut all = Vec::new();
    for named in documents {
        let prefix = if documents.len() > 1 { format!("{}: ", named.name) } else { String::new() };
        let mut add = |verdict: &Verdict, place: &str| {
            // A verdict on one curve or side begins with its name: that is its place.
            let labelled = labels(&named.document).into_iter().find_map(|label| {
                let rest = verdict.what.strip_prefix(&label)?.strip_prefix(": ")?;
                Some((label, rest.to_string()))
            });
            let (place, what) = labelled.unwrap_or_else(|| (place.to_string(), verdict.what.clone()));
            measure::verdict::gather(&mut all, verdict, &what, &format!("{prefix}{place}"));
        };
        match &named.document {
            Document::Run(run) => {
                run.verdicts.iter().for_each(|verdict| add(verdict, "the run"));
                for (name, job) in crate::text::names(&run.jobs).iter().zip(&run.jobs) {
                    job.verdicts.iter().for_each(|verdict| add(verdict, name));
                }
            }
            Document::Sweep(sweep) => {
                sweep.verdicts.iter().for_each(|verdict| add(verdict, "the sweep"));
                for curve in &sweep.curves {
                    for point in &curve.points {
                        // Every point of a sweep is short on purpose; its interval says how sure it is.
                        let told = point.job.verdicts.iter().filter(|verdict| verdict.code != "interval-too-short");
                        let place = format!("{} {}", curve.label, measure::figures::plain(point.x));
                        told.for_each(|verdict| add(verdict, place.trim()));
                    }
                }
            }
            Document::Files(files) => {
                files.verdicts.iter().for_each(|verdict| add(verdict, "the run"));
                for phase in &files.phases {
                    phase.verdicts.iter().for_each(|verdict| add(verdict, &phase.name));
                }
            }
            Document::Comparison(comparison) => {
                comparison.verdicts.iter().for_each(|verdict| add(verdict, "the comparison"));
            }
        }
    }
    all.sort_by_key(|one: &Gathered| std::cmp::Reverse(one.verdict.severity));
    all
}

/// The names with which verdicts of a document begin: of curves, or of sides.
fn labels(document: &Document) -> Vec<String> {
    match document {
        Document::Sweep(sweep) => sweep.curves.iter().map(|curve| curve.label.clone()).collect(),
        Document::Comparison(_) => vec!["A".into(), "B".into()],
        Document::Run(_) | Document::Files(_) => Vec::new(),
    }
}

/// The answer to the question whether the numbers can be believed: each verdict, then every statement that was tried.
/// Green stands for "all was checked, and nothing was found" and for nothing else.
fn verdicts(documents: &[NamedDocument]) -> String {
    let all = placed(documents);
    let checked = Checked::of_documents(documents.iter().map(|named| &named.document));
    if all.is_empty() && checked.not_checkable.is_empty() && checked.passed.is_empty() {
        return "<div class=\"verdict unchecked\"><b>No verdict was given.</b> The result does not record which \
                statements were checked.</div>"
            .into();
    }
    let mut out = String::new();
    let complete = documents.iter().all(|named| ended(&named.document) == Ended::Complete);
    if all.is_empty() && !complete {
        out.push_str("<div class=\"verdict unchecked\"><b>Nothing was found in the part that ran.</b></div>");
    } else if all.is_empty() {
        let said = match checked.not_checkable.is_empty() {
            true => {
                "<div class=\"verdict none\"><b>Nothing speaks against them.</b> Every statement was checked.</div>"
            }
            false => {
                "<div class=\"verdict unchecked\"><b>Nothing was found, but not everything could be checked.</b></div>"
            }
        };
        out.push_str(said);
    }
    for gathered in &all {
        let verdict = &gathered.verdict;
        let _ = write!(
            out,
            "<div class=\"verdict {severity}\"><span class=\"severity\">{severity}</span><span class=\"what\"><span class=\"code\">{}</span> \
             {}</span><span class=\"rest\">{} {}</span></div>",
            escape(&verdict.code),
            findings(gathered),
            unbroken(&verdict.means),
            unbroken(&verdict.advice),
            severity = verdict.severity.name(),
        );
    }
    out + &statements(&all, &checked)
}

/// Each finding with its places.
fn findings(gathered: &Gathered) -> String {
    const SHOWN: usize = 6;
    let at = |places: &[&str]| {
        let more = places.len().saturating_sub(SHOWN);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        escape(&(places[..places.len() - more].join(", ") + &rest))
    };
    let (told, others) = gathered.told();
    let one = |(what, places): &(String, Vec<String>)| {
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        format!("<b>{}</b> <span class=\"of\">({})</span>", unbroken(what), at(&places))
    };
    let mut all: Vec<String> = told.iter().map(one).collect();
    if !others.is_empty() {
        all.push(format!("<span class=\"of\">other figures ({})</span>", at(&others)));
    }
    all.join("; ")
}

/// Every statement that was tried: those that found something, those that could not be checked with the reason, and
/// those that hold.
fn statements(all: &[Gathered], checked: &Checked) -> String {
    let chip =
        |class: &str, code: &str| format!("<li class=\"{class}\"><span class=\"code\">{}</span></li>", escape(code));
    let codes = |class: &str, codes: &[&str]| codes.iter().map(|code| chip(class, code)).collect::<String>();
    // Worst first, so that the severity of a code is that of its first verdict.
    let mut found: Vec<&Verdict> = Vec::new();
    for Gathered { verdict, .. } in all {
        if found.iter().all(|known| known.code != verdict.code) {
            found.push(verdict);
        }
    }
    // Codes that share a reason stand together.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (code, reason) in &checked.not_checkable {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, codes)) => codes.push(code),
            None => reasons.push((reason, vec![code])),
        }
    }
    let unchecked: String = reasons
        .iter()
        .map(|(reason, of)| format!("<ul>{}<li class=\"reason\">{}</li></ul>", codes("unchecked", of), escape(reason)))
        .collect();
    let passed: Vec<&str> = checked.passed.iter().map(String::as_str).collect();
    let rows = [
        (
            "Found",
            found.len(),
            format!(
                "<ul>{}</ul>",
                found.iter().map(|verdict| chip(verdict.severity.name(), &verdict.code)).collect::<String>()
            ),
        ),
        ("Not checkable", checked.not_checkable.len(), unchecked),
        ("Checked, nothing found", passed.len(), format!("<ul>{}</ul>", codes("passed", &passed))),
    ];
    let row = |(name, count, codes): &(&str, usize, String)| format!("<dt>{name} ({count})</dt><dd>{codes}</dd>");
    let rows: String = rows.iter().filter(|(_, count, _)| *count > 0).map(row).collect();
    format!("<dl class=\"checks\">{rows}</dl>")
}

/// Text in which a number and its unit stay on one line.
fn tied(text: &str) -> String {
    let is_unit = |word: &str| {
        let word = word.trim_end_matches([',', ';', '.']);
        ["%", "ns", "us", "ms", "s", "B", "IOPS"].contains(&word) || word.ends_with("iB") || word.ends_with("B/s")
    };
    let mut out = String::new();
    for word in text.split(' ') {
        let tie = out.ends_with(|last: char| last.is_ascii_digit()) && is_unit(word);
        out.push_str(if out.is_empty() {
            ""
        } else if tie {
            "\u{a0}"
        } else {
            " "
        });
        out.push_str(word);
    }
    out
}

/// A line with the events that distort the figures; empty if nothing happened.
fn disturbed(events: &Disturbances) -> String {
    match events.listed() {
        none if none.is_empty() => none,
        events => format!("<p class=\"about\">Disturbed: {}</p>", escape(&events)),
    }
}

/// A key figure.
fn tile(name: &str, value: &str, more: &str, main: bool) -> String {
    let class = if main { "tile main" } else { "tile" };
    // A value in words takes smaller letters than a figure.
    let size = if value.chars().count() > 14 { "value words" } else { "value" };
    format!(
        "<div class=\"{class}\"><div class=\"name\">{}</div><div class=\"{size}\">{}</div><div class=\"more\">{}</div></div>",
        escape(name),
        escape(&tied(value)),
        escape(&tied(more))
    )
}

/// The distribution of latencies: the share of samples in each twentieth of a decade.
fn distribution_chart(title: &str, distributions: &[(String, Histogram)]) -> Option<Chart> {
    const A_DECADE: f64 = 20.0;
    let mut chart = Chart::new(title)
        .x(Axis::log10("latency").format(Format::Nanoseconds))
        .y(Axis::linear("share of ops").format(Format::Percent));
    let mut any = false;
    for (name, histogram) in
        distributions.iter().filter(|(_, histogram)| histogram.count() >= 10 && histogram.has_shape())
    {
        let mut bins = std::collections::BTreeMap::<i64, u64>::new();
        for (lower, upper, n) in histogram.buckets() {
            let middle = (lower as f64 + upper as f64) / 2.0;
            *bins.entry((middle.max(1.0).log10() * A_DECADE).floor() as i64).or_default() += n;
        }
        let (Some(first), Some(last)) = (bins.keys().next().copied(), bins.keys().next_back().copied()) else {
            continue;
        };
        let at = |bin: i64| 10f64.powf(bin as f64 / A_DECADE);
        // Empty bins are zero, not missing; one on either side closes the outline.
        let share = |bin: i64| 100.0 * bins.get(&bin).copied().unwrap_or(0) as f64 / histogram.count() as f64;
        let points = (first - 1..=last + 1).map(|bin| (at(bin) * 10f64.powf(0.5 / A_DECADE), share(bin))).collect();
        chart = chart.series(Series::new(name, Shape::Area, points));
        any = true;
    }
    any.then_some(chart)
}

/// True if ten samples at least lie beyond a quantile. Fewer tell where a few requests happened to be, not where the
/// distribution is.
fn reaches(histogram: &Histogram, q: f64) -> bool {
    const BEYOND: f64 = 10.0;
    // 1 - 0.99 is less than 0.01 by a rounding error.
    (1.0 - q) * histogram.count() as f64 >= BEYOND - 1e-6
}

/// Latency over percentiles, one line a distribution, as far as the samples tell them.
fn percentile_chart(title: &str, distributions: Vec<(String, Histogram)>) -> Option<Chart> {
    let mut chart = Chart::new(title)
        .x(Axis::new("percentile", Scale::Nines).format(Format::Percent))
        .y(Axis::log10("latency").format(Format::Nanoseconds));
    let mut any = false;
    for (name, histogram) in distributions {
        if !reaches(&histogram, 0.5) || !histogram.has_shape() {
            continue;
        }
        any = true;
        const PERCENTILES: [f64; 17] = [
            10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.975, 99.99, 99.995, 99.999,
            99.9999,
        ];
        let shown = PERCENTILES.into_iter().filter(|p| reaches(&histogram, p / 100.0));
        let points = shown.map(|p| (p, histogram.quantile(p / 100.0) as f64)).collect();
        // The total lies on the completion where submission takes no time: dashes let that show through.
        let dashed = name.ends_with("total (lat)");
        let series = Series::line(name, points);
        chart = chart.series(if dashed { series.dashed() } else { series });
    }
    any.then_some(chart)
}
