//! The structures that Identify gives (Base specification 2.0, section 5.17; NVM Command Set 1.0, section 4.1.5).

use super::Text;

/// CNS: which structure Identify asks for.
pub mod cns {
    /// [`IdentifyNamespace`](super::IdentifyNamespace) of a namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// [`IdentifyController`](super::IdentifyController).
    pub const CONTROLLER: u8 = 0x01;
    /// The active namespaces: [`namespace_list`](super::namespace_list).
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// The names of a namespace: [`NamespaceIds`](super::NamespaceIds).
    pub const NAMESPACE_IDS: u8 = 0x03;
    /// Namespace, as a command set other than NVM sees it.
    pub const NAMESPACE_CSI: u8 = 0x05;
    /// Controller, as a command set sees it.
    pub const CONTROLLER_CSI: u8 = 0x06;
    /// The active namespaces of one command set: [`namespace_list`](super::namespace_list).
    pub const ACTIVE_NAMESPACES_CSI: u8 = 0x07;
    /// Namespace, independent of its command set.
    pub const NAMESPACE_INDEPENDENT: u8 = 0x08;
    /// The allocated namespaces, attached or not: [`namespace_list`](super::namespace_list).
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// [`IdentifyNamespace`](super::IdentifyNamespace) of a namespace, attached or not.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// The controllers that a namespace is attached to: [`controller_list`](super::controller_list).
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// The controllers of the subsystem: [`controller_list`](super::controller_list).
    pub const CONTROLLERS: u8 = 0x13;
    /// The allocated namespaces of one command set: [`namespace_list`](super::namespace_list).
    pub const ALLOCATED_NAMESPACES_CSI: u8 = 0x1a;
    /// The combinations of command sets that the controller can have: 512 of 8 bytes, a bit for each command set.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// OACS: optional admin commands.
pub mod oacs {
    /// Namespace Management and Namespace Attachment.
    pub const NAMESPACE_MANAGEMENT: u16 = 1 << 3;
}

/// ONCS: optional commands of the NVM command set.
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// The feature Timestamp.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
}

layout! {
    /// Identify Controller (Base specification 2.0, figure 275): the fields that mean something over Fabrics.
    pub struct IdentifyController: 4096 {
        /// PCI vendor.
        vid: u16 = 0,
        /// PCI subsystem vendor.
        ssvid: u16 = 2,
        /// Serial number.
        sn: Text<20> = 4,
        /// Model number.
        mn: Text<40> = 24,
        /// Firmware revision.
        fr: Text<8> = 64,
        /// Recommended arbitration burst.
        rab: u8 = 72,
        /// IEEE OUI, lowest byte first.
        ieee: [u8; 3] = 73,
        /// Multi-path capabilities: bit 0 several ports, bit 1 several controllers, bit 3 ANA.
        cmic: u8 = 76,
        /// Most data of a command: memory pages (4 KiB) as a power of two; 0 for no limit.
        mdts: u8 = 77,
        /// Controller identifier: that of Connect.
        cntlid: u16 = 78,
        /// Version.
        ver: u32 = 80,
        /// Optional asynchronous events.
        oaes: u32 = 92,
        /// Controller attributes: bit 0 the host identifier has 128 bits.
        ctratt: u32 = 96,
        /// Controller type: 1 I/O, 2 discovery.
        cntrltype: u8 = 111,
        /// Optional admin commands.
        oacs: u16 = 256,
        /// Abort commands at once, minus one.
        acl: u8 = 258,
        /// Asynchronous Event Requests at once, minus one.
        aerl: u8 = 259,
        /// Firmware: bit 0 slot 1 is read-only, bits 3:1 number of slots.
        frmw: u8 = 260,
        /// Log pages: bit 0 SMART per namespace, bit 1 effects, bit 2 offsets and long lengths.
        lpa: u8 = 261,
        /// Entries of the error log, minus one.
        elpe: u8 = 262,
        /// Power states, minus one.
        npss: u8 = 263,
        /// Warning temperature in kelvins.
        wctemp: u16 = 266,
        /// Critical temperature in kelvins.
        cctemp: u16 = 268,
        /// NVM capacity in bytes.
        tnvmcap: u128 = 280,
        /// Unallocated NVM capacity in bytes.
        unvmcap: u128 = 296,
        /// Keep-alive granularity in units of 100 ms; 0 for no keep-alive.
        kas: u16 = 320,
        /// ANA transition time in seconds.
        anatt: u8 = 342,
        /// ANA capabilities: the states that paths have ([`AnaState::capability`](super::ana::AnaState::capability));
        /// bit 6 the group of a namespace stays.
        anacap: u8 = 343,
        /// Largest identifier of an ANA group.
        anagrpmax: u32 = 344,
        /// ANA groups.
        nanagrpid: u32 = 348,
        /// Submission queue entries: required size in bits 3:0, largest in 7:4, as powers of two.
        sqes: u8 = 512,
        /// Completion queue entry sizes, in the form of `sqes`.
        cqes: u8 = 513,
        /// Commands outstanding on a queue.
        maxcmd: u16 = 514,
        /// Largest namespace identifier.
        nn: u32 = 516,
        /// Optional NVM commands.
        oncs: u16 = 520,
        /// Fused operations.
        fuses: u16 = 522,
        /// Format attributes.
        fna: u8 = 524,
        /// Volatile write cache: bit 0 there is one, bits 2:1 11b Flush takes the broadcast NSID, 10b it does not.
        vwc: u8 = 525,
        /// Atomic write unit in blocks, minus one.
        awun: u16 = 526,
        /// Atomic write unit on power failure, in blocks, minus one.
        awupf: u16 = 528,
        /// Atomic compare and write unit, minus one.
        acwu: u16 = 532,
        /// Formats of source ranges that Copy takes: bit 0 format 0.
        ocfs: u16 = 534,
        /// SGL support: bits 1:0 01b, bit 20 offsets in capsules, bit 21 transport descriptors.
        sgls: u32 = 536,
        /// Namespaces at once.
        mnan: u32 = 540,
        /// NQN of the subsystem, as [`Nqn::field`](super::Nqn::field) has it.
        subnqn: [u8; 256] = 768,
        /// Bytes of an I/O command capsule in units of 16: 4 has no data.
        ioccsz: u32 = 1792,
        /// Bytes of an I/O response capsule in units of 16.
        iorcsz: u32 = 1796,
        /// In-capsule data offset in units of 16.
        icdoff: u16 = 1800,
        /// Fabrics controller attributes: bit 0 static.
        fcatt: u8 = 1802,
        /// Descriptors of an SGL.
        msdbd: u8 = 1803,
        /// Optional Fabrics commands: bit 0 Disconnect.
        ofcs: u16 = 1804,
        /// Power state 0: largest power in units of 10 mW.
        psd0_mp: u16 = 2048,
    }
}

layout! {
    /// A format of blocks.
    pub struct LbaFormat: 4 {
        /// Metadata bytes.
        ms: u16 = 0,
        /// Bytes of data as a power of two; 0 for a format that does not exist.
        lbads: u8 = 2,
        /// Relative performance, 0 best.
        rp: u8 = 3,
    }
}

layout! {
    /// Identify Namespace (NVM Command Set 1.0, figure 97).
    pub struct IdentifyNamespace: 4096 {
        /// Size in blocks.
        nsze: u64 = 0,
        /// Capacity in blocks.
        ncap: u64 = 8,
        /// Blocks in use.
        nuse: u64 = 16,
        /// Features: bit 0 thin, bit 2 deallocated blocks are errors, bit 4 the preferred sizes below.
        nsfeat: u8 = 24,
        /// Formats, minus one.
        nlbaf: u8 = 25,
        /// Format in use, bits 3:0.
        flbas: u8 = 26,
        /// Metadata capabilities.
        mc: u8 = 27,
        /// Protection capabilities.
        dpc: u8 = 28,
        /// Protection in use.
        dps: u8 = 29,
        /// Sharing: bit 0 several controllers may attach it.
        nmic: u8 = 30,
        /// Reservations: bits of [`rescap`](super::reservation::rescap).
        rescap: u8 = 31,
        /// Format progress.
        fpi: u8 = 32,
        /// The values that deallocated blocks read as: bits 2:0 001b zeros; bit 3 Write Zeroes can deallocate.
        dlfeat: u8 = 33,
        /// Atomic write unit in blocks, minus one.
        nawun: u16 = 34,
        /// Atomic write unit on power failure, in blocks, minus one.
        nawupf: u16 = 36,
        /// Atomic compare and write unit, minus one.
        nacwu: u16 = 38,
        /// Optimal I/O boundary in blocks.
        noiob: u16 = 46,
        /// Capacity in bytes.
        nvmcap: u128 = 48,
        /// Preferred write granularity in blocks, minus one.
        npwg: u16 = 64,
        /// Preferred write alignment in blocks, minus one.
        npwa: u16 = 66,
        /// Preferred deallocate granularity in blocks, minus one.
        npdg: u16 = 68,
        /// Preferred deallocate alignment in blocks, minus one.
        npda: u16 = 70,
        /// Optimal write size in blocks, minus one.
        nows: u16 = 72,
        /// Largest source range of Copy in blocks.
        mssrl: u16 = 74,
        /// Most blocks of a Copy.
        mcl: u32 = 76,
        /// Source ranges of a Copy, minus one.
        msrc: u8 = 80,
        /// ANA group.
        anagrpid: u32 = 92,
        /// Attributes: bit 0 write protected.
        nsattr: u8 = 99,
        /// NVM set.
        nvmsetid: u16 = 100,
        /// Endurance group.
        endgid: u16 = 102,
        /// Namespace GUID.
        nguid: [u8; 16] = 104,
        /// IEEE extended unique identifier.
        eui64: [u8; 8] = 120,
        /// Formats.
        lbaf: [LbaFormat; 16] = 128,
    }
}

impl IdentifyNamespace {
    /// Bytes of a block; None if the format in use does not make sense (512 bytes to 2 MiB do, without metadata).
    pub fn block_bytes(&self) -> Option<u32> {
        let format = self.lbaf[usize::from(self.flbas & 15)];
        ((9..=21).contains(&format.lbads) && format.ms == 0).then(|| 1 << format.lbads)
    }
}

/// Bytes of a list of namespaces.
pub const NAMESPACE_LIST_BYTES: usize = 4096;

/// A list of up to 1024 namespaces: the identifiers in `ids` above `after`, ascending as they come; zeros end it.
pub fn namespace_list(ids: impl IntoIterator<Item = u32>, after: u32) -> [u8; NAMESPACE_LIST_BYTES] {
    let mut bytes = [0; NAMESPACE_LIST_BYTES];
    let above = ids.into_iter().filter(|&id| id > after);
    for (entry, id) in bytes.chunks_exact_mut(4).zip(above) {
        entry.copy_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Bytes of a list of controllers.
pub const CONTROLLER_LIST_BYTES: usize = 4096;
/// The most controllers that a list names.
pub const MOST_CONTROLLERS: usize = 2047;

/// A list of controllers (Base specification 2.0, section 4.4.1): the identifiers in `ids` from `from` on, as many as
/// there is room for, ascending as they come. Their number comes first, zeros end the list.
pub fn controller_list(ids: impl IntoIterator<Item = u16>, from: u16) -> [u8; CONTROLLER_LIST_BYTES] {
    let mut bytes = [0; CONTROLLER_LIST_BYTES];
    let mut count = 0u16;
    let entries = bytes[2..].chunks_exact_mut(2).take(MOST_CONTROLLERS);
    for (entry, id) in entries.zip(ids.into_iter().filter(|id| *id >= from)) {
        entry.copy_from_slice(&id.to_le_bytes());
        count += 1;
    }
    bytes[..2].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// The identifiers in a list of controllers; `None` for a list that names none, or more than it has room for.
pub fn listed_controllers(bytes: &[u8; CONTROLLER_LIST_BYTES]) -> Option<Vec<u16>> {
    let mut numbers = bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let count = usize::from(numbers.next()?);
    (1..=MOST_CONTROLLERS).contains(&count).then(|| numbers.take(count).collect())
}

/// The names of a namespace: what Identify CNS 03h gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceIds {
    /// EUI64, type 1.
    pub eui64: Option<[u8; 8]>,
    /// NGUID, type 2.
    pub nguid: Option<[u8; 16]>,
    /// UUID, type 3.
    pub uuid: Option<[u8; 16]>,
}

impl NamespaceIds {
    /// The list of descriptors, with the command set (NVM) as the last.
    pub fn write(&self) -> [u8; 4096] {
        let mut bytes = [0; 4096];
        let mut at = 0;
        let mut add = |kind: u8, id: &[u8]| {
            (bytes[at], bytes[at + 1]) = (kind, id.len() as u8);
            bytes[at + 4..][..id.len()].copy_from_slice(id);
            at += 4 + id.len();
        };
        self.eui64.iter().for_each(|id| add(1, id));
        self.nguid.iter().for_each(|id| add(2, id));
        self.uuid.iter().for_each(|id| add(3, id));
        add(4, &[0]);
        bytes
    }

    /// The names in a list; a name of an unknown type, or one that ends beyond the list, is left out.
    pub fn read(bytes: &[u8; 4096]) -> NamespaceIds {
        let mut ids = NamespaceIds::default();
        let mut rest = &bytes[..];
        while let [kind, len, _, _, tail @ ..] = rest
            && *len > 0
            && tail.len() >= usize::from(*len)
        {
            let (id, next) = tail.split_at(usize::from(*len));
            match kind {
                1 => ids.eui64 = id.try_into().ok(),
                2 => ids.nguid = id.try_into().ok(),
                3 => ids.uuid = id.try_into().ok(),
                _ => {}
            }
            rest = next;
        }
        ids
    }
}
