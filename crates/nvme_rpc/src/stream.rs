//! Splits a stream into JSON values: requests follow each other on a socket without delimiters.
//!
//! A scan of brackets and strings finds the end of an object or array; whether what lies between is JSON is for the
//! parser to say. So text that is wrong but balanced costs one answer, and the stream goes on after it.

/// Bytes of an answer at most: the configuration of thousands of namespaces fits.
pub const MAX_ANSWER_BYTES: usize = 32 << 20;
/// Bytes of a request or a batch at most: 64 clients cannot make the target hold more than some of these.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The next piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The text of an object or array, from bracket to bracket.
    Value(Vec<u8>),
    /// Something that begins neither an object nor an array, or is too long: nothing after it can be trusted.
    Lost(&'static str),
}

/// Cuts a stream of bytes into values. Bytes go in as they come, in pieces of any size.
#[derive(Debug)]
pub struct Splitter {
    max_bytes: usize,
    /// Bytes from the start of the present value.
    buffer: Vec<u8>,
    /// The number of these bytes that are scanned.
    scanned: usize,
    depth: usize,
    in_string: bool,
    /// The previous byte of a string was a backslash.
    escaped: bool,
    lost: bool,
}

impl Splitter {
    /// A splitter that takes values of this many bytes at most.
    pub fn new(max_bytes: usize) -> Splitter {
        let (buffer, scanned, depth) = (Vec::new(), 0, 0);
        Splitter { max_bytes, buffer, scanned, depth, in_string: false, escaped: false, lost: false }
    }

    /// Adds bytes that were read. After the loss of the stream, it keeps no bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.lost {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next whole value; None until more bytes are pushed, and for good after [`Piece::Lost`].
    pub fn take(&mut self) -> Option<Piece> {
        if self.lost {
            return None;
        }
        if self.depth == 0 {
            // A NUL ends each request of some clients written in C.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
            let skip = self.buffer.iter().take_while(|byte| blank(byte)).count();
            self.buffer.drain(..skip);
            match self.buffer.first()? {
                b'{' | b'[' => {}
                _ => return Some(self.lose("expected an object or an array")),
            }
        }
        while let Some(&byte) = self.buffer.get(self.scanned) {
            self.scanned += 1;
            if self.in_string {
                let escaped = std::mem::replace(&mut self.escaped, false);
                match byte {
                    b'\\' if !escaped => self.escaped = true,
                    b'"' if !escaped => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 && self.scanned <= self.max_bytes {
                        let rest = self.buffer.split_off(self.scanned);
                        self.scanned = 0;
                        return Some(Piece::Value(std::mem::replace(&mut self.buffer, rest)));
                    }
                }
                _ => {}
            }
            if self.scanned > self.max_bytes {
                break;
            }
        }
        (self.buffer.len() > self.max_bytes).then(|| self.lose("the request is too long"))
    }

    /// True while a value has begun and not ended.
    pub fn in_the_middle(&self) -> bool {
        self.depth > 0
    }

    fn lose(&mut self, why: &'static str) -> Piece {
        *self = Splitter { lost: true, ..Splitter::new(self.max_bytes) };
        Piece::Lost(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<Piece> {
        let mut splitter = Splitter::new(MAX_ANSWER_BYTES);
        splitter.push(text.as_bytes());
        std::iter::from_fn(|| splitter.take()).collect()
    }

    fn value(text: &str) -> Piece {
        Piece::Value(text.into())
    }

    #[test]
    fn values_follow_each_other_without_delimiters() {
        assert_eq!(split(r#"{"a":1}{"b":[2,{}]}[{}]"#), [r#"{"a":1}"#, r#"{"b":[2,{}]}"#, "[{}]"].map(value));
        assert_eq!(split("\n {\n  \"a\": 1\n}\0 \n{}"), ["{\n  \"a\": 1\n}", "{}"].map(value));
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(split(r#"{"}":"\"]\\"}{}"#), [r#"{"}":"\"]\\"}"#, "{}"].map(value));
    }

    #[test]
    fn wrong_but_balanced_text_does_not_end_the_stream() {
        assert_eq!(split("{oops}{}"), ["{oops}", "{}"].map(value));
        assert_eq!(split("{oops}hello{}"), [value("{oops}"), Piece::Lost("expected an object or an array")]);
    }

    #[test]
    fn a_value_without_end_is_not_kept_for_ever() {
        let mut splitter = Splitter::new(MAX_ANSWER_BYTES);
        splitter.push(b"{\"");
        let block = vec![b'x'; 1 << 20];
        let lost = (0..40).find_map(|_| {
            splitter.push(&block);
            splitter.take()
        });
        assert_eq!(lost, Some(Piece::Lost("the request is too long")));
        assert_eq!(splitter.buffer.capacity(), 0);
    }

    #[test]
    fn a_value_that_is_too_long_is_lost_also_when_it_came_in_one_piece() {
        for (len, outcome) in
            [(16, value(&format!("[{}]", "1".repeat(14)))), (17, Piece::Lost("the request is too long"))]
        {
            for piece in [1, 100] {
                let mut splitter = Splitter::new(16);
                let text = format!("[{}]{{}}", "1".repeat(len - 2));
                let taken = text.as_bytes().chunks(piece).find_map(|bytes| {
                    splitter.push(bytes);
                    splitter.take()
                });
                assert_eq!(taken.as_ref(), Some(&outcome), "{len} bytes in pieces of {piece}");
            }
        }
    }
}
