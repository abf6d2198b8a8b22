//! Log pages (Base specification 2.0, section 5.16.1).

use std::net::IpAddr;

use super::{Nqn, NqnError, Text};

/// Error Information: [`ErrorEntry`]s, newest first.
pub const ERROR: u8 = 0x01;
/// SMART / Health Information: [`Smart`].
pub const SMART: u8 = 0x02;
/// Firmware Slot Information: [`Firmware`].
pub const FIRMWARE: u8 = 0x03;
/// Changed Namespace List: as [`namespace_list`](super::namespace_list); FFFFFFFFh first if there are more than 1024.
pub const CHANGED_NAMESPACES: u8 = 0x04;
/// Commands Supported and Effects: [`Effects`].
pub const EFFECTS: u8 = 0x05;
/// Asymmetric Namespace Access: [`AnaHeader`](super::ana::AnaHeader), then descriptors of groups.
pub const ANA: u8 = 0x0c;
/// Reservation Notification: [`ReservationNotification`](super::reservation::ReservationNotification).
pub const RESERVATION_NOTIFICATION: u8 = 0x80;
/// Discovery: [`DiscoveryHeader`], then [`DiscoveryEntry`]s.
pub const DISCOVERY: u8 = 0x70;

layout! {
    /// An entry of the error log.
    pub struct ErrorEntry: 64 {
        /// Counts errors from 1; 0 in entries that are not used.
        error_count: u64 = 0,
        /// The identifier of the queue.
        sqid: u16 = 8,
        /// The identifier of the command.
        cid: u16 = 10,
        /// Status field, the phase bit included.
        status: u16 = 12,
        /// Byte and bit of the parameter in error.
        parameter: u16 = 14,
        /// The first block of the command.
        lba: u64 = 16,
        /// The namespace of the command.
        nsid: u32 = 24,
        /// TRTYPE of the transport that the command came by.
        trtype: u8 = 29,
    }
}

layout! {
    /// SMART / Health Information.
    pub struct Smart: 512 {
        /// Bits: spare low, temperature, degraded, read-only, volatile memory failed.
        critical_warning: u8 = 0,
        /// The temperature in kelvins.
        temperature: u16 = 1,
        /// The spare capacity that is left, in percent.
        available_spare: u8 = 3,
        /// The spare capacity in percent below which it is critical.
        spare_threshold: u8 = 4,
        /// Percent of the life that is used.
        percentage_used: u8 = 5,
        /// Thousands of 512-byte units read, rounded up.
        data_units_read: u128 = 32,
        /// Thousands of 512-byte units written, rounded up.
        data_units_written: u128 = 48,
        /// Read commands.
        host_reads: u128 = 64,
        /// Write commands.
        host_writes: u128 = 80,
        /// Minutes in which commands were outstanding.
        busy_minutes: u128 = 96,
        /// Power cycles.
        power_cycles: u128 = 112,
        /// Hours that the controller has been on.
        power_on_hours: u128 = 128,
        /// Unsafe shutdowns.
        unsafe_shutdowns: u128 = 144,
        /// Media and data integrity errors.
        media_errors: u128 = 160,
        /// Entries of the error log over the controller's life.
        error_entries: u128 = 176,
    }
}

layout! {
    /// Firmware Slot Information.
    pub struct Firmware: 512 {
        /// Active slot, bits 2:0.
        afi: u8 = 0,
        /// Revision in slot 1.
        frs1: Text<8> = 8,
    }
}

layout! {
    /// Commands Supported and Effects.
    pub struct Effects: 4096 {
        /// By opcode of the admin queue: [`Effects::SUPPORTED`] and others.
        admin: [u32; 256] = 0,
        /// By opcode of I/O queues.
        io: [u32; 256] = 1024,
    }
}

impl Effects {
    /// CSUPP: the command exists.
    pub const SUPPORTED: u32 = 1;
    /// LBCC: it may change blocks.
    pub const CHANGES_BLOCKS: u32 = 1 << 1;
    /// NIC: it may change which namespaces there are, or which ones the controller has.
    pub const CHANGES_INVENTORY: u32 = 1 << 3;
}

layout! {
    /// The header that the discovery log page begins with.
    pub struct DiscoveryHeader: 1024 {
        /// Counts changes of the page.
        genctr: u64 = 0,
        /// Entries that follow.
        numrec: u64 = 8,
        /// Record format: 0.
        recfmt: u16 = 16,
    }
}

layout! {
    /// A subsystem, and an address where it is reached.
    pub struct DiscoveryEntry: 1024 {
        /// Transport: [`DiscoveryEntry::TCP`] or [`DiscoveryEntry::RDMA`].
        trtype: u8 = 0,
        /// Address family: 1 IPv4, 2 IPv6.
        adrfam: u8 = 1,
        /// The kind of subsystem: a constant of [`DiscoveryEntry`].
        subtype: u8 = 2,
        /// Requirements: bits 1:0 secure channel, bit 2 SQ flow control can be disabled.
        treq: u8 = 3,
        /// Port of the subsystem.
        portid: u16 = 4,
        /// FFFFh: controllers are allocated as hosts connect.
        cntlid: u16 = 6,
        /// Entries of an admin queue at most.
        asqsz: u16 = 8,
        /// Flags.
        eflags: u16 = 10,
        /// Service: the port as decimal digits.
        trsvcid: Text<32> = 32,
        /// NQN of the subsystem, as [`Nqn::field`] has it.
        subnqn: [u8; 256] = 256,
        /// The address of the subsystem, as text.
        traddr: Text<256> = 512,
        /// The transport's own part of the address: over TCP byte 0 is the security (SECTYPE), 0 none or
        /// [`DiscoveryEntry::TLS_1_3`]; over RDMA it is a [`RdmaAddress`](super::rdma::RdmaAddress).
        tsas: [u8; 256] = 768,
    }
}

impl DiscoveryEntry {
    /// TRTYPE of NVMe over RDMA.
    pub const RDMA: u8 = 1;
    /// TRTYPE of NVMe/TCP.
    pub const TCP: u8 = 3;
    /// SECTYPE: TLS 1.3.
    pub const TLS_1_3: u8 = 2;
    /// SUBTYPE: another discovery service, to be asked as well.
    pub const REFERRAL: u8 = 1;
    /// SUBTYPE: a subsystem with namespaces.
    pub const NVM: u8 = 2;
    /// SUBTYPE: the discovery service that was asked.
    pub const CURRENT_DISCOVERY: u8 = 3;

    /// ADRFAM of an address.
    pub fn address_family(address: IpAddr) -> u8 {
        if address.is_ipv4() { 1 } else { 2 }
    }

    /// The subsystem's name.
    ///
    /// # Errors
    /// The name in the field is empty, too long, not ended by a NUL, or not UTF-8.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subnqn)
    }
}
