#!/usr/bin/env bash
# A real GlusterFS volume on hosts of its own (network namespaces), and a command on the client's side of it.
#
#   [REPLICAS=2] [LANES=4] [OPTIONS="performance.strict-o-direct=on ..."] rigs/gluster-volume.sh COMMAND...
#
# COMMAND runs on the client host with:
#   GLUSTER_SERVER  address of the server          GLUSTER_VOLUME  gv0
#   GLUSTER_MOUNTS  directory of FUSE mounts 1, 2, ..., LANES: each its own client process and connection
#   GLUSTER_BRICKS  directory of the bricks' own directories 1, ..., REPLICAS, on this host's file system
#   GLUSTER_LOCAL   an empty directory beside them, on the same file system
#   GLUSTER_RIG     a program: `kill-brick N` ends the process of brick N as a crash would, `start-brick N` starts it
#                   again and waits until it serves, `silence N` stops it from answering, `resume N` ends that, and
#                   `give-up-after S` is how many seconds of silence clients bear from now on (42, as it is installed)
#
# Several rigs may run at once: names carry the id of this process, and each pair of hosts has a network of its own.
# Needs root, and of Debian: glusterfs-server glusterfs-client iproute2.
set -euo pipefail

id=$$ replicas=${REPLICAS:-1} lanes=${LANES:-1}
server=gfs-$id client=gfc-$id address=10.77.0.1
work=$(mktemp -d "${TMPDIR:-/var/tmp}/gluster-rig.XXXXXX")
export GLUSTER_SERVER=$address GLUSTER_VOLUME=gv0 GLUSTER_MOUNTS=$work/mnt GLUSTER_BRICKS=$work/bricks
export GLUSTER_LOCAL=$work/local GLUSTER_RIG=$work/rig

# Everything that runs in a namespace was started by this rig: its processes are found there, and ended by their ids.
end_all() { # end_all SIGNAL NAMESPACE
  local pids; pids=$(ip netns pids "$2" 2> /dev/null) || return 0
  # shellcheck disable=SC2086 # a list of numbers
  [ -z "$pids" ] || kill "-$1" $pids 2> /dev/null || true
}
clean_up() {
  local host
  for host in "$client" "$server"; do
    end_all TERM "$host"
    for _ in $(seq 50); do [ -n "$(ip netns pids "$host" 2> /dev/null)" ] || break; sleep .1; done
    end_all KILL "$host"
    ip netns del "$host" 2> /dev/null || true
  done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
fail() { echo "gluster-volume.sh: $*" >&2; exit 99; }
# How long anything may take here: to end what hangs, not to hurry a busy machine.
patience=180
wait_for() { # wait_for WHAT COMMAND...: until COMMAND succeeds
  local until=$((SECONDS + patience)) what=$1; shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $until ] || fail "$what, in vain; the server's last words: $(tail -n 3 "$work/glusterd.log" 2> /dev/null)"
    sleep .1
  done
}

mkdir -p "$work/bricks" "$work/local" "$work/glusterd" "$work/run/gluster" "$work/log"
ip netns add "$server"; ip netns add "$client"
ip link add name "s$id" netns "$server" type veth peer name "c$id" netns "$client"
ip -n "$server" addr add "$address/24" dev "s$id"; ip -n "$client" addr add 10.77.0.2/24 dev "c$id"
for host in "$server" "$client"; do ip -n "$host" link set lo up; done
ip -n "$server" link set "s$id" up; ip -n "$client" link set "c$id" up
ip -n "$server" route add default via 10.77.0.2 # to hosts behind the client: rigs/hosts.sh with UPLINK=1

# Gluster's programs share directories for sockets, process ids and logs: each rig gets some that only it sees.
on_server() { ip netns exec "$server" "$work/enter" "$@"; }
cat > "$work/enter" << ENTER
#!/bin/sh
mkdir -p /var/log/glusterfs
mount --bind "$work/run" /run && mount --bind "$work/log" /var/log/glusterfs && exec "\$@"
ENTER
chmod +x "$work/enter"
sed "s#working-directory .*#working-directory $work/glusterd#" /etc/glusterfs/glusterd.vol > "$work/glusterd.vol"
gluster() { on_server gluster --mode=script "$@"; }

on_server glusterd --volfile="$work/glusterd.vol" --pid-file="$work/glusterd.pid" --log-file="$work/glusterd.log"
wait_for "waited for glusterd" gluster volume info
bricks=()
for n in $(seq "$replicas"); do bricks+=("$address:$work/bricks/$n"); done
replica=(); [ "$replicas" = 1 ] || replica=(replica "$replicas")
gluster volume create gv0 "${replica[@]}" "${bricks[@]}" force > "$work/out" || fail "$(cat "$work/out")"
for option in ${OPTIONS:-}; do
  gluster volume set gv0 "${option%%=*}" "${option#*=}" > "$work/out" || fail "$option: $(cat "$work/out")"
done
gluster volume start gv0 > "$work/out" || fail "$(cat "$work/out")"

cat > "$work/rig" << RIG
#!/usr/bin/env bash
# Does something to a brick of the volume: see rigs/gluster-volume.sh.
set -euo pipefail
brick=$work/bricks/\$2
pid() { for p in \$(ip netns pids $server); do
  tr '\0' '\n' < /proc/\$p/cmdline 2> /dev/null | grep -qx -- "\$brick" && echo "\$p" && return; done; return 1; }
gluster() { ip netns exec $server "$work/enter" gluster --mode=script "\$@"; }
# The port that a brick has told the server of, and on which it listens; the mount, which tries again every few seconds,
# has found its only brick.
serves() {
  local port; port=\$(gluster volume status gv0 | grep -A1 "bricks/\$1" | sed -nE 's/.* ([0-9]+) +[0-9]+ +Y +[0-9]+ *\$/\1/p')
  [ -n "\$port" ] && ip netns exec $server bash -c "exec 3<> /dev/tcp/$address/\$port" 2> /dev/null &&
    { [ $replicas -gt 1 ] || stat -f "$GLUSTER_MOUNTS/1" > /dev/null 2>&1; }
}
case \$1 in
  kill-brick) p=\$(pid); kill -KILL "\$p"; while kill -0 "\$p" 2> /dev/null; do sleep .05; done ;;
  start-brick) gluster volume start gv0 force > /dev/null
    until serves "\$2"; do
      [ \$SECONDS -lt $patience ] || { echo "brick \$2 does not come back" >&2; exit 1; }
      sleep .1
    done ;;
  silence) kill -STOP "\$(pid)" ;;
  resume) kill -CONT "\$(pid)" ;;
  give-up-after) gluster volume set gv0 network.ping-timeout "\$2" > /dev/null ;;
  *) echo "usage: rig kill-brick|start-brick|silence|resume|give-up-after N" >&2; exit 2 ;;
esac
RIG
chmod +x "$work/rig"
bricks_online() { local n; for n in $(seq "$replicas"); do
  gluster volume status gv0 | grep -A1 "bricks/$n" | grep -qE ' Y +[0-9]+ *$' || return 1; done; }
wait_for "waited for the bricks" bricks_online

for n in $(seq "$lanes"); do mkdir -p "$GLUSTER_MOUNTS/$n"; done
# `ip netns exec` gives its command a mount table of its own: the mounts are made inside, and end with it.
status=0
# shellcheck disable=SC2016 # expanded inside
ip netns exec "$client" bash -c '
  for at in "$GLUSTER_MOUNTS"/*; do
    glusterfs --volfile-server="$GLUSTER_SERVER" --volfile-id="$GLUSTER_VOLUME" --direct-io-mode=enable \
      --log-file="$GLUSTER_MOUNTS/../mount.log" "$at" || exit 99
    # It is mounted before it has found the bricks, and says ENOTCONN until then.
    until grep -q " $at fuse" /proc/mounts && stat -f "$at" > /dev/null 2>&1; do
      [ $SECONDS -lt '"$patience"' ] || { echo "gluster-volume.sh: $at is not mounted, or not served" >&2; exit 99; }
      sleep .1
    done
  done
  status=0; "$@" || status=$?
  for at in "$GLUSTER_MOUNTS"/*; do umount "$at" 2> /dev/null || umount -l "$at" || true; done
  exit "$status"' bash "$@" || status=$?
exit "$status"
