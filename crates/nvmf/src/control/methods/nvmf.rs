//! Methods about the transport, subsystems, namespaces, listeners, hosts and their statistics.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};

use super::keyring::credentials;
use super::{Method, When, hex, hex_text, method, refusal, uuid_text};
use crate::auth::Policy;
use crate::control::jsonrpc::{Outcome, RpcError};
use crate::control::pacer;
use crate::control::params::{Param, ParamKind, Params, U16, U32, U64};
use crate::control::state::State;
use crate::spec::NqnError;
use crate::target::{
    DISCOVERY_NQN, DeviceInfo, NamespaceSpec, PacerStats, ReactorStats, Referral, Stats, SubsystemInfo, SubsystemSpec,
    Visibility,
};

/// The help of `pacing` of a transport, as [`pace::SYNTAX`] has it; a test holds the two together.
const PACING_HELP: &str = "method of pacing (SPDK lacks this), one of auto, auto:MEMORY, none, buffers:COUNT, \
                           rate:MICROSECONDS, iops:COUNT, bw:BYTES";
/// SPDK's name of the one target that there is.
const TARGET_NAME: &str = "nvmf_tgt";
/// Bytes of a buffer, as the prototype counted buffers, unless the transport says otherwise.
const BUFFER_BYTES: u64 = 131_072;
/// Subsystems that do not say how many namespaces they may have.
const MAX_NAMESPACES: u32 = 32;

const TGT_NAME: Param = Param::optional(
    "tgt_name",
    ParamKind::OneOf(&[TARGET_NAME]),
    "nvmf_tgt",
    "name of the target; nvmf_tgt is the only one",
);
const NQN: Param = Param::required("nqn", ParamKind::Text, "NQN of the subsystem");
const HOST: Param = Param::required("host", ParamKind::Text, "NQN of the host");
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
const SECURE_CHANNEL: Param = Param::only("secure_channel", ParamKind::Bool, "false", "there is no TLS");
const REFERRAL_NQN: Param = Param::optional(
    "subnqn",
    ParamKind::Text,
    "nqn.2014-08.org.nvmexpress.discovery",
    "NQN of the other discovery service",
);
const REFERRED_ADDRESS: Param =
    Param::required("address", ParamKind::Object(ADDRESS), "address of the other discovery service");
const LISTEN_ADDRESS: Param = Param::required("listen_address", ParamKind::Object(ADDRESS), "address to listen on");
const ADDRESS: &[Param] = &[
    Param::required("traddr", ParamKind::Text, "IP address; 0.0.0.0 or :: for all addresses of this machine"),
    Param::optional("trsvcid", ParamKind::Text, "4420", "TCP port; 0 for any free port"),
    Param::optional("trtype", ParamKind::OneOf(&["TCP", "tcp"]), "TCP", "transport"),
    Param::optional("transport", ParamKind::OneOf(&["TCP", "tcp"]), "TCP", "another name of trtype"),
    Param::optional(
        "adrfam",
        ParamKind::OneOf(&["IPv4", "ipv4", "IPv6", "ipv6"]),
        "the family of traddr",
        "address family",
    ),
];
const NAMESPACE: &[Param] = &[
    Param::required("bdev_name", ParamKind::Text, "name of the device"),
    Param::optional("nsid", U32, "the lowest free number", "number of the namespace"),
    Param::optional("nguid", ParamKind::Text, "derived from the UUID", "NGUID, 32 hexadecimal digits"),
    Param::optional("eui64", ParamKind::Text, "derived from the UUID", "EUI-64, 16 hexadecimal digits"),
    Param::optional("uuid", ParamKind::Text, "the device's", "UUID"),
    Param::ignored("anagrpid", U32, "there is one ANA group"),
    Param::optional(
        "no_auto_visible",
        ParamKind::Bool,
        "false",
        "show the namespace to no host but those that nvmf_ns_add_host names",
    ),
    Param::only("hide_metadata", ParamKind::Bool, "false", "there is no metadata"),
];

/// The rows of `nvmf_discovery_add_referral`, for calls that are remembered.
const CHECKED_REFERRAL: &[Param] = &[REFERRED_ADDRESS, REFERRAL_NQN, SECURE_CHANNEL, TGT_NAME];

/// Rows of `nvmf_create_transport` beside those that decide on pacing.
const TRANSPORT: &[Param] = &[
    Param::required("trtype", ParamKind::Text, "TCP, in small or large letters"),
    TGT_NAME,
    Param::optional("max_queue_depth", ParamKind::Number(4096), "1024", "entries of an I/O queue"),
    Param::optional("max_io_qpairs_per_ctrlr", U16, "64", "I/O queues of a controller"),
    Param::optional("max_qpairs_per_ctrlr", U16, "65", "queues of a controller, the admin queue included"),
    Param::optional("in_capsule_data_size", U32, "4096", "bytes of data that an I/O command may carry"),
    Param::optional("max_io_size", U32, "1048576", "bytes of the largest read or write"),
    Param::optional("pacing", ParamKind::Text, "as `plimsoll serve` sets it", PACING_HELP),
    Param::optional(
        "memory_budget",
        U64,
        "as `plimsoll serve` sets it",
        "most bytes of data in flight (SPDK lacks this)",
    ),
    Param::optional(
        "c2h_success",
        ParamKind::Bool,
        "true",
        "send no completion after the data of a read to hosts that have disabled SQ flow control",
    ),
    Param::optional("kas", U16, "10", "granularity of keep-alive timeouts that hosts are told, in units of 100 ms"),
    Param::optional("min_kato", U32, "0", "shortest keep-alive timeout in milliseconds; shorter ones become this one"),
    Param::only("dif_insert_or_strip", ParamKind::Bool, "false", "there is no protection information"),
    Param::only("sock_priority", U32, "0", "packets have no priority"),
    Param::only("masked_oncs", ParamKind::Any, "[]", "the target cannot hide a command"),
    Param::ignored("masked_fuses", ParamKind::Any, "there are no fused commands"),
    Param::ignored("iobuf_small_cache_size", U32, "there are no pools of buffers"),
    Param::ignored("iobuf_large_cache_size", U32, "there are no pools of buffers"),
    Param::ignored("num_cqe", U32, "RDMA's"),
    Param::ignored("max_aq_depth", U32, "hosts may ask for admin queues of up to 4096 entries"),
    Param::ignored("max_srq_depth", U32, "RDMA's"),
    Param::ignored("no_srq", ParamKind::Bool, "RDMA's"),
    Param::ignored("zcopy", ParamKind::Bool, "data is copied as little as the sockets allow"),
    Param::ignored("abort_timeout_sec", U32, "aborts are answered at once"),
    Param::ignored("no_wr_batching", ParamKind::Bool, "RDMA's"),
    Param::ignored("control_msg_num", U32, "responses have buffers of their own"),
    Param::ignored("disable_mappable_bar0", ParamKind::Bool, "only the transport vfio-user has this parameter"),
    Param::ignored("disable_adaptive_irq", ParamKind::Bool, "only the transport vfio-user has this parameter"),
    Param::ignored("disable_shadow_doorbells", ParamKind::Bool, "only the transport vfio-user has this parameter"),
    Param::ignored("disable_command_passthru", ParamKind::Bool, "commands are never passed through"),
    Param::ignored("acceptor_poll_rate", U32, "connections are not polled for"),
    Param::ignored("acceptor_backlog", U32, "the system's limit holds"),
    Param::ignored("ack_timeout", U32, "RDMA's"),
    Param::ignored("data_wr_pool_size", U32, "RDMA's"),
];
const TRANSPORT_COUNT: usize = TRANSPORT.len() + pacer::PARAMS.len();
static CREATE_TRANSPORT: [Param; TRANSPORT_COUNT] = {
    let mut all = [TGT_NAME; TRANSPORT_COUNT];
    let mut at = 0;
    while at < TRANSPORT_COUNT {
        all[at] = if at < TRANSPORT.len() { TRANSPORT[at] } else { pacer::PARAMS[at - TRANSPORT.len()] };
        at += 1;
    }
    all
};

const DIGESTS: ParamKind = ParamKind::ListOf(&["sha256", "sha384", "sha512"]);
const DHGROUPS: ParamKind =
    ParamKind::ListOf(&["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"]);

/// The methods of this module.
pub static METHODS: &[Method] = &[
    Method {
        when: When::Always,
        ..method(
            "nvmf_set_config",
            "Set how hosts may authenticate; a parameter that is left out returns to its default",
            &[
                Param::optional("dhchap_digests", DIGESTS, "all", "hash functions that DH-HMAC-CHAP may use"),
                Param::optional("dhchap_dhgroups", DHGROUPS, "all", "groups that DH-HMAC-CHAP may use"),
                Param::ignored("acceptor_poll_rate", U32, "connections are not polled for"),
                Param::ignored("conn_sched", ParamKind::Text, "connections go to the least loaded reactor"),
                Param::ignored("poll_groups_mask", ParamKind::Text, "`plimsoll serve --cores` says where reactors run"),
                Param::only(
                    "discovery_filter",
                    ParamKind::Text,
                    "\"match_any\"",
                    "discovery names all listeners of the subsystems of a host",
                ),
                Param::only(
                    "discovery_filters",
                    ParamKind::Any,
                    "[\"match_any\"]",
                    "discovery names all listeners of the subsystems of a host",
                ),
                Param::only("dup_host_policy", ParamKind::Text, "\"allow\"", "a host may connect any number of times"),
                Param::optional(
                    "admin_cmd_passthru",
                    ParamKind::Any,
                    "none",
                    "all members must be false: the target passes no command through",
                ),
                Param::only(
                    "passthru_identify_ctrlr",
                    ParamKind::Bool,
                    "false",
                    "the target passes no command through",
                ),
            ],
            "true",
            set_config,
        )
    },
    method(
        "nvmf_create_transport",
        "Set the limits and the pacing of the transport; possible once, before any listener exists",
        &CREATE_TRANSPORT,
        "true",
        create_transport,
    ),
    method(
        "nvmf_get_transports",
        "Show the limits and the pacing of the transport",
        &[Param::optional("trtype", ParamKind::Text, "all", "name of the transport to list"), TGT_NAME],
        "an array of transports",
        get_transports,
    ),
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
                "the highest number of a namespace, up to 1024; 0 for the default",
            ),
            Param::optional("allow_any_host", ParamKind::Bool, "false", "let any host connect, listed or not"),
            Param::only("ana_reporting", ParamKind::Bool, "false", "every path is optimized"),
            Param::optional("min_cntlid", U16, "1", "the lowest identifier of a controller"),
            Param::optional("max_cntlid", U16, "65519", "the highest identifier of a controller"),
            Param::only("max_discard_size_kib", U64, "0", "ranges are as long as the command says"),
            Param::only("max_write_zeroes_size_kib", U64, "0", "ranges are as long as the command says"),
            Param::only("dmrsl", U64, "0", "ranges are as long as the command says"),
            Param::only("wzsl", U64, "0", "ranges are as long as the command says"),
            Param::only("passthrough", ParamKind::Bool, "false", "the target carries commands out itself"),
            Param::only("enable_nssr", ParamKind::Bool, "false", "the target has no subsystem reset"),
        ],
        "true",
        create_subsystem,
    ),
    method(
        "nvmf_delete_subsystem",
        "Delete a subsystem, and disconnect its hosts",
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
    method(
        "nvmf_subsystem_add_listener",
        "Let a subsystem listen on an address; the NQN of discovery names the discovery service",
        &[
            NQN,
            LISTEN_ADDRESS,
            TGT_NAME,
            SECURE_CHANNEL,
            Param::only("ana_state", ParamKind::Text, "\"optimized\"", "every path is optimized"),
            Param::only("numa_id", ParamKind::Integer, "-1", "only the transport vfio-user has this parameter"),
            Param::ignored("sock_impl", ParamKind::Text, "the kernel's sockets are the only ones"),
        ],
        "true",
        add_listener,
    ),
    method(
        "nvmf_subsystem_remove_listener",
        "Stop listening on an address; connections stay",
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
    method(
        "nvmf_subsystem_add_host",
        "Let a host connect to a subsystem",
        &[
            NQN,
            HOST,
            DHCHAP_KEY,
            DHCHAP_CTRLR_KEY,
            Param::optional("psk", ParamKind::OneOf(&[]), "none", "must be left out: the target has no TLS"),
            TGT_NAME,
        ],
        "true",
        add_host,
    ),
    method(
        "nvmf_subsystem_set_keys",
        "Change the keys of a listed host, for its later connections",
        &[NQN, HOST, DHCHAP_KEY, DHCHAP_CTRLR_KEY, TGT_NAME],
        "true",
        set_keys,
    ),
    method(
        "nvmf_subsystem_remove_host",
        "Remove a host from the list of a subsystem, and disconnect the host",
        &[NQN, HOST, TGT_NAME],
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
    method(
        "nvmf_subsystem_get_controllers",
        "List the hosts that are connected to a subsystem",
        &[NQN, TGT_NAME],
        "an array of controllers",
        get_controllers,
    ),
    method(
        "nvmf_subsystem_get_qpairs",
        "List the queues that hosts have to a subsystem",
        &[NQN, TGT_NAME],
        "an array of queues",
        get_qpairs,
    ),
    method(
        "nvmf_get_stats",
        "Show the counters of each reactor and of its pacer",
        &[TGT_NAME],
        "tick_rate (1/s), poll_groups",
        get_stats,
    ),
    method(
        "nvmf_discovery_add_referral",
        "Refer hosts that ask for discovery to another discovery service as well",
        CHECKED_REFERRAL,
        "true",
        add_referral,
    ),
    method(
        "nvmf_discovery_remove_referral",
        "Remove a referral to another discovery service",
        &[REFERRED_ADDRESS, REFERRAL_NQN, TGT_NAME],
        "true",
        remove_referral,
    ),
    method(
        "nvmf_discovery_get_referrals",
        "List the referrals to other discovery services",
        &[TGT_NAME],
        "an array of addresses with subnqn",
        get_referrals,
    ),
    Method {
        when: When::Always,
        ..method(
            "nvmf_set_max_subsystems",
            "Limit the number of subsystems; existing ones stay",
            &[
                Param::required(
                    "max_subsystems",
                    U32,
                    "highest number of subsystems, discovery included; 0 for any number",
                ),
                TGT_NAME,
            ],
            "true",
            set_max_subsystems,
        )
    },
    Method {
        when: When::Always,
        ..method(
            "nvmf_set_crdt",
            "Set command retry delays; only 0 (no delay) is possible",
            &[
                Param::only("crdt1", U16, "0", "hosts may send a command again without a delay"),
                Param::only("crdt2", U16, "0", "hosts may send a command again without a delay"),
                Param::only("crdt3", U16, "0", "hosts may send a command again without a delay"),
                TGT_NAME,
            ],
            "true",
            |_, _| Ok(Value::Bool(true)),
        )
    },
    method("nvmf_get_targets", "List the targets", &[], "an array with one name", |_, _| Ok(json!([TARGET_NAME]))),
];

fn set_config(state: &mut State, params: &Params) -> Outcome {
    let passed = params.as_given().get("admin_cmd_passthru").and_then(Value::as_object);
    if let Some((command, _)) = passed.into_iter().flatten().find(|(_, value)| **value != json!(false)) {
        return Err(RpcError::params(format!(
            "admin_cmd_passthru.{command} must be false: the target passes no command through"
        )));
    }
    let mut policy = Policy::default();
    if let Some(names) = params.list_if("dhchap_digests") {
        policy.hashes.retain(|hash| names.contains(&hash.name()));
    }
    if let Some(names) = params.list_if("dhchap_dhgroups") {
        policy.groups.retain(|group| names.contains(&group.name()));
    }
    if params.has("poll_groups_mask") {
        let where_else =
            "nvmf_set_config: poll_groups_mask is put aside: `plimsoll serve --cores` says where reactors run";
        state.warnings.push(where_else.into());
    }
    state.keys.set_policy(policy);
    state.forget(|method, _| method == "nvmf_set_config");
    state.remember("nvmf", "nvmf_set_config", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn create_transport(state: &mut State, params: &Params) -> Outcome {
    let trtype = params.text("trtype");
    if !trtype.eq_ignore_ascii_case("tcp") {
        return Err(RpcError::params(format!("Invalid transport type '{trtype}': this target speaks TCP")));
    }
    if state.has_made("nvmf_create_transport") {
        return Err(RpcError::failed("Transport type 'TCP' already exists"));
    }
    let mut options = state.settings.options.clone();
    let queues = params.number_if("max_io_qpairs_per_ctrlr");
    let queues = queues.or(params.number_if("max_qpairs_per_ctrlr").map(|all| all.saturating_sub(1)));
    let queues = queues.map(|queues| {
        if queues == 0 { Err(RpcError::params("a controller needs at least one I/O queue")) } else { Ok(queues) }
    });
    if let Some(queues) = queues.transpose()? {
        options.limits.queues = queues.min(64) as u16;
    }
    if let Some(depth) = params.number_if("max_queue_depth") {
        options.limits.queue_depth = depth as u16;
    }
    if let Some(bytes) = params.u32_if("in_capsule_data_size") {
        options.in_capsule_bytes = bytes;
    }
    if let Some(bytes) = params.u32_if("max_io_size") {
        options.max_io_bytes = bytes;
    }
    options.c2h_success = params.bool_if("c2h_success").unwrap_or(true);
    if let Some(units) = params.number_if("kas") {
        options.keep_alive_units = units as u16;
    }
    if let Some(ms) = params.u32_if("min_kato") {
        options.least_keep_alive_ms = ms;
    }
    options.pacing = pacing_of(state, params)?;
    state.restart(options)?;
    state.remember("nvmf", "nvmf_create_transport", params.as_given().clone());
    Ok(Value::Bool(true))
}

/// The pacing of the transport: its own parameters, unless the command line has decided.
fn pacing_of(state: &mut State, params: &Params) -> Result<pace::Config, RpcError> {
    let settings = &state.settings;
    let mut asked = pacer::config(params, settings.options.reactors as u32)?;
    if let Some(text) = params.text_if("pacing") {
        if asked.is_some() {
            return Err(RpcError::params("pacing and the parameters of the prototype's pacer: give one of them"));
        }
        asked = Some(pace::Config::parse(text, 1024).map_err(|error| RpcError::params(error.to_string()))?);
    }
    let mut config = match asked {
        Some(config) if settings.pacing_is_fixed => {
            let from = serde_json::to_string(&config.method).unwrap_or_default();
            state.warnings.push(format!("the command line decides on pacing: the configuration's {from} is put aside"));
            return Ok(state.settings.options.pacing.clone());
        }
        Some(config) => config,
        None => settings.options.pacing.clone(),
    };
    if let Some(bytes) = params.number_if("memory_budget") {
        config.budget_bytes = Some(bytes);
    }
    config.build(pace::Limits::default()).map_err(|error| RpcError::params(error.to_string()))?;
    Ok(config)
}

fn get_transports(state: &mut State, params: &Params) -> Outcome {
    if let Some(trtype) = params.text_if("trtype").filter(|trtype| !trtype.eq_ignore_ascii_case("tcp")) {
        return Err(RpcError::params(format!("transport '{trtype}' does not exist: there is TCP")));
    }
    let made = state.made.iter().find(|step| step.method == "nvmf_create_transport");
    let Some(given) = made.and_then(|step| step.params.as_ref()) else { return Ok(json!([])) };
    let options = state.target.options();
    let mut transport = Map::from_iter([
        ("trtype".to_string(), json!("TCP")),
        ("max_queue_depth".to_string(), json!(options.limits.queue_depth)),
        ("max_io_qpairs_per_ctrlr".to_string(), json!(options.limits.queues)),
        ("in_capsule_data_size".to_string(), json!(options.in_capsule_bytes)),
        ("max_io_size".to_string(), json!(options.max_io_bytes)),
        ("io_unit_size".to_string(), json!(given["io_unit_size"].as_u64().unwrap_or(BUFFER_BYTES))),
        ("pacing".to_string(), json!(options.pacing)),
    ]);
    for param in pacer::PARAMS {
        if let Some(value) = given.get(param.name) {
            transport.insert(param.name.into(), value.clone());
        }
    }
    Ok(json!([transport]))
}

fn create_subsystem(state: &mut State, params: &Params) -> Outcome {
    if let Some(most) = state.max_subsystems
        && state.target.subsystems().len() as u64 + 1 >= u64::from(most)
    {
        let message = format!("there are {most} subsystems, the most that nvmf_set_max_subsystems allows");
        return Err(RpcError::new(-28, message)); // ENOSPC
    }
    let mut spec = SubsystemSpec::new(params.text("nqn"));
    if let Some(serial) = params.text_if("serial_number") {
        spec.serial = serial.into();
    }
    if let Some(model) = params.text_if("model_number") {
        spec.model = model.into();
    }
    spec.max_namespaces = params.u32_if("max_namespaces").filter(|most| *most > 0).unwrap_or(MAX_NAMESPACES);
    let (first, last) = (params.number_if("min_cntlid").unwrap_or(1), params.number_if("max_cntlid").unwrap_or(65_519));
    // All of them, as SPDK's configurations say it, leaves the choice of the first one here.
    spec.controller_ids = Some((first as u16, last as u16)).filter(|ids| *ids != (1, 65_519));
    spec.allow_any_host = params.bool_if("allow_any_host").unwrap_or(false);
    state.target.create_subsystem(spec).map_err(refusal)?;
    state.remember("nvmf", "nvmf_create_subsystem", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn set_max_subsystems(state: &mut State, params: &Params) -> Outcome {
    state.max_subsystems = params.u32_if("max_subsystems").filter(|most| *most > 0);
    state.forget(|method, _| method == "nvmf_set_max_subsystems");
    state.remember("nvmf", "nvmf_set_max_subsystems", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn delete_subsystem(state: &mut State, params: &Params) -> Outcome {
    let nqn = params.text("nqn");
    let hosts = subsystem(state, nqn)?.hosts;
    state.target.delete_subsystem(nqn).map_err(refusal)?;
    hosts.iter().for_each(|host| state.keys.set(nqn, host, None));
    state.forget(|method, given| method.starts_with("nvmf_") && given["nqn"] == nqn);
    Ok(Value::Bool(true))
}

/// The subsystem of that NQN.
fn subsystem(state: &State, nqn: &str) -> Result<SubsystemInfo, RpcError> {
    let found = state.target.subsystems().into_iter().find(|subsystem| subsystem.spec.nqn == nqn);
    found.ok_or_else(|| RpcError::new(-19, format!("No such subsystem: {nqn}"))) // ENODEV
}

fn address_of(listener: &SocketAddr) -> Value {
    json!({
        "trtype": "TCP",
        "adrfam": if listener.is_ipv4() { "IPv4" } else { "IPv6" },
        "traddr": listener.ip().to_string(),
        "trsvcid": listener.port().to_string()
    })
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
        return Ok(json!([describe(&subsystem(state, nqn)?, &state.target.devices())]));
    }
    let devices = state.target.devices();
    let others = all.iter().map(|subsystem| describe(subsystem, &devices)).filter(|_| !params.has("nqn"));
    Ok(std::iter::once(discovery).chain(others).collect())
}

fn describe(subsystem: &SubsystemInfo, devices: &[DeviceInfo]) -> Value {
    let namespace = |namespace: &NamespaceSpec| {
        let mut object = json!({ "nsid": namespace.nsid, "bdev_name": namespace.device, "name": namespace.device });
        if let Some(device) = devices.iter().find(|device| device.spec.name == namespace.device) {
            let identities = namespace.identities(device.uuid);
            object["uuid"] = json!(identities.uuid.as_ref().map(uuid_text));
            object["nguid"] = json!(identities.nguid.map(|nguid| hex_text(&nguid)));
            object["eui64"] = json!(identities.eui64.map(|eui64| hex_text(&eui64)));
        }
        if let Visibility::Only(hosts) = &namespace.visibility {
            object["no_auto_visible"] = json!(true);
            object["hosts"] = hosts.iter().map(|nqn| json!({ "nqn": nqn })).collect();
        }
        object
    };
    let spec = &subsystem.spec;
    json!({
        "nqn": spec.nqn,
        "subtype": "NVMe",
        "listen_addresses": subsystem.listeners.iter().map(address_of).collect::<Vec<_>>(),
        "allow_any_host": spec.allow_any_host,
        "hosts": subsystem.hosts.iter().map(|nqn| json!({ "nqn": nqn })).collect::<Vec<_>>(),
        "serial_number": spec.serial,
        "model_number": spec.model,
        "max_namespaces": spec.max_namespaces,
        "min_cntlid": spec.controller_ids.map_or(1, |(first, _)| first),
        "max_cntlid": spec.controller_ids.map_or(65_519, |(_, last)| last),
        "namespaces": subsystem.namespaces.iter().map(namespace).collect::<Vec<_>>()
    })
}

fn add_ns(state: &mut State, params: &Params) -> Outcome {
    let nqn = params.text("nqn");
    let Some(given) = params.object_if("namespace") else { return Err(RpcError::params("namespace is missing")) };
    let spec = NamespaceSpec {
        nsid: given.u32_if("nsid").unwrap_or(0),
        device: given.text("bdev_name").into(),
        uuid: identity(&given, "uuid")?,
        nguid: identity(&given, "nguid")?,
        eui64: identity(&given, "eui64")?,
        visibility: match given.bool_if("no_auto_visible") {
            Some(true) => Visibility::Only(BTreeSet::new()),
            _ => Visibility::All,
        },
    };
    let nsid = state.target.add_namespace(nqn, spec).map_err(refusal)?;
    let mut params = params.as_given().clone();
    params["namespace"]["nsid"] = json!(nsid);
    state.remember("nvmf", "nvmf_subsystem_add_ns", params);
    Ok(json!(nsid))
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

fn listen_address(params: &Params) -> Result<SocketAddr, RpcError> {
    socket_address(params, "listen_address")
}

/// The address that an object of [`ADDRESS`] gives.
fn socket_address(params: &Params, name: &str) -> Result<SocketAddr, RpcError> {
    let Some(given) = params.object_if(name) else { return Err(RpcError::params(format!("{name} is missing"))) };
    let traddr = given.text("traddr");
    let address: IpAddr =
        traddr.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| {
            RpcError::params(format!("traddr {traddr:?} is not an IP address (names are not looked up)"))
        })?;
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    if let Some(other) = given.text_if("adrfam").filter(|adrfam| !adrfam.eq_ignore_ascii_case(family)) {
        return Err(RpcError::params(format!("traddr {traddr} is {family}, not {other}")));
    }
    let trsvcid = given.text_if("trsvcid").unwrap_or("4420");
    let port = trsvcid.parse().map_err(|_| RpcError::params(format!("trsvcid {trsvcid:?} is not a TCP port")))?;
    Ok(SocketAddr::new(address, port))
}

fn add_listener(state: &mut State, params: &Params) -> Outcome {
    let address = listen_address(params)?;
    if !state.has_made("nvmf_create_transport") {
        return Err(RpcError::params(
            "there is no transport to listen with: call nvmf_create_transport trtype=TCP first",
        ));
    }
    let nqn = params.text("nqn");
    let bound = state.target.add_listener(nqn, address).map_err(refusal)?;
    let any =
        state.target.subsystems().iter().any(|subsystem| subsystem.spec.nqn == nqn && subsystem.spec.allow_any_host);
    if any && !bound.ip().is_loopback() {
        state.warnings.push(format!("{nqn} on {bound} lets every host in that can reach it: allow_any_host is set"));
    }
    let mut params = params.as_given().clone();
    params["listen_address"] = address_of(&bound);
    state.remember("nvmf", "nvmf_subsystem_add_listener", params);
    Ok(Value::Bool(true))
}

fn remove_listener(state: &mut State, params: &Params) -> Outcome {
    let (nqn, address) = (params.text("nqn"), listen_address(params)?);
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
    let listeners = match params.text("nqn") {
        DISCOVERY_NQN => state.target.discovery_listeners(),
        nqn => subsystem(state, nqn)?.listeners,
    };
    Ok(listeners.iter().map(one).collect())
}

fn referral(params: &Params) -> Result<Referral, RpcError> {
    let address = socket_address(params, "address")?;
    let nqn = params.text_if("subnqn").unwrap_or(DISCOVERY_NQN);
    let nqn = nqn.parse().map_err(|error: NqnError| RpcError::params(error.to_string()))?;
    Ok(Referral { address, nqn })
}

fn add_referral(state: &mut State, params: &Params) -> Outcome {
    state.target.add_referral(referral(params)?).map_err(refusal)?;
    state.remember("nvmf", "nvmf_discovery_add_referral", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn remove_referral(state: &mut State, params: &Params) -> Outcome {
    let gone = referral(params)?;
    state.target.remove_referral(&gone).map_err(refusal)?;
    state.forget(|method, given| {
        let is_it = || referral(&Params::check(method, CHECKED_REFERRAL, Some(given)).ok()?).ok();
        method == "nvmf_discovery_add_referral" && is_it().as_ref() == Some(&gone)
    });
    Ok(Value::Bool(true))
}

fn get_referrals(state: &mut State, _: &Params) -> Outcome {
    let one = |referral: &Referral| {
        json!({
            "address": address_of(&referral.address),
            "subtype": "discovery",
            "subnqn": referral.nqn.as_str(),
            "secure_channel": false
        })
    };
    Ok(state.target.referrals().iter().map(one).collect())
}

fn add_host(state: &mut State, params: &Params) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    let credentials = credentials(state, params)?;
    if subsystem(state, nqn)?.hosts.iter().any(|listed| listed == host) {
        return Err(RpcError::new(-17, format!("{host} is let in to {nqn} already"))); // EEXIST
    }
    // Before the host is let in: it must not get in without its key for a moment.
    let keys = state.keys.clone();
    keys.set(nqn, host, credentials);
    state.target.add_host(nqn, host).map_err(refusal)?;
    state.remember("nvmf", "nvmf_subsystem_add_host", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn set_keys(state: &mut State, params: &Params) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    if !subsystem(state, nqn)?.hosts.iter().any(|listed| listed == host) {
        return Err(RpcError::new(-19, format!("{host} is not let in to {nqn}: nvmf_subsystem_add_host"))); // ENODEV
    }
    state.keys.set(nqn, host, credentials(state, params)?);
    let is_it = |method: &str, given: &Value| {
        method == "nvmf_subsystem_add_host" && given["nqn"] == nqn && given["host"] == host
    };
    for param in ["dhchap_key", "dhchap_ctrlr_key"] {
        state.amend(is_it, param, params.text_if(param).map_or(Value::Null, |name| json!(name)));
    }
    Ok(Value::Bool(true))
}

fn remove_host(state: &mut State, params: &Params) -> Outcome {
    let (nqn, host) = (params.text("nqn"), params.text("host"));
    state.target.remove_host(nqn, host).map_err(refusal)?;
    state.keys.set(nqn, host, None);
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

fn get_controllers(state: &mut State, params: &Params) -> Outcome {
    let subsystem = subsystem(state, params.text("nqn"))?;
    let controllers = subsystem.controllers.iter().map(|controller| {
        json!({
            "cntlid": controller.id,
            "hostnqn": controller.host_nqn,
            "hostid": uuid_text(&controller.host_id),
            "num_io_qpairs": controller.io_queues.len(),
            "keep_alive_ms": controller.keep_alive_ms
        })
    });
    Ok(controllers.collect())
}

fn get_qpairs(state: &mut State, params: &Params) -> Outcome {
    let subsystem = subsystem(state, params.text("nqn"))?;
    let queues = subsystem.controllers.iter().flat_map(|controller| {
        let all = std::iter::once((0, controller.peer)).chain(controller.io_queues.iter().copied());
        all.map(|(qid, peer)| {
            let mut queue = json!({
                "cntlid": controller.id, "qid": qid, "state": "active", "hostnqn": controller.host_nqn
            });
            if let Some(peer) = &peer {
                queue["peer_address"] = address_of(peer);
            }
            queue
        })
    });
    Ok(queues.collect())
}

fn get_stats(state: &mut State, _: &Params) -> Outcome {
    let stats = state.target.stats();
    let made = state.made.iter().find(|step| step.method == "nvmf_create_transport");
    let unit = made.and_then(|step| step.params.as_ref()?.get("io_unit_size")?.as_u64()).filter(|unit| *unit > 0);
    let groups: Vec<Value> =
        stats.reactors.iter().map(|reactor| poll_group(&stats, reactor, unit.unwrap_or(BUFFER_BYTES))).collect();
    Ok(json!({ "tick_rate": 1_000_000_000u64, "ticks": stats.at_ns, "poll_groups": groups }))
}

fn poll_group(stats: &Stats, reactor: &ReactorStats, unit: u64) -> Value {
    json!({
        "name": reactor.name,
        "admin_qpairs": reactor.total_admin_qpairs,
        "io_qpairs": reactor.total_io_qpairs,
        "current_admin_qpairs": reactor.admin_qpairs,
        "current_io_qpairs": reactor.io_qpairs,
        "pending_bdev_io": reactor.pending_io,
        "completed_nvme_io": reactor.completed_io,
        "busy_ticks": reactor.busy_ns,
        "buffer_bytes": reactor.buffer_bytes,
        "protocol_errors": reactor.protocol_errors,
        "transports": [{
            "trtype": "TCP",
            "buffers_allocated": reactor.pacer.in_flight_bytes.div_ceil(unit),
            "io_pacer": io_pacer(stats, reactor, &reactor.pacer)
        }]
    })
}

/// The prototype's members first: `total_ticks / polls` is the mean time between two releases and `period_ticks` the
/// period of a rate. Then what a window has. A number without a bound is null.
fn io_pacer(stats: &Stats, reactor: &ReactorStats, pacer: &PacerStats) -> Value {
    let bound = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let devices = pacer.devices.iter().map(|device| {
        json!({
            "name": device.name,
            "held": device.held,
            "held_now": device.held_now,
            "in_flight": device.in_flight,
            "in_flight_bytes": device.in_flight_bytes
        })
    });
    json!({
        "total_ticks": stats.uptime_ns,
        "polls": pacer.admitted,
        "ios": pacer.admitted,
        "bytes": reactor.bytes,
        "calls": reactor.loops,
        "no_ios": reactor.loops.saturating_sub(pacer.admitted),
        "period_ticks": pacer.period_ns,
        "window_bytes": bound(pacer.window_bytes),
        "budget_bytes": bound(pacer.budget_bytes),
        "in_flight": pacer.in_flight,
        "in_flight_bytes": pacer.in_flight_bytes,
        "in_flight_bytes_peak": pacer.in_flight_bytes_peak,
        "held": pacer.held,
        "held_now": pacer.held_now,
        "held_bytes_now": pacer.held_bytes_now,
        "hold_ticks_mean": pacer.hold_ns_mean,
        "hold_ticks_p99": pacer.hold_ns_p99,
        "devices": devices.collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_of_pacing_is_the_grammar_that_is_parsed() {
        assert!(super::PACING_HELP.ends_with(pace::SYNTAX));
    }
}
