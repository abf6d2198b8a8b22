//! The structure of the library: a floor calls only itself and the floors below it, and a forked child forgets
//! everything that can be forgotten.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of `src`, from the bottom to the top.
const FLOORS: [&str; 6] = ["abi", "state", "open", "policy", "aio", "hooks"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files below a folder, with their text.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn a_floor_calls_only_downwards() {
    let mut wrong = Vec::new();
    for (height, floor) in FLOORS.iter().enumerate() {
        let files = files(&source().join(floor));
        assert!(files.len() > 2, "{floor} has no files");
        for (path, text) in files {
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
                for used in line.split("crate::").skip(1) {
                    let module = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                    match FLOORS.iter().position(|floor| *floor == module) {
                        Some(other) if other <= height => {}
                        _ => wrong.push(format!("{}:{}: crate::{module}", path.display(), number + 1)),
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a floor may use itself and those below it, in the order {FLOORS:?}:\n{}",
        wrong.join("\n")
    );
}

/// A filter of system calls may kill a process for any of them: `abi/probe.rs` makes each once, so that `plimsoll trap`
/// knows.
#[test]
fn the_probe_makes_every_call_of_the_library() {
    let probe = fs::read_to_string(source().join("abi/probe.rs")).unwrap();
    let (mut calls, mut missing) = (0, Vec::new());
    for (path, text) in files(&source()) {
        for part in text.split("call(").skip(1) {
            let Some(name) = part.trim_start().strip_prefix("libc::").filter(|rest| rest.starts_with("SYS_")) else {
                continue;
            };
            let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            calls += 1;
            if !probe.contains(&format!("(libc::{name}, [")) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(calls > 60, "{calls}");
    assert!(missing.is_empty(), "abi/probe.rs does not make these calls:\n{}", missing.join("\n"));
}

#[test]
fn a_forked_child_forgets_everything() {
    let list = fs::read_to_string(source().join("fork.rs")).unwrap();
    let mut found = 0;
    for (path, text) in files(&source()).iter().filter(|(path, _)| !path.ends_with("fork.rs")) {
        if text.contains("pub fn forget_all()") {
            let stem = if path.ends_with("mod.rs") { path.parent().unwrap() } else { path }.file_stem().unwrap();
            let call = format!("{}::forget_all();", stem.to_str().unwrap());
            assert!(list.contains(&call), "fork.rs does not call {call}");
            found += 1;
        }
    }
    assert_eq!(found, list.matches("::forget_all();").count(), "fork.rs calls what was not found");
    assert!(found > 10, "{found}");
}
