//! The description of a device, as a configuration gives it.

use std::path::PathBuf;

/// A device to be created: a name, a block size and what stands behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Unique among devices; any text without control characters.
    pub name: String,
    /// Bytes per logical block: a power of two, 512 to 65536. `None` takes the lower device's, the file's own
    /// alignment for direct I/O, or else 512.
    pub block_bytes: Option<u32>,
    /// The UUID that namespaces on the device report. `None` has the target choose one: of files and block devices it
    /// follows from the machine and the file, of stacked devices from the device below, and of null and memory devices
    /// it is random.
    pub uuid: Option<[u8; 16]>,
    /// The kind of the device, with the settings of that kind.
    pub kind: DeviceKind,
}

/// The kinds of devices. Those with a `base` are stacked on another device, which cannot be deleted meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceKind {
    /// Reads are zeros, writes are forgotten: the speed of the path itself.
    Null {
        /// Capacity in bytes.
        bytes: u64,
    },
    /// Memory of this process, taken where it is written.
    Memory {
        /// Capacity in bytes.
        bytes: u64,
    },
    /// A regular file or block device through io_uring.
    File {
        /// The path of the file or block device.
        path: PathBuf,
        /// The target creates the file with this many bytes if it does not exist; `None` requires the file to exist.
        create_bytes: Option<u64>,
        /// `true` passes by the page cache (O_DIRECT) where the file system can; `false` goes through the cache.
        direct: bool,
        /// `true` refuses writes with Namespace is Write Protected.
        read_only: bool,
        /// `true` deallocates nothing: the file keeps its blocks, whatever hosts deallocate or fill with zeros.
        keeps_allocated: bool,
        /// `true` lets another process serve the file in turn with this one: the file is locked only while paths to it
        /// are open here.
        shared: bool,
    },
    /// Another device whose completions are held back.
    Delay {
        /// The device below.
        base: String,
        /// The time for which completions are held back.
        latency: Latency,
    },
    /// A part of another device: the range of one partition of a split.
    Slice {
        /// The device below.
        base: String,
        /// First byte, a multiple of the block size.
        offset_bytes: u64,
        /// Length in bytes, a multiple of the block size.
        bytes: u64,
    },
    /// Another device with faults on demand, see [`Fault`].
    Faulty {
        /// The device below.
        base: String,
        /// Seeds the choice of the ops that fail, so that a run can be repeated.
        seed: u64,
    },
}

impl DeviceKind {
    /// The device below, for kinds that are stacked.
    pub fn base(&self) -> Option<&str> {
        match self {
            DeviceKind::Delay { base, .. } | DeviceKind::Slice { base, .. } | DeviceKind::Faulty { base, .. } => {
                Some(base)
            }
            DeviceKind::Null { .. } | DeviceKind::Memory { .. } | DeviceKind::File { .. } => None,
        }
    }

    /// A text that tells what a stacked device makes of the device below from what any other would make of it.
    pub(crate) fn layer(&self) -> String {
        match self {
            DeviceKind::Slice { offset_bytes, bytes, .. } => format!("slice {offset_bytes} {bytes}"),
            kind => kind.name().to_string(),
        }
    }

    /// A word for tables: `null`, `memory`, `file`, `delay`, `slice`, `faulty`.
    pub fn name(&self) -> &'static str {
        match self {
            DeviceKind::Null { .. } => "null",
            DeviceKind::Memory { .. } => "memory",
            DeviceKind::File { .. } => "file",
            DeviceKind::Delay { .. } => "delay",
            DeviceKind::Slice { .. } => "slice",
            DeviceKind::Faulty { .. } => "faulty",
        }
    }
}

/// The time added to every op of a delay device, in microseconds: of 100 ops 99 get the average, one the 99th
/// percentile (SPDK's bdev_delay).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The delay of reads and compares.
    pub avg_read_us: u64,
    /// The delay of one read in a hundred.
    pub p99_read_us: u64,
    /// The delay of writes, flushes, write zeroes and deallocations.
    pub avg_write_us: u64,
    /// The delay of one write in a hundred.
    pub p99_write_us: u64,
}

/// A fault of a faulty device: an effect on some of its ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of ops that the fault befalls.
    pub on: FaultOn,
    /// The effect on each of these ops.
    pub effect: Effect,
    /// With N, the fault strikes one op in N, which the seed chooses; 1 for all.
    pub one_in: u32,
    /// The number of ops after which the fault ends; with `None` it stays until it is cleared.
    pub count: Option<u64>,
}

/// The kind of ops that a fault befalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// The fault strikes every op.
    All,
    /// The fault strikes reads and compares.
    Reads,
    /// The fault strikes writes and Write Zeroes.
    Writes,
    /// The fault strikes flushes.
    Flushes,
    /// The fault strikes deallocations.
    Deallocates,
}

/// The effect of a fault on an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The op fails with EIO, and the device below never sees it.
    Fail,
    /// A read or write transfers half of its blocks, at least one; an op of one block transfers it whole.
    Short,
    /// The op ends late.
    Slow {
        /// The delay in microseconds.
        us: u64,
    },
    /// The op never ends, until faults are cleared: then it fails with EIO.
    Never,
    /// As `Never`, and the device cannot cancel the op: a disk that does not answer.
    Stuck,
}
