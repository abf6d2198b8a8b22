//! From a job and a clone's number to files that are there, checked, and open.
//!
//! ```text
//! preflight(plan): refusals, room, descriptors, before anything is touched
//! names ─► safety ─► sizes ─► layout ─► Target ─► invalidate, pre_read ─► open/close ... ─► finish (unlink)
//! ```
#![forbid(unsafe_code)]

use std::fs::{self, File, FileType};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use job::Job;
use job::workload::FileExtent;
use measure::schema::LoopDevice;
use sys::block;
use sys::file::{self, Advice, Share};

use crate::Error;
use crate::engine::devices;

pub mod elsewhere;
mod layout;
mod names;
mod open;
mod preflight;
mod safety;
mod size;
mod storage;

pub(crate) use layout::is_full;
pub(crate) use names::seats_of;
pub use names::{names, paths_of};
pub use preflight::doubts_of_space;
#[cfg(test)]
use preflight::preflight;
pub(crate) use preflight::{postponed, preflight_of};

use layout::Layout;
use safety::Precious;
use size::Existing;
use storage::Storage;

/// The place of the bytes of a job's files.
#[derive(Clone, Copy, Debug)]
pub enum Backing<'a> {
    /// In files and devices of this host.
    Host,
    /// Nowhere: engines that touch no file ([`job::engines::EngineSpec::diskless`]).
    Nowhere,
    /// With an engine that opens them itself ([`job::engines::EngineSpec::opens_files`]), prepared by it.
    Engine(&'a elsewhere::Found),
}

/// The arguments of [`Target::prepare`] beside the job.
pub struct Context<'a> {
    /// The place of the files' bytes.
    pub backing: Backing<'a>,
    /// Files to use instead of those that the job names: those of a replayed log.
    pub names: Option<Vec<String>>,
    /// Set to end a layout early; the files that it made are removed.
    pub stop: &'a AtomicBool,
    /// Fills a buffer with data as the job writes them; the second argument is its offset in the file.
    pub fill: &'a mut dyn FnMut(&mut [u8], u64),
    /// Called after every piece of layout with the bytes just written.
    pub progress: &'a mut dyn FnMut(u64),
}

/// Permissions of a file that the layout makes, before umask(2) takes its part, as in fio; a file that is made when it
/// is opened (`create_on_open`) has 0600.
const LAID_OUT_MODE: u32 = 0o644;

/// The files of one clone.
///
/// Dropped without [`Target::finish`], it removes the files that it made: a run that fails leaves nothing behind.
#[derive(Debug)]
pub struct Target {
    job: Job,
    entries: Vec<Entry>,
    /// The part of each file that the clone uses.
    extents: Vec<FileExtent>,
    finished: bool,
}

#[derive(Debug)]
struct Entry {
    path: String,
    kind: EntryKind,
    /// True if [`Target::prepare`] or [`Target::open`] made the file.
    made: bool,
    file: Option<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Regular,
    Block,
    /// A character device to which the engine sends commands ([`job::engines::EngineSpec::by_commands`]): no cache.
    Commands,
    /// Other character devices, pipes: no size, no cache.
    Stream,
    /// Files that are not of this host.
    Elsewhere,
}

impl EntryKind {
    fn of(kind: FileType) -> EntryKind {
        if kind.is_block_device() {
            EntryKind::Block
        } else if kind.is_file() {
            EntryKind::Regular
        } else {
            EntryKind::Stream
        }
    }
}

/// As in fio, a job that reads its files in (`pre_read`) fails if its engine does not open them.
fn refuse_to_read_in(job: &Job, paths: &[String]) -> Result<(), Error> {
    let opens_none = |engine: &job::engines::EngineSpec| engine.diskless && !engine.to_peer && !engine.without_data;
    if !(job.errors.as_fio && job.files.pre_read && job::engines::find(&job.engine).is_some_and(opens_none)) {
        return Ok(());
    }
    let hint = format!("pre_read=1 reads files, and the engine {} opens none: leave it out", job.engine);
    let closed = std::io::Error::from_raw_os_error(libc::EBADF);
    let path = paths.first().map_or("", String::as_str);
    Err(Error { source: Some(closed), ..Error::usage("cannot read in", path, hint) })
}

/// Facts by which the verdicts judge whether reads of the files have to go to the storage at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheFacts {
    /// Fraction 0..=1 of the bytes used that are in the page cache; None if unknown.
    pub cached_fraction: Option<f64>,
    /// Fraction 0..=1 of the bytes used that are holes or unwritten extents; None if unknown.
    pub unwritten_fraction: Option<f64>,
    /// The memory that the files are kept in.
    pub memory: Option<String>,
    /// The loop device below the files, if it goes through the page cache.
    pub loop_device: Option<LoopDevice>,
}

impl Target {
    /// The files of clone `clone` of a job: named, permitted, of sufficient size, their cached pages dropped (or read
    /// in, with `pre_read`); none of them open.
    ///
    /// # Errors
    /// A file that is refused, missing or too small, a file system that is full; also a layout that was stopped
    /// (EINTR). Files made so far are removed.
    pub fn prepare(job: &Job, clone: u32, context: &mut Context) -> Result<Target, Error> {
        let paths = match context.names.take() {
            Some(paths) => paths,
            None => names(job, clone)?,
        };
        let host = matches!(context.backing, Backing::Host);
        refuse_to_read_in(job, &paths)?;
        if host {
            make_directories(&paths, job)?;
        }
        let existing = existing(&paths, job, context.backing)?;
        let free = if host { free_for(job, &paths) } else { None };
        let stats: Vec<Existing> = existing.iter().map(|&(_, file)| file).collect();
        let extents = size::extents(job, clone, &paths, &stats, free)?;
        let entries =
            paths.into_iter().zip(&existing).map(|(path, &(kind, _))| Entry { path, kind, made: false, file: None });
        let mut target = Target { job: job.clone(), entries: entries.collect(), extents, finished: false };
        if let Backing::Engine(found) = context.backing {
            for (entry, &made) in target.entries.iter_mut().zip(&found.made) {
                entry.made = made;
            }
        }
        if host {
            // A refusal by open(2) or by O_DIRECT must come before gigabytes are laid out.
            target.check_first_open()?;
            let layout = Layout::of(job);
            for (index, entry) in target.entries.iter_mut().enumerate() {
                let extent = target.extents[index];
                let end = extent.offset + extent.size;
                let longer = entry.kind == EntryKind::Regular && end > stats[index].bytes;
                // A job that fills the storage by its own writes reserves nothing beforehand.
                if longer && !job.files.create_on_open && (layout == Layout::Data || !job.extent.fill) {
                    let (made, there) = layout::lay_out(&entry.path, end, layout, job, context)?;
                    entry.made |= made;
                    target.extents[index].size = extent.size.min(there.saturating_sub(extent.offset));
                }
            }
            target.settle_cache(context.stop)?;
        }
        Ok(target)
    }

    /// A target without files: [`Target::prepare`] makes the real one when the job's turn comes.
    pub(crate) fn postponed(job: &Job) -> Target {
        Target { job: job.clone(), entries: Vec::new(), extents: Vec::new(), finished: false }
    }

    /// Number of files of the target.
    pub fn files(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Path of each file, in the order of their indices.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.path.as_str())
    }

    /// The part of each file that the clone uses.
    pub fn extents(&self) -> &[FileExtent] {
        &self.extents
    }

    /// Gives a file another extent: the zones of the device decide where it begins and ends.
    pub(crate) fn set_extent(&mut self, file: usize, extent: FileExtent) {
        self.extents[file] = extent;
    }

    /// The number of files that may be open at once (`openfiles`).
    pub fn open_limit(&self) -> u32 {
        self.job.files.open.unwrap_or(u32::MAX).clamp(1, self.files().max(1))
    }

    /// The descriptor of a file, opened as the job asks unless it is open already. The target keeps the descriptor and
    /// closes it.
    ///
    /// # Errors
    /// The error of open(2), with the likely cause.
    pub fn open(&mut self, file: u32) -> Result<RawFd, Error> {
        let entry = &mut self.entries[file as usize];
        if let Some(open) = &entry.file {
            return Ok(open.as_raw_fd());
        }
        let regular = entry.kind == EntryKind::Regular;
        let missing = regular && !Path::new(&entry.path).exists();
        let opened = open::open(&entry.path, &self.job, entry.kind)?;
        entry.made |= missing;
        Ok(entry.file.insert(opened).as_raw_fd())
    }

    /// Closes a file; syncs it first with `fsync_on_close`. The caller has told the engine to forget the file before.
    ///
    /// # Errors
    /// fsync(2) failed; the file is closed anyway.
    pub fn close(&mut self, file: u32) -> Result<(), Error> {
        let entry = &mut self.entries[file as usize];
        match entry.file.take() {
            Some(file) if self.job.syncs.fsync_on_close => entry.sync(&file, &self.job),
            _ => Ok(()),
        }
    }

    /// Forces the data that were written to every file out to the storage (`end_fsync`), or all data of the files' file
    /// systems (`end_syncfs`).
    ///
    /// # Errors
    /// open(2), fsync(2) or syncfs(2) failed.
    pub fn sync_all(&mut self) -> Result<(), Error> {
        for index in 0..self.entries.len() {
            let was_open = self.entries[index].file.is_some();
            if matches!(self.entries[index].kind, EntryKind::Regular | EntryKind::Block | EntryKind::Commands) {
                self.open(index as u32)?;
                let entry = &self.entries[index];
                if let Some(file) = &entry.file {
                    let syncs = &self.job.syncs;
                    if syncs.end_fsync || entry.kind == EntryKind::Commands {
                        entry.sync(file, &self.job)?;
                    }
                    if syncs.end_syncfs && entry.kind != EntryKind::Commands {
                        file::sync_file_system(file)
                            .map_err(|error| Error::system("cannot sync the file system of", &entry.path, error))?;
                    }
                }
            }
            if !was_open {
                self.entries[index].file = None;
            }
        }
        Ok(())
    }

    /// Drops the files' pages from the page cache (`invalidate`), or reads them in (`pre_read`): before the first pass
    /// over the files, done by [`Target::prepare`], and before every further one.
    ///
    /// # Errors
    /// Files that cannot be opened or read.
    pub fn settle_cache(&self, stop: &AtomicBool) -> Result<(), Error> {
        if !(self.job.files.invalidate || self.job.files.pre_read) {
            return Ok(());
        }
        for (entry, extent) in self.entries.iter().zip(&self.extents) {
            if !matches!(entry.kind, EntryKind::Regular | EntryKind::Block) || !Path::new(&entry.path).exists() {
                continue;
            }
            let file = entry.reader().map_err(|error| open::explained(error, &entry.path, &self.job, false))?;
            if self.job.files.pre_read {
                read_in(&file, extent, stop).map_err(|error| Error::system("cannot read in", &entry.path, error))?;
            } else {
                // Only clean pages go; pages that a concurrent writer has dirtied stay, as with fio.
                let _ = file::advise(&file, Advice::DontNeed, extent.offset, extent.size);
            }
        }
        Ok(())
    }

    /// The bytes in use that are in the page cache, and those that were never written: looked at now, at a cost that
    /// is bounded however many and large the files are.
    pub fn cache_facts(&self) -> CacheFacts {
        const FILES: usize = 256;
        let (mut cached, mut unwritten) = (Share::default(), Share::default());
        let step = self.entries.len().div_ceil(FILES).max(1);
        for (entry, extent) in self.entries.iter().zip(&self.extents).step_by(step) {
            if !matches!(entry.kind, EntryKind::Regular | EntryKind::Block) {
                continue;
            }
            let Ok(file) = entry.reader() else { continue };
            cached += file::cached(&file, extent.offset, extent.size).unwrap_or_default();
            if entry.kind == EntryKind::Regular {
                unwritten += file::unwritten(&file, extent.offset, extent.size).unwrap_or_default();
            }
        }
        let mut on_disks = self.entries.iter().filter(|entry| entry.kind != EntryKind::Commands);
        let below = on_disks.find_map(|entry| storage::storage_of(&entry.reader().ok()?));
        let (memory, loop_device) = match below {
            Some(Storage::Memory(name)) => (Some(name), None),
            Some(Storage::Loop(device)) => (None, Some(device)),
            None => (None, None),
        };
        CacheFacts { cached_fraction: cached.fraction(), unwritten_fraction: unwritten.fraction(), memory, loop_device }
    }

    /// Ends the clone's use of the files: closes them, syncs them with `fsync_on_close`, removes them with `unlink`.
    ///
    /// # Errors
    /// fsync(2) or unlink(2) failed; the other files are dealt with anyway.
    pub fn finish(mut self) -> Result<(), Error> {
        self.finished = true;
        let mut result = Ok(());
        for entry in &mut self.entries {
            if let Some(file) = entry.file.take()
                && self.job.syncs.fsync_on_close
            {
                result = result.and(entry.sync(&file, &self.job));
            }
            if self.job.files.unlink && entry.kind == EntryKind::Regular {
                result = result.and(entry.remove());
            }
        }
        if self.job.files.unlink {
            result = result.and(self.remove_elsewhere(|_| true));
        }
        result
    }

    /// Removes the files that are not of this host and that `which` selects.
    fn remove_elsewhere(&self, which: impl Fn(&Entry) -> bool) -> Result<(), Error> {
        let opens_files = job::engines::find(&self.job.engine).is_some_and(|engine| engine.opens_files);
        let paths =
            self.entries.iter().filter(|entry| opens_files && entry.kind == EntryKind::Elsewhere && which(entry));
        let paths: Vec<String> = paths.map(|entry| entry.path.clone()).collect();
        if paths.is_empty() { Ok(()) } else { elsewhere::remove(&self.job, &paths) }
    }

    /// Removes the files, as `unlink_each_loop` does between loops. They must be closed.
    ///
    /// # Errors
    /// unlink(2) failed.
    pub fn unlink_for_next_loop(&mut self) -> Result<(), Error> {
        let mut regular = self.entries.iter_mut().filter(|entry| entry.kind == EntryKind::Regular);
        regular.try_for_each(Entry::remove)
    }

    /// Opens the first file once, so that errors of open(2) come early; makes the file if the layout would make it
    /// anyway.
    fn check_first_open(&mut self) -> Result<(), Error> {
        let Some(entry) = self.entries.first_mut() else { return Ok(()) };
        if entry.kind == EntryKind::Stream {
            return Ok(()); // opening a pipe or a terminal may have effects
        }
        if entry.kind == EntryKind::Regular && !Path::new(&entry.path).exists() {
            if self.job.files.create_on_open {
                return Ok(());
            }
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(LAID_OUT_MODE)
                .open(&entry.path)
                .map_err(|error| open::explained(error, &entry.path, &self.job, true))?;
            entry.made = true;
        }
        let file = open::open(&entry.path, &self.job, entry.kind)?;
        if self.job.files.direct && entry.kind != EntryKind::Commands {
            open::check_direct(&file, &entry.path, &self.job, self.extents[0].offset)?;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // The user gets the failure that led here, not one of removing.
        let _ = self.remove_elsewhere(|entry| entry.made);
        for entry in self.entries.iter_mut().filter(|entry| entry.made && entry.kind != EntryKind::Elsewhere) {
            entry.file = None;
            let _ = entry.remove();
        }
    }
}

impl Entry {
    /// A descriptor for looking at the file, beside the one that the job uses.
    fn reader(&self) -> std::io::Result<File> {
        File::open(&self.path)
    }

    fn sync(&self, file: &File, job: &Job) -> Result<(), Error> {
        let synced = match self.kind {
            EntryKind::Commands => devices::flush(&job.engine, file),
            _ => file.sync_all(),
        };
        synced.map_err(|error| Error::system("cannot sync", &self.path, error))
    }

    fn remove(&mut self) -> Result<(), Error> {
        match fs::remove_file(&self.path) {
            // Another clone that shares the file was first.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::system("cannot remove", &self.path, error)),
            Ok(()) => Ok(()),
        }
    }
}

/// The files as they are now, in the order of `paths`. The function refuses protected files first.
fn existing(paths: &[String], job: &Job, backing: Backing) -> Result<Vec<(EntryKind, Existing)>, Error> {
    match backing {
        Backing::Nowhere => {
            // A replayed log has the sizes: room for every offset.
            let bytes = if job.iolog.is_replay() { i64::MAX as u64 } else { 0 };
            Ok(vec![(EntryKind::Elsewhere, Existing { bytes, growable: true }); paths.len()])
        }
        Backing::Engine(found) => Ok(found
            .bytes
            .iter()
            .map(|&bytes| (EntryKind::Elsewhere, Existing { bytes, growable: found.growable }))
            .collect()),
        Backing::Host => {
            let precious = Precious::of_host();
            paths.iter().map(|path| precious.check(path, job).and_then(|()| existing_file(path, job))).collect()
        }
    }
}

fn existing_file(path: &str, job: &Job) -> Result<(EntryKind, Existing), Error> {
    if takes_commands(job) {
        return existing_device(path, job);
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let source = std::io::Error::from_raw_os_error(libc::EISDIR);
            return Err(Error::system("cannot use", path, source).hint("use directory= for files in it"));
        }
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            may_make(path, job)?;
            return Ok((EntryKind::Regular, Existing { bytes: 0, growable: true }));
        }
        Err(error) => return Err(Error::system("cannot stat", path, error)),
    };
    let kind = EntryKind::of(metadata.file_type());
    let existing = match kind {
        EntryKind::Regular => Existing { bytes: metadata.len(), growable: true },
        EntryKind::Block => {
            let size = File::open(path).and_then(|file| block::bytes(&file));
            let bytes = size.map_err(|error| open::explained(error, path, job, false))?;
            Existing { bytes, growable: false }
        }
        EntryKind::Commands | EntryKind::Stream | EntryKind::Elsewhere => Existing { bytes: u64::MAX, growable: false },
    };
    Ok((kind, existing))
}

/// True if the job's engine sends commands to devices.
fn takes_commands(job: &Job) -> bool {
    job::engines::find(&job.engine).is_some_and(|engine| engine.by_commands)
}

/// A device to which the engine sends commands: its size is what the device says.
fn existing_device(path: &str, job: &Job) -> Result<(EntryKind, Existing), Error> {
    let generic =
        if job.engine == "sg" { "a SCSI disk: /dev/sg0 or /dev/sda" } else { "an NVMe namespace: /dev/ng0n1" };
    let no_device = || {
        let hint = format!("ioengine={} sends commands to {generic}", job.engine);
        Error::usage("cannot use", path, format!("job {}: no such device: {hint}", job.name))
    };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::system("cannot stat", path, error));
        }
        found => found.map_err(|_| no_device())?,
    };
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => EntryKind::Commands,
        kind if kind.is_block_device() && job.engine == "sg" => EntryKind::Block,
        _ => return Err(no_device()),
    };
    let device = File::open(path).map_err(|error| open::explained(error, path, job, false))?;
    let geometry = devices::geometry(&job.engine, &device).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => no_device(),
        Some(libc::EPROTO) => {
            let hint = "its blocks have metadata, which Plimsoll does not transfer: format it without";
            Error::usage("cannot use", path, hint)
        }
        _ => Error::system("cannot ask for the size of", path, error),
    })?;
    open::check_multiples(u64::from(geometry.block_bytes), job, 0).map_err(|odd| {
        let hint = format!("its blocks are of {} bytes: {odd} is not a multiple", geometry.block_bytes);
        Error::usage("cannot use", path, hint)
    })?;
    Ok((kind, Existing { bytes: geometry.bytes, growable: false }))
}

/// True if a file of this path would stand among the device files: in `/dev`, or below it on the same file system. The
/// file systems that are mounted below `/dev`, such as `/dev/shm`, hold files of any program.
fn stands_among_devices(path: &Path) -> bool {
    let file_system = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    let Some(parent) = path.parent().and_then(|parent| fs::canonicalize(parent).ok()) else { return false };
    parent.starts_with("/dev") && file_system(&parent) == file_system(Path::new("/dev"))
}

/// Refuses to make the missing file at `path`: where the job forbids it, or where the file would stand in for a device.
///
/// # Errors
/// The job may not make this file.
pub(crate) fn may_make(path: &str, job: &Job) -> Result<(), Error> {
    let hint = if open::parent_is_missing(path) {
        "its directory does not exist"
    } else if !job.files.allow_create {
        "it does not exist, and allow_file_create=0 forbids to create it"
    } else if stands_among_devices(Path::new(path)) {
        "no such device: check the name"
    } else {
        return Ok(());
    };
    let source = Some(std::io::Error::from_raw_os_error(libc::ENOENT));
    Err(Error { source, ..Error::usage("cannot use", path, format!("job {}: {hint}", job.name)) })
}

/// True if the directories that a file's name itself names are made.
fn makes_directories(job: &Job) -> bool {
    let files = &job.files;
    match files.names.is_empty() {
        true => files.format.contains('/'),
        false => files.makes_directories && files.directories.iter().all(|place| Path::new(place).is_dir()),
    }
}

/// Makes the directories that `filename_format` itself names (`d$jobnum/f$filenum`). Directories of `directory=` and
/// of explicit names must exist already, for a typing error would fill the wrong disk. Called as fio, those of explicit
/// names are made as in fio, but none among the device files.
fn make_directories(paths: &[String], job: &Job) -> Result<(), Error> {
    if !makes_directories(job) || job.files.opendir.is_some() || !job.files.allow_create {
        return Ok(());
    }
    let is_missing = |place: &&Path| !place.as_os_str().is_empty() && !place.exists();
    let parents = paths.iter().filter_map(|path| Path::new(path).parent()).filter(is_missing);
    for parent in parents {
        let first = parent.ancestors().take_while(is_missing).last().unwrap_or(parent);
        if stands_among_devices(first) {
            continue; // refused by the check of the file
        }
        fs::create_dir_all(parent)
            .map_err(|error| Error::system("cannot create directory", parent.display().to_string(), error))?;
    }
    Ok(())
}

/// The bytes that are free for a job with `fill_device`; None for other jobs.
fn free_for(job: &Job, paths: &[String]) -> Option<u64> {
    job.extent.fill.then(|| paths.first().and_then(|path| room_at(path).ok()).map_or(0, |space| space.free))
}

/// Room on the file system that holds, or will hold, a path.
fn room_at(path: &str) -> std::io::Result<file::Space> {
    let parent = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    file::space(parent)
}

/// Reads a range into the page cache.
fn read_in(file: &File, extent: &FileExtent, stop: &AtomicBool) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let (mut at, end) = (extent.offset, extent.offset + extent.size);
    while at < end && !stop.load(Ordering::Relaxed) {
        let len = (end - at).min(buffer.len() as u64) as usize;
        match file.read_at(&mut buffer[..len], at)? {
            0 => break,
            read => at += read as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
