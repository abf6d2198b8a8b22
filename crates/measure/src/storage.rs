//! The storage that a result was measured on: its identity, and its settings.

use serde::{Deserialize, Serialize};

/// The storage below the files of a result, as this host names it. Empty where the files are not on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storage {
    /// The file systems of the files, each mount once.
    pub file_systems: Vec<FileSystem>,
    /// The disks below, members of stacked devices included.
    pub disks: Vec<Disk>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// The type: `ext4`.
    pub kind: String,
    /// The mounted device or export: `/dev/sda1`, `server:/export`.
    pub source: String,
    /// The directory on which it is mounted.
    pub place: String,
    /// The options of the mount and of the file system, as /proc/self/mountinfo has them.
    pub options: String,
}

/// A disk, as sysfs describes it. Texts are empty where the kernel knows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The kernel's name, which may be another disk's after the next start.
    pub name: String,
    /// Vendor and model.
    pub model: String,
    /// The serial number, or another identity that lasts.
    pub serial: String,
    /// The revision of the firmware.
    pub firmware: String,
    /// The I/O scheduler in use.
    pub scheduler: String,
    /// The kernel's requests for each hardware queue.
    pub nr_requests: u64,
    /// `write back` if the disk has a volatile write cache, `write through` if not.
    pub write_cache: String,
    /// True for a disk that turns.
    pub rotational: bool,
    /// Bytes of the disk.
    pub bytes: u64,
    /// The file behind a loop device; empty for others.
    #[serde(default)]
    pub backing_file: String,
}

impl Disk {
    /// The identity that lasts when names change: the serial number, or as much as is known.
    fn identity(&self) -> String {
        match self.serial.as_str() {
            "" => {
                let parts = [&self.name, &self.model, &self.bytes.to_string(), &self.backing_file];
                parts.map(String::as_str).join(" ").trim_end().to_string()
            }
            serial => format!("{} {serial}", self.model).trim_start().to_string(),
        }
    }
}

impl Storage {
    /// An identity of the storage that lasts: that of its disks, or of the export of a network file system. None where
    /// the result does not record its storage. A text for comparison, not for display.
    pub fn identity(&self) -> Option<String> {
        let disks = self.disks.iter().map(Disk::identity);
        // A file system on disks has the identity of the disks: the name of a device may change.
        let exports = self.file_systems.iter().filter(|_| self.disks.is_empty());
        let mut all: Vec<String> =
            disks.chain(exports.map(|one| format!("{} {} {}", one.kind, one.source, one.place))).collect();
        all.sort();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    /// The storage in a line: `ext4 on /dev/vda1 (rw,relatime); vda: mq-deadline, nr_requests 256, write back`.
    pub fn described(&self) -> String {
        let file_system = |one: &FileSystem| format!("{} on {} ({})", one.kind, one.source, one.options);
        let disk = |disk: &Disk| {
            let named = [&disk.model, &disk.serial, &disk.firmware].map(String::as_str);
            let requests =
                if disk.nr_requests > 0 { format!("nr_requests {}", disk.nr_requests) } else { String::new() };
            let set = [disk.scheduler.as_str(), &requests, &disk.write_cache, &disk.backing_file];
            let words = |words: &[&str], between: &str| {
                words.iter().copied().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(between)
            };
            let (named, set) = (words(&named, " "), words(&set, ", "));
            format!("{}: {}", disk.name, words(&[&named, &set], ", "))
        };
        let parts: Vec<String> = self.file_systems.iter().map(file_system).chain(self.disks.iter().map(disk)).collect();
        parts.join("; ")
    }
}
