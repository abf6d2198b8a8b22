#!/bin/sh
# Builds libguasi.so.0 (soname, symbol versions) and libguasi.a:
#   crates/guasi/link-shared.sh DIRECTORY [dev|release]
# Cargo makes the code; the last step is the system linker's, because a cdylib can't carry symbol versions.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$1
profile=${2:-release}
target=${CARGO_TARGET_DIR:-$root/target}/c-abi

CARGO_TARGET_DIR=$target ${CARGO:-cargo} rustc --quiet --locked --manifest-path "$root/Cargo.toml" -p guasi \
    --profile "$profile" --features c-abi --crate-type staticlib
case $profile in dev) built=$target/debug ;; *) built=$target/$profile ;; esac

mkdir -p "$out"
${CC:-cc} -shared -o "$out/libguasi.so.0.25.0.new" \
    -Wl,-soname,libguasi.so.0 -Wl,--version-script="$here/guasi.map" -Wl,--gc-sections -Wl,-z,now -Wl,-z,relro \
    -Wl,--whole-archive "$built/libguasi.a" -Wl,--no-whole-archive -lgcc_s -lpthread -ldl -lc
mv "$out/libguasi.so.0.25.0.new" "$out/libguasi.so.0.25.0"
ln -sf libguasi.so.0.25.0 "$out/libguasi.so.0"
ln -sf libguasi.so.0 "$out/libguasi.so"
cp "$built/libguasi.a" "$out/libguasi.a"
