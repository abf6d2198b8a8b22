//! verify finds a flipped byte, and says file, offset, expected and got.

mod common;
use common::*;

#[test]
fn what_was_written_verifies() {
    for kind in ["crc32c", "xxhash", "md5", "sha256"] {
        let directory = directory();
        let verify = format!("--verify={kind}");
        let arguments = ["run", "--name=a", "--rw=randwrite", "--size=1m", "--bs=4k", &verify, "--output-format=json"];
        let result = json(&succeed(directory.path(), &arguments));
        assert_eq!(result["jobs"][0]["write"]["total_ios"], 256, "{kind}");
        assert_eq!(result["jobs"][0]["read"]["total_ios"], 256, "{kind}: every block is read back");
    }
}

#[test]
fn a_flipped_byte_is_found_with_file_offset_expected_and_got() {
    for kind in ["crc32c", "xxhash"] {
        let directory = directory();
        let verify = format!("--verify={kind}");
        let job = ["--name=a", "--rw=write", "--size=1m", "--bs=4k", &verify, "--filename=data"];
        succeed(directory.path(), &[&["run"], &job[..]].concat());
        succeed(directory.path(), &[&["run"], &job[..], &["--verify_only"]].concat());

        let path = directory.path().join("data");
        let mut bytes = std::fs::read(&path).unwrap();
        let flipped = 40 * 4096 + 1234;
        bytes[flipped] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();

        let output = run(directory.path(), &[&["run"], &job[..], &["--verify_only"]].concat());
        assert_eq!(output.status.code(), Some(1), "{kind}");
        let said = stdout(&output) + &stderr(&output);
        for word in ["data", &(40 * 4096).to_string(), "expected", "got"] {
            assert!(said.contains(word), "{kind}: no {word:?} in:\n{said}");
        }
    }
}

#[test]
fn in_json_mode_standard_error_says_what_the_number_means() {
    let directory = directory();
    let job = ["--name=a", "--rw=write", "--size=64k", "--bs=4k", "--verify=crc32c", "--filename=data"];
    succeed(directory.path(), &[&["run"], &job[..]].concat());
    let path = directory.path().join("data");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5 * 4096 + 99] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let output = run(directory.path(), &[&["run", "--verify_only", "--output-format=json"], &job[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["jobs"][0]["error"], 84);
    let said = stderr(&output);
    assert!(said.contains("job a") && said.contains(&(5 * 4096).to_string()), "{said}");
}
