//! The order of offsets.

use super::Draft;
use crate::job::Distribution;

impl Draft {
    pub(super) fn pattern(&mut self) {
        let pattern = &mut self.job.pattern;
        pattern.repeatable |= self.seed_given;
        let uniform = pattern.distribution.iter().all(|(_, distribution)| *distribution == Distribution::Uniform);
        let zoned = pattern.zones.iter().any(|(_, zones)| !zones.is_empty())
            || pattern.zones_absolute.iter().any(|(_, zones)| !zones.is_empty());
        // A skewed distribution hits some blocks again and again: coverage is not its purpose.
        pattern.no_random_map |= !uniform || zoned || !pattern.sequence.is_empty();
        if pattern.sequence_stride && pattern.sequence.is_empty() {
            self.warn_at(
                "random_sequence_stride",
                "random_sequence_stride has no effect without random_distribution=sequence",
            );
        }
    }
}
