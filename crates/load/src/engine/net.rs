//! `net` and `netsplice`: ops are blocks on a socket. One job sends and another one receives, on this host or on two;
//! fio can be the other side.
//!
//! ```text
//! make: socket, bind ─► begin: accept or connect, first datagram ─► ops ─► drop: the closing message
//! ```
//!
//! An op is carried out at once if the socket lets it. Otherwise the op waits in [`Net::reap`], which returns now and
//! then: the runner must notice the end of its time although the peer is silent.

mod message;
mod socket;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use job::workload::OpKind;
use measure::Direction;

use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;
use message::{Sequence, Tail};
use socket::{Peer, Socket};

/// The longest wait before the runner looks at its clock again, in milliseconds.
const SLICE_MS: i32 = 20;

/// An op that the socket has not finished.
struct Waiting {
    request: Request,
    /// True while the block goes out, false while it comes in.
    sends: bool,
    /// Bytes that have gone this way.
    moved: u32,
    /// True if the block has to go the other way afterwards (`pingpong`).
    turns: bool,
}

struct Net {
    peer: Peer,
    socket: Option<Socket>,
    slots: Arc<Slots>,
    waiting: Option<Waiting>,
    /// The op that the runner has not collected yet.
    ended: Option<Completion>,
    pingpong: bool,
    /// True if the job sends: the peer gets to know of its end.
    sends: bool,
    /// Numbers in datagrams, which show losses; None: the blocks belong to verification, or are not datagrams.
    sequence: Option<Sequence>,
    /// The end of the stream that ops have delivered.
    tail: Tail,
    /// Bytes of the closing message that were delivered as data, before the rest of the message came.
    stray_bytes: u64,
}

/// Makes the engine: the socket of the side that listens is bound when this returns.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    let job = setup.job;
    let peer = Peer::of(job, setup.clone)?;
    let numbered = peer.is_datagram() && job.verify.is_none();
    Ok(Box::new(Net {
        peer,
        socket: None,
        slots: Arc::clone(&setup.slots),
        waiting: None,
        ended: None,
        pingpong: super::blocking::option_is_set(job, "pingpong"),
        sends: job.rw.directions.write,
        sequence: numbered.then(Sequence::default),
        tail: Tail::default(),
        stray_bytes: 0,
    }))
}

/// The progress of an op.
enum Step {
    /// The socket is not ready.
    Blocked,
    /// The op has ended with this result.
    Ended(i64),
}

impl Net {
    /// Carries the op on as far as the socket lets it.
    fn step(&mut self, op: &mut Waiting) -> Step {
        let Some(socket) = &mut self.socket else { return Step::Ended(-i64::from(libc::ENOTCONN)) };
        loop {
            let len = op.request.len as usize;
            let place = self.slots.place(&op.request);
            // SAFETY: place() points at len bytes of the slot; the request owns the slot: nobody else uses them.
            let bytes = unsafe { std::slice::from_raw_parts_mut(place, len) };
            if op.sends {
                if let Some(sequence) = self.sequence.as_mut().filter(|_| op.moved == 0) {
                    sequence.write(bytes);
                }
                match socket.send(&bytes[op.moved as usize..]) {
                    Ok(sent) => op.moved += sent as u32,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        // The same datagram is tried again: its number is used once.
                        if let Some(sequence) = &mut self.sequence {
                            sequence.take_back();
                        }
                        return Step::Blocked;
                    }
                    Err(error) => return failed(&error),
                }
            } else {
                if self.peer.is_datagram() && op.request.skip > 0 && op.moved == 0 && !op.turns {
                    return Step::Ended(Completion::COMPLETE);
                }
                match socket.receive(&mut bytes[op.moved as usize..]) {
                    Ok(0) if self.peer.is_datagram() => continue,
                    Ok(got) => {
                        let end = op.moved as usize + got;
                        let closing = self.tail.closing(&bytes[..end]).filter(|_| got > 0);
                        if closing.is_some() || got == 0 {
                            socket.is_at_end = true;
                            let (data, stray) = closing.unwrap_or((op.moved as usize, 0));
                            self.stray_bytes += stray as u64;
                            // Bytes that came before count; the rest of the op finds the end.
                            return Step::Ended(if data > 0 { data as i64 } else { Completion::ENDED });
                        }
                        op.moved = end as u32;
                        if let Some(sequence) = &mut self.sequence {
                            sequence.look(&bytes[..end]);
                        }
                        if self.peer.is_datagram() && end < len {
                            if !op.turns {
                                return Step::Ended(end as i64);
                            }
                            op.moved = len as u32; // as in fio, the answer is a whole block
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Blocked,
                    Err(error) => return failed(&error),
                }
            }
            if (op.moved as usize) < len {
                continue;
            }
            if !op.sends && !self.peer.is_datagram() {
                self.tail.push(bytes);
            }
            if !op.turns {
                return Step::Ended(i64::from(op.moved));
            }
            (op.turns, op.moved, op.sends) = (false, 0, !op.sends);
        }
    }

    /// Carries the waiting op on; true if there is an op for the runner to collect.
    fn advance(&mut self) -> bool {
        if let Some(mut op) = self.waiting.take() {
            let at_end = self.socket.as_ref().is_some_and(|socket| socket.is_at_end);
            let step = if at_end { Step::Ended(Completion::ENDED) } else { self.step(&mut op) };
            match step {
                Step::Blocked => self.waiting = Some(op),
                Step::Ended(result) => self.ended = Some(Completion { slot: op.request.slot, result }),
            }
        }
        self.ended.is_some()
    }
}

fn failed(error: &io::Error) -> Step {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    // A peer that has ended no longer reads what is still on its way.
    Step::Ended(-i64::from(errno))
}

impl Engine for Net {
    fn open(&mut self, _file: u32, _fd: RawFd) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, _file: u32) {}

    fn begin(&mut self, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        self.socket = self.peer.meet(self.sends, is_stopped)?;
        Ok(())
    }

    fn queue(&mut self, request: Request) -> Queued {
        let OpKind::Io(direction @ (Direction::Read | Direction::Write)) = request.kind else {
            // Syncs and trims have no meaning on a socket: as in fio, they succeed.
            return Queued::Done(Completion { slot: request.slot, result: 0 });
        };
        let sends = direction == Direction::Write;
        self.waiting = Some(Waiting { request, sends, moved: 0, turns: self.pingpong });
        if self.advance()
            && let Some(completion) = self.ended.take()
        {
            return Queued::Done(completion);
        }
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        Ok(usize::from(self.waiting.is_some() || self.ended.is_some()))
    }

    fn reap(&mut self, min: usize, _max: usize, timeout: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        if !self.advance()
            && min > 0
            && let (Some(op), Some(socket)) = (&self.waiting, &self.socket)
        {
            let most_ms = timeout.map_or(SLICE_MS, |ns| (ns / 1_000_000).min(SLICE_MS as u64) as i32);
            socket.wait(op.sends, most_ms)?;
            self.advance();
        }
        done.extend(self.ended.take());
        Ok(())
    }

    fn abandon(&mut self, _patience: std::time::Duration) {
        if let Some(op) = self.waiting.take() {
            // Bytes that have come, or gone, are transferred.
            let result = if op.moved > 0 && !self.pingpong { i64::from(op.moved) } else { Completion::ENDED };
            self.ended = Some(Completion { slot: op.request.slot, result });
        }
        if let Some(socket) = &mut self.socket {
            socket.is_at_end = true;
        }
    }

    fn stray_bytes(&self) -> u64 {
        self.stray_bytes
    }

    fn lost_messages(&self) -> u64 {
        self.sequence.as_ref().map_or(0, |sequence| sequence.lost)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if let Some(socket) = &mut self.socket
            && self.sends
        {
            socket.say_closing();
        }
    }
}
