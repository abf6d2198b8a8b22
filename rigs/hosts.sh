#!/usr/bin/env bash
# Hosts of our own, and mpirun that starts ranks on them: network namespaces with their own addresses and names on one
# switch, and a command on the first of them.
#
#   [HOSTS=a,b,c,d] [UPLINK=1] rigs/hosts.sh COMMAND...
#
# COMMAND runs on the first host, as if typed there: `mpirun -np 4 --host "$HOSTS" plimsoll run job.fio` goes to all of
# them (mpirun's remote agent enters the namespace where ssh would log in), and so does `plimsoll run --hosts "$HOSTS"`.
# It has:
#   HOSTS          their names, with commas; addresses are 10.78.0.1, 10.78.0.2, ...
#   HOSTS_SWITCH   10.78.0.254, the address of the switch: what `on switch COMMAND...` starts can listen there
#   HOSTS_RIG      a program:
#     on HOST|switch COMMAND...  runs a command there        pids HOST  the processes of a host
#     shape HOST RATE            limits a host's network, each way, as `shape c 100mbit`       unshape HOST
#     cut HOST                   unplugs it                  plug HOST  plugs it in again
#
# UPLINK=1 puts the switch into the present network namespace and routes the hosts through it: inside
# rigs/gluster-volume.sh they reach the volume's server.
#
# Several rigs may run at once, their names carry the id of this process. Needs root, and of Debian: openmpi-bin
# iproute2.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

id=$$ names=${HOSTS:-a,b,c,d}
switch=hsw-$id bridge=hb$id
work=$(mktemp -d "${TMPDIR:-/var/tmp}/hosts-rig.XXXXXX")
IFS=, read -r -a hosts <<< "$names"
space() { echo "h$id-$1"; } # space HOST: the name of its namespace
on_switch() { if [ "${UPLINK:-}" = 1 ]; then "$@"; else ip netns exec "$switch" "$@"; fi; }

# Everything that runs in a namespace was started by this rig: its processes are found there, and ended by their ids.
end_all() { # end_all SIGNAL NAMESPACE
  local pids; pids=$(ip netns pids "$2" 2> /dev/null) || return 0
  # shellcheck disable=SC2086 # a list of numbers
  [ -z "$pids" ] || kill "-$1" $pids 2> /dev/null || true
}
clean_up() {
  local host spaces=()
  for host in "${hosts[@]}"; do spaces+=("$(space "$host")"); done
  [ "${UPLINK:-}" = 1 ] || spaces+=("$switch")
  for host in "${spaces[@]}"; do end_all TERM "$host"; done
  for host in "${spaces[@]}"; do
    for _ in $(seq 30); do [ -n "$(ip netns pids "$host" 2> /dev/null)" ] || break; sleep .1; done
    end_all KILL "$host"
    ip netns del "$host" 2> /dev/null || true
    rm -rf "/etc/netns/$host"
  done
  ip link del "$bridge" 2> /dev/null || true # with UPLINK; otherwise it went with its namespace
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

[ "${UPLINK:-}" = 1 ] || { ip netns add "$switch"; ip -n "$switch" link set lo up; }
on_switch ip link add "$bridge" type bridge
on_switch ip addr add 10.78.0.254/24 dev "$bridge"
on_switch ip link set "$bridge" up
on_switch sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
number=0
for host in "${hosts[@]}"; do
  number=$((number + 1)) space=$(space "$host")
  ip netns add "$space"
  on_switch ip link add "p$number-$id" type veth peer name eth0 netns "$space"
  on_switch ip link set "p$number-$id" master "$bridge" up
  ip -n "$space" link set lo up
  ip -n "$space" addr add "10.78.0.$number/24" dev eth0
  ip -n "$space" link set eth0 up
  ip -n "$space" route add default via 10.78.0.254
  echo "10.78.0.$number $host" >> "$work/hosts"
done
# Each namespace sees these as its own /etc/hosts: see ip-netns(8).
for host in "${hosts[@]}"; do
  mkdir -p "/etc/netns/$(space "$host")"
  { echo "127.0.0.1 localhost"; cat "$work/hosts"; } > "/etc/netns/$(space "$host")/hosts"
done

# As ssh: the host, then a command line for its shell. The host's name is that of its own UTS namespace.
cat > "$work/agent" << AGENT
#!/bin/sh
host=\$1; shift
# shellcheck disable=SC2016 # expanded inside
exec ip netns exec "h$id-\$host" unshare --uts sh -c 'hostname "\$1"; shift; exec sh -c "\$*"' sh "\$host" "\$@"
AGENT
cat > "$work/rig" << RIG
#!/usr/bin/env bash
# Does something to a host: see rigs/hosts.sh.
set -euo pipefail
PATH=\$PATH:/usr/sbin:/sbin
command=\$1 host=\$2 space=h$id-\$2; shift 2
on_switch() { if [ "${UPLINK:-}" = 1 ]; then nsenter --net="$work/switch" "\$@"; else ip netns exec "$switch" "\$@"; fi; }
port() { awk -v host="\$host" '\$2 == host {print "p" NR "-$id"}' "$work/hosts"; }
case \$command in
  on) [ "\$host" != switch ] || { on_switch "\$@"; exit; }
    exec ip netns exec "\$space" unshare --uts sh -c 'hostname "\$1"; shift; exec "\$@"' sh "\$host" "\$@" ;;
  pids) ip netns pids "\$space" ;;
  shape) for way in "on_switch tc qdisc replace dev \$(port)" "ip netns exec \$space tc qdisc replace dev eth0"; do
      \$way root tbf rate "\$1" burst 64kb latency 50ms; done ;;
  unshape) on_switch tc qdisc del dev "\$(port)" root; ip netns exec "\$space" tc qdisc del dev eth0 root ;;
  cut) on_switch ip link set "\$(port)" down ;;
  plug) on_switch ip link set "\$(port)" up
    for _ in \$(seq 600); do # the link carries packets some time after it was told to: until the switch answers
      case \$(ip netns exec "\$space" timeout 1 bash -c 'exec 3<> /dev/tcp/10.78.0.254/9' 2>&1) in *refused*) exit 0 ;; esac
      sleep .1
    done
    echo "rig: \$host does not reach the switch" >&2; exit 1 ;;
  *) echo "usage: rig on|pids|shape|unshape|cut|plug HOST ..." >&2; exit 2 ;;
esac
RIG
chmod +x "$work/agent" "$work/rig"
touch "$work/switch"
if [ "${UPLINK:-}" = 1 ]; then mount --bind /proc/self/ns/net "$work/switch"; fi

export HOSTS=$names HOSTS_SWITCH=10.78.0.254 HOSTS_RIG=$work/rig
export PLIMSOLL_SSH=$work/agent OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_oob_tcp_if_include=10.78.0.0/24
export OMPI_MCA_btl_tcp_if_include=10.78.0.0/24 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Without these mpirun takes eight minutes to notice that a host is gone, or a quarter of an hour when it has something
# to tell it: docs/hosts.md.
export OMPI_MCA_oob_tcp_keepalive_time=1 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=1
# As many ranks on a host as one likes, which wait for each other without burning what the others need.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
status=0
"$work/rig" on "${hosts[0]}" "$@" || status=$?
[ "${UPLINK:-}" != 1 ] || umount "$work/switch"
exit "$status"
