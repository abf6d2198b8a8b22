//! Ops that move no data: those of engines that keep a processor or a program at work.

use job::Job;
use job::workload::{Op, OpKind};
use measure::Direction;

use crate::runner::traffic::{Next, Traffic};
use crate::verify::Mismatch;

/// Ops without data, one after the other. They count as reads, as in fio.
pub(in crate::runner) struct Pulses {
    left: Option<u64>,
}

impl Pulses {
    /// The ops of `job`: one program, or as many ops as the job says, or ops without an end.
    pub fn new(job: &Job) -> Pulses {
        Pulses { left: if job.engine == "exec" { Some(1) } else { job.extent.number_ios } }
    }
}

impl Traffic for Pulses {
    fn next(&mut self, _wanted: Option<Direction>) -> Next {
        if self.left == Some(0) {
            return Next::End;
        }
        self.left = self.left.map(|left| left - 1);
        Next::Op(Op { kind: OpKind::Io(Direction::Read), file: 0, offset: 0, len: 0 })
    }

    fn fill(&mut self, _op: &Op, _slot: u32, _bytes: &mut [u8]) {}

    fn landed(&mut self, _op: &Op, _slot: u32, _bytes: &mut [u8]) -> Result<(), Mismatch> {
        Ok(())
    }
}
