//! `plimsoll trap` in an environment with a filter of system calls (seccomp), as containers and sandboxes have one: a
//! filter that refuses calls changes nothing, and with one that kills nothing is spread and nothing dies.

mod common;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Reads a file past the page cache, by requests that are spread where they may be.
const READER: &str = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
for number in range(64):
    assert os.preadv(fd, [block], number * 4096) == 4096 and block[0] == number
";

struct Rig {
    directory: tempfile::TempDir,
    launcher: PathBuf,
}

impl Rig {
    /// Two lanes on one superblock, with one file.
    fn new() -> Rig {
        let directory = directory();
        let path = |name: &str| directory.path().join(name);
        for lane in ["a", "b"] {
            std::fs::create_dir(path(lane)).unwrap();
        }
        let blocks: Vec<u8> = (0..64u8).flat_map(|number| [number; 4096]).collect();
        std::fs::write(path("a/file"), blocks).unwrap();
        std::fs::hard_link(path("a/file"), path("b/file")).unwrap();
        let launcher = path("filtered");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/filtered.c");
        let compiled = Command::new("cc").arg("-o").arg(&launcher).arg(source).status().unwrap();
        assert!(compiled.success());
        Rig { directory, launcher }
    }

    /// Runs the reader under trap, with a filter of this kind around trap, and one of that kind around the reader.
    fn run(&self, outside: Option<&str>, inside: Option<&str>) -> Output {
        let path = |name: &str| self.directory.path().join(name);
        let trap = plimsoll(self.directory.path());
        let mut command = match outside {
            Some(kind) => {
                let mut command = Command::new(&self.launcher);
                command.arg(kind).arg(trap.get_program());
                command.current_dir(self.directory.path());
                command
            }
            None => trap,
        };
        command.args(["trap", "--stats", "--policy", "round-robin", "--library"]).arg(trapped::library());
        command.arg("--pool").arg(format!("v={},{}", path("a").display(), path("b").display())).arg("--");
        if let Some(kind) = inside {
            command.arg(&self.launcher).arg(kind);
        }
        let output = command.args(["python3", "-c", READER]).arg(path("a/file")).output().unwrap();
        assert!(output.status.success(), "{outside:?} {inside:?}: {}\n{}", output.status, stderr(&output));
        output
    }
}

/// The bytes that the table of `--stats` gives to the second lane, as text; None without a table.
fn of_second_lane(output: &Output) -> Option<String> {
    let text = stderr(output);
    let row = text.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|path| path.ends_with("/b")))?;
    Some(row.to_owned())
}

#[test]
fn a_filter_that_refuses_changes_nothing() {
    let rig = Rig::new();
    let (without, with) = (rig.run(None, None), rig.run(Some("refuses"), None));
    let row = of_second_lane(&without).expect("spread without a filter");
    assert!(row.contains("50 %"), "{row}");
    assert!(of_second_lane(&with).is_some_and(|row| row.contains("50 %")), "{}", stderr(&with));
    assert!(!stderr(&with).contains("filter of system calls"), "{}", stderr(&with));
}

#[test]
fn a_filter_that_kills_is_named_and_kills_nothing() {
    let rig = Rig::new();
    let output = rig.run(Some("kills"), None);
    assert_eq!(stderr(&output).matches("a filter of system calls (seccomp) kills programs").count(), 1);
    assert!(of_second_lane(&output).is_none_or(|row| !row.contains("50 %")), "{}", stderr(&output));
}

#[test]
fn a_program_that_is_executed_with_one_more_filter_is_not_spread() {
    let rig = Rig::new();
    for outside in [None, Some("refuses")] {
        for inside in ["kills", "refuses"] {
            let output = rig.run(outside, Some(inside));
            assert!(of_second_lane(&output).is_none_or(|row| !row.contains("50 %")), "{}", stderr(&output));
            assert!(stderr(&output).contains("installs a filter of system calls"), "{}", stderr(&output));
        }
    }
}
