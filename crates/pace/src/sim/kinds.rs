//! Kinds of scenarios: what the published rows can vouch for.
//!
//! A kind is a set of measured rows with the same sort of load on the same machine. The model's errors differ between
//! kinds and are alike within one. Therefore the errors of the rows of a kind say how far to trust a simulation of it.

use super::machine::Machine;
use super::scenario::{Job, Scenario};
use crate::config::{Error, Method};

/// One op at a time: the sum of the fixed latencies.
pub const ONE: &str = "one op in flight";
/// Devices that answer at once.
pub const NULL: &str = "null devices";
/// Small reads by a number of cores that is neither 4 nor 16.
pub const CORES: &str = "small reads, other numbers of cores";
/// Reads of 128 KiB without pacing.
pub const LARGE: &str = "reads of 128k, unpaced";
/// Reads of 128 KiB out of a pool of buffers.
pub const LARGE_BUFFERS: &str = "reads of 128k, buffers";
/// Reads of 128 KiB out of a pool of buffers, where some namespaces are delayed.
pub const LARGE_SLOW: &str = "reads of 128k, buffers, slow namespaces";
/// Reads of 128 KiB at a rate.
pub const LARGE_RATE: &str = "reads of 128k, rate";
/// Reads of 4 to 16 KiB.
pub const SMALL: &str = "reads of 4k to 16k";
/// Small and large reads without pacing.
pub const MIXED: &str = "reads of mixed sizes, unpaced";
/// Small and large reads at a rate.
pub const MIXED_RATE: &str = "reads of mixed sizes, rate";
/// Small and large reads, of which the large ones come at a rate.
pub const MIXED_BYPASS: &str = "reads of mixed sizes, rate with bypass";
/// Writes of 128 KiB.
pub const LARGE_WRITES: &str = "writes of 128k";
/// Writes of 4 to 16 KiB.
pub const SMALL_WRITES: &str = "writes of 4k to 16k";
/// Small and large writes.
pub const MIXED_WRITES: &str = "writes of mixed sizes";

/// All kinds, in the order in which documents list them.
pub const KINDS: [&str; 14] = [
    ONE,
    NULL,
    CORES,
    LARGE,
    LARGE_BUFFERS,
    LARGE_SLOW,
    LARGE_RATE,
    SMALL,
    MIXED,
    MIXED_RATE,
    MIXED_BYPASS,
    LARGE_WRITES,
    SMALL_WRITES,
    MIXED_WRITES,
];

/// Ops of at most this size are small.
pub(super) const SMALL_BYTES: u64 = 16 << 10;
/// The largest number of ops in flight of a measured row.
const OPS_MAX: u64 = 8192;
/// The kernel initiator, the delay of namespaces and in-capsule data differ between rows, and the cores.
const MAY_DIFFER: [&str; 3] = ["cores", "in_capsule_bytes", "turnaround_us"];

/// The kind of a scenario and the profile of its machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// The name of the profile.
    pub profile: String,
    /// One of [`KINDS`].
    pub name: &'static str,
}

/// The kind of `scenario`, or the reason why no measured row is like it, as a clause.
///
/// # Errors
/// A machine that is not valid.
pub fn of(scenario: &Scenario) -> Result<Result<Kind, String>, Error> {
    let machine = scenario.machine()?;
    let Some(profile) = scenario.machine.get("profile").and_then(toml::Value::as_str) else {
        return Ok(Err("its machine has no profile".into()));
    };
    let null = machine.drives.read_us == 0.0 && machine.drives.bus_gbytes >= 100.0;
    if let Some(field) = differing(&machine, &Machine::shipped(profile)?, null)? {
        return Ok(Err(format!("machine.{field} is not that of {profile}")));
    }
    Ok(of_load(scenario, machine.cores, null).map(|name| Kind { profile: profile.into(), name }))
}

/// The first field by which `machine` differs from its profile and no two rows do.
fn differing(machine: &Machine, shipped: &Machine, null: bool) -> Result<Option<String>, Error> {
    let table = |m: &Machine| toml::Table::try_from(m).map_err(|e| Error(format!("machine: {e}")));
    let (own, usual) = (table(machine)?, table(shipped)?);
    let names = own.keys().chain(usual.keys());
    let may = |name: &str| MAY_DIFFER.contains(&name) || null && matches!(name, "cache" | "drives");
    Ok(names.filter(|name| !may(name)).find(|name| own.get(*name) != usual.get(*name)).cloned())
}

fn of_load(scenario: &Scenario, cores: u32, null: bool) -> Result<&'static str, String> {
    let jobs = &scenario.jobs;
    let outside = |what: &str| Err(what.to_string());
    if !scenario.events.is_empty() || jobs.iter().any(|job| job.start_s > 0.0 || job.stop_s.is_some()) {
        return outside("no row was measured while jobs or drives change");
    }
    if jobs.iter().any(|job| job.iops.is_some()) {
        return outside("every measured job had a queue that was always full");
    }
    let writes = jobs.iter().all(|job| job.write_percent == 100.0);
    if !writes && jobs.iter().any(|job| job.write_percent > 0.0) {
        return outside("every measured row only reads or only writes");
    }
    let in_flight: u64 = jobs.iter().map(ops).sum();
    if in_flight > OPS_MAX {
        return Err(format!("{in_flight} ops in flight are more than the {OPS_MAX} of any measured row"));
    }
    let sizes = || jobs.iter().flat_map(|job| &job.sizes).filter(|size| size.percent > 0.0).map(|size| size.bytes);
    if let Some(bytes) = sizes().find(|bytes| !(4096..=SMALL_BYTES).contains(bytes) && *bytes != 131_072) {
        return Err(format!("no measured row has ops of {bytes} bytes"));
    }
    let (small, large) = (sizes().any(|bytes| bytes <= SMALL_BYTES), sizes().any(|bytes| bytes > SMALL_BYTES));
    let slow = !scenario.delay.is_empty();
    if scenario.pacing.budget_bytes.is_some() {
        return outside("no row was measured with a budget");
    }
    let (rate, bypass) = match &scenario.pacing.method {
        Method::None | Method::Buffers { .. } => (false, false),
        Method::Rate { credits } | Method::RateDelivered { credits, .. } | Method::RateInFlight { credits, .. } => {
            if !credits.at_period_end {
                return outside("the measured rates sent ops at the end of a period (at_period_end = true)");
            }
            (true, credits.bypass_bytes > 0)
        }
        Method::Auto { .. } => return outside("no row was measured with the pacer auto"),
        _ => return outside("no row was measured with this pacing method"),
    };
    let buffers = matches!(scenario.pacing.method, Method::Buffers { .. });
    if slow && !(buffers && large && !small && !writes && !null) {
        return outside("slow namespaces were measured with 128k reads out of a pool of buffers only");
    }
    if in_flight == 1 {
        return Ok(ONE);
    }
    match (null, writes, small, large) {
        (true, true, ..) => outside("writes to null devices were measured with one op in flight only"),
        (true, ..) => Ok(NULL),
        _ if !matches!(cores, 4 | 16) => match (writes, large) {
            (false, false) => Ok(CORES),
            _ => Err(format!("no such row was measured with {cores} cores")),
        },
        (_, true, true, true) => Ok(MIXED_WRITES),
        (_, true, true, false) => Ok(SMALL_WRITES),
        (_, true, ..) => Ok(LARGE_WRITES),
        (_, _, true, true) if buffers => outside("no row was measured with mixed sizes out of a pool of buffers"),
        (_, _, true, true) => Ok(if bypass {
            MIXED_BYPASS
        } else if rate {
            MIXED_RATE
        } else {
            MIXED
        }),
        (_, _, true, false) => Ok(SMALL),
        _ if slow => Ok(LARGE_SLOW),
        _ => Ok(if buffers {
            LARGE_BUFFERS
        } else if rate {
            LARGE_RATE
        } else {
            LARGE
        }),
    }
}

/// Ops in flight of all copies of a job.
pub(super) fn ops(job: &Job) -> u64 {
    let hosts = super::ids::parse(&job.hosts, super::scenario::HOSTS_MAX, "hosts").map_or(1, |hosts| hosts.len());
    hosts as u64 * u64::from(job.per_host) * u64::from(job.depth)
}
