//! The sizes of files: a function of the file's number, so that no size has to be stored.

use std::fmt;
use std::str::FromStr;

use job::workload::random::{Random, mix};
use measure::units;

use crate::Error;

/// The sizes of the files of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All files have this size in bytes.
    Fixed(u64),
    /// Exponentially distributed with this mean, cut off at [`LONGEST`] times the mean.
    Exponential(u64),
    /// Sizes in bytes with their weights: a size is drawn as often as its weight says.
    List(Vec<(u64, u32)>),
}

/// The exponential distribution ends at this many means: 0.03 % of it lie beyond.
const LONGEST: u64 = 8;

impl Sizes {
    /// The size in bytes of file `file` of thread `thread`.
    pub fn of(&self, seed: u64, thread: u32, file: u64) -> u64 {
        let random = || Random::new(mix(mix(seed ^ u64::from(thread)) ^ file));
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Exponential(mean) => {
                let drawn = -(1.0 - random().unit()).ln() * *mean as f64;
                (drawn.round() as u64).min(mean.saturating_mul(LONGEST))
            }
            Sizes::List(list) => {
                let all: u64 = list.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut at = random().below(all);
                for &(size, weight) in list {
                    if at < u64::from(weight) {
                        return size;
                    }
                    at -= u64::from(weight);
                }
                0
            }
        }
    }

    /// The mean size in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(size) => *size as f64,
            // The part beyond the cut is counted at the cut: mean * (1 - e^-LONGEST).
            Sizes::Exponential(mean) => *mean as f64 * (1.0 - (-(LONGEST as f64)).exp()),
            Sizes::List(list) => {
                let all: f64 = list.iter().map(|(_, weight)| f64::from(*weight)).sum();
                list.iter().map(|(size, weight)| *size as f64 * f64::from(*weight)).sum::<f64>() / all
            }
        }
    }

    /// The largest size in bytes.
    pub fn largest(&self) -> u64 {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Exponential(mean) => mean.saturating_mul(LONGEST),
            Sizes::List(list) => list.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    /// True if every size is a multiple of `unit` bytes.
    pub fn are_multiples_of(&self, unit: u64) -> bool {
        match self {
            Sizes::Fixed(size) => size.is_multiple_of(unit),
            Sizes::Exponential(_) => false,
            Sizes::List(list) => list.iter().all(|(size, _)| size.is_multiple_of(unit)),
        }
    }
}

impl FromStr for Sizes {
    type Err = Error;

    /// Reads `4k`; `exp:64k`; `4k,64k,1m` or `4k:70,64k:25,1m:5`.
    fn from_str(text: &str) -> Result<Sizes, Error> {
        let bad = |why: String| {
            let hint = format!("{why}; give a size as 4k, exp:64k for a mean, or a list as 4k:70,64k:30");
            Error::usage("--size:", format!("'{text}'"), hint)
        };
        let size = |text: &str| units::parse_bytes(text, 1024).map_err(|error| bad(error.to_string()));
        if let Some(mean) = text.strip_prefix("exp:") {
            return match size(mean)? {
                0 => Err(bad("a distribution with a mean of 0 does not exist: give a mean from 1".into())),
                mean => Ok(Sizes::Exponential(mean)),
            };
        }
        if !text.contains([',', ':']) {
            return Ok(Sizes::Fixed(size(text)?));
        }
        let mut list = Vec::new();
        for part in text.split(',') {
            let (bytes, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight: u32 =
                weight.parse().map_err(|_| bad(format!("'{weight}' is not a weight: give a whole number")))?;
            list.push((size(bytes)?, weight));
        }
        match list.iter().any(|(_, weight)| *weight > 0) {
            true => Ok(Sizes::List(list)),
            false => Err(bad("all weights are 0".into())),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => f.write_str(&units::exact_bytes(*size)),
            Sizes::Exponential(mean) => write!(f, "exp:{}", units::exact_bytes(*mean)),
            Sizes::List(list) => {
                let parts: Vec<String> =
                    list.iter().map(|(size, weight)| format!("{}:{weight}", units::exact_bytes(*size))).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sizes: &Sizes, count: u64) -> Vec<u64> {
        (0..count).map(|file| sizes.of(7, 3, file)).collect()
    }

    #[test]
    fn texts() {
        for text in ["4k", "exp:64k", "4k:70,64k:30", "0"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        assert_eq!("1,2".parse::<Sizes>().unwrap(), Sizes::List(vec![(1, 1), (2, 1)]));
        for bad in ["", "x", "exp:0", "exp:", "4k:0", "4k:-1", "4k:70,", "4k:x"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_exponential_distribution_has_its_mean_and_its_shape() {
        let sizes = Sizes::Exponential(64 << 10);
        let drawn = drawn(&sizes, 100_000);
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        // Four standard errors of the mean of an exponential distribution.
        assert!((mean / sizes.mean() - 1.0).abs() < 4.0 / (drawn.len() as f64).sqrt(), "{mean}");
        let below_the_mean = drawn.iter().filter(|&&size| size < 64 << 10).count() as f64 / drawn.len() as f64;
        assert!((below_the_mean - 0.632).abs() < 0.01, "1 - 1/e, not {below_the_mean}");
        assert!(drawn.iter().all(|&size| size <= sizes.largest()));
    }

    #[test]
    fn a_list_has_its_weights() {
        let sizes: Sizes = "4k:70,64k:30,1m:0".parse().unwrap();
        let drawn = drawn(&sizes, 100_000);
        let small = drawn.iter().filter(|&&size| size == 4096).count() as f64 / drawn.len() as f64;
        assert!((small - 0.7).abs() < 0.01, "{small}");
        assert!(drawn.iter().all(|&size| size == 4096 || size == 65536));
    }

    #[test]
    fn a_size_depends_on_the_seed_the_thread_and_the_file_alone() {
        let sizes = Sizes::Exponential(4096);
        assert_eq!(sizes.of(1, 2, 3), sizes.of(1, 2, 3));
        let of = [sizes.of(1, 2, 3), sizes.of(2, 2, 3), sizes.of(1, 3, 3), sizes.of(1, 2, 4)];
        assert!(of.iter().skip(1).all(|size| *size != of[0]));
    }
}
