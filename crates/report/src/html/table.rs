//! Tables of a page: figures to the right, words to the left, and a frame that scrolls where the screen is narrow.

use std::fmt::Write;

use crate::svg::escape;

/// A table. All text is escaped. Cells are pairs of a class (may be empty) and a text.
#[derive(Debug)]
pub struct Table {
    html: String,
}

/// Columns of words: they start at the left, as their cells do.
const WORDS: [&str; 6] = ["what", "verdicts", "option", "A has", "B has", "direction"];

impl Table {
    /// An empty table. Programs that read a page aloud say its name before its contents.
    pub fn new(name: &str, header: &[&str]) -> Table {
        let class = |name: &str| if WORDS.contains(&name) { " class=\"left\"" } else { "" };
        let cell = |name: &&str| match *name {
            "" => "<td></td>".to_string(),
            name => format!("<th scope=\"col\"{}>{}</th>", class(name), escape(name)),
        };
        let cells: String = header.iter().map(cell).collect();
        let name = escape(name);
        let html = format!(
            "<div class=\"card scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\">\
             <table aria-label=\"{name}\"><thead><tr>{cells}</tr></thead><tbody>"
        );
        Table { html }
    }

    /// Adds a row with a class (may be empty); its first cell is its heading.
    pub fn row(&mut self, class: &str, cells: &[(&str, String)]) {
        let _ = write!(self.html, "<tr class=\"{class}\">");
        for (index, (class, text)) in cells.iter().enumerate() {
            let text = escape(text);
            let _ = match index {
                0 => write!(self.html, "<th scope=\"row\" class=\"{class}\">{text}</th>"),
                _ => write!(self.html, "<td class=\"{class}\">{text}</td>"),
            };
        }
        self.html.push_str("</tr>");
    }

    /// Ends the table, and returns it as HTML.
    pub fn end(self) -> String {
        self.html + "</tbody></table></div>"
    }
}
