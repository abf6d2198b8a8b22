//! Copy and Verify: what they do, what they refuse, and that random copies leave what a reference says.

use crate::raw;

use nvme::spec::opcode::io;
use nvme::spec::{Command, CopySource, Identify, IdentifyController, IdentifyNamespace, Sgl, Status, cns};
use nvme_target::Options;
use nvme_target::device::{DeviceKind, Effect, Fault, FaultOn};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use raw::{Host, Served};

const BLOCK: usize = 512;

fn descriptors(sources: &[(u64, u64)]) -> Vec<u8> {
    let one = |&(slba, blocks): &(u64, u64)| CopySource { slba, nlb: (blocks - 1) as u16 }.write();
    sources.iter().flat_map(one).collect()
}

fn copy(queue: &mut Host, to: u64, sources: &[(u64, u64)], in_capsule: bool) -> Status {
    let data = descriptors(sources);
    let command = CopySource::copy(1, to, sources.len());
    if in_capsule {
        return queue.command(Command { sgl: Sgl::in_capsule(data.len() as u32), ..command }, &data).status;
    }
    queue.send_data(Command { sgl: Sgl::transport(data.len() as u32), ..command }, &data, 4096)
}

fn verify(queue: &mut Host, lba: u64, blocks: u32) -> Status {
    queue.command(Command::blocks(io::VERIFY, 1, lba, blocks), &[]).status
}

/// A target on a device of `blocks` blocks, which a second device makes fail or end short.
fn served(options: Options, blocks: usize) -> Served {
    let devices = [
        ("mem", DeviceKind::Memory { bytes: (blocks * BLOCK) as u64 }),
        ("faulty", DeviceKind::Faulty { base: "mem".into(), seed: 1 }),
    ];
    Served::with(options, &devices)
}

#[test]
fn copies_and_verifications_beyond_the_limits_are_refused() {
    let served = served(Options { max_io_bytes: 64 << 10, ..Options::default() }, 2048);
    let (mut admin, mut queue) = Host::pair(served.address);
    let controller = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
    let controller = IdentifyController::read(controller.first_chunk().unwrap());
    assert_eq!((controller.oncs & 0x180, controller.ocfs, controller.mdts), (0x180, 1, 4));
    let namespace = admin.fetch(Identify { cns: cns::NAMESPACE, cntid: 0, csi: 0 }.command(1)).unwrap();
    let namespace = IdentifyNamespace::read(namespace.first_chunk().unwrap());
    assert_eq!((namespace.mssrl, namespace.mcl, namespace.msrc), (128, 128, 127));
    let limits = admin.fetch(Identify { cns: cns::CONTROLLER_CSI, cntid: 0, csi: 0 }.command(0)).unwrap();
    assert_eq!(limits[0], 4, "VSL");

    let invalid = Status::INVALID_FIELD.do_not_retry();
    let range = Status::LBA_OUT_OF_RANGE.do_not_retry();
    let size = Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry();
    assert_eq!(queue.write(1, 0, &[9; 128 * BLOCK]), Status::SUCCESS);
    for in_capsule in [true, false] {
        for (to, sources, expected) in [
            (1000, vec![(0, 128)], Status::SUCCESS),
            (1000, vec![(0, 129)], size),
            (1000, vec![(0, 64), (0, 64), (0, 1)], size),
            (1000, vec![(0, 1); 128], Status::SUCCESS),
            (1920, vec![(0, 128)], Status::SUCCESS),
            (1921, vec![(0, 128)], range),
            (2048, vec![(0, 1)], range),
            (0, vec![(1920, 128)], Status::SUCCESS),
            (0, vec![(0, 1), (2047, 2)], range),
            (0, vec![(u64::MAX, 2)], range),
            (u64::MAX, vec![(0, 2)], range),
        ] {
            assert_eq!(copy(&mut queue, to, &sources, in_capsule), expected, "{to} {sources:?}");
        }
    }
    let command = CopySource::copy(1, 0, 1);
    let other_format = Command { cdw12: command.cdw12 | 1 << 8, sgl: Sgl::in_capsule(32), ..command };
    assert_eq!(queue.command(other_format, &descriptors(&[(0, 1)])).status, invalid);
    let many = Command { sgl: Sgl::transport(129 * 32), ..CopySource::copy(1, 0, 129) };
    assert_eq!(queue.command(many, &[]).status, size);
    let short = Command { sgl: Sgl::in_capsule(32), ..CopySource::copy(1, 0, 2) };
    assert!(queue.command(short, &descriptors(&[(0, 1)])).status.is(Status::DATA_SGL_LENGTH_INVALID));

    for (lba, blocks, expected) in
        [(0, 128, Status::SUCCESS), (0, 129, invalid), (2047, 1, Status::SUCCESS), (2047, 2, range)]
    {
        assert_eq!(verify(&mut queue, lba, blocks), expected, "{lba} {blocks}");
    }
    let fails = |on| [Fault { on, effect: Effect::Fail, one_in: 1, count: None }];
    served.target.set_faults("faulty", &fails(FaultOn::Reads)).unwrap();
    assert!(verify(&mut queue, 0, 1).is(Status::UNRECOVERED_READ_ERROR));
    assert!(copy(&mut queue, 0, &[(0, 1)], true).is(Status::UNRECOVERED_READ_ERROR));
    served.target.set_faults("faulty", &fails(FaultOn::Writes)).unwrap();
    assert_eq!(verify(&mut queue, 0, 1), Status::SUCCESS);
    assert!(copy(&mut queue, 0, &[(0, 1)], true).is(Status::WRITE_FAULT));
    assert_eq!(served.target.stats().reactors[0].pending_io, 0);
}

/// Random writes and copies of overlapping ranges, on a device that ends ops short, against an array of blocks.
#[test]
fn random_copies_leave_what_a_reference_says() {
    const BLOCKS: u64 = 512;
    let served = served(Options { max_io_bytes: 32 << 10, ..Options::default() }, BLOCKS as usize);
    let (_admin, mut queue) = Host::pair(served.address);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut below = |limit: u64| random.next_u64() % limit;
    let mut model = vec![0u8; BLOCKS as usize * BLOCK];
    let bytes = |lba: u64, blocks: u64| lba as usize * BLOCK..(lba + blocks) as usize * BLOCK;
    for round in 0..600 {
        let effect = if below(2) == 0 { Effect::Short } else { Effect::Slow { us: 1 } };
        let fault = Fault { on: FaultOn::All, effect, one_in: 2, count: None };
        served.target.set_faults("faulty", &[fault]).unwrap();
        if below(3) == 0 {
            let (lba, blocks) = (below(BLOCKS - 16), 1 + below(16));
            let data: Vec<u8> = (0..blocks as usize * BLOCK).map(|_| below(256) as u8).collect();
            assert_eq!(queue.write(1, lba, &data), Status::SUCCESS);
            model[bytes(lba, blocks)].copy_from_slice(&data);
        }
        let sources: Vec<(u64, u64)> = (0..1 + below(4)).map(|_| (below(BLOCKS - 16), 1 + below(16))).collect();
        let whole: u64 = sources.iter().map(|(_, blocks)| blocks).sum();
        let to = below(BLOCKS - whole);
        assert_eq!(copy(&mut queue, to, &sources, round % 2 == 0), Status::SUCCESS);
        let moved: Vec<u8> = sources.iter().flat_map(|&(lba, blocks)| model[bytes(lba, blocks)].to_vec()).collect();
        model[bytes(to, whole)].copy_from_slice(&moved);
        assert_eq!(verify(&mut queue, to, whole as u32), Status::SUCCESS);
        assert!(queue.read(1, to, whole as u32).unwrap() == moved, "round {round}");
    }
    for lba in (0..BLOCKS).step_by(64) {
        assert!(queue.read(1, lba, 64).unwrap() == model[bytes(lba, 64)], "blocks from {lba}");
    }
}
