#!/usr/bin/env python3
"""Plimsoll against fio, the same job, interleaved A B A B in one run.

    bench/versus_fio.py [--plimsoll PATH] [--fio PATH] [--repeats 5] [CASE...]

Random reads take each block once per pass on both sides, as is fio's default: with norandommap fio repeats one draw of
blocks, touches 63 % of the file, and the two would not read the same amount of memory.

Prints, per case, the median of each side and the median of the paired ratios with their range, and appends
them with both command lines to bench/versus_fio.md. Absolute figures mean nothing on another machine; ratios do.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

CASES = {
    # name: (the figure that counts, its bar, options common to both)
    "null": ("iops", 3.0, "--ioengine=null --rw=randread --bs=4k --size=64g --iodepth=32 --runtime=3 --time_based"),
    "io_uring-page-cache": (
        "iops",
        1.4,
        "--ioengine=io_uring --rw=randread --bs=4k --size=256m --filename={cached} --iodepth=32 --iodepth_batch=16"
        " --iodepth_batch_complete_min=16 --fixedbufs --registerfiles --invalidate=0 --runtime=3 --time_based",
    ),
    "psync-page-cache": (
        "iops",
        1.2,
        "--ioengine=psync --rw=randread --bs=4k --size=256m --filename={cached} --invalidate=0"
        " --runtime=3 --time_based",
    ),
    "disk-direct": (
        "iops",
        0.97,
        "--ioengine=io_uring --rw=randread --bs=4k --size=1g --filename={disk} --direct=1 --iodepth=32 --runtime=5 --time_based",
    ),
}


def figures(program, arguments):
    """IOPS and CPU percent (user plus system) of one run."""
    command = [*program, *arguments, "--output-format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    job = json.loads(done.stdout)["jobs"][0]
    return {"iops": job["read"]["iops"], "cpu": job["usr_cpu"] + job["sys_cpu"]}


def fill(path, size):
    """A file of incompressible data, in the page cache."""
    with open(path, "wb") as out:
        for _ in range(size >> 20):
            out.write(os.urandom(1 << 20))
        out.flush()
        os.fsync(out.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("CARGO_TARGET_DIR", "target") + "/release/plimsoll")
    parser.add_argument("--fio", default="fio")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    version = subprocess.run([options.fio, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    lines = [f"\n## {version} on {platform.release().partition('-')[0]}, {os.cpu_count()} processors\n"]
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        places = {"cached": f"{scratch}/cached", "disk": f"{scratch}/disk"}
        fill(places["cached"], 256 << 20)
        fill(places["disk"], 1 << 30)
        for name in options.cases or CASES:
            figure, bar, text = CASES[name]
            arguments = [f"--name={name}", *text.format(**places).split()]
            ours, theirs, ratios = [], [], []
            for _ in range(options.repeats):
                theirs.append(figures([options.fio], arguments))
                ours.append(figures([options.plimsoll, "run"], arguments))
                ratios.append(ours[-1][figure] / theirs[-1][figure])
            median = {
                side: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                for side, runs in (("ours", ours), ("theirs", theirs))
            }
            verdict = "holds" if statistics.median(ratios) >= bar else "MISSED"
            line = (
                f"{name}: {statistics.median(ratios):.2f}x ({min(ratios):.2f} .. {max(ratios):.2f}), bar {bar}x {verdict};"
                f" iops {median['ours']['iops']:.0f} against {median['theirs']['iops']:.0f},"
                f" cpu {median['ours']['cpu']:.0f} % against {median['theirs']['cpu']:.0f} %"
            )
            print(line, flush=True)
            lines.append(f"- {line}\n  `{text}`\n")
    with open(os.path.join(os.path.dirname(__file__), "versus_fio.md"), "a", encoding="utf-8") as record:
        record.writelines(lines)


if __name__ == "__main__":
    main()
