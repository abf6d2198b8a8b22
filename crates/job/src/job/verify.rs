//! `verify`: the proof that blocks carry, and the way they are read back and checked.

use std::path::PathBuf;

/// `verify=`: how a block proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyKind {
    /// A header and a CRC-32C of the rest.
    Crc32c,
    /// CRC-64 (ECMA).
    Crc64,
    /// CRC-32 (ISO).
    Crc32,
    /// CRC-16.
    Crc16,
    /// CRC-7.
    Crc7,
    /// xxHash, 32 bits.
    Xxhash,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// SHA-3 of 224, 256, 384 or 512 bits.
    Sha3(u16),
    /// Only the header is checked (`verify=meta` of old: header with offset, seed, time).
    HeaderOnly,
    /// `verify_pattern` without `verify`: the pattern behind a header.
    PatternHeader,
    /// `verify=pattern`: nothing but the pattern.
    PatternOnly,
    /// `verify=null`: every block passes.
    Null,
}

/// `verify` and its companions: the way that blocks are stamped, read back and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Verify {
    /// `verify`: the proof that a block carries.
    pub kind: VerifyKind,
    /// `do_verify`: read back after writing.
    pub enabled: bool,
    /// `verify_fatal`: stop at the first mismatch.
    pub fatal: bool,
    /// `verify_dump`: write the differing blocks to files.
    pub dump: bool,
    /// `verify_pattern`: content of the blocks.
    pub pattern: VerifyPattern,
    /// `verify_backlog`: number of writes after which blocks are verified; 0: after all writes.
    pub backlog: u64,
    /// `verify_backlog_batch`: number of blocks to verify then; 0: as `backlog`.
    pub backlog_batch: u64,
    /// `verify_interval`: bytes covered by a header; 0: a whole block.
    pub interval: u64,
    /// `verify_pattern_interval`: bytes after which the pattern begins anew, `%o` being the offset of that place; 0: a
    /// whole block.
    pub pattern_interval: u64,
    /// `verify_offset`: place of the header in the interval.
    pub header_offset: u64,
    /// `verify_only`: write nothing, check the blocks that an earlier run wrote.
    pub only: bool,
    /// `verifysort`: read back in order of offset.
    pub sorted: bool,
    /// `verify_write_sequence`: check the write's sequence number too.
    pub write_sequence: bool,
    /// `verify_header_seed`: check the seed of the content in the header too.
    pub header_seed: bool,
    /// `experimental_verify`: regenerate the op stream instead of remembering it.
    pub regenerate: bool,
    /// `verify_state_save`: keep in a file which writes have ended.
    pub saves_state: bool,
    /// `verify_state_load`: check only the writes that such a file says have ended.
    pub loads_state: bool,
    /// `verify_policy`: the writes that the file counts.
    pub policy: VerifyPolicy,
    /// True if reads bring back what was written. The engine decides: with some, there is nothing to compare.
    pub compares: bool,
    /// `trim_percentage` and its companions: trims among the writes.
    pub trims: VerifyTrims,
    /// `--aux-path`: directory of the file; None: the working directory.
    pub state_directory: Option<PathBuf>,
}

/// The written blocks that a verifying job trims again, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyTrims {
    /// `trim_percentage`: of 100 blocks that were written, how many are trimmed; 0: none.
    pub percent: u32,
    /// `trim_backlog`: number of writes after which blocks are trimmed; 0: after all writes.
    pub backlog: u64,
    /// `trim_backlog_batch`: most blocks that are trimmed then; 0: as `backlog`.
    pub batch: u64,
    /// `trim_verify_zero`: trimmed blocks are read back, and must hold zeroes.
    pub must_be_zero: bool,
}

/// `verify_policy`: the writes that a verify state counts as ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyPolicy {
    /// Every write that has succeeded.
    #[default]
    Completed,
    /// Every write that has succeeded and was synced afterwards.
    Fsynced,
}

/// A pattern of `verify_pattern` or `buffer_pattern`, which may refer to the block's offset (`%o`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyPattern {
    /// The bytes, repeated over the block.
    pub bytes: Vec<u8>,
    /// Positions in `bytes` at which the block's offset stands as 8 bytes, little-endian (`%o`).
    pub offset_at: Vec<usize>,
}
