//! The pools of this process: the state that the `lanes` crate keeps of them, and the rows of the live board.
//!
//! [`configure`] makes them once, before the program's `main`; nothing changes or frees them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use lanes::{Lanes, Map, Outcome, PathBuffer, Place, Pools, Refusal, State, Ticket, Traffic};

use crate::abi::raw;
use crate::abi::said;
use crate::state::node;
use crate::state::stats;

/// A pool with the state of its lanes.
pub struct Pool {
    /// The configuration of the pool, as the user gave it.
    pub config: lanes::Pool,
    /// The requests that are under way on the pool's lanes, and the health of the lanes.
    pub traffic: Traffic,
    first_row: usize,
    /// The time at which lanes that have failed are looked after next, in nanoseconds; 0 while none has failed.
    trouble_at: AtomicU64,
    /// The lanes that were found not to be directories, and said so, a bit each.
    absent: AtomicU32,
}

/// Nobody has looked at the lanes before the program began.
static ABSENCE_IS_NEWS: AtomicBool = AtomicBool::new(false);

/// Has the library say which lanes are not there.
pub fn tell_of_absent_lanes() {
    ABSENCE_IS_NEWS.store(true, Relaxed);
}

/// The interval at which lanes that have failed are looked after; the lanes themselves say when they are to be tried.
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

/// True if the process has pools, so that there is anything to spread over, and has not left them.
#[inline]
pub fn active() -> bool {
    has_pools() && !LEFT.load(Acquire)
}

static DRY_RUN: AtomicBool = AtomicBool::new(false);

/// Has requests counted, and none spread (`IOTRAP_DRY_RUN=1`).
pub fn begin_dry_run() {
    DRY_RUN.store(true, Release);
}

/// True if nothing is spread: the program wants to know what would be.
#[inline]
pub fn is_dry_run() -> bool {
    DRY_RUN.load(Relaxed)
}

static LEFT: AtomicBool = AtomicBool::new(false);

/// Leaves the pools for good: files that are opened from now on are none of the library's business.
pub fn leave() {
    LEFT.store(true, Release);
}

/// True if the process has pools, or had: requests of earlier may still come back.
#[inline]
pub fn has_pools() -> bool {
    !CONFIGURED.load(Acquire).is_null()
}

/// Makes these the pools of the process. The function allocates, and is called once.
pub fn configure(pools: Pools) {
    let map = Map::new(&pools);
    let mut lanes = 0;
    let pool = |config: lanes::Pool| {
        let first_row = lanes;
        lanes += config.lanes.len();
        let (trouble_at, absent) = (AtomicU64::new(0), AtomicU32::new(0));
        Pool { traffic: Traffic::new(&config), config, first_row, trouble_at, absent }
    };
    let pools = pools.into_vec().into_iter().map(pool).collect();
    CONFIGURED.store(Box::into_raw(Box::new(Configured { map, pools })), Release);
}

/// All pools of this process; empty before the library has read its variables.
pub fn pools() -> &'static [Pool] {
    configured().map_or(&[], |configured| &configured.pools)
}

/// A pool by its number.
#[inline]
pub fn pool(index: usize) -> Option<&'static Pool> {
    configured()?.pools.get(index)
}

/// The place in the pools of a path that the kernel has told; None if it is in none of them.
pub fn find(path: &[u8]) -> Option<Place<'_>> {
    configured()?.map.find(path)
}

/// The path of a file on another lane.
pub fn path<'b>(pool: usize, lane: usize, rest: &[u8], buffer: &'b mut PathBuffer) -> Option<&'b core::ffi::CStr> {
    configured()?.map.path(pool, lane, rest, buffer)
}

impl Pool {
    /// The number of the pool's first lane when the lanes of all pools are counted.
    #[inline]
    pub fn first_row(&self) -> usize {
        self.first_row
    }

    /// True if a lane has failed and it is time to look after it; true for one caller at a time.
    #[inline]
    pub fn trouble_due(&self, now_ns: u64) -> bool {
        let at = self.trouble_at.load(Acquire);
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

    /// Has lanes that have failed looked after from now on. The lane has to have failed already: a thread that looks
    /// after the lanes would find them all in service, and forget the trouble.
    fn note_trouble(&self, now_ns: u64) {
        self.trouble_at.store(now_ns.max(1), Release);
    }

    /// The number of the pool's lanes.
    #[inline]
    pub fn len(&self) -> usize {
        self.traffic.count()
    }

    /// Chooses a lane out of `among` (a bit each) for a request of `bytes` bytes, and counts the request there.
    ///
    /// # Errors
    /// No lane of `among` is in service, or all are full.
    #[inline]
    pub fn admit(&self, bytes: u64, among: u32, now_ns: u64) -> Result<Ticket, Refusal> {
        self.traffic.admit_looking(bytes, Lanes::of_bits(among), now_ns, node::note_completed)
    }

    /// Counts a request on a lane that it has to go to.
    #[inline]
    pub fn begin(&self, lane: usize, bytes: u64, now_ns: u64) -> Ticket {
        self.traffic.begin(lane, bytes, now_ns)
    }

    /// Counts the end of a request; `result` is as the kernel gave it (bytes or `-errno`).
    #[inline]
    pub fn end(&self, ticket: Ticket, op: live::Op, result: i64, fault: bool, now_ns: u64) {
        let outcome = match result {
            0.. => Outcome::Done,
            _ if fault => Outcome::LaneFault,
            _ => Outcome::Refused,
        };
        let latency_ns = self.traffic.end(ticket, outcome, now_ns);
        if outcome == Outcome::LaneFault {
            self.note_trouble(now_ns);
        }
        self.tell(ticket, op, result, latency_ns);
    }

    /// Counts the end of a request that the kernel has completed and whose result nobody has fetched.
    pub fn take_back(&self, ticket: Ticket, now_ns: u64) {
        self.traffic.end(ticket, Outcome::Answered, now_ns);
    }

    /// Counts the result of a request whose end was counted by [`Pool::take_back`].
    pub fn tell_result(&self, ticket: Ticket, op: live::Op, result: i64, fault: bool, now_ns: u64) {
        if fault {
            self.traffic.lost(ticket.lane, now_ns);
            self.note_trouble(now_ns);
        }
        self.tell(ticket, op, result, now_ns.saturating_sub(ticket.began_ns));
    }

    fn tell(&self, ticket: Ticket, op: live::Op, result: i64, latency_ns: u64) {
        stats::ended(self, ticket.lane, op, result, latency_ns);
        // The news of all lanes, not only of this one: a lane that does not answer ends no request that could tell its
        // news.
        self.tell_news();
    }

    /// Notes that a lane has answered a question that moved no bytes.
    pub fn answered(&self, ticket: Ticket, now_ns: u64) {
        self.traffic.end(ticket, Outcome::Refused, now_ns);
    }

    /// True if a lane is in service, as far as is known at this moment.
    pub fn is_healthy(&self, lane: usize, now_ns: u64) -> bool {
        self.state_of(lane, now_ns) == Some(State::Healthy)
    }

    /// The state of a lane at this moment; None if there is no such lane.
    pub fn state_of(&self, lane: usize, now_ns: u64) -> Option<State> {
        if self.traffic.looks_silent(lane, now_ns) {
            node::note_completed();
        }
        self.traffic.load(lane, now_ns).map(|load| load.state)
    }

    /// Takes back a request that was counted and then never given to the kernel.
    #[inline]
    pub fn cancel(&self, ticket: Ticket, now_ns: u64) {
        self.traffic.end(ticket, Outcome::Cancelled, now_ns);
    }

    /// Writes one line about a lane to standard error.
    pub fn say(&self, lane: usize, what: &str) {
        let mut line = raw::Digits::<512>::empty();
        line.push(b"iotrap: pool ");
        line.push(self.config.name.as_bytes());
        line.push(b", lane ");
        if let Some(config) = self.config.lanes.get(lane) {
            line.push(config.path.as_os_str().as_encoded_bytes());
        }
        line.push(b": ");
        line.push(what.as_bytes());
        line.push(b"\n");
        said::line(line.as_bytes());
    }

    /// Says once that a lane is not a directory, unless `plimsoll trap` has said so before the program began.
    pub fn is_absent(&self, lane: usize) {
        let this = 1 << (lane as u32 & 31);
        if ABSENCE_IS_NEWS.load(Relaxed) && self.absent.fetch_or(this, Relaxed) & this == 0 {
            self.say(lane, "is not a directory, its requests go to the other lanes");
        }
    }

    /// Writes one line to stderr for every lane whose health has changed.
    pub fn tell_news(&self) {
        while let Some((lane, state)) = self.traffic.news() {
            stats::tell_state(self, lane, state);
        }
    }
}

/// Forgets, in a forked child, the requests under way: they are the parent's.
pub fn forget_all() {
    for pool in pools() {
        pool.traffic.forget();
        pool.trouble_at.store(0, Relaxed);
    }
}
