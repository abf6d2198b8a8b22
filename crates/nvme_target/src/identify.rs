//! The answers to Identify.

use std::sync::Arc;

use nvme::spec::reservation::rescap;
use nvme::spec::{
    Command, DISCOVERY_NQN, Identify, IdentifyController, IdentifyNamespace, LbaFormat, Nqn, Status, Text, cns,
    controller_list, feature, namespace_list, oacs, property,
};

use super::admin::{ABORTS_LESS_ONE, EVENT_REQUESTS_LESS_ONE};
use super::configuration::{Namespace, Subsystem};
use super::connection::Connection;
use super::controller::{Controller, Service};
use super::core::Core;
use super::transport::Transport;
use super::{ana, copy, errors, fused, io_command, logs, management};
use crate::identity::Machine;

/// WZSL where no limit is set: 65536 blocks of 512 bytes, in units of 4 KiB. Hosts take 0 for the largest transfer, and
/// count longer ranges of small blocks modulo 65536.
const LONGEST_ZEROES_LOG2: u8 = 13;

/// The structure that an Identify command asks for.
///
/// # Errors
/// Invalid Field for structures that do not exist, Invalid Namespace for namespaces that do not.
pub(super) fn page(
    conn: &Connection,
    core: &Core,
    controller: &Arc<Controller>,
    command: &Command,
) -> Result<Vec<u8>, Status> {
    let asked = Identify::of(command);
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let subsystem = match controller.service {
        Service::Discovery => {
            return if asked.cns == cns::CONTROLLER {
                Ok(discovery_controller(conn, core, controller))
            } else {
                Err(invalid)
            };
        }
        Service::Subsystem(uid) => core.configuration.subsystems.iter().find(|subsystem| subsystem.uid == uid),
    };
    let subsystem = subsystem.ok_or(Status::INTERNAL_ERROR)?;
    match asked.cns {
        cns::CONTROLLER => Ok(io_controller(conn, core, controller, subsystem)),
        // Every namespace is of the NVM command set.
        cns::ACTIVE_NAMESPACES_CSI if asked.csi != 0 => Err(invalid),
        cns::ACTIVE_NAMESPACES | cns::ACTIVE_NAMESPACES_CSI => {
            if command.nsid >= 0xffff_fffe {
                return Err(Status::INVALID_NAMESPACE.do_not_retry());
            }
            let active = subsystem.active_for(controller.host_nqn.as_str());
            Ok(namespace_list(active.map(|(nsid, _)| nsid), command.nsid).to_vec())
        }
        // Without a namespace: what they have in common, the formats of new ones.
        cns::NAMESPACE if command.nsid == u32::MAX && subsystem.is_managed_by(&controller.host_nqn) => {
            Ok(management::common_namespace().write().to_vec())
        }
        cns::NAMESPACE => match active(subsystem, controller, command.nsid)? {
            Some(it) => Ok(namespace(core, controller, it).write().to_vec()),
            // A valid number without a namespace: all zeros.
            None => Ok(vec![0; 4096]),
        },
        cns::NAMESPACE_IDS => {
            let it = active(subsystem, controller, command.nsid)?.ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
            Ok(it.identities().write().to_vec())
        }
        // The NVM command set has nothing to add to a namespace.
        cns::NAMESPACE_CSI if asked.csi == 0 => {
            active(subsystem, controller, command.nsid)?.ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
            Ok(vec![0; 4096])
        }
        cns::CONTROLLER_CSI if asked.csi == 0 => Ok(command_limits(core, subsystem)),
        // One combination: the NVM command set alone.
        cns::COMMAND_SETS => {
            let mut page = vec![0; 4096];
            page[0] = 1;
            Ok(page)
        }
        cns::NAMESPACE_INDEPENDENT => {
            let it = active(subsystem, controller, command.nsid)?.ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
            let own = namespace(core, controller, it);
            let mut page = vec![0; 4096];
            (page[1], page[2], page[8]) = (own.nmic, own.rescap, own.nsattr);
            page[4..8].copy_from_slice(&own.anagrpid.to_le_bytes());
            page[14] = 1; // NSTAT: ready
            Ok(page)
        }
        cns::ALLOCATED_NAMESPACES
        | cns::ALLOCATED_NAMESPACE
        | cns::ATTACHED_CONTROLLERS
        | cns::CONTROLLERS
        | cns::ALLOCATED_NAMESPACES_CSI
            if subsystem.is_managed_by(&controller.host_nqn) =>
        {
            managed(core, controller, subsystem, command.nsid, &asked)
        }
        _ => Err(invalid),
    }
}

/// The structures that hosts get which may manage namespaces (sections 5.17.2.10 to 5.17.2.13). The allocated
/// namespaces are those that the host sees.
///
/// # Errors
/// Invalid Field for other command sets, and for the controllers of a namespace that is not allocated; Invalid
/// Namespace for numbers that no namespace can have.
fn managed(
    core: &Core,
    controller: &Controller,
    subsystem: &Subsystem,
    nsid: u32,
    asked: &Identify,
) -> Result<Vec<u8>, Status> {
    let service = controller.service;
    let controllers_of = |has_it: &dyn Fn(&str) -> bool| {
        let controllers = core.shared.controllers();
        let mine = controllers.iter().filter(|it| it.service == service && has_it(it.host_nqn.as_str()));
        controller_list(mine.map(|it| it.id), asked.cntid).to_vec()
    };
    match asked.cns {
        cns::CONTROLLERS => Ok(controllers_of(&|_| true)),
        cns::ATTACHED_CONTROLLERS => {
            let it = allocated(subsystem, controller, nsid)?.ok_or(Status::INVALID_FIELD.do_not_retry())?;
            Ok(controllers_of(&|host| it.spec.is_active_for(host)))
        }
        cns::ALLOCATED_NAMESPACE => {
            let it = allocated(subsystem, controller, nsid)?;
            Ok(it.map_or(vec![0; 4096], |it| namespace(core, controller, it).write().to_vec()))
        }
        cns::ALLOCATED_NAMESPACES_CSI if asked.csi != 0 => Err(Status::INVALID_FIELD.do_not_retry()),
        _ if nsid >= 0xffff_fffe => Err(Status::INVALID_NAMESPACE.do_not_retry()),
        _ => {
            let seen = subsystem.seen_by(controller.host_nqn.as_str());
            Ok(namespace_list(seen.map(|(nsid, _)| nsid), nsid).to_vec())
        }
    }
}

/// The namespace under a valid number; `None` if none is active for the controller's host.
fn active<'a>(subsystem: &'a Subsystem, controller: &Controller, nsid: u32) -> Result<Option<&'a Namespace>, Status> {
    let namespace = allocated(subsystem, controller, nsid)?;
    Ok(namespace.filter(|namespace| namespace.spec.is_active_for(controller.host_nqn.as_str())))
}

/// The namespace under a valid number, attached or not; `None` if there is none that the controller's host sees.
fn allocated<'a>(
    subsystem: &'a Subsystem,
    controller: &Controller,
    nsid: u32,
) -> Result<Option<&'a Namespace>, Status> {
    if nsid == 0 || nsid > subsystem.spec.max_namespaces {
        return Err(Status::INVALID_NAMESPACE.do_not_retry());
    }
    let namespace = subsystem.namespaces.get(&nsid);
    Ok(namespace.filter(|namespace| namespace.spec.visibility.includes(controller.host_nqn.as_str())))
}

fn namespace(core: &Core, controller: &Controller, it: &Namespace) -> IdentifyNamespace {
    let rescap = match (core.configuration.options.hides_reservations(), it.spec.reservations.is_some()) {
        (true, _) => 0,
        (false, false) => rescap::ALL_TYPES,
        (false, true) => rescap::ALL_TYPES | rescap::PERSISTS,
    };
    let device = &it.entry.device;
    let block = device.block_bytes();
    let blocks = device.bytes() / u64::from(block);
    let identities = it.identities();
    let states = core.ana(controller);
    // Section 8.1: the use is not available where the namespace is not.
    let is_refused = states.is_some_and(|states| states.state(it.spec.ana_group).refusal().is_some());
    let (copied, copied_of_range) = copy::limits(core.configuration.options.max_io_bytes, block.trailing_zeros());
    IdentifyNamespace {
        nsze: blocks,
        ncap: blocks,
        nuse: if is_refused { 0 } else { blocks },
        nmic: 1,
        rescap,
        dlfeat: 0b1001, // deallocated blocks read as zeros; Write Zeroes may deallocate
        anagrpid: states.map_or(0, |_| it.spec.ana_group),
        nsattr: u8::from(device.read_only()),
        mssrl: copied_of_range,
        mcl: copied,
        msrc: copy::SOURCES_LESS_ONE,
        nguid: identities.nguid.unwrap_or_default(),
        eui64: identities.eui64.unwrap_or_default(),
        nvmcap: u128::from(blocks) * u128::from(block),
        lbaf: std::array::from_fn(|i| LbaFormat {
            lbads: if i == 0 { block.trailing_zeros() as u8 } else { 0 },
            ..LbaFormat::default()
        }),
        ..IdentifyNamespace::default()
    }
}

/// Identify Controller of the NVM command set (NVM Command Set specification 1.0, section 4.1.5.2): VSL in byte 0, WZSL
/// in byte 1, DMRSL in bytes 4 to 7.
fn command_limits(core: &Core, subsystem: &Subsystem) -> Vec<u8> {
    let limits = subsystem.spec.command_limits;
    let mut page = vec![0; 4096];
    page[0] = largest_transfer(core);
    page[1] = if limits.zeroed_pages_log2 == 0 { LONGEST_ZEROES_LOG2 } else { limits.zeroed_pages_log2 };
    page[4..8].copy_from_slice(&limits.deallocated_blocks.to_le_bytes());
    page
}

/// The largest I/O as a power of two of 4 KiB: MDTS, and VSL, because the target reads what it verifies into a buffer.
fn largest_transfer(core: &Core) -> u8 {
    (core.configuration.options.max_io_bytes / 4096).trailing_zeros() as u8
}

/// The fields that discovery and I/O controllers have in common.
fn common(conn: &Connection, core: &Core, controller: &Controller, subsystem_nqn: &Nqn) -> IdentifyController {
    let options = &core.configuration.options;
    IdentifyController {
        fr: Text::new(&options.firmware),
        mdts: largest_transfer(core),
        cntlid: controller.id,
        ver: property::VERSION_1_4,
        ctratt: 1 | 1 << 6, // 128-bit host identifiers; any command keeps the controller alive
        aerl: EVENT_REQUESTS_LESS_ONE,
        acl: ABORTS_LESS_ONE,
        frmw: 0b11,
        lpa: 0b100,
        kas: options.keep_alive_units,
        maxcmd: options.limits.queue_depth,
        sgls: conn.transport.sgl_support(),
        subnqn: subsystem_nqn.field(),
        ioccsz: 4,
        iorcsz: 1,
        msdbd: 1,
        ..IdentifyController::default()
    }
}

/// OAES: the notices that the controller gives.
pub(super) fn events(core: &Core, controller: &Controller) -> u32 {
    match controller.service {
        Service::Discovery => feature::EVENT_DISCOVERY,
        Service::Subsystem(uid) => {
            core.configuration.subsystems.iter().find(|subsystem| subsystem.uid == uid).map_or(0, events_of)
        }
    }
}

fn events_of(subsystem: &Subsystem) -> u32 {
    feature::EVENT_NAMESPACE | if subsystem.spec.ana_reporting { feature::EVENT_ANA } else { 0 }
}

fn discovery_controller(conn: &Connection, core: &Core, controller: &Controller) -> Vec<u8> {
    let nqn: Result<Nqn, _> = DISCOVERY_NQN.parse();
    let Ok(nqn) = nqn else { return vec![0; 4096] };
    IdentifyController {
        sn: Text::new(&Machine::this().serial(DISCOVERY_NQN)),
        mn: Text::new("Plimsoll discovery"),
        cntrltype: 2,
        oaes: feature::EVENT_DISCOVERY,
        ..common(conn, core, controller, &nqn)
    }
    .write()
    .to_vec()
}

fn io_controller(conn: &Connection, core: &Core, controller: &Controller, subsystem: &Subsystem) -> Vec<u8> {
    let options = &core.configuration.options;
    let seen = subsystem.seen_by(controller.host_nqn.as_str());
    let may_manage = subsystem.is_managed_by(&controller.host_nqn);
    let bytes: u128 = seen.map(|(_, namespace)| u128::from(namespace.entry.device.bytes())).sum();
    let reports_ana = subsystem.spec.ana_reporting;
    let groups = if reports_ana { subsystem.spec.max_namespaces } else { 0 };
    IdentifyController {
        sn: Text::new(&subsystem.spec.serial),
        mn: Text::new(&subsystem.spec.model),
        cmic: 0b11 | if reports_ana { 1 << 3 } else { 0 },
        cntrltype: 1,
        oaes: events_of(subsystem),
        oacs: if may_manage { oacs::NAMESPACE_MANAGEMENT } else { 0 },
        lpa: 0b110,
        elpe: errors::ENTRIES_LESS_ONE,
        wctemp: logs::WARNING_KELVINS,
        cctemp: logs::CRITICAL_KELVINS,
        tnvmcap: bytes,
        anatt: if reports_ana { ana::TRANSITION_SECONDS } else { 0 },
        anacap: if reports_ana { ana::CAPABILITIES } else { 0 },
        anagrpmax: groups,
        nanagrpid: groups,
        sqes: 0x66,
        cqes: 0x44,
        nn: subsystem.spec.max_namespaces,
        mnan: subsystem.spec.max_namespaces,
        oncs: io_command::optional_commands(options.hidden_commands),
        fuses: options.fused_operations(),
        acwu: fused::BLOCKS as u16 - 1,
        ocfs: 1,
        vwc: 0b101,
        ioccsz: (64 + options.in_capsule_bytes) / 16,
        ofcs: 1,
        psd0_mp: 2500,
        ..common(conn, core, controller, &subsystem.nqn)
    }
    .write()
    .to_vec()
}
