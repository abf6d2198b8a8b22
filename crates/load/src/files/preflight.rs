//! Checks everything that a plan will touch, before the run touches anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use job::Job;
use job::job::{Amount, Plan};
use measure::Direction;
use sys::file;

use super::layout::{self, Layout};
use super::safety::Precious;
use super::size::{self, Existing};
use super::{EntryKind, existing_file, free_for, names, open, paths_of, seats_of};
use crate::failures::Failures;
use crate::{Error, ErrorKind};

/// Descriptors that a run needs beside those of its files: rings, logs, the standard three, libraries.
const SPARE_DESCRIPTORS: u64 = 64;

/// Checks a whole plan before anything is made or opened: refusals to protect data, missing directories and files,
/// sizes, room on the file systems, descriptors (whose soft limit it raises).
///
/// # Errors
/// The first thing that stands in the way, as [`super::Target::prepare`] would meet it later.
pub fn preflight(plan: &Plan) -> Result<(), Error> {
    preflight_of(plan, &mut Failures::default())
}

/// As [`preflight`], for the clones that have not failed yet; the failures of clones that fail alone are kept.
///
/// # Errors
/// As [`preflight`], unless the clone fails alone.
pub(crate) fn preflight_of(plan: &Plan, failures: &mut Failures) -> Result<(), Error> {
    let mut check = Check {
        precious: Precious::of_host(),
        rooms: Rooms { refuses_each: failures.alone, ..Rooms::default() },
        descriptors: 0,
        ends: BTreeMap::new(),
    };
    let postponed = postponed(plan)?;
    check_recordings(plan)?;
    for ((job, &later), seats) in plan.jobs.iter().zip(&postponed).zip(seats_of(plan)) {
        let Some(engine) = job::engines::find(&job.engine) else { continue }; // the runner reports an unknown engine
        if engine.diskless || engine.opens_files || job.iolog.is_replay() {
            continue;
        }
        if engine.by_commands
            && let Err(error) = crate::engine::check(job)
        {
            failures.of_all(seats, error)?;
            continue;
        }
        if job.time.stonewall {
            check.rooms.next_stage();
        }
        for (clone, seat) in (0..).zip(seats) {
            if !failures.has(seat)
                && let Err(error) = check.clone(job, clone, later)
            {
                failures.of(seat, error)?;
            }
        }
    }
    check.rooms.check()?;
    let all_threads = check.descriptors + SPARE_DESCRIPTORS;
    let limit = file::raise_descriptor_limit(all_threads);
    let threads = plan.jobs.iter().find(|job| job.process.thread);
    if let Some(job) = threads.filter(|_| limit < all_threads) {
        return Err(too_few_descriptors(all_threads, limit, job));
    }
    Ok(())
}

/// The check of a plan, clone by clone.
struct Check {
    precious: Precious,
    rooms: Rooms,
    descriptors: u64,
    /// The ends that the layouts for earlier jobs give their files: the files of a plan are made job by job.
    ends: BTreeMap<String, u64>,
}

impl Check {
    /// Checks one clone; `later`: an earlier job decides which files will be there.
    fn clone(&mut self, job: &Job, clone: u32, later: bool) -> Result<(), Error> {
        let paths = names(job, clone)?;
        let mut files = Vec::with_capacity(paths.len());
        for path in &paths {
            self.precious.check(path, job)?;
            if later {
                continue;
            }
            // Directories of a filename_format are made later.
            let later = open::parent_is_missing(path) && super::makes_directories(job);
            let fresh = (EntryKind::Regular, Existing { bytes: 0, growable: true });
            let (kind, mut file) = if later { fresh } else { existing_file(path, job)? };
            if let Some(&end) = self.ends.get(path).filter(|_| kind == EntryKind::Regular) {
                file.bytes = file.bytes.max(end);
            }
            files.push((kind, file));
        }
        if later {
            return Ok(());
        }
        let stats: Vec<Existing> = files.iter().map(|&(_, file)| file).collect();
        let extents = size::extents(job, clone, &paths, &stats, free_for(job, &paths))?;
        for ((path, (kind, file)), extent) in paths.iter().zip(&files).zip(&extents) {
            let end = extent.offset + extent.size;
            if job.files.read_only && *kind == EntryKind::Regular && (job.extent.fill || end > file.bytes) {
                return Err(cannot_make(path, job));
            }
            if *kind == EntryKind::Regular && !job.extent.fill && end > file.bytes {
                self.rooms.need(path, end - file.bytes, job)?;
                if layout::makes_longer(job) && !job.files.unlink {
                    self.ends.insert(path.clone(), end);
                }
            }
        }
        self.descriptors += u64::from(job.files.open.unwrap_or(u32::MAX)).min(paths.len() as u64);
        if !job.process.thread {
            check_descriptors(paths.len() as u64, job)?;
        }
        Ok(())
    }
}

fn cannot_make(path: &str, job: &Job) -> Error {
    let what = format!("{path} is missing or too short, and --readonly forbids to write it");
    let refused = Error::usage(what, format!("(job {})", job.name), "make the file first, or leave --readonly out");
    Error { source: Some(std::io::Error::from_raw_os_error(libc::ENOENT)), ..refused }
}

/// Warnings about jobs that may find their file system full: files that the jobs write are larger than the space that
/// is free now, and nobody knows how far the jobs come. The function looks at the files and touches nothing.
pub fn doubts_of_space(plan: &Plan) -> Vec<String> {
    let mut rooms = Rooms { of_doubts: true, ..Rooms::default() };
    for job in &plan.jobs {
        let engine = job::engines::find(&job.engine);
        let no_files = engine
            .is_none_or(|engine| engine.diskless || engine.opens_files || engine.by_commands || engine.without_content);
        let ends_well = job.extent.fill || job.errors.tolerates(Direction::Write, libc::ENOSPC);
        let makes_no_data = job.files.create_on_open && !job.rw.directions.write;
        if no_files || ends_well || makes_no_data || job.iolog.is_replay() {
            continue;
        }
        if job.time.stonewall {
            rooms.next_stage();
        }
        for clone in 0..job.process.clones.max(1) {
            // A job that cannot be run is an error, which the run reports.
            let _ = rooms.doubt(job, clone);
        }
    }
    let doubts = rooms.doubts();
    // A run that is refused says why, and that alone.
    if doubts.is_empty() || preflight(plan).is_err() { Vec::new() } else { doubts }
}

/// True if the layout surely takes as many bytes as it makes the files longer. Of a job that writes the data itself,
/// nobody knows how far it comes; and a file system may keep data in less space.
fn takes_space(job: &Job, kind: i64) -> bool {
    let compressible = job.buffers.zero || job.buffers.compress_percent > 0 || !job.buffers.pattern.is_empty();
    let laid_out = Layout::of(job) == Layout::Data && !job.files.create_on_open;
    laid_out && !compressible && !file::may_store_less(kind)
}

/// Refuses a log of `write_iolog` in the place of a file that the plan reads or measures, or of a device.
fn check_recordings(plan: &Plan) -> Result<(), Error> {
    let mut used = None;
    for job in &plan.jobs {
        for log in (0..job.process.clones.max(1)).filter_map(|clone| job.iolog.log_of(clone)) {
            let used = used.get_or_insert_with(|| paths_of(plan));
            let there = file::identity(Path::new(&log));
            let what = if fs::metadata(&log).is_ok_and(|there| there.file_type().is_block_device()) {
                "write_iolog would write over the device"
            } else if used
                .iter()
                .any(|path| path == Path::new(&log) || there.is_some() && file::identity(path) == there)
            {
                "write_iolog would replace a file that a job uses,"
            } else {
                continue;
            };
            return Err(Error::usage(what, log, format!("job {}: give the log another name", job.name)));
        }
    }
    Ok(())
}

/// For each job, true if its files can be looked at only when its turn comes. Such a job takes its size from files
/// that a job of an earlier stage writes.
///
/// # Errors
/// Names that cannot be made: an `opendir` that does not exist.
pub(crate) fn postponed(plan: &Plan) -> Result<Vec<bool>, Error> {
    let mut postponed = Vec::with_capacity(plan.jobs.len());
    // Files that earlier stages write, and those that this one writes.
    let (mut before, mut now) = (BTreeSet::new(), BTreeSet::new());
    for job in &plan.jobs {
        if job.time.stonewall || job.time.wait_for.is_some() {
            before.append(&mut now);
        }
        let replays = job.iolog.is_replay();
        let on_host = job::engines::find(&job.engine).is_some_and(|engine| !engine.diskless && !engine.opens_files);
        if replays || !on_host || job.files.opendir.is_some() {
            postponed.push(false);
            continue;
        }
        let clones = 0..job.process.clones.max(1);
        let paths = clones.map(|clone| names(job, clone)).collect::<Result<Vec<_>, _>>()?.concat();
        let unsized_yet =
            !matches!(job.extent.size, Some(Amount::Bytes(_))) && job.extent.file_size.is_none() && !job.extent.fill;
        let sized_by_others = unsized_yet && paths.iter().any(|path| before.contains(path));
        postponed.push(sized_by_others);
        if job.rw.directions.write {
            now.extend(paths);
        }
    }
    Ok(postponed)
}

/// Checks that one process can have the files of one clone open; raises the soft limit of descriptors for that.
fn check_descriptors(files: u64, job: &Job) -> Result<(), Error> {
    let wanted = u64::from(job.files.open.unwrap_or(u32::MAX)).min(files) + SPARE_DESCRIPTORS;
    let limit = file::raise_descriptor_limit(wanted);
    if limit < wanted { Err(too_few_descriptors(wanted, limit, job)) } else { Ok(()) }
}

fn too_few_descriptors(wanted: u64, limit: u64, job: &Job) -> Error {
    let hint =
        format!("{wanted} are needed, the hard limit is {limit}: raise ulimit -Hn, or set openfiles= or nrfiles=");
    Error::usage("too few file descriptors for job", job.name.clone(), hint)
}

/// Room that the stages of a plan need, by file system.
#[derive(Default)]
struct Rooms {
    by_device: BTreeMap<u64, Room>,
    counted: BTreeSet<String>,
    /// True if everything counts that the jobs may write; otherwise only what their layout surely takes.
    of_doubts: bool,
    /// True if [`Rooms::need`] refuses the file that does not fit; otherwise [`Rooms::check`] refuses the plan.
    refuses_each: bool,
}

struct Room {
    place: String,
    available: u64,
    /// Bytes of files that earlier stages wrote and did not remove.
    kept: u64,
    /// Bytes of the present stage that it removes at its end.
    passing: u64,
    /// Bytes of the present stage that stay after its end.
    staying: u64,
    /// The most bytes that any stage has needed.
    peak: u64,
}

impl Rooms {
    fn need(&mut self, path: &str, bytes: u64, job: &Job) -> Result<(), Error> {
        if !self.counted.insert(path.to_string()) {
            return Ok(()); // shared by clones or jobs
        }
        let mut parent =
            Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        while !parent.is_dir() {
            parent = parent.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        }
        let describe = |error| Error::system("cannot stat", parent.display().to_string(), error);
        let device = fs::metadata(parent).map_err(describe)?.dev();
        let space = file::space(parent).map_err(describe)?;
        if space.read_only {
            let source = std::io::Error::from_raw_os_error(libc::EROFS);
            return Err(Error::system("cannot create", path, source).hint("mounted read-only: use another directory="));
        }
        let room = self.by_device.entry(device).or_insert_with(|| Room {
            place: parent.display().to_string(),
            available: if self.of_doubts { space.available } else { space.free },
            kept: 0,
            passing: 0,
            staying: 0,
            peak: 0,
        });
        let bytes = if self.of_doubts || takes_space(job, space.kind) { bytes } else { 0 };
        let whole = room.kept.saturating_add(room.staying).saturating_add(room.passing).saturating_add(bytes);
        if self.refuses_each && bytes > 0 && whole > room.available {
            self.counted.remove(path);
            let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
            let free = room.available.saturating_sub(whole - bytes);
            let hint = format!("the file needs {bytes} bytes more, {free} are left: lower size=");
            return Err(Error::system("cannot make", path, source).hint(hint));
        }
        let sum = if job.files.unlink { &mut room.passing } else { &mut room.staying };
        *sum = sum.saturating_add(bytes);
        room.peak = room.peak.max(room.kept.saturating_add(room.staying).saturating_add(room.passing));
        Ok(())
    }

    /// Counts the bytes that a clone may write beyond the ends of its files.
    fn doubt(&mut self, job: &Job, clone: u32) -> Result<(), Error> {
        let paths = names(job, clone)?;
        let there = paths.iter().map(|path| existing_file(path, job)).collect::<Result<Vec<_>, _>>()?;
        let stats: Vec<Existing> = there.iter().map(|&(_, file)| file).collect();
        // Each byte that the job transfers takes a byte at most, unless the layout writes the files.
        let written = match job.extent.io_size {
            Some(Amount::Bytes(bytes)) if Layout::of(job) == Layout::Space => bytes / paths.len().max(1) as u64,
            _ => u64::MAX,
        };
        for ((path, (kind, file)), extent) in
            paths.iter().zip(&there).zip(size::extents(job, clone, &paths, &stats, None)?)
        {
            let longer = (extent.offset + extent.size).saturating_sub(file.bytes);
            if *kind == EntryKind::Regular && longer > 0 {
                self.need(path, longer.min(written), job)?;
            }
        }
        Ok(())
    }

    fn doubts(&self) -> Vec<String> {
        let full = self.by_device.values().filter(|room| room.peak > room.available);
        let text = |room: &Room| {
            format!(
                "the jobs' files may take {} bytes in {}, and {} are free: a job that comes so far ends with ENOSPC",
                room.peak, room.place, room.available
            )
        };
        full.map(text).collect()
    }

    fn next_stage(&mut self) {
        for room in self.by_device.values_mut() {
            room.kept += room.staying;
            (room.passing, room.staying) = (0, 0);
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self.by_device.values().find(|room| room.peak > room.available) {
            None => Ok(()),
            Some(room) => Err(Error {
                kind: ErrorKind::Usage,
                what: "not enough space in".into(),
                place: room.place.clone(),
                hint: format!(
                    "the jobs' files need {} bytes, {} are free: lower size=, or use another directory=",
                    room.peak, room.available
                ),
                source: None,
            }),
        }
    }
}
