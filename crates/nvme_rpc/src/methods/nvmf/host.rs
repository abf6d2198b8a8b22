//! Methods about the hosts that may connect to a subsystem, and their keys.

use nvme::spec::DISCOVERY_NQN;
use serde_json::{Value, json};

use super::{HOST, NQN, TGT_NAME, subsystem};
use crate::jsonrpc::{Outcome, RpcError};
use crate::methods::keyring::{credentials, tls_key};
use crate::methods::{Method, method, refusal};
use crate::params::{Param, ParamKind, Params, U64};
use crate::state::State;

const DHCHAP_KEY: Param = Param::optional(
    "dhchap_key",
    ParamKind::Text,
    "none",
    "name of the key that the host must prove to know (DH-HMAC-CHAP)",
);
const DHCHAP_CTRLR_KEY: Param = Param::optional(
    "dhchap_ctrlr_key",
    ParamKind::Text,
    "none",
    "name of the key that this target proves to know, when a host asks for a proof",
);

/// The methods of this module.
pub static METHODS: &[Method] = &[
    method(
        "nvmf_subsystem_add_host",
        "Let a host connect to a subsystem",
        &[
            NQN,
            HOST,
            DHCHAP_KEY,
            DHCHAP_CTRLR_KEY,
            Param::optional(
                "psk",
                ParamKind::Text,
                "none",
                "name of the key that the host proves on listeners with secure_channel (TLS 1.3)",
            ),
            TGT_NAME,
        ],
        "true",
        add_host,
    ),
    method(
        "nvmf_subsystem_set_keys",
        "Change the keys of a listed host, for its later connections; its present ones last",
        &[
            NQN,
            HOST,
            DHCHAP_KEY,
            DHCHAP_CTRLR_KEY,
            Param::optional(
                "psk",
                ParamKind::Text,
                "its present one",
                "name of the key of TLS; the keys of DH-HMAC-CHAP stay if only this one is given",
            ),
            TGT_NAME,
        ],
        "true",
        set_keys,
    ),
    method(
        "nvmf_subsystem_remove_host",
        "Remove a host from the list of a subsystem, and disconnect the host; the answer comes when no device works any \
         more for the host",
        &[
            NQN,
            HOST,
            Param::ignored(
                "timeout_ms",
                U64,
                "the most that the host's I/O may take: the host is disconnected at once, and the answer waits for its I/O",
            ),
            TGT_NAME,
        ],
        "true",
        remove_host,
    ),
    method(
        "nvmf_subsystem_allow_any_host",
        "Let every host connect, or from now on only listed hosts",
        &[NQN, Param::required("allow_any_host", ParamKind::Bool, "let any host connect, listed or not"), TGT_NAME],
        "true",
        allow_any_host,
    ),
];

fn add_host(state: &mut State, params: &Params) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    let (credentials, tls_key) = (credentials(state, params)?, tls_key(state, params)?);
    if subsystem(state, nqn)?.hosts.iter().any(|listed| listed == host) {
        return Err(RpcError::errno(libc::EEXIST, format!("{host} is let in to {nqn} already")));
    }
    // Before the host is let in: it must not get in without its key for a moment.
    let keys = state.keys.clone();
    keys.set(nqn, host, credentials);
    keys.set_tls(nqn, host, tls_key);
    if let Err(error) = state.target.add_host(nqn, host) {
        keys.set(nqn, host, None);
        keys.set_tls(nqn, host, None);
        return Err(refusal(error));
    }
    state.remember("nvmf", "nvmf_subsystem_add_host", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn set_keys(state: &mut State, params: &Params) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    if !subsystem(state, nqn)?.hosts.iter().any(|listed| listed == host) {
        return Err(RpcError::errno(libc::ENODEV, format!("{host} is not let in to {nqn}: nvmf_subsystem_add_host")));
    }
    let (credentials, tls_key) = (credentials(state, params)?, tls_key(state, params)?);
    let is_it = |method: &str, given: &Value| {
        method == "nvmf_subsystem_add_host" && given["nqn"] == nqn && given["host"] == host
    };
    // A host whose key of TLS alone changes must not get in without the proof that it had to give.
    if credentials.is_some() || tls_key.is_none() {
        state.keys.set(nqn, host, credentials);
        for param in ["dhchap_key", "dhchap_ctrlr_key"] {
            state.amend(is_it, param, params.text_if(param).map_or(Value::Null, |name| json!(name)));
        }
    }
    if tls_key.is_some() {
        state.keys.set_tls(nqn, host, tls_key);
        state.amend(is_it, "psk", json!(params.text("psk")));
    }
    Ok(Value::Bool(true))
}

fn remove_host(state: &mut State, params: &Params) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    let departure = state.target.remove_host(nqn, host).map_err(refusal)?;
    state.await_departure(departure);
    state.keys.set(nqn, host, None);
    state.keys.set_tls(nqn, host, None);
    state.forget(|method, given| method == "nvmf_subsystem_add_host" && given["nqn"] == nqn && given["host"] == host);
    Ok(Value::Bool(true))
}

fn allow_any_host(state: &mut State, params: &Params) -> Outcome {
    let (nqn, allow) = (params.text("nqn"), params.bool_if("allow_any_host").unwrap_or(false));
    if nqn == DISCOVERY_NQN {
        let always = "the discovery service lets every host in, and names to each what it may connect to";
        return if allow { Ok(Value::Bool(true)) } else { Err(RpcError::params(always)) };
    }
    state.target.allow_any_host(nqn, allow).map_err(refusal)?;
    let is_it = |method: &str, given: &Value| method == "nvmf_create_subsystem" && given["nqn"] == nqn;
    state.amend(is_it, "allow_any_host", json!(allow));
    Ok(Value::Bool(true))
}
