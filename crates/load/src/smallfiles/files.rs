//! One thread's files: which of them exist, and the effect of each operation on one.
//!
//! Names, sizes and contents are computed from numbers: a million files take no more memory than one.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;

use job::workload::permutation::Permutation;
use job::workload::random::{Random, mix};
use sys::buffer::{Buffer, Memory};
use sys::clock::{monotonic_ns, sleep_until_ns};

use super::content::{Content, FileId};
use super::fs::{EntryKind, FileSystem, Handle, Stat};
use super::limit::Limit;
use super::listing::{Holdings, Listing};
use super::operation::{Operation, Population, Walk};
use super::plan::Plan;
use super::tally::{Call, Failure, Tally};
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

/// The facts by which reads know the files' contents.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// True if this run made the files, so that the generations are known.
    here: bool,
    /// The newest generation in any file.
    newest: u32,
    /// The generation that the last overwrite of all files wrote: no file's first part is older.
    everywhere: u32,
    /// The length of each file in multiples of its size: 1, 0 after `mknod`, one more after each complete append phase.
    parts: u64,
    /// True if `truncate` may have cut some files to half of their size.
    truncated: bool,
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
    /// Names that this run could not give, by their thread: they are somebody else's, or nobody's. The first number of
    /// each row of them, and the end of the row.
    foreign: BTreeMap<(u32, Object, u64), u64>,
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
            written: Written { here: false, newest: u32::MAX, everywhere: 0, parts: 1, truncated: false },
            made,
            earlier: Vec::new(),
            foreign: BTreeMap::new(),
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
        self.written = Written { here: true, newest: 0, everywhere: 0, parts: 1, truncated: false };
        self.renamed = false;
    }

    /// Notes that this run could not give a name: whatever has the name is somebody else's, unless an earlier phase of
    /// the run gave the name.
    fn found(&mut self, object: Object, number: u64) {
        let kind = match object {
            Object::File => Some(Population::Files),
            Object::Directory => Some(Population::Directories),
            Object::Symlink => Some(Population::Symlinks),
            Object::Link => Some(Population::Links),
            _ => None,
        };
        if self.earlier.iter().any(|(known, range)| Some(*known) == kind && range.contains(&number)) {
            return;
        }
        // Objects are made in order: a million of them are one row.
        let key = (self.thread, object, number);
        match self.foreign.range_mut(..=key).next_back() {
            Some((&(thread, other, _), end)) if (thread, other) == (self.thread, object) && *end >= number => {
                *end = (*end).max(number + 1);
            }
            _ => drop(self.foreign.insert(key, number + 1)),
        }
    }

    /// True if this run could not give that name.
    fn is_foreign(&self, object: Object, number: u64) -> bool {
        let row = self.foreign.range(..=(self.thread, object, number)).next_back();
        row.is_some_and(|(&(thread, other, _), &end)| (thread, other) == (self.thread, object) && number < end)
    }

    /// The object that an operation works on by its name; None if it lists directories or removes everything.
    fn used(&self, operation: Operation, number: u64) -> Option<Object> {
        match (operation, operation.row().walk) {
            (Operation::DeleteRenamed, _) => Some(Object::Renamed),
            (_, Walk::Uses(kind) | Walk::Takes(kind)) => Some(match kind {
                Population::Files => self.object(number),
                Population::Directories => Object::Directory,
                Population::Symlinks => Object::Symlink,
                Population::Links => Object::Link,
            }),
            _ => None,
        }
    }

    /// Notes the names that a failed operation did not give.
    fn note_failure(&mut self, operation: Operation, object: Object, number: u64, failure: &Failure) {
        match (operation, failure.call) {
            (Operation::Create | Operation::Mknod, Call::Create | Call::Mknod | Call::Mkdir) => {
                self.found(object, number);
            }
            (Operation::SwiftPut, call) => {
                self.found(Object::File, number);
                if matches!(call, Call::Create | Call::Mkdir) {
                    self.found(Object::Temporary, number);
                }
            }
            (Operation::Symlink, _) => self.found(Object::Symlink, number),
            (Operation::Link, _) => self.found(Object::Link, number),
            (Operation::Mkdir, _) => self.found(Object::Directory, number),
            (Operation::Rename, _) => {
                self.found(if object == Object::File { Object::Renamed } else { Object::File }, number);
            }
            _ => {}
        }
    }

    /// Notes the effect of a whole phase on the files. `complete` is true if the phase went over every file.
    pub fn end_of(&mut self, operation: Operation, complete: bool) {
        match operation {
            Operation::Append if complete => self.written.parts += 1,
            Operation::Mknod => self.written.parts = 0,
            Operation::Overwrite | Operation::TruncateOverwrite => {
                let whole = self.plan.records.is_none();
                if self.written.here && complete && whole {
                    self.written.everywhere = self.written.newest;
                }
                if operation == Operation::TruncateOverwrite {
                    self.written.parts = self.written.parts.min(1);
                }
                if complete && whole {
                    self.written.parts = self.written.parts.max(1);
                }
            }
            Operation::Truncate => self.written.truncated = true,
            Operation::Rename => self.renamed = !self.renamed,
            _ => {}
        }
        if complete && operation == Operation::TruncateOverwrite {
            self.written.truncated = false;
        }
    }

    /// Notes, before a phase that overwrites files begins, that it writes a new generation.
    pub fn start_of(&mut self, operation: Operation) {
        if matches!(operation, Operation::Overwrite | Operation::TruncateOverwrite) && self.written.here {
            self.written.newest += 1;
        }
    }

    /// Makes the directories of the layout that fall to this thread. Existing directories stay as they are.
    pub fn make_directories(&mut self) -> Result<(), Failure> {
        let (step, first) = match self.plan.layout.shared {
            true => (u64::from(self.plan.sharers()), u64::from(self.thread)),
            false => (1, 0),
        };
        let mut directory = first;
        while directory < self.names.directories() && !(self.stopped)() {
            self.make_directory(directory, false)?;
            directory += step;
        }
        Ok(())
    }

    /// Makes one directory with all directories above it. `counted`: the calls are measured.
    fn make_directory(&mut self, directory: u64, counted: bool) -> Result<(), Failure> {
        for path in self.names.ancestry(directory) {
            let made = match counted {
                true => {
                    self.tally.time(Call::Mkdir, || self.fs.mkdir(&path, DIR_MODE)).map_err(|failure| failure.error)
                }
                false => self.fs.mkdir(&path, DIR_MODE),
            };
            match made {
                Ok(()) => self.note_made(directory),
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) => {
                    let path = path.to_string_lossy().into_owned();
                    return Err(Failure { call: Call::Mkdir, error, path });
                }
            }
        }
        Ok(())
    }

    fn note_made(&mut self, directory: u64) {
        // Mixes make more files than were planned for, and so more directories.
        let word = (directory / 64) as usize;
        if word >= self.made.len() {
            self.made.resize(word + 1, 0);
        }
        self.made[word] |= 1 << (directory % 64);
    }

    /// Makes a directory of the layout, and those above it that come with it. `listed` is the number of these; the ones
    /// that were there stay as they are.
    fn make_part_of_the_tree(&mut self, directory: u64) -> Result<(), Failure> {
        self.listed = 0;
        for path in self.names.brought_by(directory) {
            match self.tally.time(Call::Mkdir, || self.fs.mkdir(&path, DIR_MODE)) {
                Ok(()) => {
                    self.listed += 1;
                    self.note_made(directory);
                }
                Err(failure) if failure.error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(failure) => return Err(Failure { path: path.to_string_lossy().into_owned(), ..failure }),
            }
        }
        Ok(())
    }

    /// Removes a directory of the layout, and those above it that came with it. `listed` is the number of these; the
    /// ones that hold something, or are none of the layout's, stay.
    fn remove_part_of_the_tree(&mut self, directory: u64) -> Result<(), Failure> {
        self.listed = 0;
        for path in self.names.brought_by(directory).iter().rev() {
            match self.tally.time(Call::Rmdir, || self.fs.rmdir(path)) {
                Ok(()) => self.listed += 1,
                Err(failure) if stays(&failure.error) => break,
                Err(failure) => return Err(Failure { path: path.to_string_lossy().into_owned(), ..failure }),
            }
        }
        Ok(())
    }

    /// The number of directories of the layout, with those that are there beyond the planned ones: a mix makes more
    /// files than were planned for.
    pub fn directories_there(&mut self) -> u64 {
        let mut end = self.names.directories();
        while self.fs.stat(self.names.directory(end)).is_ok() {
            end += 1;
        }
        end
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

    fn open(&mut self, object: Object, number: u64, flags: i32) -> Result<Box<dyn Handle>, Failure> {
        let flags = self.flags(flags);
        let call = if flags & libc::O_CREAT != 0 { Call::Create } else { Call::Open };
        let path = self.names.path(object, number);
        match self.tally.time(call, || self.fs.open(path, flags, FILE_MODE)) {
            // A directory is missing: mixes make more files than were planned for, and gfapi_perf_tool makes
            // directories as it comes to them.
            Err(failure) if call == Call::Create && failure.error.raw_os_error() == Some(libc::ENOENT) => {
                let directory = self.names.directory_of(number);
                self.make_directory(directory, true)?;
                let path = self.names.path(object, number);
                self.tally.time(call, || self.fs.open(path, flags, FILE_MODE))
            }
            outcome => outcome,
        }
    }

    fn close(&mut self, mut handle: Box<dyn Handle>, wrote: bool) -> Result<(), Failure> {
        if wrote && self.plan.fsync {
            self.tally.time(Call::Fsync, || handle.fsync())?;
        }
        self.tally.time(Call::Close, || handle.close())
    }

    /// Writes `len` bytes from `offset` of the file on, in records. `placed`: the plan may order and limit the records;
    /// otherwise they follow each other.
    fn write(
        &mut self,
        handle: &mut dyn Handle,
        number: u64,
        offset: u64,
        len: u64,
        generation: u32,
        placed: bool,
    ) -> Result<(), Failure> {
        let id = self.id(number);
        let record = self.plan.record_of(self.size(number));
        for (index, (at, len)) in records(self.plan, record, number, len, placed).enumerate() {
            if index > 0 {
                self.go_on()?;
            }
            let record = &mut self.buffer.as_mut_slice()[..len];
            self.content.fill(record, id, offset + at, generation);
            self.await_turn(Call::Write, len)?;
            let mut done = 0;
            while done < len {
                let rest = &self.buffer.as_slice()[done..len];
                let to = offset + at + done as u64;
                let wrote = self.tally.time(Call::Write, || match placed && self.plan.random {
                    true => handle.pwrite(rest, to),
                    false => handle.write(rest),
                })?;
                if wrote == 0 {
                    let error = io::Error::from_raw_os_error(libc::EIO);
                    return Err(Failure { call: Call::Write, error, path: String::new() });
                }
                done += wrote;
                self.tally.moved(wrote, len - done);
            }
        }
        Ok(())
    }

    /// Reads `len` bytes from the beginning of the file on, in records, and compares them if the plan verifies.
    fn read(&mut self, handle: &mut dyn Handle, number: u64, len: u64) -> Result<(), Failure> {
        let id = self.id(number);
        let base = self.size(number);
        let everywhere = if self.written.here { self.written.everywhere } else { 0 };
        let record = self.plan.record_of(base);
        for (index, (at, len)) in records(self.plan, record, number, len, true).enumerate() {
            if index > 0 {
                self.go_on()?;
            }
            self.await_turn(Call::Read, len)?;
            let mut done = 0;
            while done < len {
                let room = &mut self.buffer.as_mut_slice()[done..len];
                let from = at + done as u64;
                let got = self.tally.time(Call::Read, || match self.plan.random {
                    true => handle.pread(room, from),
                    false => handle.read(room),
                })?;
                if got == 0 {
                    let error = io::Error::other(Bad::Short { at: from, of: at + len as u64 });
                    return Err(Failure { call: Call::Read, error, path: String::new() });
                }
                done += got;
                self.tally.moved(got, len - done);
            }
            if self.plan.verify {
                let record = &self.buffer.as_slice()[..len];
                // An overwrite of all files does not reach appended bytes: they may be of an older generation.
                let oldest = if at + len as u64 <= base { everywhere } else { 0 };
                match self.content.check(record, id, at, oldest..=self.written.newest) {
                    Ok(blocks) => self.tally.blocks += blocks,
                    Err(mismatch) => {
                        self.tally.blocks += 1;
                        self.tally.mismatches += 1;
                        let error = io::Error::other(Bad::Differs { offset: mismatch.offset, what: mismatch.what });
                        return Err(Failure { call: Call::Read, error, path: String::new() });
                    }
                }
            }
        }
        Ok(())
    }

    /// Carries out an operation on object `number`. `mixed`: other operations go on beside it, so it must leave the
    /// object in its usual state. Operations on directories leave the number of entries in `listed`.
    ///
    /// A name that this run could not give fails: the operation leaves alone whatever has the name.
    pub fn carry_out(&mut self, operation: Operation, number: u64, mixed: bool) -> Result<(), Failure> {
        if !self.foreign.is_empty()
            && let Some(used) = self.used(operation, number)
            && self.is_foreign(used, number)
        {
            let path = self.names.path(used, number).to_string_lossy().into_owned();
            return Err(Failure { call: Call::Open, error: io::Error::other(Bad::Foreign), path });
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

    fn attempt(&mut self, operation: Operation, object: Object, number: u64, mixed: bool) -> Result<(), Failure> {
        match operation {
            Operation::Create => {
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
                let mut handle = self.open(object, number, flags)?;
                self.write(&mut *handle, number, 0, self.size(number), self.written.known_newest(), false)?;
                self.close(handle, true)
            }
            Operation::Append => {
                let mut handle = self.open(object, number, libc::O_WRONLY | libc::O_APPEND)?;
                let size = self.size(number);
                let end = match mixed || self.written.truncated || !self.written.here {
                    true if !self.plan.checkable => 0,
                    true => self.tally.time(Call::Fstat, || handle.fstat())?.len,
                    false => size * self.written.parts,
                };
                self.write(&mut *handle, number, end, size, self.written.known_newest(), false)?;
                self.close(handle, true)
            }
            Operation::Overwrite | Operation::TruncateOverwrite => {
                let cut = if operation == Operation::TruncateOverwrite { libc::O_TRUNC } else { 0 };
                let mut handle = self.open(object, number, libc::O_WRONLY | cut)?;
                self.write(&mut *handle, number, 0, self.size(number), self.written.known_newest(), true)?;
                self.close(handle, true)
            }
            Operation::Read => {
                let mut handle = self.open(object, number, libc::O_RDONLY)?;
                self.read(&mut *handle, number, self.readable(number))?;
                self.close(handle, false)
            }
            Operation::Mknod => {
                let path = self.names.path(object, number);
                match self.tally.time(Call::Mknod, || self.fs.mknod(path, FILE_MODE)) {
                    Err(failure) if failure.error.raw_os_error() == Some(libc::ENOENT) => {
                        self.make_directory(self.names.directory_of(number), true)?;
                        let path = self.names.path(object, number);
                        self.tally.time(Call::Mknod, || self.fs.mknod(path, FILE_MODE))
                    }
                    outcome => outcome,
                }
            }
            Operation::Stat => {
                let path = self.names.path(object, number);
                let stat = self.tally.time(Call::Stat, || self.fs.stat(path))?;
                self.check_stat(stat.kind == EntryKind::File, stat.len, number)
            }
            Operation::Chmod => {
                let mode = if number.is_multiple_of(2) { 0o640 } else { 0o644 };
                let path = self.names.path(object, number);
                self.tally.time(Call::Chmod, || self.fs.chmod(path, mode))
            }
            Operation::Truncate => {
                let half = self.size(number) / 2;
                let path = self.names.path(object, number);
                self.tally.time(Call::Truncate, || self.fs.truncate(path, half))
            }
            Operation::Setxattr => self.set_xattrs(object, number),
            Operation::Getxattr => self.get_xattrs(object, number),
            Operation::SwiftPut => self.swift_put(number),
            Operation::SwiftGet => {
                let mut handle = self.open(object, number, libc::O_RDONLY)?;
                self.read(&mut *handle, number, self.readable(number))?;
                self.close(handle, false)?;
                self.get_xattrs(object, number)
            }
            Operation::AwaitCreate => self.await_create(number),
            Operation::Rename => self.rename(object, number, mixed),
            Operation::Unlink => self.unlink(object, number),
            Operation::DeleteRenamed => self.unlink(Object::Renamed, number),
            Operation::Symlink => {
                let content = self.other_names.path(object, number);
                let path = self.names.path(Object::Symlink, number);
                self.tally.time(Call::Symlink, || self.fs.symlink(content, path))
            }
            Operation::Readlink => {
                let mut content = [0; 4096];
                let path = self.names.path(Object::Symlink, number);
                self.tally.time(Call::Readlink, || self.fs.readlink(path, &mut content)).map(drop)
            }
            Operation::Link => {
                let existing = self.other_names.path(object, number);
                let path = self.names.path(Object::Link, number);
                self.tally.time(Call::Link, || self.fs.link(existing, path))
            }
            Operation::Mkdir => {
                let path = self.names.path(Object::Directory, number);
                self.tally.time(Call::Mkdir, || self.fs.mkdir(path, DIR_MODE))
            }
            Operation::StatDir => {
                let path = self.names.path(Object::Directory, number);
                let stat = self.tally.time(Call::Stat, || self.fs.stat(path))?;
                self.expect(stat.kind == EntryKind::Directory, "not a directory")
            }
            Operation::Rmdir => {
                let path = self.names.path(Object::Directory, number);
                self.tally.time(Call::Rmdir, || self.fs.rmdir(path))
            }
            Operation::Readdir => {
                let (mut entries, verify) = (0, self.plan.verify);
                let path = self.names.directory(number);
                self.listing.clear();
                let mut entry = |name: &CStr, kind: EntryKind| {
                    entries += 1;
                    if verify {
                        self.listing.push(name, kind, None);
                    }
                };
                self.tally.time(Call::Readdir, || self.fs.readdir(path, &mut entry))?;
                self.listed = entries;
                self.check_listing(Call::Readdir, number, mixed)
            }
            Operation::LsL => {
                let (mut entries, verify) = (0, self.plan.verify);
                let path = self.names.directory(number);
                self.listing.clear();
                let mut entry = |name: &CStr, stat: &Stat| {
                    entries += 1;
                    if verify {
                        self.listing.push(name, stat.kind, Some(stat.len));
                    }
                };
                self.tally.time(Call::ReaddirStat, || self.fs.readdir_stat(path, &mut entry))?;
                self.listed = entries;
                self.check_listing(Call::ReaddirStat, number, mixed)
            }
            Operation::MakeTree => self.make_part_of_the_tree(number),
            Operation::RemoveTree => self.remove_part_of_the_tree(number),
            Operation::Cleanup => self.clean(number),
        }
    }

    /// The number of bytes that a file has at least.
    fn readable(&self, number: u64) -> u64 {
        self.written.readable(self.size(number))
    }

    fn check_stat(&mut self, is_file: bool, len: u64, number: u64) -> Result<(), Failure> {
        let expected = self.readable(number);
        match is_file {
            true => self.expect(len >= expected, &format!("{len} bytes long, not {expected}")),
            false => self.expect(false, "not a file"),
        }
    }

    /// Compares an attribute with its expected value: `what` says how it differs, unless it is `right`.
    fn expect(&mut self, right: bool, what: &str) -> Result<(), Failure> {
        if !self.plan.verify || right {
            return Ok(());
        }
        self.tally.mismatches += 1;
        let error = io::Error::other(Bad::Differs { offset: 0, what: what.into() });
        Err(Failure { call: Call::Stat, error, path: String::new() })
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

    /// Compares the directory that was just listed with the objects that were made in it.
    fn check_listing(&mut self, call: Call, directory: u64, mixed: bool) -> Result<(), Failure> {
        if !self.plan.verify {
            return Ok(());
        }
        // Threads of other ranks do not publish what they have: their names are ignored.
        // In shared directories the other threads' mix goes on meanwhile, and their files come and go: only this
        // thread's own files are compared.
        let threads: Vec<(u32, Holdings)> = match self.plan.layout.shared && !mixed {
            true => {
                (0..self.plan.workers()).map(|worker| (self.plan.number_of(worker), (self.others)(worker))).collect()
            }
            false => vec![(self.thread, self.holdings())],
        };
        let (own, written, plan, seed) = (self.thread, self.written, self.plan, self.seed);
        let least = |thread: u32, number: u64| match thread == own {
            true => written.readable(plan.sizes.of(seed, thread, number)),
            false => 0,
        };
        match self.listing.check(&mut self.names, directory, &threads, least) {
            Ok(entries) => {
                self.tally.entries += entries;
                Ok(())
            }
            Err(what) => {
                self.tally.mismatches += 1;
                let path = self.names.directory(directory).to_string_lossy().into_owned();
                Err(Failure { call, error: io::Error::other(Bad::Listing { what }), path })
            }
        }
    }

    fn rename(&mut self, from: Object, number: u64, mixed: bool) -> Result<(), Failure> {
        let to = if from == Object::File { Object::Renamed } else { Object::File };
        self.rename_new(from, to, number)?;
        if mixed {
            self.away = if self.away == Some(number) { None } else { Some(number) };
        }
        Ok(())
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

    /// Gives an object a name that nobody has: a rename never replaces a file that is there.
    fn rename_new(&mut self, from: Object, to: Object, number: u64) -> Result<(), Failure> {
        let (old, new) = (self.other_names.path(from, number), self.names.path(to, number));
        if !self.renames_by_replacing {
            let outcome = self.tally.time(Call::Rename, || self.fs.rename_new(old, new));
            match outcome.as_ref().err().and_then(|failure| failure.error.raw_os_error()) {
                Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => self.renames_by_replacing = true,
                _ => return outcome,
            }
        }
        // The look is not part of the rename: it is not measured.
        match self.fs.lstat(new) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            looked => {
                let error = looked.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EEXIST));
                return Err(Failure { call: Call::Rename, error, path: String::new() });
            }
        }
        self.tally.time(Call::Rename, || self.fs.rename(old, new))
    }

    fn unlink(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        let path = self.names.path(object, number);
        match self.tally.time(Call::Unlink, || self.fs.unlink(path)) {
            Err(failure) if self.plan.missing_is_removed && failure.error.raw_os_error() == Some(libc::ENOENT) => {
                self.tally.missing += 1;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// The name and the value of an extended attribute, both computed from numbers. The value is in the buffer; returns
    /// its length.
    fn xattr(&mut self, number: u64, index: u32) -> (CString, usize) {
        let name = CString::new(format!("user.plimsoll.{index}")).unwrap_or_default();
        let len = self.plan.xattr_bytes;
        let mut random = Random::new(mix(number ^ (u64::from(index) << 40)) ^ self.seed);
        let room = &mut self.buffer.as_mut_slice()[..len];
        room.iter_mut().for_each(|byte| *byte = b' ' + (random.next() % 94) as u8);
        (name, len)
    }

    fn set_xattrs(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        for index in 0..self.plan.xattr_count {
            let (name, len) = self.xattr(number, index);
            let path = self.names.path(object, number);
            let value = &self.buffer.as_slice()[..len];
            self.tally.time(Call::Setxattr, || self.fs.setxattr(path, &name, value))?;
        }
        Ok(())
    }

    fn get_xattrs(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        for index in 0..self.plan.xattr_count {
            let (name, len) = self.xattr(number, index);
            let mut value = vec![0; len.max(1)];
            let path = self.names.path(object, number);
            let got = self.tally.time(Call::Getxattr, || self.fs.getxattr(path, &name, &mut value))?;
            if self.plan.verify && value[..got] != self.buffer.as_slice()[..len] {
                self.tally.mismatches += 1;
                let what = format!("another value of {}", name.to_string_lossy());
                let error = io::Error::other(Bad::Differs { offset: 0, what });
                return Err(Failure { call: Call::Getxattr, error, path: String::new() });
            }
        }
        Ok(())
    }

    /// Stores a file as OpenStack Swift stores an object: complete and on disk before it has its name.
    fn swift_put(&mut self, number: u64) -> Result<(), Failure> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let mut handle = self.open(Object::Temporary, number, flags)?;
        self.write(&mut *handle, number, 0, self.size(number), self.written.known_newest(), false)?;
        self.tally.time(Call::Fsync, || handle.fsync())?;
        self.tally.time(Call::Close, || handle.close())?;
        self.set_xattrs(Object::Temporary, number)?;
        let named = self.rename_new(Object::Temporary, Object::File, number);
        if named.is_err() {
            drop(self.fs.unlink(self.other_names.path(Object::Temporary, number))); // the failure above is the one to tell
        }
        named
    }

    /// Breaks an operation of many records off if the run is to stop.
    fn go_on(&self) -> Result<(), Failure> {
        match (self.stopped)() {
            false => Ok(()),
            true => {
                let error = io::Error::other(Bad::Stopped);
                Err(Failure { call: Call::Close, error, path: String::new() })
            }
        }
    }

    /// Waits until a read or write of `bytes` bytes keeps to the limit; breaks off if the phase ends before.
    fn await_turn(&mut self, call: Call, bytes: usize) -> Result<(), Failure> {
        let limit = if call == Call::Read { &mut self.reads } else { &mut self.writes };
        let Some(turn_ns) = limit.turn_ns(monotonic_ns, bytes) else { return Ok(()) };
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= turn_ns {
                return Ok(());
            }
            self.go_on()?;
            if self.deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns) {
                return Err(Failure { call, error: io::Error::other(Bad::Stopped), path: String::new() });
            }
            sleep_until_ns(turn_ns.min(now_ns + LONGEST_SLEEP_NS));
        }
    }

    fn await_create(&mut self, number: u64) -> Result<(), Failure> {
        let object = self.object(number);
        loop {
            let path = self.names.path(object, number);
            match self.tally.time(Call::Stat, || self.fs.stat(path)) {
                Err(failure) if failure.error.raw_os_error() == Some(libc::ENOENT) => {
                    self.go_on()?;
                    if self.deadline_ns.is_some_and(|deadline_ns| monotonic_ns() >= deadline_ns) {
                        let error = io::Error::other(Bad::Absent);
                        return Err(Failure { call: Call::Stat, error, path: String::new() });
                    }
                    std::thread::sleep(std::time::Duration::from_micros(500));
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    /// True if an earlier run may have left objects of a number beyond the planned ones: the directory of the number is
    /// there.
    pub fn may_be_there(&mut self, number: u64) -> bool {
        let directory = self.names.directory_of(number);
        !self.plan.layout.hashed && self.fs.stat(self.names.directory(directory)).is_ok()
    }

    /// Removes every object that any operation may have left under that number. `listed` is the number of these.
    fn clean(&mut self, number: u64) -> Result<(), Failure> {
        self.listed = 0;
        let directory = self.names.directory_of(number);
        if self.absent == Some(directory) {
            return Ok(());
        }
        for object in [Object::File, Object::Renamed, Object::Temporary, Object::Symlink, Object::Link] {
            let path = self.names.path(object, number);
            let gone = self.tally.time(Call::Unlink, || self.fs.unlink(path));
            self.listed += u64::from(was_there(gone)?);
        }
        let path = self.names.path(Object::Directory, number);
        let gone = self.tally.time(Call::Rmdir, || self.fs.rmdir(path));
        self.listed += u64::from(was_there(gone)?);
        if self.listed == 0 && !self.plan.layout.hashed {
            let looked = self.fs.lstat(self.names.directory(directory)).err().and_then(|error| error.raw_os_error());
            self.absent = (looked == Some(libc::ENOENT)).then_some(directory);
        }
        Ok(())
    }

    /// Removes the objects that this run made and has not removed yet. It tries all of them, then returns the first
    /// failure, and the number of failures.
    pub fn remove_made(&mut self) -> (Result<(), Failure>, u64) {
        let (mut first, mut stay) = (Ok(()), 0);
        let earlier = std::mem::take(&mut self.earlier);
        // A name that was there before this run stays, unless an earlier phase of the run made it.
        let mut rows = earlier.clone();
        for kind in [Population::Files, Population::Symlinks, Population::Links, Population::Directories] {
            rows.push((kind, self.population(kind).ours()));
        }
        for (kind, number) in rows.into_iter().flat_map(|(kind, row)| row.map(move |number| (kind, number))) {
            let before = earlier.iter().any(|(other, range)| *other == kind && range.contains(&number));
            let removed = match kind {
                // A phase may have renamed the file, and a later one made another of its first name.
                Population::Files => self.remove_file(number, before),
                Population::Symlinks => self.remove(Object::Symlink, number).map(drop),
                Population::Links => self.remove(Object::Link, number).map(drop),
                Population::Directories => self.remove(Object::Directory, number).map(drop),
            };
            stay += u64::from(removed.is_err());
            first = first.and(removed);
        }
        (first, stay)
    }

    /// Removes file `number` under the first of its names that is there, or under all of them. The first name comes
    /// first: a file that has it was not renamed, whoever has the other name.
    fn remove_file(&mut self, number: u64, all: bool) -> Result<(), Failure> {
        let (renames, puts) = (self.plan.does(Operation::Rename), self.plan.does(Operation::SwiftPut));
        let names = [(Object::File, true), (Object::Renamed, renames), (Object::Temporary, puts)];
        let mut first = Ok(());
        for (object, _) in names.into_iter().filter(|(_, given)| *given) {
            match self.remove(object, number) {
                Ok(true) if !all => break,
                Ok(_) => {}
                Err(failure) => first = first.and(Err(failure)),
            }
        }
        first
    }

    /// Removes an object under a name that this run gave; true if it was there.
    fn remove(&mut self, object: Object, number: u64) -> Result<bool, Failure> {
        if self.is_foreign(object, number) {
            return Ok(false);
        }
        let path = self.names.path(object, number);
        let (call, removed) = match object {
            Object::Directory => (Call::Rmdir, self.fs.rmdir(path)),
            _ => (Call::Unlink, self.fs.unlink(path)),
        };
        match removed {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(Failure { call, error, path: self.names.last() }),
        }
    }

    /// Removes the directories of the layout that this run made and that are empty.
    /// With `all`, it removes the empty directories of an earlier run too. It tries all of them, then returns the first
    /// failure.
    pub fn remove_directories(&mut self, all: bool) -> Result<(), Failure> {
        let mut first = Ok(());
        let beyond = if all { self.directories_there() } else { self.names.directories() };
        for directory in 0..(self.made.len() as u64 * 64).max(beyond) {
            let made = self.made.get((directory / 64) as usize).is_some_and(|word| word & (1 << (directory % 64)) != 0);
            if made || (all && directory < beyond) {
                for path in self.names.ancestry(directory).iter().rev() {
                    match self.fs.rmdir(path) {
                        Ok(()) => {}
                        Err(error) if stays(&error) => break,
                        Err(error) => {
                            let path = path.to_string_lossy().into_owned();
                            first = first.and(Err(Failure { call: Call::Rmdir, error, path }));
                            break;
                        }
                    }
                }
            }
        }
        first
    }

    /// The failure as one line, and its error number.
    pub fn explain(&self, failure: &Failure) -> (i32, String) {
        let path = if failure.path.is_empty() { self.names.last() } else { failure.path.clone() };
        if let Some(bad) = failure.error.get_ref().and_then(|inner| inner.downcast_ref::<Bad>()) {
            return match bad {
                Bad::Short { at, of } => (
                    libc::ENODATA,
                    format!(
                        "{path} ends at byte {at} instead of {of} (was it made with another --size, --seed or --threads?)"
                    ),
                ),
                Bad::Stopped => (libc::ECANCELED, format!("{path}: the run was stopped")),
                Bad::Foreign => {
                    (libc::EEXIST, format!("{path} is left alone: this run could not make it, so it is not its own"))
                }
                Bad::Absent => (libc::ETIMEDOUT, format!("{path} did not appear within --runtime")),
                Bad::Listing { what } => (
                    libc::EILSEQ,
                    format!(
                        "{path}: {what} (files of another --files, --threads or --files-per-dir, or a wrong listing)"
                    ),
                ),
                Bad::Differs { offset, what } => (
                    libc::EILSEQ,
                    format!(
                        "{path} at byte {offset}: {what} (written with another --seed, --size or --threads, or damaged)"
                    ),
                ),
            };
        }
        let errno = failure.error.raw_os_error().unwrap_or(libc::EIO);
        let hint = match errno {
            libc::EEXIST => "left over from an earlier run? `plimsoll files --op cleanup` removes it",
            libc::ENOENT => {
                "were the files made, by as many threads, with as many files a directory and the same prefix?"
            }
            // Also ext4 says this of a value that its one block for attributes cannot take.
            libc::ENOSPC if failure.call == Call::Setxattr => {
                "the attributes do not fit, or the file system is full: try a smaller --xattr-size or --xattr-count"
            }
            libc::E2BIG | libc::ERANGE if failure.call == Call::Setxattr => {
                "the value is too large for this file system: use a smaller --xattr-size"
            }
            libc::ENOSPC => "the file system is full, of data or of inodes",
            libc::EDQUOT => "the quota is used up",
            libc::EINVAL if self.plan.direct => "does this file system support O_DIRECT with this --record?",
            libc::EOPNOTSUPP => "this file system does not support it",
            libc::ENOTEMPTY => "it holds something that this run did not make",
            _ => "",
        };
        let hint = if hint.is_empty() { String::new() } else { format!(" ({hint})") };
        (errno, format!("cannot {} {path}: {}{hint}", failure.call.name(), failure.error))
    }
}

impl Written {
    /// The generation that writes use now. Files of an earlier run get generation 0.
    fn known_newest(&self) -> u32 {
        if self.here { self.newest } else { 0 }
    }

    /// The number of bytes that a file made with `size` bytes has at least.
    fn readable(&self, size: u64) -> u64 {
        let whole = size * self.parts;
        if self.truncated { whole.min(size / 2) } else { whole }
    }
}

/// True if a directory was not removed because it holds objects of others, belongs to others, or is gone.
fn stays(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR | libc::ENOENT))
}

/// True if an object was removed, false if there was none.
fn was_there(outcome: Result<(), Failure>) -> Result<bool, Failure> {
    match outcome {
        Err(failure) if failure.error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// A wrong result of a call that succeeded.
#[derive(Debug)]
enum Bad {
    Short {
        at: u64,
        of: u64,
    },
    Differs {
        offset: u64,
        what: String,
    },
    Listing {
        what: String,
    },
    Absent,
    /// The operation was broken off, because the run is to stop. It is not a failure.
    Stopped,
    /// The name is not one that this run gave.
    Foreign,
}

impl Failure {
    /// True if the operation did not fail: the end of the run broke it off.
    pub fn is_stop(&self) -> bool {
        let inner = self.error.get_ref().and_then(|inner| inner.downcast_ref::<Bad>());
        matches!(inner, Some(Bad::Stopped))
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Short { at, of } => write!(f, "the file ends at byte {at} instead of {of}"),
            Bad::Differs { offset, what } => write!(f, "byte {offset}: {what}"),
            Bad::Listing { what } => f.write_str(what),
            Bad::Absent => f.write_str("the file did not appear"),
            Bad::Stopped => f.write_str("the run was stopped"),
            Bad::Foreign => f.write_str("this run did not make it"),
        }
    }
}

impl std::error::Error for Bad {}

/// The records of `record` bytes that make up `len` bytes: (offset, length), in order or at random, all of them or the
/// first few. `placed`: each has its place in the file; otherwise they follow each other whatever the plan says.
fn records(
    plan: &Plan,
    record: u64,
    number: u64,
    len: u64,
    placed: bool,
) -> impl Iterator<Item = (u64, usize)> + use<> {
    let all = len.div_ceil(record);
    let order = (placed && plan.random && all > 1)
        .then(|| Permutation::new(all, &mut Random::new(mix(plan.seed ^ mix(number)))));
    let wanted = plan.records.filter(|_| placed).unwrap_or(all).min(all);
    (0..wanted).map(move |index| {
        let at = order.as_ref().map_or(index, |order| order.at(index)) * record;
        (at, record.min(len - at) as usize)
    })
}
