//! The storage below the files of a result: file systems, and disks with their identity and settings.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use measure::schema::{Disk, FileSystem, Storage};
use sys::block::{self, Mount};
use sys::disk;

/// The storage below some files of this host.
pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Storage {
    let (mut storage, mounts) = (Storage::default(), block::mounts());
    let mut looked_at = HashSet::new();
    for path in paths {
        // Files of one directory are on one file system; devices are looked at one by one.
        if !path.starts_with("/dev") && !looked_at.insert(path.parent().map(Path::to_path_buf)) {
            continue;
        }
        if let Some(Mount { kind, source, place, options, .. }) = block::mount_of(path, &mounts).cloned() {
            let one = FileSystem { kind, source, place, options };
            if !storage.file_systems.contains(&one) {
                storage.file_systems.push(one);
            }
        }
        for name in disk::below(path) {
            if !storage.disks.iter().any(|known| known.name == name) {
                storage.disks.push(disk_at(&name, &Path::new("/sys/block").join(&name)));
            }
        }
    }
    storage
}

/// The disk of that name, from its folder in /sys/block (Documentation/ABI/stable/sysfs-block of Linux).
fn disk_at(name: &str, directory: &Path) -> Disk {
    let text = |place: &str| {
        fs::read(directory.join(place))
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_string())
            .unwrap_or_default()
    };
    let first = |places: &[&str]| places.iter().map(|place| text(place)).find(|found| !found.is_empty());
    let scheduler = text("queue/scheduler");
    let chosen = scheduler.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    let vendor_and_model = [text("device/vendor"), text("device/model")];
    // The vendor of a virtio device is the number of its PCI vendor.
    let parts = vendor_and_model.iter().filter(|part| !part.is_empty() && !part.starts_with("0x"));
    Disk {
        name: name.to_string(),
        model: parts.map(String::as_str).collect::<Vec<_>>().join(" "),
        serial: first(&["serial", "device/serial", "wwid", "device/wwid", "dm/uuid"]).unwrap_or_default(),
        firmware: first(&["device/firmware_rev", "device/rev"]).unwrap_or_default(),
        scheduler: chosen.unwrap_or(&scheduler).to_string(),
        nr_requests: text("queue/nr_requests").parse().unwrap_or_default(),
        write_cache: text("queue/write_cache"),
        rotational: text("queue/rotational") == "1",
        bytes: text("size").parse::<u64>().unwrap_or_default().saturating_mul(512),
        backing_file: text("loop/backing_file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_described_by_its_folder() {
        let directory = tempfile::tempdir().unwrap();
        for folder in ["device", "queue"] {
            fs::create_dir(directory.path().join(folder)).unwrap();
        }
        let files = [
            ("device/model", "SAMSUNG MZQL2   \n"),
            ("device/serial", "S64HNE0R  \n"),
            ("device/firmware_rev", "GDC5602Q\n"),
            ("wwid", "eui.3634\n"),
            ("queue/scheduler", "[none] mq-deadline kyber \n"),
            ("queue/nr_requests", "1023\n"),
            ("queue/write_cache", "write back\n"),
            ("queue/rotational", "0\n"),
            ("size", "2048\n"),
        ];
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let disk = disk_at("nvme0n1", directory.path());
        assert_eq!(
            disk,
            Disk {
                name: "nvme0n1".into(),
                model: "SAMSUNG MZQL2".into(),
                serial: "S64HNE0R".into(),
                firmware: "GDC5602Q".into(),
                scheduler: "none".into(),
                nr_requests: 1023,
                write_cache: "write back".into(),
                rotational: false,
                bytes: 1 << 20,
                backing_file: String::new(),
            }
        );
        assert_eq!(disk_at("gone", Path::new("/nonexistent")), Disk { name: "gone".into(), ..Disk::default() });
    }
}
