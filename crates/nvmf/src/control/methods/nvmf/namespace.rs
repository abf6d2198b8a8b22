//! Methods about namespaces, and the hosts that see them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{HOST, NQN, TGT_NAME};
use crate::control::jsonrpc::{Outcome, RpcError};
use crate::control::methods::{Method, hex, method, refusal};
use crate::control::params::{Param, ParamKind, Params, U32};
use crate::control::state::State;
use crate::target::{NamespaceSpec, Visibility};

const NAMESPACE: &[Param] = &[
    Param::required("bdev_name", ParamKind::Text, "name of the device"),
    Param::optional("nsid", U32, "the lowest free number", "number of the namespace"),
    Param::optional("nguid", ParamKind::Text, "derived from the UUID", "NGUID, 32 hexadecimal digits"),
    Param::optional("eui64", ParamKind::Text, "derived from the UUID", "EUI-64, 16 hexadecimal digits"),
    Param::optional("uuid", ParamKind::Text, "the device's", "UUID"),
    Param::optional(
        "anagrpid",
        U32,
        "the number of the namespace",
        "ANA group, up to max_namespaces; hosts of a subsystem with ana_reporting see it",
    ),
    Param::optional(
        "no_auto_visible",
        ParamKind::Bool,
        "false",
        "show the namespace to no host but those that nvmf_ns_add_host names",
    ),
    Param::optional(
        "ptpl_file",
        ParamKind::Text,
        "a file below --state; without --state, reservations end with the target",
        "file that reservations persist in, in SPDK's form; it is created if it is not there",
    ),
    Param::only("hide_metadata", ParamKind::Bool, "false", "there is no metadata"),
];

/// The methods of this module.
pub static METHODS: &[Method] = &[
    method(
        "nvmf_subsystem_add_ns",
        "Add a device to a subsystem as a namespace, and notify hosts",
        &[NQN, Param::required("namespace", ParamKind::Object(NAMESPACE), "the namespace"), TGT_NAME],
        "the number of the namespace",
        add_ns,
    ),
    method(
        "nvmf_subsystem_remove_ns",
        "Remove a namespace, and notify hosts",
        &[NQN, Param::required("nsid", U32, "number of the namespace"), TGT_NAME],
        "true",
        remove_ns,
    ),
    method(
        "nvmf_subsystem_set_ns_ana_group",
        "Move a namespace to another ANA group, and notify hosts; the answer comes when no device works any more for a \
         path that is inaccessible now",
        &[
            NQN,
            Param::required("nsid", U32, "number of the namespace"),
            Param::required("anagrpid", U32, "ANA group, up to max_namespaces"),
            TGT_NAME,
        ],
        "true",
        set_ana_group,
    ),
    method(
        "nvmf_ns_add_host",
        "Show a namespace that was added with no_auto_visible to a host, and notify the host",
        &[NQN, Param::required("nsid", U32, "number of the namespace"), HOST, TGT_NAME],
        "true",
        |state, params| show_namespace(state, params, true),
    ),
    method(
        "nvmf_ns_remove_host",
        "Hide a namespace that was added with no_auto_visible from a host, and notify the host",
        &[NQN, Param::required("nsid", U32, "number of the namespace"), HOST, TGT_NAME],
        "true",
        |state, params| show_namespace(state, params, false),
    ),
];

fn add_ns(state: &mut State, params: &Params) -> Outcome {
    let nqn = params.text("nqn");
    let Some(given) = params.object_if("namespace") else { return Err(RpcError::params("namespace is missing")) };
    let mut spec = NamespaceSpec {
        nsid: given.u32_if("nsid").unwrap_or(0),
        device: given.text("bdev_name").into(),
        uuid: identity(&given, "uuid")?,
        nguid: identity(&given, "nguid")?,
        eui64: identity(&given, "eui64")?,
        ana_group: given.u32_if("anagrpid").unwrap_or(0),
        visibility: match given.bool_if("no_auto_visible") {
            Some(true) => Visibility::Only(BTreeSet::new()),
            _ => Visibility::All,
        },
        reservations: given.text_if("ptpl_file").map(Into::into),
    };
    if spec.reservations.is_none() {
        spec.reservations = kept_reservations(state, &spec);
    }
    let nsid = state.target.add_namespace(nqn, spec).map_err(refusal)?;
    let mut params = params.as_given().clone();
    params["namespace"]["nsid"] = json!(nsid);
    state.remember("nvmf", "nvmf_subsystem_add_ns", params);
    Ok(json!(nsid))
}

/// The file of the state directory for the reservations of a namespace; `None` if there is no directory, or hosts get
/// no reservations.
fn kept_reservations(state: &State, spec: &NamespaceSpec) -> Option<PathBuf> {
    let directory = state.directory.as_ref().filter(|_| !state.target.options().hides_reservations())?;
    let device = state.target.devices().into_iter().find(|device| device.spec.name == spec.device)?;
    Some(directory.reservations(&spec.identities(device.uuid).uuid.unwrap_or(device.uuid)))
}

/// An identity that the call gives; zeros are SPDK's way to say that there is none.
fn identity<const BYTES: usize>(given: &Params, name: &str) -> Result<Option<[u8; BYTES]>, RpcError> {
    let bytes = given.text_if(name).map(|text| hex(name, &text.replace('-', ""))).transpose()?;
    Ok(bytes.filter(|bytes| *bytes != [0; BYTES]))
}

fn remove_ns(state: &mut State, params: &Params) -> Outcome {
    let (nqn, nsid) = (params.text("nqn"), params.u32_if("nsid").unwrap_or_default());
    state.target.remove_namespace(nqn, nsid).map_err(refusal)?;
    state.forget(|method, given| {
        let is_of = given["namespace"]["nsid"] == nsid || method == "nvmf_ns_add_host" && given["nsid"] == nsid;
        matches!(method, "nvmf_subsystem_add_ns" | "nvmf_ns_add_host") && given["nqn"] == nqn && is_of
    });
    Ok(Value::Bool(true))
}

fn set_ana_group(state: &mut State, params: &Params) -> Outcome {
    let nqn = params.text("nqn");
    let (nsid, group) = (params.u32_if("nsid").unwrap_or_default(), params.u32_if("anagrpid").unwrap_or_default());
    let departure = state.target.set_ana_group(nqn, nsid, group).map_err(refusal)?;
    let is_it = |method: &str, given: &Value| {
        method == "nvmf_subsystem_add_ns" && given["nqn"] == nqn && given["namespace"]["nsid"] == nsid
    };
    let made = state.made.iter().filter_map(|step| Some((&step.method, step.params.as_ref()?)));
    let namespace =
        made.into_iter().find(|(method, given)| is_it(method, given)).map(|(_, it)| it["namespace"].clone());
    if let Some(mut namespace) = namespace {
        namespace["anagrpid"] = json!(group);
        state.amend(is_it, "namespace", namespace);
    }
    state.departure = Some(departure);
    Ok(Value::Bool(true))
}

fn show_namespace(state: &mut State, params: &Params, shows: bool) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    let nsid = params.u32_if("nsid").unwrap_or_default();
    state.target.show_namespace(nqn, nsid, host, shows).map_err(refusal)?;
    state.forget(|method, given| {
        method == "nvmf_ns_add_host" && given["nqn"] == nqn && given["nsid"] == nsid && given["host"] == host
    });
    if shows {
        state.remember("nvmf", "nvmf_ns_add_host", params.as_given().clone());
    }
    Ok(Value::Bool(true))
}
