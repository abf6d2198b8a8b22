//! The writes that are in flight, in memory that all processes of the user share.
//!
//! SIGKILL ends a process, and an NFS client carries on with its writes. With one mount the successor's writes come
//! behind them. Over another lane they could overtake the old ones, and the old data would stay. So each process
//! records here the files that it writes past the page cache, and how many of its writes each lane has. A
//! process that uses such a file later finds the record of one that no longer runs, and first waits on the lanes that
//! it names ([`crate::open::late`]).
//!
//! A record names the lanes by their devices, and the file by its inode number, which it has on each lane. Numbers of
//! in-flight writes only ever err upwards: a process that does not know if a write has ended lets it count.
//!
//! The record of an ended process stays until somebody uses its file. When a new record finds no place, it takes the
//! place of such a record, and a count of *given up* records stays instead. The count stands for every file whose inode
//! number has the same hash: who uses one waits on all lanes, which is always safe.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use lanes::LANES_MAX;
use live::Owner;

use crate::abi::raw;

/// The number is that of the layout.
const NAME: &str = "writes-2";
/// Files that all processes of the user may write past the page cache at a time.
const PLACES: usize = 2048;
/// Places that a search looks at for one file.
const PROBES: usize = 64;
/// Counts of records that were given up, one for each value of a hash.
const COUNTS: usize = 1 << 15;

/// The layout in words: the number of records so far, a key for each place (the inode number; 0 if it is free), the
/// records, and the counts of those that were given up.
const RECORDED: usize = 0;
const KEYS: usize = 8;
const RECORDS: usize = KEYS + PLACES;
const GIVEN_UP: usize = RECORDS + PLACES * record::WORDS;
const WORDS: usize = GIVEN_UP + COUNTS;

/// The words of a record.
mod record {
    use lanes::LANES_MAX;

    /// The process, as [`live::Owner`] tells processes apart.
    pub const PID: usize = 0;
    pub const START_TICKS: usize = 1;
    pub const PID_NAMESPACE: usize = 2;
    pub const EXE: usize = 3;
    /// The time at which this image of the process began to record: exec(2) keeps all of the above. 0 in a record that
    /// nobody has filled. No two processes have the same time, so the word tells that a record is still the same one.
    pub const IMAGE: usize = 5;
    /// The device of the file on the lane that the process has opened.
    pub const OWN: usize = 6;
    /// The list of robust futexes of the process's first thread ([`super::Record::runs`]); 0 if it has none.
    pub const ROBUST: usize = 7;
    /// The device of the file on each lane; 0 if the process has not opened it there.
    pub const DEVICES: usize = 8;
    /// The writes that are in flight on each lane.
    pub const IN_FLIGHT: usize = DEVICES + LANES_MAX;
    pub const WORDS: usize = IN_FLIGHT + LANES_MAX;
}

/// The shared words, once they are mapped.
static SHARED: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// The shared words could not be mapped.
static MISSING: AtomicBool = AtomicBool::new(false);

/// The shared words; None where no memory can be shared.
fn words() -> Option<&'static [AtomicU64]> {
    let pointer = SHARED.load(Acquire);
    if !pointer.is_null() {
        // SAFETY: `live::shared` has mapped WORDS words there for the life of the process.
        return Some(unsafe { core::slice::from_raw_parts(pointer, WORDS) });
    }
    if MISSING.load(Relaxed) {
        return None;
    }
    let Ok(found) = live::shared(NAME, WORDS) else {
        MISSING.store(true, Relaxed);
        return None;
    };
    // Another thread may have mapped the same words at this moment: one mapping is as good as the other.
    SHARED.store(found.as_ptr().cast_mut(), Release);
    Some(found)
}

/// The words of a place's record.
fn words_of(words: &'static [AtomicU64], place: u32) -> Option<&'static [AtomicU64]> {
    let from = RECORDS + place as usize * record::WORDS;
    words.get(from..from + record::WORDS)
}

fn word(place: u32, at: usize) -> Option<&'static AtomicU64> {
    words_of(words()?, place)?.get(at)
}

fn hash(inode: u64) -> usize {
    // Fibonacci hashing: inode numbers count upwards.
    (inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

fn places(inode: u64) -> impl Iterator<Item = u32> {
    (0..PROBES).map(move |probe| ((hash(inode) + probe) % PLACES) as u32)
}

/// The count of records that were given up of files with this inode number, and of others of the same hash.
fn count_of(inode: u64) -> Option<&'static AtomicU64> {
    words()?.get(GIVEN_UP + hash(inode) % COUNTS)
}

/// The number of records that were given up and that may be of a file with this inode number. Their processes have
/// ended, and may have left writes in flight on any lane.
///
/// The caller looks for records first ([`of_file`]): a record that is no longer found has been counted.
pub fn given_up(inode: u64) -> u64 {
    count_of(inode).map_or(0, |count| count.load(SeqCst))
}

/// The moment at which this image of the process first asked for [`this`]; 0 before that.
static IMAGE: AtomicU64 = AtomicU64::new(0);
/// This process, in the order of [`live::Owner`]'s fields. Filled before `IMAGE`.
static THIS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// This process, and its image.
fn this() -> (Owner, u64) {
    let [pid, start_ticks, pid_namespace, exe_device, exe_inode] = &THIS;
    if IMAGE.load(Acquire) == 0 {
        let found = Owner::this();
        pid.store(found.pid, Relaxed);
        start_ticks.store(found.start_ticks, Relaxed);
        pid_namespace.store(found.pid_namespace, Relaxed);
        exe_device.store(found.exe.0, Relaxed);
        exe_inode.store(found.exe.1, Relaxed);
        let _ = IMAGE.compare_exchange(0, raw::now_ns().max(1), AcqRel, Acquire); // the first one stays
    }
    let of = |word: &AtomicU64| word.load(Relaxed);
    let owner = Owner {
        pid: of(pid),
        start_ticks: of(start_ticks),
        pid_namespace: of(pid_namespace),
        exe: (of(exe_device), of(exe_inode)),
    };
    (owner, IMAGE.load(Acquire))
}

/// In a forked child: it has records of its own, and none yet.
pub fn forget_all() {
    IMAGE.store(0, Relaxed);
}

/// The number of records that were ever made: nobody has made one since it was last the same.
#[inline]
pub fn recorded() -> u64 {
    words().and_then(|words| words.get(RECORDED)).map_or(0, |count| count.load(SeqCst))
}

/// Records that this process writes a file past the page cache; returns the place of the record. None if processes that
/// run have taken all places, or no memory can be shared.
pub fn enter(device: u64, inode: u64) -> Option<u32> {
    let words = words()?;
    let (owner, image) = this();
    if owner.start_ticks == 0 || inode == 0 {
        return None;
    }
    let free = |place: &u32| {
        let key = words.get(KEYS + *place as usize);
        key.is_some_and(|key| key.compare_exchange(0, inode, AcqRel, Acquire).is_ok())
    };
    let records = || places(inode).filter_map(Record::at);
    let place = places(inode)
        .find(free)
        .or_else(|| {
            records().filter(|record| record.left_behind() == Some(0)).for_each(|record| record.settled());
            places(inode).find(free)
        })
        .or_else(|| {
            records().find(|record| !record.runs())?.give_up();
            places(inode).find(free)
        })?;
    let fields = words_of(words, place)?;
    let (device_of_exe, inode_of_exe) = owner.exe;
    for (at, value) in [
        (record::PID, owner.pid),
        (record::PID_NAMESPACE, owner.pid_namespace),
        (record::EXE, device_of_exe),
        (record::EXE + 1, inode_of_exe),
        (record::START_TICKS, owner.start_ticks),
        (record::OWN, device),
        (record::ROBUST, raw::robust_list_of(owner.pid)),
        (record::IMAGE, image),
    ] {
        fields.get(at)?.store(value, SeqCst);
    }
    words.get(RECORDED)?.fetch_add(1, SeqCst);
    Some(place)
}

/// Removes a record of which no write is in flight: its process has closed the file, or runs no longer.
pub fn leave(place: u32) {
    let Some(words) = words() else { return };
    let fields = words_of(words, place).unwrap_or_default();
    // First: nobody takes a record for somebody's that is half empty.
    let image = fields.get(record::IMAGE);
    image.into_iter().chain(fields).for_each(|word| word.store(0, SeqCst));
    if let Some(key) = words.get(KEYS + place as usize) {
        key.store(0, Release);
    }
}

/// Notes the device of the file on a lane.
pub fn lane_is(place: u32, lane: usize, device: u64) {
    if let Some(word) = word(place, record::DEVICES + lane.min(LANES_MAX - 1)) {
        word.store(device, SeqCst);
    }
}

/// Counts a write that is about to begin on a lane.
#[inline]
pub fn begins(place: u32, lane: usize) {
    if let Some(word) = word(place, record::IN_FLIGHT + lane.min(LANES_MAX - 1)) {
        word.fetch_add(1, SeqCst);
    }
}

/// Counts a write on a lane as ended: the kernel has completed it, or has never got it.
#[inline]
pub fn ends(place: u32, lane: usize) {
    if let Some(word) = word(place, record::IN_FLIGHT + lane.min(LANES_MAX - 1)) {
        word.fetch_sub(1, SeqCst);
    }
}

/// The time at which the process of each record was last found to run by all that tells it from others, in
/// `CLOCK_MONOTONIC` nanoseconds. (The process of a record that was made since has made it since.)
static SEEN_AT: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// In this time the kernel does not come to the number of an ended process again: it would have to make 300 processes
/// a millisecond.
const NUMBERS_LAST_NS: u64 = 100_000_000;

/// A record of somebody.
pub struct Record {
    place: u32,
    fields: &'static [AtomicU64],
    owner: Owner,
    image: u64,
}

impl Record {
    /// The record at a place, if there is one.
    fn at(place: u32) -> Option<Record> {
        let fields = words_of(words()?, place)?;
        let of = |at: usize| fields.get(at).map_or(0, |word| word.load(SeqCst));
        let owner = Owner {
            pid: of(record::PID),
            start_ticks: of(record::START_TICKS),
            pid_namespace: of(record::PID_NAMESPACE),
            exe: (of(record::EXE), of(record::EXE + 1)),
        };
        let image = of(record::IMAGE);
        (image != 0).then_some(Record { place, fields, owner, image })
    }

    fn word(&self, at: usize) -> u64 {
        self.fields.get(at).map_or(0, |word| word.load(SeqCst))
    }

    /// True if the process runs that has made the record, and has not called exec(2) since.
    pub fn runs(&self) -> bool {
        let (this, image) = this();
        let is_this = (self.owner.pid, self.owner.start_ticks, self.owner.pid_namespace)
            == (this.pid, this.start_ticks, this.pid_namespace);
        if is_this {
            return self.image == image;
        }
        let now_ns = raw::now_ns();
        if self.owner.pid_namespace == this.pid_namespace && self.still_runs(now_ns) {
            return true;
        }
        let alive = self.owner.is_alive(&this);
        if alive && let Some(seen) = SEEN_AT.get(self.place as usize) {
            seen.store(now_ns, Relaxed);
        }
        alive
    }

    /// True if one system call is enough to tell that the process runs: writers of one file ask at each write. The
    /// kernel forgets a thread's list of robust futexes when the thread ends and when it calls exec(2)
    /// (`futex_exec_release` and `futex_exit_release` in kernel/futex/core.c).
    ///
    /// Another process may have that number and a list at that address. But the kernel gives a number again only after
    /// all others, which takes longer than [`NUMBERS_LAST_NS`].
    fn still_runs(&self, now_ns: u64) -> bool {
        let list = self.word(record::ROBUST);
        let seen = SEEN_AT.get(self.place as usize).map_or(0, |seen| seen.load(Relaxed));
        list != 0 && now_ns.saturating_sub(seen) < NUMBERS_LAST_NS && raw::robust_list_of(self.owner.pid) == list
    }

    /// The lanes on which a process has left writes in flight that no longer runs, a bit each. None if it runs.
    pub fn left_behind(&self) -> Option<u32> {
        // The order matters: a process that has ended begins no more writes.
        (!self.runs()).then(|| self.lanes_in_flight())
    }

    /// The lanes on which its writes are in flight, a bit each.
    pub fn lanes_in_flight(&self) -> u32 {
        (0..LANES_MAX).filter(|lane| self.word(record::IN_FLIGHT + lane) != 0).fold(0, |lanes, lane| lanes | 1 << lane)
    }

    /// The device of the file on a lane; None if the process has not opened it there.
    pub fn device(&self, lane: usize) -> Option<u64> {
        Some(self.word(record::DEVICES + lane)).filter(|&device| device != 0)
    }

    /// The device of the file on the lane that the process had opened.
    pub fn own_device(&self) -> u64 {
        self.word(record::OWN)
    }

    /// True if the process had the file open on this device.
    fn has(&self, device: u64) -> bool {
        self.own_device() == device || (0..LANES_MAX).any(|lane| self.device(lane) == Some(device))
    }

    /// Removes the record of a process that no longer runs: nothing of it is in flight any more.
    pub fn settled(&self) {
        // Another process may be about to remove it, too.
        let image = self.fields.get(record::IMAGE);
        let mine = |image: &AtomicU64| image.compare_exchange(self.image, 0, AcqRel, Acquire).is_ok();
        if image.is_some_and(mine) {
            leave(self.place);
        }
    }

    /// Removes the record of a process that no longer runs, and whose writes may be in flight: whoever uses the file
    /// finds the count.
    fn give_up(&self) {
        let inode = words().and_then(|words| words.get(KEYS + self.place as usize)).map_or(0, |key| key.load(SeqCst));
        // First: whoever does not find the record any more finds the count.
        if let Some(count) = count_of(inode) {
            count.fetch_add(1, SeqCst);
        }
        self.settled();
    }
}

/// The records of a file, by its device on one lane and its inode number, but the one at the place `own`.
pub fn of_file(device: u64, inode: u64, own: Option<u32>) -> impl Iterator<Item = Record> {
    let words = words().unwrap_or_default();
    places(inode)
        .filter(move |&place| Some(place) != own)
        .filter(move |&place| words.get(KEYS + place as usize).is_some_and(|key| key.load(SeqCst) == inode))
        .filter_map(Record::at)
        .filter(move |record| record.has(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of a process is found by every device of the file, and tells the lanes with writes.
    #[test]
    fn a_record_tells_the_lanes_with_writes_until_it_is_removed() {
        let (inode, [first, second]) = (0x7e57_0001, [u64::MAX - 1, u64::MAX - 2]);
        let before = recorded();
        let place = enter(first, inode).unwrap();
        assert!(recorded() > before, "others look again");
        lane_is(place, 3, second);
        begins(place, 3);
        begins(place, 3);
        ends(place, 3);
        assert!(of_file(first, inode, Some(place)).next().is_none(), "the process's own");
        assert!(of_file(u64::MAX - 3, inode, None).next().is_none(), "another volume's inode of that number");
        for device in [first, second] {
            let record = of_file(device, inode, None).next().unwrap();
            assert!(record.runs() && record.own_device() == first);
            assert_eq!((record.lanes_in_flight(), record.device(3)), (1 << 3, Some(second)));
        }
        ends(place, 3);
        assert_eq!(Record::at(place).unwrap().lanes_in_flight(), 0);
        leave(place);
        assert!(of_file(first, inode, None).next().is_none());
    }

    /// The question of one call and the long one agree about a process that runs, is killed, and calls exec(2).
    #[test]
    fn a_living_process_is_known_by_its_robust_futexes_until_it_ends_or_calls_exec() {
        use std::io::{Read, Write};
        use std::process::{Command, Stdio};
        let mut child = Command::new("sh");
        let child = child.args(["-c", "echo; read line; exec sleep 100"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap(); // it is the shell now
        let list = raw::robust_list_of(child.id().into());
        assert_ne!(list, 0);
        let (inode, device) = (0x7e57_0003, u64::MAX - 5);
        let place = enter(device, inode).unwrap();
        let set = |at: usize, value: u64| word(place, at).unwrap().store(value, SeqCst);
        set(record::PID, child.id().into());
        set(record::ROBUST, list);
        let record = || Record::at(place).unwrap();
        assert!(!record().still_runs(raw::now_ns()), "nobody has told it from other processes of its number yet");
        SEEN_AT[place as usize].store(raw::now_ns(), Relaxed);
        assert!(record().still_runs(raw::now_ns()));
        assert!(!record().still_runs(raw::now_ns() + NUMBERS_LAST_NS), "the number may mean another process");
        let last = |now| SEEN_AT[place as usize].store(now, Relaxed);
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        while std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap().trim() != "sleep" {
            std::thread::yield_now();
        }
        last(raw::now_ns());
        assert!(!record().still_runs(raw::now_ns()), "exec(2)");
        child.kill().unwrap();
        child.wait().unwrap();
        last(raw::now_ns());
        assert!(!record().still_runs(raw::now_ns()), "the end");
        leave(place);
    }

    /// Killed programs do not fill the table for good, and nobody misses their writes.
    #[test]
    fn a_record_that_finds_no_place_takes_that_of_an_ended_process() {
        let (inode, device) = (0x7e57_0004, u64::MAX - 6);
        let before = given_up(inode);
        let mut taken: Vec<u32> = core::iter::from_fn(|| enter(device, inode)).take(PROBES).collect();
        let living = |place: &&u32| Record::at(**place).unwrap().runs();
        assert_eq!((enter(device, inode), given_up(inode)), (None, before), "their process runs");
        for &place in &taken {
            begins(place, 3);
            word(place, record::IMAGE).unwrap().fetch_sub(1, SeqCst); // the image before an exec(2)
        }
        let place = enter(device, inode).expect("ended processes have places");
        assert_eq!((given_up(inode), Record::at(place).unwrap().lanes_in_flight()), (before + 1, 0));
        assert_eq!(taken.iter().filter(living).collect::<Vec<_>>(), [&place], "one of them");
        assert_eq!(of_file(device, inode, Some(place)).count(), taken.len() - 1, "the others are still exact");
        // Those that have left nothing go first, and are not counted.
        let idle = *taken.iter().find(|&&other| other != place).unwrap();
        ends(idle, 3);
        assert_eq!((enter(device, inode), given_up(inode)), (Some(idle), before + 1));
        taken.drain(..).for_each(leave);
        count_of(inode).unwrap().fetch_sub(1, SeqCst);
    }

    /// A process that was replaced by exec(2) has the same number, and no longer runs.
    #[test]
    fn an_earlier_image_of_the_process_does_not_run() {
        let (inode, device) = (0x7e57_0002, u64::MAX - 4);
        let place = enter(device, inode).unwrap();
        word(place, record::IMAGE).unwrap().fetch_sub(1, SeqCst);
        let record = Record::at(place).unwrap();
        assert!(!record.runs());
        record.settled();
        record.settled();
        assert!(of_file(device, inode, None).next().is_none());
    }
}
