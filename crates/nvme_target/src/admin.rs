//! Admin commands of I/O and discovery controllers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme::spec::fabrics::ConnectData;
use nvme::spec::opcode::admin::{
    ABORT, ASYNC_EVENT_REQUEST, GET_FEATURES, GET_LOG_PAGE, IDENTIFY, KEEP_ALIVE, NAMESPACE_ATTACHMENT,
    NAMESPACE_MANAGEMENT, SET_FEATURES,
};
use nvme::spec::{AsyncEvent, Command, Data, GetLogPage, Status, fabrics, feature, log, reservation};

use super::answer::Answer as HostData;
use super::connection::{ADMIN_CAPSULE_BYTES, Connection, Phase};
use super::controller::Controller;
use super::core::Core;
use super::mailbox::Message;
use super::reservations::{self, Reserved};
use super::transport::Transport;
use super::{identify, logs, management};

/// Abort commands that a host may have outstanding, less one: ACL.
pub(super) const ABORTS_LESS_ONE: u8 = 3;
/// A log page is followed by zeros up to the requested length, as long as that is not more than this: the
/// bytes beyond a log page are undefined (Base specification 2.0, section 5.16.1).
const ZEROS_AFTER_LOG_PAGE: usize = 16 << 10;
/// Log pages of more bytes are in memory once, however many hosts are reading them.
const LONG_PAGE: usize = 4096;
/// Asynchronous Event Requests that a host may have outstanding, less one: AERL.
pub(super) const EVENT_REQUESTS_LESS_ONE: u8 = 3;

/// The most bytes from the host that an admin or Fabrics command can use: no others are kept.
pub(super) fn data_from_host(conn: &Connection, core: &Core, command: &Command) -> u32 {
    if conn.phase == Phase::Connect {
        let is_connect = command.is_fabrics() && command.fctype() == fabrics::CONNECT;
        // One byte more, so that the target sees data that are too long.
        return if is_connect { ConnectData::BYTES as u32 + 1 } else { 0 };
    }
    if command.is_fabrics() {
        let is_awaited = command.fctype() == fabrics::AUTHENTICATION_SEND && conn.exchange.is_some();
        return if is_awaited { ADMIN_CAPSULE_BYTES } else { 0 };
    }
    if !conn.is_admin() {
        return reservation::data_bytes(command.opcode).unwrap_or(0);
    }
    if matches!(command.opcode, NAMESPACE_MANAGEMENT | NAMESPACE_ATTACHMENT) {
        let may_manage = conn.controller.as_ref().is_some_and(|it| management::may_manage(core, it));
        return if may_manage { management::DATA_BYTES as u32 } else { 0 };
    }
    match (command.opcode, feature::identifier(command.cdw10)) {
        (SET_FEATURES, feature::HOST_BEHAVIOR) => 512,
        (SET_FEATURES, feature::HOST_IDENTIFIER) => 16,
        (SET_FEATURES, feature::TIMESTAMP) => 8,
        _ => 0,
    }
}

/// Carries out an admin command whose data are complete.
///
/// Each command refuses by the clauses of its section in the Base specification 2.0: Abort 5.1, Asynchronous Event
/// Request 5.2, Get Features 5.15, Get Log Page 5.16, Identify 5.17, Namespace Attachment 5.20, Namespace Management
/// 5.21, Set Features 5.27.
pub(super) fn carry_out(conn: &mut Connection, core: &mut Core, command: &Command, data: &[u8]) {
    let Some(controller) = conn.controller.clone() else {
        return conn.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR, 0);
    };
    // Before the controller is enabled a host may ask what it is, and no more.
    let needs_ready = !matches!(command.opcode, IDENTIFY | KEEP_ALIVE);
    if needs_ready && !controller.lock().status.ready {
        return conn.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR, 0);
    }
    let cid = command.cid;
    let answer = match command.opcode {
        IDENTIFY => identify::page(conn, core, &controller, command).and_then(|page| to_host(conn, command, page)),
        GET_LOG_PAGE => log_page(conn, core, &controller, command),
        GET_FEATURES => get_features(conn, core, &controller, command),
        SET_FEATURES if feature::identifier(command.cdw10) == feature::RESERVATION_PERSISTENCE => {
            match set_persistence(conn, core, &controller, command) {
                Ok(()) => return, // the registrar answers
                Err(status) => Err(status),
            }
        }
        SET_FEATURES => set_features(conn, core, &controller, command, data),
        KEEP_ALIVE => {
            controller.seen(core.now_ns);
            Ok(Answer::Result(0))
        }
        ASYNC_EVENT_REQUEST => {
            if conn.event_requests.len() > usize::from(EVENT_REQUESTS_LESS_ONE) {
                // Section 5.2: more requests than AERL allows.
                Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED.do_not_retry())
            } else {
                conn.event_requests.push(cid);
                return deliver_events(conn, core);
            }
        }
        NAMESPACE_MANAGEMENT | NAMESPACE_ATTACHMENT => {
            match management::hand_over(conn, core, &controller, command, data) {
                Ok(()) => return, // the manager of namespaces answers
                Err(status) => Err(status),
            }
        }
        ABORT => return abort(conn, core, &controller, command),
        _ => Err(Status::INVALID_OPCODE.do_not_retry()),
    };
    match answer {
        Ok(Answer::Result(result)) => conn.respond(core, cid, Status::SUCCESS, result),
        Ok(Answer::Data(data)) => conn.respond_data(core, cid, &data),
        Err(status) => {
            conn.fails_on(command);
            conn.respond(core, cid, status, 0);
        }
    }
    if command.opcode == GET_LOG_PAGE {
        deliver_events(conn, core); // a page that was read may be followed by another
    }
}

/// The result of a command that succeeded.
enum Answer {
    Result(u64),
    Data(HostData),
}

/// Bytes that the host has room for.
fn room(conn: &Connection, command: &Command) -> Result<usize, Status> {
    match conn.transport.place_of_data(&command.sgl).map_err(Status::do_not_retry)? {
        Data::Transport { length } if length <= conn.max_io_bytes.max(64 << 10) => Ok(length as usize),
        Data::Transport { .. } => Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry()),
        Data::InCapsule { .. } => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry()),
    }
}

/// Answers with a structure, as much of it as the host has room for.
fn to_host(conn: &Connection, command: &Command, page: Vec<u8>) -> Result<Answer, Status> {
    let len = page.len().min(room(conn, command)?);
    Ok(Answer::Data(HostData::new(page, len)))
}

fn log_page(
    conn: &mut Connection,
    core: &mut Core,
    controller: &Arc<Controller>,
    command: &Command,
) -> Result<Answer, Status> {
    let asked = GetLogPage::of(command);
    // Section 5.16: the offset is in dwords, and a page is no longer than a transfer.
    if asked.length > u64::from(conn.max_io_bytes.max(64 << 10)) || !asked.offset.is_multiple_of(4) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let room = room(conn, command)?;
    let offset = usize::try_from(asked.offset).unwrap_or(usize::MAX);
    // A page that is not given stays unread.
    if logs::bytes_of_news(asked.lid).is_some_and(|bytes| offset > bytes) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    // Before the page is made: the host is told of what happens between the two, whether or not the page has it.
    if !asked.retain {
        controller.lock().unmask(asked.lid);
    }
    let mut page = logs::page(core, conn, controller, command.nsid, &asked)?;
    if !asked.retain && asked.lid == log::RESERVATION_NOTIFICATION {
        let mut state = controller.lock();
        if !state.notices.is_empty() {
            state.raise(AsyncEvent::RESERVATION_NOTICE);
        }
    }
    // Section 5.16: an offset beyond the end of the page.
    if offset > page.len() {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let len = (asked.length as usize).min(room).min((page.len() - offset).max(ZEROS_AFTER_LOG_PAGE));
    Ok(Answer::Data(match page.len() {
        0..=LONG_PAGE => HostData::new(page.split_off(offset), len),
        _ => HostData::shared(core.pages.share(page), offset, len),
    }))
}

fn get_features(
    conn: &Connection,
    core: &Core,
    controller: &Arc<Controller>,
    command: &Command,
) -> Result<Answer, Status> {
    let id = feature::identifier(command.cdw10);
    if is_hidden(core, id) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let capabilities = match id {
        feature::ASYNC_EVENT_CONFIGURATION
        | feature::KEEP_ALIVE_TIMER
        | feature::HOST_BEHAVIOR
        | feature::TIMESTAMP => 4,
        // Namespace specific, too.
        feature::RESERVATION_MASK | feature::RESERVATION_PERSISTENCE => 6,
        _ => 0,
    };
    match feature::select(command.cdw10) {
        feature::Select::SupportedCapabilities if is_known(id) => return Ok(Answer::Result(capabilities)),
        feature::Select::Reserved => return Err(Status::INVALID_FIELD.do_not_retry()),
        _ => {}
    }
    check_path(conn, core, id, command.nsid)?;
    // The target saves no value, and without a saved value the default one is asked for.
    let is_default = matches!(feature::select(command.cdw10), feature::Select::Default | feature::Select::Saved);
    let state = controller.lock();
    let value = |default: u32| {
        let set = state.features.get(&id).filter(|_| !is_default);
        Ok(Answer::Result(set.copied().unwrap_or(default).into()))
    };
    match id {
        feature::ARBITRATION
        | feature::POWER_MANAGEMENT
        | feature::ERROR_RECOVERY
        | feature::WRITE_ATOMICITY
        | feature::ASYNC_EVENT_CONFIGURATION => value(0),
        feature::TEMPERATURE_THRESHOLD => {
            let threshold = feature::Threshold::of(command.cdw11).ok_or(Status::INVALID_FIELD.do_not_retry())?;
            let set =
                state.thresholds[usize::from(threshold.is_under)].filter(|_| !is_default && threshold.is_composite);
            Ok(Answer::Result(set.unwrap_or(default_threshold(threshold)).into()))
        }
        feature::VOLATILE_WRITE_CACHE => value(1),
        feature::NUMBER_OF_QUEUES => value(feature::queues_value(controller.most_queues)),
        feature::KEEP_ALIVE_TIMER => Ok(Answer::Result(controller.keep_alive_ms.load(Ordering::Relaxed).into())),
        feature::TIMESTAMP => {
            let (set, since_ns) = if is_default { (None, core.now_ns) } else { state.timestamp };
            let ms = set.unwrap_or(0).wrapping_add(core.now_ns.saturating_sub(since_ns) / 1_000_000);
            to_host(conn, command, feature::Timestamp { ms, is_set: set.is_some() }.write().to_vec())
        }
        feature::HOST_BEHAVIOR if is_default => to_host(conn, command, vec![0; 512]),
        feature::HOST_BEHAVIOR => to_host(conn, command, state.host_behavior.to_vec()),
        feature::HOST_IDENTIFIER => to_host(conn, command, controller.host_id.to_vec()),
        feature::RESERVATION_MASK => {
            one_namespace(conn, core, command)?;
            Ok(Answer::Result(state.notices.mask(command.nsid).into()))
        }
        feature::RESERVATION_PERSISTENCE => {
            let named = one_namespace(conn, core, command)?;
            Ok(Answer::Result(reservations::persistence(&named.reservations).into()))
        }
        _ => Err(Status::INVALID_FIELD.do_not_retry()),
    }
}

/// The threshold that holds until a host sets one (section 5.27.1.3): none for sensors that do not exist.
fn default_threshold(threshold: feature::Threshold) -> u16 {
    match (threshold.is_under, threshold.is_composite) {
        (true, _) => 0,
        (false, true) => logs::WARNING_KELVINS,
        (false, false) => u16::MAX,
    }
}

/// Judges the namespace that a feature is asked of or set for.
///
/// # Errors
/// The status of its ANA state, for the features that are not available where the namespace is not (section 8.1);
/// Invalid Namespace or Format for a feature of a namespace that is not there.
fn check_path(conn: &Connection, core: &Core, id: u8, nsid: u32) -> Result<(), Status> {
    match conn.namespace(core, nsid) {
        None if id == feature::ERROR_RECOVERY && !matches!(nsid, 0 | u32::MAX) => {
            Err(Status::INVALID_NAMESPACE.do_not_retry())
        }
        Some(namespace) if matches!(id, feature::ERROR_RECOVERY | feature::WRITE_ATOMICITY) => conn.admits(namespace),
        _ => Ok(()),
    }
}

/// True for features of reservations while the target hides reservations.
fn is_hidden(core: &Core, id: u8) -> bool {
    matches!(id, feature::RESERVATION_MASK | feature::RESERVATION_PERSISTENCE)
        && core.configuration.options.hides_reservations()
}

fn is_known(id: u8) -> bool {
    matches!(id, 0x01 | 0x02 | 0x04..=0x07 | 0x0a | 0x0b | 0x0e | 0x0f | 0x16 | 0x81..=0x83)
}

/// The reservations of the namespaces that a command names: of one, or of all that the host sees (NSID FFFFFFFFh).
///
/// # Errors
/// Invalid Namespace or Format; the status of the ANA state of one of them (section 8.1: features of a namespace are
/// not available where the namespace is not).
fn named_namespaces(conn: &Connection, core: &Core, command: &Command) -> Result<Vec<Reserved>, Status> {
    let of = |nsid: u32| {
        let namespace = conn.namespace(core, nsid)?;
        let (device, reservations) = (namespace.device_uid, &namespace.reservations);
        Some(conn.admits(namespace).map(|()| Reserved { nsid, device, reservations: Arc::clone(reservations) }))
    };
    let named: Result<Vec<Reserved>, Status> = match (command.nsid, &conn.subsystem) {
        (u32::MAX, Some(subsystem)) => (0..subsystem.namespaces.len() as u32).filter_map(of).collect(),
        (nsid, _) => of(nsid).into_iter().collect(),
    };
    let named = named?;
    if named.is_empty() {
        return Err(Status::INVALID_NAMESPACE.do_not_retry());
    }
    Ok(named)
}

/// The reservations of the one namespace that a command names.
fn one_namespace(conn: &Connection, core: &Core, command: &Command) -> Result<Reserved, Status> {
    let invalid = Status::INVALID_NAMESPACE.do_not_retry();
    if command.nsid == u32::MAX {
        return Err(invalid);
    }
    named_namespaces(conn, core, command)?.pop().ok_or(invalid)
}

/// Has the registrar set Reservation Persistence (section 5.27.1.27).
fn set_persistence(conn: &Connection, core: &Core, controller: &Controller, command: &Command) -> Result<(), Status> {
    if feature::is_save(command.cdw10) {
        return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
    }
    if is_hidden(core, feature::RESERVATION_PERSISTENCE) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let namespaces = named_namespaces(conn, core, command)?;
    reservations::set_persistence(conn, core, command, controller, namespaces)
}

fn set_features(
    conn: &Connection,
    core: &Core,
    controller: &Arc<Controller>,
    command: &Command,
    data: &[u8],
) -> Result<Answer, Status> {
    // Section 5.27: the controller does not save features.
    if feature::is_save(command.cdw10) {
        return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
    }
    let id = feature::identifier(command.cdw10);
    check_path(conn, core, id, command.nsid)?;
    let invalid = Err(Status::INVALID_FIELD.do_not_retry());
    // Section 5.27: features of the controller are not set for a namespace. Error Recovery is of a namespace; all
    // namespaces have one value here.
    let of_namespaces = matches!(id, feature::ERROR_RECOVERY | feature::RESERVATION_MASK);
    if is_known(id) && !of_namespaces && conn.namespace(core, command.nsid).is_some() {
        return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.do_not_retry());
    }
    let mut state = controller.lock();
    match id {
        feature::NUMBER_OF_QUEUES => {
            let asked = feature::queues(command.cdw11);
            // Section 5.27.1.5: the value 65535, for 65536 queues, is not valid.
            if asked == 0 {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            // The same section: after the first I/O queue the number stays.
            if !state.queues.is_empty() {
                return Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry());
            }
            let granted = feature::queues_value(asked.min(controller.most_queues));
            state.features.insert(id, granted);
            Ok(Answer::Result(granted.into()))
        }
        // Section 5.27.1.12, and the TCP and RDMA transports, which require the timer.
        feature::KEEP_ALIVE_TIMER if command.cdw11 == 0 => Err(Status::KEEP_ALIVE_INVALID.do_not_retry()),
        feature::KEEP_ALIVE_TIMER => {
            let timeout_ms = core.configuration.options.keep_alive_ms(command.cdw11);
            controller.keep_alive_ms.store(timeout_ms, Ordering::Relaxed);
            Ok(Answer::Result(0))
        }
        feature::HOST_BEHAVIOR => {
            let bytes = data.first_chunk::<512>().ok_or(Status::DATA_SGL_LENGTH_INVALID.do_not_retry())?;
            if !feature::is_host_behavior(bytes) {
                return invalid;
            }
            *state.host_behavior = *bytes;
            Ok(Answer::Result(0))
        }
        feature::TIMESTAMP => {
            let bytes = data.first_chunk::<8>().ok_or(Status::DATA_SGL_LENGTH_INVALID.do_not_retry())?;
            state.timestamp = (Some(feature::Timestamp::ms_of(*bytes)), core.now_ns);
            Ok(Answer::Result(0))
        }
        // Section 5.27.1.25: over Fabrics the identifier came with Connect, and tells hosts apart.
        feature::HOST_IDENTIFIER => Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()),
        // NVM Command Set specification 1.0, section 4.1.3.2: Identify Namespace does not offer the error that DULBE
        // asks for (NSFEAT bit 2).
        feature::ERROR_RECOVERY if command.cdw11 & feature::DULBE != 0 => invalid,
        feature::WRITE_ATOMICITY | feature::ARBITRATION | feature::ERROR_RECOVERY => {
            state.features.insert(id, command.cdw11 & feature::fields(id));
            Ok(Answer::Result(0))
        }
        // Events that the controller does not have are not enabled.
        feature::ASYNC_EVENT_CONFIGURATION => {
            let has = feature::EVENTS_OF_HEALTH | identify::events(core, controller);
            state.features.insert(id, command.cdw11 & has);
            Ok(Answer::Result(0))
        }
        feature::TEMPERATURE_THRESHOLD => {
            let threshold = feature::Threshold::of(command.cdw11).ok_or(Status::INVALID_FIELD.do_not_retry())?;
            // There is no sensor besides the composite temperature.
            if threshold.is_composite || threshold.is_of_all {
                state.thresholds[usize::from(threshold.is_under)] = Some(threshold.kelvins);
            }
            Ok(Answer::Result(0))
        }
        feature::RESERVATION_MASK if !is_hidden(core, id) => {
            for named in named_namespaces(conn, core, command)? {
                state.notices.set_mask(named.nsid, command.cdw11 & feature::fields(id));
            }
            Ok(Answer::Result(0))
        }
        feature::VOLATILE_WRITE_CACHE if command.cdw11 & 1 == 1 => Ok(Answer::Result(0)),
        // There is one power state; a hint at the workload changes nothing.
        feature::POWER_MANAGEMENT if command.cdw11 & 0x1f == 0 => {
            state.features.insert(id, command.cdw11 & feature::fields(id));
            Ok(Answer::Result(0))
        }
        feature::VOLATILE_WRITE_CACHE => Err(Status::FEATURE_NOT_CHANGEABLE.do_not_retry()),
        _ => Err(Status::INVALID_FIELD.do_not_retry()),
    }
}

/// Tells events as long as there are requests to tell them with.
pub(super) fn deliver_events(conn: &mut Connection, core: &mut Core) {
    let Some(controller) = conn.controller.clone() else { return };
    while !conn.event_requests.is_empty() {
        let Some(event) = controller.lock().next_event() else { return };
        let cid = conn.event_requests.remove(0);
        conn.respond(core, cid, Status::SUCCESS, event.result());
    }
}

/// Bit 0 of the result says whether the command was *not* aborted.
fn abort(conn: &mut Connection, core: &mut Core, controller: &Arc<Controller>, command: &Command) {
    let (queue_id, cid) = (command.cdw10 as u16, (command.cdw10 >> 16) as u16);
    if queue_id == 0 {
        // Only requests for events can wait on an admin queue.
        let waiting = conn.event_requests.iter().position(|&request| request == cid);
        if let Some(index) = waiting {
            conn.event_requests.remove(index);
            conn.respond(core, cid, Status::ABORTED_BY_REQUEST, 0);
        }
        return conn.respond(core, command.cid, Status::SUCCESS, waiting.is_none().into());
    }
    let queue = controller.lock().queues.get(&queue_id).map(|queue| queue.token);
    match queue {
        Some(_) if conn.aborts > ABORTS_LESS_ONE => {
            conn.respond(core, command.cid, Status::ABORT_LIMIT_EXCEEDED, 0);
        }
        // That queue may be another reactor's, which answers when it has looked.
        Some(queue) => {
            conn.aborts += 1;
            let (asked_by, asked_cid) = (conn.token, command.cid);
            core.shared.send(queue.reactor, Message::Abort { queue, cid, asked_by, asked_cid });
        }
        None => conn.respond(core, command.cid, Status::SUCCESS, 1),
    }
}
