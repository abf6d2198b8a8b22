//! Recorded threads: the requests of an application, thread by thread, with the pauses between them; and their replay
//! at another speed.
//!
//! A thread of the replay issues its requests in order. A request waits until its thread has as few requests in flight
//! as the recorded thread had, and then for the recorded pause, divided by the speed. So a faster replay shortens the
//! pauses of the application, and keeps the order in which its threads wait for the storage.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::io::BufRead;
use std::sync::Arc;

use measure::{Direction, PerDirection};

use crate::iolog::{Error, FileUse, Replay, Step, Summary};
use crate::job::Iolog;
use crate::workload::{Op, OpKind};

/// A recording has this many requests at most: they are kept in memory.
const REQUESTS_MOST: usize = 8_000_000;

/// The moment from which the pause before a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The request before it was issued: logs without the times of completions. The pause includes the time for which
    /// the thread waited for the storage.
    Issue,
    /// The thread was free to issue: a request of it ended, or the one before was issued.
    Free,
}

/// A request of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The request.
    pub op: Op,
    /// Nanoseconds before the request, in the recording.
    pub pause_ns: u64,
    /// Requests of the thread in flight with this one, at most.
    pub depth: u32,
}

/// The requests of an application, thread by thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The requests of each thread, in order.
    pub threads: Vec<Vec<Request>>,
    /// The moment from which pauses count.
    pub since: Since,
    /// The files.
    pub files: Vec<FileUse>,
    /// Files that the log opens or syncs, and does not read or write.
    pub idle_files: Vec<String>,
    /// Duration in nanoseconds, from the start to the last request that is kept.
    pub duration_ns: u64,
    /// Requests that were recorded; more than are kept if the recording was cut.
    pub recorded: u64,
}

impl Recording {
    /// A recording without requests.
    pub fn new(since: Since) -> Recording {
        Recording { threads: Vec::new(), since, files: Vec::new(), idle_files: Vec::new(), duration_ns: 0, recorded: 0 }
    }

    /// The recording that logs make: the threads that their lines name, and one of each log without names. Requests
    /// that are due after `cut_ns` are left out. A thread has `depth` requests in flight at most.
    ///
    /// # Errors
    /// A line that cannot be understood; more requests than fit into memory; no request at all.
    pub fn of_logs<R: BufRead>(
        logs: Vec<(String, R)>,
        options: &Iolog,
        depth: u32,
        cut_ns: u64,
    ) -> Result<Recording, Error> {
        let mut all = Recording::new(Since::Issue);
        let (mut idle, mut busy) = (BTreeSet::new(), BTreeSet::new());
        let name = logs.first().map_or(String::new(), |(name, _)| name.clone());
        for (name, log) in logs {
            let mut replay = Replay::new(log, name.as_str(), &Iolog { time_scale_percent: 100, ..options.clone() })?;
            // The threads of this log, in the order in which they begin.
            let mut threads: Vec<Vec<Request>> = Vec::new();
            // Of each of them the position and the moment of the request before.
            let mut known: HashMap<Option<u64>, (usize, u64)> = HashMap::new();
            let (mut requests, mut files) = (0, Vec::<u32>::new());
            let mut used = HashSet::new();
            while let Some(step) = replay.next_step()? {
                let Step::Op { mut op, at_ns, thread } = step else { continue };
                all.recorded += 1;
                if let OpKind::Io(_) = op.kind {
                    used.insert(op.file);
                }
                if at_ns > cut_ns {
                    continue;
                }
                while files.len() <= op.file as usize {
                    let name = replay.file_name(files.len());
                    files.push(all.file(name));
                }
                op.file = files[op.file as usize];
                all.enter(&op);
                let (at, before_ns) = known.entry(thread).or_insert_with(|| {
                    threads.push(Vec::new());
                    (threads.len() - 1, 0)
                });
                threads[*at].push(Request { op, pause_ns: at_ns - *before_ns, depth });
                *before_ns = at_ns;
                all.duration_ns = all.duration_ns.max(at_ns);
                requests += 1;
                if requests > REQUESTS_MOST {
                    return Err(Error::Whole { log: name, what: format!("more than {REQUESTS_MOST} requests") });
                }
            }
            all.threads.append(&mut threads);
            for file in 0..replay.file_count() {
                let files = if used.contains(&(file as u32)) { &mut busy } else { &mut idle };
                files.insert(replay.file_name(file).to_owned());
            }
        }
        all.idle_files = idle.difference(&busy).cloned().collect();
        all.checked(&name)
    }

    /// The recording, if it has requests.
    ///
    /// # Errors
    /// No request at all.
    pub fn checked(mut self, log: &str) -> Result<Recording, Error> {
        self.threads.retain(|thread| !thread.is_empty());
        match self.threads.is_empty() {
            true => Err(Error::NoRequest { log: log.into() }),
            false => Ok(self),
        }
    }

    /// The index of a file, which is added if it is new.
    pub fn file(&mut self, name: &str) -> u32 {
        let known = self.files.iter().position(|file| file.name == name);
        known.unwrap_or_else(|| {
            self.files.push(FileUse { name: name.into(), ..FileUse::default() });
            self.files.len() - 1
        }) as u32
    }

    /// Takes note of the bytes of its file that a request touches.
    pub fn enter(&mut self, op: &Op) {
        if let OpKind::Io(direction) = op.kind {
            let file = &mut self.files[op.file as usize];
            file.bytes = file.bytes.max(op.offset.saturating_add(op.len));
            file.changed |= direction != Direction::Read;
        }
    }

    /// All requests.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.threads.iter().flatten()
    }

    /// Requests in flight at most, of all threads together.
    pub fn depth(&self) -> u64 {
        let deepest = |thread: &Vec<Request>| {
            let most = thread.iter().map(|request| request.depth).max().unwrap_or(0);
            u64::from(most).min(thread.len() as u64)
        };
        self.threads.iter().map(deepest).sum()
    }

    /// The facts that a run needs before it begins.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary { files: self.files.clone(), duration_ns: self.duration_ns, ..Summary::default() };
        for Request { op, .. } in self.requests() {
            let OpKind::Io(direction) = op.kind else { continue };
            summary.ops[direction] += 1;
            summary.bytes[direction] = summary.bytes[direction].saturating_add(op.len);
            if direction != Direction::Trim {
                summary.largest = summary.largest.max(op.len);
            }
        }
        summary
    }

    /// The smallest and the largest transfer in bytes, each way; 0 without any.
    pub fn block_bytes(&self) -> PerDirection<(u64, u64)> {
        let mut range = PerDirection::<(u64, u64)>::default();
        for Request { op, .. } in self.requests() {
            let OpKind::Io(direction) = op.kind else { continue };
            let (low, high) = range[direction];
            range[direction] = (if high == 0 { op.len } else { low.min(op.len) }, high.max(op.len));
        }
        range
    }

    /// Transfers per second as recorded; None if all requests have the same time.
    pub fn rate(&self) -> Option<f64> {
        let transfers: PerDirection<u64> = self.summary().ops;
        let transfers: u64 = Direction::ALL.into_iter().map(|direction| transfers[direction]).sum();
        (self.duration_ns > 0).then(|| transfers as f64 * 1e9 / self.duration_ns as f64)
    }
}

/// The next step of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This thread issues this request now.
    Issue(u32, Op),
    /// The next request is due at this time in nanoseconds, or earlier if a request ends before.
    Until(u64),
    /// Every thread waits for its requests.
    Wait,
    /// All requests have ended.
    Over,
}

/// A thread of a replay.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// The number of its next request.
    next: usize,
    in_flight: u32,
    /// The time at which its last request was issued.
    issued_ns: u64,
    /// True if it has a place in the queue of due requests.
    is_due: bool,
}

/// The replay of a recording at a speed: one pass. It keeps no clock; times are those that the caller gives.
#[derive(Debug)]
pub struct Pass {
    recording: Arc<Recording>,
    percent: u64,
    threads: Vec<Thread>,
    /// Times at which threads have a request due, the earliest first.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    in_flight: u64,
}

impl Pass {
    /// A pass that begins at `now_ns`, at `percent` of the recorded speed.
    pub fn new(recording: Arc<Recording>, percent: u32, now_ns: u64) -> Pass {
        let threads = vec![Thread { issued_ns: now_ns, ..Thread::default() }; recording.threads.len()];
        let percent = u64::from(percent.max(1));
        let mut pass = Pass { recording, percent, threads, due: BinaryHeap::new(), in_flight: 0 };
        for thread in 0..pass.threads.len() as u32 {
            pass.enqueue(thread, now_ns);
        }
        pass
    }

    /// The next step at `now_ns`. A request that is to be issued counts as issued then.
    pub fn turn(&mut self, now_ns: u64) -> Turn {
        let Some(&Reverse((at_ns, thread))) = self.due.peek() else {
            return if self.in_flight > 0 { Turn::Wait } else { Turn::Over };
        };
        if at_ns > now_ns {
            return Turn::Until(at_ns);
        }
        self.due.pop();
        let index = thread as usize;
        let state = &mut self.threads[index];
        let request = self.recording.threads[index][state.next];
        *state = Thread { next: state.next + 1, in_flight: state.in_flight + 1, issued_ns: now_ns, is_due: false };
        self.in_flight += 1;
        self.enqueue(thread, now_ns);
        Turn::Issue(thread, request.op)
    }

    /// Takes note that a request of a thread ended at `now_ns`.
    pub fn ended(&mut self, thread: u32, now_ns: u64) {
        self.threads[thread as usize].in_flight -= 1;
        self.in_flight -= 1;
        self.enqueue(thread, now_ns);
    }

    /// Gives a thread that may issue a place in the queue.
    fn enqueue(&mut self, thread: u32, now_ns: u64) {
        let state = &mut self.threads[thread as usize];
        let Some(request) = self.recording.threads[thread as usize].get(state.next) else { return };
        if state.is_due || state.in_flight >= request.depth.max(1) {
            return;
        }
        let pause_ns = (u128::from(request.pause_ns) * 100 / u128::from(self.percent)) as u64;
        let at_ns = match self.recording.since {
            Since::Issue => now_ns.max(state.issued_ns.saturating_add(pause_ns)),
            Since::Free => now_ns.saturating_add(pause_ns),
        };
        state.is_due = true;
        self.due.push(Reverse((at_ns, thread)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "fio version 3 iolog\n0 a add\n0 a open\n0 a read 0 4096\n1000 a read 4096 4096\n1000 a write 8192 512\n5000 a close\n";

    fn recording(depth: u32, logs: &[&str]) -> Recording {
        let logs = logs.iter().map(|log| ("log".to_string(), log.as_bytes())).collect();
        Recording::of_logs(logs, &crate::Job::default().iolog, depth, u64::MAX).unwrap()
    }

    /// The times at which requests are issued, if each takes `service_ns` and `servers` serve at once.
    fn simulate(recording: &Recording, percent: u32, service_ns: u64, servers: usize) -> Vec<(u64, u32)> {
        let mut pass = Pass::new(Arc::new(recording.clone()), percent, 0);
        let mut free = vec![0u64; servers];
        let mut ends: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        let (mut now, mut issued) = (0, Vec::new());
        loop {
            while let Some(&Reverse((at, thread))) = ends.peek()
                && at <= now
            {
                ends.pop();
                pass.ended(thread, now);
            }
            match pass.turn(now) {
                Turn::Issue(thread, _) => {
                    issued.push((now, thread));
                    let server = free.iter_mut().min().unwrap();
                    *server = now.max(*server) + service_ns;
                    ends.push(Reverse((*server, thread)));
                }
                Turn::Until(at) => now = ends.peek().map_or(at, |&Reverse((end, _))| end.min(at)),
                Turn::Wait => now = ends.peek().expect("a request in flight").0.0,
                Turn::Over => return issued,
            }
        }
    }

    #[test]
    fn a_log_is_a_thread_with_its_pauses() {
        let recording = recording(2, &[LOG]);
        let pauses: Vec<u64> = recording.requests().map(|request| request.pause_ns).collect();
        assert_eq!(pauses, [0, 1_000_000, 0]);
        assert_eq!((recording.depth(), recording.duration_ns, recording.recorded), (2, 1_000_000, 3));
        assert_eq!(recording.files, [FileUse { name: "a".into(), bytes: 8704, changed: true }]);
        assert_eq!(recording.rate(), Some(3000.0));
        assert_eq!(recording.summary().ops.read, 2);
    }

    #[test]
    fn a_log_that_names_its_threads_is_one_of_each() {
        let log = "fio version 3 iolog\n0 a add\n0 a open\n0 a read 0 4096 70\n400 a read 4096 4096 71\n\
                   1000 a write 8192 512 70\n1000 a datasync 0 0 71\n1500 a read 0 4096 70\n";
        let recording = recording(1, &[log, LOG]);
        let pauses: Vec<Vec<u64>> =
            recording.threads.iter().map(|thread| thread.iter().map(|request| request.pause_ns).collect()).collect();
        assert_eq!(pauses, [vec![0, 1_000_000, 500_000], vec![400_000, 600_000], vec![0, 1_000_000, 0]]);
        assert_eq!((recording.depth(), recording.duration_ns, recording.recorded), (3, 1_500_000, 8));
        // A thread that waits for the storage holds up its own requests alone.
        let mut issued = simulate(&recording, 1000, 10_000_000, 3);
        issued.retain(|(_, thread)| *thread == 1);
        assert_eq!(issued, [(40_000, 1), (10_040_000, 1)]);
    }

    #[test]
    fn a_cut_leaves_out_the_later_requests() {
        let options = crate::Job::default().iolog;
        let cut = |ns| Recording::of_logs(vec![("log".into(), LOG.as_bytes())], &options, 1, ns);
        let recording = cut(999_999).unwrap();
        assert_eq!((recording.requests().count(), recording.recorded, recording.duration_ns), (1, 3, 0));
        assert_eq!(recording.idle_files, [] as [&str; 0], "requests after the cut count");
        let opened = "fio version 3 iolog\n0 a add\n0 a open\n0 b add\n0 b open\n5 b read 0 4096\n9 a sync 0 0\n";
        let recording = Recording::of_logs(vec![("log".into(), opened.as_bytes())], &options, 1, u64::MAX).unwrap();
        assert_eq!(recording.idle_files, ["a"]);
        let empty = "fio version 3 iolog\n0 a add\n";
        let error = Recording::of_logs(vec![("log".into(), empty.as_bytes())], &options, 1, 0).unwrap_err();
        assert_eq!(error.to_string(), "log: no request to replay");
    }

    #[test]
    fn pauses_are_divided_and_a_thread_waits_for_its_requests() {
        let one = recording(1, &[LOG]);
        let at = |percent, service_ns| -> Vec<u64> {
            simulate(&one, percent, service_ns, 9).into_iter().map(|(at, _)| at).collect()
        };
        assert_eq!(at(100, 1000), [0, 1_000_000, 1_001_000]);
        assert_eq!(at(1000, 1000), [0, 100_000, 101_000]);
        assert_eq!(at(50, 1000), [0, 2_000_000, 2_001_000]);
        // The pause includes the time of the storage: a slow request takes its place.
        assert_eq!(at(100, 3_000_000), [0, 3_000_000, 6_000_000]);
        let two = recording(2, &[LOG]);
        let issued: Vec<u64> = simulate(&two, 100, 3_000_000, 9).into_iter().map(|(at, _)| at).collect();
        assert_eq!(issued, [0, 1_000_000, 3_000_000]);
    }

    #[test]
    fn a_pause_after_an_answer_begins_with_the_answer() {
        let mut one = recording(1, &[LOG]);
        one.since = Since::Free;
        let issued: Vec<u64> = simulate(&one, 200, 3_000_000, 9).into_iter().map(|(at, _)| at).collect();
        assert_eq!(issued, [0, 3_500_000, 6_500_000]);
    }

    /// Four threads that pause 10 ms, on a system with two servers of 1 ms: 400 requests a second at the recorded
    /// speed, and 2000 from five times that speed on.
    #[test]
    fn throughput_over_speed_has_the_known_line() {
        let log: String = (0..200).map(|n| format!("{} a read {} 4096\n", n * 10_000, n * 4096)).collect();
        let log = format!("fio version 3 iolog\n0 a add\n{log}");
        let four = recording(1, &[&log, &log, &log, &log]);
        let rate = |percent| {
            let issued = simulate(&four, percent, 1_000_000, 2);
            issued.len() as f64 * 1e9 / issued.last().unwrap().0 as f64
        };
        for (percent, expected) in [(100, 400.0), (200, 800.0), (400, 1600.0), (500, 2000.0), (1000, 2000.0)] {
            let rate = rate(percent);
            assert!((rate / expected - 1.0).abs() < 0.02, "{percent} %: {rate}, expected {expected}");
        }
    }

    #[test]
    fn a_thread_that_waits_holds_up_no_other() {
        let slow = "fio version 3 iolog\n0 a add\n0 a read 0 512\n9000000 a read 0 512\n";
        let quick = "fio version 3 iolog\n0 a add\n0 a read 0 512\n1000 a read 0 512\n2000 a read 0 512\n";
        let both = recording(1, &[slow, quick]);
        let issued = simulate(&both, 100, 10, 9);
        let of_quick: Vec<u64> = issued.iter().filter(|(_, thread)| *thread == 1).map(|(at, _)| *at).collect();
        assert_eq!(of_quick, [0, 1_000_000, 2_000_000]);
    }
}
