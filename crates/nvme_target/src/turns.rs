//! A queue in which the networks that peers come from take turns: one that sends much delays itself, and no other.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Items of sources, bounded in number.
pub(super) struct Turns<T> {
    of: HashMap<IpAddr, VecDeque<T>>,
    /// The sources that have items, that of the next turn first.
    order: VecDeque<IpAddr>,
    len: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { of: HashMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<T> Turns<T> {
    /// Adds an item. With `most` items or more in the queue one of them gives way: the newest of the source with the
    /// most, or the item itself if its source has as many. Returns that one.
    pub fn push(&mut self, source: IpAddr, item: T, most: usize) -> Option<T> {
        let mut displaced = None;
        if self.len >= most {
            let own = self.of.get(&source).map_or(0, VecDeque::len);
            let largest = self.of.values_mut().max_by_key(|items| items.len()).filter(|items| items.len() > own + 1);
            let Some(largest) = largest else { return Some(item) };
            displaced = largest.pop_back();
            self.len -= 1;
        }
        let items = self.of.entry(source).or_default();
        if items.is_empty() {
            self.order.push_back(source);
        }
        items.push_back(item);
        self.len += 1;
        displaced
    }

    /// Takes the oldest item of the source whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let source = self.order.pop_front()?;
        let items = self.of.get_mut(&source)?;
        let item = items.pop_front()?;
        self.len -= 1;
        if items.is_empty() {
            self.of.remove(&source);
        } else {
            self.order.push_back(source);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn sources_take_turns() {
        let mut turns = Turns::default();
        for item in 0..100 {
            assert_eq!(turns.push(source(1), (1, item), 1000), None);
        }
        assert_eq!(turns.push(source(2), (2, 0), 1000), None);
        assert_eq!(turns.push(source(3), (3, 0), 1000), None);
        assert_eq!(turns.push(source(2), (2, 1), 1000), None);
        let first: Vec<(i32, i32)> = (0..6).filter_map(|_| turns.pop()).collect();
        assert_eq!(first, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
        assert_eq!(std::iter::from_fn(|| turns.pop()).count(), 97);
        assert!(turns.len == 0 && turns.of.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn the_source_with_the_most_gives_way_when_the_queue_is_full() {
        let mut turns = Turns::default();
        for item in 0..8 {
            assert_eq!(turns.push(source(1), (1, item), 8), None);
        }
        assert_eq!(turns.push(source(1), (1, 8), 8), Some((1, 8)));
        assert_eq!(turns.push(source(2), (2, 0), 8), Some((1, 7)));
        assert_eq!(turns.push(source(2), (2, 1), 8), Some((1, 6)));
        let taken: Vec<(i32, i32)> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(taken, [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (1, 3), (1, 4), (1, 5)]);
        // Where every source has one, a newcomer waits for nobody's place.
        for number in 0..8 {
            assert_eq!(turns.push(source(number), (number.into(), 0), 8), None);
        }
        assert_eq!(turns.push(source(9), (9, 0), 8), Some((9, 0)));
    }
}
