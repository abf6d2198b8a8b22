//! The second floor: the way from a file that the program opens to the same file on all lanes.

pub mod late;
pub mod opener;
pub mod others;
pub mod tracking;
