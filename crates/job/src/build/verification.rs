//! The rules of `verify`: the blocks that are checked, and their headers.

use super::{Draft, Imposed};
use crate::engines;
use crate::error::Error;
use crate::job::{Verify, VerifyKind};

/// Bytes of a header, fio's.
const HEADER: u64 = 40;

impl Draft {
    pub(super) fn verify(&mut self, imposed: &Imposed) -> Result<(), Error> {
        // A pattern alone is reason enough to verify.
        let implied =
            (!self.verify_given && !self.verify.pattern.bytes.is_empty()).then_some(VerifyKind::PatternHeader);
        let Some(kind) = self.verify_kind.or(implied) else { return self.verify_nothing() };
        self.verify_kind_fits(kind)?;
        let engine = engines::find(&self.job.engine);
        if engine.is_some_and(|engine| engine.on_names) {
            let what = format!("verify has no effect: the engine {} writes no data", self.job.engine);
            self.warn_at("verify", what);
            return Ok(());
        }
        let mut verify = Verify { kind, ..self.verify.clone() };
        verify.compares = !engine.is_some_and(|engine| engine.without_content);
        if !verify.compares && kind != VerifyKind::Null {
            let what = format!("verify compares nothing: the engine {} stores no data", self.job.engine);
            self.warn_at("verify", what);
        }
        if !self.refill_given {
            self.job.buffers.refill = true;
        }
        verify.interval = self.verify_interval(verify.interval);
        self.verify_header_fits(&verify)?;
        verify.saves_state = self.saves_state.unwrap_or(imposed.saves_state) && self.job.rw.directions.write;
        verify.saves_state &= !verify.only;
        verify.state_directory.clone_from(&imposed.state_directory);
        if verify.only || verify.loads_state {
            self.verify_earlier_run_fits(&verify)?;
        }
        self.job.verify = Some(verify);
        Ok(())
    }

    /// Options that say how a job verifies, where it does not.
    fn verify_nothing(&mut self) -> Result<(), Error> {
        if self.verify.only || self.verify.loads_state {
            let option = if self.verify.only { "verify_only" } else { "verify_state_load" };
            return self.fail(
                option,
                format!("{option} needs verify"),
                "write verify=crc32c, or whatever the data were written with",
            );
        }
        if self.saves_state == Some(true) {
            self.warn_at("verify_state_save", "verify_state_save has no effect without verify");
        }
        if self.verify.trims.percent > 0 {
            self.warn_at("trim_percentage", "trim_percentage has no effect without verify");
        }
        Ok(())
    }

    fn verify_kind_fits(&self, kind: VerifyKind) -> Result<(), Error> {
        if self.job.iolog.read.is_some() && kind != VerifyKind::Null {
            return self.fail(
                "verify",
                "verify does not check the data of a replay: a log holds requests, and not their contents",
                "remove verify, or run the job itself in place of its log",
            );
        }
        let needs_pattern = matches!(kind, VerifyKind::PatternOnly | VerifyKind::PatternHeader);
        if needs_pattern && self.verify.pattern.bytes.is_empty() {
            return self.fail(
                "verify",
                format!("{} needs verify_pattern", self.written("verify")),
                "write for example verify_pattern=0xdeadbeef",
            );
        }
        Ok(())
    }

    /// The interval, such that every block is a whole number of intervals.
    fn verify_interval(&self, wanted: u64) -> u64 {
        let (write, read) = (self.job.blocks.range.write, self.job.blocks.range.read);
        let mut interval = if write.0 != write.1 && wanted == 0 { write.0 } else { wanted };
        if interval > write.0 {
            interval = write.0;
        } else if self.job.rw.directions.read && interval > read.0 {
            interval = read.0;
        }
        if interval == 0 || write.0 % interval != 0 || write.1 % interval != 0 {
            interval = greatest_common_divisor(write.0, write.1);
        }
        interval
    }

    fn verify_header_fits(&self, verify: &Verify) -> Result<(), Error> {
        let headerless = matches!(verify.kind, VerifyKind::PatternOnly | VerifyKind::Null);
        if !headerless && verify.interval < 2 * HEADER {
            let what = format!("blocks of {} bytes have no room for a verification header", verify.interval);
            return self.fail(
                "verify",
                what,
                "use blocks of at least 80 bytes, or verify=pattern, which has no header",
            );
        }
        if verify.header_offset + HEADER > verify.interval && verify.header_offset > 0 {
            return self.fail(
                "verify_offset",
                format!("{} lies beyond the interval of {} bytes", self.written("verify_offset"), verify.interval),
                "lower it",
            );
        }
        Ok(())
    }

    /// The blocks that an earlier run wrote must follow from the options alone.
    fn verify_earlier_run_fits(&self, verify: &Verify) -> Result<(), Error> {
        let option = if verify.only { "verify_only" } else { "verify_state_load" };
        if verify.trims.percent > 0 {
            return self.fail(
                option,
                format!("{option} cannot tell which blocks an earlier run with trim_percentage trimmed"),
                "verify in the run that writes",
            );
        }
        let rw = self.job.rw.directions;
        let rated = [&self.job.rate.bytes, &self.job.rate.iops]
            .into_iter()
            .any(|rate| rate.iter().any(|(_, rate)| rate.is_some()));
        if rw.read && rw.write && rated {
            return self.fail(
                option,
                format!("{option} cannot tell which blocks a mixed job with rates wrote: their mix depends on time"),
                "verify in the run that writes, or leave the rates out of both runs",
            );
        }
        if verify.loads_state && !verify.only && rw.write {
            return self.fail(
                "verify_state_load",
                "verify_state_load would write over the blocks that it is to check",
                "add verify_only=1, or use rw=read or rw=randread",
            );
        }
        Ok(())
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
