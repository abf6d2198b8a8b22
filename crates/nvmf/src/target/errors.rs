//! The error log of a controller: the commands that failed last.

use std::collections::VecDeque;

use crate::spec::Status;
use crate::spec::log::{DiscoveryEntry, ErrorEntry};

/// Entries that the log has, less one: ELPE.
pub(super) const ENTRIES_LESS_ONE: u8 = 15;
/// A parameter error location that is not known.
const UNKNOWN: u16 = 0xffff;

/// The last errors, and how many there were.
#[derive(Default)]
pub(super) struct ErrorLog {
    count: u64,
    /// Newest first: number of the error, queue, command, status.
    entries: VecDeque<(u64, u16, u16, Status)>,
}

impl ErrorLog {
    /// Notes that a command of that queue has failed.
    pub fn note(&mut self, queue_id: u16, cid: u16, status: Status) {
        self.count += 1;
        self.entries.truncate(ENTRIES_LESS_ONE.into());
        self.entries.push_front((self.count, queue_id, cid, status));
    }

    /// Errors over the controller's life.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The log page: newest first, unused entries are zeros.
    pub fn page(&self) -> Vec<u8> {
        let mut page = vec![0; (usize::from(ENTRIES_LESS_ONE) + 1) * ErrorEntry::BYTES];
        for (place, &(error_count, sqid, cid, status)) in page.chunks_exact_mut(ErrorEntry::BYTES).zip(&self.entries) {
            let (status, parameter, trtype) = (status.bits() << 1, UNKNOWN, DiscoveryEntry::TCP);
            let entry = ErrorEntry { error_count, sqid, cid, status, parameter, trtype, ..ErrorEntry::default() };
            place.copy_from_slice(&entry.write());
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_newest_errors_and_counts_all() {
        let mut log = ErrorLog::default();
        assert!(log.page().iter().all(|&byte| byte == 0));
        (0..40).for_each(|cid| log.note(3, cid, Status::INVALID_FIELD.do_not_retry()));
        let page = log.page();
        let entries: Vec<ErrorEntry> =
            page.chunks_exact(64).map(|it| ErrorEntry::read(it.try_into().unwrap())).collect();
        assert_eq!((entries.len(), log.count()), (16, 40));
        assert_eq!((entries[0].error_count, entries[0].cid, entries[15].cid), (40, 39, 24));
        assert_eq!((entries[0].sqid, entries[0].status >> 1), (3, Status::INVALID_FIELD.do_not_retry().bits()));
    }
}
