//! Both sides in one run, in short turns: A rests while B works.
//!
//! ```text
//! A ▒██▒    ▒▒██▒██▒    ▒
//! B     ▒██▒        ▒▒██   the first quarter of a turn and another one (▒) are not measured
//! ```
//!
//! The requests of the other side end in the first quarter. The other one lies before the measured part, behind it, or
//! on both sides of it: requests that began together end together, so that parts at the same place in each turn would
//! all hold a batch too many, or all one too few.
//!
//! A drift of the machine lasts longer than a turn, so that both sides share it. A process has a speed of its own (its
//! place in memory, its processor), so that a comparison takes several runs, and each run gives one ratio.
//!
//! Storage may remember the side before: a token bucket, a write cache. Each run therefore has turns of two lengths,
//! and turns become longer until both lengths give the same ratio.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use job::job::{Job, Plan, Turn};
use measure::schema::{CannotTell, ComparisonResult, JobResult, RunResult};
use measure::{effect, figures, stats, verdict};

use super::{Side, Watch, check_figure, concluded, succeeded};
use crate::Error;
use crate::run::{Control, Progress};

/// The length of short turns in the first run, which shows how long an op takes. It counts for nothing else.
const FIRST_NS: u64 = 50_000_000;
/// Short turns last for at least this time, for this many ops of the slower side, and for this many of its latencies.
const SHORTEST_NS: u64 = 50_000_000;
const FEWEST_OPS: f64 = 20.0;
const LATENCIES: f64 = 6.0;
/// The part of each turn that passes before it is measured: one in this number, at least a generation of the queue.
const SETTLING: u64 = 4;
/// The part of a short turn by which the measured part moves, from turn to turn: at least a generation, too.
const MOVING: u64 = 4;
/// Long turns are this many times as long as short ones.
const LONG: u64 = 4;
/// The order of the sides in the turns of one length: a steady drift adds as much to the one side as to the other.
const ORDER: [usize; 4] = [0, 1, 1, 0];
/// The turns of a run by their lengths, in short turns: two to warm up, and the order twice short and once long.
const LENGTHS: [u64; 14] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, LONG, LONG, LONG, LONG];
/// The turns that warm up.
const WARM_UP: usize = 2;
/// The least number of runs that gives an answer.
const FEWEST_RUNS: u64 = 5;
/// A difference between the ratios of short and of long turns, as a logarithm, that matters to nobody.
const NO_MATTER: f64 = 0.003;
/// The chance that a look finds a memory where there is none.
const FALSE_MEMORY: f64 = 0.01;

/// The effects of B against A from runs in which both sides take turns, `time_ns` nanoseconds in all; partial
/// (`Interrupted`) if `stop` was set on the way. [`CannotTell::Remembers`] where storage remembers the side before for
/// longer than turns can last.
///
/// # Errors
/// A figure that runs do not have. Jobs that cannot take turns, such as those with phases of their own. Storage that is
/// too slow for the time. An error of a run before it starts; a job that failed.
pub fn in_turns(
    sides: [&Side; 2],
    figure: &str,
    time_ns: u64,
    stop: &Arc<AtomicBool>,
    watch: &mut Watch,
) -> Result<ComparisonResult, Error> {
    check_figure(figure)?;
    sides.iter().flat_map(|side| &side.plan.jobs).try_for_each(can_rest)?;
    let mut runs = Runs { sides, stop, watch, time_ns, left_ns: time_ns, number: 0 };
    let mut pairs: Vec<Pair> = Vec::new();
    let mut length_ns = SHORTEST_NS;
    runs.suffice_for(length_ns)?;
    if let Some(first) = runs.next(FIRST_NS)? {
        length_ns = first.length_ns();
        runs.suffice_for(length_ns)?;
    }
    let mut is_first_half = true;
    while let Some(pair) = runs.next(length_ns)? {
        pairs.push(pair);
        if is_first_half && pairs.len() as u64 >= FEWEST_RUNS && runs.left_ns <= time_ns / 2 {
            is_first_half = false;
            let longer_ns = LONG * length_ns;
            if are_remembered(&pairs) && runs.left_ns >= FEWEST_RUNS * run_ns(longer_ns) {
                length_ns = longer_ns;
                pairs.clear();
            }
        }
    }
    let (count, remembers) = (pairs.len(), are_remembered(&pairs));
    let pairs: Vec<(RunResult, RunResult)> = pairs.into_iter().map(|pair| pair.sides.into()).collect();
    let mut effects = effect::paired(&pairs, 1);
    if remembers {
        effects.iter_mut().for_each(|effect| effect.cannot_tell = Some(CannotTell::Remembers));
    }
    let length = |ns: u64| figures::nanoseconds(ns as f64);
    let estimator = format!(
        "Both sides took turns of {} and {} in {count} runs. The values of A and B are geometric means over the runs. \
         The change is the ratio of the two means, with the interval of the ratios of the runs.",
        length(length_ns),
        length(LONG * length_ns),
    );
    Ok(concluded(sides, figure, pairs, effects, estimator, stop))
}

/// The runs of a comparison, as long as there is time for them.
struct Runs<'a, 'b> {
    sides: [&'a Side; 2],
    stop: &'a Arc<AtomicBool>,
    watch: &'a mut Watch<'b>,
    time_ns: u64,
    left_ns: u64,
    number: u32,
}

impl Runs<'_, '_> {
    /// # Errors
    /// The whole time is too short for an answer from turns of this length.
    fn suffice_for(&self, length_ns: u64) -> Result<(), Error> {
        let needed_ns = run_ns(FIRST_NS) + FEWEST_RUNS * run_ns(length_ns);
        if needed_ns <= self.time_ns {
            return Ok(());
        }
        let (time, needed_s) = (figures::nanoseconds(self.time_ns as f64), needed_ns.div_ceil(1_000_000_000));
        let hint = format!("give --time {needed_s}s, or leave it out: pairs of whole runs are compared then");
        Err(Error::usage("too little time for turns:", time, hint))
    }

    /// Carries out the next run, whose short turns last for `length_ns`. None where no time is left for it, or `stop`
    /// is set.
    fn next(&mut self, length_ns: u64) -> Result<Option<Pair>, Error> {
        let Some(left_ns) = self.left_ns.checked_sub(run_ns(length_ns)) else { return Ok(None) };
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (number, first) = (self.number, self.number as usize % 2);
        (self.left_ns, self.number) = (left_ns, number + 1);
        let turns = schedule(length_ns, number);
        let mut tick = |now: &Progress| (self.watch)(number, first, now);
        let mut control = Control { stop: self.stop.clone(), progress: Some(&mut tick), ..Control::default() };
        let run = succeeded(crate::run(&plan(self.sides, &turns), &mut control)?)?;
        // A run that was stopped has not had all its turns.
        if self.stop.load(Ordering::Relaxed) { Ok(None) } else { Pair::of(run, &turns).map(Some) }
    }
}

/// The time that a run takes whose short turns last for `length_ns`, in nanoseconds.
fn run_ns(length_ns: u64) -> u64 {
    LENGTHS.iter().sum::<u64>() * length_ns
}

/// The turns of each side in a run, and which of them are long.
type Schedule = [Vec<(Turn, Length)>; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// A turn that warms up.
    Ignored,
    Short,
    Long,
}

/// The turns of the run of this number. Runs begin with either side in turn, and have their measured parts elsewhere.
fn schedule(length_ns: u64, run: u32) -> Schedule {
    let first = run as usize % 2;
    let mut turns = Schedule::default();
    let mut from_ns = 0;
    for (number, length) in LENGTHS.into_iter().enumerate() {
        let side = match number.checked_sub(WARM_UP) {
            Some(measured) => ORDER[measured % ORDER.len()],
            None => number,
        };
        let kind = match length {
            _ if number < WARM_UP => Length::Ignored,
            LONG => Length::Long,
            _ => Length::Short,
        };
        let (turn_ns, moving_ns) = (length * length_ns, length_ns / MOVING);
        let opens_ns = from_ns + turn_ns / SETTLING + moved_ns(moving_ns, run, number);
        let closes_ns = opens_ns + turn_ns - turn_ns / SETTLING - moving_ns;
        let until_ns = from_ns + turn_ns;
        let turn = Turn { from_ns, opens_ns, closes_ns, until_ns };
        turns[(side + first) % 2].push((turn, kind));
        from_ns = until_ns;
    }
    turns
}

/// The time by which the measured part of a turn is moved, within 0..`most_ns`. Both turns that a side has in one
/// [`ORDER`] lie as far from the middle, so that a steady drift still adds as much to the one side as to the other.
fn moved_ns(most_ns: u64, run: u32, turn: usize) -> u64 {
    let Some(measured) = turn.checked_sub(WARM_UP) else { return 0 };
    let (order, place) = (measured / ORDER.len(), measured % ORDER.len());
    // Pairs of multiples lie evenly in the unit square, however many there are (Roberts, "The unreasonable
    // effectiveness of quasirandom sequences", 2018). The mean of two hits batches of any length more evenly than one.
    let number = run as usize * (LENGTHS.len() - WARM_UP) / ORDER.len() + order;
    let [one, other] = [0.754_877_666_246_693, 0.569_840_290_998_053].map(|of| (number as f64 * of).fract());
    let part = (one + other) / 2.0;
    let moved_ns = (part * most_ns as f64) as u64;
    if place < ORDER.len() / 2 { moved_ns } else { most_ns - moved_ns }
}

/// The plan of a run with these turns, which reports each side as one group.
fn plan(sides: [&Side; 2], turns: &Schedule) -> Plan {
    let mut plan = Plan { global_options: sides[0].plan.global_options.clone(), ..Plan::default() };
    for (side, turns) in sides.iter().zip(turns) {
        for (number, job) in side.plan.jobs.iter().enumerate() {
            let mut job = job.clone();
            job.process.group_reporting = true;
            let time = &mut job.time;
            (time.new_group, time.stonewall) = (number == 0, false);
            (time.runtime_ns, time.time_based, time.ramp_ns, time.ramp_bytes) = (None, true, 0, 0);
            time.turns = turns.iter().map(|(turn, _)| *turn).collect();
            plan.jobs.push(job);
        }
    }
    plan
}

/// The measurements of both sides in a run.
struct Pair {
    sides: [RunResult; 2],
    /// The throughput of both sides in short turns, and in long ones.
    iops: [[f64; 2]; 2],
}

impl Pair {
    /// # Errors
    /// A side that had done its work before its last turn.
    fn of(mut run: RunResult, schedule: &Schedule) -> Result<Pair, Error> {
        let jobs = std::mem::take(&mut run.jobs);
        let mut iops = [[0.0; 2]; 2];
        let mut side_of = |side: usize| {
            let (turns, job) = (&schedule[side], jobs.get(side));
            let measured = job.map(|job| &job.slices[..]).filter(|measured| measured.len() == turns.len());
            let measured = measured.ok_or_else(|| ended_early(job))?;
            let of = |wanted: Length| {
                let turns = turns.iter().zip(measured).filter(|((_, length), _)| *length == wanted);
                turns.map(|(_, job)| job.clone()).reduce(joined).unwrap_or_default()
            };
            let [short, long] = [of(Length::Short), of(Length::Long)];
            for (length, job) in [&short, &long].into_iter().enumerate() {
                iops[length][side] = job.total_ops() as f64 * 1e9 / job.runtime_ns.max(1) as f64;
            }
            let mut result = RunResult { jobs: vec![joined(short, long)], ..run.clone() };
            judge(&mut result);
            Ok(result)
        };
        let sides = [side_of(0)?, side_of(1)?];
        Ok(Pair { sides, iops })
    }

    /// The length that short turns need, in nanoseconds.
    fn length_ns(&self) -> u64 {
        let of_side = |run: &RunResult| {
            let job = &run.jobs[0];
            let apart_ns = job.runtime_ns as f64 / (job.total_ops() as f64).max(0.5);
            (LATENCIES * job.lat_ns().mean()).max(FEWEST_OPS * apart_ns)
        };
        (self.sides.iter().map(of_side).fold(0.0, f64::max) as u64).max(SHORTEST_NS)
    }
}

/// One result for two turns of a side.
fn joined(mut earlier: JobResult, later: JobResult) -> JobResult {
    earlier.append(later);
    earlier
}

/// Judges the measurements; turns are short on purpose, so that steadiness is not judged.
fn judge(run: &mut RunResult) {
    run.jobs.iter_mut().for_each(JobResult::judge);
    let judged = verdict::for_run(run);
    (run.verdicts, run.checks) = (judged.verdicts, judged.checks);
    let jobs = run.jobs.iter_mut().map(|job| &mut job.verdicts);
    let of_length = ["interval-too-short", "steadiness-unknown"];
    jobs.for_each(|verdicts| verdicts.retain(|verdict| !of_length.contains(&verdict.code.as_str())));
}

/// True if the ratio of the sides depends on the length of the turns: the storage remembers the side before.
fn are_remembered(pairs: &[Pair]) -> bool {
    let ratio = |[a, b]: [f64; 2]| b / a;
    let lengths: Vec<(f64, f64)> = pairs.iter().map(|pair| (ratio(pair.iops[0]), ratio(pair.iops[1]))).collect();
    stats::paired_change(&lengths, FALSE_MEMORY)
        .is_some_and(|by| (by.low > 0.0 || by.high < 0.0) && by.mean.abs() > NO_MATTER)
}

/// Refuses jobs that cannot rest.
fn can_rest(job: &Job) -> Result<(), Error> {
    let (time, rate) = (&job.time, &job.rate);
    let peer = job::engines::find(&job.engine).is_some_and(|engine| engine.to_peer);
    let reads_back = job.changes_data() && job.verify.as_ref().is_some_and(|verify| verify.enabled);
    let has = |minima: &measure::PerDirection<Option<u64>>| minima.iter().any(|(_, least)| least.is_some());
    let what = match () {
        () if peer => "an engine that serves a peer",
        () if reads_back => "verify=",
        () if job.iolog.threads.is_some() => "read_iolog=",
        () if time.wait_for.is_some() => "wait_for=",
        () if time.start_delay_ns.1 > 0 => "startdelay=",
        () if time.steady_state.is_some() => "steadystate=",
        () if rate.latency_target.is_some() => "latency_target=",
        () if has(&rate.min_bytes) || has(&rate.min_iops) => "rate_min= or rate_iops_min=",
        () if rate.flow.is_some() => "flow=",
        () => return Ok(()),
    };
    let hint = "leave out --time: pairs of whole runs are compared then";
    Err(Error::usage(format!("--time cannot let a job rest that has {what}:"), format!("job {}", job.name), hint))
}

fn ended_early(job: Option<&JobResult>) -> Error {
    let place = job.map_or("no job reports", |job| &job.name);
    let hint = "leave out number_ios, io_size, loops and stats=0, or leave out --time";
    Error::usage("a side had done its work before its last turn:", place, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_get_the_same_turns_and_never_at_once() {
        for run in 0..20 {
            let schedule = schedule(1000, run);
            assert_eq!(schedule[run as usize % 2][0].0.from_ns, 0);
            let mut all: Vec<Turn> = schedule.iter().flatten().map(|(turn, _)| *turn).collect();
            all.sort_by_key(|turn| turn.from_ns);
            assert!(all.windows(2).all(|two| two[0].until_ns == two[1].from_ns));
            assert_eq!(all.last().unwrap().until_ns, run_ns(1000));
            let is_within = |turn: &Turn| turn.opens_ns >= turn.from_ns + 250 && turn.closes_ns <= turn.until_ns;
            assert!(all.iter().all(is_within));
            for wanted in [Length::Short, Length::Long] {
                let of_side = |side: usize| {
                    let turns = schedule[side].iter().filter(move |(_, length)| *length == wanted);
                    turns.map(|(turn, _)| turn)
                };
                // A steady drift adds as much to one side as to the other: the turns have the same middle.
                let middle = |side: usize| of_side(side).map(|turn| turn.opens_ns + turn.closes_ns).sum::<u64>();
                let measured = |side: usize| of_side(side).map(|turn| turn.closes_ns - turn.opens_ns).sum::<u64>();
                assert_eq!((middle(0), measured(0)), (middle(1), measured(1)), "{wanted:?}");
            }
        }
    }

    /// A queue that begins with a turn completes in batches, at multiples of its latency. Turns of both lengths give
    /// the rate of the batches, as long as a turn holds [`LATENCIES`] of them.
    #[test]
    fn requests_that_end_together_have_their_rate() {
        let turn_ns = 50_000_000;
        for period_ns in (4..=33).map(|quarter_ms| quarter_ms * 250_000 - 1000) {
            for wanted in [Length::Short, Length::Long] {
                let schedules: Vec<Schedule> = (0..40).map(|run| schedule(turn_ns, run)).collect();
                let turns = schedules.iter().flat_map(|both| both.iter().flatten());
                let (mut batches, mut measured_ns) = (0, 0);
                for (turn, _) in turns.filter(|(_, length)| *length == wanted) {
                    let until = |ns: u64| (ns - turn.from_ns) / period_ns;
                    batches += until(turn.closes_ns) - until(turn.opens_ns);
                    measured_ns += turn.closes_ns - turn.opens_ns;
                }
                let rate = (batches * period_ns) as f64 / measured_ns as f64;
                assert!((rate - 1.0).abs() < 0.01, "{period_ns} ns, {wanted:?}: {rate}");
            }
        }
    }

    fn with(iops: impl Fn(usize) -> [[f64; 2]; 2]) -> Vec<Pair> {
        (0..8).map(|run| Pair { sides: Default::default(), iops: iops(run) }).collect()
    }

    #[test]
    fn a_ratio_that_depends_on_the_length_of_turns_is_seen() {
        let noise = |run: usize| 1.0 + 0.01 * ((run * 5 % 8) as f64 - 3.5) / 3.5;
        assert!(!are_remembered(&with(|run| [[100.0, 120.0 * noise(run)], [100.0, 120.0 * noise(run + 1)]])));
        assert!(are_remembered(&with(|run| [[100.0, 110.0 * noise(run)], [100.0, 120.0 * noise(run + 1)]])));
        // Two tenths of a percent matter to nobody.
        assert!(!are_remembered(&with(|_| [[100.0, 100.0], [100.0, 100.2]])));
    }
}
