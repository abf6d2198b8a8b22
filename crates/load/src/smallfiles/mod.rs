//! Metadata-heavy work on many small files: `plimsoll files`.

pub mod fs;
pub mod gluster;
pub mod posix;
pub mod target;
