//! The language is fio's: held against the real program.

mod common;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use job::file::Surroundings;
use job::options::{self, Reader, Status, ValueKind};
use job::{Invocation, Plan, parse_command_line, parse_command_line_as_fio};
use measure::units::TimeUnit;

fn output(command: &mut Command) -> (bool, String) {
    let output = command.output().expect("fio runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    )
}

fn invocation(arguments: &[String]) -> Invocation {
    parse_command_line(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn plan_of(path: &Path) -> Plan {
    let invocation = Invocation { files: vec![path.into()], ..Invocation::default() };
    invocation.plan_in(&Surroundings::SYSTEM).unwrap_or_else(|error| panic!("{error}"))
}

/// The meaning of a plan, without the text that it was written as.
fn meaning(mut plan: Plan) -> String {
    for job in &mut plan.jobs {
        job.options.clear();
    }
    format!("{:#?}", plan.jobs)
}

/// Fails with the first line in which two plans differ.
fn assert_same(one: Plan, other: Plan, what: &Path) {
    let (one, other) = (meaning(one), meaning(other));
    if let Some((line, (a, b))) = one.lines().zip(other.lines()).enumerate().find(|(_, (a, b))| a != b) {
        let before: Vec<&str> = one.lines().take(line).collect();
        panic!(
            "{}: {} or {} after\n{}",
            what.display(),
            a.trim(),
            b.trim(),
            before[line.saturating_sub(6)..].join("\n")
        );
    }
    assert_eq!(one.len(), other.len(), "{}", what.display());
}

/// The arguments of a command line, as the shell splits it.
fn split(line: &str) -> Vec<String> {
    let (_, words) = output(Command::new("sh").arg("-c").arg(format!("printf '%s\\n' {line}")));
    words.lines().map(String::from).collect()
}

/// The arguments of a command line as fio prints it: it quotes the description and nothing else.
fn split_as_printed(line: &str) -> Vec<String> {
    line.split(" --")
        .skip(1)
        .map(|argument| {
            format!("--{}", argument.trim_end())
                .replace("--description=\"", "--description=")
                .trim_end_matches('"')
                .to_string()
        })
        .collect()
}

#[test]
fn every_option_that_fio_knows_is_known_here() {
    let Some(fio) = common::fio() else { return };
    let (_, all) = output(Command::new(fio).arg("--cmdhelp"));
    let mut names: Vec<String> =
        all.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_string()).collect();
    assert!(names.len() > 180, "fio lists only {} options", names.len());
    for engine in ["io_uring", "libaio", "pvsync2", "null", "gfapi", "rbd", "net", "cpuio"] {
        let (_, own) = output(Command::new(fio).arg(format!("--enghelp={engine}")));
        names.extend(
            own.lines()
                .filter_map(|line| line.split_once(" : ").or_else(|| line.split_once(": ")))
                .map(|(name, _)| name.trim().to_string()),
        );
    }
    for name in names {
        assert!(options::find(&name).is_some(), "fio's option {name} is not in the table");
    }
}

/// Options with another default than in fio 3.33. `verify_state_save` has fio's only where the program is called `fio`:
/// `plimsoll run` leaves no state files behind that nobody asked for. `allrandrepeat` is the same as
/// `randrepeat`, as in fio since 3.35. Without `random_generator`, fio goes from `tausworthe` to `tausworthe64` itself
/// where the files have more than 2^32 blocks; here the default has 64 bits throughout.
const OTHER_DEFAULTS: [&str; 3] = ["verify_state_save", "allrandrepeat", "random_generator"];

#[test]
fn aliases_defaults_and_words_are_fios() {
    let Some(fio) = common::fio() else { return };
    let (_, all) = output(Command::new(fio).arg("--cmdhelp"));
    for name in all.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()) {
        let Some(option) = options::find(name) else { continue };
        let (_, help) = output(Command::new(fio).arg(format!("--cmdhelp={name}")));
        let mut in_words = false;
        for line in help.lines().skip(1) {
            let Some((label, value)) = line.split_once(": ").map(|(label, value)| (label.trim(), value.trim())) else {
                continue;
            };
            in_words = label == "valid values" || in_words && label.is_empty();
            if label == "alias" && !matches!(option.status, Status::Unsupported(_)) {
                assert!(option.aliases.contains(&value), "{name}: alias {value}");
            }
            let compared = !option.default.is_empty() && !OTHER_DEFAULTS.contains(&name);
            if label == "default" && value != "no default" && compared {
                assert_eq!(normal(option.default), normal(value), "{name}: default");
            }
            if in_words && matches!(option.kind, ValueKind::Word(..) | ValueKind::Custom(..)) {
                let word = value.split_whitespace().next().unwrap_or_default();
                // An engine that is not here is refused by name.
                let refused = name == "ioengine" && job::engines::is_missing(word);
                let known = option.kind.words().iter().any(|(known, _)| *known == word);
                assert!(known || refused, "{name}: word {word}");
            }
        }
    }
}

/// Defaults are written in different ways.
fn normal(default: &str) -> String {
    let first = default.split(',').next().unwrap_or_default();
    Reader::new(1024).bytes(first).map_or_else(|_| first.to_string(), |bytes| bytes.to_string())
}

/// The numbers that fio's parser makes of values, as its debug output has them.
fn fio_reads(fio: &str, more: &str, name: &str, values: &[&str]) -> Vec<u64> {
    let mut command = Command::new(fio);
    command
        .args(["--parse-only", "--debug=parse", "--name=x", more])
        .args(values.iter().map(|value| format!("--{name}={value}")));
    let (_, text) = output(&mut command);
    let start = format!(" handle_option={name}, ptr=");
    let numbers: Vec<u64> = text
        .split(&start)
        .skip(1)
        .filter_map(|text| text.split_once("ret=0, out="))
        .map(|(_, out)| out.lines().next().unwrap_or_default().trim().parse().expect("a number"))
        .collect();
    assert_eq!(numbers.len(), values.len(), "{text}");
    numbers
}

#[test]
fn sizes_are_read_as_fio_reads_them_or_the_difference_is_said() {
    let Some(fio) = common::fio() else { return };
    let values = [
        "4096", "4k", "4K", "4kb", "4Kb", "4Ki", "4KiB", "3m", "3MiB", "2g", "2GB", "2GiB", "1t", "1TiB", "1p",
        "0x1000", "0X1000", "1.5g", "2*1024", "512b", "1 k", "+5", "8m+8m",
    ];
    for kb_base in [1024, 1000] {
        for (value, fios) in values.iter().zip(fio_reads(fio, &format!("--kb_base={kb_base}"), "number_ios", &values)) {
            let mut reader = Reader::new(kb_base);
            let ours = reader.bytes(value).unwrap_or_else(|error| panic!("{value}: {error}"));
            check(value, ours, fios, &reader.differences, |fios| fios.to_string());
        }
    }
}

#[test]
fn times_are_read_as_fio_reads_them_or_the_difference_is_said() {
    let Some(fio) = common::fio() else { return };
    let values = [
        "5", "5s", "5S", "5ms", "5msec", "5us", "5usec", "5m", "5M", "5h", "5d", "60sec", "10min", "2hours", "1.5s",
        "1m30s", "0",
    ];
    for (name, unit) in [
        ("runtime", TimeUnit::Seconds),
        ("latency_target", TimeUnit::Microseconds),
        ("thinktime_iotime", TimeUnit::Seconds),
    ] {
        for (value, fios) in values.iter().zip(fio_reads(fio, "--kb_base=1024", name, &values)) {
            let mut reader = Reader::new(1024);
            let ours = reader.time(value, unit).unwrap_or_else(|error| panic!("{value}: {error}"));
            check(value, ours, fios * 1_000, &reader.differences, measure::units::exact_time);
        }
    }
}

/// Either fio reads the same and nothing was said, or what was said is what fio reads.
fn check(value: &str, ours: u64, fios: u64, differences: &[String], show: impl Fn(u64) -> String) {
    match differences {
        [] => assert_eq!(ours, fios, "{value}"),
        [difference] => assert!(
            difference.ends_with(&format!("; fio reads {}", show(fios))),
            "{value}: fio reads {fios}, and we say: {difference}"
        ),
        more => panic!("{value}: {more:?}"),
    }
}

#[test]
fn the_corpus_is_accepted_by_fio_too() {
    let Some(fio) = common::fio() else { return };
    let files = common::corpus();
    assert!(files.len() >= 6);
    for path in files {
        let (ok, text) = output(Command::new(fio).arg("--parse-only").arg(&path));
        assert!(ok, "{}: {text}", path.display());
        plan_of(&path);
    }
}

#[test]
fn a_job_file_means_what_fios_command_line_of_it_means() {
    let Some(fio) = common::fio() else { return };
    for path in common::corpus() {
        let (ok, text) = output(Command::new(fio).arg("--showcmd").arg(&path));
        assert!(ok, "{}: {text}", path.display());
        let line = text.lines().find(|line| line.starts_with("fio ")).expect("a command line");
        let from_fio =
            invocation(&split_as_printed(line)).plan().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_same(from_fio, plan_of(&path), &path);
    }
}

#[test]
fn our_command_line_of_a_job_file_is_fios() {
    let Some(fio) = common::fio() else { return };
    for path in common::corpus() {
        let line = Invocation { files: vec![path.clone()], ..Invocation::default() }
            .show_command(&Surroundings::SYSTEM)
            .unwrap_or_else(|error| panic!("{error}"));
        let command = line.trim().strip_prefix("plimsoll run ").expect("a command line");
        let (ok, text) = output(Command::new("sh").arg("-c").arg(format!("{fio} --parse-only {command}")));
        assert!(ok, "{}: {command}\n{text}", path.display());
        let again = invocation(&split(command)).plan().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_same(again, plan_of(&path), &path);
    }
}

#[test]
fn what_fio_refuses_is_refused() {
    let Some(fio) = common::fio() else { return };
    for arguments in [
        &["--name=x", "--nonsense=1"][..],
        &["--name=x", "--bs=0"],
        &["--name=x", "--iodepth=0"],
        &["--name=x", "--direct=2"],
        &["--name=x", "--rw=upside"],
        &["--name=x", "--rwmixread=101"],
        &["--name=x", "--random_distribution=zipf:1.0"],
        &["--name=x", "--random_distribution=pareto:2"],
        &["--name=x", "--random_distribution=zoned:50/10:30/90"],
        &["--name=x", "--steadystate=iops"],
        &["--name=x", "--verify_interval=10"],
        &["--name=x", "--buffer_pattern=abc"],
        &["--name=x", "--zonemode=strided"],
        &["--name=x", "--size=1k"],
        &["--name=x", "--rate=1m", "--rate_iops=1"],
        &["--name=x", "--rate_iops=1", "--rate_iops_min=2"],
        &["--name=x", "--io_size=150%"],
        &["--name=x", "--percentile_list=101"],
        &["--section=global", "--name=x"],
    ] {
        // Not --parse-only: with it fio does not look at how options fit together. The null engine touches nothing.
        let (ok, text) = output(Command::new(fio).args(["--ioengine=null", "--filesize=1m"]).args(arguments));
        assert!(!ok, "fio accepts {arguments:?}: {text}");
        let ours = parse_command_line(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
            .and_then(|invocation| invocation.plan());
        assert!(ours.is_err(), "{arguments:?} is accepted");
    }
}

/// True if the plan of a program that was called as fio is made.
fn is_taken_as_fio(arguments: &[&str]) -> bool {
    parse_command_line_as_fio(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
        .and_then(|invocation| invocation.plan())
        .is_ok()
}

#[test]
fn called_as_fio_values_are_taken_and_refused_as_fio_does() {
    let Some(fio) = common::fio() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let job_file = |name: &str, line: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("[x]\nioengine=null\nsize=64k\n{line}\n")).expect("a job file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let divided = job_file("divided.fio", "numjobs=$ncpus/0");
    let counted = job_file("counted.fio", "numjobs=$ncpus");
    for (line, is_taken) in [
        ("--significant_figures=x", false),
        ("--significant_figures=0", false),
        ("--significant_figures=11", false),
        ("--significant_figures=10", true),
        ("--create_serialize=x", false),
        ("--log_entries=10", false),
        ("--log_compression=1", false),
        ("--bsrange=4k", false),
        ("--bsrange=4k-8k", true),
        ("--iodepth=1z", false),
        ("--runtime=1z", false),
        ("--iodepth=50%", false),
        ("--flow=1001", false),
        ("--replay_align=7", false),
        ("--replay_align=0", false),
        ("--ignore_error=", false),
        ("--numjobs=$ncpus", false),
        ("--sync_file_range=write:", true),
        ("--sync_file_range=write:8", true),
        ("--uid=-1 --gid=-1", true),
        ("--uid=4294967295", true),
        ("--rw=write:2:3", true),
        ("--rw=write:2k:x", true),
        ("--rw=read:x", false),
        ("--percentile_list=50%:99%", true),
        ("--percentile_list=x", false),
        ("--eta-interval=100ms", false),
        ("--eta-interval=250ms", true),
        ("--eta-newline=10us", false),
        ("--eta=1", true),
        ("--max-jobs=x", true),
        ("--alloc-size=x", true),
        ("--output-format=minimal", true),
        (divided.as_str(), false),
        (counted.as_str(), true),
    ] {
        let words = line.split(' ');
        let mut arguments = vec!["--name=x", "--ioengine=null", "--size=64k"];
        if line.starts_with("--") {
            arguments.extend(words)
        } else {
            arguments = words.collect()
        }
        let (ok, text) = output(Command::new(fio).args(&arguments).current_dir(folder.path()));
        assert_eq!(ok, is_taken, "fio, {line}: {text}");
        assert_eq!(is_taken_as_fio(&arguments), is_taken, "{line}");
    }
}

#[test]
fn called_as_fio_numbers_that_fio_reads_as_others_are_refused() {
    // fio takes 50% for 2^64 - 51, offsets behind the end, and lists without a file: it transfers nothing, or other
    // blocks.
    for argument in ["--rwmixread=50%", "--offset=101%", "--filename=:", "--rw=randread:0"] {
        assert!(!is_taken_as_fio(&["--name=x", "--ioengine=null", "--size=64k", argument]), "{argument}");
    }
}

#[test]
fn called_as_fio_options_behind_a_job_that_is_left_out_are_global() {
    let words = ["--section=b", "--name=a", "--ioengine=null", "--size=64k", "--name=b", "--rw=write", "--name=c"];
    let invocation = |parse: fn(&[OsString]) -> Result<Invocation, job::Error>| {
        parse(&words.map(OsString::from)).unwrap_or_else(|error| panic!("{error}"))
    };
    let plan = invocation(parse_command_line_as_fio).plan().expect("a plan");
    let names: Vec<(&str, &str)> = plan.jobs.iter().map(|job| (&*job.name, &*job.engine)).collect();
    assert_eq!(names, [("b", "null")]);
    let plan = invocation(parse_command_line).plan().expect("a plan");
    assert_eq!((plan.jobs.len(), &*plan.jobs[0].engine), (1, "psync"));
}

#[test]
fn called_as_fio_the_next_word_is_the_prefix_of_a_log() {
    let words = ["--name=x", "--ioengine=null", "--size=64k", "--write_bw_log", "here", "--write_iops_log", "--bs=4k"];
    let plan = parse_command_line_as_fio(&words.map(OsString::from)).and_then(|job| job.plan()).expect("a plan");
    let logs = &plan.jobs[0].reporting.logs;
    assert_eq!((logs.bw.as_deref(), logs.iops.as_deref()), (Some("here"), Some("x")));
}
