//! The content of the buffers that a job writes.

use super::Draft;

impl Draft {
    pub(super) fn buffers(&mut self) {
        let reads = self.job.rw.directions.read;
        let refill_given = self.refill_given;
        let buffers = &mut self.job.buffers;
        if !buffers.pattern.is_empty() {
            // Reads overwrite the pattern in a buffer that is used again.
            buffers.refill = reads || buffers.compress_percent > 0;
            (buffers.scramble, buffers.zero) = (false, false);
        }
        if buffers.dedupe_percent > 0 {
            buffers.refill = true;
        }
        if buffers.compress_percent == 100 {
            // Nothing is left of a block but its compressible part: the pattern, or zeroes.
            (buffers.zero, buffers.compress_percent, buffers.dedupe_percent) = (buffers.pattern.is_empty(), 0, 0);
        } else if buffers.compress_percent > 0 || buffers.dedupe_percent > 0 {
            // As in fio, both go before zero_buffers.
            buffers.zero = false;
        }
        if buffers.compress_percent > 0 && !refill_given {
            buffers.refill = true;
        }
    }
}
