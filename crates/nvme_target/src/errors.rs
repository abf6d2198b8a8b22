//! The error log of a controller: the commands that failed last.

use std::collections::VecDeque;

use nvme::spec::Status;
use nvme::spec::log::{DiscoveryEntry, ErrorEntry};

use super::portal::TransportType;

/// Entries that the log has, less one: ELPE.
pub(super) const ENTRIES_LESS_ONE: u8 = 15;
/// A parameter error location that is not known.
const UNKNOWN: u16 = 0xffff;

/// A command that has failed.
#[derive(Clone, Copy)]
pub(super) struct Failed {
    pub queue_id: u16,
    pub cid: u16,
    pub status: Status,
    pub about: About,
    pub transport: TransportType,
}

/// The blocks that a command is about: zeros where it is about none, or nobody knows.
#[derive(Clone, Copy, Default)]
pub(super) struct About {
    pub nsid: u32,
    /// The first block.
    pub slba: u64,
}

/// The last errors, and how many there were.
#[derive(Default)]
pub(super) struct ErrorLog {
    count: u64,
    /// Newest first, with the numbers of the errors.
    entries: VecDeque<(u64, Failed)>,
}

impl ErrorLog {
    /// Notes that a command has failed.
    pub fn note(&mut self, failed: Failed) {
        self.count += 1;
        self.entries.truncate(ENTRIES_LESS_ONE.into());
        self.entries.push_front((self.count, failed));
    }

    /// Errors over the controller's life.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The log page: newest first, unused entries are zeros.
    pub fn page(&self) -> Vec<u8> {
        let mut page = vec![0; (usize::from(ENTRIES_LESS_ONE) + 1) * ErrorEntry::BYTES];
        for (place, &(error_count, failed)) in page.chunks_exact_mut(ErrorEntry::BYTES).zip(&self.entries) {
            let Failed { queue_id: sqid, cid, status, about: About { nsid, slba: lba }, transport } = failed;
            let (status, parameter) = (status.bits() << 1, UNKNOWN);
            let trtype = match transport {
                TransportType::Tcp => DiscoveryEntry::TCP,
                TransportType::Rdma => DiscoveryEntry::RDMA,
            };
            let entry = ErrorEntry { error_count, sqid, cid, status, parameter, lba, nsid, trtype };
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
        let (status, transport) = (Status::INVALID_FIELD.do_not_retry(), TransportType::Rdma);
        let about = About { nsid: 2, slba: 7 };
        (0..40).for_each(|cid| log.note(Failed { queue_id: 3, cid, status, about, transport }));
        let page = log.page();
        let entries: Vec<ErrorEntry> =
            page.chunks_exact(64).map(|it| ErrorEntry::read(it.try_into().unwrap())).collect();
        assert_eq!((entries.len(), log.count()), (16, 40));
        assert_eq!((entries[0].error_count, entries[0].cid, entries[15].cid), (40, 39, 24));
        assert_eq!((entries[0].sqid, entries[0].status >> 1), (3, status.bits()));
        assert_eq!((entries[0].nsid, entries[0].lba, entries[0].trtype), (2, 7, DiscoveryEntry::RDMA));
    }
}
