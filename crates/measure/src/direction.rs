//! The direction of an op, and one value for each.

use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// The direction in which an op moves data. The order is fio's: read, write, trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Data go from storage to memory.
    Read,
    /// Data go from memory to storage.
    Write,
    /// The storage may forget a range of blocks (discard).
    Trim,
}

impl Direction {
    /// All directions, in fio's order.
    pub const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Trim];

    /// `read`, `write` or `trim`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Trim => "trim",
        }
    }
}

/// One `T` for reads, one for writes, one for trims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerDirection<T> {
    /// The value for reads.
    pub read: T,
    /// The value for writes.
    pub write: T,
    /// The value for trims.
    pub trim: T,
}

impl<T> PerDirection<T> {
    /// The value that `of` gives for each direction.
    pub fn from_fn(mut of: impl FnMut(Direction) -> T) -> Self {
        PerDirection { read: of(Direction::Read), write: of(Direction::Write), trim: of(Direction::Trim) }
    }

    /// Each direction with its value, in fio's order.
    pub fn iter(&self) -> impl Iterator<Item = (Direction, &T)> {
        Direction::ALL.into_iter().zip([&self.read, &self.write, &self.trim])
    }

    /// Each direction with its value, mutable, in fio's order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Direction, &mut T)> {
        Direction::ALL.into_iter().zip([&mut self.read, &mut self.write, &mut self.trim])
    }
}

impl<T> Index<Direction> for PerDirection<T> {
    type Output = T;
    #[inline]
    fn index(&self, direction: Direction) -> &T {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
            Direction::Trim => &self.trim,
        }
    }
}

impl<T> IndexMut<Direction> for PerDirection<T> {
    #[inline]
    fn index_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
            Direction::Trim => &mut self.trim,
        }
    }
}
