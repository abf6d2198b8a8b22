//! The log: a host that comes, goes, is refused or breaks the protocol leaves a line that says who, where from and why,
//! and a count at its listener.

use crate::raw;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use nvme::auth::{Credentials, Keys, Secret};
use nvme::spec::fabrics::PropertyAccess;
use nvme::spec::{Status, property};
use nvme_initiator::{Address, Controller, Options as HostOptions};
use nvme_target::device::DeviceKind;
use nvme_target::journal::{Entry, Level};
use nvme_target::{Limits, ListenerStats, Options, Refused, SubsystemSpec};
use raw::{HOST, Host, NQN, Served};

const OTHER: &str = "nqn.2016-06.io.spdk:cnode2";
const KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const OTHER_KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";

/// The next line of that event.
fn line(served: &Served, event: &str) -> Entry {
    let mut found = None;
    raw::until(|| {
        found = served.target.journal().take().into_iter().find(|line| line.event == event);
        found.is_some()
    });
    found.expect("the loop ends with it")
}

fn field<'a>(line: &'a Entry, name: &str) -> &'a str {
    let value = line.fields.iter().find(|(field, _)| *field == name).unwrap_or_else(|| panic!("{name}: {line:?}"));
    value.1.as_str().unwrap_or_else(|| panic!("{name}: {line:?}"))
}

fn counts(served: &Served) -> ListenerStats {
    served.target.stats().listeners.remove(0)
}

fn refusals(served: &Served, kind: Refused) -> u64 {
    counts(served).refusals[kind as usize]
}

/// A Connect of an admin queue, with names of any form.
fn connect(mut peer: Host, subsystem: &str, host: &str) -> (Host, Status) {
    let mut data = Host::connect_data(raw::dynamic(), NQN, HOST);
    for (field, name) in [(&mut data.subnqn, subsystem), (&mut data.hostnqn, host)] {
        *field = [0; 256];
        field[..name.len()].copy_from_slice(name.as_bytes());
    }
    let status = peer.command(Host::connect_command(0, 32), &data.write()).status;
    (peer, status)
}

#[test]
fn a_refused_host_leaves_its_name_its_address_and_the_reason() {
    let served = Served::plain();
    served.target.create_subsystem(SubsystemSpec::new(OTHER)).unwrap();
    served.target.allow_any_host(NQN, false).unwrap();
    let cases: [(&str, Refused, &str); 4] = [
        (NQN, Refused::Host, "it is not in the list of hosts (nvmf_subsystem_add_host, --allow-host)"),
        ("nqn.2016-06.io.spdk:nowhere", Refused::Subsystem, "there is no such subsystem (nvmf_get_subsystems"),
        (OTHER, Refused::Subsystem, "the subsystem does not listen there (nvmf_subsystem_add_listener)"),
        ("not a name\n\u{1b}[2J", Refused::Subsystem, "there is no such subsystem"),
    ];
    for (subsystem, kind, why) in cases {
        let before = refusals(&served, kind);
        let (peer, status) = connect(Host::open(served.address, false, false), subsystem, HOST);
        assert!(!status.is_ok(), "{subsystem}");
        let line = line(&served, "refused");
        let on = served.address;
        let escaped: String = subsystem.escape_default().collect();
        let expected = format!("host \"{HOST}\" at 127.0.0.1 is refused on {on} for \"{escaped}\": {why}");
        assert!(line.message.starts_with(&expected), "{}", line.message);
        assert_eq!(line.level, Level::Warning);
        assert_eq!(field(&line, "reason"), kind.name());
        assert_eq!((field(&line, "host"), field(&line, "subsystem")), (HOST, subsystem));
        assert_eq!(field(&line, "address"), peer.stream.local_addr().unwrap().to_string());
        assert_eq!(field(&line, "listener"), served.address.to_string());
        assert_eq!(refusals(&served, kind), before + 1);
    }
}

#[test]
fn a_host_with_another_key_is_refused_by_name() {
    let served = Served::plain();
    let secret = |text: &str| Secret::parse(text).expect("a key");
    let keys = Keys::default();
    keys.set(NQN, HOST, Some(Credentials { host: secret(KEY), controller: None }));
    served.target.set_authenticator(Some(Arc::new(keys)));
    let address = Address { subnqn: Some(NQN.parse().unwrap()), ..served.address.into() };
    let host =
        |key: &str| HostOptions { hostnqn: HOST.parse().unwrap(), secret: Some(secret(key)), ..HostOptions::default() };
    Controller::connect(&address, &host(OTHER_KEY)).map(drop).expect_err("another key");
    let refused = line(&served, "refused");
    let expected = format!("host \"{HOST}\" at 127.0.0.1 is refused on {} for \"{NQN}\": ", served.address);
    assert_eq!(refused.message, expected + "authentication failed: the keys differ");
    assert_eq!((field(&refused, "reason"), refusals(&served, Refused::Key)), ("key", 1));
    // The host was never there.
    assert_eq!(counts(&served).hosts, 0);
    Controller::connect(&address, &host(KEY)).map(drop).expect("its key");
    assert_eq!(field(&line(&served, "connect"), "host"), HOST);
    assert_eq!(counts(&served).hosts, 1);
}

#[test]
fn a_host_comes_and_goes() {
    let served = Served::plain();
    served.target.journal().set_level(Level::Info);
    let (mut admin, queue) = Host::pair(served.address);
    let comes = line(&served, "connect");
    let expected = format!("host \"{HOST}\" at 127.0.0.1 connects on {NQN}, controller ");
    assert!(comes.message.starts_with(&expected) && comes.level == Level::Notice, "{comes:?}");
    let counted = counts(&served);
    assert_eq!((counted.connections, counted.accepted, counted.hosts, counted.lost), (2, 2, 1, 0));

    drop(queue);
    let queue_goes = line(&served, "disconnect");
    assert!(queue_goes.message.starts_with(&format!("I/O queue 1 of host \"{HOST}\" at 127.0.0.1 leaves {NQN}")));
    assert_eq!((field(&queue_goes, "reason"), queue_goes.level), ("closed", Level::Info));

    // The host shuts its controller down, as `nvme disconnect` has Linux do.
    let shutdown = property::Configuration::ENABLED.with_shutdown();
    assert!(admin.command(PropertyAccess::set(property::CC, 4, shutdown.0.into()), &[]).status.is_ok());
    drop(admin);
    let goes = line(&served, "disconnect");
    assert!(goes.message.ends_with(": it has shut its controller down"), "{goes:?}");
    assert_eq!((field(&goes, "reason"), goes.level), ("shutdown", Level::Notice));

    // Another one is just gone.
    let (admin, _queue) = Host::pair(served.address);
    drop(admin);
    let reasons = [line(&served, "connect").level, line(&served, "disconnect").level];
    assert_eq!(reasons, [Level::Notice, Level::Notice]);
    raw::until(|| counts(&served).connections == 0);
}

#[test]
fn a_host_that_breaks_the_protocol_is_named() {
    let served = Served::plain();
    let (mut admin, _queue) = Host::pair(served.address);
    // A unit of a kind that there is not.
    admin.stream.write_all(&[0x7f, 0, 24, 0, 24, 0, 0, 0]).unwrap();
    let violation = line(&served, "violation");
    let expected = format!("queue 0 of host \"{HOST}\" at 127.0.0.1 breaks the protocol on {}: ", served.address);
    assert!(violation.message.starts_with(&expected) && violation.level == Level::Warning, "{violation:?}");
    raw::until(|| counts(&served).lost == 1);
    assert_eq!(counts(&served).violations, 1);
    assert_eq!(served.target.stats().reactors[0].protocol_errors, 1);
}

#[test]
fn a_host_that_is_taken_away_is_not_lost() {
    let served = Served::plain();
    served.target.add_host(NQN, HOST).unwrap();
    let (_admin, _queue) = Host::pair(served.address);
    served.target.allow_any_host(NQN, false).unwrap();
    served.target.remove_host(NQN, HOST).unwrap().wait();
    let goes = line(&served, "disconnect");
    assert_eq!((field(&goes, "reason"), goes.level), ("administrator", Level::Notice), "{goes:?}");
    assert_eq!(counts(&served).lost, 0);
}

/// A name of any form stays in its line, and programs read it as it is.
#[test]
fn names_of_hosts_cannot_forge_lines() {
    let served = Served::plain();
    let name = "nqn.2016-06.io.x:a\nplimsoll: notice: host \"b\"\u{1b}[31m";
    let (_peer, status) = connect(Host::open(served.address, false, false), NQN, name);
    assert!(status.is_ok());
    let comes = line(&served, "connect");
    assert_eq!(comes.text(false).lines().count(), 1, "{comes:?}");
    assert!(!comes.text(false).contains('\u{1b}'));
    let parsed: serde_json::Value = serde_json::from_str(&comes.json()).unwrap();
    assert_eq!(parsed["host"], name);
}

/// A peer that connects, is refused and connects again, as fast as it can: its lines are bounded, counts are exact, and
/// a host at another address keeps its lines.
#[test]
fn a_hostile_peer_does_not_fill_the_log() {
    const TIMES: u64 = 200;
    let limits = Limits { handshake: Duration::from_secs(3600), ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let served = Served::with(options, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    served.target.allow_any_host(NQN, false).unwrap();
    for _ in 0..TIMES {
        assert!(connect(Host::open(served.address, false, false), NQN, HOST).1.is(Status::CONNECT_INVALID_HOST));
    }
    let elsewhere = Host::from_elsewhere(served.address).greeted(false, false);
    assert!(connect(elsewhere, NQN, HOST).1.is(Status::CONNECT_INVALID_HOST));
    assert_eq!(refusals(&served, Refused::Host), TIMES + 1);
    served.target.journal().close();
    let lines: Vec<Entry> = std::iter::from_fn(|| served.target.journal().next()).collect();
    let refused: Vec<&Entry> = lines.iter().filter(|line| line.event == "refused").collect();
    let (others, refused): (Vec<&Entry>, Vec<&Entry>) =
        refused.into_iter().partition(|line| field(line, "address").starts_with("127.0.0.2:"));
    let refused = refused.len() as u64;
    let left_out: u64 =
        lines.iter().filter_map(|line| line.fields.iter().find(|(name, _)| *name == "lines")?.1.as_u64()).sum();
    assert!(refused <= 60, "{refused} lines"); // a minute, or the end of one and the beginning of the next
    assert_eq!((refused + left_out, others.len()), (TIMES, 1));
}
