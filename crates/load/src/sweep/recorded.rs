//! The workload of a recorded application (`--workload`): its logs, the files that they name, and the part that is
//! replayed.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use job::blktrace;
use job::iolog::FileUse;
use job::job::{Iolog, Replayed};
use job::threads::{Recording, Since};
use job::workload::OpKind;
use measure::figures::{count, nanoseconds, plain};
use measure::verdict::{self, Verdict};

use super::refusals::check_target;
use crate::{Error, ErrorKind};

/// A pass that takes longer than this ends the sweep.
pub(super) const PASS_MOST_NS: u64 = 60_000_000_000;

/// A pass is this part of the longest time that a point may take: a visit replays two at least, and a point has several
/// visits.
pub(super) const PASS_PART: u32 = 4;

/// A recorded application.
#[derive(Clone)]
pub(super) struct Recorded {
    /// The names of the logs.
    name: String,
    recording: Arc<Recording>,
}

impl Recorded {
    /// The application that `logs` recorded: requests of the first `cut_ns` nanoseconds. `depth` is the number of
    /// requests that a thread of a text log has in flight.
    ///
    /// # Errors
    /// A log that cannot be read or understood; files that are missing, too small, or not to be written to.
    pub fn prepare(
        logs: &[PathBuf],
        target: Option<&Path>,
        options: &Iolog,
        depth: Option<u32>,
        cut_ns: u64,
        allow_writes: bool,
    ) -> Result<Recorded, Error> {
        let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
        let name = match names.as_slice() {
            [first, .., last] if names.len() > 3 => format!("{} logs, {first} to {last},", names.len()),
            few => few.join(","),
        };
        let recording = read(logs, target, options, depth, cut_ns)?;
        if let [first, second, ..] = &recording.files[..]
            && target.is_some()
        {
            let files = format!("{} and {}", first.name, second.name);
            let hint = "leave TARGET out: the replay then uses the files of the log";
            return Err(Error::usage("one TARGET for a log of several files:", files, hint));
        }
        for file in &recording.files {
            let path = Path::new(&file.name);
            if target.is_none()
                && std::fs::metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
            {
                let what = format!("the log uses {} bytes of a file that is not there:", file.bytes);
                let hint = "did the program remove it, or is the log of another place? Make a file of that size there";
                return Err(Error::usage(what, &file.name, hint));
            }
            check_target(path, file.changed, allow_writes)?;
            let bytes = size_of(path).map_err(|error| Error::system("cannot sweep", &file.name, error))?;
            if bytes < file.bytes {
                let what = format!("the log uses {} bytes of a file that has {bytes}:", file.bytes);
                return Err(Error::usage(
                    what,
                    &file.name,
                    "give a larger TARGET, or divide offsets: --replay_scale=N",
                ));
            }
        }
        Ok(Recorded { name, recording: Arc::new(recording) })
    }

    /// The name of the application with its files: `app.iolog on /dev/sdb`.
    pub fn named(&self) -> String {
        let files: Vec<&str> = self.recording.files.iter().map(|file| file.name.as_str()).collect();
        match files.as_slice() {
            few if few.len() <= 2 => format!("{} on {}", self.name, few.join(", ")),
            many => format!("{} on {} files", self.name, many.len()),
        }
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.recording.files.iter().map(|file| Path::new(&file.name))
    }

    /// A request that O_DIRECT does not take on its file, in words; None if it takes all of them.
    pub fn not_direct(&self) -> Option<String> {
        let asked = |file: &FileUse| {
            let alignment = File::open(&file.name).ok().and_then(|file| sys::file::direct_alignment(&file));
            alignment.map_or(512, |alignment| u64::from(alignment.offset.max(1)))
        };
        let asked: Vec<u64> = self.recording.files.iter().map(asked).collect();
        let found = self.recording.requests().map(|request| request.op).find(|op| {
            let bytes = asked[op.file as usize];
            matches!(op.kind, OpKind::Io(_)) && !(op.offset.is_multiple_of(bytes) && op.len.is_multiple_of(bytes))
        })?;
        let name = &self.recording.files[found.file as usize].name;
        Some(format!("{} bytes at {} of {name}", found.len, found.offset))
    }

    /// Requests in flight at most.
    pub fn depth(&self) -> u64 {
        self.recording.depth()
    }

    /// Requests of a pass, syncs included.
    pub fn requests(&self) -> u64 {
        self.recording.requests().count() as u64
    }

    /// Transfers of a pass.
    pub fn transfers(&self) -> u64 {
        let ops = self.recording.summary().ops;
        ops.read + ops.write + ops.trim
    }

    /// The replay for a visit of `least_ns` after a ramp of `ramp_ns`, of a pass at least each.
    pub fn replayed(&self, ramp_ns: u64, least_ns: u64) -> Replayed {
        Replayed { recording: Arc::clone(&self.recording), ramp_ns, least_ns }
    }

    /// The statement on what the sweep replays.
    pub fn described(&self) -> Verdict {
        let recording = &self.recording;
        let kept = self.requests();
        let part = match recording.recorded > kept {
            true => format!("the first {} of {} requests", count(kept as f64), count(recording.recorded as f64)),
            false => format!("all {} requests", count(kept as f64)),
        };
        let threads = match recording.threads.len() {
            1 => "1 thread".to_string(),
            many => format!("{many} threads"),
        };
        let what = format!(
            "{}: {part} ({} of the recording), {threads}, {} in flight at most",
            self.name,
            nanoseconds(recording.duration_ns as f64),
            plain(self.depth() as f64)
        );
        let idle = match recording.idle_files.as_slice() {
            [] => String::new(),
            [only] => format!("; of {only} the log has neither reads nor writes"),
            [first, rest @ ..] => {
                format!("; of {first} and {} more files the log has neither reads nor writes", rest.len())
            }
        };
        let what = what + &idle;
        let pauses = match recording.since {
            Since::Issue => {
                "The log has no times of completion, so the pauses between requests include the recorded storage; \
                 --iodepth says how many requests a thread has in flight."
            }
            Since::Free => "A pause begins when a thread has as few requests in flight as it had in the recording.",
        };
        verdict::replayed(what, pauses)
    }

    /// The statement that the replay is slower than the recording, if at the recorded speed it gives `iops`.
    pub fn judged(&self, iops: f64) -> Option<Verdict> {
        let recorded = self.recording.rate()?;
        (iops < recorded * 0.9).then(|| verdict::replay_behind(iops, recorded, self.recording.since == Since::Issue))
    }
}

fn read(
    logs: &[PathBuf],
    target: Option<&Path>,
    options: &Iolog,
    depth: Option<u32>,
    cut_ns: u64,
) -> Result<Recording, Error> {
    let unreadable = |error: job::iolog::Error| Error {
        kind: ErrorKind::Usage,
        what: error.to_string(),
        place: String::new(),
        hint: String::new(),
        source: None,
    };
    let open = |log: &PathBuf| {
        File::open(log).map_err(|error| Error::system("cannot open the log", log.display().to_string(), error))
    };
    let mut first = [0; 4];
    let beginning = logs.first().map(open).transpose()?.map(|mut log| log.read(&mut first));
    if beginning.is_some_and(|read| read.is_ok_and(|bytes| blktrace::is_recording(&first[..bytes]))) {
        let Some(target) = target else {
            let hint =
                "name the device that was traced, or another one: plimsoll sweep --workload sda.blktrace.0 /dev/sdb";
            return Err(Error::usage("a recording of blktrace needs a TARGET", "", hint));
        };
        if depth.is_some() {
            let hint = "blktrace records how many requests each thread has in flight: leave it out";
            return Err(Error::usage("not with a recording of blktrace:", "--iodepth", hint));
        }
        let mut files = Vec::new();
        for log in logs {
            let mut bytes = Vec::new();
            let name = log.display().to_string();
            open(log)?.read_to_end(&mut bytes).map_err(|error| Error::system("cannot read", &name, error))?;
            files.push((name, bytes));
        }
        return blktrace::read(&files, &target.display().to_string(), cut_ns).map_err(unreadable);
    }
    let logs = logs
        .iter()
        .map(|log| Ok((log.display().to_string(), BufReader::new(open(log)?))))
        .collect::<Result<Vec<_>, Error>>()?;
    let mut recording = Recording::of_logs(logs, options, depth.unwrap_or(1), cut_ns).map_err(|error| Error {
        hint: match &error {
            job::iolog::Error::NoRequest { .. } => {
                "trap --trace records requests that name their offset (pread, libaio, io_uring), not read(2) and write(2)"
            }
            _ => "",
        }
        .into(),
        ..unreadable(error)
    })?;
    if let (Some(target), [only]) = (target, &mut recording.files[..]) {
        only.name = target.display().to_string();
    }
    Ok(recording)
}

/// The bytes of a file or of a block device.
pub(super) fn size_of(path: &Path) -> std::io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    File::open(path)?.seek(SeekFrom::End(0))
}
