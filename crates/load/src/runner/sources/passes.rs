//! The op stream of a clone, repeated as `loops` and `time_based` say.

use job::Job;
use job::workload::{FileExtent, Op, Workload};
use measure::Direction;

use crate::Error;
use crate::runner::traffic::Next;
use crate::runner::zones::{Placed, Zones};

/// Passes over the workload.
pub(in crate::runner) struct Passes {
    workload: Workload,
    /// Passes still to come after this one; None: without end.
    left: Option<u64>,
    total_bytes: u64,
    issued_bytes: u64,
    issued_in_pass: u64,
    /// With `zonemode=zbd`: the zones of the files.
    zones: Option<Zones>,
}

impl Passes {
    /// The stream of one clone over its files.
    ///
    /// # Errors
    /// An extent in which not one block fits.
    pub fn new(job: &Job, clone: u32, extents: &[FileExtent], zones: Option<Zones>) -> Result<Passes, Error> {
        let workload =
            Workload::new(job, clone, extents).map_err(|error| Error::usage(error.to_string(), String::new(), ""))?;
        let passes = job.time.loops.max(1);
        let total_bytes = workload.pass_bytes().saturating_mul(passes);
        let left = if job.time.time_based { None } else { Some(passes - 1) };
        Ok(Passes { workload, left, total_bytes, issued_bytes: 0, issued_in_pass: 0, zones })
    }

    /// The next op of this pass, in the direction that is wanted; None at its end.
    #[inline(always)]
    pub fn next_in_pass(&mut self, wanted: Option<Direction>) -> Option<Op> {
        let needs_data = self.zones.as_mut().is_some_and(Zones::needs_data);
        let op = self.workload.next_in(if needs_data { Some(Direction::Write) } else { wanted })?;
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
        if let Some(zones) = &mut self.zones {
            zones.begin_pass();
        }
    }

    /// The place of the op drawn last, as the zones demand ([`crate::runner::traffic::Traffic::place`]).
    ///
    /// # Errors
    /// An op that no zone can take.
    pub fn place(&mut self, op: Op) -> Result<Placed, Error> {
        let Some(zones) = &mut self.zones else { return Ok(Placed::Op(op)) };
        let placed = zones.place(op)?;
        match placed {
            Placed::Op(issued) | Placed::Reset(issued) => {
                self.issued_bytes = self.issued_bytes - op.len + issued.len;
                self.workload.moved(&op, &issued, zones.position_after(&issued));
            }
            Placed::Redraw | Placed::Over => {
                self.issued_bytes -= op.len;
                self.issued_in_pass -= 1;
                self.workload.withdraw(&op);
                if placed == Placed::Over {
                    self.workload.end_file();
                }
            }
            Placed::Wait | Placed::Later => {}
        }
        Ok(placed)
    }

    /// Takes the place of an op back: it was drawn as `drawn` and placed as `placed`, and is offered again later.
    pub fn unplace(&mut self, drawn: &Op, placed: &Op) {
        if let Some(zones) = &mut self.zones {
            zones.cancel(placed);
            self.issued_bytes = self.issued_bytes - placed.len + drawn.len;
            self.workload.moved(placed, drawn, drawn.offset + drawn.len);
        }
    }

    /// The zones of the files, with `zonemode=zbd`.
    #[inline]
    pub fn zones(&mut self) -> Option<&mut Zones> {
        self.zones.as_mut()
    }

    /// True if the files have zones.
    #[inline]
    pub fn is_zoned(&self) -> bool {
        self.zones.is_some()
    }

    /// Zones reset so far.
    pub fn zone_resets(&self) -> u64 {
        self.zones.as_ref().map_or(0, Zones::resets)
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
