//! Asymmetric Namespace Access Reporting (Base specification 2.0, section 8.1): the states of a path to the namespaces
//! of a group, and the structures of log page 0Ch (section 5.16.1.13).

use super::Status;

/// The state of the path from a controller to the namespaces of an ANA group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnaState {
    /// The controller carries commands out, and no other path is better.
    Optimized = 0x1,
    /// The controller carries commands out; hosts prefer an optimized path.
    NonOptimized = 0x2,
    /// The controller refuses commands for now.
    Inaccessible = 0x3,
    /// The controller refuses commands for good.
    PersistentLoss = 0x4,
    /// The controller refuses commands while it goes from one of the other states to another.
    Change = 0xf,
}

impl AnaState {
    /// All states, in the order of their codes.
    pub const ALL: [AnaState; 5] = [
        AnaState::Optimized,
        AnaState::NonOptimized,
        AnaState::Inaccessible,
        AnaState::PersistentLoss,
        AnaState::Change,
    ];

    /// The code of the state in log page 0Ch.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state with that code; `None` for reserved codes.
    pub fn of(code: u8) -> Option<AnaState> {
        AnaState::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The bit of the state in ANACAP of Identify Controller.
    pub const fn capability(self) -> u8 {
        match self {
            AnaState::Optimized => 1 << 0,
            AnaState::NonOptimized => 1 << 1,
            AnaState::Inaccessible => 1 << 2,
            AnaState::PersistentLoss => 1 << 3,
            AnaState::Change => 1 << 4,
        }
    }

    /// The status with which a controller refuses commands in this state, without Do Not Retry: the host tries another
    /// path. `None` in the states in which the controller carries them out.
    #[inline]
    pub const fn refusal(self) -> Option<Status> {
        match self {
            AnaState::Optimized | AnaState::NonOptimized => None,
            AnaState::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => Some(Status::ANA_TRANSITION),
        }
    }
}

layout! {
    /// The header that log page 0Ch begins with.
    pub struct AnaHeader: 16 {
        /// Changes of the page since the controller was reset.
        change_count: u64 = 0,
        /// Descriptors that follow.
        groups: u16 = 8,
    }
}

layout! {
    /// The descriptor of an ANA group in log page 0Ch. The numbers of the group's namespaces follow, 4 bytes each.
    pub struct AnaDescriptor: 32 {
        /// The group's identifier, 1 or more.
        group: u32 = 0,
        /// Numbers of namespaces that follow.
        namespaces: u32 = 4,
        /// The change count of the page as it was when this group changed last.
        change_count: u64 = 8,
        /// The state: a code of [`AnaState`].
        state: u8 = 16,
    }
}

/// LSP of Get Log Page: Return Groups Only, so that no numbers of namespaces follow the descriptors.
pub const GROUPS_ONLY: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back_and_others_are_reserved() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|code| AnaState::of(*code).is_some()).collect();
        assert_eq!(known, [1, 2, 3, 4, 0xf]);
        for state in AnaState::ALL {
            assert_eq!(AnaState::of(state.code()), Some(state));
        }
        let capabilities = AnaState::ALL.iter().fold(0, |all, state| all | state.capability());
        assert_eq!(capabilities, 0b1_1111);
    }

    #[test]
    fn refusals_are_of_the_path_and_may_be_retried() {
        for state in AnaState::ALL {
            let Some(status) = state.refusal() else { continue };
            assert_eq!((status.code() >> 8, status.is_do_not_retry()), (3, false), "{state:?}");
        }
        assert_eq!(AnaState::ALL.iter().filter(|state| state.refusal().is_none()).count(), 2);
    }
}
