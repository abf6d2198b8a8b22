//! The other end of the socket: one call, one answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::jsonrpc::{Outcome, RpcError, code};
use super::stream::{MAX_ANSWER_BYTES, Piece, Splitter};

/// The answer of the target at `path` to a call.
///
/// # Errors
/// The error of connect(2), read(2) or write(2); `InvalidData` if the answer is not a JSON-RPC response;
/// `UnexpectedEof` if the target closes the connection before it answers. A refusal of the target is an `Ok(Err(_))`.
pub fn call(path: &Path, method: &str, params: Option<&Value>, timeout: Duration) -> io::Result<Outcome> {
    let mut request = json!({ "jsonrpc": "2.0", "method": method, "id": 1 });
    if let Some(params) = params {
        request["params"] = params.clone();
    }
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(&serde_json::to_vec(&request)?)?;
    let mut splitter = Splitter::new(MAX_ANSWER_BYTES);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match splitter.take() {
            Some(Piece::Value(text)) => return outcome(&text),
            Some(Piece::Lost(why)) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
            None => {}
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the target closed the connection")),
            read => splitter.push(&buffer[..read]),
        }
    }
}

fn outcome(text: &[u8]) -> io::Result<Outcome> {
    let mut answer: Value = serde_json::from_slice(text)?;
    if let Some(error) = answer.get("error") {
        let message = error.get("message").and_then(Value::as_str).unwrap_or("no message");
        let code = error.get("code").and_then(Value::as_i64).unwrap_or(code::INTERNAL_ERROR);
        return Ok(Err(RpcError::new(code, message)));
    }
    match answer.get_mut("result") {
        Some(result) => Ok(Ok(result.take())),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer without result and error")),
    }
}
