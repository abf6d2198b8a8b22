//! One rank's handle to all others, and the thread that carries its messages.
//!
//! The courier is the only thread that touches the link (MPI wants it so), and it never waits in it: however long the
//! load or a file system keeps the rest of the program busy, the others hear that this rank is alive.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Offset;
use crate::link::Link;
use crate::member::{Member, Merge};
use crate::message::{self, FINAL, Moment, Round, Trouble};

/// Everyone was told to stop: what went wrong is in [`Team::troubles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// The state of a gate, as this rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Others are still to come.
    Wait,
    /// The gate opens, or has opened, at this moment of this rank's clock, in nanoseconds.
    Open(u64),
    /// The gate will never open: everyone is to stop.
    Closed,
}

/// The end of a run, as this rank reports it.
#[derive(Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// This rank speaks for all: the merged parts, and the ranks of which nothing came.
    Speak(Vec<u8>, Vec<u32>),
    /// Another rank speaks for all.
    Silent,
}

/// The name of this rank's host, and facts that ranks compare.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name of the host on which the rank runs.
    pub host: String,
    /// A number that tells hosts with separate clocks apart: see [`machine_number`].
    pub machine: u64,
    /// The program's version and orders: all ranks must have the same.
    pub version: String,
    /// The time that the launcher leaves this rank between SIGTERM and SIGKILL: see [`grace`](crate::launch::grace).
    pub grace: Duration,
}

/// The flags that the courier shares with the rest of the program.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Set by a signal that ends the program.
    pub signalled: Arc<AtomicBool>,
    /// Set when this rank is to stop, whatever the reason.
    pub stop: Arc<AtomicBool>,
}

/// This rank among all others.
pub struct Team {
    rank: u32,
    size: u32,
    identity: Identity,
    hosts: Vec<String>,
    /// Exchanges so far: gates and exchanges are numbered from it, the same on all ranks.
    epoch: Cell<u64>,
    shared: Arc<Shared>,
    courier: Option<JoinHandle<()>>,
}

struct Shared {
    member: Mutex<Member>,
    now_ns: Box<dyn Fn() -> u64 + Send + std::marker::Sync>,
    flags: Flags,
    leaving: AtomicU8,
}

const STAYS: u8 = 0;
const LEAVES_WELL: u8 = 1;
const LEAVES_AT_ONCE: u8 = 2;

/// The objection of a rank that cannot take part: its rank, and why, in one line.
type Objections = Vec<(u32, String)>;

fn merge_lists<T: Serialize + DeserializeOwned>(parts: Vec<Vec<u8>>) -> Vec<u8> {
    let lists = parts.iter().filter_map(|part| postcard::from_bytes::<Vec<T>>(part).ok());
    let all: Vec<T> = lists.flatten().collect();
    postcard::to_stdvec(&all).unwrap_or_default()
}

impl Team {
    /// Joins the others through the link that `connect` makes; it is called on the thread that will use it.
    ///
    /// # Errors
    /// The errors of `connect`; ranks of other versions, named with their hosts.
    pub fn join<L: Link>(
        connect: impl FnOnce() -> Result<L, String> + Send + 'static,
        identity: Identity,
        flags: Flags,
        now_ns: impl Fn() -> u64 + Send + std::marker::Sync + 'static,
    ) -> Result<Team, String> {
        let (tell, told) = sync_channel(1);
        let (machine, grace_ns) = (identity.machine, identity.grace.as_nanos() as u64);
        let courier = std::thread::Builder::new().name("courier".into()).spawn(move || {
            let mut link = match connect() {
                Ok(link) => link,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let member = Member::new(link.rank(), link.size(), machine, now_ns()).with_grace(grace_ns);
            let shared =
                Shared { member: Mutex::new(member), now_ns: Box::new(now_ns), flags, leaving: AtomicU8::new(STAYS) };
            let shared = Arc::new(shared);
            let _ = tell.send(Ok((link.rank(), link.size(), Arc::clone(&shared))));
            carry(&mut link, &shared);
        });
        let courier = courier.map_err(|error| format!("cannot start a thread: {error}"))?;
        let lost = |_| "the thread that carries messages ended: this is a defect of plimsoll, please report it".into();
        let (rank, size, shared) = told.recv().map_err(lost).and_then(|told| told)?;
        let mut team =
            Team { rank, size, identity, hosts: Vec::new(), epoch: Cell::new(0), shared, courier: Some(courier) };
        match team.introduce() {
            Ok(()) => Ok(team),
            Err(error) => {
                team.leave();
                Err(error)
            }
        }
    }

    /// Everyone says who it is; everyone learns who the others are.
    fn introduce(&mut self) -> Result<(), String> {
        let me = (self.rank, self.identity.host.clone(), self.identity.version.clone());
        let all = self.exchange(&vec![me], merge_lists::<(u32, String, String)>, |mut all| {
            all.sort();
            all
        });
        let all = all.map_err(|_| self.troubles_in_words())?;
        self.hosts = all.iter().map(|(_, host, _)| host.clone()).collect();
        let Some((_, host, first)) = all.first() else { return Err("no rank has said who it is".into()) };
        let others: Vec<String> = all
            .iter()
            .filter(|(.., version)| version != first)
            .take(4)
            .map(|(rank, host, version)| format!("{version} on {host} (rank {rank})"))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(format!(
            "different versions of plimsoll or different commands: {first} on {host} (rank 0), but {}; install the same on \
             all hosts, and give all ranks the same options",
            others.join(", ")
        ))
    }

    /// The number of this rank: 0 is the leader.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks of the run.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The name of the host of a rank.
    pub fn host(&self, rank: u32) -> &str {
        self.hosts.get(rank as usize).map_or("", String::as_str)
    }

    /// True if this rank speaks for all.
    pub fn is_leader(&self) -> bool {
        self.member().is_root()
    }

    /// In which turn this rank does what only one should do first: 0 the first of all, 1 the first of its host, 2.
    pub fn turn(&self) -> u32 {
        match self.hosts.iter().position(|host| *host == self.identity.host) {
            _ if self.rank == 0 => 0,
            Some(first) if first == self.rank as usize => 1,
            _ => 2,
        }
    }

    /// The troubles so far, rank by rank.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.member().troubles().to_vec()
    }

    fn troubles_in_words(&self) -> String {
        let troubles = self.troubles();
        let words = troubles.iter().map(|trouble| format!("rank {} {}", trouble.rank, trouble.what));
        if troubles.is_empty() { "stopped".into() } else { words.collect::<Vec<_>>().join("; ") }
    }

    /// Something went wrong here, in one line: everyone is to stop.
    pub fn report(&self, what: &str) {
        let now_ns = self.now_ns();
        self.member().report(what.to_owned(), now_ns);
    }

    /// Sends the activity of this rank to the other ranks.
    pub fn set_moment(&self, moment: Moment) {
        self.member().set_moment(moment);
    }

    /// The sum of what all ranks are doing, as far as this rank knows: the leader knows all of it.
    pub fn moment(&self) -> Moment {
        self.member().moment()
    }

    /// Sends the measurements of this rank so far to the other ranks: statement `number`, from 1, or
    /// [`LAST_STATEMENT`](crate::LAST_STATEMENT).
    pub fn state(&self, number: u64, bytes: Vec<u8>, merge: impl Fn(Vec<Vec<u8>>) -> Vec<u8> + Send + 'static) {
        self.member().state(number, bytes, Box::new(merge));
    }

    /// At the leader: the merged measurements of all ranks so far; None where there is nothing new.
    pub fn take_statement(&self) -> Option<Vec<u8>> {
        self.member().take_statement()
    }

    /// Comes to the gate number `stage` of the present epoch. To be asked again until it is not [`Gate::Wait`].
    pub fn gate(&self, stage: u32) -> Gate {
        let now_ns = self.now_ns();
        let round = self.epoch.get() << 32 | (u64::from(stage) + 1);
        let mut member = self.member();
        if member.is_stopped() {
            return Gate::Closed;
        }
        member.come_to(round, now_ns);
        let Some(at_ns) = member.opened(round) else { return Gate::Wait };
        let at_ns = member.onward().unwrap_or_default().here(at_ns);
        if at_ns > now_ns + FARTHEST_NS {
            let late_s = (at_ns - now_ns) / 1_000_000_000;
            let what =
                format!("cannot begin with the others: by its clock, which was set since, the start is in {late_s} s");
            member.report(what, now_ns);
            return Gate::Closed;
        }
        Gate::Open(at_ns)
    }

    /// Compares this rank's clock with the leader's. The time by which the leader's clock is ahead, with its
    /// uncertainty.
    ///
    /// # Errors
    /// `Stopped` if everyone was told to stop.
    pub fn compare_clocks(&self) -> Result<Offset, Stopped> {
        let now_ns = self.now_ns();
        self.member().compare_clocks(now_ns);
        let offset = self.wait(|member| member.onward(), Member::is_stopped)?;
        Ok(offset)
    }

    /// All hand over a value; the leader makes of all of them, merged, what everyone gets.
    ///
    /// # Errors
    /// `Stopped` if everyone was told to stop.
    pub fn exchange<P: Serialize + DeserializeOwned>(
        &self,
        part: &P,
        merge: impl Fn(Vec<Vec<u8>>) -> Vec<u8> + Send + 'static,
        decide: impl FnOnce(P) -> P,
    ) -> Result<P, Stopped> {
        let whole = self.gather(part, merge)?;
        match whole {
            Some(whole) => {
                let decided = decide(whole);
                self.give(&decided);
                Ok(decided)
            }
            None => self.take(),
        }
    }

    /// All hand over a value; the leader gets them merged, the others None. Then [`Team::give`] or [`Team::take`]: an
    /// exchange has an answer.
    ///
    /// # Errors
    /// `Stopped` if everyone was told to stop.
    pub fn gather<P: Serialize + DeserializeOwned>(
        &self,
        part: &P,
        merge: impl Fn(Vec<Vec<u8>>) -> Vec<u8> + Send + 'static,
    ) -> Result<Option<P>, Stopped> {
        let round = self.next_round();
        let bytes = postcard::to_stdvec(part).unwrap_or_default();
        let now_ns = self.now_ns();
        self.member().hand_over(round, bytes, Box::new(merge) as Merge, now_ns);
        if !self.is_leader() {
            return Ok(None);
        }
        let whole = self.wait(|member| member.take_whole(round), Member::is_stopped)?;
        Ok(postcard::from_bytes(&whole).ok())
    }

    /// At the leader: the answer of the last gathering, to everyone.
    pub fn give<A: Serialize>(&self, answer: &A) {
        let bytes = postcard::to_stdvec(answer).unwrap_or_default();
        self.member().answer(self.epoch.get() << 32, bytes);
    }

    /// The answer of the last gathering.
    ///
    /// # Errors
    /// `Stopped` if everyone was told to stop.
    pub fn take<A: DeserializeOwned>(&self) -> Result<A, Stopped> {
        let round = self.epoch.get() << 32;
        let bytes = self.wait(|member| member.take_answer(round), Member::is_stopped)?;
        postcard::from_bytes(&bytes).map_err(|_| Stopped)
    }

    /// Sends the leader's word to all ranks. `mine` is this word at the leader, and None at the other ranks.
    ///
    /// # Errors
    /// `Stopped` if everyone was told to stop.
    pub fn announce<T: Serialize + DeserializeOwned>(&self, mine: Option<T>) -> Result<T, Stopped> {
        let (round, now_ns) = (self.next_round(), self.now_ns());
        self.member().pass(round, now_ns);
        match mine {
            Some(mine) if self.member().is_stopped() => drop(mine),
            Some(mine) => {
                self.give(&mine);
                return Ok(mine);
            }
            None => return self.take(),
        }
        Err(Stopped)
    }

    /// Everyone says whether it can take part. Empty if all can; otherwise who cannot, and why, on every rank.
    ///
    /// # Errors
    /// `Stopped` if everyone was told to stop.
    pub fn objections(&self, mine: Option<String>) -> Result<Objections, Stopped> {
        let mine: Objections = mine.into_iter().map(|why| (self.rank, why)).collect();
        self.exchange(&mine, merge_lists::<(u32, String)>, |mut all| {
            all.sort();
            all
        })
    }

    fn next_round(&self) -> Round {
        self.epoch.set(self.epoch.get() + 1);
        self.epoch.get() << 32
    }

    /// Ends the run: every rank hands over its measurements, also after a failure, and the rank that speaks for all
    /// gets them merged. It then calls [`Team::farewell`].
    pub fn conclude(
        &self,
        bytes: Vec<u8>,
        merge: impl Fn(Vec<Vec<u8>>) -> Vec<u8> + Send + Clone + 'static,
    ) -> Conclusion {
        let now_ns = self.now_ns();
        self.member().hand_over(FINAL, bytes.clone(), Box::new(merge.clone()), now_ns);
        loop {
            let now_ns = self.now_ns();
            let mut member = self.member();
            if member.is_urgent() {
                member.send_partial(&bytes);
                if let Some(partials) = member.take_partials(now_ns) {
                    drop(member);
                    let missing = (0..self.size).filter(|rank| !partials.contains_key(rank)).collect();
                    return Conclusion::Speak(merge(partials.into_values().collect()), missing);
                }
                if member.is_past_hope(now_ns) {
                    return Conclusion::Silent;
                }
            } else if let Some(whole) = member.take_whole(FINAL) {
                if !member.counts() {
                    member.answer(FINAL, Vec::new());
                    return Conclusion::Silent;
                }
                let lost: Vec<u32> = member.troubles().iter().filter(|t| t.lost).map(|t| t.rank).collect();
                return Conclusion::Speak(whole, lost);
            }
            if member.take_answer(FINAL).is_some() {
                return Conclusion::Silent;
            }
            drop(member);
            std::thread::sleep(LOOK);
        }
    }

    /// At the one that speaks for all: the others may go.
    pub fn farewell(&self) {
        self.member().answer(FINAL, Vec::new());
    }

    /// Leaves the others. True if the link was ended in good order: no rank was lost, and nobody is in a hurry.
    pub fn leave(mut self) -> bool {
        let member = self.member();
        let well = !member.is_urgent() && member.troubles().iter().all(|trouble| !trouble.lost);
        drop(member);
        self.shared.leaving.store(if well { LEAVES_WELL } else { LEAVES_AT_ONCE }, Relaxed);
        if let Some(courier) = self.courier.take() {
            let _ = courier.join(); // it does not panic; if it did, there is nobody left to tell
        }
        well
    }

    fn wait<T>(
        &self,
        look: impl Fn(&mut Member) -> Option<T>,
        give_up: impl Fn(&Member) -> bool,
    ) -> Result<T, Stopped> {
        loop {
            let mut member = self.member();
            if let Some(found) = look(&mut member) {
                return Ok(found);
            }
            if give_up(&member) {
                return Err(Stopped);
            }
            drop(member);
            std::thread::sleep(LOOK);
        }
    }

    fn member(&self) -> MutexGuard<'_, Member> {
        self.shared.member.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        (self.shared.now_ns)()
    }
}

/// A gate opens less than a second after the last rank has come to it: a moment that is farther away is none.
const FARTHEST_NS: u64 = 10_000_000_000;
/// The time between two looks of a rank that waits at a gate.
const LOOK: Duration = Duration::from_micros(500);
/// The time between two looks for messages while the load runs, when nobody waits for the courier.
const AT_EASE: Duration = Duration::from_millis(5);

/// Carries messages until the rank leaves.
fn carry(link: &mut impl Link, shared: &Shared) {
    // Many ranks on one host must leave it some time for what they wait for.
    let awaited = Duration::from_micros(100 + 10 * u64::from(link.size()).min(200));
    loop {
        let leaving = shared.leaving.load(Relaxed);
        let mut any = false;
        let mut member = shared.member.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.flags.signalled.load(Relaxed) {
            member.urge((shared.now_ns)());
        }
        while let Some((from, bytes)) = link.receive() {
            any = true;
            let now_ns = (shared.now_ns)();
            match message::read(&bytes) {
                Some((message, rest)) => member.hear(from, message, rest, now_ns),
                None => member
                    .report(format!("does not understand rank {from}: another build of plimsoll runs there"), now_ns),
            }
            send(link, &mut member);
        }
        let now_ns = (shared.now_ns)();
        member.tick(now_ns);
        send(link, &mut member);
        if member.is_stopped() {
            shared.flags.stop.store(true, Relaxed);
        }
        let (comparing, awaiting) = (member.is_comparing(now_ns), member.is_awaiting());
        drop(member);
        if leaving != STAYS {
            break;
        }
        match (any || comparing, awaiting) {
            (true, _) => std::thread::yield_now(),
            (_, true) => std::thread::sleep(awaited),
            _ => std::thread::sleep(AT_EASE),
        }
    }
    if shared.leaving.load(Relaxed) == LEAVES_WELL {
        link.close();
    }
}

fn send(link: &mut impl Link, member: &mut Member) {
    for (to, message, bytes) in member.take_outgoing() {
        link.send(to, message::written(&message, &bytes));
    }
}

/// A number that is the same for ranks that share a clock: one boot of one host, under one name. Containers and
/// namespaces with names of their own count as hosts of their own.
pub fn machine_number(host: &str) -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // A time namespace moves the clocks of its processes: time_namespaces(7).
    let moved = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    measure::fingerprint(host.bytes().chain([0]).chain(boot.trim().bytes()).chain([0]).chain(moved.bytes()))
}
