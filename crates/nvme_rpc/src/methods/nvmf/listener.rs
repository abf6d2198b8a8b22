//! Methods about the addresses that a subsystem listens on.

use nvme::spec::DISCOVERY_NQN;
use nvme::spec::ana::AnaState;
use nvme_target::{Portal, SecureChannel};
use serde_json::{Value, json};

use super::transport::made;
use super::{ADDRESS, NQN, SECURE_CHANNEL, SECURE_CONCATENATION, TGT_NAME, address_of, portal, subsystem};
use crate::jsonrpc::{Outcome, RpcError};
use crate::methods::{Method, method, refusal};
use crate::params::{Param, ParamKind, Params, U32};
use crate::state::State;

const LISTEN_ADDRESS: Param = Param::required("listen_address", ParamKind::Object(ADDRESS), "address to listen on");

/// The ANA states that a call can set, under SPDK's names.
const ANA_STATES: [(&str, AnaState); 3] = [
    ("optimized", AnaState::Optimized),
    ("non_optimized", AnaState::NonOptimized),
    ("inaccessible", AnaState::Inaccessible),
];
const ANA_STATE: ParamKind = ParamKind::OneOf(&[ANA_STATES[0].0, ANA_STATES[1].0, ANA_STATES[2].0]);

/// The methods of this module.
pub static METHODS: &[Method] = &[
    method(
        "nvmf_subsystem_add_listener",
        "Let a subsystem listen on an address; the NQN of discovery names the discovery service",
        &[
            NQN,
            LISTEN_ADDRESS,
            TGT_NAME,
            SECURE_CHANNEL,
            SECURE_CONCATENATION,
            Param::optional(
                "ana_state",
                ANA_STATE,
                "optimized",
                "ANA state of all groups, in a subsystem with ana_reporting",
            ),
            Param::only("numa_id", ParamKind::Integer, "-1", "only the transport vfio-user has this parameter"),
            Param::ignored(
                "sock_impl",
                ParamKind::OneOf(&["posix", "uring"]),
                "the kernel's sockets in both cases; secure_channel asks for TLS",
            ),
        ],
        "true",
        add_listener,
    ),
    method(
        "nvmf_subsystem_remove_listener",
        "Stop listening on an address, and disconnect the hosts that came in on it; the answer comes when no device works \
         any more for them",
        &[NQN, LISTEN_ADDRESS, TGT_NAME],
        "true",
        remove_listener,
    ),
    method(
        "nvmf_subsystem_get_listeners",
        "List the addresses on which a subsystem listens, with the ANA state of each group if it has ana_reporting",
        &[NQN, TGT_NAME],
        "an array of addresses",
        get_listeners,
    ),
    method(
        "nvmf_subsystem_listener_set_ana_state",
        "Set the ANA state of a listener, and notify the hosts that came in on it; the answer to inaccessible comes when \
         no device works any more for them",
        &[
            NQN,
            LISTEN_ADDRESS,
            Param::required("ana_state", ANA_STATE, "ANA state"),
            Param::optional("anagrpid", U32, "all groups", "ANA group, up to max_namespaces"),
            TGT_NAME,
        ],
        "true",
        set_ana_state,
    ),
];

/// The NQN of the subsystem; `discovery` is short for that of discovery, as for SPDK's clients.
fn nqn(params: &Params) -> &str {
    match params.text("nqn") {
        "discovery" => DISCOVERY_NQN,
        nqn => nqn,
    }
}

fn listen_address(params: &Params) -> Result<Portal, RpcError> {
    portal(params, "listen_address")
}

fn add_listener(state: &mut State, params: &Params) -> Outcome {
    let address = listen_address(params)?;
    if made(state, address.transport).is_none() {
        let trtype = address.transport.name();
        return Err(RpcError::params(format!(
            "the target has no such transport yet: call nvmf_create_transport trtype={trtype} first"
        )));
    }
    let nqn = nqn(params);
    let concatenates = params.bool_if("secure_concatenation") == Some(true);
    let secured = match params.bool_if("secure_channel") == Some(true) {
        true if concatenates => Some(SecureChannel::Concatenated),
        true => Some(SecureChannel::Required),
        false if concatenates => return Err(RpcError::params("secure_concatenation goes with secure_channel=true")),
        false => None,
    };
    let ana_state = ana_state(params)?;
    if ana_state != AnaState::Optimized && !(nqn != DISCOVERY_NQN && subsystem(state, nqn)?.spec.ana_reporting) {
        return Err(RpcError::params(format!("{nqn} has no ANA states: create it with ana_reporting=true")));
    }
    let bound = state.target.listen(nqn, address, secured, ana_state).map_err(refusal)?;
    let bound = Portal { address: bound, ..address };
    let any =
        state.target.subsystems().iter().any(|subsystem| subsystem.spec.nqn == nqn && subsystem.spec.allow_any_host);
    if any && !bound.address.ip().is_loopback() {
        state.warnings.push(format!("{nqn} on {bound} lets every host in that can reach it: allow_any_host is set"));
    }
    let nqn = nqn.to_string();
    let mut params = params.as_given().clone();
    params.insert("nqn".into(), json!(nqn));
    params["listen_address"] = address_of(&bound);
    state.remember("nvmf", "nvmf_subsystem_add_listener", params);
    Ok(Value::Bool(true))
}

fn remove_listener(state: &mut State, params: &Params) -> Outcome {
    let (nqn, address) = (nqn(params), listen_address(params)?);
    let departure = state.target.remove_listener(nqn, address).map_err(refusal)?;
    state.await_departure(departure);
    let gone = address_of(&address);
    state.forget(|method, given| {
        matches!(method, "nvmf_subsystem_add_listener" | "nvmf_subsystem_listener_set_ana_state")
            && given["nqn"] == nqn
            && given["listen_address"] == gone
    });
    Ok(Value::Bool(true))
}

/// The state that a call gives; optimized without one.
fn ana_state(params: &Params) -> Result<AnaState, RpcError> {
    let given = params.text_if("ana_state").unwrap_or(ANA_STATES[0].0);
    let known = ANA_STATES.iter().find(|(name, _)| *name == given);
    known.map(|(_, state)| *state).ok_or_else(|| RpcError::params(format!("ana_state {given:?} is unknown")))
}

fn set_ana_state(state: &mut State, params: &Params) -> Outcome {
    let (nqn, address) = (nqn(params), listen_address(params)?);
    let group = params.u32_if("anagrpid");
    let departure = state.target.set_ana_state(nqn, address, group, ana_state(params)?).map_err(refusal)?;
    state.await_departure(departure);
    let states = subsystem(state, nqn)?.ana_wanted.remove(&address).unwrap_or_default();
    remember_states(state, nqn, address, &states);
    Ok(Value::Bool(true))
}

/// Remembers the states of a listener: those of most groups with the call that adds the listener, the others by calls
/// of their own. If a group is inaccessible, the listener begins with all groups inaccessible, so that no path is open
/// for a moment, while the calls are carried out again, that is closed after them.
fn remember_states(state: &mut State, nqn: &str, address: Portal, states: &[AnaState]) {
    let at = address_of(&address);
    let is_of = |given: &Value| given["nqn"] == nqn && given["listen_address"] == at;
    state.forget(|method, given| method == "nvmf_subsystem_listener_set_ana_state" && is_of(given));
    let count = |state: &AnaState| states.iter().filter(|other| *other == state).count();
    let first = match states.contains(&AnaState::Inaccessible) {
        true => AnaState::Inaccessible,
        false => states.iter().copied().max_by_key(count).unwrap_or(AnaState::Optimized),
    };
    let is_listener = |method: &str, given: &Value| method == "nvmf_subsystem_add_listener" && is_of(given);
    state.amend(is_listener, "ana_state", json!(name(first)));
    for (group, other) in (1_u32..).zip(states).filter(|(_, other)| **other != first) {
        let call = json!({ "nqn": nqn, "listen_address": at, "ana_state": name(*other), "anagrpid": group });
        let params = call.as_object().cloned().unwrap_or_default();
        state.remember("nvmf", "nvmf_subsystem_listener_set_ana_state", params);
    }
}

/// SPDK's name of a state; null for one that no call sets.
fn name(state: AnaState) -> Option<&'static str> {
    ANA_STATES.iter().find(|(_, known)| *known == state).map(|(name, _)| *name)
}

fn get_listeners(state: &mut State, params: &Params) -> Outcome {
    if nqn(params) == DISCOVERY_NQN {
        let one = |listener| json!({ "address": address_of(listener) });
        return Ok(state.target.discovery_listeners().iter().map(one).collect());
    }
    let subsystem = subsystem(state, nqn(params))?;
    let one = |listener: &Portal| {
        let mut object = json!({ "address": address_of(listener) });
        if let Some(states) = subsystem.ana_states.get(listener) {
            let one = |(group, state): (u32, &AnaState)| json!({ "ana_group": group, "ana_state": name(*state) });
            object["ana_states"] = (1..).zip(states).map(one).collect();
        }
        object
    };
    Ok(subsystem.listeners.iter().map(one).collect())
}
