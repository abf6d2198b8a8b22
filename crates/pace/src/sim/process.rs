//! A Gaussian process: measured errors at some places tell the error at another place (C. Rasmussen, C. Williams,
//! "Gaussian Processes for Machine Learning", 2006). The caller gives the covariances.

/// The expected logarithm of measured over simulated throughput, and its standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The mean.
    pub log: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// A process that has seen errors.
#[derive(Clone, Debug)]
pub struct Process {
    errors: Vec<f64>,
    /// The inverse of the covariance of the errors.
    precision: Vec<Vec<f64>>,
    /// The precision times the errors.
    weights: Vec<f64>,
    log_determinant: f64,
}

impl Process {
    /// The process that has seen `errors` with this covariance, the variance of each error by itself included.
    pub fn of(errors: Vec<f64>, covariance: Vec<Vec<f64>>) -> Process {
        let (precision, log_determinant) = inverse(covariance);
        let weights = precision.iter().map(|line| line.iter().zip(&errors).map(|(p, error)| p * error).sum()).collect();
        Process { errors, precision, weights, log_determinant }
    }

    /// The mean at a place whose covariances with the seen errors are `with`, and the part of its variance that they
    /// take away.
    pub fn expected(&self, with: &[f64]) -> (f64, f64) {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let known: f64 = self.precision.iter().zip(with).map(|(line, w)| w * dot(line, with)).sum();
        (dot(with, &self.weights), known)
    }

    /// The `n`-th error as the others let one expect it, and the part of it that remains (section 5.4.2).
    pub fn left_out(&self, n: usize) -> (Expected, f64) {
        let precision = self.precision[n][n];
        let remains = self.weights[n] / precision;
        (Expected { log: self.errors[n] - remains, deviation: precision.recip().sqrt() }, remains)
    }

    /// The logarithm of the probability density of the seen errors, without its constant part (section 5.4.1).
    pub fn likelihood(&self) -> f64 {
        let fit: f64 = self.errors.iter().zip(&self.weights).map(|(error, weight)| error * weight).sum();
        -0.5 * (fit + self.log_determinant)
    }
}

/// The inverse of a symmetric positive definite matrix, by elimination in place, and the logarithm of its determinant.
fn inverse(mut a: Vec<Vec<f64>>) -> (Vec<Vec<f64>>, f64) {
    let mut log_determinant = 0.0;
    for pivot in 0..a.len() {
        log_determinant += a[pivot][pivot].ln();
        let scale = std::mem::replace(&mut a[pivot][pivot], 1.0).recip();
        a[pivot].iter_mut().for_each(|value| *value *= scale);
        let line = a[pivot].clone();
        for (_, other) in a.iter_mut().enumerate().filter(|(n, _)| *n != pivot) {
            let factor = std::mem::take(&mut other[pivot]);
            other.iter_mut().zip(&line).for_each(|(value, of)| *value -= factor * of);
        }
    }
    (a, log_determinant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_errors_tell_a_third_by_hand() {
        // Covariance [[2, 1], [1, 2]]: inverse [[2, -1], [-1, 2]] / 3, determinant 3.
        let process = Process::of(vec![0.3, 0.6], vec![vec![2.0, 1.0], vec![1.0, 2.0]]);
        let (log, known) = process.expected(&[1.0, 1.0]);
        assert!((log - 0.3).abs() < 1e-12 && (known - 2.0 / 3.0).abs() < 1e-12, "{log} {known}");
        // The first of them is expected to be half of the second one.
        let (expected, remains) = process.left_out(0);
        assert!((expected.log - 0.3).abs() < 1e-12 && remains.abs() < 1e-12, "{expected:?} {remains}");
        assert!((expected.deviation - 1.5f64.sqrt()).abs() < 1e-12, "{expected:?}");
        let fit = (0.3 * 0.0 + 0.6 * 0.3) / 2.0;
        assert!((process.likelihood() + fit + 3f64.ln() / 2.0).abs() < 1e-12);
    }
}
