#!/usr/bin/env bash
# dd, cp, rsync, tar, fallocate, shred, gzip, sort and git copy and change files; prints sums of all contents.
set -euo pipefail
case $1 in packages) echo rsync git; exit ;; sources | build) exit ;; esac
sums() { sha256sum "$@" | cut -c1-64; }
seq 400000 | head -c 2777088 > source
dd if=source of=a bs=64k oflag=direct iflag=direct status=none && sums a
dd if=source of=a bs=4k oflag=direct conv=notrunc seek=3 status=none && sums a
dd if=a of=b bs=128k iflag=direct status=none && cmp a b
cp --reflink=auto a c
cp --sparse=always a e
cp --reflink=always a d 2> /dev/null && echo "reflinks" || echo "no reflinks"
sums c e
mkdir t
for i in $(seq 40); do head -c $((i * 3001)) source > "t/$i"; done
cp -a t u && rsync -a --checksum t/ v/ && rsync -a --inplace --no-whole-file a v/
diff -r t u && sums v/*
tar -cf x.tar t a && mkdir y && tar -xf x.tar -C y && diff -r t y/t && sums y/a
fallocate -p -o 65536 -l 131072 a && fallocate -z -o 300000 -l 5000 a && fallocate -d e && sums a e
git init -q g
cp t/* g
git -C g add -A && git -C g -c user.name=a -c user.email=b commit -qm x && git -C g gc -q
git -C g fsck --no-progress 2>&1 && git -C g rev-parse 'HEAD^{tree}' && git -C g status --short
shred -n1 -z b && truncate -s 100000 c && sums b c
gzip -k a && zcat a.gz | sha256sum
sort -r -S 100k --parallel=4 source | sha256sum
ln a h && mv c c2 && rm a && sums h c2
