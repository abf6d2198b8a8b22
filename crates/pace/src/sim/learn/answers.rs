//! Answers of a learnt machine to the questions that a user has before he changes anything.

use measure::figures;
use serde::Serialize;

use super::super::machine::Machine;
use super::super::sweep::run_all;
use super::Learned;
use super::correction::{Correction, Load};
use super::curves::{Curve, Line, Point};
use super::fit::Fitted;
use super::search::run_of;
use crate::config::{Config, Error};

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The curve that it is about.
    pub curve: String,
    /// The change.
    pub change: String,
    /// Ops per second after the change, at least and at most; None where the answer is that nothing changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<(f64, f64)>,
    /// The answer in words.
    pub text: String,
}

/// Ops of a simulated answer.
const OPS: f64 = 6000.0;
/// Seconds that the pacer gets to find its window, and seconds that count.
const PACED_S: (f64, f64) = (2.0, 1.0);
/// Another pacing method and half of the cores are as far from what was measured as half of the ops in flight.
const METHOD_OCTAVES: f64 = 1.0;
const CORES_OCTAVES: f64 = 1.0;
/// Drives that the question adds.
const MORE_DRIVES: u32 = 2;

/// For each curve, the answers to pacing, two more drives, half of the cores and twice the hosts.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn answers(curves: &[Curve], fitted: &Fitted, threads: usize) -> Result<Vec<Answer>, Error> {
    let mut machine = fitted.machine.clone();
    // The runs below are those of the model alone; each answer corrects its run.
    let Some(learned) = machine.learned.take() else { return Ok(Vec::new()) };
    let Some(correction) = learned.correction() else { return Ok(Vec::new()) };
    let cores_known = fitted.constants.iter().any(|constant| constant.name == "op_us");
    let mut answers = Vec::new();
    for curve in curves {
        let about =
            About { curve, machine: &machine, learned: &learned, correction: &correction, cores_known, threads };
        answers.extend([about.pacing()?, about.drives()?, about.cores()?, about.hosts()?]);
    }
    Ok(answers)
}

struct About<'a> {
    curve: &'a Curve,
    machine: &'a Machine,
    learned: &'a Learned,
    correction: &'a Correction,
    /// True if the results tell the cores' time from the drives'.
    cores_known: bool,
    threads: usize,
}

/// Ops per second, and the factor by which they may be wrong to both sides; None if too few points tell.
#[derive(Clone, Copy)]
struct Guess {
    iops: f64,
    error: Option<f64>,
}

impl Guess {
    fn interval(&self) -> (f64, f64) {
        let error = self.error.unwrap_or(1.0);
        (self.iops / error, self.iops * error)
    }

    /// The interval as a clause; nothing where too few points tell it.
    fn between(&self) -> String {
        let (low, high) = self.interval();
        let clause = format!(", {} to {},", figures::count(low), figures::count(high));
        if self.error.is_some() { clause } else { String::new() }
    }

    /// A clause on a change to this from `iops`.
    fn verdict(&self, iops: f64) -> &'static str {
        match self.error {
            Some(error) if (self.iops / iops).ln().abs() > error.ln() => "more than the model's error",
            Some(_) => "not more than the model's error",
            None => "by an error that too few points tell",
        }
    }
}

impl About<'_> {
    fn deepest(&self) -> Point {
        self.curve.points[self.curve.points.len() - 1]
    }

    fn load(&self, curve: &Curve) -> Load {
        curve.load(self.machine, self.deepest().depth)
    }

    fn answer(&self, change: &str, iops: Option<(f64, f64)>, text: String) -> Answer {
        Answer { curve: self.curve.name.clone(), change: change.into(), iops, text }
    }

    /// The octaves from the measured load to that of `curve`.
    fn octaves(&self, curve: &Curve) -> f64 {
        self.load(self.curve).octaves(&self.load(curve))
    }

    /// The throughput of `curve` at the largest depth on `machine`, these octaves from the measured load. The error at
    /// the measured load corrects it.
    fn guess(&self, machine: &Machine, curve: &Curve, octaves: f64) -> Result<Guess, Error> {
        let run = run_of(machine, curve, &self.deepest(), OPS)?;
        let simulated = run_all(&[run], self.threads, &|_| {})?[0].iops;
        let expected = self.correction.changed(&self.load(self.curve), octaves);
        Ok(Guess { iops: simulated * expected.log.exp(), error: self.learned.factor(expected).map(|(error, _)| error) })
    }

    fn now(&self) -> Result<Guess, Error> {
        self.guess(self.machine, self.curve, 0.0)
    }

    /// The throughput with the pacer, corrected by the error at the bytes that it keeps in flight.
    fn paced(&self) -> Result<Guess, Error> {
        let mut run = run_of(self.machine, self.curve, &self.deepest(), OPS)?;
        run.scenario.pacing = Config::auto(None);
        (run.scenario.warmup_seconds, run.scenario.seconds) = PACED_S;
        let outcome = &run_all(&[run], self.threads, &|_| {})?[0];
        let ops = outcome.in_flight_mib * 1_048_576.0 / self.curve.bytes as f64;
        let expected = self.correction.changed(&Load { ops, ..self.load(self.curve) }, METHOD_OCTAVES);
        let error = self.learned.factor(expected).map(|(error, _)| error);
        Ok(Guess { iops: outcome.iops * expected.log.exp(), error })
    }

    fn pacing(&self) -> Result<Answer, Error> {
        let (curve, deepest) = (self.curve, self.deepest());
        let depths = format!("the measured depths {} to {}", curve.points[0].depth, deepest.depth);
        let line = match &curve.load_line {
            Line::At(line) => line,
            Line::Beyond => {
                let text = format!("will not help: no load line lies within {depths}, throughput still rises");
                return Ok(self.answer("pacing", None, text));
            }
            Line::Unknown(why) => {
                let text = format!("cannot be told: the sweep names no load line within {depths}: {why}");
                return Ok(self.answer("pacing", None, text));
            }
        };
        let Some(overload) = curve.overload else {
            let text = format!(
                "will not raise the throughput: it does not fall within {depths}; beyond the load line at {line} \
                 requests would wait in the pacer instead of in the storage"
            );
            return Ok(self.answer("pacing", None, text));
        };
        let paced = self.paced()?;
        let text = format!(
            "auto gives {} IOPS at depth {}{} where {} were measured ({:+.0} %, {}); throughput falls from \
             depth {overload} on",
            figures::count(paced.iops),
            deepest.depth,
            paced.between(),
            figures::count(deepest.iops),
            100.0 * (paced.iops / deepest.iops - 1.0),
            paced.verdict(deepest.iops),
        );
        Ok(self.answer("pacing", Some(paced.interval()), text))
    }

    /// Ops per second if the first of two parts of the machine limits, and if the second does.
    fn between(&self, change: &str, low: Guess, high: Guess, parts: (&str, &str)) -> Answer {
        let at = format!("at depth {}", self.deepest().depth);
        let ends = (low.interval().0, high.interval().1);
        let with_error = format!("; with the model's error {} to {}", figures::count(ends.0), figures::count(ends.1));
        let text = if (high.iops / low.iops - 1.0).abs() < 0.02 {
            format!("{} IOPS {at}: not a change", figures::count(high.iops))
        } else {
            format!(
                "{} IOPS {at} if {} limit, {} if {} do: the results do not tell{}",
                figures::count(low.iops),
                parts.0,
                figures::count(high.iops),
                parts.1,
                if high.error.is_some() { with_error } else { String::new() }
            )
        };
        self.answer(change, Some(ends), text)
    }

    fn drives(&self) -> Result<Answer, Error> {
        let change = format!("{MORE_DRIVES} more drives");
        let more = Curve { drives: self.curve.drives + MORE_DRIVES, ..self.curve.clone() };
        let (now, then) = (self.now()?, self.guess(self.machine, &more, self.octaves(&more))?);
        if self.cores_known {
            return Ok(self.known(&change, now, then));
        }
        let least = Guess { iops: now.iops.min(then.iops), ..then };
        Ok(self.between(&change, least, then, ("the cores", "the drives")))
    }

    fn cores(&self) -> Result<Answer, Error> {
        let change = "half of the cores";
        let now = self.now()?;
        if self.cores_known {
            // Half of the cores is the same cores at half of their speed.
            let mut half = self.machine.clone();
            (half.op_us, half.deep_us) = (2.0 * half.op_us, 2.0 * half.deep_us);
            return Ok(self.known(change, now, self.guess(&half, self.curve, CORES_OCTAVES)?));
        }
        let then = self.guess(self.machine, self.curve, CORES_OCTAVES)?;
        let least = Guess { iops: then.iops / 2.0, ..then };
        Ok(self.between(change, least, then, ("the cores", "the drives")))
    }

    fn hosts(&self) -> Result<Answer, Error> {
        let twice = Curve { hosts: 2 * self.curve.hosts, ..self.curve.clone() };
        let then = self.guess(self.machine, &twice, self.octaves(&twice))?;
        Ok(self.known("twice the hosts", self.now()?, then))
    }

    fn known(&self, change: &str, now: Guess, then: Guess) -> Answer {
        let text = format!(
            "{} IOPS at depth {}{} instead of {} ({:+.0} %, {})",
            figures::count(then.iops),
            self.deepest().depth,
            then.between(),
            figures::count(now.iops),
            100.0 * (then.iops / now.iops - 1.0),
            then.verdict(now.iops)
        );
        self.answer(change, Some(then.interval()), text)
    }
}
