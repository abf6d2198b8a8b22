#!/usr/bin/env python3
"""A target under hostile peers, resets and namespaces that come and go, beside hosts that verify what they write.

    rigs/soak.py PROGRAM [SECONDS]

PROGRAM is plimsoll; an hour is the default. All traffic is on loopback. The last line counts. The exit status is 0 if no
byte was wrong or lost, the target was alive to the end, and its resident memory did not grow: the highest of the last
third is at most 16 MiB above the highest of the first third.
"""

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

NQN = "nqn.2016-06.io.spdk:cnode1"
GROWTH_KIB = 16 << 10
ICREQ = struct.pack("<BBBBIHBBI", 0, 0, 128, 0, 128, 0, 0, 0, 0) + bytes(112)


class Soak:
    def __init__(self, program, seconds, directory):
        self.program, self.directory = program, directory
        self.end = time.monotonic() + seconds
        self.counts = {"verified runs": 0, "resets": 0, "hostile peers": 0, "namespaces": 0}
        self.failures = []
        self.lock = threading.Lock()
        self.socket = os.path.join(directory, "soak.sock")
        command = [
            program,
            "serve",
            "--reactors",
            "2",
            "--mem",
            "64m",
            "--file",
            os.path.join(directory, "disk"),
            "--create",
            "64m",
        ]
        command += ["--listen", "127.0.0.1:0", "--rpc-socket", self.socket]
        self.target = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        while "Control:" not in (line := self.target.stdout.readline()):
            if not line:
                sys.exit("soak.py: the target did not start")
        listed = self.rpc("nvmf_subsystem_get_listeners", f"nqn={NQN}").stdout
        self.port = int(listed.split('"trsvcid":')[1].split('"')[1])
        self.rpc("bdev_null_create", "name=Comes", "num_blocks=262144", "block_size=4096")

    def rpc(self, *words):
        return subprocess.run([self.program, "rpc", "-s", self.socket, *words], capture_output=True, text=True)

    def lasts(self):
        return time.monotonic() < self.end and self.target.poll() is None and not self.failures

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def run(self, nsid, *words):
        where = f"trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={self.port} subnqn={NQN} ns={nsid}"
        command = [
            self.program,
            "run",
            "--name=soak",
            "--ioengine=nvme_tcp",
            "--eta=never",
            *words,
            f"--filename={where}",
        ]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=self.directory)

    def verify(self, nsid):
        """Hosts that write all of a namespace and read it back, with and without digests."""
        seed = nsid
        while self.lasts():
            seed += 2
            load = self.run(
                nsid, "--rw=randwrite", "--bsrange=4k-64k", "--size=64m", "--iodepth=16", f"--randseed={seed}",
                "--verify=crc32c", "--verify_fatal=1", f"--digest_enable={random.choice(['NONE', 'BOTH'])}",
            )  # fmt: skip
            said, _ = load.communicate()
            if load.returncode != 0:
                self.failures.append(f"a verified load on namespace {nsid} ends with {load.returncode}:\n{said}")
            self.count("verified runs")

    def reset(self):
        """Hosts that are killed amid I/O on a namespace of their own, as a machine that loses power."""
        while self.lasts():
            load = self.run(
                3, "--rw=randrw", "--bs=64k", "--iodepth=64", "--nr_io_queues=4", "--time_based", "--runtime=60"
            )
            time.sleep(random.uniform(0.05, 1))
            load.send_signal(signal.SIGKILL)
            load.communicate()
            self.count("resets")

    def churn(self):
        """A namespace that comes and goes under the hosts that are killed."""
        nqn = f"nqn={NQN}"
        while self.lasts():
            self.rpc("nvmf_subsystem_add_ns", nqn, "namespace.bdev_name=Comes", "namespace.nsid=3")
            time.sleep(random.uniform(0.1, 2))
            self.rpc("nvmf_subsystem_remove_ns", nqn, "nsid=3")
            self.count("namespaces")

    def attack(self):
        """Peers that send nonsense, stop in the middle, or never read."""
        kept = []
        while self.lasts():
            with contextlib.suppress(OSError):
                peer = socket.create_connection(("127.0.0.1", self.port), timeout=1)
                kind = random.randrange(5)
                if kind > 0:
                    peer.sendall(ICREQ)
                if kind == 1:
                    peer.sendall(random.randbytes(random.randrange(1, 4096)))
                elif kind == 2:  # capsules before Connect, whose answers nobody reads
                    peer.settimeout(0.05)
                    peer.sendall(struct.pack("<BBBBI", 4, 0, 72, 0, 72) + bytes(64))
                elif kind == 3:  # the beginning of a capsule
                    peer.sendall(struct.pack("<BBBBI", 4, 0, 72, 0, 72)[: random.randrange(1, 8)])
                kept.append(peer)
                self.count("hostile peers")
            while len(kept) > 500:
                kept.pop(random.randrange(len(kept))).close()
            time.sleep(0.002)
        for peer in kept:
            peer.close()

    def resident_kib(self):
        with open(f"/proc/{self.target.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    def go(self):
        work = [(self.verify, 1), (self.verify, 2), (self.reset,), (self.churn,), (self.attack,)]
        threads = [threading.Thread(target=what, args=args) for what, *args in work]
        for thread in threads:
            thread.start()
        resident = []
        while self.lasts():
            with contextlib.suppress(OSError, StopIteration):
                resident.append(self.resident_kib())
            time.sleep(0.5)
        ended = self.target.poll()
        for thread in threads:
            thread.join()
        if ended is None:
            self.target.terminate()
            ended = self.target.wait()
            if ended != 0:
                self.failures.append(f"the target ends with status {ended}")
        else:
            self.failures.append(f"the target ended early, with status {ended}")
        third = max(len(resident) // 3, 1)
        first, last = max(resident[:third], default=0), max(resident[-third:], default=0)
        if last > first + GROWTH_KIB:
            self.failures.append(f"resident memory grew from {first} to {last} KiB")
        if not self.counts["verified runs"]:
            self.failures.append("no verified run has ended: give more seconds")
        print("\n".join(self.failures))
        done = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        print(f"soak: {len(self.failures)} failures; {done}; resident {first} KiB, then {last} KiB")
        return 1 if self.failures else 0


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        return Soak(os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 3600.0, directory).go()


sys.exit(main())
