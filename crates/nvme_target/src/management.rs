//! Namespace Management and Namespace Attachment (Base specification 2.0, sections 5.20, 5.21 and 8.12).
//!
//! ```text
//!  admin queue ─► right, fields ─► a thread ─► NamespaceManager (the control plane) ─► configuration ─► response
//! ```
//!
//! The commands change the configuration, which all reactors take up, and which may be saved: a thread of its own does
//! that for each command, because no reactor waits for another one or for a disk.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use nvme::spec::opcode::admin::NAMESPACE_ATTACHMENT;
use nvme::spec::{CONTROLLER_LIST_BYTES, Command, IdentifyNamespace, LbaFormat, Status, listed_controllers};

use super::SubsystemInfo;
use super::connection::Connection;
use super::controller::{Controller, Service};
use super::core::Core;
use super::mailbox::{Message, Token};

/// Bytes of data that the commands bring: a list of controllers, or the description of a namespace.
pub(super) const DATA_BYTES: usize = CONTROLLER_LIST_BYTES;
/// The most commands that are carried out at once; each has a thread.
const MOST_UNDER_WAY: u32 = 64;
/// The format of new namespaces: blocks of 4096 bytes.
const BLOCK_SHIFT: u8 = 12;

/// A Namespace Attachment command of a host that may manage namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRequest {
    /// The NQN of the subsystem.
    pub subsystem_nqn: String,
    /// The NQN of the host that asks.
    pub host_nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// The controllers that the command lists.
    pub controllers: Vec<u16>,
    /// True to attach the namespace, false to detach it.
    pub attaches: bool,
}

impl AttachmentRequest {
    /// The hosts of the controllers, if all of the command can be carried out in that subsystem.
    ///
    /// # Errors
    /// Invalid Command Opcode if the host may not manage namespaces; Invalid Namespace or Format for numbers that no
    /// namespace can have; Invalid Field for a namespace that is not allocated, or that the host does not see;
    /// Controller List Invalid for controllers that are not there, or whose hosts do not see the namespace; Namespace
    /// Already Attached; Namespace Not Attached.
    pub fn hosts(&self, subsystem: &SubsystemInfo) -> Result<BTreeSet<String>, Status> {
        if !subsystem.managers.contains(&self.host_nqn) {
            return Err(Status::INVALID_OPCODE.do_not_retry());
        }
        if !(1..=subsystem.spec.max_namespaces).contains(&self.nsid) {
            return Err(Status::INVALID_NAMESPACE.do_not_retry());
        }
        let mut namespaces = subsystem.namespaces.iter();
        let namespace = namespaces.find(|it| it.nsid == self.nsid && it.visibility.includes(&self.host_nqn));
        let namespace = namespace.ok_or(Status::INVALID_FIELD.do_not_retry())?;
        let host_of = |id: &u16| {
            let controller = subsystem.controllers.iter().find(|controller| controller.id == *id);
            let host = controller.map(|controller| controller.host_nqn.clone());
            host.filter(|host| namespace.visibility.includes(host))
        };
        let hosts: Option<BTreeSet<String>> = self.controllers.iter().map(host_of).collect();
        let hosts = hosts.ok_or(Status::CONTROLLER_LIST_INVALID.do_not_retry())?;
        match (self.attaches, hosts.iter().any(|host| namespace.detached.includes(host) != self.attaches)) {
            (true, true) => Err(Status::NAMESPACE_ALREADY_ATTACHED.do_not_retry()),
            (false, true) => Err(Status::NAMESPACE_NOT_ATTACHED.do_not_retry()),
            (_, false) => Ok(hosts),
        }
    }
}

/// The end of commands that manage namespaces: it changes the configuration. Calls come from several threads.
pub trait NamespaceManager: Send + Sync {
    /// Carries out a Namespace Attachment. Returns its status when no device works any more for a host that has the
    /// namespace detached by the command.
    fn attach(&self, request: &AttachmentRequest) -> Status;
}

/// The answer to a command that has been carried out: its queue, identifier and status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Managed {
    pub queue: Token,
    pub cid: u16,
    pub status: Status,
}

/// The manager of namespaces, and the number of commands that it carries out.
#[derive(Default)]
pub(super) struct Management {
    manager: RwLock<Option<Arc<dyn NamespaceManager>>>,
    under_way: AtomicU32,
}

impl Management {
    pub fn set(&self, manager: Arc<dyn NamespaceManager>) {
        *self.manager.write().unwrap_or_else(PoisonError::into_inner) = Some(manager);
    }

    fn manager(&self) -> Option<Arc<dyn NamespaceManager>> {
        self.manager.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// True if the host of the controller may manage namespaces.
pub(super) fn may_manage(core: &Core, controller: &Controller) -> bool {
    let mut subsystems = core.configuration.subsystems.iter();
    let subsystem = subsystems.find(|it| Service::Subsystem(it.uid) == controller.service);
    subsystem.is_some_and(|subsystem| subsystem.is_managed_by(&controller.host_nqn))
}

/// Identify Namespace for NSID FFFFFFFFh: the capabilities that new namespaces have in common.
pub(super) fn common_namespace() -> IdentifyNamespace {
    let mut common = IdentifyNamespace { nmic: 1, ..IdentifyNamespace::default() };
    common.lbaf[0] = LbaFormat { lbads: BLOCK_SHIFT, ..LbaFormat::default() };
    common
}

/// Hands a command that manages namespaces to the manager, which answers it.
///
/// # Errors
/// Invalid Command Opcode if the host may not manage namespaces; Invalid Field for reserved values; Data SGL Length
/// Invalid without the data; Controller List Invalid for a list without a controller; those of [`refusal`]; Command
/// Interrupted if too many commands are under way.
pub(super) fn hand_over(
    conn: &Connection,
    core: &Core,
    controller: &Arc<Controller>,
    command: &Command,
    data: &[u8],
) -> Result<(), Status> {
    if !may_manage(core, controller) {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    let select = command.cdw10 & 0xf;
    if command.opcode != NAMESPACE_ATTACHMENT {
        return Err(refusal(core, controller, command, select, data).do_not_retry());
    }
    if select > 1 {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let list = data.first_chunk().ok_or(Status::DATA_SGL_LENGTH_INVALID.do_not_retry())?;
    let controllers = listed_controllers(list).ok_or(Status::CONTROLLER_LIST_INVALID.do_not_retry())?;
    let mut subsystems = core.configuration.subsystems.iter();
    let subsystem = subsystems.find(|it| Service::Subsystem(it.uid) == controller.service);
    let request = AttachmentRequest {
        subsystem_nqn: subsystem.ok_or(Status::INTERNAL_ERROR)?.spec.nqn.clone(),
        host_nqn: controller.host_nqn.to_string(),
        nsid: command.nsid,
        controllers,
        attaches: select == 0,
    };
    let shared = Arc::clone(&core.shared);
    let manager = shared.management.manager().ok_or(Status::INTERNAL_ERROR)?;
    if shared.management.under_way.fetch_add(1, Ordering::Relaxed) >= MOST_UNDER_WAY {
        shared.management.under_way.fetch_sub(1, Ordering::Relaxed);
        return Err(Status::COMMAND_INTERRUPTED);
    }
    let (queue, cid) = (conn.token, command.cid);
    let carry_out = move || {
        let status = manager.attach(&request);
        shared.management.under_way.fetch_sub(1, Ordering::Relaxed);
        shared.send(queue.reactor, Message::Managed(Managed { queue, cid, status }));
    };
    let thread = std::thread::Builder::new().name("nvmf-namespaces".into()).spawn(carry_out);
    thread.map(drop).map_err(|_| {
        core.shared.management.under_way.fetch_sub(1, Ordering::Relaxed);
        Status::COMMAND_INTERRUPTED
    })
}

/// The status of a Namespace Management: all capacity belongs to namespaces that the administrator has made, so that
/// hosts have none to create a namespace from (UNVMCAP is 0), and delete none.
fn refusal(core: &Core, controller: &Controller, command: &Command, select: u32, data: &[u8]) -> Status {
    let mut subsystems = core.configuration.subsystems.iter();
    let Some(subsystem) = subsystems.find(|it| Service::Subsystem(it.uid) == controller.service) else {
        return Status::INTERNAL_ERROR;
    };
    match select {
        0 => data.first_chunk().map_or(Status::DATA_SGL_LENGTH_INVALID, |page| {
            refusal_of_new(&IdentifyNamespace::read(page), command.cdw11 >> 24)
        }),
        1 if !(1..=subsystem.spec.max_namespaces).contains(&command.nsid) => Status::INVALID_NAMESPACE,
        1 => match subsystem.seen_by(controller.host_nqn.as_str()).any(|(nsid, _)| nsid == command.nsid) {
            true => Status::OPERATION_DENIED,
            false => Status::INVALID_FIELD,
        },
        _ => Status::INVALID_FIELD,
    }
}

/// The status with which the creation of a namespace fails, by the host's description of it and its command set.
fn refusal_of_new(new: &IdentifyNamespace, command_set: u32) -> Status {
    let format = u32::from(new.flbas & 0xf) | u32::from(new.flbas >> 1 & 0x30);
    match () {
        () if command_set != 0 => Status::COMMAND_SET_NOT_SUPPORTED,
        () if new.nsze == 0 || new.ncap > new.nsze || new.nvmsetid != 0 || new.endgid != 0 => Status::INVALID_FIELD,
        () if format != 0 || new.dps != 0 => Status::INVALID_FORMAT,
        () if new.ncap < new.nsze => Status::THIN_PROVISIONING_NOT_SUPPORTED,
        () => Status::INSUFFICIENT_CAPACITY,
    }
}
