//! The names of engines: those that Plimsoll has, and those of fio's that it does not have.

/// An engine as the job language knows it. Its code is in the crate `load`.
pub struct EngineSpec {
    /// `ioengine=`.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// True if a clone can have only one request in flight, so that `iodepth` means nothing.
    pub synchronous: bool,
}

const fn engine(name: &'static str, synchronous: bool, help: &'static str) -> EngineSpec {
    EngineSpec { name, help, synchronous }
}

/// The engines that jobs can use.
pub const ENGINES: &[EngineSpec] = &[
    engine("io_uring", false, "io_uring"),
    engine("libaio", false, "Linux native asynchronous I/O: asynchronous with direct=1 only"),
    engine("guasi", false, "any call made asynchronous by threads"),
    engine("psync", true, "pread and pwrite"),
    engine("sync", true, "lseek, read and write"),
    engine("vsync", true, "lseek, readv and writev"),
    engine("pvsync", true, "preadv and pwritev"),
    engine("pvsync2", true, "preadv2 and pwritev2"),
    engine("null", false, "nothing: what the generator itself costs"),
    engine("gfapi", false, "a Gluster volume through libgfapi, without FUSE"),
    engine("gfapi_async", false, "the same: gfapi is asynchronous here"),
    engine("nvme_tcp", false, "NVMe over TCP, without the kernel's initiator"),
];

/// Names of the engines with their help, as a table of words.
pub(crate) const WORDS: [(&str, &str); ENGINES.len()] = {
    let mut words = [("", ""); ENGINES.len()];
    let mut index = 0;
    while index < words.len() {
        words[index] = (ENGINES[index].name, ENGINES[index].help);
        index += 1;
    }
    words
};

/// fio's engines that are not here.
pub static NOT_HERE: &[&str] = &[
    "posixaio",
    "solarisaio",
    "windowsaio",
    "mmap",
    "splice",
    "sg",
    "net",
    "netsplice",
    "cpuio",
    "rdma",
    "falloc",
    "ftruncate",
    "e4defrag",
    "rados",
    "rbd",
    "http",
    "filecreate",
    "filestat",
    "filedelete",
    "exec",
    "libpmem",
    "pmemblk",
    "dev-dax",
    "mtd",
    "nbd",
    "nfs",
    "libhdfs",
    "libiscsi",
    "libzbc",
    "libcufile",
    "ime_psync",
    "ime_psyncv",
    "ime_aio",
    "dfs",
    "external",
    "io_uring_cmd",
    "xnvme",
    "librpma_apm_client",
    "librpma_apm_server",
    "librpma_gpspm_client",
    "librpma_gpspm_server",
    "libblkio",
];

/// The engine of that name.
pub fn find(name: &str) -> Option<&'static EngineSpec> {
    ENGINES.iter().find(|engine| engine.name == name)
}

/// All engines, one a line: `--enghelp`.
pub fn overview() -> String {
    ENGINES.iter().map(|engine| format!("  {:<12} {}\n", engine.name, engine.help)).collect()
}

/// An engine and its own options: `--enghelp=NAME`. None if there is no such engine.
pub fn describe(name: &str) -> Option<String> {
    let engine = find(name)?;
    let own = crate::options::all().filter(|option| option.engines.contains(&name));
    let options: String = own.map(crate::options::describe).collect();
    let options = if options.is_empty() { "It has no options of its own.\n".to_string() } else { options };
    Some(format!("{}: {}\n{options}", engine.name, engine.help))
}
