//! `plimsoll trap`: the program runs as it would by itself, its I/O goes over all lanes, and what was counted is told.

mod common;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use trapped::library;

/// One directory in two places, and one file in it.
struct Lanes {
    place: tempfile::TempDir,
}

impl Lanes {
    fn new() -> Option<Lanes> {
        if !is_root("mount a directory in a second place") {
            return None;
        }
        library();
        let lanes = Lanes { place: directory() };
        for name in ["one", "two", "boards"] {
            std::fs::create_dir(lanes.path(name)).unwrap();
        }
        std::fs::write(lanes.path("one/data"), vec![7; 4 << 20]).unwrap();
        let mounted =
            Command::new("mount").args(["--bind", "one", "two"]).current_dir(lanes.place.path()).output().unwrap();
        if mounted.status.success() {
            return Some(lanes);
        }
        skip(&format!("bind mounts are not possible: {}", stderr(&mounted).trim()), false);
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// `plimsoll trap` with the pool, boards being kept in the test's own directory.
    fn trap(&self, arguments: &[&str]) -> Command {
        let pool = format!("p={0}/one,{0}/two", self.place.path().display());
        self.trap_with(&["--pool", &pool], arguments)
    }

    /// `plimsoll trap` with a pool whose lanes stay in service when the machine stands still for a moment.
    fn trap_patiently(&self, arguments: &[&str]) -> Command {
        let [one, two] = ["one", "two"].map(|name| self.path(name));
        let text = format!("[[pool]]\nname = \"p\"\nlanes = [{one:?}, {two:?}]\nsuspect-after = \"5m\"\n");
        file(self.place.path(), "patient.toml", text);
        self.trap_with(&["--pool-file", "patient.toml"], arguments)
    }

    fn trap_with(&self, pool: &[&str], arguments: &[&str]) -> Command {
        let mut command = plimsoll(self.place.path());
        command.env("PLIMSOLL_RUNTIME_DIR", self.path("boards")).arg("trap").args(pool).args(arguments);
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.trap(arguments).output().unwrap()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path("two")).status(); // it goes with the directory
    }
}

/// Direct reads of all of the file, 64 at a time.
const READ: &[&str] = &[
    "fio",
    "--name=j",
    "--filename=one/data",
    "--rw=randread",
    "--bs=16k",
    "--size=4m",
    "--direct=1",
    "--ioengine=libaio",
    "--iodepth=16",
    "--output-format=json",
];

fn lanes_of(said: &Value) -> Vec<&Value> {
    let programs = said["programs"].as_array().unwrap();
    programs
        .iter()
        .flat_map(|program| program["rows"].as_array().unwrap())
        .filter(|row| row["kind"] == "lane")
        .collect()
}

#[test]
fn a_programs_reads_go_over_both_lanes_and_are_counted() {
    let Some(lanes) = Lanes::new() else { return };
    if !has_program("fio") {
        return;
    }
    let command = [&["--stats", "--stats-json", "stats.json", "--"], READ].concat();
    let output = lanes.trap_patiently(&command).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&output)["jobs"][0]["read"]["io_bytes"], 4 << 20, "standard output is the program's alone");
    let said = json_file(&lanes.path("stats.json"));
    let read: Vec<u64> = lanes_of(&said).iter().map(|lane| lane["read"]["bytes"].as_u64().unwrap()).collect();
    assert_eq!(read.iter().sum::<u64>(), 4 << 20, "every byte, once: {said:#}");
    assert_eq!(read.iter().filter(|bytes| **bytes > 0).count(), 2, "over both lanes: {said:#}");
    let text = stderr(&output);
    assert!(text.contains("iotrap: fio") && text.contains("p99") && text.contains("one "), "{text}");
    assert!(names(&lanes.path("boards")).is_empty(), "nothing is left: {:?}", names(&lanes.path("boards")));
}

/// fio makes the system calls of io_uring in its own code.
#[test]
#[cfg(target_arch = "x86_64")]
fn calls_outside_libc_are_seen_and_counted() {
    let Some(lanes) = Lanes::new() else { return };
    if !has_program("fio") {
        return;
    }
    let reads: Vec<&str> =
        READ.iter().map(|word| if *word == "--ioengine=libaio" { "--ioengine=io_uring" } else { word }).collect();
    for (raw, spread) in [(&[][..], false), (&["--raw"], true)] {
        let command = [raw, &["--stats", "--stats-json", "stats.json", "--"], &reads].concat();
        let output = lanes.trap_patiently(&command).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let said = json_file(&lanes.path("stats.json"));
        let used = lanes_of(&said).iter().filter(|lane| lane["read"]["bytes"].as_u64().unwrap() > 0).count();
        assert_eq!(used == 2, spread, "{said:#}");
        let text = stderr(&output);
        assert_eq!(text.contains("system calls outside libc, seen by --raw"), spread, "{text}");
        assert_eq!(text.contains("entered where no hook sees it (see --raw)"), !spread, "{text}");
    }
}

#[test]
fn a_trace_is_replayed_by_us_and_by_fio() {
    let Some(lanes) = Lanes::new() else { return };
    if !has_program("fio") {
        return;
    }
    let output = lanes.output(&[&["--trace", "trace.log", "--"], READ].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let log = std::fs::read_to_string(lanes.path("trace.log")).unwrap();
    assert!(log.starts_with("fio version 3 iolog\n"), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains(" read ")).count(), 256);
    let replay = ["--name=r", "--read_iolog=trace.log", "--replay_no_stall=1", "--output-format=json"];
    let ours = json(&succeed(lanes.place.path(), &[&["run"], &replay[..]].concat()));
    let text = tool("fio", &replay, lanes.place.path());
    let fios: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    for (who, result) in [("we", ours), ("fio", fios)] {
        assert_eq!(result["jobs"][0]["read"]["total_ios"], 256, "{who}: {result:#}");
        assert_eq!(result["jobs"][0]["read"]["io_bytes"], 4 << 20, "{who}");
    }
}

#[test]
fn a_trace_that_is_cut_off_is_said_once() {
    let Some(lanes) = Lanes::new() else { return };
    if !has_program("fio") {
        return;
    }
    let output = lanes.output(&[&["--trace", "/dev/full", "--"], READ, &["--thread"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("the trace lacks requests").count(), 1, "{}", stderr(&output));
}

/// Three threads, each of which reads 64 blocks one after the other: the sweep replays them as three.
#[test]
fn the_threads_of_a_program_are_replayed_as_threads() {
    let Some(lanes) = Lanes::new() else { return };
    if !has_program("fio") {
        return;
    }
    let threads = ["--thread", "--numjobs=3", "--offset_increment=1m", "--size=1m", "--ioengine=psync"];
    let job = ["--trace", "trace.log", "--", "fio", "--name=j", "--filename=one/data", "--rw=read", "--bs=16k"];
    let output = lanes.output(&[&job[..], &threads].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let log = std::fs::read_to_string(lanes.path("trace.log")).unwrap();
    let mut reads = std::collections::BTreeMap::<&str, usize>::new();
    for line in log.lines().filter(|line| line.contains(" read ")) {
        *reads.entry(line.split(' ').nth(5).expect("a thread")).or_default() += 1;
    }
    assert_eq!(reads.values().collect::<Vec<_>>(), [&64, &64, &64], "{log}");
    let sweep =
        ["sweep", "--engine=null", "--workload=trace.log", "--axis=replay_time_scale=100", "--time=3s", "--json"];
    let result = json(&succeed(lanes.place.path(), &sweep));
    let verdicts = result["verdicts"].as_array().unwrap();
    let replayed = verdicts.iter().find(|verdict| verdict["code"] == "replayed").unwrap()["what"].as_str().unwrap();
    assert!(replayed.contains("all 192 requests") && replayed.contains("3 threads, 3 in flight"), "{replayed}");
}

#[test]
fn top_shows_a_trapped_program_while_it_runs() {
    let Some(lanes) = Lanes::new() else { return };
    if !has_program("fio") {
        return;
    }
    // With and without a summary, boards lie in different directories.
    for stats in [&["--stats", "--"][..], &["--"]] {
        // In turn, so that no lane is left out for having been slow a moment ago.
        let run = [&["--policy", "round-robin"], stats, READ, &["--time_based", "--runtime=1000"]].concat();
        let mut child = lanes.trap_patiently(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let look = || {
            let mut top = plimsoll(lanes.place.path());
            top.env("PLIMSOLL_RUNTIME_DIR", lanes.path("boards")).args([
                "top",
                "--once",
                "--json",
                "--interval",
                "100ms",
            ]);
            json(&top.output().unwrap())
        };
        let busy =
            |said: &Value| lanes_of(said).iter().filter(|lane| lane["read"]["iops"].as_f64().unwrap() > 0.0).count();
        let seen = (0..1000).map(|_| look()).find(|said| busy(said) == 2);
        let signal = rustix::process::Signal::TERM;
        rustix::process::kill_process(rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap(), signal)
            .unwrap();
        child.wait().unwrap();
        let seen = seen.expect("both lanes are at work");
        assert!(seen["programs"].as_array().unwrap().iter().any(|program| program["program"] == "fio"), "{seen:#}");
    }
}

#[test]
fn status_output_and_arguments_are_the_programs() {
    let Some(lanes) = Lanes::new() else { return };
    for stats in [&["--"][..], &["--stats", "--"], &[]] {
        let output =
            lanes.output(&[stats, &["bash", "-c", "cat; echo \"$0 $*\"; exit 7", "--stats", "-x", "--", "y"]].concat());
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        assert_eq!(stdout(&output), "--stats -x -- y\n");
        let output = lanes.output(&[stats, &["bash", "-c", "kill -KILL $$"]].concat());
        assert_eq!(output.status.signal(), Some(9), "{stats:?}: it ends as the program does");
        let output = lanes.output(&[stats, &["no-such-program"]].concat());
        assert_eq!(output.status.code(), Some(127));
        assert!(stderr(&output).contains("cannot start no-such-program: No such file"), "{}", stderr(&output));
        let output = lanes.output(&[stats, &["/etc/passwd"]].concat());
        assert_eq!(output.status.code(), Some(126), "{}", stderr(&output));
    }
    assert!(names(&lanes.path("boards")).is_empty());
}

/// Signals that are ignored or blocked stay so, the others have their default actions, and closed descriptors stay
/// closed.
#[test]
fn a_program_begins_in_the_state_of_trap() {
    let Some(lanes) = Lanes::new() else { return };
    let program = "my @open = grep { -e \"/proc/self/fd/$_\" } 0 .. 2;\n\
                   open(my $from, '<', '/proc/self/status'); open(my $to, '>', $ARGV[0]);\n\
                   while (<$from>) { print $to $_ if /^Sig(Blk|Ign|Cgt)/ } print $to \"open: @open\\n\";\n";
    // The dispositions are set as a parent would: Python's own are SIGPIPE and SIGXFSZ.
    let parent = "import os, signal, sys\n\
                  for number in signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP: signal.signal(number, signal.SIG_IGN)\n\
                  signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM, 40])\n\
                  for number in range(int(sys.argv[1]), 3): os.close(number)\n\
                  os.execvp(sys.argv[2], sys.argv[2:])\n";
    let state = |from: &str, trap: Option<&[&str]>| {
        let result = lanes.path("state");
        let mut command = Command::new("python3");
        command.args(["-c", parent, from]).current_dir(lanes.place.path());
        if let Some(flags) = trap {
            let trap = lanes.trap(flags);
            command.arg(trap.get_program()).args(trap.get_args());
            command.env("PLIMSOLL_RUNTIME_DIR", lanes.path("boards"));
        }
        let status = command.args(["perl", "-e", program]).arg(&result).stdin(Stdio::null()).status().unwrap();
        assert!(status.success(), "{trap:?}: {status}");
        std::fs::read_to_string(result).unwrap()
    };
    for from in ["0", "1", "2", "3"] {
        let native = state(from, None);
        for flags in [&["--"][..], &["--stats", "--"], &["--async", "--"]] {
            assert_eq!(state(from, Some(flags)), native, "{flags:?}, closed from {from} on");
        }
    }
}

#[test]
fn signals_are_passed_on() {
    let Some(lanes) = Lanes::new() else { return };
    let script = "trap 'echo told; exit 5' TERM USR1; echo ready; while :; do sleep 0.05; done";
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::USR1] {
        let mut child = lanes.trap(&["--stats", "bash", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        rustix::process::kill_process(rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap(), signal)
            .unwrap();
        assert_eq!(lines.next().as_deref(), Some("told"));
        assert_eq!(child.wait().unwrap().code(), Some(5));
    }
}

#[test]
fn what_was_to_be_loaded_still_is_and_the_pools_arrive() {
    let Some(lanes) = Lanes::new() else { return };
    let show = ["bash", "-c", "echo \"$LD_PRELOAD\"; echo \"$IOTRAP_POOLS\"; echo \"$IOTRAP_ASYNC$IOTRAP_TRACE\""];
    let output = lanes.trap(&[&["--policy", "round-robin", "--async", "--"], &show[..]].concat());
    let output = { output }.env("LD_PRELOAD", "libm.so.6").output().unwrap();
    let text = stdout(&output);
    let library = std::fs::canonicalize(library()).unwrap();
    assert_eq!(text.lines().next(), Some(&*format!("{}:libm.so.6", library.display())), "{text}{}", stderr(&output));
    assert!(text.contains("policy = \"round-robin\"") && text.ends_with("1\n"), "{text}");
    // A pool file, with what only a file can say.
    let pools = format!(
        "[[pool]]\nname = \"f\"\nlanes = [{{ path = \"{}\", weight = 3 }}, {:?}]\ndepth = 4\n",
        lanes.path("one").display(),
        lanes.path("two")
    );
    file(lanes.place.path(), "pools.toml", pools);
    let output = run(lanes.place.path(), &[&["trap", "--pool-file", "pools.toml"], &show[..]].concat());
    assert!(stdout(&output).contains("weight = 3") && stdout(&output).contains("depth = 4"), "{}", stderr(&output));
}

#[test]
fn what_keeps_a_program_from_being_spread_is_one_line_and_it_runs_all_the_same() {
    let Some(lanes) = Lanes::new() else { return };
    let missing = format!("p={0}/one,{0}/none", lanes.place.path().display());
    let output = run(lanes.place.path(), &["trap", "--pool", &missing, "--", "echo", "done"]);
    assert_eq!(stdout(&output), "done\n");
    assert!(stderr(&output).contains("none is not a directory"), "{}", stderr(&output));
    if has_program("cc") {
        file(lanes.place.path(), "static.c", "int main(void) { return 3; }");
        tool("cc", &["-static", "-o", "static", "static.c"], lanes.place.path());
        let output = lanes.output(&["./static"]);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains("trap spreads nothing: ./static is linked statically"), "{}", stderr(&output));
        // A program that the program executes is named once, and those that can be spread are not named.
        let output = lanes.output(&["bash", "-c", "./static; ./static; ls > /dev/null; exec ./static"]);
        assert_eq!(output.status.code(), Some(3));
        let expected = format!(
            "iotrap: nothing is spread in {}, which the program executes: it is linked statically, and no loader obeys \
             LD_PRELOAD\n",
            lanes.path("static").display()
        );
        assert_eq!(stderr(&output), expected);
        // By every function that executes a program.
        for way in [
            "os.execve(os.open('static', os.O_RDONLY), ['static'], os.environ)",
            "os.posix_spawn('./static', ['static'], os.environ)",
            "os.posix_spawnp('static', ['static'], os.environ)",
            "ctypes.CDLL(None).execvp(b'static', (ctypes.c_char_p * 2)(b'static', None))",
            "ctypes.CDLL(None).execl(b'./static', b'static', None)",
        ] {
            let script = format!("import ctypes, os; os.environ['PATH'] = '/nowhere::/bin'; {way}");
            let output = lanes.output(&["python3", "-c", &script]);
            assert_eq!(stderr(&output), expected, "{way}");
        }
    }
}

#[test]
fn bad_input_is_refused_before_anything_is_started() {
    let place = directory();
    let said = |arguments: &[&str]| refused(place.path(), &[&["trap"], arguments].concat());
    assert!(said(&["touch", "started"]).contains("no pool"));
    assert!(said(&["--pool", "p=a", "touch", "started"]).contains("not an absolute path"));
    assert!(
        said(&["--pool", "p=/a,/b", "--policy", "best", "touch", "started"]).contains("least-loaded or round-robin")
    );
    assert!(said(&["--pool", "p=/a,/b", "--library", "none.so", "touch", "started"]).contains("cannot find none.so"));
    assert!(said(&["--pool", "p=/a,/b"]).contains("PROGRAM"));
    assert!(names(place.path()).is_empty());
}

#[test]
fn a_dry_run_tells_the_share_and_spreads_nothing() {
    let Some(lanes) = Lanes::new() else { return };
    if !has_program("fio") {
        return;
    }
    let pool = format!("p={}", lanes.path("one").display());
    let run = |program: &[&str]| {
        let output = lanes.trap_with(&["--pool", &pool, "--dry-run", "--"], program).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let direct = run(READ);
    // fio's first requests may come before the library knows who reads their completions.
    let told = direct.split("dry run: ").nth(1).and_then(|rest| rest.split(' ').next());
    let share: u64 = told.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{direct}"));
    assert!((200..=256).contains(&share) && !direct.contains("has one lane"), "{direct}");
    let buffered = run(&["cat", "one/data"]);
    assert!(buffered.contains("dry run: 0 of ") && buffered.contains("spread with: O_DIRECT"), "{buffered}");
    let command = [&["--dry-run", "--stats-json", "stats.json", "--"], READ].concat();
    assert!(lanes.trap_patiently(&command).output().unwrap().status.success());
    let said = json_file(&lanes.path("stats.json"));
    let ops: Vec<u64> = lanes_of(&said).iter().map(|lane| lane["read"]["ops"].as_u64().unwrap()).collect();
    assert_eq!(ops, [256, 0], "all reads stay on the opened lane: {said:#}");
}
