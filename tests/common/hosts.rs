//! Tests on several hosts: the program with MPI, the rig that makes hosts, and mpirun on them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::{has_program, is_root, stderr, stdout};

/// The program with MPI, built once for all tests (target/mpi beside the directory of the tests).
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(built) = std::env::var_os("PLIMSOLL_MPI") {
            return built.into();
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("mpi");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--locked", "--quiet", "--package", "plimsoll", "--features", "mpi", "--target-dir"]);
        let output = build.arg(&target).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo starts");
        assert!(output.status.success(), "with MPI: {}", stderr(&output));
        target.join("debug/plimsoll")
    })
}

/// True if the programs that these tests drive are there; if not, the tests are skipped.
pub fn possible() -> bool {
    ["mpirun", "mpicc", "ip", "unshare"].into_iter().all(has_program) && is_root("make hosts")
}

/// A command on the first of several hosts: see rigs/hosts.sh.
pub fn rig() -> Command {
    let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/hosts.sh"));
    rig.env("PLIMSOLL_MPI", program());
    rig
}

/// Runs the test `inside_NAME` of this test program on the first host of a rig.
pub fn on_hosts(mut rig: Command, name: &str) {
    let output = rig.arg(std::env::current_exe().unwrap());
    let output = output.args([&format!("inside_{name}"), "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let said = stdout(&output);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{}", stderr(&output));
}

/// mpirun with this number of ranks on the hosts of the rig, in `directory`.
pub fn mpirun(directory: &Path, ranks: u32) -> Command {
    let mut command = Command::new("mpirun");
    command.current_dir(directory).args(["-np", &ranks.to_string()]);
    if let Ok(hosts) = std::env::var("HOSTS") {
        // As many slots on each as it takes, in turns.
        let each = format!(":{}", ranks.div_ceil(hosts.split(',').count() as u32));
        command.args(["--map-by", "node", "--host", &(hosts.replace(',', &format!("{each},")) + &each)]);
    }
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    // One second, its default, is short for the last words of ranks that share two busy processors with their
    // neighbours.
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "3");
    command
}

/// The number of times that a test starts mpirun, at most, while mpirun says that it could not start its daemons.
pub const TRIES: u32 = 5;

/// True if mpirun said that it could not start its daemons: the program under test has not begun then. A busy machine
/// brings this up now and then, on a host whose cable was just plugged in again.
pub fn no_daemons(said: &str) -> bool {
    said.contains("ORTE was unable to reliably start one or more daemons")
}

/// The output of the program on the hosts of the rig.
pub fn run(directory: &Path, ranks: u32, arguments: &[&str]) -> Output {
    let mut outputs = (0..TRIES).map(|_| mpirun(directory, ranks).arg(program()).args(arguments).output().unwrap());
    let last = |output: &Output| !no_daemons(&stderr(output));
    outputs.find(last).expect("mpirun starts its daemons")
}

/// The output of the program on the hosts of the rig, where it has to succeed.
pub fn succeed(directory: &Path, ranks: u32, arguments: &[&str]) -> Output {
    let output = run(directory, ranks, arguments);
    assert!(output.status.success(), "{arguments:?}: {}\n{}\n{}", output.status, stdout(&output), stderr(&output));
    output
}

/// Starts the program on the hosts of the rig, in the background.
pub fn start(directory: &Path, ranks: u32, arguments: &[&str]) -> Child {
    let mut command = mpirun(directory, ranks);
    command.arg(program()).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun starts")
}

/// Standard output as JSON.
pub fn json(output: &Output) -> Value {
    let text = stdout(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}:\n{text}\n{}", stderr(output)))
}

/// Does something to a host of the rig.
pub fn rig_tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("HOSTS_RIG").expect("runs inside rigs/hosts.sh"));
    command.args(arguments);
    command
}

/// The processes on a host that run the program with MPI as ranks, not as their clones: ascending.
pub fn ranks_on(host: &str) -> Vec<String> {
    let pids = rig_tool(&["pids", host]).output().expect("the rig's tool starts");
    let is_rank = |pid: &&str| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or("0").trim().to_owned();
        exe == program() && std::fs::read_link(format!("/proc/{parent}/exe")).unwrap_or_default() != program()
    };
    stdout(&pids).split_whitespace().filter(is_rank).map(str::to_owned).collect()
}
