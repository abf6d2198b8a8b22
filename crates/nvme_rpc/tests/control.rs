//! The fuzz targets of the control plane and of authentication, bounded.

#[path = "../../../fuzz/targets/control.rs"]
mod targets;

use proptest::prelude::*;

const SAVED: &str = r#"{"plimsoll_state": 1, "begun_with": ["--file d"], "subsystems": [{"subsystem": "bdev", "config":
  [{"method": "bdev_aio_create", "params": {"name": "File0", "filename": "/d", "create_size": 4096}}]}]}"#;

const ANYTHING: &str = r#"(null|1|"x"|\[\]|\{\}|\[null\]|\[\{"subsystem":"bdev","config":(null|7|\[(1|\{"method":("a"|2)(,"params":(1|\{"create_size":1\}))?\})?\])\}\])"#;

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

    /// The file as a target saves it, with some bytes changed, or cut.
    #[test]
    fn any_saved_state_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end in any::<prop::sample::Index>(),
        is_cut: bool,
    ) {
        let mut text = SAVED.as_bytes().to_vec();
        for (at, byte) in changes {
            *at.get_mut(&mut text[..]) = byte;
        }
        text.truncate(if is_cut { end.index(text.len()) } else { text.len() });
        targets::saved_state(&text);
    }

    /// Anything in place of each of the file's members.
    #[test]
    fn any_members_of_a_saved_state_are_read_or_refused(
        form in "1|1|2|1\\.0|null|\\[\\]",
        begun_with in ANYTHING,
        subsystems in ANYTHING,
    ) {
        let members = format!(r#""plimsoll_state":{form},"begun_with":{begun_with},"subsystems":{subsystems}"#);
        targets::saved_state(format!("{{{members}}}").as_bytes());
        targets::saved_state(begun_with.as_bytes());
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
