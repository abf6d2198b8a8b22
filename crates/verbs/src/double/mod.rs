//! A fabric in memory, for tests without RDMA: queue pairs that are connected in process, under the rules of reliable
//! connections (InfiniBand Architecture Specification, volume 1, chapters 9 to 11).
//!
//! ```text
//! post_send ─► send queue ─► carry: keys and ranges are checked ─► memory of the peer ─► completions ─► poll
//! ```
//!
//! The fabric works when a completion queue is polled, in the order of the queue pairs: a test has one outcome. A key
//! counts in its protection domain only. An error takes the queue pair that it belongs to into the error state, where
//! all its work is flushed. A place in the send queue is free again when the completion of its work, or of later work
//! of the same queue, has been polled.

mod carry;
mod counts;
mod late;
mod manager;
mod memory;
mod stack;

pub use counts::{Counts, counts, is_inside};
pub use late::miss;
pub use stack::{Adapter, Channel, Completions, Connection, Incoming, Listener, Outgoing};

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::work::{Access, Completion, Part, Receive, Request, Status, Work};

/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain(u32);

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionQueue(usize);

/// A receive queue that several queue pairs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceives(usize);

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(usize);

impl Pair {
    /// The number that completions name this queue pair by.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The properties of a new queue pair.
#[derive(Clone, Copy, Debug)]
pub struct PairOptions {
    /// The protection domain whose keys count for the pair.
    pub domain: Domain,
    /// The queue for completions of both its queues.
    pub completions: CompletionQueue,
    /// The receive queue that it shares; without one it has its own.
    pub shared: Option<SharedReceives>,
    /// Places in the send queue.
    pub sends: usize,
    /// Places in its own receive queue.
    pub receives: usize,
    /// Attempts to send that find no receive before the pair fails; None for no bound.
    pub no_receive_tries: Option<u32>,
}

/// The fabric with everything on it. A clone is the same fabric.
#[derive(Clone, Default)]
pub struct Fabric {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    domains: u32,
    keys: u32,
    regions: HashMap<u32, Registered>,
    queues: Vec<Queue>,
    shared: Vec<Receives>,
    pairs: Vec<PairState>,
    /// Registrations from now on that fail.
    failing_registrations: u32,
    is_iwarp: bool,
    /// True while nothing crosses the fabric.
    is_cut: bool,
    manager: manager::Manager,
}

struct Registered {
    domain: Domain,
    address: u64,
    length: u64,
    access: Access,
}

struct Queue {
    /// Completions, and the places in the pair's send queue that polling each of them frees.
    entries: VecDeque<(Completion, usize)>,
    capacity: usize,
    overrun: bool,
    /// Takes a notice for the next completion, if somebody has asked for it.
    armed: Option<Arc<File>>,
}

/// Work in a send queue.
struct Queued {
    id: u64,
    request: Request,
    parts: Vec<Part>,
    signaled: bool,
}

/// A receive in its queue.
struct Posted {
    id: u64,
    parts: Vec<Part>,
}

struct Receives {
    posted: VecDeque<Posted>,
    capacity: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Unconnected,
    Connected(usize),
    Error,
}

struct PairState {
    options: PairOptions,
    condition: Condition,
    /// The pair that it is connected to, or has been.
    peer: Option<usize>,
    /// True once the connection has ended.
    is_over: bool,
    sends: VecDeque<Queued>,
    receives: Receives,
    /// Places of the send queue that are taken: by work that waits, or whose completion has not been polled.
    taken: usize,
    /// Work that is done without a completion since the last completion.
    silent: usize,
    /// Attempts of the first work that found no receive.
    tries: u32,
}

/// Registered memory. Dropping it ends the registration.
pub struct Region {
    fabric: Fabric,
    key: u32,
}

impl Region {
    /// The key, for this side and for peers.
    pub fn key(&self) -> u32 {
        self.key
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.fabric.state().regions.remove(&self.key);
    }
}

impl Fabric {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new protection domain.
    pub fn domain(&self) -> Domain {
        let mut state = self.state();
        state.domains += 1;
        Domain(state.domains)
    }

    /// Registers memory.
    ///
    /// # Errors
    /// ENOMEM if the test has asked for it by [`Fabric::fail_registrations`]; EINVAL for a peer's right to write
    /// without the owner's, which ibv_reg_mr(3) refuses, too.
    ///
    /// # Safety
    /// The memory is valid for reads and writes until the region is dropped, and nobody relies on its content while
    /// work that names it is posted: every poll on this fabric may read and write it.
    pub unsafe fn register(&self, domain: Domain, memory: *mut [u8], access: Access) -> io::Result<Region> {
        if access.remote_write && !access.local_write {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut state = self.state();
        if state.failing_registrations > 0 {
            state.failing_registrations -= 1;
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        state.keys += 1;
        let key = state.keys << 8 | 0x5a;
        let (address, length) = (memory.cast::<u8>().expose_provenance() as u64, memory.len() as u64);
        state.regions.insert(key, Registered { domain, address, length, access });
        drop(state);
        Ok(Region { fabric: self.clone(), key })
    }

    /// Makes the next registrations fail.
    pub fn fail_registrations(&self, count: u32) {
        self.state().failing_registrations = count;
    }

    /// Has the device say that it is an iWARP device.
    pub fn be_iwarp(&self) {
        self.state().is_iwarp = true;
    }

    /// Address and key of each range of memory that is registered, whoever has registered it.
    pub fn registered(&self) -> Vec<(u64, u32)> {
        self.state().regions.iter().map(|(key, region)| (region.address, *key)).collect()
    }

    /// A new completion queue.
    pub fn completion_queue(&self, capacity: usize) -> CompletionQueue {
        let mut state = self.state();
        state.queues.push(Queue { entries: VecDeque::new(), capacity, overrun: false, armed: None });
        CompletionQueue(state.queues.len() - 1)
    }

    /// A new receive queue for several queue pairs.
    pub fn shared_receives(&self, capacity: usize) -> SharedReceives {
        let mut state = self.state();
        state.shared.push(Receives { posted: VecDeque::new(), capacity });
        SharedReceives(state.shared.len() - 1)
    }

    /// A new queue pair, which is not connected.
    pub fn pair(&self, options: PairOptions) -> Pair {
        let mut state = self.state();
        state.pairs.push(PairState {
            options,
            condition: Condition::Unconnected,
            peer: None,
            is_over: false,
            sends: VecDeque::new(),
            receives: Receives { posted: VecDeque::new(), capacity: options.receives },
            taken: 0,
            silent: 0,
            tries: 0,
        });
        Pair(state.pairs.len() - 1)
    }

    /// Connects two queue pairs.
    ///
    /// # Errors
    /// EINVAL if one of them is connected or has been, or if both are the same.
    pub fn connect(&self, one: Pair, other: Pair) -> io::Result<()> {
        self.state().connect(one, other)
    }

    /// Takes one queue pair into the error state, as a fault of its card does. The peer learns it when it next sends.
    pub fn fail(&self, pair: Pair) {
        self.state().fail(pair.0);
    }

    /// Takes the device away: all pairs fail, and all listeners and connections hear that it goes.
    pub fn unplug(&self) {
        self.state().unplug();
    }

    /// Cuts the cable between any two ends. Work waits: a card sends it again and again. Messages of connection
    /// managers are lost: the side that ends a connection is the only one to know, and a request reaches nobody.
    pub fn cut(&self) {
        self.state().is_cut = true;
    }

    /// Ends the attempts of the cards to send the work that waits. A pair without such work goes on, and so does the
    /// peer of a pair that fails, until its own work fails.
    pub fn give_up(&self) {
        self.state().give_up();
    }

    /// Mends the cable.
    pub fn mend(&self) {
        let mut state = self.state();
        state.is_cut = false;
        state.call_waiting();
    }

    /// True if the queue pair is in the error state.
    pub fn failed(&self, pair: Pair) -> bool {
        self.state().pairs[pair.0].condition == Condition::Error
    }

    /// Queues work. Work for a pair in the error state is flushed.
    ///
    /// # Errors
    /// ENOMEM if the send queue has no place, EINVAL if the pair has not been connected: then nothing is queued.
    pub fn post_send(&self, pair: Pair, work: Work<'_>) -> io::Result<()> {
        let mut state = self.state();
        let state_of_pair = &mut state.pairs[pair.0];
        if state_of_pair.condition == Condition::Unconnected {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if state_of_pair.taken == state_of_pair.options.sends {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        state_of_pair.taken += 1;
        let Work { id, request, parts, signaled } = work;
        state_of_pair.sends.push_back(Queued { id, request, parts: parts.to_vec(), signaled });
        if state_of_pair.condition == Condition::Error {
            state.fail(pair.0);
        }
        state.call_waiting();
        Ok(())
    }

    /// Queues a receive of one queue pair.
    ///
    /// # Errors
    /// ENOMEM if the receive queue has no place, EINVAL if the pair shares its receive queue: then nothing is queued.
    pub fn post_receive(&self, pair: Pair, receive: Receive<'_>) -> io::Result<()> {
        let mut state = self.state();
        let state_of_pair = &mut state.pairs[pair.0];
        if state_of_pair.options.shared.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        state_of_pair.receives.post(receive)?;
        if state_of_pair.condition == Condition::Error {
            state.fail(pair.0);
        }
        state.call_waiting();
        Ok(())
    }

    /// Queues a receive for whichever queue pair needs it first.
    ///
    /// # Errors
    /// ENOMEM if the queue has no place.
    pub fn post_shared_receive(&self, shared: SharedReceives, receive: Receive<'_>) -> io::Result<()> {
        let mut state = self.state();
        state.shared[shared.0].post(receive)?;
        state.call_waiting();
        Ok(())
    }

    /// Lets the fabric work, and takes completions: at most `most`, oldest first.
    ///
    /// # Errors
    /// EIO once completions have been lost because the queue was full.
    pub fn poll(&self, queue: CompletionQueue, most: usize) -> io::Result<Vec<Completion>> {
        let mut state = self.state();
        state.carry_all();
        let entries = &mut state.queues[queue.0];
        if entries.overrun {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let count = most.min(entries.entries.len());
        let taken: Vec<_> = entries.entries.drain(..count).collect();
        for (completion, frees) in &taken {
            state.pairs[completion.pair as usize].taken -= frees;
        }
        Ok(taken.into_iter().map(|(completion, _)| completion).collect())
    }
}

impl Receives {
    fn post(&mut self, receive: Receive<'_>) -> io::Result<()> {
        if self.posted.len() == self.capacity {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        self.posted.push_back(Posted { id: receive.id, parts: receive.parts.to_vec() });
        Ok(())
    }
}

impl State {
    fn connect(&mut self, one: Pair, other: Pair) -> io::Result<()> {
        let fresh = [one, other].iter().all(|pair| self.pairs[pair.0].condition == Condition::Unconnected);
        if one == other || !fresh {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        (self.pairs[one.0].peer, self.pairs[other.0].peer) = (Some(other.0), Some(one.0));
        self.pairs[one.0].condition = Condition::Connected(other.0);
        self.pairs[other.0].condition = Condition::Connected(one.0);
        Ok(())
    }

    /// The fabric works when somebody polls: everybody who waits is to poll, because there is work.
    fn call_waiting(&mut self) {
        for signal in self.queues.iter_mut().filter_map(|queue| queue.armed.take()) {
            manager::raise(&signal);
        }
    }

    /// Takes a pair into the error state and flushes its work. Receives that it shares stay for the others.
    fn fail(&mut self, pair: usize) {
        let state = &mut self.pairs[pair];
        state.condition = Condition::Error;
        let sends = std::mem::take(&mut state.sends);
        let receives = std::mem::take(&mut state.receives.posted);
        for work in sends {
            self.complete_send(pair, work.id, Status::Flushed);
        }
        for receive in receives {
            self.complete_receive(pair, receive.id, Status::Flushed, 0, None);
        }
    }

    fn complete_send(&mut self, pair: usize, id: u64, status: Status) {
        let frees = std::mem::take(&mut self.pairs[pair].silent) + 1;
        let end = Completion { id, pair: pair as u32, received: false, status, length: 0, invalidated: None };
        self.complete(pair, end, frees);
    }

    fn complete_receive(&mut self, pair: usize, id: u64, status: Status, length: u32, invalidated: Option<u32>) {
        self.complete(pair, Completion { id, pair: pair as u32, received: true, status, length, invalidated }, 0);
    }

    fn complete(&mut self, pair: usize, completion: Completion, frees: usize) {
        let queue = &mut self.queues[self.pairs[pair].options.completions.0];
        if queue.entries.len() == queue.capacity {
            queue.overrun = true;
        } else {
            queue.entries.push_back((completion, frees));
        }
        if let Some(signal) = queue.armed.take() {
            manager::raise(&signal);
        }
    }
}
