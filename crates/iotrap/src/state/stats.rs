//! The counts of lanes and reasons: on the live board, for `plimsoll top` and the summary at the end.
//!
//! The board is made when the first file of a pool is opened: most programs of a trapped shell never open one.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};

use std::ffi::CString;
use std::sync::OnceLock;

use lanes::{LANES_MAX, State, advice, environment};
use live::{Board, BoardKind, Gauge, Op, Row, RowKind};

use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::said;
use crate::state::lane::{self, Pool};
use crate::state::reason::Reason;

/// The most lanes, of all pools, that have a row.
const ROWS: usize = 8 * LANES_MAX;

struct Made {
    board: Board,
    /// The rows of the lanes, by pool and lane: `first[pool] + lane`.
    rows: [Option<Row>; ROWS],
    reasons: [Option<live::Reason>; Reason::ALL.len()],
}

struct Cell(UnsafeCell<MaybeUninit<Made>>);

// SAFETY: written once, by the thread that moved STATE from NONE to MAKING; read only after it said READY.
unsafe impl Sync for Cell {}

const NONE: u32 = 0;
const MAKING: u32 = 1;
const READY: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NONE);
static MADE: Cell = Cell(UnsafeCell::new(MaybeUninit::uninit()));

fn made() -> Option<&'static Made> {
    if STATE.load(Acquire) != READY {
        return None;
    }
    // SAFETY: the pointer of a static is valid; nobody writes it after READY.
    let made = unsafe { &*MADE.0.get() };
    // SAFETY: READY says that it was filled.
    Some(unsafe { made.assume_init_ref() })
}

/// Makes the board, once. The function allocates nothing, and makes raw system calls only.
pub fn begin() {
    if STATE.load(Relaxed) != NONE || STATE.compare_exchange(NONE, MAKING, AcqRel, Acquire).is_err() {
        return;
    }
    let mut title = [0u8; 64];
    let title = program_name(&mut title);
    let count = lane::pools().iter().map(Pool::len).sum::<usize>().min(ROWS);
    let board = Board::create(BoardKind::Trap, title, count).or_else(|_| Board::private(BoardKind::Trap, title, count));
    // Without memory for a board nothing is counted: it stays at MAKING.
    let Ok(board) = board else { return };
    let (mut rows, mut reasons) = ([None; ROWS], [None; Reason::ALL.len()]);
    let mut name = PathText::empty();
    for pool in lane::pools() {
        for (at, config) in pool.config.lanes.iter().enumerate() {
            name.clear();
            name.push(config.path.as_os_str().as_encoded_bytes());
            let row = board.add(RowKind::Lane, &pool.config.name, core::str::from_utf8(name.as_bytes()).unwrap_or("?"));
            if let Some(place) = rows.get_mut(pool.first_row() + at) {
                *place = row;
            }
        }
    }
    for (place, reason) in reasons.iter_mut().zip(Reason::ALL) {
        *place = Some(board.reason(reason.text()));
    }
    let pointer = MADE.0.get();
    // SAFETY: only this thread gets here (MAKING), and nobody reads before READY.
    unsafe { (*pointer).write(Made { board, rows, reasons }) };
    STATE.store(READY, Release);
    for (reason, count) in Reason::ALL.iter().map(|reason| (*reason, reason.counted())) {
        (0..count.min(1000)).for_each(|_| _ = count_reason(reason)); // what happened before
    }
}

type PathText = raw::Digits<256>;

/// Forgets the board in a forked child, whose requests are not the parent's business: the child makes a board of its
/// own.
pub fn forget_all() {
    STATE.store(NONE, Release);
}

/// Counts the end of a request on its lane's row.
#[inline]
pub fn ended(pool: &Pool, lane: usize, op: Op, result: i64, latency_ns: u64) {
    let Some(made) = made() else { return };
    let Some(Some(row)) = made.rows.get(pool.first_row() + lane) else { return };
    let counters = made.board.counters(*row);
    match u64::try_from(result) {
        Ok(bytes) => counters.count(op, bytes, latency_ns),
        Err(_) => counters.error(op),
    }
    // Gauges are for looking at. So it is often enough to publish them now and then, chosen by the last digits of a
    // latency.
    if latency_ns.is_multiple_of(16) || result < 0 {
        pool.traffic.publish(lane, counters);
    }
}

/// Counts a reason once more on the board; false before the board is made.
#[inline]
pub fn count_reason(reason: Reason) -> bool {
    let Some(made) = made() else { return false };
    let Some(Some(counted)) = made.reasons.get(reason as usize) else { return false };
    made.board.count(*counted);
    true
}

/// Says on stderr that a lane has failed or is back.
pub fn tell_state(pool: &Pool, lane: usize, state: State) {
    pool.say(
        lane,
        match state {
            State::Healthy => "back in service",
            State::Suspect => "no answer for too long, new I/O goes to the other lanes",
            State::Draining | State::Failed => "has failed, new I/O goes to the other lanes",
            _ => return,
        },
    );
    if let Some(made) = made()
        && let Some(Some(row)) = made.rows.get(pool.first_row() + lane)
    {
        pool.traffic.publish(lane, made.board.counters(*row));
    }
}

/// Publishes the last figures at the end of the program, and the summary if it is wanted.
pub fn end() {
    let Some(made) = made() else { return };
    for pool in lane::pools() {
        for lane in 0..pool.len() {
            if let Some(Some(row)) = made.rows.get(pool.first_row() + lane) {
                pool.traffic.publish(lane, made.board.counters(*row));
            }
        }
    }
    if SUMMARY.swap(false, AcqRel) {
        own_stack::run(|| summarise(made));
    }
    made.board.withdraw();
}

static SUMMARY: AtomicBool = AtomicBool::new(false);
static SUMMARY_FILE: OnceLock<CString> = OnceLock::new();

/// Asks for a summary at the end of the program, on standard error, or in a file that the summary is added to
/// (`IOTRAP_STATS`).
pub fn want_summary(file: Option<CString>) {
    if let Some(path) = file {
        let _ = SUMMARY_FILE.set(path); // the library is set up once
    }
    SUMMARY.store(true, Relaxed);
}

/// Tells the work of every lane, the reasons why requests stayed on the opened lane, and the change that would spread
/// most of them. The function allocates nothing: a program may end in a signal handler.
fn summarise(made: &Made) {
    let mut room = [0u8; 64];
    let title = program_name(&mut room);
    let out = Out::open();
    for pool in lane::pools() {
        for (lane, config) in pool.config.lanes.iter().enumerate() {
            let Some(Some(row)) = made.rows.get(pool.first_row() + lane) else { continue };
            let mut line = Line::empty();
            line.push(b"iotrap: ");
            line.push(title.as_bytes());
            line.push(b"[");
            line.number(raw::pid().into());
            line.push(b"] pool ");
            line.push(pool.config.name.as_bytes());
            line.push(b", lane ");
            line.push(config.path.as_os_str().as_encoded_bytes());
            line.push(b":");
            let counters = made.board.counters(*row);
            for op in [Op::Read, Op::Write] {
                let sums = counters.sums(op);
                let tenths_of_mib = sums.bytes.saturating_mul(10) >> 20;
                line.push(b" ");
                line.push(op.name().as_bytes());
                line.push(b" ");
                line.number(sums.ops);
                line.push(b" ops, ");
                line.number(tenths_of_mib / 10);
                line.push(b".");
                line.number(tenths_of_mib % 10);
                line.push(b" MiB, ");
                line.number(sums.lat_sum_ns / sums.ops.max(1) / 1000);
                line.push(b" us, ");
                line.number(sums.errors);
                line.push(b" errors;");
            }
            line.push(b" out of service ");
            line.number(counters.get(Gauge::Losses));
            line.push(b" times\n");
            out.line(&line);
        }
    }
    let count = |reason: Reason| {
        let counted = made.reasons.get(reason as usize).copied().flatten();
        counted.map_or(0, |counted| made.board.counted(counted))
    };
    let mut most = None;
    for &reason in Reason::ALL.iter().filter(|reason| count(**reason) > 0) {
        let mut line = Line::empty();
        line.push(b"iotrap: ");
        line.number(count(reason));
        let stays = environment::is_reason(reason.text());
        line.push(if stays { b" times on its own lane: " } else { b" times: " });
        line.push(reason.text().as_bytes());
        line.push(b"\n");
        out.line(&line);
        if stays && most.is_none_or(|most| count(most) < count(reason)) {
            most = Some(reason);
        }
    }
    if let Some(change) = most.and_then(|reason| advice::on(reason.text())) {
        let mut line = Line::empty();
        line.push(b"iotrap: most would spread with: ");
        line.push(change.as_bytes());
        line.push(b"\n");
        out.line(&line);
    }
    out.close();
}

/// A line of the summary.
pub type Line = raw::Digits<1024>;

/// The place of the summary.
pub enum Out {
    StandardError,
    File(core::ffi::c_int),
}

impl Out {
    /// The file that the user has named; standard error if there is none or it cannot be opened.
    pub fn open() -> Out {
        let file = SUMMARY_FILE.get().and_then(|path| raw::open_to_add(path).ok());
        file.map_or(Out::StandardError, Out::File)
    }

    /// Adds a line.
    pub fn line(&self, line: &Line) {
        match self {
            Out::StandardError => said::line(line.as_bytes()),
            Out::File(fd) => _ = raw::tell(*fd, line.as_bytes()),
        }
    }

    /// Ends the summary.
    pub fn close(self) {
        if let Out::File(fd) = self {
            let _ = raw::close(fd);
        }
    }
}

/// The name that the program has (/proc/self/comm).
fn program_name(room: &mut [u8; 64]) -> &str {
    let Ok(fd) = raw::open(c"/proc/self/comm", libc::O_RDONLY) else { return "?" };
    // SAFETY: the buffer is valid for its length.
    let got = unsafe { raw::call(libc::SYS_read, raw::arg(fd), room.as_mut_ptr() as usize, room.len(), 0, 0, 0) };
    let _ = raw::close(fd);
    let name = room.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default();
    core::str::from_utf8(name).unwrap_or("?").trim_end()
}
