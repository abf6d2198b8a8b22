//! The wire of NVMe over RDMA: bytes as the specification draws them, round trips, and any bytes at all.

#[path = "../../../fuzz/targets/rdma.rs"]
mod targets;

use nvme::spec::rdma::{ConnectAccept, ConnectReject, ConnectRequest, KeyedSgl, RdmaAddress, RdmaData, Reject};
use nvme::spec::{Command, Sgl, Status};
use proptest::prelude::*;

#[test]
fn a_connection_begins_with_its_private_data() {
    let request = ConnectRequest { recfmt: 0, qid: 3, hrqsize: 128, hsqsize: 127, cntlid: 0x1234 };
    let mut golden = [0; 32];
    golden[..10].copy_from_slice(&[0, 0, 3, 0, 128, 0, 127, 0, 0x34, 0x12]);
    assert_eq!(request.write(), golden);
    assert_eq!((ConnectRequest::of(&golden), request.send_entries()), (Ok(request), 128));
    // InfiniBand pads private data to the 56 bytes that an IP-addressed request has for its user.
    assert_eq!(ConnectRequest::of(&[&golden[..], &[0xee; 24]].concat()), Ok(request));

    let accept = ConnectAccept { recfmt: 0, crqsize: 0x0201 };
    assert_eq!(accept.write()[..6], [0, 0, 1, 2, 0, 0]);
    assert_eq!(ConnectAccept::of(&accept.write()), Some(accept));
}

#[test]
fn what_is_no_request_is_refused_with_its_reason() {
    let request = ConnectRequest { hsqsize: 31, hrqsize: 32, ..ConnectRequest::default() };
    assert_eq!(ConnectRequest::of(&[]), Err(Reject::LENGTH));
    assert_eq!(ConnectRequest::of(&request.write()[..31]), Err(Reject::LENGTH));
    assert_eq!(ConnectRequest::of(&ConnectRequest { recfmt: 1, ..request }.write()), Err(Reject::RECFMT));
    assert_eq!(ConnectAccept::of(&[0; 31]), None);
    assert_eq!(ConnectAccept::of(&ConnectAccept { recfmt: 256, crqsize: 1 }.write()), None);

    // The numbers as Linux' host and target know them.
    let reasons = [
        (Reject::LENGTH, 1),
        (Reject::RECFMT, 2),
        (Reject::QID, 3),
        (Reject::HSQSIZE, 4),
        (Reject::HRQSIZE, 5),
        (Reject::NO_RESOURCES, 6),
        (Reject::IRD, 7),
        (Reject::ORD, 8),
        (Reject::CNTLID, 9),
    ];
    for (reject, number) in reasons {
        assert_eq!(reject.private_data(), [0, 0, number, 0]);
        assert_eq!(ConnectReject::of(&[0, 0, number, 0, 7, 7]), Some(reject));
        assert_ne!(reject.name(), Reject(99).name());
    }
    assert_eq!((ConnectReject::of(&[0, 0, 1]), ConnectReject::of(&[1, 0, 1, 0])), (None, None));
}

#[test]
fn a_command_names_memory_of_its_host() {
    let range = KeyedSgl { address: 0x1122_3344_5566_7788, length: 0x02_0304, key: 0xa1b2_c3d4, invalidate: true };
    let command = Command { sgl: range.descriptor(), ..Command::blocks(2, 1, 0, 8) };
    let bytes = command.write();
    assert_eq!(bytes[24..32], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    assert_eq!(bytes[32..40], [0x04, 0x03, 0x02, 0xd4, 0xc3, 0xb2, 0xa1, 0x4f]);
    assert_eq!(RdmaData::of(&Command::read(&bytes).sgl), Ok(RdmaData::Remote(range)));
    let kept = KeyedSgl { invalidate: false, ..range };
    assert_eq!(kept.descriptor().id, 0x40);
    assert_eq!(RdmaData::of(&kept.descriptor()), Ok(RdmaData::Remote(kept)));
    assert_eq!(RdmaData::of(&Sgl::in_capsule(512)), Ok(RdmaData::InCapsule { offset: 0, length: 512 }));
}

#[test]
fn ranges_end_with_the_address_space_and_other_descriptors_do_not_exist() {
    let last = KeyedSgl { address: u64::MAX - 4095, length: 4096, key: 1, invalidate: false };
    assert_eq!(KeyedSgl::of(&last.descriptor()), Ok(last));
    let beyond = KeyedSgl { address: u64::MAX - 4094, ..last };
    assert_eq!(KeyedSgl::of(&beyond.descriptor()), Err(Status::DATA_SGL_LENGTH_INVALID));
    let nothing = KeyedSgl { address: u64::MAX, length: 0, key: 0, invalidate: false };
    assert_eq!(KeyedSgl::of(&nothing.descriptor()), Ok(nothing));
    // TCP's descriptor, a plain address, segments, and keys with other subtypes.
    for id in [0x5a, 0x00, 0x20, 0x30, 0x41, 0x4a, 0x50] {
        let sgl = Sgl { id, length: 512, ..Sgl::default() };
        assert_eq!(RdmaData::of(&sgl), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID), "{id:#x}");
    }
    // A descriptor with a key does not exist over TCP.
    assert_eq!(last.descriptor().data(), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
}

#[test]
fn discovery_tells_how_to_reach_a_target() {
    let address = RdmaAddress {
        qptype: RdmaAddress::RELIABLE_CONNECTED,
        prtype: RdmaAddress::ROCE_V2,
        cms: RdmaAddress::RDMA_CM,
        pkey: 0xffff,
    };
    assert_eq!(address.write()[..12], [1, 4, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    assert_eq!(RdmaAddress::read(&address.write()), address);
}

proptest! {
    #[test]
    fn descriptors_read_back_as_they_were_written(
        (address, length, key) in (any::<u64>(), 0..=KeyedSgl::MAX_BYTES, any::<u32>()),
        invalidate in any::<bool>(),
    ) {
        let address = address.min(u64::MAX - u64::from(length));
        let range = KeyedSgl { address, length, key, invalidate };
        prop_assert_eq!(KeyedSgl::of(&Sgl::read(&range.descriptor().write())), Ok(range));
    }

    #[test]
    fn any_bytes_are_private_data_and_descriptors_or_are_refused(
        data in proptest::collection::vec(any::<u8>(), 0..80),
        id in prop_oneof![Just(0x40u8), Just(0x4f), Just(1), any::<u8>()],
        is_known in any::<bool>(),
    ) {
        let mut data = data;
        targets::rdma(&data);
        if is_known && data.len() >= 16 {
            (data[0], data[1], data[15]) = (0, 0, id);
            targets::rdma(&data);
        }
    }
}
