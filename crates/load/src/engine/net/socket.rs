//! The sockets of both sides: addresses, options, and the meeting of the two.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use job::Job;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvfrom, send, sendto, socket_with, sockopt,
};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use sys::clock::{monotonic_ns, sleep_until_ns};

use super::message::{CLOSING, OPENING};
use crate::Error;

/// The time for which a side tries to reach a side that does not listen yet.
const PATIENCE_NS: u64 = 10_000_000_000;
const RETRY_NS: u64 = 20_000_000;
const SLICE_MS: i32 = 20;

/// The protocol of a socket, with the family of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
    Unix,
    Vsock,
}

/// Options of the sockets.
#[derive(Clone, Debug, Default)]
struct Tuning {
    nodelay: bool,
    window_bytes: usize,
    segment_bytes: u32,
    /// Multicast: the address of the interface, and the routers that a datagram may pass.
    interface: Option<Ipv4Addr>,
    routers: u32,
}

/// This side's way to the other side.
pub(super) struct Peer {
    protocol: Protocol,
    address: SocketAddrAny,
    tuning: Tuning,
    /// The socket that waits for the other side; None on the side that connects.
    listener: Option<OwnedFd>,
    /// The path of a UNIX socket that this side made.
    made: Option<PathBuf>,
    splices: bool,
    sends: bool,
    receives: bool,
}

impl Peer {
    /// The peer of clone `clone`. A side that listens is bound when this returns.
    pub fn of(job: &Job, clone: u32) -> Result<Peer, Error> {
        let option = |name: &str| job.ring.option(name);
        let number = |name: &str| option(name).and_then(|value| value.parse::<u64>().ok());
        let is_on = |name: &str| option(name) == Some("1");
        let word = option("protocol").unwrap_or("tcp");
        let protocol = match word {
            "udp" | "udpv6" => Protocol::Udp,
            "unix" => Protocol::Unix,
            "vsock" => Protocol::Vsock,
            _ => Protocol::Tcp,
        };
        let listens = is_on("listen");
        let port = number("port").unwrap_or(0) as u32 + clone;
        let host = option("hostname");
        let address = address(protocol, word.ends_with("v6"), host, port, listens)?;
        let pingpong = is_on("pingpong");
        let (sends, receives) = (job.rw.directions.write || pingpong, job.rw.directions.read || pingpong);
        let interface = match option("interface").map(str::parse) {
            None => None,
            Some(Ok(interface)) => Some(interface),
            Some(Err(_)) => {
                let hint = "write the IPv4 address of the interface";
                return Err(Error::usage("interface is not an address:", option("interface").unwrap_or(""), hint));
            }
        };
        let tuning = Tuning {
            nodelay: is_on("nodelay"),
            window_bytes: number("window_size").unwrap_or(0) as usize,
            segment_bytes: number("mss").unwrap_or(0) as u32,
            interface,
            routers: number("ttl").unwrap_or(1) as u32,
        };
        let splices = job.engine == "netsplice" && protocol == Protocol::Tcp;
        let mut peer = Peer { protocol, address, tuning, listener: None, made: None, splices, sends, receives };
        if listens {
            let path = host.filter(|_| protocol == Protocol::Unix);
            let group = host.and_then(|host| host.parse::<Ipv4Addr>().ok()).filter(Ipv4Addr::is_multicast);
            let place = || match host {
                Some(host) if protocol == Protocol::Unix => host.to_owned(),
                Some(host) => format!("{host} port {port}"),
                None => format!("port {port}"),
            };
            let listener = peer.listen(path, group).map_err(|error| {
                Error::system("cannot listen on", place(), error).hint("another program may have the address")
            })?;
            peer.listener = Some(listener);
        }
        Ok(peer)
    }

    /// True if each block is a datagram, which may be lost.
    pub fn is_datagram(&self) -> bool {
        self.protocol == Protocol::Udp
    }

    fn new_socket(&self) -> io::Result<OwnedFd> {
        let family = self.address.address_family();
        let kind = if self.is_datagram() { SocketType::DGRAM } else { SocketType::STREAM };
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        let tuning = &self.tuning;
        if tuning.window_bytes > 0 && self.receives {
            sockopt::set_socket_recv_buffer_size(&socket, tuning.window_bytes)?;
        }
        if tuning.window_bytes > 0 && self.sends {
            sockopt::set_socket_send_buffer_size(&socket, tuning.window_bytes)?;
        }
        if self.protocol == Protocol::Tcp && tuning.segment_bytes > 0 {
            set_segment(&socket, tuning.segment_bytes)?;
        }
        Ok(socket)
    }

    fn listen(&mut self, path: Option<&str>, group: Option<Ipv4Addr>) -> io::Result<OwnedFd> {
        let socket = self.new_socket()?;
        if let Some(path) = path {
            let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
            if is_socket {
                std::fs::remove_file(path)?; // left behind by an earlier run; other files stay
            }
        } else if self.protocol != Protocol::Vsock {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        bind(&socket, &self.address)?;
        if let Some(path) = path {
            self.made = Some(PathBuf::from(path));
            // As in fio, a job of another user may connect.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
        }
        if let Some(group) = group {
            let interface = self.tuning.interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
            sockopt::set_ip_add_membership(&socket, &group, &interface)?;
        }
        if !self.is_datagram() {
            listen(&socket, 10)?;
        }
        Ok(socket)
    }

    /// Waits for the other side, or goes to it. None: stopped meanwhile.
    pub fn meet(&mut self, writes: bool, is_stopped: &dyn Fn() -> bool) -> io::Result<Option<Socket>> {
        let to = self.is_datagram().then(|| self.address.clone());
        let answers = to.is_some() && self.listener.is_some();
        let fd = if self.is_datagram() {
            match self.listener.take() {
                Some(listener) => listener,
                None => self.sender()?,
            }
        } else if let Some(listener) = &self.listener {
            let Some(fd) = accepted(listener, is_stopped)? else { return Ok(None) };
            fd
        } else {
            let Some(fd) = self.connected(is_stopped)? else { return Ok(None) };
            fd
        };
        if self.tuning.nodelay && self.protocol == Protocol::Tcp {
            sockopt::set_tcp_nodelay(&fd, true)?;
        }
        let pipe = if self.splices {
            let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            Some(Pipe { output, input, held: 0 })
        } else {
            None
        };
        let mut socket = Socket { fd, to, answers, pipe, is_at_end: false };
        if self.is_datagram() {
            if writes {
                socket.send(&OPENING)?;
            } else if !socket.await_opening(is_stopped)? {
                return Ok(None);
            }
        }
        Ok(Some(socket))
    }

    /// The socket of a side that sends datagrams.
    fn sender(&self) -> io::Result<OwnedFd> {
        let socket = self.new_socket()?;
        if let Ok(SocketAddr::V4(address)) = SocketAddr::try_from(self.address.clone())
            && address.ip().is_multicast()
        {
            if let Some(interface) = &self.tuning.interface {
                sockopt::set_ip_multicast_if(&socket, interface)?;
            }
            sockopt::set_ip_multicast_ttl(&socket, self.tuning.routers)?;
        }
        Ok(socket)
    }

    fn connected(&self, is_stopped: &dyn Fn() -> bool) -> io::Result<Option<OwnedFd>> {
        let give_up = monotonic_ns() + PATIENCE_NS;
        loop {
            let socket = self.new_socket()?;
            let outcome = match connect(&socket, &self.address) {
                Err(rustix::io::Errno::INPROGRESS) => {
                    loop {
                        if is_stopped() {
                            return Ok(None);
                        }
                        if ready(&socket, PollFlags::OUT, SLICE_MS)? {
                            break;
                        }
                    }
                    sockopt::socket_error(&socket)?
                }
                other => other,
            };
            match outcome {
                Ok(()) => return Ok(Some(socket)),
                // The other side may be about to listen.
                Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT | rustix::io::Errno::AGAIN)
                    if monotonic_ns() < give_up => {}
                Err(error) => return Err(error.into()),
            }
            if is_stopped() {
                return Ok(None);
            }
            sleep_until_ns(monotonic_ns() + RETRY_NS);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn accepted(listener: &OwnedFd, is_stopped: &dyn Fn() -> bool) -> io::Result<Option<OwnedFd>> {
    while !is_stopped() {
        if ready(listener, PollFlags::IN, SLICE_MS)? {
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
                accepted => return Ok(Some(accepted?)),
            }
        }
    }
    Ok(None)
}

fn address(protocol: Protocol, v6: bool, host: Option<&str>, port: u32, listens: bool) -> Result<SocketAddrAny, Error> {
    let wrong = |hint: &str| Error::usage("hostname is not an address for this protocol:", host.unwrap_or(""), hint);
    match protocol {
        Protocol::Unix => SocketAddrUnix::new(Path::new(host.unwrap_or_default()))
            .map(|address| address.as_any())
            .map_err(|_| wrong("the path of a socket has at most 107 bytes")),
        Protocol::Vsock => {
            let cid = match host {
                None if listens => libc::VMADDR_CID_ANY,
                Some(host) => host.parse().map_err(|_| wrong("write the number of the machine (CID)"))?,
                None => return Err(wrong("write the number of the machine (CID)")),
            };
            Ok(Vsock { cid, port }.as_any())
        }
        Protocol::Tcp | Protocol::Udp => {
            let any = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
            let port = u16::try_from(port).map_err(|_| wrong("a port is at most 65535"))?;
            let Some(host) = host else { return Ok(SocketAddr::new(any, port).as_any()) };
            let found = (host, port)
                .to_socket_addrs()
                .map_err(|error| Error::system("cannot find the address of", host, error))?
                .find(|address| address.is_ipv6() == v6);
            let family = if v6 { "it has no IPv6 address" } else { "it has no IPv4 address: use tcpv6 or udpv6" };
            found.map(|address| address.as_any()).ok_or_else(|| wrong(family))
        }
    }
}

/// An address between virtual machines: vsock(7).
struct Vsock {
    cid: u32,
    port: u32,
}

// SAFETY: the closure gets a sockaddr_vm that lives until the call returns, and its length.
unsafe impl SocketAddrArg for Vsock {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        // SAFETY: zero is valid for every field of a sockaddr_vm.
        let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
        address.svm_family = AddressFamily::VSOCK.as_raw();
        (address.svm_cid, address.svm_port) = (self.cid, self.port);
        f((&raw const address).cast(), size_of::<libc::sockaddr_vm>() as SocketAddrLen)
    }
}

/// `mss=`: TCP_MAXSEG.
fn set_segment(socket: &OwnedFd, bytes: u32) -> io::Result<()> {
    let (fd, len) = (socket.as_raw_fd(), size_of::<u32>() as libc::socklen_t);
    // SAFETY: the kernel reads one number of four bytes, which lives until the call returns.
    let status = unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, (&raw const bytes).cast(), len) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn ready(fd: &OwnedFd, events: PollFlags, most_ms: i32) -> io::Result<bool> {
    let mut fds = [PollFd::new(fd, events)];
    let timeout = Timespec { tv_sec: i64::from(most_ms / 1000), tv_nsec: i64::from(most_ms % 1000) * 1_000_000 };
    match poll(&mut fds, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The pipe of `netsplice`: it keeps copies of the bytes, so that the buffers may change while TCP still sends.
struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
    /// Bytes in the pipe.
    held: usize,
}

/// A socket that has found its peer.
pub(super) struct Socket {
    fd: OwnedFd,
    /// The address that datagrams go to; None for connections.
    to: Option<SocketAddrAny>,
    /// True if datagrams go to whoever sent the last one (`pingpong`). The side that began sends to its own address
    /// for ever: a group of hosts, of which each may answer.
    answers: bool,
    pipe: Option<Pipe>,
    /// True if the peer has nothing more to send.
    pub is_at_end: bool,
}

impl Socket {
    /// Sends from the start of `bytes` and returns how many went out. WouldBlock: the socket is full.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL;
        match (&self.to, &mut self.pipe) {
            (Some(to), _) => Ok(sendto(&self.fd, bytes, flags, to)?),
            (None, None) => Ok(send(&self.fd, bytes, flags)?),
            (None, Some(pipe)) => {
                if pipe.held == 0 {
                    pipe.held = rustix::io::write(&pipe.input, bytes)?;
                }
                let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
                let sent = splice(&pipe.output, None, &self.fd, None, pipe.held, flags)?;
                pipe.held -= sent;
                Ok(sent)
            }
        }
    }

    /// Receives into `bytes` and returns how many came. 0: the peer has closed its side. WouldBlock: nothing is there.
    pub fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(pipe) = &mut self.pipe {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            let got = splice(&self.fd, None, &pipe.input, None, bytes.len(), flags)?;
            let mut read = 0;
            while read < got {
                read += rustix::io::read(&pipe.output, &mut bytes[read..got])?;
            }
            return Ok(got);
        }
        let (got, _, from) = recvfrom(&self.fd, bytes, RecvFlags::empty())?;
        if let (Some(to), Some(from), true) = (&mut self.to, from, self.answers) {
            *to = from;
        }
        Ok(got)
    }

    /// Waits until the socket can send, or has something to receive.
    pub fn wait(&self, to_send: bool, most_ms: i32) -> io::Result<bool> {
        ready(&self.fd, if to_send { PollFlags::OUT } else { PollFlags::IN }, most_ms)
    }

    /// Waits for the first datagram. False: stopped meanwhile.
    fn await_opening(&mut self, is_stopped: &dyn Fn() -> bool) -> io::Result<bool> {
        let mut message = [0; 64];
        while !is_stopped() {
            if !self.wait(false, SLICE_MS)? {
                continue;
            }
            match self.receive(&mut message) {
                Ok(got) if message[..got] == OPENING => return Ok(true),
                Ok(_) => {} // left over from an earlier sender
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Tells the peer that nothing more comes. A peer that is gone needs no message.
    pub fn say_closing(&mut self) {
        self.pipe = None;
        if self.wait(true, 1000).unwrap_or(false) {
            let _ = self.send(&CLOSING);
        }
    }
}
