#!/usr/bin/env python3
"""Plimsoll on a Gluster volume against fio and gfapi_perf_tool, interleaved in one run.

    rigs/gluster-volume.sh bench/gluster/run.py [--repeats 5] [--runtime 3] [CASE...]

Needs fio with the engines gfapi and gfapi_async (Debian's has them; `fio --enghelp` tells). gfapi_perf_tool is measured
if PERF_TOOL names its program; its rates on this rig's kind of machine stand in the table of bars otherwise. Prints,
per case, the median of each side and the median of the paired ratios with their range; ratios count, absolutes do not.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PLIMSOLL = os.environ.get("PLIMSOLL", os.path.join(HERE, "../../target/release/plimsoll"))
SERVER, MOUNT = os.environ.get("GLUSTER_SERVER"), os.environ.get("GLUSTER_MOUNTS", "") + "/1"
LOCAL = os.environ.get("GLUSTER_LOCAL")


def output(command, **environment):
    done = subprocess.run(command, cwd=LOCAL, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def block(program, engine, runtime):
    """MiB/s of 64 KiB random reads at depth 16."""
    ways = {
        "gfapi": ["--ioengine=gfapi", "--volume=gv0", f"--brick={SERVER}", "--filename=block"],
        "gfapi_async": ["--ioengine=gfapi_async", "--volume=gv0", f"--brick={SERVER}", "--filename=block"],
        "fuse": ["--ioengine=libaio", "--direct=1", f"--filename={MOUNT}/block"],
    }
    common = ["--name=j", "--rw=randread", "--bs=64k", "--size=256m", "--iodepth=16", "--time_based", "--norandommap"]
    text = output([*program, *common, f"--runtime={runtime}", *ways[engine], "--output-format=json"])
    return json.loads(text[text.index("{") :])["jobs"][0]["read"]["bw_bytes"] / 2**20


def creates(way, threads=1, program=None):
    """files/s of 4 KiB creates, as gfapi_perf_tool measures them: by its own lines."""
    directory = f"/creates-{os.getpid()}-{creates.count}"
    creates.count += 1
    os.mkdir(MOUNT + directory)
    environment = {
        "GFAPI_VOLNAME": "gv0",
        "GFAPI_HOSTNAME": SERVER,
        "GFAPI_FILES": "1000",
        "GFAPI_FSZ": "4k",
        "GFAPI_LOAD": "seq-wr",
        "GFAPI_THREADS_PER_PROC": str(threads),
        "GFAPI_FUSE": str(int(way == "fuse")),
        "GFAPI_BASEDIR": (MOUNT if way == "fuse" else "") + directory,
    }
    text = output(program or [PLIMSOLL, "gfapi_perf_tool"], **environment)
    return float(re.findall(r"file rate\s*=\s*([\d.]+)", text)[-1])


creates.count = 0


def four(how):
    """files/s of 4 KiB creates by four threads: in one process, on one connection; or in four, with four."""
    directory = f"/four-{os.getpid()}-{creates.count}"
    creates.count += 1
    os.mkdir(MOUNT + directory)
    before, brick = processors(), brick_ns()
    text = output(
        [
            PLIMSOLL,
            "files",
            "--json",
            "--fs",
            f"gluster://{SERVER}/gv0",
            "--dir",
            directory,
            "--op",
            "create",
            "--files",
            "1000",
            "--size",
            "4k",
            *how,
        ]
    )
    after = processors()
    busy, idle = (b - a for a, b in zip(before, after))
    four.busy.append(busy / (busy + idle))
    four.brick.append((brick_ns() - brick) / 1e9 * os.sysconf("SC_CLK_TCK") / (busy + idle))
    phase = json.loads(text)["phases"][0]
    return phase["total"]["files"] * 1e9 / phase["runtime_ns"]


four.busy, four.brick = [], []


def processors():
    """Ticks that all processors of this machine were busy and idle."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], ticks[3] + ticks[4]


def brick_ns():
    """Nanoseconds of processor time of the brick's process."""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as line:
                words = line.read().split(b"\0")
            if words[0].endswith(b"glusterfsd") and os.fsencode(os.environ["GLUSTER_BRICKS"] + "/1") in words:
                with open(f"/proc/{name}/stat", encoding="ascii") as stat:
                    user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
                return (int(user) + int(system)) * 1e9 / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            continue
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runtime", type=int, default=3)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only cases that have one of these words")
    given = parser.parse_args()
    if not SERVER:
        sys.exit("run me inside a rig: rigs/gluster-volume.sh bench/gluster/run.py")
    ours, fio = [PLIMSOLL, "run"], ["fio"]
    tool = os.environ.get("PERF_TOOL")
    cases = [
        (
            "64k random reads, depth 16: gfapi / fio gfapi",
            1.2,
            "MiB/s",
            lambda: block(ours, "gfapi", given.runtime),
            lambda: block(fio, "gfapi", given.runtime),
        ),
        (
            "the same / fio gfapi_async",
            1.0,
            "MiB/s",
            lambda: block(ours, "gfapi", given.runtime),
            lambda: block(fio, "gfapi_async", given.runtime),
        ),
        (
            "the same / fio libaio through FUSE",
            None,
            "MiB/s",
            lambda: block(ours, "gfapi", given.runtime),
            lambda: block(fio, "fuse", given.runtime),
        ),
        (
            "4 KiB creates, four threads in one process / one thread, gfapi",
            None,
            "files/s",
            lambda: creates("gfapi", 4),
            lambda: creates("gfapi"),
        ),
        (
            "4 KiB creates, four threads in one process / four processes with a connection each",
            0.95,
            "files/s",
            lambda: four(["--threads", "4"]),
            lambda: four(["--processes", "4"]),
        ),
        ("4 KiB creates, gfapi / FUSE", None, "files/s", lambda: creates("gfapi"), lambda: creates("fuse")),
    ]
    if tool:
        cases += [
            (
                f"4 KiB creates, one thread, {way} / gfapi_perf_tool",
                1.0,
                "files/s",
                lambda way=way: creates(way),
                lambda way=way: creates(way, program=[tool]),
            )
            for way in ("gfapi", "fuse")
        ]
    print("| case | ours | theirs | ratio (range) | bar |\n|---|---|---|---|---|")
    for name, bar, unit, a, b in cases:
        if given.cases and not any(word in name for word in given.cases):
            continue
        pairs = [(a(), b()) for _ in range(given.repeats)]
        ratios = sorted(x / y for x, y in pairs)
        medians = [statistics.median(side) for side in zip(*pairs)]
        print(
            f"| {name} | {medians[0]:,.0f} {unit} | {medians[1]:,.0f} {unit} | {statistics.median(ratios):.2f}"
            f" ({ratios[0]:.2f} .. {ratios[-1]:.2f}) | {bar or ''} |",
            flush=True,
        )
    if four.busy:
        print(
            f"\nWhile four threads made files, this machine's {os.cpu_count()} processors were busy for"
            f" {statistics.median(four.busy):.0%} of the time, the brick's process for {statistics.median(four.brick):.0%}."
        )


if __name__ == "__main__":
    main()
