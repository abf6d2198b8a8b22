use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use job::job::{Amount, Fallocate, Plan, Rw};
use measure::PerDirection;

use super::*;
use crate::ErrorKind;

/// A new directory on the file system of the build directory, removed when it goes out of scope.
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
    type Edit<'a> = &'a dyn Fn(&mut Job);
    let cases: [(Edit, &str); 11] = [
        (&|job| job.extent.size = None, "give size="),
        (&|job| job.extent.size = Some(Amount::Bytes(0)), "give size="),
        (&|job| job.extent.size = Some(Amount::Bytes(100)), "raise size= or lower bs="),
        (&|job| job.extent.size = Some(Amount::Bytes(1 << 50)), "not enough space"),
        (&|job| job.files.names = vec!["missing/file".into()], "its directory does not exist"),
        (&|job| job.files.allow_create = false, "allow_file_create=0"),
        (&|job| (job.files.directories.clear(), job.files.names = vec!["/dev/nvme77n9".into()]).1, "no such device"),
        (&|job| (job.files.directories.clear(), job.files.names = vec!["/dev/./nvme77n9".into()]).1, "no such device"),
        (&|job| (job.files.directories.clear(), job.files.names = vec!["/tmp".into()]).1, "use directory="),
        (
            &|job| {
                job.files.direct = true;
                job.files.directories.clear();
                job.files.names = vec!["/sys/kernel/uevent_seqnum".into()];
                job.extent.size = None;
            },
            "sysfs does not support O_DIRECT here: use direct=0",
        ),
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

/// The output of a command; None, with the reason on standard error, if it cannot be run here.
fn command(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap();
    let output = std::process::Command::new(program).args(words).output();
    match output {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        Ok(output) => {
            eprintln!("skipped: {line}: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{program} is missing: {error}");
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

/// Runs its command when it goes out of scope.
struct Finally(String);

impl Drop for Finally {
    fn drop(&mut self) {
        command(&self.0);
    }
}

#[test]
fn devices_that_are_in_use_or_carry_data_are_refused() {
    let scratch = Scratch::new();
    let image = scratch.path("image");
    File::create(&image).unwrap().set_len(8 * MIB).unwrap();
    let Some(device) = command(&format!("losetup -f --show {image}")) else { return };
    let _detach = Finally(format!("losetup -d {device}"));
    let on = |write: bool, path: &str, edit: &dyn Fn(&mut Job)| {
        let mut job = job(&scratch, !write, write, MIB);
        job.files.directories.clear();
        job.files.names = vec![path.into()];
        edit(&mut job);
        let early = preflight(&Plan { jobs: vec![job.clone()], ..Plan::default() });
        let late = prepare(&job, 0).map(drop);
        assert_eq!(early.is_ok(), late.is_ok(), "both say the same: {early:?} {late:?}");
        late
    };
    let refusal = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        error.to_string()
    };
    let insist = |job: &mut Job| job.allow.signature_write = true;

    on(true, &device, &|_| {}).unwrap();
    let message = refusal(on(true, &image, &|_| {}));
    assert!(message.contains("stands behind"), "{message}");

    if command(&format!("mkfs.ext4 -q {device}")).is_none() {
        return;
    }
    let message = refusal(on(true, &device, &|_| {}));
    assert!(message.contains("ext2/ext3/ext4") && message.contains("--allow-signature"), "{message}");
    let trim = |job: &mut Job| job.rw.directions = PerDirection { read: false, write: false, trim: true };
    refusal(on(false, &device, &trim));
    on(false, &device, &|_| {}).unwrap();
    on(true, &device, &insist).unwrap();

    let mount_point = scratch.path("mounted");
    fs::create_dir(&mount_point).unwrap();
    if command(&format!("mount {device} {mount_point}")).is_none() {
        return;
    }
    let unmount = Finally(format!("umount {mount_point}"));
    let message = refusal(on(true, &device, &insist));
    assert!(message.contains(&format!("mounted on {mount_point}")), "{message}");
    on(true, &device, &|job| (job.allow.mounted_write, job.allow.signature_write) = (true, true)).unwrap();
    drop(unmount);
    // A mount namespace that somebody made meanwhile, for a test on hosts say, holds the device while it lives.
    let limit = Instant::now() + Duration::from_secs(300);
    while !sys::block::users(Path::new(&device)).is_empty() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(50));
    }
    on(true, &device, &insist).unwrap();
}

#[test]
fn a_device_is_used_up_to_its_end() {
    let scratch = Scratch::new();
    let image = scratch.path("image");
    File::create(&image).unwrap().set_len(8 * MIB).unwrap();
    let Some(device) = command(&format!("losetup -f --show {image}")) else { return };
    let _detach = Finally(format!("losetup -d {device}"));
    let mut job = job(&scratch, true, false, 0);
    job.files.directories.clear();
    job.files.names = vec![device];
    let extents = |job: &Job| prepare(job, 2).map(|target| target.extents().to_vec());
    job.extent.size = None;
    assert_eq!(extents(&job).unwrap(), [FileExtent { offset: 0, size: 8 * MIB }]);
    job.extent.offset = Amount::Percent(25.0);
    assert_eq!(extents(&job).unwrap(), [FileExtent { offset: 2 * MIB, size: 6 * MIB }]);
    job.extent.offset_increment = Amount::Bytes(MIB);
    job.extent.size = Some(Amount::Bytes(100 * MIB));
    assert_eq!(extents(&job).unwrap(), [FileExtent { offset: 4 * MIB, size: 4 * MIB }]);
    job.extent.offset_increment = Amount::Bytes(4 * MIB);
    assert!(extents(&job).unwrap_err().to_string().contains("beyond the end"));
}

#[test]
fn a_full_file_system_is_said_to_be_full_and_left_as_it_was() {
    let scratch = Scratch::new();
    let mount_point = scratch.path("small");
    fs::create_dir(&mount_point).unwrap();
    if command(&format!("mount -t tmpfs -o size=1m none {mount_point}")).is_none() {
        return;
    }
    let _unmount = Finally(format!("umount {mount_point}"));
    let plan = |job: &Job| Plan { jobs: vec![job.clone()], ..Plan::default() };
    let mut reads = job(&scratch, true, false, 4 * MIB);
    reads.files.directories = vec![mount_point.clone()];
    let early = preflight(&plan(&reads)).unwrap_err();
    assert!(early.to_string().contains("4194304 bytes, 1048576 are free"), "{early}");
    for fallocate in [reads.files.fallocate, Fallocate::None] {
        reads.files.fallocate = fallocate;
        let late = prepare(&reads, 0).unwrap_err();
        assert_eq!(late.errno(), libc::ENOSPC, "{late}");
        assert_eq!(fs::read_dir(&mount_point).unwrap().count(), 0, "nothing is left behind");
    }
    // Nobody knows how far a job that writes its own data comes: the job meets the end of the space itself.
    let mut writes = job(&scratch, false, true, 4 * MIB);
    writes.files.directories = vec![mount_point];
    preflight(&plan(&writes)).unwrap();
    prepare(&writes, 0).unwrap();
}

#[test]
fn sizes_are_those_of_fio() {
    let scratch = Scratch::new();
    let mut job = job(&scratch, false, true, 10 * 4096);
    job.files.fallocate = Fallocate::None;
    job.files.count = 4;
    let sizes = |job: &Job, clone| {
        let target = prepare(job, clone).unwrap();
        target.extents().iter().map(|extent| extent.size).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&job, 0), [10240; 4]);
    // The first files get the blocks that are left over.
    (job.extent.size, job.blocks.range.read, job.blocks.range.write) = (Some(Amount::Bytes(4095)), (2, 2), (2, 2));
    job.files.count = 16;
    assert_eq!(sizes(&job, 0), [[257; 7].as_slice(), &[255; 9]].concat());
    (job.extent.size, job.files.count) = (Some(Amount::Bytes(777_777)), 1);
    assert_eq!(sizes(&job, 0), [777_777]);
    (job.blocks.range.read, job.blocks.range.write, job.files.count) = ((4096, 4096), (4096, 4096), 4);

    job.extent.size = None;
    job.extent.file_size = Some((64 << 10, 128 << 10));
    let ranged = sizes(&job, 0);
    assert!(ranged.iter().all(|size| (64 << 10..=128 << 10).contains(size) && size.is_multiple_of(4096)), "{ranged:?}");
    assert_eq!(sizes(&job, 0), ranged, "the same every time");
    assert_ne!(sizes(&job, 1), ranged, "clones have their own");

    job.extent.file_size = Some((MIB, MIB));
    job.extent.size = Some(Amount::Bytes(2 * MIB));
    assert_eq!(sizes(&job, 0), [MIB; 4]);
}

/// A missing name in `/dev` is a typing error; `/dev/shm` is a file system like any other.
#[test]
fn files_below_dev_are_made_on_file_systems_of_their_own() {
    let elsewhere = fs::metadata("/dev/shm").unwrap().dev() != fs::metadata("/dev").unwrap().dev();
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let name = scratch.path().join("f").to_str().unwrap().to_string();
    let mut job = job(&Scratch::new(), true, true, 4096);
    job.files.allow_create = true;
    (job.files.directories, job.files.names) = (Vec::new(), vec![name.clone()]);
    let outcome = prepare(&job, 0).map(drop);
    assert_eq!(outcome.is_ok(), elsewhere, "{outcome:?}");
    assert!(elsewhere || !fs::exists(name).unwrap());
}
