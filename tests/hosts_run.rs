//! `mpirun ... plimsoll run`: real ranks on hosts of their own, one result.

mod common;
use common::hosts::*;
use common::{directory, file, names, refused, stderr, stdout};
use measure::Histogram;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

fn buckets(histogram: &Value) -> Histogram {
    serde_json::from_value(histogram.clone()).expect("a histogram")
}

fn saved(directory: &Path, name: &str) -> Value {
    common::json_file(&directory.join(name))
}

#[test]
fn without_mpi_one_line_says_how_to_get_it() {
    if cfg!(feature = "mpi") {
        return; // this program has it
    }
    let directory = directory();
    let launched = |rank: &str, arguments: &[&str]| {
        let mut command = common::plimsoll(directory.path());
        command.env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", rank);
        command.args(arguments).output().unwrap()
    };
    for arguments in
        [&["run", "--name=j", "--ioengine=null", "--size=1m"][..], &["sweep"], &["files", "--op", "create"]]
    {
        let first = launched("0", arguments);
        let said = stderr(&first);
        assert_eq!(first.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("--features mpi") && said.trim_end().lines().count() == 1, "{said}");
        let second = launched("1", arguments);
        assert_eq!((second.status.code(), stderr(&second).as_str()), (Some(2), ""), "once is enough");
    }
    assert!(names(directory.path()).is_empty());
    // Alone, nothing of this is needed.
    common::succeed(directory.path(), &["run", "--name=j", "--ioengine=null", "--size=1m"]);
}

#[test]
fn totals_that_cannot_be_divided_are_refused_alone_too() {
    let job = ["run", "--name=j", "--ioengine=null", "--size=1m", "--numjobs=3", "--total-iodepth=4"];
    let said = refused(directory().path(), &job);
    assert!(said.contains("multiple of 3"), "{said}");
}

#[test]
fn four_hosts_are_one_run() {
    if possible() {
        on_hosts(rig(), "four_hosts_are_one_run");
    }
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_four_hosts_are_one_run() {
    let place = directory();
    let place = place.path();
    every_sample_is_in_the_merged_histogram(place);
    more_clones_than_processors(place);
    files_and_variables(place);
    reports(place);
    totals(place);
    statements(place);
    different_versions(place);
}

/// The latencies that each rank has logged, op by op, put together, are the distribution of the run.
fn every_sample_is_in_the_merged_histogram(place: &Path) {
    let job =
        "--name=j --rw=randread --bs=4k --size=4m --number_ios=500 --ioengine=psync --write_lat_log=log --save=r.json";
    let job: Vec<&str> = ["run"].into_iter().chain(job.split(' ')).collect();
    succeed(place, 4, &job);
    let mut all = Histogram::new();
    for rank in 0..4 {
        let log = std::fs::read_to_string(place.join(format!("log.rank{rank}_lat.1.log"))).expect("a log of each rank");
        // fio: time, value, direction, block, ...
        let values = log.lines().map(|line| line.split(", ").nth(1).unwrap().parse::<u64>().unwrap());
        values.for_each(|value| all.record(value));
    }
    assert_eq!(all.count(), 2000);
    let run = saved(place, "r.json");
    assert_eq!(buckets(&run["jobs"][0]["directions"]["read"]["lat_ns"]), all);
    let hosts = run["hosts"]["hosts"].as_array().unwrap();
    let mut of_hosts = Histogram::new();
    hosts.iter().for_each(|host| of_hosts.merge(&buckets(&host["jobs"][0]["directions"]["read"]["lat_ns"])));
    assert_eq!(of_hosts, all);
    // The record holds the measured values: the skew is that of the starts. The clocks are one clock here, and the
    // measured offsets are not larger than their stated uncertainty.
    let starts: Vec<(i64, i64)> =
        hosts.iter().map(|host| serde_json::from_value(host["started_ns"].clone()).unwrap()).collect();
    let first = starts.iter().map(|(first, _)| first).min().unwrap();
    let last = starts.iter().map(|(_, last)| last).max().unwrap();
    assert_eq!(run["hosts"]["start_skew_ns"], last - first);
    assert!(
        starts.iter().all(|(first, last)| first <= last && *first >= 0),
        "nobody begins before the moment: {starts:?}"
    );
    for host in hosts {
        let clock = &host["clock"];
        let (ahead, bound) = (clock["ahead_ns"].as_i64().unwrap(), clock["bound_ns"].as_u64().unwrap());
        assert!(ahead.unsigned_abs() <= bound, "{clock}");
        assert!(host["host"] == "a" || bound > 0, "the others' clocks were compared: {clock}");
        assert!(clock["drift_ns"].is_i64(), "and once more after the run: {clock}");
    }
}

/// Clones that never wait share a processor in turns of milliseconds: they cannot begin together, and `start-skew` says
/// so.
fn more_clones_than_processors(place: &Path) {
    let clones = 8 * std::thread::available_parallelism().unwrap().get();
    let job = ["run", "--name=j", "--ioengine=null", "--size=1g", "--thread", "--time_based", "--runtime=500ms"];
    succeed(place, 4, &[&job[..], &[&format!("--numjobs={clones}"), "--save=skew.json"]].concat());
    let run = saved(place, "skew.json");
    let verdicts = run["verdicts"].as_array().unwrap();
    assert!(verdicts.iter().any(|verdict| verdict["code"] == "start-skew"), "{}", run["hosts"]["start_skew_ns"]);
}

/// Files with made-up names are each rank's own; `$rank`, `$nranks` and `$host` are filled in; a file that is named is
/// one for all, laid out once.
fn files_and_variables(place: &Path) {
    let made = place.join("made");
    std::fs::create_dir(&made).unwrap();
    succeed(&made, 4, &["run", "--name=j", "--rw=write", "--bs=4k", "--size=64k", "--ioengine=psync"]);
    assert_eq!(names(&made), ["rank0.j.0.0", "rank1.j.0.0", "rank2.j.0.0", "rank3.j.0.0"]);
    let contents: std::collections::BTreeSet<Vec<u8>> =
        names(&made).iter().map(|name| std::fs::read(made.join(name)).unwrap()).collect();
    assert_eq!(contents.len(), 4, "seeds differ, and so does what is written");

    let named = place.join("named");
    std::fs::create_dir(&named).unwrap();
    file(&named, "j.fio", "[j]\nrw=write\nbs=4k\nsize=64k\nioengine=psync\nfilename=$host.$rank-of-$nranks\n");
    succeed(&named, 8, &["run", "j.fio"]);
    let mut all = names(&named);
    all.retain(|name| name != "j.fio");
    let hosts = ["a.0", "a.4", "b.1", "b.5", "c.2", "c.6", "d.3", "d.7"];
    assert_eq!(all, hosts.map(|host| format!("{host}-of-8")));

    // A section for two of the hosts, and one for a host without ranks, of which one warning tells.
    let text = "[global]\nioengine=null\nsize=1g\nrw=randread\nnumber_ios=100\n[j]\nbs=4k\n[j@b,d]\nbs=8k\niodepth=3\n";
    file(&named, "differ.fio", format!("{text}[global@x]\nbs=1m\n[k]\nbs=4k\n"));
    let output = succeed(&named, 4, &["run", "--output-format=json", "--save=differ.json", "differ.fio"]);
    assert_eq!(stderr(&output).matches("no rank runs on host x of [global@x]").count(), 1, "{}", stderr(&output));
    let result = json(&output);
    let bytes: Vec<(String, u64)> = result["client_stats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["hostname"].as_str().unwrap_or("all").to_string(), job["read"]["io_bytes"].as_u64().unwrap()))
        .collect();
    let of = |host: &str| bytes.iter().filter(|(name, _)| name == host).map(|(_, bytes)| *bytes).collect::<Vec<_>>();
    assert_eq!(
        [of("a"), of("b"), of("c"), of("d")],
        [[409_600, 409_600], [819_200, 409_600], [409_600, 409_600], [819_200, 409_600]],
        "{bytes:?}"
    );
    let run = saved(&named, "differ.json");
    let depth = |host: usize| run["hosts"]["hosts"][host]["jobs"][0]["facts"]["iodepth"].as_u64().unwrap();
    assert_eq!([0, 1, 2, 3].map(depth), [1, 3, 1, 3]);

    let job = ["run", "--name=j", "--rw=randread", "--bs=4k", "--size=4m", "--ioengine=psync", "--filename=shared"];
    let output = succeed(&named, 8, &[&job[..], &["--output-format=json"]].concat());
    assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 8 * 1024);
    let content = std::fs::read(named.join("shared")).unwrap();
    assert!(content.len() == 4 << 20 && content.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)));
}

/// Every form of the report has the hosts.
fn reports(place: &Path) {
    let job = ["run", "--name=j", "--rw=randread", "--ioengine=null", "--size=1g", "--number_ios=1000", "--iodepth=4"];
    let output = succeed(place, 4, &[&job[..], &["--output-format=json+", "--save=s.json", "--html=s.html"]].concat());
    let result = json(&output);
    assert_eq!(result["jobs"][0]["read"]["total_ios"], 4000, "jobs has the sum, for scripts that know one host");
    let clients = result["client_stats"].as_array().unwrap();
    let of: Vec<(&str, &str)> = clients
        .iter()
        .map(|client| (client["jobname"].as_str().unwrap(), client["hostname"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(of, [("j", "a"), ("j", "b"), ("j", "c"), ("j", "d"), ("All clients", "")]);
    assert!(clients[..4].iter().all(|client| client["read"]["total_ios"] == 1000));
    let (sum, all) = (&clients[4]["read"], &result["jobs"][0]["read"]);
    assert_eq!((&sum["clat_ns"], &sum["io_bytes"]), (&all["clat_ns"], &all["io_bytes"]));
    let html = std::fs::read_to_string(place.join("s.html")).unwrap();
    assert!(
        html.contains("<h2>Hosts</h2>")
            && html.contains("Wire BW,Gb/s")
            && html.contains("<th scope=\"row\" class=\"\">d</th>")
    );

    let text = stdout(&succeed(place, 4, &job));
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Host ")).take(6).collect();
    let columns = ["Host", "kIOPS", "BW,Gb/s", "AVG_LAT,us", "p99,us", "Wire BW,Gb/s", "start skew"];
    assert!(columns.iter().all(|column| table[0].contains(column)), "{text}");
    let first: Vec<&str> = table[1..].iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(first, ["a", "b", "c", "d", "All"], "{text}");

    // Read back, the saved result has them too.
    let again = common::succeed(place, &["report", "s.json", "-o", "again.html"]);
    assert!(
        std::fs::read_to_string(place.join("again.html")).unwrap().contains("<h2>Hosts</h2>"),
        "{}",
        stdout(&again)
    );
}

/// `--status-interval`: reports of all ranks while they run, each of every rank.
fn statements(place: &Path) {
    let job = ["run", "--name=j", "--rw=randread", "--ioengine=null", "--size=1g", "--time_based", "--runtime=5"];
    let more = ["--rate_iops=1000", "--status-interval=250ms", "--output-format=json", "--output=st"];
    let output = succeed(place, 4, &[&job[..], &more].concat());
    let text = std::fs::read_to_string(place.join("st")).unwrap();
    let reports: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().expect("JSON after JSON");
    assert!(reports.len() >= 3, "{} reports\n{}", reports.len(), stderr(&output));
    let ops = |report: &Value| report["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    assert!(reports.is_sorted_by(|earlier, later| ops(earlier) <= ops(later)));
    assert!(ops(&reports[0]) < ops(reports.last().unwrap()), "the first is not the last");
    for report in &reports {
        let clients = report["client_stats"].as_array().unwrap();
        let of_hosts = clients[..clients.len() - 1].iter().map(|client| client["read"]["total_ios"].as_u64().unwrap());
        assert_eq!((clients.len(), of_hosts.sum::<u64>()), (5, ops(report)), "four hosts and their sum");
        assert_eq!(report["jobs"][0]["read"]["clat_ns"]["N"], ops(report), "latencies are in it");
    }
}

/// Depths and rates for all together.
fn totals(place: &Path) {
    let job = ["run", "--name=j", "--rw=randread", "--ioengine=null", "--size=1g", "--time_based", "--runtime=3"];
    let output = succeed(
        place,
        4,
        &[&job[..], &["--numjobs=2", "--total-iodepth=16", "--total-rate-iops=4000", "--save=t.json", "--output=t"]]
            .concat(),
    );
    let run = saved(place, "t.json");
    let facts = &run["jobs"][0]["facts"];
    assert_eq!((&facts["iodepth"], &facts["rate_iops"]["read"]), (&2.into(), &500.0.into()), "{}", stdout(&output));
    let ops: u64 =
        run["jobs"].as_array().unwrap().iter().map(|job| job["directions"]["read"]["ops"].as_u64().unwrap()).sum();
    assert!((3000..=13_200).contains(&ops), "4000 ops a second for 3 s and not for each clone, but {ops}");
    let refused = refused_by_all(place, 4, &[&job[..], &["--total-iodepth=6", "--numjobs=2"]].concat());
    assert!(refused.contains("multiple of 8"), "{refused}");
}

/// The message, said once, about arguments that are refused with status 2.
fn refused_by_all(place: &Path, ranks: u32, arguments: &[&str]) -> String {
    let output = run(place, ranks, arguments);
    assert_eq!(output.status.code(), Some(2), "{}\n{}", stdout(&output), stderr(&output));
    let said: Vec<String> =
        stderr(&output).lines().filter(|line| line.starts_with("plimsoll:")).map(String::from).collect();
    assert!(!said.is_empty(), "{}", stderr(&output));
    said.join("\n")
}

fn different_versions(place: &Path) {
    let mut other = std::fs::read(program()).unwrap();
    let mark = b"version of all ranks: ";
    let at = other.windows(mark.len()).position(|bytes| bytes == mark).expect("the mark is in the program");
    other[at + mark.len()] = b'9';
    let path = file(place, "other", other);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = format!(
        "if [ $(hostname) = c ]; then exec {} \"$@\"; else exec {} \"$@\"; fi",
        path.display(),
        program().display()
    );
    let output = mpirun(place, 4)
        .args(["sh", "-c", &script, "sh", "run", "--name=j", "--ioengine=null", "--size=1m"])
        .output()
        .unwrap();
    let (said, version) = (stderr(&output), env!("CARGO_PKG_VERSION"));
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("different versions of plimsoll or different commands: {version} of ")), "{said}");
    assert!(
        said.contains("on a (rank 0), but 9") && said.contains("on c (rank 2)") && stdout(&output).is_empty(),
        "{said}"
    );
}

#[test]
fn the_network_of_a_host_shows_in_the_table() {
    if possible() && common::has_program("tc") {
        on_hosts(rig(), "the_network_of_a_host_shows_in_the_table");
    }
}

/// Our NVMe/TCP target at the switch, read by four hosts, one of which has a tenth of the others' bandwidth.
#[test]
#[ignore = "run by the test of the same name"]
fn inside_the_network_of_a_host_shows_in_the_table() {
    let place = directory();
    let place = place.path();
    let address = std::env::var("HOSTS_SWITCH").unwrap();
    let mut target = rig_tool(&["on", "switch"]);
    target
        .arg(program())
        .args(["serve", "--null", "1g", "--listen", &address, "--allow-any-host", "--rpc-socket"])
        .arg(place.join("rpc"));
    let mut target = target.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut tries = 0;
    let connects = ["on", "a", "bash", "-c", &format!("exec 3<>/dev/tcp/{address}/4420")];
    while !rig_tool(&connects).output().unwrap().status.success() {
        tries += 1;
        assert!(tries < 3000 && target.try_wait().unwrap().is_none(), "the target does not listen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Little enough for a slow machine to carry.
    for (host, rate) in [("a", "80mbit"), ("b", "80mbit"), ("c", "8mbit"), ("d", "80mbit")] {
        assert!(rig_tool(&["shape", host, rate]).status().unwrap().success());
    }
    let url = format!("--filename=trtype=tcp traddr={address} trsvcid=4420 subnqn=nqn.2016-06.io.spdk\\:cnode1 ns=1");
    let job =
        ["run", "--name=j", "--rw=randread", "--bs=64k", "--size=1g", "--iodepth=4", "--ioengine=nvme_tcp", "--thread"];
    let more = [url.as_str(), "--time_based", "--runtime=6", "--save=n.json"];
    let output = run(place, 4, &[&job[..], &more].concat());
    target.kill().unwrap();
    target.wait().unwrap();
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    let row = |host: &str| -> Vec<f64> {
        let line = text.lines().find(|line| line.starts_with(&format!("{host} "))).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().skip(1).take(6).map(|word| word.parse().unwrap()).collect()
    };
    let (a, c) = (row("a"), row("c"));
    // ranks, kIOPS, BW, AVG_LAT, p99, Wire BW: a tenth of the rate, ten times the latency, and the wire says the same,
    // as long as neither host stands still for most of the run.
    assert!((3.0..30.0).contains(&(a[1] / c[1])), "{text}");
    assert!(c[3] > 3.0 * a[3], "{text}");
    let opinion = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(opinion.contains("host-slow") && opinion.contains(" on c; the median of all hosts is"), "{text}");
    assert!((3.0..30.0).contains(&(a[5] / c[5])) && c[5] < 0.03 && a[5] > a[2] * 0.5, "{text}");
}

#[test]
fn failures_are_named_and_what_was_measured_is_kept() {
    if possible() {
        on_hosts(rig(), "failures_are_named_and_what_was_measured_is_kept");
    }
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_failures_are_named_and_what_was_measured_is_kept() {
    let place = directory();
    let place = place.path();
    // One host has no such directory: nothing runs anywhere.
    for host in ["a", "b", "d"] {
        std::fs::create_dir(place.join(format!("on-{host}"))).unwrap();
    }
    let job = ["run", "--name=j", "--rw=write", "--bs=64k", "--size=8m", "--ioengine=psync", "--directory=on-$host"];
    let said = refused_by_all(place, 4, &job);
    assert!(said.starts_with("plimsoll: rank 2 on c: no such directory on-c") && said.lines().count() == 1, "{said}");
    let left: Vec<String> = ["a", "b", "d"].iter().flat_map(|host| names(&place.join(format!("on-{host}")))).collect();
    assert!(left.iter().all(|name| name.starts_with("rank")), "{left:?}");

    // One host has too little space: its rank fails in the middle of the run.
    std::fs::create_dir(place.join("on-c")).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs", "on-c"]).current_dir(place).status();
    assert!(mounted.unwrap().success(), "the rig's hosts have a mount table of their own");
    // A job that reads needs all of its data; of one that writes, the end of the space decides.
    let said = refused_by_all(place, 4, &[&job[..], &["--rw=read"]].concat());
    assert!(said.starts_with("plimsoll: rank 2 on c: not enough space in on-c"), "seen before anything runs: {said}");
    let long =
        ["--fallocate=none", "--size=3m", "--time_based", "--runtime=600", "--save=space.json", "--output=space"];
    let began = std::time::Instant::now();
    // An op a second: it takes most of a minute until there is space for all that it will write.
    let mut child = start(place, 4, &[&job[..4], &job[5..], &long, &["--rate=64k"]].concat());
    let written = |(rank, host): (u32, &str)| {
        std::fs::metadata(place.join(format!("on-{host}/rank{rank}.j.0.0"))).is_ok_and(|file| file.len() > 0)
    };
    while !(0..).zip(["a", "b", "c", "d"]).all(written) {
        assert!(child.try_wait().unwrap().is_none(), "it runs for ten minutes");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Somebody else takes what is left of the space.
    assert!(std::fs::write(place.join("on-c/other"), vec![1; 8 << 20]).is_err());
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let text = std::fs::read_to_string(place.join("space")).unwrap();
    assert!(text.contains("rank 2 on c: job j:") && text.contains("No space left"), "{text}\n{said}");
    assert!(text.contains("Partial"), "{text}");
    let run_ = saved(place, "space.json");
    assert_eq!(run_["ended"], "failed");
    let bytes = |host: usize| run_["hosts"]["hosts"][host]["jobs"][0]["directions"]["write"]["bytes"].as_u64().unwrap();
    assert!((0..4).all(|host| bytes(host) > 0), "what each wrote until then is kept");
    assert!(began.elapsed().as_secs() < 300, "long before the ten minutes that were asked for");
    assert!(Command::new("umount").arg(place.join("on-c")).status().unwrap().success());

    for victim in ["c", "a"] {
        a_rank_is_killed(place, victim);
    }
    everything_is_ended(place);
    a_rank_is_lost_and_mpirun_goes_on(place);
    a_cable_is_cut(place);
    a_cable_is_cut_and_mpirun_does_not_notice(place);
}

const ENDLESS: [&str; 9] = [
    "run",
    "--name=j",
    "--rw=randread",
    "--ioengine=null",
    "--size=1g",
    "--time_based",
    "--runtime=600",
    "--thread",
    "--rate_iops=1000",
];

/// Starts ranks without an end, and waits until all of them have begun their load.
fn endless(place: &Path, name: &str, options: &[&str]) -> std::process::Child {
    let output = format!("--output={name}.txt");
    let save = format!("--save={name}.json");
    let logged = ["--write_iops_log=began", "--log_avg_msec=0", &output, &save];
    for _ in 0..TRIES {
        for host in ["b", "c", "d"] {
            everything_leaves(host); // the test itself is on the first host
        }
        for rank in 0..4 {
            let _ = std::fs::remove_file(began(place, rank)); // of the run before
        }
        let mut command = mpirun(place, 4);
        // Time for the last words of ranks that are kept from a processor when it comes to them. mpirun takes it twice.
        command.env("OMPI_MCA_odls_base_sigkill_timeout", "8");
        command.args(options).arg(program()).args([&ENDLESS[..], &logged].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun starts");
        if all_begin(place, &mut child) {
            return child;
        }
        let said = stderr(&child.wait_with_output().unwrap());
        assert!(no_daemons(&said), "{name} ended early: {said}");
    }
    panic!("{name}: mpirun did not start its daemons in {TRIES} tries")
}

/// The log in which a rank shows that it has begun its load.
fn began(place: &Path, rank: u32) -> std::path::PathBuf {
    place.join(format!("began.rank{rank}_iops.1.log"))
}

/// Waits until all ranks have begun their load: true, or false when mpirun ended before.
fn all_begin(place: &Path, mpirun: &mut std::process::Child) -> bool {
    let mut tries = 0;
    while !(0..4).all(|rank| std::fs::metadata(began(place, rank)).is_ok_and(|log| log.len() > 0)) {
        if mpirun.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        tries += 1;
        assert!(tries < 6000, "it never began");
    }
    true
}

/// kill -9, as the kernel does for want of memory: mpirun gives the others some seconds, and what they have is kept.
fn a_rank_is_killed(place: &Path, victim: &str) {
    let name = format!("killed-{victim}");
    let child = endless(place, &name, &[]);
    let pids = ranks_on(victim);
    assert_eq!(pids.len(), 1, "one rank on {victim}");
    assert!(Command::new("kill").args(["-KILL", &pids[0]]).status().unwrap().success());
    let killed = std::time::Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(killed.elapsed().as_secs() < 300, "the others stop, long before the ten minutes");
    assert!(!output.status.success());
    all_but_one_reported(place, &name, victim, &stderr(&output));
    for host in ["a", "b", "c", "d"] {
        everyone_leaves(host);
    }
}

/// The report names the lost rank, says that it is partial, and has what the others have done.
fn all_but_one_reported(place: &Path, name: &str, victim: &str, said: &str) {
    let text = std::fs::read_to_string(place.join(format!("{name}.txt")))
        .unwrap_or_else(|error| panic!("{victim}: {error}\n{said}"));
    let rank = if victim == "a" { 0 } else { 2 };
    assert!(text.contains(&format!("rank {rank} on {victim}: was lost")), "{text}");
    assert!(text.contains("Partial"), "{text}");
    let run = saved(place, &format!("{name}.json"));
    assert_eq!(run["ended"], "failed");
    let hosts = run["hosts"]["hosts"].as_array().unwrap();
    let left: Vec<&str> = hosts.iter().map(|host| host["host"].as_str().unwrap()).collect();
    let expected: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|host| *host != victim).collect();
    assert_eq!(left, expected, "{text}");
    assert!(hosts.iter().all(|host| host["jobs"][0]["directions"]["read"]["ops"].as_u64().unwrap() > 0));
}

/// `mpirun --enable-recovery` leaves the other ranks alone, and ends with them, with status 0. The last line on
/// standard error and the saved result say that the run failed.
fn a_rank_is_lost_and_mpirun_goes_on(place: &Path) {
    let child = endless(place, "recovery", &["--enable-recovery"]);
    let pids = ranks_on("c");
    assert!(Command::new("kill").args(["-KILL", &pids[0]]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    all_but_one_reported(place, "recovery", "c", &said);
    let last = said.lines().rfind(|line| line.starts_with("plimsoll: "));
    assert_eq!(last, Some("plimsoll: all ranks: status 1"), "mpirun's status is {}: {said}", output.status);
    for host in ["a", "b", "c", "d"] {
        everyone_leaves(host);
    }
}

/// Waits until no rank is left on a host.
fn everyone_leaves(host: &str) {
    let began = std::time::Instant::now();
    while !ranks_on(host).is_empty() {
        assert!(began.elapsed().as_secs() < 300, "{host} goes on");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Waits until nothing at all is left on a host, not even a daemon of mpirun.
fn everything_leaves(host: &str) {
    let began = std::time::Instant::now();
    let left = || stdout(&rig_tool(&["pids", host]).output().expect("the rig's tool starts"));
    while !left().trim().is_empty() {
        assert!(began.elapsed().as_secs() < 300, "{host} goes on: {}", left());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A host behind a cut cable, mpirun told to look after its connections: nothing is left running on either side.
fn a_cable_is_cut(place: &Path) {
    let child = endless(place, "cut", &[]);
    assert!(rig_tool(&["cut", "c"]).status().unwrap().success());
    let cut = std::time::Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(cut.elapsed().as_secs() < 300, "mpirun ends as well");
    assert!(!output.status.success());
    all_but_one_reported(place, "cut", "c", &stderr(&output));
    for host in ["a", "b", "c", "d"] {
        everyone_leaves(host);
    }
    assert!(rig_tool(&["plug", "c"]).status().unwrap().success());
}

/// A cut cable with mpirun's defaults. mpirun waits for the lost host, but the ranks do not: the ranks that are left
/// report, the one that is cut off ends by itself, and does not write over the report when it can reach the others'
/// files.
fn a_cable_is_cut_and_mpirun_does_not_notice(place: &Path) {
    let mut child = endless(place, "unnoticed", &["--mca", "oob_tcp_keepalive_time", "300"]);
    assert!(rig_tool(&["cut", "c"]).status().unwrap().success());
    for host in ["a", "b", "c", "d"] {
        everyone_leaves(host);
    }
    assert!(child.try_wait().unwrap().is_none(), "docs/hosts.md says that mpirun waits");
    // Ctrl-C, twice.
    while child.try_wait().unwrap().is_none() {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    // Its daemon on c still holds its standard error: that has no end yet.
    assert!(!child.wait().unwrap().success());
    all_but_one_reported(place, "unnoticed", "c", "");
    assert!(rig_tool(&["plug", "c"]).status().unwrap().success());
}

/// Ctrl-C at mpirun.
fn everything_is_ended(place: &Path) {
    let child = endless(place, "ended", &[]);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let text = std::fs::read_to_string(place.join("ended.txt")).unwrap_or_default();
    assert!(text.contains("Interrupted"), "{text}\n{}\n{}", stdout(&output), stderr(&output));
    assert_eq!(saved(place, "ended.json")["hosts"]["hosts"].as_array().unwrap().len(), 4);
}

#[test]
fn sixty_four_ranks_on_one_host() {
    if !["mpirun", "mpicc"].into_iter().all(common::has_program) {
        return;
    }
    let place = directory();
    let job =
        ["run", "--name=j", "--rw=randread", "--ioengine=null", "--size=1g", "--time_based", "--runtime=2", "--thread"];
    let output = succeed(place.path(), 64, &[&job[..], &["--save=r.json", "--output-format=json"]].concat());
    let result = json(&output);
    let clients = result["client_stats"].as_array().unwrap();
    assert_eq!(clients.len(), 2, "one host, and the sum");
    let run = saved(place.path(), "r.json");
    assert_eq!((&run["hosts"]["ranks"], &run["jobs"][0]["clones"]), (&64.into(), &64.into()));
    assert_eq!(run["hosts"]["hosts"][0]["clock"]["bound_ns"], 0, "one host has one clock");
    assert!(run["jobs"][0]["directions"]["read"]["ops"].as_u64().unwrap() > 64);
}
