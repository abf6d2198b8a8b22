//! The sources of traffic: the workload as it is, the workload with verification, and a recorded log.

mod overlaps;
mod passes;
mod plain;
mod pulses;
mod recalled;
mod replay;
mod threads;
mod verifying;

use job::Job;
use job::job::Plan;
use job::workload::FileExtent;
use measure::Direction;

use super::zones::Zones;
use crate::Error;
use crate::failures::Failures;
use crate::verify::State;
pub(super) use plain::Plain;
pub(super) use pulses::Pulses;
pub(super) use replay::{Replay, survey};
pub(super) use threads::Threads;
pub(super) use verifying::{Verifying, verification_failed};

/// The traffic of one clone.
pub(super) enum Source {
    /// The workload without verification.
    Plain(Box<Plain>),
    /// The workload with its data checked.
    Verifying(Box<Verifying>),
    /// The replay of a log (`read_iolog`).
    Replay(Box<Replay>),
    /// The replay of a recorded application, thread by thread.
    Threads(Box<Threads>),
    /// Ops that move no data.
    Pulses(Box<Pulses>),
}

impl Source {
    /// The source that `job` asks for. `seat` is the place of the clone among all clones of the plan.
    ///
    /// # Errors
    /// An extent too small for a block, an iolog or a verify state that cannot be read.
    pub fn new(
        job: &Job,
        clone: u32,
        seat: u32,
        extents: &[FileExtent],
        zones: Option<Zones>,
    ) -> Result<Source, Error> {
        if job::engines::find(&job.engine).is_some_and(|engine| engine.without_data) {
            Ok(Source::Pulses(Box::new(Pulses::new(job))))
        } else if let Some(replayed) = &job.iolog.threads {
            Ok(Source::Threads(Box::new(Threads::new(job, replayed, clone))))
        } else if job.iolog.read.is_some() {
            Replay::new(job, clone).map(|replay| Source::Replay(Box::new(replay)))
        } else if job.verify.is_some() {
            let verifying = Verifying::new(job, clone, seat, extents, zones)?;
            Ok(Source::Verifying(Box::new(verifying)))
        } else {
            Plain::new(job, clone, extents, zones).map(|plain| Source::Plain(Box::new(plain)))
        }
    }
}

/// Looks for the files of `verify_state_load`, of every clone of a plan; `clones` has the job of each seat
/// first.
///
/// # Errors
/// The first file that is missing or damaged, unless its clone fails alone.
pub(super) fn find_states(plan: &Plan, clones: &[(usize, u32)], failures: &mut Failures) -> Result<(), Error> {
    for (&(job, _), seat) in clones.iter().zip(0..) {
        let job = &plan.jobs[job];
        if job.verify.as_ref().is_some_and(|verify| verify.loads_state)
            && let Err(error) = State::load(&recalled::path(job, seat))
        {
            failures.of(seat as usize, error)?;
        }
    }
    Ok(())
}

/// The largest block that a clone of this job has in flight, in bytes.
pub(super) fn largest_block(job: &Job) -> u64 {
    // With trimwrite, a write is as long as the trim before it.
    let data = Direction::ALL.into_iter().filter(|&d| d != Direction::Trim || job.rw.trim_then_write).map(|d| {
        // With bs_is_seq_rand, both sizes serve every direction.
        let used = job.rw.directions[d] || job.verify.is_some() || job.blocks.is_seq_rand;
        if used { job.blocks.largest(d) } else { 0 }
    });
    data.max().unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::workload::{Op, OpKind, Workload, random::Random};

    /// No op is larger than the buffers, and none lies outside its file, whatever a command line asks for.
    #[test]
    fn no_op_of_any_plan_is_larger_than_its_buffer() {
        let choices: &[&[&str]] = &[
            &[
                "--rw=read",
                "--rw=write",
                "--rw=randrw",
                "--rw=rw",
                "--rw=trimwrite",
                "--rw=randtrimwrite",
                "--rw=randtrim",
            ],
            &[
                "",
                "",
                "--bs=4k,16k,64k",
                "--bs=64k,16k,4k",
                "--bsrange=1k-8k,2k-64k,4k-32k",
                "--bssplit=1k/50:6k/50,32k/100",
            ],
            &["", "", "", "--bs_is_seq_rand=1", "--bs_unaligned=1"],
            &["", "", "", "--blockalign=512", "--blockalign=16k,512,3k"],
            &["", "", "", "--io_size=2m", "--io_size=100k", "--number_ios=7"],
            &["", "", "", "--offset=4k", "--offset=30%", "--zonemode=strided", "--size=50%"],
            &["", "", "--zonesize=64k", "--zonesize=16k", "--zonerange=128k", "--zoneskip=4k"],
            &["", "", "--nrfiles=3", "--nrfiles=7", "--filesize=10k-300k", "--file_service_type=zipf:1.1"],
            &[
                "",
                "",
                "--norandommap=1",
                "--percentage_random=50",
                "--percentage_random=10,90,50",
                "--rw_sequencer=identical",
            ],
            &["", "", "--random_distribution=zipf:1.2", "--random_distribution=normal:5", "--random_generator=lfsr"],
            &["", "", "--random_distribution=zoned:60/10:40/90", "--random_distribution=zoned_abs:90/64k:10/128k"],
            &["", "", "--loops=3", "--time_based=1", "--fsync=3", "--sync_file_range=write:2", "--rwmixread=1"],
            &["", "", "", "--verify=crc32c", "--verify=meta", "--verify_interval=512"],
        ];
        let (mut planned, mut issued) = (0, 0);
        for seed in 1..=4000 {
            let mut random = Random::new(seed);
            let mut words =
                vec!["--name=j", "--ioengine=null", "--filename_format=f.$filenum", "--runtime=1", "--size=600k"];
            words.extend(choices.iter().map(|among| among[random.below(among.len() as u64) as usize]));
            words.retain(|word| !word.is_empty());
            let arguments: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
            let Ok(plan) = job::parse_command_line(&arguments).and_then(|invocation| invocation.plan()) else {
                continue;
            };
            let job = &plan.jobs[0];
            let extents: Vec<FileExtent> = (0..job.files.count)
                .map(|_| FileExtent { offset: random.below(3) * 4096, size: 4096 + random.below(600 << 10) })
                .collect();
            let Ok(mut workload) = Workload::new(job, 1, &extents) else { continue };
            planned += 1;
            for _pass in 0..2 {
                for _ in 0..400 {
                    let Some(Op { kind, file, offset, len }) = workload.next() else { break };
                    let OpKind::Io(direction) = kind else { continue };
                    let fits = direction == Direction::Trim || len <= largest_block(job);
                    assert!(len > 0 && fits, "{words:?}: {kind:?} of {len} bytes");
                    let extent = extents[file as usize];
                    assert!(offset >= extent.offset && offset + len <= extent.offset + extent.size, "{words:?}");
                    issued += 1;
                }
                workload.restart();
            }
        }
        assert!(planned > 1500 && issued > 100_000, "{planned} plans, {issued} ops");
    }
}
