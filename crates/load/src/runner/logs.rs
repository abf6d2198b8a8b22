//! fio's logs over time: `write_bw_log`, `write_iops_log`, `write_lat_log`, `write_hist_log`, and the recording
//! of ops (`write_iolog`).
//!
//! Lines are `time (ms), value, direction, block size, [offset,] priority[, time of issue (ns)]`, as "Log File Formats"
//! of fio(1) says. Values: KiB/s, iops, ns. One file a clone and figure: `PREFIX_clat.1.log`.

use std::fs::File;
use std::io::{self, Write};

use job::Job;
use job::workload::Op;
use measure::{Direction, Histogram, PerDirection};

use super::recorder::Times;
use crate::Error;

mod out;

use out::Out;
pub use out::inflate;

/// The logs of one clone.
#[derive(Debug)]
pub struct OpLogs {
    start_ns: u64,
    /// Milliseconds of the Unix epoch to add to times, with `log_unix_epoch`.
    epoch_ms: u64,
    average_ns: u64,
    /// bw and iops without `log_avg_msec` still average over this.
    rate_interval_ns: u64,
    window_end_ns: u64,
    rate_window: Window,
    with_offset: bool,
    with_priority: bool,
    with_issue_time: bool,
    /// The priority of ops that have none of their own.
    usual_priority: u16,
    value: WindowValue,
    bw: Option<Log>,
    iops: Option<Log>,
    slat: Option<Log>,
    clat: Option<Log>,
    lat: Option<Log>,
    histogram: Option<HistogramLog>,
    failure: Option<(String, io::Error)>,
}

#[derive(Debug)]
struct Log {
    path: String,
    out: Out,
    window: PerDirection<Values>,
}

/// The values of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Values {
    sum: u64,
    count: u64,
    largest: u64,
}

/// `log_window_value=`: the value that stands for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowValue {
    Mean,
    Largest,
    /// The mean, and the largest value in the next column.
    Both,
}

/// Bytes and ops of the present window.
#[derive(Debug, Default)]
struct Window {
    start_ns: u64,
    bytes: PerDirection<u64>,
    ops: PerDirection<u64>,
}

#[derive(Debug)]
struct HistogramLog {
    path: String,
    out: Out,
    interval_ns: u64,
    end_ns: u64,
    current: PerDirection<Histogram>,
    block: PerDirection<u64>,
    coarseness: u32,
}

impl OpLogs {
    /// The logs that `job` asks for, for clone number `number` (from 1) of the run; None if it asks for none.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn open(job: &Job, number: usize, epoch_ms: u64, synchronous: bool) -> Result<Option<OpLogs>, Error> {
        let logs = &job.reporting.logs;
        if logs.bw.is_none() && logs.iops.is_none() && logs.lat.is_none() && logs.histogram.is_none() {
            return Ok(None);
        }
        let name = |prefix: &String, figure: &str| {
            let number = if logs.per_job { format!(".{number}") } else { String::new() };
            let suffix = if logs.compressed { ".fz" } else { "" };
            format!("{prefix}_{figure}{number}.log{suffix}")
        };
        let create = |path: &String| {
            // The name of a job may have slashes in it.
            if let Some(folder) = std::path::Path::new(path).parent() {
                std::fs::create_dir_all(folder)
                    .map_err(|error| Error::system("cannot make the folder of the log", path, error))?;
            }
            let mut options = File::options();
            options.create(true).write(true);
            // Without per_job_logs all clones append to one file.
            if logs.per_job {
                options.truncate(true)
            } else {
                options.append(true)
            };
            options
                .open(path)
                .map(|file| Out::new(file, logs.compressed))
                .map_err(|error| Error::system("cannot create the log", path, error))
        };
        let log = |prefix: &Option<String>, figure: &str| match prefix {
            None => Ok(None),
            Some(prefix) => {
                let path = name(prefix, figure);
                Ok(Some(Log { out: create(&path)?, path, window: PerDirection::default() }))
            }
        };
        let histogram = match &logs.histogram {
            None => None,
            Some(prefix) => {
                let path = name(prefix, "clat_hist");
                let interval_ns = if logs.histogram_ns > 0 { logs.histogram_ns } else { 1_000_000_000 };
                Some(HistogramLog {
                    out: create(&path)?,
                    path,
                    interval_ns,
                    end_ns: u64::MAX,
                    current: PerDirection::default(),
                    block: PerDirection::default(),
                    coarseness: logs.histogram_coarseness,
                })
            }
        };
        let reporting = &job.reporting;
        Ok(Some(OpLogs {
            start_ns: 0,
            epoch_ms: if logs.unix_epoch { epoch_ms } else { 0 },
            average_ns: logs.average_ns,
            rate_interval_ns: logs.average_ns,
            window_end_ns: u64::MAX,
            rate_window: Window::default(),
            with_offset: logs.offset,
            with_priority: logs.priority,
            with_issue_time: logs.issue_time,
            usual_priority: super::priorities::usual(job),
            value: match (logs.both_values, logs.max_value) {
                (true, _) => WindowValue::Both,
                (_, true) => WindowValue::Largest,
                _ => WindowValue::Mean,
            },
            bw: log(&logs.bw, "bw")?,
            iops: log(&logs.iops, "iops")?,
            // A synchronous engine has no submission latency: the log is there and empty, as fio's.
            slat: if reporting.disable_slat { None } else { log(&logs.lat, "slat")?.filter(|_| !synchronous) },
            clat: if reporting.disable_clat { None } else { log(&logs.lat, "clat")? },
            lat: if reporting.disable_lat { None } else { log(&logs.lat, "lat")? },
            histogram,
            failure: None,
        }))
    }

    /// Times count from here: the start of the measured part.
    pub fn start(&mut self, now_ns: u64) {
        self.start_ns = now_ns;
        self.rate_window = Window { start_ns: now_ns, ..Window::default() };
        self.window_end_ns = if self.average_ns > 0 { now_ns.saturating_add(self.average_ns) } else { u64::MAX };
        if let Some(histogram) = &mut self.histogram {
            histogram.end_ns = now_ns.saturating_add(histogram.interval_ns);
        }
    }

    /// Takes note of a completed op.
    pub fn completed(&mut self, direction: Direction, op: &Op, times: &Times, priority: u16) {
        if self.start_ns == 0 {
            return; // Still in the ramp.
        }
        let slat = times.submitted.saturating_sub(times.created);
        let clat = times.completed.saturating_sub(times.submitted);
        let lat = times.completed.saturating_sub(times.created);
        if let Some(histogram) = &mut self.histogram {
            histogram.current[direction].record(clat);
            histogram.block[direction] = op.len;
        }
        self.rate_window.bytes[direction] += op.len;
        self.rate_window.ops[direction] += 1;
        if self.average_ns > 0 {
            for (log, value) in [(&mut self.slat, slat), (&mut self.clat, clat), (&mut self.lat, lat)] {
                let Some(log) = log else { continue };
                let window = &mut log.window[direction];
                window.sum += value;
                window.count += 1;
                window.largest = window.largest.max(value);
            }
            return;
        }
        // Every op: its own bandwidth and one op.
        let kib_per_second = (op.len as f64 / 1024.0 * 1e9 / lat.max(1) as f64) as u64;
        let at_ms = self.time_ms(times.completed);
        let priority = self.priority(priority);
        let line = Line {
            at_ms,
            direction,
            block: op.len,
            offset: self.with_offset.then_some(op.offset),
            priority,
            second: None,
            issued_ns: self.with_issue_time.then_some(0),
        };
        let issued_ns = self.with_issue_time.then(|| times.created.saturating_sub(self.start_ns));
        let values = [
            (&mut self.bw, kib_per_second, line.issued_ns),
            (&mut self.iops, 1, line.issued_ns),
            (&mut self.slat, slat, issued_ns),
            (&mut self.clat, clat, issued_ns),
            (&mut self.lat, lat, line.issued_ns),
        ];
        for (log, value, issued_ns) in values {
            let line = Line { issued_ns, ..line };
            if let Some(log) = log {
                note(&mut self.failure, &log.path, line.write(&mut log.out, value));
            }
        }
    }

    /// Closes windows that have ended.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns >= self.window_end_ns {
            self.close_window(now_ns);
            let behind = (now_ns - self.window_end_ns) / self.rate_interval_ns;
            self.window_end_ns += (behind + 1) * self.rate_interval_ns;
        }
        if let Some(log) = &mut self.histogram
            && now_ns >= log.end_ns
        {
            let at_ms = self.epoch_ms + (now_ns - self.start_ns) / 1_000_000;
            let written = log.write(at_ms);
            note(&mut self.failure, &log.path, written);
            log.end_ns += log.interval_ns;
        }
    }

    fn close_window(&mut self, now_ns: u64) {
        let at_ms = self.time_ms(now_ns);
        let seconds = (now_ns - self.rate_window.start_ns).max(1) as f64 / 1e9;
        for direction in Direction::ALL {
            let (bytes, ops) = (self.rate_window.bytes[direction], self.rate_window.ops[direction]);
            if ops == 0 {
                continue;
            }
            // A mean is of no block, no offset, no priority and no time of issue.
            let line = Line {
                at_ms,
                direction,
                block: 0,
                offset: self.with_offset.then_some(0),
                priority: if self.with_priority { Priority::Number(0) } else { Priority::RealTime(false) },
                second: None,
                issued_ns: self.with_issue_time.then_some(0),
            };
            let rates = [(&mut self.bw, bytes as f64 / 1024.0), (&mut self.iops, ops as f64)];
            for (log, amount) in rates {
                // A window has one rate: it is the mean and the largest value.
                let rate = (amount / seconds) as u64;
                let line = Line { second: (self.value == WindowValue::Both).then_some(rate), ..line };
                if let Some(log) = log {
                    note(&mut self.failure, &log.path, line.write(&mut log.out, rate));
                }
            }
            for log in [&mut self.slat, &mut self.clat, &mut self.lat].into_iter().flatten() {
                let Values { sum, count, largest } = std::mem::take(&mut log.window[direction]);
                if let Some(mean) = sum.checked_div(count) {
                    let (value, line) = match self.value {
                        WindowValue::Mean => (mean, line),
                        WindowValue::Largest => (largest, line),
                        WindowValue::Both => (mean, Line { second: Some(largest), ..line }),
                    };
                    note(&mut self.failure, &log.path, line.write(&mut log.out, value));
                }
            }
        }
        self.rate_window = Window { start_ns: now_ns, ..Window::default() };
    }

    /// The priority of an op, in the form that the job asks for.
    fn priority(&self, of_op: u16) -> Priority {
        let priority = if of_op == 0 { self.usual_priority } else { of_op };
        if self.with_priority { Priority::Number(priority) } else { Priority::RealTime(priority >> 13 == 1) }
    }

    fn time_ms(&self, now_ns: u64) -> u64 {
        self.epoch_ms + now_ns.saturating_sub(self.start_ns) / 1_000_000
    }

    /// Writes the lines that are left.
    ///
    /// # Errors
    /// The first write that failed, at any time.
    pub fn finish(mut self, now_ns: u64) -> Result<(), Error> {
        if self.average_ns > 0 && self.start_ns > 0 {
            self.close_window(now_ns);
        }
        if let Some(log) = &mut self.histogram
            && self.start_ns > 0
        {
            let at_ms = self.epoch_ms + now_ns.saturating_sub(self.start_ns) / 1_000_000;
            let written = log.write(at_ms);
            note(&mut self.failure, &log.path, written);
            note(&mut self.failure, &log.path, log.out.finish());
        }
        let logs = [self.bw, self.iops, self.slat, self.clat, self.lat];
        for mut log in logs.into_iter().flatten() {
            note(&mut self.failure, &log.path, log.out.finish());
        }
        match self.failure {
            None => Ok(()),
            Some((path, error)) => Err(Error::system("cannot write the log", path, error)),
        }
    }
}

fn note(failure: &mut Option<(String, io::Error)>, path: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome
        && failure.is_none()
    {
        *failure = Some((path.to_owned(), error));
    }
}

/// The priority of an op, as a line has it.
#[derive(Clone, Copy)]
enum Priority {
    /// The number that ioprio_set(2) takes (`log_prio`).
    Number(u16),
    /// 1 for the real-time class, 0 for others.
    RealTime(bool),
}

/// The columns of a line beside its value.
#[derive(Clone, Copy)]
struct Line {
    at_ms: u64,
    direction: Direction,
    block: u64,
    offset: Option<u64>,
    priority: Priority,
    /// The largest value, behind the mean.
    second: Option<u64>,
    /// The time at which the op was issued, since the start, in nanoseconds.
    issued_ns: Option<u64>,
}

impl Line {
    fn write(&self, out: &mut impl Write, value: u64) -> io::Result<()> {
        let (at, direction, block) = (self.at_ms, self.direction as u8, self.block);
        write!(out, "{at}, {value}, ")?;
        if let Some(second) = self.second {
            write!(out, "{second}, ")?;
        }
        write!(out, "{direction}, {block}, ")?;
        if let Some(offset) = self.offset {
            write!(out, "{offset}, ")?;
        }
        match self.priority {
            Priority::Number(priority) => write!(out, "0x{priority:04x}")?,
            Priority::RealTime(real_time) => write!(out, "{}", u8::from(real_time))?,
        }
        match self.issued_ns {
            Some(issued_ns) => writeln!(out, ", {issued_ns}"),
            None => writeln!(out),
        }
    }
}

/// FIO_IO_U_PLAT_NR of fio's stat.h: 29 groups of 64 bins.
const FIO_BINS: usize = 29 * 64;

/// The bin that fio counts a value in (stat.c: plat_val_to_idx).
fn fio_bin(value: u64) -> usize {
    const BITS: u32 = 6;
    let highest = 63 - (value | 1).leading_zeros();
    if highest <= BITS {
        return value as usize;
    }
    let error_bits = highest - BITS;
    let bin = ((u64::from(error_bits) + 1) << BITS) + ((value >> error_bits) & 63);
    (bin as usize).min(FIO_BINS - 1)
}

impl HistogramLog {
    /// One line a direction: time, direction, block size, then the number of ops in each of fio's 1,856 bins, or of
    /// as many together as `log_hist_coarseness` says. The last bin has all that took longer than it.
    fn write(&mut self, at_ms: u64) -> io::Result<()> {
        for direction in Direction::ALL {
            let histogram = &mut self.current[direction];
            if histogram.is_empty() {
                continue;
            }
            write!(self.out, "{at_ms}, {}, {}", direction as u8, self.block[direction])?;
            let mut bins = vec![0u64; FIO_BINS >> self.coarseness];
            for (lower, _, count) in histogram.buckets() {
                bins[fio_bin(lower) >> self.coarseness] += count;
            }
            for count in bins {
                write!(self.out, ", {count}")?;
            }
            writeln!(self.out)?;
            histogram.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values and bins of fio's stat.c.
    #[test]
    fn bins_are_those_of_fio() {
        let known = [(0, 0), (127, 127), (128, 128), (129, 128), (130, 129), (255, 191), (256, 192), (4096, 448)];
        for (value, bin) in known {
            assert_eq!(fio_bin(value), bin, "{value}");
        }
        assert_eq!(fio_bin(17_179_869_183), FIO_BINS - 1);
        assert_eq!(fio_bin(u64::MAX), FIO_BINS - 1);
    }
}
