//! `verify_state_load`: the blocks that an earlier run wrote, computed from its job and the state that it saved.
//!
//! The workload is gone through on paper up to the last write that the state counts. A write that had ended leaves its
//! block; one that had not leaves nothing, and makes what it would have covered unknown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use job::Job;
use job::workload::{FileExtent, Op, OpKind};
use measure::Direction;

use super::passes::Passes;
use crate::Error;
use crate::runner::traffic::Next;
use crate::verify::{Data, Ledger, ReadBack, State, state};

/// The blocks that a state vouches for.
pub(super) struct Recalled {
    /// Blocks in the order of their places, the last one first.
    left: Vec<ReadBack>,
    /// (file, offset) to length.
    places: BTreeMap<(u32, u64), u32>,
    gone_through: (u64, u64),
}

impl Recalled {
    /// The next block to read.
    pub fn pop(&mut self) -> Option<ReadBack> {
        self.left.pop()
    }

    /// Writes that were gone through on paper, and their bytes.
    pub fn gone_through(&self) -> (u64, u64) {
        self.gone_through
    }

    /// True if an op reads one of the blocks. Ops that transfer nothing pass.
    pub fn has(&self, op: &Op) -> bool {
        !matches!(op.kind, OpKind::Io(_))
            || self.places.get(&(op.file, op.offset)).is_some_and(|&len| u64::from(len) == op.len)
    }
}

/// The state file of the clone at place `seat` of its plan.
pub(super) fn path(job: &Job, seat: u32) -> PathBuf {
    let directory = job.verify.as_ref().and_then(|verify| verify.state_directory.as_deref());
    state::path(directory, &job.name, seat)
}

/// The blocks that the state file of this clone vouches for.
///
/// # Errors
/// The file is missing, damaged, or of another job; or its random order is not known here.
pub(super) fn blocks(job: &Job, clone: u32, seat: u32, extents: &[FileExtent]) -> Result<Recalled, Error> {
    let path = path(job, seat);
    let known = State::load(&path)?;
    let mut writer = job.clone();
    if !job.rw.directions.write {
        writer.rw.directions = measure::PerDirection { read: false, write: true, trim: false };
    }
    let refused = |wrong: &str, hint: &str| {
        Err(Error::usage(format!("the verify state {} {wrong}", path.display()), format!("(job {})", job.name), hint))
    };
    if let Some(own) = known.own {
        writer.pattern.seed = own.seed;
        if own.directions != state::directions(&writer) {
            return refused("is of a run with other directions", "give rw= as it was, with verify_only=1");
        }
        let fits = |writer: &Job| own.fingerprint == state::fingerprint(writer, clone, extents);
        if !fits(&writer) {
            // It says when the writing ended, and not which blocks a pass writes.
            writer.time.time_based = !writer.time.time_based;
        }
        if !fits(&writer) {
            let hint = "give the options of sizes, files and random order as they were, or write the data again";
            return refused("is of a job that writes other blocks", hint);
        }
        let policy = job.verify.as_ref().map(|verify| verify.policy).unwrap_or_default();
        if policy == job::job::VerifyPolicy::Fsynced && !own.synced_only {
            return refused("counts writes that were not synced", "write the data with verify_policy=fsynced, too");
        }
    }
    let walked = walk(&writer, clone, extents, &known)?;
    match known.own {
        Some(_) if walked.writes < known.issued => {
            refused("counts more writes than this job has", "give the job as it was, or write the data again")
        }
        None if !is_certain(&writer, extents, &known, &walked) => {
            let hint = "Plimsoll's random order differs from fio's: check the data with the program that wrote them";
            refused("was saved by fio in the midst of a random order", hint)
        }
        _ => Ok(walked.blocks),
    }
}

/// True if it is certain which blocks a state of fio's means: their order is not random, or all blocks of the files
/// were written. As many writes as the files have blocks are not enough where blocks may repeat (`norandommap`).
fn is_certain(writer: &Job, extents: &[FileExtent], known: &State, walked: &Walked) -> bool {
    let (smallest, largest) = writer.blocks.range.write;
    let one_size = smallest == largest && writer.blocks.split.write.is_empty();
    let only_writes = !writer.rw.directions.read && !writer.rw.directions.trim;
    let in_order = !writer.rw.random && extents.len() == 1;
    let blocks: u64 = extents.iter().map(|extent| extent.size / smallest).sum();
    let all = walked.to_the_end && walked.each_once && walked.writes >= blocks && known.is_quiet();
    only_writes && one_size && (in_order || all)
}

/// A workload that was gone through on paper.
struct Walked {
    blocks: Recalled,
    /// Number of writes that were gone through.
    writes: u64,
    /// True if no write of the workload is left.
    to_the_end: bool,
    /// True if no block is written twice in a pass.
    each_once: bool,
}

fn walk(writer: &Job, clone: u32, extents: &[FileExtent], known: &State) -> Result<Walked, Error> {
    let mut passes = Passes::new(writer, clone, extents, None)?;
    let mut ledger = Ledger::new(writer, false);
    // How often the window has written each place. fio lists what ended last, and that may be older than its window.
    let older = if known.own.is_some() { 0 } else { known.listed() };
    let counted_from = known.window_from().saturating_sub(older);
    let mut in_window = BTreeMap::new();
    let (mut writes, mut writes_before, mut to_the_end, mut bytes) = (0, 0, false, 0);
    let mut first_of_pass = None;
    loop {
        let Some(op) = first_of_pass.take().or_else(|| passes.next_in_pass(None)) else {
            let idle = writes == writes_before;
            writes_before = writes;
            match passes.after_pass() {
                Next::Op(op) if !idle => first_of_pass = Some(op),
                Next::Pass => passes.begin(),
                _ => {
                    to_the_end = true;
                    break;
                }
            }
            continue;
        };
        match op.kind {
            OpKind::Io(Direction::Write) => {
                // Trims before a write that was not issued may have been.
                if writes == known.issued {
                    break;
                }
                let place = (op.file, op.offset);
                let times = if writes >= counted_from {
                    *in_window.entry(place).and_modify(|times| *times += 1).or_insert(1)
                } else {
                    0
                };
                ledger.changing(op.file, op.offset, op.len);
                if known.was_written(writes, op.file, op.offset, times) {
                    let data = Data::Write(0);
                    ledger.wrote(ReadBack { file: op.file, offset: op.offset, len: op.len as u32, data });
                }
                writes += 1;
                bytes += op.len;
            }
            OpKind::Io(Direction::Trim) => ledger.changing(op.file, op.offset, op.len),
            _ => {}
        }
    }
    ledger.end_of_writes();
    let mut left: Vec<ReadBack> = std::iter::from_fn(|| ledger.next_read()).collect();
    left.reverse();
    let places = left.iter().map(|block| ((block.file, block.offset), block.len)).collect();
    Ok(Walked {
        blocks: Recalled { left, places, gone_through: (writes, bytes) },
        writes,
        to_the_end,
        each_once: passes.writes_once(),
    })
}
