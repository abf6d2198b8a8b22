//! Files of Gluster volumes through libgfapi's asynchronous calls: a real depth on one connection, without FUSE.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gfapi::{Address, Buffer, File, Requests, Volume};
use job::Job;
use job::job::OpenSync;
use job::workload::OpKind;
use measure::Direction;

use super::{Completion, Engine, Queued, Request, Setup, Slot, Slots, Storage};
use crate::Error;
use crate::smallfiles::gluster::{CONNECT, refused};

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Gfapi::new(setup)?))
}

/// A slot in flight. It keeps the slot's token until the request has ended.
struct Lent {
    slot: Slot,
    start: *mut u8,
    bytes: usize,
    /// The bytes of a trim, for which the library returns 0 on success; 0 for all other ops.
    trimmed: i64,
    _slots: Arc<Slots>,
}

// SAFETY: `start` points into memory that `_slots` keeps; only the holder of the token `slot` may use that memory, and
// the token moves with the pointer.
unsafe impl Send for Lent {}

// SAFETY: `start..start + bytes` lies within the slot: `Gfapi::begin` checks it. `slot` is the only token of the slot.
unsafe impl Buffer for Lent {
    fn pointer(&self) -> *mut u8 {
        self.start
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A file of a volume, and how it is opened.
struct Place {
    volume: Volume,
    path: CString,
}

// Dropped in the order of the fields: requests are waited for, files closed, connections ended.
struct Gfapi {
    requests: Requests<Lent>,
    files: Vec<Option<Arc<File>>>,
    places: Vec<Place>,
    flags: i32,
    slots: Arc<Slots>,
    depth: usize,
    queued: Vec<Request>,
    /// Requests that ended before they began: their file is not open.
    refused: Vec<Completion>,
    fetched: Vec<gfapi::Finished<Lent>>,
}

impl Gfapi {
    fn new(setup: &Setup) -> Result<Gfapi, Error> {
        let mut connections: Vec<(Address, Volume)> = Vec::new();
        let mut places = Vec::new();
        for name in setup.names {
            let (address, path) = locate(setup.job, name)?;
            let known = connections.iter().find(|(known, _)| *known == address).map(|(_, volume)| volume.clone());
            let volume = match known {
                Some(volume) => volume,
                None => {
                    let volume = Volume::connect(&address, CONNECT, &AtomicBool::new(false)).map_err(refused)?;
                    connections.push((address, volume.clone()));
                    volume
                }
            };
            places.push(Place { volume, path });
        }
        let depth = setup.depth as usize;
        Ok(Gfapi {
            requests: Requests::new(),
            files: setup.names.iter().map(|_| None).collect(),
            places,
            flags: open_flags(setup.job),
            slots: Arc::clone(&setup.slots),
            depth,
            queued: Vec::with_capacity(depth),
            refused: Vec::new(),
            fetched: Vec::with_capacity(depth),
        })
    }

    fn in_flight(&self) -> usize {
        self.requests.in_flight() + self.refused.len()
    }

    fn begin(&mut self, request: Request) {
        let Request { slot, kind, file, offset, len, skip, .. } = request;
        let Some(open) = self.files.get(file as usize).and_then(Option::as_ref) else {
            self.refused.push(Completion { slot, result: -i64::from(libc::EBADF) });
            return;
        };
        let transfers = matches!(kind, OpKind::Io(Direction::Read | Direction::Write));
        let reach = if transfers { skip as usize + len as usize } else { 0 };
        assert!(reach <= self.slots.slot_bytes(), "a request is larger than its buffer");
        let start = self.slots.pointer(slot.index());
        // SAFETY: skip lies within the slot, by the check above.
        let start = if transfers { unsafe { start.add(skip as usize) } } else { start };
        let trimmed = if kind == OpKind::Io(Direction::Trim) { i64::from(len) } else { 0 };
        let lent = Lent { slot, start, bytes: len as usize, trimmed, _slots: Arc::clone(&self.slots) };
        match kind {
            OpKind::Io(Direction::Read) => self.requests.read(open, lent, offset),
            OpKind::Io(Direction::Write) => self.requests.write(open, lent, offset),
            OpKind::Io(Direction::Trim) => self.requests.discard(open, lent, offset, len as usize),
            OpKind::Sync => self.requests.sync(open, lent, false),
            // There is no call for a range: all data are synced, which is more.
            OpKind::DataSync | OpKind::SyncRange => self.requests.sync(open, lent, true),
        }
    }
}

/// The volume and the path in it that a file's name stands for: a URL, or a path in `volume=` of the server `brick=`.
pub(super) fn locate(job: &Job, name: &str) -> Result<(Address, CString), Error> {
    let option = |key: &str| job.ring.option(key);
    let (address, path) = if Address::is_url(name) {
        Address::parse_url(name).map_err(refused)?
    } else {
        let missing = |what: &str| {
            let hint = format!("give {what}=, or filename=gluster://HOST[:PORT]/VOLUME/PATH");
            Error::usage(format!("ioengine=gfapi needs {what}="), format!("in job {}", job.name), hint)
        };
        let volume = option("volume").ok_or_else(|| missing("volume"))?;
        let server = option("brick").ok_or_else(|| missing("brick"))?;
        let (host, port) = Address::parse_server(server).map_err(refused)?;
        (Address { port, ..Address::new(host, volume) }, format!("/{}", name.trim_start_matches('/')))
    };
    let path = CString::new(path)
        .map_err(|_| Error::usage("a NUL byte in filename=", name.escape_default().to_string(), ""))?;
    Ok((address, path))
}

fn open_flags(job: &Job) -> i32 {
    let writes = job.rw.directions.write || job.rw.directions.trim;
    let mut flags = match (writes, job.files.allow_create) {
        (true, true) => libc::O_RDWR | libc::O_CREAT,
        (true, false) => libc::O_RDWR,
        (false, _) => libc::O_RDONLY,
    };
    if job.files.direct {
        flags |= libc::O_DIRECT;
    }
    flags
        | match job.files.sync {
            OpenSync::None => 0,
            OpenSync::Sync => libc::O_SYNC,
            OpenSync::Dsync => libc::O_DSYNC,
        }
}

impl Engine for Gfapi {
    fn open(&mut self, file: u32, _fd: RawFd) -> io::Result<()> {
        Storage::open(self, file)
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = None;
    }

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        if self.queued.len() + self.in_flight() >= self.depth {
            return Queued::Full(request);
        }
        self.queued.push(request);
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        let mut queued = std::mem::take(&mut self.queued);
        let count = queued.len();
        for request in queued.drain(..) {
            self.begin(request);
        }
        self.queued = queued;
        Ok(count)
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let at_once = self.refused.len().min(max);
        done.extend(self.refused.drain(..at_once));
        let (min, max) = (min.saturating_sub(at_once), max - at_once);
        self.requests.fetch(min, max, timeout_ns.map(Duration::from_nanos), &mut self.fetched);
        done.extend(self.fetched.drain(..).map(|finished| {
            let Lent { slot, trimmed, .. } = finished.buffer;
            let result = match finished.result {
                Ok(bytes) => bytes as i64 + trimmed,
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            };
            Completion { slot, result }
        }));
        Ok(())
    }

    fn storage(&mut self) -> Option<&mut dyn Storage> {
        Some(self)
    }
}

impl Storage for Gfapi {
    fn bytes(&self, file: u32) -> io::Result<Option<u64>> {
        let Place { volume, path } = &self.places[file as usize];
        match volume.stat(path) {
            Ok(found) if found.st_mode & libc::S_IFMT == libc::S_IFDIR => {
                Err(io::Error::from_raw_os_error(libc::EISDIR))
            }
            Ok(found) => Ok(Some(found.st_size as u64)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&mut self, file: u32) -> io::Result<()> {
        let Place { volume, path } = &self.places[file as usize];
        self.files[file as usize] = Some(Arc::new(volume.open(path, self.flags, 0o644)?));
        Ok(())
    }

    fn close(&mut self, file: u32) -> io::Result<()> {
        match self.files[file as usize].take().map(Arc::try_unwrap) {
            None => Ok(()),
            Some(Ok(file)) => file.close(),
            // A request that never ended still has it: it cannot be told what became of earlier writes.
            Some(Err(_)) => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        }
    }

    fn sync(&mut self, file: u32) -> io::Result<()> {
        self.files[file as usize].as_ref().map_or(Ok(()), |file| file.sync_all())
    }

    fn unlink(&mut self, file: u32) -> io::Result<()> {
        let Place { volume, path } = &self.places[file as usize];
        volume.unlink(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(options: &[(&str, &str)]) -> Job {
        let mut job = Job { name: "j".into(), ..Job::default() };
        job.ring.other = options.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        job
    }

    #[test]
    fn a_file_is_a_path_in_the_volume_of_the_job_or_a_url() {
        let with_options = job(&[("volume", "gv0"), ("brick", "h:24008")]);
        let (address, path) = locate(&with_options, "d/f").unwrap();
        assert_eq!((address.to_string().as_str(), path.as_c_str()), ("gluster://h:24008/gv0", c"/d/f"));
        let (address, path) = locate(&with_options, "gluster://other/v/f").unwrap();
        assert_eq!((address.to_string().as_str(), path.as_c_str()), ("gluster://other:24007/v", c"/f"));
        let error = locate(&job(&[("volume", "gv0")]), "f").unwrap_err().to_string();
        assert!(error.contains("brick=") && error.contains("gluster://"), "{error}");
        assert!(locate(&job(&[("brick", "h")]), "f").unwrap_err().to_string().contains("volume="));
    }
}
