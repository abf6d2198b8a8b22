//! The structures that liburing's callers and the kernel share (liburing.h, linux/io_uring.h), as far as the library
//! reads them.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// `struct io_uring_sq` of liburing 2.0 and later, as far as it has stayed the same.
#[repr(C)]
pub struct SubmissionQueue {
    pub head: *const AtomicU32,
    pub tail: *const AtomicU32,
    pub mask: *const AtomicU32,
    pub entries: *const AtomicU32,
    pub flags: *const AtomicU32,
    pub dropped: *const AtomicU32,
    pub array: *mut c_uint,
    pub requests: *mut Request,
    /// The end of the entries that have been submitted.
    pub own_head: c_uint,
    /// The end of the entries that have been written.
    pub own_tail: c_uint,
    pub bytes: usize,
    pub start: *mut c_void,
    pub rest: [c_uint; 4],
}

impl SubmissionQueue {
    /// The entries that have been written and not submitted, in a ring with these flags (IORING_SETUP_*).
    pub fn written(&self, flags: c_uint) -> impl Iterator<Item = *mut Request> {
        // SAFETY: the program keeps the ring mapped until io_uring_queue_exit, which the hook sees first.
        let mask = unsafe { (*self.mask).load(Relaxed) };
        let stride = if flags & setup::SQE128 != 0 { 2 } else { 1 };
        let at = move |index: u32| (self.own_head.wrapping_add(index) & mask) as usize * stride;
        (0..self.own_tail.wrapping_sub(self.own_head)).map(move |index| self.requests.wrapping_add(at(index)))
    }
}

/// `struct io_uring_cq`.
#[repr(C)]
pub struct CompletionQueue {
    pub head: *const AtomicU32,
    pub tail: *const AtomicU32,
    pub mask: *const AtomicU32,
    pub entries: *const AtomicU32,
    pub flags: *const AtomicU32,
    pub overflow: *const AtomicU32,
    pub completions: *const Completion,
    pub bytes: usize,
    pub start: *mut c_void,
    pub rest: [c_uint; 4],
}

/// `struct io_uring`, its beginning.
#[repr(C)]
pub struct Uring {
    pub submission: SubmissionQueue,
    pub completion: CompletionQueue,
    /// IORING_SETUP_*
    pub flags: c_uint,
    pub ring_fd: c_int,
}

/// `struct io_sqring_offsets` and `struct io_cqring_offsets`; the fields that only one of them has are numbered.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Offsets {
    pub head: u32,
    pub tail: u32,
    pub mask: u32,
    pub entries: u32,
    /// flags, overflow
    pub fifth: u32,
    /// dropped, cqes
    pub sixth: u32,
    /// array, flags
    pub seventh: u32,
    pub reserved: u32,
    pub address: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Parameters {
    pub submissions: u32,
    pub completions: u32,
    pub flags: u32,
    pub thread_cpu: u32,
    pub thread_idle: u32,
    pub features: u32,
    pub other: u32,
    pub reserved: [u32; 3],
    pub submission: Offsets,
    pub completion: Offsets,
}

const _: () = assert!(size_of::<Parameters>() == 120, "as linux/io_uring.h has it");

/// `struct io_uring_sqe` (linux/io_uring.h) of the usual 64 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    pub opcode: u8,
    pub flags: u8,
    pub priority: u16,
    pub file: c_int,
    pub offset: u64,
    pub address: u64,
    pub count: u32,
    pub rw_flags: u32,
    pub user_data: u64,
    pub buffer: u16,
    pub personality: u16,
    pub file_index: u32,
    pub rest: [u64; 2],
}

const _: () = assert!(size_of::<Request>() == 64, "as linux/io_uring.h has it");

impl Request {
    /// The first word of the entry, as it lies in memory: operation, flags, priority and file.
    pub fn first_word(&self) -> u64 {
        let ([a, b], [c, d, e, f]) = (self.priority.to_ne_bytes(), self.file.to_ne_bytes());
        u64::from_ne_bytes([self.opcode, self.flags, a, b, c, d, e, f])
    }
}

/// `struct io_uring_cqe` of the usual 16 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Completion {
    pub user_data: u64,
    pub result: i32,
    pub flags: u32,
}

/// IORING_OP_*.
pub mod opcode {
    pub const READV: u8 = 1;
    pub const WRITEV: u8 = 2;
    pub const READ_FIXED: u8 = 4;
    pub const WRITE_FIXED: u8 = 5;
    pub const READ: u8 = 22;
    pub const WRITE: u8 = 23;
    pub const READV_FIXED: u8 = 58;
    pub const WRITEV_FIXED: u8 = 59;
    pub const MSG_RING: u8 = 40;
    pub const FSYNC: u8 = 3;
    pub const CLOSE: u8 = 19;
    pub const FALLOCATE: u8 = 17;
    pub const FTRUNCATE: u8 = 55;
    pub const OPENAT: u8 = 18;
    pub const OPENAT2: u8 = 28;
    pub const FILES_UPDATE: u8 = 20;
    pub const SPLICE: u8 = 30;
}

/// IOSQE_FIXED_FILE: the request names a place in the ring's table of files, not a descriptor.
pub const FIXED_FILE: u8 = 1;
/// IOSQE_ASYNC: the only flag of a request that does not matter here.
pub const ASYNC: u8 = 1 << 4;
/// IOSQE_IO_LINK and IOSQE_IO_HARDLINK: what follows is part of a chain.
pub const LINKS: u8 = 1 << 2 | 1 << 3;
/// IOSQE_IO_DRAIN: the request waits for all others, and those after it wait for the request.
pub const DRAIN: u8 = 1 << 1;
/// IOSQE_BUFFER_SELECT: the kernel chooses the buffer.
pub const SELECT: u8 = 1 << 5;

/// IORING_SETUP_*.
pub mod setup {
    use core::ffi::c_uint;

    pub const IOPOLL: c_uint = 1 << 0;
    pub const SQPOLL: c_uint = 1 << 1;
    pub const SQE128: c_uint = 1 << 10;
    pub const DEFER_TASKRUN: c_uint = 1 << 13;
    pub const REGISTERED_FD_ONLY: c_uint = 1 << 15;
    pub const NO_SQARRAY: c_uint = 1 << 16;
    /// Flags that change nothing of what the library relies on: SQPOLL (to be asked for apart), SQ_AFF, CQSIZE, CLAMP,
    /// ATTACH_WQ, R_DISABLED, SUBMIT_ALL, COOP_TASKRUN, TASKRUN_FLAG, SINGLE_ISSUER, NO_SQARRAY.
    pub const PLAIN: c_uint =
        SQPOLL | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 12 | NO_SQARRAY;
}

/// IORING_SQ_CQ_OVERFLOW
pub const OVERFLOW: u32 = 1 << 1;
/// IOSQE_CQE_SKIP_SUCCESS: a request that has succeeded has no completion.
pub const SILENT: u8 = 1 << 6;
/// IORING_CQE_F_MORE: the request goes on, and has more completions.
pub const MORE: u32 = 1 << 1;
/// The `user_data` of requests that liburing makes for itself (LIBURING_UDATA_TIMEOUT).
pub const LIBURINGS: u64 = u64::MAX;
