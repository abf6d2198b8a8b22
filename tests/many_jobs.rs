//! Five hundred jobs start, run together and are all reported.

mod common;
use common::*;

#[test]
fn five_hundred_jobs_are_all_reported() {
    for (how, arguments) in [
        ("threads", ["--numjobs=500", "--thread=1", "--ioengine=null"]),
        ("processes", ["--numjobs=500", "--thread=0", "--ioengine=null"]),
    ] {
        let directory = directory();
        let job = ["run", "--output-format=json", "--name=a", "--rw=read", "--size=64k", "--bs=4k"];
        let result = json(&succeed(directory.path(), &[&job[..], &arguments].concat()));
        let jobs = result["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 500, "{how}");
        assert!(jobs.iter().all(|job| job["read"]["total_ios"] == 16 && job["error"] == 0), "{how}");
    }
}
