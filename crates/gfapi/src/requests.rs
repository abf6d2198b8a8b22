//! Asynchronous requests. A request owns its buffer and a reference to its file until its completion is fetched: the
//! library's threads write into memory that nobody else can reach.
//!
//! ```text
//! caller:    Requests::read(file, buffer, ..) ─► Parcel (on the heap, owned by the request) ─► glfs_pread_async
//! library:   callback ─► the parcel into the shared queue, and a wake-up
//! caller:    fetch ─► Finished { buffer, result }
//! ```

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connect::last_error;
use crate::file::File;
use crate::library::{AnyCallback, Era, GlfsFd, NewCallback, OldCallback};

/// The time for which a drop waits for requests whose completion does not come.
const LAST_WAIT: Duration = Duration::from_secs(15);

/// Memory that requests transfer to or from.
///
/// # Safety
/// `pointer` stays the same, and `bytes` bytes behind it valid for reads and writes, while the value exists, wherever
/// it moves; nothing else accesses them.
pub unsafe trait Buffer: Send + 'static {
    /// A pointer to the first byte of the buffer; valid as long as the buffer lives.
    fn pointer(&self) -> *mut u8;
    /// The number of bytes of the buffer.
    fn bytes(&self) -> usize;
}

// SAFETY: a boxed slice owns its bytes, which stay where they are when the box moves.
unsafe impl Buffer for Box<[u8]> {
    fn pointer(&self) -> *mut u8 {
        self.as_ptr().cast_mut()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A request that has ended.
#[derive(Debug)]
pub struct Finished<B> {
    /// The buffer that the request was begun with.
    pub buffer: B,
    /// Bytes transferred, 0 for syncs and discards; or the error.
    pub result: io::Result<usize>,
}

/// Requests in flight of one thread, and the queue of those that have ended.
///
/// Dropping it waits up to 15 s for the requests in flight: a request that has not ended by then (a silent server) is
/// left to the library with its buffers, files and connection, which are never freed.
pub struct Requests<B: Buffer> {
    shared: Arc<Shared<B>>,
    in_flight: usize,
}

struct Shared<B> {
    queue: Mutex<Queue<B>>,
    arrived: Condvar,
}

struct Queue<B> {
    finished: VecDeque<(Box<Parcel<B>>, io::Result<usize>)>,
    /// The number of completions that wakes the waiter.
    wanted: usize,
    /// The owner has gone: a request that ends now is leaked, for closing files on the library's own threads would
    /// block them.
    abandoned: bool,
}

/// The things that a request owns until its completion is fetched.
struct Parcel<B> {
    buffer: B,
    shared: Arc<Shared<B>>,
    _file: Arc<File>,
}

impl<B> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, Queue<B>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Buffer> Default for Requests<B> {
    fn default() -> Requests<B> {
        Requests::new()
    }
}

impl<B: Buffer> Requests<B> {
    /// A set of requests with none in flight.
    pub fn new() -> Requests<B> {
        let queue = Queue { finished: VecDeque::new(), wanted: 0, abandoned: false };
        Requests { shared: Arc::new(Shared { queue: Mutex::new(queue), arrived: Condvar::new() }), in_flight: 0 }
    }

    /// Requests that were begun and not yet fetched.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Begins to fill the whole buffer from `offset` of the file.
    pub fn read(&mut self, file: &Arc<File>, buffer: B, offset: u64) {
        let (at, len) = (buffer.pointer().cast(), buffer.bytes());
        let call = file.connection().library.pread_async;
        self.begin(file, buffer, |fd, callback, parcel| {
            // SAFETY: the file is open and the buffer valid until the callback: the parcel owns both.
            unsafe { call(fd, at, len, signed(offset), 0, callback, parcel) }
        });
    }

    /// Begins to write the whole buffer to `offset` of the file.
    pub fn write(&mut self, file: &Arc<File>, buffer: B, offset: u64) {
        let (at, len) = (buffer.pointer().cast(), buffer.bytes());
        let call = file.connection().library.pwrite_async;
        self.begin(file, buffer, |fd, callback, parcel| {
            // SAFETY: the file is open and the buffer valid until the callback: the parcel owns both.
            unsafe { call(fd, at, len, signed(offset), 0, callback, parcel) }
        });
    }

    /// Begins an fsync(2), or an fdatasync(2) if only data matter. The buffer comes back as it is.
    pub fn sync(&mut self, file: &Arc<File>, buffer: B, data_only: bool) {
        let library = file.connection().library;
        let call = if data_only { library.fdatasync_async } else { library.fsync_async };
        self.begin(file, buffer, |fd, callback, parcel| {
            // SAFETY: the file is open until the callback: the parcel owns it.
            unsafe { call(fd, callback, parcel) }
        });
    }

    /// Begins to free a range of the file. The buffer comes back as it is.
    pub fn discard(&mut self, file: &Arc<File>, buffer: B, offset: u64, len: usize) {
        let call = file.connection().library.discard_async;
        self.begin(file, buffer, |fd, callback, parcel| {
            // SAFETY: the file is open until the callback: the parcel owns it.
            unsafe { call(fd, signed(offset), len, callback, parcel) }
        });
    }

    fn begin(
        &mut self,
        file: &Arc<File>,
        buffer: B,
        call: impl FnOnce(*mut GlfsFd, AnyCallback, *mut c_void) -> c_int,
    ) {
        self.in_flight += 1;
        let callback = match file.connection().library.era {
            // SAFETY: only the type of the pointer changes; functions of this era call it as a NewCallback.
            Era::New => unsafe { std::mem::transmute::<NewCallback, AnyCallback>(on_new::<B>) },
            // SAFETY: only the type of the pointer changes; functions of this era call it as an OldCallback.
            Era::Old => unsafe { std::mem::transmute::<OldCallback, AnyCallback>(on_old::<B>) },
        };
        let parcel = Box::new(Parcel { buffer, shared: Arc::clone(&self.shared), _file: Arc::clone(file) });
        let parcel = Box::into_raw(parcel);
        if call(file.fd(), callback, parcel.cast()) < 0 {
            let error = last_error();
            // SAFETY: the library makes no callback for a call that fails, so nobody else has the parcel.
            let parcel = unsafe { Box::from_raw(parcel) };
            self.shared.lock().finished.push_back((parcel, Err(error)));
        }
    }

    /// Appends ended requests to `done`: waits until `min` are there (0 polls; never for more than are in flight) or
    /// the time is over, takes at most `max`.
    pub fn fetch(&mut self, min: usize, max: usize, timeout: Option<Duration>, done: &mut Vec<Finished<B>>) {
        let min = min.min(max).min(self.in_flight);
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut queue = self.shared.lock();
        while queue.finished.len() < min {
            queue.wanted = min;
            queue = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.shared.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => self.shared.arrived.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        queue.wanted = 0;
        let count = queue.finished.len().min(max);
        self.in_flight -= count;
        done.reserve(count);
        // Files may be closed by what follows, which must not happen with the queue locked.
        let ended: Vec<_> = queue.finished.drain(..count).collect();
        drop(queue);
        done.extend(ended.into_iter().map(|(parcel, result)| Finished { buffer: parcel.buffer, result }));
    }
}

impl<B: Buffer> Drop for Requests<B> {
    fn drop(&mut self) {
        let mut rest = Vec::new();
        self.fetch(usize::MAX, usize::MAX, Some(LAST_WAIT), &mut rest);
        self.shared.lock().abandoned = true;
    }
}

/// An offset as the library takes it: an offset beyond the range of i64 is beyond any file, too.
fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// The callback of symbols of version 6.0. The library calls it once for each request that has ended.
///
/// # Safety
/// The *completion contract*: `parcel` is that of a request that a `Requests<B>` has begun, and this call is
/// the only completion of the request. The library upholds it.
unsafe extern "C" fn on_new<B: Buffer>(
    _: *mut GlfsFd,
    result: isize,
    _: *mut c_void,
    _: *mut c_void,
    parcel: *mut c_void,
) {
    // SAFETY: the library upholds the completion contract for this callback.
    unsafe { completed::<B>(result, parcel) };
}

/// The callback of symbols of version 3.4.0. The library calls it once for each request that has ended.
///
/// # Safety
/// The completion contract of [`on_new`].
unsafe extern "C" fn on_old<B: Buffer>(_: *mut GlfsFd, result: isize, parcel: *mut c_void) {
    // SAFETY: the library upholds the completion contract for this callback.
    unsafe { completed::<B>(result, parcel) };
}

/// # Safety
/// The completion contract of [`on_new`].
unsafe fn completed<B: Buffer>(result: isize, parcel: *mut c_void) {
    // The library sets errno before it calls back (glfs-fops.c, glfs_io_async_cbk).
    let result = usize::try_from(result).map_err(|_| last_error());
    // SAFETY: begin made the pointer by Box::into_raw, and by the completion contract nobody else turns it back into a
    // box.
    let parcel = unsafe { Box::from_raw(parcel.cast::<Parcel<B>>()) };
    let shared = Arc::clone(&parcel.shared);
    let mut queue = shared.lock();
    if queue.abandoned {
        std::mem::forget(parcel);
        return;
    }
    queue.finished.push_back((parcel, result));
    let wake = queue.wanted > 0 && queue.finished.len() >= queue.wanted;
    drop(queue);
    if wake {
        shared.arrived.notify_one();
    }
}
