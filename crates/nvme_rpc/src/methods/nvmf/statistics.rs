//! Methods that show the hosts that are connected, and the work that is done for them.

use nvme::uuid;
use nvme_target::{PacerStats, Portal, RdmaStats, ReactorStats, Stats, TransportType};
use serde_json::{Value, json};

use super::transport::all_made;
use super::{BUFFER_BYTES, NQN, TGT_NAME, address_of, subsystem};
use crate::jsonrpc::Outcome;
use crate::methods::{Method, method};
use crate::params::Params;
use crate::state::State;

/// The methods of this module.
pub static METHODS: &[Method] = &[
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
        "iobuf_get_stats",
        "Show how many reads and writes got their buffers at once, and how many had to wait",
        &[],
        "an array with one module, nvmf_TCP or nvmf_RDMA: main counts the I/O that took buffers, retry the I/O that waited first",
        get_buffer_stats,
    ),
];

/// The size up to which SPDK takes buffers from the pool of small ones.
const SMALL_BUFFER_BYTES: u64 = 8192;

fn get_controllers(state: &mut State, params: &Params) -> Outcome {
    let subsystem = subsystem(state, params.text("nqn"))?;
    let controllers = subsystem.controllers.iter().map(|controller| {
        json!({
            "cntlid": controller.id,
            "cntrltype": "io",
            "hostnqn": controller.host_nqn,
            "hostid": uuid::text(&controller.host_id),
            "num_io_qpairs": controller.queues.len() - 1,
            "keep_alive_ms": controller.keep_alive_ms
        })
    });
    Ok(controllers.collect())
}

fn get_qpairs(state: &mut State, params: &Params) -> Outcome {
    let subsystem = subsystem(state, params.text("nqn"))?;
    let reactors = state.target.stats().reactors;
    let queues = subsystem.controllers.iter().flat_map(|controller| {
        controller.queues.iter().map(|queue| {
            let mut object = json!({
                "cntlid": controller.id,
                "qid": queue.id,
                "state": "enabled",
                "hostnqn": controller.host_nqn,
                "listen_address": address_of(&queue.listener)
            });
            if let Some(reactor) = reactors.get(queue.reactor as usize) {
                object["thread"] = json!(reactor.name);
            }
            if let Some(peer) = &queue.peer {
                let peer = Portal { address: *peer, ..queue.listener };
                object["peer_address"] = address_of(&peer);
            }
            if let Some(proof) = queue.proof {
                object["auth"] = json!({ "state": "completed", "digest": proof.hash, "dhgroup": proof.group });
            }
            object
        })
    });
    Ok(queues.collect())
}

fn get_stats(state: &mut State, _: &Params) -> Outcome {
    let stats = state.target.stats();
    let unit = buffer_bytes(state);
    let transports = all_made(state);
    let of = |reactor| poll_group(&stats, reactor, unit, &transports);
    let groups: Vec<Value> = stats.reactors.iter().map(of).collect();
    Ok(json!({ "tick_rate": 1_000_000_000u64, "ticks": stats.at_ns, "poll_groups": groups }))
}

/// The size of the transport's buffers; `None` before there is a transport.
fn buffer_bytes(state: &State) -> Option<u64> {
    let made = state.made.iter().find(|step| step.method == "nvmf_create_transport")?;
    let given = made.params.as_ref().and_then(|params| params.get("io_unit_size")?.as_u64());
    Some(given.filter(|unit| *unit > 0).unwrap_or(BUFFER_BYTES))
}

/// There are no pools: the pacer bounds the data in flight, and the pool is the one that SPDK would take buffers from.
fn get_buffer_stats(state: &mut State, _: &Params) -> Outcome {
    let Some(unit) = buffer_bytes(state) else { return Ok(json!([])) };
    let pacers: Vec<PacerStats> = state.target.stats().reactors.into_iter().map(|reactor| reactor.pacer).collect();
    let used = json!({
        "cache": 0,
        "main": pacers.iter().map(|pacer| pacer.admitted).sum::<u64>(),
        "retry": pacers.iter().map(|pacer| pacer.held).sum::<u64>()
    });
    let unused = json!({ "cache": 0, "main": 0, "retry": 0 });
    let (small, large) = if unit <= SMALL_BUFFER_BYTES { (used, unused) } else { (unused, used) };
    let first = all_made(state).first().map_or("TCP", |trtype| trtype.name());
    Ok(json!([{ "module": format!("nvmf_{first}"), "small_pool": small, "large_pool": large }]))
}

/// `unit_bytes` is the size of the transport's buffers; `None` before there is a transport.
fn poll_group(stats: &Stats, reactor: &ReactorStats, unit_bytes: Option<u64>, transports: &[TransportType]) -> Value {
    // The transports of a reactor have one pacer and one pool: the counters stand under the first of them.
    let one = |(place, trtype): (usize, &TransportType)| {
        let mut transport = json!({ "trtype": trtype.name() });
        if place == 0 {
            let in_flight_bytes = reactor.pacer.in_flight_bytes;
            transport["buffers_allocated"] = json!(unit_bytes.map(|unit| in_flight_bytes.div_ceil(unit)));
            transport["io_pacer"] = io_pacer(stats, reactor, &reactor.pacer);
        }
        if *trtype == TransportType::Rdma {
            let RdmaStats { devices, polls, completions, posts, connections } = reactor.rdma;
            transport["devices"] = json!(devices);
            transport["qpairs"] = json!(connections);
            transport["polls"] = json!(polls);
            transport["completions"] = json!(completions);
            transport["posts"] = json!(posts);
        }
        transport
    };
    let transports: Vec<Value> = transports.iter().enumerate().map(one).collect();
    json!({
        "name": reactor.name,
        "admin_qpairs": reactor.total_admin_qpairs,
        "io_qpairs": reactor.total_io_qpairs,
        "current_admin_qpairs": reactor.admin_qpairs,
        "current_io_qpairs": reactor.io_qpairs,
        "current_unassociated_qpairs": reactor.unassociated_qpairs,
        "pending_bdev_io": reactor.pending_io,
        "completed_nvme_io": reactor.completed_io,
        "busy_ticks": reactor.busy_ns,
        "buffer_bytes": reactor.buffer_bytes,
        "protocol_errors": reactor.protocol_errors,
        "transports": transports
    })
}

/// The prototype's members first: `total_ticks / polls` is the mean time between two releases and `period_ticks` the
/// period of a rate. Then what a window has. A number without a bound is null.
fn io_pacer(stats: &Stats, reactor: &ReactorStats, pacer: &PacerStats) -> Value {
    let bound = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let devices = pacer.devices.iter().map(|device| {
        json!({
            "name": device.name,
            "ios": device.admitted,
            "held": device.held,
            "hold_ticks_mean": device.hold_ns_mean,
            "held_now": device.held_now,
            "in_flight": device.in_flight,
            "in_flight_bytes": device.in_flight_bytes
        })
    });
    let trial = pacer.trial.map(|trial| {
        json!({
            "window_bytes": trial.window_bytes,
            "candidate_bytes": trial.candidate_bytes,
            "gain": trial.gain,
            "error": trial.error
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
        "last_trial": trial,
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
