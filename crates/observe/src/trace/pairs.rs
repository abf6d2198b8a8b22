//! From the events of requests to their latencies.

use std::collections::{HashMap, VecDeque};

use measure::Histogram;

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A discard or a flush.
    Other,
}

/// The moment in the life of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The driver gets the request (block_rq_issue).
    Issue,
    /// The driver gives the request back, to get it once more later (block_rq_requeue).
    Requeue,
    /// The request, or a part of it, has completed (block_rq_complete).
    Complete,
}

/// A request at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The moment in nanoseconds.
    pub at_ns: u64,
    /// The step.
    pub step: Step,
    /// The number of the disk, as the kernel has it: the major number above 20 bits of the minor one.
    pub device: u32,
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// The number of sectors.
    pub sectors: u32,
    /// The direction.
    pub way: Way,
}

/// Latencies of requests, from the driver and back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Of requests that completed, in nanoseconds.
    pub completed: Histogram,
    /// Requests whose end was not seen: they were followed for some time and then given up.
    pub given_up: u64,
}

impl Latencies {
    /// The latency in nanoseconds that the fraction `q` of the requests does not exceed. A request that was given up
    /// counts as slower than all others; None where the answer is one of these, and without requests.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let (completed, all) = (self.completed.count(), self.requests());
        let rank = (q * all as f64).ceil().max(1.0);
        (completed > 0 && rank <= completed as f64).then(|| self.completed.quantile(rank / completed as f64))
    }

    /// All requests, those that were given up among them.
    pub fn requests(&self) -> u64 {
        self.completed.count() + self.given_up
    }

    /// Adds all requests of `other`.
    pub fn merge(&mut self, other: &Latencies) {
        self.completed.merge(&other.completed);
        self.given_up += other.given_up;
    }
}

/// Latencies by the number of the disk and the direction.
pub type ByDisk = HashMap<(u32, Way), Latencies>;

type Key = (u32, u64, Way);

/// The requests that the drivers have now, as far as their events told.
#[derive(Debug, Default)]
pub struct Pairs {
    /// By disk, first sector and direction, in the order of their issue: time and number of sectors. Two requests for
    /// the same place are rare, and the first counts as the first to end: the sum of their latencies is right in either
    /// order.
    waiting: HashMap<Key, VecDeque<(u64, u32)>>,
    count: usize,
}

impl Pairs {
    /// Requests that are followed now.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Takes an event into account; events come in the order of time. Completions of requests whose issue nobody saw
    /// are passed over.
    pub fn take(&mut self, event: Event, into: &mut ByDisk) {
        let key = (event.device, event.sector, event.way);
        match event.step {
            Step::Issue => self.put(key, (event.at_ns, event.sectors)),
            Step::Requeue => drop(self.pop(key)),
            Step::Complete => {
                let Some((issued_ns, sectors)) = self.pop(key) else { return };
                if event.sectors < sectors {
                    // The rest of the request completes later, and the request with it.
                    let rest = (event.device, event.sector + u64::from(event.sectors), event.way);
                    return self.put(rest, (issued_ns, sectors - event.sectors));
                }
                let latencies = into.entry((event.device, event.way)).or_default();
                latencies.completed.record(event.at_ns.saturating_sub(issued_ns));
            }
        }
    }

    /// Gives up all requests: their ends will not be seen.
    pub fn give_up(&mut self, into: &mut ByDisk) {
        for ((device, _, way), requests) in self.waiting.drain() {
            into.entry((device, way)).or_default().given_up += requests.len() as u64;
        }
        self.count = 0;
    }

    fn put(&mut self, key: Key, request: (u64, u32)) {
        self.waiting.entry(key).or_default().push_back(request);
        self.count += 1;
    }

    fn pop(&mut self, key: Key) -> Option<(u64, u32)> {
        let requests = self.waiting.get_mut(&key)?;
        let first = requests.pop_front();
        if requests.is_empty() {
            self.waiting.remove(&key);
        }
        self.count -= usize::from(first.is_some());
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u32 = 8 << 20;

    fn event(at_ns: u64, step: Step, sector: u64, sectors: u32) -> Event {
        Event { at_ns, step, device: DISK, sector, sectors, way: Way::Read }
    }

    fn of(events: &[Event]) -> (Latencies, usize) {
        let (mut pairs, mut found) = (Pairs::default(), ByDisk::new());
        events.iter().for_each(|event| pairs.take(*event, &mut found));
        (found.remove(&(DISK, Way::Read)).unwrap_or_default(), pairs.len())
    }

    #[test]
    fn a_latency_is_from_issue_to_completion() {
        use Step::{Complete, Issue};
        let (found, left) = of(&[
            event(10, Issue, 0, 8),
            event(20, Issue, 8, 8),
            event(50, Complete, 8, 8),
            event(110, Complete, 0, 8),
        ]);
        assert_eq!((found.completed.count(), found.completed.min(), found.completed.max(), left), (2, 30, 100, 0));
        // Another disk and another direction at the same sector are other requests.
        let other = Event { device: DISK + 16, ..event(50, Complete, 0, 8) };
        let write = Event { way: Way::Write, ..event(60, Complete, 0, 8) };
        assert_eq!(of(&[event(10, Issue, 0, 8), other, write]).1, 1);
    }

    #[test]
    fn completions_of_unseen_requests_are_passed_over() {
        assert_eq!(of(&[event(50, Step::Complete, 0, 8)]), (Latencies::default(), 0));
        assert_eq!(of(&[event(50, Step::Requeue, 0, 8)]), (Latencies::default(), 0));
    }

    #[test]
    fn two_requests_for_one_place_keep_the_sum_of_their_latencies() {
        use Step::{Complete, Issue};
        let (found, left) =
            of(&[event(10, Issue, 0, 8), event(20, Issue, 0, 8), event(50, Complete, 0, 8), event(70, Complete, 0, 8)]);
        assert_eq!((found.completed.sum(), left), (90, 0));
    }

    /// A driver without room gives the request back; its latency begins with the issue that counted.
    #[test]
    fn a_request_that_was_given_back_begins_anew() {
        use Step::{Complete, Issue, Requeue};
        let (found, left) =
            of(&[event(10, Issue, 0, 8), event(11, Requeue, 0, 8), event(90, Issue, 0, 8), event(100, Complete, 0, 8)]);
        assert_eq!((found.completed.count(), found.completed.max(), left), (1, 10, 0));
    }

    #[test]
    fn a_request_ends_with_its_last_part() {
        use Step::{Complete, Issue};
        let (found, left) = of(&[event(10, Issue, 0, 8), event(20, Complete, 0, 3), event(40, Complete, 3, 5)]);
        assert_eq!((found.completed.count(), found.completed.max(), left), (1, 30, 0));
    }

    #[test]
    fn requests_that_were_given_up_are_the_slowest() {
        let mut latencies = Latencies::default();
        (1..=98).for_each(|ns| latencies.completed.record(ns));
        latencies.given_up = 2;
        assert_eq!(latencies.quantile(0.5), Some(50));
        assert_eq!((latencies.quantile(0.98), latencies.quantile(0.99)), (Some(98), None));
        assert_eq!(Latencies { given_up: 3, ..Latencies::default() }.quantile(0.5), None);
        assert_eq!(Latencies::default().quantile(0.5), None);
        let (mut pairs, mut found) = (Pairs::default(), ByDisk::new());
        pairs.take(event(10, Step::Issue, 0, 8), &mut found);
        pairs.give_up(&mut found);
        assert_eq!((found[&(DISK, Way::Read)].given_up, pairs.len()), (1, 0));
    }
}
