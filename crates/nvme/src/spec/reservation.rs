//! Reservations (Base specification 2.0, section 8.19): the parameters of their four commands (sections 7.2 to 7.5),
//! and the structures that tell hosts of them.

use super::opcode::io;
use super::{Command, Sgl};

/// The identifier by which a namespace knows a host: HOSTID of Connect.
pub type HostId = [u8; 16];

/// RTYPE: the type of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes; every host reads.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 2,
    /// Only registrants write; every host reads.
    WriteExclusiveRegistrantsOnly = 3,
    /// Only registrants read and write.
    ExclusiveAccessRegistrantsOnly = 4,
    /// Only registrants write, and each of them holds the reservation; every host reads.
    WriteExclusiveAllRegistrants = 5,
    /// Only registrants read and write, and each of them holds the reservation.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// All types, in the order of their values.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// The type with that value; `None` for reserved values.
    pub fn of(value: u8) -> Option<ReservationType> {
        ReservationType::ALL.into_iter().find(|kind| *kind as u8 == value)
    }

    /// True if each registrant holds a reservation of this type.
    pub fn is_held_by_all(self) -> bool {
        matches!(self, ReservationType::WriteExclusiveAllRegistrants | ReservationType::ExclusiveAccessAllRegistrants)
    }

    /// True if one host alone has the rights of a reservation of this type.
    pub fn is_of_one_host(self) -> bool {
        matches!(self, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
    }

    /// True if hosts without rights may read.
    pub fn lets_all_read(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusive
                | ReservationType::WriteExclusiveRegistrantsOnly
                | ReservationType::WriteExclusiveAllRegistrants
        )
    }
}

/// RREGA: the action of Reservation Register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// Register a key.
    Register,
    /// Unregister the key.
    Unregister,
    /// Replace the key.
    Replace,
}

/// RACQA: the action of Reservation Acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    /// Acquire the reservation.
    Acquire,
    /// Remove registrants, and the reservation if one of them holds it.
    Preempt,
    /// Preempt, and abort the commands of the hosts removed.
    PreemptAndAbort,
}

/// RRELA: the action of Reservation Release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAction {
    /// Release the reservation.
    Release,
    /// Release the reservation and remove all registrants.
    Clear,
}

/// A command that changes reservations, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Reservation Register.
    Register {
        /// RREGA.
        action: RegisterAction,
        /// IEKEY: the current key need not match.
        ignores_key: bool,
        /// CPTPL: the new state of Persist Through Power Loss; `None` keeps the state.
        persists: Option<bool>,
        /// CRKEY: the host's key before.
        current: u64,
        /// NRKEY: the host's key from now on.
        new: u64,
    },
    /// Reservation Acquire.
    Acquire {
        /// RACQA.
        action: AcquireAction,
        /// RTYPE.
        kind: ReservationType,
        /// CRKEY: the host's key.
        current: u64,
        /// PRKEY: the key of the registrants to remove.
        preempted: u64,
    },
    /// Reservation Release.
    Release {
        /// RRELA.
        action: ReleaseAction,
        /// RTYPE as the command has it; Clear ignores it.
        kind: u8,
        /// CRKEY: the host's key.
        current: u64,
    },
}

/// CPTPL: the bits of "set to 0" and "set to 1".
const PTPL_OFF: u32 = 2 << 30;
const PTPL_ON: u32 = 3 << 30;
/// IEKEY, in `cdw10` of all three commands.
const IGNORE_KEY: u32 = 1 << 3;

/// Bytes that the command with this opcode brings; `None` for commands that are not about reservations. Report brings
/// none.
#[inline]
pub fn data_bytes(opcode: u8) -> Option<u32> {
    match opcode {
        io::RESERVATION_REGISTER | io::RESERVATION_ACQUIRE => Some(16),
        io::RESERVATION_RELEASE => Some(8),
        io::RESERVATION_REPORT => Some(0),
        _ => None,
    }
}

impl ReservationCommand {
    /// Reads a command and its data; `None` for reserved values, for too few data, and for IEKEY where the command must
    /// not have it.
    pub fn of(command: &Command, data: &[u8]) -> Option<ReservationCommand> {
        let key = |at: usize| Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?));
        let (action, ignores_key) = (command.cdw10 & 7, command.cdw10 & IGNORE_KEY != 0);
        let kind = (command.cdw10 >> 8) as u8;
        match command.opcode {
            io::RESERVATION_REGISTER => Some(ReservationCommand::Register {
                action: match action {
                    0 => RegisterAction::Register,
                    1 => RegisterAction::Unregister,
                    2 => RegisterAction::Replace,
                    _ => return None,
                },
                ignores_key,
                persists: match command.cdw10 >> 30 {
                    0 => None,
                    2 => Some(false),
                    3 => Some(true),
                    _ => return None,
                },
                current: key(0)?,
                new: key(8)?,
            }),
            io::RESERVATION_ACQUIRE if !ignores_key => Some(ReservationCommand::Acquire {
                action: match action {
                    0 => AcquireAction::Acquire,
                    1 => AcquireAction::Preempt,
                    2 => AcquireAction::PreemptAndAbort,
                    _ => return None,
                },
                kind: ReservationType::of(kind)?,
                current: key(0)?,
                preempted: key(8)?,
            }),
            io::RESERVATION_RELEASE if !ignores_key => Some(ReservationCommand::Release {
                action: match action {
                    0 => ReleaseAction::Release,
                    1 => ReleaseAction::Clear,
                    _ => return None,
                },
                kind,
                current: key(0)?,
            }),
            _ => None,
        }
    }

    /// The command without its place of data, and the data.
    pub fn command(&self, nsid: u32) -> (Command, Vec<u8>) {
        let (opcode, cdw10, keys) = match *self {
            ReservationCommand::Register { action, ignores_key, persists, current, new } => {
                let ptpl = match persists {
                    None => 0,
                    Some(false) => PTPL_OFF,
                    Some(true) => PTPL_ON,
                };
                let ignore = if ignores_key { IGNORE_KEY } else { 0 };
                (io::RESERVATION_REGISTER, action as u32 | ignore | ptpl, vec![current, new])
            }
            ReservationCommand::Acquire { action, kind, current, preempted } => {
                (io::RESERVATION_ACQUIRE, action as u32 | u32::from(kind as u8) << 8, vec![current, preempted])
            }
            ReservationCommand::Release { action, kind, current } => {
                (io::RESERVATION_RELEASE, action as u32 | u32::from(kind) << 8, vec![current])
            }
        };
        let data = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        (Command { cdw10, ..Command::new(opcode, nsid) }, data)
    }
}

/// The Reservation Report command for a buffer of `bytes` bytes, a multiple of 4, in the extended form that hosts with
/// identifiers of 128 bits need (EDS).
pub fn report(nsid: u32, bytes: u32) -> Command {
    let cdw10 = (bytes / 4).saturating_sub(1);
    Command { cdw10, cdw11: 1, sgl: Sgl::transport(bytes), ..Command::new(io::RESERVATION_REPORT, nsid) }
}

layout! {
    /// The header of the Extended Reservation Status (section 7.4): [`RegisteredController`]s follow.
    pub struct ReservationStatus: 64 {
        /// GEN: counts changes of registrations.
        generation: u32 = 0,
        /// RTYPE; 0 without a reservation.
        kind: u8 = 4,
        /// REGCTL: registered controllers, whose structures follow.
        registered: u16 = 5,
        /// PTPLS: 1 if registrants and reservation persist through power loss.
        persists: u8 = 9,
    }
}

layout! {
    /// A registered controller in the Extended Reservation Status.
    pub struct RegisteredController: 64 {
        /// CNTLID; FFFFh if the registrant has no controller now.
        cntlid: u16 = 0,
        /// RCSTS: bit 0 the host holds the reservation.
        is_holder: u8 = 2,
        /// RKEY: the registrant's key.
        key: u64 = 8,
        /// HOSTID.
        host: HostId = 16,
    }
}

/// The reason of a notification, as the log page numbers it (section 5.16.1.26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Notice {
    /// Another host has removed the host's registration.
    RegistrationPreempted = 1,
    /// The reservation was released.
    ReservationReleased = 2,
    /// The reservation and all registrations were cleared.
    ReservationPreempted = 3,
}

layout! {
    /// The Reservation Notification log page (section 5.16.1.26).
    pub struct ReservationNotification: 64 {
        /// Counts notifications; 0 on an empty page.
        count: u64 = 0,
        /// A value of [`Notice`]; 0 on an empty page.
        kind: u8 = 8,
        /// Notifications that wait behind this one.
        available: u8 = 9,
        /// The namespace.
        nsid: u32 = 12,
    }
}

/// RESCAP: the capabilities of a namespace (figure 280).
pub mod rescap {
    /// Registrants and reservation can persist through power loss.
    pub const PERSISTS: u8 = 1 << 0;
    /// All six types, and IEKEY as of version 1.3.
    pub const ALL_TYPES: u8 = 0xfe;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_were_written() {
        let (current, new) = (0x1122_3344_5566_7788, u64::MAX);
        let mut all = Vec::new();
        for action in [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace] {
            for persists in [None, Some(false), Some(true)] {
                for ignores_key in [false, true] {
                    all.push(ReservationCommand::Register { action, ignores_key, persists, current, new });
                }
            }
        }
        for kind in ReservationType::ALL {
            for action in [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort] {
                all.push(ReservationCommand::Acquire { action, kind, current, preempted: new });
            }
            all.push(ReservationCommand::Release { action: ReleaseAction::Release, kind: kind as u8, current });
        }
        for asked in all {
            let (command, data) = asked.command(7);
            assert_eq!(data_bytes(command.opcode), Some(data.len() as u32));
            assert_eq!(ReservationCommand::of(&command, &data), Some(asked));
            assert_eq!(ReservationCommand::of(&command, &data[1..]), None, "a key is cut short");
        }
    }

    #[test]
    fn reserved_values_are_refused() {
        let register = |cdw10| Command { cdw10, ..Command::new(io::RESERVATION_REGISTER, 1) };
        let acquire = |cdw10| Command { cdw10, ..Command::new(io::RESERVATION_ACQUIRE, 1) };
        let release = |cdw10| Command { cdw10, ..Command::new(io::RESERVATION_RELEASE, 1) };
        for command in [
            register(3),
            register(1 << 30),
            acquire(3 | 1 << 8),
            acquire(0),
            acquire(7 << 8),
            acquire(1 << 8 | IGNORE_KEY),
            release(2),
            release(1 << 8 | IGNORE_KEY),
            Command::new(io::RESERVATION_REPORT, 1),
            Command::new(io::READ, 1),
        ] {
            assert_eq!(ReservationCommand::of(&command, &[0; 16]), None, "{command:?}");
        }
    }
}
