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
    let rates = rates(hosts);
    let basis = Basis::applies(hosts.hosts.len() > 1).needs(
        rates.iter().any(|(_, rates)| rates.iter().any(|rate| *rate > 0.0)),
        "the result does not record what each host did",
    );
    judged.enter("host-slow", basis, host_slow(hosts, &rates));
    judged.enter("start-skew", Basis::Known, start_skew(hosts));
    judged
}

/// The rates of all hosts, of one rank a second: ops of a run; files of each phase of a run on files, with its name.
fn rates(hosts: &HostsResult) -> Vec<(&str, Vec<f64>)> {
    let each = |rate: &dyn Fn(&HostResult) -> f64| -> Vec<f64> {
        hosts.hosts.iter().map(|host| rate(host) / f64::from(host.ranks.max(1))).collect()
    };
    let Some(most) = hosts.hosts.iter().max_by_key(|host| host.phases.len()).filter(|host| !host.phases.is_empty())
    else {
        return vec![("", each(&|host| window_of(&host.jobs).iops()))];
    };
    let of_phase = |host: &HostResult, index: usize| {
        let Some(phase) = host.phases.get(index).filter(|phase| phase.runtime_ns > 0) else { return 0.0 };
        (phase.total.files + phase.total.failed) as f64 * 1e9 / phase.runtime_ns as f64
    };
    let phases = most.phases.iter().enumerate();
    phases.map(|(index, phase)| (phase.name.as_str(), each(&|host| of_phase(host, index)))).collect()
}

fn host_slow(hosts: &HostsResult, rates: &[(&str, Vec<f64>)]) -> Option<Verdict> {
    // The failure of a host that failed says why the host did less.
    if !hosts.failures.is_empty() {
        return None;
    }
    let what = if hosts.hosts.iter().all(|host| host.phases.is_empty()) { "ops" } else { "files" };
    let slow_in = |(phase, rates): &(&str, Vec<f64>)| {
        let mut sorted = rates.clone();
        sorted.sort_by(f64::total_cmp);
        let median = (sorted.get(sorted.len().checked_sub(1)? / 2)? + sorted.get(sorted.len() / 2)?) / 2.0;
        let slow: Vec<String> = (hosts.hosts.iter().zip(rates))
            .filter(|(_, rate)| **rate < SLOW_HOST * median)
            .map(|(host, rate)| format!("{} on {}", count(*rate), host.host))
            .collect();
        let more = if slow.len() > 4 { format!(" and {} more", slow.len() - 4) } else { String::new() };
        let of = if phase.is_empty() { String::new() } else { format!("{phase}: ") };
        let named = slow[..slow.len().min(4)].join(", ");
        (!slow.is_empty()).then(|| {
            format!("{of}{what} a second and rank: {named}{more}; the median of all hosts is {}", count(median))
        })
    };
    let slow: Vec<String> = rates.iter().filter_map(slow_in).collect();
    if slow.is_empty() {
        return None;
    }
    Some(verdict(
        "host-slow",
        Severity::Warning,
        slow.join("; "),
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
