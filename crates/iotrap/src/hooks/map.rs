//! mmap: memory that is the page cache of one lane. A file that is mapped is not spread. Mappings that live on when the
//! file has been closed are found when it is opened again ([`crate::open::others`]).

use core::ffi::{c_int, c_void};

use crate::abi::errno;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::tracking;
use crate::state::lane;
use crate::state::node;
use crate::state::reason::Reason;

/// Ends the spreading of a file that is about to be mapped, or has been, whatever descriptor it is mapped through.
///
/// The hook calls this before and after the call: before, so that the requests on lanes have ended when the program
/// looks at the memory; after, because another thread may open the file in between. That thread looks for mappings, and
/// one of the two sees the other.
pub fn around<T>(fd: c_int, protection: c_int, flags: c_int, map: impl FnOnce() -> T) -> T {
    if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !lane::active() {
        return map();
    }
    let writes = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_WRITE != 0;
    end(fd, writes);
    let result = map();
    end(fd, writes);
    result
}

fn end(fd: c_int, writes: bool) {
    if !node::any() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let Some(known) = tracking::node_of_file(fd) else { return };
    let _errno = errno::kept();
    let node = known.get();
    node.end(Reason::Mapped);
    node.drain();
    node.revalidate(fd);
    if writes {
        node.soil();
    }
    known.release();
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
                around(fd, protection, flags, || {
                    // SAFETY: the contract of mmap(2), which the program keeps.
                    unsafe { real::$name(address, length, protection, flags, fd, offset) }
                })
            }
        )*
    };
}

maps! { mmap mmap64 }

/// madvise(2): MADV_REMOVE makes a hole in the file that is mapped there. (Nothing of a mapped file is spread.)
///
/// # Safety
/// As madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    if advice == libc::MADV_REMOVE {
        crate::aio::async_io::settle_writes();
    }
    // SAFETY: the program's contract.
    unsafe { real::madvise(address, length, advice) }
}
