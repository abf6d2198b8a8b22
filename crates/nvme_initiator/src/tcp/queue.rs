//! One queue of a controller: commands go out, responses and data come in. No socket, no clock.

use std::io::{self, IoSliceMut, Read, Write};

use nvme::pdu::{
    self, Agreement, C2hData, End, Fault, H2cData, Layout, Limits, Next, Pdu, PduType, R2t, Receiver, digest,
};
use nvme::spec::{Command, Completion, Sgl, Status};

use super::outgoing::Outgoing;
use crate::link::{Arrived, Broken, Buffers, Done, Transfer};

/// Bytes that one read takes at most, beside data that go straight to their place.
const INPUT_BYTES: usize = 256 << 10;
/// Data of this many bytes go straight to their place, and no more than a header is read behind them.
const LARGE_BYTES: usize = 16 << 10;
const BEHIND_LARGE_BYTES: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    tag: u32,
    /// The command as given, for issuing it again on another queue.
    command: Command,
    transfer: Transfer,
    /// The place of the command's data in the op's memory: the offset, and the length in bytes.
    at: u32,
    len: u32,
    way: Way,
    /// Bytes received, or granted by R2Ts.
    moved: u32,
    /// A data digest did not match: the command has failed, whatever its response says.
    damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    None,
    /// The data travel in the command capsule.
    InCapsule,
    Out,
    In,
}

/// Data that are being received.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    cid: u16,
    tag: u32,
    /// The offset in the op's memory at which the next byte goes.
    at: usize,
    left: usize,
    success: bool,
    /// The digest of the data so far, where digests are used.
    digest: Option<u32>,
}

/// The host's end of one queue, after the handshake.
#[derive(Debug)]
pub struct Queue {
    receiver: Receiver,
    agreement: Agreement,
    maxh2cdata: u32,
    /// Bytes of data that fit into a command's capsule.
    capsule_bytes: u32,
    /// The outstanding commands by CID.
    commands: Box<[Option<Outstanding>]>,
    free: Vec<u16>,
    out: Outgoing,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    arriving: Option<Arriving>,
    /// True if the last data were large: the next are expected to be.
    expect_large: bool,
}

impl Queue {
    /// A queue for `depth` commands (1 to 65535) at once; `maxh2cdata` as in the ICResp.
    pub fn new(depth: u32, agreement: Agreement, maxh2cdata: u32, capsule_bytes: u32) -> Queue {
        let depth = depth.clamp(1, 65_535) as u16;
        let limits = Limits { capsule: 0, data: u32::MAX };
        Queue {
            receiver: Receiver { agreement, ..Receiver::new(End::Controller, limits) },
            agreement,
            maxh2cdata,
            capsule_bytes,
            commands: vec![None; usize::from(depth)].into(),
            free: (0..depth).rev().collect(),
            out: Outgoing::default(),
            input: vec![0; INPUT_BYTES].into(),
            start: 0,
            end: 0,
            arriving: None,
            expect_large: false,
        }
    }

    /// Sets how many bytes of data fit into a capsule of an I/O command: Identify's IOCCSZ tells.
    pub fn set_capsule_bytes(&mut self, bytes: u32) {
        self.capsule_bytes = bytes;
    }

    /// The result of the handshake.
    pub fn agreement(&self) -> Agreement {
        self.agreement
    }

    /// The number of commands that the queue takes at once.
    pub fn depth(&self) -> usize {
        self.commands.len()
    }

    /// Commands that have not ended.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    /// The commands that have not ended, in no order, as they were given to [`Queue::issue`]: of a broken connection,
    /// nobody knows whether they have been carried out.
    pub fn outstanding_commands(&self) -> impl Iterator<Item = (u32, Command, Transfer)> + '_ {
        self.commands.iter().flatten().map(|command| (command.tag, command.command, command.transfer))
    }

    /// True while something is still to be sent.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        !self.out.is_empty()
    }

    /// Queues a command for [`Queue::send`], and sets its CID and SGL; false if as many commands are outstanding as the
    /// queue can have.
    #[inline]
    pub fn issue(&mut self, tag: u32, mut command: Command, transfer: Transfer, buffers: &impl Buffers) -> bool {
        let Some(cid) = self.free.pop() else { return false };
        let (way, at, len) = match transfer {
            Transfer::None | Transfer::Out { len: 0, .. } | Transfer::In { len: 0, .. } => (Way::None, 0, 0),
            Transfer::In { at, len } => (Way::In, at, len),
            // Fabrics commands may have 8192 bytes in their capsule on any queue; their data are a fraction of that.
            Transfer::Out { at, len } if len <= self.capsule_bytes || command.is_fabrics() => (Way::InCapsule, at, len),
            Transfer::Out { at, len } => (Way::Out, at, len),
        };
        let in_capsule = if way == Way::InCapsule { len } else { 0 };
        command.cid = cid;
        command.sgl = if in_capsule > 0 { Sgl::in_capsule(len) } else { Sgl::transport(len) };
        self.commands[usize::from(cid)] =
            Some(Outstanding { tag, command, transfer, at, len, way, moved: 0, damaged: false });
        let agreement = self.agreement;
        self.out.bytes(pdu::MAX_HEADER_BYTES, |out| pdu::command(&command, in_capsule, &agreement, out));
        if in_capsule > 0 {
            self.send_data(tag, at as usize, len as usize, buffers);
        }
        true
    }

    /// Data behind a header, and their digest.
    fn send_data(&mut self, tag: u32, at: usize, len: usize, buffers: &impl Buffers) {
        self.out.data(tag, at, len);
        if self.agreement.data_digest {
            let value = digest::of(&buffers.bytes(tag)[at..at + len]).to_le_bytes();
            self.out.bytes(digest::BYTES, |out| {
                out.copy_from_slice(&value);
                digest::BYTES
            });
        }
    }

    /// Sends the queued output, as far as the sink takes it. Returns true if that was all.
    ///
    /// # Errors
    /// The errors of the sink.
    #[inline]
    pub fn send(&mut self, sink: &mut impl Write, buffers: &impl Buffers) -> Result<bool, Broken> {
        Ok(self.out.send(sink, buffers)?)
    }

    /// Makes one read and takes in what came: ended commands are appended to `done`.
    ///
    /// # Errors
    /// The connection is of no use any more. Commands that ended before that are in `done`.
    pub fn receive(
        &mut self,
        source: &mut impl Read,
        buffers: &mut impl Buffers,
        done: &mut Vec<Done>,
    ) -> Result<Arrived, Broken> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            // The rest is the beginning of a header or digest: data have gone to their place.
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let window = if self.expect_large { BEHIND_LARGE_BYTES } else { INPUT_BYTES };
        let room = window.min(INPUT_BYTES - self.end);
        let input = &mut self.input[self.end..self.end + room];
        let (direct, input_len) = (self.arriving.filter(|_| self.start == self.end), input.len());
        let read = loop {
            let read = match direct {
                Some(Arriving { tag, at, left, .. }) if left > 0 => {
                    let place = &mut buffers.bytes_mut(tag)[at..at + left];
                    source.read_vectored(&mut [IoSliceMut::new(place), IoSliceMut::new(input)])
                }
                _ => source.read(input),
            };
            match read {
                Ok(0) => return Err(Broken::Closed),
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Arrived::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        };
        let mut behind = read;
        let mut wanted = input_len;
        if let (Some(_), Some(arriving)) = (direct, &mut self.arriving) {
            let placed = arriving.left.min(read);
            wanted += arriving.left;
            if let Some(sum) = &mut arriving.digest {
                *sum = digest::extend(*sum, &buffers.bytes(arriving.tag)[arriving.at..arriving.at + placed]);
            }
            (arriving.at, arriving.left) = (arriving.at + placed, arriving.left - placed);
            behind -= placed;
        }
        self.end += behind;
        self.take_in(buffers, done)?;
        Ok(if read == wanted { Arrived::Full } else { Arrived::Something })
    }

    /// Handles the bytes that have been received.
    fn take_in(&mut self, buffers: &mut impl Buffers, done: &mut Vec<Done>) -> Result<(), Broken> {
        loop {
            if let Some(mut arriving) = self.arriving {
                let there = arriving.left.min(self.end - self.start);
                if there > 0 {
                    let bytes = &self.input[self.start..self.start + there];
                    if buffers.keeps_data() {
                        buffers.bytes_mut(arriving.tag)[arriving.at..arriving.at + there].copy_from_slice(bytes);
                    }
                    arriving.digest = arriving.digest.map(|sum| digest::extend(sum, bytes));
                    (arriving.at, arriving.left) = (arriving.at + there, arriving.left - there);
                    self.start += there;
                }
                self.arriving = Some(arriving);
                if arriving.left > 0 {
                    return Ok(());
                }
                if let Some(sum) = arriving.digest {
                    let Some(came) = self.input[self.start..self.end].first_chunk() else { return Ok(()) };
                    let damaged = sum != u32::from_le_bytes(*came);
                    self.start += digest::BYTES;
                    if let Some(command) = &mut self.commands[usize::from(arriving.cid)] {
                        command.damaged |= damaged;
                    }
                }
                self.arriving = None;
                if arriving.success {
                    self.complete(&Completion { cid: arriving.cid, ..Completion::default() }, buffers, done);
                }
            }
            match self.receiver.next(&self.input[self.start..self.end])? {
                // Padding is not looked at, but has to be there before what follows it.
                Next::Unit(layout, _) if layout.data_at as usize > self.end - self.start => return Ok(()),
                Next::Unit(layout, pdu) => {
                    self.start += layout.data_at as usize;
                    self.handle(&layout, pdu, buffers, done)?;
                }
                Next::Need(_) => return Ok(()),
            }
        }
    }

    fn handle(
        &mut self,
        layout: &Layout,
        pdu: Pdu,
        buffers: &mut impl Buffers,
        done: &mut Vec<Done>,
    ) -> Result<(), Broken> {
        match pdu {
            Pdu::C2hData(data) => self.arrive(layout, data)?,
            Pdu::CapsuleResp(completion) => {
                if self.outstanding_command(completion.cid).is_none() {
                    let why = "no such command is outstanding";
                    return Err(Fault::field(PduType::CapsuleResp, "CID", 20, completion.cid.into(), why).into());
                }
                self.complete(&completion, buffers, done);
            }
            Pdu::R2t(r2t) => self.grant(r2t, buffers)?,
            Pdu::TermReq { status, info } => return Err(Broken::Terminated { status, info }),
            Pdu::IcResp(_) => return Err(Fault::sequence(PduType::IcResp, "the handshake is over").into()),
            Pdu::IcReq(_) | Pdu::CapsuleCmd(_) | Pdu::H2cData(_) => {
                unreachable!("units of hosts are refused by the receiver")
            }
        }
        Ok(())
    }

    fn outstanding_command(&mut self, cid: u16) -> Option<&mut Outstanding> {
        self.commands.get_mut(usize::from(cid)).and_then(Option::as_mut)
    }

    #[inline]
    fn arrive(&mut self, layout: &Layout, data: C2hData) -> Result<(), Fault> {
        const KIND: PduType = PduType::C2hData;
        let with_digest = layout.data_digest_bytes > 0;
        let Some(command) = self.outstanding_command(data.cid) else {
            return Err(Fault::field(KIND, "CCCID", 8, data.cid.into(), "no such command is outstanding"));
        };
        if command.way != Way::In {
            return Err(Fault::field(KIND, "CCCID", 8, data.cid.into(), "the command reads nothing"));
        }
        if data.offset != command.moved {
            return Err(Fault::out_of_range(
                KIND,
                "DATAO",
                data.offset.into(),
                "data must come in order, without gaps",
            ));
        }
        if data.length > command.len - command.moved {
            return Err(Fault::out_of_range(KIND, "DATAL", data.length.into(), "more data than the command asked for"));
        }
        command.moved += data.length;
        let (tag, at) = (command.tag, (command.at + data.offset) as usize);
        let (cid, left, success) = (data.cid, data.length as usize, data.success);
        self.expect_large = left >= LARGE_BYTES;
        self.arriving = Some(Arriving { cid, tag, at, left, success, digest: with_digest.then_some(0) });
        Ok(())
    }

    fn grant(&mut self, r2t: R2t, buffers: &impl Buffers) -> Result<(), Fault> {
        const KIND: PduType = PduType::R2t;
        let Some(command) = self.outstanding_command(r2t.cid) else {
            return Err(Fault::field(KIND, "CCCID", 8, r2t.cid.into(), "no such command is outstanding"));
        };
        if command.way != Way::Out {
            return Err(Fault::field(KIND, "CCCID", 8, r2t.cid.into(), "the command has no data to send"));
        }
        if r2t.offset != command.moved {
            return Err(Fault::out_of_range(KIND, "R2TO", r2t.offset.into(), "data are asked for in order"));
        }
        if r2t.length > command.len - command.moved {
            return Err(Fault::out_of_range(KIND, "R2TL", r2t.length.into(), "more data than the command has"));
        }
        command.moved += r2t.length;
        let (tag, first) = (command.tag, command.at);
        let (mut offset, end) = (r2t.offset, r2t.offset + r2t.length);
        while offset < end {
            let length = (end - offset).min(self.maxh2cdata);
            let last = offset + length == end;
            let data = H2cData { cid: r2t.cid, ttag: r2t.ttag, offset, length, last };
            let agreement = self.agreement;
            self.out.bytes(pdu::MAX_HEADER_BYTES, |out| data.write(&agreement, out));
            self.send_data(tag, (first + offset) as usize, length as usize, buffers);
            offset += length;
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, completion: &Completion, buffers: &impl Buffers, done: &mut Vec<Done>) {
        let cid = completion.cid;
        let Some(command) = self.commands[usize::from(cid)].take() else { return };
        self.free.push(cid);
        let Outstanding { tag, command, transfer, at, len, way, moved, damaged } = command;
        // A command that is complete without all of its data has not succeeded, whatever the controller says.
        let mut short = matches!(way, Way::In | Way::Out) && moved < len;
        if matches!(way, Way::Out | Way::InCapsule) && !self.out.is_empty() {
            let range = at as usize..(at + len) as usize;
            short |= self.out.keep(tag, range, buffers);
        }
        let status = match completion.status {
            status if status.is_ok() && (damaged || short) => Status::TRANSIENT_TRANSPORT_ERROR,
            status => status,
        };
        done.push(Done::new(status, completion.result, (tag, command, transfer)));
    }

    /// Tells the controller why the connection ends, if the sink takes it.
    pub fn terminate(&self, fault: &Fault, sink: &mut impl Write) {
        let header = &self.input[self.start.min(self.end)..self.end];
        let (bytes, len) = fault.term_req(End::Host, header).pdu();
        // The connection ends either way.
        let _ = sink.write(&bytes[..len]);
    }
}
