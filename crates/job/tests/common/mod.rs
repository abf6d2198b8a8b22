//! Parts that the tests share: fio itself, where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Says why a test does nothing. With CI set, that is a failure.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot be skipped in CI: {reason}");
    eprintln!("skipped: {reason}");
}

/// fio 3.33, or None after saying that the test is skipped.
#[allow(dead_code, reason = "each test binary uses a part")]
pub fn fio() -> Option<&'static str> {
    match Command::new("fio").arg("--version").output() {
        Ok(output) if output.stdout.starts_with(b"fio-3.33") => Some("fio"),
        Ok(output) => {
            skip(&format!(
                "these tests compare with fio 3.33, and {} is installed",
                String::from_utf8_lossy(&output.stdout).trim()
            ));
            None
        }
        Err(_) => {
            skip("fio is not installed: apt-get install fio");
            None
        }
    }
}

/// The job files of the project's own corpus.
#[allow(dead_code, reason = "each test binary uses a part")]
pub fn corpus() -> Vec<PathBuf> {
    job_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs"))
}

/// The job files of a folder, in order of their names.
#[allow(dead_code, reason = "each test binary uses a part")]
pub fn job_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("folder entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "fio"))
        .collect();
    files.sort();
    files
}
