//! A scenario: the machine, the pacing, the jobs, what changes on the way. TOML, as in configs/sim/.

use serde::{Deserialize, Serialize};

use super::ids;
use super::machine::{self, Machine};
use super::sweep::Sweep;
use crate::config::{Config, Error};

/// One simulation, or a sweep of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name of the scenario, for reports.
    pub name: String,
    /// The purpose of the scenario, in a sentence or two.
    #[serde(default)]
    pub about: String,
    /// Seconds of simulated time that the result covers.
    #[serde(default = "one_second")]
    pub seconds: f64,
    /// Seconds of simulated time before the measurement.
    #[serde(default = "default_warmup")]
    pub warmup_seconds: f64,
    /// The random generator's seed.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// Milliseconds of one point of the curves.
    #[serde(default = "default_sample")]
    pub sample_ms: f64,
    /// `profile = "intel-16"` and whatever differs from it, or a machine spelt out.
    #[serde(default)]
    pub machine: toml::Table,
    /// The pacing method.
    pub pacing: Config,
    /// Namespaces, dealt out over the drives in turn: namespace n is on drive n mod drives. As many as drives unless
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<u32>,
    /// Delay devices on top of namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay: Vec<Delay>,
    /// The load of the hosts.
    pub jobs: Vec<Job>,
    /// The changes during the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Parameters to vary: every combination is a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<Sweep>,
}

/// A delay added to every op of some namespaces, buffer in hand.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// The namespaces whose ops are delayed, such as `0-15`.
    pub namespaces: String,
    /// The delay of each op in microseconds.
    pub us: f64,
}

/// A workload, on every host of `hosts`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Initiators that run it, such as `0-1`. Each is a tenant.
    #[serde(default = "host_zero")]
    pub hosts: String,
    /// Copies per host; each takes an equal part of the namespaces for itself when there are several.
    #[serde(default = "one")]
    pub per_host: u32,
    /// The namespaces it uses, such as `0-15`; all unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<String>,
    /// Ops in flight of each copy (closed loop), or at most (open loop).
    pub depth: u32,
    /// Ops per second of each copy that arrive whatever happens (Poisson); closed loop unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// The sizes of its ops.
    pub sizes: Vec<SizeShare>,
    /// Percent of its ops that write.
    #[serde(default)]
    pub write_percent: f64,
    /// The order in which the job goes through its namespaces.
    #[serde(default)]
    pub order: Order,
    /// When it starts, simulated seconds from the beginning of the warm-up.
    #[serde(default)]
    pub start_s: f64,
    /// When it stops submitting, simulated seconds from the beginning of the warm-up; at the end unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_s: Option<f64>,
}

/// One size of a job's ops, with its share.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeShare {
    /// The size of an op: bytes, or text such as `128k`.
    #[serde(deserialize_with = "crate::size::bytes")]
    pub bytes: u64,
    /// Percent of the job's ops that have this size.
    #[serde(default = "hundred")]
    pub percent: f64,
}

/// The order in which a job uses its namespaces: fio's `file_service_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Each namespace in turn (fio's default).
    #[default]
    RoundRobin,
    /// Any namespace, each with the same probability.
    Random,
}

/// A change of the machine under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Simulated seconds from the beginning of the warm-up.
    pub at_s: f64,
    /// Drives that change, such as `3`.
    pub drives: String,
    /// From then on their times are this many times those of the profile.
    pub slower: f64,
}

fn one_second() -> f64 {
    1.0
}

fn default_warmup() -> f64 {
    0.5
}

fn one_seed() -> u64 {
    1
}

fn default_sample() -> f64 {
    10.0
}

fn one() -> u32 {
    1
}

fn hundred() -> f64 {
    100.0
}

fn host_zero() -> String {
    "0".into()
}

/// The keys that stand in `[pacing]` where the method is missing: one of them may be misspelt.
fn instead_of_method(message: &str, text: &str) -> String {
    let scenario: Option<toml::Table> = text.parse().ok();
    let pacing = scenario.as_ref().and_then(|scenario| scenario.get("pacing")?.as_table());
    match pacing.filter(|_| message.contains("`method`")) {
        Some(pacing) => {
            let keys: Vec<String> = pacing.keys().map(|key| format!("`{key}`")).collect();
            let there = if keys.is_empty() { "nothing".to_string() } else { keys.join(", ") };
            format!(": [pacing] has {there} (expected method = \"auto\" or another method)")
        }
        None => String::new(),
    }
}

/// Hosts that a scenario may name.
pub(super) const HOSTS_MAX: u32 = 4096;

impl Scenario {
    /// The scenario of a TOML text.
    ///
    /// # Errors
    /// The line and its fault.
    pub fn parse(text: &str) -> Result<Scenario, Error> {
        toml::from_str(text).map_err(|e| {
            let at = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line = at.map_or(String::new(), |line| format!("line {line}: "));
            Error(format!("{line}{}{}", e.message().replace('\n', " "), instead_of_method(e.message(), text)))
        })
    }

    /// The machine: the named profile with the values that the scenario overrides.
    ///
    /// # Errors
    /// No such profile, or a value that is none.
    pub fn machine(&self) -> Result<Machine, Error> {
        let mut table = self.machine.clone();
        let merged = match table.remove("profile") {
            None => table,
            Some(toml::Value::String(name)) => {
                let mut base: toml::Table =
                    machine::profile(&name)?.parse().map_err(|e| Error(format!("profile {name}: {e}")))?;
                merge(&mut base, table);
                base
            }
            Some(other) => return Err(Error(format!("machine.profile = {other}: give the name of a profile"))),
        };
        let machine: Machine = toml::Value::Table(merged)
            .try_into()
            .map_err(|e: toml::de::Error| Error(format!("machine: {}", e.message())))?;
        machine.check()?;
        Ok(machine)
    }

    /// The scenario with another pacing method.
    pub fn with_pacing(&self, pacing: Config) -> Scenario {
        Scenario { pacing, ..self.clone() }
    }

    pub(super) fn check(&self, namespaces: u32) -> Result<(), Error> {
        let fail = |what: String| Err(Error(what));
        let time = |v: f64| v.is_finite() && (0.0..=1e6).contains(&v);
        if !time(self.seconds) || self.seconds <= 0.0 || !time(self.warmup_seconds) {
            return fail("seconds must be above 0, warmup_seconds 0 or more, both at most 1e6".into());
        }
        if !self.sample_ms.is_finite() || self.sample_ms < 0.001 || self.seconds * 1e3 / self.sample_ms > 1e7 {
            return fail("sample_ms must be at least 0.001 and leave at most 1e7 points".into());
        }
        if self.jobs.is_empty() {
            return fail("no [[jobs]]: nobody sends anything".into());
        }
        for (n, job) in self.jobs.iter().enumerate() {
            let at = format!("jobs[{n}]");
            let total: f64 = job.sizes.iter().map(|s| s.percent).sum();
            if job.sizes.is_empty()
                || job.sizes.iter().any(|s| !s.percent.is_finite() || s.percent < 0.0)
                || (total - 100.0).abs() > 0.01
            {
                return fail(format!("{at}.sizes: the percentages must be 0 or more and sum to 100, not {total}"));
            }
            if job.sizes.iter().any(|s| s.bytes == 0 || s.bytes > 1 << 30) {
                return fail(format!("{at}.sizes: bytes must be 1 to 1g"));
            }
            if job.depth == 0 || job.depth > 1 << 20 || job.per_host == 0 || job.per_host > 65_536 {
                return fail(format!("{at}: depth must be 1 to 1048576, per_host 1 to 65536"));
            }
            if job.iops.is_some_and(|v| !(1e-3..=1e9).contains(&v)) {
                return fail(format!("{at}.iops must be 0.001 to 1e9"));
            }
            if !(0.0..=100.0).contains(&job.write_percent) || !time(job.start_s) || job.stop_s.is_some_and(|v| !time(v))
            {
                return fail(format!("{at}: write_percent must be 0 to 100, start_s and stop_s 0 to 1e6"));
            }
            ids::parse(&job.hosts, HOSTS_MAX, &format!("{at}.hosts"))?;
            if let Some(text) = &job.namespaces {
                ids::parse(text, namespaces, &format!("{at}.namespaces"))?;
            }
        }
        for (n, delay) in self.delay.iter().enumerate() {
            ids::parse(&delay.namespaces, namespaces, &format!("delay[{n}].namespaces"))?;
            if !(0.0..=1e9).contains(&delay.us) {
                return fail(format!("delay[{n}].us must be 0 to 1e9"));
            }
        }
        for (n, event) in self.events.iter().enumerate() {
            if !time(event.at_s) || !(1e-3..=1e6).contains(&event.slower) {
                return fail(format!("events[{n}]: at_s must be 0 to 1e6, slower 0.001 to 1e6"));
            }
        }
        Ok(())
    }
}

pub(super) fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(more)) => merge(inner, more),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
