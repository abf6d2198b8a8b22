//! The output of gfapi_perf_tool, line by line: people have scripts that read it.

use std::fmt::Write;

use measure::schema::{FilesResult, ThreadResult, Work};

use super::variables::{Load, VARIABLES, Variables};

/// The table of variables, for -h.
pub fn usage() -> String {
    let mut out = String::from(
        "usage: gfapi_perf_tool\nEverything is set by environment variables, before the command or exported; defaults are in parentheses.\n",
    );
    for (name, default, help) in VARIABLES {
        let named = if default.is_empty() { name.to_string() } else { format!("{name} ({default})") };
        let _ = writeln!(out, "{named:<32} - {help}");
    }
    out
}

/// The blocks `GLUSTER:` and `WORKLOAD:`, which are printed before the run.
pub fn head(of: &Variables) -> String {
    let yes = |is: bool| if is { "Yes" } else { "No" };
    let mut out = String::new();
    let _ = write!(
        out,
        "GLUSTER: \n  volume={}\n  transport={}\n  host={}\n  port={}\n  fuse?{}\n  trace level={}\n  start timeout={}\n",
        of.volume,
        of.transport,
        of.host,
        of.port,
        yes(of.fuse),
        of.trace_level,
        of.gun_timeout_s,
    );
    let _ = write!(
        out,
        "WORKLOAD:\n  type = {} \n  threads/proc = {}\n  base directory = {}\n  prefix={}\n  file size = {} KB\n  \
         file count = {}\n  record size = {} KB\n  files/dir={}\n  fsync-at-close? {} \n",
        of.load.name(),
        of.threads,
        of.base,
        of.prefix,
        of.file_kb,
        of.files,
        of.asked_record_kb,
        of.files_per_dir,
        yes(of.fsync),
    );
    if of.direct {
        out.push_str("  forcing use of direct I/O with O_DIRECT flag in open call\n");
    }
    if of.pause_us > 0 {
        let _ = writeln!(out, "  sleeping {} microsec after each file access", of.pause_us);
    }
    if of.load == Load::Mix {
        let _ = writeln!(out, "  percent reads = {:6.2}", of.read_percent);
    }
    if of.append {
        out.push_str("  using O_APPEND flag to append to existing files\n");
    }
    if of.overwrite {
        out.push_str("  overwriting existing files\n");
    }
    if of.record_kb < of.asked_record_kb {
        let _ = writeln!(out, "  truncating record size {} KB to file size {} KB", of.asked_record_kb, of.file_kb);
    }
    if matches!(of.load, Load::RandomRead | Load::RandomWrite) {
        let _ = writeln!(out, "  random read/write requests = {}", of.requests);
    }
    out
}

/// The results: each thread, then the aggregate.
pub fn results(of: &Variables, result: &FilesResult) -> String {
    let mut out = String::new();
    let Some(phase) = result.phases.first() else { return out };
    let reads = |one: &ThreadResult| {
        let counted = phase.operations.iter().zip(&one.operations);
        counted.filter(|(operation, _)| operation.operation == "read").map(|(_, count)| *count).sum::<u64>()
    };
    for one in &phase.threads {
        let _ = write!(out, "thread {:3}: ", one.thread);
        out.push_str(&block(of, &one.work, reads(one), one.runtime_ns));
    }
    let all_reads = phase.threads.iter().map(reads).sum();
    out.push_str("aggregate: ");
    out.push_str(&block(of, &phase.total, all_reads, phase.runtime_ns));
    // The original program counts missing files as deleted.
    for missing in phase.errors.iter().filter(|errors| of.load == Load::Unlink && errors.errno == libc::ENOENT) {
        let _ = writeln!(out, "  files missing = {}", missing.count);
    }
    out
}

fn block(of: &Variables, work: &Work, read: u64, elapsed_ns: u64) -> String {
    let mut out = String::new();
    let seconds = (elapsed_ns as f64 / 1e9).max(1e-9);
    let (written, deleted) = match of.load {
        Load::Unlink => (0, work.files),
        _ => (work.files - read.min(work.files), 0),
    };
    for (name, count) in [("written", written), ("read", read), ("deleted", deleted)] {
        if count > 0 {
            let _ = writeln!(out, "  files {name} = {count}");
        }
    }
    let _ = writeln!(out, "  files done = {}", work.files);
    if of.load == Load::Mix {
        let _ = writeln!(out, "  fraction of reads = {:6.2}%", 100.0 * read as f64 / (work.files as f64).max(1.0));
    }
    if work.records > 0 {
        let _ = writeln!(out, "  I/O (record) transfers = {}", work.records);
        let _ = writeln!(out, "  total bytes = {}", work.bytes);
    }
    let _ = writeln!(out, "  elapsed time    = {seconds:<9.2} sec");
    if work.records > 0 {
        let _ = writeln!(out, "  throughput      = {:<9.2} MB/sec", work.bytes as f64 / (1 << 20) as f64 / seconds);
    }
    let _ = writeln!(out, "  file rate       = {:<9.2} files/sec", work.files as f64 / seconds);
    if work.records > 0 {
        let iops = work.records as f64 / seconds;
        let _ = writeln!(out, "  IOPS            = {iops:<9.2} ({})", of.load.described());
    }
    out
}
