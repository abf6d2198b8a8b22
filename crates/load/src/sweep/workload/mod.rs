//! The workload that a sweep runs at each point: the user's job options over the defaults, on one target.

mod prepare;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use job::job::{Allow, Amount, Plan, Window};
use job::source::{Section, Setting, Source};
use job::{Invocation, Job, Place, options};
use measure::Direction;
use measure::slices::{SETTLE_NS, Slice};
use measure::verdict::{self, Verdict};

use super::Effort;
use super::crew::Spot;
use super::precondition::{FILLS, Plans};
use super::recorded::{self, Recorded};
use super::refusals::OURS;
use super::resume::Resume;
use super::scratch::{self, Scratch};
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
    /// The application that is replayed in place of a workload.
    pub(super) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_ref()
    }

    /// The effort with the depth of the recording, if one is replayed.
    pub(super) fn suit(&self, effort: &Effort) -> Effort {
        let depth = self.recorded().map(|recorded| recorded.depth().try_into().unwrap_or(u32::MAX));
        Effort { depth: depth.or(effort.depth), ..effort.clone() }
    }

    /// The verdicts on the way in which the target is measured.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        let not_direct = self.direct_refused.then(|| verdict::no_direct_io(&self.name));
        let replayed = self.not_direct.as_ref().map(|request| verdict::replay_not_direct(request));
        let replaced = self.engine_replaced.as_ref();
        let replaced = replaced.map(|(wanted, why)| verdict::engine_replaced(wanted, &self.engines[0], why));
        [not_direct, replayed, replaced].into_iter().flatten().collect()
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
pub(super) fn place(path: &Path) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::scratch::Doomed;

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
