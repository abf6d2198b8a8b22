//! The fuzz target, bounded: any bytes, and the kernel's text with damage.

#[path = "../../../fuzz/targets/observe.rs"]
mod targets;

use proptest::prelude::*;

const REAL: [&str; 4] = [
    " 259 0 nvme0n1 10 1 80 5 20 2 160 7 3 9 12 3 0 24 1 6 4\n 8 0 sda 11 1 80 5 20 2 160 7 3 9 12\n",
    include_str!("../../lanes/tests/golden/mountstats-nfs-3.txt"),
    "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0 Read 192\n8:0 Write 3\n",
    "rchar: 323934931\nsyscr: 632687\nsyscw: 632675\nread_bytes: 4096\nwrite_bytes: 323932160\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        targets::counters(&data);
    }

    #[test]
    fn real_text_with_damage(
        which in 0..REAL.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        numbers in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..4),
    ) {
        let mut words: Vec<String> = REAL[which].split_inclusive(' ').map(String::from).collect();
        for (at, number) in numbers {
            let at = at.index(words.len());
            words[at] = format!("{number} ");
        }
        let mut data = words.concat().into_bytes();
        for (at, byte) in damage {
            let at = at.index(data.len());
            data[at] = byte;
        }
        targets::counters(&data);
    }
}
