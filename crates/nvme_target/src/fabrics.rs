//! Fabrics commands: Connect, properties, authentication, Disconnect (Base specification 2.0, chapter 6).

use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme::auth::{Channel, Closed, ExchangeState, Identity, Kind};
use nvme::spec::fabrics::{self, Authentication, Connect, ConnectData, DYNAMIC_CONTROLLER, PropertyAccess};
use nvme::spec::property::{self, Capabilities, Configuration};
use nvme::spec::{Command, Data, Status};

use super::answer::Answer;
use super::connection::{Connection, Phase};
use super::controller::{Controller, IoQueue, NewController, Service};
use super::core::Core;
use super::examiner::{Examination, Examiner, Verdict};
use super::mailbox::Message;
use super::traces::{self, Cause, Refusal, Refused};
use super::transport::Transport;

/// The time that hosts allow for CSTS.RDY to follow CC.EN. This target sets RDY at once.
const READY_TIMEOUT_MS: u32 = 15_000;

/// A refusal: status and result, and the reason for the log.
struct No {
    answer: (Status, u64),
    kind: Refused,
    why: &'static str,
}

/// A refusal with that status, result and reason.
fn no<T>(answer: (Status, u64), kind: Refused, why: &'static str) -> Result<T, No> {
    Err(No { answer, kind, why })
}

/// Carries out the first command of a queue, which must be Connect: refuses any other command.
pub(super) fn before_connect(conn: &mut Connection, core: &mut Core, command: &Command, data: &[u8]) {
    if !command.is_fabrics() || command.fctype() != fabrics::CONNECT {
        return conn.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0);
    }
    match connect(conn, core, command, data) {
        Ok(result) => conn.accept(core, command.cid, result),
        Err(No { answer: (status, result), kind, why }) => {
            let names = data.first_chunk().map(|data| traces::names(&ConnectData::read(data)));
            let names = names.as_ref().map(|(host, subsystem)| (host, subsystem.as_str()));
            let Connection { peer, listener, .. } = *conn;
            core.shared.refused(&Refusal { kind, peer, listener, names, why });
            conn.respond(core, command.cid, status, result);
        }
    }
}

/// Takes Do Not Retry from a refusal of Connect that may not be one later: subsystems and lists of hosts come after
/// their listener when a target is set up again, and controllers end. On Do Not Retry Linux (6.10 and later) gives a
/// controller up for good, with the file systems on it, in the moment in which a target restarts.
fn for_now((status, result): (Status, u64)) -> (Status, u64) {
    (status.may_retry(), result)
}

/// Carries out a Connect. Returns the result of a Connect that succeeds: the connection is a queue then.
///
/// # Errors
/// The statuses of the Connect command (Base specification 2.0, section 6.3); Connect Invalid Parameters names the
/// parameter by its offset.
fn connect(conn: &mut Connection, core: &mut Core, command: &Command, data: &[u8]) -> Result<u64, No> {
    let asked = Connect::of(command);
    let Some(data) = data.first_chunk::<{ ConnectData::BYTES }>().filter(|_| data.len() == ConnectData::BYTES) else {
        let answer = (Status::DATA_SGL_LENGTH_INVALID.do_not_retry(), 0);
        return no(answer, Refused::Connect, "its data do not have 1024 bytes");
    };
    let data = ConnectData::read(data);
    if asked.recfmt != 0 {
        let answer = (Status::CONNECT_INCOMPATIBLE_FORMAT.do_not_retry(), 0);
        return no(answer, Refused::Connect, "its command has a record format other than 0");
    }
    let Ok(subsystem_nqn) = data.subsystem() else {
        let answer = Connect::invalid(true, Connect::AT_SUBNQN);
        return no(answer, Refused::Subsystem, "the name of the subsystem is not a name");
    };
    let host_nqn = data.host();
    let channel = match conn.transport.identity() {
        Some(identity) => {
            // A key lets one host in to one subsystem.
            let is_its = |proven: &Identity| {
                (proven.host_nqn.as_str(), proven.subsystem_nqn.as_str()) == (host_nqn.as_str(), subsystem_nqn.as_str())
            };
            match Identity::parse(identity).filter(is_its) {
                Some(proven) if proven.kind == Kind::Generated => Channel::OfGeneratedKey,
                Some(_) => Channel::Usual,
                None => {
                    let answer = (Status::CONNECT_INVALID_HOST.do_not_retry(), 0);
                    return no(answer, Refused::Tls, "it has proven the TLS key of another host or subsystem");
                }
            }
        }
        // On this listener only the admin queue begins plainly, to make the key for itself and the others.
        None if core.configuration.secured.contains_key(&conn.listener) && !subsystem_nqn.is_discovery() => {
            if asked.qid != 0 {
                let answer = (Status::CONNECT_INVALID_HOST.do_not_retry(), 0);
                return no(answer, Refused::Tls, "its I/O queue begins without TLS");
            }
            Channel::Concatenating
        }
        None => Channel::Usual,
    };
    let limits = core.configuration.options.limits;
    let most = if asked.qid == 0 { limits.admin_queue_depth } else { limits.queue_depth };
    let entries = u32::from(asked.sqsize) + 1;
    if asked.sqsize == 0 || entries > u32::from(most) {
        let answer = Connect::invalid(false, Connect::AT_SQSIZE);
        return no(answer, Refused::Connect, "its queue has more entries than the target takes, or one");
    }
    let (mut is_listed, mut ana_changes) = (false, 0);
    let (service, ids) = if subsystem_nqn.is_discovery() {
        (Service::Discovery, None)
    } else {
        let configuration = Arc::clone(&core.configuration);
        let subsystem = configuration.subsystems.iter().find(|subsystem| subsystem.nqn == subsystem_nqn);
        let unknown = for_now(Connect::invalid(true, Connect::AT_SUBNQN));
        let Some(subsystem) = subsystem else {
            return no(unknown, Refused::Subsystem, "there is no such subsystem (nvmf_get_subsystems lists them)");
        };
        if !subsystem.listeners.contains(&conn.listener) {
            let why = "the subsystem does not listen there (nvmf_subsystem_add_listener)";
            return no(unknown, Refused::Subsystem, why);
        }
        if !subsystem.admits(&host_nqn) {
            let why = "it is not in the list of hosts (nvmf_subsystem_add_host, --allow-host)";
            return no((Status::CONNECT_INVALID_HOST, 0), Refused::Host, why);
        }
        is_listed = subsystem.hosts.contains(&host_nqn);
        ana_changes = subsystem.ana.get(&conn.listener).map_or(0, |states| states.changes());
        (Service::Subsystem(subsystem.uid), subsystem.spec.controller_ids)
    };
    if service == Service::Discovery && asked.qid != 0 {
        let answer = Connect::invalid(false, Connect::AT_QID);
        return no(answer, Refused::Connect, "the discovery service has no I/O queues");
    }
    let shared = Arc::clone(&core.shared);
    let authenticator = shared.authenticator();
    let exchange = authenticator.and_then(|gate| gate.begin(host_nqn.as_str(), subsystem_nqn.as_str(), channel));
    if exchange.is_none() && channel == Channel::Concatenating {
        // Its key may come, as its place in a list of hosts.
        let why = "the listener makes keys of TLS, and the host has no key for that (dhchap_key)";
        return no((Status::CONNECT_INVALID_HOST, 0), Refused::Key, why);
    }
    let mut controllers = shared.controllers();
    // Any peer may ask the discovery service under any name, and any peer may give the name of a host that must prove
    // itself: both are guests, and take nothing that belongs to the host of that name.
    let counts_as_host = service != Service::Discovery && exchange.is_none();
    let tenant = match counts_as_host {
        true => controllers.host_connects(&host_nqn, is_listed, &limits),
        false => Some(0),
    };
    let Some(tenant) = tenant else {
        let why =
            "it has as many connections as one host may have (--connections-per-host), or all unlisted hosts have";
        return no((Status::CONNECT_CONTROLLER_BUSY, 0), Refused::Limit, why);
    };
    let controller = if asked.qid == 0 {
        let is_dynamic = data.cntlid == DYNAMIC_CONTROLLER;
        let new = NewController {
            service,
            ids,
            subsystem_nqn: subsystem_nqn.clone(),
            host_nqn: host_nqn.clone(),
            host_id: data.hostid,
            peer: conn.peer,
            listener: conn.listener,
            most_queues: core.configuration.queues,
            keep_alive_ms: core.configuration.options.keep_alive_ms(asked.kato_ms),
            admin: conn.token,
            awaits_proof: exchange.is_some(),
            ana_changes,
            now_ns: core.now_ns,
        };
        let is_second = |other: &Arc<Controller>| {
            (other.service, other.listener) == (service, conn.listener)
                && (&other.host_nqn, other.host_id) == (&host_nqn, data.hostid)
                && !other.awaits_proof.load(Ordering::Relaxed)
        };
        if shared.restricts_hosts.load(Ordering::Relaxed)
            && service != Service::Discovery
            && controllers.iter().any(is_second)
        {
            if counts_as_host {
                controllers.host_disconnects(tenant, is_listed);
            }
            // Its other controller may be one whose connection is lost, and which the keep-alive timeout ends soon.
            let why = "it has a controller on this listener, and may have one (the options of the transport)";
            return no((Status::CONNECT_INVALID_HOST, 0), Refused::Limit, why);
        }
        let created = if is_dynamic { controllers.create(new) } else { None };
        let created = created.map(|(controller, evicted)| {
            if let Some(evicted) = evicted {
                let admin = evicted.lock().admin;
                shared.send(admin.reactor, Message::Close(admin, Cause::Limit));
            }
            controller
        });
        match (created, is_dynamic) {
            (Some(controller), _) => Ok(controller),
            (None, true) => {
                let why = "all identifiers of controllers are taken (min_cntlid, max_cntlid)";
                no((Status::CONNECT_CONTROLLER_BUSY, 0), Refused::Limit, why)
            }
            (None, false) => {
                let answer = Connect::invalid(true, Connect::AT_CNTLID);
                no(answer, Refused::Connect, "it asks for a controller by number, and controllers are dynamic (FFFFh)")
            }
        }
    } else {
        let out_of_turn = (Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0);
        match controllers.get(service, data.cntlid) {
            None => {
                let answer = for_now(Connect::invalid(true, Connect::AT_CNTLID));
                no(answer, Refused::Connect, "the controller of its I/O queue has ended")
            }
            Some(of_host) if of_host.host_nqn != host_nqn || of_host.host_id != data.hostid => {
                no((Status::CONNECT_INVALID_HOST, 0), Refused::Host, "the controller belongs to another host")
            }
            Some(small) if asked.qid > small.most_queues => {
                let answer = Connect::invalid(false, Connect::AT_QID);
                no(answer, Refused::Connect, "its controller has fewer I/O queues")
            }
            Some(disabled) if !disabled.enabled.load(Ordering::Acquire) => {
                no(out_of_turn, Refused::Connect, "its controller is not enabled")
            }
            Some(controller) => match controller.lock().queues.entry(asked.qid) {
                Entry::Occupied(_) => no(out_of_turn, Refused::Connect, "the I/O queue is connected already"),
                Entry::Vacant(free) => {
                    free.insert(IoQueue { token: conn.token, peer: conn.peer, listener: conn.listener });
                    controller.begins();
                    Ok(Arc::clone(controller))
                }
            },
        }
    };
    let controller = controller.inspect_err(|_| {
        if counts_as_host {
            controllers.host_disconnects(tenant, is_listed);
        }
    })?;
    drop(controllers);
    conn.exchange = exchange;
    let id = controller.id;
    controller.lock().proofs.remove(&asked.qid); // that of an earlier queue of this number
    (conn.tenant, conn.is_listed, conn.counts_as_host) = (tenant, is_listed, counts_as_host);
    conn.opened_ns = core.now_ns;
    conn.queue_id = asked.qid;
    conn.queue_entries = entries as u16;
    conn.no_flow_control = asked.cattr & Connect::NO_FLOW_CONTROL != 0;
    conn.subsystem = core.subsystem(service, &host_nqn);
    conn.ana = core.ana(&controller).cloned();
    conn.controller = Some(controller);
    conn.phase = Phase::Ready;
    announce(conn, core);
    if asked.qid != 0 {
        conn.transport.becomes_io_queue(core);
    } else {
        conn.counts_as_admin = true;
        shared.connection_is_admin(core.reactor);
    }
    core.connected(asked.qid == 0, counts_as_host.then_some(tenant), host_nqn.as_str());
    if !host_nqn.is_well_formed() {
        shared.warn_of_host_name(&host_nqn, conn.peer);
    }
    Ok(Connect::accepted(id, conn.exchange.is_some(), channel == Channel::Concatenating))
}

/// Tells of a queue whose host need not prove itself, or has done so.
fn announce(conn: &Connection, core: &Core) {
    if let (Some(controller), None) = (&conn.controller, &conn.exchange) {
        core.shared.joined(conn, controller);
    }
}

/// Tells of a host that has not proven its key.
pub(super) fn unproven(conn: &Connection, core: &Core, why: &str) {
    let Connection { peer, listener, .. } = *conn;
    let names = conn.controller.as_ref().map(|controller| (&controller.host_nqn, controller.subsystem_nqn.as_str()));
    core.shared.refused(&Refusal { kind: Refused::Key, peer, listener, names, why });
}

/// True if the command is part of an authentication, or ends the queue.
pub(super) fn is_authentication(command: &Command) -> bool {
    command.is_fabrics()
        && matches!(
            command.fctype(),
            fabrics::AUTHENTICATION_SEND | fabrics::AUTHENTICATION_RECEIVE | fabrics::DISCONNECT
        )
}

/// Carries out a Fabrics command of a connected queue.
///
/// Each command refuses by the clauses of its section in the Base specification 2.0: Authentication Receive 6.1,
/// Authentication Send 6.2, Connect 6.3 (once for each queue), Disconnect 6.4 (not for the admin queue), Property Get
/// 6.5 and Property Set 6.6.
pub(super) fn carry_out(conn: &mut Connection, core: &mut Core, command: &Command, data: &[u8]) {
    let invalid = Status::INVALID_FIELD.do_not_retry();
    match command.fctype() {
        fabrics::CONNECT => conn.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0),
        fabrics::PROPERTY_GET if conn.is_admin() => match property_get(conn, core, command) {
            Some(value) => conn.respond(core, command.cid, Status::SUCCESS, value),
            // Without Do Not Retry: nvme-cli, which reads all registers of PCIe in a row, takes only this status to
            // mean "none".
            None => conn.respond(core, command.cid, Status::INVALID_FIELD, 0),
        },
        fabrics::PROPERTY_SET if conn.is_admin() => {
            let status = property_set(conn, core, command);
            conn.respond(core, command.cid, status, 0);
        }
        fabrics::AUTHENTICATION_SEND => authentication_send(conn, core, command, data),
        fabrics::AUTHENTICATION_RECEIVE => authentication_receive(conn, core, command),
        fabrics::DISCONNECT if !conn.is_admin() => {
            conn.respond(core, command.cid, Status::SUCCESS, 0);
            // The connection closes when the response is out; the host must not send more.
            conn.hang_up(core, Cause::Disconnect);
        }
        fabrics::DISCONNECT => conn.respond(core, command.cid, Status::INVALID_QUEUE_TYPE.do_not_retry(), 0),
        _ => conn.respond(core, command.cid, invalid, 0),
    }
}

fn property_get(conn: &mut Connection, core: &Core, command: &Command) -> Option<u64> {
    let access = PropertyAccess::of(command);
    let controller = conn.controller.as_ref()?;
    let capabilities = Capabilities {
        queue_entries: core.configuration.options.limits.queue_depth.into(),
        timeout_ms: READY_TIMEOUT_MS,
    };
    match (access.offset, access.bytes) {
        (property::CAP, 8) => Some(capabilities.value()),
        // A host may read either half of CAP, as SPDK's target answers.
        (property::CAP, 4) => Some(capabilities.value() & 0xffff_ffff),
        (property::CAP_HIGH, 4) => Some(capabilities.value() >> 32),
        // CAP says that there is no such reset: then it reads as 0.
        (property::NSSR, 4) => Some(0),
        (property::VS, 4) => Some(property::VERSION_1_4.into()),
        (property::CC, 4) => Some(controller.lock().configuration.0.into()),
        (property::CSTS, 4) => Some(controller.status().value().into()),
        _ => None,
    }
}

fn property_set(conn: &mut Connection, core: &mut Core, command: &Command) -> Status {
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let access = PropertyAccess::of(command);
    if (access.offset, access.bytes) != (property::CC, 4) {
        return invalid;
    }
    let Some(controller) = conn.controller.clone() else { return Status::INTERNAL_ERROR };
    let new = Configuration(access.value as u32);
    let mut state = controller.lock();
    if new.is_enabled() && !state.configuration.is_enabled() {
        let is_possible = new.command_set() == 0 || new.command_set() == 6;
        if !is_possible || new.memory_page_shift() != 0 || new.arbitration() != 0 {
            return invalid;
        }
        state.status.ready = true;
        state.status.shutdown = 0;
    }
    let resets = !new.is_enabled() && state.configuration.is_enabled();
    state.configuration = new;
    if new.shutdown() != 0 {
        state.status.shutdown = 2;
    }
    if resets {
        state.reset(core.now_ns, core.ana(&controller).map_or(0, |states| states.changes()));
        // Requests for events end without an answer; the host makes new ones.
        conn.outstanding = conn.outstanding.saturating_sub(conn.event_requests.len() as u32);
        conn.event_requests.clear();
    }
    controller.enabled.store(new.is_enabled() && new.shutdown() == 0, Ordering::Release);
    if resets || new.shutdown() != 0 {
        // I/O queues end with a reset or a shutdown; their hosts repeat the commands that have not ended.
        for IoQueue { token, .. } in std::mem::take(&mut state.queues).into_values() {
            core.shared.send(token.reactor, Message::Close(token, Cause::Reset));
        }
    }
    Status::SUCCESS
}

/// Hands the message over to be examined: the answer follows when it has been.
fn authentication_send(conn: &mut Connection, core: &mut Core, command: &Command, data: &[u8]) {
    let asked = Authentication::of(command);
    let is_ours = asked.secp == Authentication::NVME && asked.spsp0 == 1 && asked.spsp1 == 1;
    if conn.is_examined {
        // One message at a time: the host must wait for the answer to its last one.
        conn.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0);
        unproven(conn, core, "it sends a message of its authentication before the answer to the last one");
        return conn.hang_up(core, Cause::NoProof);
    }
    let Some(place) = &mut conn.exchange else {
        return conn.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0);
    };
    if !is_ours || asked.length as usize != data.len() || data.is_empty() {
        conn.respond(core, command.cid, Status::INVALID_FIELD.do_not_retry(), 0);
        unproven(conn, core, "its Authentication Send has wrong fields");
        return conn.hang_up(core, Cause::NoProof);
    }
    let exchange = std::mem::replace(place, Box::new(Closed));
    conn.is_examined = true;
    let examination = Examination::new(conn.token, command.cid, exchange, data.to_vec());
    Examiner::examine(&core.shared, conn.source(), examination);
}

/// Answers the command whose message has been examined.
pub(super) fn examined(conn: &mut Connection, core: &mut Core, examination: Examination) {
    let status = match examination.verdict {
        Verdict::Accepted => Status::SUCCESS,
        Verdict::Refused => Status::INVALID_FIELD.do_not_retry(),
        // The host tries again with a new connection, as after any authentication that fails.
        Verdict::Displaced => Status::COMMAND_INTERRUPTED,
    };
    (conn.exchange, conn.is_examined) = (Some(examination.exchange), false);
    conn.respond(core, examination.cid, status, 0);
    if examination.verdict != Verdict::Accepted {
        let failure = conn.exchange.as_ref().and_then(|exchange| exchange.failure());
        let why = match examination.verdict {
            Verdict::Displaced => "too many hosts prove their keys at this moment".into(),
            _ => failure.unwrap_or_else(|| "it broke its authentication off".into()),
        };
        unproven(conn, core, &why);
        conn.hang_up(core, Cause::NoProof);
    }
    forget_if_done(conn, core);
}

/// An exchange that has let the host in has no more to say: commands go their way without asking it. The connection
/// counts as one of its host from now on; beyond the limits on these it ends.
fn forget_if_done(conn: &mut Connection, core: &mut Core) {
    let done = conn.exchange.take_if(|exchange| exchange.state() == ExchangeState::Done);
    let (Some(done), Some(controller)) = (done, conn.controller.clone()) else { return };
    announce(conn, core);
    if let Some(proof) = done.proof() {
        controller.lock().proofs.insert(conn.queue_id, proof);
    }
    if conn.is_admin() {
        controller.awaits_proof.store(false, Ordering::Relaxed);
    }
    if controller.is_discovery() || conn.counts_as_host {
        return;
    }
    let limits = core.configuration.options.limits;
    let tenant = core.shared.controllers().host_connects(&controller.host_nqn, conn.is_listed, &limits);
    let Some(tenant) = tenant else { return conn.hang_up(core, Cause::Limit) };
    (conn.tenant, conn.counts_as_host) = (tenant, true);
    core.rows.host(core.shared.board.as_ref(), tenant, controller.host_nqn.as_str());
}

fn authentication_receive(conn: &mut Connection, core: &mut Core, command: &Command) {
    let asked = Authentication::of(command);
    let is_ours = asked.secp == Authentication::NVME && asked.spsp0 == 1 && asked.spsp1 == 1;
    let capacity = asked.length as usize;
    let room = conn.transport.place_of_data(&command.sgl);
    let Some(exchange) = &mut conn.exchange else {
        return conn.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0);
    };
    let fits = room.is_ok_and(|room| room == Data::Transport { length: asked.length });
    if !is_ours || capacity == 0 || capacity > 64 << 10 || !fits {
        return conn.respond(core, command.cid, Status::INVALID_FIELD.do_not_retry(), 0);
    }
    let message = exchange.send(capacity);
    let failed = exchange.state() == ExchangeState::Failed || message.len() > capacity;
    if message.len() > capacity {
        return conn.respond(core, command.cid, Status::INVALID_FIELD.do_not_retry(), 0);
    }
    conn.respond_data(core, command.cid, &Answer::new(message, capacity));
    if failed {
        let failure = conn.exchange.as_ref().and_then(|exchange| exchange.failure());
        unproven(conn, core, &failure.unwrap_or_else(|| "its authentication has failed".into()));
        conn.hang_up(core, Cause::NoProof);
    }
    forget_if_done(conn, core);
}
