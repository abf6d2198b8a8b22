//! Promises that hold for any log that is replayed, and for the op stream of any job that the parser accepts.

use std::path::Path;

use job::file::{Surroundings, parse_text};
use job::iolog::{Replay, Step};
use job::workload::{FileExtent, OpKind, Workload};
use measure::Direction;

/// A log: ops that fit into a file, or an error of one line.
pub fn iolog(data: &[u8]) {
    let options = job::Job::default().iolog;
    let replay = || Replay::new(data, "fuzzed.log", &options);
    let result = replay().and_then(Replay::summarise);
    match result {
        Ok(summary) => {
            let mut replay = replay().expect("it was read once");
            let mut transfers = 0;
            while let Some(step) = replay.next_step().expect("it was read once") {
                if let Step::Op { op, at_ns, .. } = step
                    && let OpKind::Io(direction) = op.kind
                {
                    let file = &summary.files[op.file as usize];
                    assert!(op.offset + op.len <= file.bytes && at_ns <= summary.duration_ns);
                    assert!(direction == Direction::Read || file.changed);
                    transfers += 1;
                }
            }
            assert_eq!(transfers, summary.ops.read + summary.ops.write + summary.ops.trim);
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}

/// A job file over small files: every op lies within its extent, and a pass that has an end comes to it.
pub fn workload(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let source = parse_text(Path::new("fuzzed.fio"), &text, &Surroundings::NONE);
    let Ok(plan) = source.and_then(|source| job::build::plan(&Default::default(), &[source], &Default::default()))
    else {
        return;
    };
    for job in &plan.jobs {
        let files = [
            FileExtent { offset: 4096, size: 300_000 },
            FileExtent { offset: 0, size: 65_536 },
            FileExtent { offset: 7, size: 5000 },
        ];
        let files = &files[..(job.files.count as usize).clamp(1, 3)];
        let Ok(mut stream) = Workload::new(job, 0, files) else { continue };
        for _ in 0..2 {
            let mut ops = 0;
            while let Some(op) = stream.next() {
                let extent = files[op.file as usize];
                if matches!(op.kind, OpKind::Io(_)) {
                    assert!(
                        op.len > 0 && op.offset >= extent.offset && op.offset + op.len <= extent.offset + extent.size,
                        "{op:?}"
                    );
                }
                ops += 1;
                if ops == 5000 {
                    break;
                }
            }
            stream.restart();
        }
    }
}
