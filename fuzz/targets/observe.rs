//! Promises of the readers of the kernel's counters that hold for any text.

use observe::readers::{cgroup, diskstats, mountstats, process};
use observe::{Counters, Growth, Rates};

/// /proc/diskstats, /proc/self/mountstats, io.stat and /proc/PID/io: whatever is read has rates, and a target that did
/// nothing did nothing.
pub fn counters(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut all: Vec<Counters> = diskstats::parse(&text)
        .map(|(name, counters)| {
            assert!(!name.is_empty());
            counters
        })
        .collect();
    all.extend(mountstats::parse(&text).into_iter().map(|mount| mount.counters));
    all.extend([cgroup::parse(&text, |_| false), cgroup::parse_v1(&text, &text), process::parse(&text)]);
    for pair in all.windows(2) {
        assert!(matches!(pair[0].since(&pair[0]), Growth::By(growth) if growth.read.ops == 0 && growth.write.ops == 0));
        if let Growth::By(growth) = pair[1].since(&pair[0]) {
            let rates = Rates::of(&growth, 1.0);
            assert!(rates.iops() >= 0.0 && rates.depth.is_none_or(|depth| depth >= 0.0 && depth.is_finite()));
            let windows: Vec<_> = rates.window(1).into_iter().collect();
            observe::passive::judge(&windows);
        }
    }
}
