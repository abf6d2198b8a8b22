//! Response times over time: a histogram for each slice of a phase. Slices double in length when there are too many of
//! them, so that the memory is bounded however long the phase is.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// The most slices.
const MOST: usize = 64;
/// Nanoseconds of a slice at first.
const FIRST_NS: u64 = 100_000_000;

/// The response times of a phase, by the time at which operations began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OverTime {
    /// Nanoseconds of a slice.
    pub every_ns: u64,
    /// The response times in nanoseconds of each slice, from the start of the phase on.
    pub slices: Vec<Histogram>,
}

impl Default for OverTime {
    fn default() -> OverTime {
        OverTime { every_ns: FIRST_NS, slices: Vec::new() }
    }
}

impl OverTime {
    /// Records an operation that began `at_ns` after the start and took `took_ns`.
    pub fn record(&mut self, at_ns: u64, took_ns: u64) {
        while at_ns / self.every_ns >= MOST as u64 {
            self.double();
        }
        let slice = (at_ns / self.every_ns) as usize;
        if slice >= self.slices.len() {
            self.slices.resize_with(slice + 1, Histogram::new);
        }
        self.slices[slice].record(took_ns);
    }

    /// Adds the response times of other threads of the same phase. Lengths of slices differ by powers of two.
    pub fn merge(&mut self, other: &OverTime) {
        let mut other = other.clone();
        while self.every_ns < other.every_ns {
            self.double();
        }
        while other.every_ns < self.every_ns {
            other.double();
        }
        let all = self.slices.len().max(other.slices.len());
        self.slices.resize_with(all, Histogram::new);
        self.slices.iter_mut().zip(&other.slices).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    fn double(&mut self) {
        self.every_ns *= 2;
        let pairs = self.slices.chunks(2).map(|pair| {
            let mut both = pair[0].clone();
            pair[1..].iter().for_each(|second| both.merge(second));
            both
        });
        self.slices = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_hold_what_began_in_them_however_long_it_goes_on() {
        let mut course = OverTime::default();
        for second in 0..1000 {
            course.record(second * 1_000_000_000, 1000 + second);
        }
        assert!(course.slices.len() <= MOST);
        assert_eq!(course.every_ns, FIRST_NS << 8, "64 slices of 25.6 s are more than 1000 s, of 12.8 s less");
        assert_eq!(course.slices.iter().map(Histogram::count).sum::<u64>(), 1000);
        assert_eq!(course.slices[0].count(), 26, "0 to 25 s");
        assert!(course.slices[1].quantile(0.0) >= course.slices[0].quantile(1.0));
    }

    #[test]
    fn a_short_course_and_a_long_one_add_up() {
        let (mut short, mut long) = (OverTime::default(), OverTime::default());
        short.record(50_000_000, 7);
        (0..100).for_each(|second| long.record(second * 1_000_000_000, 9));
        let mut one = short.clone();
        one.merge(&long);
        long.merge(&short);
        for both in [&one, &long] {
            assert_eq!(both.slices.iter().map(Histogram::count).sum::<u64>(), 101);
            assert_eq!(both.every_ns, long.every_ns);
        }
        assert_eq!(one.slices[0].count(), long.slices[0].count());
    }
}
