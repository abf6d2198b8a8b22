#!/usr/bin/env bash
# A Linux kernel that authenticates over NVMe/TCP: Debian's source with CONFIG_NVME_AUTH, which Debian's kernels are
# built without, and little else. Prints where it is, for RIG_KERNEL of rigs/nvme-kernel-client.sh.
#
#   rigs/nvme-auth-kernel.sh
#
#   RIG_CACHE   where it is kept, once it is built: /var/cache/plimsoll-rigs, or ~/.cache/plimsoll-rigs
#
# The first time it downloads 140 MB (linux-source-6.1) and compiles for some minutes, with 2 GB of scratch space in
# TMPDIR. Needs of Debian: gcc make flex bison bc libelf-dev xz-utils.
set -euo pipefail

refuse() { echo "nvme-auth-kernel.sh: $1" >&2; exit 1; }

cache=${RIG_CACHE:-/var/cache/plimsoll-rigs}
if ! mkdir -p "$cache" 2> /dev/null || [ ! -w "$cache" ]; then cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll-rigs; fi
mkdir -p "$cache"
exec 9> "$cache/auth-lock"; flock 9
kernel=$cache/bzImage-nvme-auth
if [ -s "$kernel" ]; then echo "$kernel"; exit; fi

for program in gcc make flex bison bc xz apt-get dpkg-deb; do
  command -v $program > /dev/null || refuse "$program is not installed (see the head of this file)"
done
[ -f /usr/include/libelf.h ] || refuse "libelf.h is not installed (Debian package libelf-dev)"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/auth-kernel.XXXXXX")
trap 'rm -rf "$work"' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
cd "$work"
# Root's directories are not for apt's own user.
chmod 755 .; [ "$(id -u)" != 0 ] || chown _apt . 2> /dev/null || true
apt-get download -qq linux-source-6.1 > apt 2>&1 || refuse "cannot download linux-source-6.1: $(tail -n 1 apt)"
dpkg-deb --fsys-tarfile ./*.deb | tar -x -O ./usr/src/linux-source-6.1.tar.xz | tar -xJ --strip-components=1

cat > wanted << 'WANTED'
CONFIG_64BIT=y
CONFIG_SMP=y
CONFIG_CPU_MITIGATIONS=n
CONFIG_PRINTK=y
CONFIG_BUG=y
CONFIG_FUTEX=y
CONFIG_EPOLL=y
CONFIG_EVENTFD=y
CONFIG_SIGNALFD=y
CONFIG_TIMERFD=y
CONFIG_AIO=y
CONFIG_SHMEM=y
CONFIG_POSIX_TIMERS=y
CONFIG_HIGH_RES_TIMERS=y
CONFIG_MULTIUSER=y
CONFIG_ADVISE_SYSCALLS=y
CONFIG_MEMBARRIER=y
CONFIG_BINFMT_ELF=y
CONFIG_BINFMT_SCRIPT=y
CONFIG_BLK_DEV_INITRD=y
CONFIG_PROC_FS=y
CONFIG_PROC_SYSCTL=y
CONFIG_SYSFS=y
CONFIG_TMPFS=y
CONFIG_DEVTMPFS=y
CONFIG_TTY=y
CONFIG_SERIAL_8250=y
CONFIG_SERIAL_8250_CONSOLE=y
CONFIG_PCI=y
CONFIG_ACPI=y
CONFIG_VIRTIO_MENU=y
CONFIG_VIRTIO_PCI=y
CONFIG_NET=y
CONFIG_INET=y
CONFIG_UNIX=y
CONFIG_NETDEVICES=y
CONFIG_NET_CORE=y
CONFIG_VIRTIO_NET=y
CONFIG_BLOCK=y
CONFIG_BLK_DEV=y
CONFIG_NVME_TCP=y
CONFIG_NVME_AUTH=y
CONFIG_CRYPTO=y
WANTED
{
  make -s tinyconfig
  scripts/kconfig/merge_config.sh -m .config wanted
  make -s olddefconfig
} > config 2>&1 || refuse "cannot configure: $(tail -n 1 config)"
missing=$(grep -v '=n$' wanted | grep -vxFf .config || true)
[ -z "$missing" ] || refuse "this source has not: ${missing//$'\n'/ }"
make -s -j"$(nproc)" bzImage > build 2>&1 || refuse "cannot build: $(grep -m 1 -i error build || tail -n 1 build)"
mv arch/x86/boot/bzImage "$kernel.new"
mv "$kernel.new" "$kernel"
echo "$kernel"
