//! stat, statx, lseek and their kin. A program that asks for a file's attributes gets those of after its own writes, as
//! on one mount: where lanes are separate clients, the client of the opened lane asks its server first if the program
//! has written the file through other lanes since. A file that the program watches stays on the opened lane, because
//! the kernel tells the events of that client.

use core::ffi::{c_char, c_int, c_uint};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::state::group::{self, GroupRef};
use crate::state::node;
use crate::state::process;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

type Text = *const c_char;
type Stat = *mut libc::stat;

/// Brings the attributes of an open file up to date.
#[inline]
fn look_again(fd: c_int) {
    if table::get(fd) != Entry::Nothing && group::any_apart() {
        look_again_at_file(fd);
    }
}

#[cold]
fn look_again_at_file(fd: c_int) {
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    if let Some(group) = GroupRef::of(fd).filter(|group| group.node().is_behind())
        && GroupRef::proven(fd).is_some()
    {
        group.node().revalidate(fd);
    }
}

/// Brings the attributes of the file with that name up to date. `flags` are those of statx(2).
#[inline]
fn look_again_at(directory: c_int, path: Text, flags: c_int) {
    if group::any_apart() && flags & libc::AT_STATX_DONT_SYNC == 0 {
        look_again_at_path(directory, path, flags & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH));
    }
}

#[cold]
fn look_again_at_path(directory: c_int, path: Text, flags: c_int) {
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    process::notice_fork();
    // SAFETY: the kernel reads the path; a bad one is its EFAULT.
    let identity = unsafe { raw::identity_at(directory, path, flags) };
    let Some(node) = identity.ok().and_then(|found| node::find(found.device, found.inode)) else { return };
    if node.get().is_behind() {
        // SAFETY: the kernel reads the path; a bad one is its EFAULT.
        let _ = unsafe { raw::answers_at(directory, path, flags) }; // a failure changes nothing: it is a refresh
    }
    node.release();
}

/// The functions that ask for attributes: their arguments, and the question that goes before.
macro_rules! asks {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, after $look:expr;)*) => {
        $(
            /// The function of that name of stat(2), statx(2) or lseek(2).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                $look;
                // SAFETY: the program's contract.
                unsafe { real::$name($($argument),*) }
            }
        )*
    };
}

const HERE: c_int = libc::AT_FDCWD;
const LINK: c_int = libc::AT_SYMLINK_NOFOLLOW;

asks! {
    fstat(fd: c_int, to: Stat) -> c_int, after look_again(fd);
    fstat64(fd: c_int, to: Stat) -> c_int, after look_again(fd);
    stat(path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, 0);
    stat64(path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, 0);
    lstat(path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, LINK);
    lstat64(path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, LINK);
    fstatat(at: c_int, path: Text, to: Stat, flags: c_int) -> c_int, after look_again_at(at, path, flags);
    fstatat64(at: c_int, path: Text, to: Stat, flags: c_int) -> c_int, after look_again_at(at, path, flags);
    statx(at: c_int, path: Text, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int,
        after look_again_at(at, path, flags);
    lseek(fd: c_int, offset: i64, from: c_int) -> i64, after look_for_the_end(fd, from);
    lseek64(fd: c_int, offset: i64, from: c_int) -> i64, after look_for_the_end(fd, from);
    // Of programs that were built with glibc 2.32 or older.
    __fxstat(version: c_int, fd: c_int, to: Stat) -> c_int, after look_again(fd);
    __fxstat64(version: c_int, fd: c_int, to: Stat) -> c_int, after look_again(fd);
    __xstat(version: c_int, path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, 0);
    __xstat64(version: c_int, path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, 0);
    __lxstat(version: c_int, path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, LINK);
    __lxstat64(version: c_int, path: Text, to: Stat) -> c_int, after look_again_at(HERE, path, LINK);
    __fxstatat(version: c_int, at: c_int, path: Text, to: Stat, flags: c_int) -> c_int,
        after look_again_at(at, path, flags);
    __fxstatat64(version: c_int, at: c_int, path: Text, to: Stat, flags: c_int) -> c_int,
        after look_again_at(at, path, flags);
}

/// SEEK_END, SEEK_DATA and SEEK_HOLE ask for attributes; the other places do not.
#[inline]
fn look_for_the_end(fd: c_int, from: c_int) {
    if !matches!(from, libc::SEEK_SET | libc::SEEK_CUR) {
        look_again(fd);
    }
}

/// inotify_add_watch(2).
///
/// # Safety
/// As inotify_add_watch(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn inotify_add_watch(fd: c_int, path: Text, mask: u32) -> c_int {
    if group::any_apart() {
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        process::notice_fork();
        let flags = if mask & libc::IN_DONT_FOLLOW != 0 { LINK } else { 0 };
        // SAFETY: the kernel reads the path; a bad one is its EFAULT.
        let identity = unsafe { raw::identity_at(HERE, path, flags) };
        if let Some(node) = identity.ok().and_then(|found| node::find(found.device, found.inode)) {
            if node.get().is_apart() {
                node.get().end(Reason::Watched);
            }
            node.release();
        }
    }
    // SAFETY: the program's contract.
    unsafe { real::inotify_add_watch(fd, path, mask) }
}
