//! The process that owns a board: the process id alone is not enough, ids are used again and programs replace
//! themselves.

use std::ffi::CStr;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// A process, from its birth to its end or the next exec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The process id in the process's own PID namespace.
    pub pid: u64,
    /// The time when the process started, in clock ticks since boot (field 22 of /proc/PID/stat, proc(5)).
    pub start_ticks: u64,
    /// The inode of the process's PID namespace; 0 if unknown.
    pub pid_namespace: u64,
    /// Device and inode of its program; 0 if unknown.
    pub exe: (u64, u64),
}

impl Owner {
    /// The calling process. Allocates nothing; makes raw system calls only.
    pub fn this() -> Owner {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs().into();
        Owner { pid, ..owner_at(c"/proc/self/stat", c"/proc/self/ns/pid", c"/proc/self/exe") }
    }

    /// True if this process exists. The reader cannot look up processes of another PID namespace, and believes that
    /// they exist.
    pub fn is_alive(&self, reader: &Owner) -> bool {
        if self.pid_namespace != reader.pid_namespace {
            return true;
        }
        let path = |name: &str| std::ffi::CString::new(format!("/proc/{}/{name}", self.pid)).unwrap_or_default();
        let now = owner_at(&path("stat"), &path("ns/pid"), &path("exe"));
        now.start_ticks != 0
            && now.start_ticks == self.start_ticks
            // The program of another user's process cannot be looked at.
            && (now.exe == (0, 0) || self.exe == (0, 0) || now.exe == self.exe)
    }
}

fn owner_at(stat: &CStr, namespace: &CStr, exe: &CStr) -> Owner {
    let inode = |path: &CStr| rustix::fs::statat(CWD, path, AtFlags::empty()).map(|stat| (stat.st_dev, stat.st_ino));
    #[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
    let wide = |(device, inode)| (device as u64, inode as u64);
    Owner {
        pid: 0,
        start_ticks: start_ticks(stat).unwrap_or(0),
        pid_namespace: inode(namespace).map_or(0, |(_, inode)| inode),
        exe: inode(exe).map_or((0, 0), wide),
    }
}

fn start_ticks(stat: &CStr) -> Option<u64> {
    let file = rustix::fs::openat(CWD, stat, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; 1024];
    let read = rustix::io::read(&file, &mut buffer);
    sys::raw::close(file);
    parse_start_ticks(buffer.get(..read.ok()?)?)
}

/// Field 22; the name in field 2 may hold anything, also blanks and brackets.
fn parse_start_ticks(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let field = stat.get(name_end + 1..)?.split(|&byte| byte == b' ').nth(20)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 12345 0";
        for name in ["cat", "a b", "x) S 1 2 3", "(("] {
            assert_eq!(parse_start_ticks(format!("42 ({name}) {rest}").as_bytes()), Some(12345), "{name}");
        }
        for bad in ["", "42 (cat", "42 (cat) S 1 2"] {
            assert_eq!(parse_start_ticks(bad.as_bytes()), None);
        }
    }

    #[test]
    fn this_process_is_alive_and_another_start_is_not() {
        let this = Owner::this();
        assert!(this.start_ticks > 0 && this.pid == u64::from(std::process::id()));
        assert!(this.is_alive(&this));
        assert!(!Owner { start_ticks: this.start_ticks + 1, ..this }.is_alive(&this));
        assert!(!Owner { exe: (this.exe.0, this.exe.1 + 1), ..this }.is_alive(&this), "it has called exec");
    }

    #[test]
    fn processes_of_another_namespace_are_believed() {
        let this = Owner::this();
        assert!(Owner { pid_namespace: 1, start_ticks: 1, ..this }.is_alive(&this));
    }
}
