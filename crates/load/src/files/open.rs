//! Opens files as the job asks: O_DIRECT, O_SYNC, advice; its errors name the likely cause.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use job::Job;
use job::job::{Fadvise, OpenSync};
use measure::PerDirection;
use sys::block;
use sys::file::{self, Advice};

use super::EntryKind;
use crate::Error;

/// Opens `path` for the job's ops.
///
/// # Errors
/// The error of open(2), with the likely cause.
pub(super) fn open(path: &str, job: &Job, kind: EntryKind) -> Result<File, Error> {
    if kind == EntryKind::Commands {
        // Commands are written, whatever they do; flags for data mean nothing.
        let opened = File::options().read(true).write(true).open(path);
        return opened.map_err(|error| explained(error, path, job, true));
    }
    let PerDirection { write, trim, .. } = job.rw.directions;
    let writes = write || trim;
    // Reads shall not write: without O_NOATIME, an access time costs an inode update now and then.
    let mut flags = libc::O_CLOEXEC | libc::O_NOATIME;
    if job.files.direct {
        flags |= libc::O_DIRECT;
    }
    match job.files.sync {
        OpenSync::None => {}
        OpenSync::Sync => flags |= libc::O_SYNC,
        OpenSync::Dsync => flags |= libc::O_DSYNC,
    }
    let mut options = File::options();
    options.read(true).write(writes).custom_flags(flags);
    options.create(kind == EntryKind::Regular && writes && job.files.allow_create).mode(0o600);
    let opened = match options.open(path) {
        // Only the owner of a file may leave its access time alone.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            options.custom_flags(flags & !libc::O_NOATIME).open(path)
        }
        opened => opened,
    };
    let file = opened.map_err(|error| explained(error, path, job, writes))?;
    if let Some(advice) = advice(job) {
        // Character devices and pipes take no advice.
        let _ = file::advise(&file, advice, 0, 0);
    }
    Ok(file)
}

fn advice(job: &Job) -> Option<Advice> {
    match job.files.fadvise {
        Fadvise::None => None,
        Fadvise::Workload if job.rw.random => Some(Advice::Random),
        Fadvise::Workload | Fadvise::Sequential => Some(Advice::Sequential),
        Fadvise::Random => Some(Advice::Random),
    }
}

/// The error of open(2) with the likely cause.
pub(super) fn explained(error: io::Error, path: &str, job: &Job, writes: bool) -> Error {
    let file_system = || {
        let directory =
            Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        file::space(directory).map_or("this file system", |space| file::file_system_name(space.kind))
    };
    let hint = match error.raw_os_error() {
        Some(libc::ENOENT) if parent_is_missing(path) => "its directory does not exist".to_string(),
        Some(libc::ENOENT) if !job.files.allow_create => {
            "it does not exist, and the job must not create it (allow_file_create=0)".to_string()
        }
        Some(libc::ENOENT) if job.files.create_on_open => {
            "it does not exist, and a job that only reads creates no file when it opens it: use create_on_open=0"
                .to_string()
        }
        Some(libc::ENOENT) => "it does not exist any more: did another program remove it?".to_string(),
        Some(libc::EINVAL) if job.files.direct => {
            format!("{} does not support O_DIRECT here: use direct=0", file_system())
        }
        Some(libc::EROFS) if writes => "mounted read-only".to_string(),
        Some(libc::EACCES | libc::EPERM) => {
            format!("no permission to {} it: run as its owner or as root", if writes { "write" } else { "read" })
        }
        Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise ulimit -n or set openfiles=".to_string(),
        Some(libc::EISDIR) => "it is a directory: use directory= for files in it".to_string(),
        Some(libc::ENOSPC | libc::EDQUOT) => "no room for another file".to_string(),
        Some(libc::EBUSY) => "another program has it open exclusively".to_string(),
        Some(libc::ETXTBSY) => "it is a running program".to_string(),
        _ => String::new(),
    };
    Error::system("cannot open", path, error).hint(hint)
}

pub(super) fn parent_is_missing(path: &str) -> bool {
    Path::new(path).parent().is_some_and(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())
}

/// Checks that the job's blocks and offsets suit direct I/O on this file.
///
/// # Errors
/// A block size, an offset or an `iomem_align` that is not a multiple of the file's unit, to which the kernel would
/// answer EINVAL; O_DIRECT not supported.
pub(super) fn check_direct(file: &File, path: &str, job: &Job, first: u64) -> Result<(), Error> {
    let offset = match file::direct_alignment(file) {
        Some(alignment) if alignment.offset == 0 => {
            let hint = "this file does not support it: use direct=0";
            return Err(Error::usage("O_DIRECT is not possible on", path, hint));
        }
        Some(alignment) => {
            let memory = u64::from(alignment.memory.max(1));
            if !job.buffers.align.is_multiple_of(memory) {
                let hint = format!(
                    "O_DIRECT needs buffers aligned to {memory} bytes: iomem_align={} is not",
                    job.buffers.align
                );
                return Err(Error::usage("cannot use direct=1 on", path, hint));
            }
            u64::from(alignment.offset)
        }
        None => u64::from(block::logical_block_bytes(file).unwrap_or(1)),
    };
    check_multiples(offset, job, first).map_err(|odd| {
        let hint = format!("O_DIRECT needs multiples of {offset} bytes: {odd} is not; change it or use direct=0");
        Error::usage("cannot use direct=1 on", path, hint)
    })
}

/// Checks that the job's blocks, and offsets from `first` on, are multiples of `unit` bytes.
///
/// # Errors
/// The first option that does not give a multiple, as `bs=1000`.
pub(super) fn check_multiples(unit: u64, job: &Job, first: u64) -> Result<(), String> {
    let misaligned = |what: &str, bytes: u64| Err(format!("{what}={bytes}"));
    for (direction, &used) in job.rw.directions.iter() {
        let (low, high) = job.blocks.range[direction];
        let sizes = [low, high].into_iter().chain(job.blocks.split[direction].iter().map(|&(bytes, _)| bytes));
        for bytes in sizes.filter(|_| used) {
            if !bytes.is_multiple_of(unit) {
                return misaligned("bs", bytes);
            }
        }
        let align = job.blocks.align[direction];
        if used && job.rw.random && !align.is_multiple_of(unit) {
            return misaligned("blockalign", align);
        }
    }
    if !first.is_multiple_of(unit) {
        return misaligned("offset", first);
    }
    Ok(())
}
