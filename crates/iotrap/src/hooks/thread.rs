//! pthread_create and thrd_create. Under `--raw` a new thread asks for the dispatch of its system calls before the
//! program's function runs there.

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::abi::dispatch;
use crate::abi::raw;
use crate::abi::real;
use crate::aio::rings;

type Function = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Short = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// The function of a thread that is about to begin, with its argument.
struct Start {
    /// 0 for a free place; 1 while it is written.
    function: AtomicUsize,
    argument: AtomicUsize,
}

static STARTS: [Start; 64] = [const { Start { function: AtomicUsize::new(0), argument: AtomicUsize::new(0) } }; 64];

impl Start {
    /// Keeps a function until its thread has begun. Waits for a free place: a thread that begins frees its place.
    fn of(function: usize, argument: *mut c_void) -> &'static Start {
        loop {
            let free = STARTS.iter().find(|place| place.function.compare_exchange(0, 1, AcqRel, Relaxed).is_ok());
            if let Some(place) = free {
                place.argument.store(argument as usize, Relaxed);
                place.function.store(function, Release);
                return place;
            }
            raw::pause();
        }
    }

    fn take(&self) -> (usize, *mut c_void) {
        let function = self.function.load(Acquire);
        let argument = core::ptr::with_exposed_provenance_mut(self.argument.load(Relaxed));
        self.function.store(0, Release);
        (function, argument)
    }
}

/// The start of a thread: `place` is its [`Start`].
fn begin(place: *mut c_void) -> (usize, *mut c_void) {
    dispatch::again();
    // SAFETY: the hooks below pass a place of the table.
    unsafe { &*place.cast::<Start>() }.take()
}

unsafe extern "C-unwind" fn begins(place: *mut c_void) -> *mut c_void {
    let (function, argument) = begin(place);
    // SAFETY: the program has given a function of this type.
    let function: Function = unsafe { core::mem::transmute(function) };
    // SAFETY: the program's function and argument.
    unsafe { function(argument) }
}

unsafe extern "C-unwind" fn begins_short(place: *mut c_void) -> c_int {
    let (function, argument) = begin(place);
    // SAFETY: the program has given a function of this type.
    let function: Short = unsafe { core::mem::transmute(function) };
    // SAFETY: the program's function and argument.
    unsafe { function(argument) }
}

/// pthread_create(3).
///
/// # Safety
/// As pthread_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    function: Function,
    argument: *mut c_void,
) -> c_int {
    rings::a_thread_is_made();
    if !dispatch::on() {
        // SAFETY: the program's contract.
        return unsafe { real::pthread_create(thread, attributes, function, argument) };
    }
    dispatch::a_thread_is_made();
    let start = Start::of(function as usize, argument);
    let place = core::ptr::from_ref(start).cast_mut().cast();
    // SAFETY: the program's contract; the thread finds the program's function at `place`.
    let result = unsafe { real::pthread_create(thread, attributes, begins, place) };
    if result != 0 {
        start.take();
    }
    result
}

/// thrd_create(3).
///
/// # Safety
/// As thrd_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn thrd_create(thread: *mut c_void, function: Short, argument: *mut c_void) -> c_int {
    rings::a_thread_is_made();
    if !dispatch::on() {
        // SAFETY: the program's contract.
        return unsafe { real::thrd_create(thread, function, argument) };
    }
    dispatch::a_thread_is_made();
    let start = Start::of(function as usize, argument);
    let place = core::ptr::from_ref(start).cast_mut().cast();
    // SAFETY: the program's contract; the thread finds the program's function at `place`.
    let result = unsafe { real::thrd_create(thread, begins_short, place) };
    /// thrd_success (threads.h)
    const SUCCESS: c_int = 0;
    if result != SUCCESS {
        start.take();
    }
    result
}
