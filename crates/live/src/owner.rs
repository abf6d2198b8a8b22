//! The process that owns a board: the process id alone is not enough, ids are used again and programs replace
//! themselves.

use std::ffi::CStr;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::directories::Path;

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

    /// True if this process runs: it exists, has not replaced its program, and has a thread that has not ended. The
    /// reader believes that processes run which it cannot look up, as those of another PID namespace. Allocates
    /// nothing; makes raw system calls only.
    pub fn is_alive(&self, reader: &Owner) -> bool {
        if self.pid_namespace != reader.pid_namespace {
            return true;
        }
        let path = |name: &str| {
            let mut path = Path::new();
            path.push(b"/proc");
            path.enter(format_args!("{}/{name}", self.pid)).map(|()| path)
        };
        let (Ok(stat), Ok(exe)) = (path("stat"), path("exe")) else { return true };
        let (Ok(stat), Ok(exe)) = (stat.c_str(), exe.c_str()) else { return true };
        let now = match look(stat) {
            Ok(now) => now,
            Err(error) => return !matches!(error, Errno::NOENT | Errno::SRCH),
        };
        let exe = numbers_of(exe).unwrap_or((0, 0));
        now.start_ticks == self.start_ticks
            && !now.ended
            // The program of another user's process cannot be looked at.
            && (exe == (0, 0) || self.exe == (0, 0) || exe == self.exe)
    }
}

fn owner_at(stat: &CStr, namespace: &CStr, exe: &CStr) -> Owner {
    Owner {
        pid: 0,
        start_ticks: look(stat).map_or(0, |now| now.start_ticks),
        pid_namespace: numbers_of(namespace).map_or(0, |(_, inode)| inode),
        exe: numbers_of(exe).unwrap_or((0, 0)),
    }
}

/// Device and inode of a file.
#[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
fn numbers_of(path: &CStr) -> Option<(u64, u64)> {
    let stat = rustix::fs::statat(CWD, path, AtFlags::empty()).ok()?;
    Some((stat.st_dev as u64, stat.st_ino as u64))
}

/// The fields of /proc/PID/stat that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    start_ticks: u64,
    /// All of its threads have ended, and its parent has not asked for it yet. (While other threads run, the first one
    /// is a zombie, too, if it has ended.)
    ended: bool,
}

fn look(stat: &CStr) -> Result<Seen> {
    let file = rustix::fs::openat(CWD, stat, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; 1024];
    let read = rustix::io::read(&file, &mut buffer);
    sys::raw::close(file);
    parse(buffer.get(..read?).unwrap_or_default()).ok_or(Errno::INVAL)
}

/// Fields 3 (state), 20 (threads) and 22 (start); the name in field 2 may hold anything, also blanks and brackets.
fn parse(stat: &[u8]) -> Option<Seen> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = stat.get(name_end + 1..)?.split(|&byte| byte == b' ').skip(1);
    let number = |field: Option<&[u8]>| std::str::from_utf8(field?).ok()?.parse::<u64>().ok();
    let state = fields.next()?;
    let threads = number(fields.nth(16))?;
    let start_ticks = number(fields.nth(1))?;
    Some(Seen { start_ticks, ended: matches!(state, b"Z" | b"X") && threads <= 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_any_name() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 12345 0";
        for name in ["cat", "a b", "x) S 1 2 3", "(("] {
            let seen = parse(format!("42 ({name}) S {rest}").as_bytes());
            assert_eq!(seen, Some(Seen { start_ticks: 12345, ended: false }), "{name}");
        }
        for bad in ["", "42 (cat", "42 (cat) S 1 2"] {
            assert_eq!(parse(bad.as_bytes()), None);
        }
    }

    #[test]
    fn a_zombie_has_ended_unless_other_threads_run() {
        let with = |state: &str, threads: u32| {
            parse(format!("42 (cat) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 18 12345 0").as_bytes())
        };
        assert!(with("Z", 1).unwrap().ended);
        assert!(!with("Z", 2).unwrap().ended && !with("D", 1).unwrap().ended);
    }

    #[test]
    fn a_killed_process_does_not_run_before_and_after_its_parent_has_asked_for_it() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let this = Owner::this();
        let at = |name: &str| std::ffi::CString::new(format!("/proc/{}/{name}", child.id())).unwrap();
        let owner = owner_at(&at("stat"), &at("ns/pid"), &at("exe"));
        let owner = Owner { pid: child.id().into(), exe: (0, 0), ..owner };
        assert!(owner.is_alive(&this));
        child.kill().unwrap();
        while owner.is_alive(&this) {
            std::thread::yield_now(); // the kernel ends it in its own time; nobody has waited for it
        }
        child.wait().unwrap();
        assert!(!owner.is_alive(&this));
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
