//! Reservation commands on an I/O queue, and features of reservations on an admin queue.

use std::sync::Arc;

use nvme::spec::opcode::io::RESERVATION_REPORT;
use nvme::spec::reservation::{RegisteredController, ReservationCommand, ReservationStatus};
use nvme::spec::{Command, Data, Status};

use super::registrar::{Answered, Change, Registrar, Request};
use super::{Reservations, Reserved, Rules};
use crate::Shared;
use crate::answer::Answer;
use crate::connection::Connection;
use crate::controller::{Controller, Service};
use crate::core::Core;
use crate::errors::About;
use crate::transport::Transport;

/// CNTLID of a registrant that has no controller now.
const NO_CONTROLLER: u16 = 0xffff;

/// Carries out a reservation command whose data are complete, or hands it to the registrar.
pub(crate) fn carry_out(conn: &mut Connection, core: &mut Core, command: &Command, data: &[u8]) {
    let outcome = match command.opcode {
        RESERVATION_REPORT => report(conn, core, command),
        _ => change(conn, core, command, data).map(|()| None),
    };
    match outcome {
        Ok(Some(answer)) => conn.respond_data(core, command.cid, &answer),
        Ok(None) => {} // the registrar answers
        Err(status) => {
            conn.fails_on(command);
            conn.respond(core, command.cid, status, 0);
        }
    }
}

/// The reservations that a command is about, and the controller that it came to.
///
/// # Errors
/// Invalid Command Opcode if the target hides reservations; the status of the ANA state.
fn named(conn: &Connection, core: &Core, command: &Command) -> Result<(Reserved, Arc<Controller>), Status> {
    let controller = conn.controller.clone().filter(|_| conn.is_enabled()).ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
    if core.configuration.options.hides_reservations() {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    let namespace = conn.namespace(core, command.nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
    conn.admits(namespace)?;
    let (device, reservations) = (namespace.device_uid, Arc::clone(&namespace.reservations));
    Ok((Reserved { nsid: command.nsid, device, reservations }, controller))
}

/// Hands a command to the registrar.
///
/// # Errors
/// Invalid Field for reserved values, and for persistence that is not there (section 7.3); Host Identifier
/// Inconsistent Format for hosts that give none (section 5.27.1.25).
fn change(conn: &mut Connection, core: &mut Core, command: &Command, data: &[u8]) -> Result<(), Status> {
    let (named, controller) = named(conn, core, command)?;
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let asked = ReservationCommand::of(command, data).ok_or(invalid)?;
    if matches!(asked, ReservationCommand::Register { persists: Some(true), .. }) && !named.reservations.can_persist() {
        return Err(invalid);
    }
    if controller.host_id == [0; 16] {
        // All hosts without an identifier would be one registrant.
        return Err(Status::HOST_ID_INCONSISTENT.do_not_retry());
    }
    let request = Request {
        queue: conn.token,
        cid: command.cid,
        service: controller.service,
        host: controller.host_id,
        namespaces: vec![named],
        change: Change::Command(asked),
    };
    Registrar::take(&core.shared, request)
}

/// The answer to Reservation Report (section 7.4).
///
/// # Errors
/// Host Identifier Inconsistent Format without EDS: hosts of Fabrics have identifiers of 128 bits. The statuses of the
/// SGL.
fn report(conn: &mut Connection, core: &mut Core, command: &Command) -> Result<Option<Answer>, Status> {
    let (named, controller) = named(conn, core, command)?;
    if command.cdw11 & 1 == 0 {
        return Err(Status::HOST_ID_INCONSISTENT.do_not_retry());
    }
    let room = match conn.transport.place_of_data(&command.sgl).map_err(Status::do_not_retry)? {
        Data::Transport { length } if length <= conn.max_io_bytes => length as usize,
        Data::Transport { .. } => return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry()),
        Data::InCapsule { .. } => return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry()),
    };
    let asked = (command.cdw10 as usize).saturating_add(1).saturating_mul(4);
    if asked > room {
        return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
    }
    let page = core.pages.share(status(&core.shared, controller.service, &named.reservations.rules()));
    Ok(Some(Answer::shared(page, 0, asked)))
}

/// The Extended Reservation Status: a structure for each controller of each registrant.
fn status(shared: &Shared, service: Service, rules: &Rules) -> Vec<u8> {
    let mut registered = Vec::new();
    let controllers = shared.controllers();
    for registrant in &rules.registrants {
        let entry = |cntlid: u16| RegisteredController {
            cntlid,
            is_holder: rules.is_holder(&registrant.host).into(),
            key: registrant.key,
            host: registrant.host,
        };
        let own = controllers.iter().filter(|it| it.service == service && it.host_id == registrant.host);
        let before = registered.len();
        registered.extend(own.map(|controller| entry(controller.id)));
        if registered.len() == before {
            registered.push(entry(NO_CONTROLLER));
        }
    }
    let header = ReservationStatus {
        generation: rules.generation,
        kind: rules.reservation.map_or(0, |held| held.kind as u8),
        registered: u16::try_from(registered.len()).unwrap_or(u16::MAX),
        persists: rules.persists.into(),
    };
    let mut page = header.write().to_vec();
    registered.iter().for_each(|entry| page.extend_from_slice(&entry.write()));
    page
}

/// Answers a command that the registrar has carried out.
pub(crate) fn answered(conn: &mut Connection, core: &mut Core, answer: Answered) {
    if !answer.status.is_ok() {
        conn.fails_about(About { nsid: answer.nsid, slba: 0 });
    }
    conn.respond(core, answer.cid, answer.status, 0);
}

/// The value of Reservation Persistence (feature 83h) of a namespace.
pub(crate) fn persistence(reservations: &Reservations) -> u32 {
    reservations.rules().persists.into()
}

/// Has the registrar set Reservation Persistence (feature 83h) of namespaces.
///
/// # Errors
/// Feature Not Changeable if one of the namespaces cannot persist.
pub(crate) fn set_persistence(
    conn: &Connection,
    core: &Core,
    command: &Command,
    controller: &Controller,
    namespaces: Vec<Reserved>,
) -> Result<(), Status> {
    let persists = command.cdw11 & 1 == 1;
    if persists && !namespaces.iter().all(|named| named.reservations.can_persist()) {
        return Err(Status::FEATURE_NOT_CHANGEABLE.do_not_retry());
    }
    let (service, host) = (controller.service, controller.host_id);
    let change = Change::Persistence(persists);
    Registrar::take(&core.shared, Request { queue: conn.token, cid: command.cid, service, host, namespaces, change })
}
