//! Sweeps that are refused before anything is measured, each with its reason.
#![forbid(unsafe_code)]

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use job::Job;
use job::engines::EngineSpec;
use job::job::Amount;
use job::source::Setting;
use measure::Direction;

use super::axis::{Axis, Role};
use super::effort::Effort;
use super::recorded;
use super::workload::{Request, place};
use crate::{Error, ErrorKind};

/// Options that would be overridden: to take them in silence would mislead.
pub(super) const OURS: [&str; 9] =
    ["iodepth", "runtime", "time_based", "ramp_time", "ramp_size", "read_iolog", "unlink", "stonewall", "loops"];

/// Options of a workload, which a recording has already.
pub(super) const RECORDED: [&str; 24] = [
    "rw",
    "bs",
    "bsrange",
    "bssplit",
    "size",
    "filesize",
    "io_size",
    "number_ios",
    "offset",
    "nrfiles",
    "filename",
    "directory",
    "numjobs",
    "rate",
    "rate_iops",
    "thinktime",
    "rwmixread",
    "rwmixwrite",
    "verify",
    "zonemode",
    "replay_redirect",
    "replay_no_stall",
    "write_iolog",
    "latency_target",
];

/// True if the user gave the option.
pub(super) fn is_given(asked: &[Setting], name: &str) -> bool {
    asked.iter().any(|setting| setting.option.name == name)
}

/// Refuses options that an axis sets, and workloads that an axis does not suit.
pub(super) fn check_axes(asked: &[Setting], request: &Request, effort: &Effort) -> Result<(), Error> {
    let axes = || effort.axes();
    if let Some(twice) = axes().find(|axis| is_given(asked, axis.name())) {
        let hint = "the axis sets this option: leave one of the two out";
        return Err(Error::usage("both an option and an axis:", twice.name(), hint));
    }
    let [x, across] = [Some(&effort.axis), effort.across.as_ref()];
    if let (Some(x), Some(across)) = (x, across)
        && (x.name() == across.name() || x.is_rate() && across.is_rate())
    {
        let hint = "a map needs two different options, at most one of them a rate";
        return Err(Error::usage("not two axes:", format!("{} and {}", x.name(), across.name()), hint));
    }
    if effort.across.is_some() && request.engines.len() > 1 {
        return Err(Error::usage("more than two axes:", "--engine", "give one engine, or one axis less"));
    }
    if axes().any(Axis::is_rate) {
        let slowing = ["rate", "rate_iops", "numjobs", "latency_target", "pace"];
        let given = slowing.into_iter().find(|name| is_given(asked, name));
        if let Some(name) = given.or_else(|| axes().any(|axis| axis.role() == Role::Clones).then_some("numjobs")) {
            let hint = "the axis is the load of one clone, and of nothing that slows it down: leave the option out";
            return Err(Error::usage("not with an axis of rates:", name, hint));
        }
    }
    Ok(())
}

/// Refuses a crew for a sweep that one process has to lead alone.
pub(super) fn check_many_hosts(request: &Request, effort: &Effort) -> Result<(), Error> {
    let refused = [
        (effort.axes().any(Axis::is_rate), "an axis of rates", "sweep the depth, or one host"),
        (effort.precondition.is_some(), "--precondition", "precondition the target from one host first"),
        (!request.recorded.is_empty(), "--workload", "replay the recording on one host"),
        (request.resume.is_some(), "--resume", "sweep anew"),
    ];
    match refused.into_iter().find(|(applies, ..)| *applies) {
        Some((_, option, hint)) => Err(Error::usage("not from many hosts:", option, hint)),
        None => Ok(()),
    }
}

/// Refuses engines that have no storage, or no queue of the kind that the axes need.
pub(super) fn check_engines(engines: &[&EngineSpec], effort: &Effort) -> Result<(), Error> {
    if let Some(engine) = engines.iter().find(|engine| engine.without_data || engine.to_peer) {
        let hint = "use it with plimsoll run";
        return Err(Error::usage("a sweep needs storage, which this engine does not use:", engine.name, hint));
    }
    let Some(engine) = engines.iter().find(|engine| engine.synchronous) else { return Ok(()) };
    if effort.axes().any(Axis::is_rate) {
        let hint = "each of its threads would have a queue of its own: give an engine such as io_uring or libaio";
        return Err(Error::usage("an open loop needs an asynchronous engine, not", engine.name, hint));
    }
    if effort.axes().any(|axis| axis.role() == Role::Clones) && effort.depth() > 1 {
        let hint = "its depth is its number of threads: leave --iodepth out";
        return Err(Error::usage("not with --axis numjobs and a synchronous engine:", engine.name, hint));
    }
    Ok(())
}

/// Refuses engines that cannot replay a recording.
pub(super) fn check_replay(engines: &[&EngineSpec]) -> Result<(), Error> {
    match engines.iter().find(|engine| engine.synchronous || engine.opens_files) {
        Some(engine) => {
            let hint = "its threads wait for one another's requests: give an engine such as io_uring or libaio";
            Err(Error::usage("a replay needs an asynchronous engine for files, not", engine.name, hint))
        }
        None => Ok(()),
    }
}

/// Refuses objectives for a direction in which the workload issues nothing.
pub(super) fn check_objectives(effort: &Effort, job: &Job) -> Result<(), Error> {
    let is_absent = |direction: &Direction| !job.rw.directions[*direction];
    match effort.objectives.iter().find(|objective| objective.direction.as_ref().is_some_and(is_absent)) {
        Some(objective) => {
            let hint = "give a --rw that does, such as randrw, or an objective without a direction";
            Err(Error::usage("the workload issues no such requests:", objective.to_string(), hint))
        }
        None => Ok(()),
    }
}

/// Refuses sizes that the target does not have: the point would name a size, and measure another one.
pub(super) fn check_sizes(targets: &[PathBuf], job: &Job, effort: &Effort) -> Result<(), Error> {
    let sizes = effort.axes().find(|axis| axis.name() == "size").and_then(Axis::values);
    let Some(most) = sizes.and_then(|values| values.asked().pop()) else { return Ok(()) };
    let mut bytes = 0u64;
    for target in targets {
        bytes += recorded::size_of(target).map_err(|error| Error::system("cannot sweep", place(target), error))?;
    }
    if let Amount::Bytes(offset) = job.extent.offset {
        bytes = bytes.saturating_sub(offset);
    }
    if most > bytes {
        let what = format!("--axis size goes up to {most} bytes, but there are {bytes} of");
        let names: Vec<String> = targets.iter().map(|target| place(target)).collect();
        return Err(Error::usage(what, names.join(", "), "give smaller sizes, or a directory as TARGET"));
    }
    Ok(())
}

/// Refuses an extent beyond the end of a file: a run would write the rest, and a sweep that reads changes nothing.
pub(super) fn check_extent(targets: &[PathBuf], job: &Job, asked: &[Setting]) -> Result<(), Error> {
    let offset = if let Amount::Bytes(bytes) = job.extent.offset { bytes } else { 0 };
    let (mut bytes, mut growable) = (0u64, false);
    for target in targets {
        let own = recorded::size_of(target).map_err(|error| Error::system("cannot sweep", place(target), error))?;
        bytes = bytes.saturating_add(own);
        growable |= std::fs::metadata(target).is_ok_and(|metadata| metadata.is_file());
        if let Some((_, most)) = job.extent.file_size
            && growable
            && most > own
        {
            return Err(beyond_the_end(format!("filesize={most}"), own, place(target)));
        }
    }
    if let Some(Amount::Bytes(size)) = job.extent.size
        && is_given(asked, "size")
        && growable
        && size.saturating_add(offset) > bytes
    {
        let asked = if offset > 0 { format!("offset={offset} and size={size}") } else { format!("size={size}") };
        let names: Vec<String> = targets.iter().map(|target| place(target)).collect();
        return Err(beyond_the_end(asked, bytes, names.join(", ")));
    }
    Ok(())
}

fn beyond_the_end(asked: String, bytes: u64, names: String) -> Error {
    let what = format!("{asked} goes beyond the end, {bytes} bytes, of");
    Error::usage(
        what,
        names,
        "the sweep would have to write the rest: give less, or a directory as TARGET, or --allow-writes",
    )
}

/// Refuses a target that cannot be swept, or that a sweep would destroy.
pub(super) fn check_target(target: &Path, writes: bool, allow_writes: bool) -> Result<(), Error> {
    let place = target.display().to_string();
    let metadata = std::fs::metadata(target).map_err(|error| {
        Error::system("cannot sweep", place.clone(), error)
            .hint("TARGET is an existing file, directory or block device")
    })?;
    let kind = metadata.file_type();
    if kind.is_file() && metadata.len() == 0 {
        return Err(Error::usage(
            "cannot sweep",
            place,
            "the file is empty; give a directory to have a scratch file laid out",
        ));
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Error::usage("cannot sweep", place, "it is neither a file nor a directory nor a block device"));
    }
    if writes && !allow_writes {
        let hint = "this workload would destroy what is there; --allow-writes insists, a directory as TARGET gets a \
                    scratch file";
        return Err(refused(place, hint));
    }
    Ok(())
}

/// The refusal to write to `place`.
pub(super) fn refused(place: String, hint: &str) -> Error {
    Error { kind: ErrorKind::Refused, what: "refused to write to".into(), place, hint: hint.into(), source: None }
}
