//! The notifications of a controller: changes to reservations of its host (Base specification 2.0, section 8.19.8).

use std::collections::{BTreeMap, VecDeque};

use nvme::spec::reservation::{Notice, ReservationNotification};

/// The most notifications that wait to be read: the log page counts them in a byte.
const MOST: usize = 255;

/// The notifications of one controller that its host has not read.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Counts all notifications since the last reset.
    count: u64,
    unread: VecDeque<ReservationNotification>,
    /// The masks of namespaces (feature 82h): a set bit suppresses the notice of that number.
    masks: BTreeMap<u32, u32>,
}

impl Notices {
    /// The value of the feature Reservation Notification Mask for a namespace.
    pub fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(&nsid).copied().unwrap_or_default()
    }

    /// Sets the mask of a namespace.
    pub fn set_mask(&mut self, nsid: u32, mask: u32) {
        self.masks.insert(nsid, mask);
    }

    /// Adds a notification unless it is masked; returns true if it was added. Beyond [`MOST`] the oldest is lost: the
    /// host sees the gap in the counts.
    pub fn add(&mut self, nsid: u32, notice: Notice) -> bool {
        if self.mask(nsid) >> notice as u8 & 1 == 1 {
            return false;
        }
        self.count += 1;
        self.unread.push_back(ReservationNotification { count: self.count, kind: notice as u8, available: 0, nsid });
        if self.unread.len() > MOST {
            self.unread.pop_front();
        }
        true
    }

    /// The log page: the oldest notification, all zeros if there is none. The notification is read, unless the host
    /// retains it.
    pub fn page(&mut self, retain: bool) -> ReservationNotification {
        let oldest = if retain { self.unread.front().copied() } else { self.unread.pop_front() };
        let behind = if retain { self.unread.len().saturating_sub(1) } else { self.unread.len() };
        oldest.map_or_else(Default::default, |it| ReservationNotification { available: behind as u8, ..it })
    }

    pub fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_read_in_their_order_and_masked_ones_never() {
        let mut notices = Notices::default();
        notices.set_mask(2, 1 << Notice::ReservationReleased as u8);
        assert!(notices.add(1, Notice::ReservationReleased));
        assert!(!notices.add(2, Notice::ReservationReleased));
        assert!(notices.add(2, Notice::RegistrationPreempted));
        let page =
            |count, kind: Notice, available, nsid| ReservationNotification { count, kind: kind as u8, available, nsid };
        assert_eq!(notices.page(true), page(1, Notice::ReservationReleased, 1, 1), "retained");
        assert_eq!(notices.page(false), page(1, Notice::ReservationReleased, 1, 1));
        assert_eq!(notices.page(false), page(2, Notice::RegistrationPreempted, 0, 2));
        assert!(notices.is_empty());
        assert_eq!(notices.page(false), ReservationNotification::default());
    }

    #[test]
    fn a_host_that_does_not_read_loses_the_oldest() {
        let mut notices = Notices::default();
        for _ in 0..300 {
            notices.add(1, Notice::ReservationPreempted);
        }
        let first = notices.page(false);
        assert_eq!((first.count, first.available), (46, 254));
    }
}
