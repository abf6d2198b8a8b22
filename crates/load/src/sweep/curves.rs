//! Curves side by side: they take turns of a point each, so that whatever drifts, drifts through all of them.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::refine::{self, Limits, Step};
use measure::schema::{Curve, JobResult, Point};
use measure::slices::{self, Slice};
use measure::verdict::{self, Verdict};

use super::axis::Role;
use super::crew::Spot;
use super::effort::Effort;
use super::values::Values;
use super::variant::{Offered, Variant, spot};
use super::visit::Stretch;
use super::{Doing, nanos, resume, sliced};
use crate::{Error, ErrorKind};

/// The least time for each requested depth, ramp included, even if the sweep then exceeds its time.
pub(super) const LEAST_NS: u64 = 700_000_000;
/// Rates of an open loop that are measured where nobody gives any, as parts of the throughput at full depth.
const PARTS: [f64; 9] = [0.125, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 2.0];
/// Arrivals that a visit of an open loop should have: the noise of fewer hides the growth of a queue.
const ARRIVALS: f64 = 2000.0;
/// Rates around a limit are at most this factor apart.
const FINEST_RATE: f64 = 1.05;
/// Depths, and values of other axes, around a limit are at most this factor apart.
const FINEST_DEPTH: f64 = 1.1;

/// Carries out one measurement: its name, its settings, and its extent.
pub(super) type Measure<'a> = dyn FnMut(Doing, &Spot, Stretch) -> Result<JobResult, Error> + 'a;

/// The settings and the stop that all curves share.
pub(super) struct Shared<'a> {
    pub effort: &'a Effort,
    pub stop: &'a AtomicBool,
    pub offered: &'a Offered<'a>,
}

/// A curve that is being measured.
struct Open {
    variant: Variant,
    asked: Vec<f64>,
    limits: Limits,
    /// The points without slices, as long as slices are believed.
    whole: Vec<Point>,
    spent_ns: u64,
    /// True if depths whose queues take too long are left out.
    skips: bool,
    is_resumed: bool,
    is_done: bool,
}

/// All curves, in turns of a point each, within the time that is `left`; and verdicts on curves that ended before their
/// time. `measured` is called after each round of turns.
///
/// # Errors
/// The failure of the first point of a curve.
pub(super) fn curves(
    variants: Vec<Variant>,
    shared: &Shared,
    left: Duration,
    measure: &mut Measure,
    measured: &mut dyn FnMut(&[Curve]),
) -> Result<(Vec<Curve>, Vec<Verdict>), Error> {
    let cap_ns = nanos(left) / variants.len().max(1) as u64;
    let mut number = variants.iter().map(|variant| resume::visits(&variant.earlier)).sum();
    let (mut all, mut curves) = (Vec::new(), Vec::new());
    for variant in variants {
        let (one, curve) = Open::begin(variant, shared, cap_ns, measure)?;
        all.push(one);
        curves.push(curve);
    }
    let mut verdicts = Vec::new();
    while all.iter().any(|one| !one.is_done) {
        for (one, curve) in all.iter_mut().zip(&mut curves) {
            verdicts.extend(one.take_turn(curve, shared, &mut number, measure)?);
        }
        measured(&curves);
    }
    let curves = concluded(curves, shared.effort);
    if let Some(factor) = shared.effort.until.filter(|_| !shared.is_stopped()) {
        verdicts.extend(curves.iter().filter_map(|curve| verdict::wider_than_asked(curve, factor)));
    }
    Ok((curves, verdicts))
}

impl Shared<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Open {
    /// Begins a curve, with the points that an earlier sweep has measured. On an axis of rates, a first look at the
    /// storage chooses the rates.
    fn begin(
        mut variant: Variant,
        shared: &Shared,
        cap_ns: u64,
        measure: &mut Measure,
    ) -> Result<(Open, Curve), Error> {
        let effort = shared.effort;
        let began = Instant::now();
        let earlier = std::mem::take(&mut variant.earlier);
        let earlier_ns = resume::spent_ns(&earlier);
        let mut limits = limits(effort, &variant, &earlier, earlier_ns + cap_ns);
        let asked = match effort.axis.is_rate() && !shared.is_stopped() {
            false => effort.axis.values().map(Values::asked).unwrap_or_default(),
            true => {
                let spot = spot(&variant, effort, None, shared.offered)?;
                let job = measure(Doing::Look(&variant.label), &spot, Stretch::Visit(limits.first_ns))?;
                let point = Point::of(0.0, job);
                suit_rates(&mut limits, &point, cap_ns);
                effort.axis.values().map_or_else(|| rates(effort, &point, &earlier.points), Values::asked)
            }
        };
        let asked: Vec<f64> = asked.into_iter().map(|value| value as f64).collect();
        limits.curve_cap_ns = limits.curve_cap_ns.max(earlier_ns + missing(&asked, &earlier.points) * LEAST_NS);
        let across = variant.across.as_ref().map(|(_, value)| *value as f64);
        let (label, memory) = (variant.label.clone(), earlier.memory);
        let curve = Curve { label, across, points: earlier.points, memory, ..Curve::default() };
        let one = Open {
            variant,
            asked,
            limits,
            whole: Vec::new(),
            spent_ns: earlier_ns + nanos(began.elapsed()),
            is_resumed: earlier_ns > 0,
            skips: effort.goal().line && !matches!(effort.axis.values(), Some(Values::List(_))),
            is_done: false,
        };
        Ok((one, curve))
    }

    /// Measures the next point of the curve, or ends it. `number`: the measurements of the sweep so far.
    fn take_turn(
        &mut self,
        curve: &mut Curve,
        shared: &Shared,
        number: &mut u64,
        measure: &mut Measure,
    ) -> Result<Vec<Verdict>, Error> {
        if self.is_done || shared.is_stopped() {
            self.is_done = true;
            return Ok(Vec::new());
        }
        let effort = shared.effort;
        let axis = effort.axis.name();
        let mut verdicts: Vec<Verdict> = self.leave_out_slow_depths(curve, axis).into_iter().collect();
        let counted = reserve(&self.asked, &curve.points, self.spent_ns, &self.limits);
        let step = refine::next(&effort.goal(), &self.asked, &curve.points, counted, &self.limits);
        let (x, slices, round, why, stretch) = match &step {
            Step::Measure { x, runtime_ns, round, why, .. } => (*x, &[][..], *round, *why, Stretch::Visit(*runtime_ns)),
            Step::Slices { slices, round, why } => {
                (sliced::deepest(slices), &slices[..], *round, *why, Stretch::Slices(slices))
            }
            Step::Done(_) => {
                self.is_done = true;
                return Ok(verdicts);
            }
        };
        let (began, at_ns) = (Instant::now(), self.spent_ns);
        let mut spot = spot(&self.variant, effort, Some(x as u64), shared.offered)?;
        *number += 1;
        spot.number = *number;
        let place = sliced::place(axis, x, slices);
        let measured = measure(Doing::Point(&curve.label, &place, spot.depth, why), &spot, stretch);
        self.spent_ns += nanos(began.elapsed());
        match measured {
            // A visit cut short does not count as a point, and does not mean that the depth cannot be run.
            Ok(_) | Err(_) if shared.is_stopped() => self.is_done = true,
            Ok(job) => {
                let points =
                    if slices.is_empty() { Some(vec![Point::of(x, job)]) } else { sliced::points(slices, job) };
                // Work that is over before the last slice is measured in visits.
                self.limits.in_place &= points.is_some();
                self.take_in(points.unwrap_or_default(), slices, round, at_ns, curve, effort)?;
            }
            Err(error) if curve.points.is_empty() || error.kind == ErrorKind::Internal => return Err(error),
            Err(error) => {
                verdicts.push(verdict::depth_not_possible(&curve.label, axis, x, &error.to_string()));
                self.is_done = true;
            }
        }
        Ok(verdicts)
    }

    /// Leaves out the depths whose queues take too long, with a verdict that says so.
    fn leave_out_slow_depths(&mut self, curve: &Curve, axis: &str) -> Option<Verdict> {
        if !self.skips {
            return None;
        }
        let (x, turn_ns) = self.limits.too_slow(&self.asked, &curve.points)?;
        let deepest = self.asked.iter().copied().fold(x, f64::max);
        let needed_ns = turn_ns as f64 * deepest / x * refine::TURNS as f64;
        self.asked.retain(|asked| *asked < x);
        Some(verdict::depths_left_out(&curve.label, axis, x, turn_ns as f64, needed_ns))
    }

    /// Enters the points of a measurement. A storage that turns out to remember loses the points of its slices.
    ///
    /// # Errors
    /// A point of another size than those of the sweep that is resumed.
    fn take_in(
        &mut self,
        points: Vec<Point>,
        slices: &[Slice],
        round: u32,
        at_ns: u64,
        curve: &mut Curve,
        effort: &Effort,
    ) -> Result<(), Error> {
        for mut point in points {
            point.visits.iter_mut().for_each(|visit| (visit.at_ns, visit.round) = (at_ns, round));
            if self.is_resumed {
                resume::check_size(curve, &point, &effort.axis)?;
            }
            if slices.is_empty() && self.limits.in_place {
                enter(&mut self.whole, point.clone());
            }
            enter(&mut curve.points, point);
        }
        // The points of a sweep that is resumed cannot be had without their slices.
        if !self.is_resumed
            && let Some(sign) = slices::memory(&curve.points, effort.axis.name(), self.spent_ns, &self.limits)
        {
            curve.memory = Some(sign);
            curve.points = std::mem::take(&mut self.whole);
            self.limits.in_place = false;
        }
        Ok(())
    }
}

/// The limits of a curve that may take `cap_ns`, the time before it was resumed included.
fn limits(effort: &Effort, variant: &Variant, earlier: &Curve, cap_ns: u64) -> Limits {
    // Bounds cannot be closer than the depths are.
    let finest = effort.until.map_or(f64::INFINITY, f64::sqrt);
    let finest_limit = match effort.axis.values() {
        Some(Values::List(_)) => f64::INFINITY,
        _ if effort.axis.is_rate() => FINEST_RATE,
        _ => FINEST_DEPTH,
    };
    Limits {
        bound: effort.bound,
        until: effort.until,
        first_ns: nanos(effort.first),
        point_cap_ns: nanos(effort.point_cap),
        curve_cap_ns: cap_ns,
        closed: resume::last_round(earlier),
        finest: effort.axis.values().map_or(f64::INFINITY, Values::finest).min(finest),
        in_place: variant.in_place && earlier.memory.is_none(),
        finest_limit,
    }
}

/// Lengthens visits at rates: slow storage needs longer ones for as many arrivals. `look`: the point without a rate.
fn suit_rates(limits: &mut Limits, look: &Point, cap_ns: u64) {
    let needed_ns = (ARRIVALS / look.iops.mean.max(1.0) * 1e9) as u64;
    limits.first_ns = needed_ns.clamp(limits.first_ns, (cap_ns / 40).max(limits.first_ns));
    limits.point_cap_ns = limits.point_cap_ns.max(limits.first_ns * 12);
}

/// The rates of an open loop where nobody gives any: parts of the throughput of `look`, the point without a rate, above
/// those that an earlier sweep has measured.
fn rates(effort: &Effort, look: &Point, earlier: &[Point]) -> Vec<u64> {
    let full = if effort.axis.role() == Role::Bytes { look.bytes_per_second } else { look.iops };
    let rounded = |part: f64| (full.mean * part).round().max(1.0) as u64;
    let mut rates: Vec<u64> = earlier.iter().map(|point| point.x as u64).collect();
    let known = rates.last().map_or(0.0, |known| *known as f64 * FINEST_RATE);
    rates.extend(PARTS.into_iter().map(rounded).filter(|rate| *rate as f64 > known));
    rates.dedup();
    rates
}

/// The curves that have points, with the answers and the verdicts that follow from their points.
pub(super) fn concluded(mut curves: Vec<Curve>, effort: &Effort) -> Vec<Curve> {
    for curve in &mut curves {
        for point in &mut curve.points {
            point.job.judge();
        }
        curve.conclude(&effort.goal());
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

/// The part of the time spent on a curve that counts: depths that were asked for and not visited yet keep their least,
/// however long the depths before them took.
fn reserve(asked: &[f64], points: &[Point], spent_ns: u64, limits: &Limits) -> u64 {
    spent_ns.min(limits.curve_cap_ns.saturating_sub(missing(asked, points) * LEAST_NS))
}

/// The number of values that were asked for and not visited yet.
fn missing(asked: &[f64], points: &[Point]) -> u64 {
    asked.iter().filter(|&&x| !points.iter().any(|point| point.x == x)).count() as u64
}

/// Puts a point in its place among points in order, or adds it to the one that is there.
fn enter(points: &mut Vec<Point>, point: Point) {
    match points.binary_search_by(|other| other.x.total_cmp(&point.x)) {
        Ok(at) => points[at].extend(point),
        Err(at) => points.insert(at, point),
    }
}

#[cfg(test)]
mod tests {
    use measure::PerDirection;
    use measure::refine::{Goal, Why};
    use measure::schema::Interval;

    use super::super::axis::Axis;
    use super::super::visit::INTERVAL_NS;
    use super::*;

    /// A system that serves 1000 ops per second and op in flight, up to 20,000; one percent of noise.
    fn ran(depth: u32, runtime_ns: u64) -> JobResult {
        let rate = f64::from(depth.min(20)) * 1000.0;
        let intervals = (0..runtime_ns / INTERVAL_NS).map(|i| {
            let noise = 1.0 + 0.01 * ((i * 7919 % 13) as f64 / 6.0 - 1.0);
            let ops = (rate * noise * INTERVAL_NS as f64 / 1e9) as u64;
            Interval {
                end_ns: (i + 1) * INTERVAL_NS,
                length_ns: INTERVAL_NS,
                ops: PerDirection { read: ops, ..PerDirection::default() },
                bytes: PerDirection { read: ops * 4096, ..PerDirection::default() },
                ..Interval::default()
            }
        });
        let mut job = JobResult {
            clones: 1,
            runtime_ns,
            interval_ns: INTERVAL_NS,
            intervals: intervals.collect(),
            ..JobResult::default()
        };
        job.directions.read.ops = job.intervals.iter().map(|interval| interval.ops.read).sum();
        job.directions.read.bytes = job.directions.read.ops * 4096;
        job.directions.read.runtime_ns = runtime_ns;
        job
    }

    fn visit_ns(stretch: Stretch) -> u64 {
        let Stretch::Visit(ns) = stretch else { panic!("no curve of these tests changes in place: {stretch:?}") };
        ns
    }

    fn engines(names: &[&str]) -> Vec<Variant> {
        let of = |name: &&str| Variant { label: name.to_string(), engine: name.to_string(), ..Variant::default() };
        names.iter().map(of).collect()
    }

    fn depths(values: Values) -> Effort {
        Effort { axis: Axis::depths(values), ..Effort::default() }
    }

    /// No test offers a rate.
    fn no_rate(_: bool, _: u64) -> Result<(String, String), Error> {
        Err(failure("no rate"))
    }

    fn failure(what: &str) -> Error {
        Error { kind: ErrorKind::System, what: what.into(), place: String::new(), hint: String::new(), source: None }
    }

    fn shared<'a>(effort: &'a Effort, stop: &'a AtomicBool) -> Shared<'a> {
        Shared { effort, stop, offered: &no_rate }
    }

    const LEFT: Duration = Duration::from_secs(30);

    #[test]
    fn a_curve_has_every_asked_depth_in_order_and_a_load_line() {
        let effort = depths(Values::Range(1, 64));
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, spot: &Spot, stretch: Stretch| Ok(ran(spot.depth, visit_ns(stretch)));
        let mut rows = Vec::new();
        let mut measured = |curves: &[Curve]| rows.push(curves[0].points.len());
        let (curves, verdicts) =
            curves(engines(&["io_uring"]), &shared(&effort, &stop), LEFT, &mut measure, &mut measured).unwrap();
        assert_eq!(rows[..7], [1, 2, 3, 4, 5, 6, 7], "each row is told as soon as it is measured");
        let depths: Vec<f64> = curves[0].points.iter().map(|point| point.x).collect();
        assert!(
            depths.is_sorted() && [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0].iter().all(|x| depths.contains(x)),
            "{depths:?}"
        );
        assert!(verdicts.is_empty());
        let line = curves[0].line.as_ref().expect("seven points give a load line");
        assert!((line.plateau_iops.mean / 20_000.0 - 1.0).abs() < 0.02, "{line:?}");
        assert!((18.0..=22.0).contains(&line.load_line.unwrap().mean), "97 % of 20 ops in flight: {line:?}");
    }

    #[test]
    fn every_asked_depth_is_visited_however_long_the_first_one_took() {
        let asked = [1.0, 2.0, 8.0];
        let cap_ns = asked.len() as u64 * LEAST_NS;
        let limits = Limits { first_ns: 400_000_000, ..Limits::within(cap_ns, asked.len()) };
        let (mut points, mut spent_ns) = (Vec::new(), 0);
        while let Step::Measure { x, runtime_ns, .. } =
            refine::next(&Goal::load_line(), &asked, &points, reserve(&asked, &points, spent_ns, &limits), &limits)
        {
            assert!(points.len() < 3 && runtime_ns >= LEAST_NS.min(limits.first_ns), "{x}: {runtime_ns}");
            points.push(Point::of(x, ran(x as u32, runtime_ns)));
            spent_ns += 10 * cap_ns; // the machine stood still
        }
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), asked);
    }

    #[test]
    fn engines_take_turns() {
        let effort = depths(Values::List(vec![1, 2]));
        let stop = AtomicBool::new(false);
        let mut order = Vec::new();
        let mut measure = |doing: Doing, spot: &Spot, stretch: Stretch| {
            if matches!(doing, Doing::Point(.., Why::Asked)) {
                order.push(format!("{} {}", spot.engine, spot.depth));
            }
            Ok(ran(spot.depth, visit_ns(stretch)))
        };
        curves(engines(&["a", "b"]), &shared(&effort, &stop), LEFT, &mut measure, &mut |_| {}).unwrap();
        assert_eq!(order[..4], ["a 1", "b 1", "a 2", "b 2"]);
    }

    #[test]
    fn a_depth_that_cannot_be_run_ends_its_curve_and_no_other() {
        let effort = depths(Values::List(vec![1, 64, 512]));
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, spot: &Spot, stretch: Stretch| match (spot.engine.as_str(), spot.depth) {
            ("psync", 512) => Err(failure("cannot start a thread")),
            (_, depth) => Ok(ran(depth, visit_ns(stretch))),
        };
        let (curves, verdicts) =
            curves(engines(&["io_uring", "psync"]), &shared(&effort, &stop), LEFT, &mut measure, &mut |_| {}).unwrap();
        assert_eq!((curves[0].points.len(), curves[1].points.len()), (3, 2));
        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].what.contains("psync ends below iodepth 512: cannot start a thread"), "{verdicts:?}");
    }

    #[test]
    fn a_failure_before_the_first_point_is_an_error() {
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, _: &Spot, _: Stretch| Err(failure("no such device"));
        let error = curves(engines(&["io_uring"]), &shared(&Effort::default(), &stop), LEFT, &mut measure, &mut |_| {})
            .unwrap_err();
        assert_eq!(error.to_string(), "no such device");
    }

    #[test]
    fn an_interrupted_sweep_keeps_its_whole_points() {
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, spot: &Spot, stretch: Stretch| {
            let depth = spot.depth;
            stop.store(depth == 4, Ordering::Relaxed);
            Ok(ran(depth, visit_ns(stretch) / if depth == 4 { 2 } else { 1 }))
        };
        let (curves, _) =
            curves(engines(&["io_uring"]), &shared(&Effort::default(), &stop), LEFT, &mut measure, &mut |_| {})
                .unwrap();
        assert_eq!(curves[0].points.iter().map(|point| point.x).collect::<Vec<_>>(), [1.0, 2.0]);
    }
}
