//! Methods that configurations and scripts of SPDK call and that have nothing to set here.

use super::{Method, Run, When};

const fn accepted(name: &'static str, why: &'static str) -> Method {
    Method {
        name,
        about: "Accepted for SPDK's configurations and scripts, without effect",
        params: &[],
        result: "true",
        when: When::Always,
        run: Run::WithoutEffect(why),
    }
}

/// SPDK compiles the messages of flags into debug builds only: its scripts set flags on every build.
const NO_FLAGS: &str = "no message has a flag, as in SPDK's release builds";

/// The calls of SPDK's scripts and saved configurations that are harmless to leave undone: they tune parts that this
/// target lacks.
pub static METHODS: &[Method] = &[
    accepted("accel_set_options", "checksums always use the processor's instructions"),
    accepted("bdev_iscsi_set_options", "there are no iSCSI devices"),
    accepted("bdev_nvme_set_options", "there are no local NVMe drives: serve /dev/nvme0n1 with bdev_uring_create"),
    accepted("bdev_raid_set_options", "there are no RAID devices"),
    accepted("bdev_set_options", "there are no pools of bdev_io structures to size"),
    accepted("bdev_wait_for_examine", "the answer to the creation of a device comes when the device is complete"),
    accepted("framework_disable_cpumask_locks", "the target does not lock processors"),
    accepted("iobuf_set_options", "reactors take buffers when they need them, within the memory budget"),
    accepted("iscsi_set_options", "there is no iSCSI target"),
    accepted("log_clear_flag", NO_FLAGS),
    accepted("log_set_flag", NO_FLAGS),
    accepted("scsi_set_options", "there is no SCSI target"),
    accepted("sock_impl_set_options", "the kernel's sockets are the only ones"),
];
