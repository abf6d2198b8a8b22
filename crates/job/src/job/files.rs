//! The files of a job: their names, the order in which they are served, and the way they are made, opened and locked.

use super::Distribution;

/// `file_service_type`: the rule that chooses the next file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FileService {
    /// The next file is chosen at random.
    Random,
    /// The files are served in turn.
    RoundRobin,
    /// The next file is served when the present one is finished.
    Sequential,
    /// The next file is chosen by a distribution over the files.
    Distributed(Distribution),
}

/// `fallocate=`: the call that reserves space when files are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// `none`: reserve no space.
    None,
    /// Space is reserved by posix_fallocate(3).
    Posix,
    /// Space is reserved by fallocate(2) with FALLOC_FL_KEEP_SIZE.
    Keep,
    /// The file gets its size from ftruncate(2).
    Truncate,
    /// fallocate(2) where the file system has it, nothing elsewhere (the default).
    Native,
}

/// `fadvise_hint=`: the advice that posix_fadvise(2) gives to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fadvise {
    /// The kernel gets no advice.
    None,
    /// The advice is RANDOM or SEQUENTIAL, as the workload is (the default).
    Workload,
    /// The advice is POSIX_FADV_SEQUENTIAL.
    Sequential,
    /// The advice is POSIX_FADV_RANDOM.
    Random,
}

/// The files of a job, and the way they are made and opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Files {
    /// `filename`, split at unescaped colons; empty: names are made by `filename_format`.
    pub names: Vec<String>,
    /// True if each of `names` has its directory before it.
    pub are_placed: bool,
    /// `directory`, split at colons; clones take them in turn.
    pub directories: Vec<String>,
    /// `filename_format`: the form of names that are made; default `$jobname.$jobnum.$filenum`.
    pub format: String,
    /// `--readonly`: no file is made or made longer.
    pub read_only: bool,
    /// `unique_filename`: where `format` makes the names, each rank of a run has names that no other rank has.
    pub unique: bool,
    /// `opendir`: use all files below this directory.
    pub opendir: Option<String>,
    /// `nrfiles`: number of files of each clone.
    pub count: u32,
    /// `openfiles`: number of files open at the same time; None: all.
    pub open: Option<u32>,
    /// `file_service_type`: the rule that chooses the next file.
    pub service: FileService,
    /// Ops on a file before the next is chosen (`:N` of `file_service_type`).
    pub service_ops: u32,
    /// `fallocate`: the call that reserves space when files are made.
    pub fallocate: Fallocate,
    /// `fadvise_hint`: the advice that posix_fadvise(2) gives to the kernel.
    pub fadvise: Fadvise,
    /// `create_on_open`: files are made when first opened, not laid out before.
    pub create_on_open: bool,
    /// `create_only`: lay out, then end.
    pub create_only: bool,
    /// `create_fsync`: sync files after layout.
    pub create_fsync: bool,
    /// `allow_file_create`: make files that do not exist.
    pub allow_create: bool,
    /// True if missing directories of explicit names are made, as fio does.
    pub makes_directories: bool,
    /// `unlink`: remove the files when the job is done.
    pub unlink: bool,
    /// `unlink_each_loop`: remove the files after each loop.
    pub unlink_each_loop: bool,
    /// `file_append`: start at the end of the file.
    pub append: bool,
    /// `overwrite`: lay out files before writing them.
    pub overwrite: bool,
    /// `invalidate`: drop the files' pages from the page cache before the run.
    pub invalidate: bool,
    /// `pre_read`: read the files into the page cache before the run.
    pub pre_read: bool,
    /// `direct` (or `buffered=0`): bypass the page cache (O_DIRECT).
    pub direct: bool,
    /// `sync`: open the files for synchronous writes (O_SYNC or O_DSYNC).
    pub sync: OpenSync,
    /// `lockfile`: lock the files during ops.
    pub lock: FileLock,
}

/// `sync=`: flags of open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OpenSync {
    /// Neither O_SYNC nor O_DSYNC.
    #[default]
    None,
    /// O_SYNC: each write stores its data and all metadata.
    Sync,
    /// O_DSYNC: each write stores its data, and the metadata needed to read them.
    Dsync,
}

/// `lockfile=`: the lock on a file during ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FileLock {
    /// `none`: clones take no lock.
    #[default]
    None,
    /// `exclusive`: one clone at a time uses the file.
    Exclusive,
    /// Many readers or one writer use the file at a time.
    ReadWrite,
}
