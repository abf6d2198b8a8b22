//! Heat maps: a row for each curve of a map, cells along its axis, and lines from row to row.

use std::fmt::Write;

use super::{CHARACTER, head, short};
use crate::svg::escape;

/// A heat map. Rows stand one above the other, the first at the bottom, as an axis that rises.
#[derive(Clone, Debug)]
pub(crate) struct Heat {
    pub title: String,
    /// The map in words, for readers who do not see it.
    pub description: String,
    /// The name of the axis along the rows.
    pub axis: String,
    pub rows: Vec<HeatRow>,
    /// The form of a value of the axis.
    pub place: fn(&str, f64) -> String,
    /// The form of a cell's value.
    pub write: fn(f64) -> String,
    /// True if values span several powers of ten, as latencies do.
    pub is_log: bool,
    /// Lines from row to row: a name, and its place in each row that has one. The first is drawn through.
    pub contours: Vec<(String, Vec<Option<f64>>)>,
}

/// A row: its name, and its cells as (place, value), ascending; places and values are above 0.
#[derive(Clone, Debug)]
pub(crate) struct HeatRow {
    pub name: String,
    pub cells: Vec<(f64, f64)>,
}

const TOP: f64 = 58.0;
const ROW: f64 = 34.0;
/// Room below the rows for the ticks and the name of the axis.
const BELOW: f64 = 46.0;

impl Heat {
    /// The smallest and the largest place of a cell.
    fn ends(&self) -> (f64, f64) {
        let places = self.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.0);
        places.fold((f64::MAX, 0.0f64), |(low, high), x| (low.min(x), high.max(x)))
    }

    /// True if the map has two places at least.
    pub fn is_drawn(&self) -> bool {
        let (first, last) = self.ends();
        first < last
    }

    /// The map as an `<svg>` element of this width; empty without two places. Text is escaped.
    pub fn svg(&self, width: f64) -> String {
        if !self.is_drawn() {
            return String::new();
        }
        let (first, last) = self.ends();
        let longest = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let (left, right) = (longest as f64 * CHARACTER + 18.0, width - 16.0);
        // Half a step of a doubling beyond the ends, so that the cells of the ends are as wide as the others.
        let (from, to) = ((first / 2f64.sqrt()).ln(), (last * 2f64.sqrt()).ln());
        let across = |x: f64| left + (x.ln().clamp(from, to) - from) / (to - from) * (right - left);
        let bottom = TOP + ROW * self.rows.len() as f64;
        let mut out = head(&self.title, &self.description, width, bottom + BELOW);
        let values = || self.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.1);
        let (least, most) = values().fold((f64::MAX, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        let shade = |value: f64| match self.is_log && least < most {
            true => (value / least).ln() / (most / least).ln(),
            false => value / most.max(f64::MIN_POSITIVE),
        };
        let middle_of = |index: usize| bottom - ROW * (index as f64 + 0.5);
        let mut figures = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let top = middle_of(index) - ROW / 2.0;
            let _ = write!(
                out,
                r#"<text class="row-name" x="{}" y="{}" text-anchor="end">{}</text>"#,
                short(left - 8.0),
                short(top + ROW / 2.0 + 4.0),
                escape(&row.name)
            );
            for (cell, &(x, value)) in row.cells.iter().enumerate() {
                let between =
                    |other: Option<&(f64, f64)>, end: f64| other.map_or(end, |other| across((other.0 * x).sqrt()));
                let begin = between(cell.checked_sub(1).map(|before| &row.cells[before]), across(x / 2f64.sqrt()));
                let end = between(row.cells.get(cell + 1), across(x * 2f64.sqrt()));
                let said = (self.write)(value);
                let opacity = 0.06 + 0.94 * shade(value).clamp(0.0, 1.0);
                let _ = write!(
                    out,
                    r#"<rect class="cell" x="{}" y="{}" width="{}" height="{}" fill-opacity="{opacity:.3}"><title>{}</title></rect>"#,
                    short(begin),
                    short(top + 1.0),
                    short((end - begin - 1.0).max(0.5)),
                    short(ROW - 2.0),
                    escape(&format!("{}, {} {}: {said}", row.name, self.axis, (self.place)(&self.axis, x)))
                );
                let wide = said.chars().count() as f64 * CHARACTER + 4.0;
                if end - begin > wide {
                    let middle = (begin + end) / 2.0;
                    // No line crosses a figure: the colour of the cell lies between them.
                    let place = format!(
                        r#"x="{}" y="{}" width="{}" height="16""#,
                        short(middle - wide / 2.0),
                        short(top + ROW / 2.0 - 8.0),
                        short(wide)
                    );
                    if self.contours.iter().any(|(_, places)| {
                        places.get(index).copied().flatten().is_some_and(|x| (across(x) - middle).abs() < wide / 2.0)
                    }) {
                        let _ = write!(
                            figures,
                            r#"<rect class="paper behind" {place}/><rect class="cell behind" {place} fill-opacity="{opacity:.3}"/>"#
                        );
                    }
                    let _ = write!(
                        figures,
                        r#"<text class="cell-value" x="{}" y="{}" text-anchor="middle">{}</text>"#,
                        short(middle),
                        short(top + ROW / 2.0 + 4.0),
                        escape(&said)
                    );
                }
            }
        }
        self.draw_contours(&mut out, &across, (left, right), middle_of);
        out.push_str(&figures);
        self.draw_axis(&mut out, &across, bottom, (left + right) / 2.0);
        out + "</svg>"
    }

    fn draw_contours(
        &self,
        out: &mut String,
        across: &dyn Fn(f64) -> f64,
        (mut legend, right): (f64, f64),
        middle_of: impl Fn(usize) -> f64,
    ) {
        for (number, (name, places)) in self.contours.iter().enumerate() {
            let known: Vec<(usize, f64)> =
                places.iter().enumerate().filter_map(|(index, x)| Some((index, across((*x)?)))).collect();
            if known.is_empty() {
                continue;
            }
            let class = if number == 0 { "contour" } else { "contour dashed" };
            let mut path = String::new();
            for (step, &(index, x)) in known.iter().enumerate() {
                // A row without a place interrupts the line.
                let goes_on = step > 0 && known[step - 1].0 + 1 == index;
                let (low, high) = (middle_of(index) + ROW / 2.0, middle_of(index) - ROW / 2.0);
                let verb = if goes_on { 'L' } else { 'M' };
                let _ = write!(path, "{verb}{},{}L{},{}", short(x), short(low), short(x), short(high));
            }
            let y = 44.0;
            let _ = write!(
                out,
                r#"<path class="{class}" d="{path}"/><path class="{class}" d="M{},{y}h22"/><text class="legend" x="{}" y="{}">{}</text>"#,
                short(legend),
                short(legend + 28.0),
                short(y + 4.0),
                escape(name)
            );
            legend = (legend + 44.0 + name.chars().count() as f64 * CHARACTER).min(right);
        }
    }

    /// A tick below each place that any row has a cell at, with the value where it fits.
    fn draw_axis(&self, out: &mut String, across: &dyn Fn(f64) -> f64, bottom: f64, middle: f64) {
        let mut places: Vec<f64> = self.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let mut free_from = f64::MIN;
        for x in places {
            let said = (self.place)(&self.axis, x);
            let half = said.chars().count() as f64 * CHARACTER / 2.0 + 4.0;
            let at = short(across(x));
            let _ = write!(
                out,
                r#"<line class="axis" x1="{at}" y1="{}" x2="{at}" y2="{}"/>"#,
                short(bottom + 1.0),
                short(bottom + 5.0)
            );
            if across(x) - half >= free_from {
                let _ = write!(
                    out,
                    r#"<text class="tick" x="{at}" y="{}" text-anchor="middle">{}</text>"#,
                    short(bottom + 17.0),
                    escape(&said)
                );
                free_from = across(x) + half;
            }
        }
        let _ = write!(
            out,
            r#"<text x="{}" y="{}" text-anchor="middle">{}</text>"#,
            short(middle),
            short(bottom + 36.0),
            escape(&self.axis)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat() -> Heat {
        let row = |name: &str, scale: f64| HeatRow {
            name: name.into(),
            cells: [1.0, 2.0, 4.0, 8.0].map(|x: f64| (x, scale * x.min(4.0))).to_vec(),
        };
        Heat {
            title: "IOPS".into(),
            description: "IOPS & more".into(),
            axis: "iodepth".into(),
            rows: vec![row("bs 4 KiB", 100.0), row("bs <16 KiB>", 50.0), row("bs 64 KiB", 20.0)],
            place: measure::figures::axis_value,
            write: measure::figures::count,
            is_log: false,
            contours: vec![("load line".into(), vec![Some(4.0), None, Some(2.0)])],
        }
    }

    #[test]
    fn every_cell_has_its_value_and_text_is_escaped() {
        let svg = heat().svg(640.0);
        assert_eq!(svg.matches("class=\"cell\"").count(), 12);
        assert!(svg.contains("bs &lt;16 KiB&gt;, iodepth 8: 200") && !svg.contains("<16"), "{svg}");
        assert!(svg.contains("fill-opacity=\"1.000\""), "the highest value is the darkest");
    }

    #[test]
    fn each_place_of_a_cell_has_its_tick() {
        let mut odd = heat();
        odd.rows[1].cells = vec![(3.0, 1.0), (48.0, 2.0)];
        let svg = odd.svg(640.0);
        for place in [1, 2, 3, 4, 8, 48] {
            assert!(svg.contains(&format!("text-anchor=\"middle\">{place}</text>")), "{place}: {svg}");
        }
        assert!(!svg.contains(">16</text>") && !svg.contains(">32</text>"), "nothing was measured there: {svg}");
        assert_eq!(svg.matches("class=\"axis\"").count(), 6);
    }

    #[test]
    fn a_row_without_a_line_interrupts_the_contour() {
        let svg = heat().svg(640.0);
        let path = svg.split("<path class=\"contour\" d=\"").nth(1).unwrap();
        assert_eq!(path.split('"').next().unwrap().matches('M').count(), 2, "{path}");
        let mut whole = heat();
        whole.contours[0].1[1] = Some(2.0);
        let svg = whole.svg(640.0);
        let path = svg.split("<path class=\"contour\" d=\"").nth(1).unwrap();
        assert_eq!(path.split('"').next().unwrap().matches('M').count(), 1);
    }

    #[test]
    fn a_map_of_one_column_is_not_drawn() {
        let mut one = heat();
        one.rows.iter_mut().for_each(|row| row.cells.truncate(1));
        assert_eq!(one.svg(640.0), "");
    }
}
