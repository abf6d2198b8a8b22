//! One file's data: opened, written or read in records within the limits, closed.

use std::io;

use job::workload::permutation::Permutation;
use job::workload::random::{Random, mix};
use sys::clock::{monotonic_ns, sleep_until_ns};

use super::{FILE_MODE, Files, LONGEST_SLEEP_NS};
use crate::smallfiles::failure::{Bad, Failure};
use crate::smallfiles::fs::Handle;
use crate::smallfiles::plan::Plan;
use crate::smallfiles::tally::Call;
use crate::smallfiles::tree::Object;

impl Files<'_> {
    pub(super) fn open(&mut self, object: Object, number: u64, flags: i32) -> Result<Box<dyn Handle>, Failure> {
        let flags = self.flags(flags);
        let call = if flags & libc::O_CREAT != 0 { Call::Create } else { Call::Open };
        let path = self.names.path(object, number);
        match self.tally.time(call, || self.fs.open(path, flags, FILE_MODE)) {
            // A directory is missing: mixes make more files than were planned for, and gfapi_perf_tool makes
            // directories as it comes to them.
            Err(failure) if call == Call::Create && failure.is_absence() => {
                let directory = self.names.directory_of(number);
                self.make_directory(directory, true)?;
                let path = self.names.path(object, number);
                self.tally.time(call, || self.fs.open(path, flags, FILE_MODE))
            }
            outcome => outcome,
        }
    }

    pub(super) fn close(&mut self, mut handle: Box<dyn Handle>, wrote: bool) -> Result<(), Failure> {
        if wrote && self.plan.fsync {
            self.tally.time(Call::Fsync, || handle.fsync())?;
        }
        self.tally.time(Call::Close, || handle.close())
    }

    /// Writes `len` bytes from `offset` of the file on, in records. `placed`: the plan may order and limit the records;
    /// otherwise they follow each other.
    pub(super) fn write(
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
    pub(super) fn read(&mut self, handle: &mut dyn Handle, number: u64, len: u64) -> Result<(), Failure> {
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
                    return Err(Failure::wrong(Call::Read, Bad::Short { at: from, of: at + len as u64 }));
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
                        return Err(Failure::wrong(
                            Call::Read,
                            Bad::Differs { offset: mismatch.offset, what: mismatch.what },
                        ));
                    }
                }
            }
        }
        Ok(())
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
                return Err(Failure::wrong(call, Bad::Stopped));
            }
            sleep_until_ns(turn_ns.min(now_ns + LONGEST_SLEEP_NS));
        }
    }

    /// Breaks an operation of many records off if the run is to stop.
    pub(super) fn go_on(&self) -> Result<(), Failure> {
        match (self.stopped)() {
            false => Ok(()),
            true => Err(Failure::wrong(Call::Close, Bad::Stopped)),
        }
    }
}

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
