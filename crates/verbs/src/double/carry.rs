//! The work of the fabric: each request is checked on both sides before a byte moves.

use super::memory::copy;
use super::{Condition, Queued, State};
use crate::work::{Access, Request, Status};

/// The outcome of an attempt to carry out a request.
enum Attempt {
    Done,
    /// The peer has no receive yet.
    Later,
    /// The request fails with this status, and its pair with it. The peer's pair fails, too, if it is at fault.
    Failed {
        status: Status,
        peer: bool,
    },
}

fn readable(_: &Access) -> bool {
    true
}

impl State {
    /// Carries out what can be carried out.
    pub(super) fn carry_all(&mut self) {
        if self.is_cut {
            return;
        }
        let mut tries_again = false;
        for pair in 0..self.pairs.len() {
            while let Condition::Connected(peer) = self.pairs[pair].condition
                && let Some(work) = self.pairs[pair].sends.pop_front()
            {
                match self.carry(pair, peer, &work) {
                    Attempt::Done if work.signaled => self.complete_send(pair, work.id, Status::Success),
                    Attempt::Done => self.pairs[pair].silent += 1,
                    Attempt::Later => {
                        self.pairs[pair].sends.push_front(work);
                        tries_again |= self.pairs[pair].options.no_receive_tries.is_some();
                        break;
                    }
                    Attempt::Failed { status, peer: peer_too } => {
                        self.complete_send(pair, work.id, status);
                        self.fail(pair);
                        if peer_too {
                            self.fail(peer);
                        }
                    }
                }
            }
        }
        if tries_again {
            // Each poll is an attempt: those who sleep are to poll until the attempts are over.
            self.call_waiting();
        }
    }

    /// Fails the work that waits.
    pub(super) fn give_up(&mut self) {
        for pair in 0..self.pairs.len() {
            if matches!(self.pairs[pair].condition, Condition::Connected(_))
                && let Some(work) = self.pairs[pair].sends.pop_front()
            {
                self.complete_send(pair, work.id, Status::RetriesExceeded);
                self.fail(pair);
            }
        }
    }

    fn carry(&mut self, pair: usize, peer: usize, work: &Queued) -> Attempt {
        if self.pairs[peer].condition != Condition::Connected(pair) {
            return Attempt::Failed { status: Status::RetriesExceeded, peer: false };
        }
        let (domain, peer_domain) = (self.pairs[pair].options.domain, self.pairs[peer].options.domain);
        let length = work.parts.iter().map(|part| u64::from(part.length)).sum();
        let stores = matches!(work.request, Request::Read { .. });
        let allows = if stores { |access: &Access| access.local_write } else { readable };
        let Some(local) = self.open_parts(domain, &work.parts, allows) else {
            return Attempt::Failed { status: Status::LocalProtection, peer: false };
        };
        match work.request {
            Request::Send { invalidate } => return self.deliver(pair, peer, length, &local, invalidate),
            // A request for no bytes names no memory: its key is not looked at.
            Request::Read { .. } | Request::Write { .. } if length == 0 => {}
            Request::Read { address, key } => {
                let Some(remote) = self.open(peer_domain, key, address, length, |access| access.remote_read) else {
                    return Attempt::Failed { status: Status::RemoteAccess, peer: true };
                };
                copy(&[remote], &local);
            }
            Request::Write { address, key } => {
                let Some(remote) = self.open(peer_domain, key, address, length, |access| access.remote_write) else {
                    return Attempt::Failed { status: Status::RemoteAccess, peer: true };
                };
                copy(&local, &[remote]);
            }
        }
        Attempt::Done
    }

    /// Puts a message into the peer's next receive.
    fn deliver(
        &mut self,
        pair: usize,
        peer: usize,
        length: u64,
        message: &[super::memory::Bytes],
        invalidate: Option<u32>,
    ) -> Attempt {
        let options = self.pairs[peer].options;
        let posted = match options.shared {
            Some(shared) => &mut self.shared[shared.0].posted,
            None => &mut self.pairs[peer].receives.posted,
        };
        let Some(receive) = posted.pop_front() else {
            let sender = &mut self.pairs[pair];
            sender.tries = sender.tries.saturating_add(1);
            return match sender.options.no_receive_tries {
                Some(most) if sender.tries > most => Attempt::Failed { status: Status::NoReceive, peer: false },
                _ => Attempt::Later,
            };
        };
        self.pairs[pair].tries = 0;
        let room = receive.parts.iter().map(|part| u64::from(part.length)).sum::<u64>();
        let (status, of_peer) = if length > room {
            (Status::RemoteInvalidRequest, Status::LocalLength)
        } else if let Some(parts) = self.open_parts(options.domain, &receive.parts, |access| access.local_write) {
            if !self.invalidate(options.domain, invalidate) {
                (Status::RemoteAccess, Status::Flushed)
            } else {
                copy(message, &parts);
                self.complete_receive(peer, receive.id, Status::Success, length as u32, invalidate);
                return Attempt::Done;
            }
        } else {
            (Status::RemoteOperation, Status::LocalProtection)
        };
        self.complete_receive(peer, receive.id, of_peer, 0, None);
        Attempt::Failed { status, peer: true }
    }

    /// Takes the rights of peers from a key. False if the key is not one that peers of the domain may use.
    fn invalidate(&mut self, domain: super::Domain, key: Option<u32>) -> bool {
        let Some(key) = key else { return true };
        match self.regions.get_mut(&key) {
            Some(region) if region.domain == domain && (region.access.remote_read || region.access.remote_write) => {
                (region.access.remote_read, region.access.remote_write) = (false, false);
                true
            }
            _ => false,
        }
    }
}
