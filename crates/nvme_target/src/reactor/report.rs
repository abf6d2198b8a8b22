//! The figures of a reactor, for the control plane.

use super::Reactor;
use crate::stats::{PacerDevice, PacerStats, ReactorReport, ReactorStats};
use crate::transport::Devices;

impl Reactor {
    pub(super) fn report(&mut self) -> ReactorReport {
        let core = &self.core;
        let stats = core.pacer.stats();
        let total = &stats.total;
        let queues = |is_admin: bool| {
            let connected = self.connections.iter().filter(|(_, connection)| connection.controller.is_some());
            connected.filter(|(_, connection)| connection.is_admin() == is_admin).count() as u32
        };
        let pacer = PacerStats {
            window_bytes: core.window_bytes(),
            budget_bytes: core.share.pool_bytes.unwrap_or(u64::MAX),
            period_ns: core.pacer.period_ns(),
            admitted: total.admitted,
            held: total.held,
            held_now: total.held_now,
            held_bytes_now: total.held_bytes_now,
            in_flight: total.in_flight,
            in_flight_bytes: total.in_flight_bytes,
            in_flight_bytes_peak: core.in_flight_peak,
            hold_ns_mean: mean(&total.hold_ns),
            hold_ns_p99: if total.hold_ns.is_empty() { 0 } else { total.hold_ns.quantile(0.99) },
            trial: core.pacer.last_trial(),
            devices: Vec::new(),
        };
        let drives = stats.drives.iter().enumerate().filter(|(_, drive)| drive.admitted + drive.held > 0);
        let drives = drives.map(|(id, drive)| {
            let device = PacerDevice {
                name: String::new(),
                admitted: drive.admitted,
                held_now: drive.held_now,
                held: drive.held,
                hold_ns_mean: mean(&drive.hold_ns),
                in_flight: drive.in_flight,
                in_flight_bytes: drive.in_flight_bytes,
            };
            (id as u32, device)
        });
        ReactorReport {
            reactor: ReactorStats {
                name: format!("nvmf_tgt_poll_group_{:03}", core.reactor),
                admin_qpairs: queues(true),
                io_qpairs: queues(false),
                unassociated_qpairs: self.connections.iter().filter(|(_, it)| it.controller.is_none()).count() as u32,
                total_admin_qpairs: core.queues_ever[0],
                total_io_qpairs: core.queues_ever[1],
                pending_io: core.pending_io,
                completed_io: core.completed_io,
                bytes: core.bytes,
                loops: self.loops,
                busy_ns: core.now_ns.saturating_sub(self.started_ns + self.asleep_ns),
                buffer_bytes: core.pool.held_bytes(),
                buffer_bytes_peak: core.pool.peak_bytes(),
                protocol_errors: core.protocol_errors,
                pacer,
                rdma: self.rdma.as_ref().map(Devices::stats).unwrap_or_default(),
            },
            devices: core
                .channels
                .iter()
                .map(|(_, open)| {
                    let mut stats = open.stats.clone();
                    stats.in_device = open.inside.into();
                    (open.uid, stats)
                })
                .collect(),
            hosts: core.hosts.clone(),
            drives: drives.collect(),
        }
    }
}

/// The mean of `times`, 0 without any.
fn mean(times: &measure::Histogram) -> f64 {
    if times.is_empty() { 0.0 } else { times.mean() }
}
