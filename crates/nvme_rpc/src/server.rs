//! The Unix socket on which requests arrive. A thread for each client: they are few, and a slow one delays nobody.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde_json::Value;

use super::jsonrpc::{self, Outcome, RpcError};
use super::stream::{MAX_REQUEST_BYTES, Piece, Splitter};

/// SPDK's default, so that its `rpc.py` and scripts find this target without being told.
pub const DEFAULT_PATH: &str = "/var/tmp/spdk.sock";
/// Clients at a time. One more takes the place of the one that has been silent for longest.
const CLIENTS_MAX: usize = 64;
/// Methods of the slot that is left when every other client has a call under way: they end what holds the slots up.
const ADMINISTRATION: [&str; 1] = ["spdk_kill_instance"];
/// The silence after which the server closes the connection of a client in that slot.
const ADMINISTRATION_IDLE_MAX: Duration = Duration::from_secs(5);
/// The silence after which the server closes the connection of a client.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// The time after which the server closes the connection of a client that does not take its answers.
const SEND_STALL: Duration = Duration::from_secs(10);

/// Carries out one call. All clients share it, so it locks the state that it needs.
pub type Call = dyn Fn(&str, Option<&Value>) -> Outcome + Send + Sync;

/// A listening socket; removed, and its clients closed, when dropped.
pub struct Server {
    path: PathBuf,
    /// Device and inode of the socket: only that one is removed.
    identity: (u64, u64),
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    call: Box<Call>,
    stopping: AtomicBool,
    clients_max: usize,
    idle_max: Duration,
    open: Mutex<Vec<Client>>,
}

/// A connection as the other threads see it.
struct Client {
    number: usize,
    slot: Slot,
    /// A second handle of the connection, to wake its thread.
    stream: UnixStream,
    /// The time since which the server waits for the client's bytes; `None` while a call of the client is carried out.
    idle_since: Option<Instant>,
}

/// The calls that a client may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Any,
    /// Those of [`ADMINISTRATION`]: the other slots are taken.
    Administration,
}

impl Server {
    /// A server on `path`, which only its owner may use (mode 0600). A socket that nobody listens on is replaced.
    ///
    /// # Errors
    /// EADDRINUSE where another server is listening or something else has that name; the errors of bind(2).
    pub fn start(path: &Path, call: Box<Call>) -> io::Result<Server> {
        Server::start_with(path, call, CLIENTS_MAX, IDLE_MAX)
    }

    fn start_with(path: &Path, call: Box<Call>, clients_max: usize, idle_max: Duration) -> io::Result<Server> {
        make_room(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let identity = identity(path)?;
        let open = Mutex::new(Vec::new());
        let shared = Arc::new(Shared { call, stopping: AtomicBool::new(false), clients_max, idle_max, open });
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("rpc".into()).spawn(move || accept(&listener, &shared))?
        };
        Ok(Server { path: path.to_path_buf(), identity, shared, acceptor: Some(acceptor) })
    }

    /// The path of the socket that the server listens on.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        let _ = UnixStream::connect(&self.path); // wakes accept(2)
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path); // this server made the socket; it may be gone already
        }
        for Client { stream, .. } in self.shared.open().iter() {
            let _ = stream.shutdown(std::net::Shutdown::Read); // answers under way still go out
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((std::os::unix::fs::MetadataExt::dev(&metadata), std::os::unix::fs::MetadataExt::ino(&metadata)))
}

/// Removes a socket that a server left behind; anything else of that name stays.
fn make_room(path: &Path) -> io::Result<()> {
    let in_use = |what: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, what));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => in_use("it exists and is not a socket"),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Ok(_) => in_use("another target is listening there"),
            Err(error) => Err(error),
        },
    }
}

/// True if the other end has closed its connection: half a close, after the last request, is none.
fn has_gone(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
        && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for (number, client) in listener.incoming().enumerate() {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else {
            thread::sleep(Duration::from_millis(10)); // out of descriptors: some may be free soon
            continue;
        };
        let Ok(stream) = client.try_clone() else { continue };
        let Some(slot) = shared.admit(number, stream) else {
            refuse(&client); // every other one has a call under way
            continue;
        };
        let for_client = Arc::clone(shared);
        let started = thread::Builder::new().name("rpc client".into()).spawn(move || {
            let _ = for_client.serve(client, number, slot); // the client went away: nobody is left to be told
            for_client.forget(number);
        });
        if started.is_err() {
            shared.forget(number);
        }
    }
}

/// Tells a client that there is no room for it, and closes the connection.
fn refuse(mut client: &UnixStream) {
    let answer = jsonrpc::refusal(too_many());
    // The line fits into the buffer of a new connection; a client that has gone needs none.
    let _ = jsonrpc::line(&answer).and_then(|line| client.write_all(&line));
}

fn too_many() -> RpcError {
    let why = format!(
        "too many clients: {CLIENTS_MAX} have calls under way; try again when one has ended ({} is served now)",
        ADMINISTRATION.join(", ")
    );
    RpcError::new(jsonrpc::code::INTERNAL_ERROR, why)
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Vec<Client>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client in, in place of the one that has been silent for longest if there is no other room. Where every
    /// client has a call under way, the slot of administration is left; None if that is busy, too.
    fn admit(&self, number: usize, stream: UnixStream) -> Option<Slot> {
        let mut open = self.open();
        let is_full = |open: &[Client]| open.iter().filter(|one| one.slot == Slot::Any).count() >= self.clients_max;
        if is_full(&open) {
            // A client that has gone leaves its slot, whatever it has asked for: nobody hears the answer.
            open.retain(|client| !has_gone(&client.stream));
        }
        let silent = |open: &[Client], slot| {
            let of_slot = open.iter().enumerate().filter(|(_, client)| client.slot == slot);
            of_slot.filter_map(|(at, client)| Some((client.idle_since?, at))).min().map(|(_, at)| at)
        };
        let mut slot = Slot::Any;
        if is_full(&open) {
            let mut longest = silent(&open, Slot::Any);
            if longest.is_none() {
                slot = Slot::Administration;
                longest = silent(&open, slot);
                if longest.is_none() && open.iter().any(|client| client.slot == slot) {
                    return None;
                }
            }
            if let Some(longest) = longest {
                // The thread of that client wakes up and ends.
                let _ = open.swap_remove(longest).stream.shutdown(std::net::Shutdown::Both);
            }
        }
        open.push(Client { number, slot, stream, idle_since: Some(Instant::now()) });
        Some(slot)
    }

    fn forget(&self, number: usize) {
        self.open().retain(|client| client.number != number);
    }

    /// Notes that a client has a call under way, or waits for its next one from now on.
    fn set_idle(&self, number: usize, idle_since: Option<Instant>) {
        if let Some(client) = self.open().iter_mut().find(|client| client.number == number) {
            client.idle_since = idle_since;
        }
    }

    /// Notes that a client has no call under way any more. Its silence began when the last answer went out.
    fn rests(&self, number: usize) {
        if let Some(client) = self.open().iter_mut().find(|client| client.number == number) {
            client.idle_since.get_or_insert_with(Instant::now);
        }
    }

    /// Answers one client until it has no more to say, is silent for too long, or says what cannot be cut into
    /// requests.
    fn serve(&self, mut client: UnixStream, number: usize, slot: Slot) -> io::Result<()> {
        let idle_max = if slot == Slot::Any { self.idle_max } else { self.idle_max.min(ADMINISTRATION_IDLE_MAX) };
        client.set_write_timeout(Some(SEND_STALL))?;
        client.set_read_timeout(Some(idle_max))?;
        let mut splitter = Splitter::new(MAX_REQUEST_BYTES);
        let mut buffer = vec![0; 64 << 10];
        loop {
            while let Some(piece) = splitter.take() {
                let mut is_refused = false;
                let mut call = |method: &str, params: Option<&Value>| {
                    self.set_idle(number, None);
                    is_refused = slot == Slot::Administration && !ADMINISTRATION.contains(&method);
                    if is_refused { Err(too_many()) } else { (self.call)(method, params) }
                };
                match piece {
                    Piece::Value(text) => {
                        // While an answer goes out the next move is the client's: it may see the end of the answer
                        // before the next line runs.
                        let mut send = |piece: &[u8]| {
                            self.set_idle(number, Some(Instant::now()));
                            (&client).write_all(piece)
                        };
                        jsonrpc::answer_in_pieces(&text, &mut call, &mut send)?;
                        if is_refused {
                            return client.shutdown(std::net::Shutdown::Both);
                        }
                        self.rests(number);
                    }
                    Piece::Lost(why) => {
                        client.write_all(&jsonrpc::line(&jsonrpc::parse_error(why))?)?;
                        return client.shutdown(std::net::Shutdown::Both);
                    }
                }
            }
            match client.read(&mut buffer)? {
                0 if splitter.in_the_middle() => {
                    let answer = jsonrpc::parse_error("the connection ended in the middle of a request");
                    return client.write_all(&serde_json::to_vec(&answer)?);
                }
                0 => return Ok(()),
                read => {
                    self.set_idle(number, Some(Instant::now()));
                    splitter.push(&buffer[..read]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn server() -> (tempfile::TempDir, Server) {
        let directory = tempfile::tempdir().expect("a directory");
        let call = |method: &str, params: Option<&Value>| Ok(json!([method, params]));
        let server = Server::start(&directory.path().join("rpc.sock"), Box::new(call)).expect("a server");
        (directory, server)
    }

    /// Everything that comes back once `text` is sent and the sending side is closed.
    fn say(server: &Server, text: &[u8]) -> Vec<Value> {
        let mut stream = UnixStream::connect(server.path()).expect("it listens");
        stream.write_all(text).expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("answers");
        serde_json::Deserializer::from_str(&answers).into_iter().map(|answer| answer.expect("JSON")).collect()
    }

    #[test]
    fn requests_without_delimiters_are_answered_in_order() {
        let (_directory, server) = server();
        let answers = say(&server, b"{\"method\":\"a\",\"id\":1}{\n  \"method\": \"b\",\n  \"id\": 2\n}");
        let said: Vec<_> = answers.iter().map(|answer| (&answer["id"], &answer["result"][0])).collect();
        assert_eq!(said, [(&json!(1), &json!("a")), (&json!(2), &json!("b"))]);
    }

    #[test]
    fn parse_errors_are_answered() {
        let (_directory, server) = server();
        for (text, answers, errors) in [
            (&b"{oops}{\"method\":\"a\",\"id\":1}"[..], 2, 1),
            (b"hello", 1, 1),
            (b"{\"method\":", 1, 1),
            (b" \n", 0, 0),
        ] {
            let got = say(&server, text);
            let parse_errors =
                got.iter().filter(|answer| answer["error"]["code"] == jsonrpc::code::PARSE_ERROR).count();
            assert_eq!((got.len(), parse_errors), (answers, errors), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn the_socket_is_its_owners_alone_and_goes_with_the_server() {
        let (directory, server) = server();
        let path = server.path().to_path_buf();
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let second = Server::start(&path, Box::new(|_, _| Ok(Value::Null)));
        assert_eq!(second.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
        drop(server);
        assert!(!path.exists());
        drop(directory);
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_nothing_else_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rpc.sock");
        drop(UnixListener::bind(&path).expect("a socket"));
        let server = Server::start(&path, Box::new(|_, _| Ok(Value::Null))).expect("it replaces the dead one");
        drop(server);
        fs::write(&path, "mine").expect("a file");
        assert!(Server::start(&path, Box::new(|_, _| Ok(Value::Null))).is_err());
        assert_eq!(fs::read_to_string(&path).expect("still there"), "mine");
    }

    #[test]
    fn silent_clients_make_room_and_are_closed_in_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let call = |_: &str, _: Option<&Value>| Ok(json!(true));
        let start = |name: &str, idle| Server::start_with(&directory.path().join(name), Box::new(call), 2, idle);
        let server = start("full", Duration::from_secs(3600)).expect("a server");
        let connect = || UnixStream::connect(server.path()).expect("it listens");
        let asked = |mut stream: &UnixStream| {
            stream.write_all(b"{\"method\":\"a\",\"id\":1}").expect("it reads");
            stream.read(&mut [0; 100]).expect("an answer") > 0
        };
        let (first, second) = (connect(), connect());
        assert!(asked(&first) && asked(&second) && asked(&first));
        // The second has been silent for longer than the first.
        let third = connect();
        assert!(asked(&third));
        assert_eq!((&second).read(&mut [0; 8]).expect("closed in good order"), 0);
        assert!(asked(&first));
        drop(server);
        let server = start("idle", Duration::from_millis(10)).expect("a server");
        let mut silent = UnixStream::connect(server.path()).expect("it listens");
        assert_eq!(silent.read(&mut [0; 8]).expect("closed in good order"), 0);
    }

    /// Both calls are under way: the slot of the client that has gone is free at once, and the third client hears why
    /// it gets none.
    #[test]
    fn a_client_that_has_gone_leaves_its_slot_and_a_full_server_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let release = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
        let waiting = Arc::clone(&release);
        let under_way = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&under_way);
        let call = move |method: &str, _: Option<&Value>| {
            if method == "wait" {
                counted.fetch_add(1, Ordering::AcqRel);
                let released = waiting.0.lock().expect("a lock");
                drop(waiting.1.wait_while(released, |released| !*released).expect("a lock"));
            }
            Ok(json!(true))
        };
        let path = directory.path().join("rpc.sock");
        let server = Server::start_with(&path, Box::new(call), 2, Duration::from_secs(3600)).expect("a server");
        let asking = |method: &str| {
            let mut stream = UnixStream::connect(server.path()).expect("it listens");
            let _ = stream.write_all(format!("{{\"method\":\"{method}\",\"id\":1}}").as_bytes());
            stream
        };
        let said = |mut stream: UnixStream| {
            let mut bytes = [0; 400];
            let read = stream.read(&mut bytes).expect("an answer");
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        };
        let clients = [asking("wait"), asking("wait")];
        while under_way.load(Ordering::Acquire) < 2 {
            thread::yield_now();
        }
        let refused = said(asking("a"));
        assert!(refused.contains("too many clients"), "{refused}");
        let ended = said(asking("spdk_kill_instance"));
        assert!(ended.contains("true"), "a call of administration has a slot of its own: {ended}");
        // A client that says nothing keeps that slot from nobody.
        let _silent = UnixStream::connect(server.path()).expect("it listens");
        let ended = said(asking("spdk_kill_instance"));
        assert!(ended.contains("true"), "{ended}");
        let [gone, _stays] = clients;
        drop(gone);
        let served = said(asking("a"));
        assert!(served.contains("true"), "{served}");
        *release.0.lock().expect("a lock") = true;
        release.1.notify_all();
    }

    #[test]
    fn an_open_client_does_not_hold_up_the_end() {
        let (_directory, server) = server();
        let mut idle = UnixStream::connect(server.path()).expect("it listens");
        assert_eq!(say(&server, b"{\"method\":\"a\",\"id\":1}").len(), 1);
        drop(server);
        assert_eq!(idle.read(&mut [0; 8]).expect("closed in good order"), 0);
    }
}
