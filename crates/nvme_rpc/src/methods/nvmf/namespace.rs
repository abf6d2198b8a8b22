//! Methods about namespaces, and the hosts that see them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use nvme::spec::{Nqn, Status};
use nvme_target::device::DeviceKind;
use nvme_target::{AttachmentRequest, Detached, ErrorKind, NamespaceSpec, Visibility};
use serde_json::{Value, json};

use super::{HOST, NQN, TGT_NAME, subsystem};
use crate::jsonrpc::{Outcome, RpcError};
use crate::methods::{Method, hex, method, refusal};
use crate::params::{Param, ParamKind, Params, U32};
use crate::state::State;

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
        "detached_hosts",
        ParamKind::Texts,
        "none",
        "NQNs of hosts that the namespace is detached from, as nvmf_ns_detach_host does",
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
        "Remove a namespace, and notify hosts; the answer comes when no device works any more for it",
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
        "Hide a namespace that was added with no_auto_visible from a host, and notify the host; the answer comes when no \
         device works any more for the host on the namespace",
        &[NQN, Param::required("nsid", U32, "number of the namespace"), HOST, TGT_NAME],
        "true",
        |state, params| show_namespace(state, params, false),
    ),
    method(
        "nvmf_ns_detach_host",
        "Detach a namespace from a host, as a Namespace Attachment command does, and notify the host; the answer comes \
         when no device works any more for the host on the namespace",
        &[NQN, Param::required("nsid", U32, "number of the namespace"), HOST, TGT_NAME],
        "true",
        |state, params| attach_host(state, params, false),
    ),
    method(
        "nvmf_ns_attach_host",
        "Attach a namespace to a host that it was detached from, and notify the host",
        &[NQN, Param::required("nsid", U32, "number of the namespace"), HOST, TGT_NAME],
        "true",
        |state, params| attach_host(state, params, true),
    ),
    method(
        "nvmf_subsystem_add_ns_manager",
        "Let a host attach and detach namespaces of all hosts of a subsystem; the host learns of it when it connects",
        &[NQN, HOST, TGT_NAME],
        "true",
        |state, params| set_manager(state, params, true),
    ),
    method(
        "nvmf_subsystem_remove_ns_manager",
        "No longer let a host attach and detach namespaces",
        &[NQN, HOST, TGT_NAME],
        "true",
        |state, params| set_manager(state, params, false),
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
        detached: detached(&given)?,
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

/// The hosts that a new namespace is detached from.
fn detached(given: &Params) -> Result<Detached, RpcError> {
    let hosts = given.list_if("detached_hosts").unwrap_or_default();
    for host in &hosts {
        host.parse::<Nqn>().map_err(|error| RpcError::params(format!("detached_hosts: {error}")))?;
    }
    Ok(Detached::from(hosts.into_iter().map(str::to_string)))
}

/// The file of the state directory for the reservations of a namespace; `None` if there is no directory, hosts get no
/// reservations, or other targets have to find them.
fn kept_reservations(state: &State, spec: &NamespaceSpec) -> Option<PathBuf> {
    let directory = state.directory.as_ref().filter(|_| !state.target.options().hides_reservations())?;
    let device = state.target.devices().into_iter().find(|device| device.spec.name == spec.device)?;
    if matches!(device.spec.kind, DeviceKind::File { shared: true, .. }) {
        return None;
    }
    Some(directory.reservations(&spec.identities(device.uuid).uuid.unwrap_or(device.uuid)))
}

/// An identity that the call gives; zeros are SPDK's way to say that there is none.
fn identity<const BYTES: usize>(given: &Params, name: &str) -> Result<Option<[u8; BYTES]>, RpcError> {
    let bytes = given.text_if(name).map(|text| hex(name, &text.replace('-', ""))).transpose()?;
    Ok(bytes.filter(|bytes| *bytes != [0; BYTES]))
}

fn remove_ns(state: &mut State, params: &Params) -> Outcome {
    let (nqn, nsid) = (params.text("nqn"), params.u32_if("nsid").unwrap_or_default());
    let departure = state.target.remove_namespace(nqn, nsid).map_err(refusal)?;
    state.await_departure(departure);
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
    amend_namespace(state, nqn, nsid, "anagrpid", json!(group));
    state.await_departure(departure);
    Ok(Value::Bool(true))
}

fn show_namespace(state: &mut State, params: &Params, shows: bool) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    let nsid = params.u32_if("nsid").unwrap_or_default();
    let departure = state.target.show_namespace(nqn, nsid, host, shows).map_err(refusal)?;
    state.await_departure(departure);
    state.forget(|method, given| {
        method == "nvmf_ns_add_host" && given["nqn"] == nqn && given["nsid"] == nsid && given["host"] == host
    });
    if shows {
        state.remember("nvmf", "nvmf_ns_add_host", params.as_given().clone());
    }
    Ok(Value::Bool(true))
}

/// Changes a member of the remembered call that has added a namespace; null takes the member away.
fn amend_namespace(state: &mut State, nqn: &str, nsid: u32, member: &str, value: Value) {
    let is_it = |method: &str, given: &Value| {
        method == "nvmf_subsystem_add_ns" && given["nqn"] == nqn && given["namespace"]["nsid"] == nsid
    };
    let made = state.made.iter().filter_map(|step| Some((&step.method, step.params.as_ref()?)));
    let namespace =
        made.into_iter().find(|(method, given)| is_it(method, given)).map(|(_, it)| it["namespace"].clone());
    if let Some(Value::Object(mut namespace)) = namespace {
        namespace.remove(member);
        if !value.is_null() {
            namespace.insert(member.into(), value);
        }
        state.amend(is_it, "namespace", namespace.into());
    }
}

fn attach_host(state: &mut State, params: &Params, attaches: bool) -> Outcome {
    let (nqn, nsid) = (params.text("nqn"), params.u32_if("nsid").unwrap_or_default());
    set_attachment(state, nqn, nsid, &[params.text("host").into()].into(), attaches).map_err(refusal)?;
    Ok(Value::Bool(true))
}

/// Attaches a namespace to hosts, or detaches it from them. The call that adds the namespace remembers it: after a
/// restart, no host has the namespace for a moment that it was detached from.
fn set_attachment(
    state: &mut State,
    nqn: &str,
    nsid: u32,
    hosts: &BTreeSet<String>,
    attaches: bool,
) -> Result<(), nvme_target::Error> {
    let departure = state.target.attach_namespace(nqn, nsid, hosts, attaches)?;
    state.await_departure(departure);
    let subsystems = state.target.subsystems();
    let subsystem = subsystems.iter().find(|subsystem| subsystem.spec.nqn == nqn);
    let namespace = subsystem.and_then(|subsystem| subsystem.namespaces.iter().find(|it| it.nsid == nsid));
    let detached: Vec<&str> = namespace.into_iter().flat_map(|namespace| namespace.detached.hosts()).collect();
    let detached = if detached.is_empty() { Value::Null } else { json!(detached) };
    amend_namespace(state, nqn, nsid, "detached_hosts", detached);
    Ok(())
}

/// Carries out a host's Namespace Attachment.
///
/// # Errors
/// Those of [`AttachmentRequest::hosts`]; Controller List Invalid for hosts whose names are against the standard;
/// Namespace Attachment Limit Exceeded.
pub fn attach(state: &mut State, request: &AttachmentRequest) -> Result<(), Status> {
    let AttachmentRequest { subsystem_nqn, nsid, attaches, .. } = request;
    let subsystem = subsystem(state, subsystem_nqn).map_err(|_| Status::INTERNAL_ERROR)?;
    let hosts = request.hosts(&subsystem)?;
    let done = set_attachment(state, subsystem_nqn, *nsid, &hosts, *attaches);
    done.map_err(|error| match error.kind {
        ErrorKind::Invalid => Status::CONTROLLER_LIST_INVALID.do_not_retry(),
        ErrorKind::Full => Status::ATTACHMENT_LIMIT_EXCEEDED.do_not_retry(),
        _ => Status::INTERNAL_ERROR,
    })
}

fn set_manager(state: &mut State, params: &Params, may_manage: bool) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    if !state.target.set_manager(nqn, host, may_manage).map_err(refusal)? {
        let why = match may_manage {
            true => RpcError::errno(libc::EEXIST, format!("{host} manages namespaces of {nqn} already")),
            false => RpcError::errno(libc::ENODEV, format!("{host} does not manage namespaces of {nqn}")),
        };
        return Err(why);
    }
    match may_manage {
        true => state.remember("nvmf", "nvmf_subsystem_add_ns_manager", params.as_given().clone()),
        false => state.forget(|method, given| {
            method == "nvmf_subsystem_add_ns_manager" && given["nqn"] == nqn && given["host"] == host
        }),
    }
    Ok(Value::Bool(true))
}
