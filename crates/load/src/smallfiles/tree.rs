//! The names and directories of files, computed from numbers into a buffer, never stored.
//!
//! ```text
//! flat      DIR/thrdTTT-dDDDD/f.NNNNNNN            as gfapi_perf_tool has it
//! tree      DIR/thrdTTT/dDDD/dDDD/f.NNNNNNN        --dirs-per-dir
//! shared    DIR/shared-dDDDD/f.TTT-NNNNNNN         --shared, or DIR/shared/dDDD/dDDD/...
//! branches  DIR/thrdTTT/d1/d4/f.NNNNNNN            --depth, --branching: files in every directory, or in the leaves
//! ```

use std::ffi::{CStr, CString};

use job::workload::random::mix;

/// The distribution of files over directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The directory that all is in, as the file system takes it.
    pub base: CString,
    /// Further such directories: thread T works in directory T modulo their number.
    pub others: Vec<CString>,
    /// The beginning of file names; `f` by default.
    pub prefix: String,
    /// The end of file names; empty by default.
    pub suffix: String,
    /// Files a directory; at least 1.
    pub files_per_dir: u64,
    /// Subdirectories a directory; None: all directories side by side.
    pub dirs_per_dir: Option<u64>,
    /// A tree of a given shape; None: one that grows with the files.
    pub branches: Option<Branches>,
    /// True if all threads use the same directories.
    pub shared: bool,
    /// True if a file's directory is drawn by the file's number; otherwise directories are filled one after the other.
    pub hashed: bool,
}

/// The shape of a tree of directories. They are numbered level by level from the root, which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branches {
    /// Levels of directories below the root of the tree.
    pub depth: u32,
    /// Subdirectories of each directory above the last level; at least 1.
    pub branching: u64,
    /// True if only the directories of the last level have files.
    pub leaves_only: bool,
}

impl Branches {
    /// Number of directories in the levels above `level`; None if there are more than 2^64.
    fn above(self, level: u32) -> Option<u64> {
        (0..level).try_fold(0u64, |sum, level| sum.checked_add(self.branching.checked_pow(level)?))
    }

    /// Number of directories that have files; None if there are more than 2^64.
    pub fn directories(self) -> Option<u64> {
        let all = self.above(self.depth.checked_add(1)?)?;
        Some(if self.leaves_only { all - self.above(self.depth)? } else { all })
    }

    /// The number in the tree of the first directory that has files.
    fn first(self) -> u64 {
        if self.leaves_only { self.above(self.depth).unwrap_or(0) } else { 0 }
    }

    /// The directory that a directory is in; None for the root.
    fn parent(self, node: u64) -> Option<u64> {
        Some(node.checked_sub(1)? / self.branching.max(1))
    }
}

impl Layout {
    /// All files of a thread side by side in directories of a thousand.
    pub fn flat(base: CString) -> Layout {
        Layout {
            base,
            others: Vec::new(),
            prefix: "f".into(),
            suffix: String::new(),
            files_per_dir: 1000,
            dirs_per_dir: None,
            branches: None,
            shared: false,
            hashed: false,
        }
    }

    /// The directory that a thread works in.
    pub fn base_of(&self, thread: u32) -> &CString {
        match thread as usize % (1 + self.others.len()) {
            0 => &self.base,
            other => &self.others[other - 1],
        }
    }

    /// Every directory that threads work in.
    pub fn bases(&self) -> impl Iterator<Item = &CString> {
        std::iter::once(&self.base).chain(&self.others)
    }
}

/// The kind of object that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A file under its first name.
    File,
    /// A file under the name that `rename` gives it.
    Renamed,
    /// A file that is being written under a temporary name (`swift-put`).
    Temporary,
    /// A directory that `mkdir` makes.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A second name of a file.
    Link,
}

impl Object {
    /// The marks of a name: the text between prefix and number, and the text after the number.
    fn marks(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Object::File => (b".", b""),
            Object::Renamed => (b".", b".renamed"),
            Object::Temporary => (b".", b".tmp"),
            Object::Directory => (b"-dir.", b""),
            Object::Symlink => (b"-symlink.", b""),
            Object::Link => (b"-link.", b""),
        }
    }
}

/// The names of one thread's files. Each thread has its own `Names`, with a buffer for one path.
#[derive(Clone, Debug)]
pub struct Names {
    layout: Layout,
    /// The directory that all of the thread's directories are in.
    base: CString,
    thread: u32,
    threads: u32,
    /// Directories over which the files of this thread are spread (with `shared`: of all threads).
    dirs: u64,
    buffer: Vec<u8>,
    /// The directory that the buffer begins with, and its length with the slash.
    in_buffer: Option<u64>,
    dir_len: usize,
}

impl Names {
    /// The names for `files` files of thread `thread` of `threads`.
    pub fn new(layout: &Layout, thread: u32, threads: u32, files: u64) -> Names {
        let all = if layout.shared { files.saturating_mul(u64::from(threads)) } else { files };
        let dirs = match layout.branches {
            Some(branches) => branches.directories().unwrap_or(u64::MAX),
            None => all.div_ceil(layout.files_per_dir).max(1),
        };
        Names {
            layout: layout.clone(),
            base: layout.base_of(thread).clone(),
            thread,
            threads,
            dirs,
            buffer: Vec::with_capacity(256),
            in_buffer: None,
            dir_len: 0,
        }
    }

    /// Turns to the names of another thread, below `base`.
    pub fn turn_to(&mut self, thread: u32, base: &CStr) {
        self.thread = thread;
        self.base = base.to_owned();
        self.in_buffer = None;
    }

    /// Directories that the files are spread over.
    pub fn directories(&self) -> u64 {
        self.dirs
    }

    /// The number of the directory of file `file`.
    pub fn directory_of(&self, file: u64) -> u64 {
        self.directory_of_thread(self.thread, file)
    }

    /// The number of the directory of file `file` of any thread.
    pub fn directory_of_thread(&self, thread: u32, file: u64) -> u64 {
        let place = match self.layout.shared {
            true => file * u64::from(self.threads) + u64::from(thread),
            false => file,
        };
        if self.layout.hashed { mix(place) % self.dirs } else { place / self.layout.files_per_dir }
    }

    /// The numbers of `first..end` of a thread that may lie in that directory. They are exactly the numbers that lie
    /// there, unless directories are drawn.
    pub fn numbers_in(&self, thread: u32, directory: u64, first: u64, end: u64) -> std::ops::Range<u64> {
        if self.layout.hashed {
            return first..end;
        }
        let (step, offset) = if self.layout.shared { (u64::from(self.threads), u64::from(thread)) } else { (1, 0) };
        let from = |place: u64| place.saturating_sub(offset).div_ceil(step);
        let place = directory.saturating_mul(self.layout.files_per_dir);
        first.max(from(place))..end.min(from(place.saturating_add(self.layout.files_per_dir)))
    }

    /// The meaning of a name in a directory: the kind of object, its thread and its number. None for names of another
    /// form.
    pub fn parse(&self, name: &[u8]) -> Option<(Object, u32, u64)> {
        let rest = name.strip_prefix(self.layout.prefix.as_bytes())?;
        let all = [Object::Renamed, Object::Temporary, Object::File, Object::Directory, Object::Symlink, Object::Link];
        all.into_iter().find_map(|object| {
            let (between, after) = object.marks();
            let digits =
                rest.strip_prefix(between)?.strip_suffix(self.layout.suffix.as_bytes())?.strip_suffix(after)?;
            let (thread, digits) = match self.layout.shared {
                true => {
                    let dash = digits.iter().position(|&byte| byte == b'-')?;
                    (u32::try_from(number_of(&digits[..dash], 3)?).ok()?, &digits[dash + 1..])
                }
                false => (self.thread, digits),
            };
            Some((object, thread, number_of(digits, 7)?))
        })
    }

    /// The path of an object.
    pub fn path(&mut self, object: Object, number: u64) -> &CStr {
        self.path_of_thread(self.thread, object, number)
    }

    /// The path of an object of any thread, where directories are shared.
    pub fn path_of_thread(&mut self, thread: u32, object: Object, number: u64) -> &CStr {
        let directory = self.directory_of_thread(thread, number);
        if self.in_buffer != Some(directory) {
            self.write_directory(directory);
        }
        self.buffer.truncate(self.dir_len);
        let (between, after) = object.marks();
        self.buffer.extend_from_slice(self.layout.prefix.as_bytes());
        self.buffer.extend_from_slice(between);
        if self.layout.shared {
            push_number(&mut self.buffer, u64::from(thread), 3);
            self.buffer.push(b'-');
        }
        push_number(&mut self.buffer, number, 7);
        self.buffer.extend_from_slice(after);
        self.buffer.extend_from_slice(self.layout.suffix.as_bytes());
        self.finished()
    }

    /// The path of a directory of the layout.
    pub fn directory(&mut self, directory: u64) -> &CStr {
        self.write_directory(directory);
        self.in_buffer = None;
        self.buffer.truncate(self.dir_len - 1);
        self.finished()
    }

    /// The paths of the directories from the base down to that one, in the order in which they have to be made. The
    /// base is not among them.
    pub fn ancestry(&mut self, directory: u64) -> Vec<CString> {
        let base = self.base.as_bytes().len();
        let path = self.directory(directory).to_bytes().to_vec();
        let ends = (base + 1..=path.len()).filter(|&end| end == path.len() || path[end] == b'/');
        ends.map(|end| CString::new(&path[..end]).unwrap_or_default()).collect()
    }

    /// The part of [`Names::ancestry`] that no directory with a smaller number has: who makes the directories in their
    /// order makes these with that one.
    pub fn brought_by(&mut self, directory: u64) -> Vec<CString> {
        let mut paths = self.ancestry(directory);
        match self.layout.branches {
            // Every directory of the tree has a number.
            Some(branches) if !branches.leaves_only => paths.drain(..paths.len() - 1),
            _ => {
                let before = directory.checked_sub(1).map(|before| self.ancestry(before)).unwrap_or_default();
                let common = paths.iter().zip(&before).take_while(|(path, other)| path == other).count();
                paths.drain(..common)
            }
        };
        paths
    }

    /// The path that was composed last, for messages.
    pub fn last(&self) -> String {
        String::from_utf8_lossy(self.buffer.strip_suffix(b"\0").unwrap_or(&self.buffer)).into_owned()
    }

    fn write_directory(&mut self, directory: u64) {
        self.buffer.clear();
        let base = self.base.as_bytes();
        self.buffer.extend_from_slice(base.strip_suffix(b"/").unwrap_or(base));
        self.buffer.push(b'/');
        match self.layout.shared {
            true => self.buffer.extend_from_slice(b"shared"),
            false => {
                self.buffer.extend_from_slice(b"thrd");
                push_number(&mut self.buffer, u64::from(self.thread), 3);
            }
        }
        if let Some(branches) = self.layout.branches {
            let mut way = vec![branches.first().saturating_add(directory)];
            while let Some(parent) = branches.parent(way[way.len() - 1]) {
                way.push(parent);
            }
            for node in way.iter().rev().skip(1) {
                self.buffer.extend_from_slice(b"/d");
                push_number(&mut self.buffer, *node, 1);
            }
        }
        match self.layout.dirs_per_dir {
            _ if self.layout.branches.is_some() => {}
            None => {
                self.buffer.extend_from_slice(b"-d");
                push_number(&mut self.buffer, directory, 4);
            }
            Some(width) => {
                // The number's digits to the base of `width`, as many as the last directory has, are the path.
                let width = width.max(2);
                let mut scale = 1;
                while self.dirs.saturating_sub(1) / scale >= width {
                    scale *= width;
                }
                while scale > 0 {
                    self.buffer.extend_from_slice(b"/d");
                    // Numbers beyond the last directory (mixes can make more files) go to its top level.
                    let digit = if scale >= self.dirs.max(1) { directory / scale } else { directory / scale % width };
                    push_number(&mut self.buffer, digit, 3);
                    scale /= width;
                }
            }
        }
        self.buffer.push(b'/');
        self.dir_len = self.buffer.len();
        self.in_buffer = Some(directory);
    }

    fn finished(&mut self) -> &CStr {
        self.buffer.push(0);
        CStr::from_bytes_until_nul(&self.buffer).unwrap_or_default()
    }
}

/// Appends a number in decimal, with leading zeros to at least `width` digits.
fn push_number(buffer: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 || digits.len() - at < width {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    buffer.extend_from_slice(&digits[at..]);
}

/// The number that [`push_number`] wrote with this width; None for other text.
fn number_of(digits: &[u8], width: usize) -> Option<u64> {
    let padded = digits.len() == width || (digits.len() > width && digits[0] != b'0');
    let all = padded && digits.iter().all(u8::is_ascii_digit);
    if all { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout { files_per_dir: 10, ..Layout::flat(c"/b".into()) }
    }

    fn text(path: &CStr) -> &str {
        path.to_str().unwrap()
    }

    #[test]
    fn flat_names_are_those_of_gfapi_perf_tool() {
        let mut names = Names::new(&layout(), 2, 4, 100);
        assert_eq!(text(names.path(Object::File, 0)), "/b/thrd002-d0000/f.0000000");
        assert_eq!(text(names.path(Object::File, 57)), "/b/thrd002-d0005/f.0000057");
        assert_eq!(text(names.path(Object::Renamed, 57)), "/b/thrd002-d0005/f.0000057.renamed");
        assert_eq!(text(names.path(Object::Symlink, 99)), "/b/thrd002-d0009/f-symlink.0000099");
        assert_eq!(text(names.directory(3)), "/b/thrd002-d0003");
        assert_eq!(text(names.path(Object::Directory, 12345678)), "/b/thrd002-d1234567/f-dir.12345678");
        assert_eq!(names.directories(), 10);
        let many = Names::new(&layout(), 1234, 2000, 1).path(Object::File, 1).to_owned();
        assert_eq!(text(&many), "/b/thrd1234-d0000/f.0000001");
    }

    #[test]
    fn branches_have_the_shape_that_was_asked_for() {
        let branches = Branches { depth: 2, branching: 3, leaves_only: false };
        assert_eq!(
            (branches.directories(), Branches { leaves_only: true, ..branches }.directories()),
            (Some(13), Some(9))
        );
        assert_eq!(Branches { branching: 1, ..branches }.directories(), Some(3), "a chain");
        assert_eq!(Branches { depth: 64, branching: 2, leaves_only: false }.directories(), None);
        let tree = Layout { branches: Some(branches), files_per_dir: 1, ..layout() };
        let mut names = Names::new(&tree, 0, 1, 13);
        let all: Vec<String> = (0..13).map(|directory| text(names.directory(directory)).to_string()).collect();
        assert_eq!(all[0], "/b/thrd000");
        assert_eq!(all[3], "/b/thrd000/d3");
        assert_eq!(all[12], "/b/thrd000/d3/d12");
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 13);
        let leaves = Layout { branches: Some(Branches { leaves_only: true, ..branches }), ..tree };
        let mut names = Names::new(&leaves, 0, 1, 9);
        let leaves: Vec<String> = (0..9).map(|directory| text(names.directory(directory)).to_string()).collect();
        assert_eq!(leaves, all[4..]);
    }

    #[test]
    fn every_directory_of_a_tree_is_brought_once_after_the_one_it_is_in() {
        let branches = Branches { depth: 3, branching: 3, leaves_only: false };
        let leaves = Branches { leaves_only: true, ..branches };
        for (tree, files, all) in [
            (layout(), 95, 10),
            (Layout { dirs_per_dir: Some(4), ..layout() }, 200, 1 + 2 + 5 + 20),
            (Layout { branches: Some(branches), ..layout() }, 95, 40),
            (Layout { branches: Some(leaves), ..layout() }, 95, 40),
        ] {
            let mut names = Names::new(&tree, 0, 1, files);
            let mut made = std::collections::HashSet::from([b"/b".to_vec()]);
            for directory in 0..names.directories() {
                for path in names.brought_by(directory) {
                    let path = path.to_bytes();
                    let above = path.iter().rposition(|&byte| byte == b'/').unwrap();
                    assert!(made.contains(&path[..above]) && made.insert(path.to_vec()), "{}", path.escape_ascii());
                }
            }
            assert_eq!(made.len() - 1, all);
        }
    }

    #[test]
    fn threads_take_the_directories_in_turns_and_suffixes_end_names() {
        let two = Layout { others: vec![c"/c".into()], suffix: ".x".into(), ..layout() };
        let mut names = Names::new(&two, 3, 4, 100);
        assert_eq!(text(names.path(Object::Renamed, 57)), "/c/thrd003-d0005/f.0000057.renamed.x");
        assert_eq!(names.parse(b"f.0000057.renamed.x"), Some((Object::Renamed, 3, 57)));
        assert_eq!(names.parse(b"f.0000057.renamed"), None);
        names.turn_to(0, c"/b");
        assert_eq!(text(names.path(Object::File, 57)), "/b/thrd000-d0005/f.0000057.x");
    }

    #[test]
    fn trees_have_as_many_levels_as_they_need() {
        let deep = Layout { dirs_per_dir: Some(4), base: c"/b/".into(), ..layout() };
        let mut names = Names::new(&deep, 0, 1, 200); // 20 directories: three digits to the base of four
        assert_eq!(text(names.path(Object::File, 199)), "/b/thrd000/d001/d000/d003/f.0000199");
        assert_eq!(text(names.directory(5)), "/b/thrd000/d000/d001/d001");
        let above = names.ancestry(5);
        let above: Vec<&str> = above.iter().map(|path| text(path)).collect();
        assert_eq!(above, ["/b/thrd000", "/b/thrd000/d000", "/b/thrd000/d000/d001", "/b/thrd000/d000/d001/d001"]);
        let all: std::collections::HashSet<String> =
            (0..names.directories()).map(|dir| text(names.directory(dir)).to_string()).collect();
        assert_eq!(all.len(), 20);
    }

    #[test]
    fn shared_names_never_meet_and_directories_are_full() {
        for hashed in [false, true] {
            let shared = Layout { shared: true, hashed, ..layout() };
            let mut seen = std::collections::HashSet::new();
            let mut in_directory = std::collections::HashMap::<u64, u64>::new();
            for thread in 0..3 {
                let mut names = Names::new(&shared, thread, 3, 100);
                assert_eq!(names.directories(), 30);
                for file in 0..100 {
                    assert!(seen.insert(names.path(Object::File, file).to_owned()));
                    *in_directory.entry(names.directory_of(file)).or_default() += 1;
                    assert!(names.directory_of(file) < 30);
                }
            }
            if !hashed {
                assert!(in_directory.len() == 30 && in_directory.values().all(|&files| files == 10));
            }
        }
    }

    #[test]
    fn objects_of_one_number_have_different_names() {
        let mut names = Names::new(&layout(), 0, 1, 10);
        let objects =
            [Object::File, Object::Renamed, Object::Temporary, Object::Directory, Object::Symlink, Object::Link];
        let all: std::collections::HashSet<CString> =
            objects.iter().map(|&object| names.path(object, 7).to_owned()).collect();
        assert_eq!(all.len(), objects.len());
    }

    #[test]
    fn names_are_read_back() {
        use Object::*;
        for shared in [false, true] {
            let mut names = Names::new(&Layout { shared, ..layout() }, 2, 2000, 10_000_000);
            let thread = if shared { 1234 } else { 2 };
            for object in [File, Renamed, Temporary, Directory, Symlink, Link] {
                for number in [0, 7, 9_999_999, 12_345_678] {
                    let path = names.path_of_thread(thread, object, number).to_bytes().to_vec();
                    let name = path.rsplit(|&byte| byte == b'/').next().unwrap();
                    assert_eq!(names.parse(name), Some((object, thread, number)), "{}", String::from_utf8_lossy(name));
                }
            }
            for name in ["f", "f.", "f.123", "f.00000012", "g.0000001", "f.0000001.x", "f-dir.000001x", "f.1-0000001"] {
                assert_eq!(names.parse(name.as_bytes()), None, "{name}");
            }
        }
    }

    #[test]
    fn numbers_of_a_directory_are_those_that_lie_in_it() {
        for (shared, hashed) in [(false, false), (true, false), (true, true)] {
            let names = Names::new(&Layout { shared, hashed, ..layout() }, 0, 3, 100);
            for (thread, directory) in (0..3).flat_map(|thread| (0..names.directories()).map(move |dir| (thread, dir)))
            {
                let range = names.numbers_in(thread, directory, 5, 95);
                for number in 5..95 {
                    let lies = names.directory_of_thread(thread, number) == directory;
                    assert!(if hashed { !lies || range.contains(&number) } else { lies == range.contains(&number) });
                }
            }
        }
    }
}
