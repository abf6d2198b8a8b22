//! The names of the files that a clone uses: `filename`, `directory`, `filename_format`, `nrfiles`, `opendir`.

use std::fs;
use std::path::{Path, PathBuf};

use job::Job;
use job::job::Plan;

use crate::Error;

/// Paths of the files of clone `clone` of a job, in order: index as in the workload's ops.
///
/// `filename` gives all clones the same files; otherwise each clone has `nrfiles` of its own, named by
/// `filename_format`. Clones take the directories of `directory` in turn. `opendir` gives the files below a directory.
///
/// # Errors
/// A directory that does not exist or, for `opendir`, holds no file.
pub fn names(job: &Job, clone: u32) -> Result<Vec<String>, Error> {
    let files = &job.files;
    if let Some(directory) = &files.opendir {
        let mut found = Vec::new();
        list(Path::new(directory), &mut found)
            .map_err(|error| Error::system("cannot list", directory.clone(), error))?;
        if found.is_empty() {
            return Err(Error::usage("no files in", directory.clone(), "opendir= takes a directory that has some"));
        }
        return Ok(found);
    }
    let directory = match files.directories.len() {
        0 => None,
        count => Some(&files.directories[clone as usize % count]),
    };
    let on_this_host = job::engines::find(&job.engine).is_none_or(|engine| !engine.opens_files);
    if let Some(directory) = directory.filter(|_| on_this_host) {
        let is_directory = fs::metadata(directory).map_err(|error| {
            Error::usage("no such directory", directory.clone(), format!("directory= of job {}: {error}", job.name))
        })?;
        if !is_directory.is_dir() {
            return Err(Error::usage("not a directory:", directory.clone(), format!("directory= of job {}", job.name)));
        }
    }
    let names: Vec<String> = if files.names.is_empty() {
        (0..files.count.max(1)).map(|file| formatted(&files.format, &job.name, clone, file)).collect()
    } else if files.are_placed {
        return Ok(files.names.clone());
    } else {
        files.names.clone()
    };
    Ok(match directory {
        Some(directory) => names.iter().map(|name| format!("{}/{name}", directory.trim_end_matches('/'))).collect(),
        None => names,
    })
}

/// For each job of a plan, the seats of its clones: their numbers among all clones of the plan.
pub(crate) fn seats_of(plan: &Plan) -> impl Iterator<Item = std::ops::Range<usize>> {
    plan.jobs.iter().scan(0, |next, job| {
        let first = *next;
        *next += job.process.clones.max(1) as usize;
        Some(first..*next)
    })
}

/// `filename_format` with its variables filled in. `$clientuid` is empty: every clone runs on this host.
fn formatted(format: &str, job: &str, clone: u32, file: u32) -> String {
    // A job often has the name of its file, `/dev/sda` for instance: slashes in it do not separate directories.
    let job = job.replace('/', "_");
    format
        .replace("$jobname", &job)
        .replace("$jobnum", &clone.to_string())
        .replace("$filenum", &file.to_string())
        .replace("$clientuid", "")
}

/// The files that a plan names, without those that a log names: the job's files, the log that it replays, and the file
/// that all of the log goes to.
pub fn paths_of(plan: &Plan) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for job in &plan.jobs {
        let clones = if job.files.names.is_empty() { job.process.clones.max(1) } else { 1 };
        for clone in 0..clones {
            paths.extend(names(job, clone).unwrap_or_default().into_iter().map(PathBuf::from));
        }
        paths.extend([&job.iolog.read, &job.iolog.redirect].into_iter().flatten().map(PathBuf::from));
    }
    paths
}

/// All regular files below a directory, in order of their paths.
fn list(directory: &Path, found: &mut Vec<String>) -> std::io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), found)?;
        } else if kind.is_file() {
            found.push(entry.path().to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_filename_format() {
        assert_eq!(formatted("$jobname.$jobnum.$filenum", "randread", 2, 7), "randread.2.7");
        assert_eq!(formatted("$clientuid/f$filenum-$filenum", "x", 0, 3), "/f3-3");
        assert_eq!(formatted("$jobname.$jobnum.$filenum", "/dev/sda", 0, 0), "_dev_sda.0.0");
    }
}
