//! The workload as it is: nothing is checked.

use job::Job;
use job::workload::{FileExtent, Op};
use measure::Direction;

use super::overlaps::Overlaps;
use super::passes::Passes;
use crate::Error;
use crate::content::Filler;
use crate::runner::traffic::{Next, Traffic};
use crate::runner::zones::{Placed, Zones};
use crate::verify::Mismatch;

/// The workload of one clone.
pub(in crate::runner) struct Plain {
    passes: Passes,
    filler: Filler,
    /// With `serialize_overlap`: the ops in flight.
    overlaps: Option<Overlaps>,
}

impl Plain {
    /// The workload over these files.
    ///
    /// # Errors
    /// An extent in which not one block fits.
    pub fn new(job: &Job, clone: u32, extents: &[FileExtent], zones: Option<Zones>) -> Result<Plain, Error> {
        let filler = Filler::for_job(job, clone);
        // The zones say which ops have to wait for each other.
        let overlaps = (job.queue.serialize_overlap && zones.is_none()).then(Overlaps::default);
        Ok(Plain { passes: Passes::new(job, clone, extents, zones)?, filler, overlaps })
    }
}

impl Plain {
    #[inline]
    fn ended(&mut self, slot: u32, well: bool) {
        if let Some(overlaps) = &mut self.overlaps {
            overlaps.ended(slot);
        }
        if let Some(zones) = self.passes.zones() {
            zones.ended(slot, well);
        }
    }
}

impl Traffic for Plain {
    #[inline(always)]
    fn next_at_once(&mut self, wanted: Option<Direction>) -> Option<Op> {
        match self.overlaps {
            None => self.passes.next_in_pass(wanted),
            Some(_) => None,
        }
    }

    fn is_zoned(&self) -> bool {
        self.passes.is_zoned()
    }

    #[inline]
    fn next(&mut self, wanted: Option<Direction>) -> Next {
        let held = self.overlaps.as_mut().and_then(Overlaps::take_held);
        let next = match held.or_else(|| self.passes.next_in_pass(wanted)) {
            Some(op) => Next::Op(op),
            None => self.passes.after_pass(),
        };
        match (next, &mut self.overlaps) {
            (Next::Op(op), Some(overlaps)) => overlaps.admit(op).map_or(Next::Wait, Next::Op),
            (next, _) => next,
        }
    }

    #[inline]
    fn place(&mut self, op: Op) -> Result<Placed, Error> {
        self.passes.place(op)
    }

    fn reset_zone(&mut self, slot: u32) -> std::io::Result<()> {
        self.passes.zones().map_or(Ok(()), |zones| zones.reset(slot))
    }

    fn zone_resets(&self) -> u64 {
        self.passes.zone_resets()
    }

    fn begin_pass(&mut self) {
        self.passes.begin();
    }

    fn prepare(&mut self, bytes: &mut [u8]) {
        self.filler.prepare(bytes);
    }

    #[inline]
    fn fill(&mut self, _op: &Op, _slot: u32, bytes: &mut [u8]) {
        self.filler.fill(bytes);
    }

    #[inline]
    fn issued(&mut self, op: &Op, slot: u32) {
        if let Some(overlaps) = &mut self.overlaps {
            overlaps.issued(op, slot);
        }
        if let Some(zones) = self.passes.zones() {
            zones.issued(slot);
        }
    }

    #[inline]
    fn landed(&mut self, _op: &Op, slot: u32, _bytes: &mut [u8]) -> Result<(), Mismatch> {
        self.ended(slot, true);
        Ok(())
    }

    #[inline]
    fn lost(&mut self, slot: u32) {
        self.ended(slot, false);
    }

    fn done_millionths(&self) -> u64 {
        self.passes.done_millionths()
    }
}
