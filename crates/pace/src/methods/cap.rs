//! A user's own cap: token buckets for ops and bytes with a burst, per tenant.
//!
//! Each tenant has two buckets, filled at the capped rates up to `burst` worth of time. An op goes when both have
//! something left; it may overdraw them by itself, so that an op larger than the burst still goes,
//! and the debt is paid before the next. The long-run rate is exact.

use super::Core;
use crate::slab::{List, State};
use crate::{Admission, Admit, Limits, Op, OpId, Purge, Released, Stats};

const NS_PER_S: f64 = 1e9;

struct Tenant {
    ops: f64,
    bytes: f64,
    filled_ns: u64,
    waiting: List,
}

pub(crate) struct Cap {
    core: Core,
    /// The cap in ops per second; infinite where there is none.
    ops_per_s: f64,
    bytes_per_s: f64,
    burst_s: f64,
    tenants: Box<[Tenant]>,
    next_tenant: usize,
    held: usize,
}

impl Cap {
    pub fn new(limits: Limits, iops: Option<u64>, bytes_per_s: Option<u64>, burst_ns: u64) -> Cap {
        let (ops_per_s, bytes_per_s) =
            (iops.map_or(f64::INFINITY, |v| v as f64), bytes_per_s.map_or(f64::INFINITY, |v| v as f64));
        let burst_s = burst_ns as f64 / NS_PER_S;
        let full =
            || Tenant { ops: ops_per_s * burst_s, bytes: bytes_per_s * burst_s, filled_ns: 0, waiting: List::EMPTY };
        Cap {
            core: Core::new(limits, None),
            ops_per_s,
            bytes_per_s,
            burst_s,
            tenants: (0..limits.tenants).map(|_| full()).collect(),
            next_tenant: 0,
            held: 0,
        }
    }

    fn fill(&mut self, tenant: usize, now_ns: u64) {
        let t = &mut self.tenants[tenant];
        let elapsed_s = now_ns.saturating_sub(t.filled_ns) as f64 / NS_PER_S;
        t.filled_ns = now_ns.max(t.filled_ns);
        if self.ops_per_s.is_finite() {
            t.ops = (t.ops + elapsed_s * self.ops_per_s).min(self.ops_per_s * self.burst_s);
        }
        if self.bytes_per_s.is_finite() {
            t.bytes = (t.bytes + elapsed_s * self.bytes_per_s).min(self.bytes_per_s * self.burst_s);
        }
    }

    fn take(&mut self, tenant: usize, bytes: u32) -> bool {
        let t = &mut self.tenants[tenant];
        if t.ops < 0.0 || t.bytes < 0.0 {
            return false;
        }
        if self.ops_per_s.is_finite() {
            t.ops -= 1.0;
        }
        if self.bytes_per_s.is_finite() {
            t.bytes -= f64::from(bytes);
        }
        true
    }

    /// When the debt of `tenant` is paid, rounded up to a whole nanosecond.
    fn solvent_ns(&self, t: &Tenant) -> u64 {
        let wait_s = (-t.ops / self.ops_per_s).max(-t.bytes / self.bytes_per_s).max(0.0);
        t.filled_ns + (wait_s * NS_PER_S).ceil() as u64
    }
}

impl Admission for Cap {
    fn admit(&mut self, now_ns: u64, op: Op) -> Admit {
        if let Some(answer) = self.core.screen(&op) {
            return answer;
        }
        let tenant = op.tenant as usize;
        self.fill(tenant, now_ns);
        if self.tenants[tenant].waiting.is_empty() && self.take(tenant, op.bytes) {
            return self.core.go(now_ns, op);
        }
        match self.core.hold(now_ns, op) {
            Ok(index) => {
                self.tenants[tenant].waiting.push(&mut self.core.slab, index);
                self.held += 1;
                Admit::Held(self.core.slab.id(index))
            }
            Err(refused) => refused,
        }
    }

    fn complete(&mut self, now_ns: u64, id: OpId) -> bool {
        self.core.finish(now_ns, id).is_some()
    }

    fn poll(&mut self, now_ns: u64) -> Option<Released> {
        if self.held == 0 {
            return None;
        }
        for _ in 0..self.tenants.len() {
            let tenant = self.next_tenant;
            self.next_tenant = (tenant + 1) % self.tenants.len();
            if self.tenants[tenant].waiting.is_empty() {
                continue;
            }
            self.fill(tenant, now_ns);
            let index = self.tenants[tenant].waiting.head;
            if self.take(tenant, self.core.slab[index].op.bytes) {
                self.tenants[tenant].waiting.unlink(&mut self.core.slab, index);
                self.held -= 1;
                return Some(self.core.release(now_ns, index));
            }
        }
        None
    }

    fn wakeup_ns(&self) -> Option<u64> {
        if self.held == 0 {
            return None;
        }
        self.tenants.iter().filter(|t| !t.waiting.is_empty()).map(|t| self.solvent_ns(t)).min()
    }

    fn abort(&mut self, _now_ns: u64, id: OpId) -> Option<u64> {
        let index = self.core.slab.find(id, State::Held)?;
        let tenant = self.core.slab[index].op.tenant as usize;
        self.tenants[tenant].waiting.unlink(&mut self.core.slab, index);
        self.held -= 1;
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
        u64::MAX
    }
}
