#!/usr/bin/env python3
"""What `trap --raw` costs: a system call of libc and an inline one, without the library, with it, and with --raw.

    bench/iotrap/raw.py [--library target/release/libiotrap.so] [--pairs 21] [--milliseconds 200]

The calls are getppid(2) of libc and pread(2) of 4 KiB from memory (a file outside the pool), and the same two by inline
instructions. Sides in turns; medians of nanoseconds a call, and of the paired ratios with their quartiles. Appends the
result to bench/iotrap/raw.md. It needs Linux 5.11 on x86-64 and a machine with nothing else to do.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long call(long number, long a, long b, long c, long d)
{
	long result;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **arguments)
{
	static char buffer[4096];
	double most = atof(arguments[count - 1]) * 1e6;
	int fd = open(arguments[1], O_RDONLY);
	for (int kind = 0; kind < 4; kind++) {
		long calls = 0;
		double begun = now(), spent;
		do {
			for (int turn = 0; turn < 100; turn++) {
				switch (kind) {
				case 0: getppid(); break;
				case 1: if (pread(fd, buffer, sizeof buffer, 0) != sizeof buffer) return 1; break;
				case 2: call(SYS_getppid, 0, 0, 0, 0); break;
				default: if (call(SYS_pread64, fd, (long)buffer, sizeof buffer, 0) != sizeof buffer) return 1;
				}
			}
			calls += 100;
		} while ((spent = now() - begun) < most);
		printf("%.2f ", spent / (double)calls);
	}
	return 0;
}
"""
KINDS = ["getppid of libc", "pread of libc", "inline getppid", "inline pread"]
SIDES = ["without the library", "trap", "trap --raw"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=ROOT / "target/release/libiotrap.so")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--milliseconds", type=int, default=200)
    options = parser.parse_args()
    library = options.library.resolve()
    if not library.exists():
        sys.exit(f"{library} is not there: cargo build --release -p iotrap, or give --library")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        source, program, file = Path(place, "raw.c"), Path(place, "raw"), Path(place, "file")
        source.write_text(PROGRAM)
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        file.write_bytes(bytes(4096))
        for lane in "ab":
            Path(place, lane).mkdir()
        trapped = {"LD_PRELOAD": str(library), "IOTRAP_MOUNT_POOLS": f"p:{place}/a/,{place}/b/"}
        environments = [{}, trapped, trapped | {"IOTRAP_RAW": "1"}]
        samples = [[[] for _ in KINDS] for _ in SIDES]
        for _ in range(options.pairs):
            for side, more in enumerate(environments):
                command = [program, file, str(options.milliseconds)]
                output = subprocess.run(command, env=os.environ | more, check=True, capture_output=True, text=True)
                if output.stderr:
                    sys.exit(output.stderr)
                for kind, value in enumerate(output.stdout.split()):
                    samples[side][kind].append(float(value))
    lines = [f"\n## Linux {platform.release().partition('-')[0]}, {os.cpu_count()} processors\n"]
    lines += ["| call | " + " | ".join(SIDES) + " | trap --raw against trap |", "| --- | --- | --- | --- | --- |"]
    for kind, name in enumerate(KINDS):
        medians = [f"{statistics.median(samples[side][kind]):.0f} ns" for side in range(len(SIDES))]
        ratios = [raw / trap for raw, trap in zip(samples[2][kind], samples[1][kind])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        lines.append(f"| {name} | " + " | ".join(medians) + f" | {middle:.2f} ({low:.2f} to {high:.2f}) |")
    lines.append(f"\n`bench/iotrap/raw.py --pairs {options.pairs} --milliseconds {options.milliseconds}`")
    text = "\n".join(lines) + "\n"
    print(text)
    with open(ROOT / "bench/iotrap/raw.md", "a", encoding="utf-8") as results:
        results.write(text)


if __name__ == "__main__":
    main()
