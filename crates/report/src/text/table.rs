//! Columns that line up: the first to the left, the others to the right.

use super::{Style, Tone};

/// Rows of cells; all rows have the header's number of cells.
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns whose cells start at the left.
    left: Vec<usize>,
}

impl Table {
    /// A table with this header and no rows.
    pub fn new<const N: usize>(header: [&str; N]) -> Table {
        Table::of(&header)
    }

    /// A table with a header of any length and no rows.
    pub fn of(header: &[&str]) -> Table {
        Table { header: header.iter().map(ToString::to_string).collect(), rows: Vec::new(), left: vec![0] }
    }

    /// Aligns one more column to the left.
    pub fn left(mut self, column: usize) -> Table {
        self.left.push(column);
        self
    }

    /// Adds a row, which has as many cells as the header.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    /// The table, each line behind `indent` spaces.
    pub fn render(&self, style: Style, indent: usize) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]).chain([&self.header[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &[String]| {
            let placed = cells.iter().enumerate().map(|(column, cell)| {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                if self.left.contains(&column) { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
            });
            let joined = placed.collect::<Vec<_>>().join("  ");
            format!("{}{}", " ".repeat(indent), joined.trim_end())
        };
        let mut out = style.paint(Tone::Soft, &line(&self.header)) + "\n";
        self.rows.iter().for_each(|row| out.push_str(&(line(row) + "\n")));
        out
    }
}
