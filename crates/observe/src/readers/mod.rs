//! Readers of the kernel's text: from bytes to counters. They are pure, skip what they do not understand, and never
//! panic.

pub mod cgroup;
pub mod diskstats;
pub mod mountstats;
pub mod process;

/// The numbers of a line of text, as far as they are numbers.
fn numbers<'a>(fields: impl Iterator<Item = &'a str>) -> impl Iterator<Item = u64> {
    fields.map_while(|field| field.parse().ok())
}
