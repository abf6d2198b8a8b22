//! The rules of requests that have an I/O priority of their own: `cmdprio_percentage` and its companions.

use measure::{Direction, PerDirection};

use super::Draft;
use crate::engines;
use crate::error::Error;
use crate::job::{PriorityShare, io_priority_value};
use crate::options::values;

/// `cmdprio_percentage` and its companions, as written.
#[derive(Clone, Default)]
pub(crate) struct CommandPriority {
    pub percent: PerDirection<u8>,
    pub class: PerDirection<u8>,
    pub level: PerDirection<u8>,
    pub hint: PerDirection<u16>,
    pub split: Option<PerDirection<Vec<values::PriorityPart>>>,
}

impl Draft {
    /// The shares of requests with a priority of their own; trims have none, as in fio.
    pub(super) fn request_priorities(&mut self) -> Result<(), Error> {
        let wanted = &self.command_priority;
        let percent = |direction| wanted.percent[direction];
        if wanted.split.is_some() && Direction::ALL.into_iter().any(|direction| percent(direction) > 0) {
            let hint = "leave one of them out";
            return self.fail("cmdprio_bssplit", "cmdprio_percentage and cmdprio_bssplit exclude each other", hint);
        }
        let engine = engines::find(&self.job.engine);
        if !engine.is_some_and(|engine| engine.options.contains(&"cmdprio_percentage")) {
            return Ok(());
        }
        for direction in [Direction::Read, Direction::Write] {
            // The class is real time where none is given, as in fio.
            let class = if wanted.class[direction] == 0 { 1 } else { wanted.class[direction] };
            let usual = io_priority_value(class, wanted.level[direction], wanted.hint[direction]);
            let share = |block, percent, priority| PriorityShare { block, percent, priority };
            let shares: Vec<PriorityShare> = match &wanted.split {
                None => vec![share(None, percent(direction), usual)],
                Some(split) => {
                    let parts = split[direction].iter();
                    let own = |own: Option<(u8, u8, u16)>| {
                        own.map_or(usual, |(class, level, hint)| io_priority_value(class, level, hint))
                    };
                    parts.map(|(size, percent, priority)| share(Some(*size), *percent, own(*priority))).collect()
                }
            };
            self.job.process.request_priorities[direction] =
                shares.into_iter().filter(|share| share.percent > 0 && self.job.rw.directions[direction]).collect();
        }
        Ok(())
    }
}
