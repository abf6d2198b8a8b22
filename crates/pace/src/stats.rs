//! The counters of a pacer: totals, per drive and per tenant.

use measure::Histogram;

/// Counters of one drive, one tenant, or all.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Ops let through, at once or after a hold.
    pub admitted: u64,
    /// Bytes of the admitted ops.
    pub admitted_bytes: u64,
    /// Ops that had to wait (including those aborted or purged while they did).
    pub held: u64,
    /// Ops completed since the pacer was made.
    pub completed: u64,
    /// Bytes of the ops above.
    pub completed_bytes: u64,
    /// Ops waiting at this moment.
    pub held_now: u64,
    /// Bytes waiting at this moment.
    pub held_bytes_now: u64,
    /// Ops in flight at this moment.
    pub in_flight: u64,
    /// Bytes in flight at this moment.
    pub in_flight_bytes: u64,
    /// Nanoseconds for which released ops were held, without the ops that were never held.
    pub hold_ns: Histogram,
}

/// All counters of a pacer.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The counters of all drives and tenants together.
    pub total: Counters,
    /// The counters of each drive, by drive id.
    pub drives: Box<[Counters]>,
    /// The counters of each tenant, by tenant id.
    pub tenants: Box<[Counters]>,
}

impl Stats {
    pub(crate) fn new(drives: u32, tenants: u32) -> Stats {
        Stats {
            total: Counters::default(),
            drives: (0..drives).map(|_| Counters::default()).collect(),
            tenants: (0..tenants).map(|_| Counters::default()).collect(),
        }
    }

    #[inline]
    fn each(&mut self, op: &crate::Op, f: impl Fn(&mut Counters)) {
        f(&mut self.total);
        f(&mut self.drives[op.drive as usize]);
        f(&mut self.tenants[op.tenant as usize]);
    }

    #[inline]
    pub(crate) fn admit(&mut self, op: &crate::Op) {
        let bytes = u64::from(op.bytes);
        self.each(op, |c| {
            c.admitted += 1;
            c.admitted_bytes += bytes;
            c.in_flight += 1;
            c.in_flight_bytes += bytes;
        });
    }

    pub(crate) fn hold(&mut self, op: &crate::Op) {
        let bytes = u64::from(op.bytes);
        self.each(op, |c| {
            c.held += 1;
            c.held_now += 1;
            c.held_bytes_now += bytes;
        });
    }

    /// A held op leaves its queue: to be admitted after `hold_ns`, or not at all.
    pub(crate) fn unhold(&mut self, op: &crate::Op, hold_ns: Option<u64>) {
        let bytes = u64::from(op.bytes);
        self.each(op, |c| {
            c.held_now -= 1;
            c.held_bytes_now -= bytes;
            if let Some(ns) = hold_ns {
                c.hold_ns.record(ns);
            }
        });
    }

    #[inline]
    pub(crate) fn complete(&mut self, op: &crate::Op) {
        let bytes = u64::from(op.bytes);
        self.each(op, |c| {
            c.completed += 1;
            c.completed_bytes += bytes;
            c.in_flight -= 1;
            c.in_flight_bytes -= bytes;
        });
    }
}
