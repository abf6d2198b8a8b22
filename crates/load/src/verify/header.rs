//! The header of a verified block, laid out as fio 3.33 lays it out: 40 bytes, little-endian, the checksum behind it.

use job::job::VerifyKind;

/// Bytes of the header without the checksum.
pub(super) const BYTES: usize = 40;
/// Offset of the header's CRC-32C, which covers the bytes before it.
const CRC_AT: usize = 36;
/// The first two bytes of every header.
pub(super) const MAGIC: u16 = 0xacca;

/// The header of a block: facts that the block states of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub magic: u16,
    /// The number that fio gives to the checksum.
    pub kind: u16,
    /// Bytes that the header speaks for, itself included.
    pub len: u32,
    /// Seed from which the content of the block is computed.
    pub seed: u64,
    /// Offset in the file at which the block belongs.
    pub offset: u64,
    pub seconds: u32,
    pub nanoseconds: u32,
    pub thread: u16,
    /// Number of the write, modulo 2^16.
    pub sequence: u16,
    pub crc: u32,
}

impl Header {
    /// The header that these bytes hold, without any check.
    pub fn read(bytes: &[u8; BYTES]) -> Header {
        let (u16_at, u32_at, u64_at) = (
            |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]),
            |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i])),
            |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])),
        );
        Header {
            magic: u16_at(0),
            kind: u16_at(2),
            len: u32_at(4),
            seed: u64_at(8),
            offset: u64_at(16),
            seconds: u32_at(24),
            nanoseconds: u32_at(28),
            thread: u16_at(32),
            sequence: u16_at(34),
            crc: u32_at(CRC_AT),
        }
    }

    /// Bytes of the header, with the CRC that belongs to them.
    pub fn write(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&self.magic.to_le_bytes());
        put(&self.kind.to_le_bytes());
        put(&self.len.to_le_bytes());
        put(&self.seed.to_le_bytes());
        put(&self.offset.to_le_bytes());
        put(&self.seconds.to_le_bytes());
        put(&self.nanoseconds.to_le_bytes());
        put(&self.thread.to_le_bytes());
        put(&self.sequence.to_le_bytes());
        let crc = crc_of(&bytes);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// The CRC that belongs into a header.
pub(super) fn crc_of(bytes: &[u8; BYTES]) -> u32 {
    !crc32c::crc32c(&bytes[..CRC_AT])
}

/// The number that fio gives to a checksum.
pub(super) fn number(kind: VerifyKind) -> u16 {
    match kind {
        VerifyKind::HeaderOnly => 1,
        VerifyKind::Md5 => 2,
        VerifyKind::Crc64 => 3,
        VerifyKind::Crc32 => 4,
        VerifyKind::Crc32c => 5,
        VerifyKind::Crc16 => 7,
        VerifyKind::Crc7 => 8,
        VerifyKind::Sha256 => 9,
        VerifyKind::Sha512 => 10,
        VerifyKind::Sha3(224) => 11,
        VerifyKind::Sha3(256) => 12,
        VerifyKind::Sha3(384) => 13,
        VerifyKind::Sha3(_) => 14,
        VerifyKind::Xxhash => 15,
        VerifyKind::Sha1 => 16,
        VerifyKind::PatternHeader => 17,
        VerifyKind::PatternOnly => 18,
        VerifyKind::Null => 19,
    }
}
