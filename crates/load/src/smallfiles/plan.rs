//! The plan of a run: the user's options, checked before the run touches anything.

use std::ffi::CString;
use std::path::PathBuf;

use super::operation::{OPERATIONS, Operation, Population, Walk};
use super::sizes::Sizes;
use super::target::Target;
use super::tree::Layout;
use crate::Error;

/// The plan of a whole run of `plimsoll files`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file system that the run works on.
    pub target: Target,
    /// The layout of directories and names; its base is the directory that must exist.
    pub layout: Layout,
    /// The phases, in the order in which they run.
    pub phases: Vec<Phase>,
    /// Number of files of each thread.
    pub files: u64,
    /// The sizes of the files.
    pub sizes: Sizes,
    /// Bytes of a read or write; the last one of a file may be smaller.
    pub record_bytes: u64,
    /// Records of each file that are read or overwritten; None: all.
    pub records: Option<u64>,
    /// Records are read and overwritten in random order.
    pub random: bool,
    /// Threads of each process.
    pub threads: u32,
    /// Processes; 1 is this one.
    pub processes: u32,
    /// True if files are opened with O_DIRECT.
    pub direct: bool,
    /// True if every written file is synced (fsync) before it is closed.
    pub fsync: bool,
    /// True if reads compare the contents with the written ones.
    pub verify: bool,
    /// True if later reads can compare appended bytes: an append then costs an fstat where a file's length is not
    /// known.
    pub checkable: bool,
    /// True if a failed operation is counted instead of ending the run.
    pub continue_on_error: bool,
    /// True if the removal of a file that is not there does not count as a failure.
    pub missing_is_removed: bool,
    /// True if a directory of the layout is made with the first file in it, as a measured call; otherwise the threads
    /// make all directories before the first phase.
    pub make_dirs_on_demand: bool,
    /// True if the run removes the objects that it made at its end, however it ends.
    pub cleanup: bool,
    /// True if latencies are recorded.
    pub latency: bool,
    /// Nanoseconds of pause after each file.
    pub pause_ns: u64,
    /// Nanoseconds after which a phase ends, even if operations are left; None: no limit.
    pub runtime_ns: Option<u64>,
    /// Bytes of an extended attribute.
    pub xattr_bytes: usize,
    /// Number of extended attributes of a file.
    pub xattr_count: u32,
    /// The seed of sizes, contents and random choices.
    pub seed: u64,
    /// The user's options as written: name and value.
    pub options: Vec<(String, String)>,
    /// True if the run makes the base directory where it is missing, in a directory that must exist. With `cleanup` the
    /// run removes it again.
    pub makes_base: bool,
    /// True if a phase ends for all threads as soon as one of them is through.
    pub finish_first: bool,
    /// True if all threads go on after `runtime_ns` until each has tried as many operations as the fastest.
    pub finish_even: bool,
    /// With N, operations that make nothing work on the files of the Nth next thread; with 0, on those of this thread.
    pub neighbour: u32,
    /// In a run on many hosts: operations that make nothing work on the files of this other rank.
    pub abroad: Option<Abroad>,
    /// Of a run on many hosts whose ranks share directories: this rank's place among all threads. None: the threads of
    /// this run share with nobody else.
    pub among: Option<Among>,
    /// True if files are used (read, stat, ...) in random order.
    pub random_order: bool,
    /// True if no two blocks have bytes in common.
    pub incompressible: bool,
    /// True if threads pause after each file, for a tenth of the mean response time times the number of threads.
    pub auto_pause: bool,
    /// A read or write is this part of its file: 4 is a quarter. None: `record_bytes`.
    pub record_parts: Option<u64>,
    /// The directory that gets a file of response times from each thread.
    pub response_times: Option<PathBuf>,
    /// Bytes that each thread reads in a second at most.
    pub limit_read: Option<u64>,
    /// Bytes that each thread writes in a second at most.
    pub limit_write: Option<u64>,
    /// True if the caches of the kernel are emptied before each phase.
    pub drop_caches: bool,
}

/// The files of another rank.
#[derive(Clone, Debug)]
pub struct Abroad {
    /// The directories that the rank works in: see [`Layout::bases`].
    pub bases: Vec<CString>,
    /// Seed of this rank's random sizes, contents and choices.
    pub seed: u64,
    /// With [`Plan::among`]: the difference between the numbers of the rank's threads and this rank's, modulo all
    /// threads.
    pub threads_on: u32,
}

/// The place of a rank's threads among the threads of all ranks that share directories.
#[derive(Clone, Copy, Debug)]
pub struct Among {
    /// The number of this rank's first thread.
    pub first: u32,
    /// The threads of all ranks.
    pub threads: u32,
}

/// One phase of a run: one operation on all files, or a mix of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The phase as the user wrote it.
    pub name: String,
    /// Operations and their weights; a single one has the phase to itself.
    pub operations: Vec<(Operation, u32)>,
    /// A mix goes over the files in order, each drawing its operation, instead of drawing the file too.
    pub in_order: bool,
}

impl Phase {
    /// A phase of one operation.
    pub fn of(operation: Operation) -> Phase {
        Phase { name: operation.row().name.into(), operations: vec![(operation, 1)], in_order: false }
    }

    /// The only operation of a phase; None if the phase is a mix.
    pub fn only(&self) -> Option<Operation> {
        match self.operations[..] {
            [(operation, _)] => Some(operation),
            _ => None,
        }
    }

    /// The name of the operation that keeps phases from being carried out twice: it makes objects anew which are still
    /// there when all phases are over. None if they can be repeated, as far as single operations tell.
    pub fn unrepeatable(phases: &[Phase]) -> Option<&'static str> {
        let last = phases.iter().filter_map(Phase::only).rfind(|operation| operation.row().walk == Walk::Tree);
        if last == Some(Operation::MakeTree) {
            return Some(Operation::MakeTree.row().name);
        }
        [Population::Files, Population::Directories, Population::Symlinks, Population::Links].into_iter().find_map(
            |kind| {
                let (mut first, mut there) = (None, false);
                for operation in phases.iter().filter_map(Phase::only) {
                    let makes = operation.row().walk == Walk::Makes(kind);
                    match operation.row().walk {
                        Walk::Makes(other) | Walk::Takes(other) if other != kind => continue,
                        Walk::Uses(_) | Walk::Directories | Walk::Tree => continue,
                        _ => there = makes,
                    }
                    first.get_or_insert(makes.then_some(operation.row().name));
                }
                first.flatten().filter(|_| there)
            },
        )
    }

    /// Reads phases as the user writes them: `create,read:70+stat:30,unlink`.
    ///
    /// # Errors
    /// An unknown operation, a weight out of range, a mix of operations that cannot go together.
    pub fn parse_all(text: &str) -> Result<Vec<Phase>, Error> {
        text.split(',').map(Phase::parse).collect()
    }

    fn parse(text: &str) -> Result<Phase, Error> {
        let bad = |hint: String| Error::usage("--op:", format!("'{text}'"), hint);
        let mut operations = Vec::new();
        for part in text.split('+') {
            let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
            let operation = Operation::find(name.trim()).ok_or_else(|| {
                let all: Vec<&str> = OPERATIONS.iter().map(|row| row.name).collect();
                bad(format!("no operation is called '{}'; there are: {}", name.trim(), all.join(", ")))
            })?;
            let weight: u32 =
                weight.trim().parse().ok().filter(|&weight| weight > 0 && weight <= 1_000_000).ok_or_else(|| {
                    bad(format!("'{weight}' is not a weight: give a number from 1 to 1000000, as read:70+stat:30"))
                })?;
            if operations.iter().any(|(known, _)| *known == operation) {
                return Err(bad(format!("{} is twice in one mix", operation.row().name)));
            }
            operations.push((operation, weight));
        }
        if operations.len() > 1 {
            use Operation::{AwaitCreate, Cleanup, DeleteRenamed, MakeTree, Mknod, RemoveTree, Truncate};
            // These operations leave files in a state that the other operations of the mix cannot know.
            let alone = [AwaitCreate, Cleanup, DeleteRenamed, MakeTree, Mknod, RemoveTree, Truncate];
            if let Some((operation, _)) = operations.iter().find(|(op, _)| alone.contains(op)) {
                return Err(bad(format!(
                    "{} cannot be part of a mix: give it a phase of its own",
                    operation.row().name
                )));
            }
        }
        Ok(Phase { name: text.into(), operations, in_order: false })
    }
}

/// The most threads that a run can have: names and seats have room for this number.
const MOST_THREADS: u64 = 65_536;

impl Plan {
    /// The plainest plan: one thread works on `files` files of `bytes` each with one read or write a file, without
    /// checks, pauses or limits.
    pub fn of(target: Target, layout: Layout, phases: Vec<Phase>, files: u64, bytes: u64) -> Plan {
        Plan {
            target,
            layout,
            phases,
            files,
            sizes: Sizes::Fixed(bytes),
            record_bytes: bytes,
            records: None,
            random: false,
            threads: 1,
            processes: 1,
            direct: false,
            fsync: false,
            verify: false,
            checkable: false,
            continue_on_error: false,
            missing_is_removed: false,
            make_dirs_on_demand: false,
            cleanup: false,
            latency: true,
            pause_ns: 0,
            runtime_ns: None,
            xattr_bytes: 1,
            xattr_count: 1,
            seed: 1,
            options: Vec::new(),
            makes_base: false,
            finish_first: false,
            finish_even: false,
            neighbour: 0,
            abroad: None,
            among: None,
            random_order: false,
            incompressible: false,
            auto_pause: false,
            record_parts: None,
            response_times: None,
            limit_read: None,
            limit_write: None,
            drop_caches: false,
        }
    }

    /// The number of threads of all processes together.
    pub fn workers(&self) -> u32 {
        self.threads * self.processes
    }

    /// Threads that share directories, if threads share them at all: those of all ranks, or of this run.
    pub fn sharers(&self) -> u32 {
        self.among.map_or(self.workers(), |among| among.threads)
    }

    /// The number by which names and contents know a thread of this run.
    pub fn number_of(&self, worker: u32) -> u32 {
        self.among.map_or(worker, |among| among.first + worker)
    }

    /// Bytes of a read or write of a file of `size` bytes.
    pub fn record_of(&self, size: u64) -> u64 {
        self.record_parts.map_or(self.record_bytes, |parts| size.div_ceil(parts).max(1))
    }

    /// True if a phase may end before it has gone over all files.
    pub fn may_end_early(&self) -> bool {
        self.runtime_ns.is_some() || self.finish_first
    }

    /// The operations of all phases, in their order.
    fn operations(&self) -> impl Iterator<Item = Operation> {
        self.phases.iter().flat_map(|phase| &phase.operations).map(|(operation, _)| *operation)
    }

    /// True if a phase carries out that operation.
    pub fn does(&self, operation: Operation) -> bool {
        self.operations().any(|known| known == operation)
    }

    /// True if the directories of the layout have to be there before the first phase: an operation makes objects in
    /// them, and no phase before it makes the directories.
    pub fn needs_directories(&self) -> bool {
        let makes = |operation: &Operation| matches!(operation.row().walk, Walk::Makes(_));
        let first = self.operations().find(|operation| *operation == Operation::MakeTree || makes(operation));
        !self.make_dirs_on_demand && first.is_some_and(|first| first != Operation::MakeTree)
    }

    /// Checks everything that can be checked without a look at the file system.
    ///
    /// # Errors
    /// The first option that cannot work, with advice.
    pub fn check(&self) -> Result<(), Error> {
        let usage = |what: &str, place: String, hint: &str| Err(Error::usage(what, place, hint));
        if self.phases.is_empty() {
            return usage("nothing to do:", "no --op".into(), "give operations as --op create,read,unlink");
        }
        for (name, value) in [
            ("--files", self.files),
            ("--threads", self.threads.into()),
            ("--processes", self.processes.into()),
            ("--files-per-dir", self.layout.files_per_dir),
        ] {
            if value == 0 {
                return usage(name, "0".into(), "give at least 1");
            }
        }
        let sharers = self.among.map_or(0, |among| u64::from(among.threads));
        if (u64::from(self.threads) * u64::from(self.processes)).max(sharers) > MOST_THREADS {
            return usage("--threads times --processes", self.workers().to_string(), "at most 65536 are possible");
        }
        if self.files > 1 << 40 {
            return usage("--files", self.files.to_string(), "at most 2^40 files a thread are possible");
        }
        if self.record_bytes == 0 || self.record_bytes > 1 << 30 {
            return usage("--record", self.record_bytes.to_string(), "give 1 byte to 1 GiB");
        }
        let contents = self.phases.iter().flat_map(|phase| &phase.operations).map(|(op, _)| op.row());
        let contents = contents.clone().any(|row| row.writes || row.reads);
        if self.direct && contents {
            const UNIT: u64 = 512;
            if !self.record_bytes.is_multiple_of(UNIT) {
                return usage(
                    "--direct",
                    format!("with records of {} bytes", self.record_bytes),
                    "O_DIRECT needs multiples of the block size: give --record as a multiple of 512 (most often 4096)",
                );
            }
            if !self.sizes.are_multiples_of(UNIT) {
                return usage(
                    "--direct",
                    format!("with --size {}", self.sizes),
                    "O_DIRECT needs multiples of the block size: give sizes that are multiples of 512 (most often 4096), no exponential ones",
                );
            }
        }
        for (name, limit) in [("--limit-read", self.limit_read), ("--limit-write", self.limit_write)] {
            if limit == Some(0) {
                return usage(name, "0".into(), "give at least 1 byte a second, or leave it out");
            }
        }
        if self.finish_even && self.runtime_ns.is_none() {
            return usage(
                "--finish even",
                "without --runtime".into(),
                "it evens out what --runtime has ended: give --runtime",
            );
        }
        if self.may_end_early() && self.phases.len() > 1 {
            let all = |phase: &&Phase| {
                matches!(phase.only(), Some(Operation::Rename | Operation::DeleteRenamed | Operation::Cleanup))
            };
            if let Some(phase) = self.phases.iter().find(all) {
                return usage(
                    if self.finish_first { "--finish first" } else { "--runtime" },
                    format!("with {}", phase.name),
                    "it has to go over all files, or those of the next phase would have unknown names: leave out one of the two",
                );
            }
        }
        if self.layout.prefix.is_empty() || self.layout.prefix.contains('/') || self.layout.prefix.len() > 200 {
            return usage("--prefix", format!("'{}'", self.layout.prefix), "give 1 to 200 characters without a slash");
        }
        if self.layout.dirs_per_dir.is_some_and(|dirs| !(2..=1_000_000).contains(&dirs)) {
            return usage("--dirs-per-dir", self.layout.dirs_per_dir.unwrap_or(0).to_string(), "give at least 2");
        }
        if self.xattr_bytes > 65_536 || self.xattr_count == 0 || self.xattr_count > 1000 {
            return usage(
                "--xattr-size, --xattr-count",
                format!("{}, {}", self.xattr_bytes, self.xattr_count),
                "values hold up to 64 KiB, and 1 to 1000 of them can be asked for",
            );
        }
        if self.cleanup && self.among.is_some() {
            return usage(
                "--cleanup",
                "with --shared=ranks".into(),
                "a rank may still use the directories of another: run --op cleanup afterwards",
            );
        }
        self.check_neighbour()?;
        self.check_tree()?;
        self.check_populations()
    }

    /// Checks that the files of the neighbour are known.
    fn check_neighbour(&self) -> Result<(), Error> {
        let bad = |with: &str, hint: &str| Err(Error::usage("--neighbour", format!("with {with}"), hint));
        if self.neighbour == 0 && self.abroad.is_none() {
            return Ok(());
        }
        if self.phases.iter().any(|phase| phase.only().is_none()) {
            return bad("a mix", "give each operation a phase of its own");
        }
        if self.layout.shared
            && self.phases.iter().any(|phase| phase.only().is_some_and(|op| op.row().walk == Walk::Directories))
        {
            return bad("--shared and a listing", "threads list the directories that all of them share already");
        }
        if self.may_end_early() {
            return bad("--runtime or --finish first", "a thread must know how many files its neighbour has");
        }
        if self.cleanup && self.abroad.is_some() {
            return bad(
                "--cleanup on many hosts",
                "a host may still use the files of another: run --op cleanup afterwards",
            );
        }
        Ok(())
    }

    /// Checks the shape of the tree, and options that only one directory allows.
    fn check_tree(&self) -> Result<(), Error> {
        let bad = |what: &str, place: String, hint: &str| Err(Error::usage(what, place, hint));
        if let Some(branches) = self.layout.branches {
            if branches.branching == 0 || branches.depth > 64 {
                let place = format!("{}, {}", branches.depth, branches.branching);
                return bad("--depth, --branching", place, "give a depth of at most 64 and a branching of at least 1");
            }
            match branches.directories() {
                Some(directories) if directories <= 1 << 24 => {}
                _ => {
                    let place = format!("{}, {}", branches.depth, branches.branching);
                    return bad("--depth, --branching", place, "the tree has more than 16777216 directories");
                }
            }
            if self.layout.dirs_per_dir.is_some() {
                return bad(
                    "--dirs-per-dir",
                    "with --depth".into(),
                    "--depth and --branching give the shape: leave it out",
                );
            }
        }
        if self.layout.shared && !self.layout.others.is_empty() {
            return bad(
                "--shared",
                "with several --dir".into(),
                "threads share the directories of one: give one --dir",
            );
        }
        if self.record_parts.is_some_and(|parts| parts == 0 || parts > 1_000_000) {
            return bad("--record", "of a part of the file".into(), "give / and 1 to 1000000, as /4 for a quarter");
        }
        if self.direct && self.record_parts.is_some() {
            return bad(
                "--direct",
                "with --record /N".into(),
                "O_DIRECT needs multiples of the block size: give bytes",
            );
        }
        if self.response_times.is_some() && !self.latency {
            return bad("--response-times", "with --no-latency".into(), "leave out one of the two");
        }
        if self.auto_pause && !self.latency {
            return bad(
                "--auto-pause",
                "with --no-latency".into(),
                "the pause follows the latency: leave out one of them",
            );
        }
        if self.suffix_is_wrong() {
            return bad("--suffix", format!("'{}'", self.layout.suffix), "give at most 50 characters without a slash");
        }
        Ok(())
    }

    fn suffix_is_wrong(&self) -> bool {
        self.layout.suffix.contains(['/', '\0']) || self.layout.suffix.len() > 50
    }

    /// Follows the existing objects from phase to phase: every operation must have something to work on.
    fn check_populations(&self) -> Result<(), Error> {
        // Before the first phase anything may be there.
        let mut removed: Vec<(Population, &str)> = Vec::new();
        for phase in &self.phases {
            let walks = || phase.operations.iter().map(|(operation, _)| (operation.row().name, operation.row().walk));
            let made_here = |kind: Population| walks().any(|(_, walk)| walk == Walk::Makes(kind));
            for (name, walk) in walks() {
                if let Walk::Uses(kind) | Walk::Takes(kind) = walk
                    && let Some((_, by)) = removed.iter().find(|(gone, _)| *gone == kind)
                    && !made_here(kind)
                {
                    return Err(Error::usage("--op:", format!("{name} after {by}"), "nothing is left for it then"));
                }
            }
            for (_, walk) in walks() {
                match walk {
                    Walk::Makes(kind) => removed.retain(|(gone, _)| *gone != kind),
                    Walk::Takes(kind) if phase.only().is_some() && !self.may_end_early() => {
                        removed.push((kind, phase.operations[0].0.row().name));
                    }
                    Walk::All => {
                        use Population::{Directories, Files, Links, Symlinks};
                        removed.extend([Files, Directories, Symlinks, Links].map(|kind| (kind, "cleanup")));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Bytes and number of files that the first phase of one operation needs, if that operation makes objects;
    /// otherwise None. None too where phases may end early: nobody knows how far they come.
    pub fn needs(&self) -> Option<(f64, u64)> {
        if self.may_end_early() {
            return None;
        }
        let first = self.phases.iter().find_map(Phase::only)?;
        let files = self.files.saturating_mul(u64::from(self.workers()));
        match first.row().walk {
            Walk::Makes(Population::Files) if first == Operation::Mknod => Some((0.0, files)),
            Walk::Makes(Population::Files) => Some((files as f64 * self.sizes.mean(), files)),
            Walk::Makes(_) => Some((0.0, files)),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A plan on a directory: one thread, ten files of 4 KiB.
    pub(crate) fn plan(dir: &str, operations: &str) -> Plan {
        let layout = Layout::flat(CString::new(dir).unwrap());
        let phases = Phase::parse_all(operations).unwrap();
        Plan { verify: true, checkable: true, xattr_bytes: 32, ..Plan::of(Target::Posix, layout, phases, 10, 4096) }
    }

    #[test]
    fn phases_and_mixes_are_read() {
        let phases = Phase::parse_all("create,read:70+stat:30,delete").unwrap();
        assert_eq!(phases[0].only(), Some(Operation::Create));
        assert_eq!(phases[1].operations, [(Operation::Read, 70), (Operation::Stat, 30)]);
        assert_eq!(phases[2].only(), Some(Operation::Unlink));
        for (text, part) in [
            ("creat", "no operation is called 'creat'; there are: create"),
            ("", "no operation"),
            ("read:0+stat", "'0' is not a weight"),
            ("read+read", "twice"),
            ("read+cleanup", "phase of its own"),
        ] {
            let error = Phase::parse_all(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        let refused = |change: &dyn Fn(&mut Plan), operations: &str| {
            let mut plan = plan("/tmp", operations);
            change(&mut plan);
            plan.check().err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(refused(&|_| {}, "create,read,rename,stat,unlink,create,unlink"), "");
        assert_eq!(refused(&|_| {}, "read,stat"), "", "files may be there");
        assert!(refused(&|_| {}, "create,unlink,read").contains("read after unlink"));
        assert!(refused(&|_| {}, "create,cleanup,stat").contains("stat after cleanup"));
        assert!(refused(&|plan| plan.files = 0, "create").contains("--files"));
        assert!(refused(&|plan| plan.record_bytes = 0, "create").contains("--record"));
        assert!(refused(&|plan| (plan.direct, plan.sizes) = (true, Sizes::Fixed(1000)), "create").contains("O_DIRECT"));
        assert_eq!(refused(&|plan| (plan.direct, plan.sizes) = (true, Sizes::Fixed(1000)), "stat"), "");
        assert!(refused(&|plan| plan.layout.prefix = "a/b".into(), "create").contains("slash"));
    }
}
