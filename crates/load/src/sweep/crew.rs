//! A crew of members that sweep together: one leads, all run each point at the same moment, and the sum is the point.

use job::job::Plan;
use measure::schema::JobResult;

use crate::peers::Peers;

/// The settings in which one measurement differs from the others of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Spot {
    /// The engine.
    pub engine: String,
    /// Requests in flight. In a crew the depth as it is stated: see [`Crew::share`].
    pub depth: u32,
    /// Job options and their values.
    pub options: Vec<(String, String)>,
    /// The number of the measurement: no two of them draw the same ops.
    pub number: u64,
}

/// A point that all members are to run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Order {
    /// The settings of the point.
    pub spot: Spot,
    /// Duration of the run in nanoseconds.
    pub runtime_ns: u64,
    /// True if the null engine runs in place of the spot's.
    pub ceiling: bool,
}

/// The members that sweep together, as one of them sees them.
pub trait Crew {
    /// The gates through which every run goes.
    fn peers(&mut self) -> &mut dyn Peers;
    /// This member's part of a depth: the depth itself where it is stated for each member. 0: this member sits the
    /// point out.
    fn share(&self, depth: u32) -> u32;
    /// Makes the plan this member's own: the ops that it draws differ from those that the other members draw.
    fn own(&self, plan: &mut Plan);
    /// A description of the members, for the name of the target.
    fn described(&self) -> String;
    /// The hosts of the members, each named once.
    fn hosts(&self) -> Vec<String>;
    /// At the leader: tells the other members the next point, or None when the sweep is over. False if nobody listens
    /// any more.
    fn tell(&mut self, order: Option<&Order>) -> bool;
    /// At the other members: the point that the leader orders; None when the sweep is over.
    fn listen(&mut self) -> Option<Order>;
    /// Hands over this member's result of a point, or None if it sat the point out. At the leader: the sum of all
    /// results.
    fn sum(&mut self, job: Option<JobResult>) -> Option<JobResult>;
}
