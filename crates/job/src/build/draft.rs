//! A job in the making, with the places of its settings.

use std::collections::BTreeMap;

use measure::PerDirection;

use super::priorities::CommandPriority;
use super::without_data::CpuLoad;
use super::working_set::Dedupe;
use crate::error::{Error, Place};
use crate::job::*;
use crate::options::{Each, values};
use crate::source::Setting;

/// A job in the making: options set one by one, in the order in which they were written.
#[derive(Clone)]
pub struct Draft {
    pub(crate) job: Job,
    pub(crate) block: Each<u64>,
    pub(crate) block_range: Each<(u64, u64)>,
    pub(crate) align: Each<u64>,
    pub(crate) zone_mode: Option<String>,
    pub(crate) cpu: CpuLoad,
    pub(crate) dedupe: Dedupe,
    pub(crate) command_priority: CommandPriority,
    pub(crate) zones: Zones,
    pub(crate) zone_skip: u64,
    pub(crate) zoned: Zoned,
    pub(crate) low: Option<u32>,
    pub(crate) seed_given: bool,
    pub(crate) refill_given: bool,
    pub(crate) priority: (Option<u8>, Option<u8>),
    pub(crate) priority_hint: Option<u16>,
    pub(crate) latency: LatencyGoal,
    pub(crate) flow: Flow,
    pub(crate) verify: Verify,
    pub(crate) precondition: Precondition,
    pub(crate) precondition_wanted: bool,
    pub(crate) verify_kind: Option<VerifyKind>,
    pub(crate) verify_given: bool,
    pub(crate) saves_state: Option<bool>,
    pub(crate) steady: Option<SteadyState>,
    pub(crate) steady_window_ns: u64,
    pub(crate) steady_ramp_ns: u64,
    pub(crate) steady_interval_ns: u64,
    /// The last setting of each option, by its canonical name, and whether the job itself made it.
    pub(super) set: BTreeMap<&'static str, (Setting, bool)>,
    /// True while the settings are the job's own and meant for its own engine; false while they come from a global
    /// section, or another engine is imposed.
    pub(super) own: bool,
    /// File and line of the section's heading.
    pub(super) section: Place,
    /// As [`Imposed::lenient`](super::Imposed::lenient).
    pub(super) lenient: bool,
    pub(super) warnings: Vec<String>,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft {
            job: Job::default(),
            block: PerDirection::default(),
            block_range: PerDirection::default(),
            align: PerDirection::default(),
            zone_mode: None,
            command_priority: CommandPriority::default(),
            dedupe: Dedupe { from_set: false, percent: 5, global: false },
            cpu: CpuLoad { load_percent: None, chunk_ns: 50_000_000 },
            zones: Zones { size: 0, range: 0, skip: 0 },
            zone_skip: 0,
            zoned: Zoned::default(),
            low: None,
            seed_given: false,
            refill_given: false,
            priority: (None, None),
            priority_hint: None,
            latency: LatencyGoal { target_ns: 0, window_ns: 0, percentile: 100.0, run: false },
            flow: Flow { id: 0, weight: 0, sleep_ns: 0 },
            verify: Verify::default(),
            precondition: Precondition { over_provisioning: 0.15, regions: 100, cache_bytes: 0 },
            precondition_wanted: false,
            verify_kind: None,
            verify_given: false,
            saves_state: None,
            steady: None,
            steady_window_ns: 0,
            steady_ramp_ns: 0,
            steady_interval_ns: values::STEADY_INTERVAL_NS,
            set: BTreeMap::new(),
            own: false,
            section: Place::CommandLine,
            lenient: false,
            warnings: Vec::new(),
        }
    }
}

impl Draft {
    /// The amount; None for 0 bytes, which is as good as an option that is not given.
    pub(crate) fn nonzero(&self, amount: Amount) -> Option<Amount> {
        Some(amount).filter(|amount| !matches!(amount, Amount::Bytes(0)))
    }

    /// An option that only its engine understands.
    pub(crate) fn other(&mut self, name: &str, value: &str) {
        self.job.ring.other.retain(|(known, _)| known != name);
        self.job.ring.other.push((name.into(), value.into()));
    }

    /// Names of files: called as `fio`, further ones; else in place of earlier ones.
    pub(crate) fn name_files(&mut self, names: Vec<String>) {
        if self.lenient {
            self.job.files.names.extend(names);
        } else {
            self.job.files.names = names;
        }
    }

    /// True if the option was set, here or in a global section.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    /// The setting that holds, if the option was set.
    pub(crate) fn setting(&self, name: &str) -> Option<&Setting> {
        self.set.get(name).map(|(setting, _)| setting)
    }

    /// File and line of the option, or of the section's heading if the section does not set it.
    pub(crate) fn place(&self, name: &str) -> &Place {
        self.setting(name).map_or(&self.section, |setting| &setting.place)
    }

    /// The option as it was written, or its name.
    pub(crate) fn written(&self, name: &str) -> String {
        self.setting(name).map_or_else(|| name.to_string(), Setting::written)
    }

    pub(crate) fn warn(&mut self, place: &Place, text: impl AsRef<str>) {
        let warning = format!("{place}: {}", text.as_ref());
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Warns at the place of the option.
    pub(crate) fn warn_at(&mut self, name: &str, text: impl AsRef<str>) {
        let place = self.place(name).clone();
        self.warn(&place, text);
    }

    pub(crate) fn fail<T>(&self, name: &str, what: impl Into<String>, hint: &str) -> Result<T, Error> {
        Err(Error::new(self.place(name), what).hint(hint))
    }
}
