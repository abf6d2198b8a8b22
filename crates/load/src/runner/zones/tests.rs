//! Clones that share a model of a zoned device: the model refuses what a real one refuses.

use std::sync::Mutex;

use job::workload::random::Random;

use super::*;
use job::workload::{Op, OpKind};
use measure::PerDirection;

const ZONE: u64 = 64 << 10;
const BLOCK: u64 = 4096;

/// The write pointers of a device, as the device itself moves them.
struct Model {
    pointers: Mutex<Vec<u64>>,
    capacity: u64,
    conventional: u64,
    max_open: usize,
}

impl Model {
    fn new(zones: u64, conventional: u64, capacity: u64, max_open: usize) -> Arc<Model> {
        let pointers = Mutex::new((0..zones).map(|zone| zone * ZONE).collect());
        Arc::new(Model { pointers, capacity, conventional, max_open })
    }

    /// Carries a write out. A device answers EIO where this panics.
    fn write(&self, op: &Op) {
        let mut pointers = self.pointers.lock().unwrap();
        let zone = op.offset / ZONE;
        let (start, end) = (zone * ZONE, op.offset + op.len);
        if zone < self.conventional {
            let first_sequential = self.conventional * ZONE;
            assert!(end <= first_sequential, "a write reaches into a sequential zone");
            return;
        }
        assert_eq!(pointers[zone as usize], op.offset, "a write that is not at the write pointer");
        assert!(end <= start + self.capacity, "a write beyond the capacity");
        pointers[zone as usize] = end;
        let is_open = |zone: &usize| {
            let data = pointers[*zone] - *zone as u64 * ZONE;
            *zone as u64 >= self.conventional && data > 0 && data < self.capacity
        };
        let open = (0..pointers.len()).filter(is_open).count();
        assert!(self.max_open == 0 || open <= self.max_open, "{open} zones are open");
    }

    fn read(&self, op: &Op) {
        let zone = op.offset / ZONE;
        let pointer = self.pointers.lock().unwrap()[zone as usize];
        assert!(zone < self.conventional || op.offset + op.len <= pointer, "a read beyond the write pointer");
        let end = if zone < self.conventional { self.conventional } else { zone + 1 } * ZONE;
        assert!(op.offset + op.len <= end, "a read across the end of a sequential zone");
    }
}

struct Device(Arc<Model>);

impl Storage for Device {
    fn reset(&self, start: u64, len: u64) -> io::Result<()> {
        assert_eq!((start % ZONE, len), (0, ZONE));
        self.0.pointers.lock().unwrap()[(start / ZONE) as usize] = start;
        Ok(())
    }

    fn write_pointer(&self, start: u64) -> Option<u64> {
        Some(self.0.pointers.lock().unwrap()[(start / ZONE) as usize])
    }
}

fn table(model: &Arc<Model>) -> Arc<Table> {
    let count = model.pointers.lock().unwrap().len() as u64;
    let zones: Vec<Zone> = (0..count)
        .map(|number| {
            let (start, sequential) = (number * ZONE, number >= model.conventional);
            let pointer = if sequential { start } else { start + ZONE };
            let capacity = if sequential { model.capacity } else { ZONE };
            Zone { pointer, written: pointer, capacity, sequential, ..Zone::default() }
        })
        .collect();
    Arc::new(Table::new(ZONE, &zones, model.max_open as u32, Box::new(Device(Arc::clone(model)))).unwrap())
}

fn job(random: bool, edit: impl FnOnce(&mut Job)) -> Job {
    let mut job = Job::default();
    job.rw.directions = PerDirection { read: true, write: true, trim: true };
    job.rw.random = random;
    job.blocks.range = PerDirection { read: (BLOCK, BLOCK), write: (BLOCK, BLOCK), trim: (ZONE, ZONE) };
    job.extent.zoned = Some(job::job::Zoned { size: ZONE, ..job::job::Zoned::default() });
    edit(&mut job);
    job
}

fn op(direction: Direction, offset: u64, len: u64) -> Op {
    Op { kind: OpKind::Io(direction), file: 0, offset, len }
}

fn zones(job: &Job, seat: u64, table: &Arc<Table>) -> Zones {
    Zones::new(job, seat, vec![(Arc::clone(table), FileExtent { offset: 0, size: table.count * ZONE })])
}

/// A clone with ops in flight, which end in any order.
struct Clone {
    zones: Zones,
    slots: Vec<Option<Op>>,
    /// An op whose zone is busy.
    waiting: Option<Op>,
    done: [u64; 3],
}

impl Clone {
    fn step(&mut self, model: &Model, random: &mut Random, extent: u64, fails: bool) {
        let free = self.slots.iter().position(Option::is_none);
        let slot = random.below(self.slots.len() as u64) as usize;
        match (free, self.slots[slot]) {
            (Some(free), _) if random.below(3) > 0 => {
                let drawn = self.waiting.take().unwrap_or_else(|| match random.below(12) {
                    0 => op(Direction::Trim, random.below(extent / ZONE) * ZONE, ZONE),
                    1..=4 => {
                        op(Direction::Read, random.below(extent / BLOCK - 3) * BLOCK, BLOCK * (1 + random.below(4)))
                    }
                    _ => op(Direction::Write, random.below(extent / BLOCK - 3) * BLOCK, BLOCK * (1 + random.below(4))),
                });
                match self.zones.place(drawn).unwrap() {
                    Placed::Op(op) => {
                        assert!(op.len >= BLOCK && op.len <= drawn.len && op.len % BLOCK == 0, "{op:?}");
                        self.zones.issued(free as u32);
                        self.slots[free] = Some(op);
                        if op.kind == OpKind::Io(Direction::Read) {
                            model.read(&op);
                        }
                    }
                    Placed::Reset(op) => {
                        self.zones.issued(free as u32);
                        self.zones.reset(free as u32).unwrap();
                        self.zones.ended(free as u32, true);
                        self.done[2] += op.len;
                    }
                    Placed::Wait | Placed::Later => self.waiting = Some(drawn),
                    Placed::Redraw | Placed::Over => {}
                }
            }
            (_, Some(op)) => {
                let well = !(fails && op.kind == OpKind::Io(Direction::Write) && random.below(10) == 0);
                match op.kind {
                    OpKind::Io(Direction::Write) if well => model.write(&op),
                    OpKind::Io(Direction::Read) => model.read(&op),
                    _ => {}
                }
                self.zones.ended(slot as u32, well);
                let OpKind::Io(direction) = op.kind else { unreachable!() };
                self.done[direction as usize] += u64::from(well) * op.len;
                self.slots[slot] = None;
            }
            _ => {}
        }
    }
}

/// Several clones at any depth keep to the rules of the device, whatever ends first, and also after writes that fail.
#[test]
fn no_device_sees_an_op_that_it_refuses() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let conventional = [0, 0, 2][random.below(3) as usize];
        let capacity = [ZONE, 3 * ZONE / 4, ZONE / 2 + BLOCK][random.below(3) as usize];
        let max_open = [0, 1, 3, 8][random.below(4) as usize];
        let model = Model::new(12, conventional, capacity, max_open);
        let shared = table(&model);
        let limits = |job: &mut Job| {
            let zoned = job.extent.zoned.as_mut().unwrap();
            zoned.job_max_open = [0, 1, 2][(seed % 3) as usize] * u32::from(max_open > 0);
            (zoned.reset_threshold, zoned.reset_frequency) = (0.5, [0.0, 0.1, 1.0][(seed % 3) as usize]);
        };
        let fails = seed % 4 == 0;
        let mut clones: Vec<Clone> = (0..1 + seed % 4)
            .map(|seat| Clone {
                zones: zones(&job(seed % 5 != 0, limits), seat, &shared),
                slots: vec![None; 1 + random.below(12) as usize],
                waiting: None,
                done: [0; 3],
            })
            .collect();
        for _ in 0..6000 {
            let chosen = random.below(clones.len() as u64) as usize;
            // Only sequential jobs trim in order.
            clones[chosen].step(&model, &mut random, 12 * ZONE, fails);
        }
        let sum = |d: Direction| clones.iter().map(|clone| clone.done[d as usize]).sum::<u64>();
        for (direction, least) in [(Direction::Write, ZONE), (Direction::Read, ZONE)] {
            assert!(sum(direction) > least, "seed {seed}: {} bytes of {}", sum(direction), direction.name());
        }
        drop(clones);
        let locked = shared.lock();
        assert_eq!(locked.flying(), 0, "every clone lets go of its zones");
        assert!((0..12).map(|zone| locked.get(zone)).all(|zone| zone.writer == 0 && zone.readers == 0));
    }
}

#[test]
fn under_verify_a_full_zone_is_not_written_again_before_the_next_pass() {
    let model = Model::new(4, 0, 3 * ZONE / 4, 2);
    let shared = table(&model);
    let mut clone = zones(&job(true, |job| job.verify = Some(job::job::Verify::default())), 0, &shared);
    let write_all = |clone: &mut Zones| {
        let mut bytes = 0;
        loop {
            match clone.place(op(Direction::Write, 3 * ZONE, BLOCK * 4)).unwrap() {
                Placed::Op(op) => {
                    clone.issued(0);
                    model.write(&op);
                    clone.ended(0, true);
                    bytes += op.len;
                }
                Placed::Over => return bytes,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!((write_all(&mut clone), clone.resets()), (4 * (3 * ZONE / 4), 0));
    clone.begin_pass();
    assert!(clone.begins_with_resets());
    assert_eq!((write_all(&mut clone), clone.resets()), (4 * (3 * ZONE / 4), 4));
}

#[test]
fn the_extent_of_a_writer_has_whole_zones_and_that_of_a_reader_stays() {
    let model = Model::new(8, 0, ZONE, 0);
    let shared = table(&model);
    let writer = job(false, |job| job.rw.directions = PerDirection { read: false, write: true, trim: false });
    let reader = job(false, |job| job.rw.directions = PerDirection { read: true, write: false, trim: false });
    let odd = FileExtent { offset: ZONE - 512, size: ZONE + 1024 };
    assert_eq!(fitted(&writer, "x", &shared, odd).unwrap(), FileExtent { offset: ZONE, size: ZONE });
    assert_eq!(fitted(&reader, "x", &shared, odd).unwrap(), odd);
    for (offset, size) in [(512, ZONE - 1024), (0, ZONE - 512), (8 * ZONE - 512, 512)] {
        let error = fitted(&writer, "x", &shared, FileExtent { offset, size }).unwrap_err();
        assert!(error.to_string().contains("io_size must be at least one zone"), "{error}");
    }
}

#[test]
fn the_next_sequential_op_skips_what_holds_no_data() {
    let model = Model::new(8, 0, 3 * ZONE / 4, 0);
    let shared = table(&model);
    let plain = zones(&job(false, |_| {}), 0, &shared);
    let write = |offset, len| op(Direction::Write, offset, len);
    assert_eq!(plain.position_after(&write(0, BLOCK)), BLOCK);
    assert_eq!(plain.position_after(&write(ZONE / 2, ZONE / 4)), ZONE, "from the capacity to the next zone");
    let skips = job(false, |job| job.extent.zoned.as_mut().unwrap().skip = 2 * ZONE);
    let skips = zones(&skips, 0, &shared);
    assert_eq!(skips.position_after(&write(ZONE / 2, ZONE / 4)), 3 * ZONE);
    assert_eq!(skips.position_after(&write(6 * ZONE + ZONE / 2, ZONE / 4)), 0, "and round at the end");
}
