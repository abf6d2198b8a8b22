//! The way from written settings to validated jobs: defaults, inheritance, and the effects of options on each other.

mod peers;
mod precondition;
mod priorities;
mod steady;
mod waiting;
mod without_data;
mod working_set;
mod zones;

use std::collections::BTreeMap;
use std::path::PathBuf;

use measure::{Direction, PerDirection};

use crate::engines::{self, EngineSpec};
use crate::error::{Error, Place};
use crate::job::*;
use crate::lint;
use crate::options::{self, Each, OptionSpec, Reader, Status, ValueKind, values};
use crate::source::{Section, Setting, Source};
use priorities::CommandPriority;
use without_data::CpuLoad;
use working_set::Dedupe;

/// Conditions that the whole run imposes on its jobs.
#[derive(Clone, Debug, Default)]
pub struct Imposed {
    /// Refuse jobs that write (`--readonly`).
    pub read_only: bool,
    /// Treat warnings as errors (`--warnings-fatal`); where the text is read as fio reads it, those that fio has too.
    pub warnings_fatal: bool,
    /// Sections to run; all if empty.
    pub sections: Vec<String>,
    /// The number of the command line's sections that run in any case, as in fio.
    pub before_sections: usize,
    /// The refusals that the command line overrides.
    pub allow: Allow,
    /// The engine of all jobs, whatever they say.
    pub engine: Option<String>,
    /// Jobs that verify and write save their state unless they say otherwise.
    pub saves_state: bool,
    /// Directory of the files with verify states.
    pub state_directory: Option<PathBuf>,
    /// True if the text is read as fio reads it: what follows a number is ignored where fio ignores it.
    pub lenient: bool,
    /// True if a plan may have no job: fio reads options alone with `--parse-only`.
    pub may_lack_jobs: bool,
}

/// A job in the making: options set one by one, in the order in which they were written.
#[derive(Clone)]
pub struct Draft {
    pub(crate) job: Job,
    pub(crate) block: Each<u64>,
    pub(crate) block_range: Each<(u64, u64)>,
    pub(crate) align: Each<u64>,
    pub(crate) zone_mode: Option<String>,
    pub(crate) cpu: CpuLoad,
    pub(crate) dedupe: Dedupe,
    pub(crate) command_priority: CommandPriority,
    pub(crate) zones: Zones,
    pub(crate) zone_skip: u64,
    pub(crate) zoned: Zoned,
    pub(crate) low: Option<u32>,
    pub(crate) seed_given: bool,
    pub(crate) refill_given: bool,
    pub(crate) priority: (Option<u8>, Option<u8>),
    pub(crate) priority_hint: Option<u16>,
    pub(crate) latency: LatencyGoal,
    pub(crate) flow: Flow,
    pub(crate) verify: Verify,
    pub(crate) precondition: Precondition,
    pub(crate) precondition_wanted: bool,
    pub(crate) verify_kind: Option<VerifyKind>,
    pub(crate) verify_given: bool,
    pub(crate) saves_state: Option<bool>,
    pub(crate) steady: Option<SteadyState>,
    pub(crate) steady_window_ns: u64,
    pub(crate) steady_ramp_ns: u64,
    pub(crate) steady_interval_ns: u64,
    /// The last setting of each option, by its canonical name, and whether the job itself made it.
    set: BTreeMap<&'static str, (Setting, bool)>,
    /// True while the settings are the job's own and meant for its own engine; false while they come from a global
    /// section, or another engine is imposed.
    own: bool,
    /// File and line of the section's heading.
    section: Place,
    /// See [`Imposed::lenient`].
    lenient: bool,
    warnings: Vec<String>,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft {
            job: Job::default(),
            block: PerDirection::default(),
            block_range: PerDirection::default(),
            align: PerDirection::default(),
            zone_mode: None,
            command_priority: CommandPriority::default(),
            dedupe: Dedupe { from_set: false, percent: 5, global: false },
            cpu: CpuLoad { load_percent: None, chunk_ns: 50_000_000 },
            zones: Zones { size: 0, range: 0, skip: 0 },
            zone_skip: 0,
            zoned: Zoned::default(),
            low: None,
            seed_given: false,
            refill_given: false,
            priority: (None, None),
            priority_hint: None,
            latency: LatencyGoal { target_ns: 0, window_ns: 0, percentile: 100.0, run: false },
            flow: Flow { id: 0, weight: 0, sleep_ns: 0 },
            verify: Verify::default(),
            precondition: Precondition { over_provisioning: 0.15, regions: 100, cache_bytes: 0 },
            precondition_wanted: false,
            verify_kind: None,
            verify_given: false,
            saves_state: None,
            steady: None,
            steady_window_ns: 0,
            steady_ramp_ns: 0,
            steady_interval_ns: values::STEADY_INTERVAL_NS,
            set: BTreeMap::new(),
            own: false,
            section: Place::CommandLine,
            lenient: false,
            warnings: Vec::new(),
        }
    }
}

impl Draft {
    /// The amount; None for 0 bytes, which is as good as an option that is not given.
    pub(crate) fn nonzero(&self, amount: Amount) -> Option<Amount> {
        Some(amount).filter(|amount| !matches!(amount, Amount::Bytes(0)))
    }

    /// An option that only its engine understands.
    pub(crate) fn other(&mut self, name: &str, value: &str) {
        self.job.ring.other.retain(|(known, _)| known != name);
        self.job.ring.other.push((name.into(), value.into()));
    }

    /// Names of files: called as `fio`, further ones; else in place of earlier ones.
    pub(crate) fn name_files(&mut self, names: Vec<String>) {
        if self.lenient {
            self.job.files.names.extend(names);
        } else {
            self.job.files.names = names;
        }
    }

    /// Puts the directory that holds in the present section before the names that the section gives, as fio does: a
    /// `directory` of a later section is for the names of that section.
    fn place_files(&mut self, first: usize) {
        let files = &mut self.job.files;
        files.are_placed = true;
        if let Some(directory) = files.directories.first() {
            let directory = directory.trim_end_matches('/');
            files.names[first..].iter_mut().for_each(|name| *name = format!("{directory}/{name}"));
        }
    }

    /// True if the option was set, here or in a global section.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    /// The setting that holds, if the option was set.
    pub(crate) fn setting(&self, name: &str) -> Option<&Setting> {
        self.set.get(name).map(|(setting, _)| setting)
    }

    /// File and line of the option, or of the section's heading if the section does not set it.
    pub(crate) fn place(&self, name: &str) -> &Place {
        self.setting(name).map_or(&self.section, |setting| &setting.place)
    }

    /// The option as it was written, or its name.
    pub(crate) fn written(&self, name: &str) -> String {
        self.setting(name).map_or_else(|| name.to_string(), Setting::written)
    }

    pub(crate) fn warn(&mut self, place: &Place, text: impl AsRef<str>) {
        let warning = format!("{place}: {}", text.as_ref());
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Warns at the place of the option.
    pub(crate) fn warn_at(&mut self, name: &str, text: impl AsRef<str>) {
        let place = self.place(name).clone();
        self.warn(&place, text);
    }

    pub(crate) fn fail<T>(&self, name: &str, what: impl Into<String>, hint: &str) -> Result<T, Error> {
        Err(Error::new(self.place(name), what).hint(hint))
    }

    /// Applies the settings of the section. `kb_base` and its like go first: they decide how the other settings are
    /// read, or name what Plimsoll lacks better than an option that goes with them.
    fn take(&mut self, section: &Section) -> Result<(), Error> {
        self.section = section.place.clone();
        // fio reads a command line in its order, and sorts the options of job files only.
        let in_turn = self.lenient && section.place == Place::CommandLine;
        let early = |setting: &&Setting| match setting.option.name {
            "kb_base" => !in_turn,
            name => matches!(name, "unit_base" | "ioengine" | "zonemode" | "zonesize"),
        };
        let settings = &section.settings;
        let mut in_order = settings.iter().filter(early).chain(settings.iter().filter(|setting| !early(setting)));
        let earlier_names = self.job.files.names.clone();
        // If Plimsoll does not have the engine, the error names the engine, not one of its options.
        in_order
            .try_for_each(|setting| self.set(setting))
            .map_err(|error| self.known_engine().err().unwrap_or(error))?;
        if self.lenient {
            self.place_files(earlier_names.len());
        } else if !earlier_names.is_empty() && self.job.files.names != earlier_names {
            let earlier = earlier_names.join(":");
            self.warn_at("filename", format!("filename replaces {earlier} of an earlier section; fio uses both"));
        }
        Ok(())
    }

    fn set(&mut self, setting: &Setting) -> Result<(), Error> {
        let option = setting.option;
        let value = setting.value.as_deref().map(str::trim);
        match option.status {
            Status::Supported => self.set_supported(setting, value)?,
            Status::NoEffect(reason) => {
                if value != Some(option.default) {
                    self.warn(&setting.place, format!("{} has no effect: {reason}", setting.written()));
                }
                self.set_supported(setting, value)?;
            }
            Status::Unsupported(reason) => {
                if value != Some(option.default) || option.default.is_empty() {
                    return Err(
                        Error::new(&setting.place, format!("unsupported option {}", setting.written())).hint(reason)
                    );
                }
            }
        }
        self.set.insert(option.name, (setting.clone(), self.own));
        Ok(())
    }

    /// Sets an option last, whatever the job says.
    fn impose(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match crate::options::find(name) {
            Some(option) => self.set(&Setting { option, value: Some(value.into()), place: Place::CommandLine }),
            None => Ok(()),
        }
    }

    fn set_supported(&mut self, setting: &Setting, value: Option<&str>) -> Result<(), Error> {
        let fresh = Reader::new(self.job.reporting.kb_base);
        let mut reader = Reader { lenient: self.lenient, zone_bytes: self.zones.size, ..fresh };
        let wrong = |message: String| Error::new(&setting.place, format!("{}: {message}", setting.written()));
        apply(self, &mut reader, setting.option, value).map_err(wrong)?;
        for difference in reader.differences {
            self.warn(&setting.place, format!("{}: {difference}", setting.option.name));
        }
        Ok(())
    }

    /// The job, if everything fits together.
    fn finish(mut self, imposed: &Imposed) -> Result<(Job, Vec<String>), Error> {
        self.job.errors.as_fio = imposed.lenient;
        self.job.files.makes_directories = imposed.lenient;
        self.engine()?;
        self.blocks()?;
        self.extent()?;
        self.atomic()?;
        self.names();
        self.without_data()?;
        peers::check(&mut self)?;
        self.zones()?;
        self.queue();
        self.pattern();
        self.precondition()?;
        self.rate()?;
        self.time()?;
        self.buffers();
        self.working_set()?;
        self.verify(imposed)?;
        self.check_zoned()?;
        self.reporting();
        let changes_names = matches!(self.job.engine.as_str(), "filecreate" | "filedelete" | "dircreate" | "dirdelete");
        let reserves = matches!(self.job.engine.as_str(), "falloc");
        let writes = self.job.rw.directions.write || self.job.rw.directions.trim || changes_names || reserves;
        if imposed.read_only && writes {
            return self.fail(
                "rw",
                format!("job {} writes, and --readonly forbids that", self.job.name),
                "leave one of them out",
            );
        }
        if imposed.read_only && self.verify.trims.percent > 0 {
            return self.fail(
                "trim_percentage",
                format!("job {} trims, and --readonly forbids that", self.job.name),
                "leave one of them out",
            );
        }
        self.job.files.read_only = imposed.read_only;
        self.job.allow.mounted_write |= imposed.allow.mounted_write;
        self.job.allow.signature_write |= imposed.allow.signature_write;
        if (self.priority, self.priority_hint) != ((None, None), None) {
            // ioprio_set(2) knows no level without a class; fio takes best effort then.
            let class = self.priority.0.filter(|class| *class != 0).unwrap_or(2);
            self.job.process.io_priority = Some((class, self.priority.1.unwrap_or(0)));
            self.job.process.io_priority_hint = self.priority_hint.unwrap_or(0);
        }
        self.request_priorities()?;
        lint::job(&mut self);
        Ok((self.job, self.warnings))
    }

    /// The row of the job's engine, if Plimsoll has it.
    fn known_engine(&self) -> Result<&'static EngineSpec, Error> {
        let name = self.job.engine.clone();
        if let Some(engine) = engines::find(&name) {
            return Ok(engine);
        }
        let base = name.split(':').next().unwrap_or_default();
        let all = || format!("engines: {}", engines::names());
        match options::did_you_mean(&name, engines::ENGINES.iter().flat_map(EngineSpec::names)) {
            _ if engines::is_missing(base) => self.fail("ioengine", format!("unsupported engine {name}"), &all()),
            Some(meant) => self.fail("ioengine", format!("unknown engine {name}"), &format!("did you mean {meant}?")),
            None => self.fail("ioengine", format!("unknown engine {name}"), &all()),
        }
    }

    fn engine(&mut self) -> Result<(), Error> {
        let engine = self.known_engine()?;
        let name = engine.name;
        let is_foreign = |option: &str| !engine.options.contains(&option) && !engines::with_option(option).is_empty();
        let foreign: Vec<(Setting, bool)> =
            self.set.values().filter(|(setting, _)| is_foreign(setting.option.name)).cloned().collect();
        for (setting, own) in foreign {
            let engines = setting.option.engines().join(", ");
            if own {
                return Err(Error::new(
                    &setting.place,
                    format!("{} is not an option of the engine {name}", setting.written()),
                )
                .hint(format!("it belongs to {engines}")));
            }
            let job = self.job.name.clone();
            self.warn(
                &setting.place,
                format!(
                    "{} has no effect on job {job}: it belongs to {engines}, and the job's engine is {name}",
                    setting.written()
                ),
            );
        }
        Ok(())
    }

    fn blocks(&mut self) -> Result<(), Error> {
        let fixed = PerDirection::from_fn(|direction| self.block[direction].unwrap_or(4096));
        for direction in Direction::ALL {
            let split = &self.job.blocks.split[direction];
            let sizes = || split.iter().map(|(size, _)| *size);
            self.job.blocks.range[direction] = match (sizes().min(), sizes().max()) {
                (Some(smallest), Some(largest)) => (smallest, largest),
                _ => self.block_range[direction].unwrap_or((fixed[direction], fixed[direction])),
            };
            if self.job.blocks.range[direction].0 == 0 {
                return self.fail(
                    "bsrange",
                    format!("{}: a block has at least one byte", self.written("bsrange")),
                    "write as bsrange=1k-4k",
                );
            }
        }
        let (ranges, splits) = (&self.job.blocks.range, &self.job.blocks.split);
        if self.job.rw.trim_then_write && (ranges.write != ranges.trim || splits.write != splits.trim) {
            let what = "each write is as long as the trim before it: the size of writes has no effect on the job";
            self.warn_at("rw", format!("{}: {what}", self.written("rw")));
        }
        let random = self.job.rw.random;
        let smallest = PerDirection::from_fn(|direction| self.job.blocks.range[direction].0);
        let align = self.align;
        self.job.blocks.align =
            PerDirection::from_fn(|direction| align[direction].filter(|_| random).unwrap_or(smallest[direction]));
        let aligned_otherwise = self
            .job
            .rw
            .directions
            .iter()
            .any(|(direction, used)| *used && self.job.blocks.align[direction] != smallest[direction]);
        if aligned_otherwise && !self.job.pattern.no_random_map {
            self.job.pattern.no_random_map = true;
            self.warn_at("ba", "blockalign turns the random map off, as in fio: blocks may repeat and be missed");
        }
        Ok(())
    }

    fn extent(&mut self) -> Result<(), Error> {
        let used = self.job.rw.directions;
        let smallest = Direction::ALL
            .into_iter()
            .filter(|direction| used[*direction])
            .map(|direction| self.job.blocks.range[direction].0)
            .min();
        for (name, amount) in [("size", self.job.extent.size), ("io_size", self.job.extent.io_size)] {
            if let (Some(Amount::Bytes(bytes)), Some(block)) = (amount, smallest)
                && bytes < block
            {
                let hint =
                    if name == "size" { "a size without a unit is in bytes" } else { "nothing would be transferred" };
                return self.fail(name, format!("{} is less than the block size, {block}", self.written(name)), hint);
            }
        }
        if let Some((smallest, _)) = self.job.extent.file_size
            && smallest == 0
        {
            return self.fail(
                "filesize",
                format!("{}: a file has at least one byte", self.written("filesize")),
                "write as filesize=1m",
            );
        }
        if self.job.files.names.is_empty() && self.is_set("filename") {
            return self.fail("filename", "filename has no name in it", "write as filename=/path/to/file");
        }
        Ok(())
    }

    fn atomic(&self) -> Result<(), Error> {
        if self.job.ring.option("atomic") == Some("1") && !self.job.files.direct {
            return self.fail("atomic", "atomic=1 is for direct writes", "add direct=1");
        }
        Ok(())
    }

    /// Engines whose ops are calls on names: one op for each file, whatever sizes the job gives.
    fn names(&mut self) {
        if engines::find(&self.job.engine).is_some_and(|engine| engine.on_names) {
            let directions = self.job.rw.directions;
            let used = Direction::ALL.into_iter().filter(|&direction| directions[direction]);
            let block = used.map(|direction| self.job.blocks.range[direction].1).max().unwrap_or(1);
            let used = Direction::ALL.map(|direction| (direction, block));
            for (direction, block) in used {
                self.job.blocks.range[direction] = (block, block);
                self.job.blocks.split[direction].clear();
            }
            let extent = &mut self.job.extent;
            (extent.size, extent.file_size, extent.io_size) = (None, Some((block, block)), None);
        }
    }

    fn queue(&mut self) {
        let queue = &mut self.job.queue;
        let depth = queue.depth;
        queue.batch = if queue.batch == 0 { depth } else { queue.batch.min(depth) };
        queue.low = self.low.filter(|low| *low > 0).map_or(depth, |low| low.min(depth));
        queue.batch_complete_min = queue.batch_complete_min.min(depth);
        queue.batch_complete_max = queue.batch_complete_max.max(queue.batch_complete_min);
    }

    fn pattern(&mut self) {
        let pattern = &mut self.job.pattern;
        pattern.repeatable |= self.seed_given;
        let uniform = pattern.distribution.iter().all(|(_, distribution)| *distribution == Distribution::Uniform);
        let zoned = pattern.zones.iter().any(|(_, zones)| !zones.is_empty())
            || pattern.zones_absolute.iter().any(|(_, zones)| !zones.is_empty());
        // A skewed distribution hits some blocks again and again: coverage is not its purpose.
        pattern.no_random_map |= !uniform || zoned || !pattern.sequence.is_empty();
        if pattern.sequence_stride && pattern.sequence.is_empty() {
            self.warn_at(
                "random_sequence_stride",
                "random_sequence_stride has no effect without random_distribution=sequence",
            );
        }
    }

    fn rate(&mut self) -> Result<(), Error> {
        let rate = &self.job.rate;
        let any = |each: &PerDirection<Option<u64>>| each.iter().any(|(_, value)| value.is_some());
        if (any(&rate.bytes) && any(&rate.iops)) || (any(&rate.min_bytes) && any(&rate.min_iops)) {
            return self.fail("rate_iops", "rate and rate_iops exclude each other", "leave one of them out");
        }
        for direction in Direction::ALL {
            let exceeds = |least: Option<u64>, rate: Option<u64>| matches!((least, rate), (Some(least), Some(rate)) if least > rate);
            if exceeds(rate.min_bytes[direction], rate.bytes[direction])
                || exceeds(rate.min_iops[direction], rate.iops[direction])
            {
                let name = if self.is_set("rate_min") { "rate_min" } else { "rate_iops_min" };
                return self.fail(
                    name,
                    format!("{} is more than the rate itself", self.written(name)),
                    "the least rate lies below the rate",
                );
            }
        }
        let rate = &mut self.job.rate;
        rate.think_spin_ns = rate.think_spin_ns.min(rate.think_ns);
        rate.flow = Some(self.flow).filter(|flow| flow.weight > 0);
        if self.latency.target_ns > 0 {
            let window_ns = if self.latency.window_ns == 0 { 1_000_000_000 } else { self.latency.window_ns };
            rate.latency_target = Some(LatencyGoal { window_ns, ..self.latency });
            if self.latency.window_ns == 0 {
                self.warn_at(
                    "latency_target",
                    "latency_target without latency_window: each depth is tried for a second; add latency_window=5s",
                );
            }
        }
        Ok(())
    }

    fn time(&mut self) -> Result<(), Error> {
        if self.job.time.time_based && self.job.time.runtime_ns.is_none() {
            self.job.time.time_based = false;
            self.warn_at("time_based", lint::NO_RUNTIME);
        }
        if self.job.time.ramp_bytes > 0 && self.job.time.ramp_ns > 0 {
            return self.fail(
                "ramp_size",
                "ramp_size and ramp_time both say when measuring begins",
                "keep one of them",
            );
        }
        self.steady_state()
    }

    fn buffers(&mut self) {
        let reads = self.job.rw.directions.read;
        let refill_given = self.refill_given;
        let buffers = &mut self.job.buffers;
        if !buffers.pattern.is_empty() {
            // Reads overwrite the pattern in a buffer that is used again.
            buffers.refill = reads || buffers.compress_percent > 0;
            (buffers.scramble, buffers.zero) = (false, false);
        }
        if buffers.dedupe_percent > 0 {
            buffers.refill = true;
        }
        if buffers.compress_percent == 100 {
            // Nothing is left of a block but its compressible part: the pattern, or zeroes.
            (buffers.zero, buffers.compress_percent, buffers.dedupe_percent) = (buffers.pattern.is_empty(), 0, 0);
        } else if buffers.compress_percent > 0 || buffers.dedupe_percent > 0 {
            // As in fio, both go before zero_buffers.
            buffers.zero = false;
        }
        if buffers.compress_percent > 0 && !refill_given {
            buffers.refill = true;
        }
    }

    fn verify(&mut self, imposed: &Imposed) -> Result<(), Error> {
        // A pattern alone is reason enough to verify.
        let implied =
            (!self.verify_given && !self.verify.pattern.bytes.is_empty()).then_some(VerifyKind::PatternHeader);
        let Some(kind) = self.verify_kind.or(implied) else {
            if self.verify.only || self.verify.loads_state {
                let option = if self.verify.only { "verify_only" } else { "verify_state_load" };
                return self.fail(
                    option,
                    format!("{option} needs verify"),
                    "write verify=crc32c, or whatever the data were written with",
                );
            }
            if self.saves_state == Some(true) {
                self.warn_at("verify_state_save", "verify_state_save has no effect without verify");
            }
            if self.verify.trims.percent > 0 {
                self.warn_at("trim_percentage", "trim_percentage has no effect without verify");
            }
            return Ok(());
        };
        if self.job.iolog.read.is_some() && kind != VerifyKind::Null {
            return self.fail(
                "verify",
                "verify does not check the data of a replay: a log holds requests, and not their contents",
                "remove verify, or run the job itself in place of its log",
            );
        }
        let needs_pattern = matches!(kind, VerifyKind::PatternOnly | VerifyKind::PatternHeader);
        if needs_pattern && self.verify.pattern.bytes.is_empty() {
            return self.fail(
                "verify",
                format!("{} needs verify_pattern", self.written("verify")),
                "write for example verify_pattern=0xdeadbeef",
            );
        }
        let engine = engines::find(&self.job.engine);
        if engine.is_some_and(|engine| engine.on_names) {
            let what = format!("verify has no effect: the engine {} writes no data", self.job.engine);
            self.warn_at("verify", what);
            return Ok(());
        }
        let mut verify = Verify { kind, ..self.verify.clone() };
        verify.compares = !engine.is_some_and(|engine| engine.without_content);
        if !verify.compares && kind != VerifyKind::Null {
            let what = format!("verify compares nothing: the engine {} stores no data", self.job.engine);
            self.warn_at("verify", what);
        }
        if !self.refill_given {
            self.job.buffers.refill = true;
        }
        let (write, read) = (self.job.blocks.range.write, self.job.blocks.range.read);
        if write.0 != write.1 && verify.interval == 0 {
            verify.interval = write.0;
        }
        if verify.interval > write.0 {
            verify.interval = write.0;
        } else if self.job.rw.directions.read && verify.interval > read.0 {
            verify.interval = read.0;
        }
        // Every block is a whole number of intervals.
        if verify.interval == 0 || write.0 % verify.interval != 0 || write.1 % verify.interval != 0 {
            verify.interval = greatest_common_divisor(write.0, write.1);
        }
        /// Bytes of a header, fio's.
        const HEADER: u64 = 40;
        let headerless = matches!(kind, VerifyKind::PatternOnly | VerifyKind::Null);
        if !headerless && verify.interval < 2 * HEADER {
            let what = format!("blocks of {} bytes have no room for a verification header", verify.interval);
            return self.fail(
                "verify",
                what,
                "use blocks of at least 80 bytes, or verify=pattern, which has no header",
            );
        }
        if verify.header_offset + HEADER > verify.interval && verify.header_offset > 0 {
            return self.fail(
                "verify_offset",
                format!("{} lies beyond the interval of {} bytes", self.written("verify_offset"), verify.interval),
                "lower it",
            );
        }
        verify.saves_state = self.saves_state.unwrap_or(imposed.saves_state) && self.job.rw.directions.write;
        verify.saves_state &= !verify.only;
        verify.state_directory.clone_from(&imposed.state_directory);
        if (verify.only || verify.loads_state) && verify.trims.percent > 0 {
            let option = if verify.only { "verify_only" } else { "verify_state_load" };
            return self.fail(
                option,
                format!("{option} cannot tell which blocks an earlier run with trim_percentage trimmed"),
                "verify in the run that writes",
            );
        }
        let rw = self.job.rw.directions;
        let rated = [&self.job.rate.bytes, &self.job.rate.iops]
            .into_iter()
            .any(|rate| rate.iter().any(|(_, rate)| rate.is_some()));
        if (verify.only || verify.loads_state) && rw.read && rw.write && rated {
            let option = if verify.only { "verify_only" } else { "verify_state_load" };
            return self.fail(
                option,
                format!("{option} cannot tell which blocks a mixed job with rates wrote: their mix depends on time"),
                "verify in the run that writes, or leave the rates out of both runs",
            );
        }
        if verify.loads_state && !verify.only && rw.write {
            return self.fail(
                "verify_state_load",
                "verify_state_load would write over the blocks that it is to check",
                "add verify_only=1, or use rw=read or rw=randread",
            );
        }
        self.job.verify = Some(verify);
        Ok(())
    }

    fn reporting(&mut self) {
        let name = self.job.name.clone();
        let reporting = &mut self.job.reporting;
        reporting.lat_percentiles &= !reporting.disable_lat;
        reporting.clat_percentiles &= !reporting.disable_clat;
        reporting.slat_percentiles &= !reporting.disable_slat;
        let logs = &mut reporting.logs;
        for prefix in [&mut logs.bw, &mut logs.iops, &mut logs.lat, &mut logs.histogram].into_iter().flatten() {
            if prefix.is_empty() {
                prefix.clone_from(&name);
            }
        }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Reads the value as its kind demands and hands it to the option.
fn apply(draft: &mut Draft, reader: &mut Reader, option: &OptionSpec, value: Option<&str>) -> Result<(), String> {
    let Some(value) = value else {
        return match option.kind {
            ValueKind::Flag(set) => {
                set(draft, true);
                Ok(())
            }
            ValueKind::OptionalText(set) => {
                set(draft, "");
                Ok(())
            }
            ValueKind::Opaque => Ok(()),
            ValueKind::Bool(_) => Err(format!("a value is missing: write {}=1", option.name)),
            _ => Err(format!("a value is missing: write {}=VALUE, where VALUE is {}", option.name, option.kind.form())),
        };
    };
    let range = |error: measure::units::UnitError| error.to_string();
    match &option.kind {
        ValueKind::Bool(set) => set(draft, boolean(value, reader, 1)?),
        ValueKind::Flag(set) => set(draft, boolean(value, reader, i64::MAX)?),
        ValueKind::Count(low, high, set) => set(draft, reader.count(value, *low, *high)?),
        ValueKind::Integer(low, high, set) => {
            let number = value.parse::<i64>().ok().filter(|number| (*low..=*high).contains(number));
            set(draft, number.ok_or_else(|| format!("\"{value}\" is not a number from {low} to {high}"))?);
        }
        ValueKind::Bytes(least, set) => {
            let bytes = reader.bytes(value)?;
            if bytes < *least {
                return Err(format!("{bytes} is too small: it is at least {least}"));
            }
            set(draft, bytes);
        }
        ValueKind::Amount(set) => set(draft, reader.amount(value)?),
        ValueKind::Time(unit, set) => set(draft, reader.time(value, *unit)?),
        ValueKind::TimeRange(unit, set) => {
            let (low, high) =
                measure::units::split_outside_parentheses(value, &['-', ':', ',']).unwrap_or((value, value));
            let (low, high) = (reader.time(low, *unit)?, reader.time(high, *unit)?);
            set(draft, (low.min(high), low.max(high)));
        }
        ValueKind::BytesRange(set) => {
            let (low, high) =
                measure::units::split_outside_parentheses(value, &['-', ':', ',']).unwrap_or((value, value));
            let (low, high) = (reader.bytes(low)?, reader.bytes(high)?);
            set(draft, (low.min(high), low.max(high)));
        }
        ValueKind::EachBytes(least, set) => {
            let each = values::each(&reader.each_part(value), |part| {
                let mut ends = measure::units::split_outside_parentheses(part, &['-', ':']);
                if let Some((low, high)) = ends.take_if(|_| !reader.lenient) {
                    if option.name == "bs" && part.contains('/') {
                        return Err(format!("\"{part}\" has shares of sizes: write bssplit={value}"));
                    }
                    let range = if option.name == "bs" { ", or use bsrange for a range of blocks" } else { "" };
                    return Err(format!("\"{part}\" is two sizes: write {low},{high} for reads and writes{range}"));
                }
                match reader.limit(part, *least)? {
                    bytes if bytes < *least => Err(format!("{bytes} is too small: it is at least {least}")),
                    bytes => Ok(bytes),
                }
            })?;
            set(draft, each);
        }
        ValueKind::EachCount(low, high, set) => {
            set(draft, values::each(&reader.each_part(value), |part| reader.count(part, *low, *high))?)
        }
        ValueKind::EachTime(unit, set) => {
            set(draft, values::each(&reader.each_part(value), |part| reader.time(part, *unit))?)
        }
        ValueKind::EachRange(set) => {
            let value = reader.three_parts(value);
            let plain = without_percentages(reader, &value);
            let value = plain.as_str();
            let is_range = |part: &str| part.is_empty() || part.contains(['-', ':']);
            if reader.lenient && !value.split(',').all(is_range) {
                return Err(format!("\"{value}\" has no range: write for example {value}-{value}"));
            }
            let parse = |part: &str| {
                measure::units::parse_range(part, |end| measure::units::parse_bytes(end, reader.kb_base)).map_err(range)
            };
            let each = values::each(value, parse)?;
            // Once more for the differences to fio's reading.
            for end in value.split([',', '-', ':']).filter(|end| !end.trim().is_empty() && !value.contains('(')) {
                reader.bytes(end)?;
            }
            set(draft, each);
        }
        ValueKind::Word(words, set) => match words.iter().find(|(word, _)| *word == value) {
            Some((word, _)) => set(draft, word),
            None => return Err(options::not_one_of(value, words)),
        },
        ValueKind::Numbers(low, high, set) => {
            let mut numbers = Vec::new();
            for text in value.split(':') {
                match number_within(reader, text, *low, *high) {
                    Ok(number) => numbers.push(number),
                    Err(wrong) if reader.lenient && !numbers.is_empty() => {
                        reader.differences.push(format!("{wrong}; the list ends before it, as in fio"));
                        break;
                    }
                    Err(wrong) => return Err(wrong),
                }
            }
            set(draft, numbers);
        }
        ValueKind::Text(_) if value.is_empty() => return Err("the value is empty".into()),
        ValueKind::Text(set) | ValueKind::OptionalText(set) => set(draft, value),
        ValueKind::Custom(..) if value.is_empty() => return Err("the value is empty".into()),
        ValueKind::Custom(_, _, set) => set(draft, reader, value)?,
        ValueKind::Opaque => {}
    }
    Ok(())
}

fn number_within(reader: &mut Reader, text: &str, low: f64, high: f64) -> Result<f64, String> {
    match reader.float(text)? {
        number if (low..=high).contains(&number) => Ok(number),
        number => Err(format!("{number} is out of range: it is from {low} to {high}")),
    }
}

/// A range as `512/25:1k:25:2k/50`, which was meant as `bssplit`, without all that fio overlooks in it.
fn without_percentages(reader: &mut Reader, value: &str) -> String {
    let bare = |part: &str| {
        let ends = part.split([':', '-']).map(|end| end.split('/').next().unwrap_or_default());
        ends.take(2).collect::<Vec<_>>().join("-")
    };
    if value.contains('(') || !value.contains('/') {
        return value.to_string();
    }
    let range = value.split(',').map(bare).collect::<Vec<_>>().join(",");
    reader.differences.push(format!("\"{value}\" is the range {range}, as in fio: percentages belong to bssplit"));
    range
}

/// 0 or 1; as fio reads it, any number of at most `most`, of which only 0 is false.
fn boolean(value: &str, reader: &mut Reader, most: i64) -> Result<bool, String> {
    if value == "0" || value == "1" {
        return Ok(value == "1");
    }
    if let Some(number) = reader.loose_integer(value).filter(|number| *number <= most) {
        reader.differences.push(format!("\"{value}\" is {number} to fio, and here {}", u8::from(number != 0)));
        return Ok(number != 0);
    }
    match value {
        "true" | "yes" | "on" => Err(format!("\"{value}\" is not 0 or 1: write 1")),
        "false" | "no" | "off" => Err(format!("\"{value}\" is not 0 or 1: write 0")),
        _ => Err(format!("\"{value}\" is not 0 or 1")),
    }
}

/// The error about the first engine that fio has and Plimsoll has not, if a job wants one.
///
/// It stands in place of an error about a global option that goes with the engine of a later section.
fn missing_engine(source: &Source, imposed: &Imposed) -> Option<Error> {
    let wanted = |section: &&Section| imposed.sections.is_empty() || imposed.sections.contains(&section.name);
    let settings = source.sections.iter().filter(wanted).flat_map(|section| &section.settings);
    settings.filter(|setting| setting.option.name == "ioengine").find_map(|setting| {
        let mut draft = Draft::default();
        draft.set(setting).ok()?;
        draft.known_engine().err()
    })
}

/// The plan that the sources describe: the command line first, then the job files in order.
///
/// As in fio, global settings of the command line hold for the first job file only, and each later file begins
/// with defaults and waits for the one before.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn plan(command_line: &Source, files: &[Source], imposed: &Imposed) -> Result<Plan, Error> {
    let mut plan = Plan::default();
    let fresh = || Draft { lenient: imposed.lenient, ..Draft::default() };
    let mut globals = fresh();
    let mut waits = Vec::new();
    let mut first: u32 = 0;
    for (index, source) in std::iter::once(command_line).chain(files).enumerate() {
        let later_file = index > 1;
        if later_file {
            for (name, (setting, _)) in
                globals.set.iter().filter(|(_, (setting, _))| setting.place == Place::CommandLine)
            {
                let file = source.sections.first().map_or(&setting.place, |section| &section.place);
                plan.warnings.push(format!("{file}: --{name} on the command line is for the first job file only, as in fio; write it into this file too"));
            }
            globals = fresh();
        }
        plan.warnings.extend(source.warnings.iter().cloned());
        let mut stonewall = later_file;
        for (number, section) in source.sections.iter().enumerate() {
            let is_before = index == 0 && number < imposed.before_sections;
            if section.is_global() {
                if index == 1 {
                    overridden(&globals, section, &mut plan.warnings);
                }
                globals.take(section).map_err(|error| missing_engine(source, imposed).unwrap_or(error))?;
                plan.warnings.append(&mut globals.warnings);
                plan.global_options.extend(written(section));
            } else if is_before || imposed.sections.is_empty() || imposed.sections.contains(&section.name) {
                if index == 1 {
                    overridden(&globals, section, &mut plan.warnings);
                }
                let mut draft = globals.clone();
                // An option of the job's own engine says nothing about one that is imposed.
                draft.own = imposed.engine.is_none();
                draft.job.name.clone_from(&section.name);
                // fio gives each later job file's first job a stonewall before its own settings.
                draft.job.time.stonewall |= std::mem::take(&mut stonewall);
                draft.take(section)?;
                if let Some(engine) = &imposed.engine {
                    draft.impose("ioengine", engine)?;
                }
                let awaits = draft.setting("wait_for").map(|setting| setting.place.clone());
                let (mut job, warnings) = draft.finish(imposed)?;
                job.options = written(section);
                job.process.first = first;
                first = first.wrapping_add(job.process.clones.max(1));
                waits.push(awaits);
                plan.jobs.push(job);
                plan.warnings.extend(warnings);
            }
        }
    }
    waiting::check(&plan.jobs, &waits)?;
    if imposed.lenient {
        waiting::all_known(&plan.jobs, &waits)?;
    }
    working_set::divide(&mut plan.jobs);
    lint::plan(&mut plan, command_line, files);
    let mut seen = std::collections::BTreeSet::new();
    plan.warnings.retain(|warning| seen.insert(warning.clone()));
    if plan.jobs.is_empty() && !imposed.may_lack_jobs {
        return Err(no_jobs(command_line, files, imposed));
    }
    let is_fatal = |warning: &&String| !imposed.lenient || lint::is_fatal_in_fio(warning);
    match plan.warnings.iter().find(is_fatal) {
        Some(warning) if imposed.warnings_fatal => {
            Err(Error::new(&Place::CommandLine, format!("--warnings-fatal: {warning}")))
        }
        _ => Ok(plan),
    }
}

fn written(section: &Section) -> Vec<(String, String)> {
    section
        .settings
        .iter()
        .map(|setting| (setting.option.name.to_string(), setting.value.clone().unwrap_or_default()))
        .collect()
}

/// Command-line options that the job file sets otherwise: the file comes later and wins, which surprises.
fn overridden(globals: &Draft, section: &Section, warnings: &mut Vec<String>) {
    for setting in &section.settings {
        if let Some((first, _)) = globals
            .set
            .get(setting.option.name)
            .filter(|(first, _)| first.place == Place::CommandLine && first.value != setting.value)
        {
            warnings.push(format!(
                "{}: {} wins over --{} of the command line, as in fio: options before a job file are its defaults",
                setting.place,
                setting.written(),
                first.written(),
            ));
        }
    }
}

fn no_jobs(command_line: &Source, files: &[Source], imposed: &Imposed) -> Error {
    let all = || {
        std::iter::once(command_line)
            .chain(files)
            .flat_map(|source| &source.sections)
            .filter(|section| !section.is_global())
    };
    if let (Some(wanted), true) = (imposed.sections.first(), all().next().is_some()) {
        let known: Vec<&str> = all().map(|section| section.name.as_str()).collect();
        return Error::new(&Place::CommandLine, format!("--section={wanted}: there is no such section"))
            .hint(format!("sections: {}", known.join(", ")));
    }
    Error::new(&Place::CommandLine, "no job is defined").hint("give a job file, or begin a job with --name=NAME")
}
