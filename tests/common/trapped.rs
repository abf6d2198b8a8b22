//! Programs under the interposer, beside the same programs without it: same status, same output, same files.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Instant;

use super::{stderr, stdout};

/// Names the library to the tests that run inside a rig, where nothing can be built.
const LIBRARY: &str = "PLIMSOLL_TEST_IOTRAP";

/// libiotrap.so as it is built beside the program under test.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> PathBuf {
    if let Some(path) = std::env::var_os(LIBRARY) {
        return path.into();
    }
    let target = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
    let release = target.ends_with("release");
    // `cargo test` builds a cdylib only for those who link to it, and nobody does.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "-p", "iotrap"]).args(release.then_some("--release"));
    cargo.arg("--target-dir").arg(target.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", stderr(&output));
    target.join("libiotrap.so")
}

/// The test of that name with `inside_` before it, to be run by a rig's command.
pub fn inside(rig: &mut Command, test: &str) -> Output {
    rig.env(LIBRARY, library()).arg(std::env::current_exe().unwrap());
    let output = rig.args([&format!("inside_{test}"), "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let (said, errors) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
    output
}

/// A line of a pool file: a machine that stands still for a moment does not make a lane suspect. For tests that look at
/// which lanes are used, and freeze none.
pub const PATIENT: &str = "suspect-after = \"5m\"";

/// Lanes of one volume, as the interposer is told of them.
pub struct Pool {
    /// The directories.
    pub lanes: Vec<PathBuf>,
    /// More lines of a pool file: `trust_inode = true`.
    pub more: String,
    /// Where the volume can be seen without any of its lanes.
    pub view: PathBuf,
    /// The number of sequences of random calls that a file goes through.
    pub seeds: u32,
    /// A directory for files that do not belong to the volume.
    pub scratch: PathBuf,
}

impl Pool {
    /// Puts a command under the interposer.
    pub fn trap<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let lanes: Vec<String> = self.lanes.iter().map(|lane| format!("{:?}", lane.to_str().unwrap())).collect();
        let text = format!("[[pool]]\nname = \"test\"\nlanes = [{}]\n{}\n", lanes.join(", "), self.more);
        command.env("LD_PRELOAD", library()).env("IOTRAP_POOLS", text)
    }

    /// A script, in a directory of the first lane.
    pub fn bash(&self, script: &str, directory: &str, trapped: bool) -> Output {
        self.bash_in(script, &self.lanes[0].join(directory), trapped)
    }

    fn bash_in(&self, script: &str, directory: &Path, trapped: bool) -> Output {
        self.command(script, directory, trapped).output().unwrap()
    }

    /// The script as a command that is still to be started.
    pub fn command(&self, script: &str, directory: &Path, trapped: bool) -> Command {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script]).current_dir(directory);
        bash.env("PROGRAMS", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs"));
        bash.env("SCRATCH", &self.scratch).env("SEEDS", self.seeds.to_string()).env("LC_ALL", "C").env("TZ", "UTC");
        bash.env("TMPDIR", &self.scratch).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
        if trapped {
            self.trap(&mut bash);
        }
        bash
    }

    /// Runs the script with and without the interposer: status, standard output and all files that it leaves must be
    /// the same, read on the server.
    pub fn same(&self, name: &str, script: &str) {
        let begun = Instant::now();
        let sides = [false, true].map(|trapped| {
            let directory = format!("{name}-{}", if trapped { "trapped" } else { "plain" });
            std::fs::create_dir(self.lanes[0].join(&directory)).unwrap();
            let output = self.bash(script, &directory, trapped);
            let files = tree(&self.view.join(&directory));
            std::fs::remove_dir_all(self.lanes[0].join(&directory)).unwrap();
            (output, files)
        });
        let [(plain, plain_files), (trapped, trapped_files)] = sides;
        assert!(plain.status.success(), "{name}, not trapped: {}\n{}{}", plain.status, stdout(&plain), stderr(&plain));
        let said = || format!("{}{}", stdout(&trapped), stderr(&trapped));
        assert_eq!(trapped.status.code(), plain.status.code(), "{name}: {}", said());
        assert_eq!(stdout(&trapped), stdout(&plain), "{name}: {}", stderr(&trapped));
        for (path, entry) in &plain_files {
            assert_eq!(trapped_files.get(path), Some(entry), "{name}: {path}\n{}", said());
        }
        assert_eq!(trapped_files.keys().collect::<Vec<_>>(), plain_files.keys().collect::<Vec<_>>(), "{name}");
        println!("{name}: {} entries are the same ({:.1?})", plain_files.len(), begun.elapsed());
    }
}

/// Everything below a directory: what it is, its mode and its content.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let kind = data.file_type();
            let mut what = format!("{:o} ", data.permissions().mode());
            if kind.is_dir() {
                waiting.push(path.clone());
            } else if kind.is_symlink() {
                let _ = write!(what, "to {}", path.read_link().unwrap().display());
            } else if kind.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                let _ = write!(what, "{} bytes, crc32c {:08x}", bytes.len(), crc32c::crc32c(&bytes));
            } else {
                let _ = write!(what, "special, fifo: {}", kind.is_fifo());
            }
            entries.insert(path.strip_prefix(root).unwrap().display().to_string(), what);
        }
    }
    entries
}

/// The work of real programs on files: names and scripts. The scripts determine all that they print and leave.
pub const PROGRAMS: &[(&str, &str)] = &[
    (
        "dd",
        "dd if=/dev/zero bs=64k count=8 2> /dev/null | tr '\\0' x > source
         dd if=source of=plain bs=4k 2> /dev/null
         dd if=source of=direct bs=64k iflag=direct oflag=direct 2> /dev/null
         dd if=source of=direct bs=4k count=3 seek=5 skip=1 oflag=direct conv=notrunc,fsync 2> /dev/null
         dd if=/dev/zero of=direct bs=4k count=2 seek=20 oflag=direct,dsync conv=notrunc 2> /dev/null
         dd if=source of=odd bs=1000 count=77 conv=fdatasync 2> /dev/null
         dd if=source of=odd bs=7 count=100 oflag=append conv=notrunc 2> /dev/null
         dd if=source of=sparse bs=4k count=1 seek=100 conv=sparse 2> /dev/null
         dd if=direct bs=1M iflag=direct 2> /dev/null | cksum
         cmp source plain; dd if=direct of=direct.copy bs=12k iflag=direct 2> /dev/null; cmp direct direct.copy",
    ),
    (
        "copies",
        "mkdir -p tree/a/b; for i in 1 2 3 4 5 6; do seq $((i * 3000)) > tree/a/f$i; done
         ln -s a/f1 tree/link; chmod 600 tree/a/f2; truncate -s 1M tree/a/b/hole; echo x >> tree/a/b/hole
         touch -d 2001-02-03 tree/a/* tree/a/b/*
         cp -a tree copied; cp --sparse=always tree/a/b/hole copied/sparse; cp --reflink=auto tree/a/f3 copied/f3
         tar --sort=name --mtime=2001-02-03 -cf tree.tar tree; mkdir out; tar -xf tree.tar -C out
         rsync -a tree/ synced/; seq 5 > tree/a/f3; rsync -a --inplace --no-whole-file --checksum tree/ synced/
         rsync -a --delete --partial out/tree/ other/; diff -r tree synced; diff -r copied/tree copied/tree 2> /dev/null || true
         mv tree/a/f1 tree/a/b/f1; install -m 640 tree/a/f4 installed; shred -n 1 -u tree/a/f5
         find . -type f | sort | xargs cksum",
    ),
    (
        "bash",
        "for i in $(seq 20); do echo $i; done > file; exec 7<> file 8>> file; read -r first <&7; echo $first >&8
         exec 9>&8; exec 8>&-; echo nine >&9; exec 9>&-; cat <&7; exec 7>&-
         ( echo child; exec cat file ) > sub; cat > here <<< \"$(wc -l < file)\"
         for i in $(seq 10); do echo $i >> appended & done; wait; sort -n appended > sorted; rm appended
         set -o noclobber; echo no > file || echo refused; set +o noclobber; : > emptied; mkfifo pipe
         cat pipe > piped & echo through > pipe; wait; rm pipe; mv file moved; ln moved linked; cat linked
         exec {out}> >(tac > reversed); cat moved >&$out; exec {out}>&-; wait $!; cat reversed",
    ),
    (
        "sqlite3",
        "sql() { sqlite3 -batch db; }
         for mode in ${MODES:-delete truncate persist wal delete}; do
           { echo \"pragma journal_mode=$mode; pragma synchronous=full; create table if not exists t(k integer primary key, v text);\"
             for i in 1 2 3 4 5; do
               echo \"begin; with recursive n(i) as (select 1 union all select i + 1 from n where i < 200)
                 insert into t(v) select printf('%s %d %d', '$mode', $i, i) from n; update t set v = v || '.' where k % 7 = $i;
                 delete from t where k % 31 = $i; commit; begin; delete from t; rollback;\"
             done; } | sql
         done
         echo 'pragma integrity_check; select count(*), sum(length(v)) from t; vacuum;' | sql; echo .dump | sql | cksum",
    ),
    ("python", "python3 -IS \"$PROGRAMS/calls.py\" $PWD/file 1 $SEEDS 100"),
    (
        "plimsoll",
        "for engine in libaio psync io_uring; do
           \"$PLIMSOLL\" run --name=j --filename=file --size=2m --rw=randrw --bsrange=4k-32k --iodepth=16 --direct=1 \\
             --ioengine=$engine --verify=crc32c --fsync=20 --output-format=json > $SCRATCH/result || cat $SCRATCH/result; rm file
         done
         \"$PLIMSOLL\" fsperf -f 2m -b 64k --noclean . > /dev/null 2>&1; stat -c %s fsperf.dat; rm fsperf.dat",
    ),
];

/// The requests to fio: names and options. Files that are written with the interposer are verified without it, and the
/// other way round: fio's headers hold times, so that the bytes of two runs differ.
pub const FIO: &[(&str, &str)] = &[
    ("libaio", "--ioengine=libaio --direct=1 --iodepth=16 --rw=randwrite --bsrange=4k-64k"),
    ("libaio-batches", "--ioengine=libaio --direct=1 --iodepth=32 --iodepth_batch=8 --rw=write --bs=16k --overwrite=1"),
    ("libaio-mixed", "--ioengine=libaio --direct=1 --iodepth=8 --rw=randrw --bs=8k --fsync=16 --overwrite=1"),
    (
        "libaio-ring",
        "--ioengine=libaio --userspace_reap=1 --direct=1 --iodepth=16 --rw=randwrite --bs=4k --overwrite=1",
    ),
    ("libaio-buffered", "--ioengine=libaio --iodepth=8 --rw=randwrite --bs=512"),
    ("libaio-two-files", "--ioengine=libaio --direct=1 --iodepth=16 --rw=randwrite --bs=4k --nrfiles=4 --overwrite=1"),
    ("psync", "--ioengine=psync --direct=1 --rw=randwrite --bsrange=4k-128k --overwrite=1"),
    ("psync-buffered", "--ioengine=psync --rw=randrw --bs=777 --fdatasync=64"),
    ("pvsync2", "--ioengine=pvsync2 --direct=1 --rw=randrw --bs=16k --overwrite=1"),
    ("posixaio", "--ioengine=posixaio --direct=1 --iodepth=8 --rw=randwrite --bs=16k --overwrite=1"),
    ("io_uring", "--ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bs=16k --overwrite=1"),
    (
        "io_uring-fixed",
        "--ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bs=16k --fixedbufs --registerfiles",
    ),
    ("mmap", "--ioengine=mmap --rw=randwrite --bs=4k --fsync=32"),
    ("sync", "--ioengine=sync --rw=write --bs=16k --end_fsync=1"),
];

impl Pool {
    /// Runs those of [`FIO`] whose names are asked for, written one way and verified the other, and verified in the
    /// view of the server.
    pub fn fio(&self, wanted: impl Fn(&str) -> bool, size: &str) {
        std::fs::create_dir_all(self.lanes[0].join("fio")).unwrap();
        for (name, options) in FIO.iter().filter(|(name, _)| wanted(name)) {
            let job = format!(
                "fio --name={name} --size={size} {options} --verify=crc32c --verify_fatal=1 --thread \
                 --verify_state_save=0 --fallocate=none --minimal"
            );
            let begun = Instant::now();
            // Mixed jobs write only a part of the blocks: those verify themselves.
            let whole = !options.contains("randrw");
            for trapped in [true, false] {
                let files = format!("{name}-{trapped}");
                let write = job.replacen("--name=", &format!("--filename_format={files}.\\$filenum --name="), 1);
                if trapped || whole {
                    let output = self.bash(&write, "fio", trapped);
                    assert!(
                        output.status.success(),
                        "{write}, trapped: {trapped}\n{}{}",
                        stdout(&output),
                        stderr(&output)
                    );
                }
                if whole {
                    // Data that were written through the lanes are there for programs that do not use the lanes.
                    let place = if trapped { &self.view } else { &self.lanes[0] };
                    let mut read = format!("{write} --verify_only");
                    if trapped {
                        read = read.replace("--direct=1", "--direct=0"); // a tmpfs may be all that the server has
                    }
                    let output = self.bash_in(&read, &place.join("fio"), !trapped);
                    assert!(output.status.success(), "{read}, trapped: {}\n{}", !trapped, stderr(&output));
                }
            }
            println!("fio {name}: verified both ways ({:.1?})", begun.elapsed());
        }
        std::fs::remove_dir_all(self.lanes[0].join("fio")).unwrap();
    }
}
