//! The codec: bytes as the specifications draw them, round trips, and any bytes at all.

#[path = "../../../fuzz/targets/nvme.rs"]
mod targets;

use nvme::pdu::{
    self, Agreement, C2hData, End, FatalStatus, Fault, H2cData, IcReq, IcResp, Layout, Limits, Next, Pdu, R2t, Receiver,
};
use nvme::spec::{
    AsyncEvent, Command, Completion, Data, GetLogPage, Identify, IdentifyController, IdentifyNamespace, LbaFormat,
    NamespaceIds, Range, Sgl, Status, Text, cns, fabrics, feature, log, namespace_list, opcode, property,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits { capsule: 8192, data: 1 << 17 };
const DIGESTS: Agreement = Agreement { header_digest: true, data_digest: true, hpda: 0, cpda: 0 };

fn receiver(from: End, agreement: Agreement) -> Receiver {
    Receiver { agreement, ..Receiver::new(from, LIMITS) }
}

fn unit(from: End, agreement: Agreement, bytes: &[u8]) -> (Layout, Pdu) {
    match receiver(from, agreement).next(bytes) {
        Ok(Next::Unit(layout, pdu)) => (layout, pdu),
        other => panic!("{other:?}"),
    }
}

fn fault(from: End, agreement: Agreement, bytes: &[u8]) -> Fault {
    match receiver(from, agreement).next(bytes) {
        Err(fault) => fault,
        other => panic!("{other:?}"),
    }
}

/// Bytes written in hexadecimal, with spaces where they help; `..N` zeros up to byte N.
fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        match word.strip_prefix("..") {
            Some(end) => bytes.resize(end.parse().unwrap(), 0),
            None => {
                bytes.extend((0..word.len()).step_by(2).map(|at| u8::from_str_radix(&word[at..at + 2], 16).unwrap()))
            }
        }
    }
    bytes
}

mod golden {
    use super::*;

    #[test]
    fn the_digest_is_that_of_iscsi() {
        // RFC 3720, appendix B.4.
        assert_eq!(pdu::digest::of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(pdu::digest::of(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(pdu::digest::of(&ascending), 0x46dd_794e);
        assert_eq!(pdu::digest::extend(pdu::digest::of(&ascending[..5]), &ascending[5..]), 0x46dd_794e);
        assert_eq!(pdu::digest::extend(0, &ascending), 0x46dd_794e);
    }

    #[test]
    fn the_handshake() {
        let asked = IcReq { maxr2t: 3, hpda: 1, ..IcReq::asking(true, false) };
        assert_eq!(asked.pdu()[..], hex("00 00 80 00 80000000 0000 01 01 03000000 ..128"));
        let (granted, agreement) = asked.granted(0x20000).unwrap();
        assert_eq!(granted.pdu()[..], hex("01 00 80 00 80000000 0000 00 01 00000200 ..128"));
        assert_eq!(agreement, Agreement { header_digest: true, data_digest: false, hpda: 1, cpda: 0 });
        assert_eq!(unit(End::Host, Agreement::default(), &asked.pdu()).1, Pdu::IcReq(asked));
        assert_eq!(unit(End::Controller, Agreement::default(), &granted.pdu()).1, Pdu::IcResp(granted));
        assert_eq!(granted.agreement(&asked), Ok(agreement));
    }

    #[test]
    fn a_read_its_data_and_its_response() {
        let mut read = Command { cid: 0x1234, ..Command::blocks(opcode::io::READ, 1, 0x1_0000_0002, 8) };
        read.sgl = Sgl::transport(4096);
        let mut bytes = [0; 128];
        let len = pdu::command(&read, 0, &Agreement::default(), &mut bytes);
        let expected = hex("04 00 48 00 48000000 \
             02 40 3412 01000000 ..32 0000000000000000 00100000 000000 5a \
             02000000 01000000 07000000 00000000 00000000 00000000");
        assert_eq!(bytes[..len], expected);
        assert_eq!(unit(End::Host, Agreement::default(), &expected).1, Pdu::CapsuleCmd(read));
        assert_eq!((read.slba(), read.block_count()), (0x1_0000_0002, 8));

        let data = C2hData { cid: 0x1234, offset: 512, length: 3584, last: true, success: true };
        let len = data.write(&DIGESTS, &mut bytes);
        assert_eq!(bytes[..24], hex("07 0f 18 1c 200e0000 3412 0000 00020000 000e0000 00000000"));
        assert_eq!((len, bytes[24..28].to_vec()), (28, pdu::digest::of(&bytes[..24]).to_le_bytes().to_vec()));
        let (layout, pdu) = unit(End::Controller, DIGESTS, &bytes[..len]);
        assert_eq!((layout.data_at, layout.data_bytes, layout.data_digest_bytes), (28, 3584, 4));
        assert_eq!((layout.total(), pdu), (28 + 3584 + 4, Pdu::C2hData(data)));

        let status = Status::LBA_OUT_OF_RANGE.do_not_retry();
        let completion = Completion { cid: 0x1234, result: 0xa_0000_000b, sqhd: 5, sqid: 0, status };
        let len = pdu::response(&completion, &Agreement::default(), &mut bytes);
        assert_eq!(bytes[..len], hex("05 00 18 00 18000000 0b000000 0a000000 0500 0000 3412 0081"));
        assert_eq!(unit(End::Controller, Agreement::default(), &bytes[..len]).1, Pdu::CapsuleResp(completion));
    }

    #[test]
    fn a_write_in_its_capsule_and_one_after_an_r2t() {
        let mut write = Command { cid: 7, ..Command::blocks(opcode::io::WRITE, 2, 16, 1) };
        write.sgl = Sgl::in_capsule(512);
        let mut bytes = [0xee; 128];
        let aligned = Agreement { cpda: 31, ..Agreement::default() };
        assert_eq!(pdu::command(&write, 512, &aligned, &mut bytes), 128);
        assert_eq!(bytes[..8], hex("04 00 48 80 80020000"));
        assert_eq!(bytes[32..48], hex("0000000000000000 00020000 000000 01"));
        assert_eq!(bytes[72..128], [0; 56], "padding");
        let (layout, pdu) = unit(End::Host, aligned, &bytes);
        assert_eq!((layout.data_at, layout.data_bytes, pdu), (128, 512, Pdu::CapsuleCmd(write)));
        assert_eq!(write.sgl.data(), Ok(Data::InCapsule { offset: 0, length: 512 }));

        let r2t = R2t { cid: 7, ttag: 0x5678, offset: 4096, length: 8192 };
        let len = r2t.write(&Agreement::default(), &mut bytes);
        assert_eq!(bytes[..len], hex("09 00 18 00 18000000 0700 7856 00100000 00200000 00000000"));
        assert_eq!(unit(End::Controller, Agreement::default(), &bytes[..len]).1, Pdu::R2t(r2t));

        let data = H2cData { cid: 7, ttag: 0x5678, offset: 4096, length: 8192, last: true };
        let len = data.write(&Agreement::default(), &mut bytes);
        assert_eq!(bytes[..len], hex("06 04 18 18 18200000 0700 7856 00100000 00200000 00000000"));
        assert_eq!(unit(End::Host, Agreement::default(), &bytes[..len]).1, Pdu::H2cData(data));
    }

    #[test]
    fn a_connection_ends_with_what_was_wrong() {
        let header = hex("06 00 18 18 ffffffff 0700 7856 00100000 00200000 00000000");
        let fault = fault(End::Host, Agreement::default(), &header);
        assert_eq!((fault.status, fault.info), (FatalStatus::InvalidHeaderField, 4));
        let (bytes, len) = fault.term_req(End::Controller, &header).pdu();
        assert_eq!(bytes[..32], hex("03 00 18 00 30000000 0100 04000000 ..24 06001818 ffffffff"));
        assert_eq!(len, 48);
        let (layout, pdu) = unit(End::Controller, Agreement::default(), &bytes);
        assert_eq!((layout.data_at, layout.data_bytes), (24, 24));
        assert_eq!(pdu, Pdu::TermReq { status: 1, info: 4 });
        let (bytes, len) = fault.term_req(End::Host, &[9; 400]).pdu();
        assert_eq!((bytes[0], len, bytes[151]), (2, 152, 9));
    }

    #[test]
    fn fabrics_commands() {
        let connect = fabrics::Connect { recfmt: 0, qid: 3, sqsize: 127, cattr: 4, kato_ms: 5000 };
        let bytes = connect.command().write();
        assert_eq!(bytes[..8], hex("7f 40 0000 01 000000"));
        assert_eq!(bytes[24..], hex("0000000000000000 00040000 000000 01 0000 0300 7f00 04 00 88130000 ..40")[..40]);
        assert_eq!(fabrics::Connect::of(&Command::read(&bytes)), connect);
        assert!(connect.command().is_to_controller() && !fabrics::PropertyAccess::get(0, 8).is_to_controller());

        let bytes = fabrics::PropertyAccess::set(property::CC, 4, 0x46_0001).write();
        assert_eq!(bytes[..8], hex("7f 40 0000 00 000000"));
        assert_eq!(bytes[40..], hex("00000000 14000000 01004600 00000000 00000000 00000000"));
        let get = fabrics::PropertyAccess::get(property::CAP, 8);
        assert_eq!((get.fctype(), get.cdw10), (4, 1));
        assert_eq!(fabrics::PropertyAccess::of(&get).bytes, 8);

        let send = fabrics::Authentication::send(64).write();
        assert_eq!((send[4], &send[40..48]), (5, &hex("00 01 01 e9 40000000")[..]));
        for (authentication, concatenation) in [(false, false), (true, false), (true, true)] {
            let result = fabrics::Connect::accepted(9, authentication, concatenation);
            assert_eq!(fabrics::Connect::outcome(result), (9, authentication, concatenation));
        }
        let (status, result) = fabrics::Connect::invalid(true, fabrics::Connect::AT_SUBNQN);
        assert_eq!((status.bits(), result), (0x4182, 0x1_0100));
        assert_eq!(fabrics::Connect::invalid_parameter(result), (true, 256));
    }

    #[test]
    fn admin_commands_and_events() {
        let page = GetLogPage { lid: log::DISCOVERY, lsp: 0, retain: true, length: 0x50000, offset: 0x1_0000_0400 };
        let command = page.command(0);
        assert_eq!((command.cdw10, command.cdw11), (0x3fff_8070, 1));
        assert_eq!((command.cdw12, command.cdw13), (0x400, 1));
        assert_eq!(GetLogPage::of(&command), page);
        let identify = Identify { cns: cns::ACTIVE_NAMESPACES, cntid: 5, csi: 0 };
        assert_eq!((identify.command(9).cdw10, identify.command(9).nsid), (0x5_0002, 9));
        assert_eq!(Identify::of(&identify.command(9)), identify);
        assert_eq!(AsyncEvent::NAMESPACE_CHANGED.result(), 0x0004_0002);
        assert_eq!(AsyncEvent::DISCOVERY_CHANGED.result(), 0x0070_f002);
        assert_eq!(AsyncEvent::of(0x0070_f002), AsyncEvent::DISCOVERY_CHANGED);
        assert_eq!((feature::queues_value(4), feature::queues(0x0007_0003)), (0x0003_0003, 4));
        assert_eq!(property::Capabilities { queue_entries: 128, timeout_ms: 15_000 }.value(), 0x20_1e01_007f);
        assert_eq!(property::Configuration::ENABLED.0, 0x0046_0001);
        assert_eq!(property::ControllerStatus { ready: true, fatal: false, shutdown: 2 }.value(), 9);
    }

    #[test]
    fn identify_structures() {
        let controller = IdentifyController {
            sn: Text::new("S1"),
            cntlid: 0x0102,
            kas: 10,
            sgls: 0x0010_0001,
            ioccsz: 516,
            ofcs: 1,
            psd0_mp: 25,
            ..IdentifyController::default()
        };
        let bytes = controller.write();
        assert_eq!((&bytes[4..8], &bytes[78..80]), (&b"S1  "[..], &[2, 1][..]));
        assert_eq!((bytes[320], bytes[536], bytes[538], bytes[1792], bytes[1793]), (10, 1, 0x10, 4, 2));
        assert_eq!((bytes[1804], bytes[2048]), (1, 25));
        assert_eq!(IdentifyController::read(&bytes), controller);

        let mut namespace = IdentifyNamespace { nsze: 1 << 21, flbas: 1, ..IdentifyNamespace::default() };
        assert_eq!(namespace.block_bytes(), None);
        namespace.lbaf[1] = LbaFormat { lbads: 12, ..LbaFormat::default() };
        let bytes = namespace.write();
        assert_eq!((bytes[2], bytes[26], &bytes[132..136]), (0x20, 1, &[0, 0, 12, 0][..]));
        assert_eq!(IdentifyNamespace::read(&bytes).block_bytes(), Some(4096));

        let list = namespace_list([1, 2, 5, 0x100], 1);
        assert_eq!(list[..16], hex("02000000 05000000 00010000 00000000"));
        let ids = NamespaceIds { uuid: Some([0xab; 16]), eui64: Some([1; 8]), nguid: None };
        assert_eq!(ids.write()[..16], hex("01080000 0101010101010101 03100000"));
        assert_eq!(ids.write()[32..40], hex("04010000 00000000"));
        assert_eq!(NamespaceIds::read(&ids.write()), ids);
    }

    #[test]
    fn log_pages_and_ranges() {
        let smart = log::Smart { temperature: 0x0133, media_errors: 1 << 64, ..log::Smart::default() };
        assert_eq!((smart.write()[1..3].to_vec(), smart.write()[168]), (vec![0x33, 1], 1));
        let entry = log::DiscoveryEntry {
            trtype: log::DiscoveryEntry::TCP,
            adrfam: 1,
            subtype: log::DiscoveryEntry::NVM,
            cntlid: 0xffff,
            trsvcid: Text::new("4420"),
            traddr: Text::new("127.0.0.1"),
            ..log::DiscoveryEntry::default()
        };
        let bytes = entry.write();
        assert_eq!(bytes[..12], hex("03 01 02 00 0000 ffff 0000 0000"));
        assert_eq!((&bytes[32..38], &bytes[512..522]), (&b"4420  "[..], &b"127.0.0.1 "[..]));
        let mut effects = log::Effects::default();
        effects.io[1] = log::Effects::SUPPORTED | log::Effects::CHANGES_BLOCKS;
        assert_eq!(effects.write()[1024..1032], hex("00000000 03000000"));
        let range = Range { attributes: 0, blocks: 3, slba: 0x1_0000_0000 };
        assert_eq!(range.write()[..], hex("00000000 03000000 00000000 01000000"));
        assert_eq!(Range::all(&[range.write(), range.write()].concat()[..31]).collect::<Vec<_>>(), [range]);
        assert_eq!((Range::deallocate(1, 256).cdw10, Range::deallocate(1, 256).cdw11), (255, 4));
    }
}

mod violations {
    use super::*;

    /// A good H2CData with digests, 512 bytes of data.
    fn h2c_data() -> Vec<u8> {
        let mut bytes = vec![0; 28 + 512 + 4];
        let data = H2cData { cid: 7, ttag: 1, offset: 0, length: 512, last: true };
        assert_eq!(data.write(&DIGESTS, &mut bytes), 28);
        bytes
    }

    #[test]
    fn each_names_its_field_and_offset() {
        let table: &[(&str, &str, u32)] = &[
            ("08 00 18 00 18000000", "PDU-TYPE", 0),
            ("0a 00 18 00 18000000", "PDU-TYPE", 0),
            ("05 00 18 00 18000000", "PDU-TYPE", 0), // of the other direction
            ("04 00 40 00 48000000", "HLEN", 2),
            ("00 00 18 00 80000000", "HLEN", 2),
            ("00 00 80 00 81000000", "PLEN", 4),
            ("04 01 48 00 4c000000", "FLAGS", 1), // no digests were agreed on
            ("04 00 48 00 47000000", "PLEN", 4),
            ("04 00 48 48 49200000", "PLEN", 4), // 8193 bytes in a capsule
            ("04 00 48 44 48010000", "PDO", 3),
            ("04 00 48 49 48010000", "PDO", 3),
            ("04 02 48 48 48010000", "FLAGS", 1),
            ("06 00 18 18 19000200", "PLEN", 4),
            ("06 00 18 20 20000000", "PLEN", 4),
            ("02 00 18 00 99000000", "PLEN", 4),
        ];
        for (bytes, field, offset) in table {
            let fault = fault(End::Host, Agreement::default(), &hex(bytes));
            assert_eq!((fault.field, fault.info), (*field, *offset), "{bytes}: {fault}");
            assert!(!fault.to_string().contains('\n'));
        }
        let without_data = hex("06 04 18 18 18000000 0700 7856 00000000 00000000 00000000");
        assert_eq!(fault(End::Host, Agreement::default(), &without_data).field, "DATAL");
        let success = hex("07 08 18 18 19000000 0700 0000 00000000 01000000 00000000");
        assert_eq!(fault(End::Controller, Agreement::default(), &success).info, 1, "SUCCESS without LAST_PDU");
        let nothing = hex("09 00 18 00 18000000 0700 7856 00000000 00000000 00000000");
        assert_eq!(fault(End::Controller, Agreement::default(), &nothing).field, "R2TL");
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = h2c_data();
        unit(End::Host, DIGESTS, &good);
        for bit in 0..28 * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let fault = fault(End::Host, DIGESTS, &bytes);
            if bit >= 24 * 8 {
                assert_eq!(fault.status, FatalStatus::HeaderDigestError);
                assert_eq!(fault.info.to_le_bytes(), bytes[24..28], "FEI is the digest that came");
            }
        }
    }

    #[test]
    fn a_truncated_unit_needs_more_and_nothing_else() {
        let good = h2c_data();
        for len in 0..28 {
            let need = if len < 8 { 8 } else { 28 };
            assert_eq!(receiver(End::Host, DIGESTS).next(&good[..len]), Ok(Next::Need(need)));
        }
    }

    #[test]
    fn a_handshake_that_cannot_be_kept_is_refused() {
        let pfv = IcReq { pfv: 1, ..IcReq::default() }.granted(4096).unwrap_err();
        assert_eq!((pfv.status, pfv.info), (FatalStatus::UnsupportedParameter, 8));
        let hpda = IcReq { hpda: 32, ..IcReq::default() }.granted(4096).unwrap_err();
        assert_eq!((hpda.status, hpda.info), (FatalStatus::InvalidHeaderField, 10));
        let asked = IcReq::asking(true, false);
        for (answer, info) in [
            (IcResp { maxh2cdata: 4092, ..IcResp::default() }, 12),
            (IcResp { maxh2cdata: 4097, ..IcResp::default() }, 12),
            (IcResp { maxh2cdata: 4096, dgst: 2, ..IcResp::default() }, 11),
            (IcResp { maxh2cdata: 4096, cpda: 32, ..IcResp::default() }, 10),
            (IcResp { maxh2cdata: 4096, pfv: 2, ..IcResp::default() }, 8),
        ] {
            assert_eq!(answer.agreement(&asked).unwrap_err().info, info);
        }
        // A controller may grant less than was asked for.
        let less = IcResp { maxh2cdata: 4096, ..IcResp::default() };
        assert_eq!(less.agreement(&asked), Ok(Agreement::default()));
    }
}

fn agreements() -> impl Strategy<Value = Agreement> {
    (any::<bool>(), any::<bool>(), 0..32u8, 0..32u8).prop_map(|(header_digest, data_digest, hpda, cpda)| Agreement {
        header_digest,
        data_digest,
        hpda,
        cpda,
    })
}

proptest! {
    #[test]
    fn units_read_back_as_they_were_written(
        agreement in agreements(),
        bytes in any::<[[u8; 16]; 4]>(),
        (cid, ttag, offset, length) in (any::<u16>(), any::<u16>(), any::<u32>(), 1..=LIMITS.data),
        (last, success, capsule) in (any::<bool>(), any::<bool>(), 0..=LIMITS.capsule),
    ) {
        let command = Command::read(&bytes.concat().try_into().unwrap());
        let completion = Completion::read(&bytes[0]);
        let h2c = H2cData { cid, ttag, offset, length, last };
        let c2h = C2hData { cid, offset, length, last, success: last && success };
        let r2t = R2t { cid, ttag, offset, length };
        type Write<'a> = Box<dyn Fn(&mut [u8]) -> usize + 'a>;
        let units: [(End, u32, Pdu, Write); 5] = [
            (End::Host, capsule, Pdu::CapsuleCmd(command), Box::new(|out| pdu::command(&command, capsule, &agreement, out))),
            (End::Controller, 0, Pdu::CapsuleResp(completion), Box::new(|out| pdu::response(&completion, &agreement, out))),
            (End::Host, length, Pdu::H2cData(h2c), Box::new(|out| h2c.write(&agreement, out))),
            (End::Controller, length, Pdu::C2hData(c2h), Box::new(|out| c2h.write(&agreement, out))),
            (End::Controller, 0, Pdu::R2t(r2t), Box::new(|out| r2t.write(&agreement, out))),
        ];
        for (from, data, expected, write) in units {
            let mut out = [0xee; pdu::MAX_HEADER_BYTES];
            let written = write(&mut out);
            let (layout, pdu) = unit(from, agreement, &out);
            prop_assert_eq!((layout.data_at as usize, layout.data_bytes), (written, data));
            let digest = if data > 0 { agreement.data_digest_bytes() } else { 0 };
            prop_assert_eq!(layout.total(), written as u32 + data + digest);
            // A reserved bit of the status field is not a status: written, it comes back as 0.
            match (pdu, expected) {
                (Pdu::CapsuleResp(read), Pdu::CapsuleResp(completion)) => prop_assert_eq!(read, completion),
                (pdu, expected) => prop_assert_eq!(pdu, expected),
            }
        }
    }

    #[test]
    fn any_bytes_are_units_or_faults(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        targets::pdu(&data);
        targets::structures(&data);
    }

    #[test]
    fn bytes_like_units_are_units_or_faults(
        head in (0..12u8, 0..16u8, prop_oneof![Just(24u8), Just(72), Just(128), any::<u8>()], 20..140u8, 0..300u32),
        mode in any::<u8>(),
        rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let (kind, flags, hlen, pdo, plen) = head;
        let mut data = vec![mode, kind, flags, hlen, pdo];
        data.extend(plen.to_le_bytes());
        data.extend(rest);
        targets::pdu(&data);
    }
}
