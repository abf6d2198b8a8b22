//! A watcher over a tree of files that stands for a host: rates, resets, devices that go and come back, the record.

use std::fs;

use observe::passive::Reason;
use observe::{Host, Kind, Observation, Target, Wanted, Watcher};

const SECOND: u64 = 1_000_000_000;

/// A directory that is removed at the end.
struct Tree(std::path::PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = std::env::temp_dir().join(format!("plimsoll-observe-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("proc/self")).unwrap();
        for disk in ["sda", "nvme0n1", "cciss!c0d0"] {
            fs::create_dir_all(path.join("sys/block").join(disk)).unwrap();
        }
        Tree(path)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn disks(&self, lines: &[String]) {
        self.write("proc/diskstats", &(lines.join("\n") + "\n"));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A line of /proc/diskstats of a disk that only reads 4 KiB.
fn line(name: &str, reads: u64, ticks_ms: u64, in_flight: u64, busy_ms: u64) -> String {
    format!("8 0 {name} {reads} 0 {} {ticks_ms} 0 0 0 0 {in_flight} {busy_ms} {ticks_ms} 0 0 0 0 0 0", reads * 8)
}

fn find<'a>(all: &'a [Observation], name: &str) -> &'a Observation {
    all.iter().find(|seen| seen.target.name == name).unwrap_or_else(|| panic!("{name}: {all:?}"))
}

fn names(watcher: &Watcher, idle: bool) -> Vec<String> {
    watcher.observations(idle).into_iter().map(|seen| seen.target.name).collect()
}

#[test]
fn rates_are_of_the_interval_and_partitions_are_in_their_disks() {
    let tree = Tree::new("rates");
    let mut watcher = Watcher::new(Host::at(&tree.0), Wanted::All);
    tree.disks(&[
        line("sda", 100, 50, 0, 10),
        line("sda1", 100, 50, 0, 10),
        line("cciss/c0d0", 1, 1, 0, 1),
        line("nvme0n1", 0, 0, 0, 0),
    ]);
    watcher.look(SECOND);
    assert!(watcher.observations(false).iter().all(|seen| seen.rates.is_none()), "the first look has no rates");
    tree.disks(&[
        line("sda", 1100, 8050, 7, 1010),
        line("sda1", 100, 50, 0, 10),
        line("cciss/c0d0", 1, 1, 0, 1),
        line("nvme0n1", 0, 0, 0, 0),
    ]);
    watcher.look(3 * SECOND);
    let all = watcher.observations(false);
    let rates = find(&all, "sda").rates.unwrap();
    assert_eq!((rates.read.iops, rates.depth, rates.busy, rates.in_flight), (500.0, Some(4.0), Some(0.5), Some(7)));
    assert_eq!((rates.read.bytes_per_second, rates.latency_ns()), (500.0 * 4096.0, Some(8e6)));
    assert_eq!(names(&watcher, false), ["cciss/c0d0", "sda"]);
    assert_eq!(names(&watcher, true), ["cciss/c0d0", "nvme0n1", "sda"]);
}

#[test]
fn a_device_that_goes_and_comes_back_gives_no_false_rate() {
    let tree = Tree::new("back");
    let target = Target { kind: Kind::Disk, name: "sda".into() };
    let mut watcher = Watcher::new(Host::at(&tree.0), Wanted::These(vec![target.clone()]));
    let mut look = |second: u64, lines: &[String]| {
        tree.disks(lines);
        watcher.look(second * SECOND);
        let missing = watcher.missing().len();
        (watcher.observations(false).first().map(|seen| seen.rates.map(|rates| rates.read.iops)), missing)
    };
    assert_eq!(look(1, &[line("sda", 1000, 50, 0, 10)]), (Some(None), 0));
    assert_eq!(look(2, &[line("sda", 1010, 60, 0, 20)]), (Some(Some(10.0)), 0));
    assert_eq!(look(3, &[]), (None, 1), "it is away");
    // Another disk of the same name, with more requests than the first had: its past is not a rate.
    assert_eq!(look(4, &[line("sda", 5000, 900, 0, 99)]), (Some(None), 0));
    assert_eq!(look(5, &[line("sda", 5020, 910, 0, 99)]), (Some(Some(20.0)), 0));
    // It came back between two looks.
    assert_eq!(look(6, &[line("sda", 3, 1, 0, 1)]), (Some(None), 0));
    assert_eq!(look(7, &[line("sda", 4, 2, 0, 2)]), (Some(Some(1.0)), 0));
}

/// A device that serves eight requests at a time, 1 ms each, under clients that come and go.
#[test]
fn a_record_of_traffic_gives_bounds_and_overload() {
    let tree = Tree::new("record");
    let mut watcher = Watcher::new(Host::at(&tree.0), Wanted::All);
    let (mut reads, mut ticks_ms, mut busy_ms) = (1, 0, 0);
    let mut now = 0;
    let mut go = |watcher: &mut Watcher, depth: u64| {
        let iops = 1000 * depth.min(8);
        (reads, ticks_ms, busy_ms) = (reads + iops, ticks_ms + depth * 1000, busy_ms + 1000);
        tree.disks(&[line("sda", reads, ticks_ms, depth, busy_ms)]);
        now += SECOND;
        watcher.look(now);
        now
    };
    go(&mut watcher, 1);
    for second in 0..120 {
        go(&mut watcher, 1 + second % 5);
    }
    let all = watcher.observations(false);
    let judgement = find(&all, "sda").judgement.clone().unwrap();
    let Err(Reason::NeverAbove(depth)) = judgement.line else { panic!("{judgement:?}") };
    assert!((4.0..=5.0).contains(&depth), "{depth}");

    for second in 0..600 {
        go(&mut watcher, [1, 2, 3, 5, 7, 8, 10, 12, 16, 22, 30][second / 10 % 11]);
    }
    let all = watcher.observations(false);
    let judgement = find(&all, "sda").judgement.clone().unwrap();
    let bounds = judgement.line.clone().unwrap_or_else(|reason| panic!("{reason:?}"));
    assert!(bounds.low <= 8.0 && bounds.low >= 7.0 && bounds.high >= 8.0 && bounds.high <= 12.0, "{bounds:?}");
    assert!((bounds.plateau_at_least_iops / 8000.0 - 1.0).abs() < 0.02, "{bounds:?}");
    assert_eq!((judgement.bytes_per_op, judgement.read_share), (4096.0, 1.0));

    let target = Target { kind: Kind::Disk, name: "sda".into() };
    go(&mut watcher, 2);
    let quiet = go(&mut watcher, 2);
    assert_eq!(watcher.overload(&target, bounds.high, quiet), None);
    let mut last = 0;
    (0..15).for_each(|_| last = go(&mut watcher, 40));
    let found = watcher.overload(&target, bounds.high, last).unwrap();
    assert_eq!((found.since_ns, found.times), (quiet, 40.0 / bounds.high));
    assert_eq!(watcher.overload(&target, bounds.high, last + 60 * SECOND), None, "the record ended a minute ago");

    tree.disks(&[line("sda", 1, 1, 0, 1)]);
    watcher.look(last + SECOND);
    let all = watcher.observations(false);
    assert!(find(&all, "sda").judgement.is_none(), "the record of another device of that name is forgotten");
}

#[test]
fn mounts_groups_and_processes_are_found_by_name() {
    let tree = Tree::new("names");
    tree.disks(&[line("sda", 1, 1, 0, 1)]);
    tree.write("proc/self/mountstats", include_str!("../../lanes/tests/golden/mountstats-nfs-3.txt"));
    tree.write("sys/fs/cgroup/a/io.stat", "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n");
    // A device mapper over the disk: the kernel counts its request at both.
    tree.write("sys/fs/cgroup/b/io.stat", "8:0 rbytes=4096 rios=1\n254:0 rbytes=4096 rios=1\n");
    tree.write("sys/dev/block/254:0/slaves/sda", "");
    fs::create_dir_all(tree.0.join("sys/dev/block/8:0/slaves")).unwrap();
    tree.write("proc/77/io", "syscr: 5\nsyscw: 6\nread_bytes: 7\nwrite_bytes: 8\n");
    let host = Host::at(&tree.0);
    let kind =
        |text: &str| host.resolve(text).map(|target| (target.kind, target.name)).map_err(|error| error.to_string());
    assert_eq!(kind("/dev/sda"), Ok((Kind::Disk, "sda".into())));
    assert_eq!(kind("/mnt/v33/"), Ok((Kind::Nfs, "/mnt/v33".into())));
    assert_eq!(kind("127.0.0.33:/run/export"), Ok((Kind::Nfs, "/mnt/v33".into())));
    assert_eq!(kind("/sys/fs/cgroup/a"), Ok((Kind::Cgroup, "/sys/fs/cgroup/a".into())));
    assert_eq!(kind("77"), Ok((Kind::Process, "77".into())));
    for wrong in ["78", "/dev/sdz", ""] {
        assert!(!kind(wrong).unwrap_err().contains('\n'), "{wrong}");
    }
    let these = ["sda", "/mnt/v33", "/sys/fs/cgroup/a", "77"].map(|text| host.resolve(text).unwrap());
    let mut watcher = Watcher::new(host, Wanted::These(these.to_vec()));
    watcher.look(SECOND);
    let kinds: Vec<Kind> = watcher.observations(false).iter().map(|seen| seen.target.kind).collect();
    assert_eq!(kinds, [Kind::Disk, Kind::Nfs, Kind::Cgroup, Kind::Process]);
    let host = Host::at(&tree.0);
    let stacked = host.resolve("/sys/fs/cgroup/b").unwrap();
    host.each(&Wanted::These(vec![stacked]), |_, _, counters| {
        assert_eq!((counters.read.ops, counters.read.bytes), (1, 4096));
    });
}
