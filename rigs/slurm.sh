#!/usr/bin/env bash
# A Slurm cluster of four hosts of our own, and a job of it.
#
#   rigs/slurm.sh PLIMSOLL [JOB]
#
# Inside rigs/hosts.sh (this script goes there itself): munged and slurmctld on host a, a slurmd on each of a, b, c and
# d. JOB, a script for sbatch, finds PLIMSOLL as `plimsoll` and job.fio, a short load of the null engine, where it runs;
# without JOB it is the one of docs/hosts.md. Prints what the job prints; the status is the job's.
#
# Needs root, and of Debian: openmpi-bin slurmctld slurmd slurm-client munge iproute2. Started so, Slurm needs no
# control groups.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
[ $# -ge 1 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -n "${HOSTS_RIG:-}" ] || exec "$(dirname "$0")/hosts.sh" "$(realpath "$0")" "$@"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/slurm-rig.XXXXXX")
chmod 755 "$work" # munged looks at it
daemons=()
clean_up() { kill "${daemons[@]}" 2> /dev/null || true; wait; rm -rf "$work"; } # a host's own are ended with it
trap clean_up EXIT
program=$(realpath "$1") job=${2:+$(realpath "$2")}
cd "$work" # daemons stay where they start, and hosts hide /tmp
mkdir "$work/state" "$work/bin" "$work/spool" "$work"/spool/{a,b,c,d}
cp "$program" "$work/bin/plimsoll"
(umask 077; head -c 1024 /dev/urandom > "$work/munge.key")
cat > "$work/slurm.conf" << CONF
ClusterName=rig
SlurmctldHost=a(10.78.0.1)
AuthInfo=socket=$work/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MailProg=/bin/true
NodeName=a NodeAddr=10.78.0.1 CPUs=4
NodeName=b NodeAddr=10.78.0.2 CPUs=4
NodeName=c NodeAddr=10.78.0.3 CPUs=4
NodeName=d NodeAddr=10.78.0.4 CPUs=4
PartitionName=all Nodes=ALL Default=YES
CONF
echo "CgroupPlugin=cgroup/v1" > "$work/cgroup.conf" # for want of one that uses none
export SLURM_CONF=$work/slurm.conf

munged --foreground --force --key-file="$work/munge.key" --socket="$work/munge.sock" --pid-file="$work/munged.pid" \
  --seed-file="$work/munged.seed" --log-file="$work/munged.log" > "$work/munged.out" 2>&1 & daemons+=($!)
for _ in $(seq 50); do [ -S "$work/munge.sock" ] && break; sleep .1; done
slurmctld -D -f "$SLURM_CONF" > "$work/slurmctld.out" 2>&1 & daemons+=($!)
for host in a b c d; do
  # PMIx of one node would meet that of another in /tmp.
  "$HOSTS_RIG" on "$host" unshare --mount sh -c "mount -t tmpfs tmpfs /tmp && exec slurmd -D -N $host -f '$SLURM_CONF'" \
    > "$work/slurmd-$host.out" 2>&1 & daemons+=($!)
done
for _ in $(seq 200); do [ "$(sinfo -h -t idle -o %D 2> /dev/null)" = 4 ] && break; sleep .1; done
[ "$(sinfo -h -t idle -o %D)" = 4 ] || { echo "slurm.sh: the nodes do not come up" >&2; tail -n 3 "$work"/*.out >&2; exit 99; }

printf '[j]\nrw=randread\nioengine=null\nsize=1g\ntime_based\nruntime=2\nrate_iops=1000\nthread\n' > "$work/job.fio"
if [ -z "$job" ]; then
  job=$work/job.sh
  cat > "$job" << 'JOB'
#!/bin/sh -e
#SBATCH --nodes=4 --ntasks-per-node=2
srun --mpi=pmix plimsoll run job.fio
JOB
fi
status=0
PATH=$work/bin:$PATH sbatch --wait --chdir="$work" --output="$work/job.out" "$job" || status=$?
cat "$work/job.out"
exit "$status"
