//! The writing side: one board a program.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::counters::Counters;
use crate::directories::{self, EXTENSION};
use crate::layout::{self, BoardKind, REASONS, ROW_WORDS, ROWS_MAX, RowKind, header, reason, reason_at, row, row_at};
use crate::map::Words;
use crate::owner::Owner;
use crate::snapshot::Snapshot;
use crate::words;

/// A row of a board, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(u32);

/// A reason on a board; it stays valid as long as the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(u32);

/// The fate of a board's file when the board is dropped, or when its program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The file is removed: by its owner, or by the next reader who finds that the owner no longer exists.
    UntilTheEnd,
    /// The file stays for the user who set `$PLIMSOLL_KEEP_BOARDS`.
    Afterwards,
    /// The board has no file: only its owner can look at it.
    Nowhere,
}

/// Counters that any `plimsoll top` on this machine shows while the program runs.
///
/// After fork(2) the child shares its parent's board: a child that is to be told apart creates one of its own.
#[derive(Debug)]
pub struct Board {
    words: Words,
    capacity: usize,
    pid: u64,
    kept: Kept,
    path: Option<directories::Path>,
}

/// Boards of this process image so far: the number in the name of the next.
static BOARDS: AtomicU64 = AtomicU64::new(0);

impl Board {
    /// A board with room for `capacity` rows (at most 8192), called `title`: the name of the program, as a rule.
    /// Allocates nothing, takes no lock and makes raw system calls only.
    ///
    /// # Errors
    /// No directory to keep it in (see [`directories`]), no room there, ENOMEM. [`Board::private`] is then what
    /// lets the program count anyway.
    pub fn create(kind: BoardKind, title: &str, capacity: usize) -> io::Result<Board> {
        let mut made = None;
        directories::candidates(|directory, kept| {
            made = Some(Board::create_in(directory, kept, kind, title, capacity)?);
            Ok(())
        })?;
        Ok(made.ok_or(Errno::NOENT)?)
    }

    fn create_in(
        directory: &directories::Path,
        kept: Kept,
        kind: BoardKind,
        title: &str,
        capacity: usize,
    ) -> rustix::io::Result<Board> {
        let capacity = capacity.clamp(1, ROWS_MAX);
        let owner = Owner::this();
        let number = BOARDS.fetch_add(1, Relaxed);
        let path = path_in(directory, kind, &owner, number)?;
        let file = new_file(&path)?;
        let words = sized(&file, words_for(capacity)).and_then(|count| Words::of_file(&file, count));
        sys::raw::close(file);
        let words = words.inspect_err(|_| {
            let _ = path.c_str().and_then(rustix::fs::unlink); // a file left over is not a board
        })?;
        if number == 0 && kept == Kept::UntilTheEnd {
            remove_those_of_earlier_images(directory, kind, &owner);
        }
        if kept == Kept::UntilTheEnd {
            sweep(directory, owner.pid_namespace);
        }
        let board = Board { words, capacity, pid: owner.pid, kept, path: Some(path) };
        board.introduce(kind, title, &owner);
        Ok(board)
    }

    /// A board that only this process can look at.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn private(kind: BoardKind, title: &str, capacity: usize) -> io::Result<Board> {
        let capacity = capacity.clamp(1, ROWS_MAX);
        let owner = Owner::this();
        let words = Words::private(words_for(capacity))?;
        let board = Board { words, capacity, pid: owner.pid, kept: Kept::Nowhere, path: None };
        board.introduce(kind, title, &owner);
        Ok(board)
    }

    fn introduce(&self, kind: BoardKind, title: &str, owner: &Owner) {
        let fields = [
            (header::MAGIC, layout::MAGIC),
            (header::VERSION, layout::VERSION),
            (header::KIND, kind as u64),
            (header::PID, owner.pid),
            (header::START_TICKS, owner.start_ticks),
            (header::PID_NAMESPACE, owner.pid_namespace),
            (header::EXE_DEVICE, owner.exe.0),
            (header::EXE_INODE, owner.exe.1),
            (header::CREATED_NS, sys::raw::realtime_ns()),
            (header::ROWS, self.capacity as u64),
        ];
        for (at, value) in fields {
            if let Some(word) = self.words.get(at) {
                word.store(value, Relaxed);
            }
        }
        words::put(self.words_at(header::TITLE, header::TITLE_WORDS), title);
        if let Some(ready) = self.words.get(header::READY) {
            ready.store(1, Release);
        }
    }

    /// Adds a row; None if the board is full. Its counters start at 0.
    pub fn add(&self, kind: RowKind, group: &str, name: &str) -> Option<Row> {
        for index in 0..self.capacity {
            let words = self.words_at(row_at(index), ROW_WORDS);
            let (Some(generation), Some(kind_word)) = (words.get(row::GENERATION), words.get(row::KIND)) else {
                continue;
            };
            let before = generation.load(Acquire);
            let free = before.is_multiple_of(2) && kind_word.load(Relaxed) == 0;
            if !free || generation.compare_exchange(before, before + 1, AcqRel, Relaxed).is_err() {
                continue;
            }
            for word in words.get(row::GAUGES..).unwrap_or_default() {
                word.store(0, Relaxed);
            }
            words::put(words.get(row::NAME..row::NAME + row::NAME_WORDS).unwrap_or_default(), name);
            words::put(words.get(row::GROUP..row::GROUP + row::GROUP_WORDS).unwrap_or_default(), group);
            kind_word.store(kind as u64, Relaxed);
            generation.store(before + 2, Release);
            return Some(Row(index as u32));
        }
        None
    }

    /// Removes a row; its place may be given to another.
    pub fn remove(&self, row: Row) {
        let words = self.words_at(row_at(row.0 as usize), ROW_WORDS);
        let (Some(generation), Some(kind)) = (words.get(row::GENERATION), words.get(row::KIND)) else { return };
        let before = generation.load(Acquire);
        if before.is_multiple_of(2) && generation.compare_exchange(before, before + 1, AcqRel, Relaxed).is_ok() {
            kind.store(0, Relaxed);
            generation.store(before + 2, Release);
        }
    }

    /// The counters of a row.
    #[inline]
    pub fn counters(&self, row: Row) -> Counters<'_> {
        Counters::new(self.words_at(row_at(row.0 as usize), ROW_WORDS))
    }

    /// The reason with this text, cut to 104 bytes; a new one starts at 0. When there is no room, the last one
    /// stands for all others.
    pub fn reason(&self, text: &str) -> Reason {
        for index in 0..REASONS - 1 {
            let words = self.words_at(reason_at(index), layout::REASON_WORDS);
            let (Some(state), Some(stored)) = (words.get(reason::STATE), words.get(reason::TEXT..)) else { break };
            if state.compare_exchange(0, 1, AcqRel, Acquire).is_ok() {
                words::put(stored, text);
                state.store(2, Release);
                return Reason(index as u32);
            }
            // One that another thread is writing at this moment is passed over: at worst it is there twice, and a
            // reader adds the two up.
            if state.load(Acquire) == 2 && words::holds(stored, text) {
                return Reason(index as u32);
            }
        }
        let last = self.words_at(reason_at(REASONS - 1), layout::REASON_WORDS);
        if let (Some(state), Some(stored)) = (last.get(reason::STATE), last.get(reason::TEXT..))
            && state.compare_exchange(0, 1, AcqRel, Acquire).is_ok()
        {
            words::put(stored, "for other reasons");
            state.store(2, Release);
        }
        Reason(REASONS as u32 - 1)
    }

    /// Adds one to the count of a reason.
    #[inline]
    pub fn count(&self, reason: Reason) {
        if let Some(word) = self.words.get(reason_at(reason.0 as usize) + reason::COUNT) {
            word.fetch_add(1, Relaxed);
        }
    }

    /// The count of a reason now.
    pub fn counted(&self, reason: Reason) -> u64 {
        self.words.get(reason_at(reason.0 as usize) + reason::COUNT).map_or(0, |word| word.load(Relaxed))
    }

    /// The values of the board at this moment. The call allocates.
    pub fn snapshot(&self) -> Snapshot {
        let words: Vec<u64> = self.words.iter().map(|word| word.load(Relaxed)).collect();
        Snapshot::of_words(&words).unwrap_or_else(Snapshot::nothing)
    }

    /// The fate of the board's file: see [`Kept`].
    pub fn kept(&self) -> Kept {
        self.kept
    }

    /// The path of the board's file.
    pub fn path(&self) -> Option<&std::ffi::CStr> {
        self.path.as_ref().and_then(|path| path.c_str().ok())
    }

    /// True if the calling process has created the board: a forked child has not.
    pub fn is_own(&self) -> bool {
        self.pid == u64::from(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs())
    }

    /// Removes its file, if it has one that is not to be kept and was made by the calling process: what a program
    /// does at its end that never drops its board.
    pub fn withdraw(&self) {
        if self.kept == Kept::UntilTheEnd
            && self.is_own()
            && let Some(path) = self.path()
        {
            let _ = rustix::fs::unlink(path); // a reader may have been faster
        }
    }

    fn words_at(&self, start: usize, count: usize) -> &[AtomicU64] {
        self.words.get(start..start + count).unwrap_or_default()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.withdraw();
    }
}

fn words_for(capacity: usize) -> usize {
    row_at(capacity)
}

/// A new, empty file that nobody else has made; one of that name is of an earlier process with our id.
fn new_file(path: &directories::Path) -> rustix::io::Result<OwnedFd> {
    let path = path.c_str()?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o644));
    match create() {
        Err(Errno::EXIST) => {
            rustix::fs::unlink(path)?;
            create()
        }
        made => made,
    }
}

/// Reserves the room: a hole that cannot be filled later would be a SIGBUS in somebody else's program.
fn sized(file: &OwnedFd, words: usize) -> rustix::io::Result<usize> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, words as u64 * 8)?;
    Ok(words)
}

/// After exec(2) the process is the same and its boards are still there, but nobody writes them any more.
fn remove_those_of_earlier_images(directory: &directories::Path, kind: BoardKind, owner: &Owner) {
    for number in 1.. {
        let gone = path_in(directory, kind, owner, number).and_then(|path| rustix::fs::unlink(path.c_str()?));
        if gone.is_err() {
            break;
        }
    }
}

/// Names that a new board looks at: enough that those of the dead do not grow in number, few enough to take no time.
const SWEPT: usize = 64;

/// Removes boards of processes that no longer exist: programs that end by a signal or by _exit(2) leave their boards
/// behind, and nobody may come to look. Boards that need more than their name to decide are left to readers.
fn sweep(directory: &directories::Path, pid_namespace: u64) {
    let Ok(path) = directory.c_str() else { return };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else { return };
    let mut room = [std::mem::MaybeUninit::uninit(); 4096];
    let mut names = rustix::fs::RawDir::new(&opened, &mut room);
    for _ in 0..SWEPT {
        let Some(Ok(entry)) = names.next() else { break };
        let Some((namespace, pid)) = owner_in(entry.file_name().to_bytes()) else { continue };
        let mut process = directories::Path::new();
        process.push(b"/proc");
        let known = process.enter(format_args!("{pid}")).and_then(|()| process.c_str());
        let gone = |path| matches!(rustix::fs::statat(CWD, path, AtFlags::empty()), Err(Errno::NOENT));
        if namespace == pid_namespace && known.is_ok_and(gone) {
            let _ = rustix::fs::unlinkat(&opened, entry.file_name(), AtFlags::empty()); // another may have been faster
        }
    }
    sys::raw::close(opened);
}

/// The PID namespace and the process in the name of a board.
fn owner_in(name: &[u8]) -> Option<(u64, u64)> {
    let name = std::str::from_utf8(name).ok()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let mut parts = name.split('-').skip(1);
    let (namespace, pid, _number) = (parts.next()?, parts.next()?, parts.next()?);
    Some((namespace.parse().ok()?, pid.parse().ok()?))
}

fn path_in(
    directory: &directories::Path,
    kind: BoardKind,
    owner: &Owner,
    number: u64,
) -> rustix::io::Result<directories::Path> {
    let mut path = directory.clone();
    path.enter(format_args!("{}-{}-{}-{number}.{EXTENSION}", kind.name(), owner.pid_namespace, owner.pid))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Gauge, Op, State};
    use crate::find;
    use crate::snapshot::Invalid;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    fn create(directory: &std::path::Path, capacity: usize) -> Board {
        let mut path = directories::Path::new();
        path.push(directory.as_os_str().as_bytes());
        Board::create_in(&path, Kept::UntilTheEnd, BoardKind::Trap, "fio", capacity).unwrap()
    }

    #[test]
    fn what_is_counted_is_seen_from_outside() {
        let directory = tempfile::tempdir().unwrap();
        let board = create(directory.path(), 4);
        let row = board.add(RowKind::Lane, "e4a", "/mnt/v32").unwrap();
        let counters = board.counters(row);
        counters.begin(65536);
        counters.begin(4096);
        counters.end(Op::Read, 65536, 60000, 250_000);
        counters.count_alone(Op::Read, 4096, 1_000_000);
        counters.error(Op::Write);
        counters.set_state(State::Suspect);
        board.count(board.reason("opened with O_APPEND"));
        board.count(board.reason("opened with O_APPEND"));

        let seen = find::in_directory(directory.path());
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].kind, seen[0].title.as_str()), (BoardKind::Trap, "fio"));
        assert_eq!(seen[0].pid, u64::from(std::process::id()));
        let [row] = &seen[0].rows[..] else { panic!("{:?}", seen[0].rows) };
        assert_eq!((row.kind, row.group.as_str(), row.name.as_str()), (RowKind::Lane, "e4a", "/mnt/v32"));
        assert_eq!((row.gauge(Gauge::OutstandingOps), row.gauge(Gauge::OutstandingBytes)), (1, 4096));
        assert_eq!((row.op(Op::Read).ops, row.op(Op::Read).bytes), (2, 64096));
        assert_eq!(row.op(Op::Read).lat_sum_ns, 1_250_000);
        assert_eq!((row.op(Op::Write).ops, row.op(Op::Write).errors), (0, 1));
        assert_eq!(row.state(), State::Suspect);
        let median = row.op(Op::Read).latencies().quantile(0.5) as f64;
        assert!((median / 250_000.0 - 1.0).abs() < 0.13, "{median}");
        assert_eq!((seen[0].reasons[0].text.as_str(), seen[0].reasons[0].count), ("opened with O_APPEND", 2));
        assert_eq!(seen[0], board.snapshot());

        drop(board);
        assert!(find::in_directory(directory.path()).is_empty(), "nothing is left behind");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_removed_row_makes_room_for_another_that_starts_at_nothing() {
        let board = Board::private(BoardKind::Target, "serve", 1).unwrap();
        let row = board.add(RowKind::Host, "nqn", "host-1").unwrap();
        board.counters(row).count(Op::Write, 512, 10);
        assert_eq!(board.add(RowKind::Host, "nqn", "host-2"), None, "no room");
        let first = board.snapshot().rows[0].identity;
        board.remove(row);
        assert!(board.snapshot().rows.is_empty());
        let row = board.add(RowKind::Host, "nqn", "host-2").unwrap();
        let seen = &board.snapshot().rows[0];
        assert_eq!((seen.name.as_str(), seen.op(Op::Write).ops), ("host-2", 0));
        assert_ne!(seen.identity, first);
        board.remove(row);
        board.remove(row);
        assert!(board.snapshot().rows.is_empty(), "removing twice does no harm");
    }

    #[test]
    fn more_reasons_than_fit_are_counted_together() {
        let board = Board::private(BoardKind::Trap, "x", 1).unwrap();
        for number in 0..100 {
            board.count(board.reason(&format!("reason {number}")));
        }
        let reasons = board.snapshot().reasons;
        assert_eq!(reasons.len(), REASONS);
        assert_eq!(reasons.iter().map(|reason| reason.count).sum::<u64>(), 100);
        assert_eq!(reasons.last().unwrap().text, "for other reasons");
    }

    #[test]
    fn threads_lose_nothing() {
        let board = Board::private(BoardKind::Trap, "x", 8).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let board = &board;
                scope.spawn(move || {
                    let row = board.add(RowKind::Lane, "p", &format!("{thread}")).unwrap();
                    for _ in 0..1000 {
                        board.counters(row).count(Op::Read, 1, 1);
                        board.count(board.reason("shared"));
                    }
                });
            }
        });
        let seen = board.snapshot();
        assert_eq!(seen.rows.len(), 8);
        assert!(seen.rows.iter().all(|row| row.op(Op::Read).ops == 1000));
        let names: std::collections::BTreeSet<_> = seen.rows.iter().map(|row| row.name.clone()).collect();
        assert_eq!(names.len(), 8);
        assert_eq!((seen.reasons.len(), seen.reasons[0].count), (1, 8000));
    }

    #[test]
    fn boards_of_the_dead_are_removed_and_rubbish_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let board = create(directory.path(), 2);
        let bytes = std::fs::read(std::ffi::OsStr::from_bytes(board.path().unwrap().to_bytes())).unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
        let mut dead = bytes.clone();
        dead[header::START_TICKS * 8] ^= 1;
        write("trap-0-1-0.board", &dead);
        write("garbage.board", &[0xff; 100]);
        write("empty.board", b"");
        write("other.txt", &bytes);
        std::fs::create_dir(directory.path().join("directory.board")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", directory.path().join("zero.board")).unwrap();
        rustix::fs::mknodat(CWD, directory.path().join("fifo.board"), rustix::fs::FileType::Fifo, Mode::RWXU, 0)
            .unwrap();
        assert_eq!(find::in_directory(directory.path()).len(), 1);
        assert!(!directory.path().join("trap-0-1-0.board").exists());
        assert!(directory.path().join("garbage.board").exists());
    }

    #[test]
    fn a_new_board_removes_those_of_processes_that_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let namespace = Owner::this().pid_namespace;
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let names = [
            (format!("trap-{namespace}-{}-0.board", child.id()), false),
            (format!("trap-{namespace}-1-0.board"), true),
            (format!("trap-{}-{}-0.board", namespace + 1, child.id()), true),
            (format!("{namespace}-{}-0.text", child.id()), true),
            ("garbage.board".into(), true),
        ];
        names.iter().for_each(|(name, _)| std::fs::write(directory.path().join(name), "x").unwrap());
        let board = create(directory.path(), 1);
        for (name, stays) in &names {
            assert_eq!(directory.path().join(name).exists(), *stays, "{name}");
        }
        drop(board);
    }

    #[test]
    fn a_board_that_is_kept_outlives_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let mut path = directories::Path::new();
        path.push(directory.path().as_os_str().as_bytes());
        drop(Board::create_in(&path, Kept::Afterwards, BoardKind::Trap, "dd", 1).unwrap());
        assert_eq!(find::kept_in(directory.path())[0].title, "dd");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let ended = directory.path().join(format!("trap-{}-{}-0.board", Owner::this().pid_namespace, child.id()));
        std::fs::write(&ended, "x").unwrap();
        drop(Board::create_in(&path, Kept::Afterwards, BoardKind::Trap, "cp", 1).unwrap());
        assert!(ended.exists(), "whoever started the programs still wants it");
    }

    #[test]
    fn other_versions_and_unfinished_boards_are_told_apart() {
        let board = Board::private(BoardKind::Trap, "x", 1).unwrap();
        let words: Vec<u64> = board.words.iter().map(|word| word.load(Relaxed)).collect();
        let with = |at: usize, value: u64| {
            let mut words = words.clone();
            words[at] = value;
            Snapshot::of_words(&words).map(|_| ())
        };
        assert_eq!(with(header::MAGIC, 1), Err(Invalid::NoBoard));
        assert_eq!(with(header::VERSION, 2), Err(Invalid::OtherVersion));
        assert_eq!(with(header::READY, 0), Err(Invalid::NotReady));
        assert_eq!(with(header::KIND, 77), Err(Invalid::OtherVersion));
        assert_eq!(with(header::ROWS, u64::MAX), Ok(()), "lengths are not believed");
        assert_eq!(Snapshot::parse(&[0; 4096]), Err(Invalid::NotReady));
        assert_eq!(Snapshot::parse(b"PLIMLIVE"), Err(Invalid::NoBoard));
    }

    proptest! {
        #[test]
        fn a_damaged_board_is_read_without_harm(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..40), cut in any::<prop::sample::Index>(), whole in any::<bool>()) {
            let board = Board::private(BoardKind::Trap, "x", 2).unwrap();
            let row = board.add(RowKind::Lane, "p", "/a").unwrap();
            board.counters(row).count(Op::Read, 4096, 1000);
            board.count(board.reason("why"));
            let mut words: Vec<u64> = board.words.iter().map(|word| word.load(Relaxed)).collect();
            for (at, value) in damage {
                let at = at.index(words.len());
                words[at] = value;
            }
            if !whole {
                words.truncate(cut.index(words.len()));
            }
            if let Ok(seen) = Snapshot::of_words(&words) {
                for row in &seen.rows {
                    let _ = (row.state(), row.gauge(Gauge::OutstandingBytes), row.op(Op::Read).latencies().quantile(0.99));
                    let _ = row.op(Op::Read).since(row.op(Op::Write));
                }
                let shown = seen.rows.iter().flat_map(|row| [&row.name, &row.group]).chain([&seen.title]);
                prop_assert!(shown.flat_map(|text| text.chars()).all(|c| !c.is_control()));
            }
        }
    }
}
