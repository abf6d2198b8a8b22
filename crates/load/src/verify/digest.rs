//! The checksums that `verify=` names, as fio computes and stores them.
//!
//! Interface facts, found in blocks that fio 3.33 wrote: CRC-32 is the unreflected polynomial 04C11DB7 from 0 without a
//! final inversion; CRC-64 is Jones' as in Redis; CRC-16 is ARC; CRC-7 is MMC; CRC-32C comes without its final
//! inversion; xxHash is XXH32 with seed 1. For `sha256` and `sha512`, fio does not store the digest of these algorithms
//! (sha256 keeps one byte of each word, sha512 none of them). Plimsoll stores the digest, so those two are not
//! exchangeable.

use crc::{Algorithm, Crc, Table};
use job::job::VerifyKind;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};
use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512};

static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&crc::CRC_64_REDIS);
static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_FIO);
static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&crc::CRC_16_ARC);
static CRC7: Crc<u8, Table<16>> = Crc::<u8, Table<16>>::new(&crc::CRC_7_MMC);

const CRC_32_FIO: Algorithm<u32> = Algorithm {
    width: 32,
    poly: 0x04c1_1db7,
    init: 0,
    refin: false,
    refout: false,
    xorout: 0,
    check: 0x89a1_897f,
    residue: 0,
};

/// A checksum in the bytes that fio stores. Room for the longest field, SHA-512's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest {
    bytes: [u8; 128],
    len: usize,
}

impl Digest {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn of(stored: &[u8]) -> Digest {
        let mut bytes = [0; 128];
        bytes[..stored.len()].copy_from_slice(stored);
        Digest { bytes, len: stored.len() }
    }
}

/// Bytes that the checksum takes in a block, behind the header.
pub(super) fn field_bytes(kind: VerifyKind) -> usize {
    match kind {
        VerifyKind::Crc64 => 8,
        VerifyKind::Crc32c | VerifyKind::Crc32 | VerifyKind::Xxhash => 4,
        VerifyKind::Crc16 => 2,
        VerifyKind::Crc7 => 1,
        VerifyKind::Md5 => 16,
        VerifyKind::Sha1 => 20,
        VerifyKind::Sha256 => 64,
        VerifyKind::Sha512 => 128,
        VerifyKind::Sha3(bits) => usize::from(bits) / 8,
        VerifyKind::HeaderOnly | VerifyKind::PatternHeader | VerifyKind::PatternOnly | VerifyKind::Null => 0,
    }
}

/// The name that fio gives to the checksum.
pub(super) fn name(kind: VerifyKind) -> &'static str {
    match kind {
        VerifyKind::Crc64 => "crc64",
        VerifyKind::Crc32c => "crc32c",
        VerifyKind::Crc32 => "crc32",
        VerifyKind::Xxhash => "xxhash",
        VerifyKind::Crc16 => "crc16",
        VerifyKind::Crc7 => "crc7",
        VerifyKind::Md5 => "md5",
        VerifyKind::Sha1 => "sha1",
        VerifyKind::Sha256 => "sha256",
        VerifyKind::Sha512 => "sha512",
        VerifyKind::Sha3(224) => "sha3-224",
        VerifyKind::Sha3(256) => "sha3-256",
        VerifyKind::Sha3(384) => "sha3-384",
        VerifyKind::Sha3(_) => "sha3-512",
        VerifyKind::HeaderOnly => "header",
        VerifyKind::PatternHeader | VerifyKind::PatternOnly => "pattern",
        VerifyKind::Null => "null",
    }
}

/// The checksum of `data`; empty for kinds that have none.
pub(super) fn digest(kind: VerifyKind, data: &[u8]) -> Digest {
    match kind {
        VerifyKind::Crc32c => Digest::of(&(!crc32c::crc32c(data)).to_le_bytes()),
        VerifyKind::Crc64 => Digest::of(&CRC64.checksum(data).to_le_bytes()),
        VerifyKind::Crc32 => Digest::of(&CRC32.checksum(data).to_le_bytes()),
        VerifyKind::Crc16 => Digest::of(&CRC16.checksum(data).to_le_bytes()),
        VerifyKind::Crc7 => Digest::of(&[CRC7.checksum(data)]),
        VerifyKind::Xxhash => Digest::of(&xxhash_rust::xxh32::xxh32(data, 1).to_le_bytes()),
        VerifyKind::Md5 => Digest::of(&md5::Md5::digest(data)),
        // fio keeps the words of SHA-1 as the machine does.
        VerifyKind::Sha1 => {
            let mut stored: [u8; 20] = Sha1::digest(data).into();
            stored.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
            Digest::of(&stored)
        }
        VerifyKind::Sha256 => Digest::of(&Sha256::digest(data)),
        VerifyKind::Sha512 => Digest::of(&Sha512::digest(data)),
        VerifyKind::Sha3(224) => Digest::of(&Sha3_224::digest(data)),
        VerifyKind::Sha3(256) => Digest::of(&Sha3_256::digest(data)),
        VerifyKind::Sha3(384) => Digest::of(&Sha3_384::digest(data)),
        VerifyKind::Sha3(_) => Digest::of(&Sha3_512::digest(data)),
        VerifyKind::HeaderOnly | VerifyKind::PatternHeader | VerifyKind::PatternOnly | VerifyKind::Null => {
            Digest::of(&[])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(kind: VerifyKind) -> String {
        digest(kind, b"123456789").bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn check_values_of_the_catalogue() {
        // The published check values of "123456789", little-endian; crc32c inverted.
        assert_eq!(hex(VerifyKind::Crc32c), format!("{:08x}", (!0xe306_9283u32).swap_bytes()));
        assert_eq!(hex(VerifyKind::Crc64), format!("{:016x}", 0xe9c6_d914_c4b8_d9ca_u64.swap_bytes()));
        assert_eq!(hex(VerifyKind::Crc32), format!("{:08x}", 0x89a1_897f_u32.swap_bytes()));
        assert_eq!(hex(VerifyKind::Crc16), "3dbb");
        assert_eq!(hex(VerifyKind::Crc7), "75");
        assert_eq!(hex(VerifyKind::Md5), "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(hex(VerifyKind::Sha256), "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
    }
}
