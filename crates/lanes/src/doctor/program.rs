//! The question whether a program can be intercepted at all: the dynamic loader has to run and obey LD_PRELOAD, and the
//! program has to make its calls through libc.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The fate of a program that is started with LD_PRELOAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interception {
    /// The library is loaded and sees the program's calls.
    Works,
    /// The library sees the program's calls of libc. The program's own code makes system calls without libc, too, which
    /// the library sees with `--raw` only.
    Inline,
    /// The file is a script: its interpreter and the interpreter's fate.
    Script(PathBuf, Box<Interception>),
    /// The program has no dynamic loader in it.
    Static,
    /// The program is a Go program: it makes its system calls without libc.
    Go,
    /// The program's loader is musl's; the library is made for glibc.
    Musl,
    /// The program is made for another processor than the library.
    OtherArchitecture,
    /// The loader ignores LD_PRELOAD where a program gets more rights than its caller has: setuid, setgid, file
    /// capabilities.
    Privileged(&'static str),
    /// The file is neither ELF nor a script.
    NoProgram,
    /// The file cannot be read: its contents are unknown.
    Unreadable,
}

impl Interception {
    /// True if the library sees the program's calls.
    pub fn works(&self) -> bool {
        match self {
            Interception::Works | Interception::Inline => true,
            Interception::Script(_, inner) => inner.works(),
            _ => false,
        }
    }
}

impl fmt::Display for Interception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Interception::Works => "can be intercepted",
            Interception::Inline => {
                "can be intercepted; its code makes system calls without libc, too, which `plimsoll trap --raw` sees"
            }
            Interception::Script(interpreter, inner) => {
                return write!(f, "is a script for {}, which {inner}", interpreter.display());
            }
            Interception::Static => {
                "is linked statically: no loader, no LD_PRELOAD; use a dynamically linked build of it"
            }
            Interception::Go => "is a Go program: its system calls do not go through libc, nothing of it can be spread",
            Interception::Musl => "is linked against musl: libiotrap needs glibc",
            Interception::OtherArchitecture => "is made for another processor: the loader leaves libiotrap out",
            Interception::Privileged(how) => {
                return write!(
                    f,
                    "is {how}: the loader ignores LD_PRELOAD; start it as the user that it becomes, or from a copy without that"
                );
            }
            Interception::NoProgram => "is neither an ELF program nor a script",
            Interception::Unreadable => "cannot be read: lanes cannot judge it",
        })
    }
}

/// The path of a program, as execvp(3) would find it: as it is if there is a slash in it, else along `path` ($PATH).
pub fn find(program: &Path, path: &str) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    if program.as_os_str().as_bytes().contains(&b'/') {
        return program.exists().then(|| program.to_owned());
    }
    let executable =
        |candidate: &PathBuf| candidate.metadata().is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0);
    path.split(':')
        .map(|directory| Path::new(if directory.is_empty() { "." } else { directory }).join(program))
        .find(executable)
}

/// The fate of this program when the calling user starts it with LD_PRELOAD.
pub fn examine(program: &Path) -> Interception {
    examine_deep(program, 4)
}

fn examine_deep(program: &Path, scripts: u32) -> Interception {
    let Ok(file) = File::open(program) else { return Interception::Unreadable };
    let Ok(data) = file.metadata() else { return Interception::Unreadable };
    if !data.is_file() {
        return Interception::NoProgram;
    }
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if data.mode() & 0o4000 != 0 && data.uid() != user {
        return Interception::Privileged("setuid");
    }
    if data.mode() & 0o2000 != 0 && data.gid() != group {
        return Interception::Privileged("setgid");
    }
    let mut capabilities = [0; 64];
    if user != 0 && rustix::fs::fgetxattr(&file, c"security.capability", &mut capabilities[..]).is_ok() {
        return Interception::Privileged("given file capabilities");
    }
    match contents(&|at, room| file.read_at(room, at).unwrap_or(0)) {
        Contents::Script(interpreter) if scripts > 0 => {
            let inner = examine_deep(&interpreter, scripts - 1);
            Interception::Script(interpreter, Box::new(inner))
        }
        Contents::Script(_) | Contents::Other => Interception::NoProgram,
        Contents::Elf(elf) => elf,
    }
}

/// The kind of contents that a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// `#!` and an interpreter.
    Script(PathBuf),
    /// An ELF file, and its fate.
    Elf(Interception),
    /// The file is neither an ELF program nor a script.
    Other,
}

const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// The most bytes of a note or an interpreter that are read: these parts are short.
const PART_MAX: usize = 64 << 10;
/// The most program headers that are read: a program has few.
const HEADERS_MAX: usize = 512;

/// The contents of a file. `read` fills the room with bytes from a position of the file and returns how many it filled.
/// The function trusts no length that the file states. Source: elf(5).
pub fn contents(read: &dyn Fn(u64, &mut [u8]) -> usize) -> Contents {
    let mut head = [0; 512];
    let length = read(0, &mut head).min(head.len());
    let head = &head[..length];
    if let Some(line) = head.strip_prefix(b"#!") {
        use std::os::unix::ffi::OsStrExt;
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let word = line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty());
        return word
            .map_or(Contents::Other, |word| Contents::Script(Path::new(std::ffi::OsStr::from_bytes(word)).into()));
    }
    if !head.starts_with(b"\x7fELF") {
        return Contents::Other;
    }
    let elf = |found| Contents::Elf(found);
    // Class 2 is 64 bits, data 1 is little-endian: both architectures of the library have these.
    if head.get(4..6) != Some(&[2, 1]) || u16_at(head, 18) != Some(MACHINE) {
        return elf(Interception::OtherArchitecture);
    }
    let (Some(offset), Some(size), Some(count)) = (u64_at(head, 32), u16_at(head, 54), u16_at(head, 56)) else {
        return Contents::Other;
    };
    let (mut interpreter, mut go, mut inline) = (None, false, false);
    for index in 0..usize::from(count).min(HEADERS_MAX) {
        let mut header = [0; 56];
        let at = offset.saturating_add(index as u64 * u64::from(size));
        if size < 56 || read(at, &mut header) < header.len() {
            return Contents::Other;
        }
        let part = || {
            let (at, length) = (u64_at(&header, 8).unwrap_or(0), u64_at(&header, 32).unwrap_or(0));
            let mut room = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(PART_MAX)];
            let length = read(at, &mut room);
            room.truncate(length);
            room
        };
        match u32_at(&header, 0) {
            Some(PT_LOAD) if u32_at(&header, 4).unwrap_or(0) & PF_X != 0 && MACHINE == X86_64 => {
                let (at, length) = (u64_at(&header, 8).unwrap_or(0), u64_at(&header, 32).unwrap_or(0));
                inline |= has_inline_calls(read, at, length);
            }
            Some(PT_INTERP) => interpreter = Some(part()),
            Some(PT_NOTE) => go |= has_go_note(&part()),
            _ => {}
        }
    }
    elf(match interpreter {
        _ if go => Interception::Go,
        None => Interception::Static,
        Some(path) if path.windows(7).any(|window| window == b"ld-musl") => Interception::Musl,
        Some(_) if inline => Interception::Inline,
        Some(_) => Interception::Works,
    })
}

const X86_64: u16 = 62;
/// The most bytes of a program's text that are searched.
const TEXT_MAX: u64 = 64 << 20;
/// The most bytes between the number of a call and the call.
const NEAR: usize = 24;
/// The system calls of x86-64 by which a program gets, uses and closes files: open, close, pread64, pwrite64, dup,
/// dup2, fcntl, openat, dup3, preadv, pwritev, copy_file_range, preadv2, pwritev2, close_range, openat2; io_uring_setup
/// and io_setup with their kin.
const CALLS: [u32; 22] =
    [2, 3, 17, 18, 32, 33, 72, 206, 208, 209, 257, 292, 295, 296, 326, 327, 328, 425, 426, 427, 436, 437];

/// True if the text makes such system calls itself: `mov eax, NUMBER` is followed by `syscall`.
fn has_inline_calls(read: &dyn Fn(u64, &mut [u8]) -> usize, from: u64, length: u64) -> bool {
    let mut room = vec![0; 1 << 20];
    let (mut at, end) = (0, length.min(TEXT_MAX));
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(room.len());
        let got = read(from.saturating_add(at), &mut room[..wanted]).min(wanted);
        if room[..got].windows(2).enumerate().any(|(place, bytes)| {
            let before = &room[place.saturating_sub(NEAR)..place];
            bytes == [0x0f, 0x05]
                && before.windows(5).any(|code| code[0] == 0xb8 && u32_at(code, 1).is_some_and(|n| CALLS.contains(&n)))
        }) {
            return true;
        }
        if got < wanted || got <= NEAR + 2 {
            break;
        }
        at += (got - if got == room.len() { NEAR + 2 } else { 0 }) as u64;
    }
    false
}

/// True if one of the notes is the build id that Go's linker leaves.
fn has_go_note(mut notes: &[u8]) -> bool {
    while let (Some(name), Some(text), Some(kind)) = (u32_at(notes, 0), u32_at(notes, 4), u32_at(notes, 8)) {
        if kind == 4 && name == 4 && notes.get(12..16) == Some(b"Go\0\0") {
            return true;
        }
        let padded = |length: u32| (length as usize).next_multiple_of(4);
        match notes.get(12usize.saturating_add(padded(name)).saturating_add(padded(text))..) {
            Some(rest) if rest.len() < notes.len() => notes = rest,
            _ => break,
        }
    }
    false
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> Contents {
        contents(&|at, room| {
            let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let length = room.len().min(bytes.len() - from);
            room[..length].copy_from_slice(&bytes[from..from + length]);
            length
        })
    }

    /// A program with these segments, each given by type and bytes.
    fn elf(machine: u16, segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        let mut at = 64 + segments.len() as u64 * 56;
        for (kind, bytes) in segments {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&at.to_le_bytes());
            header[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            file.extend_from_slice(&header);
            at += bytes.len() as u64;
        }
        segments.iter().for_each(|(_, bytes)| file.extend_from_slice(bytes));
        file
    }

    const GLIBC: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
    const GO: &[u8] = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd";
    const GNU: &[u8] = b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd";

    #[test]
    fn programs_are_told_apart() {
        let mut both = GNU.to_vec();
        both.extend_from_slice(GO);
        let cases: [(Vec<u8>, Interception); 6] = [
            (elf(MACHINE, &[(1, b""), (PT_INTERP, GLIBC), (PT_NOTE, GNU)]), Interception::Works),
            (elf(MACHINE, &[(1, b"")]), Interception::Static),
            (elf(MACHINE, &[(PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0")]), Interception::Musl),
            (elf(MACHINE, &[(PT_NOTE, GO)]), Interception::Go),
            (elf(MACHINE, &[(PT_INTERP, GLIBC), (PT_NOTE, &both)]), Interception::Go),
            (elf(3, &[(PT_INTERP, GLIBC)]), Interception::OtherArchitecture),
        ];
        for (file, wanted) in cases {
            assert_eq!(of(&file), Contents::Elf(wanted));
        }
        let with_text = |text: &[u8]| {
            let mut file = elf(MACHINE, &[(PT_LOAD, text), (PT_INTERP, GLIBC)]);
            file[68..72].copy_from_slice(&PF_X.to_le_bytes());
            of(&file)
        };
        // mov eax, 426; xor edx, edx; syscall, at the border of the parts that are read. Then the number of getpid.
        let text = [&vec![0x90; (1 << 20) - 6][..], b"\xb8\xaa\x01\0\0\x31\xd2\x0f\x05"].concat();
        let wanted = if MACHINE == X86_64 { Interception::Inline } else { Interception::Works };
        assert_eq!(with_text(&text), Contents::Elf(wanted));
        assert_eq!(with_text(b"\xb8\x27\0\0\0\x0f\x05"), Contents::Elf(Interception::Works));
        assert_eq!(with_text(b"\x0f\x05\xc3"), Contents::Elf(Interception::Works));
        assert_eq!(of(b"#!/bin/sh -e\necho"), Contents::Script("/bin/sh".into()));
        assert_eq!(of(b"#! /usr/bin/env python3\n"), Contents::Script("/usr/bin/env".into()));
        assert_eq!(of(b"#!\n"), Contents::Other);
        assert_eq!(of(b"text"), Contents::Other);
        assert_eq!(of(b""), Contents::Other);
    }

    #[test]
    fn programs_of_this_machine() {
        assert!(examine(Path::new("/proc/self/exe")).works());
        assert_eq!(examine(Path::new("/etc/passwd")), Interception::NoProgram);
        assert_eq!(examine(Path::new("/")), Interception::NoProgram);
        assert_eq!(examine(Path::new("/nothing/there")), Interception::Unreadable);
        assert_eq!(find(Path::new("sh"), "/nothing:/bin"), Some("/bin/sh".into()));
        assert_eq!(find(Path::new("/bin/sh"), ""), Some("/bin/sh".into()));
        assert_eq!(find(Path::new("no-such-program"), "/bin"), None);
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let found = examine(&script);
        assert!(found.works() && found.to_string().starts_with("is a script for /bin/sh, which can be"), "{found}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), like_elf in any::<bool>()) {
            let mut file = if like_elf { elf(MACHINE, &[(PT_NOTE, GO), (PT_INTERP, GLIBC)]) } else { Vec::new() };
            for (at, byte) in bytes.iter().enumerate() {
                match file.get_mut(20 + at) {
                    Some(place) if byte % 3 == 0 => *place = *byte,
                    Some(_) => {}
                    None => file.push(*byte),
                }
            }
            of(&file);
            of(&bytes);
        }
    }
}
