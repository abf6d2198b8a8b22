//! Compiles the part of the C ABI that only C can express.

fn main() {
    println!("cargo::rerun-if-changed=src/capi/varargs.c");
    println!("cargo::rerun-if-changed=src/capi/fetch.c");
    // A cancelled thread unwinds through guasi_fetch.
    #[cfg(feature = "c-abi")]
    cc::Build::new()
        .files(["src/capi/varargs.c", "src/capi/fetch.c"])
        .flag("-fexceptions")
        .include("include")
        .warnings(true)
        .compile("guasi_varargs");
}
