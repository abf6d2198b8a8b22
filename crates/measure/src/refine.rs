//! Sweep control: which depth to measure next, and for how long. Pure: time is passed in.

use crate::schema::Point;

/// How far a sweep goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// A point is good enough when its interval's half width is within this fraction of its mean.
    pub bound: f64,
    /// Nanoseconds that a depth is measured at first.
    pub first_ns: u64,
    /// Nanoseconds after which a point is left as it is.
    pub point_cap_ns: u64,
    /// Nanoseconds for the whole curve, overhead included; no new step begins after it.
    pub curve_cap_ns: u64,
    /// Around the knee and the overload, neighbouring depths are at most this factor apart.
    pub finest: f64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Measure this depth (or rate) for so long; add the result to the point of that depth if there is one.
    Measure {
        /// The depth or rate.
        x: f64,
        /// Measured nanoseconds, ramp excluded.
        runtime_ns: u64,
        /// Why, for the progress line.
        why: Why,
    },
    /// Stop.
    Done(Done),
}

/// Why a point is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was asked for.
    Asked,
    /// It lies between two depths around the load line.
    LoadLine,
    /// It lies between two depths around the overload point.
    Overload,
    /// Its interval is wider than the bound.
    Uncertain,
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Every point is within the bound, and the knee is as fine as asked.
    Settled,
    /// The time is up.
    OutOfTime,
}

/// The next step, given the depths that were asked for, the points so far, and the nanoseconds spent on this curve.
pub fn next(asked: &[f64], points: &[Point], spent_ns: u64, limits: &Limits) -> Step {
    let missing = asked.iter().find(|&&x| !points.iter().any(|point| point.x == x));
    match missing {
        Some(&x) if spent_ns < limits.curve_cap_ns => {
            Step::Measure { x, runtime_ns: limits.first_ns, why: Why::Asked }
        }
        Some(_) => Step::Done(Done::OutOfTime),
        None => Step::Done(Done::Settled),
    }
}
