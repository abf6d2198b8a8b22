//! One rank's share of a plan that many carry out: `$rank`, `$nranks` and `$host` in job files, names, seeds, and
//! depths and rates that are stated for all ranks together.

use std::ffi::OsString;
use std::path::Path;

use measure::Direction;

use crate::args::RunOptions;
use crate::error::{Error, Place};
use crate::file::Surroundings;
use crate::job::{Job, Plan};
use crate::per_host::Hosts;

/// The place of a process among all that carry out a plan: its rank, the number of ranks, and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Number of this rank, from 0.
    pub rank: u32,
    /// Number of ranks, at least 1.
    pub ranks: u32,
    /// The host's name.
    pub host: String,
    /// The hosts of all ranks.
    pub hosts: Vec<String>,
}

/// Distance between the seeds of neighbouring ranks: any odd number, so that the seeds of different ranks differ for
/// every `randseed`.
const SEEDS_APART: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rank {
    /// `text` with `$rank`, `$nranks` and `$host` replaced. Longer names that begin so (`$hosts`) are left alone.
    pub fn fill_in(&self, text: &str) -> String {
        let (rank, ranks) = (self.rank.to_string(), self.ranks.to_string());
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, from) = rest.split_at(at);
            let name: &str =
                from[1..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            out.push_str(before);
            match name {
                "rank" => out.push_str(&rank),
                "nranks" => out.push_str(&ranks),
                "host" => out.push_str(&self.host),
                other => out.push_str(&from[..1 + other.len()]),
            }
            rest = &from[1 + name.len()..];
        }
        out + rest
    }

    /// The arguments of a command line, filled in as `fill_in` does; those that are not UTF-8 stay as they are.
    pub fn fill_in_words(&self, words: Vec<OsString>) -> Vec<OsString> {
        let fill = |word: OsString| match word.to_str() {
            Some(text) if text.contains('$') => self.fill_in(text).into(),
            _ => word,
        };
        words.into_iter().map(fill).collect()
    }

    /// Calls `with` with surroundings in which the text of every file is filled in.
    pub fn in_surroundings<T>(&self, with: impl FnOnce(&Surroundings) -> T) -> T {
        let read = |path: &Path| (Surroundings::SYSTEM.read)(path).map(|text| self.fill_in(&text));
        let hosts = Hosts { here: &self.host, all: &self.hosts };
        with(&Surroundings { read: &read, variable: Surroundings::SYSTEM.variable, hosts })
    }

    /// Makes the plan this rank's own: seeds that differ from those of the other ranks; names of files and logs that do
    /// not collide with those of the other ranks, where Plimsoll makes the names (`filename=` is taken as it is); this
    /// rank's share of `--total-iodepth`, `--total-rate` and `--total-rate-iops`.
    ///
    /// # Errors
    /// A depth that cannot be divided evenly among the rank's clones, or leaves the rank with none.
    pub fn take_share(&self, plan: &mut Plan, run: &RunOptions) -> Result<(), Error> {
        self.seed_apart(plan);
        for job in &mut plan.jobs {
            if let Some(total) = run.total_iodepth {
                job.queue.depth = self.depth_of(job, total)?;
            }
            let clones = u64::from(job.process.clones.max(1));
            for direction in Direction::ALL.into_iter().filter(|&direction| job.rw.directions[direction]) {
                if let Some(total) = run.total_rate {
                    job.rate.bytes[direction] = Some((self.share_of(total) / clones).max(1));
                }
                if let Some(total) = run.total_rate_iops {
                    job.rate.iops[direction] = Some((self.share_of(total) / clones).max(1));
                }
            }
            if self.ranks > 1 {
                self.name_apart(job);
            }
        }
        Ok(())
    }

    /// Gives the plan seeds of this rank's own.
    pub fn seed_apart(&self, plan: &mut Plan) {
        for job in &mut plan.jobs {
            job.pattern.seed = job.pattern.seed.wrapping_add(SEEDS_APART.wrapping_mul(u64::from(self.rank)));
        }
    }

    /// This rank's part of a total: the shares of all ranks differ by one at most, and add up to the total.
    pub fn share_of(&self, total: u64) -> u64 {
        total / u64::from(self.ranks) + u64::from(u64::from(self.rank) < total % u64::from(self.ranks))
    }

    fn depth_of(&self, job: &Job, total: u32) -> Result<u32, Error> {
        let clones = u64::from(job.process.clones.max(1));
        let share = self.share_of(total.into());
        if share == 0 || !share.is_multiple_of(clones) {
            let what = format!(
                "--total-iodepth={total} cannot be divided: rank {} of {} has {share} of it, for numjobs={clones} of job {}",
                self.rank, self.ranks, job.name
            );
            let hint = format!("give a multiple of {}", u64::from(self.ranks) * clones);
            return Err(Error::new(&Place::CommandLine, what).hint(hint));
        }
        Ok((share / clones) as u32)
    }

    fn name_apart(&self, job: &mut Job) {
        let format = &mut job.files.format;
        let mark = format!("rank{}", self.rank);
        if format.contains("$clientuid") {
            *format = format.replace("$clientuid", &mark);
        } else if job.files.unique {
            *format = match format.rsplit_once('/') {
                Some((directory, name)) => format!("{directory}/{mark}.{name}"),
                None => format!("{mark}.{format}"),
            };
        }
        let logs = &mut job.reporting.logs;
        let written = [&mut logs.bw, &mut logs.iops, &mut logs.lat, &mut logs.histogram, &mut job.iolog.write];
        written.into_iter().flatten().for_each(|prefix| *prefix = format!("{prefix}.{mark}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, ranks: u32) -> Rank {
        Rank { rank, ranks, host: "node-7".into(), hosts: vec!["node-7".into(), "node-8.rack".into()] }
    }

    fn plan(words: &[&str]) -> Plan {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        crate::parse_command_line(&words).unwrap().plan().unwrap()
    }

    #[test]
    fn variables_are_filled_in_where_they_stand_alone() {
        let text = rank(3, 16).fill_in("f.$rank/$nranks-$host $hosts $ranks $jobname $ $");
        assert_eq!(text, "f.3/16-node-7 $hosts $ranks $jobname $ $");
        assert_eq!(rank(0, 1).fill_in("plain"), "plain");
        let words = rank(2, 4).fill_in_words(vec!["--filename=/mnt/$rank".into(), "job.fio".into()]);
        assert_eq!(words, ["--filename=/mnt/2", "job.fio"]);
    }

    #[test]
    fn job_files_are_filled_in_as_they_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("j.fio");
        std::fs::write(&path, "[of-$host]\nfilename=/d/$rank\nsize=${nowhere}4k\n").unwrap();
        let invocation = crate::parse_command_line(&[path.into()]).unwrap();
        let plan = rank(5, 8).in_surroundings(|surroundings| invocation.plan_in(surroundings)).unwrap();
        assert_eq!((plan.jobs[0].name.as_str(), plan.jobs[0].files.names[0].as_str()), ("of-node-7", "/d/5"));
    }

    #[test]
    fn shares_add_up_and_differ_by_one() {
        for (total, ranks) in [(64, 4), (10, 4), (3, 8), (1000, 7)] {
            let shares: Vec<u64> = (0..ranks).map(|one| rank(one, ranks).share_of(total)).collect();
            assert_eq!(shares.iter().sum::<u64>(), total);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn totals_are_divided_over_ranks_and_clones() {
        let run = RunOptions {
            total_iodepth: Some(64),
            total_rate: Some(1 << 20),
            total_rate_iops: Some(800),
            ..RunOptions::default()
        };
        let mut plan = plan(&["--name=a", "--rw=randread", "--size=1m", "--numjobs=2", "--ioengine=null"]);
        rank(1, 4).take_share(&mut plan, &run).unwrap();
        let job = &plan.jobs[0];
        assert_eq!((job.queue.depth, job.rate.bytes.read, job.rate.iops.read), (8, Some(131_072), Some(100)));
        assert_eq!(job.rate.bytes.write, None);
        let odd = RunOptions { total_iodepth: Some(10), ..RunOptions::default() };
        let error = rank(1, 4).take_share(&mut plan, &odd).err();
        assert!(error.is_none_or(|error| error.to_string().contains("multiple of 8")));
        assert!(rank(0, 4).take_share(&mut plan, &odd).unwrap_err().to_string().contains("multiple of 8"));
    }

    #[test]
    fn made_up_names_carry_the_rank_and_given_ones_do_not() {
        let words = ["--name=a", "--size=1m", "--filename=/x", "--write_bw_log=l"];
        let mut given = plan(&words);
        rank(2, 4).take_share(&mut given, &RunOptions::default()).unwrap();
        assert_eq!(given.jobs[0].files.names, ["/x"]);
        assert_eq!(given.jobs[0].reporting.logs.bw.as_deref(), Some("l.rank2"));
        let made = |words: &[&str], one: Rank| {
            let mut plan = plan(words);
            one.take_share(&mut plan, &RunOptions::default()).unwrap();
            (plan.jobs[0].files.format.clone(), plan.jobs[0].pattern.seed)
        };
        let words = ["--name=a", "--size=1m"];
        assert_eq!(made(&words, rank(2, 4)).0, "rank2.$jobname.$jobnum.$filenum");
        assert_eq!(made(&words, rank(0, 1)).0, "$jobname.$jobnum.$filenum", "alone nothing changes");
        assert_ne!(made(&words, rank(0, 4)).1, made(&words, rank(1, 4)).1, "seeds differ");
        let format = |format: &str| format!("--filename_format={format}");
        let of = |text: &str, more: &str| made(&["--name=a", "--size=1m", &format(text), more], rank(2, 4)).0;
        assert_eq!(of("$clientuid/$filenum", "--bs=4k"), "rank2/$filenum");
        assert_eq!(of("d$jobnum/f$filenum", "--bs=4k"), "d$jobnum/rank2.f$filenum");
        assert_eq!(of("f$filenum", "--unique_filename=0"), "f$filenum");
    }
}
