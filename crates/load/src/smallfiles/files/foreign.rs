//! The names that a run could not give: somebody else has them, so every operation leaves them alone.

use std::collections::BTreeMap;

use crate::smallfiles::tree::Object;

/// Names by their thread, kind and number. The first number of each row of them, and the end of the row: objects are
/// made in order, so a million of them are one row.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    rows: BTreeMap<(u32, Object, u64), u64>,
}

impl Foreign {
    /// Notes a name.
    pub fn note(&mut self, thread: u32, object: Object, number: u64) {
        let key = (thread, object, number);
        match self.rows.range_mut(..=key).next_back() {
            Some((&(of, kind, _), end)) if (of, kind) == (thread, object) && *end >= number => {
                *end = (*end).max(number + 1);
            }
            _ => drop(self.rows.insert(key, number + 1)),
        }
    }

    /// True if the name was noted.
    pub fn has(&self, thread: u32, object: Object, number: u64) -> bool {
        let row = self.rows.range(..=(thread, object, number)).next_back();
        row.is_some_and(|(&(of, kind, _), &end)| (of, kind) == (thread, object) && number < end)
    }

    /// True if no name was noted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_order_are_one_row() {
        let mut foreign = Foreign::default();
        (5..1_000_005).for_each(|number| foreign.note(2, Object::File, number));
        foreign.note(2, Object::File, 7);
        assert_eq!(foreign.rows.len(), 1);
        let has = |number| foreign.has(2, Object::File, number);
        assert_eq!([4, 5, 1_000_004, 1_000_005].map(has), [false, true, true, false]);
    }

    #[test]
    fn names_of_others_are_not_taken_for_them() {
        let mut foreign = Foreign::default();
        foreign.note(1, Object::File, 3);
        foreign.note(1, Object::File, 8);
        assert!(foreign.has(1, Object::File, 3) && foreign.has(1, Object::File, 8));
        assert!(!foreign.has(1, Object::File, 5));
        assert!(!foreign.has(1, Object::Renamed, 3) && !foreign.has(0, Object::File, 3));
    }
}
