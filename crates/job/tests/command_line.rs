//! The command line is fio's: the same arguments mean the same jobs.

use std::ffi::OsString;
use std::path::Path;

use job::args::{Action, Format};
use job::file::Surroundings;
use job::job::{Amount, Plan};
use job::{Error, Invocation, parse_command_line};

fn invocation(line: &str) -> Result<Invocation, Error> {
    parse_command_line(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
}

/// The plan of a command line, with job files from `files`.
fn plan_with(line: &str, files: &[(&str, &str)]) -> Result<Plan, Error> {
    let read = |path: &Path| match files.iter().find(|(name, _)| Path::new(name) == path) {
        Some((_, text)) => Ok((*text).to_string()),
        None => Err(std::io::ErrorKind::NotFound.into()),
    };
    invocation(line)?.plan_in(&Surroundings { read: &read, ..Surroundings::NONE })
}

fn plan(line: &str) -> Plan {
    plan_with(line, &[]).expect(line)
}

fn error(line: &str) -> String {
    plan_with(line, &[]).map(|_| ()).expect_err(line).to_string()
}

#[test]
fn values_stand_after_an_equals_sign_or_alone() {
    for line in [
        "--name=x --rw=randread --bs=8k --size=1g",
        "--name x --rw randread --bs 8k --size 1g",
        "-name=x -rw=randread -bs=8k -size=1g",
    ] {
        let plan = plan(line);
        assert_eq!((plan.jobs.len(), plan.jobs[0].name.as_str()), (1, "x"));
        assert!(plan.jobs[0].rw.random);
        assert_eq!(plan.jobs[0].blocks.range.read, (8192, 8192));
        assert_eq!(plan.jobs[0].extent.size, Some(Amount::Bytes(1 << 30)));
    }
}

#[test]
fn options_before_the_first_name_are_for_all_jobs() {
    let plan = plan("--ioengine=io_uring --iodepth=8 --name=a --rw=read --name=b --iodepth=16 --norandommap");
    assert_eq!(
        plan.jobs.iter().map(|job| (job.name.as_str(), job.queue.depth)).collect::<Vec<_>>(),
        [("a", 8), ("b", 16)]
    );
    assert!(plan.jobs.iter().all(|job| job.engine == "io_uring"));
    assert_eq!(plan.global_options, [("ioengine".to_string(), "io_uring".to_string()), ("iodepth".into(), "8".into())]);
    assert_eq!(
        plan.jobs[1].options,
        [("name".to_string(), "b".to_string()), ("iodepth".into(), "16".into()), ("norandommap".into(), String::new())]
    );
}

#[test]
fn flags_of_the_run_are_told_from_options_of_jobs() {
    let invocation = invocation("--output-format=normal,json+ --output out.json --eta=never --status-interval=500ms --check --save r.json a.fio --name=x b.fio --readonly").unwrap();
    assert_eq!(invocation.run.formats, [Format::Normal, Format::JsonPlus]);
    assert_eq!(invocation.run.output.as_deref(), Some(Path::new("out.json")));
    assert_eq!(invocation.run.status_interval_ns, Some(500_000_000));
    assert_eq!(invocation.action, Action::Check);
    assert_eq!(invocation.files, [Path::new("a.fio"), Path::new("b.fio")]);
    assert!(invocation.run.read_only);
}

#[test]
fn names_may_be_shortened_while_they_are_unambiguous() {
    assert_eq!(plan("--name=x --numj=3 --size=1m").jobs[0].process.clones, 3);
    assert!(error("--name=x --rat=3").starts_with("command line: --rat is ambiguous (it may be --rate"));
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_what_to_do() {
    for (line, message) in [
        ("", "command line: no job is defined (give a job file, or begin a job with --name=NAME)"),
        ("--rw=read", "command line: no job is defined (give a job file, or begin a job with --name=NAME)"),
        (
            "--name=x --iodept=4",
            "command line: --iodept is ambiguous (it may be --iodepth, --iodepth_batch, --iodepth_batch_submit, --iodepth_batch_complete_min, --iodepth_batch_complete, --iodepth_batch_complete_max)",
        ),
        ("--name=x --iodpeth=4", "command line: unknown option --iodpeth (did you mean --iodepth?)"),
        (
            "--name=x --bs=4q",
            "command line: bs=4q: \"4q\" is not a size: there is no unit \"q\" (k, m, g, t, p, alone or with b or iB)",
        ),
        (
            "--name=x --bs=4k-8k",
            "command line: bs=4k-8k: \"4k-8k\" is two sizes: write 4k,8k for reads and writes, or use bsrange for a range of blocks",
        ),
        ("--name=x --size", "command line: --size needs a value (write --size=VALUE)"),
        ("--name=x --direct=yes", "command line: direct=yes: \"yes\" is not 0 or 1: write 1"),
        (
            "--name=x --size=0.5k",
            "command line: size=0.5k is less than the block size, 4096 (a size without a unit is in bytes)",
        ),
        ("--name=x --rw=randred", "command line: rw=randred: \"randred\" is not known; did you mean randread?"),
        ("--name=x --ioengine=rbd", "command line: unsupported engine rbd (engines: ENGINES)"),
        ("--name=x --ioengine=iouring", "command line: unknown engine iouring (did you mean io_uring?)"),
        (
            "--name=x --zonemode=zbd --ioengine=null",
            "command line: zonemode=zbd does not go with ioengine=null (take an engine that opens block devices, such \
             as libaio)",
        ),
        (
            "--name=x --rbdname=y",
            "command line: unsupported option rbdname=y (Plimsoll does not have the engine of this option)",
        ),
        (
            "--name=x --fixedbufs",
            "command line: fixedbufs is not an option of the engine psync (it belongs to io_uring, io_uring_cmd)",
        ),
        (
            "--name=x --rate=1m --rate_iops=5",
            "command line: rate and rate_iops exclude each other (leave one of them out)",
        ),
        (
            "--readonly --name=x --rw=write",
            "command line: job x writes, and --readonly forbids that (leave one of them out)",
        ),
        ("--terse-version=6", "command line: --terse-version: \"6\" is not one of 2, 3, 4, 5"),
        (
            "--client=host",
            "command line: --client: Plimsoll has no server: run on many machines with mpirun -np N --hostfile FILE plimsoll run job.fio",
        ),
        (
            "--name=x --wait_for=x",
            "command line: wait_for=x: job x would wait for itself, and never start: name a job that starts without this one",
        ),
        (
            "--name=x --wait_for=y --name=y --wait_for=x",
            "command line: wait_for=y: job x would wait for a job that waits for this one, and never start: name a job that starts without this one",
        ),
        (
            "--name=x --wait_for=y --name=y --stonewall",
            "command line: wait_for=y: job x would wait for a job that waits for this one, and never start: name a job that starts without this one",
        ),
        ("--section=b --name=a", "command line: --section=b: there is no such section (sections: a)"),
        (
            "nosuch.fio",
            "nosuch.fio: cannot read the job file nosuch.fio: entity not found (check the name; job options begin with --)",
        ),
    ] {
        assert_eq!(error(line), message.replace("ENGINES", &job::engines::names()));
    }
}

/// `--section` chooses among the jobs behind it, as in fio.
#[test]
fn jobs_before_the_choice_of_a_section_run_in_any_case() {
    let names = |line: &str| -> Vec<String> {
        let plan = plan_with(line, &[("j.fio", "[b]\nsize=1m\n[c]\nsize=1m\n")]).unwrap();
        plan.jobs.into_iter().map(|job| job.name).collect()
    };
    assert_eq!(names("--name=a --size=1m --section=b j.fio"), ["a", "b"]);
    assert_eq!(names("--section=b --name=a --size=1m j.fio"), ["b"]);
}

#[test]
fn the_job_file_wins_over_the_command_line_and_that_is_said() {
    let plan =
        plan_with("--bs=8k --size=1m a.fio b.fio", &[("a.fio", "[one]\nbs=4k\n"), ("b.fio", "[two]\nsize=2m\n")])
            .unwrap();
    assert_eq!(plan.jobs[0].blocks.range.read.0, 4096);
    assert_eq!(plan.jobs[1].blocks.range.read.0, 4096);
    assert!(!plan.jobs[0].time.stonewall && plan.jobs[1].time.stonewall);
    assert_eq!(
        plan.warnings,
        [
            "a.fio:2: bs=4k wins over --bs=8k of the command line, as in fio: options before a job file are its defaults",
            "b.fio:1: --bs on the command line is for the first job file only, as in fio; write it into this file too",
            "b.fio:1: --size on the command line is for the first job file only, as in fio; write it into this file too",
        ]
    );
}

#[test]
fn help_comes_from_the_table() {
    let text = |line: &str| invocation(line).unwrap().help_text();
    assert!(text("--cmdhelp").unwrap().unwrap().contains("  iodepth "));
    assert!(text("--cmdhelp=blocksize").unwrap().unwrap().starts_with("bs: Size of each request\n"));
    assert!(text("--enghelp=io_uring").unwrap().unwrap().contains("fixedbufs"));
    assert!(text("--help").unwrap().unwrap().contains("--output-format="));
    assert_eq!(
        text("--cmdhelp=iodeph").unwrap_err().to_string(),
        "command line: unknown option iodeph (did you mean iodepth?)"
    );
    assert!(text("--enghelp=rbd").is_err());
}
