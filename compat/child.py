"""One child process of a wrapper: it gets the signals that would end the wrapper, and never outlives it."""

import ctypes
import os
import signal
import subprocess
import sys

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
PR_SET_PDEATHSIG = 1
# Rank and number of ranks, as Open MPI's mpirun, srun, and the hydra of MPICH and Intel tell them.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("PMI_RANK", "PMI_SIZE"),
)


def launched():
    """The rank of this process and the number of ranks that a launcher has started; (0, 1) for a process alone."""
    for rank, ranks in LAUNCHERS:
        told = os.environ.get(rank, ""), os.environ.get(ranks, "")
        if all(text.isdecimal() for text in told) and int(told[1]) > 1:
            return int(told[0]), int(told[1])
    return 0, 1


def _end_with_the_wrapper():
    """In the child: a wrapper that is killed takes the child with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


def run(command, **options):
    """Runs a command to its end, as subprocess.run does. A signal ends the command first, then the wrapper."""
    caught, child = [], None

    def pass_on(number, _frame):
        caught.append(number)
        if child:
            child.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in ENDING}
    try:
        child = subprocess.Popen(command, preexec_fn=_end_with_the_wrapper, **options)
        if caught:
            child.send_signal(signal.SIGTERM)
        out, err = child.communicate()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        sys.exit(128 + caught[0])
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def tell(program, verdicts):
    """Passes on the doubts about a result, each once: an imitated tool has no place for them in its tables."""
    told = {(one["severity"], one["code"], one["what"]): one for one in verdicts if one["severity"] != "note"}
    for severity, code, what in told:
        print(f"{program}: {severity} {code}: {what}", file=sys.stderr)
