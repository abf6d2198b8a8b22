//! guasi.h: contexts and requests.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{Config, Drive};
use crate::call::{Call, Cleanup, Function, MAX_PARAMS, set_errno};
use crate::core::Core;
use crate::interrupt::Mask;
use crate::request::{self, Request, Status};
use crate::stats::Stats;

/// `GUASI_ONE_THREAD` of guasi.h.
const ONE_THREAD: c_uint = 1;
/// `GUASI_NO_RING` of guasi.h.
const NO_RING: c_uint = 2;

/// `struct guasi_reqinfo` of guasi.h.
#[repr(C)]
pub(crate) struct ReqInfo {
    private: *mut c_void,
    asid: *mut c_void,
    result: isize,
    error: c_long,
    status: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of pthread.h, the same on every architecture of Linux.
const CANCEL_DISABLE: c_int = 1;

/// A time in which pthread_cancel(3) does not end the calling thread: system calls below may be cancellation points,
/// and the stack holds functions of Rust, which must not be unwound.
struct Uncancelled(c_int);

impl Uncancelled {
    fn begin() -> Uncancelled {
        let mut before = 0;
        // SAFETY: the reference is valid for the call.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state is the one that the thread had before; a null pointer asks for nothing.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// A context in use by a call of the program.
struct Used {
    core: ManuallyDrop<Arc<Core>>,
    _uncancelled: Uncancelled,
}

impl std::ops::Deref for Used {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        &self.core
    }
}

/// The context behind a handle, without taking the context over; None and EINVAL for a null handle.
///
/// # Safety
/// The handle is null or came from `guasi_create` and has not been freed.
unsafe fn context(handle: *const Core) -> Option<Used> {
    if handle.is_null() {
        set_errno(libc::EINVAL);
        return None;
    }
    // SAFETY: by the contract of this function the handle came from `Arc::into_raw` and is not freed; ManuallyDrop
    // leaves the count as it is.
    let core = ManuallyDrop::new(unsafe { Arc::from_raw(handle) });
    Some(Used { core, _uncancelled: Uncancelled::begin() })
}

fn answer<T: From<i8>>(result: Result<T, i32>) -> T {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        T::from(-1)
    })
}

#[unsafe(no_mangle)]
extern "C" fn guasi_create(min_threads: c_int, max_threads: c_int, max_priority: c_int) -> *const Core {
    guasi_create_flags(min_threads, max_threads, max_priority, 0)
}

#[unsafe(no_mangle)]
extern "C" fn guasi_create_flags(min: c_int, max: c_int, priorities: c_int, flags: c_uint) -> *const Core {
    let known = flags & !(ONE_THREAD | NO_RING) == 0;
    let (Ok(min_threads), Ok(max_threads), 1.., true) = (usize::try_from(min), usize::try_from(max), priorities, known)
    else {
        set_errno(libc::EINVAL);
        return ptr::null();
    };
    let forced = std::env::var_os("GUASI_BACKEND").is_some_and(|backend| backend == "pool");
    let looks = match std::env::var_os("GUASI_POLL") {
        None => true,
        Some(poll) if poll == "adaptive" => true,
        Some(poll) if poll == "never" => false,
        Some(poll) => {
            eprintln!("guasi: GUASI_POLL={}: expected adaptive or never", poll.display());
            set_errno(libc::EINVAL);
            return ptr::null();
        }
    };
    let config = Config {
        priorities: priorities as usize,
        min_threads,
        max_threads,
        drive: if flags & ONE_THREAD != 0 { Drive::Caller } else { Drive::Thread },
        use_ring: flags & NO_RING == 0 && !forced,
        looks,
        ..Config::default()
    };
    Arc::into_raw(Core::new(config))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_free(handle: *const Core) {
    if handle.is_null() {
        return;
    }
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the program gives the handle up; in a forked child the count is the child's own copy.
    let core = unsafe { Arc::from_raw(handle) };
    // SAFETY: guasi(3): nobody uses the context any more.
    unsafe { core.close() };
    if core.check() == Err(libc::ECHILD) {
        // The parent's locks may be held forever in this copy: the memory stays as it is.
        std::mem::forget(core);
    }
}

/// Submits a call; null and errno if the call was not taken.
///
/// # Safety
/// The handle is valid, and the call's pointers stay valid until the request is fetched.
pub(super) unsafe fn submit(
    handle: *const Core,
    private: *mut c_void,
    asid: *mut c_void,
    priority: c_int,
    call: Call,
) -> *mut Request {
    // SAFETY: by the contract of this function the handle is valid.
    let Some(core) = (unsafe { context(handle) }) else { return ptr::null_mut() };
    if priority < 0 || priority as usize >= core.priorities() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let mut request = Box::new(Request::new(handle, priority as u32, call));
    request.private = private;
    request.asid = asid;
    let request = Box::into_raw(request);
    // SAFETY: the request is fresh and its priority checked; its pointers are valid by the contract of this function.
    match unsafe { core.submit(request) } {
        Ok(()) => request,
        Err(errno) => {
            // SAFETY: the core did not take the request, so this function is still its one owner.
            unsafe { request::free(request) };
            set_errno(errno);
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_submitv(
    handle: *const Core,
    private: *mut c_void,
    asid: *mut c_void,
    priority: c_int,
    function: Option<Function>,
    cleanup: Option<Cleanup>,
    count: c_int,
    given: *const isize,
) -> *mut Request {
    let mut params = [0; MAX_PARAMS];
    let (Some(function), true) = (function, count <= MAX_PARAMS as c_int) else {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    };
    if count > 0 {
        // SAFETY: guasi(3): `given` points to `count` parameters.
        let given = unsafe { std::slice::from_raw_parts(given, count as usize) };
        params[..given.len()].copy_from_slice(given);
    }
    let call = Call::Function { function, cleanup, params, mask: Some(Mask::of_caller()) };
    // SAFETY: guasi(3): the handle is valid, and so are the parameters until the request is fetched.
    unsafe { submit(handle, private, asid, priority, call) }
}

/// The way in which guasi_fetch (capi/fetch.c) waits: 0 not at all or inside the driven ring, 1 on a semaphore; -1 and
/// errno if the call is wrong.
#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_internal_how_to_wait(
    handle: *const Core,
    requests: *const *mut Request,
    min: c_int,
    max: c_int,
    timeout_ms: c_long,
) -> c_int {
    // SAFETY: guasi(3): the program passes a handle that it has not freed.
    let Some(core) = (unsafe { context(handle) }) else { return -1 };
    if requests.is_null() && max > 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    let sleeps = min > 0 && timeout_ms != 0 && !core.is_driven_by_caller();
    answer(core.check().map(|()| i8::from(sleeps))).into()
}

/// Fetches if `min` results are there; otherwise enlists the semaphore and returns -2.
#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_internal_fetch_or_enlist(
    handle: *const Core,
    requests: *mut *mut Request,
    min: c_int,
    max: c_int,
    semaphore: *mut libc::sem_t,
) -> c_int {
    // SAFETY: guasi(3): the program passes a handle that it has not freed.
    let Some(core) = (unsafe { context(handle) }) else { return -1 };
    let mut place = requests;
    let take = |request| {
        // SAFETY: guasi(3): there is room for `max` handles, and the core passes no more.
        unsafe { place.write(request) };
        // SAFETY: the place moves to at most one past the last handle.
        place = unsafe { place.add(1) };
    };
    // SAFETY: guasi_fetch keeps the semaphore until this function has fetched or guasi_internal_leave has returned.
    let taken = unsafe { core.fetch_or_enlist(min.max(0) as usize, max.max(0) as usize, semaphore, take) };
    taken.map_or(-2, |count| count as c_int)
}

/// Takes the semaphore out of the list again.
#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_internal_leave(handle: *const Core, semaphore: *mut libc::sem_t) {
    // SAFETY: guasi(3): the program passes a handle that it has not freed.
    let Some(core) = (unsafe { context(handle) }) else { return };
    core.leave(semaphore);
}

/// Fetches, and waits where the calling thread drives the ring.
#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_internal_fetch(
    handle: *const Core,
    requests: *mut *mut Request,
    min: c_int,
    max: c_int,
    timeout_ms: c_long,
) -> c_int {
    // SAFETY: guasi(3): the program passes a handle that it has not freed.
    let Some(core) = (unsafe { context(handle) }) else { return -1 };
    let limit = (timeout_ms >= 0).then(|| Duration::from_millis(timeout_ms as u64));
    let mut place = requests;
    answer(
        core.fetch(min.max(0) as usize, max.max(0) as usize, limit, |request| {
            // SAFETY: guasi(3): there is room for `max` handles, and fetch passes no more.
            unsafe { place.write(request) };
            // SAFETY: the place moves to at most one past the last handle.
            place = unsafe { place.add(1) };
        })
        .map(|count| count as c_int),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_flush(handle: *const Core) -> c_int {
    // SAFETY: guasi(3): the program passes a handle that it has not freed.
    let Some(core) = (unsafe { context(handle) }) else { return -1 };
    answer(core.flush().map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_fd(handle: *const Core) -> c_int {
    // SAFETY: guasi(3): the program passes a handle that it has not freed.
    let Some(core) = (unsafe { context(handle) }) else { return -1 };
    answer(core.fd())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_get_stats(handle: *const Core, stats: *mut Stats, size: usize) -> c_int {
    // SAFETY: guasi(3): the program passes a handle that it has not freed.
    let Some(core) = (unsafe { context(handle) }) else { return -1 };
    if stats.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    let now = core.stats();
    // SAFETY: guasi(3): `size` bytes are there; a program that was built with an older, shorter structure gets its
    // part.
    unsafe { ptr::copy_nonoverlapping((&raw const now).cast::<u8>(), stats.cast(), size.min(size_of::<Stats>())) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_req_cancel(request: *mut Request) -> c_int {
    if request.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: guasi(3): the request has not been freed.
    let it = unsafe { &*request };
    // A request that has been fetched may outlive its context.
    if matches!(it.status(), Status::Complete | Status::Canceled) {
        return it.status() as c_int;
    }
    // SAFETY: the request is not finished, so its context exists.
    let Some(core) = (unsafe { context(it.core) }) else { return -1 };
    // SAFETY: the request was submitted to this context and is not freed.
    answer(unsafe { core.cancel(request) }.map(|status| status as c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_req_info(request: *mut Request, info: *mut ReqInfo) -> c_int {
    if request.is_null() || info.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: guasi(3): the request has not been freed.
    let it = unsafe { &*request };
    let status = it.status();
    let outcome = it.outcome();
    let told = ReqInfo {
        private: it.private,
        asid: it.asid,
        result: outcome.result,
        error: outcome.error.into(),
        status: status as c_int,
    };
    // SAFETY: guasi(3): the structure is the program's to fill.
    unsafe { info.write(told) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn guasi_req_free(request: *mut Request) {
    if !request.is_null() {
        // SAFETY: guasi(3): the request has been fetched and is not used any more.
        unsafe { request::free(request) };
    }
}
