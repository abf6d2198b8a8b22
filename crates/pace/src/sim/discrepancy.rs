//! The discrepancy between the model and the machines: the model's error as a function of the load.
//!
//! A model errs alike on loads that are alike. The logarithm of measured over simulated throughput of a kind's rows is
//! a Gaussian process: a constant and a slope over the simulated throughput, both near none, and a part that rows share
//! the more, the nearer their loads and their simulated throughputs are (M. Kennedy, A. O'Hagan, "Bayesian calibration
//! of computer models", J. R. Stat. Soc. B 63, 2001). Far from every row, the process changes nothing.

use super::load::Load;

/// The standard deviation of the part that near rows share, in units of a natural logarithm, as those below.
const SHARED: f64 = 0.15;
/// The standard deviation of a row by itself, between two measurements of one load.
const OWN: f64 = 0.034;
/// The standard deviation of a kind's constant.
const CONSTANT: f64 = 0.05;
/// The standard deviation of a kind's slope: the part of a simulated difference that the machines do not show.
const SLOPE: f64 = 0.5;
/// The distance of two rows of which one is simulated e times as fast as the other. The model puts such rows into
/// different states, and its errors in one state say little of the other.
const STATE: f64 = 2.0;

/// A measured row, and its simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The name of its kind.
    pub kind: &'static str,
    /// The load.
    pub load: Load,
    /// Measured throughput, Gb/s.
    pub gbps: f64,
    /// Simulated throughput, Gb/s.
    pub simulated_gbps: f64,
    /// True if the machine's profile was fitted on it.
    pub fitted: bool,
}

impl Measured {
    fn error(&self) -> f64 {
        (self.gbps / self.simulated_gbps).ln()
    }
}

/// The expected logarithm of measured over simulated throughput, and its standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The mean.
    pub log: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// The discrepancy of a kind, given its rows.
pub struct Discrepancy<'a> {
    rows: Vec<&'a Measured>,
    /// The mean of the logarithms of simulated throughput, where the slope has no effect.
    middle: f64,
    /// The inverse of the rows' covariance.
    precision: Vec<Vec<f64>>,
    /// The precision times the rows' errors.
    weights: Vec<f64>,
}

impl<'a> Discrepancy<'a> {
    /// The discrepancy by `rows` of one kind.
    pub fn of(rows: Vec<&'a Measured>) -> Discrepancy<'a> {
        let middle = rows.iter().map(|row| row.simulated_gbps.ln()).sum::<f64>() / rows.len().max(1) as f64;
        let mut known = Discrepancy { rows, middle, precision: Vec::new(), weights: Vec::new() };
        let place = |row: &'a Measured| (&row.load, row.simulated_gbps.ln());
        let covariance = |(n, a): (usize, &&'a Measured)| {
            let mut line: Vec<f64> = known.rows.iter().map(|b| known.shared(place(a), place(b))).collect();
            line[n] += OWN * OWN;
            line
        };
        known.precision = inverse(known.rows.iter().enumerate().map(covariance).collect());
        let times_errors = |line: &Vec<f64>| line.iter().zip(&known.rows).map(|(p, row)| p * row.error()).sum();
        known.weights = known.precision.iter().map(times_errors).collect();
        known
    }

    /// True if a row is of the machine `profile`.
    pub fn knows(&self, profile: &str) -> bool {
        self.rows.iter().any(|row| row.load.profile == profile)
    }

    /// The covariance of the errors at two places: loads, and logarithms of simulated throughput.
    fn shared(&self, a: (&Load, f64), b: (&Load, f64)) -> f64 {
        let distance = a.0.distance(b.0) + STATE * (a.1 - b.1).abs();
        let slope = (a.1 - self.middle) * (b.1 - self.middle);
        SHARED * SHARED * (-distance).exp() + CONSTANT * CONSTANT + SLOPE * SLOPE * slope
    }

    /// The expected error for `load`, of which the model says `simulated_gbps`.
    pub fn expected(&self, load: &Load, simulated_gbps: f64) -> Expected {
        let here = (load, simulated_gbps.ln());
        let with: Vec<f64> =
            self.rows.iter().map(|row| self.shared(here, (&row.load, row.simulated_gbps.ln()))).collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let known: f64 = self.precision.iter().zip(&with).map(|(line, w)| w * dot(line, &with)).sum();
        let variance = self.shared(here, here) + OWN * OWN - known;
        Expected { log: dot(&with, &self.weights), deviation: variance.max(OWN * OWN).sqrt() }
    }

    /// Each row with the error that the other rows let one expect of it, and the error that remains: those of leaving
    /// one out (C. Rasmussen, C. Williams, "Gaussian Processes for Machine Learning", 2006, section 5.4.2).
    pub fn left_out(&self) -> impl Iterator<Item = (&'a Measured, Expected, f64)> {
        self.rows.iter().enumerate().map(|(n, row)| {
            let precision = self.precision[n][n];
            let remains = self.weights[n] / precision;
            (*row, Expected { log: row.error() - remains, deviation: precision.recip().sqrt() }, remains)
        })
    }
}

/// The inverse of a symmetric positive definite matrix, by elimination in place.
fn inverse(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    for pivot in 0..a.len() {
        let scale = std::mem::replace(&mut a[pivot][pivot], 1.0).recip();
        a[pivot].iter_mut().for_each(|value| *value *= scale);
        let line = a[pivot].clone();
        for (_, other) in a.iter_mut().enumerate().filter(|(n, _)| *n != pivot) {
            let factor = std::mem::take(&mut other[pivot]);
            other.iter_mut().zip(&line).for_each(|(value, of)| *value -= factor * of);
        }
    }
    a
}
