//! Second names under which glibc exports the functions of other hooks. Old programs and libraries call them.

use core::ffi::{c_char, c_int, c_void};

use super::{close, dup, open, room, rw};

macro_rules! second_names {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $first:path;)*) => {
        $(
            /// A second name of a function.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the program's contract.
                unsafe { $first($($argument),*) }
            }
        )*
    };
}

type Text = *const c_char;
type File = *mut libc::FILE;

second_names! {
    __open(path: Text, flags: c_int, mode: libc::mode_t) -> c_int = open::open;
    __open64(path: Text, flags: c_int, mode: libc::mode_t) -> c_int = open::open64;
    __close(fd: c_int) -> c_int = close::close;
    __dup2(from: c_int, to: c_int) -> c_int = dup::dup2;
    __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = dup::fcntl;
    __pread64(fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize = rw::pread64;
    __pwrite64(fd: c_int, buffer: *const c_void, count: usize, offset: i64) -> isize = rw::pwrite64;
    __read(fd: c_int, buffer: *mut c_void, count: usize) -> isize = rw::read;
    __write(fd: c_int, buffer: *const c_void, count: usize) -> isize = rw::write;
    __pipe(pair: *mut c_int) -> c_int = room::pipe;
    _IO_fopen(path: Text, mode: Text) -> File = open::fopen;
    _IO_fdopen(fd: c_int, mode: Text) -> File = open::fdopen;
    _IO_fclose(file: File) -> c_int = close::fclose;
    _IO_popen(command: Text, kind: Text) -> File = room::popen;
}
