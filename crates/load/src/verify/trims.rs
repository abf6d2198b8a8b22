//! The trims among the writes of a verifying clone (`trim_percentage`): which written blocks are trimmed again, and
//! when.

use std::collections::VecDeque;

use job::job::VerifyTrims;
use job::workload::random::mix;

use super::ReadBack;

/// The blocks of one clone that are to be trimmed.
#[derive(Clone, Debug)]
pub(super) struct Trims {
    options: VerifyTrims,
    seed: u64,
    writes: u64,
    /// The chosen blocks that are not trimmed yet, the oldest first.
    waiting: VecDeque<ReadBack>,
    /// Trims that are due now.
    due: usize,
}

impl Trims {
    /// No blocks yet. `seed` decides which blocks are chosen.
    pub fn new(options: VerifyTrims, seed: u64) -> Trims {
        Trims { options, seed, writes: 0, waiting: VecDeque::new(), due: 0 }
    }

    /// True if blocks are trimmed at all.
    pub fn any(&self) -> bool {
        self.options.percent > 0
    }

    /// A block was written. True if it is to be trimmed.
    pub fn wrote(&mut self, block: ReadBack) -> bool {
        let chosen = self.chooses(self.writes);
        self.writes += 1;
        if chosen {
            self.waiting.push_back(block);
        }
        let VerifyTrims { backlog, batch, .. } = self.options;
        if backlog != 0 && self.writes.is_multiple_of(backlog) {
            let more = if batch == 0 { backlog } else { batch };
            self.due = (self.due as u64).saturating_add(more).min(self.waiting.len() as u64) as usize;
        }
        chosen
    }

    /// The pass is written: all chosen blocks are due. False if there are none.
    pub fn end_of_writes(&mut self) -> bool {
        self.due = self.waiting.len();
        self.due > 0
    }

    /// The block that is due to be trimmed, if any. It may have been written again since.
    pub fn next(&mut self) -> Option<ReadBack> {
        self.due = self.due.checked_sub(1)?;
        self.waiting.pop_front()
    }

    /// True if write number `number`, from 0, is one of those to be trimmed: one at random of every 100 / percent
    /// writes, so that the share holds for few writes, too.
    fn chooses(&self, number: u64) -> bool {
        let percent = u128::from(self.options.percent);
        if percent == 0 {
            return false;
        }
        let group = u128::from(number) * percent / 100;
        let (first, end) = ((group * 100).div_ceil(percent), ((group + 1) * 100).div_ceil(percent));
        u128::from(number) == first + u128::from(mix(self.seed ^ mix(group as u64))) % (end - first)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Data;
    use super::*;

    fn block(number: u64) -> ReadBack {
        ReadBack { file: 0, offset: number * 4096, len: 4096, data: Data::Write(number as u32) }
    }

    #[test]
    fn the_share_of_trims_holds_from_the_beginning() {
        for percent in 0..=100 {
            for seed in 0..20 {
                let trims = Trims::new(VerifyTrims { percent, ..VerifyTrims::default() }, seed);
                let mut chosen = 0;
                for number in 0..1000u64 {
                    chosen += u64::from(trims.chooses(number));
                    let exact = (number + 1) * u64::from(percent) / 100;
                    assert!(chosen.abs_diff(exact) <= 1, "{percent} %, {number} writes: {chosen}");
                }
                assert_eq!(chosen, u64::from(percent) * 10);
            }
        }
    }

    #[test]
    fn the_choice_is_random() {
        let trims = Trims::new(VerifyTrims { percent: 50, ..VerifyTrims::default() }, 1);
        let even = (0..2000).step_by(2).filter(|&number| trims.chooses(number)).count();
        assert!((400..600).contains(&even), "{even} of 1000 trims hit the first of two writes");
    }

    #[test]
    fn backlog_and_batch_say_when() {
        let options = VerifyTrims { percent: 100, backlog: 4, batch: 3, ..VerifyTrims::default() };
        let mut trims = Trims::new(options, 1);
        let mut log = String::new();
        for number in 0..10 {
            trims.wrote(block(number));
            log.push('w');
            while trims.next().is_some() {
                log.push('t');
            }
        }
        assert!(trims.end_of_writes());
        while trims.next().is_some() {
            log.push('t');
        }
        assert!(!trims.end_of_writes());
        assert_eq!(log, "wwwwtttwwwwtttwwtttt");
    }
}
