//! Devices: the storage behind namespaces, asynchronous and owned by the thread that drives them.
//!
//! A [`Device`] is shared: it has the capacity and the settings that may be changed at run time. Every reactor opens a
//! [`Channel`] of its own to it, submits ops there and polls for their ends. An op owns its buffer from submission to
//! its end, so nothing can touch the bytes meanwhile. Devices stack: a channel of a delay device holds a channel of the
//! device below.

mod buffer;
mod delay;
mod error;
mod faulty;
mod file;
mod file_lock;
mod memory;
mod null;
mod slice;
mod spec;
mod uring;

use std::rc::Rc;
use std::sync::Arc;

pub use buffer::{BufferPool, Watcher, charged_bytes};
pub use error::{Error, ErrorKind};
pub use file_lock::FileLock;
pub use spec::{DeviceKind, DeviceSpec, Effect, Fault, FaultOn, Latency};
pub use uring::Uring;

use sys::buffer::Buffer;

/// The kinds of ops that a device carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Reads the range into the buffer.
    Read,
    /// Writes the buffer into the range.
    Write,
    /// Puts everything that was written before and acknowledged on stable storage.
    Flush,
    /// The range reads as zeros from then on.
    WriteZeroes,
    /// Hints that the device need not keep the range: it may read as zeros from then on.
    Deallocate,
}

impl IoKind {
    /// True for every op but a read: such an op counts as a write.
    pub fn is_write(self) -> bool {
        !matches!(self, IoKind::Read)
    }
}

/// One op on its way into a device. The range lies within the device and is a multiple of its block size.
#[derive(Debug)]
pub struct Io {
    /// The caller's name for the op, given back by [`Done`].
    pub tag: u64,
    /// The kind of the op.
    pub kind: IoKind,
    /// True for writes that are on stable storage when they are done (Force Unit Access).
    pub fua: bool,
    /// The first byte of the range on the device.
    pub offset: u64,
    /// The length of the range in bytes; for reads and writes at most the buffer's length less `skip`.
    pub len: u64,
    /// The buffer of a read or write; reads of a device whose reads are zeros need none.
    pub buffer: Option<Buffer>,
    /// Bytes of the buffer to pass over: where a short transfer is continued.
    pub skip: u32,
}

/// An op that has ended.
#[derive(Debug)]
pub struct Done {
    /// The caller's name for the op.
    pub tag: u64,
    /// Bytes transferred, maybe fewer than asked (0 at the end of a file that shrank); or a positive error number.
    pub result: Result<u64, i32>,
    /// The buffer of the op, which the target may use again.
    pub buffer: Option<Buffer>,
}

/// A device, shared by all reactors.
pub trait Device: Send + Sync {
    /// Bytes per logical block.
    fn block_bytes(&self) -> u32;

    /// Capacity in bytes now; a multiple of the block size.
    fn bytes(&self) -> u64;

    /// A channel for this thread.
    ///
    /// # Errors
    /// The system lacks something for the channel: descriptors, locked memory, io_uring.
    fn open(&self, local: &Local) -> std::io::Result<Box<dyn Channel>>;

    /// Changes the capacity in bytes; `None` takes up the present capacity of the file or device below.
    ///
    /// # Errors
    /// `Invalid` for devices that cannot; `System`.
    fn resize(&self, bytes: Option<u64>) -> Result<(), Error>;

    /// The device below a stacked one, whose properties hold for the stacked one too.
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    /// True if reads are always zeros and need no buffer.
    fn reads_zeros(&self) -> bool {
        self.below().is_some_and(|below| below.reads_zeros())
    }

    /// True if the device refuses writes.
    fn read_only(&self) -> bool {
        self.below().is_some_and(|below| below.read_only())
    }

    /// True if I/O passes by the page cache.
    fn direct(&self) -> bool {
        self.below().is_none_or(|below| below.direct())
    }

    /// A text that tells its content from every other content of this machine, and stays the same as long as the
    /// content is the same one. `None` for content that comes and goes with the device.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Bytes of the machine's memory that the device may still take.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Changes latencies; false if the device has none.
    fn set_latency(&self, _latency: Latency) -> bool {
        false
    }

    /// The latency that the device has now; `None` if it holds nothing back.
    fn latency(&self) -> Option<Latency> {
        None
    }

    /// Replaces faults; false if the device has none.
    fn set_faults(&self, _faults: &[Fault]) -> bool {
        false
    }

    /// The place that this process serves in turn with others; `None` if it has the device for good.
    fn shared(&self) -> Option<&FileLock> {
        None
    }
}

/// One thread's way into a device. Dropping it with ops inside loses those that are not in the kernel's hands.
pub trait Channel {
    /// Takes an op; those that end at once are appended to `done`.
    fn submit(&mut self, now_ns: u64, io: Io, done: &mut Vec<Done>);

    /// Appends the ops that have ended since to `done`. Only channels with ops inside need be polled.
    fn poll(&mut self, now_ns: u64, done: &mut Vec<Done>);

    /// Ends an op before its time, with ECANCELED, if the device can. Returns true if the op has ended and its end is
    /// appended to `done`.
    fn cancel(&mut self, _tag: u64, _done: &mut Vec<Done>) -> bool {
        false
    }

    /// The time at which the channel wants to be polled although the kernel has reported nothing; `None` if it does
    /// not.
    fn wake_ns(&self) -> Option<u64> {
        None
    }
}

/// The state that channels of one thread share.
#[derive(Clone, Default)]
pub struct Local {
    /// The thread's ring for files, made when the first file is opened.
    pub uring: Rc<std::cell::RefCell<Option<Uring>>>,
}

/// The device that `spec` describes, on `base` if it is stacked.
///
/// # Errors
/// `Invalid` sizes and alignments; `System`: files that cannot be opened, made or locked.
pub fn create(spec: &DeviceSpec, base: Option<Arc<dyn Device>>) -> Result<Arc<dyn Device>, Error> {
    if let Some(bytes) = spec.block_bytes
        && !(bytes.is_power_of_two() && (512..=65_536).contains(&bytes))
    {
        return Err(Error::invalid(format!(
            "device {}: a block of {bytes} bytes is not possible; give a power of two from 512 to 65536",
            spec.name
        )));
    }
    let below = || base.clone().ok_or_else(|| Error::invalid(format!("device {}: nothing below it", spec.name)));
    let own_block = spec.block_bytes.unwrap_or(512);
    if let (Some(base), Some(bytes)) = (&base, spec.block_bytes)
        && base.block_bytes() != bytes
    {
        return Err(Error::invalid(format!(
            "device {}: blocks of {bytes} bytes on a device with blocks of {}; leave the block size out",
            spec.name,
            base.block_bytes()
        )));
    }
    Ok(match &spec.kind {
        DeviceKind::Null { bytes } => Arc::new(null::Null::new(own_block, whole(spec, *bytes, own_block)?)),
        DeviceKind::Memory { bytes } => Arc::new(memory::Memory::new(own_block, whole(spec, *bytes, own_block)?)),
        DeviceKind::File { path, create_bytes, direct, read_only, keeps_allocated, shared } => {
            let mut file = file::File::open(spec, path, *create_bytes, *direct, *read_only, *shared)?;
            file.keeps_allocated = *keeps_allocated;
            Arc::new(file)
        }
        DeviceKind::Delay { latency, .. } => Arc::new(delay::Delay::new(below()?, *latency)),
        DeviceKind::Slice { offset_bytes, bytes, .. } => {
            Arc::new(slice::Slice::new(&spec.name, below()?, *offset_bytes, *bytes)?)
        }
        DeviceKind::Faulty { seed, .. } => Arc::new(faulty::Faulty::new(below()?, *seed)),
    })
}

fn whole(spec: &DeviceSpec, bytes: u64, block: u32) -> Result<u64, Error> {
    if bytes == 0 || !bytes.is_multiple_of(u64::from(block)) || bytes > 1 << 60 {
        return Err(Error::invalid(format!(
            "device {}: {bytes} bytes are not a whole number of blocks of {block} bytes, from one to 2^60 bytes in all",
            spec.name
        )));
    }
    Ok(bytes)
}
