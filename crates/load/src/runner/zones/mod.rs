//! `zonemode=zbd`: jobs on zoned block devices, and on files and devices whose zones are emulated.
//!
//! ```text
//! prepare: report of the device ─► Table (shared by all clones) ─► extents begin and end at zones
//! run:     op of the workload ─► Zones::place ─► op at the write pointer, or below it
//! ```

mod rules;
mod table;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

use job::Job;
use job::workload::FileExtent;
use measure::Direction;
use sys::block::Device;
use sys::zoned::{self, Model};

use super::shared::Identity;
use crate::Error;
use crate::files::Target;
pub(super) use rules::{Placed, Zones};
use table::{MOST_OPEN, Storage, Table, Zone};

/// The tables of all devices and files of a plan whose jobs have `zonemode=zbd`.
#[derive(Default)]
pub(super) struct Tables {
    known: Vec<(Identity, Arc<Table>)>,
}

/// A device that has zones itself.
struct ZonedDevice(File);

impl Storage for ZonedDevice {
    fn reset(&self, start: u64, len: u64) -> io::Result<()> {
        zoned::reset(&self.0, start, len)
    }

    fn write_pointer(&self, start: u64) -> Option<u64> {
        zoned::report(&self.0, start, 1).ok()?.first().map(|zone| zone.write_pointer)
    }
}

/// A file or a device whose zones exist in the table alone.
struct Emulated;

impl Storage for Emulated {
    fn reset(&self, _start: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn write_pointer(&self, _start: u64) -> Option<u64> {
        None
    }
}

impl Tables {
    /// Looks at the files of a clone of a job with `zonemode=zbd`, and makes the extents begin and end at zones.
    ///
    /// # Errors
    /// Files whose zones do not go with the options of the job.
    pub fn add(&mut self, job: &Job, seat: u64, target: &mut Target) -> Result<(), Error> {
        if job.extent.zoned.is_none() {
            return Ok(());
        }
        let names: Vec<String> = target.names().map(str::to_owned).collect();
        for (index, name) in names.iter().enumerate() {
            let identity = Identity::of(name);
            if !self.known.iter().any(|(known, _)| *known == identity) {
                let table = look_at(job, name, target.extents()[index])?;
                self.known.push((identity, Arc::new(table)));
            }
            let table = self.find(job, name)?;
            let extent = fitted(job, name, &table, target.extents()[index])?;
            target.set_extent(index, extent);
        }
        self.of_clone(job, seat, target)?.map_or(Ok(()), |mut zones| zones.take_open())
    }

    /// The zones of a clone, if its job has `zonemode=zbd`.
    ///
    /// # Errors
    /// A file that was not there when the run began.
    pub fn of_clone(&self, job: &Job, seat: u64, target: &Target) -> Result<Option<Zones>, Error> {
        if job.extent.zoned.is_none() {
            return Ok(None);
        }
        let files = target.names().zip(target.extents());
        let files = files.map(|(name, extent)| Ok((self.find(job, name)?, *extent))).collect::<Result<_, Error>>()?;
        Ok(Some(Zones::new(job, seat, files)))
    }

    fn find(&self, job: &Job, name: &str) -> Result<Arc<Table>, Error> {
        let identity = Identity::of(name);
        let found = self.known.iter().find(|(known, _)| *known == identity);
        found.map(|(_, table)| Arc::clone(table)).ok_or_else(|| {
            let hint = format!("job {}: zonemode=zbd needs its files before the run begins", job.name);
            Error::usage("cannot use", name, hint)
        })
    }
}

fn wrong(name: &str, what: impl Into<String>, hint: &str) -> Error {
    Error::usage(what, format!("({name})"), hint)
}

/// The zones of a file, as the device reports them; emulated, all of them empty, where it has none.
fn look_at(job: &Job, name: &str, extent: FileExtent) -> Result<Table, Error> {
    let options = job.extent.zoned.unwrap_or_default();
    let stat = std::fs::metadata(name);
    let device = stat.as_ref().ok().filter(|stat| stat.file_type().is_block_device());
    let device = device.map(|stat| Device::from_number(stat.rdev()));
    let model = device.map_or(Model::None, zoned::model);
    let no_memory = |error| Error::system("cannot share memory for the zones of", name, error);
    if model == Model::None {
        let size = stat.map_or(0, |stat| stat.len()).max(extent.offset + extent.size);
        let zones = emulated(name, options.size, options.capacity, size)?;
        let table = Table::new(options.size, &zones, limit(job, name, 0)?, Box::new(Emulated));
        return table.map_err(no_memory);
    }
    let changes = job.rw.directions.write || job.rw.directions.trim;
    let file = File::options().read(true).write(changes).open(name);
    let file = file.map_err(|error| Error::system("cannot open", name, error))?;
    let found = zoned::report(&file, 0, usize::MAX)
        .map_err(|error| Error::system("cannot report the zones of", name, error))?;
    let zone_bytes = found.first().map_or(0, |zone| zone.len);
    if zone_bytes == 0 {
        return Err(wrong(name, "empty zone report", "the device has no zones: give zonesize to emulate them"));
    }
    if options.size > 0 && options.size != zone_bytes {
        let what = format!("{name} job parameter zonesize {} does not match disk zone size {zone_bytes}", options.size);
        return Err(wrong(name, what, "leave zonesize out"));
    }
    if found.iter().zip(0..).any(|(zone, number)| zone.start != number * zone_bytes) {
        return Err(wrong(name, "invalid zone data", "the zones differ in size"));
    }
    let zones: Vec<Zone> = found.iter().map(zone_of).collect();
    let own_limit = match (model, device) {
        (Model::HostManaged, Some(device)) if !options.ignore_limits => zoned::max_open(device),
        _ => 0,
    };
    let table = Table::new(zone_bytes, &zones, limit(job, name, own_limit)?, Box::new(ZonedDevice(file)));
    let mut table = table.map_err(no_memory)?;
    table.were_open = found.iter().zip(0..).filter(|(zone, _)| zone.open).map(|(_, number)| number).collect();
    table.needs_direct = model == Model::HostManaged;
    Ok(table)
}

fn zone_of(zone: &zoned::Zone) -> Zone {
    Zone {
        pointer: zone.write_pointer,
        written: zone.write_pointer,
        capacity: zone.capacity,
        sequential: zone.sequential,
        closed_to_writes: zone.closed_to_writes,
        offline: zone.offline,
        ..Zone::default()
    }
}

fn emulated(name: &str, zone_bytes: u64, capacity: u64, size: u64) -> Result<Vec<Zone>, Error> {
    if zone_bytes == 0 {
        let what = "Specifying the zone size is mandatory for regular file/block device with --zonemode=zbd";
        return Err(wrong(name, what, "write for example zonesize=256m"));
    }
    if size < zone_bytes {
        let what = format!("file/device size {size} is smaller than zone size {zone_bytes}");
        return Err(wrong(name, what, "make zonesize smaller"));
    }
    let capacity = if capacity == 0 { zone_bytes } else { capacity };
    let zones = (0..size.div_ceil(zone_bytes)).map(|number| {
        let start = number * zone_bytes;
        let capacity = capacity.min(size - start);
        Zone { pointer: start, written: start, capacity, sequential: true, ..Zone::default() }
    });
    Ok(zones.collect())
}

/// The zones that may be open, by the options and the limit of the device.
fn limit(job: &Job, name: &str, device: u32) -> Result<u32, Error> {
    let asked = job.extent.zoned.map_or(0, |zoned| zoned.max_open);
    if device > 0 && asked > device {
        let what = format!("Specified --max_open_zones ({asked}) is larger than max ({device})");
        return Err(wrong(name, what, "lower max_open_zones, or set ignore_zone_limits"));
    }
    let limit = if asked > 0 { asked } else { device };
    if limit > MOST_OPEN {
        let what = format!("'max_open_zones' value is larger than {MOST_OPEN}");
        return Err(wrong(name, what, "set max_open_zones"));
    }
    Ok(limit)
}

/// The extent of a clone, so that writes begin and end at zones; checks that go with it.
fn fitted(job: &Job, name: &str, table: &Table, extent: FileExtent) -> Result<FileExtent, Error> {
    let options = job.extent.zoned.unwrap_or_default();
    let (directions, zone_bytes) = (job.rw.directions, table.zone_bytes);
    let changes = directions.write || directions.trim;
    if table.needs_direct && directions.write && !job.files.direct {
        let what = "Using direct I/O is mandatory for writing to ZBD drives";
        return Err(wrong(name, what, "set direct=1"));
    }
    if options.max_open > 0 && options.max_open != table.max_open {
        let what = "Different 'max_open_zones' values";
        return Err(wrong(name, what, "give all jobs of this device the same one"));
    }
    if options.job_max_open > 0 && table.max_open == 0 {
        let what = "'job_max_open_zones' cannot be used without a global open zones limit";
        return Err(wrong(name, what, "set max_open_zones"));
    }
    let last = table.zone_at((extent.offset + extent.size).saturating_sub(1));
    let zones = table.lock();
    if extent.size == 0 || !(table.zone_at(extent.offset)..=last).any(|n| n < table.count && zones.get(n).sequential) {
        return Ok(extent);
    }
    drop(zones);
    if !options.skip.is_multiple_of(zone_bytes) {
        let what = format!("zoneskip {} is not a multiple of the device zone size {zone_bytes}", options.skip);
        return Err(wrong(name, what, "skip whole zones"));
    }
    for direction in Direction::ALL.into_iter().filter(|&direction| directions[direction]) {
        let (low, high) = job.blocks.range[direction];
        if direction == Direction::Trim && high != zone_bytes {
            let what = format!("trim block size {high} is not the zone size {zone_bytes}");
            return Err(wrong(name, what, "a trim resets a whole zone: set its bs= to zonesize"));
        }
        if job.verify.is_some() && low == high && !zone_bytes.is_multiple_of(high) {
            let what = format!("block size {high} is not a divisor of the zone size {zone_bytes}");
            return Err(wrong(name, what, "verify= needs zones that are full of blocks"));
        }
    }
    if !changes {
        return Ok(extent);
    }
    let offset = extent.offset.next_multiple_of(zone_bytes);
    let end = (extent.offset + extent.size) / zone_bytes * zone_bytes;
    if end <= offset {
        return Err(wrong(name, "io_size must be at least one zone", "raise size= to whole zones"));
    }
    Ok(FileExtent { offset, size: end - offset })
}

#[cfg(test)]
mod tests;
