//! Looks at a host, one after another: growth, rates, and the record that the passive estimator judges.

use std::collections::{HashMap, VecDeque};

use crate::counters::{Counters, Growth};
use crate::host::{Host, Kind, Target, Wanted};
use crate::passive::{self, Judgement, Window};
use crate::rates::Rates;

/// A target at the end of an interval.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The target.
    pub target: Target,
    /// The counters of the target since it appeared.
    pub total: Counters,
    /// The rates over the interval; None for the first look, and after its counters began anew.
    pub rates: Option<Rates>,
    /// The judgement on the record so far; None until it was judged for the first time.
    pub judgement: Option<Judgement>,
    /// Nanoseconds from the beginning of the record to now.
    pub record_ns: u64,
}

/// The windows that a record keeps: an hour of seconds.
const RECORD_WINDOWS: usize = 3600;
/// A record is judged again when it has grown by this many windows, and by a sixteenth.
const JUDGED_EVERY: usize = 10;
/// A target without these many looks is forgotten.
const FORGOTTEN_AFTER: u64 = 3600;

/// A target that was seen.
struct Known {
    is_shown: bool,
    total: Counters,
    at_ns: u64,
    look: u64,
    rates: Option<Rates>,
    since_ns: u64,
    windows: VecDeque<Window>,
    /// Windows since the last judgement.
    fresh: usize,
    judgement: Option<Judgement>,
}

/// Watches the targets of a host. The caller passes the time in.
pub struct Watcher {
    host: Host,
    wanted: Wanted,
    known: HashMap<Kind, HashMap<String, Known>>,
    looks: u64,
}

impl Watcher {
    /// A watcher that has not looked yet.
    pub fn new(host: Host, wanted: Wanted) -> Watcher {
        Watcher { host, wanted, known: HashMap::new(), looks: 0 }
    }

    /// Looks at every target. `now_ns` is a clock that only goes forward.
    pub fn look(&mut self, now_ns: u64) {
        self.looks += 1;
        let Watcher { host, wanted, known, looks } = self;
        host.each(wanted, |kind, name, counters| {
            let of_kind = known.entry(kind).or_default();
            match of_kind.get_mut(name) {
                Some(target) => target.advance(counters, now_ns, *looks),
                None => {
                    let is_shown = *wanted != Wanted::All || kind != Kind::Disk || host.is_whole(name);
                    of_kind.insert(name.to_owned(), Known::new(is_shown, counters, now_ns, *looks));
                }
            }
        });
        if self.looks.is_multiple_of(FORGOTTEN_AFTER) {
            let looks = self.looks;
            self.known.values_mut().for_each(|all| all.retain(|_, known| known.look + FORGOTTEN_AFTER >= looks));
        }
    }

    /// Every target of the last look, by kind and name. `idle` includes disks that never did anything.
    pub fn observations(&self, idle: bool) -> Vec<Observation> {
        let all =
            self.known.iter().flat_map(|(kind, targets)| targets.iter().map(move |(name, known)| (kind, name, known)));
        let shown = all.filter(|(_, _, known)| known.is_shown && known.look == self.looks);
        let worked = |total: &Counters| total.read.ops + total.write.ops + total.other.ops > 0;
        let asked = matches!(self.wanted, Wanted::These(_));
        let mut observations: Vec<Observation> = shown
            .filter(|(_, _, known)| idle || asked || worked(&known.total))
            .map(|(kind, name, known)| Observation {
                target: Target { kind: *kind, name: name.clone() },
                total: known.total,
                rates: known.rates,
                judgement: known.judgement.clone(),
                record_ns: known.at_ns - known.since_ns,
            })
            .collect();
        observations.sort_by(|a, b| a.target.cmp(&b.target));
        observations
    }

    /// The targets that were asked for and were not there at the last look.
    pub fn missing(&self) -> Vec<&Target> {
        let Wanted::These(these) = &self.wanted else { return Vec::new() };
        let is_there = |target: &Target| {
            self.known
                .get(&target.kind)
                .and_then(|all| all.get(&target.name))
                .is_some_and(|known| known.look == self.looks)
        };
        these.iter().filter(|target| !is_there(target)).collect()
    }

    /// The overload of a target above a depth, see [`passive::overload`].
    pub fn overload(&self, target: &Target, line: f64, now_ns: u64) -> Option<passive::Overload> {
        let known = self.known.get(&target.kind)?.get(&target.name)?;
        passive::overload(known.windows.iter().rev(), line, now_ns)
    }
}

impl Known {
    fn new(is_shown: bool, total: Counters, now_ns: u64, look: u64) -> Known {
        Known {
            is_shown,
            total,
            at_ns: now_ns,
            look,
            rates: None,
            since_ns: now_ns,
            windows: VecDeque::new(),
            fresh: 0,
            judgement: None,
        }
    }

    fn advance(&mut self, counters: Counters, now_ns: u64, look: u64) {
        let seconds = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        // A target that was away may be another one of the same name, or may have been busy unseen.
        let was_there = self.look + 1 == look;
        self.rates = match counters.since(&self.total) {
            Growth::By(growth) if was_there && seconds > 0.0 => Some(Rates::of(&growth, seconds)),
            Growth::By(_) | Growth::Reset => {
                // Another device may have the name now: the record of the first says nothing about it.
                (self.since_ns, self.fresh, self.judgement) = (now_ns, 0, None);
                self.windows.clear();
                None
            }
        };
        (self.total, self.at_ns, self.look) = (counters, now_ns, look);
        if !self.is_shown {
            return;
        }
        let Some(window) = self.rates.and_then(|rates| rates.window(now_ns)) else { return };
        if self.windows.len() == RECORD_WINDOWS {
            self.windows.pop_front();
            self.since_ns = self.windows.front().map_or(now_ns, |first| first.end_ns);
        }
        self.windows.push_back(window);
        self.fresh += 1;
        if self.fresh >= JUDGED_EVERY.max(self.windows.len() / 16) {
            self.fresh = 0;
            self.judgement = Some(passive::judge(self.windows.make_contiguous()));
        }
    }
}
