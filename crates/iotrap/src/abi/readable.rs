//! Addresses of the program that lead nowhere. The kernel answers EFAULT where it reads such an address, and so must
//! the library, which reads some arguments before the kernel does.
//!
//! The kernel is asked at every use: memory that was readable once may be given back, or protected, before the next
//! call.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

use crate::abi::raw;

/// The smallest page that Linux has: larger pages are several of these.
const PAGE: usize = 4096;
/// The most pages that one question to the kernel is about.
pub const PAGES: usize = 64;

/// True if the kernel would read these bytes of the program's memory.
pub fn is_readable(address: usize, bytes: usize) -> bool {
    let Some(end) = address.checked_add(bytes.max(1)) else { return false };
    let mut room = [0u8; PAGES];
    let mut page = address / PAGE;
    while page < end.div_ceil(PAGE) {
        let mut there = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 1 }; PAGES];
        let count = (end.div_ceil(PAGE) - page).min(PAGES);
        for (place, at) in there.iter_mut().zip(page..page + count) {
            let byte = (at * PAGE).max(address);
            place.iov_base = core::ptr::with_exposed_provenance_mut(byte);
        }
        if !copies(room.as_mut_ptr(), count, &there, count) {
            return false;
        }
        page += count;
    }
    true
}

/// The value at an address of the program; None if the kernel would not read it. The value is one that every bit
/// pattern is valid for.
pub fn read<T: Copy>(address: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let there = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: size_of::<T>() };
    // SAFETY: all bytes were copied; the caller asks for types of which every bit pattern is a value.
    copies(value.as_mut_ptr().cast(), size_of::<T>(), &[there], 1).then(|| unsafe { value.assume_init() })
}

/// The first `count` values of a list of the program; None if the kernel would not read them. Every bit pattern is a
/// valid value of the type.
pub fn read_some<T: Copy + Default, const MOST: usize>(address: *const T, count: usize) -> Option<[T; MOST]> {
    let mut values = [T::default(); MOST];
    let bytes = count.min(MOST) * size_of::<T>();
    let there = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: bytes };
    copies(values.as_mut_ptr().cast(), bytes, &[there], 1).then_some(values)
}

/// Calls `each` with the place and a copy of every value of a list of the program. False if the kernel would not read
/// the list: `each` may have seen the beginning of it. Every bit pattern is a valid value of the type.
pub fn for_each<T: Copy>(list: *const T, count: usize, mut each: impl FnMut(usize, T)) -> bool {
    /// The values that are copied at a time.
    const SOME: usize = 64;
    let mut values = [const { MaybeUninit::<T>::uninit() }; SOME];
    for from in (0..count).step_by(SOME) {
        let some = (count - from).min(SOME);
        let there = libc::iovec { iov_base: list.wrapping_add(from).cast_mut().cast(), iov_len: some * size_of::<T>() };
        if !copies(values.as_mut_ptr().cast(), there.iov_len, &[there], 1) {
            return false;
        }
        for (at, value) in values.iter().take(some).enumerate() {
            // SAFETY: it was copied just now; the caller asks for types of which every bit pattern is a value.
            each(from + at, unsafe { value.assume_init() });
        }
    }
    true
}

/// A text of the program, copied to `room`. None if the kernel would not read it, or if it is longer than the room.
pub fn text(address: *const c_char, room: &mut [u8]) -> Option<&CStr> {
    let (mut used, from) = (0, address as usize);
    while used < room.len() {
        // Up to the end of a page: the next one may be missing, and not belong to the text.
        let at = from.checked_add(used)?;
        let bytes = (PAGE - at % PAGE).min(room.len() - used);
        let part = room.get_mut(used..used + bytes)?;
        let there = libc::iovec { iov_base: core::ptr::with_exposed_provenance_mut(at), iov_len: bytes };
        if !copies(part.as_mut_ptr(), bytes, &[there], 1) {
            return None;
        }
        if part.contains(&0) {
            return CStr::from_bytes_until_nul(room).ok();
        }
        used += bytes;
    }
    None
}

/// True if the kernel would write to each of these addresses, of which there are at most [`PAGES`]: it has written
/// `value` there.
pub fn are_written(addresses: impl Iterator<Item = usize>, value: u32) -> bool {
    let values = [value; PAGES];
    let mut there = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: size_of::<u32>() }; PAGES];
    let mut count = 0;
    for (place, address) in there.iter_mut().zip(addresses) {
        place.iov_base = core::ptr::with_exposed_provenance_mut(address);
        count += 1;
    }
    let bytes = count * size_of::<u32>();
    let here = libc::iovec { iov_base: values.as_ptr().cast_mut().cast(), iov_len: bytes };
    let (own, here, to) = (raw::pid() as usize, &raw const here as usize, there.as_ptr() as usize);
    // SAFETY: the caller gives places for a value of this size; a bad address is EFAULT.
    let written = unsafe { raw::call(libc::SYS_process_vm_writev, own, here, 1, to, count, 0) };
    // Where the call is forbidden, nobody knows: the addresses are believed.
    written == bytes as isize || (written < 0 && written != -libc::EFAULT as isize)
}

/// True if the kernel would read `bytes` bytes, which lie on two pages at most, at each of these addresses.
/// There are at most half of [`PAGES`] addresses.
pub fn are_readable(addresses: &[usize], bytes: usize) -> bool {
    let mut room = [0u8; PAGES];
    let mut there = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 1 }; PAGES];
    for (ends, &address) in there.chunks_exact_mut(2).zip(addresses) {
        let [first, last] = ends else { return false };
        first.iov_base = core::ptr::with_exposed_provenance_mut(address);
        last.iov_base = core::ptr::with_exposed_provenance_mut(address.wrapping_add(bytes - 1));
    }
    let count = 2 * addresses.len();
    count <= PAGES && copies(room.as_mut_ptr(), count, &there, count)
}

/// Copies the first `count` pieces of this process's memory, `bytes` bytes in all. False if any of them cannot
/// be read.
fn copies(to: *mut u8, bytes: usize, there: &[libc::iovec], count: usize) -> bool {
    let here = libc::iovec { iov_base: to.cast(), iov_len: bytes };
    let (own, here, from) = (raw::pid() as usize, &raw const here as usize, there.as_ptr() as usize);
    // SAFETY: at most `bytes` bytes of this process are copied to the caller's room; a bad address is EFAULT.
    let read = unsafe { raw::call(libc::SYS_process_vm_readv, own, here, 1, from, count, 0) };
    if read >= 0 || read == -libc::EFAULT as isize {
        return read == bytes as isize;
    }
    // Where the call is forbidden, nobody knows: the addresses are believed, but for those of the first page.
    let pieces = || there.iter().take(count);
    if pieces().any(|piece| (piece.iov_base as usize) < PAGE) {
        return false;
    }
    let mut to = to;
    for piece in pieces() {
        // SAFETY: the program's contract: the memory is there; the room of the caller is as long as all pieces.
        unsafe { core::ptr::copy_nonoverlapping(piece.iov_base.cast::<u8>(), to, piece.iov_len) };
        to = to.wrapping_add(piece.iov_len);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_readable_and_its_absence_is_not() {
        let bytes = [0u8; 3 * PAGE];
        assert!(is_readable(bytes.as_ptr() as usize, bytes.len()));
        assert!(is_readable(bytes.as_ptr() as usize, bytes.len()), "again");
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
        assert_eq!(read(place.cast::<u64>()), Some(0));
        assert_eq!(read(place.wrapping_byte_add(LARGE - 4).cast::<u64>()), None, "a half of it");
        let mut seen = 0;
        assert!(for_each(place.cast::<u64>(), LARGE / 8, |at, value| seen += usize::from(at == seen && value == 0)));
        assert_eq!(seen, LARGE / 8);
        assert!(!for_each(place.cast::<u64>(), LARGE / 8 + 1, |_, _| {}), "one beyond the end");
        assert!(for_each(core::ptr::null::<u64>(), 0, |_, _| {}), "an empty list");
        let key = place as usize + 8;
        assert!(!are_written([key].into_iter(), 0), "it is readable");
        // SAFETY: the first half of the mapping.
        let opened = unsafe { libc::mprotect(place, LARGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0);
        assert!(are_written([key, key + 64].into_iter(), 7) && read((key + 64) as *const u32) == Some(7));
        let mut room = [0; 100];
        let end = place.wrapping_byte_add(LARGE - 3).cast::<u8>();
        // SAFETY: the last bytes of the first half.
        unsafe { end.copy_from_nonoverlapping(c"ab".as_ptr().cast(), 3) };
        assert_eq!(text(end.cast(), &mut room), Some(c"ab"));
        // SAFETY: the last byte of the first half.
        unsafe { end.wrapping_add(2).write(b'c') };
        assert_eq!(text(end.cast(), &mut room), None, "it has no end before the memory has");
        assert_eq!(text(core::ptr::without_provenance(8), &mut room), None);
        // SAFETY: the first half of the mapping.
        let closed = unsafe { libc::mprotect(place, LARGE, libc::PROT_NONE) };
        assert_eq!(closed, 0);
        assert!(!is_readable(place as usize, 1), "it was readable before");
        assert!(!is_readable(8, 8) && !is_readable(4095, 1), "the first page");
    }
}
