//! Real programs under the interposer on four bind mounts of a local directory: fast, and the same files whichever way
//! they are reached.

mod common;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use trapped::{PROGRAMS, Pool};

/// A directory with four bind mounts of it.
struct Binds {
    pool: Pool,
    _place: TempDir,
}

impl Binds {
    fn new() -> Option<Binds> {
        if !is_root("make bind mounts") || !["fio", "sqlite3", "rsync"].into_iter().all(has_program) {
            return None;
        }
        let place = directory();
        let path = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (view, scratch) = (path("volume"), path("scratch"));
        let lanes: Vec<PathBuf> = (1..=4).map(|n| path(&format!("lane{n}"))).collect();
        let pool = Pool { lanes, more: String::new(), seeds: 25, view, scratch };
        let binds = Binds { pool, _place: place };
        for lane in &binds.pool.lanes {
            tool("mount", &["--bind", binds.pool.view.to_str().unwrap(), lane.to_str().unwrap()], &binds.pool.view);
        }
        Some(binds)
    }
}

impl Drop for Binds {
    fn drop(&mut self) {
        for lane in &self.pool.lanes {
            let _ = Command::new("umount").arg(lane).status(); // a test that failed halfway has fewer of them
        }
    }
}

#[test]
fn programs_do_the_same() {
    let Some(binds) = Binds::new() else { return };
    for (name, script) in PROGRAMS {
        binds.pool.same(name, script);
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    let Some(binds) = Binds::new() else { return };
    binds.pool.fio(|_| true, "2m");
}
