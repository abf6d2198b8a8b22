//! `cpuio`: an op keeps the processor busy, and moves no data. The pauses between ops, which make the load less than
//! 100 %, are the runner's (`cpuload`).

use std::io;
use std::os::fd::RawFd;

use job::workload::random::Random;
use sys::clock::monotonic_ns;

use super::{Completion, Engine, Queued, Request, Setup};
use crate::Error;

/// Numbers that one op of `cpumode=qsort` sorts: 1 MiB, as in fio.
const NUMBERS: usize = 256 << 10;

/// The work of one op.
enum Work {
    /// An empty loop for this many nanoseconds.
    Spin(u64),
    /// Sorting of these numbers, up and down, and of their bytes.
    Sort(Vec<i32>),
}

struct Cpu {
    work: Work,
}

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    let sorts = setup.job.ring.other.iter().any(|(name, value)| name == "cpumode" && value == "qsort");
    let work = if sorts {
        let mut random = Random::new(setup.job.pattern.seed);
        Work::Sort((0..NUMBERS).map(|_| random.next() as i32).collect())
    } else {
        Work::Spin(setup.job.ring.chunk_ns)
    };
    Ok(Box::new(Cpu { work }))
}

impl Work {
    fn carry_out(&mut self) {
        match self {
            Work::Spin(ns) => {
                let until = monotonic_ns().saturating_add(*ns);
                while monotonic_ns() < until {
                    std::hint::spin_loop();
                }
            }
            Work::Sort(numbers) => {
                numbers.sort_unstable();
                numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
                // By one byte: the order of the rest is as good as random.
                numbers.sort_unstable_by_key(|number| *number as u8);
                numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
                std::hint::black_box(numbers);
            }
        }
    }
}

impl Engine for Cpu {
    fn open(&mut self, _file: u32, _fd: RawFd) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, _file: u32) {}

    fn queue(&mut self, request: Request) -> Queued {
        self.work.carry_out();
        Queued::Done(Completion { slot: request.slot, result: 0 })
    }

    fn submit(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn reap(&mut self, _: usize, _: usize, _: Option<u64>, _: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }
}
