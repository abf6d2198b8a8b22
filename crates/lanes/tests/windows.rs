//! The question of docs/decisions/windows-of-lanes.md, in virtual time: is a lane's window, found by the law of `pace`,
//! of any use to the choice of a lane? `cargo test -p lanes --test windows -- --nocapture` prints the table.
//!
//! The window is soft: a lane past its window is passed over while another lane is not, and no request is refused.

use std::collections::BTreeMap;

use lanes::{Lanes, Outcome, Policy, Pool, Refusal, Ticket, Traffic};
use pace::{Admission, Admit, AutoPacer, Limits, Op, OpId, Tuning};

const SECOND: u64 = 1_000_000_000;
/// A request takes this long on the way, beside its time at the server.
const WAY_NS: u64 = 200_000;

/// A server that carries out one request after the other.
#[derive(Clone, Copy)]
struct Server {
    bytes_per_s: f64,
    /// From this many requests on the server slows down, in proportion to the requests beyond.
    collapses_from: usize,
    /// The rate is multiplied by this in every other second.
    changes_by: f64,
}

const EVEN: Server = Server { bytes_per_s: 50e6, collapses_from: usize::MAX, changes_by: 1.0 };
const TENTH: Server = Server { bytes_per_s: 5e6, ..EVEN };

impl Server {
    fn takes_ns(&self, bytes: u64, now_ns: u64, in_flight: usize) -> u64 {
        let changed = if now_ns / SECOND % 2 == 1 { self.changes_by } else { 1.0 };
        let beyond = in_flight.saturating_sub(self.collapses_from) as f64 / self.collapses_from as f64;
        (bytes as f64 * 1e9 / (self.bytes_per_s * changed / (1.0 + 2.0 * beyond))) as u64
    }
}

/// The choice of a lane that is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    RoundRobin,
    LeastLoaded,
    /// Least loaded, with the window of `pace` on each lane.
    Paced,
}

struct Lane {
    server: Server,
    free_at_ns: u64,
    in_flight: usize,
    bytes: u64,
    pacer: Box<dyn Admission>,
    /// Requests that the pacer would have held, and their handles there.
    held: BTreeMap<u64, OpId>,
    /// Requests that the pacer has let through.
    gone: BTreeMap<u64, OpId>,
}

impl Lane {
    fn has_room(&self, bytes: u64) -> bool {
        self.in_flight == 0 || self.bytes + bytes <= self.pacer.window_bytes()
    }

    /// Asks the pacer about a request; the answer does not stop it.
    fn ask(&mut self, now_ns: u64, cookie: u64, bytes: u64) {
        let op = Op { drive: 0, tenant: 0, queue: 0, bytes: bytes as u32, write: false, admin: false, cookie };
        match self.pacer.admit(now_ns, op) {
            Admit::Go(id) => drop(self.gone.insert(cookie, id)),
            Admit::Held(id) => drop(self.held.insert(cookie, id)),
            Admit::Refused(_) => {}
        }
    }

    fn ended(&mut self, now_ns: u64, cookie: u64) {
        if let Some(id) = self.gone.remove(&cookie) {
            self.pacer.complete(now_ns, id);
        } else if let Some(id) = self.held.remove(&cookie) {
            self.pacer.abort(now_ns, id);
        }
        while let Some(released) = self.pacer.poll(now_ns) {
            self.held.remove(&released.cookie);
            self.gone.insert(released.cookie, released.id);
        }
    }
}

struct Result {
    /// The throughput as a part of the sum of all servers at their best.
    share: f64,
    p99_ns: u64,
}

/// A closed loop of `depth` requests for eight seconds, of which the last six count.
fn run(choice: Choice, servers: &[Server], depth: usize, sizes: &[u64]) -> Result {
    let policy = if choice == Choice::RoundRobin { Policy::RoundRobin } else { Policy::LeastLoaded };
    let paths = (0..servers.len()).map(|lane| format!("/lane/{lane}").into());
    let traffic = Traffic::new(&Pool { policy, ..Pool::new("p", paths) });
    // The law of every pacer, from the smallest window on: 8 MiB are more than a lane often has in flight.
    let tuning = Tuning { start_bytes: Tuning::default().floor_bytes, ..Tuning::default() };
    let limits = Limits { ops: 4096, ..Limits::default() };
    let mut lanes: Vec<Lane> = servers
        .iter()
        .map(|&server| Lane {
            server,
            free_at_ns: 0,
            in_flight: 0,
            bytes: 0,
            pacer: Box::new(AutoPacer::new(limits, tuning, None)),
            held: BTreeMap::new(),
            gone: BTreeMap::new(),
        })
        .collect();
    let all = Lanes::first(servers.len());
    let (from_ns, end_ns) = (2 * SECOND, 8 * SECOND);
    let (mut now_ns, mut number, mut random) = (0, 0, 1u64);
    let mut under_way: BTreeMap<(u64, u64), (Ticket, u64)> = BTreeMap::new();
    let (mut moved, mut latencies) = (0, Vec::new());
    loop {
        while under_way.len() < depth {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = sizes[(random >> 33) as usize % sizes.len()];
            let room = (0..lanes.len()).filter(|&at| lanes[at].has_room(bytes)).fold(Lanes::NONE, Lanes::with);
            let among = if choice == Choice::Paced && room != Lanes::NONE { room } else { all };
            let ticket = match traffic.admit(bytes, among, now_ns) {
                Ok(ticket) => ticket,
                Err(Refusal::Full | Refusal::NoneInService) => traffic.begin(0, bytes, now_ns),
            };
            if choice == Choice::Paced {
                // A lane that was passed over learns that its window was the limit.
                for at in (0..lanes.len()).filter(|&at| !room.has(at)) {
                    lanes[at].ask(now_ns, number, bytes);
                    lanes[at].ended(now_ns, number);
                }
                lanes[ticket.lane].ask(now_ns, number, bytes);
            }
            let lane = &mut lanes[ticket.lane];
            lane.in_flight += 1;
            lane.bytes += bytes;
            let begins_ns = lane.free_at_ns.max(now_ns);
            lane.free_at_ns = begins_ns + lane.server.takes_ns(bytes, begins_ns, lane.in_flight);
            under_way.insert((lane.free_at_ns + WAY_NS, number), (ticket, number));
            number += 1;
        }
        let ((at_ns, _), (ticket, cookie)) = under_way.pop_first().unwrap();
        if at_ns > end_ns {
            break;
        }
        now_ns = at_ns;
        let latency_ns = traffic.end(ticket, Outcome::Done, now_ns);
        let lane = &mut lanes[ticket.lane];
        lane.in_flight -= 1;
        lane.bytes -= ticket.bytes;
        if choice == Choice::Paced {
            lane.ended(now_ns, cookie);
        }
        if now_ns > from_ns {
            moved += ticket.bytes;
            latencies.push(latency_ns);
        }
    }
    latencies.sort_unstable();
    let best: f64 = servers.iter().map(|server| server.bytes_per_s * (1.0 + server.changes_by) / 2.0).sum();
    let seconds = (end_ns - from_ns) as f64 / 1e9;
    Result { share: moved as f64 / seconds / best, p99_ns: latencies[latencies.len() * 99 / 100] }
}

const SMALL: &[u64] = &[4096];
const LARGE: &[u64] = &[65536];
const MIXED: &[u64] = &[4096, 4096, 65536, 1 << 20];

#[test]
fn the_window_of_pace_on_each_lane() {
    let collapsing = Server { collapses_from: 8, ..EVEN };
    let kinds: [(&str, [Server; 4]); 5] = [
        ("equal", [EVEN; 4]),
        ("one at a tenth", [EVEN, EVEN, EVEN, TENTH]),
        ("one changes", [EVEN, EVEN, EVEN, Server { changes_by: 0.1, ..EVEN }]),
        ("one collapses", [EVEN, EVEN, EVEN, collapsing]),
        ("all collapse", [collapsing; 4]),
    ];
    println!("lanes           bytes  depth   share of the sum: turns  loaded  paced   p99 ms: turns  loaded   paced");
    let (mut worse, mut better) = (0, 0);
    // The shares of equal lanes, which tell at which depths there are enough requests for all lanes.
    let mut of_equal = BTreeMap::new();
    for (name, servers) in kinds {
        for (words, sizes) in [("4k", SMALL), ("64k", LARGE), ("mixed", MIXED)] {
            for depth in [1, 4, 16, 64, 256] {
                let [turns, loaded, paced] = [Choice::RoundRobin, Choice::LeastLoaded, Choice::Paced]
                    .map(|choice| run(choice, &servers, depth, sizes));
                let ms = |result: &Result| result.p99_ns as f64 / 1e6;
                println!(
                    "{name:15} {words:>5} {depth:>6} {:>24.3} {:>7.3} {:>6.3} {:>14.2} {:>7.2} {:>7.2}",
                    turns.share,
                    loaded.share,
                    paced.share,
                    ms(&turns),
                    ms(&loaded),
                    ms(&paced),
                );
                worse += usize::from(paced.share < loaded.share * 0.97 || ms(&paced) > ms(&loaded) * 1.05);
                better += usize::from(paced.share > loaded.share * 1.03 || ms(&paced) < ms(&loaded) * 0.95);
                if name == "equal" {
                    of_equal.insert((words, depth), loaded.share);
                }
                if name == "one at a tenth" && of_equal[&(words, depth)] > 0.99 {
                    assert!(loaded.share >= 0.9, "{words}, depth {depth}: {:.3} of the sum", loaded.share);
                    assert!(loaded.p99_ns <= turns.p99_ns, "{words}, depth {depth}: the slow lane holds requests");
                }
            }
        }
    }
    assert!(worse > better, "{worse} worse, {better} better: decide again");
    println!("with the windows, {worse} of 75 are worse by 3 % of the sum or 5 % of the p99, and {better} are better");
}
