//! The Rust face: operations own their buffers, and keep their files open, until they complete.

use std::collections::HashMap;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::call::Call;
use crate::core::Core;
use crate::request::{self, Outcome, Request, Status};
use crate::stats::Stats;

/// The thread that drives the ring of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drive {
    /// A thread of the library drives the ring: any thread may submit, fetch and cancel.
    #[default]
    Thread,
    /// The one thread that uses the context drives the ring inside its calls: no hand-over to another thread. A
    /// submitted operation begins with the next flush or fetch, at the latest when 32 requests have gathered.
    Caller,
}

/// The settings of a context.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of priorities, at least 1; 0 is the most urgent.
    pub priorities: usize,
    /// Workers that are kept when they have nothing to do.
    pub min_threads: usize,
    /// Workers at most; 0 for as many as are needed.
    pub max_threads: usize,
    /// The thread that drives the ring.
    pub drive: Drive,
    /// True if the context uses io_uring where it is available.
    pub use_ring: bool,
    /// Entries of the ring; 0 for the usual number.
    pub ring_entries: u32,
    /// True if threads that wait look again and again for a while, as long as that costs less than a sleep; false if
    /// they sleep at once.
    pub looks: bool,
    /// True if [`Guasi::cancel`] works. It costs a table of the operations in flight.
    pub cancelable: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            priorities: 1,
            min_threads: 0,
            max_threads: 0,
            drive: Drive::Thread,
            use_ring: true,
            ring_entries: 0,
            looks: true,
            cancelable: false,
        }
    }
}

/// Memory that a read fills, or that a write takes its bytes from.
///
/// # Safety
/// The region stays where it is and valid, and nobody else touches it, for as long as the value exists, also when the
/// value is moved.
pub unsafe trait IoBuf: Send + 'static {
    /// The first byte and the length.
    fn region(&mut self) -> (*mut u8, usize);
}

// SAFETY: the heap block of a vector does not move with the vector, and the vector owns it.
unsafe impl IoBuf for Vec<u8> {
    fn region(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

// SAFETY: the heap block of a boxed slice does not move with the box, and the box owns it.
unsafe impl IoBuf for Box<[u8]> {
    fn region(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

// SAFETY: the mapping never moves and the buffer owns it.
unsafe impl IoBuf for sys::buffer::Buffer {
    fn region(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

/// A finished operation, with the result and the buffer that it was given.
#[derive(Debug)]
pub struct Completion<B> {
    /// The key that the operation was submitted with.
    pub key: u64,
    /// Bytes transferred, or the value that the function returned; ECANCELED if the operation was cancelled before it
    /// began, EINTR if it was broken off.
    pub result: io::Result<usize>,
    /// The buffer of the operation, if it had one.
    pub buffer: Option<B>,
}

/// A context: submit operations, fetch their completions. `B` is the type of the buffers. `F` is the type of the files:
/// any type that keeps a descriptor open while it is held.
pub struct Guasi<B: IoBuf, F: AsFd + Send + 'static = Arc<OwnedFd>> {
    core: Arc<Core>,
    inflight: Mutex<HashMap<u64, Pointer>>,
    cancelable: bool,
    operations: PhantomData<fn(B, F)>,
}

struct Pointer(*mut Request);
// SAFETY: a request may be handed to any thread; the table only keeps the address.
unsafe impl Send for Pointer {}

/// A request together with the memory that it owns. The request comes first: a pointer to one is a pointer to the
/// other.
#[repr(C)]
struct Parcel<B, F> {
    request: Request,
    key: u64,
    buffer: Option<B>,
    file: Option<F>,
}

unsafe fn free_parcel<B, F>(request: *mut Request) {
    // SAFETY: set as `free` only in requests that begin a parcel of these types, which was boxed.
    drop(unsafe { Box::from_raw(request.cast::<Parcel<B, F>>()) });
}

impl<B: IoBuf, F: AsFd + Send + 'static> Guasi<B, F> {
    /// A context without threads, ring and descriptors: they are made when they are first needed. Without io_uring
    /// threads do everything: see [`Guasi::stats`].
    ///
    /// # Errors
    /// None so far.
    pub fn new(config: Config) -> io::Result<Guasi<B, F>> {
        let cancelable = config.cancelable;
        Ok(Guasi { core: Core::new(config), inflight: Mutex::new(HashMap::new()), cancelable, operations: PhantomData })
    }

    /// Reads up to the buffer's length at `offset` of a file (pread(2)). The buffer comes back with the completion.
    ///
    /// # Errors
    /// EPERM from a second thread with [`Drive::Caller`], ECHILD in a forked child, EAGAIN if it takes a thread and
    /// there is none. The operation is dropped.
    pub fn read_at(&self, key: u64, file: F, buffer: B, offset: u64) -> io::Result<()> {
        self.transfer(key, file, buffer, offset, false)
    }

    /// Writes the buffer at `offset` of a file (pwrite(2)).
    ///
    /// # Errors
    /// The errors of [`Guasi::read_at`].
    pub fn write_at(&self, key: u64, file: F, buffer: B, offset: u64) -> io::Result<()> {
        self.transfer(key, file, buffer, offset, true)
    }

    fn transfer(&self, key: u64, file: F, mut buffer: B, offset: u64, write: bool) -> io::Result<()> {
        let fd = file.as_fd().as_raw_fd();
        let (start, len) = buffer.region();
        let offset = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let call = Call::Transfer { write, fd, buffer: start, len, offset, seekable: true };
        self.submit(key, call, Some(buffer), Some(file))
    }

    /// Flushes a file to its device (fsync(2), or fdatasync(2)). A buffer may come along for the ride.
    ///
    /// # Errors
    /// The errors of [`Guasi::read_at`].
    pub fn sync(&self, key: u64, file: F, data_only: bool, buffer: Option<B>) -> io::Result<()> {
        let call = Call::Sync { fd: file.as_fd().as_raw_fd(), data_only };
        self.submit(key, call, buffer, Some(file))
    }

    /// Carries a function out on a thread of the pool. A buffer may come along for the ride. If the function
    /// panics the operation fails.
    ///
    /// # Errors
    /// The errors of [`Guasi::read_at`].
    pub fn call(
        &self,
        key: u64,
        buffer: Option<B>,
        function: impl FnOnce() -> io::Result<usize> + Send + 'static,
    ) -> io::Result<()> {
        let closure = move || match std::panic::catch_unwind(std::panic::AssertUnwindSafe(function)) {
            Ok(Ok(value)) => Outcome { result: value as isize, error: 0 },
            Ok(Err(error)) => Outcome::failed(error.raw_os_error().unwrap_or(libc::EIO)),
            Err(_) => Outcome::failed(libc::ENOTRECOVERABLE),
        };
        self.submit(key, Call::Closure(Some(Box::new(closure))), buffer, None)
    }

    fn submit(&self, key: u64, call: Call, buffer: Option<B>, file: Option<F>) -> io::Result<()> {
        let mut parcel =
            Box::new(Parcel { request: Request::new(Arc::as_ptr(&self.core), 0, call), key, buffer, file });
        parcel.request.free = free_parcel::<B, F>;
        let request: *mut Request = Box::into_raw(parcel).cast();
        let mut table = self.cancelable.then(|| self.table());
        if let Some(table) = &mut table {
            table.insert(key, Pointer(request));
        }
        // SAFETY: the request is fresh and has priority 0; the parcel owns what the call points to and is freed after
        // it has been fetched.
        unsafe { self.core.submit(request) }.map_err(|errno| {
            if let Some(table) = &mut table {
                table.remove(&key);
            }
            // SAFETY: the core did not take the request, so this function is still its one owner.
            unsafe { request::free(request) };
            io::Error::from_raw_os_error(errno)
        })
    }

    /// With [`Drive::Caller`]: begins the operations that have been submitted. Otherwise it does nothing: they have
    /// begun.
    ///
    /// # Errors
    /// The errors of [`Guasi::fetch`].
    pub fn flush(&self) -> io::Result<()> {
        self.core.flush().map_err(io::Error::from_raw_os_error)
    }

    /// Waits until `min` operations have completed, or the limit is over, and appends up to `max` of them to `done`.
    /// Returns how many it appended. With [`Drive::Caller`] it also returns when no more can come, or a signal was
    /// handled.
    ///
    /// # Errors
    /// EPERM from a second thread with [`Drive::Caller`], ECHILD in a forked child.
    pub fn fetch(
        &self,
        min: usize,
        max: usize,
        limit: Option<Duration>,
        done: &mut Vec<Completion<B>>,
    ) -> io::Result<usize> {
        // The requests are collected first: the results are locked meanwhile, and cancel takes the locks in the other
        // order.
        let mut requests = Vec::new();
        let fetched = self.core.fetch(min, max, limit, |request| requests.push(request));
        if self.cancelable && !requests.is_empty() {
            let mut table = self.table();
            for &request in &requests {
                // SAFETY: every request of this context begins a parcel of these types; fetched, it has this function
                // as its one owner.
                table.remove(unsafe { &(*request.cast::<Parcel<B, F>>()).key });
            }
        }
        for request in requests {
            let parcel: *mut Parcel<B, F> = request.cast();
            // SAFETY: every request of this context begins a parcel of these types; fetched, it has this function as
            // its one owner.
            let parcel = unsafe { &mut *parcel };
            let outcome = parcel.request.outcome();
            let result = match outcome.result {
                value if value >= 0 => Ok(value as usize),
                _ => Err(io::Error::from_raw_os_error(outcome.error)),
            };
            done.push(Completion { key: parcel.key, result, buffer: parcel.buffer.take() });
            // SAFETY: the fetch made this function the one owner of the request, and nothing uses it any more.
            unsafe { request::free(request) };
        }
        fetched.map_err(io::Error::from_raw_os_error)
    }

    /// Cancels the operation with this key and returns the state that it is in then; None if no such operation is in
    /// flight. The operation is fetched in every case. The method needs [`Config::cancelable`], and keys that are not
    /// used twice at a time.
    ///
    /// # Errors
    /// The errors of [`Guasi::fetch`].
    pub fn cancel(&self, key: u64) -> io::Result<Option<Status>> {
        // The lock on the table keeps the request alive: fetch takes the request out of the table before it frees it.
        let table = self.table();
        let Some(&Pointer(request)) = table.get(&key) else { return Ok(None) };
        // SAFETY: the request is in the table, hence it was submitted here and is not freed.
        unsafe { self.core.cancel(request) }.map(Some).map_err(io::Error::from_raw_os_error)
    }

    /// An eventfd that is readable when there may be completions: for poll(2) and epoll(7). It belongs to the context.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn fd(&self) -> io::Result<RawFd> {
        self.core.fd().map_err(io::Error::from_raw_os_error)
    }

    /// The counters, and which backend is at work.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Pointer>> {
        self.inflight.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<B: IoBuf, F: AsFd + Send + 'static> Drop for Guasi<B, F> {
    /// Drops pending operations, breaks active ones off and waits for them.
    fn drop(&mut self) {
        // SAFETY: this is the last use of the context, and requests are known only to it.
        unsafe { self.core.close() };
    }
}
