//! io_urings that programs make by system calls: by syscall(2), by liburing's functions of the same names, and with
//! `--raw` by inline calls. Each program runs without the library, with it, with asynchronous libaio, and with `--raw`.

use crate::common;
use common::{Counted, Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("raw_ring", "c", &["-luring"]))
}

/// A run under the library, with these variables set to 1. Returns the counts.
fn run(arguments: &[&str], variables: &[&str]) -> Counted {
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"".into(); // a lane that was held up once would get little for a while
    let mut command: Command = volume.trapped(program(), arguments);
    let output = succeed(command.envs(variables.iter().map(|name| (name, "1"))));
    assert_eq!(text(&output.stderr), "", "{arguments:?} {variables:?}");
    volume.counted()
}

/// Runs a program in all ways. Returns the counts with syscall(2), and with inline calls under `--raw`; None if nothing
/// can be tested here.
fn holds(name: &str) -> Option<[Counted; 2]> {
    if skipped() {
        return None;
    }
    succeed(&mut Volume::new().plain(program(), &[name]));
    run(&[name], &["IOTRAP_ASYNC"]);
    run(&[name, "inline"], &[]);
    run(&[name], &["IOTRAP_RAW", "IOTRAP_ASYNC"]);
    run(&[name, "liburing"], &["IOTRAP_ASYNC"]);
    let counted = run(&[name], &[]);
    Some(if cfg!(target_arch = "x86_64") {
        [counted, run(&[name, "inline"], &["IOTRAP_RAW"])]
    } else {
        [run(&[name], &[]), counted]
    })
}

fn all_lanes(counted: &Counted) {
    let ops = counted.ops();
    assert!(ops.iter().all(|&ops| ops > 100), "{ops:?}");
}

#[test]
fn reads_and_writes() {
    let Some(counted) = holds("reads_and_writes") else { return };
    counted.iter().for_each(all_lanes);
    all_lanes(&run(&["reads_and_writes", "liburing"], &[]));
}

/// The library knows the file in a place of a ring's table only if it sees every call.
#[test]
fn registered_files() {
    let Some([seen_in_part, raw]) = holds("registered_files") else { return };
    assert!(seen_in_part.reason("registered file, without --raw") > 0);
    if cfg!(target_arch = "x86_64") {
        all_lanes(&raw);
    }
}

#[test]
fn registered_files_that_change() {
    let Some([_, raw]) = holds("registered_files_that_change") else { return };
    if cfg!(target_arch = "x86_64") {
        let ops = raw.ops();
        assert!(ops.iter().all(|&ops| ops > 5), "{ops:?}");
    }
}

#[test]
fn entries_that_are_left() {
    holds("entries_that_are_left");
}

#[test]
fn other_kinds_say_why() {
    let Some(counted) = holds("other_kinds") else { return };
    for counted in counted {
        for words in ["IOPOLL", "SQPOLL", "entries of other sizes"] {
            assert!(counted.reason(words) > 0, "{words}");
        }
    }
}

#[test]
fn what_is_not_plain() {
    let Some(counted) = holds("what_is_not_plain") else { return };
    for counted in counted {
        for words in ["linked to others", "not a plain read or write", "user_data"] {
            assert!(counted.reason(words) > 0, "{words}");
        }
    }
}

#[test]
fn two_drivers() {
    let Some([counted, _]) = holds("two_drivers") else { return };
    assert!(counted.reason("entered where no hook sees it") > 0 && counted.reason("duplicated number") > 0);
}

#[test]
fn requests_in_flight_at_the_end() {
    let Some(counted) = holds("ends") else { return };
    for counted in counted {
        assert!(counted.ops().iter().all(|&ops| ops > 50), "{:?}", counted.ops());
    }
}

#[test]
fn completions_that_are_held_back() {
    let Some(counted) = holds("completions_that_are_held_back") else { return };
    for counted in counted {
        assert!(counted.ops().iter().all(|&ops| ops > 10), "{:?}", counted.ops());
        assert!(counted.reason("DEFER_TASKRUN, in a program of several threads") > 0);
    }
}

#[test]
fn a_waiter_holds_up_nobody() {
    holds("a_waiter_holds_up_nobody");
}

/// fio makes its rings by syscall(2), and enters them by inline calls: nothing of them is spread without `--raw`.
#[test]
fn fio() {
    if skipped() {
        return;
    }
    if Command::new("fio").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "under CI nothing is skipped: no fio");
        return println!("skipped: no fio");
    }
    let run = |more: &str, raw: &str| {
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"".into();
        let script = format!(
            "cd \"$LANE0\" && exec fio --name=j --directory=. --size=4m --bs=4k --rw=randwrite --direct=1 --iodepth=16 \
             --iodepth_batch_submit=4 --ioengine=io_uring --verify=crc32c --verify_fatal=1 --overwrite=1 --output=out {more}"
        );
        succeed(volume.trapped(Path::new("sh"), &["-c", &script]).env("IOTRAP_RAW", raw));
        volume.counted()
    };
    assert!(run("", "0").reason("entered where no hook sees it") > 0);
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    for more in ["", "--fixedbufs", "--registerfiles", "--nonvectored=0", "--registerfiles --fixedbufs", "--fsync=64"] {
        let counted = run(more, "1");
        let (stayed, all) = counted.stayed_of_all();
        // fio lays the file out through the page cache.
        let laid_out = counted.reason("opened without O_DIRECT");
        let stayed = stayed - laid_out;
        assert!(all > 1000 && stayed * 10 < all, "{more}: {stayed} of {all} requests stayed on the opened lane");
    }
    assert!(run("--sqthread_poll=1", "1").reason("SQPOLL") > 0);
}
