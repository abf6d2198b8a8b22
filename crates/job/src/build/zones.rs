//! The rules of `zonemode`: strided zones, and the zones of zoned block devices.

use measure::Direction;

use super::Draft;
use crate::engines;
use crate::error::Error;
use crate::job::{Zoned, Zones};

impl Draft {
    /// `zonemode` with `zonesize` and the options that go with it.
    pub(super) fn zones(&mut self) -> Result<(), Error> {
        if self.zone_mode.as_deref() == Some("zbd") {
            return self.zoned_device();
        }
        for name in [
            "zonecapacity",
            "read_beyond_wp",
            "ignore_zone_limits",
            "max_open_zones",
            "job_max_open_zones",
            "zone_reset_threshold",
            "zone_reset_frequency",
        ] {
            if self.is_set(name) {
                self.warn_at(name, format!("{} has no effect without zonemode=zbd", self.written(name)));
            }
        }
        self.strided()
    }

    fn strided(&mut self) -> Result<(), Error> {
        let zones = Zones { skip: self.zone_skip, ..self.zones };
        match self.zone_mode.as_deref() {
            // A zonerange says that the zones are strided. fio refuses a zonesize without zonemode all the same.
            mode @ (None | Some("none")) if zones.size > 0 && (mode.is_some() || zones.range == 0) => {
                let what = "--zonemode=none and --zonesize are not compatible";
                return self.fail("zonesize", what, "write zonemode=strided or zonemode=zbd");
            }
            Some("strided") if zones.size == 0 => {
                let what = "--zonesize must be specified when using --zonemode=strided";
                return self.fail("zonemode", what, "write for example zonesize=256m");
            }
            _ => {}
        }
        if zones.size > 0 {
            let range = if zones.range == 0 { zones.size } else { zones.range };
            // A zone that spans less than is transferred in it is gone through again.
            let directions = self.job.rw.directions;
            let used = Direction::ALL.into_iter().filter(|&direction| directions[direction]);
            let smallest = used.map(|direction| self.job.blocks.range[direction].0).min().unwrap_or(1);
            if range < smallest {
                return self.fail(
                    "zonerange",
                    format!("{} is less than a block of {smallest} bytes", self.written("zonerange")),
                    "a zone spans at least one block",
                );
            }
            self.job.extent.strided = Some(Zones { size: zones.size, range, skip: zones.skip });
        } else if zones.skip > 0 || zones.range > 0 {
            let name = if zones.skip > 0 { "zoneskip" } else { "zonerange" };
            self.warn_at(name, format!("{} has no effect without zonesize", self.written(name)));
        }
        Ok(())
    }

    /// `zonemode=zbd`: the device says the rest when the files are looked at.
    fn zoned_device(&mut self) -> Result<(), Error> {
        let zoned = Zoned { size: self.zones.size, skip: self.zone_skip, ..self.zoned };
        let engine = engines::find(&self.job.engine);
        if engine.is_some_and(|engine| engine.diskless || engine.opens_files || engine.by_commands) {
            let what = format!("zonemode=zbd does not go with ioengine={}", self.job.engine);
            return self.fail("zonemode", what, "take an engine that opens block devices, such as libaio");
        }
        if self.is_set("zonesize") && zoned.size > 0 && zoned.size < 512 {
            let what = "zone size must be at least 512 bytes for --zonemode=zbd";
            return self.fail("zonesize", what, "write for example zonesize=256m");
        }
        if zoned.size > 0 && zoned.capacity > zoned.size {
            let what = format!("{} is larger than zonesize", self.written("zonecapacity"));
            return self.fail("zonecapacity", what, "a zone holds at most as much as it spans");
        }
        if self.zones.range > 0 {
            self.warn_at("zonerange", format!("{} has no effect with zonemode=zbd", self.written("zonerange")));
        }
        let (name, what) = if self.job.extent.fill {
            ("fill_device", "zonemode=zbd does not go with fill_device")
        } else if self.job.iolog.read.is_some() {
            ("read_iolog", "zonemode=zbd does not go with read_iolog")
        } else if self.precondition_wanted {
            ("sprandom", "zonemode=zbd does not go with sprandom")
        } else {
            self.job.extent.zoned = Some(zoned);
            return Ok(());
        };
        self.fail(name, what, "a zone takes writes in its order alone")
    }

    /// The demands of `zonemode=zbd` on trims and on verification.
    pub(super) fn check_zoned(&self) -> Result<(), Error> {
        if self.job.extent.zoned.is_none() {
            return Ok(());
        }
        let blocks = &self.job.blocks;
        if self.job.rw.directions.trim && (blocks.range.trim.0 != blocks.range.trim.1 || !blocks.split.trim.is_empty())
        {
            let what = "bsrange and bssplit are not allowed for trim with zonemode=zbd";
            return self.fail("rw", what, "a trim resets a whole zone");
        }
        let Some(verify) = &self.job.verify else { return Ok(()) };
        if self.job.rw.directions.write && (verify.only || verify.loads_state) {
            let name = if verify.only { "verify_only" } else { "verify_state_load" };
            let what = format!("{name} does not go with zonemode=zbd and writes");
            let hint = "the zones say where the data are: read them with rw=read and verify=";
            return self.fail(name, what, hint);
        }
        if verify.trims.percent > 0 {
            let what = "trim_percentage does not go with zonemode=zbd";
            return self.fail("trim_percentage", what, "a trim resets a whole zone");
        }
        Ok(())
    }
}
