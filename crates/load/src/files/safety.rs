//! Refusals that protect data from a job: devices in use, devices that carry data, files that the running system
//! needs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use job::Job;
use sys::{block, file};

use crate::engine::devices;
use crate::{Error, ErrorKind};

/// The swap files and the files behind loop devices of this host, looked up once for all files of a clone.
pub(super) struct Precious {
    swaps: Vec<(u64, u64)>,
    loops: Vec<((u64, u64), String)>,
}

impl Precious {
    pub(super) fn of_host() -> Precious {
        Precious {
            swaps: block::swap_paths().iter().filter_map(|path| file::identity(path)).collect(),
            loops: block::loop_backing_files()
                .into_iter()
                .filter_map(|(path, name)| Some((file::identity(&path)?, name)))
                .collect(),
        }
    }

    /// Checks that the job may use this path as it wants to.
    ///
    /// Jobs that only read may read anything. A job that writes or trims is kept from: a block device that is mounted,
    /// swap, or part of a stacked device (unless `allow_mounted_write`); one that carries a known signature (unless
    /// `--allow-signature`); swap files; files behind loop devices (unless `allow_mounted_write`); memory and raw
    /// character devices.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`], with the reason and the option that would override it.
    pub(super) fn check(&self, path: &str, job: &Job) -> Result<(), Error> {
        if !job.changes_data() {
            return Ok(());
        }
        let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
        let kind = metadata.file_type();
        if kind.is_block_device() {
            return check_device(path, job);
        }
        if kind.is_char_device() && super::takes_commands(job) {
            return match devices::disk_of(Path::new(path)) {
                Some(disk) => check_device(&disk.display().to_string(), job),
                None => check_content(path, job, || Err(io::Error::other("the kernel has no disk for it"))),
            };
        }
        if kind.is_char_device() {
            // null, zero, full, random, urandom (devices.txt): writing them harms nothing.
            let harmless =
                libc::major(metadata.rdev()) == 1 && matches!(libc::minor(metadata.rdev()), 3 | 5 | 7 | 8 | 9);
            let hint = "a character device: writing it is not storage I/O and may crash the machine";
            return if harmless { Ok(()) } else { Err(refused(path, hint.to_string())) };
        }
        let identity = (metadata.dev(), metadata.ino());
        if self.swaps.contains(&identity) {
            return Err(refused(path, "it is active swap space".to_string()));
        }
        match self.loops.iter().find(|(file, _)| *file == identity) {
            Some((_, name)) if !job.allow.mounted_write => {
                Err(refused(path, format!("it stands behind /dev/{name}; --allow-mounted-write insists")))
            }
            _ => Ok(()),
        }
    }
}

fn check_device(path: &str, job: &Job) -> Result<(), Error> {
    if !job.allow.mounted_write {
        let users = block::users(Path::new(path));
        if !users.is_empty() {
            return Err(refused(path, format!("it is {}; --allow-mounted-write insists", users.join(", and "))));
        }
    }
    check_content(path, job, || {
        let file = File::open(path)?;
        block::signatures(block::bytes(&file)?, |piece, offset| file.read_exact_at(piece, offset))
    })
}

/// Checks that the job may write over a device of this host or of another host; `signatures` reads the signatures on
/// the device.
///
/// # Errors
/// [`ErrorKind::Refused`]: the device carries something, or nobody can tell because it cannot be read.
pub(super) fn check_content(
    place: &str,
    job: &Job,
    signatures: impl FnOnce() -> io::Result<Vec<&'static str>>,
) -> Result<(), Error> {
    if job.allow.signature_write || !job.changes_data() {
        return Ok(());
    }
    match signatures() {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(found) => Err(refused(place, format!("it carries {}; --allow-signature insists", found.join(", ")))),
        Err(error) => {
            Err(refused(place, format!("Plimsoll cannot read its first blocks: {error}; --allow-signature insists")))
        }
    }
}

fn refused(path: &str, hint: String) -> Error {
    Error { kind: ErrorKind::Refused, what: "refusing to write to".into(), place: path.into(), hint, source: None }
}
