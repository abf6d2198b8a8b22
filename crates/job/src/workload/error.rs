//! Errors of jobs that have no workload.

use thiserror::Error as ThisError;

/// A workload that cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// No file of the job has room for one block.
    #[error(
        "job {job}: no file has room for one block (the largest has {largest} bytes, the smallest block {block}); give a larger size or a smaller bs"
    )]
    NoRoom {
        /// Name of the job.
        job: String,
        /// Bytes of the largest file.
        largest: u64,
        /// Bytes of the smallest block.
        block: u64,
    },
    /// A file that a distribution must be able to choose is too small.
    #[error(
        "job {job}: file {file} has no room for one block of {block} bytes, but file_service_type may choose any file; give a larger size"
    )]
    FileTooSmall {
        /// Name of the job.
        job: String,
        /// Index of the file among the files of the clone.
        file: usize,
        /// Bytes of the smallest block.
        block: u64,
    },
    /// The map of used blocks does not fit into memory.
    #[error(
        "job {job}: no memory for a map of {blocks} blocks; set softrandommap=1, norandommap=1 or one fixed block size, which needs no map"
    )]
    NoMemory {
        /// Name of the job.
        job: String,
        /// Number of blocks that the map would hold.
        blocks: u64,
    },
    /// `sequence` names a block beyond a file.
    #[error("job {job}: random_distribution=sequence names block {block}, but file {file} has only {blocks} blocks")]
    BlockBeyondFile {
        /// Name of the job.
        job: String,
        /// Index of the file.
        file: usize,
        /// Number of the block.
        block: u64,
        /// Blocks of the file.
        blocks: u64,
    },
    /// The regions of `sprandom` are smaller than a block, or than the drive's cache.
    #[error(
        "job {job}: {regions} regions of sprandom on file {file} have {blocks} blocks each, and need {needed}; use spr_num_regions={most} or less"
    )]
    RegionTooSmall {
        /// Name of the job.
        job: String,
        /// Index of the file.
        file: usize,
        /// Number of regions.
        regions: u32,
        /// Blocks of each region.
        blocks: u64,
        /// Blocks that a region needs.
        needed: u64,
        /// Most regions that are large enough; 0: not even one is.
        most: u64,
    },
    /// `zoned_abs` reaches beyond a file.
    #[error("job {job}: random_distribution=zoned_abs names {zones} bytes, but file {file} has only {size}")]
    ZonesBeyondFile {
        /// Name of the job.
        job: String,
        /// Index of the file among the files of the clone.
        file: usize,
        /// Bytes that the zones span.
        zones: u64,
        /// Bytes of the file.
        size: u64,
    },
}
