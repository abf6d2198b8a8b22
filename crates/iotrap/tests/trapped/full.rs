//! A file system without room, and a quota that is used up (tests/c/full.c): a program has the errors that it would
//! have without the library, by every interface, and the data that were acknowledged.

use crate::common;
use common::{Volume, compile, skipped, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("full", "c", &["-luring"]))
}

/// A file system in a file, on which the programs meet an error.
struct Full {
    /// Makes the file system in a file.
    make: &'static [&'static str],
    size: u64,
    options: &'static str,
    /// The limit of its quota; empty without one.
    quota: &'static str,
    error: &'static str,
}

const DEVICE: Full =
    Full { make: &["mkfs.ext4", "-q", "-F", "-m", "0"], size: 12 << 20, options: "rw", quota: "", error: "ENOSPC" };
/// Without sums of data, which make Btrfs write through the page cache.
const QUOTA: Full =
    Full { make: &["mkfs.btrfs", "-q", "-f"], size: 256 << 20, options: "nodatasum", quota: "8m", error: "EDQUOT" };

impl Full {
    /// A command of a volume on this file system, made anew.
    fn on(&self, volume: &Volume, mut command: Command) -> Command {
        let image = volume.path("image");
        std::fs::File::create(&image).unwrap().set_len(self.size).unwrap();
        let (program, options) = self.make.split_first().unwrap();
        succeed(Command::new(program).args(options).arg(&image).env("PATH", path()));
        command.env("IMAGE", image).envs([("OPTIONS", self.options), ("QUOTA", self.quota), ("PATH", &path())]);
        command
    }

    fn holds(&self, name: &str, is_spread: bool) {
        let arguments = [name, self.error];
        let volume = Volume::in_memory();
        succeed(&mut self.on(&volume, volume.plain(program(), &arguments)));
        for asynchronous in ["0", "1"] {
            let mut volume = Volume::in_memory();
            volume.pool = "policy = \"round-robin\"".into();
            let command = volume.trapped(program(), &arguments);
            succeed(self.on(&volume, command).env("IOTRAP_ASYNC", asynchronous));
            let ops = volume.counted().ops();
            assert!(!is_spread || ops.iter().all(|&ops| ops > 100), "{name} is spread: {ops:?}");
        }
    }
}

/// The directories of administrators' programs among the others.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

const DIRECT: [&str; 4] = ["calls", "libaio", "posix_aio", "rings"];
const BUFFERED: [&str; 4] = ["buffered_calls", "buffered_libaio", "buffered_posix_aio", "buffered_rings"];

#[test]
fn a_full_device() {
    if skipped() {
        return;
    }
    DIRECT.into_iter().for_each(|name| DEVICE.holds(name, true));
    BUFFERED.into_iter().for_each(|name| DEVICE.holds(name, false));
}

#[test]
fn a_used_up_quota() {
    if skipped() {
        return;
    }
    let _ = Command::new("modprobe").arg("btrfs").output(); // it may be built in
    if !std::fs::read_to_string("/proc/filesystems").unwrap().contains("\tbtrfs\n") {
        return println!("skipped: this kernel has no Btrfs");
    }
    DIRECT.into_iter().for_each(|name| QUOTA.holds(name, true));
    BUFFERED.into_iter().for_each(|name| QUOTA.holds(name, false));
}
