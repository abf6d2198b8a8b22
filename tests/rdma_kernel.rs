//! NVMe over RDMA in a guest with Soft-RoCE: the host of Debian 13's kernel, with its own target and with Plimsoll's.

mod common;
use common::guest::{has_rig, rdma_guest};
use common::*;

/// The kernel's host finds the kernel's target by discovery, reads back through several queues what it wrote, in
/// capsules and by RDMA, and comes back after a reset. The rig is sound: what fails in it with Plimsoll on one side is
/// Plimsoll's.
#[test]
#[ignore = "boots a guest: make test-guest"]
fn linux_meets_itself_over_soft_roce() {
    if !has_rig() {
        return;
    }
    let place = directory();
    let script = r#"
make_target rdma
echo 1 > $here/attr_allow_any_host
open_port
says "trtype: *rdma" nvme discover $AT
# On one processor several queues are of several kinds.
connect -i 1 -W 1 -P 1
says '^rdma$' cat /sys/class/nvme/nvme0/transport
says '^4$' cat /sys/class/nvme/nvme0/queue_count
verified --filename=/dev/$(disk 1) --rw=randwrite --bsrange=4k-128k --iodepth=8 --size=4m
echo 1 > /sys/class/nvme/nvme0/reset_controller
wait_for grep -q live /sys/class/nvme/nvme0/state
verified --filename=/dev/$(disk 1) --rw=randwrite --bs=4k --iodepth=4 --size=1m --do_verify=1
disconnect
says "^plimsoll " $PLIMSOLL --version
echo "all of it"
"#;
    let said = rdma_guest(place.path(), &[], script, |order| panic!("{order}"));
    assert!(said.contains("all of it"), "{said}");
}

/// The kernel's host finds Plimsoll's target by discovery, reads back what it wrote through several queues, in capsules
/// and by RDMA, and makes a file system. It comes back after resets amid I/O, and after an end of the target. A host
/// that disconnects amid I/O leaves nothing in the target. A device that goes takes its connections along, and the
/// target serves on it again when it is back. A target that may not lock memory says so.
#[test]
#[ignore = "boots a guest: make test-guest"]
fn plimsoll_serves_linux_over_soft_roce() {
    if !has_rig() {
        return;
    }
    let place = directory();
    let script = r#"
cd /tmp
is_live() { grep -q live /sys/class/nvme/nvme0/state; }
serve
says "trtype: *rdma" nvme discover $AT
grep -qE 'trtype: *tcp' /tmp/said || failed 'discovery names one transport'
grep -qE 'rdma_cms: *rdma-cm' /tmp/said || failed 'discovery says nothing of RDMA'
connect -i 1 -W 1 -P 1
says '^rdma$' cat /sys/class/nvme/nvme0/transport
says '^4$' cat /sys/class/nvme/nvme0/queue_count
block=/dev/$(disk 1)
verified --filename=$block --rw=randwrite --bsrange=4k-128k --iodepth=8 --size=4m
verified --filename=$block --rw=randrw --bs=512 --iodepth=16 --size=256k
# One command that is longer than the largest I/O of the target.
verified --filename=$block --rw=write --bs=2m --size=8m
try mkfs.ext4 -q $block
try e2fsck -fn $block
try nvme id-ctrl /dev/nvme0
try blkdiscard -o 0 -l 1048576 $block
echo "basics"
# Resets, idle and amid I/O.
for round in 1 2 3; do
  fio --name=l --filename=$block --rw=randrw --bs=4k --iodepth=16 --ioengine=libaio --direct=1 --size=16m --time_based \
    --runtime=3 > /tmp/load 2>&1 &
  load=$!
  sleep 1
  echo 1 > /sys/class/nvme/nvme0/reset_controller
  wait $load || { cat /tmp/load; failed "I/O over a reset, round $round"; }
  wait_for is_live
done
verified --filename=$block --rw=randwrite --bs=4k --iodepth=4 --size=1m --do_verify=1
echo "resets"
# The target ends amid I/O and comes back.
fio --name=l --filename=$block --rw=randread --bs=4k --iodepth=8 --ioengine=libaio --direct=1 --size=16m --time_based \
  --runtime=25 > /tmp/load 2>&1 &
load=$!
sleep 2
kill -9 $serve; wait $serve
serve
wait_for is_live
wait $load || { cat /tmp/load; failed "I/O over an end of the target"; }
verified --filename=$block --rw=randwrite --bs=4k --iodepth=4 --size=1m --do_verify=1
echo "restart"
# The host disconnects amid I/O: its load ends in an error, and nothing of the host stays in the target.
for round in 1 2 3; do
  fio --name=l --filename=$block --rw=randrw --bsrange=4k-64k --iodepth=16 --ioengine=libaio --direct=1 --size=16m \
    --time_based --runtime=600 > /tmp/load 2>&1 &
  load=$!
  sleep 2
  disconnect
  wait $load && { cat /tmp/load; failed "a load goes on without its disk, round $round"; }
  grep -qE 'error|err=' /tmp/load || { cat /tmp/load; failed "no error is told, round $round"; }
  wait_for is_idle
  connect -i 1 -W 1 -P 1
  block=/dev/$(disk 1)
  verified --filename=$block --rw=randwrite --bsrange=4k-64k --iodepth=4 --size=1m --do_verify=1
done
echo "disconnects"
rpc nvmf_get_stats
grep -q '"trtype": "RDMA"' /tmp/said || { cat /tmp/said; failed 'no counters of RDMA'; }
# The device goes amid I/O, and the target says so. Soft-RoCE of this kernel waits for the programs that have its device
# open: the target ends, and starts anew when the device is back.
fio --name=l --filename=$block --rw=randread --bs=4k --iodepth=8 --ioengine=libaio --direct=1 --size=16m --time_based \
  --runtime=60 > /tmp/load 2>&1 &
load=$!
sleep 2
rdma link delete rxe0 &
link=$!
wait_for grep -q 'the RDMA device of rdma://10.0.2.15:4420 has gone' /tmp/serve.log
kill -0 $serve || failed 'the target ends with its device'
rpc nvmf_get_stats
end_target
wait $link || failed 'the device stays'
nvme disconnect -n $SUBSYSTEM > /dev/null 2>&1
wait $load
rdma_device
serve
connect -i 2
block=/dev/$(disk 1)
verified --filename=$block --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=2m
disconnect
end_target
echo "device"
# Too little locked memory: the host is refused, and the target says why.
serve /usr/bin/setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock sh -c 'ulimit -l 64; exec "$@"' sh
nvme connect $AT -n $SUBSYSTEM > /tmp/said 2>&1 && failed 'a host comes in without memory for it'
wait_for grep -q 'ulimit -l' /tmp/serve.log
end_target
dmesg | grep -E 'BUG|WARNING|Oops' && failed 'the kernel complains'
echo "all of it"
"#;
    let said = rdma_guest(place.path(), &["setpriv"], script, |order| panic!("{order}"));
    assert!(said.contains("all of it"), "{said}");
}
