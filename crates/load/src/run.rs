//! Carrying out a plan: the call that the program makes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use job::job::Plan;
use measure::PerDirection;
use measure::schema::RunResult;

use crate::Error;
use crate::peers::Peers;

/// Controls that the caller keeps in hand while a plan runs.
#[derive(Default)]
pub struct Control<'a> {
    /// Set (by a signal handler) to end the run early: jobs stop issuing, wait for the requests in flight, and clean
    /// up.
    pub stop: Arc<AtomicBool>,
    /// Called a few times a second from the thread that called [`run`].
    pub progress: Option<&'a mut dyn FnMut(&Progress)>,
    /// Called before each call of `progress`, with the state of each clone and the number of its job.
    #[allow(clippy::type_complexity, reason = "an alias of a dyn type would lose the lifetime")]
    pub clones: Option<&'a mut dyn FnMut(&[(usize, CloneState)])>,
    /// An interval in nanoseconds, and the function that gets the result so far after each interval while load runs;
    /// `u64::MAX`: only when [`Control::status_wanted`] asks.
    pub status: Option<(u64, &'a mut dyn FnMut(RunResult))>,
    /// Set to have the result so far handed to the function of `status` at once. The run clears it.
    pub status_wanted: Arc<AtomicBool>,
    /// Length of the intervals in the result; None: each job's `bwavgtime`.
    pub interval_ns: Option<u64>,
    /// True if each interval carries its latency distribution.
    pub interval_histograms: bool,
    /// Clones are threads whatever the job says: for callers that have separate threads.
    pub threads_only: bool,
    /// True if a clone that cannot start fails alone, as in fio, and the others run. Otherwise it refuses the run.
    pub clones_fail_alone: bool,
    /// The peers that carry out the same plan elsewhere, and begin together with this run.
    pub peers: Option<&'a mut dyn Peers>,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The clones make their files.
    #[default]
    Layout,
    /// Load that is not measured yet.
    Ramp,
    /// Load runs and is measured.
    Run,
    /// Written blocks are read back and checked.
    Verify,
}

/// The state of a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneState {
    /// The clone's turn has not come yet.
    Waiting,
    /// The clone prepares itself.
    Layout,
    /// The clone's load is not measured yet.
    Ramp,
    /// The clone's load runs and is measured.
    Run,
    /// The clone reads written blocks back.
    Verify,
    /// The clone has ended.
    Ended,
    /// The clone has ended with an error.
    Failed,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The phase of the clone that is furthest behind.
    pub phase: Phase,
    /// Clones that are at work, and all clones of the plan.
    pub running: (u32, u32),
    /// Nanoseconds since the run began.
    pub elapsed_ns: u64,
    /// Part of the work that is done, 0..=1; None if it has no known end.
    pub done: Option<f64>,
    /// Nanoseconds until the end of the run, if known.
    pub remaining_ns: Option<u64>,
    /// Ops completed so far.
    pub ops: PerDirection<u64>,
    /// Bytes transferred so far.
    pub bytes: PerDirection<u64>,
    /// Sum of the latencies of the ops in `ops`.
    pub lat_sum_ns: u64,
}

/// The result of all jobs of a plan.
///
/// Jobs that fail are in the result with their error (`ended` is then `Failed`); a run that was stopped is
/// `Interrupted`. Files that the jobs asked to be removed are removed in every case.
///
/// # Errors
/// A fault found before anything ran: an unknown engine, a refused target, a file that is missing. With
/// `clones_fail_alone`, a file that is missing and its like are in the result.
pub fn run(plan: &Plan, control: &mut Control) -> Result<RunResult, Error> {
    crate::runner::run(plan, control)
}
