//! Statistics: counters of the target's work, copied out of its reactors while they run.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use nvme::auth::Means;
use nvme::spec::ana::AnaState;

use super::latencies::{Latencies, Octaves};
use super::portal::Portal;
use super::traces::Refused;

/// All counters at one moment (each reactor's own are consistent, reactors are read one after another).
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// `CLOCK_MONOTONIC` nanoseconds when the last reactor answered.
    pub at_ns: u64,
    /// Nanoseconds since the target started.
    pub uptime_ns: u64,
    /// The counters of each reactor: SPDK's poll groups.
    pub reactors: Vec<ReactorStats>,
    /// Per device, in order of creation, all reactors together.
    pub devices: Vec<DeviceStats>,
    /// Per host that is connected or has been, all reactors together.
    pub hosts: Vec<HostStats>,
    /// Per listener that hosts have come in on, all reactors together.
    pub listeners: Vec<ListenerStats>,
}

/// The counters of one listener.
#[derive(Clone, Debug, Default)]
pub struct ListenerStats {
    /// The listener.
    pub listener: Option<Portal>,
    /// Connections now.
    pub connections: u32,
    /// Connections ever, those that came to nothing among them.
    pub accepted: u64,
    /// Hosts that have connected to a subsystem: admin queues.
    pub hosts: u64,
    /// Hosts whose connection was lost, other than by an end in good order.
    pub lost: u64,
    /// Peers that were refused, in the order of [`Refused::ALL`].
    pub refusals: [u64; Refused::ALL.len()],
    /// Connections that have broken the protocol.
    pub violations: u64,
}

impl ListenerStats {
    /// Counts a connection that begins.
    pub(super) fn accept(&mut self) {
        self.connections += 1;
        self.accepted += 1;
    }
}

/// The counters of one reactor.
#[derive(Clone, Debug, Default)]
pub struct ReactorStats {
    /// `nvmf_tgt_poll_group_000` for reactor 0, as scripts that read SPDK's statistics expect.
    pub name: String,
    /// Connected admin queues now.
    pub admin_qpairs: u32,
    /// Connected I/O queues now.
    pub io_qpairs: u32,
    /// Connections now that are not connected to a subsystem or to discovery yet, and those that are about to close.
    pub unassociated_qpairs: u32,
    /// Admin queues that were ever connected.
    pub total_admin_qpairs: u64,
    /// I/O queues that were ever connected.
    pub total_io_qpairs: u64,
    /// I/O commands in progress: held, waiting for data, in devices, being sent.
    pub pending_io: u64,
    /// I/O commands completed.
    pub completed_io: u64,
    /// Payload bytes read and written by them.
    pub bytes: u64,
    /// Iterations of the event loop.
    pub loops: u64,
    /// Nanoseconds during which the reactor was awake.
    pub busy_ns: u64,
    /// Bytes of data buffers in use, and of those kept for reuse.
    pub buffer_bytes: u64,
    /// The most `buffer_bytes` ever was.
    pub buffer_bytes_peak: u64,
    /// Connections closed for an error of protocol.
    pub protocol_errors: u64,
    /// The counters of the reactor's pacer.
    pub pacer: PacerStats,
    /// The counters of RDMA.
    pub rdma: RdmaStats,
}

/// One reactor's part of RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaStats {
    /// Devices in use now.
    pub devices: u32,
    /// Connections now.
    pub connections: u32,
    /// Looks for completions.
    pub polls: u64,
    /// Completions found: one for each capsule, READ and response.
    pub completions: u64,
    /// Work given to the cards: SEND, READ, WRITE.
    pub posts: u64,
}

/// One reactor's pacer: the `io_pacer` object.
#[derive(Clone, Debug, Default)]
pub struct PacerStats {
    /// Bytes in flight that the pacer admits at most now; `u64::MAX` without a bound.
    pub window_bytes: u64,
    /// The reactor's share of the memory budget; `u64::MAX` without a budget.
    pub budget_bytes: u64,
    /// Nanoseconds per credit of rate methods, else 0.
    pub period_ns: u64,
    /// Ops that the pacer has admitted.
    pub admitted: u64,
    /// Ops that had to wait.
    pub held: u64,
    /// Ops that the pacer holds now.
    pub held_now: u64,
    /// Bytes of the ops that the pacer holds now.
    pub held_bytes_now: u64,
    /// Ops in flight now.
    pub in_flight: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
    /// The most `in_flight_bytes` ever was.
    pub in_flight_bytes_peak: u64,
    /// Mean wait of released ops in nanoseconds.
    pub hold_ns_mean: f64,
    /// 99th percentile of the wait of released ops in nanoseconds.
    pub hold_ns_p99: u64,
    /// The last comparison of two windows, of the method `auto`.
    pub trial: Option<pace::Trial>,
    /// Per device: name, ops held now, bytes in flight now.
    pub devices: Vec<PacerDevice>,
}

/// The counters of one pacer for one device: the ops that it holds and lets through.
#[derive(Clone, Debug, Default)]
pub struct PacerDevice {
    /// The device's name.
    pub name: String,
    /// Ops that the pacer has admitted.
    pub admitted: u64,
    /// Ops of the device that the pacer holds now.
    pub held_now: u64,
    /// Ops that had to wait.
    pub held: u64,
    /// Mean wait of released ops in nanoseconds.
    pub hold_ns_mean: f64,
    /// Ops in flight now.
    pub in_flight: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
}

/// A change of the counters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsChange {
    /// All counters but the latencies begin at 0 again.
    Reset,
    /// The longest read and write are forgotten.
    ResetMaxima,
    /// The number of errors begins at 0 again.
    ResetErrors,
    /// Latencies are counted from now on, from 0; or no longer.
    CountLatencies(bool),
}

/// One device: `bdev_get_iostat`.
#[derive(Clone, Debug, Default)]
pub struct DeviceStats {
    /// The device's name.
    pub name: String,
    /// Reads and compares completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes and write zeroes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Ranges deallocated.
    pub deallocates: u64,
    /// Bytes deallocated.
    pub deallocate_bytes: u64,
    /// Ops that failed.
    pub errors: u64,
    /// Nanoseconds that reads were in the device, added up.
    pub read_ns: u64,
    /// Nanoseconds that writes were in the device, added up.
    pub write_ns: u64,
    /// Longest read in nanoseconds.
    pub read_ns_max: u64,
    /// Longest write in nanoseconds.
    pub write_ns_max: u64,
    /// Ops in the device now.
    pub in_device: u64,
    /// Latencies of ops in the device, if they are counted.
    pub latencies: Option<Latencies>,
}

/// The counters of one host, by its NQN.
#[derive(Clone, Debug, Default)]
pub struct HostStats {
    /// The host's NQN.
    pub nqn: String,
    /// TCP connections now.
    pub connections: u32,
    /// Reads and compares completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes and write zeroes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// I/O commands that ended with an error.
    pub errors: u64,
    /// Nanoseconds from a command's arrival to its response, added up over reads and writes.
    pub latency_ns: u64,
    /// The reads and writes by these times: see [`Octaves`].
    pub latencies: Octaves,
    /// Bytes of the host's commands in progress now, held or in flight.
    pub in_flight_bytes: u64,
    /// Ops held by pacers now.
    pub held_now: u64,
}

/// The report of one reactor: its counters by ids. The target puts the reports of all reactors together under names.
#[derive(Clone, Debug, Default)]
pub(super) struct ReactorReport {
    pub reactor: ReactorStats,
    /// Counters of each device, by the device's uid.
    pub devices: Vec<(u64, DeviceStats)>,
    /// Counters of each host; the index is the tenant id.
    pub hosts: Vec<HostStats>,
    /// Counters of the pacer for each drive, by drive id.
    pub drives: Vec<(u32, PacerDevice)>,
}

impl DeviceStats {
    pub(super) fn add(&mut self, other: &DeviceStats) {
        let DeviceStats {
            name: _,
            reads,
            read_bytes,
            writes,
            write_bytes,
            flushes,
            deallocates,
            deallocate_bytes,
            errors,
            read_ns,
            write_ns,
            read_ns_max,
            write_ns_max,
            in_device,
            latencies,
        } = other;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.writes += writes;
        self.write_bytes += write_bytes;
        self.flushes += flushes;
        self.deallocates += deallocates;
        self.deallocate_bytes += deallocate_bytes;
        self.errors += errors;
        self.read_ns += read_ns;
        self.write_ns += write_ns;
        self.read_ns_max = self.read_ns_max.max(*read_ns_max);
        self.write_ns_max = self.write_ns_max.max(*write_ns_max);
        self.in_device += in_device;
        if let Some(latencies) = latencies {
            self.latencies.get_or_insert_default().add(latencies);
        }
    }

    /// Begins to count anew, some of the counters or all of them.
    pub(super) fn change(&mut self, change: StatsChange) {
        match change {
            StatsChange::Reset => *self = DeviceStats { latencies: self.latencies.take(), ..DeviceStats::default() },
            StatsChange::ResetMaxima => (self.read_ns_max, self.write_ns_max) = (0, 0),
            StatsChange::ResetErrors => self.errors = 0,
            StatsChange::CountLatencies(counts) => self.latencies = counts.then(Latencies::default),
        }
    }
}

impl HostStats {
    pub(super) fn add(&mut self, other: &HostStats) {
        let HostStats {
            nqn: _,
            connections: _, // counted by the target, for all reactors
            reads,
            read_bytes,
            writes,
            write_bytes,
            errors,
            latency_ns,
            latencies,
            in_flight_bytes,
            held_now,
        } = other;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.writes += writes;
        self.write_bytes += write_bytes;
        self.errors += errors;
        self.latency_ns += latency_ns;
        self.latencies.add(latencies);
        self.in_flight_bytes += in_flight_bytes;
        self.held_now += held_now;
    }
}

/// The present state of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The description that the device was made from.
    pub spec: crate::device::DeviceSpec,
    /// Bytes per logical block.
    pub block_bytes: u32,
    /// Number of logical blocks of the device.
    pub blocks: u64,
    /// The UUID of namespaces on it.
    pub uuid: [u8; 16],
    /// Limits on what hosts do with it.
    pub rates: pace::Rates,
    /// True if [`DeviceStats::latencies`] are counted.
    pub counts_latencies: bool,
    /// False for a shared device while this process does not have it.
    pub held: bool,
    /// True if the device refuses writes.
    pub read_only: bool,
    /// True if I/O passes by the page cache (files opened with O_DIRECT; true for null and memory).
    pub direct: bool,
    /// Names of the devices stacked on this device.
    pub claimed_by: Vec<String>,
}

/// The present state of a subsystem.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemInfo {
    /// The description that the subsystem was made from, `allow_any_host` as it is now.
    pub spec: super::SubsystemSpec,
    /// The subsystem's namespaces, in the order of their numbers.
    pub namespaces: Vec<super::NamespaceSpec>,
    /// The addresses on which the subsystem is reachable.
    pub listeners: Vec<Portal>,
    /// The ANA states of the groups 1, 2, ... on each of `listeners`; empty without ANA reporting.
    pub ana_states: BTreeMap<Portal, Vec<AnaState>>,
    /// The states that were set: others than those of `ana_states` for groups with namespaces on shared devices that
    /// another process has.
    pub ana_wanted: BTreeMap<Portal, Vec<AnaState>>,
    /// The addresses, of those in `listeners`, that demand TLS.
    pub secured: Vec<Portal>,
    /// The NQNs of the hosts in the subsystem's list.
    pub hosts: Vec<String>,
    /// The NQNs of the hosts that may manage namespaces.
    pub managers: Vec<String>,
    /// The subsystem's controllers.
    pub controllers: Vec<ControllerInfo>,
}

/// A controller: one host's association with a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// The controller's identifier (CNTLID).
    pub id: u16,
    /// The host's NQN.
    pub host_nqn: String,
    /// The host's 16-byte identifier.
    pub host_id: [u8; 16],
    /// The controller's connected queues, the admin queue first.
    pub queues: Vec<QueueInfo>,
    /// Keep-alive timeout in milliseconds, 0 for none.
    pub keep_alive_ms: u32,
}

/// A queue of a controller: a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The number of the queue; 0 is the admin queue.
    pub id: u16,
    /// The reactor that serves the queue, as a place in [`Stats::reactors`].
    pub reactor: u32,
    /// The address of the host's side; `None` if it was gone before the target asked.
    pub peer: Option<SocketAddr>,
    /// The address that the connection came in on.
    pub listener: Portal,
    /// The means by which the host has proven itself on the queue; `None` if it need not.
    pub proof: Option<Means>,
}
