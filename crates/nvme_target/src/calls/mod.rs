//! The calls that change what a target serves, by subject. Each changes the configuration on all reactors
//! ([`Target::change`](super::Target)), and tells the hosts that see the change.

mod devices;
mod hosts;
mod listeners;
mod subsystems;
