//! The effort of a sweep: its axes, its precision, and its duration.
#![forbid(unsafe_code)]

use std::time::Duration;

use measure::Objective;
use measure::limit::Condition;
use measure::refine::Goal;

use super::axis::{Axis, Role};
use super::precondition::Rounds;
use super::values::Values;

/// The effort of a sweep: its axes, its precision, and its duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// The option that the points of a curve differ in.
    pub axis: Axis,
    /// The option that the curves differ in; None: the engine.
    pub across: Option<Axis>,
    /// Requests in flight where no axis decides it; None: as many as suit the axis.
    pub depth: Option<u32>,
    /// Latencies that are to be kept.
    pub objectives: Vec<Objective>,
    /// Preconditions the target first, beside the time of the sweep.
    pub precondition: Option<Rounds>,
    /// Half of the 95 % confidence interval, relative to the mean, at which the depths that decide are known well
    /// enough.
    pub bound: f64,
    /// Goes on until the bounds of the load line are within this factor, or the time is over.
    pub until: Option<f64>,
    /// The time for which a visit to a depth measures.
    pub first: Duration,
    /// The longest time for which a depth is measured, all visits together.
    pub point_cap: Duration,
    /// Duration of everything, layout included. A measurement that is under way is finished.
    pub total: Duration,
    /// Time between two calls of [`Watch::save`](super::Watch::save).
    pub save_every: Duration,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            axis: Axis::depths(Values::Range(1, 1024)),
            across: None,
            depth: None,
            objectives: Vec::new(),
            precondition: None,
            bound: 0.005,
            until: None,
            first: Duration::from_millis(400),
            point_cap: Duration::from_secs(4),
            total: Duration::from_secs(40),
            save_every: Duration::from_secs(60),
        }
    }
}

impl Effort {
    /// The axes.
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        [Some(&self.axis), self.across.as_ref()].into_iter().flatten()
    }

    /// Requests in flight where no axis decides it.
    pub fn depth(&self) -> u32 {
        let usual = || self.axes().map(Axis::usual_depth).max().unwrap_or(1);
        self.depth.unwrap_or_else(|| if self.axes().any(|axis| axis.role() == Role::Clones) { 1 } else { usual() })
    }

    /// The questions that the sweep answers.
    pub fn goal(&self) -> Goal {
        let keeps_up = self.axis.is_rate().then_some(Condition::KeepsUp);
        let mut limits: Vec<Vec<Condition>> = keeps_up.into_iter().map(|condition| vec![condition]).collect();
        if !self.objectives.is_empty() {
            let objectives = self.objectives.iter().copied().map(Condition::Objective);
            limits.push(keeps_up.into_iter().chain(objectives).collect());
        }
        Goal { line: self.axis.has_load_line(), limits }
    }
}
