#!/usr/bin/env bash
# SQLite: four processes insert into one database, with a write-ahead log or a rollback journal, with mapped memory and
# without; counts the rows and checks the database.
set -euo pipefail
case $1 in packages) echo sqlite3; exit ;; sources | build) exit ;; esac
inserts() {
  echo ".timeout 60000"
  echo "pragma mmap_size=$2;"
  for _ in $(seq 30); do
    echo "insert into t(p, v) values($1, zeroblob(3000)); select count(*) > 0 from t where p = $1;"
  done
}
for mode in wal delete; do
  for mapped in 0 67108864; do
    rm -f q.db*
    sqlite3 q.db "pragma journal_mode=$mode; create table t(id integer primary key, p int, v blob);"
    processes=()
    for process in 1 2 3 4; do
      inserts $process $mapped | sqlite3 q.db > out.$process 2>&1 &
      processes+=($!)
    done
    for process in "${processes[@]}"; do wait "$process"; done
    sqlite3 q.db "select p, count(*) from t group by p; pragma integrity_check; vacuum; pragma integrity_check;"
    cat out.* | sort | uniq -c
  done
done
