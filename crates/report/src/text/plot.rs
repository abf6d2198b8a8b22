//! A small chart for a terminal: braille dots, two by four a character; letters where only ASCII is wanted, or where
//! several curves have no colours to tell them apart.

use super::{Style, Tone};

/// One curve: points on unit axes, 0..=1 each.
pub(super) struct Line {
    pub points: Vec<(f64, f64)>,
    pub colour: usize,
}

/// The plot without axes: `height` rows of `width` characters. `marks` are vertical lines at 0..=1 of the width.
pub(super) fn rows(lines: &[Line], marks: &[f64], width: usize, height: usize, style: Style) -> Vec<String> {
    if letters(lines.len(), style) {
        return rows_of_letters(lines, marks, width, height);
    }
    let (dots_x, dots_y) = (width * 2, height * 4);
    let mut cells = vec![(0u8, None::<usize>); width * height];
    let mut set = |x: usize, y: usize, colour: Option<usize>| {
        // Unicode 16, chapter 21.1: dots 1-3 and 4-6 count down the columns, 7 and 8 are the bottom row.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let cell = &mut cells[y / 4 * width + x / 2];
        cell.0 |= BITS[y % 4][x % 2];
        cell.1 = cell.1.or(colour);
    };
    for line in lines {
        trace(line, dots_x, dots_y, |x, y| set(x, y, Some(line.colour)));
    }
    for &mark in marks {
        // Every other dot, so that curves show through.
        (0..dots_y).step_by(2).for_each(|y| set(place(mark, dots_x), y, None));
    }
    cells
        .chunks(width)
        .map(|row| {
            let cell = |&(bits, colour): &(u8, Option<usize>)| {
                let character = if bits == 0 { ' ' } else { char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ') };
                match colour {
                    Some(colour) if style.colour => style.paint(Tone::Curve(colour), &character.to_string()),
                    _ => character.to_string(),
                }
            };
            row.iter().map(cell).collect::<String>()
        })
        .collect()
}

/// True if a chart of `curves` curves draws them as letters.
pub(super) fn letters(curves: usize, style: Style) -> bool {
    style.ascii || curves > 1 && !style.colour
}

/// The character of a curve among `curves` curves that are drawn as letters.
pub(super) fn letter(curve: usize, curves: usize) -> char {
    if curves == 1 { '*' } else { (b'a' + (curve % 26) as u8).into() }
}

/// The characters of a chart's axes: the vertical one, the corner, the horizontal one.
pub(super) fn axes(style: Style) -> [char; 3] {
    if style.ascii { ['|', '+', '-'] } else { ['\u{2502}', '\u{2514}', '\u{2500}'] }
}

fn rows_of_letters(lines: &[Line], marks: &[f64], width: usize, height: usize) -> Vec<String> {
    let mut cells = vec![' '; width * height];
    for &mark in marks {
        (0..height).for_each(|y| cells[y * width + place(mark, width)] = ':');
    }
    for line in lines {
        let letter = letter(line.colour, lines.len());
        trace(line, width, height, |x, y| cells[y * width + x] = letter);
    }
    cells.chunks(width).map(|row| row.iter().collect()).collect()
}

/// Gives `set` the cells of a curve, column and row from the top, on a grid of `columns` and `rows`.
fn trace(line: &Line, columns: usize, rows: usize, mut set: impl FnMut(usize, usize)) {
    for pair in line.points.windows(2) {
        let (from, to) = (place(pair[0].0, columns), place(pair[1].0, columns));
        let mut before = None;
        for x in from..=to {
            let part = if to > from { (x - from) as f64 / (to - from) as f64 } else { 1.0 };
            let y = rows - 1 - place(pair[0].1 + part * (pair[1].1 - pair[0].1), rows);
            // Steep lines get their dots between, too.
            let previous: usize = before.unwrap_or(y);
            (previous.min(y)..=previous.max(y)).for_each(|y| set(x, y));
            before = Some(y);
        }
    }
}

/// The cell, of `cells`, at a part of their length.
fn place(part: f64, cells: usize) -> usize {
    (part.clamp(0.0, 1.0) * (cells - 1) as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rising() -> Line {
        Line { points: vec![(0.0, 0.0), (1.0, 1.0)], colour: 0 }
    }

    #[test]
    fn a_rising_line_ends_in_the_corners() {
        for (ascii, curves) in [(false, 1), (true, 1), (false, 2)] {
            let lines: Vec<Line> = (0..curves).map(|_| rising()).collect();
            let rows = rows(&lines, &[], 10, 4, Style { ascii, ..Style::default() });
            assert_eq!(rows.len(), 4);
            assert!(rows.iter().all(|row| row.chars().count() == 10));
            assert_ne!(rows[0].chars().last(), Some(' '));
            assert_ne!(rows[3].chars().next(), Some(' '));
            assert_eq!(rows[0].chars().next(), Some(' '));
            assert_eq!(rows.concat().is_ascii(), ascii || curves > 1);
        }
    }

    #[test]
    fn curves_without_colours_are_told_apart_by_letters() {
        let falling = Line { points: vec![(0.0, 1.0), (1.0, 0.0)], colour: 1 };
        let rows = rows(&[rising(), falling], &[0.5], 9, 3, Style::default());
        assert_eq!(rows, ["bbbb: aaa", "  abbbbb ", "aaa :  bb"]);
    }
}
