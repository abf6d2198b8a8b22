//! Namespaces that only some hosts of a subsystem see.

use crate::raw;

use nvme::spec::opcode::admin;
use nvme::spec::{AsyncEvent, Command, GetLogPage, Identify, NamespaceIds, Status, cns, feature, log};
use nvme_target::device::DeviceKind;
use nvme_target::{NamespaceSpec, Options, Visibility};
use raw::{HOST, Host, NQN, Served};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:0f0e0d0c-0b0a-0908-0706-050403020100";

/// A host's admin queue and I/O queue, its request for events (outstanding), and the name that it gives.
struct Watcher {
    admin: Host,
    queue: Host,
    event: u16,
}

impl Watcher {
    fn new(served: &Served, name: &str) -> Watcher {
        let mut admin = Host::admin_of(served.address, NQN, name, false);
        let mut queue = Host::open(served.address, false, false);
        assert_eq!(queue.connect(1, 128, admin.cntlid, NQN, name).status, Status::SUCCESS);
        let wanted = Command {
            cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
            cdw11: feature::EVENT_NAMESPACE,
            ..Command::new(admin::SET_FEATURES, 0)
        };
        assert_eq!(admin.command(wanted, &[]).status, Status::SUCCESS);
        let event = admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
        Watcher { admin, queue, event }
    }

    /// The namespaces that the host sees.
    fn seen(&mut self) -> Vec<u32> {
        numbers(&self.admin.fetch(Identify { cns: cns::ACTIVE_NAMESPACES, cntid: 0, csi: 0 }.command(0)).unwrap())
    }

    /// The structure of a namespace, and its identities.
    fn identify(&mut self, nsid: u32) -> (Vec<u8>, Result<Vec<u8>, Status>) {
        let page = self.admin.fetch(Identify { cns: cns::NAMESPACE, cntid: 0, csi: 0 }.command(nsid)).unwrap();
        (page, self.admin.fetch(Identify { cns: cns::NAMESPACE_IDS, cntid: 0, csi: 0 }.command(nsid)))
    }

    /// Waits for the event that a namespace has changed, and asks for the next one. Returns the namespaces changed.
    fn changed(&mut self) -> Vec<u32> {
        let done = self.admin.response();
        assert_eq!((done.cid, AsyncEvent::of(done.result)), (self.event, AsyncEvent::NAMESPACE_CHANGED));
        self.event = self.admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
        self.changed_unasked()
    }

    /// The namespaces that the log page names; an event before the page fails.
    fn changed_unasked(&mut self) -> Vec<u32> {
        let page = GetLogPage { lid: log::CHANGED_NAMESPACES, lsp: 0, retain: false, length: 4096, offset: 0 };
        numbers(&self.admin.fetch(page.command(0)).unwrap())
    }
}

/// The numbers of a list, up to the first 0.
fn numbers(page: &[u8]) -> Vec<u32> {
    let all = page.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    all.take_while(|nsid| *nsid != 0).collect()
}

/// Namespace 1 for every host, and 2 for the hosts that are named.
fn masked() -> Served {
    let served = Served::with(Options::default(), &[("one", DeviceKind::Memory { bytes: 1 << 20 })]);
    let kind = DeviceKind::Memory { bytes: 1 << 20 };
    let spec = nvme_target::device::DeviceSpec { name: "two".into(), block_bytes: None, uuid: None, kind };
    served.target.create_device(spec).unwrap();
    served
}

fn hidden() -> NamespaceSpec {
    NamespaceSpec { nsid: 2, visibility: Visibility::Only([].into()), ..NamespaceSpec::new("two") }
}

#[test]
fn a_masked_namespace_is_there_for_its_hosts_and_for_no_other() {
    let served = masked();
    let (mut mine, mut other) = (Watcher::new(&served, HOST), Watcher::new(&served, OTHER));
    served.target.add_namespace(NQN, hidden()).unwrap();
    for host in [&mut mine, &mut other] {
        assert_eq!(host.seen(), [1], "nobody is named yet");
        assert_eq!(host.changed_unasked(), [0; 0], "and nobody is told");
    }
    served.target.show_namespace(NQN, 2, HOST, true).unwrap().wait();
    assert_eq!(mine.changed(), [2]);
    assert_eq!(mine.seen(), [1, 2]);
    let (page, ids) = mine.identify(2);
    assert_ne!(page, [0; 4096]);
    assert!(NamespaceIds::read(ids.unwrap().first_chunk().unwrap()).uuid.is_some());
    let data = vec![7; 4096];
    assert_eq!(mine.queue.write(2, 0, &data), Status::SUCCESS);
    assert_eq!(mine.queue.read(2, 0, 8).unwrap(), data);

    assert_eq!((other.seen(), other.changed_unasked()), (vec![1], vec![]));
    let (page, ids) = other.identify(2);
    assert_eq!(page, [0; 4096], "as for a number without a namespace");
    assert!(ids.unwrap_err().is(Status::INVALID_NAMESPACE));
    assert!(other.queue.read(2, 0, 8).unwrap_err().is(Status::INVALID_NAMESPACE));
    assert!(other.queue.write(2, 0, &data).is(Status::INVALID_NAMESPACE));
    assert_eq!(other.queue.read(1, 0, 8).unwrap().len(), 4096, "the other namespace is there");

    // A change of the namespace is for those that see it; a host that comes later sees what it may.
    served.target.resize_device("two", Some(2 << 20)).unwrap();
    assert_eq!(mine.changed(), [2]);
    assert_eq!(other.changed_unasked(), [0; 0]);
    let mut later = Watcher::new(&served, HOST);
    assert_eq!((later.seen(), Watcher::new(&served, OTHER).seen()), (vec![1, 2], vec![1]));
    assert_eq!(later.queue.read(2, 0, 8).unwrap(), data);

    // The second time nothing changes, and nobody is told.
    served.target.show_namespace(NQN, 2, HOST, true).unwrap().wait();
    assert_eq!(mine.changed_unasked(), [0; 0]);
    served.target.show_namespace(NQN, 2, HOST, false).unwrap().wait();
    assert_eq!((mine.changed(), later.changed()), (vec![2], vec![2]));
    assert_eq!(mine.seen(), [1]);
    assert!(mine.queue.read(2, 0, 8).unwrap_err().is(Status::INVALID_NAMESPACE));
    served.target.show_namespace(NQN, 2, OTHER, true).unwrap().wait();
    assert_eq!(other.changed(), [2]);
    assert_eq!(other.queue.read(2, 0, 8).unwrap(), data);
    served.target.remove_namespace(NQN, 2).unwrap().wait();
    assert_eq!(other.changed(), [2]);
    assert_eq!(mine.changed_unasked(), [0; 0]);

    // A namespace that every host sees has no list, and a list has well-formed names of a namespace that is there.
    served.target.show_namespace(NQN, 1, HOST, false).unwrap_err();
    served.target.show_namespace(NQN, 2, HOST, true).unwrap_err();
    served.target.add_namespace(NQN, hidden()).unwrap();
    served.target.show_namespace(NQN, 2, "host", true).unwrap_err();
}

/// A write waits for its data when its namespace is hidden from the host: the data must not reach the device.
#[test]
fn a_write_under_way_does_not_reach_a_namespace_that_has_been_hidden() {
    let served = masked();
    served.target.add_namespace(NQN, hidden()).unwrap();
    served.target.show_namespace(NQN, 2, HOST, true).unwrap().wait();
    let mut mine = Watcher::new(&served, HOST);
    let ready = mine.queue.ready(2, 0, 8192);
    served.target.show_namespace(NQN, 2, HOST, false).unwrap().wait();
    let header = nvme::pdu::H2cData { cid: ready.cid, ttag: ready.ttag, offset: 0, length: 8192, last: true };
    let data = mine.queue.h2c(&header, &[7; 8192]);
    mine.queue.send(&data);
    assert!(mine.queue.response().status.is(Status::INVALID_NAMESPACE));
    served.target.show_namespace(NQN, 2, HOST, true).unwrap().wait();
    assert_eq!(mine.queue.read(2, 0, 16).unwrap(), [0; 8192]);
}
