#!/usr/bin/env python3
"""Writes to a file, syncs it, and says what is durable from then on: acknowledge.py FILE buffered|direct|both|aio.

After each fsync, fdatasync or O_DSYNC write, a line with the file's size and its POSIX cksum; goes on at a line of input.
"""

import mmap
import os
import subprocess
import sys

path, way = sys.argv[1:]
SIZE = 256 * 1024
BLOCK = 16 * 1024
model = bytearray(SIZE)


def block(number):
    memory = mmap.mmap(-1, BLOCK)
    memory[:] = bytes([number % 251 + 1]) * BLOCK
    return memory


fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, SIZE)
direct = os.open(path, os.O_RDWR | os.O_DIRECT)
for turn in range(1000):
    for part in range(8):
        number = turn * 8 + part
        offset = number * 5 % 16 * BLOCK
        data = block(number)
        if way == "aio":
            # Each batch has a process that syncs nothing; this program syncs.
            if part == 0:
                subprocess.run(
                    [
                        "fio",
                        "--name=f",
                        f"--filename={path}",
                        f"--size={SIZE}",
                        "--rw=randwrite",
                        "--bs=16k",
                        "--iodepth=8",
                        "--ioengine=libaio",
                        "--direct=1",
                        "--thread",
                        "--overwrite=1",
                        "--minimal",
                        f"--randseed={turn + 1}",
                        f"--buffer_pattern=0x{turn % 200 + 17:02x}",
                    ],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    cwd=os.getcwd(),
                )
                model[:] = bytes([turn % 200 + 17]) * SIZE
            continue
        use = direct if way == "direct" or way == "both" and part % 2 else fd
        if os.pwritev(use, [data], offset) != BLOCK:
            sys.exit("a short write")
        model[offset : offset + BLOCK] = data[:]
    if turn % 3 == 2:
        os.fdatasync(direct if way == "direct" else fd)
    else:
        os.fsync(direct if way in ("direct", "aio") else fd)
    done = subprocess.run(["cksum"], input=bytes(model), stdout=subprocess.PIPE, check=True)
    print(SIZE, done.stdout.split()[0].decode(), flush=True)
    if not sys.stdin.readline():
        break
