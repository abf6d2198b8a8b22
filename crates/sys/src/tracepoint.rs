//! Tracepoints of the kernel through perf_event_open(2). Everything here ends with the process that has it, however
//! the process ends: nothing in the kernel's tracing is switched on for others, and nothing is mounted for them.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::process;

/// The directory of the kernel's tracing (tracefs; Documentation/trace/ftrace.rst), to read from.
#[derive(Debug)]
pub struct Tracefs(OwnedFd);

/// The places where systems mount tracefs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl Tracefs {
    /// The mounted tracefs; else a mount of it that has no place in any tree of directories (fsmount(2)), so that
    /// nobody else sees it and it goes with this value.
    ///
    /// # Errors
    /// EPERM, EACCES without rights; ENODEV for a kernel without tracefs; ENOSYS before Linux 5.2.
    pub fn open() -> io::Result<Tracefs> {
        if let Some(place) = PLACES.iter().find(|place| Path::new(place).join("events/block").exists()) {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            return Ok(Tracefs(openat(CWD, *place, flags, Mode::empty())?));
        }
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        Ok(Tracefs(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }

    /// The text of a file below the directory.
    ///
    /// # Errors
    /// ENOENT: this kernel does not have what the file is about; EACCES without rights.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        File::from(openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
            .read_to_string(&mut text)?;
        Ok(text)
    }
}

/// A record of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The tracepoint was passed.
    Passed {
        /// CLOCK_MONOTONIC in nanoseconds.
        at_ns: u64,
        /// The record, whose layout its `format` file in tracefs describes.
        raw: &'a [u8],
    },
    /// The kernel had no room for records.
    Lost,
}

/// Tracepoints on all processors, each with a ring of records of its own.
pub struct Rings {
    /// Of each tracepoint its rings.
    rings: Vec<Vec<Sampler>>,
    /// The processors at the time.
    processors: Vec<u32>,
}

impl Rings {
    /// Rings of `bytes` (a power of two, of pages) for tracepoints by their numbers, all still off. `filter` restricts
    /// them, in the notation of tracefs' `filter` files; empty for none.
    ///
    /// # Errors
    /// EACCES, EPERM without CAP_PERFMON; EMFILE; ENOMEM; EINVAL for a filter that the kernel does not take.
    pub fn open(numbers: &[u64], bytes: usize, filter: &str) -> io::Result<Rings> {
        let processors = process::online()?;
        let ring = |number: u64, processor: u32| {
            let mut builder = Builder::new(Tracepoint::with_id(number));
            builder.any_pid().one_cpu(processor as usize).include_kernel().sample_period(1).enabled(false);
            builder.sample(SampleFlag::TIME | SampleFlag::RAW).clockid(Clock::MONOTONIC).wakeup_watermark(bytes / 2);
            let counter = builder.build()?;
            if !filter.is_empty() {
                set_filter(&counter, filter)?;
            }
            counter.sampled(bytes)
        };
        let of = |&number: &u64| processors.iter().map(|&processor| ring(number, processor)).collect();
        let rings = numbers.iter().map(of).collect::<io::Result<_>>()?;
        Ok(Rings { rings, processors })
    }

    /// True if processors have come or gone since: records of new ones are missing.
    pub fn is_stale(&self) -> bool {
        process::online().is_ok_and(|online| online != self.processors)
    }

    /// Switches the tracepoint at that position of `numbers` on or off.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn switch(&mut self, tracepoint: usize, on: bool) -> io::Result<()> {
        self.rings[tracepoint].iter_mut().try_for_each(|ring| match on {
            true => ring.enable(),
            false => ring.disable(),
        })
    }

    /// Hands over all records that are there, each with the position of its tracepoint; in order of time within one
    /// tracepoint and processor only.
    pub fn drain(&mut self, mut take: impl FnMut(usize, Record<'_>)) {
        for (tracepoint, rings) in self.rings.iter_mut().enumerate() {
            for ring in rings {
                while let Some(record) = ring.next_record() {
                    if let Some(found) = decode(record.ty(), &record.to_contiguous()) {
                        take(tracepoint, found);
                    }
                }
            }
        }
    }

    /// Waits until a ring is half full, or for this time.
    ///
    /// # Errors
    /// Those of poll(2), but for EINTR.
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let fd = |ring: &Sampler| libc::pollfd { fd: ring.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds: Vec<libc::pollfd> = self.rings.iter().flatten().map(fd).collect();
        let ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the array is as long as is said, and the call keeps no pointer to it.
        match unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) } {
            -1 => Some(io::Error::last_os_error()).filter(|error| error.kind() != io::ErrorKind::Interrupted),
            _ => None,
        }
        .map_or(Ok(()), Err)
    }
}

/// Restricts a tracepoint (PERF_EVENT_IOC_SET_FILTER of perf_event_open(2)).
fn set_filter(counter: &Counter, filter: &str) -> io::Result<()> {
    /// `_IOW('$', 6, char *)`.
    const SET_FILTER: libc::c_ulong = 0x2406 | 1 << 30 | (size_of::<*const libc::c_char>() as libc::c_ulong) << 16;
    let filter = CString::new(filter)?;
    // SAFETY: the kernel reads the string, which ends with a zero byte, and keeps no pointer to it.
    match unsafe { libc::ioctl(counter.as_raw_fd(), SET_FILTER as _, filter.as_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// PERF_RECORD_LOST and PERF_RECORD_SAMPLE of perf_event_open(2).
const LOST: u32 = 2;
const SAMPLE: u32 = 9;

/// A record of a ring that has times and raw bytes: u64 time, u32 size, bytes. None for other kinds, and for a record
/// that is shorter than it says.
fn decode(kind: u32, bytes: &[u8]) -> Option<Record<'_>> {
    match kind {
        LOST => Some(Record::Lost),
        SAMPLE => {
            let (time, rest) = bytes.split_first_chunk()?;
            let (size, rest) = rest.split_first_chunk()?;
            let raw = rest.get(..u32::from_ne_bytes(*size) as usize)?;
            Some(Record::Passed { at_ns: u64::from_ne_bytes(*time), raw })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_short_ones_are_left_out() {
        let bytes: Vec<u8> = [&7u64.to_ne_bytes()[..], &3u32.to_ne_bytes(), b"abc..."].concat();
        assert_eq!(decode(SAMPLE, &bytes), Some(Record::Passed { at_ns: 7, raw: b"abc" }));
        assert_eq!(decode(SAMPLE, &bytes[..14]), None, "a byte is missing");
        assert_eq!((decode(SAMPLE, b""), decode(LOST, b""), decode(3, &bytes)), (None, Some(Record::Lost), None));
    }
}
