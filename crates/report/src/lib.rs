//! Results as text, as JSON in fio's schema and as HTML; and results read back.
//!
//! ```text
//! schema ─► text | csv | fio_json, fio_text (fio_figures) | terse | ndjson | bandwidth_log | smallfile | html (svg)
//! file   ─► read_document ─► schema
//! ```
//!
//! Each form of output is a public module, because several of them have a `render`: `csv::render`, `terse::render`.
#![forbid(unsafe_code)]

mod advice;
pub mod bandwidth_log;
mod believed;
pub mod csv;
mod fio_figures;
pub mod fio_json;
pub mod fio_text;
pub mod html;
mod limits;
pub mod ndjson;
mod parts;
mod preconditioning;
mod read;
mod slices;
pub mod smallfile;
pub mod svg;
pub mod terse;
pub mod text;

pub use advice::advice;
use measure::time;
pub use read::{ReadError, read_document};
pub use time::{ctime, utc};
