//! One connection: Connect, authentication, and commands one at a time, waiting for each. Slow work belongs here: the
//! threads that do it may wait.

use std::io;
use std::time::{Duration, Instant};

use nvme::auth::{Entropy, Host, Policy};
use nvme::spec::fabrics::{self, Authentication, Connect, ConnectData, DYNAMIC_CONTROLLER};
use nvme::spec::{Command, Nqn, Status};

use super::{Arrived, Broken, Buffers, Done, Error, Link, Options, Transfer};

/// The longest sleep between two looks at the deadline of a command.
const PATIENCE: Duration = Duration::from_millis(200);
/// Room for any message of an authentication: what Linux has too.
const AUTHENTICATION_BYTES: usize = 4096;

/// A connected queue whose answers are waited for.
#[derive(Debug)]
pub(super) struct Connection {
    pub link: Link,
    /// The address of the peer, for messages.
    place: String,
    pub timeout: Duration,
    /// Commands that ended while another was waited for.
    pub others: Vec<Done>,
    /// Commands issued: their tags.
    issued: u32,
}

/// Memory of the one command that is waited for. The others have no data.
pub(super) struct Single<'a>(pub &'a mut [u8]);

impl Buffers for Single<'_> {
    fn bytes(&self, _: u32) -> &[u8] {
        self.0
    }

    fn bytes_mut(&mut self, _: u32) -> &mut [u8] {
        self.0
    }
}

/// The data that a command moves to or from the caller's memory.
pub(super) enum Move<'a> {
    None,
    Send(&'a mut [u8]),
    Receive(&'a mut [u8]),
}

/// The outcome of connecting a queue.
pub(super) struct Welcome {
    pub cntlid: u16,
    /// The keys of TLS that the authentication has made, the likeliest first.
    pub generated: Vec<tls::Psk>,
}

/// The use that a host makes of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The host sends commands.
    Use,
    /// The host makes a key of TLS by authentication, and connects anew with the key.
    Concatenation,
}

impl Connection {
    pub fn new(link: Link, place: String, timeout: Duration) -> Connection {
        Connection { link, place, timeout, others: Vec::new(), issued: 0 }
    }

    /// Connects the queue `qid` to a controller of the subsystem: a new one for the admin queue (0).
    pub fn join(
        &mut self,
        subsystem: &Nqn,
        options: &Options,
        qid: u16,
        cntlid: u16,
        purpose: Purpose,
    ) -> Result<Welcome, Error> {
        let kato_ms = if qid == 0 { options.keep_alive.as_millis().min(u32::MAX.into()) as u32 } else { 0 };
        let sqsize = (self.link.depth().clamp(2, 65_536) - 1) as u16;
        let connect = Connect { recfmt: 0, qid, sqsize, cattr: Connect::NO_FLOW_CONTROL, kato_ms };
        let data = ConnectData {
            hostid: options.hostid,
            cntlid: if qid == 0 { DYNAMIC_CONTROLLER } else { cntlid },
            subnqn: subsystem.field(),
            hostnqn: options.hostnqn.field(),
        };
        let done = self.wait_for(connect.command(), Move::Send(&mut data.write()))?;
        if done.status.is_ok() {
            let (cntlid, authentication, concatenation) = Connect::outcome(done.result);
            let mut generated = Vec::new();
            if concatenation && purpose != Purpose::Concatenation {
                let what = format!("cannot authenticate to {subsystem} at {}", self.place);
                let hint = "give concat=1, or the key of TLS that the target has for this host";
                return Err(Error::new(what, "it demands secure channel concatenation", hint, libc::EACCES));
            } else if authentication {
                generated = self.authenticate(subsystem, options, purpose)?;
            } else if purpose == Purpose::Concatenation {
                let what = format!("cannot make a key of TLS with {subsystem} at {}", self.place);
                let hint = "has the target a key (dhchap_key) for this host's NQN, and concatenates its listener?";
                return Err(Error::new(what, "it does not authenticate this host", hint, libc::EACCES));
            } else if options.controller_secret.is_some() && !options.concatenation && !subsystem.is_discovery() {
                // A peer that stands in for the controller would not offer it either. Discovery services have no keys.
                let what = format!("cannot authenticate {subsystem} at {}", self.place);
                let why = "it does not offer to prove that it knows its key";
                return Err(Error::new(what, why, "has the target a key for this host's NQN?", libc::EACCES));
            }
            return Ok(Welcome { cntlid, generated });
        }
        let queue = if qid == 0 { "".to_string() } else { format!(" queue {qid} of") };
        let what = format!("cannot connect{queue} {subsystem} at {} as {}", self.place, options.hostnqn);
        let mut error = Error::status(what, done.status);
        if done.status.is(Status::CONNECT_INVALID_PARAMETERS) {
            error.hint = match Connect::invalid_parameter(done.result) {
                (true, Connect::AT_SUBNQN) => Error::NO_SUBSYSTEM.into(),
                (true, Connect::AT_HOSTNQN) => "the host's name is not accepted: give hostnqn=".into(),
                (in_data, offset) => {
                    format!("the parameter at offset {offset} of the {}", if in_data { "data" } else { "command" })
                }
            };
        }
        Err(error)
    }

    /// Proves who this host is, and has the controller prove itself if the options ask for it. Returns the keys of TLS
    /// that come of it, if that is the purpose.
    fn authenticate(&mut self, subsystem: &Nqn, options: &Options, purpose: Purpose) -> Result<Vec<tls::Psk>, Error> {
        let what = format!("cannot authenticate to {subsystem} at {}", self.place);
        let Some(secret) = options.secret.clone() else {
            let hint = "give dhchap_key=FILE with the key that the target has for this host";
            return Err(Error::new(what, "it demands authentication", hint, libc::EACCES));
        };
        let entropy = Entropy::from_system().map_err(|error| Error::broken(&what, &Broken::Io(error)))?;
        let (host_nqn, back) = (options.hostnqn.as_str(), options.controller_secret.clone());
        let mut host = Host::new(host_nqn, subsystem.as_str(), secret, back, Policy::default(), entropy);
        if purpose == Purpose::Concatenation {
            host = host.concatenating();
        }
        let key = "is it the key that the target has for this host's NQN?";
        let mut message = host.start();
        let mut has_proven = false;
        loop {
            let mut answer = [0; AUTHENTICATION_BYTES];
            let sent = self.succeed(Authentication::send(message.len() as u32), Move::Send(&mut message));
            sent.and_then(|_| self.succeed(Authentication::receive(answer.len() as u32), Move::Receive(&mut answer)))
                // Linux tells the host that its proof is wrong and hangs up: over RDMA the end may come first.
                .map_err(
                    |error| if has_proven && error.is_closed() { Error { hint: key.into(), ..error } } else { error },
                )?;
            match host.receive(&answer) {
                Ok((next, None)) => (message, has_proven) = (next, true),
                Ok((mut last, Some(_))) => {
                    if !last.is_empty() {
                        self.succeed(Authentication::send(last.len() as u32), Move::Send(&mut last))?;
                    }
                    return Ok(host.generated().iter().map(|key| key.key(host_nqn, subsystem.as_str())).collect());
                }
                Err((failure, mut last)) => {
                    if !last.is_empty() {
                        // The controller hangs up on this message.
                        let _ = self.wait_for(Authentication::send(last.len() as u32), Move::Send(&mut last));
                    }
                    return Err(Error::new(what, failure.to_string(), key, libc::EACCES));
                }
            }
        }
    }

    /// Carries out a command and waits for its end.
    ///
    /// # Errors
    /// The connection broke. A command that failed is not an error here.
    pub fn wait_for(&mut self, command: Command, moved: Move) -> Result<Done, Error> {
        let name = command.name(true);
        self.carry_out(command, moved)
            .map_err(|broken| Error::broken(format!("{name} at {} failed", self.place), &broken))
    }

    /// Carries a command out as [`Connection::wait_for`] does; the command must succeed.
    pub fn succeed(&mut self, command: Command, moved: Move) -> Result<u64, Error> {
        let done = self.wait_for(command, moved)?;
        if done.status.is_ok() {
            return Ok(done.result);
        }
        Err(Error::status(format!("{} at {} failed", command.name(true), self.place), done.status))
    }

    /// Queues a command without data that may take its time. Returns the command's tag.
    pub fn start(&mut self, command: Command) -> Result<u32, Broken> {
        let tag = self.next_tag();
        self.link.issue(tag, command, Transfer::None, &Single(&mut []));
        self.link.send(&Single(&mut []))?;
        Ok(tag)
    }

    fn next_tag(&mut self) -> u32 {
        self.issued = self.issued.wrapping_add(1);
        self.issued
    }

    fn carry_out(&mut self, command: Command, moved: Move) -> Result<Done, Broken> {
        let tag = self.next_tag();
        let mut none = [];
        let (transfer, memory): (_, &mut [u8]) = match moved {
            Move::None => (Transfer::None, &mut none),
            Move::Send(bytes) => (Transfer::Out { at: 0, len: bytes.len() as u32 }, bytes),
            Move::Receive(bytes) => (Transfer::In { at: 0, len: bytes.len() as u32 }, bytes),
        };
        let mut buffers = Single(memory);
        let until = Instant::now() + self.timeout;
        if !self.link.issue(tag, command, transfer, &buffers) {
            return Err(Broken::Io(io::ErrorKind::QuotaExceeded.into()));
        }
        loop {
            self.link.send(&buffers)?;
            if Instant::now() > until {
                return Err(Broken::Io(io::ErrorKind::TimedOut.into()));
            }
            let before = self.others.len();
            let received = self.link.receive(&mut buffers, &mut self.others);
            let mine = self.others[before..].iter().position(|done| done.tag == tag);
            if let Some(mine) = mine {
                return Ok(self.others.remove(before + mine));
            }
            if received? == Arrived::Nothing {
                self.link.wait(PATIENCE)?;
            }
        }
    }
}

/// Reads a property of `bytes` (4 or 8) bytes.
pub(super) fn property(connection: &mut Connection, offset: u32, bytes: u8) -> Result<u64, Error> {
    connection.succeed(fabrics::PropertyAccess::get(offset, bytes), Move::None)
}
