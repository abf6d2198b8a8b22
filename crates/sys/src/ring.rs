//! The io_uring ring as every part of the project sets it up: the newest setup flags that the
//! kernel takes, and one clear reason where it takes none.
//!
//! Entries and queues are those of the `io-uring` crate, re-exported here.

use std::io;
use std::os::fd::AsRawFd;

pub use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

/// The settings of a new ring (io_uring_setup(2)).
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Entries of the submission queue; rounded up to a power of two by the kernel.
    pub entries: u32,
    /// Entries of the completion queue; 0 leaves the kernel's choice (twice `entries`).
    pub completion_entries: u32,
    /// Only the thread that builds the ring submits and reaps: lets the kernel defer completion work
    /// to the reaping call (`SINGLE_ISSUER | DEFER_TASKRUN`).
    pub single_issuer: bool,
    /// A kernel thread polls the submission queue, pausing after this many milliseconds (`SQPOLL`).
    pub sqpoll_idle_ms: Option<u32>,
    /// The processor of that kernel thread.
    pub sqpoll_cpu: Option<u32>,
    /// Completions are polled for on the device (`IOPOLL`; fio's `hipri`).
    pub iopoll: bool,
}

/// The reason why this system gives no ring.
#[derive(Debug, thiserror::Error)]
#[error("io_uring is not available: {reason}")]
pub struct Unavailable {
    /// The reason and what to do about it.
    pub reason: &'static str,
    /// The error of io_uring_setup(2).
    #[source]
    pub source: io::Error,
}

impl Setup {
    /// A ring with the given submission entries, shared by threads or not, interrupt-driven.
    pub fn new(entries: u32) -> Setup {
        Setup { entries, ..Setup::default() }
    }

    /// The ring, with every cheap flag that this kernel knows.
    ///
    /// # Errors
    /// [`Unavailable`] when the kernel refuses the plainest form too: no io_uring (ENOSYS), forbidden by
    /// `kernel.io_uring_disabled` or a seccomp filter (EPERM), out of locked memory (ENOMEM), bad sizes (EINVAL).
    pub fn build(&self) -> Result<IoUring, Unavailable> {
        self.build_of()
    }

    /// The ring, with entries of the given sizes.
    fn build_of<S: squeue::EntryMarker, C: cqueue::EntryMarker>(&self) -> Result<IoUring<S, C>, Unavailable> {
        // From newest to plainest: EINVAL means that this kernel does not know a flag of the form.
        let mut refusal = None;
        for form in [Form::Newest, Form::Deferred, Form::Cooperative, Form::Plain] {
            match self.builder::<S, C>(form).build(self.entries) {
                Ok(ring) => return Ok(ring),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(refusal.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)).into())
    }

    fn builder<S: squeue::EntryMarker, C: cqueue::EntryMarker>(&self, form: Form) -> io_uring::Builder<S, C> {
        let mut builder = IoUring::<S, C>::builder();
        builder.dontfork();
        if self.completion_entries > 0 {
            builder.setup_cqsize(self.completion_entries).setup_clamp();
        }
        if self.iopoll {
            builder.setup_iopoll();
        }
        if let Some(idle) = self.sqpoll_idle_ms {
            builder.setup_sqpoll(idle);
            if let Some(cpu) = self.sqpoll_cpu {
                builder.setup_sqpoll_cpu(cpu);
            }
        }
        if form <= Form::Newest {
            builder.setup_no_sqarray(); // 6.6
        }
        if form <= Form::Deferred && self.single_issuer && self.sqpoll_idle_ms.is_none() {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(); // 6.1
        }
        if form == Form::Cooperative && self.sqpoll_idle_ms.is_none() {
            builder.setup_coop_taskrun(); // 5.19
        }
        builder
    }
}

/// A ring that the thread which made it drives: enters the kernel by the descriptor's registered number, which saves
/// a look-up and a reference count per call (IORING_REGISTER_RING_FDS, Linux 5.18). `S` and `C` are the entries of its
/// two queues: large ones for the commands of devices (IORING_SETUP_SQE128, IORING_SETUP_CQE32, Linux 5.19).
pub struct Ring<S: squeue::EntryMarker = squeue::Entry, C: cqueue::EntryMarker = cqueue::Entry> {
    ring: IoUring<S, C>,
    fd: i32,
    flags: u32,
    owner: i32,
}

impl Setup {
    /// The ring as [`Setup::build`] makes it, for one thread.
    ///
    /// # Errors
    /// As [`Setup::build`].
    pub fn open<S: squeue::EntryMarker, C: cqueue::EntryMarker>(&self) -> Result<Ring<S, C>, Unavailable> {
        let ring = self.build_of::<S, C>()?;
        let mut update = RingUpdate { offset: u32::MAX, resv: 0, data: ring.as_raw_fd() as u64 };
        let registered = register(ring.as_raw_fd(), REGISTER_RING_FDS, &mut update);
        let (fd, flags) =
            if registered { (update.offset as i32, ENTER_REGISTERED_RING) } else { (ring.as_raw_fd(), 0) };
        Ok(Ring { ring, fd, flags, owner: thread_id() })
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Ring<S, C> {
    /// Submits up to `submit` entries and, with [`ENTER_GETEVENTS`], waits until `min_complete` completions stand in
    /// the queue or `timeout_ns` is over; how many entries were consumed. ETIME when the time is over, EINTR when a
    /// signal came, each only if nothing was submitted (io_uring_enter(2)).
    ///
    /// # Errors
    /// EAGAIN, EBUSY: reap first. EEXIST: called from a thread that did not make the ring.
    pub fn enter(&self, submit: u32, min_complete: u32, flags: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
        let flags = flags | self.flags;
        let Some(timeout_ns) = timeout_ns.filter(|_| min_complete > 0) else {
            // SAFETY: no argument structure is passed.
            let returned = unsafe {
                libc::syscall(
                    libc::SYS_io_uring_enter,
                    self.fd,
                    submit,
                    min_complete,
                    flags,
                    std::ptr::null::<u8>(),
                    0_usize,
                )
            };
            return consumed(returned);
        };
        if !self.ring.params().is_feature_ext_arg() {
            return self.enter_then_poll(submit, flags, timeout_ns); // before 5.11
        }
        let seconds = timeout_ns / 1_000_000_000;
        let time = [seconds as i64, (timeout_ns - seconds * 1_000_000_000) as i64];
        // struct io_uring_getevents_arg: sigmask, its size and padding, pointer to a __kernel_timespec.
        let argument = [0_u64, 0, time.as_ptr() as u64];
        // SAFETY: argument is a whole io_uring_getevents_arg, and it and the time outlive the call.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd,
                submit,
                min_complete,
                flags | ENTER_EXT_ARG,
                argument.as_ptr(),
                std::mem::size_of_val(&argument),
            )
        };
        consumed(returned)
    }

    fn enter_then_poll(&self, submit: u32, flags: u32, timeout_ns: u64) -> io::Result<u32> {
        // SAFETY: no argument structure is passed.
        let returned = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, self.fd, submit, 0, flags, std::ptr::null::<u8>(), 0_usize)
        };
        let submitted = consumed(returned)?;
        let mut poll = libc::pollfd { fd: self.ring.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: one pollfd, a valid time, no signal mask.
        let ready = unsafe { libc::ppoll(&mut poll, 1, &time, std::ptr::null()) };
        match ready {
            _ if submitted > 0 => Ok(submitted),
            0 => Err(io::Error::from_raw_os_error(libc::ETIME)),
            1.. => Ok(0),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> std::ops::Deref for Ring<S, C> {
    type Target = IoUring<S, C>;
    #[inline(always)]
    fn deref(&self) -> &IoUring<S, C> {
        &self.ring
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> std::ops::DerefMut for Ring<S, C> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut IoUring<S, C> {
        &mut self.ring
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Drop for Ring<S, C> {
    fn drop(&mut self) {
        // The number stands in a table of 16 of the thread that registered it; elsewhere it would name another ring.
        if self.flags != 0 && self.owner == thread_id() {
            let mut update = RingUpdate { offset: self.fd as u32, resv: 0, data: 0 };
            register(self.ring.as_raw_fd(), UNREGISTER_RING_FDS, &mut update);
        }
    }
}

/// A read or a write, as an entry of the submission queue (struct io_uring_sqe of linux/io_uring.h).
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// `CODE` of [`opcode::Read`], [`opcode::Write`], or one of their forms with vectors or registered buffers.
    pub opcode: u8,
    /// True if `file` is the number of a registered file.
    pub has_registered_file: bool,
    /// The descriptor of the file.
    pub file: i32,
    /// The I/O priority; 0: that of the thread.
    pub priority: u16,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The address of the data, or of the vector.
    pub address: u64,
    /// Bytes, or the number of vectors.
    pub len: u32,
    /// The flags RWF_*.
    pub rwf: i32,
    /// The number that the completion carries.
    pub user_data: u64,
    /// The number of the registered buffer; 0 without one.
    pub buffer: u16,
    /// True if a worker of the kernel carries the transfer out.
    pub to_worker: bool,
}

impl Transfer {
    /// The entry, put together in whole words. The builders of the crate store it field by field and then copy it: the
    /// copy waits for the narrow stores, a third of the time that an engine needs for an op.
    #[inline(always)]
    pub fn entry(self) -> squeue::Entry {
        const { assert!(cfg!(target_endian = "little")) };
        const FIXED_FILE: u64 = 1 << 8;
        const ASYNC: u64 = 1 << 12;
        let flags = if self.has_registered_file { FIXED_FILE } else { 0 } | if self.to_worker { ASYNC } else { 0 };
        let low = |number: i32| u64::from(number as u32);
        let words: [u64; 8] = [
            u64::from(self.opcode) | flags | u64::from(self.priority) << 16 | low(self.file) << 32,
            self.offset,
            self.address,
            u64::from(self.len) | low(self.rwf) << 32,
            self.user_data,
            u64::from(self.buffer),
            0,
            0,
        ];
        // SAFETY: Entry is one io_uring_sqe (repr(C)), a structure of 64 bytes of numbers.
        unsafe { std::mem::transmute::<[u64; 8], squeue::Entry>(words) }
    }
}

/// Runs deferred work and waits for completions (IORING_ENTER_GETEVENTS).
pub const ENTER_GETEVENTS: u32 = 1;
/// Wakes the kernel thread of a polled submission queue (IORING_ENTER_SQ_WAKEUP).
pub const ENTER_SQ_WAKEUP: u32 = 1 << 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

/// struct io_uring_rsrc_update
#[repr(C)]
struct RingUpdate {
    offset: u32,
    resv: u32,
    data: u64,
}

fn register(fd: i32, opcode: u32, update: &mut RingUpdate) -> bool {
    // SAFETY: both opcodes read and write one io_uring_rsrc_update.
    unsafe { libc::syscall(libc::SYS_io_uring_register, fd, opcode, std::ptr::from_mut(update), 1) == 1 }
}

fn thread_id() -> i32 {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

fn consumed(returned: libc::c_long) -> io::Result<u32> {
    u32::try_from(returned).map_err(|_| io::Error::last_os_error())
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Form {
    Newest,
    Deferred,
    Cooperative,
    Plain,
}

impl From<io::Error> for Unavailable {
    fn from(source: io::Error) -> Self {
        let reason = match source.raw_os_error() {
            Some(libc::ENOSYS) => "this kernel has no io_uring (Linux 5.1 or newer is needed)",
            Some(libc::EPERM | libc::EACCES) => {
                "it is forbidden here (sysctl kernel.io_uring_disabled, or a seccomp filter of the container)"
            }
            Some(libc::ENOMEM) => "not enough locked memory (raise ulimit -l) for a ring of this size",
            Some(libc::EMFILE | libc::ENFILE) => "no file descriptor left (raise ulimit -n)",
            Some(libc::EINVAL) => "the kernel refused the ring's parameters (queue too deep?)",
            _ => "io_uring_setup failed",
        };
        Unavailable { reason, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_what_the_builders_make() {
        let bytes = |entry: squeue::Entry| {
            // SAFETY: an entry is 64 bytes of numbers.
            unsafe { std::mem::transmute::<squeue::Entry, [u8; 64]>(entry) }
        };
        let address = 0x7123_4567_89ab_cdef_u64;
        let plain = Transfer {
            opcode: opcode::Read::CODE,
            has_registered_file: false,
            file: 7,
            priority: 0x4003,
            offset: 1 << 45 | 4096,
            address,
            len: 131_072,
            rwf: libc::RWF_HIPRI,
            user_data: 99 | 1 << 32,
            buffer: 0,
            to_worker: false,
        };
        let (memory, vector) = (address as *mut u8, address as *const libc::iovec);
        let Transfer { priority, offset, len, rwf, user_data, .. } = plain;
        let read = opcode::Read::new(types::Fd(7), memory, len).offset(offset).rw_flags(rwf).ioprio(priority).build();
        assert_eq!(bytes(plain.entry()), bytes(read.user_data(user_data)));
        let fixed = Transfer {
            opcode: opcode::WriteFixed::CODE,
            has_registered_file: true,
            buffer: 0x1234,
            to_worker: true,
            rwf: libc::RWF_DSYNC,
            ..plain
        };
        let write = opcode::WriteFixed::new(types::Fixed(7), memory, len, 0x1234).offset(offset).rw_flags(fixed.rwf);
        assert_eq!(
            bytes(fixed.entry()),
            bytes(write.ioprio(priority).build().user_data(user_data).flags(squeue::Flags::ASYNC))
        );
        let vectored = Transfer { opcode: opcode::Writev::CODE, len: 1, ..plain };
        let write = opcode::Writev::new(types::Fd(7), vector, 1).offset(offset).rw_flags(rwf).ioprio(priority);
        assert_eq!(bytes(vectored.entry()), bytes(write.build().user_data(user_data)));
    }

    #[test]
    fn a_nop_goes_round() {
        let setup = Setup { single_issuer: true, ..Setup::new(8) };
        let mut ring = match setup.build() {
            Ok(ring) => ring,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        // SAFETY: a no-op refers to no memory.
        unsafe { ring.submission().push(&opcode::Nop::new().build().user_data(42)) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.completion().next().map(|entry| entry.user_data()), Some(42));
    }

    #[test]
    fn a_ring_of_one_thread_waits_no_longer_than_it_is_told() {
        let setup = Setup { single_issuer: true, ..Setup::new(8) };
        // More rings than a thread has numbers for: closed rings have given their numbers back.
        for _ in 0..40 {
            let mut ring: Ring = match setup.open() {
                Ok(ring) => ring,
                Err(error) => return eprintln!("skipped: {error}"),
            };
            let late = ring.enter(0, 1, ENTER_GETEVENTS, Some(1_000)).unwrap_err();
            assert_eq!(late.raw_os_error(), Some(libc::ETIME));
            // SAFETY: a no-op refers to no memory.
            unsafe { ring.submission().push(&opcode::Nop::new().build().user_data(7)) }.unwrap();
            assert_eq!(ring.enter(1, 1, ENTER_GETEVENTS, Some(u64::MAX / 2)).unwrap(), 1);
            assert_eq!(ring.completion().next().map(|entry| entry.user_data()), Some(7));
        }
    }

    #[test]
    fn too_deep_is_refused_with_a_reason() {
        let error = Setup::new(1 << 30).build().map(drop).unwrap_err();
        assert!(error.to_string().contains("queue too deep"), "{error}");
    }
}
