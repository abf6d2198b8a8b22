//! Words that all processes of one user share, for what a process has to know of those that were killed.

use std::io;
use std::sync::atomic::AtomicU64;

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::board::Kept;
use crate::directories;
use crate::map::Words;

/// `count` words that are shared with every process of this user that asks for the same name; all 0 at first. They lie
/// in a file beside the boards ([`directories`]), and stay mapped for the life of the process. Allocates nothing, takes
/// no lock and makes raw system calls only.
///
/// The name tells the layout of the words: another layout has another name.
///
/// # Errors
/// No directory to keep the file in, no room there, ENOMEM.
pub fn shared(name: &str, count: usize) -> io::Result<&'static [AtomicU64]> {
    let mut made = None;
    directories::candidates(|directory, kept| {
        // Such a directory belongs to one run of one program.
        if kept == Kept::Afterwards {
            return Err(Errno::NOENT);
        }
        let mut path = directory.clone();
        path.enter(format_args!("{name}"))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path.c_str()?, flags, Mode::from_raw_mode(0o600))?;
        // Reserves the room: a hole that cannot be filled later would be a SIGBUS in somebody else's program. It
        // changes nothing if the room is there.
        let words = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, count as u64 * 8)
            .and_then(|()| Words::of_file(&file, count));
        sys::raw::close(file);
        made = Some(words?.keep());
        Ok(())
    })?;
    Ok(made.ok_or(Errno::NOENT)?)
}
