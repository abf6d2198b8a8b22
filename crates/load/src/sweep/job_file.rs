//! A job file in the place of the target: its one job is the workload of the sweep.

use std::path::Path;

use job::Invocation;
use job::file::Surroundings;
use job::source::{Section, Setting};

use super::refusals::OURS;
use crate::Error;

/// No job file is larger, in bytes: a larger target is data, and is not read to find out.
const LARGEST: u64 = 1 << 20;

/// Takes in the job of a job file that is given as the target: the settings of the command line come after those of
/// the job, so they prevail. Returns the job's settings that have no effect, because the sweep decides them itself.
///
/// # Errors
/// A job file with a mistake, or with another number of jobs than one.
pub fn take_in(invocation: &mut Invocation) -> Result<Vec<String>, Error> {
    let [path] = &invocation.files[..] else { return Ok(Vec::new()) };
    if !is_job_file(path) {
        return Ok(Vec::new());
    }
    let place = || path.display().to_string();
    let source =
        job::file::parse(path, &Surroundings::SYSTEM).map_err(|error| Error::usage(error.to_string(), "", ""))?;
    let jobs: Vec<&str> = source.sections.iter().filter(|s| !s.is_global()).map(|s| s.name.as_str()).collect();
    if jobs.len() != 1 {
        let what = match &jobs[..] {
            [] => "no job for a sweep in".to_owned(),
            many => format!("a sweep takes one job, not {} ({}), from", many.len(), many.join(", ")),
        };
        return Err(Error::usage(what, place(), "write the one to sweep into a job file of its own"));
    }
    // Global sections behind the job are for later jobs, of which there are none.
    let until = source.sections.iter().position(|section| !section.is_global()).map_or(0, |job| job + 1);
    let of_job = source.sections.into_iter().take(until).flat_map(|section| section.settings);
    let (ours, theirs): (Vec<Setting>, Vec<Setting>) =
        of_job.partition(|setting| OURS.contains(&setting.option.name) && setting.option.name != "read_iolog");
    let place = job::Place::WholeFile(path.clone().into());
    invocation.command_line.sections.insert(0, Section { name: "global".into(), place, settings: theirs });
    invocation.files.clear();
    Ok(ours.iter().map(Setting::written).collect())
}

/// True if the file begins as a job file does: with a section or an include, after comments.
fn is_job_file(path: &Path) -> bool {
    // The open of a pipe that nobody writes to would never end.
    if !std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() <= LARGEST) {
        return false;
    }
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with([';', '#']));
    first.is_some_and(|line| line.starts_with('[') && line.contains(']') || line.starts_with("include "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str, words: &[&str]) -> Result<(String, Vec<String>), Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.fio");
        std::fs::write(&path, text).unwrap();
        let words: Vec<_> = words.iter().map(Into::into).chain([path.into_os_string()]).collect();
        let mut invocation = job::parse_command_line(&words).unwrap();
        let left_out = take_in(&mut invocation)?;
        let settings = invocation.command_line.sections.iter().flat_map(|section| &section.settings);
        Ok((settings.map(Setting::written).collect::<Vec<_>>().join(" "), left_out))
    }

    #[test]
    fn the_command_line_prevails_over_the_job() {
        let text = "; a load\n[global]\nbs=8k\niodepth=32\n[a]\nrw=randread\ntime_based\nruntime=60\n[global]\nbs=1m\n";
        let (settings, left_out) = taken(text, &["--rw=randwrite"]).unwrap();
        assert_eq!(settings, "bs=8k rw=randread rw=randwrite");
        assert_eq!(left_out, ["iodepth=32", "time_based", "runtime=60"]);
    }

    #[test]
    fn one_job_is_wanted() {
        let error = |text| taken(text, &[]).unwrap_err().to_string();
        assert!(error("[a]\nrw=read\n[b]\nrw=write\n").starts_with("a sweep takes one job, not 2 (a, b), from "));
        assert!(error("[global]\nrw=read\n").starts_with("no job for a sweep in "));
        assert!(error("[a]\nrv=read\n").contains("rv"), "the parser's own message");
    }

    #[test]
    fn data_is_not_taken_for_a_job_file() {
        let directory = tempfile::tempdir().unwrap();
        let is = |content: &[u8]| {
            let path = directory.path().join("x");
            std::fs::write(&path, content).unwrap();
            is_job_file(&path)
        };
        assert!(is(b"# x\n\n [a]\nbs=4k\n") && is(b"include x.inc\n"));
        assert!(!is(b"") && !is(&[0; 4096]) && !is(b"[") && !is(b"a [b]\n") && !is(b"[a]\n\xff") && !is(b"# only\n"));
        assert!(!is_job_file(directory.path()) && !is_job_file(Path::new("/nonexistent")));
        let large = directory.path().join("large");
        std::fs::write(&large, [b"[a]\n".repeat(1 << 18), b"\n".to_vec()].concat()).unwrap();
        assert!(!is_job_file(&large));
    }
}
