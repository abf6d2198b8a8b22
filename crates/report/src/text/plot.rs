//! A small chart for a terminal: braille dots, two by four a character.

use super::{Style, Tone};

/// One curve: points on unit axes, 0..=1 each.
pub(super) struct Line {
    pub points: Vec<(f64, f64)>,
    pub colour: usize,
}

/// The plot without axes: `height` rows of `width` characters. `marks` are vertical lines at 0..=1 of the width.
pub(super) fn rows(lines: &[Line], marks: &[f64], width: usize, height: usize, style: Style) -> Vec<String> {
    let (dots_x, dots_y) = (width * 2, height * 4);
    let mut cells = vec![(0u8, None::<usize>); width * height];
    let mut set = |x: usize, y: usize, colour: Option<usize>| {
        // Unicode 16, chapter 21.1: dots 1-3 and 4-6 count down the columns, 7 and 8 are the bottom row.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let cell = &mut cells[y / 4 * width + x / 2];
        cell.0 |= BITS[y % 4][x % 2];
        cell.1 = cell.1.or(colour);
    };
    let at = |part: f64, dots: usize| (part.clamp(0.0, 1.0) * (dots - 1) as f64).round() as usize;
    for line in lines {
        for pair in line.points.windows(2) {
            let (from, to) = (at(pair[0].0, dots_x), at(pair[1].0, dots_x));
            let mut before = None;
            for x in from..=to {
                let part = if to > from { (x - from) as f64 / (to - from) as f64 } else { 1.0 };
                let y = dots_y - 1 - at(pair[0].1 + part * (pair[1].1 - pair[0].1), dots_y);
                // Steep lines get their dots between, too.
                let previous: usize = before.unwrap_or(y);
                (previous.min(y)..=previous.max(y)).for_each(|y| set(x, y, Some(line.colour)));
                before = Some(y);
            }
        }
    }
    for &mark in marks {
        // Every other dot, so that curves show through.
        (0..dots_y).step_by(2).for_each(|y| set(at(mark, dots_x), y, None));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rising_line_ends_in_the_corners() {
        let line = Line { points: vec![(0.0, 0.0), (1.0, 1.0)], colour: 0 };
        let rows = rows(&[line], &[], 10, 4, Style::default());
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.chars().count() == 10));
        assert_ne!(rows[0].chars().last(), Some(' '));
        assert_ne!(rows[3].chars().next(), Some(' '));
        assert_eq!(rows[0].chars().next(), Some(' '));
    }
}
