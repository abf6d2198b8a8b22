//! pread, pwrite and their kin: the requests that carry their own offset. write and writev, which do not, are watched:
//! other lanes do not see the data that they put into the page cache.

use core::ffi::{c_int, c_void};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::policy::split;
use crate::policy::spread::{self, Kind};
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// libc's convention for a result of the kernel's kind.
fn to_libc(result: isize) -> isize {
    errno::libc_result(result)
}

/// The kernel's convention for a result of libc's kind.
fn from_libc(result: isize) -> isize {
    if result < 0 { -(errno::get() as isize) } else { result }
}

/// True if a request goes straight to the real function, because the library has nothing to do for it.
#[inline(always)]
fn passes(fd: c_int, kind: Kind) -> bool {
    match table::get(fd) {
        Entry::Nothing => true,
        Entry::Quiet(_) => kind == Kind::Read && !trace::on(),
        Entry::Lane(_) | Entry::File(_) => false,
    }
}

/// Carries out a request on `fd`: `real` is the program's own call, `bare` the same on another descriptor.
#[inline(never)]
fn positioned(
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: impl FnOnce() -> Option<u64>,
    real: impl Fn() -> isize,
    bare: impl Fn(c_int) -> isize,
) -> isize {
    match table::get(fd) {
        Entry::Nothing | Entry::Lane(_) => real(),
        Entry::Quiet(_) if kind == Kind::Read && !trace::on() => real(),
        Entry::Quiet(_) | Entry::File(_) => {
            real::cancellation_point();
            let (Some(group), Some(bytes)) = (GroupRef::of(fd), bytes()) else { return real() };
            of_a_pool(&group, fd, kind, offset, bytes, real, bare)
        }
    }
}

fn of_a_pool(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: u64,
    real: impl Fn() -> isize,
    bare: impl Fn(c_int) -> isize,
) -> isize {
    trace::transfers(fd, group, kind, offset, bytes);
    if !group.is_direct() && kind == Kind::Write {
        let result = real();
        let _errno = errno::kept();
        group.node().soil();
        return result;
    }
    let errno_before = errno::get();
    // On the program's descriptor the request is the program's own call; on lanes it is the library's bare system call.
    let carry = |file: c_int| if file == fd { from_libc(real()) } else { bare(file) };
    let result = spread::synchronous(group, fd, kind, offset, bytes, carry);
    errno::set(errno_before);
    to_libc(result)
}

macro_rules! plain {
    ($($name:ident, $number:ident, $kind:ident, $pointer:ty;)*) => {
        $(
            /// pread(2) or pwrite(2).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(fd: c_int, buffer: $pointer, count: usize, offset: i64) -> isize {
                #[inline(never)]
                unsafe fn of_a_pool(fd: c_int, buffer: $pointer, count: usize, offset: i64) -> isize {
                    // SAFETY: the program's contract.
                    let real = || unsafe { real::$name(fd, buffer, count, offset) };
                    let room = buffer as *mut c_void;
                    // SAFETY: the program's contract; on another descriptor of the same file.
                    let bare = |file| unsafe { raw::transfer(libc::$number, file, room, count, offset) };
                    // SAFETY: the program's contract.
                    match unsafe { split::transfer(fd, Kind::$kind, room, count, offset) } {
                        Some(result) => to_libc(result),
                        None => positioned(fd, Kind::$kind, offset, || Some(count as u64), real, bare),
                    }
                }
                if passes(fd, Kind::$kind) {
                    // SAFETY: the program's contract.
                    return unsafe { real::$name(fd, buffer, count, offset) };
                }
                // SAFETY: the program's contract.
                unsafe { of_a_pool(fd, buffer, count, offset) }
            }
        )*
    };
}

plain! {
    pread, SYS_pread64, Read, *mut c_void;
    pread64, SYS_pread64, Read, *mut c_void;
    pwrite, SYS_pwrite64, Write, *const c_void;
    pwrite64, SYS_pwrite64, Write, *const c_void;
}

macro_rules! fortified {
    ($($name:ident)*) => {
        $(
            /// pread(2) with the room that the compiler has seen (_FORTIFY_SOURCE).
            ///
            /// # Safety
            /// As pread(2).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                fd: c_int,
                buffer: *mut c_void,
                count: usize,
                offset: i64,
                room: usize,
            ) -> isize {
                // SAFETY: the program's contract; the real one ends the program if there is less room than asked for.
                let real = || unsafe { real::$name(fd, buffer, count, offset, room) };
                if count > room {
                    return real();
                }
                // SAFETY: the program's contract; on another descriptor of the same file.
                let bare = |file| unsafe { raw::transfer(libc::SYS_pread64, file, buffer, count, offset) };
                positioned(fd, Kind::Read, offset, || Some(count as u64), real, bare)
            }
        )*
    };
}

fortified! { __pread_chk __pread64_chk }

/// The bytes of all vectors; None if the kernel will refuse them.
///
/// # Safety
/// `vectors` points to the `count` vectors of the program.
unsafe fn total(vectors: *const libc::iovec, count: c_int) -> Option<u64> {
    let count = usize::try_from(count).ok().filter(|&count| count <= 1024 && !vectors.is_null())?;
    let mut bytes = 0u64;
    for at in 0..count {
        // SAFETY: the program's contract.
        bytes = bytes.checked_add(unsafe { (*vectors.wrapping_add(at)).iov_len } as u64)?;
    }
    Some(bytes)
}

macro_rules! vectored {
    ($($name:ident, $number:ident, $kind:ident $(, $flags:ident)?;)*) => {
        $(
            /// preadv(2), pwritev(2), or one of them with flags.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                fd: c_int,
                vectors: *const libc::iovec,
                count: c_int,
                offset: i64,
                $($flags: c_int,)?
            ) -> isize {
                // SAFETY: the program's contract.
                let real = || unsafe { real::$name(fd, vectors, count, offset $(, $flags)?) };
                let with: c_int = 0 $(| $flags)?;
                // Requests with other flags stay: an append, and whatever else a flag may come to mean. So do requests
                // at the position of the descriptor itself.
                if with & !(libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_HIPRI | libc::RWF_NOWAIT) != 0 || offset < 0 {
                    return unspread(fd, Kind::$kind, real);
                }
                let bare = |file| {
                    // SAFETY: the program's contract; on another descriptor of the same file.
                    unsafe { raw::transfer_vectors(libc::$number, file, vectors, count, offset, with) }
                };
                // SAFETY: the program's contract.
                positioned(fd, Kind::$kind, offset, || unsafe { total(vectors, count) }, real, bare)
            }
        )*
    };
}

vectored! {
    preadv, SYS_preadv2, Read;
    preadv64, SYS_preadv2, Read;
    preadv2, SYS_preadv2, Read, flags;
    preadv64v2, SYS_preadv2, Read, flags;
    pwritev, SYS_pwritev2, Write;
    pwritev64, SYS_pwritev2, Write;
    pwritev2, SYS_pwritev2, Write, flags;
    pwritev64v2, SYS_pwritev2, Write, flags;
}

/// Carries out a request that stays on the opened lane because of its flags or its offset.
fn unspread(fd: c_int, kind: Kind, real: impl Fn() -> isize) -> isize {
    let result = real();
    if let Some(group) = GroupRef::of(fd) {
        let _errno = errno::kept();
        Reason::Flagged.count();
        if kind == Kind::Write && !group.is_direct() {
            group.node().soil();
        }
    }
    result
}

/// write(2).
///
/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, count: usize) -> isize {
    // SAFETY: the program's contract.
    watched(fd, || unsafe { real::write(fd, buffer, count) })
}

/// writev(2).
///
/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: the program's contract.
    watched(fd, || unsafe { real::writev(fd, vectors, count) })
}

/// Carries out a write to the descriptor's own position, and notes that the page cache is written.
#[inline]
fn watched(fd: c_int, real: impl Fn() -> isize) -> isize {
    if table::get(fd) == Entry::Nothing {
        return real();
    }
    let result = real();
    if let Some(group) = GroupRef::of(fd)
        && !group.is_direct()
    {
        group.node().soil();
    }
    result
}
