//! Engines: the parts that carry ops out. One trait, one table, one conformance suite for all.
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
use std::time::Duration;

use job::Job;
use job::engines::EngineSpec;
use job::job::FileLock;
use job::workload::OpKind;
use measure::schema::Disturbances;
use pace::Poll;

use crate::files::elsewhere::own_files_only;
use crate::{Error, files};

mod blocking;
mod cpu;
mod descriptors;
pub(crate) mod devices;
mod exec;
mod fabrics;
#[macro_use]
mod forward;
mod gfapi;
mod guasi;
mod io_uring;
mod io_uring_cmd;
mod libaio;
mod locked;
pub(crate) mod looking;
mod mapped;
mod names;
mod net;
mod null;
mod nvme;
mod offload;
mod paced;
mod posixaio;
mod psync;
mod ringed;
mod scsi;
mod sg;
mod slots;
mod space;
mod splice;
mod told;

pub use fabrics::use_rdma_stack;
pub use locked::Locked;
pub use offload::Offload;
pub use paced::Paced;
pub use slots::{Slot, Slots};
pub use told::Told;

/// One op on its way to an engine.
#[derive(Debug)]
pub struct Request {
    /// The buffer; returned by the completion.
    pub slot: Slot,
    /// The op to carry out: a read, a write, a trim or a sync.
    pub kind: OpKind,
    /// Index of the file, as given to [`Engine::open`].
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes to transfer, at most [`Slots::slot_bytes`].
    pub len: u32,
    /// Bytes of the slot to skip: more than 0 where the request continues a short transfer.
    pub skip: u32,
    /// I/O priority as ioprio_set(2) takes it, for engines that can give one to single requests; 0: the thread's.
    pub priority: u16,
}

/// A finished op, with its result and its buffer.
#[derive(Debug)]
pub struct Completion {
    /// The buffer of the request; the caller may use it again.
    pub slot: Slot,
    /// Bytes transferred (possibly fewer than asked), 0 for syncs; or a negative errno; or one of the constants.
    pub result: i64,
}

impl Completion {
    /// The peer has nothing more to give, or the engine's work is done: the job ends, and the op counts with the bytes
    /// that it had transferred before.
    pub const ENDED: i64 = i64::MIN;
    /// The op is complete with the bytes that it had transferred before: a datagram was shorter than the op.
    pub const COMPLETE: i64 = i64::MIN + 1;
}

/// The answer of [`Engine::queue`]: the fate of the request.
#[derive(Debug)]
pub enum Queued {
    /// The engine has the request: the next [`Engine::submit`] submits it, and a later [`Engine::reap`] completes it.
    Later,
    /// The engine has carried the request out in the call.
    Done(Completion),
    /// The engine is full and hands the request back: submit or reap first, then queue it again.
    Full(Request),
}

/// A way to carry ops out. One instance serves one clone, on the thread that made it: rings and registered
/// descriptors belong to a thread. Dropping an engine asks the kernel to cancel the requests in flight, then waits for
/// them.
pub trait Engine: Send {
    /// Makes `fd` known as file `file`, before the first request on it and again after [`Engine::close`].
    ///
    /// # Errors
    /// The error of registering the descriptor; engines that register nothing never fail.
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()>;

    /// Forgets file `file`; the caller closes the descriptor afterwards. No request on it is in flight.
    fn close(&mut self, file: u32);

    /// Takes a request. Never blocks in an asynchronous engine.
    fn queue(&mut self, request: Request) -> Queued;

    /// Hands all queued requests to the kernel and returns how many it took. The rest stays queued for the next call.
    ///
    /// # Errors
    /// Only errors that end the job: the errors of single ops are results. EAGAIN and EINTR are not errors: the call
    /// then returns 0.
    fn submit(&mut self) -> io::Result<usize>;

    /// Appends finished ops to `done`: waits until at least `min` have finished (0 polls) or `timeout_ns` is over, and
    /// takes at most `max`. An interrupted wait returns early with the ops that have finished. `min` is never more than
    /// the number of submitted ops, so that a wait ends.
    ///
    /// # Errors
    /// Only errors that end the job.
    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()>;

    /// [`Engine::submit`], then [`Engine::reap`], in one system call where the kernel has one. Returns the number of
    /// submitted ops.
    ///
    /// # Errors
    /// Only errors that end the job.
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

    /// Waits for whatever the engine needs from elsewhere: the connection of a peer. Called once, when the clone's turn
    /// has come and before its clock starts. The engine asks `is_stopped` again and again, and returns when it is true.
    ///
    /// # Errors
    /// Errors that end the job.
    fn begin(&mut self, _is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        Ok(())
    }

    /// Ends the requests that wait for somebody else, such as a peer that has nothing to send: nothing is to be issued
    /// any more. They complete as [`Completion::ENDED`].
    ///
    /// A request that still moves gets `patience` to end; an engine that can gives the others up with ETIMEDOUT, and
    /// [`Engine::reason`] says so.
    fn abandon(&mut self, _patience: Duration) {}

    /// Events so far that distort the measurement.
    fn disturbances(&self) -> Disturbances {
        Disturbances::default()
    }

    /// The failure of the engine's work that no op shows, if there is one: a program that ended with an error. Asked
    /// when all ops have finished.
    fn failure(&mut self) -> Option<io::Error> {
        None
    }

    /// The peer's word for the latest op that failed with `errno`, where error numbers say less than the peer does.
    fn reason(&self, _errno: i32) -> Option<String> {
        None
    }

    /// Messages to this clone that were lost on the way, as far as the engine can tell.
    fn lost_messages(&self) -> u64 {
        0
    }

    /// Bytes of finished reads that belong to the beginning of a peer's closing message, and not to the data.
    fn stray_bytes(&self) -> u64 {
        0
    }

    /// The files of an engine that opens them by itself ([`EngineSpec::opens_files`]); None from all others.
    fn storage(&mut self) -> Option<&mut dyn Storage> {
        None
    }
}

/// The files of an engine that opens them by itself, from [`Setup::names`]. The runner asks the engine for the same
/// things that it does by system calls with files of this host. Errors carry error numbers.
pub trait Storage {
    /// Bytes that a file has; None if it does not exist. It need not be open.
    ///
    /// # Errors
    /// As stat(2).
    fn bytes(&self, file: u32) -> io::Result<Option<u64>>;

    /// True if a write beyond a file's end makes the file longer.
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
    /// As close(2): the errors of earlier writes that had been acknowledged.
    fn close(&mut self, file: u32) -> io::Result<()>;

    /// Brings the data that were written to an open file onto stable storage.
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

/// The arguments of [`Maker::make`]: everything that a new engine needs to know.
pub struct Setup<'a> {
    /// The job, for the engine's own options.
    pub job: &'a Job,
    /// The buffers of all requests.
    pub slots: Arc<Slots>,
    /// The largest number of requests in flight.
    pub depth: u32,
    /// Number of files that may be open at once: indices 0..files.
    pub files: u32,
    /// Names of the files, for engines that open them by themselves; index as in [`Request::file`].
    pub names: &'a [String],
    /// Number of the clone among those of its job, from 0.
    pub clone: u32,
}

/// Makes an engine, on the thread that will drive it.
///
/// # Errors
/// The reason why the engine is not available here, or the option that does not fit.
pub type Constructor = fn(&Setup) -> Result<Box<dyn Engine>, Error>;

/// The constructor of each row of [`job::engines::ENGINES`], by the engine's name.
static CONSTRUCTORS: &[(&str, Constructor)] = &[
    ("io_uring", io_uring::make),
    ("libaio", libaio::make),
    ("guasi", guasi::make),
    ("psync", psync::make::<psync::Positioned>),
    ("sync", psync::make::<psync::Seeking>),
    ("vsync", psync::make::<psync::SeekingVectored>),
    ("pvsync", psync::make::<psync::PositionedVectored>),
    ("pvsync2", psync::make::<psync::Flagged>),
    ("mmap", mapped::make),
    ("posixaio", posixaio::make),
    ("splice", splice::make),
    ("falloc", space::falloc),
    ("ftruncate", space::ftruncate),
    ("filecreate", names::make),
    ("filestat", names::make),
    ("filedelete", names::make),
    ("dircreate", names::make),
    ("dirstat", names::make),
    ("dirdelete", names::make),
    ("net", net::make),
    ("netsplice", net::make),
    ("cpuio", cpu::make),
    ("exec", exec::make),
    ("null", null::make),
    ("gfapi", gfapi::make),
    ("nvme_tcp", fabrics::make),
    ("nvme_rdma", fabrics::make),
    ("sg", sg::make),
    ("io_uring_cmd", io_uring_cmd::make),
];

/// Refuses a job for what its engine cannot do, as far as this shows without touching anything.
///
/// # Errors
/// The option that does not fit the engine, or that the engine needs.
pub fn check(job: &Job) -> Result<(), Error> {
    let spec = Maker::find(&job.engine)?.spec;
    without_thread_and_locks(job, spec)?;
    match spec.name {
        "io_uring" | "io_uring_cmd" if job.ring.hipri && looking::poll_of(job, Poll::Never) != Poll::Never => {
            let hint = "with hipri=1 the kernel asks the device again and again: leave one of the two out";
            return Err(Error::usage("poll= beside hipri=1 is not possible", format!("in job {}", job.name), hint));
        }
        "guasi" if looking::poll_of(job, Poll::Adaptive) == Poll::Always => {
            let hint = "ioengine=guasi sleeps at last: use poll=adaptive, or ioengine=io_uring";
            return Err(Error::usage("poll=always is not possible", format!("in job {}", job.name), hint));
        }
        _ => {}
    }
    match spec.name {
        "sg" => sg::check(job)?,
        "io_uring_cmd" => io_uring_cmd::check(job)?,
        _ => {}
    }
    if !spec.opens_files {
        return Ok(());
    }
    own_files_only(job)?;
    let is_fabrics = fabrics::transport(spec.name).is_some();
    if is_fabrics {
        fabrics::check(job)?;
    }
    let names = match job.iolog.is_replay() {
        true => Vec::new(), // the log names them
        false => files::names(job, 0)?,
    };
    names.iter().try_for_each(|name| match spec.name {
        "gfapi" => gfapi::locate(job, name).map(drop),
        _ if is_fabrics => fabrics::locate(job, name).map(drop),
        _ => Ok(()),
    })
}

/// Refuses `io_submit_mode=offload` and `lockfile=` of a job whose engine has no descriptors of files.
pub(crate) fn without_thread_and_locks(job: &Job, spec: &EngineSpec) -> Result<(), Error> {
    let alone = spec.opens_files || spec.without_data || spec.to_peer;
    if !alone || !(job.queue.offload || job.files.lock != FileLock::None) {
        return Ok(());
    }
    let option = if job.queue.offload { "io_submit_mode=offload" } else { "lockfile=" };
    let why = if spec.opens_files { "opens its files itself" } else { "has no files" };
    let hint = format!("ioengine={} {why}: leave the option out", spec.name);
    Err(Error::usage(format!("{option} is not possible"), format!("in job {}", job.name), hint))
}

/// An engine that a run can make: what the job language says about it, and its constructor.
#[derive(Clone, Copy)]
pub struct Maker {
    /// The engine's row in the job language.
    pub spec: &'static EngineSpec,
    constructor: Constructor,
}

impl Maker {
    /// The maker of the engine of that name or alias.
    ///
    /// # Errors
    /// A usage error that lists the engines, if there is none of that name.
    pub fn find(name: &str) -> Result<Maker, Error> {
        let spec = job::engines::find(name);
        let row = spec.and_then(|spec| CONSTRUCTORS.iter().find(|(name, _)| *name == spec.name));
        match (spec, row) {
            (Some(spec), Some(&(_, constructor))) => Ok(Maker { spec, constructor }),
            _ => Err(Error::usage("unknown engine", name, format!("there are {}", job::engines::names()))),
        }
    }

    /// An engine that no job can name.
    #[cfg(test)]
    pub(crate) const fn unnamed(spec: &'static EngineSpec, constructor: Constructor) -> Maker {
        Maker { spec, constructor }
    }

    /// Makes an engine, on the thread that will drive it.
    ///
    /// # Errors
    /// The reason why the engine is not available here, or the option that does not fit.
    pub fn make(&self, setup: &Setup) -> Result<Box<dyn Engine>, Error> {
        (self.constructor)(setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_to_wait_that_an_engine_does_not_have_is_refused() {
        for (engine, poll, hipri, refused) in [
            ("io_uring", "adaptive", true, Some("beside hipri=1")),
            ("io_uring", "always", true, Some("beside hipri=1")),
            ("io_uring", "never", true, None),
            ("io_uring", "always", false, None),
            ("libaio", "always", false, None),
            ("guasi", "always", false, Some("poll=always")),
            ("guasi", "adaptive", false, None),
        ] {
            let mut job = Job { engine: engine.into(), ..Job::default() };
            job.ring.hipri = hipri;
            job.ring.other.push(("poll".into(), poll.into()));
            let said = check(&job).err().map(|error| error.to_string());
            let as_it_should = match refused {
                Some(words) => said.as_ref().is_some_and(|said| said.contains(words)),
                None => said.is_none(),
            };
            assert!(as_it_should, "{engine} poll={poll} hipri={hipri}: {said:?}");
        }
    }

    #[test]
    fn every_engine_of_the_job_language_has_one_constructor_and_no_constructor_is_without_an_engine() {
        let mut constructors: Vec<&str> = CONSTRUCTORS.iter().map(|(name, _)| *name).collect();
        let mut engines: Vec<&str> = job::engines::ENGINES.iter().map(|engine| engine.name).collect();
        constructors.sort_unstable();
        engines.sort_unstable();
        assert_eq!(constructors, engines);
    }
}
