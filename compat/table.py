"""The options of IOR 4, mdtest and io500's ini file: one row each, with what it maps to, or why it is refused.

compat/ior, compat/mdtest and compat/io500 know their options from here, and compat/test_table.py tries every row.
As a program it prints the tables of docs/files.md.
"""

import re
import sys
from collections import namedtuple

# name: the letter, the long name or section.key. value: True if the option has one. does: what it maps to, None if it
# is refused. why: the reason of the refusal. example: words that show the effect, beside those of `base`. shows: the
# kind of the effect: `change` (what the program is asked, or the output, is another), `pause` (it takes a second more),
# `bound` (the example is refused by name), `note` (a line on standard error names the option), `absent` (a phase of the
# output is not there).
Row = namedtuple("Row", "name value does why example shows base")


def _does(name, does, example, base="", value=True, shows="change"):
    return Row(name, value, does, None, example, shows, base)


def _flag(name, does, base="", shows="change"):
    return _does(name, does, f"-{name}", base, False, shows)


def _refused(why, *names, value=False):
    example = {False: "", True: " 1"}[value]
    return [Row(name, value, None, why, f"-{name}{example}", "refused", "") for name in names]


_MPI = "it is of MPI-IO, HDF5 or NCMPI, and POSIX calls have nothing like it"
_LATER = "the tasks here have nothing like it"

IOR = [
    _does("a", "POSIX, the only interface", "-a MPIIO", shows="bound"),
    _does("b", "size= and io_size= of each task", "-b 128k"),
    _does("d", "a pause before each access", "-d 1", shows="pause"),
    _does("D", "runtime=", "-D 1"),
    _does("f", "a script of directives: a test for each RUN", "-f script"),
    _does("G", "randseed=, the seed of the contents", "-G 27"),
    _does("i", "repetitions", "-i 2"),
    _does("N", "the number of tasks on this host", "-N 1"),
    _does("o", "filename=", "-o other"),
    _does("O", "a list of directives, each with a row here", "-O segmentCount=2"),
    _does("Q", "the distance of the task whose file is read", "-Q 2", "-C -N 3"),
    _does("s", "the number of segments", "-s 2"),
    _does("t", "bs=", "-t 16k"),
    _flag("B", "direct=1"),
    _flag("C", "reads the file of another task"),
    _flag("e", "end_fsync=1"),
    _flag("E", "leaves the old file and its blocks in place", "-w"),
    _flag("F", "a file for each task"),
    _flag("g", "the total is the sum of the slowest open, transfer and close", ""),
    _flag("h", "prints the options"),
    _flag("k", "keeps the file"),
    _flag("m", "a file for each repetition, whose number ends its name"),
    _flag("r", "reads", "-w"),
    _flag("R", "reads, and once more with verify=crc32c; the write needs -R or -W too", "-w -r"),
    _flag("v", "a line for each task"),
    _flag("w", "writes"),
    _flag("W", "reads once more after a write, with verify=crc32c; without -w it writes nothing", "-w"),
    _flag("Y", "fsync=1", "-w"),
    _does("X", "the seed of -Z", "-X 2", "-C -Z -N 5"),
    _flag("z", "rw=randwrite and rw=randread"),
    _flag("Z", "each task reads the file of a task that is drawn", "-N 5"),
    _does("stoneWallingWearOut", "all tasks move as much as the fastest", "-O stoneWallingWearOut=1", "-D 1 -F"),
    _does("stoneWallingStatusFile", "keeps the transfers of a task", "-O stoneWallingStatusFile=st", "-D 1 -F -k -w -O stoneWallingWearOut=1"),
    _does("summaryFormat", "default, JSON or CSV", "-O summaryFormat=JSON"),
    _does("summaryFile", "the file that the table goes to", "-O summaryFile=table"),
    _does("posix.odirect", "direct=1", "--posix.odirect", value=False),
    *_refused(_MPI, "c", "H", "S", "V", "n", "p"),
    *_refused(_MPI, "J", "U", value=True),
    *_refused(_LATER, "I", "K", "q", "u", "x", "y"),
    *_refused(_LATER, "A", "j", "l", "M", "T", value=True),
    *[
        Row(name, True, None, _LATER, f"-O {name}=1", "refused", "")
        for name in ("stoneWallingWearOutIterations", "minTimeDuration", "memoryPerTask", "lustreStripeCount")
        + ("refNum", "debug", "platform", "numNodes", "numTasksOnNode0", "interIODelay", "summaryAlways")
        + ("allocateBufferOnGPU", "GPUid")
    ],
    *[
        Row(name, False, None, _LATER, f"--{name}", "refused", "")
        for name in ("dryRun", "warningAsErrors", "savePerOpDataCSV", "saveRankPerformanceDetailsCSV")
        + ("gpuDirect", "randomPrefill", "random-offset-seed", "posix.rangelocks")
    ],
]  # fmt: skip
# The long names of mdtest that have a letter, or another name here.
LONG_NAMES = {"verify-read": "X", "random-seed": "seed"}
# The directives of -O that have a letter.
DIRECTIVES = {
    "api": "a", "blocksize": "b", "intertestdelay": "d", "deadlineforstonewalling": "D", "fsync": "e",
    "useexistingtestfile": "E", "fileperproc": "F", "intratestbarriers": "g", "settimestampsignature": "G",
    "repetitions": "i", "keepfile": "k", "numtasks": "N", "testfile": "o", "taskpernodeoffset": "Q", "readfile": "r",
    "segmentcount": "s", "transfersize": "t", "verbose": "v", "writefile": "w", "fsyncperwrite": "Y",
    "randomoffset": "z", "reordertasks": "C", "reordertasksconstant": "C", "useo_direct": "B", "checkread": "R",
    "checkwrite": "W", "collective": "c", "multifile": "m", "keepfilewitherror": "K", "uniquedir": "u",
    "reordertasksrandom": "Z", "reordertasksrandomseed": "X", "maxtimeduration": "T", "outlierthreshold": "j",
    "setalignment": "J", "quitonerror": "q", "singlexferattempt": "x", "preallocate": "p", "usefileview": "V",
    "usestrideddatatype": "S", "hintsfilename": "U", "showhints": "H", "nofill": "n", "individualdatasets": "I",
    "datapackettype": "l", "memorypernode": "M", "dualmount": "y", "testnum": "A",
}  # fmt: skip

_COUNTED = "all tasks take part in every phase here"
_OWN = "task 0 makes the files of all tasks, or all tasks open one file; a task here makes and writes only its own"
_RENAMES = "it renames each directory to the name of the one before; no operation here renames directories"
_LUSTRE = "it resets the layout of directories by Lustre's library, and mdtest has it only where that is built in"

MDTEST = [
    _does("a", "POSIX, the only interface", "-a MPIIO", shows="bound"),
    _does("b", "--branching", "-b 2", "-z 1"),
    _does(
        "B", "0 only: with 1 mdtest 4 ends with an error, because its stonewall needs barriers", "-B 1", shows="bound"
    ),
    _does("d", "--dir", "-d other"),
    _does("e", "--size of the read: from the beginning of each file", "-e 1k", "-w 4k"),
    _does("i", "--iterations", "-i 2"),
    _does("I", "--files-per-dir", "-I 2"),
    _flag("h", "prints the options"),
    _does("n", "--files", "-n 8"),
    _does("N", "--neighbour", "-N 1"),
    _does("p", "a pause before each iteration", "-p 1", shows="pause"),
    _does("V", "a line for each iteration", "-V 1"),
    _does("w", "--size", "-w 4k"),
    _does("W", "--runtime and --finish even, of the creation of files", "-W 1", "-C"),
    _does("x", "keeps the files of each task of a stonewall", "-x st", "-C -W 1"),
    _does("z", "--depth", "-z 1"),
    _flag("C", "the phases that make"),
    _flag("D", "directories only"),
    _flag("E", "the phase that reads", "-C"),
    _flag("F", "files only"),
    _flag("k", "mknod"),
    _flag("L", "--leaves-only", "-z 1 -b 2"),
    _flag("P", "a table of seconds beside that of rates"),
    _flag("r", "the phases that remove", "-C"),
    _flag("R", "--random-order"),
    _flag("t", "no change: directories are made before the clock starts", shows="note"),
    _flag("T", "the phases that stat", "-C"),
    _flag("u", "no --shared: each task has directories of its own"),
    _flag("v", "a line for each iteration"),
    _flag("X", "--verify", "-w 4k -e 4k"),
    _flag("y", "--fsync"),
    _flag("Y", "sync(2) after each phase, in its time"),
    _flag("Z", "a table of seconds, not of rates"),
    *_refused(_COUNTED, "f", "l", "s", value=True),
    *_refused(_OWN, "c", "S"),
    *_refused(_RENAMES, "U"),
    *_refused(_LUSTRE, "g"),
    *_refused(_LATER, "G", value=True),
    _does("verify-read", "--verify, as -X", "--verify-read", "-w 4k -e 4k", value=False),
    _does("random-seed", "--seed, with -R", "--random-seed=7", "-R"),
    *[
        Row(name, False, None, _LATER, f"--{name}", "refused", "")
        for name in ("dataPacketType", "run-cmd-before-phase", "run-cmd-after-phase", "warningAsErrors")
        + ("showRankStatistics", "saveRankPerformanceDetails", "savePerOpDataCSV", "print-all-procs")
        + ("verify-write", "allocateBufferOnGPU", "GPUid", "gpuDirect")
    ],
]


def _ini(name, does, value, shows="change", base=""):
    return Row(name, True, does, None, f"{name}={value}", shows, base)


PHASES = (
    "ior-easy-write mdtest-easy-write ior-hard-write mdtest-hard-write find ior-easy-read mdtest-easy-stat "
    "ior-hard-read mdtest-hard-stat mdtest-easy-delete mdtest-hard-read mdtest-hard-delete ior-rnd4K-easy-read"
).split()
_FINDS = ("", "-easy", "-hard")  # the last two are phases of the extended mode only
# Keys that may stand in an ini file with the value that io500 gives them without it.
DEFAULTS = {
    "global.io-buffers-on-gpu": "FALSE",
    "global.verbosity": "1",
    "global.dataPacketType": "timestamp",
    "ior-easy.filePerProc": "TRUE",
    "ior-easy.uniqueDir": "FALSE",
    **{f"{phase}.run": "TRUE" for phase in ("ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard")},
    **{f"{phase}.run": "TRUE" for phase in PHASES if phase.endswith("-write")},
    **{f"ior-hard{phase}.collective": "FALSE" for phase in ("", "-write", "-read")},
    **{f"find{phase}.pfind-queue-length": "10000" for phase in _FINDS},
    **{f"find{phase}.pfind-steal-next": "FALSE" for phase in _FINDS},
    **{f"find{phase}.pfind-parallelize-single-dir-access-using-hashing": "FALSE" for phase in _FINDS},
    **{f"find{phase}.run": "TRUE" for phase in _FINDS if phase},
}
IO500 = [
    _ini("global.datadir", "the directory", "data"),
    _ini("global.api", "POSIX, the only interface", "MPIIO", "bound"),
    _ini("global.resultdir", "result_summary.txt and result.txt are written there", "results"),
    _ini("global.timestamp-datadir", "TRUE: a directory of the moment below datadir", "TRUE"),
    _ini(
        "global.timestamp-resultdir",
        "TRUE: a directory of the moment below resultdir",
        "TRUE",
        base="global.resultdir=results",
    ),
    _ini(
        "global.drop-caches",
        "TRUE: drops the caches before each phase",
        "TRUE",
        base="'global.drop-caches-cmd=touch dropped'",
    ),
    _ini(
        "global.drop-caches-cmd",
        "the command that drops the caches; default: that of io500",
        "'touch here'",
        base="global.drop-caches=TRUE 'global.drop-caches-cmd=touch there'",
    ),
    _ini("debug.stonewall-time", "-D and -W of the writes, with wear-out and a status file", "1"),
    _ini("ior-easy.blockSize", "-b of ior-easy", "2m"),
    _ini("ior-easy.transferSize", "-t of ior-easy", "1m"),
    _ini("ior-hard.segmentCount", "-s of ior-hard", "3"),
    _ini("mdtest-easy.n", "-n of mdtest-easy", "7"),
    _ini("mdtest-hard.n", "-n of mdtest-hard", "7"),
    _ini("global.scc", "TRUE: a phase that writes for 30 seconds is valid, not for 300", "TRUE"),
    *[
        _ini(f"{phase}.API", "POSIX, the only interface", "MPIIO", "bound")
        for phase in ("ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard", *PHASES)
        if phase != "find"
    ],
    *[
        _ini(f"{phase}.run", "FALSE leaves the phase out", "FALSE", "absent")
        for phase in PHASES
        if not phase.endswith("-write")
    ],
    *[_ini(name, f"{default} only, which is io500's default", "7", "bound") for name, default in DEFAULTS.items()],
    *[
        Row(name, True, None, _LATER, f"{name}=1", "refused", "")
        for name in "debug.pause-dir ior-easy.verbosity ior-hard.verbosity mdtest-hard.files-per-dir "
        "find.external-script find.external-mpi-args find.external-extra-args find.nproc".split()
    ],
]


class Tool:
    """The options of one tool, as its users type them."""

    def __init__(self, name, rows):
        self.name, self.rows = name, {row.name: row for row in rows}

    def refuse(self, what):
        print(f"{self.name}: {what}", file=sys.stderr)
        sys.exit(2)

    def help(self, head):
        """Prints the head of the script, then each option that is done with what it does here."""
        print(f"{head.strip()}\n\nOptions:")
        for row in self.rows.values():
            if row.does is not None:
                option = shown(self.name, row).strip("`") + (" VALUE" if row.value else "")
                print(f"  {option:<34} {row.does}")

    def row(self, option, shown):
        """The row of an option that is done; any other is refused by name."""
        row = self.rows.get(option)
        if row is None:
            self.refuse(f"{shown} is not known here (docs/files.md lists the options that are)")
        if row.does is None:
            self.refuse(f"{shown} is refused: {row.why}")
        return row

    def number(self, option, text):
        """A count or a size: 10, 4k, 2m, 1g, 1t."""
        found = re.fullmatch(r"(\d+)([kKmMgGtT]?)", text or "")
        if not found:
            self.refuse(f"-{option} {text!r} is not a number (expected 10, 4k, 2m)")
        return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[found[2].lower()]

    def options(self, words, seeded=""):
        """The options by name: flags are True, others their text. Flags may stand together; those in `seeded` may have
        a number, which is then the option `seed`."""
        given = {}
        words = list(words)
        while words:
            word = words.pop(0)
            if word.startswith("--") and len(word) > 2:
                name, equals, text = word[2:].partition("=")
                row = self.row(name, f"--{name}")
                if equals and not row.value:
                    self.refuse(f"--{name} takes no value")
                if row.value and not equals and not words:
                    self.refuse(f"--{name} needs a value")
                given[LONG_NAMES.get(name, name)] = (text if equals else words.pop(0)) if row.value else True
                continue
            if not word.startswith("-") or len(word) < 2 or word == "--":
                self.refuse(
                    f"{word!r} is not an option of {self.name} that is known here (expected letters, such as -n 100)"
                )
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                row = self.row(letter, f"-{letter}")
                if not row.value:
                    given[letter] = True
                    if letter in seeded and letters[:1] in ("=", *"0123456789"):
                        given["seed"], letters = letters.removeprefix("="), ""
                    continue
                if not letters and not words:
                    self.refuse(f"-{letter} needs a value")
                text = letters.removeprefix("=") if letters else words.pop(0)
                letters = ""
                if letter == "O":
                    self.directives(text, given)
                else:
                    given[letter] = text
        return given

    def script(self, path, given):
        """The options of each RUN of IOR's script: `given`, and the directives up to there."""
        try:
            with open(path, encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except (OSError, UnicodeDecodeError) as error:
            self.refuse(f"-f {path}: cannot read it: {error}")
        tests = []
        for line in lines:
            words = line.lower().split()
            if words[:1] == ["run"]:
                tests.append(dict(given))
            elif words == ["ior", "stop"]:
                break
            elif line.startswith("--"):
                given.update(self.options(line.split()))
            elif words and not line.startswith("#") and words != ["ior", "start"]:
                name, equals, value = line.partition("=")
                self.directives(f"{name.strip()}{equals}{value.strip()}", given)
        if not tests:
            self.refuse(f"-f {path}: no line says RUN")
        return tests

    def directives(self, text, given):
        """Adds the directives of IOR's -O, which have the names of a script's."""
        for directive in text.split(","):
            name, equals, value = directive.partition("=")
            if not equals:
                self.refuse(f"-O {directive}: expected NAME=VALUE")
            letter = DIRECTIVES.get(name.lower())
            known = letter or next((row for row in self.rows if row.lower() == name.lower()), name)
            if self.row(known, f"-O {name}").value:
                given[known] = value
            elif value not in ("0", "1"):
                self.refuse(f"-O {name}={value}: expected 0 or 1")
            elif value == "1":
                given[known] = True
            else:
                given.pop(known, None)


TOOLS = {"ior": IOR, "mdtest": MDTEST, "io500": IO500}


def tool(name):
    return Tool(name, TOOLS[name])


def read_status(path):
    """The number in a status file; None without one."""
    try:
        with open(path, encoding="ascii") as file:
            number = int(file.read())
    except (OSError, ValueError):
        return None
    return number if number > 0 else None


def write_status(path, number):
    with open(path, "w", encoding="ascii") as file:
        print(number, file=file)


def shown(tool, row):
    """An option as its users write it."""
    if tool == "io500":
        return f"`{row.name}`"
    if len(row.name) == 1:
        return f"`-{row.name}`"
    return f"`-O {row.name}`" if row.value and tool == "ior" else f"`--{row.name}`"


def document():
    """The tables of docs/files.md: what each option maps to, and what is refused and why."""
    lines = []
    for tool, rows in TOOLS.items():
        lines += [f"### Options of {tool}", "", "| option | here |", "| --- | --- |"]
        done, refused = {}, {}
        for row in rows:
            (done if row.does else refused).setdefault(row.does or row.why, []).append(shown(tool, row))
        lines += [f"| {' '.join(names)} | {does} |" for does, names in done.items()]
        lines += [f"| {' '.join(names)} | refused: {why} |" for why, names in refused.items()]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(document(), end="")
