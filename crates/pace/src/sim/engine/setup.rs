//! The state at the beginning of a run, from the scenario.

use std::collections::BinaryHeap;

use measure::Histogram;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::{DriveState, Engine, JobState, NS};
use crate::Limits;
use crate::config::{Error, Method};
use crate::sim::ids;
use crate::sim::machine::{Drives, Machine, MemoryPath};
use crate::sim::scenario::{HOSTS_MAX, Job, Scenario, SizeShare};

/// The most ops in flight over all jobs.
const OPS_MAX: u64 = 1 << 24;
/// The most namespaces.
const NAMESPACES_MAX: u32 = 1 << 20;
/// Probabilities count in parts of 2^32.
const ONE: f64 = 4_294_967_296.0;

/// The copies of all jobs, and what they need.
#[derive(Default)]
struct Load {
    jobs: Vec<JobState>,
    connections: u32,
    hosts: u32,
    ops: u64,
}

impl Load {
    fn of(scenario: &Scenario, machine: &Machine, namespaces: u32) -> Result<Load, Error> {
        let mut load = Load::default();
        for (n, job) in scenario.jobs.iter().enumerate() {
            let all = match &job.namespaces {
                Some(text) => ids::parse(text, namespaces, &format!("jobs[{n}].namespaces"))?,
                None => (0..namespaces).collect(),
            };
            let (copies, parts) = (job.per_host as usize, all.len());
            if copies > parts {
                return Err(Error(format!(
                    "jobs[{n}].per_host = {copies}: each copy needs a namespace of its own, and there are {parts}"
                )));
            }
            let of_size = |size: &SizeShare| machine.initiator_us(size.bytes, job.depth) * 1e3;
            let initiator_ns: Vec<f64> = job.sizes.iter().map(of_size).collect();
            for host in ids::parse(&job.hosts, HOSTS_MAX, "hosts")? {
                let part = |copy: usize| copy * parts / copies;
                (0..copies).for_each(|copy| load.add(job, host, &initiator_ns, &all[part(copy)..part(copy + 1)]));
            }
        }
        if load.ops > OPS_MAX {
            return Err(Error(format!("{} ops in flight over all jobs; at most {OPS_MAX}", load.ops)));
        }
        Ok(load)
    }

    /// Adds a copy of `job` on `host`, which uses these namespaces.
    fn add(&mut self, job: &Job, host: u32, initiator_ns: &[f64], namespaces: &[u32]) {
        self.jobs.push(JobState {
            host,
            next: 0,
            first_connection: self.connections,
            namespaces: namespaces.to_vec(),
            depth: job.depth,
            outstanding: 0,
            core_free_ns: 0.0,
            sizes: cumulative(&job.sizes),
            initiator_ns: initiator_ns.to_vec(),
            write_below: (job.write_percent / 100.0 * ONE) as u64,
            order: job.order,
            period_ns: job.iops.map(|iops| NS / iops),
            start_ns: (job.start_s * NS) as u64,
            stop_ns: job.stop_s.map_or(u64::MAX, |s| (s * NS) as u64),
        });
        self.hosts = self.hosts.max(host + 1);
        self.connections += namespaces.len() as u32;
        self.ops += u64::from(job.depth);
    }
}

/// Each size with the probability of it and all sizes before it.
fn cumulative(sizes: &[SizeShare]) -> Vec<(u32, u32)> {
    let total: f64 = sizes.iter().map(|size| size.percent).sum();
    let mut below = 0.0;
    let of = |size: &SizeShare| {
        below += size.percent / total;
        ((below * ONE).min(ONE - 1.0) as u32, size.bytes as u32)
    };
    sizes.iter().map(of).collect()
}

/// The delay of each namespace.
fn delays(scenario: &Scenario, namespaces: u32) -> Result<Vec<u64>, Error> {
    let mut delay_ns = vec![0u64; namespaces as usize];
    for delay in &scenario.delay {
        for namespace in ids::parse(&delay.namespaces, namespaces, "delay.namespaces")? {
            delay_ns[namespace as usize] += (delay.us * 1e3) as u64;
        }
    }
    Ok(delay_ns)
}

/// Every drive, of the kind that its place among `specs` says.
fn drives(specs: &[Drives]) -> Vec<DriveState> {
    let drive = |spec: usize| DriveState {
        spec,
        channels: vec![0; specs[spec].channels as usize],
        bus_free_ns: 0.0,
        write_free_ns: 0.0,
        drained_ns: 0.0,
        slower: 1.0,
    };
    (0..specs.len()).flat_map(|spec| (0..specs[spec].count).map(move |_| spec)).map(drive).collect()
}

/// The bytes of the pool of buffers; without end where nothing bounds them.
fn pool_bytes(scenario: &Scenario) -> f64 {
    match scenario.pacing.method {
        Method::Buffers { count, unit_bytes, .. } => f64::from(count) * f64::from(unit_bytes),
        _ => scenario.pacing.budget_bytes.map_or(f64::INFINITY, |bytes| bytes as f64),
    }
}

impl<'a> Engine<'a> {
    pub fn new(scenario: &'a Scenario) -> Result<Engine<'a>, Error> {
        let machine = scenario.machine()?;
        let namespaces = scenario.namespaces.unwrap_or(machine.drive_count());
        if namespaces == 0 || namespaces > NAMESPACES_MAX {
            return Err(Error(format!("namespaces must be 1 to {NAMESPACES_MAX}")));
        }
        scenario.check(namespaces)?;
        let Load { jobs, connections, hosts, ops } = Load::of(scenario, &machine, namespaces)?;
        let delay_ns = delays(scenario, namespaces)?;
        let limits = Limits { ops: ops as u32 + 16, drives: namespaces, tenants: hosts };
        let warmup_ns = (scenario.warmup_seconds * NS) as u64;
        let specs: Vec<Drives> = machine.kinds_of_drives().cloned().collect();
        let histograms = || [Histogram::new(), Histogram::new()];
        let idle = |count: u32| [vec![0.0; count as usize], vec![0.0; count as usize]];
        Ok(Engine {
            memory: MemoryPath::new(&machine.cache, machine.cores),
            pool_bytes: pool_bytes(scenario),
            pacer: scenario.pacing.build(limits)?,
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
            heap: BinaryHeap::with_capacity(ops as usize * 2 + 64),
            now: 0,
            flights: Vec::with_capacity(ops as usize),
            free: Vec::new(),
            jobs,
            connections: machine.queue_depth.map_or(Vec::new(), |_| vec![Default::default(); connections as usize]),
            drives: drives(&specs),
            specs,
            delay_ns,
            cores_free_ns: vec![0.0; machine.cores as usize],
            cores_ops: vec![0; machine.cores as usize],
            cores_busy_ns: 0.0,
            empty_bytes: 0,
            memory_free_ns: 0.0,
            ports_free_ns: idle(machine.ports),
            hosts_free_ns: idle(hosts),
            wake_ns: u64::MAX,
            measure_from_ns: warmup_ns,
            end_ns: warmup_ns + (scenario.seconds * NS) as u64,
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
}
