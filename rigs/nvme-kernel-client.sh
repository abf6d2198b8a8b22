#!/usr/bin/env bash
# A stock Linux kernel as NVMe/TCP initiator, or as target: boots a kernel of Debian in QEMU (a few seconds, by KVM or
# by software emulation) and runs a script in it.
#
#   [RIG_MEM=768] ... rigs/nvme-kernel-client.sh SCRIPT [PROGRAM...]
#
#   SCRIPT       runs in the guest as root, by busybox's sh. PROGRAMs of this machine (and other files) are there under
#                their paths, with their libraries. A target that listens on this machine's 127.0.0.1:PORT is at
#                10.0.2.2:PORT.
#   RIG_MEM      megabytes of memory: 768, and 1536 for Debian 13 and 14
#   RIG_CPUS     processors: 2, and 1 for Debian 13 and 14 without KVM: QEMU 7.2 ends their kernels when they patch
#                themselves on two
#   RIG_MODULES  more modules of the kernel: RIG_MODULES="ext4 dm-mod"
#   RIG_DEBIAN   13 boots Linux 6.12 of Debian 13, which has what the cloud kernel of this machine's Debian lacks:
#                authentication, and the kernel's own target (nvmet), with configfs mounted for it; 14 boots the kernel
#                that Debian 14 has at the time (7.2 and later), which concatenates secure channels
#   RIG_PACKAGES packages of Debian 13, or 14, that the guest has, with those that they need: RIG_PACKAGES="nvme-cli".
#                Their programs run by `newer NAME` in the guest, with their own libraries
#   RIG_DISKS    files that are disks of the guest (with RIG_MODULES=virtio_blk): their names are the serial numbers
#   RIG_QEMU     more arguments for QEMU: RIG_QEMU="-device nvme,serial=1,drive=d -drive file=D,format=raw,if=none,id=d"
#   RIG_APPEND   more words of the kernel's command line: RIG_APPEND=nvme_core.multipath=N
#   RIG_RDMA     1: the guest has an RDMA device rxe0 on eth0 (Soft-RoCE), rdma-core with its driver, and with Debian 13
#                and 14 the kernel's host and target over RDMA, which meet at 10.0.2.15
#   RIG_FORWARD  PORT: connections to 127.0.0.1:PORT of this machine go to port 4420 of the guest
#   RIG_ACCEL    kvm; or tcg, software emulation, which works everywhere; by default kvm where /dev/kvm opens and the
#                processor virtualizes
#   RIG_TIMEOUT  seconds, 1200: then the guest is ended and the status is 124
#   RIG_CACHE    where kernels are kept, which are downloaded once: /var/cache/plimsoll-rigs, or ~/.cache/plimsoll-rigs
#
# Output is SCRIPT's, as it comes, and so is the exit status; 99 if the guest itself fails, with its last words. Bytes
# written to the rig's standard input come to SCRIPT on /dev/ttyS0, so that it can wait for what happens outside.
#
# Nothing is installed or changed on this machine but the cache.
# Needs of Debian: qemu-system-x86 busybox-static kmod cpio, xz-utils for Debian 13 and 14, and for RIG_RDMA iproute2,
# librdmacm1 and ibverbs-providers; downloads linux-image-cloud-amd64, or linux-image-amd64 of Debian 13 or 14 from the
# same archive as this machine's packages.
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
rdma=()
if [ -n "${RIG_RDMA:-}" ]; then
  # A program that uses rdma-core opens these libraries and the driver, which the file names, by itself.
  libraries=/usr/lib/$(uname -m)-linux-gnu
  rdma=("$(command -v rdma || true)" "$libraries"/libibverbs.so.1 "$libraries"/librdmacm.so.1
    "$libraries"/libibverbs/librxe-*.so /etc/libibverbs.d/rxe.driver)
  for file in "${rdma[@]}"; do
    [ -f "$file" ] || refuse "${file:-rdma} is not installed (Debian packages iproute2, librdmacm1, ibverbs-providers)"
  done
fi

# A KVM without vmx or svm below it emulates the kernel's mode itself: kernels of Debian do not boot in it.
find_accelerator() { grep -qwE 'vmx|svm' /proc/cpuinfo && (: <> /dev/kvm) 2> /dev/null && echo kvm || echo tcg; }
accelerator=${RIG_ACCEL:-$(find_accelerator)}

work=$(mktemp -d "${TMPDIR:-/var/tmp}/nvme-rig.XXXXXX")
trap 'rm -rf "$work"' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM

# ---- the kernel: downloaded once, by whoever comes first ----


# Makes apt look at Debian 13 or 14 through the archive that this machine's packages come from. Nothing of this
# machine's own package lists changes.
look_at_newer_debian() {
  local archive here=$cache/apt
  archive=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' | awk '$2 == "bookworm" || $2 == "trixie" {print $1; exit}')
  [ -n "$archive" ] || refuse "apt knows no archive of Debian: run apt-get update on Debian"
  mkdir -p "$here/lists/partial" "$here/archives/partial" "$here/etc"
  cp -r /etc/apt/apt.conf.d "$here/etc/" # proxies
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $codename main" > "$here/etc/sources.list"
  : > "$here/status"
  apt+=(-o "Dir::Etc=$here/etc" -o "Dir::State::lists=$here/lists" -o "Dir::Cache=$here" -o "Dir::State::status=$here/status"
    -o APT::Sandbox::User=root)
  apt-get "${apt[@]}" update -qq > "$work/apt" 2>&1 || refuse "apt-get update: $(tail -n 1 "$work/apt")"
}

fetch_kernel() {
  local image apt=()
  [ -z "$debian" ] || look_at_newer_debian
  find_image() { apt-cache "${apt[@]}" depends "$package" 2> /dev/null | awk '/Depends: linux-image-/ {print $2; exit}'; }
  image=$(find_image)
  if [ -z "$image" ] && [ "$(id -u)" = 0 ]; then
    apt-get "${apt[@]}" update -qq > "$work/apt" 2>&1 || refuse "apt-get update: $(tail -n 1 "$work/apt")"
    image=$(find_image)
  fi
  [ -n "$image" ] || refuse "no package $package: run apt-get update on Debian"
  # From Debian 14 on the image is in packages of its own.
  image+=" $(apt-cache "${apt[@]}" depends "$image" 2> /dev/null | awk '/Depends: linux-(binary|modules)-/ {print $2}' | tr '\n' ' ')"
  mkdir "$work/kernel"
  # Root's directories are not for apt's own user.
  chmod 755 "$work"; [ "$(id -u)" != 0 ] || chown _apt "$work/kernel" 2> /dev/null || true
  # shellcheck disable=SC2086 # a list of names
  (cd "$work/kernel" && apt-get "${apt[@]}" download -qq $image > "$work/apt" 2>&1) ||
    refuse "cannot download $image: $(tail -n 1 "$work/apt")"
  for package in "$work"/kernel/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -C "$cache" -x --wildcards './boot/vmlinuz*' './lib/modules*' './usr/lib/modules*' 2> "$work/tar" ||
      grep -q 'Not found in archive' "$work/tar" || refuse "$(tail -n 1 "$work/tar")"
  done
  # Where modules are below /usr, modprobe -d looks for them below /lib.
  [ -d "$cache/lib" ] || ln -s usr/lib "$cache/lib"
  rm -r "$work/kernel"
}

# Unpacks packages of Debian 13 or 14, and all that they need, into a directory of the cache.
fetch_packages() {
  local apt=() list
  look_at_newer_debian
  mkdir "$work/packages"
  chmod 755 "$work"; [ "$(id -u)" != 0 ] || chown _apt "$work/packages" 2> /dev/null || true
  # With the empty status of look_at_newer_debian nothing counts as installed: these are all of them.
  list=$(apt-get "${apt[@]}" install -s --no-install-recommends "$@" 2> "$work/apt" | awk '$1 == "Inst" {print $2}')
  [ -n "$list" ] || refuse "no packages $* in Debian ${debian:-13}: $(tail -n 1 "$work/apt")"
  # shellcheck disable=SC2086 # a list of names
  (cd "$work/packages" && apt-get "${apt[@]}" download -qq $list > "$work/apt" 2>&1) ||
    refuse "cannot download $list: $(tail -n 1 "$work/apt")"
  mkdir "$packages.new"
  for package in "$work"/packages/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -C "$packages.new" -x --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
  done
  mv "$packages.new" "$packages"
}

debian=${RIG_DEBIAN:-}
codename=trixie; [ "$debian" != 14 ] || codename=forky
cache=${RIG_CACHE:-/var/cache/plimsoll-rigs}
case $debian in
  '') package=linux-image-cloud-amd64 ;;
  13 | 14) package=linux-image-amd64; cache=$cache/debian-$debian ;;
  *) refuse "RIG_DEBIAN=$debian: 13, 14, or nothing for this machine's Debian" ;;
esac
if ! mkdir -p "$cache" 2> /dev/null || [ ! -w "$cache" ]; then
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll-rigs${debian:+/debian-$debian}
fi
mkdir -p "$cache"
exec 9> "$cache/lock"; flock 9
# The kernel is in /boot, or from Debian 14 on beside its modules.
newest() { { find "$cache/boot" "$cache"/lib/modules/*/vmlinuz -name 'vmlinuz*' 2> /dev/null || true; } | sort -V | tail -n 1; }
[ -n "$(newest)" ] || fetch_kernel
kernel=$(newest); release=${kernel##*/vmlinuz-}
[ "$release" != "$kernel" ] || { release=${kernel%/vmlinuz}; release=${release##*/}; }
[ -s "$cache/lib/modules/$release/modules.dep" ] || depmod -b "$cache" "$release"
packages=
if [ -n "${RIG_PACKAGES:-}" ]; then
  packages=$cache/packages-${RIG_PACKAGES// /-}
  # shellcheck disable=SC2086 # a list of names
  [ -d "$packages" ] || fetch_packages $RIG_PACKAGES
fi
exec 9>&-

# ---- the guest: a root file system in memory ----

root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,etc/nvme,mnt,modules}
cp /bin/busybox "$root/bin/"
cp "$1" "$root/script"
# shellcheck disable=SC2206 # RIG_MODULES is a list of words
modules=(virtio_pci virtio_net nvme-tcp crc32c_generic ${RIG_MODULES:-})
case $debian in
  13 | 14) modules+=(nvmet-tcp null_blk loop hmac sha256_generic sha512_generic dh_generic) ;;
  *) modules+=(crc32c-intel) ;;
esac
# Soft-RoCE computes its checksums by crc32_generic.
[ ${#rdma[@]} = 0 ] || modules+=(crc32_generic rdma_rxe ib_uverbs rdma_ucm nvme-rdma nvmet-rdma)
for module in "${modules[@]}"; do
  # A module may be built into one kernel and not into the other.
  { modprobe -d "$cache" -S "$release" --show-depends "$module" 2> /dev/null || true; } | awk '/^insmod/ {print $2}'
done | awk '!seen[$0]++' > "$work/modules"
while read -r module; do
  name=${module##*/}; name=${name%.xz}
  case $module in *.xz) xz -dc "$module" > "$root/modules/$name" ;; *) cp "$module" "$root/modules/" ;; esac
  echo "$name"
done < "$work/modules" > "$root/modules/order"
for program in "${@:2}" "${rdma[@]}"; do
  install -D "$program" "$root$program"
  { ldd "$program" 2> /dev/null || true; } | sed -n 's|^[^/]*\(/[^ ]*\).*|\1|p' | while read -r library; do
    [ -f "$root$library" ] || install -D "$library" "$root$library"
  done
done
if [ -n "$packages" ]; then
  cp -r "$packages" "$root/packages"
  cat > "$root/bin/newer" <<'NEWER'
#!/bin/sh
# Runs a program of /packages with its own libraries.
name=$1; shift
for place in /packages/usr/bin /packages/usr/sbin; do [ ! -x $place/$name ] || program=$place/$name; done
exec /packages/usr/lib64/ld-linux-x86-64.so.2 --library-path /packages/usr/lib/x86_64-linux-gnu "$program" "$@"
NEWER
  chmod +x "$root/bin/newer"
fi
cat > "$root/init" <<'GUEST'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin:/sbin HOME=/tmp
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev;
# The kernel's messages have a port of their own: they never end up within a line of the script.
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
stty -echo
mount -t tmpfs run /run; mkdir -p /dev/shm /var; mount -t tmpfs shm /dev/shm; ln -s /tmp /var/tmp; ln -s /proc/self/fd /dev/fd
for module in $(cat /modules/order); do insmod "/modules/$module" 2> /tmp/insmod || echo "guest: $module: $(cat /tmp/insmod)"; done
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
[ ! -d /sys/kernel/config ] || mount -t configfs configfs /sys/kernel/config
[ ! -d /sys/module/rdma_rxe ] || rdma link add rxe0 type rxe netdev eth0
echo guest-begins
sh /script < /dev/null
echo "guest-exit-status $?"
stty echo # waits until the port has sent all of it
poweroff -f
GUEST
chmod +x "$root/init"
# Not compressed: unpacking costs an emulated processor more than loading.
(cd "$root" && find . | cpio -o -H newc --quiet) > "$work/initrd"

cpus=2
case $accelerator in
  # One processor for Debian 13 and 14: QEMU 7.2 loses these kernels when a processor patches code that another runs.
  tcg)
    if [ -n "$debian" ]; then threads=single cpus=1; else threads=multi; fi
    accelerate=(-accel "tcg,thread=$threads" -cpu max)
    ;;
  kvm) accelerate=(-accel kvm -cpu host) ;;
  *) refuse "RIG_ACCEL=$accelerator: tcg or kvm" ;;
esac
cpus=${RIG_CPUS:-$cpus}
if [ -n "$debian" ]; then memory=${RIG_MEM:-1536}; else memory=${RIG_MEM:-768}; fi
forward=; [ -z "${RIG_FORWARD:-}" ] || forward=",hostfwd=tcp:127.0.0.1:$RIG_FORWARD-:4420"
disks=()
for disk in ${RIG_DISKS:-}; do
  name=${disk##*/}
  disks+=(-drive "file=$disk,format=raw,if=none,id=$name,discard=unmap" -device "virtio-blk-pci,drive=$name,serial=$name")
done
# shellcheck disable=SC2206 # RIG_QEMU is a list of words
disks+=(${RIG_QEMU:-})
# An emulated processor that is held up at the wrong moment fails the check of its timer (no_timer_check).
mkfifo "$work/console"
: > "$work/before"; : > "$work/kernel"
status=99
# The background takes no standard input of its own accord.
timeout --foreground "${RIG_TIMEOUT:-1200}" qemu-system-x86_64 "${accelerate[@]}" -smp "$cpus" -m "$memory" \
  -display none -monitor none -serial stdio -serial "file:$work/kernel" -no-reboot -kernel "$kernel" -initrd "$work/initrd" \
  -append "console=ttyS1 quiet panic=-1 mitigations=off no_timer_check ${RIG_APPEND:-}" \
  -netdev "user,id=n0$forward" -device virtio-net-pci,netdev=n0,romfile= "${disks[@]}" <&0 > "$work/console" 2>&1 &
guest=$!
while IFS= read -r line; do
  line=${line%$'\r'}
  case $line in
    # Before it stands the last line of a script that does not end it.
    *guest-exit-status\ *) printf '%s' "${line%guest-exit-status *}"; status=${line##* }; status=${status%$'\r'}; begun= ;;
    *guest-begins) begun=1 ;;
    *) if [ -n "${begun:-}" ]; then printf '%s\n' "$line"; else printf '%s\n' "$line" >> "$work/before"; fi ;;
  esac
done < "$work/console"
wait "$guest" || { ended=$?; [ "$ended" != 124 ] || { echo "nvme-kernel-client.sh: ended after ${RIG_TIMEOUT:-1200} s" >&2; exit 124; }; }
[ "$status" != 99 ] || { echo "nvme-kernel-client.sh: the guest failed:" >&2; tail -qn 20 "$work/before" "$work/kernel" >&2; }
exit "$status"
