//! The values of an axis that a sweep may visit.

use std::cmp::Ordering;

/// Beyond this no engine's queue goes.
const DEEPEST: u64 = 65_536;

/// Around the load line, neighbouring depths are at most this factor apart: finer steps would drown in the noise.
const FINEST: f64 = 1.2;

/// Values in an even range, both ends included.
const EVEN: u64 = 5;

/// Values of an axis: `1..1024` is a range to search; `1,8,32` are these and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Values from the first to the second, both included; the sweep decides which of them it visits.
    Range(u64, u64),
    /// As a range, whose first value and its doubles are measured in any case.
    Doubling(u64, u64),
    /// Only these values, ascending, each once.
    List(Vec<u64>),
}

impl Values {
    /// Reads `FIRST..LAST` or a list; `one` reads a value. A range whose ends are equal is a list of one.
    ///
    /// # Errors
    /// That of `one`; a range that is empty.
    pub fn parse(text: &str, one: impl Fn(&str) -> Result<u64, String>) -> Result<Values, String> {
        if let Some((first, last)) = text.split_once("..") {
            let (first, last) = (one(first.trim())?, one(last.trim_start_matches('=').trim())?);
            return match first.cmp(&last) {
                Ordering::Less => Ok(Values::Range(first, last)),
                // Both ends belong to a range, so this one has a value.
                Ordering::Equal => Ok(Values::List(vec![first])),
                Ordering::Greater => Err(format!("the range {text} is empty: the smaller value comes first")),
            };
        }
        let mut list = text.split(',').map(|word| one(word.trim())).collect::<Result<Vec<_>, _>>()?;
        list.sort_unstable();
        list.dedup();
        Ok(Values::List(list))
    }

    /// Reads depths: [`Values::parse`] for `--iodepth`.
    ///
    /// # Errors
    /// The expected form.
    pub fn of_depths(text: &str) -> Result<Values, String> {
        Values::parse(text, |word| match word.parse::<u64>() {
            Ok(depth) if (1..=DEEPEST).contains(&depth) => Ok(depth),
            _ => Err(format!("{word:?} is not a depth: give 1..1024, or a list as 1,8,32, within 1..{DEEPEST}")),
        })
    }

    /// The values that are measured in any case, ascending: of a range its ends, and between them the powers of two;
    /// steps of one size in a range from 0 on, or in one that spans less than a factor of four.
    pub fn asked(&self) -> Vec<u64> {
        match self {
            Values::List(list) => list.clone(),
            &Values::Range(first, last) if first == 0 || last / first < 4 => {
                let mut even: Vec<u64> = (0..EVEN)
                    .map(|step| first + (u128::from(last - first) * u128::from(step) / u128::from(EVEN - 1)) as u64)
                    .collect();
                even.dedup();
                even
            }
            &Values::Doubling(first, last) => {
                let doubles = std::iter::successors(Some(first.max(1)), |value| value.checked_mul(2));
                doubles.take_while(|&value| value < last).chain([last]).collect()
            }
            &Values::Range(first, last) => {
                let between = (0..64).map(|power| 1u64 << power).filter(|&value| value > first && value < last);
                [first].into_iter().chain(between).chain([last]).collect()
            }
        }
    }

    /// The only value, if it is one.
    pub fn single(&self) -> Option<u64> {
        match self {
            Values::List(list) => {
                if let [only] = list[..] {
                    Some(only)
                } else {
                    None
                }
            }
            Values::Range(..) | Values::Doubling(..) => None,
        }
    }

    /// The least factor between neighbouring depths; a list is not refined.
    pub fn finest(&self) -> f64 {
        match self {
            Values::List(_) => f64::INFINITY,
            Values::Range(..) | Values::Doubling(..) => FINEST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists() {
        let parse = Values::of_depths;
        assert_eq!(parse("1..1024"), Ok(Values::Range(1, 1024)));
        assert_eq!(parse("4..=16"), Ok(Values::Range(4, 16)));
        assert_eq!(parse("32, 1,8,8"), Ok(Values::List(vec![1, 8, 32])));
        assert_eq!(parse("7"), Ok(Values::List(vec![7])));
        assert_eq!(parse("7..7"), parse("7"));
        assert_eq!((parse("7").unwrap().single(), parse("7,8").unwrap().single()), (Some(7), None));
    }

    #[test]
    fn a_range_asks_for_its_powers_of_two_and_its_ends() {
        assert_eq!(Values::Range(1, 1024).asked(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(Values::Range(3, 20).asked(), [3, 4, 8, 16, 20]);
        assert_eq!(Values::List(vec![5, 9]).asked(), [5, 9]);
    }

    #[test]
    fn a_range_that_powers_of_two_do_not_fit_is_cut_evenly() {
        assert_eq!(Values::Range(0, 100).asked(), [0, 25, 50, 75, 100]);
        assert_eq!(Values::Range(10_000, 20_000).asked(), [10_000, 12_500, 15_000, 17_500, 20_000]);
        assert_eq!(Values::Range(1, 2).asked(), [1, 2]);
    }

    #[test]
    fn nonsense_is_refused_with_what_to_give() {
        for text in ["", "0", "0..4", "1..", "a", "1,,2", "99999999"] {
            let error = Values::of_depths(text).unwrap_err();
            assert!(error.contains("depth") && !error.contains('\n'), "{text}: {error}");
        }
        assert!(Values::of_depths("9..3").unwrap_err().contains("smaller value"));
    }
}
