//! The fuzz targets, bounded: any bytes, and bytes that look like job files.

#[path = "../../../fuzz/targets/job.rs"]
mod targets;

use proptest::prelude::*;

/// Pieces of which job files are made, sound and unsound.
fn value() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "0",
        "1",
        "2",
        "100",
        "4k",
        "1m",
        "1.5g",
        "50%",
        "10s",
        "5ms",
        "-1",
        ":",
        ",",
        "/",
        "-",
        "zipf",
        "zoned",
        "zoned_abs",
        "randrw",
        "read",
        "iops",
        "io_uring",
        "libaio",
        "null",
        "0xff",
        "\"ab\"",
        "%o",
        "$ncpus",
        "${X}",
        "*2",
        "(",
        ")",
        "1024",
        "1000",
        "all",
        "none",
        "crc32c",
        "pattern",
        "strided",
        "split",
        "9999999999999",
        "\u{e9}",
        " ",
        "\\:",
        "/tmp/x",
    ]);
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn setting() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = job::options::all().flat_map(|option| option.names()).collect();
    (prop::sample::select(names), prop::option::weighted(0.95, value())).prop_map(|(name, value)| match value {
        Some(value) => format!("{name}={value}"),
        None => name.to_string(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        targets::jobfile(&data);
        targets::args(&data);
        targets::units(&data);
    }

    #[test]
    fn any_text(text in "\\PC{0,60}") {
        targets::units(text.as_bytes());
        targets::jobfile(format!("[job]\n{text}").as_bytes());
    }

    #[test]
    fn any_job_file(settings in prop::collection::vec(setting(), 0..4), globals in prop::collection::vec(setting(), 0..2)) {
        targets::jobfile(format!("[global]\n{}\n[job]\n{}\n", globals.join("\n"), settings.join("\n")).as_bytes());
        let arguments: Vec<String> = globals.iter().chain(["name=x".to_string()].iter()).chain(&settings).map(|setting| format!("--{setting}")).collect();
        targets::args(arguments.join("\n").as_bytes());
    }

    #[test]
    fn any_value_of_any_option(setting in setting()) {
        targets::jobfile(format!("[job]\n{setting}\n").as_bytes());
    }
}
