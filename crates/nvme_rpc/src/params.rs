//! Parameters of a method: a table lists them, and a call is checked against the table before the method runs.

use serde_json::{Map, Value, json};

use super::jsonrpc::RpcError;

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug)]
pub enum ParamKind {
    /// A boolean: `true` or `false`.
    Bool,
    /// A whole number from 0 up to this one.
    Number(u64),
    /// A whole number that may be negative.
    Integer,
    /// A JSON string.
    Text,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// An array of some of these texts, at least one.
    ListOf(&'static [&'static str]),
    /// An array of texts, at least one.
    Texts,
    /// An object with these members.
    Object(&'static [Param]),
    /// Anything: accepted and not looked at.
    Any,
}

/// Bytes of a text at most: those of a path (PATH_MAX). Answers repeat names again and again.
pub const TEXT_MAX_BYTES: usize = 4096;
/// Bytes of a value that an error repeats at most.
const REPEATED_BYTES: usize = 200;

/// A number up to 65535.
pub const U16: ParamKind = ParamKind::Number(u16::MAX as u64);
/// A number up to 4294967295.
pub const U32: ParamKind = ParamKind::Number(u32::MAX as u64);
/// A number up to 18446744073709551615.
pub const U64: ParamKind = ParamKind::Number(u64::MAX);

/// The need of a call for a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// The call fails without the parameter.
    Required,
    /// The parameter may be left out; this default holds then, in words.
    Default(&'static str),
    /// Accepted with every value that SPDK takes, because each of them asks for what happens anyway, here or in SPDK's
    /// TCP transport; why is in `about`.
    Ignored,
    /// Accepted with this value alone (as JSON): it asks for what happens anyway. The reasons are in `about`.
    Only(&'static str),
}

/// One parameter of a method, under SPDK's name.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name of the parameter.
    pub name: &'static str,
    /// The values that the parameter takes.
    pub kind: ParamKind,
    /// The need of a call for this parameter.
    pub need: Need,
    /// The meaning of the parameter, in a line, with the unit.
    pub about: &'static str,
}

impl Param {
    /// A parameter that must be given.
    pub const fn required(name: &'static str, kind: ParamKind, about: &'static str) -> Param {
        Param { name, kind, need: Need::Required, about }
    }

    /// A parameter that may be left out.
    pub const fn optional(name: &'static str, kind: ParamKind, default: &'static str, about: &'static str) -> Param {
        Param { name, kind, need: Need::Default(default), about }
    }

    /// A parameter that may have a single value, given as JSON: SPDK's default, which asks for what happens anyway.
    pub const fn only(name: &'static str, kind: ParamKind, value: &'static str, why: &'static str) -> Param {
        Param { name, kind, need: Need::Only(value), about: why }
    }

    /// A parameter that changes nothing in Plimsoll.
    pub const fn ignored(name: &'static str, kind: ParamKind, why: &'static str) -> Param {
        Param { name, kind, need: Need::Ignored, about: why }
    }
}

/// Parameters that were held against their table. Getters name a row of it; any other name is a defect.
#[derive(Clone, Debug)]
pub struct Params {
    table: &'static [Param],
    given: Map<String, Value>,
}

impl Params {
    /// The parameters, each known, of its type and in its range, and none missing that is required.
    ///
    /// # Errors
    /// [`super::jsonrpc::code::INVALID_PARAMS`], naming the parameter and its possible values.
    pub fn check(method: &str, table: &'static [Param], given: Option<&Value>) -> Result<Params, RpcError> {
        let refuse = |what: String| RpcError::params(format!("Invalid parameters: {method}: {what}"));
        let given = match given {
            None => Map::new(),
            Some(Value::Object(given)) => given.clone(),
            Some(_) if table.is_empty() => return Err(refuse("it takes no parameters".into())),
            Some(_) => return Err(refuse("give them by name, as an object".into())),
        };
        check(table, &given, "").map_err(refuse)?;
        Ok(Params { table, given })
    }

    fn get(&self, name: &str) -> Option<&Value> {
        debug_assert!(self.table.iter().any(|param| param.name == name), "{name} is in no row");
        self.given.get(name)
    }

    /// True if the parameter was given.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The value of a required text.
    pub fn text(&self, name: &str) -> &str {
        self.text_if(name).unwrap_or_default()
    }

    /// The string of that parameter; None if the call does not give it.
    pub fn text_if(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// The value of a required number.
    pub fn number(&self, name: &str) -> u64 {
        self.number_if(name).unwrap_or_default()
    }

    /// The number of that parameter; None if the call does not give it.
    pub fn number_if(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// A number, if given, that its row limits to 32 bits.
    pub fn u32_if(&self, name: &str) -> Option<u32> {
        self.number_if(name).and_then(|number| u32::try_from(number).ok())
    }

    /// A truth value, if given.
    pub fn bool_if(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// The texts of an array, if given.
    pub fn list_if(&self, name: &str) -> Option<Vec<&str>> {
        Some(self.get(name)?.as_array()?.iter().filter_map(Value::as_str).collect())
    }

    /// Members of an object, if given.
    pub fn object_if(&self, name: &str) -> Option<Params> {
        let ParamKind::Object(table) = self.table.iter().find(|param| param.name == name)?.kind else { return None };
        Some(Params { table, given: self.get(name)?.as_object()?.clone() })
    }

    /// Everything as it was given.
    pub fn as_given(&self) -> &Map<String, Value> {
        &self.given
    }
}

fn check(table: &[Param], given: &Map<String, Value>, inside: &str) -> Result<(), String> {
    for (name, value) in given {
        let param = table.iter().find(|param| param.name == name).ok_or_else(|| unknown(table, inside, name))?;
        let path = format!("{inside}{name}");
        if let (ParamKind::Object(members), Some(object)) = (param.kind, value.as_object()) {
            check(members, object, &format!("{path}."))?;
        } else if let Some(bytes) = longest_text(value).filter(|bytes| *bytes > TEXT_MAX_BYTES) {
            return Err(format!("{path} takes texts of up to {TEXT_MAX_BYTES} bytes, and one has {bytes}"));
        } else if !fits(param.kind, value) {
            return Err(format!("{path} takes {}, not {}", describe(param.kind), repeated(value.to_string())));
        }
        if let Need::Only(only) = param.need
            && !is_json(value, only)
        {
            return Err(format!("{path} must be {only}, not {}: {}", repeated(value.to_string()), param.about));
        }
    }
    match table.iter().find(|param| matches!(param.need, Need::Required) && !given.contains_key(param.name)) {
        Some(missing) => Err(format!("{inside}{} is missing ({})", missing.name, missing.about)),
        None => Ok(()),
    }
}

/// Bytes of the longest text in a value; None without a text.
fn longest_text(value: &Value) -> Option<usize> {
    match value {
        Value::String(text) => Some(text.len()),
        Value::Array(values) => values.iter().filter_map(longest_text).max(),
        Value::Object(members) => {
            members.iter().flat_map(|(name, value)| [Some(name.len()), longest_text(value)]).flatten().max()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The beginning of a text, as far as an error repeats it.
pub fn repeated(text: String) -> String {
    match text.char_indices().find(|(at, _)| *at >= REPEATED_BYTES) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The name that was probably meant: the one that the fewest typing errors turn into `name`; `None` if none is close.
pub fn meant<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let far = length.div_ceil(4).min(4);
    // Known names are ASCII. One whose length differs by more is farther away, and a request may hold 32 KiB of name.
    let names = names.filter(|other| other.len().abs_diff(length) <= far);
    let edits = names.map(|other| (strsim::osa_distance(name, other), other));
    edits.filter(|(edits, _)| *edits <= far).min().map(|(_, other)| other)
}

/// True if the value is the one that this JSON text stands for.
fn is_json(value: &Value, text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|only| only == *value)
}

fn unknown(table: &[Param], inside: &str, name: &str) -> String {
    let names: Vec<&str> = table.iter().map(|param| param.name).collect();
    let name = repeated(name.to_owned());
    match names.is_empty() {
        true => format!("there is no parameter {inside}{name}; it takes none"),
        false => {
            let close = meant(&name, names.iter().copied()).map(|close| format!("; did you mean {inside}{close}?"));
            let close = close.unwrap_or_default();
            format!("there is no parameter {inside}{name}{close}; there are {}", names.join(", "))
        }
    }
}

fn fits(kind: ParamKind, value: &Value) -> bool {
    match kind {
        ParamKind::Bool => value.is_boolean(),
        ParamKind::Number(most) => value.as_u64().is_some_and(|number| number <= most),
        ParamKind::Integer => value.is_i64() || value.is_u64(),
        ParamKind::Text => value.is_string(),
        ParamKind::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
        ParamKind::ListOf(texts) => value.as_array().is_some_and(|list| {
            !list.is_empty() && list.iter().all(|value| value.as_str().is_some_and(|text| texts.contains(&text)))
        }),
        ParamKind::Texts => {
            value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(|value| value.is_string()))
        }
        ParamKind::Object(_) => value.is_object(),
        ParamKind::Any => true,
    }
}

/// The values that a parameter takes, in words.
pub fn describe(kind: ParamKind) -> String {
    match kind {
        ParamKind::Bool => "true or false".into(),
        ParamKind::Number(u64::MAX) => "a whole number".into(),
        ParamKind::Number(most) => format!("a whole number up to {most}"),
        ParamKind::Integer => "a whole number".into(),
        ParamKind::Text => "text".into(),
        ParamKind::OneOf(texts) => format!("one of {}", texts.join(", ")),
        ParamKind::ListOf(texts) => format!("an array of some of {}", texts.join(", ")),
        ParamKind::Texts => "an array of texts".into(),
        ParamKind::Object(members) => {
            format!("an object with {}", members.iter().map(|param| param.name).collect::<Vec<_>>().join(", "))
        }
        ParamKind::Any => "anything".into(),
    }
}

/// The parameters of a command line, `key=value` each, as the object of a request. A value is JSON where that is what
/// the parameter takes (`num_blocks=1024`, `listen_address={...}`), text otherwise; `listen_address.traddr=127.0.0.1`
/// sets a member. Without a table (an unknown method) what reads as JSON is JSON.
///
/// # Errors
/// A word without `=`; a member of something that is not an object.
pub fn from_words<'a>(table: Option<&[Param]>, words: impl Iterator<Item = &'a str>) -> Result<Option<Value>, String> {
    let mut object = Map::new();
    for word in words {
        let (path, text) =
            word.split_once('=').ok_or_else(|| format!("{word:?} is not a parameter (expected NAME=VALUE)"))?;
        let mut kind = table.and_then(|table| find(table, path));
        if table.is_none() {
            kind = Some(ParamKind::Any);
        }
        let value = match kind {
            Some(ParamKind::Text | ParamKind::OneOf(_)) => json!(text),
            _ => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        };
        put(&mut object, path, value)?;
    }
    Ok((!object.is_empty()).then_some(Value::Object(object)))
}

fn find(table: &[Param], path: &str) -> Option<ParamKind> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let kind = table.iter().find(|param| param.name == name)?.kind;
    match (kind, rest) {
        (ParamKind::Object(members), Some(rest)) => find(members, rest),
        (kind, _) => Some(kind),
    }
}

fn put(object: &mut Map<String, Value>, path: &str, value: Value) -> Result<(), String> {
    let Some((name, rest)) = path.split_once('.') else {
        object.insert(path.into(), value);
        return Ok(());
    };
    match object.entry(name).or_insert_with(|| json!({})) {
        Value::Object(member) => put(member, rest, value),
        _ => Err(format!("{path}: {name} is already set, and is not an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: &[Param] = &[
        Param::required("name", ParamKind::Text, "name of the device"),
        Param::optional("block_size", U32, "512", "bytes of a block"),
        Param::optional("rw", ParamKind::OneOf(&["read", "write"]), "read", "direction"),
        Param::optional("address", ParamKind::Object(ADDRESS), "any", "where"),
        Param::optional("digests", ParamKind::ListOf(&["sha256", "sha512"]), "all", "hash functions"),
        Param::ignored("iobuf", ParamKind::Any, "there are no pools"),
        Param::only("metadata", U32, "0", "blocks have no metadata"),
    ];
    static ADDRESS: &[Param] = &[
        Param::required("traddr", ParamKind::Text, "the address"),
        Param::optional("trsvcid", ParamKind::Text, "4420", "the port"),
    ];

    fn refused(given: Value) -> String {
        Params::check("m", TABLE, Some(&given)).expect_err("it is refused").message
    }

    #[test]
    fn what_fits_the_table_is_taken() {
        let given =
            json!({"name": "Null0", "block_size": 4096, "address": {"traddr": "::1"}, "iobuf": [1], "metadata": 0});
        let params = Params::check("m", TABLE, Some(&given)).expect("it fits");
        assert_eq!((params.text("name"), params.number("block_size")), ("Null0", 4096));
        assert_eq!(params.object_if("address").expect("given").text("traddr"), "::1");
        assert!(!params.has("rw"));
        assert!(Params::check("m", &[], None).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (given, message) in [
            (json!({}), "Invalid parameters: m: name is missing (name of the device)"),
            (
                json!({"name": "x", "blocksize": 1}),
                "Invalid parameters: m: there is no parameter blocksize; did you mean block_size?; there are name, block_size, rw, address, digests, iobuf, metadata",
            ),
            (
                json!({"name": "x", "metadata": 8}),
                "Invalid parameters: m: metadata must be 0, not 8: blocks have no metadata",
            ),
            (json!({"name": 3}), "Invalid parameters: m: name takes text, not 3"),
            (
                json!({"name": "x", "block_size": 1u64 << 32}),
                "Invalid parameters: m: block_size takes a whole number up to 4294967295, not 4294967296",
            ),
            (
                json!({"name": "x", "block_size": -1}),
                "Invalid parameters: m: block_size takes a whole number up to 4294967295, not -1",
            ),
            (json!({"name": "x", "rw": "trim"}), "Invalid parameters: m: rw takes one of read, write, not \"trim\""),
            (
                json!({"name": "x", "digests": ["md5"]}),
                "Invalid parameters: m: digests takes an array of some of sha256, sha512, not [\"md5\"]",
            ),
            (json!({"name": "x", "address": {}}), "Invalid parameters: m: address.traddr is missing (the address)"),
            (
                json!({"name": "x", "address": {"traddr": "::1", "port": 1}}),
                "Invalid parameters: m: there is no parameter address.port; there are traddr, trsvcid",
            ),
            (json!(["x"]), "Invalid parameters: m: give them by name, as an object"),
        ] {
            assert_eq!(refused(given), message);
        }
    }

    #[test]
    fn texts_have_a_longest_length_and_errors_do_not_repeat_more() {
        let long = |bytes: usize| "n".repeat(bytes);
        Params::check("m", TABLE, Some(&json!({ "name": long(TEXT_MAX_BYTES) }))).expect("it fits");
        for (given, part) in [
            (json!({ "name": long(4097) }), "name takes texts of up to 4096 bytes, and one has 4097"),
            (json!({ "name": "x", "iobuf": [{ "a": long(5000) }] }), "iobuf takes texts of up to 4096 bytes"),
            (json!({ "name": "x", "address": { "traddr": long(5000) } }), "address.traddr takes texts of up to 4096"),
            (json!({ "name": "x", "rw": long(4000) }), "rw takes one of read, write, not \"nnn"),
            (json!({ "name": "x", long(100_000): 1 }), "there is no parameter nnn"),
            (json!({ "name": (0..9000).collect::<Vec<_>>() }), "name takes text, not [0,1,2,"),
        ] {
            let message = refused(given);
            assert!(message.contains(part) && message.len() < 500, "{part}: {message}");
        }
    }

    #[test]
    fn words_become_an_object_by_the_table() {
        let of = |table, line: &str| from_words(table, line.split_whitespace());
        assert_eq!(
            of(Some(TABLE), "name=7 block_size=4096 address.traddr=::1 address.trsvcid=4420"),
            Ok(Some(json!({"name": "7", "block_size": 4096, "address": {"traddr": "::1", "trsvcid": "4420"}})))
        );
        assert_eq!(of(Some(TABLE), "address={\"traddr\":\"x\"}"), Ok(Some(json!({"address": {"traddr": "x"}}))));
        assert_eq!(of(None, "a=1 b=x c=true"), Ok(Some(json!({"a": 1, "b": "x", "c": true}))));
        assert_eq!(of(None, ""), Ok(None));
        assert_eq!(of(None, "Null0"), Err("\"Null0\" is not a parameter (expected NAME=VALUE)".into()));
        assert!(of(None, "a=1 a.b=2").is_err());
    }
}
