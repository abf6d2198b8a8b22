//! The messages that fio puts among the data: the first and the last one of a stream of datagrams, and the number at
//! the end of each datagram.

/// The first datagram: fio writes it big-endian.
pub(super) const OPENING: [u8; 8] = [0x6c, 0x69, 0x6e, 0x6b, 0, 0, 0, 0x98];

/// The last message: fio writes it little-endian.
pub(super) const CLOSING: [u8; 8] = [0x6b, 0x6e, 0x69, 0x6c, 0x89, 0, 0, 0];

/// The first of three little-endian words at the end of a numbered datagram; its number and its length follow.
const MAGIC: u64 = 0x6573_7571_6e55_6563;
const TRAILER: usize = 24;

/// The last bytes of a stream, as far as ops have delivered it: the closing message may have begun in them.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: [u8; CLOSING.len() - 1],
    len: usize,
}

impl Tail {
    /// Where the closing message ends with `received`: the bytes of data before the message in `received`, and the
    /// bytes of the message that earlier ops delivered as data.
    pub fn closing(&self, received: &[u8]) -> Option<(usize, usize)> {
        let here = received.len().min(CLOSING.len());
        let (earlier, rest) = CLOSING.split_at(CLOSING.len() - here);
        let closes = received.ends_with(rest) && self.bytes[..self.len].ends_with(earlier);
        closes.then_some((received.len() - here, earlier.len()))
    }

    /// Takes note of bytes that an op has delivered.
    pub fn push(&mut self, delivered: &[u8]) {
        let room = self.bytes.len();
        let last = &delivered[delivered.len().saturating_sub(room)..];
        let kept = self.len.min(room - last.len());
        self.bytes.copy_within(self.len - kept..self.len, 0);
        self.len = kept + last.len();
        self.bytes[kept..self.len].copy_from_slice(last);
    }
}

/// The numbers of datagrams, sent or received.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// The number of the next datagram to send.
    next: u64,
    /// The number of the next datagram that should come.
    expected: u64,
    /// Datagrams that never came.
    pub lost: u64,
    /// True if the sender's blocks differ: numbers cannot be found.
    is_off: bool,
}

impl Sequence {
    /// Puts the next number at the end of a datagram.
    pub fn write(&mut self, datagram: &mut [u8]) {
        let Some(start) = datagram.len().checked_sub(TRAILER) else { return };
        let words = [MAGIC, self.next, datagram.len() as u64];
        for (place, word) in datagram[start..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.next += 1;
    }

    /// The datagram was not sent: the next one has its number.
    pub fn take_back(&mut self) {
        self.next = self.next.saturating_sub(1);
    }

    /// Looks for the number of a datagram that has come, and counts those that are missing before it.
    pub fn look(&mut self, datagram: &[u8]) {
        let Some(start) = datagram.len().checked_sub(TRAILER).filter(|_| !self.is_off) else { return };
        let mut words = datagram[start..].chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let (magic, number, len) = (words.next(), words.next().unwrap_or(0), words.next());
        if magic != Some(MAGIC) {
            return;
        }
        if len != Some(datagram.len() as u64) {
            self.is_off = true;
            return;
        }
        // A datagram that was overtaken is not lost: it was counted as such, and comes now.
        if number >= self.expected {
            self.lost += number - self.expected;
            self.expected = number + 1;
        } else {
            self.lost = self.lost.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_and_late_datagrams_are_not_lost() {
        let mut sender = Sequence::default();
        let datagrams: Vec<Vec<u8>> = (0..6)
            .map(|_| {
                let mut datagram = vec![7; 100];
                sender.write(&mut datagram);
                datagram
            })
            .collect();
        let mut receiver = Sequence::default();
        for number in [0, 1, 3, 2, 5] {
            receiver.look(&datagrams[number]);
        }
        assert_eq!(receiver.lost, 1, "number 4");
        receiver.look(&[1; 10]);
        receiver.look(&[1; 100]);
        assert_eq!(receiver.lost, 1, "datagrams of others have no number");
    }

    #[test]
    fn the_closing_message_is_not_data() {
        let with = |data: usize| [vec![1; data], CLOSING.to_vec()].concat();
        let tail = Tail::default();
        assert_eq!(tail.closing(&with(0)), Some((0, 0)));
        assert_eq!(tail.closing(&with(100)), Some((100, 0)));
        assert_eq!(tail.closing(&[1; 100]), None);
        assert_eq!(tail.closing(&CLOSING[1..]), None);
        // Blocks of any size cut the message anywhere.
        for (data, block) in [(100, 104), (100, 103), (97, 97), (21, 7), (20, 5), (40, 3), (0, 1)] {
            let stream = with(data);
            let (mut tail, mut delivered) = (Tail::default(), 0);
            for (number, received) in stream.chunks(block).enumerate() {
                match tail.closing(received) {
                    None => {
                        tail.push(received);
                        delivered += received.len();
                    }
                    Some((here, earlier)) => {
                        assert_eq!(number, (stream.len() - 1) / block, "the last block");
                        assert_eq!(delivered + here - earlier, data, "{data} bytes in blocks of {block}");
                    }
                }
            }
        }
    }
}
