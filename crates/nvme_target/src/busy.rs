//! The channels that have work. A turn of the reactor visits these, however many others are idle.

/// A set of channels, by index, in a list.
#[derive(Default)]
pub(super) struct Busy {
    list: Vec<usize>,
    is_listed: Vec<bool>,
}

impl Busy {
    /// Adds a channel.
    #[inline]
    pub fn add(&mut self, channel: usize) {
        if channel >= self.is_listed.len() {
            self.is_listed.resize(channel + 1, false);
        }
        if !std::mem::replace(&mut self.is_listed[channel], true) {
            self.list.push(channel);
        }
    }

    /// Removes a channel that is gone: its index may come back as another channel's.
    pub fn remove(&mut self, channel: usize) {
        self.visit(|listed| listed != channel);
    }

    /// Visits each channel once, and keeps those that `stays` returns true for.
    #[inline]
    pub fn visit(&mut self, mut stays: impl FnMut(usize) -> bool) {
        let is_listed = &mut self.is_listed;
        self.list.retain(|&channel| {
            is_listed[channel] = stays(channel);
            is_listed[channel]
        });
    }

    /// The channel at that place of the list. Channels that are added go to its end.
    pub fn at(&self, place: usize) -> Option<usize> {
        self.list.get(place).copied()
    }

    /// All channels of the set.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.list.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_visits_the_channels_with_work_and_no_other() {
        let mut work = vec![0; 500];
        let mut busy = Busy::default();
        for (channel, ops) in [(7, 2), (499, 1), (7, 2)] {
            work[channel] = ops;
            busy.add(channel);
        }
        let mut turn = |busy: &mut Busy| {
            let mut visited = Vec::new();
            busy.visit(|channel| {
                visited.push(channel);
                work[channel] -= 1;
                work[channel] > 0
            });
            visited
        };
        assert_eq!(turn(&mut busy), [7, 499], "two of 500, each once");
        assert_eq!(turn(&mut busy), [7]);
        assert_eq!(turn(&mut busy), [] as [usize; 0]);
    }

    #[test]
    fn a_channel_comes_back_after_it_left_or_was_removed() {
        let mut busy = Busy::default();
        busy.add(3);
        busy.add(5);
        busy.visit(|channel| channel == 5);
        busy.add(3);
        assert_eq!((busy.iter().collect::<Vec<_>>(), busy.at(1), busy.at(2)), (vec![5, 3], Some(3), None));
        busy.remove(5);
        busy.remove(9);
        busy.add(5);
        assert_eq!(busy.iter().collect::<Vec<_>>(), [3, 5]);
    }
}
