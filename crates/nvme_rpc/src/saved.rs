//! The configuration on disk (`plimsoll serve --state DIR`): saved before the answer to each call that changes it.
//!
//! ```text
//! DIR/lock                 held by the one target that uses DIR
//! DIR/configuration.json   the calls that make the configuration, and those that it began with
//! DIR/reservations/UUID    reservations of each namespace that names no file of its own
//! DIR/machine              the identity of a machine that has none itself
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nvme::uuid;
use nvme_target::identity;
use serde_json::{Value, json};

use super::config::{self, Step};

/// The version of the file's form.
const FORM: u64 = 1;

/// The directory of one target's state. Only one process has it at a time.
pub struct StateDirectory {
    path: PathBuf,
    /// Locked for as long as this is open.
    _lock: File,
    /// The configuration that the user gave when the state began.
    begun_with: Value,
    /// The calls that were saved last.
    saved: Option<Vec<Step>>,
}

impl StateDirectory {
    /// Takes the directory, and creates it if it is not there. `given` is the configuration that the user gives now.
    ///
    /// # Errors
    /// One line: another target uses the directory, its content is damaged, it began with another configuration than
    /// `given`, or the system refuses.
    pub fn open(path: &Path, given: Value) -> Result<StateDirectory, String> {
        let system = |what: &str, error: io::Error| format!("--state {}: {what}: {error}", path.display());
        let reservations = path.join("reservations");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&reservations)
            .map_err(|error| system("cannot create the directory", error))?;
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"));
        let lock = lock.map_err(|error| system("cannot open its lock", error))?;
        if !sys::file::lock_after_others(&lock, true).map_err(|error| system("cannot lock it", error))? {
            let who = sys::file::lock_holder(&lock).map_or("another target".into(), |pid| format!("process {pid}"));
            return Err(format!("--state {}: {who} uses it: give each target its own directory", path.display()));
        }
        for place in [path, &reservations] {
            remove_partial_files(place).map_err(|error| system("cannot remove what a crash left", error))?;
        }
        identity::keep_machine(&path.join("machine"))
            .map_err(|error| system("cannot keep the machine's name", error))?;
        let mut directory = StateDirectory { path: path.to_path_buf(), _lock: lock, begun_with: given, saved: None };
        directory.load()?;
        Ok(directory)
    }

    /// Reads the file, if there is one.
    fn load(&mut self) -> Result<(), String> {
        let file = self.file();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
        };
        let (begun_with, steps) = parse(&text).map_err(|why| {
            format!("{} is damaged: {why}; restore it from a copy, or begin anew in another directory", file.display())
        })?;
        if self.begun_with.is_null() {
            self.begun_with = begun_with;
        } else if self.begun_with != begun_with {
            return Err(format!(
                "{} began with another configuration than the command line gives: leave out the options that \
                 configure (-c, --null, --mem, --file, --listen, ...), or begin anew in another directory",
                file.display()
            ));
        }
        self.saved = Some(steps);
        Ok(())
    }

    fn file(&self) -> PathBuf {
        self.path.join("configuration.json")
    }

    /// The calls that make the saved configuration; `None` if the state begins now.
    pub fn steps(&self) -> Option<&[Step]> {
        self.saved.as_deref()
    }

    /// The file for the reservations of the namespace with that UUID.
    pub fn reservations(&self, uuid: &[u8; 16]) -> PathBuf {
        self.path.join("reservations").join(uuid::text(uuid))
    }

    /// Saves the calls, and that they come from this configuration of the user: a later start with it goes on.
    ///
    /// # Errors
    /// As for [`StateDirectory::save`].
    pub fn begin_with(&mut self, given: Value, made: &[Step]) -> Result<(), String> {
        let before = std::mem::replace(&mut self.begun_with, given);
        if before != self.begun_with {
            self.saved = None;
        }
        self.save(made)
    }

    /// Saves the calls. The file has those from before or these, whatever happens meanwhile.
    ///
    /// # Errors
    /// One line: the file cannot be written, and has the calls from before.
    pub fn save(&mut self, made: &[Step]) -> Result<(), String> {
        let made: Vec<Step> = made.iter().map(with_absolute_paths).collect();
        if self.saved.as_ref() == Some(&made) {
            return Ok(());
        }
        let object = json!({
            "plimsoll_state": FORM,
            "begun_with": self.begun_with,
            "subsystems": config::grouped(&made),
        });
        let file = self.file();
        sys::replace::replace(&file, format!("{object:#}\n").as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        self.saved = Some(made);
        Ok(())
    }
}

/// Reads `configuration.json`: the configuration that a state began with, and its present calls.
///
/// # Errors
/// One line: the text is not of this form.
pub fn parse(text: &str) -> Result<(Value, Vec<Step>), String> {
    let mut value: Value = serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}"))?;
    if value["plimsoll_state"] != FORM {
        return Err(format!("\"plimsoll_state\" is not {FORM}"));
    }
    let begun_with = value.get_mut("begun_with").map(Value::take).ok_or("\"begun_with\" is missing")?;
    let mut steps = config::parse(&json!({ "subsystems": value["subsystems"].take() }).to_string())?;
    // A file that is missing now is a disk that is missing: a new one in its place would be empty.
    for params in steps.iter_mut().filter_map(|step| step.params.as_mut()?.as_object_mut()) {
        params.remove("create_size");
    }
    Ok((begun_with, steps))
}

/// The call with the paths of files as they are from any directory: the next start may be in another one, where the
/// same relative path names another disk.
fn with_absolute_paths(step: &Step) -> Step {
    let mut step = step.clone();
    step.params.iter_mut().for_each(make_paths_absolute);
    step
}

/// Makes the paths in the parameters of a call absolute.
pub fn make_paths_absolute(params: &mut Value) {
    for place in ["/filename", "/path", "/namespace/ptpl_file"] {
        if let Some(Value::String(path)) = params.pointer_mut(place)
            && let Some(absolute) = std::path::absolute(&*path).ok().as_deref().and_then(Path::to_str)
        {
            *path = absolute.into();
        }
    }
}

/// Removes the files that a process did not finish.
fn remove_partial_files(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name().to_string_lossy().ends_with(".part") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u32) -> Step {
        let params = Some(json!({ "name": format!("Null{number}"), "create_size": 4096 }));
        Step { subsystem: "bdev".into(), method: "bdev_null_create".into(), params }
    }

    #[test]
    fn calls_come_back_without_the_creation_of_files() {
        let place = tempfile::tempdir().expect("a directory");
        let given = json!(["--null 8g"]);
        let mut directory = StateDirectory::open(place.path(), given.clone()).expect("a new one");
        assert_eq!(directory.steps(), None);
        directory.save(&[step(1)]).expect("saved");
        fs::write(place.path().join("configuration.json.99.part"), "half").expect("written");
        drop(directory);
        let mut expected = step(1);
        expected.params = Some(json!({ "name": "Null1" }));
        for given in [given, Value::Null] {
            let directory = StateDirectory::open(place.path(), given).expect("it is there");
            assert_eq!(directory.steps(), Some(&[expected.clone()][..]));
        }
        assert!(!place.path().join("configuration.json.99.part").exists());
        let error = StateDirectory::open(place.path(), json!(["--null 4g"])).err().expect("another configuration");
        assert!(error.contains("began with another configuration"), "{error}");
    }

    #[test]
    fn a_directory_in_use_and_a_damaged_file_are_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let first = StateDirectory::open(place.path(), Value::Null).expect("a new one");
        let error = StateDirectory::open(place.path(), Value::Null).err().expect("it is in use");
        assert!(error.contains(&format!("process {} uses it", std::process::id())), "{error}");
        drop(first);
        for text in ["", "{}", "{\"plimsoll_state\":1}", "{\"plimsoll_state\":1,\"begun_with\":null,\"subsystems\":0}"]
        {
            fs::write(place.path().join("configuration.json"), text).expect("written");
            let error = StateDirectory::open(place.path(), Value::Null).err().expect(text);
            assert!(error.contains("is damaged"), "{error}");
            assert_eq!(fs::read_to_string(place.path().join("configuration.json")).expect("there"), text);
        }
    }
}
