//! Linux native asynchronous I/O by its system calls (io_submit(2)), without the C library of the same name.
//!
//! It is asynchronous for O_DIRECT only: the kernel carries buffered ops out within io_submit.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use job::workload::OpKind;
use measure::Direction;
use pace::Poll;
use sys::clock::monotonic_ns;

use super::blocking::{self, Flags, last_errno};
use super::descriptors::Descriptors;
use super::looking::{Looked, Looking, poll_of};
use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Libaio::new(setup)?))
}

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;

/// `struct iocb` of linux/aio_abi.h, whose second and third field change places with the byte order.
/// IOCB_FLAG_IOPRIO: `reqprio` is the priority of the request (Linux 4.18).
const WITH_PRIORITY: u32 = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    reqprio: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

/// `struct aio_ring`, which the context's address points to (fs/aio.c; stable, libaio reads it too).
#[repr(C)]
struct RingHeader {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_bytes: u32,
}

const RING_MAGIC: u32 = 0xa10a_10a1;

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32 && size_of::<RingHeader>() == 32);

struct Libaio {
    context: Context,
    /// The request of each slot, by the slot's number: io_submit passes their addresses to the kernel.
    iocbs: Box<[Iocb]>,
    /// Slots that wait for submission, oldest first.
    queued: Vec<*mut Iocb>,
    in_flight: usize,
    depth: usize,
    /// Ops that io_submit refused: the next reaping call returns them like all others.
    refused: Vec<Completion>,
    events: Box<[Event]>,
    fds: Descriptors,
    flags: Flags,
    reap_in_user_space: bool,
    /// Decides whether a wait for one completion looks for it or sleeps.
    looking: Looking,
    slots: Arc<Slots>,
}

// SAFETY: the pointers in `queued` are into `iocbs`, a box whose content keeps its address when the engine moves.
unsafe impl Send for Libaio {}

/// An aio_context_t. Destroying it waits for everything in flight (io_destroy(2), since Linux 3.16).
struct Context(usize);

impl Context {
    fn new(depth: u32) -> io::Result<Context> {
        let mut context = 0_usize;
        // SAFETY: the kernel writes one word, the context's address, to `context`, which is zero as io_setup requires.
        let status = unsafe { libc::syscall(libc::SYS_io_setup, depth, &mut context) };
        if status == 0 { Ok(Context(context)) } else { Err(io::Error::last_os_error()) }
    }

    /// The ring that the kernel shares; None if it is not of the known form.
    #[inline]
    fn ring(&self) -> Option<&RingHeader> {
        // SAFETY: a context's address is that of its ring, mapped as long as the context lives; the fields that the
        // kernel changes are atomic.
        let ring = unsafe { &*(self.0 as *const RingHeader) };
        (ring.magic == RING_MAGIC && ring.incompatible == 0).then_some(ring)
    }

    /// True if the ring is known to hold no event.
    fn is_empty(&self) -> bool {
        self.ring().is_some_and(|ring| ring.head.load(Ordering::Relaxed) == ring.tail.load(Ordering::Acquire))
    }

    /// The oldest event, taken without a system call; None if there is none (or no ring to look into).
    #[inline]
    fn pop(&mut self) -> Option<Event> {
        let ring = self.ring()?;
        let head = ring.head.load(Ordering::Relaxed);
        // Acquire: the kernel writes an event before it moves the tail.
        if head == ring.tail.load(Ordering::Acquire) {
            return None;
        }
        let events = (self.0 + ring.header_bytes as usize) as *const Event;
        // SAFETY: the kernel and this function keep head < ring.events, so the place lies within the ring.
        let place = unsafe { events.add(head as usize) };
        // SAFETY: the event was written before the tail was moved past it.
        let event = unsafe { place.read() };
        let next = if head + 1 == ring.events { 0 } else { head + 1 };
        // Release: the event is read before the kernel may reuse its place.
        ring.head.store(next, Ordering::Release);
        Some(event)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: only this drop destroys the context. io_destroy waits for the ops in flight; `Libaio` drops its slots
        // and iocbs after its context, so that their memory is still there.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

impl Libaio {
    fn new(setup: &Setup) -> Result<Libaio, Error> {
        let depth = setup.depth.max(1);
        let context = Context::new(depth).map_err(|error| {
            let hint = match error.raw_os_error() {
                Some(libc::EAGAIN) => {
                    "too many events in total: raise sysctl fs.aio-max-nr, or lower iodepth or numjobs"
                }
                Some(libc::ENOSYS) => "this kernel has no asynchronous I/O: use ioengine=io_uring or psync",
                Some(libc::EINVAL | libc::ENOMEM) => "lower iodepth",
                _ => "",
            };
            Error::system("cannot start libaio for job", &setup.job.name, error).hint(hint)
        })?;
        Ok(Libaio {
            context,
            iocbs: vec![Iocb::default(); setup.slots.count() as usize].into_boxed_slice(),
            queued: Vec::with_capacity(depth as usize),
            in_flight: 0,
            depth: depth as usize,
            refused: Vec::new(),
            events: vec![Event::default(); depth as usize].into_boxed_slice(),
            fds: Descriptors::new(setup.files),
            flags: Flags::of(setup.job).without_hipri(),
            reap_in_user_space: setup.job.ring.userspace_reap,
            looking: Looking::new(poll_of(setup.job, Poll::Never)),
            slots: Arc::clone(&setup.slots),
        })
    }

    /// The op as the kernel takes it; None for ops that the kernel only does synchronously.
    #[inline]
    fn prepare(&self, request: &Request) -> Option<Iocb> {
        let slot = request.slot.index();
        let fd = self.fds.of(request.file) as u32;
        let mut iocb = Iocb { data: u64::from(slot), fd, ..Iocb::default() };
        match request.kind {
            OpKind::Io(direction @ (Direction::Read | Direction::Write)) => {
                iocb.opcode = if direction == Direction::Write { PWRITE } else { PREAD };
                iocb.buffer = self.slots.place(request) as u64;
                iocb.bytes = request.len.into();
                iocb.offset = request.offset as i64;
                iocb.rw_flags = self.flags.of_transfer(direction == Direction::Write);
                if request.priority != 0 {
                    (iocb.flags, iocb.reqprio) = (WITH_PRIORITY, request.priority as i16);
                }
            }
            OpKind::Sync => iocb.opcode = FSYNC,
            OpKind::DataSync => iocb.opcode = FDSYNC,
            OpKind::SyncRange | OpKind::Io(Direction::Trim) => return None,
        }
        Some(iocb)
    }

    /// Turns the oldest queued op, which io_submit refused, into a result.
    #[cold]
    fn refuse_first(&mut self, errno: i32) {
        let pointer = self.queued.remove(0);
        // SAFETY: queued pointers are into iocbs, and the kernel did not take this one.
        let iocb = unsafe { *pointer };
        let kind = match iocb.opcode {
            FSYNC => Some(OpKind::Sync),
            FDSYNC => Some(OpKind::DataSync),
            _ => None,
        };
        let result = match kind {
            // Before Linux 4.18 no file system had an asynchronous fsync.
            Some(kind) if errno == libc::EINVAL => blocking::carry_out(iocb.fd as RawFd, kind, 0, 0, self.flags),
            _ => -i64::from(errno),
        };
        self.refused.push(Completion { slot: self.slots.reclaim(iocb.data as u32), result });
    }

    fn take_refused(&mut self, max: usize, done: &mut Vec<Completion>) -> usize {
        let count = self.refused.len().min(max);
        done.extend(self.refused.drain(..count));
        count
    }

    /// Takes the events that are in the ring, without a system call, and returns how many.
    fn take_from_ring(&mut self, max: usize, done: &mut Vec<Completion>) -> usize {
        let mut taken = 0;
        while taken < max {
            let Some(event) = self.context.pop() else { break };
            done.push(Completion { slot: self.slots.reclaim(event.data as u32), result: event.result });
            taken += 1;
        }
        self.in_flight -= taken;
        taken
    }

    /// Calls io_getevents(2) and returns how many events came; 0 when interrupted or late.
    fn wait(
        &mut self,
        min: usize,
        max: usize,
        timeout_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let time = timeout_ns.map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let max = max.min(self.events.len());
        // SAFETY: `events` has room for `max` events, which is at most its length; `time` is null or points to a
        // timespec that lives until the call returns.
        let returned = unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context.0, min.min(max), max, self.events.as_mut_ptr(), time)
        };
        let count = match usize::try_from(returned) {
            Ok(count) => count,
            Err(_) if last_errno() == libc::EINTR => 0,
            Err(_) => return Err(io::Error::last_os_error()),
        };
        for event in &self.events[..count] {
            // Each event is the one completion of its slot's op.
            done.push(Completion { slot: self.slots.reclaim(event.data as u32), result: event.result });
        }
        self.in_flight -= count;
        Ok(count)
    }
}

impl Engine for Libaio {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.fds.open(file, fd);
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.fds.close(file);
    }

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        if self.queued.len() + self.in_flight + self.refused.len() >= self.depth {
            return Queued::Full(request);
        }
        let Some(iocb) = self.prepare(&request) else {
            let fd = self.fds.of(request.file);
            let result = blocking::carry_out(fd, request.kind, request.offset, request.len, self.flags);
            return Queued::Done(Completion { slot: request.slot, result });
        };
        let place = &mut self.iocbs[request.slot.index() as usize];
        *place = iocb;
        self.queued.push(place);
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        let mut taken = 0;
        while !self.queued.is_empty() {
            // SAFETY: the pointers are to iocbs whose buffers stay until their events come: the engine holds the
            // slots, and io_destroy in the context's drop waits for all ops.
            let returned =
                unsafe { libc::syscall(libc::SYS_io_submit, self.context.0, self.queued.len(), self.queued.as_ptr()) };
            if let Ok(count) = usize::try_from(returned) {
                self.queued.drain(..count);
                self.in_flight += count;
                taken += count;
                if count == 0 {
                    break;
                }
                continue; // a partial submission: the next call returns the error of the first op that is left
            }
            match last_errno() {
                libc::EAGAIN | libc::EINTR => break,
                errno @ (libc::EFAULT | libc::ENOSYS) => return Err(io::Error::from_raw_os_error(errno)),
                errno => {
                    self.refuse_first(errno);
                    taken += 1;
                }
            }
        }
        Ok(taken)
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let min = min.min(max).min(self.in_flight + self.refused.len());
        let deadline = timeout_ns.map(|timeout| monotonic_ns().saturating_add(timeout));
        let mut taken = self.take_refused(max, done);
        if self.reap_in_user_space {
            taken += self.take_from_ring(max - taken, done);
        }
        if taken > 0 {
            self.looking.found();
        }
        if taken >= min && (taken == max || self.in_flight == 0 || self.context.is_empty()) {
            return Ok(());
        }
        loop {
            let mut wanted = min.saturating_sub(taken);
            match self.looking.look(wanted, deadline, || Ok::<_, io::Error>(!self.context.is_empty()))? {
                Looked::Found => wanted = wanted.min(1),
                Looked::Sleep => {}
                Looked::Late => return Ok(()),
            }
            let remaining = match deadline {
                _ if taken >= min => Some(0), // only events that are there already
                Some(deadline) => Some(deadline.saturating_sub(monotonic_ns())),
                None => None,
            };
            let came = self.wait(wanted, max - taken, remaining, done)?;
            if came > 0 {
                self.looking.found();
            }
            taken += came;
            // A wait that ends short was interrupted or is late.
            if taken >= min || came == 0 || remaining == Some(0) {
                return Ok(());
            }
        }
    }
}
