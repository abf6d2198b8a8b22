//! Pacing: makes the pacer of each reactor from the one configuration.
//!
//! Every reactor has a separate pacer and an equal part of the budget: admission takes no lock and touches no other
//! processor's memory, and the parts never add up to more than the whole (docs/decisions/budget-per-reactor.md).

use pace::{Admission, Config, Limits, Method};

use super::configuration::MAX_DRIVES;
use super::{Error, Options};

/// Ops that a reactor's pacer remembers; beyond, connections are not read from until some have ended.
pub(super) const OPS: u32 = 16_384;
/// The number of hosts that are told apart; later hosts share the last id.
pub(super) const MAX_TENANTS: u32 = 256;

/// The share of the memory and the window that one reactor may use.
#[derive(Clone, Debug)]
pub(super) struct Share {
    config: Config,
    /// Bytes of all data buffers; `None` without a budget.
    pub pool_bytes: Option<u64>,
    /// Bytes of these for data that came in capsules of commands not yet admitted.
    pub reserve_bytes: u64,
    /// The most bytes in flight that the pacer admits.
    pub window_bytes: u64,
    /// The most bytes of data on the network, including data that hosts are slow to take or send.
    pub afloat_bytes: u64,
    /// True if the pacer knows queues, and can pause one.
    pub has_queues: bool,
}

/// Bounds on data on the network: bytes of all reactors together, where no budget gives a bound; and the least for each
/// reactor, in largest I/Os.
const AFLOAT_BYTES: u64 = 32 << 20;
const LEAST_AFLOAT_IOS: u64 = 4;

/// The smallest limit on I/O that MDTS can tell hosts: one page of 4 KiB would be 0, which means that there is no
/// limit.
const LEAST_IO: u32 = 8192;

/// The largest I/O that a part of the budget holds twice (a Compare needs two buffers), at most what `options` ask for.
pub(super) fn largest_io(options: &Options) -> Result<u32, Error> {
    let asked = options.max_io_bytes;
    if !asked.is_power_of_two() || !(LEAST_IO..=8 << 20).contains(&asked) {
        let line = format!("{asked} bytes as the largest I/O: give a power of two from 8 KiB to 8 MiB");
        return Err(Error::invalid(line));
    }
    let window = share(options)?.window_bytes;
    let mut largest = asked;
    while u64::from(largest) * 2 > window && largest > LEAST_IO {
        largest /= 2;
    }
    if u64::from(largest) * 2 > window {
        let reactors = options.reactors;
        return Err(Error::invalid(format!(
            "the memory budget leaves {window} bytes to each of {reactors} reactors, less than two 8 KiB I/Os: \
             raise it, or use fewer reactors"
        )));
    }
    Ok(largest)
}

/// The equal share of each reactor.
pub(super) fn share(options: &Options) -> Result<Share, Error> {
    let reactors = options.reactors as u64;
    let mut config = options.pacing.clone();
    let mut reserve_bytes = 4 << 20;
    let mut pool_bytes = None;
    if let Some(budget) = config.budget_bytes {
        let part = budget / reactors;
        reserve_bytes = (part / 16).max(64 << 10);
        pool_bytes = Some(part);
        config.budget_bytes = Some(part.saturating_sub(reserve_bytes));
    }
    match &mut config.method {
        Method::Buffers { count, cores, unit_bytes, .. } => {
            *count = (*count / options.reactors as u32).max(1);
            *cores = 1;
            // Capsules are on top: the method has no budget but its buffers.
            pool_bytes = Some(u64::from(*count) * u64::from(*unit_bytes) + reserve_bytes);
        }
        Method::Rate { credits } | Method::RateDelivered { credits, .. } | Method::RateInFlight { credits, .. } => {
            credits.cores = 1
        }
        Method::Cap { iops, bytes_per_s, .. } => {
            *iops = iops.map(|iops| (iops / reactors).max(1));
            *bytes_per_s = bytes_per_s.map(|bytes| (bytes / reactors).max(1));
        }
        Method::None | Method::Auto { .. } => {}
    }
    let window_bytes = match &config.method {
        Method::Buffers { count, unit_bytes, .. } => u64::from(*count) * u64::from(*unit_bytes),
        _ => config.budget_bytes.unwrap_or(u64::MAX),
    };
    let has_queues = matches!(config.method, Method::Auto { .. });
    let afloat_bytes = match (window_bytes, has_queues) {
        (u64::MAX, _) => (AFLOAT_BYTES / reactors).max(LEAST_AFLOAT_IOS * u64::from(options.max_io_bytes)),
        (budget, true) => budget,
        // The pacer counts what is in flight, wherever it is, and holds the rest.
        (_, false) => u64::MAX,
    };
    Ok(Share { config, pool_bytes, reserve_bytes, window_bytes, afloat_bytes, has_queues })
}

impl Share {
    pub fn pacer(&self) -> Result<Box<dyn Admission>, Error> {
        let limits = Limits { ops: OPS, drives: MAX_DRIVES, tenants: MAX_TENANTS };
        self.config.build(limits).map_err(|e| Error::invalid(e.to_string()))
    }
}
