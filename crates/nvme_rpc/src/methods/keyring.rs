//! Methods about the keys of hosts, for DH-HMAC-CHAP and for TLS: files, under names.

use std::io::ErrorKind;
use std::path::Path;

use nvme::auth::{Credentials, Key, Secret, TlsKey};
use serde_json::{Value, json};

use super::{Method, Run, When, only};
use crate::jsonrpc::{Outcome, RpcError};
use crate::params::{Param, ParamKind, Params};
use crate::state::State;

const NAME: Param = Param::required("name", ParamKind::Text, "name of the key");

/// The methods of this module.
pub static METHODS: &[Method] = &[
    Method {
        name: "keyring_file_add_key",
        about: "Give a name to the key in a file; only its owner may have the right to read the file",
        params: &[
            NAME,
            Param::required(
                "path",
                ParamKind::Text,
                "the file: DHHC-1:hh:base64:, as nvme gen-dhchap-key makes it, or NVMeTLSkey-1:hh:base64:, as nvme gen-tls-key does",
            ),
        ],
        result: "true",
        when: When::Always,
        run: Run::Do(add_key),
    },
    Method {
        name: "keyring_file_remove_key",
        about: "Remove a key that no host uses",
        params: &[NAME],
        result: "true",
        when: When::Always,
        run: Run::Do(remove_key),
    },
    Method {
        name: "keyring_get_keys",
        about: "List the names of the keys, without their content",
        params: &[],
        result: "an array with names and paths",
        when: When::Always,
        run: Run::Do(get_keys),
    },
    only(
        "keyring_linux_set_options",
        "Say that keys do not come from the kernel's keyring",
        &[Param::only("enable", ParamKind::Bool, "false", "keys come from files: keyring_file_add_key")],
    ),
];

fn add_key(state: &mut State, params: &Params) -> Outcome {
    let (name, path) = (params.text("name"), params.text("path"));
    if state.keyring.contains_key(name) {
        return Err(RpcError::errno(libc::EEXIST, format!("a key {name} exists already")));
    }
    let key = read(path)?;
    state.keyring.insert(name.into(), key);
    state.remember("keyring", "keyring_file_add_key", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn read(path: &str) -> Result<Key, RpcError> {
    Key::read(Path::new(path)).map_err(|error| {
        let errno = match error.kind() {
            ErrorKind::PermissionDenied => libc::EPERM,
            ErrorKind::InvalidInput => libc::EINVAL,
            _ => error.raw_os_error().unwrap_or(libc::EIO),
        };
        RpcError::errno(errno, format!("{path}: {error}"))
    })
}

/// Gives a name the key that is in this file now. Hosts that use the name prove the new key when they connect the next
/// time. Returns true if the key or its file is another one than before.
///
/// # Errors
/// The file has no key, or one for another use: the key from before stays.
pub fn replace(state: &mut State, name: &str, path: &str) -> Result<bool, RpcError> {
    let key = read(path)?;
    let is_it = |method: &str, given: &Value| method == "keyring_file_add_key" && given["name"] == name;
    let moves = !state
        .made
        .iter()
        .any(|step| step.params.as_ref().is_some_and(|given| is_it(&step.method, given) && given["path"] == path));
    let Some(before) = state.keyring.insert(name.into(), key.clone()) else { return Err(no_key(name)) };
    if before != key {
        let users = state.made.iter().filter(|step| step.method == "nvmf_subsystem_add_host");
        let users = users.filter_map(|step| step.params.as_ref());
        let uses = |given: &&Value| ["dhchap_key", "dhchap_ctrlr_key", "psk"].iter().any(|param| given[param] == name);
        let proofs: Result<Vec<_>, RpcError> = users
            .filter(uses)
            .map(|given| {
                let table = super::find("nvmf_subsystem_add_host").map(|method| method.params).unwrap_or_default();
                let params = Params::check("nvmf_subsystem_add_host", table, Some(given))?;
                Ok((credentials(state, &params)?, tls_key(state, &params)?, params))
            })
            .collect();
        let proofs = match proofs {
            Ok(proofs) => proofs,
            Err(error) => {
                state.keyring.insert(name.into(), before);
                return Err(error);
            }
        };
        for (credentials, tls_key, params) in proofs {
            let (nqn, host) = (params.text("nqn"), params.text("host"));
            state.keys.set(nqn, host, credentials);
            state.keys.set_tls(nqn, host, tls_key);
        }
    }
    if moves {
        state.amend(is_it, "path", json!(path));
    }
    Ok(moves || before != key)
}

fn remove_key(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    let uses = |given: &Value| ["dhchap_key", "dhchap_ctrlr_key", "psk"].iter().any(|param| given[param] == name);
    let user = state.made.iter().filter_map(|step| step.params.as_ref()).find(|given| uses(given));
    if let Some(host) = user.and_then(|given| given["host"].as_str()) {
        return Err(RpcError::errno(libc::EBUSY, format!("{host} uses the key {name}: remove that host first")));
    }
    if state.keyring.remove(name).is_none() {
        return Err(no_key(name));
    }
    state.forget(|method, given| method == "keyring_file_add_key" && given["name"] == name);
    Ok(Value::Bool(true))
}

fn no_key(name: &str) -> RpcError {
    RpcError::errno(libc::ENOENT, format!("there is no key {name}: keyring_file_add_key names one"))
}

fn get_keys(state: &mut State, _: &Params) -> Outcome {
    let keys = state.made.iter().filter(|step| step.method == "keyring_file_add_key");
    Ok(keys
        .filter_map(|step| step.params.as_ref())
        .map(|given| json!({ "name": given["name"], "module": "keyring_file", "path": given["path"] }))
        .collect())
}

/// The keys that parameters `dhchap_key` and `dhchap_ctrlr_key` name.
pub fn credentials(state: &State, params: &Params) -> Result<Option<Credentials>, RpcError> {
    let named = |param: &str| -> Result<Option<Secret>, RpcError> {
        let name = params.text_if(param);
        name.map(|name| match state.keyring.get(name).ok_or_else(|| no_key(name))? {
            Key::Chap(secret) => Ok(secret.clone()),
            Key::Tls(_) => Err(RpcError::params(format!("{param}: {name} is a key of TLS (psk takes it)"))),
        })
        .transpose()
    };
    match (named("dhchap_key")?, named("dhchap_ctrlr_key")?) {
        (Some(host), controller) => Ok(Some(Credentials { host, controller })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(RpcError::params("dhchap_ctrlr_key needs dhchap_key: hosts prove themselves first")),
    }
}

/// The key of TLS that the parameter `psk` names.
pub fn tls_key(state: &State, params: &Params) -> Result<Option<TlsKey>, RpcError> {
    let Some(name) = params.text_if("psk") else { return Ok(None) };
    match state.keyring.get(name).ok_or_else(|| no_key(name))? {
        Key::Tls(key) => Ok(Some(key.clone())),
        Key::Chap(_) => Err(RpcError::params(format!("psk: {name} is a key of DH-HMAC-CHAP (dhchap_key takes it)"))),
    }
}
