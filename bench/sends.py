#!/usr/bin/env python3
"""Ways to send the data of reads over TCP: GB a second, and the sender's processor time for each piece, interleaved.

    bench/sends.py [--milliseconds 200] [--repeats 5] [--sizes 4096,131072] [--veth] [--ways page,zeros,...]

Compiles bench/sends.c, and runs each way in turns at each size. Both ends look again instead of sleeping, so that two processors are
busy. --veth (root) puts the receiver into a network namespace behind a veth.
Prints the medians, the range of GB a second, and the ratio to `zeros`, the way of the target (docs/decisions/zeros-are-copied.md).
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import tempfile

WAYS = "page,zeros,file-zeros,buffer,memory,sendfile,sendfile-hole,zerocopy,zerocopy-memory,read,sendfile-files"
ADDRESS = "10.251.77.1"


@contextlib.contextmanager
def veth():
    """A network namespace behind a veth: its path."""
    name = f"sends{os.getpid()}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {name}a type veth peer name {name}b netns {name}",
        f"ip addr add {ADDRESS}/24 dev {name}a",
        f"ip link set {name}a up",
        f"ip -n {name} addr add 10.251.77.2/24 dev {name}b",
        f"ip -n {name} link set {name}b up",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--milliseconds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", default="4096,16384,65536,131072,1048576")
    parser.add_argument("--ways", default=WAYS)
    parser.add_argument("--veth", action="store_true")
    arguments = parser.parse_args()
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sends.c")
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
        program = os.path.join(directory, "sends")
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
        place = [ADDRESS, ends.enter_context(veth())] if arguments.veth else []
        ways = arguments.ways.split(",")
        print("| bytes | way | GB/s | of `zeros` | sender's processor time, us |\n| ---: | --- | --- | --- | --- |")
        for size in arguments.sizes.split(","):
            rows = {way: [] for way in ways}
            for repeat in range(arguments.repeats):
                for way in ways if repeat % 2 == 0 else reversed(ways):
                    command = [program, way, size, str(arguments.milliseconds), *place]
                    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                    rows[way].append([float(figure) for figure in printed.split()])
            base = statistics.median(row[0] for row in rows.get("zeros", rows[ways[0]]))
            for way, found in rows.items():
                rates = sorted(row[0] for row in found)
                rate, cost = statistics.median(rates), statistics.median(row[1] for row in found)
                span = f"({rates[0]:.2f} to {rates[-1]:.2f})"
                print(f"| {size} | {way} | {rate:.2f} {span} | {rate / base:.2f} | {cost:.2f} |", flush=True)


if __name__ == "__main__":
    main()
