//! Makes the files that a job needs to find before it runs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use job::Job;
use job::job::Fallocate;
use measure::PerDirection;
use sys::buffer::{Buffer, Memory};
use sys::file::{self, Reserve};

use super::Context;
use crate::{Error, ErrorKind};

/// Bytes of a write(2) while data are laid out; the content is that of the job's blocks in any case.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;

/// The way to make a file ready, as fio's extend_file decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The layout writes data: for jobs that read, or overwrite.
    Data,
    /// The layout reserves space as `fallocate` says: the job itself writes the data.
    Space,
}

impl Layout {
    pub(super) fn of(job: &Job) -> Layout {
        let PerDirection { read, write, trim } = job.rw.directions;
        let verify_only = job.verify.as_ref().is_some_and(|verify| verify.only);
        // Trimming a range without data measures nothing.
        if (read && !verify_only) || (job.files.overwrite && !job.files.append) || (trim && !write) {
            Layout::Data
        } else {
            Layout::Space
        }
    }
}

/// True if the layout surely gives files of a file system with fallocate(2) the length that the job needs.
pub(super) fn makes_longer(job: &Job) -> bool {
    let reserves = matches!(job.files.fallocate, Fallocate::Truncate | Fallocate::Posix | Fallocate::Native);
    !job.files.create_on_open && !job.extent.fill && (Layout::of(job) == Layout::Data || reserves)
}

/// Makes the file at `path` at least `bytes` long; returns true if it created the file, and the bytes that the job may
/// take to be there: fewer than `bytes` only where `fill_device` fills the storage with the file. Data that the file
/// already has stay as they are.
///
/// # Errors
/// ENOSPC and other failures of the system; `Interrupted` when the stop flag was set. A file that was created here is
/// removed again.
pub(super) fn lay_out(
    path: &str,
    bytes: u64,
    layout: Layout,
    job: &Job,
    context: &mut Context,
) -> Result<(bool, u64), Error> {
    let created = !Path::new(path).exists();
    let file = File::options()
        .read(true)
        .write(true)
        .create(job.files.allow_create)
        .truncate(false)
        .mode(super::LAID_OUT_MODE)
        .open(path);
    let file = file.map_err(|error| super::open::explained(error, path, job, true))?;
    let made = extend(&file, path, bytes, layout, job, context);
    if made.is_err() && created {
        // The function returns the first error. A failure to remove the file adds nothing to it.
        let _ = fs::remove_file(path);
    }
    made.map(|there| (created, there))
}

fn extend(file: &File, path: &str, bytes: u64, layout: Layout, job: &Job, context: &mut Context) -> Result<u64, Error> {
    let failed = |what: &str, error: io::Error| no_space(Error::system(what, path, error), bytes);
    // Clones may share the file: the first makes it, the others find it made.
    file::lock(file).map_err(|error| failed("cannot lock for layout", error))?;
    let length = || file.metadata().map(|metadata| metadata.len()).map_err(|error| failed("cannot stat", error));
    let old = length()?;
    if old >= bytes {
        return Ok(bytes);
    }
    if job.extent.fill {
        return fill_up(file, path, old, bytes, job, context);
    }
    match reserve(file, old, bytes, job) {
        // As in fio, the job itself meets the end of the space, if it comes so far.
        Err(error) if layout == Layout::Space && error.raw_os_error() == Some(libc::ENOSPC) => {}
        reserved => reserved.map_err(|error| failed("cannot reserve space in", error))?,
    }
    // A mapping does not make its file longer: with fallocate=none or keep, the file would end before the first write.
    if layout == Layout::Space && job.engine != "mmap" {
        return Ok(bytes);
    }
    if layout == Layout::Space {
        return file.set_len(bytes).map(|()| bytes).map_err(|error| failed("cannot extend", error));
    }
    file.set_len(bytes).map_err(|error| failed("cannot extend", error))?;
    let written = write_data(file, path, old, bytes, context);
    if let Err(error) = written {
        // Restore the old length: a later run must not take the hole for data.
        let _ = file.set_len(old);
        return Err(no_space(error, bytes));
    }
    if job.files.create_fsync {
        file.sync_all().map_err(|error| failed("cannot sync", error))?;
    }
    Ok(bytes)
}

/// Writes data behind the first `old` bytes of the file until it has `bytes` or the storage is full (`fill_device`);
/// returns the length of the file then.
fn fill_up(file: &File, path: &str, old: u64, bytes: u64, job: &Job, context: &mut Context) -> Result<u64, Error> {
    match write_data(file, path, old, bytes, context) {
        Err(error) if is_full(error.errno()) => {}
        Err(error) => {
            let _ = file.set_len(old);
            return Err(error);
        }
        Ok(()) => {}
    }
    let failed = |what: &str, error: io::Error| Error::system(what, path, error);
    if job.files.create_fsync {
        match file.sync_all() {
            Err(error) if error.raw_os_error().is_some_and(is_full) => {}
            synced => synced.map_err(|error| failed("cannot sync", error))?,
        }
    }
    file.metadata().map(|metadata| metadata.len()).map_err(|error| failed("cannot stat", error))
}

/// True if a write failed with this error because the storage, or the quota on it, is full: the end of `fill_device`.
pub(crate) fn is_full(errno: i32) -> bool {
    matches!(errno, libc::ENOSPC | libc::EDQUOT)
}

fn reserve(file: &File, old: u64, bytes: u64, job: &Job) -> io::Result<()> {
    let reserved = match job.files.fallocate {
        Fallocate::None => Ok(()),
        Fallocate::Truncate => file.set_len(bytes),
        Fallocate::Posix => file::reserve(file, Reserve::Posix, old, bytes - old),
        Fallocate::Keep => file::reserve(file, Reserve::KeepSize, old, bytes - old),
        Fallocate::Native => file::reserve(file, Reserve::Native, old, bytes - old),
    };
    match reserved {
        // Reservation is an optimisation: file systems without it (NFSv3, some FUSE) get the data without.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) => Ok(()),
        other => other,
    }
}

fn write_data(file: &File, path: &str, old: u64, bytes: u64, context: &mut Context) -> Result<(), Error> {
    let mut buffer = Buffer::zeroed(CHUNK_BYTES as usize, &Memory::Anonymous)
        .map_err(|error| Error::system("no memory for layout of", path, error))?;
    let mut at = old;
    while at < bytes {
        if context.stop.load(Ordering::Relaxed) {
            return Err(stopped(path));
        }
        // Chunks end on chunk boundaries of the file, so that the content of a block does not depend on `old`.
        let len = (CHUNK_BYTES - at % CHUNK_BYTES).min(bytes - at);
        let chunk = &mut buffer.as_mut_slice()[..len as usize];
        (context.fill)(chunk, at);
        file.write_all_at(chunk, at).map_err(|error| Error::system("cannot write", path, error))?;
        at += len;
        (context.progress)(len);
    }
    Ok(())
}

/// The error of a layout that a stop flag ended.
pub(super) fn stopped(path: &str) -> Error {
    let source = Some(io::Error::from_raw_os_error(libc::EINTR));
    Error {
        kind: ErrorKind::System,
        what: "layout was stopped:".into(),
        place: path.into(),
        hint: String::new(),
        source,
    }
}

/// The error with a hint, if it means lack of room (ENOSPC, EDQUOT, EFBIG): the hint names the `bytes` needed.
pub(super) fn no_space(error: Error, bytes: u64) -> Error {
    match error.source.as_ref().and_then(io::Error::raw_os_error) {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            error.hint(format!("{bytes} bytes are needed: lower size=, or use another directory="))
        }
        Some(libc::EFBIG) => error.hint(format!("{bytes} bytes are more than the file system or ulimit -f allows")),
        _ => error,
    }
}
