//! A program that a trapped program executes, and of which the library will see nothing: it is named once, because
//! nobody else can. `plimsoll trap` looks at the program that it starts itself (`lanes::doctor::program`), with more
//! words and with memory to allocate. The functions here run between fork and exec: system calls and the stack only.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::readable;
use crate::abi::said;
use crate::abi::undisturbed::Undisturbed;
use crate::aio::async_io;
use crate::state::lane;

/// The number of words in which programs that were named are noted, a bit each.
const WORDS: usize = 512;

/// The programs that were named: memory that forked children share, so that a shell names each program once.
static NAMED: AtomicPtr<[AtomicU64; WORDS]> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the shared memory. Without it every execution is named.
pub fn prepare() {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as usize;
    let bytes = size_of::<[AtomicU64; WORDS]>();
    // SAFETY: a new anonymous mapping, at no particular address.
    let page = unsafe { raw::call(libc::SYS_mmap, 0, bytes, protection, flags, raw::arg(-1), 0) };
    if let Ok(page) = raw::check(page) {
        NAMED.store(core::ptr::with_exposed_provenance_mut(page), Release);
    }
}

/// The program that a function of exec(3) is about to execute.
#[derive(Clone, Copy)]
pub enum Program {
    /// A path, relative to a directory.
    Path(c_int, *const c_char),
    /// A name without a slash is looked up in PATH, as by execvp(3). Any other is a path.
    Command(*const c_char),
    /// A descriptor.
    File(c_int),
}

/// Names a program that is about to be executed, if nothing of it can be seen.
///
/// # Safety
/// A path is null, or NUL-terminated as execve(2) demands.
pub unsafe fn announce(program: Program) {
    if !(lane::active() || async_io::active()) {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    // SAFETY: as for this function.
    own_stack::run(|| unsafe { look_at(program) });
}

/// Names the program if the library will see nothing of it.
///
/// # Safety
/// As [`announce`].
unsafe fn look_at(program: Program) {
    match program {
        Program::File(file) => announce_file(file),
        Program::Path(directory, path) => {
            // Longer paths than PATH_MAX are the kernel's to refuse.
            if let Some(path) = readable::text(path, &mut [0; libc::PATH_MAX as usize]) {
                announce_path(directory, path);
            }
        }
        Program::Command(name) => {
            let mut room = [0; libc::PATH_MAX as usize];
            let Some(name) = readable::text(name, &mut room) else { return };
            if name.to_bytes().contains(&b'/') {
                announce_path(libc::AT_FDCWD, name);
            } else {
                announce_command(name.to_bytes());
            }
        }
    }
}

/// Names the first program of this name in the directories of PATH. Without the variable, libc searches /bin and
/// /usr/bin.
fn announce_command(name: &[u8]) {
    // SAFETY: a NUL-terminated name. A program that changes PATH in another thread at this moment breaks the rule of
    // setenv(3).
    let value = unsafe { libc::getenv(c"PATH".as_ptr()) };
    let directories = if value.is_null() {
        b"/bin:/usr/bin" as &[u8]
    } else {
        // SAFETY: the NUL-terminated value of the variable.
        unsafe { CStr::from_ptr(value) }.to_bytes()
    };
    for directory in directories.split(|&byte| byte == b':') {
        let mut path = raw::Digits::<4600>::empty();
        path.push(if directory.is_empty() { b"." } else { directory });
        path.push(b"/");
        path.push(name);
        if path.c_str().is_some_and(|path| announce_path(libc::AT_FDCWD, path)) {
            return;
        }
    }
}

/// Names the program at this path. False if the path leads to nothing that this process may read.
fn announce_path(directory: c_int, path: &CStr) -> bool {
    // A named pipe would wait for its other end.
    let Ok(file) = raw::open_at(directory, path, libc::O_RDONLY | libc::O_NONBLOCK) else { return false };
    announce_file(file);
    let _ = raw::close(file);
    true
}

fn announce_file(file: c_int) {
    let Some((why, stat)) = raw::fstat(file).ok().and_then(|stat| Some((why_not(file, &stat)?, stat))) else { return };
    let mut room = [0u8; 4096];
    if raw::path_of(file, &mut room).is_some_and(is_of_valgrind) || !is_first(&stat) {
        return;
    }
    let mut line = raw::Digits::<4600>::empty();
    line.push(b"iotrap: nothing is spread in ");
    line.push(raw::path_of(file, &mut room).unwrap_or(b"a program"));
    line.push(b", which the program executes: it is ");
    line.push(why);
    line.push(b"\n");
    said::line(line.as_bytes());
}

/// True for the path of a tool of valgrind, which is linked statically, loads the program itself, and obeys LD_PRELOAD.
fn is_of_valgrind(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').nth(1) == Some(b"valgrind")
}

fn is_first(stat: &libc::stat) -> bool {
    let named = NAMED.load(Acquire);
    // SAFETY: null, or the memory that `prepare` has mapped, which nobody unmaps.
    let Some(named) = (unsafe { named.as_ref() }) else { return true };
    let hash = (stat.st_ino ^ stat.st_dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let (word, bit) = (hash as usize / 64 % WORDS, 1u64 << (hash % 64));
    named.get(word).is_none_or(|word| word.fetch_or(bit, Relaxed) & bit == 0)
}

/// The reason why the library sees nothing of a program; None if it does, or if the file is a script.
fn why_not(file: c_int, stat: &libc::stat) -> Option<&'static [u8]> {
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    if stat.st_mode & libc::S_ISUID != 0 && stat.st_uid != raw::user() {
        return Some(b"setuid, and its loader ignores LD_PRELOAD");
    }
    let mut room = [0u8; HEAD];
    let head = read(file, 0, &mut room);
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    // elf(5), the 64-bit layout: e_phoff, e_phentsize, e_phnum; p_type, p_offset.
    let (first, size, count) = (long(head, 32)?, half(head, 54)?, half(head, 56)?);
    let mut has_loader = false;
    for at in 0..usize::from(count) {
        let header = head.get(usize::try_from(first).ok()?.checked_add(at * usize::from(size))?..)?;
        let (kind, offset) = (word(header, 0)?, long(header, 8)?);
        let mut part = [0u8; 64];
        if kind == PT_INTERP {
            has_loader = true;
            if read(file, offset, &mut part).windows(7).any(|name| name == b"ld-musl") {
                return Some(b"linked against musl, and the library needs glibc");
            }
        }
        // A note: the lengths of its name and of its contents, its type, its name.
        if kind == PT_NOTE && read(file, offset, &mut part).get(12..16) == Some(b"Go\0\0") {
            return Some(b"a Go program, whose system calls do not go through libc");
        }
    }
    (!has_loader).then_some(b"linked statically, and no loader obeys LD_PRELOAD")
}

/// The ELF header and the program headers, which follow it in every program that a linker makes.
const HEAD: usize = 4096;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

fn read(file: c_int, offset: u64, room: &mut [u8]) -> &[u8] {
    let Ok(offset) = i64::try_from(offset) else { return &[] };
    // SAFETY: the slice is valid for its length.
    let got = unsafe { raw::transfer(libc::SYS_pread64, file, room.as_mut_ptr().cast(), room.len(), offset) };
    usize::try_from(got).ok().and_then(|got| room.get(..got)).unwrap_or_default()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}
