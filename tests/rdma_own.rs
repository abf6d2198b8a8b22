//! Plimsoll's initiator and Plimsoll's target over RDMA, with each other and with Linux, on Soft-RoCE in a guest of
//! Debian 13: ends that are killed, keys, and memory that cannot be locked.

mod common;
use common::guest::{has_rig, rdma_guest, switch_guest};
use common::*;

/// The initiator finds the target by discovery and reads back all data that it wrote: with and without data in
/// capsules, over one queue and several, spinning and asleep. A killed initiator leaves nothing in the target. A load
/// survives a target that is killed and comes back, and ends in an error when the target stays away.
///
/// Hosts and targets prove by their keys who they are, each of Plimsoll's with its own kind and with Linux. Each end
/// that may not lock the memory that it needs says so, and the target goes on with less.
#[test]
#[ignore = "boots a guest: make test-guest"]
fn plimsoll_meets_itself_over_soft_roce() {
    if !has_rig() {
        return;
    }
    let place = directory();
    let script = r#"
cd /tmp
HOST=nqn.2014-08.org.nvmexpress:uuid:$host_id
serve
NAMED=$TARGET works $verify --bs=4k --size=256k --iodepth=4
grep -q 'verify 64 blocks, 0 differ' /tmp/said || { cat /tmp/said; failed 'nothing verified'; }
for queues in 1 3; do
  for poll in adaptive never; do
    works $verify --bsrange=4k-128k --size=4m --iodepth=16 --nr_io_queues=$queues --poll=$poll
  done
done
works $verify --bs=8k --size=1m --iodepth=4 --numjobs=2 --offset_increment=2m
works $verify --bs=2m --size=8m --iodepth=2
works --rw=trim --bs=4k --size=256k --iodepth=4
wait_for is_idle
echo "data"
mixed="--rw=randrw --bsrange=4k-64k --iodepth=32 --nr_io_queues=2 --size=16m --time_based --runtime=600"
for round in 1 2 3; do
  begin $mixed
  wait_for is_busy
  kill -9 $load; wait $load
  wait_for is_idle
done
works $verify --bsrange=4k-128k --size=2m --iodepth=16
paced="$verify --bsrange=4k-64k --size=8m --iodepth=8 --nr_io_queues=2 --rate_iops=40"
for round in 1 2; do
  begin $paced
  wait_for is_busy
  kill -0 $load || failed 'the load has ended already'
  kill -9 $serve; wait $serve
  serve
  survived "round $round"
  grep -q ', 0 differ' /tmp/load || { cat /tmp/load; failed 'nothing verified'; }
done
begin $mixed --ctrl_loss_tmo=3
wait_for is_busy
end_target
wait $load && failed 'a load whose target has gone succeeds'
grep -q 'error ' /tmp/load || { cat /tmp/load; failed 'no error is told'; }
echo "ends"
new_key() { nvme gen-dhchap-key /dev/nvme-fabrics --hmac=0 --nqn=$1 > /tmp/$2 || failed 'no key'; chmod 600 /tmp/$2; }
new_key $HOST own; new_key $SUBSYSTEM back; new_key $HOST other
access="--allow-host $HOST --dhchap-key /tmp/own --dhchap-ctrlr-key /tmp/back"
serve
proves() {
  refused 'authentication' $read_only
  refused 'is it the key that the target has' $read_only --dhchap_key=/tmp/other
  refused 'the keys differ' $read_only --dhchap_key=/tmp/own --dhchap_ctrlr_key=/tmp/other
  works $verify --bs=4k --size=256k --iodepth=4 --nr_io_queues=3 --dhchap_key=/tmp/own
  works $verify --bsrange=4k-64k --size=1m --iodepth=4 --nr_io_queues=3 --dhchap_key=/tmp/own --dhchap_ctrlr_key=/tmp/back
}
proves
says 'trtype: *rdma' nvme discover $AT
denied() { nvme connect $AT -n $SUBSYSTEM "$@" > /tmp/said 2>&1 && failed "a host without a proof comes in: $*"; }
denied
denied --dhchap-secret=$(cat /tmp/other)
denied --dhchap-secret=$(cat /tmp/own) --dhchap-ctrl-secret=$(cat /tmp/other)
for both in '' --dhchap-ctrl-secret=$(cat /tmp/back); do
  connect -i 2 --dhchap-secret=$(cat /tmp/own) $both
  verified --filename=/dev/$(disk 1) --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=1m
  disconnect
done
end_target
make_target rdma
mkdir hosts/$HOST && ln -s /sys/kernel/config/nvmet/hosts/$HOST $here/allowed_hosts/$HOST || failed 'no host'
cat /tmp/own > hosts/$HOST/dhchap_key || failed 'no key'
cat /tmp/back > hosts/$HOST/dhchap_ctrl_key || failed 'no key of the target'
open_port
for group in null ffdhe2048; do
  echo $group > hosts/$HOST/dhchap_dhgroup || failed "$group"
  proves
done
close_port
echo "keys"
printf '#!/bin/sh\nulimit -l $1; shift\nexec "$@"\n' > /tmp/limit
limited() { echo "/usr/bin/setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock sh /tmp/limit $1"; }
access=--allow-any-host
serve
large="$verify --bs=128k --iodepth=32 --size=8m"
through=$(limited 64) refused 'ulimit -l' $read_only
through=$(limited 2048) refused 'ulimit -l' $large
through=$(limited 16384) works $large
wait_for is_idle
end_target
# The target has memory for a connection, and not for the data of all commands.
serve $(limited 16384)
run --rw=randread --bs=1m --iodepth=64 --size=64m && { cat /tmp/said; failed 'no command fails'; }
grep -q 'error ' /tmp/said || { cat /tmp/said; failed 'no error is told'; }
wait_for is_idle
works $verify --bs=4k --size=256k --iodepth=4
end_target
dmesg | grep -E 'BUG|WARNING|Oops' && failed 'the kernel complains'
echo "all of it"
"#;
    let said = rdma_guest(place.path(), &["setpriv"], script, |order| panic!("{order}"));
    assert!(said.contains("all of it"), "{said}");
}

/// A switch fails amid verified loads, for less time than cards go on sending, and for longer than targets wait for a
/// sign of life. Plimsoll's initiator goes on, on Plimsoll's target and on that of Linux, and so does the host of Linux
/// on Plimsoll's target: all data are right. A load ends in an error when the switch stays down for `ctrl_loss_tmo`,
/// and the target has ended the connections when their keep-alive has.
///
/// A device of Soft-RoCE may make no connection any more when its own link has been down amid a load: the load goes on
/// or ends in an error, and the remedy that docs/nvme-rdma.md names is one.
#[test]
#[ignore = "boots a guest: make test-guest"]
fn loads_survive_a_switch_that_fails() {
    if !has_rig() {
        return;
    }
    let place = directory();
    let script = r#"
cd /tmp
RDMA=10.1.0.2
serve
make_target rdma
echo 1 > $here/attr_allow_any_host; echo 10.1.0.2 > ports/1/addr_traddr; echo 4421 > ports/1/addr_trsvcid
open_port
cd /tmp
ours="trtype=rdma traddr=10.1.0.2 trsvcid=4420 subnqn=$SUBSYSTEM ns=1"
of_linux="trtype=rdma traddr=10.1.0.2 trsvcid=4421 subnqn=$SUBSYSTEM ns=1"
AT='-t rdma -a 10.1.0.2 -s 4420'
connect -i 2 -c 1
block=/dev/$(disk 1)
paced="--name=l --rw=randwrite --bsrange=4k-64k --size=4m --verify=crc32c --rate_iops=10 --iodepth=8"
job="$paced --eta=never --ioengine=nvme_rdma --nr_io_queues=2 --ctrl_loss_tmo=600"
sent() { cat /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts; }
are_busy() { [ $(sent) -gt $((before + 2000)) ]; }
ends() {
  wait $2 && { [ $1 = linux ] || grep -q ', 0 differ' /tmp/$1; } || { cat /tmp/$1 /tmp/serve.log; failed "$1, $seconds s"; }
}
for seconds in 0.2 1 3 30; do
  before=$(sent)
  $PLIMSOLL run $job "--filename=$ours" > /tmp/own 2>&1 & own=$!
  $PLIMSOLL run $job "--filename=$of_linux" > /tmp/nvmet 2>&1 & nvmet=$!
  fio $paced --ioengine=libaio --direct=1 --verify_fatal=1 --offset=32m --filename=$block > /tmp/linux 2>&1 & linux=$!
  wait_for are_busy
  cut_switch $seconds
  ends own $own; ends nvmet $nvmet; ends linux $linux
  echo "$seconds s"
done
disconnect
wait_for is_idle
NAMED=$ours
begin --rw=randread --bs=4k --iodepth=4 --time_based --runtime=600 --ctrl_loss_tmo=3
wait_for is_busy
try ip link set br0 down
wait $load && failed 'a load succeeds whose switch stays down'
grep -q 'error ' /tmp/load || { cat /tmp/load; failed 'no error is told'; }
wait_for is_idle
try ip link set br0 up
wait_for ping -c 1 -W 1 10.1.0.2 > /dev/null
works $verify --bs=4k --size=256k --iodepth=4
echo "down"
begin --rw=randread --bs=4k --iodepth=4 --time_based --runtime=20 --ctrl_loss_tmo=3
wait_for is_busy
# The target's link: its responses fail, and it ends the connection of the load, but cannot say so.
try ip link set v1 down
sleep 8
try ip link set v1 up
add_routes
wait $load || grep -q 'error ' /tmp/load || { cat /tmp/load; failed 'no error is told'; }
wait_for is_idle
end_target
rdma link delete rxe1; rdma link delete rxe2
add_devices
wait_for ping -c 1 -W 1 10.1.0.2 > /dev/null
serve
works $verify --bs=4k --size=256k --iodepth=4
end_target
dmesg | grep -E 'BUG|WARNING|Oops' && failed 'the kernel complains'
echo "all of it"
"#;
    let said = switch_guest(place.path(), script);
    assert!(said.contains("all of it"), "{said}");
}
