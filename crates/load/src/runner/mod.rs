//! The way from a plan to its result: the schedule of the clones, as threads or as processes, and the use of their
//! reports.

mod clone;
mod commands;
mod depth_goal;
mod flow;
mod generator;
mod logs;
#[cfg(test)]
mod model;
mod opened;
mod priorities;
mod recorder;
mod recording;
mod schedule;
mod seats;
mod shared;
mod sources;
mod statements;
mod steady;
mod timing;
mod traffic;
mod trial;
mod window;
mod workers;
mod zones;

pub use logs::inflate as inflate_log;
pub use schedule::draw_seeds;
pub(crate) use schedule::run;
