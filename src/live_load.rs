//! The load of this program on a board, for `plimsoll top`.

use live::{Board, BoardKind, Gauge, Op, Row, RowKind};
use load::Progress;
use measure::Direction;

/// A board with one row, brought up to date whenever the progress is shown. It is gone when this value is dropped.
pub struct LiveLoad {
    board: Option<(Board, Row)>,
    told: Progress,
}

impl LiveLoad {
    /// The board of `subcommand`, whose load has a name; without a place for boards nothing is told.
    pub fn new(subcommand: &str, name: &str) -> LiveLoad {
        let board = Board::create(BoardKind::Load, &format!("plimsoll {subcommand}"), 1).ok();
        let board = board.and_then(|board| board.add(RowKind::Load, "", name).map(|row| (board, row)));
        LiveLoad { board, told: Progress::default() }
    }

    /// Adds what was done since the last call. Each run of a sweep counts from zero, and so does each phase of a run.
    pub fn add(&mut self, now: &Progress, asked_depth: u64) {
        let Some((board, row)) = &self.board else { return };
        let begins = now.elapsed_ns < self.told.elapsed_ns
            || Direction::ALL.iter().any(|&direction| now.ops[direction] < self.told.ops[direction]);
        if begins {
            self.told = Progress::default();
        }
        let grown = |of: fn(&Progress) -> u64| of(now).saturating_sub(of(&self.told));
        let all = |progress: &Progress| progress.ops.iter().map(|(_, ops)| *ops).sum();
        let (ops, lat_sum_ns) = (grown(all), grown(|progress| progress.lat_sum_ns));
        let counters = board.counters(*row);
        for (direction, op) in
            [(Direction::Read, Op::Read), (Direction::Write, Op::Write), (Direction::Trim, Op::Other)]
        {
            let mine = now.ops[direction] - self.told.ops[direction];
            let bytes = now.bytes[direction].saturating_sub(self.told.bytes[direction]);
            // The sum of the latencies is known for all directions together.
            let share = (lat_sum_ns as f64 * mine as f64 / ops.max(1) as f64) as u64;
            counters.count_many(op, mine, bytes, share);
        }
        counters.set(Gauge::AskedDepth, asked_depth);
        counters.set(Gauge::AsOfNs, sys::clock::monotonic_ns());
        self.told = *now;
    }

    /// Tells the load line that a sweep has found so far; 0 while it has none.
    pub fn set_load_line(&self, depth: u64) {
        if let Some((board, row)) = &self.board {
            board.counters(*row).set(Gauge::LoadLine, depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_follow_each_other_add_up() {
        let board = Board::private(BoardKind::Load, "plimsoll sweep", 1).unwrap();
        let row = board.add(RowKind::Load, "", "disk").unwrap();
        let mut load = LiveLoad { board: Some((board, row)), told: Progress::default() };
        for (elapsed_ns, reads) in [(1, 10), (2, 25), (1, 5), (2, 7)] {
            let mut now = Progress { elapsed_ns, lat_sum_ns: reads * 1000, ..Progress::default() };
            (now.ops.read, now.bytes.read) = (reads, reads * 4096);
            load.add(&now, 32);
        }
        load.set_load_line(64);
        let row = &load.board.as_ref().unwrap().0.snapshot().rows[0];
        let read = row.op(Op::Read);
        assert_eq!((read.ops, read.bytes, read.lat_sum_ns), (32, 32 * 4096, 32_000));
        assert_eq!((row.gauge(Gauge::AskedDepth), row.gauge(Gauge::LoadLine)), (32, 64));
    }
}
