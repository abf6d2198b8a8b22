//! `sprandom`: one pass of random writes after which a drive is as if it had been written at random for long.
//!
//! A garbage collector takes the block with the fewest valid pages. In the steady state of such a drive, the number of
//! valid pages of a block times the number of blocks with this number of valid pages is constant (P. Desnoyers,
//! "Analytic Models of SSD Write Performance", ACM Transactions on Storage 8(2), 2012, doi:10.1145/2133360.2133364).
//! The writes of the pass are cut into regions of equal length. Each region keeps as much valid data as that model
//! gives to its share of the drive; the rest of its blocks is written again soon afterwards. Together, the writes fill
//! the physical size of the drive.
//!
//! ```text
//! region 0:  new new new ...                      validity: that of the block that the collector takes
//! region 1:  again (of 0) ..., new new ...
//! region 2:  again (of 1; with a cache: of 0) ..., new new ...
//!    ...                                          validity near 1
//! ```

use std::collections::VecDeque;

use super::permutation::Permutation;
use super::random::Random;
use crate::job::Precondition;

/// The order of the writes of one pass over one file, in numbers of blocks.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    /// Blocks that were not written yet.
    fresh: Permutation,
    /// For each region: of 2^32 writes, how many are written again.
    again_below: Vec<u64>,
    region_writes: u64,
    has_cache: bool,
    region: usize,
    /// Blocks to write again, the oldest first: first those that are due in this region, then those of the region
    /// before it if the drive has a cache, then those of this region.
    again: VecDeque<u64>,
    due: u64,
    waiting: u64,
    chosen: u64,
    /// New blocks left in this region.
    fresh_left: u64,
}

/// Writes of one region, for a file of `blocks` blocks.
pub(super) fn region_writes(drive: &Precondition, blocks: u64) -> u64 {
    physical(drive, blocks) / u64::from(drive.regions.max(1))
}

/// Blocks that the drive has for `blocks` blocks of data: about the number of writes of a pass.
pub(super) fn physical(drive: &Precondition, blocks: u64) -> u64 {
    blocks + (blocks as f64 * drive.over_provisioning).ceil() as u64
}

/// The valid part of each region after the pass, from first to last.
fn validities(drive: &Precondition) -> impl Iterator<Item = f64> {
    let lowest = lowest_validity(1.0 / (1.0 + drive.over_provisioning));
    let regions = f64::from(drive.regions);
    // With a density of 1 / validity, equal shares of the drive are equal steps of its logarithm.
    (0..drive.regions).map(move |region| lowest.powf(1.0 - (f64::from(region) + 0.5) / regions))
}

/// The validity of the block that the collector takes, where the drive as a whole is valid to `mean`: between this
/// validity and 1, the density is 1 / validity, and its mean (1 - lowest) / ln(1 / lowest).
fn lowest_validity(mean: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle: f64 = (low + high) / 2.0;
        if (1.0 - middle) / -middle.ln() < mean { low = middle } else { high = middle }
    }
    high
}

impl Regions {
    /// The order of a pass over `blocks` blocks. [`region_writes`] must not be 0.
    pub fn new(drive: &Precondition, blocks: u64, random: &mut Random) -> Regions {
        let again_below: Vec<u64> =
            validities(drive).map(|valid| ((1.0 - valid) * 4_294_967_296.0).round() as u64).collect();
        let region_writes = region_writes(drive, blocks);
        // The first region chooses most; six standard deviations and the regions that wait are room enough.
        let share = again_below.first().map_or(0.0, |&below| below as f64 / 4_294_967_296.0);
        let most = region_writes as f64 * share + 6.0 * (region_writes as f64).sqrt();
        Regions {
            fresh: Permutation::new(blocks, random),
            again_below,
            region_writes,
            has_cache: drive.cache_bytes > 0,
            region: 0,
            again: VecDeque::with_capacity(3 * most.ceil() as usize),
            due: 0,
            waiting: 0,
            chosen: 0,
            fresh_left: region_writes,
        }
    }

    /// Begins the pass anew, in another order.
    pub fn rewind(&mut self, blocks: u64, random: &mut Random) {
        self.fresh = Permutation::new(blocks, random);
        self.again.clear();
        (self.region, self.due, self.waiting, self.chosen) = (0, 0, 0, 0);
        self.fresh_left = self.region_writes;
    }

    /// The block of the next write; None when every block was written and the last region is full.
    pub fn next(&mut self, random: &mut Random) -> Option<u64> {
        while self.due == 0 && self.fresh_left == 0 {
            self.enter_next_region();
        }
        let block = if self.due > 0 {
            self.due -= 1;
            self.again.pop_front()?
        } else {
            self.fresh_left -= 1;
            self.fresh.next()?
        };
        // Blocks that are left over behind the last region are written once.
        let below = self.again_below.get(self.region).copied().unwrap_or(0);
        if random.next() >> 32 < below {
            self.again.push_back(block);
            self.chosen += 1;
        }
        Some(block)
    }

    fn enter_next_region(&mut self) {
        self.region += 1;
        // A drive's cache would take a block written twice in short time as one write: such writes wait a region more.
        (self.due, self.waiting) = if self.has_cache { (self.waiting, self.chosen) } else { (self.chosen, 0) };
        self.chosen = 0;
        self.fresh_left = self.region_writes.saturating_sub(self.due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u64 = 100_000;

    fn writes(drive: &Precondition) -> Vec<u64> {
        let mut random = Random::new(7);
        let mut regions = Regions::new(drive, BLOCKS, &mut random);
        let capacity = regions.again.capacity();
        let first: Vec<u64> = std::iter::from_fn(|| regions.next(&mut random)).collect();
        assert_eq!(regions.again.capacity(), capacity, "nothing is allocated on the way");
        regions.rewind(BLOCKS, &mut random);
        let second = std::iter::from_fn(|| regions.next(&mut random)).count();
        assert!(second.abs_diff(first.len()) < 2000, "{second} and {} writes", first.len());
        first
    }

    /// The drive that the writes leave: every block once, the physical size filled, each region as valid as the model
    /// says.
    #[test]
    fn the_regions_are_as_valid_as_in_the_steady_state() {
        for (over_provisioning, regions) in [(0.07, 100), (0.15, 100), (0.25, 20), (1.0, 50)] {
            for cache_bytes in [0, 1] {
                let drive = Precondition { over_provisioning, regions, cache_bytes };
                let writes = writes(&drive);
                let mut last = vec![usize::MAX; BLOCKS as usize];
                writes.iter().enumerate().for_each(|(at, &block)| last[block as usize] = at);
                assert!(!last.contains(&usize::MAX), "{drive:?}: a block was left out");
                let excess = writes.len() as f64 / physical(&drive, BLOCKS) as f64;
                assert!((0.99..1.01).contains(&excess), "{drive:?}: {excess} of the physical size");

                let length = region_writes(&drive, BLOCKS) as usize;
                // The last regions may be cut short, or have their second writes still before them.
                let whole = (regions as usize - 3).min(writes.len() / length - 2);
                for (region, valid) in validities(&drive).enumerate().take(whole) {
                    let of_region = region * length..(region + 1) * length;
                    let kept = of_region.filter(|&at| last[writes[at] as usize] == at).count() as f64 / length as f64;
                    let deviation = (valid * (1.0 - valid) / length as f64).sqrt();
                    assert!((kept - valid).abs() < 5.0 * deviation, "{drive:?}: region {region}: {kept}, not {valid}");
                }
            }
        }
    }

    #[test]
    fn with_a_cache_no_block_is_written_again_within_a_region_of_writes() {
        for (cache_bytes, waits) in [(0, false), (1, true)] {
            let drive = Precondition { over_provisioning: 0.25, regions: 50, cache_bytes };
            let mut last = vec![None; BLOCKS as usize];
            let length = region_writes(&drive, BLOCKS) as usize;
            let mut nearest = usize::MAX;
            for (at, block) in writes(&drive).into_iter().enumerate() {
                nearest = last[block as usize].map_or(nearest, |before| nearest.min(at - before));
                last[block as usize] = Some(at);
            }
            assert_eq!(nearest >= length, waits, "{nearest} writes apart, and a region has {length}");
        }
    }
}
