//! Packages and installation: `packaging/` with the program under test, lintian, and a clean Debian in which the
//! packages are installed and used.

mod common;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the program under test, with libiotrap.so in it.
fn built() -> &'static Path {
    trapped::library();
    Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap()
}

fn script(name: &str) -> Command {
    let mut command = Command::new(root().join(name));
    command.current_dir(root());
    command
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, stdout(&output), stderr(&output));
    stdout(&output)
}

/// Manual pages and completions of the program under test.
fn pages() -> &'static Path {
    static PAGES: OnceLock<PathBuf> = OnceLock::new();
    PAGES.get_or_init(|| {
        let pages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
        done(script("packaging/pages").args([built(), &pages]));
        pages
    })
}

/// Every file and link below a directory, relative to it.
fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_owned()];
    while let Some(place) = open.pop() {
        for entry in std::fs::read_dir(place).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => drop(found.insert(entry.path().strip_prefix(directory).unwrap().to_owned())),
            }
        }
    }
    found
}

/// `make install` as root sees it: no cargo in PATH. `make uninstall` leaves nothing behind.
#[test]
fn install_never_compiles_and_uninstall_removes_everything() {
    let place = directory();
    let before = done(Command::new("git").args(["status", "--porcelain"]).current_dir(root()));
    let install = || {
        let mut command = script("packaging/install");
        command.args([built(), pages()]).arg(place.path()).arg("/usr/local");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env_remove("FIO_LINK");
        command
    };
    done(&mut install());
    let installed = place.path().join("usr/local");
    for name in ["ior", "mdtest", "io500"] {
        // The wrapper finds its parts through the link.
        let help = done(Command::new(installed.join(format!("bin/plimsoll-{name}"))).arg("-h"));
        assert!(help.to_lowercase().contains("\noptions:\n"), "{help}");
        assert!(!installed.join("bin").join(name).exists(), "the real {name} keeps its name");
    }
    for name in ["bin/plimsoll", "bin/gfapi_perf_tool", "lib/libiotrap.so", "share/man/man1/plimsoll-run.1"] {
        assert!(installed.join(name).exists(), "{name}");
    }
    assert!(!installed.join("bin/fio").exists(), "the link named fio is an option");
    for named in ["docs/trap.md", "docs/pacing.md", "configs/null_16.json", "configs/sim/depth.toml", "README.md"] {
        assert!(installed.join("share/doc/plimsoll").join(named).exists(), "help names {named}");
    }
    let version = done(Command::new(installed.join("bin/plimsoll")).arg("version"));
    let library = std::fs::canonicalize(installed.join("lib/libiotrap.so")).unwrap();
    assert!(
        version.contains(&*library.to_string_lossy()),
        "the installed program finds the installed library: {version}"
    );
    assert_eq!(before, done(Command::new("git").args(["status", "--porcelain"]).current_dir(root())));

    done(install().env("FIO_LINK", "1"));
    assert!(done(Command::new(installed.join("bin/fio")).arg("--version")).starts_with("fio-3."));
    std::fs::write(installed.join("bin/other"), "").unwrap();
    done(script("packaging/uninstall").arg(place.path()).arg("/usr/local"));
    assert_eq!(files(place.path()), BTreeSet::from(["usr/local/bin/other".into()]));
}

#[test]
fn install_says_what_to_build_first() {
    let (place, nothing) = (directory(), directory());
    let output = script("packaging/install").args([nothing.path(), nothing.path(), place.path()]).arg("/usr").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("make build"), "{}", stderr(&output));
    assert!(files(place.path()).is_empty());
}

/// The container file takes the package, and starts a target with options that there are.
#[test]
fn the_container_file_starts_a_target() {
    let file = std::fs::read_to_string(root().join("packaging/container/Containerfile")).unwrap();
    let line = |word: &str| file.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{word}"));
    assert!(line("COPY ").starts_with("plimsoll_*.deb "));
    let words: Vec<String> = serde_json::from_str(line("ENTRYPOINT ")).unwrap();
    let place = directory();
    let in_place = |word: &String| match word.strip_prefix('/') {
        Some(path) => place.path().join(path.replace('/', "-")).to_str().unwrap().to_string(),
        None => word.clone(),
    };
    assert_eq!(words[0], "plimsoll");
    let words: Vec<String> = words[1..].iter().map(in_place).collect();
    let mut target = plimsoll(place.path());
    target.args(&words).args(["--null", "64m", "--listen", "127.0.0.1:0"]);
    let mut target = target.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(target.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut said, &mut first).unwrap();
    assert!(first.starts_with("plimsoll serve: ready"), "{first}");
    let check = line("HEALTHCHECK CMD ");
    let check: Vec<String> = serde_json::from_str::<Vec<String>>(check).unwrap()[1..].iter().map(in_place).collect();
    let words: Vec<&str> = check.iter().map(String::as_str).collect();
    succeed(place.path(), &words);
    let socket = words[2];
    succeed(place.path(), &["rpc", "-s", socket, "spdk_kill_instance", "sig_name=SIGTERM"]);
    assert!(target.wait().unwrap().success());
}

/// The packages of the program under test: `make deb` makes them of the release build.
#[test]
fn packages_install_and_run_on_a_clean_debian() {
    if !is_root("make and enter a root directory")
        || ["dpkg-deb", "mmdebstrap", "lintian"].iter().any(|name| !has_program(name))
    {
        return;
    }
    let (place, guasi) = (directory(), directory());
    done(script("crates/guasi/link-shared.sh").arg(guasi.path()).arg("dev"));
    let packages = place.path().join("packages");
    let mut command = script("packaging/deb");
    // The program without MPI stands for the one with it: the package is the same but for the libraries.
    done(command.args([built(), pages(), guasi.path(), &packages, built()]));
    let names: Vec<String> = names(&packages).iter().map(|name| name.split('_').next().unwrap().to_string()).collect();
    assert_eq!(names, ["libguasi-dev", "libguasi0", "libiotrap", "plimsoll-mpi", "plimsoll"]);
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    let paths = files(&packages).into_iter().map(|name| packages.join(name));
    assert_eq!(done(lintian.args(paths)), "", "lintian is silent");

    let output = script("rigs/clean-debian.sh").arg(&packages).arg(root().join("tests/programs/installed.sh")).output();
    let output = output.unwrap();
    if output.status.code() == Some(77) {
        return skip(stderr(&output).lines().last().unwrap_or("no clean Debian"), true);
    }
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    for step in [
        "sweep: a result",
        "trap: the same bytes",
        "libiotrap.so: found",
        "serve: read",
        "compat: -h of each",
        "mpi: beside the program",
        "production.md: from",
        "purged",
    ] {
        assert!(stdout(&output).contains(step), "{step}: {}", stdout(&output));
    }
}
