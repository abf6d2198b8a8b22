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

mod figures;
mod setup;
mod stations;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use measure::Histogram;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

use super::ids;
use super::machine::{Drives, Machine, MemoryPath};
use super::outcome::{Outcome, Point};
use super::scenario::{Order, Scenario};
use crate::config::Error;
use crate::{Admission, OpId};

const NS: f64 = 1e9;

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
    /// The time of the initiator's core for an op of each size.
    initiator_ns: Vec<f64>,
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
}
