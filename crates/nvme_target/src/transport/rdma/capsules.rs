//! The capsules of a host: each is one message, a command with the data that it brings.

use std::collections::VecDeque;

use nvme::spec::Command;
use verbs::work::{Completion, Status};

use super::adapter::Adapter;
use crate::connection::{Breach, COMMANDS_BEFORE_CONNECT, Connection, Ended};
use crate::core::Core;
use crate::queued;
use crate::traces::Cause;
use crate::transport::Sink;

/// A capsule that waits.
struct Capsule {
    command: Command,
    data: Vec<u8>,
}

/// The capsules of a connection that cannot go on, copied out of the receives, which other connections need.
#[derive(Default)]
pub(super) struct Backlog {
    capsules: VecDeque<Capsule>,
    /// Data in the capsule of the command in that slot, which waits for a buffer.
    held: Option<(u16, Vec<u8>)>,
    bytes: usize,
}

impl Backlog {
    pub fn memory(&self) -> usize {
        self.bytes + self.held.as_ref().map_or(0, |(_, data)| data.len())
    }

    fn is_empty(&self) -> bool {
        self.capsules.is_empty() && self.held.is_none()
    }

    fn put(&mut self, capsule: Capsule) {
        self.bytes += size_of::<Capsule>() + capsule.data.len();
        self.capsules.push_back(capsule);
    }

    fn take(&mut self) -> Option<Capsule> {
        let capsule = self.capsules.pop_front()?;
        self.bytes -= size_of::<Capsule>() + capsule.data.len();
        Some(capsule)
    }

    pub fn shrink(&mut self) {
        self.capsules.shrink_to(0);
    }
}

/// The data of a capsule.
enum Payload<'a> {
    /// The data are in a receive.
    Received {
        adapter: &'a Adapter,
        receive: u64,
        bytes: u32,
    },
    Kept(Vec<u8>),
}

impl Payload<'_> {
    fn bytes(&self) -> u32 {
        match self {
            Payload::Received { bytes, .. } => *bytes,
            Payload::Kept(data) => data.len() as u32,
        }
    }

    /// Copies the first bytes.
    #[inline]
    fn read(&self, into: &mut [u8]) {
        match self {
            Payload::Received { adapter, receive, .. } => adapter.read_capsule(*receive, Command::BYTES, into),
            Payload::Kept(data) => into.copy_from_slice(&data[..into.len()]),
        }
    }

    /// The first `bytes` bytes of the data.
    fn copy(&self, bytes: u32) -> Result<Vec<u8>, Ended> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes as usize).map_err(|_| Ended::Gone(Cause::NO_MEMORY))?;
        copy.resize(bytes as usize, 0);
        self.read(&mut copy);
        Ok(copy)
    }
}

impl Connection {
    /// Acts on a message of the host, or keeps it. The receive is free again afterwards.
    ///
    /// # Errors
    /// The peer has gone, or the message breaks the protocol.
    pub fn received(&mut self, core: &mut Core, adapter: &Adapter, completion: &Completion) -> Result<(), Ended> {
        match completion.status {
            Status::Success => {}
            Status::LocalLength => return Err(Ended::Breach(Breach::CapsuleTooLong)),
            _ => return Err(Ended::Gone(Cause::ABORTED)),
        }
        if self.is_closing() {
            return Ok(()); // nobody listens any more
        }
        let Some(bytes) = completion.length.checked_sub(Command::BYTES as u32) else {
            return Err(Ended::Breach(Breach::CapsuleTooShort { bytes: completion.length }));
        };
        if let Some(controller) = &self.controller {
            controller.seen(core.now_ns);
        }
        let mut command = [0; Command::BYTES];
        adapter.read_capsule(completion.id, 0, &mut command);
        let command = Command::read(&command);
        let payload = Payload::Received { adapter, receive: completion.id, bytes };
        if self.is_stalled() || !self.transport.rdma().backlog.is_empty() {
            let waiting = self.transport.rdma().backlog.capsules.len() as u32;
            let outstanding = self.outstanding + waiting + 1;
            let most = if self.queue_entries > 0 { self.queue_entries.into() } else { COMMANDS_BEFORE_CONNECT };
            if outstanding > most {
                return Err(Ended::Breach(Breach::TooManyCommands { outstanding }));
            }
            let data = payload.copy(bytes)?;
            self.transport.rdma_mut().backlog.put(Capsule { command, data });
            queued::count(self, core);
            return Ok(());
        }
        let outcome = self.take_capsule(core, &command, &payload);
        queued::count(self, core);
        outcome
    }

    /// Acts on the capsules that have waited.
    pub(in crate::transport) fn take_in_capsules(&mut self, core: &mut Core) -> Result<(), Ended> {
        let outcome = self.take_in_waiting(core);
        queued::count(self, core);
        outcome
    }

    fn take_in_waiting(&mut self, core: &mut Core) -> Result<(), Ended> {
        if !self.is_stalled()
            && let Some((slot, data)) = self.transport.rdma_mut().backlog.held.take()
        {
            self.data_of_capsule(core, slot, &Payload::Kept(data))?;
        }
        while !self.is_stalled()
            && !self.is_closing()
            && let Some(Capsule { command, data }) = self.transport.rdma_mut().backlog.take()
        {
            self.take_capsule(core, &command, &Payload::Kept(data))?;
        }
        Ok(())
    }

    /// Hands a command over, and takes its data to their place.
    #[inline]
    fn take_capsule(&mut self, core: &mut Core, command: &Command, payload: &Payload<'_>) -> Result<(), Ended> {
        if queued::is_beyond(self, core) {
            self.transport.rdma_mut().is_choked = true;
            let data = payload.copy(payload.bytes())?;
            self.transport.rdma_mut().backlog.put(Capsule { command: *command, data });
            return Ok(());
        }
        self.transport.rdma_mut().named.note(command).map_err(Ended::Breach)?;
        match self.capsule(core, command, payload.bytes()).map_err(Ended::Breach)? {
            Sink::Nothing => {}
            Sink::Admin(most) => {
                let data = payload.copy(payload.bytes().min(most))?;
                self.carry_out(core, command, &data);
            }
            Sink::Command(slot) => self.data_of_capsule(core, slot, payload)?,
        }
        Ok(())
    }

    /// Takes data to the buffer of their command, or keeps them until it has one.
    fn data_of_capsule(&mut self, core: &mut Core, slot: u16, payload: &Payload<'_>) -> Result<(), Ended> {
        let Some(command) = self.slots.get(slot) else { return Ok(()) };
        match &mut command.buffer {
            Some(buffer) => payload.read(&mut buffer.as_mut_slice()[..payload.bytes() as usize]),
            None => {
                let data = payload.copy(payload.bytes())?;
                self.transport.rdma_mut().backlog.held = Some((slot, data));
                return Ok(());
            }
        }
        self.capsule_data_over(core, slot, true);
        Ok(())
    }
}
