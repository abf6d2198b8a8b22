//! Preconditioning (`--precondition`) after SNIA's performance test specification: purge, fill twice, then rounds of
//! the workload until the drive is steady.

use std::time::Duration;

use job::job::Plan;
use measure::schema::{JobResult, Preconditioning, Round, SteadyWindow};

use crate::{Error, ErrorKind};

/// Times that the fill writes every block: the specification's "two times the user capacity".
pub(super) const FILLS: u32 = 2;

/// The effort that preconditioning may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Duration of a round; the specification has a minute.
    pub round: Duration,
    /// Rounds at most; the specification has 25.
    pub most: u32,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds { round: Duration::from_secs(60), most: 25 }
    }
}

/// A step of the preconditioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The blocks of the device that the sweep uses are discarded.
    Purge,
    /// Every block is written, in order.
    Fill,
    /// A round of the workload, from 1.
    Round(u32),
}

/// The plans of a target's preconditioning.
pub(super) struct Plans {
    /// Discards every block; an Err says why that is not possible.
    pub purge: Result<Plan, String>,
    pub fill: Plan,
    pub round: Plan,
    /// The pattern of a round.
    pub rw: String,
}

/// Carries out a stage; None if the user ended the sweep meanwhile.
type Carry<'a> = dyn FnMut(Stage, &Plan) -> Result<Option<JobResult>, Error> + 'a;

/// Preconditions a target; None if the user ended the sweep meanwhile.
///
/// # Errors
/// A stage that fails, except the purge: a target that cannot be purged is preconditioned all the same.
pub(super) fn precondition(plans: &Plans, effort: Rounds, carry: &mut Carry) -> Result<Option<Preconditioning>, Error> {
    let mut found = Preconditioning {
        rw: plans.rw.clone(),
        round_ns: effort.round.as_nanos().try_into().unwrap_or(u64::MAX),
        ..Preconditioning::default()
    };
    match &plans.purge {
        Err(reason) => found.not_purged = Some(reason.clone()),
        Ok(plan) => match carry(Stage::Purge, plan) {
            Ok(Some(job)) => found.purged_bytes = Some(job.directions.trim.bytes),
            Ok(None) => return Ok(None),
            Err(error) if error.kind == ErrorKind::System => found.not_purged = Some(error.to_string()),
            Err(error) => return Err(error),
        },
    }
    let Some(fill) = carry(Stage::Fill, &plans.fill)? else { return Ok(None) };
    found.fill_bytes = fill.directions.write.bytes;
    found.fill_ns = fill.runtime_ns;
    let mut iops = Vec::new();
    for number in 1..=effort.most {
        let Some(job) = carry(Stage::Round(number), &plans.round)? else { return Ok(None) };
        let rate = job.total_ops() as f64 * 1e9 / job.runtime_ns.max(1) as f64;
        let lat_ns = job.lat_ns();
        let lat_ns = if lat_ns.is_empty() { 0.0 } else { lat_ns.mean() };
        found.rounds.push(Round { iops: rate, lat_mean_ns: lat_ns });
        iops.push(rate);
        found.window = SteadyWindow::last(&iops);
        if found.is_steady() {
            break;
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive with a seventh of spare blocks: as long as it has erased ones it takes writes at full speed, and then it
    /// must copy the valid blocks of a segment for each one that it frees.
    struct Drive {
        erased: f64,
        written: f64,
        spare: f64,
    }

    impl Drive {
        const BLOCKS: f64 = 1e6;
        const FULL_SPEED: f64 = 100_000.0;

        fn new() -> Drive {
            Drive { erased: Drive::BLOCKS * 8.0 / 7.0, written: 0.0, spare: Drive::BLOCKS / 7.0 }
        }

        /// Random writes for `seconds`: the ops that they are.
        fn write(&mut self, seconds: f64) -> f64 {
            let (mut left, mut ops) = (seconds, 0.0);
            while left > 1e-9 {
                // Copies a write costs: a greedy collector on a drive with this much spare, reached as it fills.
                let age = (self.written / Drive::BLOCKS).min(3.0) / 3.0;
                let amplification = if self.erased > self.spare { 1.0 } else { 1.0 + 3.0 * age };
                let rate = Drive::FULL_SPEED / amplification;
                let step = left.min(0.1);
                ops += rate * step;
                self.written += rate * step;
                self.erased = (self.erased - rate * step).max(0.0);
                left -= step;
            }
            ops
        }
    }

    fn plans(purge: Result<Plan, String>) -> Plans {
        Plans { purge, fill: Plan::default(), round: Plan::default(), rw: "randwrite".into() }
    }

    fn ran(ops: f64, seconds: f64) -> JobResult {
        let mut job = JobResult { runtime_ns: (seconds * 1e9) as u64, ..JobResult::default() };
        (job.directions.write.ops, job.directions.write.bytes) = (ops as u64, ops as u64 * 4096);
        job
    }

    #[test]
    fn rounds_go_on_until_the_drive_is_as_slow_as_it_becomes() {
        let mut drive = Drive::new();
        let effort = Rounds { round: Duration::from_secs(5), most: 25 };
        let mut stages = Vec::new();
        let found = precondition(&plans(Ok(Plan::default())), effort, &mut |stage, _| {
            stages.push(stage);
            Ok(Some(match stage {
                Stage::Purge => {
                    let mut job = JobResult::default();
                    job.directions.trim.bytes = 4096 * 1_000_000;
                    job
                }
                Stage::Fill => {
                    // In order: nothing needs to be copied.
                    drive.erased = drive.spare;
                    ran(2.0 * Drive::BLOCKS, 20.0)
                }
                Stage::Round(_) => ran(drive.write(5.0), 5.0),
            }))
        })
        .unwrap()
        .unwrap();
        assert_eq!(stages[..3], [Stage::Purge, Stage::Fill, Stage::Round(1)]);
        assert!(found.is_steady() && found.rounds.len() < 25, "{found:?}");
        let (first, window) = (found.rounds[0].iops, found.window.unwrap());
        // Four writes in the drive for each one of the host, in the end.
        assert!(first > 40_000.0 && (window.average / 25_000.0 - 1.0).abs() < 0.1, "{found:?}");
        assert_eq!((found.purged_bytes, found.fill_bytes), (Some(4096 * 1_000_000), 2 * 4096 * 1_000_000));
    }

    #[test]
    fn a_drive_that_never_settles_is_said_to_be_unsteady() {
        let effort = Rounds { round: Duration::from_secs(1), most: 12 };
        let mut rate = 1e6;
        let found = precondition(&plans(Err("a file".into())), effort, &mut |stage, _| {
            assert_ne!(stage, Stage::Purge);
            rate *= 0.9;
            Ok(Some(ran(rate, 1.0)))
        })
        .unwrap()
        .unwrap();
        assert!(!found.is_steady() && found.rounds.len() == 12 && found.not_purged.as_deref() == Some("a file"));
    }

    #[test]
    fn a_purge_that_fails_is_told_and_the_rest_goes_on() {
        let refused = || Error { kind: ErrorKind::System, ..Error::usage("not supported", "", "") };
        let found = precondition(&plans(Ok(Plan::default())), Rounds::default(), &mut |stage, _| match stage {
            Stage::Purge => Err(refused()),
            _ => Ok(Some(ran(1000.0, 1.0))),
        });
        let found = found.unwrap().unwrap();
        assert!(found.not_purged.unwrap().contains("not supported") && found.rounds.len() == 5);
        // A user who ends the sweep gets no result.
        let mut interrupted = |stage, _: &Plan| Ok((stage != Stage::Round(3)).then(|| ran(1000.0, 1.0)));
        assert_eq!(precondition(&plans(Err(String::new())), Rounds::default(), &mut interrupted).unwrap(), None);
    }
}
