//! Pools as they are configured: in the original's variable, on the command line, in a file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use measure::units::{self, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::LANES_MAX;
use crate::health::Patience;

/// The variable of the original: `e4a:/mnt/v32/,/mnt/v33/ e4b:/mnt/v42/,/mnt/v43/`.
pub const POOLS_VARIABLE: &str = "IOTRAP_MOUNT_POOLS";
/// The variable that names a pool file.
pub const FILE_VARIABLE: &str = "IOTRAP_POOL_FILE";
/// The variable that holds the text of a pool file: `plimsoll trap` passes pools on in it.
pub const TEXT_VARIABLE: &str = "IOTRAP_POOLS";

/// A fault in a configuration of pools: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct Error {
    /// The place of the fault: the pool, the variable or the file.
    pub what: String,
    /// The fault, and its remedy.
    pub cause: String,
}

fn error<T>(what: impl fmt::Display, cause: impl fmt::Display) -> Result<T, Error> {
    Err(Error { what: what.to_string(), cause: cause.to_string() })
}

/// The rule by which a lane is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The lane that will be the first to have carried out its outstanding bytes and the new ones, by its measured
    /// service rate.
    #[default]
    LeastLoaded,
    /// Each lane in turn, as the original iotrap did.
    RoundRobin,
}

impl Policy {
    /// All policies, in the order of the help.
    pub const ALL: [Policy; 2] = [Policy::LeastLoaded, Policy::RoundRobin];

    /// The name of the policy, as it is written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::LeastLoaded => "least-loaded",
            Policy::RoundRobin => "round-robin",
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let known = Policy::ALL.into_iter().find(|policy| policy.name() == text);
        known.ok_or_else(|| format!("{text:?} is not a policy: give least-loaded or round-robin"))
    }
}

/// One lane of a pool: its path and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// The directory under which the lane has the volume: absolute, without `.`, `..` and a slash at its end.
    pub path: PathBuf,
    /// The share of this lane next to the other lanes, 1..=100; 1 unless given.
    pub weight: u32,
}

/// The lanes of one volume, and the rules for their use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The name of the pool.
    pub name: String,
    /// The lanes, from 1 to 32. A pool of one lane spreads nothing, but counts everything.
    pub lanes: Vec<LaneConfig>,
    /// The rule by which a lane is chosen.
    pub policy: Policy,
    /// Ops that a lane may have outstanding; None for any number.
    pub depth: Option<u32>,
    /// Bytes that a lane may have outstanding; None for any number.
    pub window_bytes: Option<u64>,
    /// Synchronous transfers of more bytes than this are cut into parts of this size, which go over several lanes at a
    /// time. A multiple of 4096; None to leave transfers whole.
    pub split_bytes: Option<u64>,
    /// True to spread buffered reads of files that nobody writes (opt-in).
    pub buffered_reads: bool,
    /// True to accept the same inode number, size and times as a proof that two paths are one file, where a file system
    /// gives no handle that proves it (opt-in).
    pub trust_inode: bool,
    /// True if the administrator says that O_DIRECT through FUSE reaches the server before it is acknowledged (Gluster:
    /// `performance.strict-o-direct`). Otherwise files that the program writes through FUSE are not spread.
    pub strict_o_direct: bool,
    /// The times after which a lane is given up and tried again.
    pub patience: Patience,
}

impl Pool {
    /// A pool with these lanes and the defaults for all other settings.
    pub fn new(name: &str, lanes: impl IntoIterator<Item = PathBuf>) -> Pool {
        Pool {
            name: name.into(),
            lanes: lanes.into_iter().map(|path| LaneConfig { path, weight: 1 }).collect(),
            policy: Policy::default(),
            depth: None,
            window_bytes: None,
            split_bytes: None,
            buffered_reads: false,
            trust_inode: false,
            strict_o_direct: false,
            patience: Patience::default(),
        }
    }
}

/// Every pool of a configuration: at least one, no path in two places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools {
    pools: Vec<Pool>,
}

impl Pools {
    /// These pools, with their paths in normal form.
    ///
    /// # Errors
    /// An empty list; a name that is empty, has blanks or occurs twice; a lane that is not an absolute path, has `..`
    /// in it, or occurs twice; more than 32 lanes.
    pub fn new(mut pools: Vec<Pool>) -> Result<Pools, Error> {
        if pools.is_empty() {
            return error("no pool", "give at least one, as NAME=/mnt/a,/mnt/b");
        }
        let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
        for pool in &mut pools {
            let what = || format!("pool {}", pool.name);
            if pool.name.is_empty() || pool.name.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return error(format!("pool {:?}", pool.name), "a name has at least one character and no blanks");
            }
            if !names.insert(pool.name.clone()) {
                return error(what(), "is there twice");
            }
            if pool.lanes.is_empty() || pool.lanes.len() > LANES_MAX {
                return error(what(), format!("has {} lanes: 1 to {LANES_MAX} are possible", pool.lanes.len()));
            }
            for lane in &mut pool.lanes {
                lane.path = normal(&lane.path)
                    .or_else(|cause| error(format!("pool {}, lane {:?}", pool.name, lane.path.display()), cause))?;
                if !paths.insert(lane.path.clone()) {
                    return error(
                        format!("pool {}, lane {}", pool.name, lane.path.display()),
                        "is there twice: give each lane a separate mount",
                    );
                }
                if !(1..=100).contains(&lane.weight) {
                    let what = format!("pool {}, lane {}", pool.name, lane.path.display());
                    return error(what, format!("weight {} is not between 1 and 100", lane.weight));
                }
            }
            if pool.depth == Some(0) || pool.window_bytes == Some(0) {
                return error(
                    format!("pool {}", pool.name),
                    "a window of 0 lets no request through: leave it out for no window",
                );
            }
            if pool.split_bytes.is_some_and(|bytes| bytes == 0 || bytes % 4096 != 0) {
                return error(format!("pool {}", pool.name), "split is a multiple of 4096 bytes");
            }
        }
        Ok(Pools { pools })
    }

    /// The pools of the original's variable: `e4a:/mnt/v32/,/mnt/v33/ e4b:/mnt/v42/`.
    ///
    /// # Errors
    /// The errors of [`Pools::new`]; a word without a colon.
    pub fn from_mount_pools(text: &str) -> Result<Pools, Error> {
        let one = |word: &str| match word.split_once(':') {
            Some((name, lanes)) => Ok(Pool::new(name, paths(lanes))),
            None => error(POOLS_VARIABLE, format!("{word:?} is not NAME:PATH,PATH (pools are separated by blanks)")),
        };
        Pools::new(text.split_whitespace().map(one).collect::<Result<_, _>>()?)
    }

    /// The one pool of a command line: `e4a=/mnt/v32,/mnt/v33`.
    ///
    /// # Errors
    /// The errors of [`Pools::new`]; a text without an equals sign.
    pub fn one(text: &str) -> Result<Pool, Error> {
        let Some((name, lanes)) = text.split_once('=') else {
            return error("pool", format!("{text:?} is not NAME=PATH,PATH"));
        };
        let mut pools = Pools::new(vec![Pool::new(name, paths(lanes))])?;
        Ok(pools.pools.remove(0))
    }

    /// The pools of a pool file, in TOML.
    ///
    /// # Errors
    /// The errors of [`Pools::new`]; a fault in the syntax or in a value, with its line.
    pub fn from_toml(text: &str) -> Result<Pools, Error> {
        match toml::from_str::<file::File>(text) {
            Ok(file) => Pools::new(file.pool.into_iter().map(file::Pool::read).collect::<Result<_, _>>()?),
            Err(cause) => {
                let line = cause.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
                error(format!("line {line}"), cause.message().replace('\n', " "))
            }
        }
    }

    /// The pools as the text of a pool file, which reads back as the same pools.
    pub fn to_toml(&self) -> String {
        let file = file::File { pool: self.pools.iter().map(file::Pool::write).collect() };
        toml::to_string(&file).unwrap_or_default() // plain tables of text and numbers cannot fail
    }

    /// The pools that the environment gives. The first of these counts: the text of a pool file, a pool file, the
    /// original's variable. None if the environment has none of them.
    ///
    /// # Errors
    /// The fault, with the name of the variable or the file.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
        read: impl Fn(&Path) -> std::io::Result<String>,
    ) -> Result<Option<Pools>, Error> {
        let within = |what: &str| {
            let what = what.to_owned();
            move |inner: Error| Error { what, cause: inner.to_string() }
        };
        if let Some(text) = variable(TEXT_VARIABLE) {
            return Pools::from_toml(&text).map(Some).map_err(within(TEXT_VARIABLE));
        }
        if let Some(file) = variable(FILE_VARIABLE) {
            let text = read(Path::new(&file)).or_else(|cause| error(&file, format!("cannot be read: {cause}")))?;
            return Pools::from_toml(&text).map(Some).map_err(within(&file));
        }
        match variable(POOLS_VARIABLE) {
            Some(text) => Pools::from_mount_pools(&text).map(Some).map_err(within(POOLS_VARIABLE)),
            None => Ok(None),
        }
    }

    /// The pools, in the order given.
    pub fn all(&self) -> &[Pool] {
        &self.pools
    }

    /// The pools, in the order given, taken out of this value.
    pub fn into_vec(self) -> Vec<Pool> {
        self.pools
    }
}

fn paths(list: &str) -> Vec<PathBuf> {
    list.split(',').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// The path without `.`, doubled slashes and a slash at its end.
fn normal(path: &Path) -> Result<PathBuf, String> {
    use std::path::Component;
    if !path.is_absolute() {
        return Err("is not an absolute path".into());
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err("has a NUL in it".into());
    }
    if path.components().any(|component| component == Component::ParentDir) {
        return Err("has `..` in it: give the path that it means".into());
    }
    let normal: PathBuf = path.components().filter(|component| *component != Component::CurDir).collect();
    if normal == Path::new("/") {
        return Err("is the root directory: a lane is a mount of one volume".into());
    }
    Ok(normal)
}

/// The contents of a pool file.
mod file {
    use super::{Deserialize, Error, LaneConfig, PathBuf, Patience, Policy, Serialize, TimeUnit, error, units};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct File {
        #[serde(default)]
        pub pool: Vec<Pool>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    pub struct Pool {
        name: String,
        lanes: Vec<Lane>,
        #[serde(default)]
        policy: Policy,
        #[serde(skip_serializing_if = "Option::is_none")]
        depth: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        window: Option<Amount>,
        #[serde(skip_serializing_if = "Option::is_none")]
        split: Option<Amount>,
        #[serde(default)]
        buffered_reads: bool,
        #[serde(default)]
        trust_inode: bool,
        #[serde(default)]
        strict_o_direct: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        suspect_after: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_after: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_at_most_every: Option<String>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Lane {
        Path(PathBuf),
        Table(Table),
    }

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        path: PathBuf,
        #[serde(default = "one")]
        weight: u32,
    }

    fn one() -> u32 {
        1
    }

    /// A size as a number or as text: `4194304` or `"4m"`.
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Amount {
        Number(u64),
        Text(String),
    }

    impl Amount {
        fn bytes(&self, pool: &str, key: &str) -> Result<u64, Error> {
            match self {
                Amount::Number(bytes) => Ok(*bytes),
                Amount::Text(text) => {
                    units::parse_bytes(text, 1024).or_else(|cause| error(format!("pool {pool}, {key}"), cause))
                }
            }
        }
    }

    impl Pool {
        pub fn read(self) -> Result<super::Pool, Error> {
            let bytes =
                |amount: &Option<Amount>, key| amount.as_ref().map(|amount| amount.bytes(&self.name, key)).transpose();
            let time = |text: &Option<String>, key, default| match text {
                Some(text) => units::parse_time_ns(text, TimeUnit::Seconds)
                    .or_else(|cause| error(format!("pool {}, {key}", self.name), cause)),
                None => Ok(default),
            };
            let usual = Patience::default();
            Ok(super::Pool {
                policy: self.policy,
                depth: self.depth,
                window_bytes: bytes(&self.window, "window")?,
                split_bytes: bytes(&self.split, "split")?,
                buffered_reads: self.buffered_reads,
                trust_inode: self.trust_inode,
                strict_o_direct: self.strict_o_direct,
                patience: Patience {
                    suspect_after_ns: time(&self.suspect_after, "suspect-after", usual.suspect_after_ns)?,
                    probe_after_ns: time(&self.probe_after, "probe-after", usual.probe_after_ns)?,
                    probe_at_most_every_ns: time(
                        &self.probe_at_most_every,
                        "probe-at-most-every",
                        usual.probe_at_most_every_ns,
                    )?,
                },
                lanes: self.lanes.into_iter().map(Lane::read).collect(),
                name: self.name,
            })
        }

        pub fn write(pool: &super::Pool) -> Pool {
            let usual = Patience::default();
            let time = |ns: u64, usual: u64| (ns != usual).then(|| units::exact_time(ns));
            Pool {
                name: pool.name.clone(),
                lanes: pool.lanes.iter().map(Lane::write).collect(),
                policy: pool.policy,
                depth: pool.depth,
                window: pool.window_bytes.map(|bytes| Amount::Text(bytes.to_string())),
                split: pool.split_bytes.map(|bytes| Amount::Text(bytes.to_string())),
                buffered_reads: pool.buffered_reads,
                trust_inode: pool.trust_inode,
                strict_o_direct: pool.strict_o_direct,
                suspect_after: time(pool.patience.suspect_after_ns, usual.suspect_after_ns),
                probe_after: time(pool.patience.probe_after_ns, usual.probe_after_ns),
                probe_at_most_every: time(pool.patience.probe_at_most_every_ns, usual.probe_at_most_every_ns),
            }
        }
    }

    impl Lane {
        fn read(self) -> LaneConfig {
            match self {
                Lane::Path(path) => LaneConfig { path, weight: 1 },
                Lane::Table(Table { path, weight }) => LaneConfig { path, weight },
            }
        }

        fn write(lane: &LaneConfig) -> Lane {
            match lane.weight {
                1 => Lane::Path(lane.path.clone()),
                weight => Lane::Table(Table { path: lane.path.clone(), weight }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lanes(pool: &Pool) -> Vec<&str> {
        pool.lanes.iter().map(|lane| lane.path.to_str().unwrap()).collect()
    }

    #[test]
    fn the_originals_variable() {
        let pools = Pools::from_mount_pools("e4a:/mnt/v32/,/mnt/v33/ e4b:/mnt/v42/,/mnt/v43/").unwrap();
        let [a, b] = pools.all() else { panic!("{pools:?}") };
        assert_eq!((a.name.as_str(), lanes(a)), ("e4a", vec!["/mnt/v32", "/mnt/v33"]));
        assert_eq!((b.name.as_str(), lanes(b)), ("e4b", vec!["/mnt/v42", "/mnt/v43"]));
        assert_eq!(a.policy, Policy::LeastLoaded);
    }

    #[test]
    fn a_pool_of_the_command_line() {
        let pool = Pools::one("e4a=/mnt/v32,/mnt//v33/.").unwrap();
        assert_eq!((pool.name.as_str(), lanes(&pool)), ("e4a", vec!["/mnt/v32", "/mnt/v33"]));
    }

    #[test]
    fn a_pool_file() {
        let pools = Pools::from_toml(
            r#"
            [[pool]]
            name = "e4a"
            lanes = ["/mnt/v32", { path = "/mnt/v33", weight = 2 }]
            policy = "round-robin"
            depth = 16
            window = "4m"
            split = "1m"
            buffered-reads = true
            trust-inode = true
            strict-o-direct = true
            suspect-after = "250ms"
            "#,
        );
        let pools = pools.unwrap();
        let pool = &pools.all()[0];
        assert_eq!(lanes(pool), ["/mnt/v32", "/mnt/v33"]);
        assert_eq!((pool.lanes[0].weight, pool.lanes[1].weight), (1, 2));
        assert_eq!((pool.depth, pool.window_bytes, pool.split_bytes), (Some(16), Some(4 << 20), Some(1 << 20)));
        assert_eq!((pool.policy, pool.buffered_reads, pool.trust_inode), (Policy::RoundRobin, true, true));
        assert!(pool.strict_o_direct);
        assert_eq!(pool.patience.suspect_after_ns, 250_000_000);
        assert_eq!(pool.patience.probe_after_ns, Patience::default().probe_after_ns);
    }

    #[test]
    fn what_is_wrong_is_one_line_that_says_where() {
        let wrong = [
            (Pools::from_mount_pools(""), "no pool: give at least one"),
            (Pools::from_mount_pools("/mnt/v32,/mnt/v33"), "is not NAME:PATH,PATH"),
            (Pools::from_mount_pools("a:"), "pool a: has 0 lanes"),
            (Pools::from_mount_pools(":/mnt/a"), "at least one character"),
            (Pools::from_mount_pools("a:mnt/v"), "not an absolute path"),
            (Pools::from_mount_pools("a:/mnt/../v"), "`..`"),
            (Pools::from_mount_pools("a:/"), "is the root directory"),
            (Pools::from_mount_pools("a:/m,/m/"), "is there twice"),
            (Pools::from_mount_pools("a:/m b:/m"), "pool b, lane /m: is there twice"),
            (Pools::from_mount_pools("a:/m a:/n"), "pool a: is there twice"),
            (
                Pools::from_toml("[[pool]]\nname = \"a\"\nlanes = [\"/m\"]\npolcy = \"x\""),
                "line 4: unknown field `polcy`",
            ),
            (
                Pools::from_toml("[[pool]]\nname = \"a\"\nlanes = [\"/m\"]\npolicy = \"x\""),
                "line 4: unknown variant `x`",
            ),
            (Pools::from_toml("[[pool]\n"), "line 1"),
            (Pools::from_toml("[[pool]]\nname = \"a\"\nlanes = [\"/m\"]\nwindow = \"much\""), "pool a, window: "),
            (Pools::from_toml("[[pool]]\nname = \"a\"\nlanes = [\"/m\"]\ndepth = 0"), "a window of 0"),
            (Pools::from_toml("[[pool]]\nname = \"a\"\nlanes = [\"/m\"]\nsplit = 1000"), "multiple of 4096"),
            (Pools::from_toml("[[pool]]\nname = \"a\"\nlanes = [{ path = \"/m\", weight = 0 }]"), "weight 0"),
        ];
        for (found, said) in wrong {
            let text = found.unwrap_err().to_string();
            assert!(text.contains(said) && !text.contains('\n'), "{text:?} does not say {said:?}");
        }
        assert!(Pools::one("/mnt/a,/mnt/b").unwrap_err().to_string().contains("NAME=PATH,PATH"));
        let many: Vec<String> = (0..33).map(|lane| format!("/m/{lane}")).collect();
        assert!(Pools::one(&format!("a={}", many.join(","))).unwrap_err().to_string().contains("1 to 32"));
    }

    #[test]
    fn the_environment_says_which() {
        let read = |path: &Path| match path.to_str() {
            Some("/etc/pools") => Ok("[[pool]]\nname = \"file\"\nlanes = [\"/f\"]".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        let from = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            Pools::from_environment(
                |name| set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone()),
                read,
            )
        };
        let name = |found: Result<Option<Pools>, Error>| found.unwrap().unwrap().all()[0].name.clone();
        let (pools, file) = (("IOTRAP_MOUNT_POOLS", "env:/m"), ("IOTRAP_POOL_FILE", "/etc/pools"));
        let text = ("IOTRAP_POOLS", "[[pool]]\nname = \"text\"\nlanes = [\"/t\"]");
        assert_eq!(from(&[]), Ok(None));
        assert_eq!(name(from(&[pools])), "env");
        assert_eq!(name(from(&[pools, file])), "file");
        assert_eq!(name(from(&[pools, file, text])), "text");
        assert!(from(&[("IOTRAP_POOL_FILE", "/no")]).unwrap_err().to_string().starts_with("/no: cannot be read"));
        assert!(from(&[("IOTRAP_MOUNT_POOLS", "x")]).unwrap_err().to_string().contains("IOTRAP_MOUNT_POOLS"));
    }

    fn any_pool() -> impl Strategy<Value = Pool> {
        let lanes = prop::collection::btree_set("(/[a-z.]{1,3}){1,3}", 1..5);
        let numbers = (any::<bool>(), prop::option::of(1u32..1000), prop::option::of(1u64..1 << 40), any::<bool>());
        (lanes, 1u32..=100, numbers, prop::option::of(1u64..1000), 1u64..1 << 40).prop_map(
            |(lanes, weight, (robin, depth, window_bytes, opt), split, wait)| {
                let mut pool = Pool::new("p", lanes.into_iter().map(PathBuf::from));
                pool.lanes[0].weight = weight;
                pool.policy = if robin { Policy::RoundRobin } else { Policy::LeastLoaded };
                (pool.depth, pool.window_bytes) = (depth, window_bytes);
                pool.split_bytes = split.map(|pages| pages * 4096);
                (pool.buffered_reads, pool.trust_inode, pool.strict_o_direct) = (opt, !opt, robin);
                pool.patience.suspect_after_ns = wait;
                pool
            },
        )
    }

    proptest! {
        #[test]
        fn a_pool_file_reads_back_as_it_was_written(pool in any_pool()) {
            if let Ok(pools) = Pools::new(vec![pool]) {
                prop_assert_eq!(Pools::from_toml(&pools.to_toml()), Ok(pools));
            }
        }

        #[test]
        fn any_text_is_pools_or_one_line(text in "[a-z:=/,. \\[\\]\"\n]{0,60}") {
            for found in [Pools::from_mount_pools(&text), Pools::from_toml(&text), Pools::one(&text).and_then(|pool| Pools::new(vec![pool]))] {
                match found {
                    Ok(pools) => prop_assert!(!pools.all().is_empty()),
                    Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
                }
            }
        }
    }
}
