//! Sweep control: which depth to measure next, and for how long. Pure: time is passed in.
//!
//! ```text
//! every depth asked for, once ─► those that came out wild, again ─► depths between those around the load line and the
//! overload ─► whatever is uncertain
//! ```

use crate::load_line;
use crate::schema::Point;
use crate::stats::relative_half_width;

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
    /// Around the load line and the overload, neighbouring depths are at most this factor apart (or 1, whichever is
    /// farther).
    pub finest: f64,
}

impl Limits {
    /// Limits for a curve of so many depths that is to take no longer than `curve_cap_ns`: half of the time for the
    /// depths asked for, the rest for what they leave open.
    pub fn within(curve_cap_ns: u64, depths: usize) -> Limits {
        let first_ns = (curve_cap_ns / 2 / depths.max(1) as u64).clamp(50_000_000, 3_000_000_000);
        Limits { bound: 0.02, first_ns, point_cap_ns: first_ns.saturating_mul(8), curve_cap_ns, finest: 1.2 }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Measure this depth (or rate) for so long; add the result to the point of that depth if there is one
    /// ([`Point::extend`]).
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
    /// The load line is as fine as asked, and every point is within the bound or has had its time.
    Settled,
    /// The time of the curve is up.
    OutOfTime,
}

/// The next step, given the depths that were asked for, the points so far, and the nanoseconds spent on this curve.
///
/// Depths that were asked for come first, ascending as given. Depths are whole numbers where those asked for are.
pub fn next(asked: &[f64], points: &[Point], spent_ns: u64, limits: &Limits) -> Step {
    let left_ns = limits.curve_cap_ns.saturating_sub(spent_ns);
    let measure = |x: f64, runtime_ns: u64, why: Why| Step::Measure { x, runtime_ns: runtime_ns.min(left_ns), why };
    // A shorter run than a tenth of the first would say nothing.
    let out_of_time = left_ns < limits.first_ns / 10 || left_ns == 0;
    let missing: Vec<f64> = asked.iter().copied().filter(|&x| !points.iter().any(|point| point.x == x)).collect();
    if let Some(&x) = missing.first() {
        // Every depth that was asked for gets its share, so that a slow start does not cost the last ones.
        let share = left_ns / missing.len() as u64;
        return if out_of_time {
            Step::Done(Done::OutOfTime)
        } else {
            measure(x, limits.first_ns.min(share.max(1)), Why::Asked)
        };
    }
    // Refining around a knee that a disturbance drew would be time lost.
    let again = |beyond| uncertain(points, limits, beyond).map(|(x, runtime_ns)| (x, runtime_ns, Why::Uncertain));
    let todo = again(WILD)
        .or_else(|| between(asked, points, limits).map(|(x, why)| (x, limits.first_ns, why)))
        .or_else(|| again(1.0));
    match todo {
        None => Step::Done(Done::Settled),
        Some(_) if out_of_time => Step::Done(Done::OutOfTime),
        Some((x, runtime_ns, why)) => measure(x, runtime_ns, why),
    }
}

/// A depth halfway (by factor) between the measured depths around the load line, or around the overload.
fn between(asked: &[f64], points: &[Point], limits: &Limits) -> Option<(f64, Why)> {
    let line = load_line::find(points)?;
    let whole = asked.iter().all(|x| x.fract() == 0.0);
    let mut depths: Vec<f64> = points.iter().map(|point| point.x).filter(|x| *x > 0.0).collect();
    depths.sort_by(f64::total_cmp);
    let middle = |around: f64| {
        let above = depths.iter().position(|&x| x >= around).filter(|&index| index > 0)?;
        let (low, high) = (depths[above - 1], depths[above]);
        let exact = (low * high).sqrt();
        let x = if whole { exact.round() } else { exact };
        let fine = high / low <= limits.finest || (whole && high - low <= 1.0);
        (!fine && x > low && x < high).then_some(x)
    };
    // Were the curve still rising, the load line would be wherever the sweep ends.
    let near_line = if line.still_rising { None } else { line.load_line.and_then(|line| middle(line.mean)) };
    let near_overload = || middle(line.overload?.mean);
    near_line.map(|x| (x, Why::LoadLine)).or_else(|| near_overload().map(|x| (x, Why::Overload)))
}

/// Times the bound beyond which an interval says that something else happened while the depth was measured.
const WILD: f64 = 5.0;

/// The point that is farthest beyond the bound (so many times it at least) and has time left, and how long it needs.
fn uncertain(points: &[Point], limits: &Limits, least: f64) -> Option<(f64, u64)> {
    let beyond = |point: &Point| {
        // One sample knows nothing of its own error.
        let width = if point.samples.len() < 2 { f64::INFINITY } else { relative_half_width(&point.iops) };
        width / limits.bound
    };
    let open = points.iter().filter(|point| point.job.runtime_ns < limits.point_cap_ns && beyond(point) > least);
    let worst = open.max_by(|a, b| beyond(a).total_cmp(&beyond(b)))?;
    let had_ns = worst.job.runtime_ns.max(1);
    // An interval narrows with the square root of time; no step more than doubles what a point has had, since the width
    // is itself an estimate.
    let needs_ns = had_ns as f64 * (beyond(worst).powi(2) - 1.0).clamp(0.2, 1.0);
    let runtime_ns = (needs_ns as u64).max(limits.first_ns / 2).min(limits.point_cap_ns - worst.job.runtime_ns);
    Some((worst.x, runtime_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Interval, JobResult};
    use crate::stats::test_noise::Noise;

    const MS: u64 = 1_000_000;

    /// Runs `curve` as a sweep would, 20 ms an interval, until it is done.
    fn sweep(asked: &[f64], limits: &Limits, noise: f64, curve: impl Fn(f64) -> f64) -> (Vec<Point>, Vec<Step>, u64) {
        let mut random = Noise::new(7);
        let (mut points, mut steps, mut spent): (Vec<Point>, Vec<Step>, u64) = Default::default();
        loop {
            let step = next(asked, &points, spent, limits);
            steps.push(step);
            let Step::Measure { x, runtime_ns, .. } = step else { return (points, steps, spent) };
            assert!(runtime_ns > 0 && steps.len() < 1000, "{steps:?}");
            let mut job = JobResult { runtime_ns, interval_ns: 20 * MS, ..JobResult::default() };
            for index in 0..runtime_ns / (20 * MS) {
                let mut interval =
                    Interval { end_ns: (index + 1) * 20 * MS, length_ns: 20 * MS, ..Interval::default() };
                interval.ops.read = (curve(x) * 0.02 * (1.0 + noise * random.normal())).max(0.0) as u64;
                job.intervals.push(interval);
            }
            let point = Point::of(x, job);
            match points.iter_mut().find(|known| known.x == x) {
                Some(known) => known.extend(point),
                None => points.push(point),
            }
            spent += runtime_ns + 20 * MS;
        }
    }

    fn hard_knee(depth: f64) -> f64 {
        (depth * 4e3).min(1e5)
    }

    const ASKED: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

    #[test]
    fn asked_depths_come_first_then_the_knee_is_cut_finer() {
        let limits = Limits::within(60_000 * MS, ASKED.len());
        let (points, steps, spent) = sweep(&ASKED, &limits, 0.01, hard_knee);
        let xs: Vec<f64> = points.iter().map(|point| point.x).collect();
        assert_eq!(xs[..8], ASKED);
        assert!(xs[8..].iter().all(|x| (16.0..32.0).contains(x) && x.fract() == 0.0), "{xs:?}");
        assert_eq!(steps.last(), Some(&Step::Done(Done::Settled)));
        assert!(spent < limits.curve_cap_ns);
        let line = load_line::find(&points).unwrap().load_line.unwrap();
        assert!((line.low..=line.high).contains(&24.25) && line.high / line.low <= 1.25, "{line:?}");
    }

    #[test]
    fn overload_is_cut_finer_too() {
        let limits = Limits::within(60_000 * MS, ASKED.len());
        let falling = |depth: f64| hard_knee(depth) * if depth > 50.0 { (50.0 / depth).sqrt() } else { 1.0 };
        let (points, steps, _) = sweep(&ASKED, &limits, 0.01, falling);
        assert!(steps.iter().any(|step| matches!(step, Step::Measure { why: Why::Overload, .. })));
        let overload = load_line::find(&points).unwrap().overload.unwrap();
        assert!((overload.low..=overload.high).contains(&55.4) && overload.high / overload.low < 1.4, "{overload:?}");
    }

    #[test]
    fn uncertain_points_get_time_up_to_the_cap() {
        let limits = Limits::within(200_000 * MS, ASKED.len());
        let (points, steps, _) = sweep(&ASKED, &limits, 0.05, hard_knee);
        assert_eq!(steps.last(), Some(&Step::Done(Done::Settled)));
        for point in &points {
            assert!(
                relative_half_width(&point.iops) <= limits.bound || point.job.runtime_ns >= limits.point_cap_ns,
                "depth {}",
                point.x
            );
        }
        // Noise that no time averages out ends at the cap.
        let (points, steps, _) = sweep(&ASKED, &limits, 1.0, |_| 1e5);
        assert!(matches!(steps.last(), Some(Step::Done(_))));
        assert!(points.iter().all(|point| point.job.runtime_ns <= limits.point_cap_ns));
    }

    #[test]
    fn time_is_never_exceeded_and_every_depth_gets_its_share() {
        for cap_ms in [100, 800, 4_000] {
            let limits = Limits::within(cap_ms * MS, ASKED.len());
            let (points, steps, spent) = sweep(&ASKED, &limits, 0.3, hard_knee);
            assert!(spent <= limits.curve_cap_ns + 20 * MS, "{cap_ms}: {spent}");
            assert!(matches!(steps.last(), Some(Step::Done(_))));
            if cap_ms >= 800 {
                assert_eq!(points.iter().filter(|point| ASKED.contains(&point.x)).count(), 8, "{cap_ms}");
            }
        }
    }

    #[test]
    fn nothing_asked_is_nothing_to_do() {
        assert_eq!(next(&[], &[], 0, &Limits::within(MS, 0)), Step::Done(Done::Settled));
        assert_eq!(next(&[1.0], &[], MS, &Limits::within(MS, 1)), Step::Done(Done::OutOfTime));
    }
}
