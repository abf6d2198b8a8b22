//! The work of the first rank at the end of a run of 4,096 ranks on as many hosts: it reads the parts that its twelve
//! children in the tree hand over, merges them, and makes the result. The benchmark prints the time and the peak of
//! memory; the bars are 2 s and 1 GiB.
//!
//! The parts are made in another process: the cost of making them is not that of the first rank.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use hosts::{Part, Tree};
use measure::PerDirection;
use measure::schema::{HostResult, Interval, JobResult, RunResult};

const RANKS: u32 = 4096;
/// A minute at fio's interval of half a second.
const INTERVALS: u64 = 120;
/// Latencies from 50 us to 50 ms: some 700 buckets each.
const SAMPLES: u64 = 4000;

/// The measurements of one rank: reads and writes, three distributions each.
fn part(rank: u32) -> Part {
    let mut job = JobResult { name: "job".into(), clones: 4, interval_ns: 500_000_000, ..JobResult::default() };
    job.runtime_ns = INTERVALS * job.interval_ns;
    let mut random = u64::from(rank) + 1;
    for sample in 0..SAMPLES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lat_ns = (50_000.0 * 1000f64.powf((random >> 11) as f64 / (1u64 << 53) as f64)) as u64;
        let result = if sample % 3 == 0 { &mut job.directions.write } else { &mut job.directions.read };
        result.ops += 1;
        result.bytes += 4096;
        result.slat_ns.record(lat_ns / 100);
        result.clat_ns.record(lat_ns - lat_ns / 100);
        result.lat_ns.record(lat_ns);
    }
    for index in 1..=INTERVALS {
        let ops = PerDirection { read: SAMPLES / INTERVALS, write: SAMPLES / INTERVALS / 2, trim: 0 };
        let (end_ns, length_ns) = (index * job.interval_ns, job.interval_ns);
        job.intervals.push(Interval { end_ns, length_ns, ops, bytes: ops, ..Interval::default() });
    }
    let host = HostResult { host: format!("node-{rank:04}"), started_ns: Some((0, 100)), ..HostResult::default() };
    Part::of_run(rank, RunResult { jobs: vec![job], ..RunResult::default() }, host)
}

/// The part that `rank` hands to its parent, merged with those of its children.
fn subtree(tree: &Tree, rank: u32) -> Vec<u8> {
    let mut parts = vec![part(rank).written()];
    parts.extend(tree.children(rank).into_iter().map(|child| subtree(tree, child)));
    Part::merge_written(parts)
}

fn prepare(directory: &Path) {
    let tree = Tree::over((0..RANKS).collect());
    for child in tree.children(0) {
        std::fs::write(directory.join(child.to_string()), subtree(&tree, child)).expect("the parts are written");
    }
}

fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak of memory");
    line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") / 1024.0
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--prepare") {
        return prepare(Path::new(&arguments[at + 1]));
    }
    let directory = std::env::temp_dir().join(format!("merge-bench.{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let program = std::env::current_exe().expect("this program");
    let prepared = Command::new(program).arg("--prepare").arg(&directory).status().expect("it starts");
    assert!(prepared.success());

    let tree = Tree::over((0..RANKS).collect());
    let children = tree.children(0);
    let mut parts = vec![part(0).written()];
    parts.extend(children.iter().map(|child| std::fs::read(directory.join(child.to_string())).expect("a part")));
    std::fs::remove_dir_all(&directory).expect("this program made the directory");
    let bytes: usize = parts.iter().map(Vec::len).sum();
    let began = Instant::now();
    let whole = Part::merge_written(parts);
    let whole = Part::read_all(vec![whole]).expect("the parts are whole");
    let run = whole.into_run(RANKS);
    let seconds = began.elapsed().as_secs_f64();
    let hosts = run.hosts.expect("a run on many hosts");
    assert_eq!((hosts.hosts.len(), run.jobs[0].total_ops()), (RANKS as usize, u64::from(RANKS) * SAMPLES));
    println!(
        "{RANKS} ranks: {:.1} MiB from {} children, merged in {seconds:.2} s; peak of memory {:.0} MiB",
        bytes as f64 / (1 << 20) as f64,
        children.len(),
        peak_mib()
    );
}
