//! The fuzz targets, bounded: any bytes, and bytes that look like what the readers are made for.

#[path = "../../../fuzz/targets/lanes.rs"]
mod targets;

use proptest::prelude::*;

const REAL: [&[u8]; 4] = [
    include_bytes!("golden/mountinfo-nfs-3.txt"),
    include_bytes!("golden/mountinfo-nfs-4.1.txt"),
    include_bytes!("golden/mountstats-nfs-3.txt"),
    include_bytes!("golden/mountstats-nfs-4.1.txt"),
];

/// Pieces that pools are made of, sound and unsound.
fn pools() -> impl Strategy<Value = String> {
    let pieces = vec![
        "[[pool]]\n",
        "name = \"a\"\n",
        "lanes = [\"/a\", \"/b\"]\n",
        "lanes = [{ path = \"/a\", weight = 2 }]\n",
        "a:/a,/b",
        " ",
        "a=",
        "/mnt/x",
        ",",
        "..",
        "policy = \"round-robin\"\n",
        "depth = 3\n",
        "window = \"4m\"\n",
        "split = 4096\n",
        "suspect-after = \"1s\"\n",
        "trust-inode = true\n",
        "strict-o-direct = true\n",
        "\u{e9}",
        "\0",
        "weight = 101\n",
        "window = -1\n",
        "\"",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        targets::mounts(&data);
        targets::program(&data);
        targets::pools(&data);
        targets::board(&data);
    }

    #[test]
    fn real_files_with_damage(
        which in 0..REAL.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut data = REAL[which].to_vec();
        for (at, byte) in damage {
            let at = at.index(data.len());
            data[at] = byte;
        }
        data.truncate(cut.index(data.len() + 1));
        targets::mounts(&data);
    }

    #[test]
    fn programs_with_damage(damage in prop::collection::vec((0usize..1200, any::<u8>()), 0..8)) {
        let mut data = std::fs::read("/bin/true").unwrap();
        for (at, byte) in damage {
            if let Some(place) = data.get_mut(at) {
                *place = byte;
            }
        }
        targets::program(&data);
    }

    #[test]
    fn any_pools(text in pools()) {
        targets::pools(text.as_bytes());
    }

    #[test]
    fn boards_of_any_words(words in prop::collection::vec(prop_oneof![0u64..5, any::<u64>()], 0..2500)) {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        targets::board(&data);
    }
}
