//! JSON-RPC 2.0 (<https://www.jsonrpc.org/specification>): requests, batches and notifications in, answers out.

use std::io;

use serde_json::{Map, Value, json};

use super::params;

/// Codes of the specification, and SPDK's one for a call at the wrong time.
pub mod code {
    /// The text is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// A parameter is missing, unknown, of the wrong type or out of range.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The code of a method that failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// SPDK's: the method may only be called before, or after, the framework's initialization.
    pub const INVALID_STATE: i64 = -1;
}

/// An error as it is answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// One of [`code`], or a negative errno as SPDK's block device methods answer.
    pub code: i64,
    /// One line: what failed, on what, why, what to do.
    pub message: String,
}

impl RpcError {
    /// An error with a code of the specification, or a negative errno.
    pub fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into() }
    }

    /// An error with a negative errno; `errno` is the positive one.
    pub fn errno(errno: i32, message: impl Into<String>) -> RpcError {
        RpcError::new(-i64::from(errno), message)
    }

    /// A parameter with a value that is not possible.
    pub fn params(message: impl Into<String>) -> RpcError {
        RpcError::new(code::INVALID_PARAMS, message)
    }

    /// The error of a method that failed.
    pub fn failed(message: impl Into<String>) -> RpcError {
        RpcError::new(code::INTERNAL_ERROR, message)
    }
}

/// The answer of a method.
pub type Outcome = Result<Value, RpcError>;

/// Answers a text that was sent: `send` gets the bytes of the answer in pieces, as they are made, and no byte where no
/// answer is due. Notifications get none; the requests of a batch are answered in one array.
///
/// `call` carries out a method with its parameters; None where the request has none.
///
/// # Errors
/// The first error of `send`: the rest of a batch is not carried out then, because nobody hears its answers.
pub fn answer_in_pieces(
    text: &[u8],
    call: &mut dyn FnMut(&str, Option<&Value>) -> Outcome,
    send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let requests = match serde_json::from_slice(text) {
        Ok(Value::Array(requests)) if !requests.is_empty() => requests,
        Ok(request) => return one(&request, call).map_or(Ok(()), |answer| send(&line(&answer)?)),
        Err(error) => return send(&line(&parse_error(&error.to_string()))?),
    };
    let mut has_begun = false;
    for request in &requests {
        let Some(answer) = one(request, call) else { continue };
        let mut piece = vec![if std::mem::replace(&mut has_begun, true) { b',' } else { b'[' }];
        serde_json::to_writer(&mut piece, &answer)?;
        send(&piece)?;
    }
    if has_begun { send(b"]\n") } else { Ok(()) }
}

/// The whole answer to a text, if one is due: see [`answer_in_pieces`].
pub fn answer(text: &[u8], call: &mut dyn FnMut(&str, Option<&Value>) -> Outcome) -> Option<Value> {
    let mut sent = Vec::new();
    let mut send = |piece: &[u8]| {
        sent.extend_from_slice(piece);
        Ok(())
    };
    let whole = answer_in_pieces(text, call, &mut send).and_then(|()| Ok(serde_json::from_slice(&sent)?));
    whole.ok()
}

/// The bytes of an answer on a line.
pub fn line(answer: &Value) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    Ok(text)
}

/// The answer to a text that is not JSON: nobody knows its id.
pub fn parse_error(why: &str) -> Value {
    response(Value::Null, Err(RpcError::new(code::PARSE_ERROR, format!("Parse error: {why}"))))
}

/// An answer to a client whose requests nobody reads.
pub fn refusal(error: RpcError) -> Value {
    response(Value::Null, Err(error))
}

fn one(request: &Value, call: &mut dyn FnMut(&str, Option<&Value>) -> Outcome) -> Option<Value> {
    let refuse = |id: Value, why: &str| {
        Some(response(id, Err(RpcError::new(code::INVALID_REQUEST, format!("Invalid request: {why}")))))
    };
    let Some(request) = request.as_object() else { return refuse(Value::Null, "not an object") };
    let id = match request.get("id") {
        Some(id @ (Value::Null | Value::Number(_) | Value::String(_))) => Some(id.clone()),
        Some(_) => return refuse(Value::Null, "the id is neither a number nor a string"),
        None => None,
    };
    let to = id.clone().unwrap_or(Value::Null);
    if request.get("jsonrpc").is_some_and(|version| version != "2.0") {
        return refuse(to, "jsonrpc is not \"2.0\"");
    }
    let Some(method) = request.get("method").and_then(Value::as_str) else {
        return refuse(to, "no method");
    };
    if let Some(unknown) = request.keys().find(|key| !["jsonrpc", "method", "params", "id"].contains(&key.as_str())) {
        let unknown = params::repeated(unknown.clone());
        return refuse(to, &format!("\"{unknown}\" is not a member of a request"));
    }
    let outcome = match request.get("params") {
        None | Some(Value::Null) => call(method, None),
        Some(params @ (Value::Object(_) | Value::Array(_))) => call(method, Some(params)),
        Some(_) => return refuse(to, "params is neither an object nor an array"),
    };
    Some(response(id?, outcome))
}

fn response(id: Value, outcome: Outcome) -> Value {
    let mut response = Map::from_iter([("jsonrpc".into(), json!("2.0")), ("id".into(), id)]);
    match outcome {
        Ok(result) => response.insert("result".into(), result),
        Err(RpcError { code, message }) => response.insert("error".into(), json!({ "code": code, "message": message })),
    };
    Value::Object(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Option<Value> {
        answer(text.as_bytes(), &mut |method, params| match (method, params) {
            ("add", Some(Value::Array(terms))) => Ok(json!(terms.iter().filter_map(Value::as_i64).sum::<i64>())),
            ("none", None) => Ok(json!(true)),
            _ => Err(RpcError::new(code::METHOD_NOT_FOUND, "Method not found")),
        })
    }

    /// The client has gone after the first answer: nobody carries out the rest.
    #[test]
    fn a_batch_ends_with_its_client() {
        let (mut calls, mut pieces) = (0, 0);
        let batch = format!("[{}]", vec![r#"{"method":"m","id":1}"#; 100].join(","));
        let mut call = |_: &str, _: Option<&Value>| {
            calls += 1;
            Ok(json!("x".repeat(1 << 20)))
        };
        let mut send = |_: &[u8]| {
            pieces += 1;
            if pieces > 1 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        };
        let error = answer_in_pieces(batch.as_bytes(), &mut call, &mut send).expect_err("it is told");
        assert_eq!((error.kind(), calls, pieces), (io::ErrorKind::BrokenPipe, 2, 2));
    }

    fn code_of(answer: Option<Value>) -> i64 {
        answer.expect("an answer")["error"]["code"].as_i64().expect("an error")
    }

    #[test]
    fn a_request_is_answered_with_its_id() {
        let sum = json!({ "jsonrpc": "2.0", "id": 7, "result": 3 });
        assert_eq!(ask(r#"{"jsonrpc":"2.0","method":"add","params":[1,2],"id":7}"#), Some(sum));
        let named = json!({ "jsonrpc": "2.0", "id": "x", "result": true });
        assert_eq!(ask(r#"{"method":"none","params":null,"id":"x"}"#), Some(named));
    }

    #[test]
    fn a_notification_is_carried_out_in_silence() {
        assert_eq!(ask(r#"{"jsonrpc":"2.0","method":"none"}"#), None);
        assert_eq!(ask(r#"{"jsonrpc":"2.0","method":"unknown"}"#), None);
    }

    #[test]
    fn a_batch_has_one_array_of_answers() {
        let answer = ask(r#"[{"method":"add","params":[1],"id":1},{"method":"none"},3,{"method":"x","id":2}]"#);
        let answers = answer.as_ref().and_then(Value::as_array).expect("an array");
        let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [&json!(1), &Value::Null, &json!(2)]);
        assert_eq!(answers[1]["error"]["code"], code::INVALID_REQUEST);
        assert_eq!(ask(r#"[{"method":"none"}]"#), None, "nothing but notifications");
        assert_eq!(code_of(ask("[]")), code::INVALID_REQUEST);
    }

    #[test]
    fn what_is_no_request_is_told_why() {
        assert_eq!(code_of(ask("{oops}")), code::PARSE_ERROR);
        for bad in [
            "{}",
            r#"{"method":3,"id":1}"#,
            r#"{"jsonrpc":"1.0","method":"none","id":1}"#,
            r#"{"method":"none","id":{}}"#,
            r#"{"method":"none","params":3,"id":1}"#,
            r#"{"method":"none","parms":{},"id":1}"#,
        ] {
            assert_eq!(code_of(ask(bad)), code::INVALID_REQUEST, "{bad}");
        }
        assert_eq!(code_of(ask(r#"{"method":"nope","id":1}"#)), code::METHOD_NOT_FOUND);
    }
}
