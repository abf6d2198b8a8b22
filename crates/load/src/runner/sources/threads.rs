//! The threads of a recorded application, replayed by one clone: pass after pass, each whole.

use std::sync::Arc;

use job::Job;
use job::job::Replayed;
use job::threads::{Pass, Turn};
use job::workload::Op;
use measure::Direction;

use crate::content::Filler;
use crate::runner::traffic::{Next, Traffic};
use crate::verify::Mismatch;

/// The threads of a recording.
pub(in crate::runner) struct Threads {
    replayed: Replayed,
    percent: u32,
    pass: Pass,
    now_ns: u64,
    /// The end of the ramp in nanoseconds since the start, once it is over.
    ramp_ended_ns: Option<u64>,
    /// The thread whose request was just given.
    given: u32,
    /// The thread of the request in each slot.
    slots: Vec<u32>,
    filler: Filler,
}

impl Threads {
    /// The replay of `replayed`, which belongs to `job`.
    pub fn new(job: &Job, replayed: &Replayed, clone: u32) -> Threads {
        let percent = job.iolog.time_scale_percent;
        Threads {
            pass: Pass::new(Arc::clone(&replayed.recording), percent, 0),
            replayed: replayed.clone(),
            percent,
            now_ns: 0,
            ramp_ended_ns: None,
            given: 0,
            slots: Vec::new(),
            filler: Filler::for_job(job, clone),
        }
    }

    fn ended(&mut self, slot: u32) {
        self.pass.ended(self.slots[slot as usize], self.now_ns);
    }
}

impl Traffic for Threads {
    fn look_at_clock(&mut self, since_start_ns: u64) {
        self.now_ns = since_start_ns;
    }

    fn next(&mut self, _wanted: Option<Direction>) -> Next {
        loop {
            match self.pass.turn(self.now_ns) {
                Turn::Issue(thread, op) => {
                    self.given = thread;
                    return Next::Op(op);
                }
                Turn::Until(at_ns) => return Next::Until(at_ns),
                Turn::Wait => return Next::Wait,
                Turn::Over => {
                    let measured_ns = self.ramp_ended_ns.map(|ended| self.now_ns - ended);
                    if measured_ns.is_some_and(|ns| ns >= self.replayed.least_ns) {
                        return Next::End;
                    }
                    self.pass = Pass::new(Arc::clone(&self.replayed.recording), self.percent, self.now_ns);
                    if measured_ns.is_none() && self.now_ns >= self.replayed.ramp_ns {
                        self.ramp_ended_ns = Some(self.now_ns);
                        return Next::EndRamp;
                    }
                }
            }
        }
    }

    fn prepare(&mut self, bytes: &mut [u8]) {
        self.filler.prepare(bytes);
    }

    fn fill(&mut self, _op: &Op, _slot: u32, bytes: &mut [u8]) {
        self.filler.fill(bytes);
    }

    fn issued(&mut self, _op: &Op, slot: u32) {
        let slot = slot as usize;
        self.slots.resize(self.slots.len().max(slot + 1), 0);
        self.slots[slot] = self.given;
    }

    fn landed(&mut self, _op: &Op, slot: u32, _bytes: &mut [u8]) -> Result<(), Mismatch> {
        self.ended(slot);
        Ok(())
    }

    fn lost(&mut self, slot: u32) {
        self.ended(slot);
    }

    fn synced(&mut self, _op: &Op, slot: u32, _succeeded: bool) {
        self.ended(slot);
    }
}
