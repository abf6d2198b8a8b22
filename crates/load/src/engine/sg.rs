//! The engine `sg`: SCSI commands on a disk (`/dev/sda`) or on its generic device (`/dev/sg0`).
//!
//! On a disk, each command is an SG_IO, which returns when the command is done. On a generic device, a command is a
//! write(2) of its header and a read(2) when it has ended, unless the job has `direct=1` or `sync=1`.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use job::Job;
use job::job::OpenSync;
use job::workload::OpKind;
use measure::Direction;
use rustix::event::{PollFd, PollFlags, Timespec};
use sys::clock::monotonic_ns;

use super::blocking::{last_errno, option_is_set};
use super::scsi::{self, Blocks, Carrier, Command, Data, Header, UnmapList, Write};
use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Sg::new(setup)))
}

/// Refuses a verified job whose writes do not store their data.
pub(super) fn check(job: &Job) -> Result<(), Error> {
    if job.verify.is_none() || !job.rw.directions.write || write_mode(job).stores_data() {
        return Ok(());
    }
    let hint = "its writes do not store their data: there is nothing to compare; leave verify= or sg_write_mode= out";
    Err(Error::usage("cannot verify", format!("job {}", job.name), hint))
}

fn write_mode(job: &Job) -> Write {
    match job.ring.option("sg_write_mode").unwrap_or("write") {
        "write_and_verify" | "verify" => Write::AndVerify,
        "write_same" | "same" => Write::Same,
        "write_same_ndob" => Write::SameWithoutData,
        "verify_bytchk_00" => Write::Verify { bytchk: 0 },
        "verify_bytchk_01" => Write::Verify { bytchk: 1 },
        "verify_bytchk_11" => Write::Verify { bytchk: 3 },
        _ => Write::Plain { force: option_is_set(job, "writefua") },
    }
}

struct Sg {
    how: How,
    /// False if each command is waited for, also on generic devices.
    asynchronous: bool,
    files: Vec<File>,
    /// By slot: the command in flight.
    flights: Box<[Flight]>,
    /// Commands that have been sent and whose headers have not been read.
    in_flight: usize,
    /// Commands that were sent since the last [`Engine::submit`].
    sent: usize,
    slots: Arc<Slots>,
}

/// The commands that carry out reads and writes.
#[derive(Clone, Copy)]
struct How {
    write: Write,
    /// `readfua`: reads go to the medium.
    force_reads: bool,
}

#[derive(Clone, Copy)]
struct File {
    fd: RawFd,
    block_bytes: u32,
    /// True for a generic device, on which commands can be sent without waiting for them.
    generic: bool,
    in_flight: usize,
}

const CLOSED: File = File { fd: -1, block_bytes: 1, generic: false, in_flight: 0 };

/// The memory that the kernel uses for a command beside the slot's, and what its end means.
struct Flight {
    carrier: Carrier,
    list: UnmapList,
    file: u32,
    counts: Option<u32>,
}

/// A command with its data, and the op's bytes where those of the command's data are others.
struct Order {
    command: Command,
    data: Data,
    counts: Option<u32>,
}

/// The result of an op, from that of its command.
fn result_of(outcome: i64, counts: Option<u32>) -> i64 {
    if outcome < 0 { outcome } else { counts.map_or(outcome, i64::from) }
}

// SAFETY: the pointers in commands point into slots, of which the engine owns a share, and into the flights themselves.
unsafe impl Send for Sg {}

impl How {
    /// The command of a request. `list` is the memory for the data of a trim.
    fn order(
        self,
        request: &Request,
        slots: &Slots,
        block_bytes: u32,
        list: &mut UnmapList,
    ) -> Result<Order, libc::c_int> {
        let unit = u64::from(block_bytes);
        if !request.offset.is_multiple_of(unit) || !request.len.is_multiple_of(block_bytes) {
            return Err(libc::EINVAL);
        }
        let blocks = Blocks { first: request.offset / unit, count: request.len / block_bytes };
        Ok(match request.kind {
            OpKind::Io(Direction::Read) => {
                let data = Data { memory: slots.place(request), len: request.len, from_device: true };
                Order { command: Command::read(blocks, self.force_reads), data, counts: None }
            }
            OpKind::Io(Direction::Write) => {
                let (command, len) = self.write.command(blocks, request.len, block_bytes);
                let data = Data { memory: slots.place(request), len, from_device: false };
                Order { command, data, counts: (len != request.len).then_some(request.len) }
            }
            OpKind::Io(Direction::Trim) => {
                *list = scsi::unmap_list(blocks);
                let data = Data { memory: list.as_mut_ptr(), len: list.len() as u32, from_device: false };
                Order { command: Command::unmap(), data, counts: Some(request.len) }
            }
            OpKind::Sync | OpKind::DataSync | OpKind::SyncRange => {
                let data = Data { memory: std::ptr::null_mut(), len: 0, from_device: false };
                Order { command: Command::synchronize(), data, counts: Some(0) }
            }
        })
    }
}

impl Sg {
    fn new(setup: &Setup) -> Sg {
        let job = setup.job;
        let flight = |_| Flight {
            carrier: Carrier::new(Command::synchronize()),
            list: UnmapList::default(),
            file: u32::MAX,
            counts: None,
        };
        Sg {
            how: How { write: write_mode(job), force_reads: option_is_set(job, "readfua") },
            asynchronous: !job.files.direct && job.files.sync == OpenSync::None,
            files: vec![CLOSED; setup.files as usize],
            flights: (0..setup.slots.count()).map(flight).collect(),
            in_flight: 0,
            sent: 0,
            slots: Arc::clone(&setup.slots),
        }
    }

    /// Carries an op out and waits for it.
    fn carry_out(&self, request: &Request, file: File) -> i64 {
        let mut list = UnmapList::default();
        match self.how.order(request, &self.slots, file.block_bytes, &mut list) {
            Err(errno) => -i64::from(errno),
            Ok(order) => {
                // SAFETY: the data lie in the slot, whose token is in the request, or in the list above.
                result_of(unsafe { scsi::carry_out(file.fd, order.command, order.data) }, order.counts)
            }
        }
    }

    /// Takes the header of one command that has ended on a file; false if there is none.
    fn take(&mut self, file: usize, done: &mut Vec<Completion>) -> io::Result<bool> {
        let mut header = Header::empty();
        let bytes = std::mem::size_of::<Header>();
        // SAFETY: the driver writes one header, which has room for it; the memory of the command is that of its flight.
        let read = unsafe { libc::read(self.files[file].fd, std::ptr::from_mut(&mut header).cast(), bytes) };
        if read < 0 {
            return match last_errno() {
                libc::EAGAIN | libc::EINTR => Ok(false),
                errno => Err(io::Error::from_raw_os_error(errno)),
            };
        }
        let number = header.number();
        let flight = &self.flights[number as usize];
        self.in_flight -= 1;
        self.files[flight.file as usize].in_flight -= 1;
        let result = result_of(header.outcome(), flight.counts);
        done.push(Completion { slot: self.slots.reclaim(number), result });
        Ok(true)
    }
}

impl Engine for Sg {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        let generic = !super::devices::is_block_device(fd);
        let (_, block_bytes) = scsi::capacity(fd)?;
        if generic {
            super::devices::never_wait(fd)?;
        }
        self.files[file as usize] = File { fd, block_bytes, generic, in_flight: 0 };
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = CLOSED;
    }

    fn queue(&mut self, request: Request) -> Queued {
        let file = self.files[request.file as usize];
        if !(file.generic && self.asynchronous) {
            let result = self.carry_out(&request, file);
            return Queued::Done(Completion { slot: request.slot, result });
        }
        let index = request.slot.index();
        let flight = &mut self.flights[index as usize];
        let order = match self.how.order(&request, &self.slots, file.block_bytes, &mut flight.list) {
            Ok(order) => order,
            Err(errno) => return Queued::Done(Completion { slot: request.slot, result: -i64::from(errno) }),
        };
        (flight.carrier, flight.file, flight.counts) = (Carrier::new(order.command), request.file, order.counts);
        let header = flight.carrier.header(index, order.data);
        let bytes = std::mem::size_of::<Header>();
        // SAFETY: the driver reads one header, and until the command has ended it uses the flight and the slot, which
        // stay where they are: the slot's token has gone into this request, and drop waits for all commands.
        let written = unsafe { libc::write(file.fd, std::ptr::from_ref(&header).cast(), bytes) };
        if written < 0 {
            return match last_errno() {
                // The driver takes 16 commands at a time on a descriptor, and says EDOM to more.
                libc::EDOM | libc::EAGAIN | libc::ENOMEM if self.in_flight > 0 => Queued::Full(request),
                errno => Queued::Done(Completion { slot: request.slot, result: -i64::from(errno) }),
            };
        }
        self.in_flight += 1;
        self.sent += 1;
        self.files[request.file as usize].in_flight += 1;
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        Ok(std::mem::take(&mut self.sent))
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let deadline = timeout_ns.map(|timeout| monotonic_ns().saturating_add(timeout));
        let before = done.len();
        let min = min.min(max).min(self.in_flight);
        loop {
            for file in 0..self.files.len() {
                while done.len() - before < max && self.files[file].in_flight > 0 && self.take(file, done)? {}
            }
            if done.len() - before >= min {
                return Ok(());
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(monotonic_ns()));
            if left == Some(0) || !self.wait(left)? {
                return Ok(());
            }
        }
    }
}

impl Sg {
    /// Waits until a command has ended; false if a signal came first.
    fn wait(&self, timeout_ns: Option<u64>) -> io::Result<bool> {
        let busy = self.files.iter().filter(|file| file.in_flight > 0);
        // SAFETY: the descriptors are open as long as commands are in flight on them.
        let borrowed = busy.map(|file| unsafe { std::os::fd::BorrowedFd::borrow_raw(file.fd) });
        let mut polled: Vec<PollFd> = borrowed.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000).min(i64::MAX as u64) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Sg {
    fn drop(&mut self) {
        let mut done = Vec::new();
        // The kernel ends each command at the latest when its time is over.
        while self.in_flight > 0 {
            if self.reap(1, usize::MAX, None, &mut done).is_err() {
                // The driver may still write into the slots and the flights: they must outlive this engine.
                std::mem::forget(Arc::clone(&self.slots));
                std::mem::forget(std::mem::take(&mut self.flights));
                return;
            }
            done.clear();
        }
    }
}
