//! io_uring: reads and writes of files, with registered buffers and files, batches, polled submission and completion.

use std::io;
use std::os::fd::RawFd;

use job::workload::OpKind;
use measure::Direction;
use sys::ring::{Probe, Ring, Transfer, cqueue, opcode, squeue, types};

use super::blocking::{self, Flags, PUNCH};
use super::devices::is_block_device;
use super::ringed::{self, Form, Registered, Ringed};
use super::{Engine, Request, Setup, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    if setup.job.ring.hipri {
        can_be_polled(setup)?;
    }
    let ring = ringed::open::<Transfers>(setup)?;
    let transfers = Transfers::new(setup, &ring);
    Ok(Box::new(Ringed::new(setup, ring, transfers)?))
}

/// `BLOCK_URING_CMD_DISCARD` of linux/blkdev.h, `_IO(0x12, 0)` (Linux 6.12).
const DISCARD: u32 = 0x1200;

/// The upper half of an op's `user_data`, if the completion's result is the op's. The lower half is the slot's number.
const PLAIN: u64 = 0;
/// The upper half of the `user_data` of a trim that punches a hole into a file: its result has no length.
const PUNCHED: u64 = 1;
/// The upper half of the `user_data` of a trim that discards blocks of a device: its result has no length.
const DISCARDED: u64 = 2;

/// Ops on files as entries.
struct Transfers {
    how: How,
    files: Vec<File>,
    /// By slot: the iovec that a vectored request points to. Empty if requests are not vectored.
    vectors: Vec<libc::iovec>,
    /// By slot: trims in flight, whose results carry no length. Empty until the first trim.
    trims: Vec<Trim>,
    /// True as long as the kernel is not known to lack the ring's command for discarding device blocks.
    discards: bool,
}

/// The form in which ops are put into entries, fixed when the engine is made.
#[derive(Clone, Copy)]
struct How {
    /// `fixedbufs`: the buffers are registered.
    registered: Option<Registered>,
    register_files: bool,
    vectored: bool,
    iopoll: bool,
    flags: Flags,
}

#[derive(Clone, Copy)]
struct File {
    fd: RawFd,
    block_device: bool,
}

#[derive(Clone, Copy, Default)]
struct Trim {
    file: u32,
    len: u32,
    offset: u64,
}

// SAFETY: the iovecs are the only field that is not Send; they point into slots, which the engine owns a share of.
unsafe impl Send for Transfers {}

impl Transfers {
    fn new(setup: &Setup, ring: &Ring) -> Transfers {
        let options = &setup.job.ring;
        let how = How {
            registered: options.fixed_buffers.then(|| Registered::of(&setup.slots)),
            register_files: options.register_files,
            vectored: !options.fixed_buffers && !options.nonvectored.unwrap_or_else(|| has_read(ring)),
            iopoll: options.hipri,
            flags: Flags::of(setup.job).without_hipri(),
        };
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Transfers {
            how,
            files: vec![File { fd: -1, block_device: false }; setup.files as usize],
            vectors: if how.vectored { vec![none; setup.slots.count() as usize] } else { Vec::new() },
            trims: Vec::new(),
            discards: true,
        }
    }

    #[inline(always)]
    fn transfer(&mut self, request: &Request, slots: &Slots, write: bool) -> Transfer {
        let How { registered, register_files, vectored, flags, .. } = self.how;
        let slot = request.slot.index();
        let memory = slots.place(request);
        let file = if register_files { request.file as i32 } else { self.files[request.file as usize].fd };
        let (read_code, write_code) = match registered {
            Some(_) => (opcode::ReadFixed::CODE, opcode::WriteFixed::CODE),
            None if vectored => (opcode::Readv::CODE, opcode::Writev::CODE),
            None => (opcode::Read::CODE, opcode::Write::CODE),
        };
        let (address, len) = if vectored {
            let vector = &mut self.vectors[slot as usize];
            *vector = libc::iovec { iov_base: memory.cast(), iov_len: request.len as usize };
            (std::ptr::from_mut(vector) as u64, 1)
        } else {
            (memory as u64, request.len)
        };
        Transfer {
            opcode: if write { write_code } else { read_code },
            has_registered_file: register_files,
            file,
            priority: request.priority,
            offset: request.offset,
            address,
            len,
            rwf: flags.of_transfer(write),
            user_data: u64::from(slot) | PLAIN << 32,
            buffer: registered.map_or(0, |registered| registered.buffer(slot)),
            to_worker: false,
        }
    }

    /// The entry of a trim or sync; None where only a system call that blocks can make it.
    fn other(&mut self, request: &Request, slots: &Slots) -> Option<squeue::Entry> {
        // A ring that polls takes only ops that can be polled for.
        if self.how.iopoll {
            return None;
        }
        let file = self.files[request.file as usize];
        let slot = u64::from(request.slot.index());
        let entry = match request.kind {
            OpKind::Io(Direction::Trim) => {
                if file.block_device && !self.discards {
                    return None;
                }
                if self.trims.is_empty() {
                    self.trims.resize(slots.count() as usize, Trim::default());
                }
                let trim = Trim { file: request.file, len: request.len, offset: request.offset };
                self.trims[request.slot.index() as usize] = trim;
                if file.block_device {
                    let mut length = [0; 16];
                    length[..8].copy_from_slice(&u64::from(request.len).to_ne_bytes());
                    let command = opcode::UringCmd16::new(types::Fd(file.fd), DISCARD);
                    return Some(
                        command.cmd(length).addr(Some(request.offset)).build().user_data(slot | DISCARDED << 32),
                    );
                }
                let punch = opcode::Fallocate::new(types::Fd(file.fd), u64::from(request.len));
                return Some(punch.offset(request.offset).mode(PUNCH).build().user_data(slot | PUNCHED << 32));
            }
            OpKind::Sync => opcode::Fsync::new(types::Fd(file.fd)).build(),
            OpKind::DataSync => opcode::Fsync::new(types::Fd(file.fd)).flags(types::FsyncFlags::DATASYNC).build(),
            OpKind::SyncRange => opcode::SyncFileRange::new(types::Fd(file.fd), request.len)
                .offset(request.offset)
                .flags(self.how.flags.sync_range)
                .build(),
            OpKind::Io(_) => unreachable!("transfers are made by transfer()"),
        };
        Some(entry.user_data(slot | PLAIN << 32))
    }
}

impl Form for Transfers {
    type Entry = squeue::Entry;
    type Completed = cqueue::Entry;

    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.files[file as usize] = File { fd, block_device: is_block_device(fd) };
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = File { fd: -1, block_device: false };
    }

    #[inline]
    fn put(
        &mut self,
        request: &Request,
        slots: &Slots,
        to_worker: bool,
        push: impl FnOnce(&squeue::Entry) -> bool,
    ) -> Option<bool> {
        if let OpKind::Io(direction @ (Direction::Read | Direction::Write)) = request.kind {
            let transfer = self.transfer(request, slots, direction == Direction::Write);
            return Some(push(&Transfer { to_worker, ..transfer }.entry()));
        }
        let entry = self.other(request, slots)?;
        Some(push(&if to_worker { entry.flags(squeue::Flags::ASYNC) } else { entry }))
    }

    fn carry_out(&mut self, request: &Request) -> i64 {
        let fd = self.files[request.file as usize].fd;
        blocking::carry_out(fd, request.kind, request.offset, request.len, self.how.flags)
    }

    #[inline]
    fn result(&mut self, data: u64, result: i32) -> i64 {
        if data >> 32 == PLAIN {
            return i64::from(result);
        }
        let trim = &self.trims[data as u32 as usize];
        trimmed(data >> 32, i64::from(result), trim, &self.files, &mut self.discards)
    }

    fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.vectors));
    }
}

/// Refuses a job whose disks have no queues for polling: the kernel would retry polled requests on them forever.
fn can_be_polled(setup: &Setup) -> Result<(), Error> {
    let names = setup.names.iter().filter(|name| !name.is_empty()); // a trial has no names yet
    let disks = names.flat_map(|name| sys::disk::below(std::path::Path::new(name)));
    let known: Vec<bool> = disks.filter_map(|disk| sys::disk::has_poll_queues(&disk)).collect();
    if known.is_empty() || known.contains(&true) {
        return Ok(());
    }
    let unsupported = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let hint = "its disk has no queues for polling (/sys/block/NAME/queue/io_poll is 0): leave hipri out";
    Err(Error::system("cannot poll for completions, hipri=1,", format!("in job {}", setup.job.name), unsupported)
        .hint(hint))
}

/// The result of a trim: its length, which the kernel does not say. If the kernel or the device lacks the ring's
/// discard, this function repeats the trim as an ioctl.
#[cold]
fn trimmed(how: u64, result: i64, trim: &Trim, files: &[File], discards: &mut bool) -> i64 {
    let unknown = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOTTY, libc::ENOSYS].map(|errno| -i64::from(errno));
    if how == DISCARDED && unknown.contains(&result) {
        let fd = files[trim.file as usize].fd;
        let again = blocking::carry_out(fd, OpKind::Io(Direction::Trim), trim.offset, trim.len, Flags::default());
        // If the ioctl succeeds where the command did not, this kernel has no command.
        *discards &= again < 0;
        return again;
    }
    if result == 0 { i64::from(trim.len) } else { result }
}

/// True if the kernel has the opcodes without vectors (Linux 5.6, which also brought the probe).
fn has_read(ring: &Ring) -> bool {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Read::CODE)
}
