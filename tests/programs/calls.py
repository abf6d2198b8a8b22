#!/usr/bin/env python3
"""A file under many kinds of calls at a time, against a model of it in memory: calls.py FILE SEED SEEDS STEPS.

Descriptors with and without O_DIRECT, duplicates, appends, maps, locks, truncation, children: after every step what a
read gives is what the model says. Ends with the file's hash; any difference is status 1 and a line that names it.
"""

import errno
import fcntl
import hashlib
import mmap
import os
import random
import socket
import sys

path, seeds, steps = sys.argv[1], range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])), int(sys.argv[4])
BLOCK = 4096
LIMIT = 96 * BLOCK


def fail(what):
    sys.exit(f"seed {seed}, step {len(history)}: {what}\n" + "\n".join(history[-12:]))


def aligned(size):
    """Memory that O_DIRECT takes."""
    return mmap.mmap(-1, max(size, BLOCK))


def content(size):
    return rng.randbytes(size)


def write_model(offset, data):
    if offset > len(model):
        model.extend(bytes(offset - len(model)))
    model[offset : offset + len(data)] = data


def check(got, offset, size, what):
    want = bytes(model[offset : offset + size])
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        fail(f"{what} of {size} at {offset}: {len(got)} bytes, expected {len(want)}, differs at {offset + at}")


class Files:
    """The open descriptors: (number, whether O_DIRECT)."""

    def __init__(self):
        self.open = []
        self.add(True)
        self.add(False)

    def add(self, direct):
        flags = os.O_RDWR | os.O_CREAT | (os.O_DIRECT if direct else 0)
        self.open.append((os.open(path, flags, 0o644), direct))

    def any(self, direct):
        chosen = [fd for fd, kind in self.open if kind == direct]
        if not chosen:
            self.add(direct)
            return self.open[-1][0]
        return rng.choice(chosen)

    def drop(self):
        if len(self.open) > 2:
            fd, _ = self.open.pop(rng.randrange(len(self.open)))
            os.close(fd)


def direct_write():
    count = rng.randint(1, 8)
    end = len(model) // BLOCK
    # Mostly inside the known size, where it may be spread.
    first = rng.randrange(max(1, end - count + 1)) if rng.random() < 0.8 else rng.randrange(end + 2)
    first = min(first, LIMIT // BLOCK - count)
    memory = aligned(count * BLOCK)
    memory[:] = content(len(memory))
    cut = rng.randint(0, count) * BLOCK if rng.random() < 0.3 else 0
    buffers = [memoryview(memory)[:cut], memoryview(memory)[cut:]] if 0 < cut < len(memory) else [memory]
    done = os.pwritev(files.any(True), buffers, first * BLOCK)
    if done != len(memory):
        fail(f"a direct write of {len(memory)} gave {done}")
    write_model(first * BLOCK, memory[:])
    return f"direct write {first * BLOCK}+{len(memory)}"


def direct_read():
    count = rng.randint(1, 16)
    first = rng.randrange(len(model) // BLOCK + 2)
    memory = aligned(count * BLOCK)
    done = os.preadv(files.any(True), [memory], first * BLOCK)
    check(memory[:done], first * BLOCK, len(memory), "direct read")
    return f"direct read {first * BLOCK}+{len(memory)}"


def buffered_write():
    size = rng.randint(1, 3 * BLOCK)
    offset = rng.randrange(min(len(model), LIMIT - size) + 1)
    data = content(size)
    if os.pwrite(files.any(False), data, offset) != size:
        fail("a short buffered write")
    write_model(offset, data)
    return f"buffered write {offset}+{size}"


def buffered_read():
    size = rng.randint(1, 6 * BLOCK)
    offset = rng.randrange(len(model) + BLOCK)
    check(os.pread(files.any(False), size, offset), offset, size, "buffered read")
    return f"buffered read {offset}+{size}"


def append():
    if len(model) > LIMIT - BLOCK:
        return truncate()
    data = content(rng.randint(1, BLOCK))
    with open(path, "ab") as file:
        file.write(data)
    write_model(len(model), data)
    return f"append {len(data)}"


def truncate():
    size = rng.randrange(LIMIT) if rng.random() < 0.5 else rng.randrange(LIMIT // BLOCK) * BLOCK
    fd = files.any(rng.random() < 0.5)
    os.ftruncate(fd, size)
    if size < len(model):
        del model[size:]
    else:
        model.extend(bytes(size - len(model)))
    return f"truncate {size}"


def allocate():
    offset, size = rng.randrange(LIMIT // 2), rng.randint(1, LIMIT // 2)
    try:
        os.posix_fallocate(files.any(False), offset, size)
    except OSError:
        return "no fallocate here"
    if offset + size > len(model):
        model.extend(bytes(offset + size - len(model)))
    return f"fallocate {offset}+{size}"


def mapped():
    if not model:
        return "nothing to map"
    fd = os.open(path, os.O_RDWR)
    try:
        memory = mmap.mmap(fd, len(model))
    except OSError as error:
        # FUSE with direct I/O maps no file shared.
        if error.errno != errno.ENODEV:
            raise
        os.close(fd)
        return "no shared map here"
    with memory:
        check(memory[:], 0, len(model), "map")
        offset = rng.randrange(len(model))
        data = content(min(rng.randint(1, BLOCK), len(model) - offset))
        memory[offset : offset + len(data)] = data
        memory.flush()
    os.close(fd)
    write_model(offset, data)
    return f"map {offset}+{len(data)}"


def duplicate():
    index = rng.randrange(len(files.open))
    fd, direct = files.open[index]
    kind = rng.randrange(4)
    if kind == 0:
        files.open.append((os.dup(fd), direct))
    elif kind == 1:
        files.open.append((fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100), direct))
    elif kind == 2:
        # Over an open descriptor: what was there is closed, its number is the other file now.
        other = rng.randrange(len(files.open))
        os.dup2(fd, files.open[other][0])
        files.open[other] = (files.open[other][0], direct)
    else:
        # A number that was closed by somebody else's means, and is taken again by a file of another content.
        spare = os.open("/dev/null", os.O_RDONLY)
        os.dup2(fd, spare)
        os.closerange(spare, spare + 1)
        with open("/dev/zero", "rb", buffering=0) as zero:
            if zero.read(4) != bytes(4):
                fail("a number that was closed still reads the old file")
    if len(files.open) > 12:
        files.drop()
    return f"duplicate {kind} of {fd}"


def reopen():
    files.drop()
    files.add(rng.random() < 0.6)
    return "reopen"


def synced():
    fd = files.any(rng.random() < 0.5)
    (os.fsync if rng.random() < 0.5 else os.fdatasync)(fd)
    if os.fstat(fd).st_size != len(model):
        fail(f"size {os.fstat(fd).st_size}, expected {len(model)}")
    return "sync"


def locked():
    fd = files.any(rng.random() < 0.5)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    text = direct_write() if rng.random() < 0.5 else buffered_write()
    fcntl.lockf(fd, fcntl.LOCK_UN)
    return "locked " + text


def child():
    offset, data = rng.randrange(min(len(model), LIMIT - BLOCK) + 1), content(rng.randint(1, BLOCK))
    fd = files.any(False)
    pid = os.fork()
    if pid == 0:
        done = os.pwrite(fd, data, offset)
        os.fsync(fd)
        os._exit(0 if done == len(data) else 1)
    if os.waitpid(pid, 0)[1] != 0:
        fail("the child's write failed")
    write_model(offset, data)
    return f"child {offset}+{len(data)}"


def passed():
    """A descriptor that comes back through a socket."""
    fd = files.any(True)
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"x"], [fd])
    received = socket.recv_fds(theirs, 1, 1)[1][0]
    ours.close(), theirs.close()
    if len(files.open) < 12:
        files.open.append((received, True))
    else:
        os.close(received)
    return "passed through a socket"


def copied():
    size = min(len(model), rng.randint(1, 4 * BLOCK))
    offset = rng.randrange(len(model) - size + 1)
    target = os.open(path + ".copy", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    fd = files.any(False)
    # One draw for a step: a kernel that copies in other parts must not lead to other steps.
    by_range = rng.random() < 0.5
    done = 0
    while done < size:
        part = (
            os.copy_file_range(fd, target, size - done, offset + done, done)
            if by_range
            else os.sendfile(target, fd, offset + done, size - done)
        )
        if part == 0:
            break
        os.lseek(target, done + part, os.SEEK_SET)
        done += part
    check(os.pread(target, size, 0), offset, size, "copy")
    os.close(target)
    return f"copy {offset}+{size}"


def renamed():
    """The name goes to another file, and back: descriptors keep theirs, new ones get what is there."""
    files.any(True), files.any(False)
    with open(path + ".other", "wb") as other:
        other.write(b"another file\n")
    os.rename(path, path + ".kept")
    os.rename(path + ".other", path)
    with open(path, "rb", buffering=0) as other:
        if other.read(64) != b"another file\n":
            fail("the name leads to the old file")
    text = direct_read() + ", " + buffered_read()
    os.rename(path + ".kept", path)
    return "renamed: " + text


STEPS = [
    (direct_write, 30),
    (direct_read, 30),
    (buffered_write, 8),
    (buffered_read, 10),
    (append, 4),
    (truncate, 3),
    (allocate, 2),
    (mapped, 2),
    (duplicate, 8),
    (reopen, 4),
    (synced, 6),
    (locked, 2),
    (child, 1),
    (passed, 2),
    (copied, 3),
    (renamed, 1),
]
for seed in seeds:
    rng, model, history = random.Random(seed), bytearray(), []
    if os.path.exists(path):
        os.unlink(path)
    files = Files()
    # Which kinds of steps come at all differs from seed to seed: a sticky fallback must not hide what comes after it.
    kinds = [(step, weight) for step, weight in STEPS if weight >= 10 or rng.random() < 0.5]
    for _ in range(steps):
        step = rng.choices([step for step, _ in kinds], [weight for _, weight in kinds])[0]
        history.append(f"{step.__name__} ...")
        history[-1] = step()
    for fd, _ in files.open:
        os.fsync(fd)
    for fd, _ in files.open:
        os.close(fd)
    with open(path, "rb") as file:
        check(file.read(), 0, LIMIT * 2, "the whole file")
    done = sorted({entry.split()[0] for entry in history})
    print(seed, len(model), hashlib.sha256(model).hexdigest(), *done)
