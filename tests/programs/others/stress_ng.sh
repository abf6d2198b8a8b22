#!/usr/bin/env bash
# stress-ng's stressors of files, each for a second, by their exit statuses and their own verification.
set -euo pipefail
case $1 in packages) echo stress-ng; exit ;; sources | build) exit ;; esac
stress() {
  local status=0
  timeout 30 stress-ng "$@" --verify --timeout 1s --temp-path . > said 2>&1 || status=$?
  echo "$*: status $status, $(grep -ciE 'fail:|corrupt|mismatch' said || true) complaints"
}
stress --hdd 2 --hdd-bytes 4m --hdd-opts direct,fsync
stress --hdd 2 --hdd-bytes 4m --hdd-opts rd-rnd,wr-rnd,direct
stress --mmap 2 --mmap-file --mmap-bytes 4m
stress --copy-file 2 --copy-file-bytes 128m
stress --readahead 1 --readahead-bytes 64m
stress --iomix 2 --iomix-bytes 4m
for name in aio aiol io-uring dup seek punch fallocate sendfile splice sync-file; do stress --$name 2; done
