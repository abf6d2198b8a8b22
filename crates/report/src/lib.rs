//! Results as text, as JSON in fio's schema and as HTML.
#![forbid(unsafe_code)]

pub mod figures;
pub mod svg;
