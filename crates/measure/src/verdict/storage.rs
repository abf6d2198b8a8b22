//! Statements about where the bytes of a job came from and went to: memory, holes, blocks that nobody wrote.

use super::job::{clones, passes_the_page_cache_by, touches_no_storage};
use super::{Severity, Verdict, verdict};
use crate::figures::{self, percent, plain};
use crate::schema::JobResult;

/// Part of the data in the page cache from which on its speed shows in the mean.
const CACHE_MATTERS: f64 = 0.05;
/// Part of the data in the page cache from which on the numbers are mainly those of memory.
const CACHE_DECIDES: f64 = 0.5;
/// Rounds over the same bytes from which on a third of the reads or more came from the page cache.
const READ_AGAIN: f64 = 1.5;
/// Part of the bytes unwritten from which on the numbers show it: a smaller part is the tail of a file.
const UNWRITTEN_MATTERS: f64 = 0.01;
/// Part of the bytes unwritten from which on the numbers are mainly those of the file system.
const UNWRITTEN_DECIDES: f64 = 0.5;

pub(super) fn page_cache_read(job: &JobResult) -> Option<Verdict> {
    let facts = &job.facts;
    let reads = &job.directions.read;
    if reads.ops == 0 || facts.direct || facts.elsewhere || touches_no_storage(job) {
        return None;
    }
    let means = "Memory answered some or all of these reads: the numbers describe the page cache, not the storage.";
    let advice = "Use direct=1; or leave invalidate=1 and read files larger than memory, once.";
    let cached = facts.cached_fraction.unwrap_or(0.0);
    if cached >= CACHE_MATTERS {
        let severity = if cached >= CACHE_DECIDES { Severity::Invalid } else { Severity::Warning };
        let what = format!("{} of the data was in the page cache when the job began", percent(cached));
        return Some(verdict("page-cache-read", severity, what, means, advice));
    }
    // Bytes that were read twice came from memory the second time, unless the file is larger than memory.
    let target = facts.target_bytes.filter(|&bytes| bytes > 0)?;
    let rounds = reads.bytes as f64 / clones(job) / target as f64;
    (rounds >= READ_AGAIN).then(|| {
        let what = format!(
            "the job read the same {} {} times through the page cache",
            figures::bytes(target as f64),
            plain(rounds)
        );
        verdict("page-cache-read", Severity::Warning, what, means, advice)
    })
}

pub(super) fn memory_filesystem(job: &JobResult) -> Option<Verdict> {
    let memory = job.facts.memory.as_ref().filter(|_| !touches_no_storage(job))?;
    Some(verdict(
        "memory-filesystem",
        Severity::Invalid,
        format!("the files are on {memory}, which keeps them in memory"),
        "The numbers describe this machine's memory and CPUs, not storage.",
        "Give a file or a directory on the storage to measure.",
    ))
}

pub(super) fn loop_page_cache(job: &JobResult) -> Option<Verdict> {
    let device = job.facts.loop_device.as_ref().filter(|_| !touches_no_storage(job))?;
    let cached = device.cached_fraction.unwrap_or(0.0);
    let reads = job.directions.read.ops > 0 && cached >= CACHE_MATTERS;
    let writes = job.directions.write.ops > 0;
    let what = match (reads, writes) {
        (true, _) => {
            format!("{} of the file behind {} was in the page cache when the job began", percent(cached), device.name)
        }
        (false, true) => format!("{} keeps written data in the page cache of the file behind it", device.name),
        (false, false) => return None,
    };
    let severity = if !writes && cached < CACHE_DECIDES { Severity::Warning } else { Severity::Invalid };
    Some(verdict(
        "loop-page-cache",
        severity,
        what,
        "direct=1 ends at the loop device: some or all of the numbers describe the page cache.",
        "Attach the file with losetup --direct-io=on, or measure the storage below it.",
    ))
}

pub(super) fn unwritten_read(job: &JobResult) -> Option<Verdict> {
    let unwritten = job.facts.unwritten_fraction.filter(|fraction| *fraction >= UNWRITTEN_MATTERS)?;
    if job.directions.read.ops == 0 || only_reads_back(job) || touches_no_storage(job) {
        return None;
    }
    let severity = if unwritten >= UNWRITTEN_DECIDES { Severity::Invalid } else { Severity::Warning };
    Some(verdict(
        "unwritten-read",
        severity,
        format!("{} of the data that the job read had never been written", percent(unwritten)),
        "The file system answers reads of holes and unwritten extents with zeros, without asking the storage.",
        "Write the file first: rw=write over its whole size, or overwrite=1; fallocate alone does not write.",
    ))
}

pub(super) fn clones_on_same_blocks(job: &JobResult) -> Option<Verdict> {
    (job.facts.clones_on_same_blocks && !touches_no_storage(job)).then(|| {
        verdict(
            "clones-on-same-blocks",
            Severity::Warning,
            format!("{} sequential clones went through the same blocks", job.facts.numjobs.max(job.clones)),
            "All clones but the first find the data in a cache, or write it once more: the sum does not describe the storage.",
            "Set offset_increment and size so that each clone has a separate part, or leave filename out so that each clone has a file.",
        )
    })
}

pub(super) fn writes_not_synced(job: &JobResult) -> Option<Verdict> {
    let unsynced = job.facts.writes_synced == Some(false) && job.sync.lat_ns.is_empty();
    (unsynced && job.directions.write.ops > 0 && !passes_the_page_cache_by(job) && !touches_no_storage(job)).then(
        || {
            verdict(
                "writes-not-synced",
                Severity::Warning,
                format!(
                    "the job wrote {} to the page cache and did not sync them",
                    figures::bytes(job.directions.write.bytes as f64)
                ),
                "A buffered write ends when memory holds the data: the numbers describe memory until it is full.",
                "Use direct=1, end_fsync=1 with the time it takes, or fsync=N.",
            )
        },
    )
}

/// True if all reads of the job check what it has written itself.
pub(super) fn only_reads_back(job: &JobResult) -> bool {
    let checked = job.verified.map_or(0, |verified| verified.blocks);
    job.directions.write.ops > 0 && job.directions.read.ops <= checked
}

pub(super) fn allocating_writes(job: &JobResult) -> Option<Verdict> {
    let unwritten = job.facts.unwritten_fraction.filter(|fraction| *fraction >= UNWRITTEN_DECIDES)?;
    (job.directions.write.ops > 0 && only_reads_back(job) && !touches_no_storage(job)).then(|| {
        verdict(
            "allocating-writes",
            Severity::Note,
            format!("{} of the file was a hole or unwritten when writing began", percent(unwritten)),
            "At first writes the file system allocates or converts extents; overwriting gives other figures.",
            "Use overwrite=1 (lay the file out first), or run the job twice and use the second run.",
        )
    })
}
