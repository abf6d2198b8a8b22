//! fio's line of status while a run lasts (`Jobs: 1 (f=1): [r(1)][50.0%]...`), on standard output.
//!
//! As in fio, the line ends with a carriage return, so that the next one replaces it on a terminal, and it tells shares
//! of the time from the third second on.

use std::io::{IsTerminal, Write};

use job::args::{Eta, Format, RunOptions};
use job::job::{Job, Plan};
use load::{CloneState, Progress};
use measure::Direction;
use report::fio_text;

/// The time between two lines where `--eta-interval` says nothing.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Seconds before which nobody can tell when a run ends.
const SILENT_S: u64 = 3;

/// The line, and what it told last.
pub struct StatusLine<'a> {
    plan: &'a Plan,
    every_ns: u64,
    new_line_ns: Option<u64>,
    /// The moment that the last line told of; rates count from there.
    shown: Progress,
    /// The time of the last line that stays, and whether the next one begins below it.
    line_ns: u64,
    breaks: bool,
    length: usize,
    /// True once the end of the run could be told.
    is_known: bool,
}

impl<'a> StatusLine<'a> {
    /// The line of this run; None where fio shows none.
    pub fn new(run: &RunOptions, plan: &'a Plan) -> Option<StatusLine<'a>> {
        let for_people = run.formats.is_empty() || run.formats.contains(&Format::Normal);
        let is_wanted = match run.eta {
            Eta::Always => true,
            Eta::Auto => std::io::stdout().is_terminal(),
            Eta::Never => false,
        };
        (is_wanted && !run.quiet && (for_people || run.output.is_some())).then(|| StatusLine {
            plan,
            every_ns: run.eta_interval_ns.unwrap_or(INTERVAL_NS),
            new_line_ns: run.eta_newline_ns.filter(|&interval_ns| interval_ns > 0),
            shown: Progress::default(),
            line_ns: 0,
            breaks: false,
            length: 0,
            is_known: false,
        })
    }

    /// Prints the line of a moment, if one is due.
    pub fn show(&mut self, now: &Progress, clones: &[(usize, CloneState)]) {
        let due_ns = self.every_ns / 100 * 95;
        let is_over = clones.iter().all(|(_, state)| matches!(state, CloneState::Ended | CloneState::Failed));
        if is_over || now.elapsed_ns - self.shown.elapsed_ns.min(now.elapsed_ns) < due_ns {
            return;
        }
        let line = self.line(now, clones);
        self.shown = *now;
        // A closed standard output does not end the run.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }

    fn line(&mut self, now: &Progress, clones: &[(usize, CloneState)]) -> String {
        let begins = if std::mem::take(&mut self.breaks) {
            self.length = 0;
            "\n"
        } else {
            ""
        };
        let at_work = |state: CloneState| matches!(state, CloneState::Run | CloneState::Verify);
        let jobs = || clones.iter().filter(|(_, state)| at_work(*state)).map(|&(job, _)| &self.plan.jobs[job]);
        let ramps = clones.iter().filter(|(_, state)| *state == CloneState::Ramp).count();
        let running = jobs().count() + ramps;
        let files: u64 = jobs().map(open_files).sum();
        let mut line = format!("Jobs: {running} (f={files}){}", goals(jobs(), self.plan));

        let elapsed_s = now.elapsed_ns.div_ceil(1_000_000_000);
        if elapsed_s >= SILENT_S && running > 0 {
            let left_s = now.remaining_ns.unwrap_or(0) / 1_000_000_000;
            self.is_known |= left_s > 0 && ramps < running;
            let share = if !self.is_known || ramps == running {
                "-.-%".to_owned()
            } else {
                format!("{:3.1}%", 100.0 * elapsed_s as f64 / (elapsed_s + left_s) as f64)
            };
            line += &format!(": [{}][{share}]{}[eta {}]", self.states(clones), self.rates(now), clock(left_s));
        }
        let length = line.len();
        let padding = self.length.saturating_sub(length);
        self.length = length;
        if let Some(interval_ns) = self.new_line_ns
            && now.elapsed_ns - self.line_ns.min(now.elapsed_ns) > interval_ns
        {
            (self.line_ns, self.breaks) = (now.elapsed_ns, true);
        }
        format!("{begins}{line}{:padding$}\r", "")
    }

    /// The state of each clone as a letter, equal neighbours together: `r(3),P(1)`.
    fn states(&self, clones: &[(usize, CloneState)]) -> String {
        let letters: Vec<char> = clones.iter().map(|&(job, state)| letter(&self.plan.jobs[job], state)).collect();
        let runs = letters.chunk_by(|one, next| one == next).map(|run| format!("{}({})", run[0], run.len()));
        runs.collect::<Vec<String>>().join(",")
    }

    /// Bandwidth and IOPS since the last line.
    fn rates(&self, now: &Progress) -> String {
        let before = &self.shown;
        let ms = ((now.elapsed_ns - before.elapsed_ns) / 1_000_000).max(1);
        let units = super::units_of(&self.plan.jobs[0]);
        let moved = Direction::ALL.map(|direction| {
            let kib = now.bytes[direction].saturating_sub(before.bytes[direction]) * 1000 / ms / 1024;
            let iops = now.ops[direction].saturating_sub(before.ops[direction]) * 1000 / ms;
            (&direction.name()[..1], kib, iops)
        });
        let moved = || moved.iter().filter(|(_, kib, iops)| *kib > 0 || *iops > 0);
        if moved().next().is_none() {
            return String::new();
        }
        let bw: Vec<String> =
            moved().map(|(name, kib, _)| format!("{name}={}", fio_text::rate_of_kib(*kib, units))).collect();
        let iops: Vec<String> = moved().map(|(name, _, iops)| format!("{name}={}", fio_text::count(*iops))).collect();
        format!("[{}][{} IOPS]", bw.join(","), iops.join(","))
    }
}

/// The rates that the jobs are held to, the least first: `, 0-1000 IOPS`; empty without one.
fn goals<'a>(jobs: impl Iterator<Item = &'a Job> + Clone, plan: &Plan) -> String {
    type Limit = fn(&Job, Direction) -> Option<u64>;
    let sum = |of: Limit| -> u64 {
        let of_job =
            |job: &'a Job| Direction::ALL.into_iter().filter(|&d| job.rw.directions[d]).filter_map(move |d| of(job, d));
        jobs.clone().flat_map(of_job).sum()
    };
    let bytes = (sum(|job, d| job.rate.min_bytes[d]), sum(|job, d| job.rate.bytes[d]));
    let iops = (sum(|job, d| job.rate.min_iops[d]), sum(|job, d| job.rate.iops[d]));
    let rate = |bytes: u64| fio_text::rate(bytes, super::units_of(&plan.jobs[0]));
    match (bytes, iops) {
        ((0, 0), (0, 0)) => String::new(),
        ((0, 0), (least, most)) => format!(", {least}-{most} IOPS"),
        ((least, most), _) => format!(", {}-{}", rate(least), rate(most)),
    }
}

fn open_files(job: &Job) -> u64 {
    let count = if job.files.names.is_empty() { job.files.count as usize } else { job.files.names.len() };
    (count as u64).min(job.files.open.map_or(u64::MAX, u64::from))
}

/// fio's letter for the state of a clone.
fn letter(job: &Job, state: CloneState) -> char {
    let used = job.rw.directions;
    let both = used.read && used.write;
    let at_work = match (both, job.pattern.mix_read) {
        (true, 100) => 'r',
        (true, 0) => 'w',
        (true, _) => 'm',
        _ if used.read => 'r',
        _ if used.write => 'w',
        _ => 'd',
    };
    match state {
        CloneState::Waiting => 'P',
        CloneState::Layout => 'I',
        CloneState::Ramp => '/',
        CloneState::Run if job.rw.random => at_work,
        CloneState::Run => at_work.to_ascii_uppercase(),
        CloneState::Verify => 'V',
        CloneState::Ended => '_',
        CloneState::Failed => 'X',
    }
}

/// A time as `01h:02m:03s`, without the hours where there are none.
fn clock(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let mut text = if days > 0 { format!("{days:02}d:") } else { String::new() };
    if days > 0 || hours > 0 {
        text += &format!("{hours:02}h:");
    }
    text + &format!("{:02}m:{:02}s", seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_in_fios_words() {
        let words = ["--name=a", "--rw=randrw", "--numjobs=2", "--name=b", "--rw=write", "--rate_iops=1000,2000"];
        let words: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
        let run = RunOptions { eta: Eta::Always, ..RunOptions::default() };
        let plan = job::parse_command_line(&words).unwrap().plan().unwrap();
        let mut line = StatusLine::new(&run, &plan).unwrap();
        let mut now = Progress { elapsed_ns: 1_000_000_000, ..Progress::default() };
        let mut clones = [(0, CloneState::Run), (0, CloneState::Run), (1, CloneState::Waiting)];
        assert_eq!(line.line(&now, &clones), "Jobs: 2 (f=2)\r");
        line.shown = now;
        now.elapsed_ns = 3_000_000_000;
        (now.remaining_ns, now.ops.read, now.bytes.read) = (Some(3_700_000_000), 5000, 5000 * 4096);
        assert_eq!(
            line.line(&now, &clones),
            "Jobs: 2 (f=2): [m(2),P(1)][50.0%][r=9.77MiB/s][r=2500 IOPS][eta 00m:03s]\r"
        );
        clones = [(0, CloneState::Ended), (0, CloneState::Failed), (1, CloneState::Run)];
        line.shown = now;
        assert_eq!(
            line.line(&now, &clones).trim_end_matches([' ', '\r']),
            "Jobs: 1 (f=1), 0-2000 IOPS: [_(1),X(1),W(1)][50.0%][eta 00m:03s]"
        );
        assert_eq!(clock(93_784), "01d:02h:03m:04s");
    }
}
