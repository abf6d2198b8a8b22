//! One thread's life: set-up, then phase after phase through the gates, then its report, then the clean-up.

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use job::workload::permutation::Permutation;
use job::workload::random::{Random, mix};
use measure::Histogram;
use measure::OverTime;
use measure::schema::{CpuUsage, JobError, OperationResult, PhaseResult, ThreadResult, Verified, Work};
use sys::clock::{Clock, monotonic_ns, realtime_ns, sleep_until_ns};

use super::content::Content;
use super::failure::Failure;
use super::files::{Files, LONGEST_SLEEP_NS};
use super::fs::FileSystem;
use super::gates::{Gates, LEFT, Stop};
use super::operation::{Operation, Population, Walk};
use super::plan::{Phase, Plan};
use super::tally::Tally;
use super::times::Times;
use crate::machine::cpu_usage;

/// The instructions of one thread.
#[derive(Clone, Copy)]
pub(super) struct Orders<'a> {
    pub plan: &'a Plan,
    pub gates: &'a Gates,
    pub content: &'a Content,
    /// The contents of the files of [`Plan::abroad`].
    pub content_abroad: &'a Content,
    pub clock: Clock,
    pub process: u32,
    /// The thread's number among all threads of the run: its seat at the gates. [`Plan::number_of`] gives the number in
    /// names.
    pub thread: u32,
}

/// The report of one thread.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Report {
    /// The results of the phases that the thread began.
    pub phases: Vec<PhaseResult>,
    /// The first failure of the thread.
    pub error: Option<JobError>,
}

/// The place where the threads of one process leave their reports, before any of them cleans up.
pub(super) struct Desk<'a> {
    reports: Mutex<Vec<Report>>,
    threads: usize,
    /// In a child process: the file that its parent reads all reports from.
    file: Option<&'a File>,
}

impl<'a> Desk<'a> {
    pub fn new(threads: u32, file: Option<&'a File>) -> Desk<'a> {
        Desk { reports: Mutex::default(), threads: threads as usize, file }
    }

    fn leave(&self, report: Report) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.push(report);
        if let Some(mut file) = self.file.filter(|_| reports.len() == self.threads) {
            let bytes = serde_json::to_vec(&*reports).unwrap_or_default();
            let _ = file.write_all(&bytes); // a file that cannot be read is an error of the parent's
        }
    }

    /// The reports of all threads; None if a thread has left none.
    pub fn take(&self) -> Option<Vec<Report>> {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        (reports.len() == self.threads).then(|| std::mem::take(&mut *reports))
    }
}

/// A thread's seat at the gates. Dropping it marks the thread as gone, however the thread ends, so that nobody waits
/// for it.
struct Seat<'a>(&'a Gates, usize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Stop::Failed);
        }
        self.0.reach(self.1, LEFT);
    }
}

/// The whole life of a thread, which leaves its report at the desk; returns the failure of its clean-up.
pub(super) fn run(orders: Orders, fs: &dyn FileSystem, desk: &Desk) -> Option<JobError> {
    let seat = Seat(orders.gates, orders.thread as usize);
    sys::clock::precise_timers();
    let mut report = Report::default();
    let stopped = || orders.gates.stopped() != Stop::No;
    let tally = Tally::new(orders.clock, orders.plan.latency);
    let others = |worker: u32| orders.gates.holdings(worker as usize);
    let files =
        Files::new(orders.plan, fs, orders.content, orders.plan.number_of(orders.thread), tally, &stopped, &others);
    let mut worker = match files {
        Ok(files) => Worker { orders, files, sure: [false; 4] },
        Err(error) => {
            report.error = Some(JobError { errno: error.errno(), message: error.to_string() });
            orders.gates.stop(Stop::Failed);
            desk.leave(report);
            return None;
        }
    };
    if let Err(failure) = worker.prepare() {
        report.error.get_or_insert(worker.give_up(&failure));
    }
    for (index, phase) in orders.plan.phases.iter().enumerate() {
        worker.declare(phase);
        let Some(start_ns) = worker.wait(index as u64, index) else { break };
        worker.turn(phase);
        let (result, error) = worker.phase(index, phase, start_ns);
        report.phases.push(result);
        report.error = report.error.or(error);
    }
    desk.leave(report);
    let failed = match orders.plan.cleanup {
        true => worker.clean_up(),
        false => {
            worker.remove_empty_directories();
            None
        }
    };
    drop(seat);
    failed
}

struct Worker<'a> {
    orders: Orders<'a>,
    files: Files<'a>,
    /// For each population, true if its numbers are known: this run made the objects, or assumes that they are there.
    sure: [bool; 4],
}

/// The numbers of a population that a single operation goes over.
struct Span {
    first: u64,
    end: u64,
}

impl<'a> Worker<'a> {
    fn prepare(&mut self) -> Result<(), Failure> {
        let plan = self.orders.plan;
        match plan.needs_directories() {
            true => self.files.make_directories(),
            false => Ok(()),
        }
    }

    fn give_up(&self, failure: &Failure) -> JobError {
        self.orders.gates.stop(Stop::Failed);
        let (errno, message) = self.files.explain(failure);
        JobError { errno, message }
    }

    /// Removes what this thread has made, once the figures of all threads are handed over: whoever ends the program now
    /// leaves files behind, but loses no result. Returns the first failure.
    fn clean_up(&mut self) -> Option<JobError> {
        let Orders { plan, gates, thread, .. } = self.orders;
        let last = plan.phases.len() as u64 + 1;
        self.publish();
        gates.reach(thread as usize, last);
        while !gates.may_clean_up() {
            std::thread::sleep(std::time::Duration::from_nanos(gates.poll_ns()));
        }
        self.turn_back();
        let (removed, stay) = self.files.remove_made();
        // Others may still have files in directories that are shared.
        self.meet(last + 1);
        let failure = removed.and(self.files.remove_directories(false)).err()?;
        let (errno, message) = self.files.explain(&failure);
        let more = if stay > 1 { format!("; {stay} files of thread {thread} stay") } else { String::new() };
        Some(JobError { errno, message: format!("clean-up: {message}{more}") })
    }

    /// Removes the directories that this run made, if nothing that it made is left: nobody wants them then. Other hosts
    /// may still work in directories that they share, so that a run on many hosts leaves its directories alone. Those
    /// that `make-tree` makes wait for `remove-tree`.
    fn remove_empty_directories(&mut self) {
        let Orders { plan, .. } = self.orders;
        if plan.among.is_some() || plan.abroad.is_some() || plan.does(Operation::MakeTree) {
            return;
        }
        self.publish();
        // A thread may still create files in directories that are shared.
        self.meet(plan.phases.len() as u64 + 1);
        self.turn_back();
        if self.files.holdings().ranges.iter().all(|(first, end)| first >= end) {
            // A directory that cannot be removed stays: the user did not ask for its removal.
            let _ = self.files.remove_directories(false);
        }
    }

    /// Publishes the objects that this thread has, for threads that list directories of all threads.
    fn declare(&mut self, phase: &Phase) {
        let lists = phase.operations.iter().any(|(operation, _)| operation.row().walk == Walk::Directories);
        // A run that does nothing but list assumes that the files of an earlier run are there.
        if lists && self.orders.plan.verify && !self.sure.contains(&true) {
            self.files.assume(Population::Files);
            self.sure[Population::Files as usize] = true;
        }
        self.publish();
    }

    /// Publishes the objects that the thread has whose objects this thread worked on. A thread that worked on those of
    /// another rank speaks for itself: all ranks do the same, and so its own have the same numbers.
    fn publish(&self) {
        let Orders { plan, gates, thread, .. } = self.orders;
        let seat = if plan.abroad.is_some() { thread } else { self.files.owner() - plan.number_of(0) };
        gates.publish_holdings(seat as usize, &self.files.holdings());
    }

    /// Turns to the objects that a phase works on: this thread's own, or those of its neighbour. All threads have
    /// published what there is.
    fn turn(&mut self, phase: &Phase) {
        let Orders { plan, thread, content_abroad, .. } = self.orders;
        let shifts = phase.only().is_some_and(|operation| {
            matches!(operation.row().walk, Walk::Uses(_) | Walk::Takes(_) | Walk::Directories)
        });
        match &plan.abroad {
            Some(abroad) if shifts => {
                let base = &abroad.bases[thread as usize % abroad.bases.len()];
                let number = (plan.number_of(thread) + abroad.threads_on) % plan.sharers();
                self.files.turn_to(number, base, abroad.seed, content_abroad, None);
            }
            None if shifts && plan.neighbour > 0 => {
                self.turn_to_thread(
                    ((u64::from(thread) + u64::from(plan.neighbour)) % u64::from(plan.workers())) as u32,
                );
            }
            _ => self.turn_back(),
        }
    }

    fn turn_back(&mut self) {
        let Orders { plan, thread, content, .. } = self.orders;
        match &plan.abroad {
            Some(_) => {
                let base = plan.layout.base_of(thread);
                self.files.turn_to(plan.number_of(thread), base, plan.seed, content, None);
            }
            None => self.turn_to_thread(thread),
        }
    }

    fn turn_to_thread(&mut self, worker: u32) {
        let Orders { plan, gates, content, .. } = self.orders;
        let owner = plan.number_of(worker);
        if owner != self.files.owner() {
            let holdings = gates.holdings(worker as usize);
            self.files.turn_to(owner, plan.layout.base_of(worker), plan.seed, content, Some(holdings));
        }
    }

    /// Waits until all threads have come this far or left.
    fn meet(&self, gate: u64) {
        let Orders { gates, thread, .. } = self.orders;
        gates.reach(thread as usize, gate);
        while !gates.have_reached(gate) {
            std::thread::sleep(std::time::Duration::from_nanos(gates.poll_ns()));
        }
    }

    /// Waits at a gate; returns the time at which the phase begins, which is near, or None if the run ends before the
    /// gate opens.
    fn wait(&self, gate: u64, phase: usize) -> Option<u64> {
        let Orders { gates, thread, .. } = self.orders;
        gates.reach(thread as usize, gate + 1);
        loop {
            // An open gate comes before the wish to stop: either all threads pass it, or none. Neighbours would
            // disagree otherwise about whose files each of them has.
            match gates.gate(phase) {
                Some(at_ns) => return Some(at_ns),
                None if gates.stopped() != Stop::No => return None,
                None => std::thread::sleep(std::time::Duration::from_nanos(gates.poll_ns())),
            }
        }
    }

    /// Settles which objects there are, before a phase works on them.
    fn settle(&mut self, phase: &Phase) {
        for &(operation, _) in &phase.operations {
            let (Walk::Uses(kind) | Walk::Takes(kind) | Walk::Makes(kind)) = operation.row().walk else { continue };
            let makes = matches!(operation.row().walk, Walk::Makes(_));
            if phase.only().is_some() && makes {
                self.files.begin(kind);
                self.sure[kind as usize] = true;
            }
        }
        let mixed = phase.only().is_none();
        for &(operation, _) in &phase.operations {
            let (Walk::Uses(kind) | Walk::Takes(kind) | Walk::Makes(kind)) = operation.row().walk else { continue };
            if !self.sure[kind as usize] {
                self.sure[kind as usize] = true;
                // A mix that makes files itself begins with all files of an earlier run or with none.
                let makes = phase.operations.iter().any(|(other, _)| other.row().walk == Walk::Makes(kind));
                if mixed && makes && (kind != Population::Files || !self.files.is_there()) {
                    self.files.begin(kind);
                } else {
                    self.files.assume(kind);
                }
            }
            // Links are made to files that are there.
            if !self.sure[Population::Files as usize] {
                self.sure[Population::Files as usize] = true;
                self.files.assume(Population::Files);
            }
        }
    }

    /// Carries out a phase: its result, and the first error. All preparations come before its beginning, so that its
    /// time is that of its operations.
    fn phase(&mut self, index: usize, phase: &Phase, start_ns: u64) -> (PhaseResult, Option<JobError>) {
        let Orders { plan, gates, clock, thread, .. } = self.orders;
        self.settle(phase);
        self.files.tally = Tally::new(clock, plan.latency);
        let reads_own_writes = self.reads_own_writes(phase);
        for &(operation, _) in &phase.operations {
            self.files.start_of(operation);
        }
        let mut operations: Vec<Done> = phase.operations.iter().map(|&(operation, _)| Done::none(operation)).collect();
        let cpu = cpu_usage();
        while monotonic_ns() < start_ns {
            sleep_until_ns(start_ns);
        }
        gates.begin(index, monotonic_ns());
        let began = Began { start_ns, unix_ms: realtime_ns() / 1_000_000, cpu };
        let mut state = Loop::begin(index, start_ns, plan);
        // A phase that evens out counts whole files.
        self.files.deadline_ns = state.deadline_ns.filter(|_| !plan.finish_even);
        match phase.only() {
            Some(operation) => self.uniform(operation, &mut operations, &mut state),
            None => self.mix(phase, &mut operations, &mut state),
        }
        if plan.finish_even && state.goal.is_none() {
            gates.tell(index, state.done + self.files.tally.work.failed);
        }
        let end_ns = monotonic_ns();
        // A thread without work is not the first one through: the others are not uneven.
        if state.asked > 0 {
            gates.finish(index, end_ns);
        }
        gates.publish(thread as usize, &self.files.tally.work);
        let cpu = cpu_usage().since(&began.cpu);
        self.write_times(phase, &mut state);
        self.check_count(phase, &mut state);
        let result =
            PhaseResult { reads_own_writes, cpu, ..self.result(phase, &began, end_ns, operations, &mut state) };
        (result, state.error)
    }

    /// True if a phase reads what this run has written: the reads may come from memory.
    fn reads_own_writes(&self, phase: &Phase) -> bool {
        self.orders.plan.abroad.is_none()
            && phase.operations.iter().any(|(operation, _)| operation.row().reads)
            && self.files.files.ours_from == 0
            && self.files.files.len() > 0
    }

    /// Writes the response times of a phase, if they were asked for.
    fn write_times(&self, phase: &Phase, state: &mut Loop) {
        let Orders { plan, gates, thread, .. } = self.orders;
        if let (Some(times), Some(directory)) = (&state.times, &plan.response_times)
            && let Err(error) = times.write(directory, thread, state.index, phase)
        {
            gates.stop(Stop::Failed);
            state.error.get_or_insert(JobError { errno: error.errno(), message: error.to_string() });
        }
    }

    /// Checks that every operation that was asked for has ended well, has failed, or was left by a stop.
    fn check_count(&self, phase: &Phase, state: &mut Loop) {
        let (failed, left) = (self.files.tally.work.failed, state.left());
        if state.asked == state.done + failed + left {
            return;
        }
        self.orders.gates.stop(Stop::Failed);
        let message = format!(
            "{}: {} operations were asked of thread {}, but {} ended well, {failed} failed and {left} were left: \
             this is a defect of plimsoll, please report it",
            phase.name, state.asked, self.orders.thread, state.done
        );
        state.error.get_or_insert(JobError { errno: libc::EPROTO, message });
    }

    /// The result of a phase, from the counts of this thread.
    fn result(
        &mut self,
        phase: &Phase,
        began: &Began,
        end_ns: u64,
        operations: Vec<Done>,
        state: &mut Loop,
    ) -> PhaseResult {
        let Orders { plan, gates, process, thread, .. } = self.orders;
        let tally = &mut self.files.tally;
        if tally.missing > 0 {
            tally.note_missing();
        }
        let runtime_ns = end_ns.saturating_sub(began.start_ns);
        let verified = Verified {
            blocks: tally.blocks,
            entries: tally.entries,
            mismatches: tally.mismatches,
            ..Verified::default()
        };
        PhaseResult {
            asked: state.asked,
            left: state.left(),
            name: phase.name.clone(),
            start_unix_ms: began.unix_ms,
            runtime_ns,
            total: tally.work,
            stonewall_ns: gates.wall_ns(state.index).saturating_sub(began.start_ns),
            at_stonewall: state.at_wall.unwrap_or(tally.work),
            threads: vec![ThreadResult {
                process,
                thread,
                runtime_ns,
                work: tally.work,
                operations: operations.iter().map(|done| done.count).collect(),
            }],
            operations: operations
                .into_iter()
                .map(|done| OperationResult { operation: done.operation.row().name.into(), lat_ns: done.lat_ns })
                .collect(),
            calls: tally.take_calls(),
            over_time: state.times.take().map(|times| times.over_time),
            errors: std::mem::take(&mut tally.errors),
            verified: (plan.verify && verified != Verified::default()).then_some(verified),
            disturbances: tally.disturbances,
            ..PhaseResult::default()
        }
    }

    /// One operation over its whole population.
    fn uniform(&mut self, operation: Operation, operations: &mut [Done], state: &mut Loop) {
        let plan = self.orders.plan;
        let walk = operation.row().walk;
        let span = match walk {
            Walk::Makes(_) => Span { first: 0, end: plan.files },
            Walk::Uses(kind) | Walk::Takes(kind) => {
                let range = *self.files.population(kind);
                Span { first: range.first, end: range.end }
            }
            Walk::Directories => Span { first: 0, end: self.files.names.directories() },
            Walk::All => Span { first: 0, end: plan.files.max(self.files.files.end) },
            Walk::Tree if plan.layout.shared && plan.number_of(self.orders.thread) > 0 => Span { first: 0, end: 0 },
            Walk::Tree if operation == Operation::RemoveTree => Span { first: 0, end: self.files.directories_there() },
            Walk::Tree => Span { first: 0, end: self.files.names.directories() },
        };
        // Directories that are shared are listed by one thread each.
        let (first, step) = match walk {
            Walk::Directories if plan.layout.shared => {
                (u64::from(plan.number_of(self.orders.thread)), u64::from(plan.sharers()))
            }
            _ => (span.first, 1),
        };
        let shuffled = (plan.random_order && matches!(walk, Walk::Uses(_))).then(|| {
            let number = plan.number_of(self.orders.thread);
            let seed = mix(plan.seed ^ mix(u64::from(number))) ^ state.index as u64;
            Permutation::new(span.end - span.first, &mut Random::new(mix(seed)))
        });
        let mut number = first;
        while number < span.end && self.goes_on(state) {
            self.moves(walk, number);
            let chosen = match &shuffled {
                Some(order) => span.first + order.at(number - span.first),
                // A directory goes after those in it, which have larger numbers.
                None if operation == Operation::RemoveTree => span.end - 1 - number,
                None => number,
            };
            self.one(operation, chosen, false, &mut operations[0], state);
            number += step;
        }
        state.asked = span.end.saturating_sub(first).div_ceil(step);
        state.untried = span.end.saturating_sub(number).div_ceil(step);
        if walk == Walk::All {
            self.end_of_cleanup(number, operation, &mut operations[0], state);
        }
        self.files.end_of(operation, number >= span.end);
    }

    /// Removes objects that mixes of earlier runs made beyond the planned number, then the directories.
    fn end_of_cleanup(&mut self, from: u64, operation: Operation, done: &mut Done, state: &mut Loop) {
        let Orders { plan, gates, .. } = self.orders;
        let mut number = from;
        // The rest of the last directory, then every further directory that is there.
        while self.goes_on(state) && self.files.may_be_there(number) {
            state.asked += 1;
            self.one(operation, number, false, done, state);
            number += 1;
        }
        for kind in [Population::Files, Population::Directories, Population::Symlinks, Population::Links] {
            self.files.begin(kind);
            self.sure[kind as usize] = true;
        }
        // Directories that are shared are empty when the last thread is through.
        if (gates.is_last(state.index) || !plan.layout.shared)
            && let Err(failure) = self.files.remove_directories(true)
        {
            state.error.get_or_insert(self.give_up(&failure));
        }
    }

    /// Carries out operations that are drawn by their weights.
    fn mix(&mut self, phase: &Phase, operations: &mut [Done], state: &mut Loop) {
        let plan = self.orders.plan;
        let mut random = Random::new(mix(
            mix(plan.seed ^ u64::from(plan.number_of(self.orders.thread))) ^ (state.index as u64 + 0x6d69_7865)
        ));
        let weights: u64 = phase.operations.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut done = 0;
        while done < plan.files && self.goes_on(state) {
            let drawn = draw(&phase.operations, weights, &mut random);
            // An operation that has nothing to work on gives way to the next one that has something.
            let all = phase.operations.len();
            let chosen = (0..all).map(|offset| (drawn + offset) % all).find_map(|which| {
                let operation = phase.operations[which].0;
                let number = if phase.in_order { Some(done) } else { self.choose(operation, &mut random) };
                number.map(|number| (which, operation, number))
            });
            let Some((which, operation, number)) = chosen else {
                let message = format!("{}: no file is left for any of its operations", phase.name);
                self.orders.gates.stop(Stop::Failed);
                state.error = Some(JobError { errno: libc::ENOENT, message });
                break;
            };
            if !phase.in_order {
                self.moves(operation.row().walk, number);
            }
            self.one(operation, number, !phase.in_order, &mut operations[which], state);
            done += 1;
        }
        (state.asked, state.untried) = (plan.files, plan.files - done);
        if let Err(failure) = self.files.come_home() {
            state.error.get_or_insert(self.give_up(&failure));
        }
    }

    /// The number of the object that an operation of a mix works on; None if there is none.
    fn choose(&mut self, operation: Operation, random: &mut Random) -> Option<u64> {
        match operation.row().walk {
            Walk::Makes(kind) => {
                let end = self.files.population(kind).end;
                // A link is to the file of its number.
                let links = matches!(kind, Population::Links | Population::Symlinks);
                let files = *self.files.population(Population::Files);
                (!links || (files.first..files.end).contains(&end)).then_some(end)
            }
            Walk::Takes(kind) => {
                let range = *self.files.population(kind);
                (range.len() > 0).then_some(range.first)
            }
            Walk::Uses(kind) => {
                let range = *self.files.population(kind);
                let away = self.files.away().filter(|_| operation == Operation::Rename);
                away.or_else(|| (range.len() > 0).then(|| range.first + random.below(range.len())))
            }
            Walk::Directories => Some(random.below(self.files.names.directories())),
            Walk::Tree | Walk::All => None,
        }
    }

    /// Notes how an operation changes the population, before the operation is tried: a file that could not be written
    /// whole is there anyway.
    fn moves(&mut self, walk: Walk, number: u64) {
        match walk {
            Walk::Makes(kind) => self.files.population(kind).end = number + 1,
            Walk::Takes(kind) => self.files.population(kind).first = number + 1,
            _ => {}
        }
    }

    /// True while the phase goes on for this thread: its time is not over, and nobody stops the run. Also publishes the
    /// thread's progress, and takes note of the stonewall.
    #[inline]
    fn goes_on(&mut self, state: &mut Loop) -> bool {
        let Orders { gates, thread, clock, .. } = self.orders;
        gates.publish(thread as usize, &self.files.tally.work);
        if state.at_wall.is_none() && gates.wall_ns(state.index) != 0 {
            state.at_wall = Some(self.files.tally.work);
        }
        let late = state.deadline_ns.is_some_and(|deadline| clock.now_ns() >= deadline);
        if late && self.orders.plan.finish_even {
            return self.is_behind(state) && gates.stopped() == Stop::No;
        }
        let over = late || (self.orders.plan.finish_first && gates.wall_ns(state.index) != 0);
        !over && gates.stopped() == Stop::No
    }

    /// True while this thread has tried fewer operations than the fastest had when its time was over. The first call
    /// waits until every thread has told how far it came.
    #[cold]
    fn is_behind(&mut self, state: &mut Loop) -> bool {
        let gates = self.orders.gates;
        let tried = state.done + self.files.tally.work.failed;
        if state.goal.is_none() {
            gates.tell(state.index, tried);
            state.goal = Some(tried);
            while gates.stopped() == Stop::No {
                if let Some(most) = gates.most(state.index) {
                    state.goal = Some(most);
                    break;
                }
                std::thread::sleep(std::time::Duration::from_nanos(gates.poll_ns()));
            }
        }
        state.goal.is_some_and(|goal| tried < goal)
    }

    #[inline]
    fn one(&mut self, operation: Operation, number: u64, mixed: bool, done: &mut Done, state: &mut Loop) {
        let plan = self.orders.plan;
        self.files.tally.operation_ns = 0;
        let missing = self.files.tally.missing;
        let began_ns = if state.times.is_some() { self.orders.clock.now_ns() } else { 0 };
        let outcome = self.files.carry_out(operation, number, mixed);
        match outcome {
            // Files that were not there are counted apart.
            Ok(()) if self.files.tally.missing > missing => state.done += 1,
            Ok(()) if matches!(operation.row().walk, Walk::All | Walk::Tree) && self.files.listed == 0 => {
                state.done += 1
            }
            Ok(()) => {
                let work = &mut self.files.tally.work;
                work.directories += u64::from(operation.row().walk == Walk::Directories);
                work.files += match operation.row().walk {
                    Walk::All | Walk::Tree => self.files.listed,
                    Walk::Directories if !mixed => self.files.listed,
                    _ => 1,
                };
                done.count += 1;
                state.done += 1;
                let took_ns = self.files.tally.operation_ns;
                if plan.latency {
                    done.lat_ns.record(took_ns);
                    // A mean in which the last fifty files count most.
                    state.mean_ns += (took_ns as f64 - state.mean_ns) / (done.count.min(50) as f64);
                }
                if let Some(times) = &mut state.times {
                    times.record(operation, began_ns, took_ns);
                }
            }
            // The end of the run broke off a wait, or a file of many records.
            Err(failure) if failure.is_stop() => state.broken_off += 1,
            Err(failure) => {
                self.files.uncertain = true;
                let (errno, message) = self.files.explain(&failure);
                self.files.tally.fail(failure.call, errno, message.clone());
                if state.error.is_none() {
                    state.error = Some(JobError { errno, message });
                }
                if !plan.continue_on_error {
                    self.orders.gates.stop(Stop::Failed);
                }
            }
        }
        let pause_ns = match plan.auto_pause {
            true => (state.mean_ns * AUTO_PAUSE * f64::from(plan.workers())) as u64,
            false => plan.pause_ns,
        };
        if pause_ns > 0 {
            self.pause(pause_ns, state);
        }
    }

    /// Sleeps; ends early if the phase or the run ends.
    fn pause(&self, pause_ns: u64, state: &Loop) {
        let now_ns = monotonic_ns();
        let end_ns = state.deadline_ns.unwrap_or(u64::MAX).min(now_ns.saturating_add(pause_ns));
        let mut at_ns = now_ns;
        while at_ns < end_ns && self.orders.gates.stopped() == Stop::No {
            std::thread::sleep(std::time::Duration::from_nanos((end_ns - at_ns).min(LONGEST_SLEEP_NS)));
            at_ns = monotonic_ns();
        }
    }
}

/// The part of the mean response time, for each thread of the run, that `--auto-pause` pauses after a file: all threads
/// together then leave the storage alone for about a tenth of the time.
const AUTO_PAUSE: f64 = 0.1;

/// The moment at which a phase began.
struct Began {
    start_ns: u64,
    unix_ms: u64,
    cpu: CpuUsage,
}

/// The counts of one operation of a phase.
struct Done {
    operation: Operation,
    count: u64,
    lat_ns: Histogram,
}

impl Done {
    fn none(operation: Operation) -> Done {
        Done { operation, count: 0, lat_ns: Histogram::new() }
    }
}

/// The state of one phase's loop.
struct Loop {
    index: usize,
    deadline_ns: Option<u64>,
    at_wall: Option<Work>,
    /// Of a phase that evens out: the operations that the fastest thread tried; None before the time is over.
    goal: Option<u64>,
    error: Option<JobError>,
    times: Option<Times>,
    /// The mean response time of the last files in nanoseconds.
    mean_ns: f64,
    /// Number of operations that the phase asks of this thread.
    asked: u64,
    /// Number of operations that ended well.
    done: u64,
    /// Number of operations that a stop left untried.
    untried: u64,
    /// Number of operations that a stop broke off.
    broken_off: u64,
}

impl Loop {
    fn begin(index: usize, start_ns: u64, plan: &Plan) -> Loop {
        let times = || Times { start_ns, samples: Vec::new(), over_time: OverTime::default() };
        Loop {
            index,
            deadline_ns: plan.runtime_ns.map(|runtime_ns| start_ns.saturating_add(runtime_ns)),
            at_wall: None,
            goal: None,
            error: None,
            times: plan.response_times.as_ref().map(|_| times()),
            mean_ns: 0.0,
            asked: 0,
            done: 0,
            untried: 0,
            broken_off: 0,
        }
    }

    /// Number of operations that a stop left.
    fn left(&self) -> u64 {
        self.untried + self.broken_off
    }
}

fn draw(operations: &[(Operation, u32)], weights: u64, random: &mut Random) -> usize {
    let mut at = random.below(weights);
    for (which, (_, weight)) in operations.iter().enumerate() {
        if at < u64::from(*weight) {
            return which;
        }
        at -= u64::from(*weight);
    }
    0
}
