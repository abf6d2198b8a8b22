//! A disk with a cache that a power failure empties: a FUSE file system with one file.
//!
//! A write is in the cache until an fsync(2) of the file, or until it is done where the write asks for it (O_DSYNC,
//! RWF_DSYNC). A power failure leaves each sector as it was last made durable, or as any later write made it: a disk
//! writes its cache in any order. A sector is never torn.

use std::collections::BTreeMap;
use std::ffi::{OsStr, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::consts::FOPEN_DIRECT_IO;
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

use super::{is_root, skip};

const FILE: u64 = 2;
const NAME: &str = "disk";
const EIO: c_int = 5;
const ENOENT: c_int = 2;
const EOPNOTSUPP: c_int = 95;
const O_DSYNC: i32 = 0o10000;
const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;
const FALLOC_FL_ZERO_RANGE: i32 = 16;
const FOREVER: Duration = Duration::from_secs(1 << 20);

/// The disk; unmounted when dropped.
pub struct ForgetfulDisk {
    /// The disk as a file.
    pub path: PathBuf,
    state: Arc<Mutex<State>>,
    _session: BackgroundSession,
}

struct State {
    sector_bytes: usize,
    /// The content of the disk as reads find it.
    content: Vec<u8>,
    /// The contents that each sector had since it was last durable: the durable one first, the current one not among
    /// them.
    older: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The number of requests that the disk still carries out; `None` while no failure is near.
    left: Option<u32>,
    /// The number of failures so far. A machine that lost its power writes nothing afterwards: requests by files that
    /// were opened before the last failure fail.
    failures: u64,
}

impl ForgetfulDisk {
    /// An empty disk, mounted in a new directory below `directory`. None, with the reason printed, where FUSE file
    /// systems cannot be mounted.
    pub fn below(directory: &Path, bytes: usize, sector_bytes: usize) -> Option<ForgetfulDisk> {
        if !is_root("mount a FUSE file system") {
            return None;
        }
        let place = directory.join("forgetful");
        std::fs::create_dir(&place).expect("a new directory");
        let (content, older, left, failures) = (vec![0; bytes], BTreeMap::new(), None, 0);
        let state = Arc::new(Mutex::new(State { sector_bytes, content, older, left, failures }));
        match fuser::spawn_mount2(Mounted(Arc::clone(&state)), &place, &[MountOption::FSName("forgetful".into())]) {
            Ok(session) => Some(ForgetfulDisk { path: place.join(NAME), state, _session: session }),
            Err(error) => {
                skip(&format!("no FUSE file system: {error}"), false);
                None
            }
        }
    }

    /// The power fails after that many requests to the disk, reads included. Requests fail from then on (EIO).
    pub fn fail_after(&self, requests: u32) {
        self.state.lock().expect("whole").left = Some(requests);
    }

    /// True once the power has failed.
    pub fn has_failed(&self) -> bool {
        self.state.lock().expect("whole").left == Some(0)
    }

    /// The power comes back, for all who open the disk from now on. Returns the number of sectors that the failure put
    /// back to an older content.
    pub fn comes_back(&self, random: &mut Xoshiro256PlusPlus) -> usize {
        let mut state = self.state.lock().expect("whole");
        let mut lost = 0;
        for (sector, mut older) in std::mem::take(&mut state.older) {
            let chosen = random.next_u64() as usize % (older.len() + 1);
            if chosen < older.len() {
                lost += 1;
                let at = sector * state.sector_bytes;
                let content = older.swap_remove(chosen);
                state.content[at..at + content.len()].copy_from_slice(&content);
            }
        }
        state.left = None;
        state.failures += 1;
        lost
    }

    /// The content of the disk as reads find it.
    pub fn content(&self) -> Vec<u8> {
        self.state.lock().expect("whole").content.clone()
    }
}

impl State {
    /// One request more, by somebody who opened the disk after that many failures.
    fn begin(&mut self, failures: u64) -> Result<(), c_int> {
        match &mut self.left {
            _ if failures != self.failures => Err(EIO),
            Some(0) => Err(EIO),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn range(&self, offset: i64, bytes: usize) -> Result<std::ops::Range<usize>, c_int> {
        let offset = usize::try_from(offset).map_err(|_| EIO)?;
        if offset + bytes <= self.content.len() { Ok(offset..offset + bytes) } else { Err(EIO) }
    }

    fn write(&mut self, offset: i64, data: &[u8], durable: bool) -> Result<(), c_int> {
        let range = self.range(offset, data.len())?;
        let sectors = range.start / self.sector_bytes..range.end.div_ceil(self.sector_bytes);
        for sector in sectors.clone() {
            let at = sector * self.sector_bytes;
            let old = self.content[at..at + self.sector_bytes].to_vec();
            self.older.entry(sector).or_default().push(old);
        }
        self.content[range].copy_from_slice(data);
        if durable {
            self.older.retain(|sector, _| !sectors.contains(sector));
        }
        Ok(())
    }
}

/// The file system that shows the disk.
struct Mounted(Arc<Mutex<State>>);

impl Mounted {
    /// Carries out one request by a handle of [`Mounted::open`].
    fn done<T>(&self, handle: u64, request: impl FnOnce(&mut State) -> Result<T, c_int>) -> Result<T, c_int> {
        let mut state = self.0.lock().expect("whole");
        state.begin(handle)?;
        request(&mut state)
    }

    fn attributes(&self, ino: u64) -> FileAttr {
        let (size, kind, perm) = match ino {
            FILE => (self.0.lock().expect("whole").content.len() as u64, FileType::RegularFile, 0o600),
            _ => (0, FileType::Directory, 0o700),
        };
        let (atime, mtime, ctime, crtime) = (UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH);
        let (nlink, uid, gid, rdev, flags) = (1, 0, 0, 0, 0);
        let (blocks, blksize) = (size / 512, 4096);
        FileAttr { ino, size, blocks, atime, mtime, ctime, crtime, kind, perm, nlink, uid, gid, rdev, blksize, flags }
    }
}

fn answer(reply: ReplyEmpty, result: Result<(), c_int>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Mounted {
    fn lookup(&mut self, _: &Request<'_>, _: u64, name: &OsStr, reply: ReplyEntry) {
        if name == NAME { reply.entry(&FOREVER, &self.attributes(FILE), 0) } else { reply.error(ENOENT) }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(ino));
    }

    /// Times may be set; the disk has none. Its size stays.
    fn setattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<u64>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        if size.is_some() { reply.error(EOPNOTSUPP) } else { reply.attr(&FOREVER, &self.attributes(ino)) }
    }

    /// Without a page cache: what a program writes is at the disk when the write is done.
    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        reply.opened(self.0.lock().expect("whole").failures, FOPEN_DIRECT_IO);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let read = |state: &mut State| {
            let end = state.content.len() as i64;
            let bytes = (end - offset.min(end)).min(size.into()) as usize;
            Ok(state.content[state.range(offset.min(end), bytes)?].to_vec())
        };
        match self.done(handle, read) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        flags: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        match self.done(handle, |state| state.write(offset, data, flags & O_DSYNC != 0)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&mut self, _: &Request<'_>, _: u64, handle: u64, _: bool, reply: ReplyEmpty) {
        let synced = self.done(handle, |state| {
            state.older.clear();
            Ok(())
        });
        answer(reply, synced);
    }

    fn flush(&mut self, _: &Request<'_>, _: u64, _: u64, _: u64, reply: ReplyEmpty) {
        reply.ok(); // close(2), which makes nothing durable
    }

    fn fallocate(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        offset: i64,
        length: i64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let zeroes =
            [FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE].contains(&mode);
        if !zeroes {
            return reply.error(EOPNOTSUPP);
        }
        answer(reply, self.done(handle, |state| state.write(offset, &vec![0; length as usize], false)));
    }
}
