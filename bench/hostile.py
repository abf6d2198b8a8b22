#!/usr/bin/env python3
"""What a thousand hostile peers cost another host of the target, and the target's memory.

    bench/hostile.py [--plimsoll PATH] [--peers 1000] [--seconds 5] [--repeats 5] [--target-cpu 0] [--host-cpu 1]

A host reads 4 KiB blocks of a null device at depth 1, alone and beside the peers, alternately. Half of the peers never read; the kinds
of all of them: half-open connections, drips, capsules before Connect, Identify, log pages, properties and discovery in a loop. Prints the
median of the 99th percentiles of each side, their ratio, and the target's resident memory over idle. The peers run on the processor of the
host: what they take of it is taken from the host, too, so use a machine with processors to spare and --peer-cpu where there is one.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

PORT = 4473
NQN = "nqn.2016-06.io.spdk:cnode1"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
ADDRESS = f"trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={PORT} subnqn={NQN} ns=1"


def capsule(opcode, nsid=0, cdw=(0, 0, 0, 0), data=b"", length=0):
    """A CapsuleCmd with its data in the capsule, or announced as transport data."""
    kind = 0x01 if data else 0x5A
    sgl = struct.pack("<QIBBBB", 0, len(data) or length, 0, 0, 0, kind)
    command = struct.pack("<BBHI16x", opcode, 0x40, 1, nsid) + sgl + struct.pack("<IIII8x", *cdw)
    total = 72 + len(data)
    return struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, total) + command + data


def hello():
    return struct.pack("<BBBBIHBBI112x", 0, 0, 128, 0, 128, 0, 0, 0, 0)


def connect(nqn, number):
    host = f"nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-{number:012}"
    data = struct.pack("<16sH238x256s256s256x", b"\x07" * 16, 0xFFFF, nqn.encode(), host.encode())
    return capsule(0x7F, 1, (0, 31, 0, 0), data)


def plan(number):
    """The bytes that a peer begins with, and those that it repeats."""
    enable = capsule(0x7F, 0, (0, 0x14, 0x00460001, 0))
    identify = capsule(0x06, 0, (1, 0, 0, 0), length=4096)
    log = capsule(0x02, 0xFFFFFFFF, (0xFFFF8002, 0x3, 0, 0), length=1 << 20)
    discovery = capsule(0x02, 0, (0xFFFF8070, 0x3, 0, 0), length=1 << 20)
    begin = hello() + connect(NQN, number) + enable
    return [
        (hello(), b""),
        (b"", b"\x04"),
        (hello(), capsule(0x02, 1, length=4096)),
        (begin, identify),
        (begin, log),
        (begin, capsule(0x7F, 4, (1, 0, 0, 0))),
        (hello() + connect(DISCOVERY, number) + enable, discovery),
        (hello() + connect(DISCOVERY, number) + enable, identify),
    ][number % 8]


def press(peers, seconds):
    """Keeps so many peers at it, each connected again when it is cut off, until told to end."""
    selector = selectors.DefaultSelector()

    def add(number):
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", PORT))
        first, repeated = plan(number)
        reads = selectors.EVENT_READ if number // 8 % 2 else 0
        selector.register(peer, selectors.EVENT_WRITE | reads, [number, first, repeated])

    for number in range(peers):
        add(number)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for key, events in selector.select(0.1):
            peer, state = key.fileobj, key.data
            try:
                if events & selectors.EVENT_READ and not peer.recv(65536):
                    raise ConnectionResetError
                if events & selectors.EVENT_WRITE:
                    if state[1]:
                        state[1] = state[1][peer.send(state[1]) :]
                    elif not state[2]:
                        selector.modify(peer, selectors.EVENT_READ, state)
                    else:
                        sent = peer.send(state[2] * 4)
                        state[1] = (state[2] * 4)[sent:]
            except BlockingIOError:
                continue
            except OSError:
                selector.unregister(peer)
                peer.close()
                add(state[0])


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def p99_us(options):
    command = [options.plimsoll, "run", "--name=host", "--ioengine=nvme_tcp", "--rw=randread", "--bs=4k", "--iodepth=1"]
    command += ["--time_based", f"--runtime={options.seconds}", f"--filename={ADDRESS}", "--output-format=json"]
    done = subprocess.run(
        ["taskset", "-c", str(options.host_cpu), *command], capture_output=True, text=True, check=True
    )
    percentiles = json.loads(done.stdout)["jobs"][0]["read"]["clat_ns"]["percentile"]
    return percentiles["99.000000"] / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("CARGO_TARGET_DIR", "target") + "/release/plimsoll")
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--target-cpu", type=int, default=0)
    parser.add_argument("--host-cpu", type=int, default=1)
    parser.add_argument("--peer-cpu", type=int, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        serve = [
            options.plimsoll,
            "serve",
            "--null",
            "8g",
            "--listen",
            f"127.0.0.1:{PORT}",
            "--rpc-socket",
            f"{place}/rpc",
        ]
        target = subprocess.Popen(["taskset", "-c", str(options.target_cpu), *serve], stdout=subprocess.PIPE, text=True)
        try:
            target.stdout.readline()
            p99_us(options)
            idle, most = resident(target.pid), 0
            alone, beside = [], []
            for _ in range(options.repeats):
                alone.append(p99_us(options))
                child = os.fork()
                if child == 0:
                    os.sched_setaffinity(0, {options.host_cpu if options.peer_cpu is None else options.peer_cpu})
                    press(options.peers, options.seconds + 4)
                    os._exit(0)
                time.sleep(2)
                beside.append(p99_us(options))
                most = max(most, resident(target.pid) - idle)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            before, during = statistics.median(alone), statistics.median(beside)
            print(
                f"p99 of a 4 KiB read at depth 1: {before:.1f} us alone, {during:.1f} us beside {options.peers} peers"
            )
            print(f"ratio {during / before:.2f}; resident memory {most / (1 << 20):.1f} MiB over idle")
            print("command:", " ".join(sys.argv))
        finally:
            target.terminate()
            target.wait()


if __name__ == "__main__":
    main()
