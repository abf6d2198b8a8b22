//! Plimsoll checks blocks that fio wrote, and fio checks blocks that Plimsoll wrote. Needs `fio` (Debian: `apt-get
//! install fio`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use job::Job;
use job::job::{Verify, VerifyKind, VerifyPattern};
use load::verify::{Expected, Stamp, Verifier};

#[path = "../../job/tests/common/mod.rs"]
mod common;

const FILE_BYTES: u64 = 64 << 10;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("load-verify-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// Runs fio on the file `data` here. Returns true if fio was content, and the output of fio.
    fn fio(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("fio")
            .current_dir(&self.0)
            .args(["--name=j", "--filename=data", "--ioengine=psync", "--bs=4k", "--size=64k", "--output=out"])
            .args(arguments)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// Without verify_fatal, fio 3.33 forgets a mismatch when the next header of the same block is right.

/// Every checksum but sha256 and sha512, which are not those algorithms in fio.
const KINDS: &[(VerifyKind, &str)] = &[
    (VerifyKind::Crc32c, "crc32c"),
    (VerifyKind::Crc64, "crc64"),
    (VerifyKind::Crc32, "crc32"),
    (VerifyKind::Crc16, "crc16"),
    (VerifyKind::Crc7, "crc7"),
    (VerifyKind::Xxhash, "xxhash"),
    (VerifyKind::Md5, "md5"),
    (VerifyKind::Sha1, "sha1"),
    (VerifyKind::Sha3(224), "sha3-224"),
    (VerifyKind::Sha3(256), "sha3-256"),
    (VerifyKind::Sha3(384), "sha3-384"),
    (VerifyKind::Sha3(512), "sha3-512"),
    // Implied by a pattern alone.
    (VerifyKind::PatternHeader, ""),
    (VerifyKind::HeaderOnly, "meta"),
    (VerifyKind::PatternOnly, "pattern"),
];

/// Options of a variant: fio's arguments, and their meaning in Plimsoll.
struct Variant {
    arguments: &'static [&'static str],
    edit: fn(&mut Verify),
}

const VARIANTS: &[Variant] = &[
    Variant { arguments: &[], edit: |_| {} },
    Variant { arguments: &["--verify_interval=512"], edit: |verify| verify.interval = 512 },
    Variant {
        arguments: &["--verify_interval=1024", "--verify_offset=512"],
        edit: |verify| (verify.interval, verify.header_offset) = (1024, 512),
    },
];

fn verifier(kind: VerifyKind, variant: &Variant) -> Verifier {
    let mut verify = Verify { kind, ..Verify::default() };
    if matches!(kind, VerifyKind::PatternHeader | VerifyKind::PatternOnly) {
        verify.pattern = VerifyPattern { bytes: b"\xff\0\0\0\0\0\0\0\0abcd".to_vec(), offset_at: vec![1] };
    }
    (variant.edit)(&mut verify);
    Verifier::new(&Job { verify: Some(verify), ..Job::default() }, 9).unwrap().unwrap()
}

/// All combinations, as (name, fio's arguments, Plimsoll's verifier).
fn combinations() -> Vec<(String, Vec<String>, Verifier)> {
    let mut all = Vec::new();
    for &(kind, name) in KINDS {
        for variant in VARIANTS {
            // Where headers lie does not depend on the checksum; starting fio takes its time.
            let exemplary = matches!(kind, VerifyKind::Crc32c | VerifyKind::Sha3(512) | VerifyKind::PatternHeader);
            if !exemplary && !variant.arguments.is_empty() {
                continue;
            }
            let mut arguments = if name.is_empty() { vec![] } else { vec![format!("--verify={name}")] };
            if matches!(kind, VerifyKind::PatternHeader | VerifyKind::PatternOnly) {
                arguments.push("--verify_pattern=0xff%o\"abcd\"".into());
            }
            arguments.extend(variant.arguments.iter().map(|&argument| argument.to_owned()));
            all.push((arguments.join(" "), arguments, verifier(kind, variant)));
        }
    }
    all
}

#[test]
fn what_fio_wrote_passes_here_and_a_flipped_byte_does_not() {
    if common::fio().is_none() {
        return;
    }
    let scratch = Scratch::new("theirs");
    for (name, arguments, verifier) in combinations() {
        let _ = fs::remove_file(scratch.data());
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(["--rw=write", "--do_verify=0"]).collect();
        let (wrote, said) = scratch.fio(&arguments);
        assert!(wrote, "fio {name}: {said}");
        let data = fs::read(scratch.data()).unwrap();
        assert_eq!(data.len() as u64, FILE_BYTES);
        for (number, block) in data.chunks(4096).enumerate() {
            let mut block = block.to_vec();
            let expected = Expected {
                file: 0,
                offset: number as u64 * 4096,
                sequence: Some(number as u64),
                ..Expected::default()
            };
            verifier.check(&mut block, &expected).unwrap_or_else(|mismatch| panic!("fio {name}: {mismatch}"));
            if !name.contains("meta") {
                block[2000] ^= 1;
                verifier.check(&mut block, &expected).expect_err(&name);
            }
        }
    }
}

#[test]
fn what_we_wrote_passes_with_fio_and_a_flipped_byte_does_not() {
    if common::fio().is_none() {
        return;
    }
    let scratch = Scratch::new("ours");
    for (name, arguments, verifier) in combinations() {
        let mut data = vec![0; FILE_BYTES as usize];
        for (number, block) in data.chunks_mut(4096).enumerate() {
            verifier.stamp(
                block,
                &Stamp { offset: number as u64 * 4096, sequence: number as u64, time_ns: 1_234_567_890, thread: 1 },
            );
        }
        fs::write(scratch.data(), &data).unwrap();
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(["--rw=read", "--verify_fatal=1"]).collect();
        let (passed, said) = scratch.fio(&arguments);
        assert!(passed, "fio {name}: {said}");
        // Only the header, or only what follows it, is looked at.
        data[if name.contains("meta") { 0 } else { 2000 }] ^= 1;
        fs::write(scratch.data(), &data).unwrap();
        assert!(!scratch.fio(&arguments).0, "fio {name} did not see the flipped byte: the test proves nothing");
    }
}
