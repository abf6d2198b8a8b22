//! A `plimsoll serve` of a test's own, ended with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use serde_json::{Value, json};

pub use super::free_port::free_port;
use super::{plimsoll, run, stderr, succeed};

/// The subsystem of targets given in one line.
pub const NQN: &str = "nqn.2016-06.io.spdk:cnode1";

/// A port where nobody listens or can begin to: a connection comes from it, for as long as what is returned lives.
pub fn closed_port() -> (u16, impl Sized) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream = TcpStream::connect(listener.local_addr().expect("its port")).expect("it listens");
    (stream.local_addr().expect("its port").port(), (listener, stream))
}

/// A target that is ready; ended when dropped.
pub struct Served {
    child: Child,
    stdout: BufReader<ChildStdout>,
    socket: PathBuf,
    /// The arguments that the target was started with.
    arguments: Vec<String>,
    /// The lines that the target printed until it named its control socket.
    pub said: Vec<String>,
}

impl Served {
    /// `plimsoll serve` with these arguments and a control socket in `directory`, once it is ready.
    pub fn start(directory: &Path, arguments: &[&str]) -> Served {
        let number = std::fs::read_dir(directory).expect("a directory").count();
        let socket = directory.join(format!("{number}.sock"));
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.to_string()).collect();
        let mut command = plimsoll(directory);
        command.arg("serve").args(&arguments).arg("--rpc-socket").arg(&socket);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        Served::ready(child, socket, arguments)
    }

    fn ready(mut child: Child, socket: PathBuf, arguments: Vec<String>) -> Served {
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = Vec::new();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap_or(0) == 0 {
                let output = child.wait_with_output().expect("it has ended");
                panic!("serve {arguments:?} did not get ready: {}", stderr(&output));
            }
            said.push(line.trim_end().to_string());
            if line.starts_with("Control: ") {
                return Served { child, stdout, socket, arguments, said };
            }
        }
    }

    /// Ends it as a crash does: kill -9.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("its end");
    }

    /// Starts one that was killed again: where it was, if it was one to [restart](Served::one_to_restart).
    pub fn restart(&mut self) {
        let arguments = std::mem::take(&mut self.arguments);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        *self = Served::start(self.socket.parent().expect("a directory"), &words);
    }

    /// Ends it with SIGTERM and starts it again with the same arguments: one to [restart](Served::one_to_restart).
    pub fn upgrade(mut self) -> Served {
        let arguments = std::mem::take(&mut self.arguments);
        let directory = self.socket.parent().expect("a directory").to_path_buf();
        self.end();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Served::start(&directory, &words)
    }

    /// One device or several given in one line, on a free port of loopback.
    pub fn one_line(directory: &Path, arguments: &[&str]) -> Served {
        Served::start(directory, &[arguments, &["--listen", "127.0.0.1:0"]].concat())
    }

    /// A target whose namespace 1 lies on the device "Slow" above "Base": reads and writes take that much longer.
    /// `base` is the method that creates the device below, of 65,536 blocks of 4 KiB.
    pub fn slow(directory: &Path, base: &str, read_us: u32, write_us: u32) -> Served {
        let served = Served::start(directory, &[]);
        let nqn = format!("nqn={NQN}");
        let latency = |kind: &str, us: u32| format!("{kind}_latency={us}");
        let slow = [("avg_read", read_us), ("p99_read", read_us), ("avg_write", write_us), ("p99_write", write_us)];
        let slow = slow.map(|(kind, us)| latency(kind, us));
        let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
        let listen = ["listen_address.trtype=TCP", "listen_address.traddr=127.0.0.1", "listen_address.trsvcid=0"];
        for call in [
            &["nvmf_create_transport", "trtype=tcp"][..],
            &[base, "name=Base", "num_blocks=65536", "block_size=4096"],
            &[&["bdev_delay_create", "name=Slow", "base_bdev_name=Base"], &slow[..]].concat(),
            &["nvmf_create_subsystem", &nqn, "allow_any_host=true"],
            &["nvmf_subsystem_add_ns", &nqn, "namespace.bdev_name=Slow"],
            &[&["nvmf_subsystem_add_listener", nqn.as_str()], &listen[..]].concat(),
        ] {
            served.rpc(call);
        }
        served
    }

    /// A target with devices given in one line, on a fixed port that is still free when the target starts again.
    pub fn one_to_restart(directory: &Path, arguments: &[&str]) -> Served {
        let listen = format!("127.0.0.1:{}", free_port());
        Served::start(directory, &[arguments, &["--listen", &listen]].concat())
    }

    /// The lines of the target's log, while it runs and until it ends.
    pub fn log(&mut self) -> impl Iterator<Item = String> + use<> {
        let lines = BufReader::new(self.child.stderr.take().expect("nobody has it")).lines();
        lines.map(|line| line.expect("text"))
    }

    /// The path of the target's control socket.
    pub fn socket(&self) -> &str {
        self.socket.to_str().expect("text")
    }

    /// The process id of the target.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output of `plimsoll rpc` with these words.
    pub fn try_rpc(&self, words: &[&str]) -> Output {
        run(self.socket.parent().expect("a directory"), &[&["rpc", "-s", self.socket()], words].concat())
    }

    /// The text that `plimsoll rpc` prints for these words; it must succeed.
    pub fn rpc_text(&self, words: &[&str]) -> String {
        let directory = self.socket.parent().expect("a directory");
        super::stdout(&succeed(directory, &[&["rpc", "-s", self.socket()], words].concat()))
    }

    /// The answer of `plimsoll rpc` to these words as JSON; it must succeed.
    pub fn rpc(&self, words: &[&str]) -> Value {
        let text = self.rpc_text(words);
        serde_json::from_str(&text).unwrap_or_else(|_| json!(text.trim_end()))
    }

    /// The one line with which it refuses.
    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.try_rpc(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}{}", super::stdout(&output), stderr(&output));
        assert_eq!(stderr(&output).trim_end().lines().count(), 1, "{}", stderr(&output));
        stderr(&output)
    }

    /// All answers to bytes that are written to the socket as they are.
    pub fn say(&self, bytes: &[u8]) -> Vec<Value> {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        stream.write_all(bytes).expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers");
        serde_json::Deserializer::from_str(&text).into_iter().map(|answer| answer.expect("JSON")).collect()
    }

    /// The port of its first listener.
    pub fn port(&self) -> u16 {
        let subsystems = self.rpc(&["nvmf_get_subsystems"]);
        let port = subsystems[0]["listen_addresses"][0]["trsvcid"].as_str().expect("a listener");
        port.parse().expect("a port")
    }

    /// A namespace of the subsystem [`NQN`], as `--filename` takes it.
    pub fn namespace(&self, nsid: u32) -> String {
        let port = self.port();
        format!("trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={port} subnqn={NQN} ns={nsid}")
    }

    /// The argument `--filename` with a namespace of the subsystem [`NQN`].
    pub fn filename(&self, nsid: u32) -> String {
        format!("--filename={}", self.namespace(nsid))
    }

    /// The next line that it prints.
    pub fn read_line(&mut self, line: &mut String) {
        self.stdout.read_line(line).expect("text");
    }

    /// Sends a signal: TERM, INT, ...
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(status.expect("kill runs").success());
    }

    /// The exit status of the target, and its words on both outputs since it was ready.
    pub fn wait(mut self) -> (ExitStatus, String, String) {
        let mut out = String::new();
        self.stdout.read_to_string(&mut out).expect("text");
        let mut err = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut err).expect("text");
        }
        (self.child.wait().expect("it ends"), out, err)
    }

    /// Ends it with SIGTERM, which must work in good order. Returns what its log has beside notices.
    pub fn end(self) -> String {
        self.signal("TERM");
        let socket = self.socket.clone();
        let (status, _, err) = self.wait();
        assert_eq!(status.code(), Some(0), "{err}");
        assert!(!socket.exists(), "the control socket goes with it");
        err.split_inclusive('\n').filter(|line| !line.starts_with("plimsoll: notice: ")).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}
