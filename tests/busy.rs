//! The engines that move no data: `cpuio` keeps a processor busy, `exec` runs a program.

mod common;
use common::*;
use serde_json::Value;

fn result(directory: &std::path::Path, words: &[&str]) -> Value {
    json(&succeed(directory, &[&["run", "--output-format=json"], words].concat()))
}

#[test]
fn cpuio_makes_as_many_loads_as_asked_and_rests_between_them() {
    let directory = directory();
    let job = ["--name=j", "--ioengine=cpuio", "--number_ios=5", "--cpuchunks=10ms"];
    let full = result(directory.path(), &[&job[..], &["--cpuload=100"]].concat());
    let part = result(directory.path(), &[&job[..], &["--cpuload=25"]].concat());
    for result in [&full, &part] {
        let read = &result["jobs"][0]["read"];
        assert_eq!((&read["total_ios"], &read["io_bytes"]), (&5.into(), &0.into()));
        assert!(read["clat_ns"]["min"].as_f64().unwrap() >= 10e6, "{}", read["clat_ns"]);
    }
    // Four pauses of three times the ten milliseconds.
    let runtime = |result: &Value| result["jobs"][0]["read"]["runtime"].as_u64().unwrap();
    assert!(runtime(&part) >= 5 * 10 + 4 * 30, "{} ms", runtime(&part));
    assert!(runtime(&full) >= 50);
    let sorted = ["--name=j", "--ioengine=cpuio", "--number_ios=2", "--cpuload=100", "--cpumode=qsort"];
    assert_eq!(result(directory.path(), &sorted)["jobs"][0]["read"]["total_ios"], 2);
}

#[test]
fn cpuio_ends_with_the_jobs_that_move_data() {
    let directory = directory();
    let cpu = ["--name=cpu", "--ioengine=cpuio", "--cpuload=50", "--cpuchunks=1ms", "--exit_on_io_done=1"];
    let data = ["--name=data", "--ioengine=null", "--size=1m"];
    let found = result(directory.path(), &[&cpu[..], &data[..]].concat());
    assert_eq!(found["jobs"][1]["read"]["io_bytes"], 1 << 20);
    // A job that is yet to come holds it, too.
    let late = result(directory.path(), &[&cpu[..], &data[..], &["--startdelay=1"]].concat());
    assert_eq!(late["jobs"][1]["read"]["io_bytes"], 1 << 20);
    assert!(late["jobs"][0]["read"]["runtime"].as_u64().unwrap() >= 300, "{}", late["jobs"][0]["read"]);
    let said = refused(directory.path(), &["run", "--name=j", "--ioengine=cpuio"]);
    assert!(said.contains("needs cpuload"), "{said}");
}

#[test]
fn exec_runs_a_program_and_keeps_its_output() {
    let directory = directory();
    let place = directory.path();
    let job = ["--name=j", "--ioengine=exec", "--program=/bin/echo", "--arguments=%n  %r", "--runtime=7"];
    let found = result(place, &job);
    assert_eq!(found["jobs"][0]["read"]["total_ios"], 1, "the job ends with its program");
    assert_eq!(std::fs::read_to_string(place.join("j.stdout")).unwrap(), "j 7\n");
    assert_eq!(std::fs::read_to_string(place.join("j.stderr")).unwrap(), "");
    let quiet = ["run", "--name=q", "--ioengine=exec", "--program=/bin/echo", "--arguments=seen", "--std_redirect=0"];
    assert!(stdout(&succeed(place, &quiet)).contains("seen\n"));
    assert!(!place.join("q.stdout").exists());
}

#[test]
fn exec_tells_of_a_program_that_fails() {
    let directory = directory();
    let failing = [("/bin/false", "ended with exit status: 1"), ("/nonexistent", "cannot run /nonexistent")];
    for (program, expected) in failing {
        let output = run(directory.path(), &["run", "--name=j", "--ioengine=exec", &format!("--program={program}")]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    }
    let said = refused(directory.path(), &["run", "--name=j", "--ioengine=exec"]);
    assert!(said.contains("needs program"), "{said}");
}

/// A program that runs longer than the job gets SIGTERM; one that does not mind SIGTERM gets SIGKILL after grace_time.
#[test]
fn exec_ends_a_program_that_runs_too_long() {
    let directory = directory();
    let place = directory.path();
    let polite = file(place, "polite", "trap 'echo asked; exit 3' TERM\nwhile :; do sleep 0.1; done\n");
    let rude = file(place, "rude", "trap '' TERM\necho $$\nwhile :; do sleep 0.1; done\n");
    let job = |name: &str, script: &std::path::Path, grace: &str| {
        let words = [
            &format!("--name={name}"),
            "--ioengine=exec",
            "--program=/bin/sh",
            &format!("--arguments={}", script.display()),
            "--runtime=1",
            &format!("--grace_time={grace}"),
        ];
        result(place, &words)
    };
    // The grace is longer than any test may take: it is not waited for when the program ends.
    job("polite", &polite, "100000");
    assert_eq!(std::fs::read_to_string(place.join("polite.stdout")).unwrap(), "asked\n");
    job("rude", &rude, "0.2");
    let id = std::fs::read_to_string(place.join("rude.stdout")).unwrap();
    assert!(!std::path::Path::new("/proc").join(id.trim()).exists(), "{id}: the program is gone");
}

/// A shell command before a job can be ended by a signal, although the clone itself ignores it.
#[test]
fn commands_have_the_usual_signals() {
    let directory = directory();
    let command = "--exec_prerun=sh -c 'kill -TERM $$; echo survived'; echo $?";
    succeed(directory.path(), &["run", "--name=j", "--ioengine=null", "--size=4k", command]);
    let said = std::fs::read_to_string(directory.path().join("j.prerun.txt")).unwrap();
    assert!(said.ends_with("143\n") && !said.contains("survived"), "{said}");
}

#[test]
fn a_sweep_refuses_engines_without_storage() {
    let directory = directory();
    for (engine, own) in [("cpuio", "--cpuload=50"), ("exec", "--program=/bin/true")] {
        let said = refused(directory.path(), &["sweep", &format!("--ioengine={engine}"), own, "--time=5"]);
        assert!(said.contains("a sweep needs storage"), "{said}");
    }
}
