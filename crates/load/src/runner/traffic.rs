//! Traffic: the source of a clone's ops, and the handling of their data.

use job::workload::Op;
use measure::Direction;
use measure::schema::Verified;

use super::zones::Placed;
use crate::Error;
use crate::verify::Mismatch;

/// The next step of a clone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Issue this op, as soon as the queue and the rate allow.
    Op(Op),
    /// Issue this op, but not before this time in nanoseconds since the start (a replay).
    At(u64, Op),
    /// Wait until this time in nanoseconds since the start, or until one of the ops in flight has finished, then ask
    /// again.
    Until(u64),
    /// Wait until one of the ops in flight has finished, then ask again.
    Wait,
    /// Wait until everything in flight has finished, then ask again (a change of phase).
    Drain,
    /// Wait until everything in flight has finished, then close and reopen the files: another pass begins.
    Pass,
    /// The ramp is over, at a moment that the source chose; then ask again.
    EndRamp,
    /// The source has no more ops.
    End,
}

/// A source of ops. The generator loop is compiled once for each kind.
pub trait Traffic {
    /// The next step; if it is a transfer of a mixed workload, in the direction that is wanted.
    fn next(&mut self, wanted: Option<Direction>) -> Next;

    /// The next op, in registers: the usual step, which [`Next`] would send through memory. `None` leaves the step to
    /// [`Traffic::next`].
    #[inline(always)]
    fn next_at_once(&mut self, _wanted: Option<Direction>) -> Option<Op> {
        None
    }

    /// True if [`Traffic::place`] is to be asked.
    fn is_zoned(&self) -> bool {
        false
    }

    /// Takes note of the time in nanoseconds since the start, before [`Traffic::next`].
    #[inline]
    fn look_at_clock(&mut self, _since_start_ns: u64) {}

    /// The place of an op that [`Traffic::next`] gave, at the moment at which the op is issued: on zoned devices, the
    /// state of the zones decides.
    ///
    /// # Errors
    /// An op that the device cannot take.
    #[inline]
    fn place(&mut self, op: Op) -> Result<Placed, Error> {
        Ok(Placed::Op(op))
    }

    /// Resets the zone of the trim in this slot, where [`Traffic::place`] asked for it.
    ///
    /// # Errors
    /// The error of the device.
    fn reset_zone(&mut self, _slot: u32) -> std::io::Result<()> {
        Ok(())
    }

    /// Zones reset so far.
    fn zone_resets(&self) -> u64 {
        0
    }

    /// Begins the pass that [`Next::Pass`] announced, everything being drained and the files open again.
    fn begin_pass(&mut self) {}

    /// Gives a buffer its first content, before the clock starts.
    fn prepare(&mut self, _bytes: &mut [u8]) {}

    /// Prepares the bytes of a write that is about to be issued from buffer number `slot`.
    fn fill(&mut self, op: &Op, slot: u32, bytes: &mut [u8]);

    /// Takes note of a transfer that succeeded in full; `bytes` are those transferred.
    ///
    /// # Errors
    /// The bytes that were read differ from the bytes that were written.
    fn landed(&mut self, op: &Op, slot: u32, bytes: &mut [u8]) -> Result<(), Mismatch>;

    /// Takes note that the op in this slot failed.
    fn lost(&mut self, _slot: u32) {}

    /// Takes note that the storage has no space left (`fill_device`). True: the next steps write nothing and the job
    /// goes on with them. False: the job is done.
    fn is_full(&mut self) -> bool {
        false
    }

    /// Takes note of a sync that has ended in this slot.
    fn synced(&mut self, _op: &Op, _slot: u32, _succeeded: bool) {}

    /// Takes note that all files were synced after the last op (`end_fsync`).
    fn all_synced(&mut self) {}

    /// Takes note of an op that is being issued.
    #[inline]
    fn issued(&mut self, _op: &Op, _slot: u32) {}

    /// True if a read at this moment checks data, so that its time is not the workload's.
    fn is_verifying(&self) -> bool {
        false
    }

    /// True if the read in this slot is there to check data: data that are missing are a failure then.
    fn checks(&self, _slot: u32) -> bool {
        false
    }

    /// Blocks checked so far, if this traffic checks any.
    fn verified(&self) -> Option<Verified> {
        None
    }

    /// Ends what the traffic keeps beside the ops; `name_of` gives the path of a file.
    ///
    /// # Errors
    /// A file that it writes could not be written; data that differed, although the job went on.
    fn finish(&mut self, _name_of: &dyn Fn(u32) -> String) -> Result<(), Error> {
        Ok(())
    }

    /// Fraction of the work that has been issued, in millionths; 0 if it has no known end.
    fn done_millionths(&self) -> u64 {
        0
    }
}
