//! The rule by which a drive counts as steady: SNIA, "Solid State Storage Performance Test Specification", version
//! 2.0.1, definition of "steady state".
//!
//! Over a window of five rounds, the largest value less the smallest is less than 20 % of the average (the excursion),
//! and the line of least squares changes by less than 10 % of the average from the first round to the last (the slope).

use crate::schema::SteadyWindow;

/// Rounds of the window.
pub const WINDOW: usize = 5;
/// The excursion that a steady window stays below, as a part of its average.
pub const EXCURSION: f64 = 0.2;
/// The change of the fitted line over a steady window, as a part of its average.
pub const SLOPE: f64 = 0.1;

impl SteadyWindow {
    /// The window of the last rounds; None if they are fewer than [`WINDOW`], or all stood still.
    pub fn last(rounds: &[f64]) -> Option<SteadyWindow> {
        let first = rounds.len().checked_sub(WINDOW)?;
        let values = &rounds[first..];
        let average = crate::stats::mean(values);
        if !average.is_finite() || average <= 0.0 {
            return None;
        }
        let (low, high) =
            values.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &value| (low.min(value), high.max(value)));
        let middle = (WINDOW - 1) as f64 / 2.0;
        let (mut with, mut of) = (0.0, 0.0);
        for (index, value) in values.iter().enumerate() {
            let x = index as f64 - middle;
            with += x * (value - average);
            of += x * x;
        }
        let change = with / of * (WINDOW - 1) as f64;
        Some(SteadyWindow {
            first: first as u32 + 1,
            average,
            excursion: (high - low) / average,
            slope: change / average,
        })
    }

    /// True if the drive counts as steady.
    pub fn is_steady(&self) -> bool {
        self.excursion < EXCURSION && self.slope.abs() < SLOPE
    }

    /// The fitted line at the first and at the last round of the window.
    pub fn line(&self) -> (f64, f64) {
        (self.average * (1.0 - self.slope / 2.0), self.average * (1.0 + self.slope / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::test_noise::Noise;

    fn window(rounds: &[f64]) -> SteadyWindow {
        SteadyWindow::last(rounds).unwrap()
    }

    #[test]
    fn both_parts_of_the_rule_count() {
        assert!(SteadyWindow::last(&[1.0; 4]).is_none() && SteadyWindow::last(&[0.0; 5]).is_none());
        let level = window(&[900.0, 100.0, 100.0, 100.0, 100.0, 100.0]);
        assert_eq!((level.first, level.average, level.is_steady()), (2, 100.0, true));
        // By 20 % and no more; the slope is 0.
        assert!((window(&[100.0, 110.0, 90.0, 110.0, 100.0]).excursion - 20.0 / 102.0).abs() < 1e-9);
        assert!(!window(&[100.0, 115.0, 90.0, 115.0, 100.0]).is_steady());
        // An excursion of 12 % that is all slope.
        let falls = window(&[106.0, 103.0, 100.0, 97.0, 94.0]);
        assert!((falls.slope + 0.12).abs() < 1e-9 && falls.excursion < 0.2 && !falls.is_steady(), "{falls:?}");
        assert_eq!(falls.line(), (106.0, 94.0));
        assert!(window(&[104.0, 102.0, 100.0, 98.0, 96.0]).is_steady());
    }

    /// A drive whose throughput falls from fresh to full as e^(-t), with 1 % of noise: the window stands where the
    /// rest of the fall over it is within the rule.
    #[test]
    fn an_exponential_fall_is_steady_when_its_rest_is_small() {
        let mut noise = Noise::new(9);
        for tau in [1.0, 2.0, 4.0] {
            let mut rounds: Vec<f64> = Vec::new();
            while SteadyWindow::last(&rounds).is_none_or(|window| !window.is_steady()) {
                let level = 1000.0 + 9000.0 * (-(rounds.len() as f64) / tau).exp();
                rounds.push(level * (1.0 + 0.01 * noise.normal()));
                assert!(rounds.len() < 60, "it never settles");
            }
            let last = window(&rounds);
            assert!(rounds[0] > 5000.0 && (0.98..1.12).contains(&(last.average / 1000.0)), "{tau}: {last:?}");
        }
    }
}
