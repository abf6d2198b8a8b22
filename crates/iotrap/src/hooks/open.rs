//! open and its kin: the real call first, then the other lanes. The hooks of stdio: a stream writes through the page
//! cache where nobody sees it.

use core::ffi::{c_char, c_int, c_void};

use super::room;
use crate::abi::errno;
use crate::abi::raw;
use crate::abi::readable;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::others;
use crate::open::tracking;
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::lane;
use crate::state::node::{self, Changing, NodeRef};
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

type Path = *const c_char;
type Mode = libc::mode_t;
type File = *mut libc::FILE;

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// Begins to change a file that is about to be cut to nothing by opening it: nothing is in flight on its lanes until
/// the returned value is dropped. None if no file of a pool is cut.
///
/// # Safety
/// The path is the program's.
unsafe fn before(at: c_int, path: Path, flags: c_int) -> Option<Changing> {
    if flags & libc::O_TRUNC == 0 {
        return None;
    }
    // SAFETY: the program's contract.
    unsafe { crate::aio::async_io::settle_path(at, path) };
    if !lane::active() {
        return None;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    // SAFETY: the program's contract.
    let stat = unsafe { raw::stat_at(at, path) }.ok()?;
    // A handler that leaves the call of open(2) leaves the file changing: it is not spread any more.
    node::find(stat.st_dev, stat.st_ino).map(NodeRef::changes)
}

fn after(fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 {
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        tracking::opened(fd, flags);
        trace::opened(fd);
    }
    fd
}

/// The functions of one file: their arguments, the place where their path begins, and their flags.
macro_rules! opens {
    ($($name:ident($($argument:ident: $type:ty),*) at $at:expr, of $path:ident, with $flags:expr;)*) => {
        $(
            /// The function of that name of open(2) or creat(2).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the program's contract.
                let changing = unsafe { before($at, $path, $flags) };
                // SAFETY: the program's contract. (On x86-64 and AArch64 a variadic mode is passed like any other
                // argument.)
                let fd = room::needing_number(|| unsafe { real::$name($($argument),*) });
                let fd = after(fd, $flags);
                drop(changing);
                fd
            }
        )*
    };
}

opens! {
    open(path: Path, flags: c_int, mode: Mode) at libc::AT_FDCWD, of path, with flags;
    open64(path: Path, flags: c_int, mode: Mode) at libc::AT_FDCWD, of path, with flags;
    openat(at: c_int, path: Path, flags: c_int, mode: Mode) at at, of path, with flags;
    openat64(at: c_int, path: Path, flags: c_int, mode: Mode) at at, of path, with flags;
    creat(path: Path, mode: Mode) at libc::AT_FDCWD, of path, with CREAT;
    creat64(path: Path, mode: Mode) at libc::AT_FDCWD, of path, with CREAT;
    __open_2(path: Path, flags: c_int) at libc::AT_FDCWD, of path, with flags;
    __open64_2(path: Path, flags: c_int) at libc::AT_FDCWD, of path, with flags;
    __openat_2(at: c_int, path: Path, flags: c_int) at at, of path, with flags;
    __openat64_2(at: c_int, path: Path, flags: c_int) at at, of path, with flags;
}

/// open_by_handle_at(2).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: the contract of open_by_handle_at(2), which the program keeps.
    after(room::needing_number(|| unsafe { real::open_by_handle_at(mount, handle, flags) }), flags)
}

/// The functions that make a file of a new name: their flags beside O_RDWR.
macro_rules! temporaries {
    ($($name:ident($template:ident: $path:ty $(, $argument:ident: $type:ty)*) with $flags:expr, after $suffix:expr;)*) => {
        $(
            /// The function of that name of mkstemp(3).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($template: $path $(, $argument: $type)*) -> c_int {
                // SAFETY: the contract of mkstemp(3), which the program keeps.
                let make = || unsafe { real::$name($template $(, $argument)*) };
                // SAFETY: the contract of mkstemp(3), which the program keeps.
                let fd = room::needing_number(|| unsafe { with_six(make, $template, $suffix) });
                after(fd, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | $flags)
            }
        )*
    };
}

temporaries! {
    mkstemp(template: *mut c_char) with 0, after 0;
    mkstemp64(template: *mut c_char) with 0, after 0;
    mkostemp(template: *mut c_char, flags: c_int) with flags, after 0;
    mkostemp64(template: *mut c_char, flags: c_int) with flags, after 0;
    mkstemps(template: *mut c_char, suffix: c_int) with 0, after suffix;
    mkstemps64(template: *mut c_char, suffix: c_int) with 0, after suffix;
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) with flags, after suffix;
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) with flags, after suffix;
}

/// Makes a temporary file, and puts the six X before the suffix back if there was no number for it: libc has replaced
/// them, and would not accept the template again.
///
/// # Safety
/// The template is as mkstemp(3) demands.
unsafe fn with_six(make: impl Fn() -> c_int, template: *mut c_char, suffix: c_int) -> c_int {
    let fd = make();
    if fd < 0 && matches!(errno::get(), libc::EMFILE | libc::ENFILE) {
        // SAFETY: the program's contract: NUL-terminated, with six characters before the suffix.
        let length = unsafe { libc::strlen(template) };
        let from = length.saturating_sub(6 + suffix.max(0) as usize);
        for at in from..from + 6 {
            // SAFETY: the program's contract: within the template.
            unsafe { template.wrapping_add(at).write(b'X' as c_char) };
        }
    }
    fd
}

macro_rules! temporary_streams {
    ($($name:ident)*) => {
        $(
            /// tmpfile(3): a file that has no name.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name() -> File {
                // SAFETY: a function without arguments.
                let file = room::needing(room::number_of_stream, || unsafe { real::$name() });
                if !file.is_null() {
                    let _errno = errno::kept();
                    // SAFETY: stdio has just made it.
                    others::is_new(unsafe { libc::fileno(file) });
                }
                file
            }
        )*
    };
}

temporary_streams! { tmpfile tmpfile64 }

/// openat2(2), which libc has no function for.
///
/// # Safety
/// As openat2(2).
pub unsafe fn by_openat2(at: c_int, path: Path, how: *const core::ffi::c_void, bytes: usize) -> c_int {
    // A struct open_how begins with the flags.
    let flags = readable::read(how.cast::<u64>()).map_or(0, |flags| flags as c_int);
    // SAFETY: the program's contract.
    let changing = unsafe { before(at, path, flags) };
    // SAFETY: the program's contract.
    let open = || unsafe { raw::pass(libc::SYS_openat2, raw::arg(at), path as usize, how as usize, bytes, 0, 0) };
    let fd = after(room::needing_number(|| errno::libc_result(open()) as c_int), flags);
    drop(changing);
    fd
}

/// Begins to change a file as `before` does, if stdio is about to cut the file to nothing.
///
/// # Safety
/// The path and the mode are the program's, as fopen(3) demands.
unsafe fn before_stdio(path: Path, mode: Path) -> Option<Changing> {
    // SAFETY: the program's contract: NUL-terminated.
    if mode.is_null() || unsafe { mode.read() } != b'w' as c_char {
        return None;
    }
    // SAFETY: the program's contract.
    unsafe { before(libc::AT_FDCWD, path, libc::O_TRUNC) }
}

/// Enters the file of a stream that stdio has opened. If the stream may write, nobody sees when it does.
fn after_stdio(file: File, mode: Path) -> File {
    if file.is_null() || !lane::active() {
        return file;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    // SAFETY: stdio has just made it.
    let fd = unsafe { libc::fileno(file) };
    // SAFETY: fopen has read the mode: NUL-terminated.
    let mode = unsafe { core::ffi::CStr::from_ptr(mode) }.to_bytes();
    // The file is known from here on, so that another open of it in the program finds the stream.
    if mode.first() == Some(&b'r') && !mode.contains(&b'+') {
        tracking::opened_for_others(fd, libc::O_RDONLY, Reason::Stdio);
        return file;
    }
    tracking::opened_for_others(fd, libc::O_RDWR, Reason::Stdio);
    if let Some(group) = GroupRef::of(fd) {
        group.node().end(Reason::Stdio);
        group.node().drain();
        group.node().revalidate(fd);
    }
    file
}

macro_rules! stdio {
    ($($name:ident)*) => {
        $(
            /// stdio's function of that name.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(path: Path, mode: Path) -> File {
                // SAFETY: the program's contract.
                let changing = unsafe { before_stdio(path, mode) };
                // SAFETY: the program's contract.
                let open = || unsafe { real::$name(path, mode) };
                let file = after_stdio(room::needing(room::number_of_stream, open), mode);
                drop(changing);
                file
            }
        )*
    };
}

stdio! { fopen fopen64 }

macro_rules! reopens {
    ($($name:ident)*) => {
        $(
            /// freopen(3): closes, and opens something else.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(path: Path, mode: Path, file: File) -> File {
                // SAFETY: the program's contract.
                let _undisturbed = unsafe { super::close::undisturbed(file) };
                // SAFETY: the program's contract.
                let entry = unsafe { super::close::before_stream(file) };
                // SAFETY: the program's contract.
                let changing = unsafe { before_stdio(path, mode) };
                // SAFETY: the program's contract.
                let file = unsafe { real::$name(path, mode, file) };
                let _errno = errno::kept();
                drop(changing);
                let _ = tracking::closed(entry); // freopen(3): errors of closing are not told
                after_stdio(file, mode)
            }
        )*
    };
}

reopens! { freopen freopen64 }

/// fdopen(3): from here on stdio reads and writes where nobody sees it.
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: Path) -> File {
    // SAFETY: the program's contract.
    let file = unsafe { real::fdopen(fd, mode) };
    if table::get(fd) == Entry::Nothing {
        return file;
    }
    let _undisturbed = Undisturbed::begin();
    if !file.is_null()
        && let Some(group) = GroupRef::proven(fd)
    {
        let _errno = errno::kept();
        group.node().end(Reason::Stdio);
        group.node().drain();
        group.node().revalidate(fd);
    }
    file
}
