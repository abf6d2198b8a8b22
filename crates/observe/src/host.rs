//! The files of a host: of this one, or of a tree that was recorded elsewhere.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use sys::block::Device;

use crate::counters::Counters;
use crate::readers::{cgroup, diskstats, mountstats, process};

/// The kind of a target, which decides the file that its counters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A block device: /proc/diskstats.
    Disk,
    /// An NFS mount: /proc/self/mountstats.
    Nfs,
    /// A control group: io.stat, or blkio.throttle.io_serviced.
    Cgroup,
    /// A process: /proc/PID/io.
    Process,
}

impl Kind {
    /// The name in tables, JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Disk => "disk",
            Kind::Nfs => "nfs",
            Kind::Cgroup => "cgroup",
            Kind::Process => "process",
        }
    }
}

/// A target: its kind and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The kind.
    pub kind: Kind,
    /// The kernel's name of a device, the directory of a mount or control group, the number of a process.
    pub name: String,
}

/// The targets to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All whole disks that ever did anything, and all NFS mounts.
    All,
    /// These.
    These(Vec<Target>),
}

/// A target that does not exist, or whose counters cannot be read.
#[derive(Debug)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A host whose files are read, and never written.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// The host whose /proc and /sys lie below `root`: `/` for this one.
    pub fn at(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into() }
    }

    fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    fn read(&self, absolute: &str) -> io::Result<String> {
        fs::read(self.path(absolute)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The target that a user means by `text`: a device (`/dev/sda`, `sda`), the directory of a mount, a control group
    /// (a directory with io.stat), a process by its number. A directory on a local file system means the disk below.
    ///
    /// # Errors
    /// No such target, with the four forms that there are.
    pub fn resolve(&self, text: &str) -> Result<Target, Error> {
        let target = |kind, name: &str| Ok(Target { kind, name: name.into() });
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            let file = format!("/proc/{text}/io");
            return match self.read(&file) {
                Ok(_) => target(Kind::Process, text),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error(format!(
                    "process {text}: the kernel does not let this user read {file}: run as the process's user or as root"
                ))),
                Err(_) => Err(Error(format!("process {text}: there is no such process"))),
            };
        }
        let disks = self.read("/proc/diskstats").unwrap_or_default();
        let is_disk = |name: &str| diskstats::parse(&disks).any(|(known, _)| known == name);
        let bare = text.strip_prefix("/dev/").unwrap_or(text);
        if is_disk(bare) {
            return target(Kind::Disk, bare);
        }
        let mounts = mountstats::parse(&self.read("/proc/self/mountstats").unwrap_or_default());
        let trimmed = if text == "/" { text } else { text.trim_end_matches('/') };
        if let Some(mount) = mounts.iter().find(|mount| mount.place == trimmed || mount.source == text) {
            return target(Kind::Nfs, &mount.place);
        }
        if self.cgroup(text).is_some() {
            return target(Kind::Cgroup, trimmed);
        }
        let path = Path::new(text);
        if let Ok(metadata) = fs::metadata(path) {
            // A symbolic link such as /dev/disk/by-id/x, or a directory on a disk.
            let name = if metadata.file_type().is_block_device() {
                use std::os::unix::fs::MetadataExt;
                Device::from_number(metadata.rdev()).name()
            } else {
                sys::disk::below(path).into_iter().next()
            };
            if let Some(name) = name.filter(|name| is_disk(name)) {
                return target(Kind::Disk, &name);
            }
            return Err(Error(format!(
                "{text}: no disk and no NFS mount of this host lies below it (give a device, a mount, a control group \
                 with io.stat, or a process)"
            )));
        }
        Err(Error(format!(
            "{text}: no such device, mount, control group or process (`plimsoll watch --once --all` lists devices and mounts)"
        )))
    }

    /// The counters of a control group; None if the directory has none. A device throttled by version 1 has its own
    /// pair of files.
    fn cgroup(&self, directory: &str) -> Option<Counters> {
        let directory = directory.trim_end_matches('/');
        if let Ok(text) = self.read(&format!("{directory}/io.stat")) {
            return Some(cgroup::parse(&text, |number| self.is_stacked(number)));
        }
        let ops = self.read(&format!("{directory}/blkio.throttle.io_serviced_recursive")).ok();
        let bytes = self.read(&format!("{directory}/blkio.throttle.io_service_bytes_recursive")).ok();
        let (Some(ops), Some(bytes)) = (ops, bytes) else {
            let ops = self.read(&format!("{directory}/blkio.throttle.io_serviced")).ok()?;
            let bytes = self.read(&format!("{directory}/blkio.throttle.io_service_bytes")).ok()?;
            return Some(cgroup::parse_v1(&ops, &bytes));
        };
        Some(cgroup::parse_v1(&ops, &bytes))
    }

    /// True if the device of a number such as `254:0` hands its requests on to other devices.
    fn is_stacked(&self, number: &str) -> bool {
        let below = fs::read_dir(self.path(&format!("/sys/dev/block/{number}/slaves")));
        below.is_ok_and(|mut below| below.next().is_some())
    }

    /// True if the device is a whole disk: partitions are counted in their disks.
    pub fn is_whole(&self, name: &str) -> bool {
        // A slash in a name (cciss/c0d0) is an exclamation mark in sysfs.
        self.path(&format!("/sys/block/{}", name.replace('/', "!"))).exists()
    }

    /// The names of the disks by their numbers, as events of the block layer have them (see [`crate::trace`]).
    pub fn disks_by_number(&self) -> HashMap<u32, String> {
        let text = self.read("/proc/diskstats").unwrap_or_default();
        diskstats::numbers(&text).map(|(number, name)| (number, name.to_owned())).collect()
    }

    /// Hands over the counters of each target that is there now. Each file is read once.
    pub fn each(&self, wanted: &Wanted, mut take: impl FnMut(Kind, &str, Counters)) {
        let asks = |kind| match wanted {
            Wanted::All => matches!(kind, Kind::Disk | Kind::Nfs),
            Wanted::These(these) => these.iter().any(|target| target.kind == kind),
        };
        let is_wanted = |kind, name: &str| match wanted {
            Wanted::All => true,
            Wanted::These(these) => these.iter().any(|target| target.kind == kind && target.name == name),
        };
        if asks(Kind::Disk) {
            let text = self.read("/proc/diskstats").unwrap_or_default();
            for (name, counters) in diskstats::parse(&text).filter(|(name, _)| is_wanted(Kind::Disk, name)) {
                take(Kind::Disk, name, counters);
            }
        }
        if asks(Kind::Nfs) {
            let text = self.read("/proc/self/mountstats").unwrap_or_default();
            for mount in mountstats::parse(&text).iter().filter(|mount| is_wanted(Kind::Nfs, &mount.place)) {
                take(Kind::Nfs, &mount.place, mount.counters);
            }
        }
        let Wanted::These(these) = wanted else { return };
        for target in these {
            let counters = match target.kind {
                Kind::Cgroup => self.cgroup(&target.name),
                Kind::Process => self.read(&format!("/proc/{}/io", target.name)).ok().map(|text| process::parse(&text)),
                Kind::Disk | Kind::Nfs => None,
            };
            if let Some(counters) = counters {
                take(target.kind, &target.name, counters);
            }
        }
    }
}
