//! `pace=`: any engine behind a pacer. Ops that the pacer holds wait here, with their buffers, until it lets them go.
//!
//! The pacer is the one that the target uses. The time for which the pacer holds an op counts as completion latency:
//! the op is submitted and is not being served.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use job::workload::OpKind;
use measure::Direction;
use pace::{Admission, Admit, Config, Limits, Op, OpId, Refusal};
use sys::clock::{Clock, sleep_until_ns};

use super::{Completion, Engine, Queued, Request, Setup};
use crate::Error;

/// Longest wait without a look at the pacer when it names no time.
const PATIENCE_NS: u64 = 1_000_000;

/// An engine that admits no more than its pacer allows.
pub struct Paced {
    inner: Box<dyn Engine>,
    pacer: Box<dyn Admission>,
    clock: Clock,
    /// By slot: the identity of the slot's op in the pacer's books.
    ids: Vec<OpId>,
    /// By slot: a request that the pacer holds.
    held: Vec<Option<Request>>,
    held_count: usize,
    /// Requests that the pacer released while the inner engine was full.
    released: VecDeque<Request>,
    /// Ops that a synchronous inner engine finished outside of a reaping call.
    finished: Vec<Completion>,
    /// Number of ops queued since the last submission.
    queued: usize,
    in_flight: usize,
}

impl Paced {
    /// `inner` behind the pacer that `text` names, see [`pace::SYNTAX`].
    ///
    /// # Errors
    /// A method that does not exist, or a number that makes no sense.
    pub fn make(text: &str, inner: Box<dyn Engine>, setup: &Setup, clock: Clock) -> Result<Box<dyn Engine>, Error> {
        let wrong = |error: String| Error::usage(error, format!("in pace={text} of job {}", setup.job.name), "");
        let config = Config::parse(text, setup.job.reporting.kb_base).map_err(|error| wrong(error.to_string()))?;
        let slots = setup.slots.count();
        let limits = Limits { ops: slots, drives: setup.files.max(1), tenants: 1 };
        let pacer = config.build(limits).map_err(|error| wrong(error.to_string()))?;
        let held = (0..slots).map(|_| None).collect();
        Ok(Box::new(Paced {
            inner,
            pacer,
            clock,
            ids: vec![OpId::UNTRACKED; slots as usize],
            held,
            held_count: 0,
            released: VecDeque::new(),
            finished: Vec::new(),
            queued: 0,
            in_flight: 0,
        }))
    }

    /// Gives a request that may go to the inner engine.
    fn forward(&mut self, request: Request) {
        match self.inner.queue(request) {
            Queued::Later => self.in_flight += 1,
            Queued::Done(completion) => {
                self.settle(&completion);
                self.finished.push(completion);
            }
            Queued::Full(request) => self.released.push_back(request),
        }
    }

    /// Tells the pacer that an op has finished.
    fn settle(&mut self, completion: &Completion) {
        let index = completion.slot.index() as usize;
        self.pacer.complete(self.clock.now_ns(), self.ids[index]);
    }

    /// Forwards everything that may go now and hands it to the kernel.
    fn push(&mut self) -> io::Result<()> {
        for _ in 0..self.released.len() {
            if let Some(request) = self.released.pop_front() {
                self.forward(request);
            }
        }
        while let Some(released) = self.pacer.poll(self.clock.now_ns()) {
            let index = released.cookie as usize;
            self.ids[index] = released.id;
            if let Some(request) = self.held[index].take() {
                self.held_count -= 1;
                self.forward(request);
            }
        }
        self.inner.submit().map(drop)
    }
}

impl Engine for Paced {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.inner.open(file, fd)
    }

    fn close(&mut self, file: u32) {
        self.inner.close(file);
    }

    fn queue(&mut self, request: Request) -> Queued {
        let index = request.slot.index() as usize;
        let op = Op {
            drive: request.file,
            tenant: 0,
            queue: 0,
            bytes: request.len,
            write: request.kind == OpKind::Io(Direction::Write),
            admin: false,
            cookie: index as u64,
        };
        match self.pacer.admit(self.clock.now_ns(), op) {
            Admit::Go(id) => {
                self.ids[index] = id;
                self.forward(request);
            }
            Admit::Held(id) => {
                self.ids[index] = id;
                self.held[index] = Some(request);
                self.held_count += 1;
            }
            Admit::Refused(Refusal::Full) => return Queued::Full(request),
            // An op larger than the budget can never be admitted. The job gets the error of a device that is out of
            // room.
            Admit::Refused(_) => {
                let result = -i64::from(libc::ENOBUFS);
                return Queued::Done(Completion { slot: request.slot, result });
            }
        }
        self.queued += 1;
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        self.push()?;
        Ok(std::mem::take(&mut self.queued))
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let deadline = timeout_ns.map_or(u64::MAX, |timeout| self.clock.now_ns().saturating_add(timeout));
        let before = done.len();
        loop {
            self.push()?;
            let room = max - (done.len() - before);
            done.extend(self.finished.drain(..room.min(self.finished.len())));
            let missing = min.saturating_sub(done.len() - before);
            let now = self.clock.now_ns();
            // While ops are held, the pacer has to be asked again in time; otherwise the inner engine may wait.
            let wake = match self.held_count + self.released.len() {
                0 => deadline,
                _ => self.pacer.wakeup_ns().unwrap_or(now + PATIENCE_NS).min(deadline),
            };
            let room = max - (done.len() - before);
            if self.in_flight > 0 && room > 0 {
                let wait = (wake != u64::MAX).then(|| wake.saturating_sub(now));
                let from = done.len();
                self.inner.reap(missing.min(1), room, wait, done)?;
                for completion in &done[from..] {
                    self.settle(completion);
                }
                self.in_flight -= done.len() - from;
            } else if missing > 0 && self.held_count > 0 {
                sleep_until_ns(wake.max(now));
            }
            if done.len() - before >= min || self.clock.now_ns() >= deadline {
                // The ops that have just finished make room: push fills it now instead of at the next call.
                return self.push();
            }
            if self.in_flight + self.held_count + self.released.len() + self.finished.len() == 0 {
                return Ok(());
            }
        }
    }

    forward_the_rest!(inner);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Slot, Slots};
    use sys::buffer::Memory;

    #[test]
    fn help_of_the_option_is_the_grammar_that_is_parsed() {
        let option = job::options::TABLE
            .iter()
            .flat_map(|group| group.options)
            .find(|option| option.name == "pace")
            .expect("a row");
        assert!(option.help.ends_with(pace::SYNTAX), "{}", option.help);
    }

    /// Completes ops in order, one a reaping call, and remembers how many it had at most.
    #[derive(Default)]
    struct Slow {
        queue: VecDeque<Slot>,
        most: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Engine for Slow {
        fn open(&mut self, _file: u32, _fd: RawFd) -> io::Result<()> {
            Ok(())
        }
        fn close(&mut self, _file: u32) {}
        fn queue(&mut self, request: Request) -> Queued {
            self.queue.push_back(request.slot);
            self.most.fetch_max(self.queue.len(), std::sync::atomic::Ordering::Relaxed);
            Queued::Later
        }
        fn submit(&mut self) -> io::Result<usize> {
            Ok(self.queue.len())
        }
        fn reap(&mut self, _: usize, _: usize, _: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
            done.extend(self.queue.pop_front().map(|slot| Completion { slot, result: 131_072 }));
            Ok(())
        }
    }

    #[test]
    fn no_more_than_the_pacer_allows_is_in_flight_and_nothing_is_lost() {
        let job = job::Job::default();
        let (slots, mut free) = Slots::new(16, 131_072, 0, &Memory::Anonymous).unwrap();
        let setup = Setup { job: &job, slots, depth: 16, files: 1, names: &[], clone: 0 };
        let slow = Slow::default();
        let most = slow.most.clone();
        let mut paced = Paced::make("buffers:3", Box::new(slow), &setup, Clock::monotonic()).unwrap();
        let (mut done, mut completed) = (Vec::new(), 0);
        for round in 0..1000 {
            while let Some(slot) = free.pop() {
                let kind = OpKind::Io(Direction::Read);
                let request = Request { slot, kind, file: 0, offset: round, len: 131_072, skip: 0, priority: 0 };
                assert!(matches!(paced.queue(request), Queued::Later));
            }
            paced.submit().unwrap();
            paced.reap(1, 16, None, &mut done).unwrap();
            assert!(!done.is_empty(), "a wait for one op returned none");
            completed += done.len();
            free.extend(done.drain(..).map(|completion| completion.slot));
        }
        while free.len() < 16 {
            paced.reap(1, 16, None, &mut done).unwrap();
            free.extend(done.drain(..).map(|completion| completion.slot));
        }
        let mut indices: Vec<u32> = free.iter().map(Slot::index).collect();
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..16), "every buffer has come home once");
        assert!(completed >= 1000);
        assert_eq!(most.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    #[test]
    fn a_rate_lets_held_ops_go_by_time() {
        let job = job::Job::default();
        let (slots, mut free) = Slots::new(4, 4096, 0, &Memory::Anonymous).unwrap();
        let setup = Setup { job: &job, slots, depth: 4, files: 1, names: &[], clone: 0 };
        let mut paced = Paced::make("iops:1000", Box::new(Slow::default()), &setup, Clock::monotonic()).unwrap();
        let (mut done, mut completed) = (Vec::new(), 0);
        let began_ns = sys::clock::monotonic_ns();
        while completed < 40 {
            while let Some(slot) = free.pop() {
                let kind = OpKind::Io(Direction::Read);
                let _ = paced.queue(Request { slot, kind, file: 0, offset: 0, len: 4096, skip: 0, priority: 0 });
            }
            paced.submit().unwrap();
            paced.reap(1, 4, None, &mut done).unwrap();
            completed += done.len();
            free.extend(done.drain(..).map(|completion| completion.slot));
        }
        let took_ns = sys::clock::monotonic_ns() - began_ns;
        // The first ten go at once: the burst.
        assert!(took_ns >= 20_000_000, "40 ops at 1000 a second in {took_ns} ns");
        let wrong = Paced::make("often", Box::new(Slow::default()), &setup, Clock::monotonic()).map(drop).unwrap_err();
        assert!(wrong.to_string().contains("not a pacing method"), "{wrong}");
    }
}
