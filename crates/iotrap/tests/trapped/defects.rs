//! The defects of the original iotrap, none of which this one has: each is a program that must not notice that it runs
//! under the interposer.

use crate::common;
use common::{Volume, compile, skipped, succeed};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("defects", "c", &[]))
}

/// Runs a program under the interposer; and without it where the program does not look for lanes, so that the test
/// itself is right.
fn holds(name: &str, also_without: bool) {
    if skipped() {
        return;
    }
    if also_without {
        succeed(&mut Volume::new().plain(program(), &[name]));
    }
    let mut volume = Volume::new();
    // Every lane gets its share, however fast the others were just now.
    volume.pool = "policy = \"round-robin\"".into();
    let output = succeed(&mut volume.trapped(program(), &[name]));
    assert_eq!(common::text(&output.stderr), "");
}

macro_rules! defects {
    ($($name:ident: $also_without:expr,)*) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name), $also_without);
        })*
    };
}

defects! {
    fsync_tells_errors_of_lanes: false,
    fdatasync_tells_errors_of_lanes: false,
    aio_fsync_tells_errors_of_lanes: false,
    fsync_of_another_descriptor: true,
    batches_over_several_files: true,
    every_way_to_close: false,
    duplicates_share: false,
    iocbs_stay_the_programs: true,
    iocbs_that_go_and_repeat: true,
    paths_as_the_kernel_resolves_them: false,
    buffered_and_append_stay: true,
    buffered_writes_are_seen: true,
    nonsense_is_harmless: true,
    bad_addresses: true,
    limit_reached: true,
    limit_is_the_programs: true,
    high_numbers: true,
    vfork_children: false,
    errors_as_libaio_returns_them: true,
    both_versions_of_io_getevents: true,
    lanes_are_out_of_the_way: false,
}

#[test]
fn same_name_other_file() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let blocks = |letter: u8| -> Vec<u8> {
        let block = |number: u64| [&number.to_ne_bytes()[..], &[letter; 4088]].concat();
        (0..16).flat_map(block).collect()
    };
    std::fs::write(volume.path("volume/renamed"), blocks(b'm')).unwrap();
    std::fs::write(volume.path("scratch/renamed"), blocks(b't')).unwrap();
    // The other lanes show another file under that name.
    succeed(volume.trapped(program(), &["same_name_other_file"]).env("OTHER", "renamed"));
    assert!(volume.counted().reason("another file of that name") > 0, "the reason is recorded");
}
