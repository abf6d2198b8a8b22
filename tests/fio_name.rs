//! Called by the name `fio`, the program keeps the habits that scripts rely on.

mod common;
use common::*;
use std::path::Path;
use std::process::{Command, Output};

/// A link of the name `fio` to the program, run with these arguments.
fn fio(directory: &Path, arguments: &[&str]) -> Output {
    let link = directory.join("fio");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), &link).unwrap();
    }
    Command::new(link).current_dir(directory).args(arguments).output().expect("the program starts")
}

const NULL: [&str; 4] = ["--name=j", "--ioengine=null", "--size=64k", "--rw=randread"];

#[test]
fn the_version_is_one_of_fio_3() {
    let directory = directory();
    for flag in ["--version", "-v"] {
        let output = fio(directory.path(), &[flag]);
        assert!(output.status.success());
        assert!(stdout(&output).starts_with("fio-3."), "{}", stdout(&output));
    }
    let output = run(directory.path(), &["run", "-v"]);
    assert!(stdout(&output).starts_with("plimsoll "), "{}", stdout(&output));
}

#[test]
fn notes_stand_in_the_report_and_not_on_standard_error() {
    let directory = directory();
    let doubtful = [&NULL[..], &["--debug=file", "--numjobs=2", "--rate_iops=1000000"]].concat();
    let output = fio(directory.path(), &doubtful);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    assert!(
        stdout(&output).starts_with("note: --debug has an effect with random, parse and io only"),
        "{}",
        stdout(&output)
    );
    assert_eq!(stdout(&output).matches("note: ").count(), 2, "{}", stdout(&output));
    // A report for programs has no room for them.
    let output = fio(directory.path(), &[&doubtful[..], &["--output-format=json"]].concat());
    assert!(json(&output)["jobs"].is_array() && stderr(&output).is_empty());

    // Under our own name they go to standard error, unless a flag says otherwise.
    let own = [&["run"], &doubtful[..]].concat();
    assert!(stderr(&succeed(directory.path(), &own)).contains("warning: "));
    assert_eq!(stderr(&succeed(directory.path(), &[&own[..], &["--no-warnings"]].concat())), "");
}

#[test]
fn a_block_that_differs_is_named_on_standard_error_wherever_the_report_goes() {
    let directory = directory();
    std::fs::write(directory.path().join("data"), vec![1; 8192]).unwrap();
    let job = ["--name=j", "--filename=data", "--rw=read", "--verify=md5"];
    for more in [&[][..], &["--output=report"], &["--output-format=json", "--output=report"]] {
        let output = fio(directory.path(), &[&job[..], more].concat());
        assert_eq!(output.status.code(), Some(1), "{more:?}");
        assert!(stderr(&output).contains("verification failed in data"), "{more:?}: {}", stderr(&output));
    }
    let output = run(directory.path(), &[&["run", "--output=report"], &job[..]].concat());
    assert!(stderr(&output).contains("verification failed in data"), "{}", stderr(&output));
}

#[test]
fn reports_come_in_fios_order() {
    let directory = directory();
    let order = |output: &Output| {
        let text = stdout(output);
        let first = text.chars().next().unwrap();
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
        let normal = if text.contains("Run status group") { "j: (groupid=0" } else { "j  randread" };
        (first, at("3;fio-3.") < at("{\n"), at("{\n") < at(normal))
    };
    let arguments = [&NULL[..], &["--output-format=normal,json,terse"]].concat();
    assert_eq!(order(&fio(directory.path(), &arguments)), ('3', true, true));
    assert_eq!(order(&succeed(directory.path(), &[&["run"], &arguments[..]].concat())), ('j', false, false));
}

#[test]
fn a_job_file_becomes_a_command_line_of_the_program_that_was_called() {
    let directory = directory();
    std::fs::write(directory.path().join("a.fio"), "[a]\nrw=read\nsize=64k\n").unwrap();
    let options = "--name=a --rw=read --size=64k";
    let shown = |output: &Output| stdout(output).trim_end().to_owned();
    assert_eq!(shown(&fio(directory.path(), &["--showcmd", "a.fio"])), format!("fio {options}"));
    let ours = succeed(directory.path(), &["run", "--showcmd", "a.fio"]);
    assert_eq!(shown(&ours), format!("plimsoll run {options}"));
}

#[test]
fn wrong_arguments_end_with_status_1() {
    let directory = directory();
    for wrong in [&["--no-such-option=1"][..], &["--name=j", "--rw=bogus"], &["missing.fio"], &[]] {
        let output = fio(directory.path(), wrong);
        assert_eq!(output.status.code(), Some(1), "{wrong:?}");
        assert!(stderr(&output).starts_with("fio: "), "{}", stderr(&output));
    }
}

/// Two jobs of one flow, one of them at a rate: the other follows it at the ratio of their weights.
#[test]
fn a_flow_shares_ops_by_weight() {
    let directory = directory();
    let flow = ["--ioengine=null", "--size=100g", "--flow_id=1", "--output-format=json"];
    let slow = ["--name=slow", "--flow=1", "--rate_iops=1000", "--number_ios=1000"];
    let output = fio(directory.path(), &[&flow[..], &["--exitall"], &slow[..], &["--name=fast", "--flow=8"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let result = json(&output);
    let ios = |index: usize| result["jobs"][index]["read"]["total_ios"].as_u64().unwrap();
    // Once the slow job has ended, the fast one is bound by nothing until exitall reaches it.
    assert_eq!(ios(0), 1000);
    assert!(ios(1) >= 7900, "{} ops beside {}", ios(1), ios(0));
}

#[test]
fn values_are_read_as_fio_reads_them() {
    let directory = directory();
    let range = ["--name=j", "--ioengine=null", "--size=1m", "--rw=randtrimwrite", "--bsrange=512/25:1k:25:2k/50"];
    let log = ["--write_bw_log=l", "--per_job_logs=0"];
    let output = fio(directory.path(), &[&range[..], &log[..]].concat());
    assert!(
        output.status.success() && stdout(&output).contains("percentages belong to bssplit"),
        "{}",
        stdout(&output)
    );
    let text = std::fs::read_to_string(directory.path().join("l_bw.log")).unwrap();
    let sizes: std::collections::BTreeSet<&str> = text.lines().map(|line| line.split(", ").nth(3).unwrap()).collect();
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), ["1024", "512"]);
    // A write is as long as the trim before it, however long `bs` lets writes be.
    let trims = ["--name=j", "--ioengine=null", "--size=1m", "--rw=trimwrite", "--bs=4k,4k,8k", "--output-format=json"];
    let result = json(&fio(directory.path(), &trims));
    assert_eq!(result["jobs"][0]["write"]["total_ios"], result["jobs"][0]["trim"]["total_ios"]);
}

/// `--debug=random` prints the seeds: equal where a run repeats another, different where it does not.
#[test]
fn the_seeds_of_a_run_are_printed_on_request() {
    let directory = directory();
    let seeds = |more: &[&str]| {
        let job = ["--debug=random", "--name=a", "--ioengine=null", "--filesize=32k", "--rw=randread"];
        let said = stdout(&fio(directory.path(), &[&job[..], more].concat()));
        let lines = said.lines().filter(|line| line.contains("rand_seeds["));
        let seeds: Vec<u64> = lines.map(|line| line.rsplit('=').next().unwrap().parse().unwrap()).collect();
        assert_eq!(seeds.len(), 6, "{said}");
        seeds
    };
    assert_eq!(seeds(&["--randrepeat=1"]), seeds(&["--allrandrepeat=1"]));
    assert_ne!(seeds(&["--randrepeat=0"]), seeds(&["--randrepeat=0"]));
    assert_ne!(seeds(&["--allrandrepeat=0"]), seeds(&["--allrandrepeat=0"]));
    assert_eq!(seeds(&["--randrepeat=0", "--randseed=5"]), seeds(&["--randseed=5"]));
    assert_ne!(seeds(&["--randseed=6"]), seeds(&["--randseed=5"]));
}

/// The line of status: on standard output, where fio has it, and only where fio would show it.
#[test]
fn the_line_of_status_is_fios() {
    let directory = directory();
    let job =
        ["--name=j", "--ioengine=null", "--size=1g", "--rw=randread", "--rate_iops=500", "--time_based", "--runtime=4"];
    let with = |more: &[&str]| stdout(&fio(directory.path(), &[&job[..], more].concat()));
    let text = with(&["--eta=always"]);
    let (opening, rest) = text.split_once("Starting 1 process\n").expect("the opening stands above the line");
    assert!(opening.contains("rw=randread"));
    let lines: Vec<&str> = rest.split('\r').filter(|line| line.starts_with("Jobs: ")).collect();
    assert!(lines[0].starts_with("Jobs: 1 (f=1), 0-500 IOPS"), "{lines:?}");
    let told = lines.iter().find(|line| line.contains("[eta 00m:")).expect("the third second tells of the end");
    assert!(told.contains(": [r(1)][") && told.contains("%][r=") && told.contains(" IOPS]["), "{told}");
    assert!(rest.contains("\nRun status group 0"));
    // Reports for programs stand alone.
    for format in ["--output-format=json", "--output-format=terse"] {
        assert!(!with(&["--eta=always", "--runtime=2", format]).contains("Jobs: "));
    }
    assert!(!with(&["--runtime=2"]).contains("Jobs: "), "without a terminal");
}

/// fio makes no file under `--readonly`, not even one that a job is to read.
#[test]
fn readonly_makes_no_file() {
    let directory = directory();
    let job = ["--readonly", "--name=j", "--filename=data", "--rw=read", "--size=64k"];
    for length in [None, Some(32 << 10)] {
        if let Some(length) = length {
            std::fs::write(directory.path().join("data"), vec![1; length]).unwrap();
        }
        let output = fio(directory.path(), &job);
        assert!(
            output.status.code() == Some(1) && stderr(&output).contains("--readonly forbids"),
            "{}",
            stderr(&output)
        );
        let there = std::fs::metadata(directory.path().join("data")).ok().map(|file| file.len() as usize);
        assert_eq!(there, length);
    }
    std::fs::write(directory.path().join("data"), vec![1; 64 << 10]).unwrap();
    assert!(fio(directory.path(), &job).status.success());
}

/// `--debug=io` prints each request in fio's form: its t/t64-switch.sh reads the offsets.
#[test]
fn requests_are_printed_on_demand() {
    let directory = directory();
    let job = ["--name=j", "--size=64k", "--rw=write", "--debug=io"];
    for engine in
        [&["--ioengine=null"][..], &["--filename=data"], &["--filename=data", "--ioengine=libaio", "--iodepth=8"]]
    {
        let said = |output: &Output, step: &str| -> Vec<String> {
            let marked = format!("{step}: io_u ");
            let text = stdout(output);
            let lines = text.lines().filter(|line| line.starts_with("io       ") && line.contains(&marked));
            lines.map(|line| line.split_once(": off=").expect("an offset").1.to_owned()).collect()
        };
        let words = [&job[..], engine].concat();
        let ours = fio(directory.path(), &words);
        let (queued, mut completed) = (said(&ours, "queue"), said(&ours, "complete"));
        assert_eq!(queued[15], format!("0xf000,len=0x1000,ddir=1,file={}", queued[0].rsplit('=').next().unwrap()));
        if has_program("fio") {
            let theirs = Command::new("fio").current_dir(directory.path()).args(&words).output().unwrap();
            assert_eq!(said(&theirs, "queue"), queued, "{engine:?}");
        }
        // Requests that are in flight together may end in another order.
        completed.sort();
        let mut queued = queued;
        queued.sort();
        assert_eq!(completed, queued, "{engine:?}");
    }
}

/// fio counts the writes that verify_only only goes through on paper; under Plimsoll's name, nothing was written.
#[test]
fn verify_only_counts_as_in_fio() {
    let directory = directory();
    let job = ["--name=a", "--rw=randwrite", "--size=64k", "--verify=crc32c", "--output-format=json"];
    for more in [&["--do_verify=0"][..], &["--verify_only"], &["--verify_only", "--verify_state_load=1"]] {
        let output = fio(directory.path(), &[&job[..], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let write = &json(&output)["jobs"][0]["write"];
        assert_eq!((&write["total_ios"], &write["io_bytes"]), (&16.into(), &(64 << 10).into()), "{more:?}");
    }
    let output = run(directory.path(), &[&["run"], &job[..], &["--verify_only"]].concat());
    assert_eq!(json(&output)["jobs"][0]["write"]["total_ios"], 0);
}

/// fio's t/strided.py writes `--filesize=65536)`: fio reads the number, and nothing else of the text.
#[test]
fn text_after_a_number_is_ignored_as_fio_ignores_it() {
    let directory = directory();
    for (value, bytes) in [("65536)", 65536), ("64k)", 65536), ("64kk", 65536), ("64x", 64), ("0x10000#", 65536)] {
        let size = format!("--size={value}");
        let arguments = ["--name=j", "--ioengine=null", "--rw=read", "--bs=64", &size];
        let output = fio(directory.path(), &[&arguments[..], &["--output-format=json"]].concat());
        assert_eq!(json(&output)["jobs"][0]["read"]["io_bytes"], bytes, "{value}: {}", stderr(&output));
        let output = fio(directory.path(), &arguments);
        assert!(stdout(&output).contains(&format!("fio reads {bytes}, and so does Plimsoll")), "{}", stdout(&output));
        // Under our own name a typing error stays an error.
        let output = run(directory.path(), &[&["run"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    }
    let output = fio(directory.path(), &["--name=j", "--ioengine=null", "--rw=read", "--size=k"]);
    assert_eq!(output.status.code(), Some(1), "fio refuses a size without a number");
}

/// fio's t/steadystate_tests.py reads options alone, and finds them in the debug output.
#[test]
fn options_without_a_job_are_read_and_shown() {
    let directory = directory();
    for (value, shown) in [
        ("iops:10", "set steady state IOPS threshold to 10.000000\n"),
        ("bw_slope:.1%", "set steady state threshold to 0.100000%\n"),
        ("bw:12", "set steady state BW threshold to 12\n"),
    ] {
        let threshold = format!("--ss={value}");
        let output = fio(directory.path(), &["--parse-only", "--debug=parse", "--ss_dur=10s", &threshold]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains(shown), "{}", stdout(&output));
    }
    let output = fio(directory.path(), &["--parse-only", "--ss=iops:ten"]);
    assert_eq!(output.status.code(), Some(1));
    let output = run(directory.path(), &["run", "--parse-only", "--ss_dur=10s"]);
    assert_eq!(output.status.code(), Some(2), "under our own name a job is missing");
}

#[test]
fn a_missing_engine_is_named_and_not_the_options_that_go_with_it() {
    let directory = directory();
    std::fs::write(directory.path().join("zoned.fio"), "[global]\nmax_open_zones=32\n[a]\nioengine=libzbc\n").unwrap();
    let output = fio(directory.path(), &["zoned.fio"]);
    assert!(stderr(&output).contains("unsupported engine libzbc"), "{}", stderr(&output));
}

/// As in fio, `continue_on_error` goes on after EIO and EILSEQ; `ignore_error` names the errors instead. The first
/// error stands in the report also where the job went on.
#[test]
fn a_job_goes_on_after_the_errors_that_fio_goes_on_after() {
    let directory = directory();
    let job = ["--name=j", "--filename=/dev/full", "--rw=write", "--size=64k", "--output-format=json"];
    let seen = |output: Output| {
        let report = json(&output);
        let job = &report["jobs"][0];
        (output.status.code(), job["error"].as_u64(), job["total_err"].as_u64(), job["first_error"].as_u64())
    };
    let as_fio = |more: &[&str]| seen(fio(directory.path(), &[&job[..], more].concat()));
    let (status, error, ..) = as_fio(&["--continue_on_error=write"]);
    assert_eq!((status, error), (Some(1), Some(28)), "ENOSPC ends the job");
    let ignored = (Some(0), Some(28), Some(16), Some(28));
    assert_eq!(as_fio(&["--ignore_error=,ENOSPC"]), ignored);
    assert_eq!(as_fio(&["--continue_on_error=all", "--ignore_error=EIO,EIO:ENOSPC"]), ignored);
    assert_eq!(as_fio(&["--continue_on_error=all", "--ignore_error=,EIO"]).0, Some(1));
    let own = |more: &[&str]| seen(run(directory.path(), &[&["run"], &job[..], more].concat()));
    assert_eq!(own(&["--continue_on_error=write"]), ignored, "under the program's own name, after every error");
    if has_program("fio") {
        let fios = tool("fio", &[&job[..], &["--ignore_error=,ENOSPC"]].concat(), directory.path());
        let fios: serde_json::Value = serde_json::from_str(&fios[fios.find('{').unwrap()..]).expect("fio's JSON");
        let job = &fios["jobs"][0];
        assert_eq!((&job["error"], &job["total_err"], &job["first_error"]), (&28.into(), &16.into(), &28.into()));
    }
}

/// Terse output of each version that fio has, with as many fields.
#[test]
fn terse_output_has_the_version_that_is_asked_for() {
    let directory = directory();
    let fields = |output: &str| {
        let line = output.trim_end().split(';').map(str::to_owned).collect::<Vec<_>>();
        (line[0].clone(), line.len())
    };
    for (version, count) in [("2", 161), ("3", 121), ("4", 162), ("5", 180)] {
        let flag = format!("--terse-version={version}");
        for arguments in [[&NULL[..], &["--minimal", &flag]].concat(), [&[&flag, "--minimal"], &NULL[..]].concat()] {
            assert_eq!(fields(&stdout(&fio(directory.path(), &arguments))), (version.into(), count));
            if has_program("fio") {
                assert_eq!(fields(&tool("fio", &arguments, directory.path())), (version.into(), count), "fio");
            }
        }
    }
    // The third section of version 5 is that of trims.
    let trims = ["--name=j", "--ioengine=null", "--size=64k", "--rw=trim", "--minimal", "--terse-version=5"];
    let line = stdout(&fio(directory.path(), &trims));
    assert_eq!(line.split(';').nth(5 + 2 * 47), Some("64"), "{line}");
}

/// A job ends when its data are stored: the last sync is part of its time, as in fio, after each of several loops.
#[test]
fn the_last_sync_is_part_of_the_time() {
    if !has_program("strace") {
        return skip("strace is not installed", true);
    }
    let directory = directory();
    let place = directory.path();
    fio(place, &["--version"]);
    let own = place.join("fio").display().to_string();
    let job = ["--name=j", "--rw=write", "--bs=64k", "--size=256k", "--create_fsync=0", "--output-format=json"];
    // The slow fsync takes 0.3 s.
    let slow = ["-f", "-qq", "-o", "trace", "-e", "trace=fsync", "-e", "inject=fsync:delay_exit=300000"];
    let programs: Vec<String> = [own].into_iter().chain(has_program("fio").then(|| "fio".into())).collect();
    for program in &programs {
        for (more, least_ms) in [
            (&["--end_fsync=1"][..], 300),
            (&["--fsync_on_close=1"][..], 300),
            (&["--end_fsync=1", "--thread"][..], 300),
            (&["--end_fsync=1", "--loops=2"][..], 600),
            (&["--end_fsync=1", "--verify=crc32c"][..], 300),
        ] {
            let words = [&slow[..], &[program.as_str()], &job[..], more].concat();
            let said = tool("strace", &words, place);
            let report: serde_json::Value = serde_json::from_str(&said[said.find('{').unwrap()..]).expect("JSON");
            let runtime = report["jobs"][0]["write"]["runtime"].as_u64().unwrap();
            assert!(runtime >= least_ms, "{program} {more:?}: {runtime} ms");
        }
    }
}

/// The lines of a text report with every number as `N`. Units follow the speed of the machine, and so does the length
/// of each table of percentiles and of latencies: the tables are a line each. Lines that only a program's own source
/// explains are left out.
fn shape(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if ["note: ", "fio: "].iter().any(|own| line.starts_with(own)) || line.contains("Laying out IO file") {
            continue;
        }
        let line = match line.split_once(" (file:") {
            Some((head, tail)) => format!("{head} (error={}", tail.split_once("error=").unwrap().1),
            None => line.to_owned(),
        };
        let line = line.split(": pid=").next().unwrap();
        let masked = match line {
            line if line.starts_with("fio-3.") => "fio-3".to_owned(),
            line if line.starts_with("     |") => "     |".to_owned(),
            line if line.starts_with("  lat (") => "  lat".to_owned(),
            line => masked(line),
        };
        if lines.last() != Some(&masked) || masked.is_empty() {
            lines.push(masked);
        }
    }
    lines
}

/// A line with numbers, their prefixes and the blanks before them as `N`, and units of time as `T`.
fn masked(line: &str) -> String {
    let mut masked = String::new();
    for character in line.chars() {
        match character {
            '0'..='9' if masked.ends_with("N.") => masked.truncate(masked.len() - 1),
            '0'..='9' if masked.ends_with('N') => {}
            '0'..='9' => {
                let blanks = masked.len() - masked.trim_end().len();
                let is_padded = masked.trim_end().ends_with(['=', '[']);
                masked.truncate(masked.len() - if is_padded { blanks } else { 0 });
                masked.push('N');
            }
            'k' | 'K' | 'M' | 'G' if masked.ends_with('N') => masked.push('~'),
            'i' if masked.ends_with("N~") => {}
            _ => masked.push(character),
        }
    }
    let masked = masked.replace('~', "").replace("(  KiB", "(  MiB");
    ["nsec", "usec", "msec"].iter().fold(masked, |line, unit| line.replace(&format!("({unit})"), "(T)"))
}

/// The text report has fio's lines, in fio's order, for the jobs that scripts run.
#[test]
fn the_text_report_has_the_shape_of_fios() {
    let directory = directory();
    let place = directory.path();
    std::fs::write(place.join("data"), vec![7; 1 << 20]).unwrap();
    let file = ["--filename=data", "--size=1m"];
    let samples = ["--ioengine=null", "--size=1g", "--time_based", "--runtime=2", "--rate_iops=1000"];
    let next = ["--rw=read", "--name=next", "--stonewall", "--rw=trim"];
    let next = [&next[..], &samples].concat();
    for (name, shared, more) in [
        ("read", &file[..], &["--rw=read", "--bs=64k"][..]),
        ("write", &file, &["--rw=randwrite"]),
        ("mixed", &file, &["--rw=randrw"]),
        ("synced", &file, &["--rw=write", "--fsync=8", "--description=a text"]),
        ("group", &file, &["--rw=randread", "--numjobs=2", "--group_reporting"]),
        ("clones", &file, &["--rw=randread", "--numjobs=2", "--thread"]),
        ("deep", &file, &["--rw=randread", "--ioengine=libaio", "--iodepth=32"]),
        ("ring", &file, &["--rw=randread", "--ioengine=io_uring", "--iodepth=32"]),
        ("tables", &file, &["--rw=read", "--lat_percentiles=1", "--percentile_list=50:99"]),
        ("bare", &file, &["--rw=read", "--clat_percentiles=0", "--disable_lat=1"]),
        ("unified", &file, &["--rw=rw", "--unified_rw_reporting=mixed"]),
        ("bits", &file, &["--rw=read", "--unit_base=1", "--kb_base=1000"]),
        ("range", &file, &["--rw=read", "--bsrange=4k-16k"]),
        ("rate", &samples, &["--rw=read"]),
        ("two", &samples, &next),
        ("ignored", &["--filename=/dev/full"], &["--rw=write", "--size=64k", "--ignore_error=,ENOSPC"]),
        ("failed", &["--filename=/dev/full"], &["--rw=write", "--size=64k"]),
    ] {
        let called = format!("--name={name}");
        let words = [&[called.as_str()], shared, more].concat();
        let ours = fio(place, &words);
        let text = stdout(&ours);
        assert!(text.contains("\nRun status group 0 (all jobs):\n"), "{name}: {text}{}", stderr(&ours));
        if has_program("fio") {
            let theirs = Command::new("fio").current_dir(place).args(&words).output().expect("fio starts");
            let fios = stdout(&theirs);
            assert_eq!(shape(&text), shape(&fios), "{name}\n{text}\n{fios}");
            assert_eq!(ours.status.code(), theirs.status.code(), "{name}");
        }
    }
    // Under the program's own name the report is its own.
    let own = succeed(place, &[&["run", "--name=own", "--rw=read"], &file[..]].concat());
    assert!(!stdout(&own).contains("Run status group"), "{}", stdout(&own));
}

/// `--warnings-fatal` ends a run where fio has a warning, and not for what Plimsoll alone says.
#[test]
fn warnings_are_fatal_where_fio_warns() {
    let directory = directory();
    let job = ["--warnings-fatal", "--name=j", "--size=64k"];
    for (more, status) in [
        (&["--ioengine=null", "--rw=read", "--time_based"][..], 1),
        (&["--rw=randwrite", "--verify=md5", "--norandommap", "--bsrange=4k-8k"], 1),
        (&["--filename=a", "--rw=write", "--verify=md5", "--numjobs=2"], 1),
        (&["--rw=read", "--iodepth=32"], 0),
        (&["--rw=read", "--ioengine=libaio", "--iodepth=8"], 0),
        (&["--ioengine=null", "--rw=read", "--bs=4KiB"], 0),
        (&["--ioengine=null", "--rw=read", "--runtime=10min"], 0),
        (&["--ioengine=null", "--rw=read", "--rwmixread=70"], 0),
    ] {
        let words = [&job[..], more].concat();
        let output = fio(directory.path(), &words);
        assert_eq!(output.status.code(), Some(status), "{more:?}: {}", stderr(&output));
        if has_program("fio") {
            let theirs = Command::new("fio").current_dir(directory.path()).args(&words).output().unwrap();
            assert_eq!(theirs.status.code(), Some(status), "{more:?}, fio");
        }
    }
    let own = run(directory.path(), &[&["run"], &job[..], &["--rw=read", "--iodepth=32"]].concat());
    assert_eq!(own.status.code(), Some(2), "under the program's own name, every warning");
}

/// A script finds the same figures in the text as in JSON.
#[test]
fn the_text_report_has_the_figures_of_json() {
    let directory = directory();
    let job = ["--name=j", "--ioengine=null", "--size=64m", "--rw=randread", "--bs=64k", "--output-format=normal,json"];
    let text = stdout(&fio(directory.path(), &job));
    let start = text.find("{\n").unwrap();
    let end = text[start..].find("\n}\n").unwrap() + start + 3;
    let json: serde_json::Value = serde_json::from_str(&text[start..end]).unwrap();
    let read = &json["jobs"][0]["read"];
    let clat = &read["clat_ns"];
    assert!(text.contains("issued rwts: total=1024,0,0,0 short=0,0,0,0 dropped=0,0,0,0"), "{text}");
    assert!(text.contains(&format!("(64.0MiB/{}msec)", read["runtime"])), "{text}");
    let moments = format!("avg={:5.2}, stdev={:5.2}", clat["mean"].as_f64().unwrap(), clat["stddev"].as_f64().unwrap());
    let in_us = format!(
        "avg={:5.2}, stdev={:5.2}",
        clat["mean"].as_f64().unwrap() / 1e3,
        clat["stddev"].as_f64().unwrap() / 1e3
    );
    assert!(text.contains(&moments) || text.contains(&in_us), "{text}");
}

/// The forms that public jobs use: accepted or refused as fio does, with the same number of requests and bytes.
#[test]
fn forms_are_taken_as_fio_takes_them() {
    let directory = directory();
    let place = directory.path();
    let null = ["--ioengine=null", "--size=1m"];
    let file = ["--size=64k", "--filename=data"];
    let failed = (1, 0, 0);
    let (blocks, file_blocks) = ((0, 256, 1 << 20), (0, 16, 64 << 10));
    for (job, more, expected) in [
        (&null, &["--rw=read", "--bs=4k-64k"][..], blocks),
        (&null, &["--rw=read", "--bs=4K/50:8K/30"], blocks),
        (&null, &["--rw=write", "--bs=4k-64k"], (0, 16, 1 << 20)),
        (&null, &["--rw=write", "--bs=8k:4k"], blocks),
        (&null, &["--rw=write", "--bs=16k-8k,4k-32k"], blocks),
        (&null, &["--rw=write", "--bs=8k-"], blocks),
        (&null, &["--rw=read", "--size=64k-1m"], blocks),
        (&null, &["--rw=read", "--size=2m,1m"], blocks),
        (&null, &["--rw=read", "--percentile_list=99:101:50"], blocks),
        (&null, &["--rw=randread", "--random_distribution=gauss"], failed),
        (&null, &["--rw=randread", "--random_distribution=gauss:10"], failed),
        (&null, &["--rw=randread", "--random_distribution=zipf:"], failed),
        (&null, &["--rw=randread", "--random_distribution=normal:"], failed),
        (&null, &["--rw=read", "--bs=1k", "--kb_base=1000"], (0, 1024, 1 << 20)),
        (&null, &["--rw=read", "--kb_base=1000", "--bs=1k"], (0, 1048, 1_048_000)),
        (&null, &["--rw=read", "--section=other"], blocks),
        (&null, &["--rw=read", "--bs=4k,8k,16k,32k"], blocks),
        (&null, &["--rw=write", "--bs=4k,8k,16k,32k"], (0, 128, 1 << 20)),
        (&null, &["--rw=read", "--bsrange=4k-4k,8k-8k,8k-8k,16k-16k"], blocks),
        (&null, &["--rw=read", "--time_based=10"], blocks),
        (&null, &["--rw=read", "--group_reporting=7", "--thread=2"], blocks),
        (&null, &["--rw=read", "--direct=-1"], blocks),
        (&null, &["--rw=read", "--direct=2"], failed),
        (&null, &["--rw=read", "--runtime=-5"], blocks),
        (&null, &["--rw=read", "--startdelay=-2"], blocks),
        (&null, &["--rw=read", "--ramp_time=-1"], blocks),
        (&null, &["--rw=read", "--number_ios=-1", "--rate=-1", "--max_latency=-1"], blocks),
        (&null, &["--rw=write", "--fsync=-1"], blocks),
        (&null, &["--rw=read", "--bs=-4k"], failed),
        (&null, &["--rw=read", "--size=-1"], failed),
        (&file, &["--rw=read", "--ioengine=aio"], file_blocks),
        (&file, &["--rw=read", "--ioengine=aiolib"], file_blocks),
        (&file, &["--rw=read", "--ioengine=linuxaio"], file_blocks),
        (&file, &["--rw=read", "--ioengine=sync:"], file_blocks),
        (&file, &["--rw=read", "--ioengine=libaio2"], failed),
        (&file, &["--rw=read", "--ioengine=io_uring", "--cmdprio_bssplit=4k/50/2/7/3:8k/10"], file_blocks),
        (&file, &["--rw=read", "--ioengine=io_uring", "--cmdprio_bssplit=4k/50/2"], failed),
        (&file, &["--rw=read:4k", "--nrfiles=2"], file_blocks),
    ] {
        let words = [&["--name=j", "--output-format=json"], &job[..], more].concat();
        let figures = |output: &Output| {
            let text = stdout(output);
            let result: serde_json::Value =
                text.find("{\n").and_then(|start| serde_json::from_str(&text[start..]).ok()).unwrap_or_default();
            let sum = |figure: &str| {
                ["read", "write"].iter().filter_map(|way| result["jobs"][0][way][figure].as_u64()).sum::<u64>()
            };
            (output.status.code().unwrap_or(-1), sum("total_ios"), sum("io_bytes"))
        };
        let ours = fio(place, &words);
        assert_eq!(figures(&ours), expected, "{more:?}: {}", stderr(&ours));
        if has_program("fio") {
            let theirs = Command::new("fio").current_dir(place).args(&words).output().unwrap();
            assert_eq!(figures(&theirs), expected, "{more:?}, fio: {}", stderr(&theirs));
        }
    }
    // Sizes below 0 have no meaning; fio takes 0 percent for -1, and ends with its first request.
    for wrong in ["--io_size=-1", "--offset=-4k"] {
        let output = fio(place, &[&["--name=j"], &null[..], &[wrong]].concat());
        assert!(output.status.code() == Some(1) && stderr(&output).contains("is negative"), "{}", stderr(&output));
    }
    // A note says where the reading is fio's. Under our own name the form stays an error.
    let said = stdout(&fio(place, &["--name=j", "--ioengine=null", "--size=1m", "--bs=4k-64k,8k,8k,8k"]));
    let reads_alike = said.contains("is 4k,8k,8k,8k for reads, writes and trims, as in fio");
    assert!(reads_alike && said.contains("three values are all"), "{said}");
    let said = stderr(&run(place, &["run", "--name=j", "--ioengine=null", "--size=1m", "--bs=4K/50:8K/30"]));
    assert!(said.contains("write bssplit=4K/50:8K/30"), "{said}");
}

/// As in fio, a `filename` adds to those before it, and lies in the directory that its own section knows.
#[test]
fn names_of_several_sections_add_up() {
    let directory = directory();
    let place = directory.path();
    for (text, expected) in [
        ("[global]\nfilename=g\n[a]\n[b]\nfilename=b\n", &[("b", 32), ("g", 64)][..]),
        ("[global]\nfilename=g\n[a]\nfilename=a:b\nfilename=c\n", &[("a", 16), ("b", 16), ("c", 16), ("g", 16)]),
        ("[global]\nfilename=g\n[a]\ndirectory=sub\n", &[("g", 64)]),
        ("[global]\nfilename=g\n[a]\nfilename=a\ndirectory=sub\n", &[("g", 32), ("sub/a", 32)]),
        ("[global]\ndirectory=sub\n[a]\nfilename=a\n", &[("sub/a", 64)]),
        ("[a]\nfilename=a:a\n", &[("a", 32)]),
    ] {
        file(place, "job.fio", text.replacen('[', "[global]\nrw=write\nsize=64k\n[", 1));
        let written = |program: &Path| {
            drop(std::fs::remove_dir_all(place.join("run")));
            std::fs::create_dir_all(place.join("run/sub")).unwrap();
            let output = Command::new(program).arg("../job.fio").current_dir(place.join("run")).output().unwrap();
            assert!(output.status.success(), "{text}: {}", stderr(&output));
            let below = [("", names(&place.join("run"))), ("sub/", names(&place.join("run/sub")))];
            let paths =
                below.into_iter().flat_map(|(prefix, names)| names.into_iter().map(move |n| format!("{prefix}{n}")));
            let length = |path: &String| std::fs::metadata(place.join("run").join(path)).unwrap().len() >> 10;
            paths.filter(|path| path != "sub").map(|path| (path.clone(), length(&path))).collect::<Vec<_>>()
        };
        fio(place, &["--version"]);
        let expected: Vec<_> = expected.iter().map(|(name, kib)| (String::from(*name), *kib)).collect();
        assert_eq!(written(&place.join("fio")), expected, "{text}");
        if has_program("fio") {
            assert_eq!(written(Path::new("fio")), expected, "fio: {text}");
        }
    }
    // Under our own name, a job's file stands in place of that of all jobs, and a warning says so.
    file(place, "own.fio", "[global]\nrw=write\nsize=64k\nfilename=g\n[a]\nfilename=own\n");
    let said = stderr(&succeed(place, &["run", "own.fio"]));
    assert!(said.contains("filename replaces g of an earlier section; fio uses both"), "{said}");
    assert!(place.join("own").exists() && !place.join("g").exists());
}

/// A mix without writes has none, whatever rate writes have.
#[test]
fn rates_leave_a_mix_of_one_direction_alone() {
    let directory = directory();
    let job = ["--name=j", "--ioengine=null", "--size=256k", "--rw=randrw", "--rate=100m,50m", "--output-format=json"];
    for (share, ops) in [("--rwmixread=100", [64, 0]), ("--rwmixread=0", [0, 64])] {
        let words = [&job[..], &[share]].concat();
        let counts = |text: &str| {
            let result: serde_json::Value = serde_json::from_str(&text[text.find("{\n").unwrap()..]).unwrap();
            ["read", "write"].map(|way| result["jobs"][0][way]["total_ios"].as_u64().unwrap())
        };
        assert_eq!(counts(&stdout(&fio(directory.path(), &words))), ops, "{share}");
        if has_program("fio") {
            assert_eq!(counts(&tool("fio", &words, directory.path())), ops, "{share}, fio");
        }
    }
}

/// A slash in a job's name makes a folder for its logs, as the folder of any log is made.
#[test]
fn folders_of_logs_are_made() {
    let directory = directory();
    let place = directory.path();
    file(place, "job.fio", "[a/b]\nioengine=null\nsize=64k\nwrite_bw_log\nwrite_iops_log=c/d/e\n");
    let output = fio(place, &["job.fio"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(place.join("a/b_bw.1.log").exists() && place.join("c/d/e_iops.1.log").exists());
    // Under our own name, a folder that only the prefix names is a typing error.
    file(place, "own.fio", "[f/g]\nioengine=null\nsize=64k\nwrite_bw_log\n");
    succeed(place, &["run", "own.fio"]);
    assert!(place.join("f/g_bw.1.log").exists());
    assert!(
        refused(place, &["run", "--name=j", "--ioengine=null", "--size=64k", "--write_bw_log=h/i"]).contains("h/i")
    );
}

/// Options of newer versions of fio, and those whose effect is a way to run: as in fio, or refused with another way.
#[test]
fn newer_options_act_or_name_another_way() {
    let directory = directory();
    let place = directory.path();
    let file = ["--name=a", "--rw=write", "--size=64k"];
    let with = |more: &[&str]| fio(place, &[&file[..], more].concat());
    assert!(with(&["--comm=plain name", "--exec_postrun=cat /proc/$PPID/comm"]).status.success());
    assert_eq!(std::fs::read_to_string(place.join("a.postrun.txt")).unwrap(), "plain name\n");
    assert!(with(&["--filetype=file"]).status.success());
    for (wrong, way) in [
        (&["--atomic=1"][..], "pvsync2"),
        (&["--atomic=1", "--ioengine=pvsync2"], "add direct=1"),
        (&["--write_zone_remainder=1"], "divides the zone's capacity"),
        (&["--job_start_clock_id=4"], "real-time clock"),
        (&["--steadystate=lat:5%"], "write iops:LIMIT"),
        (&["--io_size=200%"], "200% is more than 100%"),
        (&["--cpus_allowed=0-4000"], "cpus_allowed"),
    ] {
        let output = with(wrong);
        assert!(output.status.code() == Some(1) && stderr(&output).contains(way), "{wrong:?}: {}", stderr(&output));
    }
    if let Some(disk) = Mount::new("tmpfs", "size=4m") {
        // No file system in memory stores blocks as a whole: the kernel sees the flag, and says no.
        for engine in ["--ioengine=pvsync2", "--ioengine=libaio", "--ioengine=io_uring"] {
            let job = ["run", "--name=a", "--rw=write", "--size=64k", "--direct=1", engine];
            assert!(run(disk.path(), &job).status.success(), "{engine}");
            let output = run(disk.path(), &[&job[..], &["--atomic=1"]].concat());
            assert!(stdout(&output).contains("os error 95"), "{engine}: {}", stdout(&output));
        }
    }
    if has_program("strace") {
        let words = ["-f", "-e", "trace=syncfs", "-o", "calls", env!("CARGO_BIN_EXE_plimsoll"), "run"];
        tool("strace", &[&words[..], &file, &["--end_syncfs=1"]].concat(), place);
        let calls = std::fs::read_to_string(place.join("calls")).unwrap();
        assert_eq!(calls.matches("syncfs(").count(), 1, "{calls}");
    }
}

/// The writes that `verify_only` goes through on paper have a depth, too; and a failure names its job once.
#[test]
fn depths_add_up_and_a_job_is_named_once() {
    let directory = directory();
    let job = ["--name=named", "--rw=randwrite", "--size=64k", "--verify=crc32c"];
    assert!(fio(directory.path(), &job).status.success());
    let text = stdout(&fio(directory.path(), &[&job[..], &["--verify_only"]].concat()));
    assert!(text.contains("  IO depths    : 1=100.0%,"), "{text}");
    let wrong = ["--name=named", "--ioengine=null", "--size=64k", "--rw=randread", "--random_distribution=sequence:9"];
    let said = stderr(&fio(directory.path(), &[&wrong[..], &["--bs=16k"]].concat()));
    assert!(said.matches("named").count() == 1 && said.contains("names block 9"), "{said}");
}

/// Programs such as stressant make a file, give its name to fio, and read on in the file that they hold open.
#[test]
fn a_report_goes_into_the_file_that_the_caller_holds_open() {
    let directory = directory();
    let path = directory.path().join("report");
    std::fs::write(&path, "an older and longer report\n".repeat(1000)).unwrap();
    let mut held = std::fs::File::open(&path).unwrap();
    let output = fio(directory.path(), &[&NULL[..], &["--output=report"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let mut report = String::new();
    std::io::Read::read_to_string(&mut held, &mut report).unwrap();
    assert!(report.contains("Run status group 0") && !report.contains("older"), "{report}");
}

#[test]
fn folders_of_explicit_names_are_made_as_in_fio() {
    let directory = directory();
    let place = directory.path();
    let write = ["--name=j", "--rw=write", "--size=64k", "--filename=new/er/x"];
    assert!(fio(place, &write).status.success());
    assert_eq!(std::fs::metadata(place.join("new/er/x")).unwrap().len(), 65536);
    // `run` makes none: a typing error would fill the wrong disk.
    let refused = run(place, &["run", "--name=j", "--rw=write", "--size=64k", "--filename=other/x"]);
    assert!(stderr(&refused).contains("its directory does not exist"), "{}", stderr(&refused));
    // The directory= itself must be there, for fio too.
    let refused = fio(place, &["--name=j", "--rw=write", "--size=64k", "--directory=missing", "--filename=sub/x"]);
    assert!(!refused.status.success() && !place.join("missing").exists(), "{}", stdout(&refused));
}

#[test]
fn values_are_those_that_fio_reads_and_a_note_says_so() {
    let directory = directory();
    let totals = |words: &[&str]| -> (String, u64) {
        let output = fio(directory.path(), &[&["--name=j", "--rw=write", "--ioengine=null"][..], words].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        let line = text.lines().find(|line| line.contains("issued rwts")).expect(&text);
        (text.clone(), line.split(',').nth(1).and_then(|writes| writes.parse().ok()).expect(line))
    };
    let (said, writes) = totals(&["--size=1m/8"]);
    assert!(writes == 256 && said.contains("\"1m/8\" is 1048576 to fio, and so here"), "{said}");
    let (said, writes) = totals(&["--size=64k", "--bssplit=4k/100:64k/100"]);
    assert!(writes == 16 && said.contains("add up to 200%"), "{said}");
    let (_, writes) = totals(&["--size=64k", "--write_barrier=4"]);
    assert_eq!(writes, 16);
    let refused = fio(directory.path(), &["--name=j", "--size=64k", "--wait_for=nobody"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("wait_for=nobody: job j waits for a job that is not there"));
}

/// Numbers of errors.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;

/// As in fio, a job that cannot start ends alone: its error stands in JSON, the other jobs run, and the status is 1.
#[test]
fn a_job_that_cannot_start_fails_alone() {
    let directory = directory();
    let place = directory.path();
    std::fs::create_dir(place.join("folder")).unwrap();
    std::fs::write(place.join("there"), vec![1; 1 << 20]).unwrap();
    std::fs::write(place.join("empty"), "").unwrap();
    let job = ["--size=64k", "--rw=read", "--output-format=json"];
    let good = ["--name=good", "--rw=write", "--filename=good", "--size=64k"];
    let cases: &[(&[&str], &[i32])] = &[
        (&["--filename=folder"], &[EISDIR]),
        (&["--filename=there:folder"], &[EISDIR]),
        (&["--filename=there/x"], &[ENOTDIR, ENOENT]),
        (&["--filename=new", "--size=0"], &[EINVAL]),
        (&["--read_iolog=missing"], &[EINVAL, ENOENT]),
        (&["--read_iolog=empty"], &[EINVAL, ENOENT]),
        (&["--filename=missing", "--allow_file_create=0"], &[ENOENT]),
        (&["--ioengine=sg", "--filename=/dev/sg99"], &[EINVAL]),
        (&["--filename=/proc/self/mem"], &[EPERM, EIO, EINVAL]),
    ];
    let pairs = |value: &serde_json::Value| -> Vec<(String, i64, u64)> {
        let number = |job: &serde_json::Value, way: &str| job[way]["total_ios"].as_u64().unwrap();
        let jobs = value["jobs"].as_array().unwrap().iter();
        let pair = |job: &serde_json::Value| {
            let name = job["jobname"].as_str().unwrap().to_owned();
            (name, job["error"].as_i64().unwrap(), number(job, "read") + number(job, "write"))
        };
        jobs.map(pair).collect()
    };
    for (bad, errors) in cases {
        let bad = [&["--name=bad"][..], bad].concat();
        for words in [[&job[..], &bad, &good].concat(), [&job[..], &good, &bad].concat()] {
            let output = fio(place, &words);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
            let seen = pairs(&json(&output));
            let of = |name: &str| seen.iter().find(|job| job.0 == name).map(|job| (job.1, job.2)).unwrap();
            assert!(errors.contains(&(of("bad").0 as i32)) && of("bad").1 == 0, "{words:?}: {seen:?}");
            assert_eq!(of("good"), (0, 16), "{words:?}: {said}");
            assert!(said.contains("job bad: ") && !said.contains("job good: "), "{words:?}: {said}");
            assert!(!place.join("missing").exists());
        }
        // Under its own name, the program runs no job, and makes no file.
        std::fs::remove_file(place.join("good")).unwrap();
        let whole = run(place, &[&["run"], &job[..], &good, &bad].concat());
        assert!(whole.status.code() == Some(2) && whole.stdout.is_empty(), "{bad:?}: {}", stdout(&whole));
        assert!(!place.join("good").exists(), "{bad:?}");
    }
}

/// As in fio, `exitall` takes no notice of a job that never began, and jobs that wait for it run.
#[test]
fn a_job_that_cannot_start_holds_up_and_ends_no_other() {
    let directory = directory();
    let place = directory.path();
    std::fs::create_dir(place.join("folder")).unwrap();
    let bad = ["--name=bad", "--filename=folder", "--rw=read", "--numjobs=2"];
    let good = ["--name=good", "--filename=good", "--rw=write", "--numjobs=1"];
    for (first, second) in [
        (&["--exitall"][..], &[][..]),
        (&["--exitall_on_error=1"], &[]),
        (&[], &["--stonewall"]),
        (&[], &["--wait_for=bad"]),
    ] {
        let words = [&["--size=64k", "--output-format=json"], &bad[..], first, &good, second].concat();
        let jobs = json(&fio(place, &words))["jobs"].clone();
        let figures = |job: usize| (jobs[job]["error"].as_i64(), jobs[job]["write"]["total_ios"].as_u64());
        let failed = (Some(i64::from(EISDIR)), Some(0));
        assert_eq!([figures(0), figures(1), figures(2)], [failed, failed, (Some(0), Some(16))], "{words:?}");
    }
    // Processors that are missing refuse the whole run.
    let words = [&["--size=64k", "--output-format=json"], &bad[..], &["--numa_cpu_nodes=999"], &good].concat();
    let refused = fio(place, &words);
    assert!(refused.status.code() == Some(1) && refused.stdout.is_empty(), "{}", stdout(&refused));
    // A group has the error of its members, and their figures.
    let words = [&["--size=64k", "--output-format=json", "--group_reporting"], &bad[..], &good].concat();
    let jobs = json(&fio(place, &words))["jobs"].clone();
    assert_eq!(
        (jobs[0]["error"].as_i64(), jobs[0]["write"]["total_ios"].as_u64()),
        (Some(i64::from(EISDIR)), Some(16))
    );
}

/// fio 3.33 ends with status 1 and error 110 at the first slow request, and says which target it missed.
#[test]
fn a_latency_that_is_too_long_ends_the_job() {
    let directory = directory();
    let job = ["--name=j", "--filename=data", "--size=1m", "--rw=read", "--iodepth=8", "--output-format=json"];
    for engine in ["psync", "libaio"] {
        for goal in [
            &["--max_latency=1"][..],
            &["--max_latency=1,100s"],
            &["--latency_target=1"],
            &["--latency_target=1", "--latency_run=1", "--latency_window=1h"],
        ] {
            // Nothing reads a mebibyte in a microsecond.
            let arguments = [&job[..], &["--bs=1m", "--ioengine", engine], goal].concat();
            let output = fio(directory.path(), &arguments);
            assert_eq!(output.status.code(), Some(1), "{goal:?}: {}", stdout(&output));
            let job = &json(&output)["jobs"][0];
            assert_eq!((&job["error"], &job["read"]["total_ios"]), (&110.into(), &1.into()), "{goal:?}");
            if goal[0].starts_with("--latency_target") {
                assert_eq!((&job["latency_target"], &job["latency_depth"]), (&1000.into(), &1.into()), "{goal:?}");
            }
        }
        let other =
            fio(directory.path(), &[&job[..], &["--bs=1m", "--ioengine", engine, "--max_latency=100s,1"]].concat());
        assert!(other.status.success(), "the limit is that of writes: {}", stderr(&other));
    }
}

/// fio looks for the descriptors of files that these engines do not open, and dies; its JSON has the error.
#[test]
fn an_engine_without_files_reads_none_in() {
    let directory = directory();
    for engine in ["null", "filestat", "filedelete"] {
        let jobs = ["--name=j", "--ioengine", engine, "--filesize=4k", "--pre_read=1", "--name=k"];
        let output =
            fio(directory.path(), &[&jobs[..], &["--ioengine=null", "--size=4k", "--output-format=json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{engine}: {}", stderr(&output));
        let jobs = json(&output);
        assert_eq!((&jobs["jobs"][0]["error"], &jobs["jobs"][1]["error"]), (&9.into(), &0.into()), "{engine}");
    }
    let exec = ["--name=j", "--ioengine=exec", "--program=/bin/true", "--pre_read=1"];
    assert!(fio(directory.path(), &exec).status.success());
    let output = succeed(directory.path(), &["run", "--name=j", "--ioengine=null", "--size=4k", "--pre_read=1"]);
    assert!(stderr(&output).contains("pre_read has no effect"), "{}", stderr(&output));
}

#[test]
fn options_have_their_names_of_fio_in_the_report() {
    let directory = directory();
    let both = ["--allrandrepeat=0", "--randrepeat=1", "--output-format=json"];
    let output = fio(directory.path(), &[&NULL[..], &both].concat());
    let options = &json(&output)["jobs"][0]["job options"];
    assert_eq!((&options["allrandrepeat"], &options["randrepeat"]), (&"0".into(), &"1".into()), "{options}");
}
