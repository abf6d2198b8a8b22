//! From the events of requests to their latencies.

use std::collections::HashMap;

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
    /// the same place are rare, and the last counts as the first to end: the sum of their latencies is right in either
    /// order, and a request whose end nobody saw stays behind, where no later request finds it.
    waiting: HashMap<Key, Vec<(u64, u32)>>,
    count: usize,
}

/// A request that has not ended after this time is given up: its end is lost, or comes too late to count here. Drivers
/// give a request up after 30 s (/sys/block/*/queue/io_timeout).
pub const EXPIRES_NS: u64 = 60_000_000_000;

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
            Step::Requeue => drop(self.pop(key, event.sectors)),
            Step::Complete => {
                let Some((issued_ns, sectors)) = self.pop(key, event.sectors) else { return };
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

    /// Gives up the requests that were issued more than [`EXPIRES_NS`] before `now_ns`.
    pub fn expire(&mut self, now_ns: u64, into: &mut ByDisk) {
        let is_young = |(issued_ns, _): &(u64, u32)| issued_ns + EXPIRES_NS >= now_ns;
        self.waiting.retain(|(device, _, way), requests| {
            let before = requests.len();
            requests.retain(is_young);
            let expired = before - requests.len();
            if expired > 0 {
                into.entry((*device, *way)).or_default().given_up += expired as u64;
                self.count -= expired;
            }
            !requests.is_empty()
        });
    }

    fn put(&mut self, key: Key, request: (u64, u32)) {
        self.waiting.entry(key).or_default().push(request);
        self.count += 1;
    }

    /// The latest request of a place of which `sectors` can be a part. An end without sectors is that of a flush around
    /// a request, and not of another request that begins there.
    fn pop(&mut self, key: Key, sectors: u32) -> Option<(u64, u32)> {
        let requests = self.waiting.get_mut(&key)?;
        let is_whole = |(_, all): &(u64, u32)| if sectors == 0 { *all == 0 } else { *all >= sectors };
        let request = requests.remove(requests.iter().rposition(is_whole)?);
        if requests.is_empty() {
            self.waiting.remove(&key);
        }
        self.count -= 1;
        Some(request)
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

    #[test]
    fn a_request_whose_end_was_lost_pairs_with_no_later_one_and_expires() {
        use Step::{Complete, Issue};
        let mut events = vec![event(10, Issue, 0, 8)];
        for at in 1..=100 {
            events.extend([event(at * 1000, Issue, 0, 8), event(at * 1000 + 30, Complete, 0, 8)]);
        }
        let (mut pairs, mut found) = (Pairs::default(), ByDisk::new());
        events.iter().for_each(|event| pairs.take(*event, &mut found));
        let latencies = &found[&(DISK, Way::Read)];
        assert_eq!((latencies.completed.count(), latencies.completed.max(), pairs.len()), (100, 30, 1));
        pairs.expire(10 + EXPIRES_NS, &mut found);
        assert_eq!((found[&(DISK, Way::Read)].given_up, pairs.len()), (0, 1), "as old as it may be");
        pairs.expire(11 + EXPIRES_NS, &mut found);
        assert_eq!((found[&(DISK, Way::Read)].given_up, pairs.len()), (1, 0));
    }

    #[test]
    fn an_end_that_is_larger_than_a_request_or_empty_is_not_its_end() {
        use Step::{Complete, Issue};
        let (found, left) = of(&[event(10, Issue, 0, 8), event(20, Complete, 0, 96), event(25, Complete, 0, 0)]);
        assert_eq!((found.completed.count(), left), (0, 1));
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
