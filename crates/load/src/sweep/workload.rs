//! The workload that a sweep runs at each point: the user's job options over the defaults, on one target.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use job::job::{Allow, Amount, Plan, Window};
use job::source::{Section, Setting, Source};
use job::{Invocation, Job, Place, options};
use measure::Direction;
use measure::slices::{SETTLE_NS, Slice};

use super::axis::Role;
use super::crew::Spot;
use super::precondition::{FILLS, Plans};
use super::recorded::{self, Recorded};
use super::resume::Resume;
use super::scratch::{self, Doomed, Scratch};
use super::{Axis, Effort};
use crate::engine::Maker;
use crate::{Error, ErrorKind};

/// Load before each point that is not measured, so that the queue is full and caches have settled.
pub(super) const RAMP_NS: u64 = 200_000_000;
/// Layout ends here: the bytes that were written by then are the scratch file.
const LAYOUT_CAP_NS: u64 = 8_000_000_000;
/// The size that an engine without files works on, where nobody gives one.
const NO_FILE: Amount = Amount::Bytes(1 << 30);
/// Engines with one queue of any depth up to that of the job: a shallow slice of a deep run is a shallow run.
const IN_PLACE: [&str; 4] = ["io_uring", "libaio", "guasi", "null"];
/// Engines that are tried when none is named, best first.
const PREFERRED: [&str; 3] = ["io_uring", "libaio", "psync"];

/// A workload that can be run at any depth by any engine.
pub struct Workload {
    /// The job's options, defaults first: the last one of a name counts.
    settings: Vec<Setting>,
    /// Refusals that the user insists on overriding.
    allow: Allow,
    /// The target of the workload, as a person would name it.
    pub name: String,
    /// Absolute paths of the target's files, or of the directory of the scratch file.
    pub paths: Vec<PathBuf>,
    /// Names of the engines, a curve for each.
    pub engines: Vec<String>,
    /// The scratch file of this sweep and the bytes it has or is to have.
    scratch: Option<(Scratch, u64)>,
    /// The application that is replayed in place of a workload.
    recorded: Option<Recorded>,
    /// True if O_DIRECT was wanted, and the target does not support it.
    pub direct_refused: bool,
    /// A recorded request that O_DIRECT does not take, where the replay goes through the page cache for that reason.
    pub not_direct: Option<String>,
    /// The best engine, where another one took its place, and why it did.
    pub engine_replaced: Option<(&'static str, String)>,
}

/// The request of the user.
#[derive(Clone, Default)]
pub struct Request {
    /// Job options of one job; its only file is the target: a file, a directory, a block device. None: the files that
    /// the options name, or else here. See [`take_in`](super::take_in) for a job file.
    pub job: Invocation,
    /// Options of the job file that have no effect, as written.
    pub left_out: Vec<String>,
    /// Engines; empty: the best one there is.
    pub engines: Vec<String>,
    /// True if an existing file or a device may be written to.
    pub allow_writes: bool,
    /// Logs of an application to replay in place of a workload; empty: none.
    pub recorded: Vec<PathBuf>,
    /// The sweep to resume.
    pub resume: Option<Resume>,
}

impl Workload {
    /// The workload on its target; a scratch file exists but is not laid out yet.
    ///
    /// # Errors
    /// A bad option, a target that is missing or is neither file nor directory nor block device, an unknown
    /// engine, writes to something that was not made for this sweep.
    pub fn prepare(request: &Request, effort: &Effort, doomed: &Doomed) -> Result<Workload, Error> {
        let mut asked = settings_of(&request.job)?;
        check_axes(&asked, request, effort)?;
        asked.extend(wanted_by(effort, &asked));
        let given = |name: &str| asked.iter().any(|setting| setting.option.name == name);
        let mut workload = Workload {
            settings: [vec![setting("rw", "randread"), setting("bs", "4k")], asked.clone()].concat(),
            allow: request.job.run.allow,
            name: String::new(),
            paths: Vec::new(),
            engines: request.engines.clone(),
            scratch: None,
            recorded: None,
            direct_refused: false,
            not_direct: None,
            engine_replaced: None,
        };
        let job = workload.job()?;
        let named: Vec<PathBuf> = job.files.names.iter().map(PathBuf::from).collect();
        let targets = match (&request.job.files[..], &named[..]) {
            ([], _) => named,
            ([target, ..], []) => vec![target.clone()],
            ([target, ..], [named, ..]) => {
                let what = format!("both TARGET {} and filename={}", target.display(), named.display());
                return Err(Error::usage(what, "", "give the file to sweep once"));
            }
        };
        let target = targets.first().cloned();
        if let Some(odd) = targets.iter().find(|target| target.to_str().is_none()) {
            // A job names its files in UTF-8: it would make and measure another file.
            let hint = "its name is not UTF-8: make a symbolic link to it, and sweep that";
            return Err(Error::usage("cannot sweep", place(odd), hint));
        }
        if workload.engines.is_empty() {
            let in_volume = target.as_ref().is_some_and(|target| gfapi::Address::is_url(&target.to_string_lossy()));
            let best = if in_volume { ("gfapi", None) } else { chosen_engine() };
            if given("ioengine") {
                workload.engines.push(job.engine.clone());
            } else {
                workload.engines.push(best.0.into());
                workload.engine_replaced = best.1;
            }
        }
        let engines = workload
            .engines
            .iter()
            .map(|name| Maker::find(name).map(|maker| maker.spec))
            .collect::<Result<Vec<_>, _>>()?;

        if let Some(engine) = engines.iter().find(|engine| engine.without_data || engine.to_peer) {
            let hint = "use it with plimsoll run";
            return Err(Error::usage("a sweep needs storage, which this engine does not use:", engine.name, hint));
        }
        if let Some(engine) = engines.iter().find(|engine| engine.synchronous) {
            if effort.axes().any(Axis::is_rate) {
                let hint =
                    "each of its threads would have a queue of its own: give an engine such as io_uring or libaio";
                return Err(Error::usage("an open loop needs an asynchronous engine, not", engine.name, hint));
            }
            if effort.axes().any(|axis| axis.role() == Role::Clones) && effort.depth() > 1 {
                let hint = "its depth is its number of threads: leave --iodepth out";
                return Err(Error::usage("not with --axis numjobs and a synchronous engine:", engine.name, hint));
            }
        }
        let is_absent = |direction: &Direction| !job.rw.directions[*direction];
        let unmet = effort.objectives.iter().find(|objective| objective.direction.as_ref().is_some_and(is_absent));
        if let Some(objective) = unmet.filter(|_| request.recorded.is_empty()) {
            let hint = "give a --rw that does, such as randrw, or an objective without a direction";
            return Err(Error::usage("the workload issues no such requests:", objective.to_string(), hint));
        }
        if !request.recorded.is_empty() {
            if let Some(engine) = engines.iter().find(|engine| engine.synchronous || engine.opens_files) {
                let hint = "its threads wait for one another's requests: give an engine such as io_uring or libaio";
                return Err(Error::usage("a replay needs an asynchronous engine for files, not", engine.name, hint));
            }
            workload.paths = absolute(&targets);
            workload.replay(request, target.as_deref(), &asked, effort)?;
            return Ok(workload);
        }
        if engines.iter().all(|engine| engine.opens_files || engine.diskless) {
            let names: Vec<String> = targets.iter().map(|target| place(target)).collect();
            if effort.precondition.is_some() && !names.is_empty() && !request.allow_writes {
                return Err(refused(
                    names.join(", "),
                    "--precondition would destroy what is there; --allow-writes insists",
                ));
            }
            workload.name = if names.is_empty() { "no storage".into() } else { names.join(", ") };
            if !targets.is_empty() && engines.iter().any(|engine| engine.opens_files) {
                workload.settings.push(filename(&targets));
            }
            workload.paths = absolute(&targets);
            if !given("size") && engines.iter().all(|engine| engine.diskless) {
                workload.settings.push(setting("size", "1g"));
            }
            return Ok(workload);
        }
        let paths = match target {
            Some(target) if !target.is_dir() => {
                let writes = job.rw.directions.write || job.rw.directions.trim || effort.precondition.is_some();
                for target in &targets {
                    check_target(target, writes, request.allow_writes)?;
                }
                check_sizes(&targets, &job, effort)?;
                if !request.allow_writes {
                    check_extent(&targets, &job, &given)?;
                }
                if effort.precondition.is_some() && targets.len() > 1 {
                    let hint = "precondition and sweep one after the other";
                    return Err(Error::usage("--precondition takes one TARGET, not also", place(&targets[1]), hint));
                }
                workload.name = targets.iter().map(|target| place(target)).collect::<Vec<_>>().join(", ");
                workload.paths = absolute(&targets);
                targets
            }
            directory => {
                let directory = directory
                    .or_else(|| job.files.directories.first().map(PathBuf::from))
                    .unwrap_or_else(|| PathBuf::from("."));
                let wanted = match job.extent.size {
                    Some(Amount::Bytes(bytes)) if given("size") => Some(bytes),
                    _ => request.resume.as_ref().and_then(Resume::target_bytes),
                };
                workload.paths = absolute(std::slice::from_ref(&directory));
                let (scratch, bytes) = Scratch::create(&directory, wanted, doomed)?;
                workload.name = format!("a scratch file in {}", directory.display());
                let path = scratch.path().to_path_buf();
                workload.scratch = Some((scratch, bytes));
                vec![path]
            }
        };
        workload.settings.retain(|setting| setting.option.name != "directory");
        workload.settings.push(filename(&paths));
        if !given("direct") && !given("buffered") {
            workload.direct_refused = !paths.iter().all(|path| scratch::takes_direct(path));
            workload.settings.push(setting("direct", if workload.direct_refused { "0" } else { "1" }));
        }
        Ok(workload)
    }

    /// Makes this the workload of the application that `request` names.
    fn replay(
        &mut self,
        request: &Request,
        target: Option<&Path>,
        asked: &[Setting],
        effort: &Effort,
    ) -> Result<(), Error> {
        let job = self.job()?;
        let axes = effort.axes().find(|axis| !axis.is_speed()).map(Axis::name);
        if let Some(name) =
            axes.or_else(|| asked.iter().map(|one| one.option.name).find(|name| RECORDED.contains(name)))
        {
            let hint = "the recording decides it: leave it out";
            return Err(Error::usage("not with --workload:", name, hint));
        }
        let cut_ns = (effort.point_cap / recorded::PASS_PART).as_nanos().try_into().unwrap_or(u64::MAX);
        let logs = &request.recorded;
        let recorded = Recorded::prepare(logs, target, &job.iolog, effort.depth, cut_ns, request.allow_writes)?;
        self.name = recorded.named();
        if !asked.iter().any(|setting| ["direct", "buffered"].contains(&setting.option.name)) {
            self.direct_refused = !recorded.files().all(scratch::takes_direct);
            self.not_direct = if self.direct_refused { None } else { recorded.not_direct() };
            let buffered = self.direct_refused || self.not_direct.is_some();
            self.settings.push(setting("direct", if buffered { "0" } else { "1" }));
        }
        self.recorded = Some(recorded);
        Ok(())
    }

    /// The application that is replayed in place of a workload.
    pub(super) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_ref()
    }

    /// Scratch files of killed sweeps that were removed, with their sizes in bytes.
    pub fn removed(&self) -> &[(PathBuf, u64)] {
        self.scratch.as_ref().map_or(&[], |(scratch, _)| &scratch.removed)
    }

    /// The job that lays out the scratch file; None when there is nothing to lay out.
    ///
    /// # Errors
    /// See [`Workload::plan`].
    pub fn layout(&self) -> Result<Option<Plan>, Error> {
        let Some((scratch, bytes)) = &self.scratch else { return Ok(None) };
        let direct = if scratch::takes_direct(scratch.path()) { "1" } else { "0" };
        let settings = [
            filename(&[scratch.path().to_path_buf()]),
            setting("size", &bytes.to_string()),
            setting("rw", "write"),
            setting("bs", &bytes.min(&(1 << 20)).to_string()),
            setting("ioengine", best_engine()),
            setting("iodepth", "8"),
            setting("direct", direct),
            setting("refill_buffers", "1"), // drives that compress or deduplicate would not store it otherwise
            setting("fallocate", "none"),
            setting("end_fsync", "1"),
        ];
        let mut plan = self.plan_of(settings.to_vec())?;
        for job in &mut plan.jobs {
            job.name = "layout".into();
            job.time.runtime_ns = Some(LAYOUT_CAP_NS);
        }
        Ok(Some(plan))
    }

    /// The plans of the target's preconditioning, in rounds of `round_ns` at `depth`.
    ///
    /// # Errors
    /// A bad option.
    pub fn precondition(&self, round_ns: u64, depth: u32) -> Result<Plans, Error> {
        let mut engine = None;
        for name in &self.engines {
            if !Maker::find(name)?.spec.diskless {
                engine.get_or_insert_with(|| name.clone());
            }
        }
        let Some(engine) = engine else {
            let what = format!("--precondition with the engine {}", self.engines.join(", "));
            return Err(Error::usage("there is nothing to fill:", what, "it has no storage: name one that has"));
        };
        // The place alone: neither the rate nor the pauses of the workload slow the fill.
        const PLACE: [&str; 6] = ["filename", "offset", "size", "filesize", "direct", "buffered"];
        let place = || self.settings.iter().filter(|setting| PLACE.contains(&setting.option.name)).cloned();
        // Options of the engine say how the place is reached, and as whom; these say how requests are written.
        const OF_WRITES: [&str; 5] = ["write_mode", "sg_write_mode", "deac", "readfua", "writefua"];
        let of_engine = |setting: &&Setting| {
            setting.option.engines().contains(&engine.as_str()) && !OF_WRITES.contains(&setting.option.name)
        };
        let reached = self.settings.iter().filter(of_engine).cloned();
        let whole = |rw: &str, bs: &str, engine: &str, more: Vec<Setting>| {
            let own =
                [setting("rw", rw), setting("bs", bs), setting("ioengine", engine), setting("refill_buffers", "1")];
            self.plan_of(place().chain(more).chain(own).collect())
        };
        let job = self.job()?;
        let target =
            place().filter(|setting| setting.option.name == "filename").filter_map(|setting| setting.value).next_back();
        let is_device = |path: &String| {
            let found = std::fs::metadata(path.replace("\\:", ":"));
            found.is_ok_and(|metadata| metadata.file_type().is_block_device())
        };
        let purge = match target.as_ref().is_some_and(is_device) {
            true => Ok(whole("trim", "16m", "psync", Vec::new())?),
            false => Err("only a block device can be purged".into()),
        };
        let mut fill = whole("write", "128k", &engine, reached.collect())?;
        for job in &mut fill.jobs {
            job.time.loops = FILLS.into();
            job.queue.depth = depth;
        }
        let mut settings = self.settings.clone();
        settings.push(setting("ioengine", &engine));
        let synchronous = Maker::find(&engine)?.spec.synchronous;
        // One request in flight for each thread.
        settings.push(setting(if synchronous { "numjobs" } else { "iodepth" }, &depth.to_string()));
        let writes = job.rw.directions.write;
        if !writes {
            // Reads do not change the state of a drive.
            settings.push(setting("rw", "randwrite"));
        }
        let mut round = self.plan_of(settings)?;
        for job in &mut round.jobs {
            (job.time.runtime_ns, job.time.time_based) = (Some(round_ns), true);
            (job.process.group_reporting, job.process.thread, job.files.unlink) = (true, true, false);
        }
        let rw = settings_rw(&round);
        Ok(Plans { purge, fill, round, rw })
    }

    /// Takes note of how much was laid out.
    ///
    /// # Errors
    /// The error of cutting the file to that size.
    pub fn laid_out(&mut self, written: u64) -> Result<(), Error> {
        if let Some((scratch, bytes)) = &mut self.scratch {
            *bytes = written.min(*bytes);
            scratch.truncate(*bytes)?;
            self.settings.push(setting("size", &bytes.to_string()));
        }
        Ok(())
    }

    /// The plan of one measurement of `runtime_ns`.
    ///
    /// An engine that can have only one op in flight gets its depth from that many threads.
    ///
    /// # Errors
    /// A bad option.
    pub fn plan(&self, spot: &Spot, runtime_ns: u64) -> Result<Plan, Error> {
        let mut settings = self.settings.clone();
        settings.push(setting("ioengine", &spot.engine));
        let spec = Maker::find(&spot.engine)?.spec;
        if spec.synchronous {
            settings.push(setting("iodepth", "1"));
            settings.push(setting("numjobs", &spot.depth.to_string()));
        } else {
            settings.push(setting("iodepth", &spot.depth.to_string()));
        }
        settings.extend(spot.options.iter().map(|(name, value)| setting(name, value)));
        let mut plan = self.plan_of(settings)?;
        for job in &mut plan.jobs {
            job.time.runtime_ns = Some(runtime_ns); // counted after the ramp, as fio does
            job.time.time_based = true;
            job.time.ramp_ns = RAMP_NS;
            // An open loop counts its backlog from the ramp on: a queue that grows has no generation.
            let is_open_loop =
                [job.rate.iops, job.rate.bytes].iter().any(|rates| rates.iter().any(|(_, rate)| rate.is_some()));
            job.time.window = (!is_open_loop).then_some(Window { extends: job.process.clones == 1 });
            job.process.group_reporting = true;
            job.process.thread = true;
            job.files.unlink = false;
            if spec.diskless && job.extent.file_size.is_none() {
                // No file tells how large it is.
                job.extent.size.get_or_insert(NO_FILE);
            }
            // Another sequence at each visit: the same one would find its blocks in the drive's cache, and the same
            // random arrivals would make visits agree that do not.
            job.pattern.seed = job.pattern.seed.wrapping_add(spot.number);
            if let Some(recorded) = &self.recorded {
                // Whole passes: every visit does the same work, and the speed decides how long it takes.
                job.iolog.threads = Some(recorded.replayed(RAMP_NS, runtime_ns));
                job.queue.depth = recorded.depth().try_into().unwrap_or(u32::MAX);
                job.time.window = None;
                (job.time.runtime_ns, job.time.time_based) = (Some(recorded::PASS_MOST_NS.max(2 * runtime_ns)), false);
                job.time.ramp_ns = 0;
            }
        }
        Ok(plan)
    }

    /// The plan of slices in one run, at most as deep as the spot.
    ///
    /// # Errors
    /// A bad option.
    pub fn plan_in_slices(&self, spot: &Spot, slices: &[Slice]) -> Result<Plan, Error> {
        let mut plan = self.plan(spot, 0)?;
        for job in &mut plan.jobs {
            (job.time.ramp_ns, job.time.runtime_ns) = (SETTLE_NS, None);
            job.time.slices = slices
                .iter()
                .map(|slice| job::job::Slice {
                    depth: slice.x as u32,
                    measured_ns: slice.measured_ns,
                    patience_ns: slice.patience_ns,
                })
                .collect();
        }
        Ok(plan)
    }

    /// True if the depth of the spot's job can change while its load goes on.
    ///
    /// # Errors
    /// A bad option.
    pub fn changes_in_place(&self, spot: &Spot) -> Result<bool, Error> {
        let plan = self.plan(spot, 0)?;
        let alone = |job: &Job| job.process.clones == 1 && !job.queue.offload && job.rate.latency_target.is_none();
        let [job] = &plan.jobs[..] else { return Ok(false) };
        Ok(alone(job) && job.time.window.is_some() && IN_PLACE.contains(&job.engine.as_str()))
    }

    /// The plan with the null engine in place of the spot's, which shows the speed of the generator alone.
    ///
    /// # Errors
    /// A bad option.
    pub fn ceiling(&self, spot: &Spot, runtime_ns: u64) -> Result<Plan, Error> {
        let mut plan = self.plan(spot, runtime_ns)?;
        for job in &mut plan.jobs {
            job.engine = "null".into();
            job.files.names.clear();
            job.files.direct = false;
            job.extent.size.get_or_insert(NO_FILE);
            // Pauses would be the ceiling.
            job.iolog.time_scale_percent = u32::MAX;
            // A rate would be the ceiling, and take the blame for the storage.
            (job.rate.iops, job.rate.bytes) = Default::default();
        }
        Ok(plan)
    }

    /// The options that offer `total` ops (or bytes) per second, in the mix of the workload.
    ///
    /// # Errors
    /// A bad option.
    pub fn offered(&self, by_bytes: bool, total: u64) -> Result<(String, String), Error> {
        let job = self.job()?;
        let mix = f64::from(job.pattern.mix_read) / 100.0;
        let block = |direction| {
            let (smallest, largest) = job.blocks.range[direction];
            if by_bytes { (smallest + largest) as f64 / 2.0 } else { 1.0 }
        };
        let both = job.rw.directions.read && job.rw.directions.write;
        let value = if both {
            let (reads, writes) = (mix * block(Direction::Read), (1.0 - mix) * block(Direction::Write));
            let part = reads / (reads + writes);
            let of_reads = ((total as f64 * part).round() as u64).clamp(1, total.max(2) - 1);
            match part {
                // A rate of 1 would add an op a second; a rate of 0 leaves the direction to the mix.
                0.0 => format!("0,{total}"),
                1.0 => format!("{total},0"),
                _ => format!("{of_reads},{}", (total - of_reads.min(total)).max(1)),
            }
        } else {
            total.to_string()
        };
        Ok((if by_bytes { "rate" } else { "rate_iops" }.into(), value))
    }

    /// The one job that the settings make.
    fn job(&self) -> Result<Job, Error> {
        let mut settings = self.settings.clone();
        if !settings.iter().any(|setting| ["size", "filesize"].contains(&setting.option.name)) {
            settings.push(setting("size", "1m")); // not known yet, and nothing else depends on it
        }
        if let Some(engine) = self.engines.first() {
            settings.push(setting("ioengine", engine));
        }
        self.plan_of(settings)?.jobs.into_iter().next().ok_or_else(|| Error {
            kind: ErrorKind::Internal,
            what: "a sweep has no job".into(),
            place: String::new(),
            hint: String::new(),
            source: None,
        })
    }

    fn plan_of(&self, settings: Vec<Setting>) -> Result<Plan, Error> {
        let section = Section { name: "sweep".into(), place: Place::CommandLine, settings };
        let mut invocation = Invocation {
            command_line: Source { sections: vec![section], ..Source::default() },
            ..Invocation::default()
        };
        invocation.run.allow = self.allow;
        invocation.plan().map_err(|error| Error::usage(error.to_string(), "", ""))
    }
}

/// The files that a sweep reads or measures, as far as its options name them.
pub fn files_of(request: &Request) -> Vec<PathBuf> {
    let mut files = [&request.job.files[..], &request.recorded[..]].concat();
    let mut settings = settings_of(&request.job).unwrap_or_default();
    settings.push(setting("size", "1m")); // not known yet, and no name depends on it
    let section = Section { name: "sweep".into(), place: Place::CommandLine, settings };
    let source = Source { sections: vec![section], ..Source::default() };
    let job = Invocation { command_line: source, ..Invocation::default() };
    files.extend(job.plan().iter().flat_map(crate::paths_of));
    files
}

/// The options of the one job of a command line.
fn settings_of(invocation: &Invocation) -> Result<Vec<Setting>, Error> {
    if let [_, second, ..] = &invocation.files[..] {
        return Err(Error::usage(
            "a sweep takes one TARGET, not also",
            second.display().to_string(),
            "sweep one after the other, then `plimsoll report` both results",
        ));
    }
    let settings: Vec<Setting> =
        invocation.command_line.sections.iter().flat_map(|section| section.settings.clone()).collect();
    match settings.iter().find(|setting| OURS.contains(&setting.option.name)) {
        Some(setting) => {
            let hint = "the sweep decides that itself: see --iodepth, --time and --point-time";
            Err(Error::usage("not for a sweep:", format!("--{}", setting.option.name), hint))
        }
        None if invocation.command_line.sections.iter().filter(|section| !section.is_global()).count() > 1 => {
            Err(Error::usage("a sweep takes the options of one job", "", "give --name once or not at all"))
        }
        None => Ok(settings),
    }
}

/// Refuses options that an axis sets, and workloads that an axis does not suit.
fn check_axes(asked: &[Setting], request: &Request, effort: &Effort) -> Result<(), Error> {
    let axes = || effort.axes();
    if let Some(twice) = axes().find(|axis| asked.iter().any(|setting| setting.option.name == axis.name())) {
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
        let count = |name: &str| asked.iter().any(|setting| setting.option.name == name);
        let given = ["rate", "rate_iops", "numjobs", "latency_target", "pace"].into_iter().find(|name| count(name));
        if let Some(name) = given.or_else(|| axes().any(|axis| axis.role() == Role::Clones).then_some("numjobs")) {
            let hint = "the axis is the load of one clone, and of nothing that slows it down: leave the option out";
            return Err(Error::usage("not with an axis of rates:", name, hint));
        }
    }
    Ok(())
}

/// Refuses sizes that the target does not have: the point would name a size, and measure another one.
fn check_sizes(targets: &[PathBuf], job: &Job, effort: &Effort) -> Result<(), Error> {
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
fn check_extent(targets: &[PathBuf], job: &Job, given: &dyn Fn(&str) -> bool) -> Result<(), Error> {
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
        && given("size")
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

/// Options that the axes need: arrivals at random, and a scratch file as large as the largest size.
fn wanted_by(effort: &Effort, asked: &[Setting]) -> Vec<Setting> {
    let given = |name: &str| asked.iter().any(|setting| setting.option.name == name);
    let mut out = Vec::new();
    if effort.axes().any(Axis::is_rate) && !given("rate_process") {
        out.push(setting("rate_process", "poisson"));
    }
    let sizes = effort.axes().find(|axis| axis.name() == "size").and_then(Axis::values);
    out.extend(sizes.and_then(|values| values.asked().pop()).map(|most| setting("size", &most.to_string())));
    out
}

/// Options that would be overridden: to take them in silence would mislead.
pub(super) const OURS: [&str; 9] =
    ["iodepth", "runtime", "time_based", "ramp_time", "ramp_size", "read_iolog", "unlink", "stonewall", "loops"];

/// Options of a workload, which a recording has already.
const RECORDED: [&str; 24] = [
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

fn setting(name: &str, value: &str) -> Setting {
    let option = options::find(name).unwrap_or_else(|| panic!("{name} is in the table of options"));
    Setting { option, value: Some(value.into()), place: Place::CommandLine }
}

/// The pattern of a plan of one job, as its options name it.
fn settings_rw(plan: &Plan) -> String {
    let options = plan.jobs.first().map(|job| job.options.as_slice()).unwrap_or_default();
    options.iter().rev().find(|(name, _)| name == "rw").map_or_else(|| "read".into(), |(_, value)| value.clone())
}

/// `filename=` of all paths, their colons escaped.
fn filename(paths: &[PathBuf]) -> Setting {
    setting("filename", &paths.iter().map(|path| place(path).replace(':', "\\:")).collect::<Vec<_>>().join(":"))
}

/// The paths from the root on, as far as they exist: an address of a volume stays as it is.
fn absolute(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())).collect()
}

/// The path as errors and results name it.
fn place(path: &Path) -> String {
    path.display().to_string()
}

/// The best engine that works here.
pub fn best_engine() -> &'static str {
    chosen_engine().0
}

/// The best engine that works here; and the one that it replaces, with the reason.
fn chosen_engine() -> (&'static str, Option<(&'static str, String)>) {
    let mut replaced = None;
    for name in PREFERRED {
        match if name == "io_uring" { sys::ring::Setup::new(8).build().map(drop) } else { Ok(()) } {
            Ok(()) => return (name, replaced),
            Err(error) => {
                replaced.get_or_insert((name, error.to_string()));
            }
        }
    }
    ("psync", replaced)
}

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

fn refused(place: String, hint: &str) -> Error {
    Error { kind: ErrorKind::Refused, what: "refused to write to".into(), place, hint: hint.into(), source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&str]) -> Request {
        let words: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
        Request { job: job::parse_command_line(&words).unwrap(), ..Request::default() }
    }

    fn spot(engine: &str, depth: u32) -> Spot {
        Spot { engine: engine.into(), depth, ..Spot::default() }
    }

    fn prepared(words: &[&str]) -> Result<Workload, Error> {
        Workload::prepare(&request(words), &Effort::default(), &Doomed::default())
    }

    #[test]
    fn a_point_has_the_users_options_and_the_depth() {
        let directory = tempfile::tempdir().unwrap();
        let mut workload =
            prepared(&["--bs=8k", "--rwmixread=30", "--rw", "randrw", directory.path().to_str().unwrap()]).unwrap();
        workload.laid_out(1 << 20).unwrap();
        let plan = workload.plan(&spot("null", 32), 700).unwrap();
        let job = &plan.jobs[0];
        assert_eq!((job.engine.as_str(), job.queue.depth, job.process.clones), ("null", 32, 1));
        assert_eq!((job.blocks.range.read, job.pattern.mix_read, job.rw.random), ((8192, 8192), 30, true));
        assert_eq!((job.time.runtime_ns, job.time.time_based), (Some(700), true));
        assert_eq!(job.extent.size, Some(Amount::Bytes(1 << 20)));
        assert!(job.files.names[0].contains("plimsoll-scratch"));
    }

    #[test]
    fn a_synchronous_engine_gets_its_depth_from_threads() {
        let directory = tempfile::tempdir().unwrap();
        let mut workload = prepared(&[directory.path().to_str().unwrap()]).unwrap();
        workload.laid_out(1 << 20).unwrap();
        let job = workload.plan(&spot("psync", 16), 1).unwrap().jobs.remove(0);
        assert_eq!((job.queue.depth, job.process.clones, job.process.thread), (1, 16, true));
    }

    #[test]
    fn the_options_of_a_spot_go_before_those_of_the_user() {
        let workload = prepared(&["--ioengine=null", "--bs=8k"]).unwrap();
        let spot = Spot { options: vec![("bs".into(), "16384".into())], number: 3, ..spot("null", 1) };
        let (job, other) = (workload.plan(&spot, 1).unwrap(), workload.plan(&Spot { number: 4, ..spot }, 1).unwrap());
        assert_eq!(job.jobs[0].blocks.range.read, (16384, 16384));
        assert_ne!(job.jobs[0].pattern.seed, other.jobs[0].pattern.seed, "each visit draws its own arrivals");
    }

    #[test]
    fn an_offered_load_is_split_by_the_mix() {
        let offered = |words: &[&str], by_bytes, total| prepared(words).unwrap().offered(by_bytes, total).unwrap().1;
        assert_eq!(offered(&["--ioengine=null"], false, 1000), "1000");
        assert_eq!(offered(&["--ioengine=null", "--rw=randrw", "--rwmixread=70"], false, 1000), "700,300");
        // Half of the ops, each four times as large, are four fifths of the bytes.
        assert_eq!(offered(&["--ioengine=null", "--rw=randrw", "--bs=16k,4k"], true, 1000), "800,200");
        assert_eq!(offered(&["--ioengine=null", "--rw=randrw", "--rwmixread=100"], false, 10), "10,0");
    }

    #[test]
    fn an_engine_without_files_needs_no_target() {
        let workload = prepared(&["--ioengine=null"]).unwrap();
        assert_eq!((workload.name.as_str(), workload.layout().unwrap().is_none()), ("no storage", true));
        assert_eq!(workload.plan(&spot("null", 8), 1).unwrap().jobs[0].extent.size, Some(Amount::Bytes(1 << 30)));
    }

    #[test]
    fn an_engine_without_files_beside_one_with_a_file_has_a_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let workload = prepared(&["--ioengine=psync", file.path().to_str().unwrap()]).unwrap();
        let size = |engine| workload.plan(&spot(engine, 4), 1).unwrap().jobs[0].extent.size;
        assert_eq!((size("psync"), size("null")), (None, Some(NO_FILE)));
    }

    #[test]
    fn what_the_sweep_would_override_is_refused() {
        for words in [&["--runtime=5"][..], &["--name=a", "--name=b"], &["a", "b"]] {
            assert!(prepared(words).err().is_some_and(|error| error.kind == ErrorKind::Usage), "{words:?}");
        }
    }

    #[test]
    fn files_that_were_there_are_not_written_to_without_permission() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let path = file.path().to_str().unwrap();
        let error = prepared(&[path, "--rw=write"]).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.to_string().contains("--allow-writes"));
        let mut request = request(&[path, "--rw=write"]);
        request.allow_writes = true;
        assert!(Workload::prepare(&request, &Effort::default(), &Doomed::default()).is_ok());
        assert!(prepared(&[path]).is_ok(), "reads need none");
    }
}
