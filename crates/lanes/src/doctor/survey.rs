//! The facts that the kernel reports about the lanes. A separate thread asks about each lane: a mount whose server is
//! gone may not answer for minutes, and must not keep the others from being heard.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags, StatxFlags};

use super::connections::{self, Connection};
use super::mounts::{self, Mount};
use crate::identity::Facts;
use crate::pool::Pool;

/// The options of a survey.
#[derive(Clone, Debug)]
pub struct Options {
    /// A file below every lane to compare and to measure with; None for the largest one in the lanes' own directory.
    pub file: Option<PathBuf>,
    /// True if the survey may write a file, and remove it again, to see if all lanes have it.
    pub write_probe: bool,
    /// The time in which a lane must answer.
    pub patience: Duration,
}

/// The reason why a lane cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The lane gave no answer in time.
    Silent,
    /// The lane's directory could not be opened, with the text of the error.
    Failed(String),
}

/// The facts about a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneFacts {
    /// The lane's path.
    pub path: PathBuf,
    /// The reason why nothing more is known; None if the lane answers.
    pub trouble: Option<Trouble>,
    /// The mount that the lane's directory lies on.
    pub mount: Option<Mount>,
    /// The facts of the lane's directory.
    pub directory: Option<Facts>,
    /// The facts of the compared file on this lane, or the reason why there are none. None if no file was compared.
    pub file: Option<Result<Facts, String>>,
    /// True if the lane shows the file that was written through the first lane; None if nothing was written or the lane
    /// did not answer.
    pub sees_write: Option<bool>,
    /// The lane's connections, if it is NFS and the kernel tells them.
    pub connections: Vec<Connection>,
}

/// The facts about the lanes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The facts about each lane, in the order of the pool.
    pub lanes: Vec<LaneFacts>,
    /// The file that was compared, below each lane.
    pub file: Option<PathBuf>,
    /// The reason why the probe file could not be written; None if it was written or not wanted.
    pub write_trouble: Option<String>,
}

/// Looks at the lanes of a pool. Nothing is written unless the options say so.
pub fn survey(pool: &Pool, options: &Options) -> Survey {
    let paths: Vec<PathBuf> = pool.lanes.iter().map(|lane| lane.path.clone()).collect();
    let directories = each(&paths, options.patience, look_at_directory);
    let mounts = mounts::parse(&fs::read("/proc/self/mountinfo").unwrap_or_default());
    let connections = connections::parse(&fs::read("/proc/self/mountstats").unwrap_or_default());
    let mut lanes: Vec<LaneFacts> = Vec::new();
    for (path, found) in paths.iter().zip(directories) {
        let mut lane = LaneFacts { path: path.clone(), ..LaneFacts::default() };
        match found {
            None => lane.trouble = Some(Trouble::Silent),
            Some(Err(error)) => lane.trouble = Some(Trouble::Failed(error)),
            Some(Ok((facts, id))) => {
                lane.directory = Some(facts);
                lane.mount = mount_of(path, id, &mounts).cloned();
                let point = lane.mount.as_ref().map(|mount| mount.point.as_path());
                let of_mount = connections.iter().find(|mount| Some(mount.point.as_path()) == point);
                lane.connections = of_mount.map(|mount| mount.all.clone()).unwrap_or_default();
            }
        }
        // A mount that gives no answer is still in the table.
        if lane.mount.is_none() {
            lane.mount = mounts.iter().rev().find(|mount| mount.point == *path).cloned();
        }
        lanes.push(lane);
    }
    let mut survey = Survey { lanes, file: None, write_trouble: None };
    compare_files(&mut survey, options);
    survey
}

fn compare_files(survey: &mut Survey, options: &Options) {
    let there: Vec<usize> = (0..survey.lanes.len()).filter(|&lane| survey.lanes[lane].trouble.is_none()).collect();
    let Some(&first) = there.first() else { return };
    let paths: Vec<PathBuf> = there.iter().map(|&lane| survey.lanes[lane].path.clone()).collect();
    let written = if options.write_probe {
        match Written::new(&survey.lanes[first].path) {
            Ok(written) => Some(written),
            Err(error) => {
                survey.write_trouble = Some(error.to_string());
                None
            }
        }
    } else {
        None
    };
    if let Some(written) = &written {
        let (name, content) = (written.name.clone(), written.content.clone());
        let seen = each(&paths, options.patience, move |path| reads(&path.join(&name), &content));
        for (&lane, seen) in there.iter().zip(seen) {
            survey.lanes[lane].sees_write = seen;
        }
    }
    let chosen =
        options.file.clone().or_else(|| each(&paths[..1], options.patience, largest_file).pop().flatten().flatten());
    let chosen = chosen.or_else(|| written.as_ref().map(|written| written.name.clone()));
    if let Some(name) = chosen {
        let at = name.clone();
        let found = each(&paths, options.patience, move |path| look_at_file(&path.join(&at)));
        for (&lane, found) in there.iter().zip(found) {
            survey.lanes[lane].file = Some(found.unwrap_or_else(|| Err("no answer".into())));
        }
        // The file that was written for the comparison is removed when this function returns: it cannot serve to
        // measure with.
        survey.file = Some(name).filter(|name| written.as_ref().is_none_or(|written| written.name != *name));
    }
}

/// The answers of `ask` for each path, in their order; None for a path that has not answered in time. The thread of
/// such a path is left behind.
fn each<T: Send + 'static>(
    paths: &[PathBuf],
    patience: Duration,
    ask: impl Fn(&Path) -> T + Clone + Send + 'static,
) -> Vec<Option<T>> {
    let (answer, answers) = mpsc::channel();
    for (index, path) in paths.iter().enumerate() {
        let (answer, ask, path) = (answer.clone(), ask.clone(), path.clone());
        // A thread that cannot be started counts as a lane that does not answer.
        let _ = std::thread::Builder::new().name("lane".into()).spawn(move || answer.send((index, ask(&path))));
    }
    drop(answer);
    let mut found: Vec<Option<T>> = paths.iter().map(|_| None).collect();
    let end = Instant::now() + patience;
    while let Ok((index, answer)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
        found[index] = Some(answer);
    }
    found
}

/// The facts of a lane's directory and the id of the mount that it lies on.
fn look_at_directory(path: &Path) -> Result<(Facts, u64), String> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    let directory = File::options().read(true).custom_flags(flags).open(path).map_err(|error| error.to_string())?;
    let facts = Facts::of(directory.as_fd()).map_err(|difference| difference.to_string())?;
    let stat = rustix::fs::statx(&directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    Ok((facts, stat.map_or(0, |stat| stat.stx_mnt_id)))
}

fn look_at_file(path: &Path) -> Result<Facts, String> {
    // O_NONBLOCK: the open of a FIFO does not wait.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|error| error.to_string())?;
    Facts::of(file.as_fd()).map_err(|difference| difference.to_string())
}

/// The mount with this id, or else the last one at the longest beginning of the path.
fn mount_of<'a>(path: &Path, id: u64, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let by_id = mounts.iter().find(|mount| mount.id == id);
    by_id.or_else(|| {
        mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.components().count())
    })
}

/// Names that a directory is searched for: a search through more names would take longer than anybody waits.
const NAMES_MAX: usize = 10_000;

/// The largest regular file in a directory itself, as a name. Hidden files are left out, they are somebody's own
/// business: the probe file of this module, files that NFS keeps until they are closed.
fn largest_file(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.take(NAMES_MAX).flatten();
    let files = entries.filter_map(|entry| {
        let data = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            return None;
        }
        Some((data.size(), PathBuf::from(entry.file_name())))
    });
    // Of files of the same size the smallest name wins, so that the choice is the same each time.
    files.max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1))).map(|(_, name)| name)
}

/// A file that this process has written, removed when dropped.
struct Written {
    path: PathBuf,
    name: PathBuf,
    content: Vec<u8>,
}

impl Written {
    fn new(directory: &Path) -> io::Result<Written> {
        let name = PathBuf::from(format!(".plimsoll-probe-{}", std::process::id()));
        let path = directory.join(&name);
        let mut content = vec![0; 64];
        File::open("/dev/urandom")?.read_exact(&mut content)?;
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        let written = Written { path, name, content };
        io::Write::write_all(&mut file, &written.content)?;
        file.sync_all()?;
        Ok(written)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // the lane may be gone by now
    }
}

fn reads(path: &Path, content: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { file: None, write_probe: false, patience: Duration::from_secs(60) }
    }

    #[test]
    fn one_directory_twice_is_one_volume() {
        let directory = tempfile::tempdir().unwrap();
        let link = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(directory.path(), link.path().join("other")).unwrap();
        fs::write(directory.path().join("small"), "x").unwrap();
        fs::write(directory.path().join("large"), "xxxx").unwrap();
        let pool = Pool::new("p", [directory.path().to_owned(), link.path().join("other")]);
        let found = survey(&pool, &Options { write_probe: true, ..options() });
        assert_eq!(found.file, Some("large".into()));
        assert!(found.lanes.iter().all(|lane| lane.trouble.is_none() && lane.sees_write == Some(true)));
        assert_eq!(found.lanes[0].file, found.lanes[1].file);
        assert!(found.lanes[0].mount.is_some());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "the probe is gone");
    }

    #[test]
    fn what_is_not_there_says_why() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "x").unwrap();
        let pool =
            Pool::new("p", [directory.path().join("none"), directory.path().join("file"), directory.path().into()]);
        let found = survey(&pool, &options());
        let trouble = |lane: usize| match &found.lanes[lane].trouble {
            Some(Trouble::Failed(text)) => text.clone(),
            other => format!("{other:?}"),
        };
        assert!(trouble(0).contains("No such file") && trouble(1).contains("Not a directory"));
        assert_eq!(found.lanes[2].trouble, None);
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let (release, wait) = mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let ask = move |path: &Path| {
            if path == Path::new("silent") {
                let _ = wait.lock().unwrap().recv();
            }
            path.to_owned()
        };
        let paths = ["a", "silent", "b"].map(PathBuf::from);
        let found = each(&paths, Duration::from_millis(200), ask);
        assert_eq!(found[1], None);
        drop(release);
    }
}
