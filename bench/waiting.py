#!/usr/bin/env python3
"""How target and initiator wait: throughput, latency and processor time of each way, interleaved.

    bench/waiting.py [--plimsoll PATH] [--before PATH] [--seconds 2] [--repeats 5] [--pin]

Each way has a target of its own with a null device. The same job reads from all of them in turns: 4 KiB blocks at depths 1, 8, 32 and 128,
and 128 KiB blocks at depth 32. `before` is an older program that knows no `poll`, on both sides. Prints the medians, their ratios to
`adaptive`, and the range of each. --pin gives target and initiator a processor each.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time

NQN = "nqn.2016-06.io.spdk:cnode1"
LOADS = [("4k", 1), ("4k", 8), ("4k", 32), ("4k", 128), ("128k", 32)]


class Way:
    """A target, and the way in which both sides wait. `serve` and `job` are more options of the two."""

    def __init__(self, program, poll, port, cpu, serve=(), job=()):
        self.program, self.poll, self.port, self.options = program, poll, port, job
        more = serve
        serve = [program, "serve", "--null", "64g", "--listen", f"127.0.0.1:{port}", "--rpc-socket", "none"]
        serve += [*more, *(["--poll", poll] if poll else [])]
        self.target = subprocess.Popen(place(serve, cpu), stdout=subprocess.PIPE, text=True)
        self.target.stdout.readline()
        self.target.send_signal(signal.SIGSTOP)

    def processor_s(self):
        """The processor time of the target so far, in seconds."""
        fields = open(f"/proc/{self.target.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        """Ends the target, which may stand still."""
        self.target.terminate()
        self.target.send_signal(signal.SIGCONT)
        self.target.wait()

    def run(self, block, depth, seconds, cpu, rw="randread"):
        """IOPS, median latency in microseconds, and busy processors of the target."""
        # The other targets stand still: one that never sleeps would take a processor from this one.
        self.target.send_signal(signal.SIGCONT)
        name = f"traddr=127.0.0.1 trsvcid={self.port} subnqn={NQN.replace(':', chr(92) + ':')} ns=1"
        job = [
            self.program,
            "run",
            "--name=j",
            "--ioengine=nvme_tcp",
            f"--filename={name}",
            f"--rw={rw}",
            *self.options,
        ]
        job += [
            f"--bs={block}",
            f"--iodepth={depth}",
            "--time_based",
            f"--runtime={seconds}",
            "--thread",
            "--norandommap",
        ]
        job += ["--output-format=json"] + ([f"--poll={self.poll}"] if self.poll else [])
        before, began = self.processor_s(), time.monotonic()
        result = json.loads(subprocess.run(place(job, cpu), capture_output=True, text=True, check=True).stdout)
        busy = (self.processor_s() - before) / (time.monotonic() - began)
        self.target.send_signal(signal.SIGSTOP)
        done = result["jobs"][0]["write" if "write" in rw else "read"]
        return done["iops"], done["clat_ns"]["percentile"]["50.000000"] / 1000, busy


def tell(load, base, rows):
    """Prints a line for each way: the medians of its runs (rows: way -> results of Way.run), beside those of the way `base`."""
    beside = statistics.median(run[0] for run in rows[base])
    for way, found in rows.items():
        iops, latency, busy = (statistics.median(column) for column in zip(*found, strict=True))
        low, high = min(run[0] for run in found), max(run[0] for run in found)
        print(
            f"{load} {way:>9}: {iops / 1e3:7.1f} kIOPS ({low / 1e3:.1f} to {high / 1e3:.1f}),"
            f" {iops / beside:5.2f} of {base}, p50 {latency:6.1f} us, target {100 * busy:3.0f} % of a processor",
            flush=True,
        )


def place(command, cpu):
    return command if cpu is None else ["taskset", "-c", str(cpu), *command]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("CARGO_TARGET_DIR", "target") + "/release/plimsoll")
    parser.add_argument("--before")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pin", action="store_true")
    arguments = parser.parse_args()
    cpus = (0, 1) if arguments.pin else (None, None)
    ways = [(os.path.abspath(arguments.plimsoll), poll) for poll in ("adaptive", "always", "never")]
    ways += [(os.path.abspath(arguments.before), "")] if arguments.before else []
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
        os.chdir(directory)
        all_ways = []
        for number, (program, poll) in enumerate(ways):
            way = Way(program, poll, 4480 + number, cpus[0])
            ends.callback(way.end)
            all_ways.append(way)
        for block, depth in LOADS:
            rows = {way: [] for way in all_ways}
            for repeat in range(arguments.repeats):
                for way in all_ways if repeat % 2 == 0 else reversed(all_ways):
                    rows[way].append(way.run(block, depth, arguments.seconds, cpus[1]))
            tell(
                f"{block:>5} depth {depth:>3}", "adaptive", {way.poll or "before": found for way, found in rows.items()}
            )
        time.sleep(2)
        for way in all_ways:
            way.target.send_signal(signal.SIGCONT)
            before = way.processor_s()
            time.sleep(3)
            way.target.send_signal(signal.SIGSTOP)
            print(f"idle, {way.poll or 'before'}: {100 * (way.processor_s() - before) / 3:.1f} % of a processor")


if __name__ == "__main__":
    main()
