//! One queue on its queue pair.
//!
//! A command leaves in a capsule of this side's memory, by SEND. Its data are behind the command in the capsule, where
//! the controller takes them there; or the controller moves them by RDMA, to or from the slot that the command's keyed
//! SGL names. The response comes into a receive that was posted before the command left. The card puts the data of the
//! controller's RDMA WRITEs into memory before it reports the response (InfiniBand Architecture Specification, volume
//! 1, section 9.5: requests of a queue pair complete in order), so a response that has been polled says that the data
//! are there.
//!
//! Two ends belong to a command: its response, and that of its SEND. The card may send a capsule again until the peer's
//! acknowledgement has come, also after the response. So a capsule's place is free when its SEND, or a later one, has
//! completed; and a command whose data are in the capsule ends with the later of its two ends. All other commands end
//! with the response, and only each sixteenth of their SENDs makes a completion.
//!
//! A card notices that its peer has gone when it sends. A controller that ends a connection while a cable is cut cannot
//! say so, and a queue that waits for responses alone would wait for ever. So after a silence the queue sends a probe:
//! an RDMA WRITE of no bytes, which names no memory (section 9.7.4: its key is not looked at), and which only the
//! peer's card notices.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvme::spec::rdma::KeyedSgl;
use nvme::spec::{Command, Completion, IdentifyController, Sgl};
use rustix::event::{PollFd, PollFlags};
use verbs::either::{Channel, Completions, Pair};
use verbs::stack::Event;
use verbs::work::{Completion as Finished, Part, Receive, Request, Status as Outcome, Work};
use verbs::{Either, Verbs};

use super::arena::Registered;
use super::memory::{Copied, QueueMemory};
use crate::link::{Arrived, Broken, Buffers, Done, Issued, Transfer};

/// Parts of one SEND: the command, and its data.
pub(super) const PARTS: u32 = 2;
/// SENDs without a completion between two that have one, at most.
pub(super) const SIGNAL_EVERY: u32 = 16;
/// Completions that one call takes.
const BATCH: usize = 64;
/// Polls without a completion after which the events of the connection are looked at: a system call.
const QUIET_POLLS: u32 = 1024;
/// The silence after which a queue that waits for responses sends a probe.
const SILENCE: Duration = Duration::from_secs(5);
/// SGLS of Identify Controller: data in the capsule by an offset can be used.
const SGLS_OFFSET: u32 = 1 << 20;

/// A command that has not ended.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    tag: u32,
    /// The command as given, for issuing it again on another queue.
    command: Command,
    transfer: Transfer,
    /// The place of data that are not in a slot.
    copied: Option<Copied>,
    /// True once the command's SEND has been posted.
    has_left: bool,
    /// True while the end of the SEND is awaited, because the data are in the capsule.
    in_capsule: bool,
    /// The response, if it was the first of the two ends.
    response: Option<Completion>,
}

/// A place of the send queue, and its capsule.
#[derive(Clone, Copy)]
struct Sending {
    cid: u16,
    /// Data behind the command.
    data: Option<Part>,
    /// True for a probe, which has no command.
    is_probe: bool,
}

/// A queue of a controller on its queue pair.
pub struct RdmaLink {
    /// Ends first, and with it all access of the controller and of the card to the memory below.
    pair: Pair,
    completions: Completions,
    channel: Channel,
    memory: QueueMemory,
    registered: Option<Arc<Registered>>,
    stack: Either,
    depth: usize,
    /// Bytes of data that fit into a command's capsule.
    capsule_bytes: u32,
    /// The outstanding commands by CID.
    commands: Box<[Option<Outstanding>]>,
    free: Vec<u16>,
    /// The places of the send queue, as a ring: those taken are before `next`, and the last `unposted` of them wait.
    sendings: Box<[Sending]>,
    next: usize,
    taken: usize,
    unposted: usize,
    /// SENDs without a completion since the last that has one.
    silent: u32,
    /// Completions that have been polled and not looked at.
    polled: Vec<Finished>,
    /// True if the thread has slept, or something failed: the connection may have an event.
    looks_for_events: bool,
    quiet_polls: u32,
    /// The first look for events that found nothing since the last completion, or the last probe.
    silent_since: Option<Instant>,
}

impl fmt::Debug for RdmaLink {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let outstanding = self.outstanding();
        f.debug_struct("RdmaLink")
            .field("depth", &self.depth)
            .field("outstanding", &outstanding)
            .finish_non_exhaustive()
    }
}

impl Drop for RdmaLink {
    fn drop(&mut self) {
        // The pair may have ended already, by the peer's word or with its device.
        let _ = self.stack.disconnect(&self.pair);
    }
}

impl RdmaLink {
    pub(super) fn new(
        stack: Either,
        pair: Pair,
        completions: Completions,
        channel: Channel,
        memory: QueueMemory,
        registered: Option<Arc<Registered>>,
        depth: u32,
    ) -> RdmaLink {
        let places = (depth + SIGNAL_EVERY) as usize;
        RdmaLink {
            pair,
            completions,
            channel,
            memory,
            registered,
            stack,
            depth: depth as usize,
            capsule_bytes: 0,
            commands: vec![None; depth as usize].into(),
            free: (0..depth as u16).rev().collect(),
            sendings: vec![Sending { cid: 0, data: None, is_probe: false }; places].into(),
            next: 0,
            taken: 0,
            unposted: 0,
            silent: 0,
            polled: Vec::with_capacity(BATCH),
            looks_for_events: false,
            quiet_polls: 0,
            silent_since: None,
        }
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Posts room for a response to each command that may be outstanding.
    pub(super) fn post_receives(&mut self) -> io::Result<()> {
        (0..self.depth).try_for_each(|number| self.post_receive(number))
    }

    /// Takes no more than `depth` commands at a time: the controller has room for that many.
    pub(super) fn limit(&mut self, depth: usize) {
        self.depth = self.depth.min(depth);
        self.free.retain(|&cid| usize::from(cid) < self.depth);
    }

    #[inline]
    fn post_receive(&self, number: usize) -> io::Result<()> {
        let parts = [self.memory.response(number)];
        self.stack.receive(&self.pair, Receive { id: number as u64, parts: &parts })
    }

    #[inline]
    pub(crate) fn issue(&mut self, tag: u32, command: Command, transfer: Transfer, buffers: &impl Buffers) -> bool {
        if self.taken == self.sendings.len() {
            return false;
        }
        let Some(&cid) = self.free.last() else { return false };
        let (at, length, is_out) = match transfer {
            Transfer::None => (0, 0, false),
            Transfer::Out { at, len } => (at, len, true),
            Transfer::In { at, len } => (at, len, false),
        };
        let mut copied = None;
        let data = match (length, buffers.slot(tag), &self.registered) {
            (0, ..) => None,
            (_, Some(slot), Some(registered)) => {
                debug_assert!(is_out || registered.writable, "the controller may not write into slots");
                Some(registered.part(slot, at, length))
            }
            _ => {
                let Some(place) = self.memory.take_copy(length) else { return false };
                if is_out {
                    self.memory.write_copy(place, &buffers.bytes(tag)[at as usize..][..length as usize]);
                }
                copied = Some(place);
                Some(self.memory.copy(place, length))
            }
        };
        let in_capsule = is_out && data.is_some() && length <= self.capsule_bytes;
        let keyed = |Part { address, length, key }| KeyedSgl { address, length, key, invalidate: false };
        let sgl = match data {
            Some(_) if in_capsule => Sgl::in_capsule(length),
            Some(part) => keyed(part).descriptor(),
            None => keyed(Part { address: 0, length: 0, key: 0 }).descriptor(),
        };
        self.free.pop();
        self.memory.write_capsule(self.next, &Command { cid, sgl, ..command });
        self.sendings[self.next] = Sending { cid, data: data.filter(|_| in_capsule), is_probe: false };
        self.commands[usize::from(cid)] =
            Some(Outstanding { tag, command, transfer, copied, has_left: false, in_capsule, response: None });
        self.take_place();
        true
    }

    #[inline]
    fn take_place(&mut self) {
        self.next = if self.next + 1 == self.sendings.len() { 0 } else { self.next + 1 };
        self.taken += 1;
        self.unposted += 1;
    }

    /// Sends a probe if responses are awaited, and nothing has come for long: its failure is the end of the connection.
    fn probe_silence(&mut self) -> Result<(), Broken> {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        // SENDs that wait for places probe the peer, too.
        if self.outstanding() == 0 || self.taken == self.sendings.len() || since.elapsed() < SILENCE {
            return Ok(());
        }
        self.silent_since = Some(Instant::now());
        self.sendings[self.next] = Sending { cid: 0, data: None, is_probe: true };
        self.take_place();
        self.post()
    }

    #[inline]
    pub(crate) fn send(&mut self, _buffers: &impl Buffers) -> Result<bool, Broken> {
        self.post().map(|()| true)
    }

    #[inline]
    fn post(&mut self) -> Result<(), Broken> {
        while self.unposted > 0 {
            let places = self.sendings.len();
            let place = (self.next + places - self.unposted) % places;
            let Sending { cid, data, is_probe } = self.sendings[place];
            if is_probe {
                let request = Request::Write { address: 0, key: 0 };
                self.stack.post(&self.pair, Work { id: place as u64, request, parts: &[], signaled: true })?;
                (self.silent, self.unposted) = (0, self.unposted - 1);
                continue;
            }
            let signaled = data.is_some() || self.silent + 1 == SIGNAL_EVERY;
            let capsule = self.memory.capsule(place);
            let parts = [capsule, data.unwrap_or(capsule)];
            let parts = if data.is_some() { &parts[..] } else { &parts[..1] };
            let request = Request::Send { invalidate: None };
            self.stack.post(&self.pair, Work { id: place as u64, request, parts, signaled })?;
            self.silent = if signaled { 0 } else { self.silent + 1 };
            self.unposted -= 1;
            if let Some(command) = &mut self.commands[usize::from(cid)] {
                command.has_left = true;
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn receive(&mut self, buffers: &mut impl Buffers, done: &mut Vec<Done>) -> Result<Arrived, Broken> {
        self.poll()?;
        if self.polled.is_empty() {
            self.quiet_polls += 1;
            if self.looks_for_events || self.quiet_polls == QUIET_POLLS {
                self.look_for_events().or_else(|end| self.take_rest(end, buffers, done))?;
                self.probe_silence()?;
            }
            return Ok(Arrived::Nothing);
        }
        (self.quiet_polls, self.silent_since) = (0, None);
        let arrived = if self.polled.len() == BATCH { Arrived::Full } else { Arrived::Something };
        self.take_polled(buffers, done).map(|()| arrived)
    }

    #[inline]
    fn take_polled(&mut self, buffers: &mut impl Buffers, done: &mut Vec<Done>) -> Result<(), Broken> {
        let polled = std::mem::take(&mut self.polled);
        let outcome = polled.iter().try_for_each(|finished| self.take_in(finished, buffers, done));
        self.polled = polled;
        self.polled.clear();
        outcome
    }

    /// Takes in the completions that came between the last poll and the event that is the `end` of the connection:
    /// responses count, and a completion may know the end better.
    fn take_rest(&mut self, end: Broken, buffers: &mut impl Buffers, done: &mut Vec<Done>) -> Result<(), Broken> {
        loop {
            self.poll()?;
            if self.polled.is_empty() {
                return Err(end);
            }
            match self.take_polled(buffers, done) {
                Ok(()) => {}
                // A flush says no more than the event.
                Err(Broken::Closed) => return Err(end),
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Takes completions from the card, unless some wait already.
    #[inline]
    fn poll(&mut self) -> Result<(), Broken> {
        if self.polled.is_empty() {
            self.stack.poll(&self.completions, BATCH, &mut self.polled)?;
        }
        Ok(())
    }

    #[inline]
    fn take_in(&mut self, finished: &Finished, buffers: &mut impl Buffers, done: &mut Vec<Done>) -> Result<(), Broken> {
        match finished.status {
            Outcome::Success if finished.received => self.take_response(finished, buffers, done),
            Outcome::Success => {
                self.take_sent(finished.id as usize, buffers, done);
                Ok(())
            }
            // A flush says nothing about its cause: the event does.
            Outcome::Flushed => {
                self.look_for_events()?;
                Err(Broken::Closed)
            }
            status => Err(Broken::Work(words(status))),
        }
    }

    /// The SEND of a place has ended, and all before it.
    fn take_sent(&mut self, place: usize, buffers: &mut impl Buffers, done: &mut Vec<Done>) {
        let places = self.sendings.len();
        let oldest = (self.next + places - self.taken) % places;
        let ended = (place + places - oldest) % places + 1;
        debug_assert!(ended <= self.taken - self.unposted, "the card reports work that it was given");
        self.taken -= ended;
        let Sending { cid, data, .. } = self.sendings[place];
        if data.is_some()
            && let Some(command) = &mut self.commands[usize::from(cid)]
        {
            command.in_capsule = false;
            if let Some(response) = command.response {
                self.end(&response, buffers, done);
            }
        }
    }

    fn take_response(
        &mut self,
        finished: &Finished,
        buffers: &mut impl Buffers,
        done: &mut Vec<Done>,
    ) -> Result<(), Broken> {
        if finished.length as usize != Completion::BYTES {
            return Err(Broken::Violation(format!(
                "a response of {} bytes, not {}",
                finished.length,
                Completion::BYTES
            )));
        }
        if let Some(key) = finished.invalidated {
            return Err(Broken::Violation(format!("it invalidates key {key:#x}, which it was not asked to")));
        }
        let number = finished.id as usize;
        let response = self.memory.read_response(number);
        // Room for the next response, before the next command can leave.
        self.post_receive(number)?;
        let command = self.commands.get_mut(usize::from(response.cid)).and_then(Option::as_mut);
        let Some(command) = command.filter(|command| command.has_left && command.response.is_none()) else {
            let why = format!("a response to command {}, which is not outstanding", response.cid);
            return Err(Broken::Violation(why));
        };
        if command.in_capsule {
            command.response = Some(response);
        } else {
            self.end(&response, buffers, done);
        }
        Ok(())
    }

    #[inline]
    fn end(&mut self, response: &Completion, buffers: &mut impl Buffers, done: &mut Vec<Done>) {
        let Some(Outstanding { tag, command, transfer, copied, .. }) = self.commands[usize::from(response.cid)].take()
        else {
            return;
        };
        self.free.push(response.cid);
        if let Some(place) = copied {
            if let Transfer::In { at, len } = transfer {
                self.memory.read_copy(place, &mut buffers.bytes_mut(tag)[at as usize..][..len as usize]);
            }
            self.memory.give_back(place);
        }
        done.push(Done::new(response.status, response.result, (tag, command, transfer)));
    }

    fn look_for_events(&mut self) -> Result<(), Broken> {
        (self.looks_for_events, self.quiet_polls) = (false, 0);
        while let Some(event) = self.stack.next_event(&self.channel)? {
            match event {
                Event::Disconnected { .. } => return Err(Broken::Closed),
                Event::Removed { .. } => return Err(Broken::Io(io::Error::from_raw_os_error(libc::ENODEV))),
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.depth - self.free.len()
    }

    /// The end of a SEND may be awaited when no command is outstanding any more: it makes places free.
    #[inline]
    pub(crate) fn is_expecting(&self) -> bool {
        self.free.len() < self.depth || self.taken > self.silent as usize
    }

    pub(crate) fn outstanding_commands(&self) -> Vec<Issued> {
        self.commands.iter().flatten().map(|command| (command.tag, command.command, command.transfer)).collect()
    }

    /// Asks for a notice about the next completion, then looks again: a completion that came in between gives none.
    pub(crate) fn may_sleep(&mut self) -> Result<bool, Broken> {
        self.looks_for_events = true;
        if self.polled.is_empty() {
            self.stack.take_notices(&self.completions)?;
            self.stack.arm(&self.completions)?;
            self.poll()?;
        }
        Ok(self.polled.is_empty())
    }

    pub(crate) fn watch<'a>(&'a self, descriptors: &mut Vec<PollFd<'a>>) {
        let (completions, channel) =
            (self.stack.completions_descriptor(&self.completions), self.stack.channel_descriptor(&self.channel));
        descriptors.extend([completions, channel].map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
    }

    /// Data fit into the capsule of an I/O command if the controller takes them by an offset, right behind the command.
    pub(crate) fn learn(&mut self, identify: &IdentifyController) {
        let capsule_bytes = (identify.ioccsz * 16).saturating_sub(64);
        let takes = identify.icdoff == 0 && identify.sgls & SGLS_OFFSET != 0;
        self.capsule_bytes = if takes { capsule_bytes } else { 0 };
    }
}

/// The failure of work in words.
fn words(status: Outcome) -> &'static str {
    match status {
        Outcome::Success => "it succeeded",
        Outcome::LocalLength => "the controller's response is longer than a response",
        Outcome::LocalProtection => "the card does not know this side's memory",
        Outcome::Flushed => "the connection had ended",
        Outcome::RemoteInvalidRequest => "the controller takes no capsule of this size",
        Outcome::RemoteAccess => "the controller refuses the access",
        Outcome::RemoteOperation => "the controller cannot receive",
        Outcome::RetriesExceeded => "the controller does not answer",
        Outcome::NoReceive => "the controller has no room for commands",
        Outcome::Other(_) => "the card reports an error",
    }
}
