//! Text in atomic words: the first word is its length in bytes, or what fits of it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Stores text, cut at a character to what fits.
pub fn put(words: &[AtomicU64], text: &str) {
    let Some((length, words)) = words.split_first() else { return };
    let fits = fitting(text, words.len() * 8);
    length.store(fits.len() as u64, Relaxed);
    let mut bytes = fits.bytes();
    for word in words {
        let packed = std::array::from_fn(|_| bytes.next().unwrap_or(0));
        word.store(u64::from_ne_bytes(packed), Relaxed);
    }
}

/// The beginning of a text, at most `bytes` bytes, cut between two characters.
pub fn fitting(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// True if the words hold this text, or the part of it that fits.
pub fn holds(words: &[AtomicU64], text: &str) -> bool {
    let Some((length, words)) = words.split_first() else { return false };
    let fits = fitting(text, words.len() * 8);
    let mut bytes = fits.bytes();
    length.load(Relaxed) == fits.len() as u64
        && words.iter().all(|word| {
            let packed = std::array::from_fn(|_| bytes.next().unwrap_or(0));
            word.load(Relaxed) == u64::from_ne_bytes(packed)
        })
}

/// The text that words of a file hold. Bytes that are not UTF-8, and characters that would disturb a terminal, are
/// replaced.
pub fn text(words: &[u64]) -> String {
    let Some((&length, words)) = words.split_first() else { return String::new() };
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(words.len() * 8);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
    String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    fn read(words: &[AtomicU64]) -> String {
        text(&words.iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>())
    }

    #[test]
    fn text_comes_back() {
        for given in ["", "a", "12345678", "/mnt/v32", "twenty-four bytes exactl"] {
            let words = words(4);
            put(&words, given);
            assert_eq!(read(&words), given);
            assert!(holds(&words, given) && !holds(&words, "other"));
        }
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let words = words(2);
        put(&words, "1234567é");
        assert_eq!(read(&words), "1234567");
        assert!(holds(&words, "1234567é"));
    }

    #[test]
    fn what_is_no_text_disturbs_nobody() {
        assert_eq!(text(&[u64::MAX, u64::from_ne_bytes(*b"a\x1b[2J\xff\0\n")]), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(text(&[]), "");
    }
}
