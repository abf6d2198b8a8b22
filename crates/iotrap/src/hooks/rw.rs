//! pread, pwrite and their kin: the requests that carry their own offset. read, write, readv and writev, which do not,
//! stay on the opened lane and are counted (docs/decisions/position-stays.md). Writes among them are watched, too:
//! other lanes do not see the data that they put into the page cache.

use core::ffi::{c_int, c_void};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::readable;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::late;
use crate::policy::split;
use crate::policy::spread::{self, Kind};
use crate::policy::trace;
use crate::state::group::{self, GroupRef};
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
        Entry::Quiet(_) if kind == Kind::Read && !trace::on() => {
            Reason::Buffered.count_lightly();
            true
        }
        Entry::Lane(_) | Entry::File(_) | Entry::Quiet(_) => false,
    }
}

/// Carries out a request on `fd`: `parts` cuts it into parts if it is to be cut, `real` is the program's own call,
/// `bare` the same on another descriptor.
#[inline(never)]
fn positioned(
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: impl FnOnce() -> Option<u64>,
    parts: impl Fn() -> Option<isize>,
    real: impl Fn() -> isize,
    bare: impl Fn(c_int) -> isize,
) -> isize {
    let quiet = match table::get(fd) {
        Entry::Nothing | Entry::Lane(_) => return real(),
        Entry::Quiet(_) => true,
        Entry::File(_) => false,
    };
    if quiet {
        Reason::Buffered.count();
    }
    if quiet && !trace::on() {
        return watched(fd, kind, real);
    }
    real::cancellation_point();
    // The program's memory is read before anything is held: it may be a bad pointer, and a handler may leave from here.
    let Some(bytes) = bytes() else { return real() };
    trace_transfer(fd, kind, offset, bytes);
    if quiet {
        return watched(fd, kind, real);
    }
    let errno_before = errno::get();
    let mut waited = false;
    loop {
        let undisturbed = Undisturbed::begin();
        if let Some(result) = parts() {
            return to_libc(result);
        }
        let Some(group) = GroupRef::of(fd) else {
            drop(undisturbed);
            return real();
        };
        // On the program's descriptor the request is the program's own call; on lanes it is the library's bare system
        // call.
        let carry = |file: c_int| if file == fd { from_libc(real()) } else { bare(file) };
        if let Some(result) = spread::synchronous(&group, fd, kind, offset, bytes, carry) {
            errno::set(errno_before);
            return to_libc(result);
        }
        // The window of every lane is full: completions open it. The calling thread may be the one that would fetch
        // them. Nothing is held while it waits.
        drop(group);
        crate::aio::note_completed();
        drop(undisturbed);
        if !core::mem::replace(&mut waited, true) {
            Reason::Window.count();
        }
        raw::sleep_us(20);
    }
}

/// Records a transfer in the trace: as one, also if it is cut into parts.
fn trace_transfer(fd: c_int, kind: Kind, offset: i64, bytes: u64) {
    if !trace::on() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    if let Some(group) = GroupRef::of(fd) {
        trace::transfers(fd, &group, kind, offset, bytes);
    }
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
                    let parts = || unsafe { split::transfer(fd, Kind::$kind, room, count, offset) };
                    positioned(fd, Kind::$kind, offset, || Some(count as u64), parts, real, bare)
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
                positioned(fd, Kind::Read, offset, || Some(count as u64), || None, real, bare)
            }
        )*
    };
}

fortified! { __pread_chk __pread64_chk }

/// The bytes of all vectors; None if the kernel will refuse them.
fn total(vectors: *const libc::iovec, count: c_int) -> Option<u64> {
    let count = usize::try_from(count).ok().filter(|&count| count <= 1024)?;
    let mut bytes = Some(0u64);
    let read = readable::for_each(vectors, count, |_, vector| {
        bytes = bytes.and_then(|bytes| bytes.checked_add(vector.iov_len as u64));
    });
    bytes.filter(|_| read)
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
                positioned(fd, Kind::$kind, offset, || total(vectors, count), || None, real, bare)
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
    let result = watched(fd, kind, real);
    match table::get(fd) {
        Entry::Nothing | Entry::Lane(_) => {}
        Entry::Quiet(_) => _ = Reason::Buffered.count(),
        Entry::File(_) => _ = Reason::Flagged.count(),
    }
    result
}

/// Counts a request that uses the position of the descriptor.
#[inline]
pub fn count_at_position(fd: c_int) {
    match table::get(fd) {
        Entry::Nothing | Entry::Lane(_) => {}
        Entry::Quiet(_) => Reason::Buffered.count_lightly(),
        Entry::File(name) => _ = group::why_not(name).unwrap_or(Reason::Position).count(),
    }
}

/// read(2).
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, count: usize) -> isize {
    count_at_position(fd);
    // SAFETY: the program's contract.
    unsafe { real::read(fd, buffer, count) }
}

/// read(2) with the room that the compiler has seen (_FORTIFY_SOURCE).
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(fd: c_int, buffer: *mut c_void, count: usize, room: usize) -> isize {
    count_at_position(fd);
    // SAFETY: the program's contract; the real one ends the program if there is less room than asked for.
    unsafe { real::__read_chk(fd, buffer, count, room) }
}

/// readv(2).
///
/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize {
    count_at_position(fd);
    // SAFETY: the program's contract.
    unsafe { real::readv(fd, vectors, count) }
}

/// write(2).
///
/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, count: usize) -> isize {
    count_at_position(fd);
    // SAFETY: the program's contract.
    watched(fd, Kind::Write, || unsafe { real::write(fd, buffer, count) })
}

/// writev(2).
///
/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize {
    count_at_position(fd);
    // SAFETY: the program's contract.
    watched(fd, Kind::Write, || unsafe { real::writev(fd, vectors, count) })
}

/// Carries out a request on the opened lane, and notes that the page cache is written if the request is a write. The
/// program may leave the call: while the descriptor is open, its file counts as written anyway.
#[inline]
fn watched(fd: c_int, kind: Kind, real: impl Fn() -> isize) -> isize {
    if kind == Kind::Write && group::shares(fd) {
        return recorded(fd, real);
    }
    let result = real();
    if kind == Kind::Write {
        group::soil(fd);
    }
    result
}

/// Carries out a write on the opened lane that other processes have to know of, or whose file they have written.
#[cold]
fn recorded(fd: c_int, real: impl Fn() -> isize) -> isize {
    real::cancellation_point();
    let _undisturbed = Undisturbed::begin();
    let Some(group) = GroupRef::of(fd) else { return real() };
    late::before_write(&group, fd);
    let in_flight = group.node().write_begins(group.own());
    let result = real();
    if in_flight {
        group.node().write_ends(group.own());
    }
    group::soil(fd);
    result
}
