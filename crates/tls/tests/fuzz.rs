//! The fuzz target, bounded: any bytes as a ClientHello, and as the parts of one.

#[path = "../../../fuzz/targets/tls.rs"]
mod targets;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        targets::client_hello(&data);
    }
}
