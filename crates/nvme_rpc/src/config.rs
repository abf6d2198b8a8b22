//! SPDK's configuration file: calls by subsystem, carried out in order.
//!
//! ```json
//! {"subsystems": [{"subsystem": "bdev", "config": [{"method": "bdev_null_create", "params": {...}}, ...]}, ...]}
//! ```

use serde_json::{Value, json};

use super::ini;

/// Parts of the configuration, in the order in which they are to be loaded.
pub(super) const SUBSYSTEMS: [(&str, &[&str]); 3] = [("keyring", &[]), ("bdev", &[]), ("nvmf", &["bdev", "keyring"])];

/// One call of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The part of the configuration it stands in: `bdev`, `nvmf`, ...
    pub subsystem: String,
    /// The method that is called.
    pub method: String,
    /// The parameters of the call.
    pub params: Option<Value>,
}

impl Step {
    /// The call in the form of a configuration file.
    pub(super) fn object(&self) -> Value {
        match &self.params {
            Some(params) => json!({ "method": self.method, "params": params }),
            None => json!({ "method": self.method }),
        }
    }
}

/// The calls by subsystem: the array that [`parse`] finds under `subsystems`.
pub(super) fn grouped(steps: &[Step]) -> Value {
    let of = |name: &str| steps.iter().filter(|step| step.subsystem == name).map(Step::object).collect::<Vec<_>>();
    SUBSYSTEMS.iter().map(|(name, _)| json!({ "subsystem": name, "config": of(name) })).collect()
}

/// The calls as the array that [`parse`] finds under `subsystems`, in their order.
pub fn in_order(steps: &[Step]) -> Value {
    let parts = steps.chunk_by(|one, next| one.subsystem == next.subsystem);
    parts.map(|part| json!({ "subsystem": part[0].subsystem, "config": part.iter().map(Step::object).collect::<Value>() })).collect()
}

/// The calls of a configuration, in the order in which SPDK carries them out: as the file has them. As there, comments
/// of C and C++ are allowed, and `config` may be null.
///
/// # Errors
/// One line that says where the text is not a configuration.
pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    if ini::is_one(text) {
        return Err("it has SPDK's old form of sections: `plimsoll serve --convert FILE > NEW.json` converts it".into());
    }
    let root: Value =
        serde_json::from_str(&without_comments(text)).map_err(|error| format!("not valid JSON: {error}"))?;
    let subsystems = match root.get("subsystems") {
        Some(Value::Array(subsystems)) => subsystems,
        Some(_) => return Err("\"subsystems\" is not an array".into()),
        None => return Err("it has no \"subsystems\": is it a configuration of SPDK?".into()),
    };
    if let Some(unknown) = root.as_object().into_iter().flat_map(|root| root.keys()).find(|key| *key != "subsystems") {
        return Err(format!("\"{unknown}\" is not a part of a configuration (expected \"subsystems\")"));
    }
    let mut steps = Vec::new();
    for (number, entry) in subsystems.iter().enumerate() {
        let at = format!("subsystems[{number}]");
        let name = entry.get("subsystem").and_then(Value::as_str).ok_or(format!("{at} has no \"subsystem\""))?;
        let calls = match entry.get("config") {
            Some(Value::Array(calls)) => calls.as_slice(),
            None | Some(Value::Null) => &[],
            Some(_) => return Err(format!("{at} ({name}): \"config\" is not an array")),
        };
        // SPDK may save calls that belong together as an array of them.
        let flat = calls.iter().enumerate().flat_map(|(number, call)| {
            let batch = call.as_array().map_or(std::slice::from_ref(call), Vec::as_slice);
            batch.iter().map(move |call| (number, call))
        });
        for (number, call) in flat {
            let at = format!("{at}.config[{number}] ({name})");
            let method = call.get("method").and_then(Value::as_str).ok_or(format!("{at} has no \"method\""))?;
            let params = match call.get("params") {
                None | Some(Value::Null) => None,
                Some(params @ (Value::Object(_) | Value::Array(_))) => Some(params.clone()),
                Some(_) => return Err(format!("{at}, {method}: \"params\" is not an object")),
            };
            steps.push(Step { subsystem: name.into(), method: method.into(), params });
        }
    }
    Ok(steps)
}

/// The text with comments turned into blanks, so that lines and columns of errors stay right.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find(['"', '/']) {
        out.push_str(&rest[..found]);
        rest = &rest[found..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with('"') {
            let end = string_end(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        } else {
            1
        };
        let comment = end > 1;
        out.extend(rest[..end].chars().map(|c| if comment && c != '\n' { ' ' } else { c }));
        rest = &rest[end..];
    }
    out + rest
}

/// Bytes of the string that begins here, quotes included.
fn string_end(text: &str) -> usize {
    let mut escaped = true; // the opening quote ends nothing
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn calls_come_in_the_order_of_the_file() {
        let text = r#"{
            // one device
            "subsystems": [
                {"subsystem": "bdev", "config": [
                    {"method": "bdev_null_create", "params": {"name": "http://x /* no comment */"}}
                ]},
                {"subsystem": "vhost", "config": null},
                {"subsystem": "nvmf", "config": [[{"method": "nvmf_get_stats"}]]} /* the
                end */
            ]
        }"#;
        let steps = parse(text).expect("a configuration");
        let params = Some(json!({"name": "http://x /* no comment */"}));
        let step =
            |subsystem: &str, method: &str, params| Step { subsystem: subsystem.into(), method: method.into(), params };
        assert_eq!(steps, [step("bdev", "bdev_null_create", params), step("nvmf", "nvmf_get_stats", None)]);
    }

    #[test]
    fn what_is_no_configuration_is_told_where() {
        for (text, message) in [
            ("{", "not valid JSON: EOF while parsing an object at line 1 column 1"),
            ("[]", "it has no \"subsystems\": is it a configuration of SPDK?"),
            (r#"{"subsystems":{}}"#, "\"subsystems\" is not an array"),
            (
                r#"{"subsystems":[],"devices":[]}"#,
                "\"devices\" is not a part of a configuration (expected \"subsystems\")",
            ),
            (r#"{"subsystems":[{"config":[]}]}"#, "subsystems[0] has no \"subsystem\""),
            (
                r#"{"subsystems":[{"subsystem":"bdev","config":{}}]}"#,
                "subsystems[0] (bdev): \"config\" is not an array",
            ),
            (
                r#"{"subsystems":[{"subsystem":"bdev","config":[{"params":{}}]}]}"#,
                "subsystems[0].config[0] (bdev) has no \"method\"",
            ),
        ] {
            assert_eq!(parse(text).expect_err(text), message);
        }
    }

    proptest! {
        #[test]
        fn json_without_comments_is_left_as_it_is(text in r#"[\[\]{}:, \\"a1\n]{0,60}"#) {
            prop_assert_eq!(without_comments(&text), text);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in r#"([/*"\\\n ]|\{|\}|subsystems|.){0,60}"#) {
            let _ = parse(&text);
            prop_assert_eq!(without_comments(&text).lines().count(), text.lines().count());
        }
    }
}
