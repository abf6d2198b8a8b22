//! The library as a whole: its exports, its settings and its messages.

use crate::common;
use common::{Volume, compile, library, skipped, succeed, text};
use std::collections::BTreeSet;
use std::process::Command;

/// The library exports every function that it takes over, and nothing else: a symbol too many may replace one of the
/// program's own.
#[test]
fn exports_are_what_is_intended() {
    let listed = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let listed = text(&listed.stdout);
    let found: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let intended: Vec<&str> = include_str!("../exports.txt").lines().collect();
    let known = BTreeSet::from_iter(intended.iter().copied());
    let (beyond, missing): (Vec<_>, Vec<_>) = (found.difference(&known).collect(), known.difference(&found).collect());
    assert!(
        beyond.is_empty() && missing.is_empty(),
        "the library exports {beyond:?}, which tests/exports.txt lacks, and lacks {missing:?}, which the file lists"
    );
    assert!(intended.is_sorted(), "tests/exports.txt is in the order of the alphabet");
}

/// Tables begin as zeros: they take no room in the file, and a program gets memory only for the places that it uses.
#[test]
fn tables_take_no_room_before_they_are_used() {
    let listed = text(&succeed(Command::new("size").arg("--format=berkeley").arg(library())).stdout);
    let sizes: Vec<u64> = listed.lines().nth(1).unwrap().split_whitespace().map_while(|it| it.parse().ok()).collect();
    let [_text, data, bss, ..] = sizes[..] else { panic!("{listed}") };
    assert!(bss > 4 << 20, "the tables of open files and rings are there: {listed}");
    assert!(data < 256 << 10, "a table begins with something else than zeros (nm --size-sort tells which): {listed}");
}

/// The line that the library writes beside that of a trapped /bin/echo.
fn said(environment: &[(&str, &str)]) -> String {
    let mut echo = Command::new("/bin/echo");
    echo.arg("hello").env("LD_PRELOAD", library());
    for name in ["IOTRAP_POOLS", "IOTRAP_POOL_FILE", "IOTRAP_MOUNT_POOLS"] {
        echo.env_remove(name);
    }
    let output = succeed(echo.envs(environment.iter().copied()));
    assert_eq!(text(&output.stdout), "hello\n", "the program simply runs");
    text(&output.stderr)
}

#[test]
fn without_a_configuration_one_line_says_why() {
    for (variables, words) in [
        (&[][..], &["IOTRAP_MOUNT_POOLS"][..]),
        (&[("IOTRAP_MOUNT_POOLS", "")], &["IOTRAP_MOUNT_POOLS"]),
        (&[("IOTRAP_MOUNT_POOLS", "nonsense")], &["IOTRAP_MOUNT_POOLS", "nonsense"]),
        (&[("IOTRAP_MOUNT_POOLS", "a:relative,/b")], &["relative", "absolute"]),
        (&[("IOTRAP_POOL_FILE", "/nowhere")], &["/nowhere"]),
        (&[("IOTRAP_POOLS", "[[pool]]\nname = 1")], &["IOTRAP_POOLS", "line 2"]),
    ] {
        let line = said(variables);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.starts_with("iotrap: nothing is spread: "), "{line}");
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    assert_eq!(
        said(&[("IOTRAP_MOUNT_POOLS", "e4a:/mnt/v32/,/mnt/v33/ e4b:/mnt/v42/,/mnt/v43/")]),
        "",
        "as the original"
    );
}

/// A trapped shell command in the first lane, told by the original's variable.
fn shell(volume: &Volume, script: &str) -> Command {
    let mut command = volume.trapped("/bin/bash".as_ref(), &["-euc", &format!("cd \"$LANE0\"; {script}")]);
    let lanes: Vec<String> = (0..4).map(|lane| format!("{}/", volume.path(&format!("lane{lane}")).display())).collect();
    command.env_remove("IOTRAP_POOLS").env("IOTRAP_MOUNT_POOLS", format!("p:{}", lanes.join(",")));
    command
}

#[test]
fn calls_are_traced_and_lanes_summed_up() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let program = compile("rows", "trace", &[]);
    let mut command = volume.trapped(&program, &["direct_reads"]);
    let said = text(&succeed(command.env("IOTRAP_TRACE", "1").env("IOTRAP_STATS", "1")).stderr);
    assert_eq!(said.lines().filter(|line| line.starts_with("iotrap: pread(")).count(), 256);
    assert!(said.contains("buffered I/O"), "why not is said when a file is opened: {said}");
    let opened = format!(", {}/file, lanes ", volume.path("lane0").display());
    assert!(said.lines().any(|line| line.starts_with("iotrap: open(") && line.contains(&opened)), "{said}");
    for lane in 0..4 {
        let lane = format!(", {})", volume.path(&format!("lane{lane}")).display());
        let chosen = said.lines().filter(|line| line.starts_with("iotrap: lane(") && line.ends_with(&lane));
        assert!(chosen.count() > 0, "a request goes to each lane: {lane} {said}");
    }
    let summed: Vec<&str> = said.lines().filter(|line| line.contains(" pool p, lane ")).collect();
    assert_eq!(summed.len(), 4, "{said}");
    assert!(summed.iter().all(|line| line.contains("MiB") && line.contains("0 errors")), "{summed:?}");
}

/// Each request that stays counts once, also in a program that has closed standard error and leaves by _exit(2).
#[test]
fn requests_that_stay_are_counted_one_by_one() {
    if skipped() {
        return;
    }
    let script = "import mmap, os
room = mmap.mmap(-1, 4096)
buffered = os.open('file', os.O_RDWR)
for at in range(5): os.read(buffered, 10), os.pread(buffered, 10, at)
os.readv(buffered, [room]); os.write(buffered, b'x'); os.writev(buffered, [b'x']); os.pwrite(buffered, b'x', 0)
direct = os.open('file', os.O_RDONLY | os.O_DIRECT)
for at in range(7): os.lseek(direct, 0, 0), os.readv(direct, [room])
os.sendfile(os.open('other', os.O_WRONLY | os.O_CREAT), direct, 0, 4096)
os.close(2); os._exit(0)";
    for ways in [&[][..], &["IOTRAP_RAW"], &["IOTRAP_ASYNC"]] {
        let volume = Volume::new();
        std::fs::write(volume.path("volume/file"), [b'a'; 8192]).unwrap();
        let summary = volume.path("scratch/summary");
        let mut command = shell(&volume, "exec python3 -IS -c \"$0\"");
        command.arg(script).env("IOTRAP_STATS", &summary).envs(ways.iter().map(|name| (name, "1")));
        succeed(&mut command);
        let told = std::fs::read_to_string(&summary).unwrap();
        for line in [
            "14 times on its own lane: buffered I/O: opened without O_DIRECT",
            "7 times on its own lane: a request at the file's position (read, write, readv, writev)",
            "1 times on its own lane: copied inside the kernel (sendfile, copy_file_range, splice, a clone)",
        ] {
            assert!(told.lines().any(|told| told == format!("iotrap: {line}")), "{ways:?}: {told}");
        }
        assert!(told.contains("iotrap: most would spread with: O_DIRECT"), "{told}");
    }
}

#[test]
fn what_a_program_does_is_a_log_that_fio_replays() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let (log, program) = (volume.path("scratch/log"), compile("rows", "log", &[]));
    succeed(volume.trapped(&program, &["direct_writes"]).env("IOTRAP_IOLOG", &log));
    let written = std::fs::read_to_string(&log).unwrap();
    let mut lines = written.lines();
    assert_eq!(lines.next(), Some("fio version 3 iolog"));
    let file = volume.path("lane0/file").display().to_string();
    let of_file: Vec<Vec<&str>> = lines.map(|line| line.split(' ').collect()).collect();
    assert!(of_file.windows(2).all(|pair| pair[0][0].parse::<u64>().unwrap() <= pair[1][0].parse().unwrap()));
    let writes: Vec<_> = of_file.iter().filter(|line| line[2] == "write" && line[1] == file).collect();
    assert_eq!(writes.len(), 256);
    assert_eq!(writes[7][3..5], ["28672", "4096"]);
    assert!(writes.iter().all(|line| line.len() == 6 && line[5] == writes[0][5]), "one thread: {:?}", writes[0]);
    let fio = ["--name=replay", "--ioengine=psync", "--replay_no_stall=1"];
    let log = format!("--read_iolog={}", log.display());
    let mut replay = volume.plain("fio".as_ref(), &[&fio[..], &[&log, "--output-format=json"]].concat());
    let result = text(&succeed(&mut replay).stdout);
    assert!(result.contains("\"total_ios\" : 256"), "{result}");
}

/// A daemon closes standard error: the library must not write messages to the file that gets its number.
#[test]
fn nothing_is_written_to_what_was_standard_error() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let mut command =
        shell(&volume, "exec 2> database; dd if=/dev/zero of=file bs=4k count=4 oflag=direct status=none");
    succeed(command.env("IOTRAP_TRACE", "1"));
    // The library in bash writes its trace only until bash's standard error is another file; dd was started with that
    // file.
    let database = std::fs::read_to_string(volume.path("volume/database")).unwrap();
    assert!(database.lines().all(|line| line.starts_with("iotrap: ")), "dd's own: {database}");
    let volume = Volume::new();
    let mut command = volume.trapped(&compile("daemon", "c", &[]), &[]);
    succeed(command.env("IOTRAP_TRACE", "1").env("IOTRAP_STATS", "1"));
    assert_eq!(std::fs::read(volume.path("volume/database")).unwrap(), vec![b'd'; 64 * 4096]);
}

/// Every way of starting programs, from a shell that has files of the pool open.
#[test]
fn shells_start_programs() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let script = "for i in $(seq 40); do echo $i; done > list; exec 5<> list 6>> list; sort -n list | head -3
        (cat <&5 | wc -l; exec cksum list); ls /proc/self/fd | wc -l; echo last >&6; tail -1 list
        for i in 1 2 3 4; do (read -r line < list; echo \"$line$i\") & done | sort; wait
        trap 'echo signal' USR1; kill -USR1 $$; python3 -IS -c 'import subprocess, os
print(subprocess.run([\"/bin/echo\", \"spawned\"], capture_output=True, close_fds=True).stdout)'";
    let plain = {
        let plain = Volume::new();
        let mut command = shell(&plain, script);
        text(&succeed(command.env("TRAP", "")).stdout)
    };
    assert_eq!(text(&succeed(&mut shell(&volume, script)).stdout), plain);
}
