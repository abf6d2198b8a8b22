//! Promises of the crate `job` and of the unit parser that hold for any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use job::args::parse_command_line;
use job::file::{Surroundings, parse_text};
use job::{Error, Job, Plan};
use measure::units::{self, TimeUnit};

/// A job file: jobs that make sense, or an error of one line.
pub fn jobfile(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let source = parse_text(Path::new("fuzzed.fio"), &text, &Surroundings::NONE);
    check(source.and_then(|source| job::build::plan(&Default::default(), &[source], &Default::default())));
}

/// A command line, one argument a line: likewise. Job files that it names do not exist.
pub fn args(data: &[u8]) {
    let arguments: Vec<OsString> =
        data.split(|byte| *byte == b'\n').map(|argument| OsString::from_vec(argument.to_vec())).collect();
    let invocation = parse_command_line(&arguments);
    if let Ok(invocation) = &invocation {
        let _ = invocation.help_text();
    }
    check(invocation.and_then(|invocation| invocation.plan_in(&Surroundings::NONE)));
}

/// A size and a time: a value whose exact rendering reads back as itself, or an error of one line.
pub fn units(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for kb_base in [1000, 1024] {
        match units::parse_bytes(&text, kb_base) {
            Ok(bytes) => assert_eq!(units::parse_bytes(&units::exact_bytes(bytes), 1024), Ok(bytes)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let _ = (units::parse_size(&text, kb_base), units::parse_signed_bytes(&text, kb_base));
        let _ = units::parse_range(&text, |end| units::parse_bytes(end, kb_base));
    }
    for unit in [TimeUnit::Microseconds, TimeUnit::Milliseconds, TimeUnit::Seconds] {
        if let Ok(nanoseconds) = units::parse_time_ns(&text, unit) {
            assert_eq!(units::parse_time_ns(&units::exact_time(nanoseconds), unit), Ok(nanoseconds));
        }
    }
    let _ = (units::parse_percent(&text), units::parse_number(&text));
}

fn check(result: Result<Plan, Error>) {
    match result {
        Ok(plan) => {
            assert!(!plan.jobs.is_empty());
            plan.jobs.iter().for_each(makes_sense);
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}

/// Checks the promises on which every other crate relies.
fn makes_sense(job: &Job) {
    let queue = &job.queue;
    assert!(queue.depth >= 1 && (1..=queue.depth).contains(&queue.batch) && (1..=queue.depth).contains(&queue.low));
    assert!(queue.batch_complete_min <= queue.batch_complete_max && queue.batch_complete_min <= queue.depth);
    assert!(job.process.clones >= 1 && job.time.loops >= 1 && job.files.count >= 1);
    assert!(job.time.start_delay_ns.0 <= job.time.start_delay_ns.1);
    assert!(!job.time.time_based || job.time.runtime_ns.is_some());
    for (direction, (smallest, largest)) in job.blocks.range.iter() {
        assert!(1 <= *smallest && smallest <= largest && job.blocks.align[direction] >= 1);
        let split = &job.blocks.split[direction];
        assert!(split.is_empty() || (split.iter().map(|(_, share)| share).sum::<f64>() - 100.0).abs() < 1e-3);
        assert!(split.iter().all(|(size, share)| (*smallest..=*largest).contains(size) && *share >= 0.0));
        let zones = job.pattern.zones[direction].iter().map(|(share, _)| share);
        assert!(job.pattern.zones[direction].is_empty() || (zones.sum::<f64>() - 100.0).abs() < 1e-3);
        assert!(job.pattern.percent_random[direction] <= 100);
    }
    assert!(job.pattern.mix_read <= 100);
    assert!(job.rw.directions.iter().any(|(_, used)| *used));
    if let Some(zones) = job.extent.strided {
        assert!(zones.size >= 1 && zones.range >= zones.size);
    }
    if let Some(verify) = &job.verify {
        assert!(verify.interval >= 1 && job.blocks.range.write.0.is_multiple_of(verify.interval));
    }
}
