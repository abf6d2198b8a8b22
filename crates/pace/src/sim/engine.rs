//! The event loop of the simulation.
//!
//! An op passes these stations; first-in first-out servers compute departures on arrival, so only five
//! events per op go through the heap:
//!
//! 1. *arrive*, *admit*: a core takes it up and spends its time; the pacer is asked when the core is done.
//! 2. *media*: a channel of the drive has finished; the bus takes the data.
//! 3. *data*: the data is in memory (after the delay device, if any); memory path, port and host link send it.
//! 4. *done*: the last byte is out, the buffer is free; the initiator sees it and sends its next command.
//!
//! A write fetches its data (link in, memory path) between admission and the channel, and visits its core when they are
//! there (*fetched*), unless they came with the command. Its buffer holds no data before, and does not fill the cache.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use measure::Histogram;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::confidence::Trusted;
use super::ids;
use super::machine::{Drives, Machine, MemoryPath};
use super::outcome::{ClassOutcome, Outcome, Point};
use super::scenario::{HOSTS_MAX, Order, Scenario};
use crate::config::{Error, Method};
use crate::{Admission, Admit, Limits, Op, OpId, Refusal};

const NS: f64 = 1e9;
const SMALL_BYTES: u32 = 16 << 10;
/// A refused command is sent again after this long, as a host's queue-full handling does.
const RETRY_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Kind {
    /// The pacer's wake-up; before completions of the same instant, as a timer fires first.
    Wake,
    Event,
    JobStart,
    Poisson,
    Arrive,
    Admit,
    Fetched,
    Media,
    Data,
    Done,
    Sample,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    id: OpId,
    submitted_ns: u64,
    arrived_ns: u64,
    bytes: u32,
    job: u32,
    namespace: u32,
    connection: u32,
    write: bool,
}

struct JobState {
    host: u32,
    namespaces: Vec<u32>,
    /// Connection number of its first namespace; one connection per namespace.
    first_connection: u32,
    next: usize,
    depth: u32,
    outstanding: u32,
    /// When the initiator's core has issued all it was asked to.
    core_free_ns: f64,
    /// Cumulative probabilities, scaled to 2^32.
    sizes: Vec<(u32, u32)>,
    write_below: u64,
    order: Order,
    period_ns: Option<f64>,
    start_ns: u64,
    stop_ns: u64,
}

/// A connection with a limited queue: its commands at the target, and those that wait for a place at the initiator.
#[derive(Clone, Default)]
struct ConnectionState {
    outstanding: u32,
    waiting: VecDeque<u32>,
}

struct DriveState {
    /// The kind of the drive, an index of the engine's `specs`.
    spec: usize,
    channels: Vec<u64>,
    bus_free_ns: f64,
    /// When the drive takes the next write, by its limit of writes per second.
    write_free_ns: f64,
    /// When the drive's memory for writes is empty.
    drained_ns: f64,
    slower: f64,
}

pub(super) struct Engine<'a> {
    scenario: &'a Scenario,
    machine: Machine,
    memory: MemoryPath,
    pool_bytes: f64,
    pacer: Box<dyn Admission>,
    rng: Xoshiro256PlusPlus,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    now: u64,
    flights: Vec<Flight>,
    free: Vec<u32>,
    jobs: Vec<JobState>,
    /// By number; empty if the machine does not limit queues.
    connections: Vec<ConnectionState>,
    /// The kinds of drives.
    specs: Vec<Drives>,
    drives: Vec<DriveState>,
    delay_ns: Vec<u64>,
    cores_free_ns: Vec<f64>,
    /// The number of ops on each core, from their arrival to their end.
    cores_ops: Vec<u32>,
    cores_busy_ns: f64,
    /// The bytes in flight of writes that no drive has taken yet.
    empty_bytes: u64,
    memory_free_ns: f64,
    ports_free_ns: [Vec<f64>; 2],
    hosts_free_ns: [Vec<f64>; 2],
    wake_ns: u64,
    measure_from_ns: u64,
    end_ns: u64,
    /// The latencies by size class, as the initiator and as the target sees them.
    latency: [[Histogram; 2]; 2],
    all_latency: [Histogram; 2],
    bytes: u64,
    ops: u64,
    tenant_bytes: Vec<u64>,
    drive_bytes: Vec<u64>,
    sample_bytes: u64,
    sample_tenant_bytes: Vec<u64>,
    sampled_ns: u64,
    curve: Vec<Point>,
    in_flight_sum: f64,
    period_sum: f64,
    samples: u64,
    refused: u64,
    events: u64,
}

impl<'a> Engine<'a> {
    pub fn new(scenario: &'a Scenario) -> Result<Engine<'a>, Error> {
        let machine = scenario.machine()?;
        let namespaces = scenario.namespaces.unwrap_or(machine.drive_count());
        if namespaces == 0 || namespaces > 1 << 20 {
            return Err(Error("namespaces must be 1 to 1048576".into()));
        }
        scenario.check(namespaces)?;
        let mut jobs = Vec::new();
        let (mut connections, mut hosts, mut depth_sum) = (0u32, 0u32, 0u64);
        for (n, job) in scenario.jobs.iter().enumerate() {
            let all = match &job.namespaces {
                Some(text) => ids::parse(text, namespaces, &format!("jobs[{n}].namespaces"))?,
                None => (0..namespaces).collect(),
            };
            if job.per_host as usize > all.len() {
                return Err(Error(format!(
                    "jobs[{n}].per_host = {}: each copy needs a namespace of its own, and there are {}",
                    job.per_host,
                    all.len()
                )));
            }
            for host in ids::parse(&job.hosts, HOSTS_MAX, "hosts")? {
                hosts = hosts.max(host + 1);
                for copy in 0..job.per_host as usize {
                    let part = |k: usize| k * all.len() / job.per_host as usize;
                    let own = all[part(copy)..part(copy + 1)].to_vec();
                    let total: f64 = job.sizes.iter().map(|s| s.percent).sum();
                    let mut below = 0.0;
                    let sizes = job
                        .sizes
                        .iter()
                        .map(|s| {
                            below += s.percent / total;
                            ((below * 4_294_967_296.0).min(4_294_967_295.0) as u32, s.bytes as u32)
                        })
                        .collect();
                    let first_connection = connections;
                    connections += own.len() as u32;
                    depth_sum += u64::from(job.depth);
                    jobs.push(JobState {
                        host,
                        next: 0,
                        first_connection,
                        namespaces: own,
                        depth: job.depth,
                        outstanding: 0,
                        core_free_ns: 0.0,
                        sizes,
                        write_below: (job.write_percent / 100.0 * 4_294_967_296.0) as u64,
                        order: job.order,
                        period_ns: job.iops.map(|iops| NS / iops),
                        start_ns: (job.start_s * NS) as u64,
                        stop_ns: job.stop_s.map_or(u64::MAX, |s| (s * NS) as u64),
                    });
                }
            }
        }
        if depth_sum > 1 << 24 {
            return Err(Error(format!("{depth_sum} ops in flight over all jobs; at most 16777216")));
        }
        let mut delay_ns = vec![0u64; namespaces as usize];
        for delay in &scenario.delay {
            for namespace in ids::parse(&delay.namespaces, namespaces, "delay.namespaces")? {
                delay_ns[namespace as usize] += (delay.us * 1e3) as u64;
            }
        }
        let pool_bytes = match scenario.pacing.method {
            Method::Buffers { count, unit_bytes, .. } => f64::from(count) * f64::from(unit_bytes),
            _ => scenario.pacing.budget_bytes.map_or(f64::INFINITY, |b| b as f64),
        };
        let limits = Limits { ops: depth_sum as u32 + 16, drives: namespaces, tenants: hosts };
        let warmup_ns = (scenario.warmup_seconds * NS) as u64;
        let end_ns = warmup_ns + (scenario.seconds * NS) as u64;
        let specs: Vec<Drives> = machine.kinds_of_drives().cloned().collect();
        let drive = |spec: usize| DriveState {
            spec,
            channels: vec![0; specs[spec].channels as usize],
            bus_free_ns: 0.0,
            write_free_ns: 0.0,
            drained_ns: 0.0,
            slower: 1.0,
        };
        let drives = (0..specs.len()).flat_map(|spec| (0..specs[spec].count).map(move |_| spec)).map(drive).collect();
        let histograms = || [Histogram::new(), Histogram::new()];
        Ok(Engine {
            memory: MemoryPath::new(&machine.cache, machine.cores),
            pool_bytes,
            pacer: scenario.pacing.build(limits)?,
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
            heap: BinaryHeap::with_capacity(depth_sum as usize * 2 + 64),
            now: 0,
            flights: Vec::with_capacity(depth_sum as usize),
            free: Vec::new(),
            jobs,
            connections: machine.queue_depth.map_or(Vec::new(), |_| vec![Default::default(); connections as usize]),
            drives,
            specs,
            delay_ns,
            cores_free_ns: vec![0.0; machine.cores as usize],
            cores_ops: vec![0; machine.cores as usize],
            cores_busy_ns: 0.0,
            empty_bytes: 0,
            memory_free_ns: 0.0,
            ports_free_ns: [vec![0.0; machine.ports as usize], vec![0.0; machine.ports as usize]],
            hosts_free_ns: [vec![0.0; hosts as usize], vec![0.0; hosts as usize]],
            wake_ns: u64::MAX,
            measure_from_ns: warmup_ns,
            end_ns,
            latency: [histograms(), histograms()],
            all_latency: histograms(),
            bytes: 0,
            ops: 0,
            tenant_bytes: vec![0; hosts as usize],
            drive_bytes: vec![0; namespaces as usize],
            sample_bytes: 0,
            sample_tenant_bytes: vec![0; hosts as usize],
            sampled_ns: 0,
            curve: Vec::new(),
            in_flight_sum: 0.0,
            period_sum: 0.0,
            samples: 0,
            refused: 0,
            events: 0,
            scenario,
            machine,
        })
    }

    #[inline]
    fn push(&mut self, at_ns: u64, kind: Kind, index: u32) {
        self.heap.push(Reverse((at_ns, (kind as u64) << 56 | u64::from(index))));
    }

    pub fn run(mut self, progress: &mut dyn FnMut(f64)) -> Result<Outcome, Error> {
        for n in 0..self.jobs.len() as u32 {
            // Hosts do not start in the same nanosecond: up to 100 us apart.
            let start_ns = self.jobs[n as usize].start_ns + self.below(100_000);
            self.push(start_ns, Kind::JobStart, n);
        }
        let scenario = self.scenario;
        for (n, event) in scenario.events.iter().enumerate() {
            ids::parse(&event.drives, self.machine.drive_count(), &format!("events[{n}].drives"))?;
            self.push((event.at_s * NS) as u64, Kind::Event, n as u32);
        }
        let sample_ns = ((scenario.sample_ms * 1e6) as u64).max(1);
        self.push(sample_ns, Kind::Sample, 0);
        let mut told = 0;
        while let Some(Reverse((at_ns, what))) = self.heap.pop() {
            if at_ns > self.end_ns {
                break;
            }
            self.now = at_ns;
            self.events += 1;
            let index = what as u32;
            match what >> 56 {
                k if k == Kind::Wake as u64 => {
                    if at_ns == self.wake_ns {
                        self.wake_ns = u64::MAX;
                        self.poll();
                    }
                }
                k if k == Kind::Event as u64 => self.machine_event(index)?,
                k if k == Kind::JobStart as u64 => self.job_start(index),
                k if k == Kind::Poisson as u64 => self.poisson(index),
                k if k == Kind::Arrive as u64 => {
                    let connection = self.flights[index as usize].connection;
                    let core = self.core_of(connection);
                    self.cores_ops[core] += 1;
                    let free_ns = self.core_visit(index);
                    self.push(free_ns as u64, Kind::Admit, index);
                }
                k if k == Kind::Admit as u64 => self.admit(index)?,
                k if k == Kind::Fetched as u64 => self.fetched(index),
                k if k == Kind::Media as u64 => self.media(index),
                k if k == Kind::Data as u64 => self.data(index),
                k if k == Kind::Done as u64 => self.done(index),
                _ => {
                    self.sample();
                    self.push(at_ns + sample_ns, Kind::Sample, 0);
                    let percent = at_ns * 100 / self.end_ns.max(1);
                    if percent > told {
                        told = percent;
                        progress(percent as f64 / 100.0);
                    }
                }
            }
        }
        progress(1.0);
        self.outcome()
    }

    /// A uniform integer below `n`, by multiplication (Lemire): the bias of 2^-32 is far below the precision of the
    /// results.
    #[inline]
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(n)) >> 64) as u64
    }

    #[inline]
    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn machine_event(&mut self, index: u32) -> Result<(), Error> {
        let event = &self.scenario.events[index as usize];
        for drive in ids::parse(&event.drives, self.machine.drive_count(), "events.drives")? {
            self.drives[drive as usize].slower = event.slower;
        }
        Ok(())
    }

    fn job_start(&mut self, job: u32) {
        match self.jobs[job as usize].period_ns {
            None => {
                for _ in 0..self.jobs[job as usize].depth {
                    self.submit(job, self.now);
                }
            }
            Some(_) => self.poisson(job),
        }
    }

    fn poisson(&mut self, job: u32) {
        let state = &self.jobs[job as usize];
        let (period_ns, stop_ns) = (state.period_ns.unwrap_or(NS), state.stop_ns);
        if self.now >= stop_ns {
            return;
        }
        // At full depth an arrival is lost, and the loss shows as a rate below the one asked for.
        if state.outstanding < state.depth {
            self.submit(job, self.now);
        }
        let wait_ns = -(1.0 - self.uniform()).ln() * period_ns;
        self.push(self.now + wait_ns as u64, Kind::Poisson, job);
    }

    /// Sends a command that the initiator created at `submitted_ns`.
    fn submit(&mut self, job: u32, submitted_ns: u64) {
        let roll = self.rng.next_u64();
        let (size_roll, write_roll) = (roll as u32, roll >> 32);
        let state = &mut self.jobs[job as usize];
        let turn = match state.order {
            Order::RoundRobin => {
                let turn = state.next;
                state.next = (turn + 1) % state.namespaces.len();
                turn
            }
            Order::Random => {
                let n = state.namespaces.len() as u64;
                self.below(n) as usize
            }
        };
        let state = &mut self.jobs[job as usize];
        let last = state.sizes.len() - 1;
        let size = state.sizes[..last].iter().position(|&(below, _)| size_roll < below).unwrap_or(last);
        state.outstanding += 1;
        state.core_free_ns = state.core_free_ns.max(submitted_ns as f64) + self.machine.initiator_op_us * 1e3;
        let half_ns = (self.machine.turnaround_us * 500.0) as u64;
        let connection = state.first_connection + turn as u32;
        let flight = Flight {
            id: OpId::UNTRACKED,
            submitted_ns,
            arrived_ns: state.core_free_ns as u64 + half_ns,
            bytes: state.sizes[size].1,
            job,
            namespace: state.namespaces[turn],
            connection,
            write: write_roll < state.write_below,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.flights[index as usize] = flight;
                index
            }
            None => {
                self.flights.push(flight);
                self.flights.len() as u32 - 1
            }
        };
        if let (Some(depth), Some(state)) = (self.machine.queue_depth, self.connections.get_mut(connection as usize)) {
            if state.outstanding >= depth {
                state.waiting.push_back(index);
                return;
            }
            state.outstanding += 1;
        }
        self.push(flight.arrived_ns, Kind::Arrive, index);
    }

    /// A command of the connection has ended, as its initiator sees at `seen_ns`: the next one takes its place.
    fn leave(&mut self, connection: u32, seen_ns: u64) {
        let Some(state) = self.connections.get_mut(connection as usize) else { return };
        let Some(index) = state.waiting.pop_front() else {
            state.outstanding -= 1;
            return;
        };
        let half_ns = (self.machine.turnaround_us * 500.0) as u64;
        let flight = &mut self.flights[index as usize];
        flight.arrived_ns = flight.arrived_ns.max(seen_ns + half_ns);
        let arrived_ns = flight.arrived_ns;
        self.push(arrived_ns, Kind::Arrive, index);
    }

    #[inline]
    fn core_of(&self, connection: u32) -> usize {
        connection as usize % self.cores_free_ns.len()
    }

    /// When the op's core has spent half an op's time, from now on: to take the command up, to send its answer, and to
    /// pass on the data that a write fetched.
    #[inline]
    fn core_visit(&mut self, index: u32) -> f64 {
        let flight = &self.flights[index as usize];
        let core = self.core_of(flight.connection);
        let ops = f64::from(self.cores_ops[core]);
        let of_drive_us = self.specs[self.drives[flight.namespace as usize % self.drives.len()].spec].core_us;
        let deep_us = self.machine.deep_us * ops / (ops + self.machine.deep_ops);
        let half_op_ns = (self.machine.op_us + of_drive_us + deep_us) * 500.0;
        self.core_work(core, half_op_ns)
    }

    /// When the core has worked for `half_op_ns` more, from now on.
    #[inline]
    fn core_work(&mut self, core: usize, half_op_ns: f64) -> f64 {
        let free_ns = self.cores_free_ns[core].max(self.now as f64) + half_op_ns;
        self.cores_free_ns[core] = free_ns;
        if self.now >= self.measure_from_ns {
            self.cores_busy_ns += half_op_ns;
        }
        free_ns
    }

    fn admit(&mut self, index: u32) -> Result<(), Error> {
        let flight = self.flights[index as usize];
        let op = Op {
            drive: flight.namespace,
            tenant: self.jobs[flight.job as usize].host,
            queue: flight.connection,
            bytes: flight.bytes,
            write: flight.write,
            admin: false,
            cookie: u64::from(index),
        };
        match self.pacer.admit(self.now, op) {
            Admit::Go(id) => {
                self.flights[index as usize].id = id;
                self.start(index);
            }
            Admit::Held(_) => self.poll(),
            Admit::Refused(Refusal::Full) => {
                self.refused += 1;
                self.push(self.now + RETRY_NS, Kind::Admit, index);
            }
            Admit::Refused(why) => {
                return Err(Error(format!("an op of {} bytes can never be admitted ({why:?})", flight.bytes)));
            }
        }
        Ok(())
    }

    fn poll(&mut self) {
        while let Some(released) = self.pacer.poll(self.now) {
            let index = released.cookie as u32;
            self.flights[index as usize].id = released.id;
            self.start(index);
        }
        if let Some(at_ns) = self.pacer.wakeup_ns() {
            let at_ns = at_ns.max(self.now + 1);
            if at_ns < self.wake_ns {
                self.wake_ns = at_ns;
                self.push(at_ns, Kind::Wake, 0);
            }
        }
    }

    /// Wire nanoseconds of `bytes` at `gbps`.
    #[inline]
    fn wire_ns(&self, bytes: u32, gbps: f64) -> f64 {
        (f64::from(bytes) * self.machine.wire_factor + self.machine.wire_op_bytes) * 8.0 / gbps
    }

    /// When memory path, port and host link have carried the op's data, from `now` on; `way` 0 is out, 1 in.
    fn carry(&mut self, flight: &Flight, way: usize, now: f64) -> u64 {
        let host = self.jobs[flight.job as usize].host as usize;
        let in_flight = self.pacer.stats().total.in_flight_bytes - self.empty_bytes;
        let memory_ns = self.memory.service_ns(u64::from(flight.bytes), in_flight, self.pool_bytes);
        let mut at_ns = now;
        if memory_ns > 0.0 {
            at_ns = self.memory_free_ns.max(now) + memory_ns;
            self.memory_free_ns = at_ns;
        }
        // Cut-through: the memory path feeds the port while it sends, so it delays the end only where it is slower.
        let port = host % self.ports_free_ns[way].len();
        let port_ns = self.wire_ns(flight.bytes, self.machine.port_gbps);
        let sent_ns = (self.ports_free_ns[way][port].max(now) + port_ns).max(at_ns);
        self.ports_free_ns[way][port] = sent_ns;
        let host_ns = self.wire_ns(flight.bytes, self.machine.host_gbps);
        let there_ns = (self.hosts_free_ns[way][host].max(now) + host_ns).max(sent_ns);
        self.hosts_free_ns[way][host] = there_ns;
        there_ns.ceil() as u64
    }

    /// The op is admitted: a read goes to its drive, a write waits for its data first.
    fn start(&mut self, index: u32) {
        let flight = self.flights[index as usize];
        if !flight.write {
            return self.enter_drive(index, self.now);
        }
        self.empty_bytes += u64::from(flight.bytes);
        let asked_us = if self.is_fetched(&flight) { self.machine.fetch_us } else { 0.0 };
        let there_ns = self.carry(&flight, 1, self.now as f64 + asked_us * 1e3);
        self.push(there_ns, Kind::Fetched, index);
    }

    fn is_fetched(&self, flight: &Flight) -> bool {
        flight.bytes > self.machine.in_capsule_bytes
    }

    /// The data of a write are there.
    fn fetched(&mut self, index: u32) {
        let flight = self.flights[index as usize];
        let ready_ns = match self.machine.fetch_op_us {
            _ if !self.is_fetched(&flight) => self.now,
            Some(us) => self.core_work(self.core_of(flight.connection), us * 1e3) as u64,
            None => self.core_visit(index) as u64,
        };
        self.enter_drive(index, ready_ns);
    }

    fn enter_drive(&mut self, index: u32, ready_ns: u64) {
        let flight = self.flights[index as usize];
        let drive_index = flight.namespace as usize % self.drives.len();
        let spec = self.drives[drive_index].spec;
        let Drives { jitter, channels, .. } = self.specs[spec];
        let vary = if jitter > 0.0 { 1.0 + jitter * (2.0 * self.uniform() - 1.0) } else { 1.0 };
        let base_us = if flight.write { self.specs[spec].write_us } else { self.specs[spec].read_us };
        // A drive reads a block where it is, and most drives write it where there is room.
        let placed = if flight.write { self.specs[spec].write_placed } else { self.specs[spec].placed };
        let own = placed.then(|| self.below(u64::from(channels)) as usize);
        let drive = &mut self.drives[drive_index];
        let service_ns = (base_us * 1e3 * vary * drive.slower) as u64;
        let free = own.unwrap_or_else(|| first_free(&drive.channels, ready_ns));
        let done_ns = drive.channels[free].max(ready_ns) + service_ns;
        drive.channels[free] = done_ns;
        self.push(done_ns, Kind::Media, index);
    }

    fn media(&mut self, index: u32) {
        let flight = self.flights[index as usize];
        if flight.write {
            self.empty_bytes -= u64::from(flight.bytes);
        }
        let drives = self.drives.len();
        let drive = &mut self.drives[flight.namespace as usize % drives];
        let of = &self.specs[drive.spec];
        let write_gbytes = of.write_gbytes.unwrap_or(of.bus_gbytes);
        let buffer_kib = if flight.write { of.write_buffer_kib } else { None };
        let gbytes = if flight.write && buffer_kib.is_none() { write_gbytes } else { of.bus_gbytes };
        let mut op_us = of.bus_op_us;
        let mut ready_ns = self.now as f64;
        if let (true, Some(write_op_us)) = (flight.write, of.write_op_us) {
            // The two limits of a drive work side by side: the next write may begin while the bus moves this one.
            ready_ns = drive.write_free_ns.max(ready_ns);
            drive.write_free_ns = ready_ns + write_op_us * 1e3 * drive.slower;
            op_us = 0.0;
        }
        let bus_ns = (f64::from(flight.bytes) / gbytes + op_us * 1e3) * drive.slower;
        let mut at_ns = drive.bus_free_ns.max(ready_ns) + bus_ns;
        drive.bus_free_ns = at_ns;
        if let Some(kib) = buffer_kib {
            // A write ends when the drive's memory has room for it, long before it is on the medium.
            let drain_ns = f64::from(flight.bytes) / write_gbytes * drive.slower;
            drive.drained_ns = drive.drained_ns.max(ready_ns) + drain_ns;
            at_ns = at_ns.max(drive.drained_ns - kib * 1024.0 / write_gbytes * drive.slower);
        }
        if !flight.write {
            at_ns += of.read_fixed_us * 1e3 * drive.slower;
        }
        let delay_ns = self.delay_ns[flight.namespace as usize];
        self.push(at_ns as u64 + delay_ns, Kind::Data, index);
    }

    fn data(&mut self, index: u32) {
        let flight = self.flights[index as usize];
        let ready_ns = self.core_visit(index);
        // A write has only its status to send.
        let at_ns = if flight.write { ready_ns.ceil() as u64 } else { self.carry(&flight, 0, ready_ns) };
        self.push(at_ns, Kind::Done, index);
    }

    fn done(&mut self, index: u32) {
        let flight = self.flights[index as usize];
        let core = self.core_of(flight.connection);
        self.cores_ops[core] -= 1;
        self.pacer.complete(self.now, flight.id);
        let half_ns = (self.machine.turnaround_us * 500.0) as u64;
        let seen_ns = self.now + half_ns;
        let bytes = u64::from(flight.bytes);
        let tenant = self.jobs[flight.job as usize].host as usize;
        self.sample_bytes += bytes;
        self.sample_tenant_bytes[tenant] += bytes;
        if self.now >= self.measure_from_ns {
            let class = usize::from(flight.bytes > SMALL_BYTES);
            let (initiator_ns, target_ns) = (seen_ns - flight.submitted_ns, self.now.saturating_sub(flight.arrived_ns));
            for histograms in [&mut self.latency[class], &mut self.all_latency] {
                histograms[0].record(initiator_ns);
                histograms[1].record(target_ns);
            }
            self.bytes += bytes;
            self.ops += 1;
            self.tenant_bytes[tenant] += bytes;
            self.drive_bytes[flight.namespace as usize] += bytes;
        }
        self.free.push(index);
        self.leave(flight.connection, seen_ns);
        let job = &mut self.jobs[flight.job as usize];
        job.outstanding -= 1;
        if job.period_ns.is_none() && self.now < job.stop_ns {
            self.submit(flight.job, seen_ns);
        }
        self.poll();
    }

    fn sample(&mut self) {
        let elapsed_s = (self.now - self.sampled_ns) as f64 / NS;
        self.sampled_ns = self.now;
        let gbps = |bytes: u64| bytes as f64 * 8.0 / elapsed_s / 1e9;
        let total = &self.pacer.stats().total;
        let window = self.pacer.window_bytes();
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let period_us = self.pacer.period_ns() as f64 / 1e3;
        self.curve.push(Point {
            t_s: self.now as f64 / NS,
            gbps: gbps(self.sample_bytes),
            window_mib: if window == u64::MAX { 0.0 } else { mib(window) },
            in_flight_mib: mib(total.in_flight_bytes),
            held: total.held_now,
            period_us,
            tenant_gbps: self.sample_tenant_bytes.iter().map(|&b| gbps(b)).collect(),
        });
        if self.now >= self.measure_from_ns {
            self.in_flight_sum += mib(total.in_flight_bytes);
            self.period_sum += period_us;
            self.samples += 1;
        }
        self.sample_bytes = 0;
        self.sample_tenant_bytes.fill(0);
    }

    fn outcome(mut self) -> Result<Outcome, Error> {
        let seconds = (self.end_ns - self.measure_from_ns) as f64 / NS;
        let gbps = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e9;
        let stats = &self.pacer.stats().total;
        let window = self.pacer.window_bytes();
        let wire_bytes = self.bytes as f64 * self.machine.wire_factor + self.ops as f64 * self.machine.wire_op_bytes;
        let samples = self.samples.max(1) as f64;
        let [small, large] = &self.latency;
        let simulated_gbps = gbps(self.bytes);
        let trusted = Trusted::of(self.scenario, simulated_gbps)?;
        let outcome = Outcome {
            name: self.scenario.name.clone(),
            seed: self.scenario.seed,
            seconds,
            gbps: simulated_gbps,
            simulated_gbps,
            confidence: trusted.confidence,
            iops: self.ops as f64 / seconds,
            wire_gbps: wire_bytes * 8.0 / seconds / 1e9,
            all: ClassOutcome::of(&self.all_latency[0], &self.all_latency[1]),
            small: ClassOutcome::of(&small[0], &small[1]),
            large: ClassOutcome::of(&large[0], &large[1]),
            in_flight_mib: self.in_flight_sum / samples,
            window_mib: (window < 1 << 49).then_some(window as f64 / 1_048_576.0),
            period_us: self.period_sum / samples,
            held_fraction: stats.held as f64 / (stats.admitted + stats.held_now).max(1) as f64,
            hold_us: (stats.hold_ns.mean() / 1e3, stats.hold_ns.quantile(0.99) as f64 / 1e3),
            core_busy: self.cores_busy_ns / (seconds * NS * self.cores_free_ns.len() as f64),
            tenant_gbps: self.tenant_bytes.iter().map(|&b| gbps(b)).collect(),
            drive_gbps: self.drive_bytes.iter().map(|&b| gbps(b)).collect(),
            refused: self.refused,
            curve: std::mem::take(&mut self.curve),
            events: self.events,
        };
        Ok(outcome.corrected(trusted.gbps))
    }
}

/// The first channel that is free at `ready_ns`, or else the one that will be free first.
#[inline]
fn first_free(channels: &[u64], ready_ns: u64) -> usize {
    let mut free = 0;
    for (n, &at_ns) in channels.iter().enumerate() {
        if at_ns <= ready_ns {
            return n;
        }
        if at_ns < channels[free] {
            free = n;
        }
    }
    free
}
