//! The log and the metrics of `plimsoll serve`: what a refused, a lost and a hostile host leave behind, with the
//! initiator of the program as the host.

mod common;
use common::served::{NQN, Served};
use common::*;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const STRANGER: &str = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";
const KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n";
const OTHER_KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:\n";

/// A key in a file that only its owner may read.
fn key(place: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    file(place, name, text);
    std::fs::set_permissions(place.join(name), std::fs::Permissions::from_mode(0o600)).expect("it is there");
}

/// A load as that host, of ten reads.
fn load(served: &Served, place: &Path, host: &str, more: &[&str]) -> Output {
    let fixed =
        ["run", "--name=a", "--ioengine=nvme_tcp", "--rw=randread", "--bs=4k", "--number_ios=10", "--eta=never"];
    let hostnqn = format!("--hostnqn={host}");
    run(place, &[&fixed[..], &[&served.filename(1), &hostnqn], more].concat())
}

/// The first line with all of these parts.
fn find(lines: &mut impl Iterator<Item = String>, parts: &[&str]) -> String {
    let mut seen = Vec::new();
    for line in lines {
        if parts.iter().all(|part| line.contains(part)) {
            return line;
        }
        seen.push(line);
    }
    panic!("no line has {parts:?}: {seen:#?}")
}

#[test]
fn the_log_says_who_came_who_was_refused_and_why() {
    let place = directory();
    key(place.path(), "host.key", KEY);
    key(place.path(), "other.key", OTHER_KEY);
    let mut served =
        Served::one_line(place.path(), &["--null", "1g", "--allow-host", HOST, "--dhchap-key", "host.key"]);
    let port = served.port();
    let mut log = served.log();
    find(&mut log, &["plimsoll: notice: ", " serves, process ", &served.pid().to_string()]);

    assert!(!load(&served, place.path(), STRANGER, &[]).status.success());
    let line = find(&mut log, &["is refused"]);
    let expected = format!(
        "plimsoll: warning: host \"{STRANGER}\" at 127.0.0.1 is refused on 127.0.0.1:{port} for \"{NQN}\": it is not in the list of hosts (nvmf_subsystem_add_host, --allow-host)"
    );
    assert_eq!(line, expected);

    assert!(!load(&served, place.path(), HOST, &["--dhchap_key=other.key"]).status.success());
    find(&mut log, &["warning", HOST, "is refused", "authentication failed: the keys differ"]);

    let output = load(&served, place.path(), HOST, &["--dhchap_key=host.key"]);
    assert!(output.status.success(), "{}", stderr(&output));
    find(&mut log, &["notice", &format!("host \"{HOST}\" at 127.0.0.1 connects on {NQN}, controller ")]);
    find(&mut log, &["notice", HOST, "leaves", ": it has shut its controller down"]);

    served.rpc(&["bdev_null_create", "name=More", "num_blocks=8", "block_size=512"]);
    find(&mut log, &["notice: the configuration changes: bdev_null_create {\"name\":\"More\""]);
    served.refused(&["bdev_null_create", "name=More", "num_blocks=8", "block_size=512"]);
    find(&mut log, &["notice: a call that fails: bdev_null_create", "More"]);

    // Without notices nobody hears of the stranger's end, and not of the target's.
    assert_eq!(served.rpc_text(&["log_get_level"]).trim(), "NOTICE");
    served.rpc(&["log_set_level", "level=WARNING"]);
    assert_eq!(served.rpc_text(&["log_get_level"]).trim(), "WARNING");
    assert_eq!(served.rpc_text(&["log_get_print_level"]).trim(), "WARNING");
    served.rpc(&["bdev_null_delete", "name=More"]);
    assert_eq!(served.end(), "");
    let rest: Vec<String> = log.collect();
    assert!(
        rest.iter().all(|line| !line.contains("bdev_null_delete") && !line.contains("the target ends")),
        "{rest:?}"
    );
}

#[test]
fn the_log_in_json_has_the_parts_of_each_event() {
    let place = directory();
    let arguments = ["--null", "1g", "--allow-host", HOST, "--log-format", "json", "--log-level", "debug"];
    let mut served = Served::one_line(place.path(), &arguments);
    let mut log = served.log();
    assert!(!load(&served, place.path(), STRANGER, &[]).status.success());
    assert!(load(&served, place.path(), HOST, &[]).status.success());
    let port = served.port();
    served.end();
    let lines: Vec<Value> = log.by_ref().map(|line| serde_json::from_str(&line).expect("JSON on each line")).collect();
    let event =
        |name: &str| lines.iter().find(|line| line["event"] == name).unwrap_or_else(|| panic!("{name}: {lines:#?}"));
    let refused = event("refused");
    assert_eq!((&refused["level"], &refused["reason"]), (&"WARNING".into(), &"host-not-allowed".into()));
    assert_eq!((&refused["host"], &refused["subsystem"]), (&STRANGER.into(), &NQN.into()));
    assert_eq!(refused["listener"], format!("127.0.0.1:{port}"));
    assert!(refused["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{refused}");
    assert!(refused["time"].as_str().is_some_and(|time| time.ends_with('Z') && time.len() == 27), "{refused}");
    assert_eq!(event("connect")["host"], HOST);
    assert!(lines.iter().any(|line| line["event"] == "connect" && line["queue"] == 1 && line["level"] == "INFO"));
    let question = lines.iter().find(|line| line["method"] == "nvmf_get_subsystems").expect("a question");
    assert_eq!((&question["event"], &question["level"]), (&"call".into(), &"DEBUG".into()));
    assert_eq!(lines.iter().filter(|line| line["event"] == "stop").count(), 2);
}

/// Nobody reads standard error: the pipe is full, hosts are served, and the target ends.
#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g", "--log-level", "debug"]);
    let long = "x".repeat(4000);
    for _ in 0..64 {
        served.try_rpc(&["bdev_get_bdevs", &format!("name={long}")]);
    }
    let output = load(&served, place.path(), HOST, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    served.signal("TERM");
    let (status, ..) = served.wait();
    assert_eq!(status.code(), Some(0));
}

fn page(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a head").1.to_string()
}

#[test]
fn metrics_count_refusals_and_latencies() {
    let place = directory();
    let metrics = common::served::free_port();
    let arguments = ["--null", "1g", "--allow-host", HOST, "--metrics", &metrics.to_string()];
    let served = Served::one_line(place.path(), &arguments);
    let port = served.port();
    let value = |page: &str, name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}:\n{page}")).parse().expect("a number")
    };
    let refusals =
        format!("plimsoll_listener_refusals_total{{listener=\"127.0.0.1:{port}\",reason=\"host-not-allowed\"}}");
    assert_eq!(value(&page(metrics), &refusals), 0.0, "the first one is a growth");
    assert!(!load(&served, place.path(), STRANGER, &[]).status.success());
    assert!(load(&served, place.path(), HOST, &[]).status.success());
    let page = page(metrics);
    assert!(value(&page, &refusals) >= 1.0);
    // The program looks at the namespace before it runs the job.
    assert_eq!(value(&page, &format!("plimsoll_listener_hosts_total{{listener=\"127.0.0.1:{port}\"}}")), 2.0);
    assert_eq!(value(&page, &format!("plimsoll_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))), 1.0);
    assert_eq!(value(&page, "plimsoll_device_latency_seconds_count{device=\"Null0\"}"), 10.0);
    let namespace = format!("subsystem=\"{NQN}\",nsid=\"1\",device=\"Null0\"");
    assert_eq!(value(&page, &format!("plimsoll_namespace_reads_total{{{namespace}}}")), 10.0);
    assert_eq!(value(&page, &format!("plimsoll_namespace_latency_seconds_count{{{namespace}}}")), 10.0);
    let of_host = |metric: &str| value(&page, &format!("plimsoll_host_{metric}"));
    assert_eq!(of_host(&format!("reads_total{{host=\"{HOST}\"}}")), 10.0);
    assert_eq!(of_host(&format!("latency_seconds_bucket{{host=\"{HOST}\",le=\"+Inf\"}}")), 10.0);
    assert!(of_host(&format!("latency_seconds_sum{{host=\"{HOST}\"}}")) > 0.0);
    // The host has closed its connections, and the target may see that a moment later.
    assert!(value(&page, &format!("plimsoll_subsystem_controllers{{subsystem=\"{NQN}\"}}")) <= 1.0);
    assert_eq!(value(&page, "plimsoll_device_latency_seconds_bucket{device=\"Null0\",le=\"+Inf\"}"), 10.0);
    assert_eq!(
        value(&page, "plimsoll_namespace_info{subsystem=\"nqn.2016-06.io.spdk:cnode1\",nsid=\"1\",device=\"Null0\"}"),
        1.0
    );
    // Prometheus' own tool has no doubts about the page.
    if !has_program("promtool") {
        return;
    }
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    check.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("it reads");
    let output = check.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

/// The dashboard is one that Grafana can show, and asks for no metric and no label that the target does not have.
#[test]
fn the_dashboard_is_about_metrics_that_there_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/grafana/plimsoll-target.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the dashboard")).expect("JSON");
    let place = directory();
    let metrics = common::served::free_port();
    let served = Served::one_line(place.path(), &["--null", "1g", "--metrics", &metrics.to_string()]);
    assert!(load(&served, place.path(), HOST, &[]).status.success());
    let page = page(metrics);
    served.end();

    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut expressions) = (std::collections::BTreeSet::new(), Vec::new());
    let mut places: Vec<[u64; 4]> = Vec::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "two panels have one number: {panel}");
        let at = ["x", "y", "w", "h"].map(|part| panel["gridPos"][part].as_u64().expect("a place"));
        let [x, y, w, h] = at;
        let meets = |[ox, oy, ow, oh]: &[u64; 4]| x < ox + ow && *ox < x + w && y < oy + oh && *oy < y + h;
        assert!(x + w <= 24 && !places.iter().any(meets), "{panel} covers another panel");
        places.push(at);
        for target in panel["targets"].as_array().into_iter().flatten() {
            expressions.push(target["expr"].as_str().expect("a query").to_string());
            // A legend names labels of the metrics in its query.
            let legend = target["legendFormat"].as_str().expect("a legend");
            let series = metric_names(expressions.last().expect("it has one"));
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().expect("a name")) {
                let has = |metric: &String| {
                    page.lines()
                        .any(|line| line.starts_with(&format!("{metric}{{")) && line.contains(&format!("{label}=\"")))
                };
                assert!(label == "instance" || series.iter().all(has), "{label} of {legend}: {series:?}");
            }
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        expressions.extend(variable["definition"].as_str().map(str::to_string));
    }
    let asked: Vec<String> = expressions.iter().flat_map(|expression| metric_names(expression)).collect();
    assert!(asked.len() > 20, "{asked:?}");
    for metric in &asked {
        assert!(page.contains(&format!("\n{metric}{{")), "{metric} is not in\n{page}");
    }
    // Every query is one of PromQL: Prometheus' own tool reads them as rules.
    if !has_program("promtool") {
        return;
    }
    let queries = expressions.iter().filter(|expression| !expression.starts_with("label_values"));
    let rules: Vec<Value> = queries
        .enumerate()
        .map(|(number, query)| {
            let query = query.replace("$__rate_interval", "1m");
            serde_json::json!({ "record": format!("query:{number}"), "expr": query })
        })
        .collect();
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let rules = file(place.path(), "dashboard.yml", rules.to_string());
    tool("promtool", &["check", "rules", rules.to_str().expect("text")], place.path());
}

/// The names of the metrics in a query.
fn metric_names(query: &str) -> Vec<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = query.split(|character| !is_part(character));
    words.filter(|word| word.starts_with("plimsoll_")).map(str::to_string).collect()
}

/// The rules are rules, and ask for no metric that the target does not have.
#[test]
fn alert_rules_are_about_metrics_that_there_are() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus/plimsoll-alerts.yml");
    let text = std::fs::read_to_string(&rules).expect("the rules");
    let place = directory();
    let metrics = common::served::free_port();
    let served = Served::one_line(place.path(), &["--null", "1g", "--metrics", &metrics.to_string()]);
    let page = page(metrics);
    for metric in metric_names(&text) {
        assert!(page.contains(&format!("\n{metric}{{")), "{metric} is not in\n{page}");
    }
    served.end();
    if has_program("promtool") {
        tool("promtool", &["check", "rules", rules.to_str().expect("text")], place.path());
    }
}
