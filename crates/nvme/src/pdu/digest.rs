//! Digests: CRC-32C (RFC 3720, appendix B.4), sent as little-endian 32-bit numbers.

/// Bytes of a header digest or data digest (CRC-32C).
pub const BYTES: usize = 4;

/// The digest of `bytes`.
#[inline]
pub fn of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Extends `digest`, the digest of some data, to these data followed by `bytes`. The digest of no data is 0.
#[inline]
pub fn extend(digest: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(digest, bytes)
}

/// Extends `digest`, the digest of some data, to these data followed by `len` zeros.
pub fn extend_zeros(digest: u32, len: usize) -> u32 {
    const ZEROS: [u8; 4096] = [0; 4096];
    (0..len).step_by(ZEROS.len()).fold(digest, |digest, at| extend(digest, &ZEROS[..(len - at).min(ZEROS.len())]))
}
