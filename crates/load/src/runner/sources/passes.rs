//! The op stream of a clone, repeated as `loops` and `time_based` say.

use job::Job;
use job::workload::{FileExtent, Op, Workload};
use measure::Direction;

use crate::Error;
use crate::runner::traffic::Next;

/// Passes over the workload.
pub(in crate::runner) struct Passes {
    workload: Workload,
    /// Passes still to come after this one; None: without end.
    left: Option<u64>,
    total_bytes: u64,
    issued_bytes: u64,
    issued_in_pass: u64,
}

impl Passes {
    /// The stream of one clone over its files.
    ///
    /// # Errors
    /// An extent in which not one block fits.
    pub fn new(job: &Job, clone: u32, extents: &[FileExtent]) -> Result<Passes, Error> {
        let workload = Workload::new(job, clone, extents)
            .map_err(|error| Error::usage(error.to_string(), format!("in job {}", job.name), ""))?;
        let passes = job.time.loops.max(1);
        let total_bytes = workload.pass_bytes().saturating_mul(passes);
        let left = if job.time.time_based { None } else { Some(passes - 1) };
        Ok(Passes { workload, left, total_bytes, issued_bytes: 0, issued_in_pass: 0 })
    }

    /// The next op of this pass, in the direction that is wanted; None at its end.
    #[inline]
    pub fn next_in_pass(&mut self, wanted: Option<Direction>) -> Option<Op> {
        let op = match wanted {
            None => self.workload.next()?,
            Some(direction) => self.workload.next_of(direction)?,
        };
        self.issued_bytes += op.len;
        self.issued_in_pass += 1;
        Some(op)
    }

    /// The step that follows the end of a pass: the end of all, an op of the next pass (`time_based` goes on without a
    /// break), or the announcement of the next of several `loops`.
    #[cold]
    pub fn after_pass(&mut self) -> Next {
        // A pass without an op would repeat forever.
        match self.left {
            _ if self.issued_in_pass == 0 => Next::End,
            Some(0) => Next::End,
            Some(_) => Next::Pass,
            None => {
                self.begin();
                self.next_in_pass(None).map_or(Next::End, Next::Op)
            }
        }
    }

    /// Begins another pass over the workload.
    pub fn begin(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.issued_in_pass = 0;
        self.workload.restart();
    }

    /// True if no byte is written twice and none is trimmed within a pass ([`Workload::writes_once`]).
    pub fn writes_once(&self) -> bool {
        self.workload.writes_once()
    }

    /// The part of all passes that has been issued, in millionths; 0 without end.
    pub fn done_millionths(&self) -> u64 {
        match self.left {
            Some(_) if self.total_bytes > 0 => {
                (self.issued_bytes as f64 / self.total_bytes as f64 * 1e6).min(1e6) as u64
            }
            _ => 0,
        }
    }
}
