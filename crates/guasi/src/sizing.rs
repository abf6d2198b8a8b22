//! The size of the pool: as many workers as keep the processors busy, not as many as there are requests.
//!
//! Two rules. A worker that has been in its function for longer than [`FRESH_NS`] is taken to be blocked; while fewer
//! than one worker per processor is fresh, and requests wait, another is added at once. Above [`FREE_LIMIT`] workers
//! the limit itself is raised only as long as that raises the rate at which calls are begun (hill climbing), or
//! when no call was begun at all for [`STALL_NS`]: 10,000 queued reads of one disk do not make 10,000 threads, while
//! 10,000 calls that wait for 10,000 different peers do. Pure: time is passed in.

/// A function that has run this long without coming back is taken to be blocked.
pub(crate) const FRESH_NS: u64 = 10_000;
/// Workers that may be added without proof that they help: enough to fill the queue of a disk.
pub(crate) const FREE_LIMIT: usize = 64;
/// The workers are stuck if no call has begun for this long while some wait.
const STALL_NS: u64 = 10_000_000;
/// A rate is taken over at least this long, and over twice as many calls as there are workers...
const EPOCH_NS: u64 = 10_000_000;
/// ...unless that takes longer than this.
const LONG_EPOCH_NS: u64 = 200_000_000;
/// A raise has to bring this much to be kept.
const GAIN: f64 = 1.05;
/// After a raise that brought nothing, the next one is tried this much later.
const HOLD_NS: u64 = 2_000_000_000;

/// The pool at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub now_ns: u64,
    /// Requests that wait for a worker.
    pub backlog: usize,
    /// Workers that are not parked.
    pub running: usize,
    /// Running workers that are between two functions, or have been in one for less than FRESH_NS.
    pub fresh: usize,
    /// Calls begun since the pool was made.
    pub begun: u64,
}

/// The rules of the module: how many workers the pool may have, and when it gets more.
#[derive(Debug)]
pub(crate) struct Sizing {
    cpus: usize,
    max: usize,
    limit: usize,
    epoch: Option<(u64, u64)>,
    /// The limit before the last raise, and the rate of calls at that limit.
    raised_from: Option<(usize, f64)>,
    hold_until_ns: u64,
}

impl Sizing {
    /// The rules for `cpus` processors, with at most `max` workers (0 for no limit); `min` workers are always allowed.
    pub fn new(cpus: usize, min: usize, max: usize) -> Sizing {
        let max = if max == 0 { usize::MAX } else { max.max(min) };
        let limit = FREE_LIMIT.max(4 * cpus).max(min).min(max);
        Sizing { cpus: cpus.max(1), max, limit, epoch: None, raised_from: None, hold_until_ns: 0 }
    }

    /// Workers that may run at this moment.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The number of workers to add now.
    pub fn more(&self, load: Load) -> usize {
        let needed = match (load.running, load.fresh) {
            (0, _) => 1,
            (running, 0) => self.cpus.max(running / 4),
            (_, fresh) => self.cpus.saturating_sub(fresh),
        };
        needed.min(load.backlog).min(self.limit.saturating_sub(load.running))
    }

    /// Moves the limit; called every now and then while requests wait.
    pub fn adjust(&mut self, load: Load) {
        if load.backlog == 0 || load.running < self.limit || self.limit >= self.max && self.raised_from.is_none() {
            self.epoch = None;
            return;
        }
        let Some((since_ns, begun)) = self.epoch else {
            self.epoch = Some((load.now_ns, load.begun));
            return;
        };
        let elapsed_ns = load.now_ns.saturating_sub(since_ns);
        let calls = load.begun - begun;
        if calls == 0 && elapsed_ns >= STALL_NS {
            self.raised_from = None;
            self.raise(self.limit / 4);
            return;
        }
        if elapsed_ns < EPOCH_NS || (calls < 2 * load.running as u64 && elapsed_ns < LONG_EPOCH_NS) {
            return;
        }
        let rate = calls as f64 / elapsed_ns as f64;
        match self.raised_from.take() {
            Some((before, old_rate)) if rate < old_rate * GAIN => {
                self.limit = before;
                self.hold_until_ns = load.now_ns + HOLD_NS;
                self.epoch = None;
            }
            _ if load.now_ns < self.hold_until_ns => self.epoch = None,
            _ => {
                self.raised_from = Some((self.limit, rate));
                self.raise(self.limit / 2);
            }
        }
    }

    fn raise(&mut self, by: usize) {
        self.limit = self.limit.saturating_add(by.max(self.cpus)).min(self.max);
        self.epoch = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs the policy against a model: calls take `think_ns` of a processor and wait `wait_ns`, but no more than
    /// `device` of them make progress at a time. Returns the number of workers it settles on.
    fn settle(cpus: usize, max: usize, wait_ns: u64, device: usize) -> usize {
        let mut sizing = Sizing::new(cpus, 0, max);
        let (mut running, mut begun, mut carry) = (0usize, 0u64, 0.0);
        for tick in 0..100_000u64 {
            let now_ns = tick * 100_000;
            let served = running.min(device) as f64 * 100_000.0 / wait_ns as f64;
            carry += served;
            begun += carry as u64;
            carry -= carry.floor();
            let latency_ns = wait_ns as f64 * (running as f64 / device as f64).max(1.0);
            let fresh = (running as f64 * FRESH_NS as f64 / latency_ns) as usize;
            let load = Load { now_ns, backlog: 10_000, running, fresh, begun };
            sizing.adjust(load);
            running = (running + sizing.more(load)).min(sizing.limit());
        }
        running
    }

    #[test]
    fn one_worker_for_the_first_call() {
        let load = Load { backlog: 1, ..Load::default() };
        assert_eq!(Sizing::new(2, 0, 0).more(load), 1);
    }

    #[test]
    fn calls_that_do_not_block_get_a_worker_per_processor() {
        let load = Load { backlog: 1000, running: 2, fresh: 2, ..Load::default() };
        assert_eq!(Sizing::new(2, 0, 0).more(load), 0);
    }

    #[test]
    fn a_saturated_disk_does_not_get_a_thread_per_request() {
        let workers = settle(4, 0, 100_000, 32);
        assert!((32..=FREE_LIMIT * 3 / 2).contains(&workers), "{workers}");
    }

    #[test]
    fn calls_that_wait_for_different_peers_get_as_many_as_they_need() {
        let workers = settle(2, 0, 10_000_000, 10_000);
        assert!(workers >= 2_000, "{workers}");
    }

    #[test]
    fn stuck_calls_get_more_workers_and_the_maximum_holds() {
        assert_eq!(settle(2, 500, 3_600_000_000_000, 10_000), 500);
        assert_eq!(settle(2, 3, 10_000_000, 10_000), 3);
    }
}
