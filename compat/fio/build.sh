#!/bin/sh
# Builds fio-guasi.so for the fio that is installed:
#   compat/fio/build.sh DIRECTORY [dev|release]
# The headers come from Debian's source package, fetched with package lists of its own under DIRECTORY/fio-source (the
# system's are left alone). Exit status 77 and a reason where that can't be done.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
profile=${2:-release}

exec 9>"$out/.fio-engine.lock"
flock 9 # one build at a time

skip() {
    echo "fio-engine: $1" >&2
    exit 77
}

command -v fio >/dev/null || skip "fio is not installed (apt-get install fio)"
command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || skip "no apt-get: the headers come from Debian's source package of fio"
command -v gcc >/dev/null && command -v make >/dev/null || skip "gcc and make are needed"
version=$(dpkg-query -W -f '${Version}' fio 2>/dev/null) || skip "fio is not Debian's package: its headers are not known"
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$suite" ] || skip "which release of Debian this is can't be told"

source=$out/fio-source/$version
if [ ! -e "$source/config-host.h" ]; then
    work=$out/fio-source/work
    rm -rf "$work"
    mkdir -p "$work/lists/partial"
    # The mirror that the system uses, so that proxies and mirrors in its configuration are respected.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/*$' || true)
    echo "deb-src ${mirror:-http://deb.debian.org/debian} $suite main" >"$work/sources.list"
    fetch() {
        apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
            -o Dir::State::lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
            -o APT::Sandbox::User= "$@"
    }
    (cd "$work" && fetch update && fetch --download-only source "fio=$version") >"$work/log" 2>&1 ||
        skip "apt-get source fio=$version failed: $(tail -n 1 "$work/log")"
    mkdir "$work/source"
    archive=''
    for found in "$work"/fio_*.orig.tar.*; do
        case $found in *.asc) ;; *) archive=$found ;; esac
    done
    tar -xf "$archive" -C "$work/source" --strip-components=1 || skip "the source package could not be unpacked"
    (cd "$work/source" && ./configure) >>"$work/log" 2>&1 || skip "fio's configure failed: see $work/log"
    rm -rf "$source"
    mv "$work/source" "$source"
    rm -rf "$work"
fi

"$root/crates/guasi/link-shared.sh" "$out" "$profile"
gcc -std=gnu11 -Wall -O2 -g -fPIC -shared -D_GNU_SOURCE -include "$source/config-host.h" \
    -I "$source" -I "$root/crates/guasi/include" -o "$out/fio-guasi.so" "$here/fio-guasi.c" \
    "$out/libguasi.a" -Wl,--exclude-libs,ALL -lpthread -lgcc_s
echo "$out/fio-guasi.so"
