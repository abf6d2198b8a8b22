//! The file that reservations of a namespace persist in: JSON with the members of SPDK's `ptpl_file`, so that a file
//! may change from one target to the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nvme::spec::reservation::{HostId, ReservationType};
use nvme::uuid;
use serde_json::{Value, json};

use super::rules::{MOST_REGISTRANTS, Registrant, Reservation, Rules};
use crate::device::{Error, ErrorKind};

/// The most bytes that a file may have: 256 registrants take 30 KiB.
const MOST_BYTES: u64 = 1 << 20;

/// A file that stores of this process have, and no other process.
#[derive(Debug)]
struct Held {
    /// The number of the store that may write the file. A store that loads the file takes the next number.
    turn: Mutex<u64>,
    /// Locked for as long as this is open. A rename replaces the file itself, which therefore cannot carry the lock.
    _lock: File,
}

/// All files that stores of this process have.
static HELD: Mutex<BTreeMap<PathBuf, Weak<Held>>> = Mutex::new(BTreeMap::new());

/// The file of one namespace.
#[derive(Debug)]
pub(super) struct Store {
    file: PathBuf,
    namespace_uuid: [u8; 16],
    /// True if the file keeps reservations that end with a loss of power, too.
    outlives: bool,
    /// The file, and the turn of this store, once it has loaded the file.
    held: Option<(Arc<Held>, u64)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a file, whatever path names it, for this process.
///
/// # Errors
/// `Busy` if another process has it; the file of its lock cannot be made.
fn hold(file: &Path) -> Result<Arc<Held>, Error> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    let mut held = locked(&HELD);
    held.retain(|_, file| file.strong_count() > 0);
    let entry = held.entry(directory.join(&name)).or_default();
    if let Some(present) = entry.upgrade() {
        return Ok(present);
    }
    name.push(".lock");
    let cannot = |error| Error::system(format!("cannot lock the reservations in {}", file.display()), error);
    let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(directory.join(name));
    let lock = lock.map_err(cannot)?;
    if !sys::file::lock_after_others(&lock, true).map_err(cannot)? {
        let who = sys::file::lock_holder(&lock).map_or("another process".into(), |pid| format!("process {pid}"));
        let why = format!("{who} keeps reservations in {}: give each target its own file", file.display());
        return Err(Error::new(ErrorKind::Busy, why));
    }
    let taken = Arc::new(Held { turn: Mutex::default(), _lock: lock });
    *entry = Arc::downgrade(&taken);
    Ok(taken)
}

impl Store {
    pub fn new(file: PathBuf, namespace_uuid: [u8; 16], outlives: bool) -> Store {
        Store { file, namespace_uuid, outlives, held: None }
    }

    /// True if the file keeps those rules.
    pub fn keeps(&self, rules: &Rules) -> bool {
        rules.persists || self.outlives
    }

    /// The rules in the file, which this store alone writes from now on: a command that still waits for a namespace
    /// that was removed must not write over those of the namespace that was added in its place.
    ///
    /// # Errors
    /// As [`Store::read`] and [`hold`]; the store from before keeps the file.
    pub fn load(&mut self) -> Result<Rules, Error> {
        self.read()?; // a file of another kind gets no lock beside it
        let held = hold(&self.file)?;
        let mut turn = locked(&held.turn);
        let rules = self.read()?;
        *turn += 1;
        self.held = Some((Arc::clone(&held), *turn));
        drop(turn);
        Ok(rules)
    }

    /// The rules in the file; none if there is no file, or if they were not to persist.
    ///
    /// # Errors
    /// The file cannot be read, or new files cannot be written beside it; it has another form, or another namespace's
    /// reservations. A target that went on without them would let hosts write that were locked out.
    fn read(&self) -> Result<Rules, Error> {
        let name = self.file.display();
        let wrong = |why: String| {
            Error::invalid(format!(
                "{name} does not hold the reservations of this namespace: {why}; give another file, or remove this one \
                 if no host relies on its reservations"
            ))
        };
        // A pipe or a device is not read: it may have no end.
        let text = std::fs::metadata(&self.file).and_then(|there| match there.is_file() && there.len() <= MOST_BYTES {
            true => std::fs::read_to_string(&self.file).map(Some),
            false => Ok(None),
        });
        let text = match text {
            Ok(Some(text)) => text,
            Ok(None) => return Err(wrong(format!("not a regular file of at most {MOST_BYTES} bytes"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
                return match directory.unwrap_or(Path::new(".")).metadata() {
                    Ok(_) => Ok(Rules::default()),
                    Err(error) => Err(Error::system(format!("the directory of {name}, for reservations"), error)),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(wrong("no text".into())),
            Err(error) => return Err(Error::system(format!("cannot read the reservations in {name}"), error)),
        };
        let value: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("no JSON: {error}")))?;
        let rules = parse(&value, &self.namespace_uuid).map_err(wrong)?;
        Ok(if self.keeps(&rules) { rules } else { Rules::default() })
    }

    /// Writes the rules. The file has those from before or the new ones, whatever happens meanwhile.
    ///
    /// # Errors
    /// The file cannot be written; another namespace has it now.
    pub fn save(&self, rules: &Rules) -> Result<(), Error> {
        let gone = || {
            let name = self.file.display();
            Error::invalid(format!("its namespace was removed, and another one has {name} now"))
        };
        let (held, own) = self.held.as_ref().ok_or_else(gone)?;
        let turn = locked(&held.turn);
        if *turn != *own {
            return Err(gone());
        }
        let kept = if self.keeps(rules) { rules.clone() } else { Rules::default() };
        let text = format!("{:#}\n", object(&kept, &self.namespace_uuid));
        sys::replace::replace(&self.file, text.as_bytes())
            .map_err(|error| Error::system(format!("cannot write the reservations to {}", self.file.display()), error))
    }
}

/// The members of SPDK's file.
fn object(kept: &Rules, namespace_uuid: &[u8; 16]) -> Value {
    let mut object = json!({
        "ptpl": kept.persists,
        "bdev_uuid": uuid::text(namespace_uuid),
        "registrants": kept.registrants.iter().map(|registrant| {
            json!({ "rkey": registrant.key, "host_uuid": uuid::text(&registrant.host) })
        }).collect::<Vec<_>>(),
        "rtype": 0,
    });
    if let Some(held) = kept.reservation {
        // SPDK names one holder, even if all registrants hold the reservation.
        let holder = match held.kind.is_held_by_all() {
            true => kept.registrants.first().map_or(held.holder, |registrant| registrant.host),
            false => held.holder,
        };
        object["rtype"] = json!(held.kind as u8);
        object["crkey"] = json!(kept.key_of(&holder).unwrap_or_default());
        object["holder_uuid"] = json!(uuid::text(&holder));
    }
    object
}

/// The rules of a file's object; an error says what is wrong with the object.
fn parse(value: &Value, namespace_uuid: &[u8; 16]) -> Result<Rules, String> {
    let object = value.as_object().ok_or("no object")?;
    let uuid = |value: &Value, name: &str| -> Result<HostId, String> {
        value.as_str().and_then(uuid::parse).ok_or(format!("{name} is not a UUID"))
    };
    let member = |name: &str| object.get(name).ok_or(format!("{name} is missing"));
    let persists = member("ptpl")?.as_bool().ok_or("ptpl is not true or false")?;
    let of = uuid(member("bdev_uuid")?, "bdev_uuid")?;
    if of != *namespace_uuid {
        return Err(format!("they are of {}, and this is {}", uuid::text(&of), uuid::text(namespace_uuid)));
    }
    let mut rules = Rules { persists, ..Rules::default() };
    let registrants = member("registrants")?.as_array().ok_or("registrants is not an array")?;
    if registrants.len() > MOST_REGISTRANTS {
        return Err(format!("{} registrants are more than {MOST_REGISTRANTS}", registrants.len()));
    }
    for registrant in registrants {
        let key = registrant["rkey"].as_u64().filter(|key| *key != 0).ok_or("an rkey is not a key")?;
        let host = uuid(&registrant["host_uuid"], "a host_uuid")?;
        if rules.key_of(&host).is_some() {
            return Err(format!("host {} is there twice", uuid::text(&host)));
        }
        rules.registrants.push(Registrant { host, key });
    }
    let kind = member("rtype")?.as_u64().and_then(|kind| u8::try_from(kind).ok()).ok_or("rtype is not a type")?;
    if kind != 0 {
        let kind = ReservationType::of(kind).ok_or(format!("rtype {kind} is not a type"))?;
        let holder = uuid(member("holder_uuid")?, "holder_uuid")?;
        if rules.key_of(&holder).is_none() {
            return Err("the holder is not a registrant".into());
        }
        rules.reservation = Some(Reservation { kind, holder });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMESPACE: [u8; 16] = [7; 16];

    fn rules(persists: bool, keys: &[u64], kind: Option<ReservationType>) -> Rules {
        let registrants = keys.iter().enumerate().map(|(at, key)| Registrant { host: [at as u8; 16], key: *key });
        let reservation = kind.filter(|_| !keys.is_empty()).map(|kind| Reservation { kind, holder: [0; 16] });
        Rules { generation: 0, persists, registrants: registrants.collect(), reservation }
    }

    proptest! {
        #[test]
        fn rules_that_persist_come_back_and_others_do_not(
            keys in proptest::collection::vec(1..u64::MAX, 0..4),
            kind in 0..7u8,
            persists: bool,
        ) {
            let dir = tempfile::tempdir().expect("a directory");
            let mut store = Store::new(dir.path().join("ns.json"), NAMESPACE, false);
            prop_assert_eq!(store.load().expect("no file"), Rules::default());
            let stored = rules(persists, &keys, ReservationType::of(kind));
            store.save(&stored).expect("saved");
            let expected = if persists { stored } else { Rules::default() };
            prop_assert_eq!(store.load().expect("loaded"), expected);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in r#"([\[\]{},:]|"(ptpl|rtype|bdev_uuid|registrants)"|true|[0-9]|.){0,40}"#) {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert!(parse(&value, &NAMESPACE).is_err());
            }
        }
    }

    #[test]
    fn a_file_that_outlives_its_target_keeps_what_does_not_persist() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ns.json");
        let stored = rules(false, &[1, 2], Some(ReservationType::WriteExclusive));
        let mut one = Store::new(file.clone(), NAMESPACE, true);
        one.load().expect("no file");
        one.save(&stored).expect("saved");
        assert_eq!(Store::new(file.clone(), NAMESPACE, true).load().expect("loaded"), stored);
        assert_eq!(Store::new(file, NAMESPACE, false).load().expect("loaded"), Rules::default());
    }

    #[test]
    fn a_store_whose_namespace_was_replaced_writes_no_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ns.json");
        let mut old = Store::new(file.clone(), NAMESPACE, false);
        old.load().expect("no file");
        old.save(&rules(true, &[1], None)).expect("saved");
        Store::new(file.clone(), [8; 16], false).load().expect_err("another namespace's");
        old.save(&rules(true, &[1, 2], None)).expect("it still has the file");
        let mut new = Store::new(dir.path().join(".").join("ns.json"), NAMESPACE, false);
        assert_eq!(new.load().expect("loaded"), rules(true, &[1, 2], None));
        old.save(&rules(true, &[3], None)).expect_err("it comes too late");
        new.save(&rules(true, &[4], None)).expect("saved");
        old.save(&rules(true, &[5], None)).expect_err("it comes too late");
        assert_eq!(Store::new(file, NAMESPACE, false).load().expect("loaded"), rules(true, &[4], None));
    }

    /// Locks of one process exclude each other as those of two do (flock(2)).
    #[test]
    fn a_file_belongs_to_one_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ns.json");
        let lock = || File::options().write(true).create(true).truncate(false).open(dir.path().join("ns.json.lock"));
        let other = lock().expect("made");
        assert!(sys::file::try_lock(&other, true).expect("locks"));
        let error = Store::new(file.clone(), NAMESPACE, false).load().expect_err("another process has it").to_string();
        assert!(error.contains(&format!("process {} keeps reservations in ", std::process::id())), "{error}");
        drop(other);
        let mut mine = Store::new(file.clone(), NAMESPACE, false);
        mine.load().expect("it is free");
        mine.save(&rules(true, &[1], None)).expect("saved");
        assert!(!sys::file::try_lock(&lock().expect("there"), true).expect("locks"), "also once it was replaced");
        drop(mine);
        assert!(sys::file::try_lock(&lock().expect("there"), true).expect("locks"));
    }

    #[test]
    fn what_is_not_this_namespaces_is_told() {
        let good = object(&rules(true, &[1, 2], Some(ReservationType::WriteExclusive)), &NAMESPACE);
        assert!(parse(&good, &NAMESPACE).is_ok());
        assert!(parse(&good, &[8; 16]).unwrap_err().contains("they are of"));
        let with = |name: &str, value: Value| {
            let mut bad = good.clone();
            bad[name] = value;
            parse(&bad, &NAMESPACE).unwrap_err()
        };
        for path in ["/dev/zero", "/dev/null", "/proc"] {
            let error = Store::new(path.into(), NAMESPACE, false).load().expect_err(path).to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        assert_eq!(with("rtype", json!(7)), "rtype 7 is not a type");
        assert_eq!(with("ptpl", json!(1)), "ptpl is not true or false");
        assert_eq!(with("holder_uuid", json!(uuid::text(&[9; 16]))), "the holder is not a registrant");
        let twice =
            json!([{"rkey": 1, "host_uuid": uuid::text(&[0; 16])}, {"rkey": 2, "host_uuid": uuid::text(&[0; 16])}]);
        assert!(with("registrants", twice).contains("twice"));
        let keyless = json!([{"rkey": 0, "host_uuid": uuid::text(&[0; 16])}]);
        assert_eq!(with("registrants", keyless), "an rkey is not a key");
    }
}
