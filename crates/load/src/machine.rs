//! The machine as results describe it: its name, the processor time of a clone, the disks below the files.
#![forbid(unsafe_code)]

use measure::schema::{CpuUsage, DiskUtil, Machine, Provenance, SCHEMA_VERSION, Storage};
use sys::clock::{Clock, monotonic_ns};
use sys::disk::{self, Counters};
use sys::process::{self, Who};

use crate::engine::looking;

/// This machine, with the clock that is read per op.
pub fn machine(clock: &Clock) -> Machine {
    let host = process::host();
    Machine {
        hostname: host.name,
        kernel: host.kernel,
        cpu: host.cpu,
        cpus: host.cpus,
        memory_bytes: host.memory_bytes,
        clock: clock.name().to_owned(),
    }
}

/// The origin of a measurement: this program, this machine, and the time.
pub fn provenance(clock: &Clock, started_unix_ms: u64) -> Provenance {
    Provenance {
        schema: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(),
        started_unix_ms,
        machine: machine(clock),
    }
}

/// The command line of this program, in which U+FFFD stands for bytes that are not UTF-8.
pub fn command() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Processor time, context switches and page faults of the clone on the calling thread so far: those of its process,
/// with the kernel's workers for it, or those of its thread where it shares the process with other clones.
pub fn cpu_usage() -> CpuUsage {
    let used = process::usage(if process::is_main_thread() { Who::Process } else { Who::Thread });
    CpuUsage {
        user_ns: used.user_ns,
        system_ns: used.system_ns,
        context_switches: used.context_switches,
        major_faults: used.major_faults,
        minor_faults: used.minor_faults,
        looked_ns: looking::looked_ns(),
        waited_ns: process::waited_for_cpu_ns().unwrap_or_default(),
    }
}

/// A watch over the disks of a storage, which begins when the value is made.
#[derive(Debug)]
pub struct DiskWatch {
    names: Vec<String>,
    before: Vec<(String, Counters)>,
    started_ns: u64,
}

impl DiskWatch {
    /// Watches the disks of a storage.
    pub fn start(storage: &Storage) -> DiskWatch {
        let names: Vec<String> = storage.disks.iter().map(|disk| disk.name.clone()).collect();
        let before = disk::counters(&names);
        DiskWatch { names, before, started_ns: monotonic_ns() }
    }

    /// The use of the disks since the watch began.
    pub fn so_far(&self) -> Vec<DiskUtil> {
        let elapsed_ms = ((monotonic_ns() - self.started_ns) as f64 / 1e6).max(1.0);
        let after = disk::counters(&self.names);
        let then = |name: &String| self.before.iter().find(|(other, _)| other == name).map(|(_, counters)| *counters);
        let used = after.into_iter().filter_map(|(name, now)| {
            let used = now.since(&then(&name)?);
            Some(DiskUtil {
                name,
                ios: used.ios,
                merges: used.merges,
                ticks_ms: used.ticks_ms,
                in_queue_ms: used.in_queue_ms,
                util_percent: (used.busy_ms as f64 / elapsed_ms * 100.0).min(100.0),
            })
        });
        used.collect()
    }
}
