//! Programs in C under libiotrap.so, on four bind mounts of one directory in a mount namespace of their own.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use live::Snapshot;
use tempfile::TempDir;

/// libiotrap.so of the profile that the tests are built in.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "-p", "iotrap", "--target-dir"]).arg(profile);
        succeed(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        profile.join("debug/libiotrap.so")
    })
}

/// The output of a command, which has to succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// The bytes of an output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles a program of `tests/c` with these additional arguments, and returns its path.
pub fn compile(program: &str, name: &str, more: &[&str]) -> PathBuf {
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{program}.c"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]).arg(source).arg("-o").arg(&binary);
    succeed(compiler.args(more).args(["-laio", "-lpthread"]));
    binary
}

/// True if nothing can be tested here: the test is skipped. Prints the reason; with CI set, the missing piece is a
/// failure.
pub fn skipped() -> bool {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let mounts = Command::new("unshare").args(["--mount", "true"]).output();
        if !mounts.is_ok_and(|output| output.status.success()) {
            return Some("bind mounts need root and unshare(1)".into());
        }
        if !Path::new("/usr/include/libaio.h").exists() {
            return Some("no libaio.h (Debian: libaio-dev)".into());
        }
        None
    });
    if let Some(reason) = reason {
        assert!(std::env::var_os("CI").is_none(), "under CI nothing is skipped: {reason}");
        println!("skipped: {reason}");
    }
    reason.is_some()
}

/// A volume with four lanes, in a separate directory.
pub struct Volume {
    place: TempDir,
    /// Additional lines of the pool file.
    pub pool: String,
}

impl Volume {
    /// Makes an empty volume on the disk that the project is built on.
    pub fn new() -> Volume {
        Volume::below(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// Makes an empty volume in memory, where that is possible: for tests with many programs.
    pub fn in_memory() -> Volume {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Volume::below(memory) } else { Volume::new() }
    }

    fn below(directory: &Path) -> Volume {
        let place = tempfile::tempdir_in(directory).unwrap();
        for name in ["volume", "volume/inner", "lane0", "lane1", "lane2", "lane3", "boards", "scratch"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        Volume { place, pool: String::new() }
    }

    /// The path of a file in the volume's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The text of a pool file with the volume's pool, and a second pool that lies inside the first.
    pub fn pools(&self) -> String {
        let lane = |name: &str| format!("{:?}", self.path(name).to_str().unwrap());
        let lanes: Vec<String> = (0..4).map(|n| lane(&format!("lane{n}"))).collect();
        // A machine that stands still for a moment does not mean that a lane does.
        let patience = if self.pool.contains("suspect-after") { "" } else { "suspect-after = \"5m\"" };
        format!(
            "[[pool]]\nname = \"p\"\nlanes = [{}]\n{patience}\n{}\n[[pool]]\nname = \"inner\"\nlanes = [{}, {}]\n",
            lanes.join(", "),
            self.pool,
            lane("lane0/inner"),
            lane("lane1/inner"),
        )
    }

    /// A command inside the volume: its lanes are mounted, and it is not yet under the interposer.
    pub fn plain(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec"]);
        command.arg(
            "[ -z \"$ROOM\" ] || { mount -t tmpfs -o size=\"$ROOM\" none \"$ROOT/volume\"; mkdir \"$ROOT/volume/inner\"; }
             [ -z \"$IMAGE\" ] || { mount -o \"loop,$OPTIONS\" \"$IMAGE\" \"$ROOT/volume\"; mkdir -p \"$ROOT/volume/inner\"; }
             [ -z \"$QUOTA\" ] || { btrfs quota enable \"$ROOT/volume\"; btrfs qgroup limit \"$QUOTA\" \"$ROOT/volume\"; }
             for lane in lane0 lane1 lane2 lane3; do mount --bind \"$ROOT/volume\" \"$ROOT/$lane\"; done
             for lane in lane1 lane2 lane3; do
               [ -z \"$OTHER\" ] || mount --bind \"$ROOT/scratch/$OTHER\" \"$ROOT/$lane/$OTHER\"
             done
             export LD_PRELOAD=\"$TRAP\"; exec \"$@\"",
        );
        command.arg("sh").arg(program).args(arguments);
        command
            .env("ROOT", self.place.path())
            .env("SCRATCH", self.path("scratch"))
            .env("OTHER", "")
            .env("TRAP", "")
            .env("ROOM", "")
            .envs([("IMAGE", ""), ("OPTIONS", "rw"), ("QUOTA", "")]);
        for lane in 0..4 {
            command.env(format!("LANE{lane}"), self.path(&format!("lane{lane}")));
        }
        command.current_dir(self.place.path());
        command
    }

    /// A command inside the volume, under the interposer.
    pub fn trapped(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.plain(program, arguments);
        command.env("TRAP", library()).env("IOTRAP_POOLS", self.pools());
        command.env("PLIMSOLL_KEEP_BOARDS", self.path("boards"));
        command
    }

    /// The counts of all programs so far.
    pub fn counted(&self) -> Counted {
        Counted(live::kept_in(&self.path("boards")))
    }
}

/// The boards of programs that have ended.
pub struct Counted(Vec<Snapshot>);

impl Counted {
    /// The operations that each of the four lanes carried out.
    pub fn ops(&self) -> [u64; 4] {
        std::array::from_fn(|lane| {
            let name = format!("/lane{lane}");
            let rows =
                self.0.iter().flat_map(|board| &board.rows).filter(|row| row.group == "p" && row.name.ends_with(&name));
            rows.flat_map(|row| live::Op::ALL.map(|op| row.op(op).ops)).sum()
        })
    }

    /// The requests that stayed on the opened lane for a reason, and all requests.
    pub fn stayed_of_all(&self) -> (u64, u64) {
        let reasons = self.0.iter().flat_map(|board| &board.reasons);
        let stayed = reasons.filter(|reason| reason.text != lanes::environment::CAUGHT).map(|reason| reason.count);
        (stayed.sum(), self.ops().iter().sum())
    }

    /// The number of times that the programs met reasons with these words in their text.
    pub fn reason(&self, words: &str) -> u64 {
        self.0
            .iter()
            .flat_map(|board| &board.reasons)
            .filter(|reason| reason.text.contains(words))
            .map(|reason| reason.count)
            .sum()
    }
}
