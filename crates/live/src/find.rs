//! Finds the boards of all running programs.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::directories::{self, EXTENSION};
use crate::layout::{ROWS_MAX, row_at};
use crate::owner::Owner;
use crate::snapshot::{Invalid, Snapshot};

/// The counts of every running program at this moment, ordered by kind, title and process. Boards whose program has
/// ended are removed where that is permitted, and never returned.
pub fn all() -> Vec<Snapshot> {
    let mut found: Vec<Snapshot> = directories::search().iter().flat_map(|directory| in_directory(directory)).collect();
    found.sort_by(|a, b| (a.kind, &a.title, a.pid, a.created_ns).cmp(&(b.kind, &b.title, b.pid, b.created_ns)));
    found
}

/// The counts of the running programs that keep their boards in `directory`; see [`all`].
pub fn in_directory(directory: &Path) -> Vec<Snapshot> {
    let reader = Owner::this();
    let mut found = Vec::new();
    for path in boards(directory) {
        match read(&path) {
            Ok(snapshot) if snapshot.owner.is_alive(&reader) => found.push(snapshot),
            Ok(_) => drop(fs::remove_file(&path)), // it may belong to another user
            Err(_) => {}
        }
    }
    // Boards that are kept for the user who started the program are shown while the program runs.
    for (kept, keeper) in entries(directory).filter_map(|path| directories::keeper(&path).map(|keeper| (path, keeper)))
    {
        let snapshots = boards(&kept).filter_map(|path| read(&path).ok());
        let before = found.len();
        found.extend(snapshots.filter(|snapshot| snapshot.owner.is_alive(&reader)));
        if found.len() == before && !keeper.is_alive(&reader) {
            let _ = fs::remove_dir_all(&kept); // it may belong to another user
        }
    }
    found
}

/// The counts of the programs that kept their boards in `directory`, also of ended programs; in the order in which the
/// programs began.
pub fn kept_in(directory: &Path) -> Vec<Snapshot> {
    let mut found: Vec<Snapshot> = boards(directory).filter_map(|path| read(&path).ok()).collect();
    found.sort_by_key(|snapshot| snapshot.created_ns);
    found
}

fn boards(directory: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    entries(directory).filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
}

fn entries(directory: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn read(path: &Path) -> Result<Snapshot, Invalid> {
    // An entry of the directory may be a FIFO or a link to anything: neither is waited for or followed.
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = file.map_err(|_| Invalid::NoBoard)?;
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Err(Invalid::NoBoard);
    }
    let mut bytes = Vec::new();
    file.take(row_at(ROWS_MAX) as u64 * 8).read_to_end(&mut bytes).map_err(|_| Invalid::NoBoard)?;
    Snapshot::parse(&bytes)
}
