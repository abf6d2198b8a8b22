//! The lane that a path lies on, and the path of the same file on another lane.
//!
//! The map is purely lexical: [`crate::identity`] proves, from the opened descriptors, that two paths lead to one file.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;

use crate::pool::Pools;

/// PATH_MAX of Linux: the longest path with its NUL.
const PATH_MAX: usize = 4096;

/// The place of a path in the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The pool, counted from 0.
    pub pool: usize,
    /// The lane of that pool, counted from 0.
    pub lane: usize,
    /// The rest of the path below the lane; empty for the lane itself.
    pub rest: &'a [u8],
}

/// Paths of all lanes, the longest first.
#[derive(Debug)]
pub struct Map {
    lanes: Box<[Entry]>,
}

#[derive(Debug)]
struct Entry {
    path: Box<[u8]>,
    pool: usize,
    lane: usize,
}

/// Room for one path, without memory from the heap.
#[derive(Debug)]
pub struct PathBuffer {
    bytes: [u8; PATH_MAX],
}

impl Default for PathBuffer {
    fn default() -> Self {
        PathBuffer { bytes: [0; PATH_MAX] }
    }
}

impl Map {
    /// The map of these pools. This is the only function here that allocates.
    pub fn new(pools: &Pools) -> Map {
        let mut lanes: Vec<Entry> = Vec::new();
        for (pool, config) in pools.all().iter().enumerate() {
            for (lane, config) in config.lanes.iter().enumerate() {
                lanes.push(Entry { path: config.path.as_os_str().as_bytes().into(), pool, lane });
            }
        }
        lanes.sort_by_key(|entry| std::cmp::Reverse(components(&entry.path).count()));
        Map { lanes: lanes.into() }
    }

    /// The place of an absolute path: the lane whose path is its longest beginning, in whole components. None if the
    /// path lies on no lane, is relative, or has `..` in it: the file system, and not the text, decides where `..`
    /// leads.
    pub fn find<'a>(&self, path: &'a [u8]) -> Option<Place<'a>> {
        if path.first() != Some(&b'/') || components(path).any(|component| component == b"..") {
            return None;
        }
        self.lanes.iter().find_map(|entry| {
            let rest = below(path, &entry.path)?;
            Some(Place { pool: entry.pool, lane: entry.lane, rest })
        })
    }

    /// The path of a file on another lane of its pool; None if it would be longer than the kernel takes.
    pub fn path<'b>(&self, pool: usize, lane: usize, rest: &[u8], buffer: &'b mut PathBuffer) -> Option<&'b CStr> {
        let entry = self.lanes.iter().find(|entry| (entry.pool, entry.lane) == (pool, lane))?;
        let parts: [&[u8]; 4] = [&entry.path, if rest.is_empty() { b"" } else { b"/" }, rest, b"\0"];
        let mut length = 0;
        for part in parts {
            buffer.bytes.get_mut(length..length + part.len())?.copy_from_slice(part);
            length += part.len();
        }
        CStr::from_bytes_with_nul(buffer.bytes.get(..length)?).ok()
    }
}

/// The components of a path: neither empty ones nor `.`.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|component| !component.is_empty() && *component != b".")
}

/// The rest of `path` below `directory`, both absolute; None if `path` does not lie below.
fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let mut left = path;
    for wanted in components(directory) {
        let (component, rest) = next(left)?;
        if component != wanted {
            return None;
        }
        left = rest;
    }
    // Slashes and `.` at the beginning of the rest mean nothing and are cut off; those inside it do no harm.
    while let Some(rest) = left.strip_prefix(b"/").or_else(|| left.strip_prefix(b"./")) {
        left = rest;
    }
    Some(if left == b"." { b"" } else { left })
}

/// The first component of a path and the rest behind it.
fn next(mut path: &[u8]) -> Option<(&[u8], &[u8])> {
    loop {
        let slash = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        let (component, rest) = path.split_at_checked(slash)?;
        if !component.is_empty() && component != b"." {
            return Some((component, rest));
        }
        path = rest.strip_prefix(b"/")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(text: &str) -> Map {
        Map::new(&Pools::from_mount_pools(text).unwrap())
    }

    fn place<'a>(map: &Map, path: &'a str) -> Option<(usize, usize, &'a str)> {
        map.find(path.as_bytes()).map(|place| (place.pool, place.lane, std::str::from_utf8(place.rest).unwrap()))
    }

    #[test]
    fn the_longest_beginning_in_whole_components_wins() {
        let map = map("a:/mnt/v,/mnt/w b:/mnt/v/deep,/mnt/w/deep");
        assert_eq!(place(&map, "/mnt/v/file"), Some((0, 0, "file")));
        assert_eq!(place(&map, "/mnt/w/dir/file"), Some((0, 1, "dir/file")));
        assert_eq!(place(&map, "/mnt/v/deep/file"), Some((1, 0, "file")));
        assert_eq!(place(&map, "/mnt/v/deeper"), Some((0, 0, "deeper")));
        assert_eq!(place(&map, "/mnt/v"), Some((0, 0, "")));
        for outside in ["/mnt/vv/file", "/mnt", "/", "", "mnt/v/file", "/x/mnt/v/file"] {
            assert_eq!(place(&map, outside), None, "{outside}");
        }
    }

    #[test]
    fn what_means_nothing_in_a_path_is_passed_over() {
        let map = map("a:/mnt/v/");
        for path in ["/mnt/v/d/f", "//mnt///v//d/f", "/./mnt/./v/./d/f", "/mnt/v/././/d/f"] {
            assert_eq!(place(&map, path), Some((0, 0, "d/f")), "{path}");
        }
        assert_eq!(place(&map, "/mnt/v/."), Some((0, 0, "")));
        assert_eq!(place(&map, "/mnt/v/.hidden"), Some((0, 0, ".hidden")));
    }

    #[test]
    fn two_dots_are_for_the_file_system_to_resolve() {
        let map = map("a:/mnt/v");
        for path in ["/mnt/v/../x", "/mnt/x/../v/f", "/mnt/v/d/.."] {
            assert_eq!(place(&map, path), None, "{path}");
        }
        assert_eq!(place(&map, "/mnt/v/..f"), Some((0, 0, "..f")));
    }

    #[test]
    fn the_file_has_a_name_on_every_lane() {
        let map = map("a:/mnt/v,/mnt/w");
        let mut buffer = PathBuffer::default();
        assert_eq!(map.path(0, 1, b"d/f", &mut buffer), Some(c"/mnt/w/d/f"));
        assert_eq!(map.path(0, 0, b"", &mut buffer), Some(c"/mnt/v"));
        assert_eq!(map.path(0, 1, &[b'x'; 4088], &mut buffer).map(|path| path.count_bytes()), Some(4095));
        assert_eq!(map.path(0, 1, &[b'x'; 4089], &mut buffer), None, "longer than PATH_MAX");
        assert_eq!(map.path(0, 1, b"a\0b", &mut buffer), None);
        assert_eq!(map.path(3, 1, b"d/f", &mut buffer), None);
    }

    proptest! {
        #[test]
        fn a_found_path_leads_back_to_the_same_components(path in "[/a-c.]{0,24}") {
            let map = map("p:/a,/b q:/a/b/c,/c/c");
            let mut buffer = PathBuffer::default();
            if let Some(place) = map.find(path.as_bytes()) {
                let back = map.path(place.pool, place.lane, place.rest, &mut buffer).unwrap().to_bytes().to_vec();
                prop_assert!(components(&back).eq(components(path.as_bytes())), "{:?}", back);
            } else {
                let clean: Vec<_> = components(path.as_bytes()).collect();
                let on_a_lane = path.starts_with('/') && matches!(clean.first(), Some(&b"a" | &b"b"));
                prop_assert!(!on_a_lane || clean.contains(&&b".."[..]));
            }
        }
    }
}
