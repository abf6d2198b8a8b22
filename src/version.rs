//! `plimsoll --version`: the version, the commit, the features and the optional libraries of this machine.

/// Version and commit in one line, as `plimsoll 0.1.0 (69d1a8b52f31)`.
pub const LINE: &str = concat!("plimsoll ", env!("CARGO_PKG_VERSION"), " (", env!("PLIMSOLL_GIT_HASH"), ")\n");

/// [`LINE`], then the features of this build and the optional libraries that were found, each with its use.
pub fn text() -> String {
    let features = if hosts::HAS_MPI { "mpi (runs on many hosts)" } else { "none (mpi: runs on many hosts)" };
    let gfapi = match gfapi::available() {
        Ok(()) => "found (engine gfapi, `plimsoll files --fs gluster://...`)".to_string(),
        Err(error) => format!("not usable: {error}"),
    };
    let iotrap = match crate::trap::library(None) {
        Ok(path) => format!("found: {}", path.display()),
        Err(_) => "not found (plimsoll trap)".to_string(),
    };
    format!("{LINE}features: {features}\nlibgfapi: {gfapi}\nlibiotrap: {iotrap}\n")
}
