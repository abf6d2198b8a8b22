//! I/O priorities of single ops: `cmdprio_percentage`, `cmdprio_bssplit`.

use job::Job;
use job::job::{PriorityShare, io_priority_value};
use job::workload::random::Random;
use measure::{Direction, PerDirection};

/// Draws the priority of each op.
pub(super) struct Priorities {
    shares: PerDirection<Vec<PriorityShare>>,
    random: Random,
}

impl Priorities {
    /// The priorities of a clone's ops; None if all ops have the clone's.
    pub fn new(job: &Job, seed: u64) -> Option<Priorities> {
        let shares = &job.process.request_priorities;
        let any = shares.iter().any(|(_, shares)| !shares.is_empty());
        any.then(|| Priorities { shares: shares.clone(), random: Random::new(seed ^ 0x7072_696f) })
    }

    /// The priority of the next op, as ioprio_set(2) takes it; 0: that of the clone.
    pub fn draw(&mut self, direction: Direction, bytes: u64) -> u16 {
        let shares = &self.shares[direction];
        if shares.is_empty() {
            return 0;
        }
        let mut drawn = self.random.below(100) as u8;
        for share in shares.iter().filter(|share| share.block.is_none_or(|block| block == bytes)) {
            match drawn.checked_sub(share.percent) {
                None => return share.priority,
                Some(rest) => drawn = rest,
            }
        }
        0
    }
}

/// The priority of the clone itself (`prio`, `prioclass`); 0: it has none.
pub(super) fn usual(job: &Job) -> u16 {
    let hint = job.process.io_priority_hint;
    job.process.io_priority.map_or(0, |(class, level)| io_priority_value(class, level, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_drawn_by_size_and_percentage() {
        let mut job = Job::default();
        let share = |block, percent, priority| PriorityShare { block, percent, priority };
        job.process.request_priorities.read =
            vec![share(Some(4096), 25, 1), share(Some(4096), 50, 2), share(Some(8192), 100, 3)];
        let mut priorities = Priorities::new(&job, 1).unwrap();
        let mut seen = [0; 4];
        (0..10_000).for_each(|_| seen[priorities.draw(Direction::Read, 4096) as usize] += 1);
        let near = |count: i32, expected: i32| (count - expected).abs() < 250;
        assert!(near(seen[0], 2500) && near(seen[1], 2500) && near(seen[2], 5000) && seen[3] == 0, "{seen:?}");
        assert_eq!(priorities.draw(Direction::Read, 8192), 3);
        assert_eq!(priorities.draw(Direction::Read, 512), 0);
        assert_eq!(priorities.draw(Direction::Write, 4096), 0);
        assert!(Priorities::new(&Job::default(), 1).is_none());
    }
}
