//! Latencies of single requests, by the names of their disks.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use observe::trace::{Latencies, Tracer, Way};
use observe::{Host, Kind, Target, Wanted};
use serde::Serialize;

/// Figures of the requests that completed in an interval, from the driver and back; times in nanoseconds. None where
/// requests whose end was not seen may decide, and without requests.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Figures {
    pub requests: u64,
    /// Requests whose end was not seen; they count as the slowest.
    pub given_up: u64,
    #[serde(rename = "mean_ns")]
    pub mean: Option<f64>,
    #[serde(rename = "p50_ns")]
    pub p50: Option<u64>,
    #[serde(rename = "p90_ns")]
    pub p90: Option<u64>,
    #[serde(rename = "p99_ns")]
    pub p99: Option<u64>,
    #[serde(rename = "p999_ns")]
    pub p999: Option<u64>,
    #[serde(rename = "max_ns")]
    pub max: Option<u64>,
}

impl Figures {
    fn of(latencies: &Latencies) -> Figures {
        let is_whole = latencies.given_up == 0 && latencies.requests() > 0;
        Figures {
            requests: latencies.requests(),
            given_up: latencies.given_up,
            mean: is_whole.then(|| latencies.completed.mean()),
            p50: latencies.quantile(0.5),
            p90: latencies.quantile(0.9),
            p99: latencies.quantile(0.99),
            p999: latencies.quantile(0.999),
            max: is_whole.then(|| latencies.completed.max()),
        }
    }
}

/// The last interval of one disk.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Latest {
    /// True if some requests of the host were left out, to bound the cost.
    pub is_part: bool,
    pub all: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Figures>,
}

/// Traces disks, and keeps what was found.
pub struct TracedDisks {
    tracer: Tracer,
    host: Host,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    is_part: bool,
    latest: HashMap<String, Latest>,
    /// Since the start.
    total: HashMap<(String, &'static str), Latencies>,
}

impl TracedDisks {
    /// Begins to trace the disks among `wanted`.
    ///
    /// # Errors
    /// None of the targets is a whole disk; no rights; a kernel without tracepoints.
    pub fn start(host: &Host, wanted: &Wanted) -> anyhow::Result<TracedDisks> {
        let mut numbers = Vec::new();
        if let Wanted::These(these) = wanted {
            let is_asked = |name: &str| these.iter().any(|target| target.kind == Kind::Disk && target.name == name);
            let disks = host.disks_by_number();
            numbers.extend(disks.iter().filter(|(_, name)| is_asked(name) && host.is_whole(name)).map(|(at, _)| *at));
            if numbers.is_empty() {
                bail!("--trace: the kernel traces the requests of whole disks, and no target is one");
            }
        }
        let tracer = Tracer::start(&numbers).context("--trace")?;
        Ok(TracedDisks { tracer, host: host.clone(), found: Mutex::default() })
    }

    /// Ends an interval.
    pub fn look(&self) {
        let traced = self.tracer.take();
        let names = self.host.disks_by_number();
        let mut sums: HashMap<&str, (Latencies, Latest)> = HashMap::new();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for ((number, way), latencies) in &traced.by_disk {
            let Some(name) = names.get(number) else { continue };
            let (all, latest) = sums.entry(name).or_default();
            all.merge(latencies);
            let (figures, label) = match way {
                Way::Read => (&mut latest.read, "read"),
                Way::Write => (&mut latest.write, "write"),
                Way::Other => (&mut latest.other, "other"),
            };
            *figures = Some(Figures::of(latencies));
            found.total.entry((name.clone(), label)).or_default().merge(latencies);
        }
        found.is_part = traced.is_part;
        found.latest = sums
            .into_iter()
            .map(|(name, (all, latest))| {
                (name.to_owned(), Latest { all: Figures::of(&all), is_part: traced.is_part, ..latest })
            })
            .collect();
    }

    /// The last interval of a target; None unless it is a whole disk.
    pub fn latest(&self, target: &Target) -> Option<Latest> {
        let is_disk = target.kind == Kind::Disk && self.host.is_whole(&target.name);
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = Latest { is_part: found.is_part, ..Latest::default() };
        is_disk.then(|| found.latest.get(&target.name).copied().unwrap_or(idle))
    }

    /// All latencies since the start as a histogram for Prometheus.
    pub fn prometheus(&self) -> String {
        const NAME: &str = "plimsoll_watch_device_latency_seconds";
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = String::new();
        if !found.total.is_empty() {
            let _ = writeln!(page, "# HELP {NAME} Latencies of traced requests, from the driver and back.");
            let _ = writeln!(page, "# TYPE {NAME} histogram");
        }
        let mut total: Vec<_> = found.total.iter().collect();
        total.sort_by_key(|(key, _)| *key);
        for ((name, op), latencies) in total {
            let labels = format!("kind=\"disk\",target=\"{}\",op=\"{op}\"", nvme_rpc::escape_label(name));
            let mut buckets = latencies.completed.buckets().peekable();
            let mut count = 0;
            for bound_ns in BOUNDS_NS {
                while let Some((_, _, samples)) = buckets.next_if(|(_, highest, _)| *highest <= bound_ns) {
                    count += samples;
                }
                let _ = writeln!(page, "{NAME}_bucket{{{labels},le=\"{}\"}} {count}", bound_ns as f64 / 1e9);
            }
            let _ = writeln!(page, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {}", latencies.requests());
            let _ = writeln!(page, "{NAME}_sum{{{labels}}} {}", latencies.completed.sum() as f64 / 1e9);
            let _ = writeln!(page, "{NAME}_count{{{labels}}} {}", latencies.requests());
        }
        page
    }
}

/// Upper ends of Prometheus' buckets in nanoseconds: three a decade, from 10 us to 10 s.
const BOUNDS_NS: [u64; 19] = {
    let mut bounds = [0; 19];
    let (mut at, mut decade) = (0, 10_000);
    while at < 18 {
        bounds[at] = decade;
        bounds[at + 1] = decade * 2;
        bounds[at + 2] = decade * 5;
        (at, decade) = (at + 3, decade * 10);
    }
    bounds[18] = decade;
    bounds
};
