//! The sections of the manual pages that no table of arguments holds: examples, statuses, files, environment, and the
//! page of libiotrap.

use lanes::environment::{
    ASYNC_VARIABLE, DRY_RUN_VARIABLE, FILTERS_VARIABLE, IOLOG_VARIABLE, RAW_VARIABLE, STATS_VARIABLE, TRACE_VARIABLE,
};
use lanes::pool::{FILE_VARIABLE, POOLS_VARIABLE, TEXT_VARIABLE};

use super::roff::{bold, list, prose, verbatim};

/// A row of a list: a command, a path or a variable, and its meaning.
type Row = (&'static str, &'static str);

/// The sections of one subcommand; [`of`] adds the rows that all pages share.
struct Sections {
    name: &'static str,
    examples: &'static [Row],
    /// Exit statuses besides [`DEFECT`], which every page has.
    statuses: &'static [Row],
    files: &'static [Row],
    environment: &'static [Row],
    see_also: &'static [&'static str],
}

const DONE: Row = ("0", "The program did everything that was asked.");
const JOB_FAILED: Row = ("1", "At least one job failed. The result names the job and the error.");
const OPERATION_FAILED: Row = ("1", "An operation failed. The result counts the errors.");
const BAD_INPUT: Row =
    ("2", "The program cannot carry out the input. One line on standard error says why. It leaves nothing behind.");
const SLOWER: Row = ("3", "`compare --fail-if-slower`: side B is slower.");
const CANNOT_TELL: Row =
    ("4", "`compare`: a run is invalid, or `--fail-if-slower` has no answer, because its figure says `cannot tell`.");
const DEFECT: Row = ("101", "A defect of the program. Please report it.");
const INTERRUPTED: Row = ("130", "A signal ended the program. Its output is partial.");

const BOARDS: Row = (
    "/run/plimsoll, $XDG_RUNTIME_DIR/plimsoll, /tmp/plimsoll-UID",
    "The directory of the boards, which hold the counters of running programs for plimsoll top. Root uses the first one.",
);
const DOCUMENTS: Row = ("/usr/share/doc/plimsoll", "Documents, configurations and example job files of the package.");
const SCRATCH: Row = (
    "./plimsoll-scratch.HOST.PID",
    "The scratch file of a sweep over a directory. The program removes it when it ends.",
);
const SOCKET: Row = ("/var/tmp/spdk.sock", "The control socket of plimsoll serve, unless --rpc-socket names another.");
const RUNTIME: Row = ("PLIMSOLL_RUNTIME_DIR", "The directory of the boards; it replaces the usual one.");
const NO_COLOR: Row = ("NO_COLOR", "Any value turns colours off.");
const LIBGFAPI: Row =
    ("PLIMSOLL_LIBGFAPI", "The path of libgfapi; without this variable the loader searches for libgfapi.so.0.");
const MPI: Row = (
    "OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID",
    "The rank of this process: mpirun and srun set it. A build without the feature mpi refuses to run then.",
);

const PAGES: &[Sections] = &[
    Sections {
        name: "plimsoll",
        examples: &[
            ("plimsoll sweep", "Find the load line of the file system of this directory."),
            ("plimsoll run nightly.fio", "Run a job file of fio."),
            ("plimsoll help serve", "Explain a subcommand."),
            ("plimsoll version", "Print the commit, the features and the optional libraries of this build."),
        ],
        statuses: &[DONE, JOB_FAILED, BAD_INPUT, SLOWER, CANNOT_TELL, INTERRUPTED],
        files: &[BOARDS],
        environment: &[RUNTIME, NO_COLOR, LIBGFAPI],
        see_also: &["fio(1)", "guasi(3)", "libiotrap(7)"],
    },
    Sections {
        name: "run",
        examples: &[
            ("plimsoll run nightly.fio", "Run the jobs of a file."),
            ("plimsoll run --check nightly.fio", "List doubts about a job file, without running it."),
            (
                "plimsoll run --name=a --rw=randread --size=1g --runtime=10s --time_based",
                "Run a job that the command line describes.",
            ),
            ("plimsoll run --output-format=json --output=result.json nightly.fio", "Write fio's JSON to a file."),
            ("mpirun --host a,b plimsoll run nightly.fio", "Run on two hosts, with one start and one result."),
        ],
        statuses: &[DONE, JOB_FAILED, BAD_INPUT, INTERRUPTED],
        files: &[BOARDS],
        environment: &[RUNTIME, NO_COLOR, LIBGFAPI, MPI],
        see_also: &["fio(1)", "plimsoll-sweep(1)", "plimsoll-compare(1)", "plimsoll-report(1)"],
    },
    Sections {
        name: "fio",
        examples: &[
            ("plimsoll fio nightly.fio", "Run a job file with the defaults and the exit statuses of fio."),
            ("ln -s /usr/bin/plimsoll ~/bin/fio", "Let scripts that call fio find Plimsoll."),
        ],
        statuses: &[
            DONE,
            ("1", "A job failed, or the program cannot carry out the arguments."),
            ("128", "A signal ended the program. Its output is partial."),
        ],
        files: &[BOARDS],
        environment: &[RUNTIME, NO_COLOR, LIBGFAPI],
        see_also: &["fio(1)", "plimsoll-run(1)"],
    },
    Sections {
        name: "sweep",
        examples: &[
            ("plimsoll sweep", "Sweep the depth over a scratch file in this directory."),
            (
                "plimsoll sweep /dev/nvme0n1 --engine io_uring,libaio",
                "Sweep a device with two engines. The sweep only reads.",
            ),
            ("plimsoll sweep --iodepth 1,8,64 --point-time 2s", "Measure three depths for two seconds each."),
        ],
        statuses: &[DONE, JOB_FAILED, BAD_INPUT, INTERRUPTED],
        files: &[
            SCRATCH,
            (
                "plimsoll-sweep-N.json, plimsoll-sweep-N.html",
                "The result. The files are in the current directory; --no-files leaves them out.",
            ),
        ],
        environment: &[NO_COLOR, LIBGFAPI, MPI],
        see_also: &["plimsoll-run(1)", "plimsoll-compare(1)", "plimsoll-report(1)"],
    },
    Sections {
        name: "compare",
        examples: &[
            ("plimsoll compare a.fio b.fio", "Run two job files in turns and compare them."),
            ("plimsoll compare a.fio b.fio --fail-if-slower 3%", "End with status 3 if the second is 3 % slower."),
            ("plimsoll compare --engine psync,io_uring --name=a --rw=randread --size=1g", "Compare two engines."),
        ],
        statuses: &[DONE, JOB_FAILED, BAD_INPUT, SLOWER, CANNOT_TELL, INTERRUPTED],
        files: &[DOCUMENTS],
        environment: &[NO_COLOR, LIBGFAPI],
        see_also: &["plimsoll-run(1)", "plimsoll-report(1)"],
    },
    Sections {
        name: "files",
        examples: &[
            ("plimsoll files --op create,stat,unlink --files 1000 --dir D", "Create, stat and remove 1000 files."),
            ("plimsoll files --op create,read:70+stat:30 --threads 4", "Make files, then mix reads with stats."),
            ("plimsoll files --fs gluster://host/volume --op create,read --dir /", "Work on a volume without FUSE."),
        ],
        statuses: &[DONE, OPERATION_FAILED, BAD_INPUT, INTERRUPTED],
        files: &[DOCUMENTS],
        environment: &[NO_COLOR, LIBGFAPI, MPI],
        see_also: &["plimsoll-gfapi_perf_tool(1)", "plimsoll-fsperf(1)"],
    },
    Sections {
        name: "gfapi_perf_tool",
        examples: &[
            (
                "GFAPI_FUSE=1 GFAPI_BASEDIR=/mnt/v GFAPI_LOAD=seq-wr GFAPI_FILES=100 gfapi_perf_tool",
                "Write 100 files below a mount.",
            ),
            (
                "GFAPI_VOLNAME=v GFAPI_HOSTNAME=server GFAPI_BASEDIR=/ GFAPI_LOAD=seq-rd gfapi_perf_tool",
                "Read the files of a volume through libgfapi.",
            ),
        ],
        statuses: &[DONE, ("1", "An operation failed, or nobody fired the starting gun."), BAD_INPUT, INTERRUPTED],
        files: &[DOCUMENTS],
        environment: &[
            ("GFAPI_...", "The variables of gfapi_perf_tool. gfapi_perf_tool -h lists them with their defaults."),
            ("DEBUG", "1 prints the latencies of all calls on standard error."),
            LIBGFAPI,
        ],
        see_also: &["plimsoll-files(1)"],
    },
    Sections {
        name: "fsperf",
        examples: &[
            ("fsperf /mnt/data", "Write, overwrite and read one file, with many blocks in flight and with one."),
            ("fsperf --test read --mode latency --filesize 1g /mnt/data", "Read one block at a time."),
        ],
        statuses: &[DONE, OPERATION_FAILED, BAD_INPUT, INTERRUPTED],
        files: &[("DIR/fsperf.dat", "The file of the test. The program removes it; --noclean keeps it.")],
        environment: &[NO_COLOR],
        see_also: &["plimsoll-files(1)", "plimsoll-run(1)"],
    },
    Sections {
        name: "report",
        examples: &[
            ("plimsoll report result.json -o page.html", "Make one page of a result."),
            ("plimsoll report a.json b.json", "Put several results, fio's too, on one page."),
        ],
        statuses: &[DONE, BAD_INPUT],
        files: &[DOCUMENTS],
        environment: &[NO_COLOR],
        see_also: &["plimsoll-run(1)", "plimsoll-sweep(1)", "plimsoll-compare(1)"],
    },
    Sections {
        name: "history",
        examples: &[
            ("plimsoll history results/", "Show the sweeps of a directory by time, and where they changed."),
            ("plimsoll history *.json --html history.html", "Make a page of these sweeps."),
            (
                "plimsoll history results/ --fail-if-slower 5%",
                "End with status 3 if the last change made a plateau more than 5 % lower.",
            ),
        ],
        statuses: &[
            DONE,
            BAD_INPUT,
            ("3", "`--fail-if-slower`: the last change made a plateau lower than allowed."),
            ("4", "`--fail-if-slower`: no target has enough results to tell a change from noise."),
        ],
        files: &[DOCUMENTS],
        environment: &[NO_COLOR],
        see_also: &["plimsoll-sweep(1)", "plimsoll-compare(1)", "plimsoll-report(1)"],
    },
    Sections {
        name: "serve",
        examples: &[
            ("plimsoll serve --null 8g", "Serve a device without storage behind it, on this machine only."),
            ("plimsoll serve --file disk.img --create 8g --memory 64m", "Serve a file, with 64 MiB of buffers."),
            (
                "plimsoll serve -c configs/null_16.json --cores 0-3",
                "Serve the devices of an SPDK configuration file, with a reactor on each of four processors.",
            ),
            (
                "plimsoll serve --file /dev/nvme1n1 --listen 10.0.0.1 --allow-host NQN",
                "Serve a block device to one host of the network.",
            ),
        ],
        statuses: &[
            ("0", "SIGTERM, SIGINT or `plimsoll rpc spdk_kill_instance` ended the target in good order."),
            BAD_INPUT,
            ("130", "A second signal ended the target at once."),
            ("137", "`plimsoll rpc spdk_kill_instance sig_name=SIGKILL` ended the target at once."),
        ],
        files: &[SOCKET, DOCUMENTS, BOARDS],
        environment: &[RUNTIME],
        see_also: &["plimsoll-rpc(1)", "plimsoll-top(1)", "nvme(1)"],
    },
    Sections {
        name: "rpc",
        examples: &[
            ("plimsoll rpc", "List the methods. This call works without a target."),
            ("plimsoll rpc bdev_null_create --help", "Explain a method. This call works without a target."),
            ("plimsoll rpc nvmf_get_subsystems", "Show the subsystems of the target."),
            (
                "plimsoll rpc bdev_null_create name=Null1 num_blocks=2097152 block_size=4096",
                "Make a device in the target.",
            ),
            (
                "plimsoll rpc nvmf_subsystem_add_ns nqn=nqn.2016-06.io.spdk:cnode1 namespace.bdev_name=Null1",
                "Add the device to a subsystem.",
            ),
            ("plimsoll rpc save_config > target.json", "Save the configuration, for `plimsoll serve -c`."),
            ("plimsoll rpc load_config < target.json", "Restore the configuration in an empty target."),
            ("plimsoll rpc ls", "Show the whole target as a tree."),
        ],
        statuses: &[
            DONE,
            ("2", "The target refused the call, or did not answer. One line on standard error says why."),
        ],
        files: &[SOCKET],
        environment: &[NO_COLOR],
        see_also: &["plimsoll-serve(1)"],
    },
    Sections {
        name: "trap",
        examples: &[
            (
                "plimsoll trap --pool v=/mnt/a,/mnt/b -- fio --name=j --filename=/mnt/a/big --rw=read --bs=64k \\\n    --ioengine=libaio --iodepth=32 --direct=1",
                "Read one file over two mounts.",
            ),
            (
                "plimsoll trap --pool v=/mnt/a --dry-run -- PROGRAM",
                "Print the share of a program's requests that would be spread, before there is a second mount.",
            ),
            (
                "plimsoll trap --pool v=/mnt/a,/mnt/b --stats -- PROGRAM",
                "Print the share of each mount when the program has ended.",
            ),
        ],
        statuses: &[
            ("2", "The pools or the arguments are not valid. The program did not start."),
            ("126", "The program cannot start."),
            ("127", "The program does not exist."),
            ("128+N", "Signal N ended the program."),
            ("other", "The status of the program."),
        ],
        files: &[BOARDS],
        environment: &[
            RUNTIME,
            (TEXT_VARIABLE, "The pools, unless --pool or --pool-file gives them. libiotrap(7) lists all variables."),
        ],
        see_also: &["libiotrap(7)", "plimsoll-lanes(1)", "plimsoll-top(1)"],
    },
    Sections {
        name: "lanes",
        examples: &[
            ("plimsoll lanes --pool v=/mnt/a,/mnt/b", "Test whether the two mounts are two connections to one volume."),
            (
                "plimsoll lanes --pool v=/mnt/a,/mnt/b --program ./db",
                "Test whether the library can spread a program's I/O.",
            ),
        ],
        statuses: &[("0", "The lanes have no fault."), ("1", "A lane has a fault, which the output names."), BAD_INPUT],
        files: &[("/proc/self/mountinfo, /proc/fs/nfsfs", "The mounts and the connections of NFS.")],
        environment: &[(TEXT_VARIABLE, "The pools, unless --pool or --pool-file gives them.")],
        see_also: &["libiotrap(7)", "plimsoll-trap(1)"],
    },
    Sections {
        name: "top",
        examples: &[
            ("plimsoll top", "Show all running programs, once a second."),
            ("plimsoll top --once --json", "Print one table as JSON."),
        ],
        statuses: &[DONE, BAD_INPUT],
        files: &[BOARDS],
        environment: &[RUNTIME, NO_COLOR, ("TERM", "dumb prints lines instead of a screen.")],
        see_also: &["plimsoll-trap(1)", "plimsoll-serve(1)", "plimsoll-run(1)"],
    },
    Sections {
        name: "watch",
        examples: &[
            ("plimsoll watch", "Show all disks and NFS mounts, once a second."),
            (
                "plimsoll watch /dev/nvme0n1 --against plimsoll-sweep-1.json",
                "Compare the depth of a device with the load line that a sweep found.",
            ),
            ("plimsoll watch /mnt/data --json --for 1m", "Print a JSON object a second, for a minute."),
            ("plimsoll watch --prometheus 9834", "Serve the counters for Prometheus, on this machine only."),
        ],
        statuses: &[DONE, BAD_INPUT],
        files: &[
            ("/proc/diskstats", "The counters of disks."),
            ("/proc/self/mountstats", "The counters of NFS mounts."),
            ("io.stat, blkio.throttle.io_serviced", "The counters of a control group."),
            ("/proc/PID/io", "The counters of a process."),
        ],
        environment: &[NO_COLOR, ("TERM", "dumb prints lines instead of a screen.")],
        see_also: &["plimsoll-sweep(1)", "plimsoll-top(1)", "iostat(1)", "nfsiostat(8)"],
    },
    Sections {
        name: "sim",
        examples: &[
            ("plimsoll sim configs/sim/depth.toml", "Simulate a scenario."),
            ("plimsoll sim configs/sim/depth.toml --pacing auto --pacing none", "Compare two methods of pacing."),
            ("plimsoll sim --fit plimsoll-sweep-1.json", "Learn a machine, and ask it what a change would give."),
        ],
        statuses: &[DONE, BAD_INPUT],
        files: &[DOCUMENTS],
        environment: &[NO_COLOR],
        see_also: &["plimsoll-serve(1)"],
    },
    Sections {
        name: "man",
        examples: &[
            ("plimsoll man run | man -l -", "Read the page of a subcommand where no page is installed."),
            ("plimsoll man --dir DIRECTORY", "Write all pages."),
        ],
        statuses: &[DONE, BAD_INPUT],
        files: &[DOCUMENTS],
        environment: &[NO_COLOR],
        see_also: &["plimsoll-completions(1)"],
    },
    Sections {
        name: "completions",
        examples: &[("plimsoll completions bash > /etc/bash_completion.d/plimsoll", "Complete in bash.")],
        statuses: &[DONE, BAD_INPUT],
        files: &[("/usr/share/bash-completion/completions/plimsoll", "The script of the package, for bash.")],
        environment: &[NO_COLOR],
        see_also: &["plimsoll-man(1)"],
    },
];

/// The names of all pages of section 1, the program's first.
pub fn names() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|page| page.name)
}

/// The examples of a subcommand as lines for its help: each command, with its purpose below it.
pub fn examples(name: &str) -> String {
    let rows = PAGES.iter().find(|page| page.name == name).map_or(&[][..], |page| page.examples);
    let lines: Vec<String> = rows.iter().map(|(command, purpose)| format!("  {command}\n      {purpose}")).collect();
    format!("Examples:\n{}", lines.join("\n"))
}

/// The sections EXAMPLES to SEE ALSO of a page, as roff; empty for a name that no subcommand has.
pub fn of(name: &str) -> String {
    let Some(page) = PAGES.iter().find(|page| page.name == name) else { return String::new() };
    let examples =
        page.examples.iter().map(|(command, purpose)| format!(".PP\n{}\n{}", prose(purpose), verbatim(command)));
    let mut statuses = page.statuses.to_vec();
    let place = statuses.iter().position(|(status, _)| status.len() >= 3).unwrap_or(statuses.len());
    statuses.insert(place, DEFECT);
    let main = if name == "plimsoll" { None } else { Some("plimsoll(1)") };
    let references: Vec<String> = main.iter().chain(page.see_also).map(|reference| bold(reference)).collect();
    [
        format!(".SH EXAMPLES\n{}", examples.collect::<String>()),
        list("EXIT STATUS", &statuses),
        list("FILES", page.files),
        list("ENVIRONMENT", page.environment),
        format!(".SH SEE ALSO\n{}\n", references.join(",\n")),
    ]
    .concat()
}

/// The page libiotrap(7): the interposer and the variables that it reads.
pub fn libiotrap() -> String {
    let variables: &[Row] = &[
        (TEXT_VARIABLE, "Pools as the text of a pool file. plimsoll trap --pool sets it."),
        (FILE_VARIABLE, "A TOML file of pools, with weights, policy and windows. plimsoll trap --pool-file sets it."),
        (POOLS_VARIABLE, "Pools as the original iotrap takes them: name:/mnt/a/,/mnt/b/, several separated by spaces."),
        (RAW_VARIABLE, "1 has system calls outside libc seen, too, as plimsoll trap --raw does."),
        (ASYNC_VARIABLE, "1 makes libaio requests that would block asynchronous, as plimsoll trap --async does."),
        (
            FILTERS_VARIABLE,
            "The number of seccomp filters, in force when the program begins, that permit the library's calls. plimsoll trap \
             tries them and sets it; without it such a program is not spread.",
        ),
        ("IOTRAP_RING", "same-thread promises that the thread that reads a completion ring also submits."),
        (
            STATS_VARIABLE,
            "1 prints a summary on standard error when the program ends. Another value is a file that each process adds \
             its summary to.",
        ),
        (
            DRY_RUN_VARIABLE,
            "1 spreads nothing and counts the requests that would be spread, as plimsoll trap --dry-run does.",
        ),
        (TRACE_VARIABLE, "1 prints a line on standard error for each call that the library takes over."),
        (IOLOG_VARIABLE, "A file that receives the program's I/O as a fio iolog, version 3."),
        RUNTIME,
    ];
    let head = format!(
        ".TH LIBIOTRAP 7 \"\" \"Plimsoll {}\" \"Plimsoll\"\n.nh\n.ad l\n.SH NAME\nlibiotrap.so \\- spread a program's I/O over \
         several mounts of one volume\n.SH SYNOPSIS\n\\fB{POOLS_VARIABLE}=\\fIname\\fB:/mnt/a/,/mnt/b/ \
         LD_PRELOAD=libiotrap.so\\fR \\fIprogram\\fR ...\n.PP\n\\fBplimsoll trap \\-\\-pool \\fIname\\fB=/mnt/a,/mnt/b \
         \\-\\- \\fIprogram\\fR ...\n.SH DESCRIPTION\nThe library replaces the file calls of the C library in an \
         unmodified program. A read or write of a file below one mount (a lane) of a pool may go over any lane of that \
         pool, after the library has proved that the lanes lead to the same file. Every other call goes to the C \
         library as it is.\n.PP\nThe library reads its variables once, before main. After an error the library \
         prints one line on standard error, and spreads nothing.\n",
        env!("CARGO_PKG_VERSION"),
    );
    let example = verbatim(
        "IOTRAP_MOUNT_POOLS=v:/mnt/a/,/mnt/b/ LD_PRELOAD=libiotrap.so fio --name=j --filename=/mnt/a/big \\\n    --rw=read --bs=64k --ioengine=libaio --iodepth=32 --direct=1",
    );
    let examples = format!(
        ".SH EXAMPLES\n.PP\nRead one file over two mounts.\n{example}.SH EXIT STATUS\nThe exit status is that of the \
         program.\n"
    );
    head + &list("ENVIRONMENT", variables)
        + &examples
        + &list("FILES", &[BOARDS])
        + ".SH SEE ALSO\n\\fBplimsoll\\-trap\\fR(1),\n\\fBplimsoll\\-lanes\\fR(1),\n\\fBplimsoll\\-top\\fR(1),\n\\fBld.so\\fR(8)\n"
}
