#!/usr/bin/env python3
"""Eight busy hosts on one of two reactors: throughput with connections that move, and with connections that stay.

    bench/balance.py [--plimsoll PATH] [--before PATH] [--seconds 12] [--repeats 3] [--hosts 8] [--bs 4k] [--depth 16]

Busy hosts and hosts that hardly do anything connect in turns, so that the busy ones come to reactor 0 and the others to reactor 1. Each way
has a target of its own with a null device, in turns; `before` is an older program, whose connections stay. Prints the throughput of the last
third of each run, its part on each reactor, the slowest and the fastest busy host, and the highest p99 of a busy host over the whole run.
The machine needs more processors than two reactors and the hosts keep busy: on two processors, reactors and hosts take them from each other.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

NQN = "nqn.2016-06.io.spdk:cnode1"


def run(program, words, arguments, directory):
    """IOPS in the last third, the part of reactor 1 in them, least and highest IOPS of a busy host, and the highest p99 in microseconds."""
    control = os.path.join(directory, "s.sock")
    serve = [
        program,
        "serve",
        "--null",
        "64g",
        "--listen",
        "127.0.0.1:0",
        "--reactors",
        "2",
        "--rpc-socket",
        control,
        *words,
    ]
    target = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)

    def rpc(method, *params):
        done = subprocess.run(
            [program, "rpc", "-s", control, method, *params], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def completed():
        return [group["completed_nvme_io"] for group in rpc("nvmf_get_stats")["poll_groups"]]

    hosts, busy = [], []
    try:
        while "Control:" not in target.stdout.readline():
            pass
        port = rpc("nvmf_subsystem_get_listeners", f"nqn={NQN}")[0]["address"]["trsvcid"]
        name = f"traddr=127.0.0.1 trsvcid={port} subnqn={NQN.replace(':', chr(92) + ':')} ns=1"
        job = [
            program,
            "run",
            "--name=j",
            "--ioengine=nvme_tcp",
            f"--filename={name}",
            "--rw=randread",
            "--norandommap",
        ]
        job += [f"--bs={arguments.bs}", "--time_based", "--thread", "--output-format=json"]
        end = time.monotonic() + arguments.seconds + 1.0 * arguments.hosts
        for number in range(2 * arguments.hosts):
            load = [f"--iodepth={arguments.depth}"] if number % 2 == 0 else ["--rate_iops=2"]
            seconds = f"--runtime={max(end - time.monotonic(), 1):.1f}s"
            host = subprocess.Popen([*job, *load, seconds], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            hosts.append(host)
            busy += [host] if number % 2 == 0 else []
            while len(rpc("nvmf_subsystem_get_controllers", f"nqn={NQN}")) <= number:
                time.sleep(0.01)
        time.sleep(max(end - time.monotonic() - arguments.seconds / 3 - 1, 0))
        first, began = completed(), time.monotonic()
        time.sleep(arguments.seconds / 3)
        last, took = completed(), time.monotonic() - began
        read = [json.loads(host.communicate()[0])["jobs"][0]["read"] for host in busy]
    finally:
        for host in hosts:
            host.kill()
            host.wait()
        target.terminate()
        target.wait()
    done = [after - before for before, after in zip(first, last, strict=True)]
    rates = [one["iops"] for one in read]
    p99 = max(one["clat_ns"]["percentile"]["99.000000"] for one in read) / 1000
    return sum(done) / took, done[1] / max(sum(done), 1), min(rates), max(rates), p99


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("CARGO_TARGET_DIR", "target") + "/release/plimsoll")
    parser.add_argument("--before")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--bs", default="4k")
    parser.add_argument("--depth", type=int, default=16)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.plimsoll)
    ways = {"moves": (program, ["--balance", "on"]), "stays": (program, ["--balance", "off"])}
    if arguments.before:
        ways["before"] = (os.path.abspath(arguments.before), [])
    rows = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as directory:
        for repeat in range(arguments.repeats):
            for way in ways if repeat % 2 == 0 else reversed(ways):
                rows[way].append(run(*ways[way], arguments, directory))
    for way, found in rows.items():
        iops, part, least, most, p99 = (statistics.median(column) for column in zip(*found, strict=True))
        low, high = min(row[0] for row in found), max(row[0] for row in found)
        print(
            f"{way:>6}: {iops / 1e3:7.1f} kIOPS ({low / 1e3:.1f} to {high / 1e3:.1f}), {100 * part:3.0f} % of them on reactor 1,"
            f" a busy host {least / 1e3:.1f} to {most / 1e3:.1f}, highest p99 {p99:.0f} us"
        )


if __name__ == "__main__":
    main()
