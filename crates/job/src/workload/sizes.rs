//! The size of the next op: `bs`, `bsrange`, `bssplit`.

use super::random::Random;

/// The block sizes of one direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sizes {
    /// Every op has this size, in bytes.
    Fixed(u64),
    /// A multiple of `unit` from 1 to `most` times, all alike.
    Multiples { unit: u64, most: u64 },
    /// `low` to `high` bytes, all alike (`bs_unaligned`).
    Bytes { low: u64, high: u64 },
    /// `bssplit`: for each size, the sum of the shares up to and including its own (in parts of 2^32), and the size in
    /// bytes.
    Split(Vec<(u64, u64)>),
}

impl Sizes {
    /// The sizes that a job asks for.
    pub fn new((low, high): (u64, u64), split: &[(u64, f64)], unaligned: bool) -> Sizes {
        let split: Vec<(u64, f64)> = split.iter().copied().filter(|&(_, percent)| percent > 0.0).collect();
        match split[..] {
            [(bytes, _)] => return Sizes::Fixed(bytes),
            [] => {}
            _ => {
                let total: f64 = split.iter().map(|(_, percent)| percent).sum();
                let mut sum = 0.0;
                let shares = split.iter().map(|&(bytes, percent)| {
                    sum += percent;
                    ((sum / total * 4_294_967_296.0).round() as u64, bytes)
                });
                let mut shares: Vec<(u64, u64)> = shares.collect();
                // Rounding must not leave a gap at the top.
                shares.last_mut().expect("two or more").0 = 1 << 32;
                return Sizes::Split(shares);
            }
        }
        if low == high {
            Sizes::Fixed(low)
        } else if unaligned {
            Sizes::Bytes { low, high }
        } else {
            Sizes::Multiples { unit: low, most: (high / low.max(1)).max(1) }
        }
    }

    /// The smallest size, in bytes.
    pub fn smallest(&self) -> u64 {
        match self {
            Sizes::Fixed(bytes) | Sizes::Multiples { unit: bytes, .. } | Sizes::Bytes { low: bytes, .. } => *bytes,
            Sizes::Split(shares) => shares.iter().map(|&(_, bytes)| bytes).min().unwrap_or(0),
        }
    }

    /// A size that fits into `room` bytes; None if not even the smallest does.
    ///
    /// Sizes that do not fit are left out and the others keep their proportions, as in fio, which draws again.
    #[inline(always)]
    pub fn draw(&self, room: u64, random: &mut Random) -> Option<u64> {
        match self {
            Sizes::Fixed(bytes) => (*bytes <= room).then_some(*bytes),
            _ => self.draw_varied(room, random),
        }
    }

    fn draw_varied(&self, room: u64, random: &mut Random) -> Option<u64> {
        if self.smallest() > room {
            return None;
        }
        Some(match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Multiples { unit, most } => {
                let most = if unit * most <= room { *most } else { room / unit };
                (1 + random.below(most)) * unit
            }
            Sizes::Bytes { low, high } => low + random.below((*high).min(room) - low + 1),
            Sizes::Split(shares) => {
                for _ in 0..64 {
                    let share = random.next() >> 32;
                    let drawn = shares.iter().find(|&&(below, _)| share < below);
                    let bytes = drawn.map_or(shares[shares.len() - 1].1, |&(_, bytes)| bytes);
                    if bytes <= room {
                        return Some(bytes);
                    }
                }
                // The sizes that fit have next to no share: do not search for one forever.
                self.smallest()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sizes: &Sizes, room: u64, draws: u64) -> std::collections::BTreeMap<u64, u64> {
        let mut random = Random::new(1);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..draws {
            *counts.entry(sizes.draw(room, &mut random).unwrap()).or_default() += 1;
        }
        counts
    }

    /// Within four standard deviations of a binomial distribution.
    fn close(count: u64, share: f64, draws: u64) -> bool {
        let (expected, draws) = (share * draws as f64, draws as f64);
        (count as f64 - expected).abs() <= 4.0 * (draws * share * (1.0 - share)).sqrt()
    }

    #[test]
    fn splits_keep_their_shares() {
        let sizes = Sizes::new((4096, 65536), &[(4096, 10.0), (8192, 0.0), (16384, 65.5), (65536, 24.5)], false);
        let drawn = counts(&sizes, u64::MAX, 100_000);
        assert_eq!(drawn.keys().copied().collect::<Vec<_>>(), [4096, 16384, 65536]);
        assert!(
            close(drawn[&4096], 0.10, 100_000)
                && close(drawn[&16384], 0.655, 100_000)
                && close(drawn[&65536], 0.245, 100_000),
            "{drawn:?}"
        );
        let drawn = counts(&sizes, 20_000, 100_000);
        assert!(close(drawn[&4096], 10.0 / 75.5, 100_000), "what fits keeps its proportions: {drawn:?}");
        assert_eq!(sizes.draw(4095, &mut Random::new(1)), None);
    }

    #[test]
    fn ranges_are_even() {
        let drawn = counts(&Sizes::new((4096, 16384), &[], false), u64::MAX, 100_000);
        assert_eq!(drawn.keys().copied().collect::<Vec<_>>(), [4096, 8192, 12288, 16384]);
        assert!(drawn.values().all(|&n| close(n, 0.25, 100_000)), "{drawn:?}");
        let drawn = counts(&Sizes::new((1000, 1009), &[], true), u64::MAX, 100_000);
        assert!(drawn.keys().copied().eq(1000..=1009) && drawn.values().all(|&n| close(n, 0.1, 100_000)), "{drawn:?}");
        let drawn = counts(&Sizes::new((4096, 16384), &[], false), 9000, 1000);
        assert_eq!(drawn.keys().copied().collect::<Vec<_>>(), [4096, 8192]);
    }
}
