//! Every verdict fires from a real run: of the program, on real files, not from a result that was made up.

mod common;
use common::loop_device::LoopDevice;
use common::served::Served;
use common::*;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use measure::verdict::CODES;
use serde_json::Value;

/// Verdicts that other tests of the program bring up, and where.
const ELSEWHERE: [(&str, &str); 8] = [
    ("different-blocks", include_str!("compare.rs")),
    ("disturbed", include_str!("nvme_tcp.rs")),
    ("host-slow", include_str!("hosts_run.rs")),
    ("no-limit", include_str!("sweep_axes.rs")),
    ("process-lost", include_str!("files/phases.rs")),
    ("queue-out-of-balance", include_str!("truth.rs")),
    ("start-skew", include_str!("hosts_run.rs")),
    ("wider-than-asked", include_str!("truth.rs")),
];

/// All codes in a result: of its jobs, its phases, its points, and its own.
fn codes(result: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    match result {
        Value::Object(fields) => {
            for verdict in fields.get("verdicts").and_then(Value::as_array).into_iter().flatten() {
                found.insert(verdict["code"].as_str().expect("a code").to_string());
            }
            fields.values().for_each(|value| found.append(&mut codes(value)));
        }
        Value::Array(values) => values.iter().for_each(|value| found.append(&mut codes(value))),
        _ => {}
    }
    found
}

/// The codes of one job with these options, however it ends.
fn of_run(directory: &Path, options: &[&str]) -> BTreeSet<String> {
    let arguments = [&["run", "--save=result.json", "--name=j"], options].concat();
    let output = run(directory, &arguments);
    let path = directory.join("result.json");
    assert!(path.exists(), "{options:?}: {}", stderr(&output));
    let found = codes(&json_file(&path));
    std::fs::remove_file(path).unwrap();
    found
}

/// The codes of a sweep with these arguments.
fn of_sweep(directory: &Path, arguments: &[&str]) -> BTreeSet<String> {
    codes(&json(&succeed(directory, &[&["sweep", "--json"], arguments].concat())))
}

/// The codes that runs brought up so far.
#[derive(Default)]
struct Seen(BTreeSet<String>);

impl Seen {
    /// Takes the codes of one run, all of which it must have brought up: they follow from what was asked for.
    fn fires(&mut self, codes: &[&str], found: &BTreeSet<String>) {
        for code in codes {
            assert!(CODES.contains(code), "{code} is not in the list of codes");
            assert!(found.contains(*code), "{code} does not fire: {found:?}");
        }
        self.add(codes);
    }

    /// Runs until these codes, which depend on time, came up together. Programs beside a run change what it finds, and
    /// so does an emulated processor that stands still: once of ten times is proof.
    fn comes_up(&mut self, codes: &[&str], mut run: impl FnMut() -> BTreeSet<String>) {
        let mut found = run();
        for _ in 1..10 {
            if codes.iter().all(|code| found.contains(*code)) {
                break;
            }
            found = run();
        }
        self.fires(codes, &found);
    }

    /// Codes that are proven elsewhere, or cannot be proven here.
    fn add(&mut self, codes: &[&str]) {
        self.0.extend(codes.iter().map(|code| code.to_string()));
    }
}

/// Two threads, of which one writes a file a thousand times as large as the other's: the seed decides the sizes.
fn of_files_of_two_sizes(here: &Path) -> BTreeSet<String> {
    let sizes = ["files", "--op", "create", "--threads=2", "--files=1", "--size=64k:50,64m:50", "--cleanup", "--json"];
    let of = |seed: u32| codes(&json(&succeed(here, &[&sizes[..], &[&format!("--seed={seed}")]].concat())));
    let mut found = (1..=40).map(of);
    found.find(|found| found.contains("threads-uneven")).unwrap_or_default()
}

/// True if this machine lets tests run before other programs; otherwise it prints why not.
fn has_real_time_scheduling() -> bool {
    if !is_root("run before all other programs") || !has_program("chrt") {
        return false;
    }
    let tried = std::thread::spawn(before_other_programs).join().expect("no panic");
    tried.map_err(|error| skip(&format!("no real-time scheduling here: {error}"), false)).is_ok()
}

/// Runs this, and the programs that it starts, before the other programs of the machine.
fn undisturbed<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let first = || {
        let _ = before_other_programs(); // where it is not permitted, the last of several tries stands
        run()
    };
    std::thread::scope(|scope| scope.spawn(first).join().expect("no panic"))
}

/// A run of a clone for each CPU, before all other programs, for less time than the kernel takes to stop such programs
/// (0.95 s of each second).
fn of_a_run_that_nothing_preempts(here: &Path) -> BTreeSet<String> {
    let clones = format!("--numjobs={}", std::thread::available_parallelism().unwrap());
    let load = ["--name=j", "--ioengine=psync", "--filename=data", "--size=1m", "--rw=randread", "--invalidate=0"];
    let time = ["--thread", "--group_reporting", "--time_based", "--runtime=500ms", "--save=busy.json"];
    let job = [&["run", &clones][..], &load, &time].concat();
    // A virtual machine may lose its processors for a while: the last of several tries stands.
    for _ in 0..4 {
        undisturbed(|| succeed(here, &job));
        let found = codes(&json_file(&here.join("busy.json")));
        if found.contains("generator-cpu-bound") && found.contains("machine-cpu-bound") {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_secs(1)); // the budget of real-time programs is whole again
    }
    BTreeSet::new()
}

/// A sweep for which the kernel refuses io_uring_setup(2), system call 425 on every architecture (seccomp(2)).
fn of_a_sweep_without_io_uring(here: &Path) -> BTreeSet<String> {
    const REFUSE: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = struct.pack('HBBI', 0x20, 0, 0, 0)           # load the number of the call
code += struct.pack('HBBI', 0x15, 0, 1, 425)        # if it is io_uring_setup
code += struct.pack('HBBI', 0x06, 0, 0, 0x50001)    # answer EPERM
code += struct.pack('HBBI', 0x06, 0, 0, 0x7fff0000) # else allow
rules = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(rules)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
";
    let words = ["sweep", "data", "--json", "--iodepth=1,2", "--time=2s"];
    let mut command = Command::new("python3");
    command.args(["-IS", "-c", REFUSE, env!("CARGO_BIN_EXE_plimsoll")]).args(words).current_dir(here);
    codes(&json(&command.output().unwrap()))
}

/// A sweep over a device that answers at once, instead of after 20 ms, during a late visit to the middle depth.
fn of_a_sweep_with_a_lucky_moment(here: &Path) -> BTreeSet<String> {
    let served = Served::slow(here, "bdev_null_create", 20_000, 0);
    let answer_after = |us: u32| {
        for kind in ["avg_read", "p99_read"] {
            let (kind, us) = (format!("latency_type={kind}"), format!("latency_us={us}"));
            served.rpc(&["bdev_delay_update_latency", "delay_bdev_name=Slow", &kind, &us]);
        }
    };
    let boards = tempfile::tempdir_in(here).unwrap();
    let words = ["sweep", "--json", "--ioengine=nvme_tcp", "--iodepth=1,2,4", "--time=12s", &served.filename(1)];
    let mut command = plimsoll(here);
    command.args(words).env("PLIMSOLL_RUNTIME_DIR", boards.path()).stdout(Stdio::piped());
    let mut sweep = command.spawn().unwrap();
    // The depth at this moment, as `plimsoll top` shows it; 0 when the sweep is over.
    let mut depth = || -> u64 {
        if sweep.try_wait().unwrap().is_some() {
            return 0;
        }
        let look = plimsoll(here)
            .args(["top", "--once", "--json", "--interval", "10ms"])
            .env("PLIMSOLL_RUNTIME_DIR", boards.path())
            .output()
            .unwrap();
        json(&look)["programs"][0]["rows"][0]["asked_depth"].as_u64().unwrap_or(1)
    };
    while ![0, 4].contains(&depth()) {} // the first look at every depth is over
    while ![0, 2].contains(&depth()) {}
    answer_after(100);
    while depth() == 2 {}
    answer_after(20_000);
    let output = sweep.wait_with_output().unwrap();
    served.end();
    codes(&json(&output))
}

#[test]
fn every_verdict_fires_from_a_real_run() {
    let directory = directory();
    let here = directory.path();
    let mut seen = Seen::default();
    let written = ["--ioengine=psync", "--filename=data", "--size=1m", "--bs=64k"];
    let with = |more: &[&'static str]| [&written[..], more].concat();

    let fresh_write = || {
        drop(std::fs::remove_file(here.join("data")));
        of_run(here, &with(&["--rw=write"]))
    };
    seen.fires(&["writes-not-synced", "too-few-samples", "allocating-writes"], &fresh_write());
    seen.comes_up(&["interval-too-short", "steadiness-unknown"], fresh_write);
    seen.fires(&["page-cache-read"], &of_run(here, &with(&["--rw=read", "--invalidate=0"])));
    seen.fires(&["clones-on-same-blocks"], &of_run(here, &with(&["--rw=read", "--numjobs=2"])));
    seen.fires(&["depth-not-achieved"], &of_run(here, &with(&["--rw=read", "--iodepth=4"])));
    let hopeless = ["--rw=randread", "--time_based", "--runtime=300ms", "--rate_iops=50m", "--rate_process=poisson"];
    seen.comes_up(&["rate-not-met", "queued-before-issue"], || of_run(here, &with(&hopeless)));
    let thinking = ["--time_based", "--runtime=5", "--thinktime=1s", "--thinktime_blocks=100", "--log_avg_msec=250"];
    let uneven = [&["--ioengine=null", "--size=1g", "--rw=read"], &thinking[..]].concat();
    seen.comes_up(&["not-steady"], || of_run(here, &uneven));

    std::fs::File::create(here.join("hole")).unwrap().set_len(1 << 20).unwrap();
    let hole = ["--ioengine=psync", "--filename=hole", "--size=1m", "--rw=read"];
    seen.fires(&["unwritten-read"], &of_run(here, &hole));

    let verified = ["--ioengine=psync", "--filename=checked", "--size=64k", "--bs=4k", "--verify=crc32c"];
    of_run(here, &[&verified[..], &["--rw=write", "--do_verify=0"]].concat());
    let path = here.join("checked");
    let mut content = std::fs::read(&path).unwrap();
    content[10_000] ^= 1;
    std::fs::write(path, content).unwrap();
    let lenient = [&verified[..], &["--rw=read", "--continue_on_error=verify"]].concat();
    seen.fires(&["verify-mismatch", "errors-tolerated"], &of_run(here, &lenient));

    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    seen.fires(&["memory-filesystem"], &of_run(shared.path(), &with(&["--rw=write"])));

    // Sweeps. A thinking user makes throughput that of the depth.
    seen.fires(&["too-few-points"], &of_sweep(here, &["data", "--iodepth=1,2", "--time=2s"]));
    seen.comes_up(&["no-load-line"], || of_sweep(here, &["data", "--iodepth=1,2,4", "--time=2s"]));
    let rate = ["--engine=null", "--iodepth=1,2,4", "--time=5s", "--rate_iops=500"];
    let limited_by_rate = || {
        let found = of_sweep(here, &rate);
        assert!(!found.contains("generator-ceiling"), "the rate is not the generator's limit: {found:?}");
        found
    };
    seen.comes_up(&["rate-limited"], limited_by_rate);
    let thinking = ["data", "--engine=psync", "--iodepth=1,2,4", "--time=20s", "--thinktime=5ms"];
    seen.comes_up(&["still-rising", "generator-ceiling"], || undisturbed(|| of_sweep(here, &thinking)));
    // A queue of 128 requests takes 0.25 s at that rate, and the sweep has room for less than 16 of its turns.
    let deep = ["--engine=null", "--iodepth=1..1024", "--time=3s", "--rate_iops=500"];
    seen.fires(&["depths-left-out"], &of_sweep(here, &deep));
    // Two rounds or three leave few degrees of freedom.
    seen.comes_up(&["uncertain"], || of_sweep(here, &["data", "--iodepth=1,2,4,8", "--time=4s"]));

    // A recording of a million requests a second, by a thread that waits for each.
    let requests: String = (0..200).map(|n| format!("{n} data read {} 4096\n", n * 4096 % 65536)).collect();
    file(here, "fast.iolog", format!("fio version 3 iolog\n0 data add\n0 data open\n{requests}"));
    let replay = ["--workload=fast.iolog", "--engine=libaio", "--axis=replay_time_scale=100,200", "--time=3s"];
    let replay = [&["--no-files"], &replay[..]].concat();
    seen.comes_up(&["replayed", "replay-behind"], || of_sweep(here, &replay));
    // Rounds of a millisecond differ.
    let rounds = ["--precondition", "--precondition-round=1ms", "--precondition-rounds=5", "--iodepth=1,2"];
    let rounds = [&[".", "--no-files", "--engine=psync", "--size=4m", "--time=1s"], &rounds[..]].concat();
    let fresh = here.join("fresh");
    std::fs::create_dir(&fresh).unwrap();
    seen.comes_up(&["not-preconditioned"], || of_sweep(&fresh, &rounds));

    let limited = "ulimit -n 100; exec \"$0\" sweep --json data --engine=psync --iodepth=1,2,4,512 --time=4s";
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let output = Command::new("sh").args(["-c", limited, program]).current_dir(here).output().unwrap();
    let with_few_files = codes(&json(&output));
    seen.fires(&["depth-not-possible"], &with_few_files);

    if let Some(ramfs) = Mount::new("ramfs", "size=64m") {
        std::fs::write(ramfs.path().join("data"), vec![1; 1 << 20]).unwrap();
        seen.fires(&["no-direct-io"], &of_sweep(ramfs.path(), &["data", "--iodepth=1,2", "--time=2s"]));
    } else {
        seen.add(&["no-direct-io"]);
    }
    std::fs::write(here.join("disk"), vec![1; 4 << 20]).unwrap();
    match LoopDevice::over(&here.join("disk")) {
        Some(device) => {
            let name = format!("--filename={}", device.path);
            let direct = ["--ioengine=psync", "--direct=1", "--rw=read", "--size=4m", "--bs=64k", &name];
            seen.fires(&["loop-page-cache"], &of_run(here, &direct));
        }
        None => seen.add(&["loop-page-cache"]),
    }
    for (code, text) in ELSEWHERE {
        assert!(text.contains(code), "{code} is not in the test that is to bring it up");
        seen.add(&[code]);
    }
    seen.comes_up(&["threads-uneven"], || of_files_of_two_sizes(here));
    seen.comes_up(&["lone-peak"], || undisturbed(|| of_a_sweep_with_a_lucky_moment(here)));
    let bound = ["generator-cpu-bound", "machine-cpu-bound"];
    match has_real_time_scheduling() {
        true => seen.comes_up(&bound, || of_a_run_that_nothing_preempts(here)),
        false => seen.add(&bound),
    }
    match has_program("python3") {
        true => seen.fires(&["engine-replaced"], &of_a_sweep_without_io_uring(here)),
        false => seen.add(&["engine-replaced"]),
    }
    let without: Vec<&&str> = CODES.iter().filter(|code| !seen.0.contains(**code)).collect();
    assert!(without.is_empty(), "no run brings up {without:?}");
}
