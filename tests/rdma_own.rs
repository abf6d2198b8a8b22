//! Plimsoll's initiator and Plimsoll's target over RDMA, with each other and with Linux, on Soft-RoCE in a guest of
//! Debian 13: ends that are killed, keys, and memory that cannot be locked.

mod common;
use common::guest::{has_rig, rdma_guest};
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
