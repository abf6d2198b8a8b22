//! Compiles the calls of MPI that are needed, with the compiler that knows where MPI is.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/mpi/calls.c");
    println!("cargo::rerun-if-env-changed=MPICC");
    if std::env::var_os("CARGO_FEATURE_MPI").is_none() {
        return;
    }
    let mpicc = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
            panic!("feature mpi: cannot run {program}: {error} (Debian: apt-get install libopenmpi-dev; MPICC names another)")
        });
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (object, library) = (out.join("calls.o"), out.join("libplimsoll_mpi.a"));
    let (object, library) = (object.to_str().expect("a path in UTF-8"), library.to_str().expect("a path in UTF-8"));
    run(&mpicc, &["-O2", "-Wall", "-Werror", "-fPIC", "-c", "src/mpi/calls.c", "-o", object]);
    run("ar", &["crs", library, object]);
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=plimsoll_mpi");
    // Open MPI's wrapper says -showme, MPICH's -link_info.
    let output = Command::new(&mpicc).arg("-showme:link").output().ok().filter(|output| output.status.success());
    let flags = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    for flag in flags.unwrap_or_else(|| run(&mpicc, &["-link_info"])).split_whitespace() {
        if let Some(directory) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={directory}");
        } else if let Some(name) = flag.strip_prefix("-l") {
            println!("cargo::rustc-link-lib=dylib={name}");
        }
    }
    println!("cargo::rustc-link-lib=dylib=dl");
}
