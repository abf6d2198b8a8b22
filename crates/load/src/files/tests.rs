use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use job::job::{Amount, Fallocate, Plan, Rw};
use measure::PerDirection;

use super::*;
use crate::ErrorKind;

/// A directory of its own on the file system of the build directory, removed afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("files-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::current_exe().unwrap().with_file_name(name);
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    fn entries(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MIB: u64 = 1 << 20;

fn directions(read: bool, write: bool) -> PerDirection<bool> {
    PerDirection { read, write, trim: false }
}

fn job(scratch: &Scratch, read: bool, write: bool, size: u64) -> Job {
    let mut job = Job { name: "j".into(), ..Job::default() };
    job.rw = Rw { directions: directions(read, write), ..job.rw };
    job.extent.size = Some(Amount::Bytes(size));
    job.files.directories = vec![scratch.path("")];
    job
}

fn prepare(job: &Job, clone: u32) -> Result<Target, Error> {
    prepare_until(job, clone, &AtomicBool::new(false), &mut |_| {})
}

fn prepare_until(job: &Job, clone: u32, stop: &AtomicBool, progress: &mut dyn FnMut(u64)) -> Result<Target, Error> {
    let mut fill = |chunk: &mut [u8], at: u64| {
        for (index, byte) in chunk.iter_mut().enumerate() {
            *byte = ((at + index as u64) / 512 + 1) as u8 | 1;
        }
    };
    Target::prepare(job, clone, &mut Context { backing: Backing::Host, names: None, stop, fill: &mut fill, progress })
}

#[test]
fn a_read_job_finds_data_on_the_disk_and_not_in_the_cache() {
    let scratch = Scratch::new();
    let job = job(&scratch, true, false, 3 * MIB + 4096);
    let mut laid_out = 0;
    let mut target = prepare_until(&job, 0, &AtomicBool::new(false), &mut |bytes| laid_out += bytes).unwrap();
    assert_eq!(laid_out, 3 * MIB + 4096);
    assert_eq!(scratch.entries(), ["j.0.0"]);
    assert_eq!(target.extents(), [FileExtent { offset: 0, size: 3 * MIB + 4096 }]);
    assert_eq!(target.io_bytes(), 3 * MIB + 4096);
    let facts = target.cache_facts();
    assert_eq!(facts.unwritten_fraction, Some(0.0));
    assert!(facts.cached_fraction.is_none_or(|cached| cached < 0.5), "{facts:?}");
    assert!(target.open(0).unwrap() >= 0);
    let bytes = fs::read(scratch.path("j.0.0")).unwrap();
    assert!(bytes.iter().enumerate().all(|(index, &byte)| byte == (index as u64 / 512 + 1) as u8 | 1));
    assert_eq!(target.cache_facts().cached_fraction.unwrap_or(1.0), 1.0);
    target.finish().unwrap();
    assert_eq!(scratch.entries(), ["j.0.0"], "kept without unlink");

    let mut again = 0;
    let second = prepare_until(&job, 0, &AtomicBool::new(false), &mut |bytes| again += bytes).unwrap();
    assert_eq!(again, 0, "a file that is large enough is used as it is");
    drop(second);
    assert_eq!(scratch.entries(), ["j.0.0"], "what an earlier run made is not removed by a failing one");
}

#[test]
fn a_small_file_is_extended_and_what_it_has_is_kept() {
    let scratch = Scratch::new();
    fs::write(scratch.path("j.0.0"), "precious").unwrap();
    prepare(&job(&scratch, true, false, MIB), 0).unwrap().finish().unwrap();
    let bytes = fs::read(scratch.path("j.0.0")).unwrap();
    assert_eq!((bytes.len() as u64, &bytes[..8]), (MIB, &b"precious"[..]));
    assert!(bytes[8..].iter().all(|&byte| byte != 0));
}

#[test]
fn a_write_job_reserves_space_as_fallocate_says() {
    for (fallocate, length) in
        [(Fallocate::Native, MIB), (Fallocate::Keep, 0), (Fallocate::Truncate, MIB), (Fallocate::None, 0)]
    {
        let scratch = Scratch::new();
        let mut job = job(&scratch, false, true, MIB);
        job.files.fallocate = fallocate;
        let target = prepare(&job, 0).unwrap();
        assert_eq!(fs::metadata(scratch.path("j.0.0")).unwrap().len(), length, "{fallocate:?}");
        drop(target);
        assert!(scratch.entries().is_empty(), "dropped without finish: nothing is left behind");
    }
}

#[test]
fn a_stopped_layout_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let stop = AtomicBool::new(false);
    let mut job = job(&scratch, true, false, 64 * MIB);
    job.files.count = 2;
    let error = prepare_until(&job, 0, &stop, &mut |_| stop.store(true, Ordering::Relaxed)).unwrap_err();
    assert_eq!(error.errno(), libc::EINTR, "{error}");
    assert!(scratch.entries().is_empty());
}

#[test]
fn unlink_removes_and_finish_reports() {
    let scratch = Scratch::new();
    let mut job = job(&scratch, true, false, MIB);
    job.files.unlink = true;
    job.files.count = 3;
    let mut target = prepare(&job, 1).unwrap();
    assert_eq!(scratch.entries(), ["j.1.0", "j.1.1", "j.1.2"]);
    for file in 0..target.files() {
        target.open(file).unwrap();
        target.close(file).unwrap();
    }
    target.finish().unwrap();
    assert!(scratch.entries().is_empty());
}

#[test]
fn create_on_open_makes_files_when_they_are_opened() {
    let scratch = Scratch::new();
    let mut job = job(&scratch, false, true, MIB);
    job.files.create_on_open = true;
    let mut target = prepare(&job, 0).unwrap();
    assert!(scratch.entries().is_empty());
    target.open(0).unwrap();
    assert_eq!(scratch.entries(), ["j.0.0"]);
    drop(target);
    assert!(scratch.entries().is_empty());
}

#[test]
fn clones_take_directories_in_turn_and_names_are_shared() {
    let (first, second) = (Scratch::new(), Scratch::new());
    let mut job = job(&first, true, false, MIB);
    job.files.directories.push(second.path(""));
    assert!(names(&job, 0).unwrap()[0].ends_with("/j.0.0"));
    assert!(names(&job, 3).unwrap()[0].starts_with(second.0.to_str().unwrap()));
    job.files.names = vec!["a".into(), "b".into()];
    job.files.count = 9;
    assert_eq!(names(&job, 2).unwrap(), [first.path("a"), first.path("b")]);
    job.files.directories = vec!["/no/such".into()];
    assert_eq!(names(&job, 0).unwrap_err().kind, ErrorKind::Usage);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let scratch = Scratch::new();
    let base = job(&scratch, true, false, MIB);
    let message = |edit: &dyn Fn(&mut Job)| {
        let mut job = base.clone();
        edit(&mut job);
        let plan = Plan { jobs: vec![job.clone()], ..Plan::default() };
        let early = preflight(&plan).err();
        let error = early.unwrap_or_else(|| prepare(&job, 0).unwrap_err());
        assert!(!error.to_string().contains('\n'));
        error.to_string()
    };
    let cases: [(&dyn Fn(&mut Job), &str); 9] = [
        (&|job| job.extent.size = None, "give size="),
        (&|job| job.extent.size = Some(Amount::Bytes(0)), "give size="),
        (&|job| job.extent.size = Some(Amount::Bytes(100)), "raise size= or lower bs="),
        (&|job| job.extent.size = Some(Amount::Bytes(1 << 50)), "not enough space"),
        (&|job| job.files.names = vec!["missing/file".into()], "its directory does not exist"),
        (&|job| job.files.allow_create = false, "allow_file_create=0"),
        (&|job| (job.files.directories.clear(), job.files.names = vec!["/dev/nvme77n9".into()]).1, "no such device"),
        (&|job| (job.files.directories.clear(), job.files.names = vec!["/tmp".into()]).1, "use directory="),
        (
            &|job| {
                job.files.direct = true;
                job.blocks.range.read = (1000, 1000);
            },
            "O_DIRECT",
        ),
    ];
    for (edit, part) in cases {
        let message = message(edit);
        assert!(message.contains(part), "{message}");
        assert!(scratch.entries().is_empty(), "{message}: {:?}", scratch.entries());
    }
}
