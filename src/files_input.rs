//! An input file of `plimsoll files`: smallfile's parameters, or this program's options, in JSON or in the flat part of
//! YAML that smallfile's files use, turned into the words of a command line.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

/// The words of the command line that a file stands for. `knows` is true for the long options of `plimsoll files`.
///
/// # Errors
/// A file that cannot be read, is neither JSON nor `name: value` lines, or has a parameter without a meaning here.
pub fn words(path: &Path, knows: impl Fn(&str) -> bool) -> anyhow::Result<Vec<String>> {
    let place = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("--input {place}"))?;
    let pairs = pairs(&text).with_context(|| format!("--input {place}"))?;
    let mut words = Vec::new();
    for (name, value) in &pairs {
        let word = translated(name, value, &pairs, &knows).with_context(|| format!("--input {place}: {name}"))?;
        words.extend(word);
    }
    Ok(words)
}

/// The names and values of the file, in their order.
fn pairs(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    if text.trim_start().starts_with('{') {
        let object: serde_json::Map<String, Value> = serde_json::from_str(text).context("cannot be read as JSON")?;
        return object.into_iter().map(|(name, value)| Ok((name.clone(), scalar(&name, &value)?))).collect();
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let bare = without_comment(line);
        if bare.trim().is_empty() || ["---", "..."].contains(&bare.trim()) {
            continue;
        }
        let at = index + 1;
        let flat = !bare.starts_with([' ', '\t', '-']);
        let stands_apart = |value: &str| value.is_empty() || value.starts_with([' ', '\t']);
        let Some((name, value)) = bare.split_once(':').filter(|(_, value)| flat && stands_apart(value)) else {
            bail!("line {at}: {:?} is not `name: value`: give one parameter a line, or JSON", line.trim());
        };
        let value = value.trim();
        if value.starts_with(['[', '{', '|', '>', '&', '*', '!']) || value.is_empty() {
            bail!("line {at}: {name} has no plain value: write lists with commas, as top: /a,/b");
        }
        if pairs.iter().any(|(known, _)| known == name.trim()) {
            bail!("line {at}: {} is given twice", name.trim());
        }
        pairs.push((name.trim().to_string(), unquoted(value).to_string()));
    }
    Ok(pairs)
}

/// A line of YAML up to its comment: a `#` at the start or after a blank, outside of quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (None, '#') if before.is_whitespace() => return &line[..at],
            (None, '"' | '\'') if before.is_whitespace() => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
        before = letter;
    }
    line
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

fn scalar(name: &str, value: &Value) -> anyhow::Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(is) => Ok(is.to_string()),
        Value::Array(all) => {
            let texts = all.iter().map(|one| scalar(name, one)).collect::<anyhow::Result<Vec<_>>>()?;
            Ok(texts.join(","))
        }
        _ => bail!("{name} has no plain value"),
    }
}

/// The words of one parameter.
fn translated(
    name: &str,
    value: &str,
    all: &[(String, String)],
    knows: &impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<String>> {
    let option = |name: &str, value: String| Ok(vec![format!("--{name}={value}")]);
    let flag = |name: &str| Ok(if truth(value)? { vec![format!("--{name}")] } else { Vec::new() });
    let number = || value.parse::<u64>().with_context(|| format!("{value:?} is not a whole number"));
    let other = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    match name {
        "operation" => option("op", value.to_string()),
        "top" => Ok(value.split(',').map(|directory| format!("--dir={}", directory.trim())).collect()),
        // smallfile counts in KB.
        "file-size" => match other("file-size-distribution") {
            Some("exponential") => option("size", format!("exp:{}k", number()?)),
            None | Some("fixed" | "none" | "-1") => option("size", format!("{}k", number()?)),
            Some(other) => bail!("file-size-distribution is {other:?}: give exponential, or leave it out"),
        },
        "file-size-distribution" if other("file-size").is_some() => Ok(Vec::new()),
        "file-size-distribution" => bail!("give file-size too, the mean in KB"),
        "record-size" if value == "0" => Ok(Vec::new()),
        "record-size" => option("record", format!("{}k", number()?)),
        "same-dir" => flag("shared"),
        "verify-read" => flag("verify"),
        "finish" => match value {
            "all" | "first" => option("finish", value.to_string()),
            _ => option("finish", if truth(value)? { "all" } else { "first" }.into()),
        },
        "permute-host-dirs" => Ok(if truth(value)? { vec!["--neighbour=1".into()] } else { Vec::new() }),
        "output-json" => option("smallfile-json", value.to_string()),
        "response-times" if truth(value).is_ok() => match (truth(value)?, other("top")) {
            (false, _) => Ok(Vec::new()),
            (true, top) => {
                let top = top.unwrap_or(".").split(',').next().unwrap_or(".").trim();
                option("response-times", format!("{top}/response-times"))
            }
        },
        // The result always has both ends, and waits take no tuning.
        "stonewall" | "verbose" | "min-dirs-per-sec" | "network-sync-dir" => Ok(Vec::new()),
        "host-set" | "remote-pgm-dir" => {
            bail!("start it on many hosts with mpirun or srun (docs/hosts.md) and leave this out")
        }
        "record-time-size" | "record-ctime-size" if !truth(value)? => Ok(Vec::new()),
        "shared" if ["threads", "ranks"].contains(&value) => option("shared", value.to_string()),
        "fsync" | "hash-into-dirs" | "auto-pause" | "incompressible" | "random" | "direct" | "cleanup"
        | "leaves-only" | "random-order" | "continue-on-error" | "no-latency" | "json" | "shared" | "verify"
        | "drop-caches" => flag(name),
        "pause" => option("pause", value.to_string()),
        // An input file within an input file would have no end.
        _ if name != "input" && knows(name) => option(name, value.to_string()),
        _ => bail!("this parameter has no meaning here: leave it out (docs/files.md lists those of smallfile)"),
    }
}

/// The truth of Y, yes, true, 1 and their opposites, as smallfile reads them.
fn truth(value: &str) -> anyhow::Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" | "t" | "1" => Ok(true),
        "n" | "no" | "false" | "f" | "0" => Ok(false),
        _ => bail!("{value:?} is neither Y nor N"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let knows = |name: &str| ["files", "threads", "prefix", "size", "input"].contains(&name);
        let all = pairs(text).map_err(|error| format!("{error:#}"))?;
        let words: anyhow::Result<Vec<Vec<String>>> =
            all.iter().map(|(name, value)| translated(name, value, &all, &knows)).collect();
        words.map(|words| words.concat().join(" ")).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn smallfiles_parameters_become_options() {
        let yaml = "---\n# a comment\noperation: create\ntop: /a, /b   # two\nfile-size: 64\nfile-size-distribution: exponential\n\
                    prefix: 'x # y'\nfinish: N\nfsync: y\nsame-dir: false\npermute-host-dirs: Y\nstonewall: Y\nresponse-times: Y\n";
        let words = "--op=create --dir=/a --dir=/b --size=exp:64k --prefix=x # y --finish=first --fsync --neighbour=1 \
                     --response-times=/a/response-times";
        assert_eq!(read(yaml).unwrap(), words);
        let json = r#"{"operation": "read", "files": 10, "threads": 4, "verify-read": true, "record-size": 4, "top": ["/a", "/b"]}"#;
        let words = read(json).unwrap();
        for word in ["--op=read", "--files=10", "--threads=4", "--verify", "--record=4k", "--dir=/a --dir=/b"] {
            assert!(words.contains(word), "{words}");
        }
    }

    #[test]
    fn a_parameter_without_a_meaning_is_named() {
        for (text, part) in [
            ("operation create", "line 1"),
            ("a:\n  - b", "a has no plain value"),
            ("files: 1\nfiles: 2", "given twice"),
            ("nonsense: 1", "no meaning"),
            ("input: x", "no meaning"),
            ("host-set: a,b", "mpirun"),
            ("fsync: perhaps", "neither Y nor N"),
            ("file-size: big", "whole number"),
            ("file-size: 4\nfile-size-distribution: zipf", "zipf"),
            ("{\"files\": {}}", "plain value"),
            ("{", "JSON"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
