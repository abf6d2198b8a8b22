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

ls /usr/share/doc/plimsoll/README.md /usr/share/doc/plimsoll/docs/trap.md /usr/share/doc/plimsoll/configs/null_16.json \
  /usr/share/bash-completion/completions/plimsoll > /dev/null
dpkg --purge plimsoll-mpi plimsoll libiotrap libguasi-dev libguasi0 > /dev/null
for left in /usr/bin/plimsoll /usr/lib/plimsoll /usr/share/doc/plimsoll; do [ ! -e $left ]; done
echo "purged"
