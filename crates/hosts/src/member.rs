//! One rank's part in the conversation: the messages that the rank sends, to whom, and when. This module is pure: the
//! caller passes time and messages in.
//!
//! - **Gates.** Every rank says how far it has come; the lowest of all travels up the tree. The root opens a gate when
//!   nobody is before it any more, for a moment that is still to come on its own clock.
//! - **Exchanges.** Every rank hands over bytes; on the way up, each rank merges those of its children with its own.
//! - **Loss.** Neighbours in the tree hear each other a few times a second. One that stays silent is given up: the root
//!   tells everyone, the tree closes over the gap, and an exchange under way begins again without it.
//! - **Partition.** A rank that has lost its way to the root asks all ranks before it whether they are there. If none
//!   answers, this rank becomes the root of those who still hear it: a side that is cut off ends as well, and only a
//!   side that counts reports.
//! - **Urgency.** mpirun ends a run by SIGTERM, and a second later (its default) by SIGKILL. There is no time to find
//!   out who still lives: everyone sends what it has to the two lowest ranks, and the lower one that lives makes the
//!   best of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::{Offset, RoundTrip};
use crate::message::{FINAL, Message, Moment, NOWHERE, Round, Trouble};
use crate::tree::Tree;

/// The time between two messages to a neighbour.
const BEAT_NS: u64 = 250_000_000;
/// The silence after which a neighbour counts as lost.
const SILENT_NS: u64 = 3_000_000_000;
/// The time after which a neighbour counts as lost that has never sent anything: programs start late on loaded hosts.
const NEVER_HEARD_NS: u64 = 20_000_000_000;
/// A rank that has not read its messages for this time cannot tell if other ranks were silent.
const ASLEEP_NS: u64 = 1_000_000_000;
/// The time in which a rank must answer a question while neighbours are being lost; otherwise it counts as lost too.
const CALLED_NS: u64 = 1_500_000_000;
/// Round trips of a comparison of clocks.
const ROUND_TRIPS: u32 = 40;
/// The part of the time between the two signals in which the root waits for the parts of others: the rest of the time
/// is for writing the report.
const URGENT_PERCENT: u64 = 60;
/// The part of the time between the two signals after which the next rank reports, in case the root is lost.
const UNDERSTUDY_PERCENT: u64 = 70;

/// With more ranks than this, no rank keeps a connection to each other rank, because descriptors would run out
/// (`ulimit -n` is often 1024).
const STAR: u32 = 900;

/// The number of a rank's last statement.
pub const LAST_STATEMENT: u64 = u64::MAX;

/// Merges what several ranks hand over; the first part is the rank's own.
pub type Merge = Box<dyn Fn(Vec<Vec<u8>>) -> Vec<u8> + Send>;

/// A message to another rank.
pub type Outgoing = (u32, Message, Vec<u8>);

/// The state of one rank, and the rules by which it answers messages.
pub struct Member {
    me: u32,
    size: u32,
    /// Ranks with the same value share a clock.
    machine: u64,
    tree: Tree,
    /// The number of the root's notices that this rank has seen: ranks with equal numbers agree on the tree.
    view: u32,
    /// The ranks that this rank has given up, even if the root does not know it.
    suspects: BTreeSet<u32>,
    call: Option<Call>,
    heard: BTreeMap<u32, u64>,
    began_ns: u64,
    looked_ns: u64,
    next_beat_ns: u64,
    /// Messages of ranks that have seen a later notice than this rank.
    early: Vec<(u32, Message, Vec<u8>)>,

    reached: Round,
    waiting: Round,
    below: BTreeMap<u32, (Round, Round)>,
    told: Option<(Round, Round)>,
    opened: (Round, u64),

    mine: Option<Mine>,
    parts: BTreeMap<u32, (Round, Vec<u8>)>,
    handed_over: bool,
    whole: Option<(Round, Vec<u8>)>,
    answers: BTreeMap<Round, Vec<u8>>,

    sync: Sync,

    moment: Moment,
    moments: BTreeMap<u32, Moment>,

    /// The last statement of this rank and of each child, each with its number.
    statements: BTreeMap<u32, (u64, Vec<u8>)>,
    merge_statements: Option<Merge>,
    stated: u64,
    statement: Option<Vec<u8>>,

    troubles: Vec<Trouble>,
    stopped: bool,
    urgent_ns: Option<u64>,
    /// Nanoseconds between the two signals that end a run.
    grace_ns: u64,
    partials: BTreeMap<u32, Vec<u8>>,
    partial_sent: bool,

    out: Vec<Outgoing>,
}

/// The bytes that this rank hands over in the exchange under way.
struct Mine {
    round: Round,
    bytes: Vec<u8>,
    merge: Merge,
}

/// A question to several ranks: are you there?
struct Call {
    asked: Vec<u32>,
    since_ns: u64,
    until_ns: u64,
}

/// The comparison of this rank's clock with the root's.
#[derive(Default)]
struct Sync {
    /// The number of the comparison under way.
    number: u32,
    trips: u32,
    asked: Option<(u32, u64)>,
    next_ns: u64,
    best: Option<Offset>,
    /// The time by which the root's clock is ahead of this one.
    onward: Option<Offset>,
    /// Until when questions are to be expected.
    busy_until_ns: u64,
}

impl Member {
    /// Rank `me` of `size`, at its first look at the clock. Ranks that share a clock give the same `machine`.
    pub fn new(me: u32, size: u32, machine: u64, now_ns: u64) -> Member {
        // The way to those who collect when it is urgent is made now: then, MPI's own helpers may be gone.
        let collectors = (0..size.min(2)).filter(|&rank| rank != me && size <= STAR);
        let out = collectors.map(|rank| (rank, Message::Pulse, Vec::new())).collect();
        Member {
            me,
            size,
            machine,
            tree: Tree::over((0..size).collect()),
            view: 0,
            suspects: BTreeSet::new(),
            call: None,
            heard: BTreeMap::new(),
            began_ns: now_ns,
            looked_ns: now_ns,
            next_beat_ns: now_ns,
            early: Vec::new(),
            reached: 0,
            waiting: NOWHERE,
            below: BTreeMap::new(),
            told: None,
            opened: (0, 0),
            mine: None,
            parts: BTreeMap::new(),
            handed_over: false,
            whole: None,
            answers: BTreeMap::new(),
            sync: Sync::default(),
            moment: Moment::default(),
            moments: BTreeMap::new(),
            statements: BTreeMap::new(),
            merge_statements: None,
            stated: 0,
            statement: None,
            troubles: Vec::new(),
            stopped: false,
            urgent_ns: None,
            grace_ns: 1_000_000_000,
            partials: BTreeMap::new(),
            partial_sent: false,
            out,
        }
    }

    /// Sets the time that the launcher leaves this rank between SIGTERM and SIGKILL; without this call, a second.
    pub fn with_grace(self, grace_ns: u64) -> Member {
        Member { grace_ns, ..self }
    }

    /// True if this rank speaks for all: it is the lowest one that is left.
    pub fn is_root(&self) -> bool {
        self.tree.root() == self.me
    }

    /// True if the ranks that are left may report: rank 0 is among them, or half of all ranks are. A smaller part was
    /// cut off, and would write over the report of the others.
    pub fn counts(&self) -> bool {
        self.is_enough(self.tree.ranks().iter().copied())
    }

    fn is_enough(&self, mut ranks: impl ExactSizeIterator<Item = u32>) -> bool {
        2 * ranks.len() >= self.size as usize || ranks.any(|rank| rank == 0)
    }

    /// True if everyone was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// True if the launcher will kill the ranks soon, so that time is left only to hand over the measurements.
    pub fn is_urgent(&self) -> bool {
        self.urgent_ns.is_some()
    }

    /// The troubles of all ranks, as far as this rank knows.
    pub fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    /// True if questions about the clock may be coming in: then the caller should look for messages without a pause.
    pub fn is_comparing(&self, now_ns: u64) -> bool {
        now_ns < self.sync.busy_until_ns || (self.sync.number > 0 && self.sync.onward.is_none())
    }

    /// True if somebody on this rank waits for the others.
    pub fn is_awaiting(&self) -> bool {
        self.waiting != NOWHERE || self.mine.is_some()
    }

    /// The messages that are to be sent now.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.out)
    }

    fn send(&mut self, to: u32, message: Message) {
        self.out.push((to, message, Vec::new()));
    }

    fn send_below(&mut self, message: &Message, bytes: &[u8]) {
        for child in self.tree.children(self.me) {
            self.out.push((child, message.clone(), bytes.to_vec()));
        }
    }

    // ---- gates ----

    /// This rank has come to `gate` and waits there.
    pub fn come_to(&mut self, gate: Round, now_ns: u64) {
        if self.opened.0 < gate {
            (self.reached, self.waiting) = (self.reached.max(gate), gate);
            self.pass_on(now_ns);
        }
    }

    /// This rank has come past all gates before `round`, and waits at none.
    pub fn pass(&mut self, round: Round, now_ns: u64) {
        (self.reached, self.waiting) = (self.reached.max(round), NOWHERE);
        self.pass_on(now_ns);
    }

    /// When `gate` opens or opened, on the root's clock; None while it is closed.
    pub fn opened(&self, gate: Round) -> Option<u64> {
        (self.opened.0 >= gate).then_some(self.opened.1)
    }

    fn open(&mut self, round: Round, at_ns: u64) {
        self.opened = (round, at_ns);
        if self.waiting <= round {
            self.waiting = NOWHERE;
        }
        self.below.values_mut().filter(|(_, waiting)| *waiting <= round).for_each(|(_, waiting)| *waiting = NOWHERE);
        self.send_below(&Message::Open { round, at_ns }, &[]);
    }

    /// The round that all ranks of this subtree have reached, and the first gate where one of them waits.
    fn standing(&self) -> (Round, Round) {
        let children = self.tree.children(self.me);
        let of = |child: &u32| self.below.get(child).copied().unwrap_or((0, NOWHERE));
        children.iter().map(of).fold((self.reached, self.waiting), |(reached, waiting), (theirs, gate)| {
            (reached.min(theirs), waiting.min(gate))
        })
    }

    // ---- exchanges ----

    /// This rank hands over `bytes` in the exchange `round`, which no earlier gate holds up any more.
    pub fn hand_over(&mut self, round: Round, bytes: Vec<u8>, merge: Merge, now_ns: u64) {
        self.reached = self.reached.max(round);
        self.waiting = NOWHERE;
        self.mine = Some(Mine { round, bytes, merge });
        (self.handed_over, self.whole) = (false, None);
        self.pass_on(now_ns);
    }

    /// At the root: the merged parts of all ranks, once they are there.
    pub fn take_whole(&mut self, round: Round) -> Option<Vec<u8>> {
        self.whole.take_if(|(known, _)| *known == round).map(|(_, bytes)| bytes)
    }

    /// At the root: tells everyone the answer of an exchange.
    pub fn answer(&mut self, round: Round, bytes: Vec<u8>) {
        self.mine = None;
        if self.is_urgent() {
            // The tree may have gaps that nobody had the time to find.
            for rank in (0..self.size).filter(|rank| *rank != self.me && !self.suspects.contains(rank)) {
                self.out.push((rank, Message::Answer { round }, bytes.clone()));
            }
        } else {
            self.send_below(&Message::Answer { round }, &bytes);
        }
        self.answers.insert(round, bytes);
    }

    /// The answer of an exchange, once it is known.
    pub fn take_answer(&mut self, round: Round) -> Option<Vec<u8>> {
        self.answers.get(&round).cloned().inspect(|_| self.answers.retain(|known, _| *known > round || round == FINAL))
    }

    /// Passes on whatever is complete: to the parent, or to everyone.
    fn pass_on(&mut self, now_ns: u64) {
        let standing = self.standing();
        if let Some(parent) = self.tree.parent(self.me) {
            if self.told != Some(standing) {
                self.told = Some(standing);
                let (reached, waiting) = standing;
                self.send(parent, Message::Reached { view: self.view, reached, waiting });
            }
        } else if standing.1 != NOWHERE && standing.0 >= standing.1 && !self.stopped {
            // Late enough for the news to reach the last rank: a step takes a look at the messages.
            let at_ns = now_ns + 20_000_000 + (1_000_000 * u64::from(self.size)).min(400_000_000);
            self.open(standing.1, at_ns);
            return self.pass_on(now_ns);
        }
        let Some(mine) = &self.mine else { return };
        let children = self.tree.children(self.me);
        let there = |child: &u32| self.parts.get(child).is_some_and(|(round, _)| *round == mine.round);
        if self.handed_over || !children.iter().all(there) {
            return;
        }
        self.handed_over = true;
        let mut parts = vec![mine.bytes.clone()];
        parts.extend(children.iter().filter_map(|child| self.parts.remove(child)).map(|(_, bytes)| bytes));
        let round = mine.round;
        let merged = if parts.len() == 1 { parts.remove(0) } else { (mine.merge)(parts) };
        match self.tree.parent(self.me) {
            Some(parent) => self.out.push((parent, Message::Part { view: self.view, round }, merged)),
            None => self.whole = Some((round, merged)),
        }
    }

    // ---- clocks ----

    /// Begins a comparison of this rank's clock with the root's.
    pub fn compare_clocks(&mut self, now_ns: u64) {
        let number = self.sync.number + 1;
        let busy_until_ns = now_ns + 2_000_000;
        let onward = self.is_root().then(Offset::default);
        self.sync = Sync { number, busy_until_ns, onward, next_ns: now_ns, ..Sync::default() };
    }

    /// The time by which the root's clock is ahead of this one; None before the comparison is over.
    pub fn onward(&self) -> Option<Offset> {
        self.sync.onward
    }

    fn ask_the_clock(&mut self, now_ns: u64) {
        let Some(parent) = self.tree.parent(self.me) else { return };
        let sync = &mut self.sync;
        if sync.number == 0 || sync.onward.is_some() || sync.asked.is_some() || now_ns < sync.next_ns {
            return;
        }
        sync.asked = Some((sync.trips, now_ns));
        let message = Message::Ping { sync: sync.number, number: sync.trips, machine: self.machine };
        self.send(parent, message);
    }

    fn hear_the_clock(&mut self, trip: RoundTrip, same_machine: bool, onward: Option<Offset>) {
        let sync = &mut self.sync;
        sync.asked = None;
        sync.trips += 1;
        let seen = Offset::of(&trip);
        // Restored copies of a virtual machine say that they are one machine, and so do containers with different time
        // namespaces: a round trip shows that they are not.
        let one_clock = same_machine && seen.may_be_none();
        let best = if one_clock { Offset::default() } else { sync.best.map_or(seen, |best| best.better(seen)) };
        sync.best = Some(best);
        let enough = one_clock || sync.trips >= ROUND_TRIPS;
        match onward {
            Some(onward) if enough => sync.onward = Some(best.then(onward)),
            // The parent does not know itself yet: it is asked again, but not without a pause.
            _ if enough => sync.next_ns = trip.answered_ns + 1_000_000,
            _ => {}
        }
    }

    // ---- progress ----

    /// Sets the activity of this rank, for the progress of all ranks.
    pub fn set_moment(&mut self, moment: Moment) {
        self.moment = Moment { ranks: 1, ..moment };
    }

    /// The sum of the activities of this rank and of all ranks below it.
    pub fn moment(&self) -> Moment {
        let mut all = self.moment;
        self.moments.values().for_each(|moment| all.add(moment));
        all
    }

    // ---- statements ----

    /// Records the measurements of this rank so far, as statement `number` (from 1); [`LAST_STATEMENT`] when it has
    /// measured everything.
    pub fn state(&mut self, number: u64, bytes: Vec<u8>, merge: Merge) {
        self.statements.insert(self.me, (number, bytes));
        self.merge_statements = Some(merge);
        self.pass_on_statements();
    }

    /// At the root: what all ranks have measured so far, once after each statement of the last of them.
    pub fn take_statement(&mut self) -> Option<Vec<u8>> {
        self.statement.take()
    }

    /// Nobody waits for a statement, and a rank that is ahead gives its newest: they are merged as they are.
    fn pass_on_statements(&mut self) {
        let ranks = std::iter::once(self.me).chain(self.tree.children(self.me));
        let all: Option<Vec<&(u64, Vec<u8>)>> = ranks.map(|rank| self.statements.get(&rank)).collect();
        let (Some(all), Some(merge)) = (all, &self.merge_statements) else { return };
        let number = all.iter().map(|(number, _)| *number).min().unwrap_or(LAST_STATEMENT);
        if number <= self.stated {
            return;
        }
        self.stated = number;
        let merged = merge(all.into_iter().map(|(_, bytes)| bytes.clone()).collect());
        match self.tree.parent(self.me) {
            Some(parent) => self.out.push((parent, Message::Statement { number }, merged)),
            None if number != LAST_STATEMENT => self.statement = Some(merged),
            None => {} // the report itself follows
        }
    }

    // ---- trouble ----

    /// Something went wrong on this rank: everyone is to stop.
    pub fn report(&mut self, what: String, now_ns: u64) {
        let trouble = Trouble { rank: self.me, what, lost: false };
        self.raise(trouble, now_ns);
    }

    /// This rank was told to end at once.
    pub fn urge(&mut self, now_ns: u64) {
        if self.urgent_ns.is_some() {
            return;
        }
        self.urgent_ns = Some(now_ns);
        self.stopped = true;
        match self.is_root() {
            true => self.notify(now_ns),
            false => self.send(self.tree.root(), Message::Urgent),
        }
    }

    fn raise(&mut self, trouble: Trouble, now_ns: u64) {
        if trouble.lost {
            self.suspects.insert(trouble.rank);
            return self.close_ranks(now_ns);
        }
        let root = self.lowest_left();
        if root != self.me {
            self.send(root, Message::Trouble(trouble));
        } else if !self.knows(trouble.rank, false) {
            self.troubles.push(trouble);
            self.notify(now_ns);
        }
    }

    fn knows(&self, rank: u32, lost: bool) -> bool {
        self.troubles.iter().any(|known| (known.rank, known.lost) == (rank, lost))
    }

    fn lowest_left(&self) -> u32 {
        self.tree.ranks().iter().copied().find(|rank| !self.suspects.contains(rank)).unwrap_or(self.me)
    }

    /// Tells the root, or as the root everyone, who is lost; and asks those of whom it depends whether they are there.
    fn close_ranks(&mut self, now_ns: u64) {
        let root = self.lowest_left();
        if root == self.me {
            let new: Vec<u32> = self.suspects.iter().copied().filter(|&rank| !self.knows(rank, true)).collect();
            if !new.is_empty() {
                self.troubles.extend(new.into_iter().map(Trouble::lost));
                self.notify(now_ns);
                // More may be lost than neighbours: without asking, they would be found one step of the tree at a time.
                self.call(|_| true, SILENT_NS, now_ns);
            }
            return;
        }
        let lost: Vec<u32> = self.tree.ranks().iter().copied().filter(|rank| self.suspects.contains(rank)).collect();
        lost.into_iter().for_each(|rank| self.send(root, Message::Trouble(Trouble::lost(rank))));
        if self.call.is_none() {
            let me = self.me;
            self.call(|rank| rank < me, CALLED_NS, now_ns);
        }
    }

    fn call(&mut self, whom: impl Fn(u32) -> bool, for_ns: u64, now_ns: u64) {
        let others = self.tree.ranks().iter().copied().filter(|&rank| rank != self.me && whom(rank));
        let asked: Vec<u32> = others.filter(|rank| !self.suspects.contains(rank)).take(STAR as usize).collect();
        asked.iter().for_each(|&rank| self.out.push((rank, Message::Call, Vec::new())));
        self.call = Some(Call { asked, since_ns: now_ns, until_ns: now_ns + for_ns });
    }

    /// A rank that has not answered is lost. If the root has still not told everyone to stop, it is told again.
    fn end_call(&mut self, now_ns: u64) {
        let Some(call) = self.call.take_if(|call| now_ns >= call.until_ns) else { return };
        let silent = |rank: &u32| self.heard.get(rank).is_none_or(|&heard_ns| heard_ns <= call.since_ns);
        let silent: Vec<u32> = call.asked.into_iter().filter(silent).collect();
        self.suspects.extend(silent);
        self.close_ranks(now_ns);
    }

    /// At the root: tells everyone to stop, and which ranks no longer count.
    fn notify(&mut self, now_ns: u64) {
        let lost: Vec<u32> = self.suspects.iter().copied().collect();
        let (view, troubles, urgent) = (self.view + 1, self.troubles.clone(), self.urgent_ns.is_some());
        if urgent && self.size <= STAR {
            // The tree may have gaps that nobody had the time to find.
            let message = Message::Stop { view, urgent, troubles: troubles.clone(), lost: lost.clone() };
            let others = (0..self.size).filter(|rank| *rank != self.me && !self.suspects.contains(rank));
            let all = others.map(|rank| (rank, message.clone(), Vec::new()));
            self.out.extend(all.collect::<Vec<_>>());
        }
        self.stop(view, urgent, troubles, &lost, now_ns);
    }

    fn stop(&mut self, view: u32, urgent: bool, troubles: Vec<Trouble>, lost: &[u32], now_ns: u64) {
        if view <= self.view {
            return;
        }
        self.stopped = true;
        if urgent {
            self.urgent_ns.get_or_insert(now_ns);
        }
        self.troubles.clone_from(&troubles);
        (self.view, self.call) = (view, None);
        self.suspects.extend(lost);
        let left = self.tree.ranks().iter().copied().filter(|rank| !lost.contains(rank)).collect();
        self.tree = Tree::over(left);
        // The tree has changed: another rank may also have the parts that were merged before.
        self.below.clear();
        self.parts.clear();
        self.moments.retain(|rank, _| !lost.contains(rank));
        (self.told, self.handed_over, self.whole) = (None, false, None);
        for neighbour in self.neighbours() {
            self.heard.insert(neighbour, now_ns);
        }
        self.send_below(&Message::Stop { view, urgent, troubles, lost: lost.to_vec() }, &[]);
        for (from, message, bytes) in std::mem::take(&mut self.early) {
            self.hear(from, message, &bytes, now_ns);
        }
        self.pass_on(now_ns);
        if !urgent && self.tree.ranks().iter().any(|rank| self.suspects.contains(rank)) {
            self.close_ranks(now_ns); // the root does not know of them
        }
    }

    fn neighbours(&self) -> Vec<u32> {
        let mut all = self.tree.children(self.me);
        all.extend(self.tree.parent(self.me));
        all
    }

    // ---- urgency ----

    /// Sends the measurements of this rank to the ranks that may still be able to use them.
    pub fn send_partial(&mut self, bytes: &[u8]) {
        if std::mem::replace(&mut self.partial_sent, true) {
            return;
        }
        for rank in (0..self.size.min(2)).filter(|&rank| rank != self.me) {
            self.out.push((rank, Message::Partial, bytes.to_vec()));
        }
        self.partials.insert(self.me, bytes.to_vec());
    }

    /// The parts that this rank could collect, by rank, once it is its turn to report them. `self` must have sent its
    /// own part.
    pub fn take_partials(&mut self, now_ns: u64) -> Option<BTreeMap<u32, Vec<u8>>> {
        let since_ns = now_ns.saturating_sub(self.urgent_ns?);
        let all = self.partials.len() as u32 == self.size;
        let lost = |rank: &u32| self.suspects.contains(rank);
        let known = (0..self.size).all(|rank| self.partials.contains_key(&rank) || lost(&rank));
        let my_turn = match self.me {
            0 => all || known || since_ns >= self.grace_ns / 100 * URGENT_PERCENT,
            1 => {
                let enough = self.is_enough(self.partials.keys().copied());
                enough && !self.partials.contains_key(&0) && since_ns >= self.grace_ns / 100 * UNDERSTUDY_PERCENT
            }
            _ => false,
        };
        my_turn.then(|| std::mem::take(&mut self.partials))
    }

    /// True if this rank can expect nothing more from anybody: the others have had more than their time.
    pub fn is_past_hope(&self, now_ns: u64) -> bool {
        self.urgent_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > 2 * self.grace_ns)
    }

    // ---- what comes in ----

    /// A message has come from rank `from`.
    pub fn hear(&mut self, from: u32, message: Message, bytes: &[u8], now_ns: u64) {
        if from >= self.size {
            return;
        }
        self.heard.insert(from, now_ns);
        match message {
            Message::Reached { view, .. } | Message::Part { view, .. } if view > self.view => {
                self.early.push((from, message, bytes.to_vec()));
            }
            Message::Reached { view, reached, waiting } if view == self.view => {
                // The gate that it waited for may have been opened in the meantime.
                let waiting = if waiting <= self.opened.0 { NOWHERE } else { waiting };
                self.below.insert(from, (reached, waiting));
                self.pass_on(now_ns);
            }
            Message::Part { view, round } if view == self.view => {
                self.parts.insert(from, (round, bytes.to_vec()));
                self.pass_on(now_ns);
            }
            Message::Reached { .. } | Message::Part { .. } => {} // of a tree that is no more
            Message::Open { round, at_ns } => self.open(round, at_ns),
            Message::Answer { round } => {
                if !self.is_urgent() {
                    self.send_below(&Message::Answer { round }, bytes);
                }
                if self.mine.as_ref().is_some_and(|mine| mine.round <= round) {
                    self.mine = None;
                }
                self.answers.insert(round, bytes.to_vec());
            }
            Message::Ping { sync, number, machine } => {
                self.sync.busy_until_ns = now_ns + 2_000_000;
                let known = self.is_root() || self.sync.number == sync;
                let onward = if self.is_root() { Some(Offset::default()) } else { self.sync.onward };
                let onward = onward.filter(|_| known);
                let pong = Message::Pong { sync, number, machine: self.machine, clock_ns: now_ns, onward };
                debug_assert!(machine != 0);
                self.send(from, pong);
            }
            Message::Pong { sync, number, machine, clock_ns, onward } => {
                if let Some((asked, asked_ns)) = self.sync.asked
                    && (asked, self.sync.number) == (number, sync)
                {
                    let trip = RoundTrip { asked_ns, there_ns: clock_ns, answered_ns: now_ns };
                    self.hear_the_clock(trip, machine == self.machine, onward);
                }
            }
            Message::Statement { number } => {
                self.statements.insert(from, (number, bytes.to_vec()));
                self.pass_on_statements();
            }
            Message::Beat(moment) => {
                self.moments.insert(from, moment);
            }
            Message::Pulse => {}
            Message::Call => self.send(from, Message::Pulse),
            Message::Trouble(trouble) => self.raise(trouble, now_ns),
            Message::Stop { view, urgent, troubles, lost } => self.stop(view, urgent, troubles, &lost, now_ns),
            Message::Urgent => self.urge(now_ns),
            Message::Partial => {
                self.partials.insert(from, bytes.to_vec());
                self.urge(now_ns);
            }
        }
    }

    /// Time passes: signs of life, questions to the clock, and who was silent for too long.
    pub fn tick(&mut self, now_ns: u64) {
        let slept_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        if slept_ns > ASLEEP_NS {
            self.heard.values_mut().for_each(|heard_ns| *heard_ns = now_ns);
            self.began_ns += slept_ns;
            self.call.iter_mut().for_each(|call| call.until_ns += slept_ns);
        }
        self.ask_the_clock(now_ns);
        // A rank that is through with everything may fall silent.
        let in_peace = !self.answers.contains_key(&FINAL) && self.urgent_ns.is_none();
        if in_peace {
            self.end_call(now_ns);
        }
        if now_ns < self.next_beat_ns {
            return;
        }
        self.next_beat_ns = now_ns + BEAT_NS;
        if let Some(parent) = self.tree.parent(self.me).filter(|parent| !self.suspects.contains(parent)) {
            let moment = self.moment();
            self.send(parent, Message::Beat(moment));
        }
        self.send_below(&Message::Pulse, &[]);
        for neighbour in self.neighbours().into_iter().filter(|_| in_peace) {
            let silent = match self.heard.get(&neighbour) {
                Some(&heard_ns) => now_ns.saturating_sub(heard_ns) > SILENT_NS,
                None => now_ns.saturating_sub(self.began_ns) > NEVER_HEARD_NS,
            };
            if silent && !self.suspects.contains(&neighbour) {
                self.raise(Trouble::lost(neighbour), now_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests;
