//! Services of the Linux kernel, made safe to hold: the io_uring ring, aligned buffers, the clock, facts about
//! processes, files and devices.
//!
//! Everything here is a thin, honest layer: no policy, no statistics. It is the one place
//! outside the engines where `unsafe` meets the kernel.

pub mod block;
pub mod buffer;
pub mod child;
pub mod clock;
pub mod disk;
pub mod file;
pub mod handle;
pub mod interrupted;
pub mod memory;
pub mod process;
pub mod raw;
pub mod replace;
pub mod ring;
pub mod shared;
pub mod start;
pub mod tracepoint;
pub mod wake;
pub mod zeros;
pub mod zoned;
