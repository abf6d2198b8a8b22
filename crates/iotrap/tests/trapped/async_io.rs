//! `IOTRAP_ASYNC=1`: programs that must not notice the library, on files of a pool and on others, each with and without
//! it.

use crate::common;
use common::{Volume, compile, library, skipped, succeed, text};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("async", "c", &[]))
}

/// The number of requests that were taken away from the kernel, as the library told at the end.
fn asynchronous(errors: &[u8]) -> u64 {
    let said = text(errors);
    let count = |line: &str| {
        let counts = line.strip_prefix("iotrap: ")?.strip_suffix(" were in the page cache")?;
        let (taken, cached) = counts.split_once(" libaio requests were carried out asynchronously, ")?;
        Some(taken.parse::<u64>().ok()? + cached.parse::<u64>().ok()?)
    };
    let left = |line: &&str| line.contains(" libaio requests were left to the kernel: ");
    said.lines().filter(|line| !left(line)).map(|line| count(line).unwrap_or_else(|| panic!("{said}"))).sum()
}

/// Runs a program without the library, with it, and with it on a pool of four lanes.
fn holds(name: &str, takes: bool) {
    if skipped() {
        return;
    }
    let asked = [("IOTRAP_ASYNC", "1"), ("IOTRAP_STATS", "1")];
    let place = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    succeed(Command::new(program()).arg(name).current_dir(place().path()));
    let output =
        succeed(Command::new(program()).arg(name).current_dir(place().path()).env("LD_PRELOAD", library()).envs(asked));
    assert_eq!(asynchronous(&output.stderr) > 0, takes, "{}", text(&output.stderr));
    let volume = Volume::new();
    let script = format!("cd \"$LANE0\" && exec {} {name}", program().display());
    succeed(volume.trapped(Path::new("sh"), &["-c", &script]).envs(asked));
}

macro_rules! programs {
    ($($name:ident: $takes:expr,)*) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name), $takes);
        })*
    };
}

programs! {
    everything_comes_back: true,
    batches_of_everything: true,
    waits_as_documented: true,
    eventfds_are_signalled: true,
    destroying_waits: true,
    closing_is_harmless: true,
    ending_writes: true,
    numbers_change_unseen: true,
    threads_have_their_own_numbers: true,
    nothing_is_written_to_numbers_of_others: true,
    locks_stay: true,
    every_end_writes: true,
    nobody_stays_behind: true,
    rings_are_readable: false,
    errors_are_the_kernels: true,
    syncs_cover_writes: true,
    threads_share_a_context: true,
    descriptors_of_others_stay: true,
    cuts_come_after_writes: true,
    ioctls_come_after_writes: true,
    copies_have_submitted_writes: true,
    unlocks_come_after_writes: true,
    every_sync_covers_writes: true,
    flags_change_after_writes: true,
    limits_come_after_writes: true,
    seals_come_after_writes: true,
    ends_are_known: false,
}

/// A sync of data that was written over lanes does not hold the submitter up.
#[test]
fn syncs_of_lanes() {
    if skipped() {
        return;
    }
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"".into(); // otherwise a fast lane gets all requests that come singly
    let program = compile("defects", "async", &[]);
    let told = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = volume.trapped(&program, &["aio_fsync_of_lanes_comes_back"]);
    let output = succeed(command.env("IOTRAP_ASYNC", "1").env("IOTRAP_STATS", told.path()));
    let told = std::fs::read_to_string(told.path()).unwrap();
    assert!(told.contains("2 libaio requests were carried out asynchronously"), "{told}{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert!(volume.counted().ops().iter().all(|&ops| ops > 0));
}

/// fio writes, waits, reads back and compares; in processes and in threads.
#[test]
fn fio_reads_what_it_wrote() {
    if skipped() {
        return;
    }
    if Command::new("fio").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "under CI nothing is skipped: no fio");
        return println!("skipped: no fio");
    }
    for job in [
        "--rw=randwrite --bs=4k --numjobs=2",
        "--rw=randwrite --bs=4k --numjobs=2 --thread",
        "--rw=write --bsrange=1k-32k --fsync=16",
        "--rw=randrw --bs=4k --iodepth_batch_submit=16 --iodepth_batch_complete_min=4",
        "--rw=randwrite --bs=4k --direct=1 --fallocate=none",
        "--rw=randwrite --bs=8k --userspace_reap",
        "--rw=randwrite --bs=4k --end_fsync=1 --iodepth_batch_complete_min=0",
    ] {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut fio = Command::new("fio");
        fio.args(["--name=j", "--directory=.", "--size=8m", "--iodepth=32", "--ioengine=libaio"]);
        fio.args(["--verify=crc32c", "--verify_fatal=1", "--output=out"]).args(job.split_whitespace());
        fio.env("LD_PRELOAD", library()).envs([("IOTRAP_ASYNC", "1"), ("IOTRAP_STATS", "1")]);
        let output = succeed(fio.current_dir(place.path()));
        assert!(asynchronous(&output.stderr) > 0, "{job}: {}", text(&output.stderr));
    }
}
