//! The options of the engines `nvme_tcp` and `nvme_rdma`: addresses of namespaces, and how they are connected.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use job::Job;
use nvme::auth::{Secret, TlsKey};
use nvme_initiator::{Address, Options, RdmaHost, Transport};

use super::super::Setup;
use crate::Error;

/// Commands on one connection where the user does not say: what controllers take by default.
const QUEUE_DEPTH: u32 = 128;

/// Seconds that a command may take: Linux's nvme_core.io_timeout.
const IO_TIMEOUT_S: u64 = 30;

/// The stack of RDMA of this process, where it is not rdma-core.
static STACK: OnceLock<verbs::Either> = OnceLock::new();

/// Has the engine `nvme_rdma` use this stack, and not rdma-core: tests run the engine over a fabric in memory. The
/// first call of a process counts.
pub fn use_rdma_stack(stack: verbs::Either) {
    let _ = STACK.set(stack);
}

/// The transport of an engine of this module; None for all others.
pub(in super::super) fn transport(engine: &str) -> Option<Transport> {
    match engine {
        "nvme_tcp" => Some(Transport::Tcp),
        "nvme_rdma" => Some(Transport::Rdma),
        _ => None,
    }
}

/// The options that TCP has and RDMA lacks, each with the reason.
const TCP_ONLY: [(&str, &str); 4] = [
    ("tls_key", "RDMA has no TLS: the card moves data past this program"),
    ("concat", "RDMA has no TLS: the card moves data past this program"),
    ("digest_enable", "RDMA has no digests: the card checks its packets"),
    ("discard_payload", "over RDMA the card puts data into their buffer: there is nothing to throw away"),
];

/// Refuses options that RDMA lacks, also where they stand for several jobs, and `discard_payload=1` beside what needs
/// the data of reads.
///
/// # Errors
/// A usage error that names the option, or the option beside it.
pub(in super::super) fn check(job: &Job) -> Result<(), Error> {
    if transport(&job.engine) == Some(Transport::Rdma) {
        for (key, why) in TCP_ONLY {
            let value = option(job, key).filter(|value| !["0", "NONE"].contains(&value.to_ascii_uppercase().as_str()));
            if let Some(value) = value {
                let what = format!("{key}={value} is not possible with ioengine=nvme_rdma");
                return Err(Error::usage(what, format!("in job {}", job.name), why));
            }
        }
    }
    let digests = option(job, "digest_enable").unwrap_or("NONE").to_ascii_uppercase();
    let reader = match &job.verify {
        Some(_) => "verify= compares them",
        None if digests == "DATA" || digests == "BOTH" => "a data digest (digest_enable=) is computed over them",
        None => return Ok(()),
    };
    if !is_on(job, "discard_payload") {
        return Ok(());
    }
    let hint = format!("{reader}: leave one of the two out");
    Err(Error::usage("discard_payload=1 throws the data of reads away", format!("in job {}", job.name), hint))
}

/// The address that a file's name stands for, completed by the job's options.
pub(in super::super) fn locate(job: &Job, name: &str) -> Result<Address, Error> {
    let option = |key: &str| option(job, key);
    let mut text = match name.trim().parse::<u32>() {
        Ok(number) => format!("ns={number}"),
        Err(_) => name.to_string(),
    };
    for (key, from) in [("traddr", "hostname"), ("trsvcid", "port"), ("subnqn", "subnqn")] {
        let is_there = text.split_whitespace().any(|pair| pair.to_ascii_lowercase().starts_with(key));
        if let Some(value) = option(from).filter(|_| !is_there) {
            text.push_str(&format!(" {key}={value}"));
        }
    }
    let transport = transport(&job.engine).unwrap_or_default();
    if !text.split_whitespace().any(|pair| pair.to_ascii_lowercase().starts_with("trtype")) {
        text.push_str(&format!(" trtype={}", transport.name()));
    }
    let place = || format!("in job {}", job.name);
    let engine = &job.engine;
    let wrong = |error| Error::usage(format!("ioengine={engine}: {error}"), place(), "");
    let address = Address::parse(&text).map_err(wrong)?;
    if address.transport != transport {
        let other = address.transport.name();
        let what = format!("ioengine={engine} does not speak trtype={other}");
        return Err(Error::usage(what, place(), format!("ioengine=nvme_{other} does")));
    }
    Ok(address)
}

pub(super) fn option<'a>(job: &'a Job, key: &str) -> Option<&'a str> {
    job.ring.other.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
}

pub(super) fn is_on(job: &Job, key: &str) -> bool {
    option(job, key) == Some("1")
}

/// The time after which a command without an answer is aborted; None for never.
pub(super) fn io_timeout(job: &Job) -> Option<Duration> {
    let seconds = option(job, "io_timeout").and_then(|value| value.parse().ok()).unwrap_or(IO_TIMEOUT_S);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// The options of a connection, as the job gives them.
pub(super) fn options(setup: &Setup) -> Result<Options, Error> {
    let job = setup.job;
    let wrong = |what: String| Error::usage(what, format!("in job {}", job.name), "");
    let number = |key: &str| option(job, key).and_then(|value| value.parse::<u64>().ok());
    let mut options = Options::default();
    if let Some(name) = option(job, "hostnqn") {
        options.set_host(name.parse().map_err(|error| wrong(format!("hostnqn={name}: {error}")))?);
    }
    if let Some(uuid) = option(job, "hostid") {
        options.set_host_id(uuid).map_err(|error| wrong(format!("hostid={error}")))?;
    }
    (options.header_digest, options.data_digest) =
        match option(job, "digest_enable").unwrap_or("NONE").to_ascii_uppercase().as_str() {
            "NONE" => (false, false),
            "HEADER" => (true, false),
            "DATA" => (false, true),
            "BOTH" => (true, true),
            other => return Err(wrong(format!("digest_enable={other} is none of NONE, HEADER, DATA, BOTH"))),
        };
    let secret = |key: &str| {
        let read = |path: &str| Secret::read(Path::new(path)).map_err(|error| wrong(format!("{key}={path}: {error}")));
        option(job, key).map(read).transpose()
    };
    (options.secret, options.controller_secret) = (secret("dhchap_key")?, secret("dhchap_ctrlr_key")?);
    if options.controller_secret.is_some() && options.secret.is_none() {
        return Err(wrong("dhchap_ctrlr_key= needs dhchap_key=: hosts prove themselves first".into()));
    }
    if let Some(path) = option(job, "tls_key") {
        let key = TlsKey::read(Path::new(path)).map_err(|error| wrong(format!("tls_key={path}: {error}")))?;
        options.tls_key = Some(key);
        if is_on(job, "discard_payload") {
            return Err(wrong("discard_payload=1 takes bytes from the socket that tls_key= has to decrypt".into()));
        }
    }
    options.concatenation = is_on(job, "concat");
    if options.concatenation {
        let why = match () {
            () if options.tls_key.is_some() => "concat=1 makes a key of TLS, and tls_key= gives one: choose",
            () if options.secret.is_none() => "concat=1 needs dhchap_key=: authentication makes the key of TLS",
            () if is_on(job, "discard_payload") => "discard_payload=1 takes bytes that concat=1 has to decrypt",
            () => "",
        };
        if !why.is_empty() {
            return Err(wrong(why.into()));
        }
    }
    if let Some(seconds) = number("keep_alive_tmo") {
        options.keep_alive = Duration::from_secs(seconds);
    }
    if let Some(seconds) = number("ctrl_loss_tmo") {
        options.controller_loss = Duration::from_secs(seconds);
    }
    if let Some(seconds) = number("reconnect_delay") {
        options.reconnect_delay = Duration::from_secs(seconds);
    }
    let depth = setup.depth.max(1);
    let queues = number("nr_io_queues").unwrap_or(depth.div_ceil(QUEUE_DEPTH).into()).clamp(1, 1024) as u32;
    (options.queues, options.depth) = (queues as u16, depth.div_ceil(queues));
    let arena = Some(Arc::clone(&setup.slots) as _);
    options.rdma = RdmaHost { stack: STACK.get().cloned(), arena, writable: may_read(job) };
    Ok(options)
}

/// True if the job may read data. The log that it replays has operations of its own.
fn may_read(job: &Job) -> bool {
    job.rw.directions.read || job.verify.is_some() || job.iolog.is_replay()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(engine: &str, option: (&str, &str)) -> Job {
        let mut job = Job { engine: engine.into(), name: "j".into(), ..Job::default() };
        job.ring.other.push((option.0.into(), option.1.into()));
        job
    }

    /// Also where the option stands for jobs of several engines: nobody may take a connection for a secured one.
    #[test]
    fn options_of_tcp_are_refused_over_rdma() {
        for option in [("tls_key", "k"), ("concat", "1"), ("digest_enable", "BOTH"), ("discard_payload", "1")] {
            let error = check(&job("nvme_rdma", option)).expect_err("there is none over RDMA").to_string();
            let has_reason = error.contains("over RDMA") || error.contains("RDMA has no");
            assert!(error.contains(option.0) && has_reason, "{error}");
            check(&job("nvme_tcp", option)).expect("TCP has it");
        }
        check(&job("nvme_rdma", ("digest_enable", "none"))).expect("no digest is asked for");
        check(&job("nvme_rdma", ("concat", "0"))).expect("nothing is asked for");
    }

    #[test]
    fn controllers_may_write_into_slots_of_jobs_that_read() {
        let mut job = Job::default();
        (job.rw.directions.read, job.rw.directions.write) = (false, true);
        assert!(!may_read(&job));
        let verify = Some(job::job::Verify::default());
        assert!(may_read(&Job { verify, ..job.clone() }));
        let log = job::job::Iolog { read: Some("log".into()), ..Default::default() };
        assert!(may_read(&Job { iolog: log, ..job.clone() }));
        job.rw.directions.read = true;
        assert!(may_read(&job));
    }

    #[test]
    fn an_address_has_the_transport_of_its_engine() {
        let of = |engine, name: &str| locate(&job(engine, ("port", "4421")), name);
        assert_eq!(of("nvme_rdma", "traddr=h").expect("rdma").to_string(), "trtype=rdma traddr=h trsvcid=4421");
        assert_eq!(of("nvme_tcp", "traddr=h ns=2").expect("tcp").to_string(), "trtype=tcp traddr=h trsvcid=4421 ns=2");
        for (engine, other) in [("nvme_rdma", "tcp"), ("nvme_tcp", "rdma")] {
            let name = format!("trtype={other} traddr=h");
            let error = of(engine, &name).expect_err("another transport").to_string();
            assert!(error.contains(&format!("ioengine=nvme_{other} does")), "{error}");
        }
    }
}
