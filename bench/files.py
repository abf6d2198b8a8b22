#!/usr/bin/env python3
"""`plimsoll files` against fio's filecreate, filestat and filedelete engines, and against smallfile.

    bench/files.py [--plimsoll PATH] [--fio PATH] [--smallfile PATH] [--repeats 5] [--dir DIR]... [CASE...]
    bench/files.py calls

Sides are interleaved (A B A B) on the same directory; each run makes its own files. By default DIR is a tmpfs
(/dev/shm) and the disk that the project lies on. Prints the medians and the median of the paired ratios with their
range, and appends them with both command lines to bench/files.md. smallfile is not in the package registries: give
the path of its smallfile_cli.py, or that side is skipped.

The case `calls` (root, a C compiler) holds create, symlink, rename and delete-renamed against the same system calls in
a bare loop of C, the limit of the file system, and in Python. Each side has an ext4 of its own, freshly made in memory.
It compares processor time a file as well, which other programs on the machine do not change much.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap

FILES = 20000


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(program, place, operations, size, more=()):
    """Files per second of the phases."""
    command = [
        program,
        "files",
        "--json",
        "--op",
        operations,
        "--files",
        str(FILES),
        "--size",
        size,
        "--dir",
        place,
        "--cleanup",
        *more,
    ]
    phases = json.loads(run(command))["phases"]
    return {phase["name"]: phase["total"]["files"] * 1e9 / phase["runtime_ns"] for phase in phases}, command


def fios(fio, place, engine):
    """Files per second of one of fio's file engines; its files are made before, except by filecreate."""
    command = [
        fio,
        "--name=files",
        f"--directory={place}",
        f"--ioengine={engine}",
        f"--nrfiles={FILES}",
        "--filesize=4k",
        "--bs=4k",
        "--openfiles=1",
        "--file_service_type=sequential",
        "--fallocate=none",
        f"--create_on_open={int(engine == 'filecreate')}",
        "--thread",
        "--output-format=json",
    ]
    text = run(command)
    job = json.loads(text[text.index("{") :])["jobs"][0]
    count = job["read"]["total_ios"] + job["write"]["total_ios"]
    assert count == FILES, f"fio did {count} operations instead of {FILES}"
    # Whole milliseconds are what fio's JSON has: FILES is large enough for them.
    return count * 1000.0 / max(job["read"]["runtime"], job["write"]["runtime"], 1), command


def smallfiles(program, place, operation, size_kb):
    """Files per second of smallfile with one thread."""
    command = [
        sys.executable,
        program,
        "--operation",
        operation,
        "--threads",
        "1",
        "--files",
        str(FILES),
        "--file-size",
        str(size_kb),
        "--top",
        place,
        "--response-times",
        "N",
        "--output-json",
        f"{place}/out.json",
    ]
    run(command)
    with open(f"{place}/out.json", encoding="utf-8") as result:
        return float(json.load(result)["results"]["files-per-sec"]), command


class FreshExt4:
    """An ext4 that no side has used before. Without a journal ext4 does not use an inode again for a minute after its
    removal, and passes over all such inodes at each creation: the side that comes second would pay for the first."""

    def __init__(self, journal=True):
        self.features = "has_journal" if journal else "^has_journal"
        self.image = tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".ext4")
        self.image.truncate(1 << 30)
        self.place = tempfile.mkdtemp()

    def __enter__(self):
        run(
            [
                "mkfs.ext4",
                "-q",
                "-F",
                "-O",
                self.features,
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0",
                self.image.name,
            ]
        )
        run(["mount", "-o", "loop", self.image.name, self.place])
        os.mkdir(f"{self.place}/files")
        return f"{self.place}/files"

    def __exit__(self, *_):
        run(["umount", self.place])
        os.rmdir(self.place)
        self.image.close()


def bare_calls(options, lines):
    """Bare calls in C, in Python, and by plimsoll: rates and processor time of each operation, side beside side."""
    operations = ["create", "symlink", "rename", "delete-renamed"]
    folder = f"{os.path.dirname(os.path.abspath(__file__))}/files-calls"
    with tempfile.TemporaryDirectory() as built:
        run(["cc", "-O2", "-o", f"{built}/calls", f"{folder}/calls.c"])

        def plimsoll(place):
            words = ["files", "--json", "--files", str(FILES), "--dir", place, "--op", ",".join(operations)]
            phases = json.loads(run([options.plimsoll, *words]))["phases"]
            used_ns = {one["name"]: one["cpu"]["user_ns"] + one["cpu"]["system_ns"] for one in phases}
            return {
                one["name"]: (FILES * 1e9 / one["runtime_ns"], used_ns[one["name"]] / 1e3 / FILES) for one in phases
            }

        bare = [str(FILES), "1000", "4096"]

        def removed_before(place):
            run([f"{built}/calls", place, *bare])
            for name in os.listdir(place):
                shutil.rmtree(f"{place}/{name}")
            return json.loads(run([f"{built}/calls", place, *bare]))

        sides = {
            "plimsoll": plimsoll,
            "C": lambda place: json.loads(run([f"{built}/calls", place, *bare])),
            "Python": lambda place: json.loads(run([sys.executable, f"{folder}/calls.py", place, *bare])),
            "C, after as many removals": removed_before,
            "the same without a journal": removed_before,
        }

        found = {side: [] for side in sides}
        for _ in range(options.repeats):
            for side, measure in sides.items():
                with FreshExt4(journal=side != "the same without a journal") as place:
                    found[side].append(measure(place))
    for operation in operations:
        parts = []
        for side in sides:
            rates, cpu_us = zip(*(one[operation] for one in found[side]))
            parts.append(f"{side} {statistics.median(rates):.0f} files/s, {statistics.median(cpu_us):.2f} us")
        ratios = {
            side: statistics.median(
                theirs[operation][1] / mine[operation][1] for mine, theirs in zip(found["plimsoll"], found[side])
            )
            for side in ("C", "Python")
        }
        line = (
            f"fresh ext4, {operation}: {'; '.join(parts)}; processor time of C over plimsoll {ratios['C']:.2f},"
            f" of Python {ratios['Python']:.2f}"
        )
        print(line, flush=True)
        lines.append(textwrap.fill(f"- {line}", 120, subsequent_indent="  ", break_on_hyphens=False) + "\n")


def pairs(repeats, ours_side, their_side):
    """Interleaved runs: medians of both, paired ratios, both command lines."""
    mine, theirs = [], []
    for _ in range(repeats):
        rate, their_command = their_side()
        theirs.append(rate)
        rate, our_command = ours_side()
        mine.append(rate)
    return mine, theirs, [a / b for a, b in zip(mine, theirs)], our_command, their_command


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("CARGO_TARGET_DIR", "target") + "/release/plimsoll")
    parser.add_argument("--fio", default="fio")
    parser.add_argument("--smallfile", default=os.environ.get("SMALLFILE", "smallfile_cli.py"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", action="append", default=[])
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="fio, smallfile, latency, calls; the first three without"
    )
    options = parser.parse_args()
    cases = options.cases or ["fio", "smallfile", "latency"]
    places = options.dir or ["/dev/shm", "."]
    smallfile = options.smallfile if os.path.exists(options.smallfile) else shutil.which(options.smallfile)
    lines = [f"\n## {platform.release().partition('-')[0]}, {os.cpu_count()} processors\n"]

    def report(name, bar, result):
        mine, theirs, ratios, our_command, their_command = result
        ratio = statistics.median(ratios)
        line = (
            f"{name}: {ratio:.2f}x ({min(ratios):.2f} .. {max(ratios):.2f}), bar {bar}x"
            f" {'holds' if ratio >= bar else 'MISSED'}; {statistics.median(mine):.0f} against"
            f" {statistics.median(theirs):.0f} files/s"
        )
        print(line, flush=True)
        lines.append(f"- {line}\n  `{' '.join(our_command)}`\n  `{' '.join(their_command)}`\n")

    if "calls" in cases:
        bare_calls(options, lines)
    for base in places if cases != ["calls"] else []:
        with tempfile.TemporaryDirectory(dir=base) as scratch:
            kind = run(["stat", "-f", "-c", "%T", scratch]).strip()

            def fresh():
                for name in os.listdir(scratch):
                    path = f"{scratch}/{name}"
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
                return scratch

            def one(phase, operations, size, more=()):
                rates, command = ours(options.plimsoll, fresh(), operations, size, more)
                return rates[phase], command

            if "fio" in cases:
                for engine, phase, operations, size in [
                    ("filecreate", "create", "create", "0"),
                    ("filestat", "stat", "create,stat", "4k"),
                    ("filedelete", "unlink", "create,unlink", "4k"),
                ]:
                    result = pairs(
                        options.repeats,
                        lambda: one(phase, operations, size),
                        lambda: fios(options.fio, fresh(), engine),
                    )
                    report(f"{kind}, {engine}", 1.0, result)
            if "latency" in cases:
                # Recording against not recording, of the shortest operation: it may slow it by 5 %.
                result = pairs(
                    options.repeats,
                    lambda: one("stat", "create,stat", "0"),
                    lambda: one("stat", "create,stat", "0", ["--no-latency"]),
                )
                report(f"{kind}, stat with latencies against without", 0.95, result)
            if "smallfile" in cases and not smallfile:
                print(f"{kind}, smallfile: skipped: {options.smallfile} is not here (--smallfile PATH)")
            elif "smallfile" in cases:
                for operation, phase in [
                    ("create", "create"),
                    ("read", "read"),
                    ("stat", "stat"),
                    ("delete", "unlink"),
                ]:
                    operations = phase if phase == "create" else f"create,{phase}"

                    def theirs():
                        place = fresh()
                        if operation != "create":
                            smallfiles(smallfile, place, "create", 4)
                        return smallfiles(smallfile, place, operation, 4)

                    report(
                        f"{kind}, smallfile {operation}",
                        2.0,
                        pairs(options.repeats, lambda: one(phase, operations, "4k"), theirs),
                    )
    with open(os.path.join(os.path.dirname(__file__), "files.md"), "a", encoding="utf-8") as record:
        record.writelines(lines)


if __name__ == "__main__":
    main()
