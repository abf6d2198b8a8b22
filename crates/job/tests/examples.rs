//! Every example that comes with fio becomes jobs, or is refused with the name of a part that it needs and Plimsoll
//! lacks.

mod common;

use std::path::Path;

use job::Invocation;
use job::file::Surroundings;

/// The directory in which Debian's package fio-examples puts the examples.
const FOLDER: &str = "/usr/share/doc/fio/examples";

/// Examples that are refused, and the option or engine that their error names. All other examples are jobs in Plimsoll.
const REFUSED: &[(&str, &str)] = &[
    ("cpp_null", "unsupported engine cpp_null"),
    ("dev-dax", "unsupported engine dev-dax"),
    ("dfs", "unsupported engine dfs"),
    ("e4defrag", "unsupported engine e4defrag"),
    ("e4defrag2", "unsupported engine e4defrag"),
    ("gpudirect-rdmaio-client", "unsupported engine rdma"),
    ("gpudirect-rdmaio-server", "unsupported engine rdma"),
    ("http-s3-crypto", "unsupported engine http"),
    ("http-s3-storage-class", "unsupported engine http"),
    ("http-s3", "unsupported engine http"),
    ("http-swift", "unsupported engine http"),
    ("http-webdav", "unsupported engine http"),
    ("ime", "unsupported engine ime_psync"),
    ("libcufile-cufile", "unsupported engine libcufile"),
    ("libcufile-posix", "unsupported engine libcufile"),
    ("libhdfs", "unsupported engine libhdfs"),
    ("libiscsi", "unsupported engine libiscsi"),
    ("libpmem", "unsupported engine libpmem"),
    ("librpma_apm-client", "unsupported engine librpma_apm_client"),
    ("librpma_apm-server", "unsupported engine librpma_apm_server"),
    ("librpma_gpspm-client", "unsupported engine librpma_gpspm_client"),
    ("librpma_gpspm-server", "unsupported engine librpma_gpspm_server"),
    ("libzbc-rand-write", "unsupported engine libzbc"),
    ("libzbc-seq-read", "unsupported engine libzbc"),
    ("mtd", "unsupported engine mtd"),
    ("nbd", "unsupported engine nbd"),
    ("nfs", "unsupported engine nfs"),
    ("pmemblk", "unsupported engine pmemblk"),
    ("rados", "unsupported engine rados"),
    ("rbd", "unsupported engine rbd"),
    ("rdmaio-client", "unsupported engine rdma"),
    ("rdmaio-server", "unsupported engine rdma"),
    ("uring-cmd-zoned", "zonemode=zbd does not go with ioengine=io_uring_cmd"),
];

#[test]
fn every_example_is_jobs_or_is_refused_by_name() {
    if !Path::new(FOLDER).is_dir() {
        return common::skip("fio's examples are not installed: apt-get install fio-examples");
    }
    // Some refer to variables of the environment.
    let variable = |name: &str| {
        let value = match name {
            "FIO_RW" => "randread",
            "FIO_BS" => "4k",
            _ => "1",
        };
        Some(value.to_string())
    };
    let surroundings = Surroundings { variable: &variable, ..Surroundings::SYSTEM };
    let files = common::job_files(Path::new(FOLDER));
    assert!(files.len() > 60, "only {} examples", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_string();
        let expected = REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, what)| *what);
        let plan = Invocation { files: vec![path], ..Invocation::default() }.plan_in(&surroundings);
        match (plan, expected) {
            (Ok(plan), None) => assert!(!plan.jobs.is_empty(), "{name}"),
            (Err(error), Some(what)) if error.what == what => {}
            (Err(error), _) => wrong.push(format!("(\"{name}\", \"{}\"),", error.what)),
            (Ok(_), Some(what)) => wrong.push(format!("{name} is not refused for {what}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
