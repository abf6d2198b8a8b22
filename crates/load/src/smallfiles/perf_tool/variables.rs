//! The environment variables of gfapi_perf_tool, as one table: their defaults, their meaning, and the plan that they
//! ask for.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::super::Operation;
use super::super::gun::Gun;
use super::super::plan::{Phase, Plan};
use super::super::target::{Target, Volume};
use super::super::tree::Layout;
use crate::Error;

/// The variables. A row has the name, the default as the help shows it, and the purpose.
pub const VARIABLES: &[(&str, &str, &str)] = &[
    ("DEBUG", "0", "1 prints the latencies of all calls, on standard error"),
    ("GFAPI_VOLNAME", "", "the Gluster volume; needed unless GFAPI_FUSE is 1"),
    ("GFAPI_HOSTNAME", "", "a server of that volume; needed unless GFAPI_FUSE is 1"),
    ("GFAPI_TRANSPORT", "tcp", "how to reach it: tcp or rdma"),
    ("GFAPI_PORT", "24007", "its port"),
    ("GFAPI_RECSZ", "64", "KB of a read or write"),
    ("GFAPI_FSZ", "1M", "size of a file: KB, or with a unit of K, M, G or T"),
    ("GFAPI_BASEDIR", "/tmp", "the directory to work in: in the volume, or of this machine if GFAPI_FUSE is 1"),
    ("GFAPI_LOAD", "seq-wr", "the load: seq-wr, seq-rd, rnd-wr, rnd-rd, unlink or seq-rdwrmix"),
    ("GFAPI_IOREQ", "0 = all", "requests for each file, for rnd-wr and rnd-rd"),
    ("GFAPI_DIRECT", "0", "1 uses O_DIRECT"),
    ("GFAPI_FUSE", "0", "1 uses system calls (a FUSE mount, or any file system) instead of libgfapi"),
    ("GFAPI_TRCLVL", "0", "level of libgfapi's log, /tmp/glfs-PID.log; 0 is none"),
    ("GFAPI_FILES", "100", "files, of each thread"),
    ("GFAPI_STARTING_GUN", "", "begin when this file appears"),
    ("GFAPI_STARTING_GUN_TIMEOUT", "60", "seconds to wait for it"),
    ("GFAPI_FILES_PER_DIR", "1000", "files in a directory"),
    ("GFAPI_APPEND", "0", "1 appends to files that are there, for seq-wr and seq-rdwrmix"),
    ("GFAPI_OVERWRITE", "0", "1 overwrites files that are there, for seq-wr and seq-rdwrmix"),
    ("GFAPI_PREFIX", "f", "beginning of file names"),
    ("GFAPI_USEC_DELAY_PER_FILE", "0", "microseconds of pause after each file"),
    ("GFAPI_FSYNC_AT_CLOSE", "0", "1 calls fsync before closing a file that was written"),
    ("GFAPI_THREADS_PER_PROC", "1", "threads"),
    ("GFAPI_RDPCT", "0", "percentage of reads, for seq-rdwrmix"),
];

/// The values of GFAPI_LOAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `seq-wr`: sequential write.
    SequentialWrite,
    /// `seq-rd`: sequential read.
    SequentialRead,
    /// `rnd-wr`: random write.
    RandomWrite,
    /// `rnd-rd`: random read.
    RandomRead,
    /// `unlink`: removal of files.
    Unlink,
    /// `seq-rdwrmix`: a mix of sequential reads and writes.
    Mix,
}

const LOADS: [(&str, Load, &str); 6] = [
    ("seq-wr", Load::SequentialWrite, "sequential write"),
    ("seq-rd", Load::SequentialRead, "sequential read"),
    ("rnd-wr", Load::RandomWrite, "random write"),
    ("rnd-rd", Load::RandomRead, "random read"),
    ("unlink", Load::Unlink, "delete"),
    ("seq-rdwrmix", Load::Mix, "sequential read-write mix"),
];

impl Load {
    fn row(self) -> &'static (&'static str, Load, &'static str) {
        LOADS.iter().find(|(_, load, _)| *load == self).unwrap_or(&LOADS[0])
    }

    /// The load's name as GFAPI_LOAD spells it.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The load in words, as the line of IOPS has it.
    pub fn described(self) -> &'static str {
        self.row().2
    }

    fn is_random(self) -> bool {
        matches!(self, Load::RandomWrite | Load::RandomRead)
    }
}

/// The values of all variables.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the table describes each")]
pub struct Variables {
    pub debug: bool,
    pub volume: String,
    pub host: String,
    pub transport: String,
    pub port: u16,
    /// Kilobytes of a record: GFAPI_RECSZ, cut to the file's size.
    pub record_kb: u64,
    /// Kilobytes of a record: GFAPI_RECSZ as the user gave it.
    pub asked_record_kb: u64,
    pub file_kb: u64,
    pub base: String,
    pub load: Load,
    /// Requests for each file: the number that the user asked for, or all that fit.
    pub requests: u64,
    pub direct: bool,
    pub fuse: bool,
    pub trace_level: i32,
    pub files: u64,
    pub gun: Option<Gun>,
    pub gun_timeout_s: u64,
    pub files_per_dir: u64,
    pub append: bool,
    pub overwrite: bool,
    pub prefix: String,
    pub pause_us: u64,
    pub fsync: bool,
    pub threads: u32,
    pub read_percent: f64,
}

impl Variables {
    /// Reads the variables through `get`.
    ///
    /// # Errors
    /// The first variable that is missing or has a value without a meaning.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Variables, Error> {
        let text = |name: &str, default: &str| get(name).unwrap_or_else(|| default.to_string());
        let flag = |name: &str| Ok::<bool, Error>(number::<i64>(&get, name, 0)? != 0);
        let fuse = flag("GFAPI_FUSE")?;
        let needed = |name: &str| match get(name) {
            Some(value) if !value.is_empty() => Ok(value),
            _ if fuse => Ok(String::new()),
            _ => Err(bad(
                name,
                "is not set",
                "it is needed to reach the volume; GFAPI_FUSE=1 works without (-h lists all variables)",
            )),
        };
        let load = text("GFAPI_LOAD", "seq-wr");
        let load = LOADS.iter().find(|(name, ..)| *name == load).map(|(_, load, _)| *load).ok_or_else(|| {
            bad("GFAPI_LOAD", &format!("is '{load}'"), "give seq-wr, seq-rd, rnd-wr, rnd-rd, unlink or seq-rdwrmix")
        })?;
        let transport = text("GFAPI_TRANSPORT", "tcp");
        if !["tcp", "rdma"].contains(&transport.as_str()) {
            return Err(bad("GFAPI_TRANSPORT", &format!("is '{transport}'"), "give tcp or rdma"));
        }
        let file_kb = size_kb(&text("GFAPI_FSZ", "1M"))?;
        let asked_record_kb: u64 = number(&get, "GFAPI_RECSZ", 64)?;
        if asked_record_kb == 0 {
            return Err(bad("GFAPI_RECSZ", "is 0", "give KB, at least 1"));
        }
        let record_kb = asked_record_kb.min(file_kb);
        let most = file_kb.checked_div(record_kb).unwrap_or(0);
        let asked: u64 = number(&get, "GFAPI_IOREQ", 0)?;
        let requests = match load.is_random() && asked > 0 {
            true => asked,
            false => most,
        };
        if requests > most {
            let hint = format!("GFAPI_FSZ holds {most} records of GFAPI_RECSZ: give at most that");
            return Err(bad("GFAPI_IOREQ", &format!("is {asked}"), &hint));
        }
        let (append, overwrite) = (flag("GFAPI_APPEND")?, flag("GFAPI_OVERWRITE")?);
        if append && overwrite {
            return Err(bad("GFAPI_APPEND and GFAPI_OVERWRITE", "are both 1", "set one of them"));
        }
        let read_percent: f64 = number(&get, "GFAPI_RDPCT", 0.0)?;
        if !(0.0..=100.0).contains(&read_percent) {
            return Err(bad("GFAPI_RDPCT", &format!("is {read_percent}"), "give 0 to 100"));
        }
        let gun_timeout_s = number(&get, "GFAPI_STARTING_GUN_TIMEOUT", 60)?;
        let timeout = Duration::from_secs(gun_timeout_s);
        let gun = Some(text("GFAPI_STARTING_GUN", "")).filter(|file| !file.is_empty());
        Ok(Variables {
            debug: flag("DEBUG")?,
            volume: needed("GFAPI_VOLNAME")?,
            host: needed("GFAPI_HOSTNAME")?,
            transport,
            port: number(&get, "GFAPI_PORT", 24007)?,
            record_kb,
            asked_record_kb,
            file_kb,
            base: text("GFAPI_BASEDIR", "/tmp"),
            load,
            requests,
            direct: flag("GFAPI_DIRECT")?,
            fuse,
            trace_level: number(&get, "GFAPI_TRCLVL", 0)?,
            files: number(&get, "GFAPI_FILES", 100)?,
            gun: gun.map(|file| Gun { file, timeout }),
            gun_timeout_s,
            files_per_dir: number(&get, "GFAPI_FILES_PER_DIR", 1000)?,
            // A mix works on files that are there.
            append: append || (load == Load::Mix && !overwrite),
            overwrite,
            prefix: text("GFAPI_PREFIX", "f"),
            pause_us: number(&get, "GFAPI_USEC_DELAY_PER_FILE", 0)?,
            fsync: flag("GFAPI_FSYNC_AT_CLOSE")?,
            threads: number(&get, "GFAPI_THREADS_PER_PROC", 1)?,
            read_percent,
        })
    }

    /// The plan of the run that the variables ask for.
    ///
    /// # Errors
    /// A directory whose name holds a NUL byte.
    pub fn plan(&self) -> Result<Plan, Error> {
        let target = match self.fuse {
            true => Target::Posix,
            false => Target::Gluster(Volume {
                port: self.port,
                transport: self.transport.clone(),
                log_level: self.trace_level,
                log_file: (self.trace_level > 0).then(|| format!("/tmp/glfs-{}.log", std::process::id())),
                ..Volume::new(self.host.clone(), self.volume.clone())
            }),
        };
        let write = match (self.append, self.overwrite) {
            (true, _) => Operation::Append,
            (_, true) => Operation::Overwrite,
            _ => Operation::Create,
        };
        let phase = match self.load {
            Load::SequentialWrite => Phase::of(write),
            Load::SequentialRead | Load::RandomRead => Phase::of(Operation::Read),
            Load::RandomWrite => Phase::of(Operation::Overwrite),
            Load::Unlink => Phase::of(Operation::Unlink),
            Load::Mix => {
                // In hundredths of a percent.
                let reads = (self.read_percent * 100.0).round() as u32;
                let operations = [(write, 10_000 - reads), (Operation::Read, reads)];
                let operations = operations.into_iter().filter(|(_, weight)| *weight > 0).collect();
                Phase { name: self.load.name().into(), operations, in_order: true }
            }
        };
        // Whole records only, as in the original program.
        let bytes = self.record_kb.checked_mul(1024).and_then(|record| {
            record.checked_mul(match self.load.is_random() {
                true => self.file_kb.checked_div(self.record_kb).unwrap_or(0),
                false => self.requests,
            })
        });
        let bytes = bytes.ok_or_else(|| bad("GFAPI_FSZ", "is too large", "give less than 16E"))?;
        let options = VARIABLES.iter().filter_map(|(name, ..)| Some((name.to_string(), std::env::var(name).ok()?)));
        let layout = Layout {
            prefix: self.prefix.clone(),
            files_per_dir: self.files_per_dir,
            ..Layout::flat(target.directory(&self.base)?)
        };
        Ok(Plan {
            record_bytes: (self.record_kb * 1024).max(1024),
            records: self.load.is_random().then_some(self.requests),
            random: self.load.is_random(),
            threads: self.threads,
            direct: self.direct,
            fsync: self.fsync,
            missing_is_removed: true,
            make_dirs_on_demand: true,
            latency: self.debug,
            pause_ns: self.pause_us.saturating_mul(1000),
            options: options.collect(),
            ..Plan::of(target, layout, vec![phase], self.files, bytes)
        })
    }
}

fn bad(name: &str, what: &str, hint: &str) -> Error {
    Error::usage(name, what, hint)
}

fn number<T: FromStr + Display + Copy>(
    get: impl Fn(&str) -> Option<String>,
    name: &str,
    default: T,
) -> Result<T, Error> {
    match get(name) {
        None => Ok(default),
        Some(text) if text.is_empty() => Ok(default),
        Some(text) => text
            .trim()
            .parse()
            .map_err(|_| bad(name, &format!("is '{text}'"), &format!("give a number; {default} is used without it"))),
    }
}

/// The number of KB that a text like `64`, `64k`, `1M`, `2g` or `1T` means; without a unit the text is in KB.
fn size_kb(text: &str) -> Result<u64, Error> {
    let unit = text.chars().last().filter(char::is_ascii_alphabetic);
    let shift = match unit.map(|unit| unit.to_ascii_uppercase()) {
        None | Some('K') => 0,
        Some('M') => 10,
        Some('G') => 20,
        Some('T') => 30,
        Some(_) => return Err(bad("GFAPI_FSZ", &format!("is '{text}'"), "units are K, M, G and T; KB without")),
    };
    let digits = &text[..text.len() - usize::from(unit.is_some())];
    let number: u64 = digits
        .parse()
        .map_err(|_| bad("GFAPI_FSZ", &format!("is '{text}'"), "give KB as 64, or with a unit as 64K, 1M, 2G"))?;
    number
        .checked_mul(1 << shift)
        .filter(|kb| *kb < 1 << 53)
        .ok_or_else(|| bad("GFAPI_FSZ", &format!("is '{text}'"), "files are smaller than that"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smallfiles::Sizes;

    fn read(set: &[(&str, &str)]) -> Result<Variables, String> {
        Variables::read(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let of = read(&[("GFAPI_FUSE", "1")]).unwrap();
        assert_eq!((of.record_kb, of.file_kb, of.requests, of.files, of.threads), (64, 1024, 16, 100, 1));
        assert_eq!((of.base.as_str(), of.load, of.prefix.as_str()), ("/tmp", Load::SequentialWrite, "f"));
        assert_eq!((of.port, of.gun_timeout_s, of.files_per_dir), (24007, 60, 1000));
        assert!(!(of.append || of.overwrite || of.direct || of.fsync || of.debug) && of.gun.is_none());
        let plan = of.plan().unwrap();
        assert_eq!(plan.phases[0].only(), Some(Operation::Create));
        assert_eq!(plan.sizes, Sizes::Fixed(1 << 20));
        plan.check().unwrap();
    }

    #[test]
    fn loads_and_sizes() {
        let of =
            |load: &str, more: &[(&str, &str)]| read(&[&[("GFAPI_FUSE", "1"), ("GFAPI_LOAD", load)], more].concat());
        let random = of("rnd-rd", &[("GFAPI_IOREQ", "3"), ("GFAPI_FSZ", "1g"), ("GFAPI_RECSZ", "4")]).unwrap();
        assert_eq!((random.requests, random.file_kb), (3, 1 << 20));
        let plan = random.plan().unwrap();
        assert!(plan.random && plan.records == Some(3) && plan.sizes == Sizes::Fixed(1 << 30));
        let cut = of("seq-wr", &[("GFAPI_FSZ", "4"), ("GFAPI_OVERWRITE", "1")]).unwrap();
        assert_eq!((cut.record_kb, cut.asked_record_kb, cut.requests), (4, 64, 1));
        assert_eq!(cut.plan().unwrap().phases[0].only(), Some(Operation::Overwrite));
        assert_eq!(of("seq-wr", &[("GFAPI_FSZ", "100")]).unwrap().plan().unwrap().sizes, Sizes::Fixed(64 << 10));
        let mix = of("seq-rdwrmix", &[("GFAPI_RDPCT", "25")]).unwrap().plan().unwrap();
        assert_eq!(mix.phases[0].operations, [(Operation::Append, 7500), (Operation::Read, 2500)]);
        assert!(mix.phases[0].in_order);
        assert_eq!(of("seq-wr", &[("GFAPI_FSZ", "0")]).unwrap().requests, 0);
    }

    #[test]
    fn what_means_nothing_is_said() {
        for (set, part) in [
            (vec![], "GFAPI_VOLNAME is not set"),
            (vec![("GFAPI_VOLNAME", "v")], "GFAPI_HOSTNAME is not set"),
            (vec![("GFAPI_FUSE", "1"), ("GFAPI_LOAD", "seq")], "GFAPI_LOAD is 'seq'"),
            (vec![("GFAPI_FUSE", "1"), ("GFAPI_FILES", "ten")], "GFAPI_FILES is 'ten'"),
            (vec![("GFAPI_FUSE", "1"), ("GFAPI_FSZ", "1X")], "units are K"),
            (vec![("GFAPI_FUSE", "1"), ("GFAPI_RECSZ", "0")], "GFAPI_RECSZ is 0"),
            (vec![("GFAPI_FUSE", "1"), ("GFAPI_APPEND", "1"), ("GFAPI_OVERWRITE", "1")], "are both 1"),
            (vec![("GFAPI_FUSE", "1"), ("GFAPI_LOAD", "rnd-rd"), ("GFAPI_IOREQ", "17")], "at most that"),
            (vec![("GFAPI_FUSE", "1"), ("GFAPI_RDPCT", "101")], "0 to 100"),
            (vec![("GFAPI_VOLNAME", "v"), ("GFAPI_HOSTNAME", "h"), ("GFAPI_TRANSPORT", "udp")], "tcp or rdma"),
        ] {
            let error = read(&set).unwrap_err();
            assert!(error.contains(part), "{set:?}: {error}");
        }
        let volume = read(&[("GFAPI_VOLNAME", "v"), ("GFAPI_HOSTNAME", "h"), ("GFAPI_PORT", "7")]).unwrap();
        assert_eq!(volume.plan().unwrap().target.to_string(), "gluster://h:7/v");
    }
}
