//! One submitted call, from submission until its owner frees it.
//!
//! A request belongs to exactly one party at a time: a queue, the worker or driver that carries it out, the list
//! of results, and after the fetch the program. It is passed on by raw pointer; each hand-over goes through a lock.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use crate::call::Call;
use crate::core::Core;

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Status {
    /// Cancelled before it began.
    Canceled = 0,
    /// Queued.
    Pending = 1,
    /// Being carried out.
    Active = 2,
    /// Carried out; result and error are valid.
    Complete = 3,
}

/// What a call returned: its value, and errno if it failed.
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

    /// The outcome of a kernel-style result: negative is an errno.
    pub fn from_kernel(result: i64) -> Outcome {
        if result < 0 { Outcome::failed(-result as i32) } else { Outcome { result: result as isize, error: 0 } }
    }
}

/// Neighbours in whichever list holds the request; guarded by that list's lock.
pub(crate) struct Links {
    pub previous: *mut Request,
    pub next: *mut Request,
}

/// See the module.
#[repr(C)]
pub(crate) struct Request {
    pub links: UnsafeCell<Links>,
    status: AtomicU32,
    /// Somebody asked to break the active call off.
    pub cancel_wanted: AtomicBool,
    /// Whether it goes through the ring; set before it is queued.
    pub in_ring: AtomicBool,
    /// Lower is sooner.
    pub priority: u32,
    /// The context; null in tests of the queues alone. Valid while the request is not fetched.
    pub core: *const Core,
    pub private: *mut c_void,
    pub asid: *mut c_void,
    /// What to do. Touched by whoever owns the request.
    pub call: UnsafeCell<Call>,
    outcome: UnsafeCell<Outcome>,
    /// Gives the allocation back, whatever it is part of.
    pub free: unsafe fn(*mut Request),
}

impl Request {
    /// A pending request.
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

    /// The outcome; meaningful once the status says Complete.
    pub fn outcome(&self) -> Outcome {
        match self.status() {
            // SAFETY: after Complete nobody writes the outcome any more; the status load orders this read after the
            // write.
            Status::Complete => unsafe { *self.outcome.get() },
            Status::Canceled => Outcome::failed(libc::ECANCELED),
            // As GUASI 0.25.
            _ => Outcome { result: -1, error: -1 },
        }
    }

    /// Records the outcome and makes the request Complete. Only its owner (worker, driver) calls this, once.
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
    // SAFETY: valid by the contract.
    let free = unsafe { (*request).free };
    // SAFETY: the function that fits the allocation, called once by the contract.
    unsafe { free(request) };
}
