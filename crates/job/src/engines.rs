//! The table of engines: one row each. `load::engine` has the constructor of every row.

use crate::options;

/// An engine as the job language knows it.
#[derive(Debug)]
pub struct EngineSpec {
    /// `ioengine=`, and the name in results.
    pub name: &'static str,
    /// Other names that `ioengine=` accepts.
    pub aliases: &'static [&'static str],
    /// One line of help, without a full stop.
    pub help: &'static str,
    /// True if a clone can have only one request in flight, so that `iodepth` means nothing.
    pub synchronous: bool,
    /// True if the files are not paths of this host: the engine opens them itself.
    pub opens_files: bool,
    /// True if the engine touches no file: sizes come from the job alone, nothing is laid out or opened.
    pub diskless: bool,
    /// True if ops are calls on the files' names: each file has one op in a pass, and no content.
    pub on_names: bool,
    /// True if ops move no data: the engine keeps a processor or a program at work until the time is over.
    pub without_data: bool,
    /// True if writes store no content that reads could bring back: there is nothing to compare.
    pub without_content: bool,
    /// True if the data go to a peer or come from one: they have no place from which they could be read back.
    pub to_peer: bool,
    /// True if ops are commands of a device, of whose size the engine asks the device: `/dev/sg0`, `/dev/ng0n1`.
    pub by_commands: bool,
    /// Names of the options that only this engine and others that name them take.
    pub options: &'static [&'static str],
}

impl EngineSpec {
    /// An asynchronous engine on files of this host, without options of its own.
    pub const fn new(name: &'static str, help: &'static str) -> EngineSpec {
        EngineSpec {
            name,
            aliases: &[],
            help,
            synchronous: false,
            opens_files: false,
            diskless: false,
            on_names: false,
            without_data: false,
            without_content: false,
            to_peer: false,
            by_commands: false,
            options: &[],
        }
    }

    const fn aliases(mut self, aliases: &'static [&'static str]) -> EngineSpec {
        self.aliases = aliases;
        self
    }

    const fn synchronous(mut self) -> EngineSpec {
        self.synchronous = true;
        self
    }

    const fn opens_files(mut self) -> EngineSpec {
        self.opens_files = true;
        self
    }

    /// Says that the engine touches no file.
    pub const fn diskless(mut self) -> EngineSpec {
        self.diskless = true;
        self
    }

    /// A synchronous engine whose ops are calls on names. It makes what it needs itself.
    const fn on_names(mut self, options: &'static [&'static str]) -> EngineSpec {
        (self.synchronous, self.diskless, self.on_names, self.options) = (true, true, true, options);
        self
    }

    /// A synchronous engine whose ops move no data and touch no file.
    const fn without_data(mut self) -> EngineSpec {
        (self.synchronous, self.diskless, self.without_data) = (true, true, true);
        self
    }

    /// Says that writes store no content.
    const fn without_content(mut self) -> EngineSpec {
        self.without_content = true;
        self
    }

    /// A synchronous engine that sends data to a peer, or receives them.
    const fn with_peer(mut self) -> EngineSpec {
        (self.synchronous, self.diskless, self.to_peer) = (true, true, true);
        self
    }

    /// Says that ops are commands of a device.
    const fn by_commands(mut self) -> EngineSpec {
        self.by_commands = true;
        self
    }

    const fn options(mut self, options: &'static [&'static str]) -> EngineSpec {
        self.options = options;
        self
    }
}

use EngineSpec as Engine;

/// The options of the engines that use a socket.
const SOCKET_OPTIONS: &[&str] =
    &["protocol", "listen", "hostname", "port", "nodelay", "pingpong", "window_size", "mss", "interface", "ttl"];

/// The engines that jobs can use.
#[rustfmt::skip]
pub static ENGINES: &[EngineSpec] = &[
    Engine::new("io_uring", "io_uring(7)").options(&[
        "hipri", "fixedbufs", "registerfiles", "sqthread_poll", "sqthread_poll_cpu", "nonvectored", "force_async",
        "poll", "nowait", "uncached", "atomic", "cmdprio_percentage", "cmdprio_class", "cmdprio_hint", "cmdprio",
        "cmdprio_bssplit",
    ]),
    Engine::new("libaio", "Linux native asynchronous I/O: asynchronous with direct=1 only").options(&[
        "userspace_reap", "poll", "nowait", "atomic", "cmdprio_percentage", "cmdprio_class", "cmdprio_hint", "cmdprio",
        "cmdprio_bssplit",
    ]),
    Engine::new("guasi", "any call made asynchronous: by io_uring, or by threads where there is none")
        .options(&["poll"]),
    Engine::new("psync", "pread(2) and pwrite(2)").synchronous(),
    Engine::new("sync", "lseek(2), then read(2) or write(2)").synchronous(),
    Engine::new("vsync", "lseek(2), then readv(2) or writev(2)").synchronous(),
    Engine::new("pvsync", "preadv(2) and pwritev(2)").synchronous(),
    Engine::new("pvsync2", "preadv2(2) and pwritev2(2)").synchronous().options(&[
        "hipri", "hipri_percentage", "nowait", "uncached", "atomic",
    ]),
    Engine::new("mmap", "a mapping of the file, copied to and from").synchronous().options(&["thp"]),
    Engine::new("posixaio", "aio_read(3) and aio_write(3), carried out by threads of the C library"),
    Engine::new("splice", "splice(2) and vmsplice(2), through a pipe").synchronous(),
    Engine::new("falloc", "fallocate(2): reads reserve, writes reserve and set the size, trims free")
        .synchronous().without_content(),
    Engine::new("ftruncate", "ftruncate(2): a write sets the size to its offset").synchronous().without_content(),
    Engine::new("filecreate", "open(2) and close(2) of each file once, with O_CREAT").on_names(&[]),
    Engine::new("filestat", "stat(2) of each file once").on_names(&["stat_type"]),
    Engine::new("filedelete", "unlink(2) of each file once").on_names(&[]),
    Engine::new("dircreate", "mkdir(2) of each name once").on_names(&[]),
    Engine::new("dirstat", "stat(2) of each directory once").on_names(&["stat_type"]),
    Engine::new("dirdelete", "rmdir(2) of each directory once").on_names(&[]),
    Engine::new("net", "a socket: TCP, UDP, UNIX or vsock; one job sends and another one receives")
        .with_peer().options(SOCKET_OPTIONS),
    Engine::new("netsplice", "as net, with splice(2) between a pipe and a TCP socket").with_peer().options(SOCKET_OPTIONS),
    Engine::new("cpuio", "burns processor time, and moves no data").without_data().options(&[
        "cpuload", "cpumode", "cpuchunks", "exit_on_io_done",
    ]),
    Engine::new("exec", "runs a program while other jobs run, and moves no data").without_data().options(&[
        "program", "arguments", "grace_time", "std_redirect",
    ]),
    Engine::new("null", "transfers nothing: measures the generator").diskless().without_content(),
    Engine::new("gfapi", "a Gluster volume through libgfapi, asynchronous and without FUSE")
        .aliases(&["gfapi_async"]).opens_files().options(&["volume", "brick", "single-instance"]),
    Engine::new("nvme_tcp", "NVMe over TCP, without the kernel's initiator").opens_files().options(&[
        "subnqn", "hostnqn", "hostid", "dhchap_key", "dhchap_ctrlr_key", "tls_key", "concat", "digest_enable",
        "nr_io_queues", "keep_alive_tmo", "ctrl_loss_tmo", "reconnect_delay",
        "io_timeout", "hostname", "port", "poll", "discard_payload",
    ]),
    Engine::new("nvme_rdma", "NVMe over RDMA, without the kernel's initiator").opens_files().options(&[
        "subnqn", "hostnqn", "hostid", "dhchap_key", "dhchap_ctrlr_key", "nr_io_queues", "keep_alive_tmo",
        "ctrl_loss_tmo", "reconnect_delay", "io_timeout", "hostname", "port", "poll",
    ]),
    Engine::new("sg", "SCSI commands to /dev/sda, or to /dev/sg0: asynchronous there, without direct=1 and sync=1").by_commands()
        .options(&["readfua", "writefua", "sg_write_mode"]),
    Engine::new("io_uring_cmd", "NVMe commands to /dev/ng0n1, through io_uring").by_commands().options(&[
        "cmd_type", "hipri", "fixedbufs", "registerfiles", "sqthread_poll", "sqthread_poll_cpu", "nonvectored",
        "force_async", "poll", "readfua", "writefua", "write_mode", "deac",
    ]),
];

impl EngineSpec {
    /// Name and aliases of the engine.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// The words of `ioengine=` with their help: names and aliases in the order of the table.
pub(crate) static WORDS: [(&str, &str); word_count()] = {
    let mut words = [("", ""); word_count()];
    let (mut word, mut row) = (0, 0);
    while row < ENGINES.len() {
        words[word] = (ENGINES[row].name, ENGINES[row].help);
        word += 1;
        let mut alias = 0;
        while alias < ENGINES[row].aliases.len() {
            words[word] = (ENGINES[row].aliases[alias], ENGINES[row].help);
            word += 1;
            alias += 1;
        }
        row += 1;
    }
    words
};

const fn word_count() -> usize {
    let (mut words, mut row) = (0, 0);
    while row < ENGINES.len() {
        words += 1 + ENGINES[row].aliases.len();
        row += 1;
    }
    words
}

/// fio's engines that are not here, each with the options that only such engines take.
#[rustfmt::skip]
static NOT_HERE: &[(&str, &[&str])] = &[
    ("solarisaio", &[]),
    ("windowsaio", &["no_completion_thread"]),
    ("rdma", &["bindname", "verb"]),
    ("e4defrag", &["donorname", "inplace"]),
    ("rados", &["clustername", "pool", "clientname", "conf", "busy_poll", "touch_objects"]),
    ("rbd", &["clustername", "rbdname", "pool", "clientname", "busy_poll"]),
    ("http", &[
        "https", "http_host", "http_user", "http_pass", "http_s3_key", "http_s3_keyid", "http_s3_region",
        "http_s3_sse_customer_key", "http_s3_sse_customer_algorithm", "http_s3_storage_class", "http_swift_auth_token",
        "http_mode", "http_verbose",
    ]),
    ("libpmem", &[]),
    ("pmemblk", &[]),
    ("dev-dax", &[]),
    ("mtd", &["skip_bad"]),
    ("nbd", &["uri"]),
    ("nfs", &["nfs_url"]),
    ("libhdfs", &["namenode", "hdfsdirectory", "hdfs_use_direct", "single_instance", "chunk_size"]),
    ("libiscsi", &["initiator"]),
    ("libzbc", &[]),
    ("libcufile", &["gpu_dev_ids", "cuda_io"]),
    ("ime_psync", &[]),
    ("ime_psyncv", &[]),
    ("ime_aio", &[]),
    ("dfs", &["pool", "chunk_size", "cont", "object_class", "svcl"]),
    ("external", &[]),
    ("cpp_null", &[]),
    ("xnvme", &["xnvme_be", "xnvme_async", "xnvme_sync", "xnvme_admin", "xnvme_dev_nsid", "xnvme_iovec"]),
    ("librpma_apm_client", &["serverip"]),
    ("librpma_apm_server", &["serverip", "direct_write_to_pmem"]),
    ("librpma_gpspm_client", &["serverip"]),
    ("librpma_gpspm_server", &["serverip", "busy_wait_polling"]),
    ("libblkio", &[]),
];

/// True if fio has an engine of that name and Plimsoll has not.
pub fn is_missing(name: &str) -> bool {
    NOT_HERE.iter().any(|(missing, _)| *missing == name)
}

/// The engine of that name or alias.
pub fn find(name: &str) -> Option<&'static EngineSpec> {
    ENGINES.iter().find(|engine| engine.names().any(|known| known == name))
}

/// The engine that a value of `ioengine=` means, as fio reads it: `aio...` and `linuxaio...` mean libaio, and what
/// follows a colon behind the name of an engine means nothing.
pub(crate) fn meant_by(value: &str) -> &str {
    if value.starts_with("aio") || value.starts_with("linuxaio") {
        return "libaio";
    }
    match value.split_once(':') {
        Some((name, _)) if find(name).is_some() => name,
        _ => value,
    }
}

/// Names of the engines, here or not, that take an option of that name; empty if all engines take it.
pub fn with_option(option: &str) -> Vec<&'static str> {
    let here = ENGINES.iter().map(|engine| (engine.name, engine.options));
    let all = here.chain(NOT_HERE.iter().copied());
    all.filter(|(_, options)| options.contains(&option)).map(|(name, _)| name).collect()
}

/// Names of all engines in one line, for messages.
pub fn names() -> String {
    ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>().join(", ")
}

/// All engines, one a line: `--enghelp`.
pub fn overview() -> String {
    WORDS.iter().map(|(name, help)| format!("  {name:<12} {help}\n")).collect()
}

/// An engine and its own options: `--enghelp=NAME`. None if there is no such engine.
pub fn describe(name: &str) -> Option<String> {
    let engine = find(name)?;
    let own = options::all().filter(|option| engine.options.contains(&option.name));
    let options: String = own.map(options::describe).collect();
    let options = if options.is_empty() { "It has no options of its own.\n".to_string() } else { options };
    Some(format!("{}: {}\n{options}", engine.name, engine.help))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_names_one_engine_and_none_that_is_missing() {
        let mut seen = BTreeSet::new();
        for name in ENGINES.iter().flat_map(EngineSpec::names).chain(NOT_HERE.iter().map(|(name, _)| *name)) {
            assert!(seen.insert(name), "{name} twice");
        }
        assert!(WORDS.iter().all(|(word, help)| find(word).is_some_and(|engine| engine.help == *help)));
    }

    #[test]
    fn options_of_engines_are_in_the_group_of_engines_and_nowhere_else() {
        let listed: BTreeSet<&str> = ENGINES.iter().flat_map(|engine| engine.options).copied().collect();
        let groups = || options::TABLE.iter();
        let group = groups().find(|group| group.title == "Engines").expect("a group of options");
        let named: BTreeSet<&str> = group.options.iter().map(|option| option.name).collect();
        assert_eq!(listed, named);
    }
}
