//! Admission: windows, fair queues and tuning; the simulator that runs them at any scale; when a loop that waits
//! sleeps; and when a connection moves to another loop.
//!
//! Pure: the time is passed in, nothing here sleeps, spawns, locks or allocates per op. The load generator, the
//! NVMe/TCP target and the simulator all run this code. The interposer does not: the window of a lane is a number that
//! its administrator gives (docs/decisions/windows-of-lanes.md).
//!
//! ```
//! use pace::{Admit, Config, Limits, Op};
//!
//! let mut pacer = Config::auto(Some(8 << 20)).build(Limits::default()).unwrap();
//! let op = Op { drive: 0, tenant: 0, queue: 0, bytes: 131_072, write: false, admin: false, cookie: 7 };
//! match pacer.admit(1_000, op) {
//!     Admit::Go(id) => assert!(pacer.complete(90_000, id)), // issue it; when it is done, give its bytes back
//!     Admit::Held(_) => {}    // `poll` will return cookie 7 when there is room
//!     Admit::Refused(_) => {} // no room to remember it: push back on whoever sent it
//! }
//! while let Some(released) = pacer.poll(90_000) {
//!     let _issue_now = (released.cookie, released.id);
//! }
//! ```
#![forbid(unsafe_code)]

mod admission;
mod auto;
mod balance;
mod config;
mod lookout;
mod methods;
mod op;
pub mod sim;
mod size;
mod slab;
mod stats;
mod throttle;

pub use admission::{Admission, Trial};
pub use auto::{AutoPacer, Tuning};
pub use balance::{Balance, Move, PERIOD_NS, Rest, Worker};
pub use config::{Config, Credits, Error, Limits, Method, SYNTAX};
pub use lookout::{Lookout, Poll, Step};
pub use op::{Admit, Op, OpId, Purge, Refusal, Released};
pub use stats::{Counters, Stats};
pub use throttle::{Rates, Throttle};
