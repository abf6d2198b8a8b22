//! The storage below a file, where it is not a disk: memory, or a loop device that goes through the page cache.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use measure::schema::LoopDevice;
use sys::file;

/// Storage that makes a file faster than a disk would: its figures do not describe a disk.
pub enum Storage {
    /// Memory; the text names it for a person.
    Memory(String),
    /// A loop device without direct I/O on the file behind it.
    Loop(LoopDevice),
}

/// Major number of loop devices: Documentation/admin-guide/devices.txt.
const LOOP_MAJOR: u32 = 7;
/// Major number of memory disks (`ram0`): the same list.
const RAM_MAJOR: u32 = 1;

/// The memory or the loop device that `open` is on; None for everything else.
pub fn storage_of(open: &File) -> Option<Storage> {
    let metadata = open.metadata().ok()?;
    let is_device = metadata.file_type().is_block_device();
    if !is_device && let Some(name) = file::memory_filesystem(open) {
        return Some(Storage::Memory(name.into()));
    }
    let device = if is_device { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (libc::major(device), libc::minor(device));
    let sys = format!("/sys/dev/block/{major}:{minor}");
    let name = fs::canonicalize(&sys).ok()?.file_name()?.to_string_lossy().into_owned();
    match major {
        RAM_MAJOR => Some(Storage::Memory(format!("{name}, a memory disk"))),
        _ if name.starts_with("zram") => Some(Storage::Memory(format!("{name}, compressed memory"))),
        LOOP_MAJOR => {
            let direct = fs::read_to_string(format!("{sys}/loop/dio")).ok()?;
            if direct.trim() == "1" {
                return None;
            }
            let backing = fs::read_to_string(format!("{sys}/loop/backing_file")).ok();
            let cached_fraction = backing.and_then(|path| {
                let behind = File::open(path.trim_end_matches('\n')).ok()?;
                file::cached(&behind, 0, behind.metadata().ok()?.len())?.fraction()
            });
            Some(Storage::Loop(LoopDevice { name, cached_fraction }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_memory_and_a_disk_is_not() {
        let shared = tempfile::tempfile_in("/dev/shm").unwrap();
        assert!(matches!(storage_of(&shared), Some(Storage::Memory(name)) if name == "tmpfs"));
        assert!(storage_of(&File::open("/proc/self/exe").unwrap()).is_none());
    }
}
