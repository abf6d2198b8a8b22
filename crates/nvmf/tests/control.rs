//! The fuzz targets of the control plane and of authentication, bounded.

#[path = "../../../fuzz/targets/control.rs"]
mod targets;

use proptest::prelude::*;

proptest! {
    #[test]
    fn any_text_splits_the_same_way_however_it_arrives(text in r#"[{}\[\]",:\\a1 \x00]{0,60}"#) {
        targets::rpc_stream(text.as_bytes());
    }

    #[test]
    fn any_bytes_on_the_socket_do_no_harm(bytes: Vec<u8>) {
        targets::rpc_stream(&bytes);
    }

    #[test]
    fn any_parameters_are_taken_or_refused(
        method in prop::sample::select(vec!["bdev_null_create", "nvmf_create_transport", "nvmf_subsystem_add_ns", "none"]),
        name in prop::sample::select(vec!["name", "num_blocks", "trtype", "namespace", "nqn", "x"]),
        value in r#"([0-9]{1,21}|-1|1e9|null|true|"[a-z]{0,3}"|\{\}|\[\]|\{"nsid":1\})"#,
    ) {
        let request = format!(r#"{{"method":"{method}","params":{{"{name}":{value}}},"id":1}}"#);
        targets::rpc_stream(request.as_bytes());
    }

    #[test]
    fn any_configuration_is_read_or_refused(text in r#"([/*"\\\n ]|[{}\[\]:,]|"subsystems"|"config"|"method"|.){0,40}"#) {
        targets::rpc_configuration(text.as_bytes());
    }

    #[test]
    fn nobody_gets_in_without_a_key(messages in prop::collection::vec((0u8..2, 0u8..6, prop::collection::vec(any::<u8>(), 0..120)), 0..4)) {
        let mut bytes = Vec::new();
        for (kind, id, rest) in messages {
            bytes.push(rest.len() as u8 + 2);
            bytes.extend([kind, id]);
            bytes.extend(rest);
        }
        targets::authentication(&bytes);
    }
}
