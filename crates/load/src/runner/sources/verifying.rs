//! The workload with its data checked: blocks that were written are read back, and blocks that are read are checked.
//!
//! ```text
//! writing ─► (verify_backlog: read back some; trim_backlog: trim some)
//!         ─► drained ─► trimming the rest ─► drained ─► reading back ─► next pass, or the end
//! ```
//!
//! Which blocks are read back, and which ops have to wait for each other, are the rules of [`crate::verify::Ledger`].

use std::fs;

use job::Job;
use job::workload::{FileExtent, Op, OpKind};
use measure::Direction;
use measure::schema::Verified;

use super::passes::Passes;
use super::recalled::{self, Recalled};
use crate::content::Filler;
use crate::runner::traffic::{Next, Traffic};
use crate::runner::zones::{Placed, Zones};
use crate::verify::{Data, Expected, Ledger, Mismatch, ReadBack, Stamp, StateFile, Verifier};
use crate::{Error, ErrorKind};

/// The workload of one clone, verified.
pub(in crate::runner) struct Verifying {
    passes: Passes,
    filler: Filler,
    verifier: Verifier,
    ledger: Ledger,
    phase: Phase,
    /// `do_verify=0`: blocks are stamped, but not read back.
    reads_back: bool,
    /// `trim_verify_zero`: blocks that were trimmed are read back.
    reads_zeroes: bool,
    /// `verify_only`: nothing is changed; what an earlier run wrote is read, each block once.
    reads_only: bool,
    /// Reads of the workload are checked too: it has nothing but reads.
    checks_reads: bool,
    /// Reads bring back what was written, so that they can be compared.
    compares: bool,
    dump: bool,
    thread: u16,
    sequence: u64,
    /// `verify_state_load`: the blocks that another run wrote, of which its state says so.
    recalled: Option<Recalled>,
    /// `verify_state_save`: the record of the writes that have ended.
    saving: Option<StateFile>,
    /// An op that has to wait until one that it overlaps has finished.
    held: Option<Step>,
    /// The step drawn last, until it is issued.
    drawn: Option<Step>,
    /// The op in flight of each slot.
    flights: Vec<Option<Flight>>,
    /// True if the storage has no space left: no writes follow, nor another pass.
    full: bool,
    verified: Verified,
    first_mismatch: Option<Mismatch>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Writing,
    /// All writes of the pass have ended; blocks that are to be trimmed are left.
    Trimming,
    /// All writes and trims of the pass are issued, some still in flight.
    Draining,
    Reading,
}

/// An op, with the content that it is checked against if it is checked.
#[derive(Clone, Copy)]
struct Step {
    op: Op,
    expected: Option<Expected>,
    /// A trim of the ledger's: the block that holds zeroes afterwards.
    zeroes: Option<ReadBack>,
    /// True if the op is one of the workload's, whose place the zones of the device decide.
    is_drawn: bool,
}

#[derive(Clone, Copy)]
struct Flight {
    step: Step,
    sequence: u64,
}

impl Verifying {
    /// The verified workload over these files.
    ///
    /// # Errors
    /// A block too small for its header, a missing pattern, an extent in which no block fits.
    pub fn new(
        job: &Job,
        clone: u32,
        seat: u32,
        extents: &[FileExtent],
        zones: Option<Zones>,
    ) -> Result<Verifying, Error> {
        let seed = job.clone_seed(clone);
        let missing = || Error::usage("nothing to verify", format!("in job {}", job.name), "give verify=");
        let verifier = Verifier::new(job, seed)?.ok_or_else(missing)?;
        let verify = job.verify.as_ref().ok_or_else(missing)?;
        let directions = job.rw.directions;
        let passes = Passes::new(job, clone, extents, zones)?;
        let recalled = verify.loads_state.then(|| recalled::blocks(job, clone, seat, extents)).transpose()?;
        let rehearsed = recalled.as_ref().filter(|_| verify.only).map_or((0, 0), Recalled::gone_through);
        Ok(Verifying {
            filler: Filler::for_job(job, clone),
            verifier,
            ledger: Ledger::new(job, passes.writes_once()),
            passes,
            phase: Phase::Writing,
            recalled,
            saving: verify.saves_state.then(|| StateFile::new(job, clone, seat, extents)),
            reads_back: verify.enabled && directions.write,
            reads_zeroes: verify.trims.must_be_zero,
            reads_only: verify.only && directions.write,
            checks_reads: !directions.write,
            compares: verify.compares,
            dump: verify.dump,
            thread: clone as u16,
            sequence: 0,
            held: None,
            drawn: None,
            flights: Vec::new(),
            full: false,
            verified: Verified { rehearsed, ..Verified::default() },
            first_mismatch: None,
        })
    }

    fn draw(&mut self, wanted: Option<Direction>) -> Result<Step, Next> {
        loop {
            if let Some(block) = self.ledger.next_read() {
                return Ok(self.read_back(block));
            }
            if let Some(block) = self.ledger.next_trim() {
                return Ok(self.trim(block));
            }
            match self.phase {
                Phase::Writing if self.reads_only && self.recalled.is_some() => {
                    // Everything that there is to read is known, whatever the number of passes was.
                    match self.recalled.as_mut().and_then(Recalled::pop) {
                        Some(block) => return Ok(self.read_back(block)),
                        None => return Err(Next::End),
                    }
                }
                Phase::Writing if self.full => return Err(self.end_of_writes()),
                Phase::Writing if self.rehearses() => self.rehearse(None),
                Phase::Writing => match self.passes.next_in_pass(wanted) {
                    Some(op) if self.reads_only && changes(&op).is_none() => {}
                    Some(op) if self.recalled.as_ref().is_some_and(|recalled| !recalled.has(&op)) => {}
                    Some(op) => return Ok(self.step(op)),
                    None => return Err(self.end_of_writes()),
                },
                Phase::Trimming => {
                    if !self.ledger.end_of_writes_before_trims() {
                        self.phase = Phase::Draining;
                        return Err(Next::Drain);
                    }
                }
                Phase::Draining => {
                    self.phase = Phase::Reading;
                    if self.reads_back {
                        self.ledger.end_of_writes();
                    }
                }
                Phase::Reading if self.full => return Err(Next::End),
                Phase::Reading => match self.passes.after_pass() {
                    // `time_based` goes on with an op at once.
                    Next::Op(op) if self.rehearses() => self.rehearse(Some(op)),
                    next => {
                        self.phase = Phase::Writing;
                        return if let Next::Op(op) = next { Ok(self.step(op)) } else { Err(next) };
                    }
                },
            }
        }
    }

    /// The writes of the pass are issued: trims of the rest follow once the writes have ended.
    fn end_of_writes(&mut self) -> Next {
        self.phase = if self.ledger.trims() { Phase::Trimming } else { Phase::Draining };
        Next::Drain
    }

    /// The read that checks a block of the ledger.
    fn read_back(&self, block: ReadBack) -> Step {
        let ReadBack { file, offset, len, data } = block;
        let op = Op { kind: OpKind::Io(Direction::Read), file, offset, len: u64::from(len) };
        let expected = match data {
            _ if !self.compares => None,
            Data::Zeroes => Some(Expected { file, offset, zeroes: true, ..Expected::default() }),
            Data::Write(sequence) => {
                // An earlier run, or fio, may have numbered its writes otherwise.
                let sequence = (!self.reads_only).then_some(u64::from(sequence));
                let seed = sequence.map(|sequence| self.verifier.seed_of(sequence));
                let fits = self.verifier.fits(op.len);
                fits.then_some(Expected { file, offset, sequence, seed, zeroes: false })
            }
        };
        Step { op, expected, zeroes: None, is_drawn: false }
    }

    /// The trim of a block of the ledger.
    fn trim(&self, block: ReadBack) -> Step {
        let ReadBack { file, offset, len, .. } = block;
        let op = Op { kind: OpKind::Io(Direction::Trim), file, offset, len: u64::from(len) };
        Step { op, expected: None, zeroes: self.reads_zeroes.then_some(block), is_drawn: false }
    }

    /// An op of the workload as it is to be issued.
    fn step(&mut self, mut op: Op) -> Step {
        let write = op.kind == OpKind::Io(Direction::Write);
        let read = op.kind == OpKind::Io(Direction::Read);
        let checked = (self.reads_only && write) || (self.checks_reads && read);
        if self.reads_only && write {
            self.verified.rehearsed.0 += 1;
            self.verified.rehearsed.1 += op.len;
        }
        if checked {
            op.kind = OpKind::Io(Direction::Read);
        }
        // A block too small for its header was written as it is.
        let expected = checked && self.compares && self.verifier.fits(op.len);
        let (file, offset) = (op.file, op.offset);
        let expected = expected.then_some(Expected { file, offset, ..Expected::default() });
        Step { op, expected, zeroes: None, is_drawn: true }
    }

    /// True if `verify_only` has to find out first which blocks the workload leaves.
    fn rehearses(&self) -> bool {
        self.reads_only && self.ledger.may_overlap()
    }

    /// One pass on paper, `first` being its first op if that was drawn already. Afterwards, the blocks that the pass
    /// would leave on the storage are in the ledger, and due.
    fn rehearse(&mut self, first: Option<Op>) {
        let mut next = first.or_else(|| self.passes.next_in_pass(None));
        while let Some(op) = next {
            if let Some(direction) = changes(&op) {
                self.ledger.changing(op.file, op.offset, op.len);
                if direction == Direction::Write {
                    self.verified.rehearsed.0 += 1;
                    self.verified.rehearsed.1 += op.len;
                    let data = Data::Write(0);
                    self.ledger.wrote(ReadBack { file: op.file, offset: op.offset, len: op.len as u32, data });
                }
            }
            next = self.passes.next_in_pass(None);
        }
        self.phase = Phase::Reading;
        self.ledger.end_of_writes();
    }

    /// True if a step has to wait for an op in flight: rule 2 of the ledger. Reads of a mixed workload are not checked:
    /// no op waits for them.
    fn must_wait(&self, step: &Step) -> bool {
        let op = &step.op;
        let (changes_data, is_checked) = (changes(op).is_some(), step.expected.is_some());
        self.ledger.may_overlap()
            && self.flights.iter().flatten().any(|Flight { step: flight, .. }| {
                let other = &flight.op;
                let bears = match changes(other) {
                    Some(_) => changes_data || is_checked,
                    None => changes_data && flight.expected.is_some(),
                };
                bears
                    && other.file == op.file
                    && op.offset < other.offset + other.len
                    && other.offset < op.offset + op.len
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

/// The direction of an op that changes data; None for reads and syncs.
fn changes(op: &Op) -> Option<Direction> {
    match op.kind {
        OpKind::Io(direction @ (Direction::Write | Direction::Trim)) => Some(direction),
        OpKind::Io(Direction::Read) | OpKind::Sync | OpKind::DataSync | OpKind::SyncRange => None,
    }
}

impl Traffic for Verifying {
    fn next(&mut self, wanted: Option<Direction>) -> Next {
        let drawn = match self.held.take() {
            Some(step) if self.full && changes(&step.op).is_some() => self.draw(wanted),
            Some(step) => Ok(step),
            None => self.draw(wanted),
        };
        let step = match drawn {
            Ok(step) => step,
            Err(next) => return next,
        };
        // With zones, the place of the op is known only when it is issued.
        if !(step.is_drawn && self.passes.zones().is_some()) && self.must_wait(&step) {
            self.held = Some(step);
            return Next::Wait;
        }
        self.drawn = Some(step);
        Next::Op(step.op)
    }

    fn is_zoned(&self) -> bool {
        self.passes.is_zoned()
    }

    fn place(&mut self, op: Op) -> Result<Placed, Error> {
        let Some(zones) = self.passes.zones() else { return Ok(Placed::Op(op)) };
        let resets_first = zones.begins_with_resets();
        let Some(drawn) = self.drawn.filter(|step| step.is_drawn) else { return Ok(Placed::Op(op)) };
        // The reset of a zone must not overtake a read-back of its data.
        if resets_first && self.flights.iter().any(Option::is_some) {
            return Ok(Placed::Wait);
        }
        let placed = self.passes.place(drawn.op)?;
        match placed {
            Placed::Op(op) | Placed::Reset(op) => {
                let expected = drawn.expected.filter(|_| self.verifier.fits(op.len));
                let expected = expected.map(|expected| Expected { offset: op.offset, ..expected });
                let step = Step { op, expected, ..drawn };
                self.drawn = Some(step);
                if self.must_wait(&step) {
                    self.drawn = Some(drawn);
                    self.passes.unplace(&drawn.op, &op);
                    return Ok(Placed::Wait);
                }
            }
            Placed::Redraw | Placed::Over => self.drawn = None,
            Placed::Wait | Placed::Later => {}
        }
        Ok(placed)
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

    fn fill(&mut self, op: &Op, _slot: u32, bytes: &mut [u8]) {
        let time_ns = sys::clock::realtime_ns();
        self.filler.fill(bytes);
        self.verifier.stamp(bytes, &Stamp { offset: op.offset, sequence: self.sequence, time_ns, thread: self.thread });
    }

    fn issued(&mut self, op: &Op, slot: u32) {
        if let Some(zones) = self.passes.zones() {
            zones.issued(slot);
        }
        let slot = slot as usize;
        if self.flights.len() <= slot {
            self.flights.resize(slot + 1, None);
        }
        match (&mut self.saving, op.kind) {
            (Some(saving), OpKind::Io(Direction::Write)) => saving.writes.issued(op.file, op.offset),
            (Some(saving), OpKind::Sync | OpKind::DataSync) => saving.writes.sync_issued(slot as u32),
            _ => {}
        }
        let step = self.drawn.take().unwrap_or(Step { op: *op, expected: None, zeroes: None, is_drawn: false });
        self.flights[slot] = Some(Flight { step, sequence: self.sequence });
        if changes(op).is_some() {
            self.ledger.changing(op.file, op.offset, op.len);
        }
        self.sequence += u64::from(op.kind == OpKind::Io(Direction::Write));
    }

    fn landed(&mut self, op: &Op, slot: u32, bytes: &mut [u8]) -> Result<(), Mismatch> {
        if let Some(zones) = self.passes.zones() {
            zones.ended(slot, true);
        }
        let Some(Flight { step, sequence }) = self.flights[slot as usize].take() else {
            return Ok(());
        };
        match (op.kind, step.expected) {
            (OpKind::Io(Direction::Write), _) => {
                if let Some(saving) = &mut self.saving {
                    saving.writes.ended(sequence);
                }
                if (self.reads_back || self.ledger.trims()) && self.verifier.fits(op.len) {
                    let Op { file, offset, len, .. } = *op;
                    self.ledger.wrote(ReadBack { file, offset, len: len as u32, data: Data::Write(sequence as u32) });
                }
                Ok(())
            }
            (OpKind::Io(Direction::Trim), _) => {
                if let Some(block) = step.zeroes {
                    self.ledger.zeroed(block);
                }
                Ok(())
            }
            (OpKind::Io(Direction::Read), Some(expected)) => self.check(op, &expected, bytes),
            _ => Ok(()),
        }
    }

    fn lost(&mut self, slot: u32) {
        if let Some(zones) = self.passes.zones() {
            zones.ended(slot, false);
        }
        if let Some(flight) = self.flights.get_mut(slot as usize) {
            *flight = None;
        }
    }

    fn synced(&mut self, op: &Op, slot: u32, succeeded: bool) {
        if let Some(saving) = &mut self.saving {
            saving.writes.sync_ended(slot, op.file, succeeded);
        }
    }

    fn all_synced(&mut self) {
        if let Some(saving) = &mut self.saving {
            saving.writes.all_synced();
        }
    }

    fn is_full(&mut self) -> bool {
        self.full = true;
        true
    }

    fn is_verifying(&self) -> bool {
        self.phase == Phase::Reading
    }

    fn checks(&self, slot: u32) -> bool {
        let expected = self.flights.get(slot as usize).and_then(|flight| flight.as_ref()?.step.expected);
        self.is_verifying() || expected.is_some()
    }

    fn verified(&self) -> Option<Verified> {
        Some(self.verified)
    }

    fn done_millionths(&self) -> u64 {
        self.passes.done_millionths()
    }

    fn finish(&mut self, name_of: &dyn Fn(u32) -> String) -> Result<(), Error> {
        let saved = self.saving.as_ref().map_or(Ok(()), StateFile::save);
        match self.first_mismatch.take() {
            None => saved,
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
