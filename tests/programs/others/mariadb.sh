#!/usr/bin/env bash
# MariaDB's InnoDB with O_DIRECT, by the kernel's AIO and by threads: transactions, kill -9 in the middle of them,
# recovery, every acknowledged row, CHECK TABLE, and the contents of a table that is larger than the buffer pool.
set -euo pipefail
case $1 in packages) echo mariadb-server; exit ;; sources | build) exit ;; esac
here=$PWD socket=$(mktemp -d) server=
trap '[ -z "$server" ] || kill -KILL "$server" 2> /dev/null || true' EXIT
sql() { mariadb --no-defaults --default-character-set=latin1 --batch --skip-column-names --socket="$socket/s" test "$@"; }
start() {
  mariadbd --no-defaults --user=root --datadir="$here/$aio" --socket="$socket/s" --skip-networking \
    --pid-file="$socket/pid" --innodb-flush-method=O_DIRECT --innodb-buffer-pool-size=8M --innodb-log-file-size=16M \
    --innodb-use-native-aio="$([ "$aio" = native ] && echo 1 || echo 0)" --skip-log-bin >> "$here/$aio.log" 2>&1 &
  server=$!
  for _ in $(seq 600); do
    sql -e 'select 1' > /dev/null 2>&1 && return
    kill -0 "$server" 2> /dev/null || break
    sleep 0.1
  done
  tail "$here/$aio.log" >&2
  return 1
}
# native: by libaio or by io_uring, whichever Debian has built the server with; else by threads.
for aio in native threads; do
  mariadb-install-db --no-defaults --user=root --datadir="$here/$aio" --auth-root-authentication-method=normal \
    --skip-test-db > "$here/install.log" 2>&1 || { tail "$here/install.log" >&2; exit 1; }
  mkdir -p "$here/$aio/test"
  start
  sql -e 'create table large (id int primary key, text char(200)) engine=innodb;
    insert into large select seq, repeat(md5(seq), 6) from seq_1_to_60000;
    create table acknowledged (id int primary key, text varchar(1300)) engine=innodb'
  # Each line of `acknowledged` is a transaction that the server has acknowledged.
  for id in $(seq 400); do
    echo "insert into acknowledged select $id, repeat(md5('$id'), 40); update large set text = repeat(md5(id + 1), 6)
      where id % 400 = $id - 1; select $id;"
  done > load.sql
  : > acknowledged
  sql --unbuffered < load.sql >> acknowledged 2> /dev/null &
  client=$!
  while [ "$(wc -l < acknowledged)" -lt 200 ]; do sleep 0.02; done
  kill -KILL "$server"
  wait $client 2> /dev/null || true
  wait "$server" 2> /dev/null || true
  start
  last=$(tail -n 1 acknowledged)
  sql -e "select 'every acknowledged row is there', count(*) = $last from acknowledged
    where id <= $last and text = repeat(md5(id), 40);
    select 'every row is of one of two kinds', count(*) = 60000 from large
    where text = repeat(md5(id), 6) or text = repeat(md5(id + 1), 6);
    select 'every acknowledged change is there', count(*) from large
    where id % 400 < $last and text <> repeat(md5(id + 1), 6);
    check table large extended; check table acknowledged extended"
  sql -e 'update large set text = repeat(md5(id + 2), 6)'
  sql -e 'select md5(group_concat(md5(text) order by id)) from (select * from large where id % 7 = 3) part'
  mariadb-admin --no-defaults --socket="$socket/s" shutdown
  wait "$server"
done
rm -rf "$socket"
