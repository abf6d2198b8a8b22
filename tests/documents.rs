//! Documents say what is true: commands run, names exist, tables agree with the program and the workspace.

mod common;
use common::*;
use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// README, CONTRIBUTING and the pages of docs/, by their paths in the repository.
fn pages() -> Vec<String> {
    let docs = names(&root().join("docs")).into_iter().filter(|name| name.ends_with(".md"));
    let mut pages: Vec<String> = docs.map(|name| format!("docs/{name}")).collect();
    pages.extend(["README.md".into(), "CONTRIBUTING.md".into()]);
    pages
}

/// The output of a command line that must succeed.
fn printed(arguments: &[&str]) -> String {
    stdout(&succeed(root(), arguments))
}

/// Every subcommand, as the help lists them.
fn subcommands() -> Vec<String> {
    let help = printed(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("a list of subcommands");
    let rows = list.lines().take_while(|line| !line.is_empty());
    let names = rows.filter_map(|row| row.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    names.map(String::from).collect()
}

/// Every job option, as docs/options.md lists them.
fn job_options() -> Vec<String> {
    let rows = read("docs/options.md");
    let name = |row: &str| Some(row.strip_prefix("| `")?.split('`').next()?.to_string());
    rows.lines().filter_map(name).collect()
}

/// A manual page without the backslashes of roff.
fn page(name: &str) -> String {
    printed(&["man", name]).replace('\\', "")
}

#[test]
fn every_subcommand_has_help_and_a_page() {
    let place = directory();
    succeed(place.path(), &["man", "--dir", "pages"]);
    let names = subcommands();
    assert!(names.len() >= 15, "{names:?}");
    for name in &names {
        assert!(printed(&[name, "--help"]).lines().count() > 3, "{name}");
        assert_eq!(printed(&["help", name]), printed(&[name, "--help"]));
        let page = page(name);
        assert!(page.contains(".TH") && page.contains(&format!("plimsoll-{name}")), "{name}");
        for section in ["SYNOPSIS", "EXAMPLES", "EXIT STATUS", "FILES", "ENVIRONMENT", "SEE ALSO"] {
            assert!(page.contains(&format!(".SH {section}\n")), "the page of {name} lacks {section}");
        }
        assert!(place.path().join(format!("pages/plimsoll-{name}.1")).exists(), "{name}");
    }
    for name in ["plimsoll.1", "gfapi_perf_tool.1", "fsperf.1", "libiotrap.7"] {
        let page = place.path().join("pages").join(name);
        assert!(page.exists(), "{name}");
        if has_program("man") {
            let checked = Command::new("man").args(["--warnings", "-l"]).arg(page).output().unwrap();
            assert_eq!(stderr(&checked), "", "{name}");
        }
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let help = printed(&["--help"]);
    assert_eq!(printed(&[]), help);
    assert_eq!(printed(&["help"]), help);
    let version = printed(&["version"]);
    assert_eq!(printed(&["--version"]), version);
    assert!(version.starts_with(concat!("plimsoll ", env!("CARGO_PKG_VERSION"), " (")), "{version}");
    let hash = version.split(['(', ')']).nth(1).unwrap();
    assert!(hash == "unknown" || (hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())), "{version}");
    for line in ["\nfeatures: ", "\nlibgfapi: ", "\nlibiotrap: "] {
        assert!(version.contains(line), "{version}");
    }
    assert_eq!(printed(&["run", "--version"]).trim(), version.lines().next().unwrap(), "scripts read one line");
}

#[test]
fn the_page_and_the_completions_of_run_name_every_job_option_that_jobs_can_use() {
    let page = page("run");
    let shells = ["bash", "zsh", "fish"].map(|shell| printed(&["completions", shell]));
    let listed = printed(&["run", "--cmdhelp"]);
    let is_refused =
        |name: &str| listed.lines().any(|line| line.split(' ').nth(2) == Some(name) && line.ends_with("[unsupported]"));
    let (refused, usable): (Vec<String>, Vec<String>) = job_options().into_iter().partition(|name| is_refused(name));
    assert!(usable.len() > 150 && refused.len() > 50, "{} and {}", usable.len(), refused.len());
    for name in usable {
        assert!(page.contains(&format!("--{name}")), "the page lacks --{name}");
        for script in &shells {
            assert!(script.contains(&name), "completions lack {name}");
        }
    }
    for name in refused {
        let is_named = page.lines().any(|line| line.split([',', ' ', '[']).any(|word| word == format!("--{name}")));
        assert!(!is_named, "the page offers --{name}, which is refused");
    }
}

/// A page as man(1) prints it: every section, nothing beyond the right edge but examples, no stray markup.
#[test]
fn every_page_reads_well_at_80_columns() {
    if !has_program("man") {
        return;
    }
    let place = directory();
    printed(&["man", "--dir", &place.path().display().to_string()]);
    for entry in std::fs::read_dir(place.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let output =
            Command::new("man").args(["--warnings=all", "-l"]).arg(entry.path()).env("MANWIDTH", "80").output();
        let output = output.unwrap();
        assert_eq!(stderr(&output), "", "{name}");
        let text = stdout(&output);
        for line in text.lines().filter(|line| !line.starts_with("           ")) {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        for stray in ["\\f", "[OPTIONS]", "see a summary"] {
            assert!(!text.contains(stray), "{name} holds {stray}");
        }
        let synopsis = text.split("\nSYNOPSIS\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
        let command = name.split(['.', '-']).next().unwrap();
        assert!(synopsis.contains(command) && !synopsis.contains('<'), "{name}: {synopsis}");
    }
}

#[test]
fn completions_know_the_names_of_values() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        for value in ["nvme_tcp", "buffers", "least-loaded", "psync", "nvmf_get_subsystems", "libiotrap"] {
            assert!(script.contains(value), "{shell}: {value}");
        }
    }
}

/// The words that bash offers for the last of these words. Readline takes `=` for a word of its own.
fn offered(words: &str) -> Vec<String> {
    let place = directory();
    let script = file(place.path(), "plimsoll.bash", printed(&["completions", "bash"]));
    let words = words.replace('=', " = ");
    let split: Vec<&str> = words.split(' ').collect();
    let [.., previous, current] = split[..] else { panic!("{words}: two words at least") };
    let asked = format!(
        ". {}; complete -p plimsoll | grep -q 'F _plimsoll_equals' || echo not registered >&2
        COMP_WORDS=({words}); COMP_CWORD={}
        _plimsoll_equals plimsoll {current:?} {previous:?}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        split.len() - 1,
    );
    let output = Command::new("bash").arg("-c").arg(asked).output().unwrap();
    assert_eq!(stderr(&output), "");
    stdout(&output).lines().map(String::from).collect()
}

#[test]
fn bash_completes_options_and_values() {
    if !has_program("bash") {
        return;
    }
    for (words, expected) in [
        ("plimsoll run --iodep", "--iodepth"),
        ("plimsoll fio --b", "--bs"),
        ("plimsoll run --ioengine=io_", "io_uring"),
        ("plimsoll fio --ioengine=", "nvme_tcp"),
        ("plimsoll fio --rw randr", "randread"),
        ("plimsoll sweep --engine io_", "io_uring"),
        ("plimsoll compare --engine psync,io_", "psync,io_uring"),
        ("plimsoll compare --engine=psync,io_", "psync,io_uring"),
        ("plimsoll serve --pacing au", "auto"),
        ("plimsoll rpc nvmf_get_sub", "nvmf_get_subsystems"),
    ] {
        let offered = offered(words);
        assert!(offered.iter().any(|word| word == expected), "{words}: {offered:?}");
    }
}

#[test]
fn fish_completes_options_and_values() {
    if !has_program("fish") {
        return;
    }
    let place = directory();
    let script = file(place.path(), "plimsoll.fish", printed(&["completions", "fish"]));
    for (words, expected) in [
        ("plimsoll run --iodep", "--iodepth"),
        ("plimsoll run --ioengine=io_", "--ioengine=io_uring"),
        ("plimsoll fio --ioengine=io_", "--ioengine=io_uring"),
        ("plimsoll fio --b", "--bs"),
        ("plimsoll serve --pacing au", "auto"),
        ("plimsoll rpc nvmf_get_sub", "nvmf_get_subsystems"),
        ("plimsoll man libio", "libiotrap"),
    ] {
        let asked = format!("source {}; complete -C '{words}'", script.display());
        let mut fish = Command::new("fish");
        let output = fish.args(["--no-config", "-c", &asked]).env("HOME", place.path()).output().unwrap();
        let offered = stdout(&output);
        let found = offered.lines().any(|line| line.split('\t').next() == Some(expected));
        assert!(found, "{words}: {offered}{}", stderr(&output));
    }
}

#[test]
fn the_list_of_options_is_current() {
    let made = printed(&["man", "--options"]);
    assert!(made == read("docs/options.md"), "docs/options.md is out of date: `make docs` writes it anew");
}

/// The table of ARCHITECTURE has every crate with exactly the crates of the workspace that it depends on.
#[test]
fn the_table_of_crates_is_what_cargo_says() {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]).current_dir(root());
    let metadata = json(&cargo.output().unwrap());
    let packages = metadata["packages"].as_array().unwrap();
    let members: BTreeSet<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let text = read("docs/ARCHITECTURE.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let rows: Vec<Vec<&str>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches(['|', ' ']).split(" | ").collect())
        .collect();
    let described: BTreeSet<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    assert_eq!(described, members);
    for row in rows {
        let name = row[0].trim_matches('`');
        let package = packages.iter().find(|package| package["name"] == name).unwrap();
        let normal = package["dependencies"].as_array().unwrap().iter().filter(|one| one["kind"].is_null());
        let real: BTreeSet<&str> =
            normal.map(|one| one["name"].as_str().unwrap()).filter(|name| members.contains(name)).collect();
        let said: BTreeSet<&str> =
            row[2].split(", ").map(|name| name.trim_matches('`')).filter(|name| *name != "-").collect();
        assert_eq!(said, real, "docs/ARCHITECTURE.md: {name} depends on");
    }
}

/// Links to files of the repository lead there.
#[test]
fn links_lead_to_files() {
    let mut wrong = Vec::new();
    for name in pages() {
        let text = read(&name);
        for (_, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
            let link = rest.split([')', '#', ' ']).next().unwrap_or_default();
            let path = root().join(&name).parent().unwrap().join(link);
            if !link.is_empty() && !link.contains("://") && !path.exists() {
                wrong.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Files of docs/ and configs/ that help names are there, and so are installed.
#[test]
fn files_that_help_names_exist() {
    let mut named = BTreeSet::new();
    for name in subcommands() {
        let help = printed(&[&name, "--help"]);
        let words = help.split(|byte: char| !(byte.is_ascii_alphanumeric() || "./_-".contains(byte)));
        named.extend(
            words
                .map(|word| word.trim_end_matches('.'))
                .filter(|word| {
                    (word.starts_with("docs/") && word.ends_with(".md"))
                        || (word.starts_with("configs/") && word.contains('.'))
                })
                .map(String::from),
        );
    }
    assert!(named.len() >= 4, "{named:?}");
    for name in named {
        assert!(root().join(&name).exists(), "help names {name}");
    }
}

/// A block of commands in a document.
struct Block {
    page: String,
    line: usize,
    /// Says why the block is not run: the text of a comment `<!-- not run: REASON -->` before it.
    reason: Option<String>,
    commands: Vec<String>,
}

/// A line of a block as a command, without prompt, comment and explanation beside it; None for output and synopses.
fn command(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches("$ ");
    let line = line.split("   ").next()?.split("  #").next()?.split(" # ").next()?.trim();
    let line = line.strip_prefix("cargo run --release --").map_or(line.to_string(), |rest| format!("plimsoll{rest}"));
    // Other programs (make, cargo, mpirun, nvme) compile, need other hosts or change the machine: no test runs those.
    let synopsis = line.contains("...") || line.contains(" [");
    let runs = line.starts_with("jq ") || (line.starts_with("plimsoll ") && !synopsis && !line.contains(" serve: "));
    runs.then_some(line)
}

/// The blocks of a page: lines that are indented by four, or fenced.
fn blocks(name: &str) -> Vec<Block> {
    let text = read(name);
    let mut found: Vec<Block> = Vec::new();
    let (mut inside, mut fenced, mut reason, mut continued) = (false, false, None, false);
    for (index, line) in text.lines().enumerate() {
        let fence = line.starts_with("```");
        let code = fenced || line.starts_with("    ");
        if fence {
            fenced = !fenced;
        }
        if let Some(said) = line.strip_prefix("<!-- not run: ") {
            reason = Some(said.trim_end_matches(" -->").to_string());
        }
        if code && !fence {
            if !inside {
                found.push(Block { page: name.into(), line: index + 1, reason: reason.take(), commands: Vec::new() });
            }
            inside = true;
            let commands = &mut found.last_mut().unwrap().commands;
            let more = line.trim_end().ends_with('\\');
            if continued {
                commands.last_mut().unwrap().push_str(&format!(" {}", line.trim().trim_end_matches('\\')));
                continued = more;
            } else if let Some(command) = command(line) {
                commands.push(command.trim_end_matches('\\').to_string());
                continued = more;
            }
        } else if !fence && !line.is_empty() {
            inside = false;
        }
    }
    found.retain(|block| !block.commands.is_empty());
    found
}

/// The subcommand and the flags of every command in the documents, in text and in blocks, are the program's.
#[test]
fn every_command_of_the_documents_is_one_that_the_program_knows() {
    let known = subcommands();
    let methods = printed(&["rpc", "--markdown"]);
    let mut pages_of: std::collections::BTreeMap<String, String> = Default::default();
    let mut wrong = Vec::new();
    for name in pages() {
        let text = read(&name);
        let inline = text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("plimsoll ")).map(String::from);
        let in_blocks = blocks(&name).into_iter().flat_map(|block| block.commands);
        for line in inline.chain(in_blocks).filter(|line| line.starts_with("plimsoll ")) {
            let own = line.split(" -- ").next().unwrap().split(['|', '>', '&', ';']).next().unwrap();
            let mut words = own.split_whitespace().skip(1);
            let Some(subcommand) =
                words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
            else {
                continue;
            };
            if ["help", "version"].contains(&subcommand) {
                continue;
            }
            if !known.iter().any(|name| name == subcommand) {
                wrong.push(format!("{name}: {line}: there is no subcommand {subcommand}"));
                continue;
            }
            let page = pages_of.entry(subcommand.into()).or_insert_with(|| {
                // The page of `run` has the job options for all subcommands that run jobs.
                let takes_jobs = ["fio", "sweep", "compare"].contains(&subcommand);
                page(subcommand) + &if takes_jobs { page("run") } else { String::new() }
            });
            let rest: Vec<&str> = words.collect();
            for flag in rest.iter().filter_map(|word| word.strip_prefix("--")).filter(|flag| !flag.is_empty()) {
                let flag = flag.split(['=', '[']).next().unwrap().trim_end_matches([',', '.', ']', ')']);
                if !page.contains(&format!("--{flag}")) && flag != "help" {
                    wrong.push(format!("{name}: {line}: {subcommand} has no --{flag}"));
                }
            }
            if let Some(method) = rest.first().filter(|word| subcommand == "rpc" && word.contains('_')) {
                // `plimsoll rpc load_config` itself makes the calls that a file holds.
                if !methods.contains(*method) && *method != "load_config" {
                    wrong.push(format!("{name}: {line}: there is no method {method}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A command or job file with small sizes and short times: the documents show what users type for real storage.
fn scaled(text: &str) -> String {
    let mut words = Vec::new();
    for line in text.split('\n') {
        let mut after = "";
        let shrunk: Vec<String> = line
            .split(' ')
            .map(|word| {
                let (name, equals) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
                let value = |name: &str| match name.trim_start_matches('-') {
                    "size" => Some("1m"),
                    "runtime" => Some("1s"),
                    "files" => Some("20"),
                    "seeds" => Some("1"),
                    _ => None,
                };
                let small = if equals { value(name).map(|value| format!("{name}={value}")) } else { None };
                let small = small.or_else(|| value(after).filter(|_| after.starts_with("--")).map(String::from));
                after = word;
                small.unwrap_or_else(|| word.to_string())
            })
            .collect();
        words.push(shrunk.join(" "));
    }
    let more = match text.split(' ').nth(1) {
        Some("sweep") => " --size=4m --iodepth 1,2,4 --point-time 100ms --time 2s",
        Some("compare") => " --pairs 2",
        _ => "",
    };
    words.join("\n").replace("/mnt/data", "data") + if text.starts_with("plimsoll ") { more } else { "" }
}

/// The text of a file from its beginning.
fn read_whole(mut file: std::fs::File) -> String {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// The script that runs the commands as they are written finds those of all pages, and knows why it leaves others out.
#[test]
fn most_commands_can_run_as_they_are_written() {
    if !has_program("python3") {
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
    let output = Command::new(root().join("tests/as-written")).arg("--list").arg(program).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    let count = |begin: &str| text.lines().filter(|line| line.starts_with(begin)).count();
    assert!(count("runs  ") >= 50 && count("skipped  ") >= 50, "{text}");
    for command in ["README.md:7: plimsoll sweep", "plimsoll report *.json", "plimsoll rpc nvmf_get_stats"] {
        assert!(text.lines().any(|line| line.starts_with("runs  ") && line.contains(command)), "{command}: {text}");
    }
    for line in text.lines().filter(|line| line.starts_with("skipped  ")) {
        assert!(line.matches(": ").count() >= 2, "a reason: {line}");
    }
}

/// Every block of commands runs, scaled down, or says why it does not.
#[test]
fn every_block_of_commands_runs_or_says_why_not() {
    if !has_program("bash") || !has_program("jq") {
        return;
    }
    let place = directory();
    std::fs::create_dir_all(place.path().join("data")).unwrap();
    std::os::unix::fs::symlink(root().join("configs"), place.path().join("configs")).unwrap();
    std::fs::create_dir(place.path().join("examples")).unwrap();
    for name in names(&root().join("examples")).iter().filter(|name| name.ends_with(".fio")) {
        let text = scaled(&read(&format!("examples/{name}")));
        file(place.path(), &format!("examples/{name}"), &text);
        file(place.path(), name, &text);
        // Names that pages use for any job file.
        for any in ["job.fio", "jobs.fio"].into_iter().filter(|_| name == "nightly.fio") {
            file(place.path(), any, &text);
        }
    }
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
    let path: Vec<PathBuf> =
        [program.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())).collect();
    let (mut ran, mut wrong) = (0, Vec::new());
    for block in pages().iter().flat_map(|name| blocks(name)).filter(|block| block.reason.is_none()) {
        for command in &block.commands {
            let command = scaled(command);
            let errors = tempfile::tempfile().unwrap();
            let mut bash = Command::new("timeout");
            bash.args(["900", "bash", "-euc", &command]).current_dir(place.path());
            // Files, not pipes: a program that a command leaves behind would keep a pipe open, and this test waiting.
            bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone().unwrap());
            let mut bash = bash.env("PATH", std::env::join_paths(&path).unwrap()).spawn().unwrap();
            let status = bash.wait().unwrap();
            // timeout(1) makes a process group: nothing of it outlives its command.
            let left = Command::new("kill").args(["-KILL", "--", &format!("-{}", bash.id())]).output().unwrap();
            ran += 1;
            if !status.success() || left.status.success() {
                let left = if left.status.success() { ", and it left a program behind" } else { "" };
                let said = read_whole(errors);
                wrong.push(format!("{}:{}: {command}: {status}{left}\n{said}", block.page, block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "say why with <!-- not run: REASON --> before the block:\n{}", wrong.join("\n"));
    assert!(ran >= 12, "only {ran} commands run");
}
