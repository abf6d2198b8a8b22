//! Rates of operations, held against the log of the calls themselves, whose ends are held back.

use std::collections::HashMap;

use super::*;

/// The operations of one run, and the calls that carry them out. (The program makes statx for itself.)
const OPERATIONS: [(&str, &str); 7] = [
    ("stat", "stat,lstat,newfstatat"),
    ("chmod", "chmod,fchmodat"),
    ("symlink", "symlink,symlinkat"),
    ("readlink", "readlink,readlinkat"),
    ("link", "link,linkat"),
    ("rename", "rename,renameat,renameat2"),
    ("unlink", "unlink,unlinkat"),
];

const THREADS: usize = 2;
const FILES: usize = 60;

/// The time that the calls of an operation took, in seconds, as strace logged when each began, and their number. A
/// thread's last call has no successor: it took as long as the others of its thread on average.
fn logged(logs: &[PathBuf], calls: &str) -> (f64, usize) {
    let mut threads: HashMap<String, Vec<f64>> = HashMap::new();
    for log in logs {
        let text = std::fs::read_to_string(log).expect("a log of strace");
        for line in text.lines().filter(|line| line.contains("-d0000/f") && !line.contains(" resumed>")) {
            let words: Vec<&str> = line.splitn(3, char::is_whitespace).map(str::trim).collect();
            let [thread, at, call] = words[..] else { panic!("{line}") };
            if calls.split(',').any(|name| call.strip_prefix(name).is_some_and(|rest| rest.starts_with('('))) {
                threads.entry(thread.into()).or_default().push(at.parse().expect("a time"));
            }
        }
    }
    let first = threads.values().map(|begun| begun[0]).fold(f64::INFINITY, f64::min);
    let end = |begun: &Vec<f64>| {
        let spans = begun.len() - 1;
        begun[spans] + (begun[spans] - begun[0]) / spans as f64
    };
    (threads.values().map(end).fold(0.0, f64::max) - first, threads.values().map(Vec::len).sum())
}

/// The rate of each operation lies within 3 % of what the log of its calls says, over this many ranks.
fn rates_agree_with_the_log(ranks: usize) {
    if !has_program("strace") {
        return;
    }
    if let Err(reason) = before_other_programs() {
        return skip(&reason, false);
    }
    let whole = directory();
    let path = |name: &str| whole.path().join(name);
    std::fs::create_dir(path("place")).expect("a directory");
    let delayed: Vec<&str> = OPERATIONS.iter().map(|(_, calls)| *calls).collect();
    let delayed = delayed.join(",");
    // A remote shell without a network: it runs the command here, and logs the calls of a rank in a file of its own.
    let inject = format!("-e trace={delayed} -e inject={delayed}:delay_exit=20000");
    let strace = format!("exec strace -f --seccomp-bpf -qq -ttt -o {}.$host {inject}", path("log").display());
    std::fs::write(path("shell"), format!("host=$1; shift\n{strace} bash -c \"$*\"\n")).expect("a script");

    let hosts: Vec<String> = (0..ranks).map(|rank| format!("h{rank}")).collect();
    let layout = format!("--threads {THREADS} --files {FILES} --size 100 --dir {}", path("place").display());
    let of = |operations: &str, shell: &str| {
        let mut command = plimsoll(whole.path());
        command.env("PLIMSOLL_SSH", shell).args(["files", "--json", "--hosts", &hosts.join(","), "--op", operations]);
        let output = command.args(layout.split(' ')).output().expect("the program starts");
        assert!(output.status.success(), "{}", stderr(&output));
        json(&output)
    };
    std::fs::write(path("plain"), "shift\nexec bash -c \"$*\"\n").expect("a script");
    of("create", &format!("bash {}", path("plain").display()));
    let operations: Vec<&str> = OPERATIONS.iter().map(|(operation, _)| *operation).collect();
    let result = of(&operations.join(","), &format!("bash {}", path("shell").display()));

    let logs: Vec<PathBuf> = hosts.iter().map(|host| path(&format!("log.{host}"))).collect();
    for (operation, calls) in OPERATIONS {
        let phase = phase(&result, operation);
        let (logged, begun) = logged(&logs, calls);
        let all = ranks * THREADS * FILES;
        assert_eq!((begun, count(phase, "files")), (all, all as u64), "{operation}");
        let said = phase["runtime_ns"].as_f64().expect("a time") / 1e9;
        println!("{ranks} ranks, {operation}: {:.1} files/s, {:.1} by the log", all as f64 / said, all as f64 / logged);
        assert!((said / logged - 1.0).abs() <= 0.03, "{operation}: {said} s, {logged} s by the log");
    }
}

#[test]
fn rates_of_a_rank_agree_with_the_log_of_its_calls() {
    rates_agree_with_the_log(1);
}

#[test]
fn rates_of_four_ranks_agree_with_the_log_of_their_calls() {
    rates_agree_with_the_log(4);
}
