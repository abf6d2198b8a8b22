//! Answers of a learnt machine to the questions that a user has before he changes anything.

use measure::figures;
use serde::Serialize;

use super::super::machine::Machine;
use super::super::sweep::{Run, run_all};
use super::curves::{Curve, Line, Point};
use super::search::{Fitted, run_of};
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
/// Drives that the question adds.
const MORE_DRIVES: u32 = 2;

/// For each curve, the answers to pacing, two more drives, half of the cores and twice the hosts.
///
/// # Errors
/// A machine that cannot be simulated.
pub fn answers(curves: &[Curve], fitted: &Fitted, threads: usize) -> Result<Vec<Answer>, Error> {
    let machine = &fitted.machine;
    let error = fitted.error().map(|(factor, _)| factor);
    let cores_known = fitted.constants.iter().any(|constant| constant.name == "op_us");
    let mut answers = Vec::new();
    for curve in curves {
        let about = About { curve, machine, error, cores_known, threads };
        answers.extend([about.pacing()?, about.drives()?, about.cores()?, about.hosts()?]);
    }
    Ok(answers)
}

struct About<'a> {
    curve: &'a Curve,
    machine: &'a Machine,
    /// The factor by which a simulated throughput may be wrong.
    error: Option<f64>,
    /// True if the results tell the cores' time from the drives'.
    cores_known: bool,
    threads: usize,
}

impl About<'_> {
    fn deepest(&self) -> Point {
        self.curve.points[self.curve.points.len() - 1]
    }

    fn answer(&self, change: &str, iops: Option<(f64, f64)>, text: String) -> Answer {
        Answer { curve: self.curve.name.clone(), change: change.into(), iops, text }
    }

    fn iops(&self, run: Run) -> Result<f64, Error> {
        Ok(run_all(&[run], self.threads, &|_| {})?[0].iops)
    }

    fn simulated(&self, machine: &Machine, curve: &Curve) -> Result<f64, Error> {
        self.iops(run_of(machine, curve, &self.deepest(), OPS)?)
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
        let mut run = run_of(self.machine, curve, &deepest, OPS)?;
        run.scenario.pacing = Config::auto(None);
        (run.scenario.warmup_seconds, run.scenario.seconds) = PACED_S;
        let paced = self.iops(run)?;
        let gain = paced / deepest.iops;
        let verdict = match self.error {
            Some(error) if gain > error => "more than the model's error",
            Some(_) => "not more than the model's error",
            None => "by an error that too few points tell",
        };
        let text = format!(
            "auto gives {} IOPS at depth {}, where {} were measured ({:+.0} %, {verdict}); throughput falls from depth \
             {overload} on",
            figures::count(paced),
            deepest.depth,
            figures::count(deepest.iops),
            100.0 * (gain - 1.0),
        );
        Ok(self.answer("pacing", Some(self.interval(paced)), text))
    }

    fn interval(&self, iops: f64) -> (f64, f64) {
        let error = self.error.unwrap_or(1.0);
        (iops / error, iops * error)
    }

    /// Ops per second if the first of two parts of the machine limits, and if the second does.
    fn between(&self, change: &str, low: f64, high: f64, parts: (&str, &str)) -> Answer {
        let at = format!("at depth {}", self.deepest().depth);
        let text = if (high / low - 1.0).abs() < 0.02 {
            format!("{} IOPS {at}: not a change", figures::count(high))
        } else {
            format!(
                "{} IOPS {at} if {} limit, {} if {} do: the results do not tell",
                figures::count(low),
                parts.0,
                figures::count(high),
                parts.1
            )
        };
        self.answer(change, Some((low, high)), text)
    }

    fn drives(&self) -> Result<Answer, Error> {
        let change = format!("{MORE_DRIVES} more drives");
        let more = Curve { drives: self.curve.drives + MORE_DRIVES, ..self.curve.clone() };
        let now = self.simulated(self.machine, self.curve)?;
        let then = self.simulated(self.machine, &more)?;
        if self.cores_known {
            return Ok(self.known(&change, now, then));
        }
        Ok(self.between(&change, now.min(then), then, ("the cores", "the drives")))
    }

    fn cores(&self) -> Result<Answer, Error> {
        let change = "half of the cores";
        let now = self.simulated(self.machine, self.curve)?;
        if self.cores_known {
            // Half of the cores is the same cores at half of their speed.
            let mut half = self.machine.clone();
            (half.op_us, half.deep_us) = (2.0 * half.op_us, 2.0 * half.deep_us);
            return Ok(self.known(change, now, self.simulated(&half, self.curve)?));
        }
        Ok(self.between(change, now / 2.0, now, ("the cores", "the drives")))
    }

    fn hosts(&self) -> Result<Answer, Error> {
        let twice = Curve { hosts: 2 * self.curve.hosts, ..self.curve.clone() };
        let now = self.simulated(self.machine, self.curve)?;
        Ok(self.known("twice the hosts", now, self.simulated(self.machine, &twice)?))
    }

    fn known(&self, change: &str, now: f64, then: f64) -> Answer {
        let (part, error) = (then / now - 1.0, self.error);
        let verdict = match error {
            Some(error) if part.abs() + 1.0 > error => "more than the model's error",
            Some(_) => "not more than the model's error",
            None => "by an error that too few points tell",
        };
        let text = format!(
            "{} IOPS at depth {} instead of {} ({:+.0} %, {verdict})",
            figures::count(then),
            self.deepest().depth,
            figures::count(now),
            100.0 * part
        );
        self.answer(change, Some(self.interval(then)), text)
    }
}
