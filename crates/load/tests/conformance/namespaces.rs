//! The targets whose namespaces are an engine's files: Plimsoll's, in this process, and that of Linux, in a guest over
//! TCP, or beside the engine over RDMA.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use nvme_target::device::{DeviceKind, DeviceSpec};
use nvme_target::{NamespaceSpec, SubsystemSpec};
use verbs::Either;
use verbs::double::Fabric;

const SUBSYSTEM: &str = "nqn.2016-06.io.spdk:conformance";

/// The target that serves the namespaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// One of Plimsoll's in this process.
    Here,
    /// One of Plimsoll's in this process over RDMA, on a fabric in memory.
    Fabric,
    /// That of Linux, in the guest of [`run_on_guest`].
    Guest,
    /// That of Linux, on this machine: in the guest of [`run_in_guest`].
    Linux,
}

/// A target at work.
pub enum Target {
    Here(nvme_target::Target, SocketAddr),
    Guest(SocketAddr),
    Linux(Mutex<HashMap<u32, File>>),
}

impl Target {
    pub fn start(service: Service) -> Target {
        if service == Service::Guest {
            let port = std::env::var("NVMET_PORT").expect("runs inside run_on_guest");
            return Target::Guest(SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())));
        }
        if service == Service::Linux {
            return Target::Linux(Mutex::default());
        }
        let target = nvme_target::Target::start(nvme_target::Options::default()).unwrap();
        target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(SUBSYSTEM) }).unwrap();
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let address = match service {
            Service::Fabric => {
                // Engines have one stack in a process, and so all targets are on one fabric.
                static STACK: LazyLock<Either> = LazyLock::new(|| Either::Fabric(Fabric::default()));
                load::engine::use_rdma_stack(STACK.clone());
                target.use_verbs(STACK.clone());
                target.add_rdma_listener(SUBSYSTEM, anywhere)
            }
            _ => target.add_listener(SUBSYSTEM, anywhere),
        };
        let address = address.unwrap();
        Target::Here(target, address)
    }

    /// The words by which an engine finds a namespace.
    pub fn filename(&self, nsid: u32) -> String {
        let address = match self {
            Target::Here(_, address) | Target::Guest(address) => *address,
            Target::Linux(_) => GUEST.parse().unwrap(),
        };
        format!("traddr={} trsvcid={} subnqn={SUBSYSTEM} ns={nsid}", address.ip(), address.port())
    }

    /// Makes a file the namespace of that number, in place of any other.
    pub fn serve(&self, nsid: u32, path: PathBuf) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let target = match self {
            Target::Here(target, _) => target,
            Target::Guest(_) => return order(&format!("serve {nsid} {}", path.file_name().unwrap().display())),
            Target::Linux(disks) => return serve_by_linux(&mut disks.lock().unwrap(), nsid, &path),
        };
        let kind = DeviceKind::File {
            path,
            create_bytes: None,
            direct: false,
            read_only: false,
            keeps_allocated: false,
            shared: false,
        };
        let name = format!("file{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let device = DeviceSpec { name: name.clone(), block_bytes: Some(512), uuid: None, kind };
        target.create_device(device).unwrap();
        let _ = target.remove_namespace(SUBSYSTEM, nsid); // there is none the first time
        let namespace = NamespaceSpec { nsid, ..NamespaceSpec::new(name) };
        assert_eq!(target.add_namespace(SUBSYSTEM, namespace).unwrap(), nsid);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        match self {
            Target::Here(target, _) => drop(target.shutdown(Duration::from_secs(1))),
            _ if std::thread::panicking() => {} // the test has failed already
            Target::Linux(disks) => {
                for (nsid, disk) in disks.get_mut().unwrap().drain() {
                    remove_from_linux(nsid, disk);
                }
            }
            Target::Guest(_) => order("clear"),
        }
    }
}

/// The guest's own address, and the port of its target.
const GUEST: &str = "10.0.2.15:4420";

/// The directory of configfs that is the namespace of that number.
fn namespace_of_linux(nsid: u32) -> PathBuf {
    Path::new("/sys/kernel/config/nvmet/subsystems").join(SUBSYSTEM).join("namespaces").join(nsid.to_string())
}

/// Makes a loop device on the file the namespace of that number, in place of any other.
fn serve_by_linux(disks: &mut HashMap<u32, File>, nsid: u32, path: &Path) {
    if let Some(disk) = disks.remove(&nsid) {
        remove_from_linux(nsid, disk);
    }
    let (disk, name) = crate::attach_loop(path).expect("the guest has loop devices");
    let at = namespace_of_linux(nsid);
    fs::create_dir(&at).unwrap();
    fs::write(at.join("device_path"), name).unwrap();
    fs::write(at.join("enable"), "1").unwrap();
    disks.insert(nsid, disk);
}

fn remove_from_linux(nsid: u32, disk: File) {
    let at = namespace_of_linux(nsid);
    fs::write(at.join("enable"), "0").unwrap();
    fs::remove_dir(&at).unwrap();
    crate::detach_loop(&disk);
}

/// Runs tests of this program, by their names, in a guest whose kernel is the target over RDMA.
pub fn run_in_guest(arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let words = arguments.join(" ");
    let script = format!("SUBSYSTEM={SUBSYSTEM}\n{MAKE_TARGET}\nmake_target rdma\n{} {words}\n", program.display());
    let path = place.path().join("guest.sh");
    fs::write(&path, script).unwrap();
    let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/nvme-kernel-client.sh"));
    rig.arg(path).arg(program).env("RIG_DEBIAN", "13").env("RIG_RDMA", "1").env("TMPDIR", place.path());
    rig.stdin(Stdio::null()).output().unwrap()
}

/// The script that begins those of the guests: `make_target TRANSPORT` makes the guest's kernel a target over this
/// transport.
const MAKE_TARGET: &str = r#"
make_target() {
  cd /sys/kernel/config/nvmet
  here=subsystems/$SUBSYSTEM
  mkdir $here && echo 1 > $here/attr_allow_any_host && mkdir ports/1 && cd ports/1 || exit 97
  echo $1 > addr_trtype; echo ipv4 > addr_adrfam; echo 10.0.2.15 > addr_traddr; echo 4420 > addr_trsvcid
  cd ../..
  ln -s /sys/kernel/config/nvmet/$here ports/1/subsystems/$SUBSYSTEM || { dmesg | tail -n 5; exit 96; }
}
"#;

/// Sizes of the guest's disks in bytes: a guest cannot get another disk later. A file of a test is the next disk of its
/// size, in turn.
const DISKS: [u64; 12] =
    [4096, 4096, 5120, 8192, 8192, 64 << 10, 64 << 10, 64 << 10, 128 << 10, 128 << 10, 1 << 20, 1 << 20];

fn name_of_disk(number: usize) -> String {
    format!("disk{number}")
}

/// A disk of the guest with that content, as this machine sees it. It goes past the guest's caches both ways.
pub fn disk_of_guest(content: &[u8]) -> PathBuf {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let fitting: Vec<usize> = (0..DISKS.len()).filter(|&number| DISKS[number] == content.len() as u64).collect();
    assert!(!fitting.is_empty(), "no disk of {} bytes: add one to DISKS", content.len());
    let turn = TURN.fetch_add(1, Ordering::Relaxed) as usize;
    let directory = std::env::var_os("NVMET_DISKS").expect("runs inside run_on_guest");
    let path = Path::new(&directory).join(name_of_disk(fitting[turn % fitting.len()]));
    fs::write(&path, content).unwrap();
    path
}

/// Has the guest do something, and waits until it is done.
fn order(order: &str) {
    let mut guest = UnixStream::connect(std::env::var_os("NVMET_ORDERS").expect("runs inside run_on_guest")).unwrap();
    writeln!(guest, "{order}").unwrap();
    let mut answer = String::new();
    BufReader::new(guest).read_line(&mut answer).unwrap();
    assert_eq!(answer.trim(), "done", "{order}");
}

/// The script of the guest. Every line that it prints asks for the next order, or says what has gone wrong.
const SCRIPT: &str = r#"
make_target tcp
disk() { for block in /sys/block/vd*; do [ "$(cat $block/serial)" != $1 ] || echo /dev/${block##*/}; done; }
# A namespace goes with its identity.
remove() { [ ! -d $1 ] || { echo 0 > $1/enable && rmdir $1; }; }
while echo next; do
  read -r order nsid name < /dev/ttyS0
  case $order in
    serve) at=$here/namespaces/$nsid; remove $at && mkdir $at && disk $name > $at/device_path && echo 1 > $at/enable ;;
    clear) for at in $here/namespaces/*; do remove $at; done ;;
    end) exit 0 ;;
    *) false ;;
  esac || { echo "failed: $order $nsid $name"; dmesg | tail -n 5; exit 1; }
done
"#;

/// The first program that the guest needs and this machine lacks.
pub fn missing() -> Option<&'static str> {
    let is_there = |name: &&str| {
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|place| Path::new(place).join(name).exists())
    };
    ["qemu-system-x86_64", "busybox", "cpio", "depmod"].into_iter().find(|name| !is_there(name))
}

/// A guest whose kernel is the target, until it is told to end.
struct Guest {
    rig: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Guest {
    fn start(directory: &Path, port: u16) -> Guest {
        let script = directory.join("guest.sh");
        fs::write(&script, format!("SUBSYSTEM={SUBSYSTEM}\n{MAKE_TARGET}{SCRIPT}")).unwrap();
        let mut disks = Vec::new();
        for (number, bytes) in DISKS.into_iter().enumerate() {
            let path = directory.join(name_of_disk(number));
            fs::File::create(&path).unwrap().set_len(bytes).unwrap();
            disks.push(path.display().to_string());
        }
        let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/nvme-kernel-client.sh"));
        rig.arg(script).env("RIG_DEBIAN", "13").env("RIG_FORWARD", port.to_string()).env("TMPDIR", directory);
        rig.env("RIG_MODULES", "virtio_blk").env("RIG_DISKS", disks.join(" "));
        let mut rig = rig.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = rig.stdin.take().unwrap();
        let answers = BufReader::new(rig.stdout.take().unwrap());
        let mut guest = Guest { rig, orders, answers };
        assert_eq!(guest.next(), "next", "the guest is ready");
        guest
    }

    /// The next thing that the guest says.
    fn next(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().into()
    }

    /// Passes orders of [`order`] on, until the guest fails or the socket closes.
    fn serve(mut self, listener: &UnixListener) {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut order = String::new();
            BufReader::new(&stream).read_line(&mut order).unwrap();
            let _ = self.orders.write_all(order.as_bytes()); // who has gone answers nothing
            if order.trim() == "end" {
                break;
            }
            let answer = self.next();
            let _ = writeln!(stream, "{}", if answer == "next" { "done" } else { &answer });
        }
        assert!(self.rig.wait().unwrap().success());
    }
}

/// Runs tests of this program, by their names, while a guest is the target.
pub fn run_on_guest(arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("orders");
    let listener = UnixListener::bind(&socket).unwrap();
    // Below the ports that the system hands out: it stays free until the guest binds it.
    let port = 20_000 + (std::process::id() % 10_000) as u16;
    let guest = Guest::start(place.path(), port);
    let served = std::thread::spawn(move || guest.serve(&listener));
    let mut suite = Command::new(std::env::current_exe().unwrap());
    suite.env("NVMET_PORT", port.to_string()).env("NVMET_DISKS", place.path()).env("NVMET_ORDERS", &socket);
    let output = suite.args(arguments).output().unwrap();
    UnixStream::connect(&socket).unwrap().write_all(b"end\n").unwrap();
    served.join().unwrap();
    output
}
