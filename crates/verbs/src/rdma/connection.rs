//! The connection manager of rdma-core: channels of events, identifiers, and the connections made of them.

use std::ffi::c_void;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::address::{from_storage, to_storage};
use super::resources::{Completions, Device, Domain, Receives};
use super::{Rdma, check, check_pointer};
use crate::Library;
use crate::abi::{CmEvent, CmId, ConnParam, Context, EventChannel, Qp, QpCap, QpInitAttr};
use crate::numbers::{
    IBV_QPT_RC, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_ERROR,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_UNREACHABLE,
    RDMA_PS_TCP,
};
use crate::stack::{
    ACCEPTANCE_BYTES, Event, Greeting, NO_NUMBER, Number, PairOptions, REFUSAL_BYTES, REQUEST_BYTES, Reads,
};

/// Requests that wait at a listener. The kernel refuses more.
const BACKLOG: i32 = 128;
/// Time to find the address of a peer, and then the way to it.
const RESOLVE_MS: i32 = 2000;
/// Attempts to send again after no answer. The field holds 7 at most, which Soft-RoCE takes for no bound: there a pair
/// whose peer has gone would never fail.
const RETRIES: u8 = 6;
/// The number of attempts after no receive that stands for no bound.
const NO_BOUND: u8 = 7;

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// Calls on this descriptor return EAGAIN from now on where they would wait.
pub(super) fn make_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is still open.
    check(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// A channel of events.
pub struct Channel(Arc<OwnedChannel>);

struct OwnedChannel {
    library: &'static Library,
    pointer: *mut EventChannel,
    /// Held while an event is examined, and while an identifier of the channel changes or ends: so an event never names
    /// an identifier that is gone.
    turn: Mutex<()>,
}

// SAFETY: librdmacm lets any thread use a channel; `turn` orders the calls that change its identifiers.
unsafe impl Send for OwnedChannel {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedChannel {}

impl Drop for OwnedChannel {
    fn drop(&mut self) {
        // SAFETY: all identifiers of the channel have had a share of it, and are gone.
        unsafe { (self.library.destroy_event_channel)(self.pointer) };
    }
}

impl OwnedChannel {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An identifier of the connection manager: a listener, or one end of a connection.
pub(super) struct Identifier {
    channel: Arc<OwnedChannel>,
    pointer: *mut CmId,
}

// SAFETY: librdmacm lets any thread use an identifier; its owner makes one call at a time.
unsafe impl Send for Identifier {}
// SAFETY: as for Send: shared, it is looked at only.
unsafe impl Sync for Identifier {}

impl Identifier {
    fn new(channel: &Arc<OwnedChannel>, number: Number) -> io::Result<Identifier> {
        let mut pointer = ptr::null_mut();
        let context = ptr::without_provenance_mut::<c_void>(number as usize);
        let create = channel.library.create_id;
        // SAFETY: the channel is live, and the place for the result is valid.
        check(unsafe { create(channel.pointer, &raw mut pointer, context, RDMA_PS_TCP) })?;
        Ok(Identifier { channel: channel.clone(), pointer })
    }

    pub(super) fn library(&self) -> &'static Library {
        self.channel.library
    }

    pub(super) fn context(&self) -> *mut Context {
        // SAFETY: the identifier is live.
        unsafe { (*self.pointer).verbs }
    }

    /// The device that the identifier is bound to.
    fn device(&self) -> io::Result<Device> {
        if self.context().is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let mut address = self.local();
        if let Some(mut it) = from_storage(&address) {
            // Any free port: the identifier is there for the device.
            it.set_port(0);
            address = to_storage(it);
        }
        let holder = Identifier::new(&self.channel, NO_NUMBER)?;
        holder.bind(&mut address)?;
        Device::new(holder)
    }

    fn bind(&self, address: &mut libc::sockaddr_storage) -> io::Result<()> {
        let address: *mut libc::sockaddr_storage = address;
        // SAFETY: the identifier is live, and the storage holds an address of its family.
        check(unsafe { (self.library().bind_addr)(self.pointer, address.cast()) })
    }

    fn local(&self) -> libc::sockaddr_storage {
        // SAFETY: the identifier is live.
        unsafe { (*self.pointer).route.addr.src_storage }
    }

    fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is live.
        from_storage(&unsafe { (*self.pointer).route.addr.dst_storage })
    }

    fn set_number(&self, number: Number) {
        // SAFETY: the identifier is live, the caller has its channel's turn, and librdmacm does not look at the field.
        unsafe { (*self.pointer).context = ptr::without_provenance_mut(number as usize) };
    }

    /// Makes the queue pair.
    fn into_pair(self, options: &PairOptions<'_, Rdma>, reads: Reads) -> io::Result<Pair> {
        let mut wanted = QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: options.completions.0.pointer,
            recv_cq: options.completions.0.pointer,
            srq: options.shared.map_or(ptr::null_mut(), |shared| shared.0.pointer),
            cap: QpCap {
                max_send_wr: options.sends,
                max_recv_wr: if options.shared.is_some() { 0 } else { options.receives },
                max_send_sge: options.parts,
                max_recv_sge: options.parts,
                max_inline_data: 0,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let create = self.library().create_qp;
        // SAFETY: the identifier is live and so are the domain and the queues, of which the pair gets shares.
        check(unsafe { create(self.pointer, options.domain.pointer(), &raw mut wanted) })?;
        // SAFETY: the identifier is live.
        let pointer = unsafe { (*self.pointer).qp };
        Ok(Pair {
            pointer: check_pointer(pointer)?,
            parts: options.parts,
            may_read: reads.issues > 0,
            identifier: self,
            shared: options.shared.cloned(),
            _domain: options.domain.clone(),
            _completions: options.completions.clone(),
        })
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        let _turn = self.channel.turn();
        // SAFETY: the identifier is live and has no queue pair; all events that named it are acknowledged, because
        // they are before the turn ends.
        let _ = unsafe { (self.channel.library.destroy_id)(self.pointer) };
    }
}

/// An event, which is acknowledged when this value is dropped.
struct Received<'a> {
    library: &'static Library,
    pointer: *mut CmEvent,
    /// Events are examined in turn only.
    _turn: MutexGuard<'a, ()>,
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        // SAFETY: the event has not been acknowledged.
        let _ = unsafe { (self.library.ack_cm_event)(self.pointer) };
    }
}

impl Received<'_> {
    fn kind(&self) -> u32 {
        // SAFETY: the event is not acknowledged yet.
        unsafe { (*self.pointer).event }
    }

    fn status(&self) -> i32 {
        // SAFETY: the event is not acknowledged yet.
        unsafe { (*self.pointer).status }
    }

    fn identifier(&self) -> *mut CmId {
        // SAFETY: the event is not acknowledged yet.
        unsafe { (*self.pointer).id }
    }

    fn number(&self) -> Number {
        // SAFETY: an identifier that an event names lives until the event is acknowledged.
        let context = unsafe { (*self.identifier()).context };
        context.addr() as Number
    }

    /// The words of the peer, from this side's point of view.
    fn greeting(&self) -> (Vec<u8>, Reads) {
        // SAFETY: the event is not acknowledged yet.
        let param = unsafe { (*self.pointer).param };
        // SAFETY: events of connections have this variant: all pairs here are reliable.
        let param = unsafe { param.conn };
        let reads = Reads { serves: param.responder_resources, issues: param.initiator_depth };
        if param.private_data.is_null() {
            return (Vec::new(), reads);
        }
        let start = param.private_data.cast::<u8>();
        // SAFETY: the event owns `private_data_len` bytes until it is acknowledged.
        let bytes = unsafe { std::slice::from_raw_parts(start, param.private_data_len.into()) };
        (bytes.to_vec(), reads)
    }

    /// The error of a step: the status is a negative number of errno.
    fn failed(&self, step: &'static str) -> Event<Rdma> {
        let error = io::Error::from_raw_os_error(self.status().abs());
        Event::Failed { number: self.number(), step, error }
    }
}

impl Channel {
    pub(super) fn new(library: &'static Library) -> io::Result<Channel> {
        // SAFETY: the call needs nothing.
        let pointer = check_pointer(unsafe { (library.create_event_channel)() })?;
        let channel = Channel(Arc::new(OwnedChannel { library, pointer, turn: Mutex::new(()) }));
        make_nonblocking(channel.descriptor())?;
        Ok(channel)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is live.
        let descriptor = unsafe { (*self.0.pointer).fd };
        // SAFETY: the channel, which owns the descriptor, lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    pub(super) fn next_event(&self) -> io::Result<Option<Event<Rdma>>> {
        loop {
            let turn = self.0.turn();
            let mut pointer = ptr::null_mut();
            // SAFETY: the channel is live, and the place for the result is valid.
            let got = check(unsafe { (self.0.library.get_cm_event)(self.0.pointer, &raw mut pointer) });
            match got {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let received = Received { library: self.0.library, pointer, _turn: turn };
            if let Some(event) = self.event(received) {
                return Ok(Some(event));
            }
        }
    }

    /// The event for the user; `None` if it is for nobody.
    fn event(&self, received: Received<'_>) -> Option<Event<Rdma>> {
        let number = received.number();
        if received.kind() == RDMA_CM_EVENT_CONNECT_REQUEST {
            let (private_data, reads) = received.greeting();
            let identifier = Identifier { channel: self.0.clone(), pointer: received.identifier() };
            // The new identifier has inherited the number of its listener.
            identifier.set_number(NO_NUMBER);
            drop(received);
            let peer = identifier.peer();
            return Some(Event::Asked { listener: number, incoming: Incoming(identifier), peer, private_data, reads });
        }
        if number == NO_NUMBER {
            return None;
        }
        Some(match received.kind() {
            RDMA_CM_EVENT_ADDR_RESOLVED => {
                let find = self.0.library.resolve_route;
                // SAFETY: the identifier lives until the event is acknowledged.
                match check(unsafe { find(received.identifier(), RESOLVE_MS) }) {
                    Ok(()) => return None,
                    Err(error) => Event::Failed { number, step: "finding the way to the peer", error },
                }
            }
            RDMA_CM_EVENT_ROUTE_RESOLVED => Event::Routed { number },
            RDMA_CM_EVENT_ADDR_ERROR => received.failed("finding the peer's address"),
            RDMA_CM_EVENT_ROUTE_ERROR => received.failed("finding the way to the peer"),
            RDMA_CM_EVENT_CONNECT_ERROR => received.failed("connecting"),
            RDMA_CM_EVENT_UNREACHABLE => received.failed("reaching the peer"),
            RDMA_CM_EVENT_REJECTED => {
                let (private_data, _) = received.greeting();
                Event::Refused { number, reason: received.status(), private_data }
            }
            RDMA_CM_EVENT_ESTABLISHED => {
                let (private_data, reads) = received.greeting();
                Event::Established { number, private_data, reads }
            }
            RDMA_CM_EVENT_DISCONNECTED => {
                // The peer's word alone flushes nothing here.
                // SAFETY: the identifier lives until the event is acknowledged, and its pair with it: both end in turn.
                let _ = unsafe { (self.0.library.disconnect)(received.identifier()) };
                Event::Disconnected { number }
            }
            RDMA_CM_EVENT_DEVICE_REMOVAL => Event::Removed { number },
            // Changes of addresses, and the end of the time in which a number of a pair is not used again.
            _ => return None,
        })
    }

    pub(super) fn listen(&self, address: SocketAddr, number: Number) -> io::Result<Listener> {
        let identifier = Identifier::new(&self.0, number)?;
        identifier.bind(&mut to_storage(address))?;
        // SAFETY: the identifier is live and bound.
        check(unsafe { (self.0.library.listen)(identifier.pointer, BACKLOG) })?;
        Ok(Listener(identifier))
    }

    pub(super) fn dial(&self, to: SocketAddr, number: Number) -> io::Result<Outgoing> {
        let identifier = Identifier::new(&self.0, number)?;
        let mut storage = to_storage(to);
        let (resolve, to) = (self.0.library.resolve_addr, (&raw mut storage).cast());
        // SAFETY: the identifier is live, and the storage holds an address of its family.
        check(unsafe { resolve(identifier.pointer, ptr::null_mut(), to, RESOLVE_MS) })?;
        Ok(Outgoing(identifier))
    }

    pub(super) fn adopt(&self, incoming: &mut Incoming) -> io::Result<()> {
        let before = incoming.0.channel.clone();
        // In turn on the old channel: it has no event of the identifier that is not acknowledged.
        let _turn = before.turn();
        // SAFETY: the identifier and the channel are live.
        check(unsafe { (self.0.library.migrate_id)(incoming.0.pointer, self.0.pointer) })?;
        incoming.0.channel = self.0.clone();
        Ok(())
    }
}

/// An address that peers can connect to.
pub struct Listener(Identifier);

impl Listener {
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        from_storage(&self.0.local()).ok_or_else(invalid)
    }
}

/// A request of a peer.
pub struct Incoming(Identifier);

impl Incoming {
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        from_storage(&self.0.local()).ok_or_else(invalid)
    }

    pub(super) fn device(&self) -> io::Result<Device> {
        self.0.device()
    }

    pub(super) fn accept(
        self,
        number: Number,
        options: &PairOptions<'_, Rdma>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Pair> {
        let mut param = param(options, greeting, ACCEPTANCE_BYTES)?;
        let pair = self.0.into_pair(options, greeting.reads)?;
        let turn = pair.identifier.channel.turn();
        pair.identifier.set_number(number);
        // SAFETY: the identifier is live, and the private data are valid during the call, which copies them.
        let accepted = check(unsafe { (pair.identifier.library().accept)(pair.identifier.pointer, &raw mut param) });
        drop(turn);
        accepted?;
        Ok(pair)
    }

    pub(super) fn refuse(self, private_data: &[u8]) -> io::Result<()> {
        if private_data.len() > REFUSAL_BYTES {
            return Err(invalid());
        }
        let reject = self.0.library().reject;
        // SAFETY: the identifier is live, and the private data are valid during the call, which copies them.
        check(unsafe { reject(self.0.pointer, private_data.as_ptr().cast(), private_data.len() as u8) })
    }
}

/// A connection of this side's own before it has a queue pair.
pub struct Outgoing(Identifier);

impl Outgoing {
    pub(super) fn device(&self) -> io::Result<Device> {
        self.0.device()
    }

    pub(super) fn connect(self, options: &PairOptions<'_, Rdma>, greeting: &Greeting<'_>) -> io::Result<Pair> {
        let mut param = param(options, greeting, REQUEST_BYTES)?;
        let pair = self.0.into_pair(options, greeting.reads)?;
        // SAFETY: the identifier is live, and the private data are valid during the call, which copies them.
        check(unsafe { (pair.identifier.library().connect)(pair.identifier.pointer, &raw mut param) })?;
        Ok(pair)
    }
}

/// The parameters of rdma_connect(3) and rdma_accept(3). They take the number of the pair from its identifier.
fn param(options: &PairOptions<'_, Rdma>, greeting: &Greeting<'_>, most: usize) -> io::Result<ConnParam> {
    let tries = greeting.no_receive_tries.unwrap_or(NO_BOUND);
    if greeting.private_data.len() > most || greeting.no_receive_tries.is_some_and(|it| it >= NO_BOUND) {
        return Err(invalid());
    }
    Ok(ConnParam {
        private_data: greeting.private_data.as_ptr().cast(),
        private_data_len: greeting.private_data.len() as u8,
        responder_resources: greeting.reads.serves,
        initiator_depth: greeting.reads.issues,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: tries,
        srq: options.shared.is_some().into(),
        qp_num: 0,
    })
}

/// A queue pair with its connection.
pub struct Pair {
    pointer: *mut Qp,
    pub(super) parts: u32,
    pub(super) may_read: bool,
    identifier: Identifier,
    shared: Option<Receives>,
    _domain: Domain,
    _completions: Completions,
}

// SAFETY: libibverbs and librdmacm let any thread use a pair and its identifier.
unsafe impl Send for Pair {}

impl Pair {
    pub(super) fn pointer(&self) -> *mut Qp {
        self.pointer
    }

    pub(super) fn shares_receives(&self) -> bool {
        self.shared.is_some()
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the pair is live.
        unsafe { (*self.pointer).qp_num }
    }

    pub(super) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { (self.identifier.library().disconnect)(self.identifier.pointer) })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _turn = self.identifier.channel.turn();
        // SAFETY: the identifier has its queue pair, and no event of it is being examined.
        unsafe { (self.identifier.library().destroy_qp)(self.identifier.pointer) };
    }
}
