//! Queues over RDMA: the way to the controller, the agreement with it, and the [`Link`](super::Link) of a queue pair.
//!
//! ```text
//! dial ─► the way is known ─► device, memory, queue pair ─► private data ─► accepted, or refused with a reason
//! link ─► capsules by SEND, data by the controller's RDMA, responses into receives
//! ```
//!
//! NVM Express RDMA Transport Specification 1.0. The initiator registers memory once for an association, moves no data
//! by RDMA itself, and never asks for remote invalidation: a key of an op's memory serves the next op, too.

mod arena;
mod memory;
mod queue;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use nvme::spec::rdma::{ConnectAccept, ConnectReject, ConnectRequest, Reject};
use rustix::event::{PollFd, PollFlags};
use verbs::either::{Channel, Outgoing};
use verbs::stack::{BY_THE_PEER, Event, Greeting, NOBODY_LISTENS, PairOptions, Reads};
use verbs::{Either, Rdma, Verbs};

use super::link::sleep;
use super::{Address, Error, Options};
pub use arena::{Arena, Registered};
use memory::QueueMemory;
pub use queue::RdmaLink;
use queue::{PARTS, SIGNAL_EVERY};

/// The stack of RDMA that a host uses, and the memory of its ops.
#[derive(Clone, Default)]
pub struct RdmaHost {
    /// The stack; None for rdma-core, which is opened when it is needed.
    pub stack: Option<Either>,
    /// The memory of ops on I/O queues; None if all data are small and copied.
    pub arena: Option<Arc<dyn Arena>>,
    /// True if commands read data into the arena: the controller may write there. It may read there in any case.
    pub writable: bool,
}

impl fmt::Debug for RdmaHost {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("RdmaHost").field("arena", &self.arena.is_some()).finish_non_exhaustive()
    }
}

/// The queue that a connection is for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// 0 for the admin queue.
    pub qid: u16,
    /// The controller of an I/O queue.
    pub cntlid: u16,
    /// Commands that may be outstanding.
    pub depth: u32,
}

/// A connection for a queue. The first I/O queue of an association registers the memory of ops and leaves it in
/// `registered` for the others.
pub(super) fn open(
    address: &Address,
    options: &Options,
    wanted: Wanted,
    registered: &mut Option<Arc<Registered>>,
) -> Result<RdmaLink, Error> {
    let what = format!("cannot connect to {} over RDMA", address.place());
    let stack = match &options.rdma.stack {
        Some(stack) => stack.clone(),
        None => Either::Rdma(Rdma::open().map_err(|error| Error::new(&what, error.to_string(), "", libc::ENOSYS))?),
    };
    let sockets = address.resolve().map_err(|error| Error::new(&what, error.to_string(), "", libc::ENOENT))?;
    let mut outcome = None;
    for to in sockets {
        let mut attempt =
            Attempt { stack: &stack, what: &what, options, wanted, until: Instant::now() + options.timeout };
        match attempt.connect(to, registered) {
            Ok(link) => return Ok(link),
            Err(error) => outcome = Some(error),
        }
    }
    Err(outcome.expect("an address has been tried"))
}

/// One attempt to connect a queue.
struct Attempt<'a> {
    stack: &'a Either,
    what: &'a str,
    options: &'a Options,
    wanted: Wanted,
    until: Instant,
}

/// The number of the only connection of its channel.
const NUMBER: u64 = 1;

impl Attempt<'_> {
    fn connect(&mut self, to: SocketAddr, registered: &mut Option<Arc<Registered>>) -> Result<RdmaLink, Error> {
        let stack = self.stack;
        let no_manager = "the kernel has no connection manager of RDMA: is the module rdma_ucm loaded?";
        let channel = stack.channel().map_err(|error| self.system(&error, no_manager))?;
        let no_device = "no RDMA device of this host leads there: `rdma link` lists the devices";
        let outgoing = stack.dial(&channel, to, NUMBER).map_err(|error| self.system(&error, no_device))?;
        match self.event(&channel)? {
            Event::Routed { .. } => {}
            other => return Err(self.refused(other)),
        }
        self.pair(channel, outgoing, registered)
    }

    /// Makes the queue pair, and comes to an agreement with the controller.
    fn pair(
        &mut self,
        channel: Channel,
        outgoing: Outgoing,
        registered: &mut Option<Arc<Registered>>,
    ) -> Result<RdmaLink, Error> {
        let stack = self.stack;
        let plain = |error: io::Error| self.system(&error, "");
        let device = stack.routed_device(&outgoing).map_err(plain)?;
        let limits = stack.limits(&device).map_err(plain)?;
        // Besides the commands that are outstanding, the send queue has those whose end the card has not told yet.
        let most = limits.queue_places.saturating_sub(SIGNAL_EVERY).clamp(1, u16::MAX.into());
        let depth = self.wanted.depth.clamp(1, most);
        let locked = |error: io::Error| {
            self.system(&error, "memory for RDMA is locked: does `ulimit -l` allow as much as the job's buffers have?")
        };
        let is_io = self.wanted.qid > 0;
        let registered = match &self.options.rdma.arena {
            Some(arena) if is_io => match registered {
                Some(there) if there.device == device => Some(there.clone()),
                _ => {
                    let new =
                        Arc::new(Registered::new(stack, &device, arena, self.options.rdma.writable).map_err(locked)?);
                    Some(registered.insert(new).clone())
                }
            },
            _ => None,
        };
        let domain = match &registered {
            Some(registered) => registered.domain.clone(),
            None => stack.domain(&device).map_err(plain)?,
        };
        let memory = QueueMemory::new(stack, &domain, depth, depth + SIGNAL_EVERY, !is_io).map_err(locked)?;
        let completions = stack.completions(&device, 2 * depth + SIGNAL_EVERY).map_err(plain)?;
        let pair_options = PairOptions {
            domain: &domain,
            completions: &completions,
            shared: None,
            sends: depth + SIGNAL_EVERY,
            receives: depth,
            parts: PARTS.min(limits.parts),
        };
        let request = ConnectRequest {
            recfmt: 0,
            qid: self.wanted.qid,
            hrqsize: depth as u16,
            // As SQSIZE of Connect: a submission queue has two entries at least.
            hsqsize: (depth.max(2) - 1) as u16,
            cntlid: self.wanted.cntlid,
        };
        let private_data = request.write();
        // The controller reads the data of writes; this side reads nothing.
        let reads = Reads { serves: limits.reads.serves, issues: 0 };
        let greeting = Greeting { private_data: &private_data, reads, no_receive_tries: None };
        let pair = stack.connect(outgoing, &pair_options, &greeting).map_err(plain)?;
        let mut link = RdmaLink::new(stack.clone(), pair, completions, channel, memory, registered, depth);
        link.post_receives().map_err(plain)?;
        let private_data = match self.event(link.channel())? {
            Event::Established { private_data, .. } => private_data,
            other => return Err(self.refused(other)),
        };
        match ConnectAccept::of(&private_data) {
            Some(ConnectAccept { crqsize: crqsize @ 1.., .. }) => {
                link.limit(crqsize.into());
                Ok(link)
            }
            _ => {
                let why = "it accepts the connection, and not as an NVMe controller does";
                Err(self.error(why, "is this the port of an NVMe target?", libc::EPROTO))
            }
        }
    }

    /// The next event of the connection.
    fn event(&self, channel: &Channel) -> Result<Event<Either>, Error> {
        loop {
            match self.stack.next_event(channel) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => return Err(self.system(&error, "")),
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.error(
                    "timed out",
                    "no answer in time: is this the port of an NVMe target?",
                    libc::ETIMEDOUT,
                ));
            }
            sleep(&mut [PollFd::from_borrowed_fd(self.stack.channel_descriptor(channel), PollFlags::IN)], left);
        }
    }

    /// The reason why an event ends the attempt.
    fn refused(&self, event: Event<Either>) -> Error {
        match event {
            Event::Refused { reason: NOBODY_LISTENS, .. } => {
                let hint = "nothing listens there: is the target running, and is this its port?";
                self.error("connection refused", hint, libc::ECONNREFUSED)
            }
            Event::Refused { reason, private_data, .. } => match ConnectReject::of(&private_data) {
                Some(reject @ Reject(1..)) if reason == BY_THE_PEER => {
                    let hint = match reject {
                        Reject::NO_RESOURCES => "no controller, queue or connection is left",
                        _ => "",
                    };
                    let why = format!("the controller refuses: {} (STS {})", reject.name(), reject.0);
                    self.error(&why, hint, libc::ECONNREFUSED)
                }
                _ => {
                    let why = format!("the connection manager refuses for reason {reason}");
                    self.error(&why, "is this the port of an NVMe target?", libc::ECONNREFUSED)
                }
            },
            Event::Failed { step, error, .. } => {
                let why = format!("{step}: {error}");
                self.error(&why, "is the address right, and does an RDMA device lead there?", errno(&error))
            }
            Event::Removed { .. } => self.error("the RDMA device has gone", "", libc::ENODEV),
            _ => self.error(
                "the controller closed the connection",
                "is this the port of an NVMe target?",
                libc::ECONNRESET,
            ),
        }
    }

    fn system(&self, error: &io::Error, hint: &str) -> Error {
        self.error(&error.to_string(), hint, errno(error))
    }

    fn error(&self, why: &str, hint: &str, errno: i32) -> Error {
        Error::new(self.what, why, hint, errno)
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
