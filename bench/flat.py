#!/usr/bin/env python3
"""How throughput runs from depth 1 to 2048: reads of our target by our initiator, which throws the data away.

    bench/flat.py [--plimsoll PATH] [--seconds 1] [--repeats 5] [--block 128k] [--connections 1,4,16]
                  [--depths 1,8,32,128,512,2048] [--devices null,mem,file] [--pacing none,buffers:64,auto]
                  [--keep-payload] [--processors 2]

One target of one reactor for each device and way of pacing; all of them run the same job in turns. The initiator
throws the data away in the kernel (discard_payload=1), so that its own buffers cost nothing at any depth;
--keep-payload copies them, for comparison. Prints the medians in GB/s, and for each row the lowest throughput from the
load line (97 % of the highest) to the greatest depth, over the highest. Target and initiator have a processor each.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
from pathlib import Path

NQN = "nqn.2016-06.io.spdk:cnode1"
# Each target locks its file: no two serve one.
DEVICES = {"null": ["--null", "64g"], "mem": ["--mem", "256m"], "file": ["--file", "{port}.data", "--create", "256m"]}


class Target:
    """A target that stands still except while it is measured."""

    def __init__(self, program, device, pacing, port, processor):
        self.program, self.device, self.pacing, self.port = program, device, pacing, port
        words = [word.format(port=port) for word in DEVICES[device]]
        serve = [program, "serve", *words, "--listen", f"127.0.0.1:{port}", "--rpc-socket", "none"]
        serve += ["--allow-mounted-write", "--pacing", pacing]
        self.process = subprocess.Popen([*processor, *serve], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def read(self, options, depth, connections, processor):
        """The throughput in GB/s."""
        name = f"traddr=127.0.0.1 trsvcid={self.port} subnqn={NQN.replace(':', chr(92) + ':')} ns=1"
        job = [self.program, "run", "--name=flat", "--ioengine=nvme_tcp", f"--filename={name}", "--rw=randread"]
        job += [f"--bs={options.block}", f"--iodepth={depth}", f"--nr_io_queues={min(depth, connections)}"]
        job += [
            "--time_based",
            f"--runtime={int(options.seconds * 1000)}ms",
            "--ramp_time=200ms",
            "--thread",
            "--norandommap",
        ]
        job += ["--output-format=json"] + ([] if options.keep_payload else ["--discard_payload=1"])
        self.process.send_signal(signal.SIGCONT)
        done = subprocess.run([*processor, *job], capture_output=True, text=True, check=False)
        self.process.send_signal(signal.SIGSTOP)
        if done.returncode != 0:
            raise SystemExit(f"bench/flat.py: {' '.join(job)}: status {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"] / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("CARGO_TARGET_DIR", "target") + "/release/plimsoll")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--block", default="128k")
    parser.add_argument("--connections", default="1,4,16")
    parser.add_argument("--depths", default="1,8,32,128,512,2048")
    parser.add_argument("--devices", default="null,mem,file")
    parser.add_argument("--pacing", default="none,buffers:64,auto")
    parser.add_argument("--keep-payload", action="store_true")
    parser.add_argument("--processors", type=int, default=2)
    options = parser.parse_args()
    program = str(Path(options.plimsoll).resolve())
    depths = [int(depth) for depth in options.depths.split(",")]
    counts = [int(count) for count in options.connections.split(",")]
    bound = [["taskset", "-c", str(cpu)] if options.processors > 1 else [] for cpu in (0, 1)]
    with tempfile.TemporaryDirectory(dir="target") as directory, contextlib.ExitStack() as ends:
        ends.enter_context(contextlib.chdir(directory))
        targets = []
        for device in options.devices.split(","):
            for pacing in options.pacing.split(","):
                target = Target(program, device, pacing, 4520 + len(targets), bound[0])
                ends.callback(target.process.wait)
                ends.callback(target.process.send_signal, signal.SIGCONT)
                ends.callback(target.process.terminate)
                targets.append(target)
                if device != "null":
                    fill(target)
                target.process.send_signal(signal.SIGSTOP)
        print("| device | pacing | connections | " + " | ".join(f"depth {depth}" for depth in depths) + " | lowest |")
        print("| --- | --- | ---: | " + " | ".join("---:" for _ in depths) + " | ---: |")
        for count in counts:
            samples = {(target, depth): [] for target in targets for depth in depths}
            for repeat in range(options.repeats):
                for target in targets if repeat % 2 == 0 else reversed(targets):
                    for depth in depths:
                        samples[target, depth].append(target.read(options, depth, count, bound[1]))
            for target in targets:
                row = [statistics.median(samples[target, depth]) for depth in depths]
                plateau = max(row)
                line = next(place for place, value in enumerate(row) if value >= 0.97 * plateau)
                cells = " | ".join(f"{value:.2f}" for value in row)
                lowest = min(row[line:]) / plateau
                print(f"| {target.device} | {target.pacing} | {count} | {cells} | {lowest:.2f} |", flush=True)


def fill(target):
    """Writes every byte of the device, so that reads do not find holes."""
    name = f"traddr=127.0.0.1 trsvcid={target.port} subnqn={NQN.replace(':', chr(92) + ':')} ns=1"
    job = [target.program, "run", "--name=fill", "--ioengine=nvme_tcp", f"--filename={name}", "--rw=write", "--bs=128k"]
    subprocess.run([*job, "--iodepth=8", "--thread", "--refill_buffers"], capture_output=True, check=True)


if __name__ == "__main__":
    main()
