#!/usr/bin/env python3
"""A lock is a fence: what becomes of it when the requests of its holder take another lane. fence.py LANE0 LANE1 LANE2.

The holder locks a file by lane 0 and writes it by lane 1, which stands still for a while. It gives the lock back; the
next holder locks the file by lane 2 and writes it. Prints whether the first holder waited for its write, whether locks
forbid reads or writes by other lanes, and whose data the next holder finds, while it still holds the lock.
"""

import fcntl
import mmap
import os
import subprocess
import sys
import threading
import time

lanes = sys.argv[1:4]
BLOCK = 4096


def block(letter):
    memory = mmap.mmap(-1, BLOCK)
    memory[:] = letter * BLOCK
    return memory


def lane(verb):
    subprocess.run(["lane", verb, lanes[1].rsplit("v")[-1]], check=True)


with open(f"{lanes[0]}/fenced", "wb") as file:
    file.write(b"a" * BLOCK)
first, beside, following = (os.open(f"{lane}/fenced", os.O_RDWR | os.O_DIRECT) for lane in lanes)
fcntl.lockf(first, fcntl.LOCK_EX)
print("by another lane, while the file is locked:", end=" ")
print("read", os.preadv(beside, [block(b"-")], 0), "written", os.pwritev(beside, [block(b"b")], 0))
lane("freeze")
ended = []
writer = threading.Thread(target=lambda: ended.append(os.pwritev(beside, [block(b"X")], 0)))
writer.start()
time.sleep(1)  # the write is under way
fcntl.lockf(first, fcntl.LOCK_UN)
print("the lock was given back", "after" if ended else "before", "the write had ended")
fcntl.lockf(following, fcntl.LOCK_EX)
os.pwritev(following, [block(b"N")], 0)
lane("thaw")
writer.join()
found = block(b"-")
os.preadv(following, [found], 0)
print("the next holder wrote N and finds", found[:1].decode())
