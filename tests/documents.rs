//! Manual pages, completions and the list of options are made from the tables of the program, and name everything.

mod common;
use common::*;
use std::path::Path;
use std::process::Command;

const SUBCOMMANDS: [&str; 12] =
    ["run", "sweep", "compare", "files", "trap", "lanes", "top", "serve", "rpc", "report", "man", "completions"];

#[test]
fn every_subcommand_has_help_and_a_page() {
    let place = directory();
    let help = stdout(&succeed(place.path(), &["--help"]));
    succeed(place.path(), &["man", "--dir", "pages"]);
    for name in SUBCOMMANDS {
        assert!(help.contains(name));
        assert!(stdout(&succeed(place.path(), &[name, "--help"])).contains("plimsoll"), "{name}");
        let page = stdout(&succeed(place.path(), &["man", name]));
        assert!(page.contains(".TH") && page.contains(&format!("plimsoll\\-{name}")), "{name}");
        assert!(place.path().join(format!("pages/plimsoll-{name}.1")).exists(), "{name}");
    }
}

#[test]
fn the_page_and_the_completions_of_run_name_every_job_option() {
    let place = directory();
    let page = stdout(&succeed(place.path(), &["man", "run"]));
    let shells = ["bash", "zsh", "fish"].map(|shell| stdout(&succeed(place.path(), &["completions", shell])));
    let options = stdout(&succeed(place.path(), &["run", "--cmdhelp"]));
    let mut count = 0;
    for name in
        ["rw", "iodepth", "bs", "verify", "read_iolog", "rate_iops", "numjobs", "output-format", "save", "check"]
    {
        count += usize::from(options.contains(name));
        assert!(page.contains(&format!("\\-\\-{}", name.replace('-', "\\-"))), "the page lacks --{name}");
        for script in &shells {
            assert!(script.contains(name), "completions lack {name}");
        }
    }
    assert!(count >= 7, "--cmdhelp lists the job options");
}

#[test]
fn the_completions_of_bash_are_a_script() {
    if !has_program("bash") {
        return;
    }
    let place = directory();
    let script = succeed(place.path(), &["completions", "bash"]).stdout;
    let path = file(place.path(), "plimsoll.bash", script);
    let asked = "COMP_WORDS=(plimsoll run --iodep); COMP_CWORD=2; _plimsoll plimsoll --iodep run; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").arg("-c").arg(format!(". {}; {asked}", path.display())).output().unwrap();
    assert!(stdout(&output).lines().any(|line| line == "--iodepth"), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn the_list_of_options_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = stdout(&succeed(root, &["man", "--options"]));
    let committed = std::fs::read_to_string(root.join("docs/options.md")).unwrap();
    assert!(made == committed, "docs/options.md is out of date: `make docs` writes it anew");
}
