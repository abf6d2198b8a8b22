//! Block jobs and small files on real Gluster volumes: through libgfapi, through FUSE and on the brick's own file
//! system, with the same contents; and what becomes of them when a brick dies, comes back, or falls silent.
//!
//! Each test sets up a volume on hosts of its own (rigs/gluster-volume.sh) and runs the test of the same name with
//! `inside_` before it there.

mod common;
use common::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Ends what hangs; a machine that is merely busy gets its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the test `inside` on a host that has the volume.
fn on_a_volume(inside: &str, replicas: u32) {
    if !["glusterd", "glusterfs", "ip"].into_iter().all(has_program) || !is_root("make hosts for a Gluster volume") {
        return;
    }
    let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/gluster-volume.sh"));
    rig.env("REPLICAS", replicas.to_string()).arg(std::env::current_exe().unwrap());
    let output = rig.args([inside, "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let (said, errors) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
    assert!(!errors.contains("gluster-volume.sh:"), "{errors}");
}

fn variable(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).expect("runs inside rigs/gluster-volume.sh"))
}

/// The three ways to the volume, and the brick.
struct Volume {
    local: PathBuf,
    mount: PathBuf,
    brick: PathBuf,
    url: String,
}

impl Volume {
    fn new() -> Volume {
        Volume {
            local: variable("GLUSTER_LOCAL"),
            mount: variable("GLUSTER_MOUNTS").join("1"),
            brick: variable("GLUSTER_BRICKS").join("1"),
            url: format!("gluster://{}/gv0", variable("GLUSTER_SERVER").display()),
        }
    }

    /// Arguments by which a job reaches a file that way.
    fn way(&self, way: &str, file: &str) -> Vec<String> {
        match way {
            "gfapi" => vec!["--ioengine=gfapi".into(), format!("--filename={}/{file}", self.url)],
            "fio's options" => {
                let server = variable("GLUSTER_SERVER");
                let options =
                    ["--ioengine=gfapi_async", "--volume=gv0", &format!("--filename={file}")].map(str::to_owned);
                [&options[..], &[format!("--brick={}", server.display())]].concat()
            }
            "fuse" => vec!["--ioengine=psync".into(), format!("--filename={}/{file}", self.mount.display())],
            "brick" => vec!["--ioengine=psync".into(), format!("--filename={}/{file}", self.brick.display())],
            _ => vec!["--ioengine=psync".into(), format!("--filename={}/{file}", self.local.display())],
        }
    }

    fn run(&self, way: &[String], job: &[&str]) -> std::process::Output {
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        run(&self.local, &[&["run", "--name=j", "--output-format=json"], job, &way].concat())
    }

    fn job(&self, way: &str, file: &str, job: &[&str]) -> Value {
        let output = self.run(&self.way(way, file), job);
        assert!(output.status.success(), "{way} {job:?}: {}\n{}", stdout(&output), stderr(&output));
        let result = json(&output);
        assert_eq!(result["jobs"][0]["error"], 0, "{way} {job:?}");
        result["jobs"][0].clone()
    }

    /// `plimsoll files` that way, in a directory of the volume (or of the local file system).
    fn files(&self, way: &str, place: &str, line: &str) -> Command {
        let mut command = plimsoll(&self.local);
        command.args(["files", "--json"]).args(line.split_whitespace());
        match way {
            "gfapi" => command.args(["--fs", &self.url, "--dir", &format!("/{place}")]),
            "fuse" => command.arg("--dir").arg(self.mount.join(place)),
            "brick" => command.arg("--dir").arg(self.brick.join(place)),
            _ => command.arg("--dir").arg(self.local.join(place)),
        };
        command
    }

    /// The result of a run on files that succeeds.
    fn on_files(&self, way: &str, place: &str, line: &str) -> Value {
        let output = self.files(way, place, line).output().unwrap();
        let result = json(&output);
        assert!(output.status.success(), "{way}: {line}: {} {}", result["error"], stderr(&output));
        for phase in result["phases"].as_array().unwrap() {
            assert_eq!(phase["total"]["failed"], 0, "{way}: {}", phase["name"]);
            assert_eq!(phase["verified"]["mismatches"].as_u64().unwrap_or(0), 0, "{way}: {}", phase["name"]);
        }
        result
    }

    /// Makes a directory of the volume by its mount, which looks for a brick that has come back every few seconds.
    fn make(&self, place: &str) {
        let begun = Instant::now();
        while let Err(error) = std::fs::create_dir(self.mount.join(place)) {
            let soon = begun.elapsed() < PATIENCE;
            assert!(error.kind() == std::io::ErrorKind::NotConnected && soon, "{place}: {error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Bytes that the brick has of a file.
    fn bytes_on_brick(&self, file: &str) -> u64 {
        std::fs::metadata(self.brick.join(file)).map_or(0, |data| data.len())
    }
}

fn rig(action: &str, brick: u32) {
    let output = Command::new(variable("GLUSTER_RIG")).args([action, &brick.to_string()]).output().unwrap();
    assert!(output.status.success(), "{action}: {}", stderr(&output));
}

#[test]
fn all_loads_give_the_same_contents_every_way() {
    on_a_volume("inside_all_loads_give_the_same_contents_every_way", 1);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_all_loads_give_the_same_contents_every_way() {
    let volume = Volume::new();
    let loads: &[&[&str]] = &[
        &["--rw=write", "--bs=64k", "--iodepth=16"],
        &["--rw=randwrite", "--bs=4k", "--iodepth=32"],
        &["--rw=randrw", "--bsrange=1k-16k", "--iodepth=4", "--fsync=50"],
        &["--rw=randwrite", "--bs=4k", "--iodepth=16", "--direct=1"],
        &["--rw=write", "--bs=3k", "--fsync_on_close=1", "--end_fsync=1"],
    ];
    // Written one way, verified every other.
    for (index, load) in loads.iter().enumerate() {
        for writer in ["gfapi", "fuse", "fio's options"] {
            let file = format!("f{index}-{}", &writer[..4].replace('\'', ""));
            let job = [&["--size=2m", "--verify=crc32c", "--create_fsync=1"], *load].concat();
            let result = volume.job(writer, &file, &job);
            assert!(result["write"]["total_ios"].as_u64().unwrap() > 0, "{writer} {load:?}");
            assert!(result["read"]["total_ios"].as_u64().unwrap() > 0, "{writer} {load:?}: verified");
            if load[0] != "--rw=randrw" {
                for reader in ["gfapi", "fuse", "brick"] {
                    volume.job(reader, &file, &[&job[..], &["--verify_only"]].concat());
                }
            }
        }
    }
    // A flipped byte is found through libgfapi.
    let mut bytes = std::fs::read(volume.mount.join("f0-gfap")).unwrap();
    bytes[1_000_000] ^= 1;
    std::fs::write(volume.mount.join("flipped"), &bytes).unwrap();
    let job = ["--rw=write", "--bs=64k", "--size=2m", "--verify=crc32c", "--verify_only"];
    let output = volume.run(&volume.way("gfapi", "flipped"), &job);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));

    layouts_and_removals(&volume);
    clones_and_depth(&volume);
    refusals(&volume);
}

/// Files are made, with data, as large as wanted; and removed when asked, and when the run fails.
fn layouts_and_removals(volume: &Volume) {
    let result = volume.job("gfapi", "laid-out", &["--rw=randread", "--bs=64k", "--size=5m", "--iodepth=8"]);
    assert_eq!(result["read"]["total_ios"], 80);
    let content = std::fs::read(volume.brick.join("laid-out")).unwrap();
    assert_eq!(content.len(), 5 << 20);
    assert!(content.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)), "data, not holes");
    // A file that is there is used as it is, and made larger where it is too short.
    let result = volume.job("gfapi", "laid-out", &["--rw=read", "--bs=1m", "--size=6m"]);
    assert_eq!(result["read"]["io_bytes"], 6 << 20);
    let longer = std::fs::read(volume.brick.join("laid-out")).unwrap();
    assert!(longer.len() == 6 << 20 && longer.starts_with(&content));
    let result = volume.job("gfapi", "laid-out", &["--rw=read", "--bs=1m"]);
    assert_eq!(result["read"]["io_bytes"], 6 << 20, "without size=, the size that it has");

    volume.job("gfapi", "laid-out", &["--rw=randtrim", "--bs=64k", "--size=6m", "--norandommap=0"]);
    assert!(std::fs::read(volume.brick.join("laid-out")).unwrap().iter().all(|&byte| byte == 0), "trimmed");

    volume.job("gfapi", "gone", &["--rw=write", "--size=1m", "--unlink=1"]);
    assert!(!volume.brick.join("gone").exists());
    volume.job("gfapi", "loops", &["--rw=write", "--size=1m", "--loops=3", "--unlink_each_loop=1"]);
    let output = volume.run(&volume.way("gfapi", "none/below"), &["--rw=write", "--size=1m"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output).trim_end().lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("directory does not exist"), "{}", stderr(&output));
}

/// Clones are processes or threads, each with a connection; the depth that is asked for is reached.
fn clones_and_depth(volume: &Volume) {
    for how in ["--thread=0", "--thread=1"] {
        let job = ["--rw=randread", "--bs=4k", "--size=2m", "--numjobs=4", "--group_reporting", "--iodepth=8", how];
        let way = ["--ioengine=gfapi".to_owned(), format!("--filename={}/clones", volume.url)];
        let output = volume.run(&way, &job);
        assert!(output.status.success(), "{how}: {}", stderr(&output));
        assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 4 * 512, "{how}");
    }
    let job = ["--rw=randread", "--bs=4k", "--size=4m", "--iodepth=16", "--iodepth_batch_complete_max=1"];
    let result = volume.job("gfapi", "deep", &job);
    let full = result["iodepth_level"]["16"].as_f64().unwrap();
    assert!(full > 50.0, "16 requests are in flight most of the time, not {full} %");
}

/// One line, status 2, and soon.
fn refusals(volume: &Volume) {
    let server = variable("GLUSTER_SERVER");
    let server = server.display();
    let job = ["run", "--name=j", "--rw=read", "--size=1m", "--ioengine=gfapi"];
    let cases = [
        (format!("gluster://{server}/none/f"), "None", "cannot open volume none"),
        (format!("gluster://{server}:1/gv0/f"), "None", "refused"),
        ("gluster://10.77.0.77/gv0/f".to_owned(), "None", "cannot reach the Gluster server 10.77.0.77:24007"),
        (format!("gluster://{server}"), "None", "volume is missing"),
        ("f".to_owned(), "None", "volume="),
        (format!("gluster://{server}/gv0/f"), "libnone.so.0", "libgfapi"),
    ];
    for (file, library, part) in cases {
        let mut command = plimsoll(&volume.local);
        command.args(job).arg(format!("--filename={file}"));
        if library != "None" {
            command.env("PLIMSOLL_LIBGFAPI", library);
        }
        let output = command.output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{file}: {said}");
        assert!(said.contains(part) && said.trim_end().lines().count() == 1, "{file}: {said}");
    }
}

/// A run that goes on until it is ended, with its results as JSON.
fn start(volume: &Volume, file: &str, job: &[&str]) -> Child {
    let mut command = plimsoll(&volume.local);
    command.args(["run", "--name=j", "--output-format=json", "--bs=4k", "--size=8m", "--iodepth=16", "--time_based"]);
    command.args(job).args(volume.way("gfapi", file));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while volume.bytes_on_brick(file) < 4 << 20 {
        assert!(child.try_wait().unwrap().is_none(), "ended before it wrote");
        std::thread::yield_now();
    }
    child
}

/// Waits until a run has written to the file again, and ends it.
fn end_when_it_writes_again(mut child: Child, file: &Path) -> Output {
    let written = || std::fs::metadata(file).unwrap().modified().unwrap();
    let (before, begun) = (written(), Instant::now());
    while written() == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended instead of going on");
        assert!(begun.elapsed() < PATIENCE, "it does not go on");
        std::thread::sleep(Duration::from_millis(20));
    }
    tool("kill", &["-s", "INT", &child.id().to_string()], Path::new("/"));
    child.wait_with_output().unwrap()
}

#[test]
fn a_brick_that_dies_is_an_error_and_one_that_comes_back_is_used_again() {
    on_a_volume("inside_a_brick_that_dies_is_an_error_and_one_that_comes_back_is_used_again", 1);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_a_brick_that_dies_is_an_error_and_one_that_comes_back_is_used_again() {
    let volume = Volume::new();
    // Without continue_on_error the first error ends the job, long before its time.
    let child = start(&volume, "ends", &["--rw=randwrite", "--runtime=1000"]);
    rig("kill-brick", 1);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}\n{}", stdout(&output), stderr(&output));
    assert_ne!(json(&output)["jobs"][0]["error"], 0);
    rig("start-brick", 1);

    // With it, errors are counted, and what comes after the restart succeeds again.
    let options = ["--rw=randwrite", "--runtime=1000", "--continue_on_error=all", "--rate_iops=2000"];
    let child = start(&volume, "goes-on", &options);
    rig("kill-brick", 1);
    rig("start-brick", 1);
    let output = end_when_it_writes_again(child, &volume.brick.join("goes-on"));
    let result = &json(&output)["jobs"][0];
    assert!(result["total_err"].as_u64().unwrap() > 0, "errors are counted: {result}");

    // A silent brick: the client gives up after network.ping-timeout.
    rig("give-up-after", 5);
    let child = start(&volume, "silent", &["--rw=randwrite", "--runtime=1000", "--direct=1"]);
    rig("silence", 1);
    let output = child.wait_with_output().unwrap();
    rig("resume", 1);
    assert_eq!(output.status.code(), Some(1), "{}\n{}", stdout(&output), stderr(&output));
    assert_ne!(json(&output)["jobs"][0]["error"], 0);
}

#[test]
fn a_replica_carries_on_without_one_of_its_bricks() {
    on_a_volume("inside_a_replica_carries_on_without_one_of_its_bricks", 2);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_a_replica_carries_on_without_one_of_its_bricks() {
    let volume = Volume::new();
    let job = ["--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16", "--verify=crc32c"];
    volume.job("gfapi", "both", &job);
    let bricks = variable("GLUSTER_BRICKS");
    let content = |brick: &str, file: &str| std::fs::read(bricks.join(brick).join(file)).unwrap();
    assert!(content("1", "both") == content("2", "both"), "both bricks have the same");

    let child = start(&volume, "one", &["--rw=randwrite", "--runtime=1000", "--fsync=256"]);
    rig("kill-brick", 2);
    let output = end_when_it_writes_again(child, &bricks.join("1/one"));
    assert_eq!(output.status.code(), Some(130), "{}\n{}", stdout(&output), stderr(&output));
    assert_eq!(json(&output)["jobs"][0]["error"], 0);

    // Small files go on with one brick, and are whole.
    let what = "--files 300 --threads 2 --size exp:4k";
    volume.make("small");
    rig("start-brick", 2);
    let mut command =
        volume.files("gfapi", "small", &format!("--op create,overwrite,read {what} --verify --pause 2ms"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    rig("kill-brick", 2);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{}", json(&output)["error"], stderr(&output));
    for reader in ["gfapi", "fuse", "brick"] {
        volume.on_files(reader, "small", &format!("--op read,readdir {what} --verify"));
    }

    // Written with one brick, healed onto the other, read through libgfapi.
    volume.job("gfapi", "later", &job);
    rig("start-brick", 2);
    let healed = || content("2", "later") == content("1", "later");
    let begun = Instant::now();
    while !Path::new(&bricks.join("2/later")).exists() || !healed() {
        // Looking at a file through a client makes the client heal it.
        let _ = std::fs::read(volume.mount.join("later"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(begun.elapsed() < PATIENCE, "not healed");
    }
    for reader in ["gfapi", "fuse", "brick"] {
        volume.job(reader, "later", &[&job[..], &["--verify_only"]].concat());
    }
}

const ALL_OPERATIONS: &str = "create,append,overwrite,read,stat,chmod,setxattr,getxattr,rename,read,symlink,readlink,link,\
                              mkdir,readdir,ls-l,rmdir,truncate,truncate-overwrite,await-create,unlink,swift-put,swift-get,cleanup";

#[test]
fn small_files_are_the_same_every_way() {
    on_a_volume("inside_small_files_are_the_same_every_way", 1);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_small_files_are_the_same_every_way() {
    let volume = Volume::new();
    std::fs::create_dir(volume.local.join("operations")).unwrap();
    volume.make("operations");
    for layout in ["--threads 2", "--threads 2 --shared", "--processes 2 --dirs-per-dir 2"] {
        let line =
            format!("--op {ALL_OPERATIONS} --files 15 --size exp:6k --record 5000 --files-per-dir 7 --verify {layout}");
        let work = |way: &str| {
            let result = volume.on_files(way, "operations", &line);
            let phases = result["phases"].as_array().unwrap().iter();
            phases
                .map(|phase| (phase["name"].clone(), phase["total"].clone(), phase["verified"].clone()))
                .collect::<Vec<_>>()
        };
        let local = work("local");
        assert_eq!(local.len(), ALL_OPERATIONS.split(',').count());
        for way in ["gfapi", "fuse"] {
            for (here, there) in local.iter().zip(work(way)) {
                // How many names cleanup tries depends on what it finds.
                assert!(*here == there || here.0 == "cleanup", "{way} {layout}: {here:?} {there:?}");
            }
            assert!(names(&volume.brick.join("operations")).is_empty(), "{way} {layout}");
        }
    }
    // Mixes, in directories of all threads too.
    for layout in ["", "--shared"] {
        for way in ["gfapi", "fuse"] {
            let mix = "create:20+read:30+stat:10+append:10+overwrite:10+unlink:10+rename:5+readdir:3+ls-l:2";
            let line = format!(
                "--op create,{mix},read,readdir --files 120 --threads 3 --size 2k --files-per-dir 50 --verify --cleanup {layout}"
            );
            volume.on_files(way, "operations", &line);
        }
    }

    // Written one way, verified all others.
    let what = "--files 40 --threads 2 --size exp:20k --record 8k --files-per-dir 15";
    for writer in ["gfapi", "fuse"] {
        volume.make(writer);
        volume.on_files(writer, writer, &format!("--op create,overwrite {what} --fsync"));
        for reader in ["gfapi", "fuse", "brick"] {
            let result =
                volume.on_files(reader, writer, &format!("--op read,stat,readdir,ls-l {what} --verify --random"));
            let phase = |index: usize| &result["phases"][index];
            assert_eq!(phase(0)["total"]["files"], 80, "{writer}, {reader}");
            assert!(phase(0)["verified"]["blocks"].as_u64().unwrap() >= 80, "{writer}, {reader}");
            assert_eq!((&phase(2)["verified"]["entries"], &phase(3)["verified"]["entries"]), (&80.into(), &80.into()));
        }
        // A flipped byte is found by all.
        let victim = volume.mount.join(writer).join("thrd001-d0001/f.0000020");
        let mut bytes = std::fs::read(&victim).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&victim, bytes).unwrap();
        for reader in ["gfapi", "fuse", "brick"] {
            let output = volume
                .files(reader, writer, &format!("--op read {what} --verify --continue-on-error"))
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(1), "{writer}, {reader}");
            let message = json(&output)["error"]["message"].to_string();
            assert!(message.contains("thrd001-d0001/f.0000020 at byte"), "{writer}, {reader}: {message}");
        }
    }
    // A missing volume or directory is reported in one line.
    let output = volume.files("gfapi", "nowhere", "--op create").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot use directory /nowhere"), "{}", stderr(&output));
    let server = variable("GLUSTER_SERVER");
    let output =
        run(&volume.local, &["files", "--op", "create", "--fs", &format!("gluster://{}/none", server.display())]);
    assert_eq!((output.status.code(), stderr(&output).trim_end().lines().count()), (Some(2), 1), "{}", stderr(&output));
}

/// Files of that size on the brick below a directory.
fn files_on_brick(volume: &Volume, place: &str, size: u64) -> u64 {
    let directories = std::fs::read_dir(volume.brick.join(place)).into_iter().flatten();
    let files = directories.flat_map(|directory| std::fs::read_dir(directory.unwrap().path()).unwrap());
    files.filter(|file| file.as_ref().unwrap().metadata().unwrap().len() == size).count() as u64
}

/// A run on files that has begun.
fn start_files(volume: &Volume, way: &str, place: &str, line: &str) -> Child {
    volume.make(place);
    let mut command = volume.files(way, place, line);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while files_on_brick(volume, place, 4096) < 50 {
        assert!(child.try_wait().unwrap().is_none(), "{way}: ended before it made files");
        std::thread::yield_now();
    }
    child
}

#[test]
fn small_files_on_a_brick_that_dies_are_counted_as_what_they_are() {
    on_a_volume("inside_small_files_on_a_brick_that_dies_are_counted_as_what_they_are", 1);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_small_files_on_a_brick_that_dies_are_counted_as_what_they_are() {
    let volume = Volume::new();
    let create = "--op create --files 300000 --threads 2 --size 4k --pause 1ms";
    for way in ["gfapi", "fuse"] {
        // The first error ends the run and is named.
        let place = format!("ends-{way}");
        let child = start_files(&volume, way, &place, create);
        rig("kill-brick", 1);
        let output = child.wait_with_output().unwrap();
        let result = json(&output);
        assert_eq!((output.status.code(), &result["ended"]), (Some(1), &"failed".into()), "{way}: {}", stderr(&output));
        assert!(result["error"]["message"].as_str().unwrap().contains("/f.0"), "{way}: {}", result["error"]);
        rig("start-brick", 1);
        let done = result["phases"][0]["total"]["files"].as_u64().unwrap();
        assert!(done <= files_on_brick(&volume, &place, 4096), "{way}: {done} files are called done");

        // Going on: failures are counted by what failed, and what comes after the restart succeeds again.
        let place = format!("goes-on-{way}");
        let mut child = start_files(&volume, way, &place, &format!("{create} --continue-on-error"));
        rig("kill-brick", 1);
        let before = files_on_brick(&volume, &place, 4096);
        rig("start-brick", 1);
        while files_on_brick(&volume, &place, 4096) < before + 20 {
            assert!(child.try_wait().unwrap().is_none(), "{way}: it ended instead of going on");
            std::thread::sleep(Duration::from_millis(20));
        }
        tool("kill", &["-s", "INT", &child.id().to_string()], Path::new("/"));
        let output = child.wait_with_output().unwrap();
        let (result, after) = (json(&output), files_on_brick(&volume, &place, 4096));
        assert_eq!(result["ended"], "failed", "{way}: failures outrank the interruption");
        let total = &result["phases"][0]["total"];
        assert_eq!(output.status.code(), Some(1), "{way}: {}", stderr(&output));
        assert!(total["failed"].as_u64().unwrap() > 0, "{way}: {total}");
        let errors = result["phases"][0]["errors"].as_array().unwrap();
        let counted: u64 = errors.iter().map(|error| error["count"].as_u64().unwrap()).sum();
        assert_eq!(
            counted,
            total["failed"].as_u64().unwrap(),
            "{way}: every failure has its call and number: {errors:?}"
        );
        assert!(errors.iter().any(|error| error["errno"] == 107), "{way}: ENOTCONN: {errors:?}");
        assert!(total["files"].as_u64().unwrap() <= after, "{way}: {total}, {after} on the brick");
    }

    // A silent brick: the client gives up after network.ping-timeout.
    rig("give-up-after", 5);
    let child = start_files(&volume, "gfapi", "silent", create);
    rig("silence", 1);
    let output = child.wait_with_output().unwrap();
    rig("resume", 1);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}
