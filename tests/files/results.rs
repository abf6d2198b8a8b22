//! Results saved, shown, compared.

use super::*;

#[test]
fn results_are_saved_shown_and_set_side_by_side() {
    let place = directory();
    for name in ["a", "b"] {
        let arguments = ["files", "--op", "create,read,unlink", "--files", "50", "--threads", "2", "--save", name];
        let text = stdout(&succeed(place.path(), &arguments));
        for part in ["create", "files/s", "to the stonewall", "thread 1", "p99.9", "page-cache-read"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
    let text = stdout(&succeed(place.path(), &["report", "--format", "text", "a"]));
    assert!(text.contains("unlink"), "{text}");
    succeed(place.path(), &["report", "a", "b", "-o", "page.html"]);
    let page = std::fs::read_to_string(place.path().join("page.html")).unwrap();
    assert!(page.contains("Files side by side") && page.contains("create, whole"));
    assert!(refused(place.path(), &["report", "--format", "json", "a"]).contains("results of `run`"));
}

#[test]
fn two_results_are_compared_phase_by_phase() {
    let place = directory();
    // So far apart that no load on the machine, and no moment of standstill, changes which of them is slower.
    let save = |name: &str, pause: &str, files: &str| {
        let arguments =
            ["files", "--op", "create,stat", "--size", "1", "--pause", pause, "--files", files, "--save", name];
        succeed(place.path(), &[&arguments[..], &["--cleanup"]].concat());
    };
    save("fast.json", "1ms", "1500");
    save("slow.json", "50ms", "40");
    let text = stdout(&succeed(place.path(), &["compare", "fast.json", "slow.json"]));
    assert!(text.contains("create: files/s") && text.contains("stat: files/s") && text.contains("worse"), "{text}");
    let output = run(place.path(), &["compare", "fast.json", "slow.json", "--fail-if-slower=10%", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let effects = json(&output)["effects"].clone();
    let create = effects.as_array().unwrap().iter().find(|effect| effect["figure"] == "create:files_per_s").unwrap();
    assert!(
        create["change"]["mean"].as_f64().unwrap() < -0.3 && create["change"]["high"].as_f64().unwrap() < 0.0,
        "{create}"
    );
    succeed(place.path(), &["compare", "slow.json", "fast.json", "--fail-if-slower=10%"]);
    // A run that was over at once has ratios without intervals, and nothing is concluded from them.
    let too_short = (0..20).find_map(|_| {
        save("short.json", "0", "20"); // unless the disk takes its time
        let text = stdout(&succeed(place.path(), &["compare", "short.json", "short.json"]));
        text.contains("nothing tells that from noise").then_some(())
    });
    assert!(too_short.is_some(), "what is over in no time is said to be too short");
    let output = run(place.path(), &["compare", "short.json", "short.json", "--fail-if-slower=10%"]);
    assert_eq!(output.status.code(), Some(4), "a gate that cannot tell does not open");
    assert!(stderr(&output).contains("let it run for some seconds"), "{}", stderr(&output));
    succeed(place.path(), &["report", "fast.json", "slow.json", "-o", "page.html"]);
}

#[test]
fn response_times_are_written_for_every_operation_and_shown_over_time() {
    let place = directory();
    let line = "--op create,stat --files 20 --threads 2 --response-times times";
    let result = files(place.path(), line);
    for thread in ["thrd000", "thrd001"] {
        let text = std::fs::read_to_string(place.path().join(format!("times/{thread}.csv"))).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("phase,operation,start_s,response_s"));
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 40);
        assert!(rows[..20].iter().all(|row| row[..2] == ["create", "create"]));
        assert!(rows[20..].iter().all(|row| row[..2] == ["stat", "stat"]));
        let starts: Vec<f64> = rows[..20].iter().map(|row| row[2].parse().unwrap()).collect();
        assert!(starts.is_sorted(), "{starts:?}");
        assert!(rows.iter().all(|row| row[3].parse::<f64>().unwrap() > 0.0));
    }
    let slices = phase(&result, "create")["over_time"]["slices"].as_array().unwrap();
    assert_eq!(slices.iter().map(|slice| slice["count"].as_u64().unwrap()).sum::<u64>(), 40);
    let shown = stdout(&succeed(place.path(), &["files", "--op", "stat", "--files", "20", "--response-times", "more"]));
    assert!(shown.contains("response times from"), "{shown}");
}

/// A limit on the size of files cuts each write: the rest is another call, which is counted and warned of.
#[test]
fn a_write_that_another_call_has_to_complete_is_counted() {
    let place = directory();
    // Limits of the shell have blocks of 512 or 1024 bytes: each is below the 20 KiB of a file.
    let script = "trap '' XFSZ; ulimit -f 9; exec \"$0\" files --op create --files 3 --size 20k --record 20k --json \
                  --continue-on-error";
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let output = Command::new("sh").arg("-c").arg(script).arg(program).current_dir(place.path()).output().unwrap();
    let result = json(&output);
    let create = phase(&result, "create");
    assert_eq!(create["disturbances"]["short_transfers"], 3, "{create}");
    let codes: Vec<&Value> = create["verdicts"].as_array().unwrap().iter().map(|verdict| &verdict["code"]).collect();
    assert!(codes.contains(&&"disturbed".into()), "{codes:?}");
}
