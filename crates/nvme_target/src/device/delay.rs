//! A device whose ops end later than those of the device below: SPDK's bdev_delay, with its average and 99th
//! percentile.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Channel, Device, Done, Error, Io, Latency, Local};

pub(super) struct Delay {
    base: Arc<dyn Device>,
    latency_us: Arc<[AtomicU64; 4]>,
}

fn fields(latency: Latency) -> [u64; 4] {
    [latency.avg_read_us, latency.p99_read_us, latency.avg_write_us, latency.p99_write_us]
}

impl Delay {
    pub fn new(base: Arc<dyn Device>, latency: Latency) -> Delay {
        Delay { base, latency_us: Arc::new(fields(latency).map(AtomicU64::new)) }
    }
}

impl Device for Delay {
    fn block_bytes(&self) -> u32 {
        self.base.block_bytes()
    }

    fn bytes(&self) -> u64 {
        self.base.bytes()
    }

    fn open(&self, local: &Local) -> std::io::Result<Box<dyn Channel>> {
        Ok(Box::new(DelayChannel {
            base: self.base.open(local)?,
            latency_us: Arc::clone(&self.latency_us),
            below: HashMap::new(),
            ended: Vec::new(),
            waiting: Default::default(),
            ops: [0; 2],
        }))
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), Error> {
        self.base.resize(bytes)
    }

    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.base)
    }

    fn set_latency(&self, latency: Latency) -> bool {
        for (to, from) in self.latency_us.iter().zip(fields(latency)) {
            to.store(from, Ordering::Relaxed);
        }
        true
    }

    fn latency(&self) -> Option<Latency> {
        let [avg_read_us, p99_read_us, avg_write_us, p99_write_us] =
            self.latency_us.each_ref().map(|us| us.load(Ordering::Relaxed));
        Some(Latency { avg_read_us, p99_read_us, avg_write_us, p99_write_us })
    }
}

struct DelayChannel {
    base: Box<dyn Channel>,
    latency_us: Arc<[AtomicU64; 4]>,
    /// The ops in the device below by tag, each with the number of the latency, of four, that it will wait.
    below: HashMap<u64, usize>,
    ended: Vec<Done>,
    /// The waiting ops of each latency, in order of their end.
    waiting: [VecDeque<(u64, Done)>; 4],
    /// Reads and writes so far: every hundredth waits for the 99th percentile.
    ops: [u32; 2],
}

impl DelayChannel {
    /// Makes the ops that the device below has ended wait for their time.
    fn hold(&mut self, now_ns: u64) {
        for done in self.ended.drain(..) {
            let class = self.below.remove(&done.tag).unwrap_or_default();
            // A latency of centuries is allowed: such an op ends when it is aborted.
            let latency_ns = self.latency_us[class].load(Ordering::Relaxed).saturating_mul(1000);
            let until = now_ns.saturating_add(latency_ns);
            // Behind those that end before it: the latency may have become smaller meanwhile.
            let waiting = &mut self.waiting[class];
            let place = waiting.iter().rposition(|(other, _)| *other <= until).map_or(0, |before| before + 1);
            waiting.insert(place, (until, done));
        }
    }

    fn release(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        for waiting in &mut self.waiting {
            while waiting.front().is_some_and(|(until, _)| *until <= now_ns) {
                done.extend(waiting.pop_front().map(|(_, ended)| ended));
            }
        }
    }
}

impl Channel for DelayChannel {
    fn submit(&mut self, now_ns: u64, io: Io, done: &mut Vec<Done>) {
        let direction = usize::from(io.kind.is_write());
        self.ops[direction] = (self.ops[direction] + 1) % 100;
        let class = 2 * direction + usize::from(self.ops[direction] == 50);
        self.below.insert(io.tag, class);
        self.base.submit(now_ns, io, &mut self.ended);
        self.hold(now_ns);
        self.release(now_ns, done);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        self.base.poll(now_ns, &mut self.ended);
        self.hold(now_ns);
        self.release(now_ns, done);
    }

    /// Ends an op that only waits for its time; an op that is still in the device below ends if that device can cancel
    /// it.
    fn cancel(&mut self, tag: u64, done: &mut Vec<Done>) -> bool {
        for waiting in &mut self.waiting {
            let mine = waiting.iter().position(|(_, ended)| ended.tag == tag);
            if let Some((_, ended)) = mine.and_then(|index| waiting.remove(index)) {
                done.push(Done { result: Err(libc::ECANCELED), ..ended });
                return true;
            }
        }
        let is_cancelled = self.base.cancel(tag, done);
        if is_cancelled {
            self.below.remove(&tag);
        }
        is_cancelled
    }

    fn wake_ns(&self) -> Option<u64> {
        let own = self.waiting.iter().filter_map(|waiting| waiting.front().map(|(until, _)| *until)).min();
        own.into_iter().chain(self.base.wake_ns()).min()
    }
}
