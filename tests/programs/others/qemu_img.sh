#!/usr/bin/env bash
# qemu-img: conversions past the page cache, with the threads' and the kernel's AIO, held against the source.
set -euo pipefail
case $1 in packages) echo qemu-utils; exit ;; sources | build) exit ;; esac
seq -f '%015g' 1 4194304 > source.raw # 64 MiB of which every block differs
for aio in threads native io_uring; do
  qemu-img bench -q -c 2000 -d 16 -s 4096 -t none -i $aio -f raw source.raw > /dev/null || echo "$aio: bench failed"
  qemu-img convert -t none -T none -f raw -O qcow2 source.raw $aio.qcow2
  qemu-img convert -t none -T none -W -m 8 -f qcow2 -O raw $aio.qcow2 $aio.raw
  cmp source.raw $aio.raw && echo "$aio: the same after two conversions"
  qemu-img check -q $aio.qcow2 && echo "$aio: the image is whole"
done
qemu-img bench -q -w -c 4000 -d 32 -s 4096 --pattern=7 -t none -i native -f raw native.raw > /dev/null
sha256sum < native.raw
