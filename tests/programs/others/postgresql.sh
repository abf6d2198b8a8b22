#!/usr/bin/env bash
# PostgreSQL with direct I/O where it has it: a load, kill -9 in the middle of it, recovery, amcheck of every relation,
# a base backup.
set -euo pipefail
case $1 in packages) echo postgresql postgresql-contrib; exit ;; sources | build) exit ;; esac
bin=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin | sort -V | tail -n 1)
here=$PWD/cluster socket=$(mktemp -d)
chmod 777 "$socket"
mkdir "$here" && chown postgres "$here"
as() { setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$here" "$@"; }
sql() { as "$bin/psql" -X -q -A -t -h "$socket" -d postgres "$@"; }
start() {
  as "$bin/postgres" -D "$here" -k "$socket" -c listen_addresses= -c wal_sync_method=open_datasync \
    -c max_wal_size=64MB -c shared_buffers=16MB > "$here/log" 2>&1 &
  for _ in $(seq 600); do
    sql -c 'select 1' > /dev/null 2>&1 && { server=$(head -n 1 "$here/postmaster.pid"); return; }
    # The processes of a killed server end by themselves; until then a new one does not begin.
    [ -z "$(jobs -r)" ] && return 1
    sleep 0.1
  done
  tail "$here/log" >&2
  return 1
}
as "$bin/initdb" -D "$here" -A trust --no-sync > /dev/null
start
sql -c 'create extension amcheck' -c 'create table acknowledged (id int primary key, text text)'
# Each line of `acknowledged` is a transaction that the server has acknowledged.
for id in $(seq 400); do
  printf "insert into acknowledged select %d, repeat(md5('%d'), 40);\n\\\\echo %d\n" "$id" "$id" "$id"
done > load.sql
: > acknowledged # the shell makes it in the child otherwise, perhaps after the next line has looked for it
sql -f load.sql > acknowledged 2> /dev/null &
client=$!
while [ "$(wc -l < acknowledged)" -lt 200 ]; do sleep 0.02; done
kill -KILL "$server"
wait $client 2> /dev/null || true
wait 2> /dev/null || true
rm -f "$here/postmaster.pid" "$socket"/.s.*
for _ in $(seq 50); do start && break; sleep 0.2; done
last=$(tail -n 1 acknowledged)
sql -c "select count(*) = $last from acknowledged where id <= $last and text = repeat(md5(id::text), 40)"
as "$bin/pg_amcheck" -h "$socket" -d postgres --heapallindexed && echo "every relation is whole"
mkdir "$here.backup" && chown postgres "$here.backup" && chmod 700 "$here.backup"
as "$bin/pg_basebackup" -h "$socket" -D "$here.backup" --checkpoint=fast --wal-method=stream
as "$bin/pg_verifybackup" -q "$here.backup" && echo "the base backup is whole"
as "$bin/pg_ctl" -D "$here" -m fast -s stop
wait
rm -rf "$socket"
