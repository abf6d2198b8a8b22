//! Filters of system calls (seccomp) that a program begins with. A container's filter answers a forbidden call with an
//! error; the filter of a sandbox may kill the program. Nobody can read a filter, so the interposer's calls are made in
//! a process that is there for nothing else.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::environment::{FILTERS_VARIABLE, PROBE, SURVIVED};

/// The filters of this process and of the programs that it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    /// There are none.
    None,
    /// This number of filters permits every call of the interposer, or answers it with an error.
    Harmless(u32),
    /// A call of the interposer would kill the program.
    Deadly,
    /// There are some, and the kernel does not tell how many (before Linux 5.9): later ones would go unnoticed.
    Uncounted,
}

impl Filters {
    /// The number of filters with which the interposer may spread requests: the value of [`FILTERS_VARIABLE`].
    pub fn harmless(self) -> u32 {
        if let Filters::Harmless(count) = self { count } else { 0 }
    }

    /// The reason why nothing is spread under these filters; None if requests are spread.
    pub fn why_not(self) -> Option<&'static str> {
        match self {
            Filters::None | Filters::Harmless(_) => None,
            Filters::Deadly => Some(
                "a filter of system calls (seccomp) kills programs that make the calls of libiotrap.so: run outside this sandbox",
            ),
            Filters::Uncounted => Some(
                "a filter of system calls (seccomp) is in force, and this kernel does not count filters (Linux 5.9 does)",
            ),
        }
    }
}

/// The filters of this process. If there are any, a child makes all calls of the interposer `library`.
pub fn of_this_process(library: &Path) -> Filters {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match told_by(&status) {
        None => Filters::None,
        Some(None) => Filters::Uncounted,
        Some(Some(count)) if survives(library) => Filters::Harmless(count),
        Some(Some(_)) => Filters::Deadly,
    }
}

/// The number of filters that proc(5) tells, if there are any, and if it tells the number.
fn told_by(status: &str) -> Option<Option<u32>> {
    let number = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok());
    number("Seccomp:").filter(|&mode| mode != 0).map(|_| number("Seccomp_filters:"))
}

/// True if a process survives all calls of the interposer. The process is this program again, which the interposer ends
/// before it begins.
fn survives(library: &Path) -> bool {
    let quiet = [Stdio::null(), Stdio::null(), Stdio::null()];
    let [input, output, errors] = quiet;
    let status = Command::new("/proc/self/exe")
        .env("LD_PRELOAD", library)
        .env(FILTERS_VARIABLE, PROBE)
        .stdin(input)
        .stdout(output)
        .stderr(errors)
        .status();
    status.is_ok_and(|status| status.code() == Some(SURVIVED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_the_filters() {
        assert_eq!(told_by("Name:\tcat\nSeccomp:\t0\nSeccomp_filters:\t0\n"), None);
        assert_eq!(told_by("Name:\tcat\nSeccomp:\t2\nSeccomp_filters:\t3\nCpus:\t1\n"), Some(Some(3)));
        assert_eq!(told_by("Seccomp:\t2\n"), Some(None));
        assert_eq!(told_by(""), None);
    }

    #[test]
    fn only_harmless_filters_are_trusted() {
        assert_eq!(
            [Filters::Harmless(2), Filters::None, Filters::Deadly, Filters::Uncounted].map(Filters::harmless),
            [2, 0, 0, 0]
        );
        assert_eq!(Filters::Harmless(2).why_not(), None);
        assert!(Filters::Deadly.why_not().is_some() && Filters::Uncounted.why_not().is_some());
    }
}
