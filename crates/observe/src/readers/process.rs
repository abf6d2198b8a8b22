//! /proc/PID/io (proc_pid_io(5)).

use super::numbers;
use crate::counters::{Counters, Flow};

/// The I/O of a process: its read and write calls, and the bytes that reached storage for it. The kernel counts no
/// times.
pub fn parse(text: &str) -> Counters {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        numbers(std::iter::once(line.trim())).next()
    };
    let flow = |calls: &str, bytes: &str| Flow {
        ops: value(calls).unwrap_or(0),
        bytes: value(bytes).unwrap_or(0),
        time_ns: 0,
    };
    Counters { read: flow("syscr", "read_bytes"), write: flow("syscw", "write_bytes"), ..Counters::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_bytes() {
        let text = "rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\nread_bytes: 4096\n\
                    write_bytes: 323932160\ncancelled_write_bytes: 0\n";
        let counters = parse(text);
        assert_eq!(counters.read, Flow { ops: 632_687, bytes: 4096, time_ns: 0 });
        assert_eq!(counters.write, Flow { ops: 632_675, bytes: 323_932_160, time_ns: 0 });
    }
}
