//! Zoned block devices: their zones, and the reset of a zone (linux/blkzoned.h).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use crate::block::Device;

/// The kind of a block device, as `/sys/block/*/queue/zoned` states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The device has no zones.
    None,
    /// The device prefers writes at the write pointers.
    HostAware,
    /// The device refuses writes that are not at the write pointer.
    HostManaged,
}

/// One zone, as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Bytes from the start of the device to the start of the zone.
    pub start: u64,
    /// Bytes from this zone to the next.
    pub len: u64,
    /// Bytes of the zone that hold data.
    pub capacity: u64,
    /// Bytes from the start of the device to the write pointer; of a full zone, and of one without a write pointer, to
    /// the end of its capacity.
    pub write_pointer: u64,
    /// True if the zone is written at its write pointer alone.
    pub sequential: bool,
    /// True if the zone is open.
    pub open: bool,
    /// True if the zone takes no data: it is offline or read-only.
    pub closed_to_writes: bool,
    /// True if the zone has no data that can be read: it is offline.
    pub offline: bool,
}

const BLKREPORTZONE: libc::c_ulong = 0xc010_1282;
const BLKRESETZONE: libc::c_ulong = 0x4010_1283;
const REPORTS_CAPACITY: u32 = 1;
const ZONES: usize = 1024;

/// struct blk_zone.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawZone {
    start: u64,
    len: u64,
    wp: u64,
    kind: u8,
    cond: u8,
    non_seq: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_too: [u8; 24],
}

/// struct blk_zone_report, with room for zones.
#[repr(C)]
struct RawReport {
    sector: u64,
    count: u32,
    flags: u32,
    zones: [RawZone; ZONES],
}

impl RawZone {
    fn zone(&self, has_capacity: bool) -> Zone {
        let capacity = if has_capacity { self.capacity } else { self.len };
        // BLK_ZONE_TYPE_CONVENTIONAL; BLK_ZONE_COND_*: 0 without write pointer, 2 and 3 open, 13 read-only, 14 full, 15
        // offline.
        let (sequential, ended) = (self.kind != 1, matches!(self.cond, 0 | 14));
        Zone {
            start: self.start * 512,
            len: self.len * 512,
            capacity: capacity * 512,
            write_pointer: 512 * if ended || !sequential { self.start + capacity } else { self.wp },
            sequential,
            open: matches!(self.cond, 2 | 3),
            closed_to_writes: matches!(self.cond, 13 | 15),
            offline: self.cond == 15,
        }
    }
}

fn queue(device: Device, name: &str) -> Option<String> {
    let directory = device.sysfs()?;
    let at = |directory: PathBuf| fs::read_to_string(directory.join("queue").join(name)).ok();
    // A partition has the queue of its disk.
    let text = at(directory.clone()).or_else(|| at(directory.parent()?.to_path_buf()))?;
    Some(text.trim().to_owned())
}

/// The kind of a block device.
pub fn model(device: Device) -> Model {
    match queue(device, "zoned").as_deref() {
        Some("host-managed") => Model::HostManaged,
        Some("host-aware") => Model::HostAware,
        _ => Model::None,
    }
}

/// The number of zones that the device can have open at the same time; 0 without a limit, or if unknown.
pub fn max_open(device: Device) -> u32 {
    queue(device, "max_open_zones").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The zones of a device from a byte offset on, at most `most` of them. Empty beyond the last zone.
///
/// # Errors
/// The error of the ioctl `BLKREPORTZONE`: ENOTTY and EINVAL mean a device without zones.
pub fn report(device: &File, offset: u64, most: usize) -> io::Result<Vec<Zone>> {
    let mut zones = Vec::new();
    let mut at = offset;
    while zones.len() < most {
        let count = (most - zones.len()).min(ZONES);
        let empty = [RawZone::default(); ZONES];
        let mut raw = Box::new(RawReport { sector: at / 512, count: count as u32, flags: 0, zones: empty });
        // SAFETY: the descriptor is open, and `raw` is a struct blk_zone_report followed by room for `count` zones.
        let status = unsafe { libc::ioctl(device.as_raw_fd(), BLKREPORTZONE, &mut *raw) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        let found = raw.zones.iter().take((raw.count as usize).min(count));
        zones.extend(found.map(|zone| zone.zone(raw.flags & REPORTS_CAPACITY != 0)));
        match zones.last() {
            Some(last) if raw.count > 0 => at = last.start + last.len,
            _ => break,
        }
    }
    Ok(zones)
}

/// Resets the write pointers of the zones in a range of bytes: their data are gone.
///
/// # Errors
/// The error of the ioctl `BLKRESETZONE`.
pub fn reset(device: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset / 512, len / 512];
    // SAFETY: the descriptor is open, and `range` has the two words of a struct blk_zone_range.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), BLKRESETZONE, range.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zones_have_the_layout_of_the_kernel() {
        assert_eq!((size_of::<RawZone>(), std::mem::offset_of!(RawReport, zones)), (64, 16));
        assert_eq!(std::mem::offset_of!(RawZone, capacity), 32);
    }

    #[test]
    fn a_full_zone_and_one_without_pointer_end_at_their_capacity() {
        let raw = RawZone { start: 100, len: 50, wp: 110, kind: 2, cond: 2, capacity: 40, ..RawZone::default() };
        let zone = raw.zone(true);
        assert_eq!((zone.start, zone.len, zone.capacity), (51_200, 25_600, 20_480));
        assert_eq!((zone.write_pointer, zone.open, zone.sequential), (110 * 512, true, true));
        assert_eq!(raw.zone(false).capacity, 25_600, "kernels before 5.9 report no capacity");
        let full = RawZone { cond: 14, wp: 150, ..raw }.zone(true);
        assert_eq!((full.write_pointer, full.open), (140 * 512, false));
        let conventional = RawZone { kind: 1, cond: 0, wp: u64::MAX, ..raw }.zone(true);
        assert_eq!((conventional.write_pointer, conventional.sequential), (140 * 512, false));
        assert!(RawZone { cond: 13, ..raw }.zone(true).closed_to_writes);
        let offline = RawZone { cond: 15, ..raw }.zone(true);
        assert!(offline.closed_to_writes && offline.offline);
    }

    #[test]
    fn a_file_has_no_zones() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(report(&file, 0, 1).is_err() && reset(&file, 0, 512).is_err());
    }
}
