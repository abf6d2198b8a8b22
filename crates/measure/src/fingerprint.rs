//! A short number for a text.

/// The FNV-1a hash of some bytes, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv). It tells texts apart that differ by
/// accident, not those that somebody made to be alike.
pub fn fingerprint(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    /// Test vectors of the authors.
    #[test]
    fn hashes_are_those_of_fnv_1a() {
        let hashes = ["", "a", "foobar"].map(|text| super::fingerprint(text.bytes()));
        assert_eq!(hashes, [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
    }
}
