//! mmap: memory that is the page cache of one lane. It ends spreading.

use core::ffi::{c_int, c_void};

use crate::errno;
use crate::group::GroupRef;
use crate::lane;
use crate::real;
use crate::reason::Reason;
use crate::table::{self, Entry};
use crate::tracking;

/// A file is about to be mapped.
pub fn before(fd: c_int, protection: c_int, flags: c_int) {
    if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !lane::active() {
        return;
    }
    let writes = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_WRITE != 0;
    let _errno = errno::kept();
    if table::get(fd) == Entry::Nothing {
        // A descriptor that stdio or somebody else has opened: what is written through it matters.
        if writes && let Some(node) = tracking::node_of_file(fd) {
            node.get().end(Reason::Mapped);
            node.get().drain();
            node.release();
        }
        return;
    }
    if let Some(group) = GroupRef::of(fd) {
        let node = group.node();
        node.end(Reason::Mapped);
        node.drain();
        node.revalidate(fd);
        if writes {
            node.soil();
        }
    }
}

macro_rules! maps {
    ($($name:ident)*) => {
        $(
            /// mmap(2).
            ///
            /// # Safety
            /// As mmap(2).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                address: *mut c_void,
                length: usize,
                protection: c_int,
                flags: c_int,
                fd: c_int,
                offset: i64,
            ) -> *mut c_void {
                before(fd, protection, flags);
                // SAFETY: the caller's.
                unsafe { real::$name(address, length, protection, flags, fd, offset) }
            }
        )*
    };
}

maps! { mmap mmap64 }
