//! `lockfile=`: ops on a file exclude those of other clones, by flock(2) on a descriptor that belongs to the clone.
//!
//! A clone holds a lock while ops on its file are in flight. The engine hands a request that cannot have its lock at
//! once back as if the engine were full, until nothing is in flight: no clone waits for a lock while it holds one.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use job::job::FileLock;
use job::workload::OpKind;
use measure::Direction;
use sys::file;

use super::{Completion, Engine, Queued, Request, Setup};
use crate::Error;

/// Time between two attempts to get a lock that another clone holds.
const RETRY: Duration = Duration::from_micros(20);

/// An engine whose ops take their file's lock first.
pub struct Locked {
    engine: Box<dyn Engine>,
    shared_reads: bool,
    names: Vec<String>,
    locks: Vec<Lock>,
    /// By slot: the file of the slot's request in flight.
    file_of: Vec<u32>,
    in_flight: usize,
}

#[derive(Default)]
struct Lock {
    file: Option<File>,
    in_flight: u32,
    exclusive: bool,
}

impl Locked {
    /// The engine with locks on its files, as the job's `lockfile` says.
    ///
    /// # Errors
    /// None at present; a file that cannot be locked fails when it is opened.
    pub fn make(engine: Box<dyn Engine>, setup: &Setup) -> Result<Box<dyn Engine>, Error> {
        let mut locks = Vec::new();
        locks.resize_with(setup.files as usize, Lock::default);
        Ok(Box::new(Locked {
            engine,
            shared_reads: setup.job.files.lock == FileLock::ReadWrite,
            names: setup.names.to_vec(),
            locks,
            file_of: vec![0; setup.slots.count() as usize],
            in_flight: 0,
        }))
    }

    /// True if the request may go now: the clone holds the file's lock as the request needs it. The call waits for the
    /// lock only while nothing is in flight.
    fn admit(&mut self, request: &Request) -> io::Result<bool> {
        let exclusive = !(self.shared_reads && request.kind == OpKind::Io(Direction::Read));
        let alone = self.in_flight == 0;
        let lock = &mut self.locks[request.file as usize];
        if lock.in_flight > 0 {
            return Ok(lock.exclusive || !exclusive);
        }
        let Some(file) = &lock.file else { return Ok(true) }; // not open: the engine reports the error
        while !file::try_lock(file, exclusive)? {
            if !alone {
                return Ok(false);
            }
            std::thread::sleep(RETRY);
        }
        lock.exclusive = exclusive;
        Ok(true)
    }

    fn release(&mut self, slot: u32) {
        self.in_flight -= 1;
        let lock = &mut self.locks[self.file_of[slot as usize] as usize];
        lock.in_flight -= 1;
        if lock.in_flight == 0
            && let Some(file) = &lock.file
        {
            file::unlock(file);
        }
    }

    fn release_all(&mut self, done: &[Completion]) {
        for completion in done {
            self.release(completion.slot.index());
        }
    }
}

impl Engine for Locked {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.locks[file as usize].file = Some(File::open(&self.names[file as usize])?);
        self.engine.open(file, fd)
    }

    fn close(&mut self, file: u32) {
        self.engine.close(file);
        self.locks[file as usize].file = None;
    }

    fn queue(&mut self, request: Request) -> Queued {
        match self.admit(&request) {
            Ok(true) => {}
            Ok(false) => return Queued::Full(request),
            Err(error) => {
                let result = -i64::from(error.raw_os_error().unwrap_or(libc::ENOLCK));
                return Queued::Done(Completion { slot: request.slot, result });
            }
        }
        let (slot, file) = (request.slot.index(), request.file);
        self.file_of[slot as usize] = file;
        self.locks[file as usize].in_flight += 1;
        self.in_flight += 1;
        let queued = self.engine.queue(request);
        if !matches!(queued, Queued::Later) {
            self.release(slot);
        }
        queued
    }

    fn submit(&mut self) -> io::Result<usize> {
        self.engine.submit()
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let before = done.len();
        let reaped = self.engine.reap(min, max, timeout_ns, done);
        self.release_all(&done[before..]);
        reaped
    }

    fn submit_and_reap(
        &mut self,
        min: usize,
        max: usize,
        timeout_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let before = done.len();
        let submitted = self.engine.submit_and_reap(min, max, timeout_ns, done);
        self.release_all(&done[before..]);
        submitted
    }

    forward_the_rest!(engine);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    use job::Job;
    use sys::buffer::Memory;

    use super::*;
    use crate::engine::{Maker, Slots};

    #[test]
    fn a_lock_is_held_exactly_while_ops_are_in_flight() {
        let path = std::env::current_exe().unwrap().with_file_name(format!("locked-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let other = File::open(&path).unwrap();
        let mut job = Job { engine: "null".into(), ..Job::default() };
        job.files.lock = FileLock::ReadWrite;
        let (slots, mut free) = Slots::new(4, 4096, 0, &Memory::Anonymous).unwrap();
        let names = [path.to_str().unwrap().to_owned()];
        let setup = Setup { job: &job, slots: Arc::clone(&slots), depth: 4, files: 1, names: &names, clone: 0 };
        let engine = Maker::find("null").unwrap().make(&setup).unwrap();
        let mut engine = Locked::make(engine, &setup).unwrap();
        engine.open(0, other.as_raw_fd()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let free_for = |exclusive| {
            let taken = file::try_lock(&other, exclusive).unwrap();
            file::unlock(&other);
            taken
        };
        let mut request = |direction| {
            let slot = free.pop().unwrap();
            Request { slot, kind: OpKind::Io(direction), file: 0, offset: 0, len: 1, skip: 0, priority: 0 }
        };
        assert!(matches!(engine.queue(request(Direction::Read)), Queued::Later));
        assert!(matches!(engine.queue(request(Direction::Read)), Queued::Later));
        assert!(free_for(false) && !free_for(true), "reads share");
        let Queued::Full(write) = engine.queue(request(Direction::Write)) else { panic!("a write among reads") };
        let mut done = Vec::new();
        engine.submit_and_reap(1, 1, None, &mut done).unwrap();
        assert!(!free_for(true), "one is still in flight");
        engine.reap(1, 1, None, &mut done).unwrap();
        assert!(free_for(true));
        assert!(matches!(engine.queue(write), Queued::Later));
        assert!(!free_for(false), "writes exclude");
        engine.submit_and_reap(1, 1, None, &mut done).unwrap();
        assert!(free_for(true));
    }
}
