//! The rules of `sprandom`: one pass of random writes that brings a drive into its steady state.

use super::Draft;
use crate::error::Error;
use crate::job::{Distribution, Generator};

impl Draft {
    /// Checks the options that go with `sprandom`, and sets those that it implies.
    ///
    /// # Errors
    /// An option that contradicts it.
    pub(super) fn precondition(&mut self) -> Result<(), Error> {
        if !self.precondition_wanted {
            return Ok(());
        }
        let rw = &self.job.rw;
        let only_writes = rw.random && rw.directions.write && !rw.directions.read && !rw.directions.trim;
        if !only_writes || rw.ops_per_offset > 1 {
            return self.fail(
                "sprandom",
                format!("sprandom does not go with {}", self.written("rw")),
                "use rw=randwrite",
            );
        }
        let pattern = &self.job.pattern;
        if self.is_set("random_generator") && pattern.generator != Generator::Permutation {
            let what = format!("sprandom does not go with {}", self.written("random_generator"));
            return self.fail("random_generator", what, "leave it out, or write random_generator=lfsr");
        }
        if self.is_set("norandommap") && !pattern.no_random_map {
            let what =
                format!("sprandom does not go with {}: it writes some blocks twice", self.written("norandommap"));
            return self.fail("norandommap", what, "leave it out");
        }
        let shaped = pattern.distribution.write != Distribution::Uniform
            || !pattern.zones.write.is_empty()
            || !pattern.zones_absolute.write.is_empty()
            || !pattern.sequence.is_empty();
        let contradictions = [
            ("random_distribution", shaped),
            ("percentage_random", pattern.percent_random.write != 100),
            ("zonesize", self.job.extent.strided.is_some()),
        ];
        if let Some((name, _)) = contradictions.into_iter().find(|(_, contradicts)| *contradicts) {
            let hint = "leave one of them out: sprandom decides which blocks are written";
            return self.fail(name, format!("{name} does not go with sprandom"), hint);
        }
        let blocks = &self.job.blocks;
        let (smallest, largest) = blocks.range.write;
        if smallest != largest || blocks.is_seq_rand || blocks.unaligned || blocks.align.write != smallest {
            let name = ["ba", "bssplit", "bsrange"].into_iter().find(|name| self.is_set(name)).unwrap_or("bs");
            return self.fail(
                name,
                "sprandom needs blocks of one size, side by side",
                "give one bs, and no blockalign",
            );
        }
        if self.is_set("io_size") {
            self.warn_at("io_size", "io_size has no effect with sprandom, which ends when every block was written");
        }
        if self.is_set("number_ios") {
            self.warn_at("number_ios", "number_ios may end sprandom before the drive is in its steady state");
        }
        self.job.pattern.no_random_map = true;
        self.job.pattern.generator = Generator::Permutation;
        self.job.pattern.precondition = Some(self.precondition);
        Ok(())
    }
}
