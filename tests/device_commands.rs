//! The engines `sg` and `io_uring_cmd` on a disk and a namespace that QEMU emulates, in a guest with Linux 6.12, beside
//! fio: each checks what the other has written.

mod common;
use common::guest::{device_guest, has_rig};
use common::*;

/// Each program reads back the data that the other one wrote, with each form of the commands. Trimmed and zeroed blocks
/// read as zeroes. Plimsoll refuses devices that carry something, and files that are other devices.
#[test]
#[ignore = "minutes of emulation: make test-guest"]
fn commands_to_scsi_disks_and_nvme_namespaces_move_the_data_that_fio_moves() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let disk = |name: &str| {
        let path = directory.path().join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
        path.display().to_string()
    };
    let devices = format!(
        "-drive file={},format=raw,if=none,id=n1,discard=unmap -device nvme,serial=one,drive=n1 \
         -drive file={},format=raw,if=none,id=s1,discard=unmap -device virtio-scsi-pci -device scsi-hd,drive=s1",
        disk("nvme.img"),
        disk("scsi.img"),
    );
    let script = r#"
cd /tmp
ours() { try $PLIMSOLL run --name=v --eta=never --verify_fatal=1 "$@"; }
theirs() { try fio --name=v --verify_fatal=1 --verify_state_save=0 "$@"; }
refused() { what=$1; shift; $PLIMSOLL run --name=v --eta=never "$@" > /tmp/said 2>&1; status=$?
  [ $status = 2 ] && grep -qE -- "$what" /tmp/said || { cat /tmp/said; failed "status $status: $*"; }; }
zeroes() { ours --verify=pattern --verify_pattern=0 --rw=read --bs=4k --size=1m "$@"; }
# Writes with one, reads with the other. The block at the end was not written by the first writer of the device.
crossed() {
  common="--verify=crc32c --size=1m --iodepth=8"
  theirs "$@" $common --bs=4k --rw=write --do_verify=0
  ours "$@" $common --bs=4k --rw=read
  ours "$@" $common --bs=8k --rw=randwrite
  theirs "$@" $common --bs=8k --rw=read
}
for at in "sg /dev/sg0" "sg /dev/sda" "sg /dev/sg1" "io_uring_cmd /dev/ng0n1"; do
  set -- $at; at="--ioengine=$1 --filename=$2" device=$2
  crossed $at
  ours $at --verify=crc32c --rw=randrw --bsrange=4k-64k --size=2m --iodepth=32 --fsync=5 --end_fsync=1 --fsync_on_close=1
  ours $at --verify=md5 --rw=write --bs=16k --size=1m --writefua=1 --readfua=1 --offset=4m
  ours $at --rw=trim --bs=64k --size=1m --iodepth=4
  # scsi_debug keeps the data of trimmed blocks.
  [ $device = /dev/sg1 ] || zeroes $at
  ours $at --rw=randtrimwrite --bs=4k --size=1m --iodepth=4
  ours $at --rw=randread --bs=4k --size=1m --direct=1
  refused 'its blocks are of 512 bytes: bs=1000' $at --rw=read --bs=1000 --size=1m
done
at="--ioengine=io_uring_cmd --filename=/dev/ng0n1"
for form in "--fixedbufs" "--registerfiles" "--fixedbufs --registerfiles --nonvectored=1 --force_async=1 --sqthread_poll" \
  "--nonvectored=0" "--force_async=2" "--hipri"; do
  ours $at --verify=crc32c --rw=randwrite --bs=4k --size=1m --iodepth=8 --fsync=16 $form
done
ours $at --rw=randwrite --bs=4k --size=1m --iodepth=4 --write_mode=zeroes --deac=1
zeroes $at
ours $at --rw=randwrite --bs=4k --size=1m --write_mode=verify
# QEMU does not know Write Uncorrectable: the command's error is the op's.
$PLIMSOLL run --name=v $at --rw=write --bs=4k --size=1m --write_mode=uncor > /tmp/said 2>&1 && failed uncor
grep -q 'error 5: write of 4096 bytes at offset 0' /tmp/said || { cat /tmp/said; failed uncor; }
refused 'nothing to compare' $at --rw=write --size=1m --verify=md5 --write_mode=zeroes
at="--ioengine=sg --filename=/dev/sg0 --bs=4k --size=1m"
ours $at --rw=write --sg_write_mode=write_and_verify --verify=crc32c
# scsi_debug writes zeroes for WRITE SAME without data; QEMU does nothing for it, and says that all went well.
ours --ioengine=sg --filename=/dev/sg1 --bs=4k --size=1m --rw=write --iodepth=4 --sg_write_mode=write_same_ndob
zeroes --ioengine=sg --filename=/dev/sg1
ours $at --rw=write --iodepth=4 --buffer_pattern=0xa5 --sg_write_mode=same
theirs --ioengine=sg --filename=/dev/sg0 --bs=4k --size=1m --rw=read --verify=pattern --verify_pattern=0xa5
ours $at --rw=write --iodepth=4 --sg_write_mode=verify_bytchk_00
refused 'nothing to compare' $at --rw=write --verify=md5 --sg_write_mode=same
refused 'no such device: ioengine=sg sends commands to a SCSI disk' --ioengine=sg --filename=/dev/null --rw=read
refused 'no such device: ioengine=sg' --ioengine=sg --filename=/dev/nvme0n1 --rw=read
refused 'no such device: ioengine=io_uring_cmd' --ioengine=io_uring_cmd --filename=/dev/nvme0n1 --rw=read
refused 'no such device: ioengine=io_uring_cmd' --ioengine=io_uring_cmd --filename=/tmp/new --rw=write --size=1m
[ ! -e /tmp/new ] || failed 'a file was made'
# The disk behind a generic device is protected as the disk itself.
try mkfs.ext4 -q /dev/sda
try mkfs.ext4 -q /dev/nvme0n1
refused 'it carries ext' --ioengine=sg --filename=/dev/sg0 --rw=write --size=1m
refused 'it carries ext' --ioengine=io_uring_cmd --filename=/dev/ng0n1 --rw=write --size=1m
try mount /dev/nvme0n1 /mnt
refused 'mounted on /mnt' --ioengine=io_uring_cmd --filename=/dev/ng0n1 --rw=write --size=1m --allow-signature
echo "all of it"
"#;
    let said = device_guest(directory.path(), &devices, "nvme sg sd_mod virtio_scsi scsi_debug", script);
    assert!(said.contains("all of it"), "{said}");
}
