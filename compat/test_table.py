#!/usr/bin/env python3
"""Tries every row of compat/table.py: each option that is done has an effect, and each other is refused by name.

PLIMSOLL names the program. A recorder stands before it and notes what the wrappers ask for.
"""

import multiprocessing
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
import table  # noqa: E402, the line above is for it

HERE = pathlib.Path(__file__).resolve().parent
RECORDER = """#!/bin/sh
echo "$@" >> "$RECORD"
for last; do :; done
[ ! -f "$last" ] || cat "$last" >> "$RECORD"
exec "$REAL" "$@"
"""
# The letters of the options of IOR and mdtest 4.1, and of their earlier versions.
LETTERS = {
    "ior": "aAbBcCdDeEfFgGhHiIjJkKlmMnNoOpqQrRsStTuUvVwWxXyYzZ",
    "mdtest": "abBcCdDeEfFgGhiIklLnNpPrRsStTuUvVwWxXyYzZ",
}
BASE = {
    "ior": "-t 64k -b 256k -o file",
    "mdtest": "-n 4 -d place",
    "io500": ". --easy-block 4m --easy-files 5 --hard-files 5 --hard-writes 2",
}


class Run:
    """One call of a wrapper in a directory of its own. `started` runs it as its users do; otherwise a copy of this
    process runs it, which spares the start of Python."""

    def __init__(self, tool, words, started=False):
        with tempfile.TemporaryDirectory() as place:
            recorder, record = pathlib.Path(place, "plimsoll"), pathlib.Path(place, "record")
            recorder.write_text(RECORDER)
            recorder.chmod(0o755)
            record.touch()
            inside = pathlib.Path(place, "inside")
            inside.mkdir()
            (inside / "data").mkdir()
            (inside / "script").write_text("IOR START\n # a comment\n segmentCount = 2\nRUN\nIOR STOP\n")
            if tool == "io500":
                words = self.as_file(inside, words)
            environment = {"PLIMSOLL": str(recorder), "REAL": os.environ["PLIMSOLL"], "RECORD": str(record)}
            environment.update(IOR_TASKS="2", MDTEST_TASKS="2")
            began = time.monotonic()
            run = self.start if started else self.copy
            self.status, out, self.errors = run([str(HERE / tool), *words], inside, environment)
            self.seconds = time.monotonic() - began
            asked = re.sub(r"\S*/ior\.(fio|json)", "", record.read_text())
            lines = [line for line in out.splitlines() if "Command line" not in line and "Path:" not in line]
            kept = sorted(str(path.relative_to(inside)) for path in inside.rglob("*"))
            self.out, self.all = out, (asked, re.sub(r"\d+|-?\s+", "", "".join(lines)), kept)

    @staticmethod
    def start(command, inside, environment):
        ran = subprocess.run(
            command, cwd=inside, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        return ran.returncode, ran.stdout, ran.stderr

    @staticmethod
    def copy(command, inside, environment):
        out, errors = inside.parent / "out", inside.parent / "errors"
        pid = os.fork()
        if pid == 0:
            for number, path in ((1, out), (2, errors)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
            status = 1
            try:
                os.environ.update(environment)
                os.chdir(inside)
                sys.argv, sys.stdout, sys.stderr = command, open(1, "w", closefd=False), open(2, "w", closefd=False)
                runpy.run_path(command[0], run_name="__main__")
                status = 0
            except SystemExit as end:
                status = end.code or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status, out.read_text(), errors.read_text()

    @staticmethod
    def as_file(inside, words):
        """Words like section.key=value become io500's ini file; the others stay."""
        settings = [word for word in words if re.match(r"[\w-]+\.[\w-]+=", word)]
        if not settings:
            return words
        file = inside / "config.ini"
        sections = {}
        if not any(word.startswith("global.datadir") for word in settings):
            settings.append("global.datadir=.")
        for word in settings:
            name, _, value = word.partition("=")
            section, _, key = name.partition(".")
            sections.setdefault(section, []).append(f"{key} = {value}")
        file.write_text("".join(f"[{name}]\n" + "\n".join(keys) + "\n" for name, keys in sections.items()))
        return ["config.ini", *[word for word in words if word not in settings and word != "."]]


def base_of(tool, row):
    """The words that an example stands beside. Those of io500 leave out what can be left out."""
    left_out = [other.example for other in table.IO500 if other.shows == "absent"] if tool == "io500" else []
    return shlex.split(BASE[tool]) + shlex.split(row.base) + left_out


def base_run(key):
    tool, *words = key
    ran = Run(tool, words, started=True)
    return key, ran.status, ran.errors, ran.out, ran.all


def fault(tool, row, bases):
    """The fault of a row; None if it holds."""
    base = base_of(tool, row)
    if row.shows == "absent":
        # The whole run has the phase, and the run without all of these has it not.
        phase = row.name.removesuffix(".run")
        shown = [phase in bases[(tool, *words)][2] for words in (shlex.split(BASE[tool]), base)]
        return None if shown == [True, False] else f"the phase is shown: {shown}"
    changed = Run(tool, base + shlex.split(row.example))
    named = row.name in changed.errors
    if row.shows in ("refused", "bound"):
        return None if changed.status == 2 and named else f"status {changed.status}, {changed.errors!r}"
    if changed.status != 0:
        return f"status {changed.status}, {changed.errors[-300:]!r}"
    if row.shows == "note":
        return None if named else "no line names it"
    if row.shows == "pause":
        return None if changed.seconds >= 1 else f"it took {changed.seconds} s"
    return None if changed.all != bases[(tool, *base)][3] else "nothing changes"


def tried(job):
    tool, row, bases = job
    return tool, row, fault(tool, row, bases)


def main():
    rows = [(tool, row) for tool, rows in table.TOOLS.items() for row in rows]
    faults = 0
    names = [(tool, row.name) for tool, row in rows]
    for tool, name in sorted({name for name in names if names.count(name) > 1}):
        print(f"{tool} {name}: the name has two rows")
        faults += 1
    keys = {(tool, *base_of(tool, row)) for tool, row in rows if row.shows in ("change", "absent")}
    keys |= {("io500", *shlex.split(BASE["io500"]))}
    # Two at a time, the longest first: io500 has most to do.
    with multiprocessing.get_context("fork").Pool(2) as pool:
        bases = {}
        for key, status, errors, out, everything in pool.imap_unordered(base_run, sorted(keys), chunksize=1):
            if status != 0:
                sys.exit(f"{shlex.join(key)}: status {status}, {errors[-300:]!r}")
            bases[key] = status, errors, out, everything
        jobs = [(tool, row, bases) for tool, row in sorted(rows, key=lambda job: (job[0] != "io500", job[0]))]
        for tool, row, found in pool.imap_unordered(tried, jobs, chunksize=1):
            if found:
                print(f"{tool} {row.example} ({row.does or row.why}): {found}")
                faults += 1
    written_out = [f"{name}={value}" for name, value in table.DEFAULTS.items()]
    ran = Run("io500", [*shlex.split(BASE["io500"]), *written_out])
    if ran.status != 0:
        print(f"io500: its defaults, written out, are refused: {ran.errors!r}")
        faults += 1
    for tool, rows in table.TOOLS.items():
        print(f"{tool}: {len(rows)} options")
    if table.document() not in (HERE.parent / "docs/files.md").read_text():
        print("docs/files.md: its tables of options are not those that compat/table.py prints")
        faults += 1
    for tool, letters in LETTERS.items():
        absent = set(letters) - {row.name for row in table.TOOLS[tool]}
        if absent:
            print(f"{tool}: options of the original without a row: {sorted(absent)}")
            faults += 1
    missing = set(table.DIRECTIVES.values()) - {row.name for row in table.IOR}
    if missing:
        print(f"ior: directives without a row: {sorted(missing)}")
        faults += 1
    sys.exit(1 if faults else 0)


main()
