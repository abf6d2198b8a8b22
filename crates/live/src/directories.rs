//! The directories in which boards lie.
//!
//! A program keeps its board in the first of these that applies: `$PLIMSOLL_KEEP_BOARDS` (it stays there after the
//! program's end, for whoever started it), `$PLIMSOLL_RUNTIME_DIR`, `/run/plimsoll` for root,
//! `$XDG_RUNTIME_DIR/plimsoll`, `/tmp/plimsoll-UID`. Readers look into all of them; root also into those of others.

use std::ffi::{CStr, OsStr};
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::board::Kept;
use crate::owner::Owner;
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::{Errno, Result};

/// The directory to keep boards in when the program has ended: see [`Keep`].
pub const KEEP_VARIABLE: &str = "PLIMSOLL_KEEP_BOARDS";
/// The extension of a board's file name.
pub const EXTENSION: &str = "board";

/// A path of bounded length that is put together without allocating. Cut silently; [`Path::c_str`] then fails.
#[derive(Clone)]
pub(crate) struct Path {
    bytes: [u8; 512],
    length: usize,
    cut: bool,
}

impl Path {
    pub(crate) fn new() -> Path {
        Path { bytes: [0; 512], length: 0, cut: false }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // One byte is left for the NUL.
        match self.bytes.get_mut(self.length..self.length + bytes.len()) {
            Some(room) if self.length + bytes.len() < 512 => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            _ => self.cut = true,
        }
    }

    pub(crate) fn c_str(&self) -> Result<&CStr> {
        let bytes = self.bytes.get(..=self.length).filter(|_| !self.cut).ok_or(Errno::NAMETOOLONG)?;
        CStr::from_bytes_with_nul(bytes).map_err(|_| Errno::INVAL)
    }

    /// Makes the path that of a file in the directory that it names.
    pub(crate) fn enter(&mut self, name: fmt::Arguments<'_>) -> Result<()> {
        self.write_fmt(format_args!("/{name}")).map_err(|fmt::Error| Errno::NAMETOOLONG)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.c_str().fmt(f)
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        if self.cut { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Value of an environment variable; None if it is unset or empty.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: getenv reads a NUL-terminated name; the environment is changed by nobody at this moment, as for
    // every use of getenv(3).
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: what getenv returns is a NUL-terminated string that stays until the environment is changed.
    let value = unsafe { CStr::from_ptr(value) };
    Some(value.to_bytes()).filter(|value| !value.is_empty())
}

/// Calls `each` for the directories that may keep a new board, the best first, and says if the board is to stay there.
pub(crate) fn candidates(mut each: impl FnMut(&Path, Kept) -> Result<()>) -> Result<()> {
    let mut last = Err(Errno::NOENT);
    let mut attempt = |directory: &[&[u8]], uid: Option<u32>, keep: bool, make: bool| {
        let mut path = Path::new();
        directory.iter().for_each(|part| path.push(part));
        if let Some(uid) = uid {
            let _ = write!(path, "{uid}"); // noticed when the path is used
        }
        last = usable(&path, make).and_then(|()| each(&path, if keep { Kept::Afterwards } else { Kept::UntilTheEnd }));
        last.is_ok()
    };
    let done = variable(c"PLIMSOLL_KEEP_BOARDS").is_some_and(|directory| attempt(&[directory], None, true, false))
        || match variable(c"PLIMSOLL_RUNTIME_DIR") {
            Some(directory) => attempt(&[directory], None, false, true),
            None => {
                let uid = rustix::process::geteuid();
                uid.is_root() && attempt(&[b"/run/plimsoll"], None, false, true)
                    || variable(c"XDG_RUNTIME_DIR")
                        .is_some_and(|directory| attempt(&[directory, b"/plimsoll"], None, false, true))
                    || attempt(&[b"/tmp/plimsoll-"], Some(uid.as_raw()), false, true)
            }
        };
    if done { Ok(()) } else { last }
}

/// Makes sure that the directory belongs to this user: in /tmp, anybody could have made it.
fn usable(path: &Path, make: bool) -> Result<()> {
    let path = path.c_str()?;
    if make {
        match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o022 != 0 {
        return Err(Errno::PERM);
    }
    Ok(())
}

/// A directory in which programs keep their boards for the caller, who sets [`KEEP_VARIABLE`] to its path for them. The
/// directory is removed when this value is dropped.
#[derive(Debug)]
pub struct Keep {
    path: PathBuf,
}

impl Keep {
    /// A new one, where the caller's own board would be.
    ///
    /// # Errors
    /// No directory can be had there.
    pub fn new() -> std::io::Result<Keep> {
        let owner = Owner::this();
        let mut made = None;
        candidates(|directory, _| {
            let mut path = directory.clone();
            path.enter(format_args!("{KEEP_PREFIX}{}-{}-{}", owner.pid_namespace, owner.pid, owner.start_ticks))?;
            rustix::fs::mkdirat(CWD, path.c_str()?, Mode::from_raw_mode(0o755))?;
            made = Some(PathBuf::from(OsStr::from_bytes(path.c_str()?.to_bytes())));
            Ok(())
        })?;
        Ok(Keep { path: made.ok_or(Errno::NOENT)? })
    }

    /// The path of the directory.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path); // a reader removes it later
    }
}

const KEEP_PREFIX: &str = "kept-";

/// The process that made a directory to keep boards in; None for any other directory.
pub(crate) fn keeper(path: &std::path::Path) -> Option<Owner> {
    let mut numbers = path.file_name()?.to_str()?.strip_prefix(KEEP_PREFIX)?.split('-').map(str::parse);
    let mut next = || numbers.next()?.ok();
    let (pid_namespace, pid, start_ticks) = (next()?, next()?, next()?);
    Some(Owner { pid, start_ticks, pid_namespace, exe: (0, 0) })
}

/// Every directory that may hold boards which the caller may see. Those that do not exist are left out.
pub fn search() -> Vec<PathBuf> {
    if let Some(directory) = variable(c"PLIMSOLL_RUNTIME_DIR") {
        return vec![PathBuf::from(OsStr::from_bytes(directory))];
    }
    let uid = rustix::process::geteuid();
    let mut found = vec![PathBuf::from("/run/plimsoll")];
    found.extend(
        variable(c"XDG_RUNTIME_DIR").map(|directory| PathBuf::from(OsStr::from_bytes(directory)).join("plimsoll")),
    );
    found.push(format!("/tmp/plimsoll-{}", uid.as_raw()).into());
    if uid.is_root() {
        found.extend(entries("/run/user").map(|user| user.join("plimsoll")));
        found.extend(entries("/tmp").filter(|path| {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            name.strip_prefix("plimsoll-").is_some_and(|uid| uid.bytes().all(|byte| byte.is_ascii_digit()))
        }));
    }
    found.retain(|path| path.symlink_metadata().is_ok_and(|data| data.is_dir()));
    found.sort();
    found.dedup();
    found
}

fn entries(directory: &str) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
