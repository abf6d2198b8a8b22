#!/usr/bin/env python3
"""The cost of `plimsoll watch` at many devices: a tree of /proc and /sys whose disks all work, and the CPU time that
`watch` takes to show it.

    cargo build --release && bench/watch.py [--devices 1000] [--seconds 60] [--interval 1] [--idle]

The counters of every disk change once an interval, so that each interval computes every rate and enters the record of
the passive load line. Prints the part of one processor that intervals of a second take, for the table and for --json.
A shorter --interval fills the record of 3,600 intervals sooner, from which `watch` estimates the load line.
"""

import argparse
import os
import random
import resource
import subprocess
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def write(path, text):
    with open(path + ".new", "w") as out:
        out.write(text)
    os.rename(path + ".new", path)


def diskstats(counters):
    line = "   8 {} sd{:04} {} 0 {} {} {} 0 {} {} 3 {} {} 0 0 0 0 0 0\n"
    return "".join(line.format(number, number, *values) for number, values in enumerate(counters))


def advance(counters, randoms):
    """A second of a disk with a depth of its own that wanders: up to 32 requests of 0.5 ms in flight."""
    for values in counters:
        reads = randoms.randrange(200, 2000)
        writes = randoms.randrange(50, 500)
        milliseconds = (reads + writes) // 2 * randoms.randrange(1, 8)
        steps = (reads, reads * 8, milliseconds // 2, writes, writes * 8, milliseconds // 2, 900, milliseconds)
        for index, step in enumerate(steps):
            values[index] = (values[index] + step) % (1 << 32)


def cost(arguments, options, root, counters):
    """The part of a processor that `watch` takes while the counters advance."""
    done = threading.Event()

    def work():
        randoms = random.Random(1)
        while not done.wait(options.interval):
            if not options.idle:
                advance(counters, randoms)
                write(f"{root}/proc/diskstats", diskstats(counters))

    worker = threading.Thread(target=work)
    worker.start()
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [options.program, "watch", "--sysroot", root, "--for", f"{options.seconds}s"]
    command += ["--interval", f"{options.interval * 1000:.0f}ms", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    done.set()
    worker.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / took * options.interval


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default=os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target") + "/release/plimsoll")
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--idle", action="store_true", help="the counters stand still")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(f"{root}/proc/self")
        write(f"{root}/proc/self/mountstats", "")
        for number in range(options.devices):
            os.makedirs(f"{root}/sys/block/sd{number:04}")
        counters = [[1000, 8000, 500, 100, 800, 50, 900, 900] for _ in range(options.devices)]
        write(f"{root}/proc/diskstats", diskstats(counters))
        state = "idle" if options.idle else "busy"
        for name, arguments in ("table", []), ("--json", ["--json"]):
            part = cost(arguments, options, root, counters)
            intervals = round(options.seconds / options.interval)
            print(
                f"{options.devices} {state} devices, {intervals} intervals, {name}: {part:.2%} of a processor",
                flush=True,
            )


if __name__ == "__main__":
    main()
