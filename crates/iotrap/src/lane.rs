//! The pools of this process: what the `lanes` crate knows of them, and the rows of the live board.
//!
//! Made once, by [`configure`], before the program's `main`; never changed or freed.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use lanes::{Lanes, Map, Outcome, PathBuffer, Place, Pools, Refusal, Ticket, Traffic};

use crate::stats;

/// One pool.
pub struct Pool {
    /// As it is configured.
    pub config: lanes::Pool,
    /// What is under way on its lanes.
    pub traffic: Traffic,
    first_row: usize,
    /// When lanes that have failed are looked after next, in nanoseconds; 0 while none has.
    trouble_at: AtomicU64,
}

/// How often lanes that have failed are looked after: they themselves say when they are to be tried.
const LOOK_AFTER_NS: u64 = 10_000_000;

struct Configured {
    map: Map,
    pools: Vec<Pool>,
}

static CONFIGURED: AtomicPtr<Configured> = AtomicPtr::new(core::ptr::null_mut());

fn configured() -> Option<&'static Configured> {
    let pointer = CONFIGURED.load(Acquire);
    // SAFETY: null, or what configure() leaked: never changed or freed afterwards.
    unsafe { pointer.as_ref() }
}

/// Whether there is anything to spread over.
#[inline]
pub fn active() -> bool {
    !CONFIGURED.load(Acquire).is_null()
}

/// Makes these the pools of the process. Allocates; called once.
pub fn configure(pools: Pools) {
    let map = Map::new(&pools);
    let mut lanes = 0;
    let pool = |config: lanes::Pool| {
        let first_row = lanes;
        lanes += config.lanes.len();
        Pool { traffic: Traffic::new(&config), config, first_row, trouble_at: AtomicU64::new(0) }
    };
    let pools = pools.into_vec().into_iter().map(pool).collect();
    CONFIGURED.store(Box::into_raw(Box::new(Configured { map, pools })), Release);
}

/// All pools.
pub fn pools() -> &'static [Pool] {
    configured().map_or(&[], |configured| &configured.pools)
}

/// A pool by its number.
#[inline]
pub fn pool(index: usize) -> Option<&'static Pool> {
    configured()?.pools.get(index)
}

/// Where a path of the kernel's lies in the pools.
pub fn find(path: &[u8]) -> Option<Place<'_>> {
    configured()?.map.find(path)
}

/// The path of a file on another lane.
pub fn path<'b>(pool: usize, lane: usize, rest: &[u8], buffer: &'b mut PathBuffer) -> Option<&'b core::ffi::CStr> {
    configured()?.map.path(pool, lane, rest, buffer)
}

impl Pool {
    /// The number of its first lane when the lanes of all pools are counted.
    #[inline]
    pub fn first_row(&self) -> usize {
        self.first_row
    }

    /// Whether a lane has failed and it is time to look after it; told to one caller at a time.
    #[inline]
    pub fn trouble_due(&self, now_ns: u64) -> bool {
        let at = self.trouble_at.load(Relaxed);
        if at == 0 || now_ns < at {
            return false;
        }
        let next = if (0..self.len()).all(|lane| self.is_healthy(lane, now_ns)) {
            0
        } else {
            now_ns.saturating_add(LOOK_AFTER_NS)
        };
        self.trouble_at.compare_exchange(at, next, AcqRel, Relaxed).is_ok() && next != 0
    }

    /// How many lanes it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.traffic.count()
    }

    /// A lane out of `among` (a bit each) for so many bytes, counted there.
    ///
    /// # Errors
    /// None of them is in service, or all are full.
    #[inline]
    pub fn admit(&self, bytes: u64, among: u32, now_ns: u64) -> Result<Ticket, Refusal> {
        self.traffic.admit(bytes, set_of(among), now_ns)
    }

    /// Counts a request on a lane that it has to go to.
    #[inline]
    pub fn begin(&self, lane: usize, bytes: u64, now_ns: u64) -> Ticket {
        self.traffic.begin(lane, bytes, now_ns)
    }

    /// The end of a request: `result` as the kernel gave it (bytes or `-errno`).
    #[inline]
    pub fn end(&self, ticket: Ticket, op: live::Op, result: i64, fault: bool, now_ns: u64) {
        let outcome = match result {
            0.. => Outcome::Done,
            _ if fault => Outcome::LaneFault,
            _ => Outcome::Refused,
        };
        if outcome == Outcome::LaneFault {
            self.trouble_at.store(now_ns.max(1), Relaxed);
        }
        let latency_ns = self.traffic.end(ticket, outcome, now_ns);
        stats::ended(self, ticket.lane, op, result, latency_ns);
        // Whichever lane it is about: one that says nothing ends no request that could tell.
        self.tell_news();
    }

    /// Something was asked of a lane that moved no bytes, and it has answered.
    pub fn answered(&self, ticket: Ticket, now_ns: u64) {
        self.traffic.end(ticket, Outcome::Refused, now_ns);
    }

    /// Whether a lane is in service, as far as is known at this moment.
    pub fn is_healthy(&self, lane: usize, now_ns: u64) -> bool {
        self.traffic.load(lane, now_ns).is_some_and(|load| load.state == lanes::State::Healthy)
    }

    /// A request that was counted and then never given to the kernel.
    #[inline]
    pub fn cancel(&self, ticket: Ticket, now_ns: u64) {
        self.traffic.end(ticket, Outcome::Cancelled, now_ns);
    }

    /// One line on stderr for every lane whose health has changed.
    pub fn tell_news(&self) {
        while let Some((lane, state)) = self.traffic.news() {
            stats::tell_state(self, lane, state);
        }
    }
}

/// In a forked child: what is under way is the parent's.
pub fn forget_all() {
    for pool in pools() {
        pool.traffic.forget();
        pool.trouble_at.store(0, Relaxed);
    }
}

fn set_of(mask: u32) -> Lanes {
    let mut set = Lanes::NONE;
    let mut left = mask;
    while left != 0 {
        set = set.with(left.trailing_zeros() as usize);
        left &= left - 1;
    }
    set
}
