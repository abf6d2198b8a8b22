//! Queues over TCP: dialling, TLS, the handshake, and the [`Link`](super::Link) of a socket.
//!
//! The protocol is in [`Queue`], which knows no socket: it writes to any `Write`, reads from any `Read`, and moves data
//! between those and the memory that [`Buffers`] lends, without copying large data.

mod outgoing;
mod queue;

use std::io::{self, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nvme::Wire;
use nvme::pdu::{COMMON_BYTES, End, Fault, IcReq, Limits, Next, Pdu, Receiver};
use nvme::spec::{Command, IdentifyController, Nqn};
use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;

use super::dialer::Secrets;
use super::link::{Arrived, Broken, Buffers, Done, Issued, Transfer};
use super::{Address, Error, Options};
pub use queue::Queue;

/// Data in the capsules of the admin queue: Base specification 2.0, section 3.3.2.1.1.
const ADMIN_CAPSULE_BYTES: u32 = 8192;

/// A queue with its socket, plain or secured.
#[derive(Debug)]
pub struct TcpLink {
    /// The protocol of the queue, without I/O.
    pub queue: Queue,
    /// The TCP connection of the queue.
    pub stream: Wire,
}

/// A connection whose large data are thrown away: the first slice of a vectored read says how many bytes of them to
/// take out of the socket, and keeps its own (MSG_TRUNC, tcp(7)). Other reads are those of the connection.
struct Discarding<'a>(&'a mut Wire);

impl Read for Discarding<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some((payload, behind)) = buffers.split_first_mut() else { return Ok(0) };
        let (_, discarded) = rustix::net::recv(self.0.tcp(), &mut **payload, RecvFlags::TRUNC)?;
        if discarded < payload.len() || discarded == 0 {
            return Ok(discarded);
        }
        match self.0.read_vectored(behind) {
            Ok(read) => Ok(discarded + read),
            // The next read meets the end of the connection, or its error, again.
            Err(_) => Ok(discarded),
        }
    }
}

impl TcpLink {
    #[inline]
    pub(super) fn issue(&mut self, tag: u32, command: Command, transfer: Transfer, buffers: &impl Buffers) -> bool {
        self.queue.issue(tag, command, transfer, buffers)
    }

    #[inline]
    pub(super) fn send(&mut self, buffers: &impl Buffers) -> Result<bool, Broken> {
        if self.queue.has_unsent() { self.queue.send(&mut self.stream, buffers) } else { Ok(true) }
    }

    #[inline]
    pub(super) fn receive(&mut self, buffers: &mut impl Buffers, done: &mut Vec<Done>) -> Result<Arrived, Broken> {
        let received = match buffers.keeps_data() {
            true => self.queue.receive(&mut self.stream, buffers, done),
            false => self.queue.receive(&mut Discarding(&mut self.stream), buffers, done),
        };
        if let Err(Broken::Fault(fault)) = &received {
            self.queue.terminate(fault, &mut self.stream);
        }
        received
    }

    pub(super) fn depth(&self) -> usize {
        self.queue.depth()
    }

    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// A queue without outstanding commands can only report that it is closed: the next command finds that out.
    #[inline]
    pub(super) fn is_expecting(&self) -> bool {
        self.queue.outstanding() > 0
    }

    pub(super) fn outstanding_commands(&self) -> Vec<Issued> {
        self.queue.outstanding_commands().collect()
    }

    /// Bytes that wait in the process, where poll(2) does not see them, keep the thread from sleeping.
    pub(super) fn may_sleep(&mut self) -> Result<bool, Broken> {
        Ok(!self.stream.has_more())
    }

    pub(super) fn watch<'a>(&'a self, descriptors: &mut Vec<PollFd<'a>>) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.stream.reads_after_write());
        flags.set(PollFlags::OUT, self.queue.has_unsent());
        descriptors.push(PollFd::from_borrowed_fd(self.stream.as_fd(), flags));
    }

    pub(super) fn learn(&mut self, identify: &IdentifyController) {
        let capsule_bytes = (identify.ioccsz * 16).saturating_sub(64);
        self.queue.set_capsule_bytes(if identify.icdoff == 0 { capsule_bytes } else { 0 });
    }
}

/// A connection for a queue of the subsystem, after the handshake. It is secured by one of the keys, if there are any.
pub(super) fn open(
    address: &Address,
    subsystem: &Nqn,
    options: &Options,
    depth: u32,
    secrets: &mut Secrets,
) -> Result<TcpLink, Error> {
    let what = format!("cannot connect to {}", address.place());
    let dialled = || dial(address, options.timeout).map_err(|error| Error::broken(&what, &Broken::Io(error)));
    let stream = loop {
        let stream = dialled()?;
        let Some(key) = secrets.keys.get(secrets.offer) else { break Wire::Plain(stream) };
        match secure(stream, key.clone(), Instant::now() + options.timeout) {
            Ok(wire) => break wire,
            // The controller may know the key by another identity, or derived in another way.
            Err(error) if error.is_refusal() && secrets.offer + 1 < secrets.keys.len() => secrets.offer += 1,
            Err(error) => return Err(refused(&what, subsystem, &error)),
        }
    };
    handshake(stream, options, depth).map_err(|broken| Error::broken(what, &broken))
}

fn dial(address: &Address, timeout: Duration) -> io::Result<TcpStream> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for socket in address.resolve()? {
        outcome = TcpStream::connect_timeout(&socket, timeout);
        if outcome.is_ok() {
            break;
        }
    }
    let stream = outcome?;
    stream.set_nodelay(true)?;
    // Reads of the handshake come back now and then, so that its deadline is seen.
    stream.set_read_timeout(Some(timeout.min(Duration::from_millis(200))))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

/// The connection once both ends have proven the key.
fn secure(stream: TcpStream, key: tls::Psk, until: Instant) -> Result<Wire, tls::Error> {
    let mut stream = tls::Connector::new()?.connect(stream, key)?;
    while stream.handshake()? != tls::Handshake::Done {
        if Instant::now() > until {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
    }
    Ok(Wire::secured(stream))
}

fn refused(what: &str, subsystem: &Nqn, error: &tls::Error) -> Error {
    let hint = match error {
        error if error.is_refusal() => {
            format!("has the target this key for this host's NQN and {subsystem}, and does the listener take TLS?")
        }
        tls::Error::Io(_) => "does the listener take TLS?".into(),
        _ => String::new(),
    };
    Error::new(what, error.to_string(), hint, libc::EACCES)
}

fn handshake(mut stream: Wire, options: &Options, depth: u32) -> Result<TcpLink, Broken> {
    let asked = IcReq::asking(options.header_digest, options.data_digest);
    stream.write_all(&asked.pdu())?;
    let limits = Limits { capsule: 0, data: 0 };
    let receiver = Receiver::new(End::Controller, limits);
    let (mut bytes, mut len, mut need) = ([0; 256], 0, COMMON_BYTES);
    let until = Instant::now() + options.timeout;
    loop {
        while len < need {
            match stream.read(&mut bytes[len..need]) {
                Ok(0) => return Err(Broken::Closed),
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Broken::Io(io::ErrorKind::TimedOut.into()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let fault = match receiver.next(&bytes[..len]) {
            Ok(Next::Need(more)) => {
                need = more;
                continue;
            }
            Ok(Next::Unit(_, Pdu::IcResp(answer))) => match answer.agreement(&asked) {
                Ok(agreement) => {
                    let queue = Queue::new(depth, agreement, answer.maxh2cdata, ADMIN_CAPSULE_BYTES);
                    stream.tcp().set_nonblocking(true)?;
                    return Ok(TcpLink { queue, stream });
                }
                Err(fault) => fault,
            },
            Ok(Next::Unit(_, Pdu::TermReq { status, info })) => return Err(Broken::Terminated { status, info }),
            Ok(Next::Unit(layout, _)) => Fault::sequence(layout.kind, "the first unit must be ICResp"),
            Err(fault) => fault,
        };
        let (told, told_len) = fault.term_req(End::Host, &bytes[..len]).pdu();
        // The connection ends either way.
        let _ = stream.write(&told[..told_len]);
        return Err(Broken::Fault(fault));
    }
}
