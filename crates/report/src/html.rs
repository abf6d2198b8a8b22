//! Results as one self-contained HTML page.

use measure::schema::Document;

/// A document and what to call it: the file's name.
#[derive(Clone, Debug)]
pub struct NamedDocument {
    /// Shown where several are compared.
    pub name: String,
    /// The results.
    pub document: Document,
}

/// One page of one or many results: no script, nothing from the network.
pub fn render(_documents: &[NamedDocument]) -> String {
    String::new()
}
