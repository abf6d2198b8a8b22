//! The external engine in compat/fio, driven by the fio that is installed.
#![cfg(not(loom))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The engine, built once for the installed fio; None where it cannot be built.
fn engine() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

/// Builds the engine. Returns None where it cannot be built, with the reason on standard error.
fn build() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/fio/build.sh");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fio-engine");
    let output = Command::new(script).arg(&directory).arg("dev").env_remove("RUSTFLAGS").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(directory.join("fio-guasi.so")),
        Some(77) => {
            assert!(std::env::var_os("CI").is_none(), "{errors}");
            eprintln!("skipped: {errors}");
            None
        }
        _ => panic!("{errors}"),
    }
}

struct Work {
    file: PathBuf,
    engine: PathBuf,
}

impl Work {
    /// Runs fio and returns the result of its first job as JSON.
    fn fio(&self, flags: u32, arguments: &[&str]) -> serde_json::Value {
        let mut command = Command::new("fio");
        // fio leaves the state of its verification in its directory.
        command.current_dir(env!("CARGO_TARGET_TMPDIR"));
        command.arg("--name=job").arg(format!("--filename={}", self.file.display()));
        command.arg(format!("--ioengine=external:{}", self.engine.display())).arg(format!("--guasi_flags={flags}"));
        command.args(["--size=16m", "--bs=4k", "--output-format=json"]).args(arguments);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {text}{errors}");
        let start = text.find('{').unwrap_or_else(|| panic!("{command:?}: no JSON in {text}{errors}"));
        let mut json: serde_json::Value = serde_json::from_str(&text[start..]).unwrap();
        let job = json["jobs"][0].take();
        assert_eq!(job["error"], 0, "{command:?}: {text}{errors}");
        job
    }
}

#[test]
fn fio_reads_writes_syncs_and_verifies_through_guasi() {
    let Some(engine) = engine() else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fio-engine-data");
    let work = Work { file, engine };
    const IOS: u64 = 4096;
    for flags in 0..4 {
        let written =
            work.fio(flags, &["--rw=randwrite", "--iodepth=64", "--verify=crc32c", "--fsync=100", "--thread"]);
        assert_eq!(written["write"]["total_ios"], IOS, "flags {flags}");
        assert_eq!(written["read"]["total_ios"], IOS, "read back and verified");
        assert!(written["sync"]["total_ios"].as_u64().unwrap() >= IOS / 100, "{}", written["sync"]);

        let read = work.fio(flags, &["--rw=randread", "--iodepth=1000", "--invalidate=1"]);
        assert_eq!(read["read"]["total_ios"], IOS, "flags {flags}");

        let mixed = work.fio(
            flags,
            &[
                "--rw=randrw",
                "--iodepth=32",
                "--iodepth_batch=8",
                "--iodepth_batch_complete_min=4",
                "--fdatasync=50",
                "--verify=crc32c",
                "--bsrange=512-16k",
            ],
        );
        assert!(mixed["read"]["total_ios"].as_u64().unwrap() > 0);
        assert!(mixed["write"]["total_ios"].as_u64().unwrap() > 0);
    }
    let deep = work.fio(1, &["--rw=randread", "--iodepth=10000", "--invalidate=1", "--thread"]);
    assert_eq!(deep["read"]["total_ios"], IOS);
    std::fs::remove_file(&work.file).unwrap();
}

/// Verification through this engine is real: it notices data that changed behind fio's back.
#[test]
fn verification_through_guasi_finds_a_flipped_bit() {
    let Some(engine) = engine() else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fio-engine-flipped");
    let work = Work { file, engine };
    work.fio(1, &["--rw=write", "--iodepth=16", "--verify=crc32c", "--do_verify=0"]);
    let mut bytes = std::fs::read(&work.file).unwrap();
    bytes[5 << 20 | 1000] ^= 1;
    std::fs::write(&work.file, bytes).unwrap();
    let output = Command::new("fio")
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .args(["--name=job", "--rw=write", "--verify=crc32c", "--verify_only", "--size=16m", "--bs=4k", "--iodepth=16"])
        .arg(format!("--filename={}", work.file.display()))
        .arg(format!("--ioengine=external:{}", work.engine.display()))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("verify"), "{errors}");
    std::fs::remove_file(&work.file).unwrap();
}
