//! The trust in a simulated throughput: an interval from the errors of measured rows of its kind.
//!
//! The profiles are fitted on half of the published rows (`examples/fit.rs`). The ratio of measured to simulated
//! throughput of a row of the other half is its error. Split conformal prediction turns the errors of a kind into an
//! interval (V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in a Random World", 2005):
//! with n errors, the k-th smallest covers the next row of the kind with probability k / (n + 1), whatever the
//! distribution of the errors is, if that row is like the others.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::kinds::{self, Kind};
use super::scenario::Scenario;
use crate::config::Error;

/// The probability with which an interval covers a new row, where its kind has rows enough.
const COVERAGE: f64 = 0.95;
/// Fewer rows than this say too little of their kind.
pub const ROWS_LEAST: usize = 6;

/// Measured over simulated throughput of a profile's rows, by profile, then kind.
pub type Errors = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

static ERRORS: LazyLock<Errors> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../data/errors.json")).expect("the tests read it"));

/// The trust in a simulated throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Measured rows of this kind exist.
    Interval {
        /// The lower end, Gb/s.
        low_gbps: f64,
        /// The upper end, Gb/s.
        high_gbps: f64,
        /// The probability that a measured row of the kind lies between the ends, as a fraction.
        coverage: f64,
        /// The kind.
        kind: String,
        /// The number of measured rows of the kind.
        rows: usize,
    },
    /// No measured row is like it, by this reason.
    Outside(String),
}

impl Confidence {
    /// The trust in `gbps`, which `scenario` gave.
    ///
    /// # Errors
    /// A machine that is not valid.
    pub fn of(scenario: &Scenario, gbps: f64) -> Result<Confidence, Error> {
        let machine = scenario.machine()?;
        if let Some(learned) = &machine.learned {
            return Ok(learned.trust(scenario, &machine, gbps));
        }
        Ok(match kinds::of(scenario)? {
            Ok(kind) => Confidence::of_kind(&kind, gbps, &ERRORS),
            Err(why) => Confidence::Outside(why),
        })
    }

    /// The trust in `gbps` of a scenario of `kind`, by these errors.
    pub fn of_kind(kind: &Kind, gbps: f64, errors: &Errors) -> Confidence {
        let of = errors.get(&kind.profile).and_then(|kinds| kinds.get(kind.name)).map_or(&[][..], Vec::as_slice);
        if of.len() < ROWS_LEAST {
            let (profile, name) = (&kind.profile, kind.name);
            return Confidence::Outside(match of.len() {
                0 => format!("{profile} has no measured rows of the kind \"{name}\" that it was not fitted on"),
                n => format!("{profile} has only {n} measured rows of the kind \"{name}\" that it was not fitted on"),
            });
        }
        interval(kind.name, of, gbps)
    }

    /// True if the two throughputs differ by more than the model's error; none if that error is unknown for either.
    pub fn differs(&self, other: &Confidence) -> Option<bool> {
        match (self, other) {
            (
                Confidence::Interval { low_gbps: a_low, high_gbps: a_high, .. },
                Confidence::Interval { low_gbps: b_low, high_gbps: b_high, .. },
            ) => Some(a_high < b_low || b_high < a_low),
            _ => None,
        }
    }
}

/// The factor by which a figure may be wrong, to both sides, and the probability that it is not by more. None if these
/// ratios of measured to simulated throughput are too few.
pub(super) fn factor(ratios: &[f64]) -> Option<(f64, f64)> {
    if ratios.len() < ROWS_LEAST {
        return None;
    }
    let mut scores: Vec<f64> = ratios.iter().map(|ratio| ratio.ln().abs()).collect();
    scores.sort_by(f64::total_cmp);
    let places = (scores.len() + 1) as f64;
    let place = ((COVERAGE * places).ceil() as usize).min(scores.len());
    Some((scores[place - 1].exp(), place as f64 / places))
}

/// The interval around `gbps` by these ratios of rows of `kind`.
pub(super) fn interval(kind: &str, ratios: &[f64], gbps: f64) -> Confidence {
    match factor(ratios) {
        Some((factor, coverage)) => Confidence::Interval {
            low_gbps: gbps / factor,
            high_gbps: gbps * factor,
            coverage,
            kind: kind.into(),
            rows: ratios.len(),
        },
        None => Confidence::Outside(format!("only {} {kind} were predicted by a fit without them", ratios.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(errors: Vec<f64>) -> Confidence {
        let kind = Kind { profile: "p".into(), name: kinds::LARGE };
        let of = BTreeMap::from([(kinds::LARGE.to_string(), errors)]);
        Confidence::of_kind(&kind, 100.0, &BTreeMap::from([("p".to_string(), of)]))
    }

    #[test]
    fn nineteen_of_twenty_new_rows_are_covered() {
        // Errors from a skewed law, in many draws of 39 rows and a new one: 38 of 40 are the 95 %.
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let u = (state >> 11) as f64 / (1u64 << 53) as f64;
            1.0 - 0.3 * u.powi(6) + 0.02 * u
        };
        let (mut covered, draws) = (0, 4000);
        for _ in 0..draws {
            let Confidence::Interval { low_gbps, high_gbps, coverage, .. } =
                interval((0..39).map(|_| draw()).collect())
            else {
                panic!("39 rows are enough")
            };
            assert_eq!(coverage, 38.0 / 40.0);
            let measured = 100.0 * draw();
            covered += i32::from((low_gbps..=high_gbps).contains(&measured));
        }
        assert!((3750..=3850).contains(&covered), "{covered} of {draws}");
    }

    #[test]
    fn few_rows_promise_less_and_very_few_nothing() {
        let Confidence::Interval { coverage, rows, .. } = interval(vec![1.1; 9]) else { panic!("9 rows are enough") };
        assert_eq!((coverage, rows), (0.9, 9));
        assert!(matches!(interval(vec![1.0; 5]), Confidence::Outside(why) if why.contains("only 5")));
        assert!(matches!(interval(Vec::new()), Confidence::Outside(why) if why.contains("no measured rows")));
    }

    #[test]
    fn a_difference_counts_beyond_both_intervals_only() {
        let of = |low_gbps: f64, high_gbps: f64| Confidence::Interval {
            low_gbps,
            high_gbps,
            coverage: 0.95,
            kind: String::new(),
            rows: 20,
        };
        assert_eq!(of(90.0, 110.0).differs(&of(111.0, 120.0)), Some(true));
        assert_eq!(of(90.0, 110.0).differs(&of(109.0, 120.0)), Some(false));
        assert_eq!(of(90.0, 110.0).differs(&Confidence::Outside("so".into())), None);
    }
}
