//! The send queue of a connection: responses with the data before them, and the RDMA READs that fetch the data of
//! writes.
//!
//! ```text
//! replies ─┐  a reply takes one place, or two with its data: WRITE, SEND; and a receive of the host
//! wanted ──┴─► posted ─► completions ─► the buffer and the slot are free
//!            a READ takes one place, and one of the READs that both sides agreed to
//! ```
//!
//! Work that has no place waits, in order. A buffer that the card may read or write belongs to the posted work until
//! its completion has come, whatever happens to the command and to the connection.

use std::collections::VecDeque;
use std::io;

use nvme::spec::rdma::KeyedSgl;
use nvme::spec::{Completion, Status};
use pace::OpId;
use sys::buffer::Buffer;
use verbs::either::{Either, Pair, Region};
use verbs::work::{Access, Part, Request, Work};
use verbs::{Memory, Verbs};

use super::adapter::Adapter;
use super::greeting::Terms;
use crate::answer::Answer;
use crate::transport::NO_SLOT;

/// The source of data for the host.
enum Source {
    Buffer(Buffer),
    Zeros,
    /// The bytes of an answer that are not zeros at the end, if there are any, and their number.
    Answer(Option<Memory<Either>>, u32),
    /// There was no memory for the bytes of the answer.
    Missing,
}

/// Data for the host.
struct Data {
    source: Source,
    length: u32,
    /// Where they go.
    to: KeyedSgl,
}

/// A response that waits, with the data that go before it.
struct Reply {
    data: Option<Data>,
    completion: Completion,
    /// The key that the response invalidates.
    invalidates: Option<u32>,
    slot: u16,
}

/// Data of the host that wait to be fetched.
struct Wanted {
    slot: u16,
    buffer: Buffer,
    is_pooled: bool,
    length: u32,
    from: KeyedSgl,
}

/// The use of a place.
enum Use {
    Write { source: Source, length: u32 },
    Send { slot: u16 },
    Read { slot: u16, buffer: Buffer, once: Option<Region>, length: u32 },
}

/// Work that the card has.
struct Posted {
    sequence: u32,
    place: Use,
    /// The op of a command that has ended before its work: it ends with the work.
    op: Option<OpId>,
}

/// The end of work.
pub(crate) enum Ended {
    /// Data that were fetched into the buffer of a slot. `is_pooled` is true for a buffer of the reactor's pool.
    Fetched { slot: u16, buffer: Buffer, is_pooled: bool },
    /// A response that has reached the host: the command of the slot is over.
    Responded { slot: u16 },
}

/// A command whose data cannot be fetched: the device has no memory for the registration.
pub(super) struct Unfetched {
    pub slot: u16,
    pub buffer: Buffer,
}

pub(super) struct SendQueue {
    /// The name that completions of the queue carry.
    name: u32,
    /// All places, and the free ones among them.
    sends: u32,
    free: u32,
    /// READs that may still begin.
    reads: u8,
    /// Receives of the host that no response under way is for.
    receives: u32,
    responses: Memory<Either>,
    next_response: u32,
    next_sequence: u32,
    /// Data whose response follows.
    half: Option<Data>,
    replies: VecDeque<Reply>,
    wanted: VecDeque<Wanted>,
    posted: VecDeque<Posted>,
    /// Bytes for the host that wait or have not left the target's memory, and bytes asked for.
    unsent: u64,
    asked: u64,
    /// Bytes of the answers in memory.
    answers: u64,
    /// The parts of the work that is being posted.
    parts: Vec<Part>,
    /// Buffers that nobody uses any more.
    loose: Vec<Buffer>,
    /// Ops that have ended.
    ops: Vec<OpId>,
}

impl SendQueue {
    /// A queue by these terms, whose completions carry `name`.
    ///
    /// # Errors
    /// The device has no room for the memory of the responses.
    pub fn new(adapter: &Adapter, name: u32, terms: &Terms) -> io::Result<SendQueue> {
        let sends = terms.sends;
        let bytes = sends as usize * Completion::BYTES;
        let responses = Memory::new(&adapter.verbs, &adapter.domain, bytes, Access::default())?;
        Ok(SendQueue {
            name,
            sends,
            free: sends,
            reads: terms.reads.issues,
            receives: terms.responses,
            responses,
            next_response: 0,
            next_sequence: 0,
            half: None,
            replies: VecDeque::new(),
            wanted: VecDeque::new(),
            posted: VecDeque::new(),
            unsent: 0,
            asked: 0,
            answers: 0,
            parts: Vec::with_capacity(adapter.parts() as usize),
            loose: Vec::new(),
            ops: Vec::new(),
        })
    }

    pub fn sends(&self) -> u32 {
        self.sends
    }

    /// Bytes for the host that wait or have not left the target's memory.
    #[inline]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Bytes asked for that have not come.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// True if nothing waits, and the card has no work.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.wanted.is_empty() && self.posted.is_empty()
    }

    /// True if the card has no work.
    pub fn is_quiet(&self) -> bool {
        self.posted.is_empty()
    }

    /// True if work waits for a place.
    pub fn has_waiting(&self) -> bool {
        !self.replies.is_empty() || !self.wanted.is_empty()
    }

    /// Bytes of memory that the queue takes, data buffers and answers included that are not the pool's.
    #[inline]
    pub fn memory(&self) -> u64 {
        (self.replies.len() * size_of::<Reply>() + self.wanted.len() * size_of::<Wanted>()) as u64 + self.answers
    }

    /// Queues data for the host: the response follows.
    #[inline]
    pub fn data(&mut self, buffer: Buffer, length: u32, to: Option<KeyedSgl>) {
        match to {
            Some(to) => self.put(Data { source: Source::Buffer(buffer), length, to }),
            None => self.loose.push(buffer),
        }
    }

    #[inline]
    pub fn zeros(&mut self, length: u32, to: Option<KeyedSgl>) {
        if let Some(to) = to {
            self.put(Data { source: Source::Zeros, length, to });
        }
    }

    /// Queues the data of an admin or Fabrics command. Without memory the response says so.
    pub fn answer(&mut self, adapter: &Adapter, answer: &Answer, to: Option<KeyedSgl>) {
        let Some(to) = to else { return };
        let kept = answer.kept();
        let memory = match kept.len() {
            0 => Ok(None),
            _ => Memory::new(&adapter.verbs, &adapter.domain, kept.len(), Access::default()).map(|mut memory| {
                memory.write(0, kept);
                Some(memory)
            }),
        };
        let length = answer.len() as u32;
        let source = match memory {
            Ok(memory) => {
                self.answers += kept.len() as u64;
                Source::Answer(memory, kept.len() as u32)
            }
            Err(_) => Source::Missing,
        };
        self.put(Data { source, length, to });
    }

    fn put(&mut self, data: Data) {
        debug_assert!(self.half.is_none(), "a response follows each data");
        self.unsent += u64::from(data.length);
        self.half = Some(data);
    }

    /// Queues a response, after the data queued before it.
    #[inline]
    pub fn respond(&mut self, completion: &Completion, invalidates: Option<u32>) {
        self.unsent += Completion::BYTES as u64;
        self.replies.push_back(Reply { data: self.half.take(), completion: *completion, invalidates, slot: NO_SLOT });
    }

    /// The command of a slot ends with the response queued last.
    #[inline]
    pub fn end(&mut self, slot: u16) {
        if let Some(last) = self.replies.back_mut() {
            last.slot = slot;
        }
    }

    /// Queues the wish for data of the host.
    #[inline]
    pub fn want(&mut self, slot: u16, buffer: Buffer, is_pooled: bool, length: u32, from: KeyedSgl) {
        self.asked += u64::from(length);
        self.wanted.push_back(Wanted { slot, buffer, is_pooled, length, from });
    }

    /// Posts what has a place. Returns the number of responses that are on their way now.
    ///
    /// # Errors
    /// The pair takes no more work.
    #[inline]
    pub fn post(&mut self, adapter: &Adapter, pair: &Pair, unfetched: &mut Vec<Unfetched>) -> io::Result<u32> {
        let mut responses = 0;
        while let Some(reply) = self.replies.front()
            && self.free > u32::from(reply.data.is_some())
            && self.receives > 0
            && let Some(reply) = self.replies.pop_front()
        {
            self.post_reply(adapter, pair, reply)?;
            responses += 1;
        }
        while self.reads > 0
            && self.free > 0
            && let Some(wanted) = self.wanted.pop_front()
        {
            self.post_read(adapter, pair, wanted, unfetched)?;
        }
        Ok(responses)
    }

    fn post_reply(&mut self, adapter: &Adapter, pair: &Pair, reply: Reply) -> io::Result<()> {
        let Reply { data, mut completion, invalidates, slot } = reply;
        if let Some(Data { source, length, to }) = data {
            self.parts.clear();
            match parts_of(adapter, &source, length, &mut self.parts) {
                Ok(()) => {
                    let request = Request::Write { address: to.address, key: to.key };
                    self.give(adapter, pair, request, false, Use::Write { source, length })?;
                }
                Err(_) => {
                    self.unsent -= u64::from(length);
                    self.set_free(source);
                    completion.status = Status::INTERNAL_ERROR;
                }
            }
        }
        let at = self.next_response as usize * Completion::BYTES;
        self.next_response = (self.next_response + 1) % self.sends;
        self.responses.write(at, &completion.write());
        self.parts.clear();
        self.parts.push(self.responses.part(at..at + Completion::BYTES));
        self.give(adapter, pair, Request::Send { invalidate: invalidates }, true, Use::Send { slot })?;
        self.receives -= 1;
        Ok(())
    }

    fn post_read(
        &mut self,
        adapter: &Adapter,
        pair: &Pair,
        wanted: Wanted,
        unfetched: &mut Vec<Unfetched>,
    ) -> io::Result<()> {
        let Wanted { slot, buffer, is_pooled, length, from } = wanted;
        let part = match is_pooled {
            true => adapter.registered.part(&buffer, length).map(|part| (part, None)),
            false => adapter.registered.part_once(&buffer, length).map(|(part, region)| (part, Some(region))),
        };
        match part {
            Ok((part, once)) => {
                self.reads -= 1;
                self.parts.clear();
                self.parts.push(part);
                let request = Request::Read { address: from.address, key: from.key };
                self.give(adapter, pair, request, true, Use::Read { slot, buffer, once, length })
            }
            Err(_) => {
                self.asked -= u64::from(length);
                unfetched.push(Unfetched { slot, buffer });
                Ok(())
            }
        }
    }

    /// Gives work with the gathered parts to the card, and the place what the work uses.
    fn give(&mut self, adapter: &Adapter, pair: &Pair, request: Request, signaled: bool, place: Use) -> io::Result<()> {
        let sequence = self.next_sequence;
        let id = u64::from(self.name) << 32 | u64::from(sequence);
        match adapter.verbs.post(pair, Work { id, request, parts: &self.parts, signaled }) {
            Ok(()) => {
                adapter.posts.set(adapter.posts.get() + 1);
                self.next_sequence = sequence.wrapping_add(1);
                self.free -= 1;
                self.posted.push_back(Posted { sequence, place, op: None });
                Ok(())
            }
            // The card has nothing of it. The connection ends.
            Err(error) => {
                self.set_unused(place);
                Err(error)
            }
        }
    }

    /// Takes note of a completion: the work that it names, and all work before it, has ended. The outcomes are appended
    /// to `ended`, if it was a success.
    #[inline]
    pub fn completed(&mut self, id: u64, is_success: bool, ended: &mut Vec<Ended>) {
        let sequence = id as u32;
        if (id >> 32) as u32 != self.name {
            return;
        }
        while let Some(first) = self.posted.front()
            && sequence.wrapping_sub(first.sequence) < 1 << 31
            && let Some(posted) = self.posted.pop_front()
        {
            self.free += 1;
            let is_this = posted.sequence == sequence;
            self.ops.extend(posted.op);
            match posted.place {
                Use::Write { source, length } => {
                    self.unsent -= u64::from(length);
                    self.set_free(source);
                }
                Use::Send { slot } => {
                    self.receives += 1;
                    self.unsent -= Completion::BYTES as u64;
                    if is_success || !is_this {
                        ended.push(Ended::Responded { slot });
                    }
                }
                Use::Read { slot, buffer, once, length } => {
                    self.asked -= u64::from(length);
                    self.reads += 1;
                    let is_pooled = once.is_none();
                    drop(once);
                    if (is_success || !is_this) && posted.op.is_none() {
                        ended.push(Ended::Fetched { slot, buffer, is_pooled });
                    } else if is_pooled {
                        self.loose.push(buffer);
                    }
                }
            }
        }
    }

    fn set_free(&mut self, source: Source) {
        match source {
            Source::Buffer(buffer) => self.loose.push(buffer),
            Source::Answer(_, kept) => self.answers -= u64::from(kept),
            Source::Zeros | Source::Missing => {}
        }
    }

    /// Sets free what a place had, whose work the card does not have.
    fn set_unused(&mut self, place: Use) {
        match place {
            Use::Write { source, .. } => self.set_free(source),
            Use::Read { buffer, once: None, .. } => self.loose.push(buffer),
            Use::Send { .. } | Use::Read { .. } => {}
        }
    }

    /// Has the op of a slot end with the work that is posted for the slot. Returns false if none is.
    pub fn keeps(&mut self, slot: u16, op: OpId) -> bool {
        let is_its = |posted: &&mut Posted| match posted.place {
            Use::Send { slot: of } | Use::Read { slot: of, .. } => of == slot && posted.op.is_none(),
            Use::Write { .. } => false,
        };
        let found = self.posted.iter_mut().find(is_its);
        found.map(|posted| posted.op = Some(op)).is_some()
    }

    /// Forgets the responses that wait.
    pub fn forget_replies(&mut self) {
        let waiting = self.replies.drain(..).map(|reply| (reply.data, Completion::BYTES));
        let all: Vec<_> = waiting.chain([(self.half.take(), 0)]).collect();
        for (data, bytes) in all {
            self.unsent -= bytes as u64;
            if let Some(Data { source, length, .. }) = data {
                self.unsent -= u64::from(length);
                self.set_free(source);
            }
        }
    }

    /// Forgets the data that wait to be fetched.
    pub fn forget_wanted(&mut self) {
        for wanted in self.wanted.drain(..) {
            self.asked -= u64::from(wanted.length);
            if wanted.is_pooled {
                self.loose.push(wanted.buffer);
            }
        }
    }

    /// Takes the buffers that nobody uses any more.
    #[inline]
    pub fn take_loose(&mut self, into: &mut Vec<Buffer>) {
        into.append(&mut self.loose);
    }

    /// Takes the ops that have ended after their commands.
    pub fn take_ops(&mut self) -> Vec<OpId> {
        std::mem::take(&mut self.ops)
    }

    /// Ends all work: the pair does not exist any more.
    pub fn end_all(&mut self) {
        self.forget_replies();
        self.forget_wanted();
        for posted in std::mem::take(&mut self.posted) {
            self.ops.extend(posted.op);
            self.set_unused(posted.place);
        }
    }

    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.replies.shrink_to(0);
            self.wanted.shrink_to(0);
            self.posted.shrink_to(0);
        }
    }
}

/// The parts of data for the host.
///
/// # Errors
/// The device has no room for the registration of their buffer.
fn parts_of(adapter: &Adapter, source: &Source, length: u32, parts: &mut Vec<Part>) -> io::Result<()> {
    match source {
        Source::Buffer(buffer) => parts.push(adapter.registered.part(buffer, length)?),
        Source::Zeros => adapter.zeros(length, parts),
        Source::Answer(memory, kept) => {
            parts.extend(memory.as_ref().map(|memory| memory.part(0..*kept as usize)));
            adapter.zeros(length - kept, parts);
        }
        Source::Missing => return Err(io::ErrorKind::OutOfMemory.into()),
    }
    Ok(())
}
