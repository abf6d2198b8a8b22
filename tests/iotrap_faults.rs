//! The interposer while lanes freeze, vanish and fail, on real NFS: no read fails for want of one lane, no write is
//! lost or done twice, and an error that the program would have seen is one that it sees.

mod common;
#[path = "common/nfs.rs"]
mod nfs;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use nfs::*;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use trapped::Pool;

#[test]
fn faults_of_lanes_and_server() {
    on_nfs("faults_of_lanes_and_server", &[("VERS", "3"), ("FS", "ext4"), ("SIZE", "128m")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_faults_of_lanes_and_server() {
    let pool = pool();
    fsync_tells_the_truth(&pool);
    no_room(&pool);
    broken_device(&pool);
    frozen_lane(&pool);
    stale_lane(&pool);
    restarted_server(&pool);
    unmounted_lane(&pool);
}

#[test]
fn faults_on_version_4() {
    on_nfs("faults_on_version_4", &[("VERS", "4.0")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_faults_on_version_4() {
    let pool = pool();
    fsync_tells_the_truth(&pool);
    silent_lane();
    frozen_lane(&pool);
}

#[test]
fn writes_of_a_killed_program() {
    on_nfs("writes_of_a_killed_program", &[("VERS", "3")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_writes_of_a_killed_program() {
    nothing_arrives_late(&pool());
}

#[test]
fn writes_of_a_killed_program_on_version_4() {
    on_nfs("writes_of_a_killed_program_on_version_4", &[("VERS", "4.0"), ("DELEGATIONS", "no")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_writes_of_a_killed_program_on_version_4() {
    nothing_arrives_late(&pool());
}

/// A load on `f` in the first lane, running under the interposer.
struct Load(Child);

const FIO: &str = "exec fio --name=f --filename=f --size=32m --bs=64k --iodepth=16 --ioengine=libaio --direct=1 --thread \
                   --output-format=json --verify_state_save=0";

impl Load {
    /// Starts it; it is at work on every lane when this returns.
    fn start(pool: &Pool, options: &str) -> Load {
        let make = "dd if=/dev/urandom of=f bs=1M count=32 oflag=direct 2> /dev/null";
        assert!(pool.bash(make, "", false).status.success());
        cap(pool, "32mbit");
        let before = bytes(pool);
        let mut load = Load::spawn(pool, options);
        load.until(pool, |now| now.iter().zip(&before).all(|(now, before)| now > before));
        load
    }

    /// Starts it without waiting for anything.
    fn spawn(pool: &Pool, options: &str) -> Load {
        let mut command = pool.command(&format!("{FIO} {options}"), &pool.lanes[0], true);
        Load(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until this is true of the bytes that each lane has carried; the rig ends what takes forever.
    fn until(&mut self, pool: &Pool, done: impl Fn(&[u64]) -> bool) {
        while !done(&bytes(pool)) {
            assert!(self.0.try_wait().unwrap().is_none(), "the load has ended by itself");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until each of these lanes has carried another MiB.
    fn goes_on(&mut self, pool: &Pool, lanes: &[usize]) {
        let before = bytes(pool);
        self.until(pool, |now| lanes.iter().all(|&lane| now[lane] > before[lane] + (1 << 20)));
    }

    /// Ends a load without end when it has gone over its file twice more, and so has come to every block of it.
    fn end(mut self, pool: &Pool, what: &str) {
        let before: u64 = bytes(pool).iter().sum();
        self.until(pool, |now| now.iter().sum::<u64>() > before + (64 << 20));
        tool("kill", &["-s", "INT", &self.0.id().to_string()], Path::new("/"));
        self.finish(what, 128); // fio's status when it is told to end
    }

    /// Waits for the end of the load, which must report no error and this exit status.
    fn finish(self, what: &str, status: i32) {
        let output = self.0.wait_with_output().unwrap();
        let said = stdout(&output);
        let result: serde_json::Value = said.find('{').map_or(serde_json::Value::Null, |at| {
            serde_json::from_str(&said[at..]).unwrap_or_else(|error| panic!("{what}: {error}: {said}"))
        });
        assert_eq!(output.status.code(), Some(status), "{what}: {}\n{said}{}", output.status, stderr(&output));
        assert_eq!(result["jobs"][0]["error"], 0, "{what}: {}", stderr(&output));
        println!("{what}: no error");
    }
}

/// Bytes that each lane has carried.
fn bytes(pool: &Pool) -> Vec<u64> {
    pool.lanes.iter().map(|lane| served(lane)).map(|(read, written)| read + written).collect()
}

/// A load without end: the test that starts it ends it.
const READS: &str = "--rw=read --time_based --runtime=10000";
/// Every block has its place and number in it, and is read back at the end, from the server.
const WRITES: &str =
    "--rw=randwrite --overwrite=1 --verify=crc32c --verify_fatal=1 --time_based --runtime=10000 --do_verify=0";

/// A lane that is silent when a program opens its first file: the program does without, and has it when it answers.
fn silent_lane() {
    // Only the frozen lane is silent for this time, and not a lane that the machine holds up.
    let pool = &Pool { more: "suspect-after = \"5s\"".into(), ..self::pool() };
    let make = "dd if=/dev/urandom of=f bs=1M count=32 oflag=direct 2> /dev/null";
    assert!(pool.bash(make, "", false).status.success());
    cap(pool, "32mbit");
    rig("lane freeze 34");
    let (before, begun) = (bytes(pool), Instant::now());
    for what in ["--rw=read", "--rw=randwrite --overwrite=1 --verify=crc32c --verify_fatal=1 --do_verify=0"] {
        Load::spawn(pool, what).finish("a lane silent from the start", 0);
    }
    let carried: Vec<u64> = bytes(pool).iter().zip(&before).map(|(now, before)| now - before).collect();
    println!("{:.1?} without the silent lane, bytes of the lanes: {carried:?}", begun.elapsed());
    assert!([0, 1, 3].iter().all(|&lane| carried[lane] > 4 << 20) && carried[2] < 1 << 20, "{carried:?}");
    whole(pool, "writes, a lane silent from the start");
    let lanes: Vec<&str> = pool.lanes.iter().map(|lane| lane.to_str().unwrap()).collect();
    let mut trap = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    trap.args(["trap", "--pool", &format!("p={}", lanes.join(",")), "--library"]).arg(trapped::library());
    // A program that reads by pread: the lanes are opened with its first request.
    let read =
        ["fio", "--name=f", "--filename=f", "--size=64k", "--bs=64k", "--rw=read", "--ioengine=psync", "--direct=1"];
    let output = trap.args(["--stats", "--"]).args(read).current_dir(&pool.lanes[0]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("/mnt/v34 does not answer"), "{said}");
    let mut load = Load::spawn(pool, READS);
    load.goes_on(pool, &[0, 1, 3]);
    rig("lane thaw 34");
    load.goes_on(pool, &[0, 1, 2, 3]);
    load.end(pool, "reads, a lane silent from the start that answers later");
}

/// A program is killed while its writes are stuck on a lane, and its successor writes the blocks anew: no old write
/// arrives over the new ones, which the successor has synced.
fn nothing_arrives_late(pool: &Pool) {
    const BLOCKS: &str = "exec fio --name=late --filename=late --size=256k --bs=4k --ioengine=psync --direct=1";
    let make = "dd if=/dev/zero of=late bs=256k count=1 oflag=direct 2> /dev/null";
    assert!(pool.bash(make, "", false).status.success());
    // Only the frozen lane is silent for this time, and not a lane that the machine holds up. It gets one write: the
    // other threads go on, and notice.
    let patient = Pool { more: "suspect-after = \"5s\"\ndepth = 1".into(), ..self::pool() };
    let options = "--rw=randwrite --buffer_pattern=0x11 --numjobs=4 --thread --time_based --runtime=10000";
    let mut first = patient.command(&format!("{BLOCKS} {options}"), &pool.lanes[0], true);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while bytes(pool).iter().zip(0..).any(|(&carried, lane)| lane != 0 && carried == 0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    rig("lane freeze 34");
    let mut said = BufReader::new(first.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("/mnt/v34: no answer")), "the load has ended by itself");
    first.kill().unwrap();
    first.wait().unwrap();

    let options = "--rw=write --buffer_pattern=0x22 --end_fsync=1";
    let mut second = patient.command(&format!("{BLOCKS} {options}"), &pool.lanes[0], true);
    let mut second = second.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // It waits now, or it has written and synced everything.
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut said: Vec<String> =
        lines.by_ref().take_while(|line| !line.contains("/mnt/v34: waits for writes")).collect();
    rig("lane thaw 34");
    // A pipe that nobody reads would end the program at its next line.
    said.extend(lines);
    assert!(second.wait().unwrap().success(), "{said:?}");
    // The lane's client reads through its cache when its direct requests have been answered.
    std::fs::read(pool.lanes[2].join("late")).unwrap();
    let found = std::fs::read(pool.view.join("late")).unwrap();
    let old = found.chunks(4096).filter(|block| block.iter().any(|&byte| byte != 0x22)).count();
    assert!(found.len() == 256 << 10 && old == 0, "{old} of 64 synced blocks are lost: {said:?}");
    // Nobody waits for what has arrived.
    let third = patient.command(&format!("{BLOCKS} --rw=write"), &pool.lanes[0], true).output().unwrap();
    assert!(third.status.success() && !stderr(&third).contains("waits for writes"), "{}", stderr(&third));
}

/// While a lane is frozen the others go on; what was stuck on it is waited for, and done once.
fn frozen_lane(pool: &Pool) {
    for (what, options) in [("reads, a lane frozen", READS), ("writes, a lane frozen", WRITES)] {
        let mut load = Load::start(pool, options);
        rig("lane freeze 34");
        load.goes_on(pool, &[0, 1, 3]);
        rig("lane thaw 34");
        load.end(pool, what);
        if options == WRITES {
            whole(pool, what);
        }
    }
}

/// fio's data can be verified in the view of the server, with nothing in between.
fn whole(pool: &Pool, what: &str) {
    let once = WRITES.split_once(" --time_based").map_or(WRITES, |(verified, _)| verified);
    let verify = format!("{FIO} {once} --verify_only").replace("--direct=1", "--direct=0");
    let output = pool.command(&verify, &pool.view, false).output().unwrap();
    assert!(output.status.success(), "{what}: {}{}", stdout(&output), stderr(&output));
}

/// The server does not know one of its clients any more: ESTALE on that lane.
fn stale_lane(pool: &Pool) {
    let mut load = Load::start(pool, READS);
    rig("lane stale 33");
    load.goes_on(pool, &[0, 2, 3]);
    rig("lane fresh 33");
    load.end(pool, "reads, a lane stale");
}

fn restarted_server(pool: &Pool) {
    for (what, options) in [("reads, the server restarted", READS), ("writes, the server restarted", WRITES)] {
        let mut load = Load::start(pool, options);
        rig("server restart");
        load.goes_on(pool, &[0]);
        load.end(pool, what);
        if options == WRITES {
            whole(pool, what);
        }
    }
}

/// A lane that goes away while it is in use, and one that is not there from the start.
fn unmounted_lane(pool: &Pool) {
    let mut load = Load::start(pool, READS);
    rig("lane unmount 35 -l");
    load.goes_on(pool, &[0, 1, 2]);
    load.end(pool, "reads, a lane unmounted lazily");
    let output =
        pool.bash("cat f | cksum; dd if=f of=g bs=64k iflag=direct oflag=direct 2> /dev/null; cmp f g", "", true);
    assert!(output.status.success(), "{}", stderr(&output));
    rig("lane mount 35");
}

/// Programs that write where there is no room end as without the interposer, and their descriptors say the same.
fn no_room(pool: &Pool) {
    cap(pool, "10gbit");
    let fill = "import mmap, os
fd = os.open('sparse', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
os.ftruncate(fd, 8 << 20)
block, failed, written = mmap.mmap(-1, 65536), 0, 0
block[:] = b'x' * 65536
for offset in range(0, 8 << 20, 65536):
    try:
        written += os.pwrite(fd, block, offset) == 65536
    except OSError as error:
        failed += 1
        assert error.errno == 28, error
print(written, failed)
try:
    os.fsync(fd)
except OSError as error:
    print('fsync:', error.errno)
os.close(fd)";
    rig("server full");
    let script = format!("python3 -IS -c \"{fill}\"; rm sparse");
    let plain = pool.bash(&script, "", false);
    let trapped = pool.bash(&script, "", true);
    assert_eq!(stdout(&trapped), stdout(&plain), "{}{}", stderr(&plain), stderr(&trapped));
    assert!(stdout(&plain).starts_with("0 128"), "{}{}", stdout(&plain), stderr(&plain));
    let fio = "truncate -s 4m hole; fio --name=f --filename=hole --size=4m --rw=write --bs=64k --iodepth=16 \
               --ioengine=libaio --direct=1 --thread --minimal --verify_state_save=0 --overwrite=0 --fallocate=none";
    for trapped in [false, true] {
        let output = pool.bash(fio, "", trapped);
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert!(!output.status.success() && said.contains("No space left"), "trapped: {trapped}: {said}");
    }
    rig("server room");
    assert!(pool.bash("rm hole", "", false).status.success());
    println!("no room: ENOSPC as without the interposer");
}

/// The server's device fails: the error comes from every lane, and it is the program's.
fn broken_device(pool: &Pool) {
    let make = "dd if=/dev/urandom of=f bs=1M count=2 oflag=direct 2> /dev/null; sync";
    assert!(pool.bash(make, "", false).status.success());
    rig("server break");
    let script = "set +e; dd if=f of=/dev/null bs=64k iflag=direct 2>&1 | grep -c 'Input/output error'
                  dd if=/dev/zero of=f bs=64k count=1 oflag=direct,sync conv=notrunc 2>&1 | grep -c 'Input/output error'
                  fio --name=f --filename=f --size=2m --rw=randread --bs=64k --iodepth=8 --ioengine=libaio --direct=1 \
                    --thread --minimal --verify_state_save=0 2>&1 | grep -c 'io_u error'; true";
    let [plain, trapped] = [false, true].map(|trapped| pool.bash(script, "", trapped));
    rig("server mend");
    assert_eq!(stdout(&plain).lines().take(2).collect::<Vec<_>>(), ["1", "1"], "{}", stderr(&plain));
    assert_eq!(stdout(&trapped), stdout(&plain), "{}", stderr(&trapped));
    let output = pool.bash("dd if=f of=/dev/null bs=64k iflag=direct", "", true);
    assert!(output.status.success(), "{}", stderr(&output));
    println!("broken device: EIO as without the interposer");
}

/// Data that fsync has acknowledged are on the server at that moment: every lane is frozen then, the program is killed,
/// and the file is looked at where the server has it.
fn fsync_tells_the_truth(pool: &Pool) {
    cap(pool, "10gbit");
    for way in ["buffered", "direct", "both", "aio"] {
        let directory = format!("acknowledged-{way}");
        std::fs::create_dir(pool.lanes[0].join(&directory)).unwrap();
        let script = format!("exec python3 -IS \"$PROGRAMS/acknowledge.py\" log {way}");
        let mut command = pool.command(&script, &pool.lanes[0].join(&directory), true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut acknowledged = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut orders = child.stdin.take().unwrap();
        for round in 0..4 {
            let line = acknowledged.next().expect("another line").unwrap();
            let [size, crc] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{way}: {line}") };
            if round == 3 {
                for lane in &pool.lanes {
                    rig(&format!("lane freeze {}", number(lane)));
                }
                child.kill().unwrap();
            }
            check(&pool.view.join(&directory).join("log"), size, crc, &format!("{way}, round {round}"));
            if round < 3 {
                orders.write_all(b"go on\n").unwrap();
            }
        }
        for lane in &pool.lanes {
            rig(&format!("lane thaw {}", number(lane)));
        }
        child.wait().unwrap();
    }
    println!("fsync: what was acknowledged is on the server");
}

fn check(file: &Path, size: &str, crc: &str, what: &str) {
    let bytes = std::fs::read(file).unwrap();
    let acknowledged = &bytes[..bytes.len().min(size.parse().unwrap())];
    let found = tool_with_input("cksum", acknowledged);
    assert_eq!(stdout(&found).split(' ').next().unwrap(), crc, "{what}: {} bytes of {size}", bytes.len());
}

fn tool_with_input(program: &str, input: &[u8]) -> Output {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}
