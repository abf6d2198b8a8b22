//! The simple methods: no limit, a buffer count, rates, caps. Each holds its ops in FIFO lists.

mod buffers;
mod cap;
mod core;
mod rate;
mod unlimited;

pub(crate) use self::core::Core;
pub(crate) use buffers::BufferPool;
pub(crate) use cap::Cap;
pub(crate) use rate::{Rate, RateTuner};
pub(crate) use unlimited::Unlimited;
