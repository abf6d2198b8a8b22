//! The way from written settings to validated jobs: defaults, inheritance, and the effects of options on each other.
//!
//! ```text
//! sections ─► settings (value) ─► Draft ─► passes: one file of rules each ─► Job ─► plan
//! ```

mod blocks;
mod content;
mod draft;
mod engine;
mod extent;
mod passes;
mod pattern;
mod peers;
mod precondition;
mod priorities;
mod queue;
mod rate;
mod reporting;
mod settings;
mod steady;
mod time;
mod value;
mod verification;
mod waiting;
mod without_data;
mod working_set;
mod zones;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::error::{Error, Place};
use crate::job::{Allow, Plan};
use crate::lint;
use crate::source::{Section, Source};
pub use draft::Draft;

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

/// The plan that the sources describe: the command line first, then the job files in order.
///
/// As in fio, global settings of the command line hold for the first job file only, and each later file begins
/// with defaults and waits for the one before.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn plan(command_line: &Source, files: &[Source], imposed: &Imposed) -> Result<Plan, Error> {
    let mut gathering = Gathering::new(imposed);
    gathering.take_command_line(command_line)?;
    for (index, file) in files.iter().enumerate() {
        gathering.take_file(file, index == 0)?;
    }
    let Gathering { mut plan, waits, .. } = gathering;
    waiting::check(&plan.jobs, &waits)?;
    if imposed.lenient {
        waiting::all_known(&plan.jobs, &waits)?;
    }
    working_set::divide(&mut plan.jobs);
    lint::plan(&mut plan, command_line, files);
    let mut seen = BTreeSet::new();
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

/// A plan in the making: one source after the other.
struct Gathering<'a> {
    imposed: &'a Imposed,
    plan: Plan,
    /// The settings that hold for all later sections of the source.
    globals: Draft,
    /// The place of the `wait_for` of each job.
    waits: Vec<Option<Place>>,
    /// The number of the next job's first clone.
    first: u32,
}

impl Gathering<'_> {
    fn new(imposed: &Imposed) -> Gathering<'_> {
        let globals = Draft { lenient: imposed.lenient, ..Draft::default() };
        Gathering { imposed, plan: Plan::default(), globals, waits: Vec::new(), first: 0 }
    }

    fn take_command_line(&mut self, source: &Source) -> Result<(), Error> {
        self.plan.warnings.extend(source.warnings.iter().cloned());
        for (number, section) in source.sections.iter().enumerate() {
            if section.is_global() {
                self.take_global(source, section)?;
            } else if number < self.imposed.before_sections || self.is_wanted(section) {
                self.add_job(section, false)?;
            }
        }
        Ok(())
    }

    fn take_file(&mut self, source: &Source, is_first: bool) -> Result<(), Error> {
        if !is_first {
            self.forget_globals(source);
        }
        self.plan.warnings.extend(source.warnings.iter().cloned());
        // fio gives each later job file's first job a stonewall before its own settings.
        let mut stonewall = !is_first;
        for section in &source.sections {
            if !section.is_global() && !self.is_wanted(section) {
                continue;
            }
            if is_first {
                overridden(&self.globals, section, &mut self.plan.warnings);
            }
            if section.is_global() {
                self.take_global(source, section)?;
            } else {
                self.add_job(section, std::mem::take(&mut stonewall))?;
            }
        }
        Ok(())
    }

    fn is_wanted(&self, section: &Section) -> bool {
        self.imposed.sections.is_empty() || self.imposed.sections.contains(&section.name)
    }

    /// Begins a later file, which the global settings of the command line do not reach.
    fn forget_globals(&mut self, source: &Source) {
        for (name, (setting, _)) in
            self.globals.set.iter().filter(|(_, (setting, _))| setting.place == Place::CommandLine)
        {
            let file = source.sections.first().map_or(&setting.place, |section| &section.place);
            self.plan.warnings.push(format!("{file}: --{name} on the command line is for the first job file only, as in fio; write it into this file too"));
        }
        self.globals = Draft { lenient: self.imposed.lenient, ..Draft::default() };
    }

    fn take_global(&mut self, source: &Source, section: &Section) -> Result<(), Error> {
        self.globals.take(section).map_err(|error| missing_engine(source, self.imposed).unwrap_or(error))?;
        self.plan.warnings.append(&mut self.globals.warnings);
        self.plan.global_options.extend(written(section));
        Ok(())
    }

    fn add_job(&mut self, section: &Section, stonewall: bool) -> Result<(), Error> {
        let mut draft = self.globals.clone();
        // An option of the job's own engine says nothing about one that is imposed.
        draft.own = self.imposed.engine.is_none();
        draft.job.name.clone_from(&section.name);
        draft.job.time.stonewall |= stonewall;
        draft.take(section)?;
        if let Some(engine) = &self.imposed.engine {
            draft.impose("ioengine", engine)?;
        }
        self.waits.push(draft.setting("wait_for").map(|setting| setting.place.clone()));
        let (mut job, warnings) = draft.finish(self.imposed)?;
        job.options = written(section);
        job.process.first = self.first;
        self.first = self.first.wrapping_add(job.process.clones.max(1));
        self.plan.jobs.push(job);
        self.plan.warnings.extend(warnings);
        Ok(())
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
