//! A device that fails on demand: errors, short transfers, ops that end late or never. For tests of hosts and of the
//! target.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::{Channel, Device, Done, Effect, Error, Fault, FaultOn, Io, IoKind, Local};

pub(super) struct Faulty {
    base: Arc<dyn Device>,
    rules: Arc<Rules>,
    seed: u64,
    channels: AtomicU64,
}

/// The faults in force, and how often they have changed.
#[derive(Default)]
struct Rules {
    changes: AtomicU64,
    faults: Mutex<Vec<Rule>>,
}

#[derive(Clone)]
struct Rule {
    fault: Fault,
    left: Arc<AtomicU64>,
}

impl Faulty {
    pub fn new(base: Arc<dyn Device>, seed: u64) -> Faulty {
        Faulty { base, rules: Arc::default(), seed, channels: AtomicU64::new(0) }
    }
}

impl Device for Faulty {
    fn block_bytes(&self) -> u32 {
        self.base.block_bytes()
    }

    fn bytes(&self) -> u64 {
        self.base.bytes()
    }

    fn open(&self, local: &Local) -> std::io::Result<Box<dyn Channel>> {
        // Reactors must not all fail the same ops.
        let number = self.channels.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FaultyChannel {
            base: self.base.open(local)?,
            rules: Arc::clone(&self.rules),
            seen: 0,
            active: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(self.seed ^ number.rotate_left(32)),
            block: self.base.block_bytes(),
            slow_below: HashMap::new(),
            ended: Vec::new(),
            late: Vec::new(),
            stuck: Vec::new(),
        }))
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), Error> {
        self.base.resize(bytes)
    }

    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.base)
    }

    fn set_faults(&self, faults: &[Fault]) -> bool {
        let rules = faults
            .iter()
            .map(|fault| Rule { fault: *fault, left: Arc::new(fault.count.unwrap_or(u64::MAX).into()) })
            .collect();
        *self.rules.faults.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        self.rules.changes.fetch_add(1, Ordering::Release);
        true
    }
}

impl FaultOn {
    fn matches(self, kind: IoKind) -> bool {
        match self {
            FaultOn::All => true,
            FaultOn::Reads => kind == IoKind::Read,
            FaultOn::Writes => matches!(kind, IoKind::Write | IoKind::WriteZeroes),
            FaultOn::Flushes => kind == IoKind::Flush,
            FaultOn::Deallocates => kind == IoKind::Deallocate,
        }
    }
}

struct FaultyChannel {
    base: Box<dyn Channel>,
    rules: Arc<Rules>,
    /// The change of the rules that `active` is a copy of.
    seen: u64,
    active: Vec<Rule>,
    random: Xoshiro256PlusPlus,
    block: u32,
    /// The late ops in the device below by tag, each with the nanoseconds that it will be late.
    slow_below: HashMap<u64, u64>,
    ended: Vec<Done>,
    late: Vec<(u64, Done)>,
    /// The ops that never end; the flag is true for those that can be cancelled.
    stuck: Vec<(Io, bool)>,
}

impl FaultyChannel {
    fn refresh(&mut self, done: &mut Vec<Done>) {
        let changes = self.rules.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.seen = changes;
            self.active.clone_from(&self.rules.faults.lock().unwrap_or_else(PoisonError::into_inner));
            let cleared = |(io, _): (Io, bool)| Done { tag: io.tag, result: Err(libc::EIO), buffer: io.buffer };
            done.extend(self.stuck.drain(..).map(cleared));
        }
    }

    fn fault_of(&mut self, kind: IoKind) -> Option<Effect> {
        for rule in &self.active {
            if rule.fault.on.matches(kind)
                && self.random.next_u64().is_multiple_of(u64::from(rule.fault.one_in.max(1)))
                && rule.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                return Some(rule.fault.effect);
            }
        }
        None
    }

    fn forward(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        for ended in self.ended.drain(..) {
            match self.slow_below.remove(&ended.tag) {
                Some(ns) => self.late.push((now_ns.saturating_add(ns), ended)),
                None => done.push(ended),
            }
        }
    }
}

impl Channel for FaultyChannel {
    fn submit(&mut self, now_ns: u64, mut io: Io, done: &mut Vec<Done>) {
        self.refresh(done);
        match self.fault_of(io.kind) {
            Some(Effect::Fail) => return done.push(Done { tag: io.tag, result: Err(libc::EIO), buffer: io.buffer }),
            Some(Effect::Never) => return self.stuck.push((io, true)),
            Some(Effect::Stuck) => return self.stuck.push((io, false)),
            Some(Effect::Slow { us }) => {
                self.slow_below.insert(io.tag, us.saturating_mul(1000));
            }
            Some(Effect::Short) if matches!(io.kind, IoKind::Read | IoKind::Write) => {
                let half = io.len / 2 / u64::from(self.block) * u64::from(self.block);
                io.len = if half > 0 { half } else { io.len };
            }
            Some(Effect::Short) | None => {}
        }
        self.base.submit(now_ns, io, &mut self.ended);
        self.forward(now_ns, done);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        self.refresh(done);
        self.base.poll(now_ns, &mut self.ended);
        self.forward(now_ns, done);
        for index in (0..self.late.len()).rev() {
            if self.late[index].0 <= now_ns {
                done.push(self.late.swap_remove(index).1);
            }
        }
    }

    /// Ends an op now, also one that never ends, unless it is stuck, and one that is late.
    fn cancel(&mut self, tag: u64, done: &mut Vec<Done>) -> bool {
        if let Some(index) = self.stuck.iter().position(|(io, _)| io.tag == tag) {
            if !self.stuck[index].1 {
                return false;
            }
            let (io, _) = self.stuck.swap_remove(index);
            done.push(Done { tag, result: Err(libc::ECANCELED), buffer: io.buffer });
            return true;
        }
        if let Some(index) = self.late.iter().position(|(_, ended)| ended.tag == tag) {
            let (_, ended) = self.late.swap_remove(index);
            done.push(Done { result: Err(libc::ECANCELED), ..ended });
            return true;
        }
        let is_cancelled = self.base.cancel(tag, done);
        if is_cancelled {
            self.slow_below.remove(&tag);
        }
        is_cancelled
    }

    fn wake_ns(&self) -> Option<u64> {
        let own = self.late.iter().map(|(until, _)| *until).min();
        own.into_iter().chain(self.base.wake_ns()).min()
    }
}
