//! Memory that the machine can still give, and allocations that may fail.

use std::alloc::Layout;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that this process can take without swapping, as the kernel estimates them: `MemAvailable` (proc(5)), or the
/// rest of the memory limit of its control group or of one above it (cgroups(7)), if that is less. `None` where the
/// system does not tell.
pub fn available_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let machine = meminfo_bytes(&meminfo, "MemAvailable:")?;
    Some(control_group_bytes().map_or(machine, |group| machine.min(group)))
}

fn meminfo_bytes(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The rest of the tightest memory limit of the process's control groups, in bytes; `None` without a limit.
fn control_group_bytes() -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (root, path, limit, usage) = control_group(&membership)?;
    let mut place: Option<&Path> = Some(&path);
    let mut least: Option<u64> = None;
    while let Some(group) = place {
        let folder = root.join(group);
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        // No limit is the word "max", or in version 1 a number near the largest that there is.
        if let (Some(limit), Some(usage)) = (number(limit).filter(|limit| *limit < 1 << 60), number(usage)) {
            let left = limit.saturating_sub(usage);
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        place = group.parent();
    }
    least
}

/// The mount point of this process's memory controller, the group there, and the names of the files of limit and usage.
fn control_group(membership: &str) -> Option<(PathBuf, PathBuf, &'static str, &'static str)> {
    let group = |line: &str| PathBuf::from(line.rsplit(':').next().unwrap_or("/").trim_start_matches('/'));
    let memory =
        membership.lines().find(|line| line.split(':').nth(1).is_some_and(|it| it.split(',').any(|it| it == "memory")));
    if let Some(line) = memory {
        let root = PathBuf::from("/sys/fs/cgroup/memory");
        return Some((root, group(line), "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
    let line = membership.lines().find(|line| line.starts_with("0::"))?;
    Some((PathBuf::from("/sys/fs/cgroup"), group(line), "memory.max", "memory.current"))
}

/// `len` zeros on the heap, taken from the system page by page as they are written; `None` when there is no memory for
/// them.
pub fn try_zeroed(len: usize) -> Option<Box<[u8]>> {
    let layout = Layout::array::<u8>(len).ok()?;
    if len == 0 {
        return Some(Box::default());
    }
    // SAFETY: the layout is not of size zero: len is not 0.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    let bytes = std::ptr::slice_from_raw_parts_mut(start, len);
    // SAFETY: the allocator of Box gave these bytes, with the layout of a slice of that length, and nobody else has
    // them.
    Some(unsafe { Box::from_raw(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory_and_not_all_that_is_asked_for() {
        let available = available_bytes().expect("Linux tells");
        assert!(available > 1 << 20 && available < 1 << 50);
        assert_eq!(meminfo_bytes("MemTotal: 7 kB\nMemAvailable:   24 kB\n", "MemAvailable:"), Some(24 << 10));
        assert_eq!(meminfo_bytes("MemTotal: 7 kB\n", "MemAvailable:"), None);
        assert_eq!(try_zeroed(100_000).unwrap().iter().max(), Some(&0));
        assert!(try_zeroed(0).unwrap().is_empty());
        assert!(try_zeroed(isize::MAX as usize).is_none() && try_zeroed(usize::MAX).is_none());
    }

    #[test]
    fn control_groups_of_both_versions_are_found() {
        let found = control_group("12:cpu:/a\n5:memory:/b/c\n0::/\n").unwrap();
        assert_eq!(
            (found.0.join(found.1), found.2),
            (PathBuf::from("/sys/fs/cgroup/memory/b/c"), "memory.limit_in_bytes")
        );
        let found = control_group("0::/user.slice/x\n").unwrap();
        assert_eq!((found.0.join(found.1), found.2), (PathBuf::from("/sys/fs/cgroup/user.slice/x"), "memory.max"));
    }
}
