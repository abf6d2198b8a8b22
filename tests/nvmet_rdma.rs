//! The initiator of Plimsoll over RDMA with the target of Linux (nvmet), both on Soft-RoCE in a guest of Debian 13.

mod common;
use common::guest::{has_rig, rdma_guest};
use common::*;

/// The initiator finds nvmet by discovery and reads back all data that it wrote: with and without data in capsules,
/// over one queue and several, spinning and asleep. A load whose connections nvmet cuts goes on when the target comes
/// back in time, and ends in an error when it does not. Errors say where the connection failed.
#[test]
#[ignore = "boots a guest: make test-guest"]
fn linux_serves_the_initiator_over_rdma() {
    if !has_rig() {
        return;
    }
    let place = directory();
    let script = r#"
cd /tmp
refused 'nothing listens there' $read_only
make_target rdma
echo 1 > $here/attr_allow_any_host
open_port
# Without a name: the only subsystem and its only namespace.
NAMED=$TARGET works $verify --bs=4k --size=256k --iodepth=4
grep -q 'verify 64 blocks, 0 differ' /tmp/said || { cat /tmp/said; failed 'nothing verified'; }
NAMED="$TARGET subnqn=nqn.2016-06.io.spdk:other" refused 'there is no subsystem' $read_only
for queues in 1 3; do
  for poll in adaptive never; do
    works $verify --bsrange=4k-128k --size=4m --iodepth=16 --nr_io_queues=$queues --poll=$poll
  done
done
# Two clones are two hosts.
works $verify --bs=8k --size=1m --iodepth=4 --numjobs=2 --offset_increment=2m
works --rw=trim --bs=4k --size=256k --iodepth=4
works --rw=read --bs=2m --size=8m --iodepth=2
# Nothing in capsules.
close_port
echo 0 > ports/1/param_inline_data_size || failed 'no inline_data_size'
open_port
works $verify --bs=4k --size=512k --iodepth=4
works --rw=trim --bs=4k --size=256k --iodepth=4
# The target goes and comes back amid a verified load.
for round in 1 2; do
  run $verify --bsrange=4k-64k --size=4m --iodepth=8 --nr_io_queues=2 --rate_iops=60 &
  load=$!
  sleep 4
  close_port
  sleep 1
  open_port
  wait $load || { cat /tmp/said; failed "a load over a target that came back, round $round"; }
done
# It stays away.
run --rw=randread --bs=4k --iodepth=4 --time_based --runtime=600 --ctrl_loss_tmo=3 &
load=$!
sleep 6
close_port
wait $load && failed 'a load whose target has gone succeeds'
grep -q 'error ' /tmp/said || { cat /tmp/said; failed 'no error is told'; }
open_port
# Nothing of the jobs is left on the device: it can go.
rdma link delete rxe0
refused 'RDMA' $read_only
dmesg | grep -iE 'nvmet.*(invalid|bogus|fail)' | grep -v 'invalid subsystem nqn.2016-06.io.spdk:other' &&
  failed 'the kernel complains'
echo "all of it"
"#;
    let said = rdma_guest(place.path(), &[], script, |order| panic!("{order}"));
    assert!(said.contains("all of it"), "{said}");
}
