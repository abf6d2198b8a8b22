//! The requests of one io_uring in flight, told apart by the only thing that a completion says of its request:
//! `user_data`, which the program chooses.
//!
//! A program may give several requests in flight one `user_data`. So the library counts all of a ring's requests, also
//! those that do not concern it (*strangers*). A request is recorded only while no other request of its `user_data` can
//! be in flight. If a stranger of the same `user_data` follows, nobody knows which of the two a completion belongs to:
//! the recorded request has ended for certain when both completions have come, and its result stays unknown.

/// The most recorded requests of one ring in flight.
pub const SLOTS: usize = 512;
/// Strangers are counted by a hash of their `user_data`.
const BUCKETS: usize = 1024;

/// A place for one recorded request.
#[derive(Clone, Copy)]
struct Slot<T> {
    user_data: u64,
    /// The strangers in flight that have the same `user_data`.
    rivals: u32,
    /// A rival was there when a completion came: nobody knows any more which result is the request's.
    doubtful: bool,
    request: T,
}

/// A place in the table. An empty one is all zeros (which `Option` does not promise), so that a static table takes no
/// memory before it is used.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Place<T> {
    Empty = 0,
    Used(Slot<T>) = 1,
}

impl<T> Place<T> {
    fn slot(&self) -> Option<&Slot<T>> {
        match self {
            Place::Empty => None,
            Place::Used(slot) => Some(slot),
        }
    }

    fn slot_mut(&mut self) -> Option<&mut Slot<T>> {
        match self {
            Place::Empty => None,
            Place::Used(slot) => Some(slot),
        }
    }
}

/// The requests of one ring in flight.
pub struct Tagged<T> {
    places: [Place<T>; SLOTS],
    /// The number of places in use.
    recorded: usize,
    strangers: [u16; BUCKETS],
}

/// The meaning of a completion.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// This recorded request has ended, with the completion's result.
    Certain(T),
    /// The recorded request of this `user_data` may have ended. It stays recorded.
    Perhaps,
    /// This recorded request has ended, now or earlier: its result is unknown.
    Unknown(T),
    /// The completion belongs to a request that the library did not record.
    Stranger,
}

fn bucket(user_data: u64) -> usize {
    // Fibonacci hashing: user_data counts upwards, or is an address.
    (user_data.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % BUCKETS
}

impl<T: Copy> Tagged<T> {
    /// A table without recorded requests.
    pub const fn new() -> Tagged<T> {
        Tagged { places: [const { Place::Empty }; SLOTS], recorded: 0, strangers: [0; BUCKETS] }
    }

    /// Forgets all recorded requests.
    pub fn clear(&mut self) {
        self.places.fill(Place::Empty);
        self.recorded = 0;
        self.strangers.fill(0);
    }

    /// True if no request is recorded.
    pub fn is_empty(&self) -> bool {
        self.recorded == 0
    }

    /// True if a request of this `user_data` can be recorded now: its completion could be told from all others.
    pub fn can_record(&self, user_data: u64) -> bool {
        self.strangers.get(bucket(user_data)) == Some(&0) && self.recorded < SLOTS && self.find(user_data).is_none()
    }

    /// Records a request; the caller has asked [`Tagged::can_record`].
    pub fn record(&mut self, user_data: u64, request: T) {
        if let Some(empty) = self.places.iter_mut().find(|place| place.slot().is_none()) {
            *empty = Place::Used(Slot { user_data, rivals: 0, doubtful: false, request });
            self.recorded += 1;
        }
    }

    /// Counts a request that is not recorded.
    pub fn count(&mut self, user_data: u64) {
        if let Some(count) = self.strangers.get_mut(bucket(user_data)) {
            *count = count.saturating_add(1);
        }
        if let Some(slot) = self.slot(user_data) {
            slot.rivals = slot.rivals.saturating_add(1);
        }
    }

    /// Takes back the last [`Tagged::count`] of this `user_data`: the request was not submitted.
    pub fn uncount(&mut self, user_data: u64) {
        if let Some(count) = self.strangers.get_mut(bucket(user_data)) {
            *count = count.saturating_sub(1);
        }
        if let Some(slot) = self.slot(user_data) {
            slot.rivals = slot.rivals.saturating_sub(1);
        }
    }

    /// Takes back the last [`Tagged::record`] of this `user_data`: the request was not submitted.
    pub fn remove(&mut self, user_data: u64) -> Option<T> {
        let at = self.find(user_data)?;
        self.empty(at).map(|slot| slot.request)
    }

    /// Empties a place, and returns what it held.
    fn empty(&mut self, at: usize) -> Option<Slot<T>> {
        let place = self.places.get_mut(at)?;
        let slot = *place.slot()?;
        *place = Place::Empty;
        self.recorded -= 1;
        Some(slot)
    }

    /// Notes the last completion of a request.
    pub fn ended(&mut self, user_data: u64) -> Ended<T> {
        if let Some(at) = self.find(user_data)
            && self.places.get(at).and_then(Place::slot).is_some_and(|slot| slot.rivals == 0)
            && let Some(slot) = self.empty(at)
        {
            return if slot.doubtful { Ended::Unknown(slot.request) } else { Ended::Certain(slot.request) };
        }
        if let Some(count) = self.strangers.get_mut(bucket(user_data)) {
            *count = count.saturating_sub(1);
        }
        match self.slot(user_data) {
            Some(slot) => {
                slot.rivals = slot.rivals.saturating_sub(1);
                slot.doubtful = true;
                Ended::Perhaps
            }
            None => Ended::Stranger,
        }
    }

    /// The recorded requests that are still in flight.
    pub fn recorded(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(Place::slot_mut).map(|slot| &mut slot.request)
    }

    /// Gives each recorded request a rival that nobody has seen: the results of all of them stay unknown.
    pub fn doubt_all(&mut self) {
        let slots = self.places.iter_mut().filter_map(Place::slot_mut);
        slots.for_each(|slot| slot.rivals = slot.rivals.saturating_add(1));
    }

    /// The recorded request of this `user_data`.
    pub fn of(&mut self, user_data: u64) -> Option<&mut T> {
        self.slot(user_data).map(|slot| &mut slot.request)
    }

    fn slot(&mut self, user_data: u64) -> Option<&mut Slot<T>> {
        let at = self.find(user_data)?;
        self.places.get_mut(at)?.slot_mut()
    }

    /// The place of a request. The search ends with the last recorded one: most rings have few.
    fn find(&self, user_data: u64) -> Option<usize> {
        let used = self.places.iter().enumerate().filter_map(|(at, place)| Some((at, place.slot()?)));
        used.take(self.recorded).find(|(_, slot)| slot.user_data == user_data).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Requests with few tags begin and end in any order. A request is told as ended with its result only when
        /// that is the one that has ended; it is told as ended for good only after it has; in the end all are.
        #[test]
        fn completions_are_never_mistaken(steps in proptest::collection::vec((0u64..4, 0u64..3, 0usize..64), 1..200)) {
            let mut tagged = Tagged::<usize>::new();
            // The requests in flight: the tag of each, and the number of each recorded one.
            let mut in_flight: Vec<(u64, Option<usize>)> = Vec::new();
            let mut alive = std::collections::BTreeSet::new();
            let mut next = 0;
            let end = |tagged: &mut Tagged<usize>, in_flight: &mut Vec<(u64, Option<usize>)>,
                           alive: &mut std::collections::BTreeSet<usize>, at: usize| {
                let (tag, request) = in_flight.swap_remove(at % in_flight.len());
                match tagged.ended(tag) {
                    Ended::Certain(told) => {
                        assert_eq!(Some(told), request);
                        assert!(alive.remove(&told));
                    }
                    Ended::Unknown(told) => {
                        assert!(!in_flight.iter().any(|&(_, other)| other == Some(told)));
                        assert!(alive.remove(&told));
                    }
                    Ended::Perhaps => {}
                    Ended::Stranger => assert_eq!(request, None),
                }
            };
            for (tag, what, at) in steps {
                match what {
                    0 if tagged.can_record(tag) => {
                        tagged.record(tag, next);
                        in_flight.push((tag, Some(next)));
                        alive.insert(next);
                        next += 1;
                    }
                    0 | 1 => {
                        tagged.count(tag);
                        in_flight.push((tag, None));
                    }
                    _ if in_flight.is_empty() => {}
                    _ => end(&mut tagged, &mut in_flight, &mut alive, at),
                }
            }
            while !in_flight.is_empty() {
                end(&mut tagged, &mut in_flight, &mut alive, 0);
            }
            prop_assert!(alive.is_empty());
            prop_assert!((0..4).all(|tag| tagged.can_record(tag)));
        }
    }

    proptest! {
        /// A batch of which the kernel has taken only a part leaves the table as if the rest had never been there.
        #[test]
        fn requests_that_were_not_submitted_leave_nothing(tags in proptest::collection::vec(0u64..5, 0..40), taken in 0usize..40) {
            let (mut tagged, mut other) = (Tagged::<usize>::new(), Tagged::<usize>::new());
            let mut placed = Vec::new();
            let place = |tagged: &mut Tagged<usize>, number: usize, tag: u64| {
                let records = number.is_multiple_of(2) && tagged.can_record(tag);
                if records { tagged.record(tag, number) } else { tagged.count(tag) }
                records
            };
            for (number, &tag) in tags.iter().enumerate() {
                let recorded = place(&mut tagged, number, tag);
                if number < taken {
                    prop_assert_eq!(place(&mut other, number, tag), recorded);
                } else {
                    placed.push((number, tag, recorded));
                }
            }
            for (number, tag, recorded) in placed.into_iter().rev() {
                if recorded {
                    prop_assert_eq!(tagged.remove(tag), Some(number));
                } else {
                    tagged.uncount(tag);
                }
            }
            for tag in tags.into_iter().take(taken) {
                prop_assert_eq!(tagged.ended(tag), other.ended(tag));
            }
            prop_assert!((0..5).all(|tag| tagged.can_record(tag)));
        }
    }

    #[test]
    fn a_stranger_that_comes_first_keeps_its_tag() {
        let mut tagged = Tagged::<u8>::new();
        tagged.count(7);
        assert!(!tagged.can_record(7));
        assert_eq!(tagged.ended(7), Ended::Stranger);
        assert!(tagged.can_record(7));
    }
}
