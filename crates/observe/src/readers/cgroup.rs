//! A control group's `io.stat` (Documentation/admin-guide/cgroup-v2.rst).

use super::numbers;
use crate::counters::{Counters, Flow};

/// The sum over all devices: `8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0`. The kernel
/// counts requests when they are submitted, and no times.
pub fn parse(text: &str) -> Counters {
    let mut sum = Counters::default();
    for line in text.lines() {
        for field in line.split_whitespace().skip(1) {
            let Some((name, value)) = field.split_once('=') else { continue };
            let Some(value) = numbers(std::iter::once(value)).next() else { continue };
            let Counters { read, write, other, .. } = &mut sum;
            let counter = match name {
                "rbytes" => &mut read.bytes,
                "rios" => &mut read.ops,
                "wbytes" => &mut write.bytes,
                "wios" => &mut write.ops,
                "dbytes" => &mut other.bytes,
                "dios" => &mut other.ops,
                _ => continue,
            };
            *counter = counter.saturating_add(value);
        }
    }
    sum
}

/// The counters of version 1, `blkio.throttle.io_serviced` and `blkio.throttle.io_service_bytes`: lines such as
/// `8:0 Read 192`.
pub fn parse_v1(ops: &str, bytes: &str) -> Counters {
    let flows = |text: &str| {
        let mut sums = [0u64; 3];
        for line in text.lines() {
            let mut fields = line.split_whitespace().skip(1);
            let index = match fields.next() {
                Some("Read") => 0,
                Some("Write") => 1,
                Some("Discard") => 2,
                _ => continue,
            };
            sums[index] = sums[index].saturating_add(numbers(fields).next().unwrap_or(0));
        }
        sums
    };
    let (ops, bytes) = (flows(ops), flows(bytes));
    let [read, write, other] = [0, 1, 2].map(|index| Flow { ops: ops[index], bytes: bytes[index], time_ns: 0 });
    Counters { read, write, other, ..Counters::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_added_up() {
        let text =
            "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0 rbytes=4096 rios=1 x=y\n";
        let counters = parse(text);
        assert_eq!(counters.read, Flow { ops: 193, bytes: 1_463_296, time_ns: 0 });
        assert_eq!(counters.write, Flow { ops: 353, bytes: 314_773_504, time_ns: 0 });
        assert!(!counters.has_times);
    }

    #[test]
    fn version_1_has_a_file_for_each_figure() {
        let ops = "7:0 Read 5\n7:0 Write 2\n7:0 Sync 7\n7:0 Total 7\nTotal 7\n";
        let bytes = "7:0 Read 20480\n7:0 Write 8192\n7:0 Total 28672\nTotal 28672\n";
        let counters = parse_v1(ops, bytes);
        assert_eq!(counters.read, Flow { ops: 5, bytes: 20_480, time_ns: 0 });
        assert_eq!(counters.write, Flow { ops: 2, bytes: 8_192, time_ns: 0 });
    }
}
