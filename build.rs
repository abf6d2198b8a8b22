//! Tells the program which commit it is built from, for `plimsoll --version`.
//!
//! The hash comes from `PLIMSOLL_GIT_HASH` (for builds from an archive), else from git, else it is `unknown`. Nothing
//! else goes in, so that the same sources give the same program.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=PLIMSOLL_GIT_HASH");
    let given = std::env::var("PLIMSOLL_GIT_HASH").ok().filter(|hash| !hash.is_empty());
    let hash = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=PLIMSOLL_GIT_HASH={hash}");
    // Git appends to this log whenever HEAD moves. Without the log (a shallow export), HEAD itself has to do.
    for name in ["logs/HEAD", "HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| std::path::Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// The first line that git prints; None where there is no git or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?.lines().next()?.to_owned();
    Some(line).filter(|line| !line.is_empty())
}
