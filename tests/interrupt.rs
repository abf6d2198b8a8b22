//! Ctrl-C: partial results, nothing left behind, status 130; a second one ends the program at once.

mod common;
use common::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn start(directory: &Path, arguments: &[&str]) -> Child {
    plimsoll(directory).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until something is true of the running program; it must not end before.
fn wait_until(child: &mut Child, what: &str, mut is_true: impl FnMut() -> bool) {
    while !is_true() {
        assert!(child.try_wait().unwrap().is_none(), "the program ended before {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Half of what is free here, to be laid out: too much to be done before the signal comes.
fn endless_layout(directory: &Path) -> String {
    let free = sys::file::space(directory).unwrap().available;
    format!("--size={}", (free / 2).min(32 << 30) >> 12 << 12)
}

fn signal(child: &Child, name: &str) {
    tool("kill", &["-s", name, &child.id().to_string()], Path::new("/"));
}

/// True if a file takes at least this number of bytes on the disk.
fn has_written(path: &Path, bytes: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|data| data.blocks() * 512 >= bytes)
}

/// The path of a sweep's scratch file.
fn scratch(directory: &Path, sweep: &Child) -> PathBuf {
    let host = stdout(&Command::new("uname").arg("-n").output().unwrap());
    directory.join(format!("plimsoll-scratch.{}.{}", host.trim(), sweep.id()))
}

const ENDLESS: [&str; 8] = [
    "run",
    "--name=endless",
    "--rw=randwrite",
    "--size=1m",
    "--time_based=1",
    "--runtime=1000",
    "--unlink=1",
    "--fallocate=none",
];

#[test]
fn a_run_that_is_interrupted_prints_what_it_has() {
    for how in ["--thread=1", "--thread=0"] {
        let directory = directory();
        let mut child = start(directory.path(), &[&ENDLESS[..], &[how, "--output-format=json"]].concat());
        let data = directory.path().join("endless.0.0");
        wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
        signal(&child, "INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{how}: {}", stderr(&output));
        let result = json(&output);
        assert!(result["jobs"][0]["write"]["total_ios"].as_u64().unwrap() >= 256, "{how}");
        assert!(names(directory.path()).is_empty(), "{how}: {:?}", names(directory.path()));
    }
}

#[test]
fn an_interrupted_sweep_removes_its_scratch_file() {
    let directory = directory();
    let mut child = start(directory.path(), &["sweep", "--time=1000s", "--point-time=1000s", "--size=8m", "--json"]);
    let scratch = scratch(directory.path(), &child);
    wait_until(&mut child, "the scratch file was laid out", || has_written(&scratch, 8 << 20));
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(json(&output)["ended"], "interrupted");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_second_signal_ends_it_at_once_and_still_removes_the_scratch_file() {
    let directory = directory();
    let mut child = start(directory.path(), &["sweep", "--time=1000s", "--size=64m"]);
    let scratch = scratch(directory.path(), &child);
    wait_until(&mut child, "there was a scratch file", || scratch.exists());
    signal(&child, "TERM");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(!scratch.exists());
}

#[test]
fn a_second_signal_ends_what_the_first_could_not() {
    let directory = directory();
    let mut child = start(directory.path(), &[&ENDLESS[..], &["--thread=0"]].concat());
    let data = directory.path().join("endless.0.0");
    wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
    // A clone that stands still does not end, and the run waits for it.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let clone = children.trim().to_owned();
    tool("kill", &["-s", "STOP", &clone], Path::new("/"));
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the first signal waits for the clone");
    // Whichever comes after the echo of the first.
    let status = loop {
        signal(&child, "INT");
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert_eq!(status.code(), Some(130));
    let _ = Command::new("kill").args(["-s", "KILL", &clone]).stderr(Stdio::null()).status(); // may have gone with it
}

#[test]
fn a_run_that_is_interrupted_while_files_are_made_says_so_in_json() {
    let directory = directory();
    let size = endless_layout(directory.path());
    let job = ["run", "--name=big", "--rw=read", &size, "--unlink=1", "--output-format=json"];
    let mut child = start(directory.path(), &job);
    let data = directory.path().join("big.0.0");
    wait_until(&mut child, "it has laid out a part", || has_written(&data, 1 << 20));
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 0);
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let directory = directory();
    let mut child = start(directory.path(), &[&ENDLESS[..], &["--thread=1", "--output-format=json"]].concat());
    let data = directory.path().join("endless.0.0");
    wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
    // Stopped meanwhile, it finds both when it goes on.
    let both = ["STOP", "INT", "TERM", "CONT"].map(|name| format!("kill -s {name} {}", child.id())).join("; ");
    tool("sh", &["-c", &both], Path::new("/"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(json(&output)["jobs"][0]["error"], 0);
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

#[test]
fn a_signal_to_the_whole_group_ends_the_run_in_good_order() {
    use std::os::unix::process::CommandExt;
    let directory = directory();
    let mut command = plimsoll(directory.path());
    command.args([&ENDLESS[..], &["--numjobs=2", "--output-format=json"]].concat());
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let data = directory.path().join("endless.0.0");
    wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
    tool("sh", &["-c", &format!("kill -s TERM -- -{}", child.id())], Path::new("/"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    for job in json(&output)["jobs"].as_array().unwrap() {
        assert_eq!(job["error"], 0);
    }
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

/// A sweep that a signal ends while it lays out its scratch file has measured nothing: it leaves neither the scratch
/// file nor a result in which nothing stands.
#[test]
fn a_sweep_that_is_interrupted_while_it_lays_out_leaves_nothing() {
    for name in ["INT", "TERM", "HUP"] {
        let directory = directory();
        // More than is written before the signal, less than fills the disk of others.
        let mut child = start(directory.path(), &["sweep", "--size=2g"]);
        let scratch = scratch(directory.path(), &child);
        wait_until(&mut child, "it has laid out a part", || has_written(&scratch, 1 << 20));
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{name}: {}", stderr(&output));
        assert!(names(directory.path()).is_empty(), "{name}: {:?}", names(directory.path()));
    }
}

#[test]
fn a_run_that_is_interrupted_before_it_measured_saves_no_empty_result() {
    let directory = directory();
    let job = ["run", "--name=big", "--rw=read", "--size=4g", "--unlink=1", "--save=r.json", "--html=r.html"];
    let mut child = start(directory.path(), &job);
    let data = directory.path().join("big.0.0");
    wait_until(&mut child, "it has laid out a part", || has_written(&data, 1 << 20));
    signal(&child, "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("the run measured nothing"), "{}", stderr(&output));
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

#[test]
fn the_scratch_file_of_a_killed_sweep_is_removed_by_the_next() {
    let directory = directory();
    let forever = ["sweep", "--time=1000s", "--point-time=1000s", "--size=8m", "--json"];
    let mut killed = start(directory.path(), &forever);
    let left = scratch(directory.path(), &killed);
    wait_until(&mut killed, "the scratch file was laid out", || has_written(&left, 8 << 20));
    let quick = ["sweep", "--iodepth=1,2,4", "--time=2s", "--size=8m", "--json"];
    let beside = succeed(directory.path(), &quick);
    assert!(left.exists() && !stderr(&beside).contains("killed"), "a sweep that lives keeps its file");
    signal(&killed, "KILL");
    killed.wait().unwrap();
    assert!(left.exists(), "it had no time to clean up");
    let next = succeed(directory.path(), &quick);
    assert!(stderr(&next).contains(left.file_name().unwrap().to_str().unwrap()), "{}", stderr(&next));
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

/// `ulimit -f` is a signal to programs that do not handle it, and they leave everything where it is.
#[test]
fn a_limit_of_file_sizes_is_an_error_that_leaves_nothing() {
    let directory = directory();
    let command = format!("ulimit -f 2048; exec {} sweep --size=64m", env!("CARGO_BIN_EXE_plimsoll"));
    let output = Command::new("sh").args(["-c", &command]).current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

#[test]
fn a_full_disk_is_an_error_that_leaves_nothing_and_loses_nothing() {
    let Some(mount) = Mount::new("tmpfs", "size=24m") else { return };
    // The layout fits; then something else takes the room, and neither result can be written.
    let filler = file(mount.path(), "filler", vec![1; 8 << 20]);
    let output = run(mount.path(), &["sweep", "--size=64m"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(names(mount.path()), ["filler"]);
    std::fs::remove_file(filler).unwrap();
    let mut filler = std::fs::File::create(mount.path().join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    let elsewhere = directory();
    let job = ["run", "--name=a", "--ioengine=null", "--size=64m", "--bwavgtime=1", "--save=r.json"];
    let output = plimsoll(mount.path()).env("TMPDIR", elsewhere.path()).args(job).output().unwrap();
    assert_ne!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(names(mount.path()), ["filler"]);
    let [rescued] = &names(elsewhere.path())[..] else { panic!("{:?}: {}", names(elsewhere.path()), stderr(&output)) };
    assert!(stderr(&output).contains(rescued.as_str()), "{}", stderr(&output));
    assert_eq!(json_file(&elsewhere.path().join(rescued))["jobs"][0]["name"], "a");
    // Of two results that do not fit, both are kept, and both are named.
    let both = directory();
    let output = plimsoll(mount.path()).env("TMPDIR", both.path()).args(job).arg("--html=r.html").output().unwrap();
    assert_ne!(output.status.code(), Some(0), "{}", stderr(&output));
    let rescued = names(both.path());
    assert_eq!(rescued.len(), 2, "{rescued:?}: {}", stderr(&output));
    assert!(rescued.iter().all(|name| stderr(&output).contains(name.as_str())), "{rescued:?}: {}", stderr(&output));
}

/// A shell that sends a report to a full disk still has the files that it asked for.
#[test]
fn a_full_standard_output_is_an_error_that_loses_no_result() {
    let directory = directory();
    let job = "[a]\nioengine=null\nsize=64k\n";
    file(directory.path(), "a.fio", job);
    file(directory.path(), "b.fio", job);
    std::fs::create_dir(directory.path().join("d")).unwrap();
    let sim = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/sim/depth.toml");
    for arguments in [
        &["sweep", "--engine=null", "--iodepth=1,2,4", "--time=2s", "--save=r.json", "--html=r.html"][..],
        &["run", "a.fio", "--save=r.json", "--html=r.html"],
        &["run", "a.fio", "--save=r.json", "--html=r.html", "--bandwidth-log", "--output=/dev/full"],
        &["run", "a.fio", "--output-format=json", "--save=r.json", "--html=r.html"],
        &["compare", "a.fio", "b.fio", "--pairs=2", "--csv", "--save=r.json", "--html=r.html"],
        &["files", "--op=create,unlink", "--files=20", "--dir=d", "--json", "--save=r.json", "--html=r.html"],
        &["sim", sim, "--json=r.json", "--html=r.html"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = plimsoll(directory.path());
        let output = command.args(arguments).env("TMPDIR", directory.path()).stdout(full).output().unwrap();
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("No space left on device") && error.contains("cannot write "), "{arguments:?}: {error}");
        for name in ["r.json", "r.html"] {
            let path = directory.path().join(name);
            assert!(std::fs::metadata(&path).is_ok_and(|file| file.len() > 100), "{arguments:?}: {name}: {error}");
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn places_of_results_are_tried_before_anything_runs() {
    let directory = directory();
    file(directory.path(), "r.json", "{}");
    file(directory.path(), "depth.toml", "name = \"t\"\n");
    let before = names(directory.path());
    let null = "--name=a --ioengine=null --size=64k";
    let wanted: Vec<Vec<&str>> = [
        "run --name=a --rw=write --size=64k --save=none/r.json",
        "run --name=a --rw=write --size=64k --html=none/r.html",
        "run --name=a --rw=write --size=64k --output=none/r.txt",
        "run --name=a --rw=write --size=64k --write_bw_log=none/a",
        "run --name=a --rw=write --size=64k --write_lat_log=none/a",
        "run --name=a --rw=write --size=64k --write_hist_log=none/a",
        "files --op=create --save=none/r.json",
        "files --op=create --html=none/r.html",
        "sweep --size=64m --save=none/r.json",
        "sweep --size=64m --html=none/r.html",
        "sweep --size=64m --save=.",
        "sweep --size=64m --save=/proc/r.json", // a directory in which not even root may write
        "sim depth.toml --json none/r.json",
        "sim depth.toml --html none/r.html",
        "trap --async --stats-json none/r.json touch ran",
    ]
    .iter()
    .map(|line| line.split(' ').collect())
    .chain([
        [&["compare", "--engine=null,psync", "--html=none/r.html"][..], &null.split(' ').collect::<Vec<_>>()].concat(),
        [&["compare", "--engine=null,psync", "--save=none/r.json"][..], &null.split(' ').collect::<Vec<_>>()].concat(),
    ])
    .collect();
    for arguments in wanted {
        let error = refused(directory.path(), &arguments);
        assert!(error.contains("cannot write"), "{arguments:?}: {error}");
        assert_eq!(names(directory.path()), before, "{arguments:?}");
    }
    // The default names are tried as well, and the aggregated log.
    let here = Path::new("/proc");
    for arguments in
        [&["sweep", "/etc/passwd"][..], &["run", "--bandwidth-log", "--name=a", "--ioengine=null", "--size=4k"]]
    {
        assert!(refused(here, arguments).contains("cannot write"), "{arguments:?}");
    }
}

#[test]
fn sweeps_that_end_together_take_different_names() {
    let directory = directory();
    let quick = ["sweep", "--iodepth=1,2,4", "--time=2s", "--size=4m", "--engine=null"];
    let both: Vec<Child> = (0..3).map(|_| start(directory.path(), &quick)).collect();
    for child in both {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let numbered = |extension: &str| [1, 2, 3].map(|n| format!("plimsoll-sweep-{n}.{extension}"));
    let mut expected = [numbered("json"), numbered("html")].concat();
    expected.sort();
    assert_eq!(names(directory.path()), expected);
}
