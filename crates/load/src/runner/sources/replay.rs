//! To come.
use job::Job;
use job::workload::Op;

use crate::Error;
use crate::runner::traffic::{Next, Traffic};
use crate::verify::Mismatch;

pub(in crate::runner) struct Replay;

impl Replay {
    pub fn new(_: &Job, _: u32) -> Result<Replay, Error> {
        Err(Error::usage("replay is not there yet", "", ""))
    }
}

impl Traffic for Replay {
    fn next(&mut self) -> Next {
        Next::End
    }
    fn fill(&mut self, _: &Op, _: u32, _: &mut [u8]) {}
    fn landed(&mut self, _: &Op, _: u32, _: &mut [u8]) -> Result<(), Mismatch> {
        Ok(())
    }
}
