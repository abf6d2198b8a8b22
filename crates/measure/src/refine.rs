//! Sweep control: which depth to measure next, and for how long. The module is pure: the caller passes the time in.
//!
//! ```text
//! every depth asked for, once (round 0) ─► rounds over the depths that decide, as they are known by then ─► done
//! ```
//!
//! A round visits the depths around the load line, at the plateau and around the overload, one after the other, and one
//! depth between those around the load line and the overload while they are too far apart. Rounds go up and down in
//! turns, so that what drifts within a round cancels out (an A B B A design). No claim rests on the first look, which
//! only chose the depths: [`crate::load_line`].
//!
//! Depth is one axis of several. The [`Goal`] of a sweep says what its points are for, and each goal names the points
//! that decide: those around the load line, those around a limit ([`crate::limit`]), or all.

use crate::limit::{Bracket, Condition, Seen};
use crate::load_line::{LOAD_LINE_FRACTION, OVERLOAD_FRACTION, find, plateau, weights};
use crate::schema::{Answer, Point};
use crate::slices::{self, Slice};
use crate::stats::{mean, sorted_quantile, t_quantile};
use crate::unimodal::unimodal;
use crate::visits::{Effects, Look, looks};

/// The questions that the points of a curve answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goal {
    /// True if throughput over the axis rises to a plateau: the sweep looks for plateau, load line and overload.
    pub line: bool,
    /// Sets of conditions; the sweep looks for the highest value of the axis that keeps all conditions of a set. Each
    /// set begins with the conditions of the set before it, so that its limit is not beyond that of the other.
    pub limits: Vec<Vec<Condition>>,
}

impl Goal {
    /// The goal of a sweep over the depth without objectives.
    pub fn load_line() -> Goal {
        Goal { line: true, limits: Vec::new() }
    }

    /// True if the points are rates of an open loop.
    pub fn is_open_loop(&self) -> bool {
        self.limits.iter().any(|conditions| conditions.contains(&Condition::KeepsUp))
    }

    /// True if every point is as good as the next: the sweep visits all of them in each round.
    fn is_everywhere(&self) -> bool {
        !self.line && self.limits.is_empty()
    }
}

/// The limits of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Rounds end when the depths that decide are known within this fraction of their throughput, half a 95 % interval.
    pub bound: f64,
    /// Nanoseconds of a visit, ramp excluded.
    pub first_ns: u64,
    /// Nanoseconds after which a depth is not visited again.
    pub point_cap_ns: u64,
    /// Nanoseconds for the whole curve, overhead included; no new visit begins that would end after it.
    pub curve_cap_ns: u64,
    /// Around the load line and the overload, neighbouring depths are at most this factor apart (or 1, whichever is
    /// farther).
    pub finest: f64,
    /// Around the limits of conditions, neighbouring values are at most this factor apart (or 1, whichever is farther).
    pub finest_limit: f64,
    /// True if the depth can change while the load goes on: rounds consist of slices ([`crate::slices`]).
    pub in_place: bool,
    /// Rounds go on until the bounds of the load line are this factor apart, instead of until `bound`.
    pub until: Option<f64>,
    /// The last round of the sweep that this one resumes, or 0: the machine may be another by now, so the sweep begins
    /// a new round instead of completing that one.
    pub closed: u32,
}

impl Limits {
    /// Limits for a curve of `depths` depths that takes at most `curve_cap_ns`: an eighth of the time for the first
    /// visit to each requested depth, the rest for the rounds.
    pub fn within(curve_cap_ns: u64, depths: usize) -> Limits {
        let first_ns = (curve_cap_ns / 8 / depths.max(1) as u64).clamp(50_000_000, 3_000_000_000);
        Limits {
            bound: 0.005,
            first_ns,
            point_cap_ns: first_ns.saturating_mul(16),
            curve_cap_ns,
            finest: 1.2,
            finest_limit: 1.1,
            in_place: false,
            until: None,
            closed: 0,
        }
    }

    /// The next depth of `asked` (ascending), if [`TURNS`] turns of its queue do not fit into the time of the curve at
    /// the throughput of the depth before it; and the nanoseconds of a turn.
    pub fn too_slow(&self, asked: &[f64], points: &[Point]) -> Option<(f64, u64)> {
        let next = asked.iter().copied().find(|&x| !points.iter().any(|point| point.x == x))?;
        let before = points.iter().filter(|point| point.x < next).max_by(|a, b| a.x.total_cmp(&b.x))?;
        let turn_ns = (next / before.iops.mean.max(1e-9) * 1e9) as u64;
        (turn_ns > self.curve_cap_ns / TURNS).then_some((next, turn_ns))
    }
}

/// The next step of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Measure this depth (or rate) for `runtime_ns`, and add the result to the point of that depth if there is one
    /// ([`Point::extend`]).
    Measure {
        /// The depth or rate to measure.
        x: f64,
        /// Measured nanoseconds, ramp excluded.
        runtime_ns: u64,
        /// The round that the visit belongs to, for [`crate::schema::Visit`].
        round: u32,
        /// The reason, for the progress line.
        why: Why,
    },
    /// Measure these slices in one run, and add those of each depth to its point, as one visit
    /// ([`Point::of_slices`]).
    Slices {
        /// The slices, in order.
        slices: Vec<Slice>,
        /// The round that the visits belong to, for [`crate::schema::Visit`].
        round: u32,
        /// The reason, for the progress line.
        why: Why,
    },
    /// The sweep ends, for the reason given.
    Done(Done),
}

/// The reason to measure a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The user asked for this depth.
    Asked,
    /// The depth lies between two depths around the load line.
    LoadLine,
    /// The depth lies between two depths around the overload point.
    Overload,
    /// The value lies between two values around the limit of a condition.
    Limit,
    /// The depth lies beside the deepest or the smallest depth of the plateau, where the curve falls off.
    Plateau,
    /// The depth decides, and is visited again at another time.
    Again,
}

/// The reason why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The load line is as fine as asked, and the depths that decide are within the bound or have had their time.
    Settled,
    /// The time of the curve is up.
    OutOfTime,
}

/// Turns of a queue that have to fit into the time of a curve.
pub const TURNS: u64 = 16;
/// Rounds below which no error is believed: three visits to a depth leave it two degrees of freedom.
const FEWEST_ROUNDS: u32 = 4;
/// Rounds that must be left for a new depth: a depth that was visited once or twice cannot be told from an accident.
const ROUNDS_TO_CONFIRM: f64 = 2.5;
/// Depths that a round visits at most: more of them would make rounds long, and visits to a depth few.
const LONGEST_ROUND: usize = 8;
/// [`LONGEST_ROUND`] of a round in slices.
const LONGEST_IN_SLICES: usize = 6;
/// Rounds in slices of which one visits the deepest depths.
const EVERY: u32 = 3;
/// Standard errors by which the depths on both sides of the load line differ from its level before a depth between them
/// is worth a visit.
const SURE: f64 = 1.0;
/// Standard errors by which the depth beside the top is lower where the top may lie between the two.
const FALL: f64 = 3.0;
/// Values that a round visits at most for one limit.
const LONGEST_LIMIT: usize = 4;
/// Visits to depths that had several, below which they do not tell the error.
const FEWEST_AWAY: usize = 4;
/// The error of a visit that is expected before there are two rounds to tell it.
const EXPECTED_ERROR: f64 = 0.015;
/// A neighbour that lies so far below the top (a logarithm) makes it a peak; less is a plateau.
const PEAKED: f64 = 0.01;
/// Standard errors within which a depth is not sure to lie above or below a level.
const UNSURE: f64 = 2.0;

/// The next step, given the requested depths, the points so far, and the nanoseconds spent on this curve.
///
/// Depths that were asked for come first, ascending as given. Depths are whole numbers where those asked for are.
pub fn next(goal: &Goal, asked: &[f64], points: &[Point], spent_ns: u64, limits: &Limits) -> Step {
    let left_ns = limits.curve_cap_ns.saturating_sub(spent_ns);
    let measure = |x: f64, runtime_ns: u64, round: u32, why: Why| Step::Measure {
        x,
        runtime_ns: runtime_ns.min(left_ns),
        round,
        why,
    };
    // A shorter run than a tenth of a visit would say nothing.
    let out_of_time = left_ns < limits.first_ns / 10 || left_ns == 0;
    let missing: Vec<f64> = asked.iter().copied().filter(|&x| !points.iter().any(|point| point.x == x)).collect();
    if let Some(&x) = missing.first() {
        // Every requested depth gets its share, so that a slow start does not cost the last ones.
        let share = left_ns / missing.len() as u64;
        return if out_of_time {
            Step::Done(Done::OutOfTime)
        } else {
            measure(x, limits.first_ns.min(share.max(1)), 0, Why::Asked)
        };
    }
    let visits: usize = points.iter().map(|point| point.visits.len()).sum();
    let visit_ns = if visits == 0 { limits.first_ns } else { spent_ns / visits as u64 };
    // The time left is counted from the start of the round under way, so that the depths of the round stay the same to
    // its end.
    let all = || points.iter().flat_map(|point| &point.visits);
    let under_way = all().map(|visit| visit.round).max().filter(|round| *round > limits.closed);
    let began_ns = all().filter(|visit| Some(visit.round) == under_way).map(|visit| visit.at_ns).min();
    let left_then_ns = limits.curve_cap_ns.saturating_sub(began_ns.unwrap_or(spent_ns));
    let in_slices = limits.in_place && goal.line && goal.limits.is_empty();
    let round_ns = if in_slices { slices::round_ns(points) } else { None };
    let rounds_left = left_then_ns as f64 / round_ns.unwrap_or(visit_ns * LONGEST_ROUND as u64).max(1) as f64;
    let finer = rounds_left >= ROUNDS_TO_CONFIRM;
    let state = State { goal, points, limits, whole: asked.iter().all(|x| x.fract() == 0.0), finer };
    match state.again() {
        None => Step::Done(Done::Settled),
        Some(_) if out_of_time => Step::Done(Done::OutOfTime),
        Some((x, round, why)) => {
            let depths: Vec<f64> = state.remaining(round).into_iter().map(|(x, _)| x).collect();
            let in_slices = round_ns.is_some() && state.is_new(round);
            match in_slices.then(|| slices::schedule(points, &depths, round, left_ns)).flatten() {
                Some(slices) if slices.is_empty() => Step::Done(Done::OutOfTime),
                Some(slices) => Step::Slices { slices, round, why },
                None if left_ns < visit_ns => Step::Done(Done::OutOfTime),
                None => measure(x, limits.first_ns, round, why),
            }
        }
    }
}

/// A sweep whose first look is over.
struct State<'a> {
    goal: &'a Goal,
    points: &'a [Point],
    limits: &'a Limits,
    whole: bool,
    /// True if there is time to confirm depths that nobody asked for.
    finer: bool,
}

impl State<'_> {
    /// The next visit of the round under way, or the first of a new one; None if nothing is left to decide.
    fn again(&self) -> Option<(f64, u32, Why)> {
        let rounds = || self.points.iter().flat_map(|point| &point.visits).map(|visit| visit.round);
        let under_way = rounds().max().unwrap_or(0);
        let next = |round: u32| {
            let depths = self.remaining(round);
            // Odd rounds go up, even rounds go down.
            let next = if round % 2 == 1 { depths.first() } else { depths.last() };
            next.map(|&(x, why)| (x, round, why))
        };
        let in_this = Some(under_way).filter(|&round| round > self.limits.closed).and_then(next);
        in_this.or_else(|| if self.settled(under_way) { None } else { next(under_way + 1) })
    }

    /// The values that decide in a round and had no visit in it, ascending.
    fn remaining(&self, round: u32) -> Vec<(f64, Why)> {
        let mut depths = self.decide(round);
        depths.retain(|(x, _)| !self.points.iter().any(|point| point.x == *x && self.had(point, round)));
        depths
    }

    /// True if no point had a visit of this round.
    fn is_new(&self, round: u32) -> bool {
        !self.points.iter().flat_map(|point| &point.visits).any(|visit| visit.round == round)
    }

    /// The values that decide in a round, ascending, and why each of them is measured: those of every question.
    fn decide(&self, round: u32) -> Vec<(f64, Why)> {
        let mut out = if self.goal.is_everywhere() {
            self.points.iter().map(|point| (point.x, Why::Again)).collect()
        } else if self.goal.line {
            Glance::of(self.points, round).map_or(Vec::new(), |glance| glance.decide(self, round))
        } else {
            Vec::new()
        };
        out.extend(self.limits_decide(round));
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        out.dedup_by(|a, b| a.0 == b.0);
        out
    }

    /// The values that decide about the limits of conditions, from the visits before `round`.
    fn limits_decide(&self, round: u32) -> Vec<(f64, Why)> {
        let known = Seen::before(self.points, round);
        let mut out = Vec::new();
        for conditions in &self.goal.limits {
            out.extend(self.limit_decides(&known, conditions));
        }
        out
    }

    /// The values that decide about one limit, given the points so far, ascending. None if it is known.
    fn limit_decides(&self, known: &[Seen], conditions: &[Condition]) -> Vec<(f64, Why)> {
        let Some(last) = known.len().checked_sub(1) else { return Vec::new() };
        let Bracket { low, high } = Bracket::of(known, conditions);
        let seems = |index: usize| known[index].seems_to_keep(conditions);
        // By the means, the limit lies between the points `below` and `above`.
        let above = (0..=last).find(|&index| !seems(index));
        let below = above.map_or(Some(last), |above| above.checked_sub(1));
        let between = |above: usize, below: usize| {
            self.between(known[below].x, known[above].x, self.limits.finest_limit).map(|x| (x, Why::Limit))
        };
        let bracketed = (low.is_some() || below.is_none()) && (high.is_some() || above.is_none());
        let finer = above.zip(below).filter(|_| bracketed).and_then(|(above, below)| between(above, below));
        let (from, to) = (low.map_or(0, |low| low + 1), high.unwrap_or(last + 1).min(last + 1));
        let mut unsure: Vec<usize> = (from..to).filter(|&index| !known[index].is_exhausted()).collect();
        // Nothing is left between the two ends, and they are as close as they may be.
        let decided = unsure.is_empty() && finer.is_none();
        if decided {
            return Vec::new();
        }
        // The points next to the limit first; the others between the two ends wait until those are sure.
        let at = below.unwrap_or(0);
        unsure.sort_by_key(|&index| if index <= at { at - index } else { index - at - 1 });
        unsure.truncate(LONGEST_LIMIT);
        unsure.iter().map(|&index| (known[index].x, Why::Again)).chain(finer).collect()
    }

    /// True if a point has had its visit of this round, or all the time that it may have.
    fn had(&self, point: &Point, round: u32) -> bool {
        point.visits.iter().any(|visit| visit.round == round) || point.job.runtime_ns >= self.limits.point_cap_ns
    }

    /// True if the depths that decide are known as well as asked, and no depth between them is missing.
    fn settled(&self, rounds: u32) -> bool {
        let deciding = self.decide(rounds + 1);
        if deciding.is_empty() {
            return true;
        }
        if rounds < FEWEST_ROUNDS {
            return false;
        }
        // A curve that still rises has no bounds that come closer.
        let line = self.limits.until.and_then(|factor| Some((factor, find(self.points)?)));
        if let Some((factor, line)) = line.filter(|(_, line)| line.answer() != Answer::Beyond) {
            return line.factor().is_some_and(|apart| apart <= factor);
        }
        if deciding.iter().any(|(_, why)| *why != Why::Again) {
            return false;
        }
        // Points of a limit decide only as long as the limit is not sure.
        if !self.goal.limits.is_empty() && !self.limits_decide(rounds + 1).is_empty() {
            return false;
        }
        if !self.goal.line && !self.goal.is_everywhere() {
            return true;
        }
        let points: Vec<&Point> = self.points.iter().collect();
        let Some(effects) = Effects::of(&looks(&points)) else { return false };
        let half = t_quantile(0.975, effects.freedom);
        effects.standard_errors().iter().all(|error| half * error <= self.limits.bound)
    }
}

/// The curve as it is known before a round.
struct Glance {
    x: Vec<f64>,
    /// The logarithm of the throughput of each depth.
    ln_y: Vec<f64>,
    /// The rough standard error of each logarithm in `ln_y`.
    errors: Vec<f64>,
}

impl Glance {
    /// The curve from the visits before `round`; None with fewer than three depths.
    fn of(points: &[Point], round: u32) -> Option<Glance> {
        let mut known: Vec<&Point> = points
            .iter()
            .filter(|point| point.x > 0.0 && point.visits.iter().any(|visit| visit.round < round))
            .collect();
        known.sort_by(|a, b| a.x.total_cmp(&b.x));
        let looks: Vec<Look> = looks(&known).into_iter().filter(|look| look.round < round).collect();
        let (mut x, mut ln_y, mut counts, mut away) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (depth, point) in known.iter().enumerate() {
            let of_depth = || looks.iter().filter(move |look| look.depth == depth);
            // The first look counts only where the depth has no other look.
            let confirmed = of_depth().any(|look| look.round > 0);
            let mut levels: Vec<f64> =
                of_depth().filter(|look| !confirmed || look.round > 0).map(|look| look.ln).collect();
            if levels.is_empty() {
                continue;
            }
            levels.sort_by(f64::total_cmp);
            let level = sorted_quantile(&levels, 0.5);
            x.push(point.x);
            ln_y.push(level);
            counts.push(levels.len() as f64);
        }
        // The first looks tell how far visits to one depth lie apart, too.
        for depth in 0..known.len() {
            let all: Vec<f64> = looks.iter().filter(|look| look.depth == depth).map(|look| look.ln).collect();
            let spread = (all.len() as f64 / (all.len() as f64 - 1.0)).sqrt();
            away.extend(all.iter().filter(|_| all.len() > 1).map(|level| (level - mean(&all)).abs() * spread));
        }
        away.sort_by(f64::total_cmp);
        let error = match away.len() {
            0..FEWEST_AWAY => EXPECTED_ERROR,
            _ => (1.5 * sorted_quantile(&away, 0.5)).max(1e-3),
        };
        // Before visits can differ, the samples within them tell a part of the error.
        let within = (looks.iter().map(|look| look.within.powi(2)).sum::<f64>() / looks.len().max(1) as f64).sqrt();
        let error = error.max(within);
        let errors = counts.iter().map(|count| error / count.sqrt()).collect();
        (x.len() >= 3).then_some(Glance { x, ln_y, errors })
    }

    /// The depths that decide, ascending, and why each of them is measured.
    fn decide(&self, state: &State, round: u32) -> Vec<(f64, Why)> {
        let fit = unimodal(&self.ln_y, &weights(&self.errors));
        let in_place = state.limits.in_place;
        let height = fit.iter().copied().fold(f64::MIN, f64::max);
        let (first, last) =
            (fit.iter().position(|y| *y == height).unwrap_or(0), fit.iter().rposition(|y| *y == height).unwrap_or(0));
        // In slices, the noise of one depth is large.
        let (height, first, last) = match plateau(&fit, &self.ln_y, &self.errors) {
            (pooled, first, last) if in_place && first < last => {
                (highest_half(&self.ln_y[first..=last], &self.errors[first..=last]).max(pooled), first, last)
            }
            _ => (height, first, last),
        };
        let deepest = self.x.len() - 1;
        // The queue of a deep slice takes long to fill and to drain: such depths wait for every third round.
        let deep_too = !in_place || round % EVERY == 1;
        let most = if in_place { LONGEST_IN_SLICES } else { LONGEST_ROUND };
        let mut chosen: Vec<usize> = Vec::new();
        let mut choose = |depth: usize| {
            if !chosen.contains(&depth) && chosen.len() < most {
                chosen.push(depth);
            }
        };
        // The first depth of the fit at the level of the load line, and the one before it.
        let line = height + LOAD_LINE_FRACTION.ln();
        let reached = fit.iter().position(|y| *y >= line).unwrap_or(deepest);
        choose(reached);
        choose(reached.saturating_sub(1));
        choose(first);
        let over = height + OVERLOAD_FRACTION.ln();
        let fallen = (last + 1..=deepest).find(|&depth| fit[depth] <= over);
        if let Some(fallen) = fallen {
            choose(fallen);
            choose(fallen - 1);
        }
        if deep_too {
            choose(deepest);
            choose(last);
        }
        if !in_place {
            choose(reached.saturating_sub(2));
        }
        // Depths that may lie on either side of the level, those next to the load line first.
        let unsure = |depth: usize, level: f64| (self.ln_y[depth] - level).abs() <= UNSURE * self.errors[depth];
        (reached + 1..first).filter(|&depth| unsure(depth, line)).for_each(&mut choose);
        (0..reached).rev().filter(|&depth| unsure(depth, line)).for_each(&mut choose);
        // The depths at the height of the plateau: together they tell the height better than one.
        (0..=deepest).filter(|&depth| fit[depth] >= height - 0.01).for_each(&mut choose);
        let mut out: Vec<(f64, Why)> = chosen.iter().map(|&depth| (self.x[depth], Why::Again)).collect();
        // Were the curve still rising at its end, the load line would be wherever the sweep ends.
        let rising = reached == deepest && first == deepest && deepest > 0;
        let finest = state.limits.finest;
        let between = |above: usize| state.between(*self.x.get(above.checked_sub(1)?)?, self.x[above], finest);
        // Where noise may have put the line between the wrong neighbours, another visit tells more than another depth:
        // each depth takes its time from those that decide.
        let sure = |depth: usize| (self.ln_y[depth] - line).abs() > SURE * self.errors[depth];
        let bracketed = reached > 0 && sure(reached) && sure(reached - 1);
        out.extend(between(reached).filter(|_| !rising && bracketed).map(|x| (x, Why::LoadLine)));
        out.extend(fallen.and_then(between).map(|x| (x, Why::Overload)));
        // A curve that falls off on a side of its top may have its true top in between; the noise alone may explain a
        // small fall.
        let noise = |depth: usize| FALL * self.errors[depth].hypot(self.errors[first]);
        let falls_off = |depth: usize| fit[depth] < height - noise(depth).max(PEAKED);
        let left = Some(first).filter(|_| first > 0 && !rising && falls_off(first - 1));
        let right = Some(last + 1).filter(|&next| next <= deepest && falls_off(next));
        // Two depths of one height may have the true top between them.
        let both = Some(last).filter(|_| last == first + 1 && left.is_some() && right.is_some());
        out.extend([left, right, both].into_iter().flatten().filter_map(between).map(|x| (x, Why::Plateau)));
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        out.dedup_by(|a, b| a.0 == b.0);
        out
    }
}

/// The highest mean of neighbours of the plateau that tell half as much as all of its points together.
fn highest_half(levels: &[f64], errors: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> = levels.iter().copied().zip(weights(errors)).collect();
    let half = points.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let of = |from: usize| {
        let (mut weights, mut sum) = (0.0, 0.0);
        points[from..].iter().find_map(|(level, weight)| {
            weights += weight;
            sum += weight * level;
            (weights >= half).then(|| sum / weights)
        })
    };
    (0..points.len()).filter_map(of).fold(f64::MIN, f64::max)
}

impl State<'_> {
    /// A depth halfway (by factor) between two; None if the two are as close as they may be.
    fn between(&self, low: f64, high: f64, finest: f64) -> Option<f64> {
        let exact = (low * high).sqrt();
        let x = if self.whole { exact.round() } else { exact };
        let fine = high / low <= finest || (self.whole && high - low <= 1.0);
        (self.finer && !fine && x > low && x < high).then_some(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_line;
    use crate::schema::{Answer, Interval, JobResult};
    use crate::stats::test_noise::Noise;

    const MS: u64 = 1_000_000;

    /// Runs `curve` as a sweep would, in intervals of 20 ms, until the sweep is done.
    fn sweep(asked: &[f64], limits: &Limits, noise: f64, curve: impl Fn(f64) -> f64) -> (Vec<Point>, Vec<Step>, u64) {
        let mut random = Noise::new(7);
        let (mut points, mut steps, mut spent): (Vec<Point>, Vec<Step>, u64) = Default::default();
        loop {
            let step = next(&Goal::load_line(), asked, &points, spent, limits);
            steps.push(step.clone());
            let Step::Measure { x, runtime_ns, round, .. } = step else { return (points, steps, spent) };
            assert!(runtime_ns > 0 && steps.len() < 1000, "{steps:?}");
            let mut job = JobResult { runtime_ns, interval_ns: 20 * MS, ..JobResult::default() };
            for index in 0..runtime_ns / (20 * MS) {
                let mut interval =
                    Interval { end_ns: (index + 1) * 20 * MS, length_ns: 20 * MS, ..Interval::default() };
                interval.ops.read = (curve(x) * 0.02 * (1.0 + noise * random.normal())).max(0.0) as u64;
                job.intervals.push(interval);
            }
            let mut point = Point::of(x, job);
            point.visits.iter_mut().for_each(|visit| (visit.at_ns, visit.round) = (spent, round));
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

    /// The depths of each round, in the order of their visits.
    fn rounds(steps: &[Step]) -> Vec<Vec<f64>> {
        let mut out: Vec<Vec<f64>> = Vec::new();
        for step in steps {
            if let Step::Measure { x, round, .. } = *step {
                out.resize((round as usize + 1).max(out.len()), Vec::new());
                out[round as usize].push(x);
            }
        }
        out
    }

    /// The machine may be in another state when a sweep is resumed: a round belongs to one of its parts.
    #[test]
    fn a_resumed_sweep_begins_a_round_of_its_own() {
        let limits = Limits::within(6_000 * MS, 7);
        let asked = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
        let (mut points, ..) = sweep(&asked, &limits, 0.01, |x| x.min(20.0) * 1000.0);
        let last = points.iter().flat_map(|point| &point.visits).map(|visit| visit.round).max().unwrap();
        let at = points.iter().position(|point| point.visits.iter().any(|visit| visit.round == last)).unwrap();
        let left_out = points[at].visits.pop().unwrap();
        let limits = Limits { point_cap_ns: u64::MAX, curve_cap_ns: u64::MAX, ..limits };
        let round = |closed: u32| match next(
            &Goal::load_line(),
            &asked,
            &points,
            7_000 * MS,
            &Limits { closed, ..limits.clone() },
        ) {
            Step::Measure { round, .. } => round,
            done => panic!("{done:?}"),
        };
        assert_eq!((left_out.round, round(0)), (last, last), "the round is not complete");
        assert_eq!(round(last), last + 1);
    }

    #[test]
    fn asked_depths_come_first_then_rounds_up_and_down_over_those_that_decide() {
        let limits = Limits::within(60_000 * MS, ASKED.len());
        let (points, steps, spent) = sweep(&ASKED, &limits, 0.01, hard_knee);
        let rounds = rounds(&steps);
        assert_eq!(rounds[0], ASKED);
        assert!(rounds.len() > FEWEST_ROUNDS as usize, "{rounds:?}");
        for (number, round) in rounds.iter().enumerate().skip(1) {
            assert!(round.is_sorted() || number % 2 == 0, "{number}: {round:?}");
            assert!(round.is_sorted_by(|a, b| a >= b) || number % 2 == 1, "{number}: {round:?}");
            assert!(round.contains(&128.0) && !round.contains(&1.0), "{number}: {round:?}");
        }
        assert!(rounds.iter().flatten().any(|x| (17.0..32.0).contains(x)), "the knee is cut finer: {rounds:?}");
        assert_eq!(steps.last(), Some(&Step::Done(Done::Settled)));
        assert!(spent < limits.curve_cap_ns);
        let line = load_line::find(&points).unwrap();
        let Answer::At(line) = line.answer() else { panic!("{line:?}") };
        assert!((line.low..=line.high).contains(&25.0) && line.high / line.low <= 1.3, "{line:?}");
    }

    #[test]
    fn overload_is_cut_finer_too() {
        let limits = Limits::within(60_000 * MS, ASKED.len());
        let falling = |depth: f64| hard_knee(depth) * if depth > 50.0 { (50.0 / depth).sqrt() } else { 1.0 };
        let (points, steps, _) = sweep(&ASKED, &limits, 0.01, falling);
        assert!(steps.iter().any(|step| matches!(step, Step::Measure { why: Why::Overload, .. })));
        let overload = load_line::find(&points).unwrap().overload.unwrap();
        assert!((overload.low..=overload.high).contains(&56.0) && overload.high / overload.low < 1.6, "{overload:?}");
    }

    #[test]
    fn noise_that_no_time_averages_out_ends_at_the_cap() {
        let limits = Limits { point_cap_ns: 4_000 * MS, ..Limits::within(600_000 * MS, ASKED.len()) };
        let (points, steps, spent) = sweep(&ASKED, &limits, 1.0, |_| 1e5);
        assert_eq!(steps.last(), Some(&Step::Done(Done::Settled)));
        assert!(points.iter().all(|point| point.job.runtime_ns < limits.point_cap_ns + limits.first_ns));
        assert!(spent < limits.curve_cap_ns);
    }

    #[test]
    fn a_list_is_confirmed_and_not_refined() {
        let limits = Limits { finest: f64::INFINITY, ..Limits::within(60_000 * MS, ASKED.len()) };
        let (points, steps, _) = sweep(&ASKED, &limits, 0.01, hard_knee);
        assert_eq!(points.len(), ASKED.len());
        assert!(rounds(&steps).len() > FEWEST_ROUNDS as usize);
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
        assert_eq!(next(&Goal::load_line(), &[], &[], 0, &Limits::within(MS, 0)), Step::Done(Done::Settled));
        assert_eq!(next(&Goal::load_line(), &[1.0], &[], MS, &Limits::within(MS, 1)), Step::Done(Done::OutOfTime));
    }
}
