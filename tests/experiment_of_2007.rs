//! The command lines with which GUASI was compared with libaio on fio's mailing list in 2007 work as they were typed.

mod common;
use common::*;

#[test]
fn guasi_and_libaio_at_the_depths_of_the_experiment() {
    let place = directory();
    for engine in ["guasi", "libaio"] {
        for depth in [8, 1000, 10000] {
            let (engine, depth) = (format!("--ioengine={engine}"), format!("--iodepth={depth}"));
            // The size of the experiment was 64m: the reads are the same, only more.
            let arguments =
                ["run", "--name=global", "--rw=randread", "--size=16m", &engine, "--name=job1", &depth, "--thread"];
            let text = stdout(&succeed(place.path(), &arguments));
            assert!(text.contains("job1") && text.contains("4,096 ops"), "{arguments:?}: {text}");
        }
    }
}
