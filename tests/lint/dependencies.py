#!/usr/bin/env python3
"""Checks the licences, the duplicates and the minimum Rust of every dependency, from Cargo.lock.

cargo-deny does the same and more, but takes minutes to compile on the machines that run this; `cargo metadata` is there
anyway. Advisories are not checked: they need a network, and a check that changes its mind without a commit.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict

# Licences whose code may be linked into an Apache-2.0 program and shipped as a binary.
LICENCES = {
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}

# Crates of which two versions may be in Cargo.lock: why, and since when.
DUPLICATES = {
    # postcard offers both to those who ask for an embedded-io; nothing here asks, so neither is compiled.
    "embedded-io",
    # zerocopy, below the FUSE file system of the tests, still derives by version 2. No program has either in it.
    "syn",
}


def acceptable(expression):
    """True if an SPDX expression leaves a choice of LICENCES."""
    if expression is None:
        return False
    words = re.findall(r"\(|\)|AND\b|OR\b|/|(?:(?!AND\b|OR\b)[\w.+-]+(?: WITH [\w.-]+)?)", expression)
    python = [
        {"(": "(", ")": ")", "AND": "and", "OR": "or", "/": "or"}.get(word, str(word in LICENCES)) for word in words
    ]
    return eval(" ".join(python), {"__builtins__": {}})  # only True, False, and, or and parentheses get here


def version(text):
    """`1.88` and `1.88.0` as numbers that compare."""
    return tuple(int(part) for part in (text + ".0.0").split(".")[:3])


def main():
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    reached = {node["id"] for node in metadata["resolve"]["nodes"]}
    packages = [package for package in metadata["packages"] if package["id"] in reached]
    promised = min(version(package["rust_version"]) for package in packages if package["source"] is None)
    wrong = []
    versions = defaultdict(set)
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if not acceptable(package["license"]):
            wrong.append(f"{name}: the licence {package['license']} is not in the list of tests/lint/dependencies.py")
        if package["rust_version"] and version(package["rust_version"]) > promised:
            wrong.append(f"{name}: needs Rust {package['rust_version']}, Cargo.toml promises less")
        if package["source"] is not None:
            versions[package["name"]].add(package["version"])
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in DUPLICATES:
            wrong.append(f"{name}: {len(found)} versions ({', '.join(sorted(found))}); `cargo tree -i {name}` says why")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
