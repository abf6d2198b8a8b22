//! The tree along which ranks speak: binomial, over the ranks that are left, rooted at the lowest of them.
//!
//! No rank has more than log2(n) neighbours, no message more than log2(n) steps.

/// The tree over `ranks`, which are ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    ranks: Vec<u32>,
}

impl Tree {
    /// The tree over these ranks, ascending.
    pub fn over(ranks: Vec<u32>) -> Tree {
        debug_assert!(ranks.is_sorted());
        Tree { ranks }
    }

    /// The root: the lowest rank.
    pub fn root(&self) -> u32 {
        self.ranks.first().copied().unwrap_or(0)
    }

    /// The ranks in the tree, ascending.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// The parent of `rank`; None for the root and for ranks that are not in the tree.
    pub fn parent(&self, rank: u32) -> Option<u32> {
        let place = self.ranks.binary_search(&rank).ok().filter(|&place| place > 0)?;
        Some(self.ranks[place & (place - 1)])
    }

    /// The ranks that hang on `rank`.
    pub fn children(&self, rank: u32) -> Vec<u32> {
        let Ok(place) = self.ranks.binary_search(&rank) else { return Vec::new() };
        let bits = if place == 0 { usize::BITS - 1 } else { place.trailing_zeros() };
        let places = (0..bits).map(|bit| place | 1 << bit).take_while(|&child| child < self.ranks.len());
        places.map(|child| self.ranks[child]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn everyone_but_the_root_hangs_on_one_parent_and_paths_are_short(
            ranks in proptest::collection::btree_set(0u32..5000, 1..300)
        ) {
            let tree = Tree::over(ranks.into_iter().collect());
            for &rank in tree.ranks() {
                let mut at = rank;
                let mut steps = 0;
                while let Some(parent) = tree.parent(at) {
                    prop_assert!(parent < at && tree.children(parent).contains(&at));
                    at = parent;
                    steps += 1;
                }
                prop_assert_eq!(at, tree.root());
                prop_assert!(steps <= tree.ranks().len().ilog2());
                prop_assert!(tree.children(rank).len() as u32 <= tree.ranks().len().ilog2() + 1);
                prop_assert!(tree.children(rank).iter().all(|&child| tree.parent(child) == Some(rank)));
            }
        }
    }

    #[test]
    fn a_rank_outside_has_neither_parent_nor_children() {
        let tree = Tree::over(vec![1, 4]);
        assert_eq!((tree.root(), tree.parent(4), tree.children(1)), (1, Some(1), vec![4]));
        assert_eq!((tree.parent(2), tree.children(2)), (None, vec![]));
    }
}
