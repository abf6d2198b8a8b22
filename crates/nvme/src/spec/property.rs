//! Properties of a controller (Base specification 2.0, section 3.1.3).

/// Controller Capabilities, 8 bytes.
pub const CAP: u32 = 0x00;
/// The upper half of [`CAP`].
pub const CAP_HIGH: u32 = 0x04;
/// Version, 4 bytes.
pub const VS: u32 = 0x08;
/// Controller Configuration, 4 bytes.
pub const CC: u32 = 0x14;
/// Controller Status, 4 bytes.
pub const CSTS: u32 = 0x1c;
/// NVM Subsystem Reset, 4 bytes.
pub const NSSR: u32 = 0x20;

/// VS and Identify's VER: NVMe 1.4.
pub const VERSION_1_4: u32 = 0x0001_0400;

/// The value of CAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Entries of a queue at most, 2 to 65536.
    pub queue_entries: u32,
    /// The time in which CSTS.RDY follows CC.EN, in milliseconds: multiples of 500, up to 127500.
    pub timeout_ms: u32,
}

impl Capabilities {
    /// The property: contiguous queues required, NVM command set, memory pages of 4 KiB.
    pub fn value(self) -> u64 {
        let mqes = u64::from(self.queue_entries.clamp(2, 1 << 16) - 1);
        let to = u64::from((self.timeout_ms / 500).min(255));
        mqes | 1 << 16 | to << 24 | 1 << 37
    }

    /// Reads the capabilities from the value of the CAP property.
    pub fn of(value: u64) -> Capabilities {
        Capabilities { queue_entries: (value as u32 & 0xffff) + 1, timeout_ms: (value >> 24 & 0xff) as u32 * 500 }
    }
}

/// The value of CC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// The value that hosts set: enabled, NVM command set, 64-byte and 16-byte queue entries.
    pub const ENABLED: Configuration = Configuration(1 | 6 << 16 | 4 << 20);

    /// EN: true if the host has enabled the controller.
    pub fn is_enabled(self) -> bool {
        self.0 & 1 == 1
    }

    /// SHN: 0 none, 1 normal, 2 abrupt.
    pub fn shutdown(self) -> u8 {
        (self.0 >> 14 & 3) as u8
    }

    /// The configuration with a normal shutdown asked for.
    #[must_use]
    pub fn with_shutdown(self) -> Configuration {
        Configuration(self.0 & !(3 << 14) | 1 << 14)
    }

    /// CSS: the command set.
    pub fn command_set(self) -> u8 {
        (self.0 >> 4 & 7) as u8
    }

    /// MPS: memory page size as a power of two above 4 KiB.
    pub fn memory_page_shift(self) -> u8 {
        (self.0 >> 7 & 15) as u8
    }

    /// AMS: the arbitration mechanism.
    pub fn arbitration(self) -> u8 {
        (self.0 >> 11 & 7) as u8
    }
}

/// The value of CSTS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// RDY: the controller processes commands.
    pub ready: bool,
    /// CFS: the controller has failed and needs a reset.
    pub fatal: bool,
    /// SHST: 0 normal operation, 1 shutdown in progress, 2 shutdown complete.
    pub shutdown: u8,
}

impl ControllerStatus {
    /// The 32 bits of the property CSTS.
    pub fn value(self) -> u32 {
        u32::from(self.ready) | u32::from(self.fatal) << 1 | u32::from(self.shutdown & 3) << 2
    }

    /// Reads the status from the value of the CSTS property.
    pub fn of(value: u32) -> ControllerStatus {
        ControllerStatus { ready: value & 1 != 0, fatal: value & 2 != 0, shutdown: (value >> 2 & 3) as u8 }
    }
}
