//! fio's I/O logs, versions 2 and 3: recorded workloads, read and written one line at a time.
//!
//! ```text
//! fio version 3 iolog
//! 0 /dev/sda add              microseconds since the start, file, action
//! 12 /dev/sda open
//! 340 /dev/sda read 4096 8192  ... offset, length in bytes
//! 352 /dev/sda read 0 8192 4711  ... and the thread, of logs of `plimsoll trap`
//! ```
//!
//! fio reads no further than the length, so a log with threads is one for fio too.
//!
//! Version 2 has no times; `FILE wait MICROSECONDS 0` says how long to pause. fio 3.33 takes the number as milliseconds
//! since the program was started, against its manual. Plimsoll follows the manual. Source: HOWTO, "Trace file format
//! v2", "v3".

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use measure::{Direction, PerDirection};
use thiserror::Error as ThisError;

use crate::job::Iolog;
use crate::workload::{Op, OpKind};

/// A line that is older than the one before it by less than this comes from another thread, and is due at once.
const OUT_OF_ORDER_US: u64 = 10_000;
/// The longest name of a file in a log, in bytes: fio's own limit.
const NAME_MOST: usize = 256;
/// The longest line of a log, in bytes. A file with a longer line is not a log.
const LINE_MOST: u64 = 4096;

/// An error of a log: a line that cannot be understood, or a log that cannot be read.
#[derive(Debug, ThisError)]
pub enum Error {
    /// A line that cannot be understood.
    #[error("{log}:{line}: {what}")]
    Line {
        /// Name of the log.
        log: String,
        /// Number of the line, counted from 1.
        line: u64,
        /// The fault in the line, and the text that is expected in its place.
        what: String,
    },
    /// The log as a whole.
    #[error("{log}: {what}")]
    Whole {
        /// Name of the log.
        log: String,
        /// The fault of the log.
        what: String,
    },
    /// The log has no request.
    #[error("{log}: no request to replay")]
    NoRequest {
        /// Name of the log.
        log: String,
    },
    /// The log cannot be read.
    #[error("cannot read {log}: {source}")]
    Read {
        /// Name of the log.
        log: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// The action that a line of a log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The file is part of the log.
    Add,
    /// `open`: the replay opens the file.
    Open,
    /// `close`: the replay closes the file.
    Close,
    /// An op on the file.
    Op(OpKind),
    /// Nothing happens for `offset` microseconds (version 2).
    Wait,
}

impl Action {
    const NAMES: [(&'static str, Action); 10] = [
        ("add", Action::Add),
        ("open", Action::Open),
        ("close", Action::Close),
        ("read", Action::Op(OpKind::Io(Direction::Read))),
        ("write", Action::Op(OpKind::Io(Direction::Write))),
        ("trim", Action::Op(OpKind::Io(Direction::Trim))),
        ("sync", Action::Op(OpKind::Sync)),
        ("datasync", Action::Op(OpKind::DataSync)),
        ("sync_file_range", Action::Op(OpKind::SyncRange)),
        ("wait", Action::Wait),
    ];

    fn parse(name: &str) -> Option<Action> {
        Action::NAMES.iter().find(|known| known.0 == name).map(|known| known.1)
    }

    fn name(self) -> &'static str {
        Action::NAMES.iter().find(|known| known.1 == self).map_or("unknown", |known| known.0)
    }
}

/// One line of an iolog, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Microseconds since the start (version 3).
    pub at_us: Option<u64>,
    /// Index of the file in [`Reader::files`].
    pub file: u32,
    /// The action on the file.
    pub action: Action,
    /// Bytes from the start of the file; microseconds for a wait.
    pub offset: u64,
    /// Length of the op in bytes.
    pub len: u64,
    /// The thread that issued the op; None in logs without threads.
    pub thread: Option<u64>,
}

/// Reads a log line by line. Memory: one line, and the names of the files.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    log: String,
    line: u64,
    version: u8,
    text: Vec<u8>,
    names: Vec<String>,
    index: HashMap<String, u32>,
}

impl<R: BufRead> Reader<R> {
    /// A reader of the log called `log` (for messages); its first line has been read.
    ///
    /// # Errors
    /// The first line does not name version 2 or 3.
    pub fn new(input: R, log: impl Into<String>) -> Result<Reader<R>, Error> {
        let mut reader = Reader {
            input,
            log: log.into(),
            line: 0,
            version: 0,
            text: Vec::new(),
            names: Vec::new(),
            index: HashMap::new(),
        };
        // A line that is too long is not the first line of a log either.
        if let Err(error @ Error::Read { .. }) = reader.next_line() {
            return Err(error);
        }
        let is_text = std::str::from_utf8(&reader.text).map_or_else(|error| error.error_len().is_none(), |_| true);
        // The magic of blktrace's records, in either byte order.
        let is_trace = reader.text.starts_with(&[7, b't', b'a', b'e']) || reader.text.starts_with(b"eat\x07");
        let text = String::from_utf8_lossy(&reader.text).trim_end().to_owned();
        reader.version = match text.as_str() {
            "fio version 2 iolog" => 2,
            "fio version 3 iolog" => 3,
            _ if is_trace => {
                return Err(reader.wrong("a recording of blktrace: plimsoll sweep --workload replays it"));
            }
            _ if !is_text || reader.text.contains(&0) => {
                return Err(reader.wrong("binary data, not one of fio's text logs"));
            }
            "" => return Err(reader.wrong("the log is empty; its first line must be 'fio version 3 iolog' (or 2)")),
            other => {
                return Err(reader.wrong(format!(
                    "'{other:.60}' is not the first line of a log: expected 'fio version 3 iolog' (or 2)"
                )));
            }
        };
        Ok(reader)
    }

    /// Names of the files that have been added so far.
    pub fn files(&self) -> &[String] {
        &self.names
    }

    /// The next record; None at the end.
    ///
    /// # Errors
    /// A line that cannot be understood: unlike fio, which goes on without it and replays something else.
    pub fn next_record(&mut self) -> Result<Option<Record>, Error> {
        loop {
            if !self.next_line()? {
                return Ok(None);
            }
            let text = std::mem::take(&mut self.text);
            let record = self.parse(&text);
            self.text = text;
            if let Some(record) = record? {
                return Ok(Some(record));
            }
        }
    }

    /// Reads a line into `text`; false at the end.
    fn next_line(&mut self) -> Result<bool, Error> {
        self.text.clear();
        self.line += 1;
        let mut limited = io::Read::take(&mut self.input, LINE_MOST);
        let read = limited
            .read_until(b'\n', &mut self.text)
            .map_err(|source| Error::Read { log: self.log.clone(), source })?;
        if read as u64 == LINE_MOST && self.text.last() != Some(&b'\n') {
            return Err(self.wrong(format!("the line is longer than {LINE_MOST} bytes")));
        }
        Ok(read > 0)
    }

    fn parse(&mut self, text: &[u8]) -> Result<Option<Record>, Error> {
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(self.wrong("the line is not UTF-8"));
        };
        let mut words = text.split_ascii_whitespace();
        let Some(mut word) = words.next() else { return Ok(None) };
        let mut at_us = None;
        if self.version == 3 {
            at_us = Some(self.number(word, "a time in microseconds")?);
            word = words
                .next()
                .ok_or_else(|| self.wrong("a time, but no file; expected: TIME FILE ACTION [OFFSET LENGTH]"))?;
        }
        let name = word;
        let action = words.next().ok_or_else(|| self.wrong("no action; expected: FILE ACTION [OFFSET LENGTH]"))?;
        let Some(action) = Action::parse(action) else {
            return Err(self.wrong(format!(
                "unknown action '{action:.40}'; there are add, open, close, read, write, trim, sync, datasync and wait"
            )));
        };
        if action == Action::Wait && self.version == 3 {
            return Err(self.wrong("'wait' does not exist in version 3: times stand in the first column"));
        }
        let wanted = match action {
            Action::Add | Action::Open | Action::Close => 0,
            Action::Op(OpKind::Sync | OpKind::DataSync) => 1,
            Action::Wait => 2,
            Action::Op(_) => 3,
        };
        let mut next = || words.next();
        let (offset, len, thread) = match (next(), next(), next(), next()) {
            (None, None, None, None) if wanted <= 1 => (0, 0, None),
            (Some(offset), None, None, None) if wanted == 2 => (self.number(offset, "microseconds")?, 0, None),
            (Some(offset), Some(len), thread, None)
                if wanted >= 1 && (thread.is_none() || (self.version == 3 && wanted != 2)) =>
            {
                let thread = thread.map(|thread| self.number(thread, "the number of a thread")).transpose()?;
                (self.number(offset, "an offset in bytes")?, self.number(len, "a length in bytes")?, thread)
            }
            _ if wanted == 0 => return Err(self.wrong(format!("'{}' takes nothing after it", action.name()))),
            _ => return Err(self.wrong(format!("'{}' takes an offset and a length", action.name()))),
        };
        if matches!(action, Action::Op(OpKind::Io(Direction::Read | Direction::Write))) && u32::try_from(len).is_err() {
            return Err(self.wrong(format!("a length of {len} bytes: no op has more than {}", u32::MAX)));
        }
        if matches!(action, Action::Op(OpKind::Io(_)))
            && offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(self.wrong(format!("{len} bytes at {offset} lie beyond the end of any file")));
        }
        let file = self.file(name, action)?;
        Ok(Some(Record { at_us, file, action, offset, len, thread }))
    }

    fn file(&mut self, name: &str, action: Action) -> Result<u32, Error> {
        if let Some(&file) = self.index.get(name) {
            return Ok(file);
        }
        match action {
            // A wait names a file that need not exist.
            Action::Wait => return Ok(0),
            Action::Add => {}
            _ => {
                return Err(self.wrong(format!(
                    "file '{name:.100}' has not been added; a line '{name:.100} add' must come first"
                )));
            }
        }
        if name.len() > NAME_MOST {
            return Err(self.wrong(format!("a name of {} bytes: fio's logs have room for {NAME_MOST}", name.len())));
        }
        let file = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), file);
        Ok(file)
    }

    fn number(&self, word: &str, what: &str) -> Result<u64, Error> {
        word.parse().map_err(|_| self.wrong(format!("'{word:.40}' is not {what}")))
    }

    fn wrong(&self, what: impl Into<String>) -> Error {
        Error::Line { log: self.log.clone(), line: self.line, what: what.into() }
    }
}

/// The facts about a log that have to be known before its replay begins: files, numbers of ops and bytes, duration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The files, in the order of [`Step::Op`]'s indices.
    pub files: Vec<FileUse>,
    /// Ops that transfer data, after `replay_skip`.
    pub ops: PerDirection<u64>,
    /// Bytes of the ops in `ops`.
    pub bytes: PerDirection<u64>,
    /// Bytes of the largest read or write.
    pub largest: u64,
    /// Time at which the last op is due, in nanoseconds since the start.
    pub duration_ns: u64,
}

/// A file of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// Name of the file; `replay_redirect`'s if that is set.
    pub name: String,
    /// Bytes that the file must have for its reads and writes.
    pub bytes: u64,
    /// True if the log writes or trims the file.
    pub changed: bool,
}

/// The next step of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The replay opens a file.
    Open {
        /// Index in [`Summary::files`].
        file: u32,
        /// Time of the step in nanoseconds since the start of the log.
        at_ns: u64,
    },
    /// The replay closes a file.
    Close {
        /// Index in [`Summary::files`].
        file: u32,
        /// Time of the step in nanoseconds since the start of the log.
        at_ns: u64,
    },
    /// The replay issues an op.
    Op {
        /// The op, with its file, offset and length.
        op: Op,
        /// Nanoseconds since the start; all 0 with `replay_no_stall`.
        at_ns: u64,
        /// The thread that issued the op; None in logs without threads.
        thread: Option<u64>,
    },
}

/// Replays a log with the job's `replay_*` options.
#[derive(Debug)]
pub struct Replay<R> {
    reader: Reader<R>,
    options: Iolog,
    /// The first time of the recording that is being replayed, and the time at which its replay began.
    recording: Option<(u64, u64)>,
    now_us: u64,
}

impl<R: BufRead> Replay<R> {
    /// A replay of the log called `log`.
    ///
    /// # Errors
    /// The first line is not that of a log.
    pub fn new(input: R, log: impl Into<String>, options: &Iolog) -> Result<Replay<R>, Error> {
        Ok(Replay { reader: Reader::new(input, log)?, options: options.clone(), recording: None, now_us: 0 })
    }

    /// The number of files that the steps so far have named.
    pub fn file_count(&self) -> usize {
        if self.options.redirect.is_some() { 0 } else { self.reader.files().len() }
    }

    /// The name of a file that a step has named; `replay_redirect`'s if that is set.
    pub fn file_name(&self, file: usize) -> &str {
        let own = || self.reader.files().get(file).map_or("", String::as_str);
        self.options.redirect.as_deref().unwrap_or_else(own)
    }

    /// The next step; None at the end.
    ///
    /// # Errors
    /// A line that cannot be understood.
    pub fn next_step(&mut self) -> Result<Option<Step>, Error> {
        while let Some(record) = self.reader.next_record()? {
            if let Some(at_us) = record.at_us {
                let (first, began) = *self.recording.get_or_insert((at_us, 0));
                let due = began.saturating_add(at_us.saturating_sub(first));
                if due.saturating_add(OUT_OF_ORDER_US) < self.now_us {
                    // Another recording follows, as in a file of several logs: its pauses count on from here.
                    self.recording = Some((at_us, self.now_us));
                } else {
                    self.now_us = self.now_us.max(due);
                }
            }
            let at_ns = self.scaled_ns();
            let file = if self.options.redirect.is_some() { 0 } else { record.file };
            let kind = match record.action {
                Action::Add => continue,
                Action::Open => return Ok(Some(Step::Open { file, at_ns })),
                Action::Close => return Ok(Some(Step::Close { file, at_ns })),
                Action::Wait => {
                    // Shorter pauses are noise of the recorder: fio's manual leaves them out.
                    if record.offset >= 100 {
                        self.now_us = self.now_us.saturating_add(record.offset);
                    }
                    continue;
                }
                Action::Op(kind) => kind,
            };
            let skipped = match kind {
                OpKind::Io(direction) => self.options.skip.ops[direction],
                OpKind::Sync | OpKind::DataSync | OpKind::SyncRange => self.options.skip.syncs,
            };
            if skipped {
                continue;
            }
            let mut offset = record.offset / self.options.scale.max(1);
            if self.options.align > 1 {
                offset -= offset % self.options.align;
            }
            return Ok(Some(Step::Op { op: Op { kind, file, offset, len: record.len }, at_ns, thread: record.thread }));
        }
        Ok(None)
    }

    /// Goes through the whole log, and finds the facts that have to be known before its replay begins.
    ///
    /// # Errors
    /// A line that cannot be understood: found before anything is touched.
    pub fn summarise(mut self) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        while let Some(step) = self.next_step()? {
            let Step::Op { op, at_ns, .. } = step else { continue };
            summary.duration_ns = summary.duration_ns.max(at_ns);
            let OpKind::Io(direction) = op.kind else { continue };
            summary.ops[direction] += 1;
            summary.bytes[direction] = summary.bytes[direction].saturating_add(op.len);
            if direction != Direction::Trim {
                summary.largest = summary.largest.max(op.len);
            }
            let index = op.file as usize;
            if summary.files.len() <= index {
                summary.files.resize_with(index + 1, FileUse::default);
            }
            summary.files[index].bytes = summary.files[index].bytes.max(op.offset + op.len);
            summary.files[index].changed |= direction != Direction::Read;
        }
        let names = match &self.options.redirect {
            Some(redirect) => std::slice::from_ref(redirect),
            None => self.reader.files(),
        };
        summary.files.resize_with(names.len(), FileUse::default);
        for (file, name) in summary.files.iter_mut().zip(names) {
            file.name.clone_from(name);
        }
        Ok(summary)
    }

    fn scaled_ns(&self) -> u64 {
        if self.options.no_stall {
            return 0;
        }
        let percent =
            u128::from(if self.options.time_scale_percent == 0 { 100 } else { self.options.time_scale_percent });
        u64::try_from(u128::from(self.now_us) * 1000 * 100 / percent).unwrap_or(u64::MAX)
    }
}

/// Writes a log of version 3.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    names: Vec<String>,
}

impl<W: Write> Writer<W> {
    /// A log over these files, its first lines written: every file is added. Give it a buffered writer.
    ///
    /// # Errors
    /// The writer's; a name that a log cannot hold (with white space, or longer than 256 bytes).
    pub fn new(mut output: W, names: &[String]) -> io::Result<Writer<W>> {
        if let Some(name) = names
            .iter()
            .find(|name| name.is_empty() || name.len() > NAME_MOST || name.contains(|c: char| c.is_ascii_whitespace()))
        {
            let what =
                format!("a log cannot hold the file name '{name}': it has white space or more than {NAME_MOST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        writeln!(output, "fio version 3 iolog")?;
        for name in names {
            writeln!(output, "0 {name} add")?;
        }
        Ok(Writer { output, names: names.to_vec() })
    }

    /// Records that a file was opened (`true`) or closed, `at_ns` after the start.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn opened(&mut self, at_ns: u64, file: u32, open: bool) -> io::Result<()> {
        let action = if open { Action::Open } else { Action::Close };
        writeln!(self.output, "{} {} {}", at_ns / 1000, self.names[file as usize], action.name())
    }

    /// Records an op as it is issued, `at_ns` after the start.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn op(&mut self, at_ns: u64, op: &Op) -> io::Result<()> {
        let name = &self.names[op.file as usize];
        writeln!(self.output, "{} {name} {} {} {}", at_ns / 1000, Action::Op(op.kind).name(), op.offset, op.len)
    }

    /// Writes out the buffered lines and returns the writer.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ReplaySkip;
    use proptest::prelude::*;

    fn options() -> Iolog {
        crate::Job::default().iolog
    }

    fn replay(log: &str, options: &Iolog) -> Result<Vec<Step>, Error> {
        let mut replay = Replay::new(log.as_bytes(), "log", options)?;
        std::iter::from_fn(|| replay.next_step().transpose()).collect()
    }

    fn op(kind: OpKind, file: u32, offset: u64, len: u64, at_ns: u64) -> Step {
        Step::Op { op: Op { kind, file, offset, len }, at_ns, thread: None }
    }

    const READ: OpKind = OpKind::Io(Direction::Read);
    const WRITE: OpKind = OpKind::Io(Direction::Write);

    const V2: &str = "fio version 2 iolog\n/a add\n/b add\n/a open\n/a wait 500 0\n/a wait 99 0\n/a read 0 4096\n\n/b open\n/b wait 1000\n/b write 8192 512\n/a sync 0 0\n/b datasync\n/a trim 0 65536\n/a close\n";
    const V3: &str =
        "fio version 3 iolog\n7 /a add\n17 /a open\n107 /a read 10000 4096\n90 /a write 4096 4096\n207 /a close\n";

    #[test]
    fn both_versions_are_read() {
        assert_eq!(
            replay(V2, &options()).unwrap(),
            [
                Step::Open { file: 0, at_ns: 0 },
                op(READ, 0, 0, 4096, 500_000),
                Step::Open { file: 1, at_ns: 500_000 },
                op(WRITE, 1, 8192, 512, 1_500_000),
                op(OpKind::Sync, 0, 0, 0, 1_500_000),
                op(OpKind::DataSync, 1, 0, 0, 1_500_000),
                op(OpKind::Io(Direction::Trim), 0, 0, 65536, 1_500_000),
                Step::Close { file: 0, at_ns: 1_500_000 },
            ]
        );
        assert_eq!(
            replay(V3, &options()).unwrap(),
            [
                Step::Open { file: 0, at_ns: 10_000 },
                op(READ, 0, 10_000, 4096, 100_000),
                op(WRITE, 0, 4096, 4096, 100_000),
                Step::Close { file: 0, at_ns: 200_000 },
            ]
        );
    }

    /// A file of two recordings: the clock of the second begins anew, and its pauses stay.
    #[test]
    fn a_clock_that_begins_anew_keeps_the_pauses_behind_it() {
        let first = "0 /a add\n100000 /a read 0 512\n400000 /a read 512 512\n";
        let log = format!("fio version 3 iolog\n{first}{first}399999 /a read 0 512\n");
        let times: Vec<u64> = replay(&log, &options())
            .unwrap()
            .iter()
            .map(|step| match step {
                Step::Open { at_ns, .. } | Step::Close { at_ns, .. } | Step::Op { at_ns, .. } => at_ns / 1_000_000,
            })
            .collect();
        assert_eq!(times, [100, 400, 500, 800, 800]);
    }

    #[test]
    fn replay_options_change_what_is_replayed() {
        let times = |options: &Iolog| {
            replay(V3, options)
                .unwrap()
                .iter()
                .map(|step| match step {
                    Step::Open { at_ns, .. } | Step::Close { at_ns, .. } | Step::Op { at_ns, .. } => *at_ns,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(times(&Iolog { no_stall: true, ..options() }), [0; 4]);
        assert_eq!(times(&Iolog { time_scale_percent: 50, ..options() }), [20_000, 200_000, 200_000, 400_000]);
        assert_eq!(times(&Iolog { time_scale_percent: 200, ..options() }), [5_000, 50_000, 50_000, 100_000]);
        let skip = |read, trim, syncs| ReplaySkip { ops: PerDirection { read, write: false, trim }, syncs };
        let ops = |options: &Iolog| {
            replay(V2, options)
                .unwrap()
                .into_iter()
                .filter_map(|step| match step {
                    Step::Op { op, .. } => Some((op.file, op.offset)),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ops(&Iolog { redirect: Some("/c".into()), ..options() }),
            [(0, 0), (0, 8192), (0, 0), (0, 0), (0, 0)]
        );
        assert_eq!(ops(&Iolog { skip: skip(true, true, false), ..options() }), [(1, 8192), (0, 0), (1, 0)]);
        assert_eq!(ops(&Iolog { skip: skip(true, true, true), ..options() }), [(1, 8192)]);
        assert_eq!(ops(&Iolog { scale: 3, align: 512, ..options() })[1], (1, 8192 / 3 / 512 * 512));
    }

    #[test]
    fn a_summary_says_what_is_needed() {
        let summary = Replay::new(V2.as_bytes(), "log", &options()).unwrap().summarise().unwrap();
        assert_eq!(
            summary.files,
            [
                FileUse { name: "/a".into(), bytes: 65536, changed: true },
                FileUse { name: "/b".into(), bytes: 8704, changed: true },
            ]
        );
        assert_eq!(
            (summary.ops, summary.largest, summary.duration_ns),
            (PerDirection { read: 1, write: 1, trim: 1 }, 4096, 1_500_000)
        );
        let redirected = Iolog { redirect: Some("/c".into()), ..options() };
        let summary = Replay::new(V2.as_bytes(), "log", &redirected).unwrap().summarise().unwrap();
        assert_eq!(summary.files, [FileUse { name: "/c".into(), bytes: 65536, changed: true }]);
    }

    #[test]
    fn errors_name_the_line() {
        let error = |log: &str| replay(log, &options()).unwrap_err().to_string();
        assert_eq!(error(""), "log:1: the log is empty; its first line must be 'fio version 3 iolog' (or 2)");
        assert_eq!(
            error("0, 4096, 1\n"),
            "log:1: '0, 4096, 1' is not the first line of a log: expected 'fio version 3 iolog' (or 2)"
        );
        assert_eq!(error("\x07taexxx"), "log:1: a recording of blktrace: plimsoll sweep --workload replays it");
        let binary = Replay::new(&b"\xff\xfe\x00 \n"[..], "log", &options()).map(|_| ()).unwrap_err().to_string();
        assert_eq!(binary, "log:1: binary data, not one of fio's text logs");
        let json = error(&format!("{{\"kind\":\"{}\"}}", "a".repeat(1 << 20)));
        assert!(json.starts_with("log:1: '{\"kind\":\"aaa") && json.contains("is not the first line"), "{json:.200}");
        let v3 = |line: &str| error(&format!("fio version 3 iolog\n0 a add\n{line}\n"));
        assert_eq!(v3("1 b open"), "log:3: file 'b' has not been added; a line 'b add' must come first");
        assert_eq!(v3("a open"), "log:3: 'a' is not a time in microseconds");
        assert_eq!(v3("1 a wait 5 0"), "log:3: 'wait' does not exist in version 3: times stand in the first column");
        assert_eq!(
            v3("1 a reed 5 0"),
            "log:3: unknown action 'reed'; there are add, open, close, read, write, trim, sync, datasync and wait"
        );
        assert_eq!(v3("1 a read 5"), "log:3: 'read' takes an offset and a length");
        assert_eq!(v3("1 a read 5 x"), "log:3: 'x' is not a length in bytes");
        assert_eq!(v3("1 a read 0 4096 x"), "log:3: 'x' is not the number of a thread");
        assert_eq!(v3("1 a read 0 4096 7 8"), "log:3: 'read' takes an offset and a length");
        assert_eq!(
            error("fio version 2 iolog\na add\na read 0 4096 7\n"),
            "log:3: 'read' takes an offset and a length"
        );
        assert_eq!(v3("1 a open 5"), "log:3: 'open' takes nothing after it");
        assert_eq!(v3("1 a read 0 4294967296"), "log:3: a length of 4294967296 bytes: no op has more than 4294967295");
        assert_eq!(
            v3("1 a read 9223372036854775807 1"),
            "log:3: 1 bytes at 9223372036854775807 lie beyond the end of any file"
        );
        assert_eq!(v3(&"x".repeat(5000)), "log:3: the line is longer than 4096 bytes");
    }

    #[test]
    fn names_that_a_log_cannot_hold_are_refused() {
        assert!(Writer::new(Vec::new(), &["a b".into()]).unwrap_err().to_string().contains("'a b'"));
        assert!(Writer::new(Vec::new(), &["x".repeat(257)]).is_err());
    }

    fn any_op() -> impl Strategy<Value = (u64, Op)> {
        let kind = prop_oneof![
            Just(READ),
            Just(WRITE),
            Just(OpKind::Io(Direction::Trim)),
            Just(OpKind::Sync),
            Just(OpKind::DataSync),
            Just(OpKind::SyncRange),
        ];
        (0..1u64 << 40, kind, 0..3u32, 0..1u64 << 62, 0..=u64::from(u32::MAX))
            .prop_map(|(at, kind, file, offset, len)| (at, Op { kind, file, offset, len }))
    }

    proptest! {
        /// A log that is written is read back as it was: times in whole microseconds, ops unchanged.
        #[test]
        fn a_log_survives_the_way_there_and_back(mut ops in proptest::collection::vec(any_op(), 0..50)) {
            ops.sort_by_key(|(at, _)| *at);
            let names: Vec<String> = ["/dev/a", "b", "c:d"].map(String::from).into();
            let mut writer = Writer::new(Vec::new(), &names).unwrap();
            writer.opened(0, 1, true).unwrap();
            for (at, op) in &ops {
                writer.op(*at, op).unwrap();
            }
            let log = writer.finish().unwrap();
            let mut reader = Reader::new(&log[..], "log").unwrap();
            let records: Vec<Record> = std::iter::from_fn(|| reader.next_record().unwrap()).collect();
            prop_assert_eq!(reader.files(), &names[..]);
            prop_assert_eq!(records[3], Record { at_us: Some(0), file: 1, action: Action::Open, offset: 0, len: 0, thread: None });
            let read: Vec<_> = records[4..].iter().map(|r| (r.at_us, r.file, r.action, r.offset, r.len)).collect();
            let wrote: Vec<_> = ops.iter().map(|(at, op)| (Some(at / 1000), op.file, Action::Op(op.kind), op.offset, op.len)).collect();
            prop_assert_eq!(read, wrote);
        }

        /// Nothing makes the parser panic, and nothing that it accepts overflows.
        #[test]
        fn noise_is_an_error_or_a_log(version in 2..4u8, lines in proptest::collection::vec("[0-9]{0,21} ?[ab/]{0,3} ?(add|open|close|read|write|wait|sync|trim|x)? ?[0-9]{0,21} ?[0-9]{0,11}", 0..20), junk in proptest::collection::vec(any::<u8>(), 0..50)) {
            let mut log = format!("fio version {version} iolog\n1 a add\n1 b add\n{}\n", lines.join("\n")).into_bytes();
            log.extend(junk);
            if let Ok(replay) = Replay::new(&log[..], "log", &Iolog { scale: 0, time_scale_percent: 1, ..options() }) {
                let _ = replay.summarise();
            }
        }
    }
}
