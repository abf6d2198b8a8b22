//! The fuzz targets of logs and op streams, bounded, on inputs that come close to real ones.

#[path = "../../../fuzz/targets/streams.rs"]
mod targets;

use proptest::prelude::*;

fn option() -> impl Strategy<Value = String> {
    let kib = prop_oneof![Just(0u32), Just(1), Just(4), Just(16), Just(60), Just(64), Just(300), Just(1000)];
    prop_oneof![
        prop_oneof![
            Just("read"),
            Just("write"),
            Just("rw"),
            Just("randread"),
            Just("randwrite"),
            Just("randrw"),
            Just("trim"),
            Just("randtrim"),
            Just("trimwrite"),
            Just("randtrimwrite"),
            Just("read:8k"),
            Just("read:-8k"),
            Just("randread:8"),
            Just("write:1000000000"),
        ]
        .prop_map(|rw| format!("rw={rw}")),
        prop_oneof![Just("4k"), Just("512"), Just("1"), Just("3000"), Just("64k"), Just("8k,4k"), Just("1m"),]
            .prop_map(|bs| format!("bs={bs}")),
        prop_oneof![Just("4k-64k"), Just("512-3000"), Just("1k-1k"), Just("4k-16k,1k-2k")]
            .prop_map(|range| format!("bsrange={range}")),
        prop_oneof![Just("4k/10:64k/50:300000/40"), Just("4k/1:1m/99"), Just("512/:1k/")]
            .prop_map(|split| format!("bssplit={split}")),
        prop_oneof![Just("512"), Just("4k"), Just("64k")].prop_map(|align| format!("blockalign={align}")),
        prop_oneof![
            Just("zipf:1.2"),
            Just("zipf:0.5:0.3"),
            Just("pareto:0.2"),
            Just("normal:10"),
            Just("normal:50:0.9"),
            Just("zoned:60/10:40/90"),
            Just("zoned_abs:50/8k:50/16k"),
            Just("random"),
        ]
        .prop_map(|distribution| format!("random_distribution={distribution}")),
        prop_oneof![Just("random"), Just("roundrobin:3"), Just("sequential"), Just("zipf:1.1"), Just("normal:20")]
            .prop_map(|service| format!("file_service_type={service}")),
        (kib.clone(), 0..3u32)
            .prop_map(|(kib, which)| format!("{}={kib}k", ["io_size", "zonerange", "offset"][which as usize])),
        (kib.clone(), kib)
            .prop_map(|(size, skip)| format!("zonemode=strided\nzonesize={size}k\nzonerange=64k\nzoneskip={skip}k")),
        prop_oneof![
            Just("norandommap"),
            Just("bs_unaligned"),
            Just("bs_is_seq_rand=1"),
            Just("percentage_random=30"),
            Just("rw_sequencer=identical"),
            Just("nrfiles=3"),
            Just("openfiles=1"),
            Just("time_based\nruntime=1"),
            Just("number_ios=17"),
            Just("fsync=3"),
            Just("fdatasync=2"),
            Just("sync_file_range=write:2"),
            Just("random_generator=lfsr"),
            Just("randrepeat=0"),
            Just("verify=crc32c"),
            Just("loops=3"),
        ]
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn streams_stay_inside_and_end(options in proptest::collection::vec(option(), 1..8)) {
        targets::workload(format!("[job]\nsize=300000\n{}\n", options.join("\n")).as_bytes());
    }

    #[test]
    fn logs_are_understood_or_refused(
        version in 2..4u8,
        lines in proptest::collection::vec("([0-9]{1,5} )?[ab] (add|open|close|read|write|wait|sync|datasync|trim)( [0-9]{1,20} [0-9]{1,11})?", 0..20),
    ) {
        targets::iolog(format!("fio version {version} iolog\n{}\n", lines.join("\n")).as_bytes());
    }
}
