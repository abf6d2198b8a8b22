//! Each limit that a host reads in Identify is exact: a command at the limit is carried out, and one beyond it is
//! refused with the status that the NVM Command Set specification 1.0 names, whatever the largest I/O and the blocks.

use crate::raw;

use nvme::spec::opcode::{admin, io};
use nvme::spec::{Command, CopySource, Identify, IdentifyController, IdentifyNamespace, Range, Sgl, Status, cns};
use nvme_target::device::{DeviceKind, DeviceSpec};
use nvme_target::{CommandLimits, NamespaceSpec, Options, SubsystemSpec, Target};
use raw::{Host, NQN, Served};

const BYTES: u64 = 64 << 20;

/// A target with one namespace in blocks of `block_bytes`.
fn served(max_io_bytes: u32, block_bytes: u32, command_limits: CommandLimits) -> Served {
    let target = Target::start(Options { max_io_bytes, publish: false, ..Options::default() }).unwrap();
    target.create_subsystem(SubsystemSpec { allow_any_host: true, command_limits, ..SubsystemSpec::new(NQN) }).unwrap();
    let kind = DeviceKind::Memory { bytes: BYTES };
    target.create_device(DeviceSpec { name: "mem".into(), block_bytes: Some(block_bytes), uuid: None, kind }).unwrap();
    target.add_namespace(NQN, NamespaceSpec::new("mem")).unwrap();
    let address = target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    Served { target, address }
}

/// A host, and what it has read.
struct Reader {
    admin: Host,
    queue: Host,
    block: u32,
    controller: IdentifyController,
    namespace: IdentifyNamespace,
    /// Identify Controller of the NVM command set: VSL, WZSL, DMRL, DMRSL and DMSL.
    limits: Vec<u8>,
}

impl Reader {
    fn new(served: &Served) -> Reader {
        let (mut admin, queue) = Host::pair(served.address);
        let mut page = |cns, nsid| admin.fetch(Identify { cns, cntid: 0, csi: 0 }.command(nsid)).unwrap();
        let controller = IdentifyController::read(page(cns::CONTROLLER, 0).first_chunk().unwrap());
        let namespace = IdentifyNamespace::read(page(cns::NAMESPACE, 1).first_chunk().unwrap());
        let limits = page(cns::CONTROLLER_CSI, 0);
        let block = namespace.block_bytes().unwrap();
        Reader { admin, queue, block, controller, namespace, limits }
    }

    /// The status of a command on the first `blocks` blocks, with their data if it has any.
    fn blocks(&mut self, opcode: u8, blocks: u64) -> Status {
        let command = Command::blocks(opcode, 1, 0, blocks as u32);
        let bytes = blocks as usize * self.block as usize;
        let sgl = Sgl::transport(bytes as u32);
        match opcode {
            io::READ => self.queue.fetch(Command { sgl, ..command }).err().unwrap_or(Status::SUCCESS),
            io::WRITE | io::COMPARE => self.queue.send_data(Command { sgl, ..command }, &vec![0; bytes], 65_536),
            _ => self.queue.command(command, &[]).status,
        }
    }

    fn deallocate(&mut self, ranges: &[u64]) -> Status {
        let range = |blocks: &u64| Range { attributes: 0, blocks: *blocks as u32, slba: 0 }.write();
        let data: Vec<u8> = ranges.iter().flat_map(range).collect();
        let sgl = Sgl::transport(data.len() as u32);
        self.queue.send_data(Command { sgl, ..Range::deallocate(1, ranges.len()) }, &data, 65_536)
    }

    fn copy(&mut self, sources: &[u64]) -> Status {
        let source = |blocks: &u64| CopySource { slba: 0, nlb: (blocks - 1) as u16 }.write();
        let data: Vec<u8> = sources.iter().flat_map(source).collect();
        let sgl = Sgl::transport(data.len() as u32);
        self.queue.send_data(Command { sgl, ..CopySource::copy(1, 0, sources.len()) }, &data, 65_536)
    }

    /// Both statuses of a Compare and Write.
    fn fused(&mut self, blocks: u32) -> [Status; 2] {
        let half = |opcode, fuse| {
            let command = Command::blocks(opcode, 1, 0, blocks);
            Command { flags: command.flags | fuse, sgl: Sgl::in_capsule(blocks * self.block), ..command }
        };
        let commands = [half(io::COMPARE, Command::FUSE_FIRST), half(io::WRITE, Command::FUSE_SECOND)];
        let data = vec![0; (blocks * self.block) as usize];
        let cids = commands.map(|command| self.queue.send_command(command, &data));
        let mut done = [(); 2].map(|()| self.queue.response());
        done.sort_by_key(|done| done.cid != cids[0]);
        done.map(|done| done.status)
    }
}

/// Bytes as a power of two of 4 KiB, which is the smallest page of memory (CAP.MPSMIN).
fn pages(log2: u8) -> u64 {
    4096 << log2
}

#[test]
fn a_command_at_a_limit_succeeds_and_one_beyond_it_is_refused() {
    let field = Status::INVALID_FIELD.do_not_retry();
    let size = Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry();
    for (max_io_bytes, block_bytes, limits) in [
        (8 << 10, 512, CommandLimits { deallocated_blocks: 7, zeroed_pages_log2: 3 }),
        (8 << 10, 4096, CommandLimits { deallocated_blocks: 1, zeroed_pages_log2: 1 }),
        (128 << 10, 512, CommandLimits { deallocated_blocks: 70_000, zeroed_pages_log2: 12 }),
        (1 << 20, 4096, CommandLimits::default()),
        (8 << 20, 512, CommandLimits::default()),
    ] {
        let what = format!("{max_io_bytes} bytes in blocks of {block_bytes}");
        let served = served(max_io_bytes, block_bytes, limits);
        let mut host = Reader::new(&served);
        let blocks_of = |bytes: u64| bytes / u64::from(block_bytes);
        let dword = |page: &[u8], at: usize| u64::from(u32::from_le_bytes(page[at..at + 4].try_into().unwrap()));
        let (vsl, wzsl, dmrl, dmrsl) = (host.limits[0], host.limits[1], host.limits[2], dword(&host.limits, 4));

        assert!(host.controller.mdts > 0, "{what}");
        let mdts = blocks_of(pages(host.controller.mdts));
        for opcode in [io::READ, io::WRITE, io::COMPARE] {
            assert_eq!((host.blocks(opcode, mdts), host.blocks(opcode, mdts + 1)), (Status::SUCCESS, field), "{what}");
        }
        let most = blocks_of(pages(vsl));
        assert_eq!(
            (host.blocks(io::VERIFY, most), host.blocks(io::VERIFY, most + 1)),
            (Status::SUCCESS, field),
            "{what}"
        );
        // Without a limit, as many as the field of the command can name. Hosts hear of 65536 of the smallest blocks.
        let (most, beyond) = match limits.zeroed_pages_log2 {
            0 => {
                assert_eq!(wzsl, 13, "{what}");
                (65_536.min(host.namespace.nsze), None)
            }
            _ => (blocks_of(pages(wzsl)), Some(field)),
        };
        assert_eq!(host.blocks(io::WRITE_ZEROES, most), Status::SUCCESS, "{what}");
        assert!(beyond.is_none_or(|beyond| host.blocks(io::WRITE_ZEROES, most + 1) == beyond), "{what}");

        let (most, beyond) = match dmrsl {
            0 => (host.namespace.nsze, None),
            dmrsl => (dmrsl, Some(size)),
        };
        assert_eq!(host.deallocate(&[most]), Status::SUCCESS, "{what}");
        assert!(beyond.is_none_or(|beyond| host.deallocate(&[1, most + 1]) == beyond), "{what}");
        let most_ranges = if dmrl == 0 { Range::MAX } else { dmrl.into() };
        assert_eq!(host.deallocate(&vec![1; most_ranges]), Status::SUCCESS, "{what}");

        let IdentifyNamespace { mssrl, mcl, msrc, .. } = host.namespace;
        let (of_range, in_all, sources) = (u64::from(mssrl), u64::from(mcl), usize::from(msrc) + 1);
        assert_eq!((host.copy(&[of_range]), host.copy(&[of_range + 1])), (Status::SUCCESS, size), "{what}");
        let whole = vec![of_range.min(in_all / 2); 2];
        assert_eq!(host.copy(&whole), Status::SUCCESS, "{what}");
        let beyond = [&whole[..], &[in_all - whole.iter().sum::<u64>() + 1]].concat();
        assert_eq!(host.copy(&beyond), size, "{what}");
        if in_all >= sources as u64 {
            assert_eq!(host.copy(&vec![1; sources]), Status::SUCCESS, "{what}");
        }
        assert_eq!(host.copy(&vec![1; sources + 1]), size, "{what}");

        // ACWU is one less than the blocks of the largest fused operation.
        let most = u32::from(host.controller.acwu) + 1;
        assert_eq!(host.fused(most), [Status::SUCCESS; 2], "{what}");
        assert!(host.fused(most + 1).iter().all(|status| !status.is_ok()), "{what}");
        let IdentifyController { awun, awupf, .. } = host.controller;
        assert_eq!((awun, awupf, host.namespace.nsfeat & 2), (0, 0, 0), "{what}: one block is all that is promised");

        let end = host.namespace.nsze;
        let at_end = |lba: u64| Command { sgl: Sgl::transport(block_bytes), ..Command::blocks(io::READ, 1, lba, 1) };
        assert!(host.queue.fetch(at_end(end - 1)).is_ok(), "{what}");
        let beyond = host.queue.fetch(at_end(end)).unwrap_err();
        assert_eq!(beyond, Status::LBA_OUT_OF_RANGE.do_not_retry(), "{what}");

        // AERL is one less than the requests that may be outstanding.
        for _ in 0..=host.controller.aerl {
            host.admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
        }
        let one_more = host.admin.command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]).status;
        assert!(one_more.is(Status::ASYNC_EVENT_LIMIT_EXCEEDED), "{what}: {one_more}");
    }
}

/// A command of every opcode for numbers that no namespace has, and for all namespaces, gets an answer: never data,
/// never success unless the command is not about a namespace, and never the end of the connection.
#[test]
fn every_opcode_answers_for_numbers_that_are_not_namespaces() {
    let served = served(128 << 10, 512, CommandLimits::default());
    let (mut admin_queue, mut queue) = Host::pair(served.address);
    for opcode in 0..=u8::MAX {
        if opcode == nvme::spec::opcode::FABRICS {
            continue;
        }
        for nsid in [0, 2, 33, 0xffff_fffe, u32::MAX] {
            let command = Command::new(opcode, nsid);
            let done = queue.command(Command { cdw11: 1, ..command }, &[]);
            let known = [io::FLUSH, io::WRITE, io::READ, io::COMPARE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT];
            let also = [io::VERIFY, io::COPY, io::RESERVATION_REGISTER, io::RESERVATION_REPORT];
            if known.contains(&opcode) || also.contains(&opcode) {
                let refused = done.status;
                let is_right = refused.is(Status::INVALID_NAMESPACE) && refused.is_do_not_retry();
                assert!(is_right, "I/O {opcode:#x} for {nsid:#x}: {refused}");
            }
            assert!(!done.status.is_ok(), "I/O {opcode:#x} for {nsid:#x}");
            if opcode == admin::ASYNC_EVENT_REQUEST || opcode == admin::IDENTIFY || opcode == admin::GET_LOG_PAGE {
                continue; // Identify and logs are tested by themselves; requests for events have no answer
            }
            let done = admin_queue.command(command, &[]);
            let succeeds = matches!(opcode, admin::KEEP_ALIVE | admin::ABORT);
            // Get Features without a feature is Invalid Field, as is Set Features.
            assert_eq!(done.status.is_ok(), succeeds, "admin {opcode:#x} for {nsid:#x}: {}", done.status);
        }
    }
    served.assert_alive();
}
