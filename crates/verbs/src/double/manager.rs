//! The connection manager of the fabric: channels, listeners, requests, and the two ends of connections.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use super::{Pair, State};
use crate::stack::{
    ACCEPTANCE_BYTES, BY_THE_PEER, Greeting, NOBODY_LISTENS, Number, REFUSAL_BYTES, REQUEST_BYTES, Reads,
};

/// The address that connections of the fabric come from.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The first port that listeners on port 0 get.
const FIRST_PORT: u16 = 49152;

/// A new descriptor that is readable from when it is raised until it is drained.
pub(super) fn signal() -> io::Result<Arc<File>> {
    // SAFETY: the call needs nothing.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(Arc::new(File::from(descriptor)))
}

pub(super) fn raise(mut signal: &File) {
    // A counter that is full is readable, too.
    let _ = signal.write(&1_u64.to_ne_bytes());
}

pub(super) fn drain(mut signal: &File) {
    let _ = signal.read(&mut [0; 8]);
}

/// Where the events of a listener or connection go.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub channel: usize,
    pub number: Number,
}

/// An event before its user takes it.
pub(super) enum Note {
    Asked { request: u64, peer: SocketAddr, asked_at: SocketAddr, private_data: Vec<u8>, reads: Reads },
    Routed,
    Established { private_data: Vec<u8>, reads: Reads },
    Refused { reason: i32, private_data: Vec<u8> },
    Unreachable,
    Disconnected,
    Removed,
}

/// A request that waits for its answer.
struct Request {
    asker: Pair,
    reads: Reads,
    no_receive_tries: Option<u8>,
}

pub(super) struct Notes {
    pub waiting: VecDeque<(Number, Note)>,
    pub signal: Arc<File>,
}

#[derive(Default)]
pub(super) struct Manager {
    pub channels: Vec<Notes>,
    pub listeners: HashMap<SocketAddr, End>,
    requests: HashMap<u64, Request>,
    requests_ever: u64,
    /// The ends that have a pair, by its number.
    ends: HashMap<usize, End>,
    outgoing_ports: u16,
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// Private data as the peer gets them: InfiniBand's messages have a place of fixed size.
fn padded(private_data: &[u8], place: usize) -> io::Result<Vec<u8>> {
    let mut padded = private_data.to_vec();
    if padded.len() > place {
        return Err(invalid());
    }
    padded.resize(place, 0);
    Ok(padded)
}

/// The READs of one side, from the point of view of the other side.
fn seen(reads: Reads) -> Reads {
    Reads { serves: reads.issues, issues: reads.serves }
}

impl Manager {
    pub fn tell(&mut self, end: End, note: Note) {
        let channel = &mut self.channels[end.channel];
        channel.waiting.push_back((end.number, note));
        raise(&channel.signal);
    }

    fn tell_pair(&mut self, pair: Pair, note: Note) {
        if let Some(end) = self.ends.get(&pair.0).copied() {
            self.tell(end, note);
        }
    }

    /// Listens, on a free port for port 0.
    pub fn listen(&mut self, mut address: SocketAddr, end: End) -> io::Result<SocketAddr> {
        if address.port() == 0 {
            let free = (FIRST_PORT..=u16::MAX).find(|&port| {
                let tried = SocketAddr::new(address.ip(), port);
                !self.listeners.contains_key(&tried)
            });
            address.set_port(free.ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRINUSE))?);
        }
        if self.listeners.contains_key(&address) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        self.listeners.insert(address, end);
        Ok(address)
    }

    /// Asks whoever listens at the address, or at every address with its port; nobody if the cable is cut.
    pub fn ask(
        &mut self,
        asker: Pair,
        end: End,
        to: SocketAddr,
        greeting: &Greeting<'_>,
        is_cut: bool,
    ) -> io::Result<()> {
        let private_data = padded(greeting.private_data, REQUEST_BYTES)?;
        let reads = greeting.reads;
        self.ends.insert(asker.0, end);
        if is_cut {
            self.tell(end, Note::Unreachable);
            return Ok(());
        }
        let everywhere = match to {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], to.port())),
            SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], to.port())),
        };
        let Some(&listener) = self.listeners.get(&to).or_else(|| self.listeners.get(&everywhere)) else {
            self.tell(end, Note::Refused { reason: NOBODY_LISTENS, private_data: Vec::new() });
            return Ok(());
        };
        self.requests_ever += 1;
        self.outgoing_ports = self.outgoing_ports.wrapping_add(1);
        let (request, peer) = (self.requests_ever, SocketAddr::new(HERE, self.outgoing_ports));
        self.requests.insert(request, Request { asker, reads, no_receive_tries: greeting.no_receive_tries });
        self.tell(listener, Note::Asked { request, peer, asked_at: to, private_data, reads: seen(reads) });
        Ok(())
    }

    /// Refuses a request that has no answer yet. The word is lost if the cable is cut.
    pub fn refuse(&mut self, request: u64, private_data: &[u8], is_cut: bool) -> io::Result<()> {
        let place = padded(private_data, REFUSAL_BYTES);
        if let Some(request) = self.requests.remove(&request) {
            if is_cut {
                self.tell_pair(request.asker, Note::Unreachable);
                return place.map(|_| ());
            }
            let private_data =
                if private_data.is_empty() { Vec::new() } else { place.as_ref().cloned().unwrap_or_default() };
            self.tell_pair(request.asker, Note::Refused { reason: BY_THE_PEER, private_data });
        }
        place.map(|_| ())
    }
}

impl State {
    /// Accepts a request for the pair. Failure leaves the request without an answer.
    pub(super) fn accept(&mut self, request: u64, pair: Pair, end: End, greeting: &Greeting<'_>) -> io::Result<()> {
        let private_data = padded(greeting.private_data, ACCEPTANCE_BYTES)?;
        let reads = greeting.reads;
        let manager = &mut self.manager;
        let asked = manager.requests.get(&request).ok_or_else(invalid)?;
        let most = seen(asked.reads);
        if reads.issues > most.issues || reads.serves > most.serves {
            return Err(invalid());
        }
        let (asker, tries_here) = (asked.asker, asked.no_receive_tries);
        manager.requests.remove(&request);
        manager.ends.insert(pair.0, end);
        self.pairs[pair.0].options.no_receive_tries = tries_here.map(u32::from);
        self.pairs[asker.0].options.no_receive_tries = greeting.no_receive_tries.map(u32::from);
        if self.is_cut {
            self.manager.tell_pair(asker, Note::Unreachable);
        }
        // The asker may have gone meanwhile.
        if self.is_cut || !self.manager.ends.contains_key(&asker.0) || self.connect(asker, pair).is_err() {
            self.manager.tell(end, Note::Unreachable);
            return Ok(());
        }
        self.manager.tell_pair(asker, Note::Established { private_data, reads: seen(reads) });
        self.manager.tell(end, Note::Established { private_data: Vec::new(), reads: Reads::default() });
        Ok(())
    }

    /// Ends a connection: on both sides, unless the cable is cut.
    pub(super) fn disconnect(&mut self, pair: Pair) -> io::Result<()> {
        let peer = self.pairs[pair.0].peer.ok_or_else(invalid)?;
        let sides = [pair, Pair(peer)];
        for &side in if self.is_cut { &sides[..1] } else { &sides[..] } {
            self.fail(side.0);
            if !std::mem::replace(&mut self.pairs[side.0].is_over, true) {
                self.manager.tell_pair(side, Note::Disconnected);
            }
        }
        self.call_waiting();
        Ok(())
    }

    /// Ends the pair itself: nobody hears of it any more.
    pub(super) fn forget(&mut self, pair: Pair) {
        if self.disconnect(pair).is_err() {
            self.fail(pair.0);
        }
        self.manager.ends.remove(&pair.0);
    }

    /// Takes the device away from everybody.
    pub(super) fn unplug(&mut self) {
        for pair in 0..self.pairs.len() {
            self.fail(pair);
        }
        let ends: Vec<End> = self.manager.listeners.values().chain(self.manager.ends.values()).copied().collect();
        for end in ends {
            self.manager.tell(end, Note::Removed);
        }
        self.call_waiting();
    }
}
