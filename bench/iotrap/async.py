#!/usr/bin/env python3
"""fio's libaio on a buffered, cold file: as it is, and under libiotrap.so with IOTRAP_ASYNC=1.

    bench/iotrap/async.py [--library target/release/libiotrap.so] [--repeats 5] [--megabytes 512] [--depths 1,8,100,1000]

The two sides in turns, the page cache dropped before every run (needs root); medians of IOPS, and of the paired ratios
with their range. Then writes that allocate, and what the library costs where it has nothing to do: O_DIRECT reads, which stay
with the kernel, and psync reads from the page cache. Appends the result to bench/iotrap/async.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BAR_DEPTH, BAR = 100, 3.0


def run(arguments, library, drop):
    if drop:
        os.sync()
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
        except OSError as error:
            sys.exit(f"bench/iotrap/async.py: the page cache cannot be dropped: {error} (run it as root)")
    environment = dict(os.environ)
    if library:
        environment |= {"LD_PRELOAD": str(library), "IOTRAP_ASYNC": "1"}
    done = subprocess.run(["fio", *arguments, "--output-format=json"], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"fio {' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    return job["read"]["iops"] + job["write"]["iops"], job["usr_cpu"] + job["sys_cpu"]


def pairs(arguments, library, repeats, drop):
    samples = []
    for repeat in range(repeats):
        sides = [None, library] if repeat % 2 == 0 else [library, None]
        found = {bool(side): run(arguments, side, drop) for side in sides}
        samples.append((found[False], found[True]))
    ratios = sorted(trapped[0] / plain[0] for plain, trapped in samples)
    median = [statistics.median(sample[side][0] for sample in samples) for side in (0, 1)]
    return median, statistics.median(ratios), ratios[0], ratios[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=ROOT / "target/release/libiotrap.so")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--depths", default="1,8,100,1000")
    options = parser.parse_args()
    library = options.library.resolve()
    if not library.exists():
        sys.exit(f"{library} is not there: cargo build --release -p iotrap, or give --library")
    version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    lines = [
        f"\n## {version}, Linux {platform.release().partition('-')[0]}, {os.cpu_count()} processors\n",
        f"File of {options.megabytes} MiB, median of {options.repeats}:\n",
        "| job | plain IOPS | asynchronous IOPS | ratio (least to most) | bar |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    print("\n".join(lines), flush=True)

    def report(name, result, bar=None):
        (plain, trapped), middle, least, most = result
        verdict = "" if bar is None else f"{bar}x {'holds' if middle >= bar else 'MISSED'}"
        line = f"| {name} | {plain:,.0f} | {trapped:,.0f} | {middle:.2f} ({least:.2f} to {most:.2f}) | {verdict} |"
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory(dir=ROOT / "target") as scratch:
        path = Path(scratch) / "data"
        with open(path, "wb") as data:
            for _ in range(options.megabytes):
                data.write(os.urandom(1 << 20))
            data.flush()
            os.fsync(data.fileno())
        common = [
            "--name=j",
            f"--filename={path}",
            f"--size={options.megabytes}m",
            "--bs=4k",
            "--thread",
            "--randrepeat=0",
        ]
        for depth in (int(depth) for depth in options.depths.split(",")):
            # A shallow queue takes its time: fewer reads give the same figure.
            amount = options.megabytes // (8 if depth < 100 else 4)
            arguments = [*common, "--rw=randread", "--ioengine=libaio", f"--iodepth={depth}", f"--io_size={amount}m"]
            report(
                f"cold reads, depth {depth}",
                pairs(arguments, library, options.repeats, True),
                BAR if depth == BAR_DEPTH else None,
            )
        arguments = [
            *common,
            "--rw=randwrite",
            "--ioengine=libaio",
            "--iodepth=100",
            f"--io_size={options.megabytes // 4}m",
            "--direct=1",
            "--fallocate=none",
            f"--filename={scratch}/new",
        ]
        report("O_DIRECT writes that allocate, depth 100", pairs(arguments, library, options.repeats, True))
        arguments = [
            *common,
            "--rw=randread",
            "--ioengine=libaio",
            "--iodepth=32",
            "--direct=1",
            "--time_based",
            "--runtime=2",
        ]
        report("O_DIRECT reads, left to the kernel, depth 32", pairs(arguments, library, options.repeats, False))
        arguments = [*common, "--rw=randread", "--ioengine=psync", "--time_based", "--runtime=2"]
        report("psync from the page cache, not intercepted", pairs(arguments, library, options.repeats, False))
    with open(Path(__file__).with_suffix(".md"), "a", encoding="utf-8") as record:
        record.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
