#!/usr/bin/env bash
# fsx: random reads, writes, mappings, truncations and copies of a file, held against a model of it in memory.
# XFSTESTS_FSX names the fsx of xfstests, which does O_DIRECT, libaio and io_uring, too; Debian has no package of it.
# Otherwise fsx of crates.io runs, which is buffered.
set -euo pipefail
case $1 in
  packages) exit ;;
  sources) echo - ;;
  build) [ -n "${XFSTESTS_FSX:-}" ] || cargo install fsx --locked --root . ;;
esac
[ "$1" = run ] || exit 0
aligned=(-r 4096 -w 4096 -t 4096)
for seed in 1 2 3 4 5 6; do
  if [ -z "${XFSTESTS_FSX:-}" ]; then
    timeout 120 "$SOURCES/bin/fsx" -q -N 1500 -S $seed file > out 2>&1 && echo "seed $seed: the same" || tail -n 20 out
    rm -rf file ./file.*
    continue
  fi
  for way in "" "-W -R" "-Z ${aligned[*]}" "-Z -A ${aligned[*]}" "-Z -U ${aligned[*]}"; do
    # shellcheck disable=SC2086 # several words
    timeout 120 "$XFSTESTS_FSX" -q -N 3000 -S $seed $way file > out 2>&1 && echo "seed $seed, $way: the same" || tail -n 20 out
    rm -rf file ./file.*
  done
done
