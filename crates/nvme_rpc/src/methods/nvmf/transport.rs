//! Methods about the transports: their limits, and their pacing. Most of the settings are the target's: transports
//! share them, as they share reactors, buffers and pacers.

use nvme::spec::oncs;
use nvme_target::{Options, TransportType};
use serde_json::{Map, Value, json};

use super::{BUFFER_BYTES, TGT_NAME, transport_type};
use crate::jsonrpc::{Outcome, RpcError};
use crate::methods::{Method, method, refusal};
use crate::pacer;
use crate::params::{Param, ParamKind, Params, U16, U32, U64};
use crate::state::State;

/// The help of `pacing` of a transport, as [`pace::SYNTAX`] has it; a test holds the two together.
const PACING_HELP: &str = "method of pacing (SPDK lacks this), one of auto, auto:MEMORY, none, buffers:COUNT, \
                           rate:MICROSECONDS, iops:COUNT, bw:BYTES";
/// The entries that an admin queue may have whatever `max_aq_depth` says: Linux asks for as many.
const LEAST_ADMIN_ENTRIES: u16 = 32;

/// The parameters that the transports of a target share, each with its value.
type Shared = [(&'static str, String); 9];

const VFIO_USERS: &str = "only SPDK's transport vfio-user has this parameter";

/// Rows of `nvmf_create_transport` beside those that decide on pacing.
const TRANSPORT: &[Param] = &[
    Param::required("trtype", ParamKind::Text, "TCP or RDMA, in small or large letters"),
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
        "TCP: send no completion after the data of a read to hosts that have disabled SQ flow control",
    ),
    Param::optional("kas", U16, "10", "granularity of keep-alive timeouts that hosts are told, in units of 100 ms"),
    Param::optional("min_kato", U32, "0", "shortest keep-alive timeout in milliseconds; shorter ones become this one"),
    Param::only("dif_insert_or_strip", ParamKind::Bool, "false", "there is no protection information"),
    Param::only("sock_priority", U32, "0", "packets have no priority"),
    Param::optional(
        "masked_oncs",
        ParamKind::ListOf(&["nvmcmps", "nvmdsmsv", "nvmwzsv", "reservs", "nvmcpys"]),
        "none",
        "optional commands that the target hides and refuses: Compare, Dataset Management, Write Zeroes, those of \
         reservations, Copy",
    ),
    Param::optional(
        "masked_fuses",
        ParamKind::ListOf(&["fcws"]),
        "none",
        "fused operations that the target hides and refuses: Compare and Write",
    ),
    Param::optional(
        "max_aq_depth",
        ParamKind::Number(4096),
        "4096",
        "entries of an admin queue; fewer than 32 become 32",
    ),
    Param::optional(
        "ack_timeout",
        ParamKind::Number(i32::MAX as u64),
        "0: the system's",
        "TCP: milliseconds in which a host must acknowledge what the target sends (TCP_USER_TIMEOUT)",
    ),
    Param::ignored("zcopy", ParamKind::Bool, "no device here has the zero-copy operations that SPDK would use"),
    Param::ignored("abort_timeout_sec", U32, "the most that an Abort waits: every Abort is answered at once"),
    Param::ignored("acceptor_poll_rate", U32, "the most that a new connection waits: it is accepted at once"),
    Param::ignored("iobuf_small_cache_size", U32, "no reactor waits for a buffer of another: there are no pools"),
    Param::ignored("iobuf_large_cache_size", U32, "no reactor waits for a buffer of another: there are no pools"),
    Param::ignored("control_msg_num", U32, "no command waits for a buffer of messages: there are no pools"),
    Param::ignored("disable_command_passthru", ParamKind::Bool, "commands are never passed through"),
    Param::optional(
        "max_srq_depth",
        U32,
        "1024",
        "RDMA: receives for capsules, which the connections of a reactor to one device share; 16 to 65536",
    ),
    Param::only("no_srq", ParamKind::Bool, "false", "RDMA: connections always share their receives"),
    Param::ignored("num_cqe", U32, "SPDK uses it with no_srq only"),
    Param::ignored("no_wr_batching", ParamKind::Bool, "work is posted as it comes, never in batches"),
    Param::ignored("acceptor_backlog", U32, "the kernel keeps 128 requests for each listener"),
    Param::ignored("data_wr_pool_size", U32, "work requests take no memory beside the send queues"),
    Param::ignored("disable_mappable_bar0", ParamKind::Bool, VFIO_USERS),
    Param::ignored("disable_adaptive_irq", ParamKind::Bool, VFIO_USERS),
    Param::ignored("disable_shadow_doorbells", ParamKind::Bool, VFIO_USERS),
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

/// The methods of this module.
pub static METHODS: &[Method] = &[
    method(
        "nvmf_create_transport",
        "Create a transport, and set limits and pacing; possible once for each, before any listener exists that it changes",
        &CREATE_TRANSPORT,
        "true",
        create_transport,
    ),
    method(
        "nvmf_get_transports",
        "Show the limits and the pacing of the transports",
        &[Param::optional("trtype", ParamKind::Text, "all", "name of the transport to list"), TGT_NAME],
        "an array of transports",
        get_transports,
    ),
    method(
        "nvmf_set_max_io_qpairs",
        "Change the number of I/O queues of a controller (SPDK lacks this); a host gets it with its next reset",
        &[Param::required("max_io_qpairs_per_ctrlr", U16, "I/O queues of a controller, 1 to 64"), TGT_NAME],
        "true",
        set_queues,
    ),
];

fn create_transport(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("trtype");
    let Some(trtype) = transport_type(name) else {
        return Err(RpcError::params(format!("Invalid transport type '{name}': this target speaks TCP and RDMA")));
    };
    if made(state, trtype).is_some() {
        return Err(RpcError::failed(format!("Transport type '{}' already exists", trtype.name())));
    }
    if trtype == TransportType::Rdma {
        state.target.check_rdma().map_err(refusal)?;
    }
    let first = [TransportType::Tcp, TransportType::Rdma].into_iter().find_map(|it| Some((it, made(state, it)?)));
    let first = first.map(|(trtype, given)| (trtype, given.clone()));
    let now = state.target.options();
    let mut options = if first.is_some() { Options::clone(&now) } else { state.settings.options.clone() };
    set(&mut options, trtype, params)?;
    options.pacing = pacing_of(state, params, &options.pacing)?;
    if let Some((other, given)) = &first {
        for ((param, there), (_, here)) in shared(&now).into_iter().zip(shared(&options)) {
            // A budget reduces the largest I/O, for both transports alike.
            let is_same = param == "max_io_size" && given["max_io_size"].as_u64() == params.number_if("max_io_size");
            if there != here && !is_same {
                let other = other.name();
                return Err(RpcError::params(format!(
                    "{param}: transports share it, and {other} has {there}, not {here}: give both the same, or leave it out"
                )));
            }
        }
    }
    let of_one = |options: &Options| (options.receives, options.c2h_success, options.limits.ack_timeout_ms);
    if first.is_none() || of_one(&options) != of_one(&now) {
        state.target.set_options(options).map_err(refusal)?;
    }
    state.remember("nvmf", "nvmf_create_transport", params.as_given().clone());
    Ok(Value::Bool(true))
}

/// Sets what the parameters say.
fn set(options: &mut Options, trtype: TransportType, params: &Params) -> Result<(), RpcError> {
    let queues = params.number_if("max_io_qpairs_per_ctrlr");
    let queues = queues.or(params.number_if("max_qpairs_per_ctrlr").map(|all| all.saturating_sub(1)));
    match queues {
        Some(0) => return Err(RpcError::params("a controller needs at least one I/O queue")),
        Some(queues) => options.limits.queues = queues.min(64) as u16,
        None => {}
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
    if let Some(depth) = params.number_if("max_aq_depth") {
        options.limits.admin_queue_depth = (depth as u16).max(LEAST_ADMIN_ENTRIES);
    }
    if let Some(units) = params.number_if("kas") {
        options.keep_alive_units = units as u16;
    }
    if let Some(ms) = params.u32_if("min_kato") {
        options.least_keep_alive_ms = ms;
    }
    if let Some(names) = params.list_if("masked_oncs") {
        options.hidden_commands = names.iter().fold(0, |bits, name| bits | oncs_bit(name));
    }
    if let Some(names) = params.list_if("masked_fuses") {
        options.hides_fused = !names.is_empty();
    }
    match trtype {
        TransportType::Tcp => {
            options.limits.ack_timeout_ms = params.u32_if("ack_timeout").filter(|ms| *ms > 0);
            options.c2h_success = params.bool_if("c2h_success").unwrap_or(true);
        }
        TransportType::Rdma => {
            if let Some(receives) = params.u32_if("max_srq_depth") {
                options.receives = receives;
            }
        }
    }
    Ok(())
}

fn shared(options: &Options) -> Shared {
    let limits = &options.limits;
    [
        ("max_queue_depth", limits.queue_depth.to_string()),
        ("max_io_qpairs_per_ctrlr", limits.queues.to_string()),
        ("in_capsule_data_size", options.in_capsule_bytes.to_string()),
        ("max_io_size", options.max_io_bytes.to_string()),
        ("max_aq_depth", limits.admin_queue_depth.to_string()),
        ("kas", options.keep_alive_units.to_string()),
        ("min_kato", options.least_keep_alive_ms.to_string()),
        ("masked commands", format!("{:#x}, {}", options.hidden_commands, options.hides_fused)),
        ("pacing", json!(options.pacing).to_string()),
    ]
}

/// The parameters that the transport was created with; `None` if it was not.
pub(super) fn made(state: &State, trtype: TransportType) -> Option<&Value> {
    let is_it = |params: &&Value| params["trtype"].as_str().and_then(transport_type) == Some(trtype);
    let all = state.made.iter().filter(|step| step.method == "nvmf_create_transport");
    all.filter_map(|step| step.params.as_ref()).find(is_it)
}

/// The transports that were created.
pub(super) fn all_made(state: &State) -> Vec<TransportType> {
    [TransportType::Tcp, TransportType::Rdma].into_iter().filter(|trtype| made(state, *trtype).is_some()).collect()
}

fn set_queues(state: &mut State, params: &Params) -> Outcome {
    if !state.has_made("nvmf_create_transport") {
        return Err(RpcError::errno(libc::ENODEV, "there is no transport: call nvmf_create_transport"));
    }
    let queues = params.number("max_io_qpairs_per_ctrlr");
    state.target.set_queues(queues as u16).map_err(refusal)?;
    let is_it = |method: &str, _: &Value| method == "nvmf_create_transport";
    state.amend(is_it, "max_qpairs_per_ctrlr", Value::Null);
    state.amend(is_it, "max_io_qpairs_per_ctrlr", json!(queues));
    Ok(Value::Bool(true))
}

/// The bit of ONCS that SPDK gives this name; 0 for commands that the target does not have.
fn oncs_bit(name: &str) -> u16 {
    match name {
        "nvmcmps" => oncs::COMPARE,
        "nvmdsmsv" => oncs::DATASET_MANAGEMENT,
        "nvmwzsv" => oncs::WRITE_ZEROES,
        "reservs" => oncs::RESERVATIONS,
        "nvmcpys" => oncs::COPY,
        _ => 0,
    }
}

/// The pacing of the transport: its own parameters, unless the command line has decided; otherwise that of `now`.
fn pacing_of(state: &mut State, params: &Params, now: &pace::Config) -> Result<pace::Config, RpcError> {
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
        None => now.clone(),
    };
    if let Some(bytes) = params.number_if("memory_budget") {
        config.budget_bytes = Some(bytes);
    }
    config.build(pace::Limits::default()).map_err(|error| RpcError::params(error.to_string()))?;
    Ok(config)
}

fn get_transports(state: &mut State, params: &Params) -> Outcome {
    let mut wanted = all_made(state);
    if let Some(name) = params.text_if("trtype") {
        let there = match wanted[..] {
            [] => "there is none: call nvmf_create_transport",
            [TransportType::Tcp] => "there is TCP",
            [TransportType::Rdma] => "there is RDMA",
            _ => "there are TCP and RDMA",
        };
        wanted.retain(|trtype| transport_type(name) == Some(*trtype));
        if wanted.is_empty() {
            let why = format!("transport '{name}' does not exist: {there}");
            return Err(RpcError::errno(libc::ENODEV, why));
        }
    }
    let options = state.target.options();
    let one = |trtype: TransportType| {
        let given = made(state, trtype)?;
        let mut transport = Map::from_iter([
            ("trtype".to_string(), json!(trtype.name())),
            ("max_queue_depth".to_string(), json!(options.limits.queue_depth)),
            ("max_aq_depth".to_string(), json!(options.limits.admin_queue_depth)),
            ("max_io_qpairs_per_ctrlr".to_string(), json!(state.target.queues())),
            ("in_capsule_data_size".to_string(), json!(options.in_capsule_bytes)),
            ("max_io_size".to_string(), json!(options.max_io_bytes)),
            ("io_unit_size".to_string(), json!(given["io_unit_size"].as_u64().unwrap_or(BUFFER_BYTES))),
        ]);
        match trtype {
            TransportType::Tcp => {
                transport.insert("c2h_success".into(), json!(options.c2h_success));
                transport.insert("ack_timeout".into(), json!(options.limits.ack_timeout_ms.unwrap_or(0)));
            }
            TransportType::Rdma => {
                transport.insert("max_srq_depth".into(), json!(options.receives));
                transport.insert("no_srq".into(), json!(false));
            }
        }
        transport.insert("kas".into(), json!(options.keep_alive_units));
        transport.insert("min_kato".into(), json!(options.least_keep_alive_ms));
        transport.insert("dif_insert_or_strip".into(), json!(false));
        transport.insert("zcopy".into(), json!(false));
        transport.insert("pacing".into(), json!(options.pacing));
        for param in pacer::PARAMS {
            if let Some(value) = given.get(param.name) {
                transport.insert(param.name.into(), value.clone());
            }
        }
        Some(Value::Object(transport))
    };
    Ok(wanted.into_iter().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_of_pacing_is_the_grammar_that_is_parsed() {
        assert!(super::PACING_HELP.ends_with(pace::SYNTAX));
    }
}
