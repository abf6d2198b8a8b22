//! Tests with one result for each verdict, and one result without any verdict.

use super::*;
use crate::Histogram;
use crate::hosts::{HostResult, HostsResult};
use crate::schema::{
    Backlog, Curve, Estimate, FilesFacts, FilesResult, Interval, JobResult, Limit, LoadLine, LoopDevice, PhaseResult,
    Point, RunResult, Verified, Visit,
};

/// Sets the mean of the requests in flight over the ten seconds of the job.
fn keeps_in_flight(job: &mut JobResult, mean: f64) {
    let in_flight_ns = (mean * 1e10) as u128;
    (job.depth.in_flight_ns, job.depth.issuing_in_flight_ns) = (in_flight_ns, in_flight_ns);
    job.depth.issuing_ns = 10_000_000_000;
}

/// A job that nothing is wrong with: direct random reads at depth 8 for ten seconds.
fn sound() -> JobResult {
    let mut job = JobResult { clones: 1, runtime_ns: 10_000_000_000, interval_ns: 500_000_000, ..JobResult::default() };
    job.facts.engine = "io_uring".into();
    job.facts.iodepth = 8;
    job.facts.numjobs = 1;
    job.facts.direct = true;
    job.facts.cached_fraction = Some(0.0);
    job.facts.unwritten_fraction = Some(0.0);
    job.facts.examined = true;
    job.facts.target_bytes = Some(1 << 30);
    job.cpu.user_ns = 2_000_000_000;
    job.depth.in_flight = vec![1, 2, 4, 99_993];
    job.depth.in_flight_sum = 799_000;
    keeps_in_flight(&mut job, 7.99);
    let read = &mut job.directions.read;
    (read.ops, read.bytes) = (100_000, 100_000 * 4096);
    read.slat_ns.record_many(2_000, 100_000);
    read.lat_ns.record_many(800_000, 100_000);
    job.intervals = (1..=20)
        .map(|i| {
            let mut interval = Interval { end_ns: i * 500_000_000, length_ns: 500_000_000, ..Interval::default() };
            interval.ops.read = 5_000 + i % 3;
            interval
        })
        .collect();
    job
}

fn writing() -> JobResult {
    let mut job = sound();
    job.directions.write = std::mem::take(&mut job.directions.read);
    job
}

/// The codes that a change to a sound job brings up.
/// Lets the requests in flight follow a change of engine, direction, clones or length.
fn follow(job: &mut JobResult) {
    let is_sound = job.depth.in_flight_ns == sound().depth.in_flight_ns;
    let writes = job.directions.write.ops > 0;
    if is_sound && (job.facts.synchronous || writes || job.clones != 1 || job.runtime_ns < 10_000_000_000) {
        job.depth.in_flight_ns = (7.99 * f64::from(job.clones) * job.runtime_ns as f64) as u128;
        job.depth.issuing_ns = 0;
    }
}

fn codes(base: JobResult, change: impl FnOnce(&mut JobResult)) -> Vec<String> {
    let mut job = base;
    change(&mut job);
    follow(&mut job);
    for_job(&job).verdicts.into_iter().map(|verdict| verdict.code).collect()
}

fn severity(change: impl FnOnce(&mut JobResult)) -> Severity {
    let mut job = sound();
    change(&mut job);
    for_job(&job).verdicts[0].severity
}

const NONE: [&str; 0] = [];

/// Hosts whose ranks, two each, did these numbers of ops in ten seconds.
fn hosts(ops: &[u64]) -> HostsResult {
    let host = |(number, &ops): (usize, &u64)| {
        let mut job = JobResult { runtime_ns: 10_000_000_000, ..JobResult::default() };
        job.directions.read.ops = ops;
        HostResult { host: format!("h{number}"), ranks: 2, jobs: vec![job], ..HostResult::default() }
    };
    HostsResult { hosts: ops.iter().enumerate().map(host).collect(), ..HostsResult::default() }
}

#[test]
fn a_host_far_below_the_others_is_named() {
    let slow = for_hosts(&hosts(&[100_000, 98_000, 9_000, 101_000])).verdicts;
    assert_eq!((slow.len(), slow[0].code.as_str(), slow[0].severity), (1, "host-slow", Severity::Warning));
    assert_eq!(slow[0].what, "ops a second and rank: 450 on h2; the median of all hosts is 4.95k");
    let two = for_hosts(&hosts(&[100_000, 9_000, 8_000, 101_000, 100_000])).verdicts;
    assert_eq!(two[0].what, "ops a second and rank: 450 on h1, 400 on h2; the median of all hosts is 5k");
    for alike in [&[100, 60, 90][..], &[100], &[0, 0], &[]] {
        assert_eq!(for_hosts(&hosts(alike)).verdicts, [], "{alike:?}");
    }
    // A host with one rank, where the others have two, does not count as slower.
    let mut fewer = hosts(&[100_000, 45_000, 98_000]);
    fewer.hosts[1].ranks = 1;
    assert_eq!(for_hosts(&fewer).verdicts, []);
    let mut failed = hosts(&[100_000, 9_000, 98_000]);
    failed.failures.push(crate::hosts::RankFailure::default());
    assert_eq!(for_hosts(&failed).verdicts, [], "the failure is the reason");
}

#[test]
fn a_host_slow_with_files_is_named() {
    let mut result = hosts(&[0, 0, 0]);
    for (host, runtime_ns) in result.hosts.iter_mut().zip([1_000_000_000, 1_100_000_000, 4_000_000_000]) {
        let total = crate::schema::Work { files: 1000, ..Default::default() };
        host.phases = vec![PhaseResult { runtime_ns, total, ..PhaseResult::default() }];
    }
    assert!(
        for_hosts(&result).verdicts[0].what.starts_with("files a second and rank: 125 on h2;"),
        "{:?}",
        for_hosts(&result)
    );
}

/// A host is held against the others phase by phase: one long phase does not hide another.
#[test]
fn a_host_slow_in_one_phase_is_named_with_the_phase() {
    let mut result = hosts(&[0, 0, 0]);
    for (host, runtime_ns) in result.hosts.iter_mut().zip([1_000_000, 1_100_000, 9_000_000]) {
        let phase = |name: &str, runtime_ns| {
            let total = crate::schema::Work { files: 1000, ..Default::default() };
            PhaseResult { name: name.into(), runtime_ns, total, ..PhaseResult::default() }
        };
        host.phases = vec![phase("create", 1_000_000_000), phase("stat", runtime_ns)];
    }
    let what = &for_hosts(&result).verdicts[0].what;
    assert!(what.starts_with("stat: files a second and rank: 55.6k on h2;"), "{what}");
}

#[test]
fn a_start_beyond_a_millisecond_is_noted() {
    let skewed = |start_skew_ns| for_hosts(&HostsResult { start_skew_ns, ..hosts(&[100, 100]) }).verdicts;
    assert_eq!(skewed(1_000_000), []);
    let late = skewed(1_370_000);
    assert_eq!((late[0].code.as_str(), late[0].severity), ("start-skew", Severity::Note));
    assert!(late[0].what.contains("1.37 ms"), "{}", late[0].what);
}

#[test]
fn a_sound_job_has_no_verdicts() {
    assert_eq!(codes(sound(), |_| {}), NONE);
    assert_eq!(codes(writing(), |_| {}), NONE);
    assert_eq!(codes(JobResult::default(), |_| {}), NONE, "nothing was measured, nothing is doubted");
}

#[test]
fn depth_not_achieved() {
    assert_eq!(codes(sound(), |job| job.facts.synchronous = true), ["depth-not-achieved"]);
    assert_eq!(codes(sound(), |job| (job.facts.synchronous, job.facts.iodepth) = (true, 1)), NONE);
    let buffered_libaio = |job: &mut JobResult| (job.facts.engine, job.facts.direct) = ("libaio".into(), false);
    assert_eq!(codes(sound(), buffered_libaio), ["depth-not-achieved"]);
    assert_eq!(codes(sound(), |job| job.facts.engine = "libaio".into()), NONE);
    let blocking = |job: &mut JobResult| job.directions.read.slat_ns.record_many(700_000, 100_000);
    assert_eq!(codes(sound(), blocking), ["depth-not-achieved"]);
    let shallow = |job: &mut JobResult| keeps_in_flight(job, 3.0);
    assert_eq!(codes(sound(), shallow), ["depth-not-achieved"]);
    let batches = |job: &mut JobResult| keeps_in_flight(job, 4.5);
    assert_eq!(codes(sound(), batches), NONE);
    let draining = |job: &mut JobResult| job.runtime_ns += 1_000_000_000;
    assert_eq!(codes(sound(), draining), ["queue-out-of-balance"], "a tenth of the time is that of the drain");
    let limited = |job: &mut JobResult| {
        keeps_in_flight(job, 1.5);
        job.facts.rate_iops.read = Some(10_000.0);
    };
    assert_eq!(codes(sound(), limited), NONE, "a rate decides the depth");
    let searching = |job: &mut JobResult| {
        keeps_in_flight(job, 1.5);
        job.latency_target = Some(crate::schema::LatencyTarget {
            depth: 4,
            target_ns: 1_000_000,
            window_ns: 1_000_000_000,
            percentile: 99.0,
        });
    };
    assert_eq!(codes(sound(), searching), NONE, "latency_target decides the depth");
}

#[test]
fn generator_cpu_bound() {
    assert_eq!(codes(sound(), |job| job.cpu.system_ns = 7_900_000_000), ["generator-cpu-bound"]);
    assert_eq!(codes(sound(), |job| job.cpu.system_ns = 7_000_000_000), NONE);
    let two_clones = |job: &mut JobResult| (job.cpu.system_ns, job.clones) = (7_900_000_000, 2);
    assert_eq!(codes(sound(), two_clones), NONE);
    let looks =
        |looked_ns| move |job: &mut JobResult| (job.cpu.system_ns, job.cpu.looked_ns) = (7_900_000_000, looked_ns);
    assert_eq!(codes(sound(), looks(1_000_000_000)), NONE, "a clone that looks for completions could sleep");
    assert_eq!(codes(sound(), looks(100_000_000)), ["generator-cpu-bound"]);
    let waits = |waited_ns| move |job: &mut JobResult| job.cpu.waited_ns = waited_ns;
    assert_eq!(codes(sound(), waits(300_000_000)), NONE);
    assert_eq!(codes(sound(), waits(4_000_000_000)), ["generator-cpu-bound"]);
    let null = |job: &mut JobResult| (job.cpu.system_ns, job.facts.engine) = (8_000_000_000, "null".into());
    assert_eq!(codes(sound(), null), NONE);
}

#[test]
fn page_cache_read() {
    let cached =
        |fraction| move |job: &mut JobResult| (job.facts.direct, job.facts.cached_fraction) = (false, Some(fraction));
    assert_eq!(codes(sound(), cached(0.9)), ["page-cache-read"]);
    assert_eq!((severity(cached(0.9)), severity(cached(0.1))), (Severity::Invalid, Severity::Warning));
    assert_eq!(codes(sound(), cached(0.01)), NONE);
    assert_eq!(codes(sound(), |job| job.facts.cached_fraction = Some(1.0)), NONE, "O_DIRECT does not read it");
    assert_eq!(codes(writing(), cached(0.9)), NONE);
    let twice = |job: &mut JobResult| (job.facts.direct, job.facts.target_bytes) = (false, Some(100_000 * 2048));
    assert_eq!(codes(sound(), twice), ["page-cache-read"]);
    let elsewhere = |job: &mut JobResult| {
        twice(job);
        job.facts.elsewhere = true;
    };
    assert_eq!(codes(sound(), elsewhere), NONE, "this host caches no blocks of an NVMe/TCP target");
    let two_clones = |job: &mut JobResult| {
        twice(job);
        job.clones = 2;
    };
    assert_eq!(codes(sound(), two_clones), NONE, "each read its own once");
}

#[test]
fn unwritten_read_and_allocating_writes() {
    let unwritten = |fraction| move |job: &mut JobResult| job.facts.unwritten_fraction = Some(fraction);
    assert_eq!(codes(sound(), unwritten(1.0)), ["unwritten-read"]);
    assert_eq!((severity(unwritten(1.0)), severity(unwritten(0.1))), (Severity::Invalid, Severity::Warning));
    assert_eq!(codes(sound(), unwritten(0.001)), NONE);
    assert_eq!(codes(sound(), |job| job.facts.unwritten_fraction = None), NONE);
    assert_eq!(codes(writing(), unwritten(1.0)), ["allocating-writes"]);
    assert_eq!(codes(writing(), unwritten(0.1)), NONE);
    // Reads that check what the job has written itself are not reads of holes; one read more is.
    let read_back = |more: u64| {
        move |job: &mut JobResult| {
            job.facts.unwritten_fraction = Some(1.0);
            job.directions.read = sound().directions.read;
            job.verified = Some(Verified { blocks: job.directions.read.ops - more, ..Verified::default() });
        }
    };
    assert_eq!(codes(writing(), read_back(0)), ["allocating-writes"]);
    assert_eq!(codes(writing(), read_back(1)), ["unwritten-read"]);
}

#[test]
fn not_steady() {
    let shaped = |of: fn(u64) -> u64| {
        move |job: &mut JobResult| (0..).zip(&mut job.intervals).for_each(|(i, interval)| interval.ops.read = of(i))
    };
    assert_eq!(codes(sound(), shaped(|i| if i < 5 { 20_000 } else { 5_000 + i % 3 })), ["not-steady"]);
    assert_eq!(codes(sound(), shaped(|i| 5_000 - 100 * i + i % 2)), ["not-steady"]);
    assert_eq!(codes(sound(), shaped(|i| if i % 2 == 0 { 100 } else { 9_000 })), ["not-steady"]);
    let what = |change: fn(u64) -> u64| {
        let mut job = sound();
        shaped(change)(&mut job);
        for_job(&job).verdicts.into_iter().map(|verdict| verdict.what).collect::<Vec<_>>()
    };
    let stalls = ["for 1 s of 10 s IOPS were less than half of the usual"];
    assert_eq!(what(|i| if i >= 18 { 500 } else { 5_000 + i % 3 }), stalls);
    assert_eq!(codes(sound(), shaped(|i| 5_000 + 300 * (i * 7 % 5))), NONE);
    assert_eq!(codes(sound(), |job| job.intervals.truncate(4)), ["steadiness-unknown"]);
    // Arrivals at random, five for two intervals: their number varies by itself. A hundred times as many may not.
    const POISSON: [u64; 20] = [2, 3, 0, 4, 2, 0, 5, 2, 3, 2, 1, 3, 5, 2, 1, 6, 1, 2, 4, 2];
    assert_eq!(codes(sound(), shaped(|i| POISSON[i as usize])), NONE);
    assert_eq!(codes(sound(), shaped(|i| 100 * POISSON[i as usize])), ["not-steady"]);
    // As with a few ops more in the first ones.
    const FIRST_MORE: [u64; 20] = [4, 4, 3, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2];
    assert_eq!(codes(sound(), shaped(|i| FIRST_MORE[i as usize])), NONE);
    assert_eq!(codes(sound(), shaped(|i| 100 * FIRST_MORE[i as usize])), ["not-steady"]);
    let replay = |job: &mut JobResult| (job.facts.is_replay, job.facts.iodepth) = (true, 1000);
    assert!(codes(sound(), |job| (replay(job), job.intervals.truncate(4)).0).is_empty(), "a replay has its own course");
}

#[test]
fn rate_not_met_and_queued_before_issue() {
    let rate = |iops| move |job: &mut JobResult| job.facts.rate_iops.read = Some(iops);
    assert_eq!(codes(sound(), rate(12_000.0)), ["rate-not-met"]);
    assert_eq!(codes(sound(), rate(10_200.0)), NONE);
    let bytes = |job: &mut JobResult| job.facts.rate_bytes.read = Some(50e6);
    assert_eq!(codes(sound(), bytes), ["rate-not-met"]);
    // Of 120,000 expected arrivals 100,000 were finished: the rest waits, or chance made them fewer.
    let open = |arrived: f64| {
        move |job: &mut JobResult| {
            rate(12_000.0)(job);
            job.backlog = Some(Backlog { arrived, start: 8.0, end: arrived - 100_000.0 + 8.0 });
        }
    };
    assert_eq!(codes(sound(), open(120_000.0)), ["rate-not-met"]);
    assert_eq!(codes(sound(), open(118_000.0)), ["rate-not-met"]);
    assert_eq!(codes(sound(), open(100_010.0)), NONE);
    let intended = |latency| {
        move |job: &mut JobResult| {
            let mut histogram = Histogram::new();
            histogram.record_many(latency, 100_000);
            job.directions.read.lat_intended_ns = Some(histogram);
        }
    };
    assert_eq!(codes(sound(), intended(5_000_000)), ["queued-before-issue"]);
    assert_eq!(codes(sound(), intended(900_000)), NONE);
}

#[test]
fn queued_before_issue_names_the_cause_that_the_depths_show() {
    let means = |change: &dyn Fn(&mut JobResult)| -> String {
        let mut job = sound();
        let mut histogram = Histogram::new();
        histogram.record_many(5_000_000, 100_000);
        job.directions.read.lat_intended_ns = Some(histogram);
        change(&mut job);
        let judged = for_job(&job).verdicts;
        judged.into_iter().find(|verdict| verdict.code == "queued-before-issue").unwrap().means
    };
    let empty = |job: &mut JobResult| {
        // Of 100,000 ops, 1000 find the queue at least half full.
        job.depth.in_flight = vec![90_000, 9_000, 1_000];
        keeps_in_flight(job, 1.12);
    };
    let busy = |job: &mut JobResult| job.cpu.user_ns = 9_900_000_000;
    assert!(means(&|_| {}).contains("queue was full"), "depth 8, 7.99 in flight");
    assert!(means(&busy).contains("cannot tell"), "a full queue and no CPU time");
    assert!(means(&|job| (empty(job), busy(job)).1).contains("no CPU time"));
    assert!(means(&|job| job.facts.engine = "null".into()).contains("had places"));
    assert!(means(&|job| (job.facts.engine = "null".into(), busy(job)).1).contains("no CPU time"));
    assert!(means(&empty).contains("had places"));
    // One stall of the storage in which 10 % of the requests wait for 50 ms: the queue may explain all of it.
    let stalled = |job: &mut JobResult| {
        job.depth.in_flight = vec![90_000, 0, 0, 10_000];
        keeps_in_flight(job, 1.7);
        let mut histogram = Histogram::new();
        histogram.record_many(800_000, 90_000);
        histogram.record_many(50_000_000, 10_000);
        job.directions.read.lat_intended_ns = Some(histogram);
    };
    assert!(means(&stalled).contains("cannot tell"));
    assert!(means(&|job| job.depth = Default::default()).contains("queue was full"), "the latencies tell");
    // A synchronous engine: 100,000 ops of 0.8 ms in ten seconds do not fit one clone, those of 20 us leave it idle.
    let one = |job: &mut JobResult| job.facts.synchronous = true;
    assert!(means(&one).contains("queue was full"));
    let idle = |job: &mut JobResult| {
        job.directions.read.lat_ns = Histogram::new();
        job.directions.read.lat_ns.record_many(20_000, 100_000);
        keeps_in_flight(job, 0.2);
    };
    assert!(means(&|job| (one(job), idle(job)).1).contains("cannot tell"));
}

#[test]
fn clones_sync_errors_and_size() {
    assert_eq!(codes(sound(), |job| job.facts.clones_on_same_blocks = true), ["clones-on-same-blocks"]);
    let unsynced = |job: &mut JobResult| (job.facts.direct, job.facts.writes_synced) = (false, Some(false));
    assert_eq!(codes(writing(), unsynced), ["writes-not-synced"]);
    assert_eq!(codes(sound(), unsynced), NONE);
    assert_eq!(codes(writing(), |job| job.facts.writes_synced = Some(false)), NONE, "O_DIRECT");
    for engine in ["nvme_tcp", "nvme_rdma", "io_uring_cmd", "sg"] {
        let commands = |job: &mut JobResult| (unsynced(job), job.facts.engine = engine.into()).0;
        assert_eq!(codes(writing(), commands), NONE, "{engine} sends commands past the page cache");
    }
    assert_eq!(codes(sound(), |job| job.directions.read.failed_ops = 3), ["errors-tolerated"]);
    assert_eq!(codes(sound(), |job| job.runtime_ns = 900_000_000), ["generator-cpu-bound", "interval-too-short"]);
    assert_eq!(codes(sound(), |job| job.directions.read.ops = 999), ["too-few-samples"]);
    let mismatch = |mismatches| {
        move |job: &mut JobResult| job.verified = Some(Verified { blocks: 10, mismatches, ..Verified::default() })
    };
    assert_eq!(codes(sound(), mismatch(1)), ["verify-mismatch"]);
    assert_eq!(codes(sound(), mismatch(0)), NONE);
}

#[test]
fn memory_and_loop_devices() {
    let tmpfs = |job: &mut JobResult| job.facts.memory = Some("tmpfs".into());
    assert_eq!((codes(sound(), tmpfs), severity(tmpfs)), (vec!["memory-filesystem".to_string()], Severity::Invalid));
    let looped = |part| {
        move |job: &mut JobResult| {
            job.facts.loop_device = Some(LoopDevice { name: "loop0".into(), cached_fraction: Some(part) });
        }
    };
    assert_eq!(codes(sound(), looped(0.9)), ["loop-page-cache"]);
    assert_eq!((severity(looped(0.9)), severity(looped(0.1))), (Severity::Invalid, Severity::Warning));
    assert_eq!(codes(sound(), looped(0.01)), NONE);
    assert_eq!(codes(writing(), looped(0.0)), ["loop-page-cache"]);
}

#[test]
fn each_check_that_applies_says_how_it_came_out() {
    let outcome = |job: &JobResult, code: &str| {
        for_job(job).checks.into_iter().find(|check| check.code == code).map(|check| check.outcome)
    };
    let mut job = sound();
    assert_eq!(outcome(&job, "unwritten-read"), Some(Outcome::Passed));
    assert_eq!(outcome(&job, "rate-not-met"), None, "no rate was asked for");
    job.facts.unwritten_fraction = Some(1.0);
    assert_eq!(outcome(&job, "unwritten-read"), Some(Outcome::Failed));
    job.facts.unwritten_fraction = None;
    assert!(matches!(outcome(&job, "unwritten-read"), Some(Outcome::NotCheckable { .. })));
    job.facts.examined = false;
    assert!(matches!(outcome(&job, "memory-filesystem"), Some(Outcome::NotCheckable { .. })));
    job.intervals.clear();
    assert!(matches!(outcome(&job, "not-steady"), Some(Outcome::NotCheckable { .. })));
    for rule in job::JOB_RULES {
        assert!(CODES.contains(&rule.code), "{}", rule.code);
    }
}

#[test]
fn of_several_judgements_the_worst_outcome_of_a_code_counts() {
    let check = |outcome: &Outcome| Check { code: "not-steady".into(), outcome: outcome.clone() };
    let one = |outcome| Judgement { verdicts: Vec::new(), checks: vec![check(outcome)] };
    let (passed, failed) = (Outcome::Passed, Outcome::Failed);
    let missing = Outcome::NotCheckable { reason: "too short".into() };
    for (a, b, all) in [(&passed, &failed, &failed), (&failed, &missing, &failed), (&passed, &missing, &missing)] {
        let mut judged = one(a);
        judged.add(one(b));
        assert_eq!(judged.checks, [check(all)]);
    }
}

#[test]
fn the_worst_comes_first() {
    let many = |job: &mut JobResult| {
        job.facts.unwritten_fraction = Some(1.0);
        job.runtime_ns = 900_000_000;
        job.facts.clones_on_same_blocks = true;
    };
    let mut job = sound();
    many(&mut job);
    follow(&mut job);
    let severities: Vec<Severity> = for_job(&job).verdicts.iter().map(|verdict| verdict.severity).collect();
    assert!(severities.len() == 4 && severities.is_sorted_by(|a, b| a >= b), "{severities:?}");
}

#[test]
fn machine_cpu_bound() {
    let mut run = RunResult::default();
    run.provenance.machine.cpus = 2;
    let mut job = sound();
    job.elapsed_ns = job.runtime_ns;
    job.cpu.user_ns = 9_500_000_000;
    run.jobs = vec![job.clone(), job];
    assert_eq!(for_run(&run).verdicts[0].code, "machine-cpu-bound");
    run.provenance.machine.cpus = 4;
    assert_eq!(for_run(&run).verdicts, []);
    assert_eq!(for_run(&RunResult::default()).verdicts, []);
}

#[test]
fn curves() {
    let near = |mean: f64, part: f64| Estimate { mean, low: mean * (1.0 - part), high: mean * (1.0 + part) };
    let point = |x, part| Point { x, iops: near(1e5, part), samples: vec![1e5; 3], ..Point::default() };
    let sound = Curve {
        label: "io_uring".into(),
        points: vec![point(1.0, 0.01), point(2.0, 0.01), point(4.0, 0.02)],
        line: Some(LoadLine { plateau_iops: near(1e5, 0.01), load_line: Some(near(2.0, 0.1)), ..LoadLine::default() }),
        ..Curve::default()
    };
    let codes = |curve: &Curve, ceiling| -> Vec<String> {
        for_curve(curve, "iodepth", ceiling).verdicts.into_iter().map(|verdict| verdict.code).collect()
    };
    assert_eq!(codes(&sound, Some(near(1e6, 0.01))), NONE);
    assert_eq!(codes(&sound, None), NONE);
    assert_eq!(codes(&sound, Some(near(1.1e5, 0.01))), ["generator-ceiling"]);
    let mut other = sound.clone();
    other.line.as_mut().unwrap().still_rising = true;
    assert_eq!(codes(&other, None), ["still-rising"]);
    other.line = None;
    assert_eq!(codes(&other, None), ["too-few-points"]);
    let mut other = sound.clone();
    let line = other.line.as_mut().unwrap();
    (line.load_line, line.unnamed) = (None, Some("the machine changed".into()));
    assert_eq!(codes(&other, None), ["no-load-line"]);
    let mut other = sound.clone();
    other.points[2].samples = vec![1e5, 1.3e5, 0.9e5];
    other.points[2].visits = vec![Visit { samples: 1, ..Visit::default() }; 3];
    assert_eq!(codes(&other, None), ["lone-peak"]);
    let peak = &for_curve(&other, "iodepth", None).verdicts[0];
    assert_eq!(peak.what, "io_uring: one visit to iodepth 4 gave 130k IOPS, the others 90k to 100k");
    other.points[2].samples = vec![1e5, 1.3e5, 1.25e5];
    assert_eq!(codes(&other, None), NONE, "two of three visits are no accident");
    let mut other = sound.clone();
    let job = &mut other.points[1].job;
    job.facts.rate_iops.read = Some(1e5);
    (job.clones, job.runtime_ns, job.directions.read.ops) = (1, 1_000_000_000, 99_000);
    assert_eq!(codes(&other, None), ["rate-limited"]);
    let mut other = sound.clone();
    other.points[1] = point(2.0, 0.06);
    assert_eq!(codes(&other, None), ["uncertain"]);
}

/// A curve over `axis` that each statement on curves doubts, as far as the statement is about that axis.
fn doubtful(axis: &str) -> Vec<Verdict> {
    let near = |mean: f64, part: f64| Estimate { mean, low: mean * (1.0 - part), high: mean * (1.0 + part) };
    let visits = || {
        let mut visit = Visit { samples: 1, ..Visit::default() };
        visit.lat_ns.read.record_many(100_000, 50_000);
        vec![visit; 3]
    };
    let point =
        |x| Point { x, iops: near(1e5, 0.1), samples: vec![1e5, 1.3e5, 0.9e5], visits: visits(), ..Point::default() };
    let unnamed = |conditions: &[&str]| Limit {
        conditions: conditions.iter().map(|text| text.to_string()).collect(),
        unnamed: Some("the visits differ too much".into()),
        ..Limit::default()
    };
    let is_rate = axis.starts_with("rate");
    let curve = Curve {
        label: "io_uring".into(),
        points: vec![point(65_536.0), point(131_072.0)],
        kept: Some(unnamed(if is_rate { &["keeps up", "p99<1ms"] } else { &["p99<1ms"] })),
        saturation: is_rate.then(|| unnamed(&["keeps up"])),
        ..Curve::default()
    };
    let mut all = for_curve(&curve, axis, None).verdicts;
    all.push(depth_not_possible("io_uring", axis, 131_072.0, "too many threads"));
    let rising = LoadLine { plateau_iops: near(1e6, 0.01), still_rising: true, ..LoadLine::default() };
    if matches!(axis, "iodepth" | "numjobs") {
        all.push(depths_left_out("io_uring", axis, 131_072.0, 5.1e9, 160e9));
        all.extend(for_curve(&Curve { line: Some(rising), ..curve }, axis, Some(near(1e6, 0.01))).verdicts);
    }
    all
}

#[test]
fn verdicts_on_a_curve_speak_of_its_axis() {
    for (axis, own, foreign) in [
        ("iodepth", &["depths", "--iodepth", "iodepth 131072", "deeper"][..], &["rates", "clones", "value"][..]),
        (
            "numjobs",
            &["numbers of clones", "--axis numjobs", "numjobs 131072"],
            &["depths", "--iodepth", "rates", "value"],
        ),
        ("rate_iops", &["rates", "--axis rate_iops", "rate_iops 131.1k"], &["plateau", "depth", "load line", "clones"]),
        ("rate", &["rates", "--axis rate", "rate 128 KiB/s"], &["plateau", "depth", "load line", "clones"]),
        ("bs", &["values", "--axis bs", "bs 128 KiB"], &["plateau", "depth", "load line", "clones", "rates"]),
    ] {
        let all = doubtful(axis);
        let codes: Vec<&str> = all.iter().map(|verdict| verdict.code.as_str()).collect();
        for code in ["lone-peak", "uncertain", "no-limit", "depth-not-possible"] {
            assert!(codes.contains(&code), "{axis}: {codes:?}");
        }
        let said: Vec<String> =
            all.iter().map(|verdict| format!("{} {} {}", verdict.what, verdict.means, verdict.advice)).collect();
        let said = said.join("\n");
        for word in own {
            assert!(said.to_lowercase().contains(&word.to_lowercase()), "{axis} lacks {word:?}:\n{said}");
        }
        for word in foreign {
            assert!(!said.contains(word), "{axis} speaks of {word:?}:\n{said}");
        }
    }
}

#[test]
fn random_arrivals_are_no_lone_peak() {
    let of = |axis: &str, ops: u64| {
        let mut visit = Visit { samples: 1, ..Visit::default() };
        visit.lat_ns.read.record_many(100_000, ops);
        let samples = vec![44.0, 50.0, 59.0];
        let point = Point { x: 50.0, samples, visits: vec![visit; 3], ..Point::default() };
        let curve = Curve { label: "io_uring".into(), points: vec![point], ..Curve::default() };
        for_curve(&curve, axis, None).verdicts.iter().any(|verdict| verdict.code == "lone-peak")
    };
    assert!(!of("rate_iops", 50), "50 arrivals are 59 in some second");
    assert!(of("rate_iops", 50_000), "50,000 arrivals are not 59,000");
    assert!(of("iodepth", 50), "a closed loop has no random arrivals");
}

#[test]
fn files() {
    let facts = FilesFacts { access: "posix".into(), threads: 2, processes: 1, ..FilesFacts::default() };
    let sound = || {
        let mut phase =
            PhaseResult { runtime_ns: 2_000_000_000, stonewall_ns: 1_900_000_000, ..PhaseResult::default() };
        phase.threads = vec![Default::default(); 2];
        phase.operations = vec![crate::schema::OperationResult { operation: "create".into(), ..Default::default() }];
        (phase.total.files, phase.total.bytes) = (10_000, 0);
        phase
    };
    let codes = |change: &dyn Fn(&mut PhaseResult, &mut FilesFacts)| -> Vec<String> {
        let (mut phase, mut facts) = (sound(), facts.clone());
        change(&mut phase, &mut facts);
        for_phase(&phase, &facts).verdicts.into_iter().map(|verdict| verdict.code).collect()
    };
    assert_eq!(codes(&|_, _| {}), NONE);
    assert_eq!(codes(&|phase, _| phase.total.bytes = 1), ["writes-not-synced"]);
    assert_eq!(codes(&|phase, facts| (phase.total.bytes, facts.fsync) = (1, true)), NONE);
    assert_eq!(codes(&|phase, _| phase.stonewall_ns = 1_000_000_000), ["threads-uneven"]);
    assert_eq!(codes(&|phase, _| phase.reads_own_writes = true), ["page-cache-read"]);
    assert_eq!(codes(&|phase, facts| (phase.reads_own_writes, facts.direct) = (true, true)), NONE);
    assert_eq!(codes(&|phase, facts| (phase.total.failed, facts.continue_on_error) = (1, true)), ["errors-tolerated"]);
    assert_eq!(codes(&|phase, _| phase.disturbances.short_transfers = 1), ["disturbed"]);
    assert_eq!(codes(&|phase, _| phase.cpu.user_ns = 3_000_000_000), ["generator-cpu-bound"]);
    assert_eq!(codes(&|phase, facts| (phase.cpu.user_ns, facts.access) = (3_000_000_000, "gfapi".into())), NONE);
    assert_eq!(codes(&|phase, _| (phase.runtime_ns, phase.stonewall_ns) = (9, 9)), ["interval-too-short"]);
    assert_eq!(codes(&|phase, _| phase.total.files = 999), ["too-few-samples"]);
    let differ = Verified { blocks: 9, mismatches: 1, ..Verified::default() };
    assert_eq!(codes(&|phase, _| phase.verified = Some(differ)), ["verify-mismatch"]);
    let mut run = FilesResult { facts: facts.clone(), phases: vec![sound()], ..FilesResult::default() };
    run.provenance.machine.cpus = 2;
    assert_eq!(for_files(&run).verdicts, []);
    run.phases[0].cpu.system_ns = 3_900_000_000;
    assert_eq!(for_files(&run).verdicts[0].code, "machine-cpu-bound");
}

#[test]
fn the_page_lists_every_code_once() {
    let page = include_str!("../../../../docs/verdicts.md");
    for code in CODES {
        assert_eq!(page.matches(&format!("\n### `{code}`\n")).count(), 1, "docs/verdicts.md has no section on {code}");
    }
    assert_eq!(page.matches("\n### ").count(), CODES.len(), "docs/verdicts.md has a section too many");
}

/// The outcomes of the checks that passed.
fn passed(judged: &Judgement) -> Vec<&str> {
    let checks = judged.checks.iter().filter(|check| check.outcome == Outcome::Passed);
    checks.map(|check| check.code.as_str()).collect()
}

#[test]
fn a_check_without_its_inputs_is_not_passed() {
    // A job to which every statement applies, and which records nothing but its counts.
    let bare = || {
        let mut job = JobResult { clones: 2, continue_on_error: true, verified: None, ..JobResult::default() };
        job.facts.engine = "io_uring".into();
        (job.facts.iodepth, job.facts.numjobs) = (8, 2);
        job.facts.rate_iops.read = Some(1.0);
        job.directions.read.ops = FEW;
        job.directions.read.lat_intended_ns = Some(Histogram::new());
        job
    };
    let writes = |mut job: JobResult| {
        job.directions.write = std::mem::take(&mut job.directions.read);
        job
    };
    // The counts are the input of these; nothing else could be absent.
    let counted = ["disturbed", "errors-tolerated", "too-few-samples"];
    let mut tried: Vec<String> = Vec::new();
    for job in [bare(), writes(bare())] {
        let judged = for_job(&job);
        assert!(passed(&judged).iter().all(|code| counted.contains(code)), "{:?}", passed(&judged));
        tried.extend(judged.checks.into_iter().map(|check| check.code));
    }
    for rule in super::job::JOB_RULES {
        let unconditional = ["verify-mismatch", "steadiness-unknown", "queue-out-of-balance"];
        assert!(tried.iter().any(|code| code == rule.code) || unconditional.contains(&rule.code), "{}", rule.code);
    }
    // A job that looked at its files may still not know what was in memory.
    let mut job = sound();
    (job.facts.direct, job.facts.cached_fraction) = (false, None);
    assert!(!passed(&for_job(&job)).contains(&"page-cache-read"));
    (job.facts.cached_fraction, job.facts.target_bytes) = (Some(0.0), None);
    assert!(!passed(&for_job(&job)).contains(&"page-cache-read"), "nothing tells a second read of the same bytes");
    let mut job = sound();
    job.facts.loop_device = Some(LoopDevice { name: "loop0".into(), cached_fraction: None });
    assert!(!passed(&for_job(&job)).contains(&"loop-page-cache"));
    let mut job = sound();
    job.depth.in_flight = vec![8];
    assert!(!passed(&for_job(&job)).contains(&"depth-not-achieved"), "the queue was filled and drained once");
    let mut job = sound();
    job.cpu = Default::default();
    assert!(!passed(&for_job(&job)).contains(&"generator-cpu-bound"));
    // A fact of each statement of a sound job, taken away.
    assert_eq!(passed(&for_run(&RunResult { jobs: vec![bare()], ..RunResult::default() })), NONE);
    let mut several = RunResult { jobs: vec![JobResult { clones: 2, ..sound() }], ..RunResult::default() };
    several.provenance.machine.cpus = 4;
    assert_eq!(passed(&for_run(&several)), NONE, "the run has no length");
    several.jobs[0].elapsed_ns = 10_000_000_000;
    assert_eq!(passed(&for_run(&several)), ["machine-cpu-bound"]);
    several.jobs[0].cpu = Default::default();
    assert_eq!(passed(&for_run(&several)), NONE, "no CPU time is recorded");
    assert!(!passed(&for_hosts(&hosts(&[0, 0]))).contains(&"host-slow"));
    let threads = vec![Default::default(); 2];
    let phase = PhaseResult { runtime_ns: 10_000_000_000, threads, ..PhaseResult::default() };
    let phase = PhaseResult { total: crate::schema::Work { files: FEW, failed: 1, ..Default::default() }, ..phase };
    let facts = FilesFacts { access: "posix".into(), threads: 2, processes: 1, ..FilesFacts::default() };
    let judged = for_phase(&phase, &facts);
    assert!(judged.checks.len() >= 4, "{judged:?}");
    for code in ["threads-uneven", "generator-cpu-bound"] {
        assert!(!passed(&judged).contains(&code) && judged.checks.iter().any(|check| check.code == code), "{judged:?}");
    }
    let mut files = FilesResult { facts, phases: vec![phase], ..FilesResult::default() };
    assert_eq!(passed(&for_files(&files)), NONE);
    files.provenance.machine.cpus = 4;
    assert_eq!(passed(&for_files(&files)), NONE, "no CPU time is recorded");
    let unnamed = LoadLine { unnamed: Some("the machine changed".into()), ..LoadLine::default() };
    let curve = Curve { line: Some(unnamed), ..Curve::default() };
    let near = Estimate { mean: 1e6, low: 1e6, high: 1e6 };
    let judged = for_curve(&curve, "iodepth", Some(near));
    for code in ["still-rising", "generator-ceiling", "lone-peak"] {
        assert!(!passed(&judged).contains(&code) && judged.checks.iter().any(|check| check.code == code), "{judged:?}");
    }
}
