//! A control group's `io.stat` (Documentation/admin-guide/cgroup-v2.rst).

use super::numbers;
use crate::counters::{Counters, Flow};

/// The sum over devices: `8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0`. The kernel counts
/// requests when they are submitted, and no times. It counts a request to a stacked device (device mapper, md) once
/// more at the device below, so the sum leaves out the devices of which `is_stacked` is true; it gets their numbers.
pub fn parse(text: &str, is_stacked: impl Fn(&str) -> bool) -> Counters {
    let mut sum = Counters::default();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        if fields.next().is_none_or(&is_stacked) {
            continue;
        }
        for field in fields {
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
        let counters = parse(text, |_| false);
        assert_eq!(counters.read, Flow { ops: 193, bytes: 1_463_296, time_ns: 0 });
        assert_eq!(counters.write, Flow { ops: 353, bytes: 314_773_504, time_ns: 0 });
        assert!(!counters.has_times);
    }

    #[test]
    fn a_request_to_a_stacked_device_is_counted_once() {
        let text = "254:0 rbytes=8192 wbytes=0 rios=2 wios=0\n8:16 rbytes=12288 wbytes=0 rios=3 wios=0\n";
        assert_eq!(parse(text, |device| device == "254:0").read, Flow { ops: 3, bytes: 12_288, time_ns: 0 });
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
