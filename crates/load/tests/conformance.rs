//! Requirements that hold for every engine, run against every engine. A new engine is one line in the table at the end.

use std::path::PathBuf;

#[path = "conformance/namespaces.rs"]
mod namespaces;
#[path = "conformance/refusals.rs"]
mod refusals;
#[path = "conformance/requirements.rs"]
mod requirements;
#[path = "conformance/rig.rs"]
mod rig;
#[path = "conformance/single.rs"]
mod single;
use namespaces::Service;
use requirements::*;
use rig::{ASYNCHRONOUS, BLOCKING, Subject};

macro_rules! suite {
    ($($(#[$attribute:meta])? $name:ident: $subject:expr;)*) => {
        /// The engines of the rows below.
        const ENGINES_OF_ROWS: &[&str] = &[$($subject.engine),*];

        $(suite!(@tests $name, $subject, [$(#[$attribute])?]
        written_data_is_read_back_exactly_where_it_was_written
        short_reads_at_the_end_are_results
        errors_are_results
        priorities_of_requests_reach_the_kernel
        syncs_succeed_and_trims_make_holes
        many_in_flight_complete_exactly_once
        a_full_engine_hands_the_request_back
        a_bad_request_in_a_batch_fails_alone
        files_open_and_close_while_others_are_in_flight
        polling_and_waiting_for_nothing_return_at_once
        dropping_an_engine_waits_for_what_is_in_flight
        a_wait_ends_with_its_timeout
        an_interrupted_wait_returns_early
        a_request_that_never_completes_is_called_back
        trims_discard_on_devices
        );)*
    };
    (@tests $name:ident, $subject:expr, $attribute:tt $($test:ident)*) => {
        mod $name {
            use super::*;
            const SUBJECT: Subject = $subject;
            $(suite!(@test $attribute $test);)*
        }
    };
    (@test [$(#[$attribute:meta])?] $test:ident) => {
        #[test] $(#[$attribute])? fn $test() { super::$test(&SUBJECT); }
    };
}

/// Engines without a row below, each with the reason.
const OUTSIDE: &[(&str, &str)] = &[
    ("net", "has a peer and no offsets: tests/net.rs is about it"),
    ("netsplice", "has a peer and no offsets: tests/net.rs is about it"),
    ("cpuio", "moves no bytes: tests/busy.rs is about it"),
    ("exec", "moves no bytes: tests/busy.rs is about it"),
    ("null", "moves no bytes: conformance/single.rs is about it"),
    ("falloc", "moves no bytes: tests/space_and_names.rs is about it"),
    ("ftruncate", "moves no bytes: tests/space_and_names.rs is about it"),
    ("sg", "needs a SCSI disk: tests/device_commands.rs is about it"),
    ("io_uring_cmd", "needs an NVMe drive: tests/device_commands.rs is about it"),
    ("filecreate", "calls on names: tests/space_and_names.rs is about it"),
    ("filestat", "calls on names: tests/space_and_names.rs is about it"),
    ("filedelete", "calls on names: tests/space_and_names.rs is about it"),
    ("dircreate", "calls on names: tests/space_and_names.rs is about it"),
    ("dirstat", "calls on names: tests/space_and_names.rs is about it"),
    ("dirdelete", "calls on names: tests/space_and_names.rs is about it"),
];

#[test]
fn every_engine_has_a_row_or_a_reason() {
    for engine in job::engines::ENGINES {
        let is_outside = OUTSIDE.iter().any(|(name, _)| *name == engine.name);
        assert!(ENGINES_OF_ROWS.contains(&engine.name) != is_outside, "{}: a row of suite! or of OUTSIDE", engine.name);
    }
}

/// libaio knows files and devices only, and is asynchronous with O_DIRECT.
const AIO: Subject = Subject { engine: "libaio", any_descriptor: false, ..ASYNCHRONOUS };
const DIRECT_AIO: Subject = Subject { align: 4096, flags: libc::O_DIRECT, ..AIO };
const DIRECT: Subject = Subject { align: 4096, flags: libc::O_DIRECT, ..ASYNCHRONOUS };

const NAMESPACES: Subject =
    Subject { descriptors: false, namespaces: Some(Service::Here), any_descriptor: false, align: 512, ..ASYNCHRONOUS };

/// The target of Linux, in a guest.
const NVMET: Subject = Subject { namespaces: Some(Service::Guest), ..NAMESPACES };

const RDMA: Subject = Subject { engine: "nvme_rdma", namespaces: Some(Service::Fabric), ..NAMESPACES };

/// The target of Linux over RDMA, on the machine of the engine, which is a guest.
const RDMA_LINUX: Subject = Subject { engine: "nvme_rdma", namespaces: Some(Service::Linux), ..NAMESPACES };

suite! {
    psync: BLOCKING;
    sync: Subject { engine: "sync", any_descriptor: false, ..BLOCKING };
    vsync: Subject { engine: "vsync", any_descriptor: false, ..BLOCKING };
    pvsync: Subject { engine: "pvsync", ..BLOCKING };
    pvsync2: Subject { engine: "pvsync2", ..BLOCKING };
    mmap: Subject { engine: "mmap", any_descriptor: false, ..BLOCKING };
    mmap_huge: Subject {
        engine: "mmap",
        any_descriptor: false,
        options: |job| job.ring.other.push(("thp".into(), "1".into())),
        ..BLOCKING
    };
    mmap_through: Subject { engine: "mmap", any_descriptor: false, options: |job| job.files.direct = true, ..BLOCKING };
    splice: Subject { engine: "splice", any_descriptor: false, ..BLOCKING };
    posixaio: Subject { engine: "posixaio", any_descriptor: false, ..ASYNCHRONOUS };
    posixaio_direct: Subject { engine: "posixaio", any_descriptor: false, ..DIRECT };
    libaio: AIO;
    libaio_direct: DIRECT_AIO;
    libaio_userspace_reap: Subject { options: |job| job.ring.userspace_reap = true, ..DIRECT_AIO };
    libaio_awake: Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..DIRECT_AIO };
    guasi: Subject { engine: "guasi", ..ASYNCHRONOUS };
    guasi_asleep: Subject { engine: "guasi", options: |job| job.ring.other.push(("poll".into(), "never".into())), ..ASYNCHRONOUS };
    guasi_direct: Subject { engine: "guasi", ..DIRECT };
    io_uring: ASYNCHRONOUS;
    io_uring_direct: DIRECT;
    io_uring_registered: Subject { options: |job| (job.ring.fixed_buffers, job.ring.register_files) = (true, true), ..ASYNCHRONOUS };
    io_uring_registered_direct: Subject { options: |job| (job.ring.fixed_buffers, job.ring.register_files) = (true, true), ..DIRECT };
    io_uring_awake: Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..ASYNCHRONOUS };
    io_uring_adaptive: Subject { options: |job| job.ring.other.push(("poll".into(), "adaptive".into())), ..DIRECT };
    io_uring_vectored: Subject { options: |job| job.ring.nonvectored = Some(false), ..ASYNCHRONOUS };
    io_uring_forced: Subject { options: |job| job.ring.force_async = 2, ..ASYNCHRONOUS };
    #[ignore = "run by gfapi_on_a_volume, which sets up a volume"]
    gfapi: Subject { engine: "gfapi", descriptors: false, any_descriptor: false, ..ASYNCHRONOUS };
    nvme_tcp: Subject { engine: "nvme_tcp", ..NAMESPACES };
    nvme_tcp_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "BOTH".into())), ..NAMESPACES };
    nvme_tcp_queues: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("nr_io_queues".into(), "3".into())), ..NAMESPACES };
    nvme_tcp_awake: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("poll".into(), "always".into())), ..NAMESPACES };
    nvme_tcp_asleep: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("poll".into(), "never".into())), ..NAMESPACES };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet: Subject { engine: "nvme_tcp", ..NVMET };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet_header_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "HEADER".into())), ..NVMET };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet_data_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "DATA".into())), ..NVMET };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "BOTH".into())), ..NVMET };
    nvme_rdma: RDMA;
    nvme_rdma_queues: Subject { options: |job| job.ring.other.push(("nr_io_queues".into(), "3".into())), ..RDMA };
    nvme_rdma_awake: Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..RDMA };
    nvme_rdma_asleep: Subject { options: |job| job.ring.other.push(("poll".into(), "never".into())), ..RDMA };
    #[ignore = "run by nvme_rdma_on_the_target_of_linux, which boots one"]
    rdma_linux: RDMA_LINUX;
    #[ignore = "run by nvme_rdma_on_the_target_of_linux, which boots one"]
    rdma_linux_queues: Subject { options: |job| job.ring.other.push(("nr_io_queues".into(), "3".into())), ..RDMA_LINUX };
    #[ignore = "run by nvme_rdma_on_the_target_of_linux, which boots one"]
    rdma_linux_asleep: Subject { options: |job| job.ring.other.push(("poll".into(), "never".into())), ..RDMA_LINUX };
    io_uring_sqpoll: Subject { options: |job| job.ring.sq_poll = true, ..ASYNCHRONOUS };
}

/// Needs root, and the GlusterFS that tests/needs installs.
#[test]
fn gfapi_on_a_volume() {
    let missing = ["/usr/sbin/glusterd", "/usr/sbin/glusterfs"].iter().find(|program| !PathBuf::from(program).exists());
    // SAFETY: geteuid takes no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if let Some(program) = missing {
        assert!(
            std::env::var("CI").as_deref() != Ok("true") || !is_root,
            "{program} is missing: under CI this is a failure"
        );
        return println!("skipped: gfapi_on_a_volume: {program} is not installed (tests/needs installs it)");
    }
    if !is_root {
        return println!("skipped: gfapi_on_a_volume: only root can make network namespaces");
    }
    let rig = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/gluster-volume.sh");
    let mut suite = std::process::Command::new(rig);
    suite.env("OPTIONS", "network.ping-timeout=60"); // nobody falls silent here: who answers late is only busy
    suite.arg(std::env::current_exe().unwrap()).args(["gfapi::", "--ignored", "--test-threads=2"]);
    let output = suite.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let passed = said.lines().filter(|line| line.starts_with("test gfapi::") && line.ends_with("... ok")).count();
    assert!(passed > 10 && !said.contains("skipped: "), "{said}\n{errors}");
}

/// The initiator with the target of a kernel of Debian 13, emulated: minutes. `make test-guest` runs this.
#[test]
#[ignore = "minutes of emulation: make test-guest"]
fn nvme_tcp_on_the_target_of_linux() {
    if let Some(missing) = namespaces::missing() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing} is missing: under CI this is a failure");
        return println!(
            "skipped: nvme_tcp_on_the_target_of_linux: {missing} is not installed (tests/needs installs it)"
        );
    }
    let output = namespaces::run_on_guest(&["nvmet", "--ignored", "--test-threads=1"]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let passed = said.lines().filter(|line| line.starts_with("test nvmet") && line.ends_with("... ok")).count();
    assert!(passed > 50 && !said.contains("skipped: "), "{said}\n{errors}");
}

/// The initiator over RDMA with the target of a kernel of Debian 13, both on Soft-RoCE in a guest.
#[test]
#[ignore = "minutes of emulation: make test-guest"]
fn nvme_rdma_on_the_target_of_linux() {
    let output = namespaces::run_in_guest(&["rdma_linux", "--ignored", "--test-threads=1"]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let passed = said.lines().filter(|line| line.starts_with("test rdma_linux") && line.ends_with("... ok")).count();
    assert!(passed > 40 && !said.contains("skipped: "), "{said}\n{errors}");
}
