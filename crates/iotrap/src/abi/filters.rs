//! The filters of system calls (seccomp(2)) that a program begins with: its parents have installed them. They are never
//! taken back, so two processes of one line with the same number of filters have the same ones.

use core::ffi::CStr;

use crate::abi::raw;

/// The filters that the process has begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    /// None.
    None,
    /// This many.
    Some(u32),
    /// Some; the kernel does not tell how many (before Linux 5.9).
    Unknown,
}

const STATUS: &CStr = c"/proc/self/status";

/// Asks the kernel, by calls that the dynamic loader has made just before: openat(2), read(2) and close(2). Without
/// /proc there are none, as far as is known.
pub fn of_process() -> Filters {
    let Ok(file) = raw::open(STATUS, libc::O_RDONLY) else { return Filters::None };
    let mut lines = Lines { line: [0; LINE], used: 0, mode: 0, count: None };
    let mut room = [0u8; 1024];
    loop {
        // SAFETY: the kernel fills at most the room.
        let got = unsafe { raw::call(libc::SYS_read, raw::arg(file), room.as_mut_ptr() as usize, room.len(), 0, 0, 0) };
        let Ok(got @ 1..) = usize::try_from(got) else { break };
        room.iter().take(got).for_each(|&byte| lines.push(byte));
    }
    let _ = raw::close(file);
    lines.found()
}

/// Longer than the lines that matter.
const LINE: usize = 64;

/// The lines of the status, of which two matter: `Seccomp:` with the mode, and `Seccomp_filters:` (proc(5)).
struct Lines {
    line: [u8; LINE],
    used: usize,
    mode: u32,
    count: Option<u32>,
}

impl Lines {
    fn push(&mut self, byte: u8) {
        if byte != b'\n' {
            if let Some(place) = self.line.get_mut(self.used) {
                *place = byte;
            }
            self.used += 1;
            return;
        }
        let line = self.line.get(..self.used).unwrap_or_default();
        if let Some(value) = number(line, b"Seccomp:") {
            self.mode = value;
        }
        if let Some(value) = number(line, b"Seccomp_filters:") {
            self.count = Some(value);
        }
        self.used = 0;
    }

    fn found(&self) -> Filters {
        match (self.mode, self.count) {
            (0, _) => Filters::None,
            (_, Some(count)) => Filters::Some(count),
            (_, None) => Filters::Unknown,
        }
    }
}

/// The number behind a key, if the line begins with the key.
fn number(line: &[u8], key: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(line.strip_prefix(key)?).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Filters {
        let mut lines = Lines { line: [0; LINE], used: 0, mode: 0, count: None };
        text.bytes().for_each(|byte| lines.push(byte));
        lines.found()
    }

    #[test]
    fn the_status_tells_the_filters() {
        let long = format!("Groups:\t{}\n", "1000 ".repeat(100));
        assert_eq!(of(&format!("Name:\tcat\n{long}NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n")), Filters::None);
        assert_eq!(of(&format!("{long}Seccomp:\t2\nSeccomp_filters:\t13\nCpus:\tf\n")), Filters::Some(13));
        assert_eq!(of("NoNewPrivs:\t1\nSeccomp:\t2\nCpus:\tf\n"), Filters::Unknown);
        assert_eq!(of("Name:\tSeccomp: 2\nSeccomp:\t0\n"), Filters::None);
        assert_eq!(of(""), Filters::None);
    }

    #[test]
    fn this_process_has_the_filters_that_the_kernel_tells() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let of_line = |key| status.lines().find_map(|line| number(line.as_bytes(), key));
        match of_process() {
            Filters::None => assert_eq!(of_line(b"Seccomp:"), Some(0)),
            Filters::Some(count) => assert_eq!(of_line(b"Seccomp_filters:"), Some(count)),
            Filters::Unknown => assert_eq!(of_line(b"Seccomp:"), Some(2)),
        }
    }
}
