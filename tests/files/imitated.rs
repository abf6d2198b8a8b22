//! The tools that `files` imitates: smallfile, mdtest, IOR, IO500.

use super::*;

#[test]
fn an_input_file_has_smallfiles_parameters_and_the_command_line_the_last_word() {
    let place = directory();
    for name in ["a", "b"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let yaml = "operation: create # and nothing else\ntop: a,b\nthreads: 2\nfiles: 7\nfile-size: 2\nprefix: 'p'\n\
                incompressible: Y\nfsync: Y\n";
    std::fs::write(place.path().join("in.yaml"), yaml).unwrap();
    let result = files(place.path(), "--input in.yaml");
    assert_eq!(tree(place.path()).len(), 15, "14 files and the input");
    assert_eq!(place.path().join("b/thrd001-d0000/p.0000006").metadata().unwrap().len(), 2048);
    assert_eq!(calls(phase(&result, "create"), "fsync"), 14);
    std::fs::write(
        place.path().join("in.json"),
        r#"{"operation": "read", "top": ["a", "b"], "threads": 2, "files": 9,
        "file-size": 2, "prefix": "p", "verify-read": true, "incompressible": true, "permute-host-dirs": true}"#,
    )
    .unwrap();
    let result = files(place.path(), "--input in.json --files 7");
    let read = phase(&result, "read");
    assert_eq!((count(read, "files"), read["verified"]["mismatches"].as_u64()), (14, Some(0)));
    // The result has smallfile's keys.
    std::fs::write(place.path().join("out.yaml"), "operation: stat\noutput-json: out.json\nfiles: 7\nprefix: p\n")
        .unwrap();
    files(place.path(), "--input out.yaml --dir a");
    let written = json_file(&place.path().join("out.json"));
    let all = &written["results"];
    assert_eq!((&all["files"], &all["total-threads"], &all["status"]), (&7.into(), &1.into(), &"Success".into()));
    assert_eq!((&written["params"]["operation"], &all["in-thread"]["00"]["files"]), (&"stat".into(), &7.into()));
    assert!(all["elapsed"].as_f64().unwrap() > 0.0 && all["files-per-sec"].as_f64().unwrap() > 0.0, "{all}");
    let error = refused(place.path(), &["files", "--op", "create,stat", "--smallfile-json", "x"]);
    assert!(error.contains("one operation"), "{error}");
    std::fs::write(place.path().join("bad.yaml"), "operation: create\nnonsense: 3\n").unwrap();
    let error = refused(place.path(), &["files", "--input", "bad.yaml"]);
    assert!(error.contains("bad.yaml") && error.contains("nonsense"), "{error}");
    std::fs::write(place.path().join("bad.yaml"), "operation: create\nfiles: many\n").unwrap();
    let error = refused(place.path(), &["files", "--input", "bad.yaml"]);
    assert!(error.contains("bad.yaml") && error.contains("many"), "{error}");
}

/// The lines are read as `io500_fixed.sh` reads them: `grep '^ *File creation' | awk '{print $4}'`, and of IOR
/// `grep '^write' | awk '{print $2, $8}'`.
#[test]
fn mdtest_and_ior_as_they_are_typed_print_their_tables() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    let field = |output: &std::process::Output, start: &str, number: usize| {
        let text = stdout(output);
        assert!(output.status.success(), "{text}{}", stderr(output));
        let line =
            text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
        line.split_whitespace().nth(number - 1).unwrap().parse::<f64>().unwrap()
    };
    let easy = "-F -d md -n 60 -u -I 20 -z 1 -b 2 -L";
    for (letter, line) in
        [("-C", "File creation"), ("-T -R7", "File stat"), ("-E -N 1", "File read"), ("-r", "File removal")]
    {
        assert!(field(&compat(place.path(), "mdtest", &format!("{letter} {easy}")), line, 4) > 0.0);
    }
    let hard = "-t -F -w 3901 -e 3901 -d hard -n 50 -X";
    assert!(field(&compat(place.path(), "mdtest", &format!("-C {hard}")), "File creation", 4) > 0.0);
    assert_eq!(tree(&place.path().join("hard")).len(), 100);
    assert!(tree(&place.path().join("hard")).iter().all(|path| path.metadata().unwrap().len() == 3901));
    assert!(field(&compat(place.path(), "mdtest", &format!("-E -r {hard}")), "File removal", 4) > 0.0);
    let both = compat(place.path(), "mdtest", "-n 10 -u -d both -i 2");
    assert!(field(&both, "Directory creation", 4) > 0.0 && field(&both, "File removal", 6) > 0.0);
    // Files that stay after an iteration are in directories of that iteration.
    let counts: Vec<usize> = ["-C", "-T", "-r"]
        .map(|letter| {
            let output = compat(place.path(), "mdtest", &format!("{letter} -F -n 3 -u -d again -i 3"));
            assert!(output.status.success(), "{letter}: {}", stderr(&output));
            tree(&place.path().join("again")).len()
        })
        .into();
    assert_eq!(counts, [18, 18, 0]);
    let directories = "-D -d only -n 12 -u";
    assert!(field(&compat(place.path(), "mdtest", &format!("-C {directories}")), "Directory creation", 4) > 0.0);
    let looked = compat(place.path(), "mdtest", &format!("-T -X {directories}"));
    assert!(field(&looked, "Directory stat", 4) > 0.0);
    assert!(!stdout(&looked).contains("File") && !stdout(&looked).contains("creation"), "{}", stdout(&looked));
    assert!(field(&compat(place.path(), "mdtest", &format!("-r {directories}")), "Directory removal", 4) > 0.0);
    for (line, part) in [
        ("-D -E -n 9", "-E alone"),
        ("-F -Q 3", "-Q is not known"),
        ("-F -d x", "-n or -I is missing"),
        ("-F -n 9 -w 2 -e 3", "-e 3"),
        ("-F -n 9 -w 2 -X", "-X compares"),
        ("-n 0", "at least one item"),
        ("-n 5 -z 2 -b 3 -L", "at least one item"),
    ] {
        let output = compat(place.path(), "mdtest", line);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{line}: {}", stderr(&output));
    }

    // Two tasks write three segments in turns: task, task, task, task, task, task.
    let shared = "-C -Q 1 -g -G 27 -k -e -t 47008 -b 47008 -s 3 -o ior";
    let written = compat(place.path(), "ior", &format!("-w {shared}"));
    assert!(field(&written, "write", 2) > 0.0 && field(&written, "write", 8) > 0.0);
    assert_eq!(place.path().join("ior").metadata().unwrap().len(), 6 * 47008);
    assert!(field(&compat(place.path(), "ior", &format!("-r {shared}")), "read", 2) > 0.0);
    let own = compat(place.path(), "ior", "-w -r -F -e -t 64k -b 256k -o own");
    assert!(field(&own, "write", 2) > 0.0 && field(&own, "read", 2) > 0.0);
    assert!(!place.path().join("own.00000001").exists(), "without -k files are removed");

    let scored = compat(place.path(), "io500", ". --easy-block 4m --easy-files 20 --hard-files 20 --hard-writes 4");
    let text = stdout(&scored);
    assert_eq!(text.lines().filter(|line| line.starts_with("[RESULT]")).count(), 12, "{text}{}", stderr(&scored));
    assert!(text.lines().any(|line| line.starts_with("[      ]  ior-rnd4K-easy-read ")), "{text}");
    let last = text.lines().last().unwrap();
    let invalid: Vec<&str> = text.lines().filter(|line| line.ends_with("[INVALID]")).collect();
    assert!(invalid.len() == 4 && invalid.iter().all(|line| line.contains("-write ")), "{text}");
    assert!(last.contains("[INVALID] [UNOFFICIAL]") && last.contains("TOTAL"), "{last}");
    let figure =
        |name: &str| last.split(name).nth(1).unwrap().split_whitespace().next().unwrap().parse::<f64>().unwrap();
    let product = figure("Bandwidth ") * figure("IOPS ");
    assert!((figure("TOTAL ") / product.sqrt() - 1.0).abs() < 0.01, "{last}");
    assert!(!place.path().join("io500").exists());
}

/// A launcher tells the ranks by its own variables; the wrappers are then no tasks alone.
#[test]
fn wrappers_know_the_ranks_of_each_launcher() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    for (rank, ranks) in [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("PMI_RANK", "PMI_SIZE"),
    ] {
        for (script, line, told) in [
            ("mdtest", "-n 3 -d md", "MDTEST_TASKS is for one host"),
            ("ior", "-w -o file", "under mpirun each rank is a task"),
            ("io500", ".", "leave mpirun out"),
        ] {
            let mut command = Command::new(format!("{}/compat/{script}", env!("CARGO_MANIFEST_DIR")));
            command.current_dir(place.path()).args(line.split(' ')).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
            command.env("MDTEST_TASKS", "2").env("IOR_TASKS", "2");
            let output = command.env(rank, "1").env(ranks, "3").output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{script}: {}", stdout(&output));
            assert!(stderr(&output).contains(told), "{script} {ranks}: {}", stderr(&output));
        }
    }
    assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
}

/// Calls of one phase each make, find and remove the same as one call of all; the tree has its rows.
#[test]
fn phases_of_mdtest_may_be_calls_of_their_own_and_leave_nothing() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    // The options, the entries that -C makes, and the directories of the tree of two tasks.
    for (options, made, directories_made) in [
        ("-n 6", 24, 1),
        ("-n 6 -F -u", 12, 2),
        ("-n 6 -D", 12, 1),
        ("-n 6 -D -u", 12, 2),
        ("-n 6 -I 3 -F", 12, 2),
        ("-n 6 -I 3 -u", 24, 4),
        ("-n 7 -z 1 -b 2 -F", 12, 3),
        ("-n 6 -z 2 -b 2 -L -F -u", 8, 14),
        ("-I 2 -z 1 -b 3 -F", 16, 4),
        ("-I 2 -z 1 -b 3 -L -F -u", 12, 8),
        ("-n 6 -F -Y", 12, 1),
        ("-n 3 -u -i 2", 24, 4),
    ] {
        let run = |steps: &str| {
            let output = compat(place.path(), "mdtest", &format!("-d md -w 10 {options} {steps}"));
            assert!(output.status.success(), "{options} {steps}: {}", stderr(&output));
            stdout(&output)
        };
        let md = place.path().join("md");
        let there = || (tree(&md).len() + directories(&md), directories(&md));
        let only_directories = options.contains("-D");
        run("-C");
        // The directories of iterations are none of a tree.
        let of_iterations = std::fs::read_dir(&md).unwrap().flatten();
        let of_iterations =
            of_iterations.filter(|entry| entry.file_name().to_string_lossy().starts_with("iteration")).count();
        assert_eq!(there().0, made + directories_made + of_iterations, "{options}");
        let text = run("-T");
        assert!(!text.contains("Tree"), "{text}");
        if !only_directories {
            run("-E");
        }
        assert_eq!(there().0, made + directories_made + of_iterations, "{options}");
        assert!(run("-r").contains("Tree removal"), "{options}");
        assert_eq!(there(), (0, 0), "{options}: {:?}", tree(&md));
        // The same in one call.
        let text = run("");
        for name in ["Tree creation", "Tree removal"] {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect(&text);
            assert!(line.split_whitespace().nth(3).unwrap().parse::<f64>().unwrap() > 0.0, "{text}");
        }
        assert_eq!(there(), (0, 0), "{options}");
    }
}

/// A read has the bytes of -e, of files that another call may have made, and compares only these.
#[test]
fn a_read_of_mdtest_has_the_bytes_that_are_asked_for() {
    if !has_program("python3") || !has_program("strace") {
        return;
    }
    let place = directory();
    let run = |line: &str| {
        let log = place.path().join("log");
        let mut strace = Command::new("strace");
        strace.args("-f --seccomp-bpf -qq -e trace=read,pread64 -o log".split(' '));
        strace.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/mdtest"));
        strace.args(line.split(' ')).current_dir(place.path()).env("MDTEST_TASKS", "2");
        let output = strace.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll")).output().unwrap();
        let said = std::fs::read_to_string(log).unwrap();
        let reads = |bytes: &str| said.lines().filter(|call| call.ends_with(&format!(") = {bytes}"))).count();
        (output, reads("1011"), reads("8055"))
    };
    for (line, part, whole) in [
        ("-F -n 5 -w 8055 -e 1011 -X -i 2 -d md", 20, 0),
        ("-F -n 5 -w 8055 -d md", 0, 0),
        ("-F -C -n 5 -w 8055 -d md", 0, 0),
        ("-F -T -E -n 5 -e 1011 -X -d md", 10, 0),
        ("-F -E -n 5 -e 8055 -d md", 0, 10),
    ] {
        let (output, parts, wholes) = run(line);
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        assert_eq!((parts, wholes), (part, whole), "{line}");
    }
    let victim = tree(&place.path().join("md"))[0].clone();
    let mut bytes = std::fs::read(&victim).unwrap();
    bytes[6000] ^= 1;
    std::fs::write(&victim, &bytes).unwrap();
    assert!(run("-F -E -n 5 -e 1011 -X -d md").0.status.success(), "nobody reads the damaged byte");
    let (output, ..) = run("-F -E -n 5 -e 8055 -X -d md");
    assert!(stderr(&output).contains("at byte 6000"), "{}", stderr(&output));
}

/// Two tasks share a tree of five directories, and each call takes 20 ms more.
#[test]
fn the_rows_of_the_tree_count_its_directories_over_their_time() {
    if !has_program("python3") || !has_program("strace") {
        return;
    }
    let place = directory();
    let mut strace = Command::new("strace");
    strace.args(
        "-f --seccomp-bpf -qq -o /dev/null -e trace=mkdir,mkdirat -e inject=mkdir,mkdirat:delay_exit=20000".split(' '),
    );
    strace.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/mdtest"));
    strace.args("-F -n 5 -z 4 -b 1 -P -d md".split(' ')).current_dir(place.path());
    let output = strace.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll")).env("MDTEST_TASKS", "2").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let rows: Vec<f64> = text
        .lines()
        .filter(|line| line.contains("Tree creation"))
        .map(|line| line.split_whitespace().nth(3).unwrap().parse().unwrap())
        .collect();
    let [rate, seconds] = rows[..] else { panic!("{text}") };
    assert!(seconds >= 0.1 && (rate * seconds - 5.0).abs() < 0.05, "{text}");
}

#[test]
fn reads_of_ior_never_write() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    std::fs::write(place.path().join("short"), vec![1; 300_000]).unwrap();
    for file in ["short", "missing"] {
        for access in ["-r", "-R", "-W", "-W -R", "-W -r"] {
            let output = compat(place.path(), "ior", &format!("{access} -t 256k -b 1m -o {file}"));
            assert_eq!(output.status.code(), Some(2), "{access}: {}", stderr(&output));
        }
    }
    assert_eq!(std::fs::read(place.path().join("short")).unwrap(), vec![1; 300_000]);
    assert_eq!(tree(place.path()).len(), 1);
    // The checks find foreign bytes, and leave them.
    for access in ["-R -k", "-W -k"] {
        let output = compat(place.path(), "ior", &format!("{access} -t 50k -b 100k -o short"));
        assert_eq!(output.status.code(), Some(1), "{access}: {}", stderr(&output));
        assert!(stderr(&output).contains("verification failed"), "{access}: {}", stderr(&output));
        assert_eq!(std::fs::read(place.path().join("short")).unwrap(), vec![1; 300_000]);
    }
    for access in ["-w -W -k", "-W -k", "-R -k", "-W -R"] {
        let output = compat(place.path(), "ior", &format!("{access} -t 50k -b 100k -o own"));
        assert!(output.status.success(), "{access}: {}", stderr(&output));
    }
    assert_eq!(tree(place.path()).len(), 1);
}

#[test]
fn each_option_of_ior_mdtest_and_io500_has_an_effect_or_is_refused_by_name() {
    if !has_program("python3") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/compat/test_table.py");
    let tried =
        std::process::Command::new(script).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll")).output().expect("a script");
    assert!(tried.status.success(), "{}{}", stdout(&tried), stderr(&tried));
}

/// Each close and each open takes 100 ms: open, transfer and close of 3200 KiB take at least 0.2 s.
#[test]
fn the_time_of_ior_has_open_transfer_and_close_in_it() {
    if !has_program("python3") || !has_program("strace") {
        return;
    }
    let place = directory();
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=close,openat"]);
    let file = place.path().canonicalize().unwrap().join("s");
    strace.arg("-P").arg(format!("{}.00000000", file.display()));
    strace.args(["-e", "inject=close,openat:delay_exit=100000"]);
    strace.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/ior"));
    strace.args("-w -F -k -t 64k -b 3200k -O summaryFormat=JSON -o".split(' ')).arg(file);
    strace.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
    let output = strace.output().unwrap();
    let result = &json(&output)["tests"][0]["Results"][0];
    let seconds = |name: &str| result[name].as_f64().unwrap();
    assert!(seconds("openTime") >= 0.1 && seconds("closeTime") >= 0.1, "{result}");
    assert!(seconds("totalTime") >= seconds("openTime") + seconds("closeTime"), "{result}");
    assert!((seconds("bwMiB") * seconds("totalTime") - 3.125).abs() < 0.001, "{result}");
}

/// With -Y the sync after a phase lies in the time of the phase.
#[test]
fn a_sync_after_a_phase_of_mdtest_is_in_its_time() {
    if !has_program("python3") || !has_program("strace") {
        return;
    }
    let place = directory();
    let mut strace = Command::new("strace");
    strace.args("-f --seccomp-bpf -qq -o /dev/null -e trace=sync -e inject=sync:retval=0:delay_exit=300000".split(' '));
    strace.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/mdtest"));
    strace.args("-F -C -T -n 5 -Y -Z -d md".split(' ')).current_dir(place.path());
    let output = strace.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for row in ["File creation", "File stat"] {
        let line = text.lines().find(|line| line.contains(row)).expect(&text);
        let seconds: f64 = line.split_whitespace().nth(3).and_then(|figure| figure.parse().ok()).expect(line);
        assert!(seconds >= 0.3, "{line}");
    }
}

/// Later calls know the files that a stonewall has left: without a status file, and with one.
#[test]
fn a_stonewall_of_mdtest_leaves_as_many_files_to_each_task_and_later_calls_find_them() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    for line in ["-u -n 1000000", "-n 1000000", "-u -N 1 -n 1000000 -x status"] {
        let run = |more: &str| {
            let output = compat(place.path(), "mdtest", &format!("-F -d md {line} {more}"));
            assert!(output.status.success(), "{line} {more}: {}", stderr(&output));
            output
        };
        run("-C -W 1");
        let made: Vec<PathBuf> = tree(&place.path().join("md"));
        let made: Vec<&PathBuf> = made.iter().filter(|path| !path.ends_with(".mdtest-stonewall")).collect();
        assert!(!made.is_empty() && made.len() < 2_000_000 && made.len().is_multiple_of(2), "{}", made.len());
        if line.contains("-x") {
            let status = std::fs::read_to_string(place.path().join("status")).unwrap();
            assert_eq!(status.trim().parse::<usize>().unwrap(), made.len() / 2);
        }
        let looked = stdout(&run("-T -P"));
        let row: Vec<f64> = looked
            .lines()
            .filter(|row| row.contains("File stat"))
            .map(|row| row.split_whitespace().nth(3).unwrap().parse().unwrap())
            .collect();
        assert_eq!(row.len(), 2, "{looked}");
        run("-r");
        assert_eq!(tree(&place.path().join("md")).len(), 0, "{line}");
    }
}

/// Tasks that a stonewall has ended move as much as the fastest, and a read takes that from the status file.
#[test]
fn a_stonewall_of_ior_wears_out_and_reads_follow_the_status_file() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    let options = "-k -D 1 -O stoneWallingWearOut=1,stoneWallingStatusFile=status -O summaryFormat=JSON";
    for (shape, parts) in [("-F -t 4k -b 64g -o own", true), ("-t 4096 -b 4096 -s 9000000 -o shared", false)] {
        let moved = |access: &str| {
            let output = compat(place.path(), "ior", &format!("{access} {shape} {options}"));
            assert!(output.status.success(), "{shape}: {}", stderr(&output));
            let result = json(&output)["tests"][0]["Results"][0].clone();
            (result["bwMiB"].as_f64().unwrap() * result["totalTime"].as_f64().unwrap() * 1_048_576.0).round() as u64
        };
        let written = moved("-w");
        let transfers: u64 = std::fs::read_to_string(place.path().join("status")).unwrap().trim().parse().unwrap();
        assert_eq!(written, transfers * 4096 * 2);
        let length = |name: &str| place.path().join(name).metadata().unwrap().len();
        match parts {
            true => assert_eq!((length("own.00000000"), length("own.00000001")), (written / 2, written / 2)),
            false => assert_eq!(length("shared"), written),
        }
        assert!(moved("-r") <= written);
    }
}

/// -W and -R read once more and compare: a byte that somebody changed is found.
#[test]
fn ior_finds_damaged_data_when_it_is_told_to_look() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    for shape in ["-F -t 47008 -b 94016 -o f", "-C -t 4k -b 12k -s 3 -o f"] {
        let ior = |line: &str| compat(place.path(), "ior", &format!("{line} {shape}"));
        for line in ["-w -W -k", "-r -R -k", "-w -r -W -R -k -i 2"] {
            let output = ior(line);
            assert!(output.status.success(), "{line} {shape}: {}", stderr(&output));
        }
        let victim = tree(place.path())[0].clone();
        let mut bytes = std::fs::read(&victim).unwrap();
        bytes[5000] ^= 1;
        std::fs::write(&victim, &bytes).unwrap();
        let output = ior("-r -k");
        assert!(output.status.success(), "without -R nobody looks: {}", stderr(&output));
        let output = ior("-r -R -k");
        assert!(
            !output.status.success() && stderr(&output).contains("verification failed"),
            "{shape}: {}",
            stderr(&output)
        );
        tree(place.path()).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
    let output = compat(place.path(), "ior", "-w -W -D 1 -o f");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

/// The table of IOR 3.3 and later: IOPS are transfers by their time, and the latency is that of a transfer.
#[test]
fn the_columns_of_ior_agree_with_each_other() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    let output = compat(place.path(), "ior", "-w -r -i 2 -t 64k -b 3200k -o f");
    let text = stdout(&output);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let names = "access bw(MiB/s) IOPS Latency(s) block(KiB) xfer(KiB) open(s) wr/rd(s) close(s) total(s) iter";
    assert!(rows.iter().any(|row| row.join(" ") == names), "{text}");
    let figures = |kind: &str| -> Vec<Vec<f64>> {
        let rows = rows.iter().filter(|row| row.first() == Some(&kind));
        rows.map(|row| row[1..].iter().map(|cell| cell.parse().unwrap_or(f64::NAN)).collect()).collect()
    };
    for row in ["write", "read"].into_iter().flat_map(figures) {
        let [bandwidth, iops, latency, block, transfer, open, moving, close, total, _] = row[..] else {
            panic!("{row:?}")
        };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.05;
        assert_eq!((block, transfer), (3200.0, 64.0));
        // Two tasks, with 50 transfers each.
        assert!(near(iops * moving, 100.0) && near(bandwidth * total, 6.25), "{row:?}");
        assert!((latency - 2.0 / iops).abs() < 2e-6 && total <= open + moving + close + 0.001, "{row:?}");
    }
    let removed = figures("remove");
    assert!(removed.len() == 2 && removed[0].len() == 10 && removed[0][8] >= 0.0, "{text}");
}

/// A check alone has no figures: its JSON is whole, and has none.
#[test]
fn a_check_alone_of_ior_prints_a_table_without_lines() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    assert!(compat(place.path(), "ior", "-w -W -k -t 64k -b 256k -o f").status.success());
    let output = compat(place.path(), "ior", "-W -k -t 64k -b 256k -o f -O summaryFormat=JSON");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&output)["tests"][0]["Results"], serde_json::json!([]));
    let output = compat(place.path(), "ior", "-W -t 64k -b 256k -o f");
    assert!(stdout(&output).contains("wr/rd(s)") && stdout(&output).contains("Finished"), "{}", stdout(&output));
    assert!(!place.path().join("f").exists(), "without -k the file is removed");
}

/// A script has a test for each RUN, with the directives up to there; -m has a file for each repetition.
#[test]
fn a_script_of_ior_has_a_test_for_each_run() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    let script = "IOR START\n  # a comment\n\twriteFile =1\nfilePerProc=1\nkeepFile=1\nmultiFile=1\nrepetitions=2\n\
                  transferSize=10k\nblockSize=20k\ntestFile=a\nRUN\nreadFile=1\nwriteFile=0\nrun\nior stop\nnot read\n";
    std::fs::write(place.path().join("script"), script).unwrap();
    let output = compat(place.path(), "ior", "-f script -O summaryFormat=CSV,summaryFile=table");
    assert!(output.status.success(), "{}", stderr(&output));
    let table = std::fs::read_to_string(place.path().join("table")).unwrap();
    let accesses: Vec<&str> = table.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(accesses, ["access", "write", "write", "access", "read", "read"], "{table}");
    let made = ["a.00000000.0", "a.00000000.1", "a.00000001.0", "a.00000001.1"];
    assert!(made.iter().all(|name| place.path().join(name).metadata().unwrap().len() == 20480));
    for (script, told) in [("IOR START\nIOR STOP\n", "no line says RUN"), ("nonsense=1\nRUN\n", "nonsense")] {
        std::fs::write(place.path().join("script"), script).unwrap();
        let output = compat(place.path(), "ior", "-f script");
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
}

#[test]
fn ior_replaces_the_file_unless_it_is_told_to_use_it() {
    if !has_program("python3") {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let place = directory();
    let old = place.path().join("old");
    std::fs::write(&old, vec![1; 3 << 20]).unwrap();
    let _held = std::fs::File::open(&old).unwrap(); // the number of the inode stays taken
    let before = old.metadata().unwrap();
    for (option, size, same) in [("-E", 3 << 20, true), ("", 1 << 20, false)] {
        let output = compat(place.path(), "ior", &format!("-w -k -t 64k -b 512k -o old {option}"));
        assert!(output.status.success(), "{}", stderr(&output));
        let now = old.metadata().unwrap();
        assert_eq!((now.len(), now.ino() == before.ino()), (size, same), "{option}");
    }
}

/// A signal to a wrapper ends what the wrapper has started; so does its death.
#[test]
fn nothing_keeps_running_when_a_wrapper_gets_a_signal() {
    if !has_program("python3") {
        return;
    }
    let lines = [
        ("mdtest", "-F -C -u -n 1000000 -d md", "md/thrd000-d0000"),
        ("ior", "-w -F -k -t 4k -b 1g -i 100000 -o file", "file.00000000"),
        ("io500", ". --easy-block 4m --easy-files 1000000", "io500/mdt_easy/thrd000-d0000"),
    ];
    for (script, line, sign) in lines {
        for (signal, status) in [("TERM", Some(143)), ("HUP", Some(129)), ("INT", Some(130)), ("KILL", None)] {
            let place = directory();
            let mut command = std::process::Command::new(format!("{}/compat/{script}", env!("CARGO_MANIFEST_DIR")));
            command.current_dir(place.path()).args(line.split(' ')).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
            command.env("MDTEST_TASKS", "2").env("IOR_TASKS", "2").stdout(Stdio::null()).stderr(Stdio::null());
            let mut wrapper = command.spawn().unwrap();
            while !place.path().join(sign).exists() {
                assert!(wrapper.try_wait().unwrap().is_none(), "{script} ended early");
                std::thread::yield_now();
            }
            let all = family(wrapper.id());
            assert!(all.len() >= 2, "{script}: {all:?}");
            tool("kill", &["-s", signal, &wrapper.id().to_string()], Path::new("/"));
            let ended = wrapper.wait().unwrap();
            assert_eq!(ended.code(), status, "{script} {signal}");
            // The kernel tells the child of a wrapper that was killed; the child then ends by itself.
            while all.iter().any(|&id| runs(id)) {
                assert!(signal == "KILL", "{script} {signal} leaves {all:?}");
                std::thread::yield_now();
            }
        }
    }
}
