//! The levels of the log, by the names that SPDK's methods give them.

/// The level of a line, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The target cannot go on with something.
    Error,
    /// A host was refused or lost, or broke the protocol; the administrator may have to act.
    Warning,
    /// A host came or went in good order; the configuration changed; the target began or ends.
    Notice,
    /// Queues came or went; hosts asked the discovery service.
    Info,
    /// The control socket was asked something.
    Debug,
}

impl Level {
    /// All levels, the gravest first.
    pub const ALL: [Level; 5] = [Level::Error, Level::Warning, Level::Notice, Level::Info, Level::Debug];
    /// The names of [`Level::ALL`].
    pub const NAMES: [&str; 5] = ["ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"];

    /// The name of the level in SPDK's `log_get_level`.
    pub fn name(self) -> &'static str {
        Level::NAMES[self as usize]
    }

    /// The level of that name.
    pub fn named(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The word of the level in a line of text.
    pub fn word(self) -> &'static str {
        ["error", "warning", "notice", "info", "debug"][self as usize]
    }

    /// The priority of syslog(3), which journald reads from the beginning of a line.
    pub fn priority(self) -> u8 {
        [3, 4, 5, 6, 7][self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_levels() {
        for level in Level::ALL {
            assert_eq!(Level::named(level.name()), Some(level));
            assert_eq!(level.word().to_uppercase(), level.name());
        }
        assert_eq!(Level::named("LOUD"), None);
    }
}
