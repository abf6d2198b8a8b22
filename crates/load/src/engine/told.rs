//! `--debug=io`: any engine, with a line for each op that it takes and each that it completes, in the form of fio's.
//!
//! The lines slow the load down: they are for a look at the ops, and not for a measurement.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::fd::RawFd;

use job::workload::OpKind;

use super::{Completion, Engine, Queued, Request, Setup};

/// Bytes of text that go out in one write, so that lines of several processes do not mix in a pipe (PIPE_BUF).
const WHOLE_BYTES: usize = 4096;

/// An engine that prints its ops.
pub struct Told {
    inner: Box<dyn Engine>,
    names: Vec<String>,
    /// By slot: the op, as the lines name it.
    ops: Vec<String>,
    text: String,
}

impl Told {
    /// `inner`, whose ops go to standard output.
    pub fn make(inner: Box<dyn Engine>, setup: &Setup) -> Box<dyn Engine> {
        let ops = vec![String::new(); setup.slots.count() as usize];
        Box::new(Told { inner, names: setup.names.to_vec(), ops, text: String::new() })
    }

    fn tell(&mut self, step: &str, slot: usize) {
        let line = format!("io       {:<5} {step}: io_u {slot}: {}\n", std::process::id(), self.ops[slot]);
        if self.text.len() + line.len() > WHOLE_BYTES {
            self.print();
        }
        self.text += &line;
    }

    fn print(&mut self) {
        // A closed standard output does not end the load.
        let mut out = io::stdout().lock();
        let _ = out.write_all(self.text.as_bytes()).and_then(|()| out.flush());
        self.text.clear();
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.print();
    }
}

impl Engine for Told {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.inner.open(file, fd)
    }

    fn close(&mut self, file: u32) {
        self.inner.close(file);
    }

    fn queue(&mut self, request: Request) -> Queued {
        let slot = request.slot.index() as usize;
        // fio's numbers of the directions.
        let direction = match request.kind {
            OpKind::Io(direction) => direction as u32,
            OpKind::Sync => 3,
            OpKind::DataSync => 4,
            OpKind::SyncRange => 6,
        };
        let name = self.names.get(request.file as usize).map_or("", String::as_str);
        let op = &mut self.ops[slot];
        op.clear();
        let _ = write!(op, "off={:#x},len={:#x},ddir={direction},file={name}", request.offset, request.len);
        let queued = self.inner.queue(request);
        match &queued {
            Queued::Later => self.tell("queue", slot),
            Queued::Done(_) => ["queue", "complete"].iter().for_each(|step| self.tell(step, slot)),
            Queued::Full(_) => {}
        }
        queued
    }

    fn submit(&mut self) -> io::Result<usize> {
        self.inner.submit()
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let before = done.len();
        let outcome = self.inner.reap(min, max, timeout_ns, done);
        done[before..].iter().for_each(|completion| self.tell("complete", completion.slot.index() as usize));
        outcome
    }

    forward_the_rest!(inner);
}
