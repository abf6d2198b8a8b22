//! The discrepancy between the model and the machines: the model's error as a function of the load.
//!
//! A model errs alike on loads that are alike. The logarithm of measured over simulated throughput of a kind's rows is
//! a Gaussian process: a constant and a slope over the simulated throughput, both near none, and a part that rows share
//! the more, the nearer their loads and their simulated throughputs are (M. Kennedy, A. O'Hagan, "Bayesian calibration
//! of computer models", J. R. Stat. Soc. B 63, 2001). Far from every row, the process changes nothing.

use super::load::Load;
use super::process::{Expected, Process};

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

/// The discrepancy of a kind, given its rows.
pub struct Discrepancy<'a> {
    rows: Vec<&'a Measured>,
    /// The mean of the logarithms of simulated throughput, where the slope has no effect.
    middle: f64,
    process: Process,
}

impl<'a> Discrepancy<'a> {
    /// The discrepancy by `rows` of one kind.
    pub fn of(rows: Vec<&'a Measured>) -> Discrepancy<'a> {
        let middle = rows.iter().map(|row| row.simulated_gbps.ln()).sum::<f64>() / rows.len().max(1) as f64;
        let place = |row: &'a Measured| (&row.load, row.simulated_gbps.ln());
        let covariance = |(n, a): (usize, &&'a Measured)| {
            let mut line: Vec<f64> = rows.iter().map(|b| shared(middle, place(a), place(b))).collect();
            line[n] += OWN * OWN;
            line
        };
        let covariance = rows.iter().enumerate().map(covariance).collect();
        let process = Process::of(rows.iter().map(|row| row.error()).collect(), covariance);
        Discrepancy { rows, middle, process }
    }

    /// True if a row is of the machine `profile`.
    pub fn knows(&self, profile: &str) -> bool {
        self.rows.iter().any(|row| row.load.profile == profile)
    }

    /// The expected error for `load`, of which the model says `simulated_gbps`.
    pub fn expected(&self, load: &Load, simulated_gbps: f64) -> Expected {
        let here = (load, simulated_gbps.ln());
        let row = |row: &&Measured| shared(self.middle, here, (&row.load, row.simulated_gbps.ln()));
        let (log, known) = self.process.expected(&self.rows.iter().map(row).collect::<Vec<f64>>());
        let variance = shared(self.middle, here, here) + OWN * OWN - known;
        Expected { log, deviation: variance.max(OWN * OWN).sqrt() }
    }

    /// Each row with the error that the other rows let one expect of it, and the error that remains.
    pub fn left_out(&self) -> impl Iterator<Item = (&'a Measured, Expected, f64)> {
        self.rows.iter().enumerate().map(|(n, row)| {
            let (expected, remains) = self.process.left_out(n);
            (*row, expected, remains)
        })
    }
}

/// The covariance of the errors at two places: loads, and logarithms of simulated throughput, of which `middle` is the
/// mean.
fn shared(middle: f64, a: (&Load, f64), b: (&Load, f64)) -> f64 {
    let distance = a.0.distance(b.0) + STATE * (a.1 - b.1).abs();
    let slope = (a.1 - middle) * (b.1 - middle);
    SHARED * SHARED * (-distance).exp() + CONSTANT * CONSTANT + SLOPE * SLOPE * slope
}
