//! The record of the program's requests: `IOTRAP_TRACE=1` writes it as text to stderr, `IOTRAP_IOLOG=FILE` as a log
//! that `fio --read_iolog` and `plimsoll run` replay (version 3). Behind each request stands its thread, which
//! `plimsoll sweep --workload` reads and fio passes over.
//!
//! A line is put together on the stack and appended in one write(2): lines of several threads and forked children do
//! not mix, and none is lost if the program is killed.

use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};

use crate::abi::errno;
use crate::abi::own_stack;
use crate::abi::raw::{self, Digits};
use crate::abi::said;
use crate::policy::spread::Kind;
use crate::state::group::GroupRef;
use crate::state::process;
use crate::state::table;

static TEXT: AtomicBool = AtomicBool::new(false);
static LOG: AtomicI32 = AtomicI32::new(-1);
static ANY: AtomicBool = AtomicBool::new(false);
/// True once a line could not be written.
static CUT: AtomicBool = AtomicBool::new(false);
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);

/// True if requests are recorded, as text or in a log.
#[inline]
pub fn on() -> bool {
    ANY.load(Relaxed)
}

/// Begins to record. The log's descriptor belongs to the library: it has a high number, and is closed on exec.
///
/// # Errors
/// The errno that says why the log cannot be written.
pub fn begin(text: bool, log: Option<&CStr>) -> raw::Result<()> {
    BEGAN_NS.store(raw::now_ns(), Relaxed);
    TEXT.store(text, Relaxed);
    let mut result = Ok(());
    if let Some(path) = log {
        result = open_log(path).map(|fd| LOG.store(fd, Release));
    }
    ANY.store(text || LOG.load(Relaxed) >= 0, Release);
    result
}

fn open_log(path: &CStr) -> raw::Result<c_int> {
    let low = raw::open_to_add(path)?;
    // A log that exists already is one of an earlier program in the same run: this program continues it.
    let empty = raw::fstat(low).is_ok_and(|stat| stat.st_size == 0);
    if empty {
        raw::tell(low, b"fio version 3 iolog\n");
    }
    let high = process::HighNumbers::reserve().duplicate(low);
    let _ = raw::close(low);
    high
}

type Line = Digits<4400>;

fn log(fd: c_int, action: &[u8], extent: Option<(i64, u64)>) {
    let log = LOG.load(Acquire);
    if log < 0 {
        return;
    }
    own_stack::run(|| log_to(log, fd, action, extent));
}

fn log_to(log: c_int, fd: c_int, action: &[u8], extent: Option<(i64, u64)>) {
    let mut room = [0u8; 4096];
    let Some(path) = raw::path_of(fd, &mut room) else { return };
    // A log cannot hold such names: columns are separated by blanks.
    if path.iter().any(u8::is_ascii_whitespace) || path.len() > 256 {
        return;
    }
    let mut line = Line::empty();
    let column = |line: &mut Line, text: &[u8]| {
        line.number(raw::now_ns().saturating_sub(BEGAN_NS.load(Relaxed)) / 1000);
        line.push(b" ");
        line.push(path);
        line.push(b" ");
        line.push(text);
    };
    if action == b"open" {
        column(&mut line, b"add\n");
    }
    column(&mut line, action);
    if let Some((offset, bytes)) = extent {
        line.push(b" ");
        line.signed(offset);
        line.push(b" ");
        line.number(bytes);
        line.push(b" ");
        line.number(raw::thread().into());
    }
    line.push(b"\n");
    if !raw::tell(log, line.as_bytes()) && !CUT.swap(true, Relaxed) {
        said::line(b"iotrap: the trace lacks requests, because its file takes no more (is the disk full?)\n");
    }
}

fn text(what: &[u8], fd: c_int, rest: impl FnOnce(&mut Digits<1024>)) {
    if !TEXT.load(Relaxed) {
        return;
    }
    let mut line = Digits::<1024>::empty();
    line.push(b"iotrap: ");
    line.push(what);
    line.push(b"(");
    line.signed(fd.into());
    rest(&mut line);
    line.push(b")\n");
    said::line(line.as_bytes());
}

/// Records that a file was opened.
pub fn opened(fd: c_int) {
    if on() && table::get(fd) != table::Entry::Nothing {
        let lanes = GroupRef::of(fd).map_or(0, |group| group.usable().count_ones());
        let why = GroupRef::of(fd).and_then(|group| group.ended());
        text(b"open", fd, |line| {
            let mut room = [0u8; 4096];
            line.push(b", ");
            line.push(raw::path_of(fd, &mut room).unwrap_or(b"?"));
            line.push(b", lanes ");
            line.number(lanes.into());
            if let Some(reason) = why {
                line.push(b": ");
                line.push(reason.text().as_bytes());
            }
        });
        log(fd, b"open", None);
    }
}

/// Tells the lane that was chosen for a request, as text.
pub fn chosen(fd: c_int, group: &GroupRef, lane: usize) {
    if !TEXT.load(Relaxed) {
        return;
    }
    let _errno = errno::kept();
    text(b"lane", fd, |line| {
        line.push(b", ");
        if let Some(config) = group.pool().and_then(|pool| pool.config.lanes.get(lane)) {
            line.push(config.path.as_os_str().as_encoded_bytes());
        }
    });
}

/// Records that a file is about to be closed.
pub fn closed(fd: c_int) {
    if on() {
        text(b"close", fd, |_| {});
        log(fd, b"close", None);
    }
}

/// Records that a descriptor was duplicated.
pub fn duplicated(old: c_int, new: c_int) {
    if on() {
        text(b"dup", old, |line| {
            line.push(b", ");
            line.signed(new.into());
        });
    }
}

/// Adds a synchronous read or write to the iolog.
#[inline]
pub fn transfers(fd: c_int, group: &GroupRef, kind: Kind, offset: i64, bytes: u64) {
    if on() {
        extent(if kind == Kind::Read { b"pread" } else { b"pwrite" }, fd, group, kind, offset, bytes);
    }
}

/// Records a transfer that was submitted by io_submit.
#[inline]
pub fn submitted(fd: c_int, group: &GroupRef, kind: Kind, offset: i64, bytes: u64) {
    if on() {
        let what = if kind == Kind::Read { b"io_submit: pread" as &[u8] } else { b"io_submit: pwrite" };
        extent(what, fd, group, kind, offset, bytes);
    }
}

#[cold]
fn extent(what: &[u8], fd: c_int, _group: &GroupRef, kind: Kind, offset: i64, bytes: u64) {
    text(what, fd, |line| {
        line.push(b", ");
        line.signed(offset);
        line.push(b", ");
        line.number(bytes);
    });
    log(fd, if kind == Kind::Read { b"read" } else { b"write" }, Some((offset, bytes)));
}

/// Adds an fsync or fdatasync to the iolog.
pub fn synced(fd: c_int, data_only: bool) {
    if on() {
        let what = if data_only { b"fdatasync" as &[u8] } else { b"fsync" };
        text(what, fd, |_| {});
        log(fd, if data_only { b"datasync" } else { b"sync" }, Some((0, 0)));
    }
}
