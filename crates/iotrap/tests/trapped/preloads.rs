//! Other preloaded libraries beside libiotrap.so, before and after it.

use crate::common;
use common::{Volume, compile, library, skipped, succeed};
use std::path::PathBuf;

/// libfaketime (Debian: faketime), which replaces clock_gettime by a function with thread-local variables.
fn faketime() -> Option<PathBuf> {
    let places = glob_of("/usr/lib", "faketime/libfaketimeMT.so.1");
    if places.is_none() {
        assert!(std::env::var_os("CI").is_none(), "under CI nothing is skipped: no libfaketime");
        println!("skipped: no libfaketime (Debian: faketime)");
    }
    places
}

/// Finds the file of that name below `root` or one of its directories.
fn glob_of(root: &str, name: &str) -> Option<PathBuf> {
    let below = std::fs::read_dir(root).ok()?.flatten().map(|entry| entry.path());
    below.chain([PathBuf::from(root)]).map(|place| place.join(name)).find(|path| path.exists())
}

/// The threads that open files on lanes tell the time. A library that replaces libc's clock must not crash them.
#[test]
fn faketime_does_not_disturb_the_lanes() {
    if skipped() {
        return;
    }
    let Some(faketime) = faketime() else { return };
    let program = compile("rows", "preloads", &[]);
    let (own, faketime) = (library().display(), faketime.display());
    for preload in [format!("{own}:{faketime}"), format!("{faketime}:{own}")] {
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"".into();
        let mut command = volume.trapped(&program, &["direct_reads"]);
        succeed(command.env("TRAP", preload).env("FAKETIME", "-400d"));
        assert!(volume.counted().ops().iter().all(|&ops| ops > 0), "spread: {:?}", volume.counted().ops());
    }
}
