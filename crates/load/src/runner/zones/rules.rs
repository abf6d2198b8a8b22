//! The rules of a zoned device, for the ops of one clone.
//!
//! ```text
//! an op of the workload ─► place ─► issued ─► ended
//!                            │
//!                            ├─► Wait, Later: its zone is busy; the caller offers the op again
//!                            ├─► Redraw: no data to read; the next op of a mixed workload is a write
//!                            └─► Over: no zone takes the op; the pass over this file ends
//! ```
//!
//! - A write begins at the write pointer of an open zone, and no write of the same zone is in flight.
//! - A zone that is full is reset before it is written again; under `verify=` it is not written again in this pass.
//! - A read stays below the end of the data that have been written (`read_beyond_wp` lifts this rule).
//! - A trim resets its zone. A reset waits until neither reads nor writes of its zone are in flight.
//!
//! The choice among zones is fio's (zbd.c of fio 3.33).

use std::io;
use std::sync::Arc;

use job::Job;
use job::job::Zoned;
use job::workload::{FileExtent, Op, OpKind};
use measure::Direction;

use super::table::{Locked, Table, Zone};
use crate::Error;

/// The answer to an op of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Issue this op, which stands for the other one.
    Op(Op),
    /// Reset the zone of this trim ([`Zones::reset`]) in place of issuing it.
    Reset(Op),
    /// Offer the op again after one in flight has ended.
    Wait,
    /// Offer the op again in a moment: another clone is at work in its zone.
    Later,
    /// Drop the op, and draw another one.
    Redraw,
    /// Drop the op: this pass over the file is done.
    Over,
}

/// The zones of the files of one clone.
pub struct Zones {
    rules: Rules,
    files: Vec<View>,
    seat: u64,
    /// The op placed last, until it is issued.
    placed: Option<Held>,
    /// The zone of the op in each slot.
    held: Vec<Option<Held>>,
    /// Ops in flight on zones.
    flying: usize,
    /// True before the first op of a pass.
    begins: bool,
    /// True if the next op of a mixed workload has to be a write.
    needs_data: bool,
    resets: u64,
}

/// The rules that do not change.
#[derive(Clone, Copy, Debug)]
struct Rules {
    zoned: Zoned,
    random: bool,
    mixed: bool,
    writes: bool,
    verifies: bool,
    /// The smallest block of each direction.
    block: [u64; 3],
}

/// The part of one file that the clone uses.
struct View {
    table: Arc<Table>,
    extent: FileExtent,
    /// The zones of the extent: the first, and the one after the last.
    zones: (u64, u64),
    /// A zone that had data when it was looked at last.
    readable: u64,
}

/// A zone that an op in flight keeps busy.
#[derive(Clone, Copy, Debug)]
struct Held {
    file: usize,
    zone: u64,
    use_: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    Reset,
}

/// A search for a zone that takes a write.
enum Choice {
    Zone(u64),
    Busy,
    None,
}

impl Zones {
    /// The zones of a clone: for each of its files a table and the extent that the clone uses. `seat` tells the clone
    /// from all other clones.
    pub fn new(job: &Job, seat: u64, files: Vec<(Arc<Table>, FileExtent)>) -> Zones {
        let directions = job.rw.directions;
        let rules = Rules {
            zoned: job.extent.zoned.unwrap_or_default(),
            random: job.rw.random,
            mixed: directions.read && directions.write,
            writes: directions.write || directions.trim,
            verifies: job.verify.is_some(),
            block: Direction::ALL.map(|d| {
                let split = job.blocks.split[d].iter().map(|&(bytes, _)| bytes).min();
                split.unwrap_or(job.blocks.range[d].0).max(1)
            }),
        };
        let view = |(table, extent): (Arc<Table>, FileExtent)| {
            let zones = (table.zone_at(extent.offset), table.zone_at(extent.offset + extent.size));
            View { table, extent, zones, readable: zones.0 }
        };
        let files = files.into_iter().map(view).collect();
        let (held, begins) = (Vec::new(), true);
        Zones { rules, files, seat, placed: None, held, flying: 0, begins, needs_data: false, resets: 0 }
    }

    /// Before the run: takes over the zones that are open on the device, as far as the limits allow, and resets the
    /// rest of them.
    ///
    /// # Errors
    /// A reset failed.
    pub fn take_open(&mut self) -> Result<(), Error> {
        for file in 0..self.files.len() {
            let table = Arc::clone(&self.files[file].table);
            for number in self.files[file].zones.0..self.files[file].zones.1 {
                if !self.rules.writes || !table.were_open.contains(&number) || self.open(&table, &table.lock(), number)
                {
                    continue;
                }
                self.reset_zone(&table, number)?;
            }
        }
        Ok(())
    }

    /// Zones reset so far.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Begins another pass: under `verify=`, its zones are reset before its first op.
    pub fn begin_pass(&mut self) {
        self.begins = true;
    }

    /// True if the next op resets zones whose data may still be read back: nothing else must be in flight.
    pub fn begins_with_resets(&self) -> bool {
        self.begins && self.rules.verifies && self.rules.writes
    }

    /// True if the next op of a mixed workload has to be a write, because no zone has data.
    pub fn needs_data(&mut self) -> bool {
        if !self.rules.mixed || self.rules.zoned.read_beyond_wp {
            return false;
        }
        std::mem::take(&mut self.needs_data) || !(0..self.files.len()).any(|file| self.has_data(file))
    }

    fn has_data(&mut self, file: usize) -> bool {
        let block = self.rules.block[Direction::Read as usize];
        let view = &mut self.files[file];
        let zones = view.table.lock();
        let has = |number: u64| readable(&view.table, &zones, number) >= block;
        let found = Some(view.readable).filter(|&number| number < view.zones.1 && has(number));
        let found = found.or_else(|| (view.zones.0..view.zones.1).find(|&number| has(number)));
        drop(zones);
        found.inspect(|&number| view.readable = number).is_some()
    }

    /// The place of an op of the workload.
    ///
    /// # Errors
    /// An op that no zone can take, and a reset that failed.
    pub fn place(&mut self, op: Op) -> Result<Placed, Error> {
        if self.begins && !self.begin()? {
            return Ok(self.busy());
        }
        match op.kind {
            OpKind::Io(Direction::Read) => Ok(self.read(op)),
            OpKind::Io(Direction::Write) => self.write(op),
            OpKind::Io(Direction::Trim) => self.trim(op),
            _ => Ok(Placed::Op(op)),
        }
    }

    /// True if the first op of a pass may be placed.
    fn begin(&mut self) -> Result<bool, Error> {
        if self.begins_with_resets() {
            for file in 0..self.files.len() {
                let table = Arc::clone(&self.files[file].table);
                for number in self.files[file].zones.0..self.files[file].zones.1 {
                    let zones = table.lock();
                    let zone = zones.get(number);
                    if !zone.sequential || zone.closed_to_writes {
                        continue;
                    }
                    if zone.writer != 0 || zone.readers != 0 {
                        return Ok(false);
                    }
                    zones.close(number);
                    drop(zones);
                    self.reset_zone(&table, number)?;
                }
            }
        }
        self.begins = false;
        Ok(true)
    }

    /// The answer for an op whose zone is busy: own ops end without help, those of others are looked at again.
    fn busy(&self) -> Placed {
        if self.flying > 0 { Placed::Wait } else { Placed::Later }
    }

    fn hold(&mut self, zones: &Locked, held: Held) {
        let zone = zones.get(held.zone);
        let zone = match held.use_ {
            Use::Read => Zone { readers: zone.readers + 1, ..zone },
            Use::Write | Use::Reset => Zone { writer: self.seat + 1, ..zone },
        };
        zones.set(held.zone, &zone);
        zones.fly(1);
        self.flying += 1;
        self.placed = Some(held);
    }

    fn read(&mut self, op: Op) -> Placed {
        let block = self.rules.block[Direction::Read as usize];
        let view = &self.files[op.file as usize];
        let table = Arc::clone(&view.table);
        let zones = table.lock();
        let drawn = table.zone_at(op.offset);
        if drawn >= table.count {
            return Placed::Op(op);
        }
        let zone = zones.get(drawn);
        if !zone.sequential {
            return Placed::Op(beside_a_sequential_zone(&table, &zones, op, block));
        }
        if self.rules.zoned.read_beyond_wp && !zone.offline {
            return Placed::Op(op);
        }
        let has = |number: u64| readable(&table, &zones, number);
        let (mut number, mut offset, mut len) = (drawn, op.offset, op.len);
        if has(drawn) < block || (!self.rules.random && offset + block > table.start(drawn) + has(drawn)) {
            let found = nearest(drawn, view.zones, self.rules.random, |number| has(number) >= block);
            let Some(found) = found else {
                return match () {
                    // Data may come with the writes in flight.
                    () if self.flying > 0 && self.rules.mixed => Placed::Wait,
                    () if self.rules.mixed => {
                        self.needs_data = true;
                        Placed::Redraw
                    }
                    () => Placed::Over,
                };
            };
            number = found;
            if !self.rules.random {
                offset = table.start(number);
            }
        }
        let (start, range) = (table.start(number), has(number));
        if range <= len {
            offset = start;
        } else if self.rules.random {
            offset = start + (op.offset - table.start(drawn)) % (range - len) / block * block;
        }
        len = len.min(start + range - offset) / block * block;
        if zones.get(number).sequential {
            self.hold(&zones, Held { file: op.file as usize, zone: number, use_: Use::Read });
        }
        Placed::Op(Op { offset, len, ..op })
    }

    fn write(&mut self, op: Op) -> Result<Placed, Error> {
        let file = op.file as usize;
        let block = self.rules.block[Direction::Write as usize];
        let table = Arc::clone(&self.files[file].table);
        let drawn = table.zone_at(op.offset);
        let zones = table.lock();
        if !zones.get(drawn).sequential {
            return Ok(Placed::Op(beside_a_sequential_zone(&table, &zones, op, block)));
        }
        if op.len > table.zone_bytes {
            return Err(self.refused(&op, "I/O buflen exceeds zone size"));
        }
        let number = if self.open(&table, &zones, drawn) {
            drawn
        } else {
            match self.other_zone(file, &zones, &op, drawn) {
                Choice::Zone(number) => number,
                Choice::Busy => return Ok(self.busy()),
                Choice::None => return Ok(Placed::Over),
            }
        };
        let mut zone = zones.get(number);
        if zone.writer != 0 {
            return Ok(self.busy());
        }
        let (start, end) = (table.start(number), table.start(number) + zone.capacity);
        if !self.rules.verifies && zone.pointer > start {
            zone.is_due |= self.resets_early(file, &zones);
            if zone.is_due || zone.pointer + block > end {
                if zone.readers != 0 {
                    zones.set(number, &zone);
                    return Ok(self.busy());
                }
                zones.set(number, &Zone { writer: self.seat + 1, ..zone });
                zones.fly(1);
                drop(zones);
                // The zone is this clone's alone now, without the lock.
                self.reset_held(&table, number)?;
                return self.write(op);
            }
        }
        let len = op.len.min(end - zone.pointer) / block * block;
        if len < block {
            return Err(self.refused(&op, "zone capacity smaller than minimum block size"));
        }
        let offset = zone.pointer;
        zones.set(number, &Zone { pointer: offset + len, ..zone });
        self.hold(&zones, Held { file, zone: number, use_: Use::Write });
        Ok(Placed::Op(Op { offset, len, ..op }))
    }

    fn trim(&mut self, op: Op) -> Result<Placed, Error> {
        let file = op.file as usize;
        let table = Arc::clone(&self.files[file].table);
        let drawn = table.zone_at(op.offset);
        let zones = table.lock();
        let zone = zones.get(drawn);
        if !zone.sequential {
            return Ok(Placed::Op(op));
        }
        let mut number = drawn;
        if self.rules.random && zone.pointer == table.start(drawn) {
            let has = |number: u64| {
                let zone = zones.get(number);
                zone.sequential && zone.pointer > table.start(number)
            };
            match nearest(drawn, self.files[file].zones, true, has) {
                Some(found) => number = found,
                None if zones.flying() > 0 => return Ok(self.busy()),
                None => return Ok(Placed::Over),
            }
        }
        if number == drawn && op.offset != table.start(number) {
            return Err(self.refused(&op, "Trim offset not at zone start"));
        }
        let zone = zones.get(number);
        if zone.writer != 0 || zone.readers != 0 {
            return Ok(self.busy());
        }
        self.hold(&zones, Held { file, zone: number, use_: Use::Reset });
        Ok(Placed::Reset(Op { offset: table.start(number), ..op }))
    }

    /// True if the zone takes a write: it is open, or the limits let the clone open it.
    fn open(&self, table: &Table, zones: &Locked, number: u64) -> bool {
        let zone = zones.get(number);
        let end = table.start(number) + zone.capacity;
        let block = self.rules.block[Direction::Write as usize];
        if !zone.sequential || zone.closed_to_writes || (self.rules.verifies && zone.pointer + block > end) {
            return false;
        }
        if table.max_open == 0 {
            return true;
        }
        if zone.opener != 0 {
            // Writes in flight may fill the zone: then it is as good as full.
            return zone.pointer < end;
        }
        if self.at_own_limit(zones) || zones.open_count() >= u64::from(table.max_open) {
            return false;
        }
        zones.open(number, self.seat);
        true
    }

    fn at_own_limit(&self, zones: &Locked) -> bool {
        let limit = u64::from(self.rules.zoned.job_max_open);
        let own = |place: &u64| zones.get(zones.open_at(*place)).opener == self.seat + 1;
        limit > 0 && (0..zones.open_count()).filter(own).count() as u64 >= limit
    }

    /// A zone for a write whose own zone takes none: one that is open and has room, or another one that can be opened.
    fn other_zone(&self, file: usize, zones: &Locked, op: &Op, drawn: u64) -> Choice {
        let view = &self.files[file];
        let table = &*view.table;
        let block = self.rules.block[Direction::Write as usize];
        let inside = |number: u64| (view.zones.0..view.zones.1).contains(&number);
        let has_room = |number: u64| {
            let zone = zones.get(number);
            !zone.closed_to_writes && zone.pointer + block <= table.start(number) + zone.capacity
        };
        let count = zones.open_count();
        let mut from = drawn.clamp(view.zones.0, view.zones.1.max(view.zones.0 + 1) - 1);
        if count > 0 {
            let place = (u128::from(op.offset - view.extent.offset) * u128::from(count)
                / u128::from(view.extent.size.max(1))) as u64;
            let open = (0..count).map(|step| zones.open_at((place + step) % count)).find(|&number| inside(number));
            if let Some(open) = open {
                if has_room(open) {
                    return Choice::Zone(open);
                }
                from = open;
            }
        }
        let at_limit = table.max_open > 0 && (count >= u64::from(table.max_open) || self.at_own_limit(zones));
        if at_limit && self.flying > 0 {
            return Choice::Busy;
        }
        let total = view.zones.1 - view.zones.0;
        for step in 1..=total {
            let number = view.zones.0 + (from - view.zones.0 + step) % total;
            if zones.get(number).opener == 0 && self.open(table, zones, number) {
                return Choice::Zone(number);
            }
        }
        let open = (0..zones.open_count()).map(|place| zones.open_at(place)).find(|&n| inside(n) && has_room(n));
        // A full one is written again, once its last op has ended.
        let again = || (0..zones.open_count()).map(|place| zones.open_at(place)).find(|&number| inside(number));
        match open.or_else(|| again().filter(|_| !self.rules.verifies)) {
            Some(open) => Choice::Zone(open),
            // An op that ends may close a zone, and another one be opened.
            None if zones.flying() > 0 && table.max_open > 0 => Choice::Busy,
            None => Choice::None,
        }
    }

    /// `zone_reset_threshold`, `zone_reset_frequency`: true if this write resets its zone.
    fn resets_early(&self, file: usize, zones: &Locked) -> bool {
        let Zoned { reset_frequency, reset_threshold, .. } = self.rules.zoned;
        if reset_frequency == 0.0 {
            return false;
        }
        let View { table, extent, zones: (first, end), .. } = &self.files[file];
        let data = (*first..*end).map(|number| (zones.get(number), table.start(number)));
        let data: u64 = data.filter(|(zone, _)| zone.sequential).map(|(zone, start)| zone.pointer - start).sum();
        if (data as f64) < extent.size as f64 * reset_threshold {
            return false;
        }
        let every = (1.0 / reset_frequency) as u64;
        let left = match zones.countdown() {
            0 => every,
            left => left,
        } - 1;
        zones.set_countdown(left);
        left == 0
    }

    /// Takes note that the placed op is issued from a slot.
    pub fn issued(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.held.len() <= slot {
            self.held.resize(slot + 1, None);
        }
        self.held[slot] = self.placed.take();
    }

    /// Takes the placed op back.
    pub fn cancel(&mut self, op: &Op) {
        let Some(held) = self.placed.take() else { return };
        let table = Arc::clone(&self.files[held.file].table);
        let zones = table.lock();
        if held.use_ == Use::Write {
            let zone = zones.get(held.zone);
            zones.set(held.zone, &Zone { pointer: op.offset, ..zone });
        }
        self.release(&zones, held);
    }

    fn release(&mut self, zones: &Locked, held: Held) {
        let zone = zones.get(held.zone);
        let zone = match held.use_ {
            Use::Read => Zone { readers: zone.readers - 1, ..zone },
            Use::Write | Use::Reset => Zone { writer: 0, ..zone },
        };
        zones.set(held.zone, &zone);
        zones.fly(-1);
        self.flying -= 1;
    }

    /// Resets the zone of the trim in this slot, which [`Zones::ended`] ends.
    ///
    /// # Errors
    /// The error of the device.
    pub fn reset(&mut self, slot: u32) -> io::Result<()> {
        let Some(Some(held)) = self.held.get(slot as usize).copied() else { return Ok(()) };
        let table = Arc::clone(&self.files[held.file].table);
        self.forget_data(&table, held.zone)?;
        table.lock().close(held.zone);
        Ok(())
    }

    /// Takes note that the op in this slot has ended, well or not.
    pub fn ended(&mut self, slot: u32, well: bool) {
        let Some(held) = self.held.get_mut(slot as usize).and_then(Option::take) else { return };
        let table = Arc::clone(&self.files[held.file].table);
        let start = table.start(held.zone);
        // After a failure, the device alone knows how far the write came.
        let failed = held.use_ == Use::Write && !well;
        let seen = if failed { table.storage.write_pointer(start) } else { None };
        let zones = table.lock();
        if held.use_ == Use::Write {
            let zone = zones.get(held.zone);
            let pointer = if failed { seen.unwrap_or(zone.written) } else { zone.pointer };
            zones.set(held.zone, &Zone { pointer, written: pointer, ..zone });
            if pointer >= start + zone.capacity {
                zones.close(held.zone);
            }
        }
        self.release(&zones, held);
    }

    /// The offset at which the next sequential op of that direction begins, after `op`.
    pub fn position_after(&self, op: &Op) -> u64 {
        let end = op.offset + op.len;
        let view = &self.files[op.file as usize];
        let (table, number) = (&*view.table, view.table.zone_at(op.offset));
        if self.rules.random || number >= table.count || !matches!(op.kind, OpKind::Io(_)) {
            return end;
        }
        let zone = table.lock().get(number);
        let (start, next) = (table.start(number), table.start(number + 1));
        let write = op.kind == OpKind::Io(Direction::Write);
        let full = write && end >= start + zone.capacity;
        let read_all = !write && !self.rules.zoned.read_beyond_wp && end >= zone.written;
        if self.rules.zoned.skip > 0 && (full || read_all || end >= next) {
            let next = next + self.rules.zoned.skip;
            let beyond = next >= view.extent.offset + view.extent.size;
            return if beyond { view.extent.offset } else { next };
        }
        if full { next } else { end }
    }

    /// Resets a zone that no op uses.
    fn reset_zone(&mut self, table: &Table, number: u64) -> Result<(), Error> {
        let zones = table.lock();
        zones.set(number, &Zone { writer: self.seat + 1, ..zones.get(number) });
        zones.fly(1);
        drop(zones);
        self.reset_held(table, number)
    }

    /// Resets a zone whose writer this clone is, and lets go of it.
    fn reset_held(&mut self, table: &Table, number: u64) -> Result<(), Error> {
        let outcome = self.forget_data(table, number);
        let zones = table.lock();
        zones.set(number, &Zone { writer: 0, ..zones.get(number) });
        zones.fly(-1);
        let place = format!("at offset {}", table.start(number));
        outcome.map_err(|error| Error::system("resetting a zone", place, error))
    }

    fn forget_data(&mut self, table: &Table, number: u64) -> io::Result<()> {
        let (start, zone) = (table.start(number), table.lock().get(number));
        if zone.pointer == start {
            return Ok(());
        }
        table.storage.reset(start, table.zone_bytes)?;
        self.resets += 1;
        let zones = table.lock();
        zones.set(number, &Zone { pointer: start, written: start, is_due: false, ..zones.get(number) });
        Ok(())
    }

    fn refused(&self, op: &Op, what: &str) -> Error {
        let place = format!("an op of {} bytes at offset {}", op.len, op.offset);
        Error::system(format!("{what}:"), place, io::Error::from_raw_os_error(libc::EINVAL))
    }
}

impl Drop for Zones {
    fn drop(&mut self) {
        // A clone that fails in the midst of an op must not keep others from its zones.
        let placed = self.placed.take();
        for held in placed.into_iter().chain(std::mem::take(&mut self.held).into_iter().flatten()) {
            let table = Arc::clone(&self.files[held.file].table);
            self.release(&table.lock(), held);
        }
    }
}

/// Bytes of a zone that can be read.
fn readable(table: &Table, zones: &Locked, number: u64) -> u64 {
    let zone = zones.get(number);
    match zone {
        Zone { offline: true, .. } => 0,
        Zone { sequential: true, .. } => zone.written - table.start(number),
        _ => zone.capacity,
    }
}

/// The nearest zone beside `from` that fits: of those that follow, and for random ops of those that come before, too.
fn nearest(from: u64, zones: (u64, u64), both: bool, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut after, mut before) = (from + 1, Some(from).filter(|_| both));
    while after < zones.1 || before.is_some() {
        if after < zones.1 {
            if fits(after) {
                return Some(after);
            }
            after += 1;
        }
        before = before.and_then(|number| number.checked_sub(1)).filter(|&number| number >= zones.0);
        if let Some(number) = before.filter(|&number| fits(number)) {
            return Some(number);
        }
    }
    None
}

/// An op on a zone without a write pointer, which must not reach into one that has a write pointer.
fn beside_a_sequential_zone(table: &Table, zones: &Locked, op: Op, block: u64) -> Op {
    let number = table.zone_at(op.offset);
    let next = table.start(number + 1);
    let followed = number + 1 < table.count && zones.get(number + 1).sequential;
    if !followed || op.offset + op.len <= next {
        return op;
    }
    let offset = if op.offset + block > next { table.start(number) + next - op.offset } else { op.offset };
    Op { offset, len: op.len.min(next - offset) / block * block, ..op }
}
