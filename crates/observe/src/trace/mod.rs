//! Latencies of single requests, from the tracepoints of the block layer.
//!
//! ```text
//! rings of the kernel ─► format (bytes ─► events) ─► in order of time ─► pairs (issue, end ─► latency) ─► histograms
//!        ▲                                                                                      │
//!        └──────────────────────────── budget: what is traced from now on ◄────────────────────┘
//! ```

mod budget;
mod format;
mod pairs;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock;
use sys::tracepoint::{Record, Rings, Tracefs};

use budget::{Budget, Phase};
use format::Format;
use pairs::{Event, Pairs, Step};

pub use budget::EVENTS_PER_SECOND;
pub use pairs::{ByDisk, Latencies, Way};

/// The tracepoints, in this order: an end that is on before its issue is on does no harm.
const POINTS: [(&str, Step); 3] = [
    ("events/block/block_rq_complete/", Step::Complete),
    ("events/block/block_rq_requeue/", Step::Requeue),
    ("events/block/block_rq_issue/", Step::Issue),
];
/// Bytes of each ring: one of each tracepoint for each processor.
const RING_BYTES: usize = 128 << 10;
/// Rings are looked at this often, and when one is half full.
const TICK: Duration = Duration::from_millis(50);
/// Processors write their records in their own time: an event counts as the next one when it is this old.
const SETTLED_NS: u64 = 2_000_000;

/// The reason why this host gives no latencies of single requests.
#[derive(Debug)]
pub struct Unavailable {
    /// The thing that failed.
    what: &'static str,
    source: io::Error,
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cause = match self.source.kind() {
            io::ErrorKind::PermissionDenied => "run as root",
            io::ErrorKind::NotFound => "this kernel has no such tracepoints",
            _ => "this kernel or its settings do not offer tracepoints",
        };
        write!(f, "cannot {}: {}: {cause}", self.what, self.source)
    }
}

// No source(): the text holds it, and a caller that prints the chain of causes would print it twice.
impl std::error::Error for Unavailable {}

/// Traces the requests of this host's disks, in a thread, until it is dropped.
pub struct Tracer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    found: Mutex<Traced>,
}

/// Latencies since the last look.
#[derive(Debug, Default)]
pub struct Traced {
    /// By disk and direction.
    pub by_disk: ByDisk,
    /// True if some requests were left out, to bound the cost.
    pub is_part: bool,
}

impl Shared {
    fn found(&self) -> MutexGuard<'_, Traced> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracer {
    /// Begins to trace the disks of these numbers (as in [`ByDisk`]); all disks if there are none.
    ///
    /// # Errors
    /// [`Unavailable`] without rights, and on kernels without these tracepoints.
    pub fn start(disks: &[u32]) -> Result<Tracer, Unavailable> {
        let failed = |what| move |source| Unavailable { what, source };
        let tracefs = Tracefs::open().map_err(failed("open tracefs"))?;
        let format = |(path, _): &(&str, Step)| {
            let text = tracefs.read(&format!("{path}format"))?;
            Format::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its format is unknown"))
        };
        let formats: Vec<Format> = POINTS
            .iter()
            .map(format)
            .collect::<Result<_, _>>()
            .map_err(failed("read the block layer's tracepoints"))?;
        // A filter has room for a page of text, and few disks are what it is good for.
        let filter = match disks {
            [_, ..] if disks.len() <= 64 => disks.iter().map(|disk| format!("dev == {disk}")).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let mut at_work = AtWork {
            rings: None,
            formats,
            filter: filter.join(" || "),
            shared: Arc::default(),
            budget: Budget::new(0),
        };
        at_work.open().map_err(failed("trace the block layer"))?;
        let shared = Arc::clone(&at_work.shared);
        let thread = std::thread::Builder::new().name("tracer".into()).spawn(move || at_work.work());
        Ok(Tracer { shared, thread: Some(thread.map_err(failed("start a thread"))?) })
    }

    /// The latencies of the requests that completed since the last call.
    pub fn take(&self) -> Traced {
        std::mem::take(&mut *self.shared.found())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct AtWork {
    /// None while they cannot be opened once more, after processors came or went.
    rings: Option<Rings>,
    formats: Vec<Format>,
    filter: String,
    shared: Arc<Shared>,
    budget: Budget,
}

impl AtWork {
    /// Opens the rings for the processors of this moment, and begins with everything on.
    fn open(&mut self) -> io::Result<()> {
        let numbers: Vec<u64> = self.formats.iter().map(|format| format.number).collect();
        let mut rings = Rings::open(&numbers, RING_BYTES, &self.filter)?;
        self.budget = Budget::new(clock::monotonic_ns());
        (0..POINTS.len()).try_for_each(|point| rings.switch(point, true))?;
        self.rings = Some(rings);
        Ok(())
    }

    fn work(mut self) {
        let (mut pairs, mut fresh, mut phase) = (Pairs::default(), Vec::<Event>::new(), Phase::All);
        while !self.shared.stop.load(Relaxed) {
            if self.rings.as_ref().is_none_or(Rings::is_stale) {
                self.rings = None;
                fresh.clear();
                self.give_up(&mut pairs);
                if self.open().is_err() {
                    std::thread::sleep(TICK);
                    continue;
                }
                phase = Phase::All;
            }
            let Some(rings) = &mut self.rings else { continue };
            if rings.wait(TICK).is_err() {
                std::thread::sleep(TICK);
            }
            // Read before the rings are: an event of a later moment may be in a ring that was already read, while its
            // successors in another ring are still to be read.
            let now_ns = clock::monotonic_ns();
            let (events, lost) = read(rings, &self.formats, &mut fresh);
            if lost {
                // An end may be among the lost, and a request that took its place.
                fresh.clear();
                self.give_up(&mut pairs);
            }
            fresh.sort_by_key(|event| event.at_ns);
            let settled = fresh.partition_point(|event| event.at_ns + SETTLED_NS <= now_ns);
            let mut found = self.shared.found();
            fresh.drain(..settled).for_each(|event| pairs.take(event, &mut found.by_disk));
            pairs.expire(now_ns, &mut found.by_disk);
            found.is_part |= phase != Phase::All;
            drop(found);
            let chance = (now_ns / 1000 % 1000) as f64 / 1000.0;
            let next = self.budget.next(now_ns, events, pairs.len() + fresh.len(), chance);
            if next != phase {
                self.turn(next);
                if next == Phase::Nothing {
                    fresh.clear();
                    self.give_up(&mut pairs);
                }
                phase = next;
            }
        }
    }

    /// Switches the tracepoints for a phase. Records that nobody waits for any more are forgotten.
    fn turn(&mut self, phase: Phase) {
        let Some(rings) = &mut self.rings else { return };
        let issues = POINTS.len() - 1;
        let all = 0..POINTS.len();
        let switched = match phase {
            Phase::All => all.into_iter().try_for_each(|point| rings.switch(point, true)),
            Phase::Ends => rings.switch(issues, false),
            Phase::Nothing => all.rev().try_for_each(|point| rings.switch(point, false)),
        };
        if phase == Phase::Nothing {
            rings.drain(|_, _| {});
        }
        if switched.is_err() {
            // Half of the switches would leave pairs without ends: begin anew.
            self.rings = None;
        }
    }

    /// The ends of the requests that are followed will not be seen.
    fn give_up(&self, pairs: &mut Pairs) {
        let mut found = self.shared.found();
        found.is_part |= pairs.len() > 0;
        pairs.give_up(&mut found.by_disk);
    }
}

/// Appends the events of all rings to `fresh`. Returns the number of records, and true if records were lost.
fn read(rings: &mut Rings, formats: &[Format], fresh: &mut Vec<Event>) -> (usize, bool) {
    let (mut records, mut lost) = (0, false);
    rings.drain(|point, record| {
        records += 1;
        match record {
            Record::Passed { at_ns, raw } => fresh.extend(formats[point].event(POINTS[point].1, at_ns, raw)),
            Record::Lost => lost = true,
        }
    });
    (records, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_said_once() {
        let denied = Unavailable { what: "open tracefs", source: io::ErrorKind::PermissionDenied.into() };
        assert_eq!(denied.to_string(), "cannot open tracefs: permission denied: run as root");
        assert!(std::error::Error::source(&denied).is_none(), "whoever prints the chain prints it twice");
    }
}
