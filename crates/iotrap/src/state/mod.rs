//! The first floor: the library's knowledge of the process. Descriptors, open files, files (inodes), the lanes of the
//! pools, and the counts that are shown.

pub mod closing;
pub mod counted;
pub mod descriptor;
pub mod group;
pub mod lane;
pub mod node;
pub mod process;
pub mod proof;
pub mod reason;
pub mod stats;
pub mod table;
pub mod writes;
