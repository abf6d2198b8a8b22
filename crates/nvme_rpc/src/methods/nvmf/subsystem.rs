//! Methods about subsystems.

use nvme::spec::DISCOVERY_NQN;
use nvme::uuid;
use nvme_target::{CommandLimits, DeviceInfo, NamespaceSpec, SubsystemInfo, SubsystemSpec, Visibility};
use serde_json::{Value, json};

use super::{NQN, TGT_NAME, address_of, subsystem};
use crate::jsonrpc::{Outcome, RpcError};
use crate::methods::{Method, hex_text, method, refusal};
use crate::params::{Param, ParamKind, Params, U16, U32, U64};
use crate::state::State;

/// Subsystems that do not say how many namespaces they may have.
const MAX_NAMESPACES: u32 = 32;

/// The methods of this module.
pub static METHODS: &[Method] = &[
    method(
        "nvmf_create_subsystem",
        "Create a subsystem",
        &[
            NQN,
            TGT_NAME,
            Param::optional(
                "serial_number",
                ParamKind::Text,
                "derived from this machine and the NQN",
                "at most 20 printable ASCII characters",
            ),
            Param::optional("model_number", ParamKind::Text, "Plimsoll", "at most 40 printable ASCII characters"),
            Param::optional(
                "max_namespaces",
                U32,
                "32",
                "the highest number of a namespace; 65535 stands for larger ones, with ana_reporting 1024; 0 for the default",
            ),
            Param::optional("allow_any_host", ParamKind::Bool, "false", "let any host connect, listed or not"),
            Param::optional("ana_reporting", ParamKind::Bool, "false", "report the ANA states of listeners to hosts"),
            Param::optional("min_cntlid", U16, "1", "the lowest identifier of a controller"),
            Param::optional("max_cntlid", U16, "65519", "the highest identifier of a controller"),
            Param::only("max_discard_size_kib", U64, "0", "ranges are as long as the command says"),
            Param::only("max_write_zeroes_size_kib", U64, "0", "ranges are as long as the command says"),
            Param::optional("dmrsl", U32, "0", "most blocks of a range of Dataset Management; 0 for no limit"),
            Param::optional(
                "wzsl",
                ParamKind::Number(255),
                "0",
                "largest Write Zeroes, as a power of two of 4 KiB; with 0 hosts hear 13, and longer ones are taken",
            ),
            Param::only("passthrough", ParamKind::Bool, "false", "the target carries commands out itself"),
            Param::only("enable_nssr", ParamKind::Bool, "false", "the target has no subsystem reset"),
        ],
        "true",
        create_subsystem,
    ),
    method(
        "nvmf_delete_subsystem",
        "Delete a subsystem, and disconnect its hosts; the answer comes when no device works any more for them",
        &[NQN, TGT_NAME],
        "true",
        delete_subsystem,
    ),
    method(
        "nvmf_get_subsystems",
        "List the subsystems with their listeners, hosts and namespaces",
        &[Param::optional("nqn", ParamKind::Text, "all", "NQN of the subsystem to list"), TGT_NAME],
        "an array, the discovery service first",
        get_subsystems,
    ),
];

fn create_subsystem(state: &mut State, params: &Params) -> Outcome {
    if let Some(most) = state.max_subsystems
        && state.target.subsystems().len() as u64 + 1 >= u64::from(most)
    {
        let message = format!("there are {most} subsystems, the most that nvmf_set_max_subsystems allows");
        return Err(RpcError::errno(libc::ENOSPC, message));
    }
    let mut spec = SubsystemSpec::new(params.text("nqn"));
    if let Some(serial) = params.text_if("serial_number") {
        spec.serial = serial.into();
    }
    if let Some(model) = params.text_if("model_number") {
        spec.model = model.into();
    }
    let (first, last) = (params.number_if("min_cntlid").unwrap_or(1), params.number_if("max_cntlid").unwrap_or(65_519));
    // All of them, as SPDK's configurations say it, leaves the choice of the first one here.
    spec.controller_ids = Some((first as u16, last as u16)).filter(|ids| *ids != (1, 65_519));
    spec.allow_any_host = params.bool_if("allow_any_host").unwrap_or(false);
    spec.ana_reporting = params.bool_if("ana_reporting").unwrap_or(false);
    let max_namespaces = params.u32_if("max_namespaces").filter(|most| *most > 0).unwrap_or(MAX_NAMESPACES);
    spec.max_namespaces = max_namespaces.min(spec.most_namespaces());
    spec.command_limits = CommandLimits {
        deallocated_blocks: params.u32_if("dmrsl").unwrap_or(0),
        zeroed_pages_log2: params.number_if("wzsl").unwrap_or(0) as u8,
    };
    state.target.create_subsystem(spec).map_err(refusal)?;
    state.remember("nvmf", "nvmf_create_subsystem", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn delete_subsystem(state: &mut State, params: &Params) -> Outcome {
    let nqn = params.text("nqn");
    let hosts = subsystem(state, nqn)?.hosts;
    let departure = state.target.delete_subsystem(nqn).map_err(refusal)?;
    state.await_departure(departure);
    for host in &hosts {
        state.keys.set(nqn, host, None);
        state.keys.set_tls(nqn, host, None);
    }
    state.forget(|method, given| method.starts_with("nvmf_") && given["nqn"] == nqn);
    Ok(Value::Bool(true))
}

fn get_subsystems(state: &mut State, params: &Params) -> Outcome {
    let all = state.target.subsystems();
    let listeners = state.target.discovery_listeners();
    let discovery = json!({
        "nqn": DISCOVERY_NQN,
        "subtype": "Discovery",
        "listen_addresses": listeners.iter().map(address_of).collect::<Vec<_>>(),
        "allow_any_host": true,
        "hosts": []
    });
    if let Some(nqn) = params.text_if("nqn").filter(|nqn| *nqn != DISCOVERY_NQN) {
        return Ok(json!([describe(state, &subsystem(state, nqn)?, &state.target.devices())]));
    }
    let devices = state.target.devices();
    let others = all.iter().map(|subsystem| describe(state, subsystem, &devices)).filter(|_| !params.has("nqn"));
    Ok(std::iter::once(discovery).chain(others).collect())
}

/// A host that is listed, with the names of its keys.
fn host(state: &State, subsystem_nqn: &str, host_nqn: &str) -> Value {
    let mut host = json!({ "nqn": host_nqn });
    let added = state.made.iter().filter(|step| step.method == "nvmf_subsystem_add_host");
    let mut added = added.filter_map(|step| step.params.as_ref());
    if let Some(given) = added.find(|given| given["nqn"] == subsystem_nqn && given["host"] == host_nqn) {
        for key in ["dhchap_key", "dhchap_ctrlr_key", "psk"].into_iter().filter(|key| given[key].is_string()) {
            host[key] = given[key].clone();
        }
    }
    host
}

fn describe(state: &State, subsystem: &SubsystemInfo, devices: &[DeviceInfo]) -> Value {
    let namespace = |namespace: &NamespaceSpec| {
        let mut object = json!({ "nsid": namespace.nsid, "bdev_name": namespace.device, "name": namespace.device });
        if let Some(device) = devices.iter().find(|device| device.spec.name == namespace.device) {
            let identities = namespace.identities(device.uuid);
            object["uuid"] = json!(identities.uuid.as_ref().map(uuid::text));
            object["nguid"] = json!(identities.nguid.map(|nguid| hex_text(&nguid)));
            object["eui64"] = json!(identities.eui64.map(|eui64| hex_text(&eui64)));
        }
        if subsystem.spec.ana_reporting {
            object["anagrpid"] = json!(namespace.ana_group);
        }
        if let Visibility::Only(hosts) = &namespace.visibility {
            object["no_auto_visible"] = json!(true);
            object["hosts"] = hosts.iter().map(|nqn| json!({ "nqn": nqn })).collect();
        }
        let detached: Vec<Value> = namespace.detached.hosts().map(|nqn| json!({ "nqn": nqn })).collect();
        if !detached.is_empty() {
            object["detached_hosts"] = json!(detached);
        }
        object
    };
    let spec = &subsystem.spec;
    let mut object = json!({
        "nqn": spec.nqn,
        "subtype": "NVMe",
        "listen_addresses": subsystem.listeners.iter().map(address_of).collect::<Vec<_>>(),
        "allow_any_host": spec.allow_any_host,
        "hosts": subsystem.hosts.iter().map(|nqn| host(state, &spec.nqn, nqn)).collect::<Vec<_>>(),
        "serial_number": spec.serial,
        "model_number": spec.model,
        "max_namespaces": spec.max_namespaces,
        "passthrough": false,
        "ana_reporting": spec.ana_reporting,
        "min_cntlid": spec.controller_ids.map_or(1, |(first, _)| first),
        "dmrsl": spec.command_limits.deallocated_blocks,
        "wzsl": spec.command_limits.zeroed_pages_log2,
        "max_cntlid": spec.controller_ids.map_or(65_519, |(_, last)| last),
        "namespaces": subsystem.namespaces.iter().map(namespace).collect::<Vec<_>>()
    });
    if !subsystem.managers.is_empty() {
        object["ns_managers"] = subsystem.managers.iter().map(|nqn| json!({ "nqn": nqn })).collect();
    }
    object
}
