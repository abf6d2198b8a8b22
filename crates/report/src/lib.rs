//! Results as text, as JSON in fio's schema and as HTML; and results read back.
//!
//! ```text
//! schema ─► text | csv | fio_json | terse | ndjson | bandwidth_log | html (svg)
//! file   ─► read ─► schema
//! ```
#![forbid(unsafe_code)]

pub mod advice;
mod believed;
pub use measure::figures;
pub mod bandwidth_log;
pub mod csv;
pub mod fio_json;
pub mod html;
pub mod ndjson;
pub mod read;
pub mod svg;
pub mod terse;
pub mod text;
pub mod time;
