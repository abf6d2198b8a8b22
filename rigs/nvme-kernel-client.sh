#!/usr/bin/env bash
# A stock Linux kernel as NVMe/TCP initiator: boots Debian's cloud kernel in QEMU (a few seconds, by software emulation)
# and runs a script in it.
#
#   [RIG_MEM=768] ... rigs/nvme-kernel-client.sh SCRIPT [PROGRAM...]
#
#   SCRIPT      runs in the guest as root, by busybox's sh; PROGRAMs of this machine (and other files) are there under
#   their paths, with their libraries. A target that listens on this machine's 127.0.0.1:PORT is at 10.0.2.2:PORT.
#   RIG_MEM     megabytes of memory                       RIG_CPUS=2      processors RIG_MODULES more modules of the
#   kernel: RIG_MODULES="ext4 dm-mod" RIG_KERNEL  a kernel (bzImage) with everything built in, in place of Debian's:
#   rigs/nvme-auth-kernel.sh makes one RIG_ACCEL=tcg    software emulation, which works everywhere; or kvm
#   RIG_TIMEOUT=1200  seconds, then the guest is ended and the status is 124 RIG_CACHE   where the kernel is kept, which
#   is downloaded once: /var/cache/plimsoll-rigs, or ~/.cache/plimsoll-rigs
#
# Output is SCRIPT's, as it comes, and so is the exit status; 99 if the guest itself fails, with its last words. Bytes
# written to the rig's standard input come to SCRIPT on /dev/ttyS0, so that it can wait for what happens outside.
#
# Nothing is installed or changed on this machine but the cache.
# Needs of Debian: qemu-system-x86 busybox-static kmod cpio; downloads linux-image-cloud-amd64.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

refuse() { echo "nvme-kernel-client.sh: $1" >&2; exit 99; }

[ $# -gt 0 ] || refuse "no script: nvme-kernel-client.sh SCRIPT [PROGRAM...]"
[ -f "$1" ] || refuse "$1: no such script"
for program in qemu-system-x86_64 depmod modprobe cpio apt-get dpkg-deb; do
  command -v $program > /dev/null || refuse "$program is not installed (see the head of this file)"
done
[ -x /bin/busybox ] || refuse "/bin/busybox is not installed (Debian package busybox-static)"
for program in "${@:2}"; do [ -f "$program" ] || refuse "$program: no such program"; done

work=$(mktemp -d "${TMPDIR:-/var/tmp}/nvme-rig.XXXXXX")
trap 'rm -rf "$work"' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM

# ---- the kernel: downloaded once, by whoever comes first ----

fetch_kernel() {
  local image
  image=$(apt-cache depends linux-image-cloud-amd64 2> /dev/null | awk '/Depends:/ {print $2; exit}')
  if [ -z "$image" ] && [ "$(id -u)" = 0 ]; then
    apt-get update -qq > "$work/apt" 2>&1 || refuse "apt-get update: $(tail -n 1 "$work/apt")"
    image=$(apt-cache depends linux-image-cloud-amd64 2> /dev/null | awk '/Depends:/ {print $2; exit}')
  fi
  [ -n "$image" ] || refuse "no package linux-image-cloud-amd64: run apt-get update on Debian"
  mkdir "$work/kernel"
  # Root's directories are not for apt's own user.
  chmod 755 "$work"; [ "$(id -u)" != 0 ] || chown _apt "$work/kernel" 2> /dev/null || true
  (cd "$work/kernel" && apt-get download -qq "$image" > "$work/apt" 2>&1) ||
    refuse "cannot download $image: $(tail -n 1 "$work/apt")"
  dpkg-deb --fsys-tarfile "$work"/kernel/*.deb | tar -C "$cache" -x ./boot ./lib/modules
  rm -r "$work/kernel"
}

if [ -n "${RIG_KERNEL:-}" ]; then
  kernel=$RIG_KERNEL; [ -f "$kernel" ] || refuse "RIG_KERNEL=$kernel: no such kernel"
else
  cache=${RIG_CACHE:-/var/cache/plimsoll-rigs}
  if ! mkdir -p "$cache" 2> /dev/null || [ ! -w "$cache" ]; then cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll-rigs; fi
  mkdir -p "$cache"
  exec 9> "$cache/lock"; flock 9
  newest() { find "$cache/boot" -name 'vmlinuz-*-cloud-amd64' 2> /dev/null | sort -V | tail -n 1; }
  [ -n "$(newest)" ] || fetch_kernel
  kernel=$(newest); release=${kernel##*/vmlinuz-}
  [ -s "$cache/lib/modules/$release/modules.dep" ] || depmod -b "$cache" "$release"
  exec 9>&-
fi

# ---- the guest: a root file system in memory ----

root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,etc/nvme,mnt,modules}
cp /bin/busybox "$root/bin/"
cp "$1" "$root/script"
modules=() # what is built in needs none
# shellcheck disable=SC2206 # RIG_MODULES is a list of words
[ -n "${RIG_KERNEL:-}" ] || modules=(virtio_pci virtio_net nvme-tcp crc32c-intel crc32c_generic ${RIG_MODULES:-})
for module in "${modules[@]}"; do
  modprobe -d "$cache" -S "$release" --show-depends "$module" | awk '/^insmod/ {print $2}'
done | awk '!seen[$0]++' > "$work/modules"
while read -r module; do cp "$module" "$root/modules/"; echo "${module##*/}"; done < "$work/modules" > "$root/modules/order"
for program in "${@:2}"; do
  install -D "$program" "$root$program"
  { ldd "$program" 2> /dev/null || true; } | sed -n 's|^[^/]*\(/[^ ]*\).*|\1|p' | while read -r library; do
    [ -f "$root$library" ] || install -D "$library" "$root$library"
  done
done
cat > "$root/init" <<'GUEST'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin:/sbin HOME=/tmp
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev;
mount -t tmpfs run /run; mkdir -p /dev/shm /var; mount -t tmpfs shm /dev/shm; ln -s /tmp /var/tmp; ln -s /proc/self/fd /dev/fd
for module in $(cat /modules/order); do insmod "/modules/$module" 2> /tmp/insmod || echo "guest: $module: $(cat /tmp/insmod)"; done
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
stty -echo < /dev/ttyS0
echo guest-begins
sh /script < /dev/null
echo "guest-exit-status $?"
poweroff -f
GUEST
chmod +x "$root/init"
# Not compressed: unpacking costs an emulated processor more than loading.
(cd "$root" && find . | cpio -o -H newc --quiet) > "$work/initrd"

case ${RIG_ACCEL:-tcg} in
  tcg) accelerate=(-accel "tcg,thread=multi" -cpu max) ;;
  kvm) accelerate=(-accel kvm -cpu host) ;;
  *) refuse "RIG_ACCEL=$RIG_ACCEL: tcg or kvm" ;;
esac
# An emulated processor that is held up at the wrong moment fails the check of its timer (no_timer_check).
mkfifo "$work/console"
status=99
# The background takes no standard input of its own accord.
timeout --foreground "${RIG_TIMEOUT:-1200}" qemu-system-x86_64 "${accelerate[@]}" -smp "${RIG_CPUS:-2}" -m "${RIG_MEM:-768}" \
  -display none -monitor none -serial stdio -no-reboot -kernel "$kernel" -initrd "$work/initrd" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check" \
  -netdev user,id=n0 -device virtio-net-pci,netdev=n0,romfile= <&0 > "$work/console" 2>&1 &
guest=$!
while IFS= read -r line; do
  line=${line%$'\r'}
  case $line in
    guest-exit-status\ *) status=${line#* }; status=${status%$'\r'}; begun= ;;
    *guest-begins) begun=1 ;;
    *) if [ -n "${begun:-}" ]; then printf '%s\n' "$line"; else printf '%s\n' "$line" >> "$work/before"; fi ;;
  esac
done < "$work/console"
wait "$guest" || { ended=$?; [ "$ended" != 124 ] || { echo "nvme-kernel-client.sh: ended after ${RIG_TIMEOUT:-1200} s" >&2; exit 124; }; }
[ "$status" != 99 ] || { echo "nvme-kernel-client.sh: the guest failed:" >&2; tail -n 20 "$work/before" >&2; }
exit "$status"
