//! A controller: its admin queue on a separate thread, and I/O queues that are handed out.
//!
//! The thread keeps the controller alive, hears of events, and when the connection is lost makes a new association. An
//! association has a number; I/O queues belong to one. A thread that sees that a queue is broken, or that the number
//! has changed, drops all queues of the old association and asks for those of the new with [`Controller::renewed`].

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nvme::spec::fabrics::PropertyAccess;
use nvme::spec::opcode::admin;
use nvme::spec::property::{Capabilities, Configuration, ControllerStatus};
use nvme::spec::{
    AsyncEvent, Command, GetLogPage, Identify, IdentifyController, IdentifyNamespace, Nqn, Status, cns, feature, log,
    property,
};
use rustix::event::{PollFd, PollFlags};

use super::connection::{Connection, Move, Purpose, Single, Welcome, property};
use super::dialer::Dialer;
use super::{Address, Error, Link, Options, Transport, discovery};

/// Entries of the admin queue: an event request, a keep-alive, and a command of the caller's.
const ADMIN_DEPTH: u32 = 32;
/// Attempts to reach a controller that the time of its loss has room for, at least.
const ATTEMPTS: u32 = 4;
/// The time that the host waits for a controller to answer a shutdown.
const GOODBYE: Duration = Duration::from_millis(500);

/// Namespaces that a message names.
const LISTED: usize = 16;

/// A namespace as Identify gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The number of the namespace (NSID).
    pub nsid: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The number of logical blocks.
    pub blocks: u64,
}

/// The connection that [`Controller::renewed`] gives.
#[derive(Debug)]
pub enum Renewal {
    /// The queues of a new association, and its number.
    Queues(u64, Vec<Link>),
    /// The controller stays lost: all that is outstanding has failed.
    Lost(Error),
}

/// A controller of a subsystem, connected. Dropping it ends the association.
pub struct Controller {
    shared: Arc<Shared>,
    orders: Sender<Order>,
    renewals: Receiver<Renewal>,
    thread: Option<JoinHandle<()>>,
    subsystem: Nqn,
    transport: Transport,
}

struct Shared {
    /// The number of the association in force; it changes when the association is lost.
    generation: AtomicU64,
    /// True if a request has completed since the controller was lost for the last time.
    has_progressed: AtomicBool,
    /// Events that namespaces have changed.
    namespace_events: AtomicU64,
    /// The socket that wakes the thread.
    waker: UnixStream,
    identify: Mutex<IdentifyController>,
}

enum Order {
    /// The association with this number has lost a queue.
    Lost(u64),
    /// Carry out this command, which sends the host this number of bytes.
    Carry(Box<Command>, usize, Sender<Result<Vec<u8>, Error>>),
    Stop,
}

impl Controller {
    /// A new controller, and its I/O queues: as many as were asked for and granted, at least one. Blocks until all
    /// queues are connected.
    ///
    /// # Errors
    /// The error says where connecting failed and what to do. An address without a subsystem is an error if discovery
    /// does not find exactly one; the error lists those found.
    pub fn connect(address: &Address, options: &Options) -> Result<(Controller, Vec<Link>), Error> {
        let address = located(address, options)?;
        let subsystem = address.subnqn.clone().expect("located");
        let system =
            |error: std::io::Error| Error::new("cannot start a controller", error.to_string(), "", libc::EAGAIN);
        let (waker, woken) = UnixStream::pair().map_err(system)?;
        waker.set_nonblocking(true).and_then(|()| woken.set_nonblocking(true)).map_err(system)?;
        let tried = Instant::now();
        let associated = associate(&address, &subsystem, options);
        let (connection, identify, queues) = associated.map_err(|error| explained(error, &address, options))?;
        let shared = Arc::new(Shared {
            generation: AtomicU64::new(1),
            has_progressed: AtomicBool::new(false),
            namespace_events: AtomicU64::new(0),
            waker,
            identify: Mutex::new(identify),
        });
        let transport = address.transport;
        let (orders, taken) = mpsc::channel();
        let (renewals, renewed) = mpsc::channel();
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            orders: taken,
            renewals,
            woken,
            address,
            subsystem: subsystem.clone(),
            options: options.clone(),
            tried,
            alive: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("nvme-admin".into()).spawn(move || worker.run(connection));
        let thread = Some(thread.map_err(system)?);
        Ok((Controller { shared, orders, renewals: renewed, thread, subsystem, transport }, queues))
    }

    /// The NQN of the subsystem to which this controller belongs.
    pub fn subsystem(&self) -> &Nqn {
        &self.subsystem
    }

    /// The data of Identify Controller.
    pub fn identify(&self) -> IdentifyController {
        *self.shared.identify.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that one command may move; a multiple of 4096.
    pub fn max_transfer_bytes(&self) -> u32 {
        let of_controller = match self.identify().mdts {
            shift @ 1..=18 => 4096 << shift,
            _ => 1 << 30,
        };
        of_controller.min(self.transport.max_command_bytes())
    }

    /// The number of the association that is in force; queues of any other are to be dropped.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// The number of times that the controller has reported a namespace as added, removed or changed.
    pub fn namespace_events(&self) -> u64 {
        self.shared.namespace_events.load(Ordering::Acquire)
    }

    /// Says that a request has completed: the time for which a lost controller is sought begins anew.
    pub fn progressed(&self) {
        self.shared.has_progressed.store(true, Ordering::Release);
    }

    /// Asks the controller to abort a command that has no answer. Nobody waits for the outcome: the end of the command
    /// itself shows it.
    pub fn abort(&self, qid: u16, cid: u16) {
        let command = Command { cdw10: u32::from(cid) << 16 | u32::from(qid), ..Command::new(admin::ABORT, 0) };
        self.order(Order::Carry(Box::new(command), 0, mpsc::channel().0));
    }

    /// Says that a queue of that association is broken. A new association is made; [`Controller::renewed`] gives it.
    pub fn lost(&self, generation: u64) {
        self.order(Order::Lost(generation));
    }

    /// The queues of a new association, once there are any, or that there will be none; waits that long for it.
    pub fn renewed(&self, wait: Duration) -> Option<Renewal> {
        match self.renewals.recv_timeout(wait) {
            Ok(renewal) => Some(renewal),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Renewal::Lost(Error::new("the controller's thread", "has ended", "", libc::EIO)))
            }
        }
    }

    /// The active namespaces, ascending.
    ///
    /// # Errors
    /// The controller is lost, or refuses.
    pub fn namespaces(&self) -> Result<Vec<u32>, Error> {
        let mut found: Vec<u32> = Vec::new();
        loop {
            let after = found.last().copied().unwrap_or(0);
            let identify = Identify { cns: cns::ACTIVE_NAMESPACES, cntid: 0, csi: 0 };
            let list = self.command(identify.command(after), 4096)?;
            let ids = list.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
            let before = found.len();
            found.extend(ids.take_while(|&id| id > after));
            if found.len() - before < 1024 {
                return Ok(found);
            }
        }
    }

    /// A namespace; that of number 0 is the only one there is.
    ///
    /// # Errors
    /// There is none of that number, or several; it has metadata or blocks of a strange size; the controller is lost.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, Error> {
        let nsid = match (nsid, &self.namespaces()?[..]) {
            (0, [only]) => *only,
            (0, there) => return Err(self.no_namespace("no namespace is named".into(), there)),
            (given, there) if there.contains(&given) => given,
            (given, there) => return Err(self.no_namespace(format!("there is no namespace {given}"), there)),
        };
        let what = || format!("namespace {nsid} of {}", self.subsystem);
        let identify = Identify { cns: cns::NAMESPACE, cntid: 0, csi: 0 };
        let bytes = self.command(identify.command(nsid), 4096).map_err(|error| Error { what: what(), ..error })?;
        let data = IdentifyNamespace::read(bytes.first_chunk().expect("4096 were asked for"));
        if data.nsze == 0 {
            return Err(Error::new(what(), "it has gone", "", libc::ENODEV));
        }
        let block_bytes = data.block_bytes().ok_or_else(|| {
            let format = data.lbaf[usize::from(data.flbas & 15)];
            let why = format!("its blocks are of 2^{} bytes with {} bytes of metadata", format.lbads, format.ms);
            Error::new(what(), why, "only blocks of 512 bytes to 2 MiB without metadata can be used", libc::EOPNOTSUPP)
        })?;
        Ok(Namespace { nsid, block_bytes, blocks: data.nsze })
    }

    fn no_namespace(&self, what: String, there: &[u32]) -> Error {
        let mut list = there.iter().take(LISTED).map(u32::to_string).collect::<Vec<_>>().join(", ");
        if there.len() > LISTED {
            list.push_str(", ...");
        }
        let subsystem = &self.subsystem;
        match there {
            [] => Error::new(what, format!("{subsystem} has none"), "", libc::ENODEV),
            _ => Error::new(what, format!("{subsystem} has {list}"), "give ns=", libc::ENODEV),
        }
    }

    /// Carries out an admin command. Returns the `bytes` of data that the command gives.
    ///
    /// # Errors
    /// The command failed, or the controller is lost.
    pub fn command(&self, command: Command, bytes: usize) -> Result<Vec<u8>, Error> {
        let (reply, answer) = mpsc::channel();
        self.order(Order::Carry(Box::new(command), bytes, reply));
        answer.recv().unwrap_or_else(|_| Err(Error::new("the controller", "is lost", "", libc::ENOTCONN)))
    }

    fn order(&self, order: Order) {
        // A thread that has ended hears nothing: what waits for it sees that its channel is closed.
        let _ = self.orders.send(order);
        wake(&self.shared.waker);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported already.
            let _ = thread.join();
        }
    }
}

fn wake(waker: &UnixStream) {
    // A full pipe wakes as well.
    let _ = std::io::Write::write(&mut &*waker, &[0]);
}

/// The address with a subsystem in it: the only one that discovery finds, if none was given.
fn located(address: &Address, options: &Options) -> Result<Address, Error> {
    if address.subnqn.is_some() {
        return Ok(address.clone());
    }
    let found = discovery::discover(address, options)?;
    let names: Vec<Nqn> = found.into_iter().filter(|found| !found.is_referral).map(|found| found.nqn).collect();
    match &names[..] {
        [only] => Ok(Address { subnqn: Some(only.clone()), ..address.clone() }),
        several => {
            let list = several.iter().map(Nqn::to_string).collect::<Vec<_>>().join(", ");
            let (why, hint) = match list.as_str() {
                "" => ("no subsystem is offered to this host", "is its NQN listed there? hostnqn= sets another".into()),
                list => ("which subsystem?", format!("give subnqn=, one of: {list}")),
            };
            Err(Error::new(format!("cannot connect to {}", address.place()), why, hint, libc::EINVAL))
        }
    }
}

/// The error with the names of the existing subsystems, if the requested one does not exist.
fn explained(error: Error, address: &Address, options: &Options) -> Error {
    let Some(subnqn) = address.subnqn.as_ref().filter(|_| error.hint == Error::NO_SUBSYSTEM) else { return error };
    let place = address.place();
    let found = discovery::discover(&Address { subnqn: None, ..address.clone() }, options).unwrap_or_default();
    let names: Vec<String> =
        found.iter().filter(|found| !found.is_referral).map(|found| found.nqn.to_string()).collect();
    let hint = match &names[..] {
        [] => {
            format!("discovery shows none to this host, {}: is it listed there? hostnqn= sets another", options.hostnqn)
        }
        names => format!("there is {}: give subnqn=", names.join(", ")),
    };
    Error::new(format!("there is no subsystem {subnqn} at {place}"), error.why, hint, error.errno)
}

/// Has the controller enabled, after Connect of the admin queue. Returns the controller's properties.
pub(super) fn enable(
    connection: &mut Connection,
    welcome: Welcome,
    options: &Options,
) -> Result<(u16, Capabilities), Error> {
    let cannot = |why: &str, hint: &str, errno| Err(Error::new("cannot use the controller", why, hint, errno));
    let capabilities = Capabilities::of(property(connection, property::CAP, 8)?);
    connection.succeed(PropertyAccess::set(property::CC, 4, Configuration::ENABLED.0.into()), Move::None)?;
    let until = Instant::now() + Duration::from_millis(capabilities.timeout_ms.into()).max(options.timeout);
    loop {
        let status = ControllerStatus::of(property(connection, property::CSTS, 4)? as u32);
        if status.ready {
            return Ok((welcome.cntlid, capabilities));
        }
        if status.fatal {
            return cannot("it reports a fatal error", "", libc::EIO);
        }
        if Instant::now() > until {
            return cannot("it does not become ready", "", libc::ETIMEDOUT);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A new association: the admin queue, the controller's identity, and the I/O queues.
fn associate(
    address: &Address,
    subsystem: &Nqn,
    options: &Options,
) -> Result<(Connection, IdentifyController, Vec<Link>), Error> {
    let mut dialer = Dialer::new(address, subsystem, options);
    if options.concatenation {
        // The connection has served when the key is made.
        let mut plain = dialer.open(0, 0, ADMIN_DEPTH)?;
        dialer.secure_by(plain.join(subsystem, options, 0, 0, Purpose::Concatenation)?.generated);
    }
    let mut admin = dialer.open(0, 0, ADMIN_DEPTH)?;
    let welcome = admin.join(subsystem, options, 0, 0, Purpose::Use)?;
    let (cntlid, capabilities) = enable(&mut admin, welcome, options)?;
    let mut page = [0; 4096];
    let identify = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 };
    admin.succeed(identify.command(0), Move::Receive(&mut page))?;
    let identify = IdentifyController::read(&page);
    if identify.cntlid != cntlid {
        let why = format!("Connect gave controller {cntlid}, Identify {}", identify.cntlid);
        return Err(Error::new(format!("{subsystem} contradicts itself"), why, "", libc::EPROTO));
    }
    let asked = feature::queues_value(options.queues.max(1));
    let set = Command { cdw10: feature::NUMBER_OF_QUEUES.into(), cdw11: asked, ..Command::new(admin::SET_FEATURES, 0) };
    let granted = feature::queues(admin.succeed(set, Move::None)? as u32).clamp(1, options.queues.max(1));
    let events = Command {
        cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
        cdw11: identify.oaes & feature::EVENT_NAMESPACE,
        ..Command::new(admin::SET_FEATURES, 0)
    };
    // A controller without the events is used anyway.
    admin.wait_for(events, Move::None)?;
    // With SQ flow control off as many commands may be outstanding as the queue has entries.
    let most = if identify.maxcmd == 0 { u32::MAX } else { identify.maxcmd.into() };
    let depth = options.depth.min(capabilities.queue_entries).min(most).clamp(1, 65_535);
    let mut queues = Vec::new();
    for qid in 1..=granted {
        let mut connection = dialer.open(qid, cntlid, depth)?;
        connection.join(subsystem, options, qid, cntlid, Purpose::Use)?;
        let Connection { mut link, .. } = connection;
        link.learn(&identify);
        queues.push(link);
    }
    Ok((admin, identify, queues))
}

/// The body of the controller's thread.
struct Worker {
    shared: Arc<Shared>,
    orders: Receiver<Order>,
    renewals: Sender<Renewal>,
    woken: UnixStream,
    address: Address,
    subsystem: Nqn,
    options: Options,
    /// The beginning of the latest attempt to connect.
    tried: Instant,
    /// The time at which the controller was last known to serve requests.
    alive: Instant,
}

/// The reason why the thread leaves an association.
enum End {
    Lost,
    Stop,
}

impl Worker {
    fn run(&mut self, mut connection: Connection) {
        loop {
            match self.attend(&mut connection) {
                End::Stop => return goodbye(connection),
                End::Lost => {}
            }
            // The thread that drives the I/O queues sees this, and drops them: the controller notices and ends the
            // association.
            self.shared.generation.fetch_add(1, Ordering::AcqRel);
            drop(connection);
            match self.seek() {
                Some(found) => connection = found,
                None => return,
            }
        }
    }

    /// Serves one association until it ends.
    fn attend(&mut self, connection: &mut Connection) -> End {
        let generation = self.shared.generation.load(Ordering::Acquire);
        let period = (!self.options.keep_alive.is_zero()).then_some(self.options.keep_alive / 2);
        let (mut alive_at, mut alive) = (Instant::now(), None);
        let mut event = connection.start(Command::new(admin::ASYNC_EVENT_REQUEST, 0)).ok();
        loop {
            loop {
                match self.orders.try_recv() {
                    Ok(Order::Stop) | Err(mpsc::TryRecvError::Disconnected) => return End::Stop,
                    Ok(Order::Lost(lost)) if lost == generation => return End::Lost,
                    Ok(Order::Lost(_)) => {}
                    Ok(Order::Carry(command, bytes, reply)) => {
                        let mut data = vec![0; bytes];
                        let moved = if bytes == 0 { Move::None } else { Move::Receive(&mut data) };
                        let outcome = connection.wait_for(*command, moved);
                        let broke = outcome.is_err();
                        let what = || format!("{} failed", command.name(true));
                        // The thread that asked may have gone.
                        let _ = reply.send(outcome.and_then(|done| match done.status {
                            status if status.is_ok() => Ok(data),
                            status => Err(Error::status(what(), status)),
                        }));
                        if broke {
                            return End::Lost;
                        }
                    }
                    Err(mpsc::TryRecvError::Empty) => break,
                }
            }
            for done in std::mem::take(&mut connection.others) {
                if Some(done.tag) == event {
                    event = self.hear(connection, done.status, AsyncEvent::of(done.result));
                } else if Some(done.tag) == alive {
                    alive = None;
                }
            }
            if let Some(period) = period
                && alive_at.elapsed() >= period
            {
                // A request without an answer within the whole time: the controller is lost, whatever TCP believes.
                if alive.is_some() && alive_at.elapsed() >= 2 * period {
                    return End::Lost;
                }
                if alive.is_none() {
                    match connection.start(Command::new(admin::KEEP_ALIVE, 0)) {
                        Ok(tag) => (alive, alive_at) = (Some(tag), Instant::now()),
                        Err(_) => return End::Lost,
                    }
                }
            }
            let due = period.map(|period| if alive.is_some() { 2 * period } else { period });
            let wait = due.map(|due| due.saturating_sub(alive_at.elapsed()).max(Duration::from_millis(1)));
            if !self.sleep(connection, wait) {
                return End::Lost;
            }
        }
    }

    /// Waits for the connection, an order, or the time; sends what has not left, and takes what has arrived. False if
    /// the connection is broken.
    fn sleep(&self, connection: &mut Connection, wait: Option<Duration>) -> bool {
        let Ok(may_sleep) = connection.link.may_sleep() else { return false };
        let wait = if may_sleep { wait } else { Some(Duration::ZERO) };
        let timeout = wait
            .map(|wait| rustix::event::Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
        let mut fds = vec![PollFd::from_borrowed_fd(self.woken.as_fd(), PollFlags::IN)];
        connection.link.watch(&mut fds);
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            return true; // interrupted
        }
        let came = fds[1..].iter().any(|fd| !fd.revents().is_empty()) || wait == Some(Duration::ZERO);
        if !fds[0].revents().is_empty() {
            while std::io::Read::read(&mut &self.woken, &mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
        let Connection { link, others, .. } = connection;
        let mut none = Single(&mut []);
        !came || (link.send(&none).is_ok() && link.receive(&mut none, others).is_ok())
    }

    /// Takes an event in, clears it by reading its log page, and asks for the next.
    fn hear(&self, connection: &mut Connection, status: Status, event: AsyncEvent) -> Option<u32> {
        if !status.is_ok() {
            return None;
        }
        if event == AsyncEvent::NAMESPACE_CHANGED {
            let mut page = vec![0; 4096];
            let changed = GetLogPage { lid: log::CHANGED_NAMESPACES, lsp: 0, retain: false, length: 4096, offset: 0 };
            // A connection that breaks here is noticed at its next use.
            let _ = connection.wait_for(changed.command(u32::MAX), Move::Receive(&mut page));
            self.shared.namespace_events.fetch_add(1, Ordering::AcqRel);
        }
        connection.start(Command::new(admin::ASYNC_EVENT_REQUEST, 0)).ok()
    }

    /// Looks for the controller until it is there again; None if it is not to be used any more.
    fn seek(&mut self) -> Option<Connection> {
        let loss = self.options.controller_loss;
        let is_sound = self.shared.has_progressed.swap(false, Ordering::AcqRel) || self.tried.elapsed() >= loss;
        if is_sound {
            self.alive = Instant::now();
        }
        let until = self.alive + loss;
        let mut lost =
            Error::new(format!("lost the connection to {}", self.subsystem), "it broke", "", libc::ECONNRESET);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let _ = self.renewals.send(Renewal::Lost(lost));
                self.refuse();
                return None;
            }
            // Attempts, successful ones included, begin that far apart: a controller that takes connections and breaks
            // them with the first request is not to be flooded. A short time of loss has room for some attempts, too.
            let apart = self.options.reconnect_delay.min(loss / ATTEMPTS);
            let delay = apart.saturating_sub(self.tried.elapsed());
            if !delay.is_zero() {
                if !self.pause(delay.min(left)) {
                    return None;
                }
                continue;
            }
            self.tried = Instant::now();
            let options = Options { timeout: self.options.timeout.min(left), ..self.options.clone() };
            match associate(&self.address, &self.subsystem, &options) {
                Ok((connection, identify, queues)) => {
                    *self.shared.identify.lock().unwrap_or_else(PoisonError::into_inner) = identify;
                    let generation = self.shared.generation.load(Ordering::Acquire);
                    let _ = self.renewals.send(Renewal::Queues(generation, queues));
                    return Some(connection);
                }
                Err(error) => lost = error,
            }
        }
    }

    /// Waits while there is no controller; false when told to stop.
    fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match self.orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Ok(Order::Lost(_)) => {}
                Ok(Order::Carry(_, _, reply)) => {
                    let _ = reply.send(Err(Error::new("the controller", "is lost", "", libc::ENOTCONN)));
                }
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
    }

    /// Answers orders with an error: the controller stays lost.
    fn refuse(&self) {
        while self.pause(Duration::from_secs(3600)) {}
    }
}

/// Shuts the controller down, so that it need not find out by itself.
fn goodbye(mut connection: Connection) {
    connection.timeout = GOODBYE;
    let shutdown = Configuration::ENABLED.with_shutdown();
    // The association ends either way.
    let _ = connection.wait_for(PropertyAccess::set(property::CC, 4, shutdown.0.into()), Move::None);
}
