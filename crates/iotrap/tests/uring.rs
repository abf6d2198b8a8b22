//! io_uring over lanes: programs of liburing, which are spread, and of system calls, which are not; neither notices.

mod common;
use common::{Counted, Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("uring", "c", &["-luring"]))
}

/// Runs a program without the library and with it. Returns the counts of the run with it; None if nothing can be tested
/// here.
fn holds(name: &str) -> Option<Counted> {
    if skipped() {
        return None;
    }
    succeed(&mut Volume::new().plain(program(), &[name]));
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"".into(); // a lane that was held up once would get little for a while
    let output = succeed(&mut volume.trapped(program(), &[name]));
    assert_eq!(text(&output.stderr), "");
    Some(volume.counted())
}

#[test]
fn reads_and_writes() {
    let Some(counted) = holds("reads_and_writes") else { return };
    let ops = counted.ops();
    assert!(ops.iter().all(|&ops| ops > 100), "{ops:?}");
}

#[test]
fn what_is_not_plain() {
    let Some(counted) = holds("what_is_not_plain") else { return };
    assert!(counted.reason("not a plain read or write") > 0);
}

#[test]
fn syncs_and_ends() {
    holds("syncs_and_ends");
}

/// A completion says only `user_data` of its request, and a program may give it to several requests.
#[test]
fn completions_of_other_requests_are_not_taken_for_ours() {
    holds("twins_of_the_past");
    holds("twins_in_flight");
    holds("twins_that_stay");
}

#[test]
fn fio_by_system_calls_goes_through_and_is_counted() {
    if skipped() {
        return;
    }
    if std::process::Command::new("fio").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "under CI nothing is skipped: no fio");
        return println!("skipped: no fio");
    }
    let volume = Volume::new();
    let script = "cd \"$LANE0\" && exec fio --name=j --directory=. --size=4m --bs=4k --rw=randwrite --direct=1 --iodepth=8 \
                  --ioengine=io_uring --verify=crc32c --verify_fatal=1 --overwrite=1 --fsync=64 --thread --output=out";
    succeed(&mut volume.trapped(Path::new("sh"), &["-c", script]));
    assert!(volume.counted().reason("driven by system calls") > 0);
}
