//! The generator loop: draws ops, issues them at their time, reaps them, records.
//!
//! ```text
//!   ┌──────────────────────── until the work or the time is over ───────────────────────┐
//!   │ top up: draw ─► intended time ─► fill ─► queue (─► done: record)                   │
//!   │ submit every `batch` ops                                                           │
//!   │ reap: wait for `batch_complete_min`, for the next intended time, or for nothing    │
//!   └────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One thread runs the loop, without a lock, an allocation or a system call of its own per op. The loop reads the clock
//! once per op, once per submission and once per reaping call.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use job::Job;
use job::workload::{Op, OpKind};
use measure::Direction;
use measure::schema::Verified;
use sys::clock::{Clock, sleep_until_ns, spin_cycles};

use super::depth_goal::DepthGoal;
use super::flow::Share;
use super::logs::OpLogs;
use super::opened::Opened;
use super::priorities::Priorities;
use super::recorder::{Recorded, Recorder, Times};
use super::recording::Recording;
use super::seats::Seat;
use super::sources::verification_failed;
use super::statements::Statement;
use super::timing::{Minimum, Timing};
use super::traffic::{Next, Traffic};
use super::window::{Step, Window};
use super::zones::Placed;
use crate::engine::{Completion, Engine, Queued, Request, Slot, Slots};
use crate::files::is_full;
use crate::run::Phase;
use crate::{Error, ErrorKind};

/// An op that an engine has.
#[derive(Clone, Copy, Debug)]
struct Flight {
    op: Op,
    times: Times,
    /// Bytes already transferred by earlier, short parts.
    transferred: u32,
    /// I/O priority of the op; 0: that of the clone.
    priority: u16,
}

impl Flight {
    /// The flight at its end. A time of the end among the others in memory would make this copy wait for its store.
    #[inline]
    fn ended(&self, now: u64) -> Flight {
        Flight { times: Times { completed: now, ..self.times }, ..*self }
    }
}

/// Everything that one clone needs to generate its load, except the ops themselves.
pub(super) struct Gear<'a> {
    pub job: &'a Job,
    pub engine: Box<dyn Engine>,
    pub slots: Arc<Slots>,
    pub free: Vec<Slot>,
    pub opened: Opened<'a>,
    pub timing: Timing,
    pub share: Option<Share<'a>>,
    pub minimum: Option<Minimum>,
    pub recorder: Recorder,
    pub goal: Option<DepthGoal>,
    pub priorities: Option<Priorities>,
    pub logs: Option<Box<OpLogs>>,
    pub recording: Option<Recording>,
    pub clock: Clock,
    pub seat: Seat<'a>,
    pub stop_all: &'a AtomicU64,
    /// The place at which the runner asks for the numbers measured so far. None: the runner never asks.
    pub statement: Option<Statement<'a>>,
    /// Answers the runner's request for a statement.
    pub on_asked: &'a dyn Fn(Statement, Recorded, Option<Verified>),
    /// Called when the ramp is over and the measured part begins.
    pub on_measured: &'a mut dyn FnMut(),
    /// The most ops in flight at present: the slots, or the depth of the slice.
    pub depth: usize,
    /// The measurements of the window, once it is over (`job.time.window`).
    pub windowed: Option<Recorded>,
    /// Takes the depth and the measurements of each slice or turn, but not those of an unfinished one.
    pub on_slice: &'a dyn Fn(u32, Recorded),
}

/// The gear of a clone, and the traffic that it issues.
pub(super) struct Generator<'a, T> {
    pub gear: Gear<'a>,
    pub traffic: T,
}

/// The reason why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The source has no more ops: the work is done.
    Done,
    /// `runtime` is over.
    TimeOver,
    /// The clone was told to stop.
    Stopped,
}

/// The outcome of the step that fills up the queue.
enum TopUp {
    /// The queue is as full as it may be.
    Full,
    /// The next op is not due before this time.
    Wait(u64),
    /// Ops in flight must finish first.
    Drain,
    /// Nothing more is to be issued.
    End(End),
}

/// The progress of the loop.
struct State {
    flights: Vec<Flight>,
    /// Slots queued since the last submission, in order.
    unsubmitted: Vec<u32>,
    in_flight: usize,
    /// The window that is measured, of a job that has one.
    window: Option<Window>,
    /// The number of the slice or of the turn, of a job that has such.
    slice: usize,
    /// The time at which the turn ends; 0 while the job rests between two, and the greatest time without turns.
    turn_ends: u64,
    /// The time at which the present or the last rest began.
    rests_since: u64,
    /// The time from which on the window has to be looked at.
    look_at: u64,
    /// The time at which the queue became full, and the ops that were in flight then and still are.
    full_at: u64,
    first_generation: usize,
    /// An op that was drawn but is not due yet, with its intended time.
    pending: Option<(Op, u64)>,
    /// Requests that the engine had no room for: a new one, and the rests of short transfers.
    refused: Vec<Request>,
    /// Everything in flight must finish before the traffic is asked again; true: then a new pass begins.
    draining: Option<bool>,
    measuring_from: u64,
    /// Bytes to transfer before measuring begins (`ramp_size`).
    ramp_bytes: u64,
    ends_at: u64,
    end: Option<End>,
    publish_at: u64,
    now: u64,
}

/// The time that requests in flight get after the end of the work, as a device gets for a request.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// The time that requests in flight get after a signal: a person waits.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

impl State {
    /// Takes note of the end of an op that was created at that time.
    #[inline]
    fn leaves(&mut self, created: u64) {
        self.in_flight -= 1;
        if created <= self.full_at && self.first_generation > 0 {
            self.first_generation -= 1;
            if let (0, Some(window)) = (self.first_generation, &mut self.window) {
                window.settled(self.now);
            }
        }
    }
}

/// The time between two reports of a clone's progress to the runner.
const PUBLISH_NS: u64 = 50_000_000;

impl<T: Traffic> Generator<'_, T> {
    /// Gives the buffers of a job that writes their first content. Before the gate: it takes time.
    pub fn prepare(&mut self) {
        if self.gear.job.rw.directions.write {
            for slot in &mut self.gear.free {
                self.traffic.prepare(self.gear.slots.bytes_mut(slot));
            }
        }
    }

    /// Lets the engine wait for a peer, from `gate_ns` on. Returns the time from which the clone's clock runs.
    ///
    /// # Errors
    /// The engine cannot begin.
    pub fn begin(&mut self, gate_ns: u64) -> (u64, Result<(), Error>) {
        if !job::engines::find(&self.gear.job.engine).is_some_and(|engine| engine.to_peer) {
            return (gate_ns, Ok(()));
        }
        let (seat, stop_all) = (self.gear.seat, self.gear.stop_all);
        let is_stopped = || stop_all.load(Relaxed) != 0 || seat.is_stopped();
        let begun = self.gear.engine.begin(&is_stopped);
        let now = self.gear.clock.now_ns();
        self.gear.recorder.start(now);
        (now, begun.map_err(|error| engine_failed("connecting", self.gear.job, error)))
    }

    /// Issues ops from `start_ns` until the end; all requests have finished when it returns.
    ///
    /// # Errors
    /// The first failure that the job does not tolerate. The numbers that were recorded until then stay.
    pub fn run(&mut self, start_ns: u64) -> Result<End, Error> {
        let idle = Flight {
            op: Op { kind: OpKind::Sync, file: 0, offset: 0, len: 0 },
            times: Times::default(),
            transferred: 0,
            priority: 0,
        };
        let time = &self.gear.job.time;
        let window = self.window_of(0, start_ns, start_ns).or_else(|| {
            let measured = self.gear.job.time.window.zip(time.runtime_ns);
            measured.map(|(rule, runtime_ns)| Window::new(rule, start_ns, time.ramp_ns, runtime_ns))
        });
        let ends_by_itself = time.ramp_bytes > 0 || self.gear.job.iolog.threads.is_some() || window.is_some();
        let mut state = State {
            flights: vec![idle; self.gear.slots.count() as usize],
            unsubmitted: Vec::with_capacity(self.gear.slots.count() as usize),
            in_flight: 0,
            look_at: if window.is_some() { 0 } else { u64::MAX },
            full_at: 0,
            first_generation: 0,
            pending: None,
            refused: Vec::new(),
            draining: None,
            measuring_from: if ends_by_itself { u64::MAX } else { start_ns.saturating_add(time.ramp_ns) },
            ramp_bytes: time.ramp_bytes,
            ends_at: match time.runtime_ns {
                Some(runtime_ns) if window.is_none() => {
                    start_ns.saturating_add(time.ramp_ns).saturating_add(runtime_ns)
                }
                _ => u64::MAX,
            },
            window,
            slice: 0,
            turn_ends: if time.turns.is_empty() { u64::MAX } else { 0 },
            rests_since: start_ns,
            end: None,
            publish_at: 0,
            now: self.gear.clock.now_ns(),
        };
        self.gear.timing.start(start_ns);
        self.gear.recorder.start(start_ns);
        if self.gear.job.has_ramp() {
            self.gear.seat.enter(Phase::Ramp);
        } else {
            self.measured(start_ns);
        }
        let outcome = self.generate(&mut state);
        let backlog = self.backlog(&state);
        self.gear.recorder.ended(backlog, state.now);
        let drained = self.drain(&mut state);
        self.publish();
        outcome.and_then(|end| drained.map(|()| end))
    }

    fn generate(&mut self, state: &mut State) -> Result<End, Error> {
        let mut done: Vec<Completion> = Vec::with_capacity(self.gear.slots.count() as usize);
        loop {
            let top_up = self.top_up(state)?;
            self.submit(state)?;
            let wake = match top_up {
                TopUp::End(end) => return Ok(end),
                TopUp::Wait(at) => Some(at),
                TopUp::Full | TopUp::Drain => None,
            };
            if state.in_flight == 0 {
                if let Some(at) = wake {
                    self.idle_until(at, state)?;
                }
                continue;
            }
            let low = if matches!(top_up, TopUp::Full) { self.low_mark() } else { state.in_flight };
            loop {
                self.reap(state, wake, &mut done)?;
                // Refused ops do not finish before they are offered again.
                if state.in_flight <= low + state.refused.len() || state.end.is_some() || self.is_over(state) {
                    break;
                }
            }
        }
    }

    /// True if the clone was told to stop, or its time is over.
    #[inline]
    fn is_over(&self, state: &State) -> bool {
        state.now >= state.ends_at || self.gear.stop_all.load(Relaxed) != 0 || self.gear.seat.is_stopped()
    }

    /// Issues ops until the queue is full, the next is not due, or there is none.
    #[inline]
    fn top_up(&mut self, state: &mut State) -> Result<TopUp, Error> {
        loop {
            if self.gear.stop_all.load(Relaxed) != 0 || self.gear.seat.is_stopped() {
                return Ok(TopUp::End(End::Stopped));
            }
            if state.now >= state.measuring_from {
                self.end_ramp(state);
            }
            if state.now >= state.ends_at {
                return Ok(TopUp::End(End::TimeOver));
            }
            if state.now >= state.turn_ends
                && let Some(at) = self.rests_until(state)
            {
                return Ok(TopUp::Wait(at));
            }
            if let Some(end) = state.end {
                return Ok(TopUp::End(end));
            }
            if state.in_flight >= self.depth_limit() {
                return Ok(TopUp::Full);
            }
            if let Some(request) = state.refused.pop() {
                let still_refused = state.refused.len();
                self.hand_over(request, state)?;
                if state.refused.len() > still_refused {
                    return Ok(TopUp::Full);
                }
                continue;
            }
            if let Some(new_pass) = state.draining {
                if state.in_flight > 0 {
                    return Ok(TopUp::Drain);
                }
                state.draining = None;
                if new_pass {
                    if self.gear.job.syncs.at_end() {
                        self.gear.opened.sync_all(&mut *self.gear.engine)?;
                    }
                    self.gear.opened.next_pass(&mut *self.gear.engine)?;
                    self.traffic.begin_pass();
                }
            }
            if state.pending.is_none()
                && !self.traffic.is_verifying()
                && let Some(wait_ns) = self.gear.share.as_mut().and_then(Share::take)
            {
                state.now = self.gear.clock.now_ns();
                return Ok(TopUp::Wait((state.now + wait_ns).min(state.ends_at)));
            }
            let wanted = self.gear.timing.wanted(state.now);
            let at_once = if state.pending.is_none() { self.traffic.next_at_once(wanted) } else { None };
            let (op, due) = match (at_once, state.pending.take()) {
                (Some(op), _) => (op, self.gear.timing.due(&op)),
                (None, Some(pending)) => pending,
                (None, None) => match self.drawn(state.now, wanted) {
                    Next::Op(op) => (op, self.gear.timing.due(&op)),
                    Next::At(after_ns, op) => (op, self.gear.timing.started_at() + after_ns),
                    next @ (Next::Drain | Next::Pass) => {
                        state.draining = Some(next == Next::Pass);
                        continue;
                    }
                    Next::Until(after_ns) => {
                        let at = self.gear.timing.started_at() + after_ns;
                        state.now = self.gear.clock.now_ns();
                        if at <= state.now {
                            continue;
                        }
                        return Ok(TopUp::Wait(at.min(state.ends_at)));
                    }
                    Next::Wait => return Ok(TopUp::Drain),
                    Next::EndRamp => {
                        state.now = self.gear.clock.now_ns();
                        self.end_ramp(state);
                        continue;
                    }
                    Next::End => return Ok(TopUp::End(End::Done)),
                },
            };
            if due > state.now {
                state.now = self.gear.clock.now_ns();
                if due > state.now {
                    state.pending = Some((op, due));
                    return Ok(TopUp::Wait(due.min(state.ends_at).min(state.turn_ends)));
                }
            }
            let (op, resets) = match if self.traffic.is_zoned() { self.traffic.place(op)? } else { Placed::Op(op) } {
                Placed::Op(op) => (op, false),
                Placed::Reset(op) => (op, true),
                // Its zone is busy: the op is offered again.
                placed @ (Placed::Wait | Placed::Later) => {
                    state.pending = Some((op, due));
                    const LOOK_AGAIN_NS: u64 = 20_000;
                    state.now = self.gear.clock.now_ns();
                    return Ok(match placed {
                        Placed::Wait => TopUp::Drain,
                        _ => TopUp::Wait((state.now + LOOK_AGAIN_NS).min(state.ends_at)),
                    });
                }
                Placed::Redraw | Placed::Over => continue,
            };
            self.issue(op, due, resets, state)?;
        }
    }

    /// The next step; reading back is timed apart from the workload.
    #[inline]
    fn drawn(&mut self, now: u64, wanted: Option<Direction>) -> Next {
        self.traffic.look_at_clock(now.saturating_sub(self.gear.timing.started_at()));
        let next = self.traffic.next(wanted);
        if self.traffic.is_verifying() != self.gear.recorder.is_verifying() {
            self.gear.recorder.switch(now);
        }
        next
    }

    #[inline]
    fn issue(&mut self, op: Op, due: u64, resets: bool, state: &mut State) -> Result<(), Error> {
        let Some(mut slot) = self.gear.free.pop() else {
            return Err(internal("more ops in flight than buffers"));
        };
        if op.kind == OpKind::Io(Direction::Write) {
            let index = slot.index();
            self.traffic.fill(&op, index, &mut self.gear.slots.bytes_mut(&mut slot)[..op.len as usize]);
        }
        self.gear.opened.before(op.file, &mut *self.gear.engine)?;
        state.now = self.gear.clock.now_ns();
        // Without an open-loop rate an op is intended for the moment at which it is created.
        let intended = if due == 0 { state.now } else { due };
        let priority = match (&mut self.gear.priorities, op.kind) {
            (Some(priorities), OpKind::Io(direction)) => priorities.draw(direction, op.len),
            _ => 0,
        };
        let index = slot.index() as usize;
        state.flights[index] = Flight {
            op,
            times: Times { intended, created: state.now, submitted: state.now, completed: 0 },
            transferred: 0,
            priority,
        };
        self.gear.recorder.passed(state.now, state.in_flight);
        state.in_flight += 1;
        self.gear.recorder.issued(state.in_flight);
        self.gear.timing.issued(state.now);
        self.traffic.issued(&op, slot.index());
        if let Some(recording) = &mut self.gear.recording {
            recording.op(&op, state.now.saturating_sub(self.gear.timing.started_at()));
        }
        if resets {
            let result = self.traffic.reset_zone(slot.index());
            let result =
                result.map_or_else(|error| -i64::from(error.raw_os_error().unwrap_or(libc::EIO)), |()| op.len as i64);
            return self.conclude(Completion { slot, result }, state);
        }
        let (kind, file, offset, len) = (op.kind, op.file, op.offset, op.len as u32);
        let request = Request { slot, kind, file, offset, len, skip: 0, priority };
        self.hand_over(request, state)
    }

    #[inline]
    fn hand_over(&mut self, request: Request, state: &mut State) -> Result<(), Error> {
        let index = request.slot.index();
        match self.gear.engine.queue(request) {
            Queued::Later => {
                state.unsubmitted.push(index);
                if state.unsubmitted.len() >= self.gear.job.queue.batch as usize {
                    self.submit(state)?;
                }
                Ok(())
            }
            Queued::Done(completion) => self.conclude(completion, state),
            Queued::Full(request) => {
                state.refused.push(request);
                self.submit(state)
            }
        }
    }

    /// Takes the end of an op that ended as it was issued.
    #[inline]
    fn conclude(&mut self, completion: Completion, state: &mut State) -> Result<(), Error> {
        state.now = self.gear.clock.now_ns();
        self.gear.recorder.passed(state.now, state.in_flight);
        if state.now >= state.look_at {
            self.look_at_window(state, true);
        }
        self.gear.recorder.submitted(1);
        self.gear.recorder.reaped(1);
        self.complete(completion, state)?;
        self.look_around(state)
    }

    /// Hands the queued ops to the engine, and notes when the engine took them.
    #[inline]
    fn submit(&mut self, state: &mut State) -> Result<(), Error> {
        if state.unsubmitted.is_empty() {
            return Ok(());
        }
        let taken = self.gear.engine.submit().map_err(|error| engine_failed("submitting to", self.gear.job, error))?;
        let taken = taken.min(state.unsubmitted.len());
        if taken > 0 {
            state.now = self.gear.clock.now_ns();
            for index in state.unsubmitted.drain(..taken) {
                state.flights[index as usize].times.submitted = state.now;
            }
            self.gear.recorder.submitted(taken);
        }
        Ok(())
    }

    /// Takes finished ops: waits for the batch that the job asks for, or only until `wake`.
    #[inline]
    fn reap(&mut self, state: &mut State, wake: Option<u64>, done: &mut Vec<Completion>) -> Result<(), Error> {
        let queue = &self.gear.job.queue;
        let (min, timeout_ns) = match wake {
            // An arrival is due: completions that come meanwhile are taken, but the queue is not drained for the
            // arrival.
            Some(at) => (1, Some(at.saturating_sub(state.now))),
            None => ((queue.batch_complete_min as usize).min(state.in_flight), None),
        };
        // Ops that the engine has not taken yet cannot finish: never wait for them.
        let min = min.min(state.in_flight - state.unsubmitted.len() - state.refused.len());
        let max = (queue.batch_complete_max as usize).max(min).max(1);
        let before = done.len();
        self.gear
            .engine
            .reap(min, max, timeout_ns, done)
            .map_err(|error| engine_failed("reaping from", self.gear.job, error))?;
        state.now = self.gear.clock.now_ns();
        self.gear.recorder.passed(state.now, state.in_flight);
        if state.now >= state.look_at {
            self.look_at_window(state, done.len() > before);
        }
        self.gear.recorder.reaped(done.len() - before);
        // Take every completion, even after one that failed: a completion that is lost here would be waited for at the
        // end, forever.
        let mut outcome = Ok(());
        for completion in done.drain(..) {
            let completed = self.complete(completion, state);
            outcome = outcome.and(completed);
        }
        outcome?;
        self.look_around(state)?;
        // An op that the kernel was too busy to take is offered again before the next wait.
        self.submit(state)
    }

    #[inline]
    fn complete(&mut self, completion: Completion, state: &mut State) -> Result<(), Error> {
        let index = completion.slot.index() as usize;
        let flight = &mut state.flights[index];
        let wanted = flight.op.len - u64::from(flight.transferred);
        match (flight.op.kind, completion.result) {
            (OpKind::Io(direction), bytes) if bytes >= 0 && bytes as u64 == wanted => {
                let flight = flight.ended(state.now);
                state.leaves(flight.times.created);
                self.landed(direction, &flight, completion.slot, state)
            }
            (OpKind::Io(direction), bytes) if bytes > 0 => {
                // Short: the rest is asked for, as the same op.
                flight.transferred += bytes as u32;
                let skip = flight.transferred;
                let op = flight.op;
                self.gear.recorder.continued(direction);
                let rest = Request {
                    slot: completion.slot,
                    kind: op.kind,
                    file: op.file,
                    offset: op.offset + u64::from(skip),
                    len: op.len as u32 - skip,
                    skip,
                    priority: flight.priority,
                };
                self.hand_over(rest, state)
            }
            (OpKind::Io(Direction::Read), 0) if self.end_of_file_is_short(completion.slot.index()) => {
                if flight.transferred == 0 {
                    self.gear.recorder.short(Direction::Read);
                }
                self.landed_short(Direction::Read, completion.slot, state)
            }
            (OpKind::Io(direction), Completion::COMPLETE) => self.landed_short(direction, completion.slot, state),
            (OpKind::Io(direction), Completion::ENDED) => {
                state.end.get_or_insert(End::Done);
                if flight.transferred > 0 {
                    return self.landed_short(direction, completion.slot, state);
                }
                let Flight { op, times, .. } = *flight;
                self.gear.recorder.withdrawn(state.in_flight);
                state.leaves(times.created);
                self.gear.opened.after(op.file);
                self.traffic.lost(completion.slot.index());
                self.gear.free.push(completion.slot);
                Ok(())
            }
            (OpKind::Io(direction), result) => {
                let Flight { op, times, .. } = *flight;
                state.leaves(times.created);
                self.gear.opened.after(op.file);
                self.traffic.lost(completion.slot.index());
                self.gear.free.push(completion.slot);
                self.failed(direction, &op, result, state)
            }
            (_, result) => {
                let Flight { op, times, .. } = flight.ended(state.now);
                state.leaves(times.created);
                self.gear.opened.after(op.file);
                self.traffic.synced(&op, completion.slot.index(), result >= 0);
                self.gear.free.push(completion.slot);
                self.gear.recorder.synced(&times);
                if result < 0 { self.failed(Direction::Write, &op, result, state) } else { Ok(()) }
            }
        }
    }

    /// True if the read in this slot, which met the end of its file, is a short op and not a failure. As in fio, it is
    /// one with asynchronous engines; where a read checks data, missing data are a failure.
    #[cold]
    fn end_of_file_is_short(&self, slot: u32) -> bool {
        let synchronous = job::engines::find(&self.gear.job.engine).is_some_and(|engine| engine.synchronous);
        (!synchronous || self.gear.job.queue.offload) && !self.traffic.checks(slot)
    }

    /// An op that ends with fewer bytes than it asked for.
    #[cold]
    fn landed_short(&mut self, direction: Direction, slot: Slot, state: &mut State) -> Result<(), Error> {
        let mut flight = state.flights[slot.index() as usize].ended(state.now);
        flight.op.len = u64::from(flight.transferred);
        state.leaves(flight.times.created);
        self.landed(direction, &flight, slot, state)
    }

    #[inline]
    fn landed(
        &mut self,
        direction: Direction,
        flight: &Flight,
        mut slot: Slot,
        state: &mut State,
    ) -> Result<(), Error> {
        let Flight { op, times, .. } = flight;
        self.gear.recorder.transferred(direction, op.len, times, flight.priority);
        self.gear.timing.completed(state.now, times.completed - times.created);
        if state.ramp_bytes > 0 {
            state.ramp_bytes = state.ramp_bytes.saturating_sub(op.len);
            state.measuring_from = if state.ramp_bytes == 0 { state.now } else { u64::MAX };
        }
        if self.gear.job.rate.think_cycles > 0 {
            spin_cycles(self.gear.job.rate.think_cycles);
            state.now = self.gear.clock.now_ns();
        }
        self.gear.opened.after(op.file);
        if let Some(logs) = &mut self.gear.logs {
            logs.completed(direction, op, times, flight.priority);
        }
        let index = slot.index();
        let landed = match direction {
            Direction::Trim => self.traffic.landed(op, index, &mut []),
            _ => self.traffic.landed(op, index, &mut self.gear.slots.bytes_mut(&mut slot)[..op.len as usize]),
        };
        self.gear.free.push(slot);
        if let Some(goal) = &mut self.gear.goal
            && goal.completed(times.created, times.completed)
        {
            state.end = Some(End::Done);
        }
        let latency = times.completed - times.created;
        if let Some(limit) = self.gear.job.errors.max_latency_ns[direction].filter(|&limit| latency > limit) {
            return Err(self.too_slow(op, latency, limit));
        }
        match landed {
            Ok(()) => Ok(()),
            Err(_) if self.gear.job.errors.continue_verify && !self.ends_at_mismatch() => {
                self.gear.recorder.failed(direction, libc::EILSEQ);
                Ok(())
            }
            Err(mismatch) => Err(verification_failed(&mismatch, self.gear.opened.name(mismatch.file))),
        }
    }

    /// True if the first mismatch ends the job, also one that tolerates errors (`verify_fatal`).
    fn ends_at_mismatch(&self) -> bool {
        self.gear.job.verify.as_ref().is_some_and(|verify| verify.fatal)
    }

    #[cold]
    fn failed(&mut self, direction: Direction, op: &Op, result: i64, state: &mut State) -> Result<(), Error> {
        // Nothing transferred where something was asked: the end of the file (read) or of the device (write).
        let errno = if result < 0 { -result as i32 } else { libc::EIO };
        if self.gear.job.extent.fill && direction == Direction::Write && is_full(errno) {
            // An op that was drawn before waits in `pending`: if it is a write, it meets the same end.
            if !self.traffic.is_full() {
                state.end = Some(End::Done);
            }
            return Ok(());
        }
        if self.gear.job.errors.tolerates(direction, errno) {
            self.gear.recorder.failed(direction, errno);
            return Ok(());
        }
        let what = match op.kind {
            OpKind::Io(direction) => direction.name(),
            OpKind::Sync => "fsync",
            OpKind::DataSync => "fdatasync",
            OpKind::SyncRange => "sync_file_range",
        };
        let hint = match errno {
            _ if result == 0 => "no byte was transferred: the file or device ends before this offset",
            libc::EINVAL if self.gear.job.files.direct => {
                "with direct=1 the block size, the offset and the buffers must be multiples of the logical block size"
            }
            libc::ENOSPC => "no space left: make size= smaller, or use fill_device=1 to stop here",
            libc::EBADF | libc::EROFS => "the file is not open for this, or the file system is read-only",
            _ => "",
        };
        let place = format!("of {} bytes at offset {} of {}", op.len, op.offset, self.gear.opened.name(op.file));
        let reason = self.gear.engine.reason(errno);
        let hint = reason.as_deref().unwrap_or(hint);
        Err(Error::system(what, place, std::io::Error::from_raw_os_error(errno)).hint(hint))
    }

    #[cold]
    fn too_slow(&self, op: &Op, latency: u64, limit: u64) -> Error {
        let place = format!("at offset {} of {}", op.offset, self.gear.opened.name(op.file));
        let late = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
        let hint = format!("it took {latency} ns, max_latency allows {limit} ns");
        Error::system("an op was slower than max_latency", place, late).hint(hint)
    }

    /// Closes intervals; now and then publishes the counters and checks the rates that must be reached.
    #[inline]
    fn look_around(&mut self, state: &mut State) -> Result<(), Error> {
        if let Some(logs) = &mut self.gear.logs {
            logs.tick(state.now);
        }
        self.gear.recorder.tick(state.now);
        if state.now < state.publish_at {
            return Ok(());
        }
        state.publish_at = state.now + PUBLISH_NS;
        self.publish();
        if let Some(statement) = self.gear.statement
            && statement.is_awaited()
        {
            self.state_so_far(statement, state.now);
        }
        let Some(minimum) = &mut self.gear.minimum else {
            return Ok(());
        };
        if self.traffic.is_verifying() {
            minimum.interrupt();
            return Ok(());
        }
        let (ops, bytes, _) = self.gear.recorder.counters();
        match minimum.missed(state.now, &ops, &bytes) {
            None => Ok(()),
            Some(missed) => {
                let late = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
                Err(Error::system("the least rate is missed:", missed, late))
            }
        }
    }

    #[cold]
    fn state_so_far(&self, statement: Statement, now: u64) {
        (self.gear.on_asked)(statement, self.gear.recorder.clone().finish(now), self.traffic.verified());
    }

    /// The ops that have arrived and are not finished: in flight, or due and not issued.
    fn backlog(&self, state: &State) -> f64 {
        let held = state.pending.is_some_and(|(_, due)| due <= state.now);
        state.in_flight as f64 + f64::from(u8::from(held)) + self.gear.timing.overdue(state.now)
    }

    fn publish(&mut self) {
        let (ops, bytes, lat_sum_ns) = self.gear.recorder.counters();
        self.gear.seat.publish(&ops, &bytes, lat_sum_ns, self.traffic.done_millionths());
        if self.traffic.is_verifying() {
            self.gear.seat.enter(Phase::Verify);
        }
    }

    fn end_ramp(&mut self, state: &mut State) {
        state.measuring_from = u64::MAX;
        if self.gear.job.has_ramp() {
            self.gear.recorder.disturbed(self.gear.engine.disturbances());
            self.gear.recorder.end_ramp(state.now);
            let backlog = self.backlog(state);
            self.gear.recorder.began(backlog);
            // The runtime counts from the end of the ramp as it really was.
            if let Some(runtime) = self.gear.job.time.runtime_ns {
                state.ends_at = state.now.saturating_add(runtime);
            }
            self.measured(state.now);
        }
    }

    /// Opens the window that is measured, or closes it, when its time has come.
    #[cold]
    fn look_at_window(&mut self, state: &mut State, completed: bool) {
        let queue = state.in_flight.cmp(&self.depth_limit());
        let Some(window) = &mut state.window else { return };
        let mut opened = false;
        let recorder = &self.gear.recorder;
        match window.step(state.now, queue, completed, |end| recorder.so_far(end, state.in_flight)) {
            Step::Stay => {}
            Step::Full => (state.full_at, state.first_generation) = (state.now, state.in_flight),
            Step::Opens(at) => {
                opened = true;
                self.gear.recorder.disturbed(self.gear.engine.disturbances());
                match self.is_in_parts() {
                    true => self.gear.recorder.start(at),
                    false => self.gear.recorder.end_ramp(at),
                }
                self.gear.recorder.passed(state.now, state.in_flight);
                self.measured(at);
            }
            Step::Closes(at) => {
                self.gear.recorder.disturbed(self.gear.engine.disturbances());
                let recorded = self.gear.recorder.clone().finish_window(at, state.in_flight);
                let start_ns = self.gear.timing.started_at();
                match self.is_in_parts() {
                    true => {
                        (self.gear.on_slice)(self.gear.depth as u32, recorded);
                        state.slice += 1;
                    }
                    false => self.gear.windowed = Some(recorded),
                }
                state.first_generation = 0;
                match self.window_of(state.slice, start_ns, state.now) {
                    Some(next) => state.window = Some(next),
                    None => state.end = Some(End::TimeOver),
                }
            }
        }
        state.look_at = match &state.window {
            Some(window) if state.end.is_none() => window.look_at(),
            _ => u64::MAX,
        };
        // The first completion of a turn may come after its end.
        if opened && state.now >= state.look_at {
            self.look_at_window(state, completed);
        }
    }

    /// True if the run has slices or turns, each with a window of its own.
    fn is_in_parts(&self) -> bool {
        let time = &self.gear.job.time;
        !time.slices.is_empty() || !time.turns.is_empty()
    }

    /// The window of a slice that begins `now`, at whose depth the job goes on, or of a turn; None behind the last one.
    fn window_of(&mut self, number: usize, start_ns: u64, now: u64) -> Option<Window> {
        let time = &self.gear.job.time;
        if let Some(turn) = time.turns.get(number) {
            return Some(Window::of_turn(turn, start_ns));
        }
        let slice = time.slices.get(number)?;
        self.gear.depth = slice.depth as usize;
        Some(Window::of_slice(slice, now, time.ramp_ns))
    }

    /// The time until which the job rests; None: its turn has come, or it has had its last one.
    #[cold]
    fn rests_until(&mut self, state: &mut State) -> Option<u64> {
        state.now = self.gear.clock.now_ns();
        if state.turn_ends > 0 {
            state.rests_since = state.turn_ends;
        }
        state.turn_ends = 0;
        // Nothing may have completed since the window had to be opened, or closed.
        while state.now >= state.look_at {
            self.look_at_window(state, false);
        }
        let start_ns = self.gear.timing.started_at();
        let turn = self.gear.job.time.turns.get(state.slice)?;
        let from = start_ns + turn.from_ns;
        if state.now < from {
            return Some(from);
        }
        let rested = from - state.rests_since;
        self.gear.timing.rested(rested);
        if let Some((_, due)) = &mut state.pending {
            *due += rested;
        }
        state.turn_ends = start_ns + turn.until_ns;
        None
    }

    fn measured(&mut self, now: u64) {
        if let Some(logs) = &mut self.gear.logs {
            logs.start(now);
        }
        self.gear.seat.enter(Phase::Run);
        (self.gear.on_measured)();
    }

    /// Waits for everything that is in flight. Failures do not stop it: buffers must come home.
    fn drain(&mut self, state: &mut State) -> Result<(), Error> {
        let mut done = Vec::new();
        let mut first_failure = Ok(());
        self.forget_refused(state);
        let is_stopped = self.gear.stop_all.load(Relaxed) != 0 || self.gear.seat.is_stopped();
        self.gear.engine.abandon(if is_stopped { STOP_PATIENCE } else { END_PATIENCE });
        while state.in_flight > 0 {
            self.submit(state)?;
            let min = usize::from(state.unsubmitted.len() < state.in_flight);
            let reaped = self.gear.engine.reap(min, usize::MAX, None, &mut done);
            reaped.map_err(|error| engine_failed("reaping from", self.gear.job, error))?;
            state.now = self.gear.clock.now_ns();
            self.gear.recorder.passed(state.now, state.in_flight);
            for completion in done.drain(..) {
                let outcome = self.complete(completion, state);
                first_failure = first_failure.and(outcome);
            }
            self.forget_refused(state);
        }
        first_failure
    }

    /// Drops the requests that no engine has, at the end.
    fn forget_refused(&mut self, state: &mut State) {
        for request in state.refused.drain(..) {
            state.in_flight -= 1;
            self.gear.free.push(request.slot);
        }
    }

    /// Sleeps until the next op is due, but never past the end, and in slices: a stop must be noticed.
    fn idle_until(&mut self, at: u64, state: &mut State) -> Result<(), Error> {
        const SLICE_NS: u64 = 50_000_000;
        let until = at.min(state.ends_at);
        while self.gear.clock.now_ns() < until.min(self.gear.timing.spin_until()) {
            std::hint::spin_loop();
        }
        sleep_until_ns(until.min(state.now + SLICE_NS));
        state.now = self.gear.clock.now_ns();
        self.look_around(state)
    }

    #[inline]
    fn depth_limit(&self) -> usize {
        match &self.gear.goal {
            Some(goal) => goal.depth(),
            None => self.gear.depth,
        }
    }

    /// The depth to which a full queue is reaped before it is filled again.
    #[inline]
    fn low_mark(&self) -> usize {
        let limit = self.depth_limit();
        // Fewer than the limit must be in flight, or nothing could be issued.
        (self.gear.job.queue.low as usize).min(limit.saturating_sub(1))
    }
}

/// The failure of an engine as a whole, which ends the job.
pub(super) fn engine_failed(doing: &str, job: &Job, error: std::io::Error) -> Error {
    Error::system(format!("{doing} the {} engine failed", job.engine), format!("in job {}", job.name), error)
}

fn internal(what: &str) -> Error {
    Error { kind: ErrorKind::Internal, what: what.into(), place: String::new(), hint: String::new(), source: None }
}
