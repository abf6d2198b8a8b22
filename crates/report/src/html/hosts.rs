//! The hosts of a run, side by side.

use measure::figures::bytes;
use measure::schema::{HostsResult, JobResult, PhaseResult};

use super::{Table, distribution_chart, percentile_chart};
use crate::svg::{Axis, Chart, Format, Series, escape};
use crate::text::{HOST_COLUMNS, host_figures, host_skew, host_work, hosts_together};

/// Curves that can be told apart.
const CURVES: usize = 8;

/// All hosts in one table, their courses and latencies in one chart each.
pub(super) fn section(hosts: &HostsResult, all: (&[JobResult], &[PhaseResult])) -> String {
    let mut out = String::from("<h2>Hosts</h2>");
    let files = !all.1.is_empty();
    let columns: Vec<&str> =
        HOST_COLUMNS.iter().map(|&name| if files && name == "kIOPS" { "kfiles/s" } else { name }).collect();
    let mut table = Table::new(&[&columns[..], &["CPUs", "memory", "kernel"]].concat());
    for host in &hosts.hosts {
        let (window, lat_ns) = host_work(&host.jobs, &host.phases);
        let mut cells = vec![("", host.host.clone()), ("", host.ranks.to_string())];
        cells.extend(host_figures(&window, &lat_ns, &[host.wire]).map(|figure| ("", figure)));
        cells.push(("", host_skew(host)));
        let machine = &host.machine;
        cells.push(("", machine.cpus.to_string()));
        cells.push(("", bytes(machine.memory_bytes as f64)));
        cells.push(("", machine.kernel.clone()));
        table.row("", &cells);
    }
    let (window, lat_ns) = host_work(all.0, all.1);
    let wires: Vec<_> = hosts.hosts.iter().map(|host| host.wire).collect();
    let mut cells = vec![("", "All".to_owned())];
    cells.push(("", hosts.hosts.iter().map(|host| host.ranks).sum::<u32>().to_string()));
    cells.extend(host_figures(&window, &lat_ns, &wires).map(|figure| ("", figure)));
    cells.push(("", measure::figures::nanoseconds(hosts.start_skew_ns as f64)));
    cells.extend([("", String::new()), ("", String::new()), ("", String::new())]);
    table.row("sum", &cells);
    out.push_str(&table.end());
    out.push_str(&format!("<p class=\"about\">{}</p>", escape(&hosts_together(hosts, &window))));
    for failure in &hosts.failures {
        out.push_str(&format!(
            "<div class=\"verdict invalid\"><b>{}</b></div>",
            escape(&format!("rank {} on {}: {}", failure.rank, failure.host, failure.what))
        ));
    }

    // The slowest and the fastest say most.
    let mut shown: Vec<_> = hosts.hosts.iter().map(|host| (host, host_work(&host.jobs, &host.phases))).collect();
    if shown.len() > CURVES {
        shown.sort_by(|(_, (a, _)), (_, (b, _))| a.iops().total_cmp(&b.iops()));
        let fastest = shown.split_off(shown.len() - CURVES / 2);
        shown.truncate(CURVES / 2);
        shown.extend(fastest);
    }
    let mut course =
        Chart::new("Throughput of each host").x(Axis::linear("seconds")).y(Axis::linear("IOPS").format(Format::Count));
    let mut any = false;
    for (host, _) in &shown {
        let mut sums: std::collections::BTreeMap<u64, f64> = Default::default();
        for job in &host.jobs {
            for interval in job.intervals.iter().filter(|interval| interval.length_ns * 2 >= job.interval_ns) {
                let ops: u64 = interval.ops.iter().map(|(_, &ops)| ops).sum();
                let place = interval.end_ns.div_ceil(job.interval_ns.max(1)) * job.interval_ns;
                *sums.entry(place).or_default() += ops as f64 * 1e9 / interval.length_ns.max(1) as f64;
            }
        }
        any |= sums.len() > 1;
        let points = sums.into_iter().map(|(end_ns, rate)| (end_ns as f64 / 1e9, rate)).collect();
        course = course.series(Series::line(&host.host, points));
    }
    if any {
        out.push_str(&super::cards([course]));
    }
    let latencies: Vec<_> = shown.into_iter().map(|(host, (_, lat_ns))| (host.host.clone(), lat_ns)).collect();
    let charts = [
        distribution_chart("How latencies are distributed on each host", &latencies),
        percentile_chart("Latency over percentiles on each host", latencies.clone()),
    ];
    let charts: Vec<Chart> = charts.into_iter().flatten().collect();
    if !charts.is_empty() {
        out.push_str(&super::cards(charts));
    }
    out
}
