#!/bin/sh
# Installs what link-shared.sh has built, and the headers, the manual page and the pkg-config file:
#   crates/guasi/install.sh BUILT PREFIX
# DESTDIR is respected; LIBDIR is PREFIX/lib unless set.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
built=$1
prefix=$2
libdir=${LIBDIR:-$prefix/lib}
to=${DESTDIR:-}

install -d "$to$libdir/pkgconfig" "$to$prefix/include" "$to$prefix/share/man/man3"
install -m 755 "$built/libguasi.so.0.25.0" "$to$libdir/"
ln -sf libguasi.so.0.25.0 "$to$libdir/libguasi.so.0"
ln -sf libguasi.so.0 "$to$libdir/libguasi.so"
install -m 644 "$built/libguasi.a" "$to$libdir/"
install -m 644 "$here/include/guasi.h" "$here/include/guasi_syscalls.h" "$to$prefix/include/"
install -m 644 "$here/man/guasi.3" "$to$prefix/share/man/man3/"
sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" "$here/guasi.pc.in" >"$to$libdir/pkgconfig/guasi.pc"
