//! Compares a directory's listing with the entries that it should hold: `readdir` and `ls-l` with `--verify`.
//!
//! The check parses names back into numbers and compares them with the objects that each thread has made. It ignores
//! names that this run did not make: they may be of other prefixes, of earlier runs, of anybody.

use std::ffi::CStr;

use super::fs::EntryKind;
use super::operation::Population;
use super::tree::{Names, Object};

/// The objects that a thread has made and not removed, as far as other threads have to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    /// Numbers `first..end` of each population, by its index.
    pub ranges: [(u64, u64); 4],
    /// The first number of each population that this run made.
    pub ours_from: [u64; 4],
    /// True if the files have the names that `rename` gives.
    pub renamed: bool,
    /// The file that has the other one of its two names.
    pub away: Option<u64>,
    /// True if no operation failed: the ranges then say exactly which objects exist.
    pub certain: bool,
}

/// The entries of one directory, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Listing {
    names: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name_end: usize,
    kind: EntryKind,
    len: Option<u64>,
}

impl Listing {
    /// Removes all entries, for the listing of the next directory.
    pub fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    /// Adds an entry; with its length where it came with attributes.
    pub fn push(&mut self, name: &CStr, kind: EntryKind, len: Option<u64>) {
        self.names.extend_from_slice(name.to_bytes());
        self.entries.push(Entry { name_end: self.names.len(), kind, len });
    }

    /// Checks the listing, and returns how many entries of `threads` it has.
    ///
    /// `least` gives the smallest length that a file of a thread, by its number, may have.
    ///
    /// # Errors
    /// The first wrong entry: one that is listed twice, was removed, belongs to another directory, is of another kind
    /// or is too short; or the first missing entry.
    pub fn check(
        &self,
        names: &mut Names,
        directory: u64,
        threads: &[(u32, Holdings)],
        least: impl Fn(u32, u64) -> u64,
    ) -> Result<u64, String> {
        let mut seen: Vec<(Population, u32, u64)> = Vec::with_capacity(self.entries.len());
        let mut start = 0;
        for entry in &self.entries {
            let name = &self.names[start..entry.name_end];
            start = entry.name_end;
            let Some((object, thread, number)) = names.parse(name) else { continue };
            let Some((_, holdings)) = threads.iter().find(|(known, _)| *known == thread) else { continue };
            let (population, kind) = belongs(object);
            let (first, end) = holdings.ranges[population as usize];
            let shown = String::from_utf8_lossy(name);
            let renamed = holdings.renamed != (holdings.away == Some(number));
            let stale = match object {
                Object::File => renamed,
                Object::Renamed => !renamed,
                Object::Temporary => true,
                _ => false,
            };
            if number >= end || (!holdings.certain && (number < first || stale)) {
                continue;
            }
            if number < first {
                return Err(format!("{shown} is listed and was removed"));
            }
            if stale {
                return Err(format!("{shown} is listed and has another name since"));
            }
            if names.directory_of_thread(thread, number) != directory {
                return Err(format!("{shown} is listed and lies in another directory"));
            }
            if entry.kind != EntryKind::Unknown && entry.kind != kind {
                return Err(format!("{shown} is listed as {:?}", entry.kind));
            }
            if let Some(len) = entry.len.filter(|len| kind == EntryKind::File && *len < least(thread, number)) {
                return Err(format!("{shown} is listed with {len} bytes instead of {}", least(thread, number)));
            }
            seen.push((population, thread, number));
        }
        seen.sort_unstable();
        if let Some(twice) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} is listed twice", shown(names, twice[0], threads)));
        }
        let (mut missing, mut first_missing) = (0, None);
        for (thread, holdings) in threads.iter().filter(|(_, holdings)| holdings.certain) {
            for population in [Population::Files, Population::Directories, Population::Symlinks, Population::Links] {
                let (first, end) = holdings.ranges[population as usize];
                for number in names.numbers_in(*thread, directory, first, end) {
                    let expected = (population, *thread, number);
                    if names.directory_of_thread(*thread, number) == directory && seen.binary_search(&expected).is_err()
                    {
                        missing += 1;
                        first_missing.get_or_insert(expected);
                    }
                }
            }
        }
        match first_missing {
            None => Ok(seen.len() as u64),
            Some(first) => Err(format!(
                "{} is not listed{}; {} entries that were made are",
                shown(names, first, threads),
                if missing > 1 { format!(", nor are {} more", missing - 1) } else { String::new() },
                seen.len(),
            )),
        }
    }
}

/// The population that an object counts in, and the kind that a listing gives for it.
fn belongs(object: Object) -> (Population, EntryKind) {
    match object {
        Object::File | Object::Renamed | Object::Temporary => (Population::Files, EntryKind::File),
        Object::Directory => (Population::Directories, EntryKind::Directory),
        Object::Symlink => (Population::Symlinks, EntryKind::Symlink),
        Object::Link => (Population::Links, EntryKind::File),
    }
}

/// The name of an object, for a message.
fn shown(
    names: &mut Names,
    (population, thread, number): (Population, u32, u64),
    threads: &[(u32, Holdings)],
) -> String {
    let renamed = threads.iter().any(|(known, holdings)| *known == thread && holdings.renamed);
    let object = match population {
        Population::Files if renamed => Object::Renamed,
        Population::Files => Object::File,
        Population::Directories => Object::Directory,
        Population::Symlinks => Object::Symlink,
        Population::Links => Object::Link,
    };
    let path = names.path_of_thread(thread, object, number).to_string_lossy().into_owned();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Layout;
    use super::*;

    fn names(shared: bool, hashed: bool) -> Names {
        let base = c"/b".into();
        let layout = Layout { files_per_dir: 10, shared, hashed, ..Layout::flat(base) };
        Names::new(&layout, 1, 3, 100)
    }

    fn holding(files: (u64, u64)) -> Holdings {
        Holdings { ranges: [files, (0, 0), (0, 0), (0, 0)], certain: true, ..Holdings::default() }
    }

    /// The listing of a directory with all that the threads hold.
    fn whole(names: &mut Names, directory: u64, threads: &[(u32, Holdings)]) -> Vec<String> {
        let mut found = Vec::new();
        for (thread, holdings) in threads {
            for number in holdings.ranges[0].0..holdings.ranges[0].1 {
                if names.directory_of_thread(*thread, number) == directory {
                    found.push(shown(names, (Population::Files, *thread, number), threads));
                }
            }
        }
        found
    }

    fn check(names: &mut Names, directory: u64, threads: &[(u32, Holdings)], listed: &[String]) -> Result<u64, String> {
        let mut listing = Listing::default();
        for name in listed {
            listing.push(&std::ffi::CString::new(name.as_str()).unwrap(), EntryKind::File, Some(100));
        }
        listing.check(names, directory, threads, |_, _| 100)
    }

    #[test]
    fn whole_directories_are_right_and_every_lack_is_named() {
        for (shared, hashed) in [(false, false), (true, false), (true, true), (false, true)] {
            let mut names = names(shared, hashed);
            let threads: Vec<(u32, Holdings)> = match shared {
                true => (0..3).map(|thread| (thread, holding((2, 100)))).collect(),
                false => vec![(1, holding((2, 100)))],
            };
            let mut all = 0;
            for directory in 0..names.directories() {
                let listed = whole(&mut names, directory, &threads);
                all += check(&mut names, directory, &threads, &listed).unwrap();
                let Some((gone, rest)) = listed.split_last() else { continue };
                let message = check(&mut names, directory, &threads, rest).unwrap_err();
                assert!(message.starts_with(&format!("{gone} is not listed")), "{gone}: {message}");
                let twice = [&listed[..], std::slice::from_ref(gone)].concat();
                assert_eq!(
                    check(&mut names, directory, &threads, &twice).unwrap_err(),
                    format!("{gone} is listed twice")
                );
                let foreign = [&listed[..], &["g.0000001".into(), "f.x".into(), "f.0000900".into()]].concat();
                assert_eq!(check(&mut names, directory, &threads, &foreign), Ok(listed.len() as u64));
            }
            assert_eq!(all, 98 * threads.len() as u64);
        }
    }

    #[test]
    fn what_should_not_be_there_is_named() {
        let mut names = names(false, false);
        let threads = [(1, holding((3, 10)))];
        let listed = whole(&mut names, 0, &threads);
        let mut with = |name: &str| check(&mut names, 0, &threads, &[&listed[..], &[name.to_string()]].concat());
        assert_eq!(with("f.0000001").unwrap_err(), "f.0000001 is listed and was removed");
        assert_eq!(with("f.0000005.renamed").unwrap_err(), "f.0000005.renamed is listed and has another name since");
        assert_eq!(with("f.0000005.tmp").unwrap_err(), "f.0000005.tmp is listed and has another name since");
        let more = [(1, holding((3, 30)))];
        let wrong = [&whole(&mut names, 1, &more)[..], &["f.0000025".into()]].concat();
        assert!(check(&mut names, 1, &more, &wrong).unwrap_err().contains("another directory"));
        // After a failure nobody knows which objects exist.
        let unsure = [(1, Holdings { certain: false, ..threads[0].1 })];
        assert_eq!(check(&mut names, 0, &unsure, &["f.0000004".into(), "f.0000001".into()]), Ok(1));
    }
}
