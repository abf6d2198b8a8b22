//! Those that sweep together: one leads, all run each point at the same moment, and the sum is the point.

use job::job::Plan;
use measure::schema::JobResult;

use crate::peers::Peers;

/// A point that all are to run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Order {
    /// The engine whose curve it belongs to.
    pub engine: String,
    /// The depth as it is stated: see [`Crew::share`].
    pub depth: u32,
    /// For so long.
    pub runtime_ns: u64,
    /// With the null engine in that one's place.
    pub ceiling: bool,
}

/// Those that sweep together, as one of them sees them.
pub trait Crew {
    /// The gates through which every run goes.
    fn peers(&mut self) -> &mut dyn Peers;
    /// This one's part of a depth: the depth itself where it is stated for each. 0: it sits that point out.
    fn share(&self, depth: u32) -> u32;
    /// Makes a plan its own: what it draws is not what the others draw.
    fn own(&self, plan: &mut Plan);
    /// Who they are, for the name of the target.
    fn described(&self) -> String;
    /// The hosts, one of each.
    fn hosts(&self) -> Vec<String>;
    /// At the leader: tells the others what to run, None when it is over. False if nobody listens any more.
    fn tell(&mut self, order: Option<&Order>) -> bool;
    /// At the others: what the leader tells; None when it is over.
    fn listen(&mut self) -> Option<Order>;
    /// Hands over this one's result of a point, None for one that sat it out. At the leader: the sum.
    fn sum(&mut self, job: Option<JobResult>) -> Option<JobResult>;
}
