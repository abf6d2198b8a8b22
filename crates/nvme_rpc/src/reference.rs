//! The table of methods as text: for `plimsoll rpc --help` and docs/rpc.md.

use std::fmt::Write;

use super::methods::{METHODS, Method, Run, absent};
use super::params::{Need, Param, ParamKind, describe};

/// Subjects, as METHODS has them.
const SUBJECTS: [&str; METHODS.len()] = [
    "The target",
    "Devices",
    "Settings of NVMe over TCP",
    "Transport",
    "Subsystems",
    "Namespaces",
    "Listeners",
    "Referrals of discovery",
    "Hosts",
    "Statistics of NVMe over TCP",
    "Keys",
    "Accepted without effect",
];

/// Every method in a line, or one method in full.
pub fn help(name: Option<&Method>) -> String {
    let mut out = String::new();
    match name {
        Some(method) => one(&mut out, method),
        None => {
            for (subject, methods) in SUBJECTS.iter().zip(METHODS) {
                let _ = writeln!(out, "{subject}:");
                for method in *methods {
                    let _ = writeln!(out, "  {:<38} {}", method.name, short(method));
                }
                out.push('\n');
            }
            out.push_str("`plimsoll rpc METHOD --help` explains one. Parameters are NAME=VALUE; members of objects NAME.MEMBER=VALUE.\n");
        }
    }
    out
}

fn short(method: &Method) -> &'static str {
    match method.run {
        Run::WithoutEffect(why) => why,
        Run::Do(_) | Run::DoInSteps(_) => method.about,
    }
}

fn one(out: &mut String, method: &Method) {
    let _ = writeln!(out, "{}: {}.\n", method.name, method.about);
    if let Run::WithoutEffect(why) = method.run {
        let _ = writeln!(out, "It takes any parameters: {why}.");
    }
    list(out, method.params, "");
    let _ = writeln!(out, "\nAnswers {}.", method.result);
}

fn list(out: &mut String, params: &[Param], inside: &str) {
    for param in params {
        let need = match param.need {
            Need::Required => "required".to_string(),
            Need::Default(default) => format!("default: {default}"),
            Need::Ignored => "changes nothing".to_string(),
            Need::Only(value) => format!("only {value}"),
        };
        let name = format!("{inside}{}", param.name);
        if let ParamKind::Object(members) = param.kind {
            let _ = writeln!(out, "  {name:<30}{} [{need}]", param.about);
            list(out, members, &format!("{name}."));
        } else {
            let _ = writeln!(out, "  {name:<30}{}; {} [{need}]", param.about, describe(param.kind));
        }
    }
}

/// All methods as a page of Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Methods of the control socket\n\n`plimsoll rpc --markdown` makes this page from the table of the program.\nNames, parameters \
         and results are those of SPDK; the page marks the exceptions.\n",
    );
    overview(&mut out);
    for (subject, methods) in SUBJECTS.iter().zip(METHODS) {
        let _ = writeln!(out, "\n## {subject}\n");
        if methods.iter().all(|method| matches!(method.run, Run::WithoutEffect(_))) {
            out.push_str("These methods take any parameters and answer true, so that `plimsoll serve` loads configurations that SPDK has saved.\n\n| method | why the method has no effect |\n| --- | --- |\n");
            for method in *methods {
                let _ = writeln!(out, "| {} | {} |", method.name, short(method));
            }
            continue;
        }
        for method in *methods {
            let _ = writeln!(out, "### {}\n\n{}.\nAnswers {}.", method.name, method.about, method.result);
            if !method.params.is_empty() {
                out.push_str("\n| parameter | takes | default | |\n| --- | --- | --- | --- |\n");
                rows(&mut out, method.params, "");
            }
            out.push('\n');
        }
    }
    out.trim_end().to_string() + "\n"
}

/// Every method of SPDK that scripts for its target call: methods that work, methods that differ, and methods that are
/// missing.
fn overview(out: &mut String) {
    out.push_str("\n## In short\n\n| method | here | |\n| --- | --- | --- |\n");
    let mut rows: Vec<(&str, &str, String)> = Vec::new();
    for method in METHODS.iter().copied().flatten() {
        let mut limits = Vec::new();
        fixed(method.params, "", &mut limits);
        rows.push(match method.run {
            Run::WithoutEffect(why) => (method.name, "no effect", why.to_string()),
            _ if limits.is_empty() => (method.name, "works", String::new()),
            _ => (method.name, "different", limits.join(", ")),
        });
    }
    rows.extend(absent().iter().map(|(name, why)| (*name, "not here", why.to_string())));
    rows.sort_by_key(|(name, ..)| *name);
    for (name, here, more) in rows {
        let _ = writeln!(out, "| {name} | {here} | {more} |");
    }
    out.push_str(
        "\nSome parameters can have only one value. The target accepts that value, because the target behaves so anyway,\nand \
         answers an error to any other value.\nThe target answers \"Method not found\" and the reason to a method that is not here.\n\n\
         A request or a batch has 1 MiB at most, and each text in it 4,096 bytes. 64 clients may have calls under way; one\nmore \
         may call spdk_kill_instance, and hears for any other method that there are too many clients.\n",
    );
}

/// The parameters that may have one value only, as `name=value`.
fn fixed(params: &[Param], inside: &str, out: &mut Vec<String>) {
    for param in params {
        let name = format!("{inside}{}", param.name);
        match (param.need, param.kind) {
            (Need::Only(value), _) => out.push(format!("{name}={value} only")),
            (_, ParamKind::Object(members)) => fixed(members, &format!("{name}."), out),
            _ => {}
        }
    }
}

fn rows(out: &mut String, params: &[Param], inside: &str) {
    for param in params {
        let default = match param.need {
            Need::Default(default) => default.to_string(),
            Need::Only(value) => format!("must be {value}"),
            Need::Ignored => "changes nothing".to_string(),
            Need::Required => "**required**".to_string(),
        };
        let name = format!("{inside}{}", param.name);
        let takes = if matches!(param.kind, ParamKind::Object(_)) { "an object".into() } else { describe(param.kind) };
        let _ = writeln!(out, "| `{name}` | {takes} | {default} | {} |", param.about);
        if let ParamKind::Object(members) = param.kind {
            rows(out, members, &format!("{name}."));
        }
    }
}
