#!/usr/bin/env bash
# Hosts that one logs into by ssh: those of rigs/hosts.sh, with an SSH server each and a key that opens them, for as
# long as a command runs on the first of them.
#
#   [HOSTS=a,b,c] rigs/ssh-hosts.sh COMMAND...
#
# `ssh b COMMAND` works there without a question. The key, the servers' keys and ssh's configuration are in a home
# directory of the rig's own, which root has inside of it and nowhere else. Needs root, and of Debian: dropbear-bin
# openssh-client iproute2.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin

case ${SSH_HOSTS_STEP:-begin} in
  begin) # a file system's view of our own, where root lives elsewhere
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/ssh-rig.XXXXXX")
    trap 'rm -rf "$work"' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
    mkdir -p "$work/.ssh"
    ssh-keygen -q -t ed25519 -N '' -f "$work/.ssh/id_ed25519"
    ssh-keygen -q -t ecdsa -N '' -m PEM -f "$work/server"
    dropbearconvert openssh dropbear "$work/server" "$work/server.key" 2> /dev/null
    cp "$work/.ssh/id_ed25519.pub" "$work/.ssh/authorized_keys"
    printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n' > "$work/.ssh/config"
    awk -F: -v OFS=: -v home="$work" '$3 == 0 { $6 = home } 1' /etc/passwd > "$work/passwd"
    chmod -R go-rwx "$work"; chmod 644 "$work/passwd"
    SSH_HOSTS_STEP=inside SSH_HOSTS_HOME=$work unshare --mount --propagation private "$here/ssh-hosts.sh" "$@"
    ;;
  inside)
    mount --bind "$SSH_HOSTS_HOME/passwd" /etc/passwd
    SSH_HOSTS_STEP=first exec "$here/hosts.sh" "$here/ssh-hosts.sh" "$@"
    ;;
  first) # on the first host, where the names of all are known
    unset SSH_HOSTS_STEP
    # shellcheck disable=SC2153 # hosts.sh sets it
    IFS=, read -r -a hosts <<< "$HOSTS"
    for host in "${hosts[@]}"; do
      log=$SSH_HOSTS_HOME/$host.log
      # Ends with its host's namespace.
      "$HOSTS_RIG" on "$host" dropbear -F -E -s -r "$SSH_HOSTS_HOME/server.key" -P "$SSH_HOSTS_HOME/$host.pid" 2> "$log" &
      until ssh "$host" true 2>> "$log"; do
        kill -0 $! 2> /dev/null || { echo "ssh-hosts.sh: no server on $host: $(tail -n 1 "$log")" >&2; exit 99; }
        sleep .1
      done
    done
    "$@"
    ;;
esac
