//! Charts as inline SVG: series over linear, logarithmic or percentile axes, with confidence bands, markers,
//! legends and tooltips.
//!
//! A chart is a value; [`Chart::svg`] draws it. Colours come from custom properties that [`STYLE`] defines for
//! light and dark, so a page includes [`STYLE`] once and no script:
//!
//! ```
//! use report::svg::{Axis, Chart, Format, Series};
//! let chart = Chart::new("Throughput over depth")
//!     .x(Axis::log2("iodepth"))
//!     .y(Axis::linear("IOPS").format(Format::Count))
//!     .series(Series::line("io_uring", vec![(1.0, 9e3), (2.0, 17e3), (4.0, 30e3)]));
//! assert!(chart.svg().starts_with("<svg"));
//! ```

mod alone;
pub(crate) mod heat;
pub(crate) mod rows;

pub use alone::Picture;

use std::fmt::Write;

use measure::figures;

/// The style sheet that charts need, once a page: colours for light and for dark, text sizes, line widths.
pub const STYLE: &str =
    concat!(include_str!("svg/colours.css"), include_str!("svg/rules.css"), include_str!("svg/page.css"));

/// Different colours before they repeat.
pub const COLOURS: usize = 8;

/// The mapping of an axis from values to places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Evenly per factor of two. Values must be positive; others are not drawn.
    Log2,
    /// Evenly per factor of ten. Values must be positive; others are not drawn.
    Log10,
    /// Percentiles 0..100, evenly per nine: 90, 99, 99.9 are equally far apart. Values of 100 are not drawn.
    Nines,
}

/// The form in which an axis writes its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// The value as it is: 0.25, 12, 4096.
    #[default]
    Plain,
    /// The value with k, M or G: 12k.
    Count,
    /// A number of bytes per second: 512 MiB/s.
    BytesPerSecond,
    /// A number of nanoseconds: 120 us.
    Nanoseconds,
    /// A number of seconds: 12 s.
    Seconds,
    /// A percentage or percentile: 99.9 %.
    Percent,
    /// The day of a moment in seconds since the Unix epoch, in UTC: 2026-11-13.
    Day,
    /// The day and the minute of such a moment: 11-13 06:30.
    Minute,
}

impl Format {
    /// The value as written on an axis or in a tooltip.
    pub fn write(self, value: f64) -> String {
        match self {
            Format::Plain => figures::plain(value),
            Format::Count => figures::count(value),
            Format::BytesPerSecond => figures::bytes_per_second(value),
            Format::Nanoseconds => figures::nanoseconds(value),
            Format::Seconds => format!("{} s", figures::plain(value)),
            // Percentiles live in their last digits: 99.99.
            Format::Percent => {
                let text = format!("{value:.4}");
                format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
            }
            Format::Day => measure::time::utc(value.max(0.0) as u64)[..10].to_string(),
            Format::Minute => measure::time::utc(value.max(0.0) as u64)[5..16].to_string(),
        }
    }
}

/// One axis. Its range is that of the data unless given; a linear one begins at zero unless told otherwise.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    scale: Scale,
    format: Format,
    low: Option<f64>,
    high: Option<f64>,
    from_zero: bool,
    whole: bool,
    ticks: Option<Vec<f64>>,
}

impl Axis {
    /// An axis of the given scale.
    pub fn new(label: impl Into<String>, scale: Scale) -> Axis {
        Axis {
            label: label.into(),
            scale,
            format: Format::Plain,
            low: None,
            high: None,
            from_zero: true,
            whole: false,
            ticks: None,
        }
    }

    /// An axis on which equal distances are equal differences.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis::new(label, Scale::Linear)
    }

    /// A logarithmic axis with ticks at powers of two.
    pub fn log2(label: impl Into<String>) -> Axis {
        Axis::new(label, Scale::Log2)
    }

    /// A logarithmic axis with ticks at powers of ten.
    pub fn log10(label: impl Into<String>) -> Axis {
        Axis::new(label, Scale::Log10)
    }

    /// Sets the form in which the axis writes its values.
    pub fn format(mut self, format: Format) -> Axis {
        self.format = format;
        self
    }

    /// Fixes the range instead of taking that of the data.
    pub fn range(mut self, low: f64, high: f64) -> Axis {
        (self.low, self.high) = (Some(low), Some(high));
        self
    }

    /// Puts the ticks of a linear axis at whole numbers only: numbers of runs, of threads.
    pub fn whole(mut self) -> Axis {
        self.whole = true;
        self
    }

    /// Puts the ticks at these values, ascending: of a parameter that was set to a few values.
    pub fn ticks(mut self, values: Vec<f64>) -> Axis {
        self.ticks = Some(values);
        self
    }

    /// Lets a linear axis begin at the smallest value instead of zero.
    pub fn not_from_zero(mut self) -> Axis {
        self.from_zero = false;
        self
    }
}

/// The form of a series in the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Straight lines from point to point.
    Line,
    /// Each value holds until the next point.
    Steps,
    /// Points without a line between them.
    Points,
    /// A filled area down to the axis.
    Area,
}

/// Points that belong together, with an optional confidence band.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    band: Vec<(f64, f64, f64)>,
    shape: Shape,
    colour: Option<usize>,
    dashed: bool,
}

impl Series {
    /// A series drawn as `shape`; points by ascending x. Points that are not finite leave a gap.
    pub fn new(name: impl Into<String>, shape: Shape, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, band: Vec::new(), shape, colour: None, dashed: false }
    }

    /// A series drawn as a line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series::new(name, Shape::Line, points)
    }

    /// Adds a band: (x, low, high) by ascending x.
    pub fn band(mut self, band: Vec<(f64, f64, f64)>) -> Series {
        self.band = band;
        self
    }

    /// The colour's number, modulo [`COLOURS`]; the series' position by default.
    pub fn colour(mut self, colour: usize) -> Series {
        self.colour = Some(colour);
        self
    }

    /// Draws the line of the series dashed.
    pub fn dashed(mut self) -> Series {
        self.dashed = true;
        self
    }
}

/// A line across the chart at one value, with a label and an optional confidence band; or a band alone.
#[derive(Clone, Debug)]
struct Rule {
    vertical: bool,
    /// The value of the line, or the middle of a band without one.
    at: f64,
    has_line: bool,
    band: Option<(f64, f64)>,
    label: String,
    colour: Option<usize>,
}

/// A chart of one or more series over two axes, as SVG.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    rules: Vec<Rule>,
    links: Vec<(f64, f64, f64)>,
    tooltips: bool,
    width: f64,
    height: f64,
}

const LEFT: f64 = 92.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 46.0;
const ROW: f64 = 17.0;
/// The width of a character of the text, generously.
const CHARACTER: f64 = 6.7;
/// The width of a character of bold text, generously.
const BOLD: f64 = 7.2;

/// The beginning of every chart, up to its title: the name for programs that read a page aloud is the title, and the
/// description follows. Text is escaped.
fn head(title: &str, description: &str, width: f64, height: f64) -> String {
    let title = escape(title);
    format!(
        r#"<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{title}" xmlns="http://www.w3.org/2000/svg"><title>{title}</title><desc>{}</desc><text class="chart-title" x="8" y="18">{title}</text>"#,
        short(width),
        short(height),
        escape(description),
    )
}

/// Text cut to a width, with an ellipsis in the middle: the ends of host names and labels tell them apart.
fn shortened(text: &str, width: f64) -> String {
    let (length, fits) = (text.chars().count(), (width / CHARACTER) as usize);
    if length <= fits || fits < 4 {
        return text.to_string();
    }
    let before = (fits - 1).div_ceil(2);
    let after = fits - 1 - before;
    text.chars().take(before).chain(['\u{2026}']).chain(text.chars().skip(length - after)).collect()
}

impl Chart {
    /// An empty chart, 640 by 320, both axes linear.
    pub fn new(title: impl Into<String>) -> Chart {
        Chart {
            title: title.into(),
            x: Axis::linear(""),
            y: Axis::linear(""),
            series: Vec::new(),
            rules: Vec::new(),
            links: Vec::new(),
            tooltips: true,
            width: 640.0,
            height: 320.0,
        }
    }

    /// Sets the horizontal axis.
    pub fn x(mut self, axis: Axis) -> Chart {
        self.x = axis;
        self
    }

    /// Sets the vertical axis.
    pub fn y(mut self, axis: Axis) -> Chart {
        self.y = axis;
        self
    }

    /// Adds a series to the chart.
    pub fn series(mut self, series: Series) -> Chart {
        self.series.push(series);
        self
    }

    /// Adds a vertical line at `x` with a label, and a band where its confidence interval is known. `colour` is a
    /// series' colour number; None draws it in the colour of text.
    pub fn mark_x(
        mut self,
        x: f64,
        band: Option<(f64, f64)>,
        label: impl Into<String>,
        colour: Option<usize>,
    ) -> Chart {
        self.rules.push(Rule { vertical: true, at: x, has_line: true, band, label: label.into(), colour });
        self
    }

    /// Adds a vertical band from `low` to `high` with a label: of a value that is known by its bounds alone. `colour`
    /// as in [`Chart::mark_x`].
    pub fn span_x(mut self, low: f64, high: f64, label: impl Into<String>, colour: Option<usize>) -> Chart {
        let at = if self.x.scale == Scale::Linear { (low + high) / 2.0 } else { (low * high).sqrt() };
        let band = Some((low, high));
        self.rules.push(Rule { vertical: true, at, has_line: false, band, label: label.into(), colour });
        self
    }

    /// Adds a horizontal line at `y`; otherwise as [`Chart::mark_x`].
    pub fn mark_y(
        mut self,
        y: f64,
        band: Option<(f64, f64)>,
        label: impl Into<String>,
        colour: Option<usize>,
    ) -> Chart {
        self.rules.push(Rule { vertical: false, at: y, has_line: true, band, label: label.into(), colour });
        self
    }

    /// Adds a thin line between two values at `x`, which shows that the two belong together.
    pub fn link(mut self, x: f64, from: f64, to: f64) -> Chart {
        self.links.push((x, from, to));
        self
    }

    /// Leaves out the tooltips of the points, which a screen without a pointer cannot show.
    pub fn without_tooltips(mut self) -> Chart {
        self.tooltips = false;
        self
    }

    /// The size of the drawing's coordinate system; on a page it scales to the width it is given.
    pub fn size(mut self, width: f64, height: f64) -> Chart {
        (self.width, self.height) = (width, height);
        self
    }

    /// The chart as an `<svg>` element. Text is escaped.
    pub fn svg(&self) -> String {
        let legend = self.legend_rows();
        let marker_rows = self.rules.iter().filter(|rule| rule.vertical).count() as f64;
        // A label may reach to the left of the plot, where the highest tick has its figure.
        let gap = if marker_rows > 0.0 { 7.0 } else { 0.0 };
        let top = 34.0 + legend.len() as f64 * ROW + marker_rows * ROW + gap;
        // Rows of text come on top of the requested height, so that the plot itself keeps its size.
        let height = self.height + top - 34.0;
        // The horizontal axis ends with the data: a run of 3 s has nothing to show at 3.5 s.
        let mut across = self.x.clone();
        if across.scale == Scale::Linear && across.high.is_none() {
            across.high = self.values(true).filter(|x| x.is_finite()).max_by(f64::total_cmp).filter(|high| *high > 0.0);
        }
        let frame = Frame {
            x: Placed::new(&across, self.values(true), LEFT, self.width - RIGHT, (self.width / 70.0) as usize),
            y: Placed::new(&self.y, self.values(false), height - BOTTOM, top, 6),
        };
        let mut out = head(&self.title, &self.description(), self.width, height);
        self.draw_legend(&mut out, &legend);
        frame.draw_axes(&mut out, &self.x, &self.y);
        self.draw_rules(&mut out, &frame, top - marker_rows * ROW - gap);
        for &(x, from, to) in &self.links {
            if let (Some(x), Some(from), Some(to)) = (frame.x.place(x), frame.y.place(from), frame.y.place(to)) {
                let (x, from, to) = (short(x), short(from), short(to));
                let _ = write!(out, r#"<line class="link" x1="{x}" y1="{from}" x2="{x}" y2="{to}"/>"#);
            }
        }
        for (index, series) in self.series.iter().enumerate() {
            let colour = series.colour.unwrap_or(index) % COLOURS;
            frame.draw_series(&mut out, series, (colour, self.is_dashed(index)), self);
        }
        out.push_str("</svg>");
        out
    }

    /// The chart in words, for readers who do not see it: the axes, then the ends and the highest point of each series.
    fn description(&self) -> String {
        const SERIES: usize = 12;
        let mut out = format!("{} over {}.", self.y.label, self.x.label);
        for series in self.series.iter().take(SERIES) {
            let drawn = || series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            let (Some(first), Some(last)) = (drawn().next(), drawn().next_back()) else { continue };
            let highest = drawn().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(last);
            let at =
                |point: &(f64, f64)| format!("{} at {}", self.y.format.write(point.1), self.x.format.write(point.0));
            let name = if series.name.is_empty() { String::new() } else { format!("{}: ", series.name) };
            let _ = write!(out, " {name}{} to {}, highest {}.", at(first), at(last), at(highest));
        }
        for rule in &self.rules {
            let _ = write!(out, " Marked: {}.", rule.label);
        }
        out
    }

    /// All values on one axis, bands and markers included.
    fn values(&self, horizontal: bool) -> impl Iterator<Item = f64> + '_ {
        let points = self.series.iter().flat_map(move |series| {
            let points = series.points.iter().map(move |&(x, y)| if horizontal { x } else { y });
            let bands =
                series.band.iter().flat_map(move |&(x, low, high)| if horizontal { [x, x] } else { [low, high] });
            points.chain(bands)
        });
        points.chain(self.rules.iter().filter(move |rule| rule.vertical == horizontal).map(|rule| rule.at))
    }

    /// Names of series, broken into rows that fit.
    fn legend_rows(&self) -> Vec<Vec<(usize, f64)>> {
        let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
        if self.series.len() < 2 {
            return rows;
        }
        let mut x = self.width;
        for (index, series) in self.series.iter().enumerate() {
            let wide = (42.0 + series.name.chars().count() as f64 * 6.6).min(self.width - RIGHT - 8.0);
            if x + wide > self.width - RIGHT {
                rows.push(Vec::new());
                x = 8.0;
            }
            rows.last_mut().expect("a row was just pushed").push((index, x));
            x += wide;
        }
        rows
    }

    fn draw_legend(&self, out: &mut String, rows: &[Vec<(usize, f64)>]) {
        for (row, entries) in rows.iter().enumerate() {
            let y = 38.0 + row as f64 * ROW;
            for &(index, x) in entries {
                let series = &self.series[index];
                let colour = series.colour.unwrap_or(index) % COLOURS;
                let dashed = if self.is_dashed(index) { " dashed" } else { "" };
                let _ = write!(
                    out,
                    r#"<line class="line s{colour}{dashed}" x1="{}" y1="{}" x2="{}" y2="{}"/><text class="legend" x="{}" y="{}">{}</text>"#,
                    short(x),
                    short(y - 4.0),
                    short(x + 18.0),
                    short(y - 4.0),
                    short(x + 23.0),
                    short(y),
                    escape(&shortened(&series.name, self.width - RIGHT - 31.0))
                );
            }
        }
    }

    /// True if a series is drawn dashed: by its own wish, or because its colour was used before.
    fn is_dashed(&self, index: usize) -> bool {
        self.series[index].dashed || self.series[index].colour.is_none() && index >= COLOURS
    }

    fn draw_rules(&self, out: &mut String, frame: &Frame, first_row: f64) {
        let (left, right, top, bottom) = frame.edges();
        let mut row = first_row + ROW - 6.0;
        for rule in &self.rules {
            let colour = rule.colour.map_or("plain".to_string(), |colour| format!("s{}", colour % COLOURS));
            let placed = if rule.vertical { &frame.x } else { &frame.y };
            let Some(at) = placed.place(rule.at) else { continue };
            if let Some((low, high)) = rule.band
                && let (Some(a), Some(b)) = (placed.place_clamped(low), placed.place_clamped(high))
            {
                let (a, b) = (a.min(b), a.max(b));
                let (x, y, w, h) =
                    if rule.vertical { (a, top, b - a, bottom - top) } else { (left, a, right - left, b - a) };
                let _ = write!(
                    out,
                    r#"<rect class="band {colour}" x="{}" y="{}" width="{}" height="{}"><title>{}: 95 % confidence interval</title></rect>"#,
                    short(x),
                    short(y),
                    short(w),
                    short(h),
                    escape(&rule.label)
                );
            }
            let label = escape(&rule.label);
            if rule.vertical {
                // The label stands above the plot in a separate row, so that labels of near markers never collide. It
                // stands on the side of its line that has room.
                let (before, after) = (at - 9.0, right + RIGHT - at - 9.0);
                let wide = rule.label.chars().count() as f64 * BOLD;
                let is_before = if at > (left + right) / 2.0 {
                    before >= wide || before > after
                } else {
                    after < wide && before > after
                };
                let (anchor, text_x, room) =
                    if is_before { ("end", at - 5.0, before) } else { ("start", at + 5.0, after) };
                let label = escape(&shortened(&rule.label, room * CHARACTER / BOLD));
                if rule.has_line {
                    let _ = write!(
                        out,
                        r#"<line class="rule {colour}" x1="{0}" y1="{1}" x2="{0}" y2="{2}"/>"#,
                        short(at),
                        short(row - 11.0),
                        short(bottom),
                    );
                }
                let _ = write!(
                    out,
                    r#"<text class="mark {colour}" x="{}" y="{}" text-anchor="{anchor}">{label}</text>"#,
                    short(text_x),
                    short(row),
                );
                row += ROW;
            } else {
                let _ = write!(
                    out,
                    r#"<line class="rule {colour}" x1="{0}" y1="{1}" x2="{2}" y2="{1}"/><text class="mark {colour}" x="{3}" y="{4}" text-anchor="start">{label}</text>"#,
                    short(left),
                    short(at),
                    short(right),
                    short(left + 6.0),
                    short(at - 4.0),
                );
            }
        }
    }
}

/// An axis with its range and its place on the drawing.
struct Placed {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Placed {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64, most_ticks: usize) -> Placed {
        let drawable = |value: &f64| value.is_finite() && project(axis.scale, *value).is_some();
        let (mut low, mut high) = values
            .filter(drawable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            (low, high) = if axis.scale == Scale::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
        }
        if axis.scale == Scale::Linear && axis.from_zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        let ticks = match axis.scale {
            Scale::Linear => {
                let rough = (high - low).max(f64::MIN_POSITIVE) / most_ticks as f64;
                // Round numbers of the unit that the ticks are written in.
                let unit = if axis.format == Format::BytesPerSecond {
                    let largest = high.abs().max(low.abs()).max(1.0);
                    1024f64.powf((largest.log2() / 10.0).floor())
                } else {
                    1.0
                };
                let step = nice_step(rough / unit) * unit;
                let step = if axis.whole { step.max(1.0).ceil() } else { step };
                if axis.low.is_none() {
                    low = (low / step).floor() * step;
                }
                if axis.high.is_none() {
                    high = if high > low { (high / step).ceil() * step } else { low + step };
                }
                (0..=most_ticks as u32 * 2).map(|i| ((low / step).ceil() + f64::from(i)) * step).collect()
            }
            Scale::Log2 => {
                if low == high {
                    (low, high) = (low / 2.0, high * 2.0);
                }
                let (first, last) = (low.log2().floor() as i32, high.log2().ceil() as i32);
                let every = ((last - first) as usize).div_ceil(most_ticks + 2).max(1);
                (first..=last).step_by(every).map(|power| 2f64.powi(power)).collect()
            }
            Scale::Log10 => {
                if low == high {
                    (low, high) = (low / 2.0, high * 2.0);
                }
                let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
                // Few decades get ticks at 1, 2 and 5, so that there is always more than one.
                let within: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let ticks: Vec<f64> =
                    (first..=last).flat_map(|power| within.iter().map(move |m| m * 10f64.powi(power))).collect();
                if axis.low.is_none() {
                    low = ticks.iter().copied().filter(|tick| *tick <= low).fold(ticks[0], f64::max);
                }
                if axis.high.is_none() {
                    high = ticks.iter().copied().filter(|tick| *tick >= high).fold(f64::INFINITY, f64::min).min(1e300);
                }
                ticks
            }
            Scale::Nines => vec![50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999],
        };
        (low, high) = (axis.low.unwrap_or(low), axis.high.unwrap_or(high));
        let ticks = axis.ticks.clone().unwrap_or(ticks);
        let mut placed = Placed { scale: axis.scale, low, high, from, to, ticks: Vec::new() };
        placed.ticks = ticks.into_iter().filter(|&tick| placed.place(tick).is_some()).collect();
        placed
    }

    /// The place of a value; None outside the range, or if the scale has no place for the value.
    fn place(&self, value: f64) -> Option<f64> {
        let (at, low, high) = self.projected(value)?;
        let part = (at - low) / (high - low);
        (-1e-9..=1.0 + 1e-9).contains(&part).then_some(self.from + part * (self.to - self.from))
    }

    /// As [`Self::place`], with values beyond an end at that end.
    fn place_clamped(&self, value: f64) -> Option<f64> {
        let (at, low, high) = self.projected(value.clamp(self.low, self.high))?;
        Some(self.from + ((at - low) / (high - low)).clamp(0.0, 1.0) * (self.to - self.from))
    }

    fn projected(&self, value: f64) -> Option<(f64, f64, f64)> {
        Some((project(self.scale, value)?, project(self.scale, self.low)?, project(self.scale, self.high)?))
    }
}

fn project(scale: Scale, value: f64) -> Option<f64> {
    match scale {
        _ if !value.is_finite() => None,
        Scale::Linear => Some(value),
        Scale::Log2 | Scale::Log10 => (value > 0.0).then(|| value.ln()),
        Scale::Nines => (0.0..100.0).contains(&value).then(|| -(1.0 - value / 100.0).log10()),
    }
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `rough`.
pub(crate) fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= rough * 0.999_999)
        .unwrap_or(power * 10.0)
}

struct Frame {
    x: Placed,
    y: Placed,
}

impl Frame {
    /// The edges of the plot: left, right, top, bottom.
    fn edges(&self) -> (f64, f64, f64, f64) {
        (self.x.from, self.x.to, self.y.to, self.y.from)
    }

    fn draw_axes(&self, out: &mut String, x_axis: &Axis, y_axis: &Axis) {
        let (left, right, top, bottom) = self.edges();
        for &tick in &self.y.ticks {
            let y = self.y.place(tick).expect("ticks are in range");
            let _ = write!(
                out,
                r#"<line class="grid" x1="{}" y1="{y}" x2="{}" y2="{y}"/><text class="tick" x="{}" y="{}" text-anchor="end">{}</text>"#,
                short(left),
                short(right),
                short(left - 7.0),
                short(y + 4.0),
                y_axis.format.write(tick),
                y = short(y),
            );
        }
        // A label that would lie on its neighbour is left out, and the last one ends with the drawing.
        let mut free_from = 0.0;
        for &tick in &self.x.ticks {
            let x = self.x.place(tick).expect("ticks are in range");
            let _ = write!(
                out,
                r#"<line class="grid" x1="{x}" y1="{}" x2="{x}" y2="{}"/>"#,
                short(top),
                short(bottom),
                x = short(x),
            );
            let label = x_axis.format.write(tick);
            let half = label.chars().count() as f64 * CHARACTER / 2.0;
            let middle = x.min(right + RIGHT - 2.0 - half);
            if middle - half < free_from {
                continue;
            }
            free_from = middle + half + 4.0;
            let _ = write!(
                out,
                r#"<text class="tick" x="{}" y="{}" text-anchor="middle">{label}</text>"#,
                short(middle),
                short(bottom + 16.0),
            );
        }
        let _ = write!(
            out,
            r#"<line class="axis" x1="{0}" y1="{1}" x2="{2}" y2="{1}"/><text class="axis-label" x="{3}" y="{4}" text-anchor="middle">{5}</text><text class="axis-label" x="14" y="{6}" text-anchor="middle" transform="rotate(-90 14 {6})">{7}</text>"#,
            short(left),
            short(bottom),
            short(right),
            short((left + right) / 2.0),
            short(bottom + 36.0),
            escape(&x_axis.label),
            short((top + bottom) / 2.0),
            escape(&y_axis.label),
        );
    }

    fn draw_series(&self, out: &mut String, series: &Series, (colour, dashed): (usize, bool), chart: &Chart) {
        let (x_axis, y_axis) = (&chart.x, &chart.y);
        let bottom = self.y.from;
        let band: Vec<_> = series
            .band
            .iter()
            .filter_map(|&(x, low, high)| {
                Some((self.x.place(x)?, self.y.place_clamped(low)?, self.y.place_clamped(high)?))
            })
            .collect();
        if band.len() > 1 {
            let there = band.iter().map(|&(x, low, _)| (x, low));
            let back = band.iter().rev().map(|&(x, _, high)| (x, high));
            let _ = write!(out, r#"<polygon class="band s{colour}" points="{}"/>"#, coordinates(there.chain(back)));
        }
        // Runs of points without a gap.
        let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
        let mut dots = String::new();
        // A dot a point is a place for the pointer as well as a mark; too many would hide the line.
        let radius = match series.shape {
            Shape::Points => 5.0,
            Shape::Line | Shape::Steps if series.points.len() <= 40 => 3.2,
            Shape::Line | Shape::Steps | Shape::Area => 0.0,
        };
        for &(x, y) in &series.points {
            let (Some(px), Some(py)) = (self.x.place(x), self.y.place(y)) else {
                runs.push(Vec::new());
                continue;
            };
            let run = runs.last_mut().expect("there is always a run");
            if series.shape == Shape::Steps
                && let Some(&(_, before)) = run.last()
            {
                run.push((px, before));
            }
            run.push((px, py));
            let (cx, cy) = (short(px), short(py));
            if !chart.tooltips {
                if radius > 0.0 {
                    let _ = write!(dots, r#"<circle class="dot s{colour}" cx="{cx}" cy="{cy}" r="{radius}"/>"#);
                }
                continue;
            }
            let class = if radius > 0.0 { "dot" } else { "hit" };
            let _ = write!(
                dots,
                r#"<circle class="{class} s{colour}" cx="{cx}" cy="{cy}" r="{}"><title>{}: {} {}, {} {}</title></circle>"#,
                short(if radius > 0.0 { radius } else { 4.0 }),
                escape(&series.name),
                escape(&x_axis.label),
                x_axis.format.write(x),
                escape(&y_axis.label),
                y_axis.format.write(y),
            );
        }
        let dashed = if dashed { " dashed" } else { "" };
        for run in runs.iter().filter(|run| !run.is_empty() && series.shape != Shape::Points) {
            if series.shape == Shape::Area {
                let ends = [(run[run.len() - 1].0, bottom), (run[0].0, bottom)];
                let outline = coordinates(run.iter().copied().chain(ends));
                let _ = write!(out, r#"<polygon class="band s{colour}" points="{outline}"/>"#);
            }
            let _ = write!(
                out,
                r#"<polyline class="line s{colour}{dashed}" points="{}"/>"#,
                coordinates(run.iter().copied())
            );
        }
        out.push_str(&dots);
    }
}

fn coordinates(points: impl Iterator<Item = (f64, f64)>) -> String {
    points.map(|(x, y)| format!("{},{}", short(x), short(y))).collect::<Vec<_>>().join(" ")
}

/// A coordinate with at most one decimal.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_string).unwrap_or(text)
}

/// Text made safe inside an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: Series) -> Chart {
        Chart::new("t").x(Axis::log2("depth")).y(Axis::linear("IOPS").format(Format::Count)).series(series)
    }

    #[test]
    fn every_point_has_a_tooltip_and_lies_in_the_plot() {
        let svg = chart(Series::line("a", vec![(1.0, 10e3), (8.0, 50e3), (64.0, 49e3)])).svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("<title>a: depth 8, IOPS 50k</title>"), "{svg}");
        for part in svg.split("cx=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=640.0 - RIGHT).contains(&x), "{x}");
        }
    }

    #[test]
    fn what_cannot_be_placed_leaves_a_gap_and_no_nan() {
        let points = vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0), (4.0, f64::INFINITY), (8.0, 4.0)];
        let svg = chart(Series::line("a", points)).svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let empty = chart(Series::line("a", Vec::new())).svg();
        assert!(!empty.contains("NaN") && !empty.contains("inf"));
    }

    #[test]
    fn names_cannot_inject_markup() {
        let svg =
            Chart::new("<script>").series(Series::line("a\"b", vec![(1.0, 1.0)])).mark_x(1.0, None, "<&>", None).svg();
        assert!(!svg.contains("<script>") && svg.contains("&lt;&amp;&gt;"));
    }

    #[test]
    fn linear_ticks_are_round_and_cover_the_data() {
        let axis = Axis::linear("y");
        for high in [0.013, 1.0, 97.0, 123_456.0] {
            let placed = Placed::new(&axis, [0.0, high].into_iter(), 0.0, 100.0, 6);
            assert!((3..=8).contains(&placed.ticks.len()), "{:?}", placed.ticks);
            assert!(placed.high >= high && placed.high <= high * 1.6, "{high}: {}", placed.high);
        }
    }

    #[test]
    fn bytes_get_ticks_that_are_round_in_their_unit() {
        let axis = Axis::linear("bw").format(Format::BytesPerSecond);
        let placed = Placed::new(&axis, [0.0, 476.0 * 1048576.0].into_iter(), 0.0, 100.0, 6);
        let written: Vec<String> = placed.ticks.iter().map(|&tick| axis.format.write(tick)).collect();
        assert_eq!(written, ["0 B/s", "100 MiB/s", "200 MiB/s", "300 MiB/s", "400 MiB/s", "500 MiB/s"]);
        assert_eq!(Format::Percent.write(99.99), "99.99 %");
    }

    #[test]
    fn a_value_that_is_known_by_its_bounds_is_a_band_without_a_line() {
        let line = || chart(Series::line("a", vec![(1.0, 10e3), (8.0, 50e3), (64.0, 49e3)]));
        let svg = line().span_x(4.0, 16.0, "load line 4 to 16", None).svg();
        assert_eq!((svg.matches("<rect class=\"band plain\"").count(), svg.matches("class=\"rule").count()), (1, 0));
        assert!(svg.contains(">load line 4 to 16</text>"), "{svg}");
        let marked = line().mark_x(8.0, Some((4.0, 16.0)), "load line 8", None).svg();
        assert_eq!(marked.matches("class=\"rule").count(), 1);
    }

    #[test]
    fn the_label_of_a_line_stands_on_the_side_that_has_room() {
        let long = "numjobs 2: load line 24";
        for at in [1.0, 8.0, 10.0, 64.0] {
            let line = Series::line("a", vec![(1.0, 1.0), (64.0, 2.0)]);
            let svg = chart(line).mark_x(at, None, long, None).size(360.0, 300.0).svg();
            let mark = svg.split("<text class=\"mark").nth(1).unwrap();
            let x: f64 = mark.split("x=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            let wide = long.len() as f64 * BOLD;
            let (from, to) = if mark.contains("text-anchor=\"end\"") { (x - wide, x) } else { (x, x + wide) };
            assert!(from >= 0.0 && to <= 360.0 && mark.contains(long), "{at}: {from} to {to}: {mark:.200}");
        }
    }

    #[test]
    fn moments_are_written_as_dates() {
        assert_eq!(Format::Day.write(1_795_180_627.0), "2026-11-20");
        assert_eq!(Format::Minute.write(1_795_180_627.0), "11-20 13:17");
    }

    #[test]
    fn nines_are_equally_far_apart() {
        let placed = Placed::new(&Axis::new("p", Scale::Nines), [0.0, 99.99].into_iter(), 0.0, 4.0, 9);
        for (percentile, at) in [(0.0, 0.0), (90.0, 1.0), (99.0, 2.0), (99.9, 3.0)] {
            assert!((placed.place(percentile).unwrap() - at).abs() < 1e-6);
        }
    }
}
