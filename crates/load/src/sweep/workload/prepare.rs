//! From the request to a workload on its target.

use std::path::{Path, PathBuf};

use job::Job;
use job::engines::EngineSpec;
use job::job::Amount;
use job::source::Setting;

use super::{Request, Workload, absolute, chosen_engine, filename, place, setting, settings_of};
use crate::Error;
use crate::engine::Maker;
use crate::sweep::axis::Axis;
use crate::sweep::effort::Effort;
use crate::sweep::recorded::{self, Recorded};
use crate::sweep::refusals::{self, RECORDED, is_given, refused};
use crate::sweep::resume::Resume;
use crate::sweep::scratch::{self, Doomed, Scratch};

impl Workload {
    /// The workload on its target; a scratch file exists but is not laid out yet.
    ///
    /// # Errors
    /// A bad option, a target that is missing or is neither file nor directory nor block device, an unknown
    /// engine, writes to something that was not made for this sweep.
    pub fn prepare(request: &Request, effort: &Effort, doomed: &Doomed) -> Result<Workload, Error> {
        let mut asked = settings_of(&request.job)?;
        refusals::check_axes(&asked, request, effort)?;
        asked.extend(wanted_by(effort, &asked));
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
        let targets = targets_of(request, &job)?;
        workload.choose_engine(&asked, &job, targets.first());
        let specs = workload.engines.iter().map(|name| Maker::find(name).map(|maker| maker.spec));
        let engines: Vec<&EngineSpec> = specs.collect::<Result<_, _>>()?;
        refusals::check_engines(&engines, effort)?;
        if !request.recorded.is_empty() {
            refusals::check_replay(&engines)?;
            workload.paths = absolute(&targets);
            workload.replay(request, targets.first().map(PathBuf::as_path), &asked, effort)?;
            return Ok(workload);
        }
        refusals::check_objectives(effort, &job)?;
        if engines.iter().all(|engine| engine.opens_files || engine.diskless) {
            workload.use_no_file(request, effort, &asked, &engines, &targets)?;
        } else {
            let paths = match targets.first() {
                Some(target) if !target.is_dir() => workload.use_files(request, effort, &asked, &job, targets)?,
                directory => workload.use_scratch_file(request, &asked, &job, directory, doomed)?,
            };
            workload.point_at(&paths, &asked);
        }
        Ok(workload)
    }

    /// Takes the best engine that works here, unless the user chose one.
    fn choose_engine(&mut self, asked: &[Setting], job: &Job, target: Option<&PathBuf>) {
        if !self.engines.is_empty() {
            return;
        }
        if is_given(asked, "ioengine") {
            return self.engines.push(job.engine.clone());
        }
        let in_volume = target.is_some_and(|target| gfapi::Address::is_url(&target.to_string_lossy()));
        let (best, replaced) = if in_volume { ("gfapi", None) } else { chosen_engine() };
        self.engines.push(best.into());
        self.engine_replaced = replaced;
    }

    /// Makes this the workload of engines that open what they work on, or need nothing.
    fn use_no_file(
        &mut self,
        request: &Request,
        effort: &Effort,
        asked: &[Setting],
        engines: &[&EngineSpec],
        targets: &[PathBuf],
    ) -> Result<(), Error> {
        let names: Vec<String> = targets.iter().map(|target| place(target)).collect();
        if effort.precondition.is_some() && !names.is_empty() && !request.allow_writes {
            let hint = "--precondition would destroy what is there; --allow-writes insists";
            return Err(refused(names.join(", "), hint));
        }
        self.name = if names.is_empty() { "no storage".into() } else { names.join(", ") };
        if !targets.is_empty() && engines.iter().any(|engine| engine.opens_files) {
            self.settings.push(filename(targets));
        }
        self.paths = absolute(targets);
        if !is_given(asked, "size") && engines.iter().all(|engine| engine.diskless) {
            self.settings.push(setting("size", "1g"));
        }
        Ok(())
    }

    /// Makes this the workload on files or devices that are there.
    fn use_files(
        &mut self,
        request: &Request,
        effort: &Effort,
        asked: &[Setting],
        job: &Job,
        targets: Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>, Error> {
        let writes = job.rw.directions.write || job.rw.directions.trim || effort.precondition.is_some();
        for target in &targets {
            refusals::check_target(target, writes, request.allow_writes)?;
        }
        refusals::check_sizes(&targets, job, effort)?;
        if !request.allow_writes {
            refusals::check_extent(&targets, job, asked)?;
        }
        if effort.precondition.is_some() && targets.len() > 1 {
            let hint = "precondition and sweep one after the other";
            return Err(Error::usage("--precondition takes one TARGET, not also", place(&targets[1]), hint));
        }
        self.name = targets.iter().map(|target| place(target)).collect::<Vec<_>>().join(", ");
        self.paths = absolute(&targets);
        Ok(targets)
    }

    /// Makes this the workload on a scratch file in a directory.
    fn use_scratch_file(
        &mut self,
        request: &Request,
        asked: &[Setting],
        job: &Job,
        directory: Option<&PathBuf>,
        doomed: &Doomed,
    ) -> Result<Vec<PathBuf>, Error> {
        let of_job = || job.files.directories.first().map(PathBuf::from);
        let directory = directory.cloned().or_else(of_job).unwrap_or_else(|| PathBuf::from("."));
        let wanted = match job.extent.size {
            Some(Amount::Bytes(bytes)) if is_given(asked, "size") => Some(bytes),
            _ => request.resume.as_ref().and_then(Resume::target_bytes),
        };
        self.paths = absolute(std::slice::from_ref(&directory));
        let (scratch, bytes) = Scratch::create(&directory, wanted, doomed)?;
        self.name = format!("a scratch file in {}", directory.display());
        let path = scratch.path().to_path_buf();
        self.scratch = Some((scratch, bytes));
        Ok(vec![path])
    }

    /// Names the files in the settings, opened with O_DIRECT where they take it and the user said nothing else.
    fn point_at(&mut self, paths: &[PathBuf], asked: &[Setting]) {
        self.settings.retain(|setting| setting.option.name != "directory");
        self.settings.push(filename(paths));
        if !is_given(asked, "direct") && !is_given(asked, "buffered") {
            self.direct_refused = !paths.iter().all(|path| scratch::takes_direct(path));
            self.settings.push(setting("direct", if self.direct_refused { "0" } else { "1" }));
        }
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
        if !is_given(asked, "direct") && !is_given(asked, "buffered") {
            self.direct_refused = !recorded.files().all(scratch::takes_direct);
            self.not_direct = if self.direct_refused { None } else { recorded.not_direct() };
            let buffered = self.direct_refused || self.not_direct.is_some();
            self.settings.push(setting("direct", if buffered { "0" } else { "1" }));
        }
        self.recorded = Some(recorded);
        Ok(())
    }
}

/// The files to sweep, as TARGET or the job names them.
fn targets_of(request: &Request, job: &Job) -> Result<Vec<PathBuf>, Error> {
    let named: Vec<PathBuf> = job.files.names.iter().map(PathBuf::from).collect();
    let targets = match (&request.job.files[..], &named[..]) {
        ([], _) => named,
        ([target, ..], []) => vec![target.clone()],
        ([target, ..], [named, ..]) => {
            let what = format!("both TARGET {} and filename={}", target.display(), named.display());
            return Err(Error::usage(what, "", "give the file to sweep once"));
        }
    };
    match targets.iter().find(|target| target.to_str().is_none()) {
        Some(odd) => {
            // A job names its files in UTF-8: it would make and measure another file.
            let hint = "its name is not UTF-8: make a symbolic link to it, and sweep that";
            Err(Error::usage("cannot sweep", place(odd), hint))
        }
        None => Ok(targets),
    }
}

/// Options that the axes need: arrivals at random, and a scratch file as large as the largest size.
fn wanted_by(effort: &Effort, asked: &[Setting]) -> Vec<Setting> {
    let mut out = Vec::new();
    if effort.axes().any(Axis::is_rate) && !is_given(asked, "rate_process") {
        out.push(setting("rate_process", "poisson"));
    }
    let sizes = effort.axes().find(|axis| axis.name() == "size").and_then(Axis::values);
    out.extend(sizes.and_then(|values| values.asked().pop()).map(|most| setting("size", &most.to_string())));
    out
}
