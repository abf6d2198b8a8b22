//! Log pages: the content of each page that controllers have.

use std::sync::Arc;

use nvme::spec::ana::GROUPS_ONLY;
use nvme::spec::log::{self, DiscoveryEntry, DiscoveryHeader, Effects, Firmware, Smart};
use nvme::spec::opcode::{admin, io};
use nvme::spec::rdma::RdmaAddress;
use nvme::spec::reservation::ReservationNotification;
use nvme::spec::{DISCOVERY_NQN, GetLogPage, NAMESPACE_LIST_BYTES, Nqn, Status, Text, namespace_list, oncs};

use super::configuration::SecureChannel;
use super::connection::Connection;
use super::controller::{Controller, Service};
use super::core::Core;
use super::portal::{Portal, TransportType};
use super::transport::Transport;
use super::{io_command, management};

/// The temperature above which a drive would warn. The target reports a lower one.
pub(super) const WARNING_KELVINS: u16 = 343;
pub(super) const CRITICAL_KELVINS: u16 = 373;
const ROOM_KELVINS: u16 = 298;

/// The size of a page that a host reads once: what it has read goes.
pub(super) fn bytes_of_news(lid: u8) -> Option<usize> {
    match lid {
        log::CHANGED_NAMESPACES => Some(NAMESPACE_LIST_BYTES),
        log::RESERVATION_NOTIFICATION => Some(ReservationNotification::BYTES),
        _ => None,
    }
}

/// The whole content of a log page.
///
/// # Errors
/// Invalid Log Page for pages that the controller does not have.
pub(super) fn page(
    core: &Core,
    conn: &Connection,
    controller: &Arc<Controller>,
    nsid: u32,
    asked: &GetLogPage,
) -> Result<Vec<u8>, Status> {
    match (asked.lid, controller.service) {
        (log::DISCOVERY, Service::Discovery) => Ok(discovery(core, conn, controller)),
        (log::ERROR, Service::Subsystem(_)) => Ok(controller.lock().errors.page()),
        (log::SMART, Service::Subsystem(uid)) => match nsid {
            // Of the controller: LPA says that there is none for a namespace (section 5.16.1.3).
            0 | 0xffff_ffff => Ok(smart(core, uid, controller)),
            _ => Err(Status::INVALID_FIELD.do_not_retry()),
        },
        (log::FIRMWARE, Service::Subsystem(_)) => {
            let frs1 = Text::new(&core.configuration.options.firmware);
            Ok(Firmware { afi: 1, frs1 }.write().to_vec())
        }
        (log::CHANGED_NAMESPACES, Service::Subsystem(_)) => {
            let mut state = controller.lock();
            let changed = if asked.retain { state.changed.clone() } else { std::mem::take(&mut state.changed) };
            Ok(match changed.len() {
                0..=1024 => namespace_list(changed, 0).to_vec(),
                _ => namespace_list([u32::MAX], 0).to_vec(),
            })
        }
        (log::ANA, Service::Subsystem(uid)) => ana(core, uid, controller, asked.lsp & GROUPS_ONLY != 0),
        (log::RESERVATION_NOTIFICATION, Service::Subsystem(_)) if !core.configuration.options.hides_reservations() => {
            Ok(controller.lock().notices.page(asked.retain).write().to_vec())
        }
        (log::EFFECTS, Service::Subsystem(_)) => {
            let may_manage = management::may_manage(core, controller);
            Ok(effects(core.configuration.options.hidden_commands, may_manage).write().to_vec())
        }
        // Base specification 2.0 with ECN 110, section 5.16.
        _ => Err(Status::INVALID_LOG_PAGE.do_not_retry()),
    }
}

/// The ANA log page: the groups of the namespaces that the host sees, on the controller's path.
///
/// # Errors
/// Invalid Log Page if the subsystem does not report ANA states.
fn ana(core: &Core, subsystem: u64, controller: &Controller, groups_only: bool) -> Result<Vec<u8>, Status> {
    let states = core.ana(controller).ok_or(Status::INVALID_LOG_PAGE.do_not_retry())?;
    let subsystem = core.configuration.subsystems.iter().filter(|it| it.uid == subsystem);
    let seen = subsystem.flat_map(|subsystem| subsystem.active_for(controller.host_nqn.as_str()));
    let before = controller.lock().ana_changes_before;
    Ok(states.page(seen.map(|(nsid, namespace)| (nsid, namespace.spec.ana_group)), groups_only, before))
}

/// The SMART log page: the counts of the devices of the subsystem that the host sees. Those of other reactors are up to
/// half a second old.
fn smart(core: &Core, subsystem: u64, controller: &Controller) -> Vec<u8> {
    let mut page = Smart {
        temperature: ROOM_KELVINS,
        available_spare: 100,
        spare_threshold: 10,
        power_cycles: 1,
        error_entries: controller.lock().errors.count().into(),
        power_on_hours: u128::from(core.shared.uptime_ns() / 3_600_000_000_000),
        ..Smart::default()
    };
    core.publish_work();
    let (mut read, mut written) = (0u128, 0u128);
    let namespaces = core.configuration.subsystems.iter().filter(|other| other.uid == subsystem);
    for (_, namespace) in namespaces.flat_map(|subsystem| subsystem.active_for(controller.host_nqn.as_str())) {
        let work = core.shared.work.on(namespace.entry.uid);
        page.host_reads += u128::from(work.reads);
        page.host_writes += u128::from(work.writes);
        page.media_errors += u128::from(work.errors);
        read += u128::from(work.read_bytes);
        written += u128::from(work.write_bytes);
    }
    page.data_units_read = read.div_ceil(512_000);
    page.data_units_written = written.div_ceil(512_000);
    page.write().to_vec()
}

fn effects(hidden_commands: u16, may_manage: bool) -> Effects {
    let mut effects = Effects::default();
    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ] {
        effects.admin[usize::from(opcode)] = Effects::SUPPORTED;
    }
    if may_manage {
        for opcode in [admin::NAMESPACE_MANAGEMENT, admin::NAMESPACE_ATTACHMENT] {
            effects.admin[usize::from(opcode)] = Effects::SUPPORTED | Effects::CHANGES_INVENTORY;
        }
    }
    for row in io_command::TABLE.iter().filter(|row| row.oncs & hidden_commands == 0) {
        effects.io[usize::from(row.opcode)] = row.effects();
    }
    let reservations = match hidden_commands & oncs::RESERVATIONS {
        0 => &[io::RESERVATION_REGISTER, io::RESERVATION_REPORT, io::RESERVATION_ACQUIRE, io::RESERVATION_RELEASE][..],
        _ => &[],
    };
    for opcode in reservations {
        effects.io[usize::from(*opcode)] = Effects::SUPPORTED;
    }
    effects
}

/// The transport's own part of an address (TSAS).
fn transport_specific(transport: TransportType, is_secured: bool) -> [u8; 256] {
    let mut tsas = [0; 256];
    match transport {
        TransportType::Tcp => tsas[0] = if is_secured { DiscoveryEntry::TLS_1_3 } else { 0 },
        TransportType::Rdma => {
            let address = RdmaAddress {
                qptype: RdmaAddress::RELIABLE_CONNECTED,
                prtype: RdmaAddress::UNSPECIFIED,
                cms: RdmaAddress::RDMA_CM,
                pkey: 0,
            };
            tsas = address.write();
        }
    }
    tsas
}

/// The subsystems that the host may connect to, each at every address; and this service itself.
fn discovery(core: &Core, conn: &Connection, controller: &Controller) -> Vec<u8> {
    let entry = |nqn: &Nqn, portal: Portal, subtype: u8| {
        let Portal { transport, address } = portal;
        // A listener on "any address" is reported with the address that the host came to.
        let ip = match (address.ip().is_unspecified(), conn.transport.local_ip()) {
            (true, Some(local)) => local,
            _ => address.ip(),
        };
        let secured = core.configuration.secured.get(&portal);
        DiscoveryEntry {
            trtype: match transport {
                TransportType::Rdma => DiscoveryEntry::RDMA,
                TransportType::Tcp => DiscoveryEntry::TCP,
            },
            adrfam: DiscoveryEntry::address_family(ip),
            subtype,
            // Flow control can be disabled. "Required", or nothing, on secure channels, as nvmet: nvme-cli 2.3 takes
            // "not required" for "required" and asks the kernel for TLS. It is said where a host may begin plainly.
            treq: 1 << 2
                | match secured {
                    None => 0,
                    Some(SecureChannel::Required) => 1,
                    Some(SecureChannel::Concatenated) => 2,
                },
            tsas: transport_specific(transport, secured.is_some()),
            portid: core.configuration.port_id(&portal),
            cntlid: 0xffff,
            asqsz: 32,
            trsvcid: Text::new(&address.port().to_string()),
            subnqn: nqn.field(),
            traddr: Text::new(&ip.to_string()),
            ..DiscoveryEntry::default()
        }
    };
    let mut entries = Vec::new();
    if let Ok(nqn) = DISCOVERY_NQN.parse::<Nqn>() {
        entries.push(entry(&nqn, conn.listener, DiscoveryEntry::CURRENT_DISCOVERY));
    }
    for subsystem in core.configuration.subsystems.iter().filter(|it| it.admits(&controller.host_nqn)) {
        let listeners = subsystem.listeners.iter();
        entries.extend(listeners.map(|address| entry(&subsystem.nqn, *address, DiscoveryEntry::NVM)));
    }
    for referral in &core.configuration.referrals {
        let subtype = if referral.nqn.is_discovery() { DiscoveryEntry::REFERRAL } else { DiscoveryEntry::NVM };
        entries.push(entry(&referral.nqn, referral.address, subtype));
    }
    let header = DiscoveryHeader { genctr: core.configuration.generation, numrec: entries.len() as u64, recfmt: 0 };
    let mut page = header.write().to_vec();
    entries.iter().for_each(|entry| page.extend_from_slice(&entry.write()));
    page
}
