#!/usr/bin/env python3
"""What TLS costs: throughput and processor time with it, beside those without it, interleaved.

    bench/tls.py [--plimsoll PATH] [--seconds 2] [--repeats 5] [--pin]

A target with a null device for each way: plain, TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384. The same jobs read and write over one
connection to each, in turns. Prints the medians, their ratios to `plain`, and the range of each. --pin gives target and initiator a
processor each.
"""

import argparse
import base64
import contextlib
import os
import tempfile
import zlib

from waiting import Way, tell

HOST = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001"
LOADS = [
    ("randread", "4k", 1),
    ("randread", "4k", 32),
    ("randread", "128k", 8),
    ("randwrite", "4k", 32),
    ("randwrite", "128k", 8),
]
WAYS = {"plain": None, "aes-128": ("01", 32), "aes-256": ("02", 48)}


def key_file(directory, digest, size):
    """A file with a random key in the form of `nvme gen-tls-key`."""
    secret = os.urandom(size)
    text = base64.b64encode(secret + zlib.crc32(secret).to_bytes(4, "little")).decode()
    path = os.path.join(directory, f"key-{digest}")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f"NVMeTLSkey-1:{digest}:{text}:")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("CARGO_TARGET_DIR", "target") + "/release/plimsoll")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pin", action="store_true")
    arguments = parser.parse_args()
    program, cpus = os.path.abspath(arguments.plimsoll), (0, 1) if arguments.pin else (None, None)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
        os.chdir(directory)
        ways = {}
        for number, (name, secured) in enumerate(WAYS.items()):
            key = key_file(directory, *secured) if secured else None
            serve = ["--allow-host", HOST, *(["--tls-key", key] if key else [])]
            job = [f"--hostnqn={HOST}", *([f"--tls_key={key}"] if key else [])]
            way = ways[name] = Way(program, "", 4490 + number, cpus[0], serve, job)
            ends.callback(way.end)
        for rw, block, depth in LOADS:
            rows = {name: [] for name in ways}
            for repeat in range(arguments.repeats):
                for name, way in list(ways.items())[:: 1 if repeat % 2 == 0 else -1]:
                    rows[name].append(way.run(block, depth, arguments.seconds, cpus[1], rw))
            tell(f"{rw:>9} {block:>4} depth {depth:>2}", "plain", rows)


if __name__ == "__main__":
    main()
