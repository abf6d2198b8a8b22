//! Features (Base specification 2.0, section 5.27.1): identifiers, and values with more than one part.

/// Arbitration.
pub const ARBITRATION: u8 = 0x01;
/// Power Management.
pub const POWER_MANAGEMENT: u8 = 0x02;
/// Temperature Threshold.
pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
/// Error Recovery.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Volatile Write Cache: bit 0 of the value enables it.
pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
/// Number of Queues.
pub const NUMBER_OF_QUEUES: u8 = 0x07;
/// Write Atomicity Normal.
pub const WRITE_ATOMICITY: u8 = 0x0a;
/// Asynchronous Event Configuration.
pub const ASYNC_EVENT_CONFIGURATION: u8 = 0x0b;
/// Timestamp: 8 bytes of data, [`Timestamp`].
pub const TIMESTAMP: u8 = 0x0e;
/// Keep Alive Timer: milliseconds.
pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
/// Host Behavior Support: 512 bytes of data.
pub const HOST_BEHAVIOR: u8 = 0x16;
/// Host Identifier: 16 bytes of data over Fabrics.
pub const HOST_IDENTIFIER: u8 = 0x81;
/// Reservation Notification Mask, of a namespace: a set bit (1 to 3) of a kind of notification suppresses it.
pub const RESERVATION_MASK: u8 = 0x82;
/// Reservation Persistence, of a namespace: bit 0 Persist Through Power Loss.
pub const RESERVATION_PERSISTENCE: u8 = 0x83;

/// Bit of [`ERROR_RECOVERY`]: Deallocated or Unwritten Logical Block Error Enable.
pub const DULBE: u32 = 1 << 16;
/// Bits of [`ASYNC_EVENT_CONFIGURATION`]: critical warnings of the SMART log page.
pub const EVENTS_OF_HEALTH: u32 = 0xff;
/// Bit of [`ASYNC_EVENT_CONFIGURATION`] and of OAES: namespace attribute notices.
pub const EVENT_NAMESPACE: u32 = 1 << 8;
/// Bit of [`ASYNC_EVENT_CONFIGURATION`] and of OAES: asymmetric namespace access change notices.
pub const EVENT_ANA: u32 = 1 << 11;
/// Bit of [`ASYNC_EVENT_CONFIGURATION`] and of OAES: discovery log page change notices.
pub const EVENT_DISCOVERY: u32 = 1 << 31;

/// The data of [`TIMESTAMP`] (Base specification 2.0, figure 337).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Milliseconds, modulo 2^48: since 1970, if a host has set them.
    pub ms: u64,
    /// True if a host has set the time since the controller was reset.
    pub is_set: bool,
}

impl Timestamp {
    /// The 8 bytes. The clock never stops: SYNCH is 0.
    pub fn write(self) -> [u8; 8] {
        (self.ms & 0xffff_ffff_ffff | u64::from(self.is_set) << 49).to_le_bytes()
    }

    /// The milliseconds that a host sets.
    pub fn ms_of(data: [u8; 8]) -> u64 {
        u64::from_le_bytes(data) & 0xffff_ffff_ffff
    }
}

/// `cdw11` of [`TEMPERATURE_THRESHOLD`] (Base specification 2.0, section 5.27.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// TMPTH: the threshold in kelvins.
    pub kelvins: u16,
    /// TMPSEL 0: the composite temperature.
    pub is_composite: bool,
    /// TMPSEL Fh: every temperature, in Set Features.
    pub is_of_all: bool,
    /// THSEL 01b: the threshold below which the temperature is too low.
    pub is_under: bool,
}

impl Threshold {
    /// The threshold that a command names; `None` for reserved values.
    pub fn of(cdw11: u32) -> Option<Threshold> {
        let (sensor, kind) = (cdw11 >> 16 & 15, cdw11 >> 20 & 3);
        let is_valid = matches!(sensor, 0..=8 | 15) && kind < 2;
        is_valid.then_some(Threshold {
            kelvins: cdw11 as u16,
            is_composite: sensor == 0,
            is_of_all: sensor == 15,
            is_under: kind == 1,
        })
    }
}

/// SEL of Get Features, bits 10:8 of `cdw10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The value in force.
    Current,
    /// The default value.
    Default,
    /// The saved value.
    Saved,
    /// The capabilities of the feature: they tell if its value can be saved and changed.
    SupportedCapabilities,
    /// Reserved values.
    Reserved,
}

/// The feature that Get or Set Features names.
pub fn identifier(cdw10: u32) -> u8 {
    cdw10 as u8
}

/// The value of the feature that Get Features asks for: current, default, saved or capabilities.
pub fn select(cdw10: u32) -> Select {
    match cdw10 >> 8 & 7 {
        0 => Select::Current,
        1 => Select::Default,
        2 => Select::Saved,
        3 => Select::SupportedCapabilities,
        _ => Select::Reserved,
    }
}

/// The bits of `cdw11` that a feature has; the others are reserved, and read as zeros.
pub fn fields(id: u8) -> u32 {
    match id {
        ARBITRATION => 0xffff_ff07, // AB, LPW, MPW, HPW
        POWER_MANAGEMENT => 0xff,   // PS, WH
        ERROR_RECOVERY => 0x1_ffff, // TLER, DULBE
        WRITE_ATOMICITY => 1,       // DN
        RESERVATION_MASK => 0b1110, // REGPRE, RESREL, RESPRE
        _ => u32::MAX,
    }
}

/// True if the data are a [`HOST_BEHAVIOR`] (Base specification 2.0, figure 359): ACRE, ETDAS and LBAFEE are 0 or 1,
/// and reserved bytes are zeros.
pub fn is_host_behavior(data: &[u8; 512]) -> bool {
    data[..3].iter().all(|&field| field <= 1) && data[3..].iter().all(|&byte| byte == 0)
}

/// True if Set Features asks the controller to save the value.
pub fn is_save(cdw10: u32) -> bool {
    cdw10 >> 31 == 1
}

/// The value of [`NUMBER_OF_QUEUES`], asked for or granted, both counted from zero: `queues` of 1 to 65535 I/O queues.
pub fn queues_value(queues: u16) -> u32 {
    let zero_based = u32::from(queues.saturating_sub(1));
    zero_based | zero_based << 16
}

/// I/O queues in a value of [`NUMBER_OF_QUEUES`]: the smaller of both kinds; 0 if one of them is 65536, which is not
/// valid.
pub fn queues(value: u32) -> u16 {
    let (submission, completion) = (value as u16, (value >> 16) as u16);
    if submission.max(completion) == u16::MAX { 0 } else { submission.min(completion) + 1 }
}
