//! Addresses of the program that lead nowhere. The kernel answers EFAULT where it reads such an address, and so must
//! the library, which reads some arguments before the kernel does.
//!
//! A page that was readable once is taken for readable from then on: a program does not pass the address of memory that
//! it has given back, but it may pass an address that never led anywhere.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::raw;

/// The smallest page that Linux has: larger pages are several of these.
const PAGE: usize = 4096;
const PAGES: usize = 1024;

/// Numbers of pages that were found to be readable, each in the place that its last bits say.
static KNOWN: [AtomicUsize; PAGES] = [const { AtomicUsize::new(0) }; PAGES];

/// True if the kernel would read these bytes of the program's memory.
#[inline]
pub fn is_readable(address: usize, bytes: usize) -> bool {
    let Some(end) = address.checked_add(bytes.max(1)).filter(|_| address != 0) else { return false };
    (address / PAGE..end.div_ceil(PAGE)).all(is_page_readable)
}

#[inline]
fn is_page_readable(page: usize) -> bool {
    let Some(known) = KNOWN.get(page % PAGES) else { return true };
    known.load(Relaxed) == page || {
        let readable = ask(page);
        if readable {
            known.store(page, Relaxed);
        }
        readable
    }
}

/// Asks the kernel, by reading a byte of the page.
#[cold]
fn ask(page: usize) -> bool {
    let mut byte = 0u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: core::ptr::with_exposed_provenance_mut(page * PAGE), iov_len: 1 };
    let (own, here, there) = (raw::pid() as usize, &raw const here as usize, &raw const there as usize);
    // SAFETY: one byte of this process is copied to `byte`; a bad address is EFAULT.
    let read = unsafe { raw::call(libc::SYS_process_vm_readv, own, here, 1, there, 1, 0) };
    // Where the call is forbidden, nobody knows: the address is believed.
    read != -libc::EFAULT as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_readable_and_its_absence_is_not() {
        let bytes = [0u8; 3 * PAGE];
        assert!(is_readable(bytes.as_ptr() as usize, bytes.len()));
        assert!(is_readable(bytes.as_ptr() as usize, bytes.len()), "known by now");
        assert!(!is_readable(0, 8) && !is_readable(usize::MAX, 8) && !is_readable(0xffff_ffff_8100_0000, 8));
        // A page of any size that Linux has.
        const LARGE: usize = 64 << 10;
        let (none, flags) = (core::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let place = unsafe { libc::mmap(none, 2 * LARGE, libc::PROT_READ, flags, -1, 0) };
        // SAFETY: the second half of the mapping.
        let closed = unsafe { libc::mprotect(place.wrapping_byte_add(LARGE), LARGE, libc::PROT_NONE) };
        assert_eq!(closed, 0);
        assert!(is_readable(place as usize, LARGE) && !is_readable(place as usize, LARGE + 1));
    }
}
