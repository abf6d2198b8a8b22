//! The `plimsoll` program: one small file per subcommand, no logic.
#![forbid(unsafe_code)]

fn main() {}
