//! execve(2) and its family, and daemon(3): the program gives its process up to another one, or goes on as a child. The
//! hooks wait for the program's writes first, as the kernel would have done them inside io_submit. They name a program
//! of which the library will see nothing ([`crate::hooks::executed`]).
//!
//! libc's functions call each other inside libc, where nobody can intervene, so each of them has a hook. posix_spawn(3)
//! waits for nothing, because the process goes on; its program is named. system(3) and popen(3) need no hook: they
//! execute a shell, and the shell's own calls are seen.

use core::ffi::{c_char, c_int, c_void};

use crate::abi::errno;
use crate::abi::real;
use crate::aio::async_io;
use crate::hooks::executed::{self, Program};
use crate::state::process::LimitForChild;

type Text = *const c_char;
type List = *const Text;

macro_rules! executes {
    ($($name:ident($($argument:ident: $type:ty),*) names $program:expr;)*) => {
        $(
            /// The function of that name in exec(3).
            ///
            /// # Safety
            /// The arguments are what exec(3) demands.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                let _ending = async_io::ending();
                {
                    let _errno = errno::kept();
                    // SAFETY: the program upholds, by exec(3), that the path is NUL-terminated and stays in memory.
                    unsafe { executed::announce($program) };
                }
                let _limit = LimitForChild::begin();
                // SAFETY: the program passes NUL-terminated strings and lists, as the function of this name demands.
                unsafe { real::$name($($argument),*) }
            }
        )*
    };
}

executes! {
    execve(path: Text, arguments: List, environment: List) names Program::Path(libc::AT_FDCWD, path);
    execv(path: Text, arguments: List) names Program::Path(libc::AT_FDCWD, path);
    execvp(file: Text, arguments: List) names Program::Command(file);
    execvpe(file: Text, arguments: List, environment: List) names Program::Command(file);
    fexecve(fd: c_int, arguments: List, environment: List) names Program::File(fd);
    execveat(directory: c_int, path: Text, arguments: List, environment: List, flags: c_int)
        names if flags & libc::AT_EMPTY_PATH != 0 { Program::File(directory) } else { Program::Path(directory, path) };
}

macro_rules! spawns {
    ($($name:ident names $program:expr;)*) => {
        $(
            /// The function of that name of posix_spawn(3).
            ///
            /// # Safety
            /// The arguments are what posix_spawn(3) demands.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                pid: *mut libc::pid_t,
                path: Text,
                actions: *const c_void,
                attributes: *const c_void,
                arguments: List,
                environment: List,
            ) -> c_int {
                {
                    let _errno = errno::kept();
                    // SAFETY: the program upholds, by posix_spawn(3), that the path is NUL-terminated.
                    unsafe { executed::announce($program(path)) };
                }
                let _limit = LimitForChild::begin();
                // SAFETY: the program passes NUL-terminated strings and lists, as the function of this name demands.
                unsafe { real::$name(pid, path, actions, attributes, arguments, environment) }
            }
        )*
    };
}

spawns! {
    posix_spawn names |path| Program::Path(libc::AT_FDCWD, path);
    posix_spawnp names Program::Command;
}

/// daemon(3): the parent ends inside libc, by a call that has no hook.
///
/// # Safety
/// No argument has to be valid for memory safety.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(keep_directory: c_int, keep_streams: c_int) -> c_int {
    let _ending = async_io::ending();
    // SAFETY: the system call takes integers only, so it accesses no memory of this process.
    unsafe { real::daemon(keep_directory, keep_streams) }
}

/// A function whose arguments, from the second on, are a list as execl(3) has it. Rust cannot define such functions:
/// this one makes an array of them, without copying those that are on the stack already, and calls `$with` with the
/// first argument and the address of the array.
macro_rules! takes_list {
    ($($name:ident => $with:ident;)*) => {
        $(
            /// The function of that name in exec(3).
            ///
            /// # Safety
            /// The arguments are what exec(3) demands.
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(path: Text) -> c_int {
                // The return address lies between the arguments in registers and those on the stack: it moves below
                // them.
                core::arch::naked_asm!(
                    "pop r10",
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "push r10",
                    "call {with}",
                    "pop r10",
                    "add rsp, 40",
                    "push r10",
                    "ret",
                    with = sym $with,
                )
            }

            /// The function of that name in exec(3).
            ///
            /// # Safety
            /// The arguments are what exec(3) demands.
            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(path: Text) -> c_int {
                core::arch::naked_asm!(
                    "sub sp, sp, #64",
                    "str x30, [sp]",
                    "stp x1, x2, [sp, #8]",
                    "stp x3, x4, [sp, #24]",
                    "stp x5, x6, [sp, #40]",
                    "str x7, [sp, #56]",
                    "add x1, sp, #8",
                    "bl {with}",
                    "ldr x30, [sp]",
                    "add sp, sp, #64",
                    "ret",
                    with = sym $with,
                )
            }
        )*
    };
}

takes_list! {
    execl => list_execv;
    execlp => list_execvp;
    execle => list_execve;
}

unsafe extern "C" fn list_execv(path: Text, arguments: List) -> c_int {
    // SAFETY: exec(3): the list ends with null.
    unsafe { execv(path, arguments) }
}

unsafe extern "C" fn list_execvp(file: Text, arguments: List) -> c_int {
    // SAFETY: exec(3): the list ends with null.
    unsafe { execvp(file, arguments) }
}

/// The environment follows the null that ends the list.
unsafe extern "C" fn list_execve(path: Text, arguments: List) -> c_int {
    let mut end = arguments;
    // SAFETY: exec(3): the list ends with null.
    while !unsafe { *end }.is_null() {
        end = end.wrapping_add(1);
    }
    // SAFETY: exec(3): there is one more argument.
    let environment = unsafe { *end.wrapping_add(1) };
    // SAFETY: exec(3): a list of arguments, and one of variables.
    unsafe { execve(path, arguments, environment.cast()) }
}
