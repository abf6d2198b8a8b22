//! Job files become the jobs that fio would run, and everything doubtful is said with its line.

use std::path::Path;

use job::file::{Surroundings, parse_text};
use job::job::*;
use job::per_host::Hosts;
use job::{Error, Plan};
use measure::PerDirection;

fn try_plan_in(text: &str, surroundings: &Surroundings) -> Result<Plan, Error> {
    let source = parse_text(Path::new("job.fio"), text, surroundings)?;
    job::build::plan(&Default::default(), &[source], &Default::default())
}

fn plan(text: &str) -> Plan {
    try_plan_in(text, &Surroundings::NONE).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn job(text: &str) -> Job {
    plan(&format!("[job]\n{text}")).jobs.remove(0)
}

fn error(text: &str) -> String {
    try_plan_in(text, &Surroundings::NONE).map(|_| ()).expect_err(text).to_string()
}

/// The warnings about one job of these options, without their places, for Linux's usual size of a page.
fn warnings(text: &str) -> Vec<String> {
    plan(&format!("[job]\nsize=1m\n{text}")).warnings
}

#[test]
fn an_empty_section_is_fios_default_job() {
    let mut job = job("");
    assert_eq!(job.name, "job");
    job.name.clear();
    assert_eq!(format!("{job:?}"), format!("{:?}", Job::default()));
}

#[test]
fn comments_blanks_and_case_are_as_in_fio() {
    let job = job("; nothing\n  bs=8k ; comment\n\t iodepth = 4 # comment\n#size=1\n\nnorandommap\n");
    assert_eq!((job.blocks.range.read.0, job.queue.depth, job.pattern.no_random_map), (8192, 4, true));
    assert_eq!(error("[job]\nBS=8k\n"), "job.fio:2: unknown option BS (plimsoll run --cmdhelp lists all options)");
}

#[test]
fn global_sections_are_for_later_sections_only() {
    let plan = plan("[a]\n[global]\nbs=8k\n[b]\n[global again]\nbs=16k\n[c]\n[global]\nbs=32k\n");
    assert_eq!(plan.jobs.iter().map(|job| job.blocks.range.read.0 / 1024).collect::<Vec<_>>(), [4, 8, 16]);
    assert_eq!(
        plan.warnings,
        [
            "job.fio:8: this [global] has no effect: a global section applies to later sections only, and none follows; move it up",
            "job.fio:5: [global again] is not a job: a name that starts with global makes a global section, as in fio; rename it if it is meant as a job",
        ]
    );
}

#[test]
fn results_carry_the_options_as_they_were_written() {
    let plan = plan("[global]\nsize=1m\n[job]\nreadwrite=randread\nblocksize=8k\nnorandommap\nbs=4k\n");
    assert_eq!(plan.global_options, [("size".to_string(), "1m".to_string())]);
    let expected = [("rw", "randread"), ("bs", "8k"), ("norandommap", ""), ("bs", "4k")]
        .map(|(name, value)| (name.to_string(), value.to_string()));
    assert_eq!(plan.jobs[0].options, expected);
}

#[test]
fn variables_and_keywords_are_put_in() {
    let variable = |name: &str| (name == "SIZE").then(|| "3".to_string());
    let surroundings = Surroundings { variable: &variable, ..Surroundings::NONE };
    let plan = try_plan_in(
        "[job]\nsize=${SIZE}m\nfilename=/tmp/${UNSET}x\niodepth=$ncpus*2\nbs=$pagesize\nnumjobs=$ncpus\n",
        &surroundings,
    )
    .unwrap();
    let job = &plan.jobs[0];
    assert_eq!(job.extent.size, Some(Amount::Bytes(3 << 20)));
    assert_eq!(job.files.names, ["/tmp/x"]);
    assert_eq!(job.queue.depth, 2 * job.process.clones);
    assert!(job.blocks.range.read.0.is_power_of_two());
    assert!(
        plan.warnings[0].starts_with("job.fio:3: ${UNSET} is not set in the environment, and is empty as in fio"),
        "{:?}",
        plan.warnings
    );
    assert_eq!(job.options[2].1, job.queue.depth.to_string());
}

#[test]
fn sections_for_hosts_change_jobs_there_and_nowhere_else() {
    let all = ["a", "b.rack", "c"].map(String::from);
    let on = |here: &str, text: &str| {
        let surroundings = Surroundings { hosts: Hosts { here, all: &all }, ..Surroundings::NONE };
        try_plan_in(text, &surroundings)
    };
    let text = "[global]\nioengine=null\nsize=1m\n[global@c]\nsize=2m\n[j]\niodepth=4\n[k]\niodepth=1\n[j@a,b]\niodepth=8\n[j@a]\nbs=8k\n";
    for (host, depth, block, size) in
        [("a", 8, 8192, 1), ("b.rack", 8, 4096, 1), ("c", 4, 4096, 2), ("elsewhere", 4, 4096, 1), ("", 4, 4096, 1)]
    {
        let plan = on(host, text).unwrap();
        let names: Vec<&str> = plan.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["j", "k"], "{host}: the same jobs on all hosts");
        let job = &plan.jobs[0];
        assert_eq!((job.queue.depth, job.blocks.range.read.0), (depth, block), "{host}");
        assert_eq!(job.extent.size, Some(Amount::Bytes(size << 20)), "{host}");
        assert_eq!(plan.jobs[1].queue.depth, 1, "{host}");
        assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    }
    let one = |text: &str| on("a", &format!("[j]\nioengine=null\nsize=1m\n{text}")).unwrap();
    let plan = one("[k@a]\nioengine=null\nsize=1m\n");
    assert_eq!(plan.jobs[1].name, "k@a", "a job of that name, as in fio");
    assert!(plan.warnings[0].contains("job.fio:4: [k@a] is a job on all hosts"), "{:?}", plan.warnings);
    let plan = one("[j@a,d]\niodepth=2\n");
    assert_eq!(plan.jobs[0].queue.depth, 2);
    assert!(
        plan.warnings[0].contains("no rank runs on host d of [j@a,d]: the hosts are a, b.rack, c"),
        "{:?}",
        plan.warnings
    );
    for option in ["stonewall", "new_group", "wait_for=j"] {
        let error = on("c", &format!("[j]\nsize=1m\n[j@a]\n{option}\n")).unwrap_err().to_string();
        assert!(error.starts_with("job.fio:4: ") && error.contains("holds for all hosts"), "{error}");
    }
    let error = on("c", "[j]\nsize=1m\n[j@a]\niodepht=3\n").unwrap_err().to_string();
    assert!(error.contains("did you mean iodepth?"), "checked on every host: {error}");
}

#[test]
fn included_options_stand_where_the_include_does() {
    let read = |path: &Path| match path.to_str() {
        Some("dir/more.inc") => Ok("bs=8k\ninclude even.inc\n".to_string()),
        Some("dir/even.inc") => Ok("iodepth=7\n".to_string()),
        Some("dir/section.inc") => Ok("[x]\n".to_string()),
        Some("dir/loop.inc") => Ok("include loop.inc\n".to_string()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let surroundings = Surroundings { read: &read, ..Surroundings::NONE };
    let parse = |text: &str| {
        parse_text(Path::new("dir/job.fio"), text, &surroundings)
            .and_then(|source| job::build::plan(&Default::default(), &[source], &Default::default()))
    };
    let plan = parse("[job]\nbs=4k\ninclude more.inc\n").unwrap();
    assert_eq!((plan.jobs[0].blocks.range.read.0, plan.jobs[0].queue.depth), (8192, 7));
    for (text, message) in [
        (
            "[job]\ninclude none.inc\n",
            "dir/job.fio:2: cannot read the included file none.inc: entity not found (check the name; job options begin with --)",
        ),
        (
            "[job]\ninclude section.inc\n",
            "dir/section.inc:1: an included file has no sections (move the section into the job file)",
        ),
        (
            "include more.inc\n",
            "dir/job.fio:1: \"include more.inc\" stands outside of any section (begin with [global] or [jobname])",
        ),
        (
            "[job]\ninclude loop.inc\n",
            "dir/loop.inc:1: include loop.inc: more than 16 files include each other (a file seems to include itself)",
        ),
    ] {
        assert_eq!(parse(text).map(|_| ()).unwrap_err().to_string(), message);
    }
}

#[test]
fn errors_name_the_line_and_what_to_do() {
    for (text, message) in [
        ("bs=4k\n", "job.fio:1: \"bs=4k\" stands outside of any section (begin with [global] or [jobname])"),
        ("[job\n", "job.fio:1: \"[job\" has no closing ] (write as [name])"),
        ("[job]\niodpeth=4\n", "job.fio:2: unknown option iodpeth (did you mean iodepth?)"),
        ("[job]\nsize=\n", "job.fio:2: size=: the size is missing"),
        ("[job]\ndirect\n", "job.fio:2: direct: a value is missing: write direct=1"),
        (
            "[job]\nruntime=5q\n",
            "job.fio:2: runtime=5q: \"5q\" is not a time: there is no unit \"q\" (ns, us, ms, s, m, h, d)",
        ),
        (
            "[global]\nsize=2k\n[job]\nbs=4k\n",
            "job.fio:2: size=2k is less than the block size, 4096 (a size without a unit is in bytes)",
        ),
        (
            "[job]\nbssplit=4k/60:8k/60\n",
            "job.fio:2: bssplit=4k/60:8k/60: the percentages add up to 120%, which is more than 100%",
        ),
        (
            "[job]\nverify=pattern\nrw=write\n",
            "job.fio:2: verify=pattern needs verify_pattern (write for example verify_pattern=0xdeadbeef)",
        ),
        (
            "[job]\nverify=md5\nrw=write\nbs=64\n",
            "job.fio:2: blocks of 64 bytes have no room for a verification header (use blocks of at least 80 bytes, or verify=pattern, which has no header)",
        ),
        (
            "[job]\nzonemode=strided\n",
            "job.fio:2: --zonesize must be specified when using --zonemode=strided (write for example zonesize=256m)",
        ),
        (
            "[job]\nzonesize=64k\n",
            "job.fio:2: --zonemode=none and --zonesize are not compatible (write zonemode=strided or zonemode=zbd)",
        ),
        ("[job]\nsize=3z\n", "job.fio:2: size=3z: \"3z\" counts zones: give zonesize"),
        ("[job]\nfilename=:\n", "job.fio:2: filename has no name in it (write as filename=/path/to/file)"),
        ("[job]\ncpus_allowed=3-1\n", "job.fio:2: cpus_allowed=3-1: \"3-1\" runs backwards"),
        (
            "[job]\ncgroup=x\n",
            "job.fio:2: unsupported option cgroup=x (start the run in a control group: systemd-run --scope -p IOWeight=)",
        ),
        ("", "command line: no job is defined (give a job file, or begin a job with --name=NAME)"),
        ("[job]\nname=\n", "job.fio:2: name=: the value is empty"),
        ("[job]\n\u{1b}=\n", "job.fio:2: unknown option   (plimsoll run --cmdhelp lists all options)"),
    ] {
        assert_eq!(error(text), message);
    }
}

#[test]
fn sprandom_sets_what_it_needs_and_refuses_what_contradicts_it() {
    let pattern = job("rw=randwrite\nsprandom=1\nspr_op=0.25\nspr_cs=1m\nbs=8k\nblockalign=8k").pattern;
    assert!(pattern.no_random_map && pattern.generator == Generator::Permutation);
    let drive = Precondition { over_provisioning: 0.25, regions: 100, cache_bytes: 1 << 20 };
    assert_eq!(pattern.precondition, Some(drive));
    assert_eq!(job("rw=randread\nspr_op=0.5").pattern.precondition, None);
    for (text, message) in [
        ("rw=randread", "2: sprandom does not go with rw=randread (use rw=randwrite)"),
        ("rw=randrw", "2: sprandom does not go with rw=randrw (use rw=randwrite)"),
        (
            "rw=randwrite\nrandom_generator=tausworthe",
            "4: sprandom does not go with random_generator=tausworthe (leave it out, or write random_generator=lfsr)",
        ),
        (
            "rw=randwrite\nnorandommap=0",
            "4: sprandom does not go with norandommap=0: it writes some blocks twice (leave it out)",
        ),
        (
            "rw=randwrite\nrandom_distribution=zipf:1.1",
            "4: random_distribution does not go with sprandom (leave one of them out: sprandom decides which blocks are written)",
        ),
        (
            "rw=randwrite\nbsrange=4k-8k",
            "4: sprandom needs blocks of one size, side by side (give one bs, and no blockalign)",
        ),
    ] {
        assert_eq!(error(&format!("[job]\nsprandom=1\n{text}")), format!("job.fio:{message}"));
    }
}

#[test]
fn an_unsupported_option_at_its_default_is_no_error() {
    plan("[job]\nlog_hist_coarseness=0\ndedupe_mode=repeat\nflow=0\n");
}

#[test]
fn sizes_of_blocks() {
    assert_eq!(
        job("bs=8k,32k").blocks.range,
        PerDirection { read: (8192, 8192), write: (32768, 32768), trim: (32768, 32768) }
    );
    assert_eq!(
        job("bs=8k,").blocks.range,
        PerDirection { read: (8192, 8192), write: (4096, 4096), trim: (4096, 4096) }
    );
    assert_eq!(job("bsrange=1k-4k,2k-8k").blocks.range.trim, (2048, 8192));
    assert_eq!(job("bssplit=4k/90:64k/").blocks.range.read, (4096, 65536));
    assert_eq!(job("rw=randread\nbs=8k\nba=4k").blocks.align.read, 4096);
    assert_eq!(job("rw=read\nbs=8k\nba=4k").blocks.align.read, 8192);
}

#[test]
fn options_act_on_each_other_as_in_fio() {
    let queue = |text: &str| job(&format!("ioengine=io_uring\niodepth=16\n{text}")).queue;
    assert_eq!(queue("iodepth_batch=0").batch, 16);
    assert_eq!(queue("iodepth_batch=64").batch, 16);
    assert_eq!(queue("iodepth_low=99").low, 16);
    assert_eq!(queue("iodepth_batch_complete=4").batch_complete_min, 4);
    assert_eq!(queue("iodepth_batch_complete=4\niodepth_batch_complete_max=2").batch_complete_max, 4);
    assert_eq!(job("rwmixwrite=30").pattern.mix_read, 70);
    assert!(job("buffered=0").files.direct);
    assert!(job("randrepeat=0").pattern.repeatable != job("randrepeat=0\nrandseed=5").pattern.repeatable);
    assert!(job("random_distribution=zipf:1.1").pattern.no_random_map);
    assert!(job("rw=randwrite\nverify=crc32c").buffers.refill);
    assert_eq!(job("rw=randwrite\nbs=12k\nverify=crc32c\nverify_interval=8k").verify.unwrap().interval, 12288);
    assert_eq!(job("rw=randwrite\nbsrange=4k-12k\nverify=crc32c").verify.unwrap().interval, 4096);
    assert_eq!(job("verify_pattern=0xff").verify.unwrap().kind, VerifyKind::PatternHeader);
    assert!(job("verify=0").verify.is_none());
    let reporting = job("gtod_reduce=1").reporting;
    assert!(reporting.disable_lat && reporting.disable_clat && reporting.disable_slat && !reporting.clat_percentiles);
    assert_eq!(job("write_bw_log").reporting.logs.bw.as_deref(), Some("job"));
    assert_eq!(
        job("zonemode=strided\nzonesize=1m\nzoneskip=2m").extent.strided,
        Some(Zones { size: 1 << 20, range: 1 << 20, skip: 2 << 20 })
    );
    assert_eq!(job("zonesize=1m\nzonerange=2m").extent.strided, Some(Zones { size: 1 << 20, range: 2 << 20, skip: 0 }));
    assert_eq!(job("prio=3").process.io_priority, Some((2, 3)));
    assert!(job("buffer_compress_percentage=100").buffers.zero);
    assert!(job("buffer_compress_percentage=100\ndedupe_percentage=30").buffers.zero);
    let patterned = job("buffer_pattern=0x5a\nbuffer_compress_percentage=100\ndedupe_percentage=30").buffers;
    assert_eq!((patterned.zero, patterned.compress_percent, patterned.dedupe_percent), (false, 0, 0));
    for varied in ["dedupe_percentage=30", "buffer_compress_percentage=30"] {
        assert!(!job(&format!("zero_buffers\n{varied}")).buffers.zero, "{varied} goes before zero_buffers, as in fio");
    }
    assert!(job("zero_buffers\ndedupe_percentage=0").buffers.zero);
    assert!(error("[job]\nsize=1m\nzonemode=strided\nzonesize=4k\nzoneskip=50%").contains("\"50%\" is not a size"));
    for rw in ["trimwrite", "randtrimwrite"] {
        let unequal = |sizes| warnings(&format!("rw={rw}\n{sizes}")).concat().contains("as long as the trim");
        assert!(unequal("bs=4k,8k,16k") && unequal("bssplit=4k/50:8k/50,4k/60:8k/40,4k/50:8k/50"), "{rw}");
        assert!(!unequal("bs=16k,8k,8k") && !unequal("bsrange=4k-16k") && !unequal("bssplit=4k/50:8k/50"), "{rw}");
    }
    assert!(!warnings("rw=randwrite\nbs=4k,8k,16k").concat().contains("as long as the trim"));
    assert_eq!(job("kb_base=1000\nsize=1m").extent.size, Some(Amount::Bytes(1_000_000)));
    assert_eq!(job("size=1m\nkb_base=1000").extent.size, Some(Amount::Bytes(1_000_000)));
    let alone = job("ss_dur=10").time.steady_state;
    assert_eq!(
        alone,
        job("ss=iops_slope:0.01%\nss_dur=10").time.steady_state,
        "the duration switches it on, as in fio"
    );
    assert!(alone.is_some());
    let steady = job("ss=iops_slope:0.3%\nss_dur=10").time.steady_state.unwrap();
    assert_eq!(
        (steady.slope, steady.bandwidth, steady.percent, steady.limit_millionths, steady.window_ns),
        (true, false, true, 3000, 10_000_000_000)
    );
}

#[test]
fn units_that_fio_misreads_are_read_as_meant_and_said() {
    let cases = [
        ("bs=4KiB\n", "job.fio:3: bs: \"4KiB\" is 4096 here; fio reads 4000"),
        ("io_size=1.5m\n", "job.fio:3: io_size: \"1.5m\" is 1572864 here; fio reads 1"),
        ("runtime=10min\n", "job.fio:3: runtime: \"10min\" is 600s here; fio reads 10us"),
        ("io_size=12.5%\n", "job.fio:3: io_size: \"12.5%\" is 12.5% here; fio reads 12, in bytes"),
    ];
    for (text, warning) in cases {
        assert_eq!(warnings(text), [warning]);
    }
}

#[test]
fn each_trap_is_said_once_with_what_to_do() {
    for (text, warning) in [
        (
            "iodepth=32\n",
            "3: iodepth=32 has no effect: the engine psync (the default) has one request in flight per clone; use ioengine=io_uring, or numjobs=32",
        ),
        (
            "iodepth=32\nioengine=libaio\n",
            "3: iodepth=32 has hardly any effect: libaio blocks in io_submit on buffered files; add direct=1, or use ioengine=io_uring",
        ),
        (
            "numjobs=4\nfilename=/tmp/x\n",
            "3: 4 clones go through the same blocks of the same file in sequence: all but the first find the blocks in a cache; add offset_increment=25%, or a file for each",
        ),
        (
            "filename=/tmp/x\nnrfiles=4\n",
            "4: nrfiles has no effect with filename: the files are those that filename lists",
        ),
        (
            "time_based\n",
            "3: time_based has no effect without runtime: the job ends when its size is transferred; add runtime=60s",
        ),
        (
            "direct=1\nbuffered=1\n",
            "4: direct=1 and buffered=1 contradict each other: the last one holds, direct=0; remove one",
        ),
        (
            "rwmixread=70\nrw=randread\n",
            "3: rwmixread=70 has no effect with rw=randread: it applies to rw=rw and rw=randrw",
        ),
        (
            "rw=rw\nrwmixread=70\nrwmixwrite=40\n",
            "5: rwmixread=70 and rwmixwrite=40 do not add up to 100: the last one holds, 60% reads; remove one",
        ),
        ("fsync=1\n", "3: fsync=1 has no effect: job job writes nothing"),
        ("rate=1m\nnumjobs=3\n", "3: rate=1m is for each of the 3 clones: together they have 3 times that"),
        (
            "write_bw_log=x\n",
            "3: write_bw_log without log_avg_msec writes one line for each request; add log_avg_msec=1000 for one a second",
        ),
        (
            "filename=/dev/a#1\n",
            "3: everything from \"#1\" on is a comment, as in fio: a value cannot contain ; or #; put a blank before it if a comment was meant",
        ),
        ("bs=4k\nbsrange=1k-2k\n", "3: bs has no effect: bsrange is set too and wins, as in fio; remove one"),
        (
            "direct=1\nbs=1000\n",
            "4: direct=1 with blocks of 1000 bytes: O_DIRECT takes whole sectors only (512 or 4096 bytes), so requests will fail",
        ),
        (
            "rw=write\nverify=crc32c\ntime_based\nruntime=5\n",
            "4: the job verifies a pass over its files only if it has written all of them before runtime is over (time_based); add verify_backlog, or remove time_based",
        ),
        ("ioengine=io_uring\nhipri\n", "4: hipri polls devices, and buffered files cannot be polled: add direct=1"),
        ("verifysort_nr=5\n", "3: verifysort_nr=5 has no effect: fio ignores it since 2.1"),
        ("rw=randread\nba=8k\n", "4: blockalign turns the random map off, as in fio: blocks may repeat and be missed"),
        (
            "ramp_time=1\n",
            "3: ramp_time without runtime: a job that ends before the ramp ends measures nothing; add runtime and time_based",
        ),
        ("ss=iops:1%\n", "3: steadystate has no effect without steadystate_duration: add steadystate_duration=30s"),
    ] {
        assert_eq!(warnings(text), [format!("job.fio:{warning}")], "{text}");
    }
    let inherited =
        plan("[global]\nioengine=libaio\nhipri\nuserspace_reap\ndirect=1\n[a]\nioengine=io_uring\n").warnings;
    assert_eq!(
        inherited,
        ["job.fio:4: userspace_reap has no effect on job a: it belongs to libaio, and the job's engine is io_uring"]
    );
}

#[test]
fn what_is_in_order_is_not_warned_about() {
    for text in [
        "",
        "iodepth=32\nioengine=io_uring\n",
        "iodepth=32\nioengine=libaio\ndirect=1\n",
        "numjobs=4\n",
        "numjobs=4\nfilename=/tmp/x\nrw=randread\n",
        "numjobs=4\nfilename=/tmp/x\noffset_increment=25%\n",
        "rw=randrw\nrwmixread=70\nrwmixwrite=30\n",
        "rw=write\nfsync=8\nend_fsync=1\n",
        "runtime=60\ntime_based\nramp_time=5\n",
        "write_bw_log\nlog_avg_msec=500\n",
        "rw=write\nverify=crc32c\n",
        "unique_filename=1\ndirect=1\nbuffered=0\nbs=512\n",
    ] {
        assert_eq!(warnings(text), Vec::<String>::new(), "{text}");
    }
}
