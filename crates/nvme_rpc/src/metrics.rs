//! The target's counters in Prometheus' text format (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::collections::BTreeMap;
use std::fmt::Write;

use nvme_target::{DeviceStats, HostStats, ListenerStats, ReactorStats, Refused, Stats, SubsystemInfo};

/// One metric of many: its name, kind, explanation, and how it is read.
type Row<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

const DEVICES: &[Row<DeviceStats>] = &[
    ("device_reads_total", "counter", "Reads and compares completed.", |d| d.reads as f64),
    ("device_read_bytes_total", "counter", "Bytes read.", |d| d.read_bytes as f64),
    ("device_writes_total", "counter", "Writes and write zeroes completed.", |d| d.writes as f64),
    ("device_written_bytes_total", "counter", "Bytes written.", |d| d.write_bytes as f64),
    ("device_flushes_total", "counter", "Flushes completed.", |d| d.flushes as f64),
    ("device_deallocated_bytes_total", "counter", "Bytes deallocated.", |d| d.deallocate_bytes as f64),
    ("device_errors_total", "counter", "Operations that failed.", |d| d.errors as f64),
    ("device_read_seconds_total", "counter", "Sum of the times that reads spent in the device.", |d| {
        d.read_ns as f64 / 1e9
    }),
    ("device_write_seconds_total", "counter", "Sum of the times that writes spent in the device.", |d| {
        d.write_ns as f64 / 1e9
    }),
    ("device_in_flight", "gauge", "Operations in the device.", |d| d.in_device as f64),
];

const HOSTS: &[Row<HostStats>] = &[
    ("host_connections", "gauge", "TCP connections.", |h| f64::from(h.connections)),
    ("host_reads_total", "counter", "Reads and compares completed.", |h| h.reads as f64),
    ("host_read_bytes_total", "counter", "Bytes read.", |h| h.read_bytes as f64),
    ("host_writes_total", "counter", "Writes and write zeroes completed.", |h| h.writes as f64),
    ("host_written_bytes_total", "counter", "Bytes written.", |h| h.write_bytes as f64),
    ("host_errors_total", "counter", "I/O commands that ended with an error.", |h| h.errors as f64),
    ("host_in_flight_bytes", "gauge", "Bytes in flight.", |h| h.in_flight_bytes as f64),
    ("host_held", "gauge", "Operations held by pacing.", |h| h.held_now as f64),
];

const REACTORS: &[Row<ReactorStats>] = &[
    ("reactor_io_total", "counter", "I/O commands completed.", |r| r.completed_io as f64),
    ("reactor_bytes_total", "counter", "Bytes read and written.", |r| r.bytes as f64),
    ("reactor_pending", "gauge", "I/O commands in progress.", |r| r.pending_io as f64),
    ("reactor_admin_queues", "gauge", "Connected admin queues.", |r| f64::from(r.admin_qpairs)),
    ("reactor_io_queues", "gauge", "Connected I/O queues.", |r| f64::from(r.io_qpairs)),
    ("reactor_busy_seconds_total", "counter", "Time that reactors were not asleep.", |r| r.busy_ns as f64 / 1e9),
    ("reactor_buffer_bytes", "gauge", "Bytes of data buffers in use and kept for reuse.", |r| r.buffer_bytes as f64),
    ("reactor_protocol_errors_total", "counter", "Connections closed for an error of protocol.", |r| {
        r.protocol_errors as f64
    }),
    ("pacer_window_bytes", "gauge", "Limit of the bytes in flight; +Inf without a limit.", |r| {
        bound(r.pacer.window_bytes)
    }),
    ("pacer_budget_bytes", "gauge", "This reactor's share of the memory budget; +Inf without one.", |r| {
        bound(r.pacer.budget_bytes)
    }),
    ("pacer_period_seconds", "gauge", "Time per credit of methods with a rate; 0 for others.", |r| {
        r.pacer.period_ns as f64 / 1e9
    }),
    ("pacer_in_flight_bytes", "gauge", "Bytes in flight.", |r| r.pacer.in_flight_bytes as f64),
    ("pacer_held", "gauge", "Operations held.", |r| r.pacer.held_now as f64),
    ("pacer_held_bytes", "gauge", "Bytes of operations held.", |r| r.pacer.held_bytes_now as f64),
    ("pacer_admitted_total", "counter", "Operations let through.", |r| r.pacer.admitted as f64),
    ("pacer_held_total", "counter", "Operations that had to wait.", |r| r.pacer.held as f64),
];

const LISTENERS: &[Row<ListenerStats>] = &[
    ("listener_connections", "gauge", "Connections.", |l| f64::from(l.connections)),
    ("listener_accepted_total", "counter", "Connections ever, those that came to nothing among them.", |l| {
        l.accepted as f64
    }),
    ("listener_hosts_total", "counter", "Hosts that have connected to a subsystem: admin queues.", |l| l.hosts as f64),
    ("listener_hosts_lost_total", "counter", "Hosts whose connection was lost, not ended in good order.", |l| {
        l.lost as f64
    }),
    ("listener_protocol_errors_total", "counter", "Connections that have broken the protocol.", |l| {
        l.violations as f64
    }),
];

fn bound(bytes: u64) -> f64 {
    if bytes == u64::MAX { f64::INFINITY } else { bytes as f64 }
}

/// All counters as one page; names begin with `plimsoll_`, units are seconds and bytes.
pub fn text(stats: &Stats, subsystems: &[SubsystemInfo]) -> String {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "# HELP plimsoll_uptime_seconds Time since the target started.\n# TYPE plimsoll_uptime_seconds gauge"
    );
    let _ = writeln!(page, "plimsoll_uptime_seconds {}", stats.uptime_ns as f64 / 1e9);
    let _ = writeln!(
        page,
        "# HELP plimsoll_build_info 1, with the version of the program.\n# TYPE plimsoll_build_info gauge\n\
         plimsoll_build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    table(&mut page, DEVICES, "device", &stats.devices, |device| device.name.clone());
    table(&mut page, HOSTS, "host", &stats.hosts, |host| host.nqn.clone());
    table(&mut page, REACTORS, "reactor", &stats.reactors, |reactor| reactor.name.clone());
    table(&mut page, LISTENERS, "listener", &stats.listeners, name_of);
    refusals(&mut page, &stats.listeners);
    namespaces(&mut page, stats, subsystems);
    latencies(&mut page, stats, subsystems);
    page
}

/// The labels of the namespace of each device that has one namespace. A device of several ones has counters of its own,
/// which say nothing about each of them.
fn namespaces_alone(subsystems: &[SubsystemInfo]) -> BTreeMap<&str, String> {
    let mut labels: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for subsystem in subsystems {
        for namespace in &subsystem.namespaces {
            let (nqn, device) = (escape_label(&subsystem.spec.nqn), escape_label(&namespace.device));
            let label = format!("subsystem=\"{nqn}\",nsid=\"{}\",device=\"{device}\"", namespace.nsid);
            let is_first = !labels.contains_key(namespace.device.as_str());
            labels.insert(&namespace.device, is_first.then_some(label));
        }
    }
    labels.into_iter().filter_map(|(device, label)| Some((device, label?))).collect()
}

fn table<T>(page: &mut String, rows: &[Row<T>], label: &str, all: &[T], name_of: fn(&T) -> String) {
    for (name, kind, help, read) in rows.iter().filter(|_| !all.is_empty()) {
        let _ = writeln!(page, "# HELP plimsoll_{name} {help}\n# TYPE plimsoll_{name} {kind}");
        for one in all {
            let value = read(one);
            let value = if value.is_infinite() { "+Inf".to_string() } else { value.to_string() };
            let _ = writeln!(page, "plimsoll_{name}{{{label}=\"{}\"}} {value}", escape_label(&name_of(one)));
        }
    }
}

fn name_of(stats: &ListenerStats) -> String {
    stats.listener.map(|listener| listener.to_string()).unwrap_or_default()
}

/// The peers that were refused, by listener and kind: all kinds are there from the beginning, so that the first refusal
/// is a growth.
fn refusals(page: &mut String, listeners: &[ListenerStats]) {
    if listeners.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "# HELP plimsoll_listener_refusals_total Peers that were refused.\n\
         # TYPE plimsoll_listener_refusals_total counter"
    );
    for stats in listeners {
        let listener = escape_label(&name_of(stats));
        for (kind, count) in Refused::ALL.iter().zip(stats.refusals) {
            let reason = kind.name();
            let _ = writeln!(
                page,
                "plimsoll_listener_refusals_total{{listener=\"{listener}\",reason=\"{reason}\"}} {count}"
            );
        }
    }
}

/// Subsystems with their hosts, and namespaces with the counters of their devices.
fn namespaces(page: &mut String, stats: &Stats, subsystems: &[SubsystemInfo]) {
    let mut put = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
        if !values.is_empty() {
            let _ = writeln!(page, "# HELP plimsoll_{name} {help}\n# TYPE plimsoll_{name} {kind}");
        }
        for (labels, value) in values {
            let _ = writeln!(page, "plimsoll_{name}{{{labels}}} {value}");
        }
    };
    let of_subsystems = |value: fn(&SubsystemInfo) -> usize| -> Vec<(String, f64)> {
        let label = |subsystem: &SubsystemInfo| format!("subsystem=\"{}\"", escape_label(&subsystem.spec.nqn));
        subsystems.iter().map(|subsystem| (label(subsystem), value(subsystem) as f64)).collect()
    };
    put(
        "subsystem_controllers",
        "gauge",
        "Controllers: connected hosts, by subsystem.",
        of_subsystems(|it| it.controllers.len()),
    );
    put(
        "subsystem_queues",
        "gauge",
        "Connected queues, admin queues among them.",
        of_subsystems(|it| it.controllers.iter().map(|controller| controller.queues.len()).sum()),
    );
    let info = subsystems.iter().flat_map(|subsystem| {
        let nqn = escape_label(&subsystem.spec.nqn);
        subsystem.namespaces.iter().map(move |namespace| {
            let device = escape_label(&namespace.device);
            (format!("subsystem=\"{nqn}\",nsid=\"{}\",device=\"{device}\"", namespace.nsid), 1.0)
        })
    });
    put("namespace_info", "gauge", "1, for each namespace.", info.collect());
    let alone = namespaces_alone(subsystems);
    for (name, kind, help, read) in DEVICES {
        let name = name.replacen("device_", "namespace_", 1);
        let counted =
            stats.devices.iter().filter_map(|device| Some((alone.get(device.name.as_str())?.clone(), read(device))));
        put(&name, kind, help, counted.collect());
    }
}

/// The bounds of the buckets of a histogram, as powers of two of nanoseconds: a microsecond to 17 s.
const BUCKET_BITS: std::ops::RangeInclusive<u32> = 10..=34;

/// The latencies of devices and namespaces, if they are counted, and of hosts, as histograms.
fn latencies(page: &mut String, stats: &Stats, subsystems: &[SubsystemInfo]) {
    let of_device = |device: &'_ DeviceStats, labels: String| {
        let latencies = device.latencies.as_ref()?;
        let (count, sum_ns) = (latencies.count_of_all(), latencies.sum_ns());
        Some((labels, count, sum_ns, BUCKET_BITS.map(|bits| latencies.count_below(bits)).collect::<Vec<u64>>()))
    };
    let devices = stats.devices.iter();
    let by_device = devices.clone().filter_map(|it| of_device(it, format!("device=\"{}\"", escape_label(&it.name))));
    let help = "Times that operations spent in the device.";
    histogram(page, "device_latency_seconds", help, &by_device.collect::<Vec<_>>());
    let alone = namespaces_alone(subsystems);
    let by_namespace = devices.filter_map(|it| of_device(it, alone.get(it.name.as_str())?.clone()));
    histogram(page, "namespace_latency_seconds", help, &by_namespace.collect::<Vec<_>>());
    let by_host = stats.hosts.iter().map(|host| {
        let counts = BUCKET_BITS.map(|bits| host.latencies.count_below(bits)).collect();
        let labels = format!("host=\"{}\"", escape_label(&host.nqn));
        (labels, host.latencies.count_of_all(), host.latency_ns, counts)
    });
    let help = "Times of reads and writes from command to response.";
    histogram(page, "host_latency_seconds", help, &by_host.collect::<Vec<_>>());
}

/// Histograms of one name: for each the labels, the number of all, the sum in nanoseconds, and the numbers below the
/// bounds of [`BUCKET_BITS`].
fn histogram(page: &mut String, metric: &str, help: &str, all: &[(String, u64, u64, Vec<u64>)]) {
    if !all.is_empty() {
        let _ = writeln!(page, "# HELP plimsoll_{metric} {help}\n# TYPE plimsoll_{metric} histogram");
    }
    for (labels, count, sum_ns, below) in all {
        for (bits, below) in BUCKET_BITS.zip(below) {
            // The latencies are whole nanoseconds below the power of two.
            let bound = ((1u64 << bits) - 1) as f64 / 1e9;
            let _ = writeln!(page, "plimsoll_{metric}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let sum = *sum_ns as f64 / 1e9;
        let _ = writeln!(page, "plimsoll_{metric}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(page, "plimsoll_{metric}_sum{{{labels}}} {sum}\nplimsoll_{metric}_count{{{labels}}} {count}");
    }
}

/// The value of a label as it stands between quotation marks.
pub fn escape_label(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use nvme_target::{Latencies, PacerStats};

    use super::*;

    #[test]
    fn a_page_has_each_metric_once_with_all_its_labels() {
        let device = |name: &str, reads| DeviceStats {
            name: name.into(),
            reads,
            read_ns: 1_500_000_000,
            ..DeviceStats::default()
        };
        let pacer = PacerStats { window_bytes: u64::MAX, budget_bytes: 6 << 20, ..PacerStats::default() };
        let reactor = ReactorStats { name: "nvmf_tgt_poll_group_000".into(), pacer, ..ReactorStats::default() };
        let mut stats = Stats {
            uptime_ns: 2_000_000_000,
            devices: vec![device("Null0", 3), device("a\"\\b", 4)],
            reactors: vec![reactor],
            listeners: vec![ListenerStats {
                listener: Some(std::net::SocketAddr::from(([127, 0, 0, 1], 4420)).into()),
                refusals: [0, 3, 0, 0, 0, 0],
                ..ListenerStats::default()
            }],
            ..Stats::default()
        };
        let mut latencies = Latencies::default();
        [1000, 2000, 3000].into_iter().for_each(|ns| latencies.count(ns));
        stats.devices[0].latencies = Some(latencies);
        let page = text(&stats, &[]);
        for line in [
            "plimsoll_uptime_seconds 2",
            "# TYPE plimsoll_device_reads_total counter",
            "plimsoll_device_reads_total{device=\"Null0\"} 3",
            "plimsoll_device_reads_total{device=\"a\\\"\\\\b\"} 4",
            "plimsoll_device_read_seconds_total{device=\"Null0\"} 1.5",
            "plimsoll_pacer_window_bytes{reactor=\"nvmf_tgt_poll_group_000\"} +Inf",
            concat!("plimsoll_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "plimsoll_listener_refusals_total{listener=\"127.0.0.1:4420\",reason=\"host-not-allowed\"} 3",
            "plimsoll_listener_refusals_total{listener=\"127.0.0.1:4420\",reason=\"tls\"} 0",
            "# TYPE plimsoll_device_latency_seconds histogram",
            "plimsoll_device_latency_seconds_bucket{device=\"Null0\",le=\"0.000001023\"} 1",
            "plimsoll_device_latency_seconds_bucket{device=\"Null0\",le=\"0.000002047\"} 2",
            "plimsoll_device_latency_seconds_bucket{device=\"Null0\",le=\"+Inf\"} 3",
            "plimsoll_device_latency_seconds_sum{device=\"Null0\"} 0.000006",
            "plimsoll_device_latency_seconds_count{device=\"Null0\"} 3",
            "plimsoll_pacer_budget_bytes{reactor=\"nvmf_tgt_poll_group_000\"} 6291456",
        ] {
            assert_eq!(page.lines().filter(|there| *there == line).count(), 1, "{line}\n{page}");
        }
        assert!(!page.contains("plimsoll_host_"), "no hosts, no lines about them");
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("name and value");
            assert!(
                name.starts_with("plimsoll_") && value.trim_start_matches('+').to_lowercase().parse::<f64>().is_ok(),
                "{line}"
            );
        }
    }
}
