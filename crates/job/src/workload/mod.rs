//! The seeded op stream of one clone: which bytes of which file, in which direction, next.
//!
//! Pure and reproducible: the same job, clone number and file sizes give the same stream, on any machine.

use measure::Direction;

/// What an op does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Transfers data.
    Io(Direction),
    /// fsync(2) of the file.
    Sync,
    /// fdatasync(2).
    DataSync,
    /// sync_file_range(2) over what was written since the last one.
    SyncRange,
}

/// One request of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What to do.
    pub kind: OpKind,
    /// Index of the file among the clone's files.
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes; 0 for syncs.
    pub len: u64,
}

/// The part of a file that a clone uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// First byte used.
    pub offset: u64,
    /// Bytes used.
    pub size: u64,
}
