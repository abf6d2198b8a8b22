//! NVMe/TCP: the bytes of a stream that are units, and the units that are commands and their data.
//!
//! `receive` cuts the bytes that arrive into units and takes their data to their places; `units` acts on each unit;
//! `output` is all that waits to be sent; `leaving` makes a connection ready to go on at another reactor.

mod leaving;
mod output;
mod receive;
mod units;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nvme::Wire;
use nvme::pdu::{self, C2hData, End, Fault, Limits, MAX_HEADER_BYTES, R2t, Receiver, digest};
use nvme::spec::{Command, Completion, Data, Sgl, Status};
use pace::OpId;
use sys::buffer::Buffer;

use super::progress::Progress;
use super::{NO_SLOT, Transport};
use crate::answer::Answer;
use crate::connection::{ADMIN_CAPSULE_BYTES, Connection, Ended, LINGER_NS, Phase};
use crate::core::Core;
use crate::portal::Portal;
use crate::slot::Stage;
use crate::{afloat, io as io_command};
use leaving::Aside;
pub(crate) use leaving::Moving;
use output::Output;
use receive::Arriving;

/// Bytes of the kernel's send buffer of connections that carry no I/O.
const SMALL_SEND_BUFFER: u64 = 16 << 10;

/// The part of a connection that is TCP's.
pub(crate) struct Tcp {
    stream: Wire,
    receiver: Receiver,
    /// The first bytes of a header whose rest has not arrived yet.
    partial: Vec<u8>,
    arriving: Option<Arriving>,
    /// Bytes received while the connection could not go on.
    backlog: Vec<u8>,
    /// True while the connection cannot go on before the peer has taken some of the output queued for sending.
    pub(super) is_choked: bool,
    /// The admin or Fabrics command whose data are arriving in its capsule.
    admin_command: Option<Box<Command>>,
    admin_data: Vec<u8>,
    /// The header of the last unit that broke the protocol, for the TermReq that reports the error.
    last_header: Vec<u8>,
    out: Output,
    /// True when the socket took no more output: the reactor waits until it does.
    pub wants_write: bool,
    c2h_success: bool,
    /// The rates of the peer: how fast it sends the unit that it has begun, how fast it sends the data that R2Ts have
    /// asked for, and how fast it takes the output.
    unit_progress: Progress,
    transfer_progress: Progress,
    output_progress: Progress,
    /// A number of zeros and the digest of that many zeros: reads of a null device mostly have one size.
    zeros_digest: (u32, u32),
    /// Commands that wait until the connection is at another reactor; `None` while it stays where it is.
    aside: Option<Aside>,
}

impl Tcp {
    /// The transport of a connection that has just come in on `listener`, and the address of its peer.
    ///
    /// # Errors
    /// The system refuses an option of the socket, or TLS has no memory.
    pub fn accept(stream: TcpStream, listener: Portal, core: &Core) -> io::Result<(Tcp, Option<SocketAddr>)> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // The small buffer serves until the connection is an I/O queue: output that a peer does not read lies in the
        // kernel, too.
        if let Some(ms) = core.configuration.options.limits.ack_timeout_ms {
            rustix::net::sockopt::set_tcp_user_timeout(&stream, ms)?;
        }
        if let Some(bytes) = core.configuration.options.limits.send_buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(&stream, bytes.min(SMALL_SEND_BUFFER) as usize)?;
        }
        // A peer whose machine has vanished is noticed even if it asked for no keep-alive.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, std::time::Duration::from_secs(30))?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, std::time::Duration::from_secs(10))?;
        rustix::net::sockopt::set_tcp_keepcnt(&stream, 3)?;
        // The peer may be gone already.
        let peer = stream.peer_addr().ok();
        let stream = core.shared.security.wire(stream, listener, &core.configuration)?;
        Ok((Tcp::on(stream, core), peer))
    }

    /// The transport at its beginning, on a socket that has its options.
    fn on(stream: Wire, core: &Core) -> Tcp {
        let options = &core.configuration.options;
        let limits = Limits { capsule: options.in_capsule_bytes.max(ADMIN_CAPSULE_BYTES), data: options.max_io_bytes };
        Tcp {
            stream,
            receiver: Receiver::new(End::Host, limits),
            partial: Vec::new(),
            arriving: None,
            backlog: Vec::new(),
            is_choked: false,
            admin_command: None,
            admin_data: Vec::new(),
            last_header: Vec::new(),
            out: Output::default(),
            wants_write: false,
            c2h_success: options.c2h_success,
            unit_progress: Progress::default(),
            transfer_progress: Progress::default(),
            output_progress: Progress::default(),
            zeros_digest: (0, 0),
            aside: None,
        }
    }

    /// The descriptor that tells when the peer has sent something, or takes more.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// True if received bytes wait in the process, as those of TLS do: the kernel does not report them.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.stream.has_more()
    }

    /// True if nothing can be read before the socket has taken bytes.
    #[inline]
    pub fn reads_after_write(&self) -> bool {
        self.stream.reads_after_write()
    }

    /// True while the reactor must not read from the connection.
    #[inline]
    pub fn is_held_up(&self) -> bool {
        self.is_choked || self.has_much_aside()
    }

    /// CRC-32C of `len` zeros.
    fn digest_of_zeros(&mut self, len: u32) -> u32 {
        if self.zeros_digest.0 != len {
            self.zeros_digest = (len, digest::extend_zeros(0, len as usize));
        }
        self.zeros_digest.1
    }

    /// Queues the header of data for the host.
    #[inline]
    fn data_header(&mut self, cid: u16, length: u32, ends: bool) {
        let agreement = self.receiver.agreement;
        let header = C2hData { cid, offset: 0, length, last: true, success: ends };
        self.out.head(MAX_HEADER_BYTES, |out| header.write(&agreement, out));
    }
}

impl Transport for Tcp {
    #[inline]
    fn respond(&mut self, completion: &Completion) {
        let agreement = self.receiver.agreement;
        self.out.head(MAX_HEADER_BYTES, |out| pdu::response(completion, &agreement, out));
    }

    #[inline]
    fn end(&mut self, slot: u16) {
        self.out.end(slot);
    }

    #[inline]
    fn omits_response(&self, no_flow_control: bool) -> bool {
        no_flow_control && self.c2h_success
    }

    fn asks_before_connect(&self) -> bool {
        false
    }

    #[inline]
    fn ask_for_data(&mut self, cid: u16, slot: u16, length: u32, _buffer: &mut Option<Buffer>, _is_pooled: bool) {
        let ready = R2t { cid, ttag: slot, offset: 0, length };
        let agreement = self.receiver.agreement;
        self.out.head(MAX_HEADER_BYTES, |out| ready.write(&agreement, out));
    }

    #[inline]
    fn send_data(&mut self, cid: u16, buffer: Buffer, length: u32, ends: bool) {
        self.data_header(cid, length, ends);
        let with_digest = self.receiver.agreement.data_digest;
        let value = if with_digest { digest::of(&buffer.as_slice()[..length as usize]) } else { 0 };
        self.out.data(buffer, length as usize);
        if with_digest {
            self.out.bytes(&value.to_le_bytes());
        }
    }

    #[inline]
    fn send_zeros(&mut self, cid: u16, length: u32, ends: bool) {
        self.data_header(cid, length, ends);
        self.out.zeros(length as usize);
        if self.receiver.agreement.data_digest {
            let value = self.digest_of_zeros(length);
            self.out.bytes(&value.to_le_bytes());
        }
    }

    fn send_answer(&mut self, cid: u16, answer: &Answer, ends: bool) {
        self.data_header(cid, answer.len() as u32, ends);
        let (kept, zeros) = (answer.kept(), answer.len() - answer.kept().len());
        match answer.page() {
            Some((page, offset)) if !kept.is_empty() => self.out.shared(Arc::clone(page), offset, kept.len()),
            _ if !kept.is_empty() => self.out.bytes(kept),
            _ => {}
        }
        if zeros > 0 {
            self.out.zeros(zeros);
        }
        if self.receiver.agreement.data_digest {
            self.out.bytes(&digest::extend_zeros(digest::of(kept), zeros).to_le_bytes());
        }
    }

    #[inline]
    fn place_of_data(&self, sgl: &Sgl) -> Result<Data, Status> {
        sgl.data()
    }

    fn sgl_support(&self) -> u32 {
        1 | 1 << 20 | 1 << 21 // offsets in the capsule, and Transport SGL Data Blocks
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    #[inline]
    fn unsent_bytes(&self) -> u64 {
        self.out.len()
    }

    #[inline]
    fn output_memory(&self) -> u64 {
        self.out.memory() as u64
    }

    fn memory(&self) -> u64 {
        let received = self.backlog.capacity() + self.partial.capacity() + self.admin_data.capacity();
        let aside = self.aside.as_ref().map_or(0, Aside::memory);
        (self.out.memory() + received + aside) as u64
    }

    fn abandon(&mut self, free: &mut Vec<Buffer>) {
        self.out.abandon(free);
    }

    fn keeps(&mut self, _slot: u16, _op: OpId) -> bool {
        false // the kernel has a copy of everything that it has taken
    }

    fn forget_received(&mut self) {
        (self.arriving, self.aside, self.is_choked) = (None, None, false);
        self.partial = Vec::new();
        self.backlog = Vec::new();
        self.admin_data = Vec::new();
    }

    fn shrink(&mut self) {
        self.out.shrink();
        self.partial.shrink_to(0);
        self.admin_data.shrink_to(0);
        self.backlog.shrink_to(0);
    }

    fn local_ip(&self) -> Option<IpAddr> {
        self.stream.tcp().local_addr().ok().map(|local| local.ip())
    }

    fn identity(&self) -> Option<&str> {
        self.stream.identity()
    }

    fn becomes_io_queue(&mut self, core: &Core) {
        if let Some(bytes) = core.configuration.options.limits.send_buffer {
            // On failure the small buffer stays: it serves as well, if more slowly.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(self.stream.tcp(), bytes as usize);
        }
    }
}

impl Connection {
    /// True if the peer is slower than the limits allow: in sending a unit or a transfer that it has begun, or in
    /// taking the output.
    pub(super) fn is_slow_stream(&mut self, now_ns: u64, limits: &crate::Limits) -> bool {
        let (stall, send_stall) = (limits.stall.as_nanos() as u64, limits.send_stall.as_nanos() as u64);
        let is_amid = (self.transport.tcp_mut().arriving.is_some() || !self.transport.tcp_mut().partial.is_empty())
            && !self.is_stalled();
        let is_asked = self.slots.iter_mut().any(|(_, slot)| slot.stage == Stage::Data);
        let is_sending = !self.transport.tcp_mut().out.is_empty();
        let rate = limits.bytes_per_s;
        self.transport.tcp_mut().unit_progress.is_too_slow(now_ns, is_amid, stall, rate)
            | self.transport.tcp_mut().transfer_progress.is_too_slow(now_ns, is_asked, stall, rate)
            | self.transport.tcp_mut().output_progress.is_too_slow(now_ns, is_sending, send_stall, rate)
    }

    /// Sends the queued bytes, as far as the socket takes them.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn send_bytes(&mut self, core: &mut Core) -> Result<(), Ended> {
        let before = self.transport.tcp_mut().out.len();
        let (mut free, mut ended) = (std::mem::take(&mut core.free), std::mem::take(&mut core.ended));
        let tcp = self.transport.tcp_mut();
        let sent = tcp.out.send(&mut tcp.stream, &mut free, &mut ended);
        core.free = free;
        self.outstanding = self.outstanding.saturating_sub(ended.len() as u32);
        for index in ended.drain(..) {
            if index != NO_SLOT && self.slots.get(index).is_some() {
                io_command::release(self, core, index);
            }
        }
        core.ended = ended;
        core.give_free();
        self.transport.tcp_mut().wants_write = !sent?;
        if self.transport.tcp_mut().out.len() < before {
            afloat::moved(self, core);
        }
        let tcp = self.transport.tcp_mut();
        tcp.output_progress.moved(before - tcp.out.len());
        if self.is_closing() && self.transport.tcp().out.is_empty() {
            // The target reads and drops the data that the host still sends: unread data would turn the goodbye into a
            // reset.
            self.transport.tcp_mut().stream.finish();
        }
        Ok(())
    }

    /// Tells the host its fault, after the output that is already queued; the target no longer listens to the host.
    pub fn terminate(&mut self, core: &mut Core, fault: &Fault) {
        self.give_up(core, true);
        self.phase = Phase::Closing { until_ns: core.now_ns + LINGER_NS };
        let (bytes, len) = fault.term_req(End::Controller, &self.transport.tcp_mut().last_header).pdu();
        self.transport.tcp_mut().out.bytes(&bytes[..len]);
        self.mark_dirty(core);
    }
}
