//! Sections of a job file for single hosts: `[job@a,b]` changes the job of that name on the hosts a and b.
//!
//! Every rank carries out the same jobs in the same order, because ranks start jobs together and add up their results
//! job by job. A section for hosts therefore changes a job, and never adds one.

use crate::error::Error;
use crate::source::{Section, Source};

/// The host that a job file is read on.
#[derive(Clone, Copy, Default)]
pub struct Hosts<'a> {
    /// This host; empty if it is not known: no section for hosts then applies.
    pub here: &'a str,
    /// The hosts of all ranks.
    pub all: &'a [String],
}

/// Options that decide which jobs run together: they are the same on all hosts.
const OF_ALL_HOSTS: [&str; 3] = ["stonewall", "new_group", "wait_for"];

/// Applies the sections for hosts. Those for this host add their settings to the section that they name, or are global
/// sections; the others are removed.
///
/// A section `[name@host]` without an earlier section `[name]` is a job of that name, as in fio; a warning says so.
///
/// # Errors
/// A section for hosts with an option that must be the same on all of them.
pub fn apply(source: &mut Source, hosts: Hosts) -> Result<(), Error> {
    let mut kept: Vec<Section> = Vec::with_capacity(source.sections.len());
    for mut section in std::mem::take(&mut source.sections) {
        let Some((base, list)) = section.name.rsplit_once('@') else {
            kept.push(section);
            continue;
        };
        let base = base.to_string();
        let named: Vec<String> = list.split(',').map(|host| host.trim().to_string()).collect();
        let of_job = kept.iter().rposition(|earlier| earlier.name == base && !earlier.is_global());
        if !base.starts_with("global") && of_job.is_none() {
            source.warnings.push(format!(
                "{}: [{}] is a job on all hosts, because no section [{base}] stands above it",
                section.place, section.name
            ));
            kept.push(section);
            continue;
        }
        if let Some(setting) = section.settings.iter().find(|setting| OF_ALL_HOSTS.contains(&setting.option.name)) {
            let what = format!("{} is in [{}], but it holds for all hosts", setting.option.name, section.name);
            return Err(Error::new(&setting.place, what).hint(format!("put it into [{base}]")));
        }
        for host in named.iter().filter(|host| !hosts.all.is_empty() && !hosts.all.iter().any(|one| is(one, host))) {
            source.warnings.push(format!(
                "{}: no rank runs on host {host} of [{}]: the hosts are {}",
                section.place,
                section.name,
                hosts.all.join(", ")
            ));
        }
        if !named.iter().any(|host| is(hosts.here, host)) {
            continue;
        }
        match of_job {
            Some(job) => kept[job].settings.append(&mut section.settings),
            None => kept.push(Section { name: base, ..section }),
        }
    }
    source.sections = kept;
    Ok(())
}

/// True if a host is meant by that name: its own, or the part before the first dot.
fn is(host: &str, name: &str) -> bool {
    !name.is_empty() && (host == name || host.split('.').next() == Some(name))
}
