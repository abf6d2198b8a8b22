//! The data that answer an admin or Fabrics command.

use std::sync::Arc;

/// Bytes for the host: those that exist, then zeros up to the length of the answer. Zeros are sent from one page of
/// memory, however many they are: most structures consist of them.
pub(super) struct Answer {
    bytes: Bytes,
    /// Bytes that are not zeros at the end: those that are kept until they are sent.
    kept: usize,
    len: usize,
}

enum Bytes {
    Own(Vec<u8>),
    /// A part of a page that other connections send, too, from that offset.
    Shared(Arc<[u8]>, usize),
}

impl Answer {
    /// The first `len` bytes of `bytes`, with zeros where there are fewer.
    pub fn new(bytes: Vec<u8>, len: usize) -> Answer {
        let existing = &bytes[..bytes.len().min(len)];
        let kept = existing.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Answer { bytes: Bytes::Own(bytes), kept, len }
    }

    /// `len` bytes of a shared page from `offset` on, with zeros beyond its end.
    pub fn shared(page: Arc<[u8]>, offset: usize, len: usize) -> Answer {
        let kept = page.len().saturating_sub(offset).min(len);
        Answer { bytes: Bytes::Shared(page, offset), kept, len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes before the zeros.
    pub fn kept(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => &bytes[..self.kept],
            Bytes::Shared(page, offset) => &page[*offset..][..self.kept],
        }
    }

    /// The page that the bytes lie on, and the offset, if other connections send the page, too.
    pub fn page(&self) -> Option<(&Arc<[u8]>, usize)> {
        match &self.bytes {
            Bytes::Shared(page, offset) => Some((page, *offset)),
            Bytes::Own(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_what_is_not_zero() {
        let mut page = vec![0; 4096];
        (page[0], page[99]) = (7, 1);
        for len in [0, 1, 99, 100, 4096, 9000] {
            let answer = Answer::new(page.clone(), len);
            let mut whole = page.clone();
            whole.resize(len, 0);
            let (kept, zeros) = whole.split_at(answer.kept().len());
            assert_eq!((answer.len(), answer.kept()), (len, kept), "{len}");
            assert!(kept.len() <= 100 && zeros.iter().all(|&byte| byte == 0), "{len}");
        }
        let shared = Answer::shared(page.into(), 96, 8);
        assert_eq!(shared.kept(), [0, 0, 0, 1, 0, 0, 0, 0]);
    }
}
