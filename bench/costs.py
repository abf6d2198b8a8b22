#!/usr/bin/env python3
"""Start-up, resident memory and sizes of the programs, beside fio.

    bench/costs.py [--plimsoll PATH] [--fio fio] [--iotrap PATH] [--repeats 21]

Runs of both programs take turns. Times are from fork to the end of the process, medians and ranges; memory is the most that was
resident, of the process or of all of fio's processes together as their shares of it (Pss); sizes are those of stripped copies.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

NULL = ["--name=a", "--ioengine=null", "--size=1g", "--rw=randread", "--norandommap"]
CLONES = [*NULL, "--iodepth=32", "--numjobs=64", "--time_based", "--runtime=3", "--group_reporting", "--thread"]


def run_ms(command, directory):
    began = time.monotonic()
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    return (time.monotonic() - began) * 1e3


def family(pid):
    """A process and its descendants."""
    try:
        children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    except OSError:
        children = []
    return [pid, *(one for child in children for one in family(child))]


def pss_mib(pid):
    total = 0
    for one in family(pid):
        try:
            lines = open(f"/proc/{one}/smaps_rollup").read().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def most_mib(command, directory):
    """The most memory of a command and its children, looked at ten times a second."""
    most, process = 0, subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, pss_mib(process.pid))
        time.sleep(0.1)
    return most


def stripped_mb(path, directory):
    copy = os.path.join(directory, "stripped")
    subprocess.run(["strip", "-o", copy, path], check=True)
    return os.path.getsize(copy) / 1e6


def preloaded_kib(library):
    """The resident memory of cat(1), with the library or without."""
    environment = {**os.environ, "IOTRAP_MOUNT_POOLS": "p:/tmp/,/var/tmp/"}
    if library:
        environment["LD_PRELOAD"] = library
    shown = subprocess.run(
        ["cat", "/proc/self/smaps_rollup"], env=environment, capture_output=True, text=True, check=True
    )
    fields = dict(line.split()[:2] for line in shown.stdout.splitlines()[1:])
    return int(fields["Rss:"]), int(fields["Anonymous:"])


def tell(what, values):
    low, high = min(values), max(values)
    return f"{statistics.median(values):.1f} ({low:.1f} to {high:.1f}) {what}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="target/release/plimsoll")
    parser.add_argument("--iotrap", default="target/release/libiotrap.so")
    parser.add_argument("--fio", default="fio")
    parser.add_argument("--repeats", type=int, default=21)
    arguments = parser.parse_args()
    plimsoll, fio = os.path.abspath(arguments.plimsoll), shutil.which(arguments.fio)
    iotrap = os.path.abspath(arguments.iotrap)
    with tempfile.TemporaryDirectory() as directory:
        small = ["--name=a", "--size=4k", "--rw=write", "--filename=small"]
        times = {
            "`--version`": ([plimsoll, "--version"], [fio, "--version"]),
            "a run of 4 KiB": ([plimsoll, "run", *small], [fio, *small]),
        }
        print("| cost | Plimsoll | fio |\n| --- | --- | --- |")
        for name, pair in times.items():
            rows = ([], [])
            for _ in range(arguments.repeats):
                for row, command in zip(rows, pair):
                    row.append(run_ms(command, directory))
            print(f"| {name} | {tell('ms', rows[0])} | {tell('ms', rows[1])} |", flush=True)
        rows = ([], [])
        for _ in range(3):
            for row, command in zip(rows, ([plimsoll, "run", *CLONES], [fio, *CLONES])):
                row.append(most_mib(command, directory))
        print(f"| 64 clones at depth 32 | {tell('MiB', rows[0])} | {tell('MiB', rows[1])} |")
        print(
            f"| the program, stripped | {stripped_mb(plimsoll, directory):.1f} MB | {stripped_mb(fio, directory):.1f} MB |"
        )
        print(f"| libiotrap.so, stripped | {stripped_mb(iotrap, directory):.1f} MB | - |")
        (with_kib, with_own), (kib, own) = preloaded_kib(iotrap), preloaded_kib(None)
        more, more_own = with_kib - kib, with_own - own
        print(f"| a program with libiotrap.so: more resident memory | {more} KiB, {more_own} of them anonymous | - |")


if __name__ == "__main__":
    main()
