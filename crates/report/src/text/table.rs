//! Columns that line up: the first to the left, the others to the right.

use super::{Style, Tone};

/// Rows of cells; all rows have the header's number of cells.
#[derive(Clone, Debug)]
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

    /// The widths of the columns.
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]).chain([&self.header[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.header.len()).map(width).collect()
    }

    /// The columns of a terminal that the longest line takes.
    pub fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    /// Leaves out the named columns, the first of them first, until no line is longer than `width`.
    pub fn without(mut self, least: &[&str], width: usize) -> Table {
        for title in least {
            if self.width() <= width {
                break;
            }
            while let Some(at) = self.header.iter().position(|other| other == title) {
                self.header.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
                self.left.retain(|column| *column != at);
                self.left.iter_mut().filter(|column| **column > at).for_each(|column| *column -= 1);
            }
        }
        self
    }

    /// Cuts the cells of the widest column that starts at the left, names as a rule, so that no line behind `indent`
    /// spaces is wider than the terminal, as far as that is possible: figures are never cut, nor are names in a pipe.
    pub fn cut(mut self, style: Style, indent: usize) -> Table {
        if !style.cuts_names {
            return self;
        }
        let over = self.width().saturating_sub(style.width.saturating_sub(indent));
        let widths = self.widths();
        let Some(&column) = self.left.iter().max_by_key(|column| widths[**column]) else { return self };
        let room = widths[column].saturating_sub(over).max(SHORTEST);
        if over > 0 {
            self.rows.iter_mut().for_each(|row| row[column] = shortened(&row[column], room));
        }
        self
    }

    /// The table, each line behind `indent` spaces.
    pub fn render(&self, style: Style, indent: usize) -> String {
        let widths = self.widths();
        let line = |cells: &[String]| {
            let placed = cells.iter().enumerate().map(|(column, cell)| {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                if self.left.contains(&column) { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
            });
            let joined = placed.collect::<Vec<_>>().join(&" ".repeat(GAP));
            format!("{}{}", " ".repeat(indent), joined.trim_end())
        };
        let mut out = style.paint(Tone::Soft, &line(&self.header)) + "\n";
        self.rows.iter().for_each(|row| out.push_str(&(line(row) + "\n")));
        out
    }
}

/// Spaces between columns.
const GAP: usize = 2;
/// Names are not cut to fewer characters.
const SHORTEST: usize = 8;

/// A text in at most `room` characters: the beginning and the end, which tell paths apart, around two dots.
fn shortened(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_string();
    }
    let kept = room.saturating_sub(2);
    let head = kept / 3;
    let tail = kept - head;
    text.chars().take(head).chain("..".chars()).chain(text.chars().skip(length - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_figures_are_not() {
        let mut table = Table::new(["target", "IOPS"]);
        table.row(vec!["/mnt/a/very/long/path/to/volume-1".into(), "1234567".into()]);
        table.row(vec!["short".into(), "8".into()]);
        assert_eq!(table.width(), 42);
        let narrow = Style { width: 30, ..Style::default() };
        let whole = table.clone().cut(narrow, 2).render(narrow, 2);
        assert!(whole.contains("/mnt/a/very/long/path/to/volume-1  1234567"), "a pipe takes all of it: {whole}");
        let terminal = Style { cuts_names: true, ..narrow };
        let text = table.cut(terminal, 2).render(terminal, 2);
        assert_eq!(text.lines().map(str::len).max(), Some(30), "{text}");
        assert!(text.contains("/mnt/../to/volume-1  1234567") && text.contains("short"), "{text}");
    }
}
