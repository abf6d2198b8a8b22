#!/usr/bin/env bash
# A real NFS server and its client with several connections, in a kernel of their own: boots Debian's user-mode
# kernel over this machine's own root (a few seconds), exports a directory with nfsd, mounts it once per server
# address, limits the rate of each address, and runs a command there.
#
#   [VERS=3] [LANES=4] [RATE=80mbit] ... rigs/nfs-lanes.sh COMMAND...
#
#   VERS=3|4.0|4.1|4.2  version of NFS. 3 and 4.0 give a connection per address; with 4.1 and 4.2 the client finds that
#                       all addresses are one server and folds every mount into ONE connection.
#   LANES=4             mounts: /mnt/v32, /mnt/v33, ... from 127.0.0.32, .33, ..., their clients being 127.0.1.32, ...
#   RATE=80mbit         of each lane, in each direction       DELAY=0ms    of each lane, one way
#   OPTIONS=            more mount options, as soft,timeo=10,retrans=1
#   DELEGATIONS=yes     no: the server gives none, and programs on 4.0 do not stand still (see below)
#   FS=tmpfs            what is exported: tmpfs, or ext4 on a device that can be made to fail
#   SIZE=512m           of the exported file system           RIG_MEM=1500M  memory of the kernel
#   RIG_TIMEOUT=300     seconds, then everything is ended and the status is 124
#
# COMMAND runs as root in the same directory, sees this machine's files read-only, and has:
#   LANE_MOUNTS  the mount points     NFS_EXPORT  the exported directory itself, the server's own view
#   RIG_SHARE    a directory that is $RIG_SHARE on this machine too (empty and temporary if the variable is not set)
#   TMPDIR       a directory to write to
#   lane freeze N             nothing passes in either direction from now on         lane thaw N
#   lane late N TIME          everything passes this much later, one way             lane thaw N
#   lane cap N RATE           as `lane cap 33 8mbit`                                 lane cap N  (back to RATE)
#   lane unmount N [OPTION]   `lane unmount 33 -l` even if it is busy                lane mount N
#   lane stale N              the server refuses this client: ESTALE                 lane fresh N
#   server stop, server start, server restart
#   server full               no room: ENOSPC                                        server room
#   server break              its device gives EIO (FS=ext4)                         server mend
# Output is COMMAND's, and so is the exit status; 99 if the rig itself fails, with the reason.
#
# Linux 6.1's client and server of version 4.0 wait for each other now and then, with and without the interposer. The
# client removes an open file, has to give the file's delegation back, and first waits for its COMMIT (nfs_sillyrename,
# nfs4_inode_return_delegation, wait_on_commit). The server opens the file for this COMMIT, and first waits for the
# delegation (nfsd4_commit, __break_lease). All who need the directory wait, too, until the server revokes the
# delegation: a lease of 90 s. The circle needs no common kernel, but was not tried with two. Seen with model.c, 8
# programs at a time: without the interposer after 135 programs, and in a second run after 143 and 155; with it after
# 139 and 172. Version 4.1 (257 programs) did not stand still, nor did 4.0 with DELEGATIONS=no (more than 1,400).
#
# Nothing on this machine changes, and no right is needed that the files of COMMAND do not ask for. Needs of Debian:
# user-mode-linux nfs-kernel-server rpcbind kmod iproute2; dmsetup e2fsprogs for FS=ext4; gcc on processors with AMX.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

# The lanes' numbers, and so the last bytes of their addresses.
FIRST=32
number_lanes() { lanes=(); local n; for ((n = FIRST; n < FIRST + LANES; n++)); do lanes+=("$n"); done; }
MOUNTD_PORT=20048

# ---- outside: boot the kernel, pass on what the command writes ----

outside() {
  export VERS=${VERS:-3} LANES=${LANES:-4} RATE=${RATE:-80mbit} DELAY=${DELAY:-0ms} OPTIONS=${OPTIONS:-}
  export DELEGATIONS=${DELEGATIONS:-yes}
  case $DELEGATIONS in yes | no) ;; *) refuse "DELEGATIONS=$DELEGATIONS: yes or no" ;; esac
  export FS=${FS:-tmpfs} SIZE=${SIZE:-512m} RIG_MEM=${RIG_MEM:-1500M}
  number_lanes
  [ $# -gt 0 ] || refuse "no command: VERS=3 LANES=4 RATE=80mbit nfs-lanes.sh COMMAND..."
  case $VERS in 3 | 4.0 | 4.1 | 4.2) ;; *) refuse "VERS=$VERS: 3, 4.0, 4.1 or 4.2" ;; esac
  case $FS in tmpfs | ext4) ;; *) refuse "FS=$FS: tmpfs or ext4" ;; esac
  case $PWD/ in /mnt/* | /run/*) refuse "$PWD: /mnt and /run are the rig's own; run it elsewhere" ;; esac
  local program modules
  for program in linux.uml rpc.nfsd rpc.mountd exportfs rpcbind modprobe tc ip; do
    command -v $program > /dev/null || refuse "$program is not installed (see the head of this file)"
  done
  modules=$(find /usr/lib/uml/modules -mindepth 1 -maxdepth 1 2> /dev/null | sort -V | tail -n 1)
  [ -n "$modules" ] || refuse "no modules in /usr/lib/uml/modules (Debian package user-mode-linux)"

  work=$(mktemp -d "${TMPDIR:-/var/tmp}/nfs-rig.XXXXXX")
  uml=
  trap end EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
  export RIG_WORK=$work
  RIG_SHARE=$(realpath "${RIG_SHARE:-$work/share}"); export RIG_SHARE
  prepare
  # The command gets this environment, as it would here; the variables of its own follow from it inside.
  { export -p; printf 'cd %q\n' "$PWD"; printf 'command=('; printf '%q ' "$@"; printf ')\n'; } > "$work/settings"
  : > "$work/stdout"; : > "$work/stderr"

  # The kernel keeps its memory in a file: in memory if it fits there, else on disk.
  local memory=/dev/shm
  [ "$(available_kb $memory)" -gt "$(to_kb "$RIG_MEM")" ] || memory=$work
  local preload=
  if grep -qw amx_tile /proc/cpuinfo; then
    preload=$work/xstate.so
    cc -O1 -shared -fPIC -o "$preload" "$(dirname "$(realpath "$0")")/uml-xstate.c" || refuse "cc cannot build uml-xstate.c"
  fi
  LD_PRELOAD=$preload TMPDIR=$memory linux.uml mem="$RIG_MEM" root=/dev/root rootfstype=hostfs rootflags=/ ro init="$work/bin/boot" \
    con=null con0=null,fd:1 quiet < /dev/null > "$work/console" 2>&1 &
  uml=$!
  local deadline=$((SECONDS + ${RIG_TIMEOUT:-300})) late=
  # The files grow on the kernel's shared directory; a descriptor goes on where it was.
  exec 5< "$work/stdout" 6< "$work/stderr"
  while kill -0 $uml 2> /dev/null; do
    cat <&5; cat <&6 >&2
    [ $SECONDS -lt $deadline ] || { late=1; break; }
    sleep .1
  done
  [ -n "$late" ] || wait $uml 2> /dev/null || true
  cat <&5; cat <&6 >&2
  if [ -n "$late" ]; then
    echo "nfs-lanes.sh: not done after ${RIG_TIMEOUT:-300} s (RIG_TIMEOUT); on VERS=4.0, try DELEGATIONS=no" >&2
    exit 124
  fi
  uml=
  [ -s "$work/status" ] && exit "$(cat "$work/status")"
  echo "nfs-lanes.sh: $(cat "$work/failure" 2> /dev/null || echo "the kernel ended without a word")" >&2
  tail -n 20 "$work/console" >&2
  exit 99
}
end() {
  set +e # what is gone already cannot be ended
  [ -z "$uml" ] || { kill -TERM "$uml"; for _ in $(seq 30); do kill -0 "$uml" && sleep .1; done; kill -KILL "$uml"; } 2> /dev/null
  rm -rf "$work"
}
refuse() { echo "nfs-lanes.sh: $*" >&2; exit 99; }
available_kb() { df --output=avail -k "$1" 2> /dev/null | tail -n 1; }
to_kb() { case $1 in *[gG]) echo $((${1%?} << 20)) ;; *[mM]) echo $((${1%?} << 10)) ;; *) echo "${1%[kK]}" ;; esac; }

# ---- inside: process 1 of the kernel. A fork costs tens of milliseconds here: tools that take batches get them ----

boot() {
  export HOME=/root
  mount -t proc proc /proc
  RIG_WORK=$(sed -n 's,.*init=\([^ ]*\)/bin/boot.*,\1,p' /proc/cmdline)
  # The root is read-only; the rig's own directory, and the shared one, are the same ones as outside.
  mount -t hostfs -o "$RIG_WORK" none "$RIG_WORK"
  # shellcheck disable=SC1091 # written by outside()
  . "$RIG_WORK/settings"
  number_lanes
  PATH=$RIG_WORK/bin:$PATH:/usr/sbin:/sbin
  exec > "$RIG_WORK/boot" 2>&1
  trap 'broken "the rig stopped in line $LINENO"' ERR
  mkdir -p /dev/shm /dev/pts
  mount -a -T "$RIG_WORK/fstab"
  cp -Pr "$RIG_WORK/files/." /
  export TMPDIR=/run/tmp NFS_EXPORT=/run/export LANE_MOUNTS=
  local n; for n in "${lanes[@]}"; do LANE_MOUNTS+=" /mnt/v$n"; done
  LANE_MOUNTS=${LANE_MOUNTS# }

  modprobe -d "$RIG_WORK" -a nfsd nfs nfsv3 nfsv4 sch_htb sch_netem cls_u32
  network
  mount -a -i -T "$RIG_WORK/fstab.server"
  rpcbind -w
  make_export
  local clients=("${lanes[@]/#/127.0.1.}")
  exportfs -i -o ro,fsid=1 "${clients[@]/%/:/run/lock}"
  exports "${lanes[@]}"
  rpc.mountd --port $MOUNTD_PORT --no-udp
  server_start
  mount -a -i -T "$RIG_WORK/fstab.lanes"
  trap - ERR; set +e

  # shellcheck disable=SC2154 # the settings assign it
  "${command[@]}" > "$RIG_WORK/stdout" 2> "$RIG_WORK/stderr" < /dev/null
  echo $? > "$RIG_WORK/status"
  power_off
}
# Prepares the mounted directories and their files outside the user-mode kernel, where that is quick.
prepare() {
  mkdir -p "$work"/{bin,share,lib/modules} "$work"/files/{dev,mnt,run/{tmp,rpcbind,lock,export},var/lib/nfs/{sm,v4recovery,rpc_pipefs}}
  ln -s "$modules" "$work/lib/modules/"
  ln -s "$(realpath "$0")" "$work/rig"
  local tool n
  for tool in boot lane server; do
    printf '#!/bin/bash\nexec /bin/bash %q --%s "$@"\n' "$work/rig" $tool > "$work/bin/$tool"
    chmod +x "$work/bin/$tool"
  done
  ln -s /proc/self/fd "$work/files/dev/fd"; ln -s fd/0 "$work/files/dev/stdin"
  ln -s fd/1 "$work/files/dev/stdout"; ln -s fd/2 "$work/files/dev/stderr"
  : > "$work/files/var/lib/nfs/etab"; : > "$work/files/var/lib/nfs/rmtab"
  # Fewer kinds of transport to register with the port mapper.
  printf '%s\n' 'tcp tpi_cots_ord v inet tcp - -' 'local tpi_cots_ord - loopback - - -' > "$work/netconfig"
  { echo "sys /sys sysfs"
    for n in /run /var/lib/nfs /mnt; do echo "tmpfs $n tmpfs"; done
    echo "shm /dev/shm tmpfs"
    echo "pts /dev/pts devpts"
    echo "$work/netconfig /etc/netconfig none bind"
    [[ $RIG_SHARE == "$work"/* ]] || echo "none $RIG_SHARE hostfs $RIG_SHARE"
  } > "$work/fstab"
  printf '%s\n' "nfsd /proc/fs/nfsd nfsd" "rpc /var/lib/nfs/rpc_pipefs rpc_pipefs" > "$work/fstab.server"
  for n in "${lanes[@]}"; do mkdir "$work/files/mnt/v$n"; lane_row "$n"; done > "$work/fstab.lanes"
}
# Without mount's helper, which would ask the port mapper for what is known here.
lane_row() {
  local path=/ options="vers=$VERS,clientaddr=127.0.1.$1"
  [ "$VERS" != 3 ] || path=/run/export options=vers=3,nolock,mountproto=tcp,mountport=$MOUNTD_PORT,mountaddr=127.0.0.$1
  echo "127.0.0.$1:$path /mnt/v$1 nfs $options,proto=tcp,port=2049,addr=127.0.0.$1${OPTIONS:+,$OPTIONS}"
}
broken() { { echo "$1:"; tail -n 20 "$RIG_WORK/boot"; } > "$RIG_WORK/failure"; power_off; }
power_off() { echo o > /proc/sysrq-trigger; sleep 10; }

make_export() {
  if [ "$FS" = tmpfs ]; then
    mount -t tmpfs -o "size=$SIZE" export "$NFS_EXPORT"
  else
    modprobe -d "$RIG_WORK" -a brd dm-mod
    local kb; kb=$(to_kb "$SIZE")
    # brd takes its size from a parameter of the module.
    rmmod brd; modprobe -d "$RIG_WORK" brd rd_nr=1 "rd_size=$kb"
    echo "0 $((kb * 2)) linear /dev/ram0 0" > /run/table
    dmsetup create --noudevsync --noudevrules export < /run/table; dmsetup mknodes
    mkfs.ext4 -q -m 0 -E nodiscard,lazy_itable_init=1 -O ^has_journal /dev/mapper/export
    mount -o errors=continue /dev/mapper/export "$NFS_EXPORT"
  fi
}

network() {
  local n
  { echo "link set lo up"
    # A source address for each lane, by which the server can tell its clients apart.
    for n in "${lanes[@]}"; do echo "route add local 127.0.0.$n dev lo src 127.0.1.$n table local"; done
  } | ip -batch -
  { echo "qdisc add dev lo root handle 1: htb default 9999"
    echo "class add dev lo parent 1: classid 1:9999 htb rate 10gbit quantum 60000"
    for n in "${lanes[@]}"; do way "$n" "$n" src; way "1$n" "$n" dst; done
  } | tc -batch -
}
# One direction of a lane: `src` is from the server, `dst` towards it.
way() {
  echo "class add dev lo parent 1: classid 1:$1 htb rate $RATE burst 32k quantum 60000"
  echo "qdisc add dev lo parent 1:$1 handle $1: netem delay $DELAY limit 10000"
  echo "filter add dev lo parent 1: protocol ip prio 1 u32 match ip $3 127.0.0.$2 flowid 1:$1"
}

# A client to which nothing at all is exported would be refused, rather than told that its handle is stale.
exports() { # exports LANE...
  local n clients=()
  for n in "$@"; do clients+=("127.0.1.$n:$NFS_EXPORT"); done
  exportfs -i -o rw,no_root_squash,insecure,fsid=0,no_subtree_check "${clients[@]}"
}

# ---- what COMMAND can do to the lanes and the server ----

lane() {
  local usage="usage: lane freeze|late|thaw|cap|unmount|mount|stale|fresh N, with N = $FIRST .. $((FIRST + LANES - 1))"
  local verb=${1:-} n=${2:-}
  [[ " ${lanes[*]} " == *" $n "* ]] || { echo "$usage" >&2; exit 2; }
  case $verb in
    freeze) netem "$n" loss 100% ;;
    late) netem "$n" delay "$3" loss 0% ;;
    thaw) netem "$n" delay "$DELAY" loss 0% ;;
    cap)
      local rate=${3:-$RATE} way
      for way in "$n" "1$n"; do echo "class change dev lo parent 1: classid 1:$way htb rate $rate burst 32k quantum 60000"
      done | tc -batch - ;;
    unmount) umount -i ${3:+"$3"} "/mnt/v$n" ;;
    mount) mount -i -T "$RIG_WORK/fstab.lanes" "/mnt/v$n" ;;
    stale) exportfs -u "127.0.1.$n:$NFS_EXPORT"; exportfs -f ;;
    fresh) exports "$n"; exportfs -f ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
}
netem() {
  local n=$1 way; shift
  for way in "$n" "1$n"; do echo "qdisc change dev lo parent 1:$way handle $way: netem limit 10000 $*"; done | tc -batch -
}

server() {
  case ${1:-} in
    stop) server_stop ;;
    start) server_start ;;
    restart) server_stop; server_start ;;
    # It takes all that there is before it fails for the blocks that describe it.
    full) fallocate -l "$(df --output=avail -B1 "$NFS_EXPORT" | tail -n 1)" "$NFS_EXPORT/.full" 2> /dev/null || true ;;
    room) rm "$NFS_EXPORT/.full" ;;
    break) device error; sync; echo 3 > /proc/sys/vm/drop_caches ;;
    mend) device linear ;;
    *) echo "usage: server stop|start|restart|full|room|break|mend" >&2; exit 2 ;;
  esac
}
server_start() {
  # The server's delegations are leases.
  [ "$DELEGATIONS" = yes ] || echo 0 > /proc/sys/fs/leases-enable
  # A server of version 3 waits 50 s for clients that reclaim locks, and until then refuses the locks of version 4, too.
  if [ "$VERS" = 3 ]; then rpc.nfsd 8; else rpc.nfsd -N 3 8; fi
  # No client has state to reclaim that these tests would wait for.
  echo Y > /proc/fs/nfsd/v4_end_grace
}
server_stop() { echo 0 > /proc/fs/nfsd/threads; }
device() {
  [ "$FS" = ext4 ] || { echo "the server's device can fail with FS=ext4 only" >&2; exit 2; }
  if [ "$1" = error ]; then sed 's/linear.*/error/' /run/table; else cat /run/table; fi |
    dmsetup reload --noudevsync --noudevrules export
  dmsetup suspend --noflush --nolockfs --noudevsync export; dmsetup resume --noudevsync --noudevrules export
}

case ${1:-} in
  --boot) boot ;;
  --lane) shift; number_lanes; lane "$@" ;;
  --server) shift; server "$@" ;;
  *) outside "$@" ;;
esac
