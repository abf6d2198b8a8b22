//! Properties of every method: no op lost, doubled or starved; windows and budgets kept at every instant; admin never
//! held; nothing waits while there is room.

use std::collections::{BTreeMap, BTreeSet};

use pace::{Admission, Admit, Config, Credits, Limits, Method, Op, OpId, Purge, Refusal};
use proptest::prelude::*;

const LIMITS: Limits = Limits { ops: 64, drives: 4, tenants: 3 };

fn method(text: &str) -> Config {
    Config::parse(text, 1024).unwrap()
}

/// Every method, small enough that its limit is met often.
fn configs() -> Vec<Config> {
    vec![
        Config::none(),
        Config { method: Method::None, budget_bytes: Some(600_000) },
        Config::auto(None),
        Config::auto(Some(600_000)),
        Config::auto(Some(1 << 20)),
        method("buffers:5"),
        Config {
            method: Method::Buffers { count: 7, unit_bytes: 131_072, cache_per_core: 2, cores: 3 },
            budget_bytes: None,
        },
        method("rate:30"),
        Config {
            method: Method::Rate {
                credits: Credits { cores: 2, drive_credit: 1, bypass_bytes: 4096, ..Credits::every(20.0) },
            },
            budget_bytes: Some(900_000),
        },
        Config {
            method: Method::RateDelivered {
                credits: Credits { credit_bytes: 65_536, cores: 2, ..Credits::every(20.0) },
                tuner_period_us: 500,
                tuner_step_ns: 1000,
            },
            budget_bytes: None,
        },
        Config {
            method: Method::RateInFlight {
                credits: Credits::every(20.0),
                tuner_period_us: 300,
                threshold_bytes: 300_000,
                ns_per_mib: 4000,
            },
            budget_bytes: None,
        },
        method("iops:40000"),
        method("bw:2000000000"),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Admit { drive: u32, tenant: u32, queue: u32, bytes: u32, write: bool, admin: bool },
    Complete(usize),
    CompleteTwice(usize),
    Abort(usize),
    Purge(Purge),
    SetAside(usize),
    Pause(u32),
    Resume(u32),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![Just(0u32), Just(512), Just(4096), Just(16_384), Just(65_536), Just(131_072), 1u32..300_000];
    let id = || prop::option::of(0u32..3);
    prop_oneof![
        10 => (0u32..4, 0u32..3, 0u32..3, size, any::<bool>(), prop::bool::weighted(0.05))
            .prop_map(|(drive, tenant, queue, bytes, write, admin)| Step::Admit { drive, tenant, queue, bytes, write, admin }),
        6 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::CompleteTwice),
        1 => any::<usize>().prop_map(Step::Abort),
        1 => (id(), id(), id()).prop_map(|(drive, tenant, queue)| Step::Purge(Purge { drive, tenant, queue })),
        1 => any::<usize>().prop_map(Step::SetAside),
        1 => (0u32..3).prop_map(Step::Pause),
        1 => (0u32..3).prop_map(Step::Resume),
        4 => (1u32..200_000).prop_map(Step::Wait),
    ]
}

/// The reference: who is where, by cookie.
struct World {
    pacer: Box<dyn Admission>,
    budget: u64,
    now: u64,
    next_cookie: u64,
    ops: BTreeMap<u64, Op>,
    held: BTreeMap<u64, OpId>,
    flying: BTreeMap<u64, OpId>,
    done: BTreeSet<u64>,
    /// True if the method has queues to pause and ops to set aside, and those that are.
    is_auto: bool,
    paused: BTreeSet<u32>,
    aside: BTreeSet<u64>,
}

impl World {
    fn new(config: &Config) -> World {
        let budget = match config.method {
            Method::Buffers { count, unit_bytes, .. } => u64::from(count) * u64::from(unit_bytes),
            _ => config.budget_bytes.unwrap_or(u64::MAX),
        };
        World {
            pacer: config.build(LIMITS).unwrap(),
            budget,
            now: 1_000_000,
            next_cookie: 0,
            ops: BTreeMap::new(),
            held: BTreeMap::new(),
            flying: BTreeMap::new(),
            done: BTreeSet::new(),
            is_auto: matches!(config.method, Method::Auto { .. }),
            paused: BTreeSet::new(),
            aside: BTreeSet::new(),
        }
    }

    fn flying_bytes(&self) -> u64 {
        self.flying.keys().map(|c| u64::from(self.ops[c].bytes)).sum()
    }

    /// The bytes in flight that the window counts.
    fn moving_bytes(&self) -> u64 {
        self.flying.keys().filter(|c| !self.aside.contains(c)).map(|c| u64::from(self.ops[c].bytes)).sum()
    }

    /// Notes that an op was let through just now.
    fn admitted(&mut self, cookie: u64, id: OpId) {
        assert!(!self.done.contains(&cookie), "cookie {cookie} came twice");
        assert!(self.flying.insert(cookie, id).is_none(), "cookie {cookie} admitted twice");
        assert!(!self.paused.contains(&self.ops[&cookie].queue), "cookie {cookie} is of a paused queue");
        let bytes = self.flying_bytes();
        assert!(bytes <= self.budget, "budget {} exceeded: {bytes}", self.budget);
        let moving = self.moving_bytes();
        assert!(moving <= self.pacer.window_bytes() || moving == u64::from(self.ops[&cookie].bytes));
    }

    fn drain_poll(&mut self) {
        while let Some(released) = self.pacer.poll(self.now) {
            let id = self.held.remove(&released.cookie).expect("only held ops are released");
            assert_eq!(id, released.id, "the handle stays the same");
            self.admitted(released.cookie, released.id);
        }
        let stats = self.pacer.stats();
        assert_eq!(stats.total.held_now, self.held.len() as u64);
        assert_eq!(stats.total.in_flight, self.flying.len() as u64);
        assert_eq!(stats.total.in_flight_bytes, self.flying_bytes());
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Admit { drive, tenant, queue, bytes, write, admin } => {
                let cookie = self.next_cookie;
                self.next_cookie += 1;
                let op = Op { drive, tenant, queue, bytes, write, admin, cookie };
                self.ops.insert(cookie, op);
                match self.pacer.admit(self.now, op) {
                    Admit::Go(OpId::UNTRACKED) => assert!(admin),
                    Admit::Go(id) => {
                        assert!(!admin);
                        self.admitted(cookie, id);
                    }
                    Admit::Held(id) => {
                        assert!(!admin, "admin never waits");
                        self.held.insert(cookie, id);
                    }
                    Admit::Refused(Refusal::Full) => assert_eq!(self.held.len() + self.flying.len(), 64),
                    Admit::Refused(Refusal::TooLarge) => assert!(u64::from(bytes) > self.budget),
                    Admit::Refused(Refusal::UnknownId) => panic!("ids are in range"),
                }
            }
            Step::Complete(n) | Step::CompleteTwice(n) if !self.flying.is_empty() => {
                let cookie = *self.flying.keys().nth(n % self.flying.len()).unwrap();
                let id = self.flying.remove(&cookie).unwrap();
                assert!(self.pacer.complete(self.now, id));
                assert!(self.done.insert(cookie));
                if matches!(step, Step::CompleteTwice(_)) {
                    assert!(!self.pacer.complete(self.now, id), "a stale handle changes nothing");
                    assert!(self.pacer.abort(self.now, id).is_none());
                }
            }
            Step::Abort(n) if !self.held.is_empty() => {
                let cookie = *self.held.keys().nth(n % self.held.len()).unwrap();
                let id = self.held.remove(&cookie).unwrap();
                assert!(!self.pacer.complete(self.now, id), "a held op cannot complete");
                assert_eq!(self.pacer.abort(self.now, id), Some(cookie));
                assert_eq!(self.pacer.abort(self.now, id), None);
                self.done.insert(cookie);
            }
            Step::Purge(which) => {
                let matches = |op: &Op| {
                    which.drive.is_none_or(|d| d == op.drive)
                        && which.tenant.is_none_or(|t| t == op.tenant)
                        && which.queue.is_none_or(|q| q == op.queue)
                };
                while let Some(cookie) = self.pacer.purge(self.now, which) {
                    assert!(matches(&self.ops[&cookie]));
                    self.held.remove(&cookie).expect("only held ops are purged");
                    self.done.insert(cookie);
                }
                assert!(!self.held.keys().any(|c| matches(&self.ops[c])), "all that match are gone");
            }
            Step::SetAside(n) if !self.flying.is_empty() => {
                let (&cookie, &id) = self.flying.iter().nth(n % self.flying.len()).unwrap();
                self.pacer.set_aside(self.now, id);
                if self.is_auto {
                    self.aside.insert(cookie);
                }
            }
            Step::Pause(queue) => {
                self.pacer.pause(queue);
                if self.is_auto {
                    self.paused.insert(queue);
                }
            }
            Step::Resume(queue) => {
                self.pacer.resume(queue);
                self.paused.remove(&queue);
            }
            Step::Wait(ns) => self.now += u64::from(ns),
            _ => {}
        }
        self.drain_poll();
        assert!(
            self.held.is_empty() || !self.flying.is_empty() || self.pacer.wakeup_ns().is_some(),
            "something waits, nothing is in flight, and nobody would ever look again"
        );
    }

    /// Completes everything, oldest first, until nothing is left: bounded, so nothing starves.
    fn finish(&mut self) {
        for queue in std::mem::take(&mut self.paused) {
            self.pacer.resume(queue);
        }
        self.drain_poll();
        for _ in 0..100_000 {
            if self.held.is_empty() && self.flying.is_empty() {
                return;
            }
            match self.flying.keys().next().copied() {
                Some(cookie) => {
                    self.now += 1_000;
                    let id = self.flying.remove(&cookie).unwrap();
                    assert!(self.pacer.complete(self.now, id));
                }
                None => self.now = self.now.max(self.pacer.wakeup_ns().expect("a wake-up when only time can help")),
            }
            self.drain_poll();
        }
        panic!("{} ops still held, {} in flight", self.held.len(), self.flying.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_doubled_or_starved(steps in prop::collection::vec(step(), 1..250)) {
        for config in configs() {
            let mut world = World::new(&config);
            for step in &steps {
                world.apply(step.clone());
            }
            world.finish();
            let total = &world.pacer.stats().total;
            prop_assert_eq!(total.admitted, total.completed);
            prop_assert_eq!(total.admitted_bytes, total.completed_bytes);
            prop_assert_eq!((total.held_now, total.in_flight, total.in_flight_bytes), (0, 0, 0));
            let by_drive: u64 = world.pacer.stats().drives.iter().map(|c| c.admitted).sum();
            let by_tenant: u64 = world.pacer.stats().tenants.iter().map(|c| c.admitted).sum();
            prop_assert_eq!((by_drive, by_tenant), (total.admitted, total.admitted));
        }
    }

    /// With one drive nothing but the window may hold an op: whatever waits does not fit.
    #[test]
    fn the_window_is_never_left_idle(steps in prop::collection::vec(step(), 1..250)) {
        for config in [Config::auto(Some(600_000)), Config::auto(None), Config { method: Method::None, budget_bytes: Some(400_000) }] {
            let mut world = World::new(&config);
            for step in &steps {
                let step = match step.clone() {
                    Step::Admit { tenant, queue, bytes, write, admin, .. } =>
                        Step::Admit { drive: 0, tenant, queue, bytes, write, admin },
                    other => other,
                };
                world.apply(step);
                let waiting = world.held.keys().map(|c| &world.ops[c]).filter(|op| !world.paused.contains(&op.queue));
                if let Some(largest) = waiting.map(|op| u64::from(op.bytes)).max() {
                    let is_full = world.moving_bytes() + largest > world.pacer.window_bytes();
                    prop_assert!(is_full || world.flying_bytes() + largest > world.budget);
                }
            }
            world.finish();
        }
    }
}

fn op(drive: u32, tenant: u32, bytes: u32, cookie: u64) -> Op {
    Op { drive, tenant, queue: 0, bytes, write: false, admin: false, cookie }
}

/// Every interleaving of three ops' lives over every method: a small model, exhaustively.
#[test]
fn every_interleaving_of_three_ops_ends_well() {
    // Each op is admitted once and then completed (or aborted while held) in any order: at each point try every choice.
    fn explore(config: &Config, path: &mut Vec<usize>, leaves: &mut u64) {
        let mut world = World::new(config);
        let mut admitted = 0u32;
        let mut replay = |choice: usize| {
            // 0: admit the next op; 1..: complete the nth in flight; 10..: abort the nth held; 20: let time pass.
            match choice {
                0 => {
                    let bytes = [131_072, 4096, 300_000][admitted as usize];
                    let drive = [0, 0, 1][admitted as usize];
                    admitted += 1;
                    world.apply(Step::Admit { drive, tenant: 0, queue: 0, bytes, write: false, admin: false });
                }
                20 => world.apply(Step::Wait(25_000)),
                n if n >= 10 => world.apply(Step::Abort(n - 10)),
                n => world.apply(Step::Complete(n - 1)),
            }
        };
        for &choice in path.iter() {
            replay(choice);
        }
        let mut choices: Vec<usize> = Vec::new();
        if admitted < 3 {
            choices.push(0);
        }
        choices.extend((0..world.flying.len()).map(|n| n + 1));
        choices.extend((0..world.held.len()).map(|n| n + 10));
        if path.iter().filter(|&&c| c == 20).count() < 2 {
            choices.push(20);
        }
        if choices.is_empty() || (choices == [20]) {
            *leaves += 1;
            world.finish();
            return;
        }
        for choice in choices {
            path.push(choice);
            explore(config, path, leaves);
            path.pop();
        }
    }
    for config in configs().into_iter().chain([Config::auto(Some(310_000)), method("buffers:3")]) {
        let mut leaves = 0;
        explore(&config, &mut Vec::new(), &mut leaves);
        assert!(leaves > 10, "{config:?} explored {leaves} endings only");
    }
}

/// A paused queue gives its turns to the others of its tenant, of its drive, and of other drives, and takes them again.
#[test]
fn a_paused_queue_gives_its_turns_away() {
    let mut pacer = Config::auto(Some(1 << 20)).build(LIMITS).unwrap();
    let of = |queue: u32, drive: u32, tenant: u32| Op { queue, ..op(drive, tenant, 128 << 10, queue.into()) };
    let first: Vec<OpId> = (0..8)
        .map(|_| match pacer.admit(0, of(0, 0, 0)) {
            Admit::Go(id) => id,
            other => panic!("there is room: {other:?}"),
        })
        .collect();
    for _ in 0..4 {
        for (queue, drive, tenant) in [(0, 0, 0), (0, 1, 0), (1, 0, 0), (2, 0, 1), (3, 1, 1)] {
            assert!(matches!(pacer.admit(0, of(queue, drive, tenant)), Admit::Held(_)));
        }
    }
    pacer.pause(0);
    let mut flying: Vec<OpId> = first;
    let mut turns = [0; 4];
    for now in 1..13 {
        assert!(pacer.complete(now * 1000, flying.remove(0)));
        let released = pacer.poll(now * 1000).expect("others wait");
        turns[released.cookie as usize] += 1;
        flying.push(released.id);
    }
    assert_eq!(turns, [0, 4, 4, 4]);
    for now in 13..21 {
        assert!(pacer.complete(now * 1000, flying.remove(0)));
        assert!(pacer.poll(now * 1000).is_none(), "only the paused queue's are left");
    }
    pacer.resume(0);
    let mut left = 0;
    while let Some(released) = pacer.poll(21_000) {
        assert_eq!(released.cookie, 0);
        left += 1;
    }
    assert_eq!(left, 8, "1 MiB of them");
}

#[test]
fn a_hard_budget_refuses_what_could_never_fit() {
    let mut pacer = Config::auto(Some(1 << 20)).build(Limits::default()).unwrap();
    assert_eq!(pacer.admit(0, op(0, 0, (1 << 20) + 1, 1)), Admit::Refused(Refusal::TooLarge));
    assert!(matches!(pacer.admit(0, op(0, 0, 1 << 20, 1)), Admit::Go(_)));
    assert!(matches!(pacer.admit(0, op(0, 0, 1, 2)), Admit::Held(_)));
}

#[test]
fn unknown_drives_and_tenants_are_refused() {
    for config in configs() {
        let mut pacer = config.build(LIMITS).unwrap();
        assert_eq!(pacer.admit(0, op(4, 0, 4096, 1)), Admit::Refused(Refusal::UnknownId));
        assert_eq!(pacer.admit(0, op(0, 3, 4096, 1)), Admit::Refused(Refusal::UnknownId));
    }
}

#[test]
fn a_full_pacer_says_so_and_recovers() {
    let mut pacer = Config::none().build(Limits { ops: 2, drives: 1, tenants: 1 }).unwrap();
    let Admit::Go(first) = pacer.admit(0, op(0, 0, 1, 1)) else { panic!("room for two") };
    assert!(matches!(pacer.admit(0, op(0, 0, 1, 2)), Admit::Go(_)));
    assert_eq!(pacer.admit(0, op(0, 0, 1, 3)), Admit::Refused(Refusal::Full));
    assert!(pacer.complete(1, first));
    assert!(matches!(pacer.admit(2, op(0, 0, 1, 3)), Admit::Go(_)));
}

#[test]
fn a_cap_is_exact_in_the_long_run_and_per_tenant() {
    let mut pacer = method("iops:1000").build(LIMITS).unwrap();
    let (mut now, mut done) = (0u64, [0u64; 2]);
    let mut cookie = 0;
    for tenant in [0, 1] {
        for _ in 0..20 {
            let answer = pacer.admit(now, op(0, tenant, 4096, u64::from(tenant)));
            if let Admit::Go(id) = answer {
                pacer.complete(now, id);
                done[tenant as usize] += 1;
            }
            cookie += 1;
        }
    }
    assert_eq!(cookie, 40);
    while now < 2_000_000_000 {
        while let Some(released) = pacer.poll(now) {
            done[released.cookie as usize] += 1;
            pacer.complete(now, released.id);
            let _ = pacer.admit(now, op(0, released.cookie as u32, 4096, released.cookie));
        }
        now = pacer.wakeup_ns().unwrap().max(now + 1);
    }
    // 2 s at 1000/s and the burst of 10 ms.
    for count in done {
        assert!((2000..=2012).contains(&count), "{done:?}");
    }
}
