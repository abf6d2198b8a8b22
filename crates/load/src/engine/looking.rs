//! Looking for completions again and again instead of sleeping for them, as the job's `poll=` says.
//!
//! [`pace::Lookout`] decides. The time looked is processor time of the clone, and its result says so apart: a processor
//! that is busy with looking is not one that limits the load.

use std::cell::Cell;

use job::Job;
use pace::{Lookout, Poll, Step};
use sys::clock::monotonic_ns;

thread_local! {
    static LOOKED_NS: Cell<u64> = const { Cell::new(0) };
}

/// The time in nanoseconds for which engines on the calling thread have looked for completions in vain.
pub(crate) fn looked_ns() -> u64 {
    LOOKED_NS.get()
}

/// The way in which a job's engine waits: `poll=`, or the engine's own way where the job says nothing.
pub(super) fn poll_of(job: &Job, usual: Poll) -> Poll {
    job.ring.option("poll").and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// With `poll=always` a look for completions returns empty-handed after this time: the job may have been told to stop.
const NOTICE_NS: u64 = 100_000_000;

/// With `poll=always` one look in this many offers the processor. Kernels before 6.1 end an op when its thread enters
/// them, and tell nobody that they have one to end.
const LOOKS: u32 = 64;

/// The outcome of looking for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// Something has come.
    Found,
    /// Nothing has come: the engine sleeps.
    Sleep,
    /// Nothing has come: the deadline is over, or the caller should have a look at other things.
    Late,
}

/// Decides whether an engine looks for completions or sleeps. One thread uses it.
pub(super) struct Looking {
    lookout: Lookout,
    poll: Poll,
}

impl Looking {
    /// Looking as `poll` says. Measures the price of a sleep once for the process, if the answer matters.
    pub fn new(poll: Poll) -> Looking {
        let sleep_ns = if poll == Poll::Adaptive { sys::wake::cost_ns() } else { 1 };
        Looking { lookout: Lookout::new(poll, sleep_ns), poll }
    }

    /// A look has found nothing. Returns true if the engine looks again, which may have offered the processor to other
    /// threads, and false if it sleeps.
    #[inline]
    pub fn looks_again(&mut self, now_ns: u64) -> bool {
        match self.lookout.found_nothing(now_ns) {
            Step::Look => true,
            Step::Yield => {
                std::thread::yield_now();
                self.lookout.has_yielded(monotonic_ns());
                true
            }
            Step::Sleep => false,
        }
    }

    /// Something has come: after looks, or after a sleep.
    #[inline]
    pub fn found(&mut self) {
        if self.lookout.is_waiting() {
            let before_ns = self.lookout.looked_ns();
            self.lookout.found(monotonic_ns());
            LOOKED_NS.set(LOOKED_NS.get() + self.lookout.looked_ns() - before_ns);
        }
    }

    /// Looks until something `came`, or a sleep costs less, or `deadline_ns` is over. A wait for several completions is
    /// one sleep for all `wanted` of them, unless the engine never sleeps.
    ///
    /// # Errors
    /// Those of `came`.
    #[inline]
    pub fn look<E>(
        &mut self,
        wanted: usize,
        deadline_ns: Option<u64>,
        mut came: impl FnMut() -> Result<bool, E>,
    ) -> Result<Looked, E> {
        if self.poll == Poll::Never || (self.poll == Poll::Adaptive && wanted != 1) {
            return Ok(Looked::Sleep);
        }
        let mut now_ns = monotonic_ns();
        let late_ns = deadline_ns.unwrap_or(u64::MAX).min(now_ns + NOTICE_NS);
        let mut looks = 0_u32;
        while !came()? {
            if now_ns >= late_ns {
                return Ok(Looked::Late);
            }
            if !self.looks_again(now_ns) {
                return Ok(Looked::Sleep);
            }
            looks = looks.wrapping_add(1);
            if self.poll == Poll::Always && looks.is_multiple_of(LOOKS) {
                std::thread::yield_now();
            }
            (0..4).for_each(|_| std::hint::spin_loop());
            now_ns = monotonic_ns();
        }
        self.found();
        Ok(Looked::Found)
    }
}
