//! The bytes that arrive: cuts them into units, and takes the units' data to their places.
//!
//! Bytes come through the reactor's one receive buffer; a connection keeps only the beginning of a header that is cut
//! off. Data of writes go straight into their buffers, past the receive buffer, as far as they have not arrived
//! together with their header. A connection that cannot go on keeps in its backlog what has been received.

use std::io::{self, IoSliceMut, Read};

use nvme::pdu::{Fault, Layout, Next, Pdu, PduType, digest};
use nvme::spec::Status;

use crate::afloat;
use crate::connection::{Connection, Ended};
use crate::core::Core;
use crate::queued;
use crate::traces::Cause;
use crate::transport::{Link, Sink};

/// Receive calls for one I/O queue before other connections have their turn; one call for any other connection.
const RECEIVES: usize = 8;

/// The data of one unit while they arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    sink: Sink,
    kind: PduType,
    /// Bytes of padding that are still to come before the data.
    pad: u32,
    /// The offset in the sink at which the next byte goes.
    at: u32,
    left: u32,
    running: u32,
    /// The digest that follows the data: the number of its bytes still to come, and the bytes that came.
    digest_left: u32,
    digest: [u8; 4],
}

impl Connection {
    /// Acts on the bytes that have waited.
    pub(in crate::transport) fn take_in_bytes(&mut self, core: &mut Core) -> Result<(), Ended> {
        let backlog = std::mem::take(&mut self.transport.tcp_mut().backlog);
        let outcome = self.take_in(core, &backlog);
        queued::count(self, core);
        outcome
    }

    /// Keeps bytes in the backlog: the connection cannot act on them yet.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.transport.tcp_mut().backlog.try_reserve_exact(bytes.len()).map_err(|_| Ended::Gone(Cause::NO_MEMORY))?;
        self.transport.tcp_mut().backlog.extend_from_slice(bytes);
        Ok(())
    }

    /// Reads the bytes that have arrived, and acts on them.
    ///
    /// # Errors
    /// The peer has gone, or has broken the protocol.
    pub fn receive(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), Ended> {
        let outcome = self.receive_some(core, scratch);
        queued::count(self, core);
        self.come_back(core);
        outcome
    }

    /// Has the reactor read on if bytes wait in the process, as those of TLS do.
    #[inline]
    pub fn come_back(&self, core: &mut Core) {
        if self.transport.tcp().stream.has_more() && !self.is_stalled() {
            core.unread.push(self.token.index);
        }
    }

    /// True if received bytes wait in the process.
    #[inline]
    pub fn has_unread(&self) -> bool {
        matches!(&self.transport, Link::Tcp(tcp) if tcp.has_more())
    }

    fn receive_some(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), Ended> {
        let (calls, bytes) = match self.is_io_queue() {
            true => (RECEIVES, core.queued.receive_bytes(true)),
            false => (1, core.queued.receive_bytes(false)),
        };
        let scratch = &mut scratch[..bytes];
        for _ in 0..calls {
            if self.is_stalled() {
                return Ok(());
            }
            let (received, direct, asked) = match self.read(scratch) {
                Ok((0, ..)) => return Err(Ended::Gone(Cause::Closed)),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.transport.tcp_mut().unit_progress.moved(received as u64);
            if matches!(self.transport.tcp_mut().arriving, Some(Arriving { sink: Sink::Command(_), .. })) {
                afloat::moved(self, core);
            }
            if self.is_closing() {
                continue; // nobody listens any more
            }
            if let Some(controller) = &self.controller {
                controller.seen(core.now_ns);
            }
            if direct > 0 {
                self.data_in_place(core, direct as u32)?;
            }
            self.take_in(core, &scratch[..received - direct])?;
            if received < asked {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Bytes received, how many of them directly into a command's buffer, and how many there was room for.
    fn read(&mut self, scratch: &mut [u8]) -> io::Result<(usize, usize, usize)> {
        let tcp = self.transport.tcp_mut();
        let stream = &mut tcp.stream;
        if let Some(arriving) = &tcp.arriving
            && let Sink::Command(index) = arriving.sink
            && arriving.pad == 0
            && arriving.left > 0
            && let Some(buffer) = self.slots.get(index).and_then(|slot| slot.buffer.as_mut())
        {
            let room = &mut buffer.as_mut_slice()[arriving.at as usize..][..arriving.left as usize];
            let direct = room.len();
            let asked = direct + scratch.len();
            let received = stream.read_vectored(&mut [IoSliceMut::new(room), IoSliceMut::new(scratch)])?;
            return Ok((received, received.min(direct), asked));
        }
        let received = stream.read(scratch)?;
        Ok((received, 0, scratch.len()))
    }

    /// Accounts for data that were received directly into their command's buffer.
    fn data_in_place(&mut self, core: &mut Core, bytes: u32) -> Result<(), Ended> {
        let tcp = self.transport.tcp_mut();
        let Some(arriving) = &mut tcp.arriving else { return Ok(()) };
        if tcp.receiver.agreement.data_digest
            && let Sink::Command(index) = arriving.sink
            && let Some(buffer) = self.slots.get(index).and_then(|slot| slot.buffer.as_ref())
        {
            let data = &buffer.as_slice()[arriving.at as usize..][..bytes as usize];
            arriving.running = digest::extend(arriving.running, data);
        }
        arriving.at += bytes;
        arriving.left -= bytes;
        tcp.transfer_progress.moved(bytes.into());
        if arriving.left == 0 && arriving.digest_left == 0 {
            self.data_over(core)?;
        }
        Ok(())
    }

    /// Acts on bytes that have been received; keeps what cannot be acted on yet.
    fn take_in(&mut self, core: &mut Core, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            if self.is_closing() {
                return Ok(());
            }
            if self.is_stalled() {
                return self.keep(bytes);
            }
            if self.transport.tcp_mut().aside.is_some() {
                bytes = self.more_aside(bytes);
                if bytes.is_empty() {
                    return Ok(());
                }
            }
            if self.transport.tcp_mut().arriving.is_some() {
                bytes = self.more_data(core, bytes)?;
                continue;
            }
            if queued::is_beyond(self, core) {
                self.send(core)?; // the kernel may take it at once
                self.transport.tcp_mut().is_choked = queued::is_beyond(self, core);
                continue;
            }
            if self.transport.tcp_mut().partial.is_empty() {
                match self.transport.tcp_mut().receiver.next(bytes) {
                    Ok(Next::Unit(layout, pdu)) => {
                        let (header, rest) = bytes.split_at(layout.header_bytes as usize);
                        bytes = rest;
                        self.unit(core, &layout, pdu, header)?;
                    }
                    Ok(Next::Need(_)) => {
                        self.transport.tcp_mut().partial.extend_from_slice(bytes);
                        return Ok(());
                    }
                    Err(fault) => return Err(self.fault_at(fault, bytes)),
                }
                continue;
            }
            bytes = self.more_header(core, bytes)?;
        }
        Ok(())
    }

    /// Completes a header whose beginning came earlier, and acts on the unit once the header is whole. Returns the
    /// bytes that are left.
    fn more_header<'a>(&mut self, core: &mut Core, bytes: &'a [u8]) -> Result<&'a [u8], Ended> {
        let mut partial = std::mem::take(&mut self.transport.tcp_mut().partial);
        match self.transport.tcp_mut().receiver.next(&partial) {
            Ok(Next::Need(need)) => {
                let (more, rest) = bytes.split_at(bytes.len().min(need - partial.len()));
                partial.extend_from_slice(more);
                if partial.len() == need
                    && let Next::Unit(layout, pdu) = self
                        .transport
                        .tcp_mut()
                        .receiver
                        .next(&partial)
                        .map_err(|fault| self.fault_at(fault, &partial))?
                {
                    self.unit(core, &layout, pdu, &partial)?;
                    return Ok(rest);
                }
                self.transport.tcp_mut().partial = partial;
                Ok(rest)
            }
            // The receiver checks a header's digest when the header is whole.
            Ok(Next::Unit(layout, pdu)) => {
                self.unit(core, &layout, pdu, &partial)?;
                Ok(bytes)
            }
            Err(fault) => Err(self.fault_at(fault, &partial)),
        }
    }

    /// Keeps the header of the unit that broke the protocol, for the TermReq.
    #[cold]
    pub(super) fn fault_at(&mut self, fault: Fault, header: &[u8]) -> Ended {
        self.transport.tcp_mut().last_header = header[..header.len().min(128)].to_vec();
        Ended::Fault(fault)
    }

    /// Acts on a unit whose header is whole, and makes ready for its data.
    #[inline]
    fn unit(&mut self, core: &mut Core, layout: &Layout, pdu: Pdu, header: &[u8]) -> Result<(), Ended> {
        if self.sets_aside(layout, header)? {
            return Ok(());
        }
        let sink = self.act(core, layout, &pdu, header)?;
        if layout.data_bytes == 0 {
            return Ok(());
        }
        let at = match pdu {
            Pdu::H2cData(data) => data.offset,
            _ => 0,
        };
        self.transport.tcp_mut().arriving = Some(Arriving {
            sink,
            kind: layout.kind,
            pad: layout.data_at - layout.header_bytes,
            at,
            left: layout.data_bytes,
            running: 0,
            digest_left: layout.data_digest_bytes,
            digest: [0; 4],
        });
        Ok(())
    }

    /// Takes data, and their digest, out of the receive buffer. Returns the bytes that are left in the buffer.
    fn more_data<'a>(&mut self, core: &mut Core, bytes: &'a [u8]) -> Result<&'a [u8], Ended> {
        let tcp = self.transport.tcp_mut();
        let Some(arriving) = &mut tcp.arriving else { return Ok(bytes) };
        let (padding, bytes) = bytes.split_at(bytes.len().min(arriving.pad as usize));
        arriving.pad -= padding.len() as u32;
        let (data, bytes) = bytes.split_at(bytes.len().min(arriving.left as usize));
        match arriving.sink {
            Sink::Nothing => {}
            Sink::Admin(most) => {
                let room = (most as usize).saturating_sub(tcp.admin_data.len()).min(data.len());
                tcp.admin_data.try_reserve_exact(room).map_err(|_| Ended::Gone(Cause::NO_MEMORY))?;
                tcp.admin_data.extend_from_slice(&data[..room]);
            }
            Sink::Command(index) => {
                if let Some(buffer) = self.slots.get(index).and_then(|slot| slot.buffer.as_mut()) {
                    buffer.as_mut_slice()[arriving.at as usize..][..data.len()].copy_from_slice(data);
                }
            }
        }
        if tcp.receiver.agreement.data_digest && arriving.kind != PduType::H2cTermReq {
            arriving.running = digest::extend(arriving.running, data);
        }
        arriving.at += data.len() as u32;
        arriving.left -= data.len() as u32;
        tcp.transfer_progress.moved(data.len() as u64);
        let (tail, bytes) = match arriving.left {
            0 => bytes.split_at(bytes.len().min(arriving.digest_left as usize)),
            _ => (&bytes[..0], bytes),
        };
        for &byte in tail {
            arriving.digest[4 - arriving.digest_left as usize] = byte;
            arriving.digest_left -= 1;
        }
        if arriving.pad == 0 && arriving.left == 0 && arriving.digest_left == 0 {
            self.data_over(core)?;
        }
        Ok(bytes)
    }

    /// Ends the arrival of a unit's data: the data and their digest are here.
    fn data_over(&mut self, core: &mut Core) -> Result<(), Ended> {
        let Some(arriving) = self.transport.tcp_mut().arriving.take() else { return Ok(()) };
        let is_intact = !self.transport.tcp_mut().receiver.agreement.data_digest
            || u32::from_le_bytes(arriving.digest) == arriving.running;
        match arriving.sink {
            Sink::Nothing => {}
            Sink::Admin(_) => {
                let data = std::mem::take(&mut self.transport.tcp_mut().admin_data);
                if let Some(command) = self.transport.tcp_mut().admin_command.take() {
                    match is_intact {
                        true => self.carry_out(core, &command, &data),
                        false => self.respond(core, command.cid, Status::TRANSIENT_TRANSPORT_ERROR, 0),
                    }
                }
            }
            Sink::Command(index) if arriving.kind == PduType::CapsuleCmd => {
                self.capsule_data_over(core, index, is_intact);
            }
            Sink::Command(index) => self.host_data_over(core, index, is_intact),
        }
        Ok(())
    }
}
