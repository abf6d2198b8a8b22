//! Methods about the addresses that a subsystem listens on.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{ADDRESS, NQN, SECURE_CHANNEL, SECURE_CONCATENATION, TGT_NAME, address_of, socket_address, subsystem};
use crate::control::jsonrpc::{Outcome, RpcError};
use crate::control::methods::{Method, method, refusal};
use crate::control::params::{Param, ParamKind, Params};
use crate::control::state::State;
use crate::target::{DISCOVERY_NQN, SecureChannel};

const LISTEN_ADDRESS: Param = Param::required("listen_address", ParamKind::Object(ADDRESS), "address to listen on");

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
            Param::only("ana_state", ParamKind::Text, "\"optimized\"", "every path is optimized"),
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
        "Stop listening on an address, and disconnect the hosts that came in on it",
        &[NQN, LISTEN_ADDRESS, TGT_NAME],
        "true",
        remove_listener,
    ),
    method(
        "nvmf_subsystem_get_listeners",
        "List the addresses on which a subsystem listens",
        &[NQN, TGT_NAME],
        "an array of addresses",
        get_listeners,
    ),
];

/// The NQN of the subsystem; `discovery` is short for that of discovery, as for SPDK's clients.
fn nqn(params: &Params) -> &str {
    match params.text("nqn") {
        "discovery" => DISCOVERY_NQN,
        nqn => nqn,
    }
}

fn listen_address(params: &Params) -> Result<SocketAddr, RpcError> {
    socket_address(params, "listen_address")
}

fn add_listener(state: &mut State, params: &Params) -> Outcome {
    let address = listen_address(params)?;
    if !state.has_made("nvmf_create_transport") {
        return Err(RpcError::params(
            "there is no transport to listen with: call nvmf_create_transport trtype=TCP first",
        ));
    }
    let nqn = nqn(params);
    let concatenates = params.bool_if("secure_concatenation") == Some(true);
    let bound = match params.bool_if("secure_channel") == Some(true) {
        true if concatenates => state.target.add_secure_listener(nqn, address, SecureChannel::Concatenated),
        true => state.target.add_secure_listener(nqn, address, SecureChannel::Required),
        false if concatenates => return Err(RpcError::params("secure_concatenation goes with secure_channel=true")),
        false => state.target.add_listener(nqn, address),
    };
    let bound = bound.map_err(refusal)?;
    let any =
        state.target.subsystems().iter().any(|subsystem| subsystem.spec.nqn == nqn && subsystem.spec.allow_any_host);
    if any && !bound.ip().is_loopback() {
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
    state.target.remove_listener(nqn, address).map_err(refusal)?;
    let gone = address_of(&address);
    state.forget(|method, given| {
        method == "nvmf_subsystem_add_listener" && given["nqn"] == nqn && given["listen_address"] == gone
    });
    Ok(Value::Bool(true))
}

fn get_listeners(state: &mut State, params: &Params) -> Outcome {
    let optimized = json!([{ "ana_group": 1, "ana_state": "optimized" }]);
    let one = |listener| json!({ "address": address_of(listener), "ana_states": optimized });
    let listeners = match nqn(params) {
        DISCOVERY_NQN => state.target.discovery_listeners(),
        nqn => subsystem(state, nqn)?.listeners,
    };
    Ok(listeners.iter().map(one).collect())
}
