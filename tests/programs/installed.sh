#!/bin/bash
# Installs the packages in a clean Debian and uses them as a stranger would; runs in rigs/clean-debian.sh.
set -eu
trap 'cat sweep.json stats serve.log 2> /dev/null | tail -c 2000 >&2' ERR
export DEBIAN_FRONTEND=noninteractive
dpkg -i /packages/*.deb > /tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; exit 1; }
mkdir /srv/a /srv/b
cd /srv

plimsoll version
plimsoll sweep --iodepth 1,4,16 --point-time 300ms --time 5s --size 16m --json --no-files > sweep.json
grep -q '"depth":16' sweep.json || grep -q '"iodepth":16' sweep.json
echo "sweep: a result"

mount --bind a b
head -c 8388608 /dev/urandom > a/data
plimsoll trap --pool v=/srv/a,/srv/b --stats -- cat a/data > copy 2> stats
cmp a/data copy
grep -q '/srv/b' stats
echo "trap: the same bytes over two lanes"
IOTRAP_MOUNT_POOLS=v:/srv/a/,/srv/b/ LD_PRELOAD=libiotrap.so IOTRAP_TRACE=1 cat a/data > copy 2> stats
cmp a/data copy
grep -q '^iotrap: ' stats
echo "libiotrap.so: found by the loader"

plimsoll serve --null 64m > serve.log 2>&1 &
target=$!
for _ in $(seq 300); do
  ! plimsoll rpc nvmf_get_subsystems > subsystems 2> /dev/null || break
  sleep 0.1
done
grep -q nvme subsystems || { cat serve.log; exit 1; }
plimsoll run --name=a --ioengine=nvme_tcp --filename='trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid=4420 subnqn=nqn.2016-06.io.spdk:cnode1 ns=1' --rw=randread --bs=4k --size=1m --output-format=json > run.json ||
  { cat run.json serve.log; exit 1; }
kill -TERM $target
wait $target
echo "serve: read by its initiator"

if command -v python3 > /dev/null; then
  for name in ior mdtest io500; do plimsoll-$name -h > /dev/null; done
else # Debian's base has no Python: the links lead to the scripts all the same
  for name in ior mdtest io500; do test -x "$(readlink -f "$(command -v plimsoll-$name)")"; done
fi
echo "compat: -h of each"

plimsoll-mpi version > /dev/null
echo "mpi: beside the program"
# docs/production.md as it is written, but for the disk and the address. A service manager cannot run here: this one
# starts, reloads and restarts what the unit says, and the journal is a file.
unit=$(find /usr/lib/systemd /lib/systemd -name plimsoll-serve.service 2> /dev/null | head -1)
mkdir -p /usr/local/bin /run/plimsoll /var/lib/plimsoll
cat > /usr/local/bin/systemctl << TEXT
#!/bin/bash
set -eu
of() { sed -n "s/^\$1=//p" "\$2"; }
start() {
  options=\$(of PLIMSOLL_OPTIONS /etc/default/plimsoll-serve)
  command=\$(of ExecStart $unit | sed "s|[\$]PLIMSOLL_REACTORS||; s|[\$]PLIMSOLL_OPTIONS|\$options|")
  setsid \$command > /dev/null 2>> /var/log/plimsoll.log < /dev/null &
  echo \$! > /run/plimsoll.pid
  for _ in \$(seq 300); do
    ! plimsoll rpc -s /run/plimsoll/rpc.sock nvmf_get_subsystems > /dev/null 2>&1 || exit 0
    kill -0 "\$(cat /run/plimsoll.pid)" || exit 1
    sleep 0.1
  done
  exit 1
}
case \$1 in
  enable) start ;;
  reload) \$(of ExecReload $unit) > /tmp/reloaded ;;
  restart)
    old=\$(cat /run/plimsoll.pid)
    kill -TERM "\$old"
    while kill -0 "\$old" 2> /dev/null; do sleep 0.1; done
    start
    ;;
  is-active) kill -0 "\$(cat /run/plimsoll.pid)" && echo active ;;
  *) exit 64 ;;
esac
TEXT
cat > /usr/local/bin/journalctl << 'TEXT'
#!/bin/bash
grep -e "${*: -1}" /var/log/plimsoll.log
TEXT
chmod 755 /usr/local/bin/*
export PATH=/usr/local/bin:$PATH
page=/usr/share/doc/plimsoll/docs/production.md
[ -e $page ] || page=$(find /usr/share/doc -name 'production.md*' | head -1)
step() { # step NAME: the commands of the page below the comment that names the step
  zcat -f "$page" | awk -v step="clean Debian: $1 -->" '
    index($0, step) { found = 1; next }
    found && /^    / { begun = 1; print substr($0, 5) }
    begun && /^[^ ]/ { exit }' | sed 's|/dev/nvme1n1|/srv/disk.img|; s|10\.0\.0\.1|127.0.0.1|' > /tmp/step
  [ -s /tmp/step ] || { echo "production.md has no step $1"; exit 1; }
  bash -eu /tmp/step > /tmp/said 2>&1 || { cat /tmp/step /tmp/said /var/log/plimsoll.log; exit 1; }
}
truncate -s 64m /srv/disk.img
cd /packages
step start
grep -q 'nqn.2014-08.org.example:store' /tmp/said
host() { # host NUMBER OPTION...
  local number=$1
  shift
  plimsoll run --name=h --ioengine=nvme_tcp --hostnqn=nqn.2014-08.org.example:host"$number" --bs=4k --eta=never "$@" \
    --filename='trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid=4420 subnqn=nqn.2014-08.org.example:store ns=1'
}
! host 2 --rw=randread --number_ios=10 > /dev/null 2>&1 || { echo "a stranger gets in"; exit 1; }
step refused
grep -q 'host2.* is refused' /tmp/said
host 1 --rw=randwrite --size=64m --iodepth=16 --verify=crc32c --loops=3 --rate_iops=8000 > /tmp/verified 2>&1 &
verifier=$!
while ! plimsoll rpc -s /run/plimsoll/rpc.sock bdev_get_iostat | grep -q '"num_write_ops": [1-9]'; do sleep 0.1; done
step change
grep -q '1 added, 0 changed, 0 made anew, 0 removed' /tmp/said
host 2 --rw=randread --number_ios=10 > /dev/null
step upgrade
grep -q active /tmp/said
kill -0 $verifier || { echo "the host had ended before the upgrade"; exit 1; }
wait $verifier || { cat /tmp/verified; exit 1; }
host 2 --rw=randread --number_ios=10 > /dev/null
kill -TERM "$(cat /run/plimsoll.pid)"
while [ -e /run/plimsoll/rpc.sock ]; do sleep 0.1; done
cd /srv
echo "production.md: from the unit to an upgrade under a verifying host"

ls /usr/share/doc/plimsoll/README.md /usr/share/doc/plimsoll/docs/trap.md /usr/share/doc/plimsoll/configs/null_16.json \
  /usr/share/bash-completion/completions/plimsoll > /dev/null
dpkg --purge plimsoll-mpi plimsoll libiotrap libguasi-dev libguasi0 > /dev/null
for left in /usr/bin/plimsoll /usr/lib/plimsoll /usr/share/doc/plimsoll; do [ ! -e $left ]; done
echo "purged"
