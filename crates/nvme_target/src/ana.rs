//! The ANA states of a listener: one for each group of namespaces (Base specification 2.0, section 8.1).
//!
//! The listener that an admin queue came in on is the path of its controller. The states belong to the configuration:
//! every reactor has taken a change up when the call that makes it goes on, and a command looks at its connection's
//! handle of them, without a lock or an atomic.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use nvme::spec::ana::{AnaDescriptor, AnaHeader, AnaState};

/// The states that a path can have here: ANACAP. The others have no call that sets them.
pub(super) const CAPABILITIES: u8 =
    AnaState::Optimized.capability() | AnaState::NonOptimized.capability() | AnaState::Inaccessible.capability();

/// ANATT: seconds that a change of state takes at most. A path never says that it changes.
pub(super) const TRANSITION_SECONDS: u8 = 10;

/// The ANA states of the groups 1, 2, ... on one listener, and the changes of their log page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnaStates {
    /// The number of changes since the subsystem listens there.
    changes: u64,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    /// The state that was set.
    state: AnaState,
    /// True if the group is inaccessible, whatever was set.
    barred: bool,
    /// The number of changes after the last one of this group.
    changed: u64,
}

impl Group {
    fn now(self) -> AnaState {
        if self.barred { AnaState::Inaccessible } else { self.state }
    }
}

impl AnaStates {
    /// The groups from 1 up to `groups`, all in that state.
    pub fn new(groups: u32, state: AnaState) -> AnaStates {
        AnaStates { changes: 0, groups: vec![Group { state, barred: false, changed: 0 }; groups as usize] }
    }

    /// The number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The states of all groups, from group 1 on.
    pub fn states(&self) -> impl Iterator<Item = AnaState> {
        self.groups.iter().map(|group| group.now())
    }

    /// The states that were set for all groups, from group 1 on.
    pub fn wanted(&self) -> impl Iterator<Item = AnaState> {
        self.groups.iter().map(|group| group.state)
    }

    /// The state of a group; inaccessible for a group that is not there.
    #[inline]
    pub fn state(&self, group: u32) -> AnaState {
        self.group(group).map_or(AnaState::Inaccessible, |group| group.now())
    }

    /// True if these groups, and no others, are barred.
    pub fn bars(&self, barred: &BTreeSet<u32>) -> bool {
        (1..).zip(&self.groups).all(|(number, group)| group.barred == barred.contains(&number))
    }

    /// Bars these groups, and no others, as one change.
    pub fn bar(&mut self, barred: &BTreeSet<u32>) {
        let changes = self.changes + 1;
        for (number, group) in (1..).zip(&mut self.groups) {
            let before = group.now();
            group.barred = barred.contains(&number);
            if group.now() != before {
                (group.changed, self.changes) = (changes, changes);
            }
        }
    }

    /// Sets the state of groups, as one change. Returns the groups that had another one.
    pub fn set(&mut self, groups: RangeInclusive<u32>, state: AnaState) -> BTreeSet<u32> {
        let changes = self.changes + 1;
        let mut changed = BTreeSet::new();
        for number in groups {
            let Some(group) = self.groups.get_mut((number as usize).wrapping_sub(1)) else { continue };
            let before = group.now();
            group.state = state;
            if group.now() != before {
                (group.changed, self.changes) = (changes, changes);
                changed.insert(number);
            }
        }
        changed
    }

    /// Notes that a group has other namespaces than before.
    pub fn regroup(&mut self, group: u32) {
        if let Some(group) = self.groups.get_mut((group as usize).wrapping_sub(1)) {
            self.changes += 1;
            group.changed = self.changes;
        }
    }

    #[inline]
    fn group(&self, group: u32) -> Option<&Group> {
        self.groups.get((group as usize).wrapping_sub(1))
    }

    /// Log page 0Ch: the groups that these namespaces, given by number and group, belong to. The counts begin at 0
    /// after the first `before` changes.
    pub fn page(&self, namespaces: impl Iterator<Item = (u32, u32)>, groups_only: bool, before: u64) -> Vec<u8> {
        let count = |changes: u64| changes.saturating_sub(before);
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (nsid, group) in namespaces {
            groups.entry(group).or_default().push(nsid);
        }
        let header = AnaHeader { change_count: count(self.changes), groups: groups.len() as u16 };
        let mut page = header.write().to_vec();
        for (group, mut namespaces) in groups {
            if groups_only {
                namespaces.clear();
            }
            let changed = self.group(group).map_or(0, |group| group.changed);
            let descriptor = AnaDescriptor {
                group,
                namespaces: namespaces.len() as u32,
                change_count: count(changed),
                state: self.state(group).code(),
            };
            page.extend_from_slice(&descriptor.write());
            namespaces.iter().for_each(|nsid| page.extend_from_slice(&nsid.to_le_bytes()));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(page: &[u8], at: usize) -> AnaDescriptor {
        AnaDescriptor::read(page[at..].first_chunk().expect("a descriptor"))
    }

    fn header(page: &[u8]) -> AnaHeader {
        AnaHeader::read(page.first_chunk().expect("a header"))
    }

    #[test]
    fn a_state_that_is_set_is_there_and_only_a_change_counts() {
        let mut states = AnaStates::new(3, AnaState::Optimized);
        assert_eq!(states.set(2..=2, AnaState::Inaccessible), [2].into());
        assert_eq!(states.set(2..=2, AnaState::Inaccessible), [].into());
        assert_eq!(states.changes(), 1);
        let all: Vec<AnaState> = states.states().collect();
        assert_eq!(all, [AnaState::Optimized, AnaState::Inaccessible, AnaState::Optimized]);
        // Groups that are not there have no state to change.
        for group in [0, 4, u32::MAX] {
            assert_eq!(states.state(group), AnaState::Inaccessible);
            states.set(group..=group, AnaState::Optimized);
            states.regroup(group);
        }
        assert_eq!(states.changes(), 1);
        // All groups at once are one change.
        assert_eq!(states.set(1..=3, AnaState::Inaccessible), [1, 3].into());
        assert_eq!((states.changes(), states.state(3)), (2, AnaState::Inaccessible));
    }

    #[test]
    fn the_page_has_the_groups_of_the_namespaces_with_their_counts() {
        let mut states = AnaStates::new(4, AnaState::Optimized);
        states.set(3..=3, AnaState::NonOptimized);
        states.regroup(1);
        let namespaces = || [(1, 1), (2, 3), (7, 1)].into_iter();
        let page = states.page(namespaces(), false, 0);
        assert_eq!(page.len(), 16 + 32 + 8 + 32 + 4);
        assert_eq!(header(&page), AnaHeader { change_count: 2, groups: 2 });
        assert_eq!(descriptor(&page, 16), AnaDescriptor { group: 1, namespaces: 2, change_count: 2, state: 1 });
        assert_eq!(page[48..56], [1, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(descriptor(&page, 56), AnaDescriptor { group: 3, namespaces: 1, change_count: 1, state: 2 });
        assert_eq!(page[88..], [2, 0, 0, 0]);

        let page = states.page(namespaces(), true, 1);
        assert_eq!(page.len(), 16 + 2 * 32);
        assert_eq!(header(&page), AnaHeader { change_count: 1, groups: 2 });
        assert_eq!(descriptor(&page, 16), AnaDescriptor { group: 1, namespaces: 0, change_count: 1, state: 1 });
        assert_eq!(descriptor(&page, 48).change_count, 0, "it changed before");
        let empty = AnaHeader { change_count: 2, groups: 0 };
        assert_eq!(states.page(std::iter::empty(), false, 0), empty.write());
    }
}
