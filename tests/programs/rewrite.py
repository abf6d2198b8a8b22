#!/usr/bin/env python3
"""Writes blocks of a file by O_DIRECT, each of them several times, and reads them back: rewrite.py FILE SIZE ROUNDS.

What is read is what was written last: at once, again when all has come to rest, and through descriptors of other kinds.
Says how many reads went wrong; status 1 if any did.
"""

import mmap
import os
import random
import sys
import time

path, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BLOCK = 4096
rng = random.Random(size)
memory, found = mmap.mmap(-1, BLOCK), mmap.mmap(-1, BLOCK)


def wrong(fd, block):
    os.preadv(fd, [found], block * BLOCK)
    return found[:] != bytes([model[block]]) * BLOCK


buffered = os.open(path, os.O_RDWR | os.O_CREAT)
os.pwrite(buffered, b"\1" * size, 0)
os.close(buffered)
model = [1] * (size // BLOCK)
direct = os.open(path, os.O_RDWR | os.O_DIRECT)
at_once = 0
for _ in range(rounds):
    block = rng.randrange(len(model))
    for _ in range(rng.randint(1, 3)):
        model[block] = rng.randrange(2, 250)
        memory[:] = bytes([model[block]]) * BLOCK
        os.pwritev(direct, [memory], block * BLOCK)
    at_once += wrong(direct, block)
os.close(direct)
reader = os.open(path, os.O_RDONLY | os.O_DIRECT)
closed = sum(wrong(reader, block) for block in range(len(model)))
os.close(reader)
buffered = os.open(path, os.O_RDONLY)
through_cache = sum(wrong(buffered, block) for block in range(len(model)))
time.sleep(2)  # as long as a client may hold something back
rest = sum(wrong(buffered, block) for block in range(len(model)))
print(f"wrong: {at_once} at once, {closed} when reopened, {through_cache} through the cache, {rest} for good")
sys.exit(at_once + closed + through_cache + rest > 0)
