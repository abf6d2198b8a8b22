//! The meaning of the facts for a user who wants to spread I/O over the lanes. The module is pure: it turns facts into
//! findings.

use std::collections::BTreeMap;
use std::path::Path;

use super::rate::Rates;
use super::survey::{LaneFacts, Survey, Trouble};
use crate::identity::{Difference, Facts, compare, compare_inodes};
use crate::pool::Pool;

/// The gravity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is spread over the lanes that the finding names.
    Bad,
    /// Something is spread, and it gains less than it could, or is riskier.
    Warning,
    /// The finding is good to know.
    Note,
}

impl Severity {
    /// The name of the severity, one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Bad => "bad",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A finding about the lanes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The gravity of the finding.
    pub severity: Severity,
    /// The finding in one word that never changes: for programs.
    pub kind: &'static str,
    /// One text: the finding, its cause and the remedy.
    pub text: String,
}

/// All findings from the facts about the lanes of a pool, the worst first.
pub fn examine(pool: &Pool, survey: &Survey) -> Vec<Finding> {
    let mut findings = Findings::default();
    let lanes = &survey.lanes;
    if lanes.len() == 1 {
        findings.bad("one-lane", "the pool has one lane: there is nothing to spread over");
    }
    for lane in lanes {
        there(lane, lanes, &mut findings);
    }
    let usable: Vec<&LaneFacts> = lanes.iter().filter(|lane| lane.trouble.is_none()).collect();
    independent(&usable, &mut findings);
    one_volume(pool, survey, &usable, &mut findings);
    options(&usable, &mut findings);
    findings.all.sort_by_key(|finding| finding.severity);
    findings.all
}

#[derive(Default)]
struct Findings {
    all: Vec<Finding>,
}

impl Findings {
    fn bad(&mut self, kind: &'static str, text: impl Into<String>) {
        self.all.push(Finding { severity: Severity::Bad, kind, text: text.into() });
    }

    fn warning(&mut self, kind: &'static str, text: impl Into<String>) {
        self.all.push(Finding { severity: Severity::Warning, kind, text: text.into() });
    }

    fn note(&mut self, kind: &'static str, text: impl Into<String>) {
        self.all.push(Finding { severity: Severity::Note, kind, text: text.into() });
    }
}

fn shown(lane: &LaneFacts) -> String {
    lane.path.display().to_string()
}

/// The names as text: `a`, `a and b`, `a, b and c`.
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Reports a lane that has nothing mounted on it or does not answer, and mount options that are a risk.
fn there(lane: &LaneFacts, lanes: &[LaneFacts], findings: &mut Findings) {
    let path = shown(lane);
    match &lane.trouble {
        Some(Trouble::Failed(error)) => return findings.bad("unusable", format!("{path}: {error}")),
        Some(Trouble::Silent) => {
            let what =
                lane.mount.as_ref().map_or(String::new(), |mount| format!(" ({} from {})", mount.kind, mount.source));
            let text = format!("{path} gives no answer{what}: is its server there, does its address answer?");
            return findings.bad("silent", text);
        }
        None => {}
    }
    let Some(mount) = &lane.mount else { return };
    if mount.point == Path::new("/") {
        let text = format!("{path}: nothing is mounted there, it is a directory of {} ({})", mount.source, mount.kind);
        findings.bad("not-mounted", text);
    } else if let Some(first) = lanes
        .iter()
        .take_while(|other| other.path != lane.path)
        .find(|other| other.mount.as_ref().is_some_and(|known| known.id == mount.id))
    {
        findings.bad("same-mount", format!("{} and {path} lie on one mount, {}", shown(first), mount.point.display()));
    }
    if mount.is_nfs() && mount.option("soft").is_some() {
        let text = format!(
            "{path} is mounted soft: a server that does not answer in time becomes an I/O error for the program \
             (hard waits for it); trap does not spread writes over soft mounts"
        );
        findings.warning("soft", text);
    }
    if mount.option("ro").is_some() {
        findings.note("read-only", format!("{path} is mounted read-only"));
    }
}

/// Reports lanes that have no separate connections.
fn independent(lanes: &[&LaneFacts], findings: &mut Findings) {
    let mut superblocks: BTreeMap<(u32, u32), Vec<&LaneFacts>> = BTreeMap::new();
    for lane in lanes {
        if let Some(directory) = &lane.directory {
            superblocks.entry(directory.device()).or_default().push(lane);
        }
    }
    let mut told: Vec<&Path> = Vec::new();
    for sharing in superblocks.values().filter(|sharing| sharing.len() > 1) {
        let id = |lane: &&LaneFacts| lane.mount.as_ref().map(|mount| mount.id);
        if sharing.iter().all(|lane| id(lane).is_some() && id(lane) == id(&sharing[0])) {
            continue; // one mount: said already
        }
        let names: Vec<String> = sharing.iter().map(|lane| shown(lane)).collect();
        let mount = sharing.iter().find_map(|lane| lane.mount.as_ref());
        told.extend(sharing.iter().map(|lane| lane.path.as_path()));
        match mount {
            Some(mount) if mount.trunks() => {
                let version = mount.nfs_version().unwrap_or_default();
                findings.bad("trunked", trunked(&names, version));
            }
            Some(mount) if mount.is_nfs() => findings.bad(
                "same-superblock",
                format!(
                    "{} are one mount of {} to the client: they share one connection; mount each from a separate \
                     address, or with nosharecache",
                    list(&names),
                    mount.source
                ),
            ),
            _ => findings.bad(
                "same-superblock",
                format!(
                    "{} are one file system in one place (one superblock, bind mounts?): spreading over them is safe and \
                     gains nothing",
                    list(&names)
                ),
            ),
        }
    }
    // Different exports of one server, or nosharecache, give each lane a superblock of its own, and yet one connection.
    // A connection is known by both ends: connections to different addresses may come from one port (tcp(7)).
    let mut ends: BTreeMap<(Option<&str>, Vec<u16>), Vec<&LaneFacts>> = BTreeMap::new();
    for lane in lanes.iter().filter(|lane| !told.contains(&lane.path.as_path())) {
        let known: Vec<u16> = lane.connections.iter().map(|connection| connection.port).collect();
        if !known.is_empty() && !known.contains(&0) {
            let server = lane.mount.as_ref().and_then(|mount| mount.option("addr"));
            ends.entry((server, known)).or_default().push(lane);
        }
    }
    for sharing in ends.values().filter(|sharing| sharing.len() > 1) {
        let names: Vec<String> = sharing.iter().map(|lane| shown(lane)).collect();
        let version = sharing[0].mount.as_ref().and_then(|mount| mount.nfs_version()).unwrap_or("4.1");
        findings.bad("trunked", trunked(&names, version));
    }
    for lane in lanes {
        if let Some(count) = lane.mount.as_ref().and_then(|mount| mount.option("nconnect")) {
            findings.note("nconnect", format!("{} has {count} connections of its own (nconnect)", shown(lane)));
        }
    }
}

fn trunked(names: &[String], version: &str) -> String {
    let number = match names.len() {
        2 => "two".to_owned(),
        3 => "three".to_owned(),
        4 => "four".to_owned(),
        count => count.to_string(),
    };
    format!(
        "these {number} mounts share ONE connection because the client trunks NFS {version}: use vers=3, 4.0 or nconnect \
         ({})",
        list(names)
    )
}

/// Reports lanes that do not lead to one volume, or that nothing proves to lead to one.
fn one_volume(pool: &Pool, survey: &Survey, lanes: &[&LaneFacts], findings: &mut Findings) {
    if let Some(trouble) = &survey.write_trouble {
        findings.warning("no-write", format!("no file could be written to compare the lanes by: {trouble}"));
    }
    let Some((first, others)) = lanes.split_first() else { return };
    let mut unproven = Vec::new();
    for lane in others {
        let pair = format!("{} and {}", shown(first), shown(lane));
        if lane.sees_write == Some(false) {
            findings.bad(
                "other-volume",
                format!("{pair} are different volumes: what was written through one is not on the other"),
            );
            continue;
        }
        let by_file = match (&first.file, &lane.file, &survey.file) {
            (Some(Ok(one)), Some(Ok(other)), _) => Some(compare(one, other, pool.trust_inode)),
            (Some(Ok(_)), Some(Err(error)), Some(file)) => {
                findings.bad(
                    "other-volume",
                    format!("{} has no {}, which {} has: {error}", shown(lane), file.display(), shown(first)),
                );
                continue;
            }
            _ => None,
        };
        let by_directory = match (&first.directory, &lane.directory) {
            (Some(one), Some(other)) => Some(compare_inodes(one, other, pool.trust_inode)),
            _ => None,
        };
        match by_file.or(by_directory) {
            Some(Err(Difference::NoProof)) => unproven.push(shown(lane)),
            Some(Err(Difference::OtherInode)) if by_file.is_none() => {
                findings.bad("other-volume", format!("{pair} are different directories: nothing is spread over them"));
            }
            Some(Err(difference)) => {
                findings.bad("other-volume", format!("{pair}: {difference}: nothing is spread over them"));
            }
            Some(Ok(_)) | None => {}
        }
    }
    if !unproven.is_empty() {
        let kind = first.mount.as_ref().map_or("this file system", |mount| mount.kind.as_str());
        findings.bad(
            "unproven",
            format!(
                "nothing proves that {} leads to the files of {}: {kind} has no file handles to compare; if they do, \
                 `trust-inode = true` in the pool file goes by inode number, size and times (see --write-probe)",
                list(&unproven),
                shown(first)
            ),
        );
    }
    if first.directory.as_ref().is_some_and(Facts::is_fuse) && !pool.strict_o_direct {
        findings.note(
            "fuse-writes",
            "files that a program writes stay on the opened lane: a FUSE client may acknowledge a write before the server has \
             it. If the client does not (Gluster: performance.strict-o-direct on), say `strict-o-direct = true` in the pool \
             file",
        );
    }
    if let (None, None) = (&survey.file, first.sees_write) {
        findings.note(
            "no-file",
            "there is no file in the lanes' directory to compare and to measure with: --file names one",
        );
    }
    if let Some((file, Err(error))) = survey.file.as_ref().zip(first.file.as_ref()).filter(|(_, facts)| facts.is_err())
    {
        findings.bad("no-file", format!("{}: {error}", first.path.join(file).display()));
    }
}

/// Options that are an address, and so differ on purpose.
const OF_THE_ADDRESS: &[&str] = &["addr", "mountaddr", "clientaddr", "mountport", "port"];

/// Reports lanes that are not mounted alike.
fn options(lanes: &[&LaneFacts], findings: &mut Findings) {
    let mounts: Vec<_> = lanes.iter().filter_map(|lane| Some((lane, lane.mount.as_ref()?))).collect();
    let mut names: Vec<&str> = Vec::new();
    for (_, mount) in &mounts {
        for (name, _) in &mount.options {
            if !names.contains(&name.as_str()) && !OF_THE_ADDRESS.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let mut kinds: Vec<&str> = mounts.iter().map(|(_, mount)| mount.kind.as_str()).collect();
    kinds.dedup();
    if kinds.len() > 1 {
        return findings.warning("options", format!("the lanes are of different types: {}", kinds.join(", ")));
    }
    let mut differing = Vec::new();
    for name in names {
        let values: Vec<Option<&str>> = mounts.iter().map(|(_, mount)| mount.option(name)).collect();
        if values.iter().any(|value| *value != values[0]) {
            let each = mounts.iter().zip(&values).map(|((lane, _), value)| {
                let value = match value {
                    None => format!("no {name}"),
                    Some("") => name.to_owned(),
                    Some(value) => format!("{name}={value}"),
                };
                format!("{} {value}", shown(lane))
            });
            differing.push(each.collect::<Vec<_>>().join(", "));
        }
    }
    if !differing.is_empty() {
        findings.warning("options", format!("options differ: {}", differing.join("; ")));
    }
}

/// Lanes together should be at least this many times as fast as the best of them alone.
const GAIN: f64 = 1.2;
/// A lane below this part of the fastest drags a program down that goes from lane to lane in turn.
const SLOW: f64 = 0.5;

/// The findings from measured rates of the lanes of a pool.
///
/// `known` holds the findings from before: lanes that share one connection need no explanation for being as fast as
/// one.
pub fn examine_rates(survey: &Survey, rates: &Rates, known: &[Finding]) -> Vec<Finding> {
    let mut findings = Findings::default();
    let figure = measure::figures::bytes_per_second;
    let Some(best) = rates.best_alone() else {
        let reasons: Vec<&str> =
            rates.alone.iter().filter_map(|rate| rate.as_ref().err()).map(String::as_str).collect();
        findings.warning("unmeasured", format!("no lane could be measured: {}", reasons.first().unwrap_or(&"no lane")));
        return findings.all;
    };
    for (lane, rate) in survey.lanes.iter().zip(&rates.alone) {
        match rate {
            Err(error) => findings.warning("unmeasured", format!("{} could not be measured: {error}", shown(lane))),
            Ok(rate) if *rate < best * SLOW => findings.warning(
                "slow-lane",
                format!(
                    "{} is slow: {} alone, where the best lane does {}; the least-loaded policy gives it less, round-robin \
                     would wait for it",
                    shown(lane),
                    figure(*rate),
                    figure(best)
                ),
            ),
            Ok(_) => {}
        }
    }
    let explained = known.iter().any(|finding| ["trunked", "same-superblock", "same-mount"].contains(&finding.kind));
    if let Some(together) = rates.together.filter(|together| *together < best * GAIN && !explained) {
        findings.warning(
            "no-gain",
            format!(
                "together the lanes do {}, the best of them alone {}: something other than the connections limits \
                 them (one network interface, one server, its disks?)",
                figure(together),
                figure(best)
            ),
        );
    }
    findings.all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::connections;
    use crate::doctor::mounts;
    use std::os::fd::AsFd;

    /// Lanes as the kernel described them on a real machine; the facts of their directories are those of a file of
    /// this machine, so that they are equal.
    fn survey(mountinfo: &[u8], mountstats: &[u8]) -> (Pool, Survey) {
        let mounts: Vec<_> = mounts::parse(mountinfo).into_iter().filter(|mount| mount.is_nfs()).collect();
        let connections = connections::parse(mountstats);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let facts = crate::identity::Facts::of(file.as_fd()).unwrap();
        let lane = |mount: mounts::Mount| LaneFacts {
            path: mount.point.clone(),
            directory: Some(facts.on_device(mount.device)),
            connections: connections.iter().find(|known| known.point == mount.point).unwrap().all.clone(),
            file: Some(Ok(facts.on_device(mount.device))),
            mount: Some(mount),
            ..LaneFacts::default()
        };
        let lanes: Vec<LaneFacts> = mounts.into_iter().map(lane).collect();
        let mut pool = Pool::new("e4a", lanes.iter().map(|lane| lane.path.clone()));
        pool.trust_inode = true; // the facts are of a file system without handles
        (pool, Survey { lanes, file: Some("data".into()), write_trouble: None })
    }

    fn nfs_3() -> (Pool, Survey) {
        survey(
            include_bytes!("../../tests/golden/mountinfo-nfs-3.txt"),
            include_bytes!("../../tests/golden/mountstats-nfs-3.txt"),
        )
    }

    fn kinds(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn four_good_lanes_are_worth_no_word() {
        let (pool, survey) = nfs_3();
        assert_eq!(examine(&pool, &survey), []);
    }

    #[test]
    fn trunked_mounts_are_said_to_be_one() {
        let (pool, survey) = survey(
            include_bytes!("../../tests/golden/mountinfo-nfs-4.1.txt"),
            include_bytes!("../../tests/golden/mountstats-nfs-4.1.txt"),
        );
        let findings = examine(&pool, &survey);
        assert_eq!(kinds(&findings), ["trunked"]);
        assert!(
            findings[0].text.starts_with(
                "these four mounts share ONE connection because the client trunks NFS 4.1: use vers=3, 4.0 or nconnect"
            ),
            "{}",
            findings[0].text
        );
    }

    #[test]
    fn one_port_to_one_server_under_two_superblocks_is_one_connection() {
        let (pool, mut survey) = nfs_3();
        survey.lanes[1].connections = survey.lanes[0].connections.clone();
        assert_eq!(examine(&pool, &survey), [], "one port, and a server's address each");
        let server = survey.lanes[0].mount.as_ref().unwrap().option("addr").unwrap().to_string();
        let options = &mut survey.lanes[1].mount.as_mut().unwrap().options;
        options.iter_mut().find(|(name, _)| name == "addr").unwrap().1 = Some(server);
        let findings = examine(&pool, &survey);
        assert_eq!(kinds(&findings), ["trunked"]);
        assert!(findings[0].text.contains("two mounts") && findings[0].text.contains("/mnt/v32 and /mnt/v33"));
    }

    #[test]
    fn what_is_wrong_with_a_lane_is_said_of_that_lane() {
        let (pool, mut survey) = nfs_3();
        survey.lanes[0].trouble = Some(Trouble::Failed("No such file or directory (os error 2)".into()));
        survey.lanes[1].trouble = Some(Trouble::Silent);
        survey.lanes[2].mount.as_mut().unwrap().options.retain(|(name, _)| name != "hard" && name != "rsize");
        survey.lanes[2].mount.as_mut().unwrap().options.push(("soft".into(), None));
        let findings = examine(&pool, &survey);
        assert_eq!(kinds(&findings), ["unusable", "silent", "soft", "options"]);
        assert!(findings[1].text.contains("/mnt/v33 gives no answer (nfs from 127.0.0.33:/run/export)"));
        assert!(findings[3].text.contains("/mnt/v34 no rsize, /mnt/v35 rsize=262144"), "{}", findings[3].text);
        assert!(!findings[3].text.contains("addr"), "addresses differ on purpose");
    }

    #[test]
    fn other_volumes_are_found_by_the_file_and_by_what_is_written() {
        let (pool, mut survey) = nfs_3();
        survey.lanes[1].sees_write = Some(false);
        survey.lanes[2].file = Some(Err("No such file or directory (os error 2)".into()));
        let other = std::fs::File::open("/proc/self/stat").unwrap();
        survey.lanes[3].file = Some(Ok(crate::identity::Facts::of(other.as_fd()).unwrap()));
        let findings = examine(&pool, &survey);
        assert_eq!(kinds(&findings), ["other-volume"; 3]);
    }

    #[test]
    fn no_proof_is_no_spreading_and_says_what_would_do() {
        let (mut pool, survey) = nfs_3();
        pool.trust_inode = false;
        let findings = examine(&pool, &survey);
        assert_eq!(kinds(&findings), ["unproven"]);
        assert!(
            findings[0].text.contains("/mnt/v33, /mnt/v34 and /mnt/v35")
                && findings[0].text.contains("trust-inode = true")
        );
    }

    #[test]
    fn lanes_on_fuse_are_told_what_is_not_spread() {
        let (mut pool, mut survey) = nfs_3();
        for lane in &mut survey.lanes {
            lane.directory = lane.directory.map(Facts::on_fuse);
        }
        assert_eq!(kinds(&examine(&pool, &survey)), ["fuse-writes"]);
        pool.strict_o_direct = true;
        assert_eq!(examine(&pool, &survey), []);
    }

    #[test]
    fn rates_tell_slow_lanes_and_lanes_that_gain_nothing() {
        let (_, survey) = nfs_3();
        let rates = |alone: [f64; 4], together| Rates { alone: alone.map(Ok).to_vec(), together: Some(together) };
        assert_eq!(examine_rates(&survey, &rates([10e6; 4], 39e6), &[]), []);
        assert_eq!(kinds(&examine_rates(&survey, &rates([10e6; 4], 10e6), &[])), ["no-gain"]);
        let slow = examine_rates(&survey, &rates([10e6, 10e6, 1e6, 10e6], 31e6), &[]);
        assert_eq!(kinds(&slow), ["slow-lane"]);
        assert!(slow[0].text.starts_with("/mnt/v34 is slow"));
        let none = Rates { alone: vec![Err("its file system has no O_DIRECT".into())], together: None };
        assert!(examine_rates(&survey, &none, &[])[0].text.contains("no O_DIRECT"));
    }
}
