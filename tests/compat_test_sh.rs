//! compat/test.sh: the prototype's driver and its tables, on a target of its own.

mod common;
use common::served::free_port;
use common::*;

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, Output};

/// A shipped configuration with other texts in it, and on a port of its own.
fn changed(directory: &Path, name: &str, changes: &[(&str, &str)]) -> (String, String) {
    let port = free_port().to_string();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name);
    let mut text = std::fs::read_to_string(shipped).expect("a configuration");
    for (from, to) in changes.iter().chain(&[("\"4420\"", format!("\"{port}\"").as_str())]) {
        assert!(text.contains(from), "{from} is not in {name}");
        text = text.replace(from, to);
    }
    (file(directory, "config.json", text).display().to_string(), port)
}

fn configuration(directory: &Path) -> (String, String) {
    changed(directory, "null_16_num_buffers.json", &[])
}

fn test_sh(directory: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    drive(Command::new(root.join("compat/test.sh")).args(arguments), directory, variables)
}

/// Runs the driver, or what has it run.
fn drive(command: &mut Command, directory: &Path, variables: &[(&str, &str)]) -> Output {
    command
        .env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"))
        .env("RPC_SOCKET", directory.join("rpc.sock"))
        // Long enough that some of it is I/O wherever the machine stands still for a while.
        .envs([("TEST_TIME", "3"), ("FIO_RAMP_TIME", "0"), ("IO_SIZE", "128k"), ("RW", "randread")])
        .envs(variables.iter().copied())
        .output()
        .expect("bash runs it")
}

/// The cells of a row.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn positive(cell: &str) -> bool {
    cell.parse::<f64>().is_ok_and(|number| number > 0.0)
}

#[test]
fn one_load_prints_the_prototypes_table() {
    if !has_program("ip") {
        return;
    }
    let place = directory();
    let (config, port) = configuration(place.path());
    let output = test_sh(place.path(), &[("CONFIG", &config), ("TARGET_PORT", &port), ("QD", "32")], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        &lines[..6],
        [
            "Test parameters",
            "Time        : 3",
            "Read/write  : randread",
            "Queue depth : 32",
            "IO size     : 128k",
            "Fio job     : fio-16ns"
        ]
    );
    assert_eq!(cells(lines[8]), ["Host", "kIOPS", "BW,Gb/s", "AVG_LAT,us", "Wire BW,Gb/s"]);
    for (line, name) in [(lines[10], "localhost"), (lines[12], "Total")] {
        let cells = cells(line);
        assert_eq!(cells[0], name);
        assert!(cells[1..4].iter().all(|cell| positive(cell)), "{line}");
        assert!(cells[4] == "-" || positive(cells[4]), "{line}");
    }
    assert!(!place.path().join("rpc.sock").exists(), "its target is gone");
}

#[test]
fn the_basic_test_prints_a_line_for_each_depth() {
    if !has_program("ip") {
        return;
    }
    let place = directory();
    // On drives most of which are slow, so that what is in flight there is seen whenever one looks.
    let slow = [("_latency\": 1000", "_latency\": 50000")];
    let (config, port) = changed(place.path(), "split3_delay_num_buffers.json", &slow);
    let variables = [
        ("CONFIG", config.as_str()),
        ("TARGET_PORT", &port),
        ("FIO_JOB", "fio-48ns"),
        ("QD_LIST", "4 256"),
        ("TEST_TIME", "6"),
    ];
    let output = test_sh(place.path(), &variables, &["basic_test"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<Vec<&str>> = text.lines().map(cells).collect();
    let head =
        ["QD", "BW", "WIRE BW", "AVG LAT, us", "BW STDDEV", "L3 Hit Rate", "Bufs in-flight (MiB)", "Pacer period, us"];
    assert_eq!(lines[0], head);
    assert_eq!(lines.iter().skip(1).map(|cells| cells[0]).collect::<Vec<_>>(), ["4", "256"]);
    let buffers = |row: &[&str]| row[6].split(' ').next().and_then(|number| number.parse::<f64>().ok());
    assert!(lines[1..].iter().all(|row| positive(row[1]) && positive(row[3])), "{text}");
    let within = |row: &[&str], range: RangeInclusive<f64>| buffers(row).is_some_and(|mean| range.contains(&mean));
    assert!(within(&lines[1], 1.0..=12.0), "no more than the depth of three jobs: {text}");
    assert!(within(&lines[2], 12.0..=96.0), "no more than there are: {text}");
}

/// The output of perf on machines that count, hybrid ones too, and on machines that do not.
#[test]
fn the_hit_rate_comes_from_what_perf_counts() {
    if !has_program("ip") {
        return;
    }
    let place = directory();
    let (config, port) = configuration(place.path());
    for (counted, rate) in [
        ("1000,,LLC-loads:u,1,100.00,,\n250,,LLC-load-misses:u,1,100.00,,\n", "75.0"),
        (
            "600,,cpu_core/LLC-loads/,1,99.00,,\n<not counted>,,cpu_atom/LLC-loads/,0,0.00,,\n60,,cpu_core/LLC-load-misses/,1,99.00,,\n",
            "90.0",
        ),
        ("600,,LLC-loads,1,100.00,,\n<not supported>,,LLC-load-misses,0,100.00,,\n", "-"),
        ("<not supported>,,LLC-loads,0,100.00,,\n<not supported>,,LLC-load-misses,0,100.00,,\n", "-"),
    ] {
        // perf stat -x, -e EVENTS -p PID -o FILE -- sleep SECONDS
        let perf = format!(
            "#!/bin/sh\n[ \"$1 $2 $4\" = 'stat -x, LLC-loads,LLC-load-misses' ] && printf '{counted}' > \"$8\"\n"
        );
        let perf = file(place.path(), "perf", perf);
        std::fs::set_permissions(&perf, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its owner");
        let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap_or_default());
        let variables = [("CONFIG", config.as_str()), ("TARGET_PORT", &port), ("QD_LIST", "4"), ("PATH", &path)];
        let output = test_sh(place.path(), &variables, &["basic_test"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert_eq!(cells(text.lines().last().unwrap_or_default())[5], rate, "{text}");
    }
}

/// Hosts that are logged into, each with an interface of its own, and a target on a third.
#[test]
fn hosts_are_driven_by_ssh() {
    let programs = ["ip", "unshare", "ssh", "ssh-keygen", "dropbear", "dropbearconvert"];
    if !programs.into_iter().all(has_program) || !is_root("make hosts") {
        return;
    }
    let place = directory();
    let (config, port) = changed(place.path(), "null_16_num_buffers.json", &[("127.0.0.1", "10.78.0.1")]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let on_hosts = |hosts: &str| {
        let mut rig = Command::new(root.join("rigs/ssh-hosts.sh"));
        rig.arg("env").arg(format!("HOSTS={hosts}")).arg(root.join("compat/test.sh"));
        let variables =
            [("HOSTS", "target,h1,h2"), ("TARGET_ADDRS", "10.78.0.1"), ("CONFIG", &config), ("TARGET_PORT", &port)];
        drive(&mut rig, place.path(), &[&variables[..], &[("TEST_TIME", "6"), ("QD", "4")]].concat())
    };
    let output = on_hosts("h1 h2");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let row = |name: &str| {
        let line = text.lines().find(|line| cells(line)[0] == name).unwrap_or_else(|| panic!("no {name}: {text}"));
        let number = |cell: &&str| cell.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        cells(line)[1..].iter().map(number).collect::<Vec<f64>>()
    };
    let (h1, h2, total) = (row("h1"), row("h2"), row("Total"));
    for host in [&h1, &h2] {
        assert!(host.iter().all(|&number| number > 0.0), "{text}");
        // The interface has carried the load and its headers; the load may run longer than it was asked to.
        assert!((0.5..3.0).contains(&(host[3] / host[1])), "what its interface has carried: {text}");
    }
    assert!((total[1] - h1[1] - h2[1]).abs() < 0.2 && (total[3] - h1[3] - h2[3]).abs() < 0.2, "{text}");

    // A signal that stops the driver stops the loads on the other hosts, too.
    let mut rig = Command::new(root.join("rigs/ssh-hosts.sh"));
    let stopped = r#"HOSTS=h1 TEST_TIME=600 "$0" & driver=$!
load() { "$HOSTS_RIG" pids h1 | xargs -r ps -o args= -p 2> /dev/null | grep -q ioengine=nvme_tcp; }
until load; do kill -0 $driver || exit; sleep .1; done
kill $driver; wait $driver
while load; do sleep .1; done; echo none is left"#;
    let variables =
        [("HOSTS", "target,h1"), ("TARGET_ADDRS", "10.78.0.1"), ("CONFIG", &config), ("TARGET_PORT", &port)];
    let output = drive(rig.args(["bash", "-c", stopped]).arg(root.join("compat/test.sh")), place.path(), &variables);
    assert_eq!(stdout(&output), "none is left\n", "{}", stderr(&output));

    let output = on_hosts("h1 nowhere");
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("nowhere") && stderr(&output).contains("a load failed"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_tested_is_refused() {
    let place = directory();
    for (variables, arguments, part) in [
        (&[("QD", "many")][..], &[][..], "QD=many: give a whole number"),
        (&[("TEST_TIME", "0")], &[], "TEST_TIME=0"),
        (&[("FIO_JOB", "mine")], &[], "FIO_JOB=mine: give fio-1ns"),
        (&[("CONFIG", "/nowhere.json")], &[], "CONFIG=/nowhere.json cannot be read"),
        (&[], &["test_99"], "there is no test test_99"),
        (&[("TARGET_PORT", "1")], &[], "a load failed"),
    ] {
        let output = test_sh(place.path(), variables, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }
    let help = test_sh(place.path(), &[], &["--help"]);
    assert!(help.status.success() && stdout(&help).contains("test_11"), "{}", stdout(&help));
}
