//! The target over TCP, with a double of an initiator that speaks byte by byte: a module for each subject. A test has a
//! target of its own.

#[path = "../dice/mod.rs"]
mod dice;
#[path = "../raw/mod.rs"]
mod raw;

mod ana;
mod authentication;
mod commands;
mod copy;
mod departures;
mod fused;
mod fuzz;
mod holes;
mod identity;
mod journal;
mod limits;
mod listeners;
mod masking;
mod moves;
mod namespaces;
mod options;
mod pacing;
mod reservations;
mod shared;
mod stragglers;
mod tls;
