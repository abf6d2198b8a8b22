//! Charts of named rows: a bar from zero, or a point with its interval, beside each name. For effects of a comparison,
//! phases of a run on files, starts of hosts.

use std::fmt::Write;

use super::{CHARACTER, head, nice_step, short, shortened};
use crate::svg::escape;

/// The drawing in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    /// A bar from zero.
    Bar(f64),
    /// A point with its interval: low, middle, high.
    Span(f64, f64, f64),
    /// Nothing: the figure says nothing.
    Nothing,
}

/// One row: its name, its mark, and the figure in words at the end of the row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub name: String,
    pub mark: Mark,
    pub said: String,
    /// A class of colour: `s0` to `s7`, or `plain`.
    pub colour: &'static str,
}

/// A chart of rows over one linear axis.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub title: String,
    /// The chart in words, for readers who do not see it.
    pub description: String,
    pub rows: Vec<Row>,
    /// The ends of the axis.
    pub range: (f64, f64),
    /// True if the axis cannot go further down, so that its low end gets a label.
    pub ends_low: bool,
    /// True if only whole numbers get ticks.
    pub whole: bool,
    /// The figures below the axis.
    pub write: fn(f64) -> String,
    /// The name of the axis; may be empty.
    pub axis: String,
}

/// From this width on names and figures stand beside the rows; on narrower drawings above them.
const BROAD: f64 = 500.0;
const TOP: f64 = 36.0;
const EDGE: f64 = 30.0;

impl Rows {
    /// The chart as an `<svg>` element of this width. Text is escaped.
    pub fn svg(&self, width: f64) -> String {
        let broad = width >= BROAD;
        // A few rows get as much height as the charts beside them.
        let row_height = if broad { (240.0 / self.rows.len().max(1) as f64).clamp(28.0, 46.0) } else { 44.0 };
        let longest = |of: fn(&Row) -> &String, most: f64| {
            let wide = self.rows.iter().map(|row| of(row).chars().count() as f64 * CHARACTER).fold(40.0, f64::max);
            wide.min(most) + 16.0
        };
        let (names, figures) = (longest(|row| &row.name, width * 0.32), longest(|row| &row.said, width * 0.32));
        // The label of the first and the last tick reaches beyond the axis.
        let (left, right) =
            if broad { (names + EDGE * 0.6, width - figures - EDGE * 0.6) } else { (EDGE, width - EDGE) };
        let bottom = TOP + row_height * self.rows.len() as f64 + 6.0;
        let height = bottom + if self.axis.is_empty() { 24.0 } else { 44.0 };
        let mut out = head(&self.title, &self.description, width, height);
        self.draw_axis(&mut out, (left, right, bottom));
        for (index, row) in self.rows.iter().enumerate() {
            let top = TOP + row_height * index as f64;
            let (text_y, mark_y) =
                if broad { (top + row_height / 2.0 + 4.0, top + row_height / 2.0) } else { (top + 14.0, top + 30.0) };
            let _ = write!(
                out,
                r#"<text class="row-name" x="8" y="{}">{}</text><text class="mark {}" x="{}" y="{}" text-anchor="end">{}</text>"#,
                short(text_y),
                escape(&shortened(&row.name, if broad { names - 16.0 } else { width * 0.55 })),
                row.colour,
                short(width - 8.0),
                short(text_y),
                escape(&shortened(&row.said, if broad { figures } else { width * 0.5 })),
            );
            self.draw_mark(&mut out, row, (left, right), mark_y);
        }
        out + "</svg>"
    }

    fn place(&self, value: f64, (left, right): (f64, f64)) -> f64 {
        let (low, high) = self.range;
        left + (value.clamp(low, high) - low) / (high - low) * (right - left)
    }

    fn draw_axis(&self, out: &mut String, (left, right, bottom): (f64, f64, f64)) {
        for tick in self.ticks(right - left) {
            let x = short(self.place(tick, (left, right)));
            let class = if tick == 0.0 { "axis" } else { "grid" };
            let _ = write!(
                out,
                r#"<line class="{class}" x1="{x}" y1="{TOP}" x2="{x}" y2="{}"/><text class="tick" x="{x}" y="{}" text-anchor="middle">{}</text>"#,
                short(bottom),
                short(bottom + 16.0),
                escape(&(self.write)(tick)),
            );
        }
        if !self.axis.is_empty() {
            let _ = write!(
                out,
                r#"<text class="axis-label" x="{}" y="{}" text-anchor="middle">{}</text>"#,
                short((left + right) / 2.0),
                short(bottom + 36.0),
                escape(&self.axis)
            );
        }
    }

    /// Round values, zero among them where it is in range, as many as have room for their labels; and the low end.
    fn ticks(&self, width: f64) -> Vec<f64> {
        let (low, high) = self.range;
        let nice = |rough: f64| if self.whole { nice_step(rough).max(1.0).ceil() } else { nice_step(rough) };
        let mut step = nice((high - low) / (width / 50.0).max(2.0));
        let round = |step: f64| {
            let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
            (first..=last).map(|index| index as f64 * step).collect::<Vec<f64>>()
        };
        let room = |step: f64| step / (high - low) * width;
        let widest = |ticks: &[f64]| {
            let label = |tick: &f64| (self.write)(*tick).chars().count() as f64 * CHARACTER + 10.0;
            ticks.iter().map(label).fold(0.0, f64::max)
        };
        let mut ticks = round(step);
        while ticks.len() > 2 && widest(&ticks) > room(step) {
            step = nice(step * 1.01);
            ticks = round(step);
        }
        // The end of an axis that cannot go further is worth a label, if there is room for one.
        let first = ticks.first().copied().unwrap_or(high);
        if (first - low) / (high - low) * width > widest(&[low, first]) && self.ends_low {
            ticks.insert(0, low);
        }
        ticks
    }

    fn draw_mark(&self, out: &mut String, row: &Row, ends: (f64, f64), y: f64) {
        let tip = escape(&format!("{}: {}", row.name, row.said));
        let colour = row.colour;
        match row.mark {
            Mark::Nothing => {}
            Mark::Bar(to) => {
                let (zero, end) = (self.place(0.0, ends), self.place(to, ends));
                let _ = write!(
                    out,
                    r#"<rect class="bar {colour}" x="{}" y="{}" width="{}" height="14" rx="2"><title>{tip}</title></rect>"#,
                    short(zero.min(end)),
                    short(y - 7.0),
                    short((end - zero).abs().max(1.0)),
                );
            }
            Mark::Span(low, middle, high) => {
                let (a, b) = (self.place(low, ends), self.place(high, ends));
                let _ = write!(
                    out,
                    r#"<line class="line {colour}" x1="{}" y1="{y}" x2="{}" y2="{y}"/>"#,
                    short(a),
                    short(b),
                    y = short(y)
                );
                // An arrow where the interval goes on beyond the end of the axis.
                for (beyond, at, way) in [(low < self.range.0, a, -1.0), (high > self.range.1, b, 1.0)] {
                    if beyond {
                        let points = [(at + way * 9.0, y), (at, y - 5.0), (at, y + 5.0)];
                        let points = super::coordinates(points.into_iter());
                        let _ = write!(out, r#"<polygon class="dot {colour}" points="{points}"/>"#);
                    }
                }
                if (self.range.0..=self.range.1).contains(&middle) {
                    let _ = write!(
                        out,
                        r#"<circle class="dot {colour}" cx="{}" cy="{}" r="5.5"><title>{tip}</title></circle>"#,
                        short(self.place(middle, ends)),
                        short(y),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(range: (f64, f64)) -> Rows {
        let row = |name: &str, mark: Mark| Row { name: name.into(), mark, said: "said".into(), colour: "s2" };
        Rows {
            title: "t".into(),
            description: "d".into(),
            rows: vec![row("a", Mark::Span(-0.9, -0.8, 0.1)), row("<b>", Mark::Bar(0.5)), row("c", Mark::Nothing)],
            range,
            ends_low: true,
            whole: false,
            write: |value| format!("{} %", measure::figures::plain(value * 100.0)),
            axis: String::new(),
        }
    }

    #[test]
    fn ticks_are_round_have_room_and_begin_with_the_end_of_the_axis() {
        for high in [0.02, 0.4, 1.0, 3.7, 10.0] {
            for width in [240.0, 360.0, 640.0] {
                let chart = chart((-1.0, high));
                let ticks = chart.ticks(width);
                let at = |tick: f64| chart.place(tick, (0.0, width));
                assert!(ticks.contains(&0.0) && ticks.len() >= 2, "{high} {width}: {ticks:?}");
                assert!(ticks.windows(2).all(|pair| at(pair[1]) - at(pair[0]) > 38.0), "{high} {width}: {ticks:?}");
            }
            let ticks = chart((-1.0, high)).ticks(360.0);
            assert!(high > 4.5 || ticks[0] == -1.0, "{high}: {ticks:?}");
        }
    }

    #[test]
    fn whole_ticks_have_whole_steps() {
        for high in [1.2, 3.0, 7.5, 22.0] {
            let ticks = Rows { whole: true, ends_low: false, ..chart((-1.4, high)) }.ticks(360.0);
            assert!(ticks.contains(&0.0) && ticks.iter().all(|tick| tick.fract() == 0.0), "{high}: {ticks:?}");
        }
    }

    #[test]
    fn an_interval_beyond_the_axis_ends_with_an_arrow() {
        let whole = chart((-1.0, 1.0)).svg(640.0);
        assert_eq!(whole.matches("<polygon").count(), 0);
        assert_eq!(whole.matches("<circle").count(), 1);
        assert_eq!(whole.matches("class=\"bar").count(), 1);
        assert!(whole.contains("&lt;b&gt;") && !whole.contains("<b>"));
        let cut = chart((-0.85, 0.05)).svg(360.0);
        assert_eq!(cut.matches("<polygon").count(), 2);
    }
}
