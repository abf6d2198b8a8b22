//! The workload with its data checked: what was written is read back, what is read is checked.
//!
//! ```text
//! writing ─► (verify_backlog: read back some) ─► drained ─► reading back ─► next pass, or the end
//! ```

use std::fs;

use job::Job;
use job::workload::{FileExtent, Op, OpKind};
use measure::Direction;
use measure::schema::Verified;

use super::passes::Passes;
use crate::content::Filler;
use crate::runner::traffic::{Next, Traffic};
use crate::verify::{Expected, Mismatch, Stamp, Verifier, Written};
use crate::{Error, ErrorKind};

/// The workload of one clone, verified.
pub(in crate::runner) struct Verifying {
    passes: Passes,
    filler: Filler,
    verifier: Verifier,
    written: Written,
    phase: Phase,
    /// `do_verify=0`: blocks are stamped, but not read back.
    reads_back: bool,
    /// `verify_only`: every write becomes a read of what an earlier run wrote.
    reads_only: bool,
    /// Reads of the workload are checked too: it has nothing but reads.
    checks_reads: bool,
    dump: bool,
    thread: u16,
    sequence: u64,
    /// An op that has to wait until one that it overlaps has finished.
    held: Option<Step>,
    /// What the op that was drawn last is to be checked against.
    drawn: Option<Expected>,
    /// By slot: what is in flight.
    flights: Vec<Option<Flight>>,
    verified: Verified,
    first_mismatch: Option<Mismatch>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Writing,
    /// All writes of the pass are issued, some still in flight.
    Draining,
    Reading,
}

/// An op and what it is checked against, if it is.
#[derive(Clone, Copy)]
struct Step {
    op: Op,
    expected: Option<Expected>,
}

#[derive(Clone, Copy)]
struct Flight {
    op: Op,
    expected: Option<Expected>,
    sequence: u64,
}

impl Verifying {
    /// The verified workload over these files.
    ///
    /// # Errors
    /// A block too small for its header, a missing pattern, an extent in which no block fits.
    pub fn new(job: &Job, clone: u32, extents: &[FileExtent]) -> Result<Verifying, Error> {
        let seed = super::clone_seed(job, clone);
        let missing = || Error::usage("nothing to verify", format!("in job {}", job.name), "give verify=");
        let verifier = Verifier::new(job, seed)?.ok_or_else(missing)?;
        let verify = job.verify.as_ref().ok_or_else(missing)?;
        let directions = job.rw.directions;
        Ok(Verifying {
            passes: Passes::new(job, clone, extents)?,
            filler: Filler::for_job(job, seed),
            verifier,
            written: Written::new(job),
            phase: Phase::Writing,
            reads_back: verify.enabled && directions.write,
            reads_only: verify.only,
            checks_reads: !directions.write,
            dump: verify.dump,
            thread: clone as u16,
            sequence: 0,
            held: None,
            drawn: None,
            flights: Vec::new(),
            verified: Verified::default(),
            first_mismatch: None,
        })
    }

    fn draw(&mut self, wanted: Option<Direction>) -> Result<Step, Next> {
        loop {
            if let Some(block) = self.written.next_read() {
                let (file, offset) = (block.file, block.offset);
                let op = Op { kind: OpKind::Io(Direction::Read), file, offset, len: u64::from(block.len) };
                let sequence = Some(u64::from(block.sequence));
                return Ok(Step { op, expected: Some(Expected { file, offset, sequence }) });
            }
            match self.phase {
                Phase::Writing => match self.passes.next_in_pass(wanted) {
                    Some(op) => return Ok(self.step(op)),
                    None => {
                        self.phase = Phase::Draining;
                        return Err(Next::Drain);
                    }
                },
                Phase::Draining => {
                    self.phase = Phase::Reading;
                    if self.reads_back {
                        self.written.end_of_writes();
                    }
                }
                Phase::Reading => {
                    self.phase = Phase::Writing;
                    return match self.passes.after_pass() {
                        Next::Op(op) => Ok(self.step(op)),
                        other => Err(other),
                    };
                }
            }
        }
    }

    /// An op of the workload as it is to be issued.
    fn step(&self, mut op: Op) -> Step {
        let write = op.kind == OpKind::Io(Direction::Write);
        let read = op.kind == OpKind::Io(Direction::Read);
        let expected = (self.reads_only && write) || (self.checks_reads && read);
        if expected {
            op.kind = OpKind::Io(Direction::Read);
        }
        Step { op, expected: expected.then_some(Expected { file: op.file, offset: op.offset, sequence: None }) }
    }

    fn overlaps_one_in_flight(&self, op: &Op) -> bool {
        self.flights.iter().flatten().any(|flight| {
            let other = &flight.op;
            other.file == op.file && op.offset < other.offset + other.len && other.offset < op.offset + op.len
        })
    }

    fn check(&mut self, op: &Op, expected: &Expected, bytes: &mut [u8]) -> Result<(), Mismatch> {
        self.verified.blocks += 1;
        let Err(mismatch) = self.verifier.check(bytes, expected) else {
            return Ok(());
        };
        self.verified.mismatches += 1;
        if self.dump {
            self.dump_block(op, expected, bytes);
        }
        self.first_mismatch.get_or_insert_with(|| mismatch.clone());
        Err(mismatch)
    }

    /// `verify_dump`: the block as it was read, and as it should have been, in the working directory.
    fn dump_block(&self, op: &Op, expected: &Expected, bytes: &[u8]) {
        let name = |what: &str| format!("clone{}.file{}.{}.{what}", self.thread, op.file, op.offset);
        // A dump that cannot be written must not hide the mismatch itself.
        let _ = fs::write(name("received"), bytes);
        if let Some(should) = self.verifier.regenerate(bytes, expected) {
            let _ = fs::write(name("expected"), should);
        }
    }
}

impl Traffic for Verifying {
    fn next(&mut self, wanted: Option<Direction>) -> Next {
        let drawn = self.held.take().map_or_else(|| self.draw(wanted), Ok);
        match drawn {
            Err(next) => next,
            // Of two overlapping requests in flight nobody knows which one the storage carries out last.
            Ok(step) if self.written.may_overlap() && self.overlaps_one_in_flight(&step.op) => {
                self.held = Some(step);
                Next::Drain
            }
            Ok(step) => {
                self.drawn = step.expected;
                Next::Op(step.op)
            }
        }
    }

    fn begin_pass(&mut self) {
        self.passes.begin();
    }

    fn prepare(&mut self, bytes: &mut [u8]) {
        self.filler.prepare(bytes);
    }

    fn fill(&mut self, op: &Op, _slot: u32, bytes: &mut [u8]) {
        let time_ns = sys::clock::realtime_ns();
        self.filler.fill(bytes);
        self.verifier.stamp(bytes, &Stamp { offset: op.offset, sequence: self.sequence, time_ns, thread: self.thread });
    }

    fn issued(&mut self, op: &Op, slot: u32) {
        let slot = slot as usize;
        if self.flights.len() <= slot {
            self.flights.resize(slot + 1, None);
        }
        self.flights[slot] = Some(Flight { op: *op, expected: self.drawn.take(), sequence: self.sequence });
        self.sequence += u64::from(op.kind == OpKind::Io(Direction::Write));
    }

    fn landed(&mut self, op: &Op, slot: u32, bytes: &mut [u8]) -> Result<(), Mismatch> {
        let Some(flight) = self.flights[slot as usize].take() else {
            return Ok(());
        };
        match (op.kind, flight.expected) {
            (OpKind::Io(Direction::Write), _) => {
                if self.reads_back {
                    self.written.wrote(op.file, op.offset, op.len as u32, flight.sequence);
                }
                Ok(())
            }
            (OpKind::Io(Direction::Read), Some(expected)) => self.check(op, &expected, bytes),
            _ => Ok(()),
        }
    }

    fn lost(&mut self, slot: u32) {
        if let Some(flight) = self.flights.get_mut(slot as usize) {
            *flight = None;
        }
    }

    fn is_verifying(&self) -> bool {
        self.phase == Phase::Reading
    }

    fn verified(&self) -> Option<Verified> {
        Some(self.verified)
    }

    fn done_millionths(&self) -> u64 {
        self.passes.done_millionths()
    }

    fn finish(&mut self, name_of: &dyn Fn(u32) -> String) -> Result<(), Error> {
        match self.first_mismatch.take() {
            None => Ok(()),
            Some(mismatch) => Err(verification_failed(&mismatch, &name_of(mismatch.file))),
        }
    }
}

/// The failure of a job whose data differ.
pub(in crate::runner) fn verification_failed(mismatch: &Mismatch, file: &str) -> Error {
    Error {
        kind: ErrorKind::Verify,
        what: format!("verification failed in {file}:"),
        place: mismatch.to_string(),
        hint: String::new(),
        source: None,
    }
}
