#!/usr/bin/env bash
# RocksDB's db_bench with direct I/O: fills a database, reads it, and compares all of its contents by ldb.
set -euo pipefail
case $1 in packages) echo rocksdb-tools; exit ;; sources | build) exit ;; esac
bench() {
  db_bench --db=db --num=100000 --seed=1 --compression_type=none --use_direct_reads --threads=1 \
    --use_direct_io_for_flush_and_compaction --cache_size=1048576 --verify_checksum "$@" 2>&1 | grep -iE 'corrupt|error' ||
    echo "$*: no errors"
}
bench --benchmarks=fillrandom,compact
bench --benchmarks=overwrite,waitforcompaction --use_existing_db
bench --benchmarks=readrandom,readseq --use_existing_db --reads=20000
ldb --db=db scan | sha256sum
ldb --db=db checkconsistency
