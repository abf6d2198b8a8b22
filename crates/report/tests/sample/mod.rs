//! Results as the program would leave them behind, the same in every run.
#![allow(dead_code, reason = "each test binary uses a part")]

use measure::load_line;
use measure::schema::*;
use measure::{effect, verdict};

/// Deviates that look like noise: a golden-ratio sequence, -1..1.
fn wobble(index: u64) -> f64 {
    (index as f64 * 0.618_033_988_75).fract() * 2.0 - 1.0
}

pub fn provenance(command: &[&str]) -> Provenance {
    Provenance {
        schema: SCHEMA_VERSION,
        version: "0.1.0".into(),
        command: command.iter().map(ToString::to_string).collect(),
        started_unix_ms: 1_795_180_627_032,
        machine: Machine {
            hostname: "bench1".into(),
            kernel: "Linux 6.12.48".into(),
            cpu: "AMD EPYC 7543".into(),
            cpus: 8,
            memory_bytes: 64 << 30,
            clock: "tsc".into(),
        },
    }
}

/// A job of random reads at `iops` with a mean latency of about `latency_ns`, in intervals of 100 ms.
pub fn job(engine: &str, iodepth: u32, iops: f64, latency_ns: f64, seconds: u64) -> JobResult {
    let runtime_ns = seconds * 1_000_000_000;
    let ops = (iops * seconds as f64) as u64;
    let mut job = JobResult {
        name: "randread".into(),
        clones: 1,
        options: vec![("rw".into(), "randread".into()), ("iodepth".into(), iodepth.to_string())],
        start_unix_ms: 1_795_180_627_032,
        runtime_ns,
        elapsed_ns: runtime_ns + 20_000_000,
        interval_ns: 100_000_000,
        ..JobResult::default()
    };
    job.facts = Facts {
        engine: engine.into(),
        synchronous: engine == "psync",
        iodepth,
        numjobs: 1,
        direct: true,
        rw: "randread".into(),
        cached_fraction: Some(0.0),
        unwritten_fraction: Some(0.0),
        target_bytes: Some(1 << 30),
        examined: true,
        ..Facts::default()
    };
    job.facts.block_bytes.read = (4096, 4096);
    let read = &mut job.directions.read;
    (read.ops, read.bytes, read.runtime_ns) = (ops, ops * 4096, runtime_ns);
    // A body around the mean and a tail of one in a hundred.
    for step in 0..200u64 {
        let body = latency_ns * (1.0 + 0.35 * wobble(step));
        read.lat_ns.record_many(body as u64, ops / 200 - ops / 20_000);
        read.lat_ns.record_many((latency_ns * (2.0 + 0.06 * step as f64)) as u64, ops / 20_000);
    }
    read.ops = read.lat_ns.count();
    read.bytes = read.ops * 4096;
    for (lower, upper, n) in read.lat_ns.clone().buckets() {
        let middle = (lower + upper) / 2;
        read.slat_ns.record_many(middle / 50, n);
        read.clat_ns.record_many(middle - middle / 50, n);
    }
    job.cpu = CpuUsage {
        user_ns: ops * 600,
        system_ns: ops * 2_400,
        context_switches: ops / 3,
        major_faults: 0,
        minor_faults: 412,
        looked_ns: 0,
        waited_ns: 0,
    };
    let depth: u32 = if job.facts.synchronous { 1 } else { iodepth };
    let full = 31 - depth.leading_zeros();
    job.depth.in_flight = (0..=full).map(|bit| if bit == full { ops } else { 1 }).collect();
    job.depth.in_flight_sum = u128::from(ops) * u128::from(depth);
    // The queue was a little short of full, as the tail of the latencies has no counterpart in the rate.
    let in_flight_ns = u128::from(runtime_ns) * u128::from(depth);
    (job.depth.in_flight_ns, job.depth.issuing_in_flight_ns) = (in_flight_ns, in_flight_ns * 96 / 100);
    job.depth.issuing_ns = runtime_ns;
    job.depth.submitted = vec![0, ops];
    job.depth.completed = vec![0, ops / 2, ops / 6];
    (job.depth.submit_calls, job.depth.complete_calls) = (ops, ops / 2 + ops / 6);
    for index in 1..=seconds * 10 {
        let mut interval = Interval { end_ns: index * 100_000_000, length_ns: 100_000_000, ..Interval::default() };
        interval.ops.read = (iops / 10.0 * (1.0 + 0.012 * wobble(index * 7 + u64::from(iodepth)))) as u64;
        interval.bytes.read = interval.ops.read * 4096;
        interval.lat_sum_ns.read =
            (interval.ops.read as f64 * latency_ns * (1.0 - 0.05 * wobble(index * 7 + u64::from(iodepth)))) as u64;
        job.intervals.push(interval);
    }
    job.judge();
    job
}

pub fn run() -> RunResult {
    let mut reader = job("io_uring", 32, 121_800.0, 262_000.0, 10);
    reader.description = Some("Nightly check of the scratch volume".into());
    let mut writer = job("psync", 8, 14_200.0, 70_000.0, 10);
    writer.name = "log".into();
    writer.group = 1;
    writer.facts.rw = "write".into();
    writer.facts.direct = false;
    writer.facts.writes_synced = Some(false);
    writer.facts.block_bytes.write = (4096, 16384);
    writer.directions.write = std::mem::take(&mut writer.directions.read);
    for interval in &mut writer.intervals {
        std::mem::swap(&mut interval.ops.read, &mut interval.ops.write);
        std::mem::swap(&mut interval.bytes.read, &mut interval.bytes.write);
        std::mem::swap(&mut interval.lat_sum_ns.read, &mut interval.lat_sum_ns.write);
    }
    writer.sync.lat_ns = Default::default();
    writer.judge();
    let mut run = RunResult {
        provenance: provenance(&["plimsoll", "run", "nightly.fio"]),
        global_options: vec![("bs".into(), "4k".into()), ("size".into(), "1g".into())],
        jobs: vec![reader, writer],
        disks: vec![DiskUtil {
            name: "nvme0n1".into(),
            ios: (1_218_000, 142_113),
            merges: (0, 12),
            ticks_ms: (318_220, 9_120),
            in_queue_ms: 327_345,
            util_percent: 99.2,
        }],
        ..RunResult::default()
    };
    let judged = verdict::for_run(&run);
    (run.verdicts, run.checks) = (judged.verdicts, judged.checks);
    run
}

/// Four hosts that ran together; the network of one is slow, and one began late.
pub fn hosts() -> RunResult {
    let hosts = [("node-a", 1.0, 0), ("node-b", 0.97, 33_400), ("node-c", 0.1, 714_000), ("node-d", 1.02, 73_100)];
    let of_host = |(name, speed, started): (&str, f64, i64)| HostResult {
        host: format!("{name}.cluster.example.org"),
        ranks: 2,
        machine: provenance(&[]).machine,
        jobs: vec![job("nvme_tcp", 16, 40_000.0 * speed, 400e3 / speed, 4)],
        wire: WireUse { received: (41_000.0 * 4096.0 * 4.0 * speed) as u64, sent: 9_000_000, length_ns: 4_000_000_000 },
        started_ns: Some((started - 9_000, started + 12_000)),
        clock: ClockComparison { ahead_ns: 0, bound_ns: if started == 0 { 0 } else { 14_000 }, drift_ns: Some(5_660) },
        ..HostResult::default()
    };
    let hosts: Vec<HostResult> = hosts.into_iter().map(of_host).collect();
    let mut all = hosts[0].jobs[0].clone();
    hosts[1..].iter().for_each(|host| all.merge(&host.jobs[0]));
    all.judge();
    let failure = RankFailure { rank: 3, host: "node-c".into(), what: "cannot write <d>".into(), lost: false };
    let hosts = HostsResult { ranks: 8, start_skew_ns: 735_000, failures: vec![failure], hosts };
    let mut run = RunResult {
        provenance: provenance(&["mpirun", "-np", "8", "plimsoll", "run", "cluster.fio"]),
        jobs: vec![all],
        hosts: Some(Box::new(hosts)),
        ended: Ended::Failed,
        ..RunResult::default()
    };
    let judged = verdict::for_run(&run);
    (run.verdicts, run.checks) = (judged.verdicts, judged.checks);
    run
}

fn curve(label: &str, cap: f64, per_op: f64, collapse_from: f64) -> Curve {
    let depths = [1u32, 2, 4, 8, 16, 20, 24, 28, 32, 64, 128, 256, 512, 1024];
    let points = depths.map(|depth| {
        let x = f64::from(depth);
        let iops = cap * (1.0 + (cap * per_op / x).powf(4.0)).powf(-0.25) * (collapse_from / x).min(1.0).powf(0.18);
        let mut point = Point::of(x, job(label, depth, iops, x / iops * 1e9, 2));
        // A first look and three rounds.
        let samples = point.samples.len() as u32 / 4;
        let visit = |round| Visit { at_ns: u64::from(round) * 10_000_000_000, round, samples, ..Visit::default() };
        point.visits = (0..4).map(visit).collect();
        point
    });
    let mut curve = Curve { label: label.into(), points: points.into(), ..Curve::default() };
    curve.line = load_line::find(&curve.points);
    curve
}

pub fn sweep() -> SweepResult {
    let mut sweep = SweepResult {
        provenance: provenance(&["plimsoll", "sweep", "/mnt/scratch", "--engine", "io_uring,libaio"]),
        target: "/mnt/scratch".into(),
        axis: "iodepth".into(),
        curves: vec![curve("io_uring", 122_000.0, 1.6e-4, 300.0), curve("libaio", 104_000.0, 1.75e-4, 200.0)],
        ceiling_iops: Some(Estimate { mean: 6.4e6, low: 6.31e6, high: 6.49e6 }),
        ..SweepResult::default()
    };
    let mut judged = verdict::Judgement::default();
    sweep.curves.iter().for_each(|curve| judged.add(verdict::for_curve(curve, &sweep.axis, sweep.ceiling_iops)));
    (sweep.verdicts, sweep.checks) = (judged.verdicts, judged.checks);
    sweep.advice = report::advice(&sweep);
    sweep
}

pub fn comparison() -> ComparisonResult {
    let one = |engine: &str, iops: f64, latency: f64| RunResult {
        provenance: provenance(&["plimsoll", "run"]),
        jobs: vec![job(engine, 32, iops, latency, 3)],
        ..RunResult::default()
    };
    let runs: Vec<_> = (0..5u64)
        .map(|index| {
            let drift = 1.0 + 0.03 * index as f64;
            (
                one("libaio", 104e3 * drift * (1.0 + 0.004 * wobble(index)), 307e3 / drift),
                one("io_uring", 121e3 * drift * (1.0 + 0.004 * wobble(index + 9)), 264e3 / drift),
            )
        })
        .collect();
    let effects = effect::paired(&runs, 1);
    ComparisonResult {
        provenance: provenance(&["plimsoll", "compare", "job.fio", "--engine", "libaio,io_uring"]),
        sides: ("libaio".into(), "io_uring".into()),
        figure: "iops".into(),
        estimator: "The values of A and B are geometric means of their runs.".into(),
        differences: vec![Difference {
            job: "randread".into(),
            option: "ioengine".into(),
            a: Some("libaio".into()),
            b: Some("io_uring".into()),
        }],
        sentence: effect::sentence(("libaio", "io_uring"), &effects, "iops", &[]),
        effects,
        runs,
        ..ComparisonResult::default()
    }
}

/// A sweep over depth and clones, the load line of whose curves moves.
pub fn map() -> SweepResult {
    let mut map = SweepResult { across: "numjobs".into(), ..sweep() };
    map.curves = [1.0, 2.0, 4.0]
        .map(|clones| Curve {
            across: Some(clones),
            ..curve(&format!("numjobs {clones}"), 122_000.0 * clones.sqrt(), 1.6e-4 / clones, 300.0)
        })
        .to_vec();
    map
}

/// A comparison in which B is a hundred times as fast as A.
pub fn far_apart() -> ComparisonResult {
    let mut far = comparison();
    for (effect, times) in far.effects.iter_mut().zip([907.4, 120.0, 1.0 / 90.0, 0.3, 1.1]) {
        effect.change = Estimate { mean: times - 1.0, low: times * 0.9 - 1.0, high: times * 1.1 - 1.0 };
        effect.b.mean = effect.a.mean * times;
    }
    far
}

/// Two threads that created 3,000 files and lost one.
pub fn files() -> FilesResult {
    let mut lat_ns = measure::Histogram::new();
    (0..3000).for_each(|index| lat_ns.record((20e3 * (1.0 + 0.3 * wobble(index))) as u64));
    let work = Work { files: 1500, records: 1500, bytes: 1500 * 4096, ..Work::default() };
    let mut total = work;
    total.add(&Work { failed: 1, ..work });
    let thread = |thread, runtime_ns| ThreadResult { process: 0, thread, runtime_ns, work, operations: vec![1500] };
    let facts = FilesFacts {
        access: "posix".into(),
        target: "posix".into(),
        directory: "/mnt/<d>".into(),
        file_system: "ext4".into(),
        threads: 2,
        processes: 1,
        files: 1501,
        sizes: "4k".into(),
        mean_bytes: 4096.0,
        record_bytes: 4096,
        continue_on_error: true,
        ..FilesFacts::default()
    };
    let mut phase = PhaseResult {
        name: "create".into(),
        runtime_ns: 2_000_000_000,
        total,
        stonewall_ns: 1_200_000_000,
        at_stonewall: work,
        threads: vec![thread(0, 1_200_000_000), thread(1, 2_000_000_000)],
        operations: vec![OperationResult { operation: "create".into(), lat_ns: lat_ns.clone() }],
        calls: vec![
            CallResult { call: "create".into(), lat_ns: lat_ns.clone() },
            CallResult { call: "close".into(), lat_ns },
        ],
        errors: vec![CallErrors { call: "write".into(), errno: 28, count: 1, first: "cannot write <f>".into() }],
        ..PhaseResult::default()
    };
    phase.judge(&facts);
    let error = Some(JobError { errno: 28, message: "cannot write <f>".into() });
    let provenance = provenance(&["plimsoll", "files"]);
    FilesResult { provenance, facts, phases: vec![phase], error, ended: Ended::Failed, ..FilesResult::default() }
}
