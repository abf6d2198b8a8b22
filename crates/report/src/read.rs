//! Reading results back: our own documents, and fio's JSON.

use measure::schema::Document;

/// Why a file is not a result: one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// The results in a file: our own document, or fio's `json` or `json+` output as a [`Document::Run`].
///
/// # Errors
/// Anything else, with what it seems to be.
pub fn document(_bytes: &[u8]) -> Result<Document, Error> {
    Err(Error(String::new()))
}
