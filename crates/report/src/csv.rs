//! The rows of a result as comma-separated values (RFC 4180, lines end in a bare newline): a header with units in its
//! names, then a line a row. A value that is not known is empty.

use measure::schema::{
    ComparisonResult, Curve, DirectionResult, Document, FilesResult, JobResult, Limit, LoadLine, RunResult, SweepResult,
};
use measure::verdict::Verdict;
use measure::{Direction, Histogram, effect};

use crate::text::{names, place, word};

/// The rows of a document.
pub fn render(document: &Document) -> String {
    match document {
        Document::Run(result) => run(result),
        Document::Sweep(result) => sweep(result),
        Document::Comparison(result) => comparison(result),
        Document::Files(result) => files(result),
    }
}

/// A header and rows as comma-separated values. Every row has as many cells as the header.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = writer
        .write_record(header)
        .and_then(|()| rows.into_iter().try_for_each(|row| writer.write_record(row)))
        .map_err(|error| error.to_string());
    written.expect("rows are as long as their header, and memory can be written to");
    String::from_utf8(writer.into_inner().expect("memory can be written to")).expect("cells are text")
}

fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

fn codes(verdicts: &[Verdict]) -> String {
    verdicts.iter().map(|verdict| verdict.code.as_str()).collect::<Vec<_>>().join(" ")
}

const LATENCIES: [&str; 5] = ["lat_ns_mean", "lat_ns_p50", "lat_ns_p99", "lat_ns_p999", "lat_ns_max"];

fn latencies(lat_ns: &Histogram) -> [String; 5] {
    if lat_ns.is_empty() {
        return Default::default();
    }
    let at = |q: f64| lat_ns.quantile(q).to_string();
    [number(lat_ns.mean()), at(0.5), at(0.99), at(0.999), lat_ns.max().to_string()]
}

fn per_second(amount: u64, runtime_ns: u64) -> String {
    if runtime_ns == 0 { String::new() } else { number(amount as f64 * 1e9 / runtime_ns as f64) }
}

/// A row for each job and direction.
fn run(run: &RunResult) -> String {
    let header = [
        &["job", "group", "clones", "direction", "ops", "bytes", "runtime_ns", "iops", "bytes_per_s"][..],
        &LATENCIES,
        &["failed_ops", "error", "verdicts"],
    ]
    .concat();
    let row = |name: &str, job: &JobResult, direction: Direction, result: &DirectionResult| {
        let mut cells = vec![name.to_string(), job.group.to_string(), job.clones.to_string(), direction.name().into()];
        cells.extend([result.ops, result.bytes, result.runtime_ns].map(|value| value.to_string()));
        cells.extend([result.ops, result.bytes].map(|amount| per_second(amount, result.runtime_ns)));
        cells.extend(latencies(&result.lat_ns));
        cells.push(result.failed_ops.to_string());
        cells.push(job.error.as_ref().map(|error| error.message.clone()).unwrap_or_default());
        cells.push(codes(&job.verdicts));
        cells
    };
    let names = names(&run.jobs);
    let rows = names.iter().zip(&run.jobs).flat_map(|(name, job)| {
        let worked = job.directions.iter().filter(|(_, result)| result.ops + result.failed_ops > 0);
        let mut rows: Vec<_> = worked.map(|(direction, result)| row(name, job, direction, result)).collect();
        if rows.is_empty() {
            rows.push(row(name, job, Direction::Read, &DirectionResult::default()));
        }
        rows
    });
    table(&header, rows)
}

/// A row for each depth of each curve, and the curve's plateau and load line beside it.
fn sweep(sweep: &SweepResult) -> String {
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let first = if sweep.across.is_empty() { "engine" } else { &sweep.across };
    let has_limits = sweep.curves.iter().any(|curve| curve.saturation.is_some() || curve.kept.is_some());
    let header = [
        &[first, axis, "iops", "iops_low", "iops_high", "bytes_per_s", "read_iops", "write_iops"][..],
        &LATENCIES,
        &["read_lat_ns_p99", "write_lat_ns_p99", "place", "plateau_iops", "load_line"],
        if has_limits {
            &["keeps_up_low", "keeps_up_high", "objective_at", "objective_low", "objective_high"]
        } else {
            &[]
        },
        &["verdicts"],
    ]
    .concat();
    let row = |curve: &Curve, point: &measure::schema::Point| {
        let ways = &point.job.directions;
        let mut cells = vec![curve.across.map_or_else(|| curve.label.clone(), number), number(point.x)];
        cells.extend([point.iops.mean, point.iops.low, point.iops.high, point.bytes_per_second.mean].map(number));
        cells.extend([&ways.read, &ways.write].map(|result| per_second(result.ops, result.runtime_ns)));
        cells.extend(latencies(&point.lat_ns()));
        cells.extend([&ways.read, &ways.write].map(|result| latencies(result.waited_ns())[2].clone()));
        cells.push(place(curve, point).to_string());
        cells.push(
            curve.line.as_ref().and_then(LoadLine::plateau).map(|plateau| number(plateau.mean)).unwrap_or_default(),
        );
        cells.push(curve.at_load_line().map(|point| number(point.x)).unwrap_or_default());
        if has_limits {
            let ends = |limit: &Option<Limit>| limit.as_ref().map(|limit| [limit.low, limit.high, limit.at]);
            let [low, high, _] = ends(&curve.saturation).unwrap_or_default();
            let [kept_low, kept_high, at] = ends(&curve.kept).unwrap_or_default();
            cells.extend([low, high, at, kept_low, kept_high].map(|end| end.map(number).unwrap_or_default()));
        }
        cells.push(codes(&point.job.verdicts));
        cells
    };
    table(&header, sweep.curves.iter().flat_map(|curve| curve.points.iter().map(move |point| row(curve, point))))
}

/// A row for each figure.
fn comparison(comparison: &ComparisonResult) -> String {
    let header = ["figure", "a", "b", "change", "change_low", "change_high", "b_is"];
    let rows = comparison.effects.iter().map(|effect| {
        let change = [effect.change.mean, effect.change.low, effect.change.high];
        let mut cells = vec![effect.figure.clone(), number(effect.a.mean), number(effect.b.mean)];
        cells.extend(change.map(|value| if effect.cannot_tell.is_some() { String::new() } else { number(value) }));
        cells.push(word(effect).to_string());
        cells
    });
    // The figure that decides has a row, also where the runs have no value of it in common.
    let asked = &comparison.figure;
    let is_there = comparison.effects.is_empty() || !effect::of_figure(&comparison.effects, asked).is_empty();
    let without_values = (!is_there).then(|| {
        let cells = [asked, "", "", "", "", "", "cannot tell"];
        cells.map(String::from).to_vec()
    });
    table(&header, rows.chain(without_values))
}

/// A row for each phase.
fn files(files: &FilesResult) -> String {
    let header = ["phase", "files", "failed", "bytes", "runtime_ns", "files_per_s", "iops", "bytes_per_s", "verdicts"];
    let rows = files.phases.iter().map(|phase| {
        let (total, ns) = (&phase.total, phase.runtime_ns);
        let mut cells = vec![phase.name.clone()];
        cells.extend([total.files, total.failed, total.bytes, ns].map(|value| value.to_string()));
        cells.extend([total.files_per_second(ns), total.iops(ns), total.bytes_per_second(ns)].map(number));
        cells.push(codes(&phase.verdicts));
        cells
    });
    table(&header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_hold_commas_and_quotes_are_quoted() {
        let text = table(&["a", "b"], [vec!["x, y".into(), "say \"no\"".into()]]);
        assert_eq!(text, "a,b\n\"x, y\",\"say \"\"no\"\"\"\n");
    }

    #[test]
    fn every_kind_of_result_has_a_header() {
        for (document, first) in [
            (Document::Run(RunResult::default()), "job,"),
            (Document::Sweep(SweepResult::default()), "engine,iodepth,iops,"),
            (Document::Comparison(ComparisonResult::default()), "figure,"),
            (Document::Files(FilesResult::default()), "phase,"),
        ] {
            let text = render(&document);
            assert!(text.starts_with(first) && text.lines().count() == 1, "{text}");
        }
    }

    #[test]
    fn the_figure_that_decides_has_a_row_without_values_too() {
        let effects = vec![measure::schema::Effect { figure: "iops".into(), ..Default::default() }];
        let comparison = ComparisonResult { figure: "lat_p99".into(), effects, ..ComparisonResult::default() };
        let text = render(&Document::Comparison(comparison));
        assert_eq!((text.lines().count(), text.lines().last()), (3, Some("lat_p99,,,,,,cannot tell")), "{text}");
    }

    #[test]
    fn a_job_without_ops_keeps_its_row() {
        let run =
            RunResult { jobs: vec![JobResult { name: "j".into(), ..JobResult::default() }], ..RunResult::default() };
        assert_eq!(render(&Document::Run(run)).lines().nth(1).map(|row| row.split(',').next()), Some(Some("j")));
    }
}
