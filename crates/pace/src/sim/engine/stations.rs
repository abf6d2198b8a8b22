//! The stations that an op passes: initiator, core, pacer, drive, memory path, port.

use rand_xoshiro::rand_core::Rng;

use super::{Engine, Flight, Kind};
use crate::config::Error;
use crate::sim::kinds::SMALL_BYTES;
use crate::sim::machine::Drives;
use crate::sim::scenario::Order;
use crate::{Admit, Op, OpId, Refusal};

/// A refused command is sent again after this long, as a host's queue-full handling does.
const RETRY_NS: u64 = 100_000;

impl Engine<'_> {
    /// Sends a command that the initiator created at `submitted_ns`.
    pub(super) fn submit(&mut self, job: u32, submitted_ns: u64) {
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
        state.core_free_ns = state.core_free_ns.max(submitted_ns as f64) + state.initiator_ns[size];
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
    pub(super) fn core_of(&self, connection: u32) -> usize {
        connection as usize % self.cores_free_ns.len()
    }

    /// When the op's core has spent half an op's time, from now on: to take the command up, to send its answer, and to
    /// pass on the data that a write fetched.
    #[inline]
    pub(super) fn core_visit(&mut self, index: u32) -> f64 {
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

    pub(super) fn admit(&mut self, index: u32) -> Result<(), Error> {
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

    pub(super) fn poll(&mut self) {
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
    pub(super) fn fetched(&mut self, index: u32) {
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

    pub(super) fn media(&mut self, index: u32) {
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

    pub(super) fn data(&mut self, index: u32) {
        let flight = self.flights[index as usize];
        let ready_ns = self.core_visit(index);
        // A write has only its status to send.
        let at_ns = if flight.write { ready_ns.ceil() as u64 } else { self.carry(&flight, 0, ready_ns) };
        self.push(at_ns, Kind::Done, index);
    }

    pub(super) fn done(&mut self, index: u32) {
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
            let class = usize::from(bytes > SMALL_BYTES);
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
