//! Scripts read fio's text report with grep, awk, sed and Python's regular expressions. Each pattern of the table
//! finds a value of the same shape in the reports of Plimsoll, called as `fio`, and of fio.

mod common;
use common::*;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Jobs, and commands that read their reports on standard input.
const TABLE: &[(&str, &[&str])] = &[
    (
        "--name=read --rw=read --bs=64k --size=8m",
        &[
            "grep -E 'read ?:' | head -1",
            "grep 'read: IOPS=' | cut -d= -f2 | cut -d, -f1",
            r"grep -oP 'IOPS=\K[0-9.]+k?' ",
            r"grep -oP 'BW=\K[^ ]+' ",
            r"sed -n 's/.*read: IOPS=\([^,]*\), BW=\([^ ]*\) (\([^)]*\))(\([^)]*\)).*/\1 \2 \3 \4/p'",
            r"awk -F'[=,]' '/read: IOPS/ {print $2}'",
            r"awk '/read: IOPS/ {print $3}'",
            r"awk '/READ: bw/ {print $2}'",
            r"awk '/READ:/ {print $3}' | tr -d '(),'",
            r"awk '/READ:/ {print NF}'",
            r"grep 'READ: bw' | sed 's/.*bw=\([^ ]*\).*/\1/'",
            r"grep -oP 'READ:.*io=\K[^ ]+'",
            r"grep -oP 'run=\K[0-9]+(?=-)' ",
            r"grep -oP 'run=\d+-\K\d+(?=msec)' ",
            r"sed -n '/Run status group/,$p' | head -2",
            r"grep -c 'Run status group 0 (all jobs):'",
            r"grep -E '^ *lat \([num]sec\): min=' | head -1",
            r"grep -E '^ +clat \([num]sec\)' | awk -F'avg=' '{print $2}' | awk -F, '{print $1}'",
            r"grep 'clat (' | head -1 | grep -oP 'max=\s*\K[0-9.]+k?'",
            r"grep 'clat (' | head -1 | grep -oP 'stdev=\s*\K[0-9.]+'",
            r"grep 'clat percentiles' | sed 's/.*(\(.*\)).*/\1/'",
            r"grep -oP '99\.00th=\[\s*\K[0-9]+'",
            r"grep -oP '99\.99th=\[ *[0-9]+\]'",
            r"grep -oP ' 1\.00th=\[' ",
            r"sed -n 's/.*50.00th=\[ *\([0-9]*\)\].*/\1/p'",
            r"awk -F'[][]' '/95.00th/ {print $0}' | grep -o '95.00th=\[ *[0-9]*\]'",
            r"grep -oE 'usr=[0-9.]+%, sys=[0-9.]+%, ctx=[0-9]+, majf=[0-9]+, minf=[0-9]+'",
            r"awk '/cpu/ {print $3, $4}' | tr -d ,",
            r"grep 'IO depths'",
            r"grep 'IO depths' | grep -oP '1=\K[0-9.]+(?=%)' | head -1",
            r"grep -A2 'IO depths' | grep -E 'submit|complete'",
            r"grep 'issued rwts' | cut -d= -f2 | cut -d' ' -f1",
            r"grep -oP 'issued rwts: total=\K\d+'",
            r"grep -oP 'short=\K[\d,]+'",
            r"grep -oP 'dropped=\K[\d,]+'",
            r"grep 'latency   :' | grep -o 'target=[0-9]*, window=[0-9]*, percentile=[0-9.]*%, depth=[0-9]*'",
            r"grep -oP '^read: \(groupid=\K\d+'",
            r"grep -oP 'jobs=\K\d+(?=\))'",
            r"grep -oP 'err=\s*\K\d+'",
            r"grep -oP 'pid=\K\d+'",
            r"grep -oE 'err= 0: pid=[0-9]+: [A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [0-9]{4}'",
            r"head -1 | grep -oE '\(g=0\): rw=read, bs=\(R\) 64.0KiB-64.0KiB, \(W\) 64.0KiB-64.0KiB, \(T\) 64.0KiB-64.0KiB'",
            r"grep -oP 'ioengine=\K[a-z]+, iodepth=\d+'",
            r"grep -x 'Starting 1 process'",
            r"grep -oE '^fio-[0-9]+\.[0-9]+' | cut -d- -f1",
            r"grep -oE 'lat \([num]sec\) +: [0-9]+=[0-9.]+%' | head -1",
            r"tail -3 | grep 'READ:' | wc -l",
        ],
    ),
    (
        "--name=w --rw=randwrite --bs=4k --size=4m --fsync=16",
        &[
            r"grep 'write: IOPS=' | sed -e 's/.*IOPS=//' -e 's/,.*//'",
            r#"awk '/WRITE: bw=/ {gsub(/bw=/, "", $2); print $2}'"#,
            r"grep -oP 'WRITE: bw=[^(]*\(\K[^)]+'",
            r"grep -A1 'fsync/fdatasync/sync_file_range' | tail -1 | grep -oE 'sync \([num]sec\): min='",
            r"grep 'sync percentiles' | wc -l",
            r"grep -oP 'issued rwts: total=\d+,\K\d+,\d+,\d+'",
        ],
    ),
    (
        "--name=m --rw=randrw --rwmixread=70 --bs=4k --size=4m",
        &[
            r"grep -c 'IOPS='",
            r"grep -E '(read|write): IOPS' | awk '{print $1}'",
            r"awk '/IOPS=/ {print $1, $2}' | sed 's/IOPS=//; s/,//'",
            r"grep -E 'READ|WRITE' | awk '{print $1, $2}'",
            r"grep 'clat percentiles' | wc -l",
            r"sed -n '/read:/,/write:/p' | grep -c '99.00th'",
            r"sed -n '/write:/,$p' | grep -oP '99.90th=\[\s*\K\d+'",
        ],
    ),
    (
        "--name=j --ioengine=null --size=1g --rw=randrw --rate_iops=400 --time_based --runtime=2 --numjobs=2 \
         --group_reporting",
        &[
            r"grep -oP 'jobs=2\): err= 0'",
            r"grep -E '^ +bw \( ' | head -1",
            r"grep -E '^ +bw \(' | head -1 | grep -oP 'per=\s*\K[0-9.]+%'",
            r"grep -E '^ +bw \(' | head -1 | grep -oP 'samples=\s*\K\d+'",
            r"grep -E '^ +iops ' | head -1 | sed 's/.*avg=\s*\([0-9.]*\),.*/\1/'",
            r"grep -E '^ +iops ' | head -1 | awk -F'[=,]' '{print NF}'",
            r"grep -c '^j: (groupid'",
            r"grep -c 'Starting 2 processes'",
            r"grep 'READ:' | awk -F'run=' '{print $2}'",
        ],
    ),
    (
        "--name=a --ioengine=null --rw=read --size=64m --name=b --ioengine=null --rw=write --size=64m --stonewall",
        &[
            r"grep -c '^[ab]: (groupid=0'",
            r"grep -c '(g=[01]): rw='",
            r"grep -oP '^(a|b)(?=: \(groupid)'",
            r"grep 'Run status group' | awk '{print $4}'",
            r"awk '/^b:/,/IO depths/' | grep -oP 'write: IOPS=\K[0-9]+'",
            r"grep -E '^ *(READ|WRITE): bw=' | sed 's/^ *//' | cut -d: -f1",
        ],
    ),
    (
        "--name=d --rw=randread --bs=4k --size=8m --ioengine=libaio --iodepth=32 --direct=1 --numjobs=2",
        &[
            r"grep -oP 'IO depths.*32=\K[0-9.]+(?=%)' | head -1 | cut -d. -f2 | wc -c",
            r"grep -oP 'slat \([num]sec\)' | wc -l",
            r"grep -E 'slat|clat \(| lat \([num]sec\): min' | awk '{print $1}'",
            r"sed -n '/Disk stats/,$p' | tail -n +2 | grep -oE '[a-z0-9]+: ios=[0-9]+/[0-9]+' | wc -l",
            r"grep -c 'util='",
            r"grep -oP 'util=\K[0-9.]+%' | head -1",
        ],
    ),
    (
        "--name=t --ioengine=null --rw=randrw --size=4m --output-format=terse",
        &[
            r"cut -d';' -f3,4,5",
            r"awk -F';' '{print NF}'",
            r"awk -F';' '{print $6, $47}'",
            r"cut -d';' -f18 | cut -d= -f1",
            r"cut -d';' -f1",
        ],
    ),
    (
        "--name=s --ioengine=null --rw=randread --size=4m --output-format=normal,json+",
        &[
            r#"grep -oP '^\s+"iops" : \K[0-9.]+' | head -1"#,
            r#"grep -oP '"bw_bytes" : \K[0-9]+' | head -1"#,
            r#"grep '"total_ios"' | head -1 | tr -dc 0-9"#,
            r"grep -c 'clat percentiles'",
            r#"sed -n '/^{/,/^}/p' | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["jobs"][0]["read"]["clat_ns"]["bins"]) > 0)'"#,
            r#"python3 -c 'import re,sys; print(re.search(r"IOPS=([0-9.]+[kM]?), BW=([0-9.]+[KMG]iB/s)", sys.stdin.read()).groups())'"#,
        ],
    ),
];

/// The standard output of a command of the shell that reads a report.
fn extracted(command: &str, report: &str) -> String {
    let mut shell = Command::new("sh");
    let mut shell = shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    // A command such as head ends before it has read the whole report.
    drop(shell.stdin.take().expect("a pipe").write_all(report.as_bytes()));
    stdout(&shell.wait_with_output().expect("the shell ends"))
}

/// A value with its numbers as N, and the units that follow the speed of the machine as U and T.
fn shape(value: &str) -> String {
    let mut shape = String::new();
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if first.is_ascii_digit() {
            let decimals = number < rest.len() && rest[number..].starts_with(['k', 'M']);
            rest = &rest[number + usize::from(decimals && !rest[number + 1..].starts_with(['i', 'B', 's']))..];
            // Numbers are padded to the width of a column.
            if shape.trim_end().ends_with(['=', '[']) {
                shape.truncate(shape.trim_end().len());
            }
            shape.push('N');
            continue;
        }
        shape.push(first);
        rest = &rest[first.len_utf8()..];
    }
    for unit in ["KiB", "MiB", "GiB", "kB", "MB", "GB"] {
        shape = shape.replace(&format!("N{unit}"), if unit.len() == 3 { "NUiB" } else { "NUB" });
    }
    let shape = ["nsec", "usec", "msec"].iter().fold(shape, |shape, unit| shape.replace(&format!("({unit})"), "(T)"));
    shape.trim_end().to_owned()
}

fn report_of(fio: &Path, place: &Path, job: &str) -> String {
    let output = Command::new(fio).args(job.split_whitespace()).current_dir(place).output().expect("fio starts");
    assert!(output.status.success(), "{} {job}: {}", fio.display(), stderr(&output));
    stdout(&output)
}

#[test]
fn patterns_of_scripts_find_values_of_the_same_shape() {
    if !has_program("fio") {
        return skip("fio is not installed", true);
    }
    let directory = directory();
    let ours = directory.path().join("fio");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), &ours).unwrap();
    let mut wrong = Vec::new();
    for (job, commands) in TABLE {
        let (theirs, ours) =
            (report_of(Path::new("fio"), directory.path(), job), report_of(&ours, directory.path(), job));
        for command in *commands {
            let (fios, found) = (extracted(command, &theirs), extracted(command, &ours));
            if shape(&fios) != shape(&found) || fios.trim().is_empty() {
                wrong.push(format!("{command}\nfio:  {fios:?}\nours: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} patterns differ:\n{}", wrong.len(), wrong.join("\n\n"));
}
