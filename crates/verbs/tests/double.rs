//! The fabric in memory keeps the rules of reliable connections: memory is reached by valid keys only, errors end one
//! connection, and queues have the places that they were made with.

use verbs::double::{CompletionQueue, Domain, Fabric, Pair, PairOptions, Region};
use verbs::work::{Access, Completion, Part, Receive, Request, Status, Work};

const LOCAL: Access = Access { local_write: true, remote_read: false, remote_write: false };
const READ: Access = Access { local_write: true, remote_read: true, remote_write: false };
const BOTH: Access = Access { local_write: true, remote_read: true, remote_write: true };

/// Memory of 16 bytes with its registration, which ends first.
struct Memory {
    region: Region,
    bytes: *mut [u8],
}

impl Memory {
    fn new(side: &Side, content: [u8; 16], access: Access) -> Memory {
        let bytes: *mut [u8] = Box::into_raw(Box::new(content));
        // SAFETY: the memory is never freed, and is looked at between polls only.
        let region = unsafe { side.fabric.register(side.domain, bytes, access) }.expect("registered");
        Memory { region, bytes }
    }

    fn address(&self) -> u64 {
        self.bytes.cast::<u8>().addr() as u64
    }

    fn part(&self, offset: u64, length: u32) -> Part {
        Part { address: self.address() + offset, length, key: self.region.key() }
    }

    fn content(&self) -> Vec<u8> {
        // SAFETY: the memory is never freed, and nothing polls meanwhile.
        unsafe { &*self.bytes }.to_vec()
    }
}

/// One end: a domain of its own, a completion queue, and a queue pair of four sends and four receives.
struct Side {
    fabric: Fabric,
    domain: Domain,
    completions: CompletionQueue,
    pair: Pair,
}

impl Side {
    fn new(fabric: &Fabric) -> Side {
        let (domain, completions) = (fabric.domain(), fabric.completion_queue(64));
        let pair = fabric.pair(options(domain, completions));
        Side { fabric: fabric.clone(), domain, completions, pair }
    }

    fn send(&self, id: u64, request: Request, parts: &[Part]) {
        let work = Work { id, request, parts, signaled: true };
        self.fabric.post_send(self.pair, work).expect("a place");
    }

    fn receive(&self, id: u64, part: Part) {
        self.fabric.post_receive(self.pair, Receive { id, parts: &[part] }).expect("a place");
    }

    /// The completions by number and status.
    fn ends(&self) -> Vec<(u64, Status)> {
        self.poll().iter().map(|completion| (completion.id, completion.status)).collect()
    }

    fn poll(&self) -> Vec<Completion> {
        self.fabric.poll(self.completions, 64).expect("no overrun")
    }
}

fn options(domain: Domain, completions: CompletionQueue) -> PairOptions {
    PairOptions { domain, completions, shared: None, sends: 4, receives: 4, no_receive_tries: None }
}

/// A target and a host that are connected.
fn connected() -> (Side, Side) {
    let fabric = Fabric::default();
    let (target, host) = (Side::new(&fabric), Side::new(&fabric));
    fabric.connect(target.pair, host.pair).expect("fresh");
    (target, host)
}

const MESSAGE: Request = Request::Send { invalidate: None };
const COUNT: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

#[test]
fn a_message_fills_the_next_receive_and_says_its_length() {
    let (target, host) = connected();
    let (from, to) = (Memory::new(&host, COUNT, Access::default()), Memory::new(&target, [0; 16], LOCAL));
    target.receive(7, to.part(2, 8));
    host.send(1, MESSAGE, &[from.part(10, 2), from.part(0, 3)]);
    assert_eq!(host.ends(), [(1, Status::Success)]);
    let end = target.poll();
    let received = Completion {
        id: 7,
        pair: target.pair.number(),
        received: true,
        status: Status::Success,
        length: 5,
        invalidated: None,
    };
    assert_eq!(end, [received]);
    assert_eq!(to.content(), [0, 0, 11, 12, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

/// Every range in and around a region of 16 bytes: what lies inside is done exactly, all else is refused and changes
/// nothing.
#[test]
fn reads_and_writes_reach_the_bytes_of_their_key_and_no_others() {
    for write in [false, true] {
        for start in -2..=17_i64 {
            for length in 1..=18_u32 {
                let (target, host) = connected();
                let mine = Memory::new(&target, [0xee; 16], LOCAL);
                let spare = Memory::new(&target, [0xee; 16], LOCAL);
                let theirs = Memory::new(&host, COUNT, BOTH);
                let (address, key) = (theirs.address().wrapping_add_signed(start), theirs.region.key());
                let request = if write { Request::Write { address, key } } else { Request::Read { address, key } };
                let first = length.min(16);
                target.send(1, request, &[mine.part(0, first), spare.part(0, length - first)]);
                let inside = start >= 0 && start + i64::from(length) <= 16;
                let status = if inside { Status::Success } else { Status::RemoteAccess };
                assert_eq!(target.ends(), [(1, status)], "{start} {length}");
                let (mut here, mut there) = ([0xee; 16], COUNT);
                if inside {
                    let (start, length) = (start as usize, length as usize);
                    match write {
                        true => there[start..start + length].fill(0xee),
                        false => here[..length].copy_from_slice(&COUNT[start..start + length]),
                    }
                }
                assert_eq!((mine.content(), theirs.content()), (here.to_vec(), there.to_vec()), "{start} {length}");
                assert_eq!((target.fabric.failed(target.pair), host.fabric.failed(host.pair)), (!inside, !inside));
            }
        }
    }
}

/// Makes an address and a key for the target from its side and the host's, and the memory if it stays registered.
type WrongKey = fn(&Side, &Side) -> (u64, u32, Option<Memory>);

#[test]
fn keys_that_do_not_open_the_memory_end_their_connection_alone() {
    let wrong_keys: [WrongKey; 4] = [
        // A key that nobody has.
        |_, host| {
            let memory = Memory::new(host, COUNT, BOTH);
            (memory.address(), memory.region.key() ^ 1, Some(memory))
        },
        // A key that only allows to read.
        |_, host| {
            let memory = Memory::new(host, COUNT, READ);
            (memory.address(), memory.region.key(), Some(memory))
        },
        // The key of another domain.
        |target, _| {
            let memory = Memory::new(target, COUNT, BOTH);
            (memory.address(), memory.region.key(), Some(memory))
        },
        // A key whose registration has ended.
        |_, host| {
            let memory = Memory::new(host, COUNT, BOTH);
            (memory.address(), memory.region.key(), None)
        },
    ];
    for (case, wrong_key) in wrong_keys.iter().enumerate() {
        let (target, host) = connected();
        let mine = Memory::new(&target, [0xee; 16], LOCAL);
        let bystanders = {
            let fabric = &target.fabric;
            let one = fabric.pair(options(target.domain, target.completions));
            let other = fabric.pair(options(host.domain, host.completions));
            fabric.connect(one, other).expect("fresh");
            (one, other)
        };
        let (address, key, memory) = wrong_key(&target, &host);
        target.send(1, Request::Write { address, key }, &[mine.part(0, 4)]);
        target.send(2, MESSAGE, &[mine.part(0, 4)]);
        assert_eq!(target.ends(), [(1, Status::RemoteAccess), (2, Status::Flushed)], "{case}");
        assert!(memory.is_none_or(|memory| memory.content() == COUNT), "{case}");
        assert!(target.fabric.failed(target.pair) && target.fabric.failed(host.pair), "{case}");
        assert!(!target.fabric.failed(bystanders.0) && !target.fabric.failed(bystanders.1), "{case}");
        // The queue pair stays in error: later work is flushed, on both sides.
        target.send(3, MESSAGE, &[mine.part(0, 4)]);
        host.receive(4, mine.part(0, 4));
        assert_eq!((target.ends(), host.ends()), (vec![(3, Status::Flushed)], vec![(4, Status::Flushed)]), "{case}");
    }
}

#[test]
fn a_message_waits_for_a_receive_and_fails_after_its_tries() {
    let (target, host) = connected();
    let (from, to) = (Memory::new(&host, COUNT, LOCAL), Memory::new(&target, [0; 16], LOCAL));
    host.send(1, MESSAGE, &[from.part(0, 4)]);
    for _ in 0..100 {
        assert_eq!(host.ends(), []);
    }
    target.receive(2, to.part(0, 4));
    assert_eq!((host.ends(), target.ends()), (vec![(1, Status::Success)], vec![(2, Status::Success)]));

    let fabric = &target.fabric;
    let limited = PairOptions { no_receive_tries: Some(3), ..options(host.domain, host.completions) };
    let (one, other) = (fabric.pair(limited), fabric.pair(options(target.domain, target.completions)));
    fabric.connect(one, other).expect("fresh");
    let work = Work { id: 5, request: MESSAGE, parts: &[from.part(0, 4)], signaled: false };
    fabric.post_send(one, work).expect("a place");
    for _ in 0..3 {
        assert_eq!(host.ends(), []);
    }
    assert_eq!(host.ends(), [(5, Status::NoReceive)]);
    assert!(fabric.failed(one) && !fabric.failed(host.pair));
}

#[test]
fn places_of_the_send_queue_are_free_when_a_later_completion_has_been_polled() {
    let (target, host) = connected();
    let (mine, theirs) = (Memory::new(&target, COUNT, LOCAL), Memory::new(&host, [0; 16], BOTH));
    let request = Request::Write { address: theirs.address(), key: theirs.region.key() };
    let parts = [mine.part(0, 4)];
    let work = |id, signaled| Work { id, request, parts: &parts, signaled };
    let post = |id, signaled| target.fabric.post_send(target.pair, work(id, signaled)).map_err(|e| e.raw_os_error());
    for id in 0..3 {
        assert_eq!(post(id, false), Ok(()));
    }
    assert_eq!(target.ends(), []);
    assert_eq!(theirs.content()[..4], COUNT[..4]);
    assert_eq!(post(3, true), Ok(()));
    assert_eq!(post(4, true), Err(Some(libc::ENOMEM)));
    assert_eq!(host.ends(), [], "the work is done, and its completion is not polled");
    assert_eq!(post(4, true), Err(Some(libc::ENOMEM)));
    assert_eq!(target.ends(), [(3, Status::Success)]);
    for id in 4..8 {
        assert_eq!(post(id, true), Ok(()));
    }
    assert_eq!(post(8, true), Err(Some(libc::ENOMEM)));
}

#[test]
fn a_message_ends_the_key_that_it_names() {
    let (target, host) = connected();
    let (mine, theirs) = (Memory::new(&target, COUNT, LOCAL), Memory::new(&host, [0; 16], BOTH));
    let key = theirs.region.key();
    let request = Request::Write { address: theirs.address(), key };
    host.receive(1, theirs.part(8, 8));
    target.send(2, request, &[mine.part(0, 4)]);
    target.send(3, Request::Send { invalidate: Some(key) }, &[mine.part(4, 4)]);
    assert_eq!(target.ends(), [(2, Status::Success), (3, Status::Success)]);
    assert_eq!(host.poll()[0].invalidated, Some(key));
    assert_eq!(theirs.content(), [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0]);
    target.send(4, request, &[mine.part(8, 4)]);
    assert_eq!(target.ends(), [(4, Status::RemoteAccess)]);
    assert_eq!(theirs.content()[..4], COUNT[..4]);

    // A key that is not the peer's own ends the connection, and stays as it is.
    let (target, host) = connected();
    let (mine, theirs) = (Memory::new(&target, COUNT, BOTH), Memory::new(&host, [0; 16], LOCAL));
    host.receive(1, theirs.part(0, 16));
    target.send(2, Request::Send { invalidate: Some(mine.region.key()) }, &[mine.part(0, 4)]);
    assert_eq!(target.ends(), [(2, Status::RemoteAccess)]);
    assert_eq!(theirs.content(), [0; 16]);
}

#[test]
fn a_message_that_does_not_fit_and_parts_without_rights_fail_both_ways() {
    let (target, host) = connected();
    let (mine, theirs) = (Memory::new(&target, [0; 16], LOCAL), Memory::new(&host, COUNT, LOCAL));
    target.receive(1, mine.part(0, 4));
    host.send(2, MESSAGE, &[theirs.part(0, 5)]);
    assert_eq!(host.ends(), [(2, Status::RemoteInvalidRequest)]);
    assert_eq!((target.ends(), mine.content()), (vec![(1, Status::LocalLength)], vec![0; 16]));

    // A read needs the right to store into this side's memory; a part must lie in its region.
    let (target, host) = connected();
    let (mine, theirs) = (Memory::new(&target, [0; 16], Access::default()), Memory::new(&host, COUNT, BOTH));
    let request = Request::Read { address: theirs.address(), key: theirs.region.key() };
    target.send(1, request, &[mine.part(0, 4)]);
    assert_eq!((target.ends(), mine.content()), (vec![(1, Status::LocalProtection)], vec![0; 16]));
    host.send(2, MESSAGE, &[theirs.part(13, 4)]);
    assert_eq!(host.ends(), [(2, Status::RetriesExceeded)], "the peer is in error");
}

#[test]
fn queue_pairs_share_receives_and_an_error_leaves_them_to_the_others() {
    let fabric = Fabric::default();
    let (target, host) = (Side::new(&fabric), Side::new(&fabric));
    let shared = fabric.shared_receives(2);
    let with_shared = PairOptions { shared: Some(shared), ..options(target.domain, target.completions) };
    let pairs = [(); 2].map(|()| (fabric.pair(with_shared), fabric.pair(options(host.domain, host.completions))));
    pairs.iter().for_each(|&(one, other)| fabric.connect(one, other).expect("fresh"));
    let (mine, theirs) = (Memory::new(&target, [0; 16], LOCAL), Memory::new(&host, COUNT, LOCAL));
    let parts = [mine.part(0, 16)];
    let receive = |id| Receive { id, parts: &parts };
    assert!(fabric.post_receive(pairs[0].0, receive(0)).is_err());
    fabric.post_shared_receive(shared, receive(1)).expect("a place");
    fabric.post_shared_receive(shared, receive(2)).expect("a place");
    assert!(fabric.post_shared_receive(shared, receive(3)).is_err());
    fabric.fail(pairs[0].0);
    assert_eq!(target.ends(), []);
    let work = Work { id: 4, request: MESSAGE, parts: &[theirs.part(0, 3)], signaled: true };
    for (_, other) in pairs {
        fabric.post_send(other, work).expect("a place");
    }
    assert_eq!(host.ends(), [(4, Status::RetriesExceeded), (4, Status::Success)]);
    let received = target.poll();
    assert_eq!((received.len(), received[0].id, received[0].pair), (1, 1, pairs[1].0.number()));
}

#[test]
fn lost_completions_and_refused_registrations_are_errors() {
    let fabric = Fabric::default();
    let (domain, completions) = (fabric.domain(), fabric.completion_queue(1));
    let pair = fabric.pair(options(domain, completions));
    assert!(fabric.connect(pair, pair).is_err());
    fabric.fail(pair);
    for id in 0..2 {
        fabric.post_receive(pair, Receive { id, parts: &[] }).expect("flushed at once");
    }
    assert_eq!(fabric.poll(completions, 1).map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));

    let bytes: *mut [u8] = Box::into_raw(Box::new([0_u8; 1]));
    // SAFETY: the memory is never freed, and never looked at.
    let register = |access| unsafe { fabric.register(domain, bytes, access) }.map_err(|error| error.raw_os_error());
    assert_eq!(register(Access { local_write: false, ..BOTH }).err(), Some(Some(libc::EINVAL)));
    fabric.fail_registrations(1);
    assert_eq!(register(LOCAL).err(), Some(Some(libc::ENOMEM)));
    assert!(register(LOCAL).is_ok());
}

/// Work waits while the cable is cut, and is carried out when it is mended. Work that the card gives up fails its own
/// pair; the peer does not notice until its own work fails.
#[test]
fn work_waits_for_a_cut_cable_until_the_card_gives_up() {
    let (target, host) = connected();
    let (from, to) = (Memory::new(&host, COUNT, LOCAL), Memory::new(&target, [0; 16], LOCAL));
    (0..2).for_each(|id| target.receive(id, to.part(0, 16)));
    host.fabric.cut();
    host.send(1, MESSAGE, &[from.part(0, 16)]);
    assert_eq!((host.ends(), target.ends()), (vec![], vec![]));
    host.fabric.mend();
    assert_eq!((host.ends(), target.ends()), (vec![(1, Status::Success)], vec![(0, Status::Success)]));
    assert_eq!(to.content(), COUNT);
    host.fabric.cut();
    host.send(2, MESSAGE, &[from.part(0, 16)]);
    host.send(3, MESSAGE, &[from.part(0, 16)]);
    host.fabric.give_up();
    host.fabric.mend();
    assert_eq!(host.ends(), [(2, Status::RetriesExceeded), (3, Status::Flushed)]);
    assert_eq!((target.ends(), target.fabric.failed(target.pair)), (vec![], false));
    target.send(4, MESSAGE, &[to.part(0, 16)]);
    assert_eq!(target.ends(), [(4, Status::RetriesExceeded), (1, Status::Flushed)]);
}
