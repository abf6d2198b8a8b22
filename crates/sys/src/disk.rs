//! The disks below a file, and how busy they were: /proc/diskstats.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::block::{Device, mounts, names_in};

/// Counters of one block device since it appeared (Documentation/admin-guide/iostats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads completed, then writes completed.
    pub ios: (u64, u64),
    /// Reads merged, then writes merged.
    pub merges: (u64, u64),
    /// Sectors of 512 bytes read and written.
    pub sectors: (u64, u64),
    /// Milliseconds spent reading and writing, summed over requests.
    pub ticks_ms: (u64, u64),
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
    /// Milliseconds of requests in the queue.
    pub in_queue_ms: u64,
    /// Requests in flight at this moment.
    pub in_flight: u64,
    /// Discards and flushes completed; 0 on kernels that do not count them.
    pub other_ios: u64,
    /// Sectors of 512 bytes discarded.
    pub discarded_sectors: u64,
    /// Milliseconds spent discarding and flushing, summed over requests.
    pub other_ticks_ms: u64,
}

impl Counters {
    /// The growth of each counter since `earlier`; a counter that went round counts as no change.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let pair = |now: (u64, u64), then: (u64, u64)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
        Counters {
            ios: pair(self.ios, earlier.ios),
            merges: pair(self.merges, earlier.merges),
            sectors: pair(self.sectors, earlier.sectors),
            ticks_ms: pair(self.ticks_ms, earlier.ticks_ms),
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
            in_queue_ms: self.in_queue_ms.saturating_sub(earlier.in_queue_ms),
            in_flight: self.in_flight,
            other_ios: self.other_ios.saturating_sub(earlier.other_ios),
            discarded_sectors: self.discarded_sectors.saturating_sub(earlier.discarded_sectors),
            other_ticks_ms: self.other_ticks_ms.saturating_sub(earlier.other_ticks_ms),
        }
    }
}

/// The whole disks that serve a path: the disk of its file system or the device itself, then the members of stacked
/// devices (device mapper, md), each by the kernel's name. Empty for a file that is not on a disk of this host.
pub fn below(path: &Path) -> Vec<String> {
    let Some(device) = device_of(path) else { return Vec::new() };
    let mut names = Vec::new();
    if let Some(directory) = device.sysfs() {
        descend(&directory, &mut names);
    }
    names
}

/// The device that holds a path; of a path that does not exist, the one of the nearest directory that does.
fn device_of(path: &Path) -> Option<Device> {
    let metadata = fs::metadata(path)
        .or_else(|_| fs::metadata(path.ancestors().skip(1).find(|p| p.is_dir()).unwrap_or(Path::new("."))))
        .ok()?;
    if metadata.file_type().is_block_device() {
        return Some(Device::from_number(metadata.rdev()));
    }
    let device = Device::from_number(metadata.dev());
    if device.major != 0 {
        return Some(device);
    }
    // btrfs and the like have anonymous numbers: their mount says what they are on.
    mounts().iter().find(|mount| mount.device == device)?.source_device()
}

fn descend(directory: &Path, names: &mut Vec<String>) {
    // Requests are counted on partitions too, but it is the disk that is busy: fio reports that.
    let whole: PathBuf = match directory.join("partition").exists() {
        true => directory.parent().unwrap_or(directory).to_path_buf(),
        false => directory.to_path_buf(),
    };
    let Some(name) = whole.file_name().map(|name| name.to_string_lossy().into_owned()) else { return };
    if names.contains(&name) {
        return;
    }
    names.push(name);
    for member in names_in(&whole.join("slaves")) {
        if let Ok(directory) = fs::canonicalize(whole.join("slaves").join(member)) {
            descend(&directory, names);
        }
    }
}

/// The present counters of the named devices, those that exist.
pub fn counters(names: &[String]) -> Vec<(String, Counters)> {
    let table = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let mut all: Vec<(String, Counters)> = table
        .lines()
        .filter_map(parse)
        .filter(|(name, _)| names.iter().any(|wanted| wanted == name))
        .map(|(name, counters)| (name.to_owned(), counters))
        .collect();
    all.sort_by_key(|(name, _)| names.iter().position(|wanted| wanted == name));
    all
}

/// The name and the counters of a line of /proc/diskstats; None for any other line. Kernels before 4.18 have 11
/// counters, later ones 15 (discards) or 17 (flushes).
pub fn parse(line: &str) -> Option<(&str, Counters)> {
    let mut fields = line.split_ascii_whitespace().skip(2);
    let name = fields.next()?;
    let mut n = [0u64; 17];
    let mut count = 0;
    for (place, field) in n.iter_mut().zip(fields) {
        let Ok(number) = field.parse() else { break };
        *place = number;
        count += 1;
    }
    if count < 11 {
        return None;
    }
    let counters = Counters {
        ios: (n[0], n[4]),
        merges: (n[1], n[5]),
        sectors: (n[2], n[6]),
        ticks_ms: (n[3], n[7]),
        in_flight: n[8],
        busy_ms: n[9],
        in_queue_ms: n[10],
        other_ios: n[11].saturating_add(n[15]),
        discarded_sectors: n[13],
        other_ticks_ms: n[14].saturating_add(n[16]),
    };
    Some((name, counters))
}

/// True if a disk has queues for polled requests; None where sysfs does not say (a partition, or not a disk).
pub fn has_poll_queues(name: &str) -> Option<bool> {
    let text = std::fs::read_to_string(format!("/sys/class/block/{name}/queue/io_poll")).ok()?;
    Some(text.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_diskstats_of_any_kernel() {
        let old = "   8       0 sda 10 1 80 5 20 2 160 7 0 9 12";
        let new = " 259       0 nvme0n1 10 1 80 5 20 2 160 7 0 9 12 3 0 24 1 6 4";
        for (line, name) in [(old, "sda"), (new, "nvme0n1")] {
            let (found, counters) = parse(line).unwrap();
            assert_eq!(found, name);
            assert_eq!((counters.ios, counters.merges, counters.sectors), ((10, 20), (1, 2), (80, 160)));
            assert_eq!((counters.ticks_ms, counters.busy_ms, counters.in_queue_ms), ((5, 7), 9, 12));
        }
        assert!(parse("8 0 sda 1 2").is_none());
    }

    #[test]
    fn a_stack_is_walked_down_to_whole_disks() {
        let root = std::env::current_exe().unwrap().with_file_name(format!("sysfs-{}", std::process::id()));
        let (dm, sda1, sda) = (root.join("dm-0"), root.join("sda/sda1"), root.join("sda"));
        fs::create_dir_all(dm.join("slaves")).unwrap();
        fs::create_dir_all(&sda1).unwrap();
        fs::write(sda1.join("partition"), "1").unwrap();
        std::os::unix::fs::symlink(&sda1, dm.join("slaves/sda1")).unwrap();
        let mut names = Vec::new();
        descend(&dm, &mut names);
        descend(&sda, &mut names);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(names, ["dm-0", "sda"]);
    }

    #[test]
    fn a_file_that_is_still_to_be_made_is_on_its_directorys_disk() {
        let here = std::env::current_exe().unwrap();
        assert_eq!(below(&here), below(&here.with_file_name("no/such/file")));
        assert!(below(Path::new("/proc/self/stat")).is_empty());
        let disks = below(&here);
        assert_eq!(counters(&disks).len(), disks.len());
    }
}
