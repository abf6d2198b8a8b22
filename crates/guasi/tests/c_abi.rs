//! The C ABI from C's side: every function, under stress, in hostile surroundings; plain, as C++, and under the
//! sanitizers.
#![cfg(not(loom))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The build of a test program.
#[derive(Clone, Copy)]
struct Build {
    compiler: &'static str,
    flags: &'static [&'static str],
    name: &'static str,
}

const C: Build = Build { compiler: "gcc", flags: &["-std=gnu11"], name: "c" };
const CXX: Build = Build { compiler: "g++", flags: &["-x", "c++", "-std=gnu++17"], name: "cxx" };
const ASAN: Build =
    Build { compiler: "gcc", flags: &["-fsanitize=address,undefined", "-fno-omit-frame-pointer"], name: "asan" };
const TSAN: Build = Build { compiler: "gcc", flags: &["-fsanitize=thread"], name: "tsan" };

/// The flags of guasi_create_flags, and the backend that each gives. The flags say which thread drives the ring, and if
/// there is one.
const KINDS: [(&str, &str); 4] = [("0", "ring"), ("1", "ring"), ("2", "pool"), ("3", "pool")];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// True if the test cannot run and is to be skipped; the reason goes to standard error. With CI set a missing program
/// is a failure.
fn missing(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{tool} is needed for this test");
        eprintln!("skipped: no {tool}");
    }
    !found
}

/// The directory of libguasi.so.0, built once.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libguasi");
        run(Command::new(here().join("link-shared.sh")).arg(&directory).arg("dev").env_remove("RUSTFLAGS"));
        directory
    })
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

fn compile(program: &str, build: Build) -> PathBuf {
    let library = library();
    let binary = library.join(format!("{program}-{}", build.name));
    let mut command = Command::new(build.compiler);
    command.args(build.flags).args(["-g", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command.arg("-I").arg(here().join("include")).arg(here().join("tests/c").join(format!("{program}.c")));
    command.arg("-o").arg(&binary).arg("-L").arg(library).args(["-lguasi", "-lpthread"]);
    command.arg(format!("-Wl,-rpath,{}", library.display()));
    run(&mut command);
    binary
}

/// The command that runs a test program. ThreadSanitizer of older compilers does not start where addresses are
/// randomised more than it knows, so such a program runs under `setarch -R`.
fn runnable(build: Build, binary: &Path) -> Command {
    if build.name == "tsan" && Command::new("setarch").arg("--version").output().is_ok() {
        let mut command = Command::new("setarch");
        command.args(["-R"]).arg(binary);
        return command;
    }
    Command::new(binary)
}

fn every_kind(program: &str, build: Build, arguments: &[&str]) {
    if missing(build.compiler) {
        return;
    }
    let binary = compile(program, build);
    let ring = ring_works();
    for (flags, kind) in KINDS {
        if kind == "ring" && !ring {
            eprintln!("skipped flags {flags}: no io_uring here");
            continue;
        }
        let suppressed = format!("halt_on_error=1 suppressions={}", here().join("tests/c/tsan.supp").display());
        let mut command = runnable(build, &binary);
        command.arg(flags).args(arguments).env("TSAN_OPTIONS", &suppressed);
        command.env("ASAN_OPTIONS", "detect_leaks=1").env("UBSAN_OPTIONS", "halt_on_error=1");
        let output = run(&mut command);
        if program == "every_function" {
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), kind, "flags {flags}");
        }
    }
}

fn ring_works() -> bool {
    sys::ring::Setup::new(4).build().is_ok()
}

#[test]
fn every_function_in_c() {
    every_kind("every_function", C, &[]);
}

/// Every call on every kind of descriptor, on both backends, gives the result of the same system call.
#[test]
fn every_kind_of_descriptor() {
    every_kind("kinds", C, &[]);
}

/// Valgrind does not know io_uring: the pool does everything, and says so once.
#[test]
fn valgrind_gets_the_pool() {
    if missing(C.compiler) || missing("valgrind") {
        return;
    }
    let binary = compile("waits", C);
    let output = run(Command::new("valgrind").args(["-q", "--error-exitcode=9"]).arg(&binary).arg("0"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("guasi: valgrind runs this program").count(), 1, "{said}");
}

/// A cancelled guasi_fetch leaves nothing behind.
#[test]
fn a_cancelled_fetch_in_c() {
    every_kind("cancel", C, &[]);
}

#[test]
fn a_cancelled_fetch_in_cxx() {
    every_kind("cancel", CXX, &[]);
}

#[test]
fn a_cancelled_fetch_under_address_sanitizer() {
    every_kind("cancel", ASAN, &[]);
}

#[test]
fn every_function_in_cxx() {
    every_kind("every_function", CXX, &[]);
}

#[test]
fn every_function_under_address_sanitizer() {
    every_kind("every_function", ASAN, &[]);
}

#[test]
fn a_million_requests_none_lost_none_doubled_none_leaked() {
    every_kind("stress", C, &["350000"]);
}

#[test]
fn stress_under_address_sanitizer() {
    every_kind("stress", ASAN, &["60000"]);
}

#[test]
fn stress_under_thread_sanitizer() {
    every_kind("stress", TSAN, &["30000"]);
}

#[test]
fn forks_busy_frees_and_shortages() {
    every_kind("surroundings", C, &[]);
}

#[test]
fn the_environment_can_turn_the_ring_off() {
    if missing("gcc") {
        return;
    }
    let binary = compile("every_function", C);
    let output = run(Command::new(binary).arg("0").env("GUASI_BACKEND", "pool"));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "pool");
}

#[test]
fn the_environment_says_how_threads_wait() {
    if missing("gcc") {
        return;
    }
    let binary = compile("every_function", C);
    run(Command::new(&binary).arg("0").env("GUASI_POLL", "never"));
    run(Command::new(&binary).arg("0").env("GUASI_POLL", "adaptive"));
    let output = Command::new(binary).arg("0").env("GUASI_POLL", "always").output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("GUASI_POLL=always: expected adaptive or never"), "{said}");
}

/// The functions that a header declares.
fn declared(header: &str) -> Vec<String> {
    let text = std::fs::read_to_string(here().join("include").join(header)).unwrap();
    let declarations = text.lines().filter_map(|line| line.strip_prefix("GAPI "));
    let names = declarations.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn exactly_the_declared_functions_are_exported_under_their_versions() {
    if missing("nm") {
        return;
    }
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libguasi.so.0")));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<_> = text.lines().filter_map(|line| line.split(" T ").nth(1)).map(str::to_owned).collect();
    let others: Vec<_> = text.lines().filter(|line| !line.contains(" T ") && !line.contains(" A GUASI_")).collect();
    assert!(others.is_empty(), "{others:?}");

    let version = |name: &String| {
        let map = std::fs::read_to_string(here().join("guasi.map")).unwrap();
        let old = map.split("GUASI_1.0").next().unwrap().contains(&format!("{name};"));
        format!("{name}@@{}", if old { "GUASI_0.25" } else { "GUASI_1.0" })
    };
    let mut expected: Vec<_> =
        ["guasi.h", "guasi_syscalls.h"].iter().flat_map(|header| declared(header)).map(|name| version(&name)).collect();
    exported.sort();
    expected.sort();
    assert_eq!(exported, expected);

    let output = run(Command::new("readelf").arg("-d").arg(library().join("libguasi.so.0")));
    assert!(String::from_utf8_lossy(&output.stdout).contains("soname: [libguasi.so.0]"));
}

/// The prototypes in Rust and in C are written twice; their parameters must agree in number and, on every
/// 64-bit ABI, in size.
#[test]
fn the_headers_and_the_rust_side_agree() {
    let source = std::fs::read_to_string(here().join("src/capi/calls.rs")).unwrap();
    let header = std::fs::read_to_string(here().join("include/guasi_syscalls.h")).unwrap();
    let header = header.replace("\n\t", " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut compared = 0;
    for name in declared("guasi_syscalls.h") {
        let ours = between(&source, &format!("wrapper!({name}("), ")");
        let ours: Vec<_> = ours.split(',').map(|parameter| size(parameter.split_once(':').unwrap().1)).collect();
        let theirs = between(&header, &format!("{name}("), ")");
        let theirs: Vec<_> = theirs.split(',').skip(4).map(size).collect();
        assert_eq!(ours, theirs, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 28);
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("{from} is missing")) + from.len();
    text[start..].split(to).next().unwrap()
}

/// The size of a parameter in bytes, in either language.
fn size(parameter: &str) -> usize {
    let words: Vec<_> = parameter.split_whitespace().collect();
    let is = |name: &str| words.contains(&name);
    if parameter.contains('*')
        || is("size_t")
        || is("usize")
        || is("goff_t")
        || is("long")
        || is("c_long")
        || is("c_longlong")
    {
        return 8;
    }
    let four = ["int", "c_int", "c_uint", "unsigned", "socklen_t", "mode_t", "libc::mode_t"];
    assert!(four.iter().any(|name| is(name)), "unknown type in {parameter:?}");
    4
}

/// The files that `make install-guasi` installs are enough for a stranger's program: header, library, pkg-config,
/// manual page.
#[test]
fn a_program_builds_against_the_installed_library() {
    if missing("gcc") {
        return;
    }
    let prefix = library().join("installed");
    run(Command::new(here().join("install.sh")).arg(library()).arg(&prefix));
    let pkg_config = std::fs::read_to_string(prefix.join("lib/pkgconfig/guasi.pc")).unwrap();
    assert!(pkg_config.contains(&format!("prefix={}\n", prefix.display())) && !pkg_config.contains('@'));
    let binary = prefix.join("every_function");
    let mut command = Command::new("gcc");
    command.arg("-I").arg(prefix.join("include")).arg(here().join("tests/c/every_function.c")).arg("-o").arg(&binary);
    command.arg("-L").arg(prefix.join("lib")).arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    run(command.args(["-lguasi", "-lpthread"]));
    run(&mut Command::new(&binary));
    let libraries = run(Command::new("ldd").arg(&binary));
    let expected = prefix.join("lib/libguasi.so.0");
    assert!(String::from_utf8_lossy(&libraries.stdout).contains(&*expected.to_string_lossy()));
}

/// The programs of examples/guasi build against the library, and do what they say.
#[test]
fn the_examples_build_and_run() {
    if missing("gcc") {
        return;
    }
    let library = library();
    let built = |name: &str| {
        let binary = library.join(format!("example-{name}"));
        let mut command = Command::new("gcc");
        command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(here().join("include"));
        command
            .arg(here().join(format!("../../examples/guasi/{name}.c")))
            .arg("-o")
            .arg(&binary)
            .arg("-L")
            .arg(library);
        run(command.args(["-lguasi", "-lpthread"]).arg(format!("-Wl,-rpath,{}", library.display())));
        binary
    };
    let said = |output: Output| String::from_utf8(output.stdout).unwrap();
    let checksum = built("checksum");
    let file = library.join("example-data");
    // More pieces than requests in flight, and a last piece that is not whole.
    let bytes: Vec<u8> = (0..100 * 65_536 + 12_345u32).map(|index| (index % 251) as u8).collect();
    for part in [&bytes[..], &bytes[..65_536], &bytes[..1], &[]] {
        std::fs::write(&file, part).unwrap();
        let sum: u64 = part.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(said(run(Command::new(&checksum).arg(&file))), format!("{sum}\n"));
    }
    assert_eq!(Command::new(&checksum).arg("/nowhere").output().unwrap().status.code(), Some(1));
    let resolve = built("resolve");
    let text = said(run(Command::new(&resolve).args(["127.0.0.1", "::1", "192.0.2.1"])));
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["127.0.0.1: found", "192.0.2.1: found", "::1: found"]);
    assert_eq!(Command::new(&resolve).output().unwrap().status.code(), Some(2), "no host is given");
}

/// Every function of the headers has its place in the manual page, and the page has no formatting errors.
#[test]
fn the_manual_page_is_complete() {
    let page = std::fs::read_to_string(here().join("man/guasi.3")).unwrap();
    for name in declared("guasi.h") {
        assert!(page.contains(&name), "{name}");
    }
    for name in declared("guasi_syscalls.h") {
        let call = name.strip_prefix("guasi__").unwrap();
        assert!(page.contains(&format!("    {call}(")), "{name}");
    }
    if missing("man") {
        return;
    }
    let checked =
        run(Command::new("man").args(["--warnings", "-l"]).arg(here().join("man/guasi.3")).env("MANWIDTH", "120"));
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "");
}
