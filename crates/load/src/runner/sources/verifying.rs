//! To come.
use job::Job;
use job::workload::Op;

use crate::Error;
use crate::runner::traffic::{Mismatch, Next, Traffic};

pub(in crate::runner) struct Verifying;

impl Verifying {
    pub fn new(_:&Job,_:u32,_:&[job::workload::FileExtent]) -> Result<Verifying, Error> {
        Err(Error::usage("verifying is not there yet", "", ""))
    }
}

impl Traffic for Verifying {
    fn next(&mut self) -> Next {
        Next::End
    }
    fn fill(&mut self, _: &Op, _: u32, _: &mut [u8]) {}
    fn landed(&mut self, _: &Op, _: u32, _: &[u8]) -> Result<(), Mismatch> {
        Ok(())
    }
}
