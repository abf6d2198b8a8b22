//! The depths that a sweep may visit.

use std::str::FromStr;

/// Beyond this no engine's queue goes.
const DEEPEST: u32 = 65_536;

/// Around the load line, neighbouring depths are at most this factor apart: finer steps would drown in the noise.
const FINEST: f64 = 1.2;

/// Depths of a sweep: `1..1024` is a range to search; `1,8,32` are these and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Depths {
    /// Depths from the first to the second, both included; the sweep decides which of them it visits.
    Range(u32, u32),
    /// Only these depths, ascending, each once.
    List(Vec<u32>),
}

impl Default for Depths {
    fn default() -> Depths {
        Depths::Range(1, 1024)
    }
}

impl Depths {
    /// The depths that are measured in any case, ascending: of a range its powers of two and its ends.
    pub fn asked(&self) -> Vec<u32> {
        match self {
            Depths::List(list) => list.clone(),
            &Depths::Range(first, last) => {
                let between = (0..32).map(|power| 1u32 << power).filter(|&depth| depth > first && depth < last);
                [first].into_iter().chain(between).chain([last]).collect()
            }
        }
    }

    /// The least factor between neighbouring depths; a list is not refined.
    pub fn finest(&self) -> f64 {
        match self {
            Depths::List(_) => f64::INFINITY,
            Depths::Range(..) => FINEST,
        }
    }
}

impl FromStr for Depths {
    type Err = String;

    fn from_str(text: &str) -> Result<Depths, String> {
        let depth = |word: &str| match word.trim().parse::<u32>() {
            Ok(depth) if (1..=DEEPEST).contains(&depth) => Ok(depth),
            _ => Err(format!("{word:?} is not a depth: give 1..1024, or a list as 1,8,32, within 1..{DEEPEST}")),
        };
        if let Some((first, last)) = text.split_once("..") {
            let (first, last) = (depth(first)?, depth(last.trim_start_matches('='))?);
            return if first < last {
                Ok(Depths::Range(first, last))
            } else {
                Err(format!("the range {text} is empty: the smaller depth comes first"))
            };
        }
        let mut list = text.split(',').map(depth).collect::<Result<Vec<_>, _>>()?;
        list.sort_unstable();
        list.dedup();
        Ok(Depths::List(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists() {
        assert_eq!("1..1024".parse(), Ok(Depths::Range(1, 1024)));
        assert_eq!("4..=16".parse(), Ok(Depths::Range(4, 16)));
        assert_eq!("32, 1,8,8".parse(), Ok(Depths::List(vec![1, 8, 32])));
        assert_eq!("7".parse(), Ok(Depths::List(vec![7])));
    }

    #[test]
    fn a_range_asks_for_its_powers_of_two_and_its_ends() {
        assert_eq!(Depths::Range(1, 1024).asked(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(Depths::Range(3, 20).asked(), [3, 4, 8, 16, 20]);
        assert_eq!(Depths::List(vec![5, 9]).asked(), [5, 9]);
    }

    #[test]
    fn nonsense_is_refused_with_what_to_give() {
        for text in ["", "0", "0..4", "1..", "9..3", "4..4", "a", "1,,2", "99999999"] {
            let error = text.parse::<Depths>().unwrap_err();
            assert!(error.contains("depth") && !error.contains('\n'), "{text}: {error}");
        }
    }
}
