//! `io_submit_mode=offload`: separate threads submit to any engine, so that a submission that blocks delays no other
//! op. A synchronous engine becomes asynchronous this way.
//!
//! Each worker thread owns an engine of depth 1 and carries out one request at a time, as fio's offload pool does.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use job::Job;

use super::{Completion, Engine, Maker, Queued, Request, Setup, Slots};
use crate::Error;

/// More threads than this add nothing but memory: a deeper queue waits in the channel.
const MAX_WORKERS: u32 = 256;

/// A descriptor and how many files had its place before: numbers are used again, files are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Handle {
    fd: RawFd,
    generation: u32,
}

/// An engine whose requests are carried out by worker threads.
pub struct Offload {
    queued: VecDeque<Request>,
    descriptors: Vec<Handle>,
    /// None once the engine is being dropped: the closed channel tells the workers to end.
    requests: Option<Sender<(Request, Handle)>>,
    completions: Receiver<io::Result<Completion>>,
    workers: Vec<JoinHandle<()>>,
}

impl Offload {
    /// Workers for `setup.depth` requests in flight, each with an engine of `maker`.
    ///
    /// # Errors
    /// The error of making an engine, or of starting a thread.
    pub fn make(maker: Maker, setup: &Setup) -> Result<Box<dyn Engine>, Error> {
        let (requests, work) = mpsc::channel::<(Request, Handle)>();
        let (done, completions) = mpsc::channel();
        let work = Arc::new(Mutex::new(work));
        let job = Arc::new(setup.job.clone());
        let mut workers = Vec::new();
        for _ in 0..setup.depth.clamp(1, MAX_WORKERS) {
            let (job, slots, work, done) =
                (Arc::clone(&job), Arc::clone(&setup.slots), Arc::clone(&work), done.clone());
            let (names, files, clone) = (setup.names.to_vec(), setup.files, setup.clone);
            // Rings belong to the thread that makes them. Each thread reports whether it could make its engine before
            // the next thread starts.
            let (made, is_made) = mpsc::channel();
            let thread = std::thread::Builder::new().name("offload".into()).spawn(move || {
                match make_one(maker, &job, slots, files, &names, clone) {
                    Ok(engine) => {
                        let _ = made.send(Ok(()));
                        carry_out(engine, files, &work, &done);
                    }
                    Err(error) => drop(made.send(Err(error))),
                }
            });
            let thread =
                thread.map_err(|error| Error::system("cannot start a thread", "for io_submit_mode=offload", error))?;
            workers.push(thread);
            if let Ok(outcome) = is_made.recv() {
                outcome?;
            }
        }
        let descriptors = vec![Handle::default(); setup.files as usize];
        Ok(Box::new(Offload { queued: VecDeque::new(), descriptors, requests: Some(requests), completions, workers }))
    }
}

fn make_one(
    maker: Maker,
    job: &Job,
    slots: Arc<Slots>,
    files: u32,
    names: &[String],
    clone: u32,
) -> Result<Box<dyn Engine>, Error> {
    maker.make(&Setup { job, slots, depth: 1, files, names, clone })
}

/// The loop of a worker thread: it carries out one request at a time, until the channel closes.
fn carry_out(
    mut engine: Box<dyn Engine>,
    files: u32,
    work: &Mutex<Receiver<(Request, Handle)>>,
    done: &Sender<io::Result<Completion>>,
) {
    let mut known = vec![Handle::default(); files as usize];
    let mut finished = Vec::new();
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((request, handle)) = next else { return };
        let outcome = one(&mut *engine, request, handle, &mut known, &mut finished);
        if done.send(outcome).is_err() {
            return;
        }
    }
}

fn one(
    engine: &mut dyn Engine,
    request: Request,
    handle: Handle,
    known: &mut [Handle],
    finished: &mut Vec<Completion>,
) -> io::Result<Completion> {
    let file = request.file;
    let known = &mut known[file as usize];
    if *known != handle {
        if *known != Handle::default() {
            engine.close(file);
        }
        engine.open(file, handle.fd)?;
        *known = handle;
    }
    let mut request = match engine.queue(request) {
        Queued::Done(completion) => return Ok(completion),
        Queued::Later => None,
        Queued::Full(request) => Some(request),
    };
    while finished.is_empty() {
        if let Some(again) = request.take() {
            match engine.queue(again) {
                Queued::Done(completion) => return Ok(completion),
                Queued::Later => {}
                Queued::Full(refused) => request = Some(refused),
            }
        }
        let submitted = engine.submit()?;
        engine.reap(submitted.min(1), 1, None, finished)?;
    }
    finished.pop().ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
}

impl Engine for Offload {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        let handle = &mut self.descriptors[file as usize];
        *handle = Handle { fd, generation: handle.generation + 1 };
        Ok(())
    }

    fn close(&mut self, _file: u32) {}

    fn queue(&mut self, request: Request) -> Queued {
        self.queued.push_back(request);
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        let count = self.queued.len();
        for request in self.queued.drain(..) {
            let handle = self.descriptors[request.file as usize];
            let sent = self.requests.as_ref().map(|requests| requests.send((request, handle)));
            if !matches!(sent, Some(Ok(()))) {
                return Err(io::Error::from_raw_os_error(libc::EPIPE));
            }
        }
        Ok(count)
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut taken = 0;
        while taken < max {
            let next = match (taken < min, timeout_ns) {
                (false, _) => match self.completions.try_recv() {
                    Ok(next) => next,
                    Err(_) => return Ok(()),
                },
                (true, None) => self.completions.recv().map_err(|_| io::Error::from_raw_os_error(libc::EPIPE))?,
                (true, Some(ns)) => match self.completions.recv_timeout(Duration::from_nanos(ns)) {
                    Ok(next) => next,
                    Err(RecvTimeoutError::Timeout) => return Ok(()),
                    Err(RecvTimeoutError::Disconnected) => return Err(io::Error::from_raw_os_error(libc::EPIPE)),
                },
            };
            done.push(next?);
            taken += 1;
        }
        Ok(())
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.requests = None;
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}
