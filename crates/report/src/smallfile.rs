//! The result of one operation with the keys of smallfile's `output-json`, for scripts that read these: `params`, and
//! `results` with the threads of each host (of one host: its threads). Rates are sums of the threads' rates over the
//! time of each, as smallfile adds them up.

use measure::schema::{Ended, FilesResult, PhaseResult, ThreadResult};
use serde_json::{Map, Value, json};

use crate::time::utc;

/// The document; None if the run had no phase, or more than one: the form has no place for them.
pub fn render(result: &FilesResult) -> Option<String> {
    let [phase] = &result.phases[..] else { return None };
    let document = json!({ "params": params(result, phase), "results": results(result, phase) });
    serde_json::to_string_pretty(&document).ok().map(|text| text + "\n")
}

fn params(result: &FilesResult, phase: &PhaseResult) -> Value {
    let facts = &result.facts;
    let given = |name: &str| result.options.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let truth = |is: bool| if is { "Y" } else { "N" };
    json!({
        "host-set": result.hosts.as_ref().map(|hosts| {
            hosts.hosts.iter().map(|host| host.host.as_str()).collect::<Vec<_>>().join(",")
        }),
        "version": format!("plimsoll {}", result.provenance.version),
        "top": facts.directory,
        "operation": phase.name,
        "files-per-thread": facts.files,
        "threads": facts.threads * facts.processes,
        "file-size": (facts.mean_bytes / 1024.0).round(),
        "file-size-distr": if facts.sizes.starts_with("exp:") { "exponential" } else { "fixed" },
        "files-per-dir": given("files-per-dir").and_then(|text| text.parse::<u64>().ok()),
        "share-dir": truth(facts.shared),
        "fname-prefix": given("prefix").unwrap_or_default(),
        "fname-suffix": given("suffix").unwrap_or_default(),
        "hash-to-dir": truth(given("hash-into-dirs").is_some()),
        "fsync-after-modify": truth(facts.fsync),
        "pause-between-files": (facts.pause_ns / 1000).to_string(),
        "finish-all-requests": truth(given("finish") != Some("first")),
        "stonewall": "Y",
        "verify-read": truth(given("verify").is_some()),
        "xattr-size": given("xattr-size").unwrap_or("0"),
        "xattr-count": given("xattr-count").unwrap_or("0"),
        "permute-host-dirs": truth(given("neighbour").is_some()),
        "network-sync-dir": Value::Null,
    })
}

fn results(result: &FilesResult, phase: &PhaseResult) -> Value {
    let mut all = summed(&phase.threads);
    match &result.hosts {
        Some(hosts) => {
            let of_host = |threads: &[ThreadResult]| {
                let mut host = summed(threads);
                host.insert("in-thread".into(), Value::Object(each(threads)));
                Value::Object(host)
            };
            let threads = |phases: &[PhaseResult]| phases.first().map_or(Vec::new(), |phase| phase.threads.clone());
            let hosts = hosts.hosts.iter().map(|host| (host.host.clone(), of_host(&threads(&host.phases))));
            all.insert("in-host".into(), Value::Object(hosts.collect()));
        }
        None => drop(all.insert("in-thread".into(), Value::Object(each(&phase.threads)))),
    }
    let asked = result.facts.files * u64::from(result.facts.threads) * u64::from(result.facts.processes);
    all.insert("total-threads".into(), phase.threads.len().into());
    if phase.total.records > 0 {
        all.insert("total-data-GB".into(), json!(phase.total.bytes as f64 / f64::from(1 << 30)));
    }
    all.insert("pct-files-done".into(), json!(100.0 * phase.operations_done() as f64 / asked.max(1) as f64));
    all.insert("start-time".into(), json!(phase.start_unix_ms as f64 / 1000.0));
    let error = result.error.as_ref().map(|error| error.message.clone());
    let status = match result.ended {
        Ended::Complete => "Success".into(),
        Ended::Interrupted => error.unwrap_or_else(|| "interrupted".into()),
        Ended::Failed => error.unwrap_or_else(|| "failed".into()),
    };
    all.insert("status".into(), status.into());
    all.insert("date".into(), utc(phase.start_unix_ms / 1000).replace(" UTC", ".000Z").replacen(' ', "T", 1).into());
    Value::Object(all)
}

/// The figures of each thread, under its number in two digits.
fn each(threads: &[ThreadResult]) -> Map<String, Value> {
    let one =
        |thread: &ThreadResult| (format!("{:02}", thread.thread), Value::Object(summed(std::slice::from_ref(thread))));
    threads.iter().map(one).collect()
}

/// The figures of threads: the longest time, the sum of work and of rates.
fn summed(threads: &[ThreadResult]) -> Map<String, Value> {
    let rate = |count: u64, thread: &ThreadResult| count as f64 * 1e9 / thread.runtime_ns.max(1) as f64;
    let sum = |of: &dyn Fn(&ThreadResult) -> u64| threads.iter().map(of).sum::<u64>();
    let rates = |of: &dyn Fn(&ThreadResult) -> u64| threads.iter().map(|thread| rate(of(thread), thread)).sum::<f64>();
    let mut figures = Map::new();
    let longest_ns = threads.iter().map(|thread| thread.runtime_ns).max().unwrap_or(0);
    figures.insert("elapsed".into(), json!(longest_ns as f64 / 1e9));
    figures.insert("files".into(), sum(&|thread| thread.work.files).into());
    figures.insert("records".into(), sum(&|thread| thread.work.records).into());
    figures.insert("files-per-sec".into(), json!(rates(&|thread| thread.work.files)));
    if threads.iter().any(|thread| thread.work.records > 0) {
        figures.insert("IOPS".into(), json!(rates(&|thread| thread.work.records)));
        figures.insert("MiBps".into(), json!(rates(&|thread| thread.work.bytes) / f64::from(1 << 20)));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::schema::Work;

    #[test]
    fn rates_are_the_sums_of_the_threads_rates() {
        let thread = |thread: u32, files: u64, seconds: u64| ThreadResult {
            thread,
            runtime_ns: seconds * 1_000_000_000,
            work: Work { files, records: 2 * files, bytes: files << 20, ..Work::default() },
            ..ThreadResult::default()
        };
        let threads = vec![thread(0, 10, 1), thread(1, 10, 2)];
        let total = Work { files: 20, records: 40, bytes: 20 << 20, ..Work::default() };
        let phase = PhaseResult { name: "create".into(), threads, total, ..PhaseResult::default() };
        let mut result = FilesResult { phases: vec![phase], ..FilesResult::default() };
        (result.facts.files, result.facts.threads, result.facts.processes) = (10, 2, 1);
        let read: Value = serde_json::from_str(&render(&result).unwrap()).unwrap();
        let all = &read["results"];
        assert_eq!((&all["elapsed"], &all["files"], &all["records"]), (&json!(2.0), &json!(20), &json!(40)));
        assert_eq!((&all["files-per-sec"], &all["IOPS"], &all["MiBps"]), (&json!(15.0), &json!(30.0), &json!(15.0)));
        assert_eq!((&all["pct-files-done"], &all["status"]), (&json!(100.0), &json!("Success")));
        assert_eq!(all["date"], "1970-01-01T00:00:00.000Z");
        assert_eq!(all["in-thread"]["01"]["files-per-sec"], json!(5.0));
        assert_eq!((&read["params"]["operation"], &read["params"]["threads"]), (&json!("create"), &json!(2)));
        result.phases.push(PhaseResult::default());
        assert_eq!(render(&result), None);
    }
}
