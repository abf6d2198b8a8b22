//! A host that keeps to the standard gets its answers: every command, with and without digests.

use crate::raw;

use nvme::spec::opcode::{admin, io};
use nvme::spec::{
    AsyncEvent, Command, DISCOVERY_NQN, GetLogPage, Identify, IdentifyController, IdentifyNamespace, NamespaceIds,
    Range, Sgl, Status, cns, feature, log,
};
use nvme_target::device::{DeviceKind, Latency};
use nvme_target::{NamespaceSpec, Options, SubsystemSpec};
use raw::{HOST, Host, NQN, Served};

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

#[test]
fn what_is_written_is_read_with_and_without_digests() {
    let served = Served::plain();
    for digests in [false, true] {
        let (_admin, mut queue) = Host::pair_with(served.address, digests);
        for (index, len) in [512, 4096, 8192, 65_536, 131_072, 1 << 20].into_iter().enumerate() {
            let data = pattern(len, index as u8 + u8::from(digests) * 100);
            let lba = 4096 * index as u64 + 3;
            assert_eq!(queue.send_data(Host::write_command(1, lba, len), &data, 4096 * 5), Status::SUCCESS);
            assert_eq!(queue.read(1, lba, (len / 512) as u32).unwrap(), data);
        }
        let data = pattern(4096, 77);
        let in_capsule = Command { sgl: Sgl::in_capsule(4096), ..Host::write_command(1, 9, 4096) };
        assert_eq!(queue.command(in_capsule, &data).status, Status::SUCCESS);
        assert_eq!(queue.read(1, 9, 8).unwrap(), data);
        assert_eq!(queue.read(2, 1 << 20, 256).unwrap(), vec![0; 131_072], "the null device");
    }
}

#[test]
fn compare_zeroes_deallocate_and_flush() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(served.address);
    let data = pattern(16_384, 1);
    assert_eq!(queue.write(1, 0, &data), Status::SUCCESS);
    let compare = |len: u32| Command { sgl: Sgl::transport(len), ..Command::blocks(io::COMPARE, 1, 0, len / 512) };
    assert_eq!(queue.send_data(compare(16_384), &data, 16_384), Status::SUCCESS);
    let mut other = data.clone();
    other[16_000] ^= 1;
    assert!(queue.send_data(compare(16_384), &other, 16_384).is(Status::COMPARE_FAILURE));
    let capsule = Command { sgl: Sgl::in_capsule(4096), ..Command::blocks(io::COMPARE, 1, 0, 8) };
    assert_eq!(queue.command(capsule, &data[..4096]).status, Status::SUCCESS);

    assert_eq!(queue.command(Command::blocks(io::WRITE_ZEROES, 1, 2, 4), &[]).status, Status::SUCCESS);
    let mut expected = data;
    expected[1024..3072].fill(0);
    assert_eq!(queue.read(1, 0, 32).unwrap(), expected);

    let ranges = [(16u64, 2u32), (0, 0), (30, 2)];
    let mut bytes = Vec::new();
    for (slba, blocks) in ranges {
        bytes.extend_from_slice(&Range { attributes: 0, blocks, slba }.write());
        expected[slba as usize * 512..][..blocks as usize * 512].fill(0);
    }
    bytes.resize(4096, 0); // as Linux does
    let deallocate = Range::deallocate(1, ranges.len());
    assert_eq!(queue.send_data(Command { sgl: Sgl::transport(4096), ..deallocate }, &bytes, 4096), Status::SUCCESS);
    assert_eq!(queue.read(1, 0, 32).unwrap(), expected);
    let in_capsule = Command { sgl: Sgl::in_capsule(4096), ..deallocate };
    assert_eq!(queue.command(in_capsule, &bytes).status, Status::SUCCESS);
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(queue.command(in_capsule, &bytes).status.is(Status::LBA_OUT_OF_RANGE));

    assert_eq!(queue.command(Command::new(io::FLUSH, 1), &[]).status, Status::SUCCESS);
    assert!(queue.command(Command::new(io::FLUSH, 7), &[]).status.is(Status::INVALID_NAMESPACE));
}

#[test]
fn commands_that_make_no_sense_fail_and_leave_the_queue_as_it_was() {
    let served = Served::plain();
    let (mut admin, mut queue) = Host::pair(served.address);
    let blocks = (64 << 20) / 512;
    let read = |lba, blocks| Host::read_command(1, lba, blocks);
    let cases = [
        (read(blocks, 1), Status::LBA_OUT_OF_RANGE),
        (read(blocks - 1, 2), Status::LBA_OUT_OF_RANGE),
        (read(u64::MAX, 8), Status::LBA_OUT_OF_RANGE),
        (read(0, 4096), Status::INVALID_FIELD), // 2 MiB, beyond MDTS
        (Host::read_command(9, 0, 8), Status::INVALID_NAMESPACE),
        (Host::read_command(0, 0, 8), Status::INVALID_NAMESPACE),
        (Host::read_command(u32::MAX, 0, 8), Status::INVALID_NAMESPACE),
        (Command { sgl: Sgl::transport(512), ..read(0, 8) }, Status::DATA_SGL_LENGTH_INVALID),
        (
            Command { sgl: Sgl { length: 4096, id: 0x30, ..Sgl::default() }, ..read(0, 8) },
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (Command { flags: 0x41, ..read(0, 8) }, Status::INVALID_FIELD), // fused
        (Command::new(0x7e, 1), Status::INVALID_OPCODE),
        (Command::new(0x04, 1), Status::INVALID_OPCODE),
        (Command { sgl: Sgl::in_capsule(4096), ..Host::write_command(1, 0, 4096) }, Status::DATA_SGL_LENGTH_INVALID),
    ];
    for (command, status) in cases {
        let done = queue.command(command, &[]);
        assert!(done.status.is(status), "{command:?}: {}", done.status);
    }
    let beyond =
        Command { sgl: Sgl { address: 512, length: 4096, id: 1, ..Sgl::default() }, ..Host::write_command(1, 0, 4096) };
    assert!(queue.command(beyond, &[0; 4096]).status.is(Status::SGL_OFFSET_INVALID));
    let unannounced = Host::write_command(1, 0, 4096);
    assert!(queue.command(unannounced, &[0; 4096]).status.is(Status::INVALID_FIELD));
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x80, 0x81, 0xff] {
        assert!(admin.command(Command::new(opcode, 0), &[]).status.is(Status::INVALID_OPCODE), "{opcode:#x}");
    }
    assert_eq!(queue.read(1, 0, 8).unwrap(), vec![0; 4096]);
}

#[test]
fn identify_passes_the_gates_of_the_linux_initiator() {
    let served = Served::plain();
    let mut admin = Host::admin(served.address);
    let identify = |cns, csi| Identify { cns, cntid: 0, csi };
    let page = admin.fetch(identify(cns::CONTROLLER, 0).command(0)).unwrap();
    let it = IdentifyController::read(page.first_chunk().unwrap());
    assert_eq!(it.cntlid, admin.cntlid);
    assert!(it.kas != 0 && it.ioccsz >= 4 && it.iorcsz >= 1 && it.icdoff == 0 && it.sgls != 0 && it.maxcmd != 0);
    assert_eq!((it.sqes, it.cqes, it.cntrltype, it.mdts), (0x66, 0x44, 1, 8));
    assert_eq!(it.ioccsz * 16 - 64, 4096);
    let list = admin.fetch(identify(cns::ACTIVE_NAMESPACES, 0).command(0)).unwrap();
    assert_eq!(list[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let list = admin.fetch(identify(cns::ACTIVE_NAMESPACES, 0).command(1)).unwrap();
    assert_eq!(list[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    // All namespaces are of the NVM command set, the only one.
    for (after, expected) in [(0, [1, 2]), (1, [2, 0])] {
        let list = admin.fetch(identify(cns::ACTIVE_NAMESPACES_CSI, 0).command(after)).unwrap();
        assert_eq!(list[..8], [expected[0], 0, 0, 0, expected[1], 0, 0, 0]);
    }
    assert!(admin.fetch(identify(cns::ACTIVE_NAMESPACES_CSI, 2).command(0)).unwrap_err().is(Status::INVALID_FIELD));
    let sets = admin.fetch(identify(cns::COMMAND_SETS, 0).command(0)).unwrap();
    assert!(sets[0] == 1 && sets[1..].iter().all(|&byte| byte == 0) && sets.len() == 4096);
    let page = admin.fetch(identify(cns::NAMESPACE, 0).command(1)).unwrap();
    let namespace = IdentifyNamespace::read(page.first_chunk().unwrap());
    assert_eq!((namespace.nsze, namespace.block_bytes()), ((64 << 20) / 512, Some(512)));
    let page = admin.fetch(identify(cns::NAMESPACE_IDS, 0).command(1)).unwrap();
    let own = served.target.devices()[0].uuid;
    assert_eq!(NamespaceIds::read(page.first_chunk().unwrap()).uuid, Some(own));
    for (which, nsid) in [(cns::NAMESPACE_CSI, 1), (cns::CONTROLLER_CSI, 0), (cns::NAMESPACE_INDEPENDENT, 2)] {
        assert_eq!(admin.fetch(identify(which, 0).command(nsid)).unwrap().len(), 4096);
    }
    assert_eq!(admin.fetch(identify(cns::NAMESPACE, 0).command(5)).unwrap(), vec![0; 4096], "valid, not active");
    assert!(admin.fetch(identify(cns::NAMESPACE, 0).command(0)).unwrap_err().is(Status::INVALID_NAMESPACE));
    assert!(admin.fetch(identify(cns::NAMESPACE_IDS, 0).command(5)).unwrap_err().is(Status::INVALID_NAMESPACE));
    assert!(admin.fetch(identify(0x77, 0).command(1)).unwrap_err().is(Status::INVALID_FIELD));
}

#[test]
fn logs_and_features() {
    let served = Served::plain();
    let (mut admin, mut queue) = Host::pair(served.address);
    queue.write(1, 0, &[1; 4096]);
    let page = |lid, length, offset| GetLogPage { lid, lsp: 0, retain: false, length, offset };
    let smart = admin.fetch(page(log::SMART, 512, 0).command(u32::MAX)).unwrap();
    assert_eq!(log::Smart::read(smart.first_chunk().unwrap()).host_writes, 1);
    let part = admin.fetch(page(log::SMART, 64, 64).command(0)).unwrap();
    assert_eq!(part, smart[64..128]);
    assert_eq!(admin.fetch(page(log::ERROR, 64, 0).command(0)).unwrap(), vec![0; 64]);
    assert_eq!(admin.fetch(page(log::FIRMWARE, 512, 0).command(0)).unwrap()[0], 1);
    let effects = admin.fetch(page(log::EFFECTS, 4096, 0).command(0)).unwrap();
    assert_eq!(effects[1024 + 4 * usize::from(io::WRITE)], 3);
    assert!(admin.fetch(page(log::DISCOVERY, 1024, 0).command(0)).unwrap_err().is(Status::INVALID_LOG_PAGE));
    assert!(admin.fetch(page(0x99, 64, 0).command(0)).unwrap_err().is(Status::INVALID_LOG_PAGE));
    assert!(admin.fetch(page(log::SMART, 64, 4096).command(0)).unwrap_err().is(Status::INVALID_FIELD));
    let of_namespace = admin.fetch(page(log::SMART, 512, 0).command(1)).unwrap_err();
    assert_eq!(of_namespace, Status::INVALID_FIELD.do_not_retry(), "LPA bit 0 is clear");

    let get = |id: u8| Command { cdw10: id.into(), ..Command::new(admin::GET_FEATURES, 0) };
    let set = |id: u8, value| Command { cdw10: id.into(), cdw11: value, ..Command::new(admin::SET_FEATURES, 0) };
    let late = admin.command(set(feature::NUMBER_OF_QUEUES, feature::queues_value(200)), &[]);
    assert!(late.status.is(Status::COMMAND_SEQUENCE_ERROR), "there is an I/O queue");
    let mut admin = Host::admin(served.address);
    let done = admin.command(set(feature::NUMBER_OF_QUEUES, feature::queues_value(200)), &[]);
    assert_eq!(feature::queues(done.result as u32), 64);
    let done = admin.command(set(feature::NUMBER_OF_QUEUES, feature::queues_value(3)), &[]);
    assert_eq!(feature::queues(done.result as u32), 3);
    // SEL 1 asks for the default, and each threshold has a value of its own.
    let of = |id: u8, sel: u32, cdw11| Command { cdw10: sel << 8 | u32::from(id), cdw11, ..get(id) };
    let (over, under, sensor) = (0, 1 << 20, 3 << 16);
    for (select, kelvins) in [(over, 350), (under, 250), (sensor, 1)] {
        let done = admin.command(set(feature::TEMPERATURE_THRESHOLD, select | kelvins), &[]);
        assert!(done.status.is_ok());
    }
    for (sel, select, kelvins) in
        [(0, over, 350), (0, under, 250), (0, sensor, 0xffff), (1, over, 343), (2, over, 343), (1, under, 0)]
    {
        let got = admin.command(of(feature::TEMPERATURE_THRESHOLD, sel, select), &[]);
        assert_eq!((got.status, got.result), (Status::SUCCESS, kelvins), "SEL {sel}, {select:x}");
    }
    assert!(admin.command(of(feature::TEMPERATURE_THRESHOLD, 0, 2 << 20), &[]).status.is(Status::INVALID_FIELD));
    let got = admin.command(of(feature::TEMPERATURE_THRESHOLD, 0, sensor | under), &[]);
    assert_eq!((got.status, got.result), (Status::SUCCESS, 0));
    assert!(admin.command(of(feature::TEMPERATURE_THRESHOLD, 4, over), &[]).status.is(Status::INVALID_FIELD));
    for (sel, value) in [(0, 3), (1, 64), (2, 64)] {
        let got = admin.command(of(feature::NUMBER_OF_QUEUES, sel, 0), &[]);
        assert_eq!(feature::queues(got.result as u32), value);
    }
    assert_eq!(admin.command(get(feature::VOLATILE_WRITE_CACHE), &[]).result, 1);
    assert_eq!(admin.command(set(feature::KEEP_ALIVE_TIMER, 7000), &[]).status, Status::SUCCESS);
    assert_eq!(admin.command(get(feature::KEEP_ALIVE_TIMER), &[]).result, 7000);
    assert!(admin.command(get(0x33), &[]).status.is(Status::INVALID_FIELD));
    let save = Command { cdw10: 1 << 31 | 0x0b, ..set(feature::ASYNC_EVENT_CONFIGURATION, 0) };
    assert!(admin.command(save, &[]).status.is(Status::FEATURE_NOT_SAVEABLE));
    let behaviour = |fields: [u8; 3]| [&fields[..], &[0; 509]].concat();
    let by_capsule = Command { sgl: Sgl::in_capsule(512), ..set(feature::HOST_BEHAVIOR, 0) };
    assert_eq!(admin.command(by_capsule, &behaviour([1, 0, 1])).status, Status::SUCCESS);
    let fetch = |id, len| Command { sgl: Sgl::transport(len), ..get(id) };
    assert_eq!(admin.fetch(fetch(feature::HOST_BEHAVIOR, 512)).unwrap(), behaviour([1, 0, 1]));
    let by_transfer = Command { sgl: Sgl::transport(512), ..set(feature::HOST_BEHAVIOR, 0) };
    assert_eq!(admin.send_data(by_transfer, &behaviour([0, 1, 1]), 512), Status::SUCCESS);
    assert_eq!(admin.fetch(fetch(feature::HOST_BEHAVIOR, 512)).unwrap(), behaviour([0, 1, 1]));
    // ACRE 2, and a reserved byte: neither is taken, and nothing changes.
    for wrong in [behaviour([2, 0, 0]), behaviour([0, 0, 2]), [&[0; 511][..], &[1]].concat()] {
        assert_eq!(admin.command(by_capsule, &wrong).status, Status::INVALID_FIELD.do_not_retry());
    }
    assert_eq!(admin.fetch(fetch(feature::HOST_BEHAVIOR, 512)).unwrap(), behaviour([0, 1, 1]));
    let time = |admin: &mut Host| {
        let data = admin.fetch(fetch(feature::TIMESTAMP, 8)).unwrap();
        (u64::from_le_bytes([&data[..6], &[0, 0]].concat().try_into().unwrap()), data[6], data[7])
    };
    let (since_reset_ms, origin, _) = time(&mut admin);
    assert!(since_reset_ms < 600_000 && origin == 0, "{since_reset_ms} ms, {origin}");
    let set_ms = 1_800_000_000_000_u64;
    let by_capsule = Command { sgl: Sgl::in_capsule(8), ..set(feature::TIMESTAMP, 0) };
    assert_eq!(admin.command(by_capsule, &set_ms.to_le_bytes()).status, Status::SUCCESS);
    std::thread::sleep(std::time::Duration::from_millis(3));
    let (now_ms, origin, reserved) = time(&mut admin);
    assert!((set_ms + 3..set_ms + 600_000).contains(&now_ms) && (origin, reserved) == (2, 0), "{now_ms}, {origin}");
    assert!(admin.command(Command { sgl: Sgl::in_capsule(4), ..by_capsule }, &[0; 4]).status != Status::SUCCESS);
    let id = admin.fetch(fetch(feature::HOST_IDENTIFIER, 16)).unwrap();
    assert_eq!(id, (0..16).collect::<Vec<u8>>());
    assert_eq!(admin.command(Command::new(admin::KEEP_ALIVE, 0), &[]).status, Status::SUCCESS);
}

/// A feature takes the fields that the controller has, each in its range, and reads back what is in force: reserved
/// bits are zeros. A value that the controller refuses changes nothing.
#[test]
fn a_feature_takes_the_fields_that_the_controller_has() {
    let served = Served::plain();
    let mut admin = Host::admin(served.address);
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let events = u64::from(feature::EVENTS_OF_HEALTH | feature::EVENT_NAMESPACE);
    let queues = feature::queues_value(1);
    for (id, nsid, value, outcome) in [
        (feature::ARBITRATION, 0, u32::MAX, Ok(0xffff_ff07)),
        (feature::POWER_MANAGEMENT, 0, 2 << 5, Ok(2 << 5)),
        (feature::POWER_MANAGEMENT, 0, 1, Err(invalid)),
        (feature::ERROR_RECOVERY, 1, 0xfffe_0007, Ok(7)),
        (feature::ERROR_RECOVERY, 1, feature::DULBE, Err(invalid)),
        (feature::ERROR_RECOVERY, 9, 0, Err(Status::INVALID_NAMESPACE.do_not_retry())),
        (feature::VOLATILE_WRITE_CACHE, 0, 1, Ok(1)),
        (feature::VOLATILE_WRITE_CACHE, 0, 0, Err(Status::FEATURE_NOT_CHANGEABLE.do_not_retry())),
        (feature::NUMBER_OF_QUEUES, 0, queues, Ok(queues.into())),
        (feature::NUMBER_OF_QUEUES, 0, 0xffff, Err(invalid)),
        (feature::NUMBER_OF_QUEUES, 0, 0xffff_0000, Err(invalid)),
        (feature::WRITE_ATOMICITY, 0, 3, Ok(1)),
        (feature::ASYNC_EVENT_CONFIGURATION, 0, u32::MAX, Ok(events)),
        (feature::KEEP_ALIVE_TIMER, 0, 1, Ok(1000)),
        (feature::KEEP_ALIVE_TIMER, 0, 1001, Ok(2000)),
        (feature::KEEP_ALIVE_TIMER, 0, u32::MAX, Ok(u32::MAX.into())),
        (feature::KEEP_ALIVE_TIMER, 0, 0, Err(Status::KEEP_ALIVE_INVALID.do_not_retry())),
        (feature::RESERVATION_MASK, 1, u32::MAX, Ok(0b1110)),
    ] {
        let nsid_to_get = if nsid == 9 { 1 } else { nsid };
        let get = Command { cdw10: id.into(), ..Command::new(admin::GET_FEATURES, nsid_to_get) };
        let before = admin.command(get, &[]).result;
        let set = Command { cdw10: id.into(), cdw11: value, ..Command::new(admin::SET_FEATURES, nsid) };
        let status = admin.command(set, &[]).status;
        let in_force = admin.command(get, &[]).result;
        match outcome {
            Ok(expected) => assert_eq!((status, in_force), (Status::SUCCESS, expected), "{id:#x} {value:#x}"),
            Err(refused) => assert_eq!((status, in_force), (refused, before), "{id:#x} {value:#x}"),
        }
    }
}

/// Each address has a port number of its own, on every page and for good; hosts hear the longest Write Zeroes.
#[test]
fn listeners_are_told_apart_and_the_longest_write_zeroes_is_told() {
    let served = Served::plain();
    let second = served.target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    let other = "nqn.2016-06.io.spdk:other";
    served
        .target
        .create_subsystem(nvme_target::SubsystemSpec { allow_any_host: true, ..nvme_target::SubsystemSpec::new(other) })
        .unwrap();
    served.target.add_listener(other, second).unwrap();
    let mut discovery = Host::admin_of(second, DISCOVERY_NQN, HOST, true);
    let whole = GetLogPage { lid: log::DISCOVERY, lsp: 0, retain: true, length: 1024 * 8, offset: 0 };
    let ports = |discovery: &mut Host| -> Vec<(String, u16)> {
        let page = discovery.fetch(whole.command(0)).unwrap();
        let count = log::DiscoveryHeader::read(page.first_chunk().unwrap()).numrec as usize;
        let entries = page[1024..].chunks_exact(1024).take(count);
        entries
            .map(|entry| log::DiscoveryEntry::read(entry.try_into().unwrap()))
            .map(|entry| (entry.trsvcid.to_string(), entry.portid))
            .collect()
    };
    let (first, second_port) = (served.address.port().to_string(), second.port().to_string());
    // The discovery service itself, and the first subsystem on both addresses, and the other one on the second.
    let (on_first, on_second) = ((first, 1), (second_port, 2));
    assert_eq!(ports(&mut discovery), [&on_second, &on_first, &on_second, &on_second].map(Clone::clone));
    served.target.remove_listener(NQN, served.address).unwrap().wait();
    assert_eq!(ports(&mut discovery), vec![on_second; 3], "it keeps its number");

    let (mut admin, _queue) = Host::pair(second);
    let limits = admin.fetch(Identify { cns: cns::CONTROLLER_CSI, cntid: 0, csi: 0 }.command(0)).unwrap();
    assert_eq!(limits[1], 13, "65536 blocks of 512 bytes");
}

/// Base specification 2.0, 5.27: features of the controller are not set for one namespace.
#[test]
fn a_feature_of_the_controller_is_not_set_for_a_namespace() {
    let served = Served::plain();
    let mut admin = Host::admin(served.address);
    let mut set = |id: u8, nsid: u32, value: u32| {
        let command = Command { cdw10: id.into(), cdw11: value, ..Command::new(admin::SET_FEATURES, nsid) };
        admin.command(command, &[]).status
    };
    let wrong = Status::FEATURE_NOT_NAMESPACE_SPECIFIC.do_not_retry();
    for (id, value) in [
        (feature::ARBITRATION, 0),
        (feature::POWER_MANAGEMENT, 0),
        (feature::TEMPERATURE_THRESHOLD, 0x140),
        (feature::VOLATILE_WRITE_CACHE, 1),
        (feature::NUMBER_OF_QUEUES, 0),
        (feature::WRITE_ATOMICITY, 0),
        (feature::ASYNC_EVENT_CONFIGURATION, 0),
        (feature::KEEP_ALIVE_TIMER, 20_000),
    ] {
        assert_eq!(set(id, 1, value), wrong, "{id:#x}");
        for nsid in [0, 9, u32::MAX] {
            assert_eq!(set(id, nsid, value), Status::SUCCESS, "{id:#x} {nsid:#x}");
        }
    }
    for id in [feature::ERROR_RECOVERY, feature::RESERVATION_MASK] {
        assert_eq!(set(id, 1, 0), Status::SUCCESS, "{id:#x} is of namespaces");
    }
}

#[test]
fn hosts_hear_of_namespaces_that_come_go_and_grow() {
    let served = Served::plain();
    let (mut admin, mut queue) = Host::pair(served.address);
    let enable = Command {
        cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
        cdw11: feature::EVENT_NAMESPACE,
        ..Command::new(admin::SET_FEATURES, 0)
    };
    assert_eq!(admin.command(enable, &[]).status, Status::SUCCESS);
    let request = Command::new(admin::ASYNC_EVENT_REQUEST, 0);
    let changed = GetLogPage { lid: log::CHANGED_NAMESPACES, lsp: 0, retain: false, length: 4096, offset: 0 };
    let first = admin.send_command(request, &[]);

    served.target.resize_device("mem", Some(128 << 20)).unwrap();
    let done = admin.response();
    assert_eq!((done.cid, AsyncEvent::of(done.result)), (first, AsyncEvent::NAMESPACE_CHANGED));
    // Masked until the page is read; then told again.
    let second = admin.send_command(request, &[]);
    served.target.remove_namespace(NQN, 2).unwrap().wait();
    assert_eq!(admin.fetch(changed.command(0)).unwrap()[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert!(queue.read(2, 0, 8).unwrap_err().is(Status::INVALID_NAMESPACE));
    assert_eq!(queue.read(1, 200_000, 8).unwrap(), vec![0; 4096], "beyond the old end");
    let again = NamespaceSpec { nsid: 5, ..NamespaceSpec::new("null") };
    assert_eq!(served.target.add_namespace(NQN, again).unwrap(), 5);
    assert_eq!(admin.response().cid, second);
    assert_eq!(admin.fetch(changed.command(0)).unwrap()[..8], [5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(queue.read(5, 0, 8).unwrap().len(), 4096);

    let aborted = admin.send_command(request, &[]);
    let abort = Command { cdw10: u32::from(aborted) << 16, ..Command::new(admin::ABORT, 0) };
    let abort_cid = admin.send_command(abort, &[]);
    let done = admin.response();
    assert!(done.cid == aborted && done.status.is(Status::ABORTED_BY_REQUEST));
    let done = admin.response();
    assert_eq!((done.cid, done.result), (abort_cid, 0));
    for _ in 0..4 {
        admin.send_command(request, &[]);
    }
    assert!(admin.command(request, &[]).status.is(Status::ASYNC_EVENT_LIMIT_EXCEEDED));
}

/// A change that comes while the host reads the page of the one before is in that page, or the host is told of it.
#[test]
fn no_change_of_a_namespace_is_lost_while_the_page_is_read() {
    const ROUNDS: u64 = 500;
    let served = Served::plain();
    let (mut admin, _queue) = Host::pair(served.address);
    let enable = Command {
        cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
        cdw11: feature::EVENT_NAMESPACE,
        ..Command::new(admin::SET_FEATURES, 0)
    };
    assert_eq!(admin.command(enable, &[]).status, Status::SUCCESS);
    let page = |retain, offset| GetLogPage { lid: log::CHANGED_NAMESPACES, lsp: 0, retain, length: 4096, offset };
    let told = |admin: &mut Host| {
        admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
        assert_eq!(AsyncEvent::of(admin.response().result), AsyncEvent::NAMESPACE_CHANGED);
        // A read that is refused reads nothing.
        assert!(admin.fetch(page(false, 4100).command(0)).unwrap_err().is(Status::INVALID_FIELD));
        // A page that a change came into after all may be read before the host is told of that change.
        assert!(matches!(admin.fetch(page(false, 0).command(0)).unwrap()[..8], [0 | 1, 0, 0, 0, 0, 0, 0, 0]));
    };
    let (begin, begun) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let target = &served.target;
        scope.spawn(move || {
            for round in begun {
                target.resize_device("mem", Some((64 + round % 2 * 2) << 20)).unwrap();
                (0..round * 61 % 4096).for_each(|_| std::hint::spin_loop());
                target.resize_device("mem", Some((65 + round % 2 * 2) << 20)).unwrap();
                end.send(()).unwrap();
            }
        });
        for round in 0..ROUNDS {
            begin.send(round).unwrap();
            told(&mut admin);
            ended.recv().unwrap();
            if admin.fetch(page(true, 0).command(0)).unwrap()[0] != 0 {
                told(&mut admin);
            }
        }
        drop(begin);
    });
}

/// The timeout of a host has whole units of KAS, and lasts at least as long as the transport's.
#[test]
fn keep_alive_timeouts_are_as_long_as_the_transport_says() {
    let options = Options { least_keep_alive_ms: 7000, keep_alive_units: 50, ..Options::default() };
    let served = Served::with(options, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    let mut admin = Host::admin(served.address);
    let page = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
    assert_eq!(IdentifyController::read(page.first_chunk().unwrap()).kas, 50);
    for (asked_ms, effective_ms) in [(1000, 10_000), (8000, 10_000), (10_000, 10_000), (10_001, 15_000)] {
        let timer = |opcode| Command { cdw10: feature::KEEP_ALIVE_TIMER.into(), ..Command::new(opcode, 0) };
        let set = Command { cdw11: asked_ms, ..timer(admin::SET_FEATURES) };
        assert_eq!(admin.command(set, &[]).status, Status::SUCCESS);
        assert_eq!(admin.command(timer(admin::GET_FEATURES), &[]).result, effective_ms);
    }
}

#[test]
fn discovery_shows_each_host_what_it_may_connect_to() {
    let served = Served::plain();
    let private = "nqn.2016-06.io.spdk:private";
    served.target.create_subsystem(nvme_target::SubsystemSpec::new(private)).unwrap();
    served.target.add_listener(private, served.address).unwrap();
    let mut discovery = Host::admin_of(served.address, DISCOVERY_NQN, HOST, true);
    let whole = GetLogPage { lid: log::DISCOVERY, lsp: 0, retain: true, length: 1024 * 4, offset: 0 };
    let entries = |discovery: &mut Host| {
        let page = discovery.fetch(whole.command(0)).unwrap();
        let header = log::DiscoveryHeader::read(page.first_chunk().unwrap());
        let names: Vec<String> = page[1024..]
            .chunks_exact(1024)
            .take(header.numrec as usize)
            .map(|entry| log::DiscoveryEntry::read(entry.try_into().unwrap()))
            .inspect(|entry| assert_eq!(entry.trsvcid.to_string(), served.address.port().to_string()))
            .map(|entry| entry.subsystem().unwrap().to_string())
            .collect();
        (header.genctr, names)
    };
    let (before, names) = entries(&mut discovery);
    assert_eq!(names, [DISCOVERY_NQN, NQN]);
    let enable = Command {
        cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
        cdw11: feature::EVENT_DISCOVERY,
        ..Command::new(admin::SET_FEATURES, 0)
    };
    assert_eq!(discovery.command(enable, &[]).status, Status::SUCCESS);
    let request = discovery.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
    served.target.add_host(private, HOST).unwrap();
    let done = discovery.response();
    assert_eq!((done.cid, AsyncEvent::of(done.result)), (request, AsyncEvent::DISCOVERY_CHANGED));
    let (after, names) = entries(&mut discovery);
    assert_eq!(names, [DISCOVERY_NQN, NQN, private]);
    assert!(after > before);
    let mut refused = Host::open(served.address, false, false);
    let done = refused.connect(0, 32, 0xffff, private, "nqn.2016-06.io.spdk:stranger");
    assert_eq!(done.status, Status::CONNECT_INVALID_HOST);
    served.target.remove_host(private, HOST).unwrap().wait();
    assert_eq!(entries(&mut discovery).1, [DISCOVERY_NQN, NQN]);
}

/// On an address of its own, where no subsystem is, and with others that it names.
#[test]
fn the_discovery_service_may_stand_alone_and_name_others() {
    let served = Served::plain();
    let target = &served.target;
    let address = target.add_listener(DISCOVERY_NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(target.discovery_listeners().len(), 2);
    let other = nvme_target::Referral {
        address: "192.0.2.1:8009".parse::<std::net::SocketAddr>().unwrap().into(),
        nqn: DISCOVERY_NQN.parse().unwrap(),
    };
    target.add_referral(other.clone()).unwrap();
    assert!(target.add_referral(other.clone()).is_err());
    let mut discovery = Host::admin_of(address, DISCOVERY_NQN, HOST, false);
    let mut entries = || {
        let command = GetLogPage { lid: log::DISCOVERY, lsp: 0, retain: true, length: 1024 * 5, offset: 0 }.command(0);
        let page = discovery.fetch(command).unwrap();
        let count = log::DiscoveryHeader::read(page.first_chunk().unwrap()).numrec as usize;
        let entries = page[1024..].chunks_exact(1024).take(count);
        entries
            .map(|entry| log::DiscoveryEntry::read(entry.try_into().unwrap()))
            .map(|entry| (entry.subtype, entry.traddr.to_string(), entry.trsvcid.to_string(), entry.treq))
            .collect::<Vec<_>>()
    };
    let (own, listens) = (address.port().to_string(), served.address.port().to_string());
    let here = "127.0.0.1".to_string();
    // Nothing on secure channels (bits 1:0), as nvmet: some hosts take "not required" for a demand.
    let all = [(3, here.clone(), own, 4), (2, here, listens, 4), (1, "192.0.2.1".into(), "8009".into(), 4)];
    assert_eq!(entries(), all);
    // Under another NQN it is a subsystem that hosts are referred to.
    let subsystem = nvme_target::Referral { nqn: NQN.parse().unwrap(), ..other.clone() };
    target.add_referral(subsystem.clone()).unwrap();
    assert_eq!(entries()[3], (2, "192.0.2.1".into(), "8009".into(), 4));
    target.remove_referral(&subsystem).unwrap();
    target.remove_referral(&other).unwrap();
    assert_eq!(entries(), all[..2]);
    let mut host = Host::open(address, false, false);
    let done = host.connect(0, 32, 0xffff, NQN, HOST);
    assert!(done.status.is(Status::CONNECT_INVALID_PARAMETERS), "no subsystem is there: {}", done.status);
    target.remove_listener(DISCOVERY_NQN, address).unwrap().wait();
    assert_eq!(target.discovery_listeners(), [served.address.into()]);
}

#[test]
fn connect_is_refused_for_the_right_reasons() {
    let served = Served::plain();
    let mut admin = Host::admin(served.address);
    let at = |done: nvme::spec::Completion| {
        assert!(done.status.is(Status::CONNECT_INVALID_PARAMETERS), "{}", done.status);
        nvme::spec::fabrics::Connect::invalid_parameter(done.result)
    };
    // Another Connect may succeed: when the target has been set up again, or when the host begins anew.
    let at_now = |done: nvme::spec::Completion| {
        assert!(!done.status.is_do_not_retry(), "Linux would give its controller up for good: {}", done.status);
        at(done)
    };
    let open = || Host::open(served.address, false, false);
    assert_eq!(at_now(open().connect(0, 32, 0xffff, "nqn.2016-06.io.spdk:none", HOST)), (true, 256));
    assert_eq!(at(open().connect(0, 32, 5, NQN, HOST)), (true, 16));
    let unused = if admin.cntlid == 1 { 2 } else { 1 };
    assert_eq!(at_now(open().connect(1, 32, unused, NQN, HOST)), (true, 16));
    assert_eq!(at(open().connect(65, 32, admin.cntlid, NQN, HOST)), (false, 42));
    assert_eq!(at(open().connect(1, 1, admin.cntlid, NQN, HOST)), (false, 44));
    assert_eq!(at(open().connect(1, 2000, admin.cntlid, NQN, HOST)), (false, 44));
    assert_eq!(at(open().connect(1, 32, 0xffff, DISCOVERY_NQN, HOST)), (false, 42));
    let done = open().connect(1, 32, admin.cntlid, NQN, "nqn.2016-06.io.spdk:other");
    assert_eq!(done.status, Status::CONNECT_INVALID_HOST);
    let _queue = admin.queue(served.address, 1, false);
    assert!(open().connect(1, 32, admin.cntlid, NQN, HOST).status.is(Status::COMMAND_SEQUENCE_ERROR));
    assert!(admin.connect(0, 32, 0xffff, NQN, HOST).status.is(Status::COMMAND_SEQUENCE_ERROR));
    // Not enabled: no I/O queues.
    let mut fresh = open();
    let done = fresh.connect(0, 32, 0xffff, NQN, HOST);
    assert!(open().connect(1, 32, done.result as u16, NQN, HOST).status.is(Status::COMMAND_SEQUENCE_ERROR));
    let identify = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0);
    assert_eq!(fresh.fetch(identify).unwrap().len(), 4096, "what may be asked before it is enabled");
    // Other commands before Connect are refused, and Connect is still possible.
    let mut early = open();
    assert!(early.command(Host::read_command(1, 0, 8), &[]).status.is(Status::COMMAND_SEQUENCE_ERROR));
    assert!(early.connect(0, 32, 0xffff, NQN, HOST).status.is_ok());
}

/// The queues of a controller are at several reactors, and its SMART log page tells of them all.
#[test]
fn the_smart_log_counts_the_work_of_every_reactor() {
    let options = Options { reactors: 3, balances: false, ..Options::default() };
    let served = Served::with(options, &[("mem", DeviceKind::Memory { bytes: 1 << 20 })]);
    let mut admins: Vec<Host> = (0..3).map(|_| Host::admin(served.address)).collect();
    for admin in &admins {
        let mut queues: Vec<Host> = (1..4).map(|id| admin.queue(served.address, id, false)).collect();
        for queue in &mut queues {
            assert!(queue.write(1, 0, &[1; 4096]).is_ok());
            assert!(queue.read(1, 0, 16).is_ok() && queue.read(1, 0, 16).is_ok());
        }
    }
    let reactors = served.target.stats().reactors;
    assert!(reactors.iter().all(|reactor| reactor.completed_io > 0), "each of them has queues");
    let command = GetLogPage { lid: log::SMART, lsp: 0, retain: false, length: 512, offset: 0 }.command(0);
    for admin in &mut admins {
        raw::until(|| {
            let smart = log::Smart::read(admin.fetch(command).unwrap().first_chunk().unwrap());
            let units = (smart.data_units_read, smart.data_units_written);
            assert!(smart.host_reads <= 18 && smart.host_writes <= 9 && smart.media_errors == 0);
            (smart.host_reads, smart.host_writes, units) == (18, 9, (1, 1))
        });
    }
}

/// The log page of discovery is a megabyte, which a host reads in parts.
#[test]
fn a_thousand_subsystems_are_discovered() {
    let served = Served::plain();
    let nqn = |number: u32| format!("nqn.2016-06.io.spdk:cnode{number}");
    for number in 2..=1000 {
        let spec = SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(nqn(number)) };
        served.target.create_subsystem(spec).unwrap();
        served.target.add_listener(&nqn(number), served.address).unwrap();
    }
    let mut discovery = Host::admin_of(served.address, DISCOVERY_NQN, HOST, false);
    let mut page = Vec::new();
    while page.len() < 1024 * 1002 {
        let part = GetLogPage { lid: log::DISCOVERY, lsp: 0, retain: false, length: 65_536, offset: page.len() as u64 };
        page.extend(discovery.fetch(part.command(0)).unwrap());
    }
    assert_eq!(log::DiscoveryHeader::read(page.first_chunk().unwrap()).numrec, 1001);
    let entries = page[1024..].chunks_exact(1024).take(1001);
    let names = entries.map(|entry| log::DiscoveryEntry::read(entry.try_into().unwrap()).subnqn);
    let expected = std::iter::once(DISCOVERY_NQN.to_string()).chain((1..=1000).map(nqn));
    assert!(names.eq(expected.map(|name| name.parse::<nvme::spec::Nqn>().unwrap().field())));
}

#[test]
fn shutdown_and_reset_end_the_io_queues() {
    use nvme::spec::fabrics::PropertyAccess;
    use nvme::spec::property::{self, Configuration, ControllerStatus};
    let served = Served::plain();
    for value in [Configuration::ENABLED.with_shutdown().0, 0] {
        let (mut admin, mut queue) = Host::pair(served.address);
        assert!(admin.command(PropertyAccess::set(property::CC, 4, value.into()), &[]).status.is_ok());
        assert!(queue.is_closed());
        let status = admin.command(PropertyAccess::get(property::CSTS, 4), &[]).result as u32;
        let status = ControllerStatus::of(status);
        assert_eq!((status.shutdown, status.ready), if value == 0 { (0, false) } else { (2, true) });
    }
    let (admin, mut queue) = Host::pair(served.address);
    drop(admin);
    assert!(queue.is_closed(), "with the admin queue the controller goes");
    raw::until(|| served.connections() == 0);
    // Disconnect ends one queue.
    let (mut admin, mut queue) = Host::pair(served.address);
    assert!(queue.command(raw::fabrics_command(nvme::spec::fabrics::DISCONNECT), &[]).status.is_ok());
    let mut again = admin.queue(served.address, 1, false);
    assert_eq!(again.read(1, 0, 8).unwrap().len(), 4096, "its number is free at once");
    assert!(queue.is_closed());
    assert!(admin.command(Command::new(admin::KEEP_ALIVE, 0), &[]).status.is_ok());
}

#[test]
fn two_reactors_serve_the_queues_of_one_controller() {
    let options = Options { reactors: 2, ..Options::default() };
    let served = Served::with(options, &[("mem", DeviceKind::Memory { bytes: 8 << 20 })]);
    let admin = Host::admin(served.address);
    let mut queues: Vec<Host> = (1..=6).map(|qid| admin.queue(served.address, qid, false)).collect();
    for (index, queue) in queues.iter_mut().enumerate() {
        assert_eq!(queue.write(1, index as u64 * 256, &pattern(131_072, index as u8)), Status::SUCCESS);
    }
    for (index, queue) in queues.iter_mut().rev().enumerate() {
        let index = 5 - index;
        let other = (index + 3) % 6;
        assert_eq!(queue.read(1, other as u64 * 256, 256).unwrap(), pattern(131_072, other as u8));
    }
    let stats = served.target.stats();
    assert_eq!(stats.reactors.len(), 2);
    assert!(stats.reactors.iter().all(|reactor| reactor.io_qpairs == 3 || reactor.admin_qpairs == 1));
    assert_eq!((stats.devices[0].reads, stats.devices[0].writes), (6, 6));
    assert_eq!(stats.hosts[0].connections, 7);
    drop(admin);
    assert!(queues.iter_mut().all(Host::is_closed), "on both reactors");
}

/// Hosts with one I/O queue each: their admin queues, which come first, do not push all I/O to the other reactor.
#[test]
fn the_io_queues_of_eight_hosts_are_spread_over_two_reactors() {
    let options = Options { reactors: 2, ..Options::default() };
    let served = Served::with(options, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    let spread = || -> Vec<u32> { served.target.stats().reactors.iter().map(|reactor| reactor.io_qpairs).collect() };
    let mut hosts: Vec<(Host, Host)> = (0..8).map(|_| Host::pair(served.address)).collect();
    assert_eq!(spread(), [4, 4]);
    // Half of the hosts go, all from one reactor if need be; those that come take their places.
    hosts.truncate(4);
    raw::until(|| served.connections() == 8);
    hosts.extend((0..4).map(|_| Host::pair(served.address)));
    assert_eq!(spread(), [4, 4]);
}

#[test]
fn a_delay_device_delays_and_nothing_else() {
    const READ_US: u64 = 3_000_000; // longer than anybody is kept from a processor between the two reads
    let latency = Latency { avg_read_us: READ_US, p99_read_us: READ_US, avg_write_us: 0, p99_write_us: 0 };
    let served = Served::with(
        Options::default(),
        &[
            ("mem", DeviceKind::Memory { bytes: 1 << 20 }),
            ("slow", DeviceKind::Delay { base: "mem".into(), latency }),
            ("fast", DeviceKind::Null { bytes: 1 << 20 }),
        ],
    );
    let (_admin, mut queue) = Host::pair(served.address);
    assert_eq!(queue.write(1, 0, &pattern(4096, 3)), Status::SUCCESS);
    let began = std::time::Instant::now();
    let (slow, fast) = (queue.cid(), queue.cid());
    let reads = [(slow, 1), (fast, 2)].map(|(cid, nsid)| Command { cid, ..Host::read_command(nsid, 0, 8) });
    queue.send(&reads.map(|read| queue.capsule(&read, &[])).concat());
    let mut order = Vec::new();
    while order.len() < 2 {
        if let nvme::pdu::Pdu::CapsuleResp(done) = queue.unit().unwrap().pdu {
            order.push(done.cid);
        }
    }
    assert_eq!(order, [fast, slow]);
    assert!(began.elapsed().as_micros() >= READ_US.into());
}

#[test]
fn a_file_is_served_grows_and_is_served_by_one_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk.img");
    let file = |create_bytes| DeviceKind::File {
        path: path.clone(),
        create_bytes,
        direct: true,
        read_only: false,
        keeps_allocated: false,
        shared: false,
    };
    let served = Served::with(Options::default(), &[("file", file(Some(4 << 20)))]);
    let block = served.target.devices()[0].block_bytes;
    let blocks = |bytes: u32| bytes / block;
    let (_admin, mut queue) = Host::pair(served.address);
    let data = pattern(131_072, 5);
    let write = |lba: u32| {
        let command = Command::blocks(io::WRITE, 1, lba.into(), blocks(131_072));
        Command { sgl: Sgl::transport(131_072), cdw12: command.cdw12 | Command::FUA, ..command }
    };
    assert_eq!(queue.send_data(write(blocks(8192)), &data, 50_000), Status::SUCCESS);
    assert_eq!(std::fs::read(&path).unwrap()[8192..8192 + 131_072], data);
    let read = Command::blocks(io::READ, 1, blocks(8192).into(), blocks(131_072));
    assert_eq!(queue.fetch(Command { sgl: Sgl::transport(131_072), ..read }).unwrap(), data);
    let beyond = write(blocks(5 << 20));
    assert!(queue.command(beyond, &[]).status.is(Status::LBA_OUT_OF_RANGE));
    assert_eq!(served.target.resize_device("file", Some(8 << 20)).unwrap().blocks, u64::from(blocks(8 << 20)));
    assert_eq!(queue.send_data(beyond, &data, 131_072), Status::SUCCESS);
    // A second writer, of this target or another, would destroy it.
    let spec =
        nvme_target::device::DeviceSpec { name: "again".into(), block_bytes: None, uuid: None, kind: file(None) };
    let error = served.target.create_device(spec).unwrap_err();
    assert_eq!(error.kind, nvme_target::ErrorKind::Busy, "{error}");
    // A file that is cut off under the target: errors, not zeros and not the end.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let read = Command::blocks(io::READ, 1, blocks(4 << 20).into(), blocks(131_072));
    let error = queue.fetch(Command { sgl: Sgl::transport(131_072), ..read }).unwrap_err();
    assert!(error.is(Status::UNRECOVERED_READ_ERROR), "{error}");
}

/// A write whose data come after its file has been made smaller, by an RPC or by an administrator who then has it
/// scanned, is refused: it does not make the file grow again.
#[test]
fn a_write_that_waits_while_its_file_shrinks_is_out_of_range() {
    for by_rpc in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk.img");
        let kind = DeviceKind::File {
            path: path.clone(),
            create_bytes: Some(4 << 20),
            direct: true,
            read_only: false,
            keeps_allocated: false,
            shared: false,
        };
        let served = Served::with(Options::default(), &[("file", kind)]);
        let lba = (2 << 20) / served.target.devices()[0].block_bytes;
        let (_admin, mut queue) = Host::pair(served.address);
        let bytes = 8 << 10;
        let write = Command::blocks(io::WRITE, 1, lba.into(), bytes / served.target.devices()[0].block_bytes);
        let cid = queue.send_command(Command { sgl: Sgl::transport(bytes), ..write }, &[]);
        let nvme::pdu::Pdu::R2t(ready) = queue.unit().unwrap().pdu else { panic!("no R2T") };
        let smaller = 1 << 20;
        if !by_rpc {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(smaller).unwrap();
        }
        served.target.resize_device("file", by_rpc.then_some(smaller)).unwrap();
        let header = nvme::pdu::H2cData { cid, ttag: ready.ttag, offset: 0, length: bytes, last: true };
        let data = queue.h2c(&header, &pattern(bytes as usize, 9));
        queue.send(&data);
        let status = queue.response().status;
        assert!(status.is(Status::LBA_OUT_OF_RANGE), "{status}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), smaller);
        served.assert_alive();
    }
}

#[test]
fn memory_that_the_machine_does_not_have_is_refused_and_nothing_ends() {
    use nvme_target::device::DeviceSpec;
    let served = Served::plain();
    let spec = |bytes| DeviceSpec {
        name: "huge".into(),
        block_bytes: Some(4096),
        uuid: None,
        kind: DeviceKind::Memory { bytes },
    };
    for bytes in [1 << 44, 1 << 54, 1 << 60] {
        let error = served.target.create_device(spec(bytes)).unwrap_err();
        assert_eq!(error.kind, nvme_target::ErrorKind::Full, "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
        let error = served.target.resize_device("mem", Some(bytes)).unwrap_err();
        assert_eq!(error.kind, nvme_target::ErrorKind::Full, "{error}");
    }
    // Half of what there is, twice, is all of it: what a device may still take is spoken for.
    let half = sys::memory::available_bytes().unwrap() / 2 / 4096 * 4096;
    served.target.create_device(spec(half)).unwrap();
    let again = DeviceSpec { name: "again".into(), ..spec(half + (1 << 30)) };
    assert_eq!(served.target.create_device(again).unwrap_err().kind, nvme_target::ErrorKind::Full);
    served.assert_alive();
}

#[test]
fn commands_without_an_sgl_are_refused_on_every_queue() {
    let served = Served::plain();
    let (mut admin, mut queue) = Host::pair(served.address);
    let refused = Status::INVALID_FIELD.do_not_retry();
    for flags in [0x00, 0x80, 0xc0] {
        let identify = Command { flags, ..Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0) };
        assert_eq!(admin.command(identify, &[]).status, refused);
        assert_eq!(admin.command(Command { flags, ..Command::new(admin::KEEP_ALIVE, 0) }, &[]).status, refused);
        assert_eq!(queue.command(Command { flags, ..Host::read_command(1, 0, 8) }, &[]).status, refused);
        let write = Command { flags, sgl: Sgl::in_capsule(4096), ..Host::write_command(1, 0, 4096) };
        assert_eq!(queue.command(write, &[7; 4096]).status, refused);
    }
    assert_eq!(queue.read(1, 0, 8).unwrap(), vec![0; 4096]);
    let unknown = Command { sgl: Sgl { length: 4096, id: 0x30, ..Sgl::default() }, ..Host::read_command(1, 0, 8) };
    assert_eq!(queue.command(unknown, &[]).status, Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry());
}

#[test]
fn the_error_log_has_the_commands_that_failed() {
    let served = Served::plain();
    let (mut admin, mut queue) = Host::pair(served.address);
    let blocks = (64 << 20) / 512;
    let io = queue.send_command(Host::read_command(1, blocks, 1), &[]);
    let status = queue.response().status;
    let own = admin.send_command(Command::new(0x7e, 0), &[]);
    assert!(admin.response().status.is(Status::INVALID_OPCODE));
    let page = |lid, length| GetLogPage { lid, lsp: 0, retain: false, length, offset: 0 };
    let log = admin.fetch(page(log::ERROR, 1024).command(0)).unwrap();
    let entry = |index: usize| log::ErrorEntry::read(log[index * 64..][..64].try_into().unwrap());
    assert_eq!((entry(0).error_count, entry(0).sqid, entry(0).cid), (2, 0, own));
    assert_eq!((entry(1).sqid, entry(1).cid, entry(1).status >> 1), (1, io, status.bits()));
    assert_eq!((entry(1).nsid, entry(1).lba, entry(1).trtype), (1, blocks, log::DiscoveryEntry::TCP));
    assert_eq!((entry(0).nsid, entry(0).lba), (0, 0));
    assert_eq!(entry(2).error_count, 0);
    let smart = admin.fetch(page(log::SMART, 512).command(0)).unwrap();
    assert_eq!(log::Smart::read(smart.first_chunk().unwrap()).error_entries, 2);
    let controller = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
    assert_eq!(IdentifyController::read(controller.first_chunk().unwrap()).elpe, 15);
}

#[test]
fn a_log_page_is_as_long_as_it_is_and_zeros_follow_it_for_a_while() {
    let served = Served::plain();
    let mut admin = Host::admin(served.address);
    let page = |length| GetLogPage { lid: log::SMART, lsp: 0, retain: false, length, offset: 0 };
    for (asked, answered) in [(512, 512), (4096, 4096), (16_384, 16_384), (1 << 20, 16_384)] {
        let data = admin.fetch(page(asked).command(u32::MAX)).unwrap();
        assert_eq!(data.len(), answered);
        assert!(data[512..].iter().all(|&byte| byte == 0));
    }
}

/// MDTS 0 would mean that there is no limit.
#[test]
fn small_limits_on_io_are_told_to_hosts() {
    for (max_io_bytes, mdts) in [(8192, 1), (16_384, 2), (131_072, 5)] {
        let options = Options { max_io_bytes, ..Options::default() };
        let served = Served::with(options, &[("mem", DeviceKind::Memory { bytes: 1 << 20 })]);
        let (mut admin, mut queue) = Host::pair(served.address);
        let page = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
        assert_eq!(IdentifyController::read(page.first_chunk().unwrap()).mdts, mdts);
        assert_eq!(queue.read(1, 0, max_io_bytes / 512).unwrap().len(), max_io_bytes as usize);
        assert!(queue.read(1, 0, max_io_bytes / 512 + 1).unwrap_err().is(Status::INVALID_FIELD));
    }
    assert!(nvme_target::Target::start(Options { max_io_bytes: 4096, ..Options::default() }).is_err());
}

#[test]
fn without_flow_control_reads_end_with_their_data_and_with_it_by_a_response() {
    use nvme::pdu::Pdu;
    use nvme::spec::fabrics::Connect;
    let served = Served::plain();
    for (cattr, sqhd) in [(Connect::NO_FLOW_CONTROL, 0xffff), (0, 0)] {
        let mut host = Host::open(served.address, false, false);
        let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr, kato_ms: 0 };
        let done = host.command(connect.command(), &Host::connect_data(0xffff, NQN, HOST).write());
        assert_eq!((done.status, done.sqhd), (Status::SUCCESS, sqhd));
        host.enable();
        host.send_command(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0), &[]);
        let Pdu::C2hData(data) = host.unit().unwrap().pdu else { panic!("no data") };
        assert_eq!((data.last, data.success), (true, cattr != 0));
        if cattr == 0 {
            assert!(host.response().status.is_ok());
        }
        assert!(host.command(Command::new(admin::KEEP_ALIVE, 0), &[]).status.is_ok(), "nothing else came");
    }
}

#[test]
fn registers_are_read_as_nvme_cli_reads_them() {
    use nvme::spec::fabrics::PropertyAccess;
    use nvme::spec::property;
    let served = Served::plain();
    let mut admin = Host::admin(served.address);
    let mut get = |offset, bytes| admin.command(PropertyAccess::get(offset, bytes), &[]);
    let whole = get(property::CAP, 8).result;
    let halves = get(property::CAP, 4).result | get(property::CAP_HIGH, 4).result << 32;
    assert_eq!(whole, halves);
    assert_eq!(get(property::NSSR, 4).result, 0);
    // Registers that only PCIe has: none, and nothing that ends the list.
    for offset in [0x0c, 0x10, 0x24, 0x38, 0x3c] {
        assert_eq!(get(offset, 4).status, Status::INVALID_FIELD);
    }
}
