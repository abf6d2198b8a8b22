//! The units of a host: acts on each of them in the phase of its connection.

use nvme::pdu::{Fault, H2cData, IcReq, Layout, Pdu, PduType};
use nvme::spec::Command;

use crate::connection::{Breach, Connection, Ended, Phase};
use crate::core::Core;
use crate::slot::Stage;
use crate::traces::Cause;
use crate::transport::Sink;

impl Connection {
    /// Acts on the header of a unit. Returns the place that the unit's data go to.
    ///
    /// # Errors
    /// The peer has gone, or the unit breaks the protocol.
    #[inline]
    pub(super) fn act(&mut self, core: &mut Core, layout: &Layout, pdu: &Pdu, header: &[u8]) -> Result<Sink, Ended> {
        let sink = match (*pdu, self.phase) {
            (Pdu::CapsuleCmd(command), Phase::Ready | Phase::Connect) => self.command(core, command, layout),
            (Pdu::H2cData(data), Phase::Ready | Phase::Connect) => self.host_data(core, &data),
            (Pdu::IcReq(request), Phase::Handshake) => self.handshake(core, &request),
            (Pdu::TermReq { .. }, _) => return Err(Ended::Gone(Cause::Accused)),
            (Pdu::IcReq(_), _) => Err(Fault::sequence(layout.kind, "the handshake is over")),
            (_, Phase::Handshake) => Err(Fault::sequence(layout.kind, "a connection begins with ICReq")),
            _ => Err(Fault::sequence(layout.kind, "not now")),
        };
        sink.map_err(|fault| self.fault_at(fault, header))
    }

    fn handshake(&mut self, core: &mut Core, request: &IcReq) -> Result<Sink, Fault> {
        let (response, agreement) = request.granted(self.max_io_bytes)?;
        self.transport.tcp_mut().out.bytes(&response.pdu());
        self.transport.tcp_mut().receiver.agreement = agreement;
        self.phase = Phase::Connect;
        self.opened_ns = core.now_ns;
        self.mark_dirty(core);
        Ok(Sink::Nothing)
    }

    #[inline]
    fn command(&mut self, core: &mut Core, command: Command, layout: &Layout) -> Result<Sink, Fault> {
        let sink = self.capsule(core, &command, layout.data_bytes).map_err(|breach| match breach {
            Breach::TooManyCommands { outstanding } => {
                let why = "more than the queue has entries";
                Fault::limit(PduType::CapsuleCmd, "outstanding commands", outstanding.into(), why)
            }
            Breach::TooMuchData { bytes } => {
                let why = "admin commands have 8192 bytes at most";
                Fault::field(PduType::CapsuleCmd, "PLEN", 4, bytes.into(), why)
            }
            Breach::CapsuleTooShort { .. } | Breach::CapsuleTooLong | Breach::IdentifierInUse { .. } => {
                unreachable!("breaches of messages, not of a stream")
            }
        })?;
        if let Sink::Admin(_) = sink {
            self.transport.tcp_mut().admin_command = Some(Box::new(command));
        }
        Ok(sink)
    }

    /// Takes data that answer an R2T: everything about the data must be as the R2T asked for.
    #[inline]
    fn host_data(&mut self, core: &mut Core, data: &H2cData) -> Result<Sink, Fault> {
        if self.phase != Phase::Ready {
            return Err(Fault::sequence(PduType::H2cData, "nothing was asked for: the queue is not connected"));
        }
        let Some(slot) = self.slots.get(data.ttag).filter(|slot| slot.stage == Stage::Data) else {
            let why = "no transfer of this tag is open";
            return Err(Fault::field(PduType::H2cData, "TTAG", 10, data.ttag.into(), why));
        };
        if slot.cid != data.cid {
            return Err(Fault::field(
                PduType::H2cData,
                "CCCID",
                8,
                data.cid.into(),
                "not the command that the tag is of",
            ));
        }
        if data.offset != slot.received {
            let why = "data must come in order, without gaps";
            return Err(Fault::field(PduType::H2cData, "DATAO", 12, data.offset.into(), why));
        }
        let end = u64::from(data.offset) + u64::from(data.length);
        if end > u64::from(slot.data_len) {
            return Err(Fault::out_of_range(PduType::H2cData, "DATAL", data.length.into(), "more than was asked for"));
        }
        if data.last != (end == u64::from(slot.data_len)) {
            let why = "set on the last unit of a transfer and on no other";
            return Err(Fault::field(PduType::H2cData, "LAST_PDU", 1, data.last.into(), why));
        }
        slot.received = end as u32;
        slot.progress_ns = core.now_ns;
        Ok(Sink::Command(data.ttag))
    }
}
