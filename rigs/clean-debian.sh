#!/usr/bin/env bash
# A clean Debian 12 with nothing but its essential packages, for one command:
#   rigs/clean-debian.sh PACKAGES SCRIPT
# PACKAGES is a directory that the command sees as /packages; SCRIPT is a shell script of this machine, which runs there
# as root, with mounts, processes and a loopback network of its own. The exit status is the script's. The packages of
# Debian come from where this machine's apt has them; target/clean-debian.tar keeps the result.
# Needs: root, mmdebstrap, unshare, ip (iproute2). Exit status 77: this machine cannot.
set -euo pipefail
packages=$(realpath "$1") script=$(realpath "$2")
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cache=$target/clean-debian.tar

cannot() { echo "clean-debian.sh: $*" >&2; exit 77; }
[ "$(id -u)" = 0 ] || cannot "root is needed to make and enter a root directory"
for program in mmdebstrap unshare ip chroot; do
  command -v $program > /dev/null || cannot "$program is not installed"
done

mkdir -p "$target"
exec 9> "$cache.lock"
flock 9 # one at a time makes it
if [ ! -e "$cache" ]; then
  options=$(mktemp)
  # Sources of this machine, with the options that reach them.
  apt-config dump --no-empty --format '%F "%v";%n' Acquire | grep -iE '::(https?|check-|retries)' > "$options" || true
  echo 'Acquire::Retries "5";' >> "$options"
  sources=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
    [ ! -s "$file" ] || ! grep -q debian.org "$file" || sources+=("$file")
  done
  mmdebstrap --variant=minbase --aptopt="$options" bookworm "$target/clean-debian.new.tar" "${sources[@]}" ||
    { rm -f "$target/clean-debian.new.tar" "$options"; cannot "mmdebstrap could not fetch Debian 12: see above"; }
  rm -f "$options"
  mv "$target/clean-debian.new.tar" "$cache"
fi
flock -u 9

root=$(mktemp -d "$target/clean-debian.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
tar -xf "$cache" -C "$root"
mkdir "$root/packages"
cp "$script" "$root/script"
status=0
# shellcheck disable=SC2016 # the inner shell expands it
unshare --mount --net --pid --fork --kill-child bash -euc '
  root=$1
  ip link set lo up
  mount --bind "$2" "$root/packages"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash -eu /script
' inner "$root" "$packages" || status=$?
exit "$status"
