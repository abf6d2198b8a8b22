//! One thread's files: which of them exist, and the effect of each operation on one.
//!
//! Names, sizes and contents are computed from numbers: a million files take no more memory than one.

mod directories;
mod effects;
mod foreign;
mod ownership;
mod records;
mod written;

use std::ffi::CStr;

use sys::buffer::{Buffer, Memory};

use self::foreign::Foreign;
use self::written::Written;
use super::content::{Content, FileId};
use super::failure::{Bad, Failure};
use super::fs::FileSystem;
use super::limit::Limit;
use super::listing::{Holdings, Listing};
use super::operation::{Operation, Population, Walk};
use super::plan::Plan;
use super::tally::{Call, Tally};
use super::tree::{Names, Object};
use crate::Error;

/// The objects of one kind that exist: numbers `first..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub first: u64,
    pub end: u64,
    /// This run made the objects from this number on.
    pub ours_from: u64,
}

impl Range {
    pub fn len(self) -> u64 {
        self.end - self.first
    }

    fn ours(self) -> std::ops::Range<u64> {
        self.first.max(self.ours_from)..self.end
    }
}

/// The files of one thread.
pub(super) struct Files<'a> {
    plan: &'a Plan,
    fs: &'a dyn FileSystem,
    content: &'a Content,
    /// The thread whose objects this thread works on: itself, or a neighbour.
    thread: u32,
    /// The seed of the sizes and values of these objects.
    seed: u64,
    pub names: Names,
    other_names: Names,
    buffer: Buffer,
    pub tally: Tally,
    pub files: Range,
    pub directories: Range,
    pub symlinks: Range,
    pub links: Range,
    /// True if the files have the names that `rename` gives.
    renamed: bool,
    written: Written,
    /// One bit for each directory of the layout: 1 if this run made the directory.
    made: Vec<u64>,
    /// Objects that this run made, and that were still there when it began to make their population anew.
    earlier: Vec<(Population, std::ops::Range<u64>)>,
    foreign: Foreign,
    /// True if the file system can rename only by replacing: the new name is then looked for first.
    renames_by_replacing: bool,
    /// Returns true when waits must end.
    stopped: &'a dyn Fn() -> bool,
    reads: Limit,
    writes: Limit,
    /// The time of `CLOCK_MONOTONIC` at which the phase ends, whatever is left of it.
    pub deadline_ns: Option<u64>,
    /// Number of entries in the directory that was listed last, or of objects that the last clean-up of a number found.
    pub listed: u64,
    /// The directory that a clean-up has last found missing.
    absent: Option<u64>,
    /// The file that a mix has given its other name: the next rename of the mix gives the name back.
    away: Option<u64>,
    /// True after a failed operation: this thread then no longer knows which objects exist.
    pub uncertain: bool,
    listing: Listing,
    /// Returns the objects that a thread of this run, by its place in the run, had when the phase began.
    others: &'a dyn Fn(u32) -> Holdings,
}

const FILE_MODE: u32 = 0o666;
const DIR_MODE: u32 = 0o755;
/// The longest sleep without a look at whether the run is to stop: nobody who presses Ctrl-C notices it.
pub(super) const LONGEST_SLEEP_NS: u64 = 20_000_000;

impl<'a> Files<'a> {
    /// A run that has made no file yet. [`Files::is_there`] finds files that an earlier run left behind.
    pub fn new(
        plan: &'a Plan,
        fs: &'a dyn FileSystem,
        content: &'a Content,
        thread: u32,
        tally: Tally,
        stopped: &'a dyn Fn() -> bool,
        others: &'a dyn Fn(u32) -> Holdings,
    ) -> Result<Files<'a>, Error> {
        let largest = plan.record_bytes.min(plan.sizes.largest().max(1)).max(plan.xattr_bytes as u64);
        let buffer = Buffer::zeroed(largest as usize, &Memory::Anonymous)
            .map_err(|error| Error::system("cannot allocate a record", format!("of {largest} bytes"), error))?;
        let names = Names::new(&plan.layout, thread, plan.sharers(), plan.files);
        let made = vec![0; names.directories().div_ceil(64) as usize];
        Ok(Files {
            plan,
            fs,
            content,
            thread,
            seed: plan.seed,
            other_names: names.clone(),
            names,
            buffer,
            tally,
            files: Range::default(),
            directories: Range::default(),
            symlinks: Range::default(),
            links: Range::default(),
            renamed: false,
            written: Written::before(),
            made,
            earlier: Vec::new(),
            foreign: Foreign::default(),
            renames_by_replacing: false,
            stopped,
            reads: Limit::of(plan.limit_read),
            writes: Limit::of(plan.limit_write),
            deadline_ns: None,
            listed: 0,
            absent: None,
            away: None,
            uncertain: false,
            listing: Listing::default(),
            others,
        })
    }

    /// Turns to the objects of another thread, below other directories and with another seed and contents. `holdings`
    /// are the objects that the thread has; None if they are the same numbers as this thread's.
    pub fn turn_to(&mut self, thread: u32, base: &CStr, seed: u64, content: &'a Content, holdings: Option<Holdings>) {
        (self.thread, self.seed, self.content) = (thread, seed, content);
        self.names.turn_to(thread, base);
        self.other_names.turn_to(thread, base);
        let Some(holdings) = holdings else { return };
        let all = [&mut self.files, &mut self.directories, &mut self.symlinks, &mut self.links];
        for (index, range) in all.into_iter().enumerate() {
            let (first, end) = holdings.ranges[index];
            *range = Range { first, end, ours_from: holdings.ours_from[index] };
        }
        (self.renamed, self.uncertain) = (holdings.renamed, !holdings.certain);
    }

    /// The thread whose objects this thread works on.
    pub fn owner(&self) -> u32 {
        self.thread
    }

    /// The objects of a kind that exist.
    pub fn population(&mut self, kind: Population) -> &mut Range {
        match kind {
            Population::Files => &mut self.files,
            Population::Directories => &mut self.directories,
            Population::Symlinks => &mut self.symlinks,
            Population::Links => &mut self.links,
        }
    }

    /// Assumes that all objects of an earlier run are there.
    pub fn assume(&mut self, kind: Population) {
        let all = self.plan.files;
        *self.population(kind) = Range { first: 0, end: all, ours_from: all };
    }

    /// True if the first file of an earlier run is there.
    pub fn is_there(&mut self) -> bool {
        self.fs.lstat(self.names.path(Object::File, 0)).is_ok()
    }

    /// Begins a population from nothing. For files, this thread knows their contents from here on.
    pub fn begin(&mut self, kind: Population) {
        let left = std::mem::take(self.population(kind)).ours();
        self.earlier.extend((!left.is_empty()).then_some((kind, left)));
        if kind != Population::Files {
            return;
        }
        self.written = Written::now();
        self.renamed = false;
    }

    /// Notes the effect of a whole phase on the files. `complete` is true if the phase went over every file.
    pub fn end_of(&mut self, operation: Operation, complete: bool) {
        self.written.end_of(operation, complete, self.plan.records.is_none());
        self.renamed ^= operation == Operation::Rename;
    }

    /// Notes that a phase begins.
    pub fn start_of(&mut self, operation: Operation) {
        self.written.start_of(operation);
    }

    /// The failure as one line, and its error number.
    pub fn explain(&self, failure: &Failure) -> (i32, String) {
        let last = self.names.last();
        failure.explain(if failure.path.is_empty() { &last } else { &failure.path }, self.plan.direct)
    }

    fn id(&self, number: u64) -> FileId {
        FileId { thread: self.thread, file: number }
    }

    fn size(&self, number: u64) -> u64 {
        self.plan.sizes.of(self.seed, self.thread, number)
    }

    /// The name that file `number` has.
    fn object(&self, number: u64) -> Object {
        if self.renamed != (self.away == Some(number)) { Object::Renamed } else { Object::File }
    }

    fn flags(&self, flags: i32) -> i32 {
        if self.plan.direct { flags | libc::O_DIRECT } else { flags }
    }

    /// Carries out an operation on object `number`. `mixed`: other operations go on beside it, so it must leave the
    /// object in its usual state. Operations on directories leave the number of entries in `listed`.
    ///
    /// A name that this run could not give fails: the operation leaves alone whatever has the name.
    pub fn carry_out(&mut self, operation: Operation, number: u64, mixed: bool) -> Result<(), Failure> {
        if !self.foreign.is_empty()
            && let Some(used) = self.used(operation, number)
            && self.foreign.has(self.thread, used, number)
        {
            let path = self.names.path(used, number).to_string_lossy().into_owned();
            return Err(Failure { path, ..Failure::wrong(Call::Open, Bad::Foreign) });
        }
        let object = self.object(number);
        let outcome = self.attempt(operation, object, number, mixed);
        if matches!(operation.row().walk, Walk::Takes(Population::Files)) {
            self.away = self.away.filter(|away| *away != number);
        }
        if let Err(failure) = &outcome
            && !failure.is_stop()
        {
            self.note_failure(operation, object, number, failure);
        }
        outcome
    }

    /// The number of bytes that a file has at least.
    fn readable(&self, number: u64) -> u64 {
        self.written.readable(self.size(number))
    }

    /// The objects that this thread has made and not removed.
    pub fn holdings(&self) -> Holdings {
        let of = |range: Range| (range.first, range.end);
        let ranges = [of(self.files), of(self.directories), of(self.symlinks), of(self.links)];
        let all = [self.files, self.directories, self.symlinks, self.links];
        Holdings {
            ranges,
            ours_from: all.map(|range| range.ours_from),
            renamed: self.renamed,
            away: self.away,
            certain: !self.uncertain,
        }
    }

    /// The file that a rename of a mix has to take: the one that the last rename gave another name, if any.
    pub fn away(&self) -> Option<u64> {
        self.away
    }

    /// Gives the file that a mix has renamed its name back. It does not count as an operation of the mix, and is not
    /// measured.
    pub fn come_home(&mut self) -> Result<(), Failure> {
        let Some(number) = self.away else { return Ok(()) };
        let timed = std::mem::replace(&mut self.tally.timed, false);
        let back = self.rename(self.object(number), number, true);
        self.tally.timed = timed;
        back
    }

    /// True if an earlier run may have left objects of a number beyond the planned ones: the directory of the number is
    /// there.
    pub fn may_be_there(&mut self, number: u64) -> bool {
        let directory = self.names.directory_of(number);
        !self.plan.layout.hashed && self.fs.stat(self.names.directory(directory)).is_ok()
    }
}
