//! Messages from other threads to a reactor: a queue, and an event that ends the reactor's sleep.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, eventfd};

use super::Error;
use super::configuration::{Configuration, Leaving};
use super::examiner::Examination;
use super::gate::Fence;
use super::management::Managed;
use super::portal::Portal;
use super::reactor::Settling;
use super::reservations::{Answered, Eviction};
use super::stats::{ReactorReport, StatsChange};
use super::traces::Cause;
use super::transport::{Asked, Moving};

/// Names a connection of a reactor, also after it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    pub reactor: u32,
    pub index: u32,
    /// Distinguishes connections that had the same index one after another.
    pub generation: u32,
}

pub(super) enum Message {
    /// The configuration changed; answer when it is in force, or why it cannot be.
    Configure(Arc<Configuration>, mpsc::Sender<Result<(), Error>>),
    /// Accept here from now on.
    Listen(SocketAddr, TcpListener, mpsc::Sender<()>),
    /// Accept over RDMA here from now on; answer with the address.
    ListenRdma(SocketAddr, mpsc::Sender<std::io::Result<SocketAddr>>),
    /// Accept no more connections on that address.
    Unlisten(Portal, mpsc::Sender<()>),
    /// Serve this connection, which came in on that address.
    Serve(TcpStream, SocketAddr),
    /// Serve this host, which asks for a connection over RDMA.
    ServeRdma(Box<Asked>),
    /// Move this connection to that reactor, if its commands end soon.
    Leave(Token, u32),
    /// Serve this connection, which another reactor has served until now.
    Arrive(Box<Moving>),
    /// Close the connection, for that cause.
    Close(Token, Cause),
    /// Close the connections of a host to a subsystem, given by its uid; then answer.
    Disconnect(u64, Arc<str>, mpsc::Sender<()>),
    /// The controller of this connection has events for the host.
    Events(Token),
    /// End the connections of a host that are over, and drop the reference.
    Settle(Arc<Settling>),
    /// All reactors have done so: answer the Connect of that queue.
    Settled { queue: Token, cid: u16, result: u64 },
    /// Take a held command back: the queue and id of the command, and the queue and id of the Abort that asks.
    Abort { queue: Token, cid: u16, asked_by: Token, asked_cid: u16 },
    /// The answer to `Abort`: `aborted` is true if the command was taken back.
    Aborted { asked_by: Token, asked_cid: u16, aborted: bool },
    /// A message of an authentication has been examined.
    Examined(Examination),
    /// A command that changes reservations has been carried out.
    Reserved(Answered),
    /// Abort the commands of these hosts on a namespace.
    Evict(Arc<Eviction>),
    /// Keep the sender until the ops that leave have left their devices.
    Depart(Leaving, mpsc::Sender<()>),
    /// A command that manages namespaces has been carried out.
    Managed(Managed),
    /// Keep the fence until the changes of its range that are in the device have ended.
    Fence(Arc<Fence>),
    /// All reactors have done so: the command in that slot, which holds the range, goes on.
    Fenced { queue: Token, slot: u16, hold: u64 },
    /// A gate has opened that commands of the reactor wait at.
    GateOpened,
    /// Change the counters of these devices, by uid; then answer.
    ChangeStats(Arc<[u64]>, StatsChange, mpsc::Sender<()>),
    /// Report the reactor's counters.
    Report(mpsc::Sender<ReactorReport>),
    /// Take no new commands, end the commands under way, close the connections; then answer.
    Drain(mpsc::Sender<()>),
    /// End the reactor at once.
    Stop,
}

/// The mailbox of a reactor: other threads put messages for the reactor into it.
pub(super) struct Mailbox {
    sender: mpsc::Sender<Message>,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    /// A mailbox, its other end, and the event that becomes readable when something is in it.
    pub fn new() -> std::io::Result<(Mailbox, mpsc::Receiver<Message>, Arc<OwnedFd>)> {
        let (sender, receiver) = mpsc::channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        Ok((Mailbox { sender, wake: Arc::clone(&wake) }, receiver, wake))
    }

    /// Puts a message there. One that nobody reads any more is lost, as the reactor's connections are.
    pub fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            // EAGAIN only if 2^64 - 1 events are unread: then it is awake anyway.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}
