//! Small files, sweeps and Gluster volumes on several hosts, and the driver of gfapi_perf_tool's users.

mod common;
use common::hosts::*;
use common::{directory, file, has_program, names, stderr, stdout};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn a_directory_that_all_hosts_share() {
    if possible() {
        on_hosts(rig(), "a_directory_that_all_hosts_share");
    }
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_a_directory_that_all_hosts_share() {
    let place = directory();
    let place = place.path();
    many_files(place);
    one_directory(place);
    neighbours(place);
    mdtest(place);
    sweeps(place);
    driver(place);
}

fn phase<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("{name}"))
}

fn many_files(place: &Path) {
    let shared = place.join("shared");
    std::fs::create_dir(&shared).unwrap();
    let dir = format!("--dir={}", shared.display());
    let files = ["files", &dir, "--files=50", "--threads=2", "--size=4k", "--verify", "--json"];
    let result = json(&succeed(place, 4, &[&files[..], &["--op=create,read"]].concat()));
    assert_eq!(names(&shared), ["rank0", "rank1", "rank2", "rank3"], "each rank has a directory of its own");
    for name in ["create", "read"] {
        let phase = phase(&result, name);
        assert_eq!((&phase["total"]["files"], &phase["total"]["failed"]), (&400.into(), &0.into()));
        let threads: Vec<u64> =
            phase["threads"].as_array().unwrap().iter().map(|one| one["thread"].as_u64().unwrap()).collect();
        assert_eq!(threads, (0..8).collect::<Vec<_>>(), "threads are numbered through all ranks");
        // The distribution of all is that of every host's put together.
        let hosts = result["hosts"]["hosts"].as_array().unwrap();
        let whole = |of: &Value| -> measure::Histogram {
            serde_json::from_value(of["operations"][0]["lat_ns"].clone()).unwrap()
        };
        let mut sum = measure::Histogram::new();
        let at = if name == "create" { 0 } else { 1 };
        hosts.iter().for_each(|host| sum.merge(&whole(&host["phases"][at])));
        assert_eq!((whole(phase), sum.count()), (sum.clone(), 400));
    }
    // The next run finds what this one has made.
    let text =
        stdout(&succeed(place, 4, &["files", &dir, "--files=50", "--threads=2", "--op=stat,unlink", "--cleanup"]));
    // A table of hosts for each phase, and one for what is of the hosts and not of a phase.
    let titles: Vec<&str> = text.lines().filter(|line| line.ends_with(" by host")).collect();
    assert_eq!(titles, ["stat by host", "unlink by host"], "{text}");
    let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((rows("Host "), rows("All "), rows("a ")), (3, 3, 3), "{text}");
    assert_eq!(text.matches("until the first thread of all ranks was through").count(), 2, "{text}");
    for rank in names(&shared) {
        let rank = shared.join(rank);
        let left: Vec<String> = names(&rank).iter().flat_map(|thread| names(&rank.join(thread))).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    // A host without the directory.
    std::fs::create_dir(place.join("of-a")).unwrap();
    let output = run(place, 4, &["files", "--dir=of-$host/x", "--op=create", "--files=10"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("rank 2 on c: cannot make directory of-c/x"), "{said}");
}

/// The threads of all ranks in the same directories: names are numbered through, each directory is listed once, and a
/// run of another number of ranks and threads, but of as many in all, finds every file.
fn one_directory(place: &Path) {
    let shared = place.join("one");
    std::fs::create_dir(&shared).unwrap();
    let dir = format!("--dir={}", shared.display());
    let files = ["files", &dir, "--shared=ranks", "--files=30", "--files-per-dir=60", "--size=exp:5k", "--verify"];
    let made = ["--threads=2", "--op=create,mkdir,stat-dir,rmdir,readdir,ls-l", "--json"];
    let result = json(&succeed(place, 4, &[&files[..], &made].concat()));
    assert_eq!(names(&shared), ["shared-d0000", "shared-d0001", "shared-d0002", "shared-d0003"]);
    let all: Vec<String> = names(&shared).iter().flat_map(|directory| names(&shared.join(directory))).collect();
    assert_eq!(all.len(), 240);
    for thread in 0..8 {
        assert_eq!(all.iter().filter(|name| name.starts_with(&format!("f.{thread:03}-"))).count(), 30);
    }
    for name in ["readdir", "ls-l"] {
        let total = &phase(&result, name)["total"];
        assert_eq!((&total["directories"], &total["files"]), (&4.into(), &240.into()), "{name}");
    }
    let text = ["--threads=4", "--op=read,rename,stat,rename,unlink,cleanup", "--json"];
    let result = json(&succeed(place, 2, &[&files[..], &text].concat()));
    assert_eq!(phase(&result, "read")["total"]["files"], 240);
    assert!(names(&shared).is_empty(), "{:?}", names(&shared));
    let output = run(place, 2, &[&files[..], &["--op=create", "--cleanup"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--cleanup with --shared=ranks"), "{}", stderr(&output));
}

/// Each rank works on the files of another: with those of one rank gone, only the rank before it fails. The contents
/// verify, because they are those of the rank that made them.
fn neighbours(place: &Path) {
    for layout in [&["--threads=2"][..], &["--threads=2", "--shared=ranks"]] {
        let shared = place.join("neighbours");
        std::fs::create_dir(&shared).unwrap();
        let dir = format!("--dir={}", shared.display());
        let files = [&["files", &dir, "--files=20", "--size=exp:5k", "--verify", "--neighbour=1"], layout].concat();
        let operations = "--op=create,read,setxattr,getxattr,overwrite,read,rename,stat,append";
        let result = json(&succeed(place, 4, &[&files[..], &[operations, "--json"]].concat()));
        for one in result["phases"].as_array().unwrap() {
            assert_eq!((&one["total"]["files"], &one["total"]["failed"]), (&160.into(), &0.into()), "{}", one["name"]);
        }
        // Files of the third rank: those of its threads, 4 and 5 of all.
        let lost: Vec<std::path::PathBuf> = match layout.len() {
            1 => vec![
                shared.join("rank2/thrd000-d0000/f.0000003.renamed"),
                shared.join("rank2/thrd001-d0000/f.0000004.renamed"),
            ],
            _ => vec![
                shared.join("shared-d0000/f.004-0000003.renamed"),
                shared.join("shared-d0000/f.005-0000004.renamed"),
            ],
        };
        lost.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let output = run(place, 4, &[&files[..], &["--op=delete-renamed", "--continue-on-error", "--json"]].concat());
        assert_eq!(output.status.code(), Some(1));
        let result = json(&output);
        let removal = &result["phases"][0];
        let failed = |one: &Value| one["work"]["failed"].as_u64().unwrap();
        let failed: Vec<u64> = removal["threads"].as_array().unwrap().iter().map(failed).collect();
        assert_eq!(failed, [0, 0, 1, 1, 0, 0, 0, 0], "{layout:?}: the second rank works on the files of the third");
        succeed(place, 4, &[&["files", &dir, "--files=20", "--op=cleanup"], layout].concat());
        std::fs::remove_dir_all(&shared).unwrap();
    }
}

/// The phases of IO500 as its script starts them: mdtest under mpirun, each on the files of a neighbour.
fn mdtest(place: &Path) {
    if !has_program("python3") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/compat/mdtest");
    let row = |line: &str, row: &str| {
        let mut command = mpirun(place, 4);
        command.args(["-x", &format!("PLIMSOLL={}", program().display())]).arg(script);
        let output = command.args(line.split(' ')).output().expect("mpirun starts");
        let text = stdout(&output);
        assert!(output.status.success(), "{line}: {text}{}", stderr(&output));
        assert_eq!(text.matches("SUMMARY rate").count(), 1, "one rank speaks: {text}");
        assert!(text.contains("launched with 4 total task(s)"), "{text}");
        let found = text.lines().find(|found| found.trim_start().starts_with(row)).unwrap_or_else(|| panic!("{text}"));
        let rates: Vec<f64> = found.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(rates.len() == 4 && rates[0] > 0.0 && rates[1] <= rates[2] && rates[2] <= rates[0], "{found}");
    };
    for options in ["-F -u -n 40 -N 1 -d easy", "-F -n 40 -w 3901 -e 3901 -X -N 1 -d hard"] {
        row(&format!("-C {options}"), "File creation");
        row(&format!("-T -R7 {options}"), "File stat");
        row(&format!("-E {options}"), "File read");
        row(&format!("-r {options}"), "File removal");
    }
    row("-D -n 20 -d directories -i 3", "Directory stat");
}

/// IOR as IO500's script starts it: a task on each rank, which reads what another has written.
#[test]
fn ior_has_a_task_on_each_rank() {
    if !["mpirun", "mpicc", "python3"].into_iter().all(has_program) {
        return;
    }
    let place = directory();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/compat/ior");
    let ior = |line: &str| {
        let mut command = mpirun(place.path(), 3);
        command.args(["-x", &format!("PLIMSOLL={}", program().display())]).arg(script);
        command.args(line.split(' ')).output().expect("mpirun starts")
    };
    let result = |line: &str| {
        let output = ior(&format!("{line} -O summaryFormat=JSON"));
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        let result = json(&output); // one rank speaks
        assert_eq!(result["tests"][0]["Parameters"]["numTasks"], 3);
        let result = &result["tests"][0]["Results"][0];
        let of = |name: &str| result[name].as_f64().unwrap();
        (of("bwMiB") * of("totalTime") * 1_048_576.0).round() as u64
    };
    let length = |name: &str| place.path().join(name).metadata().map_or(0, |found| found.len());
    let all = 3 * 2 * 192 * 1024;
    assert_eq!(result("-w -k -C -e -t 64k -b 192k -s 2 -o shared"), all);
    assert_eq!(length("shared"), all);
    let holes = std::fs::read(place.path().join("shared")).unwrap();
    assert!(holes.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)), "each task wrote its segments");
    assert_eq!(result("-r -C -Q 2 -t 64k -b 192k -s 2 -o shared"), all);
    assert!(!place.path().join("shared").exists(), "without -k the file is removed");
    assert_eq!(result("-w -k -F -t 64k -b 192k -o own"), all / 2);
    assert_eq!([0, 1, 2].map(|task| length(&format!("own.{task:08}"))), [192 * 1024; 3]);
    assert_eq!(result("-r -F -C -t 64k -b 192k -o own"), all / 2);
    assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
    let output = ior("-w -r -o x");
    assert!(
        !output.status.success() && stderr(&output).contains("a rank joins the others once"),
        "{}",
        stderr(&output)
    );
}

fn sweeps(place: &Path) {
    let job = ["sweep", "--ioengine=null", "--total-iodepth=2,4,16", "--time=8s", "--json"];
    let result = json(&succeed(place, 4, &job));
    assert_eq!(result["ranks"], serde_json::json!(["a", "b", "c", "d"]));
    let target = result["target"].as_str().unwrap();
    assert!(target.contains("4 ranks on a, b, c, d; iodepth of all together"), "{target}");
    let points = result["curves"][0]["points"].as_array().unwrap();
    let clones: Vec<(f64, u64)> =
        points.iter().map(|point| (point["x"].as_f64().unwrap(), point["job"]["clones"].as_u64().unwrap())).collect();
    assert_eq!(clones, [(2.0, 2), (4.0, 4), (16.0, 4)], "with a depth of 2, two ranks sit the point out");
    let asked: Vec<u64> = points.iter().map(|point| point["job"]["facts"]["iodepth"].as_u64().unwrap()).collect();
    assert_eq!(asked, [1, 1, 4], "each rank has its share");

    // On a file that all share, and with a scratch file on each host.
    file(place, "data", vec![7; 1 << 20]);
    let result =
        json(&succeed(place, 4, &["sweep", "--ioengine=psync", "--iodepth=1,2", "--time=6s", "--json", "data"]));
    let clones: Vec<&Value> =
        result["curves"][0]["points"].as_array().unwrap().iter().map(|point| &point["job"]["clones"]).collect();
    assert_eq!(clones, [&Value::from(4), &Value::from(8)], "stated for each rank");
    let scratch = ["sweep", "--ioengine=psync", "--iodepth=1,2", "--size=4m", "--time=3s", "--no-files", "."];
    let output = succeed(place, 4, &scratch);
    assert!(stdout(&output).contains("iodepth of each"), "{}", stdout(&output));
    assert!(!names(place).iter().any(|name| name.contains("scratch")), "{:?}", names(place));

    let output = run(place, 4, &["sweep", "--ioengine=psync", "--iodepth=1", "none-$host"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("none-"), "{}", stderr(&output));
}

fn parallel_gfapi(place: &Path, variables: &[(&str, &str)]) -> Output {
    file(place, "clients.list", std::env::var("HOSTS").unwrap().replace(',', "\n") + "\n");
    let mut driver = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/parallel_gfapi"));
    driver.current_dir(place).env("PLIMSOLL", program()).env("TMPDIR", place).envs(variables.iter().copied());
    driver.output().unwrap()
}

/// A closing line's number.
fn closing(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line[name.len()..].split_whitespace().next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"))
}

/// The driver of gfapi_perf_tool's users on a mount, here the directory that all hosts share.
fn driver(place: &Path) {
    if !has_program("python3") {
        return;
    }
    let mount = place.join("mount");
    std::fs::create_dir(&mount).unwrap();
    let common = [
        ("PGFAPI_FUSE", "1"),
        ("PGFAPI_MOUNTPOINT", mount.to_str().unwrap()),
        ("PGFAPI_PROCESSES", "2"),
        ("PGFAPI_THREADS_PER_PROC", "3"),
        ("PGFAPI_FILES", "20"),
        ("PGFAPI_USEC_DELAY_PER_FILE", "0"),
    ];
    let with = |more: &[(&'static str, &'static str)]| parallel_gfapi(place, &[&common[..], more].concat());
    let output = with(&[("PGFAPI_LOAD", "seq-wr"), ("PGFAPI_FILESIZE", "8"), ("PGFAPI_RECORDSIZE", "4")]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}\n{}", stderr(&output));
    let made = names(&mount.join("gfapi-test"));
    let expected: Vec<String> =
        ["a", "b", "c", "d"].iter().flat_map(|host| ["01", "02"].map(|n| format!("smf-gfapi-{host}.{n}"))).collect();
    assert_eq!(made, expected, "the original's directories");
    assert!(text.contains("\n24 threads finished out of 24 \ntransfer-rate: "), "{text}");
    let (mbps, fps, iops) = (closing(&text, "transfer-rate:"), closing(&text, "file-rate:"), closing(&text, "IOPS:"));
    // Printed with two decimals, of which rates of a slow machine lose more.
    let same = |a: f64, b: f64| (a - b).abs() < 0.01 * b + 0.02;
    assert!(same(iops, 2.0 * fps) && same(mbps, fps * 8.0 / 1024.0), "{text}");

    // The files are read, overwritten and removed; the test's own gun starts the run.
    let gun = mount.join("gun");
    std::fs::write(&gun, "").unwrap();
    let sizes = [("PGFAPI_FILESIZE", "8"), ("PGFAPI_RECORDSIZE", "4")];
    for more in [
        &[("PGFAPI_LOAD", "seq-rd"), ("PGFAPI_EXTERNAL_START", "gun")][..],
        &[("PGFAPI_LOAD", "rnd-rd")],
        &[("PGFAPI_LOAD", "seq-wr"), ("PGFAPI_OVERWRITE", "1")],
        &[("PGFAPI_LOAD", "unlink")],
    ] {
        let output = with(&[more, &sizes].concat());
        let text = stdout(&output);
        assert!(
            output.status.success() && text.contains("24 threads finished out of 24"),
            "{text}\n{}",
            stderr(&output)
        );
    }
    for (variables, part) in [
        (&[("PGFAPI_LOAD", "what")][..], "PGFAPI_LOAD is 'what'"),
        (&[("PGFAPI_FUSE", "0")], "GFAPI_VOLNAME and GFAPI_HOSTNAME"),
        (&[("PGFAPI_SIZE", "1")], "PGFAPI_SIZE=1 is not known"),
        (&[("PGFAPI_FILES", "many"), ("PGFAPI_PROCESSES", "x")], "give a number"),
    ] {
        let output = parallel_gfapi(place, &[&common[..], variables].concat());
        assert_eq!(output.status.code(), Some(2), "{variables:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(part) && stderr(&output).trim().lines().count() == 1, "{}", stderr(&output));
    }
}

#[test]
fn a_gluster_volume_from_four_hosts() {
    if !possible() || !["glusterd", "glusterfs"].into_iter().all(has_program) {
        return;
    }
    // The volume's rig runs the rig of hosts on its client's side, which runs this test.
    let mut both = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/gluster-volume.sh"));
    both.env("PLIMSOLL_MPI", program()).env("UPLINK", "1").arg(rig().get_program());
    on_hosts(both, "a_gluster_volume_from_four_hosts");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_a_gluster_volume_from_four_hosts() {
    let place = directory();
    let place = place.path();
    let variable = |name: &str| std::env::var(name).unwrap();
    let (server, brick) = (variable("GLUSTER_SERVER"), Path::new(&variable("GLUSTER_BRICKS")).join("1"));
    // Blocks through libgfapi: each rank has a separate file in the volume.
    let url = format!("--filename=gluster://{server}/gv0/blocks.$rank");
    let job = ["run", "--name=j", "--rw=randwrite", "--bs=64k", "--size=2m", "--ioengine=gfapi", "--verify=crc32c"];
    let output = succeed(place, 4, &[&job[..], &[&url, "--output-format=json", "--thread"]].concat());
    let result = json(&output);
    assert_eq!(result["jobs"][0]["write"]["io_bytes"], 4 * (2 << 20));
    let made: Vec<String> = names(&brick).into_iter().filter(|name| name.starts_with("blocks")).collect();
    assert_eq!(made, ["blocks.0", "blocks.1", "blocks.2", "blocks.3"]);
    let hosts: Vec<&str> =
        result["client_stats"].as_array().unwrap().iter().filter_map(|client| client["hostname"].as_str()).collect();
    assert_eq!(hosts, ["a", "b", "c", "d"]);
    // Small files, through the driver of gfapi_perf_tool's users.
    std::fs::create_dir(Path::new(&variable("GLUSTER_MOUNTS")).join("1/gfapi-test")).unwrap();
    let variables = [
        ("GFAPI_VOLNAME", "gv0"),
        ("GFAPI_HOSTNAME", &server),
        ("PGFAPI_PROCESSES", "1"),
        ("PGFAPI_FILES", "30"),
        ("PGFAPI_USEC_DELAY_PER_FILE", "0"),
    ];
    let output = parallel_gfapi(place, &variables);
    let text = stdout(&output);
    assert!(output.status.success() && text.contains("4 threads finished out of 4"), "{text}\n{}", stderr(&output));
    assert!(closing(&text, "file-rate:") > 0.0 && brick.join("gfapi-test/smf-gfapi-c.01").is_dir());
}

/// The ranks of a run on this host, by their numbers.
fn rank_ids(place: &Path) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let text = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let exe = std::fs::read_link(entry.path().join("exe")).unwrap_or_default();
        if exe != program().canonicalize().unwrap()
            || !String::from_utf8_lossy(&text("cmdline")).contains(place.to_str().unwrap())
        {
            continue;
        }
        let environment = text("environ");
        let rank = String::from_utf8_lossy(&environment)
            .split('\0')
            .find_map(|word| word.strip_prefix("OMPI_COMM_WORLD_RANK=").and_then(|rank| rank.parse().ok()));
        found.extend(rank.map(|rank| (rank, id)));
    }
    found
}

/// A rank is killed: the figures of the others are there and agree with the disk, also where mpirun kills the
/// others while they clean up.
#[test]
fn a_lost_rank_costs_no_figures_of_the_others() {
    if !["mpirun", "mpicc"].into_iter().all(has_program) {
        return;
    }
    for (victim, cleans) in [(2, false), (0, true), (3, true)] {
        let place = directory();
        let place = place.path();
        std::fs::create_dir(place.join("d")).unwrap();
        let dir = format!("--dir={}", place.join("d").display());
        let mut line = vec![
            "files",
            "--op=create",
            "--size=0",
            "--files=1000000",
            "--files-per-dir=1000000",
            "--save=r.json",
            &dir,
        ];
        line.extend(cleans.then_some("--cleanup"));
        let mut child = start(place, 4, &line);
        let made = |rank: u32| place.join(format!("d/rank{rank}/thrd000-d0000/f.0000200"));
        while !(0..4).all(|rank| made(rank).exists()) {
            assert!(child.try_wait().unwrap().is_none(), "a million files take longer");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (_, id) = *rank_ids(place).iter().find(|(rank, _)| *rank == victim).expect("the victim runs");
        assert!(Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = stderr(&output);
        assert!(!output.status.success(), "{said}");
        let text = std::fs::read_to_string(place.join("r.json")).unwrap_or_else(|error| panic!("{error}: {said}"));
        let result: Value = serde_json::from_str(&text).unwrap();
        let lost: Vec<u64> = result["hosts"]["failures"]
            .as_array()
            .unwrap()
            .iter()
            .map(|failure| failure["rank"].as_u64().unwrap())
            .collect();
        assert_eq!(lost, [u64::from(victim)], "{said}");
        assert_eq!(result["ended"], "failed");
        let threads = phase(&result, "create")["threads"].as_array().unwrap().clone();
        for rank in (0..4).filter(|rank| *rank != victim) {
            let thread = threads.iter().find(|thread| thread["thread"] == rank).expect("a thread of each other rank");
            let counted = thread["work"]["files"].as_u64().unwrap();
            let there = std::fs::read_dir(place.join(format!("d/rank{rank}/thrd000-d0000"))).map_or(0, Iterator::count);
            match cleans {
                true => assert!(counted >= 200 && there as u64 <= counted, "rank {rank}: {there} of {counted}"),
                false => assert_eq!(there as u64, counted, "rank {rank}"),
            }
        }
    }
}

#[test]
fn ranks_that_are_asked_for_different_things_do_not_start() {
    if !["mpirun", "mpicc"].into_iter().all(has_program) {
        return;
    }
    let place = directory();
    let mut command = mpirun(place.path(), 1);
    command.arg(program()).args(["files", "--op=create", "--files=20", ":", "-np", "1"]);
    let output = command.arg(program()).args(["files", "--op=mkdir", "--files=40"]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("different commands"), "{said}");
    assert!(names(place.path()).is_empty());
}
