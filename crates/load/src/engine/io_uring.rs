//! io_uring: registered buffers and files, batches, polled submission and completion.
//!
//! One ring a clone, driven by the clone's thread alone. Reads of cached data complete within the submitting call,
//! and their completions are taken from shared memory: such a batch costs one system call.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use job::Job;
use job::workload::OpKind;
use measure::Direction;
use sys::clock::monotonic_ns;
use sys::ring::{self, ENTER_GETEVENTS, ENTER_SQ_WAKEUP, Probe, Ring, opcode, squeue, types};

use super::blocking::{self, Flags, PUNCH};
use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Uring::new(setup)?))
}

/// Entries of the submission queue at most: a batch larger than this is submitted in parts.
const SUBMISSION_LIMIT: u32 = 4096;
/// The kernel registers no larger buffer (io_uring_register(2)).
const REGISTERED_BYTES: usize = 1 << 30;
/// Milliseconds until the kernel's polling thread sleeps; io_uring_setup(2) says 1000 where nothing is given.
const SQPOLL_IDLE_MS: u32 = 1000;
/// `BLOCK_URING_CMD_DISCARD` of linux/blkdev.h, `_IO(0x12, 0)` (Linux 6.12).
const DISCARD: u32 = 0x1200;

/// The upper half of an op's `user_data`, if the completion's result is the op's. The lower half is the slot's number.
const PLAIN: u64 = 0;
/// The upper half of the `user_data` of a trim that punches a hole into a file: its result has no length.
const PUNCHED: u64 = 1;
/// The upper half of the `user_data` of a trim that discards blocks of a device: its result has no length.
const DISCARDED: u64 = 2;

struct Uring {
    ring: Ring,
    /// Entries pushed and not yet taken by the kernel.
    queued: u32,
    /// Entries taken by the kernel and not yet reaped. With a polling thread: entries pushed and not yet reaped.
    in_flight: u32,
    depth: u32,
    how: How,
    /// Ops since the last one that was forced to a worker.
    since_forced: u32,
    files: Vec<File>,
    /// By slot: the iovec that a vectored request points to. Empty if requests are not vectored.
    vectors: Vec<libc::iovec>,
    /// By slot: trims in flight, whose results carry no length. Empty until the first trim.
    trims: Vec<Trim>,
    /// True as long as the kernel is not known to lack the ring's command for discarding device blocks.
    discards: bool,
    slots: Arc<Slots>,
}

/// The form in which ops are put into entries, fixed when the engine is made.
#[derive(Clone, Copy)]
struct How {
    fixed_buffers: bool,
    /// Slots in one registered buffer.
    slots_per_buffer: u32,
    register_files: bool,
    vectored: bool,
    sqpoll: bool,
    iopoll: bool,
    force_async: u32,
    flags: Flags,
}

#[derive(Clone, Copy)]
struct File {
    fd: RawFd,
    block_device: bool,
}

#[derive(Clone, Copy, Default)]
struct Trim {
    file: u32,
    len: u32,
    offset: u64,
}

// SAFETY: the iovecs are the only field that is not Send; they point into slots, which the engine owns a share of.
unsafe impl Send for Uring {}

impl Uring {
    fn new(setup: &Setup) -> Result<Uring, Error> {
        let options = &setup.job.ring;
        if options.hipri {
            can_be_polled(setup)?;
        }
        let depth = setup.depth.max(1);
        let ring_setup = ring::Setup {
            entries: depth.min(SUBMISSION_LIMIT),
            completion_entries: depth.max(2),
            single_issuer: true,
            sqpoll_idle_ms: options.sq_poll.then_some(SQPOLL_IDLE_MS),
            sqpoll_cpu: options.sq_poll_cpu.filter(|_| options.sq_poll),
            iopoll: options.hipri,
        };
        let ring = ring_setup.open().map_err(|unavailable| {
            let hint = format!("{}: use ioengine=libaio or psync", unavailable.reason);
            Error::system("cannot start io_uring for job", &setup.job.name, unavailable.source).hint(hint)
        })?;
        let slots = Arc::clone(&setup.slots);
        let how = How {
            fixed_buffers: options.fixed_buffers,
            slots_per_buffer: (REGISTERED_BYTES / slots.stride()).max(1) as u32,
            register_files: options.register_files,
            vectored: !options.fixed_buffers && !options.nonvectored.unwrap_or_else(|| has_read(&ring)),
            sqpoll: options.sq_poll,
            iopoll: options.hipri,
            force_async: options.force_async,
            flags: Flags::of(setup.job).without_hipri(),
        };
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let engine = Uring {
            ring,
            queued: 0,
            in_flight: 0,
            depth,
            how,
            since_forced: 0,
            files: vec![File { fd: -1, block_device: false }; setup.files as usize],
            vectors: if how.vectored { vec![none; slots.count() as usize] } else { Vec::new() },
            trims: Vec::new(),
            discards: true,
            slots,
        };
        if how.fixed_buffers {
            engine.register_buffers(setup.job)?;
        }
        if how.register_files {
            engine.register_files(setup)?;
        }
        Ok(engine)
    }

    /// Registers all slots as few large buffers: one look-up and a few cache lines serve every op.
    fn register_buffers(&self, job: &Job) -> Result<(), Error> {
        let (count, step) = (self.slots.count(), self.how.slots_per_buffer);
        let buffers: Vec<libc::iovec> = (0..count)
            .step_by(step as usize)
            .map(|first| libc::iovec {
                iov_base: self.slots.pointer(first).cast(),
                iov_len: self.slots.stride() * step.min(count - first) as usize,
            })
            .collect();
        // SAFETY: the buffers are the slots' memory, which the engine's drop keeps alive until the ring is empty.
        let registered = unsafe { self.ring.submitter().register_buffers(&buffers) };
        registered.map_err(|error| {
            let hint = match error.raw_os_error() {
                Some(libc::ENOMEM) => {
                    "not enough locked memory: raise ulimit -l, lower iodepth or bs, or drop fixedbufs"
                }
                _ => "drop fixedbufs",
            };
            Error::system("cannot register buffers for job", &job.name, error).hint(hint)
        })
    }

    fn register_files(&self, setup: &Setup) -> Result<(), Error> {
        let submitter = self.ring.submitter();
        let registered = submitter
            .register_files_sparse(setup.files)
            .or_else(|_| submitter.register_files(&vec![-1; setup.files as usize])); // before 5.19
        registered.map_err(|error| {
            let hint = "raise ulimit -n, set openfiles=, or drop registerfiles";
            Error::system("cannot register files for job", &setup.job.name, error).hint(hint)
        })
    }

    /// The entry of a request, without its user data.
    #[inline]
    fn transfer(&mut self, request: &Request, write: bool) -> squeue::Entry {
        let (slot, len) = (request.slot.index(), request.len);
        let memory = self.slots.place(request);
        if self.how.register_files {
            self.entry(types::Fixed(request.file), memory, slot, len, request, write)
        } else {
            let fd = self.files[request.file as usize].fd;
            self.entry(types::Fd(fd), memory, slot, len, request, write)
        }
    }

    #[inline(always)]
    fn entry<F>(&mut self, fd: F, memory: *mut u8, slot: u32, len: u32, request: &Request, write: bool) -> squeue::Entry
    where
        F: Target,
    {
        let (offset, way) = (request.offset, Way { rwf: self.how.flags.rwf, priority: request.priority });
        if self.how.fixed_buffers {
            let buffer = if slot < self.how.slots_per_buffer { 0 } else { (slot / self.how.slots_per_buffer) as u16 };
            return fd.fixed(memory, len, buffer, offset, way, write);
        }
        if self.how.vectored {
            let vector = &mut self.vectors[slot as usize];
            *vector = libc::iovec { iov_base: memory.cast(), iov_len: len as usize };
            return fd.vectored(vector, offset, way, write);
        }
        fd.plain(memory, len, offset, way, write)
    }

    /// The entry of a trim or sync; None where only a system call that blocks can make it.
    fn other(&mut self, request: &Request) -> Option<squeue::Entry> {
        // A ring that polls takes only ops that can be polled for.
        if self.how.iopoll {
            return None;
        }
        let file = self.files[request.file as usize];
        let slot = u64::from(request.slot.index());
        let entry = match request.kind {
            OpKind::Io(Direction::Trim) => {
                if file.block_device && !self.discards {
                    return None;
                }
                if self.trims.is_empty() {
                    self.trims.resize(self.slots.count() as usize, Trim::default());
                }
                let trim = Trim { file: request.file, len: request.len, offset: request.offset };
                self.trims[request.slot.index() as usize] = trim;
                if file.block_device {
                    let mut length = [0; 16];
                    length[..8].copy_from_slice(&u64::from(request.len).to_ne_bytes());
                    let command = opcode::UringCmd16::new(types::Fd(file.fd), DISCARD);
                    return Some(
                        command.cmd(length).addr(Some(request.offset)).build().user_data(slot | DISCARDED << 32),
                    );
                }
                let punch = opcode::Fallocate::new(types::Fd(file.fd), u64::from(request.len));
                return Some(punch.offset(request.offset).mode(PUNCH).build().user_data(slot | PUNCHED << 32));
            }
            OpKind::Sync => opcode::Fsync::new(types::Fd(file.fd)).build(),
            OpKind::DataSync => opcode::Fsync::new(types::Fd(file.fd)).flags(types::FsyncFlags::DATASYNC).build(),
            OpKind::SyncRange => opcode::SyncFileRange::new(types::Fd(file.fd), request.len)
                .offset(request.offset)
                .flags(self.how.flags.sync_range)
                .build(),
            OpKind::Io(_) => unreachable!("transfers are made by transfer()"),
        };
        Some(entry.user_data(slot | PLAIN << 32))
    }

    /// Takes completions from shared memory, `max` at most, and returns how many.
    #[inline]
    fn take(&mut self, max: usize, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        let mut queue = self.ring.completion();
        while done.len() - before < max {
            let Some(entry) = queue.next() else { break };
            let (data, result) = (entry.user_data(), i64::from(entry.result()));
            let index = data as u32;
            let result = if data >> 32 == PLAIN {
                result
            } else {
                trimmed(data >> 32, result, &self.trims[index as usize], &self.files, &mut self.discards)
            };
            // The kernel has posted the one completion of this slot's request: nobody else has its token.
            done.push(Completion { slot: self.slots.reclaim(index), result });
        }
        drop(queue);
        let taken = done.len() - before;
        self.in_flight -= taken as u32;
        taken
    }

    /// Submits `self.queued` entries and waits for `wait` completions. Returns how many entries the kernel took.
    fn enter(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
        let mut flags = if wait > 0 || (self.how.iopoll && self.in_flight > 0) { ENTER_GETEVENTS } else { 0 };
        let submit = self.queued;
        if self.how.sqpoll {
            self.queued = 0;
            if self.ring.submission().need_wakeup() {
                flags |= ENTER_SQ_WAKEUP;
            }
            if flags != 0 {
                // The polling thread takes entries without being asked: the returned number means nothing.
                passing(self.ring.enter(submit, wait, flags, timeout_ns))?;
            }
            return Ok(submit);
        }
        let taken = passing(self.ring.enter(submit, wait, flags, timeout_ns))?.min(submit);
        self.queued -= taken;
        self.in_flight += taken;
        Ok(taken)
    }

    fn reap_until(
        &mut self,
        min: usize,
        max: usize,
        deadline_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<()> {
        let min = min.min(max).min(self.in_flight as usize);
        let mut taken = self.take(max, done);
        if taken >= min {
            // Polling: completions may wait for this thread to run them, or for the device to be asked.
            let idle = taken == 0 && self.in_flight > 0;
            if idle && (self.how.iopoll || self.ring.submission().taskrun()) {
                passing(self.ring.enter(0, 0, ENTER_GETEVENTS, None))?;
                self.take(max, done);
            }
            return Ok(());
        }
        loop {
            let remaining = deadline_ns.map(|deadline| deadline.saturating_sub(monotonic_ns()));
            let mut flags = ENTER_GETEVENTS;
            if self.how.sqpoll && self.ring.submission().need_wakeup() {
                flags |= ENTER_SQ_WAKEUP;
            }
            let waited = self.ring.enter(0, (min - taken) as u32, flags, remaining);
            taken += self.take(max - taken, done);
            match waited {
                _ if taken >= min || remaining == Some(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return passing(Err(error)).map(drop), // interrupted, or late: return what is there
            }
        }
    }
}

/// Refuses a job whose disks have no queues for polling: the kernel would retry polled requests on them forever.
fn can_be_polled(setup: &Setup) -> Result<(), Error> {
    let names = setup.names.iter().filter(|name| !name.is_empty()); // a trial has no names yet
    let disks = names.flat_map(|name| sys::disk::below(std::path::Path::new(name)));
    let known: Vec<bool> = disks.filter_map(|disk| sys::disk::has_poll_queues(&disk)).collect();
    if known.is_empty() || known.contains(&true) {
        return Ok(());
    }
    let unsupported = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let hint = "its disk has no queues for polling (/sys/block/NAME/queue/io_poll is 0): leave hipri out";
    Err(Error::system("cannot poll for completions, hipri=1,", format!("in job {}", setup.job.name), unsupported)
        .hint(hint))
}

/// Turns the errors of io_uring_enter that only mean "not now" into 0: nothing was submitted.
#[inline]
fn passing(entered: io::Result<u32>) -> io::Result<u32> {
    match entered {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ETIME)) => {
            Ok(0)
        }
        other => other,
    }
}

/// The result of a trim: its length, which the kernel does not say. If the kernel or the device lacks the ring's
/// discard, this function repeats the trim as an ioctl.
#[cold]
fn trimmed(how: u64, result: i64, trim: &Trim, files: &[File], discards: &mut bool) -> i64 {
    let unknown = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOTTY, libc::ENOSYS].map(|errno| -i64::from(errno));
    if how == DISCARDED && unknown.contains(&result) {
        let fd = files[trim.file as usize].fd;
        let again = blocking::carry_out(fd, OpKind::Io(Direction::Trim), trim.offset, trim.len, Flags::default());
        // If the ioctl succeeds where the command did not, this kernel has no command.
        *discards &= again < 0;
        return again;
    }
    if result == 0 { i64::from(trim.len) } else { result }
}

impl Engine for Uring {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.files[file as usize] = File { fd, block_device: is_block_device(fd) };
        if self.how.register_files {
            self.ring.submitter().register_files_update(file, &[fd])?;
        }
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = File { fd: -1, block_device: false };
        if self.how.register_files {
            // Clearing an entry of the table cannot fail; if it did, the next open() would overwrite the entry.
            let _ = self.ring.submitter().register_files_update(file, &[-1]);
        }
    }

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        let waiting = if self.how.sqpoll { 0 } else { self.queued };
        if waiting + self.in_flight >= self.depth {
            return Queued::Full(request);
        }
        let mut entry = match request.kind {
            OpKind::Io(direction @ (Direction::Read | Direction::Write)) => {
                let entry = self.transfer(&request, direction == Direction::Write);
                entry.user_data(u64::from(request.slot.index()) | PLAIN << 32)
            }
            kind => match self.other(&request) {
                Some(entry) => entry,
                None => {
                    let fd = self.files[request.file as usize].fd;
                    let result = blocking::carry_out(fd, kind, request.offset, request.len, self.how.flags);
                    return Queued::Done(Completion { slot: request.slot, result });
                }
            },
        };
        if self.how.force_async > 0 {
            self.since_forced += 1;
            if self.since_forced >= self.how.force_async {
                self.since_forced = 0;
                entry = entry.flags(squeue::Flags::ASYNC);
            }
        }
        // SAFETY: the entry points into the slot (and the slot's iovec), which stay where they are until the
        // completion: the engine holds the slots, and drop waits for the kernel.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Queued::Full(request);
        }
        self.queued += 1;
        if self.how.sqpoll {
            self.in_flight += 1; // the polling thread may have taken it already
        }
        Queued::Later
    }

    #[inline]
    fn submit(&mut self) -> io::Result<usize> {
        if self.queued == 0 {
            return Ok(0);
        }
        self.enter(0, None).map(|taken| taken as usize)
    }

    #[inline]
    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        self.reap_until(min, max, timeout_ns.map(|timeout| monotonic_ns().saturating_add(timeout)), done)
    }

    fn submit_and_reap(
        &mut self,
        min: usize,
        max: usize,
        timeout_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let deadline = timeout_ns.map(|timeout| monotonic_ns().saturating_add(timeout));
        let all = if self.how.sqpoll { self.in_flight } else { self.queued + self.in_flight };
        let ready = self.ring.completion().len();
        let wait = min.min(max).min(all as usize).saturating_sub(ready);
        let submitted = if self.queued > 0 { self.enter(wait as u32, timeout_ns)? } else { 0 };
        self.reap_until(min, max, deadline, done)?;
        Ok(submitted as usize)
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        // Requests on pipes and the like may never complete: they are cancelled. Requests that the device has cannot be
        // cancelled, and end by themselves. The loop cancels again and again: a polling thread may not have seen an
        // entry yet at the first attempt.
        const PATIENCE_NS: u64 = 10_000_000;
        let patience = types::Timespec::new().nsec(PATIENCE_NS as u32);
        let mut done = Vec::new();
        while self.in_flight > 0 {
            let _ = self.ring.submitter().register_sync_cancel(Some(patience), types::CancelBuilder::any());
            let deadline = monotonic_ns() + PATIENCE_NS;
            let waited = self.reap_until(self.in_flight as usize, usize::MAX, Some(deadline), &mut done);
            done.clear();
            if waited.is_err() {
                // The kernel may still write into the slots: they must outlive this process's use of the ring.
                std::mem::forget(Arc::clone(&self.slots));
                std::mem::forget(std::mem::take(&mut self.vectors));
                return;
            }
        }
    }
}

/// The flags RWF_* and the I/O priority of an entry.
#[derive(Clone, Copy)]
struct Way {
    rwf: i32,
    priority: u16,
}

/// A descriptor as entries take it: plain, or a number of a registered file.
trait Target: Sized {
    fn fixed(self, memory: *mut u8, len: u32, buffer: u16, offset: u64, way: Way, write: bool) -> squeue::Entry;
    fn vectored(self, vector: *const libc::iovec, offset: u64, way: Way, write: bool) -> squeue::Entry;
    fn plain(self, memory: *mut u8, len: u32, offset: u64, way: Way, write: bool) -> squeue::Entry;
}

macro_rules! target {
    ($target:ty) => {
        impl Target for $target {
            #[inline(always)]
            fn fixed(
                self,
                memory: *mut u8,
                len: u32,
                buffer: u16,
                offset: u64,
                way: Way,
                write: bool,
            ) -> squeue::Entry {
                if write {
                    opcode::WriteFixed::new(self, memory, len, buffer)
                        .offset(offset)
                        .rw_flags(way.rwf)
                        .ioprio(way.priority)
                        .build()
                } else {
                    opcode::ReadFixed::new(self, memory, len, buffer)
                        .offset(offset)
                        .rw_flags(way.rwf)
                        .ioprio(way.priority)
                        .build()
                }
            }

            fn vectored(self, vector: *const libc::iovec, offset: u64, way: Way, write: bool) -> squeue::Entry {
                if write {
                    opcode::Writev::new(self, vector, 1).offset(offset).rw_flags(way.rwf).ioprio(way.priority).build()
                } else {
                    opcode::Readv::new(self, vector, 1).offset(offset).rw_flags(way.rwf).ioprio(way.priority).build()
                }
            }

            #[inline(always)]
            fn plain(self, memory: *mut u8, len: u32, offset: u64, way: Way, write: bool) -> squeue::Entry {
                if write {
                    opcode::Write::new(self, memory, len).offset(offset).rw_flags(way.rwf).ioprio(way.priority).build()
                } else {
                    opcode::Read::new(self, memory, len).offset(offset).rw_flags(way.rwf).ioprio(way.priority).build()
                }
            }
        }
    };
}

target!(types::Fd);
target!(types::Fixed);

/// True if the kernel has the opcodes without vectors (Linux 5.6, which also brought the probe).
fn has_read(ring: &Ring) -> bool {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Read::CODE)
}

fn is_block_device(fd: RawFd) -> bool {
    let mut stat = std::mem::MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: the kernel writes one stat64, which stat has room for; a bad descriptor is an error.
    let status = unsafe { libc::fstat64(fd, stat.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid stat64, whether or not the kernel filled it in.
    let stat = unsafe { stat.assume_init() };
    status == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFBLK
}
