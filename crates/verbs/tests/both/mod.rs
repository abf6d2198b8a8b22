//! The rules of both stacks: connections begin, move data and end under the same rules on the fabric in memory and on
//! rdma-core. One thread plays both sides.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use verbs::stack::{BY_THE_PEER, Event, Greeting, NOBODY_LISTENS, Number, PairOptions, Reads};
use verbs::work::{Access, Completion, Receive, Request, Status, Work};
use verbs::{Memory, Verbs};

/// A bound that only a stack that hangs meets.
const PATIENCE: Duration = Duration::from_secs(60);
const LISTENER: Number = 1;
const PLACES: u32 = 4;
const BYTES: usize = 8192;
const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };
const MESSAGE: Request = Request::Send { invalidate: None };

fn wait_for(descriptor: BorrowedFd<'_>, until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    assert!(!left.is_zero(), "nothing happens");
    let mut watched = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which is valid.
    unsafe { libc::poll(&raw mut watched, 1, left.as_millis() as i32) };
}

pub fn event<V: Verbs>(verbs: &V, channel: &V::Channel) -> Event<V> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = verbs.next_event(channel).expect("the channel works") {
            return event;
        }
        wait_for(verbs.channel_descriptor(channel), until);
    }
}

/// The event in a few words.
pub fn words<V: Verbs>(event: &Event<V>) -> String {
    match event {
        Event::Asked { listener, .. } => format!("{listener} asked"),
        Event::Routed { number } => format!("{number} routed"),
        Event::Established { number, .. } => format!("{number} established"),
        Event::Refused { number, reason, .. } => format!("{number} refused: {reason}"),
        Event::Failed { number, step, error } => format!("{number} failed: {step}: {error}"),
        Event::Disconnected { number } => format!("{number} disconnected"),
        Event::Removed { number } => format!("{number} removed"),
    }
}

/// One end: what a connection is made of, and the connection once there is one.
pub struct End<V: Verbs> {
    verbs: V,
    pub channel: V::Channel,
    completions: V::Completions,
    /// Of messages that are received, and of those that are sent.
    memory: Memory<V>,
    pub pair: V::Pair,
}

impl<V: Verbs> End<V> {
    fn post(&self, id: u64, request: Request, start: usize, length: usize) {
        let parts = [self.memory.part(start..start + length)];
        self.verbs.post(&self.pair, Work { id, request, parts: &parts, signaled: true }).expect("a place");
    }

    fn receive(&self, id: u64, start: usize, length: usize) {
        let parts = [self.memory.part(start..start + length)];
        self.verbs.receive(&self.pair, Receive { id, parts: &parts }).expect("a place");
    }

    /// The next `count` completions. Sleeps until they come.
    fn ends(&self, count: usize) -> Vec<Completion> {
        let (mut ends, until) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            self.verbs.arm(&self.completions).expect("armed");
            self.verbs.poll(&self.completions, count - ends.len(), &mut ends).expect("no overrun");
            if ends.len() == count {
                assert!(ends.iter().all(|end| end.pair == self.verbs.pair_number(&self.pair)));
                return ends;
            }
            wait_for(self.verbs.completions_descriptor(&self.completions), until);
            self.verbs.take_notices(&self.completions).expect("taken");
        }
    }

    pub fn event(&self) -> String {
        words(&event(&self.verbs, &self.channel))
    }

    fn bytes(&self, start: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(start, &mut bytes);
        bytes
    }
}

/// Domain, completion queue and memory on a device.
fn parts<V: Verbs>(verbs: &V, device: &V::Device) -> (V::Domain, V::Completions, Memory<V>) {
    let domain = verbs.domain(device).expect("a domain");
    let completions = verbs.completions(device, 64).expect("a queue");
    let memory = Memory::new(verbs, &domain, BYTES, ALL).expect("registered");
    (domain, completions, memory)
}

fn options<'a, V: Verbs>(domain: &'a V::Domain, completions: &'a V::Completions) -> PairOptions<'a, V> {
    PairOptions { domain, completions, shared: None, sends: PLACES, receives: PLACES, parts: 2 }
}

fn greeting(private_data: &[u8]) -> Greeting<'_> {
    Greeting { private_data, reads: Reads { serves: 2, issues: 1 }, no_receive_tries: None }
}

/// Asks the listener at the address.
fn ask<V: Verbs>(verbs: &V, to: SocketAddr, number: Number, private_data: &[u8]) -> End<V> {
    let channel = verbs.channel().expect("a channel");
    let outgoing = verbs.dial(&channel, to, number).expect("a way");
    assert_eq!(words(&event(verbs, &channel)), format!("{number} routed"));
    let device = verbs.routed_device(&outgoing).expect("a device");
    let (domain, completions, memory) = parts(verbs, &device);
    let pair = verbs.connect(outgoing, &options(&domain, &completions), &greeting(private_data)).expect("asked");
    End { verbs: verbs.clone(), channel, completions, memory, pair }
}

/// The next request at the listener, with its private data, and what this side may agree to.
fn asked<V: Verbs>(verbs: &V, channel: &V::Channel) -> (V::Incoming, Vec<u8>, Reads) {
    match event(verbs, channel) {
        Event::Asked { listener: LISTENER, incoming, peer, private_data, reads } => {
            assert!(peer.is_some());
            (incoming, private_data, reads)
        }
        other => panic!("{}", words(&other)),
    }
}

fn accept<V: Verbs>(verbs: &V, incoming: V::Incoming, number: Number) -> End<V> {
    accept_bounded(verbs, incoming, number, None)
}

/// Accepts the request. The peer gives up after `no_receive_tries` attempts that find no receive here.
fn accept_bounded<V: Verbs>(
    verbs: &V,
    mut incoming: V::Incoming,
    number: Number,
    no_receive_tries: Option<u8>,
) -> End<V> {
    // On a channel of its own, as another thread than the listener's has it.
    let channel = verbs.channel().expect("a channel");
    verbs.adopt(&channel, &mut incoming).expect("adopted");
    let device = verbs.asked_device(&incoming).expect("a device");
    let (domain, completions, memory) = parts(verbs, &device);
    let reply = Greeting { private_data: b"welcome", reads: Reads { serves: 1, issues: 2 }, no_receive_tries };
    let pair = verbs.accept(incoming, number, &options(&domain, &completions), &reply).expect("accepted");
    End { verbs: verbs.clone(), channel, completions, memory, pair }
}

/// A listener's side.
pub struct Listening<V: Verbs> {
    verbs: V,
    channel: V::Channel,
    listener: V::Listener,
}

impl<V: Verbs> Listening<V> {
    pub fn new(verbs: &V, address: SocketAddr) -> Listening<V> {
        let channel = verbs.channel().expect("a channel");
        let listener = verbs.listen(&channel, address, LISTENER).expect("listening");
        Listening { verbs: verbs.clone(), channel, listener }
    }

    pub fn address(&self) -> SocketAddr {
        self.verbs.listens_at(&self.listener).expect("an address")
    }

    /// A host's end with `number`, and its request.
    pub fn request(&self, number: Number) -> (End<V>, V::Incoming) {
        let host = ask(&self.verbs, self.address(), number, b"hello");
        let (incoming, private_data, most) = asked(&self.verbs, &self.channel);
        assert!(private_data.starts_with(b"hello\0"), "{private_data:?}");
        assert_eq!(most, Reads { serves: 1, issues: 2 });
        (host, incoming)
    }

    /// A target's end with `number`, and a host's end with the number after it.
    pub fn connection(&self, number: Number) -> (End<V>, End<V>) {
        let (host, incoming) = self.request(number + 1);
        let target = accept(&self.verbs, incoming, number);
        match event(&self.verbs, &host.channel) {
            Event::Established { number: it, private_data, reads } => {
                assert!(it == number + 1 && private_data.starts_with(b"welcome\0"), "{it} {private_data:?}");
                assert_eq!(reads, Reads { serves: 2, issues: 1 });
            }
            other => panic!("{}", words(&other)),
        }
        assert_eq!(target.event(), format!("{number} established"));
        (target, host)
    }
}

fn outcomes(ends: &[Completion]) -> Vec<(u64, bool, Status)> {
    ends.iter().map(|end| (end.id, end.received, end.status)).collect()
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|index| (index % 251) as u8 ^ seed).collect()
}

/// A message goes to the host's receive, the target reads the host's memory and writes it, and nothing else changes.
pub fn data_move<V: Verbs>(verbs: &V, address: SocketAddr) {
    let listening = Listening::new(verbs, address);
    let (mut target, mut host) = listening.connection(10);
    host.memory.write(0, &pattern(0x11));
    target.memory.write(0, &pattern(0xa0));
    target.receive(1, 0, 64);
    host.post(2, MESSAGE, 100, 20);
    assert_eq!(outcomes(&host.ends(1)), [(2, false, Status::Success)]);
    let message = target.ends(1)[0];
    assert_eq!((message.id, message.received, message.status, message.length), (1, true, Status::Success, 20));
    assert_eq!(target.bytes(0, 21), [&pattern(0x11)[100..120], &pattern(0xa0)[20..21]].concat());

    let (address, key) = (host.memory.address(), host.memory.key());
    target.post(3, Request::Read { address: address + 1000, key }, 2000, 5001);
    assert_eq!(outcomes(&target.ends(1)), [(3, false, Status::Success)]);
    assert_eq!(
        target.bytes(1999, 5003),
        [&pattern(0xa0)[1999..2000], &pattern(0x11)[1000..6001], &pattern(0xa0)[7001..7002]].concat()
    );
    target.post(4, Request::Write { address: address + 7, key }, 7500, 600);
    assert_eq!(outcomes(&target.ends(1)), [(4, false, Status::Success)]);
    assert_eq!(
        host.bytes(6, 602),
        [&pattern(0x11)[6..7], &pattern(0xa0)[7500..8100], &pattern(0x11)[607..608]].concat()
    );

    // Work without a completion, from two parts; its end comes with later work.
    let two = [target.memory.part(0..3), target.memory.part(7..9)];
    let work = Work { id: 5, request: Request::Write { address, key }, parts: &two, signaled: false };
    verbs.post(&target.pair, work).expect("a place");
    host.receive(6, 4096, 16);
    target.post(7, MESSAGE, 50, 16);
    assert_eq!(outcomes(&target.ends(1)), [(7, false, Status::Success)]);
    assert_eq!(outcomes(&host.ends(1)), [(6, true, Status::Success)]);
    let of_host = target.bytes(0, 9);
    assert_eq!(host.bytes(0, 5), [&of_host[0..3], &of_host[7..9]].concat());
    let three = [two[0], two[0], two[0]];
    let refused = verbs.post(&target.pair, Work { parts: &three, ..work }).map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(libc::EINVAL)));
}

/// A range beyond the host's memory, and a key that is none, fail at the target and change nothing; the connection
/// beside goes on.
pub fn memory_is_guarded<V: Verbs>(verbs: &V, address: SocketAddr) {
    let listening = Listening::new(verbs, address);
    let beside = listening.connection(10);
    for (number, (over, off)) in [(20, (1, 0)), (30, (0, 1 << 20))] {
        let (target, mut host) = listening.connection(number);
        host.memory.write(0, &pattern(3));
        let (address, key) = (host.memory.address() + BYTES as u64 - 100, host.memory.key() ^ off);
        target.receive(1, 0, 8);
        target.post(2, Request::Write { address, key }, 0, 100 + over);
        let ends = outcomes(&target.ends(2));
        assert!(ends.contains(&(2, false, Status::RemoteAccess)), "{ends:?}");
        assert!(ends.contains(&(1, true, Status::Flushed)), "{ends:?}");
        assert_eq!(host.bytes(0, BYTES), pattern(3));
    }
    let (target, host) = beside;
    host.receive(1, 0, 8);
    target.post(2, MESSAGE, 0, 8);
    assert_eq!(outcomes(&target.ends(1)), [(2, false, Status::Success)]);
}

/// A message that is too long for its receive fails on both sides.
pub fn long_messages_fail<V: Verbs>(verbs: &V, address: SocketAddr) {
    let (mut target, host) = Listening::new(verbs, address).connection(10);
    target.memory.write(0, &pattern(9));
    target.receive(1, 0, 64);
    host.post(2, MESSAGE, 0, 65);
    let status = host.ends(1)[0].status;
    // Soft-RoCE of Linux 6.12 finds another fault than the InfiniBand specification names.
    assert!(matches!(status, Status::RemoteInvalidRequest | Status::RemoteOperation), "{status:?}");
    let end = target.ends(1)[0];
    assert!(end.id == 1 && end.received && end.status != Status::Success && end.length == 0, "{end:?}");
    assert_eq!(target.bytes(64, BYTES - 64), pattern(9)[64..]);
}

/// Requests are refused by the peer, with its words; by dropping them; and because nobody listens.
pub fn requests_are_refused<V: Verbs>(verbs: &V, address: SocketAddr) {
    let listening = Listening::new(verbs, address);
    let address = listening.address();
    let host = ask(verbs, address, 5, &[7; 32]);
    let (incoming, private_data, _) = asked(verbs, &listening.channel);
    assert_eq!(private_data[..33], [[7; 32].as_slice(), &[0]].concat());
    verbs.refuse(incoming, b"no").expect("refused");
    match event(verbs, &host.channel) {
        Event::Refused { number: 5, reason: BY_THE_PEER, private_data } => assert!(private_data.starts_with(b"no\0")),
        other => panic!("{}", words(&other)),
    }
    let host = ask(verbs, address, 6, b"");
    drop(asked(verbs, &listening.channel));
    assert_eq!(host.event(), format!("6 refused: {BY_THE_PEER}"));
    drop(listening);
    let host = ask(verbs, address, 7, b"");
    assert_eq!(host.event(), format!("7 refused: {NOBODY_LISTENS}"));
}

/// A host that is refused with too many words is refused all the same, and a listener's address is taken once.
pub fn misuse_is_an_error<V: Verbs>(verbs: &V, address: SocketAddr) {
    let listening = Listening::new(verbs, address);
    let code = |result: std::io::Result<()>| result.expect_err("misuse").raw_os_error();
    let again = verbs.listen(&listening.channel, listening.address(), 2).map(|_| ());
    assert_eq!(code(again), Some(libc::EADDRINUSE));
    let host = ask(verbs, listening.address(), 5, &[1; 56]);
    let (incoming, ..) = asked(verbs, &listening.channel);
    assert_eq!(code(verbs.refuse(incoming, &[0; 149])), Some(libc::EINVAL));
    assert_eq!(host.event(), format!("5 refused: {BY_THE_PEER}"));
    // An acceptance that fails refuses, too.
    let host = ask(verbs, listening.address(), 6, b"");
    let (incoming, ..) = asked(verbs, &listening.channel);
    let device = verbs.asked_device(&incoming).expect("a device");
    let (domain, completions, _memory) = parts(verbs, &device);
    let words = Greeting { private_data: &[0; 197], ..Greeting::default() };
    assert_eq!(
        code(verbs.accept(incoming, 7, &options(&domain, &completions), &words).map(|_| ())),
        Some(libc::EINVAL)
    );
    assert_eq!(host.event(), format!("6 refused: {BY_THE_PEER}"));
}

/// The end of a connection flushes the work of both sides, and both hear of it; so it is when one side only drops its
/// pair.
pub fn connections_end<V: Verbs>(verbs: &V, address: SocketAddr) {
    let listening = Listening::new(verbs, address);
    let (target, host) = listening.connection(10);
    target.receive(1, 0, 8);
    host.receive(2, 0, 8);
    verbs.disconnect(&host.pair).expect("connected");
    assert_eq!(target.event(), "10 disconnected");
    assert_eq!(host.event(), "11 disconnected");
    assert_eq!(outcomes(&target.ends(1)), [(1, true, Status::Flushed)]);
    assert_eq!(outcomes(&host.ends(1)), [(2, true, Status::Flushed)]);

    let (target, host) = listening.connection(20);
    target.receive(1, 0, 8);
    drop(host.pair);
    assert_eq!(target.event(), "20 disconnected");
    assert_eq!(outcomes(&target.ends(1)), [(1, true, Status::Flushed)]);
}

/// Two connections take their messages from one receive queue. The error of one leaves the receives to the other.
pub fn receives_are_shared<V: Verbs>(verbs: &V, address: SocketAddr) {
    let listening = Listening::new(verbs, address);
    let hosts = [5, 6].map(|number| ask(verbs, listening.address(), number, b""));
    let incoming = [(); 2].map(|()| asked(verbs, &listening.channel).0);
    let device = verbs.asked_device(&incoming[0]).expect("a device");
    assert!(verbs.asked_device(&incoming[1]).expect("a device") == device);
    let (domain, completions, memory) = parts(verbs, &device);
    let shared = verbs.receives(&domain, PLACES, 1).expect("a queue");
    let options = PairOptions { shared: Some(&shared), ..options(&domain, &completions) };
    let replies = [Greeting { reads: Reads { serves: 0, issues: 1 }, ..Greeting::default() }, Greeting::default()];
    let mut number = 10;
    let pairs = incoming.map(|incoming| {
        number += 1;
        verbs.accept(incoming, number, &options, &replies[number as usize - 11]).expect("accepted")
    });
    let receive = |id: usize| {
        let parts = [memory.part(id * 16..id * 16 + 16)];
        verbs.receive_shared(&shared, Receive { id: id as u64, parts: &parts })
    };
    for host in &hosts {
        assert!(host.event().ends_with("established"));
    }
    for _ in &pairs {
        assert!(words(&event(verbs, &listening.channel)).ends_with("established"));
    }
    (0..3).for_each(|id| receive(id).expect("a place"));
    let of_its_own = verbs.receive(&pairs[0], Receive { id: 9, parts: &[] }).map_err(|error| error.raw_os_error());
    assert_eq!(of_its_own, Err(Some(libc::EINVAL)));
    let poll = |count: usize| {
        let (mut ends, until) = (Vec::new(), Instant::now() + PATIENCE);
        while ends.len() < count {
            verbs.arm(&completions).expect("armed");
            verbs.poll(&completions, count - ends.len(), &mut ends).expect("no overrun");
            if ends.len() < count {
                wait_for(verbs.completions_descriptor(&completions), until);
                verbs.take_notices(&completions).expect("taken");
            }
        }
        ends
    };
    for (id, (host, pair)) in hosts.iter().zip(&pairs).enumerate() {
        host.post(1, MESSAGE, 0, 4 + id);
        assert_eq!(outcomes(&host.ends(1)), [(1, false, Status::Success)]);
        let end = poll(1)[0];
        assert_eq!((end.id, end.length, end.pair), (id as u64, 4 + id as u32, verbs.pair_number(pair)));
    }
    // The second connection has agreed to no READs.
    // The first connection breaks: a receive is left, which the second one takes.
    let (id, request) = (7, Request::Read { address: 0, key: 0 });
    let work = Work { id, request, parts: &[memory.part(0..8)], signaled: true };
    assert_eq!(verbs.post(&pairs[1], work).map_err(|error| error.raw_os_error()), Err(Some(libc::EINVAL)));
    verbs.post(&pairs[0], work).expect("a place");
    assert_eq!(outcomes(&poll(1)), [(7, false, Status::RemoteAccess)]);
    hosts[1].post(2, MESSAGE, 0, 6);
    let end = poll(1)[0];
    assert_eq!((end.id, end.length, end.pair), (2, 6, verbs.pair_number(&pairs[1])));
    assert_eq!(end.status, Status::Success);
}

/// A message beyond the peer's receives fails after its attempts.
pub fn messages_without_receives_fail<V: Verbs>(verbs: &V, address: SocketAddr) {
    let listening = Listening::new(verbs, address);
    let host = ask(verbs, listening.address(), 5, b"");
    let (incoming, ..) = asked(verbs, &listening.channel);
    let target = accept_bounded(verbs, incoming, 10, Some(3));
    assert_eq!((host.event(), target.event()), ("5 established".to_owned(), "10 established".to_owned()));
    target.receive(1, 0, 8);
    host.post(1, MESSAGE, 0, 8);
    host.post(2, MESSAGE, 0, 8);
    assert_eq!(outcomes(&host.ends(2)), [(1, false, Status::Success), (2, false, Status::NoReceive)]);
    assert_eq!(outcomes(&target.ends(1)), [(1, true, Status::Success)]);
}

/// All of it.
pub fn everything<V: Verbs>(verbs: &V, address: SocketAddr) {
    for (name, check) in [
        ("data_move", data_move::<V> as fn(&V, SocketAddr)),
        ("memory_is_guarded", memory_is_guarded),
        ("long_messages_fail", long_messages_fail),
        ("requests_are_refused", requests_are_refused),
        ("misuse_is_an_error", misuse_is_an_error),
        ("connections_end", connections_end),
        ("receives_are_shared", receives_are_shared),
        ("messages_without_receives_fail", messages_without_receives_fail),
    ] {
        eprintln!("{name}");
        check(verbs, address);
    }
}
