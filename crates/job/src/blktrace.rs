//! Recordings of blktrace: the requests that threads gave to a block device, and when they ended.
//!
//! A file is a row of records in the byte order of the machine that wrote it: blktrace's files of one CPU each, or what
//! `blkparse -d` makes of them. A request is a record of type "queue" with data; it has ended when records of type
//! "complete" have covered all its bytes, whatever the kernel merged or split on the way. Source: `struct
//! blk_io_trace` in include/uapi/linux/blktrace_api.h.

use std::collections::{BTreeMap, HashMap};

use measure::Direction;

use crate::iolog::Error;
use crate::threads::{Recording, Request, Since};
use crate::workload::{Op, OpKind};

/// The first bytes of a record, without the version: "eat" and 7.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// Bytes of a record, without the data that may follow.
const RECORD: usize = 48;
const SECTOR: u64 = 512;

const QUEUE: u32 = 1;
const COMPLETE: u32 = 8;
const WRITE: u32 = 1 << 17;
const PASSED_THROUGH: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

/// True if a file begins as a recording of blktrace does.
pub fn is_recording(bytes: &[u8]) -> bool {
    let first: Option<[u8; 4]> = bytes.get(..4).and_then(|bytes| bytes.try_into().ok());
    first.is_some_and(|first| {
        [u32::from_le_bytes(first), u32::from_be_bytes(first)].iter().any(|word| word & !0xff == MAGIC)
    })
}

/// A record that counts.
#[derive(Clone, Copy, Debug)]
struct Event {
    at_ns: u64,
    /// Where blktrace lost its order among CPUs, a request begins before it ends.
    is_end: bool,
    sector: u64,
    bytes: u64,
    direction: Direction,
    thread: u32,
}

/// A request that has not ended.
struct Open {
    thread: usize,
    end: u64,
    direction: Direction,
    missing: u64,
}

/// The recording that the files of one device make: requests after `cut_ns` are left out. `to` is the file that the
/// requests go to.
///
/// # Errors
/// A file that is none, or is damaged; records of several devices; no request.
pub fn read(files: &[(String, Vec<u8>)], to: &str, cut_ns: u64) -> Result<Recording, Error> {
    let mut events = Vec::new();
    let mut device = None;
    for (name, bytes) in files {
        records(name, bytes, &mut device, &mut events)?;
    }
    events.sort_by_key(|event| (event.at_ns, event.is_end));
    let name = files.first().map_or("", |(name, _)| name.as_str());
    threads(&events, to, cut_ns).checked(name)
}

/// The records of a file that count.
fn records(name: &str, bytes: &[u8], device: &mut Option<u32>, events: &mut Vec<Event>) -> Result<(), Error> {
    let wrong = |what: String| Error::Whole { log: name.into(), what };
    let mut at = 0;
    while at < bytes.len() {
        let record: &[u8; RECORD] = match bytes.get(at..at + RECORD).and_then(|record| record.try_into().ok()) {
            Some(record) => record,
            None => return Err(wrong(format!("the last record, at byte {at}, is cut off: record the trace again"))),
        };
        let is_little = u32::from_le_bytes([record[0], record[1], record[2], record[3]]) & !0xff == MAGIC;
        let word = |at: usize| {
            let four = [record[at], record[at + 1], record[at + 2], record[at + 3]];
            if is_little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) }
        };
        let long = |at: usize| {
            let (first, second) = (u64::from(word(at)), u64::from(word(at + 4)));
            if is_little { second << 32 | first } else { first << 32 | second }
        };
        if word(0) & !0xff != MAGIC {
            return Err(wrong(format!("byte {at} begins no record of blktrace")));
        }
        if word(0) & 0xff != VERSION {
            return Err(wrong(format!("version {} of blktrace's records: only {VERSION} is known", word(0) & 0xff)));
        }
        let pair = [record[46], record[47]];
        let more = if is_little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) };
        at += RECORD + usize::from(more);
        let (sector, bytes, action, thread, of) = (long(16), u64::from(word(24)), word(28), word(32), word(36));
        let kind = action & 0xffff;
        if action & (NOTIFY | PASSED_THROUGH) != 0 || bytes == 0 || ![QUEUE, COMPLETE].contains(&kind) {
            continue;
        }
        if *device.get_or_insert(of) != of {
            let what = "the records of several devices: trace one (blktrace -d), because a request that goes through \
                        several would count several times";
            return Err(wrong(what.into()));
        }
        let direction = match (action & DISCARD != 0, action & WRITE != 0) {
            (true, _) => Direction::Trim,
            (false, true) => Direction::Write,
            (false, false) => Direction::Read,
        };
        events.push(Event { at_ns: long(8), is_end: kind == COMPLETE, sector, bytes, direction, thread });
    }
    Ok(())
}

/// A thread of the recording, as far as it was read.
#[derive(Default)]
struct Thread {
    requests: Vec<Request>,
    in_flight: u32,
    /// For each number of requests in flight, the time since which there are no more.
    since_ns: Vec<u64>,
}

impl Thread {
    /// Takes note that at `now_ns` this many requests are in flight.
    fn holds(&mut self, in_flight: u32, now_ns: u64) {
        let (before, now) = (self.in_flight as usize, in_flight as usize);
        self.since_ns.resize(self.since_ns.len().max(now.max(before) + 1), 0);
        if now < before {
            self.since_ns[now..before].fill(now_ns);
        } else {
            self.since_ns[now..].fill(now_ns);
        }
        self.in_flight = in_flight;
    }
}

/// The threads of the events, which are in order of time.
fn threads(events: &[Event], to: &str, cut_ns: u64) -> Recording {
    let mut all = Recording::new(Since::Free);
    let file = all.file(to);
    let mut threads: Vec<Thread> = Vec::new();
    let mut numbers: HashMap<u32, usize> = HashMap::new();
    // By their first sector, and a number that tells apart those with the same.
    let mut open: BTreeMap<(u64, u64), Open> = BTreeMap::new();
    // No request is longer: how far before an end its requests may begin.
    let mut longest = 0;
    let start_ns = events.iter().find(|event| !event.is_end).map_or(0, |event| event.at_ns);
    for event in events {
        let at_ns = event.at_ns.saturating_sub(start_ns);
        let first = event.sector.saturating_mul(SECTOR);
        let end = first.saturating_add(event.bytes);
        if event.is_end {
            let range = (first.saturating_sub(longest), 0)..(end, 0);
            let mut ended = Vec::new();
            for (key, request) in open.range_mut(range).filter(|(_, request)| request.direction == event.direction) {
                let overlap = request.end.min(end).saturating_sub(key.0.max(first));
                request.missing = request.missing.saturating_sub(overlap);
                if request.missing == 0 {
                    ended.push(*key);
                }
            }
            for key in ended {
                let thread = &mut threads[open.remove(&key).expect("it was found").thread];
                thread.holds(thread.in_flight - 1, at_ns);
            }
            continue;
        }
        all.recorded += 1;
        if at_ns > cut_ns || end > i64::MAX as u64 {
            continue;
        }
        let index = *numbers.entry(event.thread).or_insert_with(|| {
            threads.push(Thread::default());
            threads.len() - 1
        });
        let thread = &mut threads[index];
        let before = thread.in_flight as usize;
        // The thread was free since it had no more in flight than now, or since its last request.
        let since_ns = thread.since_ns.get(before).copied().unwrap_or(0);
        let op = Op { kind: OpKind::Io(event.direction), file, offset: first, len: event.bytes };
        let depth = thread.in_flight + 1;
        thread.requests.push(Request { op, pause_ns: at_ns.saturating_sub(since_ns), depth });
        thread.holds(depth, at_ns);
        all.enter(&op);
        all.duration_ns = at_ns;
        longest = longest.max(event.bytes);
        open.insert(
            (first, all.recorded),
            Open { thread: index, end, direction: event.direction, missing: event.bytes },
        );
    }
    all.threads = threads.into_iter().map(|thread| thread.requests).collect();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 1 << 16;

    /// A record in the order of this machine's bytes.
    fn record(at_ns: u64, kind: u32, category: u32, sector: u64, bytes: u32, thread: u32) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((MAGIC | VERSION).to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(at_ns.to_le_bytes());
        out.extend(sector.to_le_bytes());
        for word in [bytes, kind | category, thread, 8 << 20, 0] {
            out.extend(word.to_le_bytes());
        }
        out.extend([0; 4]);
        out
    }

    fn recording(records: &[Vec<u8>]) -> Result<Recording, Error> {
        read(&[("sda.blktrace.0".into(), records.concat())], "/dev/sdx", u64::MAX)
    }

    fn pauses(recording: &Recording) -> Vec<Vec<(u64, u32)>> {
        let of = |thread: &Vec<Request>| thread.iter().map(|request| (request.pause_ns, request.depth)).collect();
        recording.threads.iter().map(of).collect()
    }

    #[test]
    fn threads_pauses_and_depths_are_found() {
        let found = recording(&[
            record(1000, QUEUE, READ, 0, 4096, 7),
            record(1500, QUEUE, READ, 8, 4096, 7),
            record(1600, QUEUE, WRITE, 100, 512, 9),
            record(2000, COMPLETE, READ, 0, 4096, 0),
            record(2300, QUEUE, READ, 16, 4096, 7),
            record(2500, COMPLETE, WRITE, 100, 512, 0),
            record(2600, COMPLETE, READ, 8, 4096, 0),
            record(2700, COMPLETE, READ, 16, 4096, 0),
            record(3700, QUEUE, READ | DISCARD, 0, 8192, 7),
        ])
        .unwrap();
        // The third of thread 7 came 300 ns after its first had ended; the last 1000 ns after all had.
        assert_eq!(pauses(&found), [vec![(0, 1), (500, 2), (300, 2), (1000, 1)], vec![(600, 1)]]);
        assert_eq!((found.depth(), found.duration_ns, found.recorded), (3, 2700, 5));
        let last = found.threads[0][3].op;
        assert_eq!((last.kind, last.offset, last.len), (OpKind::Io(Direction::Trim), 0, 8192));
        assert_eq!((found.files[0].name.as_str(), found.files[0].bytes), ("/dev/sdx", 51_712));
    }

    #[test]
    fn merged_and_split_requests_end_with_their_last_byte() {
        let found = recording(&[
            record(0, QUEUE, READ, 0, 4096, 7),
            record(0, QUEUE, READ, 8, 4096, 7),
            // Both were merged, and the merged request ends in two parts.
            record(100, COMPLETE, READ, 0, 6144, 0),
            record(200, COMPLETE, READ, 12, 2048, 0),
            record(250, QUEUE, READ, 16, 4096, 7),
        ])
        .unwrap();
        assert_eq!(pauses(&found)[0], [(0, 1), (0, 2), (50, 1)]);
    }

    #[test]
    fn other_records_do_not_count() {
        let mut with_data = record(5, 7, READ, 0, 4096, 7);
        with_data[46] = 3;
        with_data.extend([1, 2, 3]);
        let found =
            recording(&[record(0, 0, NOTIFY, 0, 4096, 7), with_data, record(9, QUEUE, READ, 0, 512, 7)]).unwrap();
        assert_eq!(found.requests().count(), 1);
    }

    #[test]
    fn big_endian_recordings_are_read() {
        let mut one = record(9, QUEUE, READ, 3, 512, 7);
        for (at, length) in [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4)] {
            one[at..at + length].reverse();
        }
        assert!(is_recording(&one));
        assert_eq!(recording(&[one]).unwrap().threads[0][0].op.offset, 1536);
    }

    #[test]
    fn damage_is_named() {
        let good = record(0, QUEUE, READ, 0, 512, 7);
        let said = |bytes: &[u8]| recording(&[bytes.to_vec()]).unwrap_err().to_string();
        assert!(said(&good[..40]).contains("byte 0, is cut off"));
        assert!(said(&[&good[..], &[0; 48]].concat()).contains("byte 48 begins no record"));
        let mut other = good.clone();
        other[0] = 6;
        assert!(said(&other).contains("version 6"));
        let mut elsewhere = good.clone();
        elsewhere[36] = 1;
        assert!(said(&[&good[..], &elsewhere].concat()).contains("several devices"));
        assert!(said(&[]).contains("no request"));
        assert!(!is_recording(b"fio version 3 iolog") && is_recording(&good));
    }
}
