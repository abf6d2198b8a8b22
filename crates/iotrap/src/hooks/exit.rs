//! _exit and _Exit: the end of a program without its destructors. What it has written through us is written first, as
//! the kernel would have done inside io_submit.

use core::ffi::c_int;

use crate::async_io;
use crate::raw;

macro_rules! exits {
    ($($name:ident)*) => {
        $(
            /// _exit(2).
            ///
            /// # Safety
            /// As that.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(status: c_int) -> ! {
                async_io::settle_writes();
                async_io::tell();
                loop {
                    // SAFETY: an integer; it does not return.
                    unsafe { raw::call(libc::SYS_exit_group, raw::arg(status), 0, 0, 0, 0, 0) };
                }
            }
        )*
    };
}

exits! { _exit _Exit }
