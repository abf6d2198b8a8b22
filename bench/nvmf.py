#!/usr/bin/env python3
"""The NVMe/TCP target on loopback: one processor for the target, another for the initiator (ours).

    bench/nvmf.py [--plimsoll PATH] [--seconds 5] [--repeats 3] [--target-cpu 0] [--host-cpu 1] [CASE...]

Cases (all by default):
    speed     null and memory devices: 4k reads at depth 32 and 1, 128k reads, 128k writes
    idle      processor time of a target that has one idle connection
    slow      a fast null namespace beside one that takes 10 ms, depth 128 each, 128k reads, 6 MiB for data: paced by
              `auto`, by a buffer count, and with all the memory in the world
    depth     128k at depths 1 to 2048 over eight connections, memory, file and null: every depth past the load line, bytes in flight
    mix       80 % 128k and 20 % 4k on the same eight connections, 512 and 4096 outstanding: latency of the small ones, unpaced and paced
    memory    1,000 connections of 4 queues, idle; 10,000 connects and disconnects

Sides are interleaved (A B A B); medians of the repeats. Absolute figures belong to one machine, ratios do not.
Results are appended to bench/nvmf.md with their command lines.
"""

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

PORT = 4471
NQN = "nqn.2016-06.io.spdk:cnode1"
ADDRESS = f"trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={PORT} subnqn={NQN}"
MIB = 1 << 20
LINES = []


def say(line):
    print(line, flush=True)
    LINES.append(line)


class Target:
    """A running `plimsoll serve`, on a processor of its own."""

    def __init__(self, options, arguments, config=None):
        self.place = tempfile.TemporaryDirectory(prefix="plimsoll-bench-")
        self.rpc_path = os.path.join(self.place.name, "rpc")
        command = [options.plimsoll, "serve", "--rpc-socket", self.rpc_path, *arguments]
        if config:
            path = os.path.join(self.place.name, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
            command += ["-c", path]
        else:
            command += ["--listen", f"127.0.0.1:{PORT}"]
        self.command = command
        self.log = open(os.path.join(self.place.name, "log"), "w+", encoding="utf-8")
        prefix = ["taskset", "-c", str(options.target_cpu)]
        self.process = subprocess.Popen(prefix + command, stdout=self.log, stderr=subprocess.STDOUT)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.log.seek(0)
        sys.exit(f"{' '.join(command)}: does not listen\n{self.log.read()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.log.close()
        self.place.cleanup()

    def rpc(self, method, params=None):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self.rpc_path)
            request = {"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {})}
            control.sendall(json.dumps(request).encode())
            text = b""
            while True:
                text += control.recv(1 << 16)
                try:
                    answer = json.loads(text)
                except ValueError:
                    continue
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            for line in status:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) / 1024
        return 0.0

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def load(options, jobs, seconds=None):
    """The jobs' results, by name; all run at the same time on the initiator's processor."""
    seconds = seconds or options.seconds
    text = ["[global]", "ioengine=nvme_tcp", "thread=1", "time_based=1", f"runtime={seconds}", "ramp_time=1"]
    for name, parameters in jobs.items():
        text += [f"[{name}]", f"filename={ADDRESS} ns={parameters.pop('ns', 1)}"]
        text += [f"{key}={value}" for key, value in parameters.items()]
    with tempfile.NamedTemporaryFile("w", suffix=".fio") as file:
        file.write("\n".join(text) + "\n")
        file.flush()
        command = ["taskset", "-c", str(options.host_cpu), options.plimsoll, "run", "--output-format=json", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    result = {}
    for job in json.loads(done.stdout[done.stdout.index("{") :])["jobs"]:
        side = job["read"] if job["read"]["total_ios"] else job["write"]
        latency = side["clat_ns"]
        result.setdefault(job["jobname"], []).append(
            {
                "iops": side["iops"],
                "bytes": side["bw_bytes"],
                "mean_us": latency["mean"] / 1e3,
                "p99_us": latency.get("percentile", {}).get("99.000000", 0) / 1e3,
            }
        )
    return result


def total(result, what):
    return sum(job[what] for jobs in result.values() for job in jobs)


def median(values):
    return statistics.median(values)


def speed(options):
    say("| case | figure | initiator waits | processor time of the target per op |")
    say("| --- | --- | --- | --- |")
    cases = [
        ("null, 4k reads, depth 32", ["--null", "8g"], {"rw": "randread", "bs": "4k", "iodepth": 32}),
        ("null, 4k reads, depth 1", ["--null", "8g"], {"rw": "randread", "bs": "4k", "iodepth": 1}),
        ("null, 128k reads, depth 32", ["--null", "8g"], {"rw": "randread", "bs": "128k", "iodepth": 32}),
        ("memory, 128k writes, depth 32", ["--mem", "512m"], {"rw": "write", "bs": "128k", "iodepth": 32}),
    ]
    for name, arguments, job in cases:
        runs = []
        for _ in range(options.repeats):
            with Target(options, arguments) as target:
                # Once through: the memory is there.
                load(options, {"warm": dict(job)}, seconds=1)
                before = target.cpu_seconds()
                began = time.monotonic()
                result = load(options, {"job": dict(job)})
                share = (target.cpu_seconds() - before) / max(total(result, "iops") * (time.monotonic() - began), 1)
                runs.append((total(result, "iops"), total(result, "bytes"), result["job"][0]["mean_us"], share * 1e6))
        iops, rate, mean, cost = (median(column) for column in zip(*runs))
        say(f"| {name} | {iops / 1e3:,.1f} kIOPS, {rate / 1e9:.2f} GB/s | {mean:.1f} us | {cost:.2f} us |")


def idle(options):
    with Target(options, ["--null", "8g"]) as target:
        load(options, {"one": {"rw": "randread", "bs": "4k", "iodepth": 1}}, seconds=1)
        held = socket.create_connection(("127.0.0.1", PORT))
        before = target.cpu_seconds()
        time.sleep(10)
        say(f"idle for 10 s: {(target.cpu_seconds() - before) * 10:.2f} % of a processor")
        held.close()


def fast_and_slow():
    delay = {
        "avg_read_latency": 10000,
        "p99_read_latency": 10000,
        "avg_write_latency": 10000,
        "p99_write_latency": 10000,
    }
    size = {"num_blocks": 1 << 21, "block_size": 4096}
    listen = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": str(PORT)}
    bdev = [
        {"method": "bdev_null_create", "params": {"name": "Fast", **size}},
        {"method": "bdev_null_create", "params": {"name": "Base", **size}},
        {"method": "bdev_delay_create", "params": {"name": "Slow", "base_bdev_name": "Base", **delay}},
    ]
    nvmf = [
        {"method": "nvmf_create_transport", "params": {"trtype": "TCP"}},
        {"method": "nvmf_create_subsystem", "params": {"nqn": NQN, "allow_any_host": True, "serial_number": "1"}},
        {"method": "nvmf_subsystem_add_ns", "params": {"nqn": NQN, "namespace": {"bdev_name": "Fast", "nsid": 1}}},
        {"method": "nvmf_subsystem_add_ns", "params": {"nqn": NQN, "namespace": {"bdev_name": "Slow", "nsid": 2}}},
        {"method": "nvmf_subsystem_add_listener", "params": {"nqn": NQN, "listen_address": listen}},
    ]
    return {"subsystems": [{"subsystem": "bdev", "config": bdev}, {"subsystem": "nvmf", "config": nvmf}]}


def slow(options):
    job = {"rw": "randread", "bs": "128k", "iodepth": 128}
    sides = {
        "auto, 6 MiB": ["--memory", "6m"],
        "48 buffers": ["--pacing", "buffers:48"],
        "no pacing, no bound": ["--pacing", "none"],
    }
    runs = {name: [] for name in sides}
    for _ in range(options.repeats):
        for name, arguments in sides.items():
            with Target(options, arguments, fast_and_slow()) as target:
                alone = load(options, {"fast": dict(job)})
                both = load(options, {"fast": dict(job), "slow": {**job, "ns": 2}})
                pacers = [group["transports"][0]["io_pacer"] for group in target.rpc("nvmf_get_stats")["poll_groups"]]
            peak = sum(pacer.get("in_flight_bytes_peak", 0) for pacer in pacers)
            runs[name].append(
                (
                    total(both, "bytes") / total(alone, "bytes"),
                    both["fast"][0]["p99_us"] / alone["fast"][0]["p99_us"],
                    total(alone, "bytes") / 1e9,
                    both["slow"][0]["bytes"] / 1e9,
                    peak / MIB,
                )
            )
    say(
        "| pacing | both / fast alone | p99 of fast: both / alone | fast alone, GB/s | slow, GB/s | most in flight, MiB |"
    )
    say("| --- | --- | --- | --- | --- | --- |")
    for name, values in runs.items():
        whole, p99, alone, slow_rate, peak = (median(column) for column in zip(*values))
        say(f"| {name} | {whole:.1%} | {p99:.2f} | {alone:.2f} | {slow_rate:.2f} | {peak:.1f} |")


def depth(options):
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-", dir=options.directory) as place:
        file = os.path.join(place, "namespace")
        with open(file, "wb") as data:
            for _ in range(512):
                data.write(os.urandom(MIB))
        devices = {"null": ["--null", "8g"], "memory": ["--mem", "512m"], "file": ["--file", file]}
        for name, device in devices.items():
            depths_of(options, name, device)


def depths_of(options, name, device):
    """One thread drives all connections: what several would lose to each other on one processor is not the target's."""
    sides = {"auto, 16 MiB": ["--memory", "16m"], "no pacing": ["--pacing", "none"]}
    depths = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    rates = {(side, outstanding): [] for side in sides for outstanding in depths}
    peaks = {}
    for _ in range(options.repeats):
        for outstanding in depths:
            job = {
                "rw": "randread",
                "norandommap": 1,
                "size": "512m",
                "bs": "128k",
                "iodepth": outstanding,
                "nr_io_queues": min(8, outstanding),
            }
            for side, pacing in sides.items():
                with Target(options, device + pacing) as target:
                    rates[side, outstanding].append(total(load(options, {"job": dict(job)}), "bytes") / 1e9)
                    pacers = [
                        group["transports"][0]["io_pacer"] for group in target.rpc("nvmf_get_stats")["poll_groups"]
                    ]
                    peaks[side, outstanding] = sum(pacer.get("in_flight_bytes_peak", 0) for pacer in pacers) / MIB
    say(
        f"| {name}: depth | auto, 16 MiB: GB/s | of its best | most in flight, MiB | no pacing: GB/s | of its best | most in flight, MiB |"
    )
    say("| --- | --- | --- | --- | --- | --- | --- |")
    best = {side: max(median(rates[side, outstanding]) for outstanding in depths) for side in sides}
    for outstanding in depths:
        cells = []
        for side in sides:
            rate = median(rates[side, outstanding])
            cells += [f"{rate:.2f}", f"{rate / best[side]:.1%}", f"{peaks[side, outstanding]:.1f}"]
        say(f"| {outstanding} | {' | '.join(cells)} |")


def by_size(options, outstanding):
    """Bytes a second, and of each block size its latencies in us, sorted."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as place:
        command = [
            "taskset",
            "-c",
            str(options.host_cpu),
            options.plimsoll,
            "run",
            "--name=mix",
            "--ioengine=nvme_tcp",
            f"--filename={ADDRESS} ns=1",
            "--thread",
            "--time_based",
            f"--runtime={options.seconds}",
            "--ramp_time=1",
            "--rw=randread",
            "--norandommap",
            "--bssplit=128k/80:4k/20",
            f"--iodepth={outstanding}",
            "--nr_io_queues=8",
            "--write_lat_log=log",
            "--output-format=json",
        ]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        rate = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]["bw_bytes"]
        latencies = {}
        with open(os.path.join(place, "log_lat.1.log"), encoding="utf-8") as log:
            for line in log:
                _, ns, _, size, *_ = line.split(",")
                latencies.setdefault(int(size), []).append(int(ns) / 1e3)
    return rate, {size: sorted(values) for size, values in latencies.items()}


def mix(options):
    say("| outstanding | pacing | total, GB/s | 4k: mean, us | 4k: p99, us | 128k: mean, us | 128k: p99, us |")
    say("| --- | --- | --- | --- | --- | --- | --- |")
    sides = {"none": ["--pacing", "none"], "auto, 8 MiB": ["--memory", "8m"]}
    for outstanding in (512, 4096):
        runs = {side: [] for side in sides}
        for _ in range(options.repeats):
            for side, arguments in sides.items():
                with Target(options, ["--null", "8g", *arguments]):
                    rate, latencies = by_size(options, outstanding)
                row = [rate / 1e9]
                for size in (4 << 10, 128 << 10):
                    values = latencies[size]
                    row += [statistics.fmean(values), values[len(values) * 99 // 100]]
                runs[side].append(row)
        for side, rows in runs.items():
            whole, *times = (median(column) for column in zip(*rows))
            say(f"| {outstanding} | {side} | {whole:.2f} | {' | '.join(f'{time:,.0f}' for time in times)} |")


def handshake(qid, cntlid):
    """A connected queue: its socket and its controller."""
    link = socket.create_connection(("127.0.0.1", PORT))
    link.sendall(struct.pack("<BBBBI120x", 0, 0, 128, 0, 128))
    assert len(link.recv(128, socket.MSG_WAITALL)) == 128
    sgl = struct.pack("<QI3xB", 0, 1024, 1)
    command = struct.pack("<BBHB19x", 0x7F, 0x40, qid, 1) + sgl + struct.pack("<HHHBxI12x", 0, qid, 31, 0, 0)
    data = struct.pack("<16sH238x256s256s256x", b"plimsoll-bench..", cntlid, NQN.encode(), b"nqn.2016-06.io.spdk:bench")
    link.sendall(struct.pack("<BBBBI", 4, 0, 72, 72, 72 + 1024) + command + data)
    response = link.recv(24, socket.MSG_WAITALL)
    assert len(response) == 24 and struct.unpack_from("<H", response, 22)[0] >> 1 == 0, response.hex()
    return link, struct.unpack_from("<H", response, 8)[0]


def enable(link):
    """CC.EN."""
    command = struct.pack("<BBHB19x16x", 0x7F, 0x40, 9, 0) + struct.pack("<BxxxIQ8x", 0, 0x14, 0x00460001)
    link.sendall(struct.pack("<BBBBI", 4, 0, 72, 0, 72) + command)
    assert len(link.recv(24, socket.MSG_WAITALL)) == 24


def memory(options):
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Target(options, ["--null", "8g"]) as target:
        before = target.resident_mib()
        held = []
        for _ in range(1000):
            admin, cntlid = handshake(0, 0xFFFF)
            enable(admin)
            held.append(admin)
            for qid in range(1, 5):
                held.append(handshake(qid, cntlid)[0])
        say(f"1,000 controllers of 4 queues, idle: {target.resident_mib():.1f} MiB resident ({before:.1f} MiB before)")
        for link in held:
            link.close()

        def cycles(count):
            for _ in range(count):
                admin, cntlid = handshake(0, 0xFFFF)
                enable(admin)
                handshake(1, cntlid)[0].close()
                admin.close()
            time.sleep(2)
            return target.resident_mib(), target.descriptors()

        first, descriptors = cycles(1000)
        last, descriptors_after = cycles(9000)
        say(
            f"connects and disconnects: {first:.1f} MiB and {descriptors} descriptors after 1,000 cycles, "
            f"{last:.1f} MiB and {descriptors_after} after 10,000"
        )


CASES = {"speed": speed, "idle": idle, "slow": slow, "depth": depth, "mix": mix, "memory": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument(
        "--plimsoll",
        default=os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(here, "../target"), "release/plimsoll"),
    )
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--target-cpu", type=int, default=0)
    parser.add_argument("--host-cpu", type=int, default=1)
    parser.add_argument("--directory", default="/var/tmp", help="where the file of the file namespace is made")
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/nvmf.md")
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    options = parser.parse_args()
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]}; one of {', '.join(CASES)}")
    for case in options.cases:
        say(f"\n### {case}\n")
        CASES[case](options)
    if not options.no_record:
        uname = platform.uname()
        with open(os.path.join(here, "nvmf.md"), "a", encoding="utf-8") as record:
            record.write(
                f"\n## {time.strftime('%Y-%m-%d')}, Linux {uname.release.split('-')[0]}, {os.cpu_count()} processors\n\n"
            )
            record.write(
                f"`bench/nvmf.py --seconds {options.seconds} --repeats {options.repeats} {' '.join(options.cases)}`\n"
            )
            record.write("\n".join(LINES) + "\n")


if __name__ == "__main__":
    main()
