#!/usr/bin/env python3
"""What libiotrap.so costs where I/O costs next to nothing: reads of 4 KiB from memory, and starting a program.

Where nothing is spread it has bars to keep: 60 ns a request of libaio, 1 % of a pread, 2 ms of a start. What is spread pays
for being counted, chosen for and recorded, and gets its lanes for that: the figure is there, without a bar.

    bench/iotrap/overhead.py [--library target/release/libiotrap.so] [--pairs 21] [--milliseconds 200]

Four bind mounts of a tmpfs in a mount namespace (needs root). Both sides in turns; medians, and the median of the paired
differences or ratios with their quartiles. Appends the result to bench/iotrap/overhead.md.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def quartiles(samples):
    low, middle, high = statistics.quantiles(samples, n=4)
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=ROOT / "target/release/libiotrap.so")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--milliseconds", type=int, default=200)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    library = options.library.resolve()
    if not library.exists():
        sys.exit(f"{library} is not there: cargo build --release -p iotrap, or give --library")
    if options.inside:
        measure(options, library, options.inside)
        return
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["cc", "-O2", "-o", f"{place}/overhead", ROOT / "bench/iotrap/overhead.c", "-laio"], check=True)
        script = """cd "$0"; mkdir volume lane0 lane1 lane2 lane3; mount -t tmpfs tmp volume
            for lane in 0 1 2 3; do mount --bind volume lane$lane; done
            head -c 16M /dev/urandom > volume/file; cp volume/file volume/outside; exec "$@" """
        arguments = [
            sys.executable,
            __file__,
            "--library",
            str(library),
            "--inside",
            place,
            "--pairs",
            str(options.pairs),
            "--milliseconds",
            str(options.milliseconds),
        ]
        sys.exit(subprocess.run(["unshare", "--mount", "sh", "-ec", script, place, *arguments]).returncode)


def measure(options, library, place):
    lanes = ",".join(str(place / f"lane{lane}") for lane in range(4))
    environment = dict(os.environ) | {"LD_PRELOAD": str(library), "IOTRAP_MOUNT_POOLS": f"p:{lanes}"}

    def call(trapped, *arguments):
        done = subprocess.run(
            [place / "overhead", *map(str, arguments), str(options.milliseconds)],
            capture_output=True,
            text=True,
            env=environment if trapped else None,
        )
        if done.returncode:
            sys.exit(done.stderr)
        return float(done.stdout)

    def start(trapped):
        begun, count = time.perf_counter(), 20
        for _ in range(count):
            subprocess.run(["/bin/true"], env=environment if trapped else None)
        return (time.perf_counter() - begun) / count * 1e9

    def pairs(side):
        found = []
        for pair in range(options.pairs):
            order = (False, True) if pair % 2 == 0 else (True, False)
            values = {trapped: side(trapped) for trapped in order}
            found.append((values[False], values[True]))
        return found

    inside, outside = place / "lane0/file", place / "volume/outside"
    rows = [
        ("libaio, a file of no pool, batches of 32", lambda t: call(t, "aio", outside, 1, 32), "ns", 60),
        ("libaio, a file of no pool, one at a time", lambda t: call(t, "aio", outside, 1, 1), "ns", 60),
        ("libaio, a buffered file of the pool, batches of 32", lambda t: call(t, "aio", inside, 0, 32), "ns", 60),
        ("libaio, spread over four lanes, batches of 32", lambda t: call(t, "aio", inside, 1, 32), "ns", None),
        ("libaio, spread over four lanes, one at a time", lambda t: call(t, "aio", inside, 1, 1), "ns", None),
        ("pread, page cache, a file of no pool", lambda t: call(t, "psync", outside, 0, 1), "%", 1),
        ("pread, page cache, a buffered file of the pool", lambda t: call(t, "psync", inside, 0, 1), "%", 1),
        ("pread, O_DIRECT, spread over four lanes", lambda t: call(t, "psync", inside, 1, 1), "ns", None),
        ("starting /bin/true", start, "us", 2000),
    ]
    lines = [
        f"\n## Linux {platform.release().partition('-')[0]}, {os.cpu_count()} processors\n",
        f"tmpfs, {options.pairs} pairs of {options.milliseconds} ms, medians and quartiles:\n",
        "| call | plain, ns | trapped, ns | more | bar |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    print("\n".join(lines), flush=True)
    for name, side, unit, bar in rows:
        found = pairs(side)
        plain, trapped = (statistics.median(pair[index] for pair in found) for index in (0, 1))
        scale = {"ns": lambda p, t: t - p, "us": lambda p, t: (t - p) / 1000, "%": lambda p, t: (t / p - 1) * 100}[unit]
        more = [scale(*pair) for pair in found]
        verdict = "" if bar is None else f"{bar} {unit} {'holds' if statistics.median(more) <= bar else 'MISSED'}"
        line = f"| {name} | {plain:,.0f} | {trapped:,.0f} | {quartiles(more)} {unit} | {verdict} |"
        print(line, flush=True)
        lines.append(line)
    with open(Path(__file__).with_suffix(".md"), "a", encoding="utf-8") as record:
        record.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
