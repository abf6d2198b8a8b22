//! Compiles the part of the C ABI that only C can express.

fn main() {
    println!("cargo::rerun-if-changed=src/capi/varargs.c");
    #[cfg(feature = "c-abi")]
    cc::Build::new().file("src/capi/varargs.c").include("include").warnings(true).compile("guasi_varargs");
}
