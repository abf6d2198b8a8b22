//! The trust in a simulated throughput: its correction and its interval, from measured rows of its kind.
//!
//! The model errs alike on loads that are alike, so measured rows near a scenario correct its throughput
//! ([`Discrepancy`]). The profiles are fitted on half of the published rows (`examples/fit.rs`). Each row of the other
//! half is predicted by all other rows; the part by which it is off, in units of the deviation that was expected of it,
//! is its score. Split conformal prediction turns the scores of a kind into an interval (V. Vovk, A. Gammerman,
//! G. Shafer, "Algorithmic Learning in a Random World", 2005; H. Papadopoulos, "Inductive conformal prediction", 2008,
//! for scores in units of a deviation): with n scores, the k-th smallest covers the next row of the kind with
//! probability k / (n + 1), whatever their distribution is, if that row is like the others.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::discrepancy::{Discrepancy, Measured};
use super::fit::{self, Compared};
use super::kinds::{self, Kind};
use super::load::Load;
use super::scenario::Scenario;
use crate::config::Error;

/// The probability with which an interval covers a new row, where its kind has rows enough.
const COVERAGE: f64 = 0.95;
/// Fewer rows than this say too little of their kind.
pub const ROWS_LEAST: usize = 6;

/// The discrepancy of each kind, by all measured rows that count.
static DISCREPANCIES: LazyLock<BTreeMap<&str, Discrepancy>> = LazyLock::new(|| {
    kinds::KINDS.map(|kind| (kind, Discrepancy::of(MEASURED.iter().filter(|row| row.kind == kind).collect()))).into()
});

/// All measured rows that count, simulated.
static MEASURED: LazyLock<Vec<Measured>> = LazyLock::new(|| {
    let simulated: Vec<f64> =
        serde_json::from_str(include_str!("../../data/simulated.json")).expect("the tests read it");
    let compared: Vec<Compared> =
        fit::all_rows().into_iter().zip(simulated).map(|(row, gbps)| Compared { row, gbps }).collect();
    fit::measured(&compared).expect("the published machines are valid")
});

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

/// A throughput with the trust in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trusted {
    /// The throughput after the correction, Gb/s.
    pub gbps: f64,
    /// The trust in it.
    pub confidence: Confidence,
}

impl Trusted {
    /// The throughput of `scenario`, of which the model says `simulated_gbps`.
    ///
    /// # Errors
    /// A machine that is not valid.
    pub fn of(scenario: &Scenario, simulated_gbps: f64) -> Result<Trusted, Error> {
        let machine = scenario.machine()?;
        if let Some(learned) = &machine.learned {
            return Ok(learned.trust(scenario, &machine, simulated_gbps));
        }
        match kinds::of(scenario)? {
            Ok(kind) => {
                let load = Load::of(scenario, &machine)?;
                Ok(Trusted::by(&DISCREPANCIES[kind.name], &kind, &load, simulated_gbps))
            }
            Err(why) => Ok(Trusted { gbps: simulated_gbps, confidence: Confidence::Outside(why) }),
        }
    }

    /// The throughput of a `load` of `kind`, by the discrepancy of measured rows of that kind.
    pub fn by(discrepancy: &Discrepancy, kind: &Kind, load: &Load, simulated_gbps: f64) -> Trusted {
        let (profile, name) = (&kind.profile, kind.name);
        if simulated_gbps <= 0.0 || !discrepancy.knows(profile) {
            let confidence = Confidence::Outside(format!("{profile} has no measured rows of the kind \"{name}\""));
            return Trusted { gbps: simulated_gbps, confidence };
        }
        let expected = discrepancy.expected(load, simulated_gbps);
        let gbps = simulated_gbps * expected.log.exp();
        let unseen = discrepancy.left_out().filter(|(row, ..)| !row.fitted);
        let scores: Vec<f64> = unseen.map(|(_, expected, remains)| remains.abs() / expected.deviation).collect();
        let rows = scores.len();
        let confidence = match score(scores) {
            Some((score, coverage)) => {
                let factor = (score * expected.deviation).exp();
                let (low_gbps, high_gbps) = (gbps / factor, gbps * factor);
                Confidence::Interval { low_gbps, high_gbps, coverage, kind: name.into(), rows }
            }
            None => Confidence::Outside(format!(
                "only {rows} rows of the kind \"{name}\" were measured that no profile was fitted on"
            )),
        };
        Trusted { gbps, confidence }
    }
}

/// The score that a new row exceeds with a probability of at most one in twenty, and the probability that it does not.
/// None if these are too few.
pub(super) fn score(mut scores: Vec<f64>) -> Option<(f64, f64)> {
    if scores.len() < ROWS_LEAST {
        return None;
    }
    scores.sort_by(f64::total_cmp);
    let places = (scores.len() + 1) as f64;
    let place = ((COVERAGE * places).ceil() as usize).min(scores.len());
    Some((scores[place - 1], place as f64 / places))
}

impl Confidence {
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
fn factor(ratios: &[f64]) -> Option<(f64, f64)> {
    let (score, coverage) = score(ratios.iter().map(|ratio| ratio.ln().abs()).collect())?;
    Some((score.exp(), coverage))
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

    #[test]
    fn nineteen_of_twenty_new_rows_are_covered() {
        // Ratios from a skewed law, in many draws of 39 rows and a new one: 38 of 40 are the 95 %.
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let u = (state >> 11) as f64 / (1u64 << 53) as f64;
            1.0 - 0.3 * u.powi(6) + 0.02 * u
        };
        let (mut covered, draws) = (0, 4000);
        for _ in 0..draws {
            let ratios: Vec<f64> = (0..39).map(|_| draw()).collect();
            let Confidence::Interval { low_gbps, high_gbps, coverage, .. } = interval("kind", &ratios, 100.0) else {
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
        let of = |count: usize| {
            let kind = Kind { profile: "p".into(), name: kinds::LARGE };
            let load = Load { profile: "p".into(), ops: 64, ..Load::default() };
            let row =
                Measured { kind: kind.name, load: load.clone(), gbps: 110.0, simulated_gbps: 100.0, fitted: false };
            Trusted::by(&Discrepancy::of(vec![&row; count]), &kind, &load, 100.0)
        };
        let Confidence::Interval { coverage, rows, .. } = of(9).confidence else { panic!("9 rows are enough") };
        assert_eq!((coverage, rows), (0.9, 9));
        assert!((109.0..110.0).contains(&of(9).gbps), "{}", of(9).gbps);
        assert!(matches!(of(5).confidence, Confidence::Outside(why) if why.contains("only 5")));
        assert!(
            matches!(of(0), Trusted { gbps: 100.0, confidence: Confidence::Outside(why) } if why.contains("no measured rows"))
        );
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
