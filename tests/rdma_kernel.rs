//! NVMe over RDMA in a guest with Soft-RoCE: the host and the target of Debian 13's kernel.

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
