//! `zonemode=zbd` on zoned devices of the kernel's null_blk, in a guest with Linux 6.12, beside fio: each checks what
//! the other has written.

mod common;
use common::guest::{device_guest, has_rig};
use common::*;

/// Devices without and with conventional zones, with zones of full and of smaller capacity, with and without a limit on
/// open zones. A write that is not at the write pointer, or that opens one zone too many, is an error of the device.
#[test]
#[ignore = "minutes of emulation: make test-guest"]
fn zoned_devices_take_every_write_and_hold_what_was_written() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let script = r#"
cd /tmp
ours() { try $PLIMSOLL run --name=v --eta=never --verify_fatal=1 --direct=1 --zonemode=zbd --filename=$D "$@"; }
theirs() { try fio --name=v --verify_fatal=1 --verify_state_save=0 --direct=1 --zonemode=zbd --filename=$D "$@"; }
refused() { what=$1; shift; $PLIMSOLL run --name=v --eta=never --zonemode=zbd --filename=$D "$@" > /tmp/said 2>&1
  status=$?; [ $status = 2 ] && grep -qE -- "$what" /tmp/said || { cat /tmp/said; failed "status $status: $*"; }; }
# Bytes of a direction of a run as JSON.
moved() { what=$1; wanted=$2; shift 2
  $PLIMSOLL run --name=v --eta=never --direct=1 --zonemode=zbd --filename=$D --output-format=json --group_reporting "$@" > /tmp/said 2> /tmp/why || { cat /tmp/why; failed "$*"; }
  got=$(grep -A1 "\"$what\" *: *{" /tmp/said | sed -n 's/.*"io_bytes" *: *\([0-9]*\).*/\1/p' | head -n 1)
  [ "$got" = $wanted ] || failed "$what $got bytes, not $wanted: $*"; }
number=0
device() { # megabytes of a zone and its capacity, conventional zones, open zones
  number=$((number + 1)); at=/sys/kernel/config/nullb/nullb1$number; mkdir $at || failed null_blk
  echo 128 > $at/size; echo 4096 > $at/blocksize; echo 1 > $at/memory_backed; echo 1 > $at/zoned
  echo $1 > $at/zone_size; echo $2 > $at/zone_capacity; echo $3 > $at/zone_nr_conv; echo $4 > $at/zone_max_open
  echo 1 > $at/power || failed "power of null_blk"
  D=/dev/nullb1$number
  [ "$(cat /sys/block/nullb1$number/queue/zoned)" = host-managed ] || failed "$D has no zones"
}
for shape in "1 1 0 0" "4 3 8 0" "4 3 8 8"; do
  set -- $shape; device $shape
  Z=$(($1 << 20)) C=$(($2 << 20)) F=$((($3 * $1) << 20))
  four="--offset=$F --size=$((4 * Z))"
  for engine in "psync" "libaio --iodepth=64" "io_uring --iodepth=32 --thread=1"; do
    e="--ioengine=$engine"
    moved write $((4 * C)) $e $four --rw=write --bs=16k --verify=md5
    theirs --ioengine=psync $four --rw=read --bs=16k --verify=md5
    moved write $((4 * C)) $e $four --rw=randwrite --bs=16k --verify=crc32c
    moved write $((4 * C)) $e $four --rw=randwrite --bsrange=4k-64k --verify=md5
    moved write $((8 * C)) $e --offset=$F --size=$((8 * Z)) --rw=randwrite --bs=16k --max_open_zones=4 --verify=md5
    moved write $((32 * Z)) $e $four --rw=randwrite --bs=4k --numjobs=8
    moved write $((4 * C)) $e $four --rw=randwrite --bs=64k --numjobs=4 --io_size=$C --max_open_zones=2 --job_max_open_zones=1
    ours $e $four --rw=randrw --bsrange=4k-$Z --rwmixwrite=25 --verify=crc32c --verify_backlog=2 --number_ios=200
    ours $e --offset=$F --size=$((16 * Z)) --rw=randrw --bs=8k --norandommap=1 --io_size=64m --zone_reset_frequency=0.05 --zone_reset_threshold=0.3
    ours $e $four --rw=randtrim --bs=$Z
  done
  theirs --ioengine=libaio --iodepth=8 $four --rw=write --bs=16k --verify=md5 --do_verify=0
  ours --ioengine=libaio --iodepth=8 $four --rw=read --bs=16k --verify=md5
  moved read $((4 * C)) $four --rw=read --bs=16k
  # A damaged block is found: the zone is written again with other data.
  theirs --ioengine=psync --offset=$F --size=$Z --rw=write --bs=16k --verify=md5 --do_verify=0 --buffer_pattern=7
  theirs --ioengine=psync --offset=$((F + Z)) --size=$Z --rw=write --bs=16k
  $PLIMSOLL run --name=v --filename=$D --zonemode=zbd --direct=1 --rw=read --bs=16k --verify=md5 $four > /tmp/said 2>&1 && failed "wrong data"
  grep -q "verif" /tmp/said || { cat /tmp/said; failed "no word about verification"; }
  # Random writers of the same zones, as threads and as processes.
  for as in 0 1; do
    set --; for job in 1 2 3 4 5 6; do
      set -- "$@" --name=j$job --filename=$D --direct=1 --zonemode=zbd --thread=$as --rw=randwrite --bs=16k --ioengine=libaio --iodepth=32 $four --io_size=$((2 * C))
    done
    try $PLIMSOLL run --eta=never "$@"
    try $PLIMSOLL run --eta=never "$@" --name=t --filename=$D --direct=1 --zonemode=zbd --rw=randtrim --bs=$Z $four --number_ios=20
  done
  if [ $F -gt 0 ]; then
    moved write $((4 * Z)) --ioengine=libaio --iodepth=16 --rw=randwrite --bs=16k --size=$((4 * Z)) --verify=md5
    ours --ioengine=libaio --iodepth=16 --offset=$((F - 4 * Z)) --size=$((8 * Z)) --rw=randrw --bs=64k --io_size=$((16 * Z))
    ours --ioengine=libaio --iodepth=16 --offset=$((F - 4 * Z)) --size=$((8 * Z)) --rw=randwrite --bs=16k --verify=crc32c
  fi
  [ "$shape" = "4 3 8 8" ] || { echo 0 > $at/power; rmdir $at; }
done
refused 'Using direct I/O is mandatory' --rw=write --direct=0 --size=1z --zonesize=4m
refused 'zonesize 8388608 does not match disk zone size 4194304' --rw=read --zonesize=8m
refused 'larger than max \(8\)' --rw=write --direct=1 --max_open_zones=9
refused 'io_size must be at least one zone' --rw=write --direct=1 --offset=$F --size=1m
echo "all of it"
"#;
    let said = device_guest(directory.path(), "", "null_blk", script);
    assert!(said.contains("all of it"), "{said}");
}
