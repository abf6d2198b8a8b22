//! The engine that does nothing, at once: a run with it measures the cost of the generator itself.

use std::io;
use std::os::fd::RawFd;

use job::workload::OpKind;

use super::{Completion, Engine, Queued, Request, Setup};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Null::new(setup)))
}

/// Requests in the order of queueing: `pending[..submitted]` are complete, the rest waits for submission.
struct Null {
    pending: Vec<Completion>,
    submitted: usize,
    depth: usize,
}

impl Null {
    fn new(setup: &Setup) -> Null {
        let depth = setup.depth as usize;
        Null { pending: Vec::with_capacity(depth), submitted: 0, depth }
    }
}

impl Engine for Null {
    fn open(&mut self, _file: u32, _fd: RawFd) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, _file: u32) {}

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        let result = if matches!(request.kind, OpKind::Io(_)) { i64::from(request.len) } else { 0 };
        if self.depth == 1 {
            return Queued::Done(Completion { slot: request.slot, result });
        }
        if self.pending.len() == self.depth {
            return Queued::Full(request);
        }
        self.pending.push(Completion { slot: request.slot, result });
        Queued::Later
    }

    #[inline]
    fn submit(&mut self) -> io::Result<usize> {
        let taken = self.pending.len() - self.submitted;
        self.submitted = self.pending.len();
        Ok(taken)
    }

    #[inline]
    fn reap(&mut self, _min: usize, max: usize, _timeout: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let count = self.submitted.min(max);
        done.extend(self.pending.drain(..count));
        self.submitted -= count;
        Ok(())
    }
}
