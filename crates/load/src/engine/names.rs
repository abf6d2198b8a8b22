//! The engines whose ops are calls on names: `filecreate`, `filestat`, `filedelete`, `dircreate`, `dirstat`,
//! `dirdelete`. Each name gets one op in a pass; nothing is read or written.
//!
//! An engine makes the names that its ops need before the clock starts: the files of `filestat` and `filedelete`, the
//! directories of `dirstat` and `dirdelete`.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use job::workload::OpKind;
use sys::interrupted::repeated_c;

use super::{Completion, Engine, Queued, Request, Setup};
use crate::Error;

/// The call on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// open(2) with O_CREAT, then close(2).
    Create,
    /// stat(2), lstat(2) or statx(2), as `stat_type` says.
    Stat(Stat),
    /// unlink(2).
    Delete,
    /// mkdir(2).
    MakeDirectory,
    /// rmdir(2).
    RemoveDirectory,
}

/// `stat_type=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stat {
    Followed,
    Link,
    Extended,
}

struct Names {
    call: Call,
    paths: Vec<CString>,
}

/// Makes the engine that the job names.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    let stat_type = setup.job.ring.other.iter().find(|(name, _)| name == "stat_type");
    let stat = match stat_type.map(|(_, value)| value.as_str()) {
        Some("lstat") => Stat::Link,
        Some("statx") => Stat::Extended,
        _ => Stat::Followed,
    };
    let (call, directories, needed) = match setup.job.engine.as_str() {
        "filecreate" => (Call::Create, false, false),
        "filestat" => (Call::Stat(stat), false, true),
        "filedelete" => (Call::Delete, false, true),
        "dircreate" => (Call::MakeDirectory, true, false),
        "dirstat" => (Call::Stat(stat), true, true),
        _ => (Call::RemoveDirectory, true, true),
    };
    let bytes = setup.job.extent.file_size.map_or(0, |(low, _)| low);
    for name in setup.names {
        prepare(name, directories, needed, bytes)?;
    }
    let path = |name: &String| {
        CString::new(name.as_str()).map_err(|_| Error::usage("a zero byte is not part of any name:", name, ""))
    };
    let paths = setup.names.iter().map(path).collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(Names { call, paths }))
}

/// Makes a name, if it is needed and missing. A name of another kind is refused: the engine removes no device.
fn prepare(name: &str, directory: bool, needed: bool, bytes: u64) -> Result<(), Error> {
    let failed =
        |error| Error::system(if directory { "cannot make the directory" } else { "cannot make" }, name, error);
    match fs::symlink_metadata(name) {
        Ok(found) if directory != found.is_dir() || (!directory && !found.is_file()) => {
            let kind = if directory { "a directory" } else { "a regular file" };
            Err(Error::usage(
                format!("{name} is not {kind}:"),
                "this engine takes no other name",
                "choose another name",
            ))
        }
        Ok(_) => Ok(()),
        Err(_) if !needed => Ok(()),
        Err(_) if directory => fs::create_dir(Path::new(name)).map_err(failed),
        Err(_) => File::create(name).and_then(|file| file.set_len(bytes)).map_err(failed),
    }
}

impl Names {
    fn carry_out(&self, file: u32) -> i32 {
        let path = self.paths[file as usize].as_ptr();
        match self.call {
            Call::Create => {
                // SAFETY: path ends in a zero byte and lives as long as self.
                let fd = unsafe { libc::open(path, libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC, 0o600) };
                // SAFETY: fd is this call's own, and is closed once.
                if fd < 0 { fd } else { unsafe { libc::close(fd) } }
            }
            Call::Delete => {
                // SAFETY: path ends in a zero byte and lives as long as self.
                unsafe { libc::unlink(path) }
            }
            Call::MakeDirectory => {
                // SAFETY: path ends in a zero byte and lives as long as self.
                unsafe { libc::mkdir(path, 0o700) }
            }
            Call::RemoveDirectory => {
                // SAFETY: path ends in a zero byte and lives as long as self.
                unsafe { libc::rmdir(path) }
            }
            Call::Stat(Stat::Extended) => {
                // SAFETY: statx is a C structure of numbers, for which zeros are valid.
                let mut found: libc::statx = unsafe { std::mem::zeroed() };
                // SAFETY: path ends in a zero byte; found has the size that the kernel fills.
                unsafe { libc::statx(libc::AT_FDCWD, path, 0, libc::STATX_ALL, &raw mut found) }
            }
            Call::Stat(stat) => {
                // SAFETY: stat is a C structure of numbers, for which zeros are valid.
                let mut found: libc::stat = unsafe { std::mem::zeroed() };
                match stat {
                    // SAFETY: path ends in a zero byte; found has the size that the kernel fills.
                    Stat::Link => unsafe { libc::lstat(path, &raw mut found) },
                    // SAFETY: path ends in a zero byte; found has the size that the kernel fills.
                    _ => unsafe { libc::stat(path, &raw mut found) },
                }
            }
        }
    }
}

impl Engine for Names {
    fn open(&mut self, _file: u32, _fd: RawFd) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, _file: u32) {}

    fn queue(&mut self, request: Request) -> Queued {
        let result = match request.kind {
            OpKind::Io(_) => match repeated_c(|| self.carry_out(request.file)) {
                0 => i64::from(request.len),
                errno => errno,
            },
            _ => 0,
        };
        Queued::Done(Completion { slot: request.slot, result })
    }

    fn submit(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn reap(&mut self, _min: usize, _max: usize, _timeout: Option<u64>, _done: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }
}
