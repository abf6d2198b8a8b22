//! Promises that hold for any bytes that a peer sends.

use nvme::pdu::{Agreement, COMMON_BYTES, End, FatalStatus, Limits, MAX_HEADER_BYTES, Next, Pdu, Receiver};
use nvme::spec::ana::{AnaDescriptor, AnaHeader, AnaState};
use nvme::spec::fabrics::{Authentication, Connect, ConnectData, PropertyAccess};
use nvme::spec::log::{DiscoveryEntry, DiscoveryHeader, Effects, Smart};
use nvme::spec::{
    Command, Completion, GetLogPage, Identify, IdentifyController, IdentifyNamespace, NamespaceIds, Nqn, Range,
    controller_list, listed_controllers,
};

const LIMITS: Limits = Limits { capsule: 8192, data: 1 << 17 };

/// A stream, its first byte saying from whom and with which digests: units within the limits that are written back as
/// they came, or a fault that can be told.
pub fn pdu(data: &[u8]) {
    let Some((&mode, mut bytes)) = data.split_first() else { return };
    let from = if mode & 1 == 0 { End::Host } else { End::Controller };
    let to = if mode & 1 == 0 { End::Controller } else { End::Host };
    let agreement = Agreement {
        header_digest: mode & 2 != 0,
        data_digest: mode & 4 != 0,
        hpda: mode >> 3 & 1,
        cpda: mode >> 4 & 1,
    };
    let receiver = Receiver { agreement, ..Receiver::new(from, LIMITS) };
    loop {
        match receiver.next(bytes) {
            Ok(Next::Need(need)) => {
                assert!(need > bytes.len() && (COMMON_BYTES..=MAX_HEADER_BYTES + 4).contains(&need));
                return;
            }
            Ok(Next::Unit(layout, pdu)) => {
                assert!(layout.header_bytes <= layout.data_at && layout.data_bytes <= LIMITS.data);
                write_back(&pdu, layout.data_bytes, &agreement, &bytes[..layout.header_bytes as usize]);
                let Some(rest) = bytes.get(layout.total() as usize..) else { return };
                bytes = rest;
            }
            Err(fault) => {
                assert_eq!(fault.to_string().lines().count(), 1);
                let (told, len) = fault.term_req(to, bytes).pdu();
                let peer = Receiver::new(to, LIMITS);
                let Ok(Next::Unit(layout, Pdu::TermReq { status, info })) = peer.next(&told[..len]) else {
                    panic!("{fault} cannot be told");
                };
                assert_eq!((status, info, layout.total() as usize), (fault.status as u16, fault.info, len));
                assert_ne!(FatalStatus::name(status), "unknown error");
                return;
            }
        }
    }
}

fn write_back(pdu: &Pdu, data_bytes: u32, agreement: &Agreement, header: &[u8]) {
    let mut out = [0; MAX_HEADER_BYTES];
    let written = match pdu {
        Pdu::CapsuleCmd(command) => nvme::pdu::command(command, data_bytes, agreement, &mut out),
        Pdu::CapsuleResp(completion) => nvme::pdu::response(completion, agreement, &mut out),
        Pdu::H2cData(data) => data.write(agreement, &mut out),
        Pdu::C2hData(data) => data.write(agreement, &mut out),
        Pdu::R2t(r2t) => r2t.write(agreement, &mut out),
        Pdu::IcReq(_) | Pdu::IcResp(_) | Pdu::TermReq { .. } => return,
    };
    // Beyond the common header: reserved fields, which are dropped, excepted.
    if let Pdu::CapsuleCmd(command) = pdu {
        assert_eq!(*command, Command::read(header[8..72].try_into().expect("64 bytes")));
        assert_eq!((written >= 72, &out[8..16]), (true, &header[8..16]));
    } else {
        assert_eq!(out[8..10], header[8..10]);
    }
}

/// Structures of commands and their data: whatever the bytes, something comes out.
pub fn structures(data: &[u8]) {
    fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
        std::array::from_fn(|index| data.get(index).copied().unwrap_or(0))
    }
    let command = Command::read(&padded(data));
    let _ = (GetLogPage::of(&command), Identify::of(&command), Connect::of(&command), PropertyAccess::of(&command));
    let _ = (Authentication::of(&command), command.sgl.data(), command.name(true), command.name(false));
    assert!((1..=1 << 16).contains(&command.block_count()) && (1..=Range::MAX).contains(&Range::count(&command)));
    assert!(Range::all(data).count() == data.len() / 16);
    let completion = Completion::read(&padded(data));
    assert_eq!(completion.status.is_ok(), completion.status.errno() == 0);
    let connect = ConnectData::read(&padded(data));
    if let Ok(name) = connect.subsystem() {
        assert_eq!(Nqn::from_field(&name.field()).expect("it was one"), name);
        let _ = name.as_str().parse::<Nqn>();
    }
    let _ = IdentifyNamespace::read(&padded(data)).block_bytes();
    let _ = IdentifyController::read(&padded(data)).sn.to_string();
    let ids = NamespaceIds::read(&padded(data));
    assert_eq!(NamespaceIds::read(&ids.write()), ids);
    let _ = (DiscoveryHeader::read(&padded(data)), DiscoveryEntry::read(&padded(data)).traddr.to_string());
    assert_eq!(Effects::read(&padded(data)).write()[..2048], padded::<4096>(data)[..2048]);
    let controllers = listed_controllers(&padded(data));
    let is_whole =
        |list: &Vec<u16>| listed_controllers(&controller_list(list.iter().copied(), 0)).as_ref() == Some(list);
    assert!(controllers.as_ref().is_none_or(is_whole));
    let _ = Smart::read(&padded(data));
    let _ = (AnaHeader::read(&padded(data)), AnaState::of(AnaDescriptor::read(&padded(data)).state));
}
