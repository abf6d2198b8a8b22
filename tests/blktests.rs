//! The cases of blktests' group nvme that no other test has, with the kernel of Debian 13 as the host: the table of
//! docs/decisions/cases-of-blktests.md says where each case is.

mod common;
use common::directory;
use common::guest::{guest, guest_of, has_rig};
use common::served::{NQN, Served};

/// The host that a guest is.
const HOST: &str = "host=nqn.2014-08.org.nvmexpress:uuid:9f2c1b1e-3c5b-4f57-8d2e-6a0d1f0b7c11";

/// nvme/061 and 060: the target takes the subsystem away and sets it up again while fio writes and verifies. The port
/// answers all the time: hosts are refused, and none gives up.
#[test]
#[ignore = "takes minutes: make test-guest"]
fn a_subsystem_that_goes_and_comes_back_keeps_its_hosts() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let target = Served::one_line(directory.path(), &["--mem", "32m"]);
    let port = target.port();
    let address = ["listen_address.traddr=127.0.0.1".to_string(), format!("listen_address.trsvcid={port}")];
    let address: Vec<&str> = address.iter().map(String::as_str).collect();
    target.rpc(&[&["nvmf_subsystem_add_listener", "nqn=discovery"], &address[..]].concat());
    let script = r#"
wait_for() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 400 ] || failed "waited for: $*"; usleep 100000; done; }
live() { wait_for grep -q live /sys/class/nvme/nvme0/state; }
connect -c 1 -l 600
fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 --rw=randwrite --bsrange=4k-64k --size=24m --iodepth=8 \
  --rate_iops=40 --verify=crc32c --verify_fatal=1 --verify_backlog=64 > /tmp/fio 2>&1 &
fio=$!
for round in 1 2 3; do
  outside delete
  wait_for grep -q connecting /sys/class/nvme/nvme0/state
  usleep 2500000 # two Connects or more are refused
  [ -e /sys/class/nvme/nvme0 ] || failed 'the host has given up a subsystem that was away'
  outside create
  usleep 2500000 # the subsystem is there, and this host is not listed yet
  [ -e /sys/class/nvme/nvme0 ] || failed 'the host has given up a subsystem that did not list it'
  outside list
  live
done
wait $fio || { cat /tmp/fio; failed fio; }
dmesg | grep -iE 'I/O error|WARNING:|BUG:' && failed 'errors'
disconnect
echo "all of it"
"#;
    let nqn = format!("nqn={NQN}");
    let said = guest_of("13", directory.path(), port, script, |action| match action {
        "delete" => drop(target.rpc(&["nvmf_delete_subsystem", &nqn])),
        "create" => {
            target.rpc(&["nvmf_create_subsystem", &nqn]);
            target.rpc(&["nvmf_subsystem_add_ns", &nqn, "namespace.bdev_name=Malloc0"]);
            target.rpc(&[&["nvmf_subsystem_add_listener", &nqn], &address[..]].concat());
        }
        "list" => drop(target.rpc(&["nvmf_subsystem_add_host", &nqn, HOST])),
        other => panic!("{other}"),
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// nvme/048: the number of queues changes, and a host gets the new one with its reset.
#[test]
#[ignore = "takes minutes: make test-guest"]
fn a_reset_brings_the_new_number_of_queues() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let target = Served::one_line(directory.path(), &["--mem", "32m"]);
    let script = r#"
connect -i 2
for number in 1 2; do
  outside queues-$number
  try nvme reset /dev/nvme0
  wait_for grep -q live /sys/class/nvme/nvme0/state
  queues=$(cat /sys/class/nvme/nvme0/queue_count)
  [ $queues = $((number + 1)) ] || failed "$queues queues, not $number beside the admin queue"
  verified --filename=/dev/nvme0n1 --rw=randwrite --bs=4k --size=2m --iodepth=8
done
disconnect
echo "all of it"
"#;
    let said = guest(directory.path(), target.port(), script, |action| {
        let number = action.strip_prefix("queues-").expect(action);
        target.rpc(&["nvmf_set_max_io_qpairs", &format!("max_io_qpairs_per_ctrlr={number}")]);
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// nvme/003, 016, 029, 031, 047, 049, 055, 058 and 059: what a host does with namespaces, queues, discovery and
/// commands of its own.
#[test]
#[ignore = "takes minutes: make test-guest"]
fn linux_6_12_finds_each_namespace_as_it_is() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let target = Served::one_line(directory.path(), &["--mem", "32m"]);
    let nqn = format!("nqn={NQN}");
    for number in 1..=9 {
        let (name, uuid) = (format!("name=D{number}"), format!("uuid=00000000-0000-4000-8000-00000000000{number}"));
        target.rpc(&["bdev_malloc_create", &name, "num_blocks=2048", "block_size=512", &uuid]);
    }
    let script = r#"
uuids() { for at in /sys/block/nvme0n*; do [ "$(cat $at/nsid)" = 1 ] || echo "$(cat $at/nsid) $(cat $at/uuid)"; done | sort; }

# 031: a controller goes as soon as it is there.
for round in 1 2 3 4 5 6 7 8; do
  try nvme connect $AT -n $SUBSYSTEM -k 20
  disconnect
done
[ -z "$(ls /sys/class/nvme)" ] || failed "left: $(ls /sys/class/nvme)"

# 047: queues for reads, writes and polling.
connect -W 1
verified --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=2m --iodepth=4
disconnect
connect -W 1 -P 1
verified --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=2m --iodepth=4
fio --name=p --ioengine=io_uring --hipri --direct=1 --filename=/dev/nvme0n1 --rw=randread --bs=4k --size=2m > /tmp/said 2>&1 ||
  { cat /tmp/said; failed 'reads that poll'; }
disconnect
connect

# 029: transfers of odd lengths at odd places. (The namespace has blocks of 4096 bytes.)
for transfer in '1 32' '1 31' '1 33' '31 64' '31 63' '31 65'; do
  set -- $transfer
  rm -f /tmp/back
  dd if=/dev/urandom of=/tmp/data bs=4096 count=$2 2> /dev/null
  try nvme write /dev/nvme0n1 -s $1 -c $(($2 - 1)) -z $((4096 * $2)) -d /tmp/data
  try nvme read /dev/nvme0n1 -s $1 -c $(($2 - 1)) -z $((4096 * $2)) -d /tmp/back
  cmp /tmp/data /tmp/back || { ls -l /tmp/data /tmp/back; failed "$2 blocks at $1"; }
done

# 049: commands that io_uring passes through.
for options in '' '--fixedbufs'; do
  try fio --name=u --ioengine=io_uring_cmd --cmd_type=nvme --filename=/dev/ng0n1 --rw=randread --bs=4k --size=1m --iodepth=16 $options
done

# 059: no write is atomic beyond what the target says: one block.
block=$(cat /sys/block/nvme0n1/queue/logical_block_size)
unit=$(cat /sys/block/nvme0n1/queue/atomic_write_unit_max_bytes)
[ $unit -le $block ] || failed "atomic writes of $unit bytes"

# 058: namespaces are mapped anew under their old numbers, in any order.
for round in 0 1 2 3 4 5; do
  outside remap-$round
  for at in 0 1 2; do
    echo "$((2 + (at + round) % 3)) 00000000-0000-4000-8000-00000000000$((1 + (3 * at + 2 * round) % 9))"
  done | sort > /tmp/names
  # Linux drops a number that has changed its disk, and finds the new disk with its next scan.
  n=0; until uuids > /tmp/seen; cmp -s /tmp/seen /tmp/names; do
    n=$((n + 1)); [ $n -lt 100 ] || { cat /tmp/seen /tmp/names; failed "round $round"; }
    nvme ns-rescan /dev/nvme0 2> /dev/null; usleep 300000
  done
done

# 055: a write to a namespace that is gone, by a host that is not told so.
try nvme set-feature /dev/nvme0 -f 0xb -v 0
outside remove
nvme write /dev/nvme0n2 -s 1 -c 0 -z 512 -d /tmp/data > /tmp/said 2>&1 && failed 'a write to nothing'
grep -qiE 'invalid namespace' /tmp/said || { cat /tmp/said; failed 'the status of a namespace that is gone'; }
try nvme ns-rescan /dev/nvme0
wait_for [ ! -e /dev/nvme0n2 ]
disconnect

# 003: a host that stays with the discovery service, which takes its keep-alives.
nvme connect $AT -n nqn.2014-08.org.nvmexpress.discovery -k 2 > /tmp/said 2>&1 || { cat /tmp/said; failed discovery; }
sleep 7
grep -q live /sys/class/nvme/nvme*/state || failed 'the discovery controller is not live'
dmesg | grep -q 'failed nvme_keep_alive' && failed 'keep alive'
try nvme disconnect -n nqn.2014-08.org.nvmexpress.discovery

# 002 and 016: as many subsystems as there are is what discovery says, and each change counts (030).
generation() { nvme discover $AT | sed -n 's/.*Generation counter \([0-9]*\).*/\1/p'; }
before=$(generation)
outside many
says 'Number of Records 202,' nvme discover $AT
after=$(generation)
[ "$after" -gt "$before" ] || failed "generation $before, then $after"
outside close
closed=$(generation)
[ "$closed" -gt "$after" ] || failed "generation $after, then $closed: a subsystem is closed to this host"
outside open
[ "$(generation)" -gt "$closed" ] || failed 'a subsystem is open again'
dmesg | grep -iE 'WARNING:|BUG:' && failed 'errors'
echo "all of it"
"#;
    let more = "nqn.2016-06.io.spdk:more";
    let add = |nsid: usize, device: usize| {
        let (nsid, device) = (format!("namespace.nsid={nsid}"), format!("namespace.bdev_name=D{device}"));
        target.rpc(&["nvmf_subsystem_add_ns", &nqn, &nsid, &device]);
    };
    let remove = |nsid: usize| drop(target.rpc(&["nvmf_subsystem_remove_ns", &nqn, &format!("nsid={nsid}")]));
    let mut mapped: Vec<(usize, usize)> = Vec::new();
    let said = guest_of("13", directory.path(), target.port(), script, |action| match action {
        "remove" => remove(2),
        "many" => {
            let address = ["listen_address.traddr=127.0.0.1", &format!("listen_address.trsvcid={}", target.port())];
            for number in 0..200 {
                let nqn = format!("nqn={more}{number}");
                target.rpc(&["nvmf_create_subsystem", &nqn, "allow_any_host=true"]);
                target.rpc(&[&["nvmf_subsystem_add_listener", &nqn], &address[..]].concat());
            }
        }
        "close" | "open" => {
            let any = format!("allow_any_host={}", action == "open");
            target.rpc(&["nvmf_subsystem_allow_any_host", &format!("nqn={more}7"), &any]);
        }
        other => {
            let round: usize = other.strip_prefix("remap-").expect(other).parse().expect("a number");
            mapped.iter().rev().for_each(|(nsid, _)| remove(*nsid));
            // A permutation of three devices of nine under the numbers 2 to 4, another in each round.
            mapped = (0..3).map(|at| (2 + (at + round) % 3, 1 + (3 * at + 2 * round) % 9)).collect();
            mapped.iter().for_each(|(nsid, device)| add(*nsid, *device));
        }
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}
