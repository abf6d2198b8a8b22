//! /proc/diskstats (Documentation/admin-guide/iostats.rst), through the parser of [`sys::disk`].

use sys::disk;

use crate::counters::{Counters, Flow};

/// Each device of the text by its kernel name, in the order of the text.
pub fn parse(text: &str) -> impl Iterator<Item = (&str, Counters)> {
    text.lines().filter_map(|line| disk::parse(line).map(|(name, counters)| (name, of(&counters))))
}

/// Each device of the text by its number: the major number above 20 bits of the minor one, as the kernel has it.
pub fn numbers(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (major, minor): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let number = major.checked_mul(1 << 20)?.checked_add(minor)?;
        Some((number, fields.next()?))
    })
}

/// The sectors of the kernel's statistics have 512 bytes, whatever the device's are.
const SECTOR: u64 = 512;
const MS: u64 = 1_000_000;

fn of(disk: &disk::Counters) -> Counters {
    let flow = |ops: u64, sectors: u64, ms: u64| Flow {
        ops,
        bytes: sectors.saturating_mul(SECTOR),
        time_ns: ms.saturating_mul(MS),
    };
    Counters {
        read: flow(disk.ios.0, disk.sectors.0, disk.ticks_ms.0),
        write: flow(disk.ios.1, disk.sectors.1, disk.ticks_ms.1),
        other: flow(disk.other_ios, disk.discarded_sectors, disk.other_ticks_ms),
        busy_ns: Some(disk.busy_ms.saturating_mul(MS)),
        in_flight: Some(disk.in_flight),
        has_times: true,
        ..Counters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_kernels_numbers() {
        let found: Vec<_> = numbers(" 259       0 nvme0n1 10\ngarbage\n 8 17 sdb1 1\n99999 0 x 1\n").collect();
        assert_eq!(found, [(259 << 20, "nvme0n1"), (8 << 20 | 17, "sdb1")]);
    }

    #[test]
    fn a_line_becomes_flows() {
        let text = " 259       0 nvme0n1 10 1 80 5 20 2 160 7 3 9 12 3 0 24 1 6 4\ngarbage\n";
        let all: Vec<_> = parse(text).collect();
        let [(name, counters)] = all[..] else { panic!("{all:?}") };
        assert_eq!(name, "nvme0n1");
        assert_eq!(counters.read, Flow { ops: 10, bytes: 40_960, time_ns: 5_000_000 });
        assert_eq!(counters.write, Flow { ops: 20, bytes: 81_920, time_ns: 7_000_000 });
        assert_eq!(counters.other, Flow { ops: 9, bytes: 12_288, time_ns: 5_000_000 });
        assert_eq!((counters.in_flight, counters.busy_ns), (Some(3), Some(9_000_000)));
    }
}
