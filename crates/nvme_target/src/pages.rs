//! Pages that several connections send at the same time are in memory once.

use std::sync::{Arc, Weak};

/// The pages of a reactor that have not been sent yet.
#[derive(Default)]
pub(super) struct Pages {
    alive: Vec<Weak<[u8]>>,
}

impl Pages {
    /// The page, in the memory of an equal one that is being sent if there is one.
    pub fn share(&mut self, page: Vec<u8>) -> Arc<[u8]> {
        self.alive.retain(|other| other.strong_count() > 0);
        let equal = self.alive.iter().filter_map(Weak::upgrade).find(|other| **other == page[..]);
        equal.unwrap_or_else(|| {
            let page = Arc::from(page);
            self.alive.push(Arc::downgrade(&page));
            page
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pages_are_one_as_long_as_one_of_them_is_sent() {
        let mut pages = Pages::default();
        let first = pages.share(vec![1; 9000]);
        let (second, other) = (pages.share(vec![1; 9000]), pages.share(vec![2; 9000]));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        drop((first, second, other));
        pages.share(Vec::new());
        assert_eq!(pages.alive.len(), 1);
    }
}
