//! Requirements that hold for every file system under small-file workloads, and that all of them see the same files: a
//! local one, a Gluster volume through FUSE, and the same volume through libgfapi.

use std::ffi::{CStr, CString};
use std::io;
use std::path::{Path, PathBuf};

use load::smallfiles::{EntryKind, FileSystem, Handle, Posix, Stat, Target};

/// A file system and an empty directory on it.
struct Place {
    fs: Box<dyn FileSystem>,
    directory: String,
}

impl Place {
    fn local(directory: &Path) -> Place {
        Place { fs: Box::new(Posix), directory: directory.display().to_string() }
    }

    fn path(&self, name: &str) -> CString {
        CString::new(format!("{}/{name}", self.directory)).unwrap()
    }

    fn write(&self, name: &str, content: &[u8]) {
        let mut file = self.fs.open(&self.path(name), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o640).unwrap();
        all(content, |part| file.write(part));
        file.close().unwrap();
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut file = self.fs.open(&self.path(name), libc::O_RDONLY, 0)?;
        let (mut content, mut part) = (Vec::new(), [0; 3000]);
        loop {
            match file.read(&mut part)? {
                0 => return file.close().map(|()| content),
                count => content.extend_from_slice(&part[..count]),
            }
        }
    }

    fn names(&self, directory: &str) -> Vec<(String, EntryKind)> {
        let mut found = Vec::new();
        let mut entry = |name: &CStr, kind| found.push((name.to_str().unwrap().to_owned(), kind));
        self.fs.readdir(&self.path(directory), &mut entry).unwrap();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }
}

fn all(mut content: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) {
    while !content.is_empty() {
        let count = write(content).unwrap();
        content = &content[count..];
    }
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).expect("an error number")
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Every call of the trait, its results and its refusals.
fn keeps_the_contract(place: &Place) {
    let Place { fs, .. } = place;
    let content = pattern(1, 70_001);
    place.write("a", &content);
    assert_eq!(place.read("a").unwrap(), content);

    let found = fs.stat(&place.path("a")).unwrap();
    assert_eq!((found.kind, found.mode, found.len, found.links), (EntryKind::File, 0o640, 70_001, 1));
    assert_eq!(errno(fs.open(&place.path("a"), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600)), libc::EEXIST);
    assert_eq!(errno(fs.open(&place.path("none"), libc::O_RDONLY, 0)), libc::ENOENT);
    assert_eq!(errno(fs.open(&place.path("no/file"), libc::O_WRONLY | libc::O_CREAT, 0o600)), libc::ENOENT);

    positions(place, content);
    names(place);
    directories(place);

    let user = c"user.plimsoll";
    match fs.setxattr(&place.path("b"), user, b"value") {
        Ok(()) => {
            let mut value = [0; 64];
            assert_eq!(fs.getxattr(&place.path("b"), user, &mut value).unwrap(), 5);
            assert_eq!(&value[..5], b"value");
            assert_eq!(errno(fs.getxattr(&place.path("b"), user, &mut value[..2])), libc::ERANGE);
            fs.removexattr(&place.path("b"), user).unwrap();
            assert_eq!(errno(fs.getxattr(&place.path("b"), user, &mut value)), libc::ENODATA);
        }
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
    }
    let space = fs.space(&place.path("")).unwrap();
    assert!(space.available_bytes > 0 && space.available_files > 0);

    fs.unlink(&place.path("b")).unwrap();
    assert_eq!(errno(fs.unlink(&place.path("b"))), libc::ENOENT);
    assert_eq!(errno(fs.stat(&place.path("b"))), libc::ENOENT);
    assert!(place.names("").is_empty(), "nothing is left");
}

/// Reads, writes, lengths: at the file position and elsewhere.
fn positions(place: &Place, mut content: Vec<u8>) {
    let fs = &place.fs;
    let mut file = fs.open(&place.path("a"), libc::O_RDWR, 0).unwrap();
    let patch = pattern(2, 5000);
    all(&patch, |part| file.pwrite(part, 60_000 + (5000 - part.len()) as u64));
    content[60_000..65_000].copy_from_slice(&patch);
    let mut part = vec![0; 6000];
    assert_eq!(file.pread(&mut part, 70_000).unwrap(), 1, "a short read is a result");
    assert_eq!(file.pread(&mut part, 90_000).unwrap(), 0);
    assert_eq!(file.pread(&mut part, 59_500).unwrap(), 6000);
    assert_eq!(part, content[59_500..65_500]);
    file.fdatasync().unwrap();
    file.fsync().unwrap();
    file.ftruncate(80_000).unwrap();
    assert_eq!(file.fstat().unwrap().len, 80_000);
    file.ftruncate(65_000).unwrap();
    file.close().unwrap();
    content.truncate(65_000);
    assert_eq!(place.read("a").unwrap(), content);

    let mut file = fs.open(&place.path("a"), libc::O_WRONLY | libc::O_APPEND, 0).unwrap();
    all(&patch, |part| file.write(part));
    file.close().unwrap();
    content.extend_from_slice(&patch);
    assert_eq!(place.read("a").unwrap(), content);
    fs.truncate(&place.path("a"), 100).unwrap();
    assert_eq!(place.read("a").unwrap(), content[..100]);
    let truncated = fs.open(&place.path("a"), libc::O_WRONLY | libc::O_TRUNC, 0).unwrap();
    truncated.close().unwrap();
    assert!(place.read("a").unwrap().is_empty());
    fs.chmod(&place.path("a"), 0o600).unwrap();
    assert_eq!(fs.stat(&place.path("a")).unwrap().mode, 0o600);
}

/// Links and renames.
fn names(place: &Place) {
    let fs = &place.fs;
    fs.link(&place.path("a"), &place.path("hard")).unwrap();
    assert_eq!(fs.lstat(&place.path("hard")).unwrap().links, 2);
    fs.symlink(c"a", &place.path("soft")).unwrap();
    let mut text = [0; 10];
    assert_eq!(fs.readlink(&place.path("soft"), &mut text).unwrap(), 1);
    assert_eq!(text[0], b'a');
    assert_eq!(fs.lstat(&place.path("soft")).unwrap().kind, EntryKind::Symlink);
    assert_eq!(fs.stat(&place.path("soft")).unwrap().kind, EntryKind::File);
    fs.unlink(&place.path("soft")).unwrap();
    fs.unlink(&place.path("hard")).unwrap();
    place.write("b", b"replaced");
    fs.rename(&place.path("a"), &place.path("b")).unwrap();
    assert!(place.read("b").unwrap().is_empty());
    assert_eq!(errno(place.read("a")), libc::ENOENT);
}

fn directories(place: &Place) {
    let fs = &place.fs;
    fs.mkdir(&place.path("d"), 0o755).unwrap();
    assert_eq!(errno(fs.mkdir(&place.path("d"), 0o755)), libc::EEXIST);
    for index in 0..300 {
        place.write(&format!("d/{index:03}"), &pattern(index, index as usize));
    }
    assert_eq!(errno(fs.rmdir(&place.path("d"))), libc::ENOTEMPTY);
    let mut sizes = Vec::new();
    let mut entry = |name: &CStr, stat: &Stat| {
        sizes.push((name.to_str().unwrap().parse::<u64>().unwrap(), stat.len, stat.kind));
    };
    fs.readdir_stat(&place.path("d"), &mut entry).unwrap();
    sizes.sort_unstable_by_key(|&(name, ..)| name);
    assert!(sizes.iter().map(|&(_, len, _)| len).eq(0..300), "names with their lengths: {sizes:?}");
    assert!(sizes.iter().all(|&(_, _, kind)| kind == EntryKind::File));
    let names = place.names("d");
    assert_eq!(names.len(), 300);
    assert!(names.iter().all(|&(_, kind)| matches!(kind, EntryKind::File | EntryKind::Unknown)));
    for index in 0..300 {
        fs.unlink(&place.path(&format!("d/{index:03}"))).unwrap();
    }
    fs.rmdir(&place.path("d")).unwrap();
}

/// Checks that all ways read the files that one way has written. A name is used once: clients of a volume remember for
/// a second what they have seen of a name.
fn see_the_same_files(places: &[&Place], way_to_the_brick: &Path) {
    for (number, writer) in places.iter().enumerate() {
        for len in [0, 1, 4096, 65_536, 1_000_003] {
            let content = pattern(number as u64 + len as u64, len);
            let name = format!("from-{number}-{len}");
            writer.write(&name, &content);
            for reader in places {
                assert!(reader.read(&name).unwrap() == content, "{name} read by {}", reader.fs.name());
            }
            assert!(std::fs::read(way_to_the_brick.join(&name)).unwrap() == content, "{name} on the brick");
        }
    }
    let expected = places[0].names("");
    assert_eq!(expected.len(), places.len() * 5);
    for place in places {
        assert_eq!(place.names(""), expected);
        assert_eq!(place.fs.stat(&place.path("from-0-4096")).unwrap().len, 4096);
    }
}

#[test]
fn a_local_file_system_keeps_the_contract() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    keeps_the_contract(&Place::local(directory.path()));
}

fn variable(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).expect("runs inside rigs/gluster-volume.sh"))
}

#[test]
#[ignore = "run by a_gluster_volume_keeps_the_contract, which sets up a volume"]
fn inside_a_volume() {
    let target: Target = format!("gluster://{}/gv0", variable("GLUSTER_SERVER").display()).parse().unwrap();
    let (mount, brick) = (variable("GLUSTER_MOUNTS").join("1"), variable("GLUSTER_BRICKS").join("1"));
    for directory in ["gfapi", "fuse", "same"] {
        std::fs::create_dir(mount.join(directory)).unwrap();
    }
    let gfapi = |directory: &str| Place { fs: target.open().unwrap(), directory: directory.into() };
    keeps_the_contract(&gfapi("/gfapi"));
    keeps_the_contract(&Place::local(&mount.join("fuse")));
    keeps_the_contract(&Place::local(&variable("GLUSTER_LOCAL")));
    see_the_same_files(&[&gfapi("/same"), &Place::local(&mount.join("same")), &gfapi("/same")], &brick.join("same"));

    let (volume, missing) = (gfapi("/"), "gluster://10.77.0.1/none".parse::<Target>().unwrap());
    assert!(volume.fs.stat(c"/same").is_ok());
    let said = missing.open().map(drop).unwrap_err().to_string();
    assert!(said.contains("none") && said.contains("No such file") && !said.contains('\n'), "{said}");
    println!("all ways keep the contract");
}

/// Needs root, and the GlusterFS that tests/needs installs.
#[test]
fn a_gluster_volume_keeps_the_contract() {
    if !Path::new("/usr/sbin/glusterd").exists() || !Path::new("/usr/sbin/glusterfs").exists() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "glusterd is missing: under CI this is a failure");
        return println!(
            "skipped: a_gluster_volume_keeps_the_contract: glusterd is not installed (tests/needs installs it)"
        );
    }
    // SAFETY: geteuid takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: a_gluster_volume_keeps_the_contract: only root can make network namespaces");
    }
    for replicas in ["1", "2"] {
        let mut rig = std::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/gluster-volume.sh"));
        // Nobody falls silent here: who answers late is only busy.
        rig.env("REPLICAS", replicas).env("OPTIONS", "network.ping-timeout=60");
        rig.arg(std::env::current_exe().unwrap());
        let output = rig.args(["inside_a_volume", "--exact", "--ignored", "--nocapture"]).output().unwrap();
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("all ways keep the contract"), "{said}\n{errors}");
    }
}

/// Handles close when they are dropped; closing them says more.
#[test]
fn a_dropped_handle_is_closed() {
    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = Place::local(directory.path());
    place.write("f", b"x");
    let path = place.path("f");
    let handles: Vec<Box<dyn Handle>> = (0..64).map(|_| place.fs.open(&path, libc::O_RDONLY, 0).unwrap()).collect();
    let before = open_files();
    drop(handles);
    assert!(open_files() + 32 < before, "64 files were closed, give or take what other tests have open");
}
