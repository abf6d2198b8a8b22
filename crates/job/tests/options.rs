//! The table of options is sound, and the manual is made from it.

use std::collections::BTreeSet;
use std::path::Path;

use job::file::{Surroundings, parse_text};
use job::options::{self, OptionSpec, Status, ValueKind};
use job::{Error, Plan};

fn plan(text: &str) -> Result<Plan, Error> {
    let source = parse_text(Path::new("job.fio"), text, &Surroundings::NONE)?;
    job::build::plan(&Default::default(), &[source], &Default::default())
}

/// The only job of a section with these options, without how it was written.
fn meaning(options: &str) -> String {
    let mut job = plan(&format!("[job]\nsize=1m\n{options}")).unwrap_or_else(|error| panic!("{error}")).jobs.remove(0);
    job.options.clear();
    format!("{job:?}")
}

/// Lines that make the job use the option's engine, if it has one, with the options that the engine needs.
fn engine(option: &OptionSpec) -> String {
    let needs = |engine: &str| match engine {
        "net" | "netsplice" => "port=5000\nhostname=localhost\n",
        "cpuio" => "cpuload=50\n",
        "exec" => "program=/bin/true\n",
        _ => "",
    };
    option.engines().first().map(|engine| format!("ioengine={engine}\n{}", needs(engine))).unwrap_or_default()
}

#[test]
fn no_two_options_have_the_same_name() {
    let mut seen = BTreeSet::new();
    for name in options::all().flat_map(|option| option.names()) {
        assert!(seen.insert(name), "{name} twice");
    }
}

#[test]
fn a_default_that_is_written_out_changes_nothing() {
    // The defaults of these options depend on other options, or are said in words.
    const IN_WORDS: &[&str] = &[
        "size",
        "io_size",
        "filesize",
        "filename",
        "iodepth_low",
        "iodepth_batch_complete_max",
        "verify_backlog_batch",
        "trim_backlog_batch",
        "verify_interval",
        "verify_offset",
        "openfiles",
        "ba",
        "nonvectored",
        "clocksource",
        "nr_io_queues",
    ];
    // The values of these options of engines are kept as they were said.
    const AS_SAID: &[&str] = &[
        "uncached",
        "thp",
        "single-instance",
        "digest_enable",
        "poll",
        "discard_payload",
        "concat",
        "keep_alive_tmo",
        "ctrl_loss_tmo",
        "reconnect_delay",
        "io_timeout",
        "stat_type",
        "nodelay",
        "pingpong",
        "window_size",
        "mss",
        "ttl",
        "cpumode",
        "grace_time",
        "std_redirect",
        "cmd_type",
        "readfua",
        "atomic",
        "writefua",
        "sg_write_mode",
        "write_mode",
        "deac",
    ];
    for option in options::all().filter(|option| {
        let is_fixed = !IN_WORDS.contains(&option.name) && !AS_SAID.contains(&option.name);
        option.status == Status::Supported && !option.default.is_empty() && is_fixed
    }) {
        let engine = engine(option);
        assert_eq!(
            meaning(&format!("{engine}{}={}\n", option.name, option.default)),
            meaning(&engine),
            "{}",
            option.name
        );
    }
}

#[test]
fn every_word_is_accepted() {
    for option in options::all().filter(|option| option.status == Status::Supported) {
        let ValueKind::Word(words, _) = option.kind else { continue };
        for (word, _) in words.iter().filter(|(word, _)| !["zbd", "strided", "unix"].contains(word)) {
            meaning(&format!("{}{}={word}\n", engine(option), option.name));
        }
    }
}

#[test]
fn every_switch_switches() {
    // A pause of no time, a target that is not set, ...: switches that need something to switch.
    const NEED_OTHERS: &[&str] = &["verify_only", "verify_state_load", "time_based", "latency_run"];
    // Zones are asked for their write pointers after each failed write, as the option's text says.
    const ALWAYS_DONE: &[&str] = &["recover_zbd_write_error"];
    // The content of buffers does not show before they are filled; verification is off.
    const OF_VERIFY: &[&str] = &[
        "do_verify",
        "verify_fatal",
        "verify_dump",
        "verifysort",
        "verify_write_sequence",
        "verify_header_seed",
        "experimental_verify",
        "verify_state_save",
        "trim_verify_zero",
    ];
    for option in options::all().filter(|option| option.status == Status::Supported) {
        let is_left_out = NEED_OTHERS.contains(&option.name) || ALWAYS_DONE.contains(&option.name);
        if !matches!(option.kind, ValueKind::Bool(_) | ValueKind::Flag(_)) || is_left_out {
            continue;
        }
        let before = match option.name {
            "atomic" => engine(option) + "direct=1\n",
            name if OF_VERIFY.contains(&name) => "verify=md5\nrw=randwrite\n".to_string(),
            "sprandom" => "rw=randwrite\n".to_string(),
            "read_beyond_wp" | "ignore_zone_limits" => "zonemode=zbd\ndirect=1\n".to_string(),
            "dedupe_global" => "dedupe_percentage=50\ndedupe_mode=working_set\n".to_string(),
            _ => engine(option),
        };
        let with = |value: &str| meaning(&format!("{before}{}={value}\n", option.name));
        let same_as_default = ["randrepeat"].contains(&option.name) && with("0") == with("1");
        assert!(!same_as_default && with("0") != with("1"), "{} changes nothing", option.name);
    }
}

#[test]
fn every_refused_option_is_refused_by_name_with_the_reason() {
    for option in options::all() {
        let Status::Unsupported(reason) = option.status else { continue };
        let error = plan(&format!("[job]\n{}=97\n", option.name)).map(|_| ()).expect_err(option.name).to_string();
        assert_eq!(error, format!("job.fio:2: unsupported option {}=97 ({reason})", option.name));
    }
}

#[test]
fn the_manual_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    let current = options::markdown();
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == current, "docs/options.md is not what the table says: run make docs");
}
