//! Namespaces of NVMe over Fabrics subsystems through the project's own initiator: a real depth, without the kernel's.
//! `nvme_tcp` and `nvme_rdma` are this engine over one of the two transports; only its options know which.
//!
//! One controller a clone and subsystem, with as many I/O queues as its depth needs. Requests become commands when they
//! are queued, and leave together when they are submitted; data move between connection and slot. When the connection
//! is lost, the engine drops all its queues, and then issues the outstanding commands again on the next one: no data of
//! the old connection can come into a slot that has been used again.

mod options;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use job::Job;
use job::workload::OpKind;
use measure::Direction;
use measure::schema::Disturbances;
use nvme::spec::{Command, Range, Status, opcode};
use nvme_initiator::{
    Address, Arena, Arrived, Broken, Buffers, Controller, Done, Error as NvmeError, Issued, Link, Namespace, Options,
    Renewal, Transfer,
};
use pace::Poll;
use rustix::event::Timespec;
use sys::clock::monotonic_ns;

use super::looking::{Looking, poll_of};
use super::{Completion, Engine, Queued, Request, Setup, Slots, Storage};
use crate::Error;
pub use options::use_rdma_stack;
pub(super) use options::{check, locate, transport};
use options::{io_timeout, is_on};

/// Makes the engine, over the transport that the job's engine names.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Fabrics::new(setup)?))
}

/// The longest single wait for a controller that is lost.
const RENEWAL_WAIT: Duration = Duration::from_millis(5);
/// Commands that leave together at most: the controller works on them while more are made.
const BATCH: usize = 8;
/// Time after which the engine notices a lost controller at the latest, while nothing comes from its queues.
const NOTICE_NS: u64 = 100_000_000;
/// The number of times that a command is issued again before its op fails: Linux's nvme_core.max_retries.
const MAX_REPEATS: u32 = 5;
/// The time between two attempts at a command whose path has failed.
const PATH_WAIT_NS: u64 = 100_000_000;
/// Calls of [`Engine::reap`] after which the engine reads the clock, where it never waits.
const REAPS_UNTIMED: u32 = 1024;
const NS_PER_S: u64 = 1_000_000_000;
/// The tag of a Flush that is waited for; ops have the numbers of their slots.
const FLUSH: u32 = u32::MAX;

struct Fabrics {
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
    /// The time that a command may take; None: any.
    timeout: Option<Duration>,
    /// The time of the next look for commands without an answer, and the calls of reap since the last.
    look_at_ns: u64,
    reaps: u32,
    /// The time at which what is still in flight is given up, and the patience that it had; None before the end.
    ends_by: Option<(u64, Duration)>,
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
    /// Attempts to issue the Flush again.
    flush_repeats: u32,
    /// Events that distort the measurement.
    events: Disturbances,
    /// The error number and the reason of the latest op that failed.
    failure: Option<(i32, String)>,
    /// The time of the latest look for commands without an answer: the age of an op counts from it.
    now_ns: u64,
}

struct Op {
    request: Request,
    /// Commands that have not ended.
    left: u32,
    /// All commands of the op, and the number of times that one of them was issued again.
    parts: u32,
    repeats: u32,
    /// The time from which the answer is waited for, and from which the path is.
    since_ns: u64,
    no_path_ns: u64,
    is_aborted: bool,
    /// Bytes if all goes well; a negative errno after a failure.
    result: i64,
    /// The data of a trim's Dataset Management command: the range to deallocate.
    range: [u8; Range::BYTES],
}

impl Op {
    #[inline]
    fn new(request: Request, parts: u32, result: i64, now_ns: u64) -> Op {
        let range = [0; Range::BYTES];
        Op {
            request,
            left: parts,
            parts,
            repeats: 0,
            since_ns: now_ns,
            no_path_ns: 0,
            is_aborted: false,
            result,
            range,
        }
    }
}

impl Ops {
    fn op(&mut self, tag: u32) -> Option<&mut Op> {
        self.table.get_mut(tag as usize).and_then(Option::as_mut)
    }

    /// True if a command of the op may be issued again, which this counts.
    fn may_repeat(&mut self, tag: u32) -> bool {
        let now_ns = monotonic_ns();
        let (repeats, parts) = match self.op(tag) {
            Some(op) => {
                (op.since_ns, op.is_aborted) = (now_ns, false);
                (&mut op.repeats, op.parts)
            }
            None => (&mut self.flush_repeats, 1),
        };
        *repeats += 1;
        *repeats <= MAX_REPEATS * parts
    }

    /// Ends a command with an error, and keeps the reason.
    fn fail(&mut self, tag: u32, errno: i32, why: String) {
        self.failure = Some((errno, why));
        self.end(tag, errno);
    }

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

    /// The range of a trim is not in its slot.
    #[inline]
    fn slot(&self, tag: u32) -> Option<u32> {
        match self.table.get(tag as usize) {
            Some(Some(op)) if op.request.kind != OpKind::Io(Direction::Trim) => Some(tag),
            _ => None,
        }
    }
}

// SAFETY: the memory of the slots lives as long as they do, and slots are disjoint parts of it. The token of a slot is
// in `Ops` while a command that moves data of the slot is outstanding, so that nobody can borrow the bytes: RDMA links
// ask `Ops` for the slot's number, and never for its bytes.
unsafe impl Arena for Slots {
    fn count(&self) -> u32 {
        Slots::count(self)
    }

    fn slot(&self, index: u32) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.pointer(index), self.slot_bytes())
    }
}

/// A controller with its queues. Connections end before the controller is told goodbye.
struct Remote {
    queues: Vec<Link>,
    /// The association that the queues belong to.
    generation: u64,
    /// The queue that the next command goes to.
    next: usize,
    /// Commands that wait for room, or for the controller to come back.
    parked: VecDeque<Part>,
    /// Commands whose path has failed, and the time at which they are issued again, in order of time.
    later: VecDeque<(u64, Part)>,
    /// True if a request has completed on this association.
    has_progressed: bool,
    /// True if the previous association ended without any answer in time.
    was_silent: bool,
    /// The errno with which every op fails, once the controller stays lost.
    lost: Option<i32>,
    /// The reason why the last association ended.
    why: String,
    /// The time for which the host waits for a path or a controller.
    patience: Duration,
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
            later: VecDeque::new(),
            has_progressed: false,
            was_silent: false,
            lost: None,
            why: String::new(),
            patience: options.controller_loss,
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
            if self.queues[self.next].issue(part.tag, part.command, part.transfer, ops) {
                return true;
            }
        }
        false
    }

    /// Sends the commands that are not sent yet, parked ones included.
    fn send(&mut self, ops: &mut Ops) {
        while let Some(&(due, part)) = self.later.front()
            && due <= monotonic_ns()
        {
            self.later.pop_front();
            self.parked.push_back(part);
        }
        while let Some(&part) = self.parked.front()
            && self.has_issued(part, ops)
        {
            self.parked.pop_front();
        }
        if let Some(broken) = self.queues.iter_mut().find_map(|queue| queue.send(ops).err()) {
            self.break_off(ops, Some(&broken));
        }
    }

    /// Takes in the answers that have come.
    fn receive(&mut self, ops: &mut Ops, ended: &mut Vec<Done>) -> Arrived {
        let (mut most, mut broken) = (Arrived::Nothing, None);
        for queue in &mut self.queues {
            if !queue.is_expecting() {
                continue;
            }
            match queue.receive(ops, ended) {
                Ok(arrived) => most = most.max(arrived),
                Err(error) => broken = Some(error),
            }
        }
        if !self.has_progressed && !ended.is_empty() {
            (self.has_progressed, self.was_silent) = (true, false);
            self.controller.progressed();
        }
        // Ended commands leave the table before the outstanding ones are issued again.
        for done in ended.drain(..) {
            match done.failed {
                None => ops.end(done.tag, 0),
                Some(issued) => self.refused(*issued, done.status, ops),
            }
        }
        if broken.is_some() || self.generation != self.controller.generation() {
            self.break_off(ops, broken.as_ref());
            return Arrived::Nothing;
        }
        most
    }

    /// True if nothing has come that the descriptors of the queues would not show.
    fn may_sleep(&mut self, ops: &mut Ops) -> bool {
        for queue in &mut self.queues {
            match queue.may_sleep() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(broken) => {
                    self.break_off(ops, Some(&broken));
                    return false;
                }
            }
        }
        true
    }

    /// Gives up the association and parks the outstanding commands. All its connections end here, before a command can
    /// be issued again.
    fn break_off(&mut self, ops: &mut Ops, broken: Option<&Broken>) {
        if self.queues.is_empty() {
            return;
        }
        self.why = broken.map_or("the connection to the controller was lost".into(), Broken::to_string);
        let errno = broken.map_or(libc::ECONNRESET, Broken::errno);
        ops.events.connections_lost += 1;
        for part in self.close_queues() {
            if ops.may_repeat(part.tag) {
                ops.events.requests_repeated += 1;
                self.parked.push_back(part);
            } else {
                ops.fail(part.tag, errno, format!("{} attempts failed: {}", MAX_REPEATS + 1, self.why));
            }
        }
        self.controller.lost(self.generation);
    }

    /// Closes all queues. Returns the commands that were outstanding.
    fn close_queues(&mut self) -> Vec<Part> {
        let parts = self.queues.iter().flat_map(Link::outstanding_commands);
        let parts = parts.map(|(tag, command, transfer)| Part { tag, command, transfer }).collect();
        self.queues.clear();
        parts
    }

    /// Takes a command that the controller has failed: it is issued again if the controller allows it.
    #[cold]
    fn refused(&mut self, (tag, command, transfer): Issued, status: Status, ops: &mut Ops) {
        let part = Part { tag, command, transfer };
        let now_ns = monotonic_ns();
        if !status.is_do_not_retry() && status.is_path_error() {
            let since_ns = ops.op(tag).map_or(&mut 0, |op| &mut op.no_path_ns).to_owned();
            let since_ns = if since_ns == 0 { now_ns } else { since_ns };
            if let Some(op) = ops.op(tag) {
                op.no_path_ns = since_ns;
            }
            if now_ns - since_ns < self.patience.as_nanos() as u64 {
                ops.events.path_waits += 1;
                return self.later.push_back((now_ns + PATH_WAIT_NS, part));
            }
        } else if !status.is_do_not_retry() && ops.may_repeat(tag) {
            ops.events.requests_retried += 1;
            return self.parked.push_back(part);
        }
        let why = match status.is(Status::TRANSIENT_TRANSPORT_ERROR) {
            true => format!("data were damaged, or missing, when the controller ended the command ({status})"),
            false => format!("the controller answered {status}"),
        };
        ops.fail(tag, status.errno(), why);
    }

    /// Aborts commands without an answer for `timeout`; a quarter of it later, gives the association up.
    fn look_for_silence(&mut self, ops: &mut Ops, timeout: Duration) {
        let (now_ns, timeout_ns) = (ops.now_ns, timeout.as_nanos() as u64);
        let age = |op: &Op| now_ns.saturating_sub(op.since_ns);
        if !ops.table.iter().flatten().any(|op| age(op) >= timeout_ns) {
            return;
        }
        let mut must_reset = false;
        for (index, queue) in self.queues.iter().enumerate() {
            for (tag, command, _) in queue.outstanding_commands() {
                let Some(op) = ops.op(tag) else { continue };
                let age = age(op);
                must_reset |= age >= timeout_ns + timeout_ns / 4;
                if age >= timeout_ns && !std::mem::replace(&mut op.is_aborted, true) {
                    ops.events.timeouts += 1;
                    self.controller.abort(index as u16 + 1, command.cid);
                }
            }
        }
        if must_reset {
            let why = format!("a command had no answer for {} s", timeout.as_secs());
            if std::mem::replace(&mut self.was_silent, !self.has_progressed) && !self.has_progressed {
                return self.give_up(ops, libc::ETIMEDOUT, &format!("{why}, on two associations in turn"));
            }
            self.break_off(ops, Some(&Broken::Io(io::Error::new(io::ErrorKind::TimedOut, why))));
        }
    }

    /// Fails everything that is in flight, and all that comes.
    #[cold]
    fn give_up(&mut self, ops: &mut Ops, errno: i32, why: &str) {
        self.lost = Some(errno);
        let mut parts = self.close_queues();
        parts.extend(self.parked.drain(..));
        parts.extend(self.later.drain(..).map(|(_, part)| part));
        for part in parts {
            ops.fail(part.tag, errno, why.into());
        }
    }

    /// Looks whether the controller is back, or never will be: in that case the parked commands fail.
    fn renew(&mut self, ops: &mut Ops, wait: Duration) {
        if !self.queues.is_empty() || self.lost.is_some() {
            return;
        }
        match self.controller.renewed(wait) {
            None => {}
            Some(Renewal::Queues(generation, queues)) => {
                (self.generation, self.queues, self.has_progressed) = (generation, queues, false);
                let now_ns = monotonic_ns();
                ops.table.iter_mut().flatten().for_each(|op| op.since_ns = now_ns);
            }
            Some(Renewal::Lost(error)) => {
                let why = format!("{error}; the last connection ended so: {}", self.why);
                self.give_up(ops, error.errno, &why);
            }
        }
    }
}

impl Fabrics {
    fn new(setup: &Setup) -> Result<Fabrics, Error> {
        check(setup.job)?;
        let options = options::options(setup)?;
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
        Ok(Fabrics {
            remotes,
            files,
            ops: Ops {
                slots: Arc::clone(&setup.slots),
                table: (0..setup.slots.count()).map(|_| None).collect(),
                finished: VecDeque::with_capacity(depth),
                flushed: None,
                discards: is_on(setup.job, "discard_payload"),
                flush_repeats: 0,
                events: Disturbances::default(),
                failure: None,
                now_ns: monotonic_ns(),
            },
            queued: 0,
            unsent: 0,
            batch: (depth / 4).clamp(1, BATCH),
            in_flight: 0,
            depth,
            looking: Looking::new(poll_of(setup.job, Poll::Adaptive)),
            ended: Vec::with_capacity(depth),
            timeout: io_timeout(setup.job),
            look_at_ns: 0,
            reaps: 0,
            ends_by: None,
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
            self.ops.insert(Op::new(request, 1, 0, self.ops.now_ns));
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
        let mut op = Op::new(request, 1, len.into(), self.ops.now_ns);
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
        op.parts = count.div_ceil(most);
        op.left = op.parts;
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
            remote.send(&mut self.ops);
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
            remote.send(&mut self.ops);
        }
        has_come
    }

    /// Looks now and then for commands without an answer, and for the end of the patience with all of them.
    fn look_around(&mut self, now_ns: u64) {
        if now_ns < self.look_at_ns {
            return;
        }
        (self.look_at_ns, self.ops.now_ns) = (now_ns + NOTICE_NS, now_ns);
        if let Some(timeout) = self.timeout {
            for remote in &mut self.remotes {
                remote.look_for_silence(&mut self.ops, timeout);
            }
        }
        if let Some((until, patience)) = self.ends_by
            && now_ns >= until
        {
            let why =
                format!("{} requests had no answer {} s after the end of the run", self.in_flight, patience.as_secs());
            for remote in &mut self.remotes {
                remote.give_up(&mut self.ops, libc::ETIMEDOUT, &why);
            }
        }
    }

    /// Sleeps until there is something to do, for `timeout_ns` at most; false if nothing came: the caller looks around.
    fn wait(&mut self, timeout_ns: Option<u64>) -> bool {
        if let Some(remote) = self.remotes.iter_mut().find(|remote| remote.queues.is_empty() && remote.lost.is_none()) {
            let patience = timeout_ns.map_or(RENEWAL_WAIT, Duration::from_nanos).min(RENEWAL_WAIT);
            remote.renew(&mut self.ops, patience);
            return false;
        }
        if !self.remotes.iter_mut().all(|remote| remote.may_sleep(&mut self.ops)) {
            return true;
        }
        let mut fds = Vec::new();
        self.remotes.iter().flat_map(|remote| &remote.queues).for_each(|queue| queue.watch(&mut fds));
        // The sleep ends now and then, to notice a controller that is lost while its queues are silent.
        let timeout_ns = timeout_ns.unwrap_or(u64::MAX).min(NOTICE_NS);
        let timeout = Timespec { tv_sec: (timeout_ns / NS_PER_S) as i64, tv_nsec: (timeout_ns % NS_PER_S) as i64 };
        rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }
}

impl Engine for Fabrics {
    fn reason(&self, errno: i32) -> Option<String> {
        self.ops.failure.as_ref().filter(|(known, _)| *known == errno).map(|(_, why)| why.clone())
    }

    fn disturbances(&self) -> Disturbances {
        self.ops.events
    }

    fn abandon(&mut self, patience: Duration) {
        self.ends_by = Some((monotonic_ns().saturating_add(patience.as_nanos() as u64), patience));
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
        self.reaps += 1;
        if self.reaps >= REAPS_UNTIMED {
            self.reaps = 0;
            self.look_around(monotonic_ns());
        }
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
            self.look_around(now);
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

impl Storage for Fabrics {
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
        let file_remote = remote;
        let remote = &mut self.remotes[remote];
        if let Some(errno) = remote.lost {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let command = Command::new(opcode::io::FLUSH, nsid);
        remote.issue(Part { tag: FLUSH, command, transfer: Transfer::None }, &self.ops);
        self.ops.flush_repeats = 0;
        let patience = self.timeout.unwrap_or(Duration::MAX);
        let begin = std::time::Instant::now();
        loop {
            self.exchange(usize::MAX);
            if begin.elapsed() >= patience {
                self.remotes[file_remote].give_up(&mut self.ops, libc::ETIMEDOUT, "a Flush had no answer");
            }
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

fn refused(job: &Job, error: NvmeError) -> Error {
    Error::system(format!("job {}", job.name), "", error.into())
}
