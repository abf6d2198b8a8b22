//! The controller's answers to Fabrics and admin commands, the same over each transport.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nvme::spec::fabrics::{self, Connect, ConnectData, PropertyAccess};
use nvme::spec::log::{self, DiscoveryEntry, DiscoveryHeader};
use nvme::spec::opcode::admin;
use nvme::spec::property::{self, Capabilities, ControllerStatus};
use nvme::spec::{
    Command, GetLogPage, Identify, IdentifyController, IdentifyNamespace, LbaFormat, Status, Text, cns, feature,
    namespace_list,
};

use super::{BLOCK, Style};

/// One connection's knowledge of its controller.
pub struct Mind {
    style: Style,
    memory: Arc<Mutex<Vec<u8>>>,
    trtype: u8,
    pub is_admin: bool,
    pub is_discovery: bool,
    /// Keep-alives.
    pub seen: Arc<AtomicU32>,
    pub address: Option<SocketAddr>,
}

impl Mind {
    pub fn new(style: Style, memory: Arc<Mutex<Vec<u8>>>, trtype: u8) -> Mind {
        let (is_admin, is_discovery, seen, address) = (false, false, Arc::default(), None);
        Mind { style, memory, trtype, is_admin, is_discovery, seen, address }
    }

    /// Status and result of a Fabrics command.
    pub fn fabrics(&mut self, command: &Command, data: &[u8]) -> (Status, u64) {
        let access = PropertyAccess::of(command);
        let result = match command.fctype() {
            fabrics::CONNECT => {
                let data = ConnectData::read(data.try_into().unwrap());
                self.is_discovery = data.subsystem().unwrap().is_discovery();
                if !self.is_discovery && data.subsystem().unwrap().as_str() != self.style.subnqn {
                    return Connect::invalid(true, Connect::AT_SUBNQN);
                }
                let connect = Connect::of(command);
                self.is_admin = connect.qid == 0;
                assert_eq!(data.cntlid, if self.is_admin { 0xffff } else { 7 });
                assert_eq!(connect.cattr, Connect::NO_FLOW_CONTROL);
                Connect::accepted(7, false, false)
            }
            fabrics::PROPERTY_GET if access.offset == property::CAP => {
                Capabilities { queue_entries: 128, timeout_ms: 5000 }.value()
            }
            fabrics::PROPERTY_GET => ControllerStatus { ready: true, ..ControllerStatus::default() }.value().into(),
            fabrics::PROPERTY_SET => 0,
            other => panic!("Fabrics command {other:#x}"),
        };
        (Status::SUCCESS, result)
    }

    /// Data, status and result of an admin command; None if it has no answer yet.
    pub fn admin(&mut self, command: &Command) -> Option<(Vec<u8>, Status, u64)> {
        let identify = Identify::of(command);
        let (page, result) = match command.opcode {
            admin::IDENTIFY => {
                let page = match identify.cns {
                    cns::CONTROLLER => IdentifyController {
                        cntlid: 7,
                        mdts: self.style.mdts,
                        maxcmd: 128,
                        ioccsz: (64 + self.style.capsule_bytes) / 16,
                        iorcsz: 1,
                        sgls: 1 | 1 << 2 | 1 << 20,
                        oaes: feature::EVENT_NAMESPACE,
                        ..IdentifyController::default()
                    }
                    .write(),
                    cns::ACTIVE_NAMESPACES => namespace_list([1], command.nsid),
                    cns::NAMESPACE if command.nsid == 1 => {
                        let blocks = self.memory.lock().unwrap().len() as u64 / u64::from(BLOCK);
                        let mut namespace = IdentifyNamespace { nsze: blocks, ncap: blocks, ..Default::default() };
                        namespace.lbaf[0] = LbaFormat { lbads: 9, ..LbaFormat::default() };
                        namespace.write()
                    }
                    _ => [0; 4096],
                };
                (page.to_vec(), 0)
            }
            admin::SET_FEATURES if feature::identifier(command.cdw10) == feature::NUMBER_OF_QUEUES => {
                (Vec::new(), feature::queues_value(4).into())
            }
            admin::GET_LOG_PAGE => {
                let page = GetLogPage::of(command);
                assert_eq!((page.lid, self.is_discovery), (log::DISCOVERY, true));
                (self.discovery()[page.offset as usize..][..page.length as usize].to_vec(), 0)
            }
            admin::ASYNC_EVENT_REQUEST => return None,
            admin::KEEP_ALIVE if !self.style.keep_alive => return None,
            admin::KEEP_ALIVE => {
                self.seen.fetch_add(1, Ordering::Relaxed);
                (Vec::new(), 0)
            }
            _ => (Vec::new(), 0),
        };
        Some((page, Status::SUCCESS, result))
    }

    /// The log page: the subsystem, the same over another transport, and another discovery service.
    fn discovery(&self) -> Vec<u8> {
        let address = self.address.unwrap();
        let entry = DiscoveryEntry {
            trtype: self.trtype,
            adrfam: DiscoveryEntry::address_family(address.ip()),
            subtype: DiscoveryEntry::NVM,
            subnqn: self.style.subnqn.parse::<nvme::spec::Nqn>().unwrap().field(),
            trsvcid: Text::new(&address.port().to_string()),
            traddr: Text::new(&address.ip().to_string()),
            ..DiscoveryEntry::default()
        };
        let other = DiscoveryEntry { trtype: DiscoveryEntry::TCP ^ DiscoveryEntry::RDMA ^ self.trtype, ..entry };
        let referral = DiscoveryEntry {
            subtype: DiscoveryEntry::REFERRAL,
            subnqn: nvme::spec::DISCOVERY_NQN.parse::<nvme::spec::Nqn>().unwrap().field(),
            ..entry
        };
        let header = DiscoveryHeader { genctr: 3, numrec: 3, recfmt: 0 };
        [&header.write()[..], &entry.write(), &other.write(), &referral.write()].concat()
    }
}
