//! Bad input: one clear line, status 2, nothing left behind.

mod common;
use common::loop_device::LoopDevice;
use common::*;

#[test]
fn what_is_wrong_is_said_in_one_line_and_nothing_is_left() {
    let directory = directory();
    file(directory.path(), "bad.fio", "[global]\nrw=read\n[job]\nsize=1m\nbs=4q\n");
    file(directory.path(), "unknown.fio", "[job]\nrw=read\nsize=1m\nwarp_factor=9\n");
    for (arguments, words) in [
        (&["run", "missing.fio"][..], &["missing.fio", "No such file"][..]),
        (&["run", "bad.fio"], &["bad.fio:5", "4q"]),
        (&["run", "unknown.fio"], &["unknown.fio:4", "warp_factor"]),
        (&["run", "--check", "bad.fio"], &["bad.fio:5", "4q"]),
        (&["run", "--name=a", "--rw=sideways", "--size=1m"], &["sideways"]),
        (&["run", "--name=a", "--rw=write", "--size=10x"], &["10x"]),
        (&["run", "--name=a", "--rw=write", "--size=1.5q"], &["1.5q"]),
        (&["run", "--name=a", "--rw=write"], &["size"]),
        (&["run", "--name=a", "--rw=write", "--size=0"], &["size"]),
        (&["run", "--name=a", "--rw=write", "--size=1m", "--ioengine=warp"], &["warp"]),
        (&["run", "--name=a", "--rw=write", "--size=1m", "--no_such_option=1"], &["no_such_option"]),
        (&["run", "--name=a", "--rw=read", "--filename=gone/away", "--size=1m"], &["gone"]),
        (&["run", "--name=a", "--rw=read", "--directory=gone", "--size=1m"], &["gone"]),
        (&["run", "--readonly", "--name=a", "--rw=write", "--size=1m"], &["a", "--readonly"]),
        (&["run"], &["nothing to run"]),
        (&["sweep", "--time", "-1"], &["'-1'", "--time", "at least a millisecond"]),
        (&["sweep", "--precondition-rounds", "-1", "."], &["-1", "--precondition-rounds", "5"]),
        (&["watch", "/dev/null", "--interval", "-2s"], &["'-2s'", "--interval", "at least a millisecond"]),
        (&["sweep", "--workload", "."], &["cannot read .: ", "directory"]),
        (&["sweep", "--workload=unknown.fio,."], &["unknown.fio:1: ", "not the first line of a log"]),
        (&["sweep", "--axis=bs=8k..4k"], &["--axis bs=8k..4k", "smaller value comes first"]),
        (&["report", "missing.json"], &["missing.json"]),
        (&["report", "bad.fio"], &["bad.fio"]),
        (&["compare", "missing.fio", "bad.fio"], &["missing.fio"]),
        (&["compare", "--engine=psync,warp", "--name=a", "--rw=read", "--size=1m"], &["warp"]),
        (&["serve", "--null", "abc"], &["--null abc", "expected 64m"]),
        (&["run", "--check", "--name=a", "--ioengine=gfapi", "--size=1m"], &["gfapi", "volume="]),
        (&["run", "--check", "--name=a", "--ioengine=nvme_tcp", "--size=1m"], &["nvme_tcp", "traddr="]),
        (&["run", "--check", "--name=a", "--ioengine=nvme_rdma", "--size=1m"], &["nvme_rdma", "traddr="]),
        (
            &[
                "run",
                "--check",
                "--name=a",
                "--ioengine=nvme_rdma",
                "--size=1m",
                "--filename=trtype=tcp traddr=127.0.0.1",
            ],
            &["does not speak trtype=tcp", "ioengine=nvme_tcp"],
        ),
        (
            &[
                "run",
                "--name=a",
                "--ioengine=nvme_rdma",
                "--size=1m",
                "--filename=traddr=127.0.0.1",
                "--digest_enable=BOTH",
            ],
            &["digest_enable=BOTH is not an option of the engine nvme_rdma"],
        ),
        // Where there is no RDMA device, or no rdma-core, and where there is one.
        (
            &[
                "run",
                "--name=a",
                "--ioengine=nvme_rdma",
                "--size=1m",
                "--filename=traddr=127.0.0.1 subnqn=nqn.2016-06.io.spdk:cnode1",
            ],
            &["cannot connect to 127.0.0.1:4420 over RDMA"],
        ),
        (&["run", "--check", "--name=a", "--ioengine=cpuio", "--cpuload=9", "--lockfile=exclusive"], &["lockfile"]),
        (&["run", "--name=a", "--rw=read", "--size=1m", "--ss=iops:1", "--ss_dur=9", "--ss_interval=5"], &["fewer"]),
        (&["run", "--name=a", "--rw=read", "--size=1m", "--ss=iops:1", "--ss_dur=9", "--ss_interval=9ms"], &["short"]),
    ] {
        let line = refused(directory.path(), arguments);
        assert!(words.iter().all(|word| line.contains(word)), "{arguments:?}: {line}");
        assert!(line.starts_with("plimsoll: "), "{arguments:?}: {line}");
        assert_eq!(names(directory.path()), ["bad.fio", "unknown.fio"], "{arguments:?} left something behind");
    }
}

#[test]
fn names_that_are_not_utf_8_are_taken_as_they_are_or_refused() {
    use std::os::unix::ffi::OsStrExt;
    let directory = directory();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    std::fs::write(directory.path().join(odd), vec![7; 1 << 20]).unwrap();
    file(directory.path(), "data", vec![7; 1 << 20]);
    let entries = || std::fs::read_dir(directory.path()).unwrap().count();
    let before = entries();
    for target in [odd.to_owned(), std::ffi::OsString::from("data")] {
        let mut command = plimsoll(directory.path());
        command.arg("sweep").arg(&target).args(["--size=1m", "--iodepth=1", "--time=1s", "--no-files", "--save"]);
        let result = std::ffi::OsStr::from_bytes(b"r\xff.json");
        let output = command.arg(result).output().unwrap();
        if target == "data" {
            assert!(output.status.success(), "{}", stderr(&output));
            let saved = json_file(&directory.path().join(result));
            let command = saved["provenance"]["command"].as_array().unwrap();
            assert_eq!(command.last().unwrap(), "r\u{fffd}.json", "{command:?}");
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("not UTF-8") && said.trim_end().lines().count() == 1, "{said}");
        assert_eq!(entries(), before);
    }
}

#[test]
fn an_option_with_a_value_that_is_not_utf_8_is_not_a_job_file() {
    use std::os::unix::ffi::OsStrExt;
    let directory = directory();
    for (subcommand, option) in [
        ("run", &b"--filename=\xff"[..]),
        ("run", b"-output=\xff"),
        ("sweep", b"--filename=\xff"),
        ("compare", b"--filename=\xff"),
    ] {
        let option = std::ffi::OsStr::from_bytes(option);
        let output = plimsoll(directory.path()).arg(subcommand).arg("--name=a").arg(option).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{subcommand}: {said}");
        let name = option.to_string_lossy();
        let name = name.split('=').next().unwrap().trim_start_matches('-');
        assert!(said.contains(name) && said.contains("UTF-8") && said.lines().count() == 1, "{subcommand}: {said}");
        assert!(names(directory.path()).is_empty());
    }
    // A path of the program's own may have any bytes, whichever way it is given.
    let saved = std::ffi::OsStr::from_bytes(b"--save=r\xff.json");
    let sweep = ["sweep", "--engine=null", "--size=1m", "--iodepth=1..1", "--time=1s", "--no-files"];
    let output = plimsoll(directory.path()).args(sweep).arg(saved).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(directory.path().join(std::ffi::OsStr::from_bytes(b"r\xff.json")).exists());
}

#[test]
fn results_do_not_replace_what_a_command_reads() {
    let directory = directory();
    let data = file(directory.path(), "data", vec![7; 1 << 20]);
    std::os::unix::fs::symlink("data", directory.path().join("link")).unwrap();
    let job = "[job]\nrw=read\nfilename=data\nsize=1m\n";
    file(directory.path(), "job.fio", job);
    succeed(directory.path(), &["run", "job.fio", "--save", "result.json", "--output=out", "--write_iolog=iolog"]);
    let result = std::fs::read(directory.path().join("result.json")).unwrap();
    std::fs::remove_file(directory.path().join("out")).unwrap();
    file(directory.path(), "copy.1", vec![7; 1 << 16]);
    file(directory.path(), "input.yaml", "op: create\nfiles: 2\n");
    let scenario = format!("{}/configs/sim/depth.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(scenario, directory.path().join("depth.toml")).unwrap();
    let before = names(directory.path());
    for arguments in [
        &["sweep", "data", "--save=data"][..],
        &["sweep", "data", "--html", "link"],
        &["sweep", "--filename=data", "--save", "./data"],
        &["sweep", "job.fio", "--save", "job.fio"],
        &["sweep", "job.fio", "--save", "data"],
        &["sweep", "--workload", "data", "--save", "data"],
        &["run", "job.fio", "--save", "job.fio"],
        &["run", "job.fio", "--output=data"],
        &["run", "job.fio", "--html", "link"],
        &["run", "--name=job", "--rw=read", "--filename=data", "--write_iolog=link"],
        &["run", "--name=job", "--rw=randread", "--filename=copy.1", "--numjobs=2", "--write_iolog=copy"],
        &["run", "--name=job", "--read_iolog=iolog", "--write_iolog=iolog"],
        &["compare", "job.fio", "job.fio", "--html=job.fio"],
        &["compare", "--engine=psync,sync", "job.fio", "--save=data"],
        &["compare", "result.json", "result.json", "--save=result.json"],
        &["report", "result.json", "-o", "result.json"],
        &["history", ".", "--html", "result.json"],
        &["files", "--input=input.yaml", "--save=input.yaml"],
        &["sim", "depth.toml", "--json", "depth.toml"],
    ] {
        let said = refused(directory.path(), arguments);
        assert!(said.contains("would replace"), "{arguments:?}: {said}");
    }
    for arguments in [
        &["sweep", "data", "--save=x", "--html=./x"][..],
        &["run", "job.fio", "--save=x", "--output", "x"],
        &["compare", "job.fio", "job.fio", "--save=x", "--html=x"],
        &["sim", "depth.toml", "--json=x", "--html=x"],
    ] {
        let said = refused(directory.path(), arguments);
        assert!(said.contains("two results would go to it"), "{arguments:?}: {said}");
    }
    assert_eq!(names(directory.path()), before);
    assert_eq!(std::fs::read(&data).unwrap(), vec![7; 1 << 20]);
    assert_eq!(std::fs::read(directory.path().join("job.fio")).unwrap(), job.as_bytes());
    assert_eq!(std::fs::read(directory.path().join("result.json")).unwrap(), result);
    // A device takes any number of results, and loses nothing.
    succeed(directory.path(), &["run", "job.fio", "--save=/dev/null", "--output=/dev/null"]);
    let Some(device) = LoopDevice::over(&data) else { return };
    let said = refused(directory.path(), &["sweep", "job.fio", "--save", &device.path]);
    assert!(said.contains("it is a block device"), "{said}");
    assert_eq!(std::fs::read(&data).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn a_full_filesystem_is_one_line_and_nothing_is_left() {
    let Some(mount) = Mount::new("tmpfs", "size=8m,mode=700") else { return };
    let line = refused(mount.path(), &["run", "--name=a", "--rw=read", "--size=64m"]);
    assert!(line.contains("space") && line.contains("67108864"), "{line}");
    assert!(names(mount.path()).is_empty());
    let line = refused(mount.path(), &["sweep", "--size=64m"]);
    assert!(line.to_lowercase().contains("space") || line.contains("free"), "{line}");
    assert!(names(mount.path()).is_empty());
}

#[test]
fn direct_io_that_a_filesystem_does_not_do_is_one_line() {
    let Some(mount) = Mount::new("ramfs", "mode=700") else { return };
    let line = refused(mount.path(), &["run", "--name=a", "--rw=write", "--size=1m", "--direct=1"]);
    assert!(line.contains("direct"), "{line}");
    assert!(names(mount.path()).is_empty());
}

#[test]
fn a_device_with_a_filesystem_is_not_written_to() {
    if !is_root("attach a loop device") || !has_program("mkfs.ext4") {
        return;
    }
    let directory = directory();
    let image = file(directory.path(), "image", vec![0; 16 << 20]);
    tool("mkfs.ext4", &["-q", "-F", "image"], directory.path());
    let before = std::fs::read(&image).unwrap();
    let Some(device) = LoopDevice::over(&image) else { return };
    let filename = format!("--filename={}", device.path);
    let write = ["run", "--name=a", "--rw=write", "--size=1m", &filename];
    let line = refused(directory.path(), &write);
    assert!(line.contains(&device.path) && line.contains("ext4") && line.contains("allow"), "{line}");
    let line = refused(directory.path(), &["sweep", &device.path, "--rw=randwrite", "--allow-writes"]);
    assert!(line.contains("ext4"), "{line}");
    assert!(std::fs::read(&image).unwrap() == before, "nothing was written");

    succeed(directory.path(), &["run", "--name=a", "--rw=read", "--size=1m", &filename]);
}

#[test]
fn a_file_system_that_counts_no_blocks_is_not_full() {
    let Some(mount) = Mount::new("ramfs", "mode=700") else { return };
    let result = json(&succeed(mount.path(), &["run", "--name=a", "--rw=write", "--size=64k", "--output-format=json"]));
    assert_eq!(result["jobs"][0]["write"]["io_bytes"], 64 << 10);
}

#[test]
fn an_engine_that_cannot_start_is_refused_before_files_are_made() {
    let directory = directory();
    // No machine has that processor: the ring cannot be set up, as where io_uring is forbidden.
    let ring = ["--ioengine=io_uring", "--sqthread_poll=1", "--sqthread_poll_cpu=8191"];
    let job = [&["run", "--name=a", "--rw=read", "--size=1m"], &ring[..]].concat();
    assert!(refused(directory.path(), &job).contains("io_uring"));
    let job = ["run", "--name=a", "--rw=read", "--size=1m", "--cpus_allowed=1000"];
    assert!(refused(directory.path(), &job).contains("cpus_allowed"));
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}
