//! The sizes of blocks, and the multiples at which they begin.

use measure::{Direction, PerDirection};

use super::Draft;
use crate::error::Error;

impl Draft {
    pub(super) fn blocks(&mut self) -> Result<(), Error> {
        let fixed = PerDirection::from_fn(|direction| self.block[direction].unwrap_or(4096));
        for direction in Direction::ALL {
            let split = &self.job.blocks.split[direction];
            let sizes = || split.iter().map(|(size, _)| *size);
            self.job.blocks.range[direction] = match (sizes().min(), sizes().max()) {
                (Some(smallest), Some(largest)) => (smallest, largest),
                _ => self.block_range[direction].unwrap_or((fixed[direction], fixed[direction])),
            };
            if self.job.blocks.range[direction].0 == 0 {
                return self.fail(
                    "bsrange",
                    format!("{}: a block has at least one byte", self.written("bsrange")),
                    "write as bsrange=1k-4k",
                );
            }
        }
        let (ranges, splits) = (&self.job.blocks.range, &self.job.blocks.split);
        if self.job.rw.trim_then_write && (ranges.write != ranges.trim || splits.write != splits.trim) {
            let what = "each write is as long as the trim before it: the size of writes has no effect on the job";
            self.warn_at("rw", format!("{}: {what}", self.written("rw")));
        }
        let random = self.job.rw.random;
        let smallest = PerDirection::from_fn(|direction| self.job.blocks.range[direction].0);
        let align = self.align;
        self.job.blocks.align =
            PerDirection::from_fn(|direction| align[direction].filter(|_| random).unwrap_or(smallest[direction]));
        let aligned_otherwise = self
            .job
            .rw
            .directions
            .iter()
            .any(|(direction, used)| *used && self.job.blocks.align[direction] != smallest[direction]);
        if aligned_otherwise && !self.job.pattern.no_random_map {
            self.job.pattern.no_random_map = true;
            self.warn_at("ba", "blockalign turns the random map off, as in fio: blocks may repeat and be missed");
        }
        Ok(())
    }
}
