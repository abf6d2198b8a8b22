//! A round in slices: its place in words, and the points that its run makes.
#![forbid(unsafe_code)]

use measure::figures;
use measure::schema::{JobResult, Point};
use measure::slices::Slice;

/// The deepest of some slices.
pub(super) fn deepest(slices: &[Slice]) -> f64 {
    slices.iter().map(|slice| slice.x).fold(1.0, f64::max)
}

/// The place of a measurement on the axis, in words.
pub(super) fn place(axis: &str, x: f64, slices: &[Slice]) -> String {
    match slices.iter().map(|slice| slice.x).reduce(f64::min) {
        Some(least) => format!("{axis} {} to {}", figures::axis_value(axis, least), figures::axis_value(axis, x)),
        None => format!("{axis} {}", figures::axis_value(axis, x)),
    }
}

/// The points that a run in slices makes, one for each depth, ascending. None where the run had done its work before
/// its last slice.
pub(super) fn points(slices: &[Slice], job: JobResult) -> Option<Vec<Point>> {
    if job.slices.len() < slices.len() {
        return None;
    }
    let mut depths: Vec<(Slice, Vec<JobResult>)> = Vec::new();
    for (slice, mut result) in slices.iter().zip(job.slices) {
        // The options are those of the run, which is as deep as its deepest slice.
        let written = result.options.iter_mut().filter(|(name, _)| name == "iodepth");
        written.for_each(|(_, value)| *value = slice.x.to_string());
        match depths.iter_mut().find(|(of, _)| of.x == slice.x) {
            Some((_, results)) => results.push(result),
            None => depths.push((*slice, vec![result])),
        }
    }
    depths.sort_by(|a, b| a.0.x.total_cmp(&b.0.x));
    let point = |(slice, results): (Slice, Vec<JobResult>)| Point::of_slices(slice.x, results, slice.nominal_ns);
    Some(depths.into_iter().filter_map(point).collect())
}
