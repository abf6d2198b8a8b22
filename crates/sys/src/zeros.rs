//! Zeros to read from, which take no memory.

use std::cell::UnsafeCell;

/// The number of zeros.
const BYTES: usize = 1 << 20;

/// Memory that nobody writes, and that could be written as far as the compiler knows: it goes into `.bss`. An immutable
/// static goes into the program's file instead, and takes a page of memory for each page of zeros.
struct Unwritten(UnsafeCell<[u8; BYTES]>);

// SAFETY: nobody writes the bytes.
unsafe impl Sync for Unwritten {}

static ZEROS: Unwritten = Unwritten(UnsafeCell::new([0; BYTES]));

/// 1 MiB of zeros. The system backs all of them with its one page of zeros, so that reading any number of them touches
/// 4 KiB of memory, which stay in the first-level cache.
#[inline]
pub fn zeros() -> &'static [u8; BYTES] {
    // SAFETY: the static lives as long as the program, and nobody writes it.
    unsafe { &*ZEROS.0.get() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_backed_by_no_file() {
        let zeros = zeros();
        assert!(zeros.iter().all(|&byte| byte == 0));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of = |address: usize| {
            let range = |line: &str| {
                let (from, to) = line.split_once(' ')?.0.split_once('-')?;
                Some(usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?)
            };
            maps.lines().find(|line| range(line).is_some_and(|range| range.contains(&address))).unwrap()
        };
        // The first page may hold the end of the program's data, too.
        for at in [4096, BYTES / 2, BYTES - 1] {
            let line = of(zeros.as_ptr().addr() + at);
            assert_eq!(line.split_whitespace().nth(4), Some("0"), "the inode of a file: {line}");
        }
    }
}
