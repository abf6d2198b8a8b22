//! Guests with a stock kernel that speaks NVMe/TCP, in QEMU (rigs/nvme-kernel-client.sh).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::served::NQN;
use super::{file, has_program, stderr, tool};

/// Programs of this machine that the guests use.
const PROGRAMS: [&str; 4] = ["fio", "nvme", "mkfs.ext4", "e2fsck"];

/// The beginning of every script of a guest.
const PRELUDE: &str = r#"
failed() { echo "FAILED: $*"; dmesg | grep -iE 'nvme|I/O error|blk_' | tail -n 30; exit 1; }
# Runs a command that must succeed.
try() { "$@" > /tmp/said 2>&1 || { cat /tmp/said; failed "$*"; }; }
# The same, and it must say something of this kind.
says() { what=$1; shift; try "$@"; grep -qE -- "$what" /tmp/said || { cat /tmp/said; failed "$* does not say: $what"; }; }
# Has this done outside of the guest.
outside() { echo "outside: $*"; read -r answer < /dev/ttyS0; [ "$answer" = done ] || failed "outside: $*: $answer"; }
# Waits until a command succeeds.
wait_for() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 3000 ] || failed "waited for: $*"; usleep 100000; done; }
# Makes Linux a target of a disk of 32 MiB over this transport (tcp). Hosts reach it from open_port to close_port.
make_target() {
  cd /sys/kernel/config/nvmet
  truncate -s 32M /tmp/disk
  here=subsystems/$SUBSYSTEM
  mkdir $here && mkdir $here/namespaces/1 || failed 'no nvmet'
  echo 1 > $here/namespaces/1/buffered_io
  echo /tmp/disk > $here/namespaces/1/device_path && echo 1 > $here/namespaces/1/enable || failed 'no namespace'
  mkdir ports/1
  echo ${1:-tcp} > ports/1/addr_trtype; echo ipv4 > ports/1/addr_adrfam
  echo 10.0.2.15 > ports/1/addr_traddr; echo 4420 > ports/1/addr_trsvcid
}
open_port() { ln -s /sys/kernel/config/nvmet/$here ports/1/subsystems/$SUBSYSTEM || failed 'no port'; }
close_port() { rm ports/1/subsystems/$SUBSYSTEM; }
# Linux from 6.6 on takes a host for one of its NQN and its identifier together: both are named where nvme-cli looks.
host_id=9f2c1b1e-3c5b-4f57-8d2e-6a0d1f0b7c11
echo $host_id > /etc/nvme/hostid; echo nqn.2014-08.org.nvmexpress:uuid:$host_id > /etc/nvme/hostnqn
# Emulated processors stand still for seconds at times: the keep-alive timeout allows for it.
connect() { try nvme connect $AT -n $SUBSYSTEM -k 20 "$@"; wait_for [ -b /dev/nvme0n1 ]; }
# The disk that is the namespace of that number.
disk() { for at in /sys/block/nvme[0-9]n*; do [ "$(cat $at/nsid)" != $1 ] || basename $at; done; }
disconnect() { says 'disconnected 1' nvme disconnect -n $SUBSYSTEM; }
# Writes and reads back; every block has its checksum.
verified() { try fio --name=v --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --group_reporting "$@"; }
"#;

/// True if everything is there that the rig needs.
pub fn has_rig() -> bool {
    let needed = ["qemu-system-x86_64", "busybox", "cpio", "depmod"].iter().chain(&PROGRAMS);
    needed.copied().all(|name| path_of(name).is_some() || has_program(name))
}

fn path_of(name: &str) -> Option<String> {
    let places = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    places.iter().map(|place| format!("{place}/{name}")).find(|path| Path::new(path).exists())
}

/// Boots a guest with the kernel of this machine's Debian that runs `script`; `outside` does what it asks for. Returns
/// the output of the guest, if all went well.
pub fn guest(directory: &Path, port: u16, script: &str, outside: impl FnMut(&str)) -> String {
    guest_of("", directory, port, script, outside)
}

/// Boots a guest as [`guest`] does, which has this program of the test's under the same path.
pub fn guest_with(program: &str, directory: &Path, port: u16, script: &str, outside: impl FnMut(&str)) -> String {
    start(Guest { program: Some(program), ..Guest::default() }, directory, port, script, outside)
}

/// Boots a guest as [`guest_with`] does, without native multipath: each controller has disks of its own.
pub fn guest_without_multipath(program: &str, directory: &Path, port: u16, script: &str) -> String {
    let guest = Guest { program: Some(program), append: "nvme_core.multipath=N", ..Guest::default() };
    start(guest, directory, port, script, |order| panic!("{order}"))
}

/// Boots a guest with the kernel of that release of Debian, as [`guest`] does.
pub fn guest_of(debian: &'static str, directory: &Path, port: u16, script: &str, outside: impl FnMut(&str)) -> String {
    start(Guest { debian, ..Guest::default() }, directory, port, script, outside)
}

/// A guest with the kernel of Debian 13, and with nvme-cli of Debian 13 as `newer nvme`.
pub fn newer_guest(directory: &Path, port: u16, script: &str, outside: impl FnMut(&str)) -> String {
    start(Guest { debian: "13", packages: "nvme-cli", ..Guest::default() }, directory, port, script, outside)
}

/// A guest of Debian 13 whose port 4420 is `port` of this machine's loopback: its kernel is the target.
pub fn target_guest(directory: &Path, port: u16, script: &str, outside: impl FnMut(&str)) -> String {
    start(Guest { debian: "13", forward: Some(port), ..Guest::default() }, directory, port, script, outside)
}

/// The modules and packages with which a guest of Debian 13 or 14 speaks TLS.
const TLS: (&str, &str) = ("tls ctr gcm ghash-generic aes_generic aesni-intel ccm", "ktls-utils nvme-cli keyutils");

/// The beginning of scripts that speak TLS: `share_key KEY IDENTITY-VERSION SUBSYSTEM` puts a key where the kernel
/// finds it; `forget_keys` takes all keys away.
const TLS_PRELUDE: &str = r#"
printf '[debug]\nloglevel=1\ntls=1\n[authenticate]\nkeyrings=.nvme\n' > /etc/tlshd.conf
newer tlshd -c /etc/tlshd.conf -s > /tmp/tlshd.log 2>&1 &
HOST=nqn.2014-08.org.nvmexpress:uuid:$host_id
share_key() { try newer nvme check-tls-key --keydata=$1 --identity=$2 --subsysnqn=$3 --hostnqn=$HOST --insert; }
forget_keys() { for serial in $(awk '$8 == "psk"{print $1}' /proc/keys); do newer keyctl unlink 0x$serial %:.nvme; done; }
wait_for grep -q 'linked into' /tmp/tlshd.log
"#;

/// A guest of Debian 13 or 14 whose kernel is a host that speaks TLS.
pub fn tls_host_guest(debian: &str, directory: &Path, port: u16, script: &str, outside: impl FnMut(&str)) -> String {
    let guest = Guest { debian, modules: TLS.0, packages: TLS.1, ..Guest::default() };
    start(guest, directory, port, &format!("{TLS_PRELUDE}{script}"), outside)
}

/// A guest of Debian 13 or 14 whose kernel is a target that speaks TLS, its port 4420 that port of this machine.
pub fn tls_target_guest(debian: &str, directory: &Path, port: u16, script: &str, outside: impl FnMut(&str)) -> String {
    let guest = Guest { debian, modules: TLS.0, packages: TLS.1, forward: Some(port), ..Guest::default() };
    start(guest, directory, port, &format!("{TLS_PRELUDE}{script}"), outside)
}

/// A guest of Debian 13 with more devices, as QEMU's words describe them, and drivers for them. Plimsoll is there as
/// `$PLIMSOLL`.
pub fn device_guest(directory: &Path, devices: &str, modules: &str, script: &str) -> String {
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let guest = Guest { debian: "13", devices, modules, program: Some(program), ..Guest::default() };
    start(guest, directory, 0, &format!("PLIMSOLL={program}\n{script}"), |order| panic!("{order}"))
}

/// The beginning of scripts with an RDMA device: hosts and targets meet in the guest, at the address of the device.
///
/// `rdma_device` makes the device anew, after `rdma link delete rxe0`. `serve` starts Plimsoll's target of the file
/// /tmp/served, also over TCP, and `end_target` ends it. `run` runs a job of ioengine=nvme_rdma on `$NAMED`, `works`
/// one that must succeed, and `refused` one that must be refused. `begin` starts one that goes on in the background,
/// and `survived` waits for its end, which must be a success.
const RDMA_PRELUDE: &str = r#"
PORT=4420 AT='-t rdma -a 10.0.2.15 -s 4420'
rdma_device() { try rdma link add rxe0 type rxe netdev eth0; }
says 'state ACTIVE' rdma link show rxe0/1
# Starts the target at the address $RDMA, for hosts that $access names, through another program if there is one.
access=--allow-any-host RDMA=10.0.2.15
serve() {
  [ -f /tmp/served ] || truncate -s 64M /tmp/served
  "$@" $PLIMSOLL serve --file /tmp/served --rdma $RDMA --listen 127.0.0.1 $access --nqn $SUBSYSTEM \
    --rpc-socket /tmp/rpc > /tmp/serve.log 2>&1 &
  serve=$!
  wait_for grep -q '^Linux: .*-t rdma' /tmp/serve.log
}
end_target() { kill -INT $serve; wait $serve || { cat /tmp/serve.log; failed 'the target ends with an error'; }; }
rpc() { try $PLIMSOLL rpc -s /tmp/rpc "$@"; }
# Takes the target's counters.
stats() { $PLIMSOLL rpc -s /tmp/rpc nvmf_get_stats > /tmp/stats; }
# The number of commands that have ended.
ended() { stats; sed -n 's/.*"completed_nvme_io": \([0-9]*\).*/\1/p' /tmp/stats; }
# True if more commands have ended since `begin` than a job needs before it begins.
is_busy() { [ "$(ended)" -ge $((before + 100)) ]; }
# True if no host has a connection, and no device an op.
is_idle() { stats && ! grep -qE '"(current_(admin|io)_qpairs|pending_bdev_io)": [1-9]' /tmp/stats; }
# No job may need more than this: the target, another program to start the job with, and options.
TARGET="trtype=rdma adrfam=ipv4 traddr=10.0.2.15 trsvcid=4420" NAMED="$TARGET subnqn=$SUBSYSTEM ns=1" through=
run() { $through $PLIMSOLL run --name=v --ioengine=nvme_rdma --eta=never "--filename=$NAMED" "$@" > /tmp/said 2>&1; }
works() { run "$@" || { cat /tmp/said; failed "$*"; }; }
# Ends with status 2 and one line of that kind.
refused() {
  what=$1; shift; run "$@"; status=$?
  [ $status = 2 ] && [ $(wc -l < /tmp/said) = 1 ] && grep -q "$what" /tmp/said || { cat /tmp/said; failed "$status: $*"; }
}
begin() {
  before=$(ended)
  $PLIMSOLL run --name=l --ioengine=nvme_rdma --eta=never "--filename=$NAMED" "$@" > /tmp/load 2>&1 &
  load=$!
}
survived() { wait $load || { cat /tmp/load; failed "a load does not survive: $*"; }; }
verify="--rw=randwrite --verify=crc32c"
read_only="--rw=randread --bs=4k --size=64k"
"#;

/// A guest of Debian 13 with the RDMA device rxe0 (Soft-RoCE) at 10.0.2.15, in which the kernel is a host
/// (`connect`) and a target (`make_target rdma`) over RDMA. Plimsoll is there as `$PLIMSOLL`, and so are these programs
/// of this machine. `outside` does what the script asks for.
pub fn rdma_guest(directory: &Path, programs: &[&str], script: &str, outside: impl FnMut(&str)) -> String {
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let guest = Guest { debian: "13", rdma: true, program: Some(plimsoll), programs, ..Guest::default() };
    start(guest, directory, 0, &format!("PLIMSOLL={plimsoll}\n{RDMA_PRELUDE}{script}"), outside)
}

/// The beginning of scripts with two RDMA devices more: rxe1 at 10.1.0.1 for hosts, and rxe2 at 10.1.0.2 for targets,
/// with a switch between them. `cut_switch SECONDS` cuts the way between them: the links of both devices stay up, as
/// those of cards do when a switch behind their own fails.
const SWITCH_PRELUDE: &str = r#"
# That of iproute2: that of busybox, which comes first, knows fewer rules.
ip() { for at in /usr/sbin/ip /sbin/ip /usr/bin/ip; do [ ! -x $at ] || break; done; $at "$@"; }
try ip link add br0 type bridge
try ip link set br0 up
for end in 0 1; do
  try ip link add v$end type veth peer name m$end
  try ip link set m$end master br0
  try ip link set m$end up
  try ip link set v$end up
done
# Packets between two addresses of one machine take the cable by rules that come before the table of local addresses.
# An address is answered for by its own device alone, and not by the switch.
echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore
for end in all v0 v1; do
  echo 1 > /proc/sys/net/ipv4/conf/$end/accept_local; echo 0 > /proc/sys/net/ipv4/conf/$end/rp_filter
done
try ip addr add 10.1.0.1/32 dev v0
try ip addr add 10.1.0.2/32 dev v1
for from in 'iif lo' 'oif v0'; do try ip rule add pref 1 $from to 10.1.0.2 table 1; done
for from in 'iif lo' 'oif v1'; do try ip rule add pref 1 $from to 10.1.0.1 table 2; done
try ip rule add pref 100 table local; try ip rule del pref 0
# A link that goes down takes its route along.
add_routes() {
  try ip route replace 10.1.0.2 dev v0 src 10.1.0.1 table 1
  try ip route replace 10.1.0.1 dev v1 src 10.1.0.2 table 2
}
add_devices() { try rdma link add rxe1 type rxe netdev v0; try rdma link add rxe2 type rxe netdev v1; }
add_routes
add_devices
wait_for ping -c 1 -W 1 10.1.0.2 > /dev/null
cut_switch() { try ip link set br0 down; sleep $1; try ip link set br0 up; }
"#;

/// A guest as [`rdma_guest`], with two RDMA devices more and a switch between them.
pub fn switch_guest(directory: &Path, script: &str) -> String {
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let (modules, programs) = ("veth bridge", &["ip"][..]);
    let guest = Guest { debian: "13", rdma: true, modules, program: Some(plimsoll), programs, ..Guest::default() };
    let script = format!("PLIMSOLL={plimsoll}\n{RDMA_PRELUDE}{SWITCH_PRELUDE}{script}");
    start(guest, directory, 0, &script, |order| panic!("{order}"))
}

/// A guest of Debian 13 with packages of it. Plimsoll is there as `$PLIMSOLL`.
pub fn disk_guest(directory: &Path, packages: &str, script: &str) -> String {
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let guest = Guest { debian: "13", packages, program: Some(program), ..Guest::default() };
    start(guest, directory, 0, &format!("PLIMSOLL={program}\n{script}"), |order| panic!("{order}"))
}

/// The rig's guest: the release of Debian that its kernel is of, packages of Debian 13, and the port of this machine
/// that leads to its port 4420; devices, modules and programs that it has beside those of all guests, RDMA among them.
#[derive(Default)]
struct Guest<'a> {
    debian: &'a str,
    packages: &'a str,
    forward: Option<u16>,
    devices: &'a str,
    modules: &'a str,
    program: Option<&'a str>,
    programs: &'a [&'a str],
    rdma: bool,
    /// More words of the kernel's command line.
    append: &'a str,
}

fn start(guest: Guest, directory: &Path, port: u16, script: &str, mut outside: impl FnMut(&str)) -> String {
    let head = format!("PORT={port} AT='-t tcp -a 10.0.2.2 -s {port}' SUBSYSTEM={NQN}\n{PRELUDE}");
    let script = file(directory, "guest.sh", format!("{head}{script}"));
    let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/nvme-kernel-client.sh"));
    rig.arg(script).args(PROGRAMS.iter().chain(guest.programs).filter_map(|name| path_of(name)));
    rig.args(guest.program).env("RIG_QEMU", guest.devices).envs(guest.rdma.then_some(("RIG_RDMA", "1")));
    rig.env("RIG_MODULES", format!("ext4 crc32c_generic {}", guest.modules))
        .env("TMPDIR", directory)
        .env("RIG_DEBIAN", guest.debian)
        .env("RIG_APPEND", guest.append);
    rig.env("RIG_PACKAGES", guest.packages).envs(guest.forward.map(|port| ("RIG_FORWARD", port.to_string())));
    let mut child = rig.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash");
    let mut orders = child.stdin.take().expect("piped");
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        if let Some(action) = line.strip_prefix("outside: ") {
            outside(action);
            orders.write_all(b"done\n").expect("the guest listens");
        }
        said.push_str(&line);
        said.push('\n');
    }
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "the guest ends with {}:\n{said}\n{}", output.status, stderr(&output));
    said
}

/// A key as nvme-cli makes it, for a hash function by its number (0: as it is) and a number of bytes.
pub fn key(directory: &Path, name: &str, hmac: u32, host: &str) -> (String, String) {
    let (hmac, nqn) = (hmac.to_string(), format!("--nqn={host}"));
    let made = tool("nvme", &["gen-dhchap-key", "/dev/nvme-fabrics", "--hmac", &hmac, &nqn], directory);
    let made = made.trim().to_string();
    let path = file(directory, name, &made);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its owner");
    (made, path.display().to_string())
}
