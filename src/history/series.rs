//! The results of one target, engine and workload in order of time, and the changes of their figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use measure::change::{self, ChangePoint};
use measure::figures;
use measure::schema::{Answer, Curve, Disturbances, Estimate, LoadLine, Storage, SweepResult};

/// The probability that noise alone shows any change on the whole page.
const ALPHA: f64 = 0.05;

/// A figure of a result that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Ops per second at the plateau.
    Plateau,
    /// The depth of the load line.
    LoadLine,
}

/// One sweep.
pub struct Entry {
    /// Milliseconds since the Unix epoch at its start.
    pub started_unix_ms: u64,
    /// The name of the result's file.
    pub file: String,
    /// The program's version that measured.
    pub version: String,
    /// The kernel of the machine.
    pub kernel: String,
    /// The firmware of the disks; empty where it is not known.
    pub firmware: String,
    /// The events that distort the sweep's figures.
    pub disturbances: Disturbances,
    /// The curve's line; None if there was none.
    line: Option<LoadLine>,
}

impl Entry {
    /// The figure with its interval; None where the sweep does not name it. Of a curve that still rose, only a lower
    /// bound of the plateau is known.
    pub fn figure(&self, figure: Figure) -> Option<Estimate> {
        let line = self.line.as_ref().filter(|line| !line.still_rising)?;
        match figure {
            Figure::Plateau => line.plateau(),
            // A sweep keeps the estimate that it refuses to name.
            Figure::LoadLine => line.load_line.filter(|_| !matches!(line.answer(), Answer::Unnamed(_))),
        }
    }

    /// The reason for a missing figure.
    pub fn reason(&self) -> String {
        match self.line.as_ref().map(LoadLine::answer) {
            None => "the sweep has too few points".into(),
            Some(Answer::Unnamed(why)) => why.into(),
            Some(Answer::Beyond | Answer::At(_) | Answer::Between(..)) => "the curve is still rising".into(),
        }
    }
}

/// The results of one target, engine and workload.
pub struct Series {
    /// Host, target, engine, pattern and block size.
    pub name: String,
    /// By time.
    pub entries: Vec<Entry>,
    /// Fewer values than this cannot show a change.
    pub fewest: usize,
    /// The smallest loss of the plateau, as a part, that the series would show; None if it would show none.
    pub visible: Option<f64>,
    /// Changes of plateau and load line, by the index of the entry that begins the new level.
    plateau: Vec<ChangePoint>,
    load_line: Vec<ChangePoint>,
}

impl Series {
    /// Each value of a figure with the index of its entry.
    pub fn figure(&self, figure: Figure) -> Vec<(usize, Estimate)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, entry.figure(figure)?))).collect()
    }

    /// The parts of the system that another one had replaced when a result was measured, by the index of its entry: the
    /// name of the part, the one before and the new one. A part that a result does not record is not compared.
    pub fn renewals(&self) -> Vec<(usize, &'static str, &str, &str)> {
        type Part = fn(&Entry) -> &str;
        let parts: [(&str, Part); 3] = [
            ("kernel", |entry| &entry.kernel),
            ("firmware", |entry| &entry.firmware),
            ("version of Plimsoll", |entry| &entry.version),
        ];
        let mut out = Vec::new();
        for (name, part) in parts {
            let known: Vec<(usize, &str)> =
                self.entries.iter().map(part).enumerate().filter(|(_, part)| !part.is_empty()).collect();
            let changed = known.windows(2).filter(|pair| pair[0].1 != pair[1].1);
            out.extend(changed.map(|pair| (pair[1].0, name, pair[0].1, pair[1].1)));
        }
        out.sort_by_key(|renewal| renewal.0);
        out
    }

    /// The changes of a figure, in order.
    pub fn changes(&self, figure: Figure) -> &[ChangePoint] {
        match figure {
            Figure::Plateau => &self.plateau,
            Figure::LoadLine => &self.load_line,
        }
    }
}

/// The series of all sweeps over iodepth, by name. The same result twice counts once.
pub fn of(sweeps: &[(PathBuf, SweepResult)]) -> Vec<Series> {
    // The name is for readers: "a scratch file in ." is one on any disk, and one path may lie on another disk today.
    // Paths and the identity of the storage tell the targets apart.
    type Key = (String, Vec<PathBuf>, Option<String>);
    let mut named: BTreeMap<Key, Vec<Entry>> = BTreeMap::new();
    let over_depth = || sweeps.iter().filter(|(_, sweep)| sweep.axis == "iodepth");
    for (path, sweep) in over_depth() {
        // A result that does not record its storage joins the others of its paths, if these have one storage.
        let mut known = over_depth()
            .filter(|(_, other)| other.paths == sweep.paths)
            .filter_map(|(_, other)| other.storage.identity());
        let identity = sweep.storage.identity().or_else(|| {
            let first = known.next()?;
            known.all(|other| other == first).then_some(first)
        });
        for curve in &sweep.curves {
            let entries = named.entry((name_of(sweep, curve), sweep.paths.clone(), identity.clone())).or_default();
            let entry = entry(path, sweep, curve);
            let is_known = |known: &Entry| known.started_unix_ms == entry.started_unix_ms && known.line == entry.line;
            if !entries.iter().any(is_known) {
                entries.push(entry);
            }
        }
    }
    let mut on: BTreeMap<(String, Vec<PathBuf>), usize> = BTreeMap::new();
    for (name, paths, _) in named.keys() {
        *on.entry((name.clone(), paths.clone())).or_default() += 1;
    }
    let mut all: Vec<Series> = named
        .into_iter()
        .map(|((name, paths, identity), mut entries)| {
            entries.sort_by_key(|entry| entry.started_unix_ms);
            let shared = on[&(name.clone(), paths)] > 1;
            let storage = identity.map_or("unknown storage".into(), |identity| identity.replace('\n', " + "));
            let name = if shared { format!("{name}, {storage}") } else { name };
            Series { name, entries, fewest: 0, visible: None, plateau: Vec::new(), load_line: Vec::new() }
        })
        .collect();
    // Each series is tested twice: Bonferroni.
    let alpha = ALPHA / (2 * all.len()).max(1) as f64;
    for series in &mut all {
        series.fewest = change::fewest(alpha);
        series.plateau = changes(series, Figure::Plateau, alpha);
        series.load_line = changes(series, Figure::LoadLine, alpha);
        if series.plateau.is_empty() {
            let values: Vec<f64> = series.figure(Figure::Plateau).iter().map(|(_, plateau)| plateau.mean).collect();
            series.visible = change::visible(&values, alpha);
        }
    }
    all
}

fn changes(series: &Series, figure: Figure, alpha: f64) -> Vec<ChangePoint> {
    let values = series.figure(figure);
    let means: Vec<f64> = values.iter().map(|(_, estimate)| estimate.mean).collect();
    let points = change::points(&means, alpha).into_iter();
    points.map(|point| ChangePoint { at: values[point.at].0, ..point }).collect()
}

fn name_of(sweep: &SweepResult, curve: &Curve) -> String {
    let facts = curve.points.first().map(|point| point.job.facts.clone()).unwrap_or_default();
    let block = facts.block_bytes.read.1.max(facts.block_bytes.write.1);
    // A path that is relative to the directory of the sweep says little.
    let target = match sweep.paths.as_slice() {
        [path] if !sweep.target.contains(&*path.to_string_lossy()) => format!("{} ({})", sweep.target, path.display()),
        _ => sweep.target.clone(),
    };
    let mut parts = vec![sweep.provenance.machine.hostname.clone(), target, curve.label.clone(), facts.rw];
    parts.push(if block > 0 { figures::bytes(block as f64) } else { String::new() });
    parts.push(if facts.numjobs > 1 { format!("numjobs {}", facts.numjobs) } else { String::new() });
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// The revisions of the firmware of all disks, each once.
fn firmware(storage: &Storage) -> String {
    let mut all: Vec<&str> = storage.disks.iter().map(|disk| disk.firmware.as_str()).collect();
    all.retain(|firmware| !firmware.is_empty());
    all.sort_unstable();
    all.dedup();
    all.join(" + ")
}

fn entry(path: &Path, sweep: &SweepResult, curve: &Curve) -> Entry {
    Entry {
        started_unix_ms: sweep.provenance.started_unix_ms,
        file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        version: sweep.provenance.version.clone(),
        kernel: sweep.provenance.machine.kernel.clone(),
        firmware: firmware(&sweep.storage),
        disturbances: curve.disturbances(),
        line: curve.line.clone(),
    }
}

#[cfg(test)]
mod tests {
    use measure::schema::Disk;

    use super::*;

    /// A sweep of a target in a directory, whose disk has this serial number; "" for a result that records no storage.
    fn swept(target: &str, directory: &str, serial: &str, started_unix_ms: u64) -> (PathBuf, SweepResult) {
        let mut sweep = SweepResult {
            axis: "iodepth".into(),
            target: target.into(),
            paths: vec![directory.into()],
            curves: vec![Curve { label: "psync".into(), ..Curve::default() }],
            ..SweepResult::default()
        };
        if !serial.is_empty() {
            sweep.storage.disks = vec![Disk { name: "sda".into(), serial: serial.into(), ..Disk::default() }];
        }
        sweep.provenance.started_unix_ms = started_unix_ms;
        (PathBuf::from("a.json"), sweep)
    }

    /// The name of each series, and the number of its results.
    fn told(sweeps: &[(PathBuf, SweepResult)]) -> Vec<(String, usize)> {
        of(sweeps).iter().map(|one| (one.name.clone(), one.entries.len())).collect()
    }

    #[test]
    fn targets_of_one_name_on_two_paths_are_two_histories() {
        let on = |directory: &str, started_unix_ms| swept("a scratch file in .", directory, "", started_unix_ms);
        let both = told(&[on("/mnt/a", 1), on("/mnt/b", 2), on("/mnt/a", 3)]);
        let name = |directory: &str| format!("a scratch file in . ({directory}) psync");
        assert_eq!(both, [(name("/mnt/a"), 2), (name("/mnt/b"), 1)]);
    }

    #[test]
    fn parts_of_the_system_that_were_replaced_are_named() {
        let on = |started_unix_ms, kernel: &str, firmware: &str, version: &str| {
            let (path, mut sweep) = swept("/dev/sda", "/dev/sda", "A", started_unix_ms);
            sweep.storage.disks[0].firmware = firmware.into();
            (sweep.provenance.machine.kernel, sweep.provenance.version) = (kernel.into(), version.into());
            (path, sweep)
        };
        let history = of(&[
            on(1, "Linux 6.1", "F1", "0.1.0"),
            on(2, "Linux 6.1", "", "0.1.0"),
            on(3, "Linux 6.12", "F1", "0.1.0"),
            on(4, "Linux 6.12", "F2", "0.2.0"),
        ]);
        let expected = [
            (2, "kernel", "Linux 6.1", "Linux 6.12"),
            (3, "firmware", "F1", "F2"),
            (3, "version of Plimsoll", "0.1.0", "0.2.0"),
        ];
        assert_eq!(history[0].renewals(), expected);
    }

    #[test]
    fn two_disks_on_one_path_are_two_histories() {
        let on = |serial: &str, started_unix_ms| swept("a scratch file in /mnt", "/mnt", serial, started_unix_ms);
        let name = "a scratch file in /mnt psync";
        assert_eq!(told(&[on("", 0), on("A", 1), on("A", 2)]), [(name.into(), 3)], "an earlier version's");
        let both = told(&[on("A", 1), on("B", 2), on("A", 3)]);
        assert_eq!(both, [(format!("{name}, A"), 2), (format!("{name}, B"), 1)]);
    }

    #[test]
    fn the_reason_is_that_of_the_sweep() {
        let reason = |line: Option<LoadLine>| {
            let curve = Curve { line, ..Curve::default() };
            entry(Path::new("a.json"), &SweepResult::default(), &curve).reason()
        };
        let rising = LoadLine { still_rising: true, ..LoadLine::default() };
        assert_eq!(reason(Some(rising.clone())), "the curve is still rising");
        assert_eq!(reason(Some(LoadLine { unnamed: Some("too few visits".into()), ..rising })), "too few visits");
        assert_eq!(reason(None), "the sweep has too few points");
    }
}
