//! Engines: what carries ops out. One trait, one table, one conformance suite for all.
//!
//! ```text
//! queue(request) ─► Queued::Later ─┐                      (asynchronous: collected)
//!        │                         ├─► submit() ─► reap(min, ..) ─► Completion, its slot free again
//!        └────► Queued::Done(completion)                  (synchronous: carried out in the call)
//! ```
//!
//! A [`Slot`] owns one buffer. It moves into [`Engine::queue`] and comes back in the [`Completion`]: while a
//! request is in flight nobody can hold its bytes, so the kernel's writes race with nothing.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use job::Job;
use job::workload::OpKind;

mod blocking;
mod gfapi;
mod guasi;
mod io_uring;
mod libaio;
mod locked;
mod null;
mod nvme_tcp;
mod offload;
mod paced;
mod psync;
mod slots;

pub use locked::Locked;
pub use offload::Offload;
pub use paced::Paced;
pub use slots::{Slot, Slots};

/// One op on its way to an engine.
#[derive(Debug)]
pub struct Request {
    /// The buffer; returned by the completion.
    pub slot: Slot,
    /// What to do.
    pub kind: OpKind,
    /// Index of the file, as given to [`Engine::open`].
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes to transfer, at most [`Slots::slot_bytes`].
    pub len: u32,
    /// Bytes of the slot to skip: where a short transfer is continued.
    pub skip: u32,
}

/// A finished op.
#[derive(Debug)]
pub struct Completion {
    /// The buffer, free again.
    pub slot: Slot,
    /// Bytes transferred (possibly fewer than asked), 0 for syncs; or a negative errno.
    pub result: i64,
}

/// What became of a queued request.
#[derive(Debug)]
pub enum Queued {
    /// It will be submitted by the next [`Engine::submit`] and completed by a later [`Engine::reap`].
    Later,
    /// It was carried out in the call.
    Done(Completion),
    /// The engine is full: submit or reap first, then queue the request that is handed back.
    Full(Request),
}

/// A way to carry ops out. One instance serves one clone, on the thread that made it: rings and registered
/// descriptors belong to a thread. Dropping it waits for what is in flight (after asking the kernel to cancel it).
pub trait Engine: Send {
    /// Makes `fd` known as file `file`, before the first request on it and again after [`Engine::close`].
    ///
    /// # Errors
    /// What registering the descriptor gives; engines that register nothing never fail.
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()>;

    /// Forgets file `file`; the caller closes the descriptor afterwards. No request on it is in flight.
    fn close(&mut self, file: u32);

    /// Takes a request. Never blocks in an asynchronous engine.
    fn queue(&mut self, request: Request) -> Queued;

    /// Hands all queued requests to the kernel; how many it took. The rest stays queued for the next call.
    ///
    /// # Errors
    /// Only what ends the job: the errors of single ops are results. EAGAIN and EINTR are not errors: 0 is.
    fn submit(&mut self) -> io::Result<usize>;

    /// Appends finished ops to `done`: waits until at least `min` are there (0 polls) or `timeout_ns` is over,
    /// takes at most `max`. An interrupted wait returns early with what is there; `min` is never more than what has
    /// been submitted, so that a wait ends.
    ///
    /// # Errors
    /// Only what ends the job.
    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()>;

    /// [`Engine::submit`], then [`Engine::reap`], in one system call where the kernel has one; how many were
    /// submitted.
    ///
    /// # Errors
    /// Only what ends the job.
    fn submit_and_reap(
        &mut self,
        min: usize,
        max: usize,
        timeout_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let submitted = self.submit()?;
        self.reap(min, max, timeout_ns, done)?;
        Ok(submitted)
    }

    /// The files of an engine that opens them by itself ([`Kind::opens_files`]); None from all others.
    fn storage(&mut self) -> Option<&mut dyn Storage> {
        None
    }
}

/// The files of an engine that opens them by itself, from [`Setup::names`]: what the runner does with files of this
/// host by system calls. Errors carry error numbers.
pub trait Storage {
    /// Bytes that a file has; None if it does not exist. It need not be open.
    ///
    /// # Errors
    /// As stat(2).
    fn bytes(&self, file: u32) -> io::Result<Option<u64>>;

    /// Whether writing beyond a file's end makes it longer.
    fn can_grow(&self) -> bool {
        true
    }

    /// Bytes that every offset and length is a multiple of.
    ///
    /// # Errors
    /// As stat(2).
    fn block_bytes(&self, _file: u32) -> io::Result<u64> {
        Ok(1)
    }

    /// Opens a file as the job asks, and makes it if the job writes and may make files.
    ///
    /// # Errors
    /// As open(2).
    fn open(&mut self, file: u32) -> io::Result<()>;

    /// Closes a file on which no request is in flight.
    ///
    /// # Errors
    /// As close(2): those of earlier writes that had been acknowledged.
    fn close(&mut self, file: u32) -> io::Result<()>;

    /// Has what was written to an open file on stable storage.
    ///
    /// # Errors
    /// As fsync(2).
    fn sync(&mut self, file: u32) -> io::Result<()>;

    /// Removes a file, open or not.
    ///
    /// # Errors
    /// As unlink(2).
    fn unlink(&mut self, file: u32) -> io::Result<()>;
}

/// What an engine is given when it is made.
pub struct Setup<'a> {
    /// The job, for the engine's own options.
    pub job: &'a Job,
    /// The buffers of all requests.
    pub slots: Arc<Slots>,
    /// Requests in flight at the most.
    pub depth: u32,
    /// Number of files that may be open at once: indices 0..files.
    pub files: u32,
    /// Names of the files, for engines that open them by themselves; index as in [`Request::file`].
    pub names: &'a [String],
}

/// One row of the engine table.
pub struct Kind {
    /// fio's name: `io_uring`.
    pub name: &'static str,
    /// Other names that it is known by.
    pub aliases: &'static [&'static str],
    /// One line for `--enghelp`.
    pub summary: &'static str,
    /// Whether it can have only one op in flight.
    pub synchronous: bool,
    /// Whether its files are not paths of this host: it opens them itself from [`Setup::names`].
    pub opens_files: bool,
    /// Whether it touches no file at all: sizes come from the job alone, nothing is laid out or opened.
    pub diskless: bool,
    /// Makes one, on the thread that will drive it.
    ///
    /// # Errors
    /// Why it is not available here, or which option does not fit.
    pub make: fn(&Setup) -> Result<Box<dyn Engine>, crate::Error>,
}

impl Kind {
    /// The engine of that name or alias.
    pub fn find(name: &str) -> Option<&'static Kind> {
        ENGINES.iter().find(|kind| kind.name == name || kind.aliases.contains(&name))
    }
}

/// All engines.
pub static ENGINES: &[Kind] = &[
    io_uring::IO_URING,
    libaio::LIBAIO,
    guasi::GUASI,
    psync::PSYNC,
    psync::SYNC,
    psync::VSYNC,
    psync::PVSYNC,
    psync::PVSYNC2,
    gfapi::GFAPI,
    nvme_tcp::NVME_TCP,
    null::NULL,
];
