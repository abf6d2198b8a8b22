//! One rank's share of the conversation: what it says to whom, and when. Pure: time and messages are passed in.
//!
//! - **Gates.** Every rank says how far it has come; the lowest of all travels up the tree. The root opens a gate when
//!   nobody is before it any more, for a moment that is still to come on its own clock.
//! - **Exchanges.** Every rank hands over bytes; on the way up, each rank merges those of its children with its own.
//! - **Loss.** Neighbours in the tree hear each other a few times a second. One that stays silent is given up: the root
//!   tells everyone, the tree closes over the gap, and an exchange under way begins again without it.
//! - **Partition.** Whoever has lost its way to the root asks all ranks before it whether they are there. If none is, it is
//!   the root of those who still hear it: a side that is cut off ends as well, and only one that counts reports.
//! - **Urgency.** mpirun ends a run by SIGTERM, and a second later by SIGKILL. There is no time to find out who still
//!   lives: everyone sends what it has to the two lowest ranks, and the lower one that lives makes the best of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::{Offset, RoundTrip};
use crate::message::{FINAL, Message, Moment, NOWHERE, Round, Trouble};
use crate::tree::Tree;

/// How often neighbours hear of each other.
const BEAT_NS: u64 = 250_000_000;
/// A neighbour that was silent for so long is lost.
const SILENT_NS: u64 = 3_000_000_000;
/// The same for one that was never heard: programs on loaded hosts take their time to begin.
const NEVER_HEARD_NS: u64 = 20_000_000_000;
/// Who has not looked at its messages for so long cannot tell whether others were silent.
const ASLEEP_NS: u64 = 1_000_000_000;
/// Who does not answer a question for so long, while neighbours are being lost, is lost too.
const CALLED_NS: u64 = 1_500_000_000;
/// Round trips of a comparison of clocks.
const ROUND_TRIPS: u32 = 40;
/// How long after the signal the root waits for what the others have: the rest of mpirun's second is for writing it.
const URGENT_NS: u64 = 600_000_000;
/// The same for the next rank, should the root be the one that is lost.
const UNDERSTUDY_NS: u64 = 700_000_000;

/// Beyond so many ranks nobody keeps a way to each of them open, for want of descriptors (`ulimit -n` is often 1024).
const STAR: u32 = 900;

/// The number of a rank's last statement.
pub const LAST: u64 = u64::MAX;

/// Merges what several ranks hand over; the first part is the rank's own.
pub type Merge = Box<dyn Fn(Vec<Vec<u8>>) -> Vec<u8> + Send>;

/// A message to another rank.
pub type Outgoing = (u32, Message, Vec<u8>);

/// One rank.
pub struct Member {
    me: u32,
    size: u32,
    /// Ranks with the same value share a clock.
    machine: u64,
    tree: Tree,
    /// How many notices of the root this rank has seen: ranks agree on the tree when they agree on this.
    view: u32,
    /// Given up by this rank, whether the root knows it or not.
    suspects: BTreeSet<u32>,
    call: Option<Call>,
    heard: BTreeMap<u32, u64>,
    began_ns: u64,
    looked_ns: u64,
    next_beat_ns: u64,
    /// Sent by those who have seen a later notice.
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

    /// The last statement of this rank and of each child, and which of theirs it was.
    statements: BTreeMap<u32, (u64, Vec<u8>)>,
    merge_statements: Option<Merge>,
    stated: u64,
    statement: Option<Vec<u8>>,

    troubles: Vec<Trouble>,
    stopped: bool,
    urgent_ns: Option<u64>,
    partials: BTreeMap<u32, Vec<u8>>,
    partial_sent: bool,

    out: Vec<Outgoing>,
}

/// What this rank hands over in the exchange under way.
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
    /// Counts comparisons.
    number: u32,
    trips: u32,
    asked: Option<(u32, u64)>,
    next_ns: u64,
    best: Option<Offset>,
    /// How far the root's clock is ahead.
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
            partials: BTreeMap::new(),
            partial_sent: false,
            out,
        }
    }

    /// Whether this rank speaks for all: it is the lowest one that is left.
    pub fn is_root(&self) -> bool {
        self.tree.root() == self.me
    }

    /// Whether those who are left may report: rank 0 is among them, or half of all ranks are. Others were cut off, and
    /// would write over the report of those who were not.
    pub fn counts(&self) -> bool {
        self.is_enough(self.tree.ranks().iter().copied())
    }

    fn is_enough(&self, mut ranks: impl ExactSizeIterator<Item = u32>) -> bool {
        2 * ranks.len() >= self.size as usize || ranks.any(|rank| rank == 0)
    }

    /// Whether everyone was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether there is no time left for good manners.
    pub fn is_urgent(&self) -> bool {
        self.urgent_ns.is_some()
    }

    /// What went wrong, as far as this rank knows.
    pub fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    /// Whether questions about the clock may be coming in: then messages should be looked for without a pause.
    pub fn is_comparing(&self, now_ns: u64) -> bool {
        now_ns < self.sync.busy_until_ns || (self.sync.number > 0 && self.sync.onward.is_none())
    }

    /// Whether somebody on this rank waits for the others.
    pub fn is_awaiting(&self) -> bool {
        self.waiting != NOWHERE || self.mine.is_some()
    }

    /// The messages that are to be sent now.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.out)
    }

    fn say(&mut self, to: u32, message: Message) {
        self.out.push((to, message, Vec::new()));
    }

    fn say_below(&mut self, message: &Message, bytes: &[u8]) {
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
        self.say_below(&Message::Open { round, at_ns }, &[]);
    }

    /// How far everyone from here on down has come, and the first gate where one waits.
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

    /// At the root: what all ranks handed over, once it is there.
    pub fn take_whole(&mut self, round: Round) -> Option<Vec<u8>> {
        self.whole.take_if(|(known, _)| *known == round).map(|(_, bytes)| bytes)
    }

    /// At the root: tells everyone what became of an exchange.
    pub fn answer(&mut self, round: Round, bytes: Vec<u8>) {
        self.mine = None;
        if self.is_urgent() {
            // The tree may have gaps that nobody had the time to find.
            for rank in (0..self.size).filter(|rank| *rank != self.me && !self.suspects.contains(rank)) {
                self.out.push((rank, Message::Answer { round }, bytes.clone()));
            }
        } else {
            self.say_below(&Message::Answer { round }, &bytes);
        }
        self.answers.insert(round, bytes);
    }

    /// What became of an exchange, once it is known.
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
                self.say(parent, Message::Reached { view: self.view, reached, waiting });
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

    /// How far the root's clock is ahead of this one, once the comparison is over.
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
        self.say(parent, message);
    }

    fn hear_the_clock(&mut self, trip: RoundTrip, same_machine: bool, onward: Option<Offset>) {
        let sync = &mut self.sync;
        sync.asked = None;
        sync.trips += 1;
        let seen = if same_machine { Offset::default() } else { Offset::of(&trip) };
        let best = sync.best.map_or(seen, |best| best.better(seen));
        sync.best = Some(best);
        let enough = same_machine || sync.trips >= ROUND_TRIPS;
        match onward {
            Some(onward) if enough => sync.onward = Some(best.then(onward)),
            // The parent does not know itself yet: it is asked again, but not without a pause.
            _ if enough => sync.next_ns = trip.answered_ns + 1_000_000,
            _ => {}
        }
    }

    // ---- progress ----

    /// What this rank is doing.
    pub fn tell(&mut self, moment: Moment) {
        self.moment = Moment { ranks: 1, ..moment };
    }

    /// What all ranks from here on down are doing.
    pub fn moment(&self) -> Moment {
        let mut all = self.moment;
        self.moments.values().for_each(|moment| all.add(moment));
        all
    }

    // ---- statements ----

    /// What this rank has measured so far, its statement `number` (from 1); [`LAST`] when it has measured everything.
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
        let number = all.iter().map(|(number, _)| *number).min().unwrap_or(LAST);
        if number <= self.stated {
            return;
        }
        self.stated = number;
        let merged = merge(all.into_iter().map(|(_, bytes)| bytes.clone()).collect());
        match self.tree.parent(self.me) {
            Some(parent) => self.out.push((parent, Message::Statement { number }, merged)),
            None if number != LAST => self.statement = Some(merged),
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
            false => self.say(self.tree.root(), Message::Urgent),
        }
    }

    fn raise(&mut self, trouble: Trouble, now_ns: u64) {
        if trouble.lost {
            self.suspects.insert(trouble.rank);
            return self.close_ranks(now_ns);
        }
        let root = self.lowest_left();
        if root != self.me {
            self.say(root, Message::Trouble(trouble));
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
        lost.into_iter().for_each(|rank| self.say(root, Message::Trouble(Trouble::lost(rank))));
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

    /// Who has not answered is lost. If the root has still not told everyone to stop, it is told again.
    fn end_call(&mut self, now_ns: u64) {
        let Some(call) = self.call.take_if(|call| now_ns >= call.until_ns) else { return };
        let silent = |rank: &u32| self.heard.get(rank).is_none_or(|&heard_ns| heard_ns <= call.since_ns);
        let silent: Vec<u32> = call.asked.into_iter().filter(silent).collect();
        self.suspects.extend(silent);
        self.close_ranks(now_ns);
    }

    /// At the root: tells everyone to stop, and who no longer counts.
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
        // Who hangs on whom has changed: what was merged before may be in somebody else's hands as well.
        self.below.clear();
        self.parts.clear();
        self.moments.retain(|rank, _| !lost.contains(rank));
        (self.told, self.handed_over, self.whole) = (None, false, None);
        for neighbour in self.neighbours() {
            self.heard.insert(neighbour, now_ns);
        }
        self.say_below(&Message::Stop { view, urgent, troubles, lost: lost.to_vec() }, &[]);
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

    /// Sends what this rank has to those who may still be able to make something of it.
    pub fn send_partial(&mut self, bytes: &[u8]) {
        if std::mem::replace(&mut self.partial_sent, true) {
            return;
        }
        for rank in (0..self.size.min(2)).filter(|&rank| rank != self.me) {
            self.out.push((rank, Message::Partial, bytes.to_vec()));
        }
        self.partials.insert(self.me, bytes.to_vec());
    }

    /// What could be collected, and from whom, once it is this rank's turn to make the best of it. `self` must have sent
    /// its own.
    pub fn take_partials(&mut self, now_ns: u64) -> Option<BTreeMap<u32, Vec<u8>>> {
        let since_ns = now_ns.saturating_sub(self.urgent_ns?);
        let all = self.partials.len() as u32 == self.size;
        let lost = |rank: &u32| self.suspects.contains(rank);
        let known = (0..self.size).all(|rank| self.partials.contains_key(&rank) || lost(&rank));
        let my_turn = match self.me {
            0 => all || known || since_ns >= URGENT_NS,
            1 => {
                let enough = self.is_enough(self.partials.keys().copied());
                enough && !self.partials.contains_key(&0) && since_ns >= UNDERSTUDY_NS
            }
            _ => false,
        };
        my_turn.then(|| std::mem::take(&mut self.partials))
    }

    /// Whether nothing more is to be expected from anybody: the others have had more than their second.
    pub fn is_past_hope(&self, now_ns: u64) -> bool {
        self.urgent_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > 2_000_000_000)
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
                // What it waited for may have been opened in the meantime.
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
                    self.say_below(&Message::Answer { round }, bytes);
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
                self.say(from, pong);
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
            Message::Call => self.say(from, Message::Pulse),
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
        // Who is through with everything may fall silent.
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
            self.say(parent, Message::Beat(moment));
        }
        self.say_below(&Message::Pulse, &[]);
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
mod tests {
    use super::*;

    /// Ranks whose messages take some time, on clocks of their own; time is what the test says it is.
    struct World {
        members: Vec<Option<Member>>,
        now_ns: u64,
        /// (when it arrives, a number that keeps the order, from, to, message, bytes)
        under_way: std::collections::BTreeMap<(u64, u64), (u32, Outgoing)>,
        sent: u64,
        ahead_ns: fn(u32) -> u64,
        /// These are cut off from the others, not from each other.
        cut_off: BTreeSet<u32>,
    }

    const STEP_NS: u64 = 500_000;

    impl World {
        fn of(size: u32) -> World {
            World::with_clocks(size, |_| 0)
        }

        fn with_clocks(size: u32, ahead_ns: fn(u32) -> u64) -> World {
            let now_ns = 1_000_000_000;
            let member = |rank| Some(Member::new(rank, size, u64::from(rank) + 1, now_ns + ahead_ns(rank)));
            let members = (0..size).map(member).collect();
            World { members, now_ns, under_way: Default::default(), sent: 0, ahead_ns, cut_off: BTreeSet::new() }
        }

        fn each(&mut self, mut act: impl FnMut(u32, &mut Member, u64)) {
            for (rank, member) in self.members.iter_mut().enumerate() {
                let clock_ns = self.now_ns + (self.ahead_ns)(rank as u32);
                member.iter_mut().for_each(|member| act(rank as u32, member, clock_ns));
            }
            self.post();
        }

        fn post(&mut self) {
            for (from, member) in self.members.iter_mut().enumerate() {
                let cut_off = |rank: u32| self.cut_off.contains(&rank);
                let there = |outgoing: &Outgoing| cut_off(outgoing.0) == cut_off(from as u32);
                for outgoing in member.iter_mut().flat_map(Member::take_outgoing).filter(there) {
                    // Ways are of different lengths, each way always the same: order is kept.
                    let way_ns = 30_000 + (from as u64 * 7919 + u64::from(outgoing.0) * 104_729) % 90_000;
                    self.sent += 1;
                    self.under_way.insert((self.now_ns + way_ns, self.sent), (from as u32, outgoing));
                }
            }
        }

        fn step(&mut self) {
            let end_ns = self.now_ns + STEP_NS;
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= end_ns) {
                let (at_ns, _) = *entry.key();
                let (from, (to, message, bytes)) = entry.remove();
                self.now_ns = self.now_ns.max(at_ns);
                let clock_ns = self.now_ns + (self.ahead_ns)(to);
                if let Some(member) = &mut self.members[to as usize] {
                    member.hear(from, message, &bytes, clock_ns);
                    member.tick(clock_ns);
                }
                self.post();
            }
            self.now_ns = end_ns;
            self.each(|_, member, now_ns| member.tick(now_ns));
        }

        /// Steps until it is so; the nanoseconds that it took.
        fn until(&mut self, so: impl Fn(&World) -> bool) -> u64 {
            let began_ns = self.now_ns;
            while !so(self) {
                self.step();
                assert!(self.now_ns - began_ns < 60_000_000_000, "a minute has passed");
            }
            self.now_ns - began_ns
        }

        fn all(&self, so: impl Fn(&Member) -> bool) -> bool {
            self.members.iter().flatten().all(so)
        }
    }

    fn concatenate(parts: Vec<Vec<u8>>) -> Vec<u8> {
        let mut all = parts.concat();
        all.sort_unstable();
        all
    }

    fn hand_over_ranks(world: &mut World, round: Round) {
        world.each(|rank, member, now_ns| {
            member.hand_over(round, vec![rank as u8], Box::new(concatenate), now_ns);
        });
    }

    #[test]
    fn a_gate_opens_for_all_at_one_moment_once_the_last_has_come() {
        for size in [1, 2, 3, 7, 64] {
            let mut world = World::of(size);
            world.each(|rank, member, now_ns| {
                if rank + 1 < size {
                    member.come_to(5, now_ns)
                }
            });
            (0..100).for_each(|_| world.step());
            assert!(size == 1 || world.all(|member| member.opened(5).is_none()), "{size}: one is still to come");
            world.each(|rank, member, now_ns| {
                if rank + 1 == size {
                    member.come_to(5, now_ns)
                }
            });
            world.until(|world| world.all(|member| member.opened(5).is_some()));
            let at: BTreeSet<u64> = world.members.iter().flatten().filter_map(|member| member.opened(5)).collect();
            assert_eq!(at.len(), 1, "{size} ranks agree on the moment");
            assert!(*at.first().unwrap() > world.now_ns, "the news is there before the moment");
        }
    }

    #[test]
    fn who_has_left_for_the_end_holds_up_no_gate() {
        let mut world = World::of(5);
        world.each(|rank, member, now_ns| match rank {
            3 => member.hand_over(FINAL, vec![3], Box::new(concatenate), now_ns),
            _ => member.come_to(9, now_ns),
        });
        let others_opened = |world: &World| {
            world.members.iter().flatten().filter(|member| member.me != 3).all(|member| member.opened(9).is_some())
        };
        world.until(others_opened);
    }

    #[test]
    fn an_exchange_merges_what_all_hand_over_and_its_answer_reaches_all() {
        for size in [1, 2, 6, 33] {
            let mut world = World::of(size);
            hand_over_ranks(&mut world, 10);
            let mut whole = None;
            while whole.is_none() {
                world.step();
                whole = world.members[0].as_mut().unwrap().take_whole(10);
            }
            assert_eq!(whole.unwrap(), (0..size as u8).collect::<Vec<_>>());
            world.members[0].as_mut().unwrap().answer(10, b"well".to_vec());
            world.until(|world| world.all(|member| member.answers.get(&10).is_some_and(|answer| answer == b"well")));
        }
    }

    #[test]
    fn clocks_are_compared_along_the_tree_within_the_bound() {
        let ahead = |rank: u32| u64::from(rank) * 1_234_567_891 % 40_000_000_000;
        let mut world = World::with_clocks(13, ahead);
        world.each(|_, member, now_ns| member.compare_clocks(now_ns));
        world.until(|world| world.all(|member| member.onward().is_some()));
        for member in world.members.iter().flatten() {
            let (offset, truth) = (member.onward().unwrap(), -(ahead(member.me) as i64));
            assert!(offset.ahead_ns.abs_diff(truth) <= offset.bound_ns + 4, "rank {}: {offset:?}, {truth}", member.me);
            assert!(offset.bound_ns < 1_000_000, "rank {}: {offset:?}", member.me);
        }
    }

    #[test]
    fn ranks_that_share_a_clock_do_not_ask() {
        let mut world = World::of(4);
        world.members.iter_mut().flatten().for_each(|member| member.machine = 1);
        world.each(|_, member, now_ns| member.compare_clocks(now_ns));
        world.until(|world| world.all(|member| member.onward() == Some(Offset::default())));
    }

    #[test]
    fn trouble_stops_everyone_and_the_end_still_has_all_parts() {
        let mut world = World::of(9);
        world.each(|rank, member, now_ns| {
            if rank == 6 {
                member.report("has no space".into(), now_ns)
            }
        });
        let took_ns = world.until(|world| world.all(Member::is_stopped));
        assert!(took_ns < 1_000_000_000);
        assert!(world.all(|member| member.troubles()[0].what == "has no space" && member.troubles()[0].rank == 6));
        hand_over_ranks(&mut world, FINAL);
        world.until(|world| world.members[0].as_ref().unwrap().whole.is_some());
        let root = world.members[0].as_mut().unwrap();
        assert_eq!(root.take_whole(FINAL).unwrap(), (0..9).collect::<Vec<u8>>());
    }

    /// Whoever is lost, whatever the others are doing: they stop within five seconds, and what they have is merged.
    #[test]
    fn a_lost_rank_is_named_and_the_tree_closes_over_the_gap() {
        for size in [2, 3, 8, 21] {
            for lost in 0..size {
                for before in [true, false] {
                    let mut world = World::of(size);
                    (0..1000).for_each(|_| world.step());
                    if before {
                        hand_over_ranks(&mut world, FINAL);
                        (0..lost % 3).for_each(|_| world.step());
                    }
                    world.members[lost as usize] = None;
                    let case = format!("{lost} of {size}, {before}");
                    if !before {
                        let took_ns = world.until(|world| world.all(Member::is_stopped));
                        assert!(took_ns < 5_000_000_000, "{case}: {took_ns}");
                        hand_over_ranks(&mut world, FINAL);
                    }
                    let root = u32::from(lost == 0) as usize;
                    world.until(|world| world.members[root].as_ref().unwrap().whole.is_some());
                    let member = world.members[root].as_mut().unwrap();
                    let whole = member.take_whole(FINAL).unwrap();
                    let left: Vec<u8> = (0..size as u8).filter(|&rank| u32::from(rank) != lost).collect();
                    // Handed over before it was lost, its part may be there.
                    assert!(whole == left || (before && whole.len() == size as usize), "{case}: {whole:?}");
                    if whole == left {
                        assert!(
                            member.is_root() && member.troubles().iter().any(|t| t.rank == lost && t.lost),
                            "{case}"
                        );
                    }
                }
            }
        }
    }

    /// A cable: both sides live, and neither hears the other. Both stop; which of them reports is agreed beforehand.
    #[test]
    fn of_a_network_that_comes_apart_both_sides_stop_and_the_one_that_counts_reports() {
        let every_fourth = |from: u32, size: u32| (from..size).step_by(4).collect::<Vec<u32>>();
        let cases: [(u32, Vec<u32>); 9] = [
            (2, vec![1]),
            (4, vec![0]),
            (4, vec![1]),
            (4, vec![2]),
            (8, vec![0, 1]),
            (16, every_fourth(2, 16)),
            (21, (5..12).collect()),
            (33, (0..9).collect()),
            (64, every_fourth(0, 64)),
        ];
        for (size, cut_off) in cases {
            let case = format!("{cut_off:?} of {size}");
            let mut world = World::of(size);
            (0..1000).for_each(|_| world.step());
            world.cut_off = cut_off.iter().copied().collect();
            let stopped_ns = world.until(|world| world.all(Member::is_stopped));
            assert!(stopped_ns < 5_000_000_000, "{case}: {stopped_ns}");
            hand_over_ranks(&mut world, FINAL);
            let others: Vec<u32> = (0..size).filter(|rank| !cut_off.contains(rank)).collect();
            for side in [&cut_off, &others] {
                let all: Vec<u8> = side.iter().map(|&rank| rank as u8).collect();
                let root = side[0] as usize;
                let whole = |world: &World| {
                    world.members[root].as_ref().unwrap().whole.as_ref().is_some_and(|(_, whole)| *whole == all)
                };
                let took_ns = stopped_ns + world.until(whole);
                assert!(took_ns < 8_000_000_000, "{case}: {took_ns}");
                let root = world.members[root].as_ref().unwrap();
                assert_eq!(root.counts(), side[0] == 0 || 2 * side.len() >= size as usize, "{case}");
                let lost: BTreeSet<u32> = root.troubles().iter().filter(|t| t.lost).map(|t| t.rank).collect();
                assert_eq!(lost, (0..size).filter(|rank| !side.contains(rank)).collect(), "{case}");
            }
        }
    }

    /// One host with the two ranks that everybody reports to is down.
    #[test]
    fn those_who_are_left_find_each_other_without_the_first_two() {
        let mut world = World::of(12);
        (0..1000).for_each(|_| world.step());
        (world.members[0], world.members[1]) = (None, None);
        let took_ns = world.until(|world| world.all(Member::is_stopped));
        assert!(took_ns < 5_500_000_000, "{took_ns}");
        hand_over_ranks(&mut world, FINAL);
        world.until(|world| world.members[2].as_ref().unwrap().whole.is_some());
        let whole = world.members[2].as_mut().unwrap().take_whole(FINAL).unwrap();
        assert_eq!(whole, (2..12).collect::<Vec<u8>>());
    }

    #[test]
    fn two_lost_ranks_one_after_the_other() {
        let mut world = World::of(16);
        (0..1000).for_each(|_| world.step());
        world.members[8] = None;
        hand_over_ranks(&mut world, FINAL);
        (0..4000).for_each(|_| world.step());
        world.members[0] = None;
        world.until(|world| world.members[1].as_ref().unwrap().whole.is_some());
        let whole = world.members[1].as_mut().unwrap().take_whole(FINAL).unwrap();
        assert_eq!(whole, (1..16).filter(|&rank| rank != 8).collect::<Vec<u8>>());
    }

    /// A rank is killed; a second later mpirun tells the others to end: each has a second more.
    #[test]
    fn when_it_is_urgent_the_lowest_rank_that_lives_collects_in_time() {
        for lost in [0, 1, 5] {
            let mut world = World::of(8);
            (0..1000).for_each(|_| world.step());
            world.members[lost] = None;
            (0..2000).for_each(|_| world.step());
            assert!(world.all(|member| !member.is_stopped()), "a second of silence is no loss");
            world.each(|_, member, now_ns| member.urge(now_ns));
            world.each(|rank, member, _| member.send_partial(&[rank as u8]));
            let speaker = usize::from(lost == 0);
            let began_ns = world.now_ns;
            let partials = loop {
                world.step();
                let now_ns = world.now_ns;
                let silent = (0..8).filter(|&rank| rank != speaker).all(|rank| {
                    world.members[rank].as_mut().is_none_or(|member| member.take_partials(now_ns).is_none())
                });
                assert!(silent, "only one speaks");
                if let Some(partials) = world.members[speaker].as_mut().unwrap().take_partials(now_ns) {
                    break partials;
                }
            };
            assert!(world.now_ns - began_ns <= 750_000_000);
            assert_eq!(partials.len(), 7);
            assert!(!partials.contains_key(&(lost as u32)));
        }
    }

    /// mpirun does not tell all hosts at the same time.
    #[test]
    fn whoever_is_told_first_tells_those_behind_a_gap() {
        let mut world = World::of(8);
        (0..1000).for_each(|_| world.step());
        world.members[4] = None;
        world.each(|rank, member, now_ns| {
            if rank == 0 {
                member.urge(now_ns)
            }
        });
        assert!(world.until(|world| world.all(Member::is_urgent)) < 100_000_000, "5, 6 and 7 hang on the lost one");
    }

    #[test]
    fn one_rank_that_is_told_to_end_at_once_takes_the_others_with_it() {
        let mut world = World::of(6);
        world.each(|rank, member, now_ns| {
            if rank == 4 {
                member.urge(now_ns)
            }
        });
        world.until(|world| world.all(Member::is_urgent));
        world.each(|rank, member, _| member.send_partial(&[rank as u8]));
        let all_there = |world: &World| world.members[0].as_ref().unwrap().partials.len() == 6;
        assert!(world.until(all_there) < 100_000_000, "nobody is missing: nobody is waited for");
    }

    #[test]
    fn a_rank_that_slept_does_not_blame_the_others() {
        let mut world = World::of(2);
        (0..1000).for_each(|_| world.step());
        // Rank 1 gets no processor for four seconds; the other's signs of life pile up.
        let sleeper = world.members[1].take();
        (0..4000).for_each(|_| world.step());
        world.members[1] = sleeper;
        world.each(|rank, member, now_ns| {
            if rank == 1 {
                member.tick(now_ns + 2_000_000_000)
            }
        });
        assert!(!world.members[1].as_ref().unwrap().is_stopped());
    }

    #[test]
    fn a_statement_is_of_all_ranks_and_whoever_is_done_holds_up_none() {
        let mut world = World::of(10);
        let say = |world: &mut World, number, ranks: std::ops::Range<u32>| {
            world.each(|rank, member, _| {
                if ranks.contains(&rank) {
                    member.state(number, vec![rank as u8], Box::new(concatenate));
                }
            });
            (0..20).for_each(|_| world.step());
            world.members[0].as_mut().unwrap().take_statement()
        };
        assert_eq!(say(&mut world, 1, 0..9), None, "one is still to say something");
        assert_eq!(say(&mut world, 1, 9..10), Some((0..10).collect()));
        assert_eq!(say(&mut world, LAST, 4..7), None, "nothing new from the others");
        assert_eq!(say(&mut world, 2, 0..4), None);
        assert_eq!(say(&mut world, 2, 7..10), Some((0..10).collect()));
        assert_eq!(say(&mut world, LAST, 0..10), None, "the end has a report of its own");
    }

    #[test]
    fn the_moment_of_all_ranks_reaches_the_root() {
        let mut world = World::of(10);
        world.each(|rank, member, _| {
            member.tell(Moment { ops: [u64::from(rank), 0, 0], clones: (1, 1), ..Moment::default() });
        });
        let told = |world: &World| world.members[0].as_ref().unwrap().moment().ranks == 10;
        assert!(world.until(told) < 2_000_000_000);
        assert_eq!(world.members[0].as_ref().unwrap().moment().ops[0], 45);
    }
}
