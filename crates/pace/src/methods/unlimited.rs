//! No pacing: what every other method is compared with. A hard budget still holds.

use super::Core;
use crate::slab::{List, State};
use crate::{Admission, Admit, Limits, Op, OpId, Purge, Released, Stats};

pub(crate) struct Unlimited {
    core: Core,
    held: List,
}

impl Unlimited {
    pub fn new(limits: Limits, budget: Option<u64>) -> Unlimited {
        Unlimited { core: Core::new(limits, budget), held: List::EMPTY }
    }
}

impl Admission for Unlimited {
    fn admit(&mut self, now_ns: u64, op: Op) -> Admit {
        if let Some(answer) = self.core.screen(&op) {
            return answer;
        }
        if self.held.is_empty() && self.core.in_budget(op.bytes) {
            return self.core.go(now_ns, op);
        }
        match self.core.hold(now_ns, op) {
            Ok(index) => {
                self.held.push(&mut self.core.slab, index);
                Admit::Held(self.core.slab.id(index))
            }
            Err(refused) => refused,
        }
    }

    fn complete(&mut self, now_ns: u64, id: OpId) -> bool {
        self.core.finish(now_ns, id).is_some()
    }

    fn poll(&mut self, now_ns: u64) -> Option<Released> {
        let index = self.held.head;
        if self.held.is_empty() || !self.core.in_budget(self.core.slab[index].op.bytes) {
            return None;
        }
        self.held.unlink(&mut self.core.slab, index);
        Some(self.core.release(now_ns, index))
    }

    fn wakeup_ns(&self) -> Option<u64> {
        None
    }

    fn abort(&mut self, _now_ns: u64, id: OpId) -> Option<u64> {
        let index = self.core.slab.find(id, State::Held)?;
        self.held.unlink(&mut self.core.slab, index);
        Some(self.core.forget(index))
    }

    fn purge(&mut self, now_ns: u64, which: Purge) -> Option<u64> {
        let index = self.core.slab.find_held(which)?;
        self.abort(now_ns, self.core.slab.id(index))
    }

    fn stats(&self) -> &Stats {
        &self.core.stats
    }

    fn window_bytes(&self) -> u64 {
        self.core.budget
    }
}
