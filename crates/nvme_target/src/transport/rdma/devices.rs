//! RDMA as one reactor has it: the channel of its connection manager, its listeners, and its adapters.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::epoll;
use verbs::Verbs;
use verbs::either::{Channel, Device, Either, Listener};
use verbs::stack::{Event, Number};
use verbs::work::Completion;

use super::adapter::{Owner, Sizes};
use super::retiring::Retiring;
use super::{Adapter, Asked, Rdma, Reject, Terms, bounds, failed};
use crate::core::Core;
use crate::device::Watcher;
use crate::mailbox::Token;
use crate::portal::Portal;
use crate::{Error, ErrorKind, RdmaStats};

/// Completions taken from an adapter in one turn: more of them wait while responses that are ready leave.
const MOST: usize = 256;

/// A listener of the connection manager.
struct Listening {
    number: Number,
    portal: Portal,
    _listener: Listener,
}

pub(crate) struct Devices {
    verbs: Either,
    channel: Channel,
    listeners: Vec<Listening>,
    adapters: Vec<Rc<Adapter>>,
    retiring: Retiring,
    /// Completions that have been taken and not been acted on.
    polled: Vec<(Rc<Adapter>, Completion)>,
    /// True if some adapter may have more of them.
    has_more: bool,
    taken: Vec<Completion>,
    polls: u64,
    completions: u64,
    /// Work given to adapters that have gone.
    posts_before: u64,
}

/// The reason why a target cannot listen on RDMA, with the remedy.
pub(crate) fn cannot_listen(portal: Portal, error: io::Error) -> Error {
    let remedy = match error.raw_os_error() {
        // rdma_bind_addr(3): the address is of no RDMA device. rdma_create_event_channel(3): rdma_cm is not loaded.
        Some(libc::ENODEV | libc::EADDRNOTAVAIL | libc::ENOENT) => {
            "; the address must be that of an RDMA device (`rdma link` lists them; docs/nvme-rdma.md makes one in \
             software), and the modules ib_uverbs and rdma_ucm be loaded"
        }
        _ => "",
    };
    let line = format!("cannot listen on {portal}: {error}{remedy}");
    Error { kind: ErrorKind::System, message: line, source: Some(error) }
}

impl Devices {
    /// RDMA without listeners and adapters. Its descriptors are in `epoll`, as `data`.
    ///
    /// # Errors
    /// The system's: the kernel has no connection manager.
    pub fn new(verbs: Either, epoll: &OwnedFd, data: u64) -> io::Result<Devices> {
        let channel = verbs.channel()?;
        let event = epoll::EventData::new_u64(data);
        epoll::add(epoll, verbs.channel_descriptor(&channel), event, epoll::EventFlags::IN)?;
        Ok(Devices {
            verbs,
            channel,
            listeners: Vec::new(),
            adapters: Vec::new(),
            retiring: Retiring::default(),
            polled: Vec::new(),
            has_more: false,
            taken: Vec::with_capacity(MOST),
            polls: 0,
            completions: 0,
            posts_before: 0,
        })
    }

    /// Listens. Returns the address, with the port that was chosen for port 0.
    ///
    /// # Errors
    /// Those of [`Verbs::listen`].
    pub fn listen(&mut self, address: SocketAddr, number: Number) -> io::Result<SocketAddr> {
        let listener = self.verbs.listen(&self.channel, address, number)?;
        let address = self.verbs.listens_at(&listener)?;
        self.listeners.push(Listening { number, portal: Portal::rdma(address), _listener: listener });
        Ok(address)
    }

    pub fn unlisten(&mut self, portal: Portal) {
        self.listeners.retain(|listening| listening.portal != portal);
    }

    pub fn unlisten_all(&mut self) {
        self.listeners.clear();
    }

    /// The address of the listener with that number.
    pub fn portal(&self, number: Number) -> Option<Portal> {
        self.listeners.iter().find(|listening| listening.number == number).map(|listening| listening.portal)
    }

    /// The oldest event of the connection manager.
    pub fn next_event(&self) -> Option<Event<Either>> {
        self.verbs.next_event(&self.channel).ok().flatten()
    }

    /// Refuses a host.
    pub fn refuse(&self, incoming: verbs::either::Incoming, why: Reject) {
        let _ = self.verbs.refuse(incoming, &why.private_data());
    }

    /// Makes a host's request a connection of this reactor. `None` if the host is refused.
    pub fn accept(
        &mut self,
        core: &mut Core,
        asked: Asked,
        token: Token,
        number: Number,
        epoll: (&OwnedFd, u64),
    ) -> Option<Rdma> {
        let Asked { mut incoming, listener, private_data, reads, peer } = asked;
        let shared = Arc::clone(&core.shared);
        let warn = |what: &str, error: &io::Error| {
            shared.warn_of(peer, format!("a host that came in on {listener} is refused: {what}: {error}"));
        };
        if let Err(error) = self.verbs.adopt(&self.channel, &mut incoming) {
            warn("its request cannot go to another reactor", &error);
            self.refuse(incoming, Reject::NO_RESOURCES);
            return None;
        }
        let device = match self.verbs.asked_device(&incoming) {
            Ok(device) => device,
            Err(error) => {
                warn("its device", &error);
                self.refuse(incoming, Reject::NO_RESOURCES);
                return None;
            }
        };
        let terms = match self.verbs.limits(&device) {
            Ok(limits) => Terms::of(&private_data, reads, &limits, bounds(core)),
            Err(_) => Err(Reject::NO_RESOURCES),
        };
        let terms = terms.and_then(|terms| match terms.controller {
            Some(id) if !core.shared.controllers().iter().any(|controller| controller.id == id) => Err(Reject::CNTLID),
            _ => Ok(terms),
        });
        let terms = match terms {
            Ok(terms) => terms,
            Err(why) => {
                self.refuse(incoming, why);
                return None;
            }
        };
        let adapter = match self.adapter(core, &device, terms.sends, epoll) {
            Ok(adapter) => adapter,
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::OutOfMemory => " (`ulimit -l` limits registered memory)",
                    _ => "",
                };
                warn(&format!("its device cannot be made ready{hint}"), &error);
                self.refuse(incoming, Reject::NO_RESOURCES);
                return None;
            }
        };
        let local = self.verbs.asked_at(&incoming).map_or(listener.address.ip(), |address| address.ip());
        match Rdma::accept(incoming, &adapter, &terms, local, token.generation, number) {
            Ok(rdma) => {
                adapter.set_owner(rdma.pair_number(), Owner::Connection(token.index));
                Some(rdma)
            }
            Err((incoming, why)) => {
                incoming.into_iter().for_each(|incoming| self.refuse(incoming, why));
                None
            }
        }
    }

    /// An adapter of the device that has room for a pair with that many places.
    fn adapter(
        &mut self,
        core: &mut Core,
        device: &Device,
        sends: u32,
        epoll: (&OwnedFd, u64),
    ) -> io::Result<Rc<Adapter>> {
        let options = &core.configuration.options;
        let sizes = Sizes {
            in_capsule: options.in_capsule_bytes,
            receives: options.receives,
            largest: options.max_io_bytes.max(LEAST_LARGEST),
        };
        let fits =
            |adapter: &&Rc<Adapter>| adapter.device == *device && adapter.sizes == sizes && adapter.has_room(sends);
        if let Some(adapter) = self.adapters.iter().find(fits) {
            return Ok(Rc::clone(adapter));
        }
        let adapter = Rc::new(Adapter::new(&self.verbs, device.clone(), sizes)?);
        epoll::add(epoll.0, adapter.descriptor(), epoll::EventData::new_u64(epoll.1), epoll::EventFlags::IN)?;
        core.pool.watch(Rc::clone(&adapter.registered) as Rc<dyn Watcher>);
        self.adapters.push(Rc::clone(&adapter));
        Ok(adapter)
    }

    /// Takes completions. Returns true if there are some to act on, or a pair that has ended waits for its turn.
    pub fn poll(&mut self, core: &mut Core) -> bool {
        self.has_more = false;
        for index in 0..self.adapters.len() {
            let adapter = &self.adapters[index];
            if let Err(error) = adapter.poll(MOST, &mut self.taken) {
                core.shared.warn(failed(&error));
                core.failed_adapters.push(Rc::clone(adapter));
            }
            self.has_more |= self.taken.len() == MOST;
            self.polls += 1;
            self.completions += self.taken.len() as u64;
            let adapter = &self.adapters[index];
            self.polled.extend(self.taken.drain(..).map(|completion| (Rc::clone(adapter), completion)));
        }
        !self.polled.is_empty() || self.retiring.wants_turn() || !core.failed_adapters.is_empty()
    }

    /// Has the adapters give notice of their next completions. Returns true if there are some already.
    pub fn arm(&mut self, core: &mut Core) -> bool {
        for adapter in &self.adapters {
            let _ = self.verbs.arm(&adapter.completions);
        }
        self.poll(core)
    }

    /// The counters. Each connection has a share of its adapter.
    pub fn stats(&self) -> RdmaStats {
        let devices = self.adapters.len() as u32;
        let connections = self.adapters.iter().map(|adapter| adapter.connections()).sum();
        let posts = self.posts_before + self.adapters.iter().map(|adapter| adapter.posts.get()).sum::<u64>();
        RdmaStats { devices, connections, polls: self.polls, completions: self.completions, posts }
    }

    /// Takes the notices of the adapters.
    pub fn take_notices(&self) {
        for adapter in &self.adapters {
            let _ = self.verbs.take_notices(&adapter.completions);
        }
    }

    /// The completions that have been taken.
    pub fn take_polled(&mut self) -> Vec<(Rc<Adapter>, Completion)> {
        std::mem::take(&mut self.polled)
    }

    /// Gives the memory of [`Devices::take_polled`] back.
    pub fn give_polled(&mut self, mut polled: Vec<(Rc<Adapter>, Completion)>) {
        polled.clear();
        if self.polled.is_empty() {
            self.polled = polled;
        }
    }

    /// Takes note of the end of work of a connection that has ended.
    pub fn completed(&mut self, core: &mut Core, key: u32, completion: &Completion) {
        self.retiring.completed(core, key, completion);
    }

    /// Takes over the part of a connection that has ended.
    pub fn retire(&mut self, core: &mut Core, rdma: Box<Rdma>, index: u32, is_gone: bool) {
        self.retiring.take(core, rdma, Owner::Connection(index), is_gone);
    }

    /// Ends the pairs whose work has ended. The caller has acted on all completions taken.
    pub fn sweep(&mut self, core: &mut Core) {
        if !self.has_more {
            self.retiring.sweep(core);
        }
    }

    /// True if no pair of a connection that has ended has work left.
    pub fn has_retired(&self) -> bool {
        self.retiring.is_empty()
    }

    /// Gives up an adapter whose device has failed, or gone.
    pub fn give_up(&mut self, core: &mut Core, adapter: &Rc<Adapter>, epoll: &OwnedFd) {
        self.retiring.end_of(core, adapter);
        self.polled.retain(|(of, _)| !Rc::ptr_eq(of, adapter));
        self.drop_if(core, epoll, |it| Rc::ptr_eq(it, adapter));
    }

    /// Ends all pairs of connections that have ended.
    pub fn end_retiring(&mut self, core: &mut Core) {
        self.retiring.end_all(core);
    }

    /// Gives up the adapters that nobody uses.
    pub fn drop_unused(&mut self, core: &mut Core, epoll: &OwnedFd) {
        self.drop_if(core, epoll, |it| Rc::strong_count(it) == 1);
    }

    fn drop_if(&mut self, core: &mut Core, epoll: &OwnedFd, goes: impl Fn(&Rc<Adapter>) -> bool) {
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.adapters).into_iter().partition(|it| goes(it));
        self.adapters = stay;
        for adapter in gone {
            self.posts_before += adapter.posts.get();
            let _ = epoll::delete(epoll, adapter.descriptor());
            let watcher: Rc<dyn Watcher> = adapter.registered.clone();
            core.pool.unwatch(&watcher);
        }
    }
}

/// Answers to admin commands may be this long, whatever the largest I/O is.
const LEAST_LARGEST: u32 = 64 << 10;
