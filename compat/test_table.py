#!/usr/bin/env python3
"""Tries every row of compat/table.py: each option that is done has an effect, and each other is refused by name.

PLIMSOLL names the program. A recorder stands before it and notes what the wrappers ask for.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import table  # noqa: E402, the line above is for it

HERE = pathlib.Path(__file__).resolve().parent
RECORDER = """#!/bin/sh
echo "$@" >> "$RECORD"
for last; do :; done
[ ! -f "$last" ] || cat "$last" >> "$RECORD"
exec "$REAL" "$@"
"""
BASE = {
    "ior": "-t 64k -b 256k -o file",
    "mdtest": "-n 4 -d place",
    "io500": ". --easy-block 4m --easy-files 5 --hard-files 5 --hard-writes 2",
}


class Run:
    """One call of a wrapper in a directory of its own."""

    def __init__(self, tool, words):
        with tempfile.TemporaryDirectory() as place:
            recorder, record = pathlib.Path(place, "plimsoll"), pathlib.Path(place, "record")
            recorder.write_text(RECORDER)
            recorder.chmod(0o755)
            record.touch()
            inside = pathlib.Path(place, "inside")
            inside.mkdir()
            (inside / "data").mkdir()
            if tool == "io500":
                words = self.as_file(inside, words)
            environment = {**os.environ, "PLIMSOLL": str(recorder), "REAL": os.environ["PLIMSOLL"]}
            environment.update(RECORD=str(record), IOR_TASKS="2", MDTEST_TASKS="2")
            began = time.monotonic()
            ran = subprocess.run(
                [HERE / tool, *words], cwd=inside, env=environment, capture_output=True, text=True, check=False
            )
            self.seconds = time.monotonic() - began
            self.status, self.errors = ran.returncode, ran.stderr
            asked = re.sub(r"\S*/ior\.(fio|json)", "", record.read_text())
            lines = [line for line in ran.stdout.splitlines() if "Command line" not in line and "Path:" not in line]
            kept = sorted(str(path.relative_to(inside)) for path in inside.rglob("*"))
            self.all = asked, re.sub(r"\d+|-?\s+", "", "".join(lines)), kept

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


def fault(tool, row, bases):
    """The fault of a row; None if it holds."""
    base = shlex.split(BASE[tool]) + shlex.split(row.base)
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
    key = " ".join(base)
    if key not in bases:
        bases[key] = Run(tool, base)
    return None if changed.all != bases[key].all else "nothing changes"


def main():
    faults = 0
    for tool, rows in table.TOOLS.items():
        bases = {}
        names = [row.name for row in rows]
        if len(set(names)) != len(names):
            print(f"{tool}: a name has two rows")
            faults += 1
        for row in rows:
            found = fault(tool, row, bases)
            if found:
                print(f"{tool} {row.example} ({row.does or row.why}): {found}")
                faults += 1
        print(f"{tool}: {len(rows)} options")
    missing = set(table.DIRECTIVES.values()) - {row.name for row in table.IOR}
    if missing:
        print(f"ior: directives without a row: {sorted(missing)}")
        faults += 1
    sys.exit(1 if faults else 0)


main()
