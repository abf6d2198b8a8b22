//! The judgement on how several hosts did together.

use super::check::{Basis, Judgement};
use super::{Severity, Verdict, verdict};
use crate::figures::{count, nanoseconds};
use crate::hosts::{HostResult, HostsResult, window_of};

/// Part of the median host's rate below which a host is slow, not unlucky.
const SLOW_HOST: f64 = 0.5;
/// Nanoseconds between the first start and the last from which on short runs show it.
const START_SKEW_NS: u64 = 1_000_000;

/// The judgement on how several hosts did together.
pub fn for_hosts(hosts: &HostsResult) -> Judgement {
    let mut judged = Judgement::default();
    let rates = Basis::applies(hosts.hosts.len() > 1)
        .needs(hosts.hosts.iter().any(|host| rate(host) > 0.0), "the result does not record what each host did");
    judged.enter("host-slow", rates, host_slow(hosts));
    judged.enter("start-skew", Basis::Known, start_skew(hosts));
    judged
}

/// The rate of a host: ops of one rank a second; for a run on files, files.
fn rate(host: &HostResult) -> f64 {
    let (files, ns) = host
        .phases
        .iter()
        .fold((0, 0), |(files, ns), phase| (files + phase.total.files + phase.total.failed, ns + phase.runtime_ns));
    let all = if ns > 0 { files as f64 * 1e9 / ns as f64 } else { window_of(&host.jobs).iops() };
    all / f64::from(host.ranks.max(1))
}

fn host_slow(hosts: &HostsResult) -> Option<Verdict> {
    let rates: Vec<f64> = hosts.hosts.iter().map(rate).collect();
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    let median = (sorted.get(sorted.len().checked_sub(1)? / 2)? + sorted.get(sorted.len() / 2)?) / 2.0;
    let slow: Vec<String> = (hosts.hosts.iter().zip(&rates))
        .filter(|(_, rate)| **rate < SLOW_HOST * median)
        .map(|(host, rate)| format!("{} on {}", count(*rate), host.host))
        .collect();
    // The failure of a host that failed says why the host did less.
    if slow.is_empty() || !hosts.failures.is_empty() {
        return None;
    }
    let what = if hosts.hosts.iter().all(|host| host.phases.is_empty()) { "ops" } else { "files" };
    let more = if slow.len() > 4 { format!(" and {} more", slow.len() - 4) } else { String::new() };
    let slow = slow[..slow.len().min(4)].join(", ");
    Some(verdict(
        "host-slow",
        Severity::Warning,
        format!("{what} a second and rank: {slow}{more}; the median of all hosts is {}", count(median)),
        "Without this host's slowness the total would be higher; the latencies of all hosts are mixed.",
        "Compare the row of this host with the others: Wire BW shows its link, AVG_LAT its path to the storage. Check \
         its mount and its CPUs, and run on this host alone (mpirun --host).",
    ))
}

fn start_skew(hosts: &HostsResult) -> Option<Verdict> {
    let skew_ns = hosts.start_skew_ns;
    (skew_ns > START_SKEW_NS).then(|| {
        verdict(
            "start-skew",
            Severity::Note,
            format!("the last clone of all hosts began {} after the first", nanoseconds(skew_ns as f64)),
            "During this time some clones did not work yet. That matters for short runs, and for figures of the beginning.",
            "A host far from 0 in the column start skew has fewer free CPUs than clones. A wide +- there means that \
             the network was too busy to compare the clocks.",
        )
    })
}
