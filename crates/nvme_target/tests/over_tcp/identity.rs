//! Identities: two targets, two devices and two copies are never taken for one by a host with several paths, and what
//! is one thing stays one.

use crate::raw;

use std::collections::BTreeSet;
use std::path::Path;

use nvme::spec::{Identify, IdentifyController, IdentifyNamespace, NamespaceIds, Status, cns};
use nvme_target::device::{DeviceKind, DeviceSpec, Latency};
use nvme_target::{NamespaceSpec, Options, SubsystemSpec};
use raw::{HOST, Host, NQN, Served};

/// The identities that a host is told of a target: the serial number, the controller's identifier, and the names of
/// each namespace.
fn told(served: &Served, nsids: &[u32]) -> (String, u16, Vec<NamespaceIds>) {
    let mut admin = Host::admin(served.address);
    let page = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
    let controller = IdentifyController::read(page.first_chunk().unwrap());
    let mut names = |nsid: &u32| {
        let list = admin.fetch(Identify { cns: cns::NAMESPACE_IDS, cntid: 0, csi: 0 }.command(*nsid)).unwrap();
        let page = admin.fetch(Identify { cns: cns::NAMESPACE, cntid: 0, csi: 0 }.command(*nsid)).unwrap();
        let namespace = IdentifyNamespace::read(page.first_chunk().unwrap());
        let names = NamespaceIds::read(list.first_chunk().unwrap());
        assert_eq!((Some(namespace.nguid), Some(namespace.eui64)), (names.nguid, names.eui64), "both structures agree");
        names
    };
    let names = nsids.iter().map(&mut names).collect();
    (controller.sn.to_string(), controller.cntlid, names)
}

fn file(path: &Path) -> DeviceKind {
    DeviceKind::File {
        path: path.to_path_buf(),
        create_bytes: Some(1 << 20),
        direct: false,
        read_only: false,
        keeps_allocated: false,
        shared: false,
    }
}

/// Nothing of one is anything of another.
fn assert_all_differ(names: &[NamespaceIds]) {
    let uuids: BTreeSet<_> = names.iter().map(|names| names.uuid.expect("a UUID")).collect();
    let nguids: BTreeSet<_> = names.iter().map(|names| names.nguid.expect("an NGUID")).collect();
    let eui64s: BTreeSet<_> = names.iter().map(|names| names.eui64.expect("an EUI-64")).collect();
    assert_eq!((uuids.len(), nguids.len(), eui64s.len()), (names.len(), names.len(), names.len()), "{names:?}");
}

#[test]
fn two_targets_with_defaults_differ_in_all_that_hosts_compare() {
    let (one, other) = (Served::plain(), Served::plain());
    let ((_, first, names), (_, second, others)) = (told(&one, &[1, 2]), told(&other, &[1, 2]));
    // Chosen at random among 65519: a third target tells a defect from chance.
    assert!(first != second || first != told(&Served::plain(), &[]).1, "controllers of one NQN");
    assert_all_differ(&[names, others].concat());
}

#[test]
fn a_file_is_the_same_after_a_restart_and_its_copy_is_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let serve = |path: &Path| told(&Served::with(Options::default(), &[("d", file(path))]), &[1]);
    let (serial, _, before) = serve(&path);
    assert_eq!(serial.len(), 20);
    let (same_serial, _, after) = serve(&path);
    assert_eq!((same_serial, after), (serial, before.clone()));
    let copy = directory.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let (_, _, of_copy) = serve(&copy);
    assert_all_differ(&[before, of_copy].concat());
}

#[test]
fn memory_is_another_each_time_and_devices_on_a_device_are_themselves() {
    let latency = Latency::default();
    let part = |number: u64| DeviceKind::Slice { base: "mem".into(), offset_bytes: number << 20, bytes: 1 << 20 };
    let devices = [
        ("mem", DeviceKind::Memory { bytes: 2 << 20 }),
        ("part0", part(0)),
        ("part1", part(1)),
        ("null", DeviceKind::Null { bytes: 1 << 20 }),
        ("slow", DeviceKind::Delay { base: "null".into(), latency }),
    ];
    let (one, other) = (Served::with(Options::default(), &devices), Served::with(Options::default(), &devices));
    let (_, _, names) = told(&one, &[1, 2, 3]);
    let (_, _, others) = told(&other, &[1, 2, 3]);
    assert_all_differ(&[names, others].concat());
    let uuids: BTreeSet<_> = one.target.devices().into_iter().map(|device| device.uuid).collect();
    assert_eq!(uuids.len(), devices.len(), "a device is not what it stands on");
}

#[test]
fn parts_of_a_file_stay_themselves_and_a_file_under_two_names_is_two() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    std::fs::write(&path, [0; 1 << 20]).unwrap();
    let part = |number: u64| DeviceKind::Slice { base: "d".into(), offset_bytes: number << 19, bytes: 1 << 19 };
    let serve = || {
        let served = Served::with(Options::default(), &[("d", file(&path)), ("p0", part(0)), ("p1", part(1))]);
        told(&served, &[1, 2]).2
    };
    let before = serve();
    assert_eq!(serve(), before);
    assert_all_differ(&before);
    let reader = || DeviceKind::File {
        path: path.clone(),
        create_bytes: None,
        direct: false,
        read_only: true,
        keeps_allocated: false,
        shared: false,
    };
    let served = Served::with(Options::default(), &[("a", reader()), ("b", reader())]);
    assert_all_differ(&told(&served, &[1, 2]).2);
}

#[test]
fn what_the_user_says_wins_and_is_said_once() {
    let served = Served::plain();
    let target = &served.target;
    let (uuid, nguid, eui64) = ([1; 16], [2; 16], [3; 8]);
    let spec = |name: &str, uuid| DeviceSpec {
        name: name.into(),
        block_bytes: None,
        uuid: Some(uuid),
        kind: DeviceKind::Null { bytes: 1 << 20 },
    };
    target.create_device(spec("given", uuid)).unwrap();
    let error = target.create_device(spec("again", uuid)).unwrap_err().to_string();
    assert!(error.contains("\"again\" has the UUID of device \"given\""), "{error}");
    let namespace =
        |device: &str| NamespaceSpec { nguid: Some(nguid), eui64: Some(eui64), ..NamespaceSpec::new(device) };
    let nsid = target.add_namespace(NQN, namespace("given")).unwrap();
    let names = told(&served, &[nsid]).2.remove(0);
    assert_eq!((names.uuid, names.nguid, names.eui64), (Some(uuid), Some(nguid), Some(eui64)));
    target.create_device(spec("other", [4; 16])).unwrap();
    let error = target.add_namespace(NQN, namespace("other")).unwrap_err().to_string();
    assert!(error.contains("UUID, NGUID or EUI-64 of that on \"given\""), "{error}");
    target.add_namespace(NQN, NamespaceSpec::new("other")).unwrap();
}

#[test]
fn controllers_get_identifiers_of_the_range_that_their_subsystem_has() {
    let served = Served::plain();
    let nqn = "nqn.2016-06.io.spdk:ranged";
    let spec = |ids| SubsystemSpec { controller_ids: Some(ids), allow_any_host: true, ..SubsystemSpec::new(nqn) };
    for wrong in [(0, 5), (6, 5), (1, 65_520)] {
        assert!(served.target.create_subsystem(spec(wrong)).unwrap_err().to_string().contains("1 to 65519"));
    }
    served.target.create_subsystem(spec((40, 41))).unwrap();
    let address = served.target.add_listener(nqn, "127.0.0.1:0".parse().unwrap()).unwrap();
    let connect = || {
        let mut host = Host::open(address, false, false);
        let done = host.connect(0, 32, 0xffff, nqn, HOST);
        (host, done)
    };
    let ((_first, one), (_second, two)) = (connect(), connect());
    assert_eq!((one.result as u16, two.result as u16), (40, 41));
    let (_third, done) = connect();
    assert!(done.status.is(Status::CONNECT_CONTROLLER_BUSY), "{}", done.status);
}

#[test]
fn hosts_without_a_proper_name_are_let_in_with_any_host_and_told_of_once() {
    let served = Served::plain();
    let connect = |hostnqn: &[u8]| {
        let mut host = Host::open(served.address, false, false);
        let mut data = Host::connect_data(0xffff, NQN, HOST);
        data.hostnqn = [0; 256];
        data.hostnqn[..hostnqn.len()].copy_from_slice(hostnqn);
        host.command(Host::connect_command(0, 32), &data.write()).status
    };
    assert!(raw::serving::warnings(&served.target).is_empty());
    let odd: [&[u8]; 4] = [b"", b"iqn.2016-06.io.spdk:host", &[b'a'; 256], &[0xff; 256]];
    for name in odd {
        assert!(connect(name).is_ok(), "{name:?}");
    }
    let warnings = raw::serving::warnings(&served.target);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("127.0.0.1 gives no name (HOSTNQN is empty)"), "{warnings:?}");
    served.target.allow_any_host(NQN, false).unwrap();
    served.target.add_host(NQN, HOST).unwrap();
    for name in odd {
        assert!(connect(name).is(Status::CONNECT_INVALID_HOST), "{name:?}");
    }
    assert!(connect(HOST.as_bytes()).is_ok());
}
