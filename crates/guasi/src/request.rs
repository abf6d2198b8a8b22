//! One submitted call, from submission until its owner frees it.
//!
//! **One owner**: a request belongs to exactly one party at a time. That party is a queue, the worker or driver that
//! carries the request out, the list of results, and after the fetch the program. Only the owner touches the call. A
//! raw pointer passes the request on; each hand-over goes through a lock. SAFETY comments refer to this rule by its
//! name.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use crate::call::Call;
use crate::core::Core;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Status {
    /// The request was cancelled before it began.
    Canceled = 0,
    /// The request is queued.
    Pending = 1,
    /// The request is being carried out.
    Active = 2,
    /// The request was carried out; its result and error are valid.
    Complete = 3,
}

/// The outcome of a call: its value, and errno if it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub result: isize,
    pub error: i32,
}

impl Outcome {
    /// The outcome of a call that failed with `errno`.
    pub fn failed(errno: i32) -> Outcome {
        Outcome { result: -1, error: errno }
    }

    /// The outcome of a result as the kernel gives it: a negative result is an errno.
    pub fn from_kernel(result: i64) -> Outcome {
        if result < 0 { Outcome::failed(-result as i32) } else { Outcome { result: result as isize, error: 0 } }
    }
}

/// The neighbours in the list that holds the request; the lock of that list guards them.
pub(crate) struct Links {
    pub previous: *mut Request,
    pub next: *mut Request,
}

/// A request: the call, its outcome and its place in a list. The module describes its life.
#[repr(C)]
pub(crate) struct Request {
    pub links: UnsafeCell<Links>,
    status: AtomicU32,
    /// True once the program has asked to break the active call off.
    pub cancel_wanted: AtomicBool,
    /// True if the request goes through the ring; set before it is queued.
    pub in_ring: AtomicBool,
    /// The priority: a lower number is sooner.
    pub priority: u32,
    /// The context; null in tests of the queues alone. The pointer is valid while the request is not fetched.
    pub core: *const Core,
    pub private: *mut c_void,
    pub asid: *mut c_void,
    /// The call to carry out. Only the owner of the request touches it.
    pub call: UnsafeCell<Call>,
    outcome: UnsafeCell<Outcome>,
    /// Gives the allocation back that the request is part of.
    pub free: unsafe fn(*mut Request),
}

impl Request {
    /// A request that nobody has submitted yet.
    pub fn new(core: *const Core, priority: u32, call: Call) -> Request {
        Request {
            links: UnsafeCell::new(Links { previous: ptr::null_mut(), next: ptr::null_mut() }),
            status: AtomicU32::new(Status::Pending as u32),
            cancel_wanted: AtomicBool::new(false),
            in_ring: AtomicBool::new(false),
            priority,
            core,
            private: ptr::null_mut(),
            asid: ptr::null_mut(),
            call: UnsafeCell::new(call),
            outcome: UnsafeCell::new(Outcome { result: -1, error: 0 }),
            free: free_box,
        }
    }

    pub fn status(&self) -> Status {
        match self.status.load(SeqCst) {
            0 => Status::Canceled,
            1 => Status::Pending,
            2 => Status::Active,
            _ => Status::Complete,
        }
    }

    pub fn set_status(&self, status: Status) {
        self.status.store(status as u32, SeqCst);
    }

    /// The outcome. It is meaningful once the status is Complete.
    pub fn outcome(&self) -> Outcome {
        match self.status() {
            // SAFETY: after Complete nobody writes the outcome any more; the status load orders this read after the
            // write.
            Status::Complete => unsafe { *self.outcome.get() },
            Status::Canceled => Outcome::failed(libc::ECANCELED),
            // GUASI 0.25 gives these values.
            _ => Outcome { result: -1, error: -1 },
        }
    }

    /// Records the outcome and makes the request Complete. Only the owner (worker, driver) calls this, once.
    pub fn finish(&self, outcome: Outcome) {
        // SAFETY: the owner is the only one to write, and readers wait for Complete, which is stored below.
        unsafe { *self.outcome.get() = outcome };
        self.set_status(Status::Complete);
    }
}

/// Frees a request that was made by `Box::into_raw(Box<Request>)`.
unsafe fn free_box(request: *mut Request) {
    // SAFETY: `Request::new` sets this as the way to free plain boxes; the caller gives up the only pointer.
    drop(unsafe { Box::from_raw(request) });
}

/// Gives a request's memory back.
///
/// # Safety
/// `request` is valid, in no list, and not used afterwards.
pub(crate) unsafe fn free(request: *mut Request) {
    // SAFETY: the caller passes a valid request, as the contract of this function says.
    let free = unsafe { (*request).free };
    // SAFETY: `free` fits the allocation, and by the contract of this function the caller calls it once.
    unsafe { free(request) };
}
