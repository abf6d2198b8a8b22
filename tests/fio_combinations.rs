//! Options of job files in random combinations: Plimsoll, called as `fio`, accepts a job file if fio accepts it,
//! transfers as much in each direction, and leaves the same files.
//!
//! Other combinations: `FIRST=1000 COUNT=5000 cargo test --test fio_combinations -- --nocapture`.

mod common;
use common::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Combinations that run at the same time.
const AT_ONCE: usize = 4;

const PATTERNS: &[&str] = &[
    "rw=read",
    "rw=write",
    "rw=randread",
    "rw=randwrite",
    "readwrite=read",
    "rw=rw",
    "rw=randrw",
    "rw=readwrite",
    "rw=write:4k",
    "rw=read:8k",
    "rw=randwrite:4",
    "rw=randread:8",
    "rw=rw\nrw_sequencer=sequential",
];

const SIZES: &[&str] = &["size=64k", "size=256k", "size=1m", "size=100k", "size=131072", "size=0x20000", "size=64KB"];

const BLOCKS: &[&str] = &["", "", "bs=4k", "bs=512", "bs=8k", "bs=16k", "bs=3k", "bs=4k,8k", "blocksize=1k", "bs=,8k"];

const ENGINES: &[&str] = &[
    "",
    "ioengine=psync",
    "ioengine=sync",
    "ioengine=pvsync",
    "ioengine=vsync",
    "ioengine=mmap",
    "ioengine=null",
    "ioengine=libaio\niodepth=16",
    "ioengine=libaio\niodepth=4\ndirect=1",
    "ioengine=io_uring\niodepth=8",
    "ioengine=posixaio\niodepth=4",
    "ioengine=libaio\niodepth=16\niodepth_batch=4\niodepth_batch_complete_min=2",
    "ioengine=libaio\niodepth=16\niodepth_low=4",
];

/// Options beside these four: at most one of each row.
const OTHERS: &[&[&str]] = &[
    &["numjobs=2", "numjobs=3\ngroup_reporting", "thread", "thread=1\nnumjobs=2\ngroup_reporting=1"],
    &["loops=2", "loops=3"],
    &["number_ios=7", "number_ios=100", "io_size=40k", "io_size=512k", "io_limit=32k", "io_size=50%"],
    &["offset=8k", "offset=4k\noffset_increment=16k", "offset_align=8k"],
    &["size=50%", "size=10%\nfilesize=200k", "filesize=128k", "filesize=32k"],
    &["nrfiles=2", "nrfiles=4", "nrfiles=3\nopenfiles=1", "nrfiles=8\nopenfiles=3"],
    &[
        "file_service_type=random",
        "file_service_type=roundrobin",
        "file_service_type=sequential",
        "file_service_type=roundrobin:2",
        "file_service_type=random:4",
    ],
    &["filename=data", "filename=data:more", "filename_format=$jobname.$jobnum.$filenum", "filename_format=f.$filenum"],
    &["directory=.", "directory=sub", "directory=missing"],
    &["percentage_random=50", "percentage_random=100", "percentage_random=0"],
    &["zonemode=strided\nzonesize=16k\nzonerange=32k", "zonemode=strided\nzonesize=16k\nzoneskip=16k", "zonemode=none"],
    &["bssplit=4k/50:8k/50", "bssplit=4k/100", "bsrange=1k-8k", "bsrange=4k-4k", "bssplit=4k/30:8k/70,16k"],
    &[
        "verify=crc32c",
        "verify=md5",
        "verify=meta",
        "verify=pattern\nverify_pattern=0xdeadbeef",
        "verify=crc32c\ndo_verify=0",
        "verify=xxhash\nverify_backlog=8",
        "verify=crc64\nverify_interval=1k",
        "verify=sha1\nverify_fatal=1",
        "verify=null",
    ],
    &["fsync=4", "end_fsync=1", "fsync_on_close=1", "sync=1", "sync=dsync", "fsync=1\nend_fsync=1"],
    &["fallocate=none", "fallocate=native", "fallocate=posix", "fallocate=keep", "fallocate=truncate"],
    &[
        "create_on_open=1",
        "create_serialize=0",
        "create_fsync=0",
        "allow_file_create=0",
        "file_append=1",
        "opendir=sub",
    ],
    &["unlink=1", "overwrite=1", "pre_read=1"],
    &["rwmixread=30", "rwmixwrite=10", "rwmixread=100", "rwmixread=0"],
    &["norandommap", "norandommap=1\nrandrepeat=0", "softrandommap=1"],
    &[
        "random_distribution=zipf:1.2",
        "random_distribution=pareto:0.3",
        "random_distribution=normal:25",
        "random_distribution=zoned:60/10:40/90",
        "random_generator=lfsr",
        "random_generator=tausworthe64",
    ],
    &["randseed=7", "randrepeat=0", "allrandrepeat=1"],
    &["blockalign=8k", "bs_unaligned=1", "bs_is_seq_rand=1", "ba=512"],
    &["runtime=30", "runtime=30s\ntimeout=40", "ramp_time=0", "startdelay=0"],
    &["thinktime=100", "thinktime=200us\nthinktime_blocks=8", "rate_iops=50000", "rate=100m", "rate=100m,50m"],
    &["zero_buffers", "refill_buffers", "scramble_buffers=0", "buffer_compress_percentage=50", "dedupe_percentage=30"],
    &["buffer_pattern=0xdead", "buffer_pattern=\"abc\"", "buffer_compress_percentage=30\nrefill_buffers"],
    &["disable_lat=1", "clat_percentiles=0", "gtod_reduce=1", "percentile_list=50:99", "lat_percentiles=1"],
    &["unified_rw_reporting=1", "unified_rw_reporting=none", "group_reporting=0", "kb_base=1000", "unit_base=8"],
    &["invalidate=0", "fadvise_hint=0", "fadvise_hint=random", "buffered=1", "mem=mmap", "iomem_align=4096"],
    &["continue_on_error=all", "ignore_error=EIO", "max_latency=100s", "error_dump=0"],
    &["exitall", "new_group", "description=some text", "nice=1", "cpus_allowed=0", "prio=4\nprioclass=2"],
    &["write_bw_log=log", "write_lat_log=log\nlog_avg_msec=100", "write_iops_log", "write_iolog=calls"],
    &["exec_prerun=true", "exec_prerun=echo a # b", "per_job_logs=0"],
];

/// Lines between and around the options.
const DECORATIONS: &[&str] = &["; a comment", "# another", "", "\t", "  ; indented"];

/// Forms that do not stand in one job file: fio ends early or fails, as docs/fio-differences.md says, or random numbers
/// decide about the totals and the length of files.
const APART: &[(&[&str], &[&str])] = &[
    (&["bs=4k,8k", "bs=,8k"], &["rand", "=rw", "=readwrite", ":4", ":8"]),
    (&["zonemode=strided"], &["rand", "=rw", "=readwrite", ":4", ":8", "percentage_random", "bs=3k"]),
    (&["percentage_random"], &["rw=write:4k", "rw=read:8k"]),
    (&["verify="], &["=rw", "=readwrite", "=randrw", "bs_unaligned", "norandommap", "random_distribution"]),
    (&["verify="], &["rw=write:4k", "percentage_random", "bssplit", "bsrange", "loops", "number_ios", "io_limit"]),
    (&["verify="], &["io_size", "ioengine=null", "offset_align", "blockalign", "ba=512"]),
    (&["rw=write:4k", "rw=read:8k"], &["nrfiles", "offset", "data:more", "filesize", "size=50%", "size=10%", "bs=3k"]),
    (&["randread:8", "randwrite:4"], &["bs=3k", "bs=16k", "offset", "blockalign", "filesize", "size=50%", "size=10%"]),
    (&["loops="], &["io_size", "io_limit", "bs=3k", "=rw", "=readwrite", "=randrw", "bssplit", "bsrange", "offset"]),
    (&["exitall", "unlink", "filename=", "f.$filenum", "file_append"], &["numjobs", "stonewall", "wait_for"]),
    (&["continue_on_error"], &["verify="]),
    (&["directory=missing"], &["directory=.", "directory=sub"]),
    (&["opendir"], &["bs=3k", "size=100k"]),
    (&["verify_interval=1k"], &["bs=512", "bs=3k"]),
    (&["create_on_open", "fallocate=keep", "fallocate=none"], &["rand", "=rw", "=readwrite"]),
    (&["create_on_open"], &["=read"]),
    (&["write_iolog"], &["numjobs"]),
    (&["nrfiles=8", "nrfiles=4", "filesize=32k"], &["bs=16k"]),
    (&["nrfiles=4", "nrfiles=8", "nrfiles=3"], &["filesize=32k", "size=10%", "size=50%", "io_size=50%"]),
    (&["ioengine=mmap"], &["bs=512", "bs=3k", "blocksize=1k", "sync=", "direct=1", "bssplit", "bsrange"]),
    (&["pre_read"], &["direct=1", "ioengine=null"]),
    (&["size=50%", "size=10%"], &["ioengine=null"]),
    (&["kb_base=1000"], &["direct=1"]),
    (&["direct=1"], &["bs=3k", "size=10%", "io_size=50%", "bs_unaligned"]),
];

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A few options of different rows.
    fn others(&mut self) -> Vec<&'static str> {
        let mut rows: Vec<_> = OTHERS.to_vec();
        let count = 1 + self.below(5);
        let mut others = Vec::new();
        for _ in 0..count {
            let row = rows.swap_remove(self.below(rows.len()));
            others.push(self.pick(row));
        }
        others
    }
}

/// The first job file of a seed whose forms may stand together.
fn job_file(seed: u64) -> String {
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
    let has_any = |text: &str, forms: &[&str]| forms.iter().any(|form| text.contains(form));
    loop {
        let text = any_job_file(&mut dice);
        if !APART.iter().any(|(some, others)| has_any(&text, some) && has_any(&text, others)) {
            return text;
        }
    }
}

/// A job file: perhaps global options, and a job or two.
fn any_job_file(dice: &mut Dice) -> String {
    let mut lines: Vec<String> = Vec::new();
    let shared = [dice.pick(PATTERNS), dice.pick(SIZES), dice.pick(BLOCKS), dice.pick(ENGINES)];
    let has_global = dice.one_in(2);
    if has_global {
        lines.push("[global]".into());
        lines.extend(shared.map(String::from));
        lines.extend(dice.others().into_iter().map(String::from));
    }
    for job in 0..1 + usize::from(dice.one_in(4)) {
        lines.push(format!("[job{job}]"));
        if job > 0 {
            lines.push(dice.pick(&["stonewall", "wait_for_previous", "stonewall\nnew_group"]).into());
        }
        if has_global {
            lines.extend(dice.one_in(4).then(|| dice.pick(PATTERNS).into()));
        } else {
            lines.extend(shared.map(String::from));
        }
        if job == 0 || dice.one_in(2) {
            lines.extend(dice.others().into_iter().map(String::from));
        }
    }
    let mut text = String::new();
    for line in lines.iter().flat_map(|line| line.lines()) {
        if dice.one_in(12) {
            text += dice.pick(DECORATIONS);
            text += "\n";
        }
        text += line;
        text += dice.pick(&["", "", "", "", "", "", "", " ", "\t"]);
        text += "\n";
    }
    if dice.one_in(8) { text.replace('\n', "\r\n") } else { text }
}

/// The end of a run, as far as it does not depend on random numbers.
#[derive(Debug, PartialEq)]
struct Outcome {
    succeeded: bool,
    /// Requests and bytes of each job and direction; a mix has their sums.
    totals: Vec<(String, &'static str, u64, u64)>,
    /// Names and lengths of files.
    files: BTreeMap<String, u64>,
}

fn files_below(place: &Path, prefix: &str, into: &mut BTreeMap<String, u64>) {
    for name in names(place) {
        let meta = std::fs::metadata(place.join(&name)).expect("a file");
        let path = format!("{prefix}{name}");
        if meta.is_dir() {
            files_below(&place.join(&name), &format!("{path}/"), into);
        }
        let is_text = [".log", "calls", ".txt", ".fio"].iter().any(|end| path.contains(end));
        into.insert(path, if meta.is_dir() || is_text { 0 } else { meta.len() });
    }
}

fn totals_of(result: &serde_json::Value, text: &str) -> Vec<(String, &'static str, u64, u64)> {
    let has = |forms: &[&str]| forms.iter().any(|form| text.contains(form));
    let (mixes, draws_sizes) = (has(&["=rw", "=randrw", "=readwrite"]), has(&["4k/50", "4k/30", "bsrange=1k"]));
    let mut totals = Vec::new();
    for job in result["jobs"].as_array().into_iter().flatten() {
        let figure = |way: &str, name: &str| job[way][name].as_u64().unwrap_or(0);
        let of = |way| {
            let name = job["jobname"].as_str().unwrap_or_default().to_owned();
            let counts = if draws_sizes { (0, 0) } else { (figure(way, "total_ios"), figure(way, "io_bytes")) };
            (name, way, counts.0, counts.1)
        };
        let each = ["read", "write", "mixed"].map(of);
        if mixes {
            let (ops, bytes) = each.iter().fold((0, 0), |sum, way| (sum.0 + way.2, sum.1 + way.3));
            totals.push((each[0].0.clone(), "sum", ops, bytes));
        } else {
            totals.extend(each);
        }
    }
    totals
}

/// The outcome of a job file, and the lines that the program says about it; None if the program hangs.
fn run_as(fio: &Path, text: &str) -> Option<(Outcome, String)> {
    let place = directory();
    file(place.path(), "job.fio", text);
    std::fs::create_dir(place.path().join("sub")).unwrap();
    file(&place.path().join("sub"), "old", vec![7; 96 << 10]);
    let mut run = Command::new("timeout");
    run.arg("120").arg(fio).args(["--output-format=json", "job.fio"]).current_dir(place.path());
    let output = run.output().expect("timeout starts");
    if output.status.code() == Some(124) {
        return None;
    }
    let report = stdout(&output);
    let said = stderr(&output) + report.lines().find(|line| line.contains("fio: ")).unwrap_or_default();
    let mut outcome = Outcome { succeeded: output.status.success(), totals: Vec::new(), files: BTreeMap::new() };
    // Figures of a job that is refused tell nothing.
    if outcome.succeeded {
        let result =
            serde_json::Deserializer::from_str(&report[report.find("{\n").expect("JSON")..]).into_iter().next();
        outcome.totals = totals_of(&result.expect("JSON").expect("JSON"), text);
        files_below(place.path(), "", &mut outcome.files);
    }
    Some((outcome, said))
}

#[test]
fn random_combinations_of_options_run_as_in_fio() {
    if !has_program("fio") {
        return skip("fio is not installed", true);
    }
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"));
    let (first, count) = (number("FIRST", 1), number("COUNT", 300));
    let directory = directory();
    let link = directory.path().join("fio");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), &link).unwrap();
    let (next, wrong) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let try_next = || {
        let seed = Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < first + count)?;
        let text = job_file(seed);
        let ours = run_as(&link, &text);
        // fio 3.33 hangs now and then.
        let theirs = run_as(Path::new("fio"), &text);
        if theirs.as_ref().is_some_and(|theirs| ours.as_ref().is_none_or(|ours| ours.0 != theirs.0)) {
            wrong.lock().unwrap().push(format!("--- {seed}\n{text}\nfio:  {theirs:?}\nours: {ours:?}\n"));
        }
        Some(())
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| while try_next().is_some() {});
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {count} differ:\n\n{}", wrong.len(), wrong.join("\n"));
}
