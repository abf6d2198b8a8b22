//! Warnings about points that are likely to mislead the writer of a job: where, what, why, and what to do.

use crate::build::Draft;
use crate::engines;
use crate::job::*;
use crate::source::Source;

const WRITES_COLLIDE: &str = "clones write to the same blocks: one overwrites what another will verify; add offset_increment, or a file for each";
const BLOCKS_OVERLAP: &str =
    "norandommap with blocks of several sizes: blocks overlap, and the job verifies only the last write of each block";
/// The warning about `time_based` on its own.
pub(crate) const NO_RUNTIME: &str =
    "time_based has no effect without runtime: the job ends when its size is transferred; add runtime=60s";

/// True if fio, too, ends with `--warnings-fatal` on a job that this warning is about.
pub(crate) fn is_fatal_in_fio(warning: &str) -> bool {
    [WRITES_COLLIDE, BLOCKS_OVERLAP, NO_RUNTIME].iter().any(|text| warning.ends_with(text))
}

/// Warns about one job, after everything in it is settled.
pub fn job(draft: &mut Draft) {
    depth(draft);
    end(draft);
    clones(draft);
    files(draft);
    mixes(draft);
    times(draft);
    blocks(draft);
    rates(draft);
    verification(draft);
    logs(draft);
    rings(draft);
}

/// Warns about the sources as a whole.
pub fn plan(plan: &mut Plan, command_line: &Source, files: &[Source]) {
    for source in std::iter::once(command_line).chain(files) {
        if let Some(last) = source.sections.last()
            && last.is_global()
            && source.sections.iter().any(|section| !section.is_global())
            && !last.settings.is_empty()
        {
            plan.warnings.push(format!("{}: this [{}] has no effect: a global section applies to later sections only, and none follows; move it up", last.place, last.name));
        }
        for section in source.sections.iter().filter(|section| section.is_global() && section.name != "global") {
            plan.warnings.push(format!(
                "{}: [{}] is not a job: a name that starts with global makes a global section, as in fio; rename it if it is meant as a job",
                section.place, section.name
            ));
        }
    }
    for job in &plan.jobs {
        if let Some(awaited) = &job.time.wait_for
            && !plan.jobs.iter().any(|other| other.name == *awaited)
        {
            plan.warnings.push(format!(
                "job {}: wait_for={awaited}: no job has that name, so this job starts at once",
                job.name
            ));
        }
    }
}

fn depth(draft: &mut Draft) {
    let (depth, engine) = (draft.job.queue.depth, draft.job.engine.clone());
    if depth <= 1 {
        return;
    }
    if engines::find(&engine).is_some_and(|engine| engine.synchronous) {
        let default = if draft.is_set("ioengine") { "" } else { " (the default)" };
        draft.warn_at(
            "iodepth",
            format!("iodepth={depth} has no effect: the engine {engine}{default} has one request in flight per clone; use ioengine=io_uring, or numjobs={depth}"),
        );
    } else if engine == "libaio" && !draft.job.files.direct {
        draft.warn_at("iodepth", format!("iodepth={depth} has hardly any effect: libaio blocks in io_submit on buffered files; add direct=1, or use ioengine=io_uring"));
    }
}

/// An endless job: as in fio, the user ends it.
fn end(draft: &mut Draft) {
    let job = &draft.job;
    let ends = job.time.runtime_ns.is_some() || job.time.ends_with_io || job.extent.number_ios.is_some();
    if job.engine == "cpuio" && !ends {
        draft.warn_at(
            "cpuload",
            "the job does not end by itself: add runtime=60s, or exit_on_io_done=1 to end with the other jobs",
        );
    }
}

fn clones(draft: &mut Draft) {
    let job = &draft.job;
    if job.process.clones <= 1 {
        return;
    }
    let shared = !job.files.names.is_empty() || job.files.opendir.is_some() || !job.files.format.contains("$jobnum");
    let apart = job.extent.offset_increment != Amount::Bytes(0);
    if !job.rw.random && shared && !apart && job.iolog.read.is_none() {
        let clones = job.process.clones;
        draft.warn_at(
            "numjobs",
            format!(
                "{clones} clones go through the same blocks of the same file in sequence: all but the first find the blocks in a cache; add offset_increment={:.0}%, or a file for each",
                100 / clones.max(1)
            ),
        );
    }
}

fn files(draft: &mut Draft) {
    if draft.job.files.pre_read && engines::find(&draft.job.engine).is_some_and(|engine| engine.diskless) {
        let engine = &draft.job.engine;
        draft.warn_at("pre_read", format!("pre_read has no effect: the engine {engine} opens no file"));
    }
    if !draft.job.files.names.is_empty() && draft.is_set("nrfiles") {
        draft.warn_at("nrfiles", "nrfiles has no effect with filename: the files are those that filename lists");
    }
    if !draft.job.files.names.is_empty() && draft.is_set("opendir") {
        draft.warn_at("opendir", "opendir adds the files below it to those that filename lists");
    }
    if draft.is_set("direct") && draft.is_set("buffered") {
        let (direct, buffered) = (draft.written("direct"), draft.written("buffered"));
        let agree = (direct == "direct=1") == (buffered == "buffered=0");
        if !agree {
            let holds = if draft.job.files.direct { "direct=1" } else { "direct=0" };
            draft.warn_at(
                "buffered",
                format!("{direct} and {buffered} contradict each other: the last one holds, {holds}; remove one"),
            );
        }
    }
    if draft.is_set("sync") || draft.is_set("fsync") || draft.is_set("fdatasync") || draft.is_set("end_fsync") {
        let name =
            ["sync", "fsync", "fdatasync", "end_fsync"].into_iter().find(|name| draft.is_set(name)).unwrap_or("sync");
        let written = draft.written(name);
        if !draft.job.rw.directions.write && !written.ends_with("=0") && !written.ends_with("=none") {
            draft.warn_at(name, format!("{written} has no effect: job {} writes nothing", draft.job.name));
        }
    }
}

fn mixes(draft: &mut Draft) {
    let directions = draft.job.rw.directions;
    let mixed = directions.read && directions.write;
    for name in ["rwmixread", "rwmixwrite"] {
        if draft.is_set(name) && !mixed {
            let (written, rw) = (
                draft.written(name),
                draft.setting("rw").map_or_else(|| "rw=read".to_string(), |setting| setting.written()),
            );
            draft.warn_at(name, format!("{written} has no effect with {rw}: it applies to rw=rw and rw=randrw"));
        }
    }
    let percent = |name: &str| {
        draft
            .setting(name)
            .and_then(|setting| setting.value.as_deref())
            .and_then(|value| value.trim().parse::<u32>().ok())
    };
    if let (Some(read), Some(write)) = (percent("rwmixread"), percent("rwmixwrite"))
        && read + write != 100
    {
        let holds = draft.job.pattern.mix_read;
        draft.warn_at("rwmixwrite", format!("rwmixread={read} and rwmixwrite={write} do not add up to 100: the last one holds, {holds}% reads; remove one"));
    }
}

fn times(draft: &mut Draft) {
    let time = &draft.job.time;
    if time.time_based && time.loops > 1 {
        draft.warn_at("loops", "loops has no effect with time_based: the job starts over until runtime is up");
    }
    let time = &draft.job.time;
    if time.ramp_bytes > 0 && !time.time_based {
        draft.warn_at("ramp_size", "ramp_size without time_based: its bytes are part of the job's size, and a job that ends before measures nothing");
    }
    let time = &draft.job.time;
    if time.ramp_ns > 0 && time.runtime_ns.is_none() {
        draft.warn_at("ramp_time", "ramp_time without runtime: a job that ends before the ramp ends measures nothing; add runtime and time_based");
    }
}

fn blocks(draft: &mut Draft) {
    let given = |name: &str| draft.is_set(name);
    if given("bs") && (given("bsrange") || given("bssplit")) {
        let other = if given("bssplit") { "bssplit" } else { "bsrange" };
        draft.warn_at("bs", format!("bs has no effect: {other} is set too and wins, as in fio; remove one"));
    }
    let odd = draft
        .job
        .blocks
        .range
        .iter()
        .find(|(direction, range)| draft.job.rw.directions[*direction] && range.0 % 512 != 0)
        .map(|(_, range)| range.0);
    if let Some(size) = odd.filter(|_| draft.job.files.direct) {
        let name = ["bssplit", "bsrange", "bs"].into_iter().find(|name| draft.is_set(name)).unwrap_or("bs");
        draft.warn_at(name, format!("direct=1 with blocks of {size} bytes: O_DIRECT takes whole sectors only (512 or 4096 bytes), so requests will fail"));
    }
}

fn rates(draft: &mut Draft) {
    let clones = draft.job.process.clones;
    for name in ["rate", "rate_iops"] {
        if draft.is_set(name) && clones > 1 {
            let written = draft.written(name);
            draft.warn_at(
                name,
                format!("{written} is for each of the {clones} clones: together they have {clones} times that"),
            );
        }
    }
}

fn verification(draft: &mut Draft) {
    let job = &draft.job;
    let Some(verify) = &job.verify else { return };
    let (writes, reads) = (job.rw.directions.write, job.rw.directions.read);
    let shared = !job.files.names.is_empty() || !job.files.format.contains("$jobnum");
    let blocks_vary = job.blocks.range.write.0 != job.blocks.range.write.1;
    let overwrites = job.pattern.no_random_map && job.rw.random && blocks_vary;
    let may_be_late = writes && !reads && verify.enabled && job.time.time_based && verify.backlog == 0;
    if writes && verify.enabled && job.process.clones > 1 && shared && job.extent.offset_increment == Amount::Bytes(0) {
        draft.warn_at("verify", WRITES_COLLIDE);
    }
    if may_be_late {
        draft.warn_at("verify", "the job verifies a pass over its files only if it has written all of them before runtime is over (time_based); add verify_backlog, or remove time_based");
    }
    if overwrites {
        draft.warn_at("norandommap", BLOCKS_OVERLAP);
    }
}

fn logs(draft: &mut Draft) {
    let logs = &draft.job.reporting.logs;
    let each_request = logs.average_ns == 0;
    let name = [("write_bw_log", &logs.bw), ("write_lat_log", &logs.lat), ("write_iops_log", &logs.iops)]
        .into_iter()
        .find(|(_, log)| log.is_some())
        .map(|(name, _)| name);
    if let Some(name) = name.filter(|_| each_request) {
        draft.warn_at(
            name,
            format!(
                "{name} without log_avg_msec writes one line for each request; add log_avg_msec=1000 for one a second"
            ),
        );
    }
    let logs = &draft.job.reporting.logs;
    if logs.histogram.is_some() && logs.histogram_ns == 0 {
        draft.warn_at("write_hist_log", "write_hist_log has no effect without log_hist_msec: add log_hist_msec=1000");
    }
}

fn rings(draft: &mut Draft) {
    let by_commands = engines::find(&draft.job.engine).is_some_and(|engine| engine.by_commands);
    if draft.job.ring.hipri && !draft.job.files.direct && !by_commands {
        draft.warn_at("hipri", "hipri polls devices, and buffered files cannot be polled: add direct=1");
    }
    if draft.job.ring.sq_poll_cpu.is_some() && !draft.job.ring.sq_poll {
        draft.warn_at("sqthread_poll_cpu", "sqthread_poll_cpu has no effect without sqthread_poll");
    }
    if draft.job.ring.other.iter().any(|(name, value)| name == "single-instance" && value == "1") {
        draft.warn_at(
            "single-instance",
            "single-instance has no effect: each clone has a connection of its own, which never gives less; for one connection use numjobs=1 and a larger iodepth",
        );
    }
}
