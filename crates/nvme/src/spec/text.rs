//! ASCII text of fixed length, padded with spaces (Base specification 2.0, section 1.4.2).

use std::fmt;

use crate::layout::Field;

/// Text of at most `N` bytes: serial numbers, model names, addresses. The default is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// The text, cut at `N` bytes; each byte that is not printable ASCII becomes `?`.
    pub fn new(text: &str) -> Self {
        let mut bytes = [b' '; N];
        for (to, from) in bytes.iter_mut().zip(text.bytes()) {
            *to = if (0x20..0x7f).contains(&from) { from } else { b'?' };
        }
        Text(bytes)
    }

    /// The text without its padding, which is spaces, or NULs from peers that know no better; None if it is not ASCII.
    pub fn as_str(&self) -> Option<&str> {
        let end = self.0.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |last| last + 1);
        std::str::from_utf8(&self.0[..end]).ok().filter(|text| text.is_ascii())
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Text([b' '; N])
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.as_str() {
            Some(text) => f.pad(text),
            None => f.pad(&String::from_utf8_lossy(&self.0)),
        }
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl<const N: usize> Field for Text<N> {
    const BYTES: usize = N;
    fn get(bytes: &[u8]) -> Self {
        let mut own = [0; N];
        own.copy_from_slice(&bytes[..N]);
        Text(own)
    }
    fn put(&self, bytes: &mut [u8]) {
        bytes[..N].copy_from_slice(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_cut_and_read_back_without_its_padding() {
        let text = Text::<8>::new("null");
        let mut bytes = [0; 8];
        text.put(&mut bytes);
        assert_eq!(&bytes, b"null    ");
        assert_eq!(text.as_str(), Some("null"));
        assert_eq!(Text::<4>::new("longer").to_string(), "long");
        assert_eq!(Text::<4>::get(b"4420").to_string(), "4420");
        assert_eq!(Text::<8>::get(b"4420\0\0\0\0").to_string(), "4420");
        assert_eq!(Text::<2>::get(&[0xff, b'a']).as_str(), None);
    }
}
