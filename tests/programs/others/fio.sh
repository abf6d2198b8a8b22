#!/usr/bin/env bash
# fio writes, reads back and verifies by each of its engines for files, buffered and with O_DIRECT.
set -euo pipefail
case $1 in packages) echo fio; exit ;; sources | build) exit ;; esac
job() {
  rm -f j.*
  local status=0
  fio --name=j --directory=. --size=4m --iodepth=16 --verify_fatal=1 --randseed=7 --output=out "$@" 2> errors || status=$?
  echo "$*: status $status"
}
for engine in sync psync vsync pvsync pvsync2 libaio io_uring posixaio mmap splice; do
  for direct in 0 1; do
    case $engine$direct in mmap1 | splice1) continue ;; esac
    job --ioengine=$engine --direct=$direct --rw=randwrite --bsrange=4k-64k --blockalign=4k --verify=crc32c \
      --numjobs=2 --fallocate=none --thread
    job --ioengine=$engine --direct=$direct --rw=randrw --bs=8k --verify=md5 --verify_backlog=32 --overwrite=1
  done
done
job --ioengine=falloc --rw=randwrite --bs=8k
