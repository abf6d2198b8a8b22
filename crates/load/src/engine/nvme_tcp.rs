//! Namespaces of NVMe/TCP subsystems through the project's own initiator: a real depth, without the kernel's.
//!
//! One controller a clone and subsystem, with as many I/O queues as its depth needs. Requests become commands when they
//! are queued, and leave in one system call when they are submitted; data move between socket and slot. When the
//! connection is lost, the engine issues the outstanding commands again on the next one.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use job::Job;
use job::workload::OpKind;
use measure::Direction;
use nvmf::Wire;
use nvmf::auth::{Secret, TlsKey};
use nvmf::initiator::{
    Address, Arrived, Broken, Buffers, Controller, Done, Error as NvmeError, IoQueue, Namespace, Options, Renewal,
    Transfer,
};
use nvmf::spec::{Command, Range, Status, opcode};
use pace::Poll;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use sys::clock::monotonic_ns;

use super::looking::{Looking, poll_of};
use super::{Completion, Engine, Queued, Request, Setup, Slots, Storage};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(NvmeTcp::new(setup)?))
}

/// Commands on one connection where the user does not say: what controllers take by default.
const QUEUE_DEPTH: u32 = 128;
/// The longest single wait for a controller that is lost.
const RENEWAL_WAIT: Duration = Duration::from_millis(5);
/// Commands that leave together at most: the controller works on them while more are made.
const BATCH: usize = 8;
/// Time after which the engine notices a lost controller at the latest, while nothing comes from its queues.
const NOTICE_NS: u64 = 100_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// The tag of a Flush that is waited for; ops have the numbers of their slots.
const FLUSH: u32 = u32::MAX;

struct NvmeTcp {
    remotes: Vec<Remote>,
    files: Vec<File>,
    ops: Ops,
    /// Queued and not yet submitted.
    queued: usize,
    /// Submitted and not yet sent.
    unsent: usize,
    /// Number of commands that leave together.
    batch: usize,
    /// Taken by [`Engine::queue`] and not yet given back by [`Engine::reap`].
    in_flight: usize,
    depth: usize,
    /// Decides whether the engine looks for answers or sleeps.
    looking: Looking,
    /// Commands that ended, on their way into `ops`.
    ended: Vec<Done>,
}

/// A file of the job, which is a namespace of a subsystem.
struct File {
    remote: usize,
    nsid: u32,
    /// The namespace's number and sizes; None until the file is open.
    namespace: Option<Namespace>,
}

/// One command of an op: an op larger than a command can be has several.
#[derive(Clone, Copy)]
struct Part {
    tag: u32,
    command: Command,
    transfer: Transfer,
}

/// The ops in flight.
struct Ops {
    slots: Arc<Slots>,
    /// The op in flight of each slot, by the slot's number.
    table: Vec<Option<Op>>,
    /// Ops that have ended, until [`Engine::reap`] gives them back.
    finished: VecDeque<Completion>,
    /// The errno of a Flush that was waited for, 0 for success; None until it has ended.
    flushed: Option<i32>,
    /// The data of reads are thrown away.
    discards: bool,
    /// The status of the latest command that failed; success if there is none.
    refusal: Status,
}

struct Op {
    request: Request,
    /// Commands that have not ended.
    left: u32,
    /// Bytes if all goes well; a negative errno after a failure.
    result: i64,
    /// The data of a trim's Dataset Management command: the range to deallocate.
    range: [u8; Range::BYTES],
}

impl Ops {
    fn insert(&mut self, op: Op) {
        let index = op.request.slot.index() as usize;
        self.table[index] = Some(op);
    }

    /// Notes that a command has ended with `errno`, 0 for success.
    #[inline]
    fn end(&mut self, tag: u32, errno: i32) {
        if tag == FLUSH {
            self.flushed = Some(errno);
            return;
        }
        let entry = &mut self.table[tag as usize];
        let Some(op) = entry else { return };
        if errno != 0 && op.result >= 0 {
            op.result = -i64::from(errno);
        }
        op.left -= 1;
        if op.left == 0
            && let Some(Op { request, result, .. }) = entry.take()
        {
            self.finished.push_back(Completion { slot: request.slot, result });
        }
    }
}

impl Buffers for Ops {
    #[inline]
    fn bytes(&self, tag: u32) -> &[u8] {
        match self.table.get(tag as usize) {
            Some(Some(op)) if op.request.kind == OpKind::Io(Direction::Trim) => &op.range,
            Some(Some(op)) => self.slots.bytes(&op.request.slot),
            _ => &[],
        }
    }

    #[inline]
    fn bytes_mut(&mut self, tag: u32) -> &mut [u8] {
        match self.table.get_mut(tag as usize) {
            Some(Some(op)) => self.slots.bytes_mut(&mut op.request.slot),
            _ => &mut [],
        }
    }

    fn keeps_data(&self) -> bool {
        !self.discards
    }
}

/// A connection whose large data are thrown away: the first slice of a vectored read says how many bytes of them to
/// take out of the socket, and keeps its own (MSG_TRUNC, tcp(7)). Other reads are those of the connection.
struct Discarding<'a>(&'a mut Wire);

impl Read for Discarding<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some((payload, behind)) = buffers.split_first_mut() else { return Ok(0) };
        let (_, discarded) = rustix::net::recv(self.0.tcp(), &mut **payload, RecvFlags::TRUNC)?;
        if discarded < payload.len() || discarded == 0 {
            return Ok(discarded);
        }
        match self.0.read_vectored(behind) {
            Ok(read) => Ok(discarded + read),
            // The next read meets the end of the connection, or its error, again.
            Err(_) => Ok(discarded),
        }
    }
}

/// A controller with its queues. Connections end before the controller is told goodbye.
struct Remote {
    queues: Vec<IoQueue>,
    /// The association that the queues belong to.
    generation: u64,
    /// The queue that the next command goes to.
    next: usize,
    /// Commands that wait for room, or for the controller to come back.
    parked: VecDeque<Part>,
    /// The errno with which every op fails, once the controller stays lost.
    lost: Option<i32>,
    max_transfer_bytes: u32,
    address: Address,
    controller: Controller,
}

impl Remote {
    fn connect(address: &Address, options: &Options) -> Result<Remote, NvmeError> {
        let (controller, queues) = Controller::connect(address, options)?;
        Ok(Remote {
            queues,
            generation: controller.generation(),
            next: 0,
            parked: VecDeque::new(),
            lost: None,
            max_transfer_bytes: controller.max_transfer_bytes(),
            address: address.clone(),
            controller,
        })
    }

    /// Gives a command to a queue, or parks it.
    #[inline]
    fn issue(&mut self, part: Part, ops: &Ops) {
        if !self.parked.is_empty() || !self.has_issued(part, ops) {
            self.parked.push_back(part);
        }
    }

    #[inline]
    fn has_issued(&mut self, part: Part, ops: &Ops) -> bool {
        for _ in 0..self.queues.len() {
            self.next = if self.next + 1 < self.queues.len() { self.next + 1 } else { 0 };
            if self.queues[self.next].queue.issue(part.tag, part.command, part.transfer, ops) {
                return true;
            }
        }
        false
    }

    /// Sends the commands that are not sent yet, parked ones included.
    fn send(&mut self, ops: &Ops) {
        while let Some(&part) = self.parked.front()
            && self.has_issued(part, ops)
        {
            self.parked.pop_front();
        }
        let sent = |IoQueue { queue, stream }: &mut IoQueue| !queue.has_unsent() || queue.send(stream, ops).is_ok();
        if !self.queues.iter_mut().all(sent) {
            self.break_off();
        }
    }

    /// Takes in the answers that have come.
    fn receive(&mut self, ops: &mut Ops, ended: &mut Vec<Done>) -> Arrived {
        let (mut most, mut broken) = (Arrived::Nothing, self.generation != self.controller.generation());
        for IoQueue { queue, stream } in &mut self.queues {
            // A queue without outstanding commands can only report that it is closed: the next command finds that out.
            if queue.outstanding() == 0 {
                continue;
            }
            let received = match ops.discards {
                false => queue.receive(stream, ops, ended),
                true => queue.receive(&mut Discarding(stream), ops, ended),
            };
            match received {
                Ok(arrived) => most = most.max(arrived),
                Err(why) => {
                    if let Broken::Fault(fault) = why {
                        queue.terminate(&fault, stream);
                    }
                    broken = true;
                }
            }
        }
        // Ended commands leave the table before the outstanding ones are issued again.
        for done in ended.drain(..) {
            if !done.status.is_ok() {
                ops.refusal = done.status;
            }
            ops.end(done.tag, done.status.errno());
        }
        if broken {
            self.break_off();
            return Arrived::Nothing;
        }
        most
    }

    /// Gives up the association and parks the outstanding commands.
    fn break_off(&mut self) {
        for IoQueue { queue, .. } in self.queues.drain(..) {
            let parts = queue.outstanding_commands();
            self.parked.extend(parts.map(|(tag, command, transfer)| Part { tag, command, transfer }));
        }
        self.controller.lost(self.generation);
    }

    /// Looks whether the controller is back, or never will be: in that case the parked commands fail.
    fn renew(&mut self, ops: &mut Ops, wait: Duration) {
        if !self.queues.is_empty() || self.lost.is_some() {
            return;
        }
        match self.controller.renewed(wait) {
            None => {}
            Some(Renewal::Queues(generation, queues)) => (self.generation, self.queues) = (generation, queues),
            Some(Renewal::Lost(error)) => {
                self.lost = Some(error.errno);
                for part in self.parked.drain(..) {
                    ops.end(part.tag, error.errno);
                }
            }
        }
    }
}

impl NvmeTcp {
    fn new(setup: &Setup) -> Result<NvmeTcp, Error> {
        check(setup.job)?;
        let options = options(setup)?;
        let mut remotes: Vec<Remote> = Vec::new();
        let mut files = Vec::new();
        for name in setup.names {
            let address = locate(setup.job, name)?;
            let known = remotes.iter().position(|remote| remote.address.is_same_subsystem(&address));
            let remote = match known {
                Some(known) => known,
                None => {
                    remotes.push(Remote::connect(&address, &options).map_err(|error| refused(setup.job, error))?);
                    remotes.len() - 1
                }
            };
            files.push(File { remote, nsid: address.nsid, namespace: None });
        }
        let depth = setup.depth.max(1) as usize;
        Ok(NvmeTcp {
            remotes,
            files,
            ops: Ops {
                slots: Arc::clone(&setup.slots),
                table: (0..setup.slots.count()).map(|_| None).collect(),
                finished: VecDeque::with_capacity(depth),
                flushed: None,
                discards: is_on(setup.job, "discard_payload"),
                refusal: Status::SUCCESS,
            },
            queued: 0,
            unsent: 0,
            batch: (depth / 4).clamp(1, BATCH),
            in_flight: 0,
            depth,
            looking: Looking::new(poll_of(setup.job, Poll::Adaptive)),
            ended: Vec::with_capacity(depth),
        })
    }

    fn namespace(&self, file: u32) -> io::Result<Namespace> {
        let File { remote, nsid, .. } = self.files[file as usize];
        Ok(self.remotes[remote].controller.namespace(nsid)?)
    }

    /// Makes commands of a request. Gives a request that has ended already back with its result.
    #[inline]
    fn begin(&mut self, request: Request) -> Option<Completion> {
        let ended = |request: Request, result: i64| Some(Completion { slot: request.slot, result });
        let file = self.files.get(request.file as usize);
        let Some((remote, namespace)) = file.and_then(|file| Some((file.remote, file.namespace?))) else {
            return ended(request, -i64::from(libc::EBADF));
        };
        let remote = &mut self.remotes[remote];
        if let Some(errno) = remote.lost {
            return ended(request, -i64::from(errno));
        }
        let Namespace { nsid, block_bytes, blocks } = namespace;
        let (offset, tag) = (request.offset, request.slot.index());
        let size = blocks * u64::from(block_bytes);
        let OpKind::Io(direction) = request.kind else {
            self.ops.insert(Op { request, left: 1, result: 0, range: [0; Range::BYTES] });
            let command = Command::new(opcode::io::FLUSH, nsid);
            remote.issue(Part { tag, command, transfer: Transfer::None }, &self.ops);
            return None;
        };
        let len = u64::from(request.len).min(size.saturating_sub(offset)) as u32;
        if len == 0 || !offset.is_multiple_of(block_bytes.into()) || !len.is_multiple_of(block_bytes) {
            return match direction {
                Direction::Read if len == 0 => ended(request, 0),
                // As writes beyond the end of a block device.
                Direction::Write if len == 0 && offset == size => ended(request, -i64::from(libc::ENOSPC)),
                _ => ended(request, -i64::from(libc::EINVAL)),
            };
        }
        let (slba, count, skip) = (offset / u64::from(block_bytes), len / block_bytes, request.skip);
        let mut op = Op { left: 1, result: len.into(), range: [0; Range::BYTES], request };
        if direction == Direction::Trim {
            op.range = Range { attributes: 0, blocks: count, slba }.write();
            self.ops.insert(op);
            let transfer = Transfer::Out { at: 0, len: Range::BYTES as u32 };
            remote.issue(Part { tag, command: Range::deallocate(nsid, 1), transfer }, &self.ops);
            return None;
        }
        assert!(skip as usize + len as usize <= self.ops.slots.slot_bytes(), "a request is larger than its buffer");
        // A command has at most 65536 blocks.
        let most = (remote.max_transfer_bytes / block_bytes).clamp(1, 1 << 16);
        op.left = count.div_ceil(most);
        self.ops.insert(op);
        let write = direction == Direction::Write;
        let opcode = if write { opcode::io::WRITE } else { opcode::io::READ };
        let mut done = 0;
        while done < count {
            let part = (count - done).min(most);
            let command = Command::blocks(opcode, nsid, slba + u64::from(done), part);
            let (at, len) = (skip + done * block_bytes, part * block_bytes);
            let transfer = if write { Transfer::Out { at, len } } else { Transfer::In { at, len } };
            remote.issue(Part { tag, command, transfer }, &self.ops);
            done += part;
        }
        None
    }

    /// Sends the commands that are not sent yet.
    fn send(&mut self) {
        for remote in &mut self.remotes {
            remote.send(&self.ops);
        }
        self.unsent = 0;
    }

    /// Sends commands and takes in answers, until `enough` ops have ended or nothing more has come. It takes no more
    /// than that: otherwise a target that answers as fast as the engine listens would carry out all that it has before
    /// it gets new commands. True if any byte has come.
    fn exchange(&mut self, enough: usize) -> bool {
        self.send();
        let mut has_come = false;
        for remote in &mut self.remotes {
            loop {
                let arrived = remote.receive(&mut self.ops, &mut self.ended);
                has_come |= arrived != Arrived::Nothing;
                if arrived != Arrived::Full || self.ops.finished.len() >= enough {
                    break;
                }
            }
            remote.renew(&mut self.ops, Duration::ZERO);
            // Data that the controller asked for, and commands for which there is room now.
            remote.send(&self.ops);
        }
        has_come
    }

    /// Sleeps until there is something to do, for `timeout_ns` at most; false if a signal interrupted the sleep.
    fn wait(&mut self, timeout_ns: Option<u64>) -> bool {
        if let Some(remote) = self.remotes.iter_mut().find(|remote| remote.queues.is_empty() && remote.lost.is_none()) {
            let patience = timeout_ns.map_or(RENEWAL_WAIT, Duration::from_nanos).min(RENEWAL_WAIT);
            remote.renew(&mut self.ops, patience);
            return true;
        }
        let queues = self.remotes.iter().flat_map(|remote| &remote.queues);
        if queues.clone().any(|IoQueue { stream, .. }| stream.has_more()) {
            return true; // bytes wait where the kernel does not see them
        }
        let mut fds: Vec<PollFd> = queues
            .map(|IoQueue { queue, stream }| {
                let out = if queue.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
                PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN | out)
            })
            .collect();
        // The sleep ends now and then, to notice a controller that is lost while its queues are silent.
        let timeout_ns = timeout_ns.unwrap_or(u64::MAX).min(NOTICE_NS);
        let timeout = Timespec { tv_sec: (timeout_ns / NS_PER_S) as i64, tv_nsec: (timeout_ns % NS_PER_S) as i64 };
        rustix::event::poll(&mut fds, Some(&timeout)) != Err(rustix::io::Errno::INTR)
    }
}

impl Engine for NvmeTcp {
    fn reason(&self, errno: i32) -> Option<String> {
        let refusal = self.ops.refusal;
        (!refusal.is_ok() && refusal.errno() == errno).then(|| format!("the controller answered {refusal}"))
    }

    fn open(&mut self, file: u32, _fd: RawFd) -> io::Result<()> {
        Storage::open(self, file)
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize].namespace = None;
    }

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        if self.in_flight >= self.depth {
            return Queued::Full(request);
        }
        match self.begin(request) {
            Some(completion) => Queued::Done(completion),
            None => {
                self.queued += 1;
                self.in_flight += 1;
                Queued::Later
            }
        }
    }

    /// Commands leave when a batch of them is there, or with the next [`Engine::reap`]: requests that come one by one
    /// would cost a system call each.
    #[inline]
    fn submit(&mut self) -> io::Result<usize> {
        let taken = std::mem::take(&mut self.queued);
        self.unsent += taken;
        if self.unsent >= self.batch {
            self.send();
        }
        Ok(taken)
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let deadline = timeout_ns.map(|timeout| monotonic_ns().saturating_add(timeout));
        let min = min.min(max).min(self.in_flight - self.queued);
        let mut taken = 0;
        loop {
            // A part of an op's data is something, too: the gap ends with the first byte.
            if (self.ops.finished.len() < min - taken || min == 0) && self.exchange((min - taken).max(1)) {
                self.looking.found();
            }
            let there = self.ops.finished.len().min(max - taken);
            done.extend(self.ops.finished.drain(..there));
            self.in_flight -= there;
            taken += there;
            if taken >= min {
                return Ok(());
            }
            let now = monotonic_ns();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(());
            }
            if !self.looking.looks_again(now) && !self.wait(deadline.map(|deadline| deadline.saturating_sub(now))) {
                return Ok(());
            }
        }
    }

    fn storage(&mut self) -> Option<&mut dyn Storage> {
        Some(self)
    }
}

impl Storage for NvmeTcp {
    fn bytes(&self, file: u32) -> io::Result<Option<u64>> {
        let Namespace { block_bytes, blocks, .. } = self.namespace(file)?;
        Ok(Some(blocks * u64::from(block_bytes)))
    }

    fn block_bytes(&self, file: u32) -> io::Result<u64> {
        Ok(self.namespace(file)?.block_bytes.into())
    }

    fn can_grow(&self) -> bool {
        false
    }

    fn open(&mut self, file: u32) -> io::Result<()> {
        self.files[file as usize].namespace = Some(self.namespace(file)?);
        Ok(())
    }

    fn close(&mut self, file: u32) -> io::Result<()> {
        self.files[file as usize].namespace = None;
        Ok(())
    }

    fn sync(&mut self, file: u32) -> io::Result<()> {
        let File { remote, namespace, .. } = self.files[file as usize];
        let Some(Namespace { nsid, .. }) = namespace else { return Ok(()) };
        let remote = &mut self.remotes[remote];
        if let Some(errno) = remote.lost {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let command = Command::new(opcode::io::FLUSH, nsid);
        remote.issue(Part { tag: FLUSH, command, transfer: Transfer::None }, &self.ops);
        loop {
            self.exchange(usize::MAX);
            match self.ops.flushed.take() {
                Some(0) => return Ok(()),
                Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
                None => self.wait(None),
            };
        }
    }

    /// Namespaces belong to the controller: the engine does not remove them.
    fn unlink(&mut self, _file: u32) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

/// Refuses `discard_payload=1` beside what needs the data of reads.
///
/// # Errors
/// A usage error that names the option beside it.
pub(super) fn check(job: &Job) -> Result<(), Error> {
    let digests = option(job, "digest_enable").unwrap_or("NONE").to_ascii_uppercase();
    let reader = match &job.verify {
        Some(_) => "verify= compares them",
        None if digests == "DATA" || digests == "BOTH" => "a data digest (digest_enable=) is computed over them",
        None => return Ok(()),
    };
    if !is_on(job, "discard_payload") {
        return Ok(());
    }
    let hint = format!("{reader}: leave one of the two out");
    Err(Error::usage("discard_payload=1 throws the data of reads away", format!("in job {}", job.name), hint))
}

/// The address that a file's name stands for, completed by the job's options.
pub(super) fn locate(job: &Job, name: &str) -> Result<Address, Error> {
    let option = |key: &str| option(job, key);
    let mut text = match name.trim().parse::<u32>() {
        Ok(number) => format!("ns={number}"),
        Err(_) => name.to_string(),
    };
    for (key, from) in [("traddr", "hostname"), ("trsvcid", "port"), ("subnqn", "subnqn")] {
        let is_there = text.split_whitespace().any(|pair| pair.to_ascii_lowercase().starts_with(key));
        if let Some(value) = option(from).filter(|_| !is_there) {
            text.push_str(&format!(" {key}={value}"));
        }
    }
    let place = format!("in job {}", job.name);
    Address::parse(&text).map_err(|error| Error::usage(format!("ioengine=nvme_tcp: {error}"), place, ""))
}

fn option<'a>(job: &'a Job, key: &str) -> Option<&'a str> {
    job.ring.other.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
}

fn is_on(job: &Job, key: &str) -> bool {
    option(job, key) == Some("1")
}

/// The options of a connection, as the job gives them.
fn options(setup: &Setup) -> Result<Options, Error> {
    let job = setup.job;
    let wrong = |what: String| Error::usage(what, format!("in job {}", job.name), "");
    let number = |key: &str| option(job, key).and_then(|value| value.parse::<u64>().ok());
    let mut options = Options::default();
    if let Some(name) = option(job, "hostnqn") {
        options.set_host(name.parse().map_err(|error| wrong(format!("hostnqn={name}: {error}")))?);
    }
    if let Some(uuid) = option(job, "hostid") {
        options.set_host_id(uuid).map_err(|error| wrong(format!("hostid={error}")))?;
    }
    (options.header_digest, options.data_digest) =
        match option(job, "digest_enable").unwrap_or("NONE").to_ascii_uppercase().as_str() {
            "NONE" => (false, false),
            "HEADER" => (true, false),
            "DATA" => (false, true),
            "BOTH" => (true, true),
            other => return Err(wrong(format!("digest_enable={other} is none of NONE, HEADER, DATA, BOTH"))),
        };
    let secret = |key: &str| {
        let read = |path: &str| Secret::read(Path::new(path)).map_err(|error| wrong(format!("{key}={path}: {error}")));
        option(job, key).map(read).transpose()
    };
    (options.secret, options.controller_secret) = (secret("dhchap_key")?, secret("dhchap_ctrlr_key")?);
    if options.controller_secret.is_some() && options.secret.is_none() {
        return Err(wrong("dhchap_ctrlr_key= needs dhchap_key=: hosts prove themselves first".into()));
    }
    if let Some(path) = option(job, "tls_key") {
        let key = TlsKey::read(Path::new(path)).map_err(|error| wrong(format!("tls_key={path}: {error}")))?;
        options.tls_key = Some(key);
        if is_on(job, "discard_payload") {
            return Err(wrong("discard_payload=1 takes bytes from the socket that tls_key= has to decrypt".into()));
        }
    }
    options.concatenation = is_on(job, "concat");
    if options.concatenation {
        let why = match () {
            () if options.tls_key.is_some() => "concat=1 makes a key of TLS, and tls_key= gives one: choose",
            () if options.secret.is_none() => "concat=1 needs dhchap_key=: authentication makes the key of TLS",
            () if is_on(job, "discard_payload") => "discard_payload=1 takes bytes that concat=1 has to decrypt",
            () => "",
        };
        if !why.is_empty() {
            return Err(wrong(why.into()));
        }
    }
    if let Some(seconds) = number("keep_alive_tmo") {
        options.keep_alive = Duration::from_secs(seconds);
    }
    if let Some(seconds) = number("ctrl_loss_tmo") {
        options.controller_loss = Duration::from_secs(seconds);
    }
    let depth = setup.depth.max(1);
    let queues = number("nr_io_queues").unwrap_or(depth.div_ceil(QUEUE_DEPTH).into()).clamp(1, 1024) as u32;
    (options.queues, options.depth) = (queues as u16, depth.div_ceil(queues));
    Ok(options)
}

fn refused(job: &Job, error: NvmeError) -> Error {
    Error::system(format!("job {}", job.name), "", error.into())
}
