//! Programs that call fio, or read the files that fio writes, work with Plimsoll in fio's place.

mod common;
use common::*;
use std::path::Path;
use std::process::Command;

/// The programs of fio-plot, cdmpy and auto-fio, from PyPI: tests/needs installs them.
const FIO_PLOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/fio-plot/bin");

/// A link of the name `fio` to the program, in a directory of its own for `PATH`.
fn called_fio(directory: &Path) -> String {
    let bin = directory.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), bin.join("fio")).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

/// Runs a program that must succeed and finds our `fio` first; its standard output.
fn with_our_fio(path: &str, program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).env("PATH", path).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}\n{}", stdout(&output), stderr(&output));
    stdout(&output)
}

#[test]
fn bench_fio_measures_and_fio_plot_draws() {
    if !Path::new(FIO_PLOT).join("bench-fio").exists() {
        return skip("bench-fio is not installed (tests/needs installs it)", true);
    }
    let directory = directory();
    let here = directory.path();
    let path = called_fio(here);
    std::fs::create_dir(here.join("target")).unwrap();
    let words = "--target target --type directory --size 4m --mode randread randwrite randrw --rwmixread 75 --iodepth 1 4 \
                 --numjobs 1 2 --runtime 1 --direct 0 --output results --destructive";
    let words: Vec<&str> = words.split_whitespace().collect();
    with_our_fio(&path, &format!("{FIO_PLOT}/bench-fio"), &words, here);
    for mode in ["4k/randread", "4k/randwrite", "randrw75/4k/randrw"] {
        for (depth, jobs) in [(1, 1), (1, 2), (4, 1), (4, 2)] {
            let result = json_file(&here.join(format!("results/target/{mode}-{depth}-{jobs}.json")));
            assert!(result["fio version"].as_str().unwrap().starts_with("fio-3."), "{mode}");
            assert_eq!(result["jobs"][0]["error"], 0, "{mode}");
        }
    }
    // fio-plot ends with 0 whatever happens: the pictures tell.
    let charts: [&[&str]; 4] = [
        &["-r", "randread", "-l", "-d", "1", "4", "-n", "1"],
        &["-r", "randwrite", "-L", "-t", "iops", "-d", "1", "4", "-n", "1", "2"],
        &["-r", "randread", "-N", "-d", "4", "-n", "1", "2"],
        &["-r", "randwrite", "-H", "-d", "4", "-n", "1"],
    ];
    for (index, chart) in charts.into_iter().enumerate() {
        let name = format!("{index}.png");
        let words = [&["-i", "results/target/4k", "-T", "title", "-o", &name], chart].concat();
        let said = with_our_fio(&path, &format!("{FIO_PLOT}/fio-plot"), &words, here);
        let picture = std::fs::read(here.join(&name)).unwrap_or_else(|_| panic!("{chart:?}: no picture: {said}"));
        assert!(picture.starts_with(b"\x89PNG"), "{chart:?}");
    }
}

/// The rows of a table that cdm prints: name, read and write.
fn rows_of(table: &str) -> Vec<Vec<String>> {
    let rows = table.lines().filter(|line| line.starts_with("|SEQ") || line.starts_with("|RND"));
    rows.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn cdm_prints_its_table() {
    let program = format!("{FIO_PLOT}/cdm");
    if !Path::new(&program).exists() {
        return skip("cdm is not installed (tests/needs installs it)", true);
    }
    let directory = directory();
    let path = called_fio(directory.path());
    let words = ["-n", "1", "-s", "1m", "-x", "70", "-a", "seq,8,1", "-a", "rnd,4,2", "."];
    let table = rows_of(&with_our_fio(&path, &program, &words, directory.path()));
    let names: Vec<&str> = table.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(names, ["SEQ1M Q8 T1", "RND4K Q4 T2"]);
    for cell in table.iter().flat_map(|row| &row[2..=4]) {
        assert!(cell.parse::<f64>().is_ok_and(|rate| rate > 0.0), "{table:?}");
    }
}

#[test]
fn auto_fio_measures_its_block_sizes() {
    let program = format!("{FIO_PLOT}/auto-fio");
    if !Path::new(&program).exists() {
        return skip("auto-fio is not installed (tests/needs installs it)", true);
    }
    let directory = directory();
    let path = called_fio(directory.path());
    let words = ["--backend", "fio", "--file-size", "2097152", "--json", "."];
    let said = with_our_fio(&path, &program, &words, directory.path());
    let result: serde_json::Value = serde_json::from_str(&said).expect(&said);
    let samples = result["samples"].as_array().unwrap();
    assert_eq!(result["backend"], "fio");
    assert!(samples.len() >= 3, "{said}");
    assert!(samples.iter().all(|sample| sample["throughput_mbps"].as_f64().is_some_and(|rate| rate > 0.0)), "{said}");
}

/// The tables of fio_jsonplus_clat2csv count every request of the result.
#[test]
fn fios_converter_finds_every_latency() {
    if !has_program("fio_jsonplus_clat2csv") {
        return;
    }
    let directory = directory();
    let job = ["run", "--name=j", "--size=1m", "--bs=4k", "--rw=randrw", "--ioengine=psync", "--output-format=json+"];
    succeed(directory.path(), &[&job[..], &["--output=j.json"]].concat());
    tool("fio_jsonplus_clat2csv", &["j.json", "j.csv"], directory.path());
    let table = std::fs::read_to_string(directory.path().join("j_job0.csv")).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let heads = lines.next().unwrap();
    let rows: Vec<_> = lines.collect();
    let result = json_file(&directory.path().join("j.json"));
    for direction in ["read", "write"] {
        let column = heads.iter().position(|head| *head == format!("{direction}_clat_ns_count")).unwrap();
        let counted: u64 = rows.iter().filter_map(|row| row[column].parse::<u64>().ok()).sum();
        assert!(counted > 0);
        assert_eq!(result["jobs"][0][direction]["total_ios"], counted, "{direction}");
    }
}

/// fio2gnuplot computes minimum, average and maximum of the logs that it finds.
#[test]
fn fios_plotter_reads_the_logs() {
    if !has_program("fio2gnuplot") {
        return;
    }
    let directory = directory();
    let job = ["run", "--name=j", "--size=4m", "--bs=4k", "--rw=read", "--ioengine=psync", "--write_bw_log=j"];
    succeed(directory.path(), &[&job[..], &["--rate=8m", "--log_avg_msec=100"]].concat());
    tool("fio2gnuplot", &["-b"], directory.path());
    let log = std::fs::read_to_string(directory.path().join("j_bw.1.log")).unwrap();
    let rates: Vec<f64> = log.lines().map(|line| line.split(", ").nth(1).unwrap().parse().unwrap()).collect();
    let highest = std::fs::read_to_string(directory.path().join("result.max")).unwrap();
    let highest: f64 = highest.split_whitespace().last().unwrap().parse().unwrap();
    assert!(rates.len() >= 2);
    assert_eq!(highest, rates.into_iter().fold(0.0, f64::max));
}

/// Plimsoll reads the job file that genfio writes.
#[test]
fn jobs_of_genfio_are_read() {
    if !has_program("genfio") {
        return;
    }
    let directory = directory();
    std::fs::write(directory.path().join("disk"), [0; 1 << 20]).unwrap();
    let disk = directory.path().join("disk");
    tool("genfio", &["-d", disk.to_str().unwrap(), "-z", "1m", "-m", "read,randwrite", "-b", "4k"], directory.path());
    let jobs = names(directory.path()).into_iter().find(|name| name.ends_with(".fio")).expect("a job file");
    let said = stdout(&succeed(directory.path(), &["run", "--check", &jobs]));
    assert!(said.contains("2 jobs"), "{said}");
}

/// fio-verify-state reads the states that Plimsoll writes.
#[test]
fn fios_reader_of_states_reads_ours() {
    if !has_program("fio-verify-state") {
        return;
    }
    let directory = directory();
    let job = ["run", "--name=j", "--size=64k", "--bs=4k", "--rw=write", "--verify=crc32c", "--verify_state_save=1"];
    succeed(directory.path(), &job);
    let state = names(directory.path()).into_iter().find(|name| name.ends_with(".state")).expect("a state");
    let said = tool("fio-verify-state", &[&state], directory.path());
    let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!((value("Name:"), value("Number IOs:")), (Some("j"), Some("16")), "{said}");
}
