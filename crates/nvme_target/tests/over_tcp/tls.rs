//! Listeners that demand TLS: the hosts that they let in, and the others.

use crate::raw;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use nvme::Wire;
use nvme::auth::{Credentials, Keys, Secret, TlsKey};
use nvme::pdu::{self, Agreement, End, IcReq, Next, Pdu, Receiver};
use nvme::spec::{DISCOVERY_NQN, Status};
use nvme_initiator::{Address, Controller, Link, Options, discover};
use nvme_rpc::{Control, Settings};
use nvme_target::{Limits, SecureChannel, SubsystemSpec, Target};
use serde_json::{Value, json};

const FIRST: &str = "nqn.2016-06.io.spdk:first";
const SECOND: &str = "nqn.2016-06.io.spdk:second";
const HOST: &str = "nqn.2016-06.io.spdk:host1";
const OTHER_HOST: &str = "nqn.2016-06.io.spdk:host2";
const KEY: &str = "NVMeTLSkey-1:01:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:";
/// A key of the bytes of [`KEY`], but a retained one.
const OTHER_KEY: &str = "NVMeTLSkey-1:00:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:";
/// A key of the other suite.
const LONG_KEY: &str = "NVMeTLSkey-1:02:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmYwMDExMjIzMzQ0NTU2Njc3wWXNJw==:";

struct Served {
    target: Target,
    address: SocketAddr,
}

/// Two subsystems on one secured address; [`HOST`] has a key for the first.
fn served() -> Served {
    // No client is cut off because time is over.
    let limits = Limits { handshake: Duration::from_secs(3600), ..Limits::default() };
    let target = Target::start(nvme_target::Options { limits, ..nvme_target::Options::default() }).unwrap();
    let keys = Keys::default();
    keys.set_tls(FIRST, HOST, Some(TlsKey::parse(KEY).unwrap()));
    target.set_tls_keys(Arc::new(move |identity| keys.tls_keys(identity)));
    let mut address = "127.0.0.1:0".parse().unwrap();
    for nqn in [FIRST, SECOND] {
        target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(nqn) }).unwrap();
        address = target.add_secure_listener(nqn, address, SecureChannel::Required).unwrap();
    }
    Served { target, address }
}

fn options(host: &str, key: Option<&str>) -> Options {
    let tls_key = key.map(|key| TlsKey::parse(key).unwrap());
    let mut options = Options { tls_key, timeout: Duration::from_secs(60), ..Options::default() };
    options.set_host(host.parse().unwrap());
    options
}

fn connect(address: SocketAddr, subsystem: &str, options: &Options) -> Result<(), String> {
    let address = Address { subnqn: Some(subsystem.parse().unwrap()), ..address.into() };
    Controller::connect(&address, options).map(drop).map_err(|error| error.to_string())
}

/// The status of a Connect of `host` to `subsystem`, over a connection that [`HOST`] has secured for `of_key`.
fn connected_by_hand(address: SocketAddr, of_key: &str, subsystem: &str, host: &str) -> Status {
    let key = TlsKey::parse(KEY).unwrap().offers(HOST, of_key).remove(0);
    let stream = TcpStream::connect(address).unwrap();
    let mut wire = Wire::secured(tls::Connector::new().unwrap().connect(stream, key).unwrap());
    wire.write_all(&IcReq::asking(false, false).pdu()).unwrap();
    wire.read_exact(&mut [0; 128]).unwrap();
    let data = raw::Host::connect_data(raw::dynamic(), subsystem, host);
    let mut capsule = vec![0; pdu::MAX_HEADER_BYTES];
    let len = pdu::command(
        &raw::Host::connect_command(0, 32),
        data.write().len() as u32,
        &Agreement::default(),
        &mut capsule,
    );
    capsule.truncate(len);
    capsule.extend_from_slice(&data.write());
    wire.write_all(&capsule).unwrap();
    let mut answer = [0; 24];
    wire.read_exact(&mut answer).unwrap();
    match Receiver::new(End::Controller, pdu::Limits { capsule: 0, data: 0 }).next(&answer) {
        Ok(Next::Unit(_, Pdu::CapsuleResp(completion))) => completion.status,
        other => panic!("{other:?}"),
    }
}

/// The identity of the key that secures a connection.
fn identity(link: &Link) -> &str {
    let Link::Tcp(link) = link else { panic!("over TCP") };
    link.stream.identity().expect("secured")
}

#[test]
fn a_host_gets_in_with_its_key_and_where_the_key_is_for() {
    let served = served();
    assert_eq!(connect(served.address, FIRST, &options(HOST, Some(KEY))), Ok(()));
    for (subsystem, host, key) in [
        (FIRST, HOST, OTHER_KEY),
        (FIRST, OTHER_HOST, KEY),
        (SECOND, HOST, KEY), // any host may use the subsystem, but no key is for it
    ] {
        let error = connect(served.address, subsystem, &options(host, Some(key))).unwrap_err();
        assert!(error.contains("the TLS handshake failed"), "{error}");
    }
    assert!(served.target.shutdown(Duration::from_secs(60)));
}

/// A target that knows the key under one identity only, and derived in one way.
#[test]
fn a_host_tries_each_way_to_derive_the_key() {
    let offers = TlsKey::parse(KEY).unwrap().offers(HOST, FIRST);
    assert_eq!(offers.len(), 4);
    for only in offers {
        let target = Target::start(nvme_target::Options::default()).unwrap();
        target.set_tls_keys(Arc::new(move |identity| {
            [&only].into_iter().filter(|key| key.identity == identity).cloned().collect()
        }));
        target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(FIRST) }).unwrap();
        let address =
            target.add_secure_listener(FIRST, "127.0.0.1:0".parse().unwrap(), SecureChannel::Required).unwrap();
        assert_eq!(connect(address, FIRST, &options(HOST, Some(KEY))), Ok(()));
        assert!(target.shutdown(Duration::from_secs(60)));
    }
}

/// A listener on which [`HOST`] makes its key of TLS by authentication, in one direction or in both.
fn concatenating(mutual: bool) -> (Served, Options) {
    let target = Target::start(nvme_target::Options::default()).unwrap();
    let keys = Arc::new(Keys::default());
    let secret = |text: &str| Secret::parse(text).unwrap();
    let host = secret("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
    let back = mutual.then(|| host.clone());
    keys.set(FIRST, HOST, Some(Credentials { host: host.clone(), controller: back.clone() }));
    let found = Arc::clone(&keys);
    target.set_tls_keys(Arc::new(move |identity| found.tls_keys(identity)));
    target.set_authenticator(Some(keys));
    let spec = SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(FIRST) };
    target.create_subsystem(spec).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let address = target.add_secure_listener(FIRST, address, SecureChannel::Concatenated).unwrap();
    let mut options = options(HOST, None);
    (options.secret, options.controller_secret, options.concatenation) = (Some(host), back, true);
    (Served { target, address }, options)
}

#[test]
fn an_authentication_makes_the_key_of_the_connections() {
    for mutual in [false, true] {
        let (served, options) = concatenating(mutual);
        for _ in 0..3 {
            let address = Address { subnqn: Some(FIRST.parse().unwrap()), ..served.address.into() };
            let (controller, queues) = Controller::connect(&address, &options).unwrap();
            assert!(queues.iter().all(|link| identity(link).starts_with("NVMe1G02 ")));
            drop(controller);
        }
        assert!(served.target.shutdown(Duration::from_secs(60)));
    }
}

#[test]
fn without_the_key_of_an_authentication_nobody_uses_the_listener() {
    let (served, options) = concatenating(false);
    let refused = |options: &Options| connect(served.address, FIRST, options).unwrap_err();
    let error = refused(&Options { concatenation: false, ..options.clone() });
    assert!(error.contains("it demands secure channel concatenation"), "{error}");
    let secret = Secret::parse("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:").unwrap();
    let error = refused(&Options { secret: Some(secret), ..options.clone() });
    assert!(error.contains("the keys differ"), "{error}");
    let mut other = options.clone();
    other.set_host(OTHER_HOST.parse().unwrap());
    refused(&other);
    // A host without a secret may get one later: it may try again.
    let mut unknown = raw::Host::open(served.address, false, false);
    assert_eq!(unknown.connect(0, 32, raw::dynamic(), FIRST, OTHER_HOST).status, Status::CONNECT_INVALID_HOST);
    // An I/O queue begins with TLS.
    let mut host = raw::Host::open(served.address, false, false);
    let status = host.connect(1, 32, 1, FIRST, HOST).status;
    assert!(status.is(Status::CONNECT_INVALID_HOST), "{status:?}");
    // The discovery service has no secrets.
    assert_eq!(
        discover(&served.address.into(), &Options { concatenation: false, ..options.clone() }).unwrap().len(),
        1
    );
    assert_eq!(connect(served.address, FIRST, &options), Ok(()));
    assert!(served.target.shutdown(Duration::from_secs(60)));
}

/// OpenSSL would take 128 KiB for each of these clients, which have sent some bytes and know no key.
#[test]
fn a_client_that_announces_a_long_message_is_cut_off() {
    let served = served();
    for announced in [8193, 20_000, 131_000] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length: [u8; 4] = u32::to_be_bytes(announced);
        stream.write_all(&[&[22, 3, 1, 0x40, 0, 1][..], &length[1..], &[3; 100]].concat()).unwrap();
        // The bytes that nobody read make the end a reset.
        match stream.read(&mut [0; 10]) {
            Ok(read) => assert_eq!(read, 0),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert_eq!(connect(served.address, FIRST, &options(HOST, Some(KEY))), Ok(()));
    assert!(served.target.shutdown(Duration::from_secs(60)));
}

#[test]
fn a_proven_key_does_not_open_what_is_for_others() {
    let served = served();
    // The key of the discovery service lets the host ask it, and nothing else.
    let found = discover(&served.address.into(), &options(HOST, Some(KEY))).unwrap();
    assert_eq!(found.iter().map(|one| one.nqn.as_str()).collect::<Vec<_>>(), [FIRST, SECOND]);
    let cases = [(DISCOVERY_NQN, FIRST, HOST), (FIRST, SECOND, HOST), (FIRST, FIRST, OTHER_HOST)];
    for (of_key, subsystem, host) in cases {
        let status = connected_by_hand(served.address, of_key, subsystem, host);
        assert_eq!(status, Status::CONNECT_INVALID_HOST.do_not_retry(), "{of_key} {subsystem} {host}");
    }
    assert!(connected_by_hand(served.address, FIRST, FIRST, HOST).is_ok());
    assert!(served.target.shutdown(Duration::from_secs(60)));
}

#[test]
fn a_plain_host_gets_nothing_and_harms_nobody() {
    let served = served();
    let error = connect(served.address, FIRST, &options(HOST, None)).unwrap_err();
    assert!(!error.contains("TLS handshake"), "{error}");
    let mut plain = TcpStream::connect(served.address).unwrap();
    plain.write_all(&IcReq::asking(false, false).pdu()).unwrap();
    let mut got = Vec::new();
    let _ = plain.read_to_end(&mut got); // a reset is an end too
    assert!(got.is_empty() || (got.len(), got[0]) == (7, 21), "an alert at the most: {got:?}");
    assert_eq!(connect(served.address, FIRST, &options(HOST, Some(KEY))), Ok(()));
    // A listener has one way for all its subsystems.
    let error = served.target.add_listener(DISCOVERY_NQN, served.address).unwrap_err();
    assert!(error.to_string().contains("a port of its own"), "{error}");
    assert!(served.target.shutdown(Duration::from_secs(60)));
}

/// The administrator reads why a host does not get in.
#[test]
fn a_host_that_proves_no_key_is_told_of() {
    for (what, host, key) in [
        ("a key that the target does not have", HOST, Some(OTHER_KEY)),
        ("a host without a key here", OTHER_HOST, Some(KEY)),
        ("a key for the other hash function", HOST, Some(LONG_KEY)),
        ("no TLS at all", HOST, None),
    ] {
        let served = served();
        for _ in 0..3 {
            connect(served.address, FIRST, &options(host, key)).expect_err(what);
        }
        let mut lines = Vec::new();
        raw::until(|| {
            lines.append(&mut raw::serving::warnings(&served.target));
            lines.len() >= 3
        });
        let expected = format!("a host at 127.0.0.1 is refused on {}: the TLS handshake failed: ", served.address);
        assert!(lines.iter().all(|line| line.starts_with(&expected)), "{what}: {lines:?}");
        assert!(served.target.shutdown(Duration::from_secs(60)));
    }
}

#[test]
fn a_host_with_a_key_does_not_talk_to_a_plain_listener() {
    let served = raw::Served::plain();
    let error = connect(served.address, raw::NQN, &options(HOST, Some(KEY))).unwrap_err();
    assert!(error.contains("does the listener take TLS?"), "{error}");
}

/// A call replaces the key of a host that is connected. The connections that have proven the old key last; later ones
/// need the new key, and the proof by DH-HMAC-CHAP that the host had to give before.
#[test]
fn a_key_changes_while_its_host_is_connected() {
    let place = tempfile::tempdir().unwrap();
    let own = nvme_target::Options { publish: false, ..nvme_target::Options::default() };
    let settings = Settings { options: own, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    let control = Control::start(settings, Box::new(|_| {})).unwrap();
    let call = |method: &str, params: Value| control.call(method, Some(&params));
    let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    for (name, text) in [("old", KEY), ("new", LONG_KEY), ("chap", secret)] {
        let path = place.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        call("keyring_file_add_key", json!({ "name": name, "path": path })).unwrap();
    }
    let listen = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0" });
    for (method, params) in [
        ("nvmf_create_transport", json!({ "trtype": "TCP" })),
        ("bdev_malloc_create", json!({ "name": "M", "num_blocks": 2048, "block_size": 512 })),
        ("nvmf_create_subsystem", json!({ "nqn": FIRST })),
        ("nvmf_subsystem_add_ns", json!({ "nqn": FIRST, "namespace": { "bdev_name": "M" } })),
        ("nvmf_subsystem_add_host", json!({ "nqn": FIRST, "host": HOST, "psk": "old", "dhchap_key": "chap" })),
        ("nvmf_subsystem_add_listener", json!({ "nqn": FIRST, "listen_address": listen, "secure_channel": true })),
    ] {
        call(method, params).unwrap();
    }
    let target = control.target();
    let listener = target.subsystems()[0].listeners[0].address;
    let address = Address { subnqn: Some(FIRST.parse().unwrap()), ..listener.into() };
    let with = |key: &str, proves: bool| {
        let secret = proves.then(|| Secret::parse(secret).unwrap());
        Options { secret, ..options(HOST, Some(key)) }
    };
    // No renewal: a lost connection is an error.
    let lasting = Options { controller_loss: Duration::ZERO, ..with(KEY, true) };
    let (admin, _queues) = Controller::connect(&address, &lasting).unwrap();
    let set = |params: Value| call("nvmf_subsystem_set_keys", params);
    set(json!({ "nqn": FIRST, "host": HOST, "psk": "new" })).unwrap();
    assert!(set(json!({ "nqn": FIRST, "host": HOST, "psk": "chap" })).is_err(), "of another kind");
    assert!(set(json!({ "nqn": FIRST, "host": HOST, "psk": "none" })).is_err());
    let fails = |options: Options| Controller::connect(&address, &options).err().expect("refused").to_string();
    assert!(fails(with(KEY, true)).contains("the TLS handshake failed"));
    assert!(!fails(with(LONG_KEY, false)).contains("the TLS handshake failed"), "it has yet to authenticate");
    Controller::connect(&address, &with(LONG_KEY, true)).unwrap();
    // The connection of the old key still works: an Identify goes over it.
    assert_eq!(admin.namespaces().unwrap(), [1]);
    assert_eq!(admin.generation(), 1, "it has not come back");
    // Without psk the key of TLS stays.
    set(json!({ "nqn": FIRST, "host": HOST })).unwrap();
    Controller::connect(&address, &with(LONG_KEY, false)).unwrap();
    let saved = call("framework_get_config", json!({ "name": "nvmf" })).unwrap().to_string();
    assert!(saved.contains(r#""psk":"new""#) && !saved.contains(r#""psk":"old""#), "{saved}");
    assert!(call("keyring_file_remove_key", json!({ "name": "new" })).is_err(), "it is in use");
    call("keyring_file_remove_key", json!({ "name": "old" })).unwrap();
    target.shutdown(Duration::ZERO);
}
