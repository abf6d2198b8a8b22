#!/usr/bin/env python3
"""The system calls of calls.c, by Python: as a benchmark in Python makes them, with two readings of the clock a file.

calls.py DIRECTORY FILES FILES_PER_DIRECTORY BYTES
"""

import json
import os
import sys
import time


def main():
    base, (files, per_directory, size) = sys.argv[1], map(int, sys.argv[2:])
    content = b"x" * size

    def path(kind, number, end):
        return f"{base}/thrd000-d{number // per_directory:04}/f{kind}.{number:07}{end}"

    def create(number):
        descriptor = os.open(path("", number, ""), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        if size:
            os.write(descriptor, content)
        os.close(descriptor)

    operations = {
        "create": create,
        "symlink": lambda number: os.symlink(path("", number, ""), path("-symlink", number, "")),
        "rename": lambda number: os.rename(path("", number, ""), path("", number, ".renamed")),
        "delete-renamed": lambda number: os.unlink(path("", number, ".renamed")),
    }
    for directory in range((files + per_directory - 1) // per_directory):
        os.mkdir(f"{base}/thrd000-d{directory:04}")
    rates, times = {}, []
    for name, one in operations.items():
        times.clear()
        began, used = time.monotonic(), time.process_time()
        for number in range(files):
            start = time.time()
            one(number)
            times.append(time.time() - start)
        used = time.process_time() - used
        rates[name] = files / (time.monotonic() - began), used * 1e6 / files
    print(json.dumps(rates))


main()
