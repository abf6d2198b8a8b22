//! POSIX aio over lanes: programs that must not notice.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("posix_aio", "c", &[]))
}

/// Runs a program without the library and with it. With `spread`, every lane must be used; without it, not every lane.
fn holds(name: &str, spread: bool) {
    if skipped() {
        return;
    }
    succeed(&mut Volume::new().plain(program(), &[name]));
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"".into(); // a lane that was held up once would get little for a while
    let output = succeed(&mut volume.trapped(program(), &[name]));
    assert_eq!(text(&output.stderr), "");
    let ops = volume.counted().ops();
    assert_eq!(ops.iter().all(|&ops| ops > 0), spread, "{ops:?}");
}

#[test]
fn reads_and_writes() {
    holds("reads_and_writes", true);
}

#[test]
fn lists() {
    holds("lists", true);
}

#[test]
fn errors_and_ends() {
    holds("errors_and_ends", true);
}

#[test]
fn after_fork() {
    holds("after_fork", true);
}

#[test]
fn buffered_writes_stay() {
    holds("buffered_writes_stay", false);
}

#[test]
fn fio_verifies_what_it_wrote_by_posix_aio() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let script = "cd \"$LANE0\" && exec fio --name=j --directory=. --size=4m --bs=4k --rw=randwrite --direct=1 --iodepth=8 \
                  --ioengine=posixaio --verify=crc32c --verify_fatal=1 --fallocate=none --overwrite=1 --fsync=64 --output=out";
    if std::process::Command::new("fio").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "under CI nothing is skipped: no fio");
        return println!("skipped: no fio");
    }
    succeed(&mut volume.trapped(Path::new("sh"), &["-c", script]));
    let ops = volume.counted().ops();
    assert!(ops.iter().all(|&ops| ops > 0), "{ops:?}");
}
